//! The cost of a set of slots, from the published round figures or from a recording.
//!
//! The model for a recording: the message thread sleeps until a message arrives, for at most 100
//! ms. Each time it wakes, it visits every peer. So
//!
//! ```text
//! cost per second = wake-ups x (sum over peers of a visit that finds nothing)
//!                 + sum over peers and types of messages x the cost of one
//!                 + transactions and blocks x the cost of one
//! ```
//!
//! The costs of a visit and of a message come from the recording, for each kind of peer. The
//! messages per peer stay constant. So with more peers there are more messages in total, the thread
//! wakes more often, and each wake-up visits more peers. Transactions and blocks reach a node once,
//! from any one peer: their number does not grow with the peers.
//!
//! If messages that wake the thread arrive at random at a rate of λ per second, it sleeps g(λ)
//! seconds at a time:
//!
//! ```text
//! g(λ)     = (1 - e^(-λ/10)) / λ
//! wake-ups = (1 - cost of messages) / (g(λ) + the visits of one wake-up)
//! ```
//!
//! λ is the rate that explains the recorded wake-ups, times the ratio of planned to recorded
//! messages.

use crate::format::{json, plural, time};
use crate::machine::{Slowdown, Work};
use crate::published;
use crate::tally::{Messages, ONCE, Slot, SlotCost, Tally};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// The kinds of slots in a plan.
const KINDS: [Slot; 4] = [
    Slot::OutboundFullRelay,
    Slot::OutboundBlockRelay,
    Slot::InboundFullRelay,
    Slot::InboundBlockRelay,
];

/// The message thread's longest sleep, in seconds.
const SLEEP: f64 = 0.1;

/// Framing of a message in bytes: the header of v1. With v2 it is 21 to 33.
const HEADER: f64 = 24.0;

/// Memory of the filters that Bitcoin Core keeps for a peer, in bytes: known transactions (50,000
/// at a false-positive rate of 10^-6) and known addresses (5000 at 10^-3).
const TX_FILTER: u64 = 539_000;
const ADDRESS_FILTER: u64 = 27_000;

/// Seconds in a month.
const MONTH: f64 = 2.63e6;

/// Buffers that a peer can fill, by Bitcoin Core's defaults: 5 MB to receive, 1 MB to send.
const BUFFERS: u64 = 6_000_000;

/// The number of slots of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Slots {
    /// Outbound full-relay.
    pub outbound: u64,
    /// Outbound block-relay-only.
    pub block_relay: u64,
    /// Inbound, from peers that want transactions.
    pub inbound_full_relay: u64,
    /// Inbound, from peers that want no transactions.
    pub inbound_block_relay: u64,
}

impl Slots {
    /// Bitcoin Core's current default with all slots used: half of the 189 inbound ones may relay.
    pub const TODAY: Self = Self::new(8, 2, 94, 95);

    /// The default of 2023 as measured: 91 of 114 inbound slots full-relay.
    pub const OF_2023: Self = Self::new(8, 2, 91, 23);

    /// The proposal of 2023: 189 inbound slots, of which 60 % (113) may relay. Its published cost
    /// of 46.4 ms follows from the published figures for 75 block-relay slots, 1 fewer than the 76
    /// that remain. So 75 is our interpretation.
    pub const PROPOSAL: Self = Self::new(8, 2, 113, 75);

    const fn new(outbound: u64, block_relay: u64, full: u64, block: u64) -> Self {
        Self {
            outbound,
            block_relay,
            inbound_full_relay: full,
            inbound_block_relay: block,
        }
    }

    /// Slots with a share of the inbound ones, from 0 to 1, that may relay. Rounds to the nearest
    /// number, halves down as in [`Slots::TODAY`].
    #[must_use]
    pub fn with_share(outbound: u64, block_relay: u64, inbound: u64, relay_share: f64) -> Self {
        let full = (inbound as f64 * relay_share.clamp(0.0, 1.0) - 0.5).ceil() as u64;
        Self::new(
            outbound,
            block_relay,
            full.min(inbound),
            inbound - full.min(inbound),
        )
    }

    fn of(&self, slot: Slot) -> u64 {
        match slot {
            Slot::OutboundFullRelay => self.outbound,
            Slot::OutboundBlockRelay => self.block_relay,
            Slot::InboundFullRelay => self.inbound_full_relay,
            Slot::InboundBlockRelay => self.inbound_block_relay,
            _ => 0,
        }
    }

