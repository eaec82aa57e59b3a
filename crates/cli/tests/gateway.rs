//! The gateway in front of and behind real nodes that speak only v1.

mod common;

use common::free_address::free_address;
use common::gateway::{get, until};
use common::real::{Node, Software, bitcoind, find, not_run, options};
use common::{Running, TempDir, packetlane};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const BLOCKS: usize = 150;

/// Time limit for nodes to agree on a chain.
const LIMIT: Duration = Duration::from_secs(60);

/// Starts a gateway. Returns it with its listen, SOCKS and HTTP addresses.
struct Started {
    running: Running,
    listen: SocketAddr,
    socks: SocketAddr,
    http: SocketAddr,
}

fn gateway(node: SocketAddr, more: &str) -> Started {
    let [listen, socks, http] = [free_address(), free_address(), free_address()];
    let running = packetlane(&format!(
        "gateway --network regtest --listen {listen} --node {node} --socks {socks} --http {http} \
         --workers 2{more}"
    ));
    until(LIMIT, "the gateway serves", || {
        TcpStream::connect(http).is_ok()
    });
    Started {
        running,
        listen,
        socks,
        http,
    }
}

fn interoperate(software: Software, program: &Path) {
    let name = match software {
        Software::Btcd => "btcd",
        Software::BitcoinCore => "bitcoind",
    };
    let dir = TempDir::new(&format!("gateway-{name}"));
    let folder = |name: &str| {
        let folder = dir.0.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    };
    let v1 = options(software, false);
    let inside = Node::start(software, program, &folder("inside"), BLOCKS, &v1);
    let started = gateway(inside.listening, "");
    let Started {
        listen,
        socks,
        http,
        running,
    } = started;

    // Our own peer, over v2 and v1.
    let connect = |options: &str| {
        let command = format!("connect {listen} --network regtest {options}");
        packetlane(&command).finish().expect_success()
    };
    let finished = connect("--v2-only --fetch 100");
    for expected in ["\ntransport         v2, encrypted (BIP324)\n", ", P2P_V2\n"] {
        assert!(finished.stdout.contains(expected), "{finished:#?}");
    }
    assert_eq!(finished.row("block")[0], 100);
    assert_eq!(connect("--v1 --fetch 20").row("block")[0], 20);

    // A real node outside downloads the chain through the gateway, over v2.
    let v2 = options(software, true);
    let outside = Node::start(software, program, &folder("outside"), 0, &v2);
    outside
        .call("addnode", &format!("\"{listen}\",\"onetry\""))
        .unwrap();
    let count = format!("\"result\":{BLOCKS},");
    until(LIMIT, "the node outside has the chain", || {
        let answer = outside.call("getblockcount", "").unwrap();
        answer.contains(&count)
    });
    let at_node = inside.call("getpeerinfo", "").unwrap();
    assert!(at_node.contains("\"addr\":\"127."), "{at_node}");
    assert!(!at_node.contains("\"addr\":\"127.0.0.1:"), "{at_node}");
    if software == Software::BitcoinCore {
        let v1 = "\"transport_protocol_type\":\"v1\"";
        let v2 = "\"transport_protocol_type\":\"v2\"";
        assert!(at_node.contains(v1) && !at_node.contains(v2), "{at_node}");
        let at_peer = outside.call("getpeerinfo", "").unwrap();
        assert!(at_peer.contains(v2) && !at_peer.contains(v1), "{at_peer}");
    }

    // A node that speaks only v1 reaches the node outside over v2, by a name that btcd lets the
    // proxy resolve.
    let mut proxied = options(software, false);
    let dashes = if software == Software::Btcd {
        "--"
    } else {
        "-"
    };
    proxied.push(format!("{dashes}proxy={socks}"));
    let third = Node::start(software, program, &folder("third"), 0, &proxied);
    let target = format!("localhost:{}", outside.listening.port());
    third
        .call("addnode", &format!("\"{target}\",\"onetry\""))
        .unwrap();
    until(LIMIT, "the proxied node has the chain", || {
        let answer = third.call("getblockcount", "").unwrap();
        answer.contains(&count)
    });

    let shown = packetlane(&format!("gateway peers {http}")).finish();
    let shown = shown.expect_success().stdout;
    let lines = |direction: &str| {
        let of = |line: &&str| line.contains(direction) && line.contains(" v2 ");
        shown.lines().filter(of).count()
    };
    assert_eq!((lines("inbound"), lines("outbound")), (1, 1), "{shown}");
    let metrics = get(http, "/metrics").unwrap();
    for expected in [
        "packetlane_gateway_connected_total{direction=\"inbound\",transport=\"v2\"} 2",
        "packetlane_gateway_connected_total{direction=\"inbound\",transport=\"v1\"} 1",
        "packetlane_gateway_connected_total{direction=\"outbound\",transport=\"v2\"} 1",
        "packetlane_gateway_messages_total{direction=\"sent\",type=\"block\"} ",
    ] {
        assert!(metrics.contains(expected), "{expected} in {metrics}");
    }
    assert!(get(http, "/healthz").unwrap().ends_with("ok\n"));

    // It ends with the last connection.
    running.signal("TERM");
    drop((outside, third));
    let finished = running.finish();
    assert!(finished.success, "{finished:#?}");
    assert!(finished.stderr.contains("draining"), "{finished:#?}");
}

