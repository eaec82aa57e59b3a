//! ChaCha20 (RFC 8439, section 2.3), one block per lane.
//!
//! The lanes are independent: each has its own key, nonce and block counter, so
//! that one call serves the blocks of one long message, the first blocks of many
//! short ones, or any mix.

use crate::vector::{MAX_LANES, Words};
use core::mem::MaybeUninit;

/// A key of ChaCha20: 32 bytes.
pub type Key = [u8; 32];

/// A nonce of ChaCha20 as RFC 8439 defines it: 12 bytes.
pub type Nonce = [u8; 12];

/// Length of one block of keystream, in bytes.
pub(crate) const BLOCK_LEN: usize = 64;

/// "expand 32-byte k", the first row of every state.
const SIGMA: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// Up to [`MAX_LANES`] blocks of keystream: what they are made from, and then
/// the blocks. Wiped on drop. (Aligned as [`Aligned`] is.)
#[repr(align(64))]
pub(crate) struct Blocks<'k> {
    keys: [&'k Key; MAX_LANES],
    counters_and_nonces: [[u32; 4]; MAX_LANES],
    keystream: [MaybeUninit<[u8; BLOCK_LEN]>; MAX_LANES],
    /// How many lanes of `keystream` have ever been written.
    written: usize,
}

impl<'k> Blocks<'k> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self {
            keys: [&[0; 32]; MAX_LANES],
            counters_and_nonces: [[0; 4]; MAX_LANES],
            keystream: [const { MaybeUninit::uninit() }; MAX_LANES],
            written: 0,
        }
    }

    /// Sets what lane `lane` computes at the next [`Blocks::run`].
    #[inline(always)]
    pub(crate) fn set(&mut self, lane: usize, key: &'k Key, nonce: &Nonce, counter: u32) {
        let (words, _) = nonce.as_chunks();
        let [n0, n1, n2] = [words[0], words[1], words[2]].map(u32::from_le_bytes);
        self.keys[lane] = key;
        self.counters_and_nonces[lane] = [counter, n0, n1, n2];
    }

    /// Computes one block in each of the first `lanes` lanes, and in as many
    /// others as come with them.
    #[inline(always)]
    pub(crate) fn run<V: Words>(&mut self, v: V, lanes: usize) {
        if lanes <= V::Narrow::LANES {
            self.run_all(v.narrow());
        } else {
            self.run_all(v);
        }
    }

    /// The blocks of the lanes that have been computed.
    #[inline(always)]
    pub(crate) fn keystream(&self) -> &[[u8; BLOCK_LEN]] {
        // SAFETY: `run_all` has written so many of the array's blocks, and
        // `MaybeUninit` lies in memory as what it holds.
        unsafe { core::slice::from_raw_parts(self.keystream.as_ptr().cast(), self.written) }
    }

    /// Computes one block in each of the first `LANES` lanes.
    #[inline(always)]
    fn run_all<V: Words>(&mut self, v: V) {
        let [k0, k1, k2, k3] = v.gather::<0>(&self.keys, 0);
        let [k4, k5, k6, k7] = v.gather::<16>(&self.keys, 0);
        let [c, n0, n1, n2] = v.rows(&self.counters_and_nonces, 0);
        let x = rounds(v, [k0, k1, k2, k3, k4, k5, k6, k7, c, n0, n1, n2]);
        // SAFETY: there are `LANES` blocks and more.
        unsafe { v.scatter::<false>(&x, self.keystream.as_mut_ptr().cast()) };
        self.written = self.written.max(V::LANES);
    }
}

impl Drop for Blocks<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        for block in &mut self.keystream[..self.written] {
            block.write([0; BLOCK_LEN]);
        }
        zeroize::optimization_barrier(&self.keystream);
    }
}

