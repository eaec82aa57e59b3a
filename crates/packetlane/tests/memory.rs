//! Memory that sessions and blocks allocate: none in the steady state, and no more than
//! documented for a hostile peer's claims.

#![allow(unsafe_code, reason = "a counting allocator")]

mod common;

use common::{Random, engine, noise, sessions, take};
use packetlane::bip324::{
    Cipher, Connection, Handshake, HandshakeConfig, Inbound, OpenError, PacketKind, Progress, Role,
    Session,
};
use packetlane::bitcoin::Network;
use packetlane::quic::{self, Secret, Suite, Version};
use packetlane::sha256d::{Block, Hasher, Obfuscation, Scanner, Verifier};
use packetlane::{OpenBatch, SealBatch};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts for one thread, so that tests on other threads do not interfere.
#[derive(Clone, Copy, Default)]
struct Taken {
    /// Calls that allocate or move memory.
    calls: usize,
    /// Bytes held, and their maximum. Negative where another thread's memory is freed.
    held: isize,
    peak: isize,
}

thread_local! {
    static TAKEN: Cell<Taken> = const { Cell::new(Taken { calls: 0, held: 0, peak: 0 }) };
}

fn count(calls: usize, bytes: isize) {
    TAKEN.with(|cell| {
        let mut taken = cell.get();
        taken.calls += calls;
        taken.held += bytes;
        taken.peak = taken.peak.max(taken.held);
        cell.set(taken);
    });
}

struct Counting;

// SAFETY: Every call is passed to the system's allocator unchanged. The counters are plain
// numbers in thread-local storage that needs no allocation and is never destroyed.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size().cast_signed());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size().cast_signed());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, -layout.size().cast_signed());
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // While the system moves a block, it may hold both.
        count(1, size.cast_signed());
        count(0, -layout.size().cast_signed());
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `run` allocates: calls of the allocator, additional bytes held when it ends, and their
/// maximum.
fn taken_by(run: impl FnOnce()) -> (usize, usize, usize) {
    let before = TAKEN.get();
    TAKEN.set(Taken {
        peak: before.held,
        ..before
    });
    run();
    let after = TAKEN.get();
    (
        after.calls - before.calls,
        usize::try_from(after.held - before.held).unwrap_or(0),
        usize::try_from(after.peak - before.held).unwrap_or(0),
    )
}

#[test]
fn the_allocation_counter_works() {
    let mut kept = Vec::new();
    let (calls, held, peak) = taken_by(|| {
        drop(vec![1_u8; 1000]);
        kept = vec![2_u8; 100];
        kept.reserve_exact(200);
    });
    assert_eq!((calls, held, peak), (3, 300, 1000));
}

/// Several sessions seal and open through two batches, over many turns and rekeys. After a
/// warm-up nothing is allocated.
#[test]
fn the_steady_state_allocates_nothing() {
    let engine = engine();
    let mut pairs: Vec<_> = (0..20).map(|seed| sessions(engine, seed)).collect();
    let (mut sealing, mut opening) = (SealBatch::new(), OpenBatch::new());
    let contents = noise(1, 3000);
    let mut wires = vec![Vec::with_capacity(100_000); pairs.len()];
    let mut slots = Vec::with_capacity(1000);
    let mut packets = 0;
    let mut turn = |round: usize| {
        for i in 0..40 {
            for (s, (sender, _)) in pairs.iter_mut().enumerate() {
                let kind = if i % 7 == 0 {
                    PacketKind::Decoy
                } else {
                    PacketKind::Genuine
                };
                let len = (round + 61 * i + s) % 600;
                let slot = sender.outbound.push(&mut sealing, kind, &contents[..len]);
                slots.push(slot.unwrap());
            }
        }
        engine.seal(&mut sealing);
        for (i, slot) in slots.drain(..).enumerate() {
            wires[i % 20].extend_from_slice(sealing.wire(&slot).unwrap());
        }
        sealing.clear();
        // One more packet outside a batch, and a large one.
        for ((sender, _), wire) in pairs.iter_mut().zip(&mut wires) {
            let kind = PacketKind::Genuine;
            sender
                .outbound
                .seal(kind, &contents[..round % 3000], wire)
                .unwrap();
        }
        // Received in three reads, two of which end within a packet.
        for cut in [1, 2, 3] {
            for ((_, receiver), wire) in pairs.iter_mut().zip(&mut wires) {
                let len = match cut {
                    3 => wire.len(),
                    _ => wire.len() / 2 + round % 30,
                };
                let room = opening.room(4096 + len);
                room[..len].copy_from_slice(&wire[..len]);
                receiver.inbound.receive(&mut opening, len).unwrap();
                wire.drain(..len);
            }
            engine.open(&mut opening);
            for (_, receiver) in &mut pairs {
                for packet in receiver.inbound.packets(&opening) {
                    packet.unwrap();
                    packets += 1;
                }
            }
            opening.clear();
        }
    };
    // Long enough for every possible partial packet at the end of a turn.
    (0..1200).for_each(&mut turn);
    let (calls, held, _) = taken_by(|| (1200..1800).for_each(&mut turn));
    assert_eq!((calls, held), (0, 0));
    assert_eq!(packets, 1800 * 20 * (40 - 6 + 1));
    assert!(
        600 * 41 > 3 * Session::REKEY_INTERVAL as usize,
        "no rekey was among them"
    );
}

