extern crate std;

use super::run::{open, seal};
use super::strategy::{SORTED, Strategy};
use super::tuning::Tuning;
use super::{open_detached, seal_detached};
use crate::Backend;
use crate::header_protection::chacha20_masks as masks;
use crate::job::{BLOCK_LEN, Header, Job, Key, Nonce, Outcome, TAG_LEN, Work};
use crate::kernels::poly1305::Poly1305;
use crate::kernels::poly1305::text::Text;
use chacha20poly1305::aead::{AeadInOut, KeyInit};
use std::vec;
use std::vec::Vec;

/// Single packets and masks, with every tuning that any CPU could choose.
#[test]
fn every_tuning_seals_and_opens() {
    const MAX_LEN: usize = 2200;
    const SIZE: usize = MAX_LEN + TAG_LEN;
    let (key, nonce, aad): (Key, Nonce, _) = ([7; 32], [5; 12], [3; 11]);
    let theirs = chacha20poly1305::ChaCha20Poly1305::new(&key.into());
    let plain: [u8; SIZE] = core::array::from_fn(|i| (i * i / 5) as u8);
    let samples = [(0, 100), (0, 1000)];
    for backend in Backend::ALL.iter().filter(|one| one.is_available()) {
        let set = backend.set();
        let mut expected = [0; 3];
        let three = [samples[0], samples[1], (0, 7)];
        masks(set, &plain, &[key], &three, |one| *one, &mut expected);
        for scalar_mask in [false, true] {
            for rows_after_half in [0, set.row_blocks() / 2, set.row_blocks()] {
                Tuning {
                    scalar_mask,
                    rows_after_half,
                }
                .set(set);
                for len in (0..MAX_LEN).step_by(7).chain(900..1700) {
                    let mut sealed = plain;
                    let text = (&mut sealed[..len]).into();
                    let tag = theirs.encrypt_inout_detached(&nonce.into(), &aad, text);
                    let tag: [u8; TAG_LEN] = tag.unwrap().into();
                    let mut ours = plain;
                    let part = &mut ours[..len];
                    assert_eq!(seal_detached(set, &key, &nonce, &aad, part), tag);
                    assert_eq!(ours[..len], sealed[..len], "{backend:?}, {len} bytes");
                    ours[len..len + TAG_LEN].copy_from_slice(&tag);
                    let part = &mut ours[..len + TAG_LEN];
                    part[len] ^= 1;
                    let outcome = open_detached(set, &key, &nonce, &aad, part);
                    assert_eq!(outcome, Outcome::BadTag);
                    assert_eq!(part[..len], sealed[..len], "{backend:?}, {len} bytes");
                    part[len] ^= 1;
                    let outcome = open_detached(set, &key, &nonce, &aad, part);
                    assert_eq!(outcome, Outcome::Authentic);
                    assert_eq!(ours[..len], plain[..len], "{backend:?}, {len} bytes");
                }
                let mut found = [0; 2];
                masks(set, &plain, &[key], &samples, |one| *one, &mut found);
                assert_eq!(found, expected[..2], "{backend:?}");
            }
        }
    }
}

/// A packet and its header in one call, as in two: with samples in the text, in the tag, and in
/// both.
#[test]
fn header_is_masked_as_if_later() {
    let keys: [Key; 2] = [[3; 32], [4; 32]];
    let plain: [u8; 2500] = core::array::from_fn(|i| (i * i / 7) as u8);
    for backend in Backend::ALL.iter().filter(|one| one.is_available()) {
        let lens = (0..100).chain((100..2300).step_by(61));
        for (len, number_len) in lens.flat_map(|len| (1..=4).map(move |number| (len, number))) {
            let number = 21;
            let job = Job {
                text: number + number_len,
                text_len: len,
                aad: 0,
                aad_len: number + number_len,
                nonce: [len as u8; 12],
                // Both indices are ignored.
                key: 7,
            };
            let header = Header {
                bits: 0x1f | ((1 << (8 * number_len)) - 1) << 8,
                first: 0,
                number,
                key: 1,
            };
            let (mut at_once, mut later) = (plain, plain);
            backend
                .kernels()
                .seal_with_header(&mut at_once, [&keys[0], &keys[1]], &job, &header);
            let mut outcomes = [Outcome::Pending];
            backend.kernels().seal(Work {
                bytes: &mut later,
                keys: &keys,
                jobs: &[Job { key: 0, ..job }],
                outcomes: &mut outcomes,
            });
            backend
                .kernels()
                .chacha20_mask_headers(&mut later, &keys, &[header]);
            assert!(at_once == later, "{backend:?}, {len} bytes");
        }
    }
}

