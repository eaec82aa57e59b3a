//! Blocks in lanes: of any packets, of one packet per lane, or of one packet.

use super::keystream::Keystream;
use super::rounds::{
    COLUMNS, CounterRow, Counting, DIAGONALS, Stitch, add_input, before_rounds, counter_row,
    half_rounds, inputs, key_words, rounds, rounds_and, rounds_stitched,
};
use super::xor::xor_lanes;
use crate::job::{Block, Job, Key, Nonce};
use crate::vector::{Interleave, MAX_LANES, Pair, U32Lanes};
use core::ops::Range;

/// The key of each lane. Lane 0 must be set first.
pub(crate) struct Keys<'k> {
    keys: [&'k Key; MAX_LANES],
    /// Whether all lanes that are set have the key of lane 0, so that the key is loaded once
    /// instead of gathered from each lane.
    one_key: bool,
}

impl<'k> Keys<'k> {
    #[inline(always)]
    fn new() -> Self {
        Self {
            keys: [&[0; 32]; MAX_LANES],
            one_key: true,
        }
    }

    /// Returns the entries of `lanes`, all of which the caller must set to `key`.
    #[inline(always)]
    fn next(&mut self, lanes: Range<usize>, key: &'k Key) -> &mut [&'k Key] {
        self.one_key = lanes.start == 0 || self.one_key && core::ptr::eq(key, self.keys[0]);
        &mut self.keys[lanes]
    }

    /// Returns words 4 to 15 of the states of the first `LANES` lanes. `rows` holds the last rows.
    #[inline(always)]
    fn inputs<V: U32Lanes>(&self, v: V, rows: [V::Word; 4]) -> [V::Word; 12] {
        let mut input = [v.splat(0); 12];
        if self.one_key {
            input[..8].copy_from_slice(&key_words(v, self.keys[0]));
        } else {
            input[..4].copy_from_slice(&v.gather::<0, 32>(&self.keys, 0));
            input[4..8].copy_from_slice(&v.gather::<16, 32>(&self.keys, 0));
        }
        input[8..].copy_from_slice(&rows);
        input
    }
}

/// Up to [`MAX_LANES`] blocks of keystream: first their inputs, then the blocks.
pub(crate) struct Blocks<'k> {
    keys: Keys<'k>,
    counters_and_nonces: [[u32; 4]; MAX_LANES],
    keystream: Keystream,
}

impl<'k> Blocks<'k> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self {
            keys: Keys::new(),
            counters_and_nonces: [[0; 4]; MAX_LANES],
            keystream: Keystream::new(),
        }
    }

    /// Sets the inputs of the lanes from `lane` on for the next [`Blocks::run`]: consecutive
    /// blocks with these `counters`. Lane 0 must be set first.
    #[inline(always)]
    pub(crate) fn set(&mut self, lane: usize, key: &'k Key, nonce: &Nonce, counters: Range<u32>) {
        let [_, n0, n1, n2] = counter_row(0, nonce);
        let end = lane + counters.len();
        let keys = self.keys.next(lane..end, key).iter_mut();
        let rows = self.counters_and_nonces[lane..end].iter_mut();
        for ((its_key, row), counter) in keys.zip(rows).zip(counters) {
            *its_key = key;
            *row = [counter, n0, n1, n2];
        }
    }

    /// Computes one block in each of the first `lanes` lanes, and in the other lanes of the
    /// narrowest vector that has as many.
    #[inline(always)]
    pub(crate) fn run<V: U32Lanes>(&mut self, v: V, lanes: usize) {
        if lanes <= V::Narrow::LANES {
            self.run_all(v.narrow());
        } else {
            self.run_all(v);
        }
    }

    /// Computes one block in each of the first `LANES` lanes, as words, with five parts of other
    /// work between the rounds.
    #[inline(always)]
    pub(crate) fn words_stitched<V: U32Lanes>(
        &self,
        v: V,
        work: &mut impl Stitch,
    ) -> [V::Word; 16] {
        let rows = v.transpose_rows(&self.counters_and_nonces, 0);
        rounds_stitched(v, &self.keys.inputs(v, rows), work)
    }

    /// Returns the computed blocks, by lane.
    #[inline(always)]
    pub(crate) fn keystream(&self) -> &[Block] {
        self.keystream.blocks()
    }

    /// Computes one block in each of the first `LANES` lanes.
    #[inline(always)]
    fn run_all<V: U32Lanes>(&mut self, v: V) {
        let rows = v.transpose_rows(&self.counters_and_nonces, 0);
        let x = rounds(v, self.keys.inputs(v, rows));
        self.keystream.write(v, &x, 0);
    }
}

