//! Wiping of the stack.

/// Replaces a secret. The compiler does not leave this out, although the old place is not read again.
#[inline(always)]
pub(crate) fn overwrite<T: Copy>(secret: &mut T, with: T) {
    *secret = with;
    zeroize::optimization_barrier(secret);
}

/// Overwrites 2 KiB below its caller's frame, where functions that have returned had theirs.
#[inline(never)]
pub(crate) fn overwrite_frames() {
    core::hint::black_box(&mut [0_u64; 256]);
}
