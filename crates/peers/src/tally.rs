//! Aggregates records: cost by peer, by kind of slot and by message type.
//!
//! [`Tally`] consumes records one at a time and keeps none, so it serves both a live table and a
//! report on a week. Only observed time counts: a sampling source sees nothing between its windows.
//!
//! Memory: [`Distribution`]s of at most 18 KB for each slot, each message type (at most
//! [`MAX_TYPES`]), each group (at most twice [`MAX_GROUPS`]) and each day (at most [`MAX_DAYS`]), an
//! entry for each connected peer (at most [`MAX_PEERS`]) and for peers that left (at most twice
//! [`MAX_LEFT`]), blocks, and [`MAX_POINTS`] points of the time line.

mod days;
mod groups;
mod peer;

use crate::block_messages::ANNOUNCING;
use crate::blocks::{Blocks, By, Given};
use crate::process::MESSAGE_THREAD;
use crate::record::{Calls, Connection, Event, Record, Time};
use crate::statistics::{Distribution, Rate, Shares};
pub use days::{Day, Days, MAX_DAYS, Sums};
use groups::Groups;
pub use groups::{GroupCost, LOCAL, MAX_GROUPS, OTHER_GROUP, ip, is_local, masked, subnet};
use packetlane::bitcoin::message::MessageType;
use peer::add_calls;
pub use peer::{Messages, Peer, SHORT, Seen, Slot};
use std::collections::BTreeMap;

/// Maximum number of message types beside those that are known. Further ones are counted together as
/// [`OTHER_TYPE`], because peers can invent types.
pub const MAX_TYPES: usize = 100;

/// Message types that a node receives once, whatever its number of peers: it requests a transaction
/// or a block from one of them, a compact block from at most three.
pub const ONCE: [&str; 4] = ["tx", "block", "cmpctblock", "blocktxn"];

/// Maximum number of `headers` from one peer that synchronize: two million headers. Nothing shows
/// whether the node had them already.
const MAX_SYNCHRONIZING: u64 = 1000;

/// The name for message types beyond [`MAX_TYPES`].
pub const OTHER_TYPE: &str = "*other*";

/// Maximum number of peers that have left and are kept one by one, at least: the costliest.
pub const MAX_LEFT: usize = 1000;

/// Maximum number of connected peers. Records of further ones are ignored and counted in
/// [`Tally::crowded`]. No node has that many.
pub const MAX_PEERS: usize = 10_000;

/// Maximum number of points of the time line. Beyond it, neighbouring points are merged.
pub const MAX_POINTS: usize = 1200;

const SECOND: f64 = 1e6;

/// Cost of the connections of one kind. Those shorter than a minute are counted separately.
#[derive(Clone, Debug, Default)]
pub struct SlotCost {
    /// Connections of at least a minute.
    pub connections: u64,
    /// Connections shorter than a minute, including those not yet a minute old.
    pub short: u64,
    /// CPU time of the short connections, in nanoseconds.
    pub short_cpu_ns: u64,
    /// CPU nanoseconds per second of receiving and sending: a value for each connection of at least
    /// a minute, weighted by observed time. So the mean is the cost of a slot that is always
    /// occupied.
    pub cpu: Distribution,
    /// The same for receiving alone.
    pub receiving: Distribution,
    /// The same for sending alone.
    pub sending: Distribution,
    /// CPU nanoseconds per second of connection, by window, over all connections. Used for the
    /// sampling error.
    pub sampled: Rate,
    /// Sum over all connections.
    pub seen: Seen,
    /// Splits the cost of sending between calls and messages.
    pub shares: Shares,
}

impl SlotCost {
    /// Whether there was no such connection.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.connections == 0 && self.short == 0 && self.seen == Seen::default()
    }
}

/// Cost of the messages of one type from peers of one kind.
#[derive(Clone, Debug, Default)]
pub struct TypeCost {
    /// Their number and bytes, within windows.
    pub messages: Messages,
    /// Those that the source has timed.
    pub processed: Calls,
    /// CPU nanoseconds to process one.
    pub cpu: Distribution,
    /// Sum over the current window.
    open: Messages,
}