    /// The total number of slots.
    #[must_use]
    pub fn all(&self) -> u64 {
        KINDS.iter().map(|slot| self.of(*slot)).sum()
    }
}

/// The cost of a set of slots.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The slots.
    pub slots: Slots,
    /// Mean CPU time of the message thread for all peers, in milliseconds per second.
    pub ms_per_second: f64,
    /// Lowest and highest mean within the uncertainty of the costs: the range of the published
    /// figures, or two standard errors of the recording. Does not include the model's own error.
    pub range_ms: (f64, f64),
    /// 95th percentile over windows. `None` with the published figures.
    pub p95_ms: Option<f64>,
    /// Wake-ups per second. `None` with the published figures.
    pub wake_ups: Option<f64>,
    /// Cost by kind. Excludes transactions and blocks if they are counted separately.
    pub kinds: Vec<Kind>,
    /// CPU microseconds per second for transactions and blocks, which come once whatever the number
    /// of peers, and its standard error. `None` with the published figures, where they are part of
    /// each kind.
    pub once_us: Option<(f64, f64)>,
    /// Payload and header bytes per second, in and out. `None` with the published figures.
    pub bytes_per_second: Option<(f64, f64)>,
    /// Memory that the filters of all peers always take, in bytes.
    pub memory: u64,
    /// Additional memory if all peers fill their buffers, in bytes.
    pub buffers: u64,
    /// How many times slower the target machine is than the measured one.
    pub slower: f64,
    /// The target machine, if one was named.
    pub machine: Option<OnMachine>,
    /// What the slots take in addition to Bitcoin Core's default. `None` for the default itself, or
    /// if its cost is not known.
    pub more: Option<More>,
    /// Where the costs come from, and the assumptions.
    pub notes: Vec<String>,
}

/// A plan's cost on another machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OnMachine {
    /// How much slower it is.
    #[serde(flatten)]
    pub slowdown: Slowdown,
    /// The mean cost at the lowest and highest factor, in milliseconds per second.
    pub range_ms: (f64, f64),
    /// The mean cost on a machine that is 70 % slower, as published in 2023 for a slow board.
    pub seventy_percent_slower_ms: f64,
}

impl OnMachine {
    /// Appends the lines of a plan about the machine.
    fn write_text(&self, out: &mut String) {
        let Slowdown {
            machine,
            measured_on,
            factor,
            by_work,
            published,
            ..
        } = &self.slowdown;
        let by_work = by_work.iter();
        let by_work = by_work.map(|(work, factor)| format!("{} {factor:.2}", work.name()));
        let mut by_work: Vec<_> = by_work.collect();
        if by_work.len() < Work::ALL.len() {
            by_work.push("hashing unknown".to_owned());
        }
        let _ = writeln!(
            out,
            "machine     {machine}: takes {factor:.2} times as long as {measured_on} ({}): {:.1} to \
             {:.1} ms/s between the lowest and highest factor{}",
            by_work.join(", "),
            self.range_ms.0,
            self.range_ms.1,
            match published {
                true => "; from published benchmarks, not measured by us",
                false => "",
            }
        );
        let _ = writeln!(
            out,
            "published   the estimate of 2023 for a slow board, 70 % slower ({:.2} times as long): \
             {:.1} ms/s",
            published::SLOW_BOARD,
            self.seventy_percent_slower_ms,
        );
    }
}

/// Plans for another machine. `plan` makes the plan for a machine that takes so many times as long.
///
/// # Errors
///
/// Those of `plan`.
pub fn plan_for<E>(slowdown: Slowdown, plan: impl Fn(f64) -> Result<Plan, E>) -> Result<Plan, E> {
    let ms = |factor| Ok(plan(factor)?.ms_per_second);
    let mut middle = plan(slowdown.factor)?;
    middle.machine = Some(OnMachine {
        range_ms: (ms(slowdown.range.0)?, ms(slowdown.range.1)?),
        seventy_percent_slower_ms: ms(published::SLOW_BOARD)?,
        slowdown,
    });
    Ok(middle)
}

