//! What is measured once on this machine: which of several ways this CPU finishes sooner.
//!
//! The clock is an argument, as this crate has none of its own: x86-64 reads the time stamp
//! counter ([`crate::isa`]), a caller elsewhere can set the result.

use core::sync::atomic::{AtomicUsize, Ordering};

/// A clock: the time in ticks of any length.
pub(crate) type Clock = fn() -> u64;

/// A number that is measured when it is first asked for; never 0.
pub(crate) struct Calibrated(AtomicUsize);

impl Calibrated {
    /// Not yet measured.
    pub(crate) const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// The number. Measures it if nobody has yet.
    #[inline]
    pub(crate) fn get(&self, measure: impl FnOnce() -> usize) -> usize {
        let known = self.0.load(Ordering::Relaxed);
        if known != 0 {
            return known;
        }
        let found = measure();
        // Another thread may have measured too; either result will do.
        self.set(found);
        found
    }

    /// Sets the number, in place of what would be or has been measured.
    pub(crate) fn set(&self, number: usize) {
        self.0.store(number.max(1), Ordering::Relaxed);
    }
}

/// The shortest of several times that `work` takes on `clock`, in its ticks. `prepare` makes
/// what `work` works on and is not timed.
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
