//! Header masks: samples encrypted with AES (RFC 9001, section 5.4.3).

use super::ctr::encrypt;
use super::key::{AesKey, Block};
use crate::job::Header;
use crate::vector::{AesBlocks, Aligned, MAX_BLOCKS};

/// See [`crate::Backend::aes_mask_headers`].
#[inline(always)]
pub(crate) fn mask_all<B: AesBlocks>(b: B, bytes: &mut [u8], keys: &[&AesKey], headers: &[Header]) {
    // The sample is the last of what is touched, and the first byte before it.
    let sample_end = 4 + size_of::<Block>() as u64;
    let len = bytes.len() as u64;
    let is_inside = |header: &Header| {
        header.first <= header.number && u64::from(header.number) + sample_end <= len
    };
    let place = bytes.as_mut_ptr();
    // SAFETY: header and sample are looked after.
    let mask_in = |_, header: &Header, mask| unsafe { header.mask_in(place, mask) };
    // SAFETY: as above.
    unsafe { each_mask(b, place, keys, headers, is_inside, Header::sample, mask_in) };
}

/// See [`crate::Backend::aes_masks`]; `masks` are as many as the samples.
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
    let write = |place: usize, _: &_, mask| masks[place] = mask;
    // SAFETY: the samples are looked after.
    unsafe {
        each_mask(
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

/// Calls `then` with the place of each in the list, itself, and its mask; `sample` gives
/// the index of its key and the offset of its sample. Neighbours' samples are read before.
///
/// # Panics
///
/// If a key is not there, or a sample not inside.
///
/// # Safety
///
/// A sample must be readable if it `is_inside`.
#[inline(always)]
unsafe fn each_mask<B: AesBlocks, S>(
    b: B,
    bytes: *const u8,
    keys: &[&AesKey],
    list: &[S],
    is_inside: impl Fn(&S) -> bool,
    sample: impl Fn(&S) -> (u32, u32),
    mut then: impl FnMut(usize, &S, u64),
) {
    let mut place = 0;
    // SAFETY: the caller vouches for the samples.
    unsafe {
        while let Some(some) = list[place..].get(..MAX_BLOCKS) {
            let some = (place, some);
            match B::LANES {
                4 => some_masks::<_, _, 1>(b, bytes, keys, some, &is_inside, &sample, &mut then),
                2 => some_masks::<_, _, 2>(b, bytes, keys, some, &is_inside, &sample, &mut then),
                _ => some_masks::<_, _, 4>(b, bytes, keys, some, &is_inside, &sample, &mut then),
            }
            place += MAX_BLOCKS;
        }
        while let Some(one) = list[place..].get(..1) {
            let one = (place, one);
            some_masks::<_, _, 1>(b, bytes, keys, one, &is_inside, &sample, &mut then);
            place += 1;
        }
    }
}

/// The same for some: as many as `K` vectors have lanes are beside each other where they
/// have one key.
///
/// # Safety
///
/// As [`each_mask`].
#[inline(always)]
unsafe fn some_masks<B: AesBlocks, S, const K: usize>(
    b: B,
    bytes: *const u8,
    keys: &[&AesKey],
    (place, list): (usize, &[S]),
    is_inside: impl Fn(&S) -> bool,
    sample: impl Fn(&S) -> (u32, u32),
    mut then: impl FnMut(usize, &S, u64),
) {
    const { assert!(B::LANES <= MAX_BLOCKS) };
    let mut inside = true;
    let mut differ = 0;
    for one in list {
        inside &= is_inside(one);
        differ |= sample(one).0 ^ sample(&list[0]).0;
    }
    assert!(inside, "a header or its sample outside the buffer");
    // SAFETY: it is 16 bytes, which need no alignment, and the caller vouches for them.
    let block = |one: &S| unsafe { &*bytes.add(sample(one).1 as usize).cast::<Block>() };
    let mut encrypted = Aligned([[0_u64; 2]; MAX_BLOCKS]);
    if list.len() == K * B::LANES && differ == 0 {
        let mut states = [b.zero(); K];
        for (state, list) in states.iter_mut().zip(list.chunks_exact(B::LANES)) {
            let mut blocks = [block(&list[0]); MAX_BLOCKS];
            for (place, one) in blocks.iter_mut().zip(list) {
                *place = block(one);
            }
            *state = b.gather(&blocks, 0);
        }
        encrypt(b, &keys[sample(&list[0]).0 as usize].0, &mut states);
        for (state, place) in states.iter().zip(encrypted.0.chunks_exact_mut(B::LANES)) {
            // SAFETY: the array has room for a vector.
            unsafe { b.store(*state, place.as_mut_ptr().cast()) };
        }
        for (i, (one, block)) in list.iter().zip(&encrypted.0).enumerate() {
            then(place + i, one, u64::from_le(block[0]));
        }
        return;
    }
    // A vector for each takes no longer than to gather the lanes' round keys.
    for (i, one) in list.iter().enumerate() {
        let mut states = [b.splat(block(one))];
        encrypt(b, &keys[sample(one).0 as usize].0, &mut states);
        // SAFETY: as above.
        unsafe { b.store(states[0], encrypted.0.as_mut_ptr().cast()) };
        then(place + i, one, u64::from_le(encrypted.0[0][0]));
    }
}
