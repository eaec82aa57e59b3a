//! How much memory a peer may claim: buffers of packets that have not come whole.

use crate::copy::append;
use alloc::vec::Vec;

/// How much memory a session takes for a packet beyond the bytes of it that have arrived, in
/// bytes: a stranger's claim of a length costs no more than this.
pub(super) const MAX_PREALLOCATION: usize = 256 * 1024;

/// Buffers above this size, in bytes, are given back when they are empty.
pub(super) const KEPT_BUFFER: usize = 4 * 1024;

/// Appends `bytes` to a buffer that will hold `expected` bytes in all, if the peer tells the
/// truth: takes memory for that many, but for no more than [`MAX_PREALLOCATION`] beyond
/// those that have arrived.
pub(super) fn append_expected(buffer: &mut Vec<u8>, bytes: &[u8], expected: usize) {
    let arrived = buffer.len() + bytes.len();
    if buffer.capacity() < arrived {
        let wanted = expected.clamp(arrived, arrived + MAX_PREALLOCATION);
        buffer.reserve_exact(wanted - buffer.len());
    }
    append(buffer, bytes);
}