/// The difference to a plan of Bitcoin Core's default slots, [`Slots::TODAY`]. Negative for less.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct More {
    /// Slots.
    pub slots: i64,
    /// CPU time of the message thread, in milliseconds per second.
    pub ms_per_second: f64,
    /// Bytes per second, in and out together. `None` with the published figures.
    pub bytes_per_second: Option<f64>,
    /// Memory that the filters always take, in bytes.
    pub memory: i64,
    /// Additional memory if all peers fill their buffers, in bytes.
    pub buffers: i64,
}

/// The cost of the slots of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Kind {
    /// The kind.
    pub slot: &'static str,
    /// How many.
    pub count: u64,
    /// CPU microseconds per second of one slot.
    pub us_per_second: f64,
    /// Its range, like [`Plan::range_ms`].
    pub range_us: (f64, f64),
    /// The part spent on visits that find nothing, in CPU microseconds per second. `None` with the
    /// published figures.
    pub idle_us: Option<f64>,
}

/// Why no plan can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// The recording has no peers.
    Empty,
    /// The recording has no CPU time per peer.
    NotTimed,
    /// The recording has no peers of this kind or a similar one.
    NoPeers(Slot),
    /// The recording has no peers known to be of this kind, but some of unknown kind.
    RelayUnknown {
        /// The kind that is missing.
        slot: Slot,
        /// How many peers may be of this kind.
        peers: u64,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let none_of = |slot: &Slot| match slot {
            Slot::OutboundFullRelay => "--outbound 0",
            Slot::OutboundBlockRelay => "--block-relay 0",
            Slot::InboundFullRelay => "--relay-share 0",
            _ => "--relay-share 1",
        };
        match self {
            Self::Empty => {
                f.write_str("the recording has no peers: record again while peers are connected")
            }
            Self::NotTimed => f.write_str(
                "the recording has no CPU time per peer to plan from: record with probes (`peers \
                 record` without --rpc, or with --rpc HOST:PORT --probes)",
            ),
            Self::NoPeers(slot) => write!(
                f,
                "the recording has no {} peers, nor similar ones: record while the node has some, \
                 or plan without them ({})",
                slot.name(),
                none_of(slot)
            ),
            Self::RelayUnknown { slot, peers } => write!(
                f,
                "the recording has no peers known to be {}; {peers} peers that were connected \
                 before it began may be, but it does not say whether they relay transactions: \
                 record with --rpc HOST:PORT --probes, which asks the node, or plan without them \
                 ({})",
                slot.name(),
                none_of(slot)
            ),
        }
    }
}

impl std::error::Error for PlanError {}

/// A plan from the round figures published in 2023. `slower` is how many times slower the target
/// machine is than the measured one.
#[must_use]
pub fn from_published(slots: Slots, slower: f64) -> Plan {
    let mut kinds = Vec::new();
    let (mut mean, mut low, mut high) = (0.0, 0.0, 0.0);
    for slot in KINDS {
        let Some(us) = published::planned_us(slot) else {
            continue;
        };
        let range = published::mean_us(slot).unwrap_or((us, us));
        // The round figure may lie outside the measured range.
        let range = (range.0.min(us), range.1.max(us));
        let count = slots.of(slot);
        mean += count as f64 * us;
        low += count as f64 * range.0;
        high += count as f64 * range.1;
        kinds.push(Kind {
            slot: slot.name(),
            count,
            us_per_second: us * slower,
            range_us: (range.0 * slower, range.1 * slower),
            idle_us: None,
        });
    }
    let (memory, buffers) = memory(slots);
    let ms = |us: f64| us * slower / 1e3;
    Plan {
        slots,
        ms_per_second: ms(mean),
        range_ms: (ms(low), ms(high)),
        p95_ms: None,
        wake_ups: None,
        kinds,
        once_us: None,
        bytes_per_second: None,
        memory,
        buffers,
        slower,
        machine: None,
        more: None,
        notes: vec![
            "costs: round figures published in 2023, a constant per slot; the range is that of \
             the means published with them"
                .into(),
            "constants ignore that every wake-up visits every peer: a recording of your node is \
             more accurate"
                .into(),
        ],
    }
}

