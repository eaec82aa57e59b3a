//! A few blocks of one packet, or of two, in rows: a vector holds one row of four words of each of its
//! blocks.

use super::blocks::{CounterRow, Interleave, Keystream, SIGMA, in_lanes};
use super::scalar::ScalarBlock;
use crate::job::Key;
use crate::vector::{Pair, Rows, Triple, TwoStates, U32Lanes};

/// Computes `count` consecutive blocks of one packet in rows, and the blocks that fill up the
/// vectors, into `keystream` after its first `at` blocks. `row` is the last row of the first
/// block's state. Up to `N` vectors run side by side. `interleaved` is done between the rounds.
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

/// As [`rows`], but where a single block would take a third vector of 256 bits, or a second one of 512,
/// the first block is computed in general registers, between the rounds of the others.
#[inline(always)]
pub(crate) fn rows_or_scalar<R: Rows, const N: usize>(
    r: R,
    (key, row): (&Key, &CounterRow),
    count: usize,
    keystream: &mut Keystream,
) {
    if count < 5 || count % R::BLOCKS != 1 {
        return rows::<_, _, N>(r, (key, row), count, keystream, 0, &mut ());
    }
    let (mut first, others) = (ScalarBlock::new(key, row), counter_after(row, 1));
    // Its place, for those after it.
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

/// As [`rows`], for the first `count` blocks of two packets, 3 to 6 of each, and a keystream for each
/// packet. Each of the two works is done between the rounds.
#[inline(always)]
pub(crate) fn rows_of_two<R: TwoStates, I: Interleave>(
    r: R,
    of: [(&Key, &CounterRow); 2],
    count: usize,
    keystreams: &mut [Keystream; 2],
    interleaved: &mut [I; 2],
) {
    const { assert!(R::BLOCKS == 2) };
    // Up to three vectors side by side have registers for all of their rows. A word that moves to memory
    // and back between the rounds takes longer than what the next vector would gain.
    let [a, b] = of;
    match count {
        ..=3 => {
            let [of_a, of_b] = keystreams;
            let mut all = beside(r, [a, b], State::last_of_two(r, of, 2));
            run(&mut all, &mut (), interleaved);
            let [rows_of_a, rows_of_b, last] = separate(all.finish());
            of_a.write_rows(r, rows_of_a, 0);
            of_b.write_rows(r, rows_of_b, 0);
            write_last(r, last, [of_a, of_b], 2);
        }
        4 => each_in_rows(Pair(r), of, keystreams, interleaved),
        5 => {
            let [of_a, of_b] = keystreams;
            let row = counter_after(a.1, 2);
            let mut first = beside(r, [a, (a.0, &row)], State::last_of_two(r, of, 4));
            let mut second = State::new(Pair(r), b.0, b.1);
            run(&mut first, &mut second, interleaved);
            let [rows0, rows1, last] = separate(first.finish());
            of_a.write_rows(r, rows0, 0);
            of_a.write_rows(r, rows1, 2);
            of_b.write_rows(Pair(r), second.finish(), 0);
            write_last(r, last, [of_a, of_b], 4);
        }
        _ => each_in_rows(Triple(r), of, keystreams, interleaved),
    }
}

/// The blocks of each packet in vectors of its own.
#[inline(always)]
fn each_in_rows<R: Rows, I: Interleave>(
    r: R,
    [a, b]: [(&Key, &CounterRow); 2],
    [of_a, of_b]: &mut [Keystream; 2],
    interleaved: &mut [I; 2],
) {
    let (mut a, mut b) = (State::new(r, a.0, a.1), State::new(r, b.0, b.1));
    run(&mut a, &mut b, interleaved);
    of_a.write_rows(r, a.finish(), 0);
    of_b.write_rows(r, b.finish(), 0);
}

/// All rounds of two states, and between them two other works.
#[inline(always)]
fn run<I: Interleave>(a: &mut impl Interleave, b: &mut impl Interleave, works: &mut [I; 2]) {
    for _ in 0..10 {
        a.step();
        works[0].step();
        b.step();
        works[1].step();
    }
}

/// The last row of a state `blocks` after that of `row`.
#[inline(always)]
fn counter_after(&[counter, n0, n1, n2]: &CounterRow, blocks: u32) -> CounterRow {
    [counter.wrapping_add(blocks), n0, n1, n2]
}

/// The first two blocks of `both`, each in a vector, and beside them those of a third vector.
#[inline(always)]
fn beside<R: Rows>(r: R, both: [(&Key, &CounterRow); 2], third: State<R>) -> State<Triple<R>> {
    let [a, b] = both;
    let (a, b) = (State::new(r, a.0, a.1), State::new(r, b.0, b.1));
    let input = [
        [a.input[0], b.input[0], third.input[0]],
        [a.input[1], b.input[1], third.input[1]],
        [a.input[2], b.input[2], third.input[2]],
        [a.input[3], b.input[3], third.input[3]],
    ];
    State::before_rounds(Triple(r), input)
}

/// The rows of each of three vectors.
#[inline(always)]
fn separate<W: Copy>([a, b, c, d]: [[W; 3]; 4]) -> [[W; 4]; 3] {
    [
        [a[0], b[0], c[0], d[0]],
        [a[1], b[1], c[1], d[1]],
        [a[2], b[2], c[2], d[2]],
    ]
}

/// Writes block `at` of each of two packets.
#[inline(always)]
fn write_last<R: TwoStates>(r: R, rows: [R::Word; 4], [a, b]: [&mut Keystream; 2], at: usize) {
    let [row0, row1, row2, row3] = rows;
    a.write_rows(r, rows, at);
    let exchanged = [
        r.exchange(row0),
        r.exchange(row1),
        r.exchange(row2),
        r.exchange(row3),
    ];
    b.write_rows(r, exchanged, at);
}

/// Rows of a few states, and what they were at first.
struct State<R: Rows> {
    r: R,
    input: [R::Word; 4],
    rows: [R::Word; 4],
}

impl<R: Rows> State<R> {
    /// The states of consecutive blocks before the first round.
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
        Self::before_rounds(r, input)
    }

    #[inline(always)]
    fn before_rounds(r: R, input: [R::Word; 4]) -> Self {
        let rows = input;
        Self { r, input, rows }
    }

    /// The states of two packets' blocks, `number` blocks after those of their rows.
    #[inline(always)]
    fn last_of_two(r: R, [a, b]: [(&Key, &CounterRow); 2], number: u32) -> Self
    where
        R: TwoStates,
    {
        // The second state of a vector is one block further.
        let (row_of_a, row_of_b) = (counter_after(a.1, number), counter_after(b.1, number - 1));
        let (a, b) = (Self::new(r, a.0, &row_of_a), Self::new(r, b.0, &row_of_b));
        let mut input = a.input;
        for (row, row_of_b) in input.iter_mut().zip(b.input) {
            *row = r.merge(*row, row_of_b);
        }
        Self::before_rounds(r, input)
    }

    /// The keystream blocks, after the last round.
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
        // Rotates the rows so that the diagonals become columns. Row b stays as it is, since it
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

/// As [`rows`], for up to `LANES` blocks: in lanes if there are more blocks than the rows hold. If
/// there are more than half the lanes, but fewer than all, half the lanes compute most of them, and
/// rows the others between the rounds of the lanes.
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
    let behind = counter_after(row, half as u32);
    macro_rules! with_rows {
        ($r:expr) => {{
            let r = $r;
            let mut state = State::new(r, key, &behind);
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
