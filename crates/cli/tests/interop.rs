//! Interoperability with real nodes in both directions: btcd, and Bitcoin Core if the environment
//! variable `BITCOIND_EXE` names it.
//!
//! btcd must be in PATH or where `go install` puts it: `go install
//! github.com/btcsuite/btcd@v0.26.2`. If a node is missing, its test prints that it was not run.
//!
//! btcd accepts two v2 handshakes per second from one address, so there is a pause before each
//! connection.

mod common;

use common::node::{LIMIT, REGTEST, version};
use common::real::{Node, Software, bitcoind, find, not_run, options};
use common::{TempDir, listen_on};
use packetlane::bip324::{Handshake, HandshakeConfig, KeyPool, Progress, Session};
use packetlane::bitcoin::message::MessageType;
use packetlane::{Engine, OpenBatch, SealBatch};
use packetlane_p2p::capture::{self, Record};
use socket2::{Domain, Socket, Type};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const BLOCKS: usize = 150;
const FETCHED: usize = 100;

/// Runs every scenario against one implementation.
fn interoperate(software: Software, program: &Path, user_agent: &str) {
    let dir = TempDir::new(match software {
        Software::Btcd => "btcd",
        Software::BitcoinCore => "bitcoind",
    });
    let node_dir = dir.0.join("node");
    std::fs::create_dir_all(&node_dir).unwrap();
    let node = Node::start(
        software,
        program,
        &node_dir,
        BLOCKS,
        &options(software, true),
    );

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

    // v2 by default; this connection stays for a while.
    let finished = node.connect("--network regtest --for 1").expect_success();
    let transport = "\ntransport         v2, encrypted (BIP324)\n";
    assert!(finished.stdout.contains(transport), "{finished:#?}");

    // On another network.
    let finished = node.connect("--network testnet4 --timeout 2");
    let line = finished.error_line();
    assert!(
        // Which error it is depends on the amount of random garbage.
        line.contains("that are not a v2 handshake of testnet4")
            || line.contains("the peer closed the connection during the v2 handshake"),
        "{line}"
    );

    // The other direction: the node connects to us.
    let recording = dir.0.join("listen");
    let once = format!(" --once --for 2 --record {}", recording.display());
    let (listening, address) = listen_on("127.0.0.1:0", &once);
    node.pause();
    node.call("addnode", &format!("\"{address}\",\"onetry\""))
        .unwrap();
    let finished = listening.finish().expect_success();
    for expected in [transport, user_agent, "\npings             3: min "] {
        assert!(finished.stdout.contains(expected), "{finished:#?}");
    }
    check_recording(&recording, &finished);

    for (round, count) in [1, 2, 7, 8, 9, 64].into_iter().enumerate() {
        handshakes_in_a_batch(&node, round as u8, count, user_agent);
    }
    drop(node);

    // A node that speaks only v1.
    let node_dir = dir.0.join("v1");
    std::fs::create_dir_all(&node_dir).unwrap();
    let node = Node::start(
        software,
        program,
        &node_dir,
        BLOCKS,
        &options(software, false),
    );
    let finished = node.connect("--network regtest").expect_success();
    let transport = "\ntransport         v1, not encrypted: the peer closed the v2 connection\n";
    assert!(finished.stdout.contains(transport), "{finished:#?}");
    let finished = node.connect("--network regtest --v2-only");
    let line = finished.error_line();
    assert!(line.contains("it may speak v1 only"), "{line}");
}

