//! The interface to CUDA: runs batches through `Gpu::detect` and a replacement for the driver's
//! library (`host_cuda/libcuda.cpp`), in processes that load it first. Also checks the messages
//! if there is no device. With a real device, the batches run on it too.

mod common;

use common::{Made, Random};
use packetlane_gpu::{CopyDirection, Gpu, GpuError, Op, PipelineConfig, device_name};
use packetlane_lanes::{Outcome, Work};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Reports a skipped test past the test harness, which hides the output of passing tests.
fn not_run(what: &str) {
    let _ = writeln!(std::io::stderr(), "NOT RUN: {what}");
}

/// The folder with the library, if it can be built. Only Linux uses its name.
fn library() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        if !cfg!(all(target_os = "linux", target_pointer_width = "64")) {
            not_run("CUDA's functions: their stand-in is for Linux");
            return None;
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("host_cuda");
        std::fs::create_dir_all(&folder).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/host_cuda/build");
        let built = Command::new(script).arg(&folder).output().unwrap();
        if built.status.code() == Some(77) {
            not_run("CUDA's functions: no C++ compiler");
            return None;
        }
        let errors = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "{errors}");
        Some(folder)
    };
    FOLDER.get_or_init(build).as_deref()
}

/// Runs an ignored test of this file in its own process, which loads the library.
fn in_process(test: &str, fake: &str, setting: Option<&str>) {
    let Some(folder) = library() else { return };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env("LD_LIBRARY_PATH", folder)
        .env("FAKE_CUDA", fake)
        .env_remove("PACKETLANE_GPU");
    if let Some(setting) = setting {
        command.env("PACKETLANE_GPU", setting);
    }
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

/// Lengths of every class.
fn lengths(random: &mut Random, count: usize) -> Vec<usize> {
    let mut lengths: Vec<usize> = (0..count).map(|_| random.mail() - 1).collect();
    lengths.extend([0, 4097, 32_768, 32_769, 100_000]);
    lengths.rotate_left(random.below(count));
    lengths
}

/// Runs all kinds of batches and compares them with the CPU's results.
fn batches(gpu: &Gpu, rounds: u64, count: usize) {
    for seed in 0..rounds {
        let mut random = Random::new(seed);
        gpu.configure(PipelineConfig {
            streams: 1 + random.below(4),
            piece_bytes: 1 << (15 + random.below(9)),
        });
        let lengths = lengths(&mut random, count);
        let made = Made::new(&mut random, &lengths, 1 + count / 4, 9);
        for made in [made.clone(), made.sealed(&mut random, 6)] {
            let (expected, verdicts) = made.expected();
            for timings in made.check_on(gpu, true, seed) {
                assert!(timings.kernels > 0.0 && timings.kernels < 1000.0);
            }
            let keys = &made.keys[..];
            let mut resident = gpu
                .resident(made.op, &made.bytes, keys, &made.jobs)
                .unwrap();
            for _ in 0..2 {
                assert!(resident.run().unwrap() > 0.0);
            }
            let mut bytes = made.bytes.clone();
            let mut outcomes = vec![Outcome::Pending; made.jobs.len()];
            resident.fetch(&mut bytes, &mut outcomes).unwrap();
            assert!(
                outcomes == verdicts && bytes == expected.bytes,
                "seed {seed}"
            );
        }
    }
    let mut copies = gpu.copies(100_000).unwrap();
    for way in [
        CopyDirection::ToDevice,
        CopyDirection::FromDevice,
        CopyDirection::Both,
    ] {
        assert!(copies.time(way).unwrap() > 0.0);
    }
}

/// The same on a real device, with more batches.
#[test]
fn on_a_device() {
    match Gpu::detect() {
        Ok(gpu) => {
            batches(gpu, 30, 20_000);
            let mut random = Random::new(77);
            let lengths: Vec<usize> = (0..=1100).chain([1 << 24, 3]).collect();
            let made = Made::new(&mut random, &lengths, 5, 3);
            for made in [made.clone(), made.sealed(&mut random, 4)] {
                let mut expected = made.clone();
                let verdicts = expected.on_cpu();
                let mut bytes = made.bytes.clone();
                let mut outcomes = vec![Outcome::Pending; made.jobs.len()];
                let (keys, jobs) = (&made.keys[..], &made.jobs[..]);
                match made.op {
                    Op::Seal => gpu
                        .seal(Work {
                            bytes: &mut bytes,
                            keys,
                            jobs,
                            outcomes: &mut outcomes,
                        })
                        .unwrap(),
                    Op::Open => gpu
                        .open(Work {
                            bytes: &mut bytes,
                            keys,
                            jobs,
                            outcomes: &mut outcomes,
                        })
                        .unwrap(),
                }
                assert!(outcomes == verdicts && bytes == expected.bytes);
            }
        }
        Err(error) => not_run(&format!("batches on a device: {error}")),
    }
}

#[test]
fn batches_through_the_driver_api() {
    in_process("child_batches", "", None);
    in_process("child_batches", "devices=3", Some("2"));
}

#[test]
#[ignore = "run by the previous test, in its own process"]
fn child_batches() {
    assert_eq!(device_name().unwrap(), "a device without hardware");
    let gpu = Gpu::detect().unwrap();
    assert_eq!(gpu.name(), "a device without hardware");
    batches(gpu, 3, 300);
    let (free, total) = gpu.memory().unwrap();
    assert!(free < total);
    gpu.release();
    assert_eq!(gpu.memory().unwrap(), (1 << 30, 1 << 30));
    // Also from another thread.
    std::thread::scope(|scope| scope.spawn(|| batches(gpu, 1, 100)).join().unwrap());
}

#[test]
fn missing_parts_are_reported_in_one_line() {
    for (fake, setting, line) in [
        (
            "init=100",
            None,
            "no CUDA device: the driver finds no device",
        ),
        (
            "devices=0",
            None,
            "no CUDA device: the driver finds no device",
        ),
        (
            "init=34",
            None,
            "no CUDA device: no NVIDIA driver is installed",
        ),
        (
            "init=804",
            None,
            "no CUDA device: the NVIDIA driver does not start (cuInit: error 804); see what \
             nvidia-smi says",
        ),
        ("", Some("off"), "no CUDA device: PACKETLANE_GPU is off"),
        (
            "",
            Some("1"),
            "no CUDA device 1: the driver finds 1, numbered from 0; set PACKETLANE_GPU to one \
             of them",
        ),
        (
            "",
            Some("GTX"),
            "no CUDA device: PACKETLANE_GPU takes off or a device's number, not \"GTX\"",
        ),
        (
            "load=222",
            None,
            "the NVIDIA driver refuses the kernels (cuModuleLoadData: error 222): they need a \
             driver of CUDA 12 or newer and a device of compute capability 7.5 or higher",
        ),
    ] {
        in_process("child_says", &format!("{fake} says={line}"), setting);
    }
}

#[test]
#[ignore = "run by the previous test, in its own process"]
fn child_says() {
    let fake = std::env::var("FAKE_CUDA").unwrap();
    let (_, line) = fake.split_once("says=").unwrap();
    assert_eq!(Gpu::detect().unwrap_err().to_string(), line);
}

#[test]
fn a_full_or_lost_device_is_recognised_by_its_status() {
    in_process("child_fails", "memory=100000", None);
    in_process("child_fails", "lose=3", None);
}

#[test]
#[ignore = "run by the previous test, in its own process"]
fn child_fails() {
    let gpu = Gpu::detect().unwrap();
    let full = std::env::var("FAKE_CUDA").unwrap().starts_with("memory");
    let made = Made::new(&mut Random::new(3), &[600; 400], 9, 9);
    gpu.configure(PipelineConfig {
        streams: 2,
        piece_bytes: 50_000,
    });
    let mut expected = made.clone();
    let verdicts = expected.on_cpu();
    for _ in 0..2 {
        let mut bytes = made.bytes.clone();
        let mut outcomes = vec![Outcome::Pending; made.jobs.len()];
        let error = gpu
            .seal(Work {
                bytes: &mut bytes,
                keys: &made.keys[..],
                jobs: &made.jobs,
                outcomes: &mut outcomes,
            })
            .unwrap_err();
        let expected_error = match full {
            true => GpuError::OutOfMemory { bytes: 1 << 20 },
            false => GpuError::Lost {
                call: "cuLaunchKernel",
                code: 719,
            },
        };
        assert_eq!(error, expected_error);
        assert_eq!(gpu.is_lost(), !full);
        common::finish(
            Op::Seal,
            &mut bytes,
            &made.keys[..],
            &made.jobs,
            &mut outcomes,
        );
        assert!(bytes == expected.bytes && outcomes == verdicts);
    }
}
