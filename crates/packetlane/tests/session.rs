//! Sessions and batches: over turns and rekeys, with damaged bytes, and with calls in the wrong
//! order.

mod common;

use common::{Forge, Random, engine, engines, noise, pieces, sessions, take, turn};
use packetlane::bip324::{
    Handshake, Inbound, OpenError, PacketKind, Progress, Role, SealError, Session, SessionKeys,
};
use packetlane::bitcoin::message::MessageType;
use packetlane::internals::{Draft, outcome, run_pending};
use packetlane::{Engine, OpenBatch, SealBatch, Slot, SlotError};
use packetlane_lanes::Outcome;
use proptest::prelude::*;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use PacketKind::{Decoy, Genuine};

/// Seals packets of `session` one at a time.
fn seal(session: &mut Session, packets: &[(PacketKind, &[u8])]) -> Vec<u8> {
    let mut wire = Vec::new();
    for (kind, contents) in packets {
        session.outbound.seal(*kind, contents, &mut wire).unwrap();
    }
    wire
}

fn some_packets() -> Vec<Vec<u8>> {
    [5, 0, 61, 300].map(|len| noise(len as u64, len)).to_vec()
}

/// Flips every byte of the second of four packets, in a batch with other sessions. The packet
/// before it arrives; it and the following ones do not; the other sessions are not affected.
#[test]
fn a_flipped_bit_ends_its_own_session_only() {
    let contents = [5, 40, 0, 300].map(|len| noise(len as u64, len));
    let packets = contents.each_ref().map(|c| (Genuine, &c[..]));
    for engine in engines() {
        for place in 0..contents[1].len() + Session::OVERHEAD {
            for bit in [0x01, 0x80] {
                let mut pairs = [1, 2, 3].map(|seed| sessions(engine, seed));
                let mut batch = OpenBatch::new();
                for (i, (sender, receiver)) in pairs.iter_mut().enumerate() {
                    let mut wire = seal(sender, &packets);
                    if i == 1 {
                        wire[contents[0].len() + Session::OVERHEAD + place] ^= bit;
                    }
                    receiver.inbound.set_receive_limit(5000);
                    let added = receiver.inbound.feed(&mut batch, &wire);
                    assert!(added == Ok(4) || i == 1 && place < Session::LENGTH_LEN);
                }
                engine.open(&mut batch);
                for (i, (_, receiver)) in pairs.iter_mut().enumerate() {
                    let (packets, error) = take(receiver, &batch);
                    if i == 1 {
                        assert_eq!(packets, contents[..1]);
                        check_damage(engine, receiver, place, error);
                    } else {
                        assert_eq!((&packets[..], error), (&contents[..], None));
                    }
                }
            }
        }
    }
}

/// Checks the error of a packet that is damaged at `place`, once enough bytes have followed, and
/// that the error does not change.
fn check_damage(
    engine: Engine,
    receiver: &mut Session,
    place: usize,
    mut error: Option<OpenError>,
) {
    if place < Session::LENGTH_LEN && error.is_none() {
        // The length is now more than what was received.
        assert!(receiver.inbound.buffered() > 0);
        let (packets, later) = turn(receiver, engine, &noise(7, 6000));
        assert_eq!(packets.len(), 0);
        error = later;
    }
    match error {
        Some(OpenError::BadTag { .. }) => {}
        Some(OpenError::TooLong { length, limit }) => {
            assert!(place < Session::LENGTH_LEN);
            assert_eq!(limit, 5000);
            assert!(length > limit);
        }
        other => panic!("place {place}: {other:?}"),
    }
    let mut batch = OpenBatch::new();
    assert_eq!(take(receiver, &batch), (vec![], error));
    for len in [0, 1, 1000] {
        let refused = receiver.inbound.feed(&mut batch, &noise(1, len));
        assert_eq!(refused.err(), error);
        engine.open(&mut batch);
        assert_eq!(take(receiver, &batch), (vec![], error));
        batch.clear();
    }
    assert_eq!(receiver.inbound.buffered(), 0);
    // The iterator ends after its error.
    let mut packets = receiver.inbound.packets(&batch);
    assert_eq!(packets.next().map(Result::err), Some(error));
    assert_eq!(packets.next(), None);
    assert_eq!(packets.next(), None);
}

/// Packets that were complete before one that is too long are returned; those after it are not.
#[test]
fn packets_before_a_bad_length_arrive() {
    let long = [0; 101];
    for precomputed in [true, false] {
        let (mut sender, mut receiver) = sessions(engine(), 1);
        receiver.inbound.set_receive_limit(100);
        receiver.inbound.set_precomputed_keystream(precomputed);
        let wire = seal(
            &mut sender,
            &[
                (Genuine, b"one"),
                (Decoy, b""),
                (Genuine, b"two"),
                (Genuine, &long),
                (Genuine, b"no"),
            ],
        );
        let (packets, error) = turn(&mut receiver, engine(), &wire);
        assert_eq!(packets, [b"one", b"two"]);
        let expected = OpenError::TooLong {
            length: 101,
            limit: 100,
        };
        assert_eq!(error, Some(expected));
        assert_eq!(receiver.inbound.decoys(), 1);
        assert_eq!(turn(&mut receiver, engine(), &wire), (vec![], error));
    }
}

/// A wrong tag leaves no plaintext in the arena.
#[test]
fn a_forged_packet_stays_encrypted() {
    let (mut sender, mut receiver) = sessions(engine(), 1);
    let mut wire = seal(&mut sender, &[(Genuine, &[b'p'; 200])]);
    let last = wire.len() - 1;
    wire[last] ^= 1;
    let mut batch = OpenBatch::new();
    assert_eq!(receiver.inbound.feed(&mut batch, &wire), Ok(1));
    engine().open(&mut batch);
    assert_eq!(outcome(&batch, 0), Outcome::BadTag);
    batch.clear();
    assert_eq!(batch.room(wire.len()), wire);
}

/// A message to send: its contents' length and whether it is a decoy.
type Packet = (usize, bool);

fn packets(max: usize) -> impl Strategy<Value = Vec<Packet>> {
    let size = prop_oneof![5 => 0..30_usize, 3 => 0..2000_usize, 1 => 0..70_000_usize];
    prop::collection::vec((size, prop::bool::weighted(0.2)), 0..max)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    /// For any cuts of the stream between calls and between turns.
    #[test]
    fn any_split_gives_the_same_messages(packets in packets(300), seed: u64) {
        for engine in engines() {
            let (mut sender, mut receiver) = sessions(engine, 1);
            let mut wire = Vec::new();
            let mut expected = Vec::new();
            for (i, &(len, decoy)) in packets.iter().enumerate() {
                let contents = noise(i as u64, len);
                let kind = if decoy { Decoy } else { Genuine };
                sender.outbound.seal(kind, &contents, &mut wire).unwrap();
                if !decoy {
                    expected.push(contents);
                }
            }
            let mut random = Random::new(seed);
            receiver.inbound.set_precomputed_keystream(random.below(2) == 0);
            let most = [3, 40, 3000, 100_000][random.below(4)];
            let batches = &mut [OpenBatch::new(), OpenBatch::new()];
            let mut used = 0;
            let mut got = Vec::new();
            let mut end_turn = |receiver: &mut Session, batch: &mut OpenBatch| {
                engine.open(batch);
                let (packets, error) = take(receiver, batch);
                assert_eq!(error, None);
                got.extend(packets);
            };
            for piece in pieces(&wire, &mut random, most) {
                let batch = &mut batches[used];
                let before = batch.len();
                let added = if random.below(2) == 0 {
                    batch.room(piece.len() + 13)[..piece.len()].copy_from_slice(piece);
                    receiver.inbound.receive(batch, piece.len())
                } else {
                    receiver.inbound.feed(batch, piece)
                };
                prop_assert_eq!(added, Ok(batch.len() - before));
                if random.below(4) == 0 {
                    end_turn(&mut receiver, batch);
                    // A batch need not be cleared, and need not be the same in the next turn.
                    if random.below(2) == 0 {
                        batch.clear();
                        used = random.below(2);
                    }
                }
            }
            end_turn(&mut receiver, &mut batches[used]);
            prop_assert_eq!(got.len(), expected.len());
            prop_assert!(got == expected);
            let decoys = packets.len() - expected.len();
            prop_assert_eq!(receiver.inbound.decoys(), decoys as u64);
            prop_assert_eq!(receiver.inbound.buffered(), 0);
        }
    }
}

