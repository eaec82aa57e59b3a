//! A few blocks of one packet in rows: a vector holds one row of four words of each of its blocks.

use super::blocks::in_lanes;
use super::keystream::Keystream;
use super::rounds::{CounterRow, SIGMA};
use super::scalar::ScalarBlock;
use crate::job::Key;
use crate::vector::{Interleave, Pair, Rows, Triple, U32Lanes};

/// Computes `count` consecutive blocks of one packet in rows, and the blocks that fill up the
/// vectors, into `keystream` after its first `at` blocks. `row` is the last row of the first
/// block's state. Up to `N` vectors are interleaved. `interleaved` is done between the rounds.
#[inline(always)]
pub(crate) fn rows<R: Rows, I: Interleave, const N: usize>(
    r: R,
    (key, row): (&Key, &CounterRow),
    count: usize,
    keystream: &mut Keystream,
    at: usize,
    interleaved: &mut I,
) {
    const { assert!(N == 2 || N == 3) };
    if count <= R::BLOCKS {
        in_rows(r, key, row, keystream, at, interleaved);
    } else if N == 2 || count <= 2 * R::BLOCKS {
        in_rows(Pair(r), key, row, keystream, at, interleaved);
    } else {
        in_rows(Triple(r), key, row, keystream, at, interleaved);
    }
}

/// Returns the maximum number of blocks of [`rows_or_scalar`]: as many as `N` vectors hold and, if
/// a vector holds more than one, another one in general registers.
pub(crate) const fn max_in_rows<R: Rows, const N: usize>() -> usize {
    N * R::BLOCKS + (R::BLOCKS > 1) as usize
}

/// Like [`rows`], but if a single block would need a third vector of 256 bits, or a second one of
/// 512, the first block is computed in general registers, between the rounds of the others. `count`
/// is at most [`max_in_rows`].
#[inline(always)]
pub(crate) fn rows_or_scalar<R: Rows, const N: usize>(
    r: R,
    (key, row): (&Key, &CounterRow),
    count: usize,
    keystream: &mut Keystream,
) {
    debug_assert!(count <= max_in_rows::<R, N>());
    if count < 5 || count % R::BLOCKS != 1 {
        return rows::<_, _, N>(r, (key, row), count, keystream, 0, &mut ());
    }
    let (mut first, others) = (ScalarBlock::new(key, row), counter_after(row, 1));
    // Reserves its place before the blocks after it.
    keystream.write_first([0; _]);
    rows::<_, _, N>(r, (key, &others), count - 1, keystream, 1, &mut first);
    keystream.write_first(first.finish());
}

#[inline(always)]
fn in_rows<R: Rows, I: Interleave>(
    r: R,
    key: &Key,
    row: &CounterRow,
    keystream: &mut Keystream,
    at: usize,
    interleaved: &mut I,
) {
    let mut state = State::new(r, key, row);
    for _ in 0..10 {
        state.step();
        interleaved.step();
    }
    keystream.write_rows(r, state.finish(), at);
}

/// Returns the last row of the state that is `blocks` after that of `row`.
#[inline(always)]
fn counter_after(&[counter, n0, n1, n2]: &CounterRow, blocks: u32) -> CounterRow {
    [counter.wrapping_add(blocks), n0, n1, n2]
}

/// Rows of a few states, and their initial values.
struct State<R: Rows> {
    r: R,
    input: [R::Word; 4],
    rows: [R::Word; 4],
}

impl<R: Rows> State<R> {
    /// Returns the states of consecutive blocks before the first round.
    #[inline(always)]
    fn new(r: R, key: &Key, row: &CounterRow) -> Self {
        let (words, _) = key.as_chunks();
        let mut halves = [[0; 4]; 2];
        for (place, word) in halves.as_flattened_mut().iter_mut().zip(words) {
            *place = u32::from_le_bytes(*word);
        }
        let input = [
            r.row(&SIGMA),
            r.row(&halves[0]),
            r.row(&halves[1]),
            r.add_block_numbers(r.row(row)),
        ];
        halves = [[0; 4]; 2];
        zeroize::optimization_barrier(&halves);
        let rows = input;
        Self { r, input, rows }
    }

    /// Returns the keystream blocks, after the last round.
    #[inline(always)]
    fn finish(self) -> [R::Word; 4] {
        let (r, [a, b, c, d], input) = (self.r, self.rows, self.input);
        [
            r.add(a, input[0]),
            r.add(b, input[1]),
            r.add(c, input[2]),
            r.add(d, input[3]),
        ]
    }
}

/// Two rounds.
impl<R: Rows> Interleave for State<R> {
    #[inline(always)]
    fn step(&mut self) {
        let r = self.r;
        let [mut a, mut b, mut c, mut d] = self.rows;
        macro_rules! quarter_rounds {
            () => {
                a = r.add(a, b);
                d = r.rotate_left::<16>(r.xor(d, a));
                c = r.add(c, d);
                b = r.rotate_left::<12>(r.xor(b, c));
                a = r.add(a, b);
                d = r.rotate_left::<8>(r.xor(d, a));
                c = r.add(c, d);
                b = r.rotate_left::<7>(r.xor(b, c));
            };
        }
        quarter_rounds!();
        // Rotates the rows so that the diagonals become columns. Row b is not rotated, because it
        // is known last.
        (a, c, d) = (
            r.rotate_row::<3>(a),
            r.rotate_row::<1>(c),
            r.rotate_row::<2>(d),
        );
        quarter_rounds!();
        (a, c, d) = (
            r.rotate_row::<1>(a),
            r.rotate_row::<3>(c),
            r.rotate_row::<2>(d),
        );
        self.rows = [a, b, c, d];
    }
}

/// Like [`rows`], for up to `LANES` blocks: in lanes if there are more blocks than the rows hold.
/// If there are more than half the lanes, but fewer than all, half the lanes compute most of them,
/// and rows the others between the rounds of the lanes.
#[inline(always)]
pub(crate) fn rows_in_lanes<V: U32Lanes, R: Rows, I: Interleave, const N: usize>(
    (v, r): (V, R),
    (key, row): (&Key, &CounterRow),
    count: usize,
    keystream: &mut Keystream,
    at: usize,
    interleaved: &mut I,
) {
    let half = V::Narrow::LANES;
    let key_and_row = (key, row);
    if count <= N * R::BLOCKS {
        return rows::<_, _, N>(r, key_and_row, count, keystream, at, interleaved);
    }
    if count <= half {
        return in_lanes(v.narrow(), key_and_row, keystream, at, interleaved);
    }
    if count > half + N * R::BLOCKS {
        return in_lanes(v, key_and_row, keystream, at, interleaved);
    }
    let later = counter_after(row, half as u32);
    macro_rules! with_rows {
        ($r:expr) => {{
            let r = $r;
            let mut state = State::new(r, key, &later);
            let mut both = (&mut state, interleaved);
            in_lanes(v.narrow(), key_and_row, keystream, at, &mut both);
            keystream.write_rows(r, state.finish(), at + half);
        }};
    }
    match count - half {
        few if few <= R::BLOCKS => with_rows!(r),
        few if N == 2 || few <= 2 * R::BLOCKS => with_rows!(Pair(r)),
        _ => with_rows!(Triple(r)),
    }
}
