//! Poly1305 in the cases that are most likely to go wrong: keys with every bit set, accumulators
//! near 0, near the prime and at the carry of every limb, in long messages (whose blocks are spread
//! over lanes) and in packets in lanes. Compared with big integers without any optimisation, and
//! with RustCrypto.

mod common;

use chacha20::cipher::{KeyIvInit, StreamCipher};
use common::{Batch, Guard, Guarded, Noise, Packet, backends};
use num_bigint::BigUint;
use packetlane_lanes::Backend;
use poly1305::{Poly1305, universal_hash::KeyInit};

fn number(value: u32) -> BigUint {
    BigUint::from(value)
}

/// 2^`bits`.
fn power_of_two(bits: u32) -> BigUint {
    number(1) << bits
}

/// 2^130 - 5.
fn prime() -> BigUint {
    power_of_two(130) - 5_u32
}

/// The bits of r that clamping keeps (RFC 8439, section 2.5.1).
const CLAMP: u128 = 0x0fff_fffc_0fff_fffc_0fff_fffc_0fff_ffff;

/// The clamped first half of a one-time key, as a number.
fn r(key: &[u8; 32]) -> BigUint {
    let half = u128::from_le_bytes(key[..16].try_into().unwrap());
    BigUint::from(half & CLAMP)
}

/// RFC 8439, section 2.5.1, implemented literally.
fn reference(key: &[u8; 32], message: &[u8]) -> [u8; 16] {
    let (r, p) = (r(key), prime());
    let mut accumulator = number(0);
    for block in message.chunks(16) {
        let block = BigUint::from_bytes_le(block) + power_of_two(8 * block.len() as u32);
        accumulator = (accumulator + block) * &r % &p;
    }
    let tag = accumulator + BigUint::from_bytes_le(&key[16..]);
    let mut bytes = tag.to_bytes_le();
    bytes.resize(16, 0);
    bytes.try_into().unwrap()
}

fn rustcrypto(key: &[u8; 32], message: &[u8]) -> [u8; 16] {
    Poly1305::new(&(*key).into())
        .compute_unpadded(message)
        .into()
}

fn check(backends: &[Backend], key: &[u8; 32], message: &[u8]) {
    let expected = reference(key, message);
    assert_eq!(expected, rustcrypto(key, message), "the oracles disagree");
    for &backend in backends {
        for guard in Guard::BOTH {
            let mut guarded_key = Guarded::new(key, guard);
            let mut guarded = Guarded::new(message, guard);
            let tag = backend
                .kernels()
                .poly1305(guarded_key.bytes().first_chunk().unwrap(), guarded.bytes());
            assert_eq!(
                tag,
                expected,
                "{backend:?} {guard:?}: {} bytes under {key:02x?}",
                message.len()
            );
        }
    }
}

/// First halves of keys: the extremes, and numbers that fill or empty single limbs of 26, 32
/// and 44 bits.
fn halves() -> Vec<u128> {
    let limbs = |width: u32| {
        (0..128_u32.div_ceil(width)).map(move |i| {
            let limb = (1_u128 << width) - 1;
            limb << (width * i)
        })
    };
    let mut halves = vec![0, 1, 2, 4, 5, 1 << 27, 1 << 123, u128::MAX, CLAMP - 1];
    for width in [26, 32, 44] {
        halves.extend(limbs(width));
        halves.extend(limbs(width).map(|limb| !limb));
    }
    halves
}

fn key(r: u128, pad: u128) -> [u8; 32] {
    [r.to_le_bytes(), pad.to_le_bytes()]
        .concat()
        .try_into()
        .unwrap()
}

#[test]
fn every_length_under_the_largest_key() {
    let backends = backends();
    for len in 0..=2100 {
        for byte in [0xff, 0] {
            check(&backends, &[0xff; 32], &vec![byte; len]);
        }
    }
}

