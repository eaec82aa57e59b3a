//! AES-GCM (NIST SP 800-38D) and QUIC's header masks of AES (RFC 9001, section 5.4.3).
//!
//! [`key`] holds what is prepared of a key, [`ctr`] encrypts counter blocks, [`ghash`]
//! hashes, [`gcm`] does both for the packets of a list, [`mask`] encrypts samples of
//! headers. [`bitsliced`] is the same without instructions for AES.

pub(crate) mod bitsliced;
pub(crate) mod ctr;
pub(crate) mod gcm;
pub(crate) mod ghash;
pub(crate) mod key;
pub(crate) mod mask;
