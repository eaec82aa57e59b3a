//! Lists of secp256k1 keys: what the handshakes of BIP324 compute.

use crate::isa::Set;
use crate::kernels::secp256k1::field::MAX_LANES;
use crate::kernels::secp256k1::scalar;
use crate::kernels::secp256k1::swift::{Try, from_bytes};
use crate::kernels::secp256k1::words::{Words, ZERO, subtract_modulo_p, to_bytes};
use arrayvec::ArrayVec;

/// The most secp256k1 keys that a vector holds.
pub const MAX_KEY_LANES: usize = MAX_LANES;

/// Whether 32 bytes, a big-endian number, are a secret key: not zero, and below the order of the
/// group. Takes the same time for all keys.
#[must_use]
pub fn is_secret_key(bytes: &[u8; 32]) -> bool {
    scalar::is_secret_key(bytes)
}

/// A public key, as x and the parity of y.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublicKey {
    /// x, big-endian.
    pub x: [u8; 32],
    /// Whether y is odd.
    pub is_odd: bool,
}

/// Computes the public keys of secret keys.
pub(crate) fn public_keys(set: Set, secrets: &[&[u8; 32]], keys: &mut [PublicKey]) {
    assert_eq!(secrets.len(), keys.len(), "one public key for each secret");
    const CHUNK: usize = 16 * MAX_LANES;
    for (secrets, keys) in secrets.chunks(CHUNK).zip(keys.chunks_mut(CHUNK)) {
        let mut points = [[ZERO; 2]; CHUNK];
        set.public_keys(secrets, &mut points[..secrets.len()]);
        for (key, [x, y]) in keys.iter_mut().zip(&points) {
            *key = PublicKey {
                x: to_bytes(x),
                is_odd: y[0] & 1 == 1,
            };
        }
    }
}

/// Computes the x coordinates that secret keys share with encoded public keys.
pub(crate) fn shared_x(
    set: Set,
    secrets: &[&[u8; 32]],
    encodings: &[&[u8; 64]],
    shared: &mut [[u8; 32]],
) {
    assert!(
        secrets.len() == encodings.len() && secrets.len() == shared.len(),
        "one encoding and one result for each secret"
    );
    set.shared_x(secrets, encodings, shared);
}

/// Encodes public keys. `next` returns the next 32 bytes and the case, a number below 8, to try for
/// the key with this index; a try succeeds with probability 1/4.
pub(crate) fn encode(
    set: Set,
    keys: &[PublicKey],
    next: &mut dyn FnMut(usize) -> ([u8; 32], u8),
    encodings: &mut [[u8; 64]],
) {
    assert_eq!(keys.len(), encodings.len(), "one encoding for each key");
    let lanes = set.curve_lanes();
    let mut new = 0..keys.len();
    // Keys whose last try failed.
    let mut again = ArrayVec::<usize, { 3 * MAX_LANES }>::new();
    // Tries that have passed their first half.
    let mut passed = ArrayVec::<(usize, Try), { 2 * MAX_LANES }>::new();
    loop {
        let mut indices = ArrayVec::<usize, MAX_LANES>::new();
        while indices.len() < lanes {
            match again.pop().or_else(|| new.next()) {
                Some(index) => indices.push(index),
                None => break,
            }
        }
        if indices.len() == lanes || passed.len() < lanes && !indices.is_empty() {
            let mut tries = ArrayVec::<Try, MAX_LANES>::new();
            for &index in &indices {
                let (u, case) = next(index);
                encodings[index][..32].copy_from_slice(&u);
                tries.push(Try::new(from_bytes(&keys[index].x), &u, case & 7));
            }
            let mut results = [false; MAX_LANES];
            set.begin_encoding(&mut tries, &mut results[..indices.len()]);
            for ((index, of), has_passed) in indices.into_iter().zip(tries).zip(results) {
                match has_passed {
                    true => passed.push((index, of)),
                    false => again.push(index),
                }
            }
            if passed.len() < lanes {
                continue;
            }
        } else {
            again.extend(indices);
        }
        if passed.is_empty() {
            return;
        }
        let rest = passed.len().saturating_sub(lanes);
        let of: ArrayVec<(usize, Try), MAX_LANES> = passed.drain(rest..).collect();
        let tries: ArrayVec<Try, MAX_LANES> = of.iter().map(|(_, of)| *of).collect();
        let mut found = [None; MAX_LANES];
        set.finish_encoding(&tries, &mut found[..tries.len()]);
        for ((index, _), found) in of.into_iter().zip(found) {
            match found {
                Some(t) => {
                    let t = with_parity(&t, keys[index].is_odd);
                    encodings[index][32..].copy_from_slice(&to_bytes(&t));
                }
                None => again.push(index),
            }
        }
    }
}

/// t or -t, whichever is odd if y is: the encoding says the sign of y so, although BIP324 does not
/// use it.
fn with_parity(t: &Words, is_odd: bool) -> Words {
    match (t[0] & 1 == 1) == is_odd {
        true => *t,
        false => subtract_modulo_p(&ZERO, t),
    }
}
