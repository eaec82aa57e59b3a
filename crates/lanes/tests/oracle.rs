//! ChaCha20-Poly1305 and ChaCha20 on every backend of this machine against RustCrypto and ring,
//! bit for bit, next to unmapped pages on both sides.

mod common;

use chacha20::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
use common::{Batch, Guard, Guarded, Noise, Packet, backends, check};
use packetlane_lanes::{Backend, Job, Kernels, Outcome, Work};
use proptest::prelude::*;

fn packets_of_lengths(noise: &mut Noise, lengths: impl IntoIterator<Item = usize>) -> Vec<Packet> {
    lengths
        .into_iter()
        .map(|len| noise.packet(0, len))
        .collect()
}

#[test]
fn single_packets_of_every_length() {
    let backends = backends();
    let mut noise = Noise::new(1);
    for len in 0..=2100 {
        check(&backends, &[noise.packet(0, len)]);
        check(&backends, &[noise.packet(1 + len % 40, len)]);
    }
}

/// Packets around the limits of what lanes compute at a time, singly and in lists of few and of
/// many.
#[test]
fn long_packets() {
    let backends = backends();
    let mut noise = Noise::new(17);
    let lengths = (2100..5000).step_by(61).chain((16_000..18_000).step_by(23));
    for len in lengths {
        check(&backends, &[noise.packet(len % 3, len)]);
    }
    for n in [2, 5, 8, 9] {
        for shortest in [1400, 4000, 16_500] {
            let lengths = (0..n).map(|i| shortest + i * 67);
            check(&backends, &packets_of_lengths(&mut noise, lengths));
        }
    }
}

/// AAD of every length, before a text that is too short to be spread over lanes and one that is
/// long enough.
#[test]
fn every_length_of_aad() {
    let backends = backends();
    let mut noise = Noise::new(2);
    for len in 0..=1100 {
        check(&backends, &[noise.packet(len, 61)]);
        check(&backends, &[noise.packet(len, 777)]);
    }
}

#[test]
fn every_length_in_one_batch() {
    let backends = backends();
    let mut noise = Noise::new(3);
    for aad in [0, 1] {
        let packets: Vec<_> = (0..=1100)
            .map(|len| noise.packet(aad * (len % 33), len))
            .collect();
        check(&backends, &packets);
        // From long to short, and in random order.
        let packets: Vec<_> = packets.into_iter().rev().collect();
        check(&backends, &packets);
        let shuffled: Vec<_> = (0..=1100)
            .map(|i| packets[i * 700 % 1101].clone())
            .collect();
        check(&backends, &shuffled);
    }
}

#[test]
fn every_number_of_packets() {
    let backends = backends();
    let mut noise = Noise::new(4);
    for n in 0..=140 {
        for len in [0, 1, 16, 61, 64, 250, 600] {
            check(&backends, &packets_of_lengths(&mut noise, vec![len; n]));
        }
        // Different lengths, some with AAD.
        let packets: Vec<_> = (0..n)
            .map(|i| noise.packet(i % 3 / 2 * (i % 20), (i * 83 + n) % 300))
            .collect();
        check(&backends, &packets);
        // Up to 16 blocks, and the largest at every place.
        let packets: Vec<_> = (0..n)
            .map(|i| noise.packet(i % 4 / 3 * 20, (i * 83 + n * 7) % 961))
            .collect();
        check(&backends, &packets);
    }
    for place in 0..23 {
        let lengths = (0..23).map(|i| if i == place { 960 } else { 3 * i });
        check(&backends, &packets_of_lengths(&mut noise, lengths));
    }
}