/// A point of the time line.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// How much of it was observed, in seconds.
    pub observed: f64,
    /// CPU time of all peers in the observed part, in nanoseconds.
    pub peers_ns: f64,
    /// CPU time of the message thread in the observed part, in nanoseconds.
    pub thread_ns: f64,
}

/// The cost of all peers together over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimeLine {
    /// Start of the first point.
    pub start: Time,
    /// Length of a point, in microseconds.
    pub width: Time,
    /// The points. Some may have no observed time.
    pub points: Vec<Point>,
}

impl TimeLine {
    /// Spreads the cost of a window over the points that it overlaps. Returns their number.
    fn add(&mut self, start: Time, end: Time, peers_ns: f64, thread_ns: f64) -> usize {
        if self.points.is_empty() {
            self.start = start;
            self.width = SECOND as Time;
        }
        let (from, to) = (
            start.saturating_sub(self.start),
            end.saturating_sub(self.start),
        );
        while to / self.width >= MAX_POINTS as Time {
            self.points = self.points.chunks(2).map(join).collect();
            self.width = self.width.saturating_mul(2);
        }
        let (first, last) = ((from / self.width) as usize, (to / self.width) as usize);
        if self.points.len() <= last {
            self.points.resize(last + 1, Point::default());
        }
        let length = (to.saturating_sub(from)).max(1) as f64;
        for place in first..=last {
            let begins = place as Time * self.width;
            let inside = to.min(begins.saturating_add(self.width)) - from.max(begins).min(to);
            let share = inside as f64 / length;
            let point = &mut self.points[place];
            point.observed += inside as f64 / SECOND;
            point.peers_ns += peers_ns * share;
            point.thread_ns += thread_ns * share;
        }
        last + 1 - first
    }
}

fn join(points: &[Point]) -> Point {
    let mut joined = Point::default();
    for point in points {
        joined.observed += point.observed;
        joined.peers_ns += point.peers_ns;
        joined.thread_ns += point.thread_ns;
    }
    joined
}

/// CPU time of one of the node's threads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThreadCost {
    /// CPU time in windows, in nanoseconds, excluding [`ThreadCost::probes_ns`].
    pub cpu_ns: u64,
    /// Overhead of the source, in nanoseconds. Only in [`MESSAGE_THREAD`].
    pub probes_ns: u64,
    /// Total length of these windows, in seconds.
    pub seconds: f64,
    /// CPU time of all peers in these windows, in nanoseconds. Only meaningful for
    /// [`MESSAGE_THREAD`].
    pub peers_ns: u64,
    /// CPU time of the thread's loop in these windows. Only meaningful for [`MESSAGE_THREAD`].
    pub loop_ns: u64,
}

impl ThreadCost {
    /// CPU time attributed neither to peers nor to the loop, in nanoseconds. Can be negative,
    /// because the clocks are read at different moments.
    #[must_use]
    pub fn unaccounted_ns(&self) -> i64 {
        let seen = self.peers_ns.saturating_add(self.loop_ns);
        self.cpu_ns.cast_signed().saturating_sub_unsigned(seen)
    }

    /// The same as a share of the thread's time.
    #[must_use]
    pub fn unaccounted(&self) -> f64 {
        match self.cpu_ns {
            0 => 0.0,
            cpu_ns => self.unaccounted_ns() as f64 / cpu_ns as f64,
        }
    }
}

/// The sums over all records so far.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    peers: BTreeMap<i64, Peer>,
    left: Left,
    ended: BTreeMap<Slot, SlotCost>,
    ended_agents: Groups,
    ended_subnets: Groups,
    blocks: Blocks,
    /// Sums over all windows, by the kind that a connection had then.
    kinds: BTreeMap<Slot, Seen>,
    days: Days,
    types: Vec<String>,
    /// How many of them are not known.
    invented: usize,
    received: BTreeMap<(Slot, u16), TypeCost>,
    sent: BTreeMap<(Slot, u16), TypeCost>,
    threads: BTreeMap<String, ThreadCost>,
    /// Values of the last window.
    latest_threads: BTreeMap<String, ThreadCost>,
    /// Values of the current window.
    open_threads: BTreeMap<String, u64>,
    open_loop_ns: u64,
    time_line: TimeLine,
    /// CPU nanoseconds per second of all peers together, a value for each window.
    together: Distribution,
    together_rate: Rate,
    first: Option<Time>,
    last: Time,
    /// Time from the first to the last window, summed over recordings, in seconds.
    span: f64,
    observed: f64,
    /// Length of the last window.
    latest: f64,
    begun: Option<Time>,
    windows: u64,
    /// Windows without CPU times of peers; and whether the current one has some.
    untimed: u64,
    open_timed: bool,
    lost: u64,
    stolen_ns: u64,
    timed: bool,
    work: u64,
    /// Whether the recording has ended to which the peers belong.
    has_ended: bool,
    /// Whether single messages were seen; and whether a source reported bytes only.
    counted: bool,
    uncounted: bool,
    crowded: u64,
}

