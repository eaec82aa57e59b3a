//! Vectors of 32-bit words, one per lane: ChaCha20 and SHA-256.

use super::bytes;

/// The most words that any instruction set offers at once.
pub(crate) const MAX_LANES: usize = 32;

/// Arithmetic on 32-bit words, one per lane: what the rounds of ChaCha20 and SHA-256
/// are made of. Plain Rust has it for one lane too.
pub(crate) trait Arithmetic: Copy {
    /// One vector.
    type Word: Copy;

    /// The same word in every lane.
    fn splat(self, word: u32) -> Self::Word;

    /// Lane-wise sum modulo 2^32.
    fn add(self, a: Self::Word, b: Self::Word) -> Self::Word;

    /// Lane-wise exclusive or.
    fn xor(self, a: Self::Word, b: Self::Word) -> Self::Word;

    /// Lane-wise and.
    fn and(self, a: Self::Word, b: Self::Word) -> Self::Word;

    /// Lane-wise rotation to the left by `N` bits, 0 < `N` < 32.
    fn rotate_left<const N: i32>(self, a: Self::Word) -> Self::Word;

    /// Lane-wise shift to the right by `N` bits, 0 < `N` < 32.
    fn shift_right<const N: i32>(self, a: Self::Word) -> Self::Word;

    /// `a`, without the compiler knowing how it has come about. It takes sums apart and
    /// adds in the order in which it finds the numbers, so that the last one to be known
    /// is added first and waits for the others: 11 cycles a round of SHA-256 on a Zen 5
    /// instead of 9. Where registers are few, there is nothing to gain.
    #[inline(always)]
    fn hidden(self, a: Self::Word) -> Self::Word {
        a
    }

    /// Each bit of `b` where `a` has a 1, of `c` where it has a 0.
    #[inline(always)]
    fn choose(self, a: Self::Word, b: Self::Word, c: Self::Word) -> Self::Word {
        self.xor(c, self.and(a, self.xor(b, c)))
    }

    /// Each bit as two at least of the three have it.
    #[inline(always)]
    fn majority(self, a: Self::Word, b: Self::Word, c: Self::Word) -> Self::Word {
        self.xor(b, self.and(self.xor(a, b), self.xor(b, c)))
    }
}

/// Vectors of 32-bit words, and the ways between them and memory.
pub(crate) trait U32Lanes: Arithmetic {
    /// How many words one vector holds; at most [`MAX_LANES`].
    const LANES: usize;

    /// The same instruction set with fewer lanes, for less work at a time; the
    /// same as `Self` where there is nothing to gain.
    type Narrow: U32Lanes;

    /// The narrower one.
    fn narrow(self) -> Self::Narrow;

    /// The first `LANES` words of `words`, one in each lane.
    fn load(self, words: &[u32]) -> Self::Word;

    /// The reverse of [`U32Lanes::load`].
    fn store(self, word: Self::Word, words: &mut [u32]);

    /// Turns 16 bytes of each lane into four vectors: lane `l` of vector `w` is the
    /// big-endian word at byte `4w` behind `places[l]`. Reads the first `LANES`
    /// places.
    ///
    /// # Safety
    ///
    /// Those bytes must be readable.
    unsafe fn load_big_endian(self, places: &[*const u8], offset: usize) -> [Self::Word; 4];

    /// The reverse, for places `stride` bytes apart.
    ///
    /// # Safety
    ///
    /// There must be `LANES` times 16 bytes that may be written.
    unsafe fn store_big_endian(self, words: [Self::Word; 4], place: *mut u8, stride: usize);

    /// Turns four words of each lane's place, from byte `AT` on, into four vectors: lane
    /// `l` of vector `w` is little-endian word `AT / 4 + w` of `places[first + l]`.
    fn gather<const AT: usize, const N: usize>(
        self,
        places: &[&[u8; N]; MAX_LANES],
        first: usize,
    ) -> [Self::Word; 4];

    /// Turns one row of four words per lane into four vectors: lane `l` of
    /// vector `w` is `rows[first + l][w]`.
    fn transpose_rows(self, rows: &[[u32; 4]; MAX_LANES], first: usize) -> [Self::Word; 4];

    /// The number of each lane, from 0 on.
    fn numbers(self) -> Self::Word;

    /// Turns sixteen vectors into `LANES` blocks of 64 bytes: bytes `4w..4w + 4`
    /// of block `l` are lane `l` of vector `w`, little-endian. Writes them to
    /// `blocks` or, with `XOR`, exclusive-ors them into what is there.
    ///
    /// # Safety
    ///
    /// `blocks` must point to `LANES` blocks that may be written and, with `XOR`,
    /// read.
    unsafe fn scatter<const XOR: bool>(self, words: &[Self::Word; 16], blocks: *mut [u8; 64]);

    /// Exclusive-ors as much of `block` as `text` is long, at most 64 bytes,
    /// into `text`. (Here and below: what sets do that have no masks for bytes.)
    #[inline(always)]
    fn xor_bytes(self, text: &mut [u8], block: &[u8; 64]) {
        bytes::xor_bytes(text, block);
    }

    /// The same, and returns what the text has become, padded with zeros.
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
}
