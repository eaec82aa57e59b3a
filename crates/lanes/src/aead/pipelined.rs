//! One packet after the other: the end of each packet is hashed during the ChaCha20 rounds of
//! the next one.
//!
//! Two hashes alternate; to open, two keystreams alternate too. They stay where they are, because moving
//! them could leave a copy of a one-time key behind.

use super::packet::Packet;
use super::stitched;
use crate::isa::Set;
use crate::job::{Job, Outcome, Secrets, TAG_LEN, split_one_time_key};
use crate::kernels::chacha20::{Keystream, counter_row};
use crate::kernels::poly1305::Poly1305;
use core::mem::swap;

/// The keystream of the first blocks of a packet, while the text of the packet before it, `last`, is
/// hashed. `hashed` bytes of that are hashed before, and as many as it returns after.
#[inline(always)]
fn stitch(
    set: Set,
    packet: &Packet<'_>,
    keystream: &mut Keystream,
    last: Option<&[u8]>,
    hash: &mut Poly1305,
    hashed: usize,
) -> usize {
    let row = counter_row(0, packet.nonce);
    let count = set.row_blocks().min(packet.blocks());
    let Some(text) = last else {
        set.rows(packet.key, &row, count, keystream);
        return 0;
    };
    let (unhashed, _) = text[hashed..].as_chunks();
    hashed + set.stitched_rows((packet.key, &row), count, keystream, 0, hash, unhashed)
}

/// Seals packets.
#[inline(never)]
pub(super) fn seal(set: Set, bytes: &mut [u8], secrets: Secrets<'_>, jobs: &[Job]) {
    let tag = |bytes: &mut [u8], last: Option<&Job>, hash: &mut Poly1305, hashed: usize| {
        if let Some(job) = last {
            let tag = finish(set, bytes, &Packet::of(job, secrets), hash, hashed);
            bytes[job.tag()].copy_from_slice(&tag);
        }
    };
    let mut keystream = Keystream::new();
    let (mut previous, mut current) = (&mut Poly1305::idle(), &mut Poly1305::idle());
    // The packet whose tag is still open, and how many bytes of its ciphertext are hashed.
    let (mut last, mut hashed) = (None::<&Job>, 0);
    for job in jobs {
        let packet = Packet::of(job, secrets);
        let text = last.map(|job| &bytes[job.text()]);
        hashed = stitch(set, &packet, &mut keystream, text, previous, hashed);
        tag(bytes, last, previous, hashed);
        // Over the tag, which comes later.
        let place = (&mut *bytes, packet.pieces());
        let count = set.row_blocks().min(packet.blocks());
        stitched::encrypt_front(&packet, set, place, current, &keystream.blocks()[..count]);
        hashed = stitched::encrypt_back(&packet, set, bytes, current, &mut keystream, count);
        last = Some(job);
        swap(&mut previous, &mut current);
    }
    tag(bytes, last, previous, hashed);
}

/// Opens packets as [`seal`] seals them. Each needs at most [`Set::row_blocks`] keystream blocks.
#[inline(never)]
pub(super) fn open(
    set: Set,
    bytes: &mut [u8],
    secrets: Secrets<'_>,
    jobs: &[Job],
    outcomes: &mut [Outcome],
) {
    let mut outcomes = outcomes.iter_mut();
    let mut check = |bytes: &mut [u8],
                     last: Option<&Job>,
                     (keystream, hash): &mut (Keystream, Poly1305),
                     hashed: usize| {
        if let Some(job) = last
            && let Some(outcome) = outcomes.next()
        {
            let packet = Packet::of(job, secrets);
            let tag = finish(set, bytes, &packet, hash, hashed);
            *outcome = packet.verdict(bytes, &tag);
            if *outcome == Outcome::Authentic {
                let (_, blocks) = split_one_time_key(keystream.blocks());
                set.xor_blocks(&mut bytes[job.text()], blocks);
            }
        }
    };
    let idle = || (Keystream::new(), Poly1305::idle());
    let (mut previous, mut current) = (&mut idle(), &mut idle());
    let mut last = None::<&Job>;
    for job in jobs {
        let (keystream, hash) = &mut *current;
        let packet = Packet::of(job, secrets);
        let text = last.map(|job| &bytes[job.text()]);
        let hashed = stitch(set, &packet, keystream, text, &mut previous.1, 0);
        check(bytes, last, previous, hashed);
        let (one_time_key, _) = split_one_time_key(keystream.blocks());
        packet.start_tag(set, bytes, hash, one_time_key);
        last = Some(job);
        swap(&mut previous, &mut current);
    }
    check(bytes, last, previous, 0);
}

/// The tag of a packet, of whose text `hashed` bytes are hashed.
// Not inlined: it is large, and called twice.
#[inline(never)]
fn finish(
    set: Set,
    bytes: &[u8],
    packet: &Packet<'_>,
    hash: &mut Poly1305,
    hashed: usize,
) -> [u8; TAG_LEN] {
    packet.finish_tag(set, bytes, hash, hashed)
}
