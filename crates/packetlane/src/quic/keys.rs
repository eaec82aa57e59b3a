//! Traffic secrets, the keys derived from them (RFC 9001, section 5.1; RFC 9369, section 3.3),
//! and the protection of single packets with them.

use super::error::OpenError;
use super::header::{self, HeaderError, Mask, PacketNumber, SAMPLE_LEN, sample};
use super::suite::Suite;
use super::version::Version;
use crate::arena::index;
use crate::engine::Engine;
use alloc::boxed::Box;
use core::fmt;
use hkdf::Hkdf;
use packetlane_lanes::{AesKey, GcmKey, Key, Nonce, Outcome, TAG_LEN};
use sha2::{Sha256, Sha384};
use zeroize::{ZeroizeOnDrop, Zeroizing};

/// Maximum length of a traffic secret, in bytes.
const MAX_SECRET_LEN: usize = 48;

/// The constants of key derivation, which depend on the version.
struct Labels {
    salt: [u8; 20],
    key: &'static [u8],
    iv: &'static [u8],
    header: &'static [u8],
    update: &'static [u8],
}

impl Version {
    /// The labels of RFC 9001, sections 5.1, 5.2 and 6.1, and RFC 9369, sections 3.3.1 and 3.3.2.
    const fn labels(self) -> &'static Labels {
        match self {
            Version::V1 => &Labels {
                salt: [
                    0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4,
                    0xc8, 0x0c, 0xad, 0xcc, 0xbb, 0x7f, 0x0a,
                ],
                key: b"quic key",
                iv: b"quic iv",
                header: b"quic hp",
                update: b"quic ku",
            },
            Version::V2 => &Labels {
                salt: [
                    0x0d, 0xed, 0xe3, 0xde, 0xf7, 0x00, 0xa6, 0xdb, 0x81, 0x93, 0x81, 0xbe, 0x6e,
                    0x26, 0x9d, 0xcb, 0xf9, 0xbd, 0x2e, 0xd9,
                ],
                key: b"quicv2 key",
                iv: b"quicv2 iv",
                header: b"quicv2 hp",
                update: b"quicv2 ku",
            },
        }
    }
}

/// A traffic secret, from which the keys of one direction at one encryption level are derived.
/// Wiped on drop.
#[derive(Clone)]
pub struct Secret {
    suite: Suite,
    version: Version,
    /// Boxed, because a move would leave a copy behind. The suite determines how many of the
    /// bytes are used.
    bytes: Box<Zeroizing<[u8; MAX_SECRET_LEN]>>,
}

impl Secret {
    /// Creates a traffic secret from TLS for packets protected with `suite`. It has
    /// [`Suite::secret_len`] bytes.
    ///
    /// # Errors
    ///
    /// [`KeyLenError`] if it has another length.
    pub fn new(suite: Suite, version: Version, secret: &[u8]) -> Result<Self, KeyLenError> {
        KeyLenError::check(secret, suite.secret_len())?;
        let mut new = Self::zero(suite, version);
        new.bytes[..secret.len()].copy_from_slice(secret);
        Ok(new)
    }

    /// Derives the client's and the server's secret of Initial packets, in this order (RFC 9001,
    /// section 5.2). `dst_cid` is the Destination Connection ID of the client's first Initial
    /// packet, or of its first Initial packet after a Retry. Anyone who sees that packet can derive
    /// them.
    #[must_use]
    pub fn initial(version: Version, dst_cid: &[u8]) -> [Self; 2] {
        let (_, hkdf) = Hkdf::<Sha256>::extract(Some(&version.labels().salt), dst_cid);
        [b"client in", b"server in"].map(|label| {
            let mut secret = Self::zero(Suite::Aes128Gcm, version);
            let len = secret.suite.secret_len();
            expand_label(&hkdf, label, &mut secret.bytes[..len]);
            secret
        })
    }

    /// Derives the secret after a key update (RFC 9001, section 6.1). The header protection key of
    /// the first secret stays in use.
    #[must_use]
    pub fn next(&self) -> Self {
        let mut next = Self::zero(self.suite, self.version);
        let len = self.suite.secret_len();
        self.expand(self.version.labels().update, &mut next.bytes[..len]);
        next
    }

    /// Derives the keys of payload protection: "quic key" and "quic iv".
    #[must_use]
    pub fn packet_key(&self) -> PacketKey {
        let labels = self.version.labels();
        let mut key = Zeroizing::new([0; 32]);
        let mut iv = Zeroizing::new([0; 12]);
        let key = &mut key[..self.suite.key_len()];
        self.expand(labels.key, key);
        self.expand(labels.iv, &mut *iv);
        PacketKey::new(self.suite, key, &iv).expect("the suite's length")
    }

