//! QUIC packet protection against the RFCs' vectors, against rustls over *ring*, and with
//! damaged packets.

mod common;

use common::{Random, engine, engines, noise};
use hkdf::Hkdf;
use packetlane::quic::{
    Header, HeaderError, HeaderKey, KeyLenError, OpenBatch, OpenError, Opener, PacketKey,
    PacketNumber, PacketType, SealBatch, SealError, Sealer, Secret, ShortHeader, Suite, Version,
};
use packetlane::{Engine, SlotError, TAG_LEN};
use rustls::crypto::cipher::AeadKey;
use rustls::quic::{DirectionalKeys, Keys};
use rustls::{CipherSuite, Side, Tls13CipherSuite};
use serde_json::Value;
use sha2::{Sha256, Sha384};

fn vectors() -> Vec<(Version, Value)> {
    let read = |(version, name)| {
        let path = format!("{}/../../vectors/{name}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        let vector: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(vector["version"], Version::number(version));
        (version, vector)
    };
    [(Version::V1, "rfc9001.json"), (Version::V2, "rfc9369.json")]
        .map(read)
        .into()
}

fn hex(vector: &Value, name: &str) -> Vec<u8> {
    let digits = vector[name].as_str().unwrap();
    (0..digits.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap())
        .collect()
}

/// Seals one packet.
fn seal(
    engine: &Engine,
    sealer: &mut Sealer,
    number: u64,
    header: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let mut batch = SealBatch::new();
    let slot = sealer.push(&mut batch, number, header, payload).unwrap();
    engine.seal(&mut batch);
    batch.wire(&slot).unwrap().to_vec()
}

/// Packet number, header and payload.
type Opened = (u64, Vec<u8>, Vec<u8>);

/// Opens one packet.
fn open(
    engine: &Engine,
    opener: &mut Opener,
    packet: &[u8],
    pn_offset: usize,
) -> Result<Opened, OpenError> {
    let mut batch = OpenBatch::new();
    let place = batch.feed(packet);
    let slot = opener.push(&mut batch, place, pn_offset)?;
    engine.open(&mut batch);
    let packet = opener.take(&batch, slot)?;
    Ok((
        packet.number,
        packet.header.to_vec(),
        packet.payload.to_vec(),
    ))
}

/// The keys of a vector seal its packet, in two steps.
fn check_keys(engine: &Engine, suite: Suite, vector: &Value) {
    let iv = hex(vector, "iv").try_into().unwrap();
    let packet_key = PacketKey::new(suite, &hex(vector, "key"), &iv).unwrap();
    let header_key = HeaderKey::new(suite, &hex(vector, "hp")).unwrap();
    let (header, payload) = (hex(vector, "header"), hex(vector, "payload"));
    let number = vector["number"].as_u64().unwrap();
    let pn_offset = header.len() - (usize::from(header[0] & 3) + 1);
    let plain = [&header[..], &payload, &[0; TAG_LEN]].concat();
    let mut packet = plain.clone();
    packet_key.seal(engine, number, &mut packet, header.len());
    header_key.protect(engine, &mut packet, pn_offset).unwrap();
    assert_eq!(packet, hex(vector, "packet"));
    let (truncated, len) = header_key
        .unprotect(engine, &mut packet, pn_offset)
        .unwrap();
    assert_eq!(u64::from(truncated), number & ((1 << (8 * len)) - 1));
    assert_eq!(packet[..header.len()], header);
    packet_key
        .open(engine, number, &mut packet, header.len())
        .unwrap();
    assert_eq!(
        packet[..plain.len() - TAG_LEN],
        plain[..plain.len() - TAG_LEN]
    );
}

/// The secret of a vector seals and opens its packet.
fn check_secret(engine: &Engine, secret: &Secret, vector: &Value) {
    let (header, payload) = (hex(vector, "header"), hex(vector, "payload"));
    let number = vector["number"].as_u64().unwrap();
    let packet = seal(
        engine,
        &mut Sealer::new(secret.clone()),
        number,
        &header,
        &payload,
    );
    assert_eq!(packet, hex(vector, "packet"));
    let parsed = Header::parse(&packet, 0).unwrap();
    assert_eq!(parsed.packet_len, packet.len());
    let mut opener = Opener::new(secret.clone());
    opener.set_expected(number - 1);
    let opened = open(engine, &mut opener, &packet, parsed.pn_offset);
    assert_eq!(opened, Ok((number, header, payload)));
}

#[test]
fn rfc_vectors() {
    for engine in &engines() {
        for (version, vector) in &vectors() {
            let initial = Secret::initial(*version, &hex(vector, "dcid"));
            for (secret, side) in initial.iter().zip(["client", "server"]) {
                let vector = &vector[side];
                let suite = Suite::Aes128Gcm;
                check_keys(engine, suite, vector);
                check_secret(engine, secret, vector);
                let given = Secret::new(suite, *version, &hex(vector, "secret")).unwrap();
                check_secret(engine, &given, vector);
                let packet = hex(vector, "packet");
                let header = Header::parse(&packet, 0).unwrap();
                assert_eq!(header.packet_type, PacketType::Initial);
                assert_eq!((header.version, header.fixed_bit), (Some(*version), true));
                let cids = (header.dst_cid, header.src_cid);
                match side {
                    "client" => assert_eq!(cids, (&hex(&vectors()[0].1, "dcid")[..], &[][..])),
                    _ => assert_eq!(cids.0.len() + cids.1.len(), 8),
                }
            }
            let vector = &vector["chacha20"];
            let suite = Suite::ChaCha20Poly1305;
            check_keys(engine, suite, vector);
            let secret = Secret::new(suite, *version, &hex(vector, "secret")).unwrap();
            check_secret(engine, &secret, vector);
            // The next secret gives the next keys.
            let next = Secret::new(suite, *version, &hex(vector, "ku")).unwrap();
            let [a, b] = [secret.next(), next].map(|secret| {
                let header = hex(vector, "header");
                seal(engine, &mut Sealer::new(secret), 654_360_564, &header, b"x")
            });
            assert_eq!(a, b);
        }
    }
}

#[test]
fn retry_packets() {
    for engine in &engines() {
        for (version, vector) in &vectors() {
            let (dcid, mut retry) = (hex(vector, "dcid"), hex(vector, "retry"));
            let (start, tag) = retry.split_last_chunk::<TAG_LEN>().unwrap();
            assert_eq!(version.retry_tag(engine, &dcid, start), *tag);
            let header = Header::parse(&retry, 0).unwrap();
            assert_eq!(header.packet_type, PacketType::Retry);
            assert_eq!(
                (header.token, header.pn_offset),
                (&b"token"[..], start.len())
            );
            assert!(version.verify_retry(engine, &dcid, &retry));
            assert!(!version.verify_retry(engine, &dcid[1..], &retry));
            for other in Version::ALL {
                let right = other.verify_retry(engine, &dcid, &retry);
                assert_eq!(right, other == *version);
            }
            for place in 0..retry.len() {
                for bit in 0..8 {
                    retry[place] ^= 1 << bit;
                    assert!(!version.verify_retry(engine, &dcid, &retry));
                    retry[place] ^= 1 << bit;
                }
                assert!(!version.verify_retry(engine, &dcid, &retry[..place]));
            }
        }
    }
}

/// rustls's cipher suite over *ring*.
fn ring(suite: Suite) -> &'static Tls13CipherSuite {
    let name = match suite {
        Suite::Aes128Gcm => CipherSuite::TLS13_AES_128_GCM_SHA256,
        Suite::Aes256Gcm => CipherSuite::TLS13_AES_256_GCM_SHA384,
        _ => CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    };
    let mut all = rustls::crypto::ring::ALL_CIPHER_SUITES.iter();
    all.find_map(|suite| suite.tls13().filter(|suite| suite.common.suite == name))
        .unwrap()
}

