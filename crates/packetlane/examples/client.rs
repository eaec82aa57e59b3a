//! A client of BIP324, Bitcoin's v2 transport, over blocking sockets of the standard library.
//!
//! ```sh
//! cargo run -p packetlane --example client               # with a responder of its own
//! cargo run -p packetlane --example client -- HOST:PORT  # with a node of mainnet
//! ```
//!
//! After the handshake it sends a `ping` and prints what comes back. A real node may send
//! something else, or nothing: it expects a `version` message first.

use packetlane::bip324::{Handshake, HandshakeConfig, PacketKind, Progress, Session};
use packetlane::bitcoin::Network;
use packetlane::bitcoin::message::{MessageType, decode_message, encode_message};
use packetlane::{Batch, Engine};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const PING: MessageType = MessageType::literal("ping");
const PONG: MessageType = MessageType::literal("pong");
const READ_TIMEOUT: Duration = Duration::from_secs(5);

struct Connection {
    engine: Engine,
    stream: TcpStream,
    session: Session,
    /// Packets that have come. Those that nobody took yet wait here.
    incoming: Batch,
    outgoing: Batch,
}

impl Connection {
    /// Performs the handshake.
    fn new(engine: Engine, mut stream: TcpStream, mut handshake: Handshake) -> Result<Self> {
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        let mut buffer = [0; 4096];
        let session = loop {
            stream.write_all(&handshake.take_output())?;
            let len = stream.read(&mut buffer)?;
            if len == 0 {
                return Err(handshake.closed().into());
            }
            match handshake.receive(&buffer[..len])? {
                Progress::Waiting => {}
                Progress::V1(_) => return Err("the peer speaks v1".into()),
                Progress::Complete(session) => break *session,
            }
        };
        stream.write_all(&handshake.take_output())?;
        let (incoming, outgoing) = (Batch::new(), Batch::new());
        let mut connection = Self {
            engine,
            stream,
            session,
            incoming,
            outgoing,
        };
        // Packets may have come with the handshake's last bytes.
        connection.open(0);
        Ok(connection)
    }

    /// Opens the packets in the first `len` bytes of the batch's room.
    fn open(&mut self, len: usize) {
        self.session.inbound.received(&mut self.incoming, len);
        self.engine.open(&mut self.incoming);
    }

    /// The next message; `None` if the peer has closed the connection.
    fn receive(&mut self) -> Result<Option<(MessageType, Vec<u8>)>> {
        loop {
            if let Some(contents) = self.session.inbound.packets(&self.incoming).next() {
                let (message_type, payload) = decode_message(contents?)?;
                return Ok(Some((message_type, payload.to_vec())));
            }
            self.incoming.clear();
            match self.stream.read(self.incoming.room(64 << 10))? {
                0 => return Ok(None),
                len => self.open(len),
            }
        }
    }

    fn send(&mut self, message_type: MessageType, payload: &[u8]) -> Result<()> {
        let mut contents = Vec::new();
        encode_message(message_type, payload, &mut contents);
        self.outgoing.clear();
        let outbound = &mut self.session.outbound;
        let slot = outbound.push(&mut self.outgoing, PacketKind::Genuine, &contents)?;
        self.engine.seal(&mut self.outgoing);
        Ok(self.stream.write_all(self.outgoing.wire(&slot))?)
    }
}

fn connect(engine: Engine, address: &str) -> Result<Connection> {
    let config = HandshakeConfig::random(Network::Mainnet.magic(), engine)?;
    let stream = TcpStream::connect(address)?;
    Connection::new(engine, stream, Handshake::initiator(config)?)
}

/// Accepts one connection and answers one `ping`.
fn respond(engine: Engine, listener: &TcpListener) -> Result<()> {
    let config = HandshakeConfig::random(Network::Mainnet.magic(), engine)?;
    let (stream, _) = listener.accept()?;
    let mut connection = Connection::new(engine, stream, Handshake::responder(config)?)?;
    let (message_type, nonce) = connection.receive()?.ok_or("closed before the ping")?;
    assert_eq!(message_type, PING);
    connection.send(PONG, &nonce)
}

fn main() -> Result<()> {
    let engine = Engine::detect()?;
    let nonce = 0x0123_4567_89ab_cdef_u64.to_le_bytes();
    if let Some(address) = std::env::args().nth(1) {
        let mut node = connect(engine, &address)?;
        node.send(PING, &nonce)?;
        match node.receive() {
            Ok(Some((answer, _))) => println!("{address} speaks v2 and sent {answer}."),
            Ok(None) => println!("{address} speaks v2 and closed the connection."),
            Err(error) => println!("{address} speaks v2; then came no message: {error}."),
        }
        return Ok(());
    }
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    let responder = std::thread::spawn(move || respond(engine, &listener));
    let mut node = connect(engine, &address)?;
    node.send(PING, &nonce)?;
    assert_eq!(node.receive()?, Some((PONG, nonce.to_vec())));
    responder.join().expect("the responder panicked")?;
    println!("BIP324: a ping went to {address}, and its pong came back.");
    Ok(())
}
