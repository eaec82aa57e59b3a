//! End-to-end tests: v1 and v2 peers connect to a node that speaks v1 and echoes every message, and
//! a node reaches such peers through the gateway.

use packetlane::bip324::shape::{Pace, Shape};
use packetlane::bip324::{Connection, HandshakeConfig, PacketKind};
use packetlane::bitcoin::message::MessageType;
use packetlane::bitcoin::{Network, v1};
use packetlane::{Engine, OpenBatch, SealBatch};
use packetlane_gateway::{
    Account, AddressSet, Credentials, Direction, Event, Gateway, GatewayError, Inbound, Limits,
    NodeState, Peer, PeerSource, Refusal, Settings, Traffic, Transport, Turns, V2Only,
};
use rand::rngs::StdRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use socket2::{Domain, Socket, Type};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::num::NonZero;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const MAGIC: [u8; 4] = Network::Regtest.magic();
const LIMIT: Duration = Duration::from_secs(20);

/// Peers whose connections have ended: transport, account and reason.
type Ended = (Transport, Account, String);

fn settings() -> Settings {
    Settings {
        workers: NonZero::new(2).unwrap(),
        ..Settings::new(Network::Regtest, Engine::detect().unwrap())
    }
}

fn any_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn inbound(node: SocketAddr) -> Settings {
    Settings {
        inbound: vec![Inbound::new(any_port(), node)],
        ..settings()
    }
}

fn outbound() -> Settings {
    Settings {
        socks: Some((Ipv4Addr::LOCALHOST, 0).into()),
        ..settings()
    }
}

/// Starts a gateway; every event arrives as text.
fn told(settings: Settings) -> (Gateway, Receiver<String>) {
    let (tell, told) = channel();
    let tell = move |peer: &Peer, event: &Event| {
        let what = match event {
            Event::Connected => format!("connected {:?}", peer.transport),
            Event::FellBack => "fell back".into(),
            Event::Refused(refusal) => format!("refused {refusal:?}"),
            Event::Closed(close) => format!("closed: {close}"),
            _ => "unknown".into(),
        };
        let _ = tell.send(what);
    };
    (Gateway::start(settings, tell).unwrap(), told)
}

fn start(settings: Settings) -> (Gateway, Receiver<Ended>) {
    let (tell, ended) = channel();
    let closed = move |peer: &Peer, event: &Event| {
        if let Event::Closed(close) = event {
            let _ = tell.send((peer.transport, peer.account.clone(), close.to_string()));
        }
    };
    (Gateway::start(settings, closed).unwrap(), ended)
}

/// A node that echoes every byte until the other side ends. Sends the source address of each
/// connection.
fn echo() -> (SocketAddr, Receiver<IpAddr>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, from) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = tell.send(stream.peer_addr().unwrap().ip());
            std::thread::spawn(move || {
                let mut bytes = vec![0; 100_000];
                while let Ok(len) = stream.read(&mut bytes)
                    && len > 0
                    && stream.write_all(&bytes[..len]).is_ok()
                {}
            });
        }
    });
    (address, from)
}

