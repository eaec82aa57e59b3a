//! QUIC's header protection with ChaCha20 (RFC 9001, section 5.4.4), for lists of packets, and for
//! a single packet while it is sealed.

use crate::aead::{self, Tuning};
use crate::isa::Set;
use crate::job::{Header, Job, Key};
use crate::kernels::chacha20::{Keystream, Samples, mask, mask_in_scalar, row_of_sample};
use crate::vector::MAX_LANES;

/// Up to this many masks are computed faster one by one than in lanes.
const MAX_ONE_BY_ONE: usize = 2;

/// Computes the header masks of a list (RFC 9001, section 5.4.4). `sample` returns the key index
/// and the sample offset of an item. A sample is the counter and the nonce of a keystream block;
/// `masks[i]` becomes the first 8 bytes of that block as a little-endian number.
///
/// # Panics
///
/// If a sample lies outside `bytes` or its key index is outside `keys`, or if `masks` is shorter
/// than the list.
#[inline]
pub(crate) fn chacha20_masks<S>(
    set: Set,
    bytes: &[u8],
    keys: &[Key],
    list: &[S],
    sample: impl Fn(&S) -> (u32, u32),
    masks: &mut [u64],
) {
    let masks = &mut masks[..list.len()];
    let sample = |item: &S| {
        let (key, offset) = sample(item);
        let sample = bytes[offset as usize..].first_chunk::<16>();
        (&keys[key as usize], sample.expect("a whole sample"))
    };
    if masks.len() <= MAX_ONE_BY_ONE {
        for (its_mask, (key, sample)) in masks.iter_mut().zip(list.iter().map(sample)) {
            let row = row_of_sample(sample);
            *its_mask = if Tuning::of(set).scalar_mask {
                mask_in_scalar(key, &row)
            } else {
                let mut blocks = Keystream::new();
                set.rows(key, &row, 1, &mut blocks);
                mask(&blocks)
            };
        }
        return;
    }
    let lanes = set.block_lanes();
    for (masks, list) in masks.chunks_mut(lanes).zip(list.chunks(lanes)) {
        let lanes = Samples::new(list.iter().map(&sample));
        let mut words = [[0; MAX_LANES]; 2];
        set.masks(&lanes, masks.len(), &mut words);
        for (mask, (&first, &second)) in masks.iter_mut().zip(words[0].iter().zip(&words[1])) {
            *mask = u64::from(first) | u64::from(second) << 32;
        }
    }
}

/// Applies header protection to QUIC packets, or removes it, with the masks of
/// [`chacha20_masks`].
///
/// # Panics
///
/// If a header or its sample lies outside `bytes`, or if its key index is outside `keys`.
pub(crate) fn chacha20_mask_headers(set: Set, bytes: &mut [u8], keys: &[Key], headers: &[Header]) {
    let mut chunk_masks = [0; MAX_LANES];
    for headers in headers.chunks(set.block_lanes()) {
        chacha20_masks(set, bytes, keys, headers, Header::sample, &mut chunk_masks);
        for (header, mask) in headers.iter().zip(chunk_masks) {
            header.mask(bytes, mask);
        }
    }
}

/// Seals a QUIC packet with the first key, and protects its header with the second one. The mask is
/// computed while the ciphertext is hashed, if the sample lies in the text. See
/// [`crate::Kernels::seal_with_header`].
pub(crate) fn seal_with_header(
    set: Set,
    bytes: &mut [u8],
    [key, header_key]: [&Key; 2],
    job: &Job,
    header: &Header,
) {
    let header = &Header { key: 0, ..*header };
    let (_, sample) = header.sample();
    let header_key_and_sample = (header_key, sample as usize);
    if let Some(mask) = aead::seal_and_mask(set, bytes, (key, job), header_key_and_sample) {
        return header.mask(bytes, mask);
    }
    aead::seal_single(set, bytes, key, job);
    let keys = core::slice::from_ref(header_key);
    chacha20_mask_headers(set, bytes, keys, core::slice::from_ref(header));
}
