//! Limits on what peers can use of the gateway, however many they are and whatever they do.

use crate::child::InChild;
use crate::load::{Load, MAGIC, Mix, Route};
use crate::{LIMIT, alone, any_port, has_files, is_full, say, seed};
use mio::{Events, Interest, Poll, Token};
use packetlane::bip324::{Connection, HandshakeConfig};
use packetlane::bitcoin::message::MessageType;
use packetlane::bitcoin::v1;
use packetlane::{Engine, OpenBatch, SealBatch};
use slab::Slab;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// A node that echoes, for thousands of connections, with little memory each.
fn echo() -> SocketAddr {
    let mut listener = mio::net::TcpListener::bind(any_port()).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut poll = Poll::new().unwrap();
        let mut events = Events::with_capacity(1024);
        let all = Token(usize::MAX);
        let registry = poll.registry().try_clone().unwrap();
        registry
            .register(&mut listener, all, Interest::READABLE)
            .unwrap();
        let mut sockets = Slab::<(mio::net::TcpStream, Vec<u8>)>::new();
        let mut room = vec![0; 32 * 1024];
        loop {
            let _ = poll.poll(&mut events, None);
            for event in &events {
                if event.token() == all {
                    while let Ok((mut socket, _)) = listener.accept() {
                        let _ = socket.set_nodelay(true);
                        let token = Token(sockets.vacant_key());
                        let both = Interest::READABLE | Interest::WRITABLE;
                        registry.register(&mut socket, token, both).unwrap();
                        sockets.insert((socket, Vec::new()));
                    }
                    continue;
                }
                let Token(number) = event.token();
                let Some((socket, back)) = sockets.get_mut(number) else {
                    continue;
                };
                let ended = loop {
                    while !back.is_empty() {
                        match socket.write(back) {
                            Ok(len) => drop(back.drain(..len)),
                            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                            Err(_) => back.clear(),
                        }
                    }
                    if !back.is_empty() {
                        break false;
                    }
                    match socket.read(&mut room) {
                        Ok(0) => break true,
                        Ok(len) => back.extend_from_slice(&room[..len]),
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break false,
                        Err(_) => break true,
                    }
                };
                if ended {
                    sockets.remove(number);
                }
            }
        }
    });
    address
}

/// A connection from the given loopback address.
fn connect(to: SocketAddr, from: Ipv4Addr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect_timeout(&to.into(), LIMIT).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket.set_tcp_nodelay(true).unwrap();
    socket.into()
}

fn version() -> Vec<u8> {
    let mut wire = Vec::new();
    v1::Message::new(MessageType::literal("version"), &[3; 90]).encode(MAGIC, &mut wire);
    wire
}

/// A v1 peer whose message has reached the node.
fn v1_peer(to: SocketAddr) -> TcpStream {
    let mut stream = connect(to, Ipv4Addr::LOCALHOST);
    stream.write_all(&version()).unwrap();
    stream.read_exact(&mut version()).unwrap();
    stream
}

/// A v2 peer that measures round trips of messages to the node.
struct Bystander {
    stream: TcpStream,
    engine: Engine,
    connection: Connection,
    incoming: OpenBatch,
    outgoing: SealBatch,
}

impl Bystander {
    fn new(to: SocketAddr) -> Self {
        let engine = Engine::detect().unwrap();
        let config = HandshakeConfig::random(MAGIC, engine).unwrap();
        let mut bystander = Self {
            stream: connect(to, Ipv4Addr::LOCALHOST),
            engine,
            connection: Connection::initiator(config).unwrap(),
            incoming: OpenBatch::new(),
            outgoing: SealBatch::new(),
        };
        while bystander.connection.session().is_none() {
            bystander.write();
            bystander.read();
        }
        bystander.write();
        bystander
    }

