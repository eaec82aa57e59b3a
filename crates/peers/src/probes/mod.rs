//! The source that sees everything: probes at the node's tracepoints and at the two functions that
//! its message thread calls for each peer. Needs root, or CAP_SYS_ADMIN, CAP_SYS_PTRACE and, to read
//! another user's files in `/proc`, CAP_DAC_READ_SEARCH. The node is neither modified nor stopped.
//!
//! Since July 2025 (CVE-2025-38466) the kernel requires CAP_SYS_ADMIN to attach probes to a
//! program. Before, from Linux 5.8 on, CAP_PERFMON was enough.

mod arguments;
mod binary;
mod calibrate;
mod cost;
mod elf;
mod kernel;
mod machine;
mod numbers;
mod perf;

use crate::block_messages::steps;
use crate::process::{Process, Thread, stolen_ns, used};
use crate::record::{
    BlockStep, Connection, ConnectionType, Cost, Event, MAX_USER_AGENT, Network, PROBED_ADDRESS,
    Record, Time,
};
use crate::source::{Source, SourceError};
use binary::PlacesError;
use calibrate::calibrate;
use elf::ElfError;
pub use kernel::KernelError;
use kernel::{Counts, Kernel, VISITS_LEN, Visits, since_boot_ns};
use numbers::Numbers;
use packetlane_p2p::payload::BlockHash;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

/// How often pending events are read while a window is open.
const POLL: Duration = Duration::from_millis(50);

/// Size of the event ring: 100,000 messages, or 10,000 about blocks. A node sends a thousandth of
/// that between two polls.
const RING_BYTES: u32 = 8 << 20;

/// Maximum number of records between two windows. Of a node's own there are a few in a minute, in
/// its initial download thousands.
const MAX_PENDING: usize = 200_000;

/// Maximum number of blocks that one peer announces in a minute by `inv` and `headers` and that are
/// recorded, since a peer can invent hashes. A node announces a few in an hour, and catches up by
/// longer `headers`, which announce nothing.
const MAX_ANNOUNCED_A_MINUTE: u32 = 120;

/// How long Bitcoin Core waits for a peer's `version`, in microseconds.
const HANDSHAKE: Time = 60_000_000;

/// Minimum number of samples for the cost of the probes outside of calls.
const MIN_IDLE_GAPS: u64 = 100;

/// Maximum time for that measurement before the first window.
const MAX_MEASURING: Duration = Duration::from_millis(500);

/// Size of the programs' `struct message_event`, in bytes.
const MESSAGE_LEN: usize = 64;
/// Size of their `struct version_event`.
const VERSION_LEN: usize = 40 + USER_AGENT_LEN;
/// Size of the user agent in it.
const USER_AGENT_LEN: usize = MAX_USER_AGENT + 1;
/// Size of their `struct block_event`, and of its part of the payload.
const BLOCK_LEN: usize = 32 + 16 + BLOCK_START_LEN;
const BLOCK_START_LEN: usize = 656;
/// Size of their `struct connected_event`.
const CONNECTED_LEN: usize = 24 + 3 * 8 + 32;
/// Size of their `struct connection_event`.
const CONNECTION_LEN: usize = 40 + 24 + ADDRESS_LEN + 8 + VISITS_LEN;
/// Size of the address in it.
const ADDRESS_LEN: usize = PROBED_ADDRESS + 1;

/// Observes a node's peers with probes.
#[derive(Debug)]
pub struct Probes {
    process: Process,
    kernel: Kernel,
    known: Known,
    /// Whether a measurement of the probes' cost in this node was attempted.
    has_measured: bool,
    /// The state at the end of the last window, if the probes are still attached.
    last: Option<Look>,
    /// Records since the last window.
    pending: Vec<Record>,
    /// Events that were lost until the end of the last window, and records that were since.
    lost: u64,
    dropped: u64,
}

/// What is read at the start and the end of a window.
#[derive(Debug)]
struct Look {
    time: Time,
    threads: Vec<Thread>,
    counts: Counts,
    stolen_ns: u64,
}

/// Why the probes could not be attached.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProbesError {
    /// The node's executable has an unexpected structure.
    Program {
        /// The process, as [`Process::describe`] shows it.
        process: String,
        /// What is wrong with it.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The kernel refuses.
    Kernel(KernelError),
}

