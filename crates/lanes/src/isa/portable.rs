//! Plain Rust: runs anywhere, and is what the compiler makes of it.

use crate::vector::{Limbs, MAX_LANES, Words};

/// Four words in an array.
#[cfg_attr(target_arch = "x86_64", allow(dead_code))]
#[derive(Clone, Copy)]
pub(crate) struct Array;

impl Words for Array {
    const LANES: usize = 4;
    type Word = [u32; 4];

    #[inline(always)]
    fn splat(self, word: u32) -> [u32; 4] {
        [word; 4]
    }

    #[inline(always)]
    fn add(self, a: [u32; 4], b: [u32; 4]) -> [u32; 4] {
        core::array::from_fn(|l| a[l].wrapping_add(b[l]))
    }

    #[inline(always)]
    fn xor(self, a: [u32; 4], b: [u32; 4]) -> [u32; 4] {
        core::array::from_fn(|l| a[l] ^ b[l])
    }

    #[inline(always)]
    fn rotate_left<const N: i32>(self, a: [u32; 4]) -> [u32; 4] {
        a.map(|word| word.rotate_left(N.unsigned_abs()))
    }

    #[inline(always)]
    fn gather(self, rows: &[[u32; 4]; MAX_LANES]) -> [[u32; 4]; 4] {
        core::array::from_fn(|w| core::array::from_fn(|l| rows[l][w]))
    }

    #[inline(always)]
    fn scatter(self, words: &[[u32; 4]; 16], blocks: &mut [[u8; 64]; MAX_LANES]) {
        for (l, block) in blocks.iter_mut().take(Self::LANES).enumerate() {
            for (place, word) in block.chunks_exact_mut(4).zip(words) {
                place.copy_from_slice(&word[l].to_le_bytes());
            }
        }
    }
}

/// One lane of 64 bits and a multiplier of 64 by 64 bits.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

impl Limbs for Scalar {
    type Limb = u64;
    type Product = u128;

    #[inline(always)]
    fn limb(self, value: u64) -> u64 {
        value
    }

    #[inline(always)]
    fn add(self, a: u64, b: u64) -> u64 {
        a.wrapping_add(b)
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

    #[inline(always)]
    fn multiply(self, a: u64, b: u64) -> u128 {
        u128::from(a).wrapping_mul(u128::from(b))
    }

    #[inline(always)]
    fn multiply_add(self, sum: u128, a: u64, b: u64) -> u128 {
        sum.wrapping_add(self.multiply(a, b))
    }

    #[inline(always)]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the mask and the bounds of Product"
    )]
    fn split<const N: u32>(self, sum: u128, carry: u64) -> (u64, u64) {
        let sum = sum.wrapping_add(u128::from(carry));
        (sum as u64 & ((1 << N) - 1), (sum >> N) as u64)
    }
}
