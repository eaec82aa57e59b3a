//! What an algorithm may ask of a vector unit.
//!
//! An algorithm is written once, generic over these two traits, marked
//! `#[inline(always)]` and free of `unsafe`. A file of [`crate::isa`] implements
//! the traits for one instruction set and calls the algorithm from a function
//! that has that instruction set enabled, so that everything is inlined into it.
//!
//! A value of an implementing type is a *proof* that this CPU can run its
//! instructions: it has no public constructor but the detection. That is what
//! makes the methods safe to call, and why nothing here carries
//! `#[target_feature]`.

/// Vectors of 32-bit words, one word per lane: what ChaCha20 is made of.
pub(crate) trait Words: Copy {
    /// How many words one vector holds; at most [`MAX_LANES`].
    const LANES: usize;

    /// One vector.
    type Word: Copy;

    /// The same word in every lane.
    fn splat(self, word: u32) -> Self::Word;

    /// Lane-wise sum modulo 2^32.
    fn add(self, a: Self::Word, b: Self::Word) -> Self::Word;

    /// Lane-wise exclusive or.
    fn xor(self, a: Self::Word, b: Self::Word) -> Self::Word;

    /// Lane-wise rotation to the left by `N` bits, 0 < `N` < 32.
    fn rotate_left<const N: i32>(self, a: Self::Word) -> Self::Word;

    /// Turns one row of four words per lane into four vectors: lane `l` of
    /// vector `w` is `rows[l][w]`. Reads the first `LANES` rows.
    fn gather(self, rows: &[[u32; 4]; MAX_LANES]) -> [Self::Word; 4];

    /// Turns sixteen vectors into one block of 64 bytes per lane: bytes
    /// `4w..4w + 4` of block `l` are lane `l` of vector `w`, little-endian.
    /// Writes the first `LANES` blocks.
    fn scatter(self, words: &[Self::Word; 16], blocks: &mut [[u8; 64]; MAX_LANES]);
}

/// Vectors of 44-bit limbs in 64-bit lanes and the sums of their products: what
/// Poly1305 in radix 2^44 is made of.
///
/// A 128-bit multiplier keeps a sum of products in one number; AVX-512 IFMA
/// keeps the low and the high 52 bits apart. Both fit behind
/// [`Limbs::Product`].
pub(crate) trait Limbs: Copy {
    /// One limb per lane.
    type Limb: Copy;

    /// A sum of at most four products of a limb below 2^46 and a limb below
    /// 2^49, and a carry.
    type Product: Copy;

    /// The same number in every lane.
    fn limb(self, value: u64) -> Self::Limb;

    /// Lane-wise sum; the caller keeps it below 2^64.
    fn add(self, a: Self::Limb, b: Self::Limb) -> Self::Limb;

    /// Lane-wise and.
    fn and(self, a: Self::Limb, b: Self::Limb) -> Self::Limb;

    /// Lane-wise or.
    fn or(self, a: Self::Limb, b: Self::Limb) -> Self::Limb;

    /// Lane-wise shift to the left by `N` bits.
    fn shift_left<const N: u32>(self, a: Self::Limb) -> Self::Limb;

    /// Lane-wise shift to the right by `N` bits.
    fn shift_right<const N: u32>(self, a: Self::Limb) -> Self::Limb;

    /// `a * b`.
    fn multiply(self, a: Self::Limb, b: Self::Limb) -> Self::Product;

    /// `sum + a * b`.
    fn multiply_add(self, sum: Self::Product, a: Self::Limb, b: Self::Limb) -> Self::Product;

    /// The low `N` bits of `sum + carry` and what lies above them.
    fn split<const N: u32>(self, sum: Self::Product, carry: Self::Limb)
    -> (Self::Limb, Self::Limb);
}

/// The widest vector of words that any instruction set offers.
pub(crate) const MAX_LANES: usize = 16;
