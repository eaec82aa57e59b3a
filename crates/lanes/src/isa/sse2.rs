//! SSE2, the baseline of x86-64: four words per vector.
//!
//! The compiler does not generate these vectors from plain Rust: the same arithmetic on arrays of
//! four words takes 1.8 times as long.

use super::set::InstructionSet;
use crate::kernels::poly1305::Radix64;
use crate::kernels::secp256k1::radix29::Radix29;
use crate::kernels::sha256::{SCALAR, Serial};
use crate::vector::{Arithmetic, BlocksFrom, MAX_LANES, Pair, Rows, Scalar, U32Lanes};
use core::arch::x86_64::{
    __m128i, _mm_add_epi32, _mm_and_si128, _mm_cvtsi32_si128, _mm_loadu_si128, _mm_or_si128,
    _mm_set1_epi32, _mm_setr_epi32, _mm_shuffle_epi32, _mm_shufflehi_epi16, _mm_shufflelo_epi16,
    _mm_slli_epi16, _mm_slli_epi32, _mm_srl_epi32, _mm_srli_epi16, _mm_srli_epi32,
    _mm_storeu_si128, _mm_unpackhi_epi32, _mm_unpackhi_epi64, _mm_unpacklo_epi32,
    _mm_unpacklo_epi64, _mm_xor_si128,
};

/// Four words in an xmm register.
#[derive(Clone, Copy)]
pub(crate) struct Sse2;

impl InstructionSet for Sse2 {
    type Lanes = Pair<Sse2>;
    type Rows = Pair<Sse2>;
    type Field = Radix64;
    type HalfField = Radix64;
    type Curve = Radix29<Scalar>;
    type Hash = Sse2;
    type HalfHash = Sse2;

    const INTERLEAVED_ROWS: usize = 2;
    const TAG_STEP: usize = 10;

    fn is_available() -> bool {
        // The baseline of x86-64.
        true
    }

    unsafe fn assume() -> Self {
        Self
    }

    #[inline(always)]
    fn lanes(self) -> Self::Lanes {
        Pair(self)
    }

    #[inline(always)]
    fn rows(self) -> Self::Rows {
        Pair(self)
    }

    #[inline(always)]
    fn field(self) -> Self::Field {
        Radix64
    }

    #[inline(always)]
    fn half_field(self) -> Self::HalfField {
        Radix64
    }

    #[inline(always)]
    fn curve(self) -> Self::Curve {
        Radix29(Scalar)
    }

    #[inline(always)]
    fn hash(self) -> Self::Hash {
        self
    }

    #[inline(always)]
    fn half_hash(self) -> Self::HalfHash {
        self
    }

    fn serial_hash() -> &'static Serial {
        &SCALAR
    }
}

kernels!(Sse2);

/// Transposes four vectors of four words.
#[inline(always)]
fn transpose([a, b, c, d]: [__m128i; 4]) -> [__m128i; 4] {
    // SAFETY: SSE2 is part of x86-64.
    unsafe {
        let ab_low = _mm_unpacklo_epi32(a, b);
        let ab_high = _mm_unpackhi_epi32(a, b);
        let cd_low = _mm_unpacklo_epi32(c, d);
        let cd_high = _mm_unpackhi_epi32(c, d);
        [
            _mm_unpacklo_epi64(ab_low, cd_low),
            _mm_unpackhi_epi64(ab_low, cd_low),
            _mm_unpacklo_epi64(ab_high, cd_high),
            _mm_unpackhi_epi64(ab_high, cd_high),
        ]
    }
}

/// Reverses the bytes of each word.
#[inline(always)]
fn swap_bytes(words: __m128i) -> __m128i {
    // SAFETY: SSE2 is part of x86-64.
    unsafe {
        // Exchanges the halves of each word, then the bytes of each half.
        let halves = _mm_shufflehi_epi16::<0xb1>(_mm_shufflelo_epi16::<0xb1>(words));
        _mm_or_si128(_mm_slli_epi16::<8>(halves), _mm_srli_epi16::<8>(halves))
    }
}

impl Arithmetic for Sse2 {
    type Word = __m128i;

    #[inline(always)]
    fn splat(self, word: u32) -> __m128i {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_set1_epi32(word.cast_signed()) }
    }

    #[inline(always)]
    fn add(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_add_epi32(a, b) }
    }

    #[inline(always)]
    fn xor(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_xor_si128(a, b) }
    }

    #[inline(always)]
    fn rotate_left<const N: i32>(self, a: __m128i) -> __m128i {
        // `32 - N` cannot be a const argument of the immediate shift, so the right shift takes its
        // count from a register with a constant. The compiler turns that into an immediate shift.
        // SAFETY: SSE2 is part of x86-64.
        unsafe {
            if N == 16 {
                return _mm_shufflehi_epi16::<0xb1>(_mm_shufflelo_epi16::<0xb1>(a));
            }
            let right = _mm_srl_epi32(a, _mm_cvtsi32_si128(32 - N));
            _mm_or_si128(_mm_slli_epi32::<N>(a), right)
        }
    }

    #[inline(always)]
    fn and(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_and_si128(a, b) }
    }

    #[inline(always)]
    fn shift_right<const N: i32>(self, a: __m128i) -> __m128i {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_srli_epi32::<N>(a) }
    }
}

