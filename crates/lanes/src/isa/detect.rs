//! Which AES tables this CPU has, its clock, and prefetching.

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
    /// All tables, the most capable first, whether or not this CPU has them.
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

    /// The index in [`AesSet::ALL`] of the most capable table with registers of 256 bits.
    #[cfg(target_arch = "x86_64")]
    pub(crate) const AVX2: usize = 1;

    /// The index in [`AesSet::ALL`] of the table that every CPU has.
    pub(crate) const PORTABLE: usize = Self::ALL.len() - 1;

    /// The first table from index `from` on that this CPU has, and its index.
    pub(crate) fn first(from: usize) -> (usize, Self) {
        let mut rest = Self::ALL.iter().enumerate().skip(from);
        let found = rest.find(|(_, table)| table.is_available());
        let (index, table) = found.expect("the portable table is the last");
        // SAFETY: `is_available` says that this CPU has it.
        (index, unsafe { Self::assume(table) })
    }

    /// The most capable table that this CPU has.
    pub(crate) fn best() -> Self {
        Self::first(0).1
    }

    /// The table at an index of [`AesSet::ALL`].
    ///
    /// # Safety
    ///
    /// This CPU must have it.
    #[inline(always)]
    pub(crate) unsafe fn at(index: usize) -> Self {
        // SAFETY: the caller guarantees that this CPU has the table's instructions.
        unsafe { Self::assume(Self::ALL[index]) }
    }
}

/// A clock of this CPU that needs no operating system, if there is one. Miri has none. That of ARM
/// ticks 24 to 54 million times a second on many CPUs, and so too rarely: what is timed takes less
/// than a microsecond.
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
