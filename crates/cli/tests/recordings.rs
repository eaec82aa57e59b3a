//! The files of `--record`: for strangers, for peers that return, for failed connections and after
//! a kill; and that they can be replayed.

mod common;

use common::node::{LIMIT, Node, REGTEST, version, wait_for_close};
use common::{Running, TempDir, listen_on, packetlane};
use packetlane::bitcoin::message::MessageType;
use packetlane::bitcoin::v1;
use packetlane_p2p::capture::{self, CaptureError, HEADER_LEN};
use std::fs;
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Connects to `address`, exchanges versions and leaves. Returns its own address.
fn visit(address: SocketAddr) -> SocketAddr {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    greet(stream).unwrap()
}

fn greet(stream: TcpStream) -> io::Result<SocketAddr> {
    let mut node = Node::new(stream);
    node.send("version", &version(b"/peer:1.0/"))?;
    node.expect("verack")?;
    node.send("verack", &[])?;
    node.expect("ping")?;
    node.stream.local_addr()
}

/// Waits until `listening` has reported on a peer that has left.
fn wait_for_report(listening: &mut Running) {
    while !listening.line().starts_with("total") {}
}

#[test]
fn strangers_who_send_no_message_leave_no_folder() {
    let dir = TempDir::new("strangers");
    let options = format!(" --record {}", dir.0.display());
    let (mut listening, address) = listen_on("127.0.0.1:0", &options);
    let mut first = Vec::new();
    let payload = version(b"");
    v1::Message::new(MessageType::literal("version"), &payload).encode(REGTEST, &mut first);
    for length in [0, 1, 15, 16, 17, 24, first.len() - 1] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&first[..length]).unwrap();
    }
    let peer = visit(address);
    wait_for_report(&mut listening);
    assert_eq!(dir.names(), [format!("127.0.0.1_{}", peer.port())]);
}

/// A peer may have the address of an earlier one, even of an earlier run.
#[test]
fn a_peer_that_comes_again_gets_another_folder() {
    let dir = TempDir::new("again");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _inside = runtime.enter();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let name = format!("127.0.0.1_{}", socket.local_addr().unwrap().port());
    for seen in [name.clone(), format!("{name}_2")] {
        fs::create_dir(dir.0.join(&seen)).unwrap();
        fs::write(dir.0.join(seen).join(capture::RECEIVED_FILE), b"before").unwrap();
    }

    let options = format!(" --once --record {}", dir.0.display());
    let (listening, address) = listen_on("127.0.0.1:0", &options);
    let stream = runtime.block_on(socket.connect(address)).unwrap();
    let stream = stream.into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    greet(stream).unwrap();
    listening.finish().expect_success();

    let third = format!("{name}_3");
    assert_eq!(
        dir.names(),
        [name.clone(), format!("{name}_2"), third.clone()]
    );
    let recording = capture::read_dir(&dir.0.join(third)).unwrap();
    assert!(recording.damaged.is_empty(), "{:?}", recording.damaged);
    let received = &recording.conversations[0].received;
    assert_eq!(received[0].message_type.name(), "version");
    let before = fs::read(dir.0.join(name).join(capture::RECEIVED_FILE)).unwrap();
    assert_eq!(before, b"before");
}

/// Named like Bitcoin Core's, and not hidden.
#[test]
fn the_folder_of_an_ipv6_peer() {
    if TcpListener::bind("[::1]:0").is_err() {
        let _ = writeln!(io::stderr(), "NOT RUN: folders of IPv6 peers: no IPv6 here");
        return;
    }
    // With the wildcard address the system chooses no port that was connected in the last minute,
    // and other tests may have used all. By default nobody connects from these.
    let mut ports = 20_000..32_000_u16;
    let free = ports.find(|port| TcpListener::bind(("::", *port)).is_ok());
    let wildcard = format!("[::]:{}", free.unwrap());
    let dir = TempDir::new("ipv6");
    let options = format!(" --once --record {}", dir.0.display());
    for (listen, name) in [("[::1]:0", "[__1]"), (&wildcard, "127.0.0.1")] {
        let (listening, mut address) = listen_on(listen, &options);
        if listen == wildcard {
            // IPv4 on a dual-stack socket.
            address.set_ip("127.0.0.1".parse().unwrap());
        }
        let port = visit(address).port();
        listening.finish().expect_success();
        let name = format!("{name}_{port}");
        assert!(dir.names().contains(&name), "{name} in {:?}", dir.names());
    }
}

