//! Several threads for one batch: the same bytes and the same verdicts as one.
#![cfg(feature = "parallel")]

mod common;

use common::{Random, engines, noise, sessions};
use packetlane::bip324::{Inbound, OpenError, Outbound, PacketKind};
use packetlane::{Batch, Engine, Outcome, Slot};

/// Lengths whose sum makes a batch large: short packets, and long ones that are
/// as much work as many of them.
fn lengths(seed: u64) -> Vec<usize> {
    let mut random = Random::new(seed);
    (0..3000)
        .map(|place| match place % 500 {
            7 => 50_000,
            _ => (random.next() % 300) as usize,
        })
        .collect()
}

/// Adds a packet of each length, by several sessions in turn.
fn fill(batch: &mut Batch, from: &mut [Outbound], lengths: &[usize]) -> Vec<Slot> {
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

/// What `lengths` are on the wire.
fn wire(engine: Engine, lengths: &[usize]) -> Vec<u8> {
    let (mut from, _) = connections(engine, 3);
    let mut batch = Batch::new();
    let slots = fill(&mut batch, &mut from, lengths);
    engine.seal(&mut batch);
    slots
        .iter()
        .flat_map(|slot| batch.wire(slot))
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
            // One packet that is longer than all others together, at each place.
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
            let mut batch = Batch::new();
            let slots = fill(&mut batch, &mut from, &lengths);
            engine.seal(&mut batch);
            let mut wires: Vec<Vec<u8>> =
                slots.iter().map(|slot| batch.wire(slot).to_vec()).collect();
            // The last byte of a tag: one packet of the second session, in what is
            // another thread's part if there is one.
            let forged = 2500;
            assert_eq!(forged % 3, 1);
            *wires[forged].last_mut().unwrap() ^= 1;

            batch.clear();
            for (place, wire) in wires.iter().enumerate() {
                to[place % 3].feed(&mut batch, wire);
            }
            engine.open(&mut batch);
            for place in 0..lengths.len() {
                let verdict = match place == forged {
                    true => Outcome::BadTag,
                    false => Outcome::Authentic,
                };
                assert_eq!(batch.outcome(place), verdict, "packet {place}");
            }
            let contents = noise(1, 1 << 20);
            for (session, inbound) in to.iter_mut().enumerate() {
                let mut places = (session..lengths.len()).step_by(3);
                let mut failed = false;
                for opened in inbound.packets(&batch) {
                    let place = places.next().unwrap();
                    let Ok(opened) = opened else {
                        assert_eq!((opened, place), (Err(OpenError::BadTag), forged));
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

/// A packet that comes in pieces is put together behind those that came with its
/// end, and so lies out of order.
#[test]
fn packets_may_come_in_pieces() {
    for engine in engines() {
        let lengths = lengths(3);
        let (mut from, _) = connections(engine, 1);
        let mut batch = Batch::new();
        let slots = fill(&mut batch, &mut from, &lengths);
        engine.seal(&mut batch);
        let wire: Vec<u8> = slots
            .iter()
            .flat_map(|slot| batch.wire(slot))
            .copied()
            .collect();
        for threads in [1, 2, 4] {
            for piece in [1_500, 16_384, 200_003] {
                let engine = engine.with_threads(threads);
                let (_, mut to) = connections(engine, 1);
                let mut opened = 0;
                // Half a megabyte in each turn.
                for turn in wire.chunks(500_000) {
                    batch.clear();
                    turn.chunks(piece)
                        .for_each(|piece| to[0].feed(&mut batch, piece));
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
