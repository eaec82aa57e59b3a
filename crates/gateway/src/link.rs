//! One peer, and its connection to the node.

use crate::account::{Account, Scanner};
use crate::budget::{Direction, Place};
use crate::proxy_protocol::{Header, ProxyProtocolError};
use crate::queue::Queue;
use crate::settings::{Limits, Settings};
use crate::socks::{self, SocksError, Target};
use crate::translate::{Frames, advertise};
use mio::net::TcpStream;
use packetlane::bip324::{Connection, ConnectionError, Handshake, HandshakeError, Session};
use packetlane::bitcoin::v1;
use packetlane::{OpenBatch, SealBatch};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes that one read takes.
pub(crate) const READ_LEN: usize = 16 * 1024;

/// Bytes that a ring may receive for a side that is not read. Then it is told to stop.
pub(crate) const MAX_UNREAD: usize = 64 * 1024;

/// How many addresses of a name can be tried within [`Limits::handshake`] if none answers.
const ADDRESSES_IN_TIME: u32 = 6;

/// Where the bytes of a read lie for a moment.
pub(crate) type Scratch = [u8; READ_LEN];

/// How a peer speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// It has not said enough to tell.
    Unknown,
    /// Version 1: its bytes pass as they are.
    V1,
    /// Version 2 (BIP324).
    V2,
}

names! {
    /// A word for it.
    Transport {
        Self::Unknown => "unknown",
        Self::V1 => "v1",
        Self::V2 => "v2",
    }
}

/// Why a connection has ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum Close {
    /// The peer closed it.
    Peer,
    /// The node closed it.
    Node,
    /// Its PROXY protocol header is wrong.
    ProxyProtocol(ProxyProtocolError),
    /// The peer broke the rules of BIP324, or closed within a packet.
    Protocol(ConnectionError),
    /// What the node sent is not v1 of its network.
    NodeProtocol(v1::Error),
    /// What the node asks by SOCKS, or what the other proxy answers.
    Socks(SocksError),
    /// The node asks for a name that nobody knows.
    Name(io::Error),
    /// The node has been told where a name leads: that was all that it asked.
    Resolved,
    /// The node asks for an `.onion` name, and there is no proxy that reaches it.
    NoTor,
    /// The system has no handshake: no random numbers.
    NoHandshake(HandshakeError),
    /// The peer cannot be reached, or its socket failed.
    PeerSocket(io::Error),
    /// The node cannot be reached, or its socket failed.
    NodeSocket(io::Error),
    /// The handshake was not done in [`Limits::handshake`](crate::Limits::handshake).
    Handshake,
    /// The peer has sent nothing for [`Limits::idle`](crate::Limits::idle).
    Idle,
    /// The peer has taken nothing of what waits for it for
    /// [`Limits::stalled`](crate::Limits::stalled).
    Stalled,
    /// The connections of its direction hold more than [`Limits::memory`](crate::Limits::memory) or
    /// [`Limits::outbound_memory`](crate::Limits::outbound_memory), and this one the most of its
    /// thread.
    Memory,
    /// The gateway stops.
    Stopped,
}

impl fmt::Display for Close {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer => f.write_str("the peer closed the connection"),
            Self::Node => f.write_str("the node closed the connection"),
            Self::ProxyProtocol(error) => write!(f, "PROXY protocol: {error}"),
            Self::Protocol(error) => write!(f, "the peer: {error}"),
            Self::NodeProtocol(error) => write!(f, "the node: {error}"),
            Self::Socks(error) => error.fmt(f),
            Self::Name(error) => write!(f, "the peer's name: {error}"),
            Self::Resolved => f.write_str("the node was told where a name leads"),
            Self::NoTor => f.write_str("an .onion name, and no --tor that reaches it"),
            Self::NoHandshake(error) => error.fmt(f),
            Self::PeerSocket(error) => write!(f, "the peer's socket: {error}"),
            Self::NodeSocket(error) => write!(f, "the node's socket: {error}"),
            Self::Handshake => f.write_str("the handshake was not done in time"),
            Self::Idle => f.write_str("the peer has been silent too long"),
            Self::Stalled => f.write_str("the peer reads nothing"),
            Self::Memory => f.write_str("it held the most memory, and there was too little"),
            Self::Stopped => f.write_str("the gateway stops"),
        }
    }
}

