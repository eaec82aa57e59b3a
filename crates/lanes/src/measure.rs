//! Measuring which of several ways this CPU takes sooner, once in a process.

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
