//! AVX2: eight words to a vector for ChaCha20, eight numbers to two vectors for
//! Poly1305.
//!
//! Sixteen registers do not hold two states of ChaCha20, but the loads and stores
//! of what does not fit cost less than waiting for one state's additions.

use super::portable::{padded, xor_bytes, xor_padded};
use crate::poly1305::Radix26;
use crate::vector::{Limbs26, Longs, MAX_LANES, MAX_TAGS, Pair, Words};
use core::arch::x86_64::*;

/// Eight words in a ymm register. A value of this type proves that the CPU has
/// AVX2.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

cpufeatures::new!(avx2, "avx2");

impl Avx2 {
    fn is_available() -> bool {
        avx2::get()
    }

    /// # Safety
    ///
    /// The CPU must have it.
    unsafe fn assume() -> Self {
        Self(())
    }
}

kernels!(
    |proof: Avx2|
    words: Pair(proof) => Pair<Avx2>,
    field: Radix26(Two(proof)) => Radix26<Two>,
    tag_step: 34,
    features: "avx2"
);

/// Two rows of 16 bytes in one register.
macro_rules! two_rows {
    ($a:expr, $b:expr) => {
        _mm256_inserti128_si256::<1>(
            _mm256_castsi128_si256(_mm_loadu_si128($a.cast())),
            _mm_loadu_si128($b.cast()),
        )
    };
}

/// Four registers, each half of which is a row of a matrix of four by four words,
/// as the columns of those matrices.
#[inline(always)]
fn transposed_halves(_: Avx2, [a, b, c, d]: [__m256i; 4]) -> [__m256i; 4] {
    // SAFETY: the argument proves AVX2.
    unsafe {
        let ab_low = _mm256_unpacklo_epi32(a, b);
        let ab_high = _mm256_unpackhi_epi32(a, b);
        let cd_low = _mm256_unpacklo_epi32(c, d);
        let cd_high = _mm256_unpackhi_epi32(c, d);
        [
            _mm256_unpacklo_epi64(ab_low, cd_low),
            _mm256_unpackhi_epi64(ab_low, cd_low),
            _mm256_unpacklo_epi64(ab_high, cd_high),
            _mm256_unpackhi_epi64(ab_high, cd_high),
        ]
    }
}

/// Where the bytes of a word go when it is rotated by 16 and by 8 bits.
const BY_16: [u8; 16] = [2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13];
const BY_8: [u8; 16] = [3, 0, 1, 2, 7, 4, 5, 6, 11, 8, 9, 10, 15, 12, 13, 14];

impl Words for Avx2 {
    const LANES: usize = 8;
    type Word = __m256i;
    type Narrow = Self;

    #[inline(always)]
    fn narrow(self) -> Self {
        self
    }