fn connect(gateway: &Gateway) -> TcpStream {
    let inbound = gateway.settings().inbound[0];
    let stream = TcpStream::connect(inbound.listen).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

/// Random messages, of common lengths and some rare ones.
fn messages(rng: &mut StdRng, count: usize) -> Vec<(MessageType, Vec<u8>)> {
    let types = ["inv", "tx", "ping", "notknown"];
    let message = |_| {
        let name = types[rng.random_range(0..types.len())];
        let len = match rng.random_range(0..20) {
            0 => rng.random_range(0..200_000),
            _ => rng.random_range(0..400),
        };
        let mut payload = vec![0; len];
        rng.fill_bytes(&mut payload);
        (MessageType::new(name.as_bytes()).unwrap(), payload)
    };
    (0..count).map(message).collect()
}

/// Sends messages over v2 in pieces of random length, and reads until as many have come back.
fn talk_v2(
    mut stream: TcpStream,
    messages: &[(MessageType, Vec<u8>)],
    mut rng: StdRng,
) -> Vec<(MessageType, Vec<u8>)> {
    let engine = Engine::detect().unwrap();
    let config = HandshakeConfig::random(MAGIC, engine).unwrap();
    let mut connection = Connection::initiator(config).unwrap();
    let (mut incoming, mut outgoing) = (OpenBatch::new(), SealBatch::new());
    let mut heard = Vec::new();
    let mut waiting = messages.iter();
    while heard.len() < messages.len() {
        let mut unanswered = messages.len() - waiting.len() - heard.len();
        while connection.session().is_some()
            && unanswered < 50
            && let Some((message_type, payload)) = waiting.next()
        {
            let message_type = *message_type;
            connection
                .push_message(&mut outgoing, message_type, payload)
                .unwrap();
            unanswered += 1;
        }
        engine.seal(&mut outgoing);
        let write = |pieces: &[std::io::IoSlice<'_>]| {
            let len = pieces[0].len().min(rng.random_range(1..3000));
            stream.write(&pieces[0][..len])
        };
        connection.outbox.write(&outgoing, write).unwrap();
        outgoing.clear();
        let len = stream.read(incoming.room(16_384)).unwrap();
        assert_ne!(len, 0, "{}", connection.closed());
        connection.receive(&mut incoming, len).unwrap();
        engine.open(&mut incoming);
        while let Some(contents) = connection.next_packet(&incoming).unwrap() {
            let (message_type, payload) = MessageType::decode(contents).unwrap();
            heard.push((message_type, payload.to_vec()));
        }
        incoming.clear();
    }
    heard
}

#[test]
fn v2_peers_reach_a_v1_node() {
    let (node, from) = echo();
    let (mut gateway, ended) = start(inbound(node));
    let peers: Vec<_> = (0..40)
        .map(|seed| {
            let stream = connect(&gateway);
            std::thread::spawn(move || {
                let mut rng = StdRng::seed_from_u64(seed);
                let messages = messages(&mut rng, 200);
                assert!(talk_v2(stream, &messages, rng) == messages);
            })
        })
        .collect();
    for peer in peers {
        peer.join().unwrap();
    }
    for _ in 0..40 {
        let (transport, account, close) = ended.recv_timeout(LIMIT).unwrap();
        let messages = [&account.received, &account.sent].map(|passed| passed.messages());
        assert_eq!((transport, messages), (Transport::V2, [200; 2]), "{close}");
        assert_eq!(close, "the peer closed the connection");
    }
    // All peers share one address, which is not the gateway's.
    let from: Vec<IpAddr> = from.try_iter().collect();
    assert_eq!(from.len(), 40);
    assert!(from.iter().all(|address| *address == from[0]));
    assert!(from[0].is_loopback() && from[0] != IpAddr::from(Ipv4Addr::LOCALHOST));
    gateway.stop().unwrap();
}

#[test]
fn v1_bytes_are_relayed_unchanged() {
    let (node, from) = echo();
    let mut settings = inbound(node);
    settings.inbound[0].source = PeerSource::Gateway;
    settings.advertise = false;
    let (gateway, ended) = start(settings);
    let mut stream = connect(&gateway);
    let mut rng = StdRng::seed_from_u64(1);
    let mut wire = Vec::new();
    v1::Message::new(MessageType::literal("version"), &[3; 90]).encode(MAGIC, &mut wire);
    for (message_type, payload) in messages(&mut rng, 100) {
        v1::Message::new(message_type, &payload).encode(MAGIC, &mut wire);
    }
    // Bytes that are not v1 are relayed, too.
    wire.extend_from_slice(&[9; 1000]);
    let mut reader = stream.try_clone().unwrap();
    let expected = wire.clone();
    let heard = std::thread::spawn(move || {
        let mut heard = Vec::new();
        reader.read_to_end(&mut heard).unwrap();
        assert!(heard == expected);
    });
    for piece in wire.chunks(777) {
        stream.write_all(piece).unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
    heard.join().unwrap();
    let (transport, account, close) = ended.recv_timeout(LIMIT).unwrap();
    assert_eq!(transport, Transport::V1);
    for passed in [&account.received, &account.sent] {
        assert_eq!((passed.bytes, passed.messages()), (wire.len() as u64, 101));
    }
    assert_eq!(close, "the peer closed the connection");
    assert_eq!(
        from.recv_timeout(LIMIT).unwrap(),
        IpAddr::from(Ipv4Addr::LOCALHOST)
    );
}

/// A `version` with these services, of a peer that sees the node at this address.
fn version_of(services: u64, sees: [u8; 4]) -> Vec<u8> {
    let mut payload = vec![0; 90];
    payload[4..12].copy_from_slice(&services.to_le_bytes());
    payload[28..44].copy_from_slice(&Ipv4Addr::from(sees).to_ipv6_mapped().octets());
    payload
}

/// An `addr` with these addresses, and services of one byte.
fn addr_of(entries: &[([u8; 4], u16, u16)]) -> Vec<u8> {
    let mut payload = vec![entries.len() as u8];
    for (ip, port, services) in entries {
        payload.extend_from_slice(&[0; 4]);
        payload.extend_from_slice(&u64::from(*services).to_le_bytes());
        payload.extend_from_slice(&Ipv4Addr::from(*ip).to_ipv6_mapped().octets());
        payload.extend_from_slice(&port.to_be_bytes());
    }
    payload
}

/// In the node's `version` and in its own addresses: what the operator says, and what the peer sees.
#[test]
fn peers_of_both_transports_are_told_of_v2() {
    let [version, addr] = [
        MessageType::literal("version"),
        MessageType::literal("addr"),
    ];
    let (external, seen, other) = ([203, 0, 113, 5], [198, 51, 100, 7], [192, 0, 2, 9]);
    let sent = [
        (version, version_of(9, seen)),
        (
            addr,
            addr_of(&[
                (external, 8333, 9),
                (external, 1, 9),
                (seen, 7, 9),
                (other, 8333, 9),
            ]),
        ),
        (addr, addr_of(&[(other, 1, 9)])),
    ];
    let with = [
        (version, version_of(0x809, seen)),
        (
            addr,
            addr_of(&[
                (external, 8333, 0x809),
                (external, 1, 9),
                (seen, 7, 0x809),
                (other, 8333, 9),
            ]),
        ),
        (addr, addr_of(&[(other, 1, 9)])),
    ];
    for advertise in [true, false] {
        let expected = if advertise { &with } else { &sent };
        let (node, _from) = echo();
        let (gateway, _ended) = start(Settings {
            advertise,
            external: vec!["203.0.113.5:8333".parse().unwrap()],
            ..inbound(node)
        });
        let rng = StdRng::seed_from_u64(2);
        assert!(talk_v2(connect(&gateway), &sent, rng) == *expected);

        let mut stream = connect(&gateway);
        let wire = |messages: &[(MessageType, Vec<u8>)]| {
            let mut wire = Vec::new();
            for (message_type, payload) in messages {
                v1::Message::new(*message_type, payload).encode(MAGIC, &mut wire);
            }
            wire
        };
        stream.write_all(&wire(&sent)).unwrap();
        let expected = wire(expected);
        let mut heard = vec![0; expected.len()];
        stream.read_exact(&mut heard).unwrap();
        assert!(heard == expected);
    }
}

/// Peers that speak only v1 are closed if v2 is required; a loopback address is where Tor delivers.
#[test]
fn v2_may_be_required_of_inbound_peers() {
    for (v2_only, expected) in [
        (
            V2Only::All,
            "closed: the peer speaks only v1, and v2 is required",
        ),
        (V2Only::Clearnet, "connected V1"),
    ] {
        let (node, _from) = echo();
        let (gateway, told) = told(Settings {
            v2_only: Some(v2_only),
            ..inbound(node)
        });
        let mut stream = connect(&gateway);
        stream.write_all(&version()).unwrap();
        assert_eq!(told.recv_timeout(LIMIT).unwrap(), expected);
        let mut rng = StdRng::seed_from_u64(6);
        let messages = messages(&mut rng, 3);
        assert!(talk_v2(connect(&gateway), &messages, rng) == messages);
    }
}

#[test]
fn v2_may_be_required_of_peers_that_the_node_connects_to() {
    for v2_only in [V2Only::All, V2Only::Clearnet] {
        let (peer, was_v1) = v1_only();
        let (gateway, told) = told(Settings {
            outbound_v2_only: Some(v2_only),
            ..outbound()
        });
        for _ in 0..2 {
            let (mut stream, reply) = ask(&gateway, false, &LOCALHOST, peer.port());
            assert_eq!(reply, 0);
            stream.write_all(&version()).unwrap();
            let closed = told.recv_timeout(LIMIT).unwrap();
            assert!(closed.starts_with("closed: "), "{closed}");
            assert!(!was_v1.recv_timeout(LIMIT).unwrap());
        }
    }
}

/// A peer whose `version` says v2 is tried over v2 again, although the first attempt was reset.
#[test]
fn a_reset_does_not_pin_a_peer_to_v1() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (gateway, told) = told(outbound());
    let mut version = Vec::new();
    let payload = version_of(0x809, [127, 0, 0, 1]);
    v1::Message::new(MessageType::literal("version"), &payload).encode(MAGIC, &mut version);
    let peer = std::thread::spawn(move || {
        for _ in 0..2 {
            let mut first = [0; 16];
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut first).unwrap();
            assert!(!first.starts_with(&MAGIC), "v2 is tried first");
            // Resets, because something is unread.
            drop(stream);
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut first).unwrap();
            assert!(first.starts_with(&MAGIC));
            stream.write_all(&version).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    for _ in 0..2 {
        let (mut stream, reply) = ask(&gateway, false, &LOCALHOST, port);
        assert_eq!(reply, 0);
        stream.write_all(&crate::version()).unwrap();
        for expected in ["fell back", "connected V1"] {
            assert_eq!(told.recv_timeout(LIMIT).unwrap(), expected);
        }
        stream.read_exact(&mut [0; 114]).unwrap();
        drop(stream);
        let closed = told.recv_timeout(LIMIT).unwrap();
        assert!(closed.starts_with("closed: "), "{closed}");
    }
    peer.join().unwrap();
}

/// At once, not when the handshake times out: whatever it has sent before.
#[test]
fn a_peer_that_ends_during_the_handshake_is_closed() {
    let (node, _from) = echo();
    let (here, inbound_told) = told(inbound(node));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (there, outbound_told) = told(Settings {
        outbound_v2_only: Some(V2Only::All),
        ..outbound()
    });
    for sent in [0, 1, 63, 64, 65, 500] {
        let begun = Instant::now();
        let mut stream = connect(&here);
        stream.write_all(&vec![7; sent]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let closed = inbound_told.recv_timeout(LIMIT).unwrap();
        assert!(closed.starts_with("closed: "), "{sent}: {closed}");

        let (mut node, reply) = ask(&there, false, &LOCALHOST, port);
        assert_eq!(reply, 0);
        node.write_all(&version()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&vec![7; sent]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let closed = outbound_told.recv_timeout(LIMIT).unwrap();
        assert!(closed.starts_with("closed: "), "{sent}: {closed}");
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(5), "{sent}: {took:?}");
    }
}

/// Names and addresses, with a password. The upstream proxy is a gateway, too: it sees a node that
/// speaks v2 itself, and relays its bytes.
#[test]
fn a_proxy_reaches_all_peers() {
    let (node, _from) = echo();
    let (there, _ended) = start(inbound(node));
    let mut upstream = outbound();
    upstream.socks_user = Credentials::new(b"user", b"password");
    let (upstream, upstream_told) = told(upstream);
    let (here, here_told) = told(Settings {
        proxy: upstream.settings().socks,
        proxy_user: Credentials::new(b"user", b"password"),
        ..outbound()
    });
    let port = there.settings().inbound[0].listen.port();
    let name = [&[3, 9][..], b"localhost"].concat();
    let mut rng = StdRng::seed_from_u64(7);
    for target in [&LOCALHOST[..], &name] {
        let (stream, reply) = ask(&here, true, target, port);
        assert_eq!(reply, 0);
        talk_v1(stream, &messages(&mut rng, 20));
        assert_eq!(here_told.recv_timeout(LIMIT).unwrap(), "connected V2");
        assert_eq!(
            upstream_told.recv_timeout(LIMIT).unwrap(),
            "connected NodeV2"
        );
        for told in [&here_told, &upstream_told] {
            let closed = told.recv_timeout(LIMIT).unwrap();
            assert!(closed.starts_with("closed: "), "{closed}");
        }
    }
}

#[test]
fn denied_addresses_are_refused() {
    let (node, _from) = echo();
    let set = |text: &str| {
        let network: packetlane_gateway::Network = text.parse().unwrap();
        Arc::new(AddressSet::from_iter([network]))
    };
    let (mut gateway, told) = told(Settings {
        allowed: Some(set("127.0.0.0/8")),
        denied: set("127.5.0.0/16"),
        ..inbound(node)
    });
    let mut refused = connect_from(&gateway, [127, 5, 0, 1]);
    assert_eq!(told.recv_timeout(LIMIT).unwrap(), "refused Denied");
    assert!(matches!(refused.read(&mut [0; 10]), Ok(0) | Err(_)));
    let mut stream = connect_from(&gateway, [127, 6, 0, 1]);
    stream.write_all(&version()).unwrap();
    assert_eq!(told.recv_timeout(LIMIT).unwrap(), "connected V1");
    // Who is denied later is closed.
    let mut changed = gateway.settings().clone();
    changed.denied = set("127.6.0.1");
    gateway.change(changed).unwrap();
    let closed = told.recv_timeout(LIMIT).unwrap();
    assert_eq!(closed, "closed: the peer's address is denied");
    let mut changed = gateway.settings().clone();
    changed.allowed = Some(set("10.0.0.0/8"));
    gateway.change(changed).unwrap();
    until("nobody is allowed", || {
        let _stream = connect_from(&gateway, [127, 7, 0, 1]);
        told.recv_timeout(LIMIT).unwrap() == "refused Denied"
    });
}

/// A node that does not answer costs its peers seconds, not the kernel's minutes.
#[test]
fn connecting_to_the_node_takes_a_limited_time() {
    let (node, _queue) = unreachable_node();
    let mut settings = inbound(node);
    settings.limits.connect = Duration::from_secs(1);
    let (gateway, told) = told(settings);
    let mut stream = connect(&gateway);
    stream.write_all(&version()).unwrap();
    let begun = Instant::now();
    let closed = told.recv_timeout(LIMIT).unwrap();
    assert!(closed.contains("timed out"), "{closed}");
    assert!(begun.elapsed() < Duration::from_secs(8));
}

/// A header of the PROXY protocol tells the node who a peer is.
#[test]
fn a_node_may_read_the_proxy_protocol() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut settings = inbound(listener.local_addr().unwrap());
    settings.inbound[0].source = PeerSource::ProxyProtocol;
    settings.advertise = false;
    let (gateway, _told) = told(settings);
    let mut stream = connect(&gateway);
    stream.write_all(&version()).unwrap();
    let (mut node, _) = listener.accept().unwrap();
    let mut header = [0; 28];
    node.read_exact(&mut header).unwrap();
    let [client, server] = [stream.local_addr().unwrap(), stream.peer_addr().unwrap()];
    let mut expected = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x01".to_vec();
    expected.extend_from_slice(&client.port().to_be_bytes());
    expected.extend_from_slice(&server.port().to_be_bytes());
    assert_eq!(header[..], expected);
    let mut heard = version();
    node.read_exact(&mut heard).unwrap();
    assert!(heard == version());
}

/// A banned peer is not taken for a dead node.
#[test]
fn a_node_that_refuses_a_peer_is_up() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (gateway, told) = told(inbound(listener.local_addr().unwrap()));
    assert_eq!(gateway.nodes(), [NodeState::Unknown]);
    let mut stream = connect(&gateway);
    stream.write_all(&version()).unwrap();
    drop(listener.accept().unwrap());
    assert_eq!(told.recv_timeout(LIMIT).unwrap(), "connected V1");
    let closed = told.recv_timeout(LIMIT).unwrap();
    assert!(closed.contains("before it sent anything"), "{closed}");
    assert_eq!(gateway.nodes(), [NodeState::Up]);
    assert!(gateway.check_nodes()());
    // Now it is dead.
    drop(listener);
    let mut stream = connect(&gateway);
    stream.write_all(&version()).unwrap();
    let closed = told.recv_timeout(LIMIT).unwrap();
    assert!(
        closed.starts_with("closed: the connection to the node failed"),
        "{closed}"
    );
    assert_eq!(gateway.nodes(), [NodeState::Down]);
    assert!(!gateway.check_nodes()());
}

#[test]
fn each_listener_has_its_own_node() {
    let (node, from) = echo();
    let unused = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let other = unused.local_addr().unwrap();
    let mut settings = inbound(node);
    settings.inbound.push(Inbound::new(any_port(), other));
    let (gateway, told) = told(settings);
    let places = [0, 1].map(|index| gateway.settings().inbound[index].listen);
    let mut streams = places.map(|place| TcpStream::connect(place).unwrap());
    for stream in &mut streams {
        stream.write_all(&version()).unwrap();
    }
    let mut heard = version();
    unused.accept().unwrap().0.read_exact(&mut heard).unwrap();
    streams[0].read_exact(&mut version()).unwrap();
    from.recv_timeout(LIMIT).unwrap();
    until("both are up", || gateway.nodes() == [NodeState::Up; 2]);
    drop(unused);
    let mut stream = TcpStream::connect(places[1]).unwrap();
    stream.write_all(&version()).unwrap();
    let expected = [NodeState::Up, NodeState::Down];
    until("one is down", || gateway.nodes() == expected);
    assert!(!gateway.check_nodes()());
    assert!(heard == version() && told.try_iter().count() >= 2);
    let mut settings = inbound(node);
    settings.inbound = vec![Inbound::new(any_port(), node); Settings::MAX_INBOUND + 1];
    let refused = Gateway::start(settings.clone(), |_, _| {});
    assert!(matches!(refused, Err(GatewayError::TooManyListeners)));
    settings.inbound.pop();
    let many = Gateway::start(settings, |_, _| {}).unwrap();
    for place in &many.settings().inbound {
        let mut stream = TcpStream::connect(place.listen).unwrap();
        stream.write_all(&version()).unwrap();
        stream.read_exact(&mut version()).unwrap();
    }
}

/// Two connections of one address share its rate; another address has its own.
#[test]
fn bytes_of_an_address_are_limited() {
    const RATE: usize = 50_000;
    let (node, _from) = echo();
    let mut settings = behind_a_balancer(node);
    settings.limits.byte_rate.address = RATE;
    let (gateway, _told) = start(settings);
    let talk = |client: &str, messages: usize| {
        let mut stream = connect(&gateway);
        stream
            .write_all(&introduction(client.parse().unwrap()))
            .unwrap();
        std::thread::spawn(move || {
            let start = Instant::now();
            let message = (MessageType::literal("tx"), vec![7; 10_000]);
            let sent = vec![message; messages];
            assert!(talk_v2(stream, &sent, StdRng::seed_from_u64(8)) == sent);
            start.elapsed()
        })
    };
    // 200,000 bytes in, and as many out. Each turn may exceed the rate by what it has read.
    let limited = ["203.0.113.5:1", "203.0.113.5:2"].map(|client| talk(client, 10));
    let other = talk("203.0.113.6:1", 2).join().unwrap();
    let took = limited.map(|thread| thread.join().unwrap());
    assert!(took.iter().all(|took| took.as_secs() >= 2), "{took:?}");
    assert!(other < took[0].min(took[1]), "{other:?}, {took:?}");
}

#[test]
fn peers_without_a_handshake_are_closed() {
    let (node, from) = echo();
    let mut settings = inbound(node);
    settings.limits.handshake = Duration::from_secs(1);
    let (gateway, ended) = start(settings);
    let mut silent = connect(&gateway);
    let mut partial = connect(&gateway);
    partial.write_all(&[1; 30]).unwrap();
    for _ in 0..2 {
        let (transport, _, close) = ended.recv_timeout(LIMIT).unwrap();
        assert_eq!(transport, Transport::Unknown);
        assert_eq!(close, "the handshake timed out");
    }
    assert_eq!(silent.read(&mut [0; 100]).unwrap(), 0);
    // Neither of them has reached the node.
    assert!(from.try_recv().is_err());
}

#[test]
fn an_unreachable_node() {
    let nobody = {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.local_addr().unwrap()
    };
    let (gateway, ended) = start(inbound(nobody));
    let mut stream = connect(&gateway);
    let mut wire = Vec::new();
    v1::Message::new(MessageType::literal("version"), &[3; 90]).encode(MAGIC, &mut wire);
    stream.write_all(&wire).unwrap();
    let (_, _, close) = ended.recv_timeout(LIMIT).unwrap();
    assert!(
        close.starts_with("the connection to the node failed: "),
        "{close}"
    );
    assert!(matches!(stream.read(&mut [0; 10]), Ok(0) | Err(_)));
}

/// Peers refused by a limit are closed at once; others can connect after some have left.
#[test]
fn connections_above_the_limits_are_refused() {
    type Limit = fn(&mut Limits);
    let (node, _from) = echo();
    let cases: [(Limit, Refusal); 4] = [
        (|limits| limits.connections = 2, Refusal::Connections),
        (|limits| limits.half_open = 2, Refusal::HalfOpen),
        (
            |limits| limits.half_open_of.address = 2,
            Refusal::HalfOpenAddress,
        ),
        (
            |limits| limits.half_open_of.group = 2,
            Refusal::HalfOpenGroup,
        ),
    ];
    for (limit, refusal) in cases {
        let mut settings = inbound(node);
        settings.workers = NonZero::new(1).unwrap();
        limit(&mut settings.limits);
        let (gateway, told) = told(settings);
        let kept = [connect(&gateway), connect(&gateway)];
        let mut refused = connect(&gateway);
        let expected = format!("refused {refusal:?}");
        assert_eq!(told.recv_timeout(LIMIT).unwrap(), expected);
        assert!(matches!(refused.read(&mut [0; 10]), Ok(0) | Err(_)));
        drop(kept);
        for _ in 0..2 {
            let closed = told.recv_timeout(LIMIT).unwrap();
            assert!(closed.starts_with("closed: "), "{closed}");
        }
        let mut rng = StdRng::seed_from_u64(3);
        let messages = messages(&mut rng, 5);
        assert!(talk_v2(connect(&gateway), &messages, rng) == messages);
    }
}

/// Waits until a condition holds.
#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "timeout: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Connects from the given loopback address.
fn connect_from(gateway: &Gateway, from: [u8; 4]) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    let to = gateway.settings().inbound[0].listen;
    socket.connect_timeout(&to.into(), LIMIT).unwrap();
    socket.into()
}

