//! XORs keystream into texts.

use super::keystream::Keystream;
use super::rounds::{Counting, counter_row, inputs, rounds};
use crate::job::{BLOCK_LEN, Block, Job, Key, Nonce};
use crate::vector::{BlocksFrom, Interleave, Pair, U32Lanes, prefetch_at};
use core::ops::Range;

/// XORs `LANES` blocks of keystream into the first blocks of `text`. With a `source`, all blocks
/// except the first are read from it, and only written to `text`.
#[inline(always)]
pub(super) fn xor_lanes<V: U32Lanes>(
    v: V,
    keystream: &[V::Word; 16],
    source: Option<&[Block]>,
    text: &mut [Block],
) {
    let to = text[..V::LANES].as_mut_ptr();
    let from = match source {
        Some(source) => BlocksFrom::first_and(to.cast_const(), source[..V::LANES - 1].as_ptr()),
        None => BlocksFrom::row(to.cast_const()),
    };
    // SAFETY: the slice has `LANES` blocks. A source has one less, and overlaps nothing that is written.
    unsafe { v.scatter(keystream, Some(from), to) };
}

/// XORs the keystream of (`key`, `nonce`), starting at block `counter`, into `text` (RFC 8439,
/// section 2.4). With a `source`, the text after its first block is read from it, and only written
/// to `text`.
///
/// # Panics
///
/// If the length of the source is wrong.
#[inline(always)]
pub(crate) fn xor_keystream<V: U32Lanes>(
    v: V,
    key: &Key,
    nonce: &Nonce,
    counter: u32,
    source: Option<&[u8]>,
    text: &mut [u8],
) {
    let mut states = Counting::new(v, inputs(v, key, &counter_row(counter, nonce)));
    let runs = text.len() / (V::LANES * BLOCK_LEN);
    let mut to: *mut Block = text.as_mut_ptr().cast();
    let mut from = BlocksFrom::row(to.cast_const());
    if let Some(source) = source {
        let text_len = source.len() + BLOCK_LEN;
        assert_eq!(
            text_len,
            text.len(),
            "the source holds the rest of the text"
        );
        from = BlocksFrom::first_and(to.cast_const(), source.as_ptr().cast());
    }
    for _ in 0..runs {
        let next = 0;
        let mut ahead = Ahead { v, from, to, next };
        let x = states.rounds(v, &mut ahead);
        // SAFETY: as many runs of `LANES` blocks lie in the text, and in the source, but for the first block. The
        // source is borrowed while `text` is, which is borrowed alone, so they do not overlap.
        unsafe {
            v.scatter(&x, Some(from), to);
            (from, to) = (from.after(V::LANES), to.add(V::LANES));
        }
        states.advance(v, V::LANES);
    }
    let done = runs * V::LANES;
    let rest = &mut text[done * BLOCK_LEN..];
    if let Some(source) = source {
        // The first block is in place.
        let there = if runs == 0 { BLOCK_LEN } else { 0 };
        let source = &source[(done * BLOCK_LEN + there) - BLOCK_LEN..];
        rest[there..].copy_from_slice(source);
    }
    let counter = counter.wrapping_add(done as u32);
    if rest.len() > V::Narrow::LANES * BLOCK_LEN {
        xor_rest(v, states.input, rest);
    } else if !rest.is_empty() {
        let row = counter_row(counter, nonce);
        xor_rest(v.narrow(), inputs(v.narrow(), key, &row), rest);
    }
}

/// Prefetches the next blocks, so that they are in the first-level cache when their keystream has
/// been computed.
struct Ahead<V> {
    /// The vectors whose lanes the blocks fill.
    #[allow(dead_code, reason = "its type says how many blocks there are")]
    v: V,
    from: BlocksFrom,
    to: *mut Block,
    next: usize,
}

impl<V: U32Lanes> Interleave for Ahead<V> {
    // Called nine times. The next blocks lie after those of a call.
    #[inline(always)]
    fn step(&mut self) {
        for _ in 0..V::LANES.div_ceil(9) {
            prefetch_at(self.from.block(self.next));
            prefetch_at(self.to.wrapping_add(self.next));
            self.next += 1;
        }
    }
}

/// Consecutive whole blocks of a text, enough for half the lanes, and their keystream.
pub(crate) struct HalfRun<'s> {
    pub(crate) key: &'s Key,
    pub(crate) nonce: &'s Nonce,
    /// The counter of the first block.
    pub(crate) counter: u32,
    pub(crate) start: usize,
    /// Source of the blocks after the first one, if out of place; it may be longer.
    pub(crate) source: Option<&'s [u8]>,
}

