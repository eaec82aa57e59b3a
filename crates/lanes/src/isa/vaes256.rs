//! VAES and VPCLMULQDQ with AVX2, for CPUs that have them without AVX-512: two blocks per vector.

use crate::calibrate::Calibrated;
#[cfg(not(miri))]
use crate::vector::Consecutive;
use crate::vector::{AesBlocks, MAX_BLOCKS, mask, number, write_number};
use core::arch::x86_64::*;

/// Two blocks in a ymm register. A value of this type proves that the CPU has AVX2, AES-NI,
/// PCLMULQDQ, VAES and VPCLMULQDQ.
#[derive(Clone, Copy)]
pub(crate) struct Vaes256(());

// The kernels do not use AES-NI and PCLMULQDQ themselves, but are compiled with them enabled.
cpufeatures::new!(avx2, "aes", "pclmulqdq", "avx2");

/// Whether the CPU has VAES and VPCLMULQDQ, in registers of any size. The crate `cpufeatures`
/// reports them only if the operating system saves registers of 512 bits.
///
/// They are bits 9 and 10 of ECX in leaf 7 of CPUID. Every CPU with AVX2 has that leaf.
#[cold]
fn has_vector_aes() -> bool {
    const BITS: u32 = 1 << 9 | 1 << 10;
    #[allow(unused_unsafe, reason = "safe in newer versions of Rust")]
    // SAFETY: every x86-64 CPU has the CPUID instruction.
    let leaf = unsafe { __cpuid_count(7, 0) };
    leaf.ecx & BITS == BITS
}

impl Vaes256 {
    fn is_available() -> bool {
        /// 1 for no, 2 for yes. Cached, because CPUID is slow, especially in a virtual machine.
        static VECTOR_AES: Calibrated = Calibrated::new();
        avx2::get() && VECTOR_AES.get(|| 1 + usize::from(has_vector_aes())) == 2
    }

    /// # Safety
    ///
    /// The CPU must have AVX2, AES-NI, PCLMULQDQ, VAES and VPCLMULQDQ.
    unsafe fn assume() -> Self {
        Self(())
    }

    /// Returns two blocks, each given as a little-endian number.
    #[inline(always)]
    fn pair(self, low: u128, high: u128) -> __m256i {
        // From registers: a load waits for the several stores that have just written its bytes.
        // SAFETY: `self` proves AVX2.
        unsafe {
            let block = |number: u128| _mm_set_epi64x((number >> 64) as i64, number as i64);
            _mm256_set_m128i(block(high), block(low))
        }
    }
}

aes_kernels!(Vaes256, "avx2,aes,pclmulqdq,vaes,vpclmulqdq");

/// The assembly that multiplies `blocks`, and their `sums` of halves.
#[cfg(not(miri))]
macro_rules! products {
    () => {
        concat!(
            "vpclmulqdq {product}, {blocks}, ymmword ptr [{powers} + {offset}], 0x00\n",
            "vpclmulqdq {blocks}, {blocks}, ymmword ptr [{powers} + {offset}], 0x11\n",
            "vpclmulqdq {sums}, {sums}, ymmword ptr [{halves} + {offset}], 0x00",
        )
    };
}

/// The assembly that adds these products.
#[cfg(not(miri))]
macro_rules! additions {
    () => {
        concat!(
            "vpxor {low}, {low}, {product}\n",
            "vpxor {high}, {high}, {blocks}\n",
            "vpxor {middle}, {middle}, {sums}",
        )
    };
}