/// A peer announces the longest packet and sends little of it.
#[test]
fn a_claim_costs_what_arrives_and_256_kib() {
    for sent in [0, 1, 100, 1000, 300_000] {
        let (mut sender, mut receiver) = sessions(engine(), 1);
        let mut wire = Vec::new();
        let contents = vec![0; Inbound::DEFAULT_RECEIVE_LIMIT];
        sender
            .outbound
            .seal(PacketKind::Genuine, &contents, &mut wire)
            .unwrap();
        for piece in [1, 1000, usize::MAX] {
            let mut batch = OpenBatch::new();
            let (_, mut fresh) = sessions(engine(), 1);
            let inbound = &mut fresh.inbound;
            let (_, held, peak) = taken_by(|| {
                for piece in wire[..3 + sent].chunks(piece) {
                    inbound.feed(&mut batch, piece).unwrap();
                    batch.clear();
                }
                // Memory of the turn's batch is not the session's.
                batch = OpenBatch::new();
            });
            assert!(
                held <= 3 + sent + Inbound::MAX_PREALLOCATION,
                "{held} bytes for {sent}"
            );
            // The arena, which has doubled to its size, and a copy of the tail.
            let arena = 3 * piece.min(3 + sent).max(8);
            assert!(
                peak <= 2 * (3 + sent + Inbound::MAX_PREALLOCATION) + arena,
                "{peak} for {sent}"
            );
        }
        let (packets, error) = common::turn(&mut receiver, engine(), &wire);
        assert_eq!((packets.len(), error), (1, None), "the claim was honest");
    }
}

/// The same before the version packet.
#[test]
fn a_claimed_length_in_the_handshake_allocates_little() {
    for sent in [0, 1, 100, 1000, 300_000] {
        for garbage in [0, 4095] {
            for piece in [1, 1000, usize::MAX] {
                let [ours, theirs] = [1, 2].map(|seed| common::config(engine(), seed));
                let mut craft = common::craft_initiator(&theirs, &ours);
                let garbage = noise(1, garbage);
                let mut bytes = [&craft.public[..], &garbage, &craft.terminator].concat();
                bytes.extend(craft.forge.length(Inbound::DEFAULT_RECEIVE_LIMIT));
                bytes.extend(noise(2, sent));
                let mut handshake = Handshake::responder(ours).unwrap();
                let (_, held, peak) = taken_by(|| {
                    for piece in bytes.chunks(piece) {
                        let progress = handshake.receive(piece).unwrap();
                        assert!(matches!(progress, Progress::Waiting));
                    }
                });
                // The ciphers and the output take a few kilobytes.
                let few = 8 * 1024;
                let most = bytes.len() + Inbound::MAX_PREALLOCATION + few;
                assert!(held <= most, "{held} bytes for {sent}");
                assert!(peak <= 2 * most, "{peak} bytes for {sent}");
            }
        }
    }
}