/// XORs the keystream of two runs of `LANES` blocks into them, each in a vector of its own. The
/// two together take as long as [`xor_keystream`] takes for one run of twice as many blocks.
#[inline(always)]
pub(crate) fn xor_half_runs<V: U32Lanes>(v: V, bytes: &mut [u8], runs: [HalfRun<'_>; 2]) {
    // Not `map`, because closures are not always inlined.
    let [a, b] = &runs;
    let a = inputs(v, a.key, &counter_row(a.counter, a.nonce));
    let b = inputs(v, b.key, &counter_row(b.counter, b.nonce));
    let mut input = [[a[0]; 2]; 12];
    for (both, (&a, &b)) in input.iter_mut().zip(a.iter().zip(&b)) {
        *both = [a, b];
    }
    let x = rounds(Pair(v), input);
    let mut halves = [[x[0][0]; 16]; 2];
    for (i, &[a, b]) in x.iter().enumerate() {
        (halves[0][i], halves[1][i]) = (a, b);
    }
    for (words, run) in halves.iter().zip(runs) {
        let (blocks, _) = bytes[run.start..].as_chunks_mut();
        let source = run.source.map(|source| source.as_chunks().0);
        xor_lanes(v, words, source, blocks);
    }
}

/// XORs one call's keystream into `text`, which is at most `LANES` blocks long.
#[inline(always)]
fn xor_rest<V: U32Lanes>(v: V, input: [V::Word; 12], text: &mut [u8]) {
    let x = rounds(v, input);
    if text.len() == V::LANES * BLOCK_LEN {
        return xor_lanes(v, &x, None, text.as_chunks_mut().0);
    }
    let mut keystream = Keystream::new();
    keystream.write(v, &x, 0);
    xor_blocks(v, text, keystream.blocks());
}

/// XORs `blocks` into as much of `text` as they cover.
#[inline(always)]
pub(crate) fn xor_blocks<V: U32Lanes>(v: V, text: &mut [u8], blocks: &[Block]) {
    if let Some((rest, block)) = xor_whole_blocks(v, text, blocks)
        && !rest.is_empty()
    {
        v.xor_bytes(rest, block);
    }
}

/// XORs `blocks` into as many whole blocks of `text` as they cover. Returns the rest of the text,
/// if there is a block for it.
#[inline(always)]
fn xor_whole_blocks<'t, V: U32Lanes>(
    v: V,
    text: &'t mut [u8],
    blocks: &'t [Block],
) -> Option<(&'t mut [u8], &'t Block)> {
    let (whole, rest) = text.as_chunks_mut::<BLOCK_LEN>();
    for (piece, block) in whole.iter_mut().zip(blocks) {
        v.xor_bytes(piece, block);
    }
    Some((rest, blocks.get(whole.len())?))
}

/// Consecutive blocks of one packet's keystream in consecutive lanes.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    /// The counter of the first block. Block 0 holds the one-time key; block n goes into the
    /// text from byte 64 (n - 1) on.
    pub(crate) counter: u32,
    /// The first lane.
    pub(crate) lane: u8,
    /// Number of blocks.
    pub(crate) blocks: u8,
    /// Index of its packet in the chunk.
    pub(crate) index: u8,
}

impl Run {
    /// Returns the lanes that it occupies.
    pub(crate) fn lanes(&self) -> Range<usize> {
        let lane = usize::from(self.lane);
        lane..lane + usize::from(self.blocks)
    }

    /// Returns the index of its packet in the chunk.
    pub(crate) fn index(&self) -> usize {
        self.index.into()
    }
}

/// XORs the blocks of `runs`, which are in `keystream`, into their texts. `are_scattered` says that
/// the texts are not in the same order in memory as in the list.
#[inline(always)]
pub(crate) fn xor_runs<V: U32Lanes>(
    v: V,
    bytes: &mut [u8],
    keystream: &[Block],
    jobs: &[Job],
    runs: &[Run],
    are_scattered: bool,
) {
    for run in runs {
        let mut blocks = &keystream[run.lanes()];
        let mut first = run.counter;
        if first == 0 {
            (first, blocks) = (1, &blocks[1..]);
        }
        let text = &mut bytes[jobs[run.index()].text()];
        let text = &mut text[BLOCK_LEN * (first as usize - 1)..];
        if !are_scattered {
            xor_blocks(v, text, blocks);
        } else if let Some((rest, block)) = xor_whole_blocks(v, text, blocks) {
            v.xor_bytes_at_once(rest, block);
        }
    }
}