/// Long packets, and many of all lengths, complete and in pieces, through `feed` and `receive`,
/// with packets of another session before them in the batch, and with one of them damaged.
#[test]
fn long_packets_in_pieces() {
    let mut random = Random::new(31);
    let contents = noise(31, 300_000);
    let lists = [
        vec![30_000],
        vec![1_100; 300],
        (0..90).map(|i| 700 + 61 * i).collect(),
        vec![250_000, 3, 0, 14_000, 12_288, 12_287, 90_000],
        vec![4_096; 40],
        vec![200; 100],
    ];
    for engine in engines() {
        for (round, lengths) in lists.iter().cycle().take(4 * lists.len()).enumerate() {
            let (mut sender, mut receiver) = sessions(engine, 31);
            let packets: Vec<_> = lengths
                .iter()
                .enumerate()
                .map(|(i, &len)| {
                    let start = random.below(contents.len() - len);
                    let kind = if i % 7 == 3 { Decoy } else { Genuine };
                    (kind, &contents[start..start + len])
                })
                .collect();
            let mut wire = seal(&mut sender, &packets);
            let is_damaged = round % 2 == 1;
            let damaged = random.below(packets.len());
            let mut before = packets.len();
            if is_damaged {
                let at = |packets: &[(PacketKind, &[u8])]| -> usize {
                    packets
                        .iter()
                        .map(|(_, c)| c.len() + Session::OVERHEAD)
                        .sum()
                };
                let packet =
                    at(&packets[..damaged]) + Session::LENGTH_LEN..at(&packets[..=damaged]);
                wire[packet.start + random.below(packet.len())] ^= 0x10;
                before = damaged;
            }
            let expected = packets[..before]
                .iter()
                .filter(|(kind, _)| *kind == Genuine);
            let most = [wire.len(), 70_000, 20_000][round / lists.len() % 3];
            let (mut others, mut other) = sessions(engine, 32);
            other
                .inbound
                .set_precomputed_keystream(random.below(2) == 0);
            let mut batch = OpenBatch::new();
            let (mut taken, mut error) = (Vec::new(), None);
            for piece in pieces(&wire, &mut random, most.max(1)) {
                batch.clear();
                let has_other = random.below(4) == 0;
                if has_other {
                    let wire = seal(&mut others, &[(Genuine, &contents[..random.below(2_000)])]);
                    other.inbound.feed(&mut batch, &wire).unwrap();
                }
                // After an error, no more bytes from the peer are processed.
                let _ = match random.below(2) {
                    0 => receiver.inbound.feed(&mut batch, piece),
                    _ => {
                        batch.room(piece.len()).copy_from_slice(piece);
                        receiver.inbound.receive(&mut batch, piece.len())
                    }
                };
                engine.open(&mut batch);
                let (packets, failed) = take(&mut receiver, &batch);
                taken.extend(packets);
                error = error.or(failed);
                assert_eq!(take(&mut other, &batch).0.len(), usize::from(has_other));
            }
            assert!(taken.iter().map(|c| &c[..]).eq(expected.map(|(_, c)| *c)));
            assert_eq!(receiver.inbound.buffered(), 0);
            // The version packet came before.
            let number = damaged as u32 + 1;
            let bad_tag = OpenError::BadTag {
                packet: number % Session::REKEY_INTERVAL,
                epoch: (number / Session::REKEY_INTERVAL).into(),
            };
            assert_eq!(error, is_damaged.then_some(bad_tag));
        }
    }
}

/// A short stream, cut at every byte, and byte by byte.
#[test]
fn every_cut_of_a_short_stream() {
    let contents = some_packets();
    let packets: Vec<_> = contents.iter().map(|c| (Genuine, &c[..])).collect();
    let (mut sender, _) = sessions(engine(), 1);
    let wire = seal(&mut sender, &packets);
    for cut in 0..=wire.len() {
        let (_, mut receiver) = sessions(engine(), 1);
        let (mut got, error) = turn(&mut receiver, engine(), &wire[..cut]);
        assert_eq!(error, None);
        let (more, error) = turn(&mut receiver, engine(), &wire[cut..]);
        got.extend(more);
        assert_eq!((&got, error), (&contents, None));
    }
    let (_, mut receiver) = sessions(engine(), 1);
    let mut got = Vec::new();
    for byte in &wire {
        let (more, error) = turn(&mut receiver, engine(), &[*byte]);
        assert_eq!(error, None);
        got.extend(more);
    }
    assert_eq!(got, contents);
    // All bytes in the same turn, one at a time.
    let (_, mut receiver) = sessions(engine(), 1);
    let mut batch = OpenBatch::new();
    let added = |byte: &u8| receiver.inbound.feed(&mut batch, &[*byte]).unwrap();
    assert_eq!(wire.iter().map(added).sum::<usize>(), contents.len());
    engine().open(&mut batch);
    assert_eq!(take(&mut receiver, &batch), (contents, None));
}

/// More packets than one key serves, of several sessions, in one batch.
#[test]
fn a_batch_across_rekeys() {
    const COUNT: usize = 3 * Session::REKEY_INTERVAL as usize + 5;
    for engine in engines() {
        let mut pairs = [1, 2, 3, 4].map(|seed| sessions(engine, seed));
        let contents = |session: usize, i: usize| noise((1000 * session + i) as u64, i % 90);
        let mut batch = SealBatch::new();
        let mut slots = [const { Vec::new() }; 4];
        for i in 0..COUNT {
            for (s, (sender, _)) in pairs.iter_mut().enumerate() {
                let slot = sender.outbound.push(&mut batch, Genuine, &contents(s, i));
                slots[s].push(slot.unwrap());
            }
        }
        assert_eq!(batch.len(), 4 * COUNT);
        engine.seal(&mut batch);
        let streams = slots.map(|slots| {
            let packets = slots.iter().map(|slot| batch.wire(slot).unwrap());
            packets.collect::<Vec<_>>().concat()
        });
        let mut batch = OpenBatch::new();
        // Packets of a session come in runs.
        let mut random = Random::new(3);
        let mut runs = streams
            .each_ref()
            .map(|s| pieces(s, &mut random, 4000).into_iter());
        while runs.iter().any(|run| run.len() > 0) {
            for (run, (_, receiver)) in runs.iter_mut().zip(&mut pairs) {
                if let Some(bytes) = run.next() {
                    receiver.inbound.feed(&mut batch, bytes).unwrap();
                }
            }
        }
        engine.open(&mut batch);
        for (s, (_, receiver)) in pairs.iter_mut().enumerate() {
            let (packets, error) = take(receiver, &batch);
            assert_eq!(error, None);
            assert_eq!(packets.len(), COUNT);
            for (i, packet) in packets.iter().enumerate() {
                assert_eq!(*packet, contents(s, i));
            }
            assert_eq!(take(receiver, &batch), (vec![], None), "taken twice");
        }
    }
}

/// The packets of a session in two batches that alternate, across rekeys, with single packets
/// in between.
#[test]
fn two_alternating_batches() {
    let (mut sender, mut receiver) = sessions(engine(), 1);
    let mut batches = [SealBatch::new(), SealBatch::new()];
    let mut opening = [OpenBatch::new(), OpenBatch::new()];
    for i in 0..3 * Session::REKEY_INTERVAL as usize {
        let contents = noise(i as u64, i % 70);
        let [a, b] = &mut batches;
        let first = sender.outbound.push(a, Genuine, &contents).unwrap();
        let second = sender.outbound.push(b, Genuine, b"second").unwrap();
        let mut wire = Vec::new();
        engine().seal(a);
        engine().seal(b);
        wire.extend(a.wire(&first).unwrap());
        wire.extend(b.wire(&second).unwrap());
        sender.outbound.seal(Genuine, b"third", &mut wire).unwrap();
        a.clear();
        b.clear();
        batches.swap(0, 1);

        assert_eq!(receiver.inbound.feed(&mut opening[0], &wire), Ok(3));
        engine().open(&mut opening[0]);
        let expected = vec![contents, b"second".to_vec(), b"third".to_vec()];
        assert_eq!(take(&mut receiver, &opening[0]), (expected, None));
        opening[0].clear();
        opening.swap(0, 1);
    }
}

/// A single call and a batch write the same bytes.
#[test]
fn one_packet_is_a_batch_of_one() {
    for engine in engines() {
        let (mut alone, _) = sessions(engine, 1);
        let (mut batched, _) = sessions(engine, 1);
        for i in 0..500 {
            let contents = noise(i, usize::try_from(i).unwrap() * 3);
            let kind = if i % 5 == 0 { Decoy } else { Genuine };
            let mut wire = b"before".to_vec();
            alone.outbound.seal(kind, &contents, &mut wire).unwrap();
            let mut batch = SealBatch::new();
            let slot = batched.outbound.push(&mut batch, kind, &contents).unwrap();
            assert_eq!(slot.wire_len(), contents.len() + Session::OVERHEAD);
            engine.seal(&mut batch);
            assert_eq!(batch.wire(&slot), Ok(&wire[6..]));
            assert_eq!(&wire[..6], b"before");
        }
    }
}

