//! Vectors of 32-bit words, one per lane, for ChaCha20 and SHA-256.

use super::bytes;

/// The largest number of lanes of any instruction set.
pub(crate) const MAX_LANES: usize = 32;

/// Arithmetic on 32-bit words, one per lane, as the rounds of ChaCha20 and SHA-256 need it. Plain
/// Rust implements it for one lane ([`Scalar`](super::Scalar)).
pub(crate) trait Arithmetic: Copy {
    /// One vector.
    type Word: Copy;

    /// How many vectors the registers hold, if that should influence the order of instructions;
    /// otherwise `usize::MAX`.
    const REGISTERS: usize = usize::MAX;

    /// The same word in every lane.
    fn splat(self, word: u32) -> Self::Word;

    /// Lane-wise sum modulo 2^32.
    fn add(self, a: Self::Word, b: Self::Word) -> Self::Word;

    /// Lane-wise XOR.
    fn xor(self, a: Self::Word, b: Self::Word) -> Self::Word;

    /// Lane-wise AND.
    fn and(self, a: Self::Word, b: Self::Word) -> Self::Word;

    /// Lane-wise rotation to the left by `N` bits, 0 < `N` < 32.
    fn rotate_left<const N: i32>(self, a: Self::Word) -> Self::Word;

    /// Lane-wise shift to the right by `N` bits, 0 < `N` < 32.
    fn shift_right<const N: i32>(self, a: Self::Word) -> Self::Word;

    /// Returns `a`, with its origin hidden from the compiler, which would otherwise reorder sums so
    /// that the term known last is added first and everything waits for it: 11 instead of 9 cycles
    /// for a round of SHA-256 on a Zen 5. If there are few registers, nothing is gained, and this
    /// does nothing.
    #[inline(always)]
    fn opaque(self, a: Self::Word) -> Self::Word {
        a
    }

    /// Does nothing, but makes the compiler assume that `b` depends on `a`, so that it does not
    /// move uses of `b` before the computation of `a`. Otherwise it interleaves so much that it
    /// runs out of registers, and moves words to memory and back. By default it has no effect.
    #[inline(always)]
    fn tie(self, _a: &mut Self::Word, _b: &mut Self::Word) {}

    /// Selects each bit of `b` where `a` has a 1, and of `c` where `a` has a 0.
    #[inline(always)]
    fn choose(self, a: Self::Word, b: Self::Word, c: Self::Word) -> Self::Word {
        self.xor(c, self.and(a, self.xor(b, c)))
    }

    /// Selects each bit that at least two of the three agree on.
    #[inline(always)]
    fn majority(self, a: Self::Word, b: Self::Word, c: Self::Word) -> Self::Word {
        self.xor(b, self.and(self.xor(a, b), self.xor(b, c)))
    }
}

/// Work that is done between the rounds, with instructions that rarely or never use the vector
/// ports.
pub(crate) trait Interleave {
    /// Does a part of the work.
    fn step(&mut self);
}

/// No other work.
impl Interleave for () {
    #[inline(always)]
    fn step(&mut self) {}
}

/// Two kinds of other work.
impl<A: Interleave, B: Interleave> Interleave for (&mut A, &mut B) {
    #[inline(always)]
    fn step(&mut self) {
        self.0.step();
        self.1.step();
    }
}

/// Addresses of 64-byte blocks: of the first one, and of those after it.
#[derive(Clone, Copy)]
pub(crate) struct BlocksFrom {
    first: *const [u8; 64],
    /// Where the first one would be if it were contiguous with the others.
    others: *const [u8; 64],
}

impl BlocksFrom {
    /// All contiguous.
    #[inline(always)]
    pub(crate) fn row(first: *const [u8; 64]) -> Self {
        let others = first;
        Self { first, others }
    }

    /// The first one, then those from `second` on.
    #[inline(always)]
    pub(crate) fn first_and(first: *const [u8; 64], second: *const [u8; 64]) -> Self {
        let others = second.wrapping_sub(1);
        Self { first, others }
    }

    /// Returns block `i`.
    #[inline(always)]
    pub(crate) fn block(self, i: usize) -> *const [u8; 64] {
        match i {
            0 => self.first,
            _ => self.others.wrapping_add(i),
        }
    }

    /// Returns those after the first `count`, of which there must be at least one.
    #[inline(always)]
    pub(crate) fn after(self, count: usize) -> Self {
        Self::row(self.others.wrapping_add(count))
    }
}

/// Vectors of 32-bit words, and how they are loaded and stored.
pub(crate) trait U32Lanes: Arithmetic {
    /// How many words one vector holds; at most [`MAX_LANES`].
    const LANES: usize;

