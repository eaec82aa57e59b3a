//! What both ciphers of BIP324 share: when they rekey, and the nonces between two rekeys.

use packetlane_lanes::Nonce;

/// How many packets one key serves (BIP324, "Rekeying wrappers").
pub(super) const REKEY_INTERVAL: u32 = 224;

/// A nonce of 12 bytes: a number since the last rekey, 4 bytes, then the epoch, which is the
/// number of rekeys before it, 8 bytes, both little-endian.
#[inline]
pub(super) fn nonce(number: u32, epoch: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&number.to_le_bytes());
    nonce[4..].copy_from_slice(&epoch.to_le_bytes());
    nonce
}

/// The number and the epoch of a nonce.
pub(super) fn number_and_epoch(nonce: Nonce) -> (u32, u64) {
    let [a, b, c, d, epoch @ ..] = nonce;
    (u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(epoch))
}