#[test]
fn contents_written_in_place_are_sealed() {
    let (mut sender, mut receiver) = sessions(engine(), 1);
    let mut batch = SealBatch::with_capacity(2, 100);
    let outbound = &mut sender.outbound;
    let hello = |place: &mut [u8]| place.copy_from_slice(b"hello");
    let first = outbound.push_with(&mut batch, Genuine, 5, hello).unwrap();
    let nothing = |place: &mut [u8]| assert!(place.is_empty());
    let second = outbound.push_with(&mut batch, Genuine, 0, nothing).unwrap();
    engine().seal(&mut batch);
    let both = first.join(&second).unwrap();
    let wire = batch.wire(&both).unwrap().to_vec();
    let (packets, error) = turn(&mut receiver, engine(), &wire);
    assert_eq!((packets, error), (vec![b"hello".to_vec(), vec![]], None));
}

/// The closure that writes the contents may panic: nothing is added then, and the session
/// continues.
#[test]
fn contents_that_are_not_written_are_not_sent() {
    let (mut sender, mut receiver) = sessions(engine(), 1);
    let mut batch = SealBatch::new();
    let outbound = &mut sender.outbound;
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        outbound.push_with(&mut batch, Genuine, 5, |_| panic!("no contents"))
    }));
    assert!(panics.is_err() && batch.is_empty());
    let slot = outbound.push(&mut batch, Genuine, b"next").unwrap();
    engine().seal(&mut batch);
    let wire = batch.wire(&slot).unwrap().to_vec();
    let next = turn(&mut receiver, engine(), &wire);
    assert_eq!(next, (vec![b"next".to_vec()], None));
}

/// A packet in two steps, as in the C API: other packets may come between them, but clearing the
/// batch may not.
#[test]
fn a_packet_in_two_steps() {
    let (mut sender, mut receiver) = sessions(engine(), 1);
    let mut batch = SealBatch::new();
    let outbound = &mut sender.outbound;
    let stale = Draft::begin(outbound, &mut batch, 4).unwrap();
    batch.clear();
    assert_eq!(stale.contents(&mut batch), Err(SealError::Stale));
    let refused = stale.commit(outbound, &mut batch, Genuine);
    assert_eq!(refused, Err(SealError::Stale));

    let draft = Draft::begin(outbound, &mut batch, 4).unwrap();
    let first = outbound.push(&mut batch, Genuine, b"first").unwrap();
    draft.contents(&mut batch).unwrap().copy_from_slice(b"last");
    let last = draft.commit(outbound, &mut batch, Genuine).unwrap();
    engine().seal(&mut batch);
    let wire = [&first, &last].map(|slot| batch.wire(slot).unwrap().to_vec());
    let (packets, error) = turn(&mut receiver, engine(), &wire.concat());
    assert_eq!(
        (packets, error),
        (vec![b"first".to_vec(), b"last".to_vec()], None)
    );
}

#[test]
fn only_adjacent_slots_can_be_joined() {
    let (mut a, _) = sessions(engine(), 1);
    let (mut b, _) = sessions(engine(), 2);
    let mut batch = SealBatch::new();
    let first = a.outbound.push(&mut batch, Genuine, b"1").unwrap();
    let second = a.outbound.push(&mut batch, Genuine, b"22").unwrap();
    let other = b.outbound.push(&mut batch, Genuine, b"333").unwrap();
    let third = a.outbound.push(&mut batch, Genuine, b"4444").unwrap();
    assert_eq!(first.join(&other), None);
    // Neighbours, but of two sessions.
    assert_eq!(second.join(&other), None);
    assert_eq!(other.join(&third), None);
    assert_eq!(second.join(&first), None);
    assert_eq!(second.join(&third), None);
    assert_eq!(first.join(&first), None);
    let joined = first.join(&second).unwrap();
    assert_eq!(joined.wire_len(), 1 + 2 + 2 * Session::OVERHEAD);
    engine().seal(&mut batch);
    let apart = [&first, &second].map(|slot| batch.wire(slot).unwrap());
    assert_eq!(batch.wire(&joined), Ok(&apart.concat()[..]));
}

fn batch_with_one_packet() -> (Session, SealBatch, Slot) {
    let (mut sender, _) = sessions(engine(), 1);
    let mut batch = SealBatch::new();
    let slot = sender.outbound.push(&mut batch, Genuine, b"plaintext");
    (sender, batch, slot.unwrap())
}

#[test]
fn an_unsealed_slot_has_no_wire() {
    let (_, mut batch, slot) = batch_with_one_packet();
    assert_eq!(batch.wire(&slot), Err(SlotError::NotSealed));
    engine().seal(&mut batch);
    assert!(batch.wire(&slot).is_ok());
}

#[test]
fn a_slot_with_an_unsealed_packet_has_no_wire() {
    let (mut sender, mut batch, slot) = batch_with_one_packet();
    engine().seal(&mut batch);
    let late = sender.outbound.push(&mut batch, Genuine, b"late").unwrap();
    let both = slot.join(&late).unwrap();
    assert_eq!(batch.wire(&both), Err(SlotError::NotSealed));
    assert!(batch.wire(&slot).is_ok());
    engine().seal(&mut batch);
    assert!(batch.wire(&both).is_ok());
}

/// A slot of an earlier turn has no wire bytes, sealed or not.
#[test]
fn a_slot_of_an_earlier_turn_has_no_wire() {
    let (mut sender, mut batch, _) = batch_with_one_packet();
    let long = sender.outbound.push(&mut batch, Genuine, &[1; 50]).unwrap();
    engine().seal(&mut batch);
    assert!(batch.wire(&long).is_ok());
    batch.clear();
    assert_eq!(batch.wire(&long), Err(SlotError::Stale));
    for _ in 0..2 {
        sender
            .outbound
            .push(&mut batch, Genuine, b"sealed")
            .unwrap();
    }
    engine().seal(&mut batch);
    sender
        .outbound
        .push(&mut batch, Genuine, &[b'p'; 90])
        .unwrap();
    assert_eq!(batch.wire(&long), Err(SlotError::Stale));
    // Nor in another batch.
    let (_, other, _) = batch_with_one_packet();
    assert_eq!(other.wire(&long), Err(SlotError::Stale));
}

#[test]
#[should_panic(expected = "room")]
fn receiving_more_than_the_room_panics() {
    let (_, mut receiver) = sessions(engine(), 1);
    let mut batch = OpenBatch::new();
    batch.room(100);
    batch.room(10);
    let _ = receiver.inbound.receive(&mut batch, 11);
}

#[test]
#[should_panic(expected = "room")]
fn receiving_a_room_twice_panics() {
    let (_, mut receiver) = sessions(engine(), 1);
    let mut batch = OpenBatch::new();
    batch.room(100).fill(0);
    receiver.inbound.receive(&mut batch, 50).unwrap();
    let _ = receiver.inbound.receive(&mut batch, 1);
}

/// Every mistake that loses packets is an error, in its own session only.
#[test]
fn lost_packets_are_errors() {
    let not_opened = (vec![], Some(OpenError::NotOpened));
    let lost = (vec![], Some(OpenError::NotInBatch));
    let both = || vec![b"one".to_vec(), b"two".to_vec()];
    let start = || {
        let (mut sender, mut receiver) = sessions(engine(), 1);
        let wire = seal(&mut sender, &[(Genuine, b"one"), (Genuine, b"two")]);
        let mut batch = OpenBatch::new();
        assert_eq!(receiver.inbound.feed(&mut batch, &wire), Ok(2));
        (receiver, wire, batch)
    };
    // Taken before the batch was opened: nothing is lost.
    let (mut receiver, _, mut batch) = start();
    assert_eq!(take(&mut receiver, &batch), not_opened);
    assert_eq!(take(&mut receiver, &batch), not_opened);
    engine().open(&mut batch);
    assert_eq!(take(&mut receiver, &batch), (both(), None));
    // Cleared before or after it was opened. The error comes with the next packets, and ends
    // the session at the next bytes.
    for open in [false, true] {
        let (mut receiver, wire, mut batch) = start();
        if open {
            engine().open(&mut batch);
        }
        batch.clear();
        assert_eq!(take(&mut receiver, &batch), lost);
        for bytes in [&b""[..], &wire] {
            let refused = receiver.inbound.feed(&mut batch, bytes);
            assert_eq!(refused, Err(OpenError::NotInBatch));
            engine().open(&mut batch);
            assert_eq!(take(&mut receiver, &batch), lost);
        }
    }
    // Only one of two packets taken.
    let (mut receiver, _, mut batch) = start();
    engine().open(&mut batch);
    assert_eq!(
        receiver.inbound.packets(&batch).next(),
        Some(Ok(&b"one"[..]))
    );
    batch.clear();
    assert_eq!(take(&mut receiver, &batch), lost);
    // Taken from another batch with the same number of packets: nothing is lost.
    let (mut receiver, _, mut batch) = start();
    engine().open(&mut batch);
    let (mut bystander, _, mut another) = start();
    engine().open(&mut another);
    assert_eq!(take(&mut receiver, &another), lost);
    assert_eq!(take(&mut bystander, &another), (both(), None));
    assert_eq!(take(&mut receiver, &batch), (both(), None));
    // No packet is waiting, so none is lost.
    let (_, mut receiver) = sessions(engine(), 1);
    let (_, wire, mut batch) = start();
    batch.clear();
    assert_eq!(receiver.inbound.feed(&mut batch, &wire[..7]), Ok(0));
    batch.clear();
    assert_eq!(take(&mut receiver, &batch), (vec![], None));
    assert_eq!(turn(&mut receiver, engine(), &wire[7..]).0.len(), 2);
}

