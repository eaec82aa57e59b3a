//! Five limbs of 52 bits, for vectors that multiply such limbs (AVX-512 IFMA).
//!
//! The limbs of an element are below 2^52, its top limb below 2^49: a multiplication takes 52 bits of
//! each factor and drops the others silently. 2^260 is 2^36 + 15,632 modulo p.

use super::field::Field;
use super::limbs;
use super::words::Words;
use crate::vector::{Limbs52, Masks, U64Lanes};

const LIMBS: usize = 5;
const BITS: u32 = 52;
const MASK: u64 = (1 << BITS) - 1;

/// Bits of the top limb of a number below 2^256.
const TOP_BITS: u32 = 48;
const TOP_MASK: u64 = (1 << TOP_BITS) - 1;

/// 2^256 modulo p.
const FOLD_256: u64 = 0x1_0000_03d1;

/// 2^260 modulo p.
const FOLD_260: u64 = FOLD_256 << 4;

/// The limbs of p.
const P: [u64; LIMBS] = [0xf_fffe_ffff_fc2f, MASK, MASK, MASK, TOP_MASK];

/// Numbers in limbs; limb i has the weight 2^(52 i).
#[derive(Clone, Copy)]
pub(crate) struct Radix52<L>(pub(crate) L);

type Limbs<L> = [<L as U64Lanes>::Vector; LIMBS];
type Columns<L> = [<L as U64Lanes>::Vector; 2 * LIMBS];

impl<L: Limbs52 + Masks> Radix52<L> {
    #[inline(always)]
    fn zero(self) -> Columns<L> {
        [self.0.splat(0); 2 * LIMBS]
    }

    /// A sum in the lower columns.
    #[inline(always)]
    fn columns(self, sum: &Limbs<L>) -> Columns<L> {
        let mut columns = self.zero();
        columns[..LIMBS].copy_from_slice(sum);
        columns
    }

    /// Adds a product to columns.
    #[inline(always)]
    fn product(self, mut sums: Columns<L>, a: &Limbs<L>, b: &Limbs<L>) -> Columns<L> {
        let Self(l) = self;
        for i in 0..LIMBS {
            for j in 0..LIMBS {
                sums[i + j] = l.multiply_add_low(sums[i + j], a[i], b[j]);
                sums[i + j + 1] = l.multiply_add_high(sums[i + j + 1], a[i], b[j]);
            }
        }
        sums
    }

    /// The columns of a square.
    #[inline(always)]
    fn squares(self, a: &Limbs<L>) -> Columns<L> {
        let Self(l) = self;
        let mut sums = self.zero();
        for i in 0..LIMBS {
            for j in i + 1..LIMBS {
                sums[i + j] = l.multiply_add_low(sums[i + j], a[i], a[j]);
                sums[i + j + 1] = l.multiply_add_high(sums[i + j + 1], a[i], a[j]);
            }
        }
        for sum in &mut sums {
            *sum = l.add(*sum, *sum);
        }
        for i in 0..LIMBS {
            sums[2 * i] = l.multiply_add_low(sums[2 * i], a[i], a[i]);
            sums[2 * i + 1] = l.multiply_add_high(sums[2 * i + 1], a[i], a[i]);
        }
        sums
    }

    /// Adds the upper columns, which have the weight 2^260 and more, to the lower ones.
    #[inline(always)]
    fn folded(self, mut c: Columns<L>) -> Limbs<L> {
        let Self(l) = self;
        let fold = l.splat(FOLD_260);
        for i in LIMBS..2 * LIMBS - 1 {
            c[i + 1] = l.add(c[i + 1], l.shift_right::<BITS>(c[i]));
            c[i] = l.low_52(c[i]);
        }
        for i in 0..LIMBS {
            c[i] = l.multiply_add_low(c[i], c[LIMBS + i], fold);
        }
        for i in 0..LIMBS - 1 {
            c[i + 1] = l.multiply_add_high(c[i + 1], c[LIMBS + i], fold);
        }
        // The upper bits of the last product lie above 2^260 again.
        let top = l.multiply_add_high(l.splat(0), c[2 * LIMBS - 1], fold);
        c[0] = l.multiply_add_low(c[0], top, fold);
        c[1] = l.multiply_add_high(c[1], top, fold);
        let [a, b, c, d, e, ..] = c;
        [a, b, c, d, e]
    }

