//! Messages and errors for peers that misbehave, and our answers to a peer's requests. The
//! peers are written here.
//!
//! Every peer is a thread with a listener on the loopback interface. It ends with its
//! connection.

mod common;

use common::{Finished, packetlane};
use packetlane::Engine;
use packetlane::bip324::{Handshake, HandshakeConfig, MessageType, Network, Progress};
use packetlane::bitcoin::v1;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a peer waits for anything.
const LIMIT: Duration = Duration::from_secs(30);

const REGTEST: [u8; 4] = Network::Regtest.magic();

/// Passes a listener's connections to `peers`, in order.
fn serve<const N: usize>(
    peers: [fn(TcpStream) -> io::Result<()>; N],
) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let thread = thread::spawn(move || {
        for peer in peers {
            // With a limit: a command that fails may not connect at all.
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

/// Reads until the command closes the connection.
fn wait_for_close(stream: &mut TcpStream) -> io::Result<()> {
    io::copy(stream, &mut io::sink()).map(|_| ())
}

/// A v1 peer that behaves well unless told otherwise.
struct Node {
    stream: TcpStream,
    received: Vec<u8>,
    /// Nonces of pings that arrived while something else was expected.
    pings: Vec<Vec<u8>>,
}

impl Node {
    fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            received: Vec::new(),
            pings: Vec::new(),
        }
    }

    fn send(&mut self, name: &str, payload: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::new();
        v1::encode(REGTEST, MessageType::literal(name), payload, &mut bytes);
        self.stream.write_all(&bytes)
    }

    fn receive(&mut self) -> io::Result<(String, Vec<u8>)> {
        loop {
            if let Some(message) = v1::decode(REGTEST, &self.received).expect("what it sends") {
                let name = message.message_type.name().to_owned();
                let payload = message.payload.to_vec();
                let length = message.wire_len();
                self.received.drain(..length);
                return Ok((name, payload));
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => self.received.extend_from_slice(&bytes[..length]),
            }
        }
    }

    /// The next message with this name.
    fn expect(&mut self, expected: &str) -> io::Result<Vec<u8>> {
        loop {
            let (name, payload) = self.receive()?;
            if name == expected {
                return Ok(payload);
            }
            if name == "ping" {
                self.pings.push(payload);
            }
        }
    }

    fn introduce(&mut self) -> io::Result<()> {
        self.expect("version")?;
        self.send("version", &version(b"/fake:1.0/"))?;
        self.send("sendaddrv2", &[])?;
        self.send("verack", &[])?;
        self.expect("verack").map(|_| ())
    }

    /// Answers pings until the command closes the connection.
    fn answer_pings(&mut self) -> io::Result<()> {
        loop {
            for nonce in std::mem::take(&mut self.pings) {
                self.send("pong", &nonce)?;
            }
            let nonce = self.expect("ping")?;
            self.pings.push(nonce);
        }
    }
}

/// The payload of a `version` message.
fn version(user_agent: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    payload.extend_from_slice(&70016_i32.to_le_bytes());
    payload.extend_from_slice(&0x809_u64.to_le_bytes());
    payload.extend_from_slice(&[0; 8 + 26 + 26 + 8]);
    payload.push(user_agent.len() as u8);
    payload.extend_from_slice(user_agent);
    payload.extend_from_slice(&7_i32.to_le_bytes());
    payload.push(1);
    payload
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

/// Like old nodes: reads bytes that are not its magic, and closes.
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
            // Too many bytes that are not of this network.
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
        line.starts_with("error: host.invalid: cannot find this host: "),
        "{line}"
    );
}

#[test]
fn a_malformed_address() {
    let finished = packetlane("connect 127.0.0.1:http").finish();
    assert_eq!(
        finished.error_line(),
        "error: 127.0.0.1:http: not an address; give HOST, HOST:PORT or [IPV6]:PORT"
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

/// A host that drops packets, like one behind a firewall: here a listener that never accepts
/// and whose queue is full.
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
        v1::encode(
            magic,
            MessageType::literal("version"),
            &version(b""),
            &mut bytes,
        );
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
        // All of the initiator's bytes, so that closing does not reset the connection.
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
    // The report on what was seen before the error.
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

/// Well-formed messages, but never the one that is awaited.
#[test]
fn endless_messages() {
    fn before_its_version(stream: TcpStream) -> io::Result<()> {
        let mut node = Node::new(stream);
        for number in 0_u64.. {
            // Unknown types, and more of them than are counted separately.
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
    for options in ["", " --v1", " --v2-only"] {
        assert_error(
            &connect(&format!("{options} --timeout 3"), [silent]),
            "the connection is open, but the peer sent nothing for 3s",
        );
    }
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
fn a_node_that_knows_v1_only() {
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
        v1::encode(REGTEST, MessageType::literal("version"), &[], &mut header);
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
         bytes where 2000 are allowed",
    );
    assert_error(
        &connect(" --v1 --fetch 1", [loose_headers]),
        "the peer's headers do not form a chain from the genesis block: the one at height 1 \
         builds on another block",
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
    assert_error(
        &connect(" --v1 --fetch 1", [wrong]),
        "which it was not asked for",
    );
    assert_error(
        &connect(" --v1 --fetch 1", [pruned]),
        "the peer does not have 1 of the blocks whose headers it sent",
    );
    assert_error(
        &connect(" --v1 --fetch 1 --timeout 5", [lazy]),
        "the peer sent no blocks for 5s",
    );
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
        // The command waits for the answer to its ping, which never comes.
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
    let conversations = packetlane_lab::capture::read_dir(&dir).unwrap();
    assert_eq!(conversations.len(), 1);
    let names = |records: &[packetlane_lab::capture::Record]| -> Vec<_> {
        let name = |record: &packetlane_lab::capture::Record| record.message_type.name().to_owned();
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

/// Starts `listen --once`. Returns the process and its address.
fn listen(options: &str) -> (common::Running, SocketAddr) {
    let mut listening = packetlane(&format!(
        "listen 127.0.0.1:0 --once --network regtest{options}"
    ));
    let line = listening.line();
    let address = line
        .strip_prefix("listening on ")
        .and_then(|line| line.strip_suffix(" (regtest)\n"))
        .unwrap_or_else(|| panic!("{line}"));
    let address = address.parse().unwrap();
    (listening, address)
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
        // One side received what the other sent.
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
    v1::encode(
        Network::Mainnet.magic(),
        MessageType::literal("version"),
        &version(b""),
        &mut other_network,
    );
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
}
