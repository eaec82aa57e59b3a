//! The tag of one packet.

use super::strategy::OVER_LANES_THRESHOLD;
use crate::isa::Set;
use crate::job::TAG_LEN;
use crate::kernels::poly1305::Poly1305;

/// Hashes the whole blocks of `message`. Returns the rest, fewer than 16 bytes.
#[inline]
pub(super) fn update<'m>(set: Set, poly1305: &mut Poly1305, message: &'m [u8]) -> &'m [u8] {
    let (blocks, rest) = message.as_chunks();
    if set.tag_lanes() > 1 && message.len() >= OVER_LANES_THRESHOLD {
        let (h, r) = poly1305.accumulator();
        let h = set.absorb_over_lanes(h, blocks, r);
        poly1305.set_accumulator(h);
    } else {
        poly1305.update_blocks(blocks);
    }
    rest
}

/// Hashes `message`, padded with zeros to a multiple of 16 bytes (RFC 8439, section 2.8).
#[inline]
pub(super) fn update_padded(set: Set, poly1305: &mut Poly1305, message: &[u8]) {
    let rest = update(set, poly1305, message);
    poly1305.update_padded(rest);
}

/// Computes the tag of a packet from its AAD and its ciphertext.
#[inline]
pub(super) fn tag(set: Set, one_time_key: &[u8; 32], aad: &[u8], text: &[u8]) -> [u8; TAG_LEN] {
    let mut poly1305 = Poly1305::new(one_time_key);
    update_padded(set, &mut poly1305, aad);
    update_padded(set, &mut poly1305, text);
    poly1305.update_lengths(aad.len() as u64, text.len() as u64);
    poly1305.finish()
}

/// Computes the Poly1305 tag of one message of any length, without the AEAD's padding (RFC 8439,
/// section 2.5).
pub(crate) fn poly1305(set: Set, one_time_key: &[u8; 32], message: &[u8]) -> [u8; TAG_LEN] {
    let mut poly1305 = Poly1305::new(one_time_key);
    let rest = update(set, &mut poly1305, message);
    poly1305.update_last(rest);
    poly1305.finish()
}
