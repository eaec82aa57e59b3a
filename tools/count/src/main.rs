//! Runs one case of the lab a number of times, with our code or a competitor's. `tools/count/run`
//! counts its instructions with QEMU, for 2 N runs minus N runs, so that the start-up cancels out.
//!
//! Usage: `count CASE WHO TIMES`. The cases are below; WHO is `ours` or `theirs`. Packets must be
//! sealed before they can be opened, so `open` cases do both, and `tools/count/run` subtracts the
//! `seal` case.

use packetlane::bip324::{Inbound, Outbound, PacketKind, Role, Session, SessionKeys};
use packetlane::bitcoin::Network;
use packetlane::internals::run_pending;
use packetlane::{Batch, Engine, Key, OpenBatch, SealBatch, Slot, TAG_LEN};
use packetlane::{quic, sha256d};
use packetlane_lanes::{Job, Outcome};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use std::hint::black_box;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [case, who, times] = &arguments[..] else {
        panic!("count CASE ours|theirs TIMES");
    };
    let (ours, times) = (who == "ours", times.parse().expect("a number"));
    let words: Vec<&str> = case.split(' ').collect();
    let number = |i: usize| words[i].parse::<usize>().expect("a number");
    match words[0] {
        "bip324" => bip324(words[1] == "open", number(2), number(3), ours, times),
        "quic" => quic(words[1] == "open", number(2), number(3), ours, times),
        "d64" => d64(number(1), ours, times),
        _ => panic!("unknown case: {case}"),
    }
}

/// Runs pending packets: ours on an engine, ring's one after the other.
enum Runner {
    Ours(Engine),
    Ring(Vec<(Key, LessSafeKey)>),
}

impl Runner {
    fn new(ours: bool) -> Self {
        match ours {
            true => Self::Ours(engine()),
            false => Self::Ring(Vec::new()),
        }
    }

    /// Like the lab's `rivals/bip324.rs`: keeps prepared keys from turn to turn.
    fn ring<Direction>(
        keys: &mut Vec<(Key, LessSafeKey)>,
        batch: &mut Batch<Direction>,
        one: impl Fn(&LessSafeKey, &Job, &mut [u8]) -> Outcome,
    ) {
        run_pending(batch, |pending| {
            let mut prepared = 0;
            for (job, outcome) in pending.jobs.iter().zip(pending.outcomes) {
                assert_eq!((job.aad_len, job.keystream_blocks), (0, 0));
                while prepared <= job.key {
                    let key = &pending.keys[prepared];
                    let new = || {
                        let unbound = UnboundKey::new(&CHACHA20_POLY1305, key);
                        (*key, LessSafeKey::new(unbound.expect("32 bytes")))
                    };
                    match keys.get_mut(prepared) {
                        Some((known, _)) if known == key => {}
                        Some(place) => *place = new(),
                        None => keys.push(new()),
                    }
                    prepared += 1;
                }
                let text = job.text as usize;
                let text_and_tag = &mut pending.bytes[text..text + job.text_len as usize + TAG_LEN];
                *outcome = one(&keys[job.key].1, job, text_and_tag);
            }
        });
    }

    fn seal(&mut self, batch: &mut SealBatch) {
        match self {
            Self::Ours(engine) => engine.seal(batch),
            Self::Ring(keys) => Self::ring(keys, batch, |key, job, text_and_tag| {
                let (text, tag) = text_and_tag.split_at_mut(job.text_len as usize);
                let nonce = Nonce::assume_unique_for_key(job.nonce);
                let sealed = key.seal_in_place_separate_tag(nonce, Aad::empty(), text);
                tag.copy_from_slice(sealed.expect("a short text").as_ref());
                Outcome::Sealed
            }),
        }
    }

    fn open(&mut self, batch: &mut OpenBatch) {
        match self {
            Self::Ours(engine) => engine.open(batch),
            Self::Ring(keys) => Self::ring(keys, batch, |key, job, text_and_tag| {
                let nonce = Nonce::assume_unique_for_key(job.nonce);
                match key.open_in_place(nonce, Aad::empty(), text_and_tag) {
                    Ok(_) => Outcome::Authentic,
                    Err(_) => Outcome::BadTag,
                }
            }),
        }
    }
}

