//! The AES instructions of ARM, with polynomial multiplication: one block per register.

use crate::vector::{AesBlocks, mask, number, write_number};
use core::arch::aarch64::*;

/// One block in a register. A value of this type proves that the CPU has the AES instructions.
#[derive(Clone, Copy)]
pub(crate) struct Aes(());

// On Linux this also checks for polynomial multiplication, which comes with the AES instructions.
cpufeatures::new!(aes, "aes");

impl Aes {
    fn is_available() -> bool {
        aes::get()
    }

    /// # Safety
    ///
    /// The CPU must have the AES instructions.
    unsafe fn assume() -> Self {
        Self(())
    }
}

aes_kernels!(Aes, "aes");

/// SubBytes and ShiftRows (FIPS 197, sections 5.1.1 and 5.1.2). The instruction adds a round key
/// before them, whereas a round of AES adds its key at the end. The key is therefore zero here, and
/// the compiler merges the addition at the end of a round into the next round's instruction.
#[target_feature(enable = "aes")]
#[inline]
fn sub_bytes(state: uint8x16_t) -> uint8x16_t {
    vaeseq_u8(state, vdupq_n_u8(0))
}

/// MixColumns (FIPS 197, section 5.1.3).
#[target_feature(enable = "aes")]
#[inline]
fn mix_columns(state: uint8x16_t) -> uint8x16_t {
    vaesmcq_u8(state)
}

/// Returns the product of the low halves as polynomials over GF(2).
#[target_feature(enable = "aes")]
#[inline]
fn multiply_low(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
    let (a, b) = (vreinterpretq_p64_u8(a), vreinterpretq_p64_u8(b));
    vreinterpretq_u8_p128(vmull_p64(vgetq_lane_p64::<0>(a), vgetq_lane_p64::<0>(b)))
}

/// Like [`multiply_low`], of the high halves.
#[target_feature(enable = "aes")]
#[inline]
fn multiply_high(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
    vreinterpretq_u8_p128(vmull_high_p64(
        vreinterpretq_p64_u8(a),
        vreinterpretq_p64_u8(b),
    ))
}

/// Returns `vector` with its value hidden from the compiler.
#[inline(always)]
fn opaque(mut vector: uint8x16_t) -> uint8x16_t {
    // SAFETY: the assembly text is only a comment, so no instruction runs.
    unsafe {
        core::arch::asm!("/* {:v} */", inout(vreg) vector, options(pure, nomem, nostack, preserves_flags));
    }
    vector
}

/// For each byte of a block, its source index when the bytes are reversed.
const REVERSED: u128 = 0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f;

impl AesBlocks for Aes {
    const LANES: usize = 1;
    // There are enough registers for both groups, but not for the powers as well: one pass takes 44
    // instructions per block, two passes take 42 (1,280 bytes, everything that a packet takes in
    // the kernel).
    const ONE_PASS: bool = false;
    // Multiplications share a unit with the rounds.
    const KARATSUBA: bool = true;
    const REGISTERS: usize = 32;
    type Vector = uint8x16_t;

    #[inline(always)]
    fn zero(self) -> uint8x16_t {
        on_neon! { vdupq_n_u8(0) }
    }

    #[inline(always)]
    fn splat(self, block: &[u8; 16]) -> uint8x16_t {
        // SAFETY: the block is 16 bytes.
        unsafe { self.load(block.as_ptr()) }
    }

    #[inline(always)]
    fn splat_number(self, number: &u128) -> uint8x16_t {
        // SAFETY: the number is 16 bytes.
        unsafe { self.load((&raw const *number).cast()) }
    }

    #[inline(always)]
    fn numbers(self, numbers: &[u128]) -> uint8x16_t {
        self.splat_number(&numbers[0])
    }

    #[inline(always)]
    fn gather<const N: usize>(self, blocks: &[&[u8; 16]; N], first: usize) -> uint8x16_t {
        self.splat(blocks[first])
    }

    #[inline(always)]
    unsafe fn load(self, source: *const u8) -> uint8x16_t {
        // SAFETY: the caller guarantees 16 readable bytes; bytes need no alignment; NEON is a
        // feature of the target.
        unsafe { vld1q_u8(source) }
    }

