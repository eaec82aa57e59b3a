//! The handshake with any peer: real, damaged, hostile or of another network.

mod common;

use common::{Craft, MAGIC, Random, craft_initiator, craft_responder, engine, noise, pieces, take};
use packetlane::OpenBatch;
use packetlane::bip324::{
    Handshake, HandshakeConfig, HandshakeError, Keypair, OpenError, PacketKind, Progress, Role,
    SealError, Session, SessionKeys,
};
use packetlane::bitcoin::Network;

const V1_PREFIX: [u8; 16] = *b"\xfa\xbf\xb5\xdaversion\0\0\0\0\0";

fn config(seed: u64) -> HandshakeConfig {
    common::config(engine(), seed)
}

fn with_role(role: Role, config: HandshakeConfig) -> Handshake {
    match role {
        Role::Initiator => Handshake::initiator(config).unwrap(),
        Role::Responder => Handshake::responder(config).unwrap(),
    }
}

const ROLES: [Role; 2] = [Role::Initiator, Role::Responder];

fn other(role: Role) -> Role {
    match role {
        Role::Initiator => Role::Responder,
        Role::Responder => Role::Initiator,
    }
}

/// A handshake in `role`, and its peer's bytes made by hand.
fn against_craft(role: Role, receive_limit: usize) -> (Handshake, Craft) {
    let [ours, theirs] = [config(1), config(2)];
    let craft = match role {
        Role::Initiator => craft_responder(&ours, &theirs),
        Role::Responder => craft_initiator(&theirs, &ours),
    };
    let ours = HandshakeConfig {
        receive_limit,
        ..ours
    };
    (with_role(role, ours), craft)
}

fn complete(progress: Progress) -> Session {
    match progress {
        Progress::Complete(session) => *session,
        other => panic!("{other:?} instead of a session"),
    }
}

#[track_caller]
fn waits(progress: Result<Progress, HandshakeError>) {
    assert!(matches!(progress, Ok(Progress::Waiting)), "{progress:?}");
}

#[track_caller]
fn fails(progress: Result<Progress, HandshakeError>, expected: HandshakeError) {
    match progress {
        Err(error) => assert_eq!(error, expected),
        Ok(progress) => panic!("{progress:?} instead of {expected:?}"),
    }
}

/// The packets that followed the handshake.
fn early_packets(session: &mut Session) -> Vec<Vec<u8>> {
    let (packets, error) = common::turn(session, engine(), &[]);
    assert_eq!(error, None);
    packets
}

/// The full transcripts of both sides, with garbage, decoys and version contents.
fn transcripts() -> [(Role, HandshakeConfig, Vec<u8>); 2] {
    let dressed = |seed| HandshakeConfig {
        garbage: noise(seed, 21),
        decoys: vec![noise(seed, 9), vec![]],
        version: noise(seed, 3),
        receive_limit: 1000,
        ..config(seed)
    };
    let mut initiator = Handshake::initiator(dressed(1)).unwrap();
    let mut responder = Handshake::responder(dressed(2)).unwrap();
    let mut from_initiator = initiator.take_output();
    waits(responder.receive(&from_initiator));
    let from_responder = responder.take_output();
    complete(initiator.receive(&from_responder).unwrap());
    from_initiator.extend(initiator.take_output());
    // Each with the side that receives it.
    [
        (Role::Responder, dressed(2), from_initiator),
        (Role::Initiator, dressed(1), from_responder),
    ]
}

/// The error that damage to a part of a transcript causes, once enough bytes have followed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Key,
    Garbage,
    Terminator,
    Length,
    Body,
}

fn parts() -> Vec<Part> {
    let mut parts = vec![Part::Key; Keypair::ELLSWIFT_LEN];
    parts.extend([Part::Garbage; 21]);
    parts.extend([Part::Terminator; SessionKeys::TERMINATOR_LEN]);
    for contents in [9, 0, 3] {
        parts.extend([Part::Length; Session::LENGTH_LEN]);
        parts.extend(vec![
            Part::Body;
            contents + Session::OVERHEAD - Session::LENGTH_LEN
        ]);
    }
    parts
}

fn is_bad_tag(error: HandshakeError) -> bool {
    matches!(error, HandshakeError::Open(OpenError::BadTag { .. }))
}