/// One direction's keys of a connection in *ring*, and the secret from which they are derived:
/// the "initial" secret with the hash of any suite.
struct Peer {
    ring: DirectionalKeys,
    secret: Secret,
}

fn peer(suite: Suite, version: Version, cid: &[u8]) -> Peer {
    const V1: &[u8] =
        b"\x38\x76\x2c\xf7\xf5\x59\x34\xb3\x4d\x17\x9a\xe6\xa4\xc8\x0c\xad\xcc\xbb\x7f\x0a";
    const V2: &[u8] =
        b"\x0d\xed\xe3\xde\xf7\x00\xa6\xdb\x81\x93\x81\xbe\x6e\x26\x9d\xcb\xf9\xbd\x2e\xd9";
    let (salt, rustls_version) = match version {
        Version::V1 => (V1, rustls::quic::Version::V1),
        _ => (V2, rustls::quic::Version::V2),
    };
    let len = suite.secret_len();
    let label = [
        &[0, u8::try_from(len).unwrap(), 15],
        &b"tls13 client in\0"[..],
    ]
    .concat();
    let mut secret = vec![0; len];
    match suite {
        Suite::Aes256Gcm => Hkdf::<Sha384>::new(Some(salt), cid).expand(&label, &mut secret),
        _ => Hkdf::<Sha256>::new(Some(salt), cid).expand(&label, &mut secret),
    }
    .unwrap();
    let tls = ring(suite);
    let keys = Keys::initial(rustls_version, tls, tls.quic.unwrap(), cid, Side::Client);
    Peer {
        ring: keys.local,
        secret: Secret::new(suite, version, &secret).unwrap(),
    }
}

impl Peer {
    fn seal(&self, number: u64, header: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut packet = [header, payload].concat();
        let (head, body) = packet.split_at_mut(header.len());
        let tag = self
            .ring
            .packet
            .encrypt_in_place(number, head, body)
            .unwrap();
        packet.extend_from_slice(tag.as_ref());
        let pn_offset = header.len() - (usize::from(header[0] & 3) + 1);
        let sample = packet[pn_offset + 4..][..16].to_vec();
        let (first, rest) = packet.split_first_mut().unwrap();
        let number = &mut rest[pn_offset - 1..header.len() - 1];
        let protected = self.ring.header.encrypt_in_place(&sample, first, number);
        protected.unwrap();
        packet
    }
}

/// A packet to be sealed.
struct Plain {
    peer: usize,
    number: u64,
    header: Vec<u8>,
    pn_offset: usize,
    payload: Vec<u8>,
}

/// A header of any form, and a payload that is long enough, of at most `most` bytes.
fn plain(random: &mut Random, peer: usize, number: u64, most: usize) -> Plain {
    let len = random.below(4) + 1;
    let mut first = 0x40 | (len as u8 - 1);
    // A long header's type, a short header's spin bit.
    first |= [0x80, 0x90, 0xa0, 0x00, 0x20][random.below(5)];
    let mut header = noise(random.next(), 1 + random.below(60));
    header[0] = first;
    let pn_offset = header.len();
    header.extend_from_slice(&number.to_be_bytes()[8 - len..]);
    let payload = 4 - len + random.below(most);
    Plain {
        peer,
        number,
        header,
        pn_offset,
        payload: noise(random.next(), payload),
    }
}