/// Limits do not depend on the number of threads, nor on which thread accepts a connection.
#[test]
fn limits_apply_to_all_threads_together() {
    let (node, _from) = echo();
    let mut settings = inbound(node);
    settings.workers = NonZero::new(8).unwrap();
    settings.limits.half_open_of.address = 4;
    settings.limits.half_open_of.group = 16;
    settings.limits.half_open = 64;
    settings.limits.connections = 80;
    let (gateway, told) = told(settings);
    let mut kept = Vec::new();
    let mut come = |from: &mut dyn Iterator<Item = [u8; 4]>, refusal: &str, stay: usize| {
        let before = kept.len();
        let come: Vec<_> = from.map(|from| connect_from(&gateway, from)).collect();
        for _ in stay..come.len() {
            let expected = format!("refused {refusal}");
            assert_eq!(told.recv_timeout(LIMIT).unwrap(), expected);
        }
        kept.extend(come);
        until(refusal, || {
            // The refused connections are in `kept`, too.
            kept.retain(|stream: &TcpStream| !is_closed(stream));
            kept.len() == before + stay && gateway.peers().len() == kept.len()
        });
        assert!(told.try_recv().is_err());
    };
    come(&mut [[127, 5, 0, 1]; 40].into_iter(), "HalfOpenAddress", 4);
    come(&mut (1..=40).map(|x| [127, 5, 1, x]), "HalfOpenGroup", 12);
    come(&mut (1..=56).map(|x| [127, 5 + x, 0, 1]), "HalfOpen", 48);
    // Peers whose handshake is done are no longer half-open.
    for stream in &mut kept {
        stream.write_all(&version()).unwrap();
        assert_eq!(told.recv_timeout(LIMIT).unwrap(), "connected V1");
    }
    let mut more: Vec<_> = (1..=20)
        .map(|x| connect_from(&gateway, [127, 5, 0, x]))
        .collect();
    for _ in 0..4 {
        assert_eq!(told.recv_timeout(LIMIT).unwrap(), "refused Connections");
    }
    until("80 are there", || {
        more.retain(|stream| !is_closed(stream));
        more.len() == 16 && gateway.peers().len() == 80
    });
    // All slots are free again.
    drop((kept, more));
    for _ in 0..80 {
        assert!(told.recv_timeout(LIMIT).unwrap().starts_with("closed: "));
    }
    let _again: Vec<_> = (0..4)
        .map(|_| connect_from(&gateway, [127, 5, 0, 1]))
        .collect();
    until("they are there", || gateway.peers().len() == 4);
}

