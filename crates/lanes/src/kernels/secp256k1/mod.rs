//! secp256k1, one public key or shared secret per lane: what a BIP324 handshake needs of it.

#[cfg(test)]
mod bounds;
pub(crate) mod comb;
pub(crate) mod field;
pub(crate) mod ladder;
mod limbs;
mod point;
pub(crate) mod radix29;
pub(crate) mod radix52;
pub(crate) mod scalar;
pub(crate) mod swift;
pub(crate) mod words;

use crate::wipe::overwrite;
use arrayvec::ArrayVec;
use field::{Field, MAX_LANES, invert_all};
use words::{Words, ZERO};

/// Vectors whose inverses are computed together. An inversion costs as much as 270 multiplications;
/// together each costs a few.
const GROUP: usize = 16;

/// The elements of a vector, for all lanes: those left over get the first one.
#[inline(always)]
fn lanes_of<T: Copy>(list: &[T]) -> [T; MAX_LANES] {
    let mut lanes = [list[0]; MAX_LANES];
    lanes[..list.len()].copy_from_slice(list);
    lanes
}

/// The public keys of secret keys, as x and y. Both slices have the same length.
#[inline(always)]
pub(crate) fn public_keys<F: Field>(f: F, secrets: &[&[u8; 32]], keys: &mut [[Words; 2]]) {
    let chunks = secrets.chunks(GROUP * F::LANES);
    for (secrets, keys) in chunks.zip(keys.chunks_mut(GROUP * F::LANES)) {
        let one = f.splat(&words::ONE);
        let mut coordinates = [[one; 2]; GROUP];
        let (mut inverses, mut scratch) = ([one; GROUP], [one; GROUP]);
        for (vector, secrets) in secrets.chunks(F::LANES).enumerate() {
            let point = comb::multiply_generator(f, &lanes_of(secrets)[..F::LANES]);
            coordinates[vector] = [point.x, point.y];
            inverses[vector] = point.z;
        }
        let vectors = secrets.len().div_ceil(F::LANES);
        invert_all(f, &mut inverses[..vectors], &mut scratch[..vectors]);
        for (vector, keys) in keys.chunks_mut(F::LANES).enumerate() {
            let inverse = inverses[vector];
            let square = f.square(&inverse);
            let [x, y] = &coordinates[vector];
            let mut numbers = [[ZERO; MAX_LANES]; 2];
            f.store(&f.multiply(x, &square), &mut numbers[0]);
            f.store(
                &f.multiply(y, &f.multiply(&square, &inverse)),
                &mut numbers[1],
            );
            for (lane, key) in keys.iter_mut().enumerate() {
                *key = [numbers[0][lane], numbers[1][lane]];
            }
        }
        // Z says something about the secret key (Naccache, Smart, Stern 2004).
        overwrite(&mut coordinates, [[one; 2]; GROUP]);
        for elements in [&mut inverses, &mut scratch] {
            overwrite(elements, [one; GROUP]);
        }
    }
}

/// The x coordinates that secret keys share with encoded public keys. All slices have the same
/// length.
#[inline(always)]
pub(crate) fn shared_x<F: Field>(
    f: F,
    secrets: &[&[u8; 32]],
    encodings: &[&[u8; 64]],
    shared: &mut [[u8; 32]],
) {
    let size = GROUP * F::LANES;
    let chunks = secrets.chunks(size).zip(encodings.chunks(size));
    for ((secrets, encodings), shared) in chunks.zip(shared.chunks_mut(size)) {
        let one = f.splat(&words::ONE);
        let mut numerators = [one; GROUP];
        let (mut inverses, mut scratch) = ([one; GROUP], [one; GROUP]);
        let mut candidates = ArrayVec::<_, GROUP>::new();
        for encodings in encodings.chunks(F::LANES) {
            candidates.push(swift::candidates(f, &lanes_of(encodings)[..F::LANES]));
        }
        swift::try_x2(f, &mut candidates, encodings.len());
        for (vector, secrets) in secrets.chunks(F::LANES).enumerate() {
            let (x, curve) = candidates[vector].x(f);
            let x = ladder::x_only(f, &lanes_of(secrets)[..F::LANES], &x, &curve);
            numerators[vector] = x.numerator;
            inverses[vector] = x.denominator;
        }
        let vectors = secrets.len().div_ceil(F::LANES);
        invert_all(f, &mut inverses[..vectors], &mut scratch[..vectors]);
        let mut numbers = [ZERO; MAX_LANES];
        for (vector, shared) in shared.chunks_mut(F::LANES).enumerate() {
            f.store(
                &f.multiply(&numerators[vector], &inverses[vector]),
                &mut numbers,
            );
            for (place, number) in shared.iter_mut().zip(&numbers) {
                *place = words::to_bytes(number);
            }
        }
        overwrite(&mut numbers, [ZERO; MAX_LANES]);
        for elements in [&mut numerators, &mut inverses, &mut scratch] {
            overwrite(elements, [one; GROUP]);
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::radix29::Radix29;
    use super::radix52::Radix52;
    use super::swift::{self, Try};
    use super::{Field, public_keys, shared_x};
    use crate::vector::{Limbs52, Scalar};
    use std::vec::Vec;

    /// What AVX-512 IFMA does in a lane.
    impl Limbs52 for Scalar {
        fn multiply_add_low(self, sum: u64, a: u64, b: u64) -> u64 {
            let product = u128::from(a & LIMB) * u128::from(b & LIMB);
            sum.wrapping_add(product as u64 & LIMB)
        }

        fn multiply_add_high(self, sum: u64, a: u64, b: u64) -> u64 {
            let product = u128::from(a & LIMB) * u128::from(b & LIMB);
            sum.wrapping_add((product >> 52) as u64)
        }
    }

    const LIMB: u64 = (1 << 52) - 1;

    /// What every kernel gives for some keys, which are neither random nor few.
    fn results<F: Field>(f: F) -> Vec<[u64; 8]> {
        let mut results = Vec::new();
        for i in 0..200_u8 {
            let mut encoding = [0; 64];
            for (at, byte) in encoding.iter_mut().enumerate() {
                *byte = (at as u8).wrapping_mul(i).wrapping_add(i.rotate_left(3));
            }
            let secret = *encoding[9..].first_chunk().unwrap();
            let (mut keys, mut shared) = ([[[0; 4]; 2]], [[0; 32]]);
            public_keys(f, &[&secret], &mut keys);
            shared_x(f, &[&secret], &[&encoding], &mut shared);
            let [x, y] = keys[0];
            let mut tries = [Try::new(x, &shared[0], i % 8)];
            let (mut passed, mut found) = ([false], [None]);
            swift::begin(f, &mut tries, &mut passed);
            swift::finish(f, &tries, &mut found);
            let t = match (passed, found) {
                ([true], [Some(t)]) => t,
                ([passed], _) => [passed.into(); 4],
            };
            for [a, b] in [[x, y], [super::words::from_bytes(&shared[0]), t]] {
                results.push([a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]]);
            }
        }
        results
    }

    /// The form for AVX-512 IFMA is checked on every CPU; the other one is checked against
    /// libsecp256k1.
    #[test]
    fn both_radices_give_the_same() {
        assert_eq!(results(Radix52(Scalar)), results(Radix29(Scalar)));
    }
}