impl fmt::Display for ProbesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program { process, error } => {
                write!(f, "cannot attach probes to {process}: {error}")
            }
            Self::Kernel(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ProbesError {}

impl Probes {
    /// Attaches probes to the node.
    ///
    /// # Errors
    ///
    /// A [`ProbesError`], or [`ProcessError::Ended`](crate::ProcessError::Ended) if the node ended
    /// meanwhile. On failure, nothing stays attached to the node.
    pub fn attach(process: Process) -> Result<Self, SourceError> {
        Self::with_ring(process, RING_BYTES)
    }

    /// The same with an event ring of `ring` bytes, a power of two of at least a page. Pending
    /// events are kept in the ring. When it is full, further events are lost and counted.
    ///
    /// # Errors
    ///
    /// See [`attach`](Self::attach).
    pub fn with_ring(process: Process, ring: u32) -> Result<Self, SourceError> {
        Self::load(process, ring).map_err(|error| or_ended(process, error))
    }

    fn load(process: Process, ring: u32) -> Result<Self, ProbesError> {
        let pid = process.pid();
        let program = binary::of_process(pid);
        let places = binary::find_here(&program).map_err(|error| {
            let reading = match &error {
                PlacesError::File(ElfError::Read(error)) => Some(error.kind()),
                _ => None,
            };
            let error = match reading {
                Some(io::ErrorKind::PermissionDenied) if !may_see_all() => {
                    return ProbesError::Kernel(KernelError::NoPermission);
                }
                Some(io::ErrorKind::PermissionDenied) => PlacesError::Hidden,
                Some(io::ErrorKind::NotFound) => PlacesError::NoProgram,
                _ => error,
            };
            ProbesError::Program {
                process: process.describe(),
                error: error.into(),
            }
        })?;
        if !numbers::are_readable(pid) {
            return Err(ProbesError::Kernel(KernelError::NoPermission));
        }
        let known = Known {
            begun: now(),
            sees_additions: places.sees_additions(),
            ..Known::default()
        };
        let kernel = Kernel::load(&program, pid, places, ring).and_then(|mut kernel| {
            let cost = calibrate(&mut kernel)?;
            kernel.stay(cost)?;
            Ok(kernel)
        });
        let kernel = kernel.map_err(ProbesError::Kernel)?;
        Ok(Self {
            process,
            kernel,
            known,
            has_measured: false,
            last: None,
            pending: Vec::new(),
            lost: 0,
            dropped: 0,
        })
    }

    /// Cost of the probes of one call, in nanoseconds: measured in this process, then refined in
    /// the node.
    #[must_use]
    pub fn cost_of_call(&self) -> u64 {
        let cost = self.kernel.call_cost();
        cost.inside_ns + cost.outside_ns
    }

    fn look(&mut self) -> Result<Look, SourceError> {
        Ok(Look {
            time: now(),
            threads: self.process.threads().map_err(SourceError::new)?,
            counts: self.kernel.counts().map_err(SourceError::new)?,
            stolen_ns: stolen_ns(),
        })
    }

    /// Attaches the probes and takes the initial state.
    fn open(&mut self, take: &mut dyn FnMut(Record)) -> Result<Look, SourceError> {
        let opened = self.kernel.open_window().map_err(ProbesError::Kernel);
        opened.map_err(|error| or_ended(self.process, error))?;
        // Only once: in a node with few calls, every window would keep the probes attached for
        // longer.
        if !std::mem::replace(&mut self.has_measured, true) {
            self.measure().map_err(SourceError::new)?;
        }
        self.between();
        std::mem::take(&mut self.pending)
            .into_iter()
            .for_each(&mut *take);
        // In the same order as at the end of a window. Drop calls from before, while probes were
        // attached one by one.
        let visits = self.kernel.visits().map_err(SourceError::new)?;
        self.known.before = visits.into_iter().collect();
        self.known.calls = 0;
        self.look()
    }

    /// Measures the probes' cost in this node before the first window, if there are enough calls in
    /// a short time. Without it, the cost would be known only after a window.
    fn measure(&mut self) -> Result<(), KernelError> {
        let before = self.kernel.counts()?;
        let end = Instant::now() + MAX_MEASURING;
        loop {
            sleep(POLL);
            let counts = self.kernel.counts()?.since(before);
            if counts.idle_gaps >= MIN_IDLE_GAPS || Instant::now() >= end {
                return self.take_measured(counts);
            }
        }
    }

    /// Sets the probes' cost outside of calls from the counters, if there are enough samples.
    fn take_measured(&mut self, counts: Counts) -> Result<(), KernelError> {
        if counts.idle_gaps >= MIN_IDLE_GAPS {
            self.kernel
                .set_outside(counts.idle_gap_ns / counts.idle_gaps)?;
        }
        Ok(())
    }

    /// The calls in the window for each peer. `all` are the calls over the lifetime of each object.
    fn calls(&mut self, mut all: Vec<(u64, Visits)>) -> Result<Vec<Event>, SourceError> {
        let pid = self.process.pid();
        let (mut events, mut gone) = (Vec::new(), BTreeSet::new());
        for &(object, visits) in &all {
            if visits.peer >= 0 {
                self.known.numbers.learned(object, visits.peer);
            }
        }
        for &(object, visits) in &all {
            let new = self.known.since(object, visits);
            let mut peer = self.known.numbers.get(object);
            if peer.is_none() && new.count() > 0 {
                peer = self.known.numbers.read(pid, object);
                if let Some(peer) = peer {
                    self.kernel.name(object, peer).map_err(SourceError::new)?;
                }
            }
            // A connected peer is visited at every wake-up: this one has left, unseen.
            if peer.is_none() && new.count() == 0 {
                gone.insert(object);
            }
            events.extend(peer.and_then(|peer| calls(peer, new)));
        }
        for object in &gone {
            // Fails if the kernel's program has removed it just now.
            let _ = self.kernel.forget(*object);
        }
        all.retain(|(object, _)| !gone.contains(object));
        self.known.before = all.into_iter().collect();
        Ok(events)
    }

    /// Reads pending events.
    fn drain(&mut self, clock: Clock, take: &mut dyn FnMut(Record)) {
        let known = &mut self.known;
        self.kernel
            .drain(|event| known.records(event, clock).into_iter().for_each(&mut *take));
    }

    /// Reads events for the duration of `window`.
    fn take_for(
        &mut self,
        window: Duration,
        go_on: &dyn Fn() -> bool,
        take: &mut dyn FnMut(Record),
    ) {
        let clock = Clock::now();
        let end = Instant::now() + window;
        loop {
            self.drain(clock, take);
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || !go_on() {
                return;
            }
            sleep(left.min(POLL));
        }
    }
}

impl Source for Probes {
    fn abilities(&self) -> &'static str {
        "probes: CPU time and messages of every peer, but not v1 or v2; of peers already connected \
         neither the network nor, until transactions are announced to them, the relay flag (add \
         --rpc HOST:PORT --probes)"
    }

    fn watch(
        &mut self,
        window: Duration,
        go_on: &dyn Fn() -> bool,
        take: &mut dyn FnMut(Record),
    ) -> Result<(), SourceError> {
        let before = match self.last.take() {
            Some(last) => last,
            None => self.open(take)?,
        };
        self.take_for(window, go_on, take);
        // As close together as possible: a call in between is missing from one of the two.
        let visits = self.kernel.visits().map_err(SourceError::new);
        let after = self.look();
        let calls = visits.and_then(|visits| self.calls(visits));
        if calls.is_err() || after.is_err() {
            self.rest();
        }
        let time = after.as_ref().map_or_else(|_| now(), |after| after.time);
        let mut give = |event| take(Record { time, event });
        // Also at a node that has ended.
        calls?.into_iter().for_each(&mut give);
        let after = after?;
        for (name, cpu_ns) in used(&before.threads, &after.threads) {
            give(Event::Thread { name, cpu_ns });
        }
        let counts = after.counts.since(before.counts);
        let calls = std::mem::take(&mut self.known.calls);
        // This was subtracted from each call.
        let inside_ns = self.kernel.call_cost().inside_ns;
        self.take_measured(counts).map_err(SourceError::new)?;
        let outside_ns = self.kernel.call_cost().outside_ns;
        give(Event::Loop {
            cpu_ns: counts.between_ns.saturating_sub(calls * outside_ns),
        });
        let lost = after.counts.lost - std::mem::replace(&mut self.lost, after.counts.lost);
        give(Event::Window {
            start: before.time,
            lost: lost + std::mem::take(&mut self.dropped),
            probes_ns: counts.hits_ns + calls * (inside_ns + outside_ns),
            stolen_ns: after.stolen_ns.saturating_sub(before.stolen_ns),
        });
        self.last = Some(after);
        Ok(())
    }

    fn between(&mut self) {
        if self.last.is_some() {
            return;
        }
        let (mut pending, mut dropped) = (std::mem::take(&mut self.pending), 0);
        self.drain(Clock::now(), &mut |record| {
            match record.event {
                // From before the window.
                Event::Received { .. } | Event::Sent { .. } => {}
                _ if pending.len() < MAX_PENDING => pending.push(record),
                _ => dropped += 1,
            }
        });
        self.pending = pending;
        self.dropped += dropped;
    }

    fn rest(&mut self) {
        self.last = None;
        self.kernel.close_window();
    }
}

