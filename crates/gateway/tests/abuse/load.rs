//! Thousands of peers and nodes in one thread, which check every byte they receive.
//!
//! Everything that the two ends of a connection send follows from the connection's number. So each
//! end can compare what it receives with what the other sends, byte by byte, and detects loss,
//! duplication and reordering.

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use packetlane::bip324::{Connection, ConnectionError, HandshakeConfig, PacketKind};
use packetlane::bitcoin::message::MessageType;
use packetlane::bitcoin::{Network, v1};
use packetlane::{Engine, OpenBatch, SealBatch};
use rand::rngs::StdRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use slab::Slab;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::collections::{BTreeMap, HashSet};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};
use std::time::{Duration, Instant};

pub(crate) const MAGIC: [u8; 4] = Network::Regtest.magic();

/// An end without progress for this long is stuck. Long enough for a stalled machine.
const STUCK: Duration = Duration::from_secs(60);

/// Longest payload of the network.
const LONGEST: usize = 4_000_000;

/// Bytes per read, and bytes that an end writes before the others get their turn.
const PIECE: usize = 64 * 1024;

/// An end that writes one byte at a time does so for this many bytes, until the handshake is over.
const BYTE_BY_BYTE: usize = 10_000;

/// Length of the opener's first message, which starts with the number.
const FIRST_LEN: usize = 90;

/// The gateway's answers to the SOCKS greeting and request of a successful connection.
const ANSWER: [u8; 12] = [5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0];

/// Which side opens the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// A peer connects to the gateway.
    Inbound,
    /// The node connects through the gateway's SOCKS server.
    Outbound,
}

/// How an end finishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Sends everything, shuts down, and reads to the end.
    Whole,
    /// The same, but shuts down only after the other side.
    Second,
    /// Closes after this many bytes.
    Close(usize),
    /// Resets the connection after this many bytes.
    Reset(usize),
    /// Sends invalid data after everything else.
    Nonsense,
}

impl End {
    fn is_clean(self) -> bool {
        matches!(self, Self::Whole | Self::Second)
    }

    fn cut(self) -> usize {
        match self {
            Self::Close(at) | Self::Reset(at) => at,
            Self::Whole | Self::Second | Self::Nonsense => usize::MAX,
        }
    }
}

/// Behavior of one end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    messages: usize,
    has_longest: bool,
    /// Maximum bytes per write.
    write: usize,
    has_decoys: bool,
    /// After this many bytes, reads nothing for this long.
    stall: Option<(usize, Duration)>,
    end: End,
}

/// Behavior of both ends of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    pub(crate) route: Route,
    is_v2: bool,
    opener: Part,
    acceptor: Part,
}

/// Composition of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    pub(crate) seed: u64,
    /// Whether ends may close early, stall, or send invalid data.
    pub(crate) is_rough: bool,
    /// Maximum number of messages per end.
    pub(crate) messages: usize,
    /// Whether the node connects to peers, too.
    pub(crate) both_ways: bool,
}

impl Mix {
    fn rng(&self, id: u64, what: u64) -> StdRng {
        StdRng::seed_from_u64(self.seed ^ id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ what << 60)
    }

    pub(crate) fn script(&self, id: u64) -> Script {
        let mut rng = self.rng(id, 0);
        let is_v2 = rng.random_range(0..4) > 0;
        let route = match self.both_ways && rng.random_range(0..3) == 0 {
            true => Route::Outbound,
            false => Route::Inbound,
        };
        let mut part = |is_opener: bool| {
            let one_in = |rng: &mut StdRng, of: u32| rng.random_range(0..of) == 0;
            let end = match rng.random_range(0..12) {
                _ if !self.is_rough => End::Whole,
                // Often within the handshake.
                0 => End::Close(rng.random_range(0..5000)),
                1 => End::Reset(rng.random_range(0..5000)),
                2 => End::Close(rng.random_range(0..50_000)),
                3 => End::Reset(rng.random_range(0..50_000)),
                // v1 relays invalid data unchanged.
                4 if is_v2 => End::Nonsense,
                // Both ends would wait for each other.
                5 | 6 if !is_opener => End::Second,
                _ => End::Whole,
            };
            let write = match rng.random_range(0..8) {
                0 => 1,
                1 | 2 => rng.random_range(2..2000),
                _ => PIECE,
            };
            let stall = (self.is_rough && one_in(&mut rng, 10)).then(|| {
                let length = rng.random_range(20..500);
                (rng.random_range(0..20_000), Duration::from_millis(length))
            });
            Part {
                messages: rng.random_range(0..=self.messages),
                has_longest: self.is_rough && write > 1 && one_in(&mut rng, 200),
                write,
                has_decoys: one_in(&mut rng, 3),
                stall,
                end,
            }
        };
        let (mut opener, acceptor) = (part(true), part(false));
        if opener.end == End::Nonsense && !acceptor.end.is_clean() {
            // A peer that closes early may be retried over v1, which relays invalid data.
            opener.end = End::Whole;
        }
        Script {
            route,
            is_v2,
            opener,
            acceptor,
        }
    }