impl Tally {
    /// An empty tally.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a record.
    pub fn add(&mut self, record: &Record) {
        if self.has_ended {
            self.leave();
        }
        let time = record.time;
        let before = self.last;
        self.first = Some(self.first.map_or(time, |first| first.min(time)));
        self.last = self.last.max(time);
        match &record.event {
            Event::Connected { peer, connection } => self.connected(*peer, connection, time),
            Event::Started => {
                // The peers were seen until the record before.
                self.last = before;
                self.drop_open();
                self.leave();
            }
            Event::Disconnected { peer } => {
                if let Some(left) = self.peers.get_mut(peer)
                    && left.gone.is_none()
                {
                    left.gone = Some(time);
                    left.given = self.blocks.left(*peer, time);
                }
            }
            Event::Received {
                peer,
                message_type,
                bytes,
                cost,
                added,
            } => {
                self.counted = true;
                let processed = cost.map(|cost| Calls { count: 1, cost });
                let messages = Messages::one(*bytes);
                self.messages(*peer, time, true, message_type, messages, processed);
                // Every node downloads headers once, from one peer.
                let is_long = message_type == "headers" && *bytes > ANNOUNCING;
                let synchronizes = is_long && self.synchronizes(*peer);
                let was_asked = self.blocks.was_asked(*peer, message_type);
                let is_once = ONCE.contains(&message_type.as_str());
                if is_once && *added != Some(false) || was_asked || synchronizes {
                    self.useful(*peer, message_type, processed.unwrap_or_default());
                }
            }
            Event::Sent {
                peer,
                message_type,
                bytes,
            } => {
                self.counted = true;
                self.messages(
                    *peer,
                    time,
                    false,
                    message_type,
                    Messages::one(*bytes),
                    None,
                );
            }
            Event::BlockMessage { peer, block, step } => {
                if self
                    .peer(*peer, time)
                    .is_some_and(|peer| peer.gone.is_none())
                {
                    let by = By {
                        peer: *peer,
                        time,
                        step: *step,
                    };
                    self.blocks.message(*block, by);
                }
            }
            Event::BlockConnected {
                block,
                height,
                transactions,
                took_ns,
            } => {
                let blocks = &mut self.blocks;
                let new = blocks.connected(*block, time, *height, *transactions, *took_ns);
                if let Some(block) = new {
                    self.days.add_block(time, block.took());
                }
            }
            Event::Bytes {
                peer,
                received,
                message_type,
                bytes,
            } => {
                self.uncounted = true;
                let messages = Messages {
                    count: 0,
                    bytes: *bytes,
                };
                self.messages(*peer, time, *received, message_type, messages, None);
            }
            Event::Calls {
                peer,
                receiving,
                sending,
            } => {
                self.timed = true;
                self.open_timed = true;
                if let Some(peer) = self.peer(*peer, time) {
                    add_calls(&mut peer.open.receiving, *receiving);
                    add_calls(&mut peer.open.sending, *sending);
                }
            }
            Event::Thread { name, cpu_ns } => {
                // A node has about a dozen threads, but a file may claim any number.
                if self.open_threads.len() < MAX_TYPES || self.open_threads.contains_key(name) {
                    let cpu = self.open_threads.entry(name.clone()).or_default();
                    *cpu = cpu.saturating_add(*cpu_ns);
                }
            }
            Event::Loop { cpu_ns } => {
                self.open_timed = true;
                self.open_loop_ns = self.open_loop_ns.saturating_add(*cpu_ns);
            }
            Event::Window {
                start,
                lost,
                probes_ns,
                stolen_ns,
            } => {
                self.lost = self.lost.saturating_add(*lost);
                if *lost > 0 {
                    // Since the last window.
                    self.blocks.gap(self.begun.unwrap_or(*start));
                }
                self.stolen_ns = self.stolen_ns.saturating_add(*stolen_ns);
                self.window(*start, time, *probes_ns);
            }
        }
    }

