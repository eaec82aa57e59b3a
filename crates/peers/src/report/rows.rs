//! The figures of a report.

use super::days::DayRow;
use crate::blocks::{Block, By, Stall};
use crate::hints::Hint;
use crate::record::Time;
use crate::row::PeerRow;
use crate::statistics::Distribution;
use crate::tally::{GroupCost, Peer, Tally};
use packetlane_p2p::payload::BlockHash;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Version of the JSON schema.
pub const SCHEMA: u32 = 2;

/// Maximum number of peers in a report: the costliest.
pub const MAX_ROWS: usize = 500;

/// Maximum number of blocks in a report: the latest.
pub const MAX_BLOCK_ROWS: usize = 100;

/// All figures of a report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Always `peers`: the kind of report.
    pub report: &'static str,
    /// The time of the first record and of the last, in microseconds since 1970.
    pub times: Option<(Time, Time)>,
    /// How much of that time was observed, in seconds.
    pub observed_seconds: f64,
    /// Share of the time that was observed, from 0 to 1. Below 1 if the source samples.
    pub observed_share: f64,
    /// Number of windows.
    pub windows: u64,
    /// Those without CPU times of peers. They count as windows in which no peer cost anything.
    pub untimed_windows: u64,
    /// The mean length of a window, in seconds.
    pub window_seconds: f64,
    /// Events that the source lost.
    pub lost: u64,
    /// Steal time: the share of the observed time, from 0 to 1, that a hypervisor withheld from the
    /// machine's CPUs.
    pub stolen: f64,
    /// Whether messages were counted. False if the source reports bytes only.
    pub counted: bool,
    /// CPU microseconds per second of all peers together, a value for each window. `None` if the
    /// source does not measure time per peer.
    pub together: Option<Figures>,
    /// The message thread's own time.
    pub thread: Option<Thread>,
    /// The node's threads with their CPU microseconds per second. The threads of a pool are one
    /// entry.
    pub threads: Vec<(String, f64)>,
    /// Cost of connections by kind.
    pub slots: Vec<SlotRow>,
    /// The peers, connected at the end or not: the costliest, or those with most bytes if the source
    /// does not measure time per peer.
    pub peers: Vec<PeerRow>,
    /// How many more peers there were.
    pub more_peers: u64,
    /// What could be done about peers that cost much, as of the end.
    pub hints: Vec<Hint>,
    /// Cost of connections by the peers' user agent. Sorted like `peers`, by the sum.
    pub agents: Vec<GroupRow>,
    /// Cost of connections by part of the network: 16 bits of an IPv4 address, 32 of an IPv6 one.
    pub subnets: Vec<GroupRow>,
    /// Blocks. `None` if the source does not see them.
    pub blocks: Option<Blocks>,
    /// Connections shorter than a minute.
    pub short: Short,
    /// Messages by type.
    pub types: Vec<TypeRow>,
    /// The figures beside those of another recording, if [`Report::compare`] was called.
    pub compared: Vec<Compared>,
    /// All peers together, over time.
    pub time_line: Vec<TimePoint>,
    /// Figures of each day (UTC), oldest first. Empty for a recording of a single day.
    pub days: Vec<DayRow>,
    /// Whether there are more days, which are older than those listed.
    pub earlier_days_dropped: bool,
    /// Published figures, for comparison.
    pub published: Published,
}

/// Summary of a distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// The mean.
    pub mean: f64,
    /// Standard error of the mean due to sampling. `None` with too few windows, and for messages,
    /// all of which are timed within a window.
    pub error: Option<f64>,
    /// The median, accurate to 1 %.
    pub median: f64,
    /// The 95th percentile, accurate to 1 %.
    pub p95: f64,
    /// The largest.
    pub worst: f64,
    /// The standard deviation.
    pub sd: f64,
}

