//! Endpoints with our packet protection among hostile peers: strangers that send garbage and forged
//! Initial packets, a network that damages, replays and reorders datagrams, and peers that have the
//! keys and misuse them. Nothing panics, other connections continue, and a new connection works
//! afterwards.

use super::common::{Random, engine, noise};
use super::{
    Certificate, PAIRS, Stack, certificate, client_config, client_crypto, endpoint, server_config,
};
use bytes::BytesMut;
use packetlane::quic::{Secret, Suite, Version};
use quinn::crypto::{
    ClientConfig, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey,
    ServerConfig, Session, UnsupportedVersion,
};
use quinn::{
    ConnectError, Connection, ConnectionError, ConnectionId, Endpoint, Side, TransportConfig,
    TransportErrorCode,
};
use quinn_proto::TransportError;
use quinn_proto::transport_parameters::TransportParameters;
use std::any::Any;
use std::collections::VecDeque;
use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// How long an attack or a transfer may take.
const LIMIT: Duration = Duration::from_secs(90);

/// Returns how many panics there were, on any thread. Panics on quinn's tasks would go unnoticed.
fn panics() -> usize {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            COUNT.fetch_add(1, Ordering::Relaxed);
            before(info);
        }));
    });
    COUNT.load(Ordering::Relaxed)
}

/// An endpoint with our packet protection, both server and client, and a permanent connection to it
/// from a well-behaved client.
struct Victim {
    stack: Stack,
    suite: Suite,
    certificate: Certificate,
    endpoint: Endpoint,
    /// The peers of the connections that it accepted, and why these ended.
    ends: Ends,
    bystander: (Endpoint, Connection),
}

type Ends = Arc<Mutex<Vec<(SocketAddr, ConnectionError)>>>;

impl Victim {
    async fn start(stack: Stack, suite: Suite) -> Self {
        // Panics are counted from here on.
        panics();
        let certificate = certificate();
        let server = server_config(stack, suite, &certificate);
        let endpoint = endpoint(Some(server), None);
        let ends = Ends::default();
        tokio::spawn(serve(endpoint.clone(), Arc::clone(&ends)));
        let bystander = connect(&endpoint, suite, &certificate).await;
        Self {
            stack,
            suite,
            certificate,
            endpoint,
            ends,
            bystander,
        }
    }

    fn address(&self) -> SocketAddr {
        self.endpoint.local_addr().unwrap()
    }

    /// Transfers over the connection from before the attack and over a new one.
    async fn is_well(&self) {
        echo(&self.bystander.1, 50_000).await.unwrap();
        let (_client, connection) = connect(&self.endpoint, self.suite, &self.certificate).await;
        echo(&connection, 200_000).await.unwrap();
        assert_eq!(panics(), 0, "{:?}, {:?}", self.stack, self.suite);
    }
}

/// A client with *ring*'s packet protection and its connection to `server`.
async fn connect(
    server: &Endpoint,
    suite: Suite,
    certificate: &Certificate,
) -> (Endpoint, Connection) {
    let client = endpoint(None, None);
    let mut config = client_config(Stack::Ring, suite, certificate);
    // Bystanders may wait longer than the default idle timeout.
    let mut transport = TransportConfig::default();
    transport.keep_alive_interval(Some(Duration::from_secs(3)));
    config.transport_config(Arc::new(transport));
    let address = server.local_addr().unwrap();
    let connecting = client.connect_with(config, address, "localhost").unwrap();
    (client, connecting.await.unwrap())
}

/// Accepts connections and echoes each of their streams.
async fn serve(listener: Endpoint, ends: Ends) {
    while let Some(incoming) = listener.accept().await {
        let ends = Arc::clone(&ends);
        tokio::spawn(async move {
            // Hostile peers fail here or later.
            let Ok(connection) = incoming.await else {
                return;
            };
            while let Ok((mut to, mut from)) = connection.accept_bi().await {
                tokio::spawn(async move {
                    if let Ok(bytes) = from.read_to_end(1_000_000).await
                        && to.write_all(&bytes).await.is_ok()
                    {
                        let _ = to.finish();
                    }
                });
            }
            let end = (connection.remote_address(), connection.closed().await);
            ends.lock().unwrap().push(end);
        });
    }
}

