//! A bulk transfer through quinn over loopback, with clocks at quinn's interfaces.
//!
//! The sender and the receiver each have a thread and a runtime, so the CPU time of the sender's
//! thread is the sender's. All senders use the same receiver. Reading a thread's clock takes about
//! as long as protecting a packet. So only one of [`TIMED_CALLS_STEP`] calls that protect a packet
//! is timed and represents the others, and the time of reading the clock is subtracted.

use crate::measure::Clock;
use crate::report::OURS;
use crate::rivals::quic::{cipher_suite, tls_name};
use bytes::BytesMut;
use packetlane::Engine;
use packetlane::quic::{Suite, quinn as fused};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::udp::{RecvMeta, Transmit};
use quinn::{
    AsyncUdpSocket, Endpoint, EndpointConfig, Runtime, TokioRuntime, TransportConfig, UdpPoller,
};
use quinn_proto::crypto::{
    ClientConfig, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey,
    Session,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::any::Any;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

/// Bytes per write to quinn.
pub(crate) const PIECE: usize = 64 << 10;

/// One of this many calls that protect a packet is timed. A prime, so that the timed call is not
/// always at the same position in a train of packets.
const TIMED_CALLS_STEP: u64 = 13;

/// The length of all datagrams: what quinn discovers on common paths.
const MTU: u16 = 1452;

/// What protects the sender's packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Stack {
    /// Ours, through quinn's traits.
    Fused,
    /// Ours, through rustls's traits.
    Rustls,
    /// `ring`, through rustls's traits.
    Ring,
}

impl Stack {
    pub(crate) const ALL: [Stack; 3] = [Stack::Fused, Stack::Rustls, Stack::Ring];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Stack::Fused => OURS,
            Stack::Rustls => "packetlane-rustls",
            Stack::Ring => "rustls-ring",
        }
    }

    pub(crate) fn backend(self, engine: Engine) -> &'static str {
        match self {
            Stack::Ring => "",
            _ => engine.backend().name(),
        }
    }
}

/// The time of one stage, estimated from a sample of its calls.
#[derive(Default)]
pub(crate) struct Seam {
    calls: AtomicU64,
    timed: AtomicU64,
    nanos: AtomicU64,
}

impl Seam {
    /// Runs `work`. Times each `each`th call.
    fn pass<R>(&self, each: u64, work: impl FnOnce() -> R) -> R {
        let before = self.calls.fetch_add(1, Ordering::Relaxed);
        if !before.is_multiple_of(each) {
            return work();
        }
        let start = Clock::ThreadCpu.now();
        let answer = work();
        let time = Clock::ThreadCpu.now() - start;
        self.timed.fetch_add(1, Ordering::Relaxed);
        let nanos = time.as_nanos() as u64;
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        answer
    }

    fn reset(&self) {
        for count in [&self.calls, &self.timed, &self.nanos] {
            count.store(0, Ordering::Relaxed);
        }
    }

    /// The estimated seconds of all calls, without the clock readings.
    pub(crate) fn seconds(&self, clock: f64) -> f64 {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        let timed = count(&self.timed).max(1.0);
        let own = count(&self.nanos) / 1e9 - timed * clock;
        own.max(0.0) * count(&self.calls) / timed
    }

    /// The seconds taken by the clock readings.
    pub(crate) fn clock_seconds(&self, clock: f64) -> f64 {
        self.timed.load(Ordering::Relaxed) as f64 * 2.0 * clock
    }
}

/// The stages of one transfer.
#[derive(Default)]
pub(crate) struct Seams {
    send: Seam,
    encrypt: Seam,
    header: Seam,
}

impl Seams {
    pub(crate) fn all(&self) -> [&Seam; 3] {
        [&self.send, &self.encrypt, &self.header]
    }
}

/// The seconds of one reading of the thread's clock.
pub(crate) fn clock_seconds() -> f64 {
    const READS: u32 = 1000;
    let start = Clock::ThreadCpu.now();
    for _ in 0..READS {
        std::hint::black_box(Clock::ThreadCpu.now());
    }
    (Clock::ThreadCpu.now() - start).as_secs_f64() / f64::from(READS)
}

/// A socket whose sends are timed.
struct TimedSocket {
    inner: Arc<dyn AsyncUdpSocket>,
    seams: Arc<Seams>,
}

