//! The server of `examples/event_loop.rs` with hostile clients, which must not affect the others.
//! Set `EVENT_LOOP_SERVER=ADDRESS` to test a running server that serves as many clients, such as
//! the one in C in `crates/capi/check`.

mod common;
#[allow(
    dead_code,
    unreachable_pub,
    reason = "it is a program, whose main is not called"
)]
#[path = "../examples/event_loop.rs"]
mod event_loop;

use common::{Random, noise};
use event_loop::{client, serve};
use packetlane::Engine;
use packetlane::bip324::{Handshake, HandshakeConfig, PacketKind, Progress, Session};
use packetlane::bitcoin::Network;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

const CLIENTS: usize = 200;

/// The behaviour of a client.
#[derive(Clone, Copy, Debug)]
enum Manners {
    /// Sends messages of all lengths and checks that they are echoed.
    Honest,
    /// Sends the largest message of the network, which must be echoed too.
    Large,
    /// Sends random bytes.
    Garbage,
    /// Closes during the handshake.
    CutInHandshake,
    /// Closes in the middle of a packet.
    CutInPacket,
    /// Sends a packet with one wrong bit.
    Forged,
    /// Announces a packet that is longer than the server accepts.
    TooLong,
    /// Sends and never reads.
    Deaf,
    /// Sends nothing.
    Silent,
}

const MANNERS: [Manners; 10] = [
    Manners::Honest,
    Manners::Honest,
    Manners::Large,
    Manners::Garbage,
    Manners::CutInHandshake,
    Manners::CutInPacket,
    Manners::Forged,
    Manners::TooLong,
    Manners::Deaf,
    Manners::Silent,
];

fn config(engine: Engine) -> HandshakeConfig {
    HandshakeConfig::random(Network::Regtest.magic(), engine).unwrap()
}

fn handshake(engine: Engine, socket: &mut TcpStream) -> Box<Session> {
    let mut handshake = Handshake::initiator(config(engine)).unwrap();
    let mut buffer = [0; 4096];
    loop {
        socket.write_all(&handshake.take_output()).unwrap();
        let len = socket.read(&mut buffer).unwrap();
        if let Progress::Complete(session) = handshake.receive(&buffer[..len]).unwrap() {
            socket.write_all(&handshake.take_output()).unwrap();
            return session;
        }
    }
}

/// Reads until the server closes the connection, as it should.
fn is_closed(socket: &mut TcpStream) {
    let mut buffer = [0; 4096];
    while !matches!(socket.read(&mut buffer), Ok(0) | Err(_)) {}
}

fn visit(engine: Engine, address: SocketAddr, manners: Manners, random: &mut Random) {
    match manners {
        Manners::Honest => {
            let lengths = [8, 61, 250, 1024, 0, 61, 100_000, 8];
            let messages = lengths.map(|len| noise(random.next(), len));
            return client(engine, address, &messages).unwrap();
        }
        Manners::Large => return client(engine, address, &[vec![9; 4_000_013]]).unwrap(),
        _ => {}
    }
    let mut socket = TcpStream::connect(address).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    match manners {
        Manners::Honest | Manners::Large => unreachable!("they have returned"),
        Manners::Garbage => {
            let _ = socket.write_all(&noise(random.next(), 20_000));
            is_closed(&mut socket);
        }
        Manners::CutInHandshake => {
            let output = Handshake::initiator(config(engine)).unwrap().take_output();
            let cut = random.below(output.len());
            socket.write_all(&output[..cut]).unwrap();
        }
        Manners::CutInPacket => {
            let mut session = handshake(engine, &mut socket);
            let mut wire = Vec::new();
            let kind = PacketKind::Genuine;
            session.outbound.seal(kind, &[1; 5000], &mut wire).unwrap();
            let cut = random.below(wire.len());
            socket.write_all(&wire[..cut]).unwrap();
        }
        Manners::Forged => {
            let mut session = handshake(engine, &mut socket);
            let mut wire = Vec::new();
            let kind = PacketKind::Genuine;
            session.outbound.seal(kind, &[1; 500], &mut wire).unwrap();
            let at = 3 + random.below(wire.len() - 3);
            wire[at] ^= 1 << random.below(8);
            socket.write_all(&wire).unwrap();
            is_closed(&mut socket);
        }
        Manners::TooLong => {
            let mut session = handshake(engine, &mut socket);
            let mut wire = Vec::new();
            let contents = vec![1; 4_000_014];
            let kind = PacketKind::Genuine;
            session.outbound.seal(kind, &contents, &mut wire).unwrap();
            // The length field is enough.
            socket.write_all(&wire[..3]).unwrap();
            is_closed(&mut socket);
        }
        Manners::Deaf => {
            let mut session = handshake(engine, &mut socket);
            // More than all buffers between the two and the server's limit hold: the server stops
            // reading.
            let timeout = Some(Duration::from_millis(300));
            socket.set_write_timeout(timeout).unwrap();
            let mut wire = Vec::new();
            for _ in 0..400 {
                wire.clear();
                let kind = PacketKind::Genuine;
                session
                    .outbound
                    .seal(kind, &[1; 50_000], &mut wire)
                    .unwrap();
                if socket.write_all(&wire).is_err() {
                    break;
                }
            }
        }
        Manners::Silent => std::thread::sleep(Duration::from_millis(500)),
    }
    let _ = socket.shutdown(Shutdown::Both);
}

#[test]
fn hostile_clients_do_not_affect_others() {
    let engine = Engine::detect().unwrap();
    let other = std::env::var("EVENT_LOOP_SERVER").ok();
    let any = "127.0.0.1:0".parse().unwrap();
    let listener = other
        .is_none()
        .then(|| mio::net::TcpListener::bind(any).unwrap());
    let address = match &listener {
        Some(listener) => listener.local_addr().unwrap(),
        None => other.as_deref().unwrap_or_default().parse().unwrap(),
    };
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            scope.spawn(move || {
                let mut random = Random::new(number as u64);
                std::thread::sleep(Duration::from_millis(random.below(200) as u64));
                visit(
                    engine,
                    address,
                    MANNERS[number % MANNERS.len()],
                    &mut random,
                );
            });
        }
        if let Some(listener) = listener {
            serve(engine, listener, CLIENTS).unwrap();
        }
    });
}