/// Cost of the peers of one kind in a recording, in seconds of CPU time.
#[derive(Clone, Copy, Debug, Default)]
struct Costs {
    /// A visit that finds no message and sends nothing.
    idle_receive: f64,
    idle_send: f64,
    /// Messages processed per second, excluding those that come once, and the mean cost of one.
    messages: f64,
    message: f64,
    /// Messages sent per second, and the cost of one.
    sent: f64,
    sending: f64,
    /// Bytes per second with headers.
    bytes: (f64, f64),
    /// Relative standard error of the total.
    error: f64,
}

impl Costs {
    fn of(cost: &SlotCost, observed: f64) -> Option<Self> {
        let seen = &cost.seen;
        let seconds = seen.observed as f64 / 1e6;
        if seconds <= 0.0 || seen.receiving.count == 0 || seen.sending.count == 0 {
            return None;
        }
        let empty = seen
            .receiving
            .count
            .saturating_sub(seen.processed.count)
            .max(1);
        let all = seen.receiving.cost.cpu_ns;
        // A source may time the message within the call: the rest of the call is then idle.
        let idle = all.saturating_sub(seen.processed.cost.cpu_ns);
        let (once, once_cost) = (seen.once_processed.count, seen.once_processed.cost);
        let messages = seen.processed.count.saturating_sub(once);
        let processed = seen.processed.cost.cpu_ns.saturating_sub(once_cost.cpu_ns);
        let (visit, message) = cost.shares.each();
        let mean = cost.sampled.per_second();
        // Sampling error, and the variation between peers of this kind.
        let sampling = cost.sampled.error(observed).unwrap_or(mean);
        let spread = cost.cpu.deviation() / (cost.cpu.count().max(1) as f64).sqrt();
        Some(Self {
            idle_receive: idle as f64 / empty as f64 / 1e9,
            idle_send: visit / 1e9,
            messages: messages as f64 / seconds,
            message: match messages {
                0 => 0.0,
                count => processed as f64 / count as f64 / 1e9,
            },
            sent: seen.sent.count as f64 / seconds,
            sending: message / 1e9,
            bytes: (
                (on_the_wire(seen.received) - on_the_wire(seen.once)) / seconds,
                on_the_wire(seen.sent) / seconds,
            ),
            error: match mean > 0.0 {
                true => sampling.hypot(spread) / mean,
                false => 0.0,
            },
        })
    }

    fn visit(&self) -> f64 {
        self.idle_receive + self.idle_send
    }

    /// Seconds per second for messages, both ways. A visit that finds a message is not an idle one.
    fn busy(&self) -> f64 {
        self.messages * (self.message - self.idle_receive).max(0.0) + self.sent * self.sending
    }
}

/// Bytes of messages with headers.
fn on_the_wire(messages: Messages) -> f64 {
    messages.bytes as f64 + messages.count as f64 * HEADER
}

/// Messages that come once, whatever the number of peers, in a recording of this many seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Once {
    /// Messages per second.
    messages: f64,
    /// Seconds of CPU per second.
    cost: f64,
    /// Standard error of the cost, if arrivals are random.
    error: f64,
    /// Bytes per second with headers.
    bytes: f64,
}

impl Once {
    fn of(tally: &Tally, seconds: f64) -> Self {
        let mut once = Self::default();
        let mut variance = 0.0;
        for (message_type, cost) in tally.received(|_| true) {
            if !ONCE.contains(&message_type) {
                continue;
            }
            let count = cost.processed.count as f64;
            once.messages += count / seconds;
            once.cost += cost.processed.cost.cpu_ns as f64 / 1e9 / seconds;
            once.bytes += on_the_wire(cost.messages) / seconds;
            variance += count * (cost.cpu.mean().powi(2) + cost.cpu.deviation().powi(2));
        }
        once.error = variance.sqrt() / 1e9 / seconds;
        once
    }
}

