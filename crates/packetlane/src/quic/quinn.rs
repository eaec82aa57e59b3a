//! Packet protection for quinn (feature `quinn`), with AEAD and header protection in one call.
//! Use it with [`provider`](super::rustls::provider).
//!
//! quinn seals a packet in two steps, `PacketKey::encrypt` and `HeaderKey::encrypt`. The first
//! one receives the whole packet, so here it does both, while the sample is still in the
//! first-level cache, and the second does nothing. Opening keeps its two steps, because quinn
//! reads the packet number in between.
//!
//! ```
//! use packetlane::quic::{quinn, rustls::provider};
//! use quinn_proto::crypto::rustls::QuicClientConfig;
//! # use rustls::RootCertStore;
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = packetlane::Engine::detect()?;
//! let tls = rustls::ClientConfig::builder_with_provider(Arc::new(provider(engine)))
//!     .with_protocol_versions(&[&rustls::version::TLS13])?
//!     .with_root_certificates(RootCertStore::empty())
//!     .with_no_client_auth();
//! let crypto = quinn::client_config(Arc::new(QuicClientConfig::try_from(tls)?));
//! let config = quinn_proto::ClientConfig::new(crypto);
//! # let _ = config;
//! # Ok(())
//! # }
//! ```

use super::header::number_len;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::BytesMut;
use core::any::Any;
use quinn_proto::crypto::{
    ClientConfig, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey,
    ServerConfig, Session, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError};

/// Wraps a client's crypto configuration so that its sessions protect payload and header in one
/// call. Pass the result to [`quinn_proto::ClientConfig::new`]. `inner` may be any
/// configuration; with [`provider`](super::rustls::provider) this crate also does the
/// cryptography.
#[must_use]
pub fn client_config(inner: Arc<dyn ClientConfig>) -> Arc<dyn ClientConfig> {
    Arc::new(Fused(inner))
}

/// Wraps a server's crypto configuration like [`client_config`]. Pass the result to
/// [`quinn_proto::ServerConfig::with_crypto`].
#[must_use]
pub fn server_config(inner: Arc<dyn ServerConfig>) -> Arc<dyn ServerConfig> {
    Arc::new(Fused(inner))
}

/// Wraps a configuration: everything but the keys of its sessions is unchanged.
struct Fused<C: ?Sized>(Arc<C>);

impl ClientConfig for Fused<dyn ClientConfig> {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let inner = Arc::clone(&self.0).start_session(version, server_name, params)?;
        Ok(FusedSession::boxed(inner))
    }
}

impl ServerConfig for Fused<dyn ServerConfig> {
    fn initial_keys(
        &self,
        version: u32,
        dst_cid: &ConnectionId,
    ) -> Result<Keys, UnsupportedVersion> {
        let (keys, _) = fuse(self.0.initial_keys(version, dst_cid)?);
        Ok(keys)
    }

    fn retry_tag(&self, version: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.0.retry_tag(version, orig_dst_cid, packet)
    }

    fn start_session(
        self: Arc<Self>,
        version: u32,
        params: &TransportParameters,
    ) -> Box<dyn Session> {
        FusedSession::boxed(Arc::clone(&self.0).start_session(version, params))
    }
}

/// Wraps a session: everything but its keys for sending is unchanged.
struct FusedSession {
    inner: Box<dyn Session>,
    /// The header key of the latest keys for sending. Key updates do not change it.
    header: Option<Arc<dyn HeaderKey>>,
}

impl FusedSession {
    fn boxed(inner: Box<dyn Session>) -> Box<dyn Session> {
        let header = None;
        Box::new(Self { inner, header })
    }
}

impl Session for FusedSession {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        let (keys, _) = fuse(self.inner.initial_keys(dst_cid, side));
        keys
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.inner.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.inner.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        let (header, packet) = self.inner.early_crypto()?;
        let header = Arc::from(header);
        let packet = fused(packet, &header);
        Some((Box::new(ForReceiving(header)), packet))
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
        let (keys, header) = fuse(self.inner.write_handshake(buf)?);
        self.header = Some(header);
        Some(keys)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.inner.next_1rtt_keys()?;
        let header = self.header.as_ref()?;
        Some(KeyPair {
            local: fused(keys.local, header),
            remote: keys.remote,
        })
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

/// Moves the sending half of header protection into the packet key. Also returns the header
/// key.
fn fuse(keys: Keys) -> (Keys, Arc<dyn HeaderKey>) {
    let header = Arc::from(keys.header.local);
    let keys = Keys {
        packet: KeyPair {
            local: fused(keys.packet.local, &header),
            remote: keys.packet.remote,
        },
        header: KeyPair {
            local: Box::new(ForReceiving(Arc::clone(&header))),
            remote: keys.header.remote,
        },
    };
    (keys, header)
}

fn fused(packet: Box<dyn PacketKey>, header: &Arc<dyn HeaderKey>) -> Box<dyn PacketKey> {
    let header = Arc::clone(header);
    Box::new(FusedKey { packet, header })
}

/// A packet key that also protects headers.
struct FusedKey {
    packet: Box<dyn PacketKey>,
    header: Arc<dyn HeaderKey>,
}

impl PacketKey for FusedKey {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        let pn_offset = header_len - number_len(buf[0]);
        self.packet.encrypt(packet, buf, header_len);
        self.header.encrypt(pn_offset, buf);
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.packet.decrypt(packet, header, payload)
    }

    fn tag_len(&self) -> usize {
        self.packet.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.packet.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.packet.integrity_limit()
    }
}

/// The receiving half of a header key. The sending half is in a [`FusedKey`].
struct ForReceiving(Arc<dyn HeaderKey>);

impl HeaderKey for ForReceiving {
    fn decrypt(&self, pn_offset: usize, packet: &mut [u8]) {
        self.0.decrypt(pn_offset, packet);
    }

    fn encrypt(&self, _: usize, _: &mut [u8]) {}

    fn sample_size(&self) -> usize {
        self.0.sample_size()
    }
}
