//! One packet whose hash is stitched into the rounds of its own next blocks.
//!
//! On narrow vectors, the ChaCha20 rounds leave execution units idle. Poly1305 in general
//! registers runs in these, and the two together take little longer than the rounds alone.

use super::keystream::xor_keystream;
use super::packet::Packet;
use super::strategy::{TO_OPEN_IN_LANES, TO_SEAL_IN_LANES};
use crate::isa::Set;
use crate::job::{BLOCK_LEN, Block, Outcome, split_one_time_key};
use crate::kernels::chacha20::{Keystream, LongKeystream, counter_row};
use crate::kernels::poly1305::Poly1305;

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
    let (whole, _) = text.as_chunks_mut();
    if whole.len() + 1 >= counter + TO_SEAL_IN_LANES {
        let row = counter_row(counter as u32, packet.nonce);
        let (key_and_row, done) = ((packet.key, &row), (counter - 1, 0));
        let (sealed, so_far) = set.seal_stitched(key_and_row, whole, done, poly1305);
        (counter, hashed) = (1 + sealed, so_far);
    }
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

/// A packet to open whose tag has been started.
pub(super) struct Opening<'a, 'p> {
    pub(super) packet: &'a Packet<'p>,
    pub(super) bytes: &'a mut [u8],
    pub(super) poly1305: &'a mut Poly1305,
    /// The keystream of the text's front.
    pub(super) precomputed: &'a [Block],
    /// Its first `computed` blocks are those from block `from` on. More are computed here.
    pub(super) keystream: &'a mut Keystream,
    pub(super) from: usize,
    pub(super) computed: usize,
}

impl Opening<'_, '_> {
    /// Decrypts the text if the tag is right. While the text is hashed, more keystream is computed;
    /// of a long text, the blocks that lanes compute.
    #[inline]
    pub(super) fn run(self, set: Set) -> Outcome {
        if self.packet.blocks() - (self.from + self.computed) < TO_OPEN_IN_LANES {
            self.run_beside(set, None)
        } else {
            self.run_long(set)
        }
    }

    /// [`Opening::run`] for packets whose keystream takes pages of stack, which others should not
    /// pay for.
    #[inline(never)]
    fn run_long(self, set: Set) -> Outcome {
        self.run_beside(set, Some(&mut LongKeystream::new()))
    }

    /// [`Opening::run`], with room for the blocks that lanes compute, if they compute any.
    #[inline(never)]
    fn run_beside(self, set: Set, mut long: Option<&mut LongKeystream>) -> Outcome {
        let Self {
            packet,
            bytes,
            poly1305,
            precomputed,
            keystream,
            from,
            mut computed,
        } = self;
        let text = &bytes[packet.text.clone()];
        let (first, mut end) = (from + computed, packet.blocks());
        let mut in_lanes = 0;
        let mut hashed = 0;
        if let Some(long) = &mut long {
            let lanes = set.narrow_lanes();
            if end - first >= LongKeystream::LEN + lanes {
                // The rest of the text then fills whole vectors.
                let last = first + LongKeystream::LEN;
                end = last - last.wrapping_sub(end) % set.block_lanes();
            }
            in_lanes = (end - first) / lanes * lanes;
            let (unhashed, _) = text.as_chunks();
            let row = counter_row(first as u32, packet.nonce);
            let key_and_row = (packet.key, &row);
            hashed = set.stitched_keystream(key_and_row, in_lanes, long, poly1305, unhashed);
        }
        while from + in_lanes + computed < end {
            let (unhashed, _) = text[hashed..].as_chunks();
            let counter = from + in_lanes + computed;
            let count = set.row_blocks().min(end - counter);
            let row = counter_row(counter as u32, packet.nonce);
            let key_and_row = (packet.key, &row);
            hashed +=
                set.stitched_rows(key_and_row, count, keystream, computed, poly1305, unhashed);
            computed += count;
        }
        let tag = packet.finish_tag(set, bytes, poly1305, hashed);
        let outcome = packet.verdict(bytes, &tag);
        if outcome == Outcome::Authentic {
            let text = &mut bytes[packet.text.clone()];
            set.xor_blocks(text, precomputed);
            // Block 0 is the one-time key and not part of the text's keystream.
            let (front, back) = keystream.blocks()[..computed].split_at(first - from);
            let front = &front[usize::from(from == 0)..];
            let mut at = BLOCK_LEN * from.saturating_sub(1);
            let middle = long
                .as_ref()
                .map_or(&[][..], |long| &long.blocks()[..in_lanes]);
            for blocks in [front, middle, back] {
                if at < text.len() {
                    set.xor_blocks(&mut text[at..], blocks);
                }
                at += BLOCK_LEN * blocks.len();
            }
            let done = BLOCK_LEN * (end - 1);
            if done < text.len() {
                xor_keystream(set, packet.key, packet.nonce, end as u32, &mut text[done..]);
            }
        }
        outcome
    }
}