/// Packets of many connections, of all suites and versions, in one batch. Sealed, they equal
/// *ring*'s; opened, they equal the originals. Some are damaged.
#[test]
fn batches_against_ring() {
    for engine in &engines() {
        let mut random = Random::new(1);
        let peers: Vec<Peer> = Version::ALL
            .iter()
            .flat_map(|&version| Suite::ALL.map(|suite| (suite, version)))
            .cycle()
            .take(20)
            .enumerate()
            .map(|(i, (suite, version))| peer(suite, version, &[i as u8; 8]))
            .collect();
        let mut sealers: Vec<_> = peers
            .iter()
            .map(|p| Sealer::new(p.secret.clone()))
            .collect();
        let mut openers: Vec<_> = peers
            .iter()
            .map(|p| Opener::new(p.secret.clone()))
            .collect();
        let mut numbers = vec![0_u64; peers.len()];
        let (mut sealing, mut opening) = (SealBatch::new(), OpenBatch::new());
        let mut damaged = 0;
        for (round, count) in [1, 2, 5, 63, 64, 65, 200, 1, 300].into_iter().enumerate() {
            let most = [1, 30, 300, 1500][round % 4];
            let mut plains = Vec::new();
            for _ in 0..count {
                let peer = random.below(peers.len());
                plains.push(plain(&mut random, peer, numbers[peer], most));
                numbers[peer] += 1 + random.below(3) as u64;
            }
            let slots: Vec<_> = plains
                .iter()
                .map(|p| sealers[p.peer].push(&mut sealing, p.number, &p.header, &p.payload))
                .collect::<Result<_, _>>()
                .unwrap();
            if round % 2 == 0 {
                engine.seal(&mut sealing);
            } else {
                sealing.seal_payloads(engine);
                sealing.protect_headers(engine);
            }
            let mut taken = Vec::new();
            for (p, slot) in plains.iter().zip(&slots) {
                let wire = sealing.wire(slot).unwrap();
                assert_eq!(wire, peers[p.peer].seal(p.number, &p.header, &p.payload));
                // One flipped bit, anywhere in the packet.
                let mut wire = wire.to_vec();
                let damage = random.below(5) == 0;
                if damage {
                    let place = random.below(8 * wire.len());
                    wire[place / 8] ^= 1 << (place % 8);
                }
                let place = opening.feed(&wire);
                let slot = openers[p.peer].push(&mut opening, place, p.pn_offset);
                taken.push((slot.unwrap(), damage, wire));
            }
            sealing.clear();
            if round % 2 == 0 {
                engine.open(&mut opening);
            } else {
                opening.unprotect_headers(engine);
                opening.open_payloads(engine);
            }
            let mut at = 0;
            for (p, (slot, damage, wire)) in plains.iter().zip(taken) {
                let opener = &mut openers[p.peer];
                if damage {
                    let forged = opener.forged();
                    let refused = opener.take(&opening, slot);
                    assert!(matches!(refused, Err(OpenError::BadTag { .. })));
                    assert_eq!(opener.forged(), forged + 1);
                    // A refused packet's plaintext is not shown.
                    let body = at + p.pn_offset + 4..at + wire.len();
                    assert_eq!(opening.bytes()[body], wire[p.pn_offset + 4..]);
                    damaged += 1;
                } else {
                    let packet = opener.take(&opening, slot).unwrap();
                    assert_eq!(packet.number, p.number);
                    assert_eq!(packet.header, p.header);
                    assert_eq!(packet.payload, p.payload);
                    assert!(!packet.key_update);
                }
                at += wire.len();
            }
            opening.clear();
        }
        assert!(damaged > 50, "{damaged}");
    }
}

/// Our keys, through rustls's interface, behave like *ring*'s, in both directions.
#[test]
fn rustls_keys_against_ring() {
    for engine in engines() {
        for suite in Suite::ALL {
            let name = ring(suite).common.suite;
            let ours = packetlane::quic::rustls::cipher_suite(engine, name).unwrap();
            for version in [rustls::quic::Version::V1, rustls::quic::Version::V2] {
                let keys = |tls: &'static Tls13CipherSuite, side| {
                    Keys::initial(version, tls, tls.quic.unwrap(), b"connection", side)
                };
                let (client, server) = (keys(ours, Side::Client), keys(ring(suite), Side::Server));
                for (from, to) in [
                    (&client.local, &server.remote),
                    (&server.local, &client.remote),
                ] {
                    assert_eq!(from.packet.tag_len(), 16);
                    assert_eq!(from.header.sample_len(), 16);
                    let limits = |key: &DirectionalKeys| {
                        let key = &key.packet;
                        (key.confidentiality_limit(), key.integrity_limit())
                    };
                    assert_eq!(limits(from), limits(to));
                    assert_eq!(
                        limits(from),
                        (suite.confidentiality_limit(), suite.integrity_limit())
                    );
                    check_direction(from, to);
                }
            }
        }
    }
    let none =
        packetlane::quic::rustls::cipher_suite(engine(), CipherSuite::TLS13_AES_128_CCM_SHA256);
    assert!(none.is_none());
}

fn check_direction(from: &DirectionalKeys, to: &DirectionalKeys) {
    let mut random = Random::new(1);
    for round in 0..60_u64 {
        let Plain {
            header, payload, ..
        } = plain(&mut random, 0, round, 1400);
        let mut body = payload.clone();
        let number = random.next() >> 2;
        let path = (round % 3 == 0).then_some(round as u32);
        let tag = match path {
            None => from.packet.encrypt_in_place(number, &header, &mut body),
            Some(path) => from
                .packet
                .encrypt_in_place_for_path(path, number, &header, &mut body),
        };
        body.extend_from_slice(tag.unwrap().as_ref());
        // Header protection is applied and removed.
        for len in 0..5 {
            let sample = noise(round, 16);
            let (first, number) = (header[0], noise(round + 1, len));
            let (mut masked, mut masked_number) = (first, number.clone());
            from.header
                .encrypt_in_place(&sample, &mut masked, &mut masked_number)
                .unwrap();
            to.header
                .decrypt_in_place(&sample, &mut masked, &mut masked_number)
                .unwrap();
            assert_eq!((masked, masked_number), (first, number));
        }
        let mut first = header[0];
        for (sample, number) in [(15, 4), (17, 4), (0, 4), (16, 5)] {
            let (sample, mut number) = (noise(1, sample), noise(2, number));
            let refused = from
                .header
                .encrypt_in_place(&sample, &mut first, &mut number);
            assert!(refused.is_err());
            let refused = to.header.decrypt_in_place(&sample, &mut first, &mut number);
            assert!(refused.is_err());
        }
        let mut damaged = body.clone();
        let place = random.below(damaged.len());
        damaged[place] ^= 0x10;
        let before = damaged.clone();
        assert!(
            to.packet
                .decrypt_in_place(number, &header, &mut damaged)
                .is_err()
        );
        assert_eq!(damaged.len(), before.len());
        assert!(
            to.packet
                .decrypt_in_place(number, &header, &mut [0; 15])
                .is_err()
        );
        let opened = match path {
            None => to.packet.decrypt_in_place(number, &header, &mut body),
            Some(path) => to
                .packet
                .decrypt_in_place_for_path(path, number, &header, &mut body),
        };
        assert_eq!(opened.unwrap(), payload);
    }
}