#[test]
fn btcd() {
    match find("btcd") {
        Some(program) => interoperate(Software::Btcd, &program),
        None => not_run("the gateway with btcd: it is not installed"),
    }
}

#[test]
fn bitcoin_core() {
    match bitcoind() {
        Some(program) => interoperate(Software::BitcoinCore, &program),
        None => not_run("the gateway with Bitcoin Core: BITCOIND_EXE names no bitcoind"),
    }
}

/// In a network namespace, a firewall redirects all connections but the gateway's, so that a v1
/// client without proxy support reaches a peer over v2. Exit status 77: not possible on this
/// system.
const REDIRECTED: &str = r#"
ip link set lo up
iptables -t nat -A OUTPUT -p tcp --dport 18555 -m owner ! --gid-owner 65534 \
    -j REDIRECT --to-ports 18556 || exit 77
"$1" listen 127.0.0.1:18555 --network regtest &
setpriv --regid=65534 --clear-groups \
    "$1" gateway --transparent "$2" --network regtest --workers 1 &
for port in 18555 18556; do
    until ss -Hltn "sport = :$port" | grep -q .; do sleep 0.1; done
done
status=0
"$1" connect 127.0.0.1:18555 --v1 --network regtest || status=1
kill $(jobs -p)
wait
exit $status
"#;

#[test]
fn redirected_connections() {
    let needs = ["unshare", "setpriv", "ip", "ss", "iptables"];
    if let Some(missing) = needs.into_iter().find(|program| find(program).is_none()) {
        return not_run(&format!("redirected connections: there is no {missing}"));
    }
    // The second gateway listens on a dual-stack socket; the connection is IPv4 all the same.
    for transparent in ["127.0.0.1:18556", "[::]:18556"] {
        let mut command = Command::new("unshare");
        command.args(["-n", "bash", "-c", REDIRECTED, "bash"]);
        command.args([env!("CARGO_BIN_EXE_packetlane"), transparent]);
        let finished = Running::start(&mut command).finish();
        let is_allowed = |message| !finished.stderr.contains(message);
        if !is_allowed("unshare failed") || !is_allowed("iptables") {
            return not_run(&format!("redirected connections: {}", finished.stderr));
        }
        assert!(finished.success, "{finished:#?}");
        for (transport, who) in [
            ("v1, not encrypted", "connects"),
            ("v2, encrypted", "listens"),
        ] {
            let line = format!("transport         {transport}");
            assert!(finished.stdout.contains(&line), "who {who}: {finished:#?}");
        }
    }
}

#[test]
fn bad_settings_are_reported_on_one_line() {
    let dir = TempDir::new("gateway-settings");
    let file = dir.0.join("gateway.toml");
    let check = |text: &str, more: &str| {
        std::fs::write(&file, text).unwrap();
        let command = format!("gateway --check-config --config {} {more}", file.display());
        packetlane(command.trim_end()).finish()
    };
    let good = check(
        "listen = '127.0.0.1:1'\nnode = '127.0.0.1:2'\nturn = '5ms'",
        "",
    );
    assert!(good.success, "{good:#?}");
    for (text, more, expected) in [
        ("", "", "nothing to do"),
        (
            "\nlisen = 1",
            "",
            "gateway.toml: line 2: unknown field `lisen`",
        ),
        ("turn = 'soon'", "", "gateway.toml: line 1: "),
        ("listen = '127.0.0.1:1'", "", "--listen needs --node"),
        (
            "socks = '127.0.0.1:1'",
            "--config /nowhere",
            "cannot be used",
        ),
    ] {
        let bad = check(text, more);
        assert!(!bad.success && bad.stderr.contains(expected), "{bad:#?}");
        assert_eq!(bad.stderr.lines().count(), 1, "{bad:#?}");
    }
}
