//! Batches on an emulated device: the same bytes and verdicts as on the CPU, in whatever order
//! the device works.

mod common;

use common::{Made, Random, device, device_work, finish};
use packetlane_gpu::{Bytes, Gpu, GpuError, Help, Op, PipelineConfig, RunOptions, Timings};
use packetlane_lanes::{Job, Outcome, Work};
use packetlane_ptx_emulator::Held;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a batch on the device without the CPU's help, and compares everything with the CPU's
/// results.
fn same(gpu: &Gpu, made: &Made) -> Timings {
    let mut expected = made.clone();
    let verdicts = expected.on_cpu();
    let mut bytes = made.bytes.clone();
    let mut outcomes = vec![Outcome::Pending; made.jobs.len()];
    let work = (&made.keys[..], &made.jobs[..], &mut outcomes[..]);
    let done = gpu.run(
        made.op,
        device_work(Bytes::Plain(&mut bytes), work),
        RunOptions::default(),
    );
    let timings = done.unwrap();
    assert_eq!(timings.packets, made.jobs.len());
    assert!(outcomes == verdicts, "verdicts");
    assert!(bytes == expected.bytes, "bytes");
    timings
}

#[test]
fn every_length() {
    let (_, gpu) = device(1, 3, 200_000);
    let mut random = Random::new(1);
    let mut lengths: Vec<usize> = (0..=1100).collect();
    lengths.extend([
        4095, 4096, 4097, 32_767, 32_768, 32_769, 32_640, 48_960, 48_961, 300_000,
    ]);
    for aad in [1, 3, usize::MAX] {
        let made = Made::new(&mut random, &lengths, 5, aad);
        same(&gpu, &made);
        same(&gpu, &made.sealed(&mut random, 4));
    }
}

#[test]
fn the_longest_packet() {
    let (_, gpu) = device(1, 4, 8 << 20);
    let mut random = Random::new(2);
    let made = Made::new(&mut random, &[3, 1 << 24, 70, (1 << 24) + 1], 3, usize::MAX);
    assert_eq!(same(&gpu, &made).pieces, 4);
    same(&gpu, &made.clone().sealed(&mut random, usize::MAX));
    same(&gpu, &made.sealed(&mut random, 1));
}

#[test]
fn an_empty_batch() {
    let (stand_in, gpu) = device(1, 4, 8 << 20);
    let made = Made::new(&mut Random::new(2), &[], 1, 1);
    assert_eq!(same(&gpu, &made).pieces, 0);
    assert_eq!(stand_in.held(), Held::default());
}

#[test]
fn mixed_batches_of_thousands_of_sessions() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let streams = 1 + random.below(8);
        let (_, gpu) = device(seed, streams, 1 << (12 + random.below(10)));
        // The memory of one batch is reused for the next, which has another size.
        for _ in 0..3 {
            let count = 1 + random.below(4000);
            let lengths: Vec<usize> = (0..count)
                .map(|_| match random.below(400) {
                    0 => random.below(100_000),
                    _ => random.mail() - 1,
                })
                .collect();
            let keys = 1 + random.below(3000);
            let mut made = Made::new(&mut random, &lengths, keys, 9);
            if random.below(2) == 0 {
                // The jobs may be in any order.
                for place in (1..made.jobs.len()).rev() {
                    made.jobs.swap(place, random.below(place + 1));
                }
            }
            let timings = same(&gpu, &made);
            assert!(timings.pieces >= streams.min(2) || timings.bytes_to_device < 1 << 21);
            same(&gpu, &made.sealed(&mut random, 7));
        }
    }
}

/// Nonces that do not count need their own key entries.
#[test]
fn any_nonces() {
    let (_, gpu) = device(1, 4, 20_000);
    let mut random = Random::new(4);
    let mut made = Made::new(&mut random, &[61; 900], 10, 5);
    for job in &mut made.jobs {
        job.nonce = random.bytes();
    }
    same(&gpu, &made);
    same(&gpu, &made.sealed(&mut random, 5));
}

/// Returns the number of bytes from the first to the last of the packets, if they are in order.
fn span(made: &Made) -> usize {
    let [first, .., last] = &made.jobs[..] else {
        panic!("several packets")
    };
    (last.text + last.text_len + 16 - first.text) as usize
}

