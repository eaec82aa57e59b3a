//! One message in general registers.

use super::field::{CLAMP, Field, Number, wide};
use super::radix64::Radix64;
use crate::job::TAG_LEN;

/// The second half of a one-time key, which is added in the end.
#[inline(always)]
fn pad(key: &[u8; 32]) -> u128 {
    let [low, high] = words(&key[16..]);
    u128::from(low) | u128::from(high) << 64
}

/// The tag of one message, taken in piece by piece. The key is wiped on drop.
pub(crate) struct Poly1305 {
    r: Multiplier,
    h: Number,
    pad: u128,
}

/// The field of one message at a time.
pub(super) const SERIAL: Radix64 = Radix64;

/// What multiplies there.
pub(crate) type Multiplier = <Radix64 as Field>::Multiplier;

/// Bit 128 there.
const HIBIT: u64 = Radix64::HIBIT;

/// The words of less than 16 bytes, padded with zeros: from two loads that overlap. (What
/// is put together in memory has to be there before it is read.)
#[inline]
fn short_words(bytes: &[u8]) -> [u64; 2] {
    /// `N` bytes at the front and at the end of no more than twice as many.
    fn ends<const N: usize>(bytes: &[u8]) -> Option<[u64; 2]> {
        let number = |chunk: &[u8; N]| {
            let number = chunk.iter().rev();
            number.fold(0, |number, &byte| number << 8 | u64::from(byte))
        };
        Some([number(bytes.first_chunk()?), number(bytes.last_chunk()?)])
    }
    let len = bytes.len() as u32;
    if let Some([front, back]) = ends::<8>(bytes) {
        return [front, back.unbounded_shr(8 * (16 - len))];
    }
    let [front, back] = match len {
        4.. => ends::<4>(bytes),
        2.. => ends::<2>(bytes),
        _ => ends::<1>(bytes),
    }
    .unwrap_or_default();
    let size = (1 << len.max(1).ilog2()) as u32;
    [front | back << (8 * len.saturating_sub(size)), 0]
}

impl Poly1305 {
    /// Without a key.
    #[inline(always)]
    pub(crate) const fn idle() -> Self {
        Self {
            r: [0; 3],
            h: [0; 3],
            pad: 0,
        }
    }

    /// The hash under a one-time key of 32 bytes; for an AEAD, the first half of block 0 of
    /// the keystream.
    #[inline(always)]
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        let mut state = Self::idle();
        state.start(key);
        state
    }

    /// Starts again with another key, in place.
    #[inline(always)]
    pub(crate) fn start(&mut self, key: &[u8; 32]) {
        let [low, high] = words(&key[..16]);
        self.r = SERIAL.multiplier(SERIAL.element(low & CLAMP[0], high & CLAMP[1]));
        self.h = [0; 3];
        self.pad = pad(key);
    }

    #[inline(always)]
    fn block(&mut self, block: &[u8; 16], above: u64) {
        let [low, high] = words(block);
        self.h = SERIAL.step(self.h, (low, high), above, &self.r);
    }

    /// Takes in `rest`, less than 16 bytes, padded with zeros to a block, as
    /// ChaCha20-Poly1305 wants it (RFC 8439, section 2.8). Nothing if it is empty.
    #[inline(always)]
    pub(crate) fn update_padded(&mut self, rest: &[u8]) {
        if !rest.is_empty() {
            let [low, high] = short_words(rest);
            self.h = SERIAL.step(self.h, (low, high), HIBIT, &self.r);
        }
    }

    /// Takes in whole blocks that are few.
    #[inline(always)]
    pub(crate) fn update_blocks(&mut self, blocks: &[[u8; 16]]) {
        for block in blocks {
            self.block(block, HIBIT);
        }
    }

    /// Takes in `rest`, less than 16 bytes at the end of a message, without padding: the
    /// bit above a short block directly follows its bytes (RFC 8439, section 2.5).
    pub(crate) fn update_last(&mut self, rest: &[u8]) {
        if !rest.is_empty() {
            let mut block = [0; 16];
            block[..rest.len()].copy_from_slice(rest);
            block[rest.len()] = 1;
            self.block(&block, 0);
        }
    }

    /// The accumulator and what multiplies it, for blocks that a vector takes in.
    #[inline(always)]
    pub(crate) fn accumulator(&self) -> (Number, &Multiplier) {
        (self.h, &self.r)
    }

    /// Begins to take in blocks, a few at a time.
    #[inline(always)]
    pub(crate) fn interleave<'t>(&'t self, blocks: &'t [[u8; TAG_LEN]]) -> InterleavedPoly1305<'t> {
        InterleavedPoly1305 {
            h: self.h,
            r: &self.r,
            blocks,
        }
    }

    /// Goes on from where [`InterleavedPoly1305::finish`] has come to.
    #[inline(always)]
    pub(crate) fn set_accumulator(&mut self, h: Number) {
        self.h = h;
    }

    /// Takes in the lengths of AAD and text, the last block of an AEAD.
    #[inline(always)]
    pub(crate) fn update_lengths(&mut self, aad: u64, text: u64) {
        self.h = SERIAL.step(self.h, (aad, text), HIBIT, &self.r);
    }

    /// The tag.
    #[inline(always)]
    pub(crate) fn finish(&self) -> [u8; TAG_LEN] {
        let (low, high) = SERIAL.words(self.h);
        wide(low, high).wrapping_add(self.pad).to_le_bytes()
    }
}

/// Blocks of a text on their way into a [`Poly1305`], a few at a time.
pub(crate) struct InterleavedPoly1305<'t> {
    h: Number,
    r: &'t Multiplier,
    /// Those that have not been taken in.
    blocks: &'t [[u8; TAG_LEN]],
}

impl InterleavedPoly1305<'_> {
    /// Takes in `N`, or as many as there are.
    #[inline(always)]
    pub(crate) fn update<const N: usize>(&mut self) {
        for _ in 0..N {
            let Some((block, rest)) = self.blocks.split_first() else {
                return;
            };
            let [low, high] = words(block);
            self.h = SERIAL.step(self.h, (low, high), HIBIT, self.r);
            self.blocks = rest;
        }
    }

    /// The accumulator, and how many blocks have not been taken in.
    #[inline(always)]
    pub(crate) fn finish(self) -> (Number, usize) {
        (self.h, self.blocks.len())
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

/// Two little-endian words from 16 bytes.
#[inline(always)]
fn words(bytes: &[u8]) -> [u64; 2] {
    let word = |i: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[i..i + 8]);
        u64::from_le_bytes(word)
    };
    [word(0), word(8)]
}
