//! `packetlane peers watch --nats`, against a NATS server with JetStream: the one in PATH.

mod common;

use common::nats::{LIMIT, Server};
use common::real::free_address;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A node's RPC with one peer, from which each look has 1000 bytes more.
fn rpc() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    thread::spawn(move || {
        for (stream, look) in listener.incoming().zip(1_u64..) {
            let stream = stream.expect("a client");
            let mut reader = BufReader::new(&stream);
            let (mut line, mut length) = (String::new(), 0);
            while line != "\r\n" {
                line.clear();
                reader.read_line(&mut line).expect("a request");
                let header = line.to_ascii_lowercase();
                if let Some(value) = header.strip_prefix("content-length: ") {
                    length = value.trim().parse().expect("a length");
                }
            }
            reader.read_exact(&mut vec![0; length]).expect("its body");
            let peer = serde_json::json!({"id": 7, "addr": "192.0.2.7:8333", "network": "ipv4",
                "version": 70016, "relaytxes": true, "conntime": 1_700_000_000,
                "connection_type": "inbound", "transport_protocol_type": "v2",
                "bytesrecv_per_msg": {"tx": 1000 * look}, "bytessent_per_msg": {}});
            let body = serde_json::json!({"result": [peer], "error": null}).to_string();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            let _ = (&stream).write_all((head + &body).as_bytes());
        }
    });
    address
}

/// `peers watch`, and its lines on standard error.
fn watch(url: &str) -> (Child, Receiver<String>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_packetlane"));
    command.args([
        "peers", "watch", "--every", "0.2", "--nats", url, "--name", "my node",
    ]);
    command.args(["--rpc", &rpc(), "--rpc-user", "u"]);
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

/// The interval with this number in the stream: its subject and what it says.
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
    // 1000 bytes in each interval of 0.2 seconds and what a look takes.
    let rate = peer["received_bytes_per_second"].as_f64().expect("a rate");
    assert!((100.0..=5500.0).contains(&rate), "{json}");

    // The server goes, which is said once, and comes back.
    server.stop();
    wait_for("going on without");
    thread::sleep(Duration::from_secs(1));
    let again = Server::start("again", server.address).expect("as before");
    wait_for("NATS is back");
    // What was published before it went is still there, and more comes: 4 seconds of it.
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
    assert!(said.is_empty(), "said again: {said:?}");
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
