//! A transfer between two quinn endpoints, with packet protection by packetlane.
//!
//! ```sh
//! cargo run -p packetlane --features quinn --example quic
//! ```
//!
//! The provider is part of rustls's configuration. quinn's configuration is wrapped, so that header
//! protection runs in the same call as the AEAD. Everything else is as with any other provider. The
//! server echoes what it receives, over the loopback device.

use packetlane::{Engine, quic};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Endpoint, ServerConfig};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::Arc;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const BYTES: usize = 1_000_000;

fn client_config(engine: Engine, certificate: CertificateDer<'static>) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate)?;
    let provider = Arc::new(quic::rustls::provider(engine));
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let inner = Arc::new(QuicClientConfig::try_from(tls)?);
    Ok(ClientConfig::new(quic::quinn::client_config(inner)))
}

fn server_config(
    engine: Engine,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig> {
    let provider = Arc::new(quic::rustls::provider(engine));
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    let inner = Arc::new(QuicServerConfig::try_from(tls)?);
    Ok(ServerConfig::with_crypto(quic::quinn::server_config(inner)))
}

/// Accepts one connection and one stream, and echoes what it receives.
async fn serve(endpoint: Endpoint) -> Result<()> {
    let incoming = endpoint.accept().await.ok_or("the endpoint is closed")?;
    let connection = incoming.await?;
    let (mut to, mut from) = connection.accept_bi().await?;
    while let Some(chunk) = from.read_chunk(usize::MAX, true).await? {
        to.write_chunk(chunk.bytes).await?;
    }
    to.finish()?;
    // The client closes the connection when it has received everything.
    connection.closed().await;
    Ok(())
}

async fn transfer() -> Result<()> {
    let engine = Engine::detect()?;
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()])?;
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());

    let config = server_config(engine, certificate.clone(), key)?;
    let server = Endpoint::server(config, "127.0.0.1:0".parse()?)?;
    let address = server.local_addr()?;
    let serving = tokio::spawn(serve(server));

    let client = Endpoint::client("127.0.0.1:0".parse()?)?;
    let config = client_config(engine, certificate)?;
    let connection = client.connect_with(config, address, "localhost")?.await?;
    let (mut to, mut from) = connection.open_bi().await?;
    let sent: Vec<u8> = (0..BYTES).map(|i| (i % 251) as u8).collect();
    let start = Instant::now();
    let sending = async {
        to.write_all(&sent).await?;
        to.finish()?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    };
    let receiving = async { Ok(from.read_to_end(BYTES).await?) };
    // Both at once: flow control lets neither side send everything before it reads.
    let ((), received) = tokio::try_join!(sending, receiving)?;
    assert!(received == sent, "other bytes came back");
    let elapsed = start.elapsed();
    connection.close(0_u8.into(), b"done");
    client.wait_idle().await;
    serving.await??;
    println!("QUIC: a server echoed {BYTES} bytes in {elapsed:.1?}.");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    tokio::time::timeout(Duration::from_secs(60), transfer()).await?
}
