//! One message in general registers.

use super::field::{CLAMP, Field, Number, wide};
use super::radix64::Radix64;
use crate::job::{Job, TAG_LEN};
use crate::vector::{mask, number};

/// Returns the second half of a one-time key, s, which is added at the end.
#[inline(always)]
fn pad(key: &[u8; 32]) -> u128 {
    let [low, high] = words(&key[16..]);
    u128::from(low) | u128::from(high) << 64
}

/// The hash of one message, which is passed piece by piece. Wiped on drop, with its key.
pub(crate) struct Poly1305 {
    r: Multiplier,
    h: Number,
    pad: u128,
}

/// The field in which one message is hashed.
pub(super) const SERIAL: Radix64 = Radix64;

/// A multiplier of that field: r.
pub(crate) type Multiplier = <Radix64 as Field>::Multiplier;

/// Bit 128 in that field.
const HIBIT: u64 = Radix64::HIBIT;

impl Poly1305 {
    /// A state without a key, to be [started](Self::start).
    #[inline(always)]
    pub(crate) const fn idle() -> Self {
        Self {
            r: [0; 3],
            h: [0; 3],
            pad: 0,
        }
    }

    /// Creates a hash with a one-time key. For an AEAD, that is the first half of keystream block
    /// 0.
    #[inline(always)]
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        let mut state = Self::idle();
        state.start(key);
        state
    }

    /// Starts a new hash with another key, in place.
    #[inline(always)]
    pub(crate) fn start(&mut self, key: &[u8; 32]) {
        let [low, high] = words(&key[..16]);
        self.r = SERIAL.multiplier(SERIAL.element(low & CLAMP[0], high & CLAMP[1]));
        self.h = [0; 3];
        self.pad = pad(key);
    }

    #[inline(always)]
    fn block(&mut self, block: &[u8; 16], hibit: u64) {
        let [low, high] = words(block);
        self.h = SERIAL.step(self.h, (low, high), hibit, &self.r);
    }

    /// Hashes `rest`, fewer than 16 bytes, padded with zeros to a whole block, as
    /// ChaCha20-Poly1305 does (RFC 8439, section 2.8). Does nothing if `rest` is empty.
    #[inline(always)]
    pub(crate) fn update_padded(&mut self, rest: &[u8]) {
        debug_assert!(rest.len() < 16);
        if !rest.is_empty() {
            // SAFETY: a slice's bytes are readable, as many as it is long.
            self.update_number(unsafe { number(rest.as_ptr(), rest.len()) });
        }
    }

    /// Hashes a block, a little-endian number.
    #[inline(always)]
    pub(crate) fn update_number(&mut self, block: u128) {
        let words = (block as u64, (block >> 64) as u64);
        self.h = SERIAL.step(self.h, words, HIBIT, &self.r);
    }

    /// Hashes `whole` blocks of `text`, then the first `rest` bytes of the next one, padded with
    /// zeros. Blocks are little-endian numbers, and `text` must yield that many.
    #[inline(always)]
    pub(crate) fn update_text(
        &mut self,
        mut text: impl Iterator<Item = u128>,
        whole: usize,
        rest: usize,
    ) {
        // A copy, which stays in registers.
        let mut h = self.h;
        let mut step = |block: u128| {
            let words = (block as u64, (block >> 64) as u64);
            h = SERIAL.step(h, words, HIBIT, &self.r);
        };
        for _ in 0..whole {
            step(text.next().expect("the text has as many blocks"));
        }
        if rest > 0 {
            step(text.next().expect("the text has a last block") & mask(rest));
        }
        self.h = h;
    }

    /// Hashes whole blocks, one after the other.
    #[inline(always)]
    pub(crate) fn update_blocks(&mut self, blocks: &[[u8; 16]]) {
        for block in blocks {
            self.block(block, HIBIT);
        }
    }

    /// Hashes `rest`, fewer than 16 bytes at the end of a message, without padding: the high bit
    /// directly follows the bytes (RFC 8439, section 2.5).
    pub(crate) fn update_last(&mut self, rest: &[u8]) {
        if !rest.is_empty() {
            let mut block = [0; 16];
            block[..rest.len()].copy_from_slice(rest);
            block[rest.len()] = 1;
            self.block(&block, 0);
        }
    }

    /// Returns the accumulator and its multiplier, for a vector kernel that hashes the next blocks.
    #[inline(always)]
    pub(crate) fn accumulator(&self) -> (Number, &Multiplier) {
        (self.h, &self.r)
    }

    /// Sets the accumulator to the result of a vector kernel.
    #[inline(always)]
    pub(crate) fn set_accumulator(&mut self, h: Number) {
        self.h = h;
    }

    /// Starts hashing `blocks`, `N` at a time, between other work.
    #[inline(always)]
    pub(crate) fn interleave<'t, const N: usize>(
        &'t mut self,
        blocks: &'t [[u8; TAG_LEN]],
    ) -> InterleavedPoly1305<'t, N> {
        InterleavedPoly1305 {
            h: self.h,
            poly1305: self,
            blocks: blocks.iter(),
        }
    }

    /// Hashes the AAD of a job, if it has any, padded with zeros.
    #[inline(always)]
    pub(crate) fn update_aad(&mut self, bytes: &[u8], job: &Job) {
        if job.aad_len > 0 {
            let (blocks, rest) = bytes[job.aad()].as_chunks();
            self.update_blocks(blocks);
            self.update_padded(rest);
        }
    }

    /// Hashes the lengths of AAD and text, in bytes: the last block of an AEAD.
    #[inline(always)]
    pub(crate) fn update_lengths(&mut self, aad: u64, text: u64) {
        self.h = SERIAL.step(self.h, (aad, text), HIBIT, &self.r);
    }

    /// Returns the tag.
    #[inline(always)]
    pub(crate) fn finish(&self) -> [u8; TAG_LEN] {
        let (low, high) = SERIAL.words(self.h);
        wide(low, high).wrapping_add(self.pad).to_le_bytes()
    }
}

