//! NEON: four words per register.
//!
//! Poly1305 stays in general registers: a step takes 30 instructions there, and 35 in vectors with
//! five limbs. Interleaved with the rounds of ChaCha20 it takes little extra time.
//!
//! Two states of ChaCha20 nearly fit into 32 registers, so at most two or three words are in
//! memory; see [`Arithmetic::tie`].

use super::sha2::best_serial;
use crate::isa::set::InstructionSet;
use crate::job::{Job, Key, Outcome};
use crate::kernels::chacha20poly1305;
use crate::kernels::poly1305::Radix64;
use crate::kernels::secp256k1::radix29::Radix29;
use crate::kernels::sha256::Serial;
use crate::vector::{
    Arithmetic, BlocksFrom, MAX_LANES, Pair, Rows, Scalar, U32Lanes, number, write_number,
};
use core::arch::aarch64::*;

/// Four words in a register.
#[derive(Clone, Copy)]
pub(crate) struct Neon;

impl InstructionSet for Neon {
    type Lanes = Pair<Neon>;
    type Rows = Neon;
    type Field = Radix64;
    type HalfField = Radix64;
    type Curve = Radix29<Scalar>;
    type Hash = Neon;
    type HalfHash = Neon;

    const INTERLEAVED_ROWS: usize = 3;
    const ROWS_IN_LANES: bool = true;
    const STITCHED: bool = true;
    const TAG_STEP: usize = 10;
    const SHORT_LANES: usize = 4;
    const MIN_SHORT: usize = 3;

    fn is_available() -> bool {
        // The baseline of these targets.
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
        self
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
        best_serial()
    }

    #[inline(always)]
    fn short(self, bytes: &mut [u8], keys: &[Key], jobs: &[Job], outcomes: Option<&mut [Outcome]>) {
        chacha20poly1305::short_one_by_one::<false, _>(self, bytes, keys, jobs, outcomes);
    }
}

kernels!(Neon, "neon");

/// Returns the 16 bytes at `source`.
///
/// # Safety
///
/// They must be readable.
#[inline(always)]
unsafe fn load(source: *const u8) -> uint32x4_t {
    // SAFETY: the caller guarantees 16 readable bytes; bytes need no alignment; NEON is a
    // feature of the target.
    unsafe { vreinterpretq_u32_u8(vld1q_u8(source)) }
}

/// Writes 16 bytes to `destination`.
///
/// # Safety
///
/// They must be writable.
#[inline(always)]
unsafe fn store(vector: uint32x4_t, destination: *mut u8) {
    // SAFETY: the caller guarantees 16 writable bytes; bytes need no alignment; NEON is a
    // feature of the target.
    unsafe { vst1q_u8(destination, vreinterpretq_u8_u32(vector)) }
}

/// Transposes four vectors of four words.
#[inline(always)]
fn transpose([a, b, c, d]: [uint32x4_t; 4]) -> [uint32x4_t; 4] {
    on_neon! {
        let [ab_even, ab_odd, cd_even, cd_odd] = [
            vreinterpretq_u64_u32(vtrn1q_u32(a, b)),
            vreinterpretq_u64_u32(vtrn2q_u32(a, b)),
            vreinterpretq_u64_u32(vtrn1q_u32(c, d)),
            vreinterpretq_u64_u32(vtrn2q_u32(c, d)),
        ];
        [
            vreinterpretq_u32_u64(vtrn1q_u64(ab_even, cd_even)),
            vreinterpretq_u32_u64(vtrn1q_u64(ab_odd, cd_odd)),
            vreinterpretq_u32_u64(vtrn2q_u64(ab_even, cd_even)),
            vreinterpretq_u32_u64(vtrn2q_u64(ab_odd, cd_odd)),
        ]
    }
}

/// Reverses the bytes of each word.
#[inline(always)]
fn swap_bytes(words: uint32x4_t) -> uint32x4_t {
    on_neon! { vreinterpretq_u32_u8(vrev32q_u8(vreinterpretq_u8_u32(words))) }
}

/// For each byte of four words, its source index when the words are rotated left by 8 bits.
const BY_8: [u8; 16] = [3, 0, 1, 2, 7, 4, 5, 6, 11, 8, 9, 10, 15, 12, 13, 14];

