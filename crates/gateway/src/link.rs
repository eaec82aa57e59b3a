//! One peer and its connection to the node.

use crate::account::{Account, Scanner};
use crate::budget::{Direction, Permit};
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

/// Bytes per read.
pub(crate) const READ_LEN: usize = 16 * 1024;

/// Unread bytes of one side above which the ring's receive request is cancelled.
pub(crate) const MAX_UNREAD: usize = 64 * 1024;

/// How many addresses of a name fit into [`Limits::handshake`] if none of them answers.
const ADDRESSES_IN_TIME: u32 = 6;

/// Scratch buffer for reads.
pub(crate) type Scratch = [u8; READ_LEN];

/// The transport that a peer speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Not known yet.
    Unknown,
    /// Version 1: bytes are relayed unchanged.
    V1,
    /// Version 2 (BIP324).
    V2,
}

names! {
    /// The name used in logs, metrics and JSON.
    Transport {
        Self::Unknown => "unknown",
        Self::V1 => "v1",
        Self::V2 => "v2",
    }
}

/// Why a connection ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum Close {
    /// The peer closed it.
    Peer,
    /// The node closed it.
    Node,
    /// The PROXY protocol header is invalid.
    ProxyProtocol(ProxyProtocolError),
    /// The peer violated BIP324, or closed within a packet.
    Protocol(ConnectionError),
    /// The node sent something that is not v1 of the configured network.
    NodeProtocol(v1::Error),
    /// The node's SOCKS request or the upstream proxy's reply is invalid, or the proxy refused.
    Socks(SocksError),
    /// The name that the node asked for cannot be resolved.
    Name(io::Error),
    /// A Tor RESOLVE request was answered; it needs no connection.
    Resolved,
    /// The node asked for an `.onion` name, and [`Settings::tor`](crate::Settings::tor) is not set.
    NoTor,
    /// The v2 handshake could not be started: no random numbers.
    NoHandshake(HandshakeError),
    /// The peer is unreachable, or its socket failed.
    PeerSocket(io::Error),
    /// The node is unreachable, or its socket failed.
    NodeSocket(io::Error),
    /// The handshake took longer than [`Limits::handshake`](crate::Limits::handshake).
    Handshake,
    /// The peer sent nothing for [`Limits::idle`](crate::Limits::idle).
    Idle,
    /// The peer read nothing of what is queued for it for
    /// [`Limits::stalled`](crate::Limits::stalled).
    Stalled,
    /// The connections of this direction exceeded [`Limits::memory`](crate::Limits::memory) or
    /// [`Limits::outbound_memory`](crate::Limits::outbound_memory), and this one held the most in
    /// its thread.
    Memory,
    /// The gateway stopped.
    Stopped,
}

impl fmt::Display for Close {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer => f.write_str("the peer closed the connection"),
            Self::Node => f.write_str("the node closed the connection"),
            Self::ProxyProtocol(error) => write!(f, "PROXY protocol: {error}"),
            Self::Protocol(error) => write!(f, "protocol error of the peer: {error}"),
            Self::NodeProtocol(error @ v1::Error::Magic { .. }) => write!(
                f,
                "protocol error of the node: {error}; it may be on another network, or speak v2 \
                 (set its v2transport=0)"
            ),
            Self::NodeProtocol(error) => write!(f, "protocol error of the node: {error}"),
            Self::Socks(error) => error.fmt(f),
            Self::Name(error) => write!(f, "cannot resolve the peer's name: {error}"),
            Self::Resolved => f.write_str("a name lookup for the node was answered"),
            Self::NoTor => f.write_str("an .onion name needs --tor"),
            Self::NoHandshake(error) => error.fmt(f),
            Self::PeerSocket(error) => write!(f, "the connection to the peer failed: {error}"),
            Self::NodeSocket(error) => write!(f, "the connection to the node failed: {error}"),
            Self::Handshake => f.write_str("the handshake timed out"),
            Self::Idle => f.write_str("the peer sent nothing for too long"),
            Self::Stalled => f.write_str("the peer stopped reading"),
            Self::Memory => {
                f.write_str("the memory limit was reached, and this connection held the most")
            }
            Self::Stopped => f.write_str("the gateway stopped"),
        }
    }
}

names! {
    /// The name used in logs, metrics and JSON.
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
    /// The SOCKS reply for a node that still waits for one.
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

/// What io_uring has received for one side.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// The ring's number for this socket.
    pub(crate) user: u64,
    bytes: Queue,
    /// Whether a receive request is active.
    pub(crate) is_requested: bool,
    /// How the stream ended, until that is read.
    end: Option<io::Result<()>>,
    /// No more data will arrive.
    has_ended: bool,
}