impl Figures {
    /// Converts a distribution from nanoseconds to microseconds.
    pub(super) fn of(distribution: &Distribution, error_ns: Option<f64>) -> Self {
        Self {
            error: error_ns.map(|ns| ns / 1e3),
            ..Self::scaled(distribution, 1e3)
        }
    }

    /// A distribution, its values divided by `unit`.
    fn scaled(distribution: &Distribution, unit: f64) -> Self {
        Self {
            mean: distribution.mean() / unit,
            error: None,
            median: distribution.quantile(0.5) / unit,
            p95: distribution.quantile(0.95) / unit,
            worst: distribution.max() / unit,
            sd: distribution.deviation() / unit,
        }
    }
}

/// CPU time of the message thread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Thread {
    /// Its run time without the probes' share, in CPU microseconds per second.
    pub us_per_second: f64,
    /// Overhead of the probes, in CPU microseconds per second of observed time.
    pub probes_us_per_second: f64,
    /// Sum over all peers in the same windows.
    pub peers_us_per_second: f64,
    /// The thread's loop, not attributed to any peer: waiting for work, waking up, iterating over
    /// the peers.
    pub loop_us_per_second: f64,
    /// Run time that is neither.
    pub unaccounted_us_per_second: f64,
    /// The same as a share of the run time, from 0 to 1.
    pub unaccounted: f64,
}

/// Cost of the connections of one kind, in CPU microseconds per second. Averaged over connections
/// of at least a minute, weighted by how long each was observed.
#[derive(Clone, Debug, Serialize)]
pub struct SlotRow {
    /// The kind.
    pub slot: &'static str,
    /// Connections of at least a minute.
    pub connections: u64,
    /// Connections shorter than a minute.
    pub short: u64,
    /// Cost of receiving and sending.
    pub cpu: Option<Figures>,
    /// Mean cost of receiving.
    pub receiving: Option<f64>,
    /// Mean cost of sending.
    pub sending: Option<f64>,
    /// Messages per second from a peer. `None` if the source does not count them.
    pub received_per_second: Option<f64>,
    /// Messages per second to a peer. `None` if the source does not count them.
    pub sent_per_second: Option<f64>,
    /// Bytes per second from a peer.
    pub received_bytes_per_second: f64,
    /// Bytes per second to a peer.
    pub sent_bytes_per_second: f64,
    /// Lowest and highest mean published in 2023.
    pub published: Option<(f64, f64)>,
}

/// Cost of the connections of one group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupRow {
    /// What they have in common. A user agent is untrusted text: the peer chooses it.
    pub name: String,
    /// Connections of at least a minute.
    pub connections: u64,
    /// Connections shorter than a minute.
    pub short: u64,
    /// Cost of receiving and sending, as in [`SlotRow`]. `None` if the source does not measure time
    /// per peer.
    pub cpu: Option<Figures>,
    /// CPU microseconds per second of observed time of all of them, short ones included.
    pub us_per_second: Option<f64>,
    /// Bytes of messages per second of observed time, in both directions, of all of them.
    pub bytes_per_second: f64,
}

impl GroupRow {
    pub(super) fn all(groups: BTreeMap<String, GroupCost>, timed: bool, seconds: f64) -> Vec<Self> {
        let row = |(name, cost): (String, GroupCost)| {
            let bytes = cost
                .seen
                .received
                .bytes
                .saturating_add(cost.seen.sent.bytes);
            let seconds = seconds.max(f64::MIN_POSITIVE);
            Self {
                name,
                connections: cost.connections,
                short: cost.short,
                cpu: (timed && cost.connections > 0).then(|| Figures::of(&cost.cpu, None)),
                us_per_second: timed.then(|| cost.seen.cpu_ns() as f64 / 1e3 / seconds),
                bytes_per_second: bytes as f64 / seconds,
            }
        };
        let mut rows: Vec<Self> = groups.into_iter().map(row).collect();
        let key = |row: &Self| row.us_per_second.unwrap_or(row.bytes_per_second);
        rows.sort_by(|one, other| key(other).total_cmp(&key(one)));
        rows
    }
}