    #[inline(always)]
    fn splat(self, word: u32) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_set1_epi32(word.cast_signed()) }
    }

    #[inline(always)]
    fn add(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_add_epi32(a, b) }
    }

    #[inline(always)]
    fn xor(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_xor_si256(a, b) }
    }

    #[inline(always)]
    fn rotate_left<const N: i32>(self, a: __m256i) -> __m256i {
        // The right shift takes its count from a register that holds a constant,
        // of which the compiler makes an immediate. It does not see where the
        // bytes go, or it would make two shuffles of the one by 16.
        // SAFETY: the arrays are 16 bytes; there is no instruction in the `asm`;
        // `self` proves AVX2.
        unsafe {
            match N {
                16 | 8 => {
                    let bytes = if N == 16 { &BY_16 } else { &BY_8 };
                    let mut bytes = _mm_loadu_si128(bytes.as_ptr().cast());
                    core::arch::asm!("/* {} */", inout(xmm_reg) bytes, options(pure, nomem, nostack, preserves_flags));
                    _mm256_shuffle_epi8(a, _mm256_broadcastsi128_si256(bytes))
                }
                _ => {
                    let right = _mm256_srl_epi32(a, _mm_cvtsi32_si128(32 - N));
                    _mm256_or_si256(_mm256_slli_epi32::<N>(a), right)
                }
            }
        }
    }

    #[inline(always)]
    fn gather<const AT: usize>(self, keys: &[&[u8; 32]; MAX_LANES], first: usize) -> [__m256i; 4] {
        const { assert!(AT + 16 <= 32) };
        // SAFETY: each key has 16 bytes from `AT` on; loads need no alignment;
        // `self` proves AVX2.
        let halves = unsafe {
            [
                two_rows!(
                    keys[first].as_ptr().add(AT),
                    keys[first + 4].as_ptr().add(AT)
                ),
                two_rows!(
                    keys[first + 1].as_ptr().add(AT),
                    keys[first + 5].as_ptr().add(AT)
                ),
                two_rows!(
                    keys[first + 2].as_ptr().add(AT),
                    keys[first + 6].as_ptr().add(AT)
                ),
                two_rows!(
                    keys[first + 3].as_ptr().add(AT),
                    keys[first + 7].as_ptr().add(AT)
                ),
            ]
        };
        transposed_halves(self, halves)
    }

    #[inline(always)]
    fn rows(self, rows: &[[u32; 4]; MAX_LANES], first: usize) -> [__m256i; 4] {
        // SAFETY: each row is 16 bytes; loads need no alignment; `self` proves
        // AVX2.
        let halves = unsafe {
            [
                two_rows!(rows[first].as_ptr(), rows[first + 4].as_ptr()),
                two_rows!(rows[first + 1].as_ptr(), rows[first + 5].as_ptr()),
                two_rows!(rows[first + 2].as_ptr(), rows[first + 6].as_ptr()),
                two_rows!(rows[first + 3].as_ptr(), rows[first + 7].as_ptr()),
            ]
        };
        transposed_halves(self, halves)
    }

    #[inline(always)]
    fn numbers(self) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7) }
    }

    #[inline(always)]
    #[allow(
        clippy::needless_range_loop,
        reason = "the number is one of blocks too"
    )]
    unsafe fn scatter<const XOR: bool>(self, words: &[__m256i; 16], blocks: *mut [u8; 64]) {
        // Quarter g of blocks i and i + 4 in the halves of quarters[g][i].
        let (groups, _) = words.as_chunks();
        let quarters = [
            transposed_halves(self, groups[0]),
            transposed_halves(self, groups[1]),
            transposed_halves(self, groups[2]),
            transposed_halves(self, groups[3]),
        ];
        for i in 0..4 {
            let [a, b, c, d] = [
                quarters[0][i],
                quarters[1][i],
                quarters[2][i],
                quarters[3][i],
            ];
            // SAFETY: the caller vouches for the blocks, each of which is two
            // times 32 bytes; loads and stores need no alignment; `self` proves
            // AVX2.
            unsafe {
                let low: *mut __m256i = blocks.add(i).cast();
                let high: *mut __m256i = blocks.add(i + 4).cast();
                let rows = [
                    (low, _mm256_permute2x128_si256::<0x20>(a, b)),
                    (low.add(1), _mm256_permute2x128_si256::<0x20>(c, d)),
                    (high, _mm256_permute2x128_si256::<0x31>(a, b)),
                    (high.add(1), _mm256_permute2x128_si256::<0x31>(c, d)),
                ];
                for (place, row) in rows {
                    let row = match XOR {
                        true => _mm256_xor_si256(row, _mm256_loadu_si256(place)),
                        false => row,
                    };
                    _mm256_storeu_si256(place, row);
                }
            }
        }
    }

    #[inline(always)]
    fn xor_bytes(self, text: &mut [u8], block: &[u8; 64]) {
        xor_bytes(text, block);
    }

    #[inline(always)]
    fn xor_padded(self, text: &mut [u8], block: &[u8; 64]) -> [u8; 64] {
        xor_padded(text, block)
    }

    #[inline(always)]
    fn padded(self, text: &[u8]) -> [u8; 64] {
        padded(text)
    }
}

/// Two registers side by side: eight numbers of 64 bits.
#[derive(Clone, Copy)]
pub(crate) struct Two(Avx2);

/// Applies an intrinsic to both registers.
macro_rules! both {
    ($intrinsic:ident, $($arg:expr),+) => {
        // SAFETY: the method's `self` proves AVX2.
        unsafe { [$intrinsic($($arg[0]),+), $intrinsic($($arg[1]),+)] }
    };
}

impl Longs for Two {
    const LANES: usize = 8;
    type Long = [__m256i; 2];

    #[inline(always)]
    fn splat(self, value: u64) -> [__m256i; 2] {
        // SAFETY: `self` proves AVX2.
        [unsafe { _mm256_set1_epi64x(value.cast_signed()) }; 2]
    }

    #[inline(always)]
    fn per_lane(self, values: &[u64; MAX_TAGS]) -> [__m256i; 2] {
        // SAFETY: the array is more than two times 32 bytes; loads need no
        // alignment; `self` proves AVX2.
        unsafe {
            [
                _mm256_loadu_si256(values[..4].as_ptr().cast()),
                _mm256_loadu_si256(values[4..8].as_ptr().cast()),
            ]
        }
    }

    #[inline(always)]
    fn first(self, lanes: usize, long: [__m256i; 2]) -> [__m256i; 2] {
        let lanes = self.splat(lanes as u64);
        // SAFETY: `self` proves AVX2.
        let numbers = unsafe {
            [
                _mm256_setr_epi64x(0, 1, 2, 3),
                _mm256_setr_epi64x(4, 5, 6, 7),
            ]
        };
        let first = both!(_mm256_cmpgt_epi64, lanes, numbers);
        both!(_mm256_and_si256, long, first)
    }

