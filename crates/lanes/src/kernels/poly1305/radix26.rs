//! Five limbs of 26 bits, for vectors with 32-bit multiplication.

use super::field::{Field, Number, select_limbs, times_five, with_top_limb};
use crate::vector::{Limbs26, MAX_TAGS};

const MASK26: u64 = (1 << 26) - 1;

/// Numbers in five limbs of 26 bits; limb i has the weight 2^(26 i).
#[derive(Clone, Copy)]
pub(crate) struct Radix26<L>(pub(crate) L);

impl<L: Limbs26> Field for Radix26<L> {
    type Lanes = L;
    type Element = [L::Vector; 5];
    /// r, then 5 r\[1\] to 5 r\[4\], since 2^130 is 5 modulo 2^130 - 5.
    type Multiplier = ([L::Vector; 5], [L::Vector; 4]);
    type Products = [L::Vector; 5];
    const MAX_PRODUCTS: usize = 2;
    /// Limb 4 begins at bit 104, and 128 - 104 = 24.
    const HIBIT: u64 = 1 << 24;
    #[inline(always)]
    fn lanes(self) -> L {
        self.0
    }

    #[inline(always)]
    fn hibit(self) -> L::Vector {
        self.0.splat_opaque(Self::HIBIT)
    }

    #[inline(always)]
    fn hibit_where(self, bits: L::Vector) -> L::Vector {
        self.0.and(self.0.shift_left::<24>(bits), self.hibit())
    }

    #[inline(always)]
    fn element(self, low: L::Vector, high: L::Vector) -> [L::Vector; 5] {
        let Self(l) = self;
        let mask = l.splat_opaque(MASK26);
        let middle = l.or(l.shift_right::<52>(low), l.shift_left::<12>(high));
        [
            l.and(low, mask),
            l.and(l.shift_right::<26>(low), mask),
            l.and(middle, mask),
            l.and(l.shift_right::<14>(high), mask),
            l.shift_right::<40>(high),
        ]
    }

    #[inline(always)]
    fn add_block(
        self,
        h: [L::Vector; 5],
        block: (L::Vector, L::Vector),
        hibit: L::Vector,
    ) -> [L::Vector; 5] {
        let Self(l) = self;
        let [a, b, c, d, e] = self.element(block.0, block.1);
        [
            l.add(h[0], a),
            l.add(h[1], b),
            l.add(h[2], c),
            l.add(h[3], d),
            l.add(h[4], l.or(e, hibit)),
        ]
    }

    #[inline(always)]
    fn multiplier(self, r: [L::Vector; 5]) -> Self::Multiplier {
        let Self(l) = self;
        let s = [
            times_five(l, r[1]),
            times_five(l, r[2]),
            times_five(l, r[3]),
            times_five(l, r[4]),
        ];
        let all = l.splat_opaque(u64::MAX);
        let (mut factors, mut more) = (r, s);
        for limb in &mut factors {
            *limb = l.and(*limb, all);
        }
        for limb in &mut more {
            *limb = l.and(*limb, all);
        }
        (factors, more)
    }

    #[inline(always)]
    fn no_products(self) -> [L::Vector; 5] {
        [self.0.splat(0); 5]
    }

    #[inline(always)]
    fn multiply_add(
        self,
        mut sum: [L::Vector; 5],
        [h0, h1, h2, h3, h4]: [L::Vector; 5],
        &([r0, r1, r2, r3, r4], [s1, s2, s3, s4]): &Self::Multiplier,
    ) -> [L::Vector; 5] {
        let Self(l) = self;
        // Unrolled in the source, because the compiler would not unroll a loop. h0 comes last
        // because it is known last.
        macro_rules! add {
            ($sum:expr, $($a:ident * $b:ident),+) => {
                $($sum = l.add($sum, l.multiply($a, $b));)+
            };
        }
        add!(sum[0], h4 * s1, h3 * s2, h2 * s3, h1 * s4, h0 * r0);
        add!(sum[1], h4 * s2, h3 * s3, h2 * s4, h1 * r0, h0 * r1);
        add!(sum[2], h4 * s3, h3 * s4, h2 * r0, h1 * r1, h0 * r2);
        add!(sum[3], h4 * s4, h3 * r0, h2 * r1, h1 * r2, h0 * r3);
        add!(sum[4], h4 * r0, h3 * r1, h2 * r2, h1 * r3, h0 * r4);
        sum
    }

