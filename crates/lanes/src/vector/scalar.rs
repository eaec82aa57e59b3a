//! One lane, in plain Rust.

use super::opaque::opaque_u64;
use super::u32_lanes::Arithmetic;
use super::u64_lanes::{Limbs26, Masks, U64Lanes};

/// One lane. With 64-bit words and a multiplier of 64 by 64 bits, it is used for Poly1305.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

/// With 32-bit words it is used for SHA-256.
impl Arithmetic for Scalar {
    type Word = u32;

    #[inline(always)]
    fn splat(self, word: u32) -> u32 {
        word
    }

    #[inline(always)]
    fn add(self, a: u32, b: u32) -> u32 {
        a.wrapping_add(b)
    }

    #[inline(always)]
    fn xor(self, a: u32, b: u32) -> u32 {
        a ^ b
    }

    #[inline(always)]
    fn and(self, a: u32, b: u32) -> u32 {
        a & b
    }

    #[inline(always)]
    fn rotate_left<const N: i32>(self, a: u32) -> u32 {
        a.rotate_left(N.unsigned_abs())
    }

    #[inline(always)]
    fn shift_right<const N: i32>(self, a: u32) -> u32 {
        a >> N
    }
}

impl U64Lanes for Scalar {
    const LANES: usize = 1;
    type Vector = u64;

    #[inline(always)]
    fn splat(self, value: u64) -> u64 {
        value
    }

    #[inline(always)]
    fn per_lane(self, values: &[u64]) -> u64 {
        values[0]
    }

    #[inline(always)]
    fn first(self, lanes: usize, vector: u64) -> u64 {
        if lanes > 0 { vector } else { 0 }
    }

    #[inline(always)]
    fn store(self, vector: u64, values: &mut [u64]) {
        values[0] = vector;
    }

    #[inline(always)]
    unsafe fn load(self, sources: &[*const u8], offset: usize) -> (u64, u64) {
        let source = sources[0].wrapping_add(offset).cast::<[u64; 2]>();
        // SAFETY: the caller guarantees 16 readable bytes at `offset` after the source.
        let [low, high] = unsafe { source.read_unaligned() };
        (u64::from_le(low), u64::from_le(high))
    }

    #[inline(always)]
    unsafe fn load_run(self, blocks: *const u8) -> (u64, u64) {
        // SAFETY: the caller guarantees one readable block of 16 bytes.
        unsafe { self.load(&[blocks], 0) }
    }

    #[inline(always)]
    unsafe fn load_fours(self, sources: &[*const u8], offset: usize) -> (u64, u64) {
        // SAFETY: the caller guarantees a run of four readable blocks; this reads the first
        // one.
        unsafe { self.load(sources, offset) }
    }

    #[inline(always)]
    fn sum_fours(self, a: u64) -> u64 {
        a
    }

    #[inline(always)]
    fn sum(self, a: u64) -> u64 {
        a
    }

    #[inline(always)]
    fn add(self, a: u64, b: u64) -> u64 {
        a.wrapping_add(b)
    }

    #[inline(always)]
    fn carry(self, a: u64, sum: u64) -> u64 {
        u64::from(sum < a)
    }

    #[inline(always)]
    fn and(self, a: u64, b: u64) -> u64 {
        a & b
    }

    #[inline(always)]
    fn or(self, a: u64, b: u64) -> u64 {
        a | b
    }

    #[inline(always)]
    fn shift_left<const N: u32>(self, a: u64) -> u64 {
        a << N
    }

    #[inline(always)]
    fn shift_right<const N: u32>(self, a: u64) -> u64 {
        a >> N
    }
}

impl Limbs26 for Scalar {
    #[inline(always)]
    fn multiply(self, a: u64, b: u64) -> u64 {
        u64::from(a as u32) * u64::from(b as u32)
    }
}

impl Masks for Scalar {
    #[inline(always)]
    fn subtract(self, a: u64, b: u64) -> u64 {
        a.wrapping_sub(b)
    }

    #[inline(always)]
    fn equals(self, a: u64, b: u64) -> u64 {
        let differences = a ^ b;
        // Hidden, here and below: the compiler would branch on a mask.
        opaque_u64(((differences | differences.wrapping_neg()) >> 63).wrapping_sub(1))
    }

    #[inline(always)]
    fn select(self, mask: u64, a: u64, b: u64) -> u64 {
        a ^ (opaque_u64(mask) & (a ^ b))
    }

    #[inline(never)]
    fn call<A, R>(self, argument: A, function: impl FnOnce(Self, A) -> R) -> R {
        function(self, argument)
    }
}
