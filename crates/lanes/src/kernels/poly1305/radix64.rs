//! One number in two 64-bit words.

use super::field::{Field, Number, reduced, select_limbs, wide};
use crate::vector::{MAX_TAGS, Scalar};

/// One number in two 64-bit words, and a third word for higher bits.
#[derive(Clone, Copy)]
pub(crate) struct Radix64;

#[allow(clippy::cast_possible_truncation, reason = "the low half is meant")]
impl Field for Radix64 {
    type Lanes = Scalar;
    type Element = Number;
    /// The two words of r, and 5/4 of the second: 2^130 is 5 and so 2^128 is 5/4, and the
    /// second word of a clamped r is a multiple of 4. Only clamped numbers can be multipliers
    /// here; their powers cannot.
    type Multiplier = [u64; 3];
    /// The sums of the products with the weights 1 and 2^64.
    type Products = [u128; 2];
    const MAX_PRODUCTS: usize = 1;
    const HIBIT: u64 = 1;
    #[inline(always)]
    fn lanes(self) -> Scalar {
        Scalar
    }

    #[inline(always)]
    fn hibit_where(self, bits: u64) -> u64 {
        bits & Self::HIBIT
    }

    #[inline(always)]
    fn element(self, low: u64, high: u64) -> Number {
        [low, high, 0]
    }

    #[inline(always)]
    fn add_block(self, [h0, h1, h2]: Number, (low, high): (u64, u64), hibit: u64) -> Number {
        let (h, carry) = wide(h0, h1).overflowing_add(wide(low, high));
        [h as u64, (h >> 64) as u64, h2 + hibit + u64::from(carry)]
    }

    #[inline(always)]
    fn multiplier(self, [r0, r1, _]: Number) -> [u64; 3] {
        [r0, r1, r1 + (r1 >> 2)]
    }

    #[inline(always)]
    fn no_products(self) -> [u128; 2] {
        [0; 2]
    }

    #[inline(always)]
    fn multiply_add(
        self,
        [sum0, sum1]: [u128; 2],
        [h0, h1, h2]: Number,
        &[r0, r1, s1]: &[u64; 3],
    ) -> [u128; 2] {
        let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
        // No overflow for one product: r0 and r1 are below 2^60, and h2 is at most 6, since
        // `reduced` leaves at most 4 and `add_block` adds at most 2. So each sum is below
        // 2^127.
        [
            sum0 + product(h0, r0) + product(h1, s1),
            sum1 + product(h0, r1)
                + product(h1, r0)
                + u128::from(h2 * s1)
                + (u128::from(h2 * r0) << 64),
        ]
    }

    #[inline(always)]
    fn reduced(self, [sum0, sum1]: [u128; 2]) -> Number {
        let sum1 = sum1 + (sum0 >> 64);
        reduced(sum0 as u64, sum1 as u64, (sum1 >> 64) as u64)
    }

    #[inline(always)]
    fn words(self, [low, high, top]: Number) -> (u64, u64) {
        // h is only slightly above 2^130 at most, so the prime p is contained at most once: if h +
        // 5 has bits from 2^130 on. h - p is h + 5 - 2^130.
        let (_, carry) = wide(low, high).overflowing_add(5);
        let times = (top + u64::from(carry)) >> 2;
        let h = wide(low, high).wrapping_add(u128::from(5 * times));
        (h as u64, (h >> 64) as u64)
    }

    #[inline(always)]
    fn number(self, words: [u64; 3]) -> Number {
        words
    }

    #[inline(always)]
    fn sum(self, element: Number) -> Number {
        element
    }

    #[inline(always)]
    fn sum_fours(self, element: Number) -> Number {
        element
    }

    #[inline(always)]
    fn select(self, mask: &[u64; MAX_TAGS], a: Number, b: Number) -> Number {
        select_limbs(Scalar, mask, a, b)
    }
}