/// Has the peer echo `len` bytes.
async fn echo(connection: &Connection, len: usize) -> Result<(), Box<dyn Error>> {
    let exchange = async {
        let bytes = noise(7, len);
        let (mut to, mut from) = connection.open_bi().await?;
        to.write_all(&bytes).await?;
        to.finish()?;
        let back = from.read_to_end(len).await?;
        assert!(back == bytes, "other bytes came back");
        Ok(())
    };
    timeout(LIMIT, exchange).await?
}

/// Returns an Initial packet with valid protection, which anyone can apply. `length` is the value
/// of its Length field.
fn initial(cids: [&[u8]; 2], token: &[u8], length: usize, number: u8, payload: &[u8]) -> Vec<u8> {
    let varint = |value: usize| (0x4000 | u16::try_from(value).unwrap()).to_be_bytes();
    let mut packet = vec![0xc0];
    packet.extend(Version::V1.number().to_be_bytes());
    for cid in cids {
        packet.push(u8::try_from(cid.len()).unwrap());
        packet.extend(cid);
    }
    packet.extend(varint(token.len()));
    packet.extend(token);
    packet.extend(varint(length));
    let pn_offset = packet.len();
    packet.push(number);
    let header_len = packet.len();
    packet.extend(payload);
    packet.extend([0; 16]);
    let [secret, _] = Secret::initial(Version::V1, cids[0]);
    let (packet_key, header_key) = (secret.packet_key(), secret.header_key());
    packet_key.seal(&engine(), number.into(), &mut packet, header_len);
    header_key
        .protect(&engine(), &mut packet, pn_offset)
        .unwrap();
    packet
}

/// A datagram from a sender without a connection.
fn stranger(random: &mut Random, number: usize) -> Vec<u8> {
    let seed = random.next();
    let some = |random: &mut Random, most: usize| noise(seed, random.below(most + 1));
    // Every length once for each kind of garbage.
    let mut datagram = noise(seed, number / 6 % 1501);
    match number % 6 {
        // A short header.
        0 => datagram.iter_mut().take(1).for_each(|first| *first = 0x40),
        // A long header of version 1, or of any, with lengths that are noise.
        kind @ (1 | 2) => {
            let start = [0xc0 | (seed as u8 & 0x3f), 0, 0, 0, 1];
            let known = if kind == 1 { 5 } else { 1 };
            for (byte, known) in datagram.iter_mut().zip(&start[..known]) {
                *byte = *known;
            }
        }
        // An Initial packet with valid protection: token, frames and Length field are noise.
        kind @ (3 | 4) => {
            let (destination, source) = (noise(seed, 8 + number % 13), some(random, 20));
            let (token, payload) = (some(random, 400), noise(seed, 1200));
            let length = match kind {
                3 => payload.len() + 17,
                _ => random.below(0x4000),
            };
            datagram = initial([&destination, &source], &token, length, 0, &payload);
            // Coalesced with garbage.
            datagram.extend(some(random, 100));
        }
        // Noise.
        _ => {}
    }
    datagram
}

#[tokio::test]
async fn strangers() {
    for stack in [Stack::Ours, Stack::Fused] {
        let victim = Victim::start(stack, Suite::Aes128Gcm).await;
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut random = Random::new(1);
        for number in 0..6 * 1501 {
            let datagram = stranger(&mut random, number);
            socket.send_to(&datagram, victim.address()).unwrap();
            // Gives the socket's buffer time to drain.
            if number % 50 == 0 {
                echo(&victim.bystander.1, 1000).await.unwrap();
            }
        }
        victim.is_well().await;
    }
}

/// What a hostile network does to a datagram.
const LOSS: usize = 0;
const DELAY: usize = 1;
const DUPLICATE: usize = 2;
const REPLAY: usize = 3;
const FLIP_IN_FIRST_BYTE: usize = 4;
const FLIP_IN_HEADER: usize = 5;
const FLIP_IN_PAYLOAD: usize = 6;
const FLIP_IN_TAG: usize = 7;
const TRUNCATE: usize = 8;
const COALESCE: usize = 9;
const GARBAGE: usize = 10;
const FORGE_PAYLOAD: usize = 11;
const DEEDS: usize = 12;

