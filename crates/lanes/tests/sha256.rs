//! SHA-256 on every backend of this machine: published vectors, and RustCrypto bit for bit,
//! next to unmapped pages on both sides.

mod common;

use common::{Guard, Guarded, Noise, backends};
use packetlane_lanes::{Backend, Digest};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

fn sha256(message: &[u8]) -> Digest {
    Sha256::digest(message).into()
}

fn sha256d(message: &[u8]) -> Digest {
    sha256(&sha256(message))
}

/// Hashes the messages once and twice, whole and in three pieces, and compares every digest.
/// `split` gives the lengths of the first two pieces of message `i`, from `i` and its length.
fn check_split(
    backends: &[Backend],
    messages: &[&[u8]],
    split: impl Fn(usize, usize) -> [usize; 2],
) {
    let once: Vec<_> = messages.iter().map(|message| sha256(message)).collect();
    let twice: Vec<_> = once.iter().map(|digest| sha256(digest)).collect();
    let whole: Vec<[&[u8]; 1]> = messages.iter().map(|&message| [message]).collect();
    let mut pieces = Vec::new();
    for (i, message) in messages.iter().enumerate() {
        let [first, second] = split(i, message.len());
        let (first, rest) = message.split_at(first);
        let (second, third) = rest.split_at(second);
        pieces.push([first, second, third]);
    }
    for &backend in backends {
        let mut digests = vec![[0xee; 32]; messages.len()];
        let right = |digests: &mut Vec<Digest>, expected: &[Digest], what: &str| {
            for (i, (digest, expected)) in digests.iter().zip(expected).enumerate() {
                assert!(
                    digest == expected,
                    "{backend:?}: message {i} of {}, {} bytes, {what}",
                    messages.len(),
                    messages[i].len()
                );
            }
            digests.fill([0xee; 32]);
        };
        backend.kernels().sha256(&whole, &mut digests);
        right(&mut digests, &once, "hashed once");
        backend.kernels().sha256d(&whole, &mut digests);
        right(&mut digests, &twice, "hashed twice");
        backend.kernels().sha256(&pieces, &mut digests);
        right(&mut digests, &once, "hashed once, in pieces");
        backend.kernels().sha256d(&pieces, &mut digests);
        right(&mut digests, &twice, "hashed twice, in pieces");
    }
}

/// [`check_split`] with pieces of various lengths.
fn check(backends: &[Backend], messages: &[&[u8]]) {
    check_split(backends, messages, |i, len| {
        let first = i * 7 % 70 % (len + 1);
        [first, (i * 31 + len / 2) % (len - first + 1)]
    });
}