/// Packets with AAD share lanes if their texts have the same number of blocks, as QUIC's often do.
#[test]
fn every_length_of_aad_in_lanes() {
    let backends = backends();
    let mut noise = Noise::new(14);
    for len in (1..=100).chain([
        383, 384, 385, 500, 527, 528, 529, 577, 1018, 1280, 1450, 5000,
    ]) {
        for n in [2, 3, 4, 5, 8, 16, 17, 40] {
            let packets: Vec<_> = (0..n)
                .map(|i| {
                    let aad = (7 * i + len) % 35;
                    // One packet of another length, and some that lack the last byte.
                    let len = if i == 3 { len / 2 } else { len - i % 5 / 4 };
                    noise.packet(aad, len)
                })
                .collect();
            check(&backends, &packets);
        }
    }
}

/// Short packets have a kernel of their own: every length of AAD and text that it takes and one
/// more, at every index; and groups at the end that are too small for it.
#[test]
fn every_short_packet() {
    let backends = backends();
    let mut noise = Noise::new(15);
    let lengths = |i: usize| (i % 34, i / 34 % 66);
    for all in [false, true] {
        let packets: Vec<_> = (0..34 * 66)
            .map(|i| lengths(if all { i } else { i * 515 % (34 * 66) }))
            .filter(|&(aad, len)| all || aad <= 32 && len <= 64)
            .map(|(aad, len)| noise.packet(aad, len))
            .collect();
        check(&backends, &packets);
    }
    for n in 8..=50 {
        let packets: Vec<_> = (0..n)
            .map(|i| noise.packet((5 * i + n) % 33, (7 * i + n) % 65))
            .collect();
        check(&backends, &packets);
    }
}

/// Many random packets, in lanes. There are more than in other tests, because the one-time keys,
/// which lanes multiply by, are keystream and cannot be chosen.
#[test]
fn a_hundred_thousand_packets() {
    let backends = backends();
    let mut noise = Noise::new(5);
    for round in 0..25 {
        let end = [70, 300, 1100][round % 3];
        let packets: Vec<_> = (0..4096)
            .map(|_| {
                let aad = noise.below(16) / 15 * noise.below(40);
                let len = noise.below(end);
                noise.packet(aad, len)
            })
            .collect();
        let batch = Batch::new(&packets, round);
        for &backend in &backends {
            batch.check_guarded(backend, Guard::BOTH[round % 2]);
        }
    }
}

/// The lanes of short texts wait for longer ones: by every number of bytes up to more than the
/// longest wait, with few and with all lanes of a call in use.
#[test]
fn every_wait_of_a_lane() {
    let backends = backends();
    let mut noise = Noise::new(6);
    for longer in 0..=1100 {
        let short = 1 + longer * 7 % 90;
        let (short_count, long_count) =
            [(1, 1), (7, 1), (1, 7), (15, 1), (8, 8), (20, 13)][longer % 6];
        let lengths = std::iter::repeat_n(short, short_count)
            .chain(std::iter::repeat_n(short + longer, long_count))
            .chain([short + longer / 2]);
        check(&backends, &packets_of_lengths(&mut noise, lengths));
    }
    // Around the longest wait, with every number of short and long texts.
    for longer in [976, 991, 992, 993, 1008, 1023, 1024, 1025, 1040] {
        for short_count in 1..=16 {
            let long_count = 17 - short_count;
            for short in [1, 16, 17, 512] {
                let lengths = std::iter::repeat_n(short, short_count)
                    .chain(std::iter::repeat_n(short + longer, long_count));
                check(&backends, &packets_of_lengths(&mut noise, lengths));
            }
        }
    }
    // A different wait in each lane.
    for step in [1, 15, 16, 17, 61, 62, 66, 67, 70, 200] {
        for n in [8, 16, 33] {
            let lengths = (0..n).map(|i| 40 + i * step);
            check(&backends, &packets_of_lengths(&mut noise, lengths));
        }
    }
}

