//! Both directions against the crate `bip324`, on every backend.

mod common;

use bip324::{CipherSession, GarbageResult, Initialized, PacketType, VersionResult};
use common::{MAGIC, Random, config, engines, noise, pieces};
use packetlane::bip324::{
    Handshake, HandshakeConfig, OpenError, PacketKind, Progress, Role, Session,
};
use packetlane::{Engine, OpenBatch, SealBatch};
use proptest::prelude::*;

/// What a side sends in addition to the required bytes.
#[derive(Clone, Debug)]
struct Extras {
    garbage: usize,
    decoys: Vec<usize>,
}

fn extras() -> impl Strategy<Value = Extras> {
    let garbage = prop_oneof![
        Just(0),
        Just(1),
        Just(Handshake::MAX_GARBAGE_LEN),
        0..=Handshake::MAX_GARBAGE_LEN
    ];
    let decoys = prop::collection::vec(prop_oneof![0..100_usize, 0..30_000_usize], 0..4);
    (garbage, decoys).prop_map(|(garbage, decoys)| Extras { garbage, decoys })
}

/// A handshake between ours, in `role`, and theirs. Their bytes arrive in pieces. `early` are
/// contents of genuine packets that they send right after the handshake.
fn meet(
    engine: Engine,
    role: Role,
    [ours, theirs]: [&Extras; 2],
    random: &mut Random,
    early: &[Vec<u8>],
) -> (Session, CipherSession) {
    let config = HandshakeConfig {
        garbage: noise(random.next(), ours.garbage),
        decoys: ours.decoys.iter().map(|&len| noise(3, len)).collect(),
        ..config(engine, random.next() >> 8)
    };
    let (handshake, their_role) = match role {
        Role::Initiator => (Handshake::initiator(config), bip324::Role::Responder),
        Role::Responder => (Handshake::responder(config), bip324::Role::Initiator),
    };
    let mut handshake = handshake.unwrap();

    let garbage = noise(random.next(), theirs.garbage);
    let decoys: Vec<_> = theirs.decoys.iter().map(|&len| noise(4, len)).collect();
    let decoys: Vec<&[u8]> = decoys.iter().map(Vec::as_slice).collect();
    let peer = bip324::Handshake::<Initialized>::new(MAGIC, their_role).unwrap();
    let mut key = vec![0; bip324::Handshake::<Initialized>::send_key_len(Some(&garbage))];
    let peer = peer.send_key(Some(&garbage), &mut key).unwrap();

    // Before their first bytes arrive, ours as initiator sends at once, as responder it needs a
    // few bytes.
    let mut wire = handshake.take_output();
    assert_eq!(wire.is_empty(), role == Role::Responder);
    for piece in pieces(&key, random, 700) {
        let progress = handshake.receive(piece).unwrap();
        assert!(matches!(progress, Progress::Waiting));
    }
    wire.extend(handshake.take_output());
    let (public, rest) = wire.split_first_chunk().unwrap();
    let peer = peer.receive_key(*public).unwrap();
    let len = bip324::Handshake::<bip324::ReceivedKey<'_>>::send_version_len(Some(&decoys));
    let mut version = vec![0; len];
    let peer = peer.send_version(&mut version, Some(&decoys)).unwrap();

    // They read everything we send before we have read everything they send.
    let GarbageResult::FoundGarbage {
        handshake: mut peer,
        consumed_bytes,
    } = peer.receive_garbage(rest).unwrap()
    else {
        panic!("they do not find our terminator");
    };
    assert_eq!(consumed_bytes, ours.garbage + 16);
    let mut rest = &rest[consumed_bytes..];
    let mut decoys = 0;
    let mut cipher = loop {
        let (length, behind) = rest.split_first_chunk().unwrap();
        let length = peer.decrypt_packet_len(*length).unwrap();
        let (packet, behind) = behind.split_at(length);
        rest = behind;
        match peer.receive_version(&mut packet.to_vec()).unwrap() {
            VersionResult::Complete { cipher } => break cipher,
            VersionResult::Decoy(again) => peer = again,
        }
        decoys += 1;
    };
    assert_eq!((decoys, rest.len()), (ours.decoys.len(), 0));

    for contents in early {
        let outbound = cipher.outbound();
        version.extend(outbound.encrypt_to_vec(contents, PacketType::Genuine, None));
    }
    // The end of the handshake may arrive together with early packets. Bytes that the handshake
    // does not pass to the session are fed to it.
    let mut session = None;
    let mut batch = OpenBatch::new();
    let mut packets = Vec::new();
    for piece in pieces(&version, random, 700) {
        match &mut session {
            None => match handshake.receive(piece).unwrap() {
                Progress::Waiting => continue,
                Progress::Complete(complete) => {
                    let session = session.insert(*complete);
                    session.inbound.receive(&mut batch, 0)
                }
                Progress::V1(_) => panic!("they speak v2"),
            },
            Some(session) => session.inbound.feed(&mut batch, piece),
        }
        .unwrap();
        engine.open(&mut batch);
        let (more, error) = common::take(session.as_mut().unwrap(), &batch);
        assert_eq!(error, None);
        packets.extend(more);
        batch.clear();
    }
    let session = session.expect("the handshake is not done");
    assert_eq!(packets, early);
    assert!(handshake.take_output().is_empty());
    assert_eq!(session.id(), cipher.id());
    assert_eq!(
        session.inbound.decoys(),
        0,
        "decoys of the handshake are counted separately"
    );
    (session, cipher)
}