    /// Derives the key of header protection: "quic hp".
    #[must_use]
    pub fn header_key(&self) -> HeaderKey {
        let mut key = Zeroizing::new([0; 32]);
        let key = &mut key[..self.suite.key_len()];
        self.expand(self.version.labels().header, key);
        HeaderKey::new(self.suite, key).expect("the suite's length")
    }

    /// Returns the cipher suite.
    #[must_use]
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// Returns the QUIC version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    fn zero(suite: Suite, version: Version) -> Self {
        Self {
            suite,
            version,
            bytes: Box::new(Zeroizing::new([0; MAX_SECRET_LEN])),
        }
    }

    /// Computes HKDF-Expand-Label with this secret and an empty context (RFC 8446, section 7.1).
    fn expand(&self, label: &[u8], out: &mut [u8]) {
        const LONG: &str = "a secret is as long as its hash";
        let secret = &self.bytes[..self.suite.secret_len()];
        match self.suite {
            Suite::Aes256Gcm => {
                expand_label(&Hkdf::<Sha384>::from_prk(secret).expect(LONG), label, out);
            }
            Suite::Aes128Gcm | Suite::ChaCha20Poly1305 => {
                expand_label(&Hkdf::<Sha256>::from_prk(secret).expect(LONG), label, out);
            }
        }
    }
}

impl ZeroizeOnDrop for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(f, "Secret", self.suite)
    }
}

/// Computes HKDF-Expand-Label with an empty context.
fn expand_label<H: hkdf::hmac::EagerHash>(hkdf: &Hkdf<H>, label: &[u8], out: &mut [u8]) {
    const PREFIX: &[u8] = b"tls13 ";
    let [_, _, high, low] = index(out.len()).to_be_bytes();
    let lengths = [
        high,
        low,
        index(PREFIX.len() + label.len()).to_be_bytes()[3],
    ];
    hkdf.expand_multi_info(&[&lengths, PREFIX, label, &[0]], out)
        .expect("48 bytes are less than HKDF's 255 * 32");
}

/// The length of a key or secret does not match its suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLenError {
    /// The length that was given, in bytes.
    pub len: usize,
    /// The length that the suite requires, in bytes.
    pub expected: usize,
}

impl KeyLenError {
    fn check(key: &[u8], expected: usize) -> Result<(), Self> {
        let len = key.len();
        if len == expected {
            Ok(())
        } else {
            Err(Self { len, expected })
        }
    }
}

impl fmt::Display for KeyLenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { len, expected } = self;
        write!(
            f,
            "the key or secret has {len} bytes; its suite needs {expected}"
        )
    }
}

impl core::error::Error for KeyLenError {}

/// The packet's tag is wrong.
pub(super) struct BadTag;

/// The prepared key of an AEAD, with its IV. Boxed, because a move would leave a copy behind.
pub(super) enum Aead {
    Gcm(Box<WithIv<GcmKey>>),
    ChaCha20(Box<WithIv<Zeroizing<Key>>>),
}

/// A key and its IV, both wiped on drop.
pub(super) struct WithIv<K> {
    pub(super) key: K,
    iv: Zeroizing<Nonce>,
}

impl<K> WithIv<K> {
    fn boxed(key: K, iv: &Nonce) -> Box<Self> {
        let iv = Zeroizing::new(*iv);
        Box::new(Self { key, iv })
    }
}

/// The keys of payload protection for one direction and key phase: an AEAD's key and IV (RFC
/// 9001, section 5.3). Wiped on drop.
pub struct PacketKey {
    suite: Suite,
    pub(super) aead: Aead,
}

impl PacketKey {
    /// Creates a key from the bytes that [`Secret::packet_key`] derives: `key`, of
    /// [`Suite::key_len`] bytes, and the IV.
    ///
    /// # Errors
    ///
    /// [`KeyLenError`] if `key` has another length.
    pub fn new(suite: Suite, key: &[u8], iv: &[u8; 12]) -> Result<Self, KeyLenError> {
        KeyLenError::check(key, suite.key_len())?;
        let aead = match suite {
            Suite::Aes128Gcm => {
                let key = GcmKey::aes128(key.try_into().expect("16 bytes"));
                Aead::Gcm(WithIv::boxed(key, iv))
            }
            Suite::Aes256Gcm => {
                let key = GcmKey::aes256(key.try_into().expect("32 bytes"));
                Aead::Gcm(WithIv::boxed(key, iv))
            }
            Suite::ChaCha20Poly1305 => {
                let key = Zeroizing::new(key.try_into().expect("32 bytes"));
                Aead::ChaCha20(WithIv::boxed(key, iv))
            }
        };
        Ok(Self { suite, aead })
    }