/// A plan from the costs of a recording. `slower` is how many times slower the target machine is
/// than the recorded one.
///
/// # Errors
///
/// If the recording does not tell the cost of such slots.
pub fn from_recording(tally: &Tally, slots: Slots, slower: f64) -> Result<Plan, PlanError> {
    let recorded = tally.slots();
    let observed = tally.observed_share();
    let seconds = tally.observed();
    if recorded.values().all(SlotCost::is_empty) {
        return Err(PlanError::Empty);
    }
    if !tally.timed() || seconds <= 0.0 {
        return Err(PlanError::NotTimed);
    }
    let unknown = [Slot::Inbound, Slot::Unknown].map(|slot| {
        let cost = recorded.get(&slot);
        cost.map_or(0, |cost| cost.connections + cost.short)
    });
    let unknown: u64 = unknown.iter().sum();
    let mut notes = vec![format!(
        "costs: a recording of {}, {:.0} % of the time observed",
        time(seconds * 1e6),
        observed * 100.0
    )];
    if tally.untimed() > 0 {
        notes.push(format!(
            "too low: CPU times are missing in {} of {}",
            tally.untimed(),
            plural(tally.windows(), "window")
        ));
    }
    let costs = recorded
        .iter()
        .filter_map(|(slot, cost)| Some((*slot, Costs::of(cost, observed)?)));
    let costs: BTreeMap<Slot, Costs> = costs.collect();

    // In the recording: visits to a peer, time spent, and messages that can wake the thread.
    let (mut calls, mut connected, mut messages) = (0.0, 0.0, 0.0);
    for cost in recorded.values() {
        calls += cost.seen.sending.count as f64;
        connected += cost.seen.observed as f64 / 1e6;
        messages += cost.seen.processed.count as f64 / seconds;
    }
    let spent = tally.together_rate().per_second() / 1e9;
    let wake_ups = calls / connected;
    let sleep = ((1.0 - spent).max(0.0) / wake_ups).min(SLEEP);
    let waking = rate_of_sleep(sleep);
    notes.push(format!(
        "recorded: {} peers at a time, {wake_ups:.1} wake-ups/s, {messages:.1} messages/s, {} per \
         second for peers",
        (connected / seconds).round(),
        time(spent * 1e6),
    ));

    let mut kinds = Vec::new();
    let once = match slots.all() {
        0 => Once::default(),
        _ => Once::of(tally, seconds),
    };
    let (mut visits, mut busy, mut planned) = (0.0, once.cost * slower, once.messages);
    let mut bytes = (once.bytes, 0.0);
    for slot in KINDS {
        let count = slots.of(slot);
        let known = costs.get(&slot).copied();
        if known.is_none() && count == 0 {
            continue;
        }
        let cost = known.or_else(|| like(&costs, slot, &mut notes));
        let mut cost = cost.ok_or(match unknown {
            0 => PlanError::NoPeers(slot),
            peers => PlanError::RelayUnknown { slot, peers },
        })?;
        cost.idle_receive *= slower;
        cost.idle_send *= slower;
        cost.message *= slower;
        cost.sending *= slower;
        visits += count as f64 * cost.visit();
        busy += count as f64 * cost.busy();
        planned += count as f64 * cost.messages;
        bytes.0 += count as f64 * cost.bytes.0;
        bytes.1 += count as f64 * cost.bytes.1;
        kinds.push((slot, count, cost));
    }
    let waking = match messages > 0.0 {
        true => waking * planned / messages,
        false => waking,
    };
    let wake_ups = (1.0 - busy).max(0.0) / (sleep_of_rate(waking) + visits);
    if busy >= 1.0 {
        notes.push("the thread cannot keep up: the messages alone exceed its capacity".into());
    }

    let once_us = once.cost * slower * 1e6;
    let once_error = once.error * slower * 1e6;
    let (mut total, mut variance) = (once_us, once_error.powi(2));
    let kinds = kinds.into_iter().map(|(slot, count, cost)| {
        let idle = wake_ups * cost.visit() * 1e6;
        let us = idle + cost.busy() * 1e6;
        let error = us * cost.error;
        total += count as f64 * us;
        variance += (count as f64 * error).powi(2);
        Kind {
            slot: slot.name(),
            count,
            us_per_second: us,
            range_us: ((us - 2.0 * error).max(0.0), us + 2.0 * error),
            idle_us: Some(idle),
        }
    });
    let kinds = kinds.collect();
    let error = variance.sqrt();
    let together = tally.together();
    let bursts = match together.mean() > 0.0 {
        true => together.quantile(0.95) / together.mean(),
        false => 1.0,
    };
    notes.push(format!(
        "p95: assumed {bursts:.2} times the mean, as in the recording over windows of {}",
        time(seconds / tally.windows().max(1) as f64 * 1e6),
    ));
    notes.push(
        "model: cost = wake-ups x visits to all peers + messages x their cost by kind of peer + \
         transactions and blocks. Messages per peer are as recorded; transactions and blocks come \
         once, whatever the number of peers. The thread wakes for messages, which arrive at \
         random, and at least every 100 ms"
            .into(),
    );
    let (memory, buffers) = memory(slots);
    Ok(Plan {
        slots,
        ms_per_second: total / 1e3,
        range_ms: (
            (total - 2.0 * error).max(0.0) / 1e3,
            (total + 2.0 * error) / 1e3,
        ),
        p95_ms: Some(total / 1e3 * bursts),
        wake_ups: Some(wake_ups),
        kinds,
        once_us: Some((once_us, once_error)),
        bytes_per_second: Some(bytes),
        memory,
        buffers,
        slower,
        machine: None,
        more: None,
        notes,
    })
}