    /// The messages of the opener or the acceptor.
    fn messages(&self, id: u64, is_opener: bool) -> Messages {
        let script = self.script(id);
        let part = match is_opener {
            true => script.opener,
            false => script.acceptor,
        };
        Messages {
            rng: self.rng(id, 1 + u64::from(is_opener)),
            first: is_opener.then_some(id),
            left: part.messages,
            longest: part.has_longest.then_some(part.messages / 2),
        }
    }
}

/// The messages of one end.
struct Messages {
    rng: StdRng,
    /// The opener's number, sent first.
    first: Option<u64>,
    left: usize,
    longest: Option<usize>,
}

impl Iterator for Messages {
    type Item = (MessageType, Vec<u8>);

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(id) = self.first.take() {
            let mut payload = id.to_le_bytes().to_vec();
            payload.resize(FIRST_LEN, 7);
            return Some((MessageType::literal("version"), payload));
        }
        self.left = self.left.checked_sub(1)?;
        let len = match self.rng.random_range(0..30) {
            _ if self.longest == Some(self.left) => LONGEST,
            0 => self.rng.random_range(0..60_000),
            _ => self.rng.random_range(0..400),
        };
        let types = ["inv", "tx", "ping", "notknown", "twelve-chars"];
        let name = types[self.rng.random_range(0..types.len())];
        let mut payload = vec![0; len];
        self.rng.fill_bytes(&mut payload);
        // The names are valid.
        Some((MessageType::new(name.as_bytes()).ok()?, payload))
    }
}

/// The messages that are still expected, and the part of the current one that has arrived, in v1
/// framing.
struct Expected {
    messages: Messages,
    /// The v1 framing of a message that has partly arrived.
    wire: Vec<u8>,
    at: usize,
}

impl Expected {
    fn new(messages: Messages) -> Self {
        Self {
            messages,
            wire: Vec::new(),
            at: 0,
        }
    }

    fn bytes(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while !bytes.is_empty() {
            if self.at == self.wire.len() {
                let Some((message_type, payload)) = self.messages.next() else {
                    return Err(format!("{} bytes behind all", bytes.len()));
                };
                self.wire.clear();
                self.at = 0;
                v1::Message::new(message_type, &payload).encode(MAGIC, &mut self.wire);
            }
            let len = bytes.len().min(self.wire.len() - self.at);
            if bytes[..len] != self.wire[self.at..self.at + len] {
                let left = self.messages.left;
                return Err(format!("other bytes, {left} messages before the end"));
            }
            bytes = &bytes[len..];
            self.at += len;
        }
        Ok(())
    }

    fn message(&mut self, message_type: MessageType, payload: &[u8]) -> Result<(), String> {
        let expected = self.messages.next();
        match expected.is_some_and(|(is_type, is)| is_type == message_type && is == payload) {
            true => Ok(()),
            false => Err(format!("another message: {message_type}")),
        }
    }

    fn is_complete(&self) -> bool {
        let Messages { first, left, .. } = self.messages;
        first.is_none() && left == 0 && self.at == self.wire.len()
    }
}

/// The transport of an end.
enum Codec {
    V1 {
        out: Vec<u8>,
        written: usize,
        /// Bytes received before the number was known.
        early: Vec<u8>,
    },
    V2(Box<Connection>),
}

/// How an end's connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ended {
    /// Everything was sent and received, then the stream ended.
    Whole,
    /// Ended by this end's script.
    Cut,
    /// Ended by the other side or the gateway.
    Broken(String),
}

