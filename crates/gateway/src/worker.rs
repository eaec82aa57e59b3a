//! One thread: its links and its event loop. `turn.rs` has what it does with the links that are
//! ready, `lifecycle.rs` how links begin and end.

use crate::account::{Traffic, Turns, cpu_time, kernel_time};
use crate::address::{canonical, loopback};
use crate::budget::{Budget, Direction, Memory};
use crate::close::Close;
use crate::dial::{KnownV1, Origin, Resolver, lock};
use crate::event::{EventSink, NodeState};
use crate::link::{End, Link, READ_LEN, Scratch};
use crate::listener::{Listener, ReservedFd};
use crate::reactor::{Reactor, Subject};
use crate::settings::{Inbound, PeerSource, Settings};
use mio::event::Event;
use mio::{Events, Waker};
use packetlane::bip324::KeyPool;
use packetlane::sha256d::Hasher;
use packetlane::{OpenBatch, SealBatch};
use slab::Slab;
use std::collections::BTreeSet;
use std::fmt;
use std::hash::RandomState;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the timeouts of all links are checked.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum links per turn whose timeouts are checked.
const MAX_SWEPT: usize = 256;

/// Maximum links per [`SWEEP_INTERVAL`]: each takes half a microsecond, as it is in no cache. So with
/// 20,000 links each is checked every eight seconds.
const MAX_SWEPT_PER_INTERVAL: usize = 2500;

/// Maximum number of keys that are computed before they are needed.
const MAX_KEYS: usize = 64;

/// How many of them are computed at a time: so few that a peer need not wait for them, and enough for
/// the lanes of every CPU.
const KEYS_AT_ONCE: usize = 8;

/// Cost of a system call, expressed as the number of bytes that cost as much to read, encrypt and
/// write. Used to split a turn's CPU time among its links.
const SYSCALL_COST: u64 = 4096;

/// What a thread is asked to do with its worker.
type Request = Box<dyn FnOnce(&mut Worker) + Send>;

/// Sends requests to a thread.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    sender: Sender<Request>,
    waker: Arc<Waker>,
}

impl Requests {
    /// Sends a request. If the thread has ended, nobody answers; its handle shows that.
    pub(crate) fn send(&self, request: impl FnOnce(&mut Worker) + Send + 'static) {
        let _ = self.sender.send(Box::new(request));
        // If the wake-up fails, the thread sees the request within a second.
        let _ = self.waker.wake();
    }
}

/// What all threads of a gateway share.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) secret: RandomState,
    pub(crate) known: Mutex<KnownV1>,
    pub(crate) reserved_fd: Mutex<ReservedFd>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) resolver: Arc<Resolver>,
    /// For each element of [`Settings::inbound`].
    pub(crate) nodes: Mutex<Vec<NodeState>>,
}

// Without the secret.
impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shared = f.debug_struct("Shared");
        shared.field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

impl Shared {
    /// The address at which a peer's connection reaches the node, and the one that it comes from.
    pub(crate) fn route_to_node(
        &self,
        inbound: &Inbound,
        peer: SocketAddr,
    ) -> (SocketAddr, Origin) {
        let node = canonical(inbound.node);
        if inbound.source == PeerSource::Real {
            let mut both = [Some(node), inbound.node_v6].into_iter().flatten();
            if let Some(node) = both.find(|node| node.is_ipv4() == peer.is_ipv4()) {
                return (node, Origin::Foreign(peer));
            }
        }
        let has_loopback = matches!(inbound.source, PeerSource::Loopback | PeerSource::Real);
        let origin = match has_loopback && node.is_ipv4() && node.ip().is_loopback() {
            true => Origin::Local(loopback(&self.secret, peer.ip()).into()),
            false => Origin::Any,
        };
        (node, origin)
    }

    /// Notes whether the node of the inbound settings with this index accepted a connection.
    pub(crate) fn set_node(&self, index: usize, is_up: bool) {
        if let Some(node) = lock(&self.nodes).get_mut(index) {
            *node = match is_up {
                true => NodeState::Up,
                false => NodeState::Down,
            };
        }
    }
}

/// What a turn works with, kept from one to the next.
pub(crate) struct Turn {
    pub(crate) incoming: OpenBatch,
    pub(crate) outgoing: SealBatch,
    pub(crate) scratch: Box<Scratch>,
    pub(crate) hasher: Hasher,
}

