//! Three limbs of 44, 44 and 42 bits, for vectors with 52-bit multiplication (IFMA).

use super::field::{Field, Number, select_limbs, times_five, with_top_limb};
use crate::vector::{Limbs44, MAX_TAGS};

const MASK42: u64 = (1 << 42) - 1;
const MASK44: u64 = (1 << 44) - 1;

/// Numbers in three limbs of 44, 44 and 42 bits; limb i has the weight 2^(44 i).
#[derive(Clone, Copy)]
pub(crate) struct Radix44<L>(pub(crate) L);

impl<L: Limbs44> Field for Radix44<L> {
    type Lanes = L;
    type Element = [L::Vector; 3];
    /// r, then 20 r\[1\] and 20 r\[2\], since 2^132 is 20 modulo 2^130 - 5.
    type Multiplier = ([L::Vector; 3], [L::Vector; 2]);
    /// The sums of the products' low 52 bits, and of the bits above these.
    type Products = [[L::Vector; 3]; 2];
    /// Factors are below 2^46 and 2^49, and each product adds three parts of at most 52 bits to a low limb
    /// and of 43 bits to a high one: those of four are below 2^56 and 2^47, and with the carries of
    /// [`reduced`](Field::reduced), which shifts high limbs by 8 or 10 and multiplies by 5, below 2^61.
    const MAX_PRODUCTS: usize = 4;
    /// Limb 2 begins at bit 88, and 128 - 88 = 40.
    const HIBIT: u64 = 1 << 40;
    #[inline(always)]
    fn lanes(self) -> L {
        self.0
    }

    #[inline(always)]
    fn hibit_where(self, bits: L::Vector) -> L::Vector {
        self.0.and(self.0.shift_left::<40>(bits), self.hibit())
    }

    #[inline(always)]
    fn element(self, low: L::Vector, high: L::Vector) -> [L::Vector; 3] {
        let Self(l) = self;
        let mask = l.splat(MASK44);
        [
            l.and(low, mask),
            l.and(l.bits_from_44(low, high), mask),
            l.shift_right::<24>(high),
        ]
    }

    #[inline(always)]
    fn add_block(
        self,
        h: [L::Vector; 3],
        block: (L::Vector, L::Vector),
        hibit: L::Vector,
    ) -> [L::Vector; 3] {
        let Self(l) = self;
        let [a, b, c] = self.element(block.0, block.1);
        [l.add(h[0], a), l.add(h[1], b), l.add(h[2], l.or(c, hibit))]
    }

    #[inline(always)]
    fn multiplier(self, r: [L::Vector; 3]) -> Self::Multiplier {
        let Self(l) = self;
        // With the available multiplication: the compiler would turn shifts and additions into a
        // 64-bit multiplication, and that into five instructions.
        let (zero, twenty) = (l.splat(0), l.splat(20));
        let s1 = l.multiply_add_low(zero, r[1], twenty);
        let s2 = l.multiply_add_low(zero, r[2], twenty);
        (r, [s1, s2])
    }

    #[inline(always)]
    fn no_products(self) -> Self::Products {
        [[self.0.splat(0); 3]; 2]
    }

    #[inline(always)]
    fn multiply_add(
        self,
        [mut low, mut high]: Self::Products,
        [h0, h1, h2]: [L::Vector; 3],
        &([r0, r1, r2], [s1, s2]): &Self::Multiplier,
    ) -> Self::Products {
        let Self(l) = self;
        // Unrolled in the source, because the compiler would not unroll a loop. h0 comes last
        // because it is known last.
        macro_rules! add {
            ($limb:literal, $($a:ident * $b:ident),+) => {
                $(
                    low[$limb] = l.multiply_add_low(low[$limb], $a, $b);
                    high[$limb] = l.multiply_add_high(high[$limb], $a, $b);
                )+
            };
        }
        add!(0, h2 * s1, h1 * s2, h0 * r0);
        add!(1, h2 * s2, h1 * r0, h0 * r1);
        add!(2, h2 * r0, h1 * r1, h0 * r2);
        [low, high]
    }

    #[inline(always)]
    fn reduced(self, [low, high]: Self::Products) -> [L::Vector; 3] {
        let Self(l) = self;
        let mask = l.splat(MASK44);
        // High parts begin at bit 52 of their product: 52 - 44 = 8 and 52 - 42 = 10.
        let carry = l.add(l.shift_left::<8>(high[0]), l.shift_right::<44>(low[0]));
        let h0 = l.and(low[0], mask);
        let low1 = l.add(low[1], carry);
        let carry = l.add(l.shift_left::<8>(high[1]), l.shift_right::<44>(low1));
        let h1 = l.and(low1, mask);
        let low2 = l.add(low[2], carry);
        let carry = l.add(l.shift_left::<10>(high[2]), l.shift_right::<42>(low2));
        let h2 = l.and(low2, l.splat(MASK42));
        // 2^130 is 5. The carry out of h0 stays in h1, which has room for it.
        let h0 = l.add(h0, times_five(l, carry));
        let h1 = l.add(h1, l.shift_right::<44>(h0));
        [l.and(h0, mask), h1, h2]
    }

    #[inline(always)]
    fn words(self, [mut h0, mut h1, mut h2]: [L::Vector; 3]) -> (L::Vector, L::Vector) {
        let Self(l) = self;
        let mask = l.splat(MASK44);
        // h is only slightly above 2^130 at most, so the prime is contained at most once.
        h0 = l.add(h0, times_five(l, l.shift_right::<42>(h2)));
        h2 = l.and(h2, l.splat(MASK42));
        // h + 5 reaches 2^130 exactly if h is at least the prime. Then the residue is h + 5 -
        // 2^130.
        let carry = l.shift_right::<44>(l.add(h0, l.splat(5)));
        let carry = l.shift_right::<44>(l.add(h1, carry));
        let times = l.shift_right::<42>(l.add(h2, carry));
        h0 = l.add(h0, times_five(l, times));
        h1 = l.add(h1, l.shift_right::<44>(h0));
        h2 = l.add(h2, l.shift_right::<44>(h1));
        let (h0, h1) = (l.and(h0, mask), l.and(h1, mask));
        (
            l.or(h0, l.shift_left::<44>(h1)),
            // The shift drops bits 128 and 129.
            l.or(l.shift_right::<20>(h1), l.shift_left::<24>(h2)),
        )
    }

    #[inline(always)]
    fn number(self, [low, high, top]: [L::Vector; 3]) -> [L::Vector; 3] {
        let Self(l) = self;
        let [a, b, c] = self.element(low, high);
        [a, b, l.or(c, l.shift_left::<40>(top))]
    }

    #[inline(always)]
    fn sum(self, [a, b, c]: [L::Vector; 3]) -> Number {
        let Self(l) = self;
        let low = u128::from(l.sum(a)) + (u128::from(l.sum(b)) << 44);
        with_top_limb::<40>(low, l.sum(c))
    }

    #[inline(always)]
    fn sum_fours(self, mut limbs: [L::Vector; 3]) -> [L::Vector; 3] {
        for limb in &mut limbs {
            *limb = self.0.sum_fours(*limb);
        }
        limbs
    }

    #[inline(always)]
    fn select(
        self,
        mask: &[u64; MAX_TAGS],
        a: [L::Vector; 3],
        b: [L::Vector; 3],
    ) -> [L::Vector; 3] {
        select_limbs(self.0, mask, a, b)
    }
}
