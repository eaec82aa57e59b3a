//! Batches of sessions on an emulated GPU, with and without help from the CPU: the same bytes and
//! verdicts as on the CPU alone, and nothing is lost when the device fails.
#![cfg(feature = "cuda")]

mod common;

use common::{Random, engine, noise, sessions};
use packetlane::bip324::{Inbound, Outbound, PacketKind};
use packetlane::internals::outcome;
use packetlane::{Engine, Offload, OpenBatch, SealBatch};
use packetlane_gpu::{Gpu, GpuError, PipelineConfig};
use packetlane_lanes::Outcome;
use packetlane_ptx_emulator::{Call, Held, StandIn};

/// An emulated device that runs its work in an order given by `seed`, in small pieces. It lives
/// for the whole process, like an engine's device.
fn device(seed: u64) -> (StandIn, &'static Gpu) {
    let stand_in = StandIn::new(seed);
    let gpu = Box::leak(Box::new(Gpu::on(stand_in.clone())));
    gpu.configure(PipelineConfig {
        streams: 3,
        piece_bytes: 50_000,
    });
    gpu.set_crossover(engine().backend(), 20_000);
    (stand_in, gpu)
}

/// Engines with the device: device only, assisted by the CPU, and by several threads.
fn on(gpu: &'static Gpu) -> [Engine; 3] {
    let beside = engine().with_gpu(gpu);
    let alone = beside.with_offload(Offload::Always);
    [alone, beside, beside.with_threads(3)]
}

/// The two ends of `count` connections.
fn connections(count: usize) -> (Vec<Outbound>, Vec<Inbound>) {
    let pairs = (0..count as u64).map(|seed| {
        let (from, to) = sessions(engine(), seed);
        (from.outbound, to.inbound)
    });
    pairs.unzip()
}

/// What each session sends in each turn, as lengths of packets.
fn turns(seed: u64) -> Vec<Vec<usize>> {
    let mut random = Random::new(seed);
    let turn = |count| {
        (0..count)
            .map(|place| match place % 700 {
                7 => 40_000,
                _ => random.below(300),
            })
            .collect()
    };
    // Few packets, which have precomputed keystream, and enough for sessions to rekey.
    [1500, 1, 5, 900, 0, 3000].map(turn).into()
}

/// A batch of each direction, in page-locked memory of `bytes` bytes, or in ordinary memory.
fn batches(gpu: &'static Gpu, bytes: Option<usize>) -> (SealBatch, OpenBatch) {
    match bytes {
        Some(bytes) => (
            SealBatch::pinned(gpu, bytes).unwrap(),
            OpenBatch::pinned(gpu, bytes).unwrap(),
        ),
        None => (SealBatch::new(), OpenBatch::new()),
    }
}

/// Sends all turns of three sessions through batches of an engine. Returns the wire bytes of
/// each turn.
fn send(engine: Engine, batch: &mut SealBatch, turns: &[Vec<usize>]) -> Vec<Vec<u8>> {
    let (mut from, _) = connections(3);
    let contents = noise(1, 100_000);
    turns
        .iter()
        .map(|lengths| {
            batch.clear();
            let mut slots = Vec::new();
            for (place, &len) in lengths.iter().enumerate() {
                let contents = &contents[place..place + len];
                let session = &mut from[place % 3];
                slots.push(session.push(batch, PacketKind::Genuine, contents).unwrap());
                // A turn may be sealed in parts.
                if place == 1000 {
                    engine.seal(batch);
                }
            }
            engine.seal(batch);
            slots
                .iter()
                .flat_map(|slot| batch.wire(slot).unwrap())
                .copied()
                .collect()
        })
        .collect()
}

/// Receives what `send` has sent, with one forged packet in each long turn. Returns the results
/// of all packets, and the contents.
fn receive(
    engine: Engine,
    batch: &mut OpenBatch,
    turns: &[Vec<usize>],
    wires: &[Vec<u8>],
) -> Vec<(Vec<Outcome>, Vec<Vec<u8>>)> {
    let (_, mut to) = connections(3);
    turns
        .iter()
        .zip(wires)
        .map(|(lengths, wire)| {
            batch.clear();
            let mut wire = wire.clone();
            if lengths.len() > 1501 {
                // Forged in the tag of one of the second session's packets.
                let end: usize = lengths[..=1501].iter().map(|len| len + 20).sum();
                wire[end - 1] ^= 1;
            }
            let mut rest = &wire[..];
            for (place, len) in lengths.iter().enumerate() {
                let (packet, behind) = rest.split_at(len + 20);
                rest = behind;
                // Some arrive in pieces.
                let (one, two) = packet.split_at(if place % 50 == 3 { 11 } else { 0 });
                to[place % 3].feed(batch, one).unwrap();
                to[place % 3].feed(batch, two).unwrap();
            }
            engine.open(batch);
            let outcomes = (0..lengths.len())
                .map(|place| outcome(batch, place))
                .collect();
            let contents = to.iter_mut().flat_map(|session| {
                let opened = session.packets(batch).map_while(Result::ok);
                opened.map(<[u8]>::to_vec).collect::<Vec<_>>()
            });
            (outcomes, contents.collect())
        })
        .collect()
}

