//! What `peers watch` says about costly and stalling peers of a real node, and what `--act` does.
#![cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

#[path = "../../peers/tests/core/mod.rs"]
mod core;
#[path = "../../peers/tests/machine/mod.rs"]
mod machine;

use core::{Build, Core};
use machine::{is_root, not_run};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// A load that ends with the test.
struct Load(Child);

impl Load {
    fn start(node: &Core, arguments: &[&str]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_packetlane"))
            .arg("traffic")
            .arg(node.listening.to_string())
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.expect("a load"))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `peers watch --json` with probes and the RPC.
fn watch(node: &Core, seconds: u32, arguments: &[&str]) -> (Vec<Value>, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(env!("CARGO_BIN_EXE_packetlane"))
        .env("PACKETLANE_RPC_PASSWORD", "p")
        .args([
            "peers", "watch", "--json", "--probes", "--all", "--every", "1",
        ])
        .args(["--rpc", &node.rpc.to_string(), "--rpc-user", "u"])
        .args(["--for", &seconds.to_string()])
        .args(arguments)
        .output()
        .expect("the command");
    let errors = String::from_utf8_lossy(&stderr).into_owned();
    assert!(status.success(), "{errors}");
    let lines = String::from_utf8(stdout).expect("UTF-8");
    let parse = |line: &str| serde_json::from_str(line).expect("JSON");
    (lines.lines().map(parse).collect(), errors)
}

fn ids(peers: &Value, of: &str) -> BTreeSet<i64> {
    let peers = peers.as_array().expect("peers").iter();
    peers
        .map(|peer| peer[of].as_i64().expect("an id"))
        .collect()
}

/// Waits until the node has had the same peers for a second, so many, and returns their ids. A load
/// begins with a connection that it closes.
fn peers_of(node: &Core, count: usize) -> BTreeSet<i64> {
    let mut before = BTreeSet::new();
    for _ in 0..60 {
        std::thread::sleep(Duration::from_secs(1));
        let now = ids(&node.call("getpeerinfo"), "id");
        if now.len() == count && now == before {
            return now;
        }
        before = now;
    }
    panic!("the node does not have {count} peers");
}

const QUIET: &[&str] = &[
    "--v1",
    "4",
    "--v2",
    "4",
    "--kinds",
    "block-relay-only=1",
    "--factor",
    "2",
];

#[test]
fn a_costly_peer_is_named_and_disconnected_and_no_other() {
    const TEST: &str = "a costly peer of a real node";
    if !is_root() {
        return not_run(TEST, "probes need root");
    }
    let Some(node) = Core::start(TEST, Build::Plain) else {
        return;
    };
    let _quiet = Load::start(&node, &[QUIET, &["--for", "300"]].concat());
    let usual = peers_of(&node, 8);
    let (windows, _) = watch(&node, 12, &["--act", "cost=2000,minutes=0.1"]);
    for window in &windows {
        assert_eq!(window["hints"], json!([]), "quiet: {window}");
    }

    let load = [
        "--v1",
        "1",
        "--kinds",
        "full-relay=1",
        "--seed",
        "9",
        "--for",
        "300",
    ];
    let costly = [
        "--factor",
        "1500",
        "--transactions",
        "40",
        "--block-every",
        "1000",
    ];
    let _costly = Load::start(&node, &[&load[..], &costly].concat());
    let all = peers_of(&node, 9);
    let costly = *all.difference(&usual).next().expect("another peer");
    // A dry run changes nothing.
    let rules = ["--act", "cost=4000,minutes=0.1"];
    let (windows, said) = watch(&node, 12, &rules);
    let last = windows.last().expect("a window");
    let cost = |peer: &Value| {
        peer["receiving_ms_per_second"].as_f64().unwrap()
            + peer["sending_ms_per_second"].as_f64().unwrap()
    };
    let peers = last["peers"].as_array().expect("peers");
    let costs = peers
        .iter()
        .map(|peer| (peer["peer"].as_i64().unwrap(), cost(peer)));
    let costs: BTreeMap<i64, f64> = costs.collect();
    println!("ms/s: {costs:?}");
    let mut others: Vec<f64> = usual.iter().map(|peer| costs[peer]).collect();
    others.sort_by(f64::total_cmp);
    let times = costs[&costly] / others[others.len() / 2];
    println!("{times:.1} times the median of the others");
    assert!(times > 20.0, "the load is too low for this test");
    let hints = last["hints"].as_array().expect("hints");
    assert_eq!(hints.len(), 1, "{hints:?}");
    println!("{}", hints[0]["reason"]);
    assert_eq!(hints[0]["peers"], json!([costly]), "{hints:?}");
    assert_eq!(
        hints[0]["command"],
        format!("bitcoin-cli disconnectnode \"\" {costly}")
    );
    let would = format!("dry run: would disconnect peer {costly} ");
    assert_eq!(said.matches("would disconnect").count(), 1, "{said}");
    assert!(said.contains(&would), "{said}");
    assert_eq!(ids(&node.call("getpeerinfo"), "id"), all);

    let log = std::env::temp_dir().join(format!("packetlane-act-{}", std::process::id()));
    let log_name = log.to_str().expect("UTF-8");
    let really = [&rules[..], &["--act-for-real", "--act-log", log_name]].concat();
    let (windows, said) = watch(&node, 12, &really);
    // The load connects again, as another peer.
    let mut left = ids(&windows.last().expect("a window")["peers"], "peer");
    left.retain(|peer| all.contains(peer));
    assert!(
        said.contains(&format!("disconnected peer {costly} ")),
        "{said}"
    );
    assert_eq!(left, usual);
    let mut connected = ids(&node.call("getpeerinfo"), "id");
    connected.retain(|peer| all.contains(peer));
    assert_eq!(connected, usual);
    let logged = std::fs::read_to_string(&log).expect("a log");
    std::fs::remove_file(&log).expect("removed");
    let lines: Vec<&str> = logged.lines().collect();
    assert_eq!(lines.len(), 1, "{logged}");
    assert!(
        lines[0].contains(&format!(" disconnected peer {costly} ")),
        "{logged}"
    );
    assert!(lines[0].contains("more than 4000"), "{logged}");
}

/// One of three peers announces a block first and does not deliver it.
#[test]
fn a_peer_that_stalls_a_block_is_named_within_a_minute() {
    const TEST: &str = "a stalled block at a real node";
    if !is_root() {
        return not_run(TEST, "probes need root");
    }
    let Some(node) = Core::start(TEST, Build::Plain) else {
        return;
    };
    let load = [
        "--v1",
        "3",
        "--stall",
        "--block-every",
        "15",
        "--for",
        "300",
    ];
    let _load = Load::start(&node, &load);
    peers_of(&node, 3);
    let (windows, _) = watch(&node, 50, &[]);
    let stalls: BTreeSet<(i64, String)> = windows
        .iter()
        .flat_map(|window| window["stalling"].as_array().expect("stalls"))
        .map(|stall| (stall["peer"].as_i64().unwrap(), stall["block"].to_string()))
        .collect();
    println!("{stalls:?}");
    let peers: BTreeSet<i64> = stalls.iter().map(|(peer, _)| *peer).collect();
    assert_eq!(peers.len(), 1, "{stalls:?}");
    // The node says the same.
    let owes = |peer: &&Value| {
        peer["inflight"]
            .as_array()
            .is_some_and(|list| !list.is_empty())
    };
    let info = node.call("getpeerinfo");
    let owing = info.as_array().expect("peers").iter().filter(owes);
    let owing: BTreeSet<i64> = owing.map(|peer| peer["id"].as_i64().unwrap()).collect();
    assert_eq!(owing, peers, "{info}");
}
