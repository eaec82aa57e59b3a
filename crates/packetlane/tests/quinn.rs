//! Transfers through quinn over the loopback device, between our packet protection and
//! *ring*'s, with key updates on both sides, with and without lost and late datagrams.
//!
//! They transfer 48 MB in total. Set the environment variable `PACKETLANE_QUIC_MB` for another
//! amount.

mod common;
#[path = "quinn/hostile.rs"]
mod hostile;

use common::{Random, engine, noise};
use packetlane::quic::{Suite, quinn as fused, rustls as ours};
use quinn::crypto::ClientConfig;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::udp::{RecvMeta, Transmit};
use quinn::{
    AsyncUdpSocket, Connection, Endpoint, EndpointConfig, RecvStream, Runtime, SendStream,
    TokioRuntime, UdpPoller,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{CipherSuite, RootCertStore};
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

/// The packet protection of one side.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stack {
    Ring,
    /// Our keys, through rustls's interface.
    Ours,
    /// The same, with header protection in the same call.
    Fused,
}

/// The combinations: each of ours with *ring*'s on the other side.
const PAIRS: [(Stack, Stack); 4] = [
    (Stack::Ours, Stack::Ring),
    (Stack::Ring, Stack::Ours),
    (Stack::Fused, Stack::Ring),
    (Stack::Ring, Stack::Fused),
];

/// A provider that negotiates `suite`, and the suite of its Initial packets.
fn provider(stack: Stack, suite: Suite) -> (Arc<CryptoProvider>, rustls::quic::Suite) {
    let mut provider = match stack {
        Stack::Ring => rustls::crypto::ring::default_provider(),
        Stack::Ours | Stack::Fused => ours::provider(engine()),
    };
    let name = match suite {
        Suite::Aes128Gcm => CipherSuite::TLS13_AES_128_GCM_SHA256,
        Suite::Aes256Gcm => CipherSuite::TLS13_AES_256_GCM_SHA384,
        _ => CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    };
    let mut suites = provider.cipher_suites.iter();
    let initial = suites
        .find_map(|suite| {
            suite
                .tls13()
                .filter(|suite| suite.common.suite == CipherSuite::TLS13_AES_128_GCM_SHA256)
        })
        .unwrap();
    provider.cipher_suites.retain(|suite| suite.suite() == name);
    assert_eq!(provider.cipher_suites.len(), 1);
    (Arc::new(provider), initial.quic_suite().unwrap())
}

type Certificate = (CertificateDer<'static>, PrivateKeyDer<'static>);

fn client_config(stack: Stack, suite: Suite, certificate: &Certificate) -> quinn::ClientConfig {
    quinn::ClientConfig::new(client_crypto(stack, suite, certificate))
}

fn client_crypto(
    stack: Stack,
    suite: Suite,
    (certificate, _): &Certificate,
) -> Arc<dyn ClientConfig> {
    let (provider, initial) = provider(stack, suite);
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.enable_early_data = true;
    let quic = Arc::new(QuicClientConfig::with_initial(Arc::new(tls), initial).unwrap());
    match stack {
        Stack::Fused => fused::client_config(quic),
        _ => quic,
    }
}

fn server_config(
    stack: Stack,
    suite: Suite,
    (certificate, key): &Certificate,
) -> quinn::ServerConfig {
    let (provider, initial) = provider(stack, suite);
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.clone_key())
        .unwrap();
    tls.max_early_data_size = u32::MAX;
    let quic = Arc::new(QuicServerConfig::with_initial(Arc::new(tls), initial).unwrap());
    quinn::ServerConfig::with_crypto(match stack {
        Stack::Fused => fused::server_config(quic),
        _ => quic,
    })
}

