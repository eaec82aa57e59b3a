//! Numbers modulo p = 2^256 - 2^32 - 977, one per lane.

use super::words::Words;
use crate::vector::Masks;

/// The field's arithmetic, for one instruction set.
///
/// An [`Element`](Self::Element) can be multiplied. A [`Sum`](Self::Sum) has larger limbs: it can be
/// added to a product, or be carried. Which sums stay within their limbs is checked for the formulas
/// as a whole: `bounds.rs` runs them on intervals.
pub(crate) trait Field: Copy {
    /// How many numbers there are in a vector; at most [`MAX_LANES`].
    const LANES: usize;

    /// A 64-bit number per lane; as a mask it is 0 or all ones.
    type Vector: Copy;

    /// A number modulo p in each lane, in limbs that may be multiplied.
    type Element: Copy;

    /// A number modulo p in each lane, in larger limbs.
    type Sum: Copy;

    /// One number below p for each lane.
    fn load(self, numbers: &[Words]) -> Self::Element;

    /// Writes the number of each lane, below p.
    fn store(self, element: &Self::Element, numbers: &mut [Words]);

    /// The same number in every lane.
    fn splat(self, number: &Words) -> Self::Element;

    /// Loads a number for each lane.
    fn per_lane(self, numbers: &[u64]) -> Self::Vector;

    /// A mask that is all ones in the lanes where `a` is `number`.
    fn equals(self, a: Self::Vector, number: u64) -> Self::Vector;