/// Whether the gateway has closed the connection. It has sent nothing.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let read = stream.read(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    !matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

fn version() -> Vec<u8> {
    let mut wire = Vec::new();
    v1::Message::new(MessageType::literal("version"), &[3; 90]).encode(MAGIC, &mut wire);
    wire
}

/// A node that accepts no connection, so that data for it is queued in the gateway. The second
/// value keeps it in this state.
fn unreachable_node() -> (SocketAddr, impl Sized) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&any_port().into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    // One more connection than its queue takes.
    let waiting = [(); 2].map(|()| {
        let stream = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let _ = stream.connect_timeout(&address.into(), Duration::from_millis(100));
        stream
    });
    (address, (socket, waiting))
}

/// A v1 peer that sends this many bytes, unless it is closed before.
fn send(gateway: &Gateway, bytes: usize) -> std::thread::JoinHandle<TcpStream> {
    let mut stream = connect(gateway);
    std::thread::spawn(move || {
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        let _ = stream.write_all(&version());
        let _ = stream.write_all(&vec![7; bytes]);
        stream
    })
}

const MIB: usize = 1 << 20;
const TOO_MUCH: &str = "closed: the memory limit was reached, and this connection held the most";

/// No thread exceeds the limit alone.
#[test]
fn memory_limits_apply_to_all_threads_together() {
    let (node, _unreachable) = unreachable_node();
    let mut settings = inbound(node);
    settings.workers = NonZero::new(8).unwrap();
    settings.limits.memory = 8 * MIB;
    let (gateway, told) = told(settings);
    // A buffer grows by doubling, so what each sends takes 1 MiB.
    let peers: Vec<_> = (0..24).map(|_| send(&gateway, 900_000)).collect();
    let mut closed = 0;
    until("the others have room", || {
        closed += told.try_iter().filter(|told| told == TOO_MUCH).count();
        24 - closed <= 8
    });
    let _peers: Vec<_> = peers.into_iter().map(|peer| peer.join()).collect();
    // Each thread checks every second.
    std::thread::sleep(Duration::from_millis(2500));
    closed += told.try_iter().filter(|told| told == TOO_MUCH).count();
    let left = gateway.peers().len();
    assert_eq!(left, 24 - closed);
    assert!((4..=8).contains(&left), "{left} peers are left");
}

/// Neither by their number, nor by what they send, nor by staying silent.
#[test]
fn inbound_peers_never_use_the_budget_of_the_nodes_own() {
    let (node, _unreachable) = unreachable_node();
    let mut settings = inbound(node);
    settings.socks = Some(any_port());
    settings.workers = NonZero::new(1).unwrap();
    settings.limits.connections = 8;
    settings.limits.half_open = 4;
    settings.limits.outbound_connections = 2;
    settings.limits.memory = 3 * MIB;
    let (gateway, told) = told(settings);
    let idle: Vec<_> = (0..5).map(|_| connect(&gateway)).collect();
    assert_eq!(told.recv_timeout(LIMIT).unwrap(), "refused HalfOpen");

    // A peer that never answers: more data is queued for it than any stranger sends.
    let silent = TcpListener::bind(any_port()).unwrap();
    let port = silent.local_addr().unwrap().port();
    let own = [(); 2].map(|()| {
        let (mut stream, reply) = ask(&gateway, false, &LOCALHOST, port);
        assert_eq!(reply, 0);
        stream.write_all(&version()).unwrap();
        stream.write_all(&vec![1; MIB + 100_000]).unwrap();
        stream
    });
    let mut refused = TcpStream::connect(gateway.settings().socks.unwrap()).unwrap();
    let expected = "refused Connections";
    assert_eq!(told.recv_timeout(LIMIT).unwrap(), expected);
    assert!(matches!(refused.read(&mut [0]), Ok(0) | Err(_)));

    // The other limits are unchanged.
    drop(idle);
    for _ in 0..4 {
        assert!(told.recv_timeout(LIMIT).unwrap().starts_with("closed: "));
    }
    let strangers: Vec<_> = (0..4).map(|_| send(&gateway, 900_000)).collect();
    let _strangers: Vec<_> = strangers.into_iter().map(|peer| peer.join()).collect();
    let mut closed = false;
    until("they have too much", || {
        closed |= told.try_iter().any(|told| told == TOO_MUCH);
        closed
    });
    let peers = gateway.peers();
    let outbound = peers
        .iter()
        .filter(|peer| peer.direction == Direction::Outbound);
    assert_eq!(outbound.count(), own.len());
}

/// A turn sets up only a few connections. With turns of 50 ms, the machine's load matters little.
#[test]
fn the_nodes_own_connections_are_set_up_first() {
    const STRANGERS: usize = 200;
    let (node, _unreachable) = unreachable_node();
    let mut settings = inbound(node);
    settings.socks = Some(any_port());
    settings.workers = NonZero::new(1).unwrap();
    settings.limits.half_open_of.address = STRANGERS;
    settings.turn = Duration::from_millis(50);
    let gateway = Gateway::start(settings, |_, _| {}).unwrap();
    let strangers: Vec<_> = (0..STRANGERS).map(|_| connect(&gateway)).collect();
    until("all strangers are there", || {
        gateway.peers().len() == STRANGERS
    });
    for mut stranger in &strangers {
        // Not the start of a v1 message, so each gets a key in reply.
        stranger.write_all(&[7; 64]).unwrap();
    }
    let peer = TcpListener::bind(any_port()).unwrap();
    let (_stream, reply) = ask(
        &gateway,
        false,
        &LOCALHOST,
        peer.local_addr().unwrap().port(),
    );
    assert_eq!(reply, 0);
    let is_answered = |stranger: &&TcpStream| {
        stranger.set_nonblocking(true).unwrap();
        stranger.peek(&mut [0]).is_ok()
    };
    let answered = strangers.iter().filter(is_answered).count();
    assert!(answered < STRANGERS / 2, "{answered} strangers came first");
}

/// All statistics of each thread, by name.
fn figures(turns: &[Turns]) -> BTreeMap<String, u128> {
    let mut figures = BTreeMap::new();
    for (thread, turns) in turns.iter().enumerate() {
        let mut note = |name: &str, figure: u128| {
            let name = format!("{thread}: {name}");
            assert!(figures.insert(name, figure).is_none());
        };
        note("calls", turns.calls.into());
        note("opened", turns.opened.iter().sum::<u64>().into());
        note("sealed", turns.sealed.iter().sum::<u64>().into());
        note("cpu", turns.cpu.as_nanos());
        for (direction, passed) in [("from", &turns.received), ("to", &turns.sent)] {
            note(&format!("{direction} in bytes"), passed.bytes.into());
            for count in &passed.types {
                let name = format!("{direction}: {:?}", count.message_type);
                note(&name, count.messages.into());
            }
        }
    }
    figures
}

fn version_and_more() -> Vec<u8> {
    let mut wire = version();
    v1::Message::new(MessageType::literal("invented"), &[]).encode(MAGIC, &mut wire);
    wire
}

