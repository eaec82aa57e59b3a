//! AVX-512 F, BW and VL: sixteen words per vector for ChaCha20 and SHA-256, eight numbers per
//! vector for Poly1305.

use super::avx2::Avx2;
use super::set::InstructionSet;
use super::sha_ni;
use crate::job::{Job, Key, Outcome};
use crate::kernels::chacha20poly1305;
use crate::kernels::poly1305::Radix26;
use crate::kernels::secp256k1::radix29::Radix29;
use crate::kernels::sha256::Serial;
use crate::vector::{
    Arithmetic, BlocksFrom, JoinU32Lanes, Limbs26, MAX_LANES, Masks, Pair, Rows, U32Lanes, U64Lanes,
};
use core::arch::x86_64::*;

/// Sixteen words in a zmm register. A value of this type proves that the CPU has AVX-512 F, BW
/// and VL.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

cpufeatures::new!(avx512, "avx512f", "avx512bw", "avx512vl");

impl InstructionSet for Avx512 {
    type Lanes = Pair<Avx512>;
    type Rows = Avx512;
    type Field = Radix26<Pair<U64x8<Avx512>>>;
    type HalfField = Radix26<U64x8<Avx512>>;
    type Curve = Radix29<U64x8<Avx512>>;
    type Hash = Avx512;
    type HalfHash = Avx2;

    const INTERLEAVED_ROWS: usize = 2;
    const TAG_STEP: usize = 25;
    const SHORT_LANES: usize = <Avx512 as U32Lanes>::LANES;
    const MIN_SHORT: usize = 9;
    const LOCKSTEP_LANES: usize = <Self::Lanes as U32Lanes>::LANES;

    fn is_available() -> bool {
        // Every CPU with AVX-512 has AVX2 and BMI2.
        avx512::get() && Avx2::is_available()
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
        Radix26(Pair(U64x8(self)))
    }

    #[inline(always)]
    fn half_field(self) -> Self::HalfField {
        Radix26(U64x8(self))
    }

    #[inline(always)]
    fn curve(self) -> Self::Curve {
        Radix29(U64x8(self))
    }

    #[inline(always)]
    fn hash(self) -> Self::Hash {
        self
    }

    /// AVX2's vectors, compiled with AVX-512's rotations and ternary logic: an Intel CPU rotates
    /// two vectors of eight lanes at once, but only one of sixteen.
    #[inline(always)]
    fn half_hash(self) -> Self::HalfHash {
        // SAFETY: `self` proves AVX-512, and `is_available` asks for AVX2 as well.
        unsafe { Avx2::assume() }
    }

    fn serial_hash() -> &'static Serial {
        sha_ni::best_serial()
    }

    #[inline(always)]
    fn short(self, bytes: &mut [u8], keys: &[Key], jobs: &[Job], outcomes: Option<&mut [Outcome]>) {
        let lanes = self.lanes().narrow();
        chacha20poly1305::short(lanes, self.field(), bytes, keys, jobs, outcomes);
    }

    #[inline(always)]
    fn lockstep(
        self,
        bytes: &mut [u8],
        keys: &[Key],
        jobs: &[Job],
        sources: &[&[u8]],
        outcomes: Option<&mut [Outcome]>,
    ) {
        let lanes = self.lanes().narrow();
        let packets = (keys, jobs, sources);
        chacha20poly1305::lockstep(lanes, self.field(), bytes, packets, outcomes);
    }
}

kernels!(Avx512, "avx512f,avx512bw,avx512vl");

/// Four rows of 16 bytes in one register.
macro_rules! four_rows {
    ($a:expr, $b:expr, $c:expr, $d:expr) => {{
        let rows = _mm512_castsi128_si512(_mm_loadu_si128($a.cast()));
        let rows = _mm512_inserti32x4::<1>(rows, _mm_loadu_si128($b.cast()));
        let rows = _mm512_inserti32x4::<2>(rows, _mm_loadu_si128($c.cast()));
        _mm512_inserti32x4::<3>(rows, _mm_loadu_si128($d.cast()))
    }};
}

