//! Vectors of 64-bit numbers, one per lane: the limbs of Poly1305.

use super::opaque::opaque_u64;
use super::u32_lanes::U32Lanes;

/// Maximum number of messages that any instruction set tags at once.
pub(crate) const MAX_TAGS: usize = 16;

/// Vectors of 64-bit numbers, one per lane, that hold limbs.
pub(crate) trait U64Lanes: Copy {
    /// How many numbers one vector holds; at most [`MAX_TAGS`].
    const LANES: usize;

    /// One vector.
    type Vector: Copy;

    /// The same number in every lane.
    fn splat(self, value: u64) -> Self::Vector;

    /// One number for each lane; reads the first `LANES` of `values`.
    fn per_lane(self, values: &[u64]) -> Self::Vector;

    /// `vector` in the first `lanes` lanes, and 0 in the others.
    fn first(self, lanes: usize, vector: Self::Vector) -> Self::Vector;

    /// Writes the number of each lane to the first `LANES` of `values`.
    fn store(self, vector: Self::Vector, values: &mut [u64]);

    /// Loads the 16 bytes at `offset` bytes after each source as two little-endian numbers. Reads
    /// the first `LANES` sources.
    ///
    /// # Safety
    ///
    /// Those bytes must be readable.
    unsafe fn load(self, sources: &[*const u8], offset: usize) -> (Self::Vector, Self::Vector);

    /// Like [`load`](Self::load), for the 16 bytes at `offset` after each source, and the 16 bytes
    /// after them.
    ///
    /// # Safety
    ///
    /// Those 32 bytes must be readable.
    #[inline(always)]
    unsafe fn load_two(
        self,
        sources: &[*const u8],
        offset: usize,
    ) -> [(Self::Vector, Self::Vector); 2] {
        // SAFETY: the caller guarantees both.
        unsafe { [self.load(sources, offset), self.load(sources, offset + 16)] }
    }

    /// Loads `LANES` consecutive blocks of 16 bytes: lane l gets block l as two little-endian
    /// numbers.
    ///
    /// # Safety
    ///
    /// 16 times `LANES` bytes must be readable at `blocks`.
    unsafe fn load_run(self, blocks: *const u8) -> (Self::Vector, Self::Vector);

    /// Loads runs of four blocks of 16 bytes: lane l gets block l modulo 4 of the run at `offset`
    /// bytes after source l / 4, as two little-endian numbers. Reads the first `LANES` / 4 sources,
    /// or the first one if there are fewer lanes.
    ///
    /// # Safety
    ///
    /// 64 bytes must be readable there for each source.
    unsafe fn load_fours(
        self,
        sources: &[*const u8],
        offset: usize,
    ) -> (Self::Vector, Self::Vector);

    /// Returns, in every lane, the sum modulo 2^64 of its group of four lanes: the first four, the
    /// next four and so on.
    fn sum_fours(self, a: Self::Vector) -> Self::Vector;

    /// The sum of all lanes modulo 2^64.
    fn sum(self, a: Self::Vector) -> u64;

    /// Lane-wise sum modulo 2^64.
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Returns the carry of an addition: 1 in the lanes where `sum`, which is `a` plus another
    /// number modulo 2^64, is less than `a`.
    fn carry(self, a: Self::Vector, sum: Self::Vector) -> Self::Vector;

    /// Lane-wise AND.
    fn and(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Lane-wise OR.
    fn or(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Lane-wise shift to the left by `N` bits.
    fn shift_left<const N: u32>(self, a: Self::Vector) -> Self::Vector;

    /// Lane-wise shift to the right by `N` bits.
    fn shift_right<const N: u32>(self, a: Self::Vector) -> Self::Vector;
}

/// Joins vectors of 32-bit words into 64-bit numbers: converts from ChaCha20's registers to
/// Poly1305's.
pub(crate) trait JoinU32Lanes<V: U32Lanes>: U64Lanes {
    /// `low` + 2^32 `high` in each lane.
    fn join_u32(self, low: V::Word, high: V::Word) -> Self::Vector;
}

/// Multiplication of 52-bit limbs. Their products need more than 64 bits, so the low 52 bits and
/// the bits above are computed separately.
pub(crate) trait Limbs52: U64Lanes {
    /// The low 52 bits, for a multiplication. The multiplications drop the others themselves, so
    /// this does nothing; but it says that they are dropped on purpose.
    #[inline(always)]
    fn low_52(self, a: Self::Vector) -> Self::Vector {
        a
    }

    /// `sum` + the low 52 bits of `a * b`. Only the low 52 bits of `a` and `b` count.
    fn multiply_add_low(self, sum: Self::Vector, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// `sum` + the bits of that product from bit 52 on.
    fn multiply_add_high(self, sum: Self::Vector, a: Self::Vector, b: Self::Vector)
    -> Self::Vector;
}

/// What Poly1305 needs for limbs of 44 bits.
pub(crate) trait Limbs44: Limbs52 {
    /// Bits 44 to 107 of `low` + 2^64 `high`.
    fn bits_from_44(self, low: Self::Vector, high: Self::Vector) -> Self::Vector;
}

/// Multiplication of 26-bit limbs, whose products fit in 64 bits.
pub(crate) trait Limbs26: U64Lanes {
    /// Returns the same number in every lane, with its value hidden from the compiler. If the
    /// compiler knows that factors are below 2^32, it treats [`multiply`](Self::multiply) as a
    /// 64-bit multiplication. In the next loop it has lost that bound, and emulates the
    /// multiplication with twice the instructions. So no constant may bound the values that lead to
    /// a factor.
    #[inline(always)]
    fn splat_opaque(self, value: u64) -> Self::Vector {
        self.splat(opaque_u64(value))
    }

    /// Lane-wise product of the low 32 bits.
    fn multiply(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
}

/// What secp256k1 needs beside products: differences, and masks, which are 0 or all ones in each lane.
pub(crate) trait Masks: U64Lanes {
    /// Lane-wise difference modulo 2^64.
    fn subtract(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// A mask that is all ones where the numbers are equal.
    fn equals(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// `b` where the mask is all ones, `a` where it is 0.
    fn select(self, mask: Self::Vector, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Calls a function that is compiled once, with the instruction set enabled, and not inlined into
    /// its callers.
    fn call<A, R>(self, argument: A, function: impl FnOnce(Self, A) -> R) -> R;
}