    /// Ends a recording. Later records belong to another one, of the same or another node: its peers
    /// count as connected until one comes. Records after the last window are dropped.
    pub fn end(&mut self) {
        self.drop_open();
        self.has_ended = true;
    }

    /// Removes the peers of a recording that has ended.
    fn leave(&mut self) {
        self.has_ended = false;
        for (number, peer) in std::mem::take(&mut self.peers) {
            self.ended(number, peer, self.last);
        }
        self.begun = None;
    }

    /// Marks a gap: records are missing before the next one. Records after the last window are
    /// dropped, since they would otherwise be attributed to the next window.
    pub fn gap(&mut self) {
        self.drop_open();
        self.blocks.gap(self.last);
    }

    /// Drops the records after the last window.
    fn drop_open(&mut self) {
        for peer in self.peers.values_mut() {
            peer.open = Seen::default();
        }
        for cost in self.received.values_mut().chain(self.sent.values_mut()) {
            cost.open = Messages::default();
        }
        self.open_threads.clear();
        self.open_loop_ns = 0;
        self.open_timed = false;
    }

    /// The connected peers by their ids.
    pub fn peers(&self) -> impl Iterator<Item = (i64, &Peer)> {
        self.peers.iter().map(|(number, peer)| (*number, peer))
    }

    /// The peers that have left, with their ids: the costliest, in no order. Ids repeat if the node
    /// was restarted.
    pub fn left(&self) -> impl Iterator<Item = (i64, &Peer)> {
        self.left.peers.iter().map(|(number, peer)| (*number, peer))
    }

    /// How many more peers have left, and what was observed of these.
    #[must_use]
    pub fn left_more(&self) -> (u64, &Seen) {
        (self.left.more, &self.left.more_seen)
    }

    /// How many peers have left, and what was observed of all of them.
    #[must_use]
    pub fn left_together(&self) -> (u64, Seen) {
        let mut seen = self.left.more_seen;
        self.left().for_each(|(_, peer)| seen.add(&peer.seen));
        (self.left.more + self.left.peers.len() as u64, seen)
    }

    /// Blocks: who announced and delivered them, and who stalls.
    #[must_use]
    pub fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Cost of connections, by kind. Only the kinds that occurred.
    #[must_use]
    pub fn slots(&self) -> BTreeMap<Slot, SlotCost> {
        let mut slots = self.ended.clone();
        for peer in self.peers.values() {
            finish(slots.entry(peer.slot).or_default(), peer, self.last);
        }
        slots
    }

    /// What was observed in all windows, by the kind that a connection had then. No sum ever
    /// decreases: in [`slots`](Self::slots), a connection moves to another kind as a whole once more
    /// is known about it.
    #[must_use]
    pub fn kinds(&self) -> &BTreeMap<Slot, Seen> {
        &self.kinds
    }

    /// Sums by day (UTC).
    #[must_use]
    pub fn days(&self) -> &Days {
        &self.days
    }

    /// Cost of connections by the peers' user agent, of those that are known.
    #[must_use]
    pub fn agents(&self) -> BTreeMap<String, GroupCost> {
        self.groups(&self.ended_agents, agent)
    }

    /// Cost of connections by part of the network, as [`subnet`] names it.
    #[must_use]
    pub fn subnets(&self) -> BTreeMap<String, GroupCost> {
        self.groups(&self.ended_subnets, subnet)
    }

    fn groups(
        &self,
        ended: &Groups,
        name: impl Fn(&Connection) -> Option<String>,
    ) -> BTreeMap<String, GroupCost> {
        let mut groups = ended.clone();
        for peer in self.peers.values() {
            if let Some(name) = peer.connection.as_ref().and_then(&name) {
                groups.add(&name, peer, self.last);
            }
        }
        groups.0
    }