/// The error, unless its cause is that the node has ended.
fn or_ended(process: Process, error: ProbesError) -> SourceError {
    match process.threads() {
        Err(ended) => SourceError::new(ended),
        Ok(_) => SourceError::new(error),
    }
}

/// Whether this process has CAP_SYS_PTRACE, which gives access to the executable of any process.
fn may_see_all() -> bool {
    const CAP_SYS_PTRACE: u64 = 1 << 19;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let capabilities = lines.find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = capabilities.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    capabilities.is_some_and(|all| all & CAP_SYS_PTRACE != 0)
}

/// Converts kernel time since boot to wall-clock time.
#[derive(Clone, Copy)]
struct Clock {
    /// Time of boot, in microseconds since 1970.
    boot: u64,
}

impl Clock {
    fn now() -> Self {
        Self {
            boot: now().wrapping_sub(since_boot_ns() / 1000),
        }
    }

    fn time(self, ns: u64) -> Time {
        self.boot.wrapping_add(ns / 1000)
    }
}

/// Microseconds since 1970.
fn now() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

/// Reads the fields of an event one after the other.
struct Fields<'e>(&'e [u8]);

impl<'e> Fields<'e> {
    fn bytes(&mut self, len: usize) -> &'e [u8] {
        let (field, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        field
    }

