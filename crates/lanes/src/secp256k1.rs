//! Lists of secp256k1 keys: what the handshakes of BIP324 compute.

use crate::isa::Set;
use crate::kernels::secp256k1::field::MAX_LANES;
use crate::kernels::secp256k1::scalar;
use crate::kernels::secp256k1::swift::{Try, from_bytes};
use crate::kernels::secp256k1::words::{Words, ZERO, subtract_modulo_p, to_bytes};
use arrayvec::ArrayVec;
use core::ops::Range;

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

/// A try that has passed its first half.
struct Passed {
    /// The index of its key.
    key: usize,
    /// The first half of the encoding.
    u: [u8; 32],
    of: Try,
}

/// Encodes public keys. `next` returns the next 32 bytes and the case, a number below 8, to try for
/// the key with this index; a try succeeds with probability 1/4, and the first that does counts.
pub(crate) fn encode(
    set: Set,
    keys: &[PublicKey],
    next: &mut dyn FnMut(usize) -> ([u8; 32], u8),
    encodings: &mut [[u8; 64]],
) {
    assert_eq!(keys.len(), encodings.len(), "one encoding for each key");
    let lanes = set.curve_lanes();
    let mut new = 0..keys.len();
    // Keys that were tried and have no encoding yet.
    let mut tried = ArrayVec::<usize, { 3 * MAX_LANES }>::new();
    // In the order of their tries.
    let mut passed = ArrayVec::<Passed, { 2 * MAX_LANES }>::new();
    while !tried.is_empty() || !new.is_empty() {
        // The last keys wait for nobody: with two such tries one has an encoding three times in four.
        if passed.len() < lanes.min(2 * (tried.len() + new.len())) {
            let mut drawn = ArrayVec::<_, MAX_LANES>::new();
            let mut tries = ArrayVec::<Try, MAX_LANES>::new();
            for key in to_try(lanes, &mut tried, &mut new, &passed) {
                let (u, case) = next(key);
                tries.push(Try::new(from_bytes(&keys[key].x), &u, case & 7));
                drawn.push((key, u));
            }
            let mut results = [false; MAX_LANES];
            set.begin_encoding(&mut tries, &mut results[..lanes]);
            for (((key, u), of), has_passed) in drawn.into_iter().zip(tries).zip(results) {
                if has_passed {
                    passed.push(Passed { key, u, of });
                }
            }
            continue;
        }
        let finished: ArrayVec<Passed, MAX_LANES> =
            passed.drain(..lanes.min(passed.len())).collect();
        let tries: ArrayVec<Try, MAX_LANES> = finished.iter().map(|passed| passed.of).collect();
        let mut results = [None; MAX_LANES];
        set.finish_encoding(&tries, &mut results[..tries.len()]);
        for (Passed { key, u, .. }, result) in finished.iter().zip(results) {
            let place = tried.iter().position(|tried| tried == key);
            // Without a place an earlier try has succeeded.
            if let (Some(t), Some(place)) = (result, place) {
                let t = with_parity(&t, keys[*key].is_odd);
                encodings[*key][..32].copy_from_slice(u);
                encodings[*key][32..].copy_from_slice(&to_bytes(&t));
                tried.swap_remove(place);
                passed.retain(|passed| passed.key != *key);
            }
        }
    }
}

/// The key to try in each lane: those of which no try has passed, then new ones. If there are too few,
/// the same keys have several tries.
fn to_try(
    lanes: usize,
    tried: &mut ArrayVec<usize, { 3 * MAX_LANES }>,
    new: &mut Range<usize>,
    passed: &[Passed],
) -> ArrayVec<usize, MAX_LANES> {
    let has_passed = |key: usize| passed.iter().any(|passed| passed.key == key);
    let failed = tried.iter().copied().filter(|key| !has_passed(*key));
    let mut indices: ArrayVec<usize, MAX_LANES> = failed.take(lanes).collect();
    let new = new.take(lanes - indices.len());
    for key in new {
        tried.push(key);
        indices.push(key);
    }
    let several: ArrayVec<usize, MAX_LANES> = match indices.is_empty() {
        true => tried.iter().copied().take(lanes).collect(),
        false => indices.clone(),
    };
    let rest = lanes - indices.len();
    indices.extend(several.into_iter().cycle().take(rest));
    indices
}

/// t or -t, whichever is odd if y is: the encoding says the sign of y so, although BIP324 does not
/// use it.
fn with_parity(t: &Words, is_odd: bool) -> Words {
    match (t[0] & 1 == 1) == is_odd {
        true => *t,
        false => subtract_modulo_p(&ZERO, t),
    }
}
