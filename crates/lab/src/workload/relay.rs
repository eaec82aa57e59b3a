//! Messages of many peers through a proxy to a node and back. One thread acts as all peers and the
//! node, and checks every byte that arrives.

use crate::rivals::proxy::NETWORK;
use crate::traffic::Profile;
use mio::event::Event;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use packetlane::bip324::{Connection, HandshakeConfig};
use packetlane::bitcoin::message::MessageType;
use packetlane::bitcoin::v1;
use packetlane::{Engine, OpenBatch, SealBatch};
use rand::rngs::StdRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rustix::net::{AddressFamily, SocketType};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

/// Number of messages that each end sends cyclically, from different starting points.
const POOL: usize = 4096;

/// Bytes per read.
const READ_LEN: usize = 64 * 1024;

/// Timeout for messages to arrive.
const LIMIT: Duration = Duration::from_secs(20);

/// A message in the framings that are compared.
struct Message {
    message_type: MessageType,
    payload: Vec<u8>,
    /// Framed for v1.
    wire: Vec<u8>,
    /// Framed as the contents of a v2 packet.
    contents: Vec<u8>,
}

impl Message {
    fn new(message_type: MessageType, payload: Vec<u8>) -> Self {
        let (mut wire, mut contents) = (Vec::new(), Vec::new());
        v1::Message::new(message_type, &payload).encode(NETWORK.magic(), &mut wire);
        message_type.encode(&payload, &mut contents);
        Self {
            message_type,
            payload,
            wire,
            contents,
        }
    }
}

/// Messages whose types and lengths follow a recorded node.
fn pool(profile: &Profile) -> Vec<Message> {
    let rows = profile.messages_per_day();
    let all: f64 = rows.iter().map(|(_, per_day, _)| per_day).sum();
    let mut rng = StdRng::seed_from_u64(0x9a7e);
    let draw = |_| {
        let mut left = rng.random_range(0.0..all);
        let (message_type, _, mean) = rows
            .iter()
            .find(|(_, per_day, _)| {
                left -= per_day;
                left < 0.0
            })
            .unwrap_or(&rows[0]);
        let exponential = -mean * (1.0 - rng.random_range(0.0..1.0_f64)).ln();
        let len = match message_type.name() {
            "ping" | "pong" | "feefilter" => *mean,
            _ => exponential,
        };
        let mut payload = vec![0; (len as usize).min(v1::Message::MAX_PAYLOAD_LEN)];
        rng.fill_bytes(&mut payload);
        Message::new(*message_type, payload)
    };
    (0..POOL).map(draw).collect()
}

/// Messages per second and peer of the recorded node, in both directions. It had ten peers.
pub(crate) fn rate_of_a_peer(profile: &Profile) -> f64 {
    let rows = profile.messages_per_day();
    let per_day: f64 = rows.iter().map(|(_, per_day, _)| per_day).sum();
    per_day / 86_400.0 / 10.0
}

/// The transport of the peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peers {
    V1,
    V2,
}

/// How much is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// Each end keeps this many messages in flight: full load for the proxy.
    Flat(usize),
    /// This many messages per second over all ends.
    Rate(f64),
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Messages that arrived, in both directions.
    pub(crate) messages: u64,
    /// For each, the seconds from when it was due until it was read.
    pub(crate) latencies: Vec<f64>,
}

/// The value, in microseconds, that a `share` of all latencies is below. 0 if there are none.
pub(crate) fn quantile(seconds: &mut [f64], share: f64) -> f64 {
    seconds.sort_by(f64::total_cmp);
    let place = (seconds.len() as f64 * share) as usize;
    let value = seconds.get(place).or(seconds.last());
    value.map_or(0.0, |seconds| seconds * 1e6)
}

pub(crate) enum Transport {
    V1,
    V2(Box<Connection>),
}

/// One end of a connection through the proxy.
struct End {
    socket: TcpStream,
    transport: Transport,
    /// V1: bytes queued for the socket.
    unsent: VecDeque<u8>,
    /// V1: an incomplete message.
    partial: Vec<u8>,
    /// The next message to send.
    next: usize,
    /// The next message to expect.
    expected: usize,
    /// When each message was due that the other end has not read yet.
    due: VecDeque<Instant>,
    /// Messages to send in this turn.
    to_send: usize,
    writable: bool,
    is_ready: bool,
}

