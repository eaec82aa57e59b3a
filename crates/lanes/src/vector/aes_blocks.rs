//! Vectors of blocks of 16 bytes: AES and GHASH.

/// The most blocks of AES that any instruction set has in a vector.
pub(crate) const MAX_BLOCKS: usize = 4;

/// Vectors of blocks of 16 bytes, one block per lane, and instructions for them: what
/// AES and GHASH are made of.
pub(crate) trait AesBlocks: Copy {
    /// How many blocks one vector holds.
    const LANES: usize;

    /// Whether a group of blocks fits into the registers beside another, to be hashed while
    /// that is encrypted. Where it does not, encrypting all and then hashing all is faster.
    const ONE_PASS: bool;

    /// Whether a multiplication takes longer than the three instructions that Karatsuba's
    /// way has in its place.
    const KARATSUBA: bool;

    /// One vector.
    type Vector: Copy;

    /// Zeros.
    fn zero(self) -> Self::Vector;

    /// The same block in every lane.
    fn splat(self, block: &[u8; 16]) -> Self::Vector;

    /// The same number in every lane, little-endian.
    fn splat_number(self, number: &u128) -> Self::Vector;

    /// The numbers of each lane, little-endian.
    fn numbers(self, numbers: &[u128]) -> Self::Vector;

    /// Blocks `first`, `first + 1` and so on.
    fn gather<const N: usize>(self, blocks: &[&[u8; 16]; N], first: usize) -> Self::Vector;

    /// Blocks that lie one behind the other.
    ///
    /// # Safety
    ///
    /// They must be readable.
    unsafe fn load(self, place: *const u8) -> Self::Vector;

    /// The first `len` of these bytes, all of them if it is more, and zeros.
    ///
    /// # Safety
    ///
    /// So many must be readable.
    unsafe fn load_first(self, place: *const u8, len: usize) -> Self::Vector;

    /// The reverse of [`load`](Self::load).
    ///
    /// # Safety
    ///
    /// The place must be writable.
    unsafe fn store(self, vector: Self::Vector, place: *mut u8);

    /// The reverse of [`load_first`](Self::load_first): writes no other bytes.
    ///
    /// # Safety
    ///
    /// So many must be writable.
    unsafe fn store_first(self, vector: Self::Vector, place: *mut u8, len: usize);

    /// The first `len` bytes, all of them if it is more, and zeros.
    fn first(self, vector: Self::Vector, len: usize) -> Self::Vector;

    /// One lane replaced by a number, little-endian.
    fn with_lane(self, vector: Self::Vector, lane: usize, number: u128) -> Self::Vector;

    /// One lane replaced by the same of another vector.
    fn with_lane_of(self, vector: Self::Vector, lane: usize, other: Self::Vector) -> Self::Vector;

    /// One lane, and zeros in the others.
    fn only_lane(self, vector: Self::Vector, lane: usize) -> Self::Vector;

    /// The exclusive or of all lanes, as a little-endian number.
    fn sum(self, vector: Self::Vector) -> u128;

    /// The bytes of each block in reverse.
    fn reverse(self, vector: Self::Vector) -> Self::Vector;

    /// Adds to the last byte of each block, modulo 2^8.
    fn count(self, vector: Self::Vector, number: u8) -> Self::Vector;

    /// Exclusive or.
    fn xor(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Bitwise and.
    fn and(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// A round of AES and its key (FIPS 197, section 5.1).
    fn round(self, state: Self::Vector, key: Self::Vector) -> Self::Vector;

    /// The last round of AES and its key.
    fn last_round(self, state: Self::Vector, key: Self::Vector) -> Self::Vector;

    /// In each lane the product of a half of `a` and one of `b` as polynomials: the
    /// upper half of `a` if bit 0 of `HALVES` is set, of `b` if bit 4 is.
    fn carry_less<const HALVES: i32>(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// The halves of each block exchanged.
    fn swap(self, vector: Self::Vector) -> Self::Vector;
}
