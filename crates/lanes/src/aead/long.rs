//! Long packets, one after the other: the text in lanes, the hash interleaved with the rounds.
//!
//! One call in lanes computes the one-time keys of several packets, and the few blocks of their
//! texts that would leave lanes empty in a call of their own.
//!
//! When sealing, ciphertext can be hashed only after it exists. The end of each packet is therefore
//! hashed during the first rounds of the next one. Two hash states alternate. They are not moved,
//! because moving could leave a copy of a one-time key trailing.

use super::packet::Packet;
use super::stitched;
use super::strategy::trailing_blocks;
use crate::isa::Set;
use crate::job::{Block, Job, Key, Outcome, TAG_LEN, split_one_time_key};
use crate::kernels::chacha20::{Blocks, Keystream};
use crate::kernels::poly1305::{Poly1305, Unhashed};
use core::mem::swap;

/// Calls `work` for each packet in turn, with its index and its first keystream blocks: block 0,
/// and the last blocks of its text, as many as [`trailing_blocks`] returns.
#[inline(always)]
fn each(set: Set, keys: &[Key], jobs: &[Job], mut work: impl FnMut(usize, &[Block])) {
    let count = |job| 1 + trailing_blocks(set, job);
    let mut blocks = Blocks::new();
    let mut next = 0;
    while next < jobs.len() {
        let (first, mut lanes) = (next, 0);
        while let Some(job) = jobs.get(next)
            && lanes + count(job) <= set.block_lanes()
        {
            let (key, end, trailing) = (job.key_in(keys), job.blocks(), trailing_blocks(set, job));
            blocks.set(lanes, key, &job.nonce, 0..1);
            if trailing > 0 {
                blocks.set(lanes + 1, key, &job.nonce, end - trailing as u32..end);
            }
            lanes += 1 + trailing;
            next += 1;
        }
        set.blocks(&mut blocks, lanes);
        let mut rest = blocks.keystream();
        for (index, job) in (first..).zip(&jobs[first..next]) {
            let own;
            (own, rest) = rest.split_at(count(job));
            work(index, own);
        }
    }
}

/// Seals packets.
// Not inlined: its keystream takes a page of stack, which single packets should not pay for.
#[inline(never)]
pub(super) fn seal(set: Set, bytes: &mut [u8], keys: &[Key], jobs: &[Job]) {
    let tag = |bytes: &mut [u8], job: &Job, hash: &mut Poly1305, hashed: usize| {
        let tag = Packet::of(job, job.key_in(keys)).finish_tag(set, bytes, hash, hashed);
        bytes[job.tag()].copy_from_slice(&tag);
    };
    let mut keystream = Keystream::new();
    let (mut previous, mut current) = (&mut Poly1305::idle(), &mut Poly1305::idle());
    // The packet whose tag is not finished, and how many bytes of its ciphertext are hashed.
    let mut last: Option<(&Job, usize)> = None;
    each(set, keys, jobs, |index, blocks| {
        let job = &jobs[index];
        let packet = Packet::of(job, job.key_in(keys));
        let (one_time_key, trailing) = split_one_time_key(blocks);
        packet.start_tag(set, bytes, current, one_time_key);
        set.xor_blocks(&mut bytes[packet.last_blocks(trailing.len())], trailing);
        let front = 1..packet.blocks() - trailing.len();
        if front.is_empty() {
            return tag(bytes, job, current, 0);
        }
        let (before, hashed) = last.map_or((0..0, 0), |(job, hashed)| (job.text(), hashed));
        let texts = bytes.get_disjoint_mut([packet.text.clone(), before]);
        let [text, before] = texts.expect("no job writes where another one does");
        let (unhashed, _) = before[hashed..].as_chunks();
        let mut other = Unhashed {
            poly1305: previous,
            blocks: unhashed,
        };
        let (hash, before) = (&mut *current, Some(&mut other));
        let done = stitched::encrypt_rest(&packet, set, text, hash, &mut keystream, front, before);
        let more = unhashed.len() - other.blocks.len();
        if let Some((job, hashed)) = last {
            tag(bytes, job, previous, hashed + TAG_LEN * more);
        }
        last = Some((job, done));
        swap(&mut previous, &mut current);
    });
    if let Some((job, hashed)) = last {
        tag(bytes, job, previous, hashed);
    }
}

/// Opens packets.
// Not inlined, like `seal`.
#[inline(never)]
pub(super) fn open(
    set: Set,
    bytes: &mut [u8],
    keys: &[Key],
    (jobs, outcomes): (&[Job], &mut [Outcome]),
) {
    let mut hash = Poly1305::idle();
    each(set, keys, jobs, |index, blocks| {
        let job = &jobs[index];
        let packet = Packet::of(job, job.key_in(keys));
        let (one_time_key, trailing) = split_one_time_key(blocks);
        packet.start_tag(set, bytes, &mut hash, one_time_key);
        outcomes[index] = stitched::decrypt(&packet, set, bytes, &mut hash, [&[], trailing]);
    });
}
