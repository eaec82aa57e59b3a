//! Double SHA-256 and Merkle trees on every backend of this machine, against RustCrypto and a
//! naive Merkle tree.

mod common;

use common::{Random, engines, noise};
use packetlane::Engine;
use packetlane::sha256d::{self, Hash, Hasher, MerkleRoot};
use sha2::{Digest, Sha256};

fn hashers() -> Vec<Hasher> {
    let on = |engine: &Engine| Hasher::with_backend(engine.backend());
    engines().iter().map(on).collect()
}

fn double(message: &[u8]) -> Hash {
    Sha256::digest(Sha256::digest(message)).into()
}

/// A naive implementation, as the protocol describes it: one level at a time, with an odd node
/// repeated.
fn naive(leaves: &[Hash]) -> MerkleRoot {
    let mut level = leaves.to_vec();
    let mut mutated = false;
    while level.len() > 1 {
        mutated |= level
            .chunks(2)
            .any(|pair| pair.len() == 2 && pair[0] == pair[1]);
        level = level
            .chunks(2)
            .map(|pair| double(&[pair[0], pair[pair.len() - 1]].concat()))
            .collect();
    }
    MerkleRoot {
        root: level.first().copied().unwrap_or_default(),
        mutated,
    }
}

fn leaves(seed: u64, count: usize) -> Vec<Hash> {
    noise(seed, 32 * count).as_chunks().0.to_vec()
}

/// Each function, on each backend and on the default one.
#[test]
fn messages() {
    let text = noise(1, 5000);
    let mut random = Random::new(2);
    for count in (0..40).chain([100, 500]) {
        let messages: Vec<&[u8]> = (0..count)
            .map(|_| {
                let start = random.next() as usize % 2500;
                &text[start..start + random.next() as usize % 600]
            })
            .collect();
        let pieces: Vec<[&[u8]; 3]> = messages
            .iter()
            .map(|message| {
                let (version, rest) = message.split_at(message.len().min(4));
                let (rest, lock_time) = rest.split_at(rest.len().saturating_sub(4));
                [version, rest, lock_time]
            })
            .collect();
        let pairs = &text.as_chunks::<64>().0[..count.min(70)];
        let expected: Vec<_> = messages.iter().map(|m| double(m)).collect();
        let single: Vec<Hash> = messages.iter().map(|m| Sha256::digest(m).into()).collect();
        let of_pairs: Vec<_> = pairs.iter().map(|pair| double(pair)).collect();

        let mut digests = vec![[0; 32]; count];
        let mut check = |hash: &dyn Fn(&mut [Hash]), expected: &[Hash]| {
            let digests = &mut digests[..expected.len()];
            digests.fill([0xee; 32]);
            hash(digests);
            assert_eq!(digests, expected);
        };
        for hasher in hashers() {
            check(&|digests| hasher.hash_many(&messages, digests), &expected);
            check(
                &|digests| hasher.hash_many_in_pieces(&pieces, digests),
                &expected,
            );
            check(
                &|digests| hasher.hash_many_single(&messages, digests),
                &single,
            );
            check(&|digests| hasher.hash64(pairs, digests), &of_pairs);
        }
        check(
            &|digests| sha256d::Hasher::best().hash_many(&messages, digests),
            &expected,
        );
        check(
            &|digests| sha256d::Hasher::best().hash_many_in_pieces(&pieces, digests),
            &expected,
        );
        check(
            &|digests| sha256d::Hasher::best().hash_many_single(&messages, digests),
            &single,
        );
        check(
            &|digests| sha256d::Hasher::best().hash64(pairs, digests),
            &of_pairs,
        );
    }
}

/// Lengths with and without an extra padding block, pairs of nodes, and headers.
#[test]
fn messages_of_one_length() {
    fn check<const N: usize>() {
        let text = noise(N as u64, 600 * N);
        for count in [0, 1, 2, 15, 16, 17, 255, 256, 257, 600] {
            let messages: &[[u8; N]] = &text.as_chunks().0[..count];
            let expected: Vec<_> = messages.iter().map(|m| double(m)).collect();
            let mut digests = vec![[0xee; 32]; count];
            for hasher in hashers() {
                digests.fill([0xee; 32]);
                hasher.hash_many_fixed(messages, &mut digests);
                assert_eq!(digests, expected, "{hasher:?}: {count} of {N}");
            }
            digests.fill([0xee; 32]);
            sha256d::Hasher::best().hash_many_fixed(messages, &mut digests);
            assert_eq!(digests, expected);
        }
    }
    check::<32>();
    check::<55>();
    check::<56>();
    check::<64>();
    check::<80>();
    check::<200>();
}