names! {
    /// A word for it, for counting.
    Close {
        Self::Peer => "peer",
        Self::Node => "node",
        Self::ProxyProtocol(_) => "proxy-protocol",
        Self::Protocol(_) => "protocol",
        Self::NodeProtocol(_) => "node-protocol",
        Self::Socks(_) => "socks",
        Self::Name(_) => "name",
        Self::Resolved => "resolved",
        Self::NoTor => "no-tor",
        Self::NoHandshake(_) => "no-handshake",
        Self::PeerSocket(_) => "peer-socket",
        Self::NodeSocket(_) => "node-socket",
        Self::Handshake => "handshake",
        Self::Idle => "idle",
        Self::Stalled => "stalled",
        Self::Memory => "memory",
        Self::Stopped => "stopped",
    }
}

impl Close {
    /// What a node that asked by SOCKS is told.
    pub(crate) fn reply(&self) -> Option<socks::Reply> {
        match self {
            Self::Socks(error) => error.reply(),
            Self::Name(_) | Self::NoTor => Some(socks::Reply::HOST_UNREACHABLE),
            Self::PeerSocket(error) => Some(match error.kind() {
                ErrorKind::ConnectionRefused => socks::Reply::REFUSED,
                _ => socks::Reply::HOST_UNREACHABLE,
            }),
            _ => Some(socks::Reply::FAILED),
        }
    }
}

/// What io_uring has received for a side.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// What the ring knows it by.
    pub(crate) user: u64,
    bytes: Queue,
    /// Whether more comes by itself.
    pub(crate) is_asked: bool,
    /// How it has ended, until that is read.
    end: Option<io::Result<()>>,
    /// Nothing more comes.
    has_ended: bool,
}

impl Inbox {
    pub(crate) fn new(user: u64) -> Self {
        Self {
            user,
            bytes: Queue::default(),
            is_asked: false,
            end: None,
            has_ended: false,
        }
    }

    pub(crate) fn unread(&self) -> usize {
        self.bytes.len()
    }

    /// Whether more can be asked for, if no more than `most` bytes are unread.
    pub(crate) fn can_ask(&self, most: usize) -> bool {
        !self.is_asked && !self.has_ended && self.unread() <= most
    }

    fn end(&mut self, end: io::Result<()>) {
        self.end = Some(end);
        self.has_ended = true;
    }

    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let unread = self.bytes.front();
        if unread.is_empty() {
            return match self.end.take() {
                Some(Ok(())) => Ok(0),
                Some(Err(error)) => Err(error),
                None => Err(ErrorKind::WouldBlock.into()),
            };
        }
        let len = unread.len().min(to.len());
        to[..len].copy_from_slice(&unread[..len]);
        self.bytes.written(len);
        Ok(len)
    }
}

/// One side's socket, and what is known of it. Events tell only what has changed.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) socket: TcpStream,
    /// With io_uring.
    pub(crate) inbox: Option<Inbox>,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// An event has told that it will send no more, but that has not been read.
    pub(crate) ending: bool,
    /// It will send no more.
    ended: bool,
    /// It has been told that there is no more for it.
    told_end: bool,
}

impl Side {
    pub(crate) fn new(socket: TcpStream) -> Self {
        Self {
            socket,
            inbox: None,
            readable: false,
            writable: false,
            ending: false,
            ended: false,
            told_end: false,
        }
    }

