//! One packet after the other: the end of each packet is hashed during the ChaCha20 rounds of
//! the next one.
//!
//! Two hashes alternate; to open, two keystreams alternate too. They stay where they are,
//! because moving them could leave a copy of a one-time key behind.

use super::packet::Packet;
use super::stitched;
use crate::isa::Set;
use crate::job::{Job, Outcome, Secrets, split_one_time_key};
use crate::kernels::chacha20::{Keystream, counter_row};
use crate::kernels::poly1305::Poly1305;
use core::mem::swap;

/// Seals packets.
#[inline(never)]
pub(super) fn seal(set: Set, bytes: &mut [u8], secrets: Secrets<'_>, jobs: &[Job]) {
    let finish = |bytes: &mut [u8], job: &Job, poly1305: &mut Poly1305, hashed| {
        let tag = Packet::of(job, secrets).finish_tag(set, bytes, poly1305, hashed);
        bytes[job.tag()].copy_from_slice(&tag);
    };
    let mut keystream = Keystream::new();
    let (mut previous, mut current) = (&mut Poly1305::idle(), &mut Poly1305::idle());
    // The packet whose tag is still open, and how many bytes of its ciphertext are hashed.
    let mut last: Option<(&Job, usize)> = None;
    for job in jobs {
        let packet = Packet::of(job, secrets);
        let row = counter_row(0, packet.nonce);
        let count = set.row_blocks().min(packet.blocks());
        match last {
            None => set.rows(packet.key, &row, count, &mut keystream),
            Some((job, mut hashed)) => {
                let (unhashed, _) = bytes[job.text()][hashed..].as_chunks();
                let key_and_row = (packet.key, &row);
                hashed +=
                    set.stitched_rows(key_and_row, count, &mut keystream, 0, previous, unhashed);
                finish(bytes, job, previous, hashed);
            }
        }
        let hashed = stitched::encrypt(&packet, set, bytes, current, &mut keystream);
        last = Some((job, hashed));
        swap(&mut previous, &mut current);
    }
    if let Some((job, hashed)) = last {
        finish(bytes, job, previous, hashed);
    }
}

/// Opens packets that need at most as many keystream blocks as [`Set::rows`] computes.
#[inline(never)]
pub(super) fn open(
    set: Set,
    bytes: &mut [u8],
    secrets: Secrets<'_>,
    jobs: &[Job],
    outcomes: &mut [Outcome],
) {
    let finish = |bytes: &mut [u8], job, poly1305: &mut Poly1305, hashed, keystream: &Keystream| {
        let packet = Packet::of(job, secrets);
        let tag = packet.finish_tag(set, bytes, poly1305, hashed);
        let outcome = packet.verdict(bytes, &tag);
        if outcome == Outcome::Authentic {
            let (_, blocks) = split_one_time_key(keystream.blocks());
            set.xor_blocks(&mut bytes[job.text()], blocks);
        }
        outcome
    };
    let (mut previous, mut current) = (
        &mut (Keystream::new(), Poly1305::idle()),
        &mut (Keystream::new(), Poly1305::idle()),
    );
    let mut last: Option<(&Job, &mut Outcome)> = None;
    for (job, outcome) in jobs.iter().zip(outcomes) {
        let packet = Packet::of(job, secrets);
        let row = counter_row(0, packet.nonce);
        let (key_and_row, count) = ((packet.key, &row), packet.blocks());
        let (keystream, poly1305) = &mut *current;
        match last {
            None => set.rows(key_and_row.0, key_and_row.1, count, keystream),
            Some((job, outcome)) => {
                let (blocks, hash) = &mut *previous;
                let (unhashed, _) = bytes[job.text()].as_chunks();
                let hashed = set.stitched_rows(key_and_row, count, keystream, 0, hash, unhashed);
                *outcome = finish(bytes, job, hash, hashed, blocks);
            }
        }
        packet.start_tag(
            set,
            bytes,
            poly1305,
            split_one_time_key(keystream.blocks()).0,
        );
        last = Some((job, outcome));
        swap(&mut previous, &mut current);
    }
    if let Some((job, outcome)) = last {
        let (keystream, poly1305) = previous;
        *outcome = finish(bytes, job, poly1305, 0, keystream);
    }
}
