//! Which tables this CPU has, and its clock.

use super::table::{AES_PORTABLE, AesKernels, AesSet};
use crate::calibrate::Clock;

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
        &AES_PORTABLE,
    ];

    /// The index in the list of the first table that goes with AVX2.
    #[cfg(target_arch = "x86_64")]
    pub(crate) const AVX2: usize = 1;

    /// The index of the table that every CPU has.
    pub(crate) const PORTABLE: usize = Self::ALL.len() - 1;

    /// The first table from index `from` on that this CPU has, and its index.
    pub(crate) fn first(from: usize) -> (usize, Self) {
        let mut rest = Self::ALL.iter().enumerate().skip(from);
        let found = rest.find(|(_, table)| table.is_available());
        let (index, table) = found.expect("the portable table is the last");
        // SAFETY: just asked.
        (index, unsafe { Self::assume(table) })
    }

    /// The most capable table that this CPU has.
    pub(crate) fn best() -> Self {
        Self::first(0).1
    }

    /// The table at an index of the list.
    ///
    /// # Safety
    ///
    /// This CPU must have it.
    #[inline(always)]
    pub(crate) unsafe fn at(index: usize) -> Self {
        // SAFETY: the caller vouches for it.
        unsafe { Self::assume(Self::ALL[index]) }
    }
}

/// The clock of this CPU that needs no operating system, if there is one.
pub(crate) fn clock() -> Option<Clock> {
    #[cfg(target_arch = "x86_64")]
    return Some(|| {
        // SAFETY: every x86-64 CPU has these instructions.
        unsafe {
            core::arch::x86_64::_mm_lfence();
            core::arch::x86_64::_rdtsc()
        }
    });
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// Asks for the cache line in which `value` begins, so that it is near when it is needed.
/// Nothing waits for it. Does nothing where there is no instruction for it.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it reads nothing, and may be given any address.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(value).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