/// Bitcoin Core accepts the byte 0x7f in a message type.
#[test]
fn a_message_type_cannot_control_the_terminal() {
    let (listening, address) = listen_on("127.0.0.1:0", " --once");
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut node = Node::new(stream);
    node.send("version", &version(b"/peer:1.0/")).unwrap();
    node.expect("verack").unwrap();
    node.send("verack", &[]).unwrap();
    node.send("a\x7fb", &[]).unwrap();
    let mut damaged = Vec::new();
    v1::Message::new(MessageType::literal("c\x7fd"), b"x").encode(REGTEST, &mut damaged);
    *damaged.last_mut().unwrap() = b'y';
    node.stream.write_all(&damaged).unwrap();
    // Such a message is ignored.
    node.send("a\x7fb", &[]).unwrap();
    // Closing at once could reset the connection, and the last messages would be lost.
    node.stream.shutdown(Shutdown::Write).unwrap();
    wait_for_close(&mut node.stream).unwrap();
    let finished = listening.finish().expect_success();
    assert_eq!(finished.row(r"a\x7fb"), [2, 48, 0, 0]);
    assert_eq!(finished.row("(other)"), [1, 25, 0, 0]);
    assert!(
        finished.stdout.contains("\nignored messages: 1 ("),
        "{finished:#?}"
    );
    assert!(!finished.stdout.contains('\x7f'), "{finished:#?}");
}

/// The same command works once the peer does.
#[test]
fn a_failed_connection_leaves_no_files() {
    let dir = TempDir::new("failed");
    let connect = |address: SocketAddr, options: &str| {
        let folder = dir.0.display();
        packetlane(&format!(
            "connect {address} --network regtest --timeout 1{options} --record {folder}"
        ))
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // The peer is silent: the system completes the connection, and nobody answers.
    for options in ["", " --v1"] {
        connect(address, options).finish().error_line();
        assert_eq!(dir.names(), [""; 0], "{options}");
    }
    drop(listener);
    connect(address, "").finish().error_line();
    assert_eq!(dir.names(), [""; 0]);

    let (listening, address) = listen_on("127.0.0.1:0", " --once");
    connect(address, "").finish().expect_success();
    listening.finish().expect_success();
    assert_eq!(dir.names(), [capture::RECEIVED_FILE, capture::SENT_FILE]);
    let recording = capture::read_dir(&dir.0).unwrap();
    let sent = &recording.conversations[0].sent;
    assert_eq!(
        sent[0].message_type.name(),
        "version",
        "what precedes the peer's first message"
    );
}

/// A killed process cannot flush anything, so each record is written at once. When the process is
/// killed, the kernel may cut a write at a page boundary: then the last record of a file is
/// incomplete, and all earlier ones are read.
#[test]
fn what_a_killed_process_has_recorded_is_read() {
    for pause in [0, 50, 150, 250] {
        let dir = TempDir::new(&format!("killed-{pause}"));
        let options = format!(" --record {}", dir.0.display());
        let (listening, address) = listen_on("127.0.0.1:0", &options);
        let (answered, is_answered) = mpsc::channel();
        let peer = thread::spawn(move || -> io::Result<()> {
            let stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(LIMIT))?;
            let mut node = Node::new(stream);
            node.send("version", &version(b"/peer:1.0/"))?;
            node.expect("verack")?;
            node.send("verack", &[])?;
            // Once a message is answered, it has been recorded.
            node.send("ping", &[1; 8])?;
            node.expect("pong")?;
            let _ = answered.send(());
            for length in (0..100_000).step_by(7) {
                node.send("inv", &vec![1; length % 5000])?;
            }
            wait_for_close(&mut node.stream)
        });
        is_answered.recv_timeout(LIMIT).unwrap();
        thread::sleep(Duration::from_millis(pause));
        listening.signal("KILL");
        assert!(!listening.finish().success);
        let _ = peer.join().unwrap();
        let recording = capture::read_dir(&dir.0).unwrap();
        let received = &recording.conversations[0].received;
        // At least `version`, `verack` and `ping`.
        assert!(received.len() > 2, "after {pause} ms");
        let records = received.iter().chain(&recording.conversations[0].sent);
        let whole: usize = records
            .map(|record| HEADER_LEN + record.payload.len())
            .sum();
        let files = [capture::RECEIVED_FILE, capture::SENT_FILE];
        let [peer] = &dir.names()[..] else {
            panic!("one peer, but {:?}", dir.names());
        };
        let len = |file: &str| fs::metadata(dir.0.join(peer).join(file)).unwrap().len() as usize;
        let all: usize = files.into_iter().map(len).sum();
        let cut = recording.damaged.len();
        assert!(all - whole <= cut * (HEADER_LEN + 5000), "{whole} of {all}");
        for error in recording.damaged {
            let CaptureError::File { error, .. } = &error else {
                panic!("{error}");
            };
            assert!(matches!(**error, CaptureError::Truncated { .. }), "{error}");
        }
    }
}

