//! The algorithms of packet protection, with their lengths and limits.

/// The algorithms of packet protection, by AEAD (RFC 9001, section 5.3). A TLS cipher suite
/// combines them with a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Suite {
    /// `TLS_AES_128_GCM_SHA256`; also used for Initial packets.
    Aes128Gcm,
    /// `TLS_AES_256_GCM_SHA384`.
    Aes256Gcm,
    /// `TLS_CHACHA20_POLY1305_SHA256`.
    ChaCha20Poly1305,
}

impl Suite {
    /// All suites.
    pub const ALL: [Suite; 3] = [Suite::Aes128Gcm, Suite::Aes256Gcm, Suite::ChaCha20Poly1305];

    /// Returns the length of the packet protection key, and of the header protection key, in bytes.
    #[must_use]
    pub const fn key_len(self) -> usize {
        match self {
            Suite::Aes128Gcm => 16,
            Suite::Aes256Gcm | Suite::ChaCha20Poly1305 => 32,
        }
    }

    /// Returns the length of traffic secrets, which is that of the suite's hash, in bytes.
    #[must_use]
    pub const fn secret_len(self) -> usize {
        match self {
            Suite::Aes256Gcm => 48,
            Suite::Aes128Gcm | Suite::ChaCha20Poly1305 => 32,
        }
    }

    /// Returns how many packets may be sealed with one key (RFC 9001, section 6.6, for packets of
    /// any length) before a key update is required. For ChaCha20-Poly1305, this exceeds the number
    /// of packet numbers.
    #[must_use]
    pub const fn confidentiality_limit(self) -> u64 {
        match self {
            Suite::Aes128Gcm | Suite::Aes256Gcm => 1 << 23,
            Suite::ChaCha20Poly1305 => u64::MAX,
        }
    }

    /// Returns how many packets of one connection may fail to open, under all of its keys together
    /// (RFC 9001, section 6.6). If one more fails, the connection must end.
    #[must_use]
    pub const fn integrity_limit(self) -> u64 {
        match self {
            Suite::Aes128Gcm | Suite::Aes256Gcm => 1 << 52,
            Suite::ChaCha20Poly1305 => 1 << 36,
        }
    }
}