/// Rotates words left by `$n` bits, one of the numbers on the left; on the right are 32 minus
/// these, which cannot be computed in an argument of an intrinsic.
macro_rules! rotate_left {
    ($a:ident, $n:ident, $($left:literal $right:literal),+) => {
        match $n {
            $($left => vsriq_n_u32::<$right>(vshlq_n_u32::<$left>($a), $a),)+
            _ => unreachable!("no algorithm rotates by this number of bits"),
        }
    };
}

impl Arithmetic for Neon {
    type Word = uint32x4_t;

    const REGISTERS: usize = 32;

    #[inline(always)]
    fn splat(self, word: u32) -> uint32x4_t {
        on_neon! { vdupq_n_u32(word) }
    }

    #[inline(always)]
    fn add(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        on_neon! { vaddq_u32(a, b) }
    }

    #[inline(always)]
    fn xor(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        on_neon! { veorq_u32(a, b) }
    }

    #[inline(always)]
    fn and(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        on_neon! { vandq_u32(a, b) }
    }

    #[inline(always)]
    fn rotate_left<const N: i32>(self, a: uint32x4_t) -> uint32x4_t {
        match N {
            16 => on_neon! { vreinterpretq_u32_u16(vrev32q_u16(vreinterpretq_u16_u32(a))) },
            8 => {
                // SAFETY: the array is 16 bytes.
                let order = unsafe { load(BY_8.as_ptr()) };
                let order = on_neon! { vreinterpretq_u8_u32(order) };
                on_neon! { vreinterpretq_u32_u8(vqtbl1q_u8(vreinterpretq_u8_u32(a), order)) }
            }
            _ => on_neon! { rotate_left!(
                a, N,
                7 25, 10 22, 12 20, 13 19, 14 18, 15 17, 19 13, 21 11, 25 7, 26 6, 30 2
            ) },
        }
    }

    #[inline(always)]
    fn shift_right<const N: i32>(self, a: uint32x4_t) -> uint32x4_t {
        on_neon! { vshrq_n_u32::<N>(a) }
    }