/// Loads sixteen rows of four words as four vectors of sixteen; `$row` points to row `$l`. The
/// loads are 16 bytes each, because 64-byte loads would wait for the 16-byte stores that wrote the
/// rows.
macro_rules! transposed_rows {
    (|$l:ident| $row:expr) => {{
        macro_rules! row {
            ($n:expr) => {{
                let $l: usize = $n;
                $row
            }};
        }
        // Quarter q of the four registers holds rows 4q, 4q + 1, 4q + 2 and 4q + 3.
        let a = four_rows!(row!(0), row!(4), row!(8), row!(12));
        let b = four_rows!(row!(1), row!(5), row!(9), row!(13));
        let c = four_rows!(row!(2), row!(6), row!(10), row!(14));
        let d = four_rows!(row!(3), row!(7), row!(11), row!(15));
        transposed_quarters!(a, b, c, d)
    }};
}

/// Transposes matrices of four by four words. Each quarter of register i is row i of a matrix;
/// each quarter of result i is its column i.
macro_rules! transposed_quarters {
    ($a:expr, $b:expr, $c:expr, $d:expr) => {{
        let ab_low = _mm512_unpacklo_epi32($a, $b);
        let ab_high = _mm512_unpackhi_epi32($a, $b);
        let cd_low = _mm512_unpacklo_epi32($c, $d);
        let cd_high = _mm512_unpackhi_epi32($c, $d);
        [
            _mm512_unpacklo_epi64(ab_low, cd_low),
            _mm512_unpackhi_epi64(ab_low, cd_low),
            _mm512_unpacklo_epi64(ab_high, cd_high),
            _mm512_unpackhi_epi64(ab_high, cd_high),
        ]
    }};
}

/// For each byte of four words, its source index when the bytes of each word are reversed.
const REVERSED: [u8; 16] = [3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12];

/// Reverses the bytes of each word.
#[inline(always)]
fn swap_bytes(_: Avx512, words: __m512i) -> __m512i {
    // SAFETY: the array is 16 bytes; the argument proves AVX-512F and BW.
    unsafe {
        let order = _mm_loadu_si128(REVERSED.as_ptr().cast());
        _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(order))
    }
}

/// See [`Arithmetic::opaque`]. A separate function, because only a function with the instruction
/// set enabled may name its registers.
#[target_feature(enable = "avx512f")]
#[inline]
fn opaque_register(mut a: __m512i) -> __m512i {
    // SAFETY: the assembly text is only a comment, so no instruction runs.
    unsafe {
        core::arch::asm!("/* {} */", inout(zmm_reg) a, options(pure, nomem, nostack, preserves_flags));
    }
    a
}

impl Arithmetic for Avx512 {
    type Word = __m512i;

    #[inline(always)]
    fn splat(self, word: u32) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_set1_epi32(word.cast_signed()) }
    }

    #[inline(always)]
    fn add(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_add_epi32(a, b) }
    }

    #[inline(always)]
    fn xor(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_xor_si512(a, b) }
    }

    #[inline(always)]
    fn rotate_left<const N: i32>(self, a: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_rol_epi32::<N>(a) }
    }

    #[inline(always)]
    fn and(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_and_si512(a, b) }
    }

    #[inline(always)]
    fn shift_right<const N: i32>(self, a: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F, which includes SSE2.
        unsafe { _mm512_srl_epi32(a, _mm_cvtsi32_si128(N)) }
    }

    #[inline(always)]
    fn opaque(self, a: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { opaque_register(a) }
    }

    #[inline(always)]
    fn choose(self, a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_ternarylogic_epi32::<0xca>(a, b, c) }
    }

    #[inline(always)]
    fn majority(self, a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_ternarylogic_epi32::<0xe8>(a, b, c) }
    }
}

impl Rows for Avx512 {
    const BLOCKS: usize = 4;