#[test]
fn every_flipped_byte_gives_the_right_error() {
    let parts = parts();
    for (role, config, transcript) in transcripts() {
        assert_eq!(transcript.len(), parts.len());
        // Undamaged, whole or byte by byte, the handshake completes at the transcript's end.
        let mut whole = with_role(role, config.clone());
        complete(whole.receive(&transcript).unwrap());
        let mut slow = with_role(role, config.clone());
        let (last, bytes) = transcript.split_last().unwrap();
        for byte in bytes {
            waits(slow.receive(&[*byte]));
        }
        complete(slow.receive(&[*last]).unwrap());
        assert_eq!(whole.take_output(), slow.take_output());

        for (place, part) in parts.iter().enumerate() {
            for bit in [0x01, 0x10, 0x80] {
                let mut damaged = transcript.clone();
                damaged[place] ^= bit;
                // Enough bytes to end any state.
                damaged.extend(noise(place as u64, 6000));
                let mut handshake = with_role(role, config.clone());
                let in_one = handshake.receive(&damaged).expect_err("damage goes unseen");
                match part {
                    Part::Key | Part::Terminator => {
                        assert_eq!(in_one, HandshakeError::NoTerminator);
                    }
                    Part::Garbage | Part::Body => {
                        assert!(is_bad_tag(in_one), "{in_one:?}");
                    }
                    Part::Length => {
                        // The length changed: it is above the limit or not.
                        let too_long = matches!(
                            in_one,
                            HandshakeError::Open(OpenError::TooLong { length, limit: 1000 })
                                if length > 1000
                        );
                        assert!(too_long || is_bad_tag(in_one), "{in_one:?}");
                    }
                }
                assert!(!handshake.has_keys());
                fails(handshake.receive(&[1]), HandshakeError::Ended);
                fails(handshake.receive(&[]), HandshakeError::Ended);

                // Byte by byte the result is the same, and before it only `Waiting`.
                let mut slow = with_role(role, config.clone());
                let mut verdict = None;
                for byte in &damaged {
                    match slow.receive(&[*byte]) {
                        Ok(Progress::Waiting) => {}
                        Ok(progress) => panic!("{progress:?}"),
                        Err(error) => {
                            verdict = Some(error);
                            break;
                        }
                    }
                }
                assert_eq!(verdict, Some(in_one));
            }
        }
    }
}

/// If its first bytes are damaged, a handshake still looks like v2 to a responder. It answers,
/// and the initiator finds no terminator.
#[test]
fn a_damaged_key_fails_on_both_sides() {
    for place in 0..Keypair::ELLSWIFT_LEN {
        let mut initiator = Handshake::initiator(config(1)).unwrap();
        let mut responder = Handshake::responder(config(2)).unwrap();
        let mut key = initiator.take_output();
        key[place] ^= 0x40;
        waits(responder.receive(&key));
        let answer = responder.take_output();
        waits(initiator.receive(&answer));
        fails(
            initiator.receive(&noise(
                1,
                Handshake::MAX_GARBAGE_LEN + SessionKeys::TERMINATOR_LEN,
            )),
            HandshakeError::NoTerminator,
        );
        waits(responder.receive(&initiator.take_output()));
        assert_eq!(responder.closed(), HandshakeError::Closed);
    }
}

#[test]
fn v1_is_recognised_and_handed_back() {
    for len in 0..V1_PREFIX.len() {
        let mut responder = Handshake::responder(config(1)).unwrap();
        waits(responder.receive(&V1_PREFIX[..len]));
        assert!(responder.take_output().is_empty(), "{len} bytes, answered");
        assert!(!responder.has_keys());
        assert_eq!(responder.closed(), HandshakeError::Closed);
        // The rest, with more after it.
        let more = [&V1_PREFIX[len..], b"the rest of a version message"].concat();
        let Ok(Progress::V1(consumed)) = responder.receive(&more) else {
            panic!("not recognised after {len} bytes");
        };
        assert_eq!(consumed, [&V1_PREFIX[..len], &more].concat());
        assert!(responder.take_output().is_empty());
        fails(responder.receive(b"x"), HandshakeError::Ended);
    }
    // Byte by byte, recognised exactly at the sixteenth.
    let mut responder = Handshake::responder(config(1)).unwrap();
    for byte in &V1_PREFIX[..15] {
        waits(responder.receive(&[*byte]));
        assert!(responder.take_output().is_empty());
    }
    let Ok(Progress::V1(consumed)) = responder.receive(&V1_PREFIX[15..]) else {
        panic!("not recognised");
    };
    assert_eq!(consumed, V1_PREFIX);
}