/// Peers connect, send something and leave while statistics are read; then the threads end.
#[test]
fn totals_never_fall() {
    const PEERS: usize = 60;
    // A message of the protocol and an unknown one.
    let wire = version_and_more();
    let visit = move |listen: SocketAddr| {
        let mut stream = TcpStream::connect(listen).unwrap();
        stream.write_all(&wire).unwrap();
        stream.read_exact(&mut wire.clone()).unwrap();
    };
    let (node, _from) = echo();
    let mut settings = inbound(node);
    settings.workers = NonZero::new(4).unwrap();
    let (mut gateway, ended) = start(settings);
    let listen = gateway.settings().inbound[0].listen;
    let mut before = figures(&gateway.turns());
    let mut check = |now: BTreeMap<String, u128>| {
        assert!(before.keys().eq(now.keys()), "{now:?}");
        for ((name, before), now) in before.iter().zip(now.values()) {
            assert!(before <= now, "{name}: {before}, then {now}");
        }
        before = now;
    };
    let visits: Vec<_> = (0..4)
        .map(|_| {
            let visit = visit.clone();
            std::thread::spawn(move || (0..PEERS / 4).for_each(|_| visit(listen)))
        })
        .collect();
    while !visits.iter().all(|visits| visits.is_finished()) {
        check(figures(&gateway.turns()));
    }
    visits.into_iter().for_each(|visits| visits.join().unwrap());
    // Nobody reads this peer's statistics before its thread has ended.
    visit(listen);
    for _ in 0..=PEERS {
        ended.recv_timeout(LIMIT).unwrap();
    }
    gateway.drain();
    until("all threads have ended", || gateway.has_ended());
    let turns = gateway.turns();
    check(figures(&turns));
    let all = PEERS as u64 + 1;
    for direction in [
        |turns: &Turns| turns.received.clone(),
        |turns: &Turns| turns.sent.clone(),
    ] {
        let bytes: u64 = turns.iter().map(|turns| direction(turns).bytes).sum();
        assert_eq!(bytes, all * version_and_more().len() as u64);
        let of = |message_type| {
            let counts = turns.iter().flat_map(|turns| direction(turns).types);
            let its = counts.filter(|count| count.message_type == message_type);
            its.map(|count| count.messages).sum::<u64>()
        };
        assert_eq!(of(Some(MessageType::literal("version"))), all);
        assert_eq!(of(None), all);
    }
    gateway.stop().unwrap();
}

/// A PROXY protocol v2 header for a TCP client.
fn introduction(client: SocketAddr) -> Vec<u8> {
    let mut wire = b"\r\n\r\n\0\r\nQUIT\n\x21".to_vec();
    match client.ip() {
        IpAddr::V4(address) => {
            wire.extend([0x11, 0, 12]);
            wire.extend(address.octets());
            wire.extend([192, 0, 2, 1]);
        }
        IpAddr::V6(address) => {
            wire.extend([0x21, 0, 36]);
            wire.extend(address.octets());
            wire.extend([9; 16]);
        }
    }
    wire.extend(client.port().to_be_bytes());
    wire.extend(8333_u16.to_be_bytes());
    wire
}

fn behind_a_balancer(node: SocketAddr) -> Settings {
    let mut settings = inbound(node);
    settings.inbound[0].proxy_protocol = true;
    settings.workers = NonZero::new(1).unwrap();
    settings
}

/// The peer's first bytes may arrive together with the header, and the header may arrive byte by
/// byte.
#[test]
fn a_balancer_tells_the_peers_addresses() {
    let (node, from) = echo();
    let (tell, told) = channel();
    let gateway = Gateway::start(
        behind_a_balancer(node),
        move |peer: &Peer, event: &Event| {
            if let Event::Connected = event {
                let _ = tell.send((peer.address.to_string(), peer.transport));
            }
        },
    );
    let gateway = gateway.unwrap();
    let mut rng = StdRng::seed_from_u64(7);
    let messages = messages(&mut rng, 20);
    let mut wire = Vec::new();
    v1::Message::new(MessageType::literal("version"), &[3; 90]).encode(MAGIC, &mut wire);
    let mut reached = Vec::new();
    let signature = b"\r\n\r\n\0\r\nQUIT\n";
    let local = [&signature[..], b"\x20\0\0\0"].concat();
    // UNIX socket addresses, from which no peer connects.
    let unix = [&signature[..], b"\x21\x31\0\xd8", &[b'/'; 216]].concat();
    let udp = [&signature[..], b"\x21\x12\0\x0c", &[9; 12]].concat();
    for (client, without) in [
        ("203.0.113.5:1234", &[][..]),
        ("[2001:db8::7]:1234", &[]),
        ("", &local),
        ("", &unix),
        ("", &udp),
    ] {
        let header = match client.parse() {
            Ok(client) => introduction(client),
            Err(_) => without.to_vec(),
        };
        for split in [0, 1, 15, 16, 17, header.len() - 1, header.len()] {
            // One of the headers has 16 bytes.
            let split = split.min(header.len());
            let mut stream = connect(&gateway);
            stream.set_nodelay(true).unwrap();
            stream.write_all(&header[..split]).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            let rest = &header[split..];
            let here = stream.local_addr().unwrap().to_string();
            let expected = if client.is_empty() { &here } else { client };
            let transport = match split % 2 {
                // Together with the peer's first bytes.
                0 => {
                    stream.write_all(&[rest, &wire].concat()).unwrap();
                    stream.read_exact(&mut wire.clone()).unwrap();
                    Transport::V1
                }
                _ => {
                    stream.write_all(rest).unwrap();
                    assert!(talk_v2(stream, &messages, StdRng::seed_from_u64(8)) == messages);
                    Transport::V2
                }
            };
            let told = told.recv_timeout(LIMIT).unwrap();
            assert_eq!(told, (expected.to_owned(), transport));
            reached.push(from.recv_timeout(LIMIT).unwrap());
        }
    }
    // Each reaches the node from its own address.
    reached.sort_unstable();
    reached.dedup();
    assert_eq!(reached.len(), 3, "{reached:?}");
}

#[test]
fn invalid_proxy_headers_are_closed() {
    let (node, from) = echo();
    let mut settings = behind_a_balancer(node);
    settings.limits.handshake = Duration::from_secs(1);
    let (gateway, told) = told(settings);
    let client = introduction("203.0.113.5:1".parse().unwrap());
    let mut version = client.clone();
    version[12] = 0x31;
    let mut family = client.clone();
    family[13] = 0x33;
    let text = b"PROXY TCP4 203.0.113.5 192.0.2.1 1 2\r\n";
    for (wire, ends, expected) in [
        (
            &text[..],
            false,
            "closed: PROXY protocol: not a version 2 header",
        ),
        (
            &MAGIC,
            false,
            "closed: PROXY protocol: not a version 2 header",
        ),
        (
            &version,
            false,
            "closed: PROXY protocol: not a version 2 header",
        ),
        (
            &family,
            false,
            "closed: PROXY protocol: Invalid protocol 3. Protocol must be one of: Unspecified, \
             Stream, or Datagram.",
        ),
        (
            &client[..20],
            true,
            "closed: PROXY protocol: the connection ended within the header",
        ),
        (&[], true, "closed: the peer closed the connection"),
        (&client[..20], false, "closed: the handshake timed out"),
        (&[], false, "closed: the handshake timed out"),
        (&client, false, "closed: the handshake timed out"),
    ] {
        let mut stream = connect(&gateway);
        stream.write_all(wire).unwrap();
        if ends {
            stream.shutdown(Shutdown::Write).unwrap();
        }
        assert_eq!(told.recv_timeout(LIMIT).unwrap(), expected);
        assert!(matches!(stream.read(&mut [0; 10]), Ok(0) | Err(_)));
    }
    assert!(from.try_recv().is_err());
}

#[test]
fn peers_of_a_balancer_are_refused_by_their_own_addresses() {
    let (node, _from) = echo();
    let mut settings = behind_a_balancer(node);
    settings.limits.half_open_of.address = 2;
    settings.limits.half_open_of.group = 3;
    let (gateway, told) = told(settings);
    let mut kept = Vec::new();
    for (client, refusal) in [
        ("203.0.113.5:1", None),
        ("203.0.113.5:2", None),
        ("203.0.113.5:3", Some("refused HalfOpenAddress")),
        ("203.0.113.6:1", None),
        ("203.0.113.7:1", Some("refused HalfOpenGroup")),
        ("198.51.100.7:1", None),
    ] {
        let mut stream = connect(&gateway);
        stream
            .write_all(&introduction(client.parse().unwrap()))
            .unwrap();
        match refusal {
            Some(refusal) => {
                assert_eq!(told.recv_timeout(LIMIT).unwrap(), refusal);
                assert!(matches!(stream.read(&mut [0; 10]), Ok(0) | Err(_)));
            }
            None => kept.push((client, stream)),
        }
        // So that they arrive in order.
        let deadline = std::time::Instant::now() + LIMIT;
        let are_known = || {
            let peers = gateway.peers();
            let all = kept
                .iter()
                .all(|(client, _)| peers.iter().any(|peer| peer.address.to_string() == *client));
            all && peers.len() == kept.len()
        };
        while !are_known() {
            assert!(std::time::Instant::now() < deadline);
        }
    }
    // They stop counting once they have left.
    let count = kept.len();
    drop(kept);
    for _ in 0..count {
        let closed = told.recv_timeout(LIMIT).unwrap();
        assert!(closed.starts_with("closed: "), "{closed}");
    }
    let mut stream = connect(&gateway);
    stream
        .write_all(&introduction("203.0.113.5:9".parse().unwrap()))
        .unwrap();
    let mut rng = StdRng::seed_from_u64(9);
    let messages = messages(&mut rng, 5);
    assert!(talk_v2(stream, &messages, rng) == messages);
}

