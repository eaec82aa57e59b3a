//! Messages and errors for misbehaving peers, and our answers to a peer's requests. The peers are
//! implemented here.
//!
//! Every peer is a thread with a listener on the loopback interface. It ends with its connection.

mod common;

use common::node::{LIMIT, Node, REGTEST, version, wait_for_close};
use common::{Finished, Running, listen_on, packetlane};
use packetlane::Engine;
use packetlane::bip324::{Handshake, HandshakeConfig, PacketKind, Progress, stream};
use packetlane::bitcoin::Network;
use packetlane::bitcoin::message::MessageType;
use packetlane::bitcoin::v1;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Passes a listener's connections to `peers`, in order.
fn serve<const N: usize>(
    peers: [fn(TcpStream) -> io::Result<()>; N],
) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let thread = thread::spawn(move || {
        for peer in peers {
            // With a limit, because a command that fails may not connect at all.
            let begun = Instant::now();
            let stream = loop {
                match listener.accept() {
                    Ok((stream, _)) => break stream,
                    Err(_) => thread::sleep(Duration::from_millis(2)),
                }
                assert!(begun.elapsed() < LIMIT, "nobody has connected");
            };
            stream.set_nonblocking(false).unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            stream.set_write_timeout(Some(LIMIT)).unwrap();
            // Most peers end when the command closes the connection.
            let _ = peer(stream);
        }
    });
    (address, thread)
}

/// Connects to `peers` with these options, on regtest.
#[track_caller]
fn connect<const N: usize>(options: &str, peers: [fn(TcpStream) -> io::Result<()>; N]) -> Finished {
    let (address, thread) = serve(peers);
    let finished = packetlane(&format!("connect {address} --network regtest{options}")).finish();
    thread.join().unwrap();
    finished
}

/// Asserts that the command failed with an error that names the peer and contains `expected`.
#[track_caller]
fn assert_error(finished: &Finished, expected: &str) {
    let line = finished.error_line();
    assert!(
        line.starts_with("error: 127.0.0.1:") && line.contains(expected),
        "{line}\nexpected: {expected}"
    );
}

fn good_v1(stream: TcpStream) -> io::Result<()> {
    let mut node = Node::new(stream);
    node.introduce()?;
    node.answer_pings()
}

fn closes_at_once(stream: TcpStream) -> io::Result<()> {
    drop(stream);
    Ok(())
}

/// Like an old node: reads bytes that are not its magic, and closes.
fn closes_on_v2(mut stream: TcpStream) -> io::Result<()> {
    stream.read_exact(&mut [0; 24])
}

fn silent(mut stream: TcpStream) -> io::Result<()> {
    wait_for_close(&mut stream)
}

fn web_server(mut stream: TcpStream) -> io::Result<()> {
    let _ = stream.read(&mut [0; 1024])?;
    stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\nBad Request")
}

fn endless_garbage(mut stream: TcpStream) -> io::Result<()> {
    loop {
        stream.write_all(&[0xa5; 4096])?;
    }
}

/// The responder's side of a v2 handshake on a network.
fn handshake_v2(stream: &mut TcpStream, network: Network) -> io::Result<()> {
    let config = HandshakeConfig::random(network.magic(), Engine::detect().unwrap()).unwrap();
    let mut handshake = Handshake::responder(config).unwrap();
    loop {
        let mut bytes = [0; 4096];
        let length = stream.read(&mut bytes)?;
        let progress = handshake.receive(&bytes[..length]);
        stream.write_all(&handshake.take_output())?;
        match progress {
            Ok(Progress::Waiting) if length > 0 => {}
            Ok(_) => return Ok(()),
            // Too many bytes that are not from this network.
            Err(_) => return wait_for_close(stream),
        }
    }
}

fn v2_on_another_network(mut stream: TcpStream) -> io::Result<()> {
    handshake_v2(&mut stream, Network::Testnet4)
}

fn v2_without_a_version(mut stream: TcpStream) -> io::Result<()> {
    handshake_v2(&mut stream, Network::Regtest)
}

#[test]
fn an_unknown_host() {
    let finished = packetlane("connect host.invalid --timeout 20").finish();
    let line = finished.error_line();
    assert!(
        line.starts_with("error: host.invalid: cannot resolve this host: "),
        "{line}"
    );
}

#[test]
fn a_malformed_address() {
    let finished = packetlane("connect 127.0.0.1:http").finish();
    assert_eq!(
        finished.error_line(),
        "error: 127.0.0.1:http: not an address; expected HOST, HOST:PORT or [IPV6]:PORT"
    );
}

/// The system refuses to connect to the broadcast address. Nothing is sent.
#[test]
fn an_unreachable_host() {
    let finished = packetlane("connect 255.255.255.255").finish();
    let line = finished.error_line();
    assert!(
        line.starts_with("error: 255.255.255.255:8333: unreachable: "),
        "{line}"
    );
}

/// A host that drops packets, as behind a firewall: here a listener that never accepts and whose
/// queue is full.
#[test]
fn a_host_that_does_not_answer() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _inside = runtime.enter();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queue = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(500)) {
        queue.push(stream);
        assert!(queue.len() < 100, "the queue has no end");
    }
    let finished = packetlane(&format!("connect {address} --timeout 3")).finish();
    assert_error(&finished, "unreachable: no answer within 3s");
}

