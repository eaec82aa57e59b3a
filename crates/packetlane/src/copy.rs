//! Copies of slices that may be long.
//!
//! On CPUs with FSRM, glibc copies with `rep movsb` from 2,112 bytes on
//! (`glibc.cpu.x86_rep_movsb_threshold`). On AMD Zen 3 that is 15 to 30 times slower than vector
//! instructions if the destination lies 1 to 31 bytes after the source, modulo 4,096. That is
//! common for packets: the contents follow a length and a header, and packet and contents often
//! begin at the same offset of a page. Long copies are therefore split into pieces for which glibc
//! uses vector instructions.

use alloc::vec::Vec;

/// Length of a piece, in bytes: whole cache lines, below glibc's threshold for `rep movsb`. On an
/// Emerald Rapids, pieces of 2 and 4 KiB are equally fast. On a Zen 3, pieces of 4,032 bytes sealed
/// a single packet of 1 MiB at 0.7 times the speed of `ring` instead of 1.2 (`lab bip324.primitives
/// --filter primitive=copy`).
const PIECE: usize = 2048;
const _: () = assert!(PIECE < 2112, "glibc would use `rep movsb`");

/// Like `copy_from_slice`.
#[inline(always)]
pub(crate) fn copy(to: &mut [u8], from: &[u8]) {
    // Most packets of a node have such a length, and calling `memcpy` would take as long as the
    // copy.
    if let len @ 32..=64 = from.len() {
        assert_eq!(to.len(), len);
        // The two copies overlap.
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

/// Like `extend_from_slice`.
#[inline]
pub(crate) fn append(to: &mut Vec<u8>, from: &[u8]) {
    to.reserve(from.len());
    for from in from.chunks(PIECE) {
        to.extend_from_slice(from);
    }
}
