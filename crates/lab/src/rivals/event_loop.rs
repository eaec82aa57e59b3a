//! The gateway's epoll loop with other sessions: one thread, each packet processed separately.

use super::aead::Ring;
use super::bip324::{OneByOne, Runner};
use super::proxy::{Failed, NETWORK, Proxy, Shown};
use mio::event::Event;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use packetlane::bip324::{Connection, HandshakeConfig, Keypair, SessionKeys};
use packetlane::bitcoin::message::{Ignored, MessageType};
use packetlane::bitcoin::v1;
use packetlane::{Engine, OpenBatch, SealBatch};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::SocketAddr;

/// Bytes per read, as in the gateway.
const READ_LEN: usize = 16 * 1024;

const ACCEPT: Token = Token(usize::MAX);

/// The encrypted connection to a peer.
pub(crate) trait Session {
    /// Opens received bytes and passes on the contents of complete packets.
    fn open(
        &mut self,
        bytes: &[u8],
        each: &mut dyn FnMut(&[u8]) -> Result<(), Failed>,
    ) -> Result<(), Failed>;

    /// Appends the packet with a message to `wire`.
    fn seal(
        &mut self,
        message_type: MessageType,
        payload: &[u8],
        wire: &mut Vec<u8>,
    ) -> Result<(), Failed>;
}

/// Performs the handshake with a peer that has just connected, on a blocking socket.
pub(crate) type Begin = fn(&mut std::net::TcpStream) -> Result<Box<dyn Session>, Failed>;

/// Sessions of the crate `bip324`.
struct Bip324Crate {
    session: bip324::CipherSession,
    partial: Vec<u8>,
    /// The length of an incomplete packet.
    length: Option<usize>,
    contents: Vec<u8>,
}

pub(crate) fn bip324_crate(peer: &mut std::net::TcpStream) -> Result<Box<dyn Session>, Failed> {
    let handshake = bip324::Handshake::new(NETWORK.magic(), bip324::Role::Responder)?;
    let mut theirs = [0; Keypair::ELLSWIFT_LEN];
    peer.read_exact(&mut theirs)?;
    let mut ours = [0; Keypair::ELLSWIFT_LEN];
    let handshake = handshake.send_key(None, &mut ours)?.receive_key(theirs)?;
    let mut version = [0; SessionKeys::TERMINATOR_LEN + packetlane::bip324::Session::OVERHEAD];
    let mut handshake = handshake.send_version(&mut version, None)?;
    peer.write_all(&[&ours[..], &version].concat())?;
    let mut garbage = Vec::new();
    loop {
        let mut bytes = [0; 1024];
        let len = peer.read(&mut bytes)?;
        if len == 0 {
            return Err("closed in the handshake".into());
        }
        garbage.extend_from_slice(&bytes[..len]);
        let (mut shaking, at) = match handshake.receive_garbage(&garbage)? {
            bip324::GarbageResult::FoundGarbage {
                handshake,
                consumed_bytes,
            } => (handshake, consumed_bytes),
            bip324::GarbageResult::NeedMoreData(again) => {
                handshake = again;
                continue;
            }
        };
        let mut rest = garbage[at..].to_vec();
        let mut read = |len: usize| -> Result<Vec<u8>, Failed> {
            if let Some(missing) = len.checked_sub(rest.len()) {
                let mut bytes = vec![0; missing];
                peer.read_exact(&mut bytes)?;
                rest.extend(bytes);
            }
            Ok(rest.drain(..len).collect())
        };
        let session = loop {
            let length = read(3)?.try_into().map_err(|_| "three bytes")?;
            let length = shaking.decrypt_packet_len(length)?;
            match shaking.receive_version(&mut read(length)?)? {
                bip324::VersionResult::Complete { cipher } => break cipher,
                bip324::VersionResult::Decoy(again) => shaking = again,
            }
        };
        return Ok(Box::new(Bip324Crate {
            session,
            partial: rest,
            length: None,
            contents: Vec::new(),
        }));
    }
}

