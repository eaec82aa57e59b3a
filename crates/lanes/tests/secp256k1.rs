//! secp256k1 against libsecp256k1, on every backend of this CPU.

#![allow(deprecated, reason = "the version that the workspace has")]

use packetlane_lanes::{Backend, Kernels, PublicKey, is_secret_key};
use secp256k1::ellswift::{ElligatorSwift, ElligatorSwiftParty};
use secp256k1::{Secp256k1, SecretKey};
use sha2::{Digest, Sha256};

/// The group's order.
const ORDER: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe,
    0xba, 0xae, 0xdc, 0xe6, 0xaf, 0x48, 0xa0, 0x3b, 0xbf, 0xd2, 0x5e, 0x8c, 0xd0, 0x36, 0x41, 0x41,
];

/// The number by which a secret key is multiplied when its point's x is multiplied by beta.
const LAMBDA: [u8; 32] = [
    0x53, 0x63, 0xad, 0x4c, 0xc0, 0x5c, 0x30, 0xe0, 0xa5, 0x26, 0x1c, 0x02, 0x88, 0x12, 0x64, 0x5a,
    0x12, 0x2e, 0x22, 0xea, 0x20, 0x81, 0x66, 0x78, 0xdf, 0x02, 0x96, 0x7c, 0x1b, 0x23, 0xbd, 0x72,
];

/// 30 * 16^63 modulo n: the public key is twice the last point that the comb adds.
const DOUBLED: [u8; 32] = [
    0xe0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01,
    0x45, 0x51, 0x23, 0x19, 0x50, 0xb7, 0x5f, 0xc4, 0x40, 0x2d, 0xa1, 0x73, 0x2f, 0xc9, 0xbe, 0xbf,
];

fn backends() -> impl Iterator<Item = Kernels> {
    let all = Backend::ALL.iter().filter(|backend| backend.is_available());
    all.map(|backend| backend.kernels())
}

/// Pseudorandom bytes.
struct Random(u64);

impl Random {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for (i, chunk) in bytes.chunks_mut(32).enumerate() {
            self.0 += 1;
            let digest = Sha256::digest([self.0.to_le_bytes(), (i as u64).to_le_bytes()].concat());
            chunk.copy_from_slice(&digest[..chunk.len()]);
        }
        bytes
    }
}

