//! Measuring which of several ways this CPU takes sooner, once in a process.

use core::sync::atomic::{AtomicUsize, Ordering};

/// A number that is measured when it is first asked for; never 0.
pub(crate) struct Measured(AtomicUsize);

impl Measured {
    pub(crate) const fn not_yet() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// The number, if need be by measuring.
    #[inline]
    pub(crate) fn get(&self, measure: impl FnOnce() -> usize) -> usize {
        let known = self.0.load(Ordering::Relaxed);
        if known != 0 {
            return known;
        }
        let found = measure();
        // Another thread may have measured too; either result will do.
        self.pin(found);
        found
    }

    /// Sets what would be measured.
    pub(crate) fn pin(&self, number: usize) {
        self.0.store(number.max(1), Ordering::Relaxed);
    }
}

/// The shortest of several times that `work` takes, in ticks.
pub(crate) fn best_time<T>(prepare: impl Fn() -> T, work: impl Fn(&mut T)) -> u64 {
    let mut best = u64::MAX;
    for _ in 0..12 {
        let mut value = prepare();
        let start = ticks();
        work(&mut value);
        best = best.min(ticks().wrapping_sub(start));
        core::hint::black_box(value);
    }
    best
}

#[cfg(target_arch = "x86_64")]
fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has these instructions.
    unsafe {
        core::arch::x86_64::_mm_lfence();
        core::arch::x86_64::_rdtsc()
    }
}

/// There is no clock that needs no operating system: every way takes as long then.
#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    0
}
