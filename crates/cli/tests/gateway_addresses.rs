//! The gateway in front of Bitcoin Core, between networks of real addresses: others find its v2, and
//! the node sees its peers' own addresses. Each test runs again in a network namespace.

#![cfg(target_os = "linux")]

mod common;

use common::TempDir;
use common::free_address::free_address;
use common::gateway::until;
use common::node::{self, LIMIT, version};
use common::real::{ADDRESS, Node, Software, bitcoind, not_run};
use common::{Running, packetlane};
use socket2::{Domain, Socket, Type};
use std::io::{ErrorKind, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Set in the namespace.
const INSIDE: &str = "PACKETLANE_TEST_INSIDE";

/// In a namespace: whether the commands that make its network work.
fn network(commands: &str) -> bool {
    let run = Command::new("sh").args(["-ec", commands]).output();
    let output = run.unwrap();
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        not_run(&format!("addresses behind a gateway: {}", why.trim()));
    }
    output.status.success()
}

/// Runs `test`, a test of this file, in a network namespace, as root there. In there it returns the
/// path of `bitcoind`.
fn inside(test: &str) -> Option<PathBuf> {
    let Some(bitcoind) = bitcoind() else {
        not_run(&format!("{test}: BITCOIND_EXE names no bitcoind"));
        return None;
    };
    if std::env::var_os(INSIDE).is_some() {
        return Some(bitcoind);
    }
    let me = std::env::current_exe().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--net", "--map-root-user", "--kill-child"]);
    command.arg(me).args(["--exact", test, "--nocapture"]);
    let output = command.env(INSIDE, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if text.contains("unshare failed") || text.contains("NOT RUN") {
        not_run(&format!("{test}: {text}"));
        return None;
    }
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}\n{text}");
    None
}

fn core(program: &Path, dir: &TempDir, name: &str, options: &[&str]) -> Node {
    let dir = dir.0.join(name);
    std::fs::create_dir_all(&dir).unwrap();
    let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
    Node::start(Software::BitcoinCore, program, &dir, 0, &options)
}

/// A Core that has heard of the node from another one, and from nobody else, connects over v2 by
/// itself.
#[test]
fn gossip_is_enough_for_v2() {
    let Some(bitcoind) = inside("gossip_is_enough_for_v2") else {
        return;
    };
    let addresses = [1, 2, 3].map(|last| format!("ip addr add 20.{last}.0.1/32 dev lo"));
    if !network(&format!("ip link set lo up\n{}", addresses.join("\n"))) {
        return;
    }
    let dir = TempDir::new("gossip");
    let quiet = ["-fixedseeds=0", "-dnsseed=0"];
    let socks = free_address();
    let proxy = format!("-proxy={socks}");
    // A proxy turns listening off.
    let own = [
        "-v2transport=0",
        "-externalip=20.1.0.1:18555",
        "-listen=1",
        &proxy,
    ];
    let node = core(&bitcoind, &dir, "node", &[&quiet[..], &own].concat());
    // Only a node that has a block of today announces itself.
    let to_address = format!("1,\"{ADDRESS}\"");
    node.call("generatetoaddress", &to_address).unwrap();
    let to = node.listening;
    let _gateway = packetlane(&format!(
        "gateway --listen 20.1.0.1:18555 --node {to} --socks {socks} --external 20.1.0.1:18555 \
         --network regtest --workers 1"
    ));
    until(LIMIT, "the gateway serves", || {
        TcpStream::connect(socks).is_ok()
    });
    let options = [&quiet[..], &["-bind=20.2.0.1:18444"]].concat();
    let gossip = core(&bitcoind, &dir, "gossip", &options);
    let options = [&quiet[..], &["-bind=20.3.0.1:18444"]].concat();
    let other = core(&bitcoind, &dir, "other", &options);
    let gossips = "\"20.2.0.1:18444\",\"onetry\"";
    other.call("addnode", gossips).unwrap();
    // Otherwise it tells nobody of the address, and never again.
    until(LIMIT, "addresses are relayed", || {
        let peers = gossip.call("getpeerinfo", "").unwrap();
        peers.contains("\"addr_relay_enabled\":true")
    });
    node.call("addnode", gossips).unwrap();
    let start = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let mut later = 0;
    until(LIMIT, "an automatic connection over v2", || {
        // Addresses are relayed every half minute on average.
        later += 30;
        let now = (start + later).to_string();
        for node in [&node, &gossip, &other] {
            node.call("setmocktime", &now).unwrap();
        }
        thread::sleep(Duration::from_millis(500));
        let peers = other.call("getpeerinfo", "").unwrap();
        let mut peers = peers.split("\"id\":");
        let its = peers.find(|peer| peer.contains("\"addr\":\"20.1.0.1:18555\""));
        its.is_some_and(|peer| {
            assert!(
                peer.contains("\"connection_type\":\"outbound-full-relay\""),
                "{peer}"
            );
            peer.contains("\"transport_protocol_type\":\"v2\"")
        })
    });
}

