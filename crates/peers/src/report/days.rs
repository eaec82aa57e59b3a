//! The figures of each day.

use crate::format::date;
use crate::tally::{Day, Tally};
use serde::Serialize;

/// One day (UTC).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DayRow {
    /// The date, as in 2026-11-20.
    pub date: String,
    /// How much of it was recorded, in hours: windows and the time between them.
    pub recorded_hours: f64,
    /// Share of the recorded time that was observed, from 0 to 1.
    pub observed_share: f64,
    /// Mean number of connected peers.
    pub peers: f64,
    /// CPU microseconds per second of all peers together. `None` if the source does not measure time
    /// per peer.
    pub cpu_mean: Option<f64>,
    /// The 95th percentile of the same over windows, accurate to 1 %.
    pub cpu_p95: Option<f64>,
    /// CPU microseconds per second of the message thread by its own clock. `None` if it was not seen.
    pub thread: Option<f64>,
    /// Messages from all peers in 24 hours at the rate of the observed time. `None` if the source
    /// does not count them.
    pub received_per_day: Option<f64>,
    /// Messages to all peers, likewise.
    pub sent_per_day: Option<f64>,
    /// Bytes from all peers, likewise.
    pub received_bytes_per_day: f64,
    /// Bytes to all peers, likewise.
    pub sent_bytes_per_day: f64,
    /// Blocks that were connected, inside and outside of windows.
    pub blocks: u64,
    /// Median of the seconds from the first announcement until a block was connected, accurate to
    /// 1 %. `None` without an announced one.
    pub block_seconds: Option<f64>,
}

/// The days of a recording, oldest first. None if it does not span more than one.
pub(super) fn rows(tally: &Tally) -> Vec<DayRow> {
    let rows = tally
        .days()
        .iter()
        .map(|(number, day)| row(tally, number, day));
    let rows: Vec<_> = rows.collect();
    match rows.len() {
        1 => Vec::new(),
        _ => rows,
    }
}

fn row(tally: &Tally, number: u64, day: &Day) -> DayRow {
    let Day {
        together,
        blocks,
        took,
        sums,
    } = day;
    let per_day = |amount: u64| amount as f64 / sums.observed * 86_400.0;
    let counted = tally.counted();
    let share = sums.observed / sums.span.max(sums.observed);
    let thread = sums.thread_ns as f64 / 1e3 / sums.thread_seconds;
    DayRow {
        date: date(number),
        recorded_hours: sums.span / 3600.0,
        // Consecutive windows are a few microseconds apart.
        observed_share: if share > 0.98 { 1.0 } else { share },
        peers: sums.peer_seconds / sums.observed,
        cpu_mean: tally.timed().then(|| together.mean() / 1e3),
        cpu_p95: tally.timed().then(|| together.quantile(0.95) / 1e3),
        thread: (sums.thread_seconds > 0.0).then_some(thread),
        received_per_day: counted.then(|| per_day(sums.received)),
        sent_per_day: counted.then(|| per_day(sums.sent)),
        received_bytes_per_day: per_day(sums.received_bytes),
        sent_bytes_per_day: per_day(sums.sent_bytes),
        blocks: *blocks,
        block_seconds: (took.count() > 0).then(|| took.quantile(0.5) / 1e6),
    }
}