/// One direction of a hostile network. Loses and delays some datagrams. Sends damaged copies before
/// the originals.
struct Direction {
    random: Random,
    /// The first datagrams.
    history: Vec<Vec<u8>>,
    delayed: Option<Vec<u8>>,
}

impl Direction {
    fn pass(&mut self, datagram: &[u8], deeds: &[AtomicU64; DEEDS], send: impl Fn(&[u8])) {
        if self.history.len() < 1000 {
            self.history.push(datagram.to_vec());
        }
        let random = &mut self.random;
        let deed = random.below(2 * DEEDS);
        if let Some(count) = deeds.get(deed) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let len = datagram.len();
        let mut damaged = datagram.to_vec();
        let mut flip = |range: std::ops::Range<usize>| {
            let bit = 1 << random.below(8);
            damaged[range.start + random.below(range.len())] ^= bit;
            send(&damaged);
        };
        match deed {
            LOSS => return,
            DELAY => {
                if let Some(late) = self.delayed.replace(datagram.to_vec()) {
                    send(&late);
                }
                return;
            }
            DUPLICATE => send(datagram),
            REPLAY => send(&self.history[random.below(self.history.len())]),
            FLIP_IN_FIRST_BYTE => flip(0..1),
            FLIP_IN_HEADER => flip(0..len.min(40)),
            FLIP_IN_PAYLOAD => flip(len / 2..len),
            FLIP_IN_TAG => flip(len.saturating_sub(16)..len),
            TRUNCATE => send(&datagram[..random.below(len)]),
            COALESCE => {
                damaged.extend(noise(random.next(), random.below(200)));
                send(&damaged);
            }
            GARBAGE => send(&noise(random.next(), random.below(1501))),
            FORGE_PAYLOAD => {
                let kept = len.min(9);
                damaged.truncate(kept);
                damaged.extend(noise(random.next(), len - kept));
                send(&damaged);
            }
            _ => {}
        }
        send(datagram);
    }
}

