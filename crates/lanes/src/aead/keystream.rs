//! The keystream of one packet.

use super::strategy::remainder;
use super::tuning::Tuning;
use crate::isa::Set;
use crate::job::{BLOCK_LEN, Block, Job, Key, Nonce};
use crate::kernels::chacha20::{Blocks, Keystream, counter_row};

/// Computes keystream blocks of future packets: `blocks[i]` has the counter and the nonce of
/// `counters_and_nonces[i]`.
///
/// # Panics
///
/// If `blocks` and `counters_and_nonces` differ in length.
pub(crate) fn precompute_keystream(
    set: Set,
    key: &Key,
    counters_and_nonces: &[(u32, Nonce)],
    blocks: &mut [Block],
) {
    assert_eq!(
        counters_and_nonces.len(),
        blocks.len(),
        "one block for each nonce"
    );
    let lanes = set.block_lanes();
    for (inputs, blocks) in counters_and_nonces
        .chunks(lanes)
        .zip(blocks.chunks_mut(lanes))
    {
        set.blocks_of_key(key, inputs, blocks);
    }
}

/// See [`crate::Kernels::max_precomputed_blocks`].
#[inline]
pub(crate) fn max_precomputed_blocks(set: Set) -> usize {
    // A larger packet is hashed during its own rounds. With precomputed keystream it would have
    // fewer rounds for that, and gain nothing.
    match set.is_stitched() {
        true => set.row_blocks(),
        false => usize::MAX,
    }
}

/// XORs the keystream of (`key`, `nonce`), starting at block `counter`, into `text` (RFC 8439,
/// section 2.4). Few blocks are computed in rows, which is faster than in lanes.
pub(crate) fn xor_keystream(set: Set, key: &Key, nonce: &Nonce, counter: u32, text: &mut [u8]) {
    let count = text.len().div_ceil(BLOCK_LEN);
    if !(1..=set.row_blocks()).contains(&count) {
        return set.xor_keystream(key, nonce, counter, None, text);
    }
    let mut keystream = Keystream::new();
    set.rows(key, &counter_row(counter, nonce), count, &mut keystream);
    set.xor_blocks(text, &keystream.blocks()[..count]);
}

/// XORs the keystream from block 1 on into a text: first `blocks`, then the missing blocks.
#[inline]
pub(super) fn xor_text(set: Set, key: &Key, nonce: &Nonce, text: &mut [u8], blocks: &[Block]) {
    set.xor_blocks(text, blocks);
    if let Some(rest) = text.get_mut(BLOCK_LEN * blocks.len()..)
        && !rest.is_empty()
    {
        xor_keystream(set, key, nonce, 1 + blocks.len() as u32, rest);
    }
}

/// Whether `blocks`, from block 1 on, cover the whole text of a job.
#[inline]
pub(super) fn is_whole(job: &Job, blocks: &[Block]) -> bool {
    job.text_len as usize <= BLOCK_LEN * blocks.len()
}

/// Calls `work` with the first blocks of a packet's keystream, from block 0 on. One kernel call
/// computes them. Their number is chosen so that the rest of the text fills whole vectors.
#[inline]
pub(super) fn with_first_blocks<T>(
    set: Set,
    key: &Key,
    nonce: &Nonce,
    text_len: usize,
    work: impl FnOnce(&[Block]) -> T,
) -> T {
    // Block 0, and as many blocks of the text as would be left over from whole vectors.
    let text_blocks = text_len.div_ceil(BLOCK_LEN);
    let mut count = 1 + remainder(text_blocks, set.block_lanes());
    if count > set.row_blocks() {
        let half = set.block_lanes() / 2;
        let is_whole_packet = count == 1 + text_blocks;
        if is_whole_packet && count > half && count <= half + Tuning::of(set).rows_after_half {
            count = half;
        }
        let mut blocks = Blocks::new();
        blocks.set(0, key, nonce, 0..count as u32);
        set.blocks(&mut blocks, count);
        work(&blocks.keystream()[..count])
    } else {
        let mut keystream = Keystream::new();
        set.rows(key, &counter_row(0, nonce), count, &mut keystream);
        work(&keystream.blocks()[..count])
    }
}