impl Inbox {
    pub(crate) fn new(user: u64) -> Self {
        Self {
            user,
            bytes: Queue::default(),
            is_requested: false,
            end: None,
            has_ended: false,
        }
    }

    pub(crate) fn unread(&self) -> usize {
        self.bytes.len()
    }

    /// Whether a receive request may be submitted: no more than `most` bytes are unread.
    pub(crate) fn can_request(&self, most: usize) -> bool {
        !self.is_requested && !self.has_ended && self.unread() <= most
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

/// One side's socket and its state. Events report changes only.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) socket: TcpStream,
    /// `Some` with io_uring.
    pub(crate) inbox: Option<Inbox>,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// An event reported the end of the stream, but it has not been read yet.
    pub(crate) ending: bool,
    /// The stream has ended: the side sends no more.
    ended: bool,
    /// We have shut down our sending half.
    write_shut_down: bool,
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
            write_shut_down: false,
        }
    }

    /// Reads once, if the socket may be readable. Returns 0 if there is nothing now, or if the
    /// stream has ended.
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
            // A short read means the socket is empty; an event reports when there is more.
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

    /// Whether the stream ends, although unread data may come first.
    fn is_ending(&self) -> bool {
        self.ended || self.ending || self.inbox.as_ref().is_some_and(|inbox| inbox.has_ended)
    }

    /// Stores what io_uring has received. Returns how many bytes are unread.
    pub(crate) fn received(&mut self, bytes: io::Result<&[u8]>, more: bool) -> usize {
        let Some(inbox) = &mut self.inbox else {
            return 0;
        };
        inbox.is_requested = more;
        match bytes {
            Ok([]) => inbox.end(Ok(())),
            Ok(bytes) => inbox.bytes.end().extend_from_slice(bytes),
            // The request is submitted again.
            Err(error) if error.kind() == ErrorKind::WouldBlock => return inbox.unread(),
            Err(error) => inbox.end(Err(error)),
        }
        self.readable = true;
        inbox.unread()
    }

    /// Like [`Side::read`], but appends to `bytes`. Reads into `scratch` first, so that `bytes`
    /// gets no unused capacity.
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

    /// Tells the other end that it gets no more data.
    fn shut_down_write(&mut self) {
        if !self.write_shut_down {
            self.write_shut_down = true;
            // This fails only if the other end has gone already.
            let _ = self.socket.shutdown(std::net::Shutdown::Write);
        }
    }
}

/// A link's progress.
#[derive(Debug)]
pub(crate) enum Stage {
    /// A load balancer sends a PROXY protocol header.
    ReadingProxyHeader(Header),
    /// The peer is connected but silent. A handshake key is only made when it speaks.
    AwaitingFirstByte,
    /// The node sends a SOCKS request.
    ReadingSocksRequest(socks::Server),
    /// The target's name is being looked up.
    Resolving,
    /// The peer's socket is connecting.
    Connecting,
    /// An upstream proxy is connecting; with the bytes received from it.
    ProxyHandshake(socks::Client, Vec<u8>),
    /// The v2 handshake is running.
    Handshaking,
    /// Messages are relayed.
    Relaying,
}

/// Encodes and decodes the peer's byte stream.
#[derive(Debug)]
pub(crate) enum Codec {
    /// A handshake or a session.
    V2(Box<Connection>),
    /// Bytes queued for the peer, and the message counters for both directions.
    V1(Queue, Box<[Scanner; 2]>),
}

impl Codec {
    pub(crate) fn v1() -> Self {
        Self::V1(Queue::default(), Box::default())
    }
}

/// How to retry a peer that was unreachable or did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// At the next address of its name.
    NextAddress,
    /// Over v1, which may be all that it speaks.
    V1,
}