/// Blocks: who announced and delivered them, and who stalled.
#[derive(Clone, Debug, Serialize)]
pub struct Blocks {
    /// Blocks that the node connected.
    pub connected: u64,
    /// Of these, those that came as `cmpctblock`.
    pub compact: u64,
    /// Of these, those that lacked no transaction.
    pub complete: u64,
    /// Transactions that the others lacked, in total.
    pub missing: u64,
    /// Transactions of all that came as `cmpctblock`.
    pub transactions: u64,
    /// Seconds from the first announcement until a block was connected.
    pub took_seconds: Figures,
    /// Milliseconds that connecting a block took, without fetching it.
    pub connecting_ms: Figures,
    /// Stalls that have ended.
    pub stalls: u64,
    /// The stalls, those that go on first, then the latest.
    pub stall_rows: Vec<StallRow>,
    /// The blocks, the latest first.
    pub rows: Vec<BlockRow>,
}

/// A request that was unanswered for more than ten seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StallRow {
    /// The node's id of the peer.
    pub peer: i64,
    /// Its address, if known.
    pub address: Option<String>,
    /// The block's hash.
    pub block: String,
    /// The block's height, once it is connected.
    pub height: Option<u64>,
    /// When the node asked.
    pub since: Time,
    /// How long it has been unanswered.
    pub seconds: f64,
    /// Whether the node still waits.
    pub goes_on: bool,
}

/// A block that the node requested or connected.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BlockRow {
    /// Its hash.
    pub block: String,
    /// Its height, once it is connected.
    pub height: Option<u64>,
    /// The first announcement.
    pub announced: Option<Step>,
    /// Number of peers that announced it before it was connected, at most 16.
    pub announcements: u64,
    /// The peers that were asked for it.
    pub requested: Vec<i64>,
    /// The message that completed it.
    pub delivered: Option<Step>,
    /// The transactions that its compact form lacked. `None` if it came whole.
    pub missing: Option<u64>,
    /// Seconds from the first announcement until it was connected.
    pub took_seconds: Option<f64>,
}

/// A message about a block.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Step {
    /// The node's id of the peer.
    pub peer: i64,
    /// When it came.
    pub time: Time,
    /// Its type.
    pub message: &'static str,
}

impl Step {
    fn of(by: By) -> Self {
        Self {
            peer: by.peer,
            time: by.time,
            message: by.step.message_type(),
        }
    }
}

impl BlockRow {
    fn of((hash, block): (BlockHash, &Block)) -> Self {
        let mut requested: Vec<i64> = block.requests.iter().map(|one| one.by.peer).collect();
        requested.dedup();
        Self {
            block: hash.to_string(),
            height: block.height,
            announced: block.announced().map(Step::of),
            announcements: block.announcers.len() as u64,
            requested,
            delivered: block.delivered.map(Step::of),
            missing: block.missing(),
            took_seconds: block.took().map(|us| us as f64 / 1e6),
        }
    }
}

impl StallRow {
    /// A stall, as of `now`.
    #[must_use]
    pub fn of(tally: &Tally, stall: &Stall, now: Time) -> Self {
        let address =
            |(_, peer): (i64, &Peer)| peer.connection.as_ref().map(|known| known.address.clone());
        let mut all = tally.peers().chain(tally.left());
        // Ids repeat after a restart of the node.
        let found = all.find(|(number, peer)| {
            *number == stall.peer
                && peer.since <= stall.since
                && peer.gone().is_none_or(|gone| gone >= stall.since)
        });
        Self {
            peer: stall.peer,
            address: found.and_then(address),
            block: stall.block.to_string(),
            height: tally
                .blocks()
                .get(stall.block)
                .and_then(|block| block.height),
            since: stall.since,
            seconds: stall.ended.unwrap_or(now).saturating_sub(stall.since) as f64 / 1e6,
            goes_on: stall.ended.is_none(),
        }
    }
}

