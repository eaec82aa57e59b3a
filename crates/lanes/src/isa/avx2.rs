//! AVX2: eight words per vector for ChaCha20 and SHA-256, four numbers per vector for Poly1305.
//!
//! Two states of ChaCha20 do not fit into sixteen registers. But spilling the rest to the stack
//! costs less than waiting for the additions of a single state; unless there is other work to do in
//! the meantime, as for short packets.

#[cfg(not(miri))]
use super::avx2_rounds;
use super::set::InstructionSet;
use super::sha_ni;
use crate::job::{Job, Key, Outcome};
use crate::kernels::chacha20poly1305;
use crate::kernels::poly1305::Radix26;
use crate::kernels::secp256k1::radix29::Radix29;
use crate::kernels::sha256::Serial;
use crate::kernels::stitched_lanes;
#[cfg(not(miri))]
use crate::vector::Interleave;
use crate::vector::{
    Arithmetic, BlocksFrom, Limbs26, MAX_LANES, Masks, Pair, Rows, U32Lanes, U64Lanes,
};
use core::arch::x86_64::*;

/// Eight words in a ymm register. A value of this type proves that the CPU has AVX2 and BMI2.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

// BMI2 has a multiplication that does not affect the carry flag, for the Poly1305 that is stitched
// into the rounds. Every CPU with AVX2 has BMI2.
cpufeatures::new!(avx2, "avx2", "bmi2");

impl InstructionSet for Avx2 {
    type Lanes = Pair<Avx2>;
    type Rows = Avx2;
    type Field = Radix26<Pair<U64x4>>;
    type HalfField = Radix26<U64x4>;
    type Curve = Radix29<U64x4>;
    type Hash = Avx2;
    type HalfHash = Avx2;

    const INTERLEAVED_ROWS: usize = 3;
    const STITCHED: bool = true;
    const TAG_STEP: usize = 34;
    const SHORT_LANES: usize = <Avx2 as U32Lanes>::LANES;
    const MIN_SHORT: usize = 3;
    const STITCHES_LANES: bool = true;

    fn is_available() -> bool {
        avx2::get()
    }

    unsafe fn assume() -> Self {
        Self(())
    }

    #[inline(always)]
    fn lanes(self) -> Self::Lanes {
        Pair(self)
    }

    #[inline(always)]
    fn rows(self) -> Self::Rows {
        self
    }

    #[inline(always)]
    fn field(self) -> Self::Field {
        Radix26(Pair(U64x4(self)))
    }

    #[inline(always)]
    fn half_field(self) -> Self::HalfField {
        Radix26(U64x4(self))
    }

    #[inline(always)]
    fn curve(self) -> Self::Curve {
        Radix29(U64x4(self))
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
        sha_ni::best_serial()
    }

    #[inline(always)]
    fn short(self, bytes: &mut [u8], keys: &[Key], jobs: &[Job], outcomes: Option<&mut [Outcome]>) {
        chacha20poly1305::short_one_by_one::<true, _>(self, bytes, keys, jobs, outcomes);
    }

    #[inline(always)]
    fn stitched_lanes(
        self,
        bytes: &mut [u8],
        keys: &[Key],
        jobs: &[Job],
        outcomes: Option<&mut [Outcome]>,
    ) {
        stitched_lanes::stitched_lanes(self, bytes, keys, jobs, outcomes);
    }
}

kernels!(Avx2, "avx2,bmi2");

/// Two rows of 16 bytes in one register.
macro_rules! two_rows {
    ($a:expr, $b:expr) => {
        _mm256_inserti128_si256::<1>(
            _mm256_castsi128_si256(_mm_loadu_si128($a.cast())),
            _mm_loadu_si128($b.cast()),
        )
    };
}

/// See [`Arithmetic::tie`]. A separate function, because inline assembly accepts ymm registers only
/// where AVX2 is enabled.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn tie(a: &mut __m256i, b: &mut __m256i) {
    // SAFETY: the assembly text is only a comment, so no instruction runs.
    #[cfg(not(miri))]
    unsafe {
        core::arch::asm!(
            "/* {} {} */",
            inout(ymm_reg) * a,
            inout(ymm_reg) * b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    #[cfg(miri)]
    let _ = (a, b);
}

/// Transposes matrices of four by four words. Each half of register i is row i of a matrix;
/// each half of result i is its column i.
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

/// For each byte of four words, its source index when the words are rotated left by 16 and by 8
/// bits.
const BY_16: [u8; 16] = [2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13];
const BY_8: [u8; 16] = [3, 0, 1, 2, 7, 4, 5, 6, 11, 8, 9, 10, 15, 12, 13, 14];

/// For each byte of four words, its source index when the bytes of each word are reversed.
const REVERSED: [u8; 16] = [3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12];

/// The same order of bytes for both halves of a vector.
#[inline(always)]
fn in_both_halves(_: Avx2, order: &[u8; 16]) -> __m256i {
    // SAFETY: the array is 16 bytes, and loads need no alignment; the argument proves AVX2.
    unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(order.as_ptr().cast())) }
}