/// One end of a connection.
struct Actor {
    socket: TcpStream,
    is_opener: bool,
    /// An acceptor learns it from the first message.
    id: Option<u64>,
    part: Option<Part>,
    codec: Codec,
    says: Option<Messages>,
    expected: Option<Expected>,
    /// The part of the gateway's SOCKS answers that has not arrived.
    answer: &'static [u8],
    readable: bool,
    writable: bool,
    passed: usize,
    heard: usize,
    stalled_until: Option<Instant>,
    was_stalled: bool,
    told_end: bool,
    heard_end: bool,
    active: Instant,
}

/// The outcome of both ends of a connection.
#[derive(Default, Debug)]
struct Outcome {
    opener: Option<Ended>,
    acceptor: Option<Ended>,
}

/// What a listener accepts connections as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepts {
    /// As the node, over v1.
    Node,
    /// As a peer that speaks v2 and v1.
    PeerV2,
    /// As a peer that speaks only v1.
    PeerV1,
}

/// Totals of a load.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) connections: u64,
    /// Connections on which both ends received everything.
    pub(crate) whole: u64,
    /// Connections that a script or an action of the test ended early.
    pub(crate) cut: u64,
    /// Connections that were reset before any data, during a handover between gateways.
    pub(crate) untouched: u64,
    pub(crate) bytes: u64,
}

/// All ends.
pub(crate) struct Load {
    mix: Mix,
    engine: Engine,
    poll: Poll,
    events: Events,
    actors: Slab<Actor>,
    listeners: Vec<(Accepts, Option<TcpListener>, SocketAddr)>,
    came: Vec<u8>,
    incoming: OpenBatch,
    outgoing: SealBatch,
    next: u64,
    outcomes: BTreeMap<u64, Outcome>,
    /// Connections affected by an action of the test on the node.
    struck: HashSet<u64>,
    is_node_down: bool,
    /// Whether ends that have sent everything delay their shutdown.
    pub(crate) is_holding: bool,
    /// Whether a connection may be reset before any data has passed.
    pub(crate) may_miss: bool,
    totals: Totals,
}

const LISTENERS: usize = usize::MAX - 8;

fn listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    Ok(TcpListener::from_std(socket.into()))
}

/// The address at which the node finds the peer of a connection. The peer derives the connection's
/// number from it.
fn peer_address(id: u64) -> Ipv4Addr {
    let rest = id % 62_500;
    Ipv4Addr::new(
        127,
        10 + (id / 62_500) as u8,
        (rest / 250) as u8,
        (1 + rest % 250) as u8,
    )
}

fn of_peer_address(address: SocketAddr) -> Option<u64> {
    match address.ip() {
        IpAddr::V4(ip) => {
            let [_, high, a, b] = ip.octets().map(u64::from);
            Some(high.checked_sub(10)? * 62_500 + a * 250 + b - 1)
        }
        IpAddr::V6(_) => None,
    }
}

/// Starts connecting, from an address of a /16 chosen by the connection's number.
fn connect(to: SocketAddr, id: u64) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    let source = Ipv4Addr::new(
        127,
        (1 + id % 8) as u8,
        (id / 1600) as u8,
        (1 + id / 8 % 200) as u8,
    );
    socket.bind(&SocketAddr::from((source, 0)).into())?;
    match socket.connect(&to.into()) {
        Err(error) if error.raw_os_error() != Some(115) => Err(error),
        _ => Ok(TcpStream::from_std(socket.into())),
    }
}

impl Load {
    pub(crate) fn new(mix: Mix) -> io::Result<Self> {
        let mut load = Self {
            mix,
            engine: Engine::detect().map_err(io::Error::other)?,
            poll: Poll::new()?,
            events: Events::with_capacity(4096),
            actors: Slab::new(),
            listeners: Vec::new(),
            came: vec![0; PIECE],
            incoming: OpenBatch::new(),
            outgoing: SealBatch::new(),
            next: 0,
            outcomes: BTreeMap::new(),
            struck: HashSet::new(),
            is_node_down: false,
            is_holding: false,
            may_miss: false,
            totals: Totals::default(),
        };
        for accepts in [Accepts::Node, Accepts::PeerV2, Accepts::PeerV1] {
            // Not port 0: the system would choose a port that was not used in the last minute, and
            // the load of another test may have left none. By default nobody connects from these
            // ports.
            let any = |port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
            let mut sockets = (20_000..32_000).filter_map(|port| listener(any(port)).ok());
            let socket = sockets.next().ok_or(io::ErrorKind::AddrInUse)?;
            let address = socket.local_addr()?;
            load.listeners.push((accepts, None, address));
            let place = load.listeners.len() - 1;
            load.listen(place, socket)?;
        }
        Ok(load)
    }