impl Blocks {
    pub(super) fn of(tally: &Tally) -> Option<Self> {
        let blocks = tally.blocks();
        let now = tally.times().map_or(0, |(_, now)| now);
        let sums = blocks.sums();
        let mut latest: Vec<_> = blocks.latest().collect();
        // When it was connected, or else requested last.
        latest.sort_by_key(|(_, block)| {
            let requested = block.requests.last().map(|one| one.by.time);
            Reverse((block.connected.or(requested), block.height))
        });
        let rows: Vec<BlockRow> = latest
            .into_iter()
            .take(MAX_BLOCK_ROWS)
            .map(BlockRow::of)
            .collect();
        if rows.is_empty() {
            return None;
        }
        let mut ended: Vec<Stall> = blocks.stalls().collect();
        ended.reverse();
        let stalls = blocks.stalling(now).into_iter().chain(ended);
        Some(Self {
            connected: sums.connected,
            compact: sums.compact,
            complete: sums.complete,
            missing: sums.missing,
            transactions: sums.transactions,
            took_seconds: Figures::scaled(&sums.took, 1e6),
            connecting_ms: Figures::scaled(&sums.connecting, 1e6),
            stalls: sums.stalls,
            stall_rows: stalls
                .map(|stall| StallRow::of(tally, &stall, now))
                .collect(),
            rows,
        })
    }
}

/// Connections shorter than a minute, which the other figures leave out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Short {
    /// How many.
    pub connections: u64,
    /// Number of all connections.
    pub of: u64,
    /// Their share of the peers' CPU time, from 0 to 1. `None` if the source does not measure time
    /// per peer.
    pub cpu_share: Option<f64>,
}

/// Messages of one type.
#[derive(Clone, Debug, Serialize)]
pub struct TypeRow {
    /// `full-relay`, `block-relay`, or `not known yet` if the peer's `version` was not seen.
    pub relay: &'static str,
    /// `received` or `sent`.
    pub direction: &'static str,
    /// The type.
    #[serde(rename = "type")]
    pub message_type: String,
    /// Number of messages. `None` if the source does not count them.
    pub count: Option<u64>,
    /// Bytes of payload, or on the wire if messages are not counted.
    pub bytes: u64,
    /// CPU microseconds to process one. Only for received messages, if the source measures it.
    pub cpu: Option<Figures>,
    /// Mean wall time in microseconds. Exceeds the CPU time where the thread waited.
    pub wall_mean: Option<f64>,
    /// CPU microseconds per second for all of them.
    pub us_per_second: Option<f64>,
    /// Letter values for a boxen plot (median, fourths, eighths, ...): the share of values below,
    /// and the value in microseconds.
    pub letters: Vec<(f64, f64)>,
}

/// Cost of all peers together in one interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TimePoint {
    /// Seconds since the first record.
    pub seconds: f64,
    /// CPU microseconds per second of all peers. `None` where nothing was observed.
    pub peers: Option<f64>,
    /// The same of the message thread. `None` if it was not seen.
    pub thread: Option<f64>,
}

/// Published figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Published {
    /// Where they come from.
    pub source: &'static str,
    /// Lowest and highest mean of all peers together, in milliseconds per second.
    pub together_ms: (f64, f64),
    /// Approximate worst second, in milliseconds.
    pub worst_ms: f64,
    /// Approximate median time to process a `tx`, in microseconds.
    pub tx_us: f64,
}

/// A figure of two recordings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// What it is.
    pub what: String,
    /// Its unit.
    pub unit: &'static str,
    /// Its value in the other recording. `None` if that has none.
    pub before: Option<f64>,
    /// Its value in this recording. `None` if it has none.
    pub now: Option<f64>,
    /// Whether the two differ by more than two standard errors of sampling. `None` where an error is
    /// unknown.
    pub differs: Option<bool>,
}

impl Compared {
    /// How many times the other recording's value this one's is.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        let (now, before) = (self.now?, self.before?);
        (before > 0.0).then(|| now / before)
    }
}