    /// Cost of received messages by type, for peers in the slots that `of` accepts.
    pub fn received(&self, of: impl Fn(Slot) -> bool) -> BTreeMap<&str, TypeCost> {
        self.by_type(&self.received, of)
    }

    /// Sent messages by type, for peers in the slots that `of` accepts.
    pub fn sent(&self, of: impl Fn(Slot) -> bool) -> BTreeMap<&str, TypeCost> {
        self.by_type(&self.sent, of)
    }

    fn by_type(
        &self,
        all: &BTreeMap<(Slot, u16), TypeCost>,
        of: impl Fn(Slot) -> bool,
    ) -> BTreeMap<&str, TypeCost> {
        let mut found: BTreeMap<&str, TypeCost> = BTreeMap::new();
        for ((_, kind), cost) in all.iter().filter(|((slot, _), _)| of(*slot)) {
            let sum = found.entry(self.type_name(*kind)).or_default();
            sum.messages.add(cost.messages);
            add_calls(&mut sum.processed, cost.processed);
            sum.cpu.merge(&cost.cpu);
        }
        found
    }

    /// CPU time of the node's threads.
    #[must_use]
    pub fn threads(&self) -> &BTreeMap<String, ThreadCost> {
        &self.threads
    }

    /// CPU time of the node's threads in the last window.
    #[must_use]
    pub fn latest_threads(&self) -> &BTreeMap<String, ThreadCost> {
        &self.latest_threads
    }

    /// CPU time of the message thread, if the source measured it.
    #[must_use]
    pub fn message_thread(&self) -> Option<&ThreadCost> {
        self.threads.get(MESSAGE_THREAD)
    }

    /// The cost of all peers together over time.
    #[must_use]
    pub fn time_line(&self) -> &TimeLine {
        &self.time_line
    }

    /// CPU nanoseconds per second of all peers together: a value for each window, weighted by its
    /// length.
    #[must_use]
    pub fn together(&self) -> &Distribution {
        &self.together
    }

    /// The same as a rate, for its sampling error.
    #[must_use]
    pub fn together_rate(&self) -> &Rate {
        &self.together_rate
    }

    /// Times of the first and the last record.
    #[must_use]
    pub fn times(&self) -> Option<(Time, Time)> {
        self.first.map(|first| (first, self.last))
    }

    /// Observed time, in seconds.
    #[must_use]
    pub fn observed(&self) -> f64 {
        self.observed
    }

    /// Length of the last window, in seconds.
    #[must_use]
    pub fn latest(&self) -> f64 {
        self.latest
    }

    /// Share of the time that was observed, from 0 to 1. Below 1 if the source sampled.
    #[must_use]
    pub fn observed_share(&self) -> f64 {
        match self.span > 0.0 {
            // Consecutive windows are a few microseconds apart.
            true if self.observed / self.span > 0.98 => 1.0,
            true => self.observed / self.span,
            false => 1.0,
        }
    }

    /// The standard error of a rate due to sampling. `None` with fewer than 2 windows, as the first
    /// does not show which share of the time is observed.
    #[must_use]
    pub fn error(&self, rate: &Rate) -> Option<f64> {
        match self.windows {
            0 | 1 => None,
            _ => rate.error(self.observed_share()),
        }
    }

    /// The number of windows.
    #[must_use]
    pub fn windows(&self) -> u64 {
        self.windows
    }

    /// Windows without CPU times of peers, from a source that does not measure them. They count as
    /// windows in which no peer cost anything.
    #[must_use]
    pub fn untimed(&self) -> u64 {
        self.untimed
    }

    /// Events that the source lost.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Steal time: the share of the observed time, from 0 to 1, that a hypervisor withheld from the
    /// CPUs.
    #[must_use]
    pub fn stolen(&self) -> f64 {
        match self.observed > 0.0 {
            true => self.stolen_ns as f64 / 1e9 / self.observed,
            false => 0.0,
        }
    }

    /// Number of records ignored because of [`MAX_PEERS`].
    #[must_use]
    pub fn crowded(&self) -> u64 {
        self.crowded
    }