/// A hostile network between one client and a server.
struct Network {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Network {
    fn start(server: SocketAddr, seed: u64, deeds: &Arc<[AtomicU64; DEEDS]>) -> Self {
        let bind = || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let wait = Duration::from_millis(20);
            socket.set_read_timeout(Some(wait)).unwrap();
            Arc::new(socket)
        };
        let (front, back) = (bind(), bind());
        back.connect(server).unwrap();
        let address = front.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let client = Arc::new(Mutex::new(None));
        let threads = [true, false].map(|to_server| {
            let (front, back) = (Arc::clone(&front), Arc::clone(&back));
            let (stop, client) = (Arc::clone(&stop), Arc::clone(&client));
            let deeds = Arc::clone(deeds);
            std::thread::spawn(move || {
                let mut direction = Direction {
                    random: Random::new(2 * seed + u64::from(to_server)),
                    history: Vec::new(),
                    delayed: None,
                };
                let mut buffer = [0; 65536];
                while !stop.load(Ordering::Relaxed) {
                    let source = if to_server { &front } else { &back };
                    let Ok((len, from)) = source.recv_from(&mut buffer) else {
                        continue;
                    };
                    // What the sockets cannot accept is lost.
                    if to_server {
                        *client.lock().unwrap() = Some(from);
                        direction.pass(&buffer[..len], &deeds, |datagram| {
                            let _ = back.send(datagram);
                        });
                    } else if let Some(client) = *client.lock().unwrap() {
                        direction.pass(&buffer[..len], &deeds, |datagram| {
                            let _ = front.send_to(datagram, client);
                        });
                    }
                }
            })
        });
        Self {
            address,
            stop,
            threads: threads.into(),
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Connections through a hostile network, with key updates. It may spoil a handshake, whose first
/// packets are not authenticated, but nothing after it.
#[tokio::test]
async fn a_hostile_network() {
    let deeds: Arc<[AtomicU64; DEEDS]> = Arc::default();
    let mut cases = JoinSet::new();
    for (client, server) in PAIRS {
        for suite in Suite::ALL {
            let deeds = Arc::clone(&deeds);
            let seed = 10 * cases.len() as u64;
            cases.spawn(through_a_hostile_network(
                client, server, suite, seed, deeds,
            ));
        }
    }
    while let Some(case) = cases.join_next().await {
        case.unwrap();
    }
    for (deed, count) in deeds.iter().enumerate() {
        assert!(count.load(Ordering::Relaxed) > 20, "{deed}: {deeds:?}");
    }
}

async fn through_a_hostile_network(
    client: Stack,
    server: Stack,
    suite: Suite,
    seed: u64,
    deeds: Arc<[AtomicU64; DEEDS]>,
) {
    let victim = Victim::start(server, suite).await;
    let caller = endpoint(None, None);
    let config = client_config(client, suite, &victim.certificate);
    let mut connected = None;
    for attempt in 0..10 {
        let network = Network::start(victim.address(), seed + attempt, &deeds);
        let connecting = caller.connect_with(config.clone(), network.address, "localhost");
        if let Ok(Ok(connection)) = timeout(LIMIT, connecting.unwrap()).await {
            connected = Some((network, connection));
            break;
        }
    }
    let case = format!("{client:?}, {server:?}, {suite:?}");
    let (_network, connection) = connected.unwrap_or_else(|| panic!("{case}: no connection"));
    for _ in 0..4 {
        connection.force_key_update();
        let result = echo(&connection, 30_000).await;
        result.unwrap_or_else(|error| panic!("{case}: {error}"));
        echo(&victim.bystander.1, 1000).await.unwrap();
    }
    victim.is_well().await;
}

/// What a peer with the keys does, from its tenth 1-RTT packet on.
#[derive(Clone, Copy, Debug)]
enum Misdeed {
    /// Sets the reserved bits.
    ReservedBits,
    /// Changes the key phase bit but not the keys.
    KeyPhase,
    /// Changes the keys but not the key phase bit.
    Keys,
    /// Updates its keys with each packet.
    UpdateAtOnce,
    /// Updates its keys with every third packet, without waiting for acknowledgements.
    UpdateTooOften,
    /// Alternates between old and new keys.
    OldAndNew,
    /// Uses the keys after the next ones.
    SkipUpdate,
    /// Uses new keys and then old keys for a higher number.
    OldAfterNew,
    /// Gives every packet the same number.
    SameNumber,
    /// Gives a packet any number.
    RandomNumber,
    /// Encodes another length of the packet number.
    NumberLength,
    /// Fills packets with noise.
    RandomFrames,
    /// Damages the tag.
    Tag,
}

/// Each with the possible ends of the connection. `None` is a timeout of either side: packets that
/// cannot be opened are dropped. A key update cannot be followed if one of its packets is lost.
const MISDEEDS: [(Misdeed, &[Option<TransportErrorCode>]); 13] = [
    (
        Misdeed::ReservedBits,
        &[Some(TransportErrorCode::PROTOCOL_VIOLATION)],
    ),
    (Misdeed::KeyPhase, &[None]),
    (Misdeed::Keys, &[None]),
    (
        Misdeed::UpdateAtOnce,
        &[Some(TransportErrorCode::KEY_UPDATE_ERROR), None],
    ),
    (
        Misdeed::UpdateTooOften,
        &[Some(TransportErrorCode::KEY_UPDATE_ERROR), None],
    ),
    (
        Misdeed::OldAndNew,
        &[Some(TransportErrorCode::KEY_UPDATE_ERROR), None],
    ),
    (Misdeed::SkipUpdate, &[None]),
    (
        Misdeed::OldAfterNew,
        &[Some(TransportErrorCode::KEY_UPDATE_ERROR), None],
    ),
    (Misdeed::SameNumber, &[None]),
    (Misdeed::RandomNumber, &[None]),
    (Misdeed::NumberLength, &[None]),
    (
        Misdeed::RandomFrames,
        &[Some(TransportErrorCode::FRAME_ENCODING_ERROR)],
    ),
    (Misdeed::Tag, &[None]),
];

/// A peer's keys for sending, of several generations.
struct HostileKeys {
    misdeed: Misdeed,
    generations: Vec<Box<dyn PacketKey>>,
    sent: AtomicUsize,
}

/// A key for sending that quinn asks for.
struct HostileKey(Arc<HostileKeys>);

impl PacketKey for HostileKey {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        const KEY_PHASE: u8 = 4;
        let HostileKeys {
            misdeed,
            generations,
            sent,
        } = &*self.0;
        let sent = sent.fetch_add(1, Ordering::Relaxed);
        let mut number = packet;
        let mut random = Random::new(packet);
        let (mut generation, mut bit) = (0, None);
        if let Some(sent) = sent.checked_sub(10) {
            let number_at = header_len - usize::from(buf[0] & 3) - 1;
            match misdeed {
                Misdeed::ReservedBits => buf[0] |= 0x18,
                Misdeed::KeyPhase => bit = Some(1),
                Misdeed::Keys => (generation, bit) = (1, Some(0)),
                Misdeed::UpdateAtOnce => generation = sent + 1,
                Misdeed::UpdateTooOften => generation = sent / 3 + 1,
                Misdeed::OldAndNew => generation = sent % 2,
                Misdeed::SkipUpdate => generation = 2,
                Misdeed::OldAfterNew => generation = usize::from(sent < 5),
                Misdeed::SameNumber => number = 9,
                Misdeed::RandomNumber => number = random.next() >> 2,
                Misdeed::NumberLength => buf[0] ^= 1 + random.below(3) as u8,
                Misdeed::RandomFrames => {
                    let end = buf.len() - 16;
                    let noise = noise(9, end - header_len);
                    buf[header_len..end].copy_from_slice(&noise);
                }
                Misdeed::Tag => {}
            }
            let number = number.to_be_bytes();
            let number_len = header_len - number_at;
            buf[number_at..header_len].copy_from_slice(&number[8 - number_len..]);
        }
        let generation = generation.min(generations.len() - 1);
        if bit.unwrap_or(generation) % 2 == 1 {
            buf[0] |= KEY_PHASE;
        } else {
            buf[0] &= !KEY_PHASE;
        }
        generations[generation].encrypt(number, buf, header_len);
        if matches!(misdeed, Misdeed::Tag) && sent >= 10 {
            let last = buf.len() - 1;
            buf[last] ^= 1;
        }
    }

    fn decrypt(&self, _: u64, _: &[u8], _: &mut BytesMut) -> Result<(), CryptoError> {
        Err(CryptoError)
    }

    fn tag_len(&self) -> usize {
        self.0.generations[0].tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        u64::MAX
    }

    fn integrity_limit(&self) -> u64 {
        u64::MAX
    }
}

/// A configuration whose sessions misuse their 1-RTT keys.
struct Hostile<C: ?Sized> {
    misdeed: Misdeed,
    inner: Arc<C>,
}

impl<C: ?Sized> Hostile<C> {
    fn session(&self, inner: Box<dyn Session>) -> Box<dyn Session> {
        Box::new(HostileSession {
            misdeed: self.misdeed,
            inner,
            has_handshake_keys: false,
            keys: None,
            remote: VecDeque::new(),
        })
    }
}

impl ClientConfig for Hostile<dyn ClientConfig> {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let inner = Arc::clone(&self.inner).start_session(version, server_name, params)?;
        Ok(self.session(inner))
    }
}

impl ServerConfig for Hostile<dyn ServerConfig> {
    fn initial_keys(&self, version: u32, cid: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.inner.initial_keys(version, cid)
    }