/// A hash, and whole blocks that it has not hashed yet.
pub(crate) struct Unhashed<'t> {
    pub(crate) poly1305: &'t mut Poly1305,
    pub(crate) blocks: &'t [[u8; TAG_LEN]],
}

/// Blocks of a text that are hashed `N` at a time; created by [`Poly1305::interleave`].
pub(crate) struct InterleavedPoly1305<'t, const N: usize> {
    poly1305: &'t mut Poly1305,
    /// Its accumulator, separate so that it stays in registers.
    h: Number,
    /// The blocks that have not been hashed.
    blocks: core::slice::Iter<'t, [u8; TAG_LEN]>,
}

impl<const N: usize> InterleavedPoly1305<'_, N> {
    /// Hashes `N` blocks, or fewer if no more are left.
    #[inline(always)]
    pub(crate) fn update(&mut self) {
        for _ in 0..N {
            let Some(block) = self.blocks.next() else {
                return;
            };
            self.block(block);
        }
    }

    /// Hashes another block.
    #[inline(always)]
    pub(crate) fn block(&mut self, block: &[u8; TAG_LEN]) {
        let [low, high] = words(block);
        self.h = SERIAL.step(self.h, (low, high), HIBIT, &self.poly1305.r);
    }

    /// Hashes another block, a little-endian number.
    #[inline(always)]
    pub(crate) fn number(&mut self, block: u128) {
        let words = (block as u64, (block >> 64) as u64);
        self.h = SERIAL.step(self.h, words, HIBIT, &self.poly1305.r);
    }

    /// Returns how many blocks have not been hashed.
    #[inline(always)]
    pub(crate) fn finish(self) -> usize {
        self.poly1305.h = self.h;
        self.blocks.len()
    }
}

impl Drop for Poly1305 {
    #[inline(always)]
    fn drop(&mut self) {
        self.r = [0; 3];
        self.h = [0; 3];
        self.pad = 0;
        zeroize::optimization_barrier(self);
    }
}

/// Returns two little-endian words from 16 bytes.
#[inline(always)]
pub(crate) fn words(bytes: &[u8]) -> [u64; 2] {
    let word = |i: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[i..i + 8]);
        u64::from_le_bytes(word)
    };
    [word(0), word(8)]
}
