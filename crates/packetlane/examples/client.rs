//! A BIP324 (Bitcoin v2 transport) client with blocking sockets of the standard library.
//!
//! ```sh
//! cargo run -p packetlane --example client               # with a responder of its own
//! cargo run -p packetlane --example client -- HOST:PORT  # with a node of mainnet
//! ```
//!
//! After the handshake it sends a `ping` and prints the answer. A real node may send something
//! else, or nothing: it expects a `version` message first.

use packetlane::Engine;
use packetlane::bip324::{Connection, HandshakeConfig};
use packetlane::bitcoin::Network;
use packetlane::bitcoin::message::MessageType;
use packetlane::{OpenBatch, SealBatch};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const PING: MessageType = MessageType::literal("ping");
const PONG: MessageType = MessageType::literal("pong");
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// The peer at the other end of a socket.
struct Peer {
    engine: Engine,
    stream: TcpStream,
    connection: Connection,
    /// Received packets that have not been taken yet.
    incoming: OpenBatch,
    outgoing: SealBatch,
}

impl Peer {
    /// Runs the handshake.
    fn new(engine: Engine, stream: TcpStream, connection: Connection) -> Result<Self> {
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        let (incoming, outgoing) = (OpenBatch::new(), SealBatch::new());
        let mut peer = Self {
            engine,
            stream,
            connection,
            incoming,
            outgoing,
        };
        peer.write()?;
        while peer.connection.session().is_none() {
            peer.read()?;
        }
        Ok(peer)
    }

    /// Reads once, opens the received packets and writes the handshake's answers.
    fn read(&mut self) -> Result<()> {
        self.incoming.clear();
        match self.stream.read(self.incoming.room(64 << 10))? {
            0 => return Err(self.connection.closed().into()),
            len => self.connection.receive(&mut self.incoming, len)?,
        };
        self.engine.open(&mut self.incoming);
        self.write()
    }

    /// Seals and writes the queue.
    fn write(&mut self) -> Result<()> {
        self.engine.seal(&mut self.outgoing);
        let outbox = &mut self.connection.outbox;
        outbox.write(&self.outgoing, |pieces| self.stream.write_vectored(pieces))?;
        self.outgoing.clear();
        Ok(())
    }

    /// Returns the next message.
    fn receive(&mut self) -> Result<(MessageType, Vec<u8>)> {
        loop {
            let message = self.connection.next_message(&self.incoming)?;
            if let Some((message_type, payload)) = message {
                return Ok((message_type, payload.to_vec()));
            }
            self.read()?;
        }
    }

    fn send(&mut self, message_type: MessageType, payload: &[u8]) -> Result<()> {
        let outgoing = &mut self.outgoing;
        self.connection
            .push_message(outgoing, message_type, payload)?;
        self.write()
    }
}

fn config(engine: Engine) -> Result<HandshakeConfig> {
    Ok(HandshakeConfig::random(Network::Mainnet.magic(), engine)?)
}

fn connect(engine: Engine, address: &str) -> Result<Peer> {
    let connection = Connection::initiator(config(engine)?)?;
    Peer::new(engine, TcpStream::connect(address)?, connection)
}

/// Accepts one connection and answers one `ping`.
fn respond(engine: Engine, listener: &TcpListener) -> Result<()> {
    let connection = Connection::responder(config(engine)?)?;
    let mut peer = Peer::new(engine, listener.accept()?.0, connection)?;
    let (message_type, nonce) = peer.receive()?;
    assert_eq!(message_type, PING);
    peer.send(PONG, &nonce)
}

fn main() -> Result<()> {
    let engine = Engine::detect()?;
    let nonce = 0x0123_4567_89ab_cdef_u64.to_le_bytes();
    if let Some(address) = std::env::args().nth(1) {
        let mut node = connect(engine, &address)?;
        node.send(PING, &nonce)?;
        match node.receive() {
            Ok((answer, _)) => println!("{address} speaks v2 and sent {answer}."),
            Err(error) => println!("{address} speaks v2, but sent no message: {error}."),
        }
        return Ok(());
    }
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    let responder = std::thread::spawn(move || respond(engine, &listener));
    let mut node = connect(engine, &address)?;
    node.send(PING, &nonce)?;
    assert_eq!(node.receive()?, (PONG, nonce.to_vec()));
    responder.join().expect("the responder panicked")?;
    println!("BIP324: sent a ping to {address} and received its pong.");
    Ok(())
}
