//! Limits on the memory that a peer may claim: buffers for incomplete packets.

use crate::copy::append;
use alloc::vec::Vec;

/// How much memory a session allocates for a packet beyond the bytes that have arrived, in bytes.
/// It bounds what an announced length can cost before its bytes arrive.
pub(super) const MAX_PREALLOCATION: usize = 256 * 1024;

/// Empty buffers with more capacity than this, in bytes, are freed.
pub(super) const MAX_IDLE_BUFFER: usize = 4 * 1024;

/// Appends `bytes` to a buffer that should reach `expected` bytes in total. Allocates for that
/// many, but never more than [`MAX_PREALLOCATION`] beyond the bytes that have arrived: the peer may
/// have lied.
pub(super) fn append_expected(buffer: &mut Vec<u8>, bytes: &[u8], expected: usize) {
    let arrived = buffer.len() + bytes.len();
    if buffer.capacity() < arrived {
        let wanted = expected.clamp(arrived, arrived + MAX_PREALLOCATION);
        buffer.reserve_exact(wanted - buffer.len());
    }
    append(buffer, bytes);
}