    /// Reads once, if there may be something. 0 if there is nothing now, or no more.
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if !self.readable {
            return Ok(0);
        }
        let read = match &mut self.inbox {
            Some(inbox) => inbox.read(to),
            None => self.socket.read(to),
        };
        match read {
            Ok(0) => {
                self.readable = false;
                self.ended = true;
                Ok(0)
            }
            // There is no more now, and an event will tell when there is.
            Ok(len) => {
                let is_more = |inbox: &Inbox| inbox.unread() > 0 || inbox.end.is_some();
                self.readable = match &self.inbox {
                    Some(inbox) => is_more(inbox),
                    None => len == to.len() || self.ending,
                };
                Ok(len)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(0)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
            result => result,
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether it will send no more, though there may be something to read before the end.
    fn is_ending(&self) -> bool {
        self.ended || self.ending || self.inbox.as_ref().is_some_and(|inbox| inbox.has_ended)
    }

    /// Notes what io_uring has received. How many bytes are unread.
    pub(crate) fn received(&mut self, bytes: io::Result<&[u8]>, more: bool) -> usize {
        let Some(inbox) = &mut self.inbox else {
            return 0;
        };
        inbox.is_asked = more;
        match bytes {
            Ok([]) => inbox.end(Ok(())),
            Ok(bytes) => inbox.bytes.end().extend_from_slice(bytes),
            // It is asked again.
            Err(error) if error.kind() == ErrorKind::WouldBlock => return inbox.unread(),
            Err(error) => inbox.end(Err(error)),
        }
        self.readable = true;
        inbox.unread()
    }

    /// As [`Side::read`], to the end of `bytes`, by way of `scratch`: so that `bytes` has no room that
    /// is not needed.
    pub(crate) fn append_to(
        &mut self,
        bytes: &mut Vec<u8>,
        scratch: &mut Scratch,
    ) -> io::Result<usize> {
        let len = self.read(&mut scratch[..])?;
        bytes.extend_from_slice(&scratch[..len]);
        Ok(len)
    }

    fn trim(&mut self) {
        if let Some(inbox) = &mut self.inbox {
            inbox.bytes.trim();
        }
    }

    /// Tells it that there is no more for it.
    fn tell_end(&mut self) {
        if !self.told_end {
            self.told_end = true;
            // It may be gone: then it needs not be told.
            let _ = self.socket.shutdown(std::net::Shutdown::Write);
        }
    }
}

/// How far a link has come.
#[derive(Debug)]
pub(crate) enum Stage {
    /// A balancer says who has connected.
    Introducing(Header),
    /// The peer has connected, and said nothing: a key for it would be made for nothing.
    Silent,
    /// The node says by SOCKS where to connect.
    Asking(socks::Server),
    /// Where that is is being looked up.
    LookingUp,
    /// The peer's socket connects.
    Connecting,
    /// Another proxy connects. What has come from it.
    Proxying(socks::Client, Vec<u8>),
    /// The peer shakes hands.
    ShakingHands,
    /// Messages pass.
    Carrying,
}

/// How the peer's bytes are read and written.
#[derive(Debug)]
pub(crate) enum Speech {
    /// Handshake or session.
    V2(Box<Connection>),
    /// Bytes for the peer that wait for its socket, and what counts messages from the peer and for
    /// it.
    V1(Queue, Box<[Scanner; 2]>),
}

impl Speech {
    pub(crate) fn v1() -> Self {
        Self::V1(Queue::default(), Box::default())
    }
}

/// How a peer that was not reached, or does not answer, is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// At the next address of its name.
    NextAddress,
    /// By v1: it may speak nothing else.
    V1,
}

/// One peer, and its connection to the node.
#[derive(Debug)]
pub(crate) struct Link {
    /// Told from all others, also from those before it.
    pub(crate) id: u64,
    pub(crate) direction: Direction,
    /// The peer: who has connected, or what the node has asked for.
    pub(crate) who: Target,
    /// Its place among the connections that the limits allow.
    pub(crate) place: Place,
    pub(crate) stage: Stage,
    pub(crate) speech: Speech,
    /// None before it is known.
    pub(crate) peer: Option<Side>,
    /// None before the peer has shaken hands, if it has connected.
    pub(crate) node: Option<Side>,
    /// Held while the name is looked up; dropping it abandons the lookup.
    pub(crate) lookup: Option<Arc<()>>,
    /// More addresses of the peer's name, for when it is not reached at one: the next one last.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Where the peer is reached: itself, or a proxy.
    pub(crate) route: Option<SocketAddr>,
    /// When the current attempt to connect, or the v2 handshake, began.
    pub(crate) tried: Instant,
    /// Whether another proxy reaches it.
    pub(crate) is_by_proxy: bool,
    /// What the node has shown, for that proxy.
    pub(crate) credentials: Option<socks::Credentials>,
    /// The node waits for an answer by SOCKS.
    pub(crate) owes_reply: bool,
    /// The node asks only where a name leads.
    pub(crate) only_resolves: bool,
    /// The peer has not answered by v2, and is now tried by v1.
    pub(crate) fell_back: bool,
    /// Bytes from the peer before that: only what comes after them shows that it speaks v1.
    pub(crate) heard_by_v2: u64,
    /// Bytes that wait for the node.
    pub(crate) to_node: Queue,
    /// What the node has sent and is not yet on its way to the peer.
    pub(crate) from_node: Vec<u8>,
    /// Whether that may begin with a whole message: the last turn stopped at a limit.
    has_message: bool,
    /// Whether the node has ended, and the peer had not.
    node_ended_first: bool,
    pub(crate) begun: Instant,
    heard: Instant,
    /// When nothing waited for the peer, or it had taken something, and how much it had taken then.
    took: (Instant, u64),
    /// Bytes that it holds, as they were last added to those of all links.
    pub(crate) held: usize,
    pub(crate) account: Account,
    /// Reads and writes in this turn: system calls, if there is no ring.
    pub(crate) calls: u32,
    /// Bytes, both ways, for which the account has its CPU time.
    pub(crate) counted: u64,
    /// Whether it is in the list of the links of the next turn.
    pub(crate) is_ready: bool,
}

impl Link {
    fn new(id: u64, place: Place, from: SocketAddr, direction: Direction, stage: Stage) -> Self {
        let now = Instant::now();
        Self {
            id,
            direction,
            who: Target::Address(from),
            place,
            stage,
            speech: Speech::v1(),
            peer: None,
            node: None,
            lookup: None,
            addresses: Vec::new(),
            route: None,
            tried: now,
            is_by_proxy: false,
            credentials: None,
            owes_reply: false,
            only_resolves: false,
            fell_back: false,
            heard_by_v2: 0,
            to_node: Queue::default(),
            from_node: Vec::new(),
            has_message: false,
            node_ended_first: false,
            begun: now,
            heard: now,
            took: (now, 0),
            held: 0,
            account: Account::default(),
            calls: 0,
            counted: 0,
            is_ready: false,
        }
    }