/// Connects and sends 64 random bytes, for which a proxy computes keys.
pub(crate) fn stranger(to: SocketAddr, rng: &mut StdRng) -> std::net::TcpStream {
    let mut stranger = connect_from(Ipv4Addr::new(127, 1, 2, 1), to);
    let mut bytes = [0; 64];
    rng.fill_bytes(&mut bytes);
    stranger.write_all(&bytes).expect("the proxy reads");
    stranger
}

/// Connections at a rate that send 64 random bytes and end.
pub(crate) struct Strangers {
    to: SocketAddr,
    /// Where this thread accepts them itself.
    listener: Option<TcpListener>,
    every: Duration,
    /// When the next one connects: from the first step on.
    due: Option<Instant>,
    open: VecDeque<std::net::TcpStream>,
    rng: StdRng,
}

impl Strangers {
    /// So many that one has time to get its answer.
    const OPEN: usize = 16;

    /// Strangers of a proxy.
    pub(crate) fn of(to: SocketAddr, per_second: f64) -> Self {
        Self {
            to,
            listener: None,
            every: Duration::from_secs_f64(1.0 / per_second),
            due: None,
            open: VecDeque::new(),
            rng: StdRng::seed_from_u64(64),
        }
    }

    /// The same work for this thread, but none for a proxy.
    pub(crate) fn elsewhere(per_second: f64) -> Self {
        let listener = node();
        let address = listener.local_addr().expect("a listener");
        Self {
            listener: Some(listener),
            ..Self::of(address, per_second)
        }
    }

    /// Connects those that are due, and ends as many.
    fn step(&mut self, now: Instant) {
        let due = self.due.get_or_insert(now);
        while *due <= now {
            let stranger = stranger(self.to, &mut self.rng);
            if let Some(listener) = &self.listener {
                listener.accept().expect("the stranger has connected");
            }
            self.open.push_back(stranger);
            if self.open.len() > Self::OPEN {
                self.open.pop_front();
            }
            *due += self.every;
        }
    }
}

/// Peers and node around a proxy.
pub(crate) struct Relay {
    /// Who else connects.
    pub(crate) strangers: Option<Strangers>,
    engine: Engine,
    poll: Poll,
    events: Events,
    /// The ends of peer n and of its connection at the node are 2n and 2n + 1.
    ends: Vec<End>,
    pool: Vec<Message>,
    /// Ends with something to read.
    ready: Vec<usize>,
    incoming: OpenBatch,
    outgoing: SealBatch,
    rng: StdRng,
}

/// Starts proxies on one core and moves this thread with its load to another, until the guard is
/// dropped. Otherwise the kernel makes a proxy wait for milliseconds behind the thread that woke
/// it. Does nothing with a single core.
pub(crate) fn on_separate_cores<T>(start: impl FnOnce() -> T) -> (T, SeparateCores) {
    let all = sched_getaffinity(None).ok();
    let cores: Vec<usize> = all.map_or(Vec::new(), |all| {
        (0..CpuSet::MAX_CPU)
            .filter(|core| all.is_set(*core))
            .take(2)
            .collect()
    });
    let go_to = |core: Option<&usize>| {
        let (Some(core), 2) = (core, cores.len()) else {
            return;
        };
        let mut one = CpuSet::new();
        one.set(*core);
        // Without permission, the placement stays as it was.
        let _ = sched_setaffinity(None, &one);
    };
    // New threads inherit the core of the thread that starts them.
    go_to(cores.first());
    let started = start();
    go_to(cores.last());
    (started, SeparateCores(all))
}

/// See [`on_separate_cores`].
pub(crate) struct SeparateCores(Option<CpuSet>);

impl Drop for SeparateCores {
    fn drop(&mut self) {
        if let Some(all) = &self.0 {
            let _ = sched_setaffinity(None, all);
        }
    }
}

/// The node's listener.
pub(crate) fn node() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener on the loopback device")
}