/// The limit is exact to the byte, for complete packets and when the length arrives first.
#[test]
fn the_receive_limit() {
    assert_eq!(Inbound::DEFAULT_RECEIVE_LIMIT, 4_000_013);
    for limit in [None, Some(0), Some(61)] {
        let most = limit.unwrap_or(Inbound::DEFAULT_RECEIVE_LIMIT);
        let (mut sender, mut receiver) = sessions(engine(), 1);
        if let Some(limit) = limit {
            receiver.inbound.set_receive_limit(limit);
        }
        let wire = seal(
            &mut sender,
            &[(Genuine, &vec![7; most]), (Genuine, &vec![7; most + 1])],
        );
        let (good, bad) = wire.split_at(most + Session::OVERHEAD);
        let (packets, error) = turn(&mut receiver, engine(), good);
        assert_eq!(error, None);
        assert!(packets == [vec![7; most]]);
        assert_eq!(turn(&mut receiver, engine(), &bad[..2]), (vec![], None));
        let expected = OpenError::TooLong {
            length: most + 1,
            limit: most,
        };
        let refused = turn(&mut receiver, engine(), &bad[2..3]);
        assert_eq!(refused, (vec![], Some(expected)));
    }
}

/// The longest contents that the format allows, and one byte more.
#[test]
fn the_longest_contents() {
    let (mut sender, mut receiver) = sessions(engine(), 1);
    receiver
        .inbound
        .set_receive_limit(Session::MAX_CONTENTS_LEN);
    let mut contents = noise(1, 1 << 20).repeat(16);
    let too_long = SealError::TooLong { length: 1 << 24 };
    let mut batch = SealBatch::new();
    let refused = sender.outbound.push(&mut batch, Genuine, &contents);
    assert_eq!(refused, Err(too_long));
    let never = |_: &mut [u8]| unreachable!("there is no place");
    let length = usize::MAX;
    let refused = sender
        .outbound
        .push_with(&mut batch, Genuine, length, never);
    assert_eq!(refused, Err(SealError::TooLong { length }));
    assert!(batch.is_empty());
    assert_eq!(batch.bytes_used(), 0);
    let mut wire = Vec::new();
    let refused = sender.outbound.seal(Genuine, &contents, &mut wire);
    assert_eq!((refused, wire.len()), (Err(too_long), 0));

    // Refused packets do not count.
    contents.pop();
    assert_eq!(contents.len(), Session::MAX_CONTENTS_LEN);
    let slot = sender
        .outbound
        .push(&mut batch, Genuine, &contents)
        .unwrap();
    engine().seal(&mut batch);
    let (first, rest) = batch.wire(&slot).unwrap().split_at(5_000_000);
    assert_eq!(turn(&mut receiver, engine(), first), (vec![], None));
    let (packets, error) = turn(&mut receiver, engine(), rest);
    assert_eq!(error, None);
    assert!(packets == [contents]);
    let after = seal(&mut sender, &[(Genuine, b"after")]);
    let (packets, error) = turn(&mut receiver, engine(), &after);
    assert_eq!((packets, error), (vec![b"after".to_vec()], None));
}

/// Appends to more bytes than a job's 32-bit offsets can address.
#[test]
#[cfg(target_pointer_width = "64")]
fn appending_to_more_than_4_gib() {
    let (mut sender, mut receiver) = sessions(engine(), 1);
    // Untouched zero pages take no memory.
    let mut wire = vec![0; (1 << 32) + 10];
    let before = wire.len();
    sender.outbound.seal(Genuine, b"secret", &mut wire).unwrap();
    let (packets, error) = turn(&mut receiver, engine(), &wire[before..]);
    assert_eq!((packets, error), (vec![b"secret".to_vec()], None));
}

/// The halves of a session are independent: receiving does not affect sending.
#[test]
fn both_directions_at_once() {
    let (mut a, mut b) = sessions(engine(), 1);
    let mut heard = Vec::new();
    for round in 0..1200_usize {
        let me = if round % 2 == 0 { &mut a } else { &mut b };
        let mut batch = OpenBatch::new();
        me.inbound.feed(&mut batch, &heard).unwrap();
        engine().open(&mut batch);
        let expected = match round {
            0 => vec![],
            _ => vec![noise(1, round - 1)],
        };
        assert_eq!(take(me, &batch), (expected, None));
        let mut batch = SealBatch::new();
        let slot = me.outbound.push(&mut batch, Genuine, &noise(1, round));
        engine().seal(&mut batch);
        heard = batch.wire(&slot.unwrap()).unwrap().to_vec();
    }
}

/// Contents start after the header byte, wherever the packet is.
#[test]
fn header_and_contents_are_separate() {
    assert_eq!(Session::HEADER_LEN, 1);
    let (mut sender, mut receiver) = sessions(engine(), 1);
    let wire = seal(
        &mut sender,
        &[(Decoy, b"\0"), (Genuine, b""), (Genuine, b"\x80")],
    );
    let (packets, error) = turn(&mut receiver, engine(), &wire);
    assert_eq!((packets, error), (vec![vec![], vec![0x80]], None));
    assert_eq!(receiver.inbound.decoys(), 1);
}

/// Sessions from keys, in both roles, against ciphers written by hand: the same bytes over more
/// than three rekeys.
#[test]
fn sessions_from_keys() {
    for engine in engines() {
        let keys = SessionKeys::derive(&[3; 32], common::MAGIC);
        for (role, other, length, packet) in [
            (
                Role::Initiator,
                Role::Responder,
                &keys.initiator_length,
                &keys.initiator_packet,
            ),
            (
                Role::Responder,
                Role::Initiator,
                &keys.responder_length,
                &keys.responder_packet,
            ),
        ] {
            let mut sender = Session::from_keys(engine, &keys, role);
            let mut receiver = Session::from_keys(engine, &keys, other);
            assert_eq!(sender.id(), &keys.session_id);
            let mut forge = Forge::new(length, packet);
            let (mut wire, mut forged) = (Vec::new(), Vec::new());
            for i in 0..3 * Session::REKEY_INTERVAL as usize + 2 {
                let contents = noise(i as u64, i % 100);
                sender.outbound.seal(Genuine, &contents, &mut wire).unwrap();
                forged.extend(forge.packet(0, b"", &contents));
            }
            assert!(wire == forged);
            let (packets, error) = turn(&mut receiver, engine, &wire);
            assert_eq!(error, None);
            assert_eq!(packets.len(), 3 * Session::REKEY_INTERVAL as usize + 2);
        }
    }
}

/// Packets of small turns run when they are added. A session without precomputed keystream runs
/// none: the closure given to `run_pending` gets them all.
#[test]
fn without_precomputed_keystream_all_packets_wait() {
    for engine in engines() {
        let backend = engine.backend();
        for precomputed in [true, false] {
            let (mut sender, mut receiver) = sessions(engine, 1);
            sender.outbound.set_precomputed_keystream(precomputed);
            receiver.inbound.set_precomputed_keystream(precomputed);
            let (mut sealing, mut opening) = (SealBatch::new(), OpenBatch::new());
            let mut waited = Vec::new();
            for _ in 0..20 {
                sealing.clear();
                opening.clear();
                let slot = sender.outbound.push(&mut sealing, Genuine, b"few").unwrap();
                run_pending(&mut sealing, |work| {
                    waited.push(work.jobs.len());
                    backend.kernels().seal(work);
                });
                let wire = sealing.wire(&slot).unwrap();
                receiver.inbound.feed(&mut opening, wire).unwrap();
                run_pending(&mut opening, |work| {
                    waited.push(work.jobs.len());
                    backend.kernels().open(work);
                });
                let packet = receiver.inbound.packets(&opening).next();
                assert_eq!(packet, Some(Ok(&b"few"[..])));
            }
            assert_eq!(waited, [usize::from(!precomputed); 40]);
        }
    }
}