/// `number` in a secret key's place.
fn small(number: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[24..].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// n - `number`
fn from_order(number: u64) -> [u8; 32] {
    let mut bytes = ORDER;
    let mut borrow = i128::from(number);
    for byte in bytes.iter_mut().rev() {
        let value = i128::from(*byte) - (borrow & 255);
        borrow = (borrow >> 8) + i128::from(value < 0);
        *byte = value as u8;
    }
    bytes
}

/// Edge cases first, then random keys.
fn secrets(count: usize, seed: u64) -> Vec<[u8; 32]> {
    let mut random = Random(seed << 32);
    let mut secrets: Vec<_> = (1..=40).map(small).collect();
    secrets.extend((1..=40).map(from_order));
    secrets.extend((1..=255).map(|bit: usize| {
        let mut bytes = [0; 32];
        bytes[31 - bit / 8] = 1 << (bit % 8);
        bytes
    }));
    let doubled = SecretKey::from_slice(&DOUBLED).unwrap();
    secrets.extend([doubled, doubled.negate()].map(|key| key.secret_bytes()));
    while secrets.len() < count {
        secrets.push(random.bytes());
    }
    secrets
}

#[test]
fn public_keys_are_those_of_libsecp256k1() {
    let context = Secp256k1::new();
    let secrets = secrets(2_000, 1);
    let expected: Vec<_> = secrets
        .iter()
        .map(|secret| {
            let key = SecretKey::from_slice(secret).unwrap().public_key(&context);
            let wire = key.serialize();
            PublicKey {
                x: wire[1..].try_into().unwrap(),
                is_odd: wire[0] == 3,
            }
        })
        .collect();
    let secrets: Vec<_> = secrets.iter().collect();
    for kernels in backends() {
        for len in [1, 2, 3, 4, 5, 7, 8, 9, 31, secrets.len()] {
            let mut keys = vec![PublicKey::default(); len];
            kernels.public_keys(&secrets[..len], &mut keys);
            for (i, (key, expected)) in keys.iter().zip(&expected).enumerate() {
                assert_eq!(key, expected, "{kernels:?} {i} {:02x?}", secrets[i]);
            }
        }
    }
}

#[test]
fn secret_keys_are_those_of_libsecp256k1() {
    let all = [
        [0; 32],
        small(1),
        ORDER,
        from_order(1),
        [255; 32],
        [0x80; 32],
    ];
    let mut above = ORDER;
    above[31] += 1;
    for bytes in all.iter().chain([&above]) {
        assert_eq!(
            is_secret_key(bytes),
            SecretKey::from_slice(bytes).is_ok(),
            "{bytes:02x?}"
        );
    }
}

/// The random numbers of libsecp256k1's `secp256k1_ellswift_create`, so that the encodings are the
/// same byte for byte.
struct Tries {
    hasher: Sha256,
    count: u32,
    branches: [u8; 32],
    left: usize,
}

impl Tries {
    fn new(secret: &[u8; 32], auxiliary: &[u8; 32]) -> Self {
        let tag = Sha256::digest(b"secp256k1_ellswift_create");
        let hasher = Sha256::new()
            .chain_update(tag)
            .chain_update(tag)
            .chain_update(secret)
            .chain_update([0; 32])
            .chain_update(auxiliary);
        Self {
            hasher,
            count: 0,
            branches: [0; 32],
            left: 0,
        }
    }

    fn draw(&mut self) -> [u8; 32] {
        let hasher = self.hasher.clone().chain_update(self.count.to_le_bytes());
        self.count += 1;
        hasher.finalize().into()
    }

    fn next(&mut self) -> ([u8; 32], u8) {
        if self.left == 0 {
            self.branches = self.draw();
            self.left = 64;
        }
        self.left -= 1;
        let case = self.branches[self.left / 2] >> (4 * (self.left % 2)) & 7;
        (self.draw(), case)
    }
}

/// The public keys of secret keys, encoded as libsecp256k1 does.
fn encode(kernels: Kernels, secrets: &[[u8; 32]], auxiliaries: &[[u8; 32]]) -> Vec<[u8; 64]> {
    let of: Vec<_> = secrets.iter().collect();
    let mut keys = vec![PublicKey::default(); of.len()];
    kernels.public_keys(&of, &mut keys);
    let both = secrets.iter().zip(auxiliaries);
    let mut tries: Vec<_> = both
        .map(|(secret, auxiliary)| Tries::new(secret, auxiliary))
        .collect();
    let mut encodings = vec![[0; 64]; of.len()];
    kernels.encode_public_keys(&keys, &mut |i| tries[i].next(), &mut encodings);
    encodings
}

#[test]
fn encodings_are_those_of_libsecp256k1() {
    let context = Secp256k1::new();
    let secrets = secrets(1_500, 2);
    let auxiliaries: Vec<[u8; 32]> = secrets
        .iter()
        .map(|secret| Sha256::digest(secret).into())
        .collect();
    let expected: Vec<_> = secrets
        .iter()
        .zip(&auxiliaries)
        .map(|(secret, auxiliary)| {
            let secret = SecretKey::from_slice(secret).unwrap();
            ElligatorSwift::from_seckey(&context, secret, Some(*auxiliary)).to_array()
        })
        .collect();
    for kernels in backends() {
        for len in [1, 2, 3, 4, 5, 7, 8, 9, 31, secrets.len()] {
            let encodings = encode(kernels, &secrets[..len], &auxiliaries[..len]);
            for i in 0..len {
                assert_eq!(encodings[i], expected[i], "{kernels:?} {len} {i}");
            }
        }
    }
}

/// BIP324's hash of what both sides share.
fn hashed(ours: &[u8; 64], theirs: &[u8; 64], x: &[u8; 32]) -> [u8; 32] {
    let tag = Sha256::digest(b"bip324_ellswift_xonly_ecdh");
    let hasher = Sha256::new()
        .chain_update(tag)
        .chain_update(tag)
        .chain_update(ours)
        .chain_update(theirs)
        .chain_update(x);
    hasher.finalize().into()
}

#[test]
fn shared_secrets_are_those_of_libsecp256k1() {
    let mut secrets = secrets(1_500, 3);
    // i + j lambda: the only keys for which the ladder's last additions could be of equal or opposite
    // points. (None of them has the digits for that.)
    let add = |a: Option<SecretKey>, b: Option<SecretKey>| match (a, b) {
        (Some(a), Some(b)) => a.add_tweak(&b.into()).ok(),
        (a, b) => a.or(b),
    };
    let lambda = SecretKey::from_slice(&LAMBDA).unwrap();
    let multiple = |number: i64| {
        let key = SecretKey::from_slice(&small(number.unsigned_abs())).ok()?;
        Some(if number < 0 { key.negate() } else { key })
    };
    for i in -31..=31 {
        for j in -31..=31 {
            let of_lambda = multiple(j).map(|key| key.mul_tweak(&lambda.into()).unwrap());
            secrets.extend(add(multiple(i), of_lambda).map(|key| key.secret_bytes()));
        }
    }
    let mut random = Random(4 << 32);
    let mut encodings: Vec<[u8; 64]> = (0..secrets.len()).map(|_| random.bytes()).collect();
    // Zeros, ones, and numbers above p.
    for (i, fill) in [0, 0xff].into_iter().enumerate() {
        encodings[3 * i] = [fill; 64];
        encodings[3 * i + 1][..32].fill(fill);
        encodings[3 * i + 2][32..].fill(fill);
    }
    let ours = [7; 64];
    let expected: Vec<_> = secrets
        .iter()
        .zip(&encodings)
        .map(|(secret, theirs)| {
            let secret = SecretKey::from_slice(secret).unwrap();
            ElligatorSwift::shared_secret(
                ElligatorSwift::from_array(ours),
                ElligatorSwift::from_array(*theirs),
                secret,
                ElligatorSwiftParty::A,
                None,
            )
            .to_secret_bytes()
        })
        .collect();
    for kernels in backends() {
        for len in [1, 2, 3, 4, 5, 7, 8, 9, 31, secrets.len()] {
            let of: Vec<_> = secrets[..len].iter().collect();
            let theirs: Vec<_> = encodings[..len].iter().collect();
            let mut shared = vec![[0; 32]; len];
            kernels.shared_x(&of, &theirs, &mut shared);
            for i in 0..len {
                let found = hashed(&ours, &encodings[i], &shared[i]);
                assert_eq!(found, expected[i], "{kernels:?} {len} {i}");
            }
        }
    }
}

/// Random keys and encodings, as many as `PACKETLANE_KEYS` says: ten million take half an hour in a
/// release build. Each backend has its share.
#[test]
fn many_random_keys_are_those_of_libsecp256k1() {
    const CHUNK: usize = 250;
    let count = std::env::var("PACKETLANE_KEYS").map_or(2_000, |count| count.parse().unwrap());
    if count < 10_000_000 {
        println!("NOT RUN: ten million keys ({count} ran): PACKETLANE_KEYS=10000000");
    }
    let context = Secp256k1::new();
    let backends: Vec<_> = backends().collect();
    let mut random = Random(9 << 32);
    for (chunk, kernels) in (0..count / CHUNK).zip(backends.iter().cycle()) {
        let secrets: Vec<[u8; 32]> = (0..CHUNK).map(|_| random.bytes()).collect();
        let auxiliaries: Vec<[u8; 32]> = (0..CHUNK).map(|_| random.bytes()).collect();
        let theirs: Vec<[u8; 64]> = (0..CHUNK).map(|_| random.bytes()).collect();
        let of: Vec<_> = secrets.iter().collect();
        let encodings = encode(*kernels, &secrets, &auxiliaries);
        let mut shared = vec![[0; 32]; CHUNK];
        kernels.shared_x(&of, &theirs.iter().collect::<Vec<_>>(), &mut shared);
        for i in 0..CHUNK {
            let secret = SecretKey::from_slice(&secrets[i]).unwrap();
            let ours = ElligatorSwift::from_seckey(&context, secret, Some(auxiliaries[i]));
            assert_eq!(encodings[i], ours.to_array(), "{kernels:?} {chunk} {i}");
            let expected = ElligatorSwift::shared_secret(
                ours,
                ElligatorSwift::from_array(theirs[i]),
                secret,
                ElligatorSwiftParty::A,
                None,
            );
            let found = hashed(&encodings[i], &theirs[i], &shared[i]);
            assert_eq!(found, expected.to_secret_bytes(), "{kernels:?} {chunk} {i}");
        }
    }
}
