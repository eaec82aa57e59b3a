//! The two computations of a handshake on secp256k1, many at once: encoding a public key
//! (ElligatorSwift), and the x coordinate that a secret key shares with the peer's encoding. Several
//! run in lanes. A few, for which lanes are slower, run one after the other on libsecp256k1 (feature
//! `libsecp256k1`). The bytes are the same.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use packetlane_lanes::{Backend, PublicKey};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// Length of an encoded public key, in bytes.
pub(crate) const ELLSWIFT_LEN: usize = 64;

/// The side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The side that opened the connection.
    Initiator,
    /// The side that accepted it.
    Responder,
}

/// A secret key or a shared secret. Boxed, because moving a secret leaves a copy at its old address,
/// which nothing wipes.
pub(crate) type Secret = Box<Zeroizing<[u8; 32]>>;

/// An encoded public key.
pub(crate) type Encoded = [u8; ELLSWIFT_LEN];

/// A public key to compute.
pub(crate) struct ToEncode<'k> {
    pub(crate) secret: &'k [u8; 32],
    /// Chooses the encoding.
    pub(crate) auxiliary: &'k [u8; 32],
    pub(crate) encoded: &'k mut Encoded,
}

/// A shared secret to compute.
pub(crate) struct ToShare<'k> {
    pub(crate) secret: &'k [u8; 32],
    pub(crate) ours: &'k Encoded,
    pub(crate) theirs: &'k Encoded,
    pub(crate) role: Role,
    pub(crate) shared: &'k mut [u8; 32],
}

/// Encodes public keys.
pub(crate) fn encode_all(backend: Backend, keys: Vec<ToEncode<'_>>) {
    #[cfg(feature = "libsecp256k1")]
    let keys = run_alone(backend, keys, libsecp256k1::encode);
    if keys.is_empty() {
        return;
    }
    let secrets: Vec<_> = keys.iter().map(|key| key.secret).collect();
    let mut points = vec![PublicKey::default(); keys.len()];
    backend.kernels().public_keys(&secrets, &mut points);
    let tagged = tagged(b"secp256k1_ellswift_create");
    let tries = keys.iter().map(|key| Tries::new(tagged.clone(), key));
    let mut tries: Vec<_> = tries.collect();
    let mut encodings = vec![[0; ELLSWIFT_LEN]; keys.len()];
    let mut next = |index: usize| tries[index].next();
    let kernels = backend.kernels();
    kernels.encode_public_keys(&points, &mut next, &mut encodings);
    for (key, encoding) in keys.into_iter().zip(encodings) {
        *key.encoded = encoding;
    }
}

/// Computes shared secrets (BIP324's `v2_ecdh`).
pub(crate) fn share_all(backend: Backend, keys: Vec<ToShare<'_>>) {
    #[cfg(feature = "libsecp256k1")]
    let keys = run_alone(backend, keys, libsecp256k1::share);
    if keys.is_empty() {
        return;
    }
    let secrets: Vec<_> = keys.iter().map(|key| key.secret).collect();
    let theirs: Vec<_> = keys.iter().map(|key| key.theirs).collect();
    let mut shared = Zeroizing::new(vec![[0; 32]; keys.len()]);
    backend.kernels().shared_x(&secrets, &theirs, &mut shared);
    let tagged = tagged(b"bip324_ellswift_xonly_ecdh");
    for (key, x) in keys.into_iter().zip(shared.iter()) {
        let (initiator, responder) = match key.role {
            Role::Initiator => (key.ours, key.theirs),
            Role::Responder => (key.theirs, key.ours),
        };
        let mut hasher = tagged.clone();
        hasher.update(initiator);
        hasher.update(responder);
        hasher.update(x);
        hasher.finalize_into(key.shared.into());
    }
}

/// SHA-256 with a tag (BIP340, "Design").
fn tagged(tag: &[u8]) -> Sha256 {
    let tag = Sha256::digest(tag);
    Sha256::new().chain_update(tag).chain_update(tag)
}

/// The random numbers from which an encoding is chosen: those of libsecp256k1
/// (`secp256k1_ellswift_create`), so that a secret key has the same encoding with and without it.
struct Tries {
    hasher: Sha256,
    drawn: u32,
    /// 64 cases, in four bits each.
    cases: [u8; 32],
    left: usize,
}

impl Tries {
    fn new(mut hasher: Sha256, key: &ToEncode<'_>) -> Self {
        hasher.update(key.secret);
        hasher.update([0; 32]);
        hasher.update(key.auxiliary);
        Self {
            hasher,
            drawn: 0,
            cases: [0; 32],
            left: 0,
        }
    }