/// Lists that may be stitched: sealed, opened, and each with one forged packet.
#[test]
fn lists_of_longer_packets() {
    const SIZE: usize = 4000;
    const AAD: usize = 40;
    let keys: [Key; 3] = [[1; 32], [2; 32], [3; 32]];
    for backend in Backend::ALL.iter().filter(|one| one.is_available()) {
        // Packets of three to six blocks and of more; all of one length; all long; a single one;
        // long ones among short ones.
        let mixed = [2, 3, 7, 8, 41].map(|packets| (packets, 65, 256));
        let longer = [7, 8, 16, 41].map(|packets| (packets, 140, 340));
        let alike = (65..=1700).map(|len| (5, len, 1));
        let long = [(1, 3300, 340), (9, 3300, 340), (19, 0, 2100), (41, 0, 900)];
        let lists = mixed.into_iter().chain(longer).chain(alike).chain(long);
        for (packets, least, lens) in lists {
            let job = |i: usize| Job {
                text: (i * SIZE + AAD) as u32,
                text_len: (least + i * 53 % lens) as u32,
                aad: (i * SIZE) as u32,
                aad_len: (i * 7 % AAD) as u32,
                key: i % 3,
                nonce: [i as u8; 12],
            };
            let jobs: Vec<Job> = (0..packets).map(job).collect();
            check_list(*backend, &keys, &jobs, packets * SIZE);
        }
    }
}

/// Lists of mixed sizes: as few as are sorted, as many as are sorted at a time, and more; mostly
/// short ones, mostly long ones; with AAD.
#[test]
fn mixed_sizes_are_sorted() {
    const SIZE: usize = 1700;
    const AAD: usize = 20;
    let keys: [Key; 3] = [[1; 32], [2; 32], [3; 32]];
    for backend in Backend::ALL.iter().filter(|one| one.is_available()) {
        let set = backend.set();
        for packets in [9, 24, 47, SORTED - 1, SORTED, SORTED + 25] {
            for (lens, is_sorted) in [(80, true), (300, true), (450, true), (1600, false)] {
                let job = |i: usize| Job {
                    text: (i * SIZE + AAD) as u32,
                    text_len: (i * 577 % lens) as u32,
                    aad: (i * SIZE) as u32,
                    aad_len: (i % 11 / 10 * AAD) as u32,
                    key: i % 3,
                    nonce: [i as u8; 12],
                };
                let jobs: Vec<Job> = (0..packets).map(job).collect();
                let is_sorted = is_sorted && packets > 24;
                if set.stitches_lanes() && packets != 24 {
                    for choose in [Strategy::to_seal, Strategy::to_open] {
                        let (strategy, count) = choose(set, &jobs);
                        assert_eq!(strategy == Strategy::Sorted, is_sorted);
                        assert!(!is_sorted || count == packets.min(SORTED));
                    }
                }
                check_list(*backend, &keys, &jobs, packets * SIZE);
            }
        }
    }
}

/// Many packets with the same number of blocks, as many as fill the lanes of a call and some more,
/// all of one length or with decreasing lengths; and one among them that is longer or has AAD.
#[test]
fn many_packets_in_lockstep() {
    let keys: [Key; 3] = [[1; 32], [2; 32], [3; 32]];
    for backend in Backend::ALL.iter().filter(|one| one.is_available()) {
        // Without such a kernel, these lists are processed like others, which have their own tests.
        let step = match backend.set().lockstep_lanes() {
            0 => 81,
            _ => 9,
        };
        let longer = (1100..=3200).step_by(40 * step);
        let bounds = [64, 65, 128, 129, 3072, 3073];
        for len in (1..=1100).step_by(step).chain(longer).chain(bounds) {
            // The size of a packet, with its AAD, the block by which one is longer, and its tag.
            let size = 16 + len + BLOCK_LEN + TAG_LEN;
            for (packets, every) in [(32, 1), (70, usize::MAX), (64, 3)] {
                for other in [None, Some(0), Some(40), Some(packets - 1)] {
                    let job = |i: usize| {
                        let is_other = other == Some(i);
                        // Each length with as many blocks as the longest.
                        let shorter = (i / every).min((len - 1) % BLOCK_LEN);
                        Job {
                            text: (i * size + 16) as u32,
                            text_len: (len - shorter + BLOCK_LEN * usize::from(is_other && i == 0))
                                as u32,
                            aad: (i * size) as u32,
                            aad_len: 9 * u32::from(is_other && i > 0),
                            key: i % 3,
                            nonce: [i as u8; 12],
                        }
                    };
                    let jobs: Vec<Job> = (0..packets).map(job).collect();
                    check_list(*backend, &keys, &jobs, packets * size);
                }
            }
        }
    }
}

