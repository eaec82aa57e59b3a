//! Copies of what may be long.
//!
//! For 4 KiB and more glibc takes `rep movsb`. On AMD's Zen 3 that is 15 to 20 times slower
//! than vector instructions if the destination lies a few bytes behind the source, modulo a
//! page. Contents in a packet do: they come behind its length and header, and packet and
//! contents often begin alike in their allocations. So long copies are made in pieces, for
//! which glibc takes vector instructions.

use alloc::vec::Vec;

/// Whole lines of the cache, and less than 4 KiB.
const PIECE: usize = 4032;

/// As `copy_from_slice`.
#[inline(always)]
pub(crate) fn copy(to: &mut [u8], from: &[u8]) {
    // Most packets of a node have such a length, and a call of `memcpy` takes as long as the copy.
    if let len @ 32..=64 = from.len() {
        assert_eq!(to.len(), len);
        // They overlap.
        to[..32].copy_from_slice(&from[..32]);
        to[len - 32..].copy_from_slice(&from[len - 32..]);
        return;
    }
    if from.len() <= PIECE {
        return to.copy_from_slice(from);
    }
    assert_eq!(to.len(), from.len());
    for (to, from) in to.chunks_mut(PIECE).zip(from.chunks(PIECE)) {
        to.copy_from_slice(from);
    }
}

/// As `extend_from_slice`.
#[inline]
pub(crate) fn append(to: &mut Vec<u8>, from: &[u8]) {
    to.reserve(from.len());
    for from in from.chunks(PIECE) {
        to.extend_from_slice(from);
    }
}
