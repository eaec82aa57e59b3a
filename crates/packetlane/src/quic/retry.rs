//! The tag of Retry packets (RFC 9001, section 5.8; RFC 9369, section 3.3.3): it
//! detects damage, and senders that did not see the Initial packet. Its key is public.

use super::version::Version;
use crate::engine::Engine;
use alloc::vec::Vec;
use packetlane_lanes::{GcmKey, Outcome, TAG_LEN};

/// Returns the key, 16 bytes, and the nonce, 12 bytes.
const fn key(version: Version) -> ([u8; 16], [u8; 12]) {
    match version {
        Version::V1 => (
            [
                0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68,
                0xc8, 0x4e,
            ],
            [
                0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb,
            ],
        ),
        Version::V2 => (
            [
                0x8f, 0xb4, 0xb0, 0x1b, 0x56, 0xac, 0x48, 0xe2, 0x60, 0xfb, 0xcb, 0xce, 0xad, 0x7c,
                0xcc, 0x92,
            ],
            [
                0xd8, 0x69, 0x69, 0xbc, 0x2d, 0x7c, 0x6d, 0x99, 0x90, 0xef, 0xb0, 0x4a,
            ],
        ),
    }
}

/// Returns the Retry pseudo-packet, all of which is AAD.
///
/// # Panics
///
/// If `original_dst_cid` is longer than 255 bytes.
fn pseudo_packet(original_dst_cid: &[u8], retry: &[u8]) -> Vec<u8> {
    let len = u8::try_from(original_dst_cid.len()).expect("a connection ID has at most 255 bytes");
    [&[len], original_dst_cid, retry].concat()
}

impl Version {
    /// Computes the Retry Integrity Tag, 16 bytes, of `retry`, a Retry packet without its tag. The
    /// packet answers an Initial packet whose Destination Connection ID was `original_dst_cid`.
    ///
    /// # Panics
    ///
    /// If `original_dst_cid` is longer than 255 bytes.
    #[must_use]
    pub fn retry_tag(
        self,
        engine: &Engine,
        original_dst_cid: &[u8],
        retry: &[u8],
    ) -> [u8; TAG_LEN] {
        let (key, nonce) = key(self);
        let aad = pseudo_packet(original_dst_cid, retry);
        let key = GcmKey::aes128(&key);
        engine
            .backend()
            .kernels()
            .gcm_seal_detached(&key, &nonce, &aad, &mut [])
    }

    /// Whether `retry`, a whole Retry packet, has the correct tag for an answer to an Initial
    /// packet whose Destination Connection ID was `original_dst_cid`. Compares in constant time.
    /// Returns false for a packet that is too short for a tag.
    ///
    /// # Panics
    ///
    /// If `original_dst_cid` is longer than 255 bytes.
    #[must_use]
    pub fn verify_retry(self, engine: &Engine, original_dst_cid: &[u8], retry: &[u8]) -> bool {
        let Some((retry, &tag)) = retry.split_last_chunk::<TAG_LEN>() else {
            return false;
        };
        let (key, nonce) = key(self);
        let aad = pseudo_packet(original_dst_cid, retry);
        let (key, mut tag) = (GcmKey::aes128(&key), tag);
        let backend = engine.backend();
        backend
            .kernels()
            .gcm_open_detached(&key, &nonce, &aad, &mut tag)
            == Outcome::Authentic
    }
}
