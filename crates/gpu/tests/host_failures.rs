//! A device that fails during a batch, at every call: results that came back are complete, the rest
//! is unchanged, and the CPU can finish it. No secret is left behind, and no resource is leaked.

mod common;

use common::{Made, Random, device, device_work, finish};
use packetlane_gpu::{Bytes, CopyDirection, Gpu, GpuError, Help, Op, RunOptions};
use packetlane_lanes::{Outcome, TAG_LEN, Work};
use packetlane_ptx_emulator::{Call, Held, StandIn};

const LOST: GpuError = GpuError::Lost {
    call: "a call",
    code: 719,
};

/// How to run a batch.
#[derive(Clone, Copy, Debug)]
struct How {
    pinned: bool,
    helped: bool,
    timed: bool,
}

/// All combinations of options. Help and events are independent.
fn run_options() -> impl Iterator<Item = How> {
    (0..4).map(|bits| How {
        pinned: bits & 1 != 0,
        helped: bits & 2 != 0,
        timed: bits & 2 != 0,
    })
}

/// Texts and keys of a batch, to search for.
fn secrets(made: &Made) -> Vec<Vec<u8>> {
    let mut secrets: Vec<Vec<u8>> = made.keys.iter().map(|key| key[..16].to_vec()).collect();
    for job in made.jobs.iter().filter(|job| job.text_len >= 16).step_by(7) {
        let text = &made.bytes[job.text as usize..][..16];
        secrets.push(text.to_vec());
    }
    secrets
}

/// What remains after an error during a batch.
struct Left {
    result: Result<(), GpuError>,
    bytes: Vec<u8>,
    outcomes: Vec<Outcome>,
}

fn run(gpu: &Gpu, made: &Made, how: How) -> Left {
    let mut outcomes = vec![Outcome::Pending; made.jobs.len()];
    let mut plain = made.bytes.clone();
    let used = plain.len();
    let secrets = &made.keys[..];
    let mut help = |work: Work<'_>| common::run(made.op, work);
    let with = RunOptions {
        help: how.helped.then_some(Help {
            bytes: 3000,
            run: &mut help,
        }),
        timed: how.timed,
        ..RunOptions::default()
    };
    let work = (secrets, &made.jobs[..], &mut outcomes[..]);
    let pinned = if how.pinned {
        Some(gpu.pinned(used))
    } else {
        None
    };
    let result = match pinned {
        Some(Ok(mut pinned)) => {
            pinned.copy_from_slice(&made.bytes);
            let result = gpu.run(
                made.op,
                device_work(Bytes::Pinned(&mut pinned, used), work),
                with,
            );
            plain.copy_from_slice(&pinned);
            result.map(drop)
        }
        Some(Err(error)) => Err(error),
        None => gpu
            .run(made.op, device_work(Bytes::Plain(&mut plain), work), with)
            .map(drop),
    };
    Left {
        result,
        bytes: plain,
        outcomes,
    }
}

/// Every packet is either done as by the CPU, or unchanged.
fn check_whole(left: &Left, made: &Made, expected: &Made, verdicts: &[Outcome]) {
    for ((job, outcome), verdict) in made.jobs.iter().zip(&left.outcomes).zip(verdicts) {
        let range = job.text as usize..(job.text + job.text_len) as usize + TAG_LEN;
        let bytes = match outcome {
            Outcome::Pending => &made.bytes,
            _ => {
                assert_eq!(outcome, verdict);
                &expected.bytes
            }
        };
        assert!(left.bytes[range.clone()] == bytes[range], "{outcome:?}");
    }
}