/// Endless decoys before the version packet leave no memory behind.
#[test]
fn decoys_in_the_handshake_do_not_accumulate() {
    let [ours, theirs] = [1, 2].map(|seed| common::config(engine(), seed));
    let mut craft = common::craft_initiator(&theirs, &ours);
    let mut handshake = Handshake::responder(ours).unwrap();
    let start = [&craft.public[..], &craft.terminator].concat();
    assert!(matches!(handshake.receive(&start), Ok(Progress::Waiting)));
    let decoys: Vec<u8> = (0..500)
        .flat_map(|_| craft.forge.packet(0x80, b"", &[0; 1000]))
        .collect();
    let (_, held, _) = taken_by(|| {
        for piece in decoys.chunks(777) {
            let progress = handshake.receive(piece).unwrap();
            assert!(matches!(progress, Progress::Waiting));
        }
    });
    assert!(held <= 4096, "{held} bytes");

    // Nor does a long decoy, if another one follows.
    let long = craft.forge.packet(0x80, b"", &vec![0; 3_000_000]);
    let next = craft.forge.packet(0x80, b"", b"next");
    let (_, held, _) = taken_by(|| {
        for piece in [&long[..], &next[..1]].concat().chunks(100_000) {
            let progress = handshake.receive(piece).unwrap();
            assert!(matches!(progress, Progress::Waiting));
        }
    });
    assert!(held <= 64 * 1024, "{held} bytes");
}

/// A handshake that has ended does not keep what it receives later.
#[test]
fn a_handshake_that_has_ended_keeps_nothing() {
    let config = common::config(engine(), 1);
    let mut handshake = Handshake::responder(config).unwrap();
    assert!(handshake.receive(&noise(1, 64 + 4111)).is_err());
    let bytes = noise(2, 100_000);
    let (calls, _, _) = taken_by(|| {
        for _ in 0..10 {
            assert!(handshake.receive(&bytes).is_err());
        }
    });
    assert_eq!(calls, 0);
}

/// The longest packet in pieces of 1 KiB is held once by the session and, once complete, once by
/// the arena.
#[test]
fn peak_memory_of_a_long_packet() {
    let (mut sender, mut receiver) = sessions(engine(), 1);
    let mut wire = Vec::new();
    let contents = noise(1, Inbound::DEFAULT_RECEIVE_LIMIT);
    sender
        .outbound
        .seal(PacketKind::Genuine, &contents, &mut wire)
        .unwrap();
    let whole = contents.len() + Session::OVERHEAD;
    let mut batch = OpenBatch::new();
    let mut arrived = 0;
    let (_, held, peak) = taken_by(|| {
        for piece in wire.chunks(1024) {
            receiver.inbound.feed(&mut batch, piece).unwrap();
            engine().open(&mut batch);
            for packet in receiver.inbound.packets(&batch) {
                assert!(packet.unwrap() == contents);
                arrived += 1;
            }
            batch.clear();
        }
    });
    assert_eq!(arrived, 1);
    // The tail is freed. The batch keeps its arena.
    assert!(held <= whole + 8 * 1024, "{held} bytes held");
    // While the tail grows by Inbound::MAX_PREALLOCATION, two copies of it may exist. The arena is
    // allocated when the packet is complete.
    assert!(
        peak <= 2 * (whole + Inbound::MAX_PREALLOCATION) + 8 * 1024,
        "{peak} bytes at most"
    );

    // The batch can free the arena on request.
    let (_, _, _) = taken_by(|| batch.shrink_to(10_000));
    let before = TAKEN.get().held;
    drop(batch);
    assert!(before - TAKEN.get().held <= 20_000);
}

/// A reader does not keep the memory of a long packet.
#[test]
fn a_reader_frees_the_memory_of_a_long_packet() {
    use packetlane::bip324::stream::{Reader, StreamError};
    let (mut sender, receiver) = sessions(engine(), 1);
    let mut wire = Vec::new();
    let contents = noise(1, Inbound::DEFAULT_RECEIVE_LIMIT);
    let kind = PacketKind::Genuine;
    sender.outbound.seal(kind, &contents, &mut wire).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let mut reader = Reader::new(&wire[..], engine(), receiver.inbound);
    let (_, held, _) = taken_by(|| {
        runtime.block_on(async {
            assert!(reader.read().await.unwrap() == contents);
            let end = reader.read().await.unwrap_err();
            assert!(matches!(
                end,
                StreamError::Closed {
                    within_packet: false
                }
            ));
        });
    });
    assert!(held <= 256 * 1024, "{held} bytes");
}

