//! ElligatorSwift (BIP324, "ElligatorSwift encoding"): the map from two field elements to the x
//! coordinate of a point, and its inverse. All values here are public.

use super::field::{Field, Kind, MAX_LANES, difference, power, sum_of};
use super::ladder::{Fraction, curve};
use super::point::BETA;
use super::words::{self, ONE, P, Words, ZERO, add_modulo, reduce_once, subtract_modulo_p};
use arrayvec::ArrayVec;

/// beta + 1 = -beta^2 = (1 - sqrt(-3)) / 2
const MINUS_BETA_2: Words = [
    0xc139_6c28_7195_01ef,
    0x9cf0_4975_12f5_8995,
    0x6e64_479e_ac34_34e9,
    0x7ae9_6a2b_657c_0710,
];

/// -beta = (1 + sqrt(-3)) / 2
const MINUS_BETA: Words = subtract_modulo_p(&ZERO, &BETA);

/// beta^2
const BETA_2: Words = subtract_modulo_p(&ZERO, &MINUS_BETA_2);

/// 1 / 2
const HALF: Words = words::halve_modulo(&ONE, &P);

/// Reads a big-endian number modulo p.
pub(crate) fn from_bytes(bytes: &[u8; 32]) -> Words {
    reduce_once(&words::from_bytes(bytes), 0, &P)
}

/// The x coordinates that one 64-byte encoding per lane may stand for (BIP324's `XSwiftEC`): x3 if it
/// is valid, otherwise x2 if that is, otherwise x1.
pub(crate) struct Candidates<F: Field> {
    x1: Fraction<F>,
    x2: Fraction<F>,
    x3: Fraction<F>,
    which: [Which; MAX_LANES],
    /// For each lane a number that is a square if x2 is valid.
    square_of_x2: [Words; MAX_LANES],
}

/// The candidate that counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    X1,
    X2,
    X3,
}

/// Computes the candidates, and which of them are x3.
#[inline(always)]
pub(crate) fn candidates<F: Field>(f: F, encodings: &[&[u8; 64]]) -> Candidates<F> {
    let (mut us, mut ts) = ([ONE; MAX_LANES], [ONE; MAX_LANES]);
    for ((u, t), encoding) in us.iter_mut().zip(&mut ts).zip(encodings) {
        let (halves, _) = encoding.as_chunks();
        let or_one = |number: Words| if number == ZERO { ONE } else { number };
        *u = or_one(from_bytes(&halves[0]));
        *t = or_one(from_bytes(&halves[1]));
    }
    let u = f.load(&us);
    let uu = f.square(&u);
    let g = cube_plus_7(f, &u, &uu);
    // Twice t where u^3 + 7 + t^2 is zero.
    let (mut s, mut sum) = square_and_sum(f, &ts, &g);
    let mut sums = [ONE; MAX_LANES];
    f.store(&sum, &mut sums);
    if sums.contains(&ZERO) {
        for (t, _) in ts.iter_mut().zip(&sums).filter(|(_, sum)| **sum == ZERO) {
            *t = add_modulo(t, t, &P);
        }
        (s, sum) = square_and_sum(f, &ts, &g);
    }
    // With s = t^2: x3 = u - (g + s)^2 / (3 s u^2), x2 = u (beta^2 s + beta g) / (g + s),
    // x1 = -(x2 + u) (libsecp256k1, `ellswift/main_impl.h`).
    let denominator = f.multiply_times::<3>(&s, &uu);
    let numerator = f.multiply(&denominator, &u);
    let x3 = Fraction {
        numerator: difference(f, &numerator, &f.square(&sum)),
        denominator,
    };
    let mix = f.multiply_two(&s, &f.splat(&BETA_2), &g, &f.splat(&BETA));
    let x2 = Fraction {
        numerator: f.multiply(&mix, &u),
        denominator: sum,
    };
    let minus_x1 = f.multiply_add(&sum, &u, &f.sum(&x2.numerator));
    let x1 = Fraction {
        numerator: f.carry(&f.minus::<0>(&minus_x1)),
        denominator: sum,
    };
    let mut square_of_x2 = [ZERO; MAX_LANES];
    f.store(&square_of(f, &x2), &mut square_of_x2);
    let (_, kinds) = root(f, &square_of(f, &x3));
    Candidates {
        x1,
        x2,
        x3,
        which: kinds.map(|kind| match kind {
            Kind::One => Which::X3,
            _ => Which::X1,
        }),
        square_of_x2,
    }
}