/// RFC 9000's definition in other words: of all numbers with these low bits, the one in the
/// window (expected - half, expected + half], if there is one.
fn nearest(expected: u64, truncated: u32, len: usize) -> Option<u64> {
    let (window, expected) = (1_i128 << (8 * len), i128::from(expected));
    let low = expected - window / 2 + 1;
    let number = low + (i128::from(truncated) - low).rem_euclid(window);
    u64::try_from(number)
        .ok()
        .filter(|&n| n <= PacketNumber::MAX)
}

#[test]
fn packet_numbers_at_the_ends_of_their_windows() {
    // RFC 9000, appendix A.
    assert_eq!(PacketNumber::decode(0xa82f_30eb, 0x9b32, 2), 0xa82f_9b32);
    let encode = |number, acked| PacketNumber::encode(number, acked).map(|n| n.bytes().to_vec());
    assert_eq!(encode(0xac_5c02, Some(0xab_e8b3)), Some(vec![0x5c, 0x02]));
    assert_eq!(
        encode(0xac_e8fe, Some(0xab_e8b3)),
        Some(vec![0xac, 0xe8, 0xfe])
    );

    // One byte: every number, for every receiver near it.
    for expected in (0..1200).chain(PacketNumber::MAX - 1200..=PacketNumber::MAX) {
        for truncated in 0..256 {
            let decoded = PacketNumber::decode(expected, truncated, 1);
            assert_eq!(decoded & 0xff, u64::from(truncated));
            if let Some(nearest) = nearest(expected, truncated, 1) {
                assert_eq!(decoded, nearest, "{truncated} at {expected}");
            }
            assert!(decoded <= PacketNumber::MAX);
        }
    }
    // All lengths, around the ends of each window.
    for len in 1..=4 {
        let window = 1_u64 << (8 * len);
        let near = |place: u64| place.saturating_sub(3)..=(place + 3).min(PacketNumber::MAX);
        for center in [
            0,
            window / 2,
            window,
            3 * window,
            1 << 40,
            PacketNumber::MAX,
        ] {
            for expected in near(center) {
                for edge in [
                    expected.saturating_sub(window),
                    expected.saturating_sub(window / 2),
                    expected,
                    expected + window / 2,
                    expected + window,
                ] {
                    for number in near(edge.min(PacketNumber::MAX)) {
                        let truncated = (number & (window - 1)) as u32;
                        let decoded = PacketNumber::decode(expected, truncated, len);
                        if let Some(nearest) = nearest(expected, truncated, len) {
                            assert_eq!(decoded, nearest, "{number} at {expected}, {len}");
                        }
                        if number.abs_diff(expected) < window / 2 {
                            assert_eq!(decoded, number, "at {expected}, {len}");
                        }
                    }
                }
            }
        }
    }
    // A number in its shortest encoding is decoded by any receiver that has the acknowledged
    // packets, and some of the later ones.
    for acked in [None, Some(0), Some(1), Some(255), Some(1 << 40)] {
        let base = acked.map_or(0, |acked| acked + 1);
        for len in 1..=4 {
            // The farthest number that `len` bytes can encode.
            let farthest = acked.map_or(0, |acked| acked + 1) + (1 << (8 * len - 1)) - 1;
            for number in farthest - 2..=farthest + 2 {
                let Some(encoded) = PacketNumber::encode(number, acked) else {
                    assert!(len == 4 && number > farthest);
                    continue;
                };
                let bytes = encoded.bytes();
                assert_eq!(bytes.len(), len + usize::from(number > farthest));
                let truncated = bytes.iter().fold(0, |n, &byte| n << 8 | u32::from(byte));
                for expected in [base, base.midpoint(number), number - 1, number] {
                    let decoded = PacketNumber::decode(expected, truncated, bytes.len());
                    assert_eq!(decoded, number);
                }
            }
        }
    }
    assert_eq!(encode(5, Some(5)), None);
    assert_eq!(encode(5, Some(6)), None);
    assert_eq!(encode(u64::MAX, None), None);
    assert_eq!(encode(PacketNumber::MAX + 1, Some(PacketNumber::MAX)), None);
    assert_eq!(
        encode(PacketNumber::MAX, Some(PacketNumber::MAX - 1)),
        Some(vec![0xff])
    );
}

fn pair(suite: Suite) -> (Sealer, Opener) {
    let secret = peer(suite, Version::V1, b"pair").secret;
    (Sealer::new(secret.clone()), Opener::new(secret))
}

/// A packet with a short header and no connection ID.
fn short(sealer: &mut Sealer, number: u64) -> Vec<u8> {
    let header = [0x41, number.to_be_bytes()[6], number.to_be_bytes()[7]];
    seal(&engine(), sealer, number, &header, &number.to_be_bytes())
}