#[test]
fn the_bytes_and_verdicts_are_the_same() {
    for seed in 0..3 {
        let turns = turns(seed);
        let expected = send(engine(), &mut SealBatch::new(), &turns);
        let opened = receive(engine(), &mut OpenBatch::new(), &turns, &expected);
        assert_eq!(opened[5].0[1501], Outcome::BadTag);
        assert_eq!(opened[5].0[1502], Outcome::Authentic);
        let (stand_in, gpu) = device(seed);
        for engine in on(gpu) {
            assert_eq!(engine.gpu(), Some(gpu));
            // Page-locked memory that must grow, that has the right size, and none.
            for bytes in [Some(0), Some(1 << 20), None] {
                let (mut sealing, mut opening) = batches(gpu, bytes);
                let launches = stand_in.count(Call::Launch);
                let wires = send(engine, &mut sealing, &turns);
                assert!(wires == expected, "{engine:?}");
                assert!(
                    receive(engine, &mut opening, &turns, &wires) == opened,
                    "{engine:?}"
                );
                assert!(stand_in.count(Call::Launch) > launches + 20);
            }
        }
        gpu.release();
        assert_eq!(stand_in.held(), Held::default());
        assert_eq!(stand_in.unclean(), 0);
    }
}

#[test]
fn small_batches_run_on_the_cpu() {
    let (stand_in, gpu) = device(1);
    let beside = engine().with_gpu(gpu);
    let lengths = [vec![100; 120]];
    send(beside, &mut SealBatch::new(), &lengths);
    send(
        beside.with_offload(Offload::Never),
        &mut SealBatch::new(),
        &turns(1),
    );
    // Twice as many threads need twice as many bytes.
    send(
        beside.with_threads(2),
        &mut SealBatch::new(),
        &[vec![100; 250]],
    );
    // Without a device there is no threshold.
    send(
        engine().with_offload(Offload::Always),
        &mut SealBatch::new(),
        &lengths,
    );
    assert_eq!(stand_in.count(Call::Launch), 0);
    send(beside, &mut SealBatch::new(), &[vec![100; 250]]);
    assert!(stand_in.count(Call::Launch) > 0);
    let (stand_in, gpu) = device(1);
    send(
        engine().with_gpu(gpu).with_offload(Offload::Always),
        &mut SealBatch::new(),
        &lengths,
    );
    assert!(stand_in.count(Call::Launch) > 0);
}

/// The batch may lack the key of a packet with precomputed keystream.
#[test]
fn packets_with_precomputed_keystream_run_on_the_cpu() {
    let (stand_in, gpu) = device(1);
    let alone = engine().with_gpu(gpu).with_offload(Offload::Always);
    let lengths: Vec<Vec<usize>> = (0..500).map(|turn| vec![turn % 90; 1 + turn % 3]).collect();
    let expected = send(engine(), &mut SealBatch::new(), &lengths);
    let (mut sealing, mut opening) = batches(gpu, Some(1000));
    let wires = send(alone, &mut sealing, &lengths);
    assert!(wires == expected);
    let opened = receive(engine(), &mut OpenBatch::new(), &lengths, &wires);
    assert!(receive(alone, &mut opening, &lengths, &wires) == opened);
    // Some packets, such as those of the first turns, have no precomputed keystream.
    assert!(stand_in.count(Call::Launch) < 500);
}

#[test]
fn a_device_that_fails_loses_nothing() {
    const LOST: GpuError = GpuError::Lost {
        call: "a call",
        code: 719,
    };
    let turns = turns(7);
    let expected = send(engine(), &mut SealBatch::new(), &turns);
    let opened = receive(engine(), &mut OpenBatch::new(), &turns, &expected);
    for call in [
        Call::Alloc,
        Call::AllocPinned,
        Call::CopyIn,
        Call::CopyOut,
        Call::Launch,
        Call::Zero,
        Call::Wait,
    ] {
        for at in [0, 1, 3, 8, 30] {
            for error in [LOST, GpuError::OutOfMemory { bytes: 1 }] {
                let (stand_in, gpu) = device(at as u64);
                for (turn, engine) in on(gpu).into_iter().cycle().take(4).enumerate() {
                    let bytes = (turn == 0).then_some(100_000);
                    let (mut sealing, mut opening) = batches(gpu, bytes);
                    stand_in.fail(call, at, error.clone());
                    let wires = send(engine, &mut sealing, &turns);
                    assert!(wires == expected, "{call:?} {at} {engine:?}");
                    let again = receive(engine, &mut opening, &turns, &wires);
                    assert!(again == opened, "{call:?} {at} {engine:?}");
                    if let Some(last) = gpu.last_error() {
                        assert_eq!(last, error);
                        assert_eq!(gpu.is_lost(), error == LOST);
                    } else {
                        // Fewer calls were made.
                        assert!(at > 2);
                    }
                }
            }
        }
    }
}

#[test]
fn page_locked_memory_may_run_out() {
    let (stand_in, gpu) = device(1);
    let turns = turns(2);
    let expected = send(engine(), &mut SealBatch::new(), &turns);
    let mut batch = SealBatch::pinned(gpu, 5000).unwrap();
    stand_in.fail(Call::AllocPinned, 1, GpuError::OutOfMemory { bytes: 1 });
    assert!(send(engine(), &mut batch, &turns) == expected);
    assert_eq!(stand_in.held().pinned, 0);
    // A batch can also shrink.
    let mut batch = SealBatch::pinned(gpu, 5000).unwrap();
    assert!(send(engine().with_gpu(gpu), &mut batch, &turns) == expected);
    assert!(batch.capacity() > 5000);
    let (mut from, _) = connections(1);
    batch.clear();
    let slot = from[0]
        .push(&mut batch, PacketKind::Genuine, b"kept")
        .unwrap();
    engine().seal(&mut batch);
    let wire = batch.wire(&slot).unwrap().to_vec();
    batch.shrink_to(0);
    assert!(batch.capacity() < 100);
    assert_eq!(batch.wire(&slot), Ok(&wire[..]));
    drop(batch);
    gpu.release();
    assert_eq!(stand_in.held(), Held::default());
}
