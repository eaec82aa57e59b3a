//! One thread's turn over all of its links: read, open all packets in one batch, translate, write;
//! read the node, seal all packets in one batch, write.

use crate::account::{Account, Passed};
use crate::address::{Secret, canonical, loopback};
use crate::budget::{Budget, Direction, Memory, Refusal};
use crate::dial::{Found, KnownV1, Resolver, connect, is_connected, lock};
use crate::door::{BACKLOG, Door, Listener, Spare};
use crate::link::{
    Close, Inbox, Link, MAX_UNREAD, READ_LEN, Retry, Scratch, Side, Speech, Stage, Transport,
};
use crate::ring::{Happened, Ring};
use crate::settings::{Io, Limits, Settings};
use crate::socks::{self, Request as Asked, SocksError, Target};
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

/// The listeners' tokens begin here.
const LISTENERS: usize = usize::MAX - 4;

/// How often the clocks of all links are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Links whose clocks are looked at in a turn at most.
const MAX_LOOKED_AT: usize = 256;

/// How long those who have begun to connect may take for it, when nobody else is accepted: more than
/// the way around the Earth. Who was not answered tries again after a second: then another gateway
/// is to be there alone.
const LAST_HANDSHAKES: Duration = Duration::from_millis(500);

/// Connections that are accepted in a turn at most, from each listener. More of them wait: those
/// whose messages pass are not to wait for them.
const MAX_ACCEPTED: usize = 8;

/// Links in a turn at most of which no messages pass yet. The exchange of keys is what costs most
/// of all (some 100 us), and those whose messages pass wait for it.
const MAX_SET_UP: usize = 2;

/// What a system call costs, in bytes that are read, encrypted and written at the same cost: for
/// the share of each link in a turn's CPU time.
const CALL_COST: u64 = 4096;

/// A peer, as it is now.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Told from all others of this gateway, also from those before it. 0: it was refused.
    pub id: u64,
    /// Who has connected, or what the node has asked for.
    pub address: Target,
    /// Who has connected.
    pub direction: Direction,
    /// How it speaks.
    pub transport: Transport,
    /// The session id of a v2 peer.
    pub session_id: Option<[u8; 32]>,
    /// Packets of a v2 peer that were no messages.
    pub decoys: u64,
    /// Since when it is there.
    pub age: Duration,
    /// What has passed.
    pub account: Account,
}

/// What happens to a peer.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// It has shaken hands: messages pass.
    Connected,
    /// It did not answer by v2, and is tried by v1: it closed, spoke v1, or said nothing.
    FellBack,
    /// There are too many connections, or too many that have not shaken hands.
    Refused(Refusal),
    /// Its connection has ended.
    Closed(Close),
}

/// What a thread has done until now: how many packets the batches of its turns held, what has passed
/// for its peers, and what that cost. No figure ever falls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// Batches to open, by their packets: at place n those of n packets. Empty batches are not
    /// counted.
    pub opened: Vec<u64>,
    /// The same of batches to seal.
    pub sealed: Vec<u64>,
    /// System calls that wait, read or write.
    pub calls: u64,
    /// CPU time of the thread.
    pub cpu: Duration,
    /// Of that, in the kernel.
    pub kernel: Duration,
    /// Time of opening and sealing batches. What is opened when it is received, or sealed when it is
    /// added, is not in it: packets of small turns, and long ones.
    pub encryption: Duration,
    /// Time of framing for v1, most of it the checksums.
    pub framing: Duration,
    /// From all of its peers, also those that have gone. Each type that nodes send is there from the
    /// start; all others are counted together.
    pub received: Passed,
    /// To all of its peers.
    pub sent: Passed,
}

