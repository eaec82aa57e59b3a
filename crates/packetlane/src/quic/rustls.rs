//! A crypto provider for rustls (feature `rustls`) that protects QUIC packets with this crate.
//! Key exchange, signatures, hashes and TLS records are those of rustls's *ring* provider.
//!
//! Programs that use rustls's QUIC interface, such as quinn, work with it unchanged. That
//! interface protects one packet at a time, with separate calls for AEAD and header protection.
//! `quic::quinn` combines the two calls.

use super::header::{self, SAMPLE_LEN};
use super::keys::{BadTag, HeaderKey, PacketKey};
use super::suite::Suite;
use crate::engine::Engine;
use alloc::boxed::Box;
use alloc::vec::Vec;
use packetlane_lanes::{Backend, TAG_LEN};
use rustls::crypto::CryptoProvider;
use rustls::crypto::cipher::{AeadKey, Iv, Nonce};
use rustls::crypto::ring;
use rustls::{CipherSuite, CipherSuiteCommon, Error, SupportedCipherSuite, Tls13CipherSuite};
use rustls::{quic, quic::Tag};
use std::sync::OnceLock;

/// Returns rustls's *ring* provider, with TLS 1.3 cipher suites that protect QUIC packets on the
/// backend of `engine`.
///
/// ```
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let engine = packetlane::Engine::detect()?;
/// let provider = Arc::new(packetlane::quic::rustls::provider(engine));
/// let config = rustls::ClientConfig::builder_with_provider(provider)
///     .with_protocol_versions(&[&rustls::version::TLS13])?;
/// # let _ = config;
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn provider(engine: Engine) -> CryptoProvider {
    let mut provider = ring::default_provider();
    for suite in &mut provider.cipher_suites {
        if let Some(ours) = cipher_suite(engine, suite.suite()) {
            *suite = SupportedCipherSuite::Tls13(ours);
        }
    }
    provider
}

/// Returns the TLS 1.3 cipher suite of this name, which protects QUIC packets on the backend of
/// `engine`. Returns `None` if this crate does not support the suite.
#[must_use]
pub fn cipher_suite(engine: Engine, name: CipherSuite) -> Option<&'static Tls13CipherSuite> {
    // rustls requires `&'static` suites, so those of each backend are created once per process.
    static SUITES: [OnceLock<Vec<Tls13CipherSuite>>; Backend::ALL.len()] =
        [const { OnceLock::new() }; Backend::ALL.len()];
    let place = Backend::ALL
        .iter()
        .position(|backend| *backend == engine.backend())?;
    let suites = SUITES[place].get_or_init(|| {
        let ring = ring::ALL_CIPHER_SUITES.iter();
        ring.filter_map(|suite| with_our_packets(engine, suite.tls13()?))
            .collect()
    });
    suites.iter().find(|suite| suite.common.suite == name)
}

fn with_our_packets(engine: Engine, ring: &Tls13CipherSuite) -> Option<Tls13CipherSuite> {
    let suite = match ring.common.suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => Suite::Aes128Gcm,
        CipherSuite::TLS13_AES_256_GCM_SHA384 => Suite::Aes256Gcm,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => Suite::ChaCha20Poly1305,
        _ => return None,
    };
    Some(Tls13CipherSuite {
        common: CipherSuiteCommon { ..ring.common },
        hkdf_provider: ring.hkdf_provider,
        aead_alg: ring.aead_alg,
        quic: Some(Box::leak(Box::new(Algorithm { engine, suite }))),
    })
}

/// Creates the keys of a suite.
struct Algorithm {
    engine: Engine,
    suite: Suite,
}

/// A key with the engine that it runs on.
struct On<K> {
    engine: Engine,
    key: K,
}

impl quic::Algorithm for Algorithm {
    fn packet_key(&self, key: AeadKey, iv: Iv) -> Box<dyn quic::PacketKey> {
        // The nonce of packet number 0 equals the IV.
        let iv = Nonce::new(&iv, 0).0;
        let key = PacketKey::new(self.suite, key.as_ref(), &iv);
        Box::new(On {
            engine: self.engine,
            key: key.expect("rustls passes a key of the suite's length"),
        })
    }

    fn header_protection_key(&self, key: AeadKey) -> Box<dyn quic::HeaderProtectionKey> {
        let key = HeaderKey::new(self.suite, key.as_ref());
        Box::new(On {
            engine: self.engine,
            key: key.expect("rustls passes a key of the suite's length"),
        })
    }

    fn aead_key_len(&self) -> usize {
        self.suite.key_len()
    }
}

impl quic::PacketKey for On<PacketKey> {
    fn encrypt_in_place(
        &self,
        packet_number: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<Tag, Error> {
        let nonce = self.key.nonce(packet_number);
        let tag = self
            .key
            .seal_detached(&self.engine, &nonce, header, payload);
        Ok(Tag::from(&tag[..]))
    }

    fn encrypt_in_place_for_path(
        &self,
        path_id: u32,
        packet_number: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<Tag, Error> {
        let nonce = self.key.nonce_for_path(path_id, packet_number);
        let tag = self
            .key
            .seal_detached(&self.engine, &nonce, header, payload);
        Ok(Tag::from(&tag[..]))
    }

    fn decrypt_in_place<'a>(
        &self,
        packet_number: u64,
        header: &[u8],
        payload: &'a mut [u8],
    ) -> Result<&'a [u8], Error> {
        let nonce = self.key.nonce(packet_number);
        open(self, nonce, header, payload)
    }

    fn decrypt_in_place_for_path<'a>(
        &self,
        path_id: u32,
        packet_number: u64,
        header: &[u8],
        payload: &'a mut [u8],
    ) -> Result<&'a [u8], Error> {
        let nonce = self.key.nonce_for_path(path_id, packet_number);
        open(self, nonce, header, payload)
    }

    fn tag_len(&self) -> usize {
        TAG_LEN
    }

    fn confidentiality_limit(&self) -> u64 {
        self.key.suite().confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.key.suite().integrity_limit()
    }
}

fn open<'a>(
    on: &On<PacketKey>,
    nonce: packetlane_lanes::Nonce,
    header: &[u8],
    payload: &'a mut [u8],
) -> Result<&'a [u8], Error> {
    let opened = on.key.open_detached(&on.engine, &nonce, header, payload);
    opened.map_err(|BadTag| Error::DecryptError)?;
    Ok(&payload[..payload.len() - TAG_LEN])
}

impl On<HeaderKey> {
    fn mask(&self, sample: &[u8], packet_number: &[u8]) -> Result<u64, Error> {
        if sample.len() != SAMPLE_LEN {
            return Err(Error::General("sample of invalid length".into()));
        }
        if packet_number.len() > 4 {
            return Err(Error::General("packet number too long".into()));
        }
        Ok(self.key.mask_at(&self.engine, sample, 0))
    }
}

impl quic::HeaderProtectionKey for On<HeaderKey> {
    fn encrypt_in_place(
        &self,
        sample: &[u8],
        first: &mut u8,
        packet_number: &mut [u8],
    ) -> Result<(), Error> {
        let mask = self.mask(sample, packet_number)?;
        header::protect_parts(first, packet_number, mask);
        Ok(())
    }

    fn decrypt_in_place(
        &self,
        sample: &[u8],
        first: &mut u8,
        packet_number: &mut [u8],
    ) -> Result<(), Error> {
        let mask = self.mask(sample, packet_number)?;
        header::unprotect_parts(first, packet_number, mask);
        Ok(())
    }

    fn sample_len(&self) -> usize {
        SAMPLE_LEN
    }
}