/// A packet to send: the length of its contents, and whether it is a decoy.
type Packet = (usize, bool);

/// Packets of 0 to 100 KB, most of them small.
fn packets(count: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<Packet>> {
    let size = prop_oneof![
        60 => 0..40_usize,
        37 => 0..3000_usize,
        3 => 0..=100_000_usize,
    ];
    prop::collection::vec((size, prop::bool::weighted(0.15)), count)
}

/// Sends `packets` from them to us and compares. The stream and the batches are cut at random.
fn they_send(
    engine: Engine,
    session: &mut Session,
    cipher: &mut CipherSession,
    packets: &[Packet],
    random: &mut Random,
) {
    let mut wire = Vec::new();
    let mut expected = Vec::new();
    for (i, &(len, decoy)) in packets.iter().enumerate() {
        let contents = noise(i as u64, len);
        let kind = [PacketType::Genuine, PacketType::Decoy][usize::from(decoy)];
        wire.extend(cipher.outbound().encrypt_to_vec(&contents, kind, None));
        if !decoy {
            expected.push(contents);
        }
    }
    let before = session.inbound.decoys();
    let most = [1 + random.below(60), 5000, 200_000][random.below(3)];
    let mut got = Vec::new();
    let mut batch = OpenBatch::new();
    for piece in pieces(&wire, random, most) {
        // Read as from a socket, into more room than needed, or fed.
        let added = if random.below(2) == 0 {
            let room = batch.room(piece.len() + random.below(100));
            room[..piece.len()].copy_from_slice(piece);
            session.inbound.receive(&mut batch, piece.len())
        } else {
            session.inbound.feed(&mut batch, piece)
        };
        assert!(added.is_ok());
        // A turn has one piece or several.
        if random.below(3) == 0 {
            engine.open(&mut batch);
            let (more, error) = common::take(session, &batch);
            assert_eq!(error, None);
            got.extend(more);
            batch.clear();
        }
    }
    engine.open(&mut batch);
    let (more, error) = common::take(session, &batch);
    assert_eq!(error, None);
    got.extend(more);
    assert_eq!(got.len(), expected.len());
    assert!(got == expected, "messages differ");
    let decoys = packets.len() - expected.len();
    assert_eq!(session.inbound.decoys() - before, decoys as u64);
    assert_eq!(session.inbound.buffered(), 0);
}

/// Sends `packets` from us to them, in batches cut at random and one at a time.
fn we_send(
    engine: Engine,
    session: &mut Session,
    cipher: &mut CipherSession,
    packets: &[Packet],
    random: &mut Random,
) {
    let mut wire = Vec::new();
    let mut batch = SealBatch::new();
    let mut slots = Vec::new();
    for (i, &(len, decoy)) in packets.iter().enumerate() {
        let kind = [PacketKind::Genuine, PacketKind::Decoy][usize::from(decoy)];
        let contents = noise(i as u64, len);
        let turn_ends = random.below(20) == 0;
        if turn_ends || i + 1 == packets.len() {
            engine.seal(&mut batch);
            for slot in slots.drain(..) {
                wire.extend_from_slice(batch.wire(&slot).unwrap());
            }
            batch.clear();
            session.outbound.seal(kind, &contents, &mut wire).unwrap();
        } else {
            slots.push(session.outbound.push(&mut batch, kind, &contents).unwrap());
        }
    }
    let mut rest = &wire[..];
    for (i, &(len, decoy)) in packets.iter().enumerate() {
        let (length, behind) = rest.split_first_chunk::<{ Session::LENGTH_LEN }>().unwrap();
        let length = cipher.inbound().decrypt_packet_len(*length);
        let (packet, behind) = behind.split_at(length);
        rest = behind;
        let (kind, plain) = cipher.inbound().decrypt_to_vec(packet, None).unwrap();
        let expected = [PacketType::Genuine, PacketType::Decoy][usize::from(decoy)];
        assert_eq!(kind, expected);
        assert!(plain[1..] == noise(i as u64, len), "packet {i} differs");
    }
    assert!(rest.is_empty());
}

fn role() -> impl Strategy<Value = Role> {
    prop_oneof![Just(Role::Initiator), Just(Role::Responder)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn handshakes(
        role in role(),
        ours in extras(),
        theirs in extras(),
        early in prop::collection::vec(0..300_usize, 0..5),
        seed: u64,
    ) {
        let early: Vec<_> = early.iter().map(|&len| noise(9, len)).collect();
        for engine in engines() {
            let mut random = Random::new(seed);
            let (mut session, mut cipher) =
                meet(engine, role, [&ours, &theirs], &mut random, &early);
            let few = [(5, false), (0, true), (0, false), (61, false)];
            they_send(engine, &mut session, &mut cipher, &few, &mut random);
            we_send(engine, &mut session, &mut cipher, &few, &mut random);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// More than three rekeys in both directions.
    #[test]
    fn long_sessions(
        role in role(),
        down in packets(700..760),
        up in packets(700..760),
        seed: u64,
    ) {
        let extras = Extras { garbage: 10, decoys: vec![7] };
        for engine in engines() {
            let mut random = Random::new(seed);
            let (mut session, mut cipher) =
                meet(engine, role, [&extras, &extras], &mut random, &[]);
            they_send(engine, &mut session, &mut cipher, &down, &mut random);
            we_send(engine, &mut session, &mut cipher, &up, &mut random);
        }
    }
}

/// The extremes of garbage and decoys in each role, independent of proptest.
#[test]
fn extremes() {
    let extremes = [
        Extras {
            garbage: 0,
            decoys: vec![],
        },
        Extras {
            garbage: 0,
            decoys: vec![0, 100_000],
        },
        Extras {
            garbage: Handshake::MAX_GARBAGE_LEN,
            decoys: vec![],
        },
        Extras {
            garbage: Handshake::MAX_GARBAGE_LEN,
            decoys: vec![1; 300],
        },
    ];
    for engine in engines() {
        for role in [Role::Initiator, Role::Responder] {
            for ours in &extremes {
                for theirs in &extremes {
                    let mut random = Random::new(7);
                    let early = [vec![1; 70], vec![]];
                    let (mut session, mut cipher) =
                        meet(engine, role, [ours, theirs], &mut random, &early);
                    let packets = [(100_000, false), (0, true), (1, false)];
                    they_send(engine, &mut session, &mut cipher, &packets, &mut random);
                    we_send(engine, &mut session, &mut cipher, &packets, &mut random);
                }
            }
        }
    }
}

/// Each side refuses the other's packet with one byte changed.
#[test]
fn damage_is_refused_by_both() {
    let extras = Extras {
        garbage: 0,
        decoys: vec![],
    };
    for engine in engines() {
        for place in Session::LENGTH_LEN..Session::LENGTH_LEN + 1 + 50 + 16 {
            let mut random = Random::new(1);
            let (mut session, mut cipher) =
                meet(engine, Role::Initiator, [&extras; 2], &mut random, &[]);
            let mut packet = cipher
                .outbound()
                .encrypt_to_vec(&[5; 50], PacketType::Genuine, None);
            packet[place] ^= 4;
            let refused = common::turn(&mut session, engine, &packet);
            // Packet 0 was the version packet.
            let bad_tag = OpenError::BadTag {
                packet: 1,
                epoch: 0,
            };
            assert_eq!(refused, (vec![], Some(bad_tag)));

            packet.clear();
            let kind = PacketKind::Genuine;
            session.outbound.seal(kind, &[5; 50], &mut packet).unwrap();
            packet[place] ^= 4;
            let (length, body) = packet.split_first_chunk().unwrap();
            assert_eq!(cipher.inbound().decrypt_packet_len(*length), body.len());
            assert!(cipher.inbound().decrypt_to_vec(body, None).is_err());
        }
    }
}
