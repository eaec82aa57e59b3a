//! Bytes in memory: pieces of a length that the compiler knows, and alignment.

/// A value that begins at a multiple of the largest register.
#[repr(align(64))]
pub(crate) struct Aligned<T>(pub(crate) T);

/// [`U32Lanes::xor_bytes`] for sets without masks: ever smaller pieces of a length
/// that the compiler knows, which it turns into vectors.
#[inline(always)]
pub(crate) fn xor_bytes(text: &mut [u8], block: &[u8; 64]) {
    #[inline(always)]
    fn piece<const N: usize>(text: &mut [u8], block: &[u8], at: &mut usize) {
        if let (Some(text), Some(block)) = (
            text[*at..].first_chunk_mut::<N>(),
            block[*at..].first_chunk(),
        ) {
            // Values and not places, of which it does not know that they differ.
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