#[test]
fn a_key_that_differs_from_v1_is_answered() {
    for place in 0..V1_PREFIX.len() {
        for bit in [0x01, 0x80] {
            let mut first = V1_PREFIX;
            first[place] ^= bit;
            let mut responder = Handshake::responder(HandshakeConfig {
                garbage: noise(3, 100),
                ..config(1)
            })
            .unwrap();
            waits(responder.receive(&first[..place]));
            assert!(responder.take_output().is_empty());
            waits(responder.receive(&first[place..=place]));
            // The bytes before it count as part of the key.
            waits(responder.receive(&[7; Keypair::ELLSWIFT_LEN][place + 2..]));
            assert!(responder.take_output().is_empty() && !responder.has_keys());
            waits(responder.receive(&[7]));
            assert!(responder.has_keys());
            assert!(responder.take_output().len() > Keypair::ELLSWIFT_LEN + 100);
        }
    }
}

#[test]
fn a_v1_peer_of_another_network() {
    for network in Network::ALL {
        let magic = network.magic();
        let mut first = V1_PREFIX;
        first[..4].copy_from_slice(&magic);
        for cut in 0..=first.len() {
            let mut responder = Handshake::responder(config(1)).unwrap();
            let (a, b) = first.split_at(cut);
            let progress = match responder.receive(a) {
                Ok(Progress::Waiting) if cut < 16 => responder.receive(b),
                progress => progress,
            };
            if magic == MAGIC {
                assert!(matches!(progress, Ok(Progress::V1(bytes)) if bytes == first));
            } else {
                fails(progress, HandshakeError::V1OtherNetwork { magic });
            }
        }
    }
    // Fifteen bytes do not suffice.
    let mut first = V1_PREFIX;
    first[0] ^= 1;
    let mut responder = Handshake::responder(config(1)).unwrap();
    waits(responder.receive(&first[..15]));
    fails(
        responder.receive(&first[15..]),
        HandshakeError::V1OtherNetwork {
            magic: [0xfb, 0xbf, 0xb5, 0xda],
        },
    );
    let mut initiator = Handshake::initiator(config(1)).unwrap();
    fails(
        initiator.receive(&first),
        HandshakeError::V1OtherNetwork {
            magic: [0xfb, 0xbf, 0xb5, 0xda],
        },
    );
    assert!(!initiator.may_speak_v1());
}

/// A peer that received a v2 handshake may speak v1 only, as long as it has sent only what a v1
/// peer sends.
#[test]
fn an_initiator_knows_who_may_speak_v1() {
    for cut in 0..V1_PREFIX.len() {
        let mut initiator = Handshake::initiator(config(1)).unwrap();
        assert!(initiator.may_speak_v1());
        waits(initiator.receive(&V1_PREFIX[..cut]));
        assert!(initiator.may_speak_v1(), "after {cut} bytes");
        assert_eq!(initiator.closed(), HandshakeError::ClosedUnanswered);
        // Another byte is not v1's.
        let mut other = Handshake::initiator(config(1)).unwrap();
        let mut first = V1_PREFIX;
        first[cut] ^= 1;
        waits(other.receive(&first[..=cut]));
        assert!(!other.may_speak_v1(), "byte {cut}");
        assert_eq!(other.closed(), HandshakeError::Closed);

        let answered = initiator.receive(&V1_PREFIX[cut..]);
        fails(answered, HandshakeError::AnsweredV1);
        assert!(initiator.may_speak_v1());
        fails(initiator.receive(&[1]), HandshakeError::Ended);
        assert!(initiator.may_speak_v1());
    }
    assert!(HandshakeError::AnsweredV1.may_speak_v1());
    assert!(HandshakeError::ClosedUnanswered.may_speak_v1());
    assert!(!HandshakeError::Closed.may_speak_v1());
    // What follows the key is not examined.
    let mut initiator = Handshake::initiator(config(1)).unwrap();
    let key = [&[7; Keypair::ELLSWIFT_LEN][..], &V1_PREFIX].concat();
    waits(initiator.receive(&key));
    assert!(!initiator.may_speak_v1());
    // A responder has not sent a v2 handshake.
    let mut responder = Handshake::responder(config(1)).unwrap();
    assert!(!responder.may_speak_v1());
    waits(responder.receive(&V1_PREFIX[..5]));
    assert!(!responder.may_speak_v1());
}

