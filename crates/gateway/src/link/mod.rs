//! One peer and its connection to the node.

mod shaping;
mod side;

use shaping::Shaping;
pub(crate) use side::{End, READ_LEN, Scratch, Side};

use crate::advertise::{OwnAddresses, is_version, may_change};
use crate::budget::{Direction, Memory, Permit};
use crate::close::Close;
use crate::dial::is_onion;
use crate::event::{Peer, Transport};
use crate::proxy_protocol::{Progress, ProxyProtocolError, parse};
use crate::queue::Queue;
use crate::settings::{Limits, Settings, V2Only};
use crate::socks::{self, Target};
use crate::stream::Stream;
use crate::translate::Frames;
use packetlane::bip324::shape::Shape;
use packetlane::bip324::{Connection, ConnectionError, Handshake, Session};
use packetlane::bitcoin::v1;
use packetlane::{OpenBatch, SealBatch};
use packetlane_p2p::payload::VersionStart;
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many addresses of a name fit into [`Limits::handshake`] if none of them answers.
const ADDRESSES_IN_TIME: u32 = 6;

/// After this long without a byte from a peer, its session's precomputed keystream is freed: up to 4
/// KB.
const SILENT: Duration = Duration::from_secs(10);

/// How often a link is tried that no event reports.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A link's progress.
#[derive(Debug)]
pub(crate) enum Stage {
    /// A load balancer sends a PROXY protocol header.
    ReadingProxyHeader(Vec<u8>),
    /// The peer is connected but silent. A handshake key is only made when it speaks.
    AwaitingFirstByte,
    /// The node sends a SOCKS request.
    ReadingSocksRequest(socks::Server),
    /// The target's name is being looked up. Dropping the handle cancels the lookup.
    Resolving(#[expect(dead_code, reason = "dropping it matters")] Arc<()>),
    /// The peer's socket, or that of a proxy, is connecting.
    Connecting,
    /// An upstream proxy is connecting; with the bytes received from it.
    ProxyHandshake(socks::Client, Vec<u8>),
    /// The peer, to which the node connects, is reached. The node's first bytes say whether it speaks
    /// v1, or v2 itself.
    AwaitingNode,
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
    /// Bytes queued for the peer, and the streams from the peer and from the node.
    V1(Queue, Box<[Stream; 2]>),
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
    /// What is told about the peer, as far as it is kept: see [`Link::snapshot`].
    pub(crate) info: Peer,
    /// The index in [`Settings::inbound`] of where the peer connected. `None` if the node connects to
    /// the peer.
    pub(crate) inbound: Option<usize>,
    /// Its slot in the budget of connections.
    pub(crate) permit: Permit,
    pub(crate) stage: Stage,
    pub(crate) codec: Codec,
    /// Without a socket until the peer is known.
    pub(crate) peer: Side,
    /// Without a socket until an inbound peer's handshake is done.
    pub(crate) node: Side,
    /// Further addresses of the peer's name, in reverse order.
    pub(crate) next_addresses: Vec<SocketAddr>,
    /// Whether the node has sent anything.
    pub(crate) node_has_sent: bool,
    /// Whether the peer's handshake is done and the node has answered.
    pub(crate) is_connected: bool,
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
    /// The peer did not answer over v2, now or lately, and v1 is tried. Until its `version` arrives.
    pub(crate) fell_back: bool,
    /// What the peer's `version` says.
    pub(crate) peer_version: Option<VersionStart>,
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
    /// When the peer last read something or nothing that may leave was queued for it, and the number of bytes sent
    /// by then.
    last_send_progress: (Instant, u64),
    /// The link's memory as last added to the budget.
    pub(crate) held: usize,
    /// Bytes in both directions whose CPU time is charged already.
    pub(crate) counted: u64,
    /// The part of these without decoys, as counted for [`Limits::byte_rate`].
    pub(crate) charged: u64,
    /// Whether the link is scheduled for the next turn.
    pub(crate) is_ready: bool,
    /// Whether it must wait until [`Limits::byte_rate`] allows more.
    pub(crate) is_throttled: bool,
    /// Shapes what a v2 peer gets, if the settings say so.
    shaping: Option<Box<Shaping>>,
    /// When a timer wakes the link.
    pub(crate) timer: Option<Instant>,
}

impl Link {
    /// A link whose [sides](Side) have no sockets yet.
    pub(crate) fn new(info: Peer, permit: Permit, inbound: Option<usize>, stage: Stage) -> Self {
        let now = Instant::now();
        Self {
            info,
            inbound,
            permit,
            owes_reply: matches!(stage, Stage::ReadingSocksRequest(_)),
            stage,
            codec: Codec::v1(),
            peer: Side::new(End::Peer, None),
            node: Side::new(End::Node, None),
            next_addresses: Vec::new(),
            node_has_sent: false,
            is_connected: false,
            route: None,
            attempt_started: now,
            via_proxy: false,
            credentials: None,
            only_resolves: false,
            fell_back: false,
            peer_version: None,
            to_node: Queue::default(),
            from_node: Vec::new(),
            has_message: false,
            node_ended_first: false,
            started: now,
            last_received: now,
            last_send_progress: (now, 0),
            held: 0,
            counted: 0,
            charged: 0,
            is_ready: false,
            is_throttled: false,
            shaping: None,
            timer: None,
        }
    }

