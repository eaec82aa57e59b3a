//! `packetlane peers watch --nats` with a NATS server with JetStream, found in PATH.

mod common;

use common::free_address::free_address;
use common::nats::{LIMIT, Server};
use common::rpc::rpc;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Starts `peers watch`. Returns its lines on standard error.
fn watch(url: &str) -> (Child, Receiver<String>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_packetlane"));
    command.args([
        "peers", "watch", "--every", "0.2", "--nats", url, "--name", "my node",
    ]);
    command.args(["--rpc", &rpc(u64::MAX), "--rpc-user", "u"]);
    command.env("PACKETLANE_RPC_PASSWORD", "p");
    command.envs([
        ("PACKETLANE_NATS_USER", "u"),
        ("PACKETLANE_NATS_PASSWORD", "secret"),
    ]);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command");
    let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let (tell, told) = channel();
    thread::spawn(move || {
        lines
            .map_while(Result::ok)
            .for_each(|line| drop(tell.send(line)))
    });
    (child, told)
}

/// The interval with this number in the stream: its subject and contents.
async fn interval(server: &Server, number: u64) -> (String, serde_json::Value) {
    server.message("packetlane_peers", number).await
}

#[test]
fn intervals_of_a_node() {
    let Some(mut server) = Server::start("peers watch with NATS", free_address()) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    let (mut child, told) = watch(&server.url());
    let wait_for = |text: &str| {
        let end = Instant::now() + LIMIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = told
                .recv_timeout(left)
                .unwrap_or_else(|_| panic!("no {text:?}"));
            assert!(!line.contains("secret"), "{line}");
            if line.contains(text) {
                return;
            }
        }
    };
    wait_for("RPC");
    let (subject, json) = runtime.block_on(interval(&server, 1));
    assert_eq!(subject, "packetlane.peers.my_node");
    assert_eq!(json["node"], "my node");
    assert!(json["end"].as_u64().expect("a time") > json["start"].as_u64().expect("a time"));
    let peer = &json["peers"][0];
    assert_eq!(
        (&peer["peer"], &peer["transport"]),
        (&7.into(), &"v2".into())
    );
    assert!(peer["received_per_second"].is_null(), "{json}");
    // 1000 bytes in each interval of 0.2 seconds plus the time of a query.
    let rate = peer["received_bytes_per_second"].as_f64().expect("a rate");
    assert!((100.0..=5500.0).contains(&rate), "{json}");

    // The server stops, which is reported once, and returns.
    server.stop();
    wait_for("going on without");
    thread::sleep(Duration::from_secs(1));
    let again = Server::start("again", server.address).expect("as before");
    wait_for("connected to NATS again");
    // Earlier messages are still stored, and new ones follow for 4 seconds.
    let (_, first) = runtime.block_on(interval(&again, 1));
    assert_eq!(first, json);
    let (_, later) = runtime.block_on(interval(&again, 20));
    assert!(later["end"].as_u64() > json["end"].as_u64(), "{later}");
    child.kill().expect("killed");
    child.wait().expect("ended");
    let said: Vec<String> = told
        .try_iter()
        .filter(|line| line.contains("going on"))
        .collect();
    assert!(said.is_empty(), "reported again: {said:?}");
}

#[test]
fn no_server() {
    for (url, expected) in [
        (
            "nats://127.0.0.1:1",
            "cannot connect to NATS at nats://127.0.0.1:1",
        ),
        ("nats://u:secret@127.0.0.1:1", "PACKETLANE_NATS_PASSWORD"),
        ("no url", "cannot connect to NATS"),
    ] {
        let (mut child, told) = watch(url);
        assert!(!child.wait().expect("ended").success());
        let lines: Vec<String> = told.iter().collect();
        assert!(lines.len() == 1 && lines[0].contains(expected), "{lines:?}");
        assert!(!lines[0].contains("secret"), "{lines:?}");
    }
}