#[test]
fn key_updates() {
    for suite in Suite::ALL {
        let (mut sealer, mut opener) = pair(suite);
        let mut phases: Vec<Vec<Vec<u8>>> = Vec::new();
        for phase in 0..5 {
            assert_eq!(sealer.key_phase(), phase % 2 == 1);
            phases.push(
                (0..10)
                    .map(|i| short(&mut sealer, 10 * phase + i))
                    .collect(),
            );
            sealer.update_keys();
        }
        let take = |opener: &mut Opener, packets: &[&[u8]]| -> Vec<_> {
            let mut batch = OpenBatch::new();
            let slots: Vec<_> = packets
                .iter()
                .map(|packet| {
                    let place = batch.feed(packet);
                    opener.push(&mut batch, place, 1).unwrap()
                })
                .collect();
            engine().open(&mut batch);
            slots
                .into_iter()
                .map(|slot| opener.take(&batch, slot).map(|p| (p.number, p.key_update)))
                .collect()
        };
        // In one batch: packets of the old key phase after those of the new one.
        let first = take(
            &mut opener,
            &[
                &phases[0][0],
                &phases[0][3],
                &phases[1][0],
                &phases[0][2],
                &phases[1][1],
            ],
        );
        let expected = [(0, false), (3, false), (10, true), (2, false), (11, false)];
        assert_eq!(first, expected.map(Ok));
        assert!(opener.key_phase());
        // Late packets of the old phase, then the next update before the old keys are dropped.
        assert_eq!(take(&mut opener, &[&phases[0][4]]), [Ok((4, false))]);
        let late = take(&mut opener, &[&phases[2][5], &phases[1][9], &phases[2][0]]);
        assert_eq!(late, [Ok((25, true)), Ok((19, false)), Ok((20, false))]);
        // Two phases back is too far.
        let bad_tag = |number| [Err(OpenError::BadTag { number })];
        assert_eq!(take(&mut opener, &[&phases[0][5]]), bad_tag(5));
        opener.drop_previous_keys();
        assert_eq!(take(&mut opener, &[&phases[1][8]]), bad_tag(18));
        assert_eq!(opener.forged(), 2);
        // Two phases ahead is impossible.
        assert_eq!(take(&mut opener, &[&phases[4][0]]), bad_tag(40));
        assert_eq!(take(&mut opener, &[&phases[3][0]]), [Ok((30, true))]);

        // Old keys for a higher number, in one batch and in two: the peer is wrong.
        let (mut sealer, mut opener) = pair(suite);
        let (mut ahead, _) = pair(suite);
        ahead.update_keys();
        let (old, new) = (short(&mut sealer, 6), short(&mut ahead, 5));
        let both = take(&mut opener, &[&new, &old]);
        let (number, first) = (6, 5);
        let old_keys = OpenError::OldKeysAfterNew { number, first };
        assert_eq!(both, [Ok((5, true)), Err(old_keys)]);
        let (_, mut opener) = pair(suite);
        assert_eq!(take(&mut opener, &[&old]), [Ok((6, false))]);
        let (number, largest) = (5, 6);
        let new_keys = OpenError::NewKeysBeforeOld { number, largest };
        assert_eq!(take(&mut opener, &[&new]), [Err(new_keys)]);
    }
}

/// The first packet number of a key phase is the smallest that used its keys, in whatever order the
/// packets arrive (RFC 9001, section 6.4).
#[test]
fn a_late_packet_lowers_the_first_number_of_its_key_phase() {
    for suite in Suite::ALL {
        let old = |number| short(&mut pair(suite).0, number);
        let new = |number| {
            let mut sealer = pair(suite).0;
            sealer.update_keys();
            short(&mut sealer, number)
        };
        let take = |opener: &mut Opener, turns: &[&[&[u8]]]| {
            let mut results = Vec::new();
            for packets in turns {
                let mut batch = OpenBatch::new();
                let slots: Vec<_> = packets
                    .iter()
                    .map(|packet| {
                        let place = batch.feed(packet);
                        opener.push(&mut batch, place, 1).unwrap()
                    })
                    .collect();
                engine().open(&mut batch);
                for slot in slots {
                    results.push(opener.take(&batch, slot).map(|packet| packet.number));
                }
            }
            results
        };
        let [zero, four] = [0, 4].map(old);
        let [five, three] = [5, 3].map(new);
        let number = 4;
        let old_keys = OpenError::OldKeysAfterNew { number, first: 3 };
        // In one batch and in two, the old keys open packet 4. Once packet 3 has arrived they are
        // no longer tried.
        for (turns, refusal) in [
            (&[&[&zero[..], &five, &three, &four][..]][..], old_keys),
            (&[&[&zero, &five], &[&three, &four]], old_keys),
            (
                &[&[&zero], &[&five], &[&three], &[&four]],
                OpenError::BadTag { number },
            ),
        ] {
            let results = take(&mut pair(suite).1, turns);
            assert_eq!(results, [Ok(0), Ok(5), Ok(3), Err(refusal)], "{suite:?}");
        }
        // Old keys first, then new ones for a lower number.
        for turns in [
            &[&[&zero[..], &five, &four, &three][..]][..],
            &[&[&zero], &[&five], &[&four], &[&three]],
        ] {
            let (number, largest) = (3, 4);
            let new_keys = OpenError::NewKeysBeforeOld { number, largest };
            let results = take(&mut pair(suite).1, turns);
            assert_eq!(results, [Ok(0), Ok(5), Ok(4), Err(new_keys)], "{suite:?}");
        }
    }
}

/// Reserved bits give an error of their own.
#[test]
fn reserved_bits() {
    for suite in Suite::ALL {
        for (form, reserved) in [(0x40, 0x08), (0x40, 0x10), (0xc0, 0x04), (0xc0, 0x08)] {
            let (mut sealer, mut opener) = pair(suite);
            let header = [form | reserved, 1, 2, 0];
            let packet = seal(&engine(), &mut sealer, 0, &header, b"ping");
            let opened = open(&engine(), &mut opener, &packet, 3);
            assert_eq!(opened, Err(OpenError::ReservedBits { number: 0 }));
            assert_eq!(opener.forged(), 0);
        }
    }
}