impl Session for Bip324Crate {
    fn open(
        &mut self,
        bytes: &[u8],
        each: &mut dyn FnMut(&[u8]) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        self.partial.extend_from_slice(bytes);
        let inbound = self.session.inbound();
        let mut taken = 0;
        loop {
            let rest = &mut self.partial[taken..];
            let Some(length) = self.length else {
                let Some(length) = rest.first_chunk() else {
                    break;
                };
                self.length = Some(inbound.decrypt_packet_len(*length));
                taken += length.len();
                continue;
            };
            let Some(packet) = rest.get_mut(..length) else {
                break;
            };
            let (kind, contents) = inbound.decrypt_in_place(packet, None)?;
            if kind == bip324::PacketType::Genuine {
                each(&contents[1..])?;
            }
            self.length = None;
            taken += length;
        }
        self.partial.drain(..taken);
        Ok(())
    }

    fn seal(
        &mut self,
        message_type: MessageType,
        payload: &[u8],
        wire: &mut Vec<u8>,
    ) -> Result<(), Failed> {
        self.contents.clear();
        message_type.encode(payload, &mut self.contents);
        let at = wire.len();
        wire.resize(
            at + self.contents.len() + packetlane::bip324::Session::OVERHEAD,
            0,
        );
        let kind = bip324::PacketType::Genuine;
        let outbound = self.session.outbound();
        Ok(outbound.encrypt(&self.contents, &mut wire[at..], kind, None)?)
    }
}

/// Our sessions with `ring`'s AEAD.
struct OursOverRing {
    runner: [OneByOne<Ring>; 2],
    connection: Connection,
    incoming: OpenBatch,
    outgoing: SealBatch,
}

