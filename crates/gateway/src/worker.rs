//! One thread's event loop over all of its links. Each turn reads the peers, opens all packets in
//! one batch, translates the messages and writes them to the nodes; then it reads the nodes, seals
//! all packets in one batch and writes them to the peers.

use crate::account::{Account, Traffic};
use crate::address::{Secret, canonical, loopback};
use crate::budget::{Budget, Direction, Memory, Refusal};
use crate::dial::{KnownV1, LookupResult, Resolver, connect, is_connected, lock};
use crate::link::{
    Close, Codec, Inbox, Link, MAX_UNREAD, READ_LEN, Retry, Scratch, Side, Stage, Transport,
};
use crate::listener::{BACKLOG, Listener, ListenerKind, ReservedFd};
use crate::ring::{Ring, RingEvent};
use crate::settings::{Io, Limits, Settings};
use crate::socks::{self, SocksError, SocksRequest, Target};
use crate::translate::Frames;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token, Waker};
use packetlane::bip324::{Connection, HandshakeConfig, HandshakeError};
use packetlane::bitcoin::v1;
use packetlane::sha256d::Hasher;
use packetlane::{OpenBatch, SealBatch};
use rustix::time::{ClockId, clock_gettime};
use slab::Slab;
use socket2::SockRef;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(crate) const WAKER: Token = Token(usize::MAX);

/// The first token of the listeners.
const LISTENERS: usize = usize::MAX - 4;

/// How often the timeouts of all links are checked.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum links per turn whose timeouts are checked.
const MAX_SWEPT: usize = 256;

/// How long the listeners stay open after [`Listener::stop_accepting`], so that TCP handshakes
/// already under way can finish: longer than the longest round trip on Earth. A client whose SYN
/// was dropped retries after one second; by then only the new gateway must be listening.
const ACCEPT_GRACE: Duration = Duration::from_millis(500);

/// Maximum connections accepted per turn and listener. The rest wait, so that accepting does not
/// delay established peers.
const MAX_ACCEPTED: usize = 8;

/// Maximum links per turn that are still in a stage before [`Stage::Relaying`]. The key exchange is
/// the most expensive step (about 100 us), and it delays established peers.
const MAX_SETUPS: usize = 2;

/// Cost of a system call, expressed as the number of bytes that cost as much to read, encrypt and
/// write. Used to split a turn's CPU time among its links.
const SYSCALL_COST: u64 = 4096;

/// A snapshot of a peer.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Unique among all peers of this gateway, past and present. 0 for a connection that was
    /// refused.
    pub id: u64,
    /// The address that connected, or the target that the node asked for.
    pub address: Target,
    /// Which side opened the connection.
    pub direction: Direction,
    /// The transport that the peer speaks.
    pub transport: Transport,
    /// The BIP324 session id of a v2 peer.
    pub session_id: Option<[u8; 32]>,
    /// Decoy packets received from a v2 peer.
    pub decoys: u64,
    /// How long the connection has existed.
    pub age: Duration,
    /// Traffic and CPU time.
    pub account: Account,
}

/// Something that happened to a peer.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The handshake is done; messages are relayed from now on.
    Connected,
    /// The peer did not answer over v2 (it closed, answered in v1, or stayed silent) and is retried
    /// over v1.
    FellBack,
    /// A limit refused the connection.
    Refused(Refusal),
    /// The connection has ended.
    Closed(Close),
}

/// Cumulative statistics of one thread: batch sizes, traffic and cost. No value ever decreases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// Histogram of opened batches: element n counts the batches of n packets. Empty batches are
    /// not counted.
    pub opened: Vec<u64>,
    /// The same histogram for sealed batches.
    pub sealed: Vec<u64>,
    /// System calls that wait, read or write.
    pub calls: u64,
    /// CPU time of the thread.
    pub cpu: Duration,
    /// The part of `cpu` that was spent in the kernel.
    pub kernel: Duration,
    /// Time spent opening and sealing batches. Excludes packets that are opened on receipt or
    /// sealed when they are added: those of small turns, and long packets.
    pub encryption: Duration,
    /// Time spent framing messages for v1; most of it computes checksums.
    pub framing: Duration,
    /// Traffic from all peers, including those that have left. The types that nodes send are
    /// present from the start; all others are counted together.
    pub received: Traffic,
    /// Traffic to all peers.
    pub sent: Traffic,
}

impl Turns {
    /// Adds a link's traffic.
    fn add(&mut self, link: &Link) {
        self.received.add(&link.account.received);
        self.received.ignored += link.ignored();
        self.sent.add(&link.account.sent);
    }

    fn count(batches: &mut Vec<u64>, packets: usize) {
        if packets > 0 {
            if batches.len() <= packets {
                batches.resize(packets + 1, 0);
            }
            batches[packets] += 1;
        }
    }
}

/// A request to a thread; sent together with a wake-up.
pub(crate) enum Request {
    /// Report the peers.
    Peers(Sender<Vec<Peer>>),
    /// Publish the statistics, then reply.
    Turns(Sender<()>),
    /// Use other settings. The listeners stay.
    Settings(Box<Settings>),
    /// Stop accepting, reply, and end with the last connection.
    Drain(Sender<()>),
    /// End now.
    Stop,
}

/// Receives every event of every peer.
pub(crate) type EventSink = Box<dyn FnMut(&Peer, &Event) + Send>;