/// One block per lane, from its key, its counter and its nonce.
#[inline(always)]
fn rounds<V: Words>(v: V, input: [V::Word; 12]) -> [V::Word; 16] {
    let mut x = [input[0]; 16];
    for i in 0..4 {
        x[i] = v.splat(SIGMA[i]);
    }
    x[4..].copy_from_slice(&input);
    for _ in 0..10 {
        v.quarter_rounds(&mut x, COLUMNS);
        v.quarter_rounds(&mut x, DIAGONALS);
    }
    for i in 0..4 {
        x[i] = v.add(x[i], v.splat(SIGMA[i]));
    }
    for i in 0..12 {
        x[4 + i] = v.add(x[4 + i], input[i]);
    }
    x
}

/// The words of the four quarter rounds of an odd and of an even round.
const COLUMNS: [[usize; 4]; 4] = [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]];
const DIAGONALS: [[usize; 4]; 4] = [[0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14]];

/// Four quarter rounds that do not depend on each other, side by side.
#[inline(always)]
pub(crate) fn quarter_rounds<V: Words>(v: V, x: &mut [V::Word; 16], words: [[usize; 4]; 4]) {
    for [a, b, _, d] in words {
        x[a] = v.add(x[a], x[b]);
        x[d] = v.rotate_left::<16>(v.xor(x[d], x[a]));
    }
    for [_, b, c, d] in words {
        x[c] = v.add(x[c], x[d]);
        x[b] = v.rotate_left::<12>(v.xor(x[b], x[c]));
    }
    for [a, b, _, d] in words {
        x[a] = v.add(x[a], x[b]);
        x[d] = v.rotate_left::<8>(v.xor(x[d], x[a]));
    }
    for [_, b, c, d] in words {
        x[c] = v.add(x[c], x[d]);
        x[b] = v.rotate_left::<7>(v.xor(x[b], x[c]));
    }
}

/// Makes the stack of who has it begin at a multiple of the largest register:
/// otherwise registers that it keeps there lie across cache lines every other
/// time that a program starts, for twice the time.
#[repr(align(64))]
struct Aligned<T>(T);

/// Exclusive-ors the keystream of (`key`, `nonce`), from block `counter` on, into
/// as many whole runs of `LANES` blocks as `text` holds, without a detour through
/// memory. Returns how many bytes that is.
#[inline(always)]
pub(crate) fn xor_runs<V: Words>(
    v: V,
    key: &Key,
    nonce: &Nonce,
    counter: u32,
    text: &mut [u8],
) -> usize {
    let runs = text.len() / (V::LANES * BLOCK_LEN);
    let (key, _) = key.as_chunks();
    let (nonce, _) = nonce.as_chunks();
    let Aligned(mut input) = Aligned([v.numbers(); 12]);
    for i in 0..8 {
        input[i] = v.splat(u32::from_le_bytes(key[i]));
    }
    input[8] = v.add(v.numbers(), v.splat(counter));
    for i in 0..3 {
        input[9 + i] = v.splat(u32::from_le_bytes(nonce[i]));
    }
    for run in text.chunks_exact_mut(V::LANES * BLOCK_LEN) {
        let x = rounds(v, input);
        // SAFETY: the run is `LANES` blocks.
        unsafe { v.scatter::<true>(&x, run.as_mut_ptr().cast()) };
        input[8] = v.add(input[8], v.splat(V::LANES as u32));
    }
    runs * V::LANES * BLOCK_LEN
}

/// Exclusive-ors the keystream of (`key`, `nonce`), from block `counter` on,
/// into `text` (RFC 8439, section 2.4).
#[inline(always)]
pub(crate) fn xor_keystream<V: Words>(
    v: V,
    key: &Key,
    nonce: &Nonce,
    counter: u32,
    text: &mut [u8],
) {
    let done = xor_runs(v, key, nonce, counter, text);
    let counter = counter.wrapping_add((done / BLOCK_LEN) as u32);
    let rest = &mut text[done..];
    if rest.is_empty() {
        return;
    }
    let mut blocks = Blocks::new();
    let lanes = rest.len().div_ceil(BLOCK_LEN);
    for lane in 0..lanes {
        blocks.set(lane, key, nonce, counter.wrapping_add(lane as u32));
    }
    blocks.run(v, lanes);
    for (piece, block) in rest.chunks_mut(BLOCK_LEN).zip(blocks.keystream()) {
        v.xor_bytes(piece, block);
    }
}