fn vectors(name: &str) -> Vec<Value> {
    let path = format!("{}/../../vectors/sha256.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let vectors: Value = serde_json::from_str(&text).unwrap();
    vectors[name].as_array().unwrap().clone()
}

fn hex(digits: &Value) -> Vec<u8> {
    let digits = digits.as_str().unwrap();
    (0..digits.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap())
        .collect()
}

/// Each vector alone, and as each of 2 to 40 messages.
#[test]
fn published_vectors() {
    let mut cases = Vec::new();
    for vector in vectors("sha256") {
        let times = vector["times"].as_u64().unwrap_or(1) as usize;
        let message = hex(&vector["message"]).repeat(times);
        cases.push((message, hex(&vector["digest"]), false));
    }
    for vector in vectors("double") {
        let mut digest = hex(&vector["digest_reversed"]);
        digest.reverse();
        cases.push((hex(&vector["message"]), digest, true));
    }
    assert!(cases.len() >= 16);
    for backend in backends() {
        for (message, digest, twice) in &cases {
            for count in if message.len() > 1000 { 1..=2 } else { 1..=40 } {
                let messages = vec![[&message[..]]; count];
                let mut digests = vec![[0; 32]; count];
                match twice {
                    true => backend.kernels().sha256d(&messages, &mut digests),
                    false => backend.kernels().sha256(&messages, &mut digests),
                }
                assert!(
                    digests.iter().all(|is| is[..] == digest[..]),
                    "{backend:?}: {count} messages of {} bytes",
                    message.len()
                );
            }
        }
    }
}

#[test]
fn every_length() {
    let backends = backends();
    let mut noise = Noise::new(1);
    let text = noise.bytes(1000);
    for len in 0..=1000 {
        check(&backends, &[&text[..len]]);
        // Enough messages to fill the lanes, of almost the same length.
        let near = |i: usize| &text[i % 3..][..len.saturating_sub(i % 3)];
        check(&backends, &(0..33).map(near).collect::<Vec<_>>());
    }
}

#[test]
fn long_messages() {
    let backends = backends();
    let mut noise = Noise::new(2);
    for count in [1, 2, 3, 20, 40] {
        let texts: Vec<_> = (0..count)
            .map(|_| {
                let len = noise.below(100_000);
                noise.bytes(len)
            })
            .collect();
        check(&backends, &texts.iter().map(|t| &t[..]).collect::<Vec<_>>());
    }
}

/// Batches of mixed lengths, in no order, from short to long and from long to short.
#[test]
fn every_number_of_messages() {
    let backends = backends();
    let mut noise = Noise::new(3);
    for count in 0..=70 {
        for end in [70, 300, 3000] {
            let mut texts: Vec<_> = (0..count)
                .map(|_| {
                    let len = noise.length(end);
                    noise.bytes(len)
                })
                .collect();
            check(&backends, &texts.iter().map(|t| &t[..]).collect::<Vec<_>>());
            texts.sort_by_key(Vec::len);
            check(&backends, &texts.iter().map(|t| &t[..]).collect::<Vec<_>>());
            texts.reverse();
            check(&backends, &texts.iter().map(|t| &t[..]).collect::<Vec<_>>());
        }
    }
}

#[test]
fn many_messages() {
    let backends = backends();
    let mut noise = Noise::new(4);
    for end in [100, 1000] {
        let texts: Vec<_> = (0..1500)
            .map(|_| {
                let len = noise.below(end);
                noise.bytes(len)
            })
            .collect();
        check(&backends, &texts.iter().map(|t| &t[..]).collect::<Vec<_>>());
    }
}

/// One message that is longer than all others.
#[test]
fn one_longer_message() {
    let backends = backends();
    let mut noise = Noise::new(5);
    let text = noise.bytes(5000);
    for count in [2, 5, 16, 17, 33, 50] {
        for place in 0..count {
            let message = |i| {
                if i == place {
                    &text[..]
                } else {
                    &text[i..][..90]
                }
            };
            check(&backends, &(0..count).map(message).collect::<Vec<_>>());
        }
    }
}

/// Every split into three pieces, for lengths around the ends of blocks.
#[test]
fn every_split() {
    let backends = backends();
    let text = Noise::new(6).bytes(200);
    for len in [0, 1, 2, 55, 56, 63, 64, 65, 119, 128, 130, 193] {
        let mut splits = Vec::new();
        for first in 0..=len {
            for second in 0..=len - first {
                splits.push([first, second]);
            }
        }
        let messages = vec![&text[..len]; splits.len()];
        check_split(&backends, &messages, |i, _| splits[i]);
        // Again, three messages at a time.
        for (few, splits) in messages.chunks(3).zip(splits.chunks(3)).step_by(41) {
            check_split(&backends, few, |i, _| splits[i]);
        }
    }
}

/// Next to unmapped pages: no byte outside a message is read.
#[test]
fn reads_no_byte_outside_a_message() {
    let backends = backends();
    let mut noise = Noise::new(7);
    for guard in Guard::BOTH {
        for count in [1, 2, 3, 9, 16, 17, 33, 40] {
            for base in (0..200).step_by(if count > 4 { 7 } else { 1 }) {
                let mut buffers: Vec<_> = (0..count)
                    .map(|i| Guarded::new(&noise.bytes(base + i % 3), guard))
                    .collect();
                let messages: Vec<_> = buffers.iter_mut().map(|b| &*b.bytes()).collect();
                check_split(&backends, &messages, |i, len| {
                    [len / 3, (i + len / 3) % (len / 2 + 1)]
                });
            }
        }
    }
}

/// Pieces each of which ends or begins at an unmapped page.
#[test]
fn reads_no_byte_outside_a_piece() {
    let backends = backends();
    let mut noise = Noise::new(8);
    for guard in Guard::BOTH {
        for lens in [
            [4, 60, 4],
            [4, 150, 4],
            [0, 64, 1],
            [63, 1, 64],
            [65, 0, 63],
            [1, 1, 1],
        ] {
            let mut buffers: Vec<_> = (0..35)
                .map(|_| lens.map(|len| Guarded::new(&noise.bytes(len), guard)))
                .collect();
            let messages: Vec<[&[u8]; 3]> = buffers
                .iter_mut()
                .map(|pieces| pieces.each_mut().map(|piece| &*piece.bytes()))
                .collect();
            for count in [1, 2, 35] {
                for &backend in &backends {
                    let mut digests = vec![[0; 32]; count];
                    backend.kernels().sha256d(&messages[..count], &mut digests);
                    for (message, digest) in messages.iter().zip(digests) {
                        assert_eq!(digest, sha256d(&message.concat()), "{backend:?} {lens:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn messages_of_64_bytes() {
    let mut noise = Noise::new(9);
    for backend in backends() {
        for guard in Guard::BOTH {
            for count in (0..=130).chain([1000, 1024]) {
                let bytes = noise.bytes(64 * count + 32);
                let mut messages = Guarded::new(&bytes[..64 * count], guard);
                let messages = messages.bytes().as_chunks().0;
                let expected: Vec<_> = messages.iter().map(|m: &[u8; 64]| sha256d(m)).collect();
                let mut digests = Guarded::new(&vec![0; 32 * count], guard);
                let digests = digests.bytes().as_chunks_mut().0;
                backend.kernels().sha256d_64(messages, digests);
                assert!(digests == expected, "{backend:?}: {count}");
                // In place, with and without an odd last node.
                for nodes in [2 * count, 2 * count + 1] {
                    let mut nodes = Guarded::new(&bytes[..32 * nodes], guard);
                    let nodes = nodes.bytes().as_chunks_mut().0;
                    backend.kernels().sha256d_pairs(nodes);
                    assert!(nodes[..count] == expected, "{backend:?}: {count} in place");
                    if let Some(odd) = nodes.get(2 * count) {
                        assert_eq!(odd[..], bytes[64 * count..]);
                    }
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "one digest for each message")]
fn too_few_digests() {
    Backend::Portable
        .kernels()
        .sha256(&[[&b"a"[..]], [b"b"]], &mut [[0; 32]]);
}
