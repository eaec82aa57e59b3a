//! An arena in page-locked memory, from which a batch is transferred without a copy.

use crate::driver::{PinnedMemory, Shared};
use crate::error::GpuError;
use crate::wipe::wipe;
use core::ops::{Deref, DerefMut, Range};

/// Page-locked memory for the arena of a batch.
///
/// It is allocated twice. One half is visible; the device writes results to the other, and when all
/// of them have come back complete, the halves are swapped. If a device is lost while it copies
/// results back, every byte is therefore unchanged, and the CPU can do the work; and no extra copy
/// is needed. The hidden half holds what the arena held before: after sealing that is plaintext, as
/// any batch's arena holds bytes of earlier turns. [`Pinned::wipe_hidden`] wipes it, and drop wipes
/// both.
pub struct Pinned {
    front: PinnedMemory,
    back: PinnedMemory,
}

impl Pinned {
    pub(crate) fn new(driver: &Shared, len: usize) -> Result<Self, GpuError> {
        Ok(Self {
            front: PinnedMemory::new(driver, len.max(1))?,
            back: PinnedMemory::new(driver, len.max(1))?,
        })
    }

    /// Overwrites the hidden half with zeros.
    pub fn wipe_hidden(&mut self) {
        wipe(self.back.bytes_mut());
    }

    /// Whether it is memory of `driver`.
    pub(crate) fn is_of(&self, driver: &Shared) -> bool {
        self.front.is_of(driver)
    }

    /// Returns the pointers for copies in and out.
    pub(crate) fn pointers(&mut self) -> (*const u8, *mut u8) {
        (self.front.pointer(), self.back.pointer())
    }

    /// Makes the returned results visible in the ranges `whole`, which are in order and disjoint,
    /// and the previous bytes in the rest of `..used`.
    pub(crate) fn merge(&mut self, whole: &[Range<usize>], used: usize, may_change: bool) {
        let came: usize = whole.iter().map(Range::len).sum();
        if !may_change || came < used / 2 {
            for range in whole {
                let from = &self.back.bytes()[range.clone()];
                self.front.bytes_mut()[range.clone()].copy_from_slice(from);
            }
            return;
        }
        let mut end = 0;
        for range in whole.iter().chain([&(used..used)]) {
            let between = end..range.start.max(end);
            let from = &self.front.bytes()[between.clone()];
            self.back.bytes_mut()[between].copy_from_slice(from);
            end = range.end.max(end);
        }
        core::mem::swap(&mut self.front, &mut self.back);
    }
}

impl Deref for Pinned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.front.bytes()
    }
}

impl DerefMut for Pinned {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.front.bytes_mut()
    }
}

impl core::fmt::Debug for Pinned {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // Omits its contents.
        f.debug_struct("Pinned")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