    #[inline(always)]
    fn row(self, row: &[u32; 4]) -> __m512i {
        // SAFETY: the array is 16 bytes; the load needs no alignment; `self` proves AVX-512F.
        unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(row.as_ptr().cast())) }
    }

    #[inline(always)]
    fn add_block_numbers(self, row: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe {
            let numbers = _mm512_setr_epi32(0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0);
            _mm512_add_epi32(row, numbers)
        }
    }

    #[inline(always)]
    fn rotate_row<const N: usize>(self, row: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe {
            match N {
                1 => _mm512_shuffle_epi32::<0b00_11_10_01>(row),
                2 => _mm512_shuffle_epi32::<0b01_00_11_10>(row),
                _ => _mm512_shuffle_epi32::<0b10_01_00_11>(row),
            }
        }
    }

    #[inline(always)]
    unsafe fn store_rows(self, [a, b, c, d]: [__m512i; 4], blocks: *mut [u8; 64]) {
        let destination: *mut __m512i = blocks.cast();
        // SAFETY: the caller guarantees four writable blocks of 64 bytes; stores need no
        // alignment; `self` proves AVX-512F.
        unsafe {
            // `low` holds rows of blocks 0 and 1, `high` of blocks 2 and 3.
            let ab_low = _mm512_shuffle_i32x4::<0b01_00_01_00>(a, b);
            let ab_high = _mm512_shuffle_i32x4::<0b11_10_11_10>(a, b);
            let cd_low = _mm512_shuffle_i32x4::<0b01_00_01_00>(c, d);
            let cd_high = _mm512_shuffle_i32x4::<0b11_10_11_10>(c, d);
            let all = [
                _mm512_shuffle_i32x4::<0b10_00_10_00>(ab_low, cd_low),
                _mm512_shuffle_i32x4::<0b11_01_11_01>(ab_low, cd_low),
                _mm512_shuffle_i32x4::<0b10_00_10_00>(ab_high, cd_high),
                _mm512_shuffle_i32x4::<0b11_01_11_01>(ab_high, cd_high),
            ];
            for (i, block) in all.into_iter().enumerate() {
                _mm512_storeu_si512(destination.add(i), block);
            }
        }
    }
}

impl U32Lanes for Avx512 {
    const LANES: usize = 16;
    type Narrow = Self;

    #[inline(always)]
    fn narrow(self) -> Self {
        self
    }

