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
    use super::super::field::{Field, MAX_LANES};
    use super::super::public_keys;
    use super::super::radix29::Radix29;
    use super::super::words::{Words, ZERO, multiply_modulo_p, subtract_modulo_p};
    use super::{Point, add_complete};
    use crate::vector::Scalar;

    const F: Radix29<Scalar> = Radix29(Scalar);

    fn multiple(of_generator: u8) -> [Words; 2] {
        let mut secret = [0; 32];
        secret[31] = of_generator;
        let mut keys = [[ZERO; 2]];
        public_keys(F, &[&secret], &mut keys);
        keys[0]
    }

    /// In Jacobian coordinates, with a Z that is not one.
    fn scaled([x, y]: [Words; 2], z: u64) -> Point<Radix29<Scalar>> {
        let z = [z, 0, 0, 0];
        let zz = multiply_modulo_p(&z, &z);
        let zzz = multiply_modulo_p(&zz, &z);
        Point {
            x: F.splat(&multiply_modulo_p(&x, &zz)),
            y: F.splat(&multiply_modulo_p(&y, &zzz)),
            z: F.splat(&z),
        }
    }

    fn words(element: &<Radix29<Scalar> as Field>::Element) -> Words {
        let mut numbers = [ZERO; MAX_LANES];
        F.store(element, &mut numbers);
        numbers[0]
    }

    #[test]
    fn complete_addition_has_no_exceptions() {
        let [one, two, three] = [1, 2, 3].map(multiple);
        let minus = [one[0], subtract_modulo_p(&ZERO, &one[1])];
        let infinity = scaled(two, 0);
        for (p, [x, y], expected) in [
            (scaled(two, 5), one, Some(three)),
            (scaled(one, 5), one, Some(two)),
            (scaled(one, 5), minus, None),
            (infinity, one, Some(one)),
        ] {
            let sum = add_complete(F, &p, &F.splat(&x), &F.splat(&y));
            let z = words(&sum.z);
            match expected {
                None => assert_eq!(z, ZERO),
                Some([x, y]) => {
                    let zz = multiply_modulo_p(&z, &z);
                    let zzz = multiply_modulo_p(&zz, &z);
                    assert_ne!(z, ZERO);
                    assert_eq!(words(&sum.x), multiply_modulo_p(&x, &zz));
                    assert_eq!(words(&sum.y), multiply_modulo_p(&y, &zzz));
                }
            }
        }
    }
}