/// A socket that loses 1 % of its datagrams, and delays 1 % until after the next one.
#[derive(Debug)]
struct Lossy {
    inner: Arc<dyn AsyncUdpSocket>,
    /// The delayed datagram.
    state: Mutex<(Random, Option<Late>)>,
    lost: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Late {
    destination: SocketAddr,
    contents: Vec<u8>,
}

impl AsyncUdpSocket for Lossy {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.inner).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit) -> io::Result<()> {
        assert!(
            transmit
                .segment_size
                .is_none_or(|size| size >= transmit.contents.len())
        );
        let (random, late) = &mut *self.state.lock().unwrap();
        match random.below(100) {
            0 => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            1 if late.is_none() => {
                *late = Some(Late {
                    destination: transmit.destination,
                    contents: transmit.contents.to_vec(),
                });
                return Ok(());
            }
            _ => {}
        }
        self.inner.try_send(transmit)?;
        if let Some(Late {
            destination,
            contents,
        }) = late.take()
        {
            let transmit = Transmit {
                destination,
                contents: &contents,
                ecn: None,
                segment_size: None,
                src_ip: None,
            };
            // If the socket has no room for it, it is lost.
            let _ = self.inner.try_send(&transmit);
        }
        Ok(())
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

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

/// An endpoint on the loopback device. With a counter of lost datagrams it uses the lossy
/// socket.
fn endpoint(server: Option<quinn::ServerConfig>, lost: Option<&Arc<AtomicUsize>>) -> Endpoint {
    let runtime = Arc::new(TokioRuntime);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut socket = runtime.wrap_udp_socket(socket).unwrap();
    if let Some(lost) = lost {
        let seed = u64::from(server.is_some());
        socket = Arc::new(Lossy {
            inner: socket,
            state: Mutex::new((Random::new(seed), None)),
            lost: Arc::clone(lost),
        });
    }
    Endpoint::new_with_abstract_socket(EndpointConfig::default(), server, socket, runtime).unwrap()
}

/// Bytes to transfer in each direction of one of `cases`.
fn bytes_each(cases: usize) -> usize {
    let all = match std::env::var("PACKETLANE_QUIC_MB") {
        Ok(text) => text.parse().expect("PACKETLANE_QUIC_MB is a number"),
        Err(_) => 48,
    };
    // The other test transfers the same amount.
    all * 1_000_000 / (2 * 2 * cases)
}

/// Sends `len` bytes, with a key update after half of them.
async fn send(connection: &Connection, stream: &mut SendStream, len: usize) {
    let pattern = noise(7, 100_000);
    let mut sent = 0;
    while sent < len {
        let piece = pattern.len().min(len - sent);
        stream.write_all(&pattern[..piece]).await.unwrap();
        if (sent..sent + piece).contains(&(len / 2)) {
            connection.force_key_update();
        }
        sent += piece;
    }
    stream.finish().unwrap();
}

/// Receives the bytes from [`send`].
async fn receive(stream: &mut RecvStream, len: usize) {
    let pattern = noise(7, 100_000);
    let mut buffer = vec![0; pattern.len()];
    let mut received = 0;
    while received < len {
        let piece = pattern.len().min(len - received);
        stream.read_exact(&mut buffer[..piece]).await.unwrap();
        assert!(buffer[..piece] == pattern[..piece]);
        received += piece;
    }
    assert_eq!(stream.read(&mut buffer).await.unwrap(), None);
}

/// Transfers `len` bytes in both directions of a stream at the same time.
async fn transfer(
    (client, server): (Stack, Stack),
    suite: Suite,
    certificate: &Certificate,
    len: usize,
    lost: Option<&Arc<AtomicUsize>>,
) {
    let listener = endpoint(Some(server_config(server, suite, certificate)), lost);
    let caller = endpoint(None, lost);
    let config = client_config(client, suite, certificate);
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let connection = listener.accept().await.unwrap().await.unwrap();
        let (mut to, mut from) = connection.accept_bi().await.unwrap();
        tokio::join!(send(&connection, &mut to, len), receive(&mut from, len));
        connection.closed().await;
    });
    let connection = caller
        .connect_with(config, address, "localhost")
        .unwrap()
        .await
        .unwrap();
    let (mut to, mut from) = connection.open_bi().await.unwrap();
    tokio::join!(send(&connection, &mut to, len), receive(&mut from, len));
    // The other side has received everything too.
    to.stopped().await.unwrap();
    connection.close(0_u8.into(), b"done");
    caller.wait_idle().await;
    serving.await.unwrap();
}

fn certificate() -> Certificate {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let key = made.signing_key.serialize_der();
    (made.cert.der().clone(), PrivateKeyDer::Pkcs8(key.into()))
}

async fn transfers(lost: Option<&Arc<AtomicUsize>>) {
    let certificate = certificate();
    let len = bytes_each(PAIRS.len() * Suite::ALL.len());
    for pair in PAIRS {
        for suite in Suite::ALL {
            let all = transfer(pair, suite, &certificate, len, lost);
            let limit = std::time::Duration::from_secs(60 + len as u64 / 1_000_000);
            if tokio::time::timeout(limit, all).await.is_err() {
                panic!("{pair:?}, {suite:?}: {len} bytes take longer than {limit:?}");
            }
        }
    }
}

#[tokio::test]
async fn transfers_in_both_directions() {
    transfers(None).await;
}

#[tokio::test]
async fn transfers_with_loss_and_reordering() {
    let lost = Arc::new(AtomicUsize::new(0));
    transfers(Some(&lost)).await;
    assert!(lost.load(Ordering::Relaxed) > 50);
}

/// A second connection sends data before its handshake is complete.
#[tokio::test]
async fn zero_rtt() {
    let certificate = certificate();
    for (client, server) in PAIRS {
        for suite in Suite::ALL {
            let listener = endpoint(Some(server_config(server, suite, &certificate)), None);
            let address = listener.local_addr().unwrap();
            let serving = tokio::spawn(async move {
                for text in [b"first", b"early"] {
                    let connection = listener.accept().await.unwrap().await.unwrap();
                    let (mut to, mut from) = connection.accept_bi().await.unwrap();
                    assert_eq!(from.read_to_end(100).await.unwrap(), text);
                    to.write_all(b"answer").await.unwrap();
                    to.finish().unwrap();
                    connection.closed().await;
                }
            });
            let config = client_config(client, suite, &certificate);
            let caller = endpoint(None, None);
            let connect = || caller.connect_with(config.clone(), address, "localhost");
            let ask = async |connection: &Connection, text: &[u8]| {
                let (mut to, mut from) = connection.open_bi().await.unwrap();
                to.write_all(text).await.unwrap();
                to.finish().unwrap();
                assert_eq!(from.read_to_end(100).await.unwrap(), b"answer");
            };
            let connection = connect().unwrap().await.unwrap();
            ask(&connection, b"first").await;
            connection.close(0_u8.into(), b"done");
            let early = connect().unwrap().into_0rtt();
            let (connection, accepted) = early.unwrap_or_else(|_| panic!("no 0-RTT keys"));
            ask(&connection, b"early").await;
            assert!(accepted.await, "{client:?}, {server:?}, {suite:?}");
            connection.close(0_u8.into(), b"done");
            caller.wait_idle().await;
            serving.await.unwrap();
        }
    }
}