/// Costs of a similar kind, for a kind that the recording lacks.
fn like(costs: &BTreeMap<Slot, Costs>, slot: Slot, notes: &mut Vec<String>) -> Option<Costs> {
    let others = match slot {
        Slot::OutboundFullRelay => [Slot::Manual, Slot::InboundFullRelay],
        Slot::InboundFullRelay => [Slot::OutboundFullRelay, Slot::Manual],
        Slot::OutboundBlockRelay => [Slot::InboundBlockRelay; 2],
        _ => [Slot::OutboundBlockRelay; 2],
    };
    let mut others = others.into_iter();
    let (other, cost) = others.find_map(|other| Some((other, *costs.get(&other)?)))?;
    notes.push(format!(
        "no {} peers in the recording: costs of {} peers are used instead",
        slot.name(),
        other.name()
    ));
    Some(cost)
}

/// Mean sleep of the thread at this rate of messages that wake it, per second.
fn sleep_of_rate(rate: f64) -> f64 {
    match rate > 1e-9 {
        true => (1.0 - (-rate * SLEEP).exp()) / rate,
        false => SLEEP,
    }
}

/// Inverse of [`sleep_of_rate`], by bisection.
fn rate_of_sleep(sleep: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1e6);
    if sleep >= SLEEP {
        return 0.0;
    }
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        match sleep_of_rate(middle) > sleep {
            true => low = middle,
            false => high = middle,
        }
    }
    f64::midpoint(low, high)
}

/// Memory of the filters, and of full buffers.
fn memory(slots: Slots) -> (u64, u64) {
    let full = slots.outbound + slots.inbound_full_relay;
    let addresses = full + slots.inbound_block_relay;
    let filters = full * TX_FILTER + addresses * ADDRESS_FILTER;
    (filters, slots.all() * BUFFERS)
}

impl Plan {
    /// Adds the difference to `today`, a plan of [`Slots::TODAY`] from the same costs.
    pub fn compare(&mut self, today: &Self) {
        let less = |ours: u64, theirs: u64| ours.cast_signed().wrapping_sub(theirs.cast_signed());
        let bytes = |plan: &Self| {
            plan.bytes_per_second
                .map(|(received, sent)| received + sent)
        };
        self.more = (self.slots != today.slots).then(|| More {
            slots: less(self.slots.all(), today.slots.all()),
            ms_per_second: self.ms_per_second - today.ms_per_second,
            bytes_per_second: bytes(self)
                .zip(bytes(today))
                .map(|(ours, theirs)| ours - theirs),
            memory: less(self.memory, today.memory),
            buffers: less(self.buffers, today.buffers),
        });
    }