    /// Of a peer that has connected, or of a balancer that will say for which peer.
    pub(crate) fn inbound(
        id: u64,
        place: Place,
        side: Side,
        from: SocketAddr,
        is_introduced: bool,
    ) -> Self {
        let stage = match is_introduced {
            true => Stage::Introducing(Header::default()),
            false => Stage::Silent,
        };
        Self {
            peer: Some(side),
            ..Self::new(id, place, from, Direction::Inbound, stage)
        }
    }

    /// Of a node that wants to connect to `target`, or will say by SOCKS where to.
    pub(crate) fn outbound(
        id: u64,
        place: Place,
        side: Side,
        from: SocketAddr,
        target: Option<Target>,
    ) -> Self {
        let stage = match target {
            Some(_) => Stage::LookingUp,
            None => Stage::Asking(socks::Server::default()),
        };
        let owes_reply = target.is_none();
        Self {
            node: Some(side),
            owes_reply,
            who: target.unwrap_or(Target::Address(from)),
            ..Self::new(id, place, from, Direction::Outbound, stage)
        }
    }

    pub(crate) fn is_carrying(&self) -> bool {
        matches!(self.stage, Stage::Carrying)
    }

    /// Whether its packets and messages are for the turn's batches.
    pub(crate) fn is_in_turns(&self) -> bool {
        matches!(self.stage, Stage::ShakingHands | Stage::Carrying)
    }

    pub(crate) fn transport(&self) -> Transport {
        match (&self.stage, &self.speech) {
            (Stage::Carrying, Speech::V1(..)) => Transport::V1,
            (Stage::Carrying, Speech::V2(_)) => Transport::V2,
            _ => Transport::Unknown,
        }
    }

    /// A v2 peer's, once it has shaken hands.
    pub(crate) fn session(&self) -> Option<&Session> {
        match &self.speech {
            Speech::V2(connection) => connection.session(),
            Speech::V1(..) => None,
        }
    }

    /// Bytes that wait for the peer.
    fn to_peer(&self) -> usize {
        match &self.speech {
            Speech::V1(queue, _) => queue.len(),
            Speech::V2(connection) => connection.outbox.len(),
        }
    }

    /// Gives back the memory of buffers in which nothing is.
    pub(crate) fn trim(&mut self) {
        self.to_node.trim();
        if self.from_node.is_empty() {
            self.from_node = Vec::new();
        }
        if let Speech::V1(queue, _) = &mut self.speech {
            queue.trim();
        }
        for side in [&mut self.peer, &mut self.node].into_iter().flatten() {
            side.trim();
        }
    }

