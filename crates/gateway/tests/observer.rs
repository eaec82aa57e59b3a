//! What an observer of the wire sees, captured on the loopback interface, is what the gateway's account
//! says: every segment, in both directions. The lab's traces (`shape.detect`) rest on this.

use packetlane::bip324::shape::{Priority, Shape, Shaper};
use packetlane::bip324::{Connection, HandshakeConfig, Session};
use packetlane::bitcoin::message::MessageType;
use packetlane::bitcoin::{Network, v1};
use packetlane::{Engine, OpenBatch, SealBatch};
use packetlane_gateway::{Account, Event, Gateway, Inbound, Peer, Settings};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeSet;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const MAGIC: [u8; 4] = Network::Regtest.magic();
const LIMIT: Duration = Duration::from_secs(20);

/// Lengths of payloads: short and long ones, below what one write on the loopback interface carries.
const LENGTHS: [usize; 9] = [8, 37, 250, 0, 1000, 1448, 5000, 30_000, 90];

/// Captures the segments of one server on this machine, in a thread, as others may be busy, too.
struct Capture {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<[Vec<usize>; 2]>,
}

impl Capture {
    /// Of the server at this port; `None` if packets cannot be captured.
    fn start(server: u16) -> io::Result<Self> {
        /// ETH_P_ALL, in network byte order.
        const ALL: i32 = 3 << 8;
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(ALL)))?;
        socket.set_recv_buffer_size(8 << 20)?;
        socket.set_read_timeout(Some(Duration::from_millis(20)))?;
        let stop = Arc::<AtomicBool>::default();
        let is_stopped = Arc::clone(&stop);
        let capture = move || segments(socket, server, &is_stopped);
        Ok(Self {
            stop,
            thread: std::thread::spawn(capture),
        })
    }

    /// The lengths of all segments with data: from the server, and to it.
    fn finish(self) -> [Vec<usize>; 2] {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn segments(mut socket: Socket, server: u16, is_stopped: &AtomicBool) -> [Vec<usize>; 2] {
    let mut seen = BTreeSet::new();
    let mut found = [Vec::new(), Vec::new()];
    let mut packet = vec![0; 1 << 17];
    let mut stopped = None;
    loop {
        let len = match socket.read(&mut packet) {
            Ok(len) => len,
            // Nothing more has come.
            Err(_) if stopped.is_some() => return found,
            Err(_) => 0,
        };
        if is_stopped.load(Ordering::Relaxed) {
            let since = *stopped.get_or_insert_with(Instant::now);
            // Others' packets may never end.
            if since.elapsed() > Duration::from_millis(500) {
                return found;
            }
        }
        // IPv4 with TCP.
        let packet = &packet[..len];
        if packet.len() < 40 || packet[0] >> 4 != 4 || packet[9] != 6 {
            continue;
        }
        let (ip, rest) = packet.split_at(usize::from(packet[0] & 15) * 4);
        let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        let port = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
        let direction = match (port(0), port(2)) {
            (from, _) if from == server => 0,
            (_, to) if to == server => 1,
            _ => continue,
        };
        let sequence = u32::from_be_bytes([rest[4], rest[5], rest[6], rest[7]]);
        let payload = total - ip.len() - usize::from(rest[12] >> 4) * 4;
        // A packet on the loopback interface is captured when it leaves and when it arrives.
        if payload > 0 && seen.insert((direction, sequence)) {
            found[direction].push(payload);
        }
    }
}

/// A peer and a node on both sides of a gateway. The node sends the messages one by one, and the peer
/// echoes each. Returns the account and the captured segments.
fn talk(shape: Shape) -> io::Result<(Account, [Vec<usize>; 2])> {
    let engine = Engine::detect().unwrap();
    let node = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let any: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let settings = Settings {
        inbound: vec![Inbound::new(any, node.local_addr().unwrap())],
        advertise: false,
        shape,
        ..Settings::new(Network::Regtest, engine)
    };
    let (sender, ended) = channel();
    let gateway = Gateway::start(settings, move |peer: &Peer, event: &Event| {
        if let Event::Closed(_) = event {
            let _ = sender.send(peer.account.clone());
        }
    });
    let mut gateway = gateway.unwrap();
    let listen = gateway.settings().inbound[0].listen;
    let capture = Capture::start(listen.port())?;
    let mut stream = TcpStream::connect(listen).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let config = HandshakeConfig::random(MAGIC, engine).unwrap();
    let mut connection = Connection::initiator(config).unwrap();
    let (mut incoming, mut outgoing) = (OpenBatch::new(), SealBatch::new());
    let mut node_side: Option<TcpStream> = None;
    let mut waiting = LENGTHS.iter();
    let mut echoed = 0;
    while echoed < LENGTHS.len() {
        let write = |pieces: &[std::io::IoSlice<'_>]| stream.write_vectored(pieces);
        connection.outbox.write(&outgoing, write).unwrap();
        outgoing.clear();
        if connection.session().is_some() && waiting.len() == LENGTHS.len() - echoed {
            let socket = node_side.get_or_insert_with(|| node.accept().unwrap().0);
            // The gateway has written what comes before.
            std::thread::sleep(Duration::from_millis(30));
            let mut wire = Vec::new();
            let payload = vec![5; *waiting.next().unwrap()];
            v1::Message::new(MessageType::literal("tx"), &payload).encode(MAGIC, &mut wire);
            socket.write_all(&wire).unwrap();
        }
        let len = stream.read(incoming.room(65_536)).unwrap();
        assert_ne!(len, 0, "{}", connection.closed());
        connection.receive(&mut incoming, len).unwrap();
        engine.open(&mut incoming);
        while let Some((message_type, payload)) = connection.next_message(&incoming).unwrap() {
            let payload = payload.to_vec();
            connection
                .push_message(&mut outgoing, message_type, &payload)
                .unwrap();
            echoed += 1;
        }
        engine.seal(&mut outgoing);
        incoming.clear();
    }
    let write = |pieces: &[std::io::IoSlice<'_>]| stream.write_vectored(pieces);
    connection.outbox.write(&outgoing, write).unwrap();
    std::thread::sleep(Duration::from_millis(30));
    drop((stream, node_side));
    let account = ended.recv_timeout(LIMIT).unwrap();
    gateway.stop().unwrap();
    Ok((account, capture.finish()))
}

/// The length of a packet, and what a shape makes of it.
fn on_the_wire(shape: Shape, payload: usize) -> usize {
    let packet = MessageType::literal("tx").encoded_len(payload) + Session::OVERHEAD;
    let mut shaper = Shaper::new(shape, Engine::detect().unwrap(), [0; 32]);
    shaper.push(Duration::ZERO, packet, Priority::Normal);
    while shaper.decoy(Duration::ZERO).is_some() {}
    shaper.released()
}

#[test]
fn the_wire_carries_what_the_account_says() {
    for shape in [Shape::NONE, Shape::pad(10_000_000_000, Duration::ZERO)] {
        let bytes = |segments: &[usize]| segments.iter().sum::<usize>() as u64;
        let mut tries = 0;
        let (sent, received) = loop {
            let (account, [sent, received]) = match talk(shape) {
                Ok(outcome) => outcome,
                Err(error) => {
                    // In one write, past the harness.
                    let line =
                        format!("NOT RUN: segments on the wire: no packet socket: {error}\n");
                    let _ = io::stderr().write_all(line.as_bytes());
                    return;
                }
            };
            let captured = (bytes(&sent), bytes(&received));
            let counted = (account.sent.bytes, account.received.bytes);
            tries += 1;
            // The kernel drops what is not read in time on a busy machine.
            if captured >= counted || tries == 5 {
                assert_eq!(captured, counted, "{sent:?}, {received:?}");
                break (sent, received);
            }
        };
        // Behind the handshake, one segment for each message.
        let expected = LENGTHS.map(|payload| on_the_wire(shape, payload));
        assert!(sent.ends_with(&expected), "{sent:?}, not {expected:?}");
        let expected = LENGTHS.map(|payload| on_the_wire(Shape::NONE, payload));
        assert!(
            received.ends_with(&expected),
            "{received:?}, not {expected:?}"
        );
    }
}
