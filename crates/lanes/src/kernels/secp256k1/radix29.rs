//! Nine limbs of 29 bits, for vectors with a multiplication of 32 by 32 bits.
//!
//! The limbs of an element are below 2^29, but the third up to 2^29 + 2^14; its top limb is below 2^24.
//! A column of a product is a sum of at most nine products of limbs, so that one factor may have limbs
//! of 2^31 and a little more. 2^261 is 2^37 + 31,264 modulo p.

use super::field::Field;
use super::limbs;
use super::words::Words;
use crate::vector::{Limbs26, Masks, U64Lanes};

const LIMBS: usize = 9;
const BITS: u32 = 29;
const MASK: u64 = (1 << BITS) - 1;

/// Bits of the top limb of a number below 2^256.
const TOP_BITS: u32 = 24;
const TOP_MASK: u64 = (1 << TOP_BITS) - 1;

/// The limbs of p.
const P: [u64; LIMBS] = [
    MASK - 976,
    MASK - 8,
    MASK,
    MASK,
    MASK,
    MASK,
    MASK,
    MASK,
    TOP_MASK,
];

/// Numbers in limbs; limb i has the weight 2^(29 i).
#[derive(Clone, Copy)]
pub(crate) struct Radix29<L>(pub(crate) L);

type Limbs<L> = [<L as U64Lanes>::Vector; LIMBS];
type Columns<L> = [<L as U64Lanes>::Vector; 2 * LIMBS - 1];

impl<L: Limbs26 + Masks> Radix29<L> {
    /// The columns of a product.
    #[inline(always)]
    fn product(self, a: &Limbs<L>, b: &Limbs<L>) -> Columns<L> {
        let Self(l) = self;
        // Unrolled in the source, because the compiler would not unroll a loop.
        macro_rules! column {
            ($k:literal: $first:literal $($i:literal)*) => {{
                let sum = l.multiply(a[$first], b[$k - $first]);
                $(let sum = l.add(sum, l.multiply(a[$i], b[$k - $i]));)*
                sum
            }};
        }
        [
            column!(0: 0),
            column!(1: 0 1),
            column!(2: 0 1 2),
            column!(3: 0 1 2 3),
            column!(4: 0 1 2 3 4),
            column!(5: 0 1 2 3 4 5),
            column!(6: 0 1 2 3 4 5 6),
            column!(7: 0 1 2 3 4 5 6 7),
            column!(8: 0 1 2 3 4 5 6 7 8),
            column!(9: 1 2 3 4 5 6 7 8),
            column!(10: 2 3 4 5 6 7 8),
            column!(11: 3 4 5 6 7 8),
            column!(12: 4 5 6 7 8),
            column!(13: 5 6 7 8),
            column!(14: 6 7 8),
            column!(15: 7 8),
            column!(16: 8),
        ]
    }

    /// The columns of a square.
    #[inline(always)]
    fn squares(self, a: &Limbs<L>) -> Columns<L> {
        let Self(l) = self;
        let twice = self.add(a, a);
        macro_rules! column {
            ($k:literal: $first:literal $($i:literal)*) => {{
                let sum = l.multiply(twice[$first], a[$k - $first]);
                $(let sum = l.add(sum, l.multiply(twice[$i], a[$k - $i]));)*
                sum
            }};
            ($k:literal: $($i:literal)*, $middle:literal) => {{
                let sum = l.multiply(a[$middle], a[$middle]);
                $(let sum = l.add(sum, l.multiply(twice[$i], a[$k - $i]));)*
                sum
            }};
        }
        [
            column!(0:, 0),
            column!(1: 0),
            column!(2: 0, 1),
            column!(3: 0 1),
            column!(4: 0 1, 2),
            column!(5: 0 1 2),
            column!(6: 0 1 2, 3),
            column!(7: 0 1 2 3),
            column!(8: 0 1 2 3, 4),
            column!(9: 1 2 3 4),
            column!(10: 2 3 4, 5),
            column!(11: 3 4 5),
            column!(12: 4 5, 6),
            column!(13: 5 6),
            column!(14: 6, 7),
            column!(15: 7),
            column!(16:, 8),
        ]
    }

    /// Adds a sum to the lower columns.
    #[inline(always)]
    fn add_to(self, mut columns: Columns<L>, sum: &Limbs<L>) -> Columns<L> {
        for (column, limb) in columns.iter_mut().zip(sum) {
            *column = self.0.add(*column, *limb);
        }
        columns
    }