#[test]
fn current_peers_are_listed() {
    let (node, _from) = echo();
    let (gateway, _ended) = start(inbound(node));
    let mut stream = connect(&gateway);
    let mut wire = Vec::new();
    v1::Message::new(MessageType::literal("version"), &[3; 90]).encode(MAGIC, &mut wire);
    stream.write_all(&wire).unwrap();
    stream.read_exact(&mut wire.clone()).unwrap();
    let _silent = connect(&gateway);
    let deadline = std::time::Instant::now() + LIMIT;
    let peers = loop {
        let peers = gateway.peers();
        if peers.len() == 2 {
            break peers;
        }
        assert!(std::time::Instant::now() < deadline);
    };
    let v1 = peers.iter().find(|peer| peer.transport == Transport::V1);
    let v1 = v1.unwrap();
    assert_eq!(v1.direction, Direction::Inbound);
    assert_eq!(v1.account.sent.types, v1.account.received.types);
    assert_eq!(
        v1.address.to_string(),
        stream.local_addr().unwrap().to_string()
    );
    assert!(
        peers
            .iter()
            .any(|peer| peer.transport == Transport::Unknown)
    );
}

/// Settings change and a gateway drains while a peer is connected.
#[test]
fn connections_outlive_changes() {
    let (node, _from) = echo();
    let (mut gateway, told) = told(inbound(node));
    let mut stream = connect(&gateway);
    let mut wire = Vec::new();
    v1::Message::new(MessageType::literal("version"), &[3; 90]).encode(MAGIC, &mut wire);
    let mut talk = || {
        stream.write_all(&wire).unwrap();
        stream.read_exact(&mut wire.clone()).unwrap();
    };
    talk();
    assert_eq!(told.recv_timeout(LIMIT).unwrap(), "connected V1");
    let mut changed = gateway.settings().clone();
    changed.network = Network::Mainnet;
    let refused = gateway.change(changed);
    assert!(matches!(
        refused,
        Err(GatewayError::RestartRequired("network"))
    ));
    let mut changed = gateway.settings().clone();
    changed.limits.handshake = Duration::from_secs(1);
    gateway.change(changed).unwrap();
    talk();
    let _silent = connect(&gateway);
    assert_eq!(
        told.recv_timeout(LIMIT).unwrap(),
        "closed: the handshake timed out"
    );
    gateway.drain();
    talk();
    assert!(!gateway.has_ended());
    drop(stream);
    assert_eq!(
        told.recv_timeout(LIMIT).unwrap(),
        "closed: the peer closed the connection"
    );
    let deadline = std::time::Instant::now() + LIMIT;
    while !gateway.has_ended() {
        assert!(std::time::Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
    gateway.stop().unwrap();
}

/// However busy the threads are, later connections wait for the owner of the socket.
#[test]
fn a_passed_socket_is_left_alone_after_a_drain() {
    const TURN: Duration = Duration::from_millis(200);
    let (node, _from) = echo();
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut settings = inbound(node);
    settings.inbound[0].listen = socket.local_addr().unwrap();
    settings.turn = TURN;
    let passed = vec![socket.try_clone().unwrap()];
    let gateway = Gateway::start_with(settings, passed, |_, _| {}).unwrap();
    let _there = connect(&gateway);
    while gateway.peers().is_empty() {}
    gateway.drain();
    let _late = connect(&gateway);
    std::thread::sleep(2 * TURN);
    assert_eq!(gateway.peers().len(), 1);
    socket.accept().expect("it waits");
}

/// Requests a connection through SOCKS5. Returns the reply code.
fn ask(gateway: &Gateway, password: bool, target: &[u8], port: u16) -> (TcpStream, u8) {
    let mut stream = TcpStream::connect(gateway.settings().socks.unwrap()).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    if password {
        stream.write_all(&[5, 2, 0, 2]).unwrap();
        let mut method = [0; 2];
        stream.read_exact(&mut method).unwrap();
        assert_eq!(method, [5, 2]);
        stream
            .write_all(&[1, 3, b'a', b'b', b'c', 1, b'd'])
            .unwrap();
        stream.read_exact(&mut method).unwrap();
        assert_eq!(method, [1, 0]);
    } else {
        stream.write_all(&[5, 1, 0]).unwrap();
        let mut method = [0; 2];
        stream.read_exact(&mut method).unwrap();
        assert_eq!(method, [5, 0]);
    }
    let request = [&[5, 1, 0], target, &port.to_be_bytes()].concat();
    stream.write_all(&request).unwrap();
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!((reply[0], reply[2], reply[3]), (5, 0, 1));
    (stream, reply[1])
}

const LOCALHOST: [u8; 5] = [1, 127, 0, 0, 1];

/// Sends messages over v1, and reads until as many have come back.
fn talk_v1(mut stream: TcpStream, messages: &[(MessageType, Vec<u8>)]) {
    let mut wire = Vec::new();
    for (message_type, payload) in messages {
        v1::Message::new(*message_type, payload).encode(MAGIC, &mut wire);
    }
    let expected = wire.clone();
    let mut reader = stream.try_clone().unwrap();
    let heard = std::thread::spawn(move || {
        let mut heard = vec![0; expected.len()];
        reader.read_exact(&mut heard).unwrap();
        assert!(heard == expected);
    });
    for piece in wire.chunks(5000) {
        stream.write_all(piece).unwrap();
    }
    heard.join().unwrap();
}

/// The peers are behind a second gateway, which supports v2 and reports the transport of the first
/// one's connections.
#[test]
fn a_node_reaches_v2_peers_by_socks() {
    let (node, _from) = echo();
    let (there, at_peer) = start(inbound(node));
    let (here, told) = told(outbound());
    let peer = there.settings().inbound[0].listen;
    let name = [&[3, 9][..], b"localhost"].concat();
    let mut rng = StdRng::seed_from_u64(4);
    for (password, target) in [(false, &LOCALHOST[..]), (true, &LOCALHOST), (true, &name)] {
        let (stream, reply) = ask(&here, password, target, peer.port());
        assert_eq!(reply, 0);
        talk_v1(stream, &messages(&mut rng, 50));
        assert_eq!(told.recv_timeout(LIMIT).unwrap(), "connected V2");
        let closed = told.recv_timeout(LIMIT).unwrap();
        assert_eq!(closed, "closed: the node closed the connection");
        let (transport, account, _) = at_peer.recv_timeout(LIMIT).unwrap();
        assert_eq!(
            (transport, account.received.messages()),
            (Transport::V2, 50)
        );
    }
}

/// A node that closes when it receives bytes that are not v1, and echoes v1.
fn v1_only() -> (SocketAddr, Receiver<bool>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, is_v1) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let tell = tell.clone();
            std::thread::spawn(move || {
                let mut bytes = vec![0; 100_000];
                let mut is_first = true;
                while let Ok(len) = stream.read(&mut bytes)
                    && len > 0
                {
                    if std::mem::take(&mut is_first) {
                        let is_v1 = bytes.starts_with(&MAGIC);
                        let _ = tell.send(is_v1);
                        if !is_v1 {
                            return;
                        }
                    }
                    stream.write_all(&bytes[..len]).unwrap();
                }
            });
        }
    });
    (address, is_v1)
}

#[test]
fn v1_only_peers_are_tried_over_v2_once() {
    let (peer, was_v1) = v1_only();
    let (gateway, told) = told(Settings {
        advertise: false,
        ..outbound()
    });
    let mut rng = StdRng::seed_from_u64(5);
    for is_known in [false, true] {
        let (stream, reply) = ask(&gateway, false, &LOCALHOST, peer.port());
        assert_eq!(reply, 0);
        let mut messages = messages(&mut rng, 20);
        messages.insert(0, (MessageType::literal("version"), vec![3; 90]));
        talk_v1(stream, &messages);
        let mut expected = vec!["connected V1", "closed: the node closed the connection"];
        let mut heard = vec![true];
        if !is_known {
            expected.insert(0, "fell back");
            heard.insert(0, false);
        }
        for expected in expected {
            assert_eq!(told.recv_timeout(LIMIT).unwrap(), expected);
        }
        assert_eq!(was_v1.try_iter().collect::<Vec<_>>(), heard);
    }
}