/// Up to [`MAX_LANES`] samples of QUIC's header protection (RFC 9001, section 5.4.4). A sample
/// is the last row of a state: a counter and a nonce.
pub(crate) struct Samples<'s> {
    keys: Keys<'s>,
    samples: [&'s [u8; 16]; MAX_LANES],
}

impl<'s> Samples<'s> {
    /// Sets one key and one sample for each lane, starting with the first.
    #[inline(always)]
    pub(crate) fn new(inputs: impl Iterator<Item = (&'s Key, &'s [u8; 16])>) -> Self {
        let mut keys = [&[0; 32]; MAX_LANES];
        let mut samples = [&[0; 16]; MAX_LANES];
        let mut previous = core::ptr::null();
        let mut changes = 0;
        for ((its_key, its_sample), (key, sample)) in keys.iter_mut().zip(&mut samples).zip(inputs)
        {
            (*its_key, *its_sample) = (key, sample);
            changes += usize::from(!core::ptr::eq(key, previous));
            previous = key;
        }
        let one_key = changes <= 1;
        Self {
            keys: Keys { keys, one_key },
            samples,
        }
    }

    /// Computes the first two words of the blocks of the first `lanes` lanes, and of the other
    /// lanes of the narrowest vector that has as many. `words[i]` gets word i by lane. A header
    /// mask needs no more words.
    #[inline(always)]
    pub(crate) fn masks<V: U32Lanes>(&self, v: V, lanes: usize, words: &mut [[u32; MAX_LANES]; 2]) {
        if lanes <= V::Narrow::LANES {
            self.all_masks(v.narrow(), words);
        } else {
            self.all_masks(v, words);
        }
    }

    #[inline(always)]
    fn all_masks<V: U32Lanes>(&self, v: V, words: &mut [[u32; MAX_LANES]; 2]) {
        let x = rounds(v, self.keys.inputs(v, v.gather::<0, 16>(&self.samples, 0)));
        v.store(x[0], &mut words[0]);
        v.store(x[1], &mut words[1]);
    }
}

/// The inputs of the blocks of one packet per lane.
pub(crate) struct OnePerLane<'k> {
    keys: Keys<'k>,
    nonces: [&'k [u8; 16]; MAX_LANES],
}

impl<'k> OnePerLane<'k> {
    /// Sets all lanes to this packet's inputs, so that no lane is unset.
    #[inline(always)]
    pub(crate) fn new(keys: &'k [Key], job: &'k Job) -> Self {
        Self {
            keys: Keys {
                keys: [&keys[job.key]; MAX_LANES],
                one_key: true,
            },
            nonces: [job.nonce_in_row(); MAX_LANES],
        }
    }

    /// Sets the first lanes, one for each job.
    #[inline(always)]
    pub(crate) fn set(&mut self, keys: &'k [Key], jobs: &'k [Job]) {
        let mut other_keys = 0;
        let lanes = self.keys.keys.iter_mut().zip(&mut self.nonces);
        for (job, (key, nonce)) in jobs.iter().zip(lanes) {
            (*key, *nonce) = (&keys[job.key], job.nonce_in_row());
            other_keys |= job.key ^ jobs[0].key;
        }
        self.keys.one_key = other_keys == 0;
    }

    /// Words 4 to 15 of the states of blocks 0.
    #[inline(always)]
    fn inputs<V: U32Lanes>(&self, v: V) -> [V::Word; 12] {
        let mut rows = v.gather::<0, 16>(&self.nonces, 0);
        rows[0] = v.splat(0);
        self.keys.inputs(v, rows)
    }

    /// Returns blocks 0 and 1 as words: for each word, that of block 0, then that of block 1.
    #[inline(always)]
    fn blocks<V: U32Lanes>(&self, v: V, interleaved: &mut impl Interleave) -> [[V::Word; 2]; 16] {
        let first = Counting::new(v, self.inputs(v));
        let mut both = Counting {
            input: twice(&first.input),
            columns: twice(&first.columns),
        };
        both.input[8][1] = v.splat(1);
        both.rounds(Pair(v), interleaved)
    }