/// See [`AesBlocks::add_products_from`]. In assembly, because the compiler would separate the
/// carry-less products: on a Zen 4 these and the rounds of AES take a fifth longer if the products
/// are not adjacent.
#[cfg(not(miri))]
#[inline]
#[target_feature(enable = "avx2,vpclmulqdq")]
fn add_products_from<const I: usize>(
    [mut low, mut high, mut middle]: [__m256i; 3],
    blocks: __m256i,
    by: Consecutive<'_>,
) -> [__m256i; 3] {
    let [powers, halves] = by.pointers(2 * I + 2);
    let sums = _mm256_xor_si256(blocks, _mm256_shuffle_epi32::<0b01_00_11_10>(blocks));
    // SAFETY: 32 bytes are read from each pointer at offset 32 * `I`, within the numbers that it
    // points to. No memory is written. The function has VPCLMULQDQ enabled.
    unsafe {
        core::arch::asm!(
            products!(),
            additions!(),
            product = out(ymm_reg) _,
            blocks = inout(ymm_reg) blocks => _,
            sums = inout(ymm_reg) sums => _,
            low = inout(ymm_reg) low,
            high = inout(ymm_reg) high,
            middle = inout(ymm_reg) middle,
            powers = in(reg) powers,
            halves = in(reg) halves,
            offset = const 32 * I,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    [low, high, middle]
}

/// See [`AesBlocks::round_and_products`]. In assembly, because the compiler would place all rounds
/// after all products, which needs more registers than there are; see also [`add_products_from`].
#[cfg(not(miri))]
#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn round_and_products<const I: usize>(
    states: &mut [__m256i; 8],
    round_key: &[u8; 16],
    [mut low, mut high, mut middle]: [__m256i; 3],
    blocks: __m256i,
    by: Consecutive<'_>,
) -> [__m256i; 3] {
    let [powers, halves] = by.pointers(2 * I + 2);
    let [s0, s1, s2, s3, s4, s5, s6, s7] = states;
    // SAFETY: 16 bytes are read from the round key. 32 are read from each other pointer at offset
    // 32 * `I`, within the numbers that it points to. No memory is written. The function has VAES
    // and VPCLMULQDQ enabled.
    unsafe {
        core::arch::asm!(
            "vpshufd {sums}, {blocks}, 0x4e",
            "vbroadcasti128 {key}, xmmword ptr [{round_key}]",
            "vpxor {sums}, {sums}, {blocks}",
            "vaesenc {s0}, {s0}, {key}",
            "vaesenc {s1}, {s1}, {key}",
            "vaesenc {s2}, {s2}, {key}",
            "vaesenc {s3}, {s3}, {key}",
            products!(),
            "vaesenc {s4}, {s4}, {key}",
            "vaesenc {s5}, {s5}, {key}",
            "vaesenc {s6}, {s6}, {key}",
            "vaesenc {s7}, {s7}, {key}",
            additions!(),
            s0 = inout(ymm_reg) *s0,
            s1 = inout(ymm_reg) *s1,
            s2 = inout(ymm_reg) *s2,
            s3 = inout(ymm_reg) *s3,
            s4 = inout(ymm_reg) *s4,
            s5 = inout(ymm_reg) *s5,
            s6 = inout(ymm_reg) *s6,
            s7 = inout(ymm_reg) *s7,
            key = out(ymm_reg) _,
            product = out(ymm_reg) _,
            blocks = inout(ymm_reg) blocks => _,
            sums = out(ymm_reg) _,
            low = inout(ymm_reg) low,
            high = inout(ymm_reg) high,
            middle = inout(ymm_reg) middle,
            round_key = in(reg) round_key.as_ptr(),
            powers = in(reg) powers,
            halves = in(reg) halves,
            offset = const 32 * I,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    [low, high, middle]
}

const _: () = assert!(Vaes256::KARATSUBA, "the assembly has three products");

impl AesBlocks for Vaes256 {
    const LANES: usize = 2;
    const ONE_PASS: bool = true;
    const KARATSUBA: bool = true;
    const REGISTERS: usize = 16;
    type Vector = __m256i;

    #[inline(always)]
    fn zero(self) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    fn splat(self, block: &[u8; 16]) -> __m256i {
        // SAFETY: the block is 16 bytes; the load needs no alignment; `self` proves AVX2.
        unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(block.as_ptr().cast())) }
    }

    #[inline(always)]
    fn splat_number(self, number: &u128) -> __m256i {
        // SAFETY: the number is 16 bytes; the load needs no alignment; `self` proves AVX2.
        unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128((&raw const *number).cast())) }
    }

    #[inline(always)]
    fn numbers(self, numbers: &[u128]) -> __m256i {
        // SAFETY: the slice is 32 bytes; loads need no alignment; `self` proves AVX2.
        unsafe { _mm256_loadu_si256(numbers[..2].as_ptr().cast()) }
    }

    #[inline(always)]
    fn gather<const N: usize>(self, blocks: &[&[u8; 16]; N], first: usize) -> __m256i {
        let blocks = &blocks[first..first + 2];
        // SAFETY: each block is 16 bytes; loads need no alignment; `self` proves AVX2.
        unsafe {
            let low = _mm256_castsi128_si256(_mm_loadu_si128(blocks[0].as_ptr().cast()));
            _mm256_inserti128_si256::<1>(low, _mm_loadu_si128(blocks[1].as_ptr().cast()))
        }
    }

    #[inline(always)]
    unsafe fn gather_first(
        self,
        sources: [*const u8; MAX_BLOCKS],
        lens: [usize; MAX_BLOCKS],
    ) -> __m256i {
        // SAFETY: the caller guarantees the bytes.
        unsafe { self.pair(number(sources[0], lens[0]), number(sources[1], lens[1])) }
    }

    #[inline(always)]
    unsafe fn scatter_first(
        self,
        vector: __m256i,
        destinations: [*mut u8; MAX_BLOCKS],
        lens: [usize; MAX_BLOCKS],
    ) {
        let mut pair = [0_u128; 2];
        // SAFETY: the pair is 32 bytes. The caller guarantees the destinations.
        unsafe {
            self.store(vector, pair.as_mut_ptr().cast());
            write_number(pair[0], destinations[0], lens[0]);
            write_number(pair[1], destinations[1], lens[1]);
        }
    }

    #[inline(always)]
    fn first_of_each(self, vector: __m256i, lens: [usize; MAX_BLOCKS]) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_and_si256(vector, self.pair(mask(lens[0]), mask(lens[1]))) }
    }

    #[inline(always)]
    unsafe fn load(self, source: *const u8) -> __m256i {
        // SAFETY: the caller guarantees 32 readable bytes; the load needs no alignment; `self`
        // proves AVX2.
        unsafe { _mm256_loadu_si256(source.cast()) }
    }

    #[inline(always)]
    unsafe fn load_first(self, source: *const u8, len: usize) -> __m256i {
        // SAFETY: the caller guarantees `len` readable bytes, or 32 if `len` is more. The
        // second half is read only where `len` is more than 16.
        unsafe {
            match len {
                0..=16 => self.pair(number(source, len), 0),
                17..32 => self.pair(number(source, 16), number(source.add(16), len - 16)),
                _ => self.load(source),
            }
        }
    }

    #[inline(always)]
    unsafe fn store(self, vector: __m256i, destination: *mut u8) {
        // SAFETY: the caller guarantees 32 writable bytes; the store needs no alignment; `self`
        // proves AVX2.
        unsafe { _mm256_storeu_si256(destination.cast(), vector) }
    }

    #[inline(always)]
    unsafe fn store_first(self, vector: __m256i, destination: *mut u8, len: usize) {
        let mut pair = [0_u128; 2];
        // SAFETY: the caller guarantees `len` writable bytes at `destination`, or 32 if `len`
        // is more. Its second half is written only where `len` is more than 16. The pair is 32
        // bytes.
        unsafe {
            match len {
                0..=16 => {
                    self.store(vector, pair.as_mut_ptr().cast());
                    write_number(pair[0], destination, len);
                }
                17..32 => {
                    self.store(vector, pair.as_mut_ptr().cast());
                    write_number(pair[0], destination, 16);
                    write_number(pair[1], destination.add(16), len - 16);
                }
                _ => self.store(vector, destination),
            }
        }
    }

    #[inline(always)]
    fn first(self, vector: __m256i, len: usize) -> __m256i {
        let mask = self.pair(mask(len), mask(len.saturating_sub(16)));
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_and_si256(vector, mask) }
    }

    #[inline(always)]
    fn with_lane(self, vector: __m256i, lane: usize, number: u128) -> __m256i {
        // SAFETY: the number is 16 bytes; the load needs no alignment; `self` proves AVX2.
        unsafe {
            let number = _mm_loadu_si128((&raw const number).cast());
            match lane {
                0 => _mm256_inserti128_si256::<0>(vector, number),
                _ => _mm256_inserti128_si256::<1>(vector, number),
            }
        }
    }

    #[inline(always)]
    fn with_lane_of(self, vector: __m256i, lane: usize, other: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe {
            match lane {
                0 => _mm256_blend_epi32::<0x0f>(vector, other),
                _ => _mm256_blend_epi32::<0xf0>(vector, other),
            }
        }
    }

    #[inline(always)]
    fn only_lane(self, vector: __m256i, lane: usize) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe {
            match lane {
                0 => _mm256_blend_epi32::<0xf0>(vector, self.zero()),
                _ => _mm256_blend_epi32::<0x0f>(vector, self.zero()),
            }
        }
    }

    #[inline(always)]
    fn sum(self, vector: __m256i) -> u128 {
        let mut number = 0_u128;
        // SAFETY: the number is 16 bytes; the store needs no alignment; `self` proves AVX2.
        unsafe {
            let sum = _mm256_castsi256_si128(self.sum_in_first(vector));
            _mm_storeu_si128((&raw mut number).cast(), sum);
        }
        number
    }

    #[inline(always)]
    fn reverse(self, vector: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe {
            let order = _mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
            _mm256_shuffle_epi8(vector, _mm256_broadcastsi128_si256(order))
        }
    }

    #[inline(always)]
    fn with_last_word(self, vector: __m256i, word: u32) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_blend_epi32::<0b1000_1000>(vector, _mm256_set1_epi32(word as i32)) }
    }

    #[inline(always)]
    fn sum_in_first(self, vector: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe {
            let low = _mm256_castsi256_si128(vector);
            let sum = _mm_xor_si128(low, _mm256_extracti128_si256::<1>(vector));
            _mm256_zextsi128_si256(sum)
        }
    }

    #[inline(always)]
    fn xor(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_xor_si256(a, b) }
    }

    #[inline(always)]
    fn and(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_and_si256(a, b) }
    }

    #[inline(always)]
    fn equal(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        let halves = unsafe { _mm256_cmpeq_epi64(a, b) };
        self.and(halves, self.swap(halves))
    }

    #[inline(always)]
    fn round(self, state: __m256i, key: __m256i) -> __m256i {
        // SAFETY: `self` proves VAES and AVX2.
        unsafe { _mm256_aesenc_epi128(state, key) }
    }

    #[inline(always)]
    fn last_round(self, state: __m256i, key: __m256i) -> __m256i {
        // SAFETY: `self` proves VAES and AVX2.
        unsafe { _mm256_aesenclast_epi128(state, key) }
    }

    #[inline(always)]
    fn carry_less<const HALVES: i32>(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves VPCLMULQDQ and AVX2.
        unsafe { _mm256_clmulepi64_epi128::<HALVES>(a, b) }
    }

    #[inline(always)]
    fn swap(self, vector: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_shuffle_epi32::<0b01_00_11_10>(vector) }
    }

    #[inline(always)]
    fn tie(self, a: &mut __m256i, b: &mut __m256i) {
        // SAFETY: `self` proves AVX2.
        unsafe { super::avx2::tie(a, b) }
    }

    #[cfg(not(miri))]
    #[inline(always)]
    fn add_products_from<const I: usize>(
        self,
        sum: [__m256i; 3],
        blocks: __m256i,
        by: Consecutive<'_>,
    ) -> [__m256i; 3] {
        // SAFETY: `self` proves AVX2 and VPCLMULQDQ.
        unsafe { add_products_from::<I>(sum, blocks, by) }
    }

    #[cfg(not(miri))]
    #[inline(always)]
    fn round_and_products<const K: usize, const I: usize>(
        self,
        states: &mut [__m256i; K],
        round_key: &[u8; 16],
        sum: [__m256i; 3],
        blocks: __m256i,
        by: Consecutive<'_>,
    ) -> [__m256i; 3] {
        match states.as_mut_slice().try_into() {
            // SAFETY: `self` proves AVX2, VAES and VPCLMULQDQ.
            Ok(states) => unsafe { round_and_products::<I>(states, round_key, sum, blocks, by) },
            Err(_) => {
                self.round_of_all(states, round_key);
                self.add_products_from::<I>(sum, blocks, by)
            }
        }
    }
}