    #[inline(always)]
    fn store(self, long: [__m256i; 2], values: &mut [u64; MAX_TAGS]) {
        for (long, values) in long.into_iter().zip(values.chunks_exact_mut(4)) {
            // SAFETY: the chunk is 32 bytes; stores need no alignment; `self`
            // proves AVX2.
            unsafe { _mm256_storeu_si256(values.as_mut_ptr().cast(), long) }
        }
    }

    #[inline(always)]
    unsafe fn load(
        self,
        places: &[*const u8; MAX_TAGS],
        offset: usize,
    ) -> ([__m256i; 2], [__m256i; 2]) {
        let place = |l: usize| places[l].wrapping_add(offset);
        // SAFETY: the caller vouches for the 16 bytes behind each place; loads
        // need no alignment; `self` proves AVX2.
        let (even, odd) = unsafe {
            (
                [two_rows!(place(0), place(2)), two_rows!(place(4), place(6))],
                [two_rows!(place(1), place(3)), two_rows!(place(5), place(7))],
            )
        };
        // Low words from the even, high words from the odd 64 bits of each.
        (
            both!(_mm256_unpacklo_epi64, even, odd),
            both!(_mm256_unpackhi_epi64, even, odd),
        )
    }

    #[inline(always)]
    unsafe fn load_run(self, blocks: *const u8) -> ([__m256i; 2], [__m256i; 2]) {
        // SAFETY: the caller vouches for eight blocks of 16 bytes; loads need no
        // alignment; `self` proves AVX2.
        let (even, odd) = unsafe {
            let two = |i: usize| _mm256_loadu_si256(blocks.cast::<__m256i>().add(i));
            // Blocks 0 and 2, 1 and 3, 4 and 6, 5 and 7.
            let [a, b, c, d] = [two(0), two(1), two(2), two(3)];
            (
                [
                    _mm256_permute2x128_si256::<0x20>(a, b),
                    _mm256_permute2x128_si256::<0x20>(c, d),
                ],
                [
                    _mm256_permute2x128_si256::<0x31>(a, b),
                    _mm256_permute2x128_si256::<0x31>(c, d),
                ],
            )
        };
        (
            both!(_mm256_unpacklo_epi64, even, odd),
            both!(_mm256_unpackhi_epi64, even, odd),
        )
    }

    #[inline(always)]
    fn sum(self, [a, b]: [__m256i; 2]) -> u64 {
        // SAFETY: `self` proves AVX2.
        unsafe {
            let sum = _mm256_add_epi64(a, b);
            let sum = _mm_add_epi64(
                _mm256_castsi256_si128(sum),
                _mm256_extracti128_si256::<1>(sum),
            );
            let sum = _mm_add_epi64(sum, _mm_unpackhi_epi64(sum, sum));
            _mm_cvtsi128_si64(sum).cast_unsigned()
        }
    }

    #[inline(always)]
    fn add(self, a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
        both!(_mm256_add_epi64, a, b)
    }

    #[inline(always)]
    fn carry(self, a: [__m256i; 2], sum: [__m256i; 2]) -> [__m256i; 2] {
        // The comparison is of signed numbers.
        let sign = self.splat(1 << 63);
        let (a, sum) = (
            both!(_mm256_xor_si256, a, sign),
            both!(_mm256_xor_si256, sum, sign),
        );
        self.shift_right::<63>(both!(_mm256_cmpgt_epi64, a, sum))
    }

    #[inline(always)]
    fn and(self, a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
        both!(_mm256_and_si256, a, b)
    }

    #[inline(always)]
    fn or(self, a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
        both!(_mm256_or_si256, a, b)
    }

    #[inline(always)]
    fn shift_left<const N: u32>(self, a: [__m256i; 2]) -> [__m256i; 2] {
        // SAFETY: `self` proves AVX2, of which SSE2 is a part.
        let count = unsafe { _mm_cvtsi32_si128(N.cast_signed()) };
        both!(_mm256_sll_epi64, a, [count; 2])
    }

    #[inline(always)]
    fn shift_right<const N: u32>(self, a: [__m256i; 2]) -> [__m256i; 2] {
        // SAFETY: `self` proves AVX2, of which SSE2 is a part.
        let count = unsafe { _mm_cvtsi32_si128(N.cast_signed()) };
        both!(_mm256_srl_epi64, a, [count; 2])
    }
}

impl Limbs26 for Two {
    #[inline(always)]
    fn multiply(self, a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
        both!(_mm256_mul_epu32, a, b)
    }
}