impl Turns {
    /// Adds what has passed over a link.
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

/// What a thread is asked, with the waker.
pub(crate) enum Request {
    /// Its peers.
    Peers(Sender<Vec<Peer>>),
    /// Publish its turns until now, and say so.
    Turns(Sender<()>),
    /// Other settings, with the same listeners.
    Settings(Box<Settings>),
    /// Accept no more, say so, and end with the last connection.
    Drain(Sender<()>),
    /// End.
    Stop,
}

/// Is told what happens to each peer.
pub(crate) type Tell = Box<dyn FnMut(&Peer, &Event) + Send>;

/// One thread's links.
pub(crate) struct Worker {
    settings: Settings,
    secret: Secret,
    known: Arc<Mutex<KnownV1>>,
    hasher: Hasher,
    poll: Poll,
    /// None: all sockets are read and written by themselves.
    ring: Option<Ring>,
    /// What the ring knows the next socket by.
    next_user: u64,
    listeners: Vec<Listener>,
    /// Since when they take nobody who has not begun to connect.
    deaf_since: Option<Instant>,
    spare: Arc<Mutex<Spare>>,
    resolver: Arc<Resolver>,
    /// Names that have been looked up.
    found: (Sender<LinkFound>, Receiver<LinkFound>),
    waker: Arc<Waker>,
    requests: Receiver<Request>,
    links: Slab<Link>,
    /// What the links of all threads take.
    budget: Arc<Budget>,
    /// Bytes that those of this one hold.
    memory: Memory,
    /// Ids are this, this plus the number of workers, and so on.
    next_id: u64,
    /// Which link's clock is looked at next.
    next_look: usize,
    /// Links that may have something to read or to write.
    ready: Vec<usize>,
    incoming: OpenBatch,
    outgoing: SealBatch,
    scratch: Box<Scratch>,
    /// What has passed is here only of links that have ended.
    turns: Turns,
    /// As they were when they were last asked for.
    published: Arc<Mutex<Turns>>,
    tell: Tell,
}

/// A link's id and number, and where the name leads that was looked up for it.
type LinkFound = (u64, usize, Found);

/// The tokens of a link's sockets: its peer's and its node's.
fn tokens(link: usize) -> [Token; 2] {
    [Token(2 * link), Token(2 * link + 1)]
}

/// Whether the thread goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Going {
    On,
    Draining,
    Stopped,
}