    /// The element with these columns.
    #[inline(always)]
    fn reduce(self, columns: &Columns<L>) -> Limbs<L> {
        let Self(l) = self;
        let mask = l.splat_opaque(MASK);
        let fold = l.splat_opaque(977 << 5);
        // Limbs of what is above 2^261.
        let mut high = [mask; LIMBS];
        let mut carry = columns[LIMBS];
        macro_rules! limb {
            ($($i:literal)+) => {
                $(
                    high[$i] = l.and(carry, mask);
                    carry = l.add(l.shift_right::<BITS>(carry), columns[LIMBS + 1 + $i]);
                )+
            };
        }
        limb!(0 1 2 3 4 5 6);
        high[LIMBS - 2] = l.and(carry, mask);
        high[LIMBS - 1] = l.shift_right::<BITS>(carry);
        let mut low = [l.add(columns[0], l.multiply(high[0], fold)); LIMBS];
        macro_rules! fold {
            ($($i:literal)+) => {
                $(
                    let upper = l.shift_left::<8>(high[$i - 1]);
                    low[$i] = l.add(l.add(columns[$i], upper), l.multiply(high[$i], fold));
                )+
            };
        }
        fold!(1 2 3 4 5 6 7 8);
        // The top limb times 2^37 lies above 2^261 again.
        let top = l.shift_left::<8>(high[LIMBS - 1]);
        low[0] = l.add(low[0], l.multiply(top, fold));
        low[1] = l.add(low[1], l.shift_left::<8>(top));
        self.carried(&low)
    }

    /// Cuts four words into limbs.
    #[inline(always)]
    fn cut(self, [a, b, c, d]: [L::Vector; 4]) -> Limbs<L> {
        let Self(l) = self;
        let mask = l.splat_opaque(MASK);
        [
            l.and(a, mask),
            l.and(l.shift_right::<29>(a), mask),
            l.and(l.or(l.shift_right::<58>(a), l.shift_left::<6>(b)), mask),
            l.and(l.shift_right::<23>(b), mask),
            l.and(l.or(l.shift_right::<52>(b), l.shift_left::<12>(c)), mask),
            l.and(l.shift_right::<17>(c), mask),
            l.and(l.or(l.shift_right::<46>(c), l.shift_left::<18>(d)), mask),
            l.and(l.shift_right::<11>(d), mask),
            l.shift_right::<40>(d),
        ]
    }

    #[inline(always)]
    fn carried(self, sum: &Limbs<L>) -> Limbs<L> {
        let Self(l) = self;
        let mask = l.splat_opaque(MASK);
        let mut limbs = *sum;
        let mut carry = sum[0];
        macro_rules! limb {
            ($($i:literal)+) => {
                $(
                    limbs[$i] = l.and(carry, mask);
                    carry = l.add(l.shift_right::<BITS>(carry), sum[$i + 1]);
                )+
            };
        }
        limb!(0 1 2 3 4 5 6 7);
        let top = carry;
        limbs[LIMBS - 1] = l.and(top, l.splat_opaque(TOP_MASK));
        // What is above 2^256, in two limbs, times 2^32 + 977.
        let above = l.shift_right::<TOP_BITS>(top);
        let (low, high) = (l.and(above, mask), l.shift_right::<BITS>(above));
        let fold = l.splat_opaque(977);
        let first = l.add(limbs[0], l.multiply(low, fold));
        let second = l.add(l.shift_left::<3>(low), l.multiply(high, fold));
        let second = l.add(l.add(limbs[1], second), l.shift_right::<BITS>(first));
        limbs[0] = l.and(first, mask);
        limbs[1] = l.and(second, mask);
        let third = l.add(l.shift_left::<3>(high), l.shift_right::<BITS>(second));
        limbs[2] = l.add(limbs[2], third);
        limbs
    }
}

impl<L: Limbs26 + Masks> Field for Radix29<L> {
    const LANES: usize = L::LANES;
    type Vector = L::Vector;
    type Element = Limbs<L>;
    type Sum = Limbs<L>;

    #[inline(always)]
    fn load(self, numbers: &[Words]) -> Limbs<L> {
        limbs::load::<{ BITS as usize }, LIMBS, L>(self.0, numbers)
    }