/// Packets are the same with and without precomputed keystream on either side, and if those of a
/// turn are pushed together: in turns of one, few and many packets, without batches, and across
/// rekeys.
#[test]
fn precomputed_keystream_changes_no_byte() {
    for engine in engines() {
        let mut random = Random::new(7);
        let (mut with, mut with_receiver) = sessions(engine, 1);
        let (mut without, mut without_receiver) = sessions(engine, 1);
        without.outbound.set_precomputed_keystream(false);
        without_receiver.inbound.set_precomputed_keystream(false);
        let (mut together, _) = sessions(engine, 1);
        let (mut sealing, mut opening) = (SealBatch::new(), OpenBatch::new());
        let mut sent = 0;
        let mut turns = 0;
        while sent < 4 * Session::REKEY_INTERVAL as usize {
            turns += 1;
            // Long runs of small turns and of large ones, and sometimes a single packet.
            let most = if turns / 20 % 2 == 0 { 3 } else { 40 };
            let packets: Vec<_> = (0..1 + random.below(most))
                .map(|i| {
                    let most = [20, 64, 130, 400, 3000][random.below(5)];
                    // Some packets are as long as those before them.
                    let len = match turns / 5 % 3 {
                        0 => 40 * (turns / 15) % 900,
                        _ => random.below(most),
                    };
                    noise((sent + i) as u64, len)
                })
                .collect();
            let by_itself = random.below(4) == 0;
            let [wire, other] = [&mut with, &mut without].map(|session| {
                let mut wire = Vec::new();
                if by_itself {
                    for contents in &packets {
                        let sealed = session.outbound.seal(Genuine, contents, &mut wire);
                        sealed.unwrap();
                    }
                    return wire;
                }
                sealing.clear();
                let slots: Vec<_> = packets
                    .iter()
                    .map(|contents| {
                        session
                            .outbound
                            .push(&mut sealing, Genuine, contents)
                            .unwrap()
                    })
                    .collect();
                engine.seal(&mut sealing);
                for slot in &slots {
                    wire.extend_from_slice(sealing.wire(slot).unwrap());
                }
                wire
            });
            assert!(wire == other, "{engine:?}: after {sent} packets");
            sealing.clear();
            let packets_of_all = packets.iter().map(|contents| (Genuine, &contents[..]));
            let slot = together.outbound.push_many(&mut sealing, packets_of_all);
            engine.seal(&mut sealing);
            let together = sealing.wire(&slot.unwrap()).unwrap();
            assert!(wire == together, "{engine:?}: after {sent} packets");
            for receiver in [&mut with_receiver, &mut without_receiver] {
                opening.clear();
                receiver.inbound.feed(&mut opening, &wire).unwrap();
                engine.open(&mut opening);
                assert_eq!(take(receiver, &opening), (packets.clone(), None));
            }
            sent += packets.len();
        }
    }
}

/// Packets that are pushed together: more than one key protects, after others, with decoys among
/// them.
#[test]
fn packets_pushed_together() {
    for engine in engines() {
        for precomputed in [true, false] {
            let [mut all, mut each] = [0, 1].map(|_| sessions(engine, 1).0);
            let mut batch = SealBatch::new();
            for session in [&mut all, &mut each] {
                let outbound = &mut session.outbound;
                outbound.set_precomputed_keystream(precomputed);
            }
            let contents: Vec<_> = (0..1000).map(|i| noise(i, i as usize % 150)).collect();
            let kind = |i| if i % 7 == 3 { Decoy } else { Genuine };
            let packets = contents.iter().enumerate();
            let packets = packets.map(|(i, contents)| (kind(i), &contents[..]));
            let (first, others) = (packets.clone().take(3), packets.skip(3));
            let mut slots = Vec::new();
            for (kind, contents) in first.clone() {
                slots.push(all.outbound.push(&mut batch, kind, contents).unwrap());
            }
            slots.push(all.outbound.push_many(&mut batch, others.clone()).unwrap());
            slots.push(all.outbound.push_many(&mut batch, []).unwrap());
            assert_eq!(batch.len(), contents.len());
            assert_eq!(batch.wire(&slots[3]), Err(SlotError::NotSealed));
            engine.seal(&mut batch);
            let wires = slots.iter().map(|slot| batch.wire(slot).unwrap());
            let mut expected = Vec::new();
            for (kind, contents) in first.chain(others) {
                each.outbound.seal(kind, contents, &mut expected).unwrap();
            }
            assert!(wires.collect::<Vec<_>>().concat() == expected);
            let whole = slots.iter().skip(1).fold(slots[0].clone(), |whole, slot| {
                whole.join(slot).expect("neighbours")
            });
            assert!(batch.wire(&whole).unwrap() == expected);
        }
    }
}

/// A packet that cannot be pushed prevents all packets that were to be pushed with it.
#[test]
fn packets_pushed_together_are_refused_together() {
    let [mut refused, mut other] = [0, 1].map(|_| sessions(engine(), 1).0);
    let mut batch = SealBatch::new();
    let long = vec![0; Session::MAX_CONTENTS_LEN + 1];
    for at in [0, 5, 39] {
        let packets = (0..40).map(|i| (Genuine, if i == at { &long[..] } else { b"short" }));
        let expected = Err(SealError::TooLong { length: long.len() });
        assert_eq!(refused.outbound.push_many(&mut batch, packets), expected);
    }
    let packets = (0..260).map(|_| (Genuine, &long[1..]));
    let expected = Err(SealError::BatchFull);
    assert_eq!(refused.outbound.push_many(&mut batch, packets), expected);
    assert_eq!((batch.len(), batch.bytes_used()), (0, 0));
    let packet: &[(PacketKind, &[u8])] = &[(Genuine, b"next")];
    assert_eq!(seal(&mut refused, packet), seal(&mut other, packet));
}

/// Packets that differ from those of a clone in length or number.
struct Liar<'a> {
    is_clone: bool,
    packet: usize,
    length: fn(bool, usize) -> Option<usize>,
    bytes: &'a [u8],
}

impl Clone for Liar<'_> {
    fn clone(&self) -> Self {
        let is_clone = true;
        Self { is_clone, ..*self }
    }
}

impl<'a> Iterator for Liar<'a> {
    type Item = (PacketKind, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = (self.length)(self.is_clone, self.packet)?;
        self.packet += 1;
        Some((Genuine, &self.bytes[..length]))
    }
}

/// After an iterator whose clone yields different packets, or that panics, no nonce is used twice,
/// and every packet has its own keystream.
#[test]
fn an_inconsistent_iterator_is_refused() {
    let liars: [fn(bool, usize) -> Option<usize>; 15] = [
        |is_clone, packet| (is_clone && packet < 60).then_some(61),
        |is_clone, packet| (packet < if is_clone { 60 } else { 40 }).then_some(61),
        |is_clone, packet| (packet < if is_clone { 3 } else { 1 }).then_some(61),
        |is_clone, packet| (packet < 3).then_some(if packet == 1 && is_clone { 62 } else { 61 }),
        |is_clone, packet| (packet < if is_clone { 40 } else { 60 }).then_some(61),
        |is_clone, packet| (packet < if is_clone { 1 } else { 3 }).then_some(61),
        |is_clone, packet| {
            let most = Session::MAX_CONTENTS_LEN + 1;
            (packet < 2).then_some(if packet == 1 && !is_clone { most } else { 61 })
        },
        |is_clone, packet| (packet < 60).then_some(if packet == 25 && !is_clone { 62 } else { 61 }),
        |is_clone, packet| (packet < 60).then_some(if packet == 25 && is_clone { 62 } else { 61 }),
        |is_clone, packet| {
            (packet < 300).then_some(if packet == 290 && !is_clone { 4000 } else { 9 })
        },
        |is_clone, packet| match packet {
            290 if !is_clone => panic!("the iterator's own panic"),
            _ => (packet < 300).then_some(61),
        },
        // These are sealed from their source.
        |is_clone, packet| {
            (packet < 300).then_some(if packet == 290 && !is_clone {
                1099
            } else {
                1100
            })
        },
        |is_clone, packet| {
            (packet < 300).then_some(if packet == 20 && !is_clone {
                1101
            } else {
                1100
            })
        },
        |is_clone, packet| (packet < if is_clone { 300 } else { 270 }).then_some(1100),
        |is_clone, packet| match packet {
            290 if !is_clone => panic!("the iterator's own panic"),
            _ => (packet < 300).then_some(1100),
        },
    ];
    let engine = engine();
    let bytes = vec![0; Session::MAX_CONTENTS_LEN + 1];
    let (mut reference, _) = sessions(engine, 1);
    let after: Vec<_> = (0..1000)
        .map(|_| seal(&mut reference, &[(Genuine, b"after")]))
        .collect();
    for (number, length) in liars.into_iter().enumerate() {
        for (precomputed, pushed_before) in [(false, 0), (false, 200), (true, 0), (true, 1)] {
            let (mut session, _) = sessions(engine, 1);
            let outbound = &mut session.outbound;
            outbound.set_precomputed_keystream(precomputed);
            let mut batch = SealBatch::new();
            for _ in 0..pushed_before {
                outbound.push(&mut batch, Genuine, b"before").unwrap();
            }
            let packets = Liar {
                is_clone: false,
                packet: 0,
                length,
                bytes: &bytes,
            };
            let push_many = AssertUnwindSafe(|| outbound.push_many(&mut batch, packets));
            catch_unwind(push_many).expect_err("other packets");
            let mut slots = Vec::new();
            loop {
                match outbound.push(&mut batch, Genuine, b"after") {
                    Ok(slot) if slots.len() < 400 => slots.push(slot),
                    Ok(_) | Err(SealError::Exhausted) => break,
                    Err(other) => panic!("{other}"),
                }
            }
            run_pending(&mut batch, |work| {
                let uses = work.jobs.iter().map(|job| (job.key, job.nonce));
                let distinct: HashSet<_> = uses.collect();
                assert_eq!(distinct.len(), work.jobs.len(), "liar {number}");
                engine.backend().kernels().seal(work);
            });
            let mut expected = after.iter();
            for slot in &slots {
                let wire = batch.wire(slot).unwrap();
                assert!(expected.any(|other| other == wire), "liar {number}");
            }
        }
    }
}

