//! Two vectors, used as one.

use super::rows::Rows;
use super::u32_lanes::{Arithmetic, BlocksFrom, MAX_LANES, U32Lanes};
use super::u64_lanes::{Limbs26, Limbs44, Limbs52, U64Lanes};

/// Applies a method to both vectors of a pair.
macro_rules! both {
    ($self:ident.$method:ident $(::<$n:ident>)? ($($arg:expr),+)) => {
        [
            $self.0.$method $(::<$n>)? ($($arg[0]),+),
            $self.0.$method $(::<$n>)? ($($arg[1]),+),
        ]
    };
}

/// Two interleaved vectors.
///
/// An addition takes two cycles on a Zen 5, and a state of ChaCha20 has at most four independent
/// chains of them. A second state fills the time in which the first one waits, even if the
/// registers do not hold both.
#[derive(Clone, Copy)]
pub(crate) struct Pair<W>(pub(crate) W);

impl<W: Arithmetic> Arithmetic for Pair<W> {
    type Word = [W::Word; 2];

    const REGISTERS: usize = match W::REGISTERS {
        usize::MAX => usize::MAX,
        registers => registers / 2,
    };

    #[inline(always)]
    fn splat(self, word: u32) -> [W::Word; 2] {
        [self.0.splat(word); 2]
    }

    #[inline(always)]
    fn add(self, a: [W::Word; 2], b: [W::Word; 2]) -> [W::Word; 2] {
        both!(self.add(a, b))
    }

    #[inline(always)]
    fn xor(self, a: [W::Word; 2], b: [W::Word; 2]) -> [W::Word; 2] {
        both!(self.xor(a, b))
    }

    #[inline(always)]
    fn and(self, a: [W::Word; 2], b: [W::Word; 2]) -> [W::Word; 2] {
        both!(self.and(a, b))
    }

    #[inline(always)]
    fn tie(self, a: &mut [W::Word; 2], b: &mut [W::Word; 2]) {
        self.0.tie(&mut a[0], &mut b[0]);
        self.0.tie(&mut a[1], &mut b[1]);
    }

    #[inline(always)]
    fn rotate_left<const N: i32>(self, a: [W::Word; 2]) -> [W::Word; 2] {
        both!(self.rotate_left::<N>(a))
    }

    #[inline(always)]
    fn shift_right<const N: i32>(self, a: [W::Word; 2]) -> [W::Word; 2] {
        both!(self.shift_right::<N>(a))
    }
}

impl<W: U32Lanes> U32Lanes for Pair<W> {
    const LANES: usize = 2 * W::LANES;
    type Narrow = W;

    #[inline(always)]
    fn narrow(self) -> W {
        self.0
    }

    #[inline(always)]
    fn load(self, words: &[u32]) -> [W::Word; 2] {
        [self.0.load(words), self.0.load(&words[W::LANES..])]
    }

    #[inline(always)]
    fn store(self, word: [W::Word; 2], words: &mut [u32]) {
        self.0.store(word[0], words);
        self.0.store(word[1], &mut words[W::LANES..]);
    }

    #[inline(always)]
    unsafe fn load_big_endian(self, sources: &[*const u8], offset: usize) -> [[W::Word; 2]; 4] {
        // SAFETY: the caller guarantees the bytes of all lanes; each half reads those of its
        // own lanes.
        let (a, b) = unsafe {
            (
                self.0.load_big_endian(sources, offset),
                self.0.load_big_endian(&sources[W::LANES..], offset),
            )
        };
        [[a[0], b[0]], [a[1], b[1]], [a[2], b[2]], [a[3], b[3]]]
    }

    #[inline(always)]
    unsafe fn store_big_endian(
        self,
        words: [[W::Word; 2]; 4],
        destination: *mut u8,
        stride: usize,
    ) {
        let [w, x, y, z] = words;
        // SAFETY: the caller guarantees twice as many blocks as a half has lanes; each half
        // takes its own.
        unsafe {
            self.0
                .store_big_endian([w[0], x[0], y[0], z[0]], destination, stride);
            let destination = destination.add(W::LANES * stride);
            self.0
                .store_big_endian([w[1], x[1], y[1], z[1]], destination, stride);
        }
    }

    #[inline(always)]
    fn gather<const AT: usize, const N: usize>(
        self,
        sources: &[&[u8; N]; MAX_LANES],
        first: usize,
    ) -> [[W::Word; 2]; 4] {
        let a = self.0.gather::<AT, N>(sources, first);
        let b = self.0.gather::<AT, N>(sources, first + W::LANES);
        [[a[0], b[0]], [a[1], b[1]], [a[2], b[2]], [a[3], b[3]]]
    }