/// So many connections to the node, and as many from it. The keys of each kind are computed together.
fn handshakes_in_a_batch(node: &Node, round: u8, count: u8, user_agent: &str) {
    let engine = Engine::detect().unwrap();
    let config = || HandshakeConfig::random(REGTEST, engine).unwrap();
    let mut keys = KeyPool::new(engine, count.into());
    keys.fill().unwrap();
    let to_node = (1..=count).map(|number| {
        node.pause_between_networks();
        let from = SocketAddr::from(([127, 10 + round, number, 1], 0));
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&from.into()).unwrap();
        socket.connect(&node.listening.into()).unwrap();
        let keypair = keys.take();
        assert!(keypair.is_some());
        let config = HandshakeConfig {
            keypair,
            ..config()
        };
        let (mut stream, mut handshake) = (
            TcpStream::from(socket),
            Handshake::initiator(config).unwrap(),
        );
        stream.write_all(&handshake.take_output()).unwrap();
        (stream, handshake)
    });
    introduce_all(engine, to_node.collect(), user_agent);

    // The node has one connection to an address.
    let from_node = (1..=count).map(|number| {
        let listener =
            TcpListener::bind(SocketAddr::from(([127, 10 + round, number, 2], 0))).unwrap();
        let address = listener.local_addr().unwrap();
        node.call("addnode", &format!("\"{address}\",\"onetry\""))
            .unwrap();
        listener.set_nonblocking(true).unwrap();
        let begun = Instant::now();
        let stream = loop {
            match listener.accept() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    assert!(begun.elapsed() < LIMIT, "the node does not connect");
                    thread::sleep(Duration::from_millis(1));
                }
                accepted => break accepted.unwrap().0,
            }
        };
        stream.set_nonblocking(false).unwrap();
        (stream, Handshake::responder(config()).unwrap())
    });
    introduce_all(engine, from_node.collect(), user_agent);
}

/// Completes handshakes, whose keys one batch computes, and exchanges `version` on each connection.
fn introduce_all(engine: Engine, mut all: Vec<(TcpStream, Handshake)>, user_agent: &str) {
    let mut batch = OpenBatch::new();
    for (stream, handshake) in &mut all {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(&handshake.take_output()).unwrap();
        let mut key = [0; 64];
        stream.read_exact(&mut key).unwrap();
        let progress = handshake.receive_batched(&mut batch, &key);
        assert!(matches!(progress, Ok(Progress::Waiting)), "{progress:?}");
    }
    engine.open(&mut batch);
    for (_, handshake) in &mut all {
        let progress = handshake.take_keys(&batch);
        assert!(matches!(progress, Ok(Progress::Waiting)), "{progress:?}");
    }
    batch.clear();
    for (stream, handshake) in &mut all {
        let mut bytes = [0; 4096];
        let mut session = loop {
            stream.write_all(&handshake.take_output()).unwrap();
            let len = stream.read(&mut bytes).unwrap();
            assert!(len > 0, "the node has closed: {}", handshake.closed());
            match handshake.receive(&bytes[..len]).unwrap() {
                Progress::Complete(session) => break session,
                progress => assert!(matches!(progress, Progress::Waiting)),
            }
        };
        let mut outgoing = SealBatch::new();
        let outbound = &mut session.outbound;
        let version = (MessageType::literal("version"), version(b"/batch:1.0/"));
        let slot = outbound
            .push_message(&mut outgoing, version.0, &version.1)
            .unwrap();
        engine.seal(&mut outgoing);
        stream.write_all(&handshake.take_output()).unwrap();
        stream.write_all(outgoing.wire(&slot).unwrap()).unwrap();
        let mut len = 0;
        loop {
            session.inbound.receive(&mut batch, len).unwrap();
            engine.open(&mut batch);
            let first = session.inbound.messages(&batch).next();
            if let Some(first) = first {
                let (message_type, payload) = first.unwrap();
                assert_eq!(message_type.name(), "version");
                let text = String::from_utf8_lossy(payload);
                assert!(text.contains(user_agent), "{text}");
                break;
            }
            batch.clear();
            len = stream.read(batch.room(4096)).unwrap();
            assert!(len > 0, "the node has closed");
        }
        batch.clear();
    }
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
            total.1 += (message_type.encoded_len(payload.len()) + Session::OVERHEAD) as u64;
        }
    }
    // Not recorded: the handshake, and what arrived while the command was leaving.
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
    match bitcoind() {
        Some(program) => interoperate(Software::BitcoinCore, &program, "/Satoshi:"),
        None => not_run("interop with Bitcoin Core: BITCOIND_EXE names no bitcoind"),
    }
}
