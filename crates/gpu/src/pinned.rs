//! An arena in page-locked memory, from which a batch travels without a copy.

use crate::driver::{PinnedMemory, Shared};
use crate::error::GpuError;
use crate::wipe::wipe;
use core::ops::{Deref, DerefMut, Range};

/// Page-locked memory for the arena of a batch.
///
/// It is there twice. What is shown is one half; the device writes what it has sealed or
/// opened to the other, and when all of it came back whole, the halves change places. So a
/// device that is lost on the way back leaves every byte as it was, for the CPU to do, and
/// the way back costs no copy. The half that is not shown holds what the arena held before:
/// after sealing that is plaintext, as the arena of any batch holds what earlier turns
/// left. [`Pinned::wipe_hidden`] wipes it, and drop wipes both.
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

    /// Writes zeros over the half that is not shown.
    pub fn wipe_hidden(&mut self) {
        wipe(self.back.bytes_mut());
    }

    /// Whether it is memory of `driver`.
    pub(crate) fn is_of(&self, driver: &Shared) -> bool {
        self.front.is_of(driver)
    }

    /// For copies in and out.
    pub(crate) fn pointers(&mut self) -> (*const u8, *mut u8) {
        (self.front.pointer(), self.back.pointer())
    }

    /// Shows what came back to the ranges `whole`, which are in order and apart, and what
    /// was there before in the rest of `..used`.
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
        // Not its contents.
        f.debug_struct("Pinned")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