/// The files of a recording never exist before.
#[cfg(unix)]
#[test]
fn a_planted_link_is_not_followed() {
    let dir = TempDir::new("planted");
    let target = dir.0.join("target");
    let recording = dir.0.join("recording");
    fs::create_dir(&recording).unwrap();
    for name in [capture::RECEIVED_FILE, capture::SENT_FILE] {
        std::os::unix::fs::symlink(&target, recording.join(name)).unwrap();
    }
    let (listening, address) = listen_on("127.0.0.1:0", " --once");
    let connecting = packetlane(&format!(
        "connect {address} --network regtest --record {}",
        recording.display()
    ));
    let line = connecting.finish().error_line().to_owned();
    assert!(line.contains("recordings are never overwritten"), "{line}");
    assert!(!target.exists());
    drop(listening);
}

/// `lab --replay` uses the intact files and names the others.
#[test]
fn a_cut_file_does_not_spoil_the_folder() {
    let dir = TempDir::new("cut");
    let mut whole = Vec::new();
    let mut writer = capture::Writer::new(&mut whole);
    for time in 0..3 {
        writer
            .write(time, MessageType::literal("ping"), &[0; 8])
            .unwrap();
    }
    for (peer, length) in [("a_1", whole.len()), ("b_2", whole.len() - 1)] {
        fs::create_dir(dir.0.join(peer)).unwrap();
        let file = dir.0.join(peer).join(capture::RECEIVED_FILE);
        fs::write(file, &whole[..length]).unwrap();
    }
    let folder = dir.0.display();
    let lab = |replayed: &str| {
        let finished = packetlane(&format!(
            "lab bip324.mixed --filter nosuchcase --replay {folder}{replayed} --json \
             {folder}/report.json --html {folder}/report.html"
        ))
        .finish();
        assert!(!finished.success);
        finished.stderr
    };
    let stderr = lab("");
    let lines: Vec<_> = stderr.lines().collect();
    assert!(
        lines[0].ends_with(
            "b_2/msgs_recv.dat: the file ends in the middle of the record that begins at byte \
             64; only its records before the damage are used"
        ),
        "{stderr}"
    );
    // The cases are selected after the recording is read.
    assert_eq!(
        lines[1..],
        ["error: no case contains all words of \"nosuchcase\""]
    );

    // Nothing is intact.
    fs::write(dir.0.join("b_2").join(capture::RECEIVED_FILE), &whole[..10]).unwrap();
    let stderr = lab("/b_2");
    assert!(
        stderr.starts_with("error: ") && stderr.ends_with("begins at byte 0\n"),
        "{stderr}"
    );
}
