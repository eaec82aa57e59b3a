//! Multiples of the generator: public keys.

use super::field::{Field, negate_where};
use super::ladder::Digits;
use super::point::{Point, add, add_complete};
use super::scalar::{COMB_GROUPS, Digit, comb_digits};
use super::words::{ONE, Words, ZERO};
use crate::wipe::{overwrite, overwrite_frames};

/// Entry j of group i is (2 j + 1) 16^i G, as (x, y): 32 KiB. The file has little-endian numbers; a
/// test computes them again.
static TABLE: Table = parse(include_bytes!("comb.bin"));

type Table = [[[Words; 2]; 8]; COMB_GROUPS];

const fn parse(bytes: &[u8; size_of::<Table>()]) -> Table {
    let mut table = [[[ZERO; 2]; 8]; COMB_GROUPS];
    let (words, _) = bytes.as_chunks::<8>();
    let mut i = 0;
    while i < words.len() {
        table[i / 64][i / 8 % 8][i / 4 % 2][i % 4] = u64::from_le_bytes(words[i]);
        i += 1;
    }
    table
}

/// The last group.
const LAST: usize = COMB_GROUPS - 1;

/// The entry of a group that a digit says.
#[inline(always)]
fn multiple<F: Field>(f: F, group: usize, digits: &Digits) -> [F::Element; 2] {
    let [x, y] = f.look_up(&TABLE[group], f.per_lane(&digits.index));
    [x, negate_where(f, f.per_lane(&digits.is_negative), &y)]
}

/// `secret` times the generator, in each lane.
#[inline(always)]
pub(crate) fn multiply_generator<F: Field>(f: F, secrets: &[&[u8; 32]]) -> Point<F> {
    let mut digits = [Digits::default(); COMB_GROUPS];
    for (lane, secret) in secrets.iter().enumerate() {
        let mut of_secret = comb_digits(secret);
        for (digits, digit) in digits.iter_mut().zip(of_secret) {
            digits.set(lane, digit);
        }
        overwrite(&mut of_secret, [Digit::default(); COMB_GROUPS]);
    }
    overwrite_frames();
    let [x, y] = multiple(f, 0, &digits[0]);
    let mut sum = Point {
        x,
        y: f.carry(&f.sum(&y)),
        z: f.splat(&ONE),
    };
    // Before group i is added, the sum is S times the generator, with |S| < 16^i and S odd, so not zero;
    // what is added, d 16^i, is at least 16^i. Equal or opposite modulo n they are only if S - d 16^i or
    // S + d 16^i, both below 16^(i + 1), is a multiple of n: not before the last group. There the sum is
    // the secret, which is not 0, and the difference is n or -n for two secrets, 30 16^63 and its
    // negative, with d = 15 or -15: the points are equal.
    for (group, digits) in digits.iter().enumerate().skip(1) {
        let [x, y] = multiple(f, group, digits);
        sum = match group {
            LAST => add_complete(f, &sum, &x, &y),
            _ => add(f, &sum, &x, &y).0,
        };
    }
    overwrite(&mut digits, [Digits::default(); COMB_GROUPS]);
    sum
}

#[cfg(test)]
mod tests {
    use super::super::words::{
        self, ONE, P, Words, ZERO, invert_modulo_p, multiply_modulo_p, subtract_modulo_p,
    };
    use super::{COMB_GROUPS, TABLE, Table};

    /// The generator (SEC 2, section 2.4.1).
    const GENERATOR: [Words; 2] = [
        [
            0x59f2_815b_16f8_1798,
            0x029b_fcdb_2dce_28d9,
            0x55a0_6295_ce87_0b07,
            0x79be_667e_f9dc_bbac,
        ],
        [
            0x9c47_d08f_fb10_d4b8,
            0xfd17_b448_a685_5419,
            0x5da4_fbfc_0e11_08a8,
            0x483a_da77_26a3_c465,
        ],
    ];

    /// (X, Y, Z) in Jacobian coordinates.
    type Jacobian = [Words; 3];

    fn square(a: &Words) -> Words {
        multiply_modulo_p(a, a)
    }

    fn twice(a: &Words) -> Words {
        words::add_modulo(a, a, &P)
    }

    /// See [`super::point::double`].
    fn double([x, y, z]: &Jacobian) -> Jacobian {
        let yy = square(y);
        let xx = square(x);
        let m = words::add_modulo(&twice(&xx), &xx, &P);
        let s = twice(&twice(&multiply_modulo_p(x, &yy)));
        let x = subtract_modulo_p(&square(&m), &twice(&s));
        let yyyy_8 = twice(&twice(&twice(&square(&yy))));
        let y_new = multiply_modulo_p(&m, &subtract_modulo_p(&s, &x));
        [
            x,
            subtract_modulo_p(&y_new, &yyyy_8),
            twice(&multiply_modulo_p(y, z)),
        ]
    }

    /// The sum of different points (Cohen, Miyaji, Ono 1998).
    fn sum([x1, y1, z1]: &Jacobian, [x2, y2, z2]: &Jacobian) -> Jacobian {
        let (zz1, zz2) = (square(z1), square(z2));
        let u1 = multiply_modulo_p(x1, &zz2);
        let u2 = multiply_modulo_p(x2, &zz1);
        let s1 = multiply_modulo_p(y1, &multiply_modulo_p(&zz2, z2));
        let s2 = multiply_modulo_p(y2, &multiply_modulo_p(&zz1, z1));
        let h = subtract_modulo_p(&u2, &u1);
        let r = subtract_modulo_p(&s2, &s1);
        let hh = square(&h);
        let hhh = multiply_modulo_p(&hh, &h);
        let v = multiply_modulo_p(&u1, &hh);
        let x = subtract_modulo_p(&subtract_modulo_p(&square(&r), &hhh), &twice(&v));
        let y = multiply_modulo_p(&r, &subtract_modulo_p(&v, &x));
        [
            x,
            subtract_modulo_p(&y, &multiply_modulo_p(&s1, &hhh)),
            multiply_modulo_p(&multiply_modulo_p(z1, z2), &h),
        ]
    }

    fn table() -> Table {
        let mut points = [[[ZERO; 3]; 8]; COMB_GROUPS];
        // The product of all Z before each point.
        let mut products = [[ZERO; 8]; COMB_GROUPS];
        let mut product = ONE;
        let mut base = [GENERATOR[0], GENERATOR[1], ONE];
        let mut group = 0;
        while group < COMB_GROUPS {
            let base_2 = double(&base);
            let mut point = base;
            let mut entry = 0;
            while entry < 8 {
                points[group][entry] = point;
                products[group][entry] = product;
                product = multiply_modulo_p(&product, &point[2]);
                point = sum(&point, &base_2);
                entry += 1;
            }
            base = double(&double(&double(&base_2)));
            group += 1;
        }
        let mut table = [[[ZERO; 2]; 8]; COMB_GROUPS];
        let mut inverse = invert_modulo_p(&product);
        while group > 0 {
            group -= 1;
            let mut entry = 8;
            while entry > 0 {
                entry -= 1;
                let [x, y, z] = &points[group][entry];
                let own = multiply_modulo_p(&inverse, &products[group][entry]);
                inverse = multiply_modulo_p(&inverse, z);
                let own_2 = square(&own);
                table[group][entry] = [
                    multiply_modulo_p(x, &own_2),
                    multiply_modulo_p(y, &multiply_modulo_p(&own_2, &own)),
                ];
            }
        }
        table
    }

    #[test]
    fn the_table_has_multiples_of_the_generator() {
        assert_eq!(TABLE, table());
    }
}