#[test]
fn errors_for_a_closed_connection() {
    let mut initiator = Handshake::initiator(config(1)).unwrap();
    assert_eq!(initiator.closed(), HandshakeError::ClosedUnanswered);
    let _ = initiator.take_output();
    waits(initiator.receive(&[]));
    assert_eq!(initiator.closed(), HandshakeError::ClosedUnanswered);
    waits(initiator.receive(&[1]));
    assert_eq!(initiator.closed(), HandshakeError::Closed);

    let mut responder = Handshake::responder(config(1)).unwrap();
    assert_eq!(responder.closed(), HandshakeError::Closed);
    waits(responder.receive(&V1_PREFIX[..3]));
    assert_eq!(responder.closed(), HandshakeError::Closed);
}

/// Garbage of every interesting length, sent by the library and by hand, with terminators cut
/// at every byte.
#[test]
fn garbage_up_to_its_limit() {
    for role in ROLES {
        for len in [0, 1, 15, 16, 17, 4094, 4095] {
            let dressed = HandshakeConfig {
                garbage: noise(5, len),
                ..config(2)
            };
            let (ours, theirs) = match role {
                Role::Initiator => common::shake(
                    Handshake::initiator(config(1)).unwrap(),
                    Handshake::responder(dressed).unwrap(),
                ),
                Role::Responder => common::shake(
                    Handshake::initiator(dressed).unwrap(),
                    Handshake::responder(config(1)).unwrap(),
                ),
            };
            assert_eq!(ours.id(), theirs.id());

            for cut in 0..=SessionKeys::TERMINATOR_LEN {
                let (mut handshake, mut craft) = against_craft(role, 1000);
                let garbage = noise(5, len);
                let mut bytes = [&craft.public[..], &garbage, &craft.terminator].concat();
                let cut = bytes.len() - cut;
                bytes.extend(craft.forge.packet(0, &garbage, b""));
                let (a, b) = bytes.split_at(cut);
                waits(handshake.receive(a));
                complete(handshake.receive(b).unwrap());
            }
        }
        // One byte too many, whatever follows and wherever it is cut.
        for piece in [1, 7, 4096, usize::MAX] {
            let (mut handshake, mut craft) = against_craft(role, 1000);
            let garbage = noise(5, Handshake::MAX_GARBAGE_LEN + 1);
            let mut bytes = [&craft.public[..], &garbage, &craft.terminator].concat();
            bytes.extend(craft.forge.packet(0, &garbage, b""));
            let end =
                Keypair::ELLSWIFT_LEN + Handshake::MAX_GARBAGE_LEN + SessionKeys::TERMINATOR_LEN;
            let mut fed = 0;
            for piece in bytes.chunks(piece) {
                let progress = handshake.receive(piece);
                fed += piece.len();
                if fed >= end {
                    fails(progress, HandshakeError::NoTerminator);
                    break;
                }
                waits(progress);
            }
            assert!(fed >= end);
        }
        // Garbage whose end looks like the start of the terminator.
        let (mut handshake, mut craft) = against_craft(role, 1000);
        let garbage = [&craft.terminator[..15], &craft.terminator[..7]].concat();
        let mut bytes = [&craft.public[..], &garbage, &craft.terminator].concat();
        bytes.extend(craft.forge.packet(0, &garbage, b""));
        let (last, bytes) = bytes.split_last().unwrap();
        for byte in bytes {
            waits(handshake.receive(&[*byte]));
        }
        complete(handshake.receive(&[*last]).unwrap());
    }
    for role in ROLES {
        let garbage = noise(5, Handshake::MAX_GARBAGE_LEN + 1);
        let config = HandshakeConfig {
            garbage,
            ..config(1)
        };
        let refused = match role {
            Role::Initiator => Handshake::initiator(config),
            Role::Responder => Handshake::responder(config),
        };
        assert_eq!(
            refused.unwrap_err(),
            HandshakeError::GarbageTooLong { length: 4096 }
        );
    }
}