impl Relay {
    /// Connects peers to `proxy`, which connects to `node`.
    pub(crate) fn new(
        engine: Engine,
        profile: &Profile,
        (peers, speak): (usize, Peers),
        proxy: SocketAddr,
        node: &TcpListener,
    ) -> Self {
        let poll = Poll::new().expect("an event queue");
        let pool = pool(profile);
        let mut ends = Vec::with_capacity(2 * peers);
        for number in 0..peers {
            let from = (Ipv4Addr::LOCALHOST, proxy);
            let pair = connect(engine, speak, from, node, number);
            for (socket, transport) in pair {
                socket.set_nodelay(true).expect("a socket");
                socket.set_nonblocking(true).expect("a socket");
                let mut socket = TcpStream::from_std(socket);
                let both = Interest::READABLE | Interest::WRITABLE;
                let registry = poll.registry();
                registry
                    .register(&mut socket, Token(ends.len()), both)
                    .expect("an event queue");
                // The two directions start at different messages.
                let place = 7 * ends.len() % POOL;
                ends.push(End {
                    socket,
                    transport,
                    unsent: VecDeque::new(),
                    partial: Vec::new(),
                    next: place,
                    expected: (7 * (ends.len() ^ 1)) % POOL,
                    due: VecDeque::new(),
                    to_send: 0,
                    writable: true,
                    is_ready: false,
                });
            }
        }
        Self {
            strangers: None,
            engine,
            poll,
            events: Events::with_capacity(1024),
            ends,
            pool,
            ready: Vec::new(),
            incoming: OpenBatch::new(),
            outgoing: SealBatch::new(),
            rng: StdRng::seed_from_u64(1),
        }
    }

    /// Sends for this time, and waits until everything has arrived.
    ///
    /// # Panics
    ///
    /// If a message arrives that was not sent.
    pub(crate) fn run(&mut self, load: Load, time: Duration) -> Outcome {
        let mut outcome = Outcome::default();
        let mut sending = Vec::new();
        let mut on_their_way = 0;
        let start = Instant::now();
        if let Load::Flat(window) = load {
            for (number, end) in self.ends.iter_mut().enumerate() {
                end.to_send = window;
                end.due.extend(std::iter::repeat_n(start, window));
                sending.push(number);
            }
            on_their_way += window * self.ends.len();
        }
        let mut rate_due = start;
        loop {
            let now = Instant::now();
            let goes_on = now - start < time;
            if let (Load::Rate(rate), true) = (load, goes_on) {
                while rate_due <= now {
                    let number = self.rng.random_range(0..self.ends.len());
                    self.ends[number].to_send += 1;
                    self.ends[number].due.push_back(rate_due);
                    sending.push(number);
                    on_their_way += 1;
                    let gap = -(1.0 - self.rng.random_range(0.0..1.0_f64)).ln() / rate;
                    rate_due += Duration::from_secs_f64(gap);
                }
            }
            if let Some(strangers) = &mut self.strangers {
                strangers.step(now);
            }
            self.send(&mut sending);
            if on_their_way == 0 && !goes_on {
                return outcome;
            }
            assert!(now - start < time + LIMIT, "messages do not come through");
            // At a fixed rate the next message is due soon: spin, as this thread has its own core.
            let wait = match (load, self.ready.is_empty()) {
                (Load::Flat(_), true) => Some(LIMIT),
                (Load::Rate(_), true) if !goes_on => Some(LIMIT),
                _ => Some(Duration::ZERO),
            };
            match self.poll.poll(&mut self.events, wait) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => result.expect("an event queue"),
            }
            for event in &self.events {
                mark(&mut self.ends, &mut self.ready, &mut sending, event);
            }
            let received = self.receive(&mut outcome.latencies);
            on_their_way -= received.len();
            outcome.messages += received.len() as u64;
            if matches!(load, Load::Flat(_)) && goes_on {
                let now = Instant::now();
                on_their_way += received.len();
                for number in received {
                    // The sender of this message sends the next one.
                    let end = &mut self.ends[number ^ 1];
                    end.to_send += 1;
                    end.due.push_back(now);
                    sending.push(number ^ 1);
                }
            }
        }
    }

    /// Sends the due messages. Ends may be listed more than once.
    fn send(&mut self, sending: &mut Vec<usize>) {
        for &number in &*sending {
            let end = &mut self.ends[number];
            for _ in 0..std::mem::take(&mut end.to_send) {
                let message = &self.pool[end.next];
                end.next = (end.next + 1) % POOL;
                match &mut end.transport {
                    Transport::V1 => end.unsent.extend(&message.wire),
                    Transport::V2(connection) => connection
                        .push_message(&mut self.outgoing, message.message_type, &message.payload)
                        .expect("a message"),
                }
            }
        }
        self.engine.seal(&mut self.outgoing);
        for number in sending.drain(..) {
            write(&mut self.ends[number], &self.outgoing);
        }
        self.outgoing.clear();
    }

    /// Reads everything available. Returns the receiving end of each message.
    fn receive(&mut self, latencies: &mut Vec<f64>) -> Vec<usize> {
        let Self { ends, pool, .. } = self;
        let mut received = Vec::new();
        let ready = std::mem::take(&mut self.ready);
        for &number in &ready {
            let end = &mut ends[number];
            end.is_ready = false;
            let room = self.incoming.room(READ_LEN);
            let len = match end.socket.read(room) {
                Ok(0) => panic!("the proxy has closed a connection"),
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Err(error) => panic!("the proxy's connection: {error}"),
            };
            if len == READ_LEN {
                end.is_ready = true;
                self.ready.push(number);
            }
            if let Transport::V2(connection) = &mut end.transport {
                connection
                    .receive(&mut self.incoming, len)
                    .expect("packets");
                continue;
            }
            end.partial.extend_from_slice(&room[..len]);
            let mut taken = 0;
            loop {
                let wire = &pool[end.expected].wire;
                let Some(bytes) = end.partial[taken..].get(..wire.len()) else {
                    break;
                };
                assert!(bytes == wire, "a message that was not sent");
                taken += wire.len();
                end.expected = (end.expected + 1) % POOL;
                received.push(number);
            }
            end.partial.drain(..taken);
        }
        self.engine.open(&mut self.incoming);
        for &number in &ready {
            let end = &mut ends[number];
            if let Transport::V2(connection) = &mut end.transport {
                while let Some(contents) = connection.next_packet(&self.incoming).expect("packets")
                {
                    let expected = &pool[end.expected].contents;
                    assert!(contents == expected, "a message that was not sent");
                    end.expected = (end.expected + 1) % POOL;
                    received.push(number);
                }
            }
        }
        self.incoming.clear();
        let now = Instant::now();
        for number in &received {
            let due = ends[number ^ 1].due.pop_front();
            let due = due.expect("a message that was sent");
            latencies.push(now.saturating_duration_since(due).as_secs_f64());
        }
        received
    }
}

