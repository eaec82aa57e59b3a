//! `packetlane gateway --nats`, against a NATS server with JetStream: the one in PATH.

mod common;

use common::nats::{Server, free_port};
use common::packetlane;
use common::real::free_address;
use packetlane::bitcoin::message::MessageType;
use packetlane::bitcoin::{Network, v1};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

const LIMIT: Duration = common::nats::LIMIT;

/// Events that the command holds back, and those that it has taken to send.
const HELD: u64 = 20_000 + 64;

fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The value of a metric without labels, or with them.
fn metric(http: SocketAddr, name: &str) -> u64 {
    let metrics = get(http, "/metrics").unwrap();
    let of = |line: &str| line.strip_prefix(name)?.trim().parse().ok();
    metrics.lines().find_map(of).unwrap_or(0)
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LIMIT, "not so: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A peer comes and goes; what it says does not matter.
fn visit(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut wire = Vec::new();
    let magic = Network::Regtest.magic();
    v1::encode(magic, MessageType::literal("version"), &[3; 90], &mut wire);
    stream.write_all(&wire).unwrap();
    stream.read_exact(&mut wire).unwrap();
}

/// The gateway begins before the server, which comes, goes, and comes back: nothing is missing or
/// there twice. When it is away for too long what is dropped is counted.
#[test]
fn events_of_peers() {
    let port = free_port();
    // Only to see whether there is one.
    let Some(probe) = Server::start("gateway with NATS", free_port()) else {
        return;
    };
    drop(probe);
    let node = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let node_address = node.local_addr().unwrap();
    thread::spawn(move || {
        for stream in node.incoming() {
            thread::spawn(move || {
                let mut stream = stream.unwrap();
                let mut bytes = [0; 1000];
                while let Ok(len) = stream.read(&mut bytes)
                    && len > 0
                    && stream.write_all(&bytes[..len]).is_ok()
                {}
            });
        }
    });
    let (listen, http) = (free_address(), free_address());
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_packetlane"));
    command.args(["gateway", "--network", "regtest", "--workers", "1"]);
    command.args(["--listen", &listen.to_string()]);
    command.args(["--node", &node_address.to_string(), "--half-open", "1"]);
    command.args(["--http", &http.to_string(), "--name", "my node"]);
    command.args(["--nats", &format!("nats://127.0.0.1:{port}")]);
    command.envs([
        ("PACKETLANE_NATS_USER", "u"),
        ("PACKETLANE_NATS_PASSWORD", "secret"),
    ]);
    let running = common::Running::start(&mut command);
    until("the gateway serves", || get(http, "/healthz").is_ok());
    let closed = |count: u64| {
        until("the peer has gone", || {
            metric(http, "packetlane_gateway_closed_total{cause=\"peer\"}") == count
        });
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    let message = |server: &Server, number: u64| -> Value {
        let message = server.message("packetlane_gateway", number);
        let (subject, json) = runtime.block_on(message);
        assert_eq!(subject, "packetlane.gateway.my_node");
        assert_eq!(
            (&json["schema"], &json["node"]),
            (&1.into(), &"my node".into())
        );
        json
    };

    // Before the server is there.
    visit(listen);
    closed(1);
    let mut server = Server::start("gateway with NATS", port).expect("as before");
    let connected = message(&server, 1);
    assert_eq!(connected["event"], "connected");
    assert_eq!(connected["transport"], "v1");
    assert_eq!(connected["direction"], "inbound");
    let gone = message(&server, 2);
    assert_eq!(
        (&gone["event"], &gone["cause"]),
        (&"closed".into(), &"peer".into())
    );
    assert_eq!(gone["received_messages"], 1);
    assert_eq!(
        (&gone["id"], &gone["address"]),
        (&connected["id"], &connected["address"])
    );
    assert!(gone["time"].as_u64() >= connected["time"].as_u64());

    // One that is refused.
    let silent = TcpStream::connect(listen).unwrap();
    until("it is there", || {
        let name = "packetlane_gateway_connections{direction=\"inbound\",transport=\"unknown\"}";
        metric(http, name) == 1
    });
    let refused = TcpStream::connect(listen).unwrap();
    let event = message(&server, 3);
    assert_eq!(
        (&event["event"], &event["limit"]),
        (&"refused".into(), &"half-open".into())
    );
    let address = refused.local_addr().unwrap().to_string();
    assert_eq!(
        (&event["id"], &event["address"]),
        (&Value::Null, &address.into())
    );
    drop(silent);
    assert_eq!(message(&server, 4)["event"], "closed");

    // The server goes and comes back.
    server.stop();
    for count in 2..12 {
        visit(listen);
        closed(count);
    }
    let mut server = Server::start("gateway with NATS", port).expect("as before");
    for number in 5..25 {
        let expected = ["connected", "closed"][(number as usize + 1) % 2];
        assert_eq!(message(&server, number)["event"], expected, "{number}");
    }
    assert_eq!(metric(http, "packetlane_gateway_dropped_events_total"), 0);

    // It is away for too long: everyone but the first is refused, which is an event, too.
    server.stop();
    let silent = TcpStream::connect(listen).unwrap();
    let flood = |most: u64| {
        for _ in 0..most {
            drop(TcpStream::connect(listen));
        }
    };
    let flooding = HELD + 100;
    flood(flooding);
    until("all are refused", || {
        metric(
            http,
            "packetlane_gateway_refused_total{limit=\"half-open\"}",
        ) == 1 + flooding
    });
    let dropped = metric(http, "packetlane_gateway_dropped_events_total");
    let server = Server::start("gateway with NATS", port).expect("as before");
    assert!(dropped >= 100, "{dropped}");
    let last = 24 + flooding - dropped;
    assert_eq!(message(&server, last)["event"], "refused");
    drop(silent);
    let closed = message(&server, last + 1);
    assert_eq!(closed["event"], "closed", "nothing was there twice");

    // The last events are published before the command ends.
    visit(listen);
    running.signal("TERM");
    let finished = running.finish();
    assert!(finished.success, "{finished:#?}");
    assert!(!finished.stderr.contains("secret"), "{finished:#?}");
    assert_eq!(message(&server, last + 3)["event"], "closed");
    // What a client notices only when the server is back is not said.
    let count = |text: &str| finished.stderr.matches(text).count();
    let (away, there) = (count("held back from NATS"), count("NATS is there"));
    assert!(away == there && (2..=3).contains(&away), "{finished:#?}");
}

#[test]
fn urls_that_are_none() {
    let gateway = "gateway --check-config --socks 127.0.0.1:0 --nats";
    for (url, expected) in [
        ("nats://u:secret@127.0.0.1:1", "PACKETLANE_NATS_PASSWORD"),
        ("nats://:x", "cannot connect to NATS at nats://:x"),
    ] {
        let finished = packetlane(&format!("{gateway} {url}")).finish();
        let line = finished.error_line();
        assert!(
            line.contains(expected) && !line.contains("secret"),
            "{line}"
        );
    }
}