    fn listen(&mut self, place: usize, mut socket: TcpListener) -> io::Result<()> {
        let token = Token(LISTENERS + place);
        let registry = self.poll.registry();
        registry.register(&mut socket, token, Interest::READABLE)?;
        self.listeners[place].1 = Some(socket);
        Ok(())
    }

    /// Address of the node.
    pub(crate) fn node(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.listeners[0].2.port()).into()
    }

    /// Number of connections started.
    pub(crate) fn begun(&self) -> u64 {
        self.next
    }

    /// Number of open openers.
    pub(crate) fn open(&self) -> usize {
        let actors = self.actors.iter();
        actors.filter(|(_, actor)| actor.is_opener).count()
    }

    pub(crate) fn script_of_next(&self) -> Script {
        self.mix.script(self.next)
    }

    /// Starts the next connection, to the gateway's port for its direction.
    pub(crate) fn begin(&mut self, to: SocketAddr) -> io::Result<()> {
        let id = self.next;
        self.next += 1;
        self.totals.connections += 1;
        self.outcomes.insert(id, Outcome::default());
        if self.is_node_down {
            self.struck.insert(id);
        }
        let script = self.mix.script(id);
        let socket = connect(to, id)?;
        let v1 = |out| Codec::V1 {
            out,
            written: 0,
            early: Vec::new(),
        };
        let codec = match script.route {
            Route::Outbound => {
                let peer = &self.listeners[if script.is_v2 { 1 } else { 2 }].2;
                // Each v1 peer has its own address, so the gateway remembers none of them.
                let mut out = vec![5, 1, 0, 5, 1, 0, 1];
                out.extend(peer_address(id).octets());
                out.extend(peer.port().to_be_bytes());
                v1(out)
            }
            Route::Inbound if script.is_v2 => {
                let connection = Connection::initiator(self.handshake(script.opener, id));
                Codec::V2(Box::new(connection.map_err(io::Error::other)?))
            }
            Route::Inbound => v1(Vec::new()),
        };
        let answer: &[u8] = match script.route {
            Route::Inbound => &[],
            Route::Outbound => &ANSWER,
        };
        let mut actor = self.actor(socket, codec, true);
        actor.answer = answer;
        self.knows(&mut actor, id);
        self.add(actor)
    }

    fn handshake(&self, part: Part, id: u64) -> HandshakeConfig {
        let mut rng = self.mix.rng(id, 5);
        let (mut secret, mut auxiliary) = ([1; 32], [0; 32]);
        rng.fill_bytes(&mut secret[1..]);
        rng.fill_bytes(&mut auxiliary);
        let mut config = HandshakeConfig::new(MAGIC, self.engine, secret, auxiliary);
        config.garbage = vec![0; rng.random_range(0..4096)];
        rng.fill_bytes(&mut config.garbage);
        if part.has_decoys {
            config.decoys = vec![vec![1; 300], vec![], vec![2; 9000]];
        }
        config
    }

    fn actor(&self, socket: TcpStream, codec: Codec, is_opener: bool) -> Actor {
        Actor {
            socket,
            is_opener,
            id: None,
            part: None,
            codec,
            says: None,
            expected: None,
            answer: &[],
            readable: false,
            writable: false,
            passed: 0,
            heard: 0,
            stalled_until: None,
            was_stalled: false,
            told_end: false,
            heard_end: false,
            active: Instant::now(),
        }
    }

    fn knows(&self, actor: &mut Actor, id: u64) {
        let script = self.mix.script(id);
        actor.id = Some(id);
        actor.part = Some(match actor.is_opener {
            true => script.opener,
            false => script.acceptor,
        });
        actor.says = Some(self.mix.messages(id, actor.is_opener));
        actor.expected = Some(Expected::new(self.mix.messages(id, !actor.is_opener)));
    }

    fn add(&mut self, mut actor: Actor) -> io::Result<()> {
        let token = Token(self.actors.vacant_key());
        let both = Interest::READABLE | Interest::WRITABLE;
        let registry = self.poll.registry();
        registry.register(&mut actor.socket, token, both)?;
        self.actors.insert(actor);
        Ok(())
    }

    /// Stops the node: resets its connections and closes its listener.
    pub(crate) fn kill_node(&mut self) {
        self.is_node_down = true;
        self.listeners[0].1 = None;
        let mut killed = Vec::new();
        for (number, actor) in &self.actors {
            let route = actor.id.map(|id| self.mix.script(id).route);
            // Also those that have not reached the node yet.
            self.struck.extend(actor.id);
            let is_node = actor.is_opener == (route == Some(Route::Outbound));
            if is_node || !actor.is_opener && route.is_none() {
                killed.push(number);
            }
        }
        for number in killed {
            let actor = self.actors.remove(number);
            let _ = SockRef::from(&actor.socket).set_linger(Some(Duration::ZERO));
            self.note(&actor, Ended::Cut);
        }
    }

    /// Starts the node again.
    pub(crate) fn revive_node(&mut self) -> io::Result<()> {
        self.is_node_down = false;
        let socket = listener(self.listeners[0].2)?;
        self.listen(0, socket)
    }

    /// Number of ends that have not sent or received everything.
    pub(crate) fn unsettled(&self) -> usize {
        let actors = self.actors.iter();
        actors.filter(|(_, actor)| !actor.is_settled()).count()
    }

    /// Whether all connections have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.actors.is_empty()
    }

    /// Runs one turn of all ends.
    ///
    /// # Panics
    ///
    /// An end receives wrong data, misses data, or is stuck.
    pub(crate) fn turn(&mut self) -> io::Result<()> {
        let now = Instant::now();
        let is_busy = self.actors.iter().any(|(_, actor)| {
            let is_stalled = actor.stalled_until.is_some_and(|until| now < until);
            actor.readable && !is_stalled && !actor.heard_end
                || actor.writable && actor.has_more() && !actor.told_end
        });
        let wait = match is_busy {
            true => Duration::ZERO,
            false => Duration::from_millis(10),
        };
        match self.poll.poll(&mut self.events, Some(wait)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => result?,
        }
        let mut may_accept = [false; 3];
        for event in &self.events {
            let Token(token) = event.token();
            if token >= LISTENERS {
                may_accept[token - LISTENERS] = true;
            } else if let Some(actor) = self.actors.get_mut(token) {
                actor.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
                actor.writable |= event.is_writable() || event.is_error();
            }
        }
        for (place, _) in may_accept.iter().enumerate().filter(|(_, may)| **may) {
            while let Some(Ok((socket, _))) = self.listeners[place].1.as_ref().map(|l| l.accept()) {
                self.admit(self.listeners[place].0, socket)?;
            }
        }
        let is_holding = self.is_holding;
        let may_act = |(number, actor): (usize, &Actor)| {
            let is_asleep = is_holding && !actor.readable && actor.is_settled();
            (!is_asleep).then_some(number)
        };
        let numbers: Vec<_> = self.actors.iter().filter_map(may_act).collect();
        for number in numbers {
            let mut actor = self.actors.remove(number);
            match self.step(&mut actor, now) {
                None => {
                    // Gets the same slot again, which was vacated last.
                    let again = self.actors.insert(actor);
                    assert_eq!(again, number);
                }
                Some(ended) => {
                    if matches!(actor.part.map(|part| part.end), Some(End::Reset(_)))
                        && ended == Ended::Cut
                    {
                        let _ = SockRef::from(&actor.socket).set_linger(Some(Duration::ZERO));
                    }
                    self.note(&actor, ended);
                }
            }
        }
        Ok(())
    }

    fn admit(&mut self, accepts: Accepts, socket: TcpStream) -> io::Result<()> {
        let _ = socket.set_nodelay(true);
        let id = socket.local_addr().ok().and_then(of_peer_address);
        let part = id.map(|id| self.mix.script(id).acceptor);
        let codec = match (accepts, id.zip(part)) {
            (Accepts::PeerV2, Some((id, part))) => {
                let config = self.handshake(part, self.mix.seed ^ id);
                let connection = Connection::responder(config).map_err(io::Error::other)?;
                Codec::V2(Box::new(connection))
            }
            _ => Codec::V1 {
                out: Vec::new(),
                written: 0,
                early: Vec::new(),
            },
        };
        let mut actor = self.actor(socket, codec, false);
        actor.part = part;
        self.add(actor)
    }

    /// Advances one end. Returns how it ended, if it did.
    fn step(&mut self, actor: &mut Actor, now: Instant) -> Option<Ended> {
        if actor.passed >= actor.part.map_or(usize::MAX, |part| part.end.cut()) {
            return Some(Ended::Cut);
        }
        let before = (actor.passed, actor.heard_end, actor.told_end);
        let step = self.read(actor, now).and_then(|()| self.write(actor));
        if let Err(error) = step {
            return Some(error);
        }
        if before != (actor.passed, actor.heard_end, actor.told_end)
            || actor.stalled_until.is_some()
            || self.is_holding
        {
            actor.active = now;
        }
        if actor.told_end && actor.heard_end {
            let is_complete = actor.expected.as_ref().is_some_and(Expected::is_complete);
            return Some(match is_complete {
                true => Ended::Whole,
                false => Ended::Broken("the end, before all was heard".into()),
            });
        }
        if actor.passed >= actor.part.map_or(usize::MAX, |part| part.end.cut()) {
            return Some(Ended::Cut);
        }
        let idle = now.saturating_duration_since(actor.active);
        assert!(
            idle < STUCK,
            "stuck: {:?} {:?} opener {} told {} heard {} passed {} of the node: {}",
            actor.id,
            actor.id.map(|id| self.mix.script(id)),
            actor.is_opener,
            actor.told_end,
            actor.heard_end,
            actor.passed,
            self.is_node_down,
        );
        None
    }

    fn read(&mut self, actor: &mut Actor, now: Instant) -> Result<(), Ended> {
        if let Some(part) = actor.part
            && let Some((at, length)) = part.stall
            && actor.heard >= at
            && !std::mem::replace(&mut actor.was_stalled, true)
        {
            actor.stalled_until = Some(now + length);
        }
        if let Some(until) = actor.stalled_until {
            if now < until {
                return Ok(());
            }
            actor.stalled_until = None;
        }
        if !actor.readable || actor.heard_end {
            return Ok(());
        }
        let most = actor.room().min(PIECE);
        let came = &mut self.came[..most];
        let len = match actor.socket.read(came) {
            Ok(len) => len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                actor.readable = false;
                return Ok(());
            }
            Err(error) => return Err(Ended::Broken(error.to_string())),
        };
        if len == 0 {
            actor.heard_end = true;
            return match actor.id {
                Some(_) => Ok(()),
                None => Err(Ended::Broken("nothing was said".into())),
            };
        }
        actor.passed += len;
        actor.heard += len;
        self.totals.bytes += len as u64;
        let skipped = actor.answer.len().min(len);
        if came[..skipped] != actor.answer[..skipped] {
            return Err(Ended::Broken("refused by SOCKS".into()));
        }
        actor.answer = &actor.answer[skipped..];
        let came = self.came[skipped..len].to_vec();
        let result = self.heard(actor, came);
        self.incoming.clear();
        result
    }

    fn heard(&mut self, actor: &mut Actor, came: Vec<u8>) -> Result<(), Ended> {
        let mix = self.mix;
        let wrong = |actor: &Actor, error: String| -> ! {
            let script = actor.id.map(|id| mix.script(id));
            panic!(
                "connection {:?}, opener {}: {error}; {script:?}",
                actor.id, actor.is_opener
            )
        };
        let mut bytes = match &mut actor.codec {
            Codec::V1 { .. } => came,
            Codec::V2(connection) => match self.packets(connection, &came) {
                Ok(messages) => {
                    for (message_type, payload) in messages {
                        let first = payload.first_chunk().map(|id| u64::from_le_bytes(*id));
                        if let (None, Some(id)) = (actor.id, first) {
                            self.knows(actor, id);
                        }
                        let heard = match &mut actor.expected {
                            Some(expected) => expected.message(message_type, &payload),
                            None => Err("no number".into()),
                        };
                        if let Err(error) = heard {
                            wrong(actor, error);
                        }
                    }
                    return Ok(());
                }
                Err(ConnectionError::V1 { received }) => {
                    actor.codec = Codec::V1 {
                        out: Vec::new(),
                        written: 0,
                        early: Vec::new(),
                    };
                    received
                }
                Err(error) => wrong(actor, error.to_string()),
            },
        };
        let Codec::V1 { early, .. } = &mut actor.codec else {
            return Ok(());
        };
        if actor.id.is_none() {
            early.append(&mut bytes);
            let magic = early.len().min(4);
            if early[..magic] != MAGIC[..magic] {
                // A v1-only peer is greeted in v2.
                return Err(Ended::Cut);
            }
            match v1::Message::decode(MAGIC, early) {
                Ok(Some(message)) => {
                    let id = message.payload.first_chunk();
                    let id = id.map(|id| u64::from_le_bytes(*id));
                    bytes = std::mem::take(early);
                    match id {
                        Some(id) => self.knows(actor, id),
                        None => wrong(actor, "no number".into()),
                    }
                }
                Ok(None) => return Ok(()),
                Err(error) => wrong(actor, error.to_string()),
            }
        }
        if let Some(expected) = &mut actor.expected
            && let Err(error) = expected.bytes(&bytes)
        {
            wrong(actor, error);
        }
        Ok(())
    }

    /// Returns the messages that are complete.
    fn packets(
        &mut self,
        connection: &mut Connection,
        came: &[u8],
    ) -> Result<Vec<(MessageType, Vec<u8>)>, ConnectionError> {
        self.incoming.room(came.len()).copy_from_slice(came);
        connection.receive(&mut self.incoming, came.len())?;
        self.engine.open(&mut self.incoming);
        let mut messages = Vec::new();
        while let Some(contents) = connection.next_packet(&self.incoming)? {
            // The gateway sends what it has decoded.
            let (message_type, payload) = MessageType::decode(contents).unwrap();
            messages.push((message_type, payload.to_vec()));
        }
        Ok(messages)
    }

    fn write(&mut self, actor: &mut Actor) -> Result<(), Ended> {
        // A v2 acceptor answers before it knows the number.
        if !actor.writable || actor.told_end {
            return Ok(());
        }
        self.fill(actor);
        let most = match actor.part {
            Some(part) if part.write > 1 || actor.passed < BYTE_BY_BYTE => part.write,
            _ => PIECE,
        };
        let mut room = actor.room().min(PIECE).min(64 * most);
        let (mut wrote, mut is_full) = (0, false);
        let socket = &mut actor.socket;
        let mut write = |bytes: &[u8]| -> io::Result<usize> {
            if room == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            let written = socket.write(&bytes[..bytes.len().min(most).min(room)]);
            match written {
                Ok(len) => {
                    room -= len;
                    wrote += len;
                }
                Err(ref error) => is_full = error.kind() == ErrorKind::WouldBlock,
            }
            written
        };
        let result = match &mut actor.codec {
            Codec::V1 { out, written, .. } => loop {
                if *written == out.len() {
                    out.clear();
                    *written = 0;
                    break Ok(());
                }
                match write(&out[*written..]) {
                    Ok(len) => *written += len,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break Ok(()),
                    Err(error) => break Err(error),
                }
            },
            Codec::V2(connection) => {
                self.engine.seal(&mut self.outgoing);
                let written = connection
                    .outbox
                    .write(&self.outgoing, |pieces| write(&pieces[0]));
                self.outgoing.clear();
                written
            }
        };
        actor.writable = !is_full;
        actor.passed += wrote;
        if let Err(error) = result {
            // Data that arrived before may still be read; the other end reports what it received.
            return Err(Ended::Broken(error.to_string()));
        }
        // Without a number the connection has not started.
        let (Some(part), Some(_)) = (actor.part, actor.id) else {
            return Ok(());
        };
        let has_said_all = !actor.has_more()
            && match &actor.codec {
                Codec::V1 { .. } => true,
                Codec::V2(connection) => connection.session().is_some(),
            };
        if has_said_all {
            match part.end {
                End::Nonsense => {
                    let _ = actor.socket.write(&[0x55; 500]);
                    return Err(Ended::Cut);
                }
                End::Second if !actor.heard_end => {}
                _ if self.is_holding => {}
                _ => {
                    actor.told_end = true;
                    let _ = actor.socket.shutdown(Shutdown::Write);
                }
            }
        }
        Ok(())
    }

    /// Queues the next data to send.
    fn fill(&mut self, actor: &mut Actor) {
        let (Some(says), Some(part)) = (&mut actor.says, actor.part) else {
            return;
        };
        loop {
            let waits = match &actor.codec {
                Codec::V1 { out, written, .. } => out.len() - written,
                Codec::V2(connection) if connection.session().is_none() => return,
                Codec::V2(connection) => connection.outbox.len(),
            };
            if waits >= PIECE {
                return;
            }
            let Some((message_type, payload)) = says.next() else {
                return;
            };
            match &mut actor.codec {
                Codec::V1 { out, .. } => {
                    v1::Message::new(message_type, &payload).encode(MAGIC, out)
                }
                Codec::V2(connection) => {
                    let batch = &mut self.outgoing;
                    if part.has_decoys {
                        let decoy = connection.push(
                            batch,
                            PacketKind::Decoy,
                            &payload[..payload.len().min(50)],
                        );
                        assert_eq!(decoy, Ok(()));
                    }
                    let pushed = connection.push_message(batch, message_type, &payload);
                    assert_eq!(pushed, Ok(()));
                }
            }
        }
    }

    /// Records how an end finished, and checks the connection when both have.
    fn note(&mut self, actor: &Actor, ended: Ended) {
        let Some(id) = actor.id else {
            return;
        };
        let Some(outcome) = self.outcomes.get_mut(&id) else {
            return;
        };
        match actor.is_opener {
            true => outcome.opener = Some(ended),
            false => outcome.acceptor = Some(ended),
        }
        let script = self.mix.script(id);
        let is_clean = script.opener.end.is_clean() && script.acceptor.end.is_clean();
        let is_struck = self.struck.contains(&id);
        let outcome = &self.outcomes[&id];
        let whole = Some(Ended::Whole);
        if outcome.opener == whole && outcome.acceptor == whole {
            self.totals.whole += 1;
            self.outcomes.remove(&id);
        } else if !is_clean || is_struck {
            // Everything received so far was correct.
        } else if self.may_miss && actor.is_opener && actor.heard == 0 {
            self.totals.untouched += 1;
            self.outcomes.remove(&id);
        } else if outcome
            .opener
            .as_ref()
            .is_some_and(|ended| *ended != Ended::Whole)
            || outcome
                .acceptor
                .as_ref()
                .is_some_and(|ended| *ended != Ended::Whole)
        {
            panic!("connection {id}: {outcome:?}; {script:?}");
        }
    }

    /// Returns the totals.
    ///
    /// # Panics
    ///
    /// Both ends of a connection closed in order, and one did not receive everything.
    pub(crate) fn finish(mut self) -> Totals {
        self.totals.cut = self.outcomes.len() as u64;
        for (id, outcome) in &self.outcomes {
            let script = self.mix.script(*id);
            let is_clean = script.opener.end.is_clean() && script.acceptor.end.is_clean();
            let is_excused = !is_clean || self.struck.contains(id);
            assert!(is_excused, "connection {id}: {outcome:?}; {script:?}");
        }
        self.totals
    }
}

impl Actor {
    /// Bytes that may pass before the script ends the connection.
    fn room(&self) -> usize {
        let cut = self.part.map_or(usize::MAX, |part| part.end.cut());
        cut.saturating_sub(self.passed)
    }

    /// Whether it has sent and received everything.
    fn is_settled(&self) -> bool {
        !self.has_more() && self.expected.as_ref().is_some_and(Expected::is_complete)
    }

    /// Whether it has something to send now.
    fn has_more(&self) -> bool {
        let has_messages = |says: &Messages| says.first.is_some() || says.left > 0;
        let says = self.says.as_ref().is_some_and(has_messages);
        match &self.codec {
            Codec::V1 { out, written, .. } => says || *written < out.len(),
            Codec::V2(connection) => {
                !connection.outbox.is_empty() || says && connection.session().is_some()
            }
        }
    }
}