/// Two peers whose magic was never set would otherwise complete a handshake with each other.
#[test]
fn a_magic_of_zeros_is_refused() {
    for new in [Handshake::initiator, Handshake::responder] {
        let magic = [0; 4];
        let refused = new(HandshakeConfig { magic, ..config(1) }).unwrap_err();
        assert_eq!(refused, HandshakeError::ZeroMagic);
        assert!(refused.to_string().contains("00000000"), "{refused}");
    }
}

/// The garbage is the AAD of the first packet, decoy or version, and of no other.
#[test]
fn the_first_packet_authenticates_the_garbage() {
    let garbage = noise(8, 50);
    let wrong: [&[u8]; 3] = [b"", &garbage[1..], &[0; 50]];
    for role in ROLES {
        let start = |craft: &Craft| [&craft.public[..], &garbage, &craft.terminator].concat();
        for decoys in 0..3 {
            let (mut handshake, mut craft) = against_craft(role, 1000);
            let mut bytes = start(&craft);
            let mut aad = &garbage[..];
            for i in 0..decoys {
                bytes.extend(craft.forge.packet(0x80, aad, &noise(i, 30)));
                aad = &[];
            }
            bytes.extend(craft.forge.packet(0, aad, b"whatever a version may say"));
            complete(handshake.receive(&bytes).unwrap());

            for wrong in wrong {
                let (mut handshake, mut craft) = against_craft(role, 1000);
                let mut bytes = start(&craft);
                let header = if decoys == 0 { 0 } else { 0x80 };
                bytes.extend(craft.forge.packet(header, wrong, b""));
                fails(
                    handshake.receive(&bytes),
                    HandshakeError::Open(OpenError::BadTag {
                        packet: 0,
                        epoch: 0,
                    }),
                );
            }
        }
        // The garbage is wrongly authenticated again with the second packet.
        let (mut handshake, mut craft) = against_craft(role, 1000);
        let mut bytes = start(&craft);
        bytes.extend(craft.forge.packet(0x80, &garbage, b""));
        waits(handshake.receive(&bytes));
        fails(
            handshake.receive(&craft.forge.packet(0, &garbage, b"")),
            HandshakeError::Open(OpenError::BadTag {
                packet: 1,
                epoch: 0,
            }),
        );
    }
}

/// Only the top bit of the header byte matters, in the handshake and after it.
#[test]
fn only_the_top_bit_of_the_header_byte_matters() {
    for role in ROLES {
        for header in 0..=255 {
            let (mut handshake, mut craft) = against_craft(role, 1000);
            let mut bytes = [&craft.public[..], &craft.terminator].concat();
            bytes.extend(craft.forge.packet(header, b"", b"first"));
            bytes.extend(craft.forge.packet(header, b"", b"second"));
            let progress = handshake.receive(&bytes);
            let mut session = if header < 0x80 {
                // The first packet was the version packet.
                let mut session = complete(progress.unwrap());
                assert_eq!(early_packets(&mut session), [b"second"]);
                session
            } else {
                waits(progress);
                let version = craft.forge.packet(0, b"", b"version");
                complete(handshake.receive(&version).unwrap())
            };
            let packet = craft.forge.packet(header, b"", b"third");
            let (packets, error) = common::turn(&mut session, engine(), &packet);
            assert_eq!(error, None);
            let genuine = header < 0x80;
            assert_eq!(packets.len(), usize::from(genuine));
            assert_eq!(session.inbound.decoys(), u64::from(!genuine));
        }
    }
}

/// Packets after the version packet in the same call: none, one, many, and an incomplete one.
#[test]
fn packets_after_the_handshake_arrive() {
    for role in ROLES {
        for count in [0_usize, 1, 2, 500] {
            for (part, keep) in [(false, 0), (true, 1), (true, 3), (true, 25)] {
                let (mut handshake, mut craft) = against_craft(role, 1000);
                let mut bytes = [&craft.public[..], &craft.terminator].concat();
                bytes.extend(craft.forge.packet(0x80, b"", b"decoy"));
                bytes.extend(craft.forge.packet(0, b"", b""));
                let mut expected = Vec::new();
                for i in 0..count {
                    let contents = noise(i as u64, i % 50);
                    let header = [0, 0x80][i % 2];
                    bytes.extend(craft.forge.packet(header, b"", &contents));
                    if header == 0 {
                        expected.push(contents);
                    }
                }
                let cut = craft.forge.packet(0, b"", b"last of all");
                if part {
                    bytes.extend(&cut[..keep]);
                }
                let mut session = complete(handshake.receive(&bytes).unwrap());
                assert_eq!(session.inbound.buffered() > 0, part || count > 0);
                let mut packets = early_packets(&mut session);
                assert_eq!(session.inbound.buffered(), keep);
                let (last, error) = common::turn(&mut session, engine(), &cut[keep..]);
                packets.extend(last);
                expected.push(b"last of all".to_vec());
                assert_eq!((packets, error), (expected, None));
                assert_eq!(session.inbound.decoys(), count as u64 / 2);
            }
        }
    }
}

