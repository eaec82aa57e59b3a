//! Points on y^2 = x^3 + b, in Jacobian coordinates: x = X / Z^2, y = Y / Z^3. Z is zero for the
//! point at infinity. No formula contains b.

use super::field::{Field, MAX_LANES, difference};
use super::words::{self, ONE, Words, ZERO};

/// The cube root of 1 modulo p with lambda (x, y) = (beta x, y); see
/// [`ladder_digits`](super::scalar::ladder_digits).
pub(crate) const BETA: Words = [
    0xc139_6c28_7195_01ee,
    0x9cf0_4975_12f5_8995,
    0x6e64_479e_ac34_34e9,
    0x7ae9_6a2b_657c_0710,
];

/// A point in each lane.
pub(crate) struct Point<F: Field> {
    pub(crate) x: F::Element,
    pub(crate) y: F::Element,
    pub(crate) z: F::Element,
}

impl<F: Field> Clone for Point<F> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Field> Copy for Point<F> {}

/// 2 P. With M = 3 X^2, S = 4 X Y^2: X' = M^2 - 2 S, Y' = M (S - X') - 8 Y^4, Z' = 2 Y Z (Cohen,
/// Miyaji, Ono 1998). Complete, since no point has order two: Y is never zero.
#[inline(always)]
pub(crate) fn double<F: Field>(f: F, p: &Point<F>) -> Point<F> {
    let yy = f.square(&p.y);
    let m = f.multiply_times::<3>(&p.x, &p.x);
    let s = f.multiply_times::<4>(&p.x, &yy);
    let x = f.square_add(&m, &f.minus::<1>(&s));
    let s_x = f.factor(&f.add(&f.sum(&s), &f.minus::<0>(&x)));
    let minus_8_yy = f.carry(&f.minus::<3>(&yy));
    Point {
        x,
        y: f.multiply_two(&s_x, &m, &minus_8_yy, &yy),
        z: f.multiply_times::<2>(&p.y, &p.z),
    }
}

/// P + (x, y), and the factor by which Z was multiplied. With H = X - x Z^2 and R = Y - y Z^3:
/// X' = R^2 + H^3 - 2 X H^2, Y' = R (X' - X H^2) + Y H^3 with its sign changed, Z' = Z H (Cohen,
/// Miyaji, Ono 1998, with both signs of H and R changed). `y` may be a factor.
///
/// Incomplete: if the points are equal or opposite, and if P is at infinity, Z' is zero.
#[inline(always)]
pub(crate) fn add<F: Field>(
    f: F,
    p: &Point<F>,
    x: &F::Element,
    y: &F::Element,
) -> (Point<F>, F::Element) {
    let minus_zz = f.carry(&f.minus::<0>(&f.square(&p.z)));
    let h = f.multiply_add(x, &minus_zz, &f.sum(&p.x));
    let minus_zzz = f.multiply(&minus_zz, &p.z);
    let r = f.multiply_add(y, &minus_zzz, &f.sum(&p.y));
    let hh = f.square(&h);
    let hhh = f.multiply(&hh, &h);
    let v = f.multiply(&p.x, &hh);
    let x = f.square_add(&r, &f.add(&f.sum(&hhh), &f.minus::<1>(&v)));
    let x_v = f.factor(&f.add(&f.sum(&x), &f.minus::<0>(&v)));
    let minus_y = f.multiply_two(&x_v, &r, &p.y, &hhh);
    let sum = Point {
        x,
        y: f.carry(&f.minus::<0>(&minus_y)),
        z: f.multiply(&p.z, &h),
    };
    (sum, h)
}

/// P + (x, y), also if the points are equal or opposite, or if P is at infinity.
#[inline(always)]
pub(crate) fn add_complete<F: Field>(
    f: F,
    p: &Point<F>,
    x: &F::Element,
    y: &F::Element,
) -> Point<F> {
    let y = f.carry(&f.sum(y));
    let zz = f.square(&p.z);
    let zzz = f.multiply(&zz, &p.z);
    let same_x = is_zero(f, &difference(f, &f.multiply(x, &zz), &p.x));
    let same_y = is_zero(f, &difference(f, &f.multiply(&y, &zzz), &p.y));
    let infinite = is_zero(f, &p.z);
    let (sum, _) = add(f, p, x, &y);
    let twice = double(f, p);
    let one = f.splat(&ONE);
    let other = Point { x: *x, y, z: one };
    // Opposite points have the same x only, and the sum's Z is zero.
    let sum = select(f, f.and(same_x, same_y), &sum, &twice);
    select(f, infinite, &sum, &other)
}

/// `b` where the mask is all ones, `a` where it is 0.
#[inline(always)]
fn select<F: Field>(f: F, mask: F::Vector, a: &Point<F>, b: &Point<F>) -> Point<F> {
    Point {
        x: f.select(mask, &a.x, &b.x),
        y: f.select(mask, &a.y, &b.y),
        z: f.select(mask, &a.z, &b.z),
    }
}