    #[inline(always)]
    fn transpose_rows(self, rows: &[[u32; 4]; MAX_LANES], first: usize) -> [[W::Word; 2]; 4] {
        let a = self.0.transpose_rows(rows, first);
        let b = self.0.transpose_rows(rows, first + W::LANES);
        [[a[0], b[0]], [a[1], b[1]], [a[2], b[2]], [a[3], b[3]]]
    }

    #[inline(always)]
    fn lane_indices(self) -> [W::Word; 2] {
        let indices = self.0.lane_indices();
        let lanes = W::LANES as u32;
        [indices, self.0.add(indices, self.0.splat(lanes))]
    }

    #[inline(always)]
    unsafe fn scatter(
        self,
        words: &[[W::Word; 2]; 16],
        from: Option<BlocksFrom>,
        to: *mut [u8; 64],
    ) {
        // A loop and not `map`, because closures are not always inlined.
        let mut halves = [[words[0][0]; 16]; 2];
        for (w, &[a, b]) in words.iter().enumerate() {
            (halves[0][w], halves[1][w]) = (a, b);
        }
        // SAFETY: the caller guarantees twice as many blocks as a half has lanes; each half
        // takes its own.
        unsafe {
            self.0.scatter(&halves[0], from, to);
            let from = from.map(
                #[inline(always)]
                |from| from.after(W::LANES),
            );
            self.0.scatter(&halves[1], from, to.add(W::LANES));
        }
    }

    #[inline(always)]
    fn xor_bytes(self, text: &mut [u8], block: &[u8; 64]) {
        self.0.xor_bytes(text, block);
    }

    #[inline(always)]
    fn xor_bytes_at_once(self, text: &mut [u8], block: &[u8; 64]) {
        self.0.xor_bytes_at_once(text, block);
    }
}

impl<R: Rows> Rows for Pair<R> {
    const BLOCKS: usize = 2 * R::BLOCKS;

    #[inline(always)]
    fn row(self, row: &[u32; 4]) -> [R::Word; 2] {
        [self.0.row(row); 2]
    }

    #[inline(always)]
    fn add_block_numbers(self, [a, b]: [R::Word; 2]) -> [R::Word; 2] {
        let offset = self.0.row(&[R::BLOCKS as u32, 0, 0, 0]);
        [
            self.0.add_block_numbers(a),
            self.0.add(self.0.add_block_numbers(b), offset),
        ]
    }

    #[inline(always)]
    fn rotate_row<const N: usize>(self, [a, b]: [R::Word; 2]) -> [R::Word; 2] {
        [self.0.rotate_row::<N>(a), self.0.rotate_row::<N>(b)]
    }

    #[inline(always)]
    unsafe fn store_rows(self, [a, b, c, d]: [[R::Word; 2]; 4], blocks: *mut [u8; 64]) {
        // SAFETY: the caller guarantees twice `R::BLOCKS` writable blocks; each half writes its
        // own.
        unsafe {
            self.0.store_rows([a[0], b[0], c[0], d[0]], blocks);
            let blocks = blocks.add(R::BLOCKS);
            self.0.store_rows([a[1], b[1], c[1], d[1]], blocks);
        }
    }
}

/// Two interleaved vectors of 64-bit numbers: the instructions of each run while those of the other
/// wait.
impl<L: U64Lanes> U64Lanes for Pair<L> {
    const LANES: usize = 2 * L::LANES;
    type Vector = [L::Vector; 2];

    #[inline(always)]
    fn splat(self, value: u64) -> [L::Vector; 2] {
        [self.0.splat(value); 2]
    }

    #[inline(always)]
    fn per_lane(self, values: &[u64]) -> [L::Vector; 2] {
        [
            self.0.per_lane(values),
            self.0.per_lane(&values[L::LANES..]),
        ]
    }

    #[inline(always)]
    fn first(self, lanes: usize, vector: [L::Vector; 2]) -> [L::Vector; 2] {
        [
            self.0.first(lanes.min(L::LANES), vector[0]),
            self.0.first(lanes.saturating_sub(L::LANES), vector[1]),
        ]
    }

    #[inline(always)]
    fn store(self, vector: [L::Vector; 2], values: &mut [u64]) {
        self.0.store(vector[0], values);
        self.0.store(vector[1], &mut values[L::LANES..]);
    }