    /// Work done for windows so far: 1 for each, plus 1 for each peer, message type and point of
    /// the time line it visited. The time for any other record is bounded.
    #[must_use]
    pub fn work(&self) -> u64 {
        self.work
    }

    /// Whether the source measures time per peer.
    #[must_use]
    pub fn timed(&self) -> bool {
        self.timed
    }

    /// Whether messages were counted. False if the source reports bytes only, or nothing yet.
    #[must_use]
    pub fn counted(&self) -> bool {
        self.counted && !self.uncounted
    }

    /// The type of a peer's messages with the highest CPU cost in the message thread, and that cost
    /// in nanoseconds.
    #[must_use]
    pub fn costliest(&self, peer: &Peer) -> Option<(&str, u64)> {
        let cost = |(_, calls): &(&u16, &Calls)| calls.cost.cpu_ns;
        let (kind, calls) = peer.types.iter().max_by_key(cost)?;
        Some((self.type_name(*kind), calls.cost.cpu_ns))
    }

    /// The name of a message type.
    fn type_name(&self, number: u16) -> &str {
        self.types
            .get(usize::from(number))
            .map_or(OTHER_TYPE, String::as_str)
    }

    /// Adds messages of a type from or to a peer, with the cost of processing them if known.
    fn messages(
        &mut self,
        peer: i64,
        time: Time,
        received: bool,
        message_type: &str,
        messages: Messages,
        processed: Option<Calls>,
    ) {
        let kind = self.type_number(message_type);
        let Some(peer) = self.peer(peer, time) else {
            return;
        };
        let once = received && ONCE.contains(&message_type);
        match received {
            true => peer.open.received.add(messages),
            false => peer.open.sent.add(messages),
        }
        if once {
            peer.open.once.add(messages);
        }
        if let Some(calls) = processed {
            add_calls(&mut peer.open.processed, calls);
            if once {
                add_calls(&mut peer.open.once_processed, calls);
            }
            add_calls(peer.types.entry(kind).or_default(), calls);
        }
        let slot = peer.slot;
        let costs = match received {
            true => &mut self.received,
            false => &mut self.sent,
        };
        let cost = costs.entry((slot, kind)).or_default();
        cost.open.add(messages);
        if let Some(calls) = processed {
            self.timed = true;
            add_calls(&mut cost.processed, calls);
            cost.cpu.add(calls.cost.cpu_ns as f64, 1.0);
        }
    }