/// Finds the lanes among the first `count` whose x2 counts. Only those whose x3 does not are tried,
/// which is half of them, in full vectors.
#[inline(always)]
pub(crate) fn try_x2<F: Field>(f: F, candidates: &mut [Candidates<F>], count: usize) {
    let lanes = candidates.iter_mut().flat_map(|of| {
        let lanes = of.which[..F::LANES].iter_mut();
        lanes.zip(&of.square_of_x2)
    });
    let lanes = lanes.take(count);
    let mut open = lanes.filter(|(which, _)| **which != Which::X3);
    loop {
        let some: ArrayVec<_, MAX_LANES> = open.by_ref().take(F::LANES).collect();
        if some.is_empty() {
            return;
        }
        let mut numbers = [ONE; MAX_LANES];
        for (number, (_, square)) in numbers.iter_mut().zip(&some) {
            *number = **square;
        }
        let (_, kinds) = root(f, &f.load(&numbers));
        for ((which, _), kind) in some.into_iter().zip(kinds) {
            if kind == Kind::One {
                *which = Which::X2;
            }
        }
    }
}

impl<F: Field> Candidates<F> {
    /// The x that the encodings stand for, and what [`curve`] gives for it.
    #[inline(always)]
    pub(crate) fn x(&self, f: F) -> (Fraction<F>, F::Element) {
        let is_x2 = mask(f, &self.which, |which| *which == Which::X2);
        let is_x3 = mask(f, &self.which, |which| *which == Which::X3);
        let x = Fraction::select(f, is_x2, &self.x1, &self.x2);
        let x = Fraction::select(f, is_x3, &x, &self.x3);
        (x, curve(f, &x))
    }
}

/// t^2, and g + t^2.
#[inline(always)]
fn square_and_sum<F: Field>(f: F, ts: &[Words], g: &F::Element) -> (F::Element, F::Element) {
    let s = f.square(&f.load(ts));
    (s, sum_of(f, g, &s))
}

/// A number that is a square if `x` is that of a point.
#[inline(always)]
fn square_of<F: Field>(f: F, x: &Fraction<F>) -> F::Element {
    f.multiply(&curve(f, x), &x.denominator)
}

/// A mask that is all ones in the lanes where `is` holds.
#[inline(always)]
fn mask<F: Field, T>(f: F, lanes: &[T; MAX_LANES], is: fn(&T) -> bool) -> F::Vector {
    let mut masks = [0; MAX_LANES];
    for (mask, lane) in masks.iter_mut().zip(lanes) {
        *mask = u64::from(is(lane)).wrapping_neg();
    }
    f.per_lane(&masks)
}

/// u^3 + 7, from u and u^2.
#[inline(always)]
fn cube_plus_7<F: Field>(f: F, u: &F::Element, uu: &F::Element) -> F::Element {
    f.multiply_add(uu, u, &f.sum(&f.splat(&[7, 0, 0, 0])))
}

/// y = a^((p - 3) / 4), and what a y^2 is: one if a is a square other than zero.
#[inline(always)]
fn root<F: Field>(f: F, a: &F::Element) -> (F::Element, [Kind; MAX_LANES]) {
    let y = power(f, a);
    let character = f.multiply(a, &f.square(&y));
    let mut numbers = [ZERO; MAX_LANES];
    f.store(&character, &mut numbers);
    (y, numbers.map(|number| Kind::of(&number)))
}

/// A try to encode a public key: whether its x has an encoding that begins with `u`, for one of the
/// eight cases of `XSwiftEC`'s inverse.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Try {
    pub(crate) x: Words,
    pub(crate) u: Words,
    /// Bit 1: the inverse of x3, otherwise that of x1 or x2. The others choose among the roots.
    pub(crate) case: u8,
    /// Where bit 1 is set, the root that [`begin`] found.
    root: Words,
}

impl Try {
    pub(crate) fn new(x: Words, u: &[u8; 32], case: u8) -> Self {
        Self {
            x,
            u: from_bytes(u),
            case,
            root: ZERO,
        }
    }

    fn inverts_x3(&self) -> bool {
        self.case & 2 != 0
    }
}

/// The values of tries in lanes.
struct Values<F: Field> {
    x: F::Element,
    u: F::Element,
    uu: F::Element,
    /// u^3 + 7
    g: F::Element,
    /// All ones where the inverse of x3 is wanted.
    inverts_x3: F::Vector,
    lanes: [Try; MAX_LANES],
}