/// Precomputed keystream is turned off and on again in the middle of a session.
#[test]
fn precomputed_keystream_is_turned_off_and_on() {
    let engine = engine();
    let (mut sender, mut receiver) = sessions(engine, 1);
    for i in 0..500 {
        let on = i / 5 % 2 == 0;
        sender.outbound.set_precomputed_keystream(on);
        receiver.inbound.set_precomputed_keystream(i / 7 % 2 == 0);
        let contents = noise(i, 61);
        let wire = seal(&mut sender, &[(Genuine, &contents)]);
        assert_eq!(turn(&mut receiver, engine, &wire), (vec![contents], None));
    }
}

/// A forged packet with precomputed keystream leaves no plaintext.
#[test]
fn a_forged_packet_with_precomputed_keystream() {
    for engine in engines() {
        for len in [0, 5, 61, 63, 64, 200, 1000] {
            let (mut sender, mut receiver) = sessions(engine, 1);
            let contents = noise(3, len);
            let mut batch = OpenBatch::new();
            // The second packet's keystream is precomputed with the first.
            for forged in [false, true] {
                let mut wire = seal(&mut sender, &[(Genuine, &contents)]);
                let last = wire.len() - 1;
                wire[last] ^= u8::from(forged);
                batch.clear();
                assert_eq!(receiver.inbound.feed(&mut batch, &wire), Ok(1));
                engine.open(&mut batch);
                if forged {
                    let bad_tag = OpenError::BadTag {
                        packet: 2,
                        epoch: 0,
                    };
                    let ended = (vec![], Some(bad_tag));
                    assert_eq!(take(&mut receiver, &batch), ended);
                    // The arena holds what was received.
                    batch.clear();
                    assert!(batch.room(wire.len()) == wire);
                } else {
                    assert_eq!(take(&mut receiver, &batch), (vec![contents.clone()], None));
                }
            }
        }
    }
}

/// Packets of small turns run when they are added. The result is hidden until the engine is called,
/// so that a forgotten call is noticed even with one session; also if other packets of the turn
/// wait.
#[test]
fn results_are_hidden_until_the_engine_is_called() {
    for engine in engines() {
        let (mut alice, mut bob) = sessions(engine, 1);
        let (mut sealing, mut opening) = (SealBatch::new(), OpenBatch::new());
        let mut random = Random::new(1);
        for turn in 0..300 {
            let packets = 1 + random.below(9);
            let contents: Vec<_> = (0..packets)
                .map(|at| noise(turn * 10 + at as u64, random.below(200)))
                .collect();
            let mut slots = Vec::new();
            for contents in &contents {
                let kind = PacketKind::Genuine;
                slots.push(if random.below(4) == 0 {
                    let len = contents.len();
                    let write = |place: &mut [u8]| place.copy_from_slice(contents);
                    let outbound = &mut alice.outbound;
                    outbound.push_with(&mut sealing, kind, len, write).unwrap()
                } else {
                    alice.outbound.push(&mut sealing, kind, contents).unwrap()
                });
                for slot in &slots {
                    assert_eq!(sealing.wire(slot), Err(SlotError::NotSealed));
                }
            }
            engine.seal(&mut sealing);
            for slot in &slots {
                let wire = sealing.wire(slot).unwrap();
                assert_eq!(bob.inbound.feed(&mut opening, wire), Ok(1));
                let taken = bob.inbound.packets(&opening).next();
                assert_eq!(taken, Some(Err(OpenError::NotOpened)));
            }
            engine.open(&mut opening);
            let opened: Vec<_> = bob.inbound.packets(&opening).map(Result::unwrap).collect();
            assert_eq!(opened, contents);
            sealing.clear();
            opening.clear();
        }
    }
}
/// A packet is added to the batch as soon as it is complete; decoys are packets too.
#[test]
fn received_says_how_many_packets_it_added() {
    let packets: [(_, &[u8]); 4] = [
        (Genuine, b"one"),
        (Decoy, b"noise"),
        (Genuine, b""),
        (Genuine, b"four"),
    ];
    let (mut sender, mut receiver) = sessions(engine(), 1);
    let wire = seal(&mut sender, &packets);
    let mut batch = OpenBatch::new();
    assert_eq!(receiver.inbound.feed(&mut batch, b""), Ok(0));
    let two = 3 + 5 + 2 * Session::OVERHEAD;
    assert_eq!(receiver.inbound.feed(&mut batch, &wire[..two + 4]), Ok(2));
    for place in two + 4..wire.len() {
        let ends = [two + Session::OVERHEAD, wire.len()].contains(&(place + 1));
        let added = receiver.inbound.feed(&mut batch, &wire[place..=place]);
        assert_eq!(added, Ok(usize::from(ends)), "byte {place}");
    }
    assert_eq!(batch.len(), 4);
    engine().open(&mut batch);
    receiver.inbound.defer(&batch).unwrap();
    batch.clear();
    // Three were deferred, because the decoy is not kept, and one is new.
    let wire = seal(&mut sender, &[(Genuine, b"five")]);
    assert_eq!(receiver.inbound.feed(&mut batch, &wire), Ok(3 + 1));
    assert_eq!(receiver.inbound.receive(&mut batch, 0), Ok(0));
}

/// The error comes with the length's third byte. Packets before it can still be taken, including
/// deferred ones.
#[test]
fn a_packet_that_is_too_long_is_reported_at_once() {
    for (defer, precomputed) in [(false, true), (false, false), (true, true), (true, false)] {
        let (mut sender, mut receiver) = sessions(engine(), 1);
        receiver.inbound.set_receive_limit(100);
        receiver.inbound.set_precomputed_keystream(precomputed);
        let expected = OpenError::TooLong {
            length: 101,
            limit: 100,
        };
        let mut batch = OpenBatch::new();
        let wire = seal(&mut sender, &[(Genuine, b"one"), (Decoy, b"")]);
        assert_eq!(receiver.inbound.feed(&mut batch, &wire), Ok(2));
        if defer {
            engine().open(&mut batch);
            receiver.inbound.defer(&batch).unwrap();
            batch.clear();
        }
        let wire = seal(&mut sender, &[(Genuine, b"two"), (Genuine, &[0; 101])]);
        let length = 3 + Session::OVERHEAD + Session::LENGTH_LEN;
        let added = receiver.inbound.feed(&mut batch, &wire[..length - 1]);
        assert_eq!(added, Ok(1 + usize::from(defer)));
        // In the same turn, or in another one.
        let refused = receiver.inbound.feed(&mut batch, &wire[length - 1..length]);
        assert_eq!(refused, Err(expected));
        engine().open(&mut batch);
        let both = vec![b"one".to_vec(), b"two".to_vec()];
        assert_eq!(take(&mut receiver, &batch), (both, Some(expected)));
    }
    // In the call that also returns deferred packets to a batch.
    let (mut sender, mut receiver) = sessions(engine(), 1);
    receiver.inbound.set_receive_limit(100);
    let wire = seal(&mut sender, &[(Genuine, b"one")]);
    let mut batch = OpenBatch::new();
    assert_eq!(receiver.inbound.feed(&mut batch, &wire), Ok(1));
    engine().open(&mut batch);
    receiver.inbound.defer(&batch).unwrap();
    batch.clear();
    let wire = seal(&mut sender, &[(Genuine, b"two"), (Genuine, &[0; 101])]);
    let refused = receiver.inbound.feed(&mut batch, &wire);
    let too_long = matches!(refused, Err(OpenError::TooLong { .. }));
    assert!(too_long, "{refused:?}");
    engine().open(&mut batch);
    let both = vec![b"one".to_vec(), b"two".to_vec()];
    assert_eq!(take(&mut receiver, &batch), (both, refused.err()));
}

/// Returns a responder's session after a handshake whose last bytes arrived with `extra`.
fn after_handshake(extra: impl FnOnce(&mut Session) -> Vec<u8>) -> Box<Session> {
    let mut initiator = Handshake::initiator(common::config(engine(), 1)).unwrap();
    let mut responder = Handshake::responder(common::config(engine(), 2)).unwrap();
    responder.receive(&initiator.take_output()).unwrap();
    let done = initiator.receive(&responder.take_output()).unwrap();
    let Progress::Complete(mut sender) = done else {
        panic!("the initiator is not done");
    };
    let mut bytes = initiator.take_output();
    bytes.extend(extra(&mut sender));
    match responder.receive(&bytes).unwrap() {
        Progress::Complete(session) => session,
        _ => panic!("the responder is not done"),
    }
}