    /// What is known of the peer now.
    pub(crate) fn snapshot(&self) -> Peer {
        let mut peer = self.info.clone();
        peer.age = self.started.elapsed();
        peer.decoys = self.session().map_or(0, |session| session.inbound.decoys());
        peer.account.received.ignored = self.ignored();
        peer
    }

    /// System calls of this turn.
    pub(crate) fn calls(&self) -> u32 {
        self.peer.calls + self.node.calls
    }

    pub(crate) fn is_relaying(&self) -> bool {
        matches!(self.stage, Stage::Relaying)
    }

    /// Whether its packets go through the batches of a turn.
    pub(crate) fn is_batched(&self) -> bool {
        matches!(self.stage, Stage::Handshaking | Stage::Relaying)
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

    /// Releases unused buffers, and the precomputed keystream of a peer that has been silent.
    pub(crate) fn trim(&mut self, now: Instant) {
        if now.saturating_duration_since(self.last_received) >= SILENT
            && let Codec::V2(connection) = &mut self.codec
            && let Some(session) = connection.session_mut()
        {
            for on in [false, true] {
                session.inbound.set_precomputed_keystream(on);
                session.outbound.set_precomputed_keystream(on);
            }
        }
        self.to_node.trim();
        if self.from_node.is_empty() {
            self.from_node = Vec::new();
        }
        if let Codec::V1(queue, streams) = &mut self.codec {
            queue.trim();
            streams.iter_mut().for_each(Stream::trim);
        }
    }

    /// Memory of all buffers, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let codec = match &self.codec {
            Codec::V1(queue, streams) => {
                queue.memory() + streams.iter().map(Stream::memory).sum::<usize>()
            }
            Codec::V2(connection) => connection.buffered() + connection.outbox.len(),
        };
        codec + self.to_node.memory() + self.from_node.capacity()
    }

    /// Counts what the link holds now.
    pub(crate) fn hold(&mut self, memory: &mut Memory) {
        let held = self.memory();
        memory.change(self.info.direction, self.held, held);
        self.held = held;
    }

    /// Whether received packets wait for a turn.
    fn has_packets(&self) -> bool {
        match &self.codec {
            Codec::V1(..) => false,
            Codec::V2(connection) => connection.has_pending_input(),
        }
    }

    /// Whether the connection ends because the node wants no such peer.
    pub(crate) fn is_refused_by_node(&self, close: &Close) -> bool {
        let is_closed = match close {
            Close::Node => true,
            Close::NodeSocket(error) => {
                [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe].contains(&error.kind())
            }
            _ => false,
        };
        is_closed && self.info.direction == Direction::Inbound && !self.node_has_sent
    }

    /// Whether v1 is allowed with the peer.
    pub(crate) fn may_speak_v1(&self, settings: &Settings) -> bool {
        let (v2_only, tor_encrypts) = match (self.info.direction, &self.info.address) {
            // Tor delivers the peers of this machine's onion services from a loopback address.
            (Direction::Inbound, from) => (
                settings.v2_only,
                matches!(from, Target::Address(from) if from.ip().is_loopback()),
            ),
            (Direction::Outbound, to) => (settings.outbound_v2_only, is_onion(to)),
        };
        match v2_only {
            None => true,
            Some(V2Only::Clearnet) => tor_encrypts,
            Some(V2Only::All) => false,
        }
    }

    /// How the peer can be retried if the connection ends for this reason.
    pub(crate) fn retry(&self, close: &Close, settings: &Settings) -> Option<Retry> {
        match (&self.stage, &self.codec, close) {
            (Stage::Resolving(_) | Stage::Connecting, _, Close::PeerSocket(_)) => {
                (!self.next_addresses.is_empty()).then_some(Retry::NextAddress)
            }
            (
                Stage::Handshaking,
                Codec::V2(connection),
                Close::Protocol(_) | Close::PeerSocket(_),
            ) => {
                let may = connection.may_speak_v1() && self.may_speak_v1(settings);
                may.then_some(Retry::V1)
            }
            _ => None,
        }
    }