#[test]
fn packets_that_cannot_be_sealed() {
    let (mut sealer, _) = pair(Suite::Aes128Gcm);
    let mut batch = SealBatch::new();
    let mut push = |number, header: &[u8], payload: &[u8]| {
        sealer.push(&mut batch, number, header, payload).map(drop)
    };
    for header in [&[][..], &[0x40], &[0x41, 5], &[0x43, 0, 0, 5]] {
        let len = header.len();
        let refused = push(5, header, b"ping");
        assert_eq!(refused, Err(SealError::HeaderTooShort { len }));
    }
    for header in [&[0x40, 6][..], &[0x41, 1, 5], &[0x43, 0, 0, 5, 0]] {
        let refused = push(5, header, b"ping");
        assert_eq!(refused, Err(SealError::HeaderNumber { number: 5 }));
    }
    for len in 1..=4 {
        // Numbers 6 to 9, in 1 to 4 bytes.
        let number = 5 + len as u64;
        let header = [&[0x40 | (len as u8 - 1)], &number.to_be_bytes()[8 - len..]].concat();
        let needed = 4 - len;
        if needed > 0 {
            let refused = push(number, &header, &[0; 3][..needed - 1]);
            assert_eq!(refused, Err(SealError::TooShort { needed }));
        }
        assert_eq!(push(number, &header, &[0; 3][..needed]), Ok(()));
    }
    for number in [0, 9] {
        let refused = push(number, &[0x40, number as u8], b"ping");
        let next = 10;
        assert_eq!(refused, Err(SealError::PacketNumberUsed { number, next }));
    }
    for number in [PacketNumber::MAX + 1, u64::MAX] {
        let refused = push(number, &[0x40, number as u8], b"ping");
        assert_eq!(refused, Err(SealError::PacketNumberTooLarge { number }));
    }
    assert_eq!(push(PacketNumber::MAX, &[0x40, 0xff], b"ping"), Ok(()));
    let number = PacketNumber::MAX;
    let spent = push(number, &[0x40, 0xff], b"ping");
    let next = number + 1;
    assert_eq!(spent, Err(SealError::PacketNumberUsed { number, next }));
    let number = next;
    let spent = push(number, &[0x40, 0], b"ping");
    assert_eq!(spent, Err(SealError::PacketNumberTooLarge { number }));
    assert_eq!(batch.len(), 5);
    assert_eq!(sealer.sealed(), 5);

    let (mut sealer, _) = pair(Suite::ChaCha20Poly1305);
    let mut push = |number, largest: u64, destination: &[u8], payload_len| {
        let header = ShortHeader {
            destination,
            spin: false,
            number: PacketNumber::encode(number, Some(largest)).unwrap(),
        };
        let reserved = sealer.reserve_short(&mut batch, &header, payload_len);
        reserved.map(|(_, place)| assert_eq!(place.len(), payload_len))
    };
    assert_eq!(
        push(5, 4, &[0; 21], 3),
        Err(SealError::ConnectionId { len: 21 })
    );
    for (largest, needed) in [(1_000_999, 3), (1_000_000, 2), (900_000, 1)] {
        let refused = push(1_001_000, largest, &[], needed - 1);
        assert_eq!(refused, Err(SealError::TooShort { needed }));
    }
    assert_eq!(push(100_000_000, 1, &[], 0), Ok(()));
    let used = push(100_000_000, 99_999_999, &[], 3);
    let number = 100_000_000;
    let next = number + 1;
    assert_eq!(used, Err(SealError::PacketNumberUsed { number, next }));
    let full = push(100_000_001, 100_000_000, &[], SealBatch::MAX_BYTES);
    assert_eq!(full, Err(SealError::BatchFull));
    assert_eq!(sealer.sealed(), 1);
}

/// Short headers written in place equal those passed as bytes: for every length of connection
/// ID and number, spin bit and key phase.
#[test]
fn short_headers() {
    for suite in Suite::ALL {
        let (mut handed, _) = pair(suite);
        let (mut written, mut opener) = pair(suite);
        let mut number = 0;
        for id_len in 0..=Header::MAX_CONNECTION_ID_LEN {
            for acked in [0_u64, 200, 40_000, 10_000_000] {
                number += acked + 1;
                let encoded = PacketNumber::encode(number, number.checked_sub(acked + 1)).unwrap();
                let len = encoded.bytes().len();
                assert_eq!(encoded.number(), number);
                let (id, payload) = (noise(number, id_len), noise(number, 4 - len + id_len));
                let spin = number % 3 == 0;
                let mut header = vec![0x40 | u8::from(spin) << 5 | (len as u8 - 1)];
                header.extend_from_slice(&id);
                header.extend_from_slice(encoded.bytes());
                let expected = seal(&engine(), &mut handed, number, &header, &payload);
                let header = ShortHeader {
                    destination: &id,
                    spin,
                    number: encoded,
                };
                let mut batch = SealBatch::new();
                let reserved = written.reserve_short(&mut batch, &header, payload.len());
                let (slot, place) = reserved.unwrap();
                place.copy_from_slice(&payload);
                engine().seal(&mut batch);
                assert_eq!(
                    batch.wire(&slot),
                    Ok(&expected[..]),
                    "{suite:?} {id_len} {len}"
                );
                opener.set_expected(number);
                let opened = open(&engine(), &mut opener, &expected, 1 + id_len);
                assert_eq!(opened.unwrap().2, payload);
            }
            handed.update_keys();
            written.update_keys();
        }
    }
}