    fn draw(&mut self) -> [u8; 32] {
        let hasher = self.hasher.clone().chain_update(self.drawn.to_le_bytes());
        self.drawn += 1;
        hasher.finalize().into()
    }

    fn next(&mut self) -> ([u8; 32], u8) {
        if self.left == 0 {
            self.cases = self.draw();
            self.left = 64;
        }
        self.left -= 1;
        let case = self.cases[self.left / 2] >> (4 * (self.left % 2)) & 7;
        (self.draw(), case)
    }
}

/// Runs the keys that are too few for a vector, one after the other. Returns those for lanes.
#[cfg(feature = "libsecp256k1")]
fn run_alone<K>(backend: Backend, mut keys: Vec<K>, run: fn(K)) -> Vec<K> {
    let lanes = backend.kernels().key_lanes();
    let alone = keys.split_off(full_vectors(keys.len(), lanes, lanes_from(backend)));
    alone.into_iter().for_each(run);
    keys
}

/// How many of `keys` keys run in lanes, if a vector of `lanes` pays off for `from` keys or more.
#[cfg(feature = "libsecp256k1")]
fn full_vectors(keys: usize, lanes: usize, from: usize) -> usize {
    match keys % lanes {
        _ if from > lanes => 0,
        rest if rest < from => keys - rest,
        _ => keys,
    }
}

/// Minimum number of keys for which a vector of lanes is faster than libsecp256k1; more than there
/// are lanes if none is. Measured once per process, which takes a millisecond.
#[cfg(all(feature = "libsecp256k1", feature = "std", not(target_family = "wasm")))]
fn lanes_from(backend: Backend) -> usize {
    use core::sync::atomic::{AtomicUsize, Ordering};
    static MEASURED: [AtomicUsize; Backend::ALL.len()] =
        [const { AtomicUsize::new(0) }; Backend::ALL.len()];
    let measured = &MEASURED[backend as usize];
    match measured.load(Ordering::Relaxed) {
        0 => {
            let found = measure(backend);
            measured.store(found, Ordering::Relaxed);
            found
        }
        known => known,
    }
}

/// Times a full vector of shared secrets, and one alone.
#[cfg(all(feature = "libsecp256k1", feature = "std", not(target_family = "wasm")))]
#[cold]
fn measure(backend: Backend) -> usize {
    use std::time::Instant;
    let lanes = backend.kernels().key_lanes();
    let (secret, key) = ([1; 32], [2; ELLSWIFT_LEN]);
    let mut found = [[0; 32]; packetlane_lanes::MAX_KEY_LANES];
    let shortest = |work: &mut dyn FnMut()| {
        let times = (0..3).map(|_| {
            let before = Instant::now();
            work();
            before.elapsed()
        });
        times.min().unwrap_or_default().as_nanos().max(1)
    };
    let of_lanes = shortest(&mut || {
        let (secrets, keys) = (vec![&secret; lanes], vec![&key; lanes]);
        let kernels = backend.kernels();
        kernels.shared_x(&secrets, &keys, &mut found[..lanes]);
    });
    let alone = shortest(&mut || {
        libsecp256k1::share(ToShare {
            secret: &secret,
            ours: &key,
            theirs: &key,
            role: Role::Initiator,
            shared: &mut found[0],
        });
    });
    // Rounded up: that many take longer alone.
    usize::try_from(of_lanes / alone + 1).unwrap_or(usize::MAX)
}

/// Without a clock, lanes run when they are more than half full: a vector takes about twice as long
/// as libsecp256k1 for one key.
#[cfg(all(
    feature = "libsecp256k1",
    any(not(feature = "std"), target_family = "wasm")
))]
fn lanes_from(backend: Backend) -> usize {
    backend.kernels().key_lanes() / 2 + 1 + usize::from(backend.kernels().key_lanes() == 1)
}