    /// Adds a message that the node needed from some peer. It was counted before.
    fn useful(&mut self, peer: i64, message_type: &str, processed: Calls) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            add_calls(&mut peer.open.useful, processed);
            if message_type == "tx" {
                peer.open.transactions = peer.open.transactions.saturating_add(1);
            }
        }
    }

    /// Whether another long `headers` from this peer counts as synchronizing. Counts it.
    fn synchronizes(&mut self, peer: i64) -> bool {
        self.peers.get_mut(&peer).is_some_and(|peer| {
            peer.synchronized = peer.synchronized.saturating_add(1);
            peer.synchronized <= MAX_SYNCHRONIZING
        })
    }

    fn type_number(&mut self, name: &str) -> u16 {
        // A few dozen, the most frequent ones first.
        if let Some(place) = self.types.iter().position(|one| one == name) {
            return place as u16;
        }
        let mut known = MessageType::known().iter();
        if !known.any(|known| known.name() == name) {
            if self.invented >= MAX_TYPES {
                return u16::MAX;
            }
            self.invented += 1;
        }
        self.types.push(name.to_owned());
        (self.types.len() - 1) as u16
    }

    fn connected(&mut self, number: i64, connection: &Connection, time: Time) {
        let last = self.last;
        if let Some(peer) = self.peers.get(&number) {
            let another = |known: &Connection| known.address != connection.address;
            // The node was restarted and numbers its peers from 0 again.
            let is_another = peer.gone.is_some() || peer.connection.as_ref().is_some_and(another);
            if is_another && let Some(peer) = self.peers.remove(&number) {
                self.ended(number, peer, last);
            }
        }
        let Some(peer) = self.peer(number, time) else {
            return;
        };
        if let Some(since) = connection.since {
            peer.since = peer.since.min(since);
            peer.old = false;
        }
        peer.slot = Slot::of(connection);
        peer.connection = Some(connection.clone());
    }

    /// Adds a connection that has ended.
    fn ended(&mut self, number: i64, mut peer: Peer, last: Time) {
        finish(self.ended.entry(peer.slot).or_default(), &peer, last);
        if let Some(connection) = &peer.connection {
            if let Some(name) = agent(connection) {
                self.ended_agents.add(&name, &peer, last);
            }
            if let Some(name) = subnet(connection) {
                self.ended_subnets.add(&name, &peer, last);
            }
        }
        if peer.gone.is_none() {
            peer.gone = Some(last);
            peer.given = self.blocks.left(number, last);
        }
        self.left.add(number, peer);
    }

    /// The peer with this id, created if necessary.
    fn peer(&mut self, number: i64, time: Time) -> Option<&mut Peer> {
        if self.peers.len() >= MAX_PEERS && !self.peers.contains_key(&number) {
            self.crowded += 1;
            return None;
        }
        let old = self.windows == 0 || self.begun.is_none();
        Some(self.peers.entry(number).or_insert_with(|| Peer {
            connection: None,
            slot: Slot::Unknown,
            since: time,
            seen: Seen::default(),
            latest: Seen::default(),
            cpu: Rate::default(),
            receiving: Rate::default(),
            sending: Rate::default(),
            types: BTreeMap::new(),
            given: Given::default(),
            synchronized: 0,
            open: Seen::default(),
            gone: None,
            old,
            shares: Shares::default(),
        }))
    }

    /// Ends a window in which the source's own overhead in the message thread was `probes_ns`.
    fn window(&mut self, start: Time, end: Time, probes_ns: u64) {
        if start >= end {
            // The clock was set back.
            self.gap();
            return;
        }
        if self.begun.is_some_and(|before| start < before) {
            // The same, between windows.
            self.last = end;
        }
        let length = (end - start) as f64 / SECOND;
        self.windows += 1;
        self.untimed += u64::from(!std::mem::take(&mut self.open_timed));
        self.observed += length;
        self.latest = length;
        // The span of a recording includes the time between its windows.
        let before = self.begun.map_or(start, |before| before.min(end));
        let span = (end - before.min(start)) as f64 / SECOND;
        self.span += span;
        let first_window = self.begun.is_none();
        self.begun = Some(end);

        let visited = 1 + self.peers.len() + self.received.len() + self.sent.len();
        self.work = self.work.saturating_add(visited as u64);

        let mut together: u64 = 0;
        let mut slots: BTreeMap<Slot, (f64, u64)> = BTreeMap::new();
        let mut kinds: BTreeMap<Slot, Seen> = BTreeMap::new();
        let mut gone = Vec::new();
        for (number, peer) in &mut self.peers {
            // Times of a clock that was set back since.
            if peer.since > end {
                peer.since = start;
            }
            peer.gone = peer.gone.map(|gone| if gone > end { start } else { gone });
            let begins = match first_window && peer.old {
                true => start,
                false => peer.since.clamp(start, end),
            };
            let ends = peer.gone.unwrap_or(end).clamp(begins, end);
            let mut open = std::mem::take(&mut peer.open);
            open.observed = ends - begins;
            let visited = open.receiving.count > 0 || open.sending.count > 0;
            if open.observed == 0 && visited {
                open.observed = 1;
            }
            if open.observed > 0 {
                let seconds = open.observed as f64 / SECOND;
                let [receiving, sending] =
                    [open.receiving, open.sending].map(|calls| calls.cost.cpu_ns);
                peer.cpu.add(seconds, open.cpu_ns() as f64);
                peer.receiving.add(seconds, receiving as f64);
                peer.sending.add(seconds, sending as f64);
                peer.shares.add(
                    open.sending.count as f64,
                    open.sent.count as f64,
                    sending as f64,
                );
                let slot = slots.entry(peer.slot).or_default();
                slot.0 += seconds;
                slot.1 = slot.1.saturating_add(open.cpu_ns());
                together = open.cpu_ns().saturating_add(together);
            }
            kinds.entry(peer.slot).or_default().add(&open);
            peer.seen.add(&open);
            peer.latest = open;
            if peer.gone.is_some_and(|gone| gone <= end) {
                gone.push(*number);
            }
        }
        for (slot, (seconds, cpu_ns)) in slots {
            let cost = self.ended.entry(slot).or_default();
            cost.sampled.add(seconds, cpu_ns as f64);
        }
        for number in gone {
            if let Some(peer) = self.peers.remove(&number) {
                self.ended(number, peer, end);
            }
        }
        for cost in self.received.values_mut().chain(self.sent.values_mut()) {
            let open = std::mem::take(&mut cost.open);
            cost.messages.add(open);
        }
        for (slot, seen) in &kinds {
            self.kinds.entry(*slot).or_default().add(seen);
        }
        let mut thread_ns = None;
        let loop_ns = std::mem::take(&mut self.open_loop_ns);
        self.latest_threads.clear();
        for (name, mut cpu_ns) in std::mem::take(&mut self.open_threads) {
            let mut probes = 0;
            if name == MESSAGE_THREAD {
                probes = probes_ns.min(cpu_ns);
                cpu_ns -= probes;
                thread_ns = Some(cpu_ns);
            }
            if self.threads.len() >= MAX_TYPES && !self.threads.contains_key(&name) {
                continue;
            }
            let thread = self.threads.entry(name.clone()).or_default();
            thread.cpu_ns = thread.cpu_ns.saturating_add(cpu_ns);
            thread.probes_ns = thread.probes_ns.saturating_add(probes);
            thread.seconds += length;
            thread.peers_ns = thread.peers_ns.saturating_add(together);
            thread.loop_ns = thread.loop_ns.saturating_add(loop_ns);
            let latest = ThreadCost {
                cpu_ns,
                probes_ns: probes,
                seconds: length,
                peers_ns: together,
                loop_ns,
            };
            self.latest_threads.insert(name, latest);
        }
        let mut all = Seen::default();
        kinds.values().for_each(|seen| all.add(seen));
        let window = days::Sums {
            observed: length,
            span,
            peer_seconds: all.observed as f64 / SECOND,
            received: all.received.count,
            received_bytes: all.received.bytes,
            sent: all.sent.count,
            sent_bytes: all.sent.bytes,
            thread_ns: thread_ns.unwrap_or(0),
            thread_seconds: thread_ns.map_or(0.0, |_| length),
        };
        self.days.add(start, together, window);
        if self.timed {
            self.together.add(together as f64 / length, length);
            self.together_rate.add(length, together as f64);
            let points =
                self.time_line
                    .add(start, end, together as f64, thread_ns.unwrap_or(0) as f64);
            self.work = self.work.saturating_add(points as u64);
        }
    }
}