/// One thread and its links.
pub(crate) struct Worker {
    settings: Settings,
    secret: Secret,
    known: Arc<Mutex<KnownV1>>,
    hasher: Hasher,
    poll: Poll,
    /// `None`: sockets are read and written one by one.
    ring: Option<Ring>,
    /// Counter for the ring's user numbers.
    next_user: u64,
    listeners: Vec<Listener>,
    /// When the listeners stopped accepting.
    stopped_accepting: Option<Instant>,
    reserved_fd: Arc<Mutex<ReservedFd>>,
    resolver: Arc<Resolver>,
    /// Results of name lookups.
    lookups: (Sender<LinkLookup>, Receiver<LinkLookup>),
    waker: Arc<Waker>,
    requests: Receiver<Request>,
    links: Slab<Link>,
    /// Shared by all threads.
    budget: Arc<Budget>,
    /// Memory held by this thread's links.
    memory: Memory,
    /// The next peer id. Each thread counts in steps of the number of threads.
    next_id: u64,
    /// The next link whose timeouts are checked; past the end when the sweep is done.
    next_swept: usize,
    /// Links that may have something to read or write.
    ready: Vec<usize>,
    incoming: OpenBatch,
    outgoing: SealBatch,
    scratch: Box<Scratch>,
    /// Traffic in here is only that of closed links.
    turns: Turns,
    /// The statistics as last published.
    published: Arc<Mutex<Turns>>,
    event_sink: EventSink,
}

/// A link's id and number, and the result of the lookup it asked for.
type LinkLookup = (u64, usize, LookupResult);

/// The tokens of a link's two sockets: the peer's and the node's.
fn tokens(link: usize) -> [Token; 2] {
    [Token(2 * link), Token(2 * link + 1)]
}

/// Whether the event loop continues.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunState {
    Running,
    Draining,
    Stopped,
}

/// Raises limits of 0 to 1: with a limit of 0 no link could make progress.
fn checked(mut settings: Settings) -> Settings {
    let Limits { batch, queued, .. } = &mut settings.limits;
    (*batch, *queued) = ((*batch).max(1), (*queued).max(1));
    settings
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// The thread's kernel time, in clock ticks as the kernel counts it; zero if /proc is not
/// available.
fn kernel_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
    // The thread's name comes first, in parentheses, and may contain spaces.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = fields
        .split_whitespace()
        .nth(12)
        .and_then(|field| field.parse().ok())
        .unwrap_or(0);
    Duration::from_secs(ticks) / rustix::param::clock_ticks_per_second() as u32
}

impl Worker {
    #[expect(clippy::too_many_arguments, reason = "it is made in one place")]
    pub(crate) fn new(
        settings: Settings,
        number: u64,
        secret: Secret,
        known: Arc<Mutex<KnownV1>>,
        reserved_fd: Arc<Mutex<ReservedFd>>,
        budget: Arc<Budget>,
        published: Arc<Mutex<Turns>>,
        resolver: Arc<Resolver>,
        poll: Poll,
        waker: Arc<Waker>,
        mut listeners: Vec<Listener>,
        requests: Receiver<Request>,
        event_sink: EventSink,
    ) -> io::Result<Self> {
        for (index, listener) in listeners.iter_mut().enumerate() {
            let token = Token(LISTENERS + index);
            poll.registry()
                .register(&mut listener.socket, token, Interest::READABLE)?;
        }
        let turns = Turns {
            received: Traffic::of_known_types(),
            sent: Traffic::of_known_types(),
            ..Turns::default()
        };
        lock(&published).clone_from(&turns);
        Ok(Self {
            settings: checked(settings),
            secret,
            known,
            hasher: Hasher::best(),
            poll,
            ring: None,
            next_user: 0,
            listeners,
            stopped_accepting: None,
            reserved_fd,
            resolver,
            lookups: channel(),
            waker,
            requests,
            links: Slab::new(),
            memory: Memory::new(Arc::clone(&budget)),
            budget,
            next_id: 1 + number,
            next_swept: 0,
            ready: Vec::new(),
            incoming: OpenBatch::new(),
            outgoing: SealBatch::new(),
            scratch: Box::new([0; READ_LEN]),
            turns,
            published,
            event_sink,
        })
    }