    /// The same instruction set with fewer lanes, for less work at a time; `Self` if that is not
    /// faster. [`InstructionSet::Lanes`](crate::isa::InstructionSet::Lanes) must have half as many.
    type Narrow: U32Lanes;

    /// The narrower vectors.
    fn narrow(self) -> Self::Narrow;

    /// Computes ten double rounds of ChaCha20 on the 16 words of the states in all lanes (RFC 8439,
    /// section 2.3), with a hand-optimised instruction order, calling `interleaved` three times
    /// within each. Does nothing and returns false for instruction sets without such an order.
    #[inline(always)]
    fn ten_double_rounds(
        self,
        _x: &mut [Self::Word; 16],
        _interleaved: &mut impl Interleave,
    ) -> bool {
        false
    }

    /// The first `LANES` words of `words`, one in each lane.
    fn load(self, words: &[u32]) -> Self::Word;

    /// Writes the word of each lane to the first `LANES` of `words`.
    fn store(self, word: Self::Word, words: &mut [u32]);

    /// Loads 16 bytes for each lane into four vectors: lane `l` of vector `w` is the big-endian
    /// word at byte `offset + 4 w` after `sources[l]`. Reads the first `LANES` sources.
    ///
    /// # Safety
    ///
    /// Those bytes must be readable.
    unsafe fn load_big_endian(self, sources: &[*const u8], offset: usize) -> [Self::Word; 4];

    /// The inverse of [`load_big_endian`](Self::load_big_endian): stores 16 bytes for each lane,
    /// `stride` bytes apart, the first at `destination`.
    ///
    /// # Safety
    ///
    /// Those `LANES` times 16 bytes must be writable.
    unsafe fn store_big_endian(self, words: [Self::Word; 4], destination: *mut u8, stride: usize);

    /// Loads four words for each lane, from byte `AT` on, into four vectors: lane `l` of vector
    /// `w` is little-endian word `AT / 4 + w` of `sources[first + l]`.
    fn gather<const AT: usize, const N: usize>(
        self,
        sources: &[&[u8; N]; MAX_LANES],
        first: usize,
    ) -> [Self::Word; 4];

    /// Loads one row of four words for each lane into four vectors: lane `l` of vector `w` is
    /// `rows[first + l][w]`.
    fn transpose_rows(self, rows: &[[u32; 4]; MAX_LANES], first: usize) -> [Self::Word; 4];

    /// The index of each lane, from 0 on.
    fn lane_indices(self) -> Self::Word;

    /// Stores sixteen vectors to `to` as `LANES` blocks of 64 bytes: bytes `4 w..4 w + 4` of block
    /// `l` are lane `l` of vector `w`, little-endian, XORed with block `l` of `from`, if that is
    /// given.
    ///
    /// # Safety
    ///
    /// `to` must point to `LANES` writable blocks. Those of `from` must be readable and
    /// initialised. Each block of `from` must either be the block that is written in its place, or
    /// overlap no written block.
    unsafe fn scatter(self, words: &[Self::Word; 16], from: Option<BlocksFrom>, to: *mut [u8; 64]);

    /// XORs the first bytes of `block` into `text`, which has at most 64 bytes. This and the
    /// following methods have defaults for instruction sets without byte masks.
    #[inline(always)]
    fn xor_bytes(self, text: &mut [u8], block: &[u8; 64]) {
        bytes::xor_bytes(text, block);
    }

    /// Like [`xor_bytes`](Self::xor_bytes), with the same instructions for every length: for texts
    /// of unpredictable length. Bytes after the text may be slow to read soon afterwards.
    #[inline(always)]
    fn xor_bytes_at_once(self, text: &mut [u8], block: &[u8; 64]) {
        self.xor_bytes(text, block);
    }

    /// Like [`xor_bytes`](Self::xor_bytes). Returns the new text, padded with zeros.
    #[inline(always)]
    fn xor_padded(self, text: &mut [u8], block: &[u8; 64]) -> [u8; 64] {
        let mut result = self.padded(text);
        self.xor_bytes(&mut result[..text.len()], block);
        text.copy_from_slice(&result[..text.len()]);
        result
    }

    /// A text of at most 64 bytes, padded with zeros.
    #[inline(always)]
    fn padded(self, text: &[u8]) -> [u8; 64] {
        let mut padded = [0; 64];
        padded[..text.len()].copy_from_slice(text);
        padded
    }

    /// Fills `to`, which has at most 64 bytes, with the first bytes of `from`.
    #[inline(always)]
    fn copy_first(self, to: &mut [u8], from: &[u8; 64]) {
        to.copy_from_slice(&from[..to.len()]);
    }
}