fn engine() -> Engine {
    Engine::detect().expect("PACKETLANE_BACKEND names a backend of this CPU")
}

/// Complete BIP324 packets with `bytes` bytes of contents, `batch` at a time.
fn bip324(open: bool, bytes: usize, batch: usize, ours: bool, times: usize) {
    let keys = SessionKeys::derive(&[0x32; 32], Network::Mainnet.magic());
    let [a, b] =
        [Role::Initiator, Role::Responder].map(|role| Session::from_keys(engine(), &keys, role));
    let (mut outbound, mut inbound): (Outbound, Inbound) = (a.outbound, b.inbound);
    outbound.set_precomputed_keystream(ours);
    inbound.set_precomputed_keystream(ours);
    let mut runners = [Runner::new(ours), Runner::new(ours)];
    let contents: Vec<u8> = (0..bytes).map(|i| (i * 7) as u8).collect();
    let (mut sealing, mut opening) = (SealBatch::new(), OpenBatch::new());
    // BIP324's version packet is empty. Only its receiver treats it specially.
    let mut first = true;
    for _ in 0..times {
        sealing.clear();
        let mut whole: Option<Slot> = None;
        for _ in 0..batch {
            let slot = outbound.push(&mut sealing, PacketKind::Genuine, &contents);
            let slot = slot.expect("short contents");
            whole = Some(match whole {
                None => slot,
                Some(before) => before.join(&slot).expect("one session alone"),
            });
        }
        runners[0].seal(&mut sealing);
        let wire = sealing
            .wire(&whole.expect("a packet"))
            .expect("sealed packets");
        black_box(wire);
        if open {
            opening.clear();
            inbound.feed(&mut opening, wire).expect("an honest peer");
            runners[1].open(&mut opening);
            for packet in inbound.packets(&opening) {
                let packet = packet.expect("an authentic packet");
                assert!(first || packet.len() == bytes);
                first = false;
                black_box(packet);
            }
        }
    }
}

const CONNECTION_ID: [u8; 8] = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];
/// Lengths of a short header and of its packet number.
const HEADER_LEN: usize = 11;
const PN_LEN: usize = 2;
const PN_OFFSET: usize = HEADER_LEN - PN_LEN;
/// The first packet number, which is also the number of unacknowledged packets.
const UNACKED: u64 = 1000;

/// QUIC packets under AES-128-GCM with protected headers: ours, or rustls with ring.
fn quic(open: bool, bytes: usize, batch: usize, ours: bool, times: usize) {
    let payload: Vec<u8> = (0..bytes).map(|i| (i * 7) as u8).collect();
    match ours {
        true => quic_ours(open, &payload, batch, times),
        false => quic_rustls(open, &payload, batch, times),
    }
}

fn quic_ours(open: bool, payload: &[u8], batch: usize, times: usize) {
    let engine = engine();
    let secret = quic::Secret::new(quic::Suite::Aes128Gcm, quic::Version::V1, &[7; 32]);
    let secret = secret.expect("32 bytes");
    let (mut sealer, mut opener) = (quic::Sealer::new(secret.clone()), quic::Opener::new(secret));
    let (mut sealing, mut opening) = (quic::SealBatch::new(), quic::OpenBatch::new());
    let mut next = UNACKED;
    let packet_len = HEADER_LEN + payload.len() + TAG_LEN;
    for _ in 0..times {
        sealing.clear();
        for _ in 0..batch {
            let number = quic::PacketNumber::encode(next, Some(next - UNACKED));
            let header = quic::ShortHeader {
                destination: &CONNECTION_ID,
                spin: false,
                number: number.expect("a number near the acknowledged one"),
            };
            let reserved = sealer.reserve_short(&mut sealing, &header, payload.len());
            let (_, place) = reserved.expect("a sound packet");
            place.copy_from_slice(payload);
            next += 1;
        }
        engine.seal(&mut sealing);
        black_box(sealing.bytes());
        if open {
            opening.clear();
            opening.feed(sealing.bytes());
            let mut slots = [(); 64].map(|()| None);
            for (i, slot) in slots[..batch].iter_mut().enumerate() {
                let packet = i * packet_len..(i + 1) * packet_len;
                *slot = Some(
                    opener
                        .push(&mut opening, packet, PN_OFFSET)
                        .expect("a packet"),
                );
            }
            engine.open(&mut opening);
            for slot in slots.into_iter().flatten() {
                let packet = opener
                    .take(&mut opening, slot)
                    .expect("an authentic packet");
                assert_eq!(packet.payload.len(), payload.len());
                black_box(packet.payload);
            }
        }
    }
}

