//! Packets of a few blocks each: the blocks of all packets in lanes, regardless of packet
//! boundaries. The hashes of earlier packets are computed in general registers, between their
//! rounds.
//!
//! The hashing for one lane's block takes one double round of the lanes after it: it hashes the
//! part of the text that the block encrypts; at block 0 of a packet, it finishes the previous
//! packet and starts this one. Eight lanes are thus hashed within ten double rounds.
//!
//! Sealing: the whole blocks of a text are encrypted as soon as their keystream exists, and the
//! rest when it is hashed. Opening: the keystream of a packet is kept until its tag is checked.

use super::chacha20::{Blocks, QuarterRounds, RING, Ring, Stitch};
use super::chacha20poly1305::ShortText;
use super::poly1305::Poly1305;
use crate::job::{
    BLOCK_LEN, Block, Job, Key, Outcome, TAG_LEN, split_one_time_key, verdict_and_wipe,
};
use crate::vector::U32Lanes;
use core::ops::Range;

/// Maximum number of lanes of this kernel: their hashes have ten double rounds.
const MAX_STITCHED_LANES: usize = 8;

/// Maximum number of keystream blocks, including block 0, of a packet to open: up to two calls of
/// all lanes may come between its last block and its verdict.
pub(crate) const MAX_BLOCKS_TO_OPEN: usize = RING - 2 * MAX_STITCHED_LANES;

/// Seals packets, or opens them if there are `outcomes`. Does not use precomputed keystream.
///
/// # Panics
///
/// If a packet to open has more than [`MAX_BLOCKS_TO_OPEN`] blocks.
#[inline(always)]
#[allow(
    dead_code,
    reason = "not every target has vectors with so few registers"
)]
pub(crate) fn stitched_lanes<V: U32Lanes>(
    v: V,
    bytes: &mut [u8],
    keys: &[Key],
    jobs: &[Job],
    outcomes: Option<&mut [Outcome]>,
) {
    match outcomes {
        None => run::<true, V>(v, bytes, keys, jobs, &mut []),
        Some(outcomes) => run::<false, V>(v, bytes, keys, jobs, outcomes),
    }
}

/// Seals if `SEALS`, without outcomes; otherwise opens.
#[inline(always)]
fn run<const SEALS: bool, V: U32Lanes>(
    v: V,
    bytes: &mut [u8],
    keys: &[Key],
    jobs: &[Job],
    outcomes: &mut [Outcome],
) {
    const { assert!(V::LANES <= MAX_STITCHED_LANES && RING.is_multiple_of(V::LANES)) };
    let mut blocks = Blocks::new();
    let mut ring = Ring::new();
    let mut hashed = Hashed::new();
    let (mut inputs, mut encrypted) = (Runs::new(jobs), Runs::new(jobs));
    let mut opened = Opened::default();
    // How many blocks have been computed, and how many lanes the last call had.
    let (mut at, mut lanes_before) = (0, 0);
    loop {
        let mut lanes = 0;
        while let Some((job, counters)) = inputs.next(V::LANES - lanes) {
            let key = &keys[job.key];
            blocks.set(lanes, key, &job.nonce, counters.clone());
            lanes += counters.len();
        }
        let mut hashes = Hashes::<SEALS> {
            bytes,
            jobs,
            ring: &ring,
            lanes: lanes_before,
            hashed: &mut hashed,
            outcomes,
        };
        if lanes == 0 {
            hashes.finish();
            break;
        }
        let words = blocks.words_stitched(v, &mut hashes);
        ring.write(v, &words, at);
        if SEALS {
            encrypt(v, bytes, &mut encrypted, &ring, at..at + lanes);
        } else {
            let ended = &outcomes[..hashed.started.saturating_sub(1)];
            opened.decrypt(v, bytes, jobs, ended, &ring);
        }
        (at, lanes_before) = (at + lanes, lanes);
    }
    if !SEALS {
        opened.decrypt(v, bytes, jobs, &outcomes[..jobs.len()], &ring);
    }
}

/// All blocks of a list of packets, in their order.
struct Runs<'t> {
    jobs: core::slice::Iter<'t, Job>,
    /// Counter of the next block of the first packet.
    counter: u32,
}

impl<'t> Runs<'t> {
    #[inline(always)]
    fn new(jobs: &'t [Job]) -> Self {
        let jobs = jobs.iter();
        Self { jobs, counter: 0 }
    }

    /// Returns the next blocks of one packet, at most `room`. `None` if there is no room or no
    /// block left.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "room is a few lanes")]
    fn next(&mut self, room: usize) -> Option<(&'t Job, Range<u32>)> {
        if room == 0 {
            return None;
        }
        let job = self.jobs.as_slice().first()?;
        let (first, all) = (self.counter, job.blocks());
        let end = all.min(first + room as u32);
        self.counter = end;
        if end == all {
            self.counter = 0;
            self.jobs.next();
        }
        Some((job, first..end))
    }
}

/// Encrypts the whole blocks of text that blocks `ats` of `ring` belong to.
#[inline(always)]
fn encrypt<V: U32Lanes>(
    v: V,
    bytes: &mut [u8],
    runs: &mut Runs<'_>,
    ring: &Ring,
    mut ats: Range<usize>,
) {
    while let Some((job, counters)) = runs.next(ats.len()) {
        let (text, _) = bytes[job.text()].as_chunks_mut::<BLOCK_LEN>();
        // Block 1 encrypts the first block of text.
        let skipped = usize::from(counters.start == 0);
        let first = counters.start as usize + skipped - 1;
        let at = ats.start + skipped;
        ats.start += counters.len();
        for (text, at) in text.iter_mut().skip(first).zip(at..ats.start) {
            v.xor_bytes(text, ring.block(at));
        }
    }
}