/// Numbers of packets and total lengths around the end of a chunk.
#[test]
fn chunk_boundaries() {
    let backends = backends();
    let mut noise = Noise::new(7);
    for n in [127, 128, 129, 255, 256, 257, 383, 384, 385] {
        for end in [1, 40, 300] {
            let lengths: Vec<_> = (0..n).map(|i| i * 29 % end).collect();
            check(&backends, &packets_of_lengths(&mut noise, lengths));
        }
    }
    // Total length of a chunk's texts, in bytes.
    let limit = 128 * 1024;
    for sum in limit - 2..=limit + 2 {
        for n in [1, 2, 3, 32, 63, 127, 128, 129] {
            let mut lengths = vec![sum / n; n];
            lengths[n / 2] += sum % n;
            // More packets after the chunk.
            lengths.extend([100, 0, limit, 1]);
            check(&backends, &packets_of_lengths(&mut noise, lengths));
        }
        check(&backends, &packets_of_lengths(&mut noise, [0, sum, 0]));
        check(
            &backends,
            &packets_of_lengths(&mut noise, [sum - 61, 61, sum]),
        );
    }
}

/// Every offset of a batch modulo 64.
#[test]
fn every_offset() {
    let mut noise = Noise::new(8);
    for offset in 0..64 {
        let packets: Vec<_> = [0, 1, 15, 16, 17, 63, 64, 65, 129, 257, 511, 600, 1500]
            .iter()
            .map(|&len| noise.packet(len % 3 / 2 * 20, len))
            .collect();
        let alone = Batch::new(&packets[12..], offset);
        let together = Batch::new(&packets, offset);
        for backend in backends() {
            // The buffer begins a page, so that the offset is the alignment.
            together.check_guarded(backend, Guard::Front);
            alone.check_guarded(backend, Guard::Front);
        }
    }
}

/// Flips a bit in every byte of tag, text and AAD of the middle packet of three: that packet is
/// refused and keeps its ciphertext, and its neighbours are opened.
#[test]
fn every_flip_refuses_only_its_packet() {
    let backends = backends();
    let mut noise = Noise::new(9);
    // Without AAD the packet shares a call with the others.
    for aad in [0, 9] {
        let mut packets = [
            noise.packet(7, 40),
            noise.packet(aad, 100),
            noise.packet(0, 64),
        ];
        let right = packets[1].clone();
        packets[1].genuine = false;
        for place in 0..aad + right.sealed.len() {
            for bit in [0x01, 0x80] {
                match place.checked_sub(aad) {
                    None => packets[1].aad[place] ^= bit,
                    Some(place) => packets[1].sealed[place] ^= bit,
                }
                let batch = Batch::new(&packets, 3);
                for &backend in &backends {
                    batch.check_guarded(backend, Guard::Back);
                }
                packets[1].aad.clone_from(&right.aad);
                packets[1].sealed.clone_from(&right.sealed);
            }
        }
    }
}

/// Batches of packets of up to 300 KB, some of them damaged.
#[test]
fn random_batches() {
    let backends = backends();
    let mut noise = Noise::new(10);
    for round in 0..100 {
        let n = [1, 3, 12, 40, 100][round % 5];
        // Larger batches have shorter packets.
        let end = [300_001, 300_001, 120_000, 40_000, 20_000][round % 5];
        let packets: Vec<_> = (0..n)
            .map(|_| {
                let aad = noise.below(2) * noise.length(2000);
                let len = noise.length(end);
                let packet = noise.packet(aad, len);
                match noise.below(3) {
                    0 => packet.damaged(&mut noise),
                    _ => packet,
                }
            })
            .collect();
        let batch = Batch::new(&packets, noise.below(64));
        for &backend in &backends {
            batch.check(backend);
        }
    }
}

/// Damaged packets among many short ones, in lanes.
#[test]
fn damaged_packets_among_many() {
    let backends = backends();
    let mut noise = Noise::new(11);
    for round in 0..200 {
        let every = [1, 2, 3, 10, 64][round % 5];
        let packets: Vec<_> = (0..70)
            .map(|_| {
                let aad = noise.below(4) / 3 * noise.below(50);
                let len = noise.below(300);
                let packet = noise.packet(aad, len);
                match noise.below(every) {
                    0 => packet.damaged(&mut noise),
                    _ => packet,
                }
            })
            .collect();
        check(&backends, &packets);
    }
}