/// Seals a list in `len` bytes and opens it, with some packets forged: one in the middle, the first
/// and the last of 32, or many.
fn check_list(backend: Backend, keys: &[Key], jobs: &[Job], len: usize) {
    let packets = jobs.len();
    let is_forged = |i: usize| match jobs[0].text_len % 3 {
        0 => i == packets / 2,
        1 => [0, 31].contains(&(i % 32)),
        _ => i % 5 > 1,
    };
    let plain: Vec<u8> = (0..len).map(|i| (i.wrapping_mul(i) >> 5) as u8).collect();
    let mut expected = plain.clone();
    for job in jobs {
        let theirs = chacha20poly1305::ChaCha20Poly1305::new(&keys[job.key].into());
        let text = (&mut expected[job.text()]).into();
        let aad = &plain[job.aad()];
        let tag = theirs.encrypt_inout_detached(&job.nonce.into(), aad, text);
        expected[job.tag()].copy_from_slice(&tag.unwrap());
    }
    let mut ours = plain.clone();
    let mut outcomes = vec![Outcome::Pending; packets];
    for run in [seal, open] {
        let work = Work {
            bytes: &mut ours,
            keys,
            jobs,
            outcomes: &mut outcomes,
        };
        run(backend.set(), work);
        if outcomes[0] == Outcome::Sealed {
            assert!(
                ours == expected,
                "{backend:?}, {packets} x {}",
                jobs[0].text_len
            );
            for (_, job) in jobs.iter().enumerate().filter(|(i, _)| is_forged(*i)) {
                ours[job.tag()][3] ^= 1;
            }
        }
    }
    for (i, job) in jobs.iter().enumerate() {
        let (outcome, text) = match is_forged(i) {
            true => (Outcome::BadTag, &expected),
            false => (Outcome::Authentic, &plain),
        };
        assert_eq!(outcomes[i], outcome, "{backend:?}");
        assert!(ours[job.text()] == text[job.text()], "{backend:?}");
    }
}

/// One packet with none, some or all of its keystream precomputed: sealed, opened, and forged.
#[test]
fn single_packets_with_precomputed_keystream() {
    const SIZE: usize = 2500;
    let (key, nonce, aad) = ([9; 32], [2; 12], [1; 21]);
    let theirs = chacha20poly1305::ChaCha20Poly1305::new(&key.into());
    let of: [_; 33] = core::array::from_fn(|i| (i as u32, nonce));
    for backend in Backend::ALL.iter().filter(|one| one.is_available()) {
        let kernels = backend.kernels();
        let mut keystream = [[0; BLOCK_LEN]; 33];
        kernels.precompute_keystream(&key, &of, &mut keystream);
        for count in [0, 1, 2, 5, 7, 17, 33] {
            let keystream = &keystream[..count];
            let lens = (0..2300).step_by(29).chain([320, 384, 1024, 1920, 2048]);
            for (len, with_aad) in lens.flat_map(|len| [(len, true), (len, false)]) {
                let case = (backend, count, len, with_aad);
                let aad = if with_aad { &aad[..] } else { &[] };
                let mut plain = [0xa5; SIZE];
                plain[..aad.len()].copy_from_slice(aad);
                let mut sealed = plain;
                let text = aad.len()..aad.len() + len;
                let encrypted = (&mut sealed[text.clone()]).into();
                let tag = theirs.encrypt_inout_detached(&nonce.into(), aad, encrypted);
                sealed[text.end..][..TAG_LEN].copy_from_slice(&tag.unwrap());
                let job = Job {
                    text: text.start as u32,
                    text_len: len as u32,
                    aad_len: aad.len() as u32,
                    nonce,
                    ..Job::default()
                };
                let packet = &mut plain.clone();
                let outcome = kernels.seal_single(&key, keystream, packet, &job);
                assert_eq!((outcome, &*packet), (Outcome::Sealed, &sealed), "{case:?}");
                packet[text.end + 3] ^= 4;
                let forged = *packet;
                let outcome = kernels.open_single(&key, keystream, packet, &job);
                assert_eq!((outcome, &*packet), (Outcome::BadTag, &forged), "{case:?}");
                packet[text.end + 3] ^= 4;
                let outcome = kernels.open_single(&key, keystream, packet, &job);
                assert_eq!(outcome, Outcome::Authentic, "{case:?}");
                assert_eq!(packet[text.clone()], plain[text], "{case:?}");
            }
        }
    }
}

/// Fewer texts than lanes, and long ones: no lane may read beyond them.
#[test]
fn tags_with_fewer_texts_than_lanes() {
    let len = 1 << 22;
    let bytes = vec![3; len + TAG_LEN];
    let text = |index| Text {
        start: bytes.as_ptr(),
        len: len as u32,
        aad: bytes.as_ptr(),
        aad_len: 0,
        index,
    };
    for backend in Backend::ALL.iter().filter(|backend| backend.is_available()) {
        let set = backend.set();
        if set.tag_lanes() == 1 {
            continue;
        }
        let texts = [text(0), text(1), text(2)];
        let mut tags = [[0; TAG_LEN]; 3];
        // SAFETY: the text and the bytes of a tag after it are in `bytes`; there is no AAD; the
        // texts have the same length, as `group` requires.
        unsafe { set.tags(&texts, &[[5; 32]; 3], &mut tags) };
        let mut one = Poly1305::new(&[5; 32]);
        one.update_blocks(bytes[..len].as_chunks().0);
        one.update_lengths(0, len as u64);
        assert_eq!(tags, [one.finish(); 3], "{backend:?}");
    }
}