impl<F: Field> Values<F> {
    #[inline(always)]
    fn new(f: F, tries: &[Try]) -> Self {
        let mut lanes = [Try::default(); MAX_LANES];
        lanes[..tries.len()].copy_from_slice(tries);
        let x = f.load(&lanes.map(|of| of.x));
        let u = f.load(&lanes.map(|of| of.u));
        let uu = f.square(&u);
        Self {
            x,
            u,
            g: cube_plus_7(f, &u, &uu),
            uu,
            inverts_x3: mask(f, &lanes, Try::inverts_x3),
            lanes,
        }
    }
}

/// The first half of a try in each lane, of as many as there are lanes. Sets `passed`: half of them
/// pass.
#[inline(always)]
pub(crate) fn begin<F: Field>(f: F, tries: &mut [Try], passed: &mut [bool]) {
    let Values {
        x,
        u,
        uu,
        g,
        inverts_x3,
        ..
    } = Values::new(f, tries);
    // For x1 and x2: -x - u must not be valid, so 7 - (x + u)^3 must not be a square.
    let sum = sum_of(f, &x, &u);
    let cube = f.multiply(&f.square(&sum), &sum);
    let seven = f.sum(&f.splat(&[7, 0, 0, 0]));
    let other = f.carry(&f.add(&seven, &f.minus::<0>(&cube)));
    // For x3, with s = x - u: -s (4 g + 3 s u^2) must be a square.
    let s = difference(f, &x, &u);
    let ssuu_3 = f.multiply(&f.multiply_times::<3>(&s, &uu), &s);
    let sg_4 = f.multiply_times::<4>(&s, &g);
    let square = f.carry(&f.minus::<0>(&sum_of(f, &ssuu_3, &sg_4)));
    let a = f.select(inverts_x3, &other, &square);
    let (y, kinds) = root(f, &a);
    let mut roots = [ZERO; MAX_LANES];
    f.store(&f.multiply(&a, &y), &mut roots);
    for (lane, (of, passed)) in tries.iter_mut().zip(passed).enumerate() {
        of.root = roots[lane];
        *passed = match (of.inverts_x3(), kinds[lane]) {
            (false, kind) => kind == Kind::Other,
            (true, Kind::One) => true,
            (true, Kind::Zero) => of.case & 1 == 0,
            (true, Kind::Other) => false,
        };
    }
}

/// The second half, of tries that passed the first. Sets `found` to t, so that the encoding is u and
/// t, for half of them. The sign of t is that of the case.
#[inline(always)]
pub(crate) fn finish<F: Field>(f: F, tries: &[Try], found: &mut [Option<Words>]) {
    let Values {
        x,
        u,
        uu,
        g,
        inverts_x3,
        lanes,
    } = Values::new(f, tries);
    // For x1 and x2: s = g / S with S = -(u^2 + u x + x^2). With y = (g S^3)^((p - 3) / 4), the root of
    // s is g S y.
    let sum = sum_of(f, &x, &u);
    let uu_ux_xx = f.multiply_add(&sum, &x, &f.sum(&uu));
    let big_s = f.carry(&f.minus::<0>(&uu_ux_xx));
    let big_s_g = f.multiply(&big_s, &g);
    let big_s_3_g = f.multiply(&big_s_g, &f.square(&big_s));
    // For x3: s = x - u.
    let s = difference(f, &x, &u);
    let a = f.select(inverts_x3, &big_s_3_g, &s);
    let (y, kinds) = root(f, &a);
    let w = f.multiply(&f.select(inverts_x3, &big_s_g, &s), &y);
    // For x1 and x2, v is x. For x3, it is (r / s - u) / 2, where r is the root found before.
    let r = f.load(&lanes.map(|of| of.root));
    let r_s = f.multiply(&r, &f.square(&y));
    let half = f.multiply(&difference(f, &r_s, &u), &f.splat(&HALF));
    let v = f.select(inverts_x3, &x, &half);
    let factor = f.select(
        mask(f, &lanes, |of| of.case & 1 != 0),
        &f.splat(&MINUS_BETA_2),
        &f.splat(&MINUS_BETA),
    );
    let t = f.multiply(&w, &f.multiply_add(&u, &factor, &f.sum(&v)));
    let mut ts = [ZERO; MAX_LANES];
    f.store(&t, &mut ts);
    for (lane, (of, found)) in tries.iter().zip(found).enumerate() {
        let signed = match of.case & 5 {
            0 | 5 => subtract_modulo_p(&ZERO, &ts[lane]),
            _ => ts[lane],
        };
        *found = (kinds[lane] == Kind::One).then_some(signed);
    }
}