/// Packets of any length from the network are handled.
#[test]
fn short_packets_are_dropped() {
    let (mut sealer, mut opener) = pair(Suite::ChaCha20Poly1305);
    let packet = seal(&engine(), &mut sealer, 0, &[0x40, 0], b"abc");
    assert_eq!(packet.len(), 1 + 4 + 16);
    for len in 0..packet.len() {
        let opened = open(&engine(), &mut opener, &packet[..len], 1);
        assert_eq!(opened, Err(OpenError::TooShort));
    }
    for pn_offset in [0, 2, 20, 21, usize::MAX - 3, usize::MAX] {
        let opened = open(&engine(), &mut opener, &packet, pn_offset);
        assert_eq!(opened, Err(OpenError::TooShort));
    }
    assert!(open(&engine(), &mut opener, &packet, 1).is_ok());
    let secret = peer(Suite::Aes256Gcm, Version::V2, b"").secret;
    let (header_key, packet_key) = (secret.header_key(), secret.packet_key());
    for len in 0..21 {
        let mut bytes = noise(1, len);
        let refused = header_key.unprotect(&engine(), &mut bytes, 1);
        assert_eq!(refused, Err(HeaderError::TooShort));
        assert_eq!(
            header_key.protect(&engine(), &mut bytes, 1),
            Err(HeaderError::TooShort)
        );
        let refused = match len {
            ..19 => OpenError::NoTag,
            _ => OpenError::BadTag { number: 1 },
        };
        assert_eq!(packet_key.open(&engine(), 1, &mut bytes, 3), Err(refused));
        let refused = packet_key.open(&engine(), 1, &mut bytes, usize::MAX);
        assert_eq!(refused, Err(OpenError::NoTag));
        assert_eq!(bytes, noise(1, len));
    }
}

#[test]
fn headers() {
    let parse = |bytes: &[u8], cid_len| {
        Header::parse(bytes, cid_len).map(|header| {
            assert!(header.pn_offset <= header.packet_len && header.packet_len <= bytes.len());
            (header.packet_type, header.pn_offset, header.packet_len)
        })
    };
    // Types by version.
    let long = |first: u8, version: Version| {
        let cids = [2, 8, 9, 1, 7];
        [&[first][..], &version.number().to_be_bytes(), &cids].concat()
    };
    for (version, types) in [
        (Version::V1, [0xc0, 0xd0, 0xe0, 0xf0]),
        (Version::V2, [0xd0, 0xe0, 0xf0, 0xc0]),
    ] {
        let [initial, zero_rtt, handshake, retry] = types.map(|first| long(first, version));
        // A token of 3 bytes, a length of 25 in two bytes, another packet after it.
        let token = [&initial[..], &[3, 1, 2, 3, 0x40, 25], &[0; 30]].concat();
        assert_eq!(parse(&token, 0), Ok((PacketType::Initial, 16, 41)));
        let header = Header::parse(&token, 0).unwrap();
        assert_eq!(
            (header.dst_cid, header.src_cid, header.token),
            (&[8, 9][..], &[7][..], &[1, 2, 3][..])
        );
        for (start, packet_type) in [
            (zero_rtt, PacketType::ZeroRtt),
            (handshake, PacketType::Handshake),
        ] {
            let packet = [&start[..], &[25], &[0; 30]].concat();
            assert_eq!(parse(&packet, 0), Ok((packet_type, 11, 36)));
        }
        let retry = [&retry[..], &[5; 20]].concat();
        assert_eq!(parse(&retry, 0), Ok((PacketType::Retry, 14, 30)));
        assert_eq!(parse(&retry[..25], 0), Err(HeaderError::Truncated));
        // Lengths that exceed the datagram.
        for length in [&[31][..], &[0x7f, 0xff], &[0xbf; 4], &[0xff; 8]] {
            let packet = [&long(types[2], version)[..], length, &[0; 30]].concat();
            assert_eq!(parse(&packet, 0), Err(HeaderError::Truncated));
            let packet = [&initial[..], length, &[0; 20]].concat();
            assert_eq!(parse(&packet, 0), Err(HeaderError::Truncated));
        }
        for len in 0..token.len() - 5 {
            assert_eq!(parse(&token[..len], 0), Err(HeaderError::Truncated));
        }
    }
    assert_eq!(parse(&[0x40; 30], 8), Ok((PacketType::OneRtt, 9, 30)));
    assert_eq!(parse(&[0x40; 8], 8), Err(HeaderError::Truncated));
    assert_eq!(parse(&[0x40; 8], usize::MAX), Err(HeaderError::Truncated));
    assert!(!Header::parse(&[0; 30], 8).unwrap().fixed_bit);
    let negotiation = [0x80, 0, 0, 0, 0, 0, 0];
    assert_eq!(
        parse(&negotiation, 0),
        Err(HeaderError::Version { number: 0 })
    );
    let mut cid = long(0xc0, Version::V1);
    cid[5] = 21;
    assert_eq!(parse(&cid, 0), Err(HeaderError::ConnectionId { len: 21 }));
}

#[test]
fn key_lengths_are_checked() {
    let error = |len, expected| Some(KeyLenError { len, expected });
    for suite in Suite::ALL {
        let (key_len, secret_len) = (suite.key_len(), suite.secret_len());
        for len in [0, 15, 16, 17, 31, 32, 33, 47, 48, 49] {
            let bytes = vec![1; len];
            let secret = Secret::new(suite, Version::V1, &bytes).err();
            assert_eq!(secret, error(len, secret_len).filter(|_| len != secret_len));
            let expected = error(len, key_len).filter(|_| len != key_len);
            assert_eq!(PacketKey::new(suite, &bytes, &[0; 12]).err(), expected);
            assert_eq!(HeaderKey::new(suite, &bytes).err(), expected);
        }
    }
    // rustls passes keys of these lengths.
    for suite in Suite::ALL {
        let name = ring(suite).common.suite;
        let ours = packetlane::quic::rustls::cipher_suite(engine(), name).unwrap();
        assert_eq!(ours.quic.unwrap().aead_key_len(), suite.key_len());
        assert_eq!(AeadKey::from([1; 32]).as_ref().len(), 32);
    }
}

/// Neither keys nor contents are shown.
#[test]
fn debug_shows_nothing_secret() {
    let secret = Secret::new(Suite::ChaCha20Poly1305, Version::V1, &[0xab; 32]).unwrap();
    let (mut sealer, opener) = (Sealer::new(secret.clone()), Opener::new(secret.clone()));
    let mut batch = SealBatch::new();
    sealer.push(&mut batch, 0, &[0x40, 0], &[0xab; 20]).unwrap();
    let keys = (secret.packet_key(), secret.header_key());
    let shown = format!("{secret:?} {sealer:?} {opener:?} {batch:?} {keys:?}");
    assert!(
        !shown.contains("171") && !shown.to_lowercase().contains("ab, ab"),
        "{shown}"
    );
    assert!(shown.len() < 700, "{shown}");
}