fn quic_rustls(open: bool, payload: &[u8], batch: usize, times: usize) {
    use rustls::{CipherSuite, Side, quic::Keys};
    let provider = rustls::crypto::ring::default_provider();
    let suite = provider.cipher_suites.iter().find_map(|one| {
        let name = CipherSuite::TLS13_AES_128_GCM_SHA256;
        one.tls13().filter(|one| one.common.suite == name)
    });
    let suite = suite.expect("a suite that every provider has");
    let keys = |side| {
        let quic = suite.quic.expect("a suite for QUIC");
        Keys::initial(rustls::quic::Version::V1, suite, quic, &CONNECTION_ID, side)
    };
    let (from, to) = (keys(Side::Client).local, keys(Side::Server).remote);
    let packet_len = HEADER_LEN + payload.len() + TAG_LEN;
    let (mut wire, mut received) = (vec![0; packet_len * batch], Vec::new());
    let (mut next, mut expected) = (UNACKED, 0);
    for _ in 0..times {
        for packet in wire.chunks_exact_mut(packet_len) {
            let (head, rest) = packet.split_at_mut(HEADER_LEN);
            head[0] = 0x40 | (PN_LEN as u8 - 1);
            head[1..PN_OFFSET].copy_from_slice(&CONNECTION_ID);
            head[PN_OFFSET..].copy_from_slice(&next.to_be_bytes()[8 - PN_LEN..]);
            let (text, tag) = rest.split_at_mut(payload.len());
            text.copy_from_slice(payload);
            let sealed = from.packet.encrypt_in_place(next, head, text);
            tag.copy_from_slice(sealed.expect("a short packet").as_ref());
            let (head, sample) = packet.split_at_mut(PN_OFFSET + 4);
            let (first, rest) = head.split_first_mut().expect("a header");
            let number = &mut rest[PN_OFFSET - 1..][..PN_LEN];
            let masked = from.header.encrypt_in_place(&sample[..16], first, number);
            masked.expect("a sample");
            next += 1;
        }
        black_box(&wire);
        if open {
            received.clear();
            received.extend_from_slice(&wire);
            for packet in received.chunks_exact_mut(packet_len) {
                let (head, sample) = packet.split_at_mut(PN_OFFSET + 4);
                let (first, rest) = head.split_first_mut().expect("a header");
                let number = &mut rest[PN_OFFSET - 1..];
                let unmasked = to.header.decrypt_in_place(&sample[..16], first, number);
                unmasked.expect("a sample");
                let len = usize::from(*first & 3) + 1;
                let truncated = number[..len].iter();
                let truncated = truncated.fold(0, |number, &byte| number << 8 | u32::from(byte));
                let number = quic::PacketNumber::decode(expected, truncated, len);
                let (head, text) = packet.split_at_mut(PN_OFFSET + len);
                let opened = to.packet.decrypt_in_place(number, head, text);
                black_box(opened.expect("an authentic packet"));
                expected = expected.max(number + 1);
            }
        }
    }
}

/// Double SHA-256 of `batch` messages of 64 bytes.
fn d64(batch: usize, ours: bool, times: usize) {
    use sha2::Digest;
    let hasher = sha256d::Hasher::detect().expect("a backend of this CPU");
    let messages: Vec<[u8; 64]> = (0..batch).map(|i| [i as u8; 64]).collect();
    let mut digests = vec![[0; 32]; batch];
    for _ in 0..times {
        if ours {
            hasher.hash64(&messages, &mut digests);
        } else {
            for (message, digest) in messages.iter().zip(&mut digests) {
                *digest = sha2::Sha256::digest(sha2::Sha256::digest(message)).into();
            }
        }
        black_box(&digests);
    }
}
