//! Sums by day (UTC).

use crate::record::Time;
use crate::statistics::Distribution;
use std::collections::BTreeMap;

/// Maximum number of days. Earlier ones are dropped.
pub const MAX_DAYS: usize = 400;

/// Microseconds in a day.
const DAY: Time = 86_400_000_000;

/// What was observed of all peers and of the message thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    /// Observed time, in seconds.
    pub observed: f64,
    /// Recorded time, in seconds: windows and the time between them.
    pub span: f64,
    /// Observed time, summed over the peers, in seconds.
    pub peer_seconds: f64,
    /// Messages from all peers.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Messages to all peers.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// CPU time of the message thread, in nanoseconds.
    pub thread_ns: u64,
    /// Observed time in which that was measured, in seconds.
    pub thread_seconds: f64,
}

/// The sums over the windows that began on one day, and its blocks.
#[derive(Clone, Debug, Default)]
pub struct Day {
    /// CPU nanoseconds per second of all peers together: a value for each window, weighted by its
    /// length.
    pub together: Distribution,
    /// Connected blocks, inside and outside of windows.
    pub blocks: u64,
    /// Microseconds from the first announcement until a block was connected, where there was one.
    pub took: Distribution,
    /// The sums over windows.
    pub sums: Sums,
}

/// The sums by day.
#[derive(Clone, Debug, Default)]
pub struct Days {
    /// By the number of days since 1970.
    days: BTreeMap<u64, Day>,
    are_incomplete: bool,
}

impl Days {
    /// The day of `time`. `None` if it is an earlier one that was dropped.
    fn day(&mut self, time: Time) -> Option<&mut Day> {
        let number = time / DAY;
        if self.days.len() >= MAX_DAYS && !self.days.contains_key(&number) {
            self.are_incomplete = true;
            let first = self.days.keys().next();
            if first.is_some_and(|first| number < *first) {
                return None;
            }
            self.days.pop_first();
        }
        Some(self.days.entry(number).or_default())
    }

    /// Adds a connected block, `took` microseconds after its first announcement.
    pub(super) fn add_block(&mut self, time: Time, took: Option<Time>) {
        let Some(day) = self.day(time) else {
            return;
        };
        day.blocks += 1;
        if let Some(took) = took {
            day.took.add(took as f64, 1.0);
        }
    }

    /// Adds a window that began at `start`, in which all peers together took `cpu_ns`.
    pub(super) fn add(&mut self, start: Time, cpu_ns: u64, window: Sums) {
        let Some(day) = self.day(start) else {
            return;
        };
        let seconds = window.observed;
        day.together.add(cpu_ns as f64 / seconds, seconds);
        let Sums {
            observed,
            span,
            peer_seconds,
            received,
            received_bytes,
            sent,
            sent_bytes,
            thread_ns,
            thread_seconds,
        } = &mut day.sums;
        for (sum, amount) in [
            (observed, window.observed),
            (span, window.span),
            (peer_seconds, window.peer_seconds),
            (thread_seconds, window.thread_seconds),
        ] {
            *sum += amount;
        }
        for (sum, amount) in [
            (received, window.received),
            (received_bytes, window.received_bytes),
            (sent, window.sent),
            (sent_bytes, window.sent_bytes),
            (thread_ns, window.thread_ns),
        ] {
            *sum = sum.saturating_add(amount);
        }
    }

    /// The days with at least one window, by the number of days since 1970.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Day)> {
        let days = self.days.iter().map(|(number, day)| (*number, day));
        days.filter(|(_, day)| day.sums.observed > 0.0)
    }

    /// Whether earlier days were dropped because of [`MAX_DAYS`].
    #[must_use]
    pub fn are_incomplete(&self) -> bool {
        self.are_incomplete
    }
}
