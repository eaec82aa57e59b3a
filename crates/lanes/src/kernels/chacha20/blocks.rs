//! Blocks in lanes, where their keystream lies, and what goes on between rounds.

use crate::job::{BLOCK_LEN, Block, Job, Key, Nonce};
use crate::vector::{
    Aligned, BlocksFrom, Interleave, MAX_LANES, Pair, Rows, U32Lanes, prefetch_at,
};
use core::mem::MaybeUninit;
use core::ops::Range;

/// "expand 32-byte k", the first row of every state, as little-endian words.
pub(super) const SIGMA: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// The last row of a state: block counter and nonce.
pub(crate) type CounterRow = [u32; 4];

/// Counter and nonce as the last row of a state (RFC 8439, section 2.3).
#[inline(always)]
pub(crate) fn counter_row(counter: u32, nonce: &Nonce) -> CounterRow {
    let (words, _) = nonce.as_chunks();
    let [n0, n1, n2] = [words[0], words[1], words[2]].map(u32::from_le_bytes);
    [counter, n0, n1, n2]
}

/// A sample of QUIC's header protection as the last row of a state (RFC 9001, section 5.4.4).
#[inline(always)]
pub(crate) fn row_of_sample(sample: &[u8; 16]) -> CounterRow {
    let (words, _) = sample.as_chunks();
    [words[0], words[1], words[2], words[3]].map(u32::from_le_bytes)
}

/// The first 8 bytes of keystream, a little-endian number: a header mask.
#[inline(always)]
pub(crate) fn mask(keystream: &Keystream) -> u64 {
    let words = keystream.blocks()[0].first_chunk();
    u64::from_le_bytes(*words.expect("64 bytes"))
}

