//! One packet: its key and nonce, and where its parts lie.

use super::tag;
use crate::isa::Set;
use crate::job::{BLOCK_LEN, Job, Key, Nonce, Outcome, TAG_LEN, verdict};
use crate::kernels::poly1305::Poly1305;
use core::ops::Range;

/// Where the AAD of a packet lies.
pub(super) enum Aad<'a> {
    /// In the buffer of the text.
    Attached(Range<usize>),
    /// In a buffer of its own.
    Detached(&'a [u8]),
}

/// One packet, its text as a range of a buffer.
pub(super) struct Packet<'p> {
    pub(super) key: &'p Key,
    pub(super) nonce: &'p Nonce,
    pub(super) aad: Aad<'p>,
    /// The range of its text in the buffer.
    pub(super) text: Range<usize>,
}

impl<'p> Packet<'p> {
    /// Returns the packet of a job, with its key.
    #[inline(always)]
    pub(super) fn of(job: &'p Job, key: &'p Key) -> Self {
        Self {
            key,
            nonce: &job.nonce,
            aad: Aad::Attached(job.aad()),
            text: job.text(),
        }
    }

    #[inline(always)]
    pub(super) fn aad<'b>(&'b self, bytes: &'b [u8]) -> &'b [u8] {
        match &self.aad {
            Aad::Attached(range) => &bytes[range.clone()],
            Aad::Detached(aad) => aad,
        }
    }

    /// Returns the range of the last `count` blocks of its text.
    #[inline]
    pub(super) fn last_blocks(&self, count: usize) -> Range<usize> {
        let before = BLOCK_LEN * (self.blocks() - 1 - count);
        self.text.start + before.min(self.text.len())..self.text.end
    }

    /// Returns the number of keystream blocks that it needs, including block 0 for the one-time
    /// key.
    #[inline]
    pub(super) fn blocks(&self) -> usize {
        1 + self.text.len().div_ceil(BLOCK_LEN)
    }

    /// Keys the hash and hashes the AAD. The state is keyed in place, because moving it could leave
    /// a copy of the key behind.
    #[inline(always)]
    pub(super) fn start_tag(
        &self,
        set: Set,
        bytes: &[u8],
        poly1305: &mut Poly1305,
        one_time_key: &[u8; 32],
    ) {
        poly1305.start(one_time_key);
        tag::update_padded(set, poly1305, self.aad(bytes));
    }

    /// Hashes the rest of the ciphertext, from byte `hashed` on, and the lengths. Returns the tag.
    #[inline(always)]
    pub(super) fn finish_tag(
        &self,
        set: Set,
        bytes: &[u8],
        poly1305: &mut Poly1305,
        hashed: usize,
    ) -> [u8; TAG_LEN] {
        tag::update_padded(set, poly1305, &bytes[self.text.clone()][hashed..]);
        poly1305.update_lengths(self.aad(bytes).len() as u64, self.text.len() as u64);
        poly1305.finish()
    }

    /// Compares the tag that follows its text with the computed one.
    #[inline]
    pub(super) fn verdict(&self, bytes: &[u8], tag: &[u8; TAG_LEN]) -> Outcome {
        verdict(&bytes[self.text.end..][..TAG_LEN], tag)
    }
}
