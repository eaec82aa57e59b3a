//! Bytes in memory: alignment, fewer than 16 bytes, and XOR without byte masks.

/// A value aligned to 64 bytes, the size of the largest register and of a cache line.
#[repr(align(64))]
pub(crate) struct Aligned<T>(pub(crate) T);

/// [`U32Lanes::xor_bytes`](super::U32Lanes::xor_bytes) for instruction sets without byte masks.
/// Works on ever smaller pieces of constant length, which the compiler turns into vectors.
#[inline(always)]
pub(crate) fn xor_bytes(text: &mut [u8], block: &[u8; 64]) {
    #[inline(always)]
    fn piece<const N: usize>(text: &mut [u8], block: &[u8], at: &mut usize) {
        if let (Some(text), Some(block)) = (
            text[*at..].first_chunk_mut::<N>(),
            block[*at..].first_chunk(),
        ) {
            *text = xored::<N>(*text, *block);
            *at += N;
        }
    }
    let mut at = 0;
    if text.len() == 64 {
        return piece::<64>(text, block, &mut at);
    }
    piece::<32>(text, block, &mut at);
    piece::<16>(text, block, &mut at);
    piece::<8>(text, block, &mut at);
    piece::<4>(text, block, &mut at);
    piece::<2>(text, block, &mut at);
    piece::<1>(text, block, &mut at);
}

/// Returns `bytes` XOR `masks`. Takes values: the compiler does not know that references do not
/// overlap.
#[inline(always)]
pub(crate) fn xored<const N: usize>(mut bytes: [u8; N], masks: [u8; N]) -> [u8; N] {
    for (byte, mask) in bytes.iter_mut().zip(masks) {
        *byte ^= mask;
    }
    bytes
}

/// Returns the first `len` bytes at `source`, at most 16, as a little-endian number.
///
/// # Safety
///
/// `len` bytes, or 16 if `len` is more, must be readable at `source`.
#[inline(always)]
pub(crate) unsafe fn number(source: *const u8, len: usize) -> u128 {
    // Two overlapping loads are faster than the compiler's code for a copy of unknown length.
    macro_rules! two {
        ($type:ty) => {{
            let size = size_of::<$type>();
            // SAFETY: `len` is at least `size`, and the caller guarantees `len` bytes.
            let (front, back) = unsafe {
                (
                    source.cast::<$type>().read_unaligned(),
                    source.add(len - size).cast::<$type>().read_unaligned(),
                )
            };
            let (front, back) = (<$type>::from_le(front), <$type>::from_le(back));
            u128::from(front) | u128::from(back) << (8 * (len - size))
        }};
    }
    match len {
        0 => 0,
        1 => two!(u8),
        2..4 => two!(u16),
        4..8 => two!(u32),
        8..16 => two!(u64),
        // SAFETY: `len` is at least 16 here, and the caller guarantees 16 bytes.
        _ => u128::from_le(unsafe { source.cast::<u128>().read_unaligned() }),
    }
}

/// Writes the first `len` bytes of a little-endian number, at most 16.
///
/// # Safety
///
/// `len` bytes, or 16 if `len` is more, must be writable at `destination`.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "takes the low bytes")]
pub(crate) unsafe fn write_number(number: u128, destination: *mut u8, len: usize) {
    macro_rules! two {
        ($type:ty) => {{
            let size = size_of::<$type>();
            let back = (number >> (8 * (len - size))) as $type;
            // SAFETY: `len` is at least `size`, and the caller guarantees `len` bytes.
            unsafe {
                destination
                    .cast::<$type>()
                    .write_unaligned((number as $type).to_le());
                destination
                    .add(len - size)
                    .cast::<$type>()
                    .write_unaligned(back.to_le());
            }
        }};
    }
    match len {
        0 => (),
        1 => two!(u8),
        2..4 => two!(u16),
        4..8 => two!(u32),
        8..16 => two!(u64),
        // SAFETY: `len` is at least 16 here, and the caller guarantees 16 bytes.
        _ => unsafe { destination.cast::<u128>().write_unaligned(number.to_le()) },
    }
}

/// Returns a mask of the first `len` of 16 bytes, or of all if `len` is larger.
#[inline(always)]
pub(crate) fn mask(len: usize) -> u128 {
    u128::MAX.unbounded_shr(128_u32.saturating_sub(8 * len.min(16) as u32))
}

/// Prefetches the cache line of an address, which need not be valid, without waiting for it. Does
/// nothing on targets other than x86-64.
#[inline(always)]
pub(crate) fn prefetch_at<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that a program can see, and may be given any address;
    // every x86-64 CPU has it.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