    /// Cuts four words into limbs.
    #[inline(always)]
    fn cut(self, [a, b, c, d]: [L::Vector; 4]) -> Limbs<L> {
        let Self(l) = self;
        let mask = l.splat(MASK);
        [
            l.and(a, mask),
            l.and(l.or(l.shift_right::<52>(a), l.shift_left::<12>(b)), mask),
            l.and(l.or(l.shift_right::<40>(b), l.shift_left::<24>(c)), mask),
            l.and(l.or(l.shift_right::<28>(c), l.shift_left::<36>(d)), mask),
            l.shift_right::<16>(d),
        ]
    }

    #[inline(always)]
    fn carried(self, sum: &Limbs<L>) -> Limbs<L> {
        let Self(l) = self;
        let mask = l.splat(MASK);
        let above = l.shift_right::<TOP_BITS>(sum[4]);
        let mut limbs = *sum;
        limbs[4] = l.and(sum[4], l.splat(TOP_MASK));
        limbs[0] = l.multiply_add_low(limbs[0], above, l.splat(FOLD_256));
        for i in 0..LIMBS - 1 {
            limbs[i + 1] = l.add(limbs[i + 1], l.shift_right::<BITS>(limbs[i]));
            limbs[i] = l.and(limbs[i], mask);
        }
        limbs
    }

    /// The element with these columns.
    #[inline(always)]
    fn reduce(self, columns: Columns<L>) -> Limbs<L> {
        self.carried(&self.folded(columns))
    }
}

impl<L: Limbs52 + Masks> Field for Radix52<L> {
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
            |l, (a, b)| {
                let f = Radix52(l);
                f.reduce(f.product(f.zero(), a, b))
            },
        )
    }

    #[inline(always)]
    fn multiply_times<const K: u64>(self, a: &Limbs<L>, b: &Limbs<L>) -> Limbs<L> {
        self.0.call(
            (a, b),
            #[inline(always)]
            |l, (a, b)| {
                let f = Radix52(l);
                let sum = f.folded(f.product(f.zero(), a, b));
                f.carried(&limbs::times::<K, LIMBS, L>(l, &sum))
            },
        )
    }

    #[inline(always)]
    fn multiply_add(self, a: &Limbs<L>, b: &Limbs<L>, c: &Limbs<L>) -> Limbs<L> {
        self.0.call(
            (a, b, c),
            #[inline(always)]
            |l, (a, b, c)| {
                let f = Radix52(l);
                f.reduce(f.product(f.columns(c), a, b))
            },
        )
    }

    #[inline(always)]
    fn multiply_two(self, a: &Limbs<L>, b: &Limbs<L>, c: &Limbs<L>, d: &Limbs<L>) -> Limbs<L> {
        self.0.call(
            (a, b, c, d),
            #[inline(always)]
            |l, (a, b, c, d)| {
                let f = Radix52(l);
                f.reduce(f.product(f.product(f.zero(), a, b), c, d))
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
                let f = Radix52(l);
                f.carried(&limbs::add(l, &f.folded(f.squares(a)), c))
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
                    power = Radix52(l).reduce(Radix52(l).squares(&power));
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
        // 2^(K + 2) p has larger limbs than 2^K a.
        limbs::minus::<K, LIMBS, L>(self.0, a, &P, K + 2)
    }

    #[inline(always)]
    fn carry(self, a: &Limbs<L>) -> Limbs<L> {
        self.0.call(
            a,
            #[inline(always)]
            |l, a| Radix52(l).carried(a),
        )
    }

    #[inline(always)]
    fn factor(self, a: &Limbs<L>) -> Limbs<L> {
        self.carry(a)
    }
}