/// Packets that have been checked, and are decrypted if they are authentic.
#[derive(Default)]
struct Opened {
    /// Number of packets.
    count: usize,
    /// Total number of their blocks.
    blocks: usize,
}

impl Opened {
    /// Decrypts packets that have outcomes and are not decrypted yet.
    #[inline(always)]
    fn decrypt<V: U32Lanes>(
        &mut self,
        v: V,
        bytes: &mut [u8],
        jobs: &[Job],
        outcomes: &[Outcome],
        ring: &Ring,
    ) {
        for (job, outcome) in jobs.iter().zip(outcomes).skip(self.count) {
            let mut at = self.blocks + 1;
            self.count += 1;
            self.blocks += job.blocks() as usize;
            assert!(
                job.blocks() as usize <= MAX_BLOCKS_TO_OPEN,
                "keystream is kept"
            );
            if *outcome != Outcome::Authentic {
                continue;
            }
            let (whole, _) = bytes[job.text()].as_chunks_mut::<BLOCK_LEN>();
            for text in &mut *whole {
                v.xor_bytes(text, ring.block(at));
                at += 1;
            }
            let rest = whole.len() * BLOCK_LEN;
            if rest < job.text_len as usize {
                let text_and_tag = &mut bytes[job.text().start + rest..job.tag().end];
                ShortText::new(text_and_tag, ring.block(at)).decrypt();
            }
        }
    }
}

/// The progress of hashing.
struct Hashed {
    /// How many packets have been started.
    started: usize,
    /// The hash of the last one, and the part of its text that is not hashed: length and start.
    hash: Poly1305,
    start: usize,
    left: usize,
    /// The number of the next block of keystream.
    at: usize,
}

impl Hashed {
    #[inline(always)]
    fn new() -> Self {
        Self {
            started: 0,
            hash: Poly1305::idle(),
            start: 0,
            left: 0,
            at: 0,
        }
    }
}

/// Hashes the data that the blocks of some lanes belong to.
struct Hashes<'t, const SEALS: bool> {
    bytes: &'t mut [u8],
    jobs: &'t [Job],
    ring: &'t Ring,
    /// How many lanes are left.
    lanes: usize,
    hashed: &'t mut Hashed,
    outcomes: &'t mut [Outcome],
}

impl<const SEALS: bool> Hashes<'_, SEALS> {
    /// Hashes the data that the next lane's block belongs to, within a double round.
    #[inline(always)]
    fn next(&mut self, state: &mut impl QuarterRounds) {
        if self.lanes == 0 {
            return state.run_all();
        }
        self.lanes -= 1;
        let block = self.ring.block(self.hashed.at);
        self.hashed.at += 1;
        let (start, len) = (self.hashed.start, self.hashed.left);
        if len == 0 {
            state.run::<0>();
            self.end();
            state.run::<1>();
            state.run::<2>();
            self.start(block);
            state.run::<3>();
            return;
        }
        let text_and_tag = &mut self.bytes[start..start + len + TAG_LEN];
        if len >= BLOCK_LEN
            && let (blocks, _) = text_and_tag.as_chunks()
            && let Some([b0, b1, b2, b3]) = blocks.first_chunk()
        {
            let mut hash = self.hashed.hash.interleave::<1>(&[]);
            state.run::<0>();
            hash.block(b0);
            state.run::<1>();
            hash.block(b1);
            state.run::<2>();
            hash.block(b2);
            state.run::<3>();
            hash.block(b3);
            hash.finish();
        } else {
            let mut text = ShortText::new(text_and_tag, block);
            text.run_stitched::<SEALS>(state, &mut self.hashed.hash);
        }
        self.hashed.start = start + BLOCK_LEN;
        self.hashed.left = len.saturating_sub(BLOCK_LEN);
    }

    /// Starts the hash of the next packet; `block` is block 0 of its keystream.
    #[inline(always)]
    fn start(&mut self, block: &Block) {
        let hashed = &mut *self.hashed;
        let job = &self.jobs[hashed.started];
        let (one_time_key, _) = split_one_time_key(core::slice::from_ref(block));
        hashed.hash.start(one_time_key);
        hashed.hash.update_aad(self.bytes, job);
        hashed.started += 1;
        (hashed.start, hashed.left) = (job.text as usize, job.text_len as usize);
    }

    /// Finishes the hash of a packet, if one was started: writes its tag or its outcome.
    #[inline(always)]
    fn end(&mut self) {
        let Some(index) = self.hashed.started.checked_sub(1) else {
            return;
        };
        let (hash, job) = (&mut self.hashed.hash, &self.jobs[index]);
        hash.update_lengths(job.aad_len.into(), job.text_len.into());
        let mut tag = hash.finish();
        let place = &mut self.bytes[job.tag()];
        if SEALS {
            place.copy_from_slice(&tag);
            return;
        }
        self.outcomes[index] = verdict_and_wipe(place, &mut tag);
    }

    /// Hashes the rest.
    #[inline(always)]
    fn finish(&mut self) {
        while self.lanes > 0 {
            self.next(&mut ());
        }
        self.end();
    }
}

impl<const SEALS: bool> Stitch for Hashes<'_, SEALS> {
    #[inline(always)]
    fn two_double_rounds(&mut self, state: &mut impl QuarterRounds) {
        self.next(state);
        self.next(state);
    }
}