/// One peer and its connection to the node.
#[derive(Debug)]
pub(crate) struct Link {
    /// Unique among all links, past and present.
    pub(crate) id: u64,
    pub(crate) direction: Direction,
    /// The address that connected, or the target that the node asked for.
    pub(crate) address: Target,
    /// Its slot in the budget of connections.
    pub(crate) permit: Permit,
    pub(crate) stage: Stage,
    pub(crate) codec: Codec,
    /// `None` until the peer is known.
    pub(crate) peer: Option<Side>,
    /// `None` until an inbound peer's handshake is done.
    pub(crate) node: Option<Side>,
    /// Held while the name is looked up; dropping it cancels the lookup.
    pub(crate) lookup: Option<Arc<()>>,
    /// Further addresses of the peer's name, in reverse order.
    pub(crate) next_addresses: Vec<SocketAddr>,
    /// The address that is dialed: the peer's own, or a proxy's.
    pub(crate) route: Option<SocketAddr>,
    /// When the current attempt to connect, or the v2 handshake, started.
    pub(crate) attempt_started: Instant,
    /// Whether the peer is reached through an upstream proxy.
    pub(crate) via_proxy: bool,
    /// The node's SOCKS credentials, for the upstream proxy.
    pub(crate) credentials: Option<socks::Credentials>,
    /// The node still waits for a SOCKS reply.
    pub(crate) owes_reply: bool,
    /// The node asked only for a name's address (Tor RESOLVE).
    pub(crate) only_resolves: bool,
    /// The peer did not answer over v2, and is retried over v1.
    pub(crate) fell_back: bool,
    /// Bytes received before the fallback: only bytes after it prove that the peer speaks v1.
    pub(crate) received_before_fallback: u64,
    /// Bytes queued for the node.
    pub(crate) to_node: Queue,
    /// Bytes from the node that are not encoded yet.
    pub(crate) from_node: Vec<u8>,
    /// Whether `from_node` may start with a complete message: the last turn stopped at a limit.
    has_message: bool,
    /// Whether the node's stream ended before the peer's.
    node_ended_first: bool,
    pub(crate) started: Instant,
    last_received: Instant,
    /// When the peer last read something or nothing was queued for it, and the number of bytes sent
    /// by then.
    last_send_progress: (Instant, u64),
    /// The link's memory as last added to the budget.
    pub(crate) held: usize,
    pub(crate) account: Account,
    /// Reads and writes of this turn; these are system calls only without a ring.
    pub(crate) calls: u32,
    /// Bytes in both directions whose CPU time is charged already.
    pub(crate) counted: u64,
    /// Whether the link is scheduled for the next turn.
    pub(crate) is_ready: bool,
}

impl Link {
    fn new(id: u64, permit: Permit, from: SocketAddr, direction: Direction, stage: Stage) -> Self {
        let now = Instant::now();
        Self {
            id,
            direction,
            address: Target::Address(from),
            permit,
            stage,
            codec: Codec::v1(),
            peer: None,
            node: None,
            lookup: None,
            next_addresses: Vec::new(),
            route: None,
            attempt_started: now,
            via_proxy: false,
            credentials: None,
            owes_reply: false,
            only_resolves: false,
            fell_back: false,
            received_before_fallback: 0,
            to_node: Queue::default(),
            from_node: Vec::new(),
            has_message: false,
            node_ended_first: false,
            started: now,
            last_received: now,
            last_send_progress: (now, 0),
            held: 0,
            account: Account::default(),
            calls: 0,
            counted: 0,
            is_ready: false,
        }
    }

    /// A link for an inbound connection: from a peer, or from a load balancer that will tell the
    /// peer's address.
    pub(crate) fn inbound(
        id: u64,
        permit: Permit,
        side: Side,
        from: SocketAddr,
        expects_proxy_header: bool,
    ) -> Self {
        let stage = match expects_proxy_header {
            true => Stage::ReadingProxyHeader(Header::default()),
            false => Stage::AwaitingFirstByte,
        };
        Self {
            peer: Some(side),
            ..Self::new(id, permit, from, Direction::Inbound, stage)
        }
    }

    /// A link for a connection of the node's: to `target`, or to the target of its SOCKS request.
    pub(crate) fn outbound(
        id: u64,
        permit: Permit,
        side: Side,
        from: SocketAddr,
        target: Option<Target>,
    ) -> Self {
        let stage = match target {
            Some(_) => Stage::Resolving,
            None => Stage::ReadingSocksRequest(socks::Server::default()),
        };
        let owes_reply = target.is_none();
        Self {
            node: Some(side),
            owes_reply,
            address: target.unwrap_or(Target::Address(from)),
            ..Self::new(id, permit, from, Direction::Outbound, stage)
        }
    }

    pub(crate) fn is_relaying(&self) -> bool {
        matches!(self.stage, Stage::Relaying)
    }

    /// Whether its packets go through the batches of a turn.
    pub(crate) fn is_batched(&self) -> bool {
        matches!(self.stage, Stage::Handshaking | Stage::Relaying)
    }