/// Refusing a packet that is too long allocates nothing for it.
#[test]
fn a_refused_length_allocates_nothing() {
    let (mut sender, mut receiver) = sessions(engine(), 1);
    let mut wire = Vec::new();
    let contents = vec![0; Inbound::DEFAULT_RECEIVE_LIMIT + 1];
    sender
        .outbound
        .seal(PacketKind::Genuine, &contents, &mut wire)
        .unwrap();
    let mut batch = OpenBatch::with_capacity(10, 1000);
    let engine = engine();
    let (calls, _, _) = taken_by(|| {
        let refused = receiver.inbound.feed(&mut batch, &wire[..1000]);
        assert!(matches!(refused, Err(OpenError::TooLong { .. })));
        engine.open(&mut batch);
    });
    assert_eq!(calls, 0);
    let (_, error) = take(&mut receiver, &batch);
    assert!(matches!(error, Some(OpenError::TooLong { .. })));
}

/// A packet that fails frees its session's memory.
#[test]
fn a_failed_session_frees_its_memory() {
    let (mut sender, mut receiver) = sessions(engine(), 1);
    let mut wire = Vec::new();
    let contents = noise(1, 2_000_000);
    sender
        .outbound
        .seal(PacketKind::Genuine, &contents, &mut wire)
        .unwrap();
    let last = wire.len() - 1;
    wire[last] ^= 1;
    let (_, held, _) = taken_by(|| {
        let mut batch = OpenBatch::new();
        let mut random = Random::new(1);
        for piece in common::pieces(&wire, &mut random, 100_000) {
            receiver.inbound.feed(&mut batch, piece).unwrap();
        }
        engine().open(&mut batch);
        assert_eq!(
            take(&mut receiver, &batch),
            (
                vec![],
                Some(OpenError::BadTag {
                    packet: 1,
                    epoch: 0
                })
            )
        );
    });
    assert!(held <= Cipher::MAX_PRECOMPUTED_KEYSTREAM, "{held} bytes");
}

/// After many handshakes only the sessions hold memory: at most 2 KiB each while they are idle.
#[test]
fn finished_handshakes_hold_no_memory() {
    let make = |seed| {
        let dressed = |seed| HandshakeConfig {
            garbage: noise(seed, 4095),
            decoys: vec![noise(seed, 1000)],
            ..common::config(engine(), seed)
        };
        common::shake(
            Handshake::initiator(dressed(seed)).unwrap(),
            Handshake::responder(dressed(seed + 1000)).unwrap(),
        )
    };
    drop(make(1));
    let (_, held, _) = taken_by(|| (0..20).for_each(|seed| drop(make(seed))));
    assert_eq!(held, 0);
    let mut kept = Vec::with_capacity(20);
    let (_, held, _) = taken_by(|| kept.extend((0..20).map(make)));
    let each = held / 40 + size_of::<Session>();
    assert!(each <= 2048, "{each} bytes a session");
    // The same holds after packets, once their keystream is freed.
    for (one, other) in &mut kept {
        let mut wire = Vec::new();
        let kind = PacketKind::Genuine;
        one.outbound.seal(kind, &[7; 61], &mut wire).unwrap();
        let opened = other.inbound.open(&mut &wire[..]).unwrap();
        assert_eq!(opened, Some(&[7; 61][..]));
        one.outbound.set_precomputed_keystream(false);
        other.inbound.set_precomputed_keystream(false);
    }
    let (_, more, _) = taken_by(|| {
        for (one, other) in &mut kept {
            one.outbound.set_precomputed_keystream(true);
            other.inbound.set_precomputed_keystream(true);
        }
    });
    assert_eq!(more, 0);
}

/// Both directions of each. A connection of an event loop adds its empty outbox.
#[test]
fn ten_thousand_idle_sessions_take_at_most_2_kb_each() {
    const SESSIONS: usize = 10_000;
    let before = TAKEN.get().held;
    let mut idle = Vec::with_capacity(SESSIONS);
    for seed in 0..SESSIONS {
        let (session, _) = sessions(engine(), seed as u64);
        idle.push(session);
    }
    let held = usize::try_from(TAKEN.get().held - before).unwrap();
    println!("{} bytes a session", held / SESSIONS);
    assert!(held <= SESSIONS * 2000, "{held} bytes");
    assert!(size_of::<Connection>() <= 128);
}

