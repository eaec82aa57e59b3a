//! Header masks: samples encrypted with AES (RFC 9001, section 5.4.3).
//!
//! ```text
//! mask       = AES(sample), of which 5 bytes are used
//! first byte ^= mask[0], only the low 4 or 5 bits
//! packet number ^= mask[1..]
//! ```
//!
//! Optimisation: consecutive samples with the same key fill the lanes of vectors, eight or four
//! samples at a time. Otherwise each sample has a vector of its own.

use super::ctr::encrypt;
use super::key::{AesKey, Block};
use crate::job::Header;
use crate::vector::{AesBlocks, Aligned, MAX_BLOCKS};

/// See [`crate::Kernels::aes_mask_headers`].
#[inline(always)]
pub(crate) fn mask_all<B: AesBlocks>(b: B, bytes: &mut [u8], keys: &[&AesKey], headers: &[Header]) {
    // The sample ends after all other bytes that are accessed, and the first byte is not after the
    // packet number.
    let sample_end = 4 + size_of::<Block>() as u64;
    let len = bytes.len() as u64;
    let is_inside = |header: &Header| {
        header.first <= header.number && u64::from(header.number) + sample_end <= len
    };
    let buffer = bytes.as_mut_ptr();
    // SAFETY: `is_inside` has checked that the first byte and the packet number lie in the
    // buffer.
    let mask_in = |_, header: &Header, mask| unsafe { header.mask_in(buffer, mask) };
    // SAFETY: `is_inside` checks that the 16 bytes of the sample lie in the buffer.
    unsafe { for_each_mask(b, buffer, keys, headers, is_inside, Header::sample, mask_in) };
}

/// See [`crate::Kernels::aes_masks`]. `masks` must be as long as the list of samples.
#[inline(always)]
pub(crate) fn all_masks<B: AesBlocks>(
    b: B,
    bytes: &[u8],
    keys: &[&AesKey],
    samples: &[(u32, u32)],
    masks: &mut [u64],
) {
    let len = bytes.len() as u64;
    let is_inside = |sample: &(u32, u32)| u64::from(sample.1) + size_of::<Block>() as u64 <= len;
    let write = |index: usize, _: &_, mask| masks[index] = mask;
    // SAFETY: `is_inside` checks that the 16 bytes of the sample lie in the buffer.
    unsafe {
        for_each_mask(
            b,
            bytes.as_ptr(),
            keys,
            samples,
            is_inside,
            |sample| *sample,
            write,
        )
    };
}

/// Calls `then` for each item of the list, with its index, the item and its mask. `sample` returns
/// the item's key index and sample offset. It is unspecified which samples are read before `then`
/// is called for earlier items.
///
/// # Panics
///
/// If a key index is outside the list, or if an item is not inside.
///
/// # Safety
///
/// The 16 bytes of a sample must be readable if its item `is_inside`.
#[inline(always)]
unsafe fn for_each_mask<B: AesBlocks, S>(
    b: B,
    bytes: *const u8,
    keys: &[&AesKey],
    list: &[S],
    is_inside: impl Fn(&S) -> bool,
    sample: impl Fn(&S) -> (u32, u32),
    mut then: impl FnMut(usize, &S, u64),
) {
    const EIGHT: usize = 2 * MAX_BLOCKS;
    let mut first = 0;
    while first < list.len() {
        let rest = &list[first..];
        let key = sample(&rest[0]).0;
        let run = rest.iter().take(EIGHT);
        let run = run.take_while(|item| sample(item).0 == key).count();
        let count = match run {
            EIGHT => EIGHT,
            MAX_BLOCKS.. => MAX_BLOCKS,
            _ => 1,
        };
        macro_rules! masks {
            ($vectors:literal) => {{
                let (group, sample, then) = ((first, &rest[..count]), &sample, &mut then);
                // SAFETY: the caller guarantees the samples of items that are inside.
                unsafe {
                    group_masks::<_, _, $vectors>(b, bytes, keys, group, &is_inside, sample, then)
                }
            }};
        }
        match (count, B::LANES) {
            (EIGHT, 4) => masks!(2),
            (EIGHT, 2) => masks!(4),
            (EIGHT, _) => masks!(8),
            (MAX_BLOCKS, 4) => masks!(1),
            (MAX_BLOCKS, 2) => masks!(2),
            (MAX_BLOCKS, _) => masks!(4),
            _ => masks!(1),
        }
        first += count;
    }
}

/// [`for_each_mask`] for a few items with the same key, which fill `K` vectors, or for one.
///
/// # Safety
///
/// As for [`for_each_mask`].
#[inline(always)]
unsafe fn group_masks<B: AesBlocks, S, const K: usize>(
    b: B,
    bytes: *const u8,
    keys: &[&AesKey],
    (first, list): (usize, &[S]),
    is_inside: impl Fn(&S) -> bool,
    sample: impl Fn(&S) -> (u32, u32),
    mut then: impl FnMut(usize, &S, u64),
) {
    const { assert!(B::LANES <= MAX_BLOCKS) };
    assert!(list.len() == 1 || list.len() == K * B::LANES);
    let mut inside = true;
    for item in list {
        inside &= is_inside(item);
    }
    assert!(inside, "a header or its sample lies outside the buffer");
    // SAFETY: all items are inside, as just asserted, so the caller guarantees 16 bytes; bytes
    // need no alignment.
    let block = |item: &S| unsafe { &*bytes.add(sample(item).1 as usize).cast::<Block>() };
    let mut states = [b.splat(block(&list[0])); K];
    if list.len() > 1 {
        for (state, list) in states.iter_mut().zip(list.chunks_exact(B::LANES)) {
            let mut blocks = [block(&list[0]); MAX_BLOCKS];
            for (entry, item) in blocks.iter_mut().zip(list) {
                *entry = block(item);
            }
            *state = b.gather(&blocks, 0);
        }
    }
    encrypt(b, &keys[sample(&list[0]).0 as usize].0, &mut states);
    let mut encrypted = Aligned([[0_u64; 2]; 2 * MAX_BLOCKS]);
    for (state, chunk) in states.iter().zip(encrypted.0.chunks_exact_mut(B::LANES)) {
        // SAFETY: the chunk is as long as a vector.
        unsafe { b.store(*state, chunk.as_mut_ptr().cast()) };
    }
    for (i, (item, block)) in list.iter().zip(&encrypted.0).enumerate() {
        then(first + i, item, u64::from_le(block[0]));
    }
}
