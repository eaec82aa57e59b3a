//! One packet whose hash is stitched into the rounds of its own next blocks.
//!
//! On narrow vectors, the ChaCha20 rounds leave execution units idle. Poly1305 in general
//! registers runs in these, and the two together take little longer than the rounds alone.

use super::keystream::xor_keystream;
use super::packet::Packet;
use crate::isa::Set;
use crate::job::{BLOCK_LEN, Block, Outcome, split_one_time_key};
use crate::kernels::chacha20::{Keystream, counter_row};
use crate::kernels::poly1305::Poly1305;
use crate::vector::MAX_LANES;

/// Encrypts the text of a packet whose first keystream blocks are in `keystream`: as many as
/// [`Set::rows`] computes, or all of them. Starts its tag, and returns how many bytes of the
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

/// Encrypts the text of a packet from block `counter` on, and hashes the ciphertext before it
/// at the same time. Returns how many bytes of ciphertext are hashed.
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
        let (unhashed, _) = sealed[hashed..].as_chunks();
        let count = set.row_blocks().min(packet.blocks() - counter);
        let row = counter_row(counter as u32, packet.nonce);
        let key_and_row = (packet.key, &row);
        hashed += set.stitched_rows(key_and_row, count, keystream, 0, poly1305, unhashed);
        set.xor_blocks(rest, &keystream.blocks()[..count]);
        counter += count;
    }
    hashed
}

/// Decrypts the text of a packet if its tag is right; the tag has been started. `precomputed`
/// holds the keystream of the text's front. `keystream` holds the first `computed` blocks from
/// block `from` on; while the text is hashed, more blocks are computed.
#[inline(never)]
pub(super) fn open(
    packet: &Packet<'_>,
    set: Set,
    bytes: &mut [u8],
    poly1305: &mut Poly1305,
    precomputed: &[Block],
    keystream: &mut Keystream,
    (from, mut computed): (usize, usize),
) -> Outcome {
    let text = &bytes[packet.text.clone()];
    let per_call = set.row_blocks();
    let max = MAX_LANES / per_call * per_call;
    let mut end = packet.blocks();
    if end - from > max + per_call {
        // The rest of the text then fills whole vectors.
        end = from + computed + (end - from - computed) % set.block_lanes();
    }
    end = end.min(from + max);
    let mut hashed = 0;
    while from + computed < end {
        let (unhashed, _) = text[hashed..].as_chunks();
        let count = per_call.min(end - from - computed);
        let row = counter_row((from + computed) as u32, packet.nonce);
        let key_and_row = (packet.key, &row);
        hashed += set.stitched_rows(key_and_row, count, keystream, computed, poly1305, unhashed);
        computed += count;
    }
    let tag = packet.finish_tag(set, bytes, poly1305, hashed);
    let outcome = packet.verdict(bytes, &tag);
    if outcome == Outcome::Authentic {
        let text = &mut bytes[packet.text.clone()];
        set.xor_blocks(text, precomputed);
        // Block 0 is the one-time key and not part of the text's keystream.
        let blocks = &keystream.blocks()[usize::from(from == 0)..computed];
        set.xor_blocks(&mut text[BLOCK_LEN * from.saturating_sub(1)..], blocks);
        let done = BLOCK_LEN * (end - 1);
        if done < text.len() {
            xor_keystream(set, packet.key, packet.nonce, end as u32, &mut text[done..]);
        }
    }
    outcome
}