/// A peer that closes is retried over v1, and so is one that answers in v1 or stays silent. One
/// that does not answer over v1 either is not remembered.
#[test]
fn peers_that_answer_v1_or_nothing_are_retried_over_v1() {
    let mut version = Vec::new();
    v1::Message::new(MessageType::literal("version"), &[3; 90]).encode(MAGIC, &mut version);
    for speaks_first in [true, false] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut settings = outbound();
        // The timeout for a silent peer, and the time left for the second attempt.
        settings.limits.handshake = Duration::from_secs(2);
        settings.advertise = false;
        let (gateway, told) = told(settings);
        listener.set_nonblocking(true).unwrap();
        let accept = || {
            let deadline = std::time::Instant::now() + LIMIT;
            let mut stream = loop {
                match listener.accept() {
                    Ok((stream, _)) => break stream,
                    Err(_) => std::thread::sleep(Duration::from_millis(2)),
                }
                assert!(std::time::Instant::now() < deadline, "nobody connects");
            };
            stream.set_nonblocking(false).unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            if speaks_first {
                stream.write_all(&version).unwrap();
            }
            stream
        };
        let read_version = |stream: &mut TcpStream| {
            let mut heard = version.clone();
            stream.read_exact(&mut heard).unwrap();
            assert!(heard == version);
        };
        for is_known in [false, true] {
            let (mut node, reply) = ask(&gateway, false, &LOCALHOST, port);
            assert_eq!(reply, 0);
            node.write_all(&version).unwrap();
            // Closed by the gateway.
            let by_v2 = (!is_known).then(accept);
            let mut peer = accept();
            read_version(&mut peer);
            if let Some(mut by_v2) = by_v2 {
                let mut heard = Vec::new();
                let _ = by_v2.read_to_end(&mut heard);
                assert!(!heard.starts_with(&MAGIC));
                assert_eq!(told.recv_timeout(LIMIT).unwrap(), "fell back");
            }
            if !speaks_first {
                peer.write_all(&version).unwrap();
            }
            assert_eq!(told.recv_timeout(LIMIT).unwrap(), "connected V1");
            read_version(&mut node);
            drop((node, peer));
            let closed = told.recv_timeout(LIMIT).unwrap();
            assert!(closed.starts_with("closed: "), "{closed}");
        }
    }
}

/// Messages of unknown types or with damage do not end a connection, in either direction.
#[test]
fn invalid_messages_are_ignored() {
    let ping = MessageType::literal("ping");
    let v1_ping = |payload: &[u8]| {
        let mut wire = Vec::new();
        v1::Message::new(ping, payload).encode(MAGIC, &mut wire);
        wire
    };
    let (good, mut damaged, mut malformed) = (v1_ping(b"good"), v1_ping(b"dead"), v1_ping(b"dead"));
    damaged[20] ^= 1;
    malformed[10] = 0xff;
    let answer = [&damaged, &good, &malformed, &damaged, &good].map(|wire| wire.as_slice());
    let answer = answer.concat();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (gateway, ended) = start(inbound(listener.local_addr().unwrap()));
    let expected = good.clone();
    let node = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut heard = expected.clone();
        stream.read_exact(&mut heard).unwrap();
        assert!(heard == expected);
        stream.write_all(&answer).unwrap();
        stream
    });

    let mut stream = connect(&gateway);
    let engine = Engine::detect().unwrap();
    let config = HandshakeConfig::random(MAGIC, engine).unwrap();
    let mut connection = Connection::initiator(config).unwrap();
    let (mut incoming, mut outgoing) = (OpenBatch::new(), SealBatch::new());
    let (mut has_sent, mut heard) = (false, Vec::new());
    while heard.len() < 2 {
        if connection.session().is_some() && !std::mem::replace(&mut has_sent, true) {
            // Unknown ids, empty contents, and types that are cut off, not ASCII, or not
            // zero-padded.
            let bad: [&[u8]; 6] = [
                &[38],
                b"\x7f...",
                b"",
                b"\0ping",
                b"\0p\xffng\0\0\0\0\0\0\0\0",
                b"\0ping\0x\0\0\0\0\0\0",
            ];
            for contents in bad {
                connection
                    .push(&mut outgoing, PacketKind::Genuine, contents)
                    .unwrap();
            }
            connection
                .push_message(&mut outgoing, ping, b"good")
                .unwrap();
        }
        engine.seal(&mut outgoing);
        let write = |pieces: &[std::io::IoSlice<'_>]| stream.write_vectored(pieces);
        connection.outbox.write(&outgoing, write).unwrap();
        outgoing.clear();
        let len = stream.read(incoming.room(16_384)).unwrap();
        assert_ne!(len, 0, "{}", connection.closed());
        connection.receive(&mut incoming, len).unwrap();
        engine.open(&mut incoming);
        while let Some(contents) = connection.next_packet(&incoming).unwrap() {
            heard.push(contents.to_vec());
        }
        incoming.clear();
    }
    assert_eq!(heard, [b"\x12good", b"\x12good"]);
    drop((stream, node.join().unwrap()));
    let (transport, account, close) = ended.recv_timeout(LIMIT).unwrap();
    let counts = |passed: &Traffic| (passed.messages(), passed.ignored);
    assert_eq!(transport, Transport::V2, "{close}");
    assert_eq!(counts(&account.received), (1, 6), "{close}");
    assert_eq!(counts(&account.sent), (2, 3), "{close}");
}

/// They have IPv4 addresses in events and when they reach the node.
#[test]
fn ipv4_peers_of_a_dual_stack_listener() {
    let (node, from) = echo();
    let mut reached = Vec::new();
    for listen in ["[::]:0", "127.0.0.1:0"] {
        let mut settings = inbound(node);
        settings.inbound[0].listen = listen.parse().unwrap();
        settings.limits.half_open = 1;
        settings.workers = NonZero::new(1).unwrap();
        let (tell, told) = channel();
        let gateway = Gateway::start(settings, move |peer: &Peer, event: &Event| {
            let event = format!("{event:?}");
            let _ = tell.send((event, peer.address.to_string()));
        });
        let gateway = gateway.unwrap();
        let port = gateway.settings().inbound[0].listen.port();
        let connect = || {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            let address = stream.local_addr().unwrap().to_string();
            (stream, address)
        };
        let (mut stream, address) = connect();
        let deadline = std::time::Instant::now() + LIMIT;
        while gateway.peers().is_empty() {
            assert!(std::time::Instant::now() < deadline);
        }
        let (_refused, refused) = connect();
        let heard = told.recv_timeout(LIMIT).unwrap();
        assert_eq!(heard, ("Refused(HalfOpen)".to_owned(), refused));
        let mut wire = Vec::new();
        v1::Message::new(MessageType::literal("version"), &[3; 90]).encode(MAGIC, &mut wire);
        stream.write_all(&wire).unwrap();
        stream.read_exact(&mut wire).unwrap();
        let heard = told.recv_timeout(LIMIT).unwrap();
        assert_eq!(heard, ("Connected".to_owned(), address));
        reached.push(from.recv_timeout(LIMIT).unwrap());
    }
    // Not from the gateway's own address: like other IPv4 peers.
    assert!(reached.iter().all(|from| *from != Ipv4Addr::LOCALHOST));
}

#[test]
fn a_node_is_told_which_peers_are_unreachable() {
    let nobody = {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.local_addr().unwrap().port()
    };
    let (gateway, told) = told(outbound());
    // Also in a spelling that a resolver would accept.
    let onion = [&[3, 10][..], b"abc.Onion."].concat();
    let unknown = [&[3, 12][..], b"nobody.alt.x"].concat();
    let cases: [(&[u8], u8, &str); 3] = [
        (
            &LOCALHOST,
            5,
            "closed: the connection to the peer failed: Connection refused",
        ),
        (&onion, 4, "closed: an .onion name needs --tor"),
        (&unknown, 4, "closed: cannot resolve the peer's name: "),
    ];
    for (target, expected, told_as) in cases {
        let (mut stream, reply) = ask(&gateway, false, target, nobody);
        assert_eq!(reply, expected);
        assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0);
        let closed = told.recv_timeout(LIMIT).unwrap();
        assert!(closed.starts_with(told_as), "{closed}");
    }
    // Not SOCKS.
    let mut stream = TcpStream::connect(gateway.settings().socks.unwrap()).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(matches!(stream.read(&mut [0; 10]), Ok(0) | Err(_)));
    let closed = told.recv_timeout(LIMIT).unwrap();
    assert_eq!(closed, "closed: not SOCKS5: the first byte is 0x47");
}

/// Tor's RESOLVE command, which btcd uses for every name.
#[test]
fn names_are_resolved() {
    let (gateway, told) = told(outbound());
    let name = |name: &[u8]| [&[3, name.len() as u8], name].concat();
    for (asked, expected, told_as) in [
        (
            name(b"localhost"),
            &[5, 0, 0, 1, 127, 0, 0, 1, 0, 0][..],
            "closed: a name lookup for the node was answered",
        ),
        (
            [&[4][..], &[9; 16]].concat(),
            &[
                5, 0, 0, 4, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 0, 0,
            ],
            "closed: a name lookup for the node was answered",
        ),
        (
            name(b"abc.onion"),
            &[5, 4, 0, 1, 0, 0, 0, 0, 0, 0],
            "closed: cannot resolve the peer's name: .onion names",
        ),
        (
            name(b"no.such.name.invalid"),
            &[5, 4, 0, 1, 0, 0, 0, 0, 0, 0],
            "closed: cannot resolve the peer's name: ",
        ),
    ] {
        let mut stream = TcpStream::connect(gateway.settings().socks.unwrap()).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let request = [&[5, 1, 0, 5, 0xf0, 0], &asked[..], &[0, 0]].concat();
        stream.write_all(&request).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!((&answer[..2], &answer[2..]), (&[5, 0][..], expected));
        let closed = told.recv_timeout(LIMIT).unwrap();
        assert!(closed.starts_with(told_as), "{closed}");
    }
}