    fn retry_tag(&self, version: u32, cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.inner.retry_tag(version, cid, packet)
    }

    fn start_session(
        self: Arc<Self>,
        version: u32,
        params: &TransportParameters,
    ) -> Box<dyn Session> {
        let inner = Arc::clone(&self.inner).start_session(version, params);
        self.session(inner)
    }
}

struct HostileSession {
    misdeed: Misdeed,
    inner: Box<dyn Session>,
    has_handshake_keys: bool,
    keys: Option<Arc<HostileKeys>>,
    /// The keys for receiving after key updates.
    remote: VecDeque<Box<dyn PacketKey>>,
}

impl Session for HostileSession {
    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let mut keys = self.inner.write_handshake(buf)?;
        if !self.has_handshake_keys {
            self.has_handshake_keys = true;
            return Some(keys);
        }
        let mut generations = vec![keys.packet.local];
        for _ in 0..100 {
            let next = self.inner.next_1rtt_keys().unwrap();
            generations.push(next.local);
            self.remote.push_back(next.remote);
        }
        let hostile = Arc::new(HostileKeys {
            misdeed: self.misdeed,
            generations,
            sent: AtomicUsize::new(0),
        });
        keys.packet.local = Box::new(HostileKey(Arc::clone(&hostile)));
        self.keys = Some(hostile);
        Some(keys)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        Some(KeyPair {
            local: Box::new(HostileKey(Arc::clone(self.keys.as_ref()?))),
            remote: self.remote.pop_front()?,
        })
    }

    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        self.inner.initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.inner.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.inner.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.inner.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.inner.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.inner.read_handshake(buf)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.inner.transport_parameters()
    }

    fn is_valid_retry(&self, cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.inner.is_valid_retry(cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.inner.export_keying_material(output, label, context)
    }
}