    #[inline(always)]
    fn store(self, element: &Limbs<L>, numbers: &mut [Words]) {
        limbs::store::<{ BITS as usize }, LIMBS, L>(self.0, element, numbers);
    }

    #[inline(always)]
    fn splat(self, number: &Words) -> Limbs<L> {
        limbs::splat::<{ BITS as usize }, LIMBS, L>(self.0, number)
    }

    #[inline(always)]
    fn per_lane(self, numbers: &[u64]) -> L::Vector {
        self.0.per_lane(numbers)
    }

    #[inline(always)]
    fn equals(self, a: L::Vector, number: u64) -> L::Vector {
        self.0.equals(a, self.0.splat(number))
    }

    #[inline(always)]
    fn and(self, a: L::Vector, b: L::Vector) -> L::Vector {
        self.0.and(a, b)
    }

    #[inline(always)]
    fn select(self, mask: L::Vector, a: &Limbs<L>, b: &Limbs<L>) -> Limbs<L> {
        limbs::select(self.0, mask, a, b)
    }

    #[inline(always)]
    fn look_up(self, table: &[[Words; 2]; 8], index: L::Vector) -> [Limbs<L>; 2] {
        let Self(l) = self;
        let [x, y] = super::field::look_up(l, table, index);
        [self.cut(x), self.cut(y)]
    }

    #[inline(always)]
    fn multiply(self, a: &Limbs<L>, b: &Limbs<L>) -> Limbs<L> {
        self.0.call(
            (a, b),
            #[inline(always)]
            |l, (a, b)| Radix29(l).reduce(&Radix29(l).product(a, b)),
        )
    }

    #[inline(always)]
    fn multiply_times<const K: u64>(self, a: &Limbs<L>, b: &Limbs<L>) -> Limbs<L> {
        self.multiply(&limbs::times::<K, LIMBS, L>(self.0, a), b)
    }

    #[inline(always)]
    fn multiply_add(self, a: &Limbs<L>, b: &Limbs<L>, c: &Limbs<L>) -> Limbs<L> {
        self.0.call(
            (a, b, c),
            #[inline(always)]
            |l, (a, b, c)| {
                let f = Radix29(l);
                f.reduce(&f.add_to(f.product(a, b), c))
            },
        )
    }

    #[inline(always)]
    fn multiply_two(self, a: &Limbs<L>, b: &Limbs<L>, c: &Limbs<L>, d: &Limbs<L>) -> Limbs<L> {
        self.0.call(
            (a, b, c, d),
            #[inline(always)]
            |l, (a, b, c, d)| {
                let f = Radix29(l);
                let columns = limbs::add(l, &f.product(a, b), &f.product(c, d));
                f.reduce(&columns)
            },
        )
    }

    #[inline(always)]
    fn square(self, a: &Limbs<L>) -> Limbs<L> {
        self.square_times(a, 1)
    }

    #[inline(always)]
    fn square_add(self, a: &Limbs<L>, c: &Limbs<L>) -> Limbs<L> {
        self.0.call(
            (a, c),
            #[inline(always)]
            |l, (a, c)| {
                let f = Radix29(l);
                f.reduce(&f.add_to(f.squares(a), c))
            },
        )
    }

    #[inline(always)]
    fn square_times(self, a: &Limbs<L>, n: usize) -> Limbs<L> {
        self.0.call(
            (a, n),
            #[inline(always)]
            |l, (a, n)| {
                let mut power = *a;
                for _ in 0..n {
                    power = Radix29(l).reduce(&Radix29(l).squares(&power));
                }
                power
            },
        )
    }

    #[inline(always)]
    fn sum(self, a: &Limbs<L>) -> Limbs<L> {
        *a
    }

    #[inline(always)]
    fn add(self, a: &Limbs<L>, b: &Limbs<L>) -> Limbs<L> {
        limbs::add(self.0, a, b)
    }

    #[inline(always)]
    fn minus<const K: u32>(self, a: &Limbs<L>) -> Limbs<L> {
        // 2^(K + 1) p has larger limbs than 2^K a.
        limbs::minus::<K, LIMBS, L>(self.0, a, &P, K + 1)
    }

    #[inline(always)]
    fn carry(self, a: &Limbs<L>) -> Limbs<L> {
        self.0.call(
            a,
            #[inline(always)]
            |l, a| Radix29(l).carried(a),
        )
    }

    #[inline(always)]
    fn factor(self, a: &Limbs<L>) -> Limbs<L> {
        *a
    }
}
