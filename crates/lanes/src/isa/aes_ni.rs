//! AES-NI and PCLMULQDQ with AVX2: one block per vector.

use crate::vector::{AesBlocks, mask, number, write_number};
use core::arch::x86_64::*;

/// One block in an xmm register. A value of this type proves that the CPU has AVX2, AES-NI and
/// PCLMULQDQ.
#[derive(Clone, Copy)]
pub(crate) struct AesNi(());

cpufeatures::new!(aes_ni, "avx2", "aes", "pclmulqdq");

impl AesNi {
    fn is_available() -> bool {
        aes_ni::get()
    }

    /// # Safety
    ///
    /// The CPU must have AVX2, AES-NI and PCLMULQDQ.
    unsafe fn assume() -> Self {
        Self(())
    }
}

aes_kernels!(AesNi, "avx2,aes,pclmulqdq");

impl AesBlocks for AesNi {
    const LANES: usize = 1;
    const ONE_PASS: bool = true;
    const KARATSUBA: bool = true;
    const REGISTERS: usize = 16;
    type Vector = __m128i;

    #[inline(always)]
    fn zero(self) -> __m128i {
        // SAFETY: `self` proves SSE2.
        unsafe { _mm_setzero_si128() }
    }

    #[inline(always)]
    fn splat(self, block: &[u8; 16]) -> __m128i {
        // SAFETY: the block is 16 bytes; the load needs no alignment; `self` proves SSE2.
        unsafe { _mm_loadu_si128(block.as_ptr().cast()) }
    }

    #[inline(always)]
    fn splat_number(self, number: &u128) -> __m128i {
        // SAFETY: the number is 16 bytes; the load needs no alignment; `self` proves SSE2.
        unsafe { _mm_loadu_si128((&raw const *number).cast()) }
    }

    #[inline(always)]
    fn numbers(self, numbers: &[u128]) -> __m128i {
        self.splat_number(&numbers[0])
    }

    #[inline(always)]
    fn gather<const N: usize>(self, blocks: &[&[u8; 16]; N], first: usize) -> __m128i {
        self.splat(blocks[first])
    }

    #[inline(always)]
    unsafe fn load(self, source: *const u8) -> __m128i {
        // SAFETY: the caller guarantees 16 readable bytes; the load needs no alignment; `self`
        // proves SSE2.
        unsafe { _mm_loadu_si128(source.cast()) }
    }

    #[inline(always)]
    unsafe fn load_first(self, source: *const u8, len: usize) -> __m128i {
        // SAFETY: the caller guarantees `len` readable bytes, or 16 if `len` is more.
        unsafe { self.splat_number(&number(source, len.min(16))) }
    }

    #[inline(always)]
    unsafe fn store(self, vector: __m128i, destination: *mut u8) {
        // SAFETY: the caller guarantees 16 writable bytes; the store needs no alignment; `self`
        // proves SSE2.
        unsafe { _mm_storeu_si128(destination.cast(), vector) }
    }

    #[inline(always)]
    unsafe fn store_first(self, vector: __m128i, destination: *mut u8, len: usize) {
        // SAFETY: the caller guarantees `len` writable bytes, or 16 if `len` is more.
        unsafe { write_number(self.sum(vector), destination, len.min(16)) }
    }

    #[inline(always)]
    fn first(self, vector: __m128i, len: usize) -> __m128i {
        // SAFETY: `self` proves SSE2.
        unsafe { _mm_and_si128(vector, self.splat_number(&mask(len))) }
    }

    #[inline(always)]
    fn with_lane(self, _: __m128i, _: usize, number: u128) -> __m128i {
        self.splat_number(&number)
    }

    #[inline(always)]
    fn with_lane_of(self, _: __m128i, _: usize, other: __m128i) -> __m128i {
        other
    }

    #[inline(always)]
    fn only_lane(self, vector: __m128i, _: usize) -> __m128i {
        vector
    }

    #[inline(always)]
    fn sum(self, vector: __m128i) -> u128 {
        let mut number = 0_u128;
        // SAFETY: the number is 16 bytes; the store needs no alignment; `self` proves SSE2.
        unsafe { _mm_storeu_si128((&raw mut number).cast(), vector) };
        number
    }

    #[inline(always)]
    fn reverse(self, vector: __m128i) -> __m128i {
        // SAFETY: `self` proves AVX2, which includes SSSE3.
        unsafe {
            let order = _mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
            _mm_shuffle_epi8(vector, order)
        }
    }

    #[inline(always)]
    fn with_last_word(self, vector: __m128i, word: u32) -> __m128i {
        // SAFETY: `self` proves AVX2, which includes SSE4.1.
        unsafe { _mm_insert_epi32::<3>(vector, word as i32) }
    }

    #[inline(always)]
    fn sum_in_first(self, vector: __m128i) -> __m128i {
        vector
    }

    #[inline(always)]
    fn xor(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: `self` proves SSE2.
        unsafe { _mm_xor_si128(a, b) }
    }

    #[inline(always)]
    fn and(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: `self` proves SSE2.
        unsafe { _mm_and_si128(a, b) }
    }

    #[inline(always)]
    fn equal(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: `self` proves AVX2, which includes SSE4.1.
        let halves = unsafe { _mm_cmpeq_epi64(a, b) };
        self.and(halves, self.swap(halves))
    }

    #[inline(always)]
    fn round(self, state: __m128i, key: __m128i) -> __m128i {
        // SAFETY: `self` proves AES-NI.
        unsafe { _mm_aesenc_si128(state, key) }
    }

    #[inline(always)]
    fn last_round(self, state: __m128i, key: __m128i) -> __m128i {
        // SAFETY: `self` proves AES-NI.
        unsafe { _mm_aesenclast_si128(state, key) }
    }

    #[inline(always)]
    fn carry_less<const HALVES: i32>(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: `self` proves PCLMULQDQ.
        unsafe { _mm_clmulepi64_si128::<HALVES>(a, b) }
    }

    #[inline(always)]
    fn swap(self, vector: __m128i) -> __m128i {
        // SAFETY: `self` proves SSE2.
        unsafe { _mm_shuffle_epi32::<0b01_00_11_10>(vector) }
    }
}