    pub(crate) fn transport(&self) -> Transport {
        match (&self.stage, &self.codec) {
            (Stage::Relaying, Codec::V1(..)) => Transport::V1,
            (Stage::Relaying, Codec::V2(_)) => Transport::V2,
            _ => Transport::Unknown,
        }
    }

    /// The session of a v2 peer, once the handshake is done.
    pub(crate) fn session(&self) -> Option<&Session> {
        match &self.codec {
            Codec::V2(connection) => connection.session(),
            Codec::V1(..) => None,
        }
    }

    /// Bytes queued for the peer.
    fn to_peer(&self) -> usize {
        match &self.codec {
            Codec::V1(queue, _) => queue.len(),
            Codec::V2(connection) => connection.outbox.len(),
        }
    }

    /// Releases unused buffers.
    pub(crate) fn trim(&mut self) {
        self.to_node.trim();
        if self.from_node.is_empty() {
            self.from_node = Vec::new();
        }
        if let Codec::V1(queue, _) = &mut self.codec {
            queue.trim();
        }
        for side in [&mut self.peer, &mut self.node].into_iter().flatten() {
            side.trim();
        }
    }

    /// Memory of all buffers, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let inbox = |side: &Option<Side>| match side {
            Some(Side {
                inbox: Some(inbox), ..
            }) => inbox.bytes.memory(),
            _ => 0,
        };
        let codec = match &self.codec {
            Codec::V1(queue, _) => queue.memory(),
            Codec::V2(connection) => connection.buffered() + connection.outbox.len(),
        };
        let ours = self.to_node.memory() + self.from_node.capacity();
        codec + ours + inbox(&self.peer) + inbox(&self.node)
    }

    /// Whether received packets wait for a turn.
    fn has_packets(&self) -> bool {
        match &self.codec {
            Codec::V1(..) => false,
            Codec::V2(connection) => connection.has_pending_input(),
        }
    }

    /// How the peer can be retried if the connection ends for this reason.
    pub(crate) fn retry(&self, close: &Close) -> Option<Retry> {
        match (&self.stage, &self.codec, close) {
            (Stage::Resolving | Stage::Connecting, _, Close::PeerSocket(_)) => {
                (!self.next_addresses.is_empty()).then_some(Retry::NextAddress)
            }
            (
                Stage::Handshaking,
                Codec::V2(connection),
                Close::Protocol(_) | Close::PeerSocket(_),
            ) => connection.may_speak_v1().then_some(Retry::V1),
            _ => None,
        }
    }

    /// Returns the timeout that has expired, if any.
    pub(crate) fn check_timeouts(&mut self, now: Instant, limits: &Limits) -> Option<Close> {
        let over = |then: Instant, most: Duration| now.saturating_duration_since(then) > most;
        if self.to_peer() == 0 || self.account.sent.bytes != self.last_send_progress.1 {
            self.last_send_progress = (now, self.account.sent.bytes);
        }
        let timed_out = Close::PeerSocket(ErrorKind::TimedOut.into());
        let answer_timeout = Handshake::answer_timeout(limits.handshake);
        let retry = self.retry(&timed_out).filter(|retry| {
            let most = match retry {
                Retry::NextAddress => limits.handshake / ADDRESSES_IN_TIME,
                Retry::V1 => answer_timeout,
            };
            over(self.attempt_started, most)
        });
        // A peer that was reached late must still be retried over v1.
        let handshake = match self.fell_back {
            true => limits.handshake + answer_timeout,
            false => limits.handshake,
        };
        if retry == Some(Retry::V1) {
            Some(timed_out)
        } else if !self.is_relaying() && over(self.started, handshake) {
            Some(Close::Handshake)
        } else if retry.is_some() {
            // The rest of the handshake timeout is for the next address.
            Some(timed_out)
        } else if over(self.last_received, limits.idle) {
            Some(Close::Idle)
        } else if over(self.last_send_progress.0, limits.stalled) {
            Some(Close::Stalled)
        } else {
            None
        }
    }

    /// Starts to relay the bytes of a v1 peer unchanged.
    pub(crate) fn relay_v1(&mut self, magic: [u8; 4]) {
        self.stage = Stage::Relaying;
        let mut to_peer = Queue::default();
        let mut scanners = Box::<[Scanner; 2]>::default();
        scanners[1].scan(magic, &self.from_node, &mut self.account.sent);
        to_peer.end().append(&mut self.from_node);
        self.codec = Codec::V1(to_peer, scanners);
    }

    /// Reads the PROXY protocol header and nothing beyond it. Returns whether it is complete;
    /// `address` is then the peer's.
    pub(crate) fn read_proxy_header(&mut self) -> Result<bool, Close> {
        let (Stage::ReadingProxyHeader(header), Some(peer)) = (&mut self.stage, &mut self.peer)
        else {
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
            self.address = Target::Address(client);
        }
        Ok(true)
    }

    /// Reads the peer once: v2 into the batch, v1 straight into the node's queue.
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
        let connection = match &mut self.codec {
            Codec::V1(_, scanners) => {
                let to_node = self.to_node.end();
                let len = peer
                    .append_to(to_node, scratch)
                    .map_err(Close::PeerSocket)?;
                if len > 0 {
                    self.last_received = now;
                    received.bytes += len as u64;
                    scanners[0].scan(magic, &to_node[to_node.len() - len..], received);
                }
                return Ok(());
            }
            Codec::V2(connection) => connection,
        };
        let len = match peer.readable {
            true => peer.read(incoming.room(READ_LEN)),
            false => Ok(0),
        };
        let len = len.map_err(Close::PeerSocket)?;
        if len > 0 {
            self.last_received = now;
            received.bytes += len as u64;
        }
        if len > 0 || connection.has_pending_input() {
            match connection.receive(incoming, len) {
                Ok(_) if connection.session().is_some() => {
                    // No event will report again what the node has sent during the handshake.
                    self.has_message |=
                        !matches!(self.stage, Stage::Relaying) && !self.from_node.is_empty();
                    self.stage = Stage::Relaying;
                }
                Ok(_) => {}
                Err(ConnectionError::V1 { received: bytes }) => {
                    self.relay_v1(magic);
                    if let Codec::V1(_, scanners) = &mut self.codec {
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

    /// Packets of a v2 peer that were dropped because they hold no valid message.
    pub(crate) fn ignored(&self) -> u64 {
        let ignored = |session: &Session| session.inbound.ignored().messages;
        self.session().map_or(0, ignored)
    }

    /// Takes the link's packets from the batch until the node's queue is full.
    pub(crate) fn packets<'b>(
        &mut self,
        number: usize,
        incoming: &'b OpenBatch,
        frames: &mut Frames<'b>,
        limits: &Limits,
    ) -> Result<(), Close> {
        let Codec::V2(connection) = &mut self.codec else {
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

    /// What is queued for the node, if its socket is writable.
    pub(crate) fn pending_for_node(&self) -> Option<(RawFd, &[u8])> {
        let node = self.node.as_ref().filter(|node| node.writable)?;
        let bytes = self.to_node.front();
        (!bytes.is_empty()).then_some((node.socket.as_raw_fd(), bytes))
    }

    /// The first of what is queued for the peer, if its socket is writable.
    pub(crate) fn pending_for_peer<'a>(
        &'a self,
        outgoing: &'a SealBatch,
    ) -> Option<(RawFd, &'a [u8])> {
        let peer = self.peer.as_ref().filter(|peer| peer.writable)?;
        let bytes = match &self.codec {
            Codec::V1(queue, _) => queue.front(),
            Codec::V2(connection) => connection.outbox.front(outgoing).unwrap_or_default(),
        };
        (!bytes.is_empty()).then_some((peer.socket.as_raw_fd(), bytes))
    }

    /// Records how much the node's socket has accepted.
    pub(crate) fn sent_to_node(&mut self, taken: io::Result<usize>) -> Result<(), Close> {
        match (taken, &mut self.node) {
            (Ok(len), _) => self.to_node.written(len),
            (Err(error), Some(node)) if error.kind() == ErrorKind::WouldBlock => {
                node.writable = false;
            }
            (Err(error), _) => return Err(Close::NodeSocket(error)),
        }
        Ok(())
    }

    /// Records how much the peer's socket has accepted.
    pub(crate) fn sent_to_peer(&mut self, taken: io::Result<usize>) -> Result<(), Close> {
        match (taken, &mut self.peer) {
            (Ok(len), _) => {
                match &mut self.codec {
                    Codec::V1(queue, _) => queue.written(len),
                    Codec::V2(connection) => connection.outbox.written(len),
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

    /// Writes what is queued for the node.
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

    /// Reads the node once and adds its messages to the batch until the peer's queue is full.
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
        let connection = match &mut self.codec {
            Codec::V1(to_peer, scanners) => {
                self.calls += u32::from(node.readable);
                let to_peer = to_peer.end();
                let len = node
                    .append_to(to_peer, scratch)
                    .map_err(Close::NodeSocket)?;
                scanners[1].scan(magic, &to_peer[to_peer.len() - len..], sent);
                return Ok(());
            }
            Codec::V2(connection) => connection,
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
            // An incomplete message whose rest will never arrive.
            self.from_node.clear();
        }
        Ok(())
    }

    /// Writes what is queued for the peer. After this call the batch may be cleared.
    pub(crate) fn write_peer(&mut self, outgoing: &SealBatch) -> Result<(), Close> {
        let before = self.to_peer();
        if before == 0 {
            return Ok(());
        }
        let peer = self.peer.as_mut().filter(|peer| peer.writable);
        self.calls += u32::from(peer.is_some());
        match (&mut self.codec, peer) {
            (Codec::V1(queue, _), Some(peer)) => {
                peer.writable = queue.write(&mut peer.socket).map_err(Close::PeerSocket)?;
            }
            (Codec::V1(..), None) => {}
            (Codec::V2(connection), Some(peer)) => {
                let write = |pieces: &[io::IoSlice<'_>]| peer.socket.write_vectored(pieces);
                let outbox = &mut connection.outbox;
                outbox.write(outgoing, write).map_err(Close::PeerSocket)?;
                peer.writable = outbox.is_empty();
            }
            (Codec::V2(connection), None) => connection
                .outbox
                .keep(outgoing)
                .map_err(|error| Close::PeerSocket(io::Error::other(error)))?,
        }
        self.account.sent.bytes += (before - self.to_peer()) as u64;
        Ok(())
    }

    /// Whether there is work that no new event will report.
    pub(crate) fn has_pending_work(&self, limits: &Limits) -> bool {
        let readable = |side: &Option<Side>| side.as_ref().is_some_and(|side| side.readable);
        let reads_peer = self.is_batched()
            || matches!(
                self.stage,
                Stage::ReadingProxyHeader(_) | Stage::AwaitingFirstByte | Stage::ProxyHandshake(..)
            );
        let from_peer = (readable(&self.peer) || self.has_packets())
            && reads_peer
            && self.to_node.len() < limits.queued;
        let reads_node = match self.stage {
            Stage::Relaying | Stage::ReadingSocksRequest(_) => true,
            Stage::Handshaking => self.from_node.len() < limits.queued,
            Stage::ReadingProxyHeader(_)
            | Stage::AwaitingFirstByte
            | Stage::Resolving
            | Stage::Connecting
            | Stage::ProxyHandshake(..) => false,
        };
        let from_node = self.has_message || reads_node && readable(&self.node);
        from_peer || from_node && self.to_peer() < limits.queued
    }

    /// Forwards the end of one stream once everything before it has been written. Returns the cause
    /// once both streams have ended.
    pub(crate) fn forward_eof(&mut self) -> Option<Close> {
        // What the node sent before the handshake is still queued.
        let nothing_for_peer =
            self.is_relaying() && self.to_peer() == 0 && self.from_node.is_empty();
        let more_of_peer = self.has_packets();
        let (peer, node) = match (&mut self.peer, &mut self.node) {
            (Some(peer), Some(node)) => (peer, node),
            (Some(peer), None) => return peer.ended.then_some(Close::Peer),
            // A node that has closed will not read the reply. One that asked for an address may
            // close its sending half first.
            (None, Some(node)) => {
                return (node.is_ending() && !self.only_resolves).then_some(Close::Node);
            }
            (None, None) => return None,
        };
        if peer.ended && self.to_node.is_empty() && !more_of_peer {
            node.shut_down_write();
        }
        if node.ended && nothing_for_peer {
            peer.shut_down_write();
        }
        self.node_ended_first |= node.ended && !peer.ended;
        let all = peer.ended && node.write_shut_down && node.ended && peer.write_shut_down;
        all.then_some(match self.node_ended_first {
            true => Close::Node,
            false => Close::Peer,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sender that is always ahead: something is always unread.
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
    fn an_inbox_requests_no_more_after_the_end() {
        let mut inbox = Inbox::new(0);
        assert!(inbox.can_request(READ_LEN));
        inbox.end(Ok(()));
        assert_eq!(inbox.read(&mut [0; 10]).unwrap(), 0);
        assert!(!inbox.can_request(READ_LEN));
    }
}