    /// Writes block 0 of each packet, one packet per lane, then block 1 of each. Of block 0 only
    /// the first half, the one-time key, is computed; the second half is a copy of it.
    #[inline(always)]
    pub(crate) fn write_first_two<V: U32Lanes>(&self, v: V, keystream: &mut Keystream) {
        let x = self.blocks(v, &mut ());
        let mut both = [[x[0][0]; 16]; 2];
        for (i, words) in x.iter().enumerate() {
            (both[0][i], both[1][i]) = (words[0], words[1]);
        }
        write_both(v, keystream, both);
    }

    /// Like [`OnePerLane::write_first_two`], with ten parts of other work between the rounds.
    #[inline(always)]
    pub(crate) fn write_first_two_stitched<V: U32Lanes>(
        &self,
        v: V,
        keystream: &mut Keystream,
        work: &mut impl Stitch,
    ) {
        let mut input = self.inputs(v);
        let first = rounds_stitched(v, &input, work);
        input[8] = v.splat(1);
        let second = rounds_stitched(v, &input, work);
        write_both(v, keystream, [first, second]);
    }
}

/// Writes blocks 0 of one packet per lane, of which the first half is computed, and blocks 1.
#[inline(always)]
fn write_both<V: U32Lanes>(
    v: V,
    keystream: &mut Keystream,
    [mut first, second]: [[V::Word; 16]; 2],
) {
    const { assert!(2 * V::LANES <= MAX_LANES) };
    first.copy_within(..8, 8);
    keystream.write(v, &first, 0);
    keystream.write(v, &second, V::LANES);
}

/// Returns the same words for both vectors of a pair.
#[inline(always)]
fn twice<W: Copy>(words: &[W; 12]) -> [[W; 2]; 12] {
    let mut both = [[words[0]; 2]; 12];
    for (both, &word) in both.iter_mut().zip(words) {
        *both = [word; 2];
    }
    both
}

/// The blocks of one packet per lane: block 0 of all, then block 1 of all, and so on.
pub(crate) struct Lockstep<V: U32Lanes> {
    v: V,
    /// Words 4 to 15 of the next states.
    inputs: [V::Word; 12],
}

impl<V: U32Lanes> Lockstep<V> {
    #[inline(always)]
    pub(crate) fn new(v: V, packets: &OnePerLane<'_>) -> Self {
        let inputs = packets.inputs(v);
        Self { v, inputs }
    }

    /// Returns the next block of each packet, as words. Calls `interleaved` ten times.
    #[inline(always)]
    fn next(&mut self, interleaved: &mut impl Interleave) -> [V::Word; 16] {
        let (v, inputs) = (self.v, &mut self.inputs);
        let words = rounds_and(v, *inputs, interleaved);
        inputs[8] = v.add(inputs[8], v.splat(1));
        words
    }

    /// Returns the first eight words of block 0, the one-time key. Block 1 is next.
    #[inline(always)]
    pub(crate) fn one_time_keys(&mut self) -> [V::Word; 8] {
        let [a, b, c, d, e, f, g, h, ..] = self.next(&mut ());
        [a, b, c, d, e, f, g, h]
    }

    /// Writes the next block of each packet. Calls `interleaved` ten times.
    #[inline(always)]
    pub(crate) fn write_next(
        &mut self,
        keystream: &mut Keystream,
        interleaved: &mut impl Interleave,
    ) {
        let words = self.next(interleaved);
        keystream.write(self.v, &words, 0);
    }
}

/// Computes blocks 0 and 1 of one packet per lane. Returns the first eight words of block 0, the
/// one-time key. Writes block 1, which encrypts the text, to `keystream`. Calls `interleaved` nine
/// times.
#[inline(always)]
pub(crate) fn key_and_first_block<V: U32Lanes>(
    v: V,
    inputs: &OnePerLane<'_>,
    keystream: &mut Keystream,
    interleaved: &mut impl Interleave,
) -> [V::Word; 8] {
    let x = inputs.blocks(v, interleaved);
    let mut key = [x[0][0]; 8];
    for (word, both) in key.iter_mut().zip(&x) {
        *word = both[0];
    }
    let mut second = [x[0][1]; 16];
    for (word, both) in second.iter_mut().zip(&x) {
        *word = both[1];
    }
    keystream.write(v, &second, 0);
    key
}

