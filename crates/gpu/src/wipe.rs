//! Wiping of what may be megabytes.

/// Writes zeros that the compiler does not leave out.
pub(crate) fn wipe(bytes: &mut [u8]) {
    // Not `zeroize`, which writes byte by byte.
    bytes.fill(0);
    zeroize::optimization_barrier(bytes);
}