/// Two to nine packets of similar lengths, some of them damaged. Pipelined or in stitched lanes, each is
/// hashed during the rounds of the next ones.
#[test]
fn few_packets_of_similar_length() {
    let backends = backends();
    let mut noise = Noise::new(17);
    for round in 0..400 {
        let n = 2 + round % 8;
        let (from, to) = [(65, 129), (129, 193), (65, 321), (193, 321), (321, 900)][round % 5];
        let packets: Vec<_> = (0..n)
            .map(|_| {
                let aad = noise.below(2) * noise.below(40);
                let len = from + noise.below(to - from);
                let packet = noise.packet(aad, len);
                match noise.below(3) {
                    0 => packet.damaged(&mut noise),
                    _ => packet,
                }
            })
            .collect();
        check(&backends, &packets);
    }
}

/// Packets that share a key, as those of one session do.
#[test]
fn packets_with_one_key() {
    let backends = backends();
    let mut noise = Noise::new(12);
    let key = noise.array();
    let packets: Vec<_> = (0..100)
        .map(|i| Packet::new(key, noise.array(), noise.bytes(i % 2 * 5), noise.bytes(i)))
        .collect();
    check(&backends, &packets);
}

#[test]
fn long_texts() {
    let backends = backends();
    let mut noise = Noise::new(13);
    for len in [16_384, 300_000, 1 << 20] {
        let packets = [
            noise.packet(20, len),
            noise.packet(0, 61),
            noise.packet(4095, len + 1),
        ];
        check(&backends, &packets);
    }
}

/// Two to seven long texts of similar length, or of one length with AAD, some of them damaged. Up to four share a
/// call for their tags.
#[test]
fn long_texts_of_similar_length() {
    let backends = backends();
    let mut noise = Noise::new(23);
    for len in [1900, 2048, 2112, 2176, 2240, 3001, 4097, 8191] {
        for aad in [0, 9] {
            for n in 2..=7 {
                let packets: Vec<_> = (0..n)
                    .map(|_| {
                        let len = match aad {
                            0 => len - noise.below(300),
                            _ => len,
                        };
                        let packet = noise.packet(aad, len);
                        match noise.below(4) {
                            0 => packet.damaged(&mut noise),
                            _ => packet,
                        }
                    })
                    .collect();
                check(&backends, &packets);
            }
        }
    }
}

/// XORs the keystream from block `counter` on into `text`, by RustCrypto. RustCrypto's counter
/// may not reach the last block, and ours wraps after it. So this goes block by block, and
/// takes the last block from the ChaCha20 that preceded the RFC, where the nonce's first word
/// is the upper half of the counter.
fn reference_stream(key: &[u8; 32], nonce: &[u8; 12], mut counter: u32, text: &mut [u8]) {
    let (upper, rest) = nonce.split_first_chunk().unwrap();
    let upper = u64::from(u32::from_le_bytes(*upper)) << 32;
    for text in text.chunks_mut(64) {
        if counter < u32::MAX {
            let mut cipher = chacha20::ChaCha20::new(key.into(), nonce.into());
            cipher.seek(u64::from(counter) * 64);
            cipher.apply_keystream(text);
        } else {
            let rest = rest.try_into().unwrap();
            let mut cipher = chacha20::ChaCha20Legacy::new(key.into(), rest);
            cipher.seek((upper | u64::from(counter)) * 64);
            cipher.apply_keystream(text);
        }
        counter = counter.wrapping_add(1);
    }
}