    fn u32(&mut self) -> u32 {
        self.bytes(4)
            .first_chunk()
            .map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }

    fn u64(&mut self) -> u64 {
        self.bytes(8)
            .first_chunk()
            .map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }

    /// Text from the node, up to a zero byte or the end of the field.
    fn text(&mut self, len: usize) -> String {
        let bytes = self.bytes(len);
        let end = bytes
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}

/// The record of a peer's calls, if there are any.
fn calls(peer: i64, visits: Visits) -> Option<Event> {
    (visits.count() > 0).then_some(Event::Calls {
        peer,
        receiving: visits.receiving,
        sending: visits.sending,
    })
}

/// What is known about the connected peers.
#[derive(Debug, Default)]
struct Known {
    /// When the observation began.
    begun: Time,
    peers: BTreeMap<i64, Connection>,
    numbers: Numbers,
    /// Whether the programs tell messages that add a transaction or a block from others.
    sees_additions: bool,
    /// The minute of a peer's last announcement of a block, and their number in it.
    announced: BTreeMap<i64, (Time, u32)>,
    /// Calls by object at the start of the window.
    before: BTreeMap<u64, Visits>,
    /// Number of calls in the window so far.
    calls: u64,
}

impl Known {
    /// The calls in the window for the peer with this object. Adds them to `calls`.
    fn since(&mut self, object: u64, visits: Visits) -> Visits {
        let before = self.before.get(&object).copied().unwrap_or_default();
        let new = visits.since(before);
        self.calls += new.count();
        new
    }