impl std::fmt::Debug for TimedSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl AsyncUdpSocket for TimedSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.inner).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit) -> io::Result<()> {
        // Sends are long and vary: all are timed.
        self.seams.send.pass(1, || self.inner.try_send(transmit))
    }

    fn poll_recv(
        &self,
        context: &mut Context,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.inner.poll_recv(context, buffers, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

/// Wraps a configuration, a session or a key. Times calls that protect packets and passes all
/// others through.
struct Timed<T: ?Sized> {
    seams: Arc<Seams>,
    inner: T,
}

impl ClientConfig for Timed<Arc<dyn ClientConfig>> {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let inner = Arc::clone(&self.inner).start_session(version, server_name, params)?;
        Ok(Box::new(self.with(inner)))
    }
}

impl<T> Timed<T> {
    fn with<U>(&self, inner: U) -> Timed<U> {
        let seams = Arc::clone(&self.seams);
        Timed { seams, inner }
    }

    fn keys(&self, keys: Keys) -> Keys {
        Keys {
            header: KeyPair {
                local: Box::new(self.with(keys.header.local)),
                remote: keys.header.remote,
            },
            packet: self.packet_keys(keys.packet),
        }
    }

    fn packet_keys(&self, keys: KeyPair<Box<dyn PacketKey>>) -> KeyPair<Box<dyn PacketKey>> {
        KeyPair {
            local: Box::new(self.with(keys.local)),
            remote: keys.remote,
        }
    }
}

impl Session for Timed<Box<dyn Session>> {
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

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let keys = self.inner.write_handshake(buf)?;
        Some(self.keys(keys))
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.inner.next_1rtt_keys()?;
        Some(self.packet_keys(keys))
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.inner.is_valid_retry(orig_dst_cid, header, payload)
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

impl PacketKey for Timed<Box<dyn PacketKey>> {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        let seam = &self.seams.encrypt;
        seam.pass(TIMED_CALLS_STEP, || {
            self.inner.encrypt(packet, buf, header_len)
        });
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.inner.decrypt(packet, header, payload)
    }

    fn tag_len(&self) -> usize {
        self.inner.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.inner.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.inner.integrity_limit()
    }
}

impl HeaderKey for Timed<Box<dyn HeaderKey>> {
    fn decrypt(&self, pn_offset: usize, packet: &mut [u8]) {
        self.inner.decrypt(pn_offset, packet);
    }

    fn encrypt(&self, pn_offset: usize, packet: &mut [u8]) {
        let seam = &self.seams.header;
        seam.pass(TIMED_CALLS_STEP, || self.inner.encrypt(pn_offset, packet));
    }

    fn sample_size(&self) -> usize {
        self.inner.sample_size()
    }
}

/// A self-signed certificate that only this process trusts.
pub(crate) struct Certificate {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Certificate {
    pub(crate) fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]);
        let made = made.expect("a self-signed certificate");
        Self {
            certificate: made.cert.der().clone(),
            key: PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into()),
        }
    }
}

/// A provider that offers AES-128-GCM only.
fn only_aes128(mut provider: CryptoProvider) -> (Arc<CryptoProvider>, rustls::quic::Suite) {
    let suite = cipher_suite(&provider, Suite::Aes128Gcm);
    let name = tls_name(Suite::Aes128Gcm);
    provider.cipher_suites.retain(|suite| suite.suite() == name);
    let quic = suite.quic_suite().expect("a suite for QUIC");
    (Arc::new(provider), quic)
}

fn transport() -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport.initial_mtu(MTU).mtu_discovery_config(None);
    Arc::new(transport)
}