/// The receive limit also holds in the handshake, to the byte.
#[test]
fn the_limit_holds_for_decoys_and_version() {
    for role in ROLES {
        for header in [0, 0x80] {
            let (mut handshake, mut craft) = against_craft(role, 300);
            let mut bytes = [&craft.public[..], &craft.terminator].concat();
            bytes.extend(craft.forge.packet(header, b"", &noise(1, 300)));
            let progress = handshake.receive(&bytes).unwrap();
            assert_eq!(matches!(progress, Progress::Complete(_)), header == 0);

            let (mut handshake, mut craft) = against_craft(role, 300);
            let start = [&craft.public[..], &craft.terminator].concat();
            waits(handshake.receive(&start));
            // Refused as soon as the length is known.
            let length = craft.forge.length(301);
            waits(handshake.receive(&length[..2]));
            let expected = OpenError::TooLong {
                length: 301,
                limit: 300,
            };
            fails(
                handshake.receive(&length[2..]),
                HandshakeError::Open(expected),
            );
        }
    }
}

/// Any cut of a transcript gives the same output and the same session.
#[test]
fn any_split_gives_the_same_session() {
    for (role, config, mut transcript) in transcripts() {
        let early = transcript.split_off(parts().len());
        assert!(early.is_empty());
        let mut whole = with_role(role, config.clone());
        let id = *complete(whole.receive(&transcript).unwrap()).id();
        let output = whole.take_output();
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let most = 1 + random.below(80);
            let mut handshake = with_role(role, config.clone());
            let mut done = None;
            let mut said = Vec::new();
            for piece in pieces(&transcript, &mut random, most) {
                assert!(done.is_none());
                match handshake.receive(piece).unwrap() {
                    Progress::Waiting => {}
                    progress => done = Some(complete(progress)),
                }
                if random.below(2) == 0 {
                    said.extend(handshake.take_output());
                }
            }
            said.extend(handshake.take_output());
            assert_eq!(*done.expect("not done").id(), id);
            assert_eq!(said, output);
        }
    }
}

/// Hundreds of thousands of tiny packets from a hostile peer. Work that grows with the square
/// of their number would take forever.
#[test]
fn many_tiny_packets_take_linear_time() {
    const COUNT: usize = 200_000;
    for role in ROLES {
        let [ours, theirs] = [config(1), config(2)];
        let (keys, public) = match role {
            Role::Initiator => {
                let craft = craft_responder(&ours, &theirs);
                (common::keys(&ours, &theirs), craft.public)
            }
            Role::Responder => {
                let craft = craft_initiator(&theirs, &ours);
                (common::keys(&theirs, &ours), craft.public)
            }
        };
        let (terminator, length, packet) = match other(role) {
            Role::Initiator => (
                keys.initiator_terminator,
                &keys.initiator_length,
                &keys.initiator_packet,
            ),
            Role::Responder => (
                keys.responder_terminator,
                &keys.responder_length,
                &keys.responder_packet,
            ),
        };
        let mut cipher = packetlane::bip324::Cipher::new(engine(), length, packet);
        let garbage = noise(1, Handshake::MAX_GARBAGE_LEN);
        let mut bytes = [&public[..], &garbage, &terminator].concat();
        for i in 0..COUNT {
            let aad = if i == 0 { &garbage[..] } else { &[] };
            cipher
                .seal(PacketKind::Decoy, aad, b"", &mut bytes)
                .unwrap();
        }
        cipher
            .seal(PacketKind::Genuine, b"", b"", &mut bytes)
            .unwrap();
        for _ in 0..COUNT {
            cipher
                .seal(PacketKind::Genuine, b"", b"", &mut bytes)
                .unwrap();
        }
        // In one call, and in calls of a few bytes.
        for piece in [usize::MAX, 7] {
            let mut handshake = with_role(role, ours.clone());
            let mut session = None;
            let mut batch = OpenBatch::new();
            let mut packets = 0;
            for piece in bytes.chunks(piece) {
                match &mut session {
                    None => match handshake.receive(piece).unwrap() {
                        Progress::Waiting => continue,
                        progress => {
                            let session = session.insert(complete(progress));
                            session.inbound.receive(&mut batch, 0)
                        }
                    },
                    Some(session) => session.inbound.feed(&mut batch, piece),
                }
                .unwrap();
                engine().open(&mut batch);
                let (more, error) = take(session.as_mut().unwrap(), &batch);
                assert_eq!(error, None);
                packets += more.len();
                batch.clear();
            }
            assert_eq!(packets, COUNT);
        }
    }
}

