//! Sums by day (UTC).

use super::{Seen, Slot};
use crate::record::Time;
use crate::statistics::Distribution;
use std::collections::BTreeMap;

/// Maximum number of days. Earlier ones are dropped.
pub const MAX_DAYS: usize = 400;

/// Microseconds in a day.
const DAY: Time = 86_400_000_000;

/// A window that has ended.
pub(super) struct Window<'s> {
    pub(super) start: Time,
    /// Length, in seconds.
    pub(super) seconds: f64,
    /// Time since the end of the window before, in seconds.
    pub(super) span: f64,
    /// What was observed in it, by kind of connection.
    pub(super) kinds: &'s BTreeMap<Slot, Seen>,
    /// CPU time of the message thread in it, in nanoseconds, if it was measured.
    pub(super) thread_ns: Option<u64>,
}

/// The sums over the windows that began on one day.
#[derive(Clone, Debug, Default)]
pub struct Day {
    /// Observed time, in seconds.
    pub observed: f64,
    /// Recorded time, in seconds: windows and the time between them.
    pub span: f64,
    /// CPU nanoseconds per second of all peers together: a value for each window, weighted by its
    /// length.
    pub together: Distribution,
    /// Sum over all peers.
    pub seen: Seen,
    /// CPU time of the message thread, in nanoseconds.
    pub thread_ns: u64,
    /// Observed time of the windows in which that was measured, in seconds.
    pub thread_seconds: f64,
}

/// The sums by day.
#[derive(Clone, Debug, Default)]
pub struct Days {
    /// By the number of days since 1970.
    days: BTreeMap<u64, Day>,
    are_incomplete: bool,
}

impl Days {
    pub(super) fn add(&mut self, window: &Window<'_>) {
        let number = window.start / DAY;
        if self.days.len() >= MAX_DAYS && !self.days.contains_key(&number) {
            self.are_incomplete = true;
            let first = self.days.keys().next();
            if first.is_some_and(|first| number < *first) {
                return;
            }
            self.days.pop_first();
        }
        let day = self.days.entry(number).or_default();
        let mut all = Seen::default();
        window.kinds.values().for_each(|seen| all.add(seen));
        day.observed += window.seconds;
        day.span += window.span;
        let cpu_ns = all.cpu_ns() as f64;
        day.together.add(cpu_ns / window.seconds, window.seconds);
        day.seen.add(&all);
        if let Some(thread_ns) = window.thread_ns {
            day.thread_ns = day.thread_ns.saturating_add(thread_ns);
            day.thread_seconds += window.seconds;
        }
    }

    /// The days with at least one window, by the number of days since 1970.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Day)> {
        self.days.iter().map(|(number, day)| (*number, day))
    }

    /// Whether earlier days were dropped because of [`MAX_DAYS`].
    #[must_use]
    pub fn are_incomplete(&self) -> bool {
        self.are_incomplete
    }
}
