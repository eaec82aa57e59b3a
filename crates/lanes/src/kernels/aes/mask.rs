//! Header masks: samples encrypted with AES (RFC 9001, section 5.4.3).
//!
//! ```text
//! mask       = AES(sample), of which 5 bytes are used
//! first byte ^= mask[0], only the low 4 or 5 bits
//! packet number ^= mask[1..]
//! ```
//!
//! What was done to it: consecutive samples with the same key fill the lanes of vectors,
//! [`MAX_BLOCKS`] samples at a time. With different keys, each sample has a vector of its own.

use super::ctr::encrypt;
use super::key::{AesKey, Block};
use crate::job::Header;
use crate::vector::{AesBlocks, Aligned, MAX_BLOCKS};

/// See [`crate::Backend::aes_mask_headers`].
#[inline(always)]
pub(crate) fn mask_all<B: AesBlocks>(b: B, bytes: &mut [u8], keys: &[&AesKey], headers: &[Header]) {
    // The sample ends after all other bytes that are touched, and the first byte is not after
    // the packet number.
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

/// See [`crate::Backend::aes_masks`]. There must be as many `masks` as samples.
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

/// Calls `then` for each item of the list, with its index, itself and its mask. `sample` gives
/// the index of its key and the offset of its sample. It is not specified which samples are
/// read before `then` is called for earlier items.
///
/// # Panics
///
/// If a key is not there, or if an item is not inside.
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
    let mut first = 0;
    // SAFETY: the caller guarantees the samples of items that are inside.
    unsafe {
        while let Some(group) = list[first..].get(..MAX_BLOCKS) {
            let group = (first, group);
            match B::LANES {
                4 => group_masks::<_, _, 1>(b, bytes, keys, group, &is_inside, &sample, &mut then),
                2 => group_masks::<_, _, 2>(b, bytes, keys, group, &is_inside, &sample, &mut then),
                _ => group_masks::<_, _, 4>(b, bytes, keys, group, &is_inside, &sample, &mut then),
            }
            first += MAX_BLOCKS;
        }
        while let Some(item) = list[first..].get(..1) {
            let item = (first, item);
            group_masks::<_, _, 1>(b, bytes, keys, item, &is_inside, &sample, &mut then);
            first += 1;
        }
    }
}

/// [`for_each_mask`] for a few items. They share vectors if they fill `K` vectors and have the
/// same key.
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
    let mut inside = true;
    let mut differ = 0;
    for item in list {
        inside &= is_inside(item);
        differ |= sample(item).0 ^ sample(&list[0]).0;
    }
    assert!(inside, "a header or its sample lies outside the buffer");
    // SAFETY: all items are inside, as just asserted, so the caller guarantees 16 bytes; bytes
    // need no alignment.
    let block = |item: &S| unsafe { &*bytes.add(sample(item).1 as usize).cast::<Block>() };
    let mut encrypted = Aligned([[0_u64; 2]; MAX_BLOCKS]);
    if list.len() == K * B::LANES && differ == 0 {
        let mut states = [b.zero(); K];
        for (state, list) in states.iter_mut().zip(list.chunks_exact(B::LANES)) {
            let mut blocks = [block(&list[0]); MAX_BLOCKS];
            for (entry, item) in blocks.iter_mut().zip(list) {
                *entry = block(item);
            }
            *state = b.gather(&blocks, 0);
        }
        encrypt(b, &keys[sample(&list[0]).0 as usize].0, &mut states);
        for (state, chunk) in states.iter().zip(encrypted.0.chunks_exact_mut(B::LANES)) {
            // SAFETY: the chunk is as long as a vector.
            unsafe { b.store(*state, chunk.as_mut_ptr().cast()) };
        }
        for (i, (item, block)) in list.iter().zip(&encrypted.0).enumerate() {
            then(first + i, item, u64::from_le(block[0]));
        }
        return;
    }
    // A vector for each sample takes no longer than gathering the round keys of several lanes.
    for (i, item) in list.iter().enumerate() {
        let mut states = [b.splat(block(item))];
        encrypt(b, &keys[sample(item).0 as usize].0, &mut states);
        // SAFETY: the array is at least as long as a vector.
        unsafe { b.store(states[0], encrypted.0.as_mut_ptr().cast()) };
        then(first + i, item, u64::from_le(encrypted.0[0][0]));
    }
}
