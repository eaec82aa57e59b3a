//! Shared by both ciphers of BIP324: the rekey interval and the nonces.

use packetlane_lanes::Nonce;

/// Number of packets that one key protects (BIP324, "Rekeying wrappers").
pub(super) const REKEY_INTERVAL: u32 = 224;

/// Builds the 12-byte nonce: the packet's index since the last rekey (4 bytes), then the epoch,
/// which is the number of rekeys so far (8 bytes), both little-endian.
#[inline]
pub(super) fn nonce(number: u32, epoch: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&number.to_le_bytes());
    nonce[4..].copy_from_slice(&epoch.to_le_bytes());
    nonce
}

/// Returns the index and the epoch of a nonce.
pub(super) fn number_and_epoch(nonce: Nonce) -> (u32, u64) {
    let [a, b, c, d, epoch @ ..] = nonce;
    (u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(epoch))
}
