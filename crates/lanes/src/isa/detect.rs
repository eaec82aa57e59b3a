//! Detection of the AES tables that this CPU supports, its clock, and prefetching.

use super::table::{AES_PORTABLE, AesKernels, AesSet};
use crate::calibrate::Clock;

#[cfg(all(
    target_arch = "aarch64",
    target_endian = "little",
    target_feature = "neon"
))]
use super::aarch64;
#[cfg(target_arch = "x86_64")]
use super::{aes_ni, vaes, vaes256};

impl AesSet {
    /// All tables, the most capable first, whether or not this CPU supports them.
    pub(crate) const ALL: &[&'static AesKernels] = &[
        #[cfg(target_arch = "x86_64")]
        &vaes::KERNELS,
        #[cfg(target_arch = "x86_64")]
        &vaes256::KERNELS,
        #[cfg(target_arch = "x86_64")]
        &aes_ni::KERNELS,
        #[cfg(all(
            target_arch = "aarch64",
            target_endian = "little",
            target_feature = "neon"
        ))]
        &aarch64::aes::KERNELS,
        &AES_PORTABLE,
    ];

    /// Index in [`AesSet::ALL`] of the most capable table with 256-bit registers.
    #[cfg(target_arch = "x86_64")]
    pub(crate) const AVX2: usize = 1;

    /// Index in [`AesSet::ALL`] of the table that every CPU supports.
    pub(crate) const PORTABLE: usize = Self::ALL.len() - 1;

    /// Returns the first table from index `from` on that this CPU supports, and its index.
    pub(crate) fn first(from: usize) -> (usize, Self) {
        let mut rest = Self::ALL.iter().enumerate().skip(from);
        let found = rest.find(|(_, table)| table.is_available());
        let (index, table) = found.expect("the portable table is the last");
        // SAFETY: `is_available` has checked that this CPU supports it.
        (index, unsafe { Self::assume(table) })
    }

    /// Returns the most capable table that this CPU supports.
    pub(crate) fn best() -> Self {
        Self::first(0).1
    }

    /// Returns the table at an index of [`AesSet::ALL`].
    ///
    /// # Safety
    ///
    /// This CPU must support it.
    #[inline(always)]
    pub(crate) unsafe fn at(index: usize) -> Self {
        // SAFETY: the caller guarantees that this CPU has the table's instructions.
        unsafe { Self::assume(Self::ALL[index]) }
    }
}

/// Returns a clock of this CPU that works without an operating system, if there is one. Miri has
/// none. ARM's clock ticks 24 to 54 million times a second on many CPUs, which is too coarse: the
/// timed work takes less than a microsecond.
pub(crate) fn clock() -> Option<Clock> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return Some(|| {
        // SAFETY: every x86-64 CPU has these instructions.
        unsafe {
            core::arch::x86_64::_mm_lfence();
            core::arch::x86_64::_rdtsc()
        }
    });
    #[cfg(any(miri, not(target_arch = "x86_64")))]
    None
}

/// Prefetches the cache line in which `value` begins, without waiting for it. Does nothing on
/// targets other than x86-64.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    crate::vector::prefetch_at(value);
}