/// Reverses the bytes of each word.
#[inline(always)]
fn swap_bytes(isa: Avx2, words: __m256i) -> __m256i {
    // SAFETY: the argument proves AVX2.
    unsafe { _mm256_shuffle_epi8(words, in_both_halves(isa, &REVERSED)) }
}

impl Arithmetic for Avx2 {
    type Word = __m256i;

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
    fn tie(self, a: &mut __m256i, b: &mut __m256i) {
        // SAFETY: the argument proves AVX2.
        unsafe { tie(a, b) }
    }

    #[inline(always)]
    fn rotate_left<const N: i32>(self, a: __m256i) -> __m256i {
        // The right shift takes its count from a register with a constant, which the compiler turns
        // into an immediate shift. The byte order is hidden from the compiler, which would
        // otherwise turn the shuffle by 16 bits into two shuffles.
        // SAFETY: the arrays are 16 bytes; the assembly text is only a comment; `self` proves
        // AVX2.
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
    fn and(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_and_si256(a, b) }
    }

    #[inline(always)]
    fn shift_right<const N: i32>(self, a: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_srli_epi32::<N>(a) }
    }
}

impl Rows for Avx2 {
    const BLOCKS: usize = 2;

    #[inline(always)]
    fn row(self, row: &[u32; 4]) -> __m256i {
        // SAFETY: the array is 16 bytes; the load needs no alignment; `self` proves AVX2.
        unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(row.as_ptr().cast())) }
    }

    #[inline(always)]
    fn add_block_numbers(self, row: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_add_epi32(row, _mm256_setr_epi32(0, 0, 0, 0, 1, 0, 0, 0)) }
    }

    #[inline(always)]
    fn rotate_row<const N: usize>(self, row: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe {
            match N {
                1 => _mm256_shuffle_epi32::<0b00_11_10_01>(row),
                2 => _mm256_shuffle_epi32::<0b01_00_11_10>(row),
                _ => _mm256_shuffle_epi32::<0b10_01_00_11>(row),
            }
        }
    }

    #[inline(always)]
    unsafe fn store_rows(self, [a, b, c, d]: [__m256i; 4], blocks: *mut [u8; 64]) {
        let destination: *mut __m256i = blocks.cast();
        // SAFETY: the caller guarantees two writable blocks of 64 bytes, which are four times
        // 32 bytes; stores need no alignment; `self` proves AVX2.
        unsafe {
            let all = [
                _mm256_permute2x128_si256::<0x20>(a, b),
                _mm256_permute2x128_si256::<0x20>(c, d),
                _mm256_permute2x128_si256::<0x31>(a, b),
                _mm256_permute2x128_si256::<0x31>(c, d),
            ];
            for (i, half) in all.into_iter().enumerate() {
                _mm256_storeu_si256(destination.add(i), half);
            }
        }
    }
}

impl U32Lanes for Avx2 {
    const LANES: usize = 8;
    type Narrow = Self;

    #[inline(always)]
    fn narrow(self) -> Self {
        self
    }

    #[cfg(not(miri))]
    #[inline(always)]
    fn ten_double_rounds(self, x: &mut [__m256i; 16], interleaved: &mut impl Interleave) -> bool {
        let orders = [in_both_halves(self, &BY_16), in_both_halves(self, &BY_8)];
        // SAFETY: `self` proves AVX2.
        unsafe { avx2_rounds::ten_double_rounds(x, orders, interleaved) };
        true
    }