/// The key of each lane. Lane 0 must be set first.
pub(crate) struct Keys<'k> {
    keys: [&'k Key; MAX_LANES],
    /// Whether all lanes that are set have the key of lane 0, so that the key is loaded once
    /// and not gathered from each lane.
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

    /// The entries of `lanes`, all of which the caller must set to `key`.
    #[inline(always)]
    fn next(&mut self, lanes: Range<usize>, key: &'k Key) -> &mut [&'k Key] {
        self.one_key = lanes.start == 0 || self.one_key && core::ptr::eq(key, self.keys[0]);
        &mut self.keys[lanes]
    }

    /// Words 4 to 15 of the states of the first `LANES` lanes. `rows` holds the last rows.
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
    fn write<V: U32Lanes>(&mut self, v: V, states: &[V::Word; 16], at: usize) {
        const { assert!(V::LANES <= MAX_LANES) };
        assert!(at <= self.written && at <= MAX_LANES - V::LANES);
        // SAFETY: `at + LANES` is at most `MAX_LANES`, as just asserted.
        unsafe { v.scatter(states, None, self.blocks.0.as_mut_ptr().add(at).cast()) };
        self.written = self.written.max(at + V::LANES);
    }

    /// Writes blocks 0 of one packet per lane, and after them blocks 1. Of block 0 only the first
    /// half, the one-time key, is computed; the second is a copy of it.
    #[inline(always)]
    pub(crate) fn write_first_two<V: U32Lanes>(&mut self, v: V, inputs: &OnePerLane<'_>) {
        let x = inputs.blocks(v, &mut ());
        let mut both = [[x[0][0]; 16]; 2];
        for (i, words) in x.iter().enumerate() {
            (both[0][i], both[1][i]) = (words[0], words[1]);
        }
        self.write_both(v, both);
    }

    /// As [`Keystream::write_first_two`], with other work beside the rounds, ten parts of it.
    #[inline(always)]
    pub(crate) fn write_first_two_beside<V: U32Lanes>(
        &mut self,
        v: V,
        inputs: &OnePerLane<'_>,
        beside: &mut impl Beside,
    ) {
        let mut input = inputs.inputs(v);
        let first = rounds_beside(v, &input, beside);
        input[8] = v.splat(1);
        let second = rounds_beside(v, &input, beside);
        self.write_both(v, [first, second]);
    }

    #[inline(always)]
    fn write_both<V: U32Lanes>(&mut self, v: V, [mut first, second]: [[V::Word; 16]; 2]) {
        const { assert!(2 * V::LANES <= MAX_LANES) };
        first.copy_within(..8, 8);
        self.write(v, &first, 0);
        self.write(v, &second, V::LANES);
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

    /// Writes the first block, or replaces it, in pieces of 8 bytes: what reads as much at a time, such as
    /// a one-time key, need not wait until they are in the cache.
    #[inline(always)]
    pub(super) fn write_first(&mut self, pieces: [u64; BLOCK_LEN / 8]) {
        let block = self.blocks.0[0].write([0; BLOCK_LEN]);
        for (place, piece) in block.as_chunks_mut().0.iter_mut().zip(pieces) {
            *place = piece.to_le_bytes();
        }
        self.written = self.written.max(1);
    }

    /// The blocks that have been written.
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
    // One by one: for all of them the compiler would call `memset`, which takes twice as long for so few
    // bytes.
    for block in blocks {
        block.write([0; BLOCK_LEN]);
        zeroize::optimization_barrier(block);
    }
}

/// How many blocks are kept in a [`Ring`].
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

    /// Writes the blocks of `LANES` lanes from number `at` on. `at` must be a multiple of `LANES`, and the
    /// blocks before must have been written.
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

    /// Block number `at`, or one written over it.
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

    /// Computes one block in each of the first `LANES` lanes, as words, with five parts of other work beside
    /// the rounds.
    #[inline(always)]
    pub(crate) fn words_beside<V: U32Lanes>(
        &self,
        v: V,
        beside: &mut impl Beside,
    ) -> [V::Word; 16] {
        let rows = v.transpose_rows(&self.counters_and_nonces, 0);
        rounds_beside(v, &self.keys.inputs(v, rows), beside)
    }

    /// The blocks that have been computed, by lane.
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
    /// One key and one sample for each lane, from the first lane on.
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

/// What the blocks of one packet per lane are computed from.
pub(crate) struct OnePerLane<'k> {
    keys: Keys<'k>,
    nonces: [&'k [u8; 16]; MAX_LANES],
}

impl<'k> OnePerLane<'k> {
    /// All lanes get this packet's, so that none is ever without.
    #[inline(always)]
    pub(crate) fn new(keys: &'k [Key], job: &'k Job) -> Self {
        Self {
            keys: Keys {
                keys: [&keys[job.key as usize]; MAX_LANES],
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
            (*key, *nonce) = (&keys[job.key as usize], job.nonce_in_row());
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

    /// Blocks 0 and 1, as words: of each word that of block 0, then that of block 1.
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
}

/// The blocks of one packet per lane, block 0 of all, then block 1 of all, and so on.
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

    /// The next block of each packet, as words. `interleaved` is done ten times.
    #[inline(always)]
    fn next(&mut self, interleaved: &mut impl Interleave) -> [V::Word; 16] {
        let (v, inputs) = (self.v, &mut self.inputs);
        let words = rounds_and(v, *inputs, interleaved);
        inputs[8] = v.add(inputs[8], v.splat(1));
        words
    }

    /// The first eight words of block 0, the one-time key; next comes block 1.
    #[inline(always)]
    pub(crate) fn one_time_keys(&mut self) -> [V::Word; 8] {
        let [a, b, c, d, e, f, g, h, ..] = self.next(&mut ());
        [a, b, c, d, e, f, g, h]
    }

    /// Writes the next block of each packet. `interleaved` is done ten times.
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

/// Blocks 0 and 1 of one packet per lane. Returns the first eight words of block 0, the one-time
/// key. Writes block 1, which encrypts the text, to `keystream`. `interleaved` is done nine times.
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

/// One block per lane, as words. `input` is words 4 to 15 of its state: key, counter and nonce.
#[inline(always)]
fn rounds<V: U32Lanes>(v: V, input: [V::Word; 12]) -> [V::Word; 16] {
    rounds_and(v, input, &mut ())
}

/// As [`rounds`], and `interleaved` is done between the rounds.
#[inline(always)]
fn rounds_and<V: U32Lanes, I: Interleave>(
    v: V,
    input: [V::Word; 12],
    interleaved: &mut I,
) -> [V::Word; 16] {
    let mut x = before_rounds(v, &input);
    double_rounds(v, &mut x, 10, interleaved);
    add_input(v, &mut x, &input);
    x
}

/// Double rounds, after each of which `interleaved` is done once.
#[inline(always)]
fn double_rounds<V: U32Lanes>(
    v: V,
    x: &mut [V::Word; 16],
    count: usize,
    interleaved: &mut impl Interleave,
) {
    for _ in 0..count {
        quarter_rounds(v, x, COLUMNS);
        quarter_rounds(v, x, DIAGONALS);
        interleaved.step();
    }
}

/// Words 4 to 15 of the states of blocks whose counters alone differ, and what they have in common after the
/// first column round: columns 1 to 3. The counter is in column 0, so these are computed once.
struct Counting<W> {
    input: [W; 12],
    columns: [W; 12],
}

impl<W: Copy> Counting<W> {
    /// `input` is words 4 to 15 of the first states.
    #[inline(always)]
    fn new<V: U32Lanes<Word = W>>(v: V, input: [W; 12]) -> Self {
        let mut x = before_rounds(v, &input);
        let [_, rest @ ..] = COLUMNS;
        steps(v, &mut x, rest);
        let mut columns = input;
        for (row, words) in columns.chunks_exact_mut(3).enumerate() {
            words.copy_from_slice(&x[4 * row + 1..][..3]);
        }
        Self { input, columns }
    }

    /// Adds to the counters.
    #[inline(always)]
    fn advance<V: U32Lanes<Word = W>>(&mut self, v: V, blocks: usize) {
        self.input[8] = v.add(self.input[8], v.splat(blocks as u32));
    }

    /// One block per lane, as words: see [`rounds_and`]. `interleaved` is done nine times.
    #[inline(always)]
    fn rounds<V: U32Lanes<Word = W>>(&self, v: V, interleaved: &mut impl Interleave) -> [W; 16] {
        let mut x = before_rounds(v, &self.input);
        steps(v, &mut x, [COLUMNS[0]]);
        for (row, words) in self.columns.chunks_exact(3).enumerate() {
            x[4 * row + 1..][..3].copy_from_slice(words);
        }
        quarter_rounds(v, &mut x, DIAGONALS);
        double_rounds(v, &mut x, 9, interleaved);
        add_input(v, &mut x, &self.input);
        x
    }
}

/// The same words in both vectors of a pair.
#[inline(always)]
fn twice<W: Copy>(words: &[W; 12]) -> [[W; 2]; 12] {
    let mut both = [[words[0]; 2]; 12];
    for (both, &word) in both.iter_mut().zip(words) {
        *both = [word; 2];
    }
    both
}

/// As [`rounds`], with five parts of other work beside the rounds.
#[inline(always)]
fn rounds_beside<V: U32Lanes>(
    v: V,
    input: &[V::Word; 12],
    beside: &mut impl Beside,
) -> [V::Word; 16] {
    let x = before_rounds(v, input);
    let mut state = InRounds { v, x };
    for _ in 0..5 {
        beside.two_double_rounds(&mut state);
    }
    add_input(v, &mut state.x, input);
    state.x
}

/// The state of a block before its rounds, whose words 4 to 15 are `input`.
#[inline(always)]
fn before_rounds<V: U32Lanes>(v: V, input: &[V::Word; 12]) -> [V::Word; 16] {
    let mut x = [input[0]; 16];
    for i in 0..4 {
        x[i] = v.splat(SIGMA[i]);
    }
    x[4..].copy_from_slice(input);
    x
}

/// Adds the input of a block to what its rounds made of it.
#[inline(always)]
fn add_input<V: U32Lanes>(v: V, x: &mut [V::Word; 16], input: &[V::Word; 12]) {
    for i in 0..4 {
        x[i] = v.add(x[i], v.splat(SIGMA[i]));
    }
    for i in 0..12 {
        x[4 + i] = v.add(x[4 + i], input[i]);
    }
}

/// The words of the four quarter rounds of a column round and of a diagonal round (RFC 8439,
/// section 2.3).
const COLUMNS: [[usize; 4]; 4] = [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]];
const DIAGONALS: [[usize; 4]; 4] = [[0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14]];

/// Four independent quarter rounds, one step of all four after the other, so that few
/// instructions wait for the one before. If the registers hold no more than the state, then two
/// after the other two.
#[inline(always)]
fn quarter_rounds<V: U32Lanes>(v: V, x: &mut [V::Word; 16], words: [[usize; 4]; 4]) {
    if V::REGISTERS > 16 {
        return steps(v, x, words);
    }
    let [first, second, third, fourth] = words;
    two_quarter_rounds(v, x, [first, second], [third, fourth]);
    // The next round begins with these words.
    two_quarter_rounds(v, x, [third, fourth], [first, second]);
}

/// Two quarter rounds, tied to the `next` two, so that the compiler leaves them in this order; see
/// [`Arithmetic::tie`](crate::vector::Arithmetic::tie).
#[inline(always)]
fn two_quarter_rounds<V: U32Lanes>(
    v: V,
    x: &mut [V::Word; 16],
    words: [[usize; 4]; 2],
    next: [[usize; 4]; 2],
) {
    steps(v, x, words);
    for ([_, b, _, _], [a, _, _, _]) in words.into_iter().zip(next) {
        let (mut before, mut after) = (x[b], x[a]);
        v.tie(&mut before, &mut after);
        (x[b], x[a]) = (before, after);
    }
}

/// Quarter rounds, one step of all of them after the other.
#[inline(always)]
fn steps<V: U32Lanes, const N: usize>(v: V, x: &mut [V::Word; 16], words: [[usize; 4]; N]) {
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

/// Work that is done beside rounds, with instructions that leave the vectors alone.
pub(crate) trait Beside {
    /// Does two double rounds, and a part of the work between them: [`TwoOfEight::run`] eight times.
    fn two_double_rounds(&mut self, state: &mut impl TwoOfEight);
}

/// A state between its rounds.
pub(crate) trait TwoOfEight {
    /// False for `()`, which has no rounds.
    const HAS_ROUNDS: bool = true;

    /// Runs two of the eight quarter rounds of a double round: those from `2 * AT` on.
    fn run<const AT: usize>(&mut self);

    /// Runs all eight.
    #[inline(always)]
    fn run_all(&mut self) {
        self.run::<0>();
        self.run::<1>();
        self.run::<2>();
        self.run::<3>();
    }
}

impl TwoOfEight for () {
    const HAS_ROUNDS: bool = false;

    #[inline(always)]
    fn run<const AT: usize>(&mut self) {}
}

/// A block in each lane.
struct InRounds<V: U32Lanes> {
    v: V,
    x: [V::Word; 16],
}

impl<V: U32Lanes> TwoOfEight for InRounds<V> {
    // Two after the other two, and other work between: so few of the words are in memory.
    #[inline(always)]
    fn run<const AT: usize>(&mut self) {
        let ([c0, c1, c2, c3], [d0, d1, d2, d3]) = (COLUMNS, DIAGONALS);
        let all = [[c0, c1], [c2, c3], [d0, d1], [d2, d3]];
        two_quarter_rounds(self.v, &mut self.x, all[AT], all[(AT + 1) % 4]);
    }
}

/// Computes `LANES` consecutive blocks of one packet, as [`rows`](super::rows()) does.
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
    /// `row` is the last row of the first block's state.
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

    /// The next `LANES` blocks, as words. `interleaved` is done thirty times, or twenty where so few
    /// lanes have few blocks to hash.
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

/// Half of four independent quarter rounds, one after the other, so that the compiler keeps few
/// of the words in memory. The CPU runs them side by side all the same.
#[inline(always)]
fn half_rounds<V: U32Lanes, const D: i32, const B: i32>(
    v: V,
    x: &mut [V::Word; 16],
    words: [[usize; 4]; 4],
) {
    for [a, b, c, d] in words {
        x[a] = v.add(x[a], x[b]);
        x[d] = v.rotate_left::<D>(v.xor(x[d], x[a]));
        x[c] = v.add(x[c], x[d]);
        x[b] = v.rotate_left::<B>(v.xor(x[b], x[c]));
    }
}

/// Keystream blocks of one key: `blocks[i]` has the counter and the nonce of
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

/// XORs `LANES` blocks of keystream into the first blocks of `text`. If there is a `source`, they are XORed with
/// its blocks but for the first one, and the others of `text` are only written.
#[inline(always)]
fn xor_lanes<V: U32Lanes>(
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

/// XORs the keystream of (`key`, `nonce`), from block `counter` on, into `text` (RFC 8439,
/// section 2.4). If there is a `source`, what follows the first block of the text is read there, and only written
/// to `text`.
///
/// # Panics
///
/// If there is a source of another length.
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
        assert_eq!(text_len, text.len(), "the rest of a text");
        from = BlocksFrom::first_and(to.cast_const(), source.as_ptr().cast());
    }
    for _ in 0..runs {
        let next = 0;
        let mut ahead = Ahead { v, from, to, next };
        let x = states.rounds(v, &mut ahead);
        // SAFETY: as many runs of `LANES` blocks lie in the text, and in the source, but for the first block. The
        // source is borrowed beside `text`, which is borrowed alone, so they do not overlap.
        unsafe {
            v.scatter(&x, Some(from), to);
            (from, to) = (from.behind(V::LANES), to.add(V::LANES));
        }
        states.advance(v, V::LANES);
    }
    let done = runs * V::LANES;
    let rest = &mut text[done * BLOCK_LEN..];
    if let Some(source) = source {
        // The first block is there.
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

/// Asks for the blocks that are next, so that they are in the first-level cache when their keystream is there.
struct Ahead<V> {
    /// The vectors whose lanes the blocks fill.
    #[allow(dead_code, reason = "its type says how many blocks there are")]
    v: V,
    from: BlocksFrom,
    to: *mut Block,
    next: usize,
}

impl<V: U32Lanes> Interleave for Ahead<V> {
    // Nine times. Beyond the blocks of a call lie the next ones.
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
    /// Where the blocks behind the first one are read, if not in place; there may be more.
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

/// Words 4 to 15 of the states of consecutive blocks of one key. `row` is the last row of the
/// first block's state.
#[inline(always)]
fn inputs<V: U32Lanes>(v: V, key: &Key, &[counter, n0, n1, n2]: &CounterRow) -> [V::Word; 12] {
    let mut input = [v.add(v.lane_indices(), v.splat(counter)); 12];
    input[..8].copy_from_slice(&key_words(v, key));
    for (word, nonce) in input[9..].iter_mut().zip([n0, n1, n2]) {
        *word = v.splat(nonce);
    }
    input
}

/// The same key in every lane, as words.
#[inline(always)]
fn key_words<V: U32Lanes>(v: V, key: &Key) -> [V::Word; 8] {
    let (key, _) = key.as_chunks();
    let mut words = [v.splat(0); 8];
    for i in 0..8 {
        words[i] = v.splat(u32::from_le_bytes(key[i]));
    }
    words
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

/// XORs `blocks` into as many whole blocks of `text` as they cover. Returns the rest of the text, if there is a
/// block for it.
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
    /// How many blocks.
    pub(crate) blocks: u8,
    /// Index of its packet in the chunk.
    pub(crate) index: u8,
}

impl Run {
    /// The lanes that it is in.
    pub(crate) fn lanes(&self) -> Range<usize> {
        let lane = usize::from(self.lane);
        lane..lane + usize::from(self.blocks)
    }

    /// Index of its packet in the chunk.
    pub(crate) fn index(&self) -> usize {
        self.index.into()
    }
}

/// XORs the blocks of `runs`, which lie in `keystream`, into their texts. `are_scattered` says that texts do
/// not follow each other in memory as they do in the list.
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