    #[inline(always)]
    fn tie(self, a: &mut uint32x4_t, b: &mut uint32x4_t) {
        // SAFETY: the assembly text is only a comment, so no instruction runs.
        #[cfg(not(miri))]
        unsafe {
            core::arch::asm!(
                "/* {:v} {:v} */",
                inout(vreg) * a,
                inout(vreg) * b,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        #[cfg(miri)]
        let _ = (a, b);
    }

    #[inline(always)]
    fn choose(self, a: uint32x4_t, b: uint32x4_t, c: uint32x4_t) -> uint32x4_t {
        on_neon! { vbslq_u32(a, b, c) }
    }

    #[inline(always)]
    fn majority(self, a: uint32x4_t, b: uint32x4_t, c: uint32x4_t) -> uint32x4_t {
        // Where a and b differ, c decides.
        on_neon! { vbslq_u32(veorq_u32(a, b), c, b) }
    }
}

impl Rows for Neon {
    const BLOCKS: usize = 1;

    #[inline(always)]
    fn row(self, row: &[u32; 4]) -> uint32x4_t {
        // SAFETY: the array is 16 bytes.
        unsafe { load(row.as_ptr().cast()) }
    }

    #[inline(always)]
    fn add_block_numbers(self, row: uint32x4_t) -> uint32x4_t {
        row
    }

    #[inline(always)]
    fn rotate_row<const N: usize>(self, row: uint32x4_t) -> uint32x4_t {
        match N {
            1 => on_neon! { vextq_u32::<1>(row, row) },
            2 => on_neon! { vextq_u32::<2>(row, row) },
            _ => on_neon! { vextq_u32::<3>(row, row) },
        }
    }

    #[inline(always)]
    unsafe fn store_rows(self, rows: [uint32x4_t; 4], blocks: *mut [u8; 64]) {
        for (i, row) in rows.into_iter().enumerate() {
            // SAFETY: the caller guarantees 64 writable bytes, of which this writes the i-th
            // 16.
            unsafe { store(row, blocks.cast::<u8>().add(16 * i)) };
        }
    }
}

impl U32Lanes for Neon {
    const LANES: usize = 4;
    type Narrow = Self;

    #[inline(always)]
    fn narrow(self) -> Self {
        self
    }

    #[inline(always)]
    fn load(self, words: &[u32]) -> uint32x4_t {
        // SAFETY: the slice is 16 bytes.
        unsafe { load(words[..4].as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, word: uint32x4_t, words: &mut [u32]) {
        // SAFETY: the slice is 16 bytes.
        unsafe { store(word, words[..4].as_mut_ptr().cast()) }
    }

    #[inline(always)]
    unsafe fn load_big_endian(self, sources: &[*const u8], offset: usize) -> [uint32x4_t; 4] {
        let mut rows = [self.splat(0); 4];
        for (row, source) in rows.iter_mut().zip(&sources[..4]) {
            // SAFETY: the caller guarantees 16 readable bytes at `offset` after each source.
            *row = swap_bytes(unsafe { load(source.wrapping_add(offset)) });
        }
        transpose(rows)
    }

    #[inline(always)]
    unsafe fn store_big_endian(self, words: [uint32x4_t; 4], destination: *mut u8, stride: usize) {
        for (l, row) in transpose(words).into_iter().enumerate() {
            // SAFETY: the caller guarantees 16 writable bytes at each multiple of `stride`.
            unsafe { store(swap_bytes(row), destination.add(l * stride)) }
        }
    }

    #[inline(always)]
    fn gather<const AT: usize, const N: usize>(
        self,
        sources: &[&[u8; N]; MAX_LANES],
        first: usize,
    ) -> [uint32x4_t; 4] {
        const { assert!(AT + 16 <= N) };
        let mut rows = [self.splat(0); 4];
        for (row, source) in rows.iter_mut().zip(&sources[first..][..4]) {
            // SAFETY: each source has 16 bytes from `AT` on, as just asserted.
            *row = unsafe { load(source.as_ptr().add(AT)) };
        }
        transpose(rows)
    }

    #[inline(always)]
    fn transpose_rows(self, rows: &[[u32; 4]; MAX_LANES], first: usize) -> [uint32x4_t; 4] {
        let mut vectors = [self.splat(0); 4];
        for (vector, row) in vectors.iter_mut().zip(&rows[first..][..4]) {
            *vector = self.row(row);
        }
        transpose(vectors)
    }

    #[inline(always)]
    fn lane_indices(self) -> uint32x4_t {
        self.row(&[0, 1, 2, 3])
    }

    #[inline(always)]
    #[allow(
        clippy::needless_range_loop,
        reason = "the index is also a block number"
    )]
    unsafe fn scatter(self, words: &[uint32x4_t; 16], from: Option<BlocksFrom>, to: *mut [u8; 64]) {
        let (groups, _) = words.as_chunks();
        let quarters = [
            transpose(groups[0]),
            transpose(groups[1]),
            transpose(groups[2]),
            transpose(groups[3]),
        ];
        for l in 0..4 {
            let mut rows = [
                quarters[0][l],
                quarters[1][l],
                quarters[2][l],
                quarters[3][l],
            ];
            // SAFETY: the caller guarantees four blocks to write, and to read if there are any. Each
            // has four times 16 bytes.
            unsafe {
                // All loads come before all stores, so that the compiler can merge pairs of them.
                if let Some(from) = from {
                    let from: *const u8 = from.block(l).cast();
                    for (i, row) in rows.iter_mut().enumerate() {
                        *row = self.xor(*row, load(from.add(16 * i)));
                    }
                }
                self.store_rows(rows, to.add(l).cast());
            }
        }
    }

    #[inline(always)]
    fn xor_bytes(self, text: &mut [u8], block: &[u8; 64]) {
        let len = text.len();
        assert!(len <= 64, "at most one block");
        let (text, block) = (text.as_mut_ptr(), block.as_ptr());
        if len < 16 {
            // SAFETY: the text has `len` bytes, and the block has at least as many.
            return unsafe { write_number(number(text, len) ^ number(block, len), text, len) };
        }
        // SAFETY: a piece ends at most `len` bytes after the start of the text, and `len` is at
        // most 64, the length of the block.
        let piece = |at: usize| unsafe { veorq_u32(load(text.add(at)), load(block.add(at))) };
        // The last 16 bytes overlap the last whole piece, so they are read before that is written.
        let last = piece(len - 16);
        for at in [0, 16, 32, 48] {
            if at + 16 <= len {
                // SAFETY: as above.
                unsafe { store(piece(at), text.add(at)) };
            }
        }
        if !len.is_multiple_of(16) {
            // SAFETY: as above.
            unsafe { store(last, text.add(len - 16)) };
        }
    }
}