    #[inline(always)]
    fn load(self, words: &[u32]) -> __m256i {
        // SAFETY: the slice is 32 bytes; loads need no alignment; `self` proves AVX2.
        unsafe { _mm256_loadu_si256(words[..8].as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, word: __m256i, words: &mut [u32]) {
        // SAFETY: the slice is 32 bytes; stores need no alignment; `self` proves AVX2.
        unsafe { _mm256_storeu_si256(words[..8].as_mut_ptr().cast(), word) }
    }

    #[inline(always)]
    unsafe fn load_big_endian(self, sources: &[*const u8], offset: usize) -> [__m256i; 4] {
        let sources = &sources[..8];
        // SAFETY: the caller guarantees 16 readable bytes at `offset` after each source; loads
        // need no alignment; `self` proves AVX2.
        unsafe {
            macro_rules! row {
                ($l:literal) => {
                    sources[$l].wrapping_add(offset)
                };
            }
            let [a, b, c, d] = transposed_halves(
                self,
                [
                    two_rows!(row!(0), row!(4)),
                    two_rows!(row!(1), row!(5)),
                    two_rows!(row!(2), row!(6)),
                    two_rows!(row!(3), row!(7)),
                ],
            );
            [
                swap_bytes(self, a),
                swap_bytes(self, b),
                swap_bytes(self, c),
                swap_bytes(self, d),
            ]
        }
    }

    #[inline(always)]
    unsafe fn store_big_endian(self, words: [__m256i; 4], destination: *mut u8, stride: usize) {
        // Lanes i and i + 4 in the halves of `rows[i]`.
        let rows = transposed_halves(self, words);
        for (i, row) in rows.into_iter().enumerate() {
            let halves = swap_bytes(self, row);
            // SAFETY: the caller guarantees 16 writable bytes at each multiple of `stride`;
            // stores need no alignment; `self` proves AVX2.
            unsafe {
                let (low, high) = (
                    destination.add(i * stride),
                    destination.add((i + 4) * stride),
                );
                _mm_storeu_si128(low.cast(), _mm256_castsi256_si128(halves));
                _mm_storeu_si128(high.cast(), _mm256_extracti128_si256::<1>(halves));
            }
        }
    }

    #[inline(always)]
    fn gather<const AT: usize, const N: usize>(
        self,
        sources: &[&[u8; N]; MAX_LANES],
        first: usize,
    ) -> [__m256i; 4] {
        const { assert!(AT + 16 <= N) };
        // SAFETY: each source has 16 bytes from `AT` on, as just asserted; loads need no
        // alignment; `self` proves AVX2.
        let halves = unsafe {
            [
                two_rows!(
                    sources[first].as_ptr().add(AT),
                    sources[first + 4].as_ptr().add(AT)
                ),
                two_rows!(
                    sources[first + 1].as_ptr().add(AT),
                    sources[first + 5].as_ptr().add(AT)
                ),
                two_rows!(
                    sources[first + 2].as_ptr().add(AT),
                    sources[first + 6].as_ptr().add(AT)
                ),
                two_rows!(
                    sources[first + 3].as_ptr().add(AT),
                    sources[first + 7].as_ptr().add(AT)
                ),
            ]
        };
        transposed_halves(self, halves)
    }

    #[inline(always)]
    fn transpose_rows(self, rows: &[[u32; 4]; MAX_LANES], first: usize) -> [__m256i; 4] {
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
    fn lane_indices(self) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7) }
    }

    #[inline(always)]
    #[allow(
        clippy::needless_range_loop,
        reason = "the index is also a block number"
    )]
    unsafe fn scatter(self, words: &[__m256i; 16], from: Option<BlocksFrom>, to: *mut [u8; 64]) {
        // Quarter g of blocks i and i + 4 in the halves of `quarters[g][i]`.
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
            // SAFETY: the caller guarantees eight blocks to write, and to read if there are any. Each
            // has two times 32 bytes. Loads and stores need no alignment; `self` proves AVX2.
            unsafe {
                let rows = [
                    (i, 0, _mm256_permute2x128_si256::<0x20>(a, b)),
                    (i, 1, _mm256_permute2x128_si256::<0x20>(c, d)),
                    (i + 4, 0, _mm256_permute2x128_si256::<0x31>(a, b)),
                    (i + 4, 1, _mm256_permute2x128_si256::<0x31>(c, d)),
                ];
                for (block, half, mut row) in rows {
                    if let Some(from) = from {
                        let from = from.block(block).cast::<__m256i>().add(half);
                        row = _mm256_xor_si256(row, _mm256_loadu_si256(from));
                    }
                    _mm256_storeu_si256(to.add(block).cast::<__m256i>().add(half), row);
                }
            }
        }
    }
}

/// Four 64-bit numbers in a ymm register.
#[derive(Clone, Copy)]
pub(crate) struct U64x4(Avx2);

/// The low and the high words of four blocks: `even` holds blocks 0 and 2, `odd` blocks 1 and
/// 3.
#[inline(always)]
fn words(_: Avx2, even: __m256i, odd: __m256i) -> (__m256i, __m256i) {
    // SAFETY: the argument proves AVX2.
    unsafe {
        (
            _mm256_unpacklo_epi64(even, odd),
            _mm256_unpackhi_epi64(even, odd),
        )
    }
}

impl U64Lanes for U64x4 {
    const LANES: usize = 4;
    type Vector = __m256i;