/// A connected pair over tokio's sockets, both waiting for the other: session, reader and writer of
/// a side take at most 16 KiB, also after a long message.
#[test]
fn an_idle_stream_takes_at_most_16_kib_a_side() {
    use packetlane::bip324::stream::{Reader, Writer};
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (here, there) = tokio::net::UnixStream::pair().unwrap();
        let (here, there) = (here.into_split(), there.into_split());
        let message = noise(1, 4_000_000);
        let before = TAKEN.get().held;
        let (alice, bob) = sessions(engine(), 1);
        let mut alice = (
            Reader::new(here.0, engine(), alice.inbound),
            Writer::new(here.1, engine(), alice.outbound),
        );
        let mut bob = (
            Reader::new(there.0, engine(), bob.inbound),
            Writer::new(there.1, engine(), bob.outbound),
        );
        for (from, to) in [(&mut alice.1, &mut bob.0), (&mut bob.1, &mut alice.0)] {
            for message in [&message[..], b"short"] {
                let (sent, heard) =
                    tokio::join!(from.write(PacketKind::Genuine, message), to.read());
                sent.unwrap();
                assert!(heard.unwrap() == message);
            }
        }
        for reader in [&mut alice.0, &mut bob.0] {
            let mut waiting = pin!(reader.read());
            let mut context = Context::from_waker(Waker::noop());
            assert!(matches!(waiting.as_mut().poll(&mut context), Poll::Pending));
        }
        let held = usize::try_from(TAKEN.get().held - before).unwrap();
        assert!(held <= 2 * 16 * 1024, "{held} bytes a pair");
    });
}

/// Both directions, with all precomputed keystream: masks of lengths for a rekey interval, and
/// first blocks of the next packets.
#[test]
fn a_session_takes_at_most_6_kib() {
    let keys = common::keys(
        &common::config(engine(), 1),
        &common::config(engine(), 1001),
    );
    let mut wire = Vec::with_capacity(1000);
    let mut batch = OpenBatch::with_capacity(10, 1000);
    let mut kept = Vec::with_capacity(20);
    let mut run = |[mut one, mut two]: [Session; 2]| {
        for _ in 0..2 {
            wire.clear();
            let contents = [7; 61];
            one.outbound
                .seal(PacketKind::Genuine, &contents, &mut wire)
                .unwrap();
            two.inbound.feed(&mut batch, &wire).unwrap();
            engine().open(&mut batch);
            assert_eq!(take(&mut two, &batch).0, [contents]);
            batch.clear();
            std::mem::swap(&mut one, &mut two);
        }
        [one, two]
    };
    let make =
        || [Role::Initiator, Role::Responder].map(|role| Session::from_keys(engine(), &keys, role));
    drop(run(make()));
    let (_, heap, _) = taken_by(|| (0..10).for_each(|_| kept.extend(run(make()))));
    let each = heap / kept.len() + size_of::<Session>();
    // Each of the two sessions has precomputed keystream in both directions.
    assert!(
        each >= 2 * (704 + Cipher::MAX_PRECOMPUTED_KEYSTREAM / 2),
        "{each} bytes: nothing is precomputed"
    );
    assert!(each <= 6 * 1024, "{each} bytes a session");
}

/// Hashing messages allocates nothing. A Merkle tree takes one allocation, half as large as its
/// leaves.
#[test]
fn hashing_allocates_as_documented() {
    let hasher = Hasher::with_backend(engine().backend());
    let text = noise(5, 32 * 1001);
    let mut digests = vec![[0; 32]; 1000];
    let messages: Vec<_> = (0..1000).map(|i| &text[i..i + i % 300]).collect();
    let pieces: Vec<_> = messages.iter().map(|m| [*m, &[], *m]).collect();
    let (pairs, _) = text.as_chunks();
    let hashing = taken_by(|| {
        hasher.hash_many(&messages, &mut digests);
        hasher.hash_many_in_pieces(&pieces, &mut digests);
        hasher.hash_many_single(&messages, &mut digests);
        hasher.hash64(pairs, &mut digests[..pairs.len()]);
    });
    assert_eq!(hashing, (0, 0, 0));
    let (leaves, _) = text.as_chunks();
    let tree = taken_by(|| _ = hasher.merkle_root(leaves));
    assert_eq!(tree, (1, 0, 32 * (500 + 2)));
}