fn client_config(
    stack: Stack,
    engine: Engine,
    certificate: &Certificate,
    seams: Option<&Arc<Seams>>,
) -> quinn::ClientConfig {
    let (provider, initial) = only_aes128(match stack {
        Stack::Ring => rustls::crypto::ring::default_provider(),
        Stack::Fused | Stack::Rustls => packetlane::quic::rustls::provider(engine),
    });
    let mut roots = RootCertStore::empty();
    let added = roots.add(certificate.certificate.clone());
    added.expect("a sound certificate");
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("a suite of TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let quic = QuicClientConfig::with_initial(Arc::new(tls), initial);
    let mut crypto: Arc<dyn ClientConfig> = Arc::new(quic.expect("a suite for QUIC"));
    if let Some(seams) = seams {
        crypto = Arc::new(Timed {
            seams: Arc::clone(seams),
            inner: crypto,
        });
    }
    // Outside the clocks: within them, encryption and header protection are still separate calls.
    if stack == Stack::Fused {
        crypto = fused::client_config(crypto);
    }
    let mut config = quinn::ClientConfig::new(crypto);
    config.transport_config(transport());
    config
}

fn server_config(certificate: &Certificate) -> quinn::ServerConfig {
    let (provider, initial) = only_aes128(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("a suite of TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.certificate.clone()],
            certificate.key.clone_key(),
        )
        .expect("a sound certificate");
    let quic = QuicServerConfig::with_initial(Arc::new(tls), initial);
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(quic.expect("a suite for QUIC")));
    config.transport_config(transport());
    config
}

/// An endpoint on loopback.
fn endpoint(
    server: Option<quinn::ServerConfig>,
    seams: Option<&Arc<Seams>>,
) -> io::Result<Endpoint> {
    let runtime = Arc::new(TokioRuntime);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
    let mut socket = runtime.wrap_udp_socket(socket)?;
    if let Some(seams) = seams {
        socket = Arc::new(TimedSocket {
            inner: socket,
            seams: Arc::clone(seams),
        });
    }
    Endpoint::new_with_abstract_socket(EndpointConfig::default(), server, socket, runtime)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Receives the single stream of a connection. Returns its length and a checksum.
async fn receive(endpoint: Endpoint) -> (usize, u64) {
    let incoming = endpoint.accept().await.expect("an open endpoint");
    let connection = incoming.await.expect("a handshake");
    let mut stream = connection.accept_uni().await.expect("a stream");
    let mut came = (0, 0);
    let chunk = |stream: Result<Option<quinn::Chunk>, _>| stream.expect("a whole stream");
    while let Some(chunk) = chunk(stream.read_chunk(usize::MAX, true).await) {
        came.0 += chunk.bytes.len();
        came.1 = sum(came.1, &chunk.bytes);
    }
    connection.closed().await;
    came
}

/// A checksum that does not depend on how the bytes are split.
fn sum(before: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(before, |sum, &byte| {
        sum.wrapping_mul(0x100_0000_01b3).wrapping_add(byte.into())
    })
}

/// Sends `piece` `pieces` times. Returns this thread's CPU time from the open connection to the
/// acknowledgement of the last byte.
async fn send(
    config: quinn::ClientConfig,
    to: SocketAddr,
    (piece, pieces): (&[u8], usize),
    seams: Option<&Arc<Seams>>,
) -> Duration {
    let endpoint = endpoint(None, seams).expect("a socket");
    let connecting = endpoint.connect_with(config, to, "localhost");
    let connection = connecting
        .expect("a sound configuration")
        .await
        .expect("a handshake");
    let mut stream = connection.open_uni().await.expect("a stream");
    if let Some(seams) = seams {
        seams.all().into_iter().for_each(Seam::reset);
    }
    let start = Clock::ThreadCpu.now();
    for _ in 0..pieces {
        stream.write_all(piece).await.expect("an open stream");
    }
    stream.finish().expect("an open stream");
    stream.stopped().await.expect("an open connection");
    let time = Clock::ThreadCpu.now() - start;
    connection.close(0_u8.into(), b"done");
    endpoint.wait_idle().await;
    time
}

/// The sender's CPU time for one transfer, whose bytes are verified.
pub(crate) fn transfer(
    stack: Stack,
    engine: Engine,
    certificate: &Certificate,
    pieces: usize,
    seams: Option<&Arc<Seams>>,
) -> Duration {
    let piece: Vec<u8> = (0..PIECE)
        .map(|place| ((place * 0x9d) >> 3) as u8)
        .collect();
    let server = server_config(certificate);
    thread::scope(|scope| {
        let (address, its_address) = std::sync::mpsc::channel();
        let receiver = scope.spawn(move || {
            runtime().block_on(async {
                let endpoint = endpoint(Some(server), None).expect("a socket");
                let local = endpoint.local_addr().expect("a bound socket");
                address.send(local).expect("the other thread waits");
                receive(endpoint).await
            })
        });
        let to = its_address.recv().expect("the other thread sends one");
        let config = client_config(stack, engine, certificate, seams);
        let time = runtime().block_on(send(config, to, (&piece, pieces), seams));
        let came = receiver.join().expect("no panic");
        let expected = (0..pieces).fold(0, |before, _| sum(before, &piece));
        assert_eq!(came, (PIECE * pieces, expected), "{stack:?}");
        time
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seam_is_passed() {
        let engine = Engine::detect().unwrap();
        let certificate = Certificate::new();
        for stack in Stack::ALL {
            let seams = Arc::<Seams>::default();
            transfer(stack, engine, &certificate, 2, Some(&seams));
            for seam in seams.all() {
                assert!(seam.calls.load(Ordering::Relaxed) > 0, "{stack:?}");
                assert!(seam.timed.load(Ordering::Relaxed) > 0, "{stack:?}");
            }
        }
    }

    #[test]
    fn a_sample_represents_the_calls_between() {
        let seam = Seam::default();
        for _ in 0..100 {
            seam.pass(10, || ());
        }
        assert_eq!(seam.calls.load(Ordering::Relaxed), 100);
        assert_eq!(seam.timed.load(Ordering::Relaxed), 10);
        seam.nanos.store(10_000, Ordering::Relaxed);
        // 10 us for 10 calls, half of it for the clock.
        assert!((seam.seconds(0.5e-6) - 50e-6).abs() < 1e-12);
        assert!((seam.clock_seconds(0.5e-6) - 10e-6).abs() < 1e-12);
    }
}