    /// The AND of two masks.
    fn and(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// `b` where the mask is all ones, `a` where it is 0.
    fn select(self, mask: Self::Vector, a: &Self::Element, b: &Self::Element) -> Self::Element;

    /// For each lane, the point of `table` with the index of the lane, as (x, y). Reads the whole
    /// table.
    fn look_up(self, table: &[[Words; 2]; 8], index: Self::Vector) -> [Self::Element; 2];

    /// a b
    fn multiply(self, a: &Self::Element, b: &Self::Element) -> Self::Element;

    /// K a b, where K is at most 4
    fn multiply_times<const K: u64>(self, a: &Self::Element, b: &Self::Element) -> Self::Element;

    /// a b + c
    fn multiply_add(self, a: &Self::Element, b: &Self::Element, c: &Self::Sum) -> Self::Element;

    /// a b + c d
    fn multiply_two(
        self,
        a: &Self::Element,
        b: &Self::Element,
        c: &Self::Element,
        d: &Self::Element,
    ) -> Self::Element;

    /// a^2
    fn square(self, a: &Self::Element) -> Self::Element;

    /// a^2 + c
    fn square_add(self, a: &Self::Element, c: &Self::Sum) -> Self::Element;

    /// a^(2^n)
    fn square_times(self, a: &Self::Element, n: usize) -> Self::Element;

    /// The element, as a sum.
    fn sum(self, a: &Self::Element) -> Self::Sum;

    /// a + b
    fn add(self, a: &Self::Sum, b: &Self::Sum) -> Self::Sum;

    /// -2^K a, where K is at most 3
    fn minus<const K: u32>(self, a: &Self::Element) -> Self::Sum;

    /// Makes a sum an element.
    fn carry(self, a: &Self::Sum) -> Self::Element;

    /// Like [`carry`](Self::carry), if the result is used as a factor only once: two such factors
    /// must not be multiplied with each other.
    fn factor(self, a: &Self::Sum) -> Self::Element;
}

/// The most lanes that a [`Field`] has.
pub(crate) const MAX_LANES: usize = 8;

/// -a where the mask is all ones, `a` where it is 0, as [`Field::factor`] gives it.
#[inline(always)]
pub(crate) fn negate_where<F: Field>(f: F, mask: F::Vector, a: &F::Element) -> F::Element {
    let negated = f.factor(&f.minus::<0>(a));
    f.select(mask, a, &negated)
}

/// a + b
#[inline(always)]
pub(crate) fn sum_of<F: Field>(f: F, a: &F::Element, b: &F::Element) -> F::Element {
    f.carry(&f.add(&f.sum(a), &f.sum(b)))
}

/// a - b
#[inline(always)]
pub(crate) fn difference<F: Field>(f: F, a: &F::Element, b: &F::Element) -> F::Element {
    f.carry(&f.add(&f.sum(a), &f.minus::<0>(b)))
}

/// high^(2^n) low
#[inline(always)]
fn append<F: Field>(f: F, high: &F::Element, n: usize, low: &F::Element) -> F::Element {
    f.multiply(&f.square_times(high, n), low)
}

/// a^((p - 3) / 4), from which all else follows: with y = a^((p - 3) / 4), a y^2 is 1 if a is a square
/// and not zero, and a y is then the root that is itself a square; y^4 a is 1 / a.
#[inline(always)]
pub(crate) fn power<F: Field>(f: F, a: &F::Element) -> F::Element {
    // The exponent in binary: 223 ones, a zero, 22 ones, and 00001011. `ones` of n is a^(2^n - 1).
    let ones2 = append(f, a, 1, a);
    let ones3 = append(f, &ones2, 1, a);
    let ones6 = append(f, &ones3, 3, &ones3);
    let ones9 = append(f, &ones6, 3, &ones3);
    let ones11 = append(f, &ones9, 2, &ones2);
    let ones22 = append(f, &ones11, 11, &ones11);
    let ones44 = append(f, &ones22, 22, &ones22);
    let ones88 = append(f, &ones44, 44, &ones44);
    let ones176 = append(f, &ones88, 88, &ones88);
    let ones220 = append(f, &ones176, 44, &ones44);
    let ones223 = append(f, &ones220, 3, &ones3);
    let high = append(f, &ones223, 23, &ones22);
    let high = append(f, &high, 5, a);
    append(f, &high, 3, &ones2)
}

/// Replaces each element by its inverse. All must be different from zero in every lane: a zero makes
/// the results of its lane zero in all elements. `scratch` has room for as many elements.
#[inline(always)]
pub(crate) fn invert_all<F: Field>(f: F, elements: &mut [F::Element], scratch: &mut [F::Element]) {
    // Montgomery's trick: the inverse of the product of all, and from it those of all.
    let Some(&first) = elements.first() else {
        return;
    };
    let mut product = first;
    for (place, element) in scratch.iter_mut().zip(&elements[1..]) {
        *place = product;
        product = f.multiply(&product, element);
    }
    let y = power(f, &product);
    let mut inverse = f.multiply(&f.square_times(&y, 2), &product);
    for (element, before) in elements[1..].iter_mut().zip(scratch).rev() {
        let own = f.multiply(&inverse, before);
        inverse = f.multiply(&inverse, element);
        *element = own;
    }
    elements[0] = inverse;
}

/// For each lane, the entry of `table` with the index of the lane. Reads the whole table.
#[inline(always)]
pub(super) fn look_up<L: Masks>(
    l: L,
    table: &[[Words; 2]; 8],
    index: L::Vector,
) -> [[L::Vector; 4]; 2] {
    let mut found = [[l.splat(0); 4]; 2];
    for (number, entry) in table.iter().enumerate() {
        let mask = l.equals(index, l.splat(number as u64));
        for (places, words) in found.iter_mut().zip(entry) {
            for (place, word) in places.iter_mut().zip(words) {
                *place = l.or(*place, l.and(mask, l.splat(*word)));
            }
        }
    }
    found
}

/// Whether the element is zero, one, or something else, in each lane: for public values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Zero,
    One,
    Other,
}

impl Kind {
    pub(crate) fn of(number: &Words) -> Self {
        match *number {
            super::words::ZERO => Self::Zero,
            super::words::ONE => Self::One,
            _ => Self::Other,
        }
    }
}