    #[inline(always)]
    fn splat(self, value: u64) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_set1_epi64x(value.cast_signed()) }
    }

    #[inline(always)]
    fn per_lane(self, values: &[u64]) -> __m256i {
        // SAFETY: the slice is 32 bytes; loads need no alignment; `self` proves AVX2.
        unsafe { _mm256_loadu_si256(values[..4].as_ptr().cast()) }
    }

    #[inline(always)]
    fn first(self, lanes: usize, vector: __m256i) -> __m256i {
        let lanes = self.splat(lanes as u64);
        // SAFETY: `self` proves AVX2.
        unsafe {
            let numbers = _mm256_setr_epi64x(0, 1, 2, 3);
            _mm256_and_si256(vector, _mm256_cmpgt_epi64(lanes, numbers))
        }
    }

    #[inline(always)]
    fn store(self, vector: __m256i, values: &mut [u64]) {
        // SAFETY: the slice is 32 bytes; stores need no alignment; `self` proves AVX2.
        unsafe { _mm256_storeu_si256(values[..4].as_mut_ptr().cast(), vector) }
    }

    #[inline(always)]
    unsafe fn load(self, sources: &[*const u8], offset: usize) -> (__m256i, __m256i) {
        let sources = &sources[..4];
        let source = |l: usize| sources[l].wrapping_add(offset);
        // SAFETY: the caller guarantees 16 readable bytes at `offset` after each source; loads
        // need no alignment; `self` proves AVX2.
        let (even, odd) = unsafe {
            (
                two_rows!(source(0), source(2)),
                two_rows!(source(1), source(3)),
            )
        };
        words(self.0, even, odd)
    }

    #[inline(always)]
    unsafe fn load_run(self, blocks: *const u8) -> (__m256i, __m256i) {
        // SAFETY: the caller guarantees four readable blocks of 16 bytes; loads need no
        // alignment; `self` proves AVX2.
        let (even, odd) = unsafe {
            let a = _mm256_loadu_si256(blocks.cast());
            let b = _mm256_loadu_si256(blocks.add(32).cast());
            (
                _mm256_permute2x128_si256::<0x20>(a, b),
                _mm256_permute2x128_si256::<0x31>(a, b),
            )
        };
        words(self.0, even, odd)
    }

    #[inline(always)]
    unsafe fn load_fours(self, sources: &[*const u8], offset: usize) -> (__m256i, __m256i) {
        // SAFETY: the caller guarantees a run of four readable blocks at `offset` after the
        // source.
        unsafe { self.load_run(sources[0].wrapping_add(offset)) }
    }

    #[inline(always)]
    fn sum_fours(self, a: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe {
            let sum = _mm256_add_epi64(a, _mm256_permute4x64_epi64::<0b01_00_11_10>(a));
            _mm256_add_epi64(sum, _mm256_permute4x64_epi64::<0b10_11_00_01>(sum))
        }
    }

    #[inline(always)]
    fn sum(self, a: __m256i) -> u64 {
        // SAFETY: `self` proves AVX2.
        unsafe {
            let sum = _mm_add_epi64(_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a));
            let sum = _mm_add_epi64(sum, _mm_unpackhi_epi64(sum, sum));
            _mm_cvtsi128_si64(sum).cast_unsigned()
        }
    }

    #[inline(always)]
    fn add(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_add_epi64(a, b) }
    }

    #[inline(always)]
    fn carry(self, a: __m256i, sum: __m256i) -> __m256i {
        // The comparison is of signed numbers, so the sign bits are flipped first.
        let sign = self.splat(1 << 63);
        // SAFETY: `self` proves AVX2.
        unsafe {
            let (a, sum) = (_mm256_xor_si256(a, sign), _mm256_xor_si256(sum, sign));
            _mm256_srli_epi64::<63>(_mm256_cmpgt_epi64(a, sum))
        }
    }

    #[inline(always)]
    fn and(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_and_si256(a, b) }
    }

    #[inline(always)]
    fn or(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_or_si256(a, b) }
    }

    #[inline(always)]
    fn shift_left<const N: u32>(self, a: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2, which includes SSE2.
        unsafe { _mm256_sll_epi64(a, _mm_cvtsi32_si128(N.cast_signed())) }
    }

    #[inline(always)]
    fn shift_right<const N: u32>(self, a: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2, which includes SSE2.
        unsafe { _mm256_srl_epi64(a, _mm_cvtsi32_si128(N.cast_signed())) }
    }
}

impl Limbs26 for U64x4 {
    #[inline(always)]
    fn multiply(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_mul_epu32(a, b) }
    }
}

impl Masks for U64x4 {
    #[inline(always)]
    fn subtract(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_sub_epi64(a, b) }
    }

    #[inline(always)]
    fn equals(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_cmpeq_epi64(a, b) }
    }

    #[inline(always)]
    fn select(self, mask: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_blendv_epi8(a, b, mask) }
    }

    #[inline(always)]
    fn call<A, R>(self, argument: A, function: impl FnOnce(Self, A) -> R) -> R {
        call!("avx2,bmi2", U64x4, self, argument, function)
    }
}
