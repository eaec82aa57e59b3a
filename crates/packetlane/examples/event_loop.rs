//! An echo server on an event loop: in each turn, one call opens everything that its clients have
//! sent, and one call seals all answers.
//!
//! ```sh
//! cargo run -p packetlane --example event_loop
//! ```

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use packetlane::bip324::{Connection, HandshakeConfig, PacketKind};
use packetlane::bitcoin::Network;
use packetlane::{Engine, OpenBatch, SealBatch};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::SocketAddr;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const LISTENER: Token = Token(usize::MAX);
/// Maximum length of one read, in bytes.
const READ_LEN: usize = 16 * 1024;
/// A client with this many bytes of unread answers is neither read from nor answered.
const MAX_UNREAD: usize = 1024 * 1024;

struct Client {
    socket: TcpStream,
    connection: Connection,
}

// An error from its methods ends this connection only.
impl Client {
    /// Reads once, into the batch. Returns whether there may be more to read.
    fn read(&mut self, incoming: &mut OpenBatch) -> Result<bool> {
        if self.connection.outbox.len() >= MAX_UNREAD {
            return Ok(true);
        }
        let (len, more) = match self.socket.read(incoming.room(READ_LEN)) {
            Ok(0) => return Err(self.connection.closed().into()),
            Ok(len) => (len, true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => (0, false),
            Err(error) => return Err(error.into()),
        };
        self.connection.receive(incoming, len)?;
        Ok(more)
    }

    /// Answers each message, as long as the client reads its answers.
    fn answer(&mut self, incoming: &OpenBatch, outgoing: &mut SealBatch) -> Result<()> {
        while self.connection.outbox.len() < MAX_UNREAD
            && let Some(message) = self.connection.next_packet(incoming)?
        {
            let kind = PacketKind::Genuine;
            self.connection.push(outgoing, kind, message)?;
        }
        Ok(self.connection.defer(incoming)?)
    }

    fn write(&mut self, outgoing: &SealBatch) -> Result<()> {
        let Self { socket, connection } = self;
        let write = |pieces: &[IoSlice<'_>]| socket.write_vectored(pieces);
        Ok(connection.outbox.write(outgoing, write)?)
    }
}

/// Serves until `clients` clients have disconnected. Returns the number of turns.
pub fn serve(engine: Engine, mut listener: TcpListener, clients: usize) -> Result<usize> {
    let (mut poll, mut events) = (Poll::new()?, Events::with_capacity(1024));
    let registry = poll.registry().try_clone()?;
    registry.register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut connected = BTreeMap::new();
    // Clients that may be readable or writable: mio reports each change once.
    let mut ready = BTreeSet::new();
    let (mut accepted, mut turns) = (0, 0);
    let (mut incoming, mut outgoing) = (OpenBatch::new(), SealBatch::new());
    while accepted < clients || !connected.is_empty() {
        let now = std::time::Duration::ZERO;
        poll.poll(&mut events, (!ready.is_empty()).then_some(now))?;
        ready.extend(events.iter().map(|event| event.token()));
        while ready.contains(&LISTENER)
            && let Ok((mut socket, _)) = listener.accept()
        {
            let both = Interest::READABLE | Interest::WRITABLE;
            registry.register(&mut socket, Token(accepted), both)?;
            let mut config = HandshakeConfig::random(Network::Regtest.magic(), engine)?;
            // The keys of all clients that connect in one turn are computed together.
            config.batched = true;
            let connection = Connection::responder(config)?;
            connected.insert(Token(accepted), Client { socket, connection });
            accepted += 1;
        }
        let mut waiting = std::mem::take(&mut ready).into_iter().peekable();
        while waiting.peek().is_some() {
            let mut turn = Vec::new();
            while incoming.bytes_used() < OpenBatch::ENOUGH_BYTES
                && let Some(token) = waiting.next()
            {
                if let Some(mut client) = connected.remove(&token)
                    && let Ok(more) = client.read(&mut incoming)
                {
                    turn.push((token, client, more));
                }
            }
            engine.open(&mut incoming);
            turn.retain_mut(|(_, client, _)| client.answer(&incoming, &mut outgoing).is_ok());
            engine.seal(&mut outgoing);
            turn.retain_mut(|(_, client, _)| client.write(&outgoing).is_ok());
            for (token, client, more) in turn {
                let may_go_on = client.connection.outbox.len() < MAX_UNREAD;
                if may_go_on && (more || client.connection.has_pending_input()) {
                    ready.insert(token);
                }
                connected.insert(token, client);
            }
            incoming.clear();
            outgoing.clear();
            turns += 1;
        }
    }
    Ok(turns)
}

/// A client with a blocking socket: sends `messages` and checks the echo.
pub fn client(engine: Engine, address: SocketAddr, messages: &[Vec<u8>]) -> Result<()> {
    let mut socket = std::net::TcpStream::connect(address)?;
    let config = HandshakeConfig::random(Network::Regtest.magic(), engine)?;
    let mut connection = Connection::initiator(config)?;
    let (mut incoming, mut outgoing) = (OpenBatch::new(), SealBatch::new());
    let (mut sent, mut answers) = (false, 0);
    while answers < messages.len() {
        if !sent && connection.session().is_some() {
            for message in messages {
                connection.push(&mut outgoing, PacketKind::Genuine, message)?;
            }
            sent = true;
        }
        engine.seal(&mut outgoing);
        let write = |pieces: &[IoSlice<'_>]| socket.write_vectored(pieces);
        connection.outbox.write(&outgoing, write)?;
        outgoing.clear();
        let len = socket.read(incoming.room(READ_LEN))?;
        assert_ne!(len, 0, "{}", connection.closed());
        connection.receive(&mut incoming, len)?;
        engine.open(&mut incoming);
        while let Some(answer) = connection.next_packet(&incoming)? {
            assert_eq!(answer, messages[answers]);
            answers += 1;
        }
        incoming.clear();
    }
    Ok(())
}

fn main() -> Result<()> {
    const CLIENTS: usize = 50;
    let engine = Engine::detect()?;
    let listener = TcpListener::bind("127.0.0.1:0".parse()?)?;
    let address = listener.local_addr()?;
    let messages = [8, 61, 250, 1024, 0, 61, 100_000, 8].map(|len| vec![7; len]);
    let turns = std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| client(engine, address, &messages).expect("every message comes back"));
        }
        serve(engine, listener, CLIENTS)
    })?;
    let messages = CLIENTS * messages.len();
    println!("BIP324: echoed {messages} messages of {CLIENTS} clients in {turns} turns.");
    Ok(())
}
