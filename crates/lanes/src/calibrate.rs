//! Measures once per process which of several methods is faster on this CPU.
//!
//! The clock is an argument, because this crate has none of its own. On x86-64 it is the time stamp
//! counter ([`crate::isa`]). On other targets a caller can set the result.

use core::sync::atomic::{AtomicUsize, Ordering};

/// A clock: returns the time in ticks of any length.
pub(crate) type Clock = fn() -> u64;

/// A number that is measured on first use. Never 0, which means "not measured".
pub(crate) struct Calibrated(AtomicUsize);

impl Calibrated {
    /// Creates a number that has not been measured.
    pub(crate) const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Returns the number. Measures it on first use.
    #[inline]
    pub(crate) fn get(&self, measure: impl FnOnce() -> usize) -> usize {
        let known = self.0.load(Ordering::Relaxed);
        if known != 0 {
            return known;
        }
        let found = measure();
        // Another thread may have measured at the same time; both results are valid.
        self.set(found);
        found
    }

    /// Sets the number instead of measuring it.
    pub(crate) fn set(&self, number: usize) {
        self.0.store(number.max(1), Ordering::Relaxed);
    }
}

/// Returns the shortest of twelve times that `work` takes, in ticks of `clock`. `prepare` creates
/// the value that `work` changes, and is not timed.
pub(crate) fn best_time<T>(clock: Clock, prepare: impl Fn() -> T, work: impl Fn(&mut T)) -> u64 {
    let mut best = u64::MAX;
    for _ in 0..12 {
        let mut value = prepare();
        let start = clock();
        work(&mut value);
        best = best.min(clock().wrapping_sub(start));
        core::hint::black_box(value);
    }
    best
}
