//! `packetlane peers` with probes on a program that is like a node.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[path = "../../peers/tests/fake/mod.rs"]
mod fake;
#[path = "../../peers/tests/machine/mod.rs"]
mod machine;

use fake::Fake;
use machine::{is_root, not_run};
use packetlane_peers::{Event, file};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// More than the command takes to end: it ends itself after 5 seconds.
const LIMIT: Duration = Duration::from_secs(10);

/// `peers` with these arguments, for which it takes root.
fn peers(arguments: &[&str], node: &Fake) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_packetlane"));
    command.arg("peers").args(arguments);
    command.args(["--pid", &node.pid().to_string()]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A folder for a recording, which is not there yet.
fn folder(name: &str) -> PathBuf {
    let name = format!("packetlane-{name}-{}.parquet", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

/// Waits for the end of a command that was told to end.
fn finish(mut command: Child) -> std::process::Output {
    let begun = Instant::now();
    while command.try_wait().unwrap().is_none() {
        if begun.elapsed() > LIMIT {
            command.kill().unwrap();
            panic!("it has not ended");
        }
        sleep(Duration::from_millis(10));
    }
    command.wait_with_output().unwrap()
}

/// The last message of each peer is in the recording, whichever signal has ended it; and the command
/// succeeds.
#[test]
fn a_signal_loses_no_row() {
    const TEST: &str = "signals and a recording by probes";
    if !is_root() {
        return not_run(TEST, "probes need root");
    }
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let Some(mut fake) = Fake::start(TEST, &[30, 5, 10]) else {
            return;
        };
        let folder = folder("signals");
        let recording = peers(&["record", folder.to_str().unwrap(), "--all"], &fake);
        let recording = { recording }.spawn().unwrap();
        fake.go();
        // It attaches its probes, and watches a while.
        sleep(Duration::from_secs(4));
        fake.pause();
        // What the node was in the middle of.
        sleep(Duration::from_millis(500));
        kill_process(Pid::from_child(&recording), signal).unwrap();
        let signalled = Instant::now();
        let output = finish(recording);
        let took = signalled.elapsed();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{signal:?} {}: {errors}",
            output.status
        );
        let account = fake.end();

        let mut last = BTreeMap::new();
        let mut windows = 0;
        for record in file::read(&folder).unwrap().map(Result::unwrap) {
            match record.event {
                Event::Received { peer, bytes, .. } => {
                    last.insert(peer, bytes);
                }
                Event::Window { .. } => windows += 1,
                _ => {}
            }
        }
        println!(
            "{signal:?}: {} peers, {windows} windows, ended in {took:?}",
            last.len()
        );
        let mut compared = 0;
        for (peer, (_, messages)) in account {
            // Each message is a byte longer than the peer's last.
            if messages > 1
                && let Some(last) = last.get(&peer)
            {
                assert_eq!(*last, 36 + (messages - 1) % 300, "{signal:?}: peer {peer}");
                compared += 1;
            }
        }
        assert!(
            compared >= 30 && windows > 0,
            "{signal:?}: {compared} of {windows} windows"
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
