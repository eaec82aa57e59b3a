//! Vectors of blocks of 16 bytes, for AES and GHASH.

/// The largest number of blocks in a vector of any instruction set.
pub(crate) const MAX_BLOCKS: usize = 4;

/// Consecutive powers of the GHASH key, the highest first, and the sums of their halves, which are
/// empty without [`KARATSUBA`](AesBlocks::KARATSUBA).
#[derive(Clone, Copy)]
pub(crate) struct Consecutive<'k> {
    pub(crate) powers: &'k [u128],
    pub(crate) halves: &'k [u128],
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
impl Consecutive<'_> {
    /// Returns pointers to the powers and sums.
    ///
    /// # Panics
    ///
    /// If there are fewer than `count` of either.
    #[inline(always)]
    pub(crate) fn pointers(self, count: usize) -> [*const u128; 2] {
        assert!(self.powers.len().min(self.halves.len()) >= count);
        [self.powers.as_ptr(), self.halves.as_ptr()]
    }
}

/// Vectors of 16-byte blocks, one block per lane, with the instructions that AES and GHASH need.
pub(crate) trait AesBlocks: Copy {
    /// How many blocks one vector holds.
    const LANES: usize;

    /// Whether hashing each group of blocks during rounds of AES is faster than encrypting all
    /// groups and hashing all groups one after the other.
    const ONE_PASS: bool;

    /// Whether Karatsuba's method is faster: it replaces one of four multiplications by another
    /// instruction and a load. Only with at most 2 lanes.
    const KARATSUBA: bool;

    /// Number of vector registers.
    const REGISTERS: usize;

    /// One vector.
    type Vector: Copy;

    /// Zeros.
    fn zero(self) -> Self::Vector;

    /// The same block in every lane.
    fn splat(self, block: &[u8; 16]) -> Self::Vector;

    /// The same number in every lane, little-endian.
    fn splat_number(self, number: &u128) -> Self::Vector;

    /// One number for each lane, little-endian; reads the first `LANES` of `numbers`.
    fn numbers(self, numbers: &[u128]) -> Self::Vector;

    /// Blocks `first`, `first + 1` and so on, one per lane.
    fn gather<const N: usize>(self, blocks: &[&[u8; 16]; N], first: usize) -> Self::Vector;

    /// Loads the first `lens[i]` bytes at `sources[i]` into lane `i`, with zeros after them. A
    /// length is at most 16.
    ///
    /// # Safety
    ///
    /// That many bytes must be readable at the source of each lane.
    #[inline(always)]
    unsafe fn gather_first(
        self,
        sources: [*const u8; MAX_BLOCKS],
        lens: [usize; MAX_BLOCKS],
    ) -> Self::Vector {
        const { assert!(Self::LANES == 1, "a set with several lanes has its own") };
        // SAFETY: the caller guarantees the bytes.
        unsafe { self.load_first(sources[0], lens[0]) }
    }

    /// Writes the first `lens[i]` bytes of lane `i` to `destinations[i]`. A length is at most 16.
    ///
    /// # Safety
    ///
    /// That many bytes must be writable at the destination of each lane.
    #[inline(always)]
    unsafe fn scatter_first(
        self,
        vector: Self::Vector,
        destinations: [*mut u8; MAX_BLOCKS],
        lens: [usize; MAX_BLOCKS],
    ) {
        const { assert!(Self::LANES == 1, "a set with several lanes has its own") };
        // SAFETY: the caller guarantees the bytes.
        unsafe { self.store_first(vector, destinations[0], lens[0]) }
    }

    /// Returns the first `lens[i]` bytes of lane `i`, with zeros in place of the others. A length
    /// is at most 16.
    #[inline(always)]
    fn first_of_each(self, vector: Self::Vector, lens: [usize; MAX_BLOCKS]) -> Self::Vector {
        const { assert!(Self::LANES == 1, "a set with several lanes has its own") };
        self.first(vector, lens[0])
    }

    /// `LANES` consecutive blocks.
    ///
    /// # Safety
    ///
    /// 16 times `LANES` bytes must be readable at `source`.
    unsafe fn load(self, source: *const u8) -> Self::Vector;

    /// Like [`load`](Self::load), but only the first `len` bytes if that is less than a vector,
    /// with zeros in place of the others.
    ///
    /// # Safety
    ///
    /// `len` bytes, or a vector if `len` is more, must be readable at `source`.
    unsafe fn load_first(self, source: *const u8, len: usize) -> Self::Vector;

    /// Writes `LANES` consecutive blocks.
    ///
    /// # Safety
    ///
    /// 16 times `LANES` bytes must be writable at `destination`.
    unsafe fn store(self, vector: Self::Vector, destination: *mut u8);

    /// Writes the first `len` bytes, or the vector if `len` is more, and no other bytes.
    ///
    /// # Safety
    ///
    /// `len` bytes, or a vector if `len` is more, must be writable at `destination`.
    unsafe fn store_first(self, vector: Self::Vector, destination: *mut u8, len: usize);