    /// Renders the plan as text for the terminal.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let (low, high) = self.range_ms;
        let _ = writeln!(
            out,
            "{} slots: {:.1} ms of CPU per second ({low:.1} to {high:.1}), {:.1} % of a core{}",
            self.slots.all(),
            self.ms_per_second,
            self.ms_per_second / 10.0,
            match self.p95_ms {
                Some(p95) => format!("; p95 {p95:.1} ms"),
                None => "; p95 was not published".into(),
            }
        );
        let mut cells =
            vec![["", "slots", "us/s each", "range", "idle part", "ms/s total"].map(String::from)];
        for kind in &self.kinds {
            cells.push([
                kind.slot.to_owned(),
                kind.count.to_string(),
                format!("{:.0}", kind.us_per_second),
                format!("{:.0}-{:.0}", kind.range_us.0, kind.range_us.1),
                kind.idle_us.map_or("-".into(), |us| format!("{us:.0}")),
                format!("{:.1}", kind.us_per_second * kind.count as f64 / 1e3),
            ]);
        }
        if let Some((us, error)) = self.once_us {
            cells.push([
                "transactions and blocks".into(),
                String::new(),
                format!("{us:.0}"),
                format!("{:.0}-{:.0}", (us - 2.0 * error).max(0.0), us + 2.0 * error),
                String::new(),
                format!("{:.1}", us / 1e3),
            ]);
        }
        crate::show::text::lines(&mut out, &cells);
        if let Some(wake_ups) = self.wake_ups {
            let _ = writeln!(
                out,
                "wake-ups    {wake_ups:.1} per second, each visits every peer"
            );
        }
        let mb = |bytes: u64| bytes as f64 / 1e6;
        let _ = writeln!(
            out,
            "memory      {:.0} MB for filters of known transactions and addresses; up to {:.0} MB \
             more if every peer fills its buffers",
            mb(self.memory),
            mb(self.buffers),
        );
        let _ = match self.bytes_per_second {
            Some((received, sent)) => writeln!(
                out,
                "bandwidth   {:.1} kB/s in, {:.1} kB/s out ({:.1} and {:.1} GB a month), \
                 including 24 bytes of header per message",
                received / 1e3,
                sent / 1e3,
                received * MONTH / 1e9,
                sent * MONTH / 1e9,
            ),
            None => writeln!(
                out,
                "bandwidth   not published; plan from a recording to get it"
            ),
        };
        if let Some(more) = &self.more {
            let _ = writeln!(
                out,
                "more        than today's default of {} slots: {:+} slots, {:+.1} ms/s, {}{:+.0} MB \
                 ({:+.0} MB with full buffers)",
                Slots::TODAY.all(),
                more.slots,
                more.ms_per_second,
                more.bytes_per_second.map_or(String::new(), |bytes| format!(
                    "{:+.1} GB a month, ",
                    bytes * MONTH / 1e9
                )),
                more.memory as f64 / 1e6,
                (more.memory + more.buffers) as f64 / 1e6,
            );
        }
        if let Some(machine) = &self.machine {
            machine.write_text(&mut out);
        } else if (self.slower - 1.0).abs() > 1e-9 {
            let _ = writeln!(
                out,
                "machine     {:.2} times slower than the measured one",
                self.slower
            );
        }
        for note in &self.notes {
            let _ = writeln!(out, "- {note}");
        }
        out
    }

    /// Indented JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        json(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_figures_give_the_published_plans() {
        for (slots, ms) in [
            (Slots::OF_2023, 34.6),
            (Slots::PROPOSAL, 46.4),
            (Slots::TODAY, 42.7),
        ] {
            let plan = from_published(slots, 1.0);
            assert!(
                (plan.ms_per_second - ms).abs() < 1e-9,
                "{}",
                plan.ms_per_second
            );
            let (low, high) = plan.range_ms;
            assert!(low < ms && ms < high);
            let slow = from_published(slots, 1.0 / 0.3);
            assert!((slow.ms_per_second - ms / 0.3).abs() < 1e-9);
        }
        assert_eq!(Slots::with_share(8, 2, 189, 0.5), Slots::TODAY);
        assert_eq!(Slots::with_share(8, 2, 188, 0.6), Slots::PROPOSAL);
        for (inbound, share, full) in [(0, 0.5, 0), (3, 0.0, 0), (3, 1.0, 3), (3, 0.5, 1)] {
            let slots = Slots::with_share(0, 0, inbound, share);
            assert_eq!(slots.inbound_full_relay, full, "{inbound} {share}");
            assert_eq!(slots.all(), inbound);
        }
        assert_eq!(Slots::TODAY.all(), 199);
        let text = from_published(Slots::OF_2023, 1.0).to_text();
        assert!(
            text.starts_with("124 slots: 34.6 ms of CPU per second"),
            "{text}"
        );
    }

    #[test]
    fn sleep_and_rate_are_inverse() {
        for rate in [0.1, 1.0, 10.0, 500.0] {
            let found = rate_of_sleep(sleep_of_rate(rate));
            assert!((found / rate - 1.0).abs() < 1e-6, "{rate}: {found}");
        }
        assert_eq!(rate_of_sleep(0.2), 0.0);
        assert_eq!(sleep_of_rate(0.0), SLEEP);
    }
}