#[test]
fn roots() {
    for count in (0..=300).chain([1023, 1024, 1025, 9001]) {
        let leaves = leaves(count as u64, count);
        let expected = naive(&leaves);
        assert!(!expected.mutated);
        for hasher in hashers() {
            assert_eq!(hasher.merkle_root(&leaves), expected, "{hasher:?}: {count}");
        }
        assert_eq!(sha256d::Hasher::best().merkle_root(&leaves), expected);
    }
}

/// Block 100,000 of the main chain.
#[test]
fn published_root() {
    let path = format!("{}/../../vectors/sha256.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let vectors: serde_json::Value = serde_json::from_str(&text).unwrap();
    let hash = |digits: &serde_json::Value| -> Hash {
        let digits = digits.as_str().unwrap();
        let byte = |i: usize| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap();
        std::array::from_fn(|i| byte(31 - i))
    };
    for vector in vectors["merkle"].as_array().unwrap() {
        let leaves = vector["leaves_reversed"].as_array().unwrap();
        let leaves: Vec<_> = leaves.iter().map(hash).collect();
        let expected = MerkleRoot {
            root: hash(&vector["root_reversed"]),
            mutated: false,
        };
        for hasher in hashers() {
            assert_eq!(hasher.merkle_root(&leaves), expected);
        }
    }
}

/// Lists with the same root as a shorter one (CVE-2012-2459): they repeat the leaves that the tree
/// would repeat.
#[test]
fn mutated() {
    for count in 1..=70_usize {
        let leaves = leaves(1000 + count as u64, count);
        let genuine = naive(&leaves);
        // At each level with an odd number of nodes, the leaves below its last node.
        let mut nodes = count;
        let mut below = 1;
        while nodes > 1 {
            // As many as possible, or the list would become longer in between.
            let last = &leaves[(nodes - 1) * below..];
            if nodes % 2 == 1 && last.len() == below {
                let longer = [&leaves[..], last].concat();
                for hasher in hashers() {
                    let root = hasher.merkle_root(&longer);
                    assert_eq!(root.root, genuine.root, "{count} {below}");
                    assert!(root.mutated, "{count} {below}");
                    assert_eq!(root, naive(&longer));
                }
            }
            nodes = nodes.div_ceil(2);
            below *= 2;
        }
        // Two equal leaves count only if they are a pair.
        for place in 0..count - 1 {
            let mut leaves = leaves.clone();
            leaves[place + 1] = leaves[place];
            for hasher in hashers() {
                assert_eq!(hasher.merkle_root(&leaves), naive(&leaves));
                assert_eq!(hasher.merkle_root(&leaves).mutated, place % 2 == 0);
            }
        }
    }
}

/// The functions ignore `PACKETLANE_BACKEND`, even if it is invalid.
#[test]
fn environment() {
    let test = std::env::current_exe().unwrap();
    for name in ["portable", "avx2", "avx512", "no such backend", ""] {
        let status = std::process::Command::new(&test)
            .args(["--exact", "messages", "published_root"])
            .env(packetlane::Engine::BACKEND_VARIABLE, name)
            .stdout(std::process::Stdio::null())
            .status();
        assert!(status.unwrap().success(), "{name:?}");
    }
}

#[test]
#[should_panic(expected = "one digest for each message")]
fn too_many_digests() {
    sha256d::Hasher::best().hash_many(&[b"a"], &mut [[0; 32]; 2]);
}

/// Any threshold can be set, and the digests are the same.
#[test]
fn any_lane_threshold_gives_the_same_digests() {
    let text = noise(11, 4000);
    let messages: Vec<&[u8]> = (0..45)
        .map(|i| &text[7 * i..8 * i * i % 3000 + 7 * i])
        .collect();
    let expected: Vec<Hash> = messages.iter().map(|message| double(message)).collect();
    for hasher in hashers() {
        let measured = hasher.lanes_from();
        assert!(measured > 0);
        for number in [1, 2, 7, 16, 17, usize::MAX, measured] {
            hasher.set_lanes_from(number);
            assert_eq!(hasher.lanes_from(), number);
            let mut digests = vec![Hash::default(); messages.len()];
            hasher.hash_many(&messages, &mut digests);
            assert!(digests == expected, "{hasher:?} from {number} on");
        }
    }
}