    /// Runs until it is asked to stop, or until the last connection has ended after a drain.
    pub(crate) fn run(mut self) -> io::Result<()> {
        // Created here because only the thread that creates a ring may use it.
        self.ring = match self.settings.io {
            Io::Epoll => None,
            Io::Best => Ring::new(self.poll.as_raw_fd()).ok(),
            Io::IoUring => Some(Ring::new(self.poll.as_raw_fd())?),
        };
        let mut events = Events::with_capacity(1024);
        let mut last_sweep = Instant::now();
        let mut cpu = cpu_time();
        let mut state = RunState::Running;
        while state == RunState::Running
            || state == RunState::Draining && !(self.links.is_empty() && self.listeners.is_empty())
        {
            let may_wait = self.ready.is_empty()
                && !self.listeners.iter().any(|listener| listener.has_more)
                && self.next_swept >= self.links.capacity();
            let wait = match (may_wait, self.stopped_accepting) {
                (true, None) => SWEEP_INTERVAL,
                (true, Some(since)) => ACCEPT_GRACE.saturating_sub(since.elapsed()),
                (false, _) => Duration::ZERO,
            };
            if self.wait(wait)? {
                // The ring has waited already.
                let wait = match self.ring {
                    Some(_) => Duration::ZERO,
                    None => wait,
                };
                self.turns.calls += 1;
                match self.poll.poll(&mut events, Some(wait)) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    result => result?,
                }
                for event in &events {
                    match event.token() {
                        WAKER => {}
                        Token(token) if token >= LISTENERS => {
                            if let Some(listener) = self.listeners.get_mut(token - LISTENERS) {
                                listener.has_more = true;
                            }
                        }
                        Token(token) => self.mark(token, event),
                    }
                }
            }
            self.finish_lookups();
            self.accept();
            let in_turn = self.turn();
            let now = cpu_time();
            self.share(&in_turn, now.saturating_sub(cpu));
            cpu = now;
            state = self.handle_requests(state)?;
            if (self.stopped_accepting).is_some_and(|since| since.elapsed() >= ACCEPT_GRACE) {
                self.close_listeners();
            }
            let now = Instant::now();
            if now.saturating_duration_since(last_sweep) >= SWEEP_INTERVAL {
                last_sweep = now;
                self.next_swept = 0;
                // If accepting failed before, no further event reports the waiting connections.
                for listener in &mut self.listeners {
                    listener.has_more = true;
                }
            }
            self.sweep(now);
            if !self.settings.turn.is_zero() {
                std::thread::sleep(self.settings.turn);
            }
        }
        let left: Vec<_> = self.links.iter().map(|(number, _)| number).collect();
        for number in left {
            self.end(number, Close::Stopped);
        }
        self.publish();
        Ok(())
    }

    /// Publishes the statistics.
    fn publish(&mut self) {
        self.turns.cpu = cpu_time();
        // `kernel_time` is 0 if no file can be opened.
        self.turns.kernel = self.turns.kernel.max(kernel_time());
        let mut turns = self.turns.clone();
        for (_, link) in &self.links {
            turns.add(link);
        }
        *lock(&self.published) = turns;
    }

    /// Waits on the ring, if there is one. Returns whether the event queue must be polled.
    fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        let Some(ring) = &mut self.ring else {
            return Ok(true);
        };
        self.turns.calls += 1;
        let mut has_events = false;
        let mut over_limit = Vec::new();
        let (links, ready) = (&mut self.links, &mut self.ready);
        ring.wait(timeout, |event| match event {
            RingEvent::PollReady => has_events = true,
            RingEvent::Received { user, bytes, more } => {
                let token = (user & u64::from(u32::MAX)) as usize;
                let Some(link) = links.get_mut(token / 2) else {
                    return;
                };
                let side = match token % 2 {
                    0 => link.peer.as_mut(),
                    _ => link.node.as_mut(),
                };
                // The event may belong to an earlier socket with the same token.
                let is_its = |inbox: &Inbox| inbox.user == user;
                if let Some(side) = side
                    && side.inbox.as_ref().is_some_and(is_its)
                {
                    if side.received(bytes, more) > MAX_UNREAD && more {
                        over_limit.push(user);
                    }
                    if !std::mem::replace(&mut link.is_ready, true) {
                        ready.push(token / 2);
                    }
                }
            }
        })?;
        over_limit.sort_unstable();
        over_limit.dedup();
        for user in over_limit {
            ring.cancel(user);
        }
        Ok(has_events)
    }

    /// Registers a socket with the event queue, and prepares its inbox if there is a ring.
    fn register(&mut self, side: &mut Side, token: Token) -> io::Result<()> {
        let interest = match &self.ring {
            Some(_) => {
                // Unique, because earlier sockets had the same token.
                self.next_user = (self.next_user + 1) % (1 << 30);
                side.inbox = Some(Inbox::new(self.next_user << 32 | token.0 as u64));
                Interest::WRITABLE
            }
            None => Interest::READABLE | Interest::WRITABLE,
        };
        let registry = self.poll.registry();
        registry.register(&mut side.socket, token, interest)
    }

    /// Asks the ring to receive on a link's sockets, as long as the link reads what arrives.
    fn request_receives(&mut self, number: usize) {
        let (Some(ring), Some(link)) = (&mut self.ring, self.links.get_mut(number)) else {
            return;
        };
        // Before messages are relayed, one buffer at a time is enough. Many connections wait in
        // this stage, and each could otherwise fill its inbox.
        let once = !link.is_relaying();
        let max_unread = if once { 0 } else { READ_LEN };
        for side in [&mut link.peer, &mut link.node].into_iter().flatten() {
            // A socket becomes writable when it has connected.
            let is_open = side.writable;
            let socket = side.socket.as_raw_fd();
            let Some(inbox) = &mut side.inbox else {
                continue;
            };
            if is_open && inbox.can_request(max_unread) {
                inbox.is_requested = true;
                ring.receive(inbox.user, socket, once);
            }
        }
    }

    /// Sends what is queued on both sides of these links, in one system call.
    fn send(&mut self, numbers: &[usize], closes: &mut Vec<(usize, Close)>) {
        let Some(ring) = &mut self.ring else {
            return;
        };
        let (mut of, mut sends) = (Vec::new(), Vec::new());
        for &number in numbers {
            let Some(link) = self.links.get(number).filter(|link| link.is_batched()) else {
                continue;
            };
            if let Some(send) = link.pending_for_node() {
                of.push((number, true));
                sends.push(send);
            }
            if let Some(send) = link.pending_for_peer(&self.outgoing) {
                of.push((number, false));
                sends.push(send);
            }
        }
        if sends.is_empty() {
            return;
        }
        let results = ring.send_all(&sends);
        self.turns.calls += 1;
        for ((number, to_node), result) in of.into_iter().zip(results) {
            let link = &mut self.links[number];
            let took = match to_node {
                true => link.sent_to_node(result),
                false => link.sent_to_peer(result),
            };
            if let Err(close) = took {
                closes.push((number, close));
            }
        }
    }

    /// Handles the requests of the gateway.
    fn handle_requests(&mut self, mut state: RunState) -> io::Result<RunState> {
        while let Ok(request) = self.requests.try_recv() {
            match request {
                Request::Peers(reply) => {
                    let peers = self.links.iter().map(|(_, link)| peer(link));
                    // Fails only if nobody waits for the answer any more.
                    let _ = reply.send(peers.collect());
                }
                Request::Turns(reply) => {
                    self.publish();
                    let _ = reply.send(());
                }
                Request::Settings(settings) => self.settings = checked(*settings),
                Request::Drain(reply) => {
                    // A socket that was passed to us stays open for its owner: the connections in
                    // its queue wait.
                    let mut passed = self.listeners.extract_if(.., |listener| listener.is_passed);
                    passed.try_for_each(|mut listener| {
                        // The socket stays open, so the event queue would keep reporting it.
                        self.poll.registry().deregister(&mut listener.socket)
                    })?;
                    drop(passed);
                    // Closing a listener makes the kernel reset the connections in its queue, and
                    // those still in the TCP handshake. So it first stops accepting, and is closed
                    // later.
                    for listener in &self.listeners {
                        // If this fails, a few clients that are connecting right now may be reset.
                        let _ = listener.stop_accepting();
                    }
                    self.stopped_accepting.get_or_insert_with(Instant::now);
                    state = RunState::Draining;
                    let _ = reply.send(());
                }
                Request::Stop => return Ok(RunState::Stopped),
            }
        }
        Ok(state)
    }

    /// Records what an event says about a socket.
    fn mark(&mut self, token: usize, event: &mio::event::Event) {
        let Some(link) = self.links.get_mut(token / 2) else {
            return;
        };
        let side = match token % 2 {
            0 => link.peer.as_mut(),
            _ => link.node.as_mut(),
        };
        let Some(side) = side else {
            return;
        };
        if side.inbox.is_none() {
            side.ending |= event.is_read_closed() || event.is_error();
            side.readable |= event.is_readable() || side.ending;
        }
        side.writable |= event.is_writable() || event.is_error();
        self.wake(token / 2);
    }

    /// Schedules a link for the next turn.
    fn wake(&mut self, number: usize) {
        if let Some(link) = self.links.get_mut(number)
            && !std::mem::replace(&mut link.is_ready, true)
        {
            self.ready.push(number);
        }
    }

    /// Accepts up to [`MAX_ACCEPTED`] connections from each listener.
    fn accept(&mut self) {
        for index in 0..self.listeners.len() {
            for _ in 0..MAX_ACCEPTED {
                let listener = &mut self.listeners[index];
                if !listener.has_more {
                    break;
                }
                let kind = listener.kind;
                let accepted = lock(&self.reserved_fd).accept(&listener.socket);
                match accepted {
                    Ok((Some(socket), from)) => self.admit(kind, socket, from),
                    Ok((None, from)) => {
                        let refusal = match kind.direction() {
                            Direction::Inbound => Refusal::Files,
                            Direction::Outbound => Refusal::OutboundFiles,
                        };
                        self.turn_away(kind, from, &Event::Refused(refusal));
                    }
                    // The client has gone already.
                    Err(error)
                        if [ErrorKind::Interrupted, ErrorKind::ConnectionAborted]
                            .contains(&error.kind()) => {}
                    Err(_) => listener.has_more = false,
                }
            }
        }
    }

    /// Accepts the last connections in the queues and closes the listeners.
    fn close_listeners(&mut self) {
        self.stopped_accepting = None;
        for _ in 0..=BACKLOG as usize / MAX_ACCEPTED {
            for listener in &mut self.listeners {
                listener.has_more = true;
            }
            self.accept();
        }
        self.listeners.clear();
    }

    /// Whether connections begin with a PROXY protocol header.
    fn expects_proxy_header(&self, kind: ListenerKind) -> bool {
        let inbound = self.settings.inbound;
        matches!(kind, ListenerKind::Inbound)
            && inbound.is_some_and(|inbound| inbound.proxy_protocol)
    }

    /// Reports a connection that never became a link.
    fn turn_away(&mut self, kind: ListenerKind, from: SocketAddr, event: &Event) {
        let peer = Peer {
            id: 0,
            address: Target::Address(from),
            direction: kind.direction(),
            transport: Transport::Unknown,
            session_id: None,
            decoys: 0,
            age: Duration::ZERO,
            account: Account::default(),
        };
        (self.event_sink)(&peer, event);
    }

    fn admit(&mut self, kind: ListenerKind, socket: TcpStream, from: SocketAddr) {
        let direction = kind.direction();
        let has_address = match kind {
            // A load balancer has not told the client's address yet.
            ListenerKind::Inbound => !self.expects_proxy_header(kind),
            // Before the password is known, the client may be anybody.
            ListenerKind::Socks => self.settings.socks_user.is_some(),
            ListenerKind::Transparent => false,
        };
        let address = has_address.then_some(from.ip());
        let limits = &self.settings.limits;
        let permit = match self.budget.admit(direction, address, limits) {
            Ok(permit) => permit,
            Err(refusal) => return self.turn_away(kind, from, &Event::Refused(refusal)),
        };
        let _ = socket.set_nodelay(true);
        let id = self.next_id;
        self.next_id += self.settings.workers.get() as u64;
        let side = Side::new(socket);
        let mut link = match kind {
            ListenerKind::Inbound => {
                Link::inbound(id, permit, side, from, self.expects_proxy_header(kind))
            }
            ListenerKind::Socks => Link::outbound(id, permit, side, from, None),
            ListenerKind::Transparent => {
                let Some(to) = original_target(&side.socket) else {
                    return;
                };
                Link::outbound(id, permit, side, from, Some(Target::Address(to)))
            }
        };
        let [peer_token, node_token] = tokens(self.links.vacant_key());
        let registered = match (&mut link.peer, &mut link.node) {
            (Some(peer), _) => self.register(peer, peer_token).map_err(Close::PeerSocket),
            (None, Some(node)) => self.register(node, node_token).map_err(Close::NodeSocket),
            (None, None) => Ok(()),
        };
        let number = self.links.insert(link);
        self.wake(number);
        let started = registered.and_then(|()| match kind {
            ListenerKind::Transparent => self.dial(number),
            ListenerKind::Inbound | ListenerKind::Socks => Ok(()),
        });
        if let Err(close) = started {
            self.close(number, close);
        }
    }

    /// Continues after the PROXY protocol header told the peer's address.
    fn proxy_header_read(&mut self, number: usize) -> Result<(), Close> {
        let link = &mut self.links[number];
        let Target::Address(from) = link.address else {
            return Ok(());
        };
        match link.permit.set_address(from.ip(), &self.settings.limits) {
            Ok(()) => link.stage = Stage::AwaitingFirstByte,
            Err(refusal) => {
                if let Some(gone) = self.remove(number) {
                    let refused = Peer { id: 0, ..gone };
                    (self.event_sink)(&refused, &Event::Refused(refusal));
                }
            }
        }
        Ok(())
    }

    /// Starts the v2 handshake.
    fn start_handshake(
        &mut self,
        number: usize,
        begin: fn(HandshakeConfig) -> Result<Connection, HandshakeError>,
    ) -> Result<(), Close> {
        let magic = self.settings.network.magic();
        let config = HandshakeConfig::random(magic, self.settings.engine);
        let connection = config.and_then(begin).map_err(Close::NoHandshake)?;
        let link = &mut self.links[number];
        link.codec = Codec::V2(Box::new(connection));
        link.stage = Stage::Handshaking;
        Ok(())
    }

    /// Runs one turn and returns the links that took part. Links with more work are scheduled for
    /// the next turn.
    fn turn(&mut self) -> Vec<usize> {
        let now = Instant::now();
        let mut all = std::mem::take(&mut self.ready);
        let links = &mut self.links;
        // Deduplicate: a link may have ended, and a new link with its number may be listed twice.
        let is_waiting = |link: &mut Link| std::mem::take(&mut link.is_ready);
        all.retain(|&number| links.get_mut(number).is_some_and(is_waiting));
        // Established links first, then the node's own connections that are being set up. So any
        // number of strangers cannot delay either.
        all.sort_by_key(|&number| {
            let link = &links[number];
            (!link.is_relaying(), link.direction == Direction::Inbound)
        });
        let relaying = all.partition_point(|&number| links[number].is_relaying());
        let limit = all.len().min(relaying + MAX_SETUPS);
        for number in all.drain(limit..) {
            self.wake(number);
        }
        let mut waiting = all.as_slice();
        while !waiting.is_empty() {
            let taken = self.relay_to_node(waiting, now);
            let (numbers, later) = waiting.split_at(taken);
            waiting = later;
            let mut numbers = numbers;
            while !numbers.is_empty() {
                let taken = self.relay_to_peers(numbers);
                numbers = &numbers[taken..];
            }
        }
        self.close_largest();
        all
    }

    /// Closes this thread's largest links until their direction is within its limit or this thread
    /// is within its share.
    fn close_largest(&mut self) {
        let (limits, threads) = (self.settings.limits, self.settings.workers.get());
        for direction in [Direction::Inbound, Direction::Outbound] {
            if !self.memory.is_over(direction, &limits, threads) {
                continue;
            }
            // First release unused buffers: no link is closed for memory that holds nothing.
            for (_, link) in &mut self.links {
                link.trim();
                hold(link, &mut self.memory);
            }
            let is_its = |link: &Link| link.direction == direction;
            while self.memory.is_over(direction, &limits, threads) {
                let links = self.links.iter().filter(|(_, link)| is_its(link));
                let Some((number, _)) = links.max_by_key(|(_, link)| link.held) else {
                    break;
                };
                self.end(number, Close::Memory);
            }
        }
    }

    /// Charges the turn's CPU time to the links that took part.
    fn share(&mut self, in_turn: &[usize], cpu: Duration) {
        let links = &mut self.links;
        let mut all = 0;
        for &number in in_turn {
            if let Some(link) = links.get_mut(number) {
                if self.ring.is_none() {
                    self.turns.calls += u64::from(link.calls);
                }
                all += weight(link);
            }
        }
        for &number in in_turn {
            if let Some(link) = links.get_mut(number) {
                let share = u128::from(weight(link)) * cpu.as_nanos() / u128::from(all.max(1));
                link.account.cpu += Duration::from_nanos(share as u64);
                link.calls = 0;
                link.counted = link.account.received.bytes + link.account.sent.bytes;
            }
        }
    }

    /// Reads peers until the batch is full, and relays their messages to the node. Returns how many
    /// links it handled.
    fn relay_to_node(&mut self, waiting: &[usize], now: Instant) -> usize {
        let mut taken = 0;
        let mut closes = Vec::new();
        for &number in waiting {
            if self.incoming.bytes_used() >= self.settings.limits.batch {
                break;
            }
            taken += 1;
            if let Err(close) = self.set_up(number) {
                closes.push((number, close));
                continue;
            }
            let Some(link) = self.links.get_mut(number) else {
                continue;
            };
            let was_relaying = link.is_relaying();
            if link.is_batched()
                && let Err(close) =
                    link.read_peer(&mut self.incoming, &mut self.scratch, &self.settings, now)
            {
                closes.push((number, close));
                continue;
            }
            if link.fell_back
                && link.is_relaying()
                && link.account.received.bytes > link.received_before_fallback
            {
                link.fell_back = false;
                lock(&self.known).add(&link.address, now);
            }
            if !was_relaying && link.is_relaying() {
                self.relaying_started(number);
            }
        }
        let numbers = &waiting[..taken];
        Turns::count(&mut self.turns.opened, self.incoming.len());
        let before = Instant::now();
        self.settings.engine.open(&mut self.incoming);
        self.turns.encryption += before.elapsed();
        let mut frames = Frames::default();
        for &number in numbers {
            let limits = &self.settings.limits;
            if let Some(link) = self.links.get_mut(number)
                && let Err(close) = link.packets(number, &self.incoming, &mut frames, limits)
            {
                closes.push((number, close));
            }
        }
        let links = &mut self.links;
        let magic = self.settings.network.magic();
        let before = Instant::now();
        frames.write(&self.hasher, |number, message_type, payload, checksum| {
            let to_node = links[number].to_node.end();
            v1::Message::new(message_type, payload).encode_with_checksum(magic, checksum, to_node);
        });
        self.turns.framing += before.elapsed();
        self.incoming.clear();
        for &number in numbers {
            if let Err(close) = self.reach_node(number) {
                closes.push((number, close));
            }
        }
        self.close_all(closes);
        taken
    }

    /// Connects to the node once the peer's handshake is done, and writes what is queued for the
    /// node.
    fn reach_node(&mut self, number: usize) -> Result<(), Close> {
        let Some(link) = self.links.get_mut(number) else {
            return Ok(());
        };
        if link.node.is_none()
            && link.is_relaying()
            && let (Some(inbound), Target::Address(from)) = (self.settings.inbound, &link.address)
        {
            let node = canonical(inbound.node);
            let is_local = node.is_ipv4() && node.ip().is_loopback();
            let source = (is_local && !inbound.same_address)
                .then(|| loopback(&self.secret, from.ip()).into());
            let socket = connect(node, source);
            let mut side = Side::new(socket.map_err(Close::NodeSocket)?);
            let [_, token] = tokens(number);
            self.register(&mut side, token).map_err(Close::NodeSocket)?;
            self.links[number].node = Some(side);
        }
        match self.ring {
            // Written together with everything else, after sealing.
            Some(_) => Ok(()),
            None => self.links[number].write_node(),
        }
    }

    /// Reads the node for these links until the batch is full, and relays its messages to the
    /// peers. Returns how many links it handled.
    fn relay_to_peers(&mut self, numbers: &[usize]) -> usize {
        let mut taken = 0;
        let mut closes = Vec::new();
        for &number in numbers {
            if self.outgoing.bytes_used() >= self.settings.limits.batch {
                break;
            }
            taken += 1;
            if let Some(link) = self.links.get_mut(number)
                && link.is_batched()
                && let Err(close) =
                    link.read_node(&mut self.outgoing, &mut self.scratch, &self.settings)
            {
                closes.push((number, close));
            }
        }
        Turns::count(&mut self.turns.sealed, self.outgoing.len());
        let before = Instant::now();
        self.settings.engine.seal(&mut self.outgoing);
        self.turns.encryption += before.elapsed();
        self.send(&numbers[..taken], &mut closes);
        for &number in &numbers[..taken] {
            self.request_receives(number);
            let Some(link) = self.links.get_mut(number) else {
                continue;
            };
            // With a ring this writes only what is left over.
            let written = link.write_node().and_then(|()| match link.is_batched() {
                true => link.write_peer(&self.outgoing),
                false => Ok(()),
            });
            if let Err(close) = written {
                closes.push((number, close));
            } else if let Some(close) = link.forward_eof() {
                closes.push((number, close));
            } else if link.has_pending_work(&self.settings.limits) {
                self.wake(number);
            }
            hold(&mut self.links[number], &mut self.memory);
        }
        self.outgoing.clear();
        self.close_all(closes);
        taken
    }

    /// Advances a link that cannot relay messages yet.
    fn set_up(&mut self, number: usize) -> Result<(), Close> {
        let Some(link) = self.links.get_mut(number) else {
            return Ok(());
        };
        match &mut link.stage {
            Stage::ReadingProxyHeader(_) => match link.read_proxy_header()? {
                true => self.proxy_header_read(number),
                false => Ok(()),
            },
            Stage::AwaitingFirstByte => {
                match link.peer.as_ref().is_some_and(|peer| peer.readable) {
                    true => self.start_handshake(number, Connection::responder),
                    false => Ok(()),
                }
            }
            Stage::ReadingSocksRequest(server) => {
                if let Some(node) = &mut link.node {
                    node.append_to(&mut link.from_node, &mut self.scratch)
                        .map_err(Close::NodeSocket)?;
                }
                let user = self.settings.socks_user;
                let received = server.receive(&mut link.from_node, user, link.to_node.end());
                let Some(request) = received.map_err(Close::Socks)? else {
                    return Ok(());
                };
                link.permit.authenticate();
                link.credentials = server.credentials.take();
                link.only_resolves = matches!(request, SocksRequest::Resolve(_));
                let (SocksRequest::Connect(target) | SocksRequest::Resolve(target)) = request;
                link.address = target;
                self.dial(number)
            }
            Stage::Connecting => {
                let Some(peer) = &link.peer else {
                    return Ok(());
                };
                let has_event = peer.readable || peer.writable;
                if !has_event || !is_connected(&peer.socket).map_err(Close::PeerSocket)? {
                    return Ok(());
                }
                let Codec::V1(to_peer, _) = &mut link.codec else {
                    return Ok(());
                };
                if !link.via_proxy {
                    return self.reached(number);
                }
                let (target, credentials) = (link.address.clone(), link.credentials.clone());
                let client = socks::Client::new(target, credentials, to_peer.end());
                link.stage = Stage::ProxyHandshake(client, Vec::new());
                link.write_peer(&self.outgoing)
            }
            Stage::ProxyHandshake(client, received) => {
                let (Some(peer), Codec::V1(to_peer, _)) = (&mut link.peer, &mut link.codec) else {
                    return Ok(());
                };
                peer.append_to(received, &mut self.scratch)
                    .map_err(Close::PeerSocket)?;
                let connected = client.receive(received, to_peer.end());
                if connected.map_err(Close::Socks)? {
                    // Whoever is connected to waits for the first message, so a peer must be silent
                    // here.
                    if !received.is_empty() {
                        return Err(Close::Socks(SocksError::Trailing));
                    }
                    return self.reached(number);
                }
                if peer.has_ended() {
                    return Err(Close::Peer);
                }
                link.write_peer(&self.outgoing)
            }
            Stage::Resolving | Stage::Handshaking | Stage::Relaying => Ok(()),
        }
    }

    /// Starts connecting to a link's peer; looks its name up first if necessary.
    fn dial(&mut self, number: usize) -> Result<(), Close> {
        let link = &mut self.links[number];
        // .onion names, in any spelling, must never reach another resolver.
        let is_onion = |name: &str| {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            name.ends_with(".onion")
        };
        match &link.address {
            &Target::Address(address) if link.only_resolves => {
                Err(self.resolved(number, &[address]))
            }
            &Target::Address(address) => self.connect_peer(number, address),
            Target::Name(name, _) if is_onion(name) && link.only_resolves => Err(Close::Name(
                io::Error::other(".onion names have no IP address"),
            )),
            Target::Name(name, _) if is_onion(name) => {
                link.via_proxy = true;
                let tor = self.settings.tor.ok_or(Close::NoTor)?;
                self.connect_peer(number, tor)
            }
            Target::Name(name, port) => {
                link.stage = Stage::Resolving;
                let (id, results) = (link.id, self.lookups.0.clone());
                let waker = Arc::clone(&self.waker);
                let lookup = self.resolver.request(name, *port, move |addresses| {
                    let _ = results.send((id, number, addresses));
                    // If the wake-up fails, the answer is noticed within a second.
                    let _ = waker.wake();
                });
                link.lookup = Some(lookup.map_err(Close::Name)?);
                Ok(())
            }
        }
    }

    /// Answers a Tor RESOLVE request, with an IPv4 address if there is one: btcd accepts nothing
    /// else. The connection ends with that.
    fn resolved(&mut self, number: usize, addresses: &[SocketAddr]) -> Close {
        let link = &mut self.links[number];
        link.owes_reply = false;
        let best = addresses.iter().find(|address| address.is_ipv4());
        if let Some(address) = best.or(addresses.first()) {
            let reply = socks::Reply::resolved(address.ip());
            link.to_node.end().extend_from_slice(&reply);
        }
        Close::Resolved
    }

    /// Starts connecting to a link's peer, or to the proxy that reaches it.
    fn connect_peer(&mut self, number: usize, route: SocketAddr) -> Result<(), Close> {
        let link = &mut self.links[number];
        link.route = Some(route);
        link.attempt_started = Instant::now();
        let mut side = Side::new(connect(route, None).map_err(Close::PeerSocket)?);
        let [token, _] = tokens(number);
        self.register(&mut side, token).map_err(Close::PeerSocket)?;
        let link = &mut self.links[number];
        link.stage = Stage::Connecting;
        link.peer = Some(side);
        Ok(())
    }

    /// Starts connecting to the next address of the peer's name, if there is one.
    fn connect_next(&mut self, number: usize) -> Result<(), Close> {
        match self.links[number].next_addresses.pop() {
            Some(address) => self.connect_peer(number, address),
            None => Ok(()),
        }
    }

    /// Continues once TCP to the peer is connected: starts the v2 handshake, or v1 if that is known
    /// to be the only option.
    fn reached(&mut self, number: usize) -> Result<(), Close> {
        let now = Instant::now();
        let speaks_v1 = |link: &Link| link.fell_back || lock(&self.known).has(&link.address, now);
        if speaks_v1(&self.links[number]) {
            self.links[number].relay_v1(self.settings.network.magic());
            self.relaying_started(number);
        } else {
            self.start_handshake(number, Connection::initiator)?;
        }
        let link = &mut self.links[number];
        link.attempt_started = now;
        if std::mem::take(&mut link.owes_reply) {
            let reply = socks::Reply::SUCCEEDED.wire();
            link.to_node.end().extend_from_slice(&reply);
        }
        Ok(())
    }

    /// Handles finished name lookups.
    fn finish_lookups(&mut self) {
        while let Ok((id, number, found)) = self.lookups.1.try_recv() {
            // The link may have ended, and another may have its number.
            let Some(link) = self.links.get_mut(number).filter(|link| link.id == id) else {
                continue;
            };
            link.lookup = None;
            let connecting = match found {
                Ok(addresses) if link.only_resolves => Err(self.resolved(number, &addresses)),
                Ok(addresses) => {
                    link.next_addresses = addresses;
                    link.next_addresses.reverse();
                    self.connect_next(number)
                }
                Err(error) => Err(Close::Name(error)),
            };
            match connecting {
                Ok(()) => self.wake(number),
                Err(close) => self.close(number, close),
            }
        }
    }

    /// Records that a link began to relay messages.
    fn relaying_started(&mut self, number: usize) {
        let link = &mut self.links[number];
        link.permit.handshake_done();
        (self.event_sink)(&peer(link), &Event::Connected);
    }

    /// Closes links that have timed out, and releases unused buffers. Handles some links per turn,
    /// so that established peers are not delayed.
    fn sweep(&mut self, now: Instant) {
        let limits = self.settings.limits;
        let end = self.links.capacity().min(self.next_swept + MAX_SWEPT);
        for number in self.next_swept..end {
            let Some(link) = self.links.get_mut(number) else {
                continue;
            };
            link.trim();
            hold(link, &mut self.memory);
            if let Some(close) = link.check_timeouts(now, &limits) {
                self.close(number, close);
            }
        }
        self.next_swept = end;
    }

    /// Closes links, each for its first listed cause: what failed once may fail again in the same
    /// turn.
    fn close_all(&mut self, mut closes: Vec<(usize, Close)>) {
        // The sort is stable: the first cause stays first.
        closes.sort_by_key(|(number, _)| *number);
        closes.dedup_by_key(|(number, _)| *number);
        for (number, close) in closes {
            self.close(number, close);
        }
    }

    /// Closes a link, unless its peer can be retried.
    fn close(&mut self, number: usize, mut close: Close) {
        while let Some(link) = self.links.get_mut(number)
            && let Some(retry) = link.retry(&close)
        {
            if let Some(mut side) = link.peer.take() {
                self.deregister(&mut side);
            }
            let tried = match retry {
                Retry::NextAddress => self.connect_next(number),
                Retry::V1 => self.fall_back(number),
            };
            match tried {
                Ok(()) => return self.wake(number),
                Err(error) => close = error,
            }
        }
        self.end(number, close);
    }

    /// Connects to a link's peer again, to speak v1.
    fn fall_back(&mut self, number: usize) -> Result<(), Close> {
        let link = &mut self.links[number];
        link.fell_back = true;
        link.received_before_fallback = link.account.received.bytes;
        link.codec = Codec::v1();
        link.stage = Stage::Connecting;
        link.next_addresses.clear();
        (self.event_sink)(&peer(link), &Event::FellBack);
        match link.route {
            Some(route) => self.connect_peer(number, route),
            None => Ok(()),
        }
    }

    /// Call before closing a socket.
    fn deregister(&mut self, side: &mut Side) {
        let _ = self.poll.registry().deregister(&mut side.socket);
        if let (Some(ring), Some(inbox)) = (&mut self.ring, &side.inbox)
            && inbox.is_requested
        {
            // The ring keeps the connection open until its receive request has ended.
            ring.cancel(inbox.user);
            ring.flush();
        }
    }

    fn end(&mut self, number: usize, close: Close) {
        let Some(link) = self.links.get_mut(number) else {
            return;
        };
        if link.owes_reply
            && let Some(reply) = close.reply()
        {
            link.to_node.end().extend_from_slice(&reply.wire());
        }
        // The node still gets every complete message.
        let _ = link.write_node();
        if let Some(gone) = self.remove(number) {
            (self.event_sink)(&gone, &Event::Closed(close));
        }
    }

    /// Closes a link's sockets and removes it. Returns its last snapshot.
    fn remove(&mut self, number: usize) -> Option<Peer> {
        let mut link = self.links.try_remove(number)?;
        self.memory.change(link.direction, link.held, 0);
        self.turns.add(&link);
        for side in [&mut link.peer, &mut link.node].into_iter().flatten() {
            self.deregister(side);
        }
        Some(peer(&link))
    }
}

