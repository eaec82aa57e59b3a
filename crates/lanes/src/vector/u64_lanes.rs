//! Vectors of 64-bit numbers, one per lane: the limbs of Poly1305.

use super::opaque::opaque_u64;
use super::u32_lanes::U32Lanes;

/// The most messages that any instruction set tags at once.
pub(crate) const MAX_TAGS: usize = 16;

/// Vectors of 64-bit numbers, one per lane: what limbs are kept in.
pub(crate) trait U64Lanes: Copy {
    /// How many numbers one vector holds; at most [`MAX_TAGS`].
    const LANES: usize;

    /// One vector.
    type Vector: Copy;

    /// The same number in every lane.
    fn splat(self, value: u64) -> Self::Vector;

    /// A number for each lane; reads the first `LANES`.
    fn per_lane(self, values: &[u64]) -> Self::Vector;

    /// `vector` in the first `lanes` lanes and 0 in the others.
    fn first(self, lanes: usize, vector: Self::Vector) -> Self::Vector;

    /// The number in each lane; writes the first `LANES`.
    fn store(self, vector: Self::Vector, values: &mut [u64]);

    /// The 16 bytes `offset` bytes behind each source, as two little-endian
    /// numbers. Reads the first `LANES` sources.
    ///
    /// # Safety
    ///
    /// Those bytes must be readable.
    unsafe fn load(self, sources: &[*const u8], offset: usize) -> (Self::Vector, Self::Vector);

    /// The 16 bytes of block l of a run of `LANES` blocks as two little-endian
    /// numbers in lane l.
    ///
    /// # Safety
    ///
    /// The run at `blocks` must be readable.
    unsafe fn load_run(self, blocks: *const u8) -> (Self::Vector, Self::Vector);

    /// Runs of four blocks of 16 bytes: lane l gets block l modulo 4 of the run
    /// `offset` bytes behind source l / 4, as two little-endian numbers. Reads the
    /// first `LANES` / 4 sources.
    ///
    /// # Safety
    ///
    /// Those runs must be readable.
    unsafe fn load_fours(
        self,
        sources: &[*const u8],
        offset: usize,
    ) -> (Self::Vector, Self::Vector);

    /// In every lane the sum modulo 2^64 of the four lanes of which it is one: the
    /// first four, the second four and so on.
    fn sum_fours(self, a: Self::Vector) -> Self::Vector;

    /// The sum of all lanes modulo 2^64.
    fn sum(self, a: Self::Vector) -> u64;

    /// Lane-wise sum modulo 2^64.
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// 1 where `sum`, which is `a` and another number modulo 2^64, is below `a`:
    /// what did not fit.
    fn carry(self, a: Self::Vector, sum: Self::Vector) -> Self::Vector;

    /// Lane-wise and.
    fn and(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Lane-wise or.
    fn or(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Lane-wise shift to the left by `N` bits.
    fn shift_left<const N: u32>(self, a: Self::Vector) -> Self::Vector;

    /// Lane-wise shift to the right by `N` bits.
    fn shift_right<const N: u32>(self, a: Self::Vector) -> Self::Vector;
}

/// Numbers of 64 bits that are made of words: the way from ChaCha20's registers into
/// Poly1305's.
pub(crate) trait JoinU32Lanes<V: U32Lanes>: U64Lanes {
    /// `low` + 2^32 `high`, lane by lane.
    fn join_u32(self, low: V::Word, high: V::Word) -> Self::Vector;
}

/// Multiplication of limbs of 44 bits, whose products need more than 64: their
/// low and high 52 bits come apart.
pub(crate) trait Limbs44: U64Lanes {
    /// `sum` + the low 52 bits of `a * b`, of which only 52 bits count.
    fn multiply_add_low(self, sum: Self::Vector, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// `sum` + what is above the low 52 bits of that product.
    fn multiply_add_high(self, sum: Self::Vector, a: Self::Vector, b: Self::Vector)
    -> Self::Vector;
}

/// Multiplication of limbs of 26 bits, whose products fit 64.
pub(crate) trait Limbs26: U64Lanes {
    /// The same number in every lane, without the compiler knowing it. Where it
    /// knows that numbers are below 2^32, it takes their product for one of 64
    /// bits, forgets in the next loop why that was the same, and emulates it: twice
    /// the instructions. So what leads to a factor must not be bounded by
    /// constants.
    #[inline(always)]
    fn splat_opaque(self, value: u64) -> Self::Vector {
        self.splat(opaque_u64(value))
    }

    /// Lane-wise product of the low 32 bits.
    fn multiply(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
}