/// Errors in a configuration are reported before anything is sent.
#[test]
fn configurations_are_checked() {
    let too_long = vec![0; 1 << 24];
    for role in ROLES {
        let make = |config| match role {
            Role::Initiator => Handshake::initiator(config),
            Role::Responder => Handshake::responder(config),
        };
        for secret in [[0; 32], [0xff; 32]] {
            let config = HandshakeConfig::new(MAGIC, engine(), secret, [1; 32]);
            assert!(matches!(make(config), Err(HandshakeError::SecretKey)));
        }
        let expected = HandshakeError::Seal(SealError::TooLong { length: 1 << 24 });
        let decoys = HandshakeConfig {
            decoys: vec![vec![], too_long.clone()],
            ..config(1)
        };
        assert_eq!(make(decoys).unwrap_err(), expected);
        let version = HandshakeConfig {
            version: too_long.clone(),
            ..config(1)
        };
        assert_eq!(make(version).unwrap_err(), expected);
    }
}

/// With another network's magic the keys differ, so no terminator is found.
#[test]
fn another_networks_magic_finds_no_terminator() {
    let elsewhere = HandshakeConfig {
        magic: Network::Signet.magic(),
        ..config(2)
    };
    let mut initiator = Handshake::initiator(config(1)).unwrap();
    let mut responder = Handshake::responder(elsewhere).unwrap();
    waits(responder.receive(&initiator.take_output()));
    waits(initiator.receive(&responder.take_output()));
    waits(responder.receive(&initiator.take_output()));
    fails(
        initiator.receive(&noise(1, 4111)),
        HandshakeError::NoTerminator,
    );
    fails(
        responder.receive(&noise(1, 4111)),
        HandshakeError::NoTerminator,
    );
}

/// Neither the terminators nor the session id are shown in any state.
#[test]
fn debug_shows_neither_terminator_nor_session_id() {
    let keys = common::keys(&config(1), &config(2));
    let hidden = [
        &keys.session_id[..4],
        &keys.initiator_terminator[..4],
        &keys.responder_terminator[..4],
    ];
    for (role, config, transcript) in transcripts() {
        let mut handshake = with_role(role, config);
        for byte in transcript {
            handshake.receive(&[byte]).unwrap();
            let shown = format!("{handshake:?}");
            for hidden in hidden {
                let list = format!("{hidden:?}");
                assert!(!shown.contains(list.trim_matches(['[', ']'])), "{shown}");
            }
        }
    }
}

/// Random configurations all differ, and their garbage is within its limits.
#[test]
fn random_configurations_differ() {
    let all: Vec<_> = (0..64)
        .map(|_| HandshakeConfig::random(MAGIC, engine()).unwrap())
        .collect();
    for (i, a) in all.iter().enumerate() {
        assert!(a.garbage.len() <= Handshake::MAX_GARBAGE_LEN);
        assert!(all[..i].iter().all(|b| b.secret != a.secret));
        assert!(all[..i].iter().all(|b| b.auxiliary != a.auxiliary));
        assert!(all[..i].iter().any(|b| b.garbage.len() != a.garbage.len()) || i == 0);
    }
    let mut all = all.into_iter();
    let (a, b) = (all.next().unwrap(), all.next().unwrap());
    let (a, b) = common::shake(
        Handshake::initiator(a).unwrap(),
        Handshake::responder(b).unwrap(),
    );
    assert_eq!(a.id(), b.id());
}