/// One thread and its links.
pub(crate) struct Worker {
    pub(crate) settings: Settings,
    pub(crate) shared: Arc<Shared>,
    pub(crate) reactor: Reactor,
    pub(crate) listeners: Vec<Listener>,
    /// When they will be closed, after they stopped accepting.
    pub(crate) listeners_close: Option<Instant>,
    pub(crate) links: Slab<Link>,
    /// Links that may have something to read or write.
    pub(crate) ready: Vec<usize>,
    /// When to wake links that need a turn then: [`Link::timer`] of each.
    pub(crate) timers: BTreeSet<(Instant, usize)>,
    /// The next peer id. Each thread counts in steps of the number of threads.
    pub(crate) next_id: u64,
    /// Memory held by this thread's links.
    pub(crate) memory: Memory,
    pub(crate) turn: Turn,
    /// Keys for the next handshakes, computed when there is nothing else to do.
    pub(crate) keys: KeyPool,
    /// Traffic in here is only that of closed links.
    pub(crate) turns: Turns,
    pub(crate) event_sink: EventSink,
    inbox: Receiver<Request>,
    /// For those that answer later.
    pub(crate) requests: Requests,
    /// The statistics as last published.
    published: Arc<Mutex<Turns>>,
    /// The links whose timeouts are still to be checked before the next sweep.
    to_sweep: Range<usize>,
    pub(crate) state: RunState,
}

/// Whether the event loop continues.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunState {
    Running,
    /// It ends with the last connection.
    Draining,
    Stopped,
}

/// A thread and its worker, as the gateway sees them.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) requests: Requests,
    /// The statistics as last published by the thread.
    pub(crate) turns: Arc<Mutex<Turns>>,
    pub(crate) handle: JoinHandle<io::Result<()>>,
}

impl Thread {
    /// Starts the thread with this number, counted from 0.
    pub(crate) fn start(
        settings: Settings,
        number: u64,
        shared: Arc<Shared>,
        mut listeners: Vec<Listener>,
        event_sink: EventSink,
    ) -> io::Result<Self> {
        let reactor = Reactor::new()?;
        for (index, listener) in listeners.iter_mut().enumerate() {
            reactor.add_listener(&mut listener.socket, index)?;
        }
        let (sender, inbox) = channel();
        let waker = Arc::clone(&reactor.waker);
        let requests = Requests { sender, waker };
        let turns = Turns {
            received: Traffic::of_known_types(),
            sent: Traffic::of_known_types(),
            ..Turns::default()
        };
        let published = Arc::new(Mutex::new(turns.clone()));
        let worker = Worker {
            memory: Memory::new(Arc::clone(&shared.budget)),
            shared,
            reactor,
            listeners,
            listeners_close: None,
            links: Slab::new(),
            ready: Vec::new(),
            timers: BTreeSet::new(),
            next_id: 1 + number,
            turn: Turn {
                incoming: OpenBatch::new(),
                outgoing: SealBatch::new(),
                scratch: Box::new([0; READ_LEN]),
                hasher: Hasher::best(),
            },
            keys: KeyPool::new(settings.engine, MAX_KEYS),
            settings,
            turns,
            event_sink,
            inbox,
            requests: requests.clone(),
            published: Arc::clone(&published),
            to_sweep: 0..0,
            state: RunState::Running,
        };
        let thread = std::thread::Builder::new().name(format!("gateway-{number}"));
        Ok(Self {
            requests,
            turns: published,
            handle: thread.spawn(move || worker.run())?,
        })
    }
}

