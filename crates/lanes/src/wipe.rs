//! Wiping of arrays on the stack.

/// Replaces a secret. The compiler does not leave this out, although the old place is not read again.
#[inline(always)]
pub(crate) fn overwrite<T: Copy>(secret: &mut T, with: T) {
    *secret = with;
    zeroize::optimization_barrier(secret);
}