impl Rows for Sse2 {
    const BLOCKS: usize = 1;

    #[inline(always)]
    fn row(self, row: &[u32; 4]) -> __m128i {
        // SAFETY: the array is 16 bytes; the load needs no alignment; SSE2 is part of x86-64.
        unsafe { _mm_loadu_si128(row.as_ptr().cast()) }
    }

    #[inline(always)]
    fn add_block_numbers(self, row: __m128i) -> __m128i {
        row
    }

    #[inline(always)]
    fn rotate_row<const N: usize>(self, row: __m128i) -> __m128i {
        // SAFETY: SSE2 is part of x86-64.
        unsafe {
            match N {
                1 => _mm_shuffle_epi32::<0b00_11_10_01>(row),
                2 => _mm_shuffle_epi32::<0b01_00_11_10>(row),
                _ => _mm_shuffle_epi32::<0b10_01_00_11>(row),
            }
        }
    }

    #[inline(always)]
    unsafe fn store_rows(self, rows: [__m128i; 4], blocks: *mut [u8; 64]) {
        let destination: *mut __m128i = blocks.cast();
        for (i, row) in rows.into_iter().enumerate() {
            // SAFETY: the caller guarantees 64 writable bytes, of which this writes the i-th
            // 16; stores need no alignment; SSE2 is part of x86-64.
            unsafe { _mm_storeu_si128(destination.add(i), row) };
        }
    }
}

impl U32Lanes for Sse2 {
    const LANES: usize = 4;
    type Narrow = Self;

    #[inline(always)]
    fn narrow(self) -> Self {
        self
    }

    #[inline(always)]
    fn load(self, words: &[u32]) -> __m128i {
        // SAFETY: the slice is 16 bytes, the load needs no alignment, and SSE2 is part
        // of x86-64.
        unsafe { _mm_loadu_si128(words[..4].as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, word: __m128i, words: &mut [u32]) {
        // SAFETY: the slice is 16 bytes, the store needs no alignment, and SSE2 is
        // part of x86-64.
        unsafe { _mm_storeu_si128(words[..4].as_mut_ptr().cast(), word) }
    }

    #[inline(always)]
    unsafe fn load_big_endian(self, sources: &[*const u8], offset: usize) -> [__m128i; 4] {
        let mut rows = [self.splat(0); 4];
        for l in 0..4 {
            // SAFETY: the caller guarantees 16 readable bytes at `offset` after each source; the
            // load needs no alignment; SSE2 is part of x86-64.
            rows[l] = unsafe { _mm_loadu_si128(sources[l].add(offset).cast()) };
        }
        let mut words = transpose(rows);
        for word in &mut words {
            *word = swap_bytes(*word);
        }
        words
    }

    #[inline(always)]
    unsafe fn store_big_endian(self, words: [__m128i; 4], destination: *mut u8, stride: usize) {
        for (l, row) in transpose(words).into_iter().enumerate() {
            // SAFETY: the caller guarantees 16 writable bytes at each multiple of `stride`; the
            // store needs no alignment; SSE2 is part of x86-64.
            unsafe { _mm_storeu_si128(destination.add(l * stride).cast(), swap_bytes(row)) }
        }
    }

    #[inline(always)]
    fn gather<const AT: usize, const N: usize>(
        self,
        sources: &[&[u8; N]; MAX_LANES],
        first: usize,
    ) -> [__m128i; 4] {
        let row = |l: usize| {
            let row: &[u8] = &sources[first + l][AT..AT + 16];
            // SAFETY: the row is 16 bytes, the load needs no alignment, and SSE2
            // is part of x86-64.
            unsafe { _mm_loadu_si128(row.as_ptr().cast()) }
        };
        transpose([row(0), row(1), row(2), row(3)])
    }

    #[inline(always)]
    fn transpose_rows(self, rows: &[[u32; 4]; MAX_LANES], first: usize) -> [__m128i; 4] {
        let row = |l: usize| {
            // SAFETY: a row is 16 bytes, the load needs no alignment, and SSE2
            // is part of x86-64.
            unsafe { _mm_loadu_si128(rows[first + l].as_ptr().cast()) }
        };
        transpose([row(0), row(1), row(2), row(3)])
    }

    #[inline(always)]
    fn lane_indices(self) -> __m128i {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_setr_epi32(0, 1, 2, 3) }
    }

    #[inline(always)]
    unsafe fn scatter(self, words: &[__m128i; 16], from: Option<BlocksFrom>, to: *mut [u8; 64]) {
        for quarter in 0..4 {
            let rows = transpose([
                words[4 * quarter],
                words[4 * quarter + 1],
                words[4 * quarter + 2],
                words[4 * quarter + 3],
            ]);
            for (lane, mut row) in rows.into_iter().enumerate() {
                // SAFETY: the caller guarantees four blocks to write, and to read if there are any.
                // Each has four times 16 bytes. Loads and stores need no alignment; SSE2 is
                // part of x86-64.
                unsafe {
                    if let Some(from) = from {
                        let from = from.block(lane).cast::<__m128i>().add(quarter);
                        row = _mm_xor_si128(row, _mm_loadu_si128(from));
                    }
                    _mm_storeu_si128(to.add(lane).cast::<__m128i>().add(quarter), row);
                }
            }
        }
    }
}
