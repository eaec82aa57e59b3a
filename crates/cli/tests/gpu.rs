//! The command where there is no GPU: one line, and the rest goes on.
#![cfg(feature = "cuda")]

use std::path::Path;
use std::process::{Command, Output};

/// Runs the command in `folder` as if there were no device.
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
fn without_a_device_there_is_one_line_and_a_status() {
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

/// The lines that are about a GPU.
fn of_gpu(said: &str) -> Vec<&str> {
    let about = |line: &&str| line.contains("CUDA") || line.contains("gpu");
    said.lines().filter(about).collect()
}

#[test]
fn the_rest_of_the_lab_goes_on() {
    let folder = folder("gpu-rest");
    let filter = ["--quick", "--filter", "primitive=hkdf"];
    let named = ["lab", "gpu.kernel", "bip324.primitives", "gpu.batch"];
    let (output, said) = packetlane(&folder, &[&named[..], &filter].concat());
    assert!(output.status.success(), "{said}");
    let none = NONE.trim_end();
    let expected = [format!("gpu.kernel: {none}"), format!("gpu.batch: {none}")];
    assert_eq!(of_gpu(&said), expected);
    // All experiments: one line for all of the GPU's.
    let (output, said) = packetlane(&folder, &[&["lab"][..], &filter].concat());
    assert!(output.status.success(), "{said}");
    assert_eq!(of_gpu(&said), [format!("gpu.*: {none}")]);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.starts_with("bip324.primitives"), "{shown}");
    assert!(!shown.contains("gpu."));
}
