//! `packetlane gateway --nats` with a NATS server with JetStream, found in PATH.

mod common;

use common::free_address::free_address;
use common::gateway::{echo, flood, get, metric, talk, until};
use common::nats::{LIMIT, Server};
use common::packetlane;
use serde_json::Value;
use std::net::{SocketAddr, TcpStream};

/// The command's queue for events, and the number of them being sent.
const HELD: u64 = 20_000 + 64;

/// A peer connects and leaves.
fn visit(address: SocketAddr) {
    talk(&mut TcpStream::connect(address).unwrap()).unwrap();
}

/// The gateway starts before the server, which then stops and returns: no event is lost or
/// duplicated. If it stays away for too long, dropped events are counted.
#[test]
fn events_of_peers() {
    let nats = free_address();
    // Only checks whether there is a server.
    let Some(probe) = Server::start("gateway with NATS", free_address()) else {
        return;
    };
    drop(probe);
    let node = echo();
    let (listen, http) = (free_address(), free_address());
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_packetlane"));
    command.args(["gateway", "--network", "regtest", "--workers", "1"]);
    command.args(["--listen", &listen.to_string()]);
    command.args(["--node", &node.to_string(), "--half-open", "1"]);
    command.args(["--http", &http.to_string(), "--name", "my node"]);
    command.args(["--nats", &format!("nats://{nats}")]);
    command.envs([
        ("PACKETLANE_NATS_USER", "u"),
        ("PACKETLANE_NATS_PASSWORD", "secret"),
    ]);
    let running = common::Running::start(&mut command);
    until(LIMIT, "the gateway serves", || {
        get(http, "/healthz").is_ok()
    });
    let closed = |count: u64| {
        until(LIMIT, "the peer has gone", || {
            metric(
                http,
                "packetlane_gateway_closed_total{direction=\"inbound\",cause=\"peer\"}",
            ) == count
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

    // Before the server runs.
    visit(listen);
    closed(1);
    let mut server = Server::start("gateway with NATS", nats).expect("as before");
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

    // A connection that is refused.
    let silent = TcpStream::connect(listen).unwrap();
    until(LIMIT, "it is there", || {
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

    // The server stops and returns.
    server.stop();
    for count in 2..12 {
        visit(listen);
        closed(count);
    }
    let mut server = Server::start("gateway with NATS", nats).expect("as before");
    for number in 5..25 {
        let expected = ["connected", "closed"][(number as usize + 1) % 2];
        assert_eq!(message(&server, number)["event"], expected, "{number}");
    }
    assert_eq!(metric(http, "packetlane_gateway_dropped_events_total"), 0);

    // It stays away for too long: everyone but the first is refused, which is an event, too.
    server.stop();
    let silent = TcpStream::connect(listen).unwrap();
    let flooding = HELD + 100;
    flood(listen, flooding as usize);
    until(LIMIT, "all are refused", || {
        metric(
            http,
            "packetlane_gateway_refused_total{direction=\"inbound\",limit=\"half-open\"}",
        ) == 1 + flooding
    });
    let dropped = metric(http, "packetlane_gateway_dropped_events_total");
    let server = Server::start("gateway with NATS", nats).expect("as before");
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
    // An outage is not logged if the client notices it only after the server has returned.
    let count = |text: &str| finished.stderr.matches(text).count();
    let (away, there) = (count("NATS is unavailable"), count("connected to NATS"));
    assert!(away == there && (2..=3).contains(&away), "{finished:#?}");
}

#[test]
fn invalid_urls() {
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