    #[inline(always)]
    fn load(self, words: &[u32]) -> __m512i {
        // SAFETY: the slice is 64 bytes; loads need no alignment; `self` proves
        // AVX-512F.
        unsafe { _mm512_loadu_si512(words[..16].as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, word: __m512i, words: &mut [u32]) {
        // SAFETY: the slice is 64 bytes; stores need no alignment; `self` proves
        // AVX-512F.
        unsafe { _mm512_storeu_si512(words[..16].as_mut_ptr().cast(), word) }
    }

    #[inline(always)]
    unsafe fn load_big_endian(self, sources: &[*const u8], offset: usize) -> [__m512i; 4] {
        let sources = &sources[..16];
        // SAFETY: the caller guarantees 16 readable bytes at `offset` after each source; loads
        // need no alignment; `self` proves AVX-512 F and BW.
        unsafe {
            let [a, b, c, d] = transposed_rows!(|l| sources[l].wrapping_add(offset));
            [
                swap_bytes(self, a),
                swap_bytes(self, b),
                swap_bytes(self, c),
                swap_bytes(self, d),
            ]
        }
    }

    #[inline(always)]
    unsafe fn store_big_endian(self, words: [__m512i; 4], destination: *mut u8, stride: usize) {
        // SAFETY: the caller guarantees 16 writable bytes at each multiple of `stride`; stores
        // need no alignment; `self` proves AVX-512 F and BW.
        unsafe {
            let [a, b, c, d] = words;
            // Lanes i, i + 4, i + 8 and i + 12 in the quarters of `rows[i]`.
            let rows = transposed_quarters!(a, b, c, d);
            for (i, row) in rows.into_iter().enumerate() {
                let quarters = swap_bytes(self, row);
                let destination = destination.add(i * stride);
                _mm_storeu_si128(destination.cast(), _mm512_castsi512_si128(quarters));
                let quarter = _mm512_extracti32x4_epi32::<1>(quarters);
                _mm_storeu_si128(destination.add(4 * stride).cast(), quarter);
                let quarter = _mm512_extracti32x4_epi32::<2>(quarters);
                _mm_storeu_si128(destination.add(8 * stride).cast(), quarter);
                let quarter = _mm512_extracti32x4_epi32::<3>(quarters);
                _mm_storeu_si128(destination.add(12 * stride).cast(), quarter);
            }
        }
    }

    #[inline(always)]
    fn gather<const AT: usize, const N: usize>(
        self,
        sources: &[&[u8; N]; MAX_LANES],
        first: usize,
    ) -> [__m512i; 4] {
        const { assert!(AT + 16 <= N) };
        let sources = &sources[first..first + 16];
        // SAFETY: each source has 16 bytes from `AT` on, as just asserted; loads need no
        // alignment; `self` proves AVX-512F.
        unsafe { transposed_rows!(|l| sources[l].as_ptr().add(AT)) }
    }

    #[inline(always)]
    fn transpose_rows(self, rows: &[[u32; 4]; MAX_LANES], first: usize) -> [__m512i; 4] {
        let rows = &rows[first..first + 16];
        // SAFETY: each row is 16 bytes; loads need no alignment; `self` proves
        // AVX-512F.
        unsafe { transposed_rows!(|l| rows[l].as_ptr()) }
    }

    #[inline(always)]
    fn lane_indices(self) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) }
    }

    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "the number also counts blocks")]
    unsafe fn scatter(self, words: &[__m512i; 16], from: Option<BlocksFrom>, to: *mut [u8; 64]) {
        // SAFETY: the caller guarantees sixteen blocks of 64 bytes to write, and to read if there are
        // any; loads and stores need no alignment; `self` proves AVX-512F.
        unsafe {
            // Quarter `g` of blocks i, i + 4, i + 8 and i + 12 in `quarters[g][i]`.
            let mut quarters = [[words[0]; 4]; 4];
            for (quarter, words) in quarters.iter_mut().zip(words.as_chunks::<4>().0) {
                *quarter = transposed_quarters!(words[0], words[1], words[2], words[3]);
            }
            for i in 0..4 {
                let [a, b, c, d] = [
                    quarters[0][i],
                    quarters[1][i],
                    quarters[2][i],
                    quarters[3][i],
                ];
                let ab_low = _mm512_shuffle_i32x4::<0x44>(a, b);
                let ab_high = _mm512_shuffle_i32x4::<0xee>(a, b);
                let cd_low = _mm512_shuffle_i32x4::<0x44>(c, d);
                let cd_high = _mm512_shuffle_i32x4::<0xee>(c, d);
                let rows = [
                    _mm512_shuffle_i32x4::<0x88>(ab_low, cd_low),
                    _mm512_shuffle_i32x4::<0xdd>(ab_low, cd_low),
                    _mm512_shuffle_i32x4::<0x88>(ab_high, cd_high),
                    _mm512_shuffle_i32x4::<0xdd>(ab_high, cd_high),
                ];
                for (k, mut row) in rows.into_iter().enumerate() {
                    let at = i + 4 * k;
                    if let Some(from) = from {
                        row = _mm512_xor_si512(row, _mm512_loadu_si512(from.block(at).cast()));
                    }
                    _mm512_storeu_si512(to.add(at).cast(), row);
                }
            }
        }
    }

    #[inline(always)]
    fn xor_bytes(self, text: &mut [u8], block: &[u8; 64]) {
        debug_assert!(text.len() <= 64);
        let destination: *mut i8 = text.as_mut_ptr().cast();
        let mask = first(text.len());
        // A load that touches bytes that a masked store leaves out waits until that store has
        // reached the cache. The store is therefore as narrow as the text allows: the bytes left
        // out are then those of the text's own tag, not those of the next text.
        // SAFETY: the block is 64 bytes. Loads and stores of the text touch only its first 64
        // bytes and mask out those beyond its end; none needs alignment; `self` proves AVX-512
        // F, BW and VL.
        unsafe {
            let block = _mm512_loadu_si512(block.as_ptr().cast());
            let low = _mm512_castsi512_si256(block);
            match text.len() {
                64 => {
                    let text = _mm512_loadu_si512(destination.cast());
                    _mm512_storeu_si512(destination.cast(), _mm512_xor_si512(text, block));
                }
                49.. => {
                    let text = _mm512_maskz_loadu_epi8(mask, destination);
                    _mm512_mask_storeu_epi8(destination, mask, _mm512_xor_si512(text, block));
                }
                33.. => {
                    let (rest, mask) = (destination.add(32), (mask >> 32) as __mmask16);
                    let text = _mm256_loadu_si256(destination.cast());
                    let end = _mm_maskz_loadu_epi8(mask, rest);
                    _mm256_storeu_si256(destination.cast(), _mm256_xor_si256(text, low));
                    let block = _mm512_extracti32x4_epi32::<2>(block);
                    _mm_mask_storeu_epi8(rest, mask, _mm_xor_si128(end, block));
                }
                17.. => {
                    let mask = mask as __mmask32;
                    let text = _mm256_maskz_loadu_epi8(mask, destination);
                    _mm256_mask_storeu_epi8(destination, mask, _mm256_xor_si256(text, low));
                }
                _ => {
                    let mask = mask as __mmask16;
                    let text = _mm_maskz_loadu_epi8(mask, destination);
                    let block = _mm256_castsi256_si128(low);
                    _mm_mask_storeu_epi8(destination, mask, _mm_xor_si128(text, block));
                }
            }
        }
    }

    #[inline(always)]
    fn xor_bytes_at_once(self, text: &mut [u8], block: &[u8; 64]) {
        debug_assert!(text.len() <= 64);
        let destination: *mut i8 = text.as_mut_ptr().cast();
        let mask = first(text.len());
        // SAFETY: the block is 64 bytes. Load and store of the text touch only its first 64 bytes and mask out
        // those beyond its end; none needs alignment; `self` proves AVX-512 F and BW.
        unsafe {
            let block = _mm512_loadu_si512(block.as_ptr().cast());
            let text = _mm512_maskz_loadu_epi8(mask, destination);
            _mm512_mask_storeu_epi8(destination, mask, _mm512_xor_si512(text, block));
        }
    }

    #[inline(always)]
    fn xor_padded(self, text: &mut [u8], block: &[u8; 64]) -> [u8; 64] {
        let mask = first(text.len());
        let mut padded = [0; 64];
        // SAFETY: the block and the result are 64 bytes. The mask keeps load and store of the text
        // from bytes beyond its end; nothing needs alignment; `self` proves AVX-512 F and BW.
        unsafe {
            let block = _mm512_maskz_loadu_epi8(mask, block.as_ptr().cast());
            let xored = _mm512_maskz_loadu_epi8(mask, text.as_ptr().cast());
            let xored = _mm512_xor_si512(xored, block);
            _mm512_storeu_si512(padded.as_mut_ptr().cast(), xored);
            // The same as `xor_bytes` would store, without computing it twice.
            if text.len() > 48 {
                _mm512_mask_storeu_epi8(text.as_mut_ptr().cast(), mask, xored);
                return padded;
            }
        }
        self.xor_bytes(text, block);
        padded
    }

    #[inline(always)]
    fn copy_first(self, to: &mut [u8], from: &[u8; 64]) {
        debug_assert!(to.len() <= 64);
        // SAFETY: the source is 64 bytes. The mask keeps the store from bytes beyond the end of `to`; nothing needs
        // alignment; `self` proves AVX-512 F and BW.
        unsafe {
            let from = _mm512_loadu_si512(from.as_ptr().cast());
            _mm512_mask_storeu_epi8(to.as_mut_ptr().cast(), first(to.len()), from);
        }
    }

    #[inline(always)]
    fn padded(self, text: &[u8]) -> [u8; 64] {
        let mut padded = [0; 64];
        // SAFETY: the mask keeps the load from bytes beyond the text's end; the result is 64
        // bytes; nothing needs alignment; `self` proves AVX-512 F and BW.
        unsafe {
            let text = _mm512_maskz_loadu_epi8(first(text.len()), text.as_ptr().cast());
            _mm512_storeu_si512(padded.as_mut_ptr().cast(), text);
        }
        padded
    }
}

