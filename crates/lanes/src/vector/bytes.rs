//! Bytes in memory: alignment, and XOR without masks for bytes.

/// A value aligned to 64 bytes, the size of the largest register and of a cache line.
#[repr(align(64))]
pub(crate) struct Aligned<T>(pub(crate) T);

/// [`U32Lanes::xor_bytes`](super::U32Lanes::xor_bytes) for instruction sets without masks for
/// bytes. It works on ever smaller pieces of constant length, which the compiler turns into
/// vectors.
#[inline(always)]
pub(crate) fn xor_bytes(text: &mut [u8], block: &[u8; 64]) {
    #[inline(always)]
    fn piece<const N: usize>(text: &mut [u8], block: &[u8], at: &mut usize) {
        if let (Some(text), Some(block)) = (
            text[*at..].first_chunk_mut::<N>(),
            block[*at..].first_chunk(),
        ) {
            // Copies to values first: the compiler does not know that the references do not
            // overlap.
            let (mut bytes, masks): (_, [u8; N]) = (*text, *block);
            for (byte, mask) in bytes.iter_mut().zip(masks) {
                *byte ^= mask;
            }
            *text = bytes;
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
