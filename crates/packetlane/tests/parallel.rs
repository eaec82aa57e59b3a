//! Several threads for one batch give the same bytes and verdicts as one.
#![cfg(feature = "parallel")]

mod common;

use common::{Random, engines, noise, sessions};
use packetlane::bip324::{Inbound, OpenError, Outbound, PacketKind};
use packetlane::internals::outcome;
use packetlane::quic::{self, Opener, Sealer, Secret, Suite, Version};
use packetlane::{Engine, OpenBatch, SealBatch, Slot};
use packetlane_lanes::Outcome;

/// Lengths whose sum makes a batch large: short packets, and long ones that each take as long
/// as many short ones.
fn lengths(seed: u64) -> Vec<usize> {
    let mut random = Random::new(seed);
    (0..3000)
        .map(|place| match place % 500 {
            7 => 50_000,
            _ => (random.next() % 300) as usize,
        })
        .collect()
}

/// Adds a packet of each length, alternating between several sessions.
fn fill(batch: &mut SealBatch, from: &mut [Outbound], lengths: &[usize]) -> Vec<Slot> {
    let contents = noise(1, 1 << 20);
    let packets = lengths.iter().enumerate();
    packets
        .map(|(place, &len)| {
            let session = place % from.len();
            from[session]
                .push(batch, PacketKind::Genuine, &contents[place..place + len])
                .unwrap()
        })
        .collect()
}

/// The two ends of `count` connections.
fn connections(engine: Engine, count: usize) -> (Vec<Outbound>, Vec<Inbound>) {
    let pairs = (0..count as u64).map(|seed| {
        let (from, to) = sessions(engine, seed);
        (from.outbound, to.inbound)
    });
    pairs.unzip()
}

/// The length on the wire of packets with these lengths.
fn wire(engine: Engine, lengths: &[usize]) -> Vec<u8> {
    let (mut from, _) = connections(engine, 3);
    let mut batch = SealBatch::new();
    let slots = fill(&mut batch, &mut from, lengths);
    engine.seal(&mut batch);
    slots
        .iter()
        .flat_map(|slot| batch.wire(slot).unwrap())
        .copied()
        .collect()
}

#[test]
fn the_bytes_are_the_same() {
    for engine in engines() {
        let mut cases = vec![
            vec![],
            vec![61],
            vec![300_000],
            vec![0; 5000],
            // One packet that is longer than all others together, at each position.
            [vec![1_000_000], vec![9; 100]].concat(),
            [vec![9; 100], vec![1_000_000]].concat(),
            [vec![9; 50], vec![1_000_000], vec![9; 50]].concat(),
        ];
        cases.extend((0..4).map(lengths));
        for lengths in cases {
            let expected = wire(engine, &lengths);
            for threads in [0, 1, 2, 3, 16] {
                let same = wire(engine.with_threads(threads), &lengths) == expected;
                assert!(
                    same,
                    "{engine:?}, {threads} threads, {} packets",
                    lengths.len()
                );
            }
        }
    }
}

#[test]
fn each_packet_has_its_own_verdict() {
    for engine in engines() {
        let lengths = lengths(9);
        for threads in [1, 2, 5] {
            let engine = engine.with_threads(threads);
            let (mut from, mut to) = connections(engine, 3);
            let mut batch = SealBatch::new();
            let slots = fill(&mut batch, &mut from, &lengths);
            engine.seal(&mut batch);
            let wires = slots.iter().map(|slot| batch.wire(slot).unwrap().to_vec());
            let mut wires: Vec<Vec<u8>> = wires.collect();
            // The last byte of a tag: one packet of the second session. With several threads it
            // is in another thread's part.
            let forged = 2500;
            assert_eq!(forged % 3, 1);
            *wires[forged].last_mut().unwrap() ^= 1;

            let mut batch = OpenBatch::new();
            for (place, wire) in wires.iter().enumerate() {
                to[place % 3].feed(&mut batch, wire).unwrap();
            }
            engine.open(&mut batch);
            for place in 0..lengths.len() {
                let verdict = match place == forged {
                    true => Outcome::BadTag,
                    false => Outcome::Authentic,
                };
                assert_eq!(outcome(&batch, place), verdict, "packet {place}");
            }
            let contents = noise(1, 1 << 20);
            for (session, inbound) in to.iter_mut().enumerate() {
                let mut places = (session..lengths.len()).step_by(3);
                let mut failed = false;
                for opened in inbound.packets(&batch) {
                    let place = places.next().unwrap();
                    let Ok(opened) = opened else {
                        // The version packet came before.
                        let number = 1 + place / 3;
                        let (packet, epoch) = (number as u32 % 224, number as u64 / 224);
                        let bad_tag = OpenError::BadTag { packet, epoch };
                        assert_eq!((opened, place), (Err(bad_tag), forged));
                        failed = true;
                        break;
                    };
                    assert_eq!(opened, &contents[place..place + lengths[place]]);
                }
                assert_eq!(failed, session == 1);
                assert!(failed || places.next().is_none());
            }
        }
    }
}

