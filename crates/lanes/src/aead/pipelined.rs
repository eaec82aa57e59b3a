//! One packet after the other: the end of each packet is hashed during the ChaCha20 rounds of
//! the next one. Or two packets after the other two, where there is a kernel for it.
//!
//! Two pairs of hashes alternate; to open, two pairs of keystreams alternate too. They stay where they
//! are, because moving them could leave a copy of a one-time key behind.

use super::packet::Packet;
use super::stitched;
use crate::isa::Set;
use crate::job::{Job, Outcome, Secrets, TAG_LEN, split_one_time_key};
use crate::kernels::chacha20::{Keystream, counter_row};
use crate::kernels::poly1305::Poly1305;
use core::mem::swap;
use core::ops::Range;

/// The packets of a list, one by one or two by two; an odd one comes first, where there is nothing to
/// hash beside it.
#[inline(always)]
fn groups(len: usize, by_two: bool) -> impl Iterator<Item = Range<usize>> {
    let size = 1 + usize::from(by_two);
    let first = len % size;
    let groups = (first..len).step_by(size).map(move |at| at..at + size);
    (first > 0).then_some(0..first).into_iter().chain(groups)
}

/// The keystream of the first blocks of a group, while the messages of the group before it, `last`, are
/// hashed. Of each message, `hashed` blocks behind the AAD are hashed before, and as many as it returns
/// after.
#[inline(always)]
fn stitch(
    set: Set,
    (bytes, secrets): (&[u8], Secrets<'_>),
    group: &[Job],
    keystreams: &mut [Keystream; 2],
    last: &[Job],
    hashes: &mut [Poly1305; 2],
    hashed: [usize; 2],
) -> [usize; 2] {
    let unhashed = |i: usize| &bytes[last[i].text()].as_chunks().0[hashed[i]..];
    let first = Packet::of(&group[0], secrets);
    let row = counter_row(0, first.nonce);
    let count = set.row_blocks().min(first.blocks());
    let Some(second) = group.get(1) else {
        let (key_and_row, keystream) = ((first.key, &row), &mut keystreams[0]);
        if last.is_empty() {
            set.rows(first.key, &row, count, keystream);
            return [0; 2];
        }
        let hash = &mut hashes[0];
        let more = set.stitched_rows(key_and_row, count, keystream, 0, hash, unhashed(0));
        return [hashed[0] + more / TAG_LEN, 0];
    };
    let second = Packet::of(second, secrets);
    let second_row = counter_row(0, second.nonce);
    let both = [(first.key, &row), (second.key, &second_row)];
    let count = count.max(second.blocks());
    let mut ends = [[[0; TAG_LEN]; 2]; 2];
    let mut messages: [[&[[u8; TAG_LEN]]; 2]; 2] = [[&[]; 2]; 2];
    for (((i, job), end), message) in last.iter().enumerate().zip(&mut ends).zip(&mut messages) {
        *end = Packet::of(job, secrets).end_of_message(bytes);
        let from = usize::from((job.text_len as usize).is_multiple_of(TAG_LEN));
        *message = [unhashed(i), &end[from..]];
    }
    let more = set.stitched_rows_of_two(both, count, keystreams, hashes, messages);
    [hashed[0] + more[0], hashed[1] + more[1]]
}

/// The tag of a packet, of whose message `hashed` blocks behind the AAD are hashed.
#[inline(always)]
fn finish(
    set: Set,
    bytes: &[u8],
    packet: &Packet<'_>,
    hash: &mut Poly1305,
    hashed: usize,
) -> [u8; TAG_LEN] {
    // The last block is that of the lengths.
    match hashed > packet.text.len().div_ceil(TAG_LEN) {
        true => hash.finish(),
        false => finish_late(set, bytes, packet, hash, hashed),
    }
}

// Not inlined: where two packets are hashed side by side, few come here, most of them the last of a list,
// and in its caller it makes the others take 2 to 3 % longer (Zen 4, AVX2).
#[inline(never)]
fn finish_late(
    set: Set,
    bytes: &[u8],
    packet: &Packet<'_>,
    hash: &mut Poly1305,
    hashed: usize,
) -> [u8; TAG_LEN] {
    let hashed = (hashed * TAG_LEN).min(packet.text.len());
    packet.finish_tag(set, bytes, hash, hashed)
}

/// Seals packets, one by one or two by two. Two need [`Set::stitches_two`], and have at most as many
/// keystream blocks each as [`Set::rows`] computes.
#[inline(never)]
pub(super) fn seal(set: Set, bytes: &mut [u8], secrets: Secrets<'_>, jobs: &[Job], by_two: bool) {
    let tag = |bytes: &mut [u8], last: &[Job], hashes: &mut [Poly1305; 2], hashed: [usize; 2]| {
        for ((job, hash), hashed) in last.iter().zip(hashes).zip(hashed) {
            let tag = finish(set, bytes, &Packet::of(job, secrets), hash, hashed);
            bytes[job.tag()].copy_from_slice(&tag);
        }
    };
    let mut keystreams = keystreams();
    let (mut previous, mut current) = (&mut idle(), &mut idle());
    // The packets whose tags are still open, and how many blocks of their ciphertext are hashed.
    let (mut last, mut hashed): (&[Job], _) = (&[], [0; 2]);
    for group in groups(jobs.len(), by_two) {
        let group = &jobs[group];
        let read = (&*bytes, secrets);
        hashed = stitch(set, read, group, &mut keystreams, last, previous, hashed);
        tag(bytes, last, previous, hashed);
        let states = current.iter_mut().zip(&mut keystreams).zip(&mut hashed);
        for (job, ((hash, keystream), hashed)) in group.iter().zip(states) {
            let packet = Packet::of(job, secrets);
            // Over the tag, which comes later.
            let place = (&mut *bytes, packet.pieces());
            *hashed = stitched::encrypt(&packet, set, place, hash, keystream) / TAG_LEN;
        }
        last = group;
        swap(&mut previous, &mut current);
    }
    tag(bytes, last, previous, hashed);
}

/// Opens packets as [`seal`] seals them. Each needs at most as many keystream blocks as [`Set::rows`]
/// computes.
#[inline(never)]
pub(super) fn open(
    set: Set,
    bytes: &mut [u8],
    secrets: Secrets<'_>,
    (jobs, outcomes): (&[Job], &mut [Outcome]),
    by_two: bool,
) {
    let mut check = |bytes: &mut [u8],
                     last: Range<usize>,
                     (keystreams, hashes): &mut ([Keystream; 2], [Poly1305; 2]),
                     hashed: [usize; 2]| {
        let states = keystreams.iter().zip(hashes).zip(hashed);
        let results = jobs[last.clone()].iter().zip(&mut outcomes[last]);
        for ((job, outcome), ((keystream, hash), hashed)) in results.zip(states) {
            let packet = Packet::of(job, secrets);
            let tag = finish(set, bytes, &packet, hash, hashed);
            *outcome = packet.verdict(bytes, &tag);
            if *outcome == Outcome::Authentic {
                let (_, blocks) = split_one_time_key(keystream.blocks());
                set.xor_blocks(&mut bytes[job.text()], blocks);
            }
        }
    };
    let (mut previous, mut current) = (&mut (keystreams(), idle()), &mut (keystreams(), idle()));
    let mut last = 0..0;
    for group in groups(jobs.len(), by_two) {
        let (keystreams, hashes) = &mut *current;
        let (before, jobs) = (&jobs[last.clone()], &jobs[group.clone()]);
        let read = (&*bytes, secrets);
        let hashed = stitch(set, read, jobs, keystreams, before, &mut previous.1, [0; 2]);
        check(bytes, last, previous, hashed);
        for (job, (keystream, hash)) in jobs.iter().zip(keystreams.iter().zip(hashes)) {
            let (one_time_key, _) = split_one_time_key(keystream.blocks());
            Packet::of(job, secrets).start_tag(set, bytes, hash, one_time_key);
        }
        last = group;
        swap(&mut previous, &mut current);
    }
    check(bytes, last, previous, [0; 2]);
}

/// Keystream for a group.
#[inline(always)]
fn keystreams() -> [Keystream; 2] {
    [Keystream::new(), Keystream::new()]
}

/// Hashes for a group.
#[inline(always)]
const fn idle() -> [Poly1305; 2] {
    [Poly1305::idle(), Poly1305::idle()]
}
