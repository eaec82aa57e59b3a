//! An echoing node behind a gateway, its visitors, and the gateway's HTTP pages.

use packetlane::bitcoin::message::MessageType;
use packetlane::bitcoin::{Network, v1};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Starts a node that echoes. Returns its address.
pub(crate) fn echo() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut bytes = [0; 1000];
                while let Ok(len) = stream.read(&mut bytes)
                    && len > 0
                    && stream.write_all(&bytes[..len]).is_ok()
                {}
            });
        }
    });
    address
}

/// Sends the first message of a v1 peer, and reads it back from [`echo`].
pub(crate) fn talk(stream: &mut TcpStream) -> io::Result<()> {
    let mut wire = Vec::new();
    let magic = Network::Regtest.magic();
    // It says that it speaks v2, so the gateway need not change it.
    v1::Message::new(MessageType::literal("version"), &[0xff; 90]).encode(magic, &mut wire);
    stream.write_all(&wire)?;
    let mut heard = vec![0; wire.len()];
    stream.read_exact(&mut heard)?;
    assert!(heard == wire);
    Ok(())
}

/// Connections that the gateway refuses or soon closes: they send a byte that no SOCKS client
/// sends. 50 at a time, each waiting for the gateway to close first. The side that closes first
/// keeps its port for a minute, and the gateway's port is the same for all.
pub(crate) fn flood(address: SocketAddr, strangers: usize) {
    for of_them in (0..strangers).step_by(50) {
        let at_once = (strangers - of_them).min(50);
        let streams: Vec<_> = (0..at_once)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        for mut stream in streams {
            // A refused connection may be closed already.
            let _ = stream.write_all(b"G");
            assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
        }
    }
}

/// The gateway's HTTP response, with its header.
pub(crate) fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The value of a metric, with or without labels. 0 if there is none.
pub(crate) fn metric(address: SocketAddr, name: &str) -> u64 {
    let metrics = get(address, "/metrics").unwrap();
    let of = |line: &str| line.strip_prefix(name)?.trim().parse().ok();
    metrics.lines().find_map(of).unwrap_or(0)
}

/// Waits up to `limit` for a condition to hold.
#[track_caller]
pub(crate) fn until(limit: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < limit, "not so: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
