//! AES-GCM (NIST SP 800-38D) and QUIC's header masks with AES (RFC 9001, section 5.4.3).
//!
//! - [`key`]: round keys and powers of the hash key.
//! - [`ctr`]: AES in counter mode. [`ghash`]: GHASH. [`gcm`]: both, for the packets of a list.
//! - [`short`]: the same for consecutive packets with few blocks.
//! - [`mask`]: header masks.
//! - [`bitsliced`]: the same without AES instructions.

pub(crate) mod bitsliced;
pub(crate) mod ctr;
pub(crate) mod gcm;
pub(crate) mod ghash;
pub(crate) mod key;
pub(crate) mod mask;
mod short;
