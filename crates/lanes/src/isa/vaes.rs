//! VAES and VPCLMULQDQ with AVX-512: four blocks per vector.

use crate::vector::{AesBlocks, MAX_BLOCKS};
use core::arch::x86_64::*;

/// Four blocks in a zmm register. A value of this type proves that the CPU has AVX-512 F, BW
/// and VL, BMI2, VAES and VPCLMULQDQ.
#[derive(Clone, Copy)]
pub(crate) struct Vaes(());

cpufeatures::new!(
    vaes,
    "avx512f",
    "avx512bw",
    "avx512vl",
    "bmi2",
    "vaes",
    "vpclmulqdq"
);

impl Vaes {
    fn is_available() -> bool {
        vaes::get()
    }

    /// # Safety
    ///
    /// The CPU must have AVX-512 F, BW and VL, BMI2, VAES and VPCLMULQDQ.
    unsafe fn assume() -> Self {
        Self(())
    }
}

aes_kernels!(
    Vaes,
    "avx512f,avx512bw,avx512vl,bmi2,aes,pclmulqdq,vaes,vpclmulqdq"
);

/// Returns a mask of the first `len` of 64 bytes, or of all if `len` is larger.
#[inline(always)]
fn mask(_: Vaes, len: usize) -> u64 {
    // SAFETY: the argument proves BMI2.
    unsafe { _bzhi_u64(u64::MAX, len.min(64) as u32) }
}

/// Returns masks of the first `lens[i]` of the 16 bytes of lane `i`.
#[inline(always)]
fn masks(_: Vaes, lens: [usize; MAX_BLOCKS]) -> [__mmask16; MAX_BLOCKS] {
    // SAFETY: the argument proves BMI2.
    lens.map(|len| unsafe { _bzhi_u32(u32::MAX, len as u32) as __mmask16 })
}

impl AesBlocks for Vaes {
    const LANES: usize = 4;
    const ONE_PASS: bool = true;
    const KARATSUBA: bool = false;
    const REGISTERS: usize = 32;
    type Vector = __m512i;