/// If there are large gaps between packets, or they are out of order, each is copied separately.
#[test]
fn scattered_packets_are_gathered() {
    let (_, gpu) = device(1, 1, 8 << 20);
    let mut random = Random::new(4);
    let made = Made::new(&mut random, &[40; 1000], 10, 3);
    let mut apart = made.clone();
    apart.bytes = vec![5; 1000 * made.bytes.len()];
    for (number, job) in (0..).zip(&mut apart.jobs) {
        (job.text, job.aad) = (job.text + 1000 * number, job.aad + 1000 * number);
    }
    let mut swapped = made.clone();
    swapped.jobs.swap(500, 501);
    for other in [apart, swapped] {
        let sent = same(&gpu, &other).bytes_to_device;
        assert!(sent > same(&gpu, &made).bytes_to_device && sent < 200_000);
        same(&gpu, &other.sealed(&mut random, 7));
    }
}

/// Equal keys of one index are copied to the device once per piece.
#[test]
fn keys_are_copied_once() {
    let (_, gpu) = device(1, 1, 8 << 20);
    for keys in [1, 10] {
        let mut made = Made::new(&mut Random::new(4), &[48; 1000], keys, usize::MAX);
        made.jobs.iter_mut().for_each(|job| job.nonce[4..].fill(7));
        let sent = same(&gpu, &made).bytes_to_device;
        // The range of the arena, descriptors and verdicts; keys; alignment of the parts.
        let least = span(&made) + 1000 * (16 + 1) + keys * 48;
        assert!((least..least + 4 * 256).contains(&sent));
    }
}

#[test]
fn a_packet_above_the_limit_is_not_run() {
    let (_, gpu) = device(1, 2, usize::MAX);
    let mut random = Random::new(5);
    for (len, outcome) in [(64 << 20, Outcome::Pending), (63 << 20, Outcome::Sealed)] {
        let mut made = Made::new(&mut random, &[5, len, 5], 10, usize::MAX);
        let before = made.bytes.clone();
        let mut outcomes = vec![Outcome::Pending; 3];
        let keys = &made.keys[..];
        gpu.seal(Work {
            bytes: &mut made.bytes,
            keys,
            jobs: &made.jobs,
            outcomes: &mut outcomes,
        })
        .unwrap();
        assert_eq!(outcomes, [Outcome::Sealed, outcome, Outcome::Sealed]);
        let text = made.jobs[1].text as usize..made.jobs[2].text as usize;
        assert_eq!(
            made.bytes[text.clone()] == before[text],
            outcome == Outcome::Pending
        );
    }
}

/// A pinned arena that holds a batch.
fn pinned(gpu: &Gpu, made: &Made) -> packetlane_gpu::Pinned {
    let mut pinned = gpu.pinned(made.bytes.len() + 777).unwrap();
    pinned[..made.bytes.len()].copy_from_slice(&made.bytes);
    pinned
}

#[test]
fn a_pinned_arena_is_copied_directly() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let streams = 1 + random.below(5);
        let (stand_in, gpu) = device(seed, streams, 1 << (12 + random.below(9)));
        let lengths: Vec<usize> = (0..1 + random.below(3000)).map(|_| random.mail()).collect();
        let mut made = Made::new(&mut random, &lengths, 300, 9);
        // Out-of-order packets next to each other, which stay together, and some that do not run.
        for _ in 0..random.below(20) {
            let place = random.below(made.jobs.len());
            let other = (place + random.below(4)).min(made.jobs.len() - 1);
            made.jobs.swap(place, other);
        }
        if random.below(8) == 0 {
            made.jobs.reverse();
        }
        for made in [made.clone(), made.sealed(&mut random, 6)] {
            let mut expected = made.clone();
            let verdicts = expected.on_cpu();
            let mut pinned = pinned(&gpu, &made);
            let mut outcomes = vec![Outcome::Pending; made.jobs.len()];
            let used = made.bytes.len();
            let work = (&made.keys[..], &made.jobs[..], &mut outcomes[..]);
            let bytes = Bytes::Pinned(&mut pinned, used);
            let timings = gpu
                .run(made.op, device_work(bytes, work), RunOptions::default())
                .unwrap();
            assert!(timings.packets == made.jobs.len());
            assert!(outcomes == verdicts, "verdicts");
            assert!(pinned[..used] == expected.bytes[..], "bytes");
            // Again in the same arena, over the results: only part of it is used.
            let half = made.jobs.len() / 2;
            let used = |job: &Job| (job.text + job.text_len) as usize + 16;
            let used = expected.jobs[half..].iter().map(used).max().unwrap();
            expected.jobs.drain(..half);
            expected.op = Op::Seal;
            expected.on_cpu();
            let jobs = &made.jobs[half..];
            outcomes.fill(Outcome::Pending);
            let work = (&made.keys[..], jobs, &mut outcomes[..]);
            let bytes = Bytes::Pinned(&mut pinned, used);
            gpu.run(Op::Seal, device_work(bytes, work), RunOptions::default())
                .unwrap();
            assert!(
                pinned[..used] == expected.bytes[..used],
                "bytes of the second"
            );
        }
        drop(gpu);
        assert_eq!(stand_in.held(), Held::default());
        assert_eq!(stand_in.unclean(), 0);
    }
}