/// Updates the count of a link's memory.
fn hold(link: &mut Link, memory: &mut Memory) {
    let held = link.memory();
    memory.change(link.direction, link.held, held);
    link.held = held;
}

/// A link's weight in the split of a turn's CPU time.
fn weight(link: &Link) -> u64 {
    let bytes = link.account.received.bytes + link.account.sent.bytes;
    u64::from(link.calls) * SYSCALL_COST + (bytes - link.counted)
}

fn peer(link: &Link) -> Peer {
    let mut account = link.account.clone();
    account.received.ignored = link.ignored();
    Peer {
        id: link.id,
        address: link.address.clone(),
        direction: link.direction,
        transport: link.transport(),
        session_id: link.session().map(|session| *session.id()),
        decoys: link.session().map_or(0, |session| session.inbound.decoys()),
        age: link.started.elapsed(),
        account,
    }
}

/// The original destination of a redirected connection.
fn original_target(socket: &TcpStream) -> Option<SocketAddr> {
    // An IPv4 connection is in the IPv4 firewall's table, even at a dual-stack listener.
    let here = canonical(socket.local_addr().ok()?);
    let socket = SockRef::from(socket);
    let target = match here {
        SocketAddr::V4(_) => socket.original_dst_v4(),
        SocketAddr::V6(_) => socket.original_dst_v6(),
    };
    // A client that connects to the listener directly would otherwise be connected to itself.
    let target = canonical(target.ok()?.as_socket()?);
    (target != here).then_some(target)
}