    #[inline(always)]
    fn zero(self) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    fn splat(self, block: &[u8; 16]) -> __m512i {
        // SAFETY: the block is 16 bytes; the load needs no alignment; `self` proves AVX-512F.
        unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(block.as_ptr().cast())) }
    }

    #[inline(always)]
    fn splat_number(self, number: &u128) -> __m512i {
        // SAFETY: the number is 16 bytes; the load needs no alignment; `self` proves AVX-512F.
        unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128((&raw const *number).cast())) }
    }

    #[inline(always)]
    fn numbers(self, numbers: &[u128]) -> __m512i {
        // SAFETY: the slice is 64 bytes; loads need no alignment; `self` proves
        // AVX-512F.
        unsafe { _mm512_loadu_si512(numbers[..4].as_ptr().cast()) }
    }

    #[inline(always)]
    fn gather<const N: usize>(self, blocks: &[&[u8; 16]; N], first: usize) -> __m512i {
        let blocks = &blocks[first..first + 4];
        // SAFETY: each block is 16 bytes; loads need no alignment; `self` proves AVX-512F.
        unsafe {
            let all = _mm512_castsi128_si512(_mm_loadu_si128(blocks[0].as_ptr().cast()));
            let all = _mm512_inserti32x4::<1>(all, _mm_loadu_si128(blocks[1].as_ptr().cast()));
            let all = _mm512_inserti32x4::<2>(all, _mm_loadu_si128(blocks[2].as_ptr().cast()));
            _mm512_inserti32x4::<3>(all, _mm_loadu_si128(blocks[3].as_ptr().cast()))
        }
    }

    #[inline(always)]
    unsafe fn gather_first(
        self,
        sources: [*const u8; MAX_BLOCKS],
        lens: [usize; MAX_BLOCKS],
    ) -> __m512i {
        let masks = masks(self, lens);
        // SAFETY: the masks keep the loads from bytes that the caller does not guarantee; `self`
        // proves AVX-512 F, BW and VL.
        unsafe {
            let load = |lane: usize| _mm_maskz_loadu_epi8(masks[lane], sources[lane].cast());
            let all = _mm512_castsi128_si512(load(0));
            let all = _mm512_inserti32x4::<1>(all, load(1));
            let all = _mm512_inserti32x4::<2>(all, load(2));
            _mm512_inserti32x4::<3>(all, load(3))
        }
    }

    #[inline(always)]
    unsafe fn scatter_first(
        self,
        vector: __m512i,
        destinations: [*mut u8; MAX_BLOCKS],
        lens: [usize; MAX_BLOCKS],
    ) {
        let masks = masks(self, lens);
        // SAFETY: the masks keep the stores from bytes that the caller does not guarantee; `self`
        // proves AVX-512 F, BW and VL.
        unsafe {
            let store = |lane: usize, block| {
                _mm_mask_storeu_epi8(destinations[lane].cast(), masks[lane], block);
            };
            store(0, _mm512_castsi512_si128(vector));
            store(1, _mm512_extracti32x4_epi32::<1>(vector));
            store(2, _mm512_extracti32x4_epi32::<2>(vector));
            store(3, _mm512_extracti32x4_epi32::<3>(vector));
        }
    }

    #[inline(always)]
    fn first_of_each(self, vector: __m512i, lens: [usize; MAX_BLOCKS]) -> __m512i {
        let masks = masks(self, lens).map(u64::from);
        let mask = masks[0] | masks[1] << 16 | masks[2] << 32 | masks[3] << 48;
        // SAFETY: `self` proves AVX-512BW.
        unsafe { _mm512_maskz_mov_epi8(mask, vector) }
    }

    #[inline(always)]
    unsafe fn load(self, source: *const u8) -> __m512i {
        // SAFETY: the caller guarantees 64 readable bytes; the load needs no alignment; `self`
        // proves AVX-512F.
        unsafe { _mm512_loadu_si512(source.cast()) }
    }

    #[inline(always)]
    unsafe fn load_first(self, source: *const u8, len: usize) -> __m512i {
        // SAFETY: the caller guarantees `len` readable bytes, and the mask keeps the load from
        // those beyond; `self` proves AVX-512BW.
        unsafe { _mm512_maskz_loadu_epi8(mask(self, len), source.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, vector: __m512i, destination: *mut u8) {
        // SAFETY: the caller guarantees 64 writable bytes; the store needs no alignment; `self`
        // proves AVX-512F.
        unsafe { _mm512_storeu_si512(destination.cast(), vector) }
    }

    #[inline(always)]
    unsafe fn store_first(self, vector: __m512i, mut destination: *mut u8, len: usize) {
        // In pieces: a load that touches bytes that a masked store leaves out waits until that
        // store has reached the cache, and the bytes left out may be the next packet's.
        // SAFETY: the caller guarantees `len` writable bytes, or 64 if `len` is more. Whole
        // pieces are written only where `len` has their bit, and the mask keeps the last store
        // from the bytes beyond `len`. Stores need no alignment; `self` proves AVX-512 F, BW
        // and VL.
        unsafe {
            if len >= 64 {
                return _mm512_storeu_si512(destination.cast(), vector);
            }
            let mut half = _mm512_castsi512_si256(vector);
            if len & 32 != 0 {
                _mm256_storeu_si256(destination.cast(), half);
                destination = destination.add(32);
                half = _mm512_extracti64x4_epi64::<1>(vector);
            }
            let mut quarter = _mm256_castsi256_si128(half);
            if len & 16 != 0 {
                _mm_storeu_si128(destination.cast(), quarter);
                destination = destination.add(16);
                quarter = _mm256_extracti128_si256::<1>(half);
            }
            if len & 15 != 0 {
                let mask = _bzhi_u32(u32::MAX, (len & 15) as u32) as __mmask16;
                _mm_mask_storeu_epi8(destination.cast(), mask, quarter);
            }
        }
    }

    #[inline(always)]
    fn first(self, vector: __m512i, len: usize) -> __m512i {
        // SAFETY: `self` proves AVX-512BW.
        unsafe { _mm512_maskz_mov_epi8(mask(self, len), vector) }
    }

    #[inline(always)]
    fn with_lane(self, vector: __m512i, lane: usize, number: u128) -> __m512i {
        // SAFETY: the number is 16 bytes; the load needs no alignment; `self` proves AVX-512F.
        unsafe {
            let number = _mm_loadu_si128((&raw const number).cast());
            _mm512_mask_broadcast_i32x4(vector, 0xf << (4 * lane), number)
        }
    }

    #[inline(always)]
    fn with_lane_of(self, vector: __m512i, lane: usize, other: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_mask_mov_epi32(vector, 0xf << (4 * lane), other) }
    }

    #[inline(always)]
    fn only_lane(self, vector: __m512i, lane: usize) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_maskz_mov_epi32(0xf << (4 * lane), vector) }
    }

    #[inline(always)]
    fn sum(self, vector: __m512i) -> u128 {
        let mut number = 0_u128;
        // SAFETY: the number is 16 bytes; the store needs no alignment; `self` proves AVX-512 F
        // and VL.
        unsafe {
            let sum = _mm512_castsi512_si128(self.sum_in_first(vector));
            _mm_storeu_si128((&raw mut number).cast(), sum);
        }
        number
    }

    #[inline(always)]
    fn reverse(self, vector: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512 F and BW.
        unsafe {
            let order = _mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
            _mm512_shuffle_epi8(vector, _mm512_broadcast_i32x4(order))
        }
    }

    #[inline(always)]
    fn with_last_word(self, vector: __m512i, word: u32) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_mask_set1_epi32(vector, 0b1000_1000_1000_1000, word as i32) }
    }

    #[inline(always)]
    fn sum_in_first(self, vector: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F, which includes AVX2.
        unsafe {
            let low = _mm512_castsi512_si256(vector);
            let pair = _mm256_xor_si256(low, _mm512_extracti64x4_epi64::<1>(vector));
            let sum = _mm_xor_si128(
                _mm256_castsi256_si128(pair),
                _mm256_extracti128_si256::<1>(pair),
            );
            _mm512_zextsi128_si512(sum)
        }
    }

    #[inline(always)]
    fn xor(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_xor_si512(a, b) }
    }

    #[inline(always)]
    fn and(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_and_si512(a, b) }
    }

    #[inline(always)]
    fn equal(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        let halves = unsafe { _mm512_maskz_set1_epi64(_mm512_cmpeq_epi64_mask(a, b), -1) };
        self.and(halves, self.swap(halves))
    }

    #[inline(always)]
    fn round(self, state: __m512i, key: __m512i) -> __m512i {
        // SAFETY: `self` proves VAES and AVX-512F.
        unsafe { _mm512_aesenc_epi128(state, key) }
    }

    #[inline(always)]
    fn last_round(self, state: __m512i, key: __m512i) -> __m512i {
        // SAFETY: `self` proves VAES and AVX-512F.
        unsafe { _mm512_aesenclast_epi128(state, key) }
    }

    #[inline(always)]
    fn carry_less<const HALVES: i32>(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves VPCLMULQDQ and AVX-512F.
        unsafe { _mm512_clmulepi64_epi128::<HALVES>(a, b) }
    }

    #[inline(always)]
    fn swap(self, vector: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_shuffle_epi32::<0b01_00_11_10>(vector) }
    }
}
