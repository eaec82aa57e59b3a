//! Buffers for keystream, which are wiped.

use crate::job::{BLOCK_LEN, Block};
use crate::vector::{Aligned, MAX_LANES, Rows, U32Lanes};
use core::mem::MaybeUninit;

/// Returns the first 8 bytes of keystream as a little-endian number: a header mask.
#[inline(always)]
pub(crate) fn mask(keystream: &Keystream) -> u64 {
    let words = keystream.blocks()[0].first_chunk();
    u64::from_le_bytes(*words.expect("64 bytes"))
}

/// Up to [`MAX_LANES`] blocks of keystream. Wiped on drop.
pub(crate) struct Keystream {
    /// Aligned to cache lines; otherwise each load and store of a block would touch two.
    blocks: Aligned<[MaybeUninit<Block>; MAX_LANES]>,
    /// How many blocks, from the first on, have been written.
    written: usize,
}

impl Keystream {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self {
            blocks: Aligned([const { MaybeUninit::uninit() }; MAX_LANES]),
            written: 0,
        }
    }

    /// Writes the blocks of `LANES` lanes after the first `at`, which must have been written.
    #[inline(always)]
    pub(super) fn write<V: U32Lanes>(&mut self, v: V, states: &[V::Word; 16], at: usize) {
        const { assert!(V::LANES <= MAX_LANES) };
        assert!(at <= self.written && at <= MAX_LANES - V::LANES);
        // SAFETY: `at + LANES` is at most `MAX_LANES`, as just asserted.
        unsafe { v.scatter(states, None, self.blocks.0.as_mut_ptr().add(at).cast()) };
        self.written = self.written.max(at + V::LANES);
    }

    /// Writes `BLOCKS` blocks, given as rows, after the first `at`, which must have been
    /// written.
    #[inline(always)]
    pub(super) fn write_rows<R: Rows>(&mut self, r: R, rows: [R::Word; 4], at: usize) {
        const { assert!(R::BLOCKS <= MAX_LANES) };
        assert!(at <= self.written && at <= MAX_LANES - R::BLOCKS);
        // SAFETY: `at + BLOCKS` is at most `MAX_LANES`, as just asserted.
        unsafe { r.store_rows(rows, self.blocks.0.as_mut_ptr().add(at).cast()) };
        self.written = self.written.max(at + R::BLOCKS);
    }

    /// Writes or replaces the first block, in pieces of 8 bytes, so that reads of the same size,
    /// such as of a one-time key, do not stall.
    #[inline(always)]
    pub(super) fn write_first(&mut self, pieces: [u64; BLOCK_LEN / 8]) {
        let block = self.blocks.0[0].write([0; BLOCK_LEN]);
        for (place, piece) in block.as_chunks_mut().0.iter_mut().zip(pieces) {
            *place = piece.to_le_bytes();
        }
        self.written = self.written.max(1);
    }

    /// Returns the blocks that have been written.
    #[inline(always)]
    pub(crate) fn blocks(&self) -> &[Block] {
        // SAFETY: the first `written` blocks of the array have been written, and `MaybeUninit`
        // has the layout of what it holds.
        unsafe { core::slice::from_raw_parts(self.blocks.0.as_ptr().cast(), self.written) }
    }
}

impl Drop for Keystream {
    #[inline(always)]
    fn drop(&mut self) {
        wipe(&mut self.blocks.0[..self.written]);
    }
}

/// Wipes blocks of keystream.
#[inline(always)]
fn wipe(blocks: &mut [MaybeUninit<Block>]) {
    // One by one: for all of them the compiler would call `memset`, which takes twice as long for
    // so few bytes.
    for block in blocks {
        block.write([0; BLOCK_LEN]);
        zeroize::optimization_barrier(block);
    }
}

/// How many blocks a [`Ring`] keeps.
pub(crate) const RING: usize = 32;

/// The last [`RING`] blocks of keystream, numbered from 0 on. Wiped on drop.
pub(crate) struct Ring {
    blocks: Aligned<[MaybeUninit<Block>; RING]>,
    /// How many blocks, from the first on, have been written.
    written: usize,
}

impl Ring {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self {
            blocks: Aligned([const { MaybeUninit::uninit() }; RING]),
            written: 0,
        }
    }

    /// Writes the blocks of `LANES` lanes from number `at` on. `at` must be a multiple of `LANES`,
    /// and the blocks before it must have been written.
    #[inline(always)]
    pub(crate) fn write<V: U32Lanes>(&mut self, v: V, words: &[V::Word; 16], at: usize) {
        const { assert!(RING.is_multiple_of(V::LANES)) };
        let first = at % RING;
        assert!(first.is_multiple_of(V::LANES) && first <= self.written);
        // SAFETY: `first` is a multiple of `LANES` and less than `RING`, which is one too: so there are
        // `LANES` blocks from there on.
        unsafe { v.scatter(words, None, self.blocks.0.as_mut_ptr().add(first).cast()) };
        self.written = self.written.max(first + V::LANES);
    }

    /// Returns block number `at`, or the one that has overwritten it.
    #[inline(always)]
    pub(crate) fn block(&self, at: usize) -> &Block {
        let first = at % RING;
        assert!(first < self.written);
        // SAFETY: the first `written` blocks have been written.
        unsafe { self.blocks.0[first].assume_init_ref() }
    }
}

impl Drop for Ring {
    #[inline(always)]
    fn drop(&mut self) {
        wipe(&mut self.blocks.0[..self.written]);
    }
}
