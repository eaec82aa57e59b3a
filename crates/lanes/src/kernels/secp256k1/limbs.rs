//! What both forms of the field do in the same way: numbers in limbs of some bits, one number per lane.

use super::field::MAX_LANES;
use super::words::{self, Words};
use crate::vector::{Masks, U64Lanes};

/// See [`Field::load`](super::field::Field::load).
#[inline(always)]
pub(super) fn load<const BITS: usize, const LIMBS: usize, L: U64Lanes>(
    l: L,
    numbers: &[Words],
) -> [L::Vector; LIMBS] {
    let mut limbs = [[0; MAX_LANES]; LIMBS];
    for (lane, number) in numbers[..L::LANES].iter().enumerate() {
        let split = words::split::<BITS, LIMBS>(number);
        for (limb, part) in limbs.iter_mut().zip(split) {
            limb[lane] = part;
        }
    }
    let mut element = [l.splat(0); LIMBS];
    for (place, limb) in element.iter_mut().zip(&limbs) {
        *place = l.per_lane(limb);
    }
    element
}

/// See [`Field::store`](super::field::Field::store).
#[inline(always)]
pub(super) fn store<const BITS: usize, const LIMBS: usize, L: U64Lanes>(
    l: L,
    element: &[L::Vector; LIMBS],
    numbers: &mut [Words],
) {
    let mut limbs = [[0; MAX_LANES]; LIMBS];
    for (place, limb) in limbs.iter_mut().zip(element) {
        l.store(*limb, place);
    }
    for (lane, number) in numbers[..L::LANES].iter_mut().enumerate() {
        *number = words::join::<BITS, LIMBS>(&limbs.map(|limb| limb[lane]));
    }
}

/// See [`Field::splat`](super::field::Field::splat).
#[inline(always)]
pub(super) fn splat<const BITS: usize, const LIMBS: usize, L: U64Lanes>(
    l: L,
    number: &Words,
) -> [L::Vector; LIMBS] {
    let mut element = [l.splat(0); LIMBS];
    for (place, limb) in element.iter_mut().zip(words::split::<BITS, LIMBS>(number)) {
        *place = l.splat(limb);
    }
    element
}

/// `b` where the mask is all ones, `a` where it is 0.
#[inline(always)]
pub(super) fn select<const LIMBS: usize, L: Masks>(
    l: L,
    mask: L::Vector,
    a: &[L::Vector; LIMBS],
    b: &[L::Vector; LIMBS],
) -> [L::Vector; LIMBS] {
    let mut selected = *a;
    for (place, other) in selected.iter_mut().zip(b) {
        *place = l.select(mask, *place, *other);
    }
    selected
}

/// The sum, limb by limb.
#[inline(always)]
pub(super) fn add<const LIMBS: usize, L: U64Lanes>(
    l: L,
    a: &[L::Vector; LIMBS],
    b: &[L::Vector; LIMBS],
) -> [L::Vector; LIMBS] {
    let mut sum = *a;
    for (place, limb) in sum.iter_mut().zip(b) {
        *place = l.add(*place, *limb);
    }
    sum
}

/// K times each limb, where K is 2, 3 or 4.
#[inline(always)]
pub(super) fn times<const K: u64, const LIMBS: usize, L: U64Lanes>(
    l: L,
    a: &[L::Vector; LIMBS],
) -> [L::Vector; LIMBS] {
    let mut scaled = *a;
    for limb in &mut scaled {
        *limb = match K {
            2 => l.add(*limb, *limb),
            3 => l.add(*limb, l.add(*limb, *limb)),
            _ => l.shift_left::<2>(*limb),
        };
    }
    scaled
}

/// 2^`shift` p - 2^K a, limb by limb: -2^K a modulo p. `p` are the limbs of p, and 2^`shift` p must have
/// larger limbs than 2^K a.
#[inline(always)]
pub(super) fn minus<const K: u32, const LIMBS: usize, L: Masks>(
    l: L,
    a: &[L::Vector; LIMBS],
    p: &[u64; LIMBS],
    shift: u32,
) -> [L::Vector; LIMBS] {
    let mut negated = *a;
    for (limb, p) in negated.iter_mut().zip(p) {
        *limb = l.subtract(l.splat(p << shift), l.shift_left::<K>(*limb));
    }
    negated
}