/// One key at a time.
#[cfg(feature = "libsecp256k1")]
mod libsecp256k1 {
    #![allow(
        deprecated,
        reason = "what all versions of secp256k1 that Cargo.toml admits have in common"
    )]

    use super::{Role, ToEncode, ToShare};
    use alloc::boxed::Box;
    use once_cell::race::OnceBox;
    use secp256k1::ellswift::{
        ElligatorSwift, ElligatorSwiftParty as Party, ElligatorSwiftSharedSecret,
    };
    use secp256k1::{All, Secp256k1, SecretKey};

    fn parse(secret: &[u8; 32]) -> SecretKey {
        SecretKey::from_slice(secret).expect("keypairs hold valid secret keys")
    }

    pub(super) fn encode(key: ToEncode<'_>) {
        let mut secret = parse(key.secret);
        let context = context(key.auxiliary);
        let encoded = ElligatorSwift::from_seckey(context, secret, Some(*key.auxiliary));
        *key.encoded = encoded.to_array();
        secret.non_secure_erase();
    }

    pub(super) fn share(key: ToShare<'_>) {
        let ours = ElligatorSwift::from_array(*key.ours);
        let theirs = ElligatorSwift::from_array(*key.theirs);
        let (initiator, responder, party) = match key.role {
            Role::Initiator => (ours, theirs, Party::A),
            Role::Responder => (theirs, ours, Party::B),
        };
        let mut secret = parse(key.secret);
        let mut shared = ElligatorSwift::shared_secret(initiator, responder, secret, party, None);
        key.shared.copy_from_slice(shared.as_secret_bytes());
        // secp256k1's types do not wipe themselves.
        secret.non_secure_erase();
        shared = ElligatorSwiftSharedSecret::from_secret_bytes([0; 32]);
        zeroize::optimization_barrier(&shared);
    }

    /// Returns the context for all key generation. There is one per process, because creating it
    /// costs half as much as a handshake. `seed` blinds it at creation.
    fn context(seed: &[u8; 32]) -> &'static Secp256k1<All> {
        static CONTEXT: OnceBox<Secp256k1<All>> = OnceBox::new();
        CONTEXT.get_or_init(|| {
            let mut context = Secp256k1::new();
            context.seeded_randomize(seed);
            Box::new(context)
        })
    }
}

/// A handshake that waits for its keys, with copies of what they are computed from.
pub(crate) struct KeyExchange {
    pub(crate) secret: Secret,
    /// `None` if the public key is known.
    pub(crate) auxiliary: Option<Secret>,
    pub(crate) ours: Encoded,
    pub(crate) theirs: Encoded,
    pub(crate) role: Role,
    pub(crate) shared: Secret,
}

/// The key exchanges of one turn, which are computed together. Wiped when they are dropped.
#[derive(Default)]
pub(crate) struct KeyExchanges {
    all: Vec<KeyExchange>,
    /// How many have been computed.
    done: usize,
}

impl KeyExchanges {
    /// Adds a key exchange. Returns its index.
    pub(crate) fn push(&mut self, exchange: KeyExchange) -> usize {
        self.all.push(exchange);
        self.all.len() - 1
    }

    /// Returns a key exchange. `None` if it has not been computed.
    pub(crate) fn get(&self, index: usize) -> Option<&KeyExchange> {
        self.all[..self.done].get(index)
    }

    /// Computes those that have not been.
    pub(crate) fn compute(&mut self, backend: Backend) {
        let waiting = &mut self.all[self.done..];
        let mut keys = Vec::new();
        for exchange in waiting.iter_mut() {
            if let Some(auxiliary) = &exchange.auxiliary {
                keys.push(ToEncode {
                    secret: &exchange.secret,
                    auxiliary,
                    encoded: &mut exchange.ours,
                });
            }
        }
        encode_all(backend, keys);
        share_all(
            backend,
            waiting.iter_mut().map(KeyExchange::sharing).collect(),
        );
        self.done = self.all.len();
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Wipes all of them.
    pub(crate) fn clear(&mut self) {
        self.all.clear();
        self.done = 0;
    }
}

impl KeyExchange {
    fn sharing(&mut self) -> ToShare<'_> {
        ToShare {
            secret: &self.secret,
            ours: &self.ours,
            theirs: &self.theirs,
            role: self.role,
            shared: &mut self.shared,
        }
    }
}

#[cfg(all(test, feature = "libsecp256k1"))]
mod tests {
    use super::full_vectors;

    #[test]
    fn lanes_run_only_where_they_pay_off() {
        for (keys, lanes, from, expected) in [
            (7, 1, 3, 0),
            (7, 1, 1, 7),
            (2, 4, 3, 0),
            (3, 4, 3, 3),
            (4, 4, 3, 4),
            (6, 4, 3, 4),
            (7, 4, 3, 7),
            (9, 8, 9, 0),
            (9, 8, 1, 9),
        ] {
            assert_eq!(
                full_vectors(keys, lanes, from),
                expected,
                "{keys} {lanes} {from}"
            );
        }
    }
}