    #[inline(always)]
    fn reduced(self, [d0, d1, d2, d3, d4]: [L::Vector; 5]) -> [L::Vector; 5] {
        let Self(l) = self;
        // Two independent chains of carries, one from limb 0 and one from limb 3.
        let mask = l.splat_opaque(MASK26);
        let d1 = l.add(d1, l.shift_right::<26>(d0));
        let d4 = l.add(d4, l.shift_right::<26>(d3));
        let (h0, h3) = (l.and(d0, mask), l.and(d3, mask));
        let d2 = l.add(d2, l.shift_right::<26>(d1));
        let h0 = l.add(h0, times_five(l, l.shift_right::<26>(d4)));
        let (h1, h4) = (l.and(d1, mask), l.and(d4, mask));
        let h3 = l.add(h3, l.shift_right::<26>(d2));
        let h2 = l.and(d2, mask);
        let h1 = l.add(h1, l.shift_right::<26>(h0));
        let h4 = l.add(h4, l.shift_right::<26>(h3));
        [l.and(h0, mask), h1, h2, l.and(h3, mask), h4]
    }

    #[inline(always)]
    fn words(self, mut h: [L::Vector; 5]) -> (L::Vector, L::Vector) {
        let Self(l) = self;
        let mask = l.splat_opaque(MASK26);
        // h is only slightly above 2^130 at most, so the prime is contained at most once.
        h[0] = l.add(h[0], times_five(l, l.shift_right::<26>(h[4])));
        h[4] = l.and(h[4], mask);
        // h + 5 reaches 2^130 exactly if h is at least the prime. Then the residue is h + 5 -
        // 2^130.
        let mut carry = l.splat(5);
        for limb in h {
            carry = l.shift_right::<26>(l.add(limb, carry));
        }
        h[0] = l.add(h[0], times_five(l, carry));
        for limb in 0..4 {
            h[limb + 1] = l.add(h[limb + 1], l.shift_right::<26>(h[limb]));
            h[limb] = l.and(h[limb], mask);
        }
        let low = l.or(h[0], l.shift_left::<26>(h[1]));
        let high = l.or(l.shift_right::<12>(h[2]), l.shift_left::<14>(h[3]));
        (
            l.or(low, l.shift_left::<52>(h[2])),
            // The shift drops bits 128 and 129.
            l.or(high, l.shift_left::<40>(h[4])),
        )
    }

    #[inline(always)]
    fn number(self, [low, high, top]: [L::Vector; 3]) -> [L::Vector; 5] {
        let Self(l) = self;
        let [a, b, c, d, e] = self.element(low, high);
        [a, b, c, d, l.or(e, l.shift_left::<24>(top))]
    }

    #[inline(always)]
    fn sum(self, [a, b, c, d, e]: [L::Vector; 5]) -> Number {
        let Self(l) = self;
        let low = u128::from(l.sum(a)) + (u128::from(l.sum(b)) << 26);
        let middle = (u128::from(l.sum(c)) << 52) + (u128::from(l.sum(d)) << 78);
        with_top_limb::<24>(low + middle, l.sum(e))
    }

    #[inline(always)]
    fn sum_fours(self, mut limbs: [L::Vector; 5]) -> [L::Vector; 5] {
        for limb in &mut limbs {
            *limb = self.0.sum_fours(*limb);
        }
        limbs
    }

    #[inline(always)]
    fn select(
        self,
        mask: &[u64; MAX_TAGS],
        a: [L::Vector; 5],
        b: [L::Vector; 5],
    ) -> [L::Vector; 5] {
        select_limbs(self.0, mask, a, b)
    }
}