    /// Returns the timeout that has expired, if any; or that the settings deny the peer by now.
    pub(crate) fn check_timeouts(&mut self, now: Instant, settings: &Settings) -> Option<Close> {
        let limits = &settings.limits;
        let over = |then: Instant, most: Duration| now.saturating_duration_since(then) > most;
        // What is held is not offered to the peer yet.
        let shaping = self.shaping.as_ref();
        let nothing_waits = self.to_peer() == 0 || shaping.is_some_and(|all| all.is_written());
        if nothing_waits || self.info.account.sent.bytes != self.last_send_progress.1 {
            self.last_send_progress = (now, self.info.account.sent.bytes);
        }
        if let (Direction::Inbound, Target::Address(from)) =
            (self.info.direction, &self.info.address)
            && !matches!(self.stage, Stage::ReadingProxyHeader(_))
            && !settings.admits(from.ip())
        {
            return Some(Close::Denied);
        }
        let timed_out = Close::PeerSocket(ErrorKind::TimedOut.into());
        let answer_timeout = Handshake::answer_timeout(limits.handshake);
        let retry = self.retry(&timed_out, settings).filter(|retry| {
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
        let is_slow = over(self.attempt_started, limits.connect);
        let awaits_node = self.node.socket().is_some() && !self.is_connected;
        if is_slow && awaits_node && self.info.direction == Direction::Inbound {
            Some(Close::NodeSocket(ErrorKind::TimedOut.into()))
        } else if is_slow && matches!(self.stage, Stage::Connecting) || retry == Some(Retry::V1) {
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

    /// Starts to relay bytes unchanged. `received` is what the peer has sent already.
    pub(crate) fn relay_v1(&mut self, received: &[u8], transport: Transport, settings: &Settings) {
        self.stage = Stage::Relaying;
        self.info.transport = transport;
        self.codec = Codec::v1();
        let sent = std::mem::take(&mut self.from_node);
        self.relay_from_node(&sent, settings);
        self.relay_from_peer(received, settings);
    }

    /// Queues what a v1 peer has sent for the node.
    fn relay_from_peer(&mut self, bytes: &[u8], settings: &Settings) {
        let Codec::V1(_, streams) = &mut self.codec else {
            return;
        };
        let version = &mut self.peer_version;
        streams[0].relay(
            settings.network.magic(),
            bytes,
            &mut self.info.account.received,
            self.to_node.end(),
            is_version,
            |message| {
                *version = version.or(VersionStart::decode(message.payload).ok());
                None
            },
        );
    }

    /// Queues what the node has sent for a v1 peer.
    fn relay_from_node(&mut self, bytes: &[u8], settings: &Settings) {
        let Codec::V1(to_peer, streams) = &mut self.codec else {
            return;
        };
        let own = OwnAddresses::new(settings, self.peer_version);
        streams[1].relay(
            settings.network.magic(),
            bytes,
            &mut self.info.account.sent,
            to_peer.end(),
            |message_type, len| own.is_some() && may_change(message_type, len),
            |message| own?.advertise(message.message_type, message.payload),
        );
    }

    /// Reads the PROXY protocol header and nothing beyond it. Returns whether it is complete;
    /// `address` is then the peer's.
    pub(crate) fn read_proxy_header(&mut self) -> Result<bool, Close> {
        let Stage::ReadingProxyHeader(header) = &mut self.stage else {
            return Ok(false);
        };
        loop {
            let missing = match parse(header).map_err(Close::ProxyProtocol)? {
                Progress::Missing(missing) => missing,
                Progress::Client(client) => {
                    if let Some(client) = client {
                        self.info.address = Target::Address(client);
                    }
                    return Ok(true);
                }
            };
            let mut bytes = [0; 256];
            let room = missing.min(bytes.len());
            let len = self.peer.read(&mut bytes[..room])?;
            if len == 0 {
                return match self.peer.ended && !header.is_empty() {
                    true => Err(Close::ProxyProtocol(ProxyProtocolError::Ended)),
                    false => Ok(false),
                };
            }
            header.extend_from_slice(&bytes[..len]);
        }
    }

    /// Reads the peer once: v2 into the batch, v1 straight into the node's queue.
    pub(crate) fn read_peer(
        &mut self,
        incoming: &mut OpenBatch,
        scratch: &mut Scratch,
        settings: &Settings,
        now: Instant,
    ) -> Result<(), Close> {
        if self.to_node.len() >= settings.limits.queued || self.is_throttled {
            return Ok(());
        }
        let peer = &mut self.peer;
        let len = match self.codec {
            Codec::V1(..) => peer.read(&mut scratch[..])?,
            Codec::V2(_) if peer.readable => peer.read(incoming.room(READ_LEN))?,
            Codec::V2(_) => 0,
        };
        if len > 0 {
            self.last_received = now;
            self.info.account.received.bytes += len as u64;
        }
        let connection = match &mut self.codec {
            Codec::V1(_, streams) => {
                if peer.ended {
                    streams[0].finish(self.to_node.end());
                }
                self.relay_from_peer(&scratch[..len], settings);
                return Ok(());
            }
            Codec::V2(connection) => connection,
        };
        if len > 0 || connection.has_pending_input() {
            match connection.receive(incoming, len) {
                Ok(_) => {}
                Err(ConnectionError::V1 { .. }) if !self.may_speak_v1(settings) => {
                    return Err(Close::V1);
                }
                Err(ConnectionError::V1 { received: bytes }) => {
                    self.relay_v1(&bytes, Transport::V1, settings);
                    return Ok(());
                }
                Err(error) => return Err(Close::Protocol(error)),
            }
        }
        if peer.ended && !connection.has_pending_input() {
            match connection.closed() {
                ConnectionError::Closed {
                    within_packet: false,
                } => {}
                closed => return Err(Close::Protocol(closed)),
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
        settings: &Settings,
        now: Instant,
    ) -> Result<(), Close> {
        let Codec::V2(connection) = &mut self.codec else {
            return Ok(());
        };
        let open = |error: packetlane::bip324::OpenError| Close::Protocol(error.into());
        let mut waiting = self.to_node.len();
        while waiting < settings.limits.queued {
            let Some((message_type, payload)) = connection.next_message(incoming).map_err(open)?
            else {
                return self.end_handshake(settings, now);
            };
            if self.peer_version.is_none() && is_version(message_type, payload.len()) {
                self.peer_version = VersionStart::decode(payload).ok();
            }
            frames.push((number, message_type, payload));
            waiting += v1::Message::HEADER_LEN + payload.len();
            self.info
                .account
                .received
                .count(message_type, payload.len());
        }
        connection.defer(incoming).map_err(open)?;
        self.end_handshake(settings, now)
    }

    /// Goes on to relay messages once the handshake is complete.
    fn end_handshake(&mut self, settings: &Settings, now: Instant) -> Result<(), Close> {
        if let Stage::Handshaking = self.stage
            && let Codec::V2(connection) = &self.codec
            && let Some(session) = connection.session()
        {
            if settings.shape != Shape::NONE {
                let shaping = Shaping::new(settings.shape, settings.engine, connection, now)?;
                self.shaping = Some(Box::new(shaping));
            }
            self.info.session_id = Some(*session.id());
            self.info.transport = Transport::V2;
            self.stage = Stage::Relaying;
            // No event will report again what the node has sent during the handshake.
            self.has_message |= !self.from_node.is_empty();
        }
        Ok(())
    }

    /// Adds the decoys that are due now.
    pub(crate) fn add_decoys(
        &mut self,
        outgoing: &mut SealBatch,
        limits: &Limits,
        now: Instant,
    ) -> Result<(), Close> {
        // What is held leaves before the stream ends.
        if self.node.ended && !self.has_message {
            self.shaping = None;
        }
        if let (Some(shaping), Codec::V2(connection)) = (&mut self.shaping, &mut self.codec) {
            shaping.add_decoys(connection, outgoing, limits.queued, now)?;
            self.info.account.shaped = shaping.counts();
        }
        Ok(())
    }

    /// When the link needs a turn although nothing happens: it is throttled, the node is silent, bytes
    /// are held, or a decoy is due.
    pub(crate) fn wake_at(&self, now: Instant) -> Option<Instant> {
        let is_polled = self.is_throttled || matches!(self.stage, Stage::AwaitingNode);
        let poll = is_polled.then(|| now + POLL_INTERVAL);
        let shaping = self.shaping.as_ref().and_then(|shaping| shaping.wake_at());
        [poll, shaping].into_iter().flatten().min()
    }

    /// Writes what is queued for the node.
    pub(crate) fn write_node(&mut self) -> Result<(), Close> {
        if !self.to_node.is_empty() {
            self.node.write(|socket| self.to_node.write(socket))?;
        }
        Ok(())
    }

    /// Reads the node once and adds its messages to the batch until the peer's queue is full.
    pub(crate) fn read_node(
        &mut self,
        outgoing: &mut SealBatch,
        scratch: &mut Scratch,
        settings: &Settings,
        now: Instant,
    ) -> Result<(), Close> {
        let queued = settings.limits.queued;
        if self.to_peer() >= queued || self.is_throttled {
            return Ok(());
        }
        let node = &mut self.node;
        let connection = match &mut self.codec {
            Codec::V1(to_peer, streams) => {
                let len = node.read(&mut scratch[..])?;
                if node.ended {
                    streams[1].finish(to_peer.end());
                }
                self.node_has_sent |= len > 0;
                self.relay_from_node(&scratch[..len], settings);
                return Ok(());
            }
            Codec::V2(connection) => connection,
        };
        let has_session = connection.session().is_some();
        if !self.has_message && (has_session || self.from_node.len() < queued) {
            self.node_has_sent |= node.append_to(&mut self.from_node, scratch)? > 0;
        }
        if !has_session || self.from_node.is_empty() {
            return Ok(());
        }
        let sent = &mut self.info.account.sent;
        let own = OwnAddresses::new(settings, self.peer_version);
        let mut decoder = v1::Decoder::new(settings.network.magic());
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
            let changed = own.and_then(|own| own.advertise(message.message_type, message.payload));
            let payload = changed.as_deref().unwrap_or(message.payload);
            let before = connection.outbox.len();
            connection
                .push_message(outgoing, message.message_type, payload)
                .map_err(Close::Protocol)?;
            if let Some(shaping) = &mut self.shaping {
                let wire_len = connection.outbox.len() - before;
                shaping.push(message.message_type, payload, wire_len, now);
            }
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
        match &mut self.codec {
            Codec::V1(queue, _) => {
                self.peer.write(|socket| queue.write(socket))?;
            }
            Codec::V2(connection) => {
                let outbox = &mut connection.outbox;
                let shaping = &mut self.shaping;
                let is_written = self.peer.write(|socket| {
                    let mut write = |pieces: &[io::IoSlice<'_>]| socket.write_vectored(pieces);
                    outbox.write(outgoing, |pieces| match shaping {
                        Some(shaping) => shaping.write(pieces, &mut write),
                        None => write(pieces),
                    })?;
                    // What is held does not wait for the socket.
                    let is_held = shaping.as_ref().is_some_and(|shaping| shaping.is_written());
                    Ok(outbox.is_empty() || is_held)
                })?;
                if !is_written {
                    let kept = outbox.keep(outgoing);
                    kept.map_err(|error| Close::PeerSocket(io::Error::other(error)))?;
                }
            }
        }
        self.info.account.sent.bytes += (before - self.to_peer()) as u64;
        Ok(())
    }

    /// Whether there is work that no new event will report. A throttled link has none until the next
    /// sweep.
    pub(crate) fn has_pending_work(&self, limits: &Limits) -> bool {
        if self.is_throttled {
            return false;
        }
        let (reads_peer, reads_node) = match self.stage {
            Stage::ReadingProxyHeader(_) | Stage::AwaitingFirstByte => (true, false),
            Stage::ReadingSocksRequest(_) | Stage::AwaitingNode => (false, true),
            Stage::Resolving(_) | Stage::Connecting => (false, false),
            Stage::ProxyHandshake(..) => (true, false),
            Stage::Handshaking => (true, self.from_node.len() < limits.queued),
            Stage::Relaying => (true, true),
        };
        let from_peer = (self.peer.readable || self.has_packets())
            && reads_peer
            && self.to_node.len() < limits.queued;
        let from_node = self.has_message || reads_node && self.node.readable;
        from_peer || from_node && self.to_peer() < limits.queued
    }

    /// Forwards the end of one stream once everything before it has been written. Returns the cause
    /// once both streams have ended.
    pub(crate) fn forward_eof(&mut self) -> Option<Close> {
        // What the node sent before the handshake is still queued.
        let nothing_for_peer =
            self.is_relaying() && self.to_peer() == 0 && self.from_node.is_empty();
        let more_of_peer = self.has_packets();
        let (peer, node) = (&mut self.peer, &mut self.node);
        match (peer.socket(), node.socket()) {
            (Some(_), None) => return peer.ended.then_some(Close::Peer),
            // A node that has closed will not read the reply. One that asked for an address may
            // close its sending half first.
            (None, _) => {
                return (node.is_ending() && !self.only_resolves).then_some(Close::Node);
            }
            // A node that refuses a peer ends the stream, and then resets it when the peer's first
            // message arrives. Reading reports only the end.
            (Some(_), Some(socket)) if node.ended && !self.node_has_sent => {
                if let Ok(Some(error)) = socket.take_error() {
                    return Some(Close::NodeSocket(error));
                }
            }
            (Some(_), Some(_)) => {}
        }
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
