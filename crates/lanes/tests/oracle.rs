//! Every backend of this machine against RustCrypto and ring, bit for bit.

mod common;

use chacha20poly1305::aead::{AeadInOut, KeyInit};
use common::{Guarded, backends};
use lanes::{Backend, Job, Outcome, TAG_LEN};
use proptest::prelude::*;

/// One packet as an oracle sees it.
#[derive(Clone, Debug)]
struct Packet {
    key: [u8; 32],
    nonce: [u8; 12],
    aad: Vec<u8>,
    text: Vec<u8>,
}

fn rustcrypto(packet: &Packet) -> Vec<u8> {
    let cipher = chacha20poly1305::ChaCha20Poly1305::new(&packet.key.into());
    let mut sealed = packet.text.clone();
    cipher
        .encrypt_in_place(&packet.nonce.into(), &packet.aad, &mut sealed)
        .unwrap();
    sealed
}

fn ring(packet: &Packet) -> Vec<u8> {
    use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
    let key = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &packet.key).unwrap());
    let mut sealed = packet.text.clone();
    let nonce = Nonce::assume_unique_for_key(packet.nonce);
    key.seal_in_place_append_tag(nonce, Aad::from(&packet.aad), &mut sealed)
        .unwrap();
    sealed
}

/// The packets one behind the other, each as AAD, text and room for the tag,
/// after `offset` bytes of nothing.
fn lay_out(packets: &[Packet], offset: usize) -> (Vec<u8>, Vec<[u8; 32]>, Vec<Job>) {
    let mut bytes = vec![0xee; offset];
    let mut jobs = Vec::new();
    for (i, packet) in packets.iter().enumerate() {
        let aad = bytes.len();
        bytes.extend(&packet.aad);
        let text = bytes.len();
        bytes.extend(&packet.text);
        bytes.extend([0xee; TAG_LEN]);
        jobs.push(Job {
            text: text.try_into().unwrap(),
            text_len: packet.text.len().try_into().unwrap(),
            aad: aad.try_into().unwrap(),
            aad_len: packet.aad.len().try_into().unwrap(),
            key: i.try_into().unwrap(),
            nonce: packet.nonce,
        });
    }
    (
        bytes,
        packets.iter().map(|packet| packet.key).collect(),
        jobs,
    )
}

/// Seals and opens `packets` as one batch that ends at an unmapped page, and
/// compares every byte with both oracles'.
fn check(backend: Backend, packets: &[Packet], offset: usize) {
    let (plain, keys, jobs) = lay_out(packets, offset);
    let mut buffer = Guarded::new(&plain);
    let bytes = buffer.bytes();
    let mut outcomes = vec![Outcome::Pending; jobs.len()];
    backend.seal(bytes, &keys, &jobs, &mut outcomes);
    assert!(outcomes.iter().all(|&outcome| outcome == Outcome::Sealed));
    let mut expected = vec![0xee; offset];
    for packet in packets {
        let sealed = rustcrypto(packet);
        assert_eq!(sealed, ring(packet), "the oracles disagree");
        expected.extend(&packet.aad);
        expected.extend(sealed);
    }
    assert!(bytes == expected, "{}: sealed otherwise", backend.name());

    backend.open(bytes, &keys, &jobs, &mut outcomes);
    assert!(
        outcomes
            .iter()
            .all(|&outcome| outcome == Outcome::Authentic)
    );
    for (packet, job) in packets.iter().zip(&jobs) {
        assert_eq!(bytes[job.text as usize..][..packet.text.len()], packet.text);
    }
}

/// Bytes that differ from place to place; `seed` tells runs apart.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[7]
        })
        .collect()
}

fn packet(seed: usize, aad: usize, text: usize) -> Packet {
    let seed = seed as u64;
    Packet {
        key: noise(4 * seed + 1, 32).try_into().unwrap(),
        nonce: noise(4 * seed + 2, 12).try_into().unwrap(),
        aad: noise(4 * seed + 3, aad),
        text: noise(4 * seed + 4, text),
    }
}

#[test]
fn every_length_alone() {
    for backend in backends() {
        for len in 0..=1100 {
            check(backend, &[packet(len, len % 40, len)], 0);
        }
    }
}

#[test]
fn every_length_in_one_batch() {
    let packets: Vec<_> = (0..=1100).map(|len| packet(len, len % 33, len)).collect();
    for backend in backends() {
        check(backend, &packets, 0);
    }
}

#[test]
fn every_offset() {
    for backend in backends() {
        for offset in 0..64 {
            let packets: Vec<_> = [0, 1, 15, 16, 17, 63, 64, 65, 129, 257]
                .iter()
                .map(|&len| packet(offset + len, 0, len))
                .collect();
            check(backend, &packets, offset);
        }
    }
}

/// Every byte of tag, text and AAD flipped once, in the middle of a batch: this
/// packet is refused and keeps its ciphertext, and its neighbours are opened.
#[test]
fn every_flip_is_refused_alone() {
    let packets = [packet(1, 7, 40), packet(2, 9, 100), packet(3, 0, 64)];
    for backend in backends() {
        let (plain, keys, jobs) = lay_out(&packets, 3);
        let mut sealed = plain.clone();
        let mut outcomes = [Outcome::Pending; 3];
        backend.seal(&mut sealed, &keys, &jobs, &mut outcomes);
        let begin = jobs[1].aad as usize;
        let end = jobs[1].text as usize + packets[1].text.len() + TAG_LEN;
        for place in begin..end {
            for bit in [0x01, 0x80] {
                let mut bytes = sealed.clone();
                bytes[place] ^= bit;
                let damaged = bytes.clone();
                backend.open(&mut bytes, &keys, &jobs, &mut outcomes);
                use Outcome::{Authentic, Forged};
                assert_eq!(outcomes, [Authentic, Forged, Authentic]);
                assert_eq!(bytes[begin..end], damaged[begin..end], "shows plaintext");
            }
        }
    }
}

#[test]
fn a_long_text() {
    for backend in backends() {
        for len in [16_384, 300_000, 1 << 20] {
            check(
                backend,
                &[
                    packet(1, 20, len),
                    packet(2, 0, 61),
                    packet(3, 4095, len + 1),
                ],
                5,
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn any_batch(
        packets in prop::collection::vec(
            (any::<[u8; 32]>(), any::<[u8; 12]>(), 0..200_usize, 0..3000_usize),
            0..40,
        ),
        offset in 0..64_usize,
    ) {
        let packets: Vec<_> = packets
            .into_iter()
            .enumerate()
            .map(|(i, (key, nonce, aad, text))| Packet { key, nonce, ..packet(i, aad, text) })
            .collect();
        for backend in backends() {
            check(backend, &packets, offset);
        }
    }

    /// The stream alone, over the counter's whole range.
    #[test]
    fn any_stream(
        key: [u8; 32],
        nonce: [u8; 12],
        counter in 0..(u32::MAX - 100),
        len in 0..2000_usize,
    ) {
        use chacha20::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
        let mut expected = noise(counter.into(), len);
        let mut text = expected.clone();
        let mut cipher = chacha20::ChaCha20::new(&key.into(), &nonce.into());
        cipher.seek(u64::from(counter) * 64);
        cipher.apply_keystream(&mut expected);
        for backend in backends() {
            let mut buffer = Guarded::new(&text);
            backend.chacha20(&key, &nonce, counter, buffer.bytes());
            prop_assert_eq!(&*buffer.bytes(), &expected[..]);
        }
        text.clear();
    }
}