/// Settings with which every link gets on: one byte or none at all is as little as can be.
fn checked(mut settings: Settings) -> Settings {
    let Limits { batch, queued, .. } = &mut settings.limits;
    (*batch, *queued) = ((*batch).max(1), (*queued).max(1));
    settings
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// By the kernel's own account, which counts in ticks. None where /proc does not tell.
fn kernel_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
    // The name before it, in parentheses, may have spaces.
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
        spare: Arc<Mutex<Spare>>,
        budget: Arc<Budget>,
        published: Arc<Mutex<Turns>>,
        resolver: Arc<Resolver>,
        poll: Poll,
        waker: Arc<Waker>,
        mut listeners: Vec<Listener>,
        requests: Receiver<Request>,
        tell: Tell,
    ) -> io::Result<Self> {
        for (place, listener) in listeners.iter_mut().enumerate() {
            let token = Token(LISTENERS + place);
            poll.registry()
                .register(&mut listener.socket, token, Interest::READABLE)?;
        }
        let turns = Turns {
            received: Passed::of_known_types(),
            sent: Passed::of_known_types(),
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
            deaf_since: None,
            spare,
            resolver,
            found: channel(),
            waker,
            requests,
            links: Slab::new(),
            memory: Memory::new(Arc::clone(&budget)),
            budget,
            next_id: 1 + number,
            next_look: 0,
            ready: Vec::new(),
            incoming: OpenBatch::new(),
            outgoing: SealBatch::new(),
            scratch: Box::new([0; READ_LEN]),
            turns,
            published,
            tell,
        })
    }

    /// Runs until it is asked to stop.
    pub(crate) fn run(mut self) -> io::Result<()> {
        // In this thread: no other one may use it.
        self.ring = match self.settings.io {
            Io::Epoll => None,
            Io::Best => Ring::new(self.poll.as_raw_fd()).ok(),
            Io::IoUring => Some(Ring::new(self.poll.as_raw_fd())?),
        };
        let mut events = Events::with_capacity(1024);
        let mut looked = Instant::now();
        let mut cpu = cpu_time();
        let mut going = Going::On;
        while going == Going::On
            || going == Going::Draining && !(self.links.is_empty() && self.listeners.is_empty())
        {
            let may_wait = self.ready.is_empty()
                && !self.listeners.iter().any(|listener| listener.has_more)
                && self.next_look >= self.links.capacity();
            let wait = match (may_wait, self.deaf_since) {
                (true, None) => LOOK,
                (true, Some(since)) => LAST_HANDSHAKES.saturating_sub(since.elapsed()),
                (false, _) => Duration::ZERO,
            };
            if self.wait(wait)? {
                // What the ring has said is there already.
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
            self.found();
            self.accept();
            let in_turn = self.turn();
            let now = cpu_time();
            self.share(&in_turn, now.saturating_sub(cpu));
            cpu = now;
            going = self.answer(going)?;
            if (self.deaf_since).is_some_and(|since| since.elapsed() >= LAST_HANDSHAKES) {
                self.close_listeners();
            }
            let now = Instant::now();
            if now.saturating_duration_since(looked) >= LOOK {
                looked = now;
                self.next_look = 0;
                // If accepting failed before, those who wait are not told again.
                for listener in &mut self.listeners {
                    listener.has_more = true;
                }
            }
            self.close_late(now);
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

    /// Publishes what has been done until now.
    fn publish(&mut self) {
        self.turns.cpu = cpu_time();
        // 0 if no file can be opened.
        self.turns.kernel = self.turns.kernel.max(kernel_time());
        let mut turns = self.turns.clone();
        for (_, link) in &self.links {
            turns.add(link);
        }
        *lock(&self.published) = turns;
    }

    /// Waits for the ring, if there is one. Whether the event queue may have something.
    fn wait(&mut self, most: Duration) -> io::Result<bool> {
        let Some(ring) = &mut self.ring else {
            return Ok(true);
        };
        self.turns.calls += 1;
        let mut has_events = false;
        let mut too_much = Vec::new();
        let (links, ready) = (&mut self.links, &mut self.ready);
        ring.wait(most, |happened| match happened {
            Happened::Events => has_events = true,
            Happened::Received { user, bytes, more } => {
                let token = (user & u64::from(u32::MAX)) as usize;
                let Some(link) = links.get_mut(token / 2) else {
                    return;
                };
                let side = match token % 2 {
                    0 => link.peer.as_mut(),
                    _ => link.node.as_mut(),
                };
                // It may be of a socket that was there before.
                let is_its = |inbox: &Inbox| inbox.user == user;
                if let Some(side) = side
                    && side.inbox.as_ref().is_some_and(is_its)
                {
                    if side.received(bytes, more) > MAX_UNREAD && more {
                        too_much.push(user);
                    }
                    if !std::mem::replace(&mut link.is_ready, true) {
                        ready.push(token / 2);
                    }
                }
            }
        })?;
        too_much.sort_unstable();
        too_much.dedup();
        for user in too_much {
            ring.cancel(user);
        }
        Ok(has_events)
    }

    /// Has the event queue, and the ring if there is one, tell of a socket.
    fn register(&mut self, side: &mut Side, token: Token) -> io::Result<()> {
        let interest = match &self.ring {
            Some(_) => {
                // A number of its own: sockets before it had the same token.
                self.next_user = (self.next_user + 1) % (1 << 30);
                side.inbox = Some(Inbox::new(self.next_user << 32 | token.0 as u64));
                Interest::WRITABLE
            }
            None => Interest::READABLE | Interest::WRITABLE,
        };
        let registry = self.poll.registry();
        registry.register(&mut side.socket, token, interest)
    }

    /// Asks the ring for what a link's sockets receive, as far as that is read.
    fn ask(&mut self, number: usize) {
        let (Some(ring), Some(link)) = (&mut self.ring, self.links.get_mut(number)) else {
            return;
        };
        // Before messages pass a buffer at a time will do, and many wait for their turn then: more
        // would be all that a socket holds.
        let once = !link.is_carrying();
        let most = if once { 0 } else { READ_LEN };
        for side in [&mut link.peer, &mut link.node].into_iter().flatten() {
            // It has connected.
            let is_open = side.writable;
            let socket = side.socket.as_raw_fd();
            let Some(inbox) = &mut side.inbox else {
                continue;
            };
            if is_open && inbox.can_ask(most) {
                inbox.is_asked = true;
                ring.receive(inbox.user, socket, once);
            }
        }
    }

    /// Sends what waits for these links, both sides, in one call.
    fn send(&mut self, these: &[usize], closes: &mut Vec<(usize, Close)>) {
        let Some(ring) = &mut self.ring else {
            return;
        };
        let (mut of, mut sends) = (Vec::new(), Vec::new());
        for &number in these {
            let Some(link) = self.links.get(number).filter(|link| link.is_in_turns()) else {
                continue;
            };
            if let Some(send) = link.for_node() {
                of.push((number, true));
                sends.push(send);
            }
            if let Some(send) = link.for_peer(&self.outgoing) {
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
                true => link.node_took(result),
                false => link.peer_took(result),
            };
            if let Err(close) = took {
                closes.push((number, close));
            }
        }
    }

    /// Answers what it was asked.
    fn answer(&mut self, mut going: Going) -> io::Result<Going> {
        while let Ok(request) = self.requests.try_recv() {
            match request {
                Request::Peers(to) => {
                    let peers = self.links.iter().map(|(_, link)| peer(link));
                    // Who does not wait for the answer needs none.
                    let _ = to.send(peers.collect());
                }
                Request::Turns(to) => {
                    self.publish();
                    let _ = to.send(());
                }
                Request::Settings(settings) => self.settings = checked(*settings),
                Request::Drain(to) => {
                    // Those of a socket that was passed wait for who has passed it.
                    let mut passed = self.listeners.extract_if(.., |listener| listener.is_passed);
                    passed.try_for_each(|mut listener| {
                        // It stays open, so the event queue would go on telling of it.
                        self.poll.registry().deregister(&mut listener.socket)
                    })?;
                    drop(passed);
                    // The kernel resets who waits in the queue of a listener that is closed, and who
                    // has half connected to it.
                    for listener in &self.listeners {
                        // If it cannot, a few of those who connect just now may be reset.
                        let _ = listener.turn_deaf();
                    }
                    self.deaf_since.get_or_insert_with(Instant::now);
                    going = Going::Draining;
                    let _ = to.send(());
                }
                Request::Stop => return Ok(Going::Stopped),
            }
        }
        Ok(going)
    }

    /// Notes what an event says of a socket.
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

    /// Puts a link in the next turn.
    fn wake(&mut self, number: usize) {
        if let Some(link) = self.links.get_mut(number)
            && !std::mem::replace(&mut link.is_ready, true)
        {
            self.ready.push(number);
        }
    }

    /// Accepts some of those who wait.
    fn accept(&mut self) {
        for place in 0..self.listeners.len() {
            for _ in 0..MAX_ACCEPTED {
                let listener = &mut self.listeners[place];
                if !listener.has_more {
                    break;
                }
                let door = listener.door;
                let accepted = lock(&self.spare).accept(&listener.socket);
                match accepted {
                    Ok((Some(socket), from)) => self.admit(door, socket, from),
                    Ok((None, from)) => {
                        let refusal = match door.direction() {
                            Direction::Inbound => Refusal::Files,
                            Direction::Outbound => Refusal::OutboundFiles,
                        };
                        self.turn_away(door, from, &Event::Refused(refusal));
                    }
                    // It has gone again.
                    Err(error)
                        if [ErrorKind::Interrupted, ErrorKind::ConnectionAborted]
                            .contains(&error.kind()) => {}
                    Err(_) => listener.has_more = false,
                }
            }
        }
    }

    /// Accepts the last who wait, and closes the listeners: others may listen there now.
    fn close_listeners(&mut self) {
        self.deaf_since = None;
        for _ in 0..=BACKLOG as usize / MAX_ACCEPTED {
            for listener in &mut self.listeners {
                listener.has_more = true;
            }
            self.accept();
        }
        self.listeners.clear();
    }

    /// Whether a balancer says who it is that connects.
    fn is_introduced(&self, door: Door) -> bool {
        let inbound = self.settings.inbound;
        matches!(door, Door::Inbound) && inbound.is_some_and(|inbound| inbound.proxy_protocol)
    }

    /// Tells of a connection that never became a link.
    fn turn_away(&mut self, door: Door, from: SocketAddr, event: &Event) {
        let peer = Peer {
            id: 0,
            address: Target::Address(from),
            direction: door.direction(),
            transport: Transport::Unknown,
            session_id: None,
            decoys: 0,
            age: Duration::ZERO,
            account: Account::default(),
        };
        (self.tell)(&peer, event);
    }

    fn admit(&mut self, door: Door, socket: TcpStream, from: SocketAddr) {
        let direction = door.direction();
        let has_address = match door {
            // A balancer has yet to say for whom it connects.
            Door::Inbound => !self.is_introduced(door),
            // Others than the node may connect here, as far as can be told yet.
            Door::Socks => self.settings.socks_user.is_some(),
            Door::Transparent => false,
        };
        let address = has_address.then_some(from.ip());
        let limits = &self.settings.limits;
        let place = match self.budget.admit(direction, address, limits) {
            Ok(place) => place,
            Err(refusal) => return self.turn_away(door, from, &Event::Refused(refusal)),
        };
        let _ = socket.set_nodelay(true);
        let id = self.next_id;
        self.next_id += self.settings.workers.get() as u64;
        let side = Side::new(socket);
        let mut link = match door {
            Door::Inbound => Link::inbound(id, place, side, from, self.is_introduced(door)),
            Door::Socks => Link::outbound(id, place, side, from, None),
            Door::Transparent => {
                let Some(to) = original_target(&side.socket) else {
                    return;
                };
                Link::outbound(id, place, side, from, Some(Target::Address(to)))
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
        let begun = registered.and_then(|()| match door {
            Door::Transparent => self.dial(number),
            Door::Inbound | Door::Socks => Ok(()),
        });
        if let Err(close) = begun {
            self.close(number, close);
        }
    }

    /// Goes on with a peer of which a balancer has said who it is.
    fn introduced(&mut self, number: usize) -> Result<(), Close> {
        let link = &mut self.links[number];
        let Target::Address(from) = link.who else {
            return Ok(());
        };
        match link.place.introduce(from.ip(), &self.settings.limits) {
            Ok(()) => link.stage = Stage::Silent,
            Err(refusal) => {
                if let Some(gone) = self.remove(number) {
                    let refused = Peer { id: 0, ..gone };
                    (self.tell)(&refused, &Event::Refused(refusal));
                }
            }
        }
        Ok(())
    }

    /// Begins to shake hands by v2.
    fn shake_hands(
        &mut self,
        number: usize,
        begin: fn(HandshakeConfig) -> Result<Connection, HandshakeError>,
    ) -> Result<(), Close> {
        let magic = self.settings.network.magic();
        let config = HandshakeConfig::random(magic, self.settings.engine);
        let connection = config.and_then(begin).map_err(Close::NoHandshake)?;
        let link = &mut self.links[number];
        link.speech = Speech::V2(Box::new(connection));
        link.stage = Stage::ShakingHands;
        Ok(())
    }

    /// One turn. The links of which there is more go into the next one. Which links were in it.
    fn turn(&mut self) -> Vec<usize> {
        let now = Instant::now();
        let mut all = std::mem::take(&mut self.ready);
        let links = &mut self.links;
        // Each once: a link may have ended since, and another with its number may be here twice.
        let is_waiting = |link: &mut Link| std::mem::take(&mut link.is_ready);
        all.retain(|&number| links.get_mut(number).is_some_and(is_waiting));
        // Those whose messages pass come first, then the node's own that are being set up: strangers
        // in any number do not delay them.
        all.sort_by_key(|&number| {
            let link = &links[number];
            (!link.is_carrying(), link.direction == Direction::Inbound)
        });
        let carrying = all.partition_point(|&number| links[number].is_carrying());
        let most = all.len().min(carrying + MAX_SET_UP);
        for number in all.drain(most..) {
            self.wake(number);
        }
        let mut waiting = all.as_slice();
        while !waiting.is_empty() {
            let taken = self.carry_in(waiting, now);
            let (these, later) = waiting.split_at(taken);
            waiting = later;
            let mut these = these;
            while !these.is_empty() {
                let taken = self.carry_out(these);
                these = &these[taken..];
            }
        }
        self.close_greediest();
        all
    }

    /// Closes this thread's largest links until their direction is within its limit, or this thread
    /// within its share.
    fn close_greediest(&mut self) {
        let (limits, threads) = (self.settings.limits, self.settings.workers.get());
        for direction in [Direction::Inbound, Direction::Outbound] {
            if !self.memory.is_over(direction, &limits, threads) {
                continue;
            }
            // Not for memory that nothing lies in.
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

    /// Gives each link of a turn its share of the CPU time.
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

    /// Reads peers until the batch has enough, and carries what they sent to the node. How many
    /// links that were.
    fn carry_in(&mut self, waiting: &[usize], now: Instant) -> usize {
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
            let was_carrying = link.is_carrying();
            if link.is_in_turns()
                && let Err(close) =
                    link.read_peer(&mut self.incoming, &mut self.scratch, &self.settings, now)
            {
                closes.push((number, close));
                continue;
            }
            if link.fell_back
                && link.is_carrying()
                && link.account.received.bytes > link.heard_by_v2
            {
                link.fell_back = false;
                lock(&self.known).add(&link.who, now);
            }
            if !was_carrying && link.is_carrying() {
                self.carries(number);
            }
        }
        let these = &waiting[..taken];
        Turns::count(&mut self.turns.opened, self.incoming.len());
        let before = Instant::now();
        self.settings.engine.open(&mut self.incoming);
        self.turns.encryption += before.elapsed();
        let mut frames = Frames::default();
        for &number in these {
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
        for &number in these {
            if let Err(close) = self.reach_node(number) {
                closes.push((number, close));
            }
        }
        self.close_all(closes);
        taken
    }

    /// Connects the node of a peer that has shaken hands, and writes what waits for it.
    fn reach_node(&mut self, number: usize) -> Result<(), Close> {
        let Some(link) = self.links.get_mut(number) else {
            return Ok(());
        };
        if link.node.is_none()
            && link.is_carrying()
            && let (Some(inbound), Target::Address(from)) = (self.settings.inbound, &link.who)
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
            // With all others, when the peers' packets are sealed.
            Some(_) => Ok(()),
            None => self.links[number].write_node(),
        }
    }

    /// Reads the node for these links until the batch has enough, and carries what it sent to their
    /// peers. How many links that were.
    fn carry_out(&mut self, these: &[usize]) -> usize {
        let mut taken = 0;
        let mut closes = Vec::new();
        for &number in these {
            if self.outgoing.bytes_used() >= self.settings.limits.batch {
                break;
            }
            taken += 1;
            if let Some(link) = self.links.get_mut(number)
                && link.is_in_turns()
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
        self.send(&these[..taken], &mut closes);
        for &number in &these[..taken] {
            self.ask(number);
            let Some(link) = self.links.get_mut(number) else {
                continue;
            };
            // With a ring: what is left.
            let written = link.write_node().and_then(|()| match link.is_in_turns() {
                true => link.write_peer(&self.outgoing),
                false => Ok(()),
            });
            if let Err(close) = written {
                closes.push((number, close));
            } else if let Some(close) = link.pass_ends_on() {
                closes.push((number, close));
            } else if link.wants_turn(&self.settings.limits) {
                self.wake(number);
            }
            hold(&mut self.links[number], &mut self.memory);
        }
        self.outgoing.clear();
        self.close_all(closes);
        taken
    }

    /// Carries on with a link of which no messages can pass yet.
    fn set_up(&mut self, number: usize) -> Result<(), Close> {
        let Some(link) = self.links.get_mut(number) else {
            return Ok(());
        };
        match &mut link.stage {
            Stage::Introducing(_) => match link.read_introduction()? {
                true => self.introduced(number),
                false => Ok(()),
            },
            Stage::Silent => match link.peer.as_ref().is_some_and(|peer| peer.readable) {
                true => self.shake_hands(number, Connection::responder),
                false => Ok(()),
            },
            Stage::Asking(server) => {
                if let Some(node) = &mut link.node {
                    node.append_to(&mut link.from_node, &mut self.scratch)
                        .map_err(Close::NodeSocket)?;
                }
                let user = self.settings.socks_user;
                let asked = server.receive(&mut link.from_node, user, link.to_node.end());
                let Some(request) = asked.map_err(Close::Socks)? else {
                    return Ok(());
                };
                link.place.authenticate();
                link.credentials = server.credentials.take();
                link.only_resolves = matches!(request, Asked::Resolve(_));
                let (Asked::Connect(target) | Asked::Resolve(target)) = request;
                link.who = target;
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
                let Speech::V1(to_peer, _) = &mut link.speech else {
                    return Ok(());
                };
                if !link.is_by_proxy {
                    return self.reached(number);
                }
                let (target, credentials) = (link.who.clone(), link.credentials.clone());
                let client = socks::Client::new(target, credentials, to_peer.end());
                link.stage = Stage::Proxying(client, Vec::new());
                link.write_peer(&self.outgoing)
            }
            Stage::Proxying(client, received) => {
                let (Some(peer), Speech::V1(to_peer, _)) = (&mut link.peer, &mut link.speech)
                else {
                    return Ok(());
                };
                peer.append_to(received, &mut self.scratch)
                    .map_err(Close::PeerSocket)?;
                let connected = client.receive(received, to_peer.end());
                if connected.map_err(Close::Socks)? {
                    // Peers that are connected to wait for the first word.
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
            Stage::LookingUp | Stage::ShakingHands | Stage::Carrying => Ok(()),
        }
    }

    /// Looks up where a link's peer is, if needed, and begins to connect.
    fn dial(&mut self, number: usize) -> Result<(), Close> {
        let link = &mut self.links[number];
        // No other resolver is to learn of them, however they are written.
        let is_onion = |name: &str| {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            name.ends_with(".onion")
        };
        match &link.who {
            &Target::Address(address) if link.only_resolves => {
                Err(self.resolved(number, &[address]))
            }
            &Target::Address(address) => self.connect_peer(number, address),
            Target::Name(name, _) if is_onion(name) && link.only_resolves => Err(Close::Name(
                io::Error::other("no .onion name has an address"),
            )),
            Target::Name(name, _) if is_onion(name) => {
                link.is_by_proxy = true;
                let tor = self.settings.tor.ok_or(Close::NoTor)?;
                self.connect_peer(number, tor)
            }
            Target::Name(name, port) => {
                link.stage = Stage::LookingUp;
                let (id, found) = (link.id, self.found.0.clone());
                let waker = Arc::clone(&self.waker);
                let asked = self.resolver.ask(name, *port, move |addresses| {
                    let _ = found.send((id, number, addresses));
                    // If it cannot be woken, it sees the answer within a second.
                    let _ = waker.wake();
                });
                link.lookup = Some(asked.map_err(Close::Name)?);
                Ok(())
            }
        }
    }

    /// Tells the node where a name leads, by IPv4 if it can be: btcd takes nothing else. With that it
    /// ends.
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

    /// Begins to connect a link's peer, or the proxy that reaches it.
    fn connect_peer(&mut self, number: usize, route: SocketAddr) -> Result<(), Close> {
        let link = &mut self.links[number];
        link.route = Some(route);
        link.tried = Instant::now();
        let mut side = Side::new(connect(route, None).map_err(Close::PeerSocket)?);
        let [token, _] = tokens(number);
        self.register(&mut side, token).map_err(Close::PeerSocket)?;
        let link = &mut self.links[number];
        link.stage = Stage::Connecting;
        link.peer = Some(side);
        Ok(())
    }

    /// Begins to connect a link's peer at the next address of its name.
    fn connect_next(&mut self, number: usize) -> Result<(), Close> {
        match self.links[number].addresses.pop() {
            Some(address) => self.connect_peer(number, address),
            None => Ok(()),
        }
    }

    /// Begins to speak with a peer that is connected.
    fn reached(&mut self, number: usize) -> Result<(), Close> {
        let now = Instant::now();
        let speaks_v1 = |link: &Link| link.fell_back || lock(&self.known).has(&link.who, now);
        if speaks_v1(&self.links[number]) {
            self.links[number].carry_v1(self.settings.network.magic());
            self.carries(number);
        } else {
            self.shake_hands(number, Connection::initiator)?;
        }
        let link = &mut self.links[number];
        link.tried = now;
        if std::mem::take(&mut link.owes_reply) {
            let reply = socks::Reply::SUCCEEDED.wire();
            link.to_node.end().extend_from_slice(&reply);
        }
        Ok(())
    }

    /// Names that have been looked up.
    fn found(&mut self) {
        while let Ok((id, number, found)) = self.found.1.try_recv() {
            // It may have ended, and another taken its place.
            let Some(link) = self.links.get_mut(number).filter(|link| link.id == id) else {
                continue;
            };
            link.lookup = None;
            let connecting = match found {
                Ok(addresses) if link.only_resolves => Err(self.resolved(number, &addresses)),
                Ok(addresses) => {
                    link.addresses = addresses;
                    link.addresses.reverse();
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

    /// Messages begin to pass.
    fn carries(&mut self, number: usize) {
        let link = &mut self.links[number];
        link.place.shake_hands();
        (self.tell)(&peer(link), &Event::Connected);
    }

    /// Closes links that have been there too long, and has all give back the memory that they do not
    /// need: some links in each turn, so that those whose messages pass do not wait for it.
    fn close_late(&mut self, now: Instant) {
        let limits = self.settings.limits;
        let end = self.links.capacity().min(self.next_look + MAX_LOOKED_AT);
        for number in self.next_look..end {
            let Some(link) = self.links.get_mut(number) else {
                continue;
            };
            link.trim();
            hold(link, &mut self.memory);
            if let Some(close) = link.is_late(now, &limits) {
                self.close(number, close);
            }
        }
        self.next_look = end;
    }

    /// Closes links, each for the first cause that it has here: what has failed once may fail again
    /// in the same turn.
    fn close_all(&mut self, mut closes: Vec<(usize, Close)>) {
        // Stable: the first stays first.
        closes.sort_by_key(|(number, _)| *number);
        closes.dedup_by_key(|(number, _)| *number);
        for (number, close) in closes {
            self.close(number, close);
        }
    }

    /// Closes a link, unless its peer is tried again.
    fn close(&mut self, number: usize, mut close: Close) {
        while let Some(link) = self.links.get_mut(number)
            && let Some(retry) = link.retry(&close)
        {
            if let Some(mut side) = link.peer.take() {
                self.hang_up(&mut side);
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

    /// Begins to connect a link's peer once more, to speak v1.
    fn fall_back(&mut self, number: usize) -> Result<(), Close> {
        let link = &mut self.links[number];
        link.fell_back = true;
        link.heard_by_v2 = link.account.received.bytes;
        link.speech = Speech::v1();
        link.stage = Stage::Connecting;
        link.addresses.clear();
        (self.tell)(&peer(link), &Event::FellBack);
        match link.route {
            Some(route) => self.connect_peer(number, route),
            None => Ok(()),
        }
    }

    /// Before a socket is closed.
    fn hang_up(&mut self, side: &mut Side) {
        let _ = self.poll.registry().deregister(&mut side.socket);
        if let (Some(ring), Some(inbox)) = (&mut self.ring, &side.inbox)
            && inbox.is_asked
        {
            // The ring holds the connection open until it has nothing more to receive.
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
        // What came whole before the end is the node's.
        let _ = link.write_node();
        if let Some(gone) = self.remove(number) {
            (self.tell)(&gone, &Event::Closed(close));
        }
    }

    /// Closes a link's sockets and forgets it. How it was.
    fn remove(&mut self, number: usize) -> Option<Peer> {
        let mut link = self.links.try_remove(number)?;
        self.memory.change(link.direction, link.held, 0);
        self.turns.add(&link);
        for side in [&mut link.peer, &mut link.node].into_iter().flatten() {
            self.hang_up(side);
        }
        Some(peer(&link))
    }
}

/// Notes how much memory a link holds now.
fn hold(link: &mut Link, memory: &mut Memory) {
    let held = link.memory();
    memory.change(link.direction, link.held, held);
    link.held = held;
}

/// A link's part of a turn's CPU time.
fn weight(link: &Link) -> u64 {
    let bytes = link.account.received.bytes + link.account.sent.bytes;
    u64::from(link.calls) * CALL_COST + (bytes - link.counted)
}

fn peer(link: &Link) -> Peer {
    let mut account = link.account.clone();
    account.received.ignored = link.ignored();
    Peer {
        id: link.id,
        address: link.who.clone(),
        direction: link.direction,
        transport: link.transport(),
        session_id: link.session().map(|session| *session.id()),
        decoys: link.session().map_or(0, |session| session.inbound.decoys()),
        age: link.begun.elapsed(),
        account,
    }
}

/// Where a redirected connection was to go.
fn original_target(socket: &TcpStream) -> Option<SocketAddr> {
    // An IPv4 connection is one of IPv4's firewall, also at a listener for both families.
    let here = canonical(socket.local_addr().ok()?);
    let socket = SockRef::from(socket);
    let target = match here {
        SocketAddr::V4(_) => socket.original_dst_v4(),
        SocketAddr::V6(_) => socket.original_dst_v6(),
    };
    // Who connects to this door itself would be sent round in circles.
    let target = canonical(target.ok()?.as_socket()?);
    (target != here).then_some(target)
}