fn mark(ends: &mut [End], ready: &mut Vec<usize>, sending: &mut Vec<usize>, event: &Event) {
    let number = event.token().0;
    let end = &mut ends[number];
    if event.is_writable() && !std::mem::replace(&mut end.writable, true) {
        sending.push(number);
    }
    if event.is_readable() && !std::mem::replace(&mut end.is_ready, true) {
        ready.push(number);
    }
}

fn write(end: &mut End, outgoing: &SealBatch) {
    let socket = &mut end.socket;
    match &mut end.transport {
        Transport::V2(connection) => {
            let write = |pieces: &[IoSlice<'_>]| socket.write_vectored(pieces);
            connection.outbox.write(outgoing, write).expect("a socket");
            end.writable = connection.outbox.is_empty();
        }
        Transport::V1 => {
            while !end.unsent.is_empty() {
                let (first, second) = end.unsent.as_slices();
                match socket.write_vectored(&[IoSlice::new(first), IoSlice::new(second)]) {
                    Ok(len) => drop(end.unsent.drain(..len)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        end.writable = false;
                        return;
                    }
                    Err(error) => panic!("the proxy's connection: {error}"),
                }
            }
        }
    }
}

/// Connects from a loopback address, which has 28,000 ports for each address that it connects to.
pub(crate) fn connect_from(from: Ipv4Addr, to: SocketAddr) -> std::net::TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None);
    let socket = socket.expect("a socket");
    rustix::net::bind(&socket, &SocketAddr::from((from, 0))).expect("a loopback address");
    rustix::net::connect(&socket, &to).expect("the proxy listens");
    std::net::TcpStream::from(socket)
}

/// A peer's first message, with its number: only then the proxy connects to the node.
pub(crate) struct Hello(Message);

impl Hello {
    pub(crate) fn new(number: usize) -> Self {
        let number = (number as u64).to_le_bytes().to_vec();
        let payload = [number, vec![0; 82]].concat();
        Self(Message::new(MessageType::literal("version"), payload))
    }