#[test]
fn a_pinned_arena_of_another_device_is_ordinary_memory() {
    let (_, one) = device(1, 2, 10_000);
    let (_, other) = device(2, 2, 10_000);
    let mut random = Random::new(5);
    let made = Made::new(&mut random, &[100; 700], 10, 5);
    let mut pinned = pinned(&one, &made);
    let mut outcomes = vec![Outcome::Pending; made.jobs.len()];
    let work = (&made.keys[..], &made.jobs[..], &mut outcomes[..]);
    let bytes = Bytes::Pinned(&mut pinned, made.bytes.len());
    other
        .run(Op::Seal, device_work(bytes, work), RunOptions::default())
        .unwrap();
    let mut expected = made.clone();
    expected.on_cpu();
    assert!(pinned[..made.bytes.len()] == expected.bytes[..]);
}

#[test]
fn the_second_half_of_a_pinned_arena_can_be_wiped() {
    let (stand_in, gpu) = device(1, 2, 10_000);
    let made = Made::new(&mut Random::new(5), &[100; 700], 10, usize::MAX);
    let plaintext = [made.bytes[made.jobs[9].text as usize..][..100].to_vec()];
    let mut pinned = pinned(&gpu, &made);
    let mut outcomes = vec![Outcome::Pending; made.jobs.len()];
    let work = (&made.keys[..], &made.jobs[..], &mut outcomes[..]);
    let bytes = Bytes::Pinned(&mut pinned, made.bytes.len());
    gpu.run(Op::Seal, device_work(bytes, work), RunOptions::default())
        .unwrap();
    assert!(stand_in.pinned_has(&plaintext));
    pinned.wipe_hidden();
    assert!(!stand_in.pinned_has(&plaintext));
}

/// The CPU takes packets from the end while the device is busy.
#[test]
fn the_cpu_helps() {
    let mut helped = 0;
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let (_, gpu) = device(seed, 1 + random.below(3), 1 << (13 + random.below(4)));
        let lengths: Vec<usize> = (0..1 + random.below(3000)).map(|_| random.mail()).collect();
        let made = Made::new(&mut random, &lengths, 300, 9);
        for made in [made.clone(), made.sealed(&mut random, 6)] {
            let mut expected = made.clone();
            let verdicts = expected.on_cpu();
            for in_pinned in [false, true] {
                let mut outcomes = vec![Outcome::Pending; made.jobs.len()];
                let mut plain = made.bytes.clone();
                let mut pinned = pinned(&gpu, &made);
                let used = plain.len();
                let keys = &made.keys[..];
                let mut run = |work: Work<'_>| {
                    assert!(
                        work.outcomes
                            .iter()
                            .all(|outcome| *outcome == Outcome::Pending)
                    );
                    common::run(made.op, work);
                };
                let with = RunOptions {
                    help: Some(Help {
                        bytes: 2000,
                        run: &mut run,
                    }),
                    ..RunOptions::default()
                };
                let bytes = match in_pinned {
                    true => Bytes::Pinned(&mut pinned, used),
                    false => Bytes::Plain(&mut plain),
                };
                let work = (keys, &made.jobs[..], &mut outcomes[..]);
                let timings = gpu.run(made.op, device_work(bytes, work), with).unwrap();
                assert_eq!(timings.packets + timings.helped, made.jobs.len());
                helped += timings.helped;
                assert!(outcomes == verdicts, "verdicts");
                let bytes = if in_pinned {
                    &pinned[..used]
                } else {
                    &plain[..]
                };
                assert!(bytes == expected.bytes, "bytes");
            }
        }
    }
    assert!(helped > 1000, "{helped}");
}

