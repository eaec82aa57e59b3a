//! AES keys, prepared with the most capable instructions that this CPU has.

use crate::isa::AesSet;
use crate::kernels::aes::key::{AesKey, GcmKey, RoundKeys};

/// Expands a key of 16 or 32 bytes to its round keys.
fn round_keys<const N: usize>(key: &[u8; N]) -> RoundKeys {
    RoundKeys::new(key, |key, keys| AesSet::best().expand(key, keys))
}

impl GcmKey {
    /// Prepares an AES-128-GCM key from 16 bytes (NIST SP 800-38D).
    #[must_use]
    pub fn aes128(key: &[u8; 16]) -> Self {
        Self::new(round_keys(key))
    }

    /// Prepares an AES-256-GCM key from 32 bytes (NIST SP 800-38D).
    #[must_use]
    pub fn aes256(key: &[u8; 32]) -> Self {
        Self::new(round_keys(key))
    }

    fn new(cipher: RoundKeys) -> Self {
        Self::with_powers(cipher, |cipher, powers| {
            AesSet::best().powers(cipher, powers)
        })
    }
}

impl AesKey {
    /// Prepares an AES-128 key from 16 bytes (FIPS 197).
    #[must_use]
    pub fn aes128(key: &[u8; 16]) -> Self {
        Self(round_keys(key))
    }

    /// Prepares an AES-256 key from 32 bytes (FIPS 197).
    #[must_use]
    pub fn aes256(key: &[u8; 32]) -> Self {
        Self(round_keys(key))
    }
}
