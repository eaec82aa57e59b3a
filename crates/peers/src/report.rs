//! The figures of a report, computed from a [`Tally`]. Serialized as JSON for other programs;
//! [`crate::show`] renders them as text and HTML.

mod compare;
mod days;
mod rows;

use crate::format::json;
use crate::hints::hints;
use crate::published;
use crate::row::PeerRow;
use crate::statistics::Distribution;
use crate::tally::{Messages, Peer, Slot, Tally, TypeCost};
pub use days::DayRow;
pub use rows::{
    BlockRow, Blocks, Compared, Figures, GroupRow, MAX_BLOCK_ROWS, MAX_ROWS, Published, Report,
    SCHEMA, Short, SlotRow, StallRow, Step, Thread, TimePoint, TypeRow,
};
use std::collections::BTreeMap;

impl Report {
    /// The report of everything in a tally.
    #[must_use]
    pub fn of(tally: &Tally) -> Self {
        let observed = tally.observed_share();
        let seconds = tally.observed();
        let per_second = |amount: f64| match seconds > 0.0 {
            true => amount / seconds,
            false => 0.0,
        };
        let thread = tally.message_thread().map(|thread| Thread {
            us_per_second: thread.cpu_ns as f64 / 1e3 / thread.seconds,
            probes_us_per_second: thread.probes_ns as f64 / 1e3 / thread.seconds,
            peers_us_per_second: thread.peers_ns as f64 / 1e3 / thread.seconds,
            loop_us_per_second: thread.loop_ns as f64 / 1e3 / thread.seconds,
            unaccounted_us_per_second: thread.unaccounted_ns() as f64 / 1e3 / thread.seconds,
            unaccounted: thread.unaccounted(),
        });
        // The threads of a pool are numbered: b-http.00, b-http.01, ...
        let mut threads: BTreeMap<&str, f64> = BTreeMap::new();
        for (name, cost) in tally.threads() {
            let pool = name.split('.').next().unwrap_or(name);
            *threads.entry(pool).or_default() += cost.cpu_ns as f64 / 1e3 / cost.seconds;
        }

        let slots = tally.slots();
        let counted = tally.counted();
        let mut short = Short::default();
        let (mut short_ns, mut all_ns) = (0.0, 0.0);
        let mut rows = Vec::new();
        for slot in Slot::ALL {
            let Some(cost) = slots.get(&slot).filter(|cost| !cost.is_empty()) else {
                continue;
            };
            short.connections += cost.short;
            short.of += cost.short + cost.connections;
            short_ns += cost.short_cpu_ns as f64;
            all_ns += cost.seen.cpu_ns() as f64;
            let connected = cost.seen.observed as f64 / 1e6;
            let each = |amount: u64| match connected > 0.0 {
                true => amount as f64 / connected,
                false => 0.0,
            };
            let timed = tally.timed() && cost.cpu.count() > 0;
            rows.push(SlotRow {
                slot: slot.name(),
                connections: cost.connections,
                short: cost.short,
                cpu: timed.then(|| Figures::of(&cost.cpu, tally.error(&cost.sampled))),
                receiving: timed.then(|| cost.receiving.mean() / 1e3),
                sending: timed.then(|| cost.sending.mean() / 1e3),
                received_per_second: counted.then(|| each(cost.seen.received.count)),
                sent_per_second: counted.then(|| each(cost.seen.sent.count)),
                received_bytes_per_second: each(cost.seen.received.bytes),
                sent_bytes_per_second: each(cost.seen.sent.bytes),
                published: published::mean_us(slot),
            });
        }
        if tally.timed() && all_ns > 0.0 {
            short.cpu_share = Some(short_ns / all_ns);
        }

        let mut all: Vec<_> = tally.peers().chain(tally.left()).collect();
        let cost = |(_, peer): &(i64, &Peer)| {
            let bytes = peer
                .seen
                .received
                .bytes
                .saturating_add(peer.seen.sent.bytes);
            (peer.seen.cpu_ns(), bytes)
        };
        all.sort_by_key(|one| std::cmp::Reverse(cost(one)));
        let more_peers = all.len().saturating_sub(MAX_ROWS) as u64 + tally.left_more().0;
        let peers = all.into_iter().take(MAX_ROWS);
        let peers = peers.map(|(number, peer)| PeerRow::of(tally, number, peer, &peer.seen, true));

        let mut types = Vec::new();
        for (relay, name) in [
            (Some(true), "full-relay"),
            (Some(false), "block-relay"),
            (None, "not known yet"),
        ] {
            let of = |slot: Slot| slot.full_relay() == relay;
            let row = |direction, (kind, cost): (&str, TypeCost)| TypeRow {
                relay: name,
                direction,
                message_type: kind.to_owned(),
                count: counted.then_some(cost.messages.count),
                bytes: cost.messages.bytes,
                cpu: (cost.cpu.count() > 0).then(|| Figures::of(&cost.cpu, None)),
                wall_mean: (cost.processed.count > 0).then(|| {
                    cost.processed.cost.wall_ns as f64 / cost.processed.count as f64 / 1e3
                }),
                us_per_second: (cost.cpu.count() > 0)
                    .then(|| per_second(cost.processed.cost.cpu_ns as f64 / 1e3)),
                letters: letters(&cost.cpu),
            };
            let sorted = |costs: BTreeMap<&str, TypeCost>, direction| {
                let any = |cost: &(&str, TypeCost)| cost.1.messages != Messages::default();
                let costs = costs.into_iter().filter(any);
                let mut rows: Vec<_> = costs.map(|cost| row(direction, cost)).collect();
                let cost = |row: &TypeRow| (row.us_per_second.unwrap_or(0.0), row.bytes as f64);
                rows.sort_by(|a, b| {
                    let (a, b) = (cost(a), cost(b));
                    b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1))
                });
                rows
            };
            types.extend(sorted(tally.received(of), "received"));
            types.extend(sorted(tally.sent(of), "sent"));
        }

        let line = tally.time_line();
        let offset = tally
            .times()
            .map_or(0, |(first, _)| line.start.saturating_sub(first));
        let points = line.points.iter().zip(0_u64..);
        let time_line = points.map(|(point, place)| {
            let middle = line
                .width
                .saturating_mul(place)
                .saturating_add(line.width / 2);
            let rate = |ns: f64| (point.observed > 0.0).then(|| ns / 1e3 / point.observed);
            TimePoint {
                seconds: (offset.saturating_add(middle)) as f64 / 1e6,
                peers: rate(point.peers_ns),
                thread: thread.and_then(|_| rate(point.thread_ns)),
            }
        });

        Self {
            schema: SCHEMA,
            report: "peers",
            times: tally.times(),
            observed_seconds: seconds,
            observed_share: observed,
            windows: tally.windows(),
            window_seconds: match tally.windows() {
                0 => 0.0,
                windows => seconds / windows as f64,
            },
            untimed_windows: tally.untimed(),
            lost: tally.lost(),
            stolen: tally.stolen(),
            counted,
            together: tally
                .timed()
                .then(|| Figures::of(tally.together(), tally.error(tally.together_rate()))),
            thread,
            threads: threads
                .into_iter()
                .map(|(name, us)| (name.to_owned(), us))
                .collect(),
            slots: rows,
            peers: peers.collect(),
            more_peers,
            hints: hints(tally),
            agents: GroupRow::all(tally.agents(), tally.timed(), seconds),
            subnets: GroupRow::all(tally.subnets(), tally.timed(), seconds),
            blocks: Blocks::of(tally),
            short,
            types,
            compared: Vec::new(),
            time_line: time_line.collect(),
            days: days::rows(tally),
            earlier_days_dropped: tally.days().are_incomplete(),
            published: Published {
                source: published::SOURCE,
                together_ms: published::TOGETHER_MS,
                worst_ms: published::WORST_MS,
                tx_us: published::TX_US,
            },
        }
    }

    /// Adds the comparison with another recording.
    pub fn compare(&mut self, before: &Self) {
        self.compared = compare::compare(self, before);
    }

    /// As indented JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        json(self)
    }
}

/// Letter values, in microseconds, of a distribution in nanoseconds: the median, then pairs that
/// leave a fourth, an eighth, a sixteenth, ... outside, as long as at least 10 values are outside.
fn letters(cpu: &Distribution) -> Vec<(f64, f64)> {
    let at = |share: f64| (share, cpu.quantile(share) / 1e3);
    let mut letters = Vec::new();
    if cpu.count() == 0 {
        return letters;
    }
    letters.push(at(0.5));
    let mut outside = 0.25;
    while outside * cpu.count() as f64 >= 10.0 && outside > 1e-4 {
        letters.push(at(outside));
        letters.push(at(1.0 - outside));
        outside /= 2.0;
    }
    letters.sort_by(|a, b| a.0.total_cmp(&b.0));
    letters
}
