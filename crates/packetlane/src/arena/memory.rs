//! The memory of an arena: ordinary, or page-locked for a GPU.

use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};
use packetlane_gpu::{Bytes, Gpu, GpuError, Pinned};

/// The bytes of an arena.
pub(crate) enum Memory {
    Plain(Vec<u8>),
    Pinned(&'static Gpu, Pinned),
}

impl Memory {
    pub(crate) fn pinned(gpu: &'static Gpu, len: usize) -> Result<Self, GpuError> {
        Ok(Self::Pinned(gpu, gpu.pinned(len)?))
    }

    /// Returns the memory for a GPU. Only `..used` holds data.
    pub(crate) fn for_device(&mut self, used: usize) -> Bytes<'_> {
        match self {
            Self::Plain(bytes) => Bytes::Plain(bytes),
            Self::Pinned(_, pinned) => Bytes::Pinned(pinned, used),
        }
    }

    /// Like `Vec::resize`, to a larger size.
    pub(crate) fn resize(&mut self, len: usize, fill: u8) {
        match self {
            Self::Plain(bytes) => bytes.resize(len, fill),
            Self::Pinned(_, pinned) => {
                let larger = len.max(2 * pinned.len());
                self.move_to(larger);
            }
        }
    }

    /// Like `Vec::truncate`, except that page-locked memory is one allocation and is freed
    /// immediately.
    pub(crate) fn truncate(&mut self, len: usize) {
        match self {
            Self::Plain(bytes) => bytes.truncate(len),
            Self::Pinned(_, pinned) if len < pinned.len() => self.move_to(len),
            Self::Pinned(..) => {}
        }
    }

    /// Like `Vec::shrink_to_fit`.
    pub(crate) fn shrink_to_fit(&mut self) {
        if let Self::Plain(bytes) = self {
            bytes.shrink_to_fit();
        }
    }

    /// Like `Vec::capacity`.
    pub(crate) fn capacity(&self) -> usize {
        match self {
            Self::Plain(bytes) => bytes.capacity(),
            Self::Pinned(_, pinned) => pinned.len(),
        }
    }

    /// Moves from page-locked memory to new page-locked memory of `len` bytes, or to ordinary
    /// memory if none is available.
    #[cold]
    fn move_to(&mut self, len: usize) {
        let Self::Pinned(gpu, old) = self else { return };
        let kept = len.min(old.len());
        let mut new = match gpu.pinned(len) {
            Ok(pinned) => Self::Pinned(gpu, pinned),
            Err(_) => Self::Plain(alloc::vec![0; len]),
        };
        new[..kept].copy_from_slice(&old[..kept]);
        *self = new;
    }
}

impl From<Vec<u8>> for Memory {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Plain(bytes)
    }
}

impl Deref for Memory {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Pinned(_, pinned) => pinned,
        }
    }
}

impl DerefMut for Memory {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Pinned(_, pinned) => pinned,
        }
    }
}