    /// Returns the cipher suite.
    #[must_use]
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// Returns the nonce of a packet: the IV XORed with the big-endian packet number (RFC 9001,
    /// section 5.3).
    #[inline]
    pub(super) fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = match &self.aead {
            Aead::Gcm(keys) => *keys.iv,
            Aead::ChaCha20(keys) => *keys.iv,
        };
        if let Some(low) = nonce.last_chunk_mut() {
            *low = (u64::from_be_bytes(*low) ^ number).to_be_bytes();
        }
        nonce
    }

    /// Like [`nonce`](Self::nonce), for one of several paths (draft-ietf-quic-multipath).
    #[cfg(feature = "rustls")]
    pub(super) fn nonce_for_path(&self, path: u32, number: u64) -> Nonce {
        let mut nonce = self.nonce(number);
        for (byte, path) in nonce.iter_mut().zip(path.to_be_bytes()) {
            *byte ^= path;
        }
        nonce
    }

    /// Seals packet `number` in place, without header protection. `packet` holds the
    /// unprotected header of `header_len` bytes, the payload, and 16 bytes for the tag.
    ///
    /// Never use a packet number twice with the same key. The caller counts packets and observes
    /// [`Suite::confidentiality_limit`].
    ///
    /// # Panics
    ///
    /// If `packet` is shorter than header and tag, or if `number` is above
    /// [`PacketNumber::MAX`].
    pub fn seal(&self, engine: &Engine, number: u64, packet: &mut [u8], header_len: usize) {
        assert!(
            number <= PacketNumber::MAX,
            "packet number {number} is above the maximum, {}",
            PacketNumber::MAX
        );
        let (header, rest) = packet.split_at_mut(header_len);
        let (payload, tag) = rest.split_last_chunk_mut().expect("room for a tag");
        *tag = self.seal_detached(engine, &self.nonce(number), header, payload);
    }

    /// Opens packet `number` in place. The layout is that of [`PacketKey::seal`], and the
    /// header is already unprotected.
    ///
    /// # Errors
    ///
    /// [`OpenError::NoTag`] if the packet is shorter than header and tag, [`OpenError::BadTag`] if
    /// the tag is wrong. The payload is then unchanged.
    pub fn open(
        &self,
        engine: &Engine,
        number: u64,
        packet: &mut [u8],
        header_len: usize,
    ) -> Result<(), OpenError> {
        match packet.split_at_mut_checked(header_len) {
            Some((header, payload)) if payload.len() >= TAG_LEN => self
                .open_detached(engine, &self.nonce(number), header, payload)
                .map_err(|BadTag| OpenError::BadTag { number }),
            _ => Err(OpenError::NoTag),
        }
    }

    /// Seals a payload that does not follow its header. Returns the tag.
    #[inline]
    pub(super) fn seal_detached(
        &self,
        engine: &Engine,
        nonce: &Nonce,
        header: &[u8],
        payload: &mut [u8],
    ) -> [u8; TAG_LEN] {
        let backend = engine.backend();
        match &self.aead {
            Aead::Gcm(keys) => backend
                .kernels()
                .gcm_seal_detached(&keys.key, nonce, header, payload),
            Aead::ChaCha20(keys) => backend
                .kernels()
                .seal_detached(&keys.key, nonce, header, payload),
        }
    }

    /// Opens a payload that does not follow its header. The payload's last 16 bytes are the
    /// tag.
    ///
    /// # Errors
    ///
    /// If the tag is wrong. The payload is then unchanged.
    #[inline]
    pub(super) fn open_detached(
        &self,
        engine: &Engine,
        nonce: &Nonce,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<(), BadTag> {
        let backend = engine.backend();
        let outcome = match &self.aead {
            Aead::Gcm(keys) => backend
                .kernels()
                .gcm_open_detached(&keys.key, nonce, header, payload),
            Aead::ChaCha20(keys) => backend
                .kernels()
                .open_detached(&keys.key, nonce, header, payload),
        };
        match outcome {
            Outcome::Authentic => Ok(()),
            _ => Err(BadTag),
        }
    }
}

impl ZeroizeOnDrop for PacketKey {}

impl fmt::Debug for PacketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(f, "PacketKey", self.suite)
    }
}

/// The prepared key of a header protection cipher. Boxed for the reason given at [`Aead`].
pub(super) enum Cipher {
    Aes(Box<AesKey>),
    ChaCha20(Box<Zeroizing<Key>>),
}

