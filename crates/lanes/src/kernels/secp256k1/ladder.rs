//! Multiples of points of which only the x coordinate is known and wanted: the shared secret of
//! BIP324.

use super::field::{Field, MAX_LANES, negate_where};
use super::point::{BETA, Point, add, add_complete, double};
use super::scalar::{Digit, LADDER_GROUPS, ladder_digits};
use super::words::ONE;
use crate::wipe::{overwrite, overwrite_frames};

/// A fraction in each lane.
pub(crate) struct Fraction<F: Field> {
    pub(crate) numerator: F::Element,
    pub(crate) denominator: F::Element,
}

impl<F: Field> Clone for Fraction<F> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Field> Copy for Fraction<F> {}

impl<F: Field> Fraction<F> {
    /// `b` where the mask is all ones, `a` where it is 0.
    #[inline(always)]
    pub(crate) fn select(f: F, mask: F::Vector, a: &Self, b: &Self) -> Self {
        Self {
            numerator: f.select(mask, &a.numerator, &b.numerator),
            denominator: f.select(mask, &a.denominator, &b.denominator),
        }
    }
}

#[inline(always)]
fn cube<F: Field>(f: F, a: &F::Element) -> F::Element {
    f.multiply(&f.square(a), a)
}

/// n^3 + 7 d^3. With the factor d, it is a square if n / d is the x of a point.
#[inline(always)]
pub(crate) fn curve<F: Field>(
    f: F,
    Fraction {
        numerator,
        denominator,
    }: &Fraction<F>,
) -> F::Element {
    let seven = f.splat(&[7, 0, 0, 0]);
    f.multiply_add(&cube(f, denominator), &seven, &f.sum(&cube(f, numerator)))
}

/// Odd multiples of a point: A, 3A, ... 15A.
struct Table<F: Field> {
    /// The x of the multiples, and those of lambda times them.
    x: [[F::Element; 8]; 2],
    y: [F::Element; 8],
}

impl<F: Field> Table<F> {
    /// The entries' coordinates on an isomorphic curve, on which they are affine, and the Z by which
    /// a point there is one of the curve of (x, y).
    #[inline(always)]
    fn new(f: F, x: F::Element, y: F::Element) -> (Self, F::Element) {
        let one = f.splat(&ONE);
        let twice = double(f, &Point { x, y, z: one });
        // Where 2A is affine, A has these coordinates.
        let zz = f.square(&twice.z);
        let x = f.multiply(&x, &zz);
        let y = f.multiply(&y, &f.multiply(&zz, &twice.z));
        let mut last = Point { x, y, z: one };
        let (mut xs, mut ys) = ([x; 8], [y; 8]);
        let mut factors = [one; 8];
        for i in 1..8 {
            (last, factors[i]) = add(f, &last, &twice.x, &twice.y);
            xs[i] = last.x;
            ys[i] = last.y;
        }
        // All get the last one's Z.
        let mut factor = factors[7];
        for i in (0..7).rev() {
            let square = f.square(&factor);
            xs[i] = f.multiply(&xs[i], &square);
            ys[i] = f.multiply(&ys[i], &f.multiply(&square, &factor));
            factor = f.multiply(&factor, &factors[i]);
        }
        let beta = f.splat(&BETA);
        let mut lambda_xs = xs;
        for x in &mut lambda_xs {
            *x = f.multiply(x, &beta);
        }
        let table = Self {
            x: [xs, lambda_xs],
            y: ys,
        };
        (table, f.multiply(&last.z, &twice.z))
    }

    /// The multiple that a digit says; of part 1, lambda times it. Reads the whole table.
    #[inline(always)]
    fn look_up(&self, f: F, digits: &Digits, part: usize) -> [F::Element; 2] {
        let index = f.per_lane(&digits.index);
        let xs = &self.x[part];
        let (mut x, mut y) = (xs[0], self.y[0]);
        for (i, (other_x, other_y)) in xs.iter().zip(&self.y).enumerate().skip(1) {
            let mask = f.equals(index, i as u64);
            x = f.select(mask, &x, other_x);
            y = f.select(mask, &y, other_y);
        }
        [x, negate_where(f, f.per_lane(&digits.is_negative), &y)]
    }
}

/// A digit in each lane.
#[derive(Clone, Copy, Default)]
pub(crate) struct Digits {
    pub(crate) index: [u64; MAX_LANES],
    pub(crate) is_negative: [u64; MAX_LANES],
}

impl Digits {
    pub(crate) fn set(&mut self, lane: usize, digit: Digit) {
        self.index[lane] = digit.index;
        self.is_negative[lane] = digit.is_negative;
    }
}

/// The x coordinate of `secret` times the point with the x coordinate `x`, in each lane. `x` must be
/// that of a point, and `curve` what [`curve`] gives for it.
///
/// With g = n^3 + 7 d^3, (g n, g^2) is a point of y^2 = x^3 + 7 (g d)^3, and this curve is isomorphic
/// to ours, with x divided by g d, since g d is a square. So no root is needed. The formulas do not
/// contain the curve's constant.
#[inline(always)]
pub(crate) fn x_only<F: Field>(
    f: F,
    secrets: &[&[u8; 32]],
    x: &Fraction<F>,
    curve: &F::Element,
) -> Fraction<F> {
    let mut digits = [[Digits::default(); 2]; LADDER_GROUPS];
    for (lane, secret) in secrets.iter().enumerate() {
        let mut parts = ladder_digits(secret);
        for (group, digits) in digits.iter_mut().enumerate() {
            for (digits, part) in digits.iter_mut().zip(&parts) {
                digits.set(lane, part[group]);
            }
        }
        overwrite(&mut parts, [[Digit::default(); LADDER_GROUPS]; 2]);
    }
    overwrite_frames();

    let (table, z) = Table::new(f, f.multiply(curve, &x.numerator), f.square(curve));
    let top = LADDER_GROUPS - 1;
    let [x_top, y_top] = table.look_up(f, &digits[top][0], 0);
    let mut sum = Point {
        x: x_top,
        y: f.carry(&f.sum(&y_top)),
        z: f.splat(&ONE),
    };
    let [x_lambda, y_lambda] = table.look_up(f, &digits[top][1], 1);
    (sum, _) = add(f, &sum, &x_lambda, &y_lambda);
    // The sum is (a + b lambda) A, and what is added (d, 0) or (0, d) with an odd |d| of at most 15. They
    // are equal or opposite only if (a, b) minus or plus that is in the lattice of all (a, b) with
    // a + b lambda = 0 modulo n; the sum is at infinity only if (a, b) is. None of these is (0, 0): in a
    // group's first addition b is 16 times an odd number, in the second a is odd; above, both are 1 or
    // -1. All other vectors of the lattice are longer than 2^127. Before the last group, |a| and |b|
    // are below 2^126. So only the last group could need complete additions. (No secret key has the
    // digits that need them: docs/internals/secp256k1.md, "Points".)
    for group in (0..top).rev() {
        for _ in 0..4 {
            sum = double(f, &sum);
        }
        for (part, digits) in digits[group].iter().enumerate() {
            let [x, y] = table.look_up(f, digits, part);
            sum = match group {
                0 => add_complete(f, &sum, &x, &y),
                _ => add(f, &sum, &x, &y).0,
            };
        }
    }
    overwrite(&mut digits, [[Digits::default(); 2]; LADDER_GROUPS]);
    let z = f.multiply(&sum.z, &z);
    let factor = f.multiply(&f.square(&z), &f.multiply(curve, &x.denominator));
    Fraction {
        numerator: sum.x,
        denominator: factor,
    }
}