/// The user agent of a connection, if it is known.
fn agent(connection: &Connection) -> Option<String> {
    connection.user_agent.clone()
}

/// Peers that have left.
#[derive(Clone, Debug, Default)]
struct Left {
    peers: Vec<(i64, Peer)>,
    /// The cheaper ones that were dropped.
    more: u64,
    more_seen: Seen,
}

impl Left {
    fn add(&mut self, number: i64, peer: Peer) {
        self.peers.push((number, peer));
        if self.peers.len() < 2 * MAX_LEFT {
            return;
        }
        let cost = |peer: &Peer| (peer.seen.cpu_ns(), peer.seen.received.bytes);
        self.peers
            .sort_by_key(|(_, peer)| std::cmp::Reverse(cost(peer)));
        for (_, peer) in self.peers.drain(MAX_LEFT..) {
            self.more += 1;
            self.more_seen.add(&peer.seen);
        }
    }
}

/// Adds a connection to the costs of its kind.
fn finish(cost: &mut SlotCost, peer: &Peer, last: Time) {
    cost.seen.add(&peer.seen);
    cost.shares.merge(&peer.shares);
    if peer.is_short(last) {
        cost.short += 1;
        cost.short_cpu_ns = cost.short_cpu_ns.saturating_add(peer.seen.cpu_ns());
        return;
    }
    cost.connections += 1;
    let weight = peer.cpu.seconds();
    cost.cpu.add(peer.cpu.per_second(), weight);
    cost.receiving.add(peer.receiving.per_second(), weight);
    cost.sending.add(peer.sending.per_second(), weight);
}