fn check_keystream(backends: &[Backend], noise: &mut Noise, counter: u32, len: usize) {
    let (key, mut nonce) = (noise.array(), noise.array());
    // `reference_stream` cannot seek further.
    nonce[3] = 0;
    let text = noise.bytes(len);
    let mut expected = text.clone();
    reference_stream(&key, &nonce, counter, &mut expected);
    for &backend in backends {
        for guard in Guard::BOTH {
            let mut key = Guarded::new(&key, guard);
            let mut buffer = Guarded::new(&text, guard);
            backend.kernels().chacha20(
                key.bytes().first_chunk().unwrap(),
                &nonce,
                counter,
                buffer.bytes(),
            );
            assert!(
                buffer.bytes() == expected,
                "{backend:?} {guard:?} {counter} {len}"
            );
        }
    }
}

/// Precomputed keystream: every number of blocks that fills some calls, with consecutive blocks
/// of one nonce and without.
#[test]
fn precomputed_keystream() {
    let mut noise = Noise::new(15);
    let key = noise.array();
    for count in 0..=100 {
        for each in [1, 2, 3, 10, 16] {
            let mut nonce = noise.array();
            let mut expected = Vec::new();
            let of: Vec<_> = (0..count)
                .map(|i| {
                    if i % each == 0 {
                        nonce = noise.array();
                    }
                    let mut block = [0; 64];
                    let mut stream = chacha20::ChaCha20::new(&key.into(), &nonce.into());
                    stream.seek(64 * u64::from(i % each));
                    stream.apply_keystream(&mut block);
                    expected.extend(block);
                    (i % each, nonce)
                })
                .collect();
            for backend in backends() {
                for guard in Guard::BOTH {
                    let mut keystream = Guarded::new(&vec![0xee; expected.len()], guard);
                    let (blocks, _) = keystream.bytes().as_chunks_mut();
                    backend.kernels().precompute_keystream(&key, &of, blocks);
                    assert!(
                        keystream.bytes() == expected,
                        "{backend:?}: {count} blocks, {each} each"
                    );
                }
            }
        }
    }
}

#[test]
fn keystream_of_every_length() {
    let backends = backends();
    let mut noise = Noise::new(14);
    for len in 0..=2200 {
        check_keystream(&backends, &mut noise, len as u32, len);
    }
}

/// The counter wraps after its last block, in whichever lane that is.
#[test]
fn the_counter_wraps() {
    let backends = backends();
    let mut noise = Noise::new(15);
    for blocks in 1..=70 {
        for len in [1, 64, 65, 64 * blocks, 64 * blocks + 1, 5000] {
            check_keystream(&backends, &mut noise, u32::MAX - blocks as u32 + 1, len);
        }
    }
}

/// Seals or opens a text of 1,000 bytes from these sources.
fn run_from(run: fn(Kernels, Work<'_>, &[&[u8]]), sources: &[&[u8]]) {
    run(
        Backend::Portable.kernels(),
        Work {
            bytes: &mut [0; 1016],
            keys: &[[1; 32]],
            jobs: &[Job {
                text_len: 1000,
                ..Job::default()
            }],
            outcomes: &mut [Outcome::Pending],
        },
        sources,
    );
}

#[test]
#[should_panic(expected = "one source for each packet")]
fn too_few_sources() {
    run_from(Kernels::seal_from, &[]);
}

#[test]
#[should_panic(expected = "the text after the first block")]
fn a_source_that_is_too_short() {
    run_from(Kernels::seal_from, &[&[0; 935]]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn any_batch(
        packets in prop::collection::vec(
            (any::<[u8; 32]>(), any::<[u8; 12]>(), 0..200_usize, 0..3000_usize),
            0..40,
        ),
        offset in 0..64_usize,
    ) {
        let mut noise = Noise::new(16);
        let packets: Vec<_> = packets
            .into_iter()
            .map(|(key, nonce, aad, text)| {
                Packet::new(key, nonce, noise.bytes(aad), noise.bytes(text))
            })
            .collect();
        let batch = Batch::new(&packets, offset);
        for backend in backends() {
            batch.check(backend);
        }
    }

    /// The keystream, for any counter.
    #[test]
    fn any_keystream(seed: u64, counter: u32, len in 0..2000_usize) {
        check_keystream(&backends(), &mut Noise::new(seed), counter, len);
    }
}
