//! One packet whose hash is stitched into the rounds of its own next blocks.
//!
//! Where vectors are narrow, Poly1305 in general registers fits beside the rounds of as many
//! blocks as the rows have, and costs little more than these alone.

use super::keystream::xor_keystream;
use super::packet::Packet;
use crate::isa::Set;
use crate::job::{BLOCK_LEN, Block, Outcome, split_one_time_key};
use crate::kernels::chacha20::{Keystream, counter_row};
use crate::kernels::poly1305::Poly1305;
use crate::vector::MAX_LANES;

/// Encrypts the text of a packet whose first blocks are in `keystream`: as many as
/// [`Set::rows`] computes, or all. Starts its tag, and returns how many bytes of the
/// ciphertext are hashed.
#[inline(always)]
pub(super) fn encrypt(
    packet: &Packet<'_>,
    set: Set,
    bytes: &mut [u8],
    poly1305: &mut Poly1305,
    keystream: &mut Keystream,
) -> usize {
    let count = set.row_blocks().min(packet.blocks());
    let (one_time_key, blocks) = split_one_time_key(&keystream.blocks()[..count]);
    packet.start_tag(set, bytes, poly1305, one_time_key);
    set.xor_blocks(&mut bytes[packet.text.clone()], blocks);
    encrypt_rest(packet, set, bytes, poly1305, keystream, count)
}

/// Encrypts the text of a packet from block `counter` on, and meanwhile hashes the ciphertext
/// before that. Returns how many bytes of it are hashed.
#[inline(never)]
pub(super) fn encrypt_rest(
    packet: &Packet<'_>,
    set: Set,
    bytes: &mut [u8],
    poly1305: &mut Poly1305,
    keystream: &mut Keystream,
    mut counter: usize,
) -> usize {
    let text = &mut bytes[packet.text.clone()];
    let mut hashed = 0;
    while counter < packet.blocks() {
        let (sealed, rest) = text.split_at_mut((counter - 1) * BLOCK_LEN);
        let (waiting, _) = sealed[hashed..].as_chunks();
        let count = set.row_blocks().min(packet.blocks() - counter);
        let row = counter_row(counter as u32, packet.nonce);
        let of = (packet.key, &row);
        hashed += set.stitched_rows(of, count, keystream, 0, poly1305, waiting);
        set.xor_blocks(rest, &keystream.blocks()[..count]);
        counter += count;
    }
    hashed
}

/// Decrypts the text of a packet if its tag, which is started, is right. `precomputed` goes
/// into its front. `keystream` has the first `made` blocks from block `from` on; more of them
/// are computed while the text is hashed.
#[inline(never)]
pub(super) fn open(
    packet: &Packet<'_>,
    set: Set,
    bytes: &mut [u8],
    poly1305: &mut Poly1305,
    precomputed: &[Block],
    keystream: &mut Keystream,
    (from, mut made): (usize, usize),
) -> Outcome {
    let text = &bytes[packet.text.clone()];
    let per_call = set.row_blocks();
    let max = MAX_LANES / per_call * per_call;
    let mut end = packet.blocks();
    if end - from > max + per_call {
        // What is left behind them fills whole vectors.
        end = from + made + (end - from - made) % set.block_lanes();
    }
    end = end.min(from + max);
    let mut hashed = 0;
    while from + made < end {
        let (waiting, _) = text[hashed..].as_chunks();
        let count = per_call.min(end - from - made);
        let row = counter_row((from + made) as u32, packet.nonce);
        let of = (packet.key, &row);
        hashed += set.stitched_rows(of, count, keystream, made, poly1305, waiting);
        made += count;
    }
    let tag = packet.finish_tag(set, bytes, poly1305, hashed);
    let outcome = packet.verdict(bytes, &tag);
    if outcome == Outcome::Authentic {
        let text = &mut bytes[packet.text.clone()];
        set.xor_blocks(text, precomputed);
        // Block 0 does not go into the text.
        let blocks = &keystream.blocks()[usize::from(from == 0)..made];
        set.xor_blocks(&mut text[BLOCK_LEN * from.saturating_sub(1)..], blocks);
        let done = BLOCK_LEN * (end - 1);
        if done < text.len() {
            xor_keystream(set, packet.key, packet.nonce, end as u32, &mut text[done..]);
        }
    }
    outcome
}
