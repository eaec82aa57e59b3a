//! Without a GPU, the commands that need one print one line, and everything else works.
#![cfg(all(feature = "cuda", unix))]

use packetlane_lab::report::Report;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

/// Runs the command in `folder` without a device.
fn packetlane(folder: &Path, args: &[&str]) -> (Output, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_packetlane"))
        .args(args)
        .current_dir(folder)
        .env("PACKETLANE_GPU", "off")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    (output, said)
}

const NONE: &str = "no CUDA device: PACKETLANE_GPU is off\n";

fn folder(name: &str) -> std::path::PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn without_a_device_the_command_fails_with_one_line() {
    let folder = folder("gpu-none");
    for args in [
        &["gpu", "check", "--packets", "10"][..],
        &["lab", "gpu.kernel"],
        &["lab", "gpu.latency", "gpu.batch", "--quick"],
    ] {
        let (output, said) = packetlane(&folder, args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert_eq!(said, format!("error: {NONE}"), "{args:?}");
        assert!(output.stdout.is_empty());
    }
}

/// The lines about a GPU.
fn of_gpu(said: &str) -> Vec<&str> {
    let about = |line: &&str| line.contains("CUDA") || line.contains("gpu");
    said.lines().filter(about).collect()
}

#[test]
fn other_experiments_run_without_a_device() {
    let folder = folder("gpu-rest");
    let filter = ["--quick", "--filter", "primitive=hkdf"];
    let named = ["lab", "gpu.kernel", "bip324.primitives", "gpu.batch"];
    let (output, said) = packetlane(&folder, &[&named[..], &filter].concat());
    assert!(output.status.success(), "{said}");
    let none = NONE.trim_end();
    let expected = [format!("gpu.kernel: {none}"), format!("gpu.batch: {none}")];
    assert_eq!(of_gpu(&said), expected);
    // All experiments: one line for all that need a GPU.
    let (output, said) = packetlane(&folder, &[&["lab"][..], &filter].concat());
    assert!(output.status.success(), "{said}");
    assert_eq!(of_gpu(&said), [format!("gpu.*: {none}")]);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.starts_with("bip324.primitives"), "{shown}");
    assert!(!shown.contains("gpu."));
}

/// Runs `tools/gpu-report` as installed on another machine: next to the command, in its own folder.
fn gpu_report(folder: &Path, args: &[&str], environment: &[(&str, &Path)]) -> Output {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools");
    // Links, not copies: a file that another test's new process still has open for writing cannot
    // be executed.
    for (from, name) in [
        (tools.join("gpu-report"), "gpu-report"),
        (env!("CARGO_BIN_EXE_packetlane").into(), "packetlane"),
    ] {
        let _ = std::fs::remove_file(folder.join(name));
        std::os::unix::fs::symlink(from, folder.join(name)).unwrap();
    }
    Command::new(folder.join("gpu-report"))
        .arg(folder.join("out"))
        .args(args)
        .env("PACKETS", "500")
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

#[test]
fn the_report_fails_with_one_line_without_a_device() {
    let folder = folder("gpu-report-none");
    let output = gpu_report(&folder, &[], &[("PACKETLANE_GPU", Path::new("off"))]);
    assert_eq!(output.status.code(), Some(77));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), NONE);
}

#[test]
fn the_report_checks_and_then_measures() {
    let folder = folder("gpu-report-some");
    // A replacement for the driver's library, from the tests of the crate `gpu`.
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpu/tests/host_cuda/build");
    let built = Command::new(script).arg(&folder).output().unwrap();
    if built.status.code() == Some(77) {
        let _ = writeln!(
            std::io::stderr(),
            "NOT RUN: a whole report: no C++ compiler"
        );
        return;
    }
    assert!(built.status.success(), "{built:?}");
    let small = ["--quick", "--filter", "batch=64"];
    let found = [("LD_LIBRARY_PATH", folder.as_path())];
    let output = gpu_report(&folder, &small, &found);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}{output:?}");
    let (checked, measured) = shown.split_once("== measuring").unwrap();
    assert!(
        checked.contains("identical results for 500 random packets"),
        "{shown}"
    );
    assert!(checked.contains("== compute-sanitizer, racecheck"));
    assert!(
        measured.contains("gpu.latency") && measured.contains("gpu.batch"),
        "{shown}"
    );
    let json = std::fs::read_to_string(folder.join("out/report.json")).unwrap();
    let report = Report::from_json(&json).unwrap();
    assert_eq!(
        report.machine.gpu.as_deref(),
        Some("a device without hardware")
    );
    let page = std::fs::read_to_string(folder.join("out/report.html")).unwrap();
    assert!(page.contains("gpu.latency"));
}