#[test]
fn any_failure_leaves_a_consistent_batch() {
    let mut failed = 0;
    let mut in_part = 0;
    for how in run_options() {
        let mut random = Random::new(3);
        let mut lengths: Vec<usize> = (0..400).map(|_| random.mail()).collect();
        lengths.push(40_000);
        lengths.extend((0..400).map(|_| random.mail()));
        let made = Made::new(&mut random, &lengths, 90, 9);
        let opening = made.clone().sealed(&mut random, 9);
        for made in [made, opening] {
            let mut expected = made.clone();
            let verdicts = expected.on_cpu();
            let secrets = secrets(match made.op {
                Op::Seal => &made,
                Op::Open => &expected,
            });
            for call in Call::ALL {
                let setup = || {
                    let (stand_in, gpu) = device(7, 3, 60_000);
                    // Memory of another size, so that some is freed.
                    let mut small = made.clone();
                    small.jobs.truncate(9);
                    run(
                        &gpu,
                        &small,
                        How {
                            timed: false,
                            ..how
                        },
                    );
                    (stand_in, gpu)
                };
                let (stand_in, gpu) = setup();
                let before = stand_in.count(call);
                let left = run(&gpu, &made, how);
                assert_eq!(left.result, Ok(()));
                assert!(left.bytes == expected.bytes && left.outcomes == verdicts);
                let count = stand_in.count(call) - before;
                // Each of the first calls, and some of the many queries whether a stream is
                // done.
                for at in (0..count).filter(|at| *at < 20 || at % 16 == 0) {
                    for error in [LOST, GpuError::OutOfMemory { bytes: 1 }] {
                        let (stand_in, gpu) = setup();
                        stand_in.fail(call, at, error.clone());
                        let mut left = run(&gpu, &made, how);
                        let is_lost = error == LOST;
                        assert_eq!(left.result, Err(error.clone()), "{call:?} {at} {how:?}");
                        assert_eq!(gpu.last_error(), Some(error));
                        assert_eq!(gpu.is_lost(), is_lost);
                        check_whole(&left, &made, &expected, &verdicts);
                        let done = left.outcomes.iter().filter(|&&o| o != Outcome::Pending);
                        in_part += usize::from(done.count() > 0);
                        failed += 1;

                        finish(
                            made.op,
                            &mut left.bytes,
                            &made.keys[..],
                            &made.jobs,
                            &mut left.outcomes,
                        );
                        assert!(left.bytes == expected.bytes, "{call:?} {at} {how:?}");
                        assert!(left.outcomes == verdicts);

                        // (A pinned arena belongs to the caller, and is gone.)
                        assert!(!stand_in.pinned_has(&secrets), "{call:?} {at} {how:?}");
                        assert!(is_lost || !stand_in.device_has(&secrets));
                        // A lost device gets no more calls; one that was out of memory does.
                        let counts = Call::ALL.map(|call| stand_in.count(call));
                        let again = run(
                            &gpu,
                            &made,
                            How {
                                pinned: false,
                                ..how
                            },
                        );
                        if is_lost {
                            assert_eq!(again.result, Err(LOST));
                            assert!(again.bytes == made.bytes);
                            assert_eq!(Call::ALL.map(|call| stand_in.count(call)), counts);
                        } else {
                            assert_eq!(again.result, Ok(()));
                            assert!(again.bytes == expected.bytes && again.outcomes == verdicts);
                        }
                        drop(gpu);
                        assert_eq!(stand_in.held(), Held::default());
                        assert_eq!(stand_in.unclean(), 0);
                    }
                }
            }
        }
    }
    assert!(failed > 500 && in_part > 200, "{failed} {in_part}");
}

#[test]
fn no_secret_is_left_behind() {
    for how in run_options() {
        let mut random = Random::new(8);
        let mut lengths: Vec<usize> = (0..300).map(|_| random.mail()).collect();
        lengths.push(100_000);
        let made = Made::new(&mut random, &lengths, 40, 9);
        let plaintext = secrets(&made);
        for made in [made.clone(), made.sealed(&mut random, usize::MAX)] {
            let (stand_in, gpu) = device(7, 3, 30_000);
            let left = run(&gpu, &made, how);
            assert_eq!(left.result, Ok(()));
            assert!(!stand_in.device_has(&plaintext));
            assert!(!stand_in.pinned_has(&plaintext));
            drop(gpu);
            assert_eq!(stand_in.held(), Held::default());
            assert_eq!(stand_in.unclean(), 0);
        }
    }
    // Checks that the search finds planted secrets.
    let (stand_in, gpu) = device(7, 3, 30_000);
    let mut pinned = gpu.pinned(100).unwrap();
    pinned[30..46].copy_from_slice(b"looked for here!");
    assert!(stand_in.pinned_has(&[b"looked for here!".to_vec()]));
}

/// Batches that stay on the device.
#[test]
fn residents_are_wiped_and_fail_cleanly() {
    let mut random = Random::new(9);
    let mut lengths: Vec<usize> = (0..300).map(|_| random.mail()).collect();
    lengths.push(100_000);
    let made = Made::new(&mut random, &lengths, 40, 9);
    let plaintext = secrets(&made);
    for made in [made.clone(), made.sealed(&mut random, 5)] {
        let mut expected = made.clone();
        let verdicts = expected.on_cpu();
        let run = |gpu: &Gpu| {
            let secrets = &made.keys[..];
            let mut resident = gpu.resident(made.op, &made.bytes, secrets, &made.jobs)?;
            assert_eq!(resident.packets(), made.jobs.len());
            let mut bytes = made.bytes.clone();
            let mut outcomes = vec![Outcome::Pending; made.jobs.len()];
            for _ in 0..3 {
                assert!(resident.run()? > 0.0);
            }
            resident.fetch(&mut bytes, &mut outcomes)?;
            assert!(bytes == expected.bytes && outcomes == verdicts);
            Ok(())
        };
        let (counted, gpu) = device(1, 1, 1);
        assert_eq!(run(&gpu), Ok(()));
        assert!(!counted.device_has(&plaintext) && !counted.pinned_has(&plaintext));
        assert_eq!(counted.held(), Held::default());
        assert_eq!(counted.unclean(), 0);
        for call in Call::ALL {
            // An error of the last wipe is not reported.
            let count = counted.count(call) - usize::from(call == Call::Wait);
            let count = if call == Call::Zero { 0 } else { count };
            for at in 0..count {
                let (stand_in, gpu) = device(1, 1, 1);
                stand_in.fail(call, at, LOST);
                let result = run(&gpu);
                if result == Ok(()) {
                    // Not reported, because it was in the wipe at the end.
                    assert_eq!(call, Call::Wait);
                    continue;
                }
                assert_eq!(result, Err(LOST), "{call:?} {at}");
                assert!(gpu.is_lost());
                assert!(!stand_in.pinned_has(&plaintext));
                assert_eq!(stand_in.held(), Held::default());
            }
        }
    }
}