#[test]
fn stages_are_timed_on_request() {
    let (stand_in, gpu) = device(1, 3, 10_000);
    let made = Made::new(&mut Random::new(5), &[100; 700], 10, usize::MAX);
    for timed in [false, true] {
        let mut bytes = made.bytes.clone();
        let mut outcomes = vec![Outcome::Pending; made.jobs.len()];
        let work = (&made.keys[..], &made.jobs[..], &mut outcomes[..]);
        let with = RunOptions {
            timed,
            ..RunOptions::default()
        };
        let timings = gpu
            .run(Op::Seal, device_work(Bytes::Plain(&mut bytes), work), with)
            .unwrap();
        assert!(timings.total > 0.0);
        let stages = [timings.to_device, timings.kernels, timings.from_device];
        assert_eq!(stages.map(|seconds| seconds > 0.0), [timed; 3]);
        assert_eq!(stand_in.held().events, if timed { 12 } else { 0 });
        assert!(timings.bytes_to_device > 700 * (116 + 16));
        assert!((700 * 117..timings.bytes_to_device).contains(&timings.bytes_from_device));
    }
}

#[test]
fn one_batch_at_a_time() {
    let (_, gpu) = device(1, 2, 10_000);
    let made = Made::new(&mut Random::new(5), &[100; 700], 10, usize::MAX);
    let keys = &made.keys[..];
    let mut busy = Vec::new();
    let mut run = |work: Work<'_>| {
        let other = || {
            let with = RunOptions {
                unless_busy: true,
                ..RunOptions::default()
            };
            let nothing = (keys, &[][..], &mut [][..]);
            gpu.run(Op::Seal, device_work(Bytes::Plain(&mut []), nothing), with)
        };
        let other = std::thread::scope(|scope| scope.spawn(other).join().unwrap());
        busy.push(other.map(drop));
        common::run(Op::Seal, work);
    };
    let with = RunOptions {
        help: Some(Help {
            bytes: 5000,
            run: &mut run,
        }),
        ..RunOptions::default()
    };
    let mut bytes = made.bytes.clone();
    let mut outcomes = vec![Outcome::Pending; made.jobs.len()];
    let work = (keys, &made.jobs[..], &mut outcomes[..]);
    gpu.run(Op::Seal, device_work(Bytes::Plain(&mut bytes), work), with)
        .unwrap();
    assert!(!busy.is_empty());
    assert!(busy.iter().all(|other| *other == Err(GpuError::Busy)));
    assert!(!gpu.is_lost());
    // A waiting caller gets its turn.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| same(&gpu, &made));
        }
    });
}

/// If a caller's help panics, nothing is left in flight.
#[test]
fn help_that_panics() {
    let (stand_in, gpu) = device(1, 2, 10_000);
    let made = Made::new(&mut Random::new(5), &[100; 700], 10, usize::MAX);
    let mut pinned = pinned(&gpu, &made);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let mut outcomes = vec![Outcome::Pending; made.jobs.len()];
        let with = RunOptions {
            help: Some(Help {
                bytes: 5000,
                run: &mut |_| panic!("the caller's own panic"),
            }),
            ..RunOptions::default()
        };
        let work = (&made.keys[..], &made.jobs[..], &mut outcomes[..]);
        let bytes = Bytes::Pinned(&mut pinned, made.bytes.len());
        gpu.run(Op::Seal, device_work(bytes, work), with)
    }));
    assert!(panicked.is_err());
    drop(pinned);
    let keys: Vec<Vec<u8>> = made.keys.iter().map(|key| key.to_vec()).collect();
    assert!(!stand_in.device_has(&keys) && !stand_in.pinned_has(&keys));
    same(&gpu, &made);
}