/// A packet that arrives in pieces is assembled after those that arrived with its end, so it is out
/// of order in the arena.
#[test]
fn packets_may_arrive_in_pieces() {
    for engine in engines() {
        let lengths = lengths(3);
        let (mut from, _) = connections(engine, 1);
        let mut batch = SealBatch::new();
        let slots = fill(&mut batch, &mut from, &lengths);
        engine.seal(&mut batch);
        let wire: Vec<u8> = slots
            .iter()
            .flat_map(|slot| batch.wire(slot).unwrap())
            .copied()
            .collect();
        let mut batch = OpenBatch::new();
        for threads in [1, 2, 4] {
            for piece in [1_500, 16_384, 200_003] {
                let engine = engine.with_threads(threads);
                let (_, mut to) = connections(engine, 1);
                let mut opened = 0;
                // 0.5 MB in each turn.
                for turn in wire.chunks(500_000) {
                    batch.clear();
                    for piece in turn.chunks(piece) {
                        to[0].feed(&mut batch, piece).unwrap();
                    }
                    engine.open(&mut batch);
                    opened += to[0].packets(&batch).map(Result::unwrap).count();
                }
                assert_eq!(opened, lengths.len());
            }
        }
    }
}

#[test]
fn threads_can_come_from_a_pool_of_the_callers() {
    let engine = common::engine();
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(2)
        .build()
        .unwrap();
    let expected = wire(engine, &lengths(5));
    assert!(pool.install(|| wire(engine.with_threads(2), &lengths(5))) == expected);
}

/// QUIC packets of several connections: several threads seal and open them like one thread,
/// forged ones included.
#[test]
fn quic_batches_are_the_same() {
    const CONNECTIONS: usize = 7;
    let secret = |suite: Suite, connection: usize| {
        let bytes = noise(connection as u64, suite.secret_len());
        Secret::new(suite, Version::V1, &bytes).unwrap()
    };
    let mixed = |connection: usize| Suite::ALL[connection % 3];
    let suites: [&dyn Fn(usize) -> Suite; 4] = [
        &|_| Suite::Aes128Gcm,
        &|_| Suite::Aes256Gcm,
        &|_| Suite::ChaCha20Poly1305,
        &mixed,
    ];
    let contents = noise(4, 60_000);
    let mut random = Random::new(8);
    // About 1.5 MB, so every thread has work.
    let lengths: Vec<usize> = (0..2000)
        .map(|packet| match packet % 400 {
            9 => 50_000,
            _ => 3 + random.below(1400),
        })
        .collect();
    for (engine, suite) in engines().into_iter().flat_map(|e| suites.map(|s| (e, s))) {
        // For sealing, the wire bytes. For opening, the whole arena and each packet's result.
        let seal = |threads: u16| -> Vec<u8> {
            let engine = engine.with_threads(threads);
            let sealer = |connection| Sealer::new(secret(suite(connection), connection));
            let mut sealers: Vec<_> = (0..CONNECTIONS).map(sealer).collect();
            let mut batch = quic::SealBatch::new();
            for (packet, &len) in lengths.iter().enumerate() {
                let number = packet as u64;
                let header = [0x41, number.to_be_bytes()[6], number.to_be_bytes()[7]];
                let sealer = &mut sealers[packet % CONNECTIONS];
                let payload = &contents[packet..packet + len];
                let slot = sealer.push(&mut batch, number, &header, payload).unwrap();
                assert_eq!(slot.wire_len(), 3 + len + 16);
                if packet == 3 {
                    // Some are sealed earlier, in part.
                    batch.seal_payloads(&engine);
                }
            }
            engine.seal(&mut batch);
            batch.bytes().to_vec()
        };
        let wire = seal(1);
        let mut damaged = wire.clone();
        let mut start = 0;
        for (packet, &len) in lengths.iter().enumerate() {
            if packet % 31 == 5 {
                // In the payload, in the tag, in the header.
                damaged[start + [3 + len / 2, 3 + len + 15, 1][packet % 3]] ^= 0x10;
            }
            start += 3 + len + 16;
        }
        let open = |threads: u16| {
            let engine = engine.with_threads(threads);
            let opener = |connection| Opener::new(secret(suite(connection), connection));
            let mut openers: Vec<_> = (0..CONNECTIONS).map(opener).collect();
            let mut batch = quic::OpenBatch::new();
            let mut slots = Vec::new();
            let mut rest = batch.feed(&damaged).start;
            for (packet, &len) in lengths.iter().enumerate() {
                let end = rest + 3 + len + 16;
                let opener = &mut openers[packet % CONNECTIONS];
                opener.set_expected(packet as u64);
                slots.push(opener.push(&mut batch, rest..end, 1).unwrap());
                if packet == 5 {
                    batch.unprotect_headers(&engine);
                }
                rest = end;
            }
            engine.open(&mut batch);
            let results: Vec<_> = slots
                .into_iter()
                .enumerate()
                .map(|(packet, slot)| {
                    let opened = openers[packet % CONNECTIONS].take(&batch, slot);
                    opened.map(|packet| (packet.number, packet.payload.to_vec()))
                })
                .collect();
            (batch.bytes().to_vec(), results)
        };
        let opened = open(1);
        for (packet, result) in opened.1.iter().enumerate() {
            let payload = contents[packet..packet + lengths[packet]].to_vec();
            match packet % 31 == 5 {
                true => assert!(matches!(result, Err(quic::OpenError::BadTag { .. }))),
                false => assert!(*result == Ok((packet as u64, payload))),
            }
        }
        for threads in [2, 3, 16] {
            assert!(seal(threads) == wire, "{engine:?}, {threads} threads");
            assert!(open(threads) == opened, "{engine:?}, {threads} threads");
        }
    }
}