fn verifier() -> Verifier {
    Verifier::new(Hasher::best(), Network::Mainnet)
}

/// Finding and parsing one block after another allocates nothing. Verifying a block allocates
/// its two trees.
#[test]
fn blocks_allocate_nothing_in_the_steady_state() {
    let vectors = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/blocks/");
    let name = "0000000000000000001602407ac49862a7bca9d00f7f402db20b7be2f5de59d2.blk";
    let bytes = std::fs::read([vectors, name].concat()).unwrap();
    let mut file = b"magi".to_vec();
    file.extend_from_slice(&u32::try_from(bytes.len()).unwrap().to_le_bytes());
    file.extend_from_slice(&bytes);
    let file = file.repeat(3);
    let mut scanner = Scanner::new(*b"magi", Obfuscation::default(), verifier());
    let mut rest = &file[..];
    // The last block needs the bytes that follow it.
    let scanned = taken_by(|| {
        assert!(scanner.next(&mut rest, false).is_some());
        assert!(scanner.next(&mut rest, false).is_some());
        assert!(scanner.next(&mut rest, false).is_none());
    });
    assert_eq!(scanned, (0, 0, 0));

    let mut transactions = Vec::new();
    Block::parse(&bytes, &mut transactions).unwrap();
    let parsed = taken_by(|| assert!(Block::parse(&bytes, &mut transactions).is_ok()));
    assert_eq!(parsed, (0, 0, 0));

    let mut verifier = verifier();
    verifier.verify(&bytes).unwrap();
    let verified = taken_by(|| assert!(verifier.verify(&bytes).is_ok()));
    // Two trees.
    assert_eq!((verified.0, verified.1), (2, 0));
}

/// A hostile block costs memory for the transactions that it contains, not for those it announces.
#[test]
fn a_claimed_number_of_transactions_allocates_nothing() {
    let mut block = vec![0; 100_000];
    block[80..83].copy_from_slice(&[0xfd, 0xa0, 7]);
    let mut transactions = Vec::new();
    let taken = taken_by(|| assert!(Block::parse(&block, &mut transactions).is_err()));
    assert_eq!(taken, (0, 0, 0));
}

/// QUIC packets of several connections, over key updates.
#[test]
fn quic_batches_allocate_nothing_in_the_steady_state() {
    let engine = engine();
    let mut pairs: Vec<_> = (0..20_u8)
        .map(|seed| {
            let suite = Suite::ALL[usize::from(seed) % 3];
            let secret = [seed; 48];
            let secret = &secret[..suite.secret_len()];
            let secret = Secret::new(suite, Version::V1, secret).unwrap();
            (quic::Sealer::new(secret.clone()), quic::Opener::new(secret))
        })
        .collect();
    let (mut sealing, mut opening) = (quic::SealBatch::new(), quic::OpenBatch::new());
    let payload = noise(1, 1300);
    let mut slots = Vec::with_capacity(1000);
    let mut received = Vec::with_capacity(1000);
    let mut number = 0_u64;
    let mut turn = |round: usize| {
        for i in 0..10 {
            for (sealer, _) in &mut pairs {
                let header = [0x41, number.to_be_bytes()[6], number.to_be_bytes()[7]];
                let payload = &payload[..(61 * i + round) % 1200 + 3];
                slots.push(sealer.push(&mut sealing, number, &header, payload).unwrap());
            }
            number += 1;
        }
        engine.seal(&mut sealing);
        for (i, slot) in slots.drain(..).enumerate() {
            let wire = sealing.wire(&slot).unwrap();
            opening.room(2000)[..wire.len()].copy_from_slice(wire);
            let place = opening.commit(wire.len());
            let (_, opener) = &mut pairs[i % 20];
            received.push(opener.push(&mut opening, place, 1).unwrap());
        }
        engine.open(&mut opening);
        for (i, slot) in received.drain(..).enumerate() {
            pairs[i % 20].1.take(&opening, slot).unwrap();
        }
        sealing.clear();
        opening.clear();
    };
    (0..1200).for_each(&mut turn);
    let (calls, held, _) = taken_by(|| (1200..1400).for_each(&mut turn));
    assert_eq!((calls, held), (0, 0));
}
