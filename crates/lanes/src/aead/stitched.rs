//! One packet whose hash is stitched into the rounds of its own next blocks.
//!
//! On narrow vectors, the ChaCha20 rounds leave execution units idle. Poly1305 in general
//! registers runs in these, and the two together take little longer than the rounds alone.

use super::keystream::xor_keystream;
use super::packet::Packet;
use super::strategy::{SEAL_IN_LANES_THRESHOLD, opened_in_lanes, remainder};
use crate::isa::Set;
use crate::job::{BLOCK_LEN, Block, Outcome, TAG_LEN};
use crate::kernels::chacha20::{Keystream, counter_row};
use crate::kernels::poly1305::{Poly1305, Unhashed};
use core::ops::Range;

/// Encrypts `blocks` of a text, which must begin where its encryption ended, and hashes the
/// ciphertext before them at the same time; the first kernel call hashes the rest of `other`
/// instead. Returns how many bytes of the ciphertext are hashed.
#[inline(never)]
pub(super) fn encrypt_rest(
    packet: &Packet<'_>,
    set: Set,
    text: &mut [u8],
    poly1305: &mut Poly1305,
    keystream: &mut Keystream,
    blocks: Range<usize>,
    mut other: Option<&mut Unhashed<'_>>,
) -> usize {
    let (mut counter, mut hashed) = (blocks.start, 0);
    let (whole, _) = text.as_chunks_mut();
    if whole.len() + 1 >= counter + SEAL_IN_LANES_THRESHOLD {
        let row = counter_row(counter as u32, packet.nonce);
        let (key_and_row, done) = ((packet.key, &row), (counter - 1, 0));
        let other = other.take();
        let (sealed, so_far) = set.seal_stitched(key_and_row, whole, done, poly1305, other);
        (counter, hashed) = (1 + sealed, so_far);
    }
    while counter < blocks.end {
        let (sealed, rest) = text.split_at_mut((counter - 1) * BLOCK_LEN);
        let (unhashed, _) = sealed[hashed..].as_chunks();
        let (hash, message) = match &mut other {
            Some(other) => (&mut *other.poly1305, other.blocks),
            None => (&mut *poly1305, unhashed),
        };
        let count = set.row_blocks().min(blocks.end - counter);
        let row = counter_row(counter as u32, packet.nonce);
        let key_and_row = (packet.key, &row);
        let done = set.stitched_rows(key_and_row, count, keystream, 0, hash, message);
        match other.take() {
            Some(other) => other.blocks = &other.blocks[done / TAG_LEN..],
            None => hashed += done,
        }
        set.xor_blocks(rest, &keystream.blocks()[..count]);
        counter += count;
    }
    hashed
}

/// Returns how many blocks of a packet to compute first when opening it, block 0 included: as many
/// as the rows hold, or fewer if more blocks than that would be left after those that lanes
/// decrypt. Not [`Set::max_in_rows`], which is slower here.
#[inline]
pub(super) fn first_blocks(packet: &Packet<'_>, set: Set) -> usize {
    let (rows, lanes) = (set.row_blocks(), set.narrow_lanes());
    let (whole, end) = (packet.text.len() / BLOCK_LEN, packet.blocks());
    let left = remainder(1 + whole - rows, lanes) + (end - 1 - whole);
    if left > rows { 2 * rows - lanes } else { rows }
}

/// Decrypts the text of a packet whose tag has been started, if the tag is correct; otherwise the
/// text stays encrypted. `front` and `back` are the keystream of its front and its back, and do not
/// cover all of it.
///
/// The keystream of a short text is kept until the verdict. That of a long one would take as much
/// memory as the text: all of it except the end is decrypted while it is hashed, and encrypted
/// again if the tag is wrong.
#[inline(never)]
pub(super) fn decrypt(
    packet: &Packet<'_>,
    set: Set,
    bytes: &mut [u8],
    poly1305: &mut Poly1305,
    [front, back]: [&[Block]; 2],
) -> Outcome {
    let text = &mut bytes[packet.text.clone()];
    let (front_len, whole) = (BLOCK_LEN * front.len(), text.len() / BLOCK_LEN);
    let end = packet.blocks() - back.len();
    let missing = end - (1 + front.len());
    let in_lanes = opened_in_lanes(set, whole, front.len(), missing);
    // First the keystream of the remaining blocks, while the front is hashed, and part of what
    // follows.
    let mut keystream = Keystream::new();
    let (first, mut computed, mut hashed) = (1 + front.len() + in_lanes, 0, 0);
    while first + computed < end {
        let (unhashed, _) = text[hashed..].as_chunks();
        let count = set.row_blocks().min(end - (first + computed));
        let row = counter_row((first + computed) as u32, packet.nonce);
        let key_and_row = (packet.key, &row);
        hashed += set.stitched_rows(
            key_and_row,
            count,
            &mut keystream,
            computed,
            poly1305,
            unhashed,
        );
        computed += count;
    }
    let mut early = 0;
    if in_lanes > 0 {
        if hashed < front_len {
            poly1305.update_blocks(text[hashed..front_len].as_chunks().0);
            hashed = front_len;
        }
        set.xor_blocks(&mut text[..front_len], front);
        let row = counter_row(1 + front.len() as u32, packet.nonce);
        let ((whole, _), opened) = (text.as_chunks_mut(), front.len()..front.len() + in_lanes);
        hashed = set.open_stitched((packet.key, &row), whole, opened, hashed, poly1305);
        early = front_len + BLOCK_LEN * in_lanes;
    }
    let tag = packet.finish_tag(set, bytes, poly1305, hashed);
    let outcome = packet.verdict(bytes, &tag);
    let (opened, rest) = bytes[packet.text.clone()].split_at_mut(early);
    if outcome != Outcome::Authentic {
        xor_keystream(set, packet.key, packet.nonce, 1, opened);
        return outcome;
    }
    let late = &keystream.blocks()[..computed];
    if opened.is_empty() {
        set.xor_blocks(rest, front);
        set.xor_blocks(&mut rest[front_len..], late);
    } else {
        set.xor_blocks(rest, late);
    }
    set.xor_blocks(&mut bytes[packet.last_blocks(back.len())], back);
    outcome
}