/// Computes `LANES` consecutive blocks of one packet, like [`rows`](super::rows()).
#[inline(always)]
pub(super) fn in_lanes<V: U32Lanes, I: Interleave>(
    v: V,
    (key, row): (&Key, &CounterRow),
    keystream: &mut Keystream,
    at: usize,
    interleaved: &mut I,
) {
    let x = rounds_and(v, inputs(v, key, row), interleaved);
    keystream.write(v, &x, at);
}

/// Consecutive blocks of one packet, a block in each lane, with other work between the rounds.
pub(crate) struct Stitched<V: U32Lanes> {
    v: V,
    /// Words 4 to 15 of the next states.
    input: [V::Word; 12],
}

impl<V: U32Lanes> Stitched<V> {
    /// Creates the blocks; `row` is the last row of the first block's state.
    #[inline(always)]
    pub(crate) fn new(v: V, (key, row): (&Key, &CounterRow)) -> Self {
        let input = inputs(v, key, row);
        Self { v, input }
    }

    /// XORs `LANES` blocks of keystream, which [`Stitched::next`] returned, into the first blocks of
    /// `text`.
    #[inline(always)]
    pub(crate) fn xor(&self, keystream: &[V::Word; 16], text: &mut [Block]) {
        xor_lanes(self.v, keystream, None, text);
    }

    /// Returns the next `LANES` blocks, as words. Calls `interleaved` thirty times, or twenty if
    /// there are so few lanes that few blocks are to be hashed.
    #[inline(always)]
    pub(crate) fn next(&mut self, interleaved: &mut impl Interleave) -> [V::Word; 16] {
        let (v, input) = (self.v, &mut self.input);
        let mut x = before_rounds(v, input);
        if !v.ten_double_rounds(&mut x, interleaved) {
            for _ in 0..10 {
                half_rounds::<_, 16, 12>(v, &mut x, COLUMNS);
                interleaved.step();
                half_rounds::<_, 8, 7>(v, &mut x, COLUMNS);
                interleaved.step();
                half_rounds::<_, 16, 12>(v, &mut x, DIAGONALS);
                if V::LANES > 4 {
                    interleaved.step();
                }
                half_rounds::<_, 8, 7>(v, &mut x, DIAGONALS);
            }
        }
        add_input(v, &mut x, input);
        input[8] = v.add(input[8], v.splat(V::LANES as u32));
        x
    }
}

/// Computes keystream blocks of one key: `blocks[i]` has the counter and the nonce of
/// `counters_and_nonces[i]`. There must be at most `LANES`.
#[inline(always)]
pub(crate) fn blocks_of_key<V: U32Lanes>(
    v: V,
    key: &Key,
    counters_and_nonces: &[(u32, Nonce)],
    blocks: &mut [Block],
) {
    if blocks.len() <= V::Narrow::LANES {
        blocks_in_lanes(v.narrow(), key, counters_and_nonces, blocks);
    } else {
        blocks_in_lanes(v, key, counters_and_nonces, blocks);
    }
}

#[inline(always)]
fn blocks_in_lanes<V: U32Lanes>(
    v: V,
    key: &Key,
    counters_and_nonces: &[(u32, Nonce)],
    blocks: &mut [Block],
) {
    let mut rows = [[0; 4]; MAX_LANES];
    for (row, (counter, nonce)) in rows.iter_mut().zip(counters_and_nonces) {
        *row = counter_row(*counter, nonce);
    }
    let mut input = [v.splat(0); 12];
    input[..8].copy_from_slice(&key_words(v, key));
    input[8..].copy_from_slice(&v.transpose_rows(&rows, 0));
    let x = rounds(v, input);
    if blocks.len() == V::LANES {
        // SAFETY: the slice is `LANES` blocks long.
        unsafe { v.scatter(&x, None, blocks.as_mut_ptr()) };
        return;
    }
    let mut all = Keystream::new();
    all.write(v, &x, 0);
    blocks.copy_from_slice(&all.blocks()[..blocks.len()]);
}