/// The key of header protection for one direction at one encryption level (RFC 9001, section
/// 5.4). Key updates do not change it. Wiped on drop.
pub struct HeaderKey {
    suite: Suite,
    pub(super) cipher: Cipher,
}

impl HeaderKey {
    /// Length of the ciphertext sample from which header protection derives its mask, in bytes
    /// (RFC 9001, section 5.4.2).
    pub const SAMPLE_LEN: usize = SAMPLE_LEN;

    /// Creates a key from the [`Suite::key_len`] bytes that [`Secret::header_key`] derives.
    ///
    /// # Errors
    ///
    /// [`KeyLenError`] if `key` has another length.
    pub fn new(suite: Suite, key: &[u8]) -> Result<Self, KeyLenError> {
        KeyLenError::check(key, suite.key_len())?;
        let cipher = match suite {
            Suite::Aes128Gcm => {
                Cipher::Aes(Box::new(AesKey::aes128(key.try_into().expect("16 bytes"))))
            }
            Suite::Aes256Gcm => {
                Cipher::Aes(Box::new(AesKey::aes256(key.try_into().expect("32 bytes"))))
            }
            Suite::ChaCha20Poly1305 => {
                let key = Zeroizing::new(key.try_into().expect("32 bytes"));
                Cipher::ChaCha20(Box::new(key))
            }
        };
        Ok(Self { suite, cipher })
    }

    /// Returns the cipher suite.
    #[must_use]
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// Returns the mask for a packet with this sample (RFC 9001, section 5.4.1). The first byte is
    /// XORed into the header's first byte: its low 4 bits for a long header, its low 5 bits for a
    /// short one. The other four bytes are XORed into the packet number.
    #[must_use]
    pub fn mask(&self, engine: &Engine, sample: &[u8; Self::SAMPLE_LEN]) -> [u8; 5] {
        let mask = self.mask_at(engine, sample, 0).to_le_bytes();
        *mask.first_chunk().expect("8 bytes")
    }

    /// Like [`mask`](Self::mask), for the sample that starts at `start` in `bytes`.
    #[inline]
    pub(super) fn mask_at(&self, engine: &Engine, bytes: &[u8], start: usize) -> Mask {
        let (backend, samples) = (engine.backend(), &[(0, index(start))]);
        let mut mask = [0];
        match &self.cipher {
            Cipher::Aes(key) => backend
                .kernels()
                .aes_masks(bytes, &[key], samples, &mut mask),
            Cipher::ChaCha20(key) => {
                let keys = core::slice::from_ref(&***key);
                backend
                    .kernels()
                    .chacha20_masks(bytes, keys, samples, &mut mask);
            }
        }
        mask[0]
    }

    /// Protects the header of a sealed packet in place. The packet number starts at `pn_offset`;
    /// the first byte encodes its length.
    ///
    /// # Errors
    ///
    /// [`HeaderError::TooShort`] if the packet is too short for a sample. It is then unchanged.
    pub fn protect(
        &self,
        engine: &Engine,
        packet: &mut [u8],
        pn_offset: usize,
    ) -> Result<(), HeaderError> {
        let mask = self.mask_of(engine, packet, pn_offset)?;
        header::protect(packet, pn_offset, mask);
        Ok(())
    }

    /// Removes header protection from a packet in place. Returns the truncated packet number and
    /// its length in bytes, for [`PacketNumber::decode`].
    ///
    /// # Errors
    ///
    /// [`HeaderError::TooShort`] if the packet is too short for a sample. It is then unchanged.
    pub fn unprotect(
        &self,
        engine: &Engine,
        packet: &mut [u8],
        pn_offset: usize,
    ) -> Result<(u32, usize), HeaderError> {
        let mask = self.mask_of(engine, packet, pn_offset)?;
        Ok(header::unprotect(packet, pn_offset, mask))
    }

    fn mask_of(
        &self,
        engine: &Engine,
        packet: &[u8],
        pn_offset: usize,
    ) -> Result<Mask, HeaderError> {
        let sample = sample(packet.len(), pn_offset)?;
        Ok(self.mask_at(engine, packet, sample.start))
    }
}

impl ZeroizeOnDrop for HeaderKey {}

impl fmt::Debug for HeaderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(f, "HeaderKey", self.suite)
    }
}

/// Prints only the suite, because the rest is secret.
fn debug(f: &mut fmt::Formatter<'_>, name: &str, suite: Suite) -> fmt::Result {
    f.debug_struct(name)
        .field("suite", &suite)
        .finish_non_exhaustive()
}