    pub(crate) fn push(&self, peer: &mut Connection, outgoing: &mut SealBatch) {
        let Self(message) = self;
        peer.push_message(outgoing, message.message_type, &message.payload)
            .expect("a message");
    }

    /// Accepts the proxy's connection to the node, and reads the message.
    pub(crate) fn accept(&self, node: &TcpListener) -> std::net::TcpStream {
        let (mut at_node, _) = node.accept().expect("the proxy connects");
        at_node.set_read_timeout(Some(LIMIT)).expect("a socket");
        let mut wire = vec![0; self.0.wire.len()];
        at_node.read_exact(&mut wire).expect("the first message");
        assert!(wire == self.0.wire, "a message that was not sent");
        at_node
    }
}

/// Connects a peer from an address and sends its number.
pub(crate) fn connect(
    engine: Engine,
    speak: Peers,
    (from, proxy): (Ipv4Addr, SocketAddr),
    node: &TcpListener,
    number: usize,
) -> [(std::net::TcpStream, Transport); 2] {
    let mut peer = connect_from(from, proxy);
    peer.set_nodelay(true).expect("a socket");
    peer.set_read_timeout(Some(LIMIT)).expect("a socket");
    let hello = Hello::new(number);
    let transport = match speak {
        Peers::V1 => {
            peer.write_all(&hello.0.wire).expect("the proxy reads");
            Transport::V1
        }
        Peers::V2 => {
            let config = HandshakeConfig::random(NETWORK.magic(), engine).expect("random numbers");
            let mut connection = Connection::initiator(config).expect("a handshake");
            let (mut incoming, mut outgoing) = (OpenBatch::new(), SealBatch::new());
            loop {
                if connection.session().is_some() {
                    hello.push(&mut connection, &mut outgoing);
                }
                engine.seal(&mut outgoing);
                let write = |pieces: &[IoSlice<'_>]| peer.write_vectored(pieces);
                let outbox = &mut connection.outbox;
                outbox.write(&outgoing, write).expect("the proxy reads");
                if connection.session().is_some() {
                    break;
                }
                let len = peer.read(incoming.room(4096)).expect("the proxy answers");
                assert!(len > 0, "the proxy has closed: {}", connection.closed());
                connection.receive(&mut incoming, len).expect("a handshake");
                engine.open(&mut incoming);
                let first = connection.next_packet(&incoming).expect("packets");
                assert!(first.is_none(), "the node has said nothing yet");
                incoming.clear();
            }
            Transport::V2(Box::new(connection))
        }
    };
    [(peer, transport), (hello.accept(node), Transport::V1)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::event_loop;
    use crate::rivals::proxy::{Proxy, Strategy};

    /// Each proxy forwards every message, with both kinds of load.
    #[test]
    fn proxies_carry_all() {
        let engine = Engine::detect().unwrap();
        let profile = Profile::node("relay");
        let nodes = [(); 5].map(|()| node());
        let at = |place: usize| nodes[place].local_addr().unwrap();
        let proxies = [
            Proxy::ours(engine, Strategy::Batches, Duration::ZERO, at(0)),
            Proxy::ours(
                engine,
                Strategy::OneAtATime,
                Duration::from_millis(1),
                at(1),
            ),
            Proxy::tokio(at(2)),
            event_loop::proxy(event_loop::bip324_crate, at(3)),
            event_loop::proxy(event_loop::ours_over_ring, at(4)),
        ];
        for (proxy, node) in proxies.iter().zip(&nodes) {
            let before = proxy.turns();
            let mut relay = Relay::new(engine, &profile, (5, Peers::V2), proxy.address(), node);
            for load in [Load::Flat(1), Load::Flat(40), Load::Rate(5000.0)] {
                let outcome = relay.run(load, Duration::from_millis(50));
                assert!(outcome.messages > 50);
                assert_eq!(outcome.latencies.len() as u64, outcome.messages);
            }
            std::thread::sleep(Duration::from_millis(10));
            assert!(proxy.turns().cpu > before.cpu);
        }
        let node = node();
        let address = node.local_addr().unwrap();
        let mut relay = Relay::new(engine, &profile, (5, Peers::V1), address, &node);
        let outcome = relay.run(Load::Rate(5000.0), Duration::from_millis(50));
        assert!(outcome.messages > 50);
    }
}