/// Lets a hostile client connect to the victim, or the victim to a hostile server, and transfers
/// until the connection ends. Returns why it ended for the victim.
async fn attack(victim: &Victim, misdeed: Misdeed, from: Side) -> ConnectionError {
    let (suite, certificate) = (victim.suite, &victim.certificate);
    let mut transport = TransportConfig::default();
    let idle = Duration::from_secs(4).try_into().unwrap();
    transport.max_idle_timeout(Some(idle));
    let transport = Arc::new(transport);
    let (hostile, connection);
    if from == Side::Client {
        let inner = client_crypto(Stack::Ring, suite, certificate);
        let mut config = quinn::ClientConfig::new(Arc::new(Hostile { misdeed, inner }));
        config.transport_config(transport);
        hostile = endpoint(None, None);
        let connecting = hostile.connect_with(config, victim.address(), "localhost");
        connection = connecting.unwrap().await.unwrap();
    } else {
        let mut config = server_config(Stack::Ring, suite, certificate);
        let inner = Arc::clone(&config.crypto);
        config.crypto = Arc::new(Hostile { misdeed, inner });
        config.transport_config(transport);
        hostile = endpoint(Some(config), None);
        tokio::spawn(serve(hostile.clone(), Ends::default()));
        let config = client_config(victim.stack, suite, certificate);
        let address = hostile.local_addr().unwrap();
        let connecting = victim.endpoint.connect_with(config, address, "localhost");
        connection = connecting.unwrap().await.unwrap();
    }
    for _ in 0..20 {
        if echo(&connection, 10_000).await.is_err() {
            break;
        }
    }
    if from == Side::Server {
        return connection.closed().await;
    }
    let address = hostile.local_addr().unwrap();
    loop {
        let ends = victim.ends.lock().unwrap().clone();
        if let Some((_, end)) = ends.into_iter().find(|(peer, _)| *peer == address) {
            return end;
        }
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn peers_that_misuse_their_keys() {
    let mut attacks = JoinSet::new();
    let mut victims = Vec::new();
    for stack in [Stack::Ours, Stack::Fused] {
        for suite in Suite::ALL {
            let victim = Arc::new(Victim::start(stack, suite).await);
            for (misdeed, ends) in MISDEEDS {
                for from in [Side::Client, Side::Server] {
                    let victim = Arc::clone(&victim);
                    attacks.spawn(async move {
                        let end = timeout(LIMIT, attack(&victim, misdeed, from)).await.ok();
                        let code = match &end {
                            Some(ConnectionError::TransportError(error)) => Some(error.code),
                            Some(ConnectionError::ConnectionClosed(close)) => {
                                Some(close.error_code)
                            }
                            _ => None,
                        };
                        // The side that gives up first answers the other with a stateless reset.
                        let gave_up = matches!(
                            end,
                            Some(ConnectionError::TimedOut | ConnectionError::Reset)
                        );
                        assert!(
                            (code.is_some() || gave_up) && ends.contains(&code),
                            "{stack:?}, {suite:?}, {misdeed:?}, {from:?}: {end:?}"
                        );
                    });
                }
            }
            victims.push(victim);
        }
    }
    while let Some(result) = attacks.join_next().await {
        result.unwrap();
    }
    for victim in victims {
        victim.is_well().await;
    }
}