    #[inline(always)]
    unsafe fn load(self, sources: &[*const u8], offset: usize) -> ([L::Vector; 2], [L::Vector; 2]) {
        // SAFETY: the caller guarantees the bytes of all lanes; each half reads those of its
        // own lanes.
        let (a, b) = unsafe {
            (
                self.0.load(sources, offset),
                self.0.load(&sources[L::LANES..], offset),
            )
        };
        ([a.0, b.0], [a.1, b.1])
    }

    #[inline(always)]
    unsafe fn load_two(
        self,
        sources: &[*const u8],
        offset: usize,
    ) -> [([L::Vector; 2], [L::Vector; 2]); 2] {
        // SAFETY: as for `load`.
        let ([a0, a1], [b0, b1]) = unsafe {
            (
                self.0.load_two(sources, offset),
                self.0.load_two(&sources[L::LANES..], offset),
            )
        };
        [([a0.0, b0.0], [a0.1, b0.1]), ([a1.0, b1.0], [a1.1, b1.1])]
    }

    #[inline(always)]
    unsafe fn load_run(self, blocks: *const u8) -> ([L::Vector; 2], [L::Vector; 2]) {
        // SAFETY: the caller guarantees twice as many blocks as a half has lanes; each half
        // takes its own.
        let (a, b) = unsafe {
            (
                self.0.load_run(blocks),
                self.0.load_run(blocks.add(16 * L::LANES)),
            )
        };
        ([a.0, b.0], [a.1, b.1])
    }

    #[inline(always)]
    unsafe fn load_fours(
        self,
        sources: &[*const u8],
        offset: usize,
    ) -> ([L::Vector; 2], [L::Vector; 2]) {
        // SAFETY: the caller guarantees the runs of all sources; each half reads those of its
        // own lanes, of which four share a source.
        let (a, b) = unsafe {
            (
                self.0.load_fours(sources, offset),
                self.0.load_fours(&sources[L::LANES / 4..], offset),
            )
        };
        ([a.0, b.0], [a.1, b.1])
    }

    #[inline(always)]
    fn sum_fours(self, a: [L::Vector; 2]) -> [L::Vector; 2] {
        [self.0.sum_fours(a[0]), self.0.sum_fours(a[1])]
    }

    #[inline(always)]
    fn sum(self, a: [L::Vector; 2]) -> u64 {
        self.0.sum(self.0.add(a[0], a[1]))
    }

    #[inline(always)]
    fn add(self, a: [L::Vector; 2], b: [L::Vector; 2]) -> [L::Vector; 2] {
        both!(self.add(a, b))
    }

    #[inline(always)]
    fn carry(self, a: [L::Vector; 2], sum: [L::Vector; 2]) -> [L::Vector; 2] {
        both!(self.carry(a, sum))
    }

    #[inline(always)]
    fn and(self, a: [L::Vector; 2], b: [L::Vector; 2]) -> [L::Vector; 2] {
        both!(self.and(a, b))
    }

    #[inline(always)]
    fn or(self, a: [L::Vector; 2], b: [L::Vector; 2]) -> [L::Vector; 2] {
        both!(self.or(a, b))
    }

    #[inline(always)]
    fn shift_left<const N: u32>(self, a: [L::Vector; 2]) -> [L::Vector; 2] {
        both!(self.shift_left::<N>(a))
    }

    #[inline(always)]
    fn shift_right<const N: u32>(self, a: [L::Vector; 2]) -> [L::Vector; 2] {
        both!(self.shift_right::<N>(a))
    }
}

impl<L: Limbs44> Limbs44 for Pair<L> {
    #[inline(always)]
    fn bits_from_44(self, low: [L::Vector; 2], high: [L::Vector; 2]) -> [L::Vector; 2] {
        both!(self.bits_from_44(low, high))
    }
}

impl<L: Limbs52> Limbs52 for Pair<L> {
    #[inline(always)]
    fn multiply_add_low(
        self,
        sum: [L::Vector; 2],
        a: [L::Vector; 2],
        b: [L::Vector; 2],
    ) -> [L::Vector; 2] {
        both!(self.multiply_add_low(sum, a, b))
    }

    #[inline(always)]
    fn multiply_add_high(
        self,
        sum: [L::Vector; 2],
        a: [L::Vector; 2],
        b: [L::Vector; 2],
    ) -> [L::Vector; 2] {
        both!(self.multiply_add_high(sum, a, b))
    }
}

impl<L: Limbs26> Limbs26 for Pair<L> {
    #[inline(always)]
    fn multiply(self, a: [L::Vector; 2], b: [L::Vector; 2]) -> [L::Vector; 2] {
        both!(self.multiply(a, b))
    }
}