impl Worker {
    /// Runs until it is asked to stop, or until the last connection has ended after a drain.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        let mut last_sweep = Instant::now();
        let mut cpu = cpu_time();
        while self.state == RunState::Running
            || self.state == RunState::Draining
                && !(self.links.is_empty() && self.listeners.is_empty())
        {
            let may_wait = self.ready.is_empty()
                && !self.listeners.iter().any(|listener| listener.has_more)
                && self.to_sweep.is_empty();
            let is_short_of_keys = self.keys.missing() >= KEYS_AT_ONCE;
            let timer = self.timers.first().map(|(at, _)| *at);
            let wait = match may_wait && !is_short_of_keys {
                true => (self.listeners_close.into_iter().chain(timer))
                    .map(|at| at.saturating_duration_since(Instant::now()))
                    .fold(SWEEP_INTERVAL, Duration::min),
                false => Duration::ZERO,
            };
            self.turns.calls += 1;
            self.reactor.wait(&mut events, wait)?;
            if may_wait && is_short_of_keys && events.is_empty() {
                let before = Instant::now();
                // Without entropy there is no pool; the handshakes say why they fail.
                if self.keys.add(KEYS_AT_ONCE).is_err() {
                    self.keys = KeyPool::new(self.settings.engine, 0);
                }
                self.turns.encryption += before.elapsed();
            }
            for event in &events {
                self.mark(event);
            }
            self.run_timers();
            self.accept();
            let in_turn = self.run_turn();
            self.close_largest();
            let now = cpu_time();
            self.share(&in_turn, now.saturating_sub(cpu));
            cpu = now;
            while let Ok(request) = self.inbox.try_recv() {
                request(&mut self);
            }
            let now = Instant::now();
            if self.listeners_close.is_some_and(|close| now >= close) {
                self.close_listeners();
            }
            if now.saturating_duration_since(last_sweep) >= SWEEP_INTERVAL {
                last_sweep = now;
                let all = self.links.capacity();
                let start = Some(self.to_sweep.start).filter(|start| *start < all);
                let start = start.unwrap_or(0);
                self.to_sweep = start..all.min(start + MAX_SWEPT_PER_INTERVAL);
                // If accepting failed before, no further event reports the waiting connections.
                self.try_listeners();
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
    pub(crate) fn publish(&mut self) {
        self.turns.cpu = cpu_time();
        // `kernel_time` is 0 if no file can be opened.
        self.turns.kernel = self.turns.kernel.max(kernel_time());
        let mut turns = self.turns.clone();
        for (_, link) in &self.links {
            turns.add(&link.info.account, link.ignored());
        }
        *lock(&self.published) = turns;
    }

    /// Wakes the links whose time has come.
    fn run_timers(&mut self) {
        while let Some((at, number)) = self.timers.first().copied()
            && at <= Instant::now()
        {
            self.timers.pop_first();
            if let Some(link) = self.links.get_mut(number) {
                link.timer = None;
                self.wake(number);
            }
        }
    }

    /// Sets the timer of a link that needs a turn at some time. One for each link, however often it
    /// changes.
    pub(crate) fn set_timer(&mut self, number: usize, now: Instant) {
        if let Some(link) = self.links.get_mut(number)
            && let before = link.timer
            && let wake_at = link.wake_at(now)
            && before != wake_at
        {
            link.timer = wake_at;
            if let Some(before) = before {
                self.timers.remove(&(before, number));
            }
            self.timers.extend(wake_at.map(|at| (at, number)));
        }
    }

    /// Records what an event says about a socket.
    fn mark(&mut self, event: &Event) {
        match Subject::of(event.token()) {
            Some(Subject::Link(number, end)) => {
                if let Some(link) = self.links.get_mut(number) {
                    match end {
                        End::Peer => link.peer.mark(event),
                        End::Node => link.node.mark(event),
                    }
                    self.wake(number);
                }
            }
            Some(Subject::Listener(index)) => {
                if let Some(listener) = self.listeners.get_mut(index) {
                    listener.has_more = true;
                }
            }
            None => {}
        }
    }

    /// Schedules a link for the next turn.
    pub(crate) fn wake(&mut self, number: usize) {
        if let Some(link) = self.links.get_mut(number)
            && !std::mem::replace(&mut link.is_ready, true)
        {
            self.ready.push(number);
        }
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
            let now = Instant::now();
            for (_, link) in &mut self.links {
                link.trim(now);
                link.hold(&mut self.memory);
            }
            let is_its = |link: &Link| link.info.direction == direction;
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
                self.turns.calls += u64::from(link.calls());
                all += weight(link);
            }
        }
        for &number in in_turn {
            if let Some(link) = links.get_mut(number) {
                let share = u128::from(weight(link)) * cpu.as_nanos() / u128::from(all.max(1));
                link.info.account.cpu += Duration::from_nanos(share as u64);
                (link.peer.calls, link.node.calls) = (0, 0);
                let bytes = link.info.account.received.bytes + link.info.account.sent.bytes;
                link.counted = bytes;
                // Nobody is charged for decoys that he did not ask for. They count before they are sent.
                let messages = bytes.saturating_sub(link.info.account.shaped.decoy_bytes);
                let more = messages.saturating_sub(link.charged);
                link.permit.count_bytes(more as usize);
                link.charged += more;
            }
        }
    }

    /// Closes links that have timed out, and releases unused buffers. Handles some links per turn,
    /// so that established peers are not delayed.
    fn sweep(&mut self, now: Instant) {
        for _ in 0..MAX_SWEPT {
            let Some(number) = self.to_sweep.next() else {
                break;
            };
            let Some(link) = self.links.get_mut(number) else {
                continue;
            };
            link.trim(now);
            link.hold(&mut self.memory);
            if let Some(close) = link.check_timeouts(now, &self.settings) {
                self.close(number, close);
            }
        }
    }
}

/// A link's weight in the split of a turn's CPU time.
fn weight(link: &Link) -> u64 {
    let bytes = link.info.account.received.bytes + link.info.account.sent.bytes;
    u64::from(link.calls()) * SYSCALL_COST + (bytes - link.counted)
}
