//! Interoperability with real nodes in both directions: btcd, and Bitcoin Core if the
//! environment variable `BITCOIND_EXE` names it.
//!
//! btcd must be in PATH or where `go install` puts it: `go install
//! github.com/btcsuite/btcd@v0.26.2`. If a node is missing, its test is skipped and says so.
//!
//! btcd accepts two v2 handshakes per second from one address, so there is a pause before each
//! connection.

mod common;

use common::{TempDir, listen_on, packetlane};
use packetlane::bip324::{OVERHEAD, encoded_len};
use packetlane_lab::capture::{self, Record};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const BLOCKS: usize = 150;
const FETCHED: usize = 100;

/// Limit for a node to start or to answer.
const LIMIT: Duration = Duration::from_secs(60);

/// A regtest address for mining rewards.
const ADDRESS: &str = "mfWxJ45yp2SFn7UciZyNpvDKrzbhyfKrY8";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Software {
    Btcd,
    BitcoinCore,
}

/// A node on regtest that is killed when the test ends.
struct Node {
    software: Software,
    process: Child,
    listening: SocketAddr,
    rpc: SocketAddr,
}

impl Node {
    /// Starts a node on a new chain and mines [`BLOCKS`] blocks.
    fn start(software: Software, program: &Path, dir: &Path, v2: bool) -> Self {
        let listening = free_address();
        let rpc = free_address();
        let mut command = Command::new(program);
        command.env("HOME", dir);
        match software {
            Software::Btcd => {
                command
                    .args(["--regtest", "--configfile=/dev/null", "--nodnsseed"])
                    .args(["--notls", "--rpcuser=u", "--rpcpass=p"])
                    .arg(format!("--datadir={}", dir.join("data").display()))
                    .arg(format!("--logdir={}", dir.join("logs").display()))
                    .arg(format!("--listen={listening}"))
                    .arg(format!("--rpclisten={rpc}"))
                    .arg(format!("--miningaddr={ADDRESS}"));
                if v2 {
                    command.arg("--v2transport");
                }
            }
            Software::BitcoinCore => {
                command
                    .args(["-regtest", "-server", "-dnsseed=0", "-discover=0"])
                    .args(["-listenonion=0", "-rpcuser=u", "-rpcpassword=p"])
                    .args(["-rpcbind=127.0.0.1", "-rpcallowip=127.0.0.1"])
                    .arg(format!("-datadir={}", dir.display()))
                    .arg(format!("-bind={listening}"))
                    .arg(format!("-rpcport={}", rpc.port()))
                    .arg(format!("-v2transport={}", u8::from(v2)));
            }
        }
        let process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let mut node = Self {
            software,
            process,
            listening,
            rpc,
        };

        let begun = Instant::now();
        while let Err(error) = node.call("getblockcount", "") {
            let ended = node.process.try_wait().unwrap();
            assert!(ended.is_none(), "the node has ended: {ended:?}");
            assert!(begun.elapsed() < LIMIT, "the node does not start: {error}");
            thread::sleep(Duration::from_millis(50));
        }
        match software {
            Software::Btcd => node.call("generate", &BLOCKS.to_string()),
            Software::BitcoinCore => {
                node.call("generatetoaddress", &format!("{BLOCKS},\"{ADDRESS}\""))
            }
        }
        .unwrap();
        node
    }

    /// Calls a method of the node's JSON-RPC. Fails if the answer is an error.
    fn call(&self, method: &str, parameters: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(self.rpc)?;
        stream.set_read_timeout(Some(LIMIT))?;
        let body = format!(
            "{{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"{method}\",\"params\":[{parameters}]}}"
        );
        // "u:p" in base64.
        write!(
            stream,
            "POST / HTTP/1.0\r\nAuthorization: Basic dTpw\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        match answer.contains("\"error\":null") {
            true => Ok(answer),
            false => Err(io::Error::other(format!("{method}: {answer}"))),
        }
    }

    /// Runs `packetlane connect` to this node, no more often than its limit allows.
    fn connect(&self, options: &str) -> common::Finished {
        self.pause();
        let address = self.listening;
        packetlane(&format!("connect {address} {options}")).finish()
    }