/// Returns a mask of the first `len` of 64 bytes, or of all if `len` is larger.
#[inline(always)]
fn first(len: usize) -> u64 {
    match len {
        0 => 0,
        1..64 => u64::MAX >> (64 - len),
        _ => u64::MAX,
    }
}

/// Eight 64-bit numbers in a zmm register.
#[derive(Clone, Copy)]
pub(crate) struct U64x8<P>(pub(super) P);

/// Types whose values prove at least AVX-512F.
pub(crate) trait Proof: Copy {}

impl Proof for Avx512 {}

impl<P: Proof> U64Lanes for U64x8<P> {
    const LANES: usize = 8;
    type Vector = __m512i;

    #[inline(always)]
    fn splat(self, value: u64) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_set1_epi64(value.cast_signed()) }
    }

    #[inline(always)]
    fn per_lane(self, values: &[u64]) -> __m512i {
        // SAFETY: the slice is 64 bytes; loads need no alignment; `self` proves
        // AVX-512F.
        unsafe { _mm512_loadu_si512(values[..8].as_ptr().cast()) }
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "eight lanes, eight bits")]
    fn first(self, lanes: usize, vector: __m512i) -> __m512i {
        let first = (1_u32 << lanes) - 1;
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_maskz_mov_epi64(first as u8, vector) }
    }

    #[inline(always)]
    fn store(self, vector: __m512i, values: &mut [u64]) {
        // SAFETY: the slice is 64 bytes; stores need no alignment; `self` proves
        // AVX-512F.
        unsafe { _mm512_storeu_si512(values[..8].as_mut_ptr().cast(), vector) }
    }

    #[inline(always)]
    unsafe fn load(self, sources: &[*const u8], offset: usize) -> (__m512i, __m512i) {
        let sources = &sources[..8];
        // SAFETY: the caller guarantees 16 readable bytes at `offset` after each source; loads
        // need no alignment; `self` proves AVX-512F.
        unsafe {
            let source = |l: usize| sources[l].wrapping_add(offset);
            let even = four_rows!(source(0), source(2), source(4), source(6));
            let odd = four_rows!(source(1), source(3), source(5), source(7));
            // The low halves of even and odd blocks, then the high halves.
            (
                _mm512_unpacklo_epi64(even, odd),
                _mm512_unpackhi_epi64(even, odd),
            )
        }
    }

    #[inline(always)]
    unsafe fn load_two(self, sources: &[*const u8], offset: usize) -> [(__m512i, __m512i); 2] {
        let sources = &sources[..8];
        // SAFETY: the caller guarantees 32 readable bytes at `offset` after each source; loads
        // need no alignment; `self` proves AVX-512F.
        unsafe {
            let source = |l: usize| sources[l].wrapping_add(offset).cast();
            let two = |l: usize| {
                let first = _mm512_castsi256_si512(_mm256_loadu_si256(source(l)));
                _mm512_inserti64x4::<1>(first, _mm256_loadu_si256(source(l + 2)))
            };
            let (a, b, c, d) = (two(0), two(1), two(4), two(5));
            // Blocks of lanes 0 and 1, 2 and 3, 4 and 5, 6 and 7: alternately first and second
            // ones.
            let low = (_mm512_unpacklo_epi64(a, b), _mm512_unpacklo_epi64(c, d));
            let high = (_mm512_unpackhi_epi64(a, b), _mm512_unpackhi_epi64(c, d));
            [
                (
                    _mm512_shuffle_i64x2::<0x88>(low.0, low.1),
                    _mm512_shuffle_i64x2::<0x88>(high.0, high.1),
                ),
                (
                    _mm512_shuffle_i64x2::<0xdd>(low.0, low.1),
                    _mm512_shuffle_i64x2::<0xdd>(high.0, high.1),
                ),
            ]
        }
    }

    #[inline(always)]
    unsafe fn load_run(self, blocks: *const u8) -> (__m512i, __m512i) {
        // SAFETY: the caller guarantees eight readable blocks of 16 bytes, which are two runs
        // of four.
        unsafe { self.load_fours(&[blocks, blocks.add(64)], 0) }
    }

    #[inline(always)]
    unsafe fn load_fours(self, sources: &[*const u8], offset: usize) -> (__m512i, __m512i) {
        // SAFETY: the caller guarantees four readable blocks of 16 bytes at `offset` after each
        // source; loads need no alignment; `self` proves AVX-512F.
        unsafe {
            let even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
            let odd = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
            let a = _mm512_loadu_si512(sources[0].wrapping_add(offset).cast());
            let b = _mm512_loadu_si512(sources[1].wrapping_add(offset).cast());
            (
                _mm512_permutex2var_epi64(a, even, b),
                _mm512_permutex2var_epi64(a, odd, b),
            )
        }
    }

    #[inline(always)]
    fn sum_fours(self, a: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe {
            let sum = _mm512_add_epi64(a, _mm512_permutex_epi64::<0b01_00_11_10>(a));
            _mm512_add_epi64(sum, _mm512_permutex_epi64::<0b10_11_00_01>(sum))
        }
    }

    #[inline(always)]
    fn sum(self, a: __m512i) -> u64 {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_reduce_add_epi64(a).cast_unsigned() }
    }

    #[inline(always)]
    fn add(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_add_epi64(a, b) }
    }

    #[inline(always)]
    fn carry(self, a: __m512i, sum: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_maskz_mov_epi64(_mm512_cmplt_epu64_mask(sum, a), self.splat(1)) }
    }

    #[inline(always)]
    fn and(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_and_si512(a, b) }
    }

    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_or_si512(a, b) }
    }

    #[inline(always)]
    fn shift_left<const N: u32>(self, a: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_slli_epi64::<N>(a) }
    }

    #[inline(always)]
    fn shift_right<const N: u32>(self, a: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_srli_epi64::<N>(a) }
    }
}