/// A server that waits for its socket would wait forever: the client may send nothing more before
/// it has an answer.
#[test]
fn packets_that_arrived_with_the_handshake_are_pending() {
    let whole = |sender: &mut Session| seal(sender, &[(Genuine, b"7 bytes")]);
    let mut session = after_handshake(whole);
    assert_eq!(session.inbound.buffered(), 27);
    assert!(session.inbound.has_pending_input());
    let mut batch = OpenBatch::new();
    assert_eq!(session.inbound.receive(&mut batch, 0), Ok(1));
    assert!(!session.inbound.has_pending_input());
    engine().open(&mut batch);
    let packet = vec![b"7 bytes".to_vec()];
    assert_eq!(take(&mut session, &batch), (packet.clone(), None));
    assert!(!session.inbound.has_pending_input());

    // Part of a packet: after at most one turn, the rest must come from the socket.
    for keep in 0..27 {
        let mut wire = Vec::new();
        let mut session = after_handshake(|sender| {
            wire = whole(sender);
            wire[..keep].to_vec()
        });
        assert_eq!(
            session.inbound.has_pending_input(),
            keep >= Session::LENGTH_LEN
        );
        let mut batch = OpenBatch::new();
        assert_eq!(session.inbound.receive(&mut batch, 0), Ok(0));
        assert!(!session.inbound.has_pending_input(), "{keep} bytes");
        assert_eq!(session.inbound.feed(&mut batch, &wire[keep..]), Ok(1));
        assert!(!session.inbound.has_pending_input());
        engine().open(&mut batch);
        assert_eq!(take(&mut session, &batch), (packet.clone(), None));
    }

    // Several, without a batch: one at a time.
    let packets: [(_, &[u8]); 4] = [
        (Genuine, b"one"),
        (Decoy, b"2"),
        (Genuine, b"three"),
        (Decoy, b""),
    ];
    let mut session = after_handshake(|sender| seal(sender, &packets));
    for expected in [b"one".as_slice(), b"three"] {
        assert!(session.inbound.has_pending_input());
        assert_eq!(session.inbound.open(&mut &[][..]), Ok(Some(expected)));
    }
    assert_eq!(session.inbound.open(&mut &[][..]), Ok(None));
    assert!(!session.inbound.has_pending_input());
    assert_eq!(session.inbound.decoys(), 2);
    assert_eq!(session.inbound.buffered(), 0);
}

/// Two sessions, and a batch with packets of `contents` that the second has received.
fn received(contents: &[&[u8]]) -> (Session, Session, OpenBatch) {
    let (mut sender, mut receiver) = sessions(engine(), 1);
    let packets: Vec<_> = contents.iter().map(|c| (Genuine, *c)).collect();
    let wire = seal(&mut sender, &packets);
    let mut batch = OpenBatch::new();
    let added = receiver.inbound.feed(&mut batch, &wire);
    assert_eq!(added, Ok(contents.len()));
    (sender, receiver, batch)
}

#[test]
fn deferred_packets_survive_clear() {
    let (mut sender, mut receiver, mut batch) = received(&[b"1", b"2", b"", b"4"]);
    engine().open(&mut batch);
    let first = receiver.inbound.packets(&batch).next();
    assert_eq!(first, Some(Ok(&b"1"[..])));
    // Twice, once in another batch.
    for _ in 0..2 {
        receiver.inbound.defer(&batch).unwrap();
        assert_eq!(take(&mut receiver, &batch), (vec![], None));
        assert!(receiver.inbound.has_pending_input());
        assert_eq!(receiver.inbound.buffered(), 2);
        batch = OpenBatch::new();
        assert_eq!(receiver.inbound.receive(&mut batch, 0), Ok(3));
        assert!(!receiver.inbound.has_pending_input());
        assert_eq!(receiver.inbound.buffered(), 0);
        engine().open(&mut batch);
    }
    // Before other packets, some of which arrive in the same turn.
    receiver.inbound.defer(&batch).unwrap();
    let wire = seal(
        &mut sender,
        &[(Genuine, b"5"), (Decoy, b"6"), (Genuine, b"7")],
    );
    let (first, rest) = wire.split_at(30);
    assert_eq!(receiver.inbound.feed(&mut batch, first), Ok(3 + 1));
    assert_eq!(receiver.inbound.feed(&mut batch, rest), Ok(2));
    engine().open(&mut batch);
    let expected = [&b"2"[..], b"", b"4", b"5", b"7"].map(<[u8]>::to_vec);
    assert_eq!(take(&mut receiver, &batch), (expected.to_vec(), None));
    // With nothing waiting, nothing is deferred.
    receiver.inbound.defer(&batch).unwrap();
    assert!(!receiver.inbound.has_pending_input());
}

/// Deferring too early is a mistake that loses nothing and changes no order.
#[test]
fn packets_are_deferred_only_when_they_are_opened() {
    let (mut sender, mut receiver, mut batch) = received(&[b"one", b"two"]);
    let refused = receiver.inbound.defer(&batch);
    assert_eq!(refused, Err(OpenError::NotOpened));
    let refused = receiver.inbound.defer(&OpenBatch::new());
    assert_eq!(refused, Err(OpenError::NotInBatch));
    engine().open(&mut batch);
    // Some are opened, and one is not.
    let wire = seal(&mut sender, &[(Genuine, b"three")]);
    assert_eq!(receiver.inbound.feed(&mut batch, &wire), Ok(1));
    let refused = receiver.inbound.defer(&batch);
    assert_eq!(refused, Err(OpenError::NotOpened));
    assert!(!receiver.inbound.has_pending_input());
    engine().open(&mut batch);
    let all = ["one", "two", "three"].map(|text| text.as_bytes().to_vec());
    assert_eq!(take(&mut receiver, &batch), (all.to_vec(), None));
}

/// Forged packets end the session when they are deferred, as when they are taken.
#[test]
fn a_forged_packet_is_not_deferred() {
    let (mut sender, mut receiver, mut batch) = received(&[b"one"]);
    let mut wire = seal(&mut sender, &[(Genuine, b"two")]);
    wire[10] ^= 1;
    assert_eq!(receiver.inbound.feed(&mut batch, &wire), Ok(1));
    engine().open(&mut batch);
    let bad_tag = OpenError::BadTag {
        packet: 2,
        epoch: 0,
    };
    assert_eq!(receiver.inbound.defer(&batch), Err(bad_tag));
    assert!(!receiver.inbound.has_pending_input());
    assert_eq!(receiver.inbound.buffered(), 0);
    batch.clear();
    assert_eq!(receiver.inbound.receive(&mut batch, 0), Err(bad_tag));
    assert_eq!(receiver.inbound.open(&mut &[][..]), Err(bad_tag));
}

/// Turns in which some packets are taken and the others deferred, in any mixture, including packets
/// that are taken without a batch.
#[test]
fn deferring_keeps_the_order() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let (mut sender, mut receiver) = sessions(engine(), 1);
        let mut wire = Vec::new();
        let mut expected = Vec::new();
        for i in 0..1 + random.below(300) {
            let contents = noise(i as u64, random.below(80));
            let kind = [Genuine, Genuine, Decoy][random.below(3)];
            sender.outbound.seal(kind, &contents, &mut wire).unwrap();
            if kind == Genuine {
                expected.push(contents);
            }
        }
        let mut got: Vec<Vec<u8>> = Vec::new();
        let mut batch = OpenBatch::new();
        let mut pieces = pieces(&wire, &mut random, 700).into_iter();
        loop {
            let piece = pieces.next();
            if piece.is_none() && !receiver.inbound.has_pending_input() {
                break;
            }
            let mut piece = piece.unwrap_or_default();
            if random.below(4) == 0 && !receiver.inbound.has_pending_input() {
                while let Some(contents) = receiver.inbound.open(&mut piece).unwrap() {
                    got.push(contents.to_vec());
                }
                continue;
            }
            receiver.inbound.feed(&mut batch, piece).unwrap();
            engine().open(&mut batch);
            let taken = receiver.inbound.packets(&batch).take(random.below(9));
            got.extend(taken.map(|packet| packet.unwrap().to_vec()));
            receiver.inbound.defer(&batch).unwrap();
            if random.below(3) > 0 {
                batch.clear();
            }
        }
        assert_eq!(got, expected, "seed {seed}");
        assert_eq!(receiver.inbound.buffered(), 0);
    }
}