/// Peers' networks in a namespace of their own, behind a link to the gateway's.
const PEERS: &str = "\
ip link set lo up
unshare --net sleep 300 </dev/null >/dev/null 2>&1 &
peers=$!
echo $peers >\"$1\"
in_peers() { nsenter --target $peers --net \"$@\"; }
until in_peers ip link 2>/dev/null | grep -q 'lo:' &&
    [ \"$(readlink /proc/$peers/ns/net)\" != \"$(readlink /proc/self/ns/net)\" ]; do sleep 0.05; done
ip link add gate type veth peer name peer netns $peers
ip addr add 10.9.0.1/24 dev gate
ip -6 addr add fd00::1/64 dev gate nodad
ip link set gate up
ip route add 20.0.0.0/8 via 10.9.0.2
in_peers ip link set lo up
in_peers ip addr add 10.9.0.2/24 dev peer
in_peers ip -6 addr add fd00::2/64 dev peer nodad
in_peers ip link set peer up
in_peers ip route add local 20.0.0.0/8 dev lo
in_peers ip -6 addr add 2a00::7/128 dev lo nodad
ip -6 route add 2a00::/16 via fd00::2
";

/// Where the peers connect to, in the process that plays them.
const TO: &str = "PACKETLANE_TEST_TO";

/// Connects from an address and exchanges versions.
fn greet(from: &str, to: SocketAddr) -> std::io::Result<node::Node> {
    let from: SocketAddr = from.parse().unwrap();
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    socket.bind(&from.into())?;
    socket.connect_timeout(&to.into(), Duration::from_secs(5))?;
    let stream: TcpStream = socket.into();
    stream.set_read_timeout(Some(LIMIT))?;
    let mut node = node::Node::new(stream);
    node.send("version", &version(b"/peer:1.0/"))?;
    node.expect("verack")?;
    node.send("verack", &[])?;
    Ok(node)
}

fn is_open(peer: &mut node::Node) -> bool {
    peer.stream.set_nonblocking(true).unwrap();
    loop {
        match peer.stream.read(&mut [0; 4096]) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

/// 49 connections of one network group fill the node. Then 20 newcomers of 20 groups come: prints
/// how many of them stay.
#[test]
#[ignore = "a part of the other tests, which start it"]
fn newcomers() {
    let Some(to) = std::env::var(TO).ok().and_then(|to| to.parse().ok()) else {
        not_run("a part of the other tests");
        return;
    };
    let old: Vec<_> = (0..49)
        .map(|number| greet(&format!("20.200.{number}.1:0"), to).expect("a free place"))
        .collect();
    // The node protects those that have been there longest, by whole seconds.
    thread::sleep(Duration::from_millis(1_100));
    let mut new: Vec<_> = (0..20)
        .filter_map(|number| greet(&format!("20.{number}.0.1:0"), to).ok())
        .collect();
    thread::sleep(Duration::from_secs(2));
    let stay = new
        .iter_mut()
        .filter_map(|peer| is_open(peer).then_some(()))
        .count();
    println!("stay={stay}=");
    drop(old);
}

/// Greets from one address, and prints whether the node answers.
#[test]
#[ignore = "a part of the other tests, which start it"]
fn one_peer() {
    let (Ok(to), Ok(from)) = (std::env::var(TO), std::env::var("FROM")) else {
        not_run("a part of the other tests");
        return;
    };
    let answered = greet(&from, to.parse().unwrap());
    println!("answered={}=", answered.is_ok());
    // Until the parent has looked at the node.
    if answered.is_ok() {
        thread::sleep(Duration::from_secs(2));
    }
}

#[test]
fn the_node_sees_its_peers_own_addresses() {
    let Some(bitcoind) = inside("the_node_sees_its_peers_own_addresses") else {
        return;
    };
    let dir = TempDir::new("spoof");
    let pid = dir.0.join("peers");
    let file = pid.display().to_string();
    if !network(&format!("set -- '{file}'\n{PEERS}")) {
        return;
    }
    let peers = std::fs::read_to_string(&pid).unwrap().trim().to_owned();
    let me = std::env::current_exe().unwrap();
    let in_peers = |test: &str, to: &str, from: &str| {
        let mut command = Command::new("nsenter");
        command.args(["--target", &peers, "--net"]).arg(&me);
        command.args(["--exact", test, "--ignored", "--nocapture"]);
        command.env(TO, to).env("FROM", from);
        Running::start(&mut command)
    };
    let said = |running: Running, name: &str| {
        let finished = running.finish();
        let stdout = finished.stdout.clone();
        let value = stdout
            .split(name)
            .nth(1)
            .and_then(|rest| rest.split('=').next());
        value.unwrap_or_else(|| panic!("{finished:#?}")).to_owned()
    };
    // 60 connections are 49 inbound ones.
    let common = ["-maxconnections=60", "-v2transport=0", "-fixedseeds=0"];

    let direct = [&common[..], &["-bind=10.9.0.1:18445"]].concat();
    let direct = core(&bitcoind, &dir, "direct", &direct);
    let expected = said(in_peers("newcomers", "10.9.0.1:18445", ""), "stay=");
    drop(direct);
    let expected: usize = expected.parse().unwrap();
    // What it evicts is partly random: 14 to 18 newcomers stay. If all peers had the gateway's address,
    // 4 would.
    const MIN: usize = 10;
    assert!(expected >= MIN, "{expected} of 20 stay at the node itself");

    let inside = [&common[..], &["-bind=[::1]:18447"]].concat();
    let node = core(&bitcoind, &dir, "node", &inside);
    let to = node.listening;
    let spoof = format!(
        "gateway --listen [::]:18555 --node {to} --spoof --node-v6 [::1]:18447 --network regtest"
    );
    // Without the routes it says what to do.
    let without = packetlane(&spoof).finish();
    assert!(
        without.error_line().contains("packetlane gateway setup"),
        "{without:#?}"
    );
    let setup = |undo: &str| {
        let command = format!("gateway setup --node {to} --node [::1]:18447{undo}");
        let commands = packetlane(&command).finish().expect_success().stdout;
        let done = Command::new("sh")
            .args(["-ec", &commands])
            .status()
            .unwrap();
        assert!(done.success(), "{commands}");
    };
    setup("");
    let gateway = packetlane(&spoof);
    until(LIMIT, "the gateway listens", || {
        TcpStream::connect("10.9.0.1:18555").is_ok()
    });

    let stay: usize = said(in_peers("newcomers", "10.9.0.1:18555", ""), "stay=")
        .parse()
        .unwrap();
    assert!(
        stay >= MIN,
        "{stay} of 20 stay behind the gateway, {expected} without"
    );
    println!("of 20 newcomers {stay} stay behind the gateway, {expected} without");

    for (from, to, ip) in [
        ("20.7.0.1:4321", "10.9.0.1:18555", "20.7.0.1"),
        ("[2a00::7]:4321", "[fd00::1]:18555", "2a00::7"),
    ] {
        until(LIMIT, "earlier peers are gone", || {
            !node.call("getpeerinfo", "").unwrap().contains("\"addr\":")
        });
        let peer = in_peers("one_peer", to, from);
        until(LIMIT, "the node has it", || {
            let peers = node.call("getpeerinfo", "").unwrap();
            peers.contains(&format!("\"addr\":\"{from}\""))
        });
        assert_eq!(said(peer, "answered="), "true");
        node.call("setban", &format!("\"{ip}\",\"add\"")).unwrap();
        assert_eq!(said(in_peers("one_peer", to, from), "answered="), "false");
        node.call("clearbanned", "").unwrap();
    }
    gateway.signal("TERM");
    let finished = gateway.finish();
    assert!(finished.success, "{finished:#?}");
    assert!(
        finished.stderr.contains("cause=\"node-refused\""),
        "{finished:#?}"
    );
    setup(" --undo");
    assert!(!packetlane(&spoof).finish().success);
    let _ = Command::new("kill").arg(&peers).status();
}