#[test]
fn extreme_keys_and_messages() {
    let backends = backends();
    let mut noise = Noise::new(1);
    let lengths = [
        16, 17, 511, 512, 513, 527, 528, 529, 543, 640, 768, 1024, 1040, 2047,
    ];
    for half in halves() {
        for len in lengths {
            for byte in [0xff, 0xfb, 0x00] {
                check(&backends, &key(half, u128::MAX), &vec![byte; len]);
            }
            check(&backends, &key(half, 1), &noise.bytes(len));
            // Blocks of ones and of zeros, alternating by 1, 8 and 16.
            for stride in [1, 8, 16] {
                let message: Vec<u8> = (0..len).map(|i| [0xff, 0][i / 16 / stride % 2]).collect();
                check(&backends, &key(half, 0), &message);
            }
        }
    }
}

/// Residues at both ends of the field, at the limbs' carries, and around the 128 bits of a tag.
fn targets() -> Vec<BigUint> {
    let p = prime();
    let mut targets: Vec<_> = (1..=6_u32).map(|below| &p - below).collect();
    targets.extend((0..=6).map(number));
    for bits in [26, 44, 52, 78, 88, 104, 128, 129] {
        targets.extend([power_of_two(bits) - 1_u32, power_of_two(bits)]);
    }
    targets.push(power_of_two(128) * 3_u32 - 1_u32);
    targets
}

/// A message whose accumulators are `target` as often as possible, if every `lanes`th block
/// goes into the same accumulator and each accumulator is multiplied by r^`lanes`. With one
/// lane, that is the algorithm of the RFC.
///
/// A block has a value from 2^128 to 2^129 - 1, so one in four blocks can be the missing number.
/// The others are noise.
fn reaching(
    r: &BigUint,
    target: &BigUint,
    lanes: usize,
    blocks: usize,
    noise: &mut Noise,
) -> Vec<u8> {
    let p = prime();
    let power = r.modpow(&BigUint::from(lanes), &p);
    // p is a prime, so x^(p - 2) is 1 / x.
    let wanted = target * power.modpow(&(&p - 2_u32), &p) % &p;
    let mut accumulators = vec![number(0); lanes];
    let mut message = Vec::new();
    for block in 0..blocks {
        let accumulator = &mut accumulators[block % lanes];
        let missing = (&wanted + &p + &p - &*accumulator - power_of_two(128)) % &p;
        let mut bytes = missing.to_bytes_le();
        if missing < power_of_two(128) {
            bytes.resize(16, 0);
        } else {
            bytes = noise.bytes(16);
        }
        let sum = &*accumulator + BigUint::from_bytes_le(&bytes) + power_of_two(128);
        *accumulator = sum * &power % &p;
        message.extend(bytes);
    }
    message
}

/// A message after which the accumulator is `target`: tries blocks before the last one until a
/// last block exists. There must be at least seven blocks, because with a small r fewer do not
/// reach every residue.
fn ending_at(r: &BigUint, target: &BigUint, blocks: usize, noise: &mut Noise) -> Vec<u8> {
    let p = prime();
    let wanted = target * r.modpow(&(&p - 2_u32), &p) % &p;
    let accumulate = |accumulator, blocks: &[u8]| {
        blocks.chunks(16).fold(accumulator, |accumulator, block| {
            (accumulator + BigUint::from_bytes_le(block) + power_of_two(128)) * r % &p
        })
    };
    let head = noise.bytes(16 * (blocks - 7));
    let before = accumulate(number(0), &head);
    loop {
        let middle = noise.bytes(16 * 6);
        let accumulator = accumulate(before.clone(), &middle);
        let missing = (&wanted + &p + &p - accumulator - power_of_two(128)) % &p;
        if missing < power_of_two(128) {
            let mut last = missing.to_bytes_le();
            last.resize(16, 0);
            return [head, middle, last].concat();
        }
    }
}