/// Takes packets without a batch. Returns them, and the error after them.
fn open(session: &mut Session, mut bytes: &[u8]) -> (Vec<Vec<u8>>, Option<OpenError>) {
    let mut packets = Vec::new();
    loop {
        match session.inbound.open(&mut bytes) {
            Ok(Some(contents)) => packets.push(contents.to_vec()),
            Ok(None) => {
                assert!(bytes.is_empty());
                return (packets, None);
            }
            Err(error) => return (packets, Some(error)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// Without a batch, with one, and alternately: the same packets and errors for any cuts of any
    /// stream.
    #[test]
    fn opening_without_a_batch_is_as_with_one(
        packets in packets(300),
        seed: u64,
        damaged: bool,
        limited: bool,
    ) {
        for engine in engines() {
            let (mut sender, _) = sessions(engine, 1);
            let mut receivers = [(); 3].map(|()| sessions(engine, 1).1);
            let mut wire = Vec::new();
            for (i, &(len, decoy)) in packets.iter().enumerate() {
                let kind = if decoy { Decoy } else { Genuine };
                sender.outbound.seal(kind, &noise(i as u64, len), &mut wire).unwrap();
            }
            let mut random = Random::new(seed);
            if damaged && !wire.is_empty() {
                let place = random.below(wire.len());
                wire[place] ^= 1 << random.below(8);
            }
            for receiver in &mut receivers {
                if limited {
                    receiver.inbound.set_receive_limit(1500);
                }
            }
            let most = [3, 40, 3000, 100_000][random.below(4)];
            for piece in pieces(&wire, &mut random, most) {
                let [with, without, mixed] = &mut receivers;
                let expected = turn(with, engine, piece);
                let alone = open(without, piece);
                let mixed = match random.below(2) {
                    0 => turn(mixed, engine, piece),
                    _ => open(mixed, piece),
                };
                let failed = expected.1.is_some();
                prop_assert!(alone == expected && mixed == expected);
                let [with, without, mixed] = &receivers;
                for receiver in [without, mixed] {
                    let waits = receiver.inbound.buffered();
                    prop_assert!(failed || waits == with.inbound.buffered());
                    let decoys = receiver.inbound.decoys();
                    prop_assert_eq!(decoys, with.inbound.decoys());
                }
            }
        }
    }
}

/// Packets in a batch come first. Asking for a later one is a mistake that loses nothing.
#[test]
fn opening_waits_for_the_packets_of_a_batch() {
    let (mut sender, mut receiver, mut batch) = received(&[b"one", b"two"]);
    let wire = seal(&mut sender, &[(Genuine, b"three")]);
    let refused = |receiver: &mut Session| {
        let mut bytes = &wire[..];
        let refused = receiver.inbound.open(&mut bytes);
        assert_eq!(refused, Err(OpenError::NotInBatch));
        assert_eq!(bytes.len(), wire.len());
    };
    refused(&mut receiver);
    engine().open(&mut batch);
    let first = receiver.inbound.packets(&batch).next();
    assert_eq!(first, Some(Ok(&b"one"[..])));
    refused(&mut receiver);
    receiver.inbound.defer(&batch).unwrap();
    refused(&mut receiver);
    batch.clear();
    assert_eq!(receiver.inbound.receive(&mut batch, 0), Ok(1));
    refused(&mut receiver);
    engine().open(&mut batch);
    assert_eq!(take(&mut receiver, &batch), (vec![b"two".to_vec()], None));
    let last = open(&mut receiver, &wire);
    assert_eq!(last, (vec![b"three".to_vec()], None));
}

/// Many thousands of packets from a stranger in one piece, taken one at a time, are not moved
/// repeatedly: moving every packet once for each packet before it would take minutes.
#[test]
fn many_packets_after_a_handshake_are_opened_without_a_batch() {
    const COUNT: usize = 200_000;
    let mut session = after_handshake(|sender| {
        let mut wire = Vec::new();
        for _ in 0..COUNT {
            sender.outbound.seal(Genuine, b"", &mut wire).unwrap();
        }
        wire
    });
    let start = Instant::now();
    for _ in 0..COUNT {
        assert_eq!(session.inbound.open(&mut &[][..]), Ok(Some(&b""[..])));
    }
    assert_eq!(session.inbound.open(&mut &[][..]), Ok(None));
    assert!(start.elapsed() < Duration::from_secs(20));
}

/// More than a batch can hold is refused, not a panic.
#[test]
#[cfg(target_pointer_width = "64")]
fn feeding_more_than_4_gib_is_refused() {
    let (_, mut receiver) = sessions(engine(), 1);
    // Untouched zero pages take no memory.
    let bytes = vec![0; OpenBatch::MAX_BYTES + 1];
    let refused = receiver.inbound.feed(&mut OpenBatch::new(), &bytes);
    assert_eq!(refused, Err(OpenError::BatchFull));
}

/// Message types to send: all that have ids, later ones included, and random others.
fn message_types() -> Vec<MessageType> {
    let mut random = Random::new(5);
    let mut types: Vec<_> = (0..=255).filter_map(MessageType::from_short_id).collect();
    assert_eq!(types.len(), 37);
    types.extend((0..100).map(|_| {
        let name = noise(random.next(), random.below(13));
        let name: Vec<u8> = name.iter().map(|byte| b'a' + byte % 26).collect();
        MessageType::new(&name).unwrap()
    }));
    types
}

/// A message written in place equals the output of `encode_message`.
#[test]
fn messages_are_written_where_their_packets_lie() {
    let (mut pushed, mut receiver) = sessions(engine(), 1);
    let (mut written, _) = sessions(engine(), 1);
    let (mut encoded, _) = sessions(engine(), 1);
    let mut batch = SealBatch::new();
    for (i, message_type) in message_types().into_iter().enumerate() {
        let payload = noise(i as u64, 7 * i);
        let mut contents = Vec::new();
        message_type.encode(&payload, &mut contents);
        let expected = encoded.outbound.push(&mut batch, Genuine, &contents);
        let one = pushed
            .outbound
            .push_message(&mut batch, message_type, &payload);
        let write = |place: &mut [u8]| place.copy_from_slice(&payload);
        let outbound = &mut written.outbound;
        let two = outbound
            .push_message_with(&mut batch, message_type, payload.len(), write)
            .unwrap();
        engine().seal(&mut batch);
        let wire = batch.wire(&expected.unwrap()).unwrap().to_vec();
        assert_eq!(wire.len(), contents.len() + Session::OVERHEAD);
        assert_eq!(batch.wire(&one.unwrap()), Ok(&wire[..]), "{message_type}");
        assert_eq!(batch.wire(&two), Ok(&wire[..]), "{message_type}");
        let (packets, error) = turn(&mut receiver, engine(), &wire);
        assert_eq!((packets.len(), error), (1, None));
        let decoded = MessageType::decode(&packets[0]);
        assert_eq!(decoded, Ok((message_type, &payload[..])));
        batch.clear();
    }
}

/// Its id, 37, was assigned after BIP324: not every peer understands it.
#[test]
fn the_type_feature_is_sent_in_full() {
    let feature = MessageType::literal("feature");
    assert_eq!(MessageType::from_short_id(37), Some(feature));
    assert_eq!(feature.short_id(), None);
    let (mut sender, mut receiver) = sessions(engine(), 1);
    let mut batch = SealBatch::new();
    let slot = sender.outbound.push_message(&mut batch, feature, b"data");
    let slot = slot.unwrap();
    assert_eq!(slot.wire_len(), Session::OVERHEAD + 13 + 4);
    engine().seal(&mut batch);
    let (packets, _) = turn(&mut receiver, engine(), batch.wire(&slot).unwrap());
    assert_eq!(packets, [b"\0feature\0\0\0\0\0data"]);
}

/// The type counts towards the maximum length of contents. Nothing is added or counted.
#[test]
fn messages_that_are_too_long_are_refused() {
    let (mut sender, mut receiver) = sessions(engine(), 1);
    let mut batch = SealBatch::new();
    let payload = vec![0; Session::MAX_CONTENTS_LEN];
    for (name, type_len) in [("ping", 1), ("feature", 13)] {
        let message_type = MessageType::literal(name);
        let most = Session::MAX_CONTENTS_LEN - type_len;
        let mut push = |len: usize| {
            let slot = sender
                .outbound
                .push_message(&mut batch, message_type, &payload[..len]);
            slot.map(|slot| slot.wire_len())
        };
        let length = Session::MAX_CONTENTS_LEN + 1;
        assert_eq!(push(most + 1), Err(SealError::TooLong { length }));
        let length = usize::MAX;
        let never = |_: &mut [u8]| unreachable!("there is no place");
        let refused = sender
            .outbound
            .push_message_with(&mut batch, message_type, length, never);
        assert_eq!(refused, Err(SealError::TooLong { length }));
    }
    assert!(batch.is_empty());
    assert_eq!(batch.bytes_used(), 0);
    let wire = seal(&mut sender, &[(Genuine, b"first")]);
    let first = turn(&mut receiver, engine(), &wire);
    assert_eq!(first, (vec![b"first".to_vec()], None));
}