#[test]
fn an_unsealed_slot_has_no_wire() {
    let (mut sealer, _) = pair(Suite::Aes128Gcm);
    let mut batch = SealBatch::new();
    let slot = sealer.push(&mut batch, 0, &[0x40, 0], b"ping").unwrap();
    batch.seal_payloads(&engine());
    // Its header is not protected yet.
    assert_eq!(batch.wire(&slot), Err(SlotError::NotSealed));
    batch.protect_headers(&engine());
    assert!(batch.wire(&slot).is_ok());
    batch.clear();
    assert_eq!(batch.wire(&slot), Err(SlotError::Stale));
}

/// A stale slot, or one of another opener, is refused and changes nothing.
#[test]
fn slots_have_owners() {
    for suite in Suite::ALL {
        let (mut sealer, mut opener) = pair(suite);
        let secret = peer(suite, Version::V1, b"another").secret;
        let (mut other_sealer, mut other) = (Sealer::new(secret.clone()), Opener::new(secret));
        let mut batch = OpenBatch::new();
        let mut add = |sealer: &mut Sealer, opener: &mut Opener, number| {
            let place = batch.feed(&short(sealer, number));
            opener.push(&mut batch, place, 1).unwrap()
        };
        let first = add(&mut sealer, &mut opener, 0);
        let second = add(&mut sealer, &mut opener, 1);
        let foreign = add(&mut other_sealer, &mut other, 2);
        assert_eq!(second.join(&foreign), None);
        assert_eq!(
            opener.take(&batch, first.clone()),
            Err(OpenError::NotOpened)
        );
        engine().open(&mut batch);
        let refused = opener.take(&batch, foreign.clone());
        assert_eq!(refused, Err(OpenError::OtherOpener));
        let refused = other.take(&batch, first.clone());
        assert_eq!(refused, Err(OpenError::OtherOpener));
        let both = first.join(&second).unwrap();
        let refused = opener.take(&batch, both);
        assert_eq!(refused, Err(OpenError::SeveralPackets));
        assert_eq!((opener.expected(), other.expected()), (0, 0));
        assert_eq!(opener.take(&batch, first.clone()).unwrap().number, 0);
        assert_eq!(other.take(&batch, foreign).unwrap().number, 2);
        batch.clear();
        assert_eq!(opener.take(&batch, first), Err(OpenError::NotInBatch));
        assert_eq!((opener.forged(), other.forged()), (0, 0));
        // A key update changes the keys and not the owner.
        let mut sealing = SealBatch::new();
        let before = sealer.push(&mut sealing, 2, &[0x40, 2], b"ping").unwrap();
        sealer.update_keys();
        let after = sealer.push(&mut sealing, 3, &[0x40, 3], b"ping").unwrap();
        let foreign = other_sealer.push(&mut sealing, 3, &[0x40, 3], b"ping");
        assert_eq!(after.join(&foreign.unwrap()), None);
        engine().seal(&mut sealing);
        let both = before.join(&after).unwrap();
        assert_eq!(sealing.wire(&both).unwrap().len(), both.wire_len());
    }
}

/// Connections of all suites, added one after another, whose packets are sealed and opened in
/// parts. Each packet gives the same result as alone.
#[test]
fn sealing_and_opening_in_parts() {
    const CONNECTIONS: usize = 9;
    let suite = |i: usize| Suite::ALL[i % 3];
    let secret = |i: usize, name: &[u8]| {
        let name = [name, &[i as u8]].concat();
        peer(suite(i), Version::V1, &name).secret
    };
    let sealers = |name| -> Vec<_> {
        (0..CONNECTIONS)
            .map(|i| Sealer::new(secret(i, name)))
            .collect()
    };
    let (mut ours, mut alone, mut theirs) = (sealers(b"out"), sealers(b"out"), sealers(b"in"));
    let mut openers: Vec<_> = (0..CONNECTIONS)
        .map(|i| Opener::new(secret(i, b"in")))
        .collect();
    let (mut sealing, mut opening) = (SealBatch::new(), OpenBatch::new());
    for turn in 0..4_u64 {
        let (mut sealed, mut opened) = (Vec::new(), Vec::new());
        for round in 0..20 {
            // One connection at first, more later.
            for i in 0..CONNECTIONS.min(1 + round) {
                let number = 100 * turn + round as u64;
                let header = [0x41, number.to_be_bytes()[6], number.to_be_bytes()[7]];
                let payload = vec![i as u8; 5 + 61 * round];
                let wire = seal(&engine(), &mut alone[i], number, &header, &payload);
                let slot = ours[i].push(&mut sealing, number, &header, &payload);
                sealed.push((slot.unwrap(), wire));
                let wire = short(&mut theirs[i], number);
                let place = opening.feed(&wire);
                let slot = openers[i].push(&mut opening, place, 1).unwrap();
                opened.push((i, slot, number));
            }
            match (turn, round % 5) {
                (0, 2) => engine().seal(&mut sealing),
                (1, 1) => sealing.seal_payloads(&engine()),
                (1, 3) => sealing.protect_headers(&engine()),
                (0, 3) | (2, 2) => engine().open(&mut opening),
                (2, 3) | (3, 1) => opening.unprotect_headers(&engine()),
                (3, 3) => opening.open_payloads(&engine()),
                _ => {}
            }
        }
        engine().seal(&mut sealing);
        engine().open(&mut opening);
        assert_eq!((sealing.len(), opening.len()), (sealed.len(), opened.len()));
        for (slot, wire) in &sealed {
            assert!(sealing.wire(slot) == Ok(wire));
        }
        for (i, slot, number) in opened {
            let packet = openers[i].take(&opening, slot).unwrap();
            assert_eq!(
                (packet.number, packet.payload),
                (number, &number.to_be_bytes()[..])
            );
        }
        sealing.clear();
        opening.clear();
    }
}