/// A mask that is all ones in the lanes where the element is zero.
#[inline(always)]
fn is_zero<F: Field>(f: F, a: &F::Element) -> F::Vector {
    let mut numbers = [ZERO; MAX_LANES];
    f.store(a, &mut numbers);
    f.per_lane(&numbers.map(|number| words::is_zero(&number)))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::super::field::{Field, MAX_LANES};
    use super::super::radix29::Radix29;
    use super::super::radix52::Radix52;
    use super::super::words::{ONE, P, Words, ZERO, add_modulo, invert_modulo_p};
    use super::super::words::{multiply_modulo_p, subtract_modulo_p};
    use super::{Point, add, add_complete, double};
    use crate::vector::Scalar;
    use std::vec;
    use std::vec::Vec;

    /// Groups on y^2 = x^3 + 2, 4 and 6, on which the formulas hold, too: the order and a generator of
    /// each. libsecp256k1 tests groups of these orders.
    const GROUPS: [(usize, [Words; 2]); 3] = [
        (
            13,
            [
                [
                    0x88e4_89aa_3d68_746b,
                    0x929c_645b_e565_84aa,
                    0x346a_9753_30b1_2e1d,
                    0x3ad3_e1ec_92dc_070a,
                ],
                [
                    0x6c60_7f91_c852_0383,
                    0xf150_65bc_0910_01aa,
                    0xf787_bb15_bc0b_9fc1,
                    0xab34_e494_2373_ed8c,
                ],
            ],
        ),
        (
            199,
            [
                [
                    0xfb12_940c_9ea6_6c18,
                    0x3b01_7a7d_a808_c2f1,
                    0xa749_dd39_2b4f_b069,
                    0xfa7c_c9a7_0737_f2db,
                ],
                [
                    0xcfe5_2572_7f05_01ed,
                    0x48df_246c_808d_ae72,
                    0x8732_bc91_1f3a_2868,
                    0x78ac_123a_5ed8_aef3,
                ],
            ],
        ),
        (
            7,
            [
                [
                    0x8aac_46fb_6d5a_117a,
                    0x47bb_0e87_da93_e067,
                    0x0b64_da9c_b2fa_f6e0,
                    0xb79a_a770_5104_bae0,
                ],
                [
                    0xda85_7e9c_ba27_cdbc,
                    0x73fe_a012_dee4_a381,
                    0x73c2_e8a7_fa9f_d98e,
                    0x3e75_38a8_2c91_f813,
                ],
            ],
        ),
    ];

    /// x and y; `None` is the point at infinity.
    type Affine = Option<[Words; 2]>;

    /// The sum by the rules for lines through points.
    fn affine_sum(p: Affine, q: Affine) -> Affine {
        let (Some([x1, y1]), Some([x2, y2])) = (p, q) else {
            return p.or(q);
        };
        let slope = if x1 != x2 {
            let inverse = invert_modulo_p(&subtract_modulo_p(&x2, &x1));
            multiply_modulo_p(&subtract_modulo_p(&y2, &y1), &inverse)
        } else if y1 == y2 {
            let xx = multiply_modulo_p(&x1, &x1);
            let xx_3 = add_modulo(&xx, &add_modulo(&xx, &xx, &P), &P);
            multiply_modulo_p(&xx_3, &invert_modulo_p(&add_modulo(&y1, &y1, &P)))
        } else {
            return None;
        };
        let x = subtract_modulo_p(&multiply_modulo_p(&slope, &slope), &x1);
        let x = subtract_modulo_p(&x, &x2);
        let y = multiply_modulo_p(&slope, &subtract_modulo_p(&x1, &x));
        Some([x, subtract_modulo_p(&y, &y1)])
    }

    /// In Jacobian coordinates, with this Z.
    fn jacobian<F: Field>(f: F, p: Affine, z: u64) -> Point<F> {
        // Any X and Y will do at infinity.
        let ([x, y], z) = p.map_or(([[3, 0, 0, 0], ONE], 0), |p| (p, z));
        let z = [z, 0, 0, 0];
        let zz = multiply_modulo_p(&z, &z);
        let zzz = multiply_modulo_p(&zz, &z);
        let (x, y) = match p {
            Some(_) => (multiply_modulo_p(&x, &zz), multiply_modulo_p(&y, &zzz)),
            None => (x, y),
        };
        Point {
            x: f.splat(&x),
            y: f.splat(&y),
            z: f.splat(&z),
        }
    }

    fn words<F: Field>(f: F, element: &F::Element) -> Words {
        let mut numbers = [ZERO; MAX_LANES];
        f.store(element, &mut numbers);
        numbers[0]
    }

    /// Whether `p` is this point.
    fn is<F: Field>(f: F, p: &Point<F>, expected: Affine) -> bool {
        let z = words(f, &p.z);
        let Some([x, y]) = expected else {
            return z == ZERO;
        };
        let zz = multiply_modulo_p(&z, &z);
        let zzz = multiply_modulo_p(&zz, &z);
        z != ZERO
            && words(f, &p.x) == multiply_modulo_p(&x, &zz)
            && words(f, &p.y) == multiply_modulo_p(&y, &zzz)
    }

    /// All sums and doubles in all groups.
    fn check_all<F: Field>(f: F) {
        for (order, generator) in GROUPS {
            let mut multiples: Vec<Affine> = vec![None];
            while let Some(next) = affine_sum(multiples[multiples.len() - 1], Some(generator)) {
                multiples.push(Some(next));
            }
            assert_eq!(multiples.len(), order);
            for (i, p) in multiples.iter().enumerate() {
                let point = jacobian(f, *p, 5 + i as u64);
                let twice = double(f, &point);
                assert!(is(f, &twice, multiples[2 * i % order]), "{order} {i}");
                for (j, q) in multiples.iter().enumerate() {
                    let Some([x, y]) = q else { continue };
                    let (x, y) = (f.splat(x), f.splat(y));
                    let sum = multiples[(i + j) % order];
                    let complete = add_complete(f, &point, &x, &y);
                    assert!(is(f, &complete, sum), "{order} {i} {j}");
                    // Where it is not complete, Z is 0.
                    let (incomplete, _) = add(f, &point, &x, &y);
                    let is_exception = i == 0 || i == j || i + j == order;
                    let expected = sum.filter(|_| !is_exception);
                    assert!(is(f, &incomplete, expected), "{order} {i} {j}");
                }
            }
        }
    }

    #[test]
    fn all_sums_in_small_groups() {
        check_all(Radix29(Scalar));
        check_all(Radix52(Scalar));
    }
}