    fn pause(&self) {
        if self.software == Software::Btcd {
            thread::sleep(Duration::from_millis(600));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An address on the loopback interface where nothing listens now.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// Runs every scenario against one implementation.
fn interoperate(software: Software, program: &Path, user_agent: &str) {
    let dir = TempDir::new(match software {
        Software::Btcd => "btcd",
        Software::BitcoinCore => "bitcoind",
    });
    let node_dir = dir.0.join("node");
    std::fs::create_dir_all(&node_dir).unwrap();
    let node = Node::start(software, program, &node_dir, true);

    // Over v2, with everything that can be fetched.
    let recording = dir.0.join("connect");
    let finished = node
        .connect(&format!(
            "--network regtest --v2-only --fetch {FETCHED} --record {}",
            recording.display()
        ))
        .expect_success();
    let report = &finished.stdout;
    for expected in [
        "\ntransport         v2, encrypted (BIP324)\nsession id        ",
        user_agent,
        "\nservices          NETWORK, ",
        ", P2P_V2\n",
        "\nstart height      150\n",
        "\nhandshake         TCP ",
        "\npings             3: min ",
        "\nfetched           150 headers, 100 of 100 blocks (",
    ] {
        assert!(report.contains(expected), "{expected:?} in {report}");
    }
    assert_eq!(finished.row("block")[0], FETCHED as u64);
    check_recording(&recording, &finished);

    // Over v1.
    let finished = node
        .connect("--network regtest --v1 --fetch 20")
        .expect_success();
    let transport = "\ntransport         v1, not encrypted\n";
    assert!(finished.stdout.contains(transport), "{finished:#?}");
    assert_eq!(finished.row("block")[0], 20);

    // By default v2; this connection stays for a while.
    let finished = node.connect("--network regtest --for 1").expect_success();
    let transport = "\ntransport         v2, encrypted (BIP324)\n";
    assert!(finished.stdout.contains(transport), "{finished:#?}");

    // On another network.
    let finished = node.connect("--network testnet4 --timeout 2");
    let line = finished.error_line();
    assert!(
        // Which of the two depends on the amount of random garbage.
        line.contains("that are not a v2 handshake of testnet4")
            || line.contains("the peer closed the connection during the v2 handshake"),
        "{line}"
    );

    // The other way round: the node connects to us.
    let recording = dir.0.join("listen");
    let options = format!(" --once --for 2 --record {}", recording.display());
    let (listening, address) = listen_on("127.0.0.1", &options);
    node.pause();
    node.call("addnode", &format!("\"{address}\",\"onetry\""))
        .unwrap();
    let finished = listening.finish().expect_success();
    for expected in [transport, user_agent, "\npings             3: min "] {
        assert!(finished.stdout.contains(expected), "{finished:#?}");
    }
    check_recording(&recording, &finished);
    drop(node);

    // A node that only speaks v1.
    let node_dir = dir.0.join("v1");
    std::fs::create_dir_all(&node_dir).unwrap();
    let node = Node::start(software, program, &node_dir, false);
    let finished = node.connect("--network regtest").expect_success();
    let transport = "\ntransport         v1, not encrypted: the peer closed the v2 connection\n";
    assert!(finished.stdout.contains(transport), "{finished:#?}");
    let finished = node.connect("--network regtest --v2-only");
    let line = finished.error_line();
    assert!(line.contains("it may speak v1 only"), "{line}");
}

/// Asserts that a recording of one v2 connection matches its report.
fn check_recording(dir: &Path, finished: &common::Finished) {
    let conversations = capture::read_dir(dir).unwrap().conversations;
    assert_eq!(conversations.len(), 1);
    let conversation = &conversations[0];
    let mut received = (0, 0);
    let mut sent = (0, 0);
    for (records, total) in [
        (&conversation.received, &mut received),
        (&conversation.sent, &mut sent),
    ] {
        assert!(records.is_sorted_by_key(|record| record.time));
        for record in records {
            let Record {
                message_type,
                payload,
                ..
            } = record;
            total.0 += 1;
            total.1 += (encoded_len(*message_type, payload.len()) + OVERHEAD) as u64;
        }
    }
    // What is not recorded: the handshake, and what came while the command was leaving.
    let handshake = finished.row("(handshake)");
    let rest = finished.find_row("(rest)").unwrap_or_default();
    assert_eq!(
        finished.row("total"),
        [
            received.0,
            received.1 + handshake[1] + rest[1],
            sent.0,
            sent.1 + handshake[3] + rest[3]
        ]
    );
    let count = |name| {
        let is_it = |record: &&Record| record.message_type.name() == name;
        conversation.received.iter().filter(is_it).count() as u64
    };
    for name in ["version", "verack", "pong"] {
        assert_eq!(finished.row(name)[0], count(name), "{name}");
    }
}

/// Reports a skipped test past the test harness, which hides the output of passing tests.
fn not_run(why: &str) {
    let _ = writeln!(io::stderr(), "NOT RUN: {why}");
}

/// The path of `program`, in PATH or in Go's install folder.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let go = Command::new("go").args(["env", "GOPATH"]).output();
    if let Ok(output) = go
        && let Ok(path) = String::from_utf8(output.stdout)
        && output.status.success()
    {
        dirs.extend(std::env::split_paths(path.trim()).map(|path| path.join("bin")));
    }
    if let Some(home) = std::env::var_os("HOME") {
        dirs.push(Path::new(&home).join("go/bin"));
    }
    let mut files = dirs.into_iter().map(|dir| dir.join(program));
    files.find(|file| file.is_file())
}

#[test]
fn btcd() {
    match find("btcd") {
        Some(program) => interoperate(Software::Btcd, &program, "/btcd:"),
        None => not_run(
            "interop with btcd: it is neither in PATH nor in $(go env GOPATH)/bin \
             (go install github.com/btcsuite/btcd@v0.26.2)",
        ),
    }
}

#[test]
fn bitcoin_core() {
    match std::env::var_os("BITCOIND_EXE").filter(|program| *program != OsString::new()) {
        Some(program) => {
            interoperate(Software::BitcoinCore, Path::new(&program), "/Satoshi:");
        }
        None => not_run("interop with Bitcoin Core: BITCOIND_EXE names no bitcoind"),
    }
}
