//! Other people's v1 software through the gateway: neutrino (Go) and bitcoinj (Java) synchronise with a
//! node that speaks v2, Bitcoin Core or btcd. `tools/clients` has their programs.

#![cfg(feature = "gateway")]

mod common;

use common::free_address::free_address;
use common::gateway::{get, metric, until};
use common::real::{Node, Software, bitcoind, find, not_run, options};
use common::{TempDir, packetlane};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const BLOCKS: usize = 150;

/// A node that speaks v2, and a gateway through which clients connect to it.
struct Network {
    _node: Node,
    _gateway: common::Running,
    node: SocketAddr,
    socks: SocketAddr,
    http: SocketAddr,
}

impl Network {
    fn start(dir: &TempDir) -> Option<Self> {
        let (software, program) = match (bitcoind(), find("btcd")) {
            (Some(program), _) => (Software::BitcoinCore, program),
            (None, Some(program)) => (Software::Btcd, program),
            (None, None) => return None,
        };
        let mut options = options(software, true);
        if software == Software::BitcoinCore {
            options.extend(["-blockfilterindex=1", "-peerblockfilters=1"].map(String::from));
        }
        let node_dir = dir.0.join("node");
        std::fs::create_dir_all(&node_dir).unwrap();
        let node = Node::start(software, &program, &node_dir, BLOCKS, &options);
        let (socks, http) = (free_address(), free_address());
        let gateway = packetlane(&format!(
            "gateway --network regtest --outbound-v2-only all --socks {socks} --http {http}"
        ));
        until(Duration::from_secs(20), "the gateway serves", || {
            get(http, "/healthz").is_ok()
        });
        Some(Self {
            node: node.listening,
            _node: node,
            _gateway: gateway,
            socks,
            http,
        })
    }

    /// Runs a client, which must succeed and print `expected`, and have used v2.
    fn serve(&self, client: &mut Command, expected: &str) {
        let output = client.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && text.contains(expected),
            "{text}\n{errors}"
        );
        let connected =
            "packetlane_gateway_connected_total{direction=\"outbound\",transport=\"v2\"}";
        assert_ne!(metric(self.http, connected), 0);
    }
}

fn clients(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tools/clients")
        .join(name)
}

#[test]
fn neutrino_synchronises_over_v2() {
    let dir = TempDir::new("neutrino");
    if find("go").is_none() {
        return not_run("neutrino: Go is not installed");
    }
    let Some(network) = Network::start(&dir) else {
        return not_run("neutrino: no btcd, and BITCOIND_EXE names no bitcoind");
    };
    let program = dir.0.join("client");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(".");
    let built = build.current_dir(clients("neutrino")).output().unwrap();
    if !built.status.success() {
        let why = String::from_utf8_lossy(&built.stderr);
        if why.contains("dial tcp") || why.contains("no such host") {
            return not_run("neutrino: its modules cannot be downloaded");
        }
        panic!("{why}");
    }
    let folder = dir.0.join("data");
    std::fs::create_dir(&folder).unwrap();
    let (proxy, node) = (network.socks.to_string(), network.node.to_string());
    let mut client = Command::new(program);
    client
        .arg(folder)
        .args([&proxy, &node, &BLOCKS.to_string()]);
    network.serve(&mut client, "neutrino: 150 blocks");
}

#[test]
fn bitcoinj_synchronises_over_v2() {
    let dir = TempDir::new("bitcoinj");
    if find("java").is_none() || find("mvn").is_none() {
        return not_run("bitcoinj: Java or Maven is not installed");
    }
    let Some(network) = Network::start(&dir) else {
        return not_run("bitcoinj: no btcd, and BITCOIND_EXE names no bitcoind");
    };
    let source = clients("bitcoinj");
    for file in ["pom.xml", "src/main/java/Client.java"] {
        let to = dir.0.join(file);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(source.join(file), to).unwrap();
    }
    let maven = || {
        let mut command = Command::new("mvn");
        command
            .args(["--quiet", "--batch-mode"])
            .current_dir(&dir.0);
        command
    };
    let built = maven().arg("compile").output().unwrap();
    if !built.status.success() {
        let why = String::from_utf8_lossy(&built.stdout);
        if why.contains("Could not transfer") || why.contains("Unknown host") {
            return not_run("bitcoinj: Maven cannot download it");
        }
        panic!("{why}");
    }
    let ports = [network.socks.port(), network.node.port()];
    let arguments = format!("-Dexec.args={} {} {BLOCKS}", ports[0], ports[1]);
    network.serve(
        maven().arg("exec:java").arg(arguments),
        "bitcoinj: 150 blocks",
    );
}