    /// The first `len` bytes of the vector, and zeros in place of the others.
    fn first(self, vector: Self::Vector, len: usize) -> Self::Vector;

    /// The vector with one lane replaced by a number, little-endian.
    fn with_lane(self, vector: Self::Vector, lane: usize, number: u128) -> Self::Vector;

    /// The vector with one lane replaced by that lane of `other`.
    fn with_lane_of(self, vector: Self::Vector, lane: usize, other: Self::Vector) -> Self::Vector;

    /// One lane of the vector, and zeros in the others.
    fn only_lane(self, vector: Self::Vector, lane: usize) -> Self::Vector;

    /// The XOR of all lanes, as a little-endian number.
    fn sum(self, vector: Self::Vector) -> u128;

    /// The XOR of all lanes in the first lane, and zeros in the others.
    fn sum_in_first(self, vector: Self::Vector) -> Self::Vector;

    /// The bytes of each block in reverse order.
    fn reverse(self, vector: Self::Vector) -> Self::Vector;

    /// The vector with the last four bytes of each block replaced by a word, little-endian.
    fn with_last_word(self, vector: Self::Vector, word: u32) -> Self::Vector;

    /// Bitwise XOR.
    fn xor(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Bitwise AND.
    fn and(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// All ones in the lanes where two blocks are equal, and zeros in the others.
    fn equal(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// A round of AES, including its round key (FIPS 197, section 5.1).
    fn round(self, state: Self::Vector, key: Self::Vector) -> Self::Vector;

    /// The last round of AES, including its round key (FIPS 197, section 5.1).
    fn last_round(self, state: Self::Vector, key: Self::Vector) -> Self::Vector;

    /// In each lane the product of one half of `a` and one half of `b` as polynomials over
    /// GF(2). Bit 0 of `HALVES` selects the upper half of `a`, bit 4 that of `b`.
    fn carry_less<const HALVES: i32>(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Each block with its halves exchanged.
    fn swap(self, vector: Self::Vector) -> Self::Vector;

    /// Does nothing, but makes the compiler assume that each of the two depends on both, so that it
    /// does not move uses of one before the computation of the other. By default it has no effect.
    #[inline(always)]
    fn tie(self, _a: &mut Self::Vector, _b: &mut Self::Vector) {}

    /// Applies a [`round`](Self::round) to all `states`.
    #[inline(always)]
    fn round_of_all<const K: usize>(self, states: &mut [Self::Vector; K], key: &[u8; 16]) {
        let key = self.splat(key);
        for state in states {
            *state = self.round(*state, key);
        }
    }

    /// Adds the products of blocks and powers: those of the low halves, those of the high halves,
    /// and the mixed ones or, with [`KARATSUBA`](Self::KARATSUBA), those of the sums of halves.
    /// `halves` are the sums of the powers' halves.
    #[inline(always)]
    fn add_products(
        self,
        [low, high, middle]: [Self::Vector; 3],
        blocks: Self::Vector,
        powers: Self::Vector,
        halves: Self::Vector,
    ) -> [Self::Vector; 3] {
        let mixed = match Self::KARATSUBA {
            true => self.carry_less::<0x00>(self.xor(blocks, self.swap(blocks)), halves),
            false => self.xor(
                self.carry_less::<0x01>(blocks, powers),
                self.carry_less::<0x10>(blocks, powers),
            ),
        };
        [
            self.xor(low, self.carry_less::<0x00>(blocks, powers)),
            self.xor(high, self.carry_less::<0x11>(blocks, powers)),
            self.xor(middle, mixed),
        ]
    }

    /// Like [`add_products`](Self::add_products), with vector `I` of consecutive powers.
    #[inline(always)]
    fn add_products_from<const I: usize>(
        self,
        sum: [Self::Vector; 3],
        blocks: Self::Vector,
        by: Consecutive<'_>,
    ) -> [Self::Vector; 3] {
        let powers = self.numbers(&by.powers[I * Self::LANES..]);
        let halves = match Self::KARATSUBA {
            true => self.numbers(&by.halves[I * Self::LANES..]),
            false => powers,
        };
        self.add_products(sum, blocks, powers, halves)
    }

    /// Like [`add_products_from`](Self::add_products_from), with a [`round`](Self::round) of all
    /// `states`: the instructions of each run while those of the other wait.
    #[inline(always)]
    fn round_and_products<const K: usize, const I: usize>(
        self,
        states: &mut [Self::Vector; K],
        round_key: &[u8; 16],
        sum: [Self::Vector; 3],
        blocks: Self::Vector,
        by: Consecutive<'_>,
    ) -> [Self::Vector; 3] {
        self.round_of_all(states, round_key);
        self.add_products_from::<I>(sum, blocks, by)
    }
}