    fn write(&mut self) {
        self.engine.seal(&mut self.outgoing);
        let write = |pieces: &[std::io::IoSlice<'_>]| self.stream.write(&pieces[0]);
        self.connection.outbox.write(&self.outgoing, write).unwrap();
        self.outgoing.clear();
    }

    /// Returns how many messages arrived.
    fn read(&mut self) -> usize {
        self.incoming.clear();
        let len = self.stream.read(self.incoming.room(4096)).unwrap();
        assert_ne!(len, 0, "the well-behaved peer was closed");
        self.connection.receive(&mut self.incoming, len).unwrap();
        self.engine.open(&mut self.incoming);
        let mut messages = 0;
        while let Some(contents) = self.connection.next_packet(&self.incoming).unwrap() {
            MessageType::decode(contents).unwrap();
            messages += 1;
        }
        messages
    }

    fn round_trip(&mut self) -> Duration {
        let begun = Instant::now();
        let ping = MessageType::literal("ping");
        self.connection
            .push_message(&mut self.outgoing, ping, &[1; 8])
            .unwrap();
        self.write();
        while self.read() == 0 {}
        begun.elapsed()
    }

    /// Measures round trips for this long, sorted by duration.
    fn measure(&mut self, length: Duration, mut between: impl FnMut()) -> Vec<Duration> {
        let begun = Instant::now();
        let mut times = Vec::new();
        while begun.elapsed() < length {
            times.push(self.round_trip());
            between();
            std::thread::sleep(Duration::from_millis(5));
        }
        times.sort();
        times
    }
}

fn at(times: &[Duration], of_hundred: usize) -> Duration {
    times[(times.len() - 1) * of_hundred / 100]
}

/// Peers that have ended, and a node that sends nothing.
#[test]
fn a_closed_side_costs_no_cpu() {
    if !has_files() {
        return;
    }
    let _alone = alone();
    // Connections complete in the queue, and nobody accepts them.
    let node = TcpListener::bind(any_port()).unwrap();
    let mut gateway = InChild::start(node.local_addr().unwrap(), "");
    let peer = |_| {
        let mut stream = connect(gateway.listen, Ipv4Addr::LOCALHOST);
        stream.write_all(&version()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        stream
    };
    let peers: Vec<_> = (0..5).map(peer).collect();
    gateway.until("all are connected", |told| {
        told.get("connected") == Some(&5)
    });
    let before = gateway.cpu();
    std::thread::sleep(Duration::from_secs(2));
    let cpu = gateway.cpu() - before;
    say(format_args!(
        "half-closed connections: {cpu:?} of CPU time in 2 s"
    ));
    assert!(cpu < Duration::from_millis(500), "the event loop spins");
    assert_eq!(gateway.told()["peers"], 5);
    drop((peers, node));
}

/// More peers than files: those above the limit are refused at once, and everything continues after
/// others have left.
#[test]
fn peers_above_the_file_limit_are_refused() {
    if !has_files() {
        return;
    }
    let _alone = alone();
    let limits = "files=300 half-open-address=100000";
    let mut gateway = InChild::start(echo(), limits);
    let mut bystander = Bystander::new(gateway.listen);
    let peers: Vec<_> = (0..600)
        .map(|_| connect(gateway.listen, Ipv4Addr::LOCALHOST))
        .collect();
    let told = gateway.until("nobody waits", |told| {
        told["peers"] + told.get("refused-files").unwrap_or(&0) == 601
    });
    assert!(told["peers"] > 200, "{told:?}");
    let before = gateway.cpu();
    bystander.measure(Duration::from_secs(2), || ());
    let cpu = gateway.cpu() - before;
    say(format_args!(
        "no more files: {told:?}, {cpu:?} of CPU time in 2 s"
    ));
    assert!(cpu < Duration::from_secs(1), "the event loop spins");
    let mut refused = 0;
    for stream in &peers {
        stream.set_nonblocking(true).unwrap();
        let mut stream = stream;
        refused += u64::from(matches!(stream.read(&mut [0]), Ok(0)));
    }
    assert_eq!(refused, told["refused-files"]);
    drop(peers);
    gateway.until("they have gone", |told| told["peers"] == 1);
    v1_peer(gateway.listen);
    bystander.round_trip();
}

/// Load test with thousands of half-open handshakes and hundreds of peers that do not read. A
/// well-behaved peer is served throughout.
#[test]
fn many_half_open_handshakes() {
    if !has_files() {
        return;
    }
    let _alone = alone();
    let files = packetlane_files::raise_file_limit(u64::MAX);
    let half_open = 10_000.min(files / 2) as usize;
    let slow = 2000.min(files / 10) as usize;
    let length = Duration::from_secs(if is_full() { 300 } else { 6 });
    let most = 16 * MIB;
    // So that the slow peers get slots in spite of the strangers.
    let room = 2 * half_open;
    let limits = format!("memory={most} half-open={room} half-open-group={room}");
    let mut gateway = InChild::start(echo(), &limits);
    let mut bystander = Bystander::new(gateway.listen);
    let before = bystander.measure(Duration::from_secs(2), || ());
    let at_first = gateway.memory();

    let from = |number: usize| {
        let group = 20 + (number / 1500) as u8;
        Ipv4Addr::new(
            127,
            group,
            (number / 10 % 150) as u8,
            (1 + number % 10) as u8,
        )
    };
    let listen = gateway.listen;
    let begin = |number: usize| {
        let mut stream = connect(listen, from(number));
        let said: &[u8] = match number % 3 {
            0 => &[],
            1 => &[1; 40],
            // A key, which the gateway answers with its own, and the start of garbage.
            _ => &[number as u8; 164],
        };
        stream.write_all(said).unwrap();
        stream
    };
    let mut strangers: Vec<_> = (0..half_open).map(begin).collect();
    let besieged = half_open as u64 + 1;
    gateway.until("all are there", |told| told["peers"] >= besieged);
    let each = gateway.memory().saturating_sub(at_first) / half_open as u64;

    // They read nothing. What they send fits into the gateway's memory limit, even if the kernel
    // buffers none of it; so only the greedy ones need to be closed.
    let message = vec![7; 400];
    let mut wire = Vec::new();
    for _ in 0..5 {
        v1::Message::new(MessageType::literal("tx"), &message).encode(MAGIC, &mut wire);
    }
    let slow: Vec<_> = (0..slow)
        .map(|number| {
            let mut stream = connect(listen, from(number));
            SockRef::from(&stream).set_recv_buffer_size(4096).unwrap();
            stream.write_all(&version()).unwrap();
            stream.set_nonblocking(true).unwrap();
            stream
        })
        .collect();
    let mut said = vec![0; slow.len()];
    let mut highest = 0;
    let mut looked = Instant::now();
    let mut turn = 0;
    let mut besiege = |bystander: &mut Bystander, length, greedy: usize| {
        bystander.measure(length, || {
            turn += 1;
            for (number, mut stream) in slow.iter().enumerate().skip(turn % 20).step_by(20) {
                let is_greedy = number < greedy;
                while said[number] < wire.len() || is_greedy {
                    match stream.write(&wire[said[number] % wire.len()..]) {
                        Ok(len) => said[number] += len,
                        Err(_) => break,
                    }
                }
            }
            // Some send byte by byte, some reconnect.
            for place in 0..10 {
                let number = (turn * 10 + place) % half_open;
                if number.is_multiple_of(3) {
                    let _ = strangers[number].write(&[0]);
                } else {
                    strangers[number] = begin(number);
                }
            }
            if looked.elapsed() > Duration::from_millis(500) {
                looked = Instant::now();
                highest = gateway.memory().max(highest);
            }
        })
    };
    // All send something and read nothing; then some of them send as much as they can.
    let greedy_ones = 40;
    let during = besiege(&mut bystander, length, 0);
    let greedy = besiege(&mut bystander, length / 2, greedy_ones);
    let told = gateway.told();
    let of = |times: &[Duration]| {
        format!(
            "{:?}, {:?} ({} of them)",
            at(times, 50),
            at(times, 99),
            times.len()
        )
    };
    say(format_args!(
        "{half_open} half-open, {} KiB each; {} slow; memory {} MiB before, {} MiB at most; \
         a bystander's round trip, p50 and p99: before {}, during {}, with greedy ones {}; {told:?}",
        each / KIB,
        slow.len(),
        at_first / MIB,
        highest / MIB,
        of(&before),
        of(&during),
        of(&greedy),
    ));
    assert!(each < 40 * KIB);
    let bound = at_first + 8 * most + (half_open + slow.len()) as u64 * 8 * KIB;
    assert!(highest < bound, "{} MiB", highest / MIB);
    assert!(
        (1..=greedy_ones as u64).contains(&told["closed-memory"]),
        "{told:?}"
    );
    // The machine may stall for a while, but not for half of the time.
    for times in [&during, &greedy] {
        assert!(at(times, 50) < Duration::from_millis(500));
    }
    drop((strangers, slow));
    gateway.until("they have gone", |told| told["peers"] == 1);
    bystander.round_trip();
}

/// Runs turns until `is_over`, and starts connections while at most `at_once` are open.
fn drive(
    load: &mut Load,
    gateway: &InChild,
    at_once: usize,
    mut is_over: impl FnMut(&Load) -> bool,
) {
    while !is_over(load) {
        while load.open() < at_once && load.unsettled() < 1000 {
            let to = match load.script_of_next().route {
                Route::Inbound => gateway.listen,
                Route::Outbound => gateway.socks,
            };
            load.begin(to).unwrap();
        }
        load.turn().unwrap();
    }
}

fn mix(messages: usize) -> Mix {
    Mix {
        seed: seed(),
        is_rough: false,
        messages,
        both_ways: true,
    }
}

/// A thousand peers talk for a moment, and are replaced by others.
#[test]
fn peers_come_and_go() {
    if !has_files() {
        return;
    }
    let _alone = alone();
    let at_once = 1000.min(packetlane_files::raise_file_limit(u64::MAX) / 6) as usize;
    let length = Duration::from_secs(if is_full() { 600 } else { 8 });
    let mut load = Load::new(mix(60)).unwrap();
    let mut gateway = InChild::start(load.node(), "");
    // Its threads have started when they answer.
    gateway.told();
    let files = gateway.files();
    let begun = Instant::now();
    drive(&mut load, &gateway, at_once, |_| {
        begun.elapsed() > length / 3
    });
    let warm = gateway.memory();
    drive(&mut load, &gateway, at_once, |_| begun.elapsed() > length);
    let late = gateway.memory();
    drive(&mut load, &gateway, 0, Load::is_over);
    let totals = load.finish();
    gateway.until("they have gone", |told| told["peers"] == 0);
    let left = gateway.files();
    say(format_args!(
        "{totals:?}; memory {} KiB after a third of the time, {} KiB at its end, {} KiB \
         afterwards; files {files} before, {left} afterwards",
        warm / KIB,
        late / KIB,
        gateway.memory() / KIB,
    ));
    assert_eq!(totals.whole, totals.connections);
    assert_eq!(left, files, "files are left open");
    assert!(late < warm + warm / 2 + 16 * MIB, "memory grows");
}

/// Memory of idle connections, without the kernel's socket buffers.
#[test]
fn idle_connections_need_little_memory() {
    if !has_files() {
        return;
    }
    let _alone = alone();
    let files = packetlane_files::raise_file_limit(u64::MAX);
    // Two descriptors each in the gateway, and two here.
    let wanted = if is_full() { 10_000 } else { 4000 };
    let connections = wanted.min((files.saturating_sub(200) / 2) as usize);
    if connections < wanted {
        say(format_args!(
            "{connections} connections, and not {wanted}: a process may have {files} files here"
        ));
    }
    let mut load = Load::new(mix(6)).unwrap();
    load.is_holding = true;
    let mut gateway = InChild::start(load.node(), "");
    let before = gateway.memory();
    drive(&mut load, &gateway, connections, |load| {
        load.open() == connections && load.unsettled() == 0
    });
    let told = gateway.until("all are connected", |told| {
        told["peers"] == connections as u64
    });
    let memory = gateway.memory() - before;
    let each = memory / connections as u64;
    say(format_args!(
        "{connections} connections: {} KiB, {:.1} KiB each; {told:?}",
        memory / KIB,
        each as f64 / KIB as f64
    ));
    assert!(each < 20 * KIB, "{each} bytes each");
    load.is_holding = false;
    drive(&mut load, &gateway, 0, Load::is_over);
    assert_eq!(load.finish().whole, connections as u64);
}
