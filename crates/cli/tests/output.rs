//! Standard output that fails: on a full disk every command prints one line and fails; a closed
//! pipe is no error.
#![cfg(target_os = "linux")]

mod common;

use common::free_address::free_address;
#[cfg(feature = "gateway")]
use common::gateway::{get, until};
#[cfg(feature = "peers")]
use common::rpc::rpc;
use common::{Running, TempDir, listen_on, packetlane};
use std::fs::File;
use std::path::Path;
use std::process::{Command, Output, Stdio};
#[cfg(feature = "gateway")]
use std::time::Duration;

const FULL: &str = "error: cannot write to standard output: No space left on device (os error 28)";

/// Runs `command` three times: with its output read, on a full disk, and with a closed pipe. It
/// must fail only on the full disk.
#[track_caller]
fn try_outputs(what: &str, mut command: impl FnMut() -> Command) {
    let mut run = |stdout: Stdio| -> (Output, Vec<String>) {
        let output = command().stdin(Stdio::null()).stdout(stdout).output();
        let output = output.unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        let errors = errors.lines().filter(|line| line.starts_with("error"));
        let errors = errors.map(str::to_owned).collect();
        (output, errors)
    };
    let (read, _) = run(Stdio::piped());
    assert!(read.status.success(), "{what}: {read:?}");
    assert!(!read.stdout.is_empty(), "{what} prints nothing");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let (full, errors) = run(full.into());
    assert_eq!(errors, [FULL], "{what}: {full:?}");
    assert_eq!(full.status.code(), Some(1), "{what}: {full:?}");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let (closed, errors) = run(writer.into());
    assert!(errors.is_empty(), "{what}: {closed:?}");
    assert!(closed.status.success(), "{what}: {closed:?}");
}

fn command(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_packetlane"));
    command.args(arguments.split(' '));
    // The repository, for the files that are named below.
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    command
}

#[test]
fn of_commands_that_need_no_other() {
    let dir = TempDir::new("output");
    let reports = format!("--json {0}/a.json --html {0}/a.html", dir.0.display());
    let lab = format!("lab --quick {reports} sha256d.d64 --filter batch=1024");
    let hash = "0000000000000000001602407ac49862a7bca9d00f7f402db20b7be2f5de59d2";
    let blocks = format!("blocks vectors/blocks/{hash}.blk");
    let zen = "docs/bench/reports/zen-4-vm.json";
    for arguments in [
        "--help",
        "--version",
        "help",
        "help lab",
        "connect --help",
        "completions bash",
        "completions zsh",
        &format!("lab compare {zen} {zen}"),
        &format!("lab headlines {zen}"),
        &lab,
        &blocks,
        &format!("{blocks} --json"),
        #[cfg(feature = "gateway")]
        "gateway --help",
        #[cfg(feature = "peers")]
        "peers plan",
        #[cfg(feature = "peers")]
        "peers plan --json",
        #[cfg(feature = "peers")]
        "peers report crates/lab/data/btcd-regtest",
    ] {
        try_outputs(arguments, || command(arguments));
    }
    // Without a subcommand the help goes to standard error, and the status reports that.
    let none = command("peers").output().unwrap();
    assert_eq!(none.status.code(), Some(2));
    assert!(none.stdout.is_empty() && !none.stderr.is_empty());
}

#[test]
fn of_a_connection() {
    for transport in ["", " --v1"] {
        let (_listening, address) = listen_on("127.0.0.1:0", transport);
        for more in ["", " --json"] {
            let arguments = format!("connect {address} --network regtest{more}");
            try_outputs(&arguments, || command(&arguments));
        }
    }
    // Both of its reports are lost, and its peer notices nothing.
    let address = free_address();
    let arguments = format!("listen {address} --network regtest --once");
    try_outputs(&arguments, || {
        std::thread::spawn(move || {
            for _ in 0..100 {
                std::thread::sleep(std::time::Duration::from_millis(100));
                let connected = packetlane(&format!("connect {address} --network regtest"));
                if connected.finish().success {
                    return;
                }
            }
        });
        command(&arguments)
    });
}

#[cfg(feature = "gateway")]
#[test]
fn of_a_gateways_peers() {
    let http = free_address();
    let _running = packetlane(&format!("gateway --socks 127.0.0.1:0 --http {http}"));
    until(Duration::from_secs(30), "the gateway serves", || {
        get(http, "/healthz").is_ok()
    });
    for more in ["", " --json"] {
        let arguments = format!("gateway peers {http}{more}");
        try_outputs(&arguments, || command(&arguments));
    }
}

#[cfg(feature = "peers")]
#[test]
fn of_a_node_that_is_watched() {
    let dir = TempDir::new("output-record");
    let record = format!("record {}/r.parquet", dir.0.display());
    for what in ["watch", &record] {
        try_outputs(what, || {
            let _ = std::fs::remove_dir_all(dir.0.join("r.parquet"));
            let _ = std::fs::remove_file(dir.0.join("r.parquet"));
            let rpc = rpc(100);
            let mut command = command(&format!(
                "peers {what} --for 0.5 --rpc {rpc} --rpc-user u --every 0.2"
            ));
            command.env("PACKETLANE_RPC_PASSWORD", "secret");
            command
        });
    }
}

/// Without a reader, the command must not run forever.
#[cfg(feature = "peers")]
#[test]
fn a_watch_ends_with_its_reader() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = command(&format!(
        "peers watch --rpc {} --rpc-user u --every 0.2",
        rpc(10_000)
    ));
    command.env("PACKETLANE_RPC_PASSWORD", "secret");
    let mut child = command.stdout(writer).spawn().unwrap();
    for _ in 0..600 {
        std::thread::sleep(std::time::Duration::from_millis(50));
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success());
            return;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    panic!("it still watches");
}

#[cfg(feature = "peers")]
#[test]
fn of_a_load() {
    // On regtest, the load makes blocks, which a listener does not accept.
    let mut listening = packetlane("listen 127.0.0.1:0 --network signet");
    let line = listening.line();
    let address = line.split(' ').nth(2).expect("an address");
    let arguments = format!("traffic {address} --network signet --v1 1 --for 1 --kinds silent=1");
    try_outputs(&arguments, || command(&arguments));
}

/// A limit on file sizes acts like a full disk.
#[test]
fn man_pages_that_cannot_be_written() {
    let dir = TempDir::new("output-man");
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" man \"$1\"";
    let mut command = Command::new("bash");
    command.args(["-c", script, env!("CARGO_BIN_EXE_packetlane")]);
    let finished = Running::start(command.arg(&dir.0)).finish();
    assert!(
        finished.error_line().starts_with("error: cannot write "),
        "{finished:#?}"
    );
}
