//! States of blocks, and their rounds.

use crate::job::{Key, Nonce};
use crate::vector::{Interleave, U32Lanes};

/// "expand 32-byte k", the first row of every state, as little-endian words.
pub(super) const SIGMA: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// The last row of a state: block counter and nonce.
pub(crate) type CounterRow = [u32; 4];

/// Returns counter and nonce as the last row of a state (RFC 8439, section 2.3).
#[inline(always)]
pub(crate) fn counter_row(counter: u32, nonce: &Nonce) -> CounterRow {
    let (words, _) = nonce.as_chunks();
    let [n0, n1, n2] = [words[0], words[1], words[2]].map(u32::from_le_bytes);
    [counter, n0, n1, n2]
}

/// Returns a sample of QUIC's header protection as the last row of a state (RFC 9001, section
/// 5.4.4).
#[inline(always)]
pub(crate) fn row_of_sample(sample: &[u8; 16]) -> CounterRow {
    let (words, _) = sample.as_chunks();
    [words[0], words[1], words[2], words[3]].map(u32::from_le_bytes)
}

/// Returns words 4 to 15 of the states of consecutive blocks of one key. `row` is the last row of
/// the first block's state.
#[inline(always)]
pub(super) fn inputs<V: U32Lanes>(
    v: V,
    key: &Key,
    &[counter, n0, n1, n2]: &CounterRow,
) -> [V::Word; 12] {
    let mut input = [v.add(v.lane_indices(), v.splat(counter)); 12];
    input[..8].copy_from_slice(&key_words(v, key));
    for (word, nonce) in input[9..].iter_mut().zip([n0, n1, n2]) {
        *word = v.splat(nonce);
    }
    input
}

/// Returns the same key in every lane, as words.
#[inline(always)]
pub(super) fn key_words<V: U32Lanes>(v: V, key: &Key) -> [V::Word; 8] {
    let (key, _) = key.as_chunks();
    let mut words = [v.splat(0); 8];
    for i in 0..8 {
        words[i] = v.splat(u32::from_le_bytes(key[i]));
    }
    words
}

/// Returns the state of a block before its rounds, whose words 4 to 15 are `input`.
#[inline(always)]
pub(super) fn before_rounds<V: U32Lanes>(v: V, input: &[V::Word; 12]) -> [V::Word; 16] {
    let mut x = [input[0]; 16];
    for i in 0..4 {
        x[i] = v.splat(SIGMA[i]);
    }
    x[4..].copy_from_slice(input);
    x
}

/// Adds the input of a block to the result of its rounds.
#[inline(always)]
pub(super) fn add_input<V: U32Lanes>(v: V, x: &mut [V::Word; 16], input: &[V::Word; 12]) {
    for i in 0..4 {
        x[i] = v.add(x[i], v.splat(SIGMA[i]));
    }
    for i in 0..12 {
        x[4 + i] = v.add(x[4 + i], input[i]);
    }
}

/// The words of the four quarter rounds of a column round and of a diagonal round (RFC 8439,
/// section 2.3).
pub(super) const COLUMNS: [[usize; 4]; 4] =
    [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]];
pub(super) const DIAGONALS: [[usize; 4]; 4] =
    [[0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14]];

/// Computes one block per lane, as words. `input` is words 4 to 15 of its state: key, counter and
/// nonce.
#[inline(always)]
pub(super) fn rounds<V: U32Lanes>(v: V, input: [V::Word; 12]) -> [V::Word; 16] {
    rounds_and(v, input, &mut ())
}

/// Like [`rounds`], with `interleaved` between the rounds.
#[inline(always)]
pub(super) fn rounds_and<V: U32Lanes, I: Interleave>(
    v: V,
    input: [V::Word; 12],
    interleaved: &mut I,
) -> [V::Word; 16] {
    let mut x = before_rounds(v, &input);
    double_rounds(v, &mut x, 10, interleaved);
    add_input(v, &mut x, &input);
    x
}

/// Double rounds, with one step of `interleaved` after each.
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