#[test]
fn copies_fail_cleanly() {
    let run = |gpu: &Gpu| {
        let mut copies = gpu.copies(5000)?;
        for way in [
            CopyDirection::ToDevice,
            CopyDirection::FromDevice,
            CopyDirection::Both,
        ] {
            assert!(copies.time(way)? > 0.0);
        }
        Ok(())
    };
    let (counted, gpu) = device(1, 1, 1);
    assert_eq!(run(&gpu), Ok(()));
    assert_eq!(
        (counted.count(Call::CopyIn), counted.count(Call::CopyOut)),
        (2, 2)
    );
    for call in Call::ALL {
        for at in 0..counted.count(call) {
            let (stand_in, gpu) = device(1, 1, 1);
            stand_in.fail(call, at, LOST);
            assert_eq!(run(&gpu), Err(LOST), "{call:?} {at}");
            assert_eq!(stand_in.held(), Held::default());
        }
    }
}

/// Kernels that do nothing leave no verdict, and their bytes are not returned.
#[test]
fn a_packet_without_a_verdict_is_an_error() {
    let mut random = Random::new(3);
    let made = Made::new(&mut random, &[61; 200], 9, 9);
    for made in [made.clone(), made.sealed(&mut random, 9)] {
        let (stand_in, gpu) = device(7, 3, 5_000);
        stand_in.idle();
        let how = How {
            pinned: false,
            helped: false,
            timed: false,
        };
        for how in [
            how,
            How {
                pinned: true,
                ..how
            },
        ] {
            let left = run(&gpu, &made, how);
            assert_eq!(left.result, Err(GpuError::Undone));
            assert!(left.bytes == made.bytes);
            assert!(
                left.outcomes
                    .iter()
                    .all(|outcome| *outcome == Outcome::Pending)
            );
        }
        assert!(gpu.is_lost());
    }
}

#[test]
fn errors_are_one_line() {
    let errors = [
        GpuError::NoDriver,
        GpuError::NoDevice,
        GpuError::DriverFailed {
            call: "cuInit",
            code: 804,
        },
        GpuError::Off,
        GpuError::BadSetting("x".to_owned()),
        GpuError::NoSuchDevice { index: 3, count: 2 },
    ];
    for error in &errors {
        let text = error.to_string();
        assert!(
            text.starts_with("no CUDA device") && !text.contains('\n'),
            "{text}"
        );
    }
    for error in [
        LOST,
        GpuError::Undone,
        GpuError::Busy,
        GpuError::OutOfMemory { bytes: 9 },
    ] {
        assert!(!error.to_string().contains('\n'));
    }
    assert!(errors.iter().all(GpuError::is_final));
    assert!(!GpuError::Busy.is_final());
}

/// The crossover can be set; otherwise it is measured.
#[test]
fn the_crossover_is_measured_once() {
    let stand_in = StandIn::new(1);
    let gpu = Gpu::on(stand_in.clone());
    let backend = common::cpu();
    gpu.set_crossover(backend, 12_345);
    assert_eq!(gpu.crossover(backend), 12_345);
    assert_eq!(stand_in.count(Call::Launch), 0);
    // This device is slower than the CPU that emulates it.
    let gpu = Gpu::on(stand_in.clone());
    let bytes = gpu.crossover(backend);
    assert!(bytes == usize::MAX || bytes.is_power_of_two() && bytes >= 16 << 10);
    let launches = stand_in.count(Call::Launch);
    assert!(launches > 0);
    assert_eq!(gpu.crossover(backend), bytes);
    assert_eq!(stand_in.count(Call::Launch), launches);
    // A device that fails is never faster.
    let gpu = Gpu::on(stand_in.clone());
    stand_in.fail(Call::Launch, 5, LOST);
    assert_eq!(gpu.crossover(backend), usize::MAX);
    assert!(gpu.is_lost());
}