impl<P: Proof> JoinU32Lanes<Avx512> for Pair<U64x8<P>> {
    #[inline(always)]
    fn join_u32(self, low: __m512i, high: __m512i) -> [__m512i; 2] {
        // SAFETY: `self` proves AVX-512F.
        unsafe {
            let a = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            let b = _mm512_add_epi32(a, _mm512_set1_epi32(8));
            [
                _mm512_permutex2var_epi32(low, a, high),
                _mm512_permutex2var_epi32(low, b, high),
            ]
        }
    }
}

impl<P: Proof> Limbs26 for U64x8<P> {
    #[inline(always)]
    fn multiply(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_mul_epu32(a, b) }
    }
}

impl<P: Call> Masks for U64x8<P> {
    #[inline(always)]
    fn subtract(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_sub_epi64(a, b) }
    }

    #[inline(always)]
    fn equals(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_maskz_set1_epi64(_mm512_cmpeq_epi64_mask(a, b), -1) }
    }

    #[inline(always)]
    fn select(self, mask: __m512i, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F. The constant chooses `b` where `mask` is set: bit 4 m + 2 a + b.
        unsafe { _mm512_ternarylogic_epi64::<0b1010_1100>(mask, a, b) }
    }

    #[inline(always)]
    fn call<A, R>(self, argument: A, function: impl FnOnce(Self, A) -> R) -> R {
        P::call(self, argument, function)
    }
}

/// A [`Proof`] that compiles functions with its instruction set.
pub(crate) trait Call: Proof {
    /// See [`Masks::call`].
    fn call<A, R>(lanes: U64x8<Self>, argument: A, function: impl FnOnce(U64x8<Self>, A) -> R)
    -> R;
}

impl Call for Avx512 {
    #[inline(always)]
    fn call<A, R>(
        lanes: U64x8<Self>,
        argument: A,
        function: impl FnOnce(U64x8<Self>, A) -> R,
    ) -> R {
        call!(
            "avx512f,avx512bw,avx512vl",
            U64x8<Avx512>,
            lanes,
            argument,
            function
        )
    }
}
