//! Wiping of large buffers.

/// Overwrites bytes with zeros; the compiler does not remove the writes.
pub(crate) fn wipe(bytes: &mut [u8]) {
    // Not `zeroize`, which writes byte by byte.
    bytes.fill(0);
    zeroize::optimization_barrier(bytes);
}