    /// Memory of its buffers, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let inbox = |side: &Option<Side>| match side {
            Some(Side {
                inbox: Some(inbox), ..
            }) => inbox.bytes.memory(),
            _ => 0,
        };
        let speech = match &self.speech {
            Speech::V1(queue, _) => queue.memory(),
            Speech::V2(connection) => connection.buffered() + connection.outbox.len(),
        };
        let ours = self.to_node.memory() + self.from_node.capacity();
        speech + ours + inbox(&self.peer) + inbox(&self.node)
    }

    /// Packets have come that wait for a turn.
    fn has_packets(&self) -> bool {
        match &self.speech {
            Speech::V1(..) => false,
            Speech::V2(connection) => connection.has_pending_input(),
        }
    }

    /// How its peer can be tried again when this ends the connection to it.
    pub(crate) fn retry(&self, close: &Close) -> Option<Retry> {
        match (&self.stage, &self.speech, close) {
            (Stage::LookingUp | Stage::Connecting, _, Close::PeerSocket(_)) => {
                (!self.addresses.is_empty()).then_some(Retry::NextAddress)
            }
            (
                Stage::ShakingHands,
                Speech::V2(connection),
                Close::Protocol(_) | Close::PeerSocket(_),
            ) => connection.may_speak_v1().then_some(Retry::V1),
            _ => None,
        }
    }

    /// Why it has been there too long, if so.
    pub(crate) fn is_late(&mut self, now: Instant, limits: &Limits) -> Option<Close> {
        let over = |then: Instant, most: Duration| now.saturating_duration_since(then) > most;
        if self.to_peer() == 0 || self.account.sent.bytes != self.took.1 {
            self.took = (now, self.account.sent.bytes);
        }
        let timed_out = Close::PeerSocket(ErrorKind::TimedOut.into());
        let answer_timeout = Handshake::answer_timeout(limits.handshake);
        let retry = self.retry(&timed_out).filter(|retry| {
            let most = match retry {
                Retry::NextAddress => limits.handshake / ADDRESSES_IN_TIME,
                Retry::V1 => answer_timeout,
            };
            over(self.tried, most)
        });
        // A peer that was reached late is tried by v1, too.
        let handshake = match self.fell_back {
            true => limits.handshake + answer_timeout,
            false => limits.handshake,
        };
        if retry == Some(Retry::V1) {
            Some(timed_out)
        } else if !self.is_carrying() && over(self.begun, handshake) {
            Some(Close::Handshake)
        } else if retry.is_some() {
            // What is left of the handshake's limit is for the next address.
            Some(timed_out)
        } else if over(self.heard, limits.idle) {
            Some(Close::Idle)
        } else if over(self.took.0, limits.stalled) {
            Some(Close::Stalled)
        } else {
            None
        }
    }

    /// Begins to carry the bytes of a peer that speaks v1 as they are.
    pub(crate) fn carry_v1(&mut self, magic: [u8; 4]) {
        self.stage = Stage::Carrying;
        let mut to_peer = Queue::default();
        let mut scanners = Box::<[Scanner; 2]>::default();
        scanners[1].scan(magic, &self.from_node, &mut self.account.sent);
        to_peer.end().append(&mut self.from_node);
        self.speech = Speech::V1(to_peer, scanners);
    }

    /// Reads what a balancer says, and nothing behind it. Whether that is all: then `who` is the
    /// peer.
    pub(crate) fn read_introduction(&mut self) -> Result<bool, Close> {
        let (Stage::Introducing(header), Some(peer)) = (&mut self.stage, &mut self.peer) else {
            return Ok(false);
        };
        while header.missing() > 0 {
            let mut bytes = [0; 256];
            let room = header.missing().min(bytes.len());
            self.calls += u32::from(peer.readable);
            let len = peer.read(&mut bytes[..room]).map_err(Close::PeerSocket)?;
            if len == 0 {
                return match peer.ended && !header.is_empty() {
                    true => Err(Close::ProxyProtocol(ProxyProtocolError::Ended)),
                    false => Ok(false),
                };
            }
            header.push(&bytes[..len]).map_err(Close::ProxyProtocol)?;
        }
        if let Some(client) = header.client() {
            self.who = Target::Address(client);
        }
        Ok(true)
    }

    /// Reads the peer once: into the batch, or what passes as it is.
    pub(crate) fn read_peer(
        &mut self,
        incoming: &mut OpenBatch,
        scratch: &mut Scratch,
        settings: &Settings,
        now: Instant,
    ) -> Result<(), Close> {
        let magic = settings.network.magic();
        let Some(peer) = &mut self.peer else {
            return Ok(());
        };
        if self.to_node.len() >= settings.limits.queued {
            return Ok(());
        }
        self.calls += u32::from(peer.readable);
        let received = &mut self.account.received;
        let connection = match &mut self.speech {
            Speech::V1(_, scanners) => {
                let to_node = self.to_node.end();
                let len = peer
                    .append_to(to_node, scratch)
                    .map_err(Close::PeerSocket)?;
                if len > 0 {
                    self.heard = now;
                    received.bytes += len as u64;
                    scanners[0].scan(magic, &to_node[to_node.len() - len..], received);
                }
                return Ok(());
            }
            Speech::V2(connection) => connection,
        };
        let len = match peer.readable {
            true => peer.read(incoming.room(READ_LEN)),
            false => Ok(0),
        };
        let len = len.map_err(Close::PeerSocket)?;
        if len > 0 {
            self.heard = now;
            received.bytes += len as u64;
        }
        if len > 0 || connection.has_pending_input() {
            match connection.receive(incoming, len) {
                Ok(_) if connection.session().is_some() => {
                    // What the node has said meanwhile is not told by an event again.
                    self.has_message |=
                        !matches!(self.stage, Stage::Carrying) && !self.from_node.is_empty();
                    self.stage = Stage::Carrying;
                }
                Ok(_) => {}
                Err(ConnectionError::V1 { received: bytes }) => {
                    self.carry_v1(magic);
                    if let Speech::V1(_, scanners) = &mut self.speech {
                        scanners[0].scan(magic, &bytes, &mut self.account.received);
                    }
                    self.to_node.end().extend_from_slice(&bytes);
                    return Ok(());
                }
                Err(error) => return Err(Close::Protocol(error)),
            }
        }
        if peer.ended && !connection.has_pending_input() {
            let whole = ConnectionError::Closed {
                within_packet: false,
            };
            let closed = connection.closed();
            if closed != whole {
                return Err(Close::Protocol(closed));
            }
        }
        Ok(())
    }

    /// Packets of a v2 peer that were dropped because they hold no message.
    pub(crate) fn ignored(&self) -> u64 {
        let ignored = |session: &Session| session.inbound.ignored().messages;
        self.session().map_or(0, ignored)
    }

    /// Takes its packets from the batch, as far as the node reads what they become.
    pub(crate) fn packets<'b>(
        &mut self,
        number: usize,
        incoming: &'b OpenBatch,
        frames: &mut Frames<'b>,
        limits: &Limits,
    ) -> Result<(), Close> {
        let Speech::V2(connection) = &mut self.speech else {
            return Ok(());
        };
        let open = |error: packetlane::bip324::OpenError| Close::Protocol(error.into());
        let mut waiting = self.to_node.len();
        while waiting < limits.queued {
            let Some((message_type, payload)) = connection.next_message(incoming).map_err(open)?
            else {
                return Ok(());
            };
            frames.push(number, message_type, payload);
            waiting += v1::Message::HEADER_LEN + payload.len();
            self.account.received.count(message_type, payload.len());
        }
        connection.defer(incoming).map_err(open)
    }

    /// What waits for the node, if it takes something now.
    pub(crate) fn for_node(&self) -> Option<(RawFd, &[u8])> {
        let node = self.node.as_ref().filter(|node| node.writable)?;
        let bytes = self.to_node.front();
        (!bytes.is_empty()).then_some((node.socket.as_raw_fd(), bytes))
    }

    /// What waits for the peer, if it takes something now: the first of it.
    pub(crate) fn for_peer<'a>(&'a self, outgoing: &'a SealBatch) -> Option<(RawFd, &'a [u8])> {
        let peer = self.peer.as_ref().filter(|peer| peer.writable)?;
        let bytes = match &self.speech {
            Speech::V1(queue, _) => queue.front(),
            Speech::V2(connection) => connection.outbox.front(outgoing).unwrap_or_default(),
        };
        (!bytes.is_empty()).then_some((peer.socket.as_raw_fd(), bytes))
    }

    /// Notes how much of that the node has taken.
    pub(crate) fn node_took(&mut self, taken: io::Result<usize>) -> Result<(), Close> {
        match (taken, &mut self.node) {
            (Ok(len), _) => self.to_node.written(len),
            (Err(error), Some(node)) if error.kind() == ErrorKind::WouldBlock => {
                node.writable = false;
            }
            (Err(error), _) => return Err(Close::NodeSocket(error)),
        }
        Ok(())
    }

    /// Notes how much of that the peer has taken.
    pub(crate) fn peer_took(&mut self, taken: io::Result<usize>) -> Result<(), Close> {
        match (taken, &mut self.peer) {
            (Ok(len), _) => {
                match &mut self.speech {
                    Speech::V1(queue, _) => queue.written(len),
                    Speech::V2(connection) => connection.outbox.written(len),
                }
                self.account.sent.bytes += len as u64;
            }
            (Err(error), Some(peer)) if error.kind() == ErrorKind::WouldBlock => {
                peer.writable = false;
            }
            (Err(error), _) => return Err(Close::PeerSocket(error)),
        }
        Ok(())
    }

    /// Writes what waits for the node.
    pub(crate) fn write_node(&mut self) -> Result<(), Close> {
        match &mut self.node {
            Some(node) if node.writable && !self.to_node.is_empty() => {
                self.calls += 1;
                let written = self.to_node.write(&mut node.socket);
                node.writable = written.map_err(Close::NodeSocket)?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Reads the node once, and adds what it sent to the batch, as far as the peer reads that.
    pub(crate) fn read_node(
        &mut self,
        outgoing: &mut SealBatch,
        scratch: &mut Scratch,
        settings: &Settings,
    ) -> Result<(), Close> {
        let queued = settings.limits.queued;
        let magic = settings.network.magic();
        let is_full = self.to_peer() >= queued;
        let Some(node) = &mut self.node else {
            return Ok(());
        };
        if is_full {
            return Ok(());
        }
        let sent = &mut self.account.sent;
        let connection = match &mut self.speech {
            Speech::V1(to_peer, scanners) => {
                self.calls += u32::from(node.readable);
                let to_peer = to_peer.end();
                let len = node
                    .append_to(to_peer, scratch)
                    .map_err(Close::NodeSocket)?;
                scanners[1].scan(magic, &to_peer[to_peer.len() - len..], sent);
                return Ok(());
            }
            Speech::V2(connection) => connection,
        };
        let has_session = connection.session().is_some();
        if !self.has_message && (has_session || self.from_node.len() < queued) {
            self.calls += u32::from(node.readable);
            node.append_to(&mut self.from_node, scratch)
                .map_err(Close::NodeSocket)?;
        }
        if !has_session || self.from_node.is_empty() {
            return Ok(());
        }
        let mut decoder = v1::Decoder::new(magic);
        let mut rest = &self.from_node[..];
        self.has_message = false;
        while !rest.is_empty() {
            if connection.outbox.len() >= queued || outgoing.bytes_used() >= settings.limits.batch {
                self.has_message = true;
                break;
            }
            let message = decoder.next(&mut rest).map_err(Close::NodeProtocol)?;
            let Some(message) = message else {
                break;
            };
            let with = settings
                .advertise
                .then(|| advertise(message.message_type, message.payload))
                .flatten();
            let payload = with.as_deref().unwrap_or(message.payload);
            connection
                .push_message(outgoing, message.message_type, payload)
                .map_err(Close::Protocol)?;
            sent.count(message.message_type, payload.len());
        }
        sent.ignored += decoder.ignored().messages;
        let taken = self.from_node.len() - rest.len();
        self.from_node.drain(..taken);
        if node.ended && !self.has_message {
            // The rest of a message that will not come.
            self.from_node.clear();
        }
        Ok(())
    }

    /// Writes what waits for the peer. The batch may be cleared then.
    pub(crate) fn write_peer(&mut self, outgoing: &SealBatch) -> Result<(), Close> {
        let before = self.to_peer();
        if before == 0 {
            return Ok(());
        }
        let peer = self.peer.as_mut().filter(|peer| peer.writable);
        self.calls += u32::from(peer.is_some());
        match (&mut self.speech, peer) {
            (Speech::V1(queue, _), Some(peer)) => {
                peer.writable = queue.write(&mut peer.socket).map_err(Close::PeerSocket)?;
            }
            (Speech::V1(..), None) => {}
            (Speech::V2(connection), Some(peer)) => {
                let write = |pieces: &[io::IoSlice<'_>]| peer.socket.write_vectored(pieces);
                let outbox = &mut connection.outbox;
                outbox.write(outgoing, write).map_err(Close::PeerSocket)?;
                peer.writable = outbox.is_empty();
            }
            (Speech::V2(connection), None) => connection
                .outbox
                .keep(outgoing)
                .map_err(|error| Close::PeerSocket(io::Error::other(error)))?,
        }
        self.account.sent.bytes += (before - self.to_peer()) as u64;
        Ok(())
    }

    /// Whether there is more to do for it without a new event.
    pub(crate) fn wants_turn(&self, limits: &Limits) -> bool {
        let readable = |side: &Option<Side>| side.as_ref().is_some_and(|side| side.readable);
        let reads_peer = self.is_in_turns()
            || matches!(
                self.stage,
                Stage::Introducing(_) | Stage::Silent | Stage::Proxying(..)
            );
        let from_peer = (readable(&self.peer) || self.has_packets())
            && reads_peer
            && self.to_node.len() < limits.queued;
        let reads_node = match self.stage {
            Stage::Carrying | Stage::Asking(_) => true,
            Stage::ShakingHands => self.from_node.len() < limits.queued,
            Stage::Introducing(_)
            | Stage::Silent
            | Stage::LookingUp
            | Stage::Connecting
            | Stage::Proxying(..) => false,
        };
        let from_node = self.has_message || reads_node && readable(&self.node);
        from_peer || from_node && self.to_peer() < limits.queued
    }

    /// Passes the end of one side on, once all that it sent has been written. Whether both have
    /// ended: then the reason of the first.
    pub(crate) fn pass_ends_on(&mut self) -> Option<Close> {
        // What the node has sent before the handshake waits.
        let nothing_for_peer =
            self.is_carrying() && self.to_peer() == 0 && self.from_node.is_empty();
        let more_of_peer = self.has_packets();
        let (peer, node) = match (&mut self.peer, &mut self.node) {
            (Some(peer), Some(node)) => (peer, node),
            (Some(peer), None) => return peer.ended.then_some(Close::Peer),
            // A node that has closed will not read the reply; one that asks for an address may have sent all.
            (None, Some(node)) => {
                return (node.is_ending() && !self.only_resolves).then_some(Close::Node);
            }
            (None, None) => return None,
        };
        if peer.ended && self.to_node.is_empty() && !more_of_peer {
            node.tell_end();
        }
        if node.ended && nothing_for_peer {
            peer.tell_end();
        }
        self.node_ended_first |= node.ended && !peer.ended;
        let all = peer.ended && node.told_end && node.ended && peer.told_end;
        all.then_some(match self.node_ended_first {
            true => Close::Node,
            false => Close::Peer,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sender that is never waited for, so that there is always something unread.
    #[test]
    fn an_inbox_holds_no_more_than_what_is_unread() {
        let mut inbox = Inbox::new(0);
        let (mut sent, mut read) = (0_u32, 0_u32);
        let mut room = [0; READ_LEN];
        for _ in 0..2000 {
            while inbox.unread() < 2 * READ_LEN {
                inbox.bytes.end().extend_from_slice(&sent.to_le_bytes());
                sent += 1;
            }
            assert_eq!(inbox.read(&mut room).unwrap(), READ_LEN);
            for number in room.chunks_exact(4) {
                assert_eq!(number, read.to_le_bytes());
                read += 1;
            }
            assert!(inbox.bytes.memory() <= 8 * READ_LEN);
        }
    }

    #[test]
    fn an_inbox_asks_for_no_more_behind_the_end() {
        let mut inbox = Inbox::new(0);
        assert!(inbox.can_ask(READ_LEN));
        inbox.end(Ok(()));
        assert_eq!(inbox.read(&mut [0; 10]).unwrap(), 0);
        assert!(!inbox.can_ask(READ_LEN));
    }
}