#[test]
fn accumulators_at_both_ends_of_the_field() {
    let backends = backends();
    let mut noise = Noise::new(2);
    let largest = u128::MAX;
    let halves = [largest, 1, 4, CLAMP - 3, 0x0fff_fffc << 96, 0x0fff_ffff];
    for half in halves {
        let noise_half = u128::from_le_bytes(noise.array());
        for half in [half, noise_half] {
            for target in targets() {
                let key = key(half, noise.below(2) as u128 * u128::MAX);
                let r = r(&key);
                for blocks in [7, 31, 32, 33, 40, 47, 48, 65, 79] {
                    let message = ending_at(&r, &target, blocks, &mut noise);
                    check(&backends, &key, &message);
                }
                for (lanes, blocks) in [(1, 33), (4, 67), (8, 72), (8, 77), (16, 96), (16, 101)] {
                    let message = reaching(&r, &target, lanes, blocks, &mut noise);
                    check(&backends, &key, &message);
                }
            }
        }
    }
}

/// RFC 8439's vectors for carries and wrap-around, at the end of a long message whose earlier
/// blocks leave the accumulator at 0.
#[test]
fn carries_of_rfc8439_at_the_end_of_long_messages() {
    let backends = backends();
    let mut noise = Noise::new(3);
    let ones = [0xff; 16];
    let mut below_p = ones;
    below_p[0] = 0xfb;
    // The blocks of appendix A.3, #7 to #9, and four of ones.
    let tails: [&[[u8; 16]]; 4] = [
        &[
            ones,
            [&[0xf0][..], &[0xff; 15]].concat().try_into().unwrap(),
        ],
        &[ones, [0xfe; 16], [0x01; 16]],
        &[below_p],
        &[ones, ones, ones, ones],
    ];
    for half in [1, 2, 4] {
        for blocks in [32, 33, 47, 63] {
            let key = key(half, 0);
            let head = ending_at(&r(&key), &number(0), blocks, &mut noise);
            for tail in tails {
                let message = [head.clone(), tail.concat()].concat();
                check(&backends, &key, &message);
                assert_eq!(
                    reference(&key, &message),
                    reference(&key, &tail.concat()),
                    "the head changed the tag"
                );
            }
        }
    }
}

/// The first `len` bytes of the keystream.
fn keystream(key: &[u8; 32], nonce: &[u8; 12], len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    chacha20::ChaCha20::new(&(*key).into(), &(*nonce).into()).apply_keystream(&mut bytes);
    bytes
}

/// In packets, r is keystream and cannot be chosen, but the ciphertext can: all ones, and
/// blocks that bring the accumulators to the ends of the field.
#[test]
fn extreme_ciphertexts_in_packets() {
    let backends = backends();
    let mut noise = Noise::new(4);
    for target in targets() {
        for n in [2, 7, 8, 16, 17, 64] {
            let packets: Vec<_> = (0..n)
                .map(|i| {
                    let (key, nonce) = (noise.array(), noise.array());
                    let one_time_key = keystream(&key, &nonce, 32).try_into().unwrap();
                    let ciphertext = match i % 4 {
                        0 => vec![0xff; 16 * (1 + noise.below(20))],
                        _ => {
                            let blocks = 1 + noise.below(20);
                            reaching(&r(&one_time_key), &target, 1, blocks, &mut noise)
                        }
                    };
                    let mut text = ciphertext.clone();
                    let stream = keystream(&key, &nonce, 64 + text.len());
                    for (byte, mask) in text.iter_mut().zip(&stream[64..]) {
                        *byte ^= mask;
                    }
                    let packet = Packet::new(key, nonce, Vec::new(), text);
                    let lengths = [[0; 8], (ciphertext.len() as u64).to_le_bytes()];
                    let tag = reference(
                        &one_time_key,
                        &[&ciphertext[..], lengths.as_flattened()].concat(),
                    );
                    assert_eq!(packet.sealed, [&ciphertext[..], &tag].concat());
                    packet
                })
                .collect();
            let batch = Batch::new(&packets, 0);
            for &backend in &backends {
                batch.check(backend);
            }
        }
    }
}
