//! Proof by interval arithmetic that no limb overflows: the kernels run on intervals instead of
//! numbers, with every element replaced by the interval of all elements. An addition, a shift, a
//! difference or a factor that could leave its bounds fails an assertion.

use super::field::{Field, MAX_LANES};
use super::radix29::Radix29;
use super::radix52::Radix52;
use super::swift::{self, Try};
use super::words::{ONE, Words, ZERO};
use super::{public_keys, shared_x};
use crate::vector::{Limbs26, Limbs52, Masks, U64Lanes};

/// One lane of intervals.
#[derive(Clone, Copy)]
struct Intervals;

/// All numbers from the first to the second.
type Interval = (u64, u64);

/// All numbers with as many bits as `number`.
fn filled(number: u64) -> u64 {
    match number {
        0 => 0,
        _ => u64::MAX >> number.leading_zeros(),
    }
}

impl U64Lanes for Intervals {
    const LANES: usize = 1;
    type Vector = Interval;

    fn splat(self, value: u64) -> Interval {
        (value, value)
    }

    fn per_lane(self, _: &[u64]) -> Interval {
        (0, u64::MAX)
    }

    fn first(self, _: usize, vector: Interval) -> Interval {
        (0, vector.1)
    }

    fn store(self, _: Interval, values: &mut [u64]) {
        values.fill(0);
    }

    unsafe fn load(self, _: &[*const u8], _: usize) -> (Interval, Interval) {
        unreachable!("secp256k1 loads no blocks")
    }

    unsafe fn load_run(self, _: *const u8) -> (Interval, Interval) {
        unreachable!("secp256k1 loads no blocks")
    }

    unsafe fn load_fours(self, _: &[*const u8], _: usize) -> (Interval, Interval) {
        unreachable!("secp256k1 loads no blocks")
    }

    fn sum_fours(self, _: Interval) -> Interval {
        unreachable!("secp256k1 adds no lanes")
    }

    fn sum(self, _: Interval) -> u64 {
        unreachable!("secp256k1 adds no lanes")
    }

    fn add(self, a: Interval, b: Interval) -> Interval {
        (a.0 + b.0, a.1.checked_add(b.1).expect("a sum overflows"))
    }

    fn carry(self, _: Interval, _: Interval) -> Interval {
        (0, 1)
    }

    fn and(self, a: Interval, b: Interval) -> Interval {
        (0, a.1.min(b.1))
    }

    fn or(self, a: Interval, b: Interval) -> Interval {
        (a.0.max(b.0), filled(a.1 | b.1))
    }

    fn shift_left<const N: u32>(self, a: Interval) -> Interval {
        assert!(a.1 <= u64::MAX >> N, "{a:x?} is shifted out");
        (a.0 << N, a.1 << N)
    }

    fn shift_right<const N: u32>(self, a: Interval) -> Interval {
        (a.0 >> N, a.1 >> N)
    }
}

impl Limbs26 for Intervals {
    fn multiply(self, a: Interval, b: Interval) -> Interval {
        for factor in [a, b] {
            assert!(factor.1 < 1 << 32, "{factor:x?} is multiplied");
        }
        (a.0 * b.0, a.1 * b.1)
    }
}

impl Limbs52 for Intervals {
    fn low_52(self, a: Interval) -> Interval {
        (0, a.1.min((1 << 52) - 1))
    }

    fn multiply_add_low(self, sum: Interval, a: Interval, b: Interval) -> Interval {
        for factor in [a, b] {
            assert!(factor.1 < 1 << 52, "{factor:x?} is multiplied");
        }
        let most = (u128::from(a.1) * u128::from(b.1)).min((1 << 52) - 1);
        self.add(sum, (0, most as u64))
    }

    fn multiply_add_high(self, sum: Interval, a: Interval, b: Interval) -> Interval {
        for factor in [a, b] {
            assert!(factor.1 < 1 << 52, "{factor:x?} is multiplied");
        }
        let most = (u128::from(a.1) * u128::from(b.1)) >> 52;
        self.add(sum, (0, most as u64))
    }
}

impl Masks for Intervals {
    fn subtract(self, a: Interval, b: Interval) -> Interval {
        (
            a.0.checked_sub(b.1).expect("a difference is negative"),
            a.1 - b.0,
        )
    }

    fn equals(self, _: Interval, _: Interval) -> Interval {
        (0, u64::MAX)
    }

    fn select(self, _: Interval, a: Interval, b: Interval) -> Interval {
        (a.0.min(b.0), a.1.max(b.1))
    }

    fn call<A, R>(self, argument: A, function: impl FnOnce(Self, A) -> R) -> R {
        function(self, argument)
    }
}

