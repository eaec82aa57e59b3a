//! `packetlane peers` with probes on a program that imitates a node.
#![cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

#[path = "../../peers/tests/fake/mod.rs"]
mod fake;
#[path = "../../peers/tests/machine/mod.rs"]
mod machine;

use fake::Fake;
use machine::{is_root, not_run};
use packetlane_peers::tally::Tally;
use packetlane_peers::{Event, file};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longer than the command takes to end: it kills itself after 5 seconds.
const LIMIT: Duration = Duration::from_secs(10);

/// Runs `peers` with these arguments, which needs root.
fn peers(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_packetlane"));
    command.arg("peers").args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A folder for a recording, which does not exist yet.
fn folder(name: &str) -> PathBuf {
    let name = format!("packetlane-{name}-{}.parquet", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

/// Waits for a command that was told to end.
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

/// Whichever signal ends the command, the last message of each peer is in the recording, and the
/// command succeeds.
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
        let pid = fake.pid().to_string();
        let recording = peers(&["record", folder.to_str().unwrap(), "--all", "--pid", &pid]);
        let mut recording = { recording }.spawn().unwrap();
        let mut errors = BufReader::new(recording.stderr.take().unwrap());
        let mut said = String::new();
        errors.read_line(&mut said).unwrap();
        assert!(said.starts_with("probes: "), "{said}");
        fake.go();
        sleep(Duration::from_secs(3));
        fake.pause();
        // The node may be in the middle of a message.
        sleep(Duration::from_millis(500));
        kill_process(Pid::from_child(&recording), signal).unwrap();
        let signalled = Instant::now();
        let output = finish(recording);
        let took = signalled.elapsed();
        said.clear();
        errors.read_to_string(&mut said).unwrap();
        assert!(
            output.status.success() && said.is_empty(),
            "{signal:?}: {said}"
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
            // Each message is one byte longer than the peer's previous one.
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

/// When the node ends, the command reports it, whether or not probes are attached at that moment.
#[test]
fn the_end_of_a_node_is_always_reported_alike() {
    const TEST: &str = "the end of a watched node";
    if !is_root() {
        return not_run(TEST, "probes need root");
    }
    for options in [&["--all"][..], &["--window", "0.3", "--every", "1.5"], &[]] {
        let Some(mut fake) = Fake::start(TEST, &[3, 5, 10]) else {
            return;
        };
        let pid = fake.pid().to_string();
        let watching = [&["watch", "--pid", &pid], options].concat();
        let watching = peers(&watching).spawn().unwrap();
        fake.go();
        sleep(Duration::from_secs(4));
        fake.end();
        let output = watching.wait_with_output().unwrap();
        assert!(!output.status.success());
        let errors = String::from_utf8_lossy(&output.stderr);
        let expected = format!("error: the node, process {pid}, has ended");
        assert_eq!(errors.lines().last(), Some(&*expected), "{options:?}");
    }
}

/// With `--wait` the command waits for a node, and again when it has ended. The peers of the first
/// node have then left, and are not peers of the second.
#[test]
fn it_waits_for_a_node_to_come_back() {
    const TEST: &str = "a node that restarts";
    if !is_root() {
        return not_run(TEST, "probes need root");
    }
    let folder = folder("wait");
    let recording = peers(&["record", folder.to_str().unwrap(), "--wait", "--every", "1"]);
    let mut recording = { recording }.spawn().unwrap();
    let mut errors = BufReader::new(recording.stderr.take().unwrap()).lines();
    // Other nodes that may run on this machine.
    let mut next = || errors.next().unwrap().unwrap();
    let first = next();
    if first.starts_with("the node is ") || first.contains("several nodes") {
        recording.kill().unwrap();
        recording.wait().unwrap();
        return not_run(TEST, "another node runs here");
    }
    assert!(first.starts_with("no node is running"), "{first}");
    assert!(first.ends_with("waiting for it"), "{first}");
    for peers in [5, 2] {
        let Some(mut fake) = Fake::start_as(TEST, "bitcoind", &[peers, 5, 10]) else {
            recording.kill().unwrap();
            recording.wait().unwrap();
            return;
        };
        let pid = fake.pid();
        let said = next();
        assert!(
            said.starts_with(&format!("the node is process {pid}")),
            "{said}"
        );
        fake.go();
        sleep(Duration::from_secs(4));
        fake.end();
        let said = next();
        assert!(
            said.contains(&format!("process {pid}, has ended; waiting for it")),
            "{said}"
        );
        let said = next();
        assert!(said.starts_with("no node is running"), "{said}");
    }
    kill_process(Pid::from_child(&recording), Signal::TERM).unwrap();
    assert!(finish(recording).status.success());
    let mut tally = Tally::new();
    file::read(&folder)
        .unwrap()
        .tally(&mut tally, |damage| panic!("{damage}"));
    let connected = tally.peers().filter(|(_, peer)| peer.gone().is_none());
    assert_eq!(connected.count(), 0);
    let connections: u64 = tally
        .slots()
        .values()
        .map(|cost| cost.connections + cost.short)
        .sum();
    // Those of both, and some that came and went.
    assert!((7..30).contains(&connections), "{connections}");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A folder that already exists is rejected before a probe is attached, and none is left behind
/// when attaching fails.
#[test]
fn the_folder_of_a_recording_comes_first() {
    let folder = folder("first");
    let name = folder.to_str().unwrap();
    let none = peers(&["record", name, "--pid", "4000000000"])
        .output()
        .unwrap();
    assert!(!none.status.success() && !folder.exists());
    std::fs::create_dir(&folder).unwrap();
    let output = peers(&["record", name, "--pid", "4000000000"])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains(name) && errors.lines().count() == 1,
        "{errors}"
    );
    std::fs::remove_dir(&folder).unwrap();
}