pub(crate) fn ours_over_ring(peer: &mut std::net::TcpStream) -> Result<Box<dyn Session>, Failed> {
    let engine = Engine::detect()?;
    let config = HandshakeConfig::random(NETWORK.magic(), engine)?;
    let mut session = OursOverRing {
        runner: Default::default(),
        connection: Connection::responder(config)?,
        incoming: OpenBatch::new(),
        outgoing: SealBatch::new(),
    };
    let OursOverRing {
        connection,
        incoming,
        outgoing,
        ..
    } = &mut session;
    loop {
        let write = |pieces: &[IoSlice<'_>]| peer.write_vectored(pieces);
        connection.outbox.write(outgoing, write)?;
        if let Some(session) = connection.session_mut() {
            let used = OneByOne::<Ring>::USES_PRECOMPUTED_KEYSTREAM;
            session.outbound.set_precomputed_keystream(used);
            session.inbound.set_precomputed_keystream(used);
            break;
        }
        let len = peer.read(incoming.room(1024))?;
        if len == 0 {
            return Err(connection.closed().into());
        }
        connection.receive(incoming, len)?;
    }
    // Packets received together with the end of the handshake are kept for the first turn.
    engine.open(incoming);
    connection.defer(incoming)?;
    incoming.clear();
    Ok(Box::new(session))
}

impl Session for OursOverRing {
    fn open(
        &mut self,
        bytes: &[u8],
        each: &mut dyn FnMut(&[u8]) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        let Self {
            connection,
            incoming,
            ..
        } = self;
        incoming.room(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        connection.receive(incoming, bytes.len())?;
        self.runner[0].open(incoming);
        while let Some(contents) = connection.next_packet(incoming)? {
            each(contents)?;
        }
        incoming.clear();
        Ok(())
    }

    fn seal(
        &mut self,
        message_type: MessageType,
        payload: &[u8],
        wire: &mut Vec<u8>,
    ) -> Result<(), Failed> {
        let Self {
            connection,
            outgoing,
            ..
        } = self;
        connection.push_message(outgoing, message_type, payload)?;
        self.runner[1].seal(outgoing);
        connection
            .outbox
            .write(outgoing, |pieces| wire.write_vectored(pieces))?;
        outgoing.clear();
        Ok(())
    }
}

/// One side of a link.
struct Side {
    socket: TcpStream,
    /// Bytes queued for it.
    unsent: Vec<u8>,
    writable: bool,
}

impl Side {
    fn new(socket: std::net::TcpStream) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket: TcpStream::from_std(socket),
            unsent: Vec::new(),
            writable: true,
        })
    }

    /// Reads until nothing is left.
    fn read(&mut self, mut each: impl FnMut(&[u8]) -> Result<(), Failed>) -> Result<(), Failed> {
        let mut bytes = [0; READ_LEN];
        loop {
            let len = match self.socket.read(&mut bytes) {
                Ok(0) => return Err("closed".into()),
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            each(&bytes[..len])?;
            if len < READ_LEN {
                return Ok(());
            }
        }
    }

    fn write(&mut self) -> io::Result<()> {
        while self.writable && !self.unsent.is_empty() {
            match self.socket.write(&self.unsent) {
                Ok(len) => drop(self.unsent.drain(..len)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A peer and its connection to the node.
struct Link {
    peer: Side,
    node: Side,
    session: Box<dyn Session>,
    ignored: Ignored,
    /// An incomplete message from the node.
    partial: Vec<u8>,
    decoder: v1::Decoder,
}

impl Link {
    /// Opens what the peer has sent and forwards it to the node.
    fn carry_in(&mut self, bytes: Option<&[u8]>) -> Result<(), Failed> {
        let (to_node, ignored) = (&mut self.node.unsent, &mut self.ignored);
        let mut open = |bytes: &[u8]| {
            self.session.open(bytes, &mut |contents| {
                let message = ignored.decode(
                    contents,
                    contents.len() + packetlane::bip324::Session::OVERHEAD,
                );
                if let Some((message_type, payload)) = message {
                    v1::Message::new(message_type, payload).encode(NETWORK.magic(), to_node);
                }
                Ok(())
            })
        };
        match bytes {
            Some(bytes) => open(bytes)?,
            None => self.peer.read(open)?,
        }
        Ok(self.node.write()?)
    }

    /// Seals what the node has sent and forwards it to the peer.
    fn carry_out(&mut self) -> Result<(), Failed> {
        let partial = &mut self.partial;
        self.node.read(|bytes| {
            partial.extend_from_slice(bytes);
            Ok(())
        })?;
        let mut rest = &partial[..];
        while let Some(message) = self.decoder.next(&mut rest)? {
            let to_peer = &mut self.peer.unsent;
            self.session
                .seal(message.message_type, message.payload, to_peer)?;
        }
        let taken = partial.len() - rest.len();
        partial.drain(..taken);
        Ok(self.peer.write()?)
    }

    fn happened(&mut self, is_node: bool, event: &Event) -> Result<(), Failed> {
        if event.is_writable() {
            let side = if is_node {
                &mut self.node
            } else {
                &mut self.peer
            };
            side.writable = true;
            side.write()?;
        }
        match (event.is_readable(), is_node) {
            (false, _) => Ok(()),
            (true, false) => self.carry_in(None),
            (true, true) => self.carry_out(),
        }
    }
}

/// A proxy with such sessions, in front of `node`.
pub(crate) fn proxy(begin: Begin, node: SocketAddr) -> Proxy {
    Proxy::other(move |listener, shown| run(listener, node, begin, shown))
}

/// Forwards until it is told to stop.
fn run(
    listener: std::net::TcpListener,
    node: SocketAddr,
    begin: Begin,
    shown: &Shown,
) -> Result<(), Failed> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(1024);
    listener.set_nonblocking(true)?;
    let mut listener = mio::net::TcpListener::from_std(listener);
    let registry = poll.registry().try_clone()?;
    registry.register(&mut listener, ACCEPT, Interest::READABLE)?;
    // `None`: the link has ended.
    let mut links = Vec::<Option<Link>>::new();
    while shown.goes_on() {
        match poll.poll(&mut events, Some(Shown::POLL_INTERVAL)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => result?,
        }
        for event in &events {
            let Token(token) = event.token();
            if event.token() != ACCEPT {
                let place = &mut links[token / 2];
                if let Some(link) = place
                    && link.happened(token % 2 == 1, event).is_err()
                {
                    *place = None;
                }
                continue;
            }
            while let Ok((peer, _)) = listener.accept() {
                let mut peer = std::net::TcpStream::from(peer);
                peer.set_nonblocking(false)?;
                peer.set_nodelay(true)?;
                let session = begin(&mut peer)?;
                let node = std::net::TcpStream::connect(node)?;
                let mut link = Link {
                    peer: Side::new(peer)?,
                    node: Side::new(node)?,
                    session,
                    ignored: Ignored::default(),
                    partial: Vec::new(),
                    decoder: v1::Decoder::new(NETWORK.magic()),
                };
                let both = Interest::READABLE | Interest::WRITABLE;
                let number = 2 * links.len();
                registry.register(&mut link.peer.socket, Token(number), both)?;
                registry.register(&mut link.node.socket, Token(number + 1), both)?;
                link.carry_in(Some(&[]))?;
                links.push(Some(link));
            }
        }
    }
    Ok(())
}
