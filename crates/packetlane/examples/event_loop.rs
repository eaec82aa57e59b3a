//! A server on an event loop with one batch a turn: one call opens what all its clients have
//! sent, and one call seals all the answers.
//!
//! ```sh
//! cargo run -p packetlane --example event_loop
//! ```
//!
//! The server sends every message back. Its 50 clients are threads of this process with
//! blocking sockets; each checks that it gets back what it sent.

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use packetlane::bip324::{Handshake, HandshakeConfig, PacketKind, Progress, Session};
use packetlane::bitcoin::Network;
use packetlane::{Batch, Engine, Slot};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const CLIENTS: usize = 50;
/// Lengths of the messages that each client sends, in bytes.
const LENGTHS: [usize; 8] = [8, 61, 250, 1024, 0, 61, 100_000, 8];
const TIMEOUT: Duration = Duration::from_secs(30);
const LISTENER: Token = Token(usize::MAX);
/// Most bytes that a turn reads from one socket: more in all make no batch faster.
const READ_LEN: usize = Batch::ENOUGH_BYTES / CLIENTS;

fn config(engine: Engine) -> Result<HandshakeConfig> {
    Ok(HandshakeConfig::random(Network::Regtest.magic(), engine)?)
}

/// A client as the server sees it. An error of its methods ends this connection only.
struct Peer {
    socket: TcpStream,
    /// mio tells once that a socket is readable, and again only after a read would block.
    readable: bool,
    handshake: Handshake,
    session: Option<Box<Session>>,
    /// The answers of this turn, neighbours in the outgoing batch.
    answers: Option<Slot>,
    /// What the socket did not take yet. A real server limits it: it reads nothing more from
    /// a peer that does not read its answers.
    backlog: Vec<u8>,
}

impl Peer {
    /// Reads once, into the batch.
    fn read(&mut self, incoming: &mut Batch) -> Result<()> {
        if !self.readable {
            return Ok(());
        }
        let room = incoming.room(READ_LEN);
        let len = match self.socket.read(room) {
            Ok(0) => return Err("the peer has closed the connection".into()),
            Ok(len) => len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(session) = &mut self.session {
            session.inbound.received(incoming, len);
            return Ok(());
        }
        let progress = self.handshake.receive(&room[..len])?;
        self.backlog.extend(self.handshake.take_output());
        if let Progress::Complete(mut session) = progress {
            // Packets may have come with the handshake's last bytes.
            session.inbound.received(incoming, 0);
            self.session = Some(session);
        }
        Ok(())
    }

    /// Adds an answer to each message that was opened.
    fn answer(&mut self, incoming: &Batch, outgoing: &mut Batch) -> Result<()> {
        let Some(session) = &mut self.session else {
            return Ok(());
        };
        for message in session.inbound.packets(incoming) {
            let outbound = &mut session.outbound;
            let answer = outbound.push(outgoing, PacketKind::Genuine, message?)?;
            self.answers = Some(match &self.answers {
                Some(before) => before.join(&answer).expect("they are neighbours"),
                None => answer,
            });
        }
        Ok(())
    }

    /// Writes what waits, then the answers, straight from the batch.
    fn write(&mut self, outgoing: &Batch) -> Result<()> {
        let written = write_some(&mut self.socket, &self.backlog)?;
        self.backlog.drain(..written);
        if let Some(answers) = self.answers.take() {
            let mut wire = outgoing.wire(&answers);
            if self.backlog.is_empty() {
                wire = &wire[write_some(&mut self.socket, wire)?..];
            }
            self.backlog.extend_from_slice(wire);
        }
        Ok(())
    }
}

/// Writes as much as the socket takes now. Returns how much.
fn write_some(socket: &mut TcpStream, bytes: &[u8]) -> Result<usize> {
    let mut written = 0;
    while written < bytes.len() {
        match socket.write(&bytes[written..]) {
            Ok(len) => written += len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(written)
}

/// Serves until all clients have come and gone. Returns the number of turns.
fn serve(engine: Engine, mut listener: TcpListener) -> Result<usize> {
    let mut poll = Poll::new()?;
    let both = Interest::READABLE | Interest::WRITABLE;
    poll.registry()
        .register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(1024);
    let mut peers: BTreeMap<Token, Peer> = BTreeMap::new();
    let (mut accepted, mut turns) = (0, 0);
    let (mut incoming, mut outgoing) = (Batch::new(), Batch::new());
    while accepted < CLIENTS || !peers.is_empty() {
        turns += 1;
        let waits = peers.values().all(|peer| !peer.readable);
        poll.poll(
            &mut events,
            Some(if waits { TIMEOUT } else { Duration::ZERO }),
        )?;
        if waits && events.is_empty() {
            return Err("nothing has come for a long time".into());
        }
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((mut socket, _)) = listener.accept() {
                    let token = Token(accepted);
                    poll.registry().register(&mut socket, token, both)?;
                    let peer = Peer {
                        socket,
                        readable: false,
                        handshake: Handshake::responder(config(engine)?)?,
                        session: None,
                        answers: None,
                        backlog: Vec::new(),
                    };
                    peers.insert(token, peer);
                    accepted += 1;
                }
            } else if let Some(peer) = peers.get_mut(&event.token()) {
                peer.readable |= event.is_readable();
            }
        }
        incoming.clear();
        peers.retain(|_, peer| peer.read(&mut incoming).is_ok());
        engine.open(&mut incoming);
        outgoing.clear();
        peers.retain(|_, peer| peer.answer(&incoming, &mut outgoing).is_ok());
        engine.seal(&mut outgoing);
        peers.retain(|_, peer| peer.write(&outgoing).is_ok());
    }
    Ok(turns)
}

/// Sends all messages and waits until they have come back.
fn client(engine: Engine, address: SocketAddr, number: u8) -> Result<()> {
    let mut socket = std::net::TcpStream::connect(address)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    let mut handshake = Handshake::initiator(config(engine)?)?;
    let mut buffer = [0; 4096];
    let mut session = loop {
        socket.write_all(&handshake.take_output())?;
        let len = socket.read(&mut buffer)?;
        assert_ne!(len, 0, "{}", handshake.closed());
        if let Progress::Complete(session) = handshake.receive(&buffer[..len])? {
            break session;
        }
    };
    // The messages go with the handshake's last bytes.
    let mut wire = handshake.take_output();
    let messages = LENGTHS.map(|len| vec![number; len]);
    for message in &messages {
        session
            .outbound
            .seal(PacketKind::Genuine, message, &mut wire)?;
    }
    socket.write_all(&wire)?;

    let mut expected = messages.iter();
    let mut batch = Batch::new();
    while expected.len() > 0 {
        batch.clear();
        let len = socket.read(batch.room(READ_LEN))?;
        assert_ne!(len, 0, "the server has closed the connection");
        session.inbound.received(&mut batch, len);
        engine.open(&mut batch);
        for message in session.inbound.packets(&batch) {
            assert_eq!(Some(message?), expected.next().map(Vec::as_slice));
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let engine = Engine::detect()?;
    let listener = TcpListener::bind("127.0.0.1:0".parse()?)?;
    let address = listener.local_addr()?;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| std::thread::spawn(move || client(engine, address, number as u8)))
        .collect();
    let turns = serve(engine, listener)?;
    for client in clients {
        client.join().expect("a client panicked")?;
    }
    let messages = CLIENTS * LENGTHS.len();
    println!("BIP324: {messages} messages of {CLIENTS} clients came back, in {turns} turns.");
    Ok(())
}