    /// The records of one event. Empty if the event is malformed.
    fn records(&mut self, event: &[u8], clock: Clock) -> Vec<Record> {
        let mut fields = Fields(event);
        let (kind, flag) = (fields.u32(), fields.u32() != 0);
        let time = clock.time(fields.u64());
        let peer = fields.u64().cast_signed();
        let events = match (kind, event.len()) {
            (1 | 2, MESSAGE_LEN) => self.message(kind == 1, flag, peer, fields),
            (3, CONNECTION_LEN) => self.connected(peer, flag.then_some(time), fields),
            (4, CONNECTION_LEN) => {
                self.peers.remove(&peer);
                self.announced.remove(&peer);
                self.numbers.forget(peer);
                fields.bytes(CONNECTION_LEN - VISITS_LEN - 8 - 24);
                let object = fields.u64();
                let new = self.since(object, Visits::read(fields.0));
                self.before.remove(&object);
                calls(peer, new)
                    .into_iter()
                    .chain([Event::Disconnected { peer }])
                    .collect()
            }
            (5, VERSION_LEN) => self.version(peer, time, fields),
            (6, BLOCK_LEN) => {
                let (bytes, message_type) = (fields.u64(), fields.text(16));
                let mut steps = steps(flag, &message_type, bytes, fields.0);
                steps.retain(|(_, step)| self.is_within_limit(peer, time, *step));
                let blocks = steps.into_iter();
                blocks
                    .map(|(block, step)| Event::BlockMessage { peer, block, step })
                    .collect()
            }
            (7, CONNECTED_LEN) => {
                let [height, transactions, took_ns] = [(); 3].map(|()| fields.u64());
                let block = fields.0.first_chunk().map(|hash| BlockHash(*hash));
                let connected = |block| Event::BlockConnected {
                    block,
                    height,
                    transactions,
                    took_ns,
                };
                block.map(connected).into_iter().collect()
            }
            _ => Vec::new(),
        };
        let record = |event| Record { time, event };
        events.into_iter().map(record).collect()
    }

    /// Whether a message about a block is within [`MAX_ANNOUNCED_A_MINUTE`]. Only those that can name
    /// many hashes are limited.
    fn is_within_limit(&mut self, peer: i64, time: Time, step: BlockStep) -> bool {
        const MINUTE: Time = 60_000_000;
        if !matches!(step, BlockStep::Inv | BlockStep::Headers) {
            return true;
        }
        let minute = time / MINUTE;
        let (last, count) = self.announced.entry(peer).or_default();
        if *last != minute {
            (*last, *count) = (minute, 0);
        }
        *count = count.saturating_add(1);
        *count <= MAX_ANNOUNCED_A_MINUTE
    }

    /// A message. `flag` is set for an `inv` with which the node announces transactions, and for a
    /// received message that added a transaction or a block.
    fn message(
        &mut self,
        received: bool,
        flag: bool,
        peer: i64,
        mut fields: Fields<'_>,
    ) -> Vec<Event> {
        let bytes = fields.u64();
        let cost = Cost {
            wall_ns: fields.u64(),
            cpu_ns: fields.u64(),
        };
        let message_type = fields.text(16);
        let mut events = Vec::new();
        // The `version` of a peer that was connected before was not seen. But the node announces
        // transactions only to peers that want them, and a filter requests them too (BIP37). That a
        // peer announces transactions does not show that it wants any.
        let filters = received && matches!(message_type.as_str(), "filterload" | "filterclear");
        if (flag && !received || filters)
            && let Some(connection) = self.peers.get_mut(&peer)
            && connection.relay != Some(true)
        {
            connection.relay = Some(true);
            events.push(Event::Connected {
                peer,
                connection: connection.clone(),
            });
        }
        events.push(match received {
            true => Event::Received {
                peer,
                message_type,
                bytes,
                cost: Some(cost),
                added: self.sees_additions.then_some(flag),
            },
            false => Event::Sent {
                peer,
                message_type,
                bytes,
            },
        });
        events
    }

    fn version(&mut self, peer: i64, time: Time, mut fields: Fields<'_>) -> Vec<Event> {
        let bytes = fields.u64();
        let flags = fields.bytes(8);
        // A node ignores all but the first. Of a peer that was connected long before, this is another.
        let is_early = time < self.begun.saturating_add(HANDSHAKE);
        let first = |connection: &&mut Connection| {
            connection.user_agent.is_none() && (connection.since.is_some() || is_early)
        };
        let Some(connection) = self.peers.get_mut(&peer).filter(first) else {
            return Vec::new();
        };
        connection.relay = relay_flag(bytes, flags[0], flags[1]);
        connection.user_agent = Some(fields.text(USER_AGENT_LEN));
        vec![Event::Connected {
            peer,
            connection: connection.clone(),
        }]
    }