/// .onion names go to the upstream proxy, with the node's credentials if it asks for them.
#[test]
fn onion_names_go_to_the_upstream_proxy() {
    for method in [2, 0] {
        onion_names_go_to_a_proxy(method);
    }
}

fn onion_names_go_to_a_proxy(method: u8) {
    let (peer, _was_v1) = v1_only();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let tor = listener.local_addr().unwrap();
    let (tell, asked) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut take = |len: usize, answer: &[u8]| {
                let mut bytes = vec![0; len];
                stream.read_exact(&mut bytes).unwrap();
                stream.write_all(answer).unwrap();
                bytes
            };
            // The node may have sent a password, and the proxy may accept none.
            assert_eq!(take(4, &[5, method]), [5, 2, 0, 2]);
            if method == 2 {
                assert_eq!(take(7, &[1, 0]), b"\x01\x03abc\x01d");
            }
            let request = take(5 + 9 + 2, &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
            tell.send(request).unwrap();
            let there = TcpStream::connect(peer).unwrap();
            for (mut from, mut to) in [
                (stream.try_clone().unwrap(), there.try_clone().unwrap()),
                (there, stream),
            ] {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    let (gateway, told) = told(Settings {
        tor: Some(tor),
        ..outbound()
    });
    let onion = [&[3, 9][..], b"abc.onion"].concat();
    let (stream, reply) = ask(&gateway, true, &onion, 8333);
    assert_eq!(reply, 0);
    let mut rng = StdRng::seed_from_u64(6);
    talk_v1(stream, &messages(&mut rng, 20));
    let request = [&[5, 1, 0], &onion[..], &8333_u16.to_be_bytes()].concat();
    for told_as in ["fell back", "connected V1"] {
        assert_eq!(asked.recv_timeout(LIMIT).unwrap(), request);
        assert_eq!(told.recv_timeout(LIMIT).unwrap(), told_as);
    }
}

/// The node is told at once, whatever the state of the upstream proxy.
#[test]
fn a_closed_upstream_proxy_is_reported() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let tor = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (says, stream) in (0..3).zip(listener.incoming()) {
            let mut stream = stream.unwrap();
            let mut bytes = [0; 100];
            if says > 0 {
                stream.read_exact(&mut bytes[..3]).unwrap();
                stream.write_all(&[5, 0]).unwrap();
            }
            if says > 1 {
                let _ = stream.read(&mut bytes).unwrap();
                stream.write_all(&[5, 0, 0]).unwrap();
            }
        }
    });
    let (gateway, told) = told(Settings {
        tor: Some(tor),
        ..outbound()
    });
    let onion = [&[3, 9][..], b"abc.onion"].concat();
    for _ in 0..3 {
        let (_stream, reply) = ask(&gateway, false, &onion, 8333);
        assert!(reply == 1 || reply == 4, "{reply}");
        let closed = told.recv_timeout(LIMIT).unwrap();
        let reset = "closed: the connection to the peer failed: ";
        assert!(
            closed == "closed: the peer closed the connection" || closed.starts_with(reset),
            "{closed}"
        );
    }
}

/// With the smallest batch and queue, messages are relayed one by one.
#[test]
fn the_smallest_limits_suffice() {
    let (node, _from) = echo();
    let mut settings = inbound(node);
    settings.limits.batch = 0;
    settings.limits.queued = 0;
    let (gateway, _ended) = start(settings);
    let mut rng = StdRng::seed_from_u64(7);
    let messages = messages(&mut rng, 30);
    assert!(talk_v2(connect(&gateway), &messages, rng) == messages);
}

/// The peer sends now and then, and reads nothing.
#[test]
fn peers_that_read_nothing_are_closed() {
    let (node, _from) = echo();
    let mut settings = inbound(node);
    settings.limits.stalled = Duration::from_secs(1);
    let (gateway, told) = told(settings);
    let mut stream = connect(&gateway);
    let mut wire = Vec::new();
    v1::Message::new(MessageType::literal("version"), &[3; 90]).encode(MAGIC, &mut wire);
    for _ in 0..10 {
        v1::Message::new(MessageType::literal("tx"), &vec![4; 4_000_000]).encode(MAGIC, &mut wire);
    }
    let writer = std::thread::spawn(move || {
        let _ = stream.write_all(&wire);
        stream
    });
    assert_eq!(told.recv_timeout(LIMIT).unwrap(), "connected V1");
    assert_eq!(
        told.recv_timeout(LIMIT).unwrap(),
        "closed: the peer stopped reading"
    );
    drop(writer.join().unwrap());
}

/// Whatever the shape, a peer gets the node's messages in order, and the account says what it cost.
#[test]
fn shaped_connections_carry_the_same_messages() {
    const BUDGET: u64 = 10_000_000_000;
    let delay = Duration::from_millis(20);
    for shape in [
        Shape::pad(BUDGET, Duration::ZERO),
        Shape::cover(BUDGET, delay),
        Shape::constant(BUDGET, delay),
    ] {
        let (node, _) = echo();
        let settings = Settings {
            shape,
            ..inbound(node)
        };
        let (gateway, ended) = start(settings);
        let mut rng = StdRng::seed_from_u64(5);
        let messages = messages(&mut rng, 300);
        assert!(talk_v2(connect(&gateway), &messages, rng) == messages);
        let (_, account, close) = ended.recv_timeout(LIMIT).unwrap();
        assert_eq!(close, "the peer closed the connection");
        assert_eq!(account.sent.messages(), 300);
        let shaped = account.shaped;
        assert!(shaped.decoys > 5, "{shape:?}: {shaped:?}");
        let payloads: usize = messages.iter().map(|(_, payload)| payload.len()).sum();
        assert!(account.sent.bytes >= payloads as u64 + shaped.decoy_bytes);
        assert_eq!(
            shaped.max_delay > Duration::ZERO,
            shape.pace != Pace::Immediate
        );
        // Timers are late on a busy machine.
        assert!(
            shaped.max_delay < shape.max_delay + Duration::from_secs(2),
            "{shaped:?}"
        );
    }
}

/// On a quiet connection nothing but decoys passes, as many as the budget allows. When the node ends
/// the connection, what is held leaves first.
#[test]
fn decoys_cover_a_quiet_connection() {
    let node = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let settings = Settings {
        // 1000 bytes in 200 ms.
        shape: Shape {
            delay_urgent: true,
            ..Shape::constant(5000 * 86_400, Duration::from_millis(200))
        },
        ..inbound(node.local_addr().unwrap())
    };
    let (gateway, ended) = start(settings);
    let mut stream = connect(&gateway);
    let engine = Engine::detect().unwrap();
    let handshake = Connection::initiator(HandshakeConfig::random(MAGIC, engine).unwrap());
    let mut connection = handshake.unwrap();
    let (mut incoming, outgoing) = (OpenBatch::new(), SealBatch::new());
    let mut node_side = None;
    let mut heard = Vec::new();
    let mut lengths = Vec::new();
    loop {
        let write = |pieces: &[std::io::IoSlice<'_>]| stream.write_vectored(pieces);
        connection.outbox.write(&outgoing, write).unwrap();
        let len = stream.read(incoming.room(16_384)).unwrap();
        if len == 0 {
            break;
        }
        lengths.push(len);
        connection.receive(&mut incoming, len).unwrap();
        engine.open(&mut incoming);
        while let Some(contents) = connection.next_packet(&incoming).unwrap() {
            heard.push(contents.len());
        }
        incoming.clear();
        let decoys = connection
            .session()
            .map_or(0, |session| session.inbound.decoys());
        if decoys > 8 && node_side.is_none() {
            let (mut socket, _) = node.accept().unwrap();
            let mut wire = Vec::new();
            let payload = [7; 20_000];
            v1::Message::new(MessageType::literal("block"), &payload).encode(MAGIC, &mut wire);
            socket.write_all(&wire).unwrap();
            // The peer's end of the stream follows.
            socket.shutdown(Shutdown::Write).unwrap();
            node_side = Some(socket);
        }
    }
    assert_eq!(heard, [20_001]);
    let constant = lengths.iter().filter(|len| **len == 1000).count();
    assert!(constant >= 5, "{lengths:?}");
    drop((stream, node_side));
    let (_, account, _) = ended.recv_timeout(LIMIT).unwrap();
    assert!(account.shaped.decoys > 8);
}

/// A peer cannot read what is held: it has not stopped reading.
#[test]
fn a_peer_whose_messages_are_held_is_not_stalled() {
    let (node, _) = echo();
    let mut settings = inbound(node);
    settings.limits.stalled = Duration::from_secs(1);
    // Less than two writes an hour, unless a message is due.
    settings.shape = Shape::constant(3000, Duration::from_secs(4));
    let (gateway, told) = told(settings);
    let mut rng = StdRng::seed_from_u64(5);
    let messages = messages(&mut rng, 3);
    assert!(talk_v2(connect(&gateway), &messages, rng) == messages);
    assert_eq!(told.recv_timeout(LIMIT).unwrap(), "connected V2");
    assert_eq!(
        told.recv_timeout(LIMIT).unwrap(),
        "closed: the peer closed the connection"
    );
}