/// Words 4 to 15 of the states of blocks that differ only in their counters, and the part of the
/// first column round that they share: columns 1 to 3. The counter is in column 0, so these are
/// computed once.
pub(super) struct Counting<W> {
    pub(super) input: [W; 12],
    pub(super) columns: [W; 12],
}

impl<W: Copy> Counting<W> {
    /// Creates it; `input` is words 4 to 15 of the first states.
    #[inline(always)]
    pub(super) fn new<V: U32Lanes<Word = W>>(v: V, input: [W; 12]) -> Self {
        let mut x = before_rounds(v, &input);
        let [_, rest @ ..] = COLUMNS;
        steps(v, &mut x, rest);
        let mut columns = input;
        for (row, words) in columns.chunks_exact_mut(3).enumerate() {
            words.copy_from_slice(&x[4 * row + 1..][..3]);
        }
        Self { input, columns }
    }

    /// Adds `blocks` to the counters.
    #[inline(always)]
    pub(super) fn advance<V: U32Lanes<Word = W>>(&mut self, v: V, blocks: usize) {
        self.input[8] = v.add(self.input[8], v.splat(blocks as u32));
    }

    /// Computes one block per lane, as words: see [`rounds_and`]. Calls `interleaved` nine times.
    #[inline(always)]
    pub(super) fn rounds<V: U32Lanes<Word = W>>(
        &self,
        v: V,
        interleaved: &mut impl Interleave,
    ) -> [W; 16] {
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

/// Like [`rounds`], with five parts of other work between the rounds.
#[inline(always)]
pub(super) fn rounds_stitched<V: U32Lanes>(
    v: V,
    input: &[V::Word; 12],
    work: &mut impl Stitch,
) -> [V::Word; 16] {
    let x = before_rounds(v, input);
    let mut state = BetweenRounds { v, x };
    for _ in 0..5 {
        work.two_double_rounds(&mut state);
    }
    add_input(v, &mut state.x, input);
    state.x
}

/// Four independent quarter rounds, interleaved step by step, so that few instructions wait for the
/// previous one. If the registers hold no more than the state, two quarter rounds come after the
/// other two.
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

/// Two quarter rounds, tied to the `next` two, so that the compiler keeps this order; see
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

/// Quarter rounds, interleaved step by step.
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

/// Half of four independent quarter rounds, one after the other, so that the compiler keeps few of
/// the words in memory. The CPU still runs them in parallel.
#[inline(always)]
pub(super) fn half_rounds<V: U32Lanes, const D: i32, const B: i32>(
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

/// Work that is done between rounds, with instructions that do not use vectors.
pub(crate) trait Stitch {
    /// Does two double rounds with a part of the work between them: calls [`QuarterRounds::run`]
    /// eight times.
    fn two_double_rounds(&mut self, state: &mut impl QuarterRounds);
}

/// A state between its rounds.
pub(crate) trait QuarterRounds {
    /// False for `()`, which has no rounds.
    const HAS_ROUNDS: bool = true;

    /// Runs two of the eight quarter rounds of a double round: those from `2 * AT` on.
    fn run<const AT: usize>(&mut self);

    /// Runs all eight quarter rounds.
    #[inline(always)]
    fn run_all(&mut self) {
        self.run::<0>();
        self.run::<1>();
        self.run::<2>();
        self.run::<3>();
    }
}

impl QuarterRounds for () {
    const HAS_ROUNDS: bool = false;

    #[inline(always)]
    fn run<const AT: usize>(&mut self) {}
}

/// A block in each lane.
struct BetweenRounds<V: U32Lanes> {
    v: V,
    x: [V::Word; 16],
}

impl<V: U32Lanes> QuarterRounds for BetweenRounds<V> {
    // Two quarter rounds after the other two, with other work between: few of the words are then in
    // memory.
    #[inline(always)]
    fn run<const AT: usize>(&mut self) {
        let ([c0, c1, c2, c3], [d0, d1, d2, d3]) = (COLUMNS, DIAGONALS);
        let all = [[c0, c1], [c2, c3], [d0, d1], [d2, d3]];
        two_quarter_rounds(self.v, &mut self.x, all[AT], all[(AT + 1) % 4]);
    }
}