/// The node is killed before it answers.
#[test]
fn a_node_that_stops_during_the_keys() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let node = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        drop(listener);
        drop(stream);
    });
    let finished = packetlane(&format!("connect {address} --network regtest")).finish();
    node.join().unwrap();
    assert_error(
        &finished,
        "the peer closed the connection before it answered, and nothing listens there any more: \
         the node has stopped",
    );
}

#[test]
fn nobody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let finished = packetlane(&format!("connect {address}")).finish();
    assert_error(&finished, "connection refused: nothing listens there");
}

#[test]
fn a_peer_that_is_not_a_bitcoin_node() {
    for options in ["", " --v1", " --v2-only"] {
        assert_error(
            &connect(options, [web_server]),
            "this is not a Bitcoin node: it answered \"HTTP/1.1 400 Bad Request\"",
        );
    }
}

/// A peer that is not a node is reported as soon as it sends something, not at the timeout.
#[test]
fn what_is_detected_at_once() {
    fn ssh_server(mut stream: TcpStream) -> io::Result<()> {
        stream.write_all(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n")?;
        wait_for_close(&mut stream)
    }
    fn short_banner(mut stream: TcpStream) -> io::Result<()> {
        stream.write_all(b"SSH-2.0-Go\r\n")?;
        wait_for_close(&mut stream)
    }
    fn patient_web_server(mut stream: TcpStream) -> io::Result<()> {
        web_server(stream.try_clone()?)?;
        wait_for_close(&mut stream)
    }
    fn v1_of_another_network(mut stream: TcpStream) -> io::Result<()> {
        let mut bytes = Vec::new();
        let magic = Network::Signet.magic();
        let name = MessageType::literal("version");
        v1::Message::new(name, &version(b"")).encode(magic, &mut bytes);
        stream.write_all(&bytes)?;
        wait_for_close(&mut stream)
    }
    fn v1_of_no_network(mut stream: TcpStream) -> io::Result<()> {
        let mut bytes = Vec::new();
        let name = MessageType::literal("version");
        v1::Message::new(name, &[]).encode([1, 2, 3, 4], &mut bytes);
        stream.write_all(&bytes)?;
        wait_for_close(&mut stream)
    }
    fn echo(mut stream: TcpStream) -> io::Result<()> {
        let mut reader = stream.try_clone()?;
        io::copy(&mut reader, &mut stream).map(|_| ())
    }
    let echoed = "the peer sent our own bytes back: it is an echo server";
    /// The peer's behavior, the expected error, and the error with `--v1` if it differs.
    type Case = (fn(TcpStream) -> io::Result<()>, &'static str, &'static str);
    let cases: [Case; 6] = [
        (ssh_server, "\"SSH-2.0-OpenSSH_9.2p1 Debian-2\"", ""),
        (short_banner, "\"SSH-2.0-Go\"", ""),
        (patient_web_server, "\"HTTP/1.1 400 Bad Request\"", ""),
        (
            v1_of_another_network,
            "its magic is signet",
            "the peer is on signet",
        ),
        (
            v1_of_no_network,
            "its magic is 01020304",
            "begins with 01020304",
        ),
        (echo, echoed, ""),
    ];
    for (peer, expected, with_v1) in cases {
        for options in ["", " --v1", " --v2-only"] {
            let begun = Instant::now();
            let finished = connect(options, [peer]);
            let took = begun.elapsed();
            let expected = match with_v1 {
                line if options == " --v1" && !line.is_empty() => line,
                _ => expected,
            };
            assert_error(&finished, expected);
            assert!(
                took < Duration::from_secs(5),
                "{took:?}{options}: {expected}"
            );
        }
    }
}

/// A v1 node that speaks first, whichever side opened the connection.
#[test]
fn a_node_that_answers_in_v1() {
    fn speaks_first(stream: TcpStream) -> io::Result<()> {
        let mut node = Node::new(stream);
        node.send("version", &version(b"/fake:1.0/"))?;
        wait_for_close(&mut node.stream)
    }
    let finished = connect("", [speaks_first, good_v1]).expect_success();
    let transport = "transport         v1, not encrypted: the peer answered v2 in v1\n";
    assert!(finished.stdout.contains(transport), "{finished:#?}");
    assert_error(
        &connect(" --v2-only", [speaks_first]),
        "the peer answered in v1: it speaks v1 only",
    );
}

#[test]
fn another_network_on_v2() {
    assert_error(
        &connect(" --timeout 5", [v2_on_another_network]),
        "that are not a v2 handshake of regtest: it is on another network or is not a Bitcoin node",
    );
}

#[test]
fn another_network_on_v1() {
    fn peer(mut stream: TcpStream) -> io::Result<()> {
        let mut bytes = Vec::new();
        let magic = Network::Signet.magic();
        v1::Message::new(MessageType::literal("version"), &version(b"")).encode(magic, &mut bytes);
        stream.write_all(&bytes)?;
        wait_for_close(&mut stream)
    }
    assert_error(&connect(" --v1", [peer]), "the peer is on signet");
    // Like nodes do.
    assert_error(
        &connect(" --v1", [closes_on_v2]),
        "the peer closed the connection before it sent its version: it refuses us, is not on \
         regtest, or is not a Bitcoin node",
    );
}

#[test]
fn a_peer_that_closes_during_a_handshake() {
    fn within_the_keys(mut stream: TcpStream) -> io::Result<()> {
        // Reads all of the initiator's bytes, so that closing does not reset the connection.
        stream.read_exact(&mut [0; 64])?;
        stream.set_read_timeout(Some(Duration::from_millis(200)))?;
        let _ = wait_for_close(&mut stream);
        stream.write_all(&[0xa5; 64])
    }
    fn within_the_version(stream: TcpStream) -> io::Result<()> {
        let mut node = Node::new(stream);
        node.expect("version")?;
        node.send("version", &version(b""))?;
        node.expect("verack").map(|_| ())
    }
    fn while_talking(stream: TcpStream) -> io::Result<()> {
        let mut node = Node::new(stream);
        node.introduce()?;
        node.expect("ping").map(|_| ())
    }
    assert_error(
        &connect("", [within_the_keys]),
        "the peer closed the connection during the v2 handshake, after 64 bytes",
    );
    assert_error(
        &connect("", [v2_without_a_version]),
        "the peer closed the connection before it sent its version",
    );
    assert_error(
        &connect(" --v1", [within_the_version]),
        "the peer closed the connection during the version handshake",
    );
    let finished = connect(" --v1", [while_talking]);
    assert_error(&finished, "the peer closed the connection");
    // The report covers everything before the error.
    assert!(finished.stdout.contains("/fake:1.0/"), "{finished:#?}");
}

#[test]
fn a_peer_that_sends_endless_garbage() {
    assert_error(
        &connect("", [endless_garbage]),
        "that are not a v2 handshake of regtest",
    );
    assert_error(
        &connect(" --v1", [endless_garbage]),
        "the message begins with a5a5a5a5: not the magic of this network",
    );
}

/// Well-formed messages, but never the expected one.
#[test]
fn endless_messages() {
    fn before_its_version(stream: TcpStream) -> io::Result<()> {
        let mut node = Node::new(stream);
        for number in 0_u64.. {
            // Unknown types, more than are counted separately.
            let name = format!("type{}", number % 100_000);
            node.send(&name, &[0; 100])?;
        }
        Ok(())
    }
    fn instead_of_a_pong(stream: TcpStream) -> io::Result<()> {
        let mut node = Node::new(stream);
        node.introduce()?;
        loop {
            node.send("pong", &[0; 8])?;
        }
    }
    assert_error(
        &connect(" --v1 --timeout 5", [before_its_version]),
        "the peer did not finish the version handshake within 5s",
    );
    assert_error(
        &connect(" --v1 --timeout 5", [instead_of_a_pong]),
        "the peer did not answer a ping within 5s",
    );
}

#[test]
fn a_silent_peer() {
    let expected = "the connection is open, but the peer sent nothing for 3s";
    for options in [" --v1", " --v2-only"] {
        assert_error(
            &connect(&format!("{options} --timeout 3"), [silent]),
            expected,
        );
    }
    // It may speak v1 only, and wait for the rest of a message.
    assert_error(&connect(" --timeout 3", [silent, silent]), expected);
    let finished = connect(" --timeout 3", [silent, good_v1]).expect_success();
    let transport = "transport         v1, not encrypted: the peer did not answer v2\n";
    assert!(finished.stdout.contains(transport), "{finished:#?}");
}

#[test]
fn a_peer_that_sends_its_version_and_nothing_else() {
    fn peer(stream: TcpStream) -> io::Result<()> {
        let mut node = Node::new(stream);
        node.send("version", &version(b"/fake:1.0/"))?;
        wait_for_close(&mut node.stream)
    }
    assert_error(
        &connect(" --v1 --timeout 2", [peer]),
        "the peer did not finish the version handshake within 2s: it sent its version but no \
         verack",
    );
}

#[test]
fn a_peer_that_stops_within_its_public_key() {
    fn peer(mut stream: TcpStream) -> io::Result<()> {
        stream.write_all(&[0xa5; 63])?;
        wait_for_close(&mut stream)
    }
    assert_error(
        &connect(" --timeout 3", [peer]),
        "the peer did not finish the v2 handshake: 63 bytes in 3s",
    );
}

#[test]
fn a_v1_only_node() {
    let finished = connect("", [closes_on_v2, good_v1]).expect_success();
    let report = &finished.stdout;
    for line in [
        "transport         v1, not encrypted: the peer closed the v2 connection\n",
        "user agent        /fake:1.0/\n",
        "protocol version  70016\n",
        "services          NETWORK, WITNESS, P2P_V2\n",
        "start height      7\n",
        "\npings             3: min ",
    ] {
        assert!(report.contains(line), "{line:?} in {report}");
    }
    assert!(!report.contains("session id"), "{report}");
    assert_eq!(finished.row("ping"), [0, 0, 3, 96]);
    assert_eq!(finished.row("pong"), [3, 96, 0, 0]);

    assert_error(
        &connect(" --v2-only", [closes_on_v2]),
        "the peer closed the connection before it answered: it may speak v1 only",
    );
    // A reset counts as a close.
    connect("", [closes_at_once, good_v1]).expect_success();
    assert_error(
        &connect("", [closes_at_once, closes_at_once]),
        "the peer closed the connection before it answered, with v2 and with v1",
    );
}

#[test]
fn malformed_payloads() {
    fn version_that_is_cut(stream: TcpStream) -> io::Result<()> {
        let mut node = Node::new(stream);
        node.send("version", &version(b"")[..80])?;
        wait_for_close(&mut node.stream)
    }
    fn too_many_headers(stream: TcpStream) -> io::Result<()> {
        let mut node = Node::new(stream);
        node.introduce()?;
        node.expect("getheaders")?;
        node.send("headers", &[0xff; 9])?;
        wait_for_close(&mut node.stream)
    }
    fn loose_headers(stream: TcpStream) -> io::Result<()> {
        let mut node = Node::new(stream);
        node.introduce()?;
        node.expect("getheaders")?;
        let mut headers = [0; 82];
        headers[0] = 1;
        node.send("headers", &headers)?;
        wait_for_close(&mut node.stream)
    }
    fn endless_message(mut stream: TcpStream) -> io::Result<()> {
        let mut header = Vec::new();
        v1::Message::new(MessageType::literal("version"), &[]).encode(REGTEST, &mut header);
        header[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
        stream.write_all(&header)?;
        wait_for_close(&mut stream)
    }
    assert_error(
        &connect(" --v1", [version_that_is_cut]),
        "the peer's version message is malformed: it ends too early",
    );
    assert_error(
        &connect(" --v1 --fetch 1", [too_many_headers]),
        "the peer's headers message is malformed: it claims 18446744073709551615 entries or \
         bytes; the limit is 2000",
    );
    assert_error(
        &connect(" --v1 --fetch 1", [loose_headers]),
        "the peer's headers do not form a chain: number 1 after block \
         0f9188f13cb7b2c71f2a335e3a4fc328bf5beb436012afca590b1a11466e2206 builds on another block",
    );
    assert_error(
        &connect(" --v1", [endless_message]),
        "the peer announced a payload of 4294967295 bytes; the limit is 4000000",
    );
}

/// A header that builds on regtest's genesis block.
fn header_on_genesis(nonce: u8) -> [u8; 80] {
    let genesis = "0f9188f13cb7b2c71f2a335e3a4fc328bf5beb436012afca590b1a11466e2206";
    let mut header = [nonce; 80];
    for (index, byte) in header[4..36].iter_mut().rev().enumerate() {
        *byte = u8::from_str_radix(&genesis[2 * index..2 * index + 2], 16).unwrap();
    }
    header
}

/// Sends one header. Returns the command's next request.
fn one_header(stream: TcpStream) -> io::Result<(Node, Vec<u8>)> {
    let mut node = Node::new(stream);
    node.introduce()?;
    node.expect("getheaders")?;
    let mut headers = vec![1];
    headers.extend_from_slice(&header_on_genesis(0));
    headers.push(0);
    node.send("headers", &headers)?;
    let asked = node.expect("getdata")?;
    assert_eq!(asked.len(), 37);
    Ok((node, asked))
}

#[test]
fn blocks_are_checked() {
    fn right(stream: TcpStream) -> io::Result<()> {
        let (mut node, _) = one_header(stream)?;
        node.send("block", &header_on_genesis(0))?;
        node.answer_pings()
    }
    fn wrong(stream: TcpStream) -> io::Result<()> {
        let (mut node, _) = one_header(stream)?;
        node.send("block", &header_on_genesis(1))?;
        wait_for_close(&mut node.stream)
    }
    fn pruned(stream: TcpStream) -> io::Result<()> {
        let (mut node, asked) = one_header(stream)?;
        node.send("notfound", &asked)?;
        node.answer_pings()
    }
    fn lazy(stream: TcpStream) -> io::Result<()> {
        one_header(stream)?.0.answer_pings()
    }
    let finished = connect(" --v1 --fetch 5", [right]).expect_success();
    assert!(
        finished
            .stdout
            .contains("fetched           1 headers, 1 of 5 blocks (80 bytes) in "),
        "{finished:#?}"
    );
    assert!(
        finished.stdout.contains(": the peer's chain has no more\n"),
        "{finished:#?}"
    );
    assert_error(
        &connect(" --v1 --fetch 1", [wrong]),
        "which was not requested",
    );
    assert_error(
        &connect(" --v1 --fetch 1", [pruned]),
        "the peer does not have 1 of the requested blocks",
    );
    assert_error(
        &connect(" --v1 --fetch 1 --timeout 5", [lazy]),
        "the peer sent no blocks for 5s",
    );
}

/// Headers of a chain on regtest's genesis block.
fn chain(length: usize) -> Vec<[u8; 80]> {
    let mut headers = vec![header_on_genesis(0)];
    while headers.len() < length {
        let mut next = [headers.len() as u8; 80];
        let last = headers.last().unwrap();
        next[4..36].copy_from_slice(&Sha256::digest(Sha256::digest(last)));
        headers.push(next);
    }
    headers
}

fn hash_of(header: &[u8; 80]) -> String {
    let hash = Sha256::digest(Sha256::digest(header));
    hash.iter()
        .rev()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A node with [`chain`]`(5)`. Like Bitcoin Core, it answers `getheaders` with an unknown block
/// from the genesis block on.
fn node_with_a_chain(stream: TcpStream) -> io::Result<()> {
    let mut node = Node::new(stream);
    node.introduce()?;
    let chain = chain(5);
    loop {
        let (name, payload) = node.receive()?;
        match name.as_str() {
            "getheaders" => {
                let known = &payload[5..37];
                let begins = chain.iter().position(|header| header[4..36] == *known);
                let has_tip = Sha256::digest(Sha256::digest(chain[4]))[..] == *known;
                let rest = match has_tip {
                    true => &[],
                    false => &chain[begins.unwrap_or(0)..],
                };
                let mut headers = vec![rest.len() as u8];
                for header in rest {
                    headers.extend_from_slice(header);
                    headers.push(0);
                }
                node.send("headers", &headers)?;
            }
            "getdata" => {
                for entry in payload[1..].chunks(36) {
                    let is_it = |header: &&[u8; 80]| {
                        Sha256::digest(Sha256::digest(header))[..] == entry[4..]
                    };
                    match chain.iter().find(is_it) {
                        Some(header) => node.send("block", header)?,
                        None => node.send("notfound", &[&[1], entry].concat())?,
                    }
                }
            }
            "ping" => node.send("pong", &payload)?,
            _ => {}
        }
    }
}

#[test]
fn fetching_begins_at_a_height_or_a_hash() {
    let chain = chain(5);
    let third = hash_of(&chain[2]);
    let unknown = "ab".repeat(32);
    let genesis = "0f9188f13cb7b2c71f2a335e3a4fc328bf5beb436012afca590b1a11466e2206";
    let more = ": the peer's chain has no more\n";
    for (options, expected, ends) in [
        ("--fetch 2", "5 headers, 2 of 2 blocks (160 bytes) in ", ""),
        (
            "--fetch 2 --from 3",
            "5 headers, 2 of 2 blocks (160 bytes) in ",
            "",
        ),
        (
            "--fetch 9 --from 3",
            "5 headers, 3 of 9 blocks (240 bytes) in ",
            more,
        ),
        (
            "--fetch 9 --from 6",
            "5 headers, 0 of 9 blocks (0 bytes) in ",
            more,
        ),
        (
            &format!("--fetch 9 --from {third}"),
            "2 headers, 3 of 9 blocks (240 bytes) in ",
            more,
        ),
        (
            &format!("--fetch 1 --from {}", hash_of(&chain[4])),
            "0 headers, 1 of 1 blocks (80 bytes) in ",
            "",
        ),
    ] {
        let finished = connect(&format!(" --v1 {options}"), [node_with_a_chain]).expect_success();
        let lines = finished.stdout.lines();
        let line = lines
            .map(|line| format!("{line}\n"))
            .find(|line| line.starts_with("fetched"));
        let line = line.unwrap_or_default();
        assert!(line.contains(expected), "{options}: {line}");
        assert_eq!(line.contains(more), !ends.is_empty(), "{options}: {line}");
    }
    for (options, expected) in [
        (
            format!("--fetch 2 --from {unknown}"),
            format!("block {unknown} is not in the peer's chain: choose another block with --from"),
        ),
        (
            "--fetch 2 --from 7".to_owned(),
            "the peer's chain ends at height 5: there is no block at 7 to start at".to_owned(),
        ),
        (
            // The node does not have this block.
            format!("--fetch 1 --from {genesis}"),
            "the peer does not have 1 of the requested blocks".to_owned(),
        ),
    ] {
        let finished = connect(&format!(" --v1 {options}"), [node_with_a_chain]);
        assert_error(&finished, &expected);
    }
}

/// A pruned node would disconnect, so it is not asked.
#[test]
fn fetching_from_a_node_without_the_blocks() {
    fn with_services(stream: TcpStream, services: u64, height: i32) -> io::Result<Node> {
        let mut version = version(b"/fake:1.0/");
        version[4..12].copy_from_slice(&services.to_le_bytes());
        let end = version.len();
        version[end - 5..end - 1].copy_from_slice(&height.to_le_bytes());
        let mut node = Node::new(stream);
        node.expect("version")?;
        node.send("version", &version)?;
        node.send("verack", &[])?;
        Ok(node)
    }
    fn pruned(stream: TcpStream) -> io::Result<()> {
        with_services(stream, 0xc08, 1000)?.answer_pings()
    }
    fn pruned_and_closes(stream: TcpStream) -> io::Result<()> {
        with_services(stream, 0xc08, 1000)?
            .expect("getheaders")
            .map(|_| ())
    }
    fn without_blocks(stream: TcpStream) -> io::Result<()> {
        with_services(stream, 0x808, 1000)?.answer_pings()
    }
    assert_error(
        &connect(" --v1 --fetch 5", [pruned]),
        "the peer is pruned (NETWORK_LIMITED without NETWORK): it serves blocks from about \
         height 713, and 1 is older; use --from 713 or higher",
    );
    assert_error(
        &connect(" --v1 --fetch 5 --from 713", [pruned_and_closes]),
        "the peer closed the connection; it is pruned (NETWORK_LIMITED without NETWORK) and \
         serves only its latest 288 blocks",
    );
    assert_error(
        &connect(" --v1 --fetch 5", [without_blocks]),
        "the peer serves no blocks, so there is nothing to fetch: its services are WITNESS, \
         P2P_V2",
    );
    // Without --fetch these are ordinary nodes.
    connect(" --v1", [pruned]).expect_success();
}

/// Requests that a peer must answer; other messages get no answer.
#[test]
fn requests_are_answered() {
    fn curious(stream: TcpStream) -> io::Result<()> {
        let mut node = Node::new(stream);
        node.introduce()?;
        for quiet in [
            "sendheaders",
            "wtxidrelay",
            "getaddr",
            "mempool",
            "feefilter",
        ] {
            node.send(quiet, &[])?;
        }
        node.send("ping", &[])?;
        node.send("ping", b"12345678")?;
        assert_eq!(node.expect("pong")?, b"12345678");
        node.send("getheaders", &[0; 37])?;
        assert_eq!(node.expect("headers")?, [0]);
        let mut question = vec![2];
        question.extend_from_slice(&[1; 72]);
        node.send("getdata", &question)?;
        assert_eq!(node.expect("notfound")?, question);
        // The answer to the command's ping never comes.
        node.send("inv", b"done")?;
        wait_for_close(&mut node.stream)
    }
    let finished = connect(" --v1 --timeout 5", [curious]);
    assert_error(&finished, "the peer did not answer a ping within 5s");
    assert_eq!(finished.row("ping"), [2, 56, 1, 32]);
    assert_eq!(finished.row("pong"), [0, 0, 1, 32]);
    assert_eq!(finished.row("notfound"), [0, 0, 1, 97]);
    assert_eq!(finished.row("headers"), [0, 0, 1, 25]);
    assert_eq!(finished.row("inv"), [1, 28, 0, 0], "it came this far");
}

#[test]
fn a_user_agent_cannot_control_the_terminal() {
    fn peer(stream: TcpStream) -> io::Result<()> {
        let mut node = Node::new(stream);
        node.expect("version")?;
        node.send("version", &version(b"/\x1b[2J\n\xff/"))?;
        node.send("verack", &[])?;
        node.answer_pings()
    }
    let finished = connect(" --v1", [peer]).expect_success();
    assert!(
        finished
            .stdout
            .contains(r"user agent        /\x1b[2J\n\xff/"),
        "{finished:#?}"
    );
}

#[test]
fn staying_and_recording() {
    let dir = std::env::temp_dir().join(format!("packetlane-fake-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let options = format!(" --v1 --for 1 --record {}", dir.display());
    let begun = Instant::now();
    connect(&options, [good_v1]).expect_success();
    assert!(begun.elapsed() >= Duration::from_secs(1));
    let conversations = packetlane_p2p::capture::read_dir(&dir)
        .unwrap()
        .conversations;
    assert_eq!(conversations.len(), 1);
    let names = |records: &[packetlane_p2p::capture::Record]| -> Vec<_> {
        let name = |record: &packetlane_p2p::capture::Record| record.message_type.name().to_owned();
        records.iter().map(name).collect()
    };
    assert_eq!(
        names(&conversations[0].received),
        ["version", "sendaddrv2", "verack", "pong", "pong", "pong"]
    );
    assert_eq!(
        names(&conversations[0].sent),
        ["version", "verack", "ping", "ping", "ping"]
    );

    // A recording is never overwritten.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let finished = packetlane(&format!(
        "connect {address} --network regtest --record {}",
        dir.display()
    ))
    .finish();
    let line = finished.error_line();
    assert!(
        line.starts_with("error: cannot record messages in ") && line.contains("msgs_recv.dat: "),
        "{line}"
    );
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A v2 peer that answers pings, and sends decoys and invalid packets in between.
fn good_v2(stream: TcpStream) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    stream.set_nonblocking(true)?;
    let talk = async {
        let mut stream = tokio::net::TcpStream::from_std(stream)?;
        let engine = Engine::detect().unwrap();
        let config = HandshakeConfig::random(REGTEST, engine).unwrap();
        let handshake = Handshake::responder(config).unwrap();
        let accepted = stream::handshake(&mut stream, handshake, LIMIT).await;
        let Ok(stream::Accepted::V2(session)) = accepted else {
            panic!("{accepted:?}");
        };
        let (read, write) = stream.into_split();
        let mut reader = stream::Reader::new(read, engine, session.inbound);
        let mut writer = stream::Writer::new(write, engine, session.outbound);
        loop {
            let Ok(contents) = reader.read().await else {
                return Ok(());
            };
            let (message_type, payload) = MessageType::decode(contents).unwrap();
            let answers = match message_type.name() {
                "version" => vec![("version", version(b"/fake:2.0/")), ("verack", vec![])],
                "ping" => vec![("pong", payload.to_vec())],
                _ => vec![],
            };
            for (name, payload) in answers {
                let mut contents = Vec::new();
                MessageType::literal(name).encode(&payload, &mut contents);
                writer.push(PacketKind::Decoy, &[0; 100]).unwrap();
                for unknown in [&[127; 10][..], &[38], &[], b"\0pong"] {
                    writer.push(PacketKind::Genuine, unknown).unwrap();
                }
                writer.push(PacketKind::Genuine, &contents).unwrap();
                if writer.flush().await.is_err() {
                    return Ok(());
                }
            }
        }
    };
    runtime.block_on(talk)
}

/// Relays one connection to `address`. Returns how many bytes came from each side.
fn pass_on(address: SocketAddr) -> (SocketAddr, JoinHandle<[u64; 2]>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = listener.local_addr().unwrap();
    let thread = thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let server = TcpStream::connect(address).unwrap();
        let (from_client, to_client) = (client.try_clone().unwrap(), client);
        let (from_server, to_server) = (server.try_clone().unwrap(), server);
        let answers = thread::spawn(move || io::copy(&mut &from_server, &mut &to_client).unwrap());
        let sent = io::copy(&mut &from_client, &mut &to_server).unwrap();
        to_server.shutdown(Shutdown::Write).unwrap();
        [answers.join().unwrap(), sent]
    });
    (here, thread)
}

/// All bytes of the socket, as nodes count them, including the handshake and decoys.
#[test]
fn the_totals_equal_the_bytes_of_the_socket() {
    for (peer, options) in [
        (good_v2 as fn(TcpStream) -> io::Result<()>, "--v2-only"),
        (good_v1, "--v1"),
    ] {
        let (address, node) = serve([peer]);
        let (address, passed) = pass_on(address);
        let finished = packetlane(&format!("connect {address} --network regtest {options}"));
        let finished = finished.finish().expect_success();
        let [received, sent] = passed.join().unwrap();
        node.join().unwrap();
        let [_, total_received, _, total_sent] = finished.row("total");
        assert_eq!(
            [total_received, total_sent],
            [received, sent],
            "{finished:#?}"
        );
        if options == "--v2-only" {
            let [_, received, _, sent] = finished.row("(handshake)");
            assert!(received >= 100 && sent >= 100, "{finished:#?}");
            // The decoys before the messages version, verack and three pongs.
            assert_eq!(finished.row("(rest)"), [0, 5 * 120, 0, 0]);
            assert_eq!(
                finished.row("(other)"),
                [5 * 4, 5 * (4 * 20 + 16), 0, 0],
                "{finished:#?}"
            );
            for line in ["received 5 decoys\n", "\nignored messages: 20 ("] {
                assert!(finished.stdout.contains(line), "{finished:#?}");
            }
        }
    }
}

#[test]
fn the_report_as_json() {
    let finished = connect(" --v1 --json", [good_v1]).expect_success();
    let report: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
    for (pointer, expected) in [
        ("/schema", json!(1)),
        ("/network", json!("regtest")),
        ("/transport", json!("v1")),
        ("/fell_back", json!(false)),
        ("/session_id", json!(null)),
        ("/user_agent", json!("/fake:1.0/")),
        ("/protocol_version", json!(70016)),
        ("/services", json!("0000000000000809")),
        ("/services_names/2", json!("P2P_V2")),
        ("/start_height", json!(7)),
        ("/closed_by", json!("us")),
        ("/fetched", json!(null)),
        ("/error", json!(null)),
        ("/total/sent", json!(5)),
    ] {
        assert_eq!(
            report.pointer(pointer),
            Some(&expected),
            "{pointer} in {report}"
        );
    }
    assert_eq!(report["pings"].as_array().unwrap().len(), 3);
    assert!(report["seconds"]["tcp"].as_f64().unwrap() > 0.0);
    let messages = report["messages"].as_array().unwrap();
    let ping = messages.iter().find(|row| row["type"] == "ping").unwrap();
    assert_eq!([&ping["sent"], &ping["sent_bytes"]], [3, 96]);

    // An error after the handshakes is in the report.
    fn leaves(stream: TcpStream) -> io::Result<()> {
        Node::new(stream).introduce()
    }
    let finished = connect(" --v1 --json", [leaves]);
    let report: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(report["closed_by"], "the peer");
    let error = report["error"].as_str().unwrap();
    assert_eq!(finished.error_line(), format!("error: {error}"));
}

/// Starts `listen --once`. Returns the process and its address.
fn listen(options: &str) -> (Running, SocketAddr) {
    listen_on("127.0.0.1:0", &format!(" --once{options}"))
}

/// `connect` and `listen` with each other, over each transport.
#[test]
fn connect_and_listen() {
    for (option, transport) in [
        ("--v2-only", "v2, encrypted"),
        ("--v1", "v1, not encrypted"),
    ] {
        let (listening, address) = listen("");
        let connected = packetlane(&format!(
            "connect {address} --network regtest {option} --fetch 3"
        ));
        let connected = connected.finish().expect_success();
        let listening = listening.finish().expect_success();
        let line = |finished: &Finished, key: &str| {
            let line = finished.stdout.lines().find(|line| line.starts_with(key));
            line.map(str::to_owned)
        };
        for finished in [&connected, &listening] {
            let transport = format!("transport         {transport}");
            assert!(finished.stdout.contains(&transport), "{finished:#?}");
        }
        assert_eq!(
            line(&connected, "session id"),
            line(&listening, "session id")
        );
        // Each side received what the other sent.
        let [received, received_bytes, sent, sent_bytes] = connected.row("ping");
        assert_eq!(
            listening.row("ping"),
            [sent, sent_bytes, received, received_bytes]
        );
        assert!(
            connected.stdout.contains("0 headers, 0 of 3 blocks"),
            "{connected:#?}"
        );
    }
}

#[test]
fn listening_to_misbehaving_peers() {
    let say = |options: &str, bytes: &[u8]| {
        let (listening, address) = listen(options);
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(bytes).unwrap();
        let finished = listening.finish();
        drop(stream);
        finished.error_line().to_owned()
    };
    let mut other_network = Vec::new();
    v1::Message::new(MessageType::literal("version"), &version(b""))
        .encode(Network::Mainnet.magic(), &mut other_network);
    for (bytes, expected) in [
        (
            &b""[..],
            "the connection is open, but the peer sent nothing for 3s",
        ),
        (
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            "this is not a Bitcoin node: it answered \"GET / HTTP/1.1\"",
        ),
        (
            &other_network,
            "the peer speaks v1 on another network: its magic is main",
        ),
        (
            &[0xa5; 64],
            "the peer sent 64 bytes that are not a v2 handshake of regtest",
        ),
        (
            &[0xa5; 10_000],
            "that are not a v2 handshake of regtest: it is on another network or is not a Bitcoin node",
        ),
        (
            b"\xfa\xbf\xb5\xdaversion\0\0\0\0\0",
            "the peer did not finish the version handshake within 3s",
        ),
    ] {
        let line = say(" --timeout 3", bytes);
        assert!(line.contains(expected), "{line}\nexpected: {expected}");
    }
    // Detected at once.
    let begun = Instant::now();
    let line = say("", b"GET / HTTP/1.1\r\n\r\n");
    assert!(line.contains("it answered \"GET / HTTP/1.1\""), "{line}");
    let line = say(" --v1", &[0xa5; 64]);
    assert!(
        line.contains("the peer does not speak v1: it tries v2 first"),
        "{line}"
    );
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
}

/// A port scanner connects and leaves.
#[test]
fn a_client_that_sends_nothing() {
    for options in ["", " --v1"] {
        let (listening, address) = listen(options);
        drop(TcpStream::connect(address).unwrap());
        let finished = listening.finish();
        assert_error(
            &finished,
            "the peer connected and left without sending a byte, as a port scan does",
        );
    }
}

/// A node that speaks only v1, to which other nodes reconnect over v1.
#[test]
fn listening_with_v1_only() {
    let (mut listening, address) = listen_on("127.0.0.1:0", " --v1");
    let connected = packetlane(&format!("connect {address} --network regtest"));
    let connected = connected.finish().expect_success();
    let transport = "transport         v1, not encrypted: the peer closed the v2 connection\n";
    assert!(connected.stdout.contains(transport), "{connected:#?}");
    let line = listening.line();
    assert!(line.contains(" has connected: v1, /packetlane:"), "{line}");
}

/// It reports each peer when it connects, and who closed the connection and when.
#[test]
fn listening_reports_peers_that_come_and_go() {
    let (mut listening, address) = listen_on("127.0.0.1:0", " --for 2");
    let greet = |pings: usize| {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let remote = stream.local_addr().unwrap();
        let mut node = Node::new(stream);
        node.send("version", &version(b"/fake:1.0/")).unwrap();
        node.expect("verack").unwrap();
        node.send("verack", &[]).unwrap();
        for _ in 0..pings {
            let nonce = node.expect("ping").unwrap();
            node.send("pong", &nonce).unwrap();
        }
        (node, remote)
    };
    for leaves in [true, false] {
        let (mut node, remote) = greet(3);
        let line = listening.line();
        assert_eq!(line, format!("{remote} has connected: v1, /fake:1.0/\n"));
        match leaves {
            true => drop(node),
            false => wait_for_close(&mut node.stream).unwrap(),
        }
        let closed = loop {
            let line = listening.line();
            if line.starts_with("closed") || line.is_empty() {
                break line;
            }
        };
        let (start, end) = match leaves {
            true => ("closed            after ", "s, by the peer\n"),
            false => ("closed            after 2.", " s, by us\n"),
        };
        assert!(
            closed.starts_with(start) && closed.ends_with(end),
            "{closed}"
        );
        while !listening.line().starts_with("total") {}
    }
    let (_node, _) = greet(1);
    while !listening.line().contains("has connected") {}
    listening.signal("TERM");
    let finished = listening.finish().expect_success();
    assert!(finished.stdout.contains(", by SIGTERM\n"), "{finished:#?}");
}

/// A client that waits for our verack, and whose system delays the acknowledgement of our version.
#[cfg(target_os = "linux")]
#[test]
fn small_messages_are_not_delayed() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (_listening, address) = listen_on("127.0.0.1:0", "");
    let exchange = || {
        let connected = tokio::net::TcpStream::connect(address);
        let stream = runtime.block_on(connected).unwrap();
        stream.set_quickack(false).unwrap();
        let stream = stream.into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let begun = Instant::now();
        let mut node = Node::new(stream);
        node.send("version", &version(b"/fake:1.0/")).unwrap();
        node.expect("verack").unwrap();
        begun.elapsed()
    };
    let fastest = (0..10).map(|_| exchange()).min().unwrap();
    assert!(fastest < Duration::from_millis(30), "{fastest:?}");
}

#[test]
fn the_command_line_is_checked() {
    let finished = packetlane("connect 127.0.0.1 --v1 --v2-only").finish();
    assert!(!finished.success);
    assert!(finished.stderr.contains("--v2-only"), "{finished:#?}");
    let finished = packetlane("connect 127.0.0.1 --network moon").finish();
    assert!(!finished.success);
    assert!(finished.stderr.contains("testnet4"), "{finished:#?}");
    let finished = packetlane("connect 127.0.0.1 --fetch 1000001").finish();
    assert!(!finished.success);
    assert!(finished.stderr.contains("--fetch <N>"), "{finished:#?}");
    let finished = packetlane("connect 127.0.0.1 --fetch 1 --from here").finish();
    assert!(!finished.success);
    assert!(
        finished
            .stderr
            .contains("expected a height, or a block's hash"),
        "{finished:#?}"
    );
    let finished = packetlane("connect 127.0.0.1 --from 5").finish();
    assert!(!finished.success);
    assert!(finished.stderr.contains("--fetch <N>"), "{finished:#?}");
    // Bitcoin Core's name for testnet3.
    let line = packetlane("connect 127.0.0.1:x --network test").finish();
    assert!(line.error_line().contains("not an address"), "{line:#?}");
}