    #[inline(always)]
    unsafe fn load_first(self, source: *const u8, len: usize) -> uint8x16_t {
        // SAFETY: the caller guarantees `len` readable bytes, or 16 if `len` is more.
        unsafe { self.splat_number(&number(source, len.min(16))) }
    }

    #[inline(always)]
    unsafe fn store(self, vector: uint8x16_t, destination: *mut u8) {
        // SAFETY: the caller guarantees 16 writable bytes; bytes need no alignment; NEON is a
        // feature of the target.
        unsafe { vst1q_u8(destination, vector) }
    }

    #[inline(always)]
    unsafe fn store_first(self, vector: uint8x16_t, destination: *mut u8, len: usize) {
        // SAFETY: the caller guarantees `len` writable bytes, or 16 if `len` is more.
        unsafe { write_number(self.sum(vector), destination, len.min(16)) }
    }

    #[inline(always)]
    fn first(self, vector: uint8x16_t, len: usize) -> uint8x16_t {
        self.and(vector, self.splat_number(&mask(len)))
    }

    #[inline(always)]
    fn with_lane(self, _: uint8x16_t, _: usize, number: u128) -> uint8x16_t {
        self.splat_number(&number)
    }

    #[inline(always)]
    fn with_lane_of(self, _: uint8x16_t, _: usize, other: uint8x16_t) -> uint8x16_t {
        other
    }

    #[inline(always)]
    fn only_lane(self, vector: uint8x16_t, _: usize) -> uint8x16_t {
        vector
    }

    #[inline(always)]
    fn sum(self, vector: uint8x16_t) -> u128 {
        let mut number = 0_u128;
        // SAFETY: the number is 16 bytes.
        unsafe { self.store(vector, (&raw mut number).cast()) };
        number
    }

    #[inline(always)]
    fn reverse(self, vector: uint8x16_t) -> uint8x16_t {
        // For a byte order that it knows, the compiler would use two instructions.
        let order = opaque(self.splat_number(&REVERSED));
        on_neon! { vqtbl1q_u8(vector, order) }
    }

    #[inline(always)]
    fn with_last_word(self, vector: uint8x16_t, word: u32) -> uint8x16_t {
        on_neon! {
            vreinterpretq_u8_u32(vsetq_lane_u32::<3>(word, vreinterpretq_u32_u8(vector)))
        }
    }

    #[inline(always)]
    fn sum_in_first(self, vector: uint8x16_t) -> uint8x16_t {
        vector
    }

    #[inline(always)]
    fn xor(self, a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
        on_neon! { veorq_u8(a, b) }
    }

    #[inline(always)]
    fn and(self, a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
        on_neon! { vandq_u8(a, b) }
    }

    #[inline(always)]
    fn equal(self, a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
        let halves = on_neon! {
            vreinterpretq_u8_u64(vceqq_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)))
        };
        self.and(halves, self.swap(halves))
    }

    #[inline(always)]
    fn round(self, state: uint8x16_t, key: uint8x16_t) -> uint8x16_t {
        // SAFETY: `self` proves the AES instructions.
        self.xor(unsafe { mix_columns(sub_bytes(state)) }, key)
    }

    #[inline(always)]
    fn last_round(self, state: uint8x16_t, key: uint8x16_t) -> uint8x16_t {
        // SAFETY: `self` proves the AES instructions.
        self.xor(unsafe { sub_bytes(state) }, key)
    }

    #[inline(always)]
    fn carry_less<const HALVES: i32>(self, a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
        // There are instructions for the low halves and for the high halves. To multiply one of
        // each, the halves of `b` are exchanged.
        // SAFETY: `self` proves the AES instructions.
        unsafe {
            match HALVES {
                0x00 => multiply_low(a, b),
                0x10 => multiply_low(a, self.swap(b)),
                0x01 => multiply_high(a, self.swap(b)),
                _ => multiply_high(a, b),
            }
        }
    }

    #[inline(always)]
    fn swap(self, vector: uint8x16_t) -> uint8x16_t {
        on_neon! { vextq_u8::<8>(vector, vector) }
    }
}