#[test]
fn out_of_range_jobs_panic_before_anything_is_done() {
    let (_, gpu) = device(1, 2, 10_000);
    let made = Made::new(&mut Random::new(5), &[100; 7], 3, usize::MAX);
    let last = made.bytes.len() as u32;
    let wrong: [fn(&mut Job, u32); 7] = [
        |job, last| job.text = last - 115,
        |job, _| job.text = u32::MAX,
        |job, _| job.text_len = u32::MAX,
        |job, last| (job.text, job.text_len) = (last - 15, 0),
        |job, last| (job.aad, job.aad_len) = (last, 1),
        |job, _| (job.aad, job.aad_len) = (u32::MAX, u32::MAX),
        |job, _| job.key = 3,
    ];
    for wrong in wrong {
        let mut jobs = made.jobs.clone();
        wrong(&mut jobs[6], last);
        let mut bytes = made.bytes.clone();
        let mut outcomes = vec![Outcome::Pending; 7];
        let run = || {
            gpu.seal(Work {
                bytes: &mut bytes,
                keys: &made.keys[..],
                jobs: &jobs,
                outcomes: &mut outcomes,
            })
        };
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
        assert!(bytes == made.bytes);
        assert_eq!(outcomes, [Outcome::Pending; 7]);
    }
    let mut bytes = made.bytes.clone();
    let mut outcomes = vec![Outcome::Pending; 6];
    let run = || {
        gpu.seal(Work {
            bytes: &mut bytes,
            keys: &made.keys[..],
            jobs: &made.jobs,
            outcomes: &mut outcomes,
        })
    };
    assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
    assert!(bytes == made.bytes);
    // Without AAD its offset is ignored.
    let mut jobs = made.jobs.clone();
    jobs[6].aad = u32::MAX;
    let mut outcomes = vec![Outcome::Pending; 7];
    gpu.seal(Work {
        bytes: &mut bytes,
        keys: &made.keys[..],
        jobs: &jobs,
        outcomes: &mut outcomes,
    })
    .unwrap();
}

/// Packets share a key entry if the last 8 bytes of their nonces are equal. If nonces count in
/// these bytes, each packet has its own entry. Only the entries are copied in addition, and the
/// result equals the CPU's.
#[test]
fn nonces_with_a_counter_in_their_last_bytes() {
    const ENTRY: usize = 48;
    let (stand_in, gpu) = device(1, 2, 40_000);
    let mut random = Random::new(6);
    let mut made = Made::new(&mut random, &[100; 900], 3, usize::MAX);
    let mut sent = Vec::new();
    for in_last_bytes in [false, true] {
        for (number, job) in (0_u64..).zip(&mut made.jobs) {
            job.nonce = [0; 12];
            match in_last_bytes {
                // BIP324 within an epoch, and WireGuard.
                false => job.nonce[..8].copy_from_slice(&number.to_le_bytes()),
                true => job.nonce[4..].copy_from_slice(&number.to_le_bytes()),
            }
        }
        for made in [made.clone(), made.clone().sealed(&mut random, 9)] {
            let [plain, _] = made.check_on(&gpu, false, 6);
            sent.push((plain.bytes_to_device, plain.pieces));
        }
    }
    let [shared, .., own] = &sent[..] else {
        panic!("four runs")
    };
    let packets = made.jobs.len();
    // The arena's bytes, without any between two pieces, descriptors and verdicts.
    let other = span(&made) + packets * (16 + 1) - 8 * own.1;
    assert!(
        shared.0 <= other + shared.1 * (3 * ENTRY + 6 * 256),
        "{sent:?}"
    );
    assert!(own.0 >= other + packets * ENTRY, "{sent:?}");
    assert!(
        own.0 <= other + packets * ENTRY + own.1 * 6 * 256,
        "{sent:?}"
    );
    assert_eq!(stand_in.unclean(), 0);
}

#[test]
fn memory_is_freed() {
    let (stand_in, gpu) = device(1, 3, 10_000);
    let made = Made::new(&mut Random::new(5), &[100; 700], 10, usize::MAX);
    same(&gpu, &made);
    let held = stand_in.held();
    assert_eq!((held.device, held.pinned, held.streams), (3, 3, 3));
    gpu.configure(PipelineConfig {
        streams: 2,
        piece_bytes: 10_000,
    });
    same(&gpu, &made);
    assert_eq!(stand_in.held().streams, 2);
    gpu.release();
    assert_eq!(stand_in.held(), Held::default());
    same(&gpu, &made);
    drop(gpu);
    assert_eq!(stand_in.held(), Held::default());
    assert_eq!(stand_in.unclean(), 0);
}

/// The tests of failures depend on this.
#[test]
fn finishing_on_the_cpu() {
    let mut made = Made::new(&mut Random::new(5), &[100; 70], 10, 4);
    let mut expected = made.clone();
    expected.on_cpu();
    let mut outcomes = vec![Outcome::Pending; 70];
    let keys = &made.keys[..];
    let work = Work {
        bytes: &mut made.bytes,
        keys,
        jobs: &made.jobs[..9],
        outcomes: &mut outcomes[..9],
    };
    common::run(Op::Seal, work);
    finish(Op::Seal, &mut made.bytes, keys, &made.jobs, &mut outcomes);
    assert!(made.bytes == expected.bytes);
    assert_eq!(outcomes, [Outcome::Sealed; 70]);
}