    fn connected(&mut self, peer: i64, since: Option<Time>, mut fields: Fields<'_>) -> Vec<Event> {
        let network = fields.u64();
        let has_network = fields.u64() != 0;
        let Some(kind) = ConnectionType::from_name(&fields.text(24)) else {
            return Vec::new();
        };
        let connection = Connection {
            address: fields.text(ADDRESS_LEN),
            kind,
            network: Network::from_number(network).filter(|_| has_network),
            transport: None,
            relay: None,
            user_agent: None,
            since,
        };
        self.peers.insert(peer, connection.clone());
        vec![Event::Connected { peer, connection }]
    }
}

/// The relay flag of a `version` of `bytes` bytes (BIP37). It is the last byte, if the message is
/// long enough to have it, which the length of the user agent shows. Without a flag, the peer wants
/// transactions.
fn relay_flag(bytes: u64, user_agent_len: u8, last_byte: u8) -> Option<bool> {
    // Version, services, time, two addresses, nonce; then the length of the user agent.
    const BEFORE: u64 = 4 + 8 + 8 + 26 + 26 + 8 + 1;
    // A longer user agent has a multi-byte length, and is invalid.
    if user_agent_len > 252 {
        return None;
    }
    match bytes.checked_sub(BEFORE + u64::from(user_agent_len) + 4)? {
        0 => Some(true),
        _ => Some(last_byte != 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: Clock = Clock { boot: 0 };

    /// An event: kind, peer and the rest.
    fn event(kind: u32, flag: u32, ns: u64, peer: u64, rest: &[&[u8]]) -> Vec<u8> {
        let head = [&kind.to_ne_bytes()[..], &flag.to_ne_bytes()];
        let head = [&head.concat()[..], &ns.to_ne_bytes(), &peer.to_ne_bytes()];
        [head.concat(), rest.concat()].concat()
    }

    fn inbound(known: &mut Known, peer: i64, since: Option<Time>) {
        let connection = Connection {
            address: "192.0.2.1:8333".to_owned(),
            kind: ConnectionType::Inbound,
            network: None,
            transport: None,
            relay: None,
            user_agent: None,
            since,
        };
        known.peers.insert(peer, connection);
    }

    /// A node ignores further ones, so they change nothing.
    #[test]
    fn only_the_first_version_counts() {
        let mut known = Known::default();
        inbound(&mut known, 1, Some(1));
        inbound(&mut known, 2, None);
        let version = |peer: u64, seconds: u64, agent: &[u8]| {
            let mut text = [0; USER_AGENT_LEN];
            text[..agent.len()].copy_from_slice(agent);
            let bytes = (81 + 4 + 5 + 1_u64).to_ne_bytes();
            let ns = seconds * 1_000_000_000;
            event(5, 0, ns, peer, &[&bytes, &[5, 1, 0, 0, 0, 0, 0, 0], &text])
        };
        let mut seen = |peer, seconds, agent: &[u8]| {
            let version = version(peer, seconds, agent);
            let records = known.records(&version, CLOCK).into_iter();
            let agent = |record: Record| match record.event {
                Event::Connected { connection, .. } => connection.user_agent,
                _ => None,
            };
            records.map(agent).collect::<Vec<_>>()
        };
        assert_eq!(seen(1, 100, b"/a:1/"), [Some("/a:1/".to_owned())]);
        assert_eq!(seen(1, 101, b"/b:2/"), []);
        // It was connected before the observation, which began at 0.
        assert_eq!(seen(2, 60, b"/b:2/"), []);
        assert_eq!(seen(2, 59, b"/a:1/"), [Some("/a:1/".to_owned())]);
    }

    /// A peer can invent hashes, but not fill the disk with them.
    #[test]
    fn announcements_are_limited() {
        const MINUTE_NS: u64 = 60_000_000_000;
        let mut known = Known::default();
        let mut blocks = |received: u32, message_type: &str, minute: u64, peer: u64| {
            let mut name = [0; 16];
            name[..message_type.len()].copy_from_slice(message_type.as_bytes());
            let entry = [&2_u32.to_le_bytes()[..], &[7; 32]].concat();
            let mut start = [&[18][..], &entry.repeat(18)].concat();
            start.resize(BLOCK_START_LEN, 0);
            let bytes = (1 + 36 * 18_u64).to_ne_bytes();
            let ns = minute * MINUTE_NS;
            let event = event(6, received, ns, peer, &[&bytes, &name, &start]);
            known.records(&event, CLOCK).len()
        };
        let counts: Vec<_> = (0..8).map(|_| blocks(1, "inv", 5, 1)).collect();
        assert_eq!(counts, [18, 18, 18, 18, 18, 18, 12, 0]);
        assert_eq!(blocks(1, "inv", 5, 2), 18);
        assert_eq!(blocks(0, "getdata", 5, 1), 18);
        assert_eq!(blocks(1, "inv", 6, 1), 18);
    }
}