/// A field whose elements are all replaced by the same interval of limbs.
#[derive(Clone, Copy)]
struct Checked<F, const LIMBS: usize> {
    field: F,
    /// The largest limbs of an element.
    most: [u64; LIMBS],
}

impl<F, const LIMBS: usize> Checked<F, LIMBS> {
    /// Checks that limbs are those of an element, and returns all elements.
    fn element(self, limbs: [Interval; LIMBS]) -> [Interval; LIMBS] {
        for (limb, most) in limbs.iter().zip(self.most) {
            assert!(limb.1 <= most, "{limbs:x?} is no element");
        }
        self.most.map(|most| (0, most))
    }
}

impl<F, const LIMBS: usize> Field for Checked<F, LIMBS>
where
    F: Field<Vector = Interval, Element = [Interval; LIMBS], Sum = [Interval; LIMBS]>,
{
    const LANES: usize = 1;
    type Vector = Interval;
    type Element = [Interval; LIMBS];
    type Sum = [Interval; LIMBS];

    fn load(self, _: &[Words]) -> Self::Element {
        self.most.map(|most| (0, most))
    }

    fn store(self, element: &Self::Element, numbers: &mut [Words]) {
        self.element(*element);
        // Neither zero nor one, so that lists come to an end.
        numbers[..MAX_LANES].fill(ONE);
    }

    fn splat(self, number: &Words) -> Self::Element {
        self.element(self.field.splat(number));
        self.field.splat(number)
    }

    fn per_lane(self, numbers: &[u64]) -> Interval {
        self.field.per_lane(numbers)
    }

    fn equals(self, a: Interval, number: u64) -> Interval {
        self.field.equals(a, number)
    }

    fn and(self, a: Interval, b: Interval) -> Interval {
        self.field.and(a, b)
    }

    fn select(self, mask: Interval, a: &Self::Element, b: &Self::Element) -> Self::Element {
        self.field.select(mask, a, b)
    }

    fn look_up(self, _: &[[Words; 2]; 8], _: Interval) -> [Self::Element; 2] {
        // Words are cut into limbs, so bits are dropped on purpose.
        [self.load(&[]); 2]
    }

    fn multiply(self, a: &Self::Element, b: &Self::Element) -> Self::Element {
        self.element(self.field.multiply(a, b))
    }

    fn multiply_times<const K: u64>(self, a: &Self::Element, b: &Self::Element) -> Self::Element {
        self.element(self.field.multiply_times::<K>(a, b))
    }

    fn multiply_add(self, a: &Self::Element, b: &Self::Element, c: &Self::Sum) -> Self::Element {
        self.element(self.field.multiply_add(a, b, c))
    }

    fn multiply_two(
        self,
        a: &Self::Element,
        b: &Self::Element,
        c: &Self::Element,
        d: &Self::Element,
    ) -> Self::Element {
        self.element(self.field.multiply_two(a, b, c, d))
    }

    fn square(self, a: &Self::Element) -> Self::Element {
        self.element(self.field.square(a))
    }

    fn square_add(self, a: &Self::Element, c: &Self::Sum) -> Self::Element {
        self.element(self.field.square_add(a, c))
    }

    fn square_times(self, a: &Self::Element, _: usize) -> Self::Element {
        self.square(a)
    }

    fn sum(self, a: &Self::Element) -> Self::Sum {
        self.field.sum(a)
    }

    fn add(self, a: &Self::Sum, b: &Self::Sum) -> Self::Sum {
        self.field.add(a, b)
    }

    fn minus<const K: u32>(self, a: &Self::Element) -> Self::Sum {
        self.field.minus::<K>(a)
    }

    fn carry(self, a: &Self::Sum) -> Self::Element {
        self.element(self.field.carry(a))
    }

    fn factor(self, a: &Self::Sum) -> Self::Element {
        self.field.factor(a)
    }
}

/// Runs every kernel.
fn run<F: Field>(f: F) {
    let secret = [1; 32];
    let encoding = [2; 64];
    public_keys(f, &[&secret], &mut [[ZERO; 2]]);
    shared_x(f, &[&secret], &[&encoding], &mut [[0; 32]]);
    for case in [0, 2] {
        let mut tries = [Try::new(ONE, &secret, case)];
        swift::begin(f, &mut tries, &mut [false]);
        swift::finish(f, &tries, &mut [None]);
    }
}

#[test]
fn no_limb_of_29_bits_overflows() {
    let mut most = [(1 << 29) - 1; 9];
    most[2] = (1 << 29) + (1 << 14);
    most[8] = (1 << 24) - 1;
    run(Checked {
        field: Radix29(Intervals),
        most,
    });
}

#[test]
fn no_limb_of_52_bits_overflows() {
    let mut most = [(1 << 52) - 1; 5];
    most[4] = (1 << 49) - 1;
    run(Checked {
        field: Radix52(Intervals),
        most,
    });
}
