//! ChaCha20-Poly1305 (RFC 8439, section 2.8) over a list of packets that lie in
//! one buffer.
//!
//! The list is worked off in chunks. The blocks of ChaCha20 that a chunk needs
//! form one flat list, cut into calls of as many blocks as the vector has lanes,
//! wherever packets begin and end, so that all lanes but those of the chunk's
//! last call are busy. (A few packets to open are a chunk of their own.) The tags of
//! a chunk are computed one packet in each lane, those of like length beside each
//! other.
//!
//! Sealing: block 0 of each packet, its one-time Poly1305 key, goes before the
//! blocks of its text in the flat list; the tags come last. Opening: first all
//! blocks 0, then the tags, then the text of the packets whose tag was right, so
//! that nothing is decrypted before it has been checked. What has been computed
//! ahead of a packet is not computed again. A packet by itself needs no list, see
//! [`Alone`], nor do packets of one block of text, as many as a vector has lanes: see
//! [`short`]. Nor do longer ones where a hash goes beside rounds: they go [`in_turn`].

use crate::aes_gcm::Header;
use crate::chacha20::{self, Beside, Blocks, Keystream, Samples, Stretch, Ways, xor_blocks};
use crate::isa::{Aligned, Set};
use crate::job::{
    BLOCK_LEN, Block, Job, Key, Nonce, Outcome, Secrets, TAG_LEN, Work, split_one_time_key, verdict,
};
use crate::poly1305::{self, Field, Hashing, ShortMessages, Tagger, Text, Way};
use crate::vector::{Longs, MAX_LANES, MAX_TAGS, OfWords, Rows, Words};
use arrayvec::ArrayVec;
use core::ops::Range;

/// How many packets make a chunk: enough to fill the lanes, also with texts of like
/// length for the tags, and few enough that what is between the steps stays in the first
/// cache.
const CHUNK: usize = 256;

/// A chunk ends early when its texts reach this length in sum, so that they stay in
/// the second cache from one step to the next.
const CHUNK_BYTES: usize = 128 * 1024;

/// Computes keystream of packets ahead: block `i` is that of counter and nonce `i`.
///
/// # Panics
///
/// Unless there are as many of these as blocks.
pub(crate) fn precompute_keystream(
    set: Set,
    key: &Key,
    of: &[(u32, Nonce)],
    keystream: &mut [Block],
) {
    assert_eq!(of.len(), keystream.len());
    let lanes = set.block_lanes();
    for (of, keystream) in of.chunks(lanes).zip(keystream.chunks_mut(lanes)) {
        set.blocks_ahead(key, of, keystream);
    }
}

/// Seals every job; `outcomes[i]` tells of `jobs[i]`.
///
/// # Panics
///
/// If a job lies outside the buffer or names a key or keystream that is not there,
/// or if `outcomes` is shorter than `jobs`.
#[inline]
pub(crate) fn seal(set: Set, work: Work<'_>) {
    let Work {
        bytes,
        secrets,
        jobs,
        outcomes,
    } = work;
    let outcomes = &mut outcomes[..jobs.len()];
    if in_turn(set, jobs, usize::MAX) {
        seal_in_turn(set, bytes, secrets, jobs);
        outcomes.fill(Outcome::Sealed);
    } else if one_by_one(set, jobs) {
        for (job, outcome) in jobs.iter().zip(outcomes) {
            let tag = seal_one(set, bytes, secrets, job);
            bytes[job.tag()].copy_from_slice(&tag);
            *outcome = Outcome::Sealed;
        }
    } else {
        let mut rest = jobs;
        while let Some((short, others)) = next_short(set, rest) {
            set.short(bytes, secrets.keys, short, None);
            rest = others;
        }
        if !rest.is_empty() {
            seal_many(set, bytes, secrets, rest);
        }
        outcomes.fill(Outcome::Sealed);
    }
}

/// Opens every job; `outcomes[i]` tells of `jobs[i]`.
///
/// # Panics
///
/// As [`seal`].
#[inline]
pub(crate) fn open(set: Set, work: Work<'_>) {
    let Work {
        bytes,
        secrets,
        jobs,
        outcomes,
    } = work;
    let outcomes = &mut outcomes[..jobs.len()];
    if in_turn(set, jobs, set.few_blocks()) {
        open_in_turn(set, bytes, secrets, jobs, outcomes);
    } else if one_by_one(set, jobs) {
        for (job, outcome) in jobs.iter().zip(outcomes) {
            *outcome = open_one(set, bytes, secrets, job);
        }
    } else {
        let (mut rest, mut outcomes) = (jobs, outcomes);
        while let Some((short, others)) = next_short(set, rest) {
            let verdicts;
            (verdicts, outcomes) = outcomes.split_at_mut(short.len());
            set.short(bytes, secrets.keys, short, Some(verdicts));
            rest = others;
        }
        if !rest.is_empty() {
            open_many(set, bytes, secrets, rest, outcomes);
        }
    }
}

/// Seals a text whose AAD lies elsewhere. Returns its tag.
pub(crate) fn seal_detached(
    set: Set,
    key: &Key,
    nonce: &Nonce,
    aad: &[u8],
    text: &mut [u8],
) -> [u8; TAG_LEN] {
    Alone {
        key,
        nonce,
        aad: Aad::Apart(aad),
        text: 0..text.len(),
    }
    .seal(set, text)
}

/// Opens a text whose tag follows it and whose AAD lies elsewhere.
pub(crate) fn open_detached(
    set: Set,
    key: &Key,
    nonce: &Nonce,
    aad: &[u8],
    text_and_tag: &mut [u8],
) -> Outcome {
    let Some(text_len) = text_and_tag.len().checked_sub(TAG_LEN) else {
        return Outcome::BadTag;
    };
    Alone {
        key,
        nonce,
        aad: Aad::Apart(aad),
        text: 0..text_len,
    }
    .open(set, text_and_tag)
}

/// Whether the hash of a packet by itself goes beside the rounds of its blocks, of which
/// there are so many.
#[inline]
fn goes_beside(set: Set, blocks: usize) -> bool {
    set.has_few_beside() && blocks > set.few_blocks()
}

/// Where AAD lies: in the buffer of the text, or elsewhere.
enum Aad<'a> {
    In(Range<usize>),
    Apart(&'a [u8]),
}

/// A packet by itself.
struct Alone<'p> {
    key: &'p Key,
    nonce: &'p Nonce,
    aad: Aad<'p>,
    /// Where in its buffer its text lies.
    text: Range<usize>,
}

impl<'p> Alone<'p> {
    #[inline(always)]
    fn of(job: &'p Job, secrets: Secrets<'p>) -> Self {
        Self {
            key: secrets.key(job),
            nonce: &job.nonce,
            aad: Aad::In(job.aad()),
            text: job.text(),
        }
    }

    #[inline(always)]
    fn aad<'b>(&'b self, bytes: &'b [u8]) -> &'b [u8] {
        match &self.aad {
            Aad::In(range) => &bytes[range.clone()],
            Aad::Apart(aad) => aad,
        }
    }

    /// How many blocks of keystream it takes, that for its key included.
    #[inline]
    fn blocks(&self) -> usize {
        1 + self.text.len().div_ceil(BLOCK_LEN)
    }

    /// Encrypts its text. Returns its tag.
    #[inline(always)]
    fn seal(&self, set: Set, bytes: &mut [u8]) -> [u8; TAG_LEN] {
        if goes_beside(set, self.blocks()) {
            return self.seal_long(set, bytes);
        }
        with_keystream(set, self.key, self.nonce, self.text.len(), |blocks| {
            let (one_time_key, blocks) = split_one_time_key(blocks);
            let text = &mut bytes[self.text.clone()];
            xor_text(set, self.key, self.nonce, text, blocks);
            let text = &bytes[self.text.clone()];
            tag(set, one_time_key, self.aad(bytes), text)
        })
    }

    /// Decrypts its text if the tag behind it is right.
    #[inline(always)]
    fn open(&self, set: Set, bytes: &mut [u8]) -> Outcome {
        if goes_beside(set, self.blocks()) {
            return self.open_long(set, bytes);
        }
        with_keystream(set, self.key, self.nonce, self.text.len(), |blocks| {
            let (one_time_key, blocks) = split_one_time_key(blocks);
            let text = &bytes[self.text.clone()];
            let outcome = self.verdict(bytes, &tag(set, one_time_key, self.aad(bytes), text));
            if outcome == Outcome::Authentic {
                let text = &mut bytes[self.text.clone()];
                xor_text(set, self.key, self.nonce, text, blocks);
            }
            outcome
        })
    }

    /// Compares the tag behind its text to the right one.
    #[inline]
    fn verdict(&self, bytes: &[u8], tag: &[u8; TAG_LEN]) -> Outcome {
        verdict(&bytes[self.text.end..][..TAG_LEN], tag)
    }

    /// Its AAD on the way to its tag.
    #[inline(always)]
    fn tagger(&self, set: Set, bytes: &[u8], one_time_key: &[u8; 32]) -> Tagger {
        let mut tagger = Tagger::new(one_time_key);
        tagger.padded(set, self.aad(bytes));
        tagger
    }

    /// The tag, when all but the end of the ciphertext has gone into the tagger.
    #[inline(always)]
    fn finish(&self, set: Set, bytes: &[u8], tagger: &mut Tagger, hashed: usize) -> [u8; TAG_LEN] {
        tagger.padded(set, &bytes[self.text.clone()][hashed..]);
        tagger.lengths(self.aad(bytes).len() as u64, self.text.len() as u64);
        tagger.finish()
    }

    /// As [`seal`](Self::seal), with the hash beside the rounds.
    // Not part of its caller, which short packets take.
    #[inline(never)]
    fn seal_long(&self, set: Set, bytes: &mut [u8]) -> [u8; TAG_LEN] {
        let mut keystream = Keystream::new();
        let row = chacha20::row(0, self.nonce);
        set.few(self.key, &row, set.few_blocks(), &mut keystream);
        let (mut tagger, hashed) = self.encrypt_beside(set, bytes, &mut keystream);
        self.finish(set, bytes, &mut tagger, hashed)
    }

    /// Encrypts its text, of whose keystream as many blocks are there as [`Set::few`] has, or
    /// all. Returns the tag on its way, and how many bytes of the ciphertext have gone into it.
    #[inline(always)]
    fn encrypt_beside(
        &self,
        set: Set,
        bytes: &mut [u8],
        keystream: &mut Keystream,
    ) -> (Tagger, usize) {
        let few = set.few_blocks().min(self.blocks());
        let (one_time_key, blocks) = split_one_time_key(&keystream.blocks()[..few]);
        let mut tagger = self.tagger(set, bytes, one_time_key);
        set.xor_blocks(&mut bytes[self.text.clone()], blocks);
        let hashed = self.seal_beside(set, bytes, &mut tagger, keystream, few);
        (tagger, hashed)
    }

    /// As [`open`](Self::open), with the hash beside the rounds.
    #[inline(never)]
    fn open_long(&self, set: Set, bytes: &mut [u8]) -> Outcome {
        let mut keystream = Keystream::new();
        let few = set.few_blocks();
        set.few(self.key, &chacha20::row(0, self.nonce), few, &mut keystream);
        let mut tagger = self.tagger(set, bytes, split_one_time_key(keystream.blocks()).0);
        self.open_beside(set, bytes, &mut tagger, &[], &mut keystream, (0, few))
    }

    /// Encrypts its text from block `counter` on, few blocks at a time, and hashes the
    /// ciphertext before them meanwhile. Returns how many bytes of that have been.
    #[inline(never)]
    fn seal_beside(
        &self,
        set: Set,
        bytes: &mut [u8],
        tagger: &mut Tagger,
        keystream: &mut Keystream,
        mut counter: usize,
    ) -> usize {
        let text = &mut bytes[self.text.clone()];
        let mut hashed = 0;
        while counter < self.blocks() {
            let (sealed, rest) = text.split_at_mut((counter - 1) * BLOCK_LEN);
            let (waiting, _) = sealed[hashed..].as_chunks();
            let count = set.few_blocks().min(self.blocks() - counter);
            let row = chacha20::row(counter as u32, self.nonce);
            let of = (self.key, &row);
            hashed += set.few_beside(of, count, keystream, 0, tagger, waiting);
            set.xor_blocks(rest, &keystream.blocks()[..count]);
            counter += count;
        }
        hashed
    }

    /// Decrypts its text if its tag is right. `ahead` goes into its front; `keystream` has
    /// the first `made` blocks from block `from` on, and more of them are computed while the
    /// text is hashed.
    #[inline(never)]
    fn open_beside(
        &self,
        set: Set,
        bytes: &mut [u8],
        tagger: &mut Tagger,
        precomputed: &[Block],
        keystream: &mut Keystream,
        (from, mut made): (usize, usize),
    ) -> Outcome {
        let text = &bytes[self.text.clone()];
        let few = set.few_blocks();
        let most = MAX_LANES / few * few;
        let mut end = self.blocks();
        if end - from > most + few {
            // Whole runs are left behind them.
            end = from + made + (end - from - made) % set.block_lanes();
        }
        end = end.min(from + most);
        let mut hashed = 0;
        while from + made < end {
            let (waiting, _) = text[hashed..].as_chunks();
            let count = few.min(end - from - made);
            let row = chacha20::row((from + made) as u32, self.nonce);
            let of = (self.key, &row);
            hashed += set.few_beside(of, count, keystream, made, tagger, waiting);
            made += count;
        }
        let outcome = self.verdict(bytes, &self.finish(set, bytes, tagger, hashed));
        if outcome == Outcome::Authentic {
            let text = &mut bytes[self.text.clone()];
            set.xor_blocks(text, precomputed);
            // Block 0 does not go into the text.
            let blocks = &keystream.blocks()[usize::from(from == 0)..made];
            set.xor_blocks(&mut text[BLOCK_LEN * from.saturating_sub(1)..], blocks);
            let done = BLOCK_LEN * (end - 1);
            if done < text.len() {
                stream(set, self.key, self.nonce, end as u32, &mut text[done..]);
            }
        }
        outcome
    }
}

/// Exclusive-ors the keystream of (`key`, `nonce`), from block `counter` on, into `text`:
/// few blocks in rows.
pub(crate) fn stream(set: Set, key: &Key, nonce: &Nonce, counter: u32, text: &mut [u8]) {
    let count = text.len().div_ceil(BLOCK_LEN);
    if !(1..=set.few_blocks()).contains(&count) {
        return set.xor_keystream(key, nonce, counter, text);
    }
    let mut blocks = Keystream::new();
    set.few(key, &chacha20::row(counter, nonce), count, &mut blocks);
    set.xor_blocks(text, &blocks.blocks()[..count]);
}

/// Calls `work` with the keystream of a packet by itself, as far as it is had in one
/// call: from block 0 on.
#[inline]
fn with_keystream<T>(
    set: Set,
    key: &Key,
    nonce: &Nonce,
    text_len: usize,
    work: impl FnOnce(&[Block]) -> T,
) -> T {
    // What fills no run goes before those that do, and block 0 with it.
    let text_blocks = text_len.div_ceil(BLOCK_LEN);
    let mut count = 1 + text_blocks % set.block_lanes();
    if count > set.few_blocks() {
        let narrow = set.block_lanes() / 2;
        let is_all = count == 1 + text_blocks;
        if is_all && count > narrow && count <= narrow + Ways::of(set).behind {
            count = narrow;
        }
        let mut blocks = Blocks::new();
        blocks.set(0, key, nonce, 0..count as u32);
        set.blocks(&mut blocks, count);
        work(&blocks.keystream()[..count])
    } else {
        let mut blocks = Keystream::new();
        set.few(key, &chacha20::row(0, nonce), count, &mut blocks);
        work(&blocks.blocks()[..count])
    }
}

/// Computes keystream as [`chacha20::few`] does, and takes blocks of `text` into the
/// tagger meanwhile, as many as that hides. Returns how many bytes they are.
#[inline(always)]
pub(crate) fn few_beside<R: Rows>(
    r: R,
    of: (&Key, &[u32; 4]),
    count: usize,
    blocks: &mut Keystream,
    at: usize,
    tagger: &mut Tagger,
    text: &[[u8; TAG_LEN]],
) -> usize {
    let mut hashing = tagger.hashing(text);
    chacha20::few(r, of, count, blocks, at, &mut hashing);
    let (h, left) = hashing.done();
    tagger.go_on(h);
    TAG_LEN * (text.len() - left)
}

impl Beside for Hashing<'_> {
    #[inline(always)]
    fn some(&mut self) {
        self.take_in::<3>();
    }
}

/// Whether packets are had sooner one by one: one is, and with keystream computed ahead two
/// are, and a few short ones of which all is there. So are a few long ones, whose hash goes
/// beside the rounds.
fn one_by_one(set: Set, jobs: &[Job]) -> bool {
    /// From here on lanes are better: for short ones, and for long ones.
    const MANY: usize = 8;
    const MANY_LONG: usize = 6;
    let is_long = |job: &Job| goes_beside(set, job.blocks() as usize);
    match jobs {
        [_] => true,
        _ if jobs.len() < MANY_LONG && jobs.iter().all(is_long) => true,
        [_, _] => jobs.iter().all(|job| job.keystream_blocks > 0),
        _ => {
            jobs.len() < MANY
                && jobs
                    .iter()
                    .all(|job| job.is_short() && job.keystream_blocks > 1)
        }
    }
}

/// Whether packets are had sooner in turn, the hash of one beside the rounds of the next:
/// those of two blocks of text and more, with nothing ahead, and of no more than `most` with
/// that for the key.
#[inline]
fn in_turn(set: Set, jobs: &[Job], most: usize) -> bool {
    /// From here on lanes are better for two blocks of text, too.
    const MANY: usize = 8;
    let least = 3 + usize::from(jobs.len() >= MANY);
    let is_one =
        |job: &Job| job.keystream_blocks == 0 && (least..=most).contains(&(job.blocks() as usize));
    set.has_few_beside() && jobs.len() > 1 && jobs.iter().all(is_one)
}

/// Encrypts a packet's text. Returns its tag.
#[inline]
fn seal_one(set: Set, bytes: &mut [u8], secrets: Secrets<'_>, job: &Job) -> [u8; TAG_LEN] {
    let Some((one_time_key, blocks)) = secrets.keystream(job) else {
        return Alone::of(job, secrets).seal(set, bytes);
    };
    match (job.is_short(), blocks) {
        (true, [block, ..]) => {
            let ciphertext = set.xor_padded(&mut bytes[job.text()], block);
            tag_short(one_time_key, &ciphertext, job)
        }
        _ if set.has_few_beside() && !has_all(job, blocks) => {
            let alone = Alone::of(job, secrets);
            let mut tagger = alone.tagger(set, bytes, one_time_key);
            set.xor_blocks(&mut bytes[job.text()], blocks);
            let (from, mut keystream) = (1 + blocks.len(), Keystream::new());
            let hashed = alone.seal_beside(set, bytes, &mut tagger, &mut keystream, from);
            alone.finish(set, bytes, &mut tagger, hashed)
        }
        _ => {
            xor_one(set, bytes, secrets, job, blocks);
            tag(set, one_time_key, &bytes[job.aad()], &bytes[job.text()])
        }
    }
}

/// Opens a packet.
#[inline]
fn open_one(set: Set, bytes: &mut [u8], secrets: Secrets<'_>, job: &Job) -> Outcome {
    let Some((one_time_key, blocks)) = secrets.keystream(job) else {
        return Alone::of(job, secrets).open(set, bytes);
    };
    if set.has_few_beside() && !has_all(job, blocks) {
        let alone = Alone::of(job, secrets);
        let mut tagger = alone.tagger(set, bytes, one_time_key);
        let (from, mut keystream) = (1 + blocks.len(), Keystream::new());
        return alone.open_beside(set, bytes, &mut tagger, blocks, &mut keystream, (from, 0));
    }
    let tag = if job.is_short() {
        tag_short(one_time_key, &set.padded(&bytes[job.text()]), job)
    } else {
        tag(set, one_time_key, &bytes[job.aad()], &bytes[job.text()])
    };
    let outcome = verdict(&bytes[job.tag()], &tag);
    if outcome == Outcome::Authentic {
        xor_one(set, bytes, secrets, job, blocks);
    }
    outcome
}

/// Seals packets: what of one's ciphertext has not been hashed when it is encrypted is
/// hashed beside the first blocks of the next.
#[inline(never)]
fn seal_in_turn(set: Set, bytes: &mut [u8], secrets: Secrets<'_>, jobs: &[Job]) {
    let end = |bytes: &mut [u8], job: &Job, tagger: &mut Tagger, hashed| {
        let tag = Alone::of(job, secrets).finish(set, bytes, tagger, hashed);
        bytes[job.tag()].copy_from_slice(&tag);
    };
    let mut keystream = Keystream::new();
    let mut before: Option<(&Job, Tagger, usize)> = None;
    for job in jobs {
        let alone = Alone::of(job, secrets);
        let row = chacha20::row(0, alone.nonce);
        let few = set.few_blocks().min(alone.blocks());
        match &mut before {
            None => set.few(alone.key, &row, few, &mut keystream),
            Some((job, tagger, hashed)) => {
                let (waiting, _) = bytes[job.text()][*hashed..].as_chunks();
                let of = (alone.key, &row);
                *hashed += set.few_beside(of, few, &mut keystream, 0, tagger, waiting);
                end(bytes, job, tagger, *hashed);
            }
        }
        let (tagger, hashed) = alone.encrypt_beside(set, bytes, &mut keystream);
        before = Some((job, tagger, hashed));
    }
    if let Some((job, tagger, hashed)) = &mut before {
        end(bytes, job, tagger, *hashed);
    }
}

/// Opens packets of few blocks: the ciphertext of one is hashed beside the rounds of the next.
#[inline(never)]
fn open_in_turn(
    set: Set,
    bytes: &mut [u8],
    secrets: Secrets<'_>,
    jobs: &[Job],
    outcomes: &mut [Outcome],
) {
    let end = |bytes: &mut [u8], job, tagger: &mut Tagger, hashed, keystream: &Keystream| {
        let alone = Alone::of(job, secrets);
        let outcome = alone.verdict(bytes, &alone.finish(set, bytes, tagger, hashed));
        if outcome == Outcome::Authentic {
            set.xor_blocks(
                &mut bytes[job.text()],
                split_one_time_key(keystream.blocks()).1,
            );
        }
        outcome
    };
    let (mut before, mut next) = (&mut Keystream::new(), &mut Keystream::new());
    let mut last: Option<(&Job, Tagger, &mut Outcome)> = None;
    for (job, outcome) in jobs.iter().zip(outcomes) {
        let alone = Alone::of(job, secrets);
        let row = chacha20::row(0, alone.nonce);
        let (of, blocks) = ((alone.key, &row), alone.blocks());
        core::mem::swap(&mut before, &mut next);
        match &mut last {
            None => set.few(of.0, of.1, blocks, next),
            Some((job, tagger, outcome)) => {
                let (waiting, _) = bytes[job.text()].as_chunks();
                let hashed = set.few_beside(of, blocks, next, 0, tagger, waiting);
                **outcome = end(bytes, job, tagger, hashed, before);
            }
        }
        let tagger = alone.tagger(set, bytes, split_one_time_key(next.blocks()).0);
        last = Some((job, tagger, outcome));
    }
    if let Some((job, tagger, outcome)) = &mut last {
        **outcome = end(bytes, job, tagger, 0, next);
    }
}

// Not part of its caller: its arrays are some pages of stack, which a packet by itself
// has no use for.
#[inline(never)]
fn seal_many(set: Set, bytes: &mut [u8], secrets: Secrets<'_>, jobs: &[Job]) {
    let mut chunk = Chunk::new();
    let mut rest = jobs;
    while !rest.is_empty() {
        let jobs = next_chunk(rest);
        rest = &rest[jobs.len()..];
        chunk.begin(jobs.len());
        for (index, job) in jobs.iter().enumerate() {
            match secrets.keystream(job) {
                Some((key, blocks)) => {
                    chunk.one_time_keys[index] = *key;
                    set.xor_blocks(&mut bytes[job.text()], blocks);
                    chunk.xor(set, bytes, secrets, jobs, index, job.keystream_blocks);
                }
                // Its text is not long: block 0 takes a lane beside the others.
                None if !has_runs(set, job) => {
                    chunk.push(set, bytes, secrets, jobs, index, 0..job.blocks());
                }
                None => {
                    chunk.push(set, bytes, secrets, jobs, index, 0..1);
                    chunk.xor_runs(set, bytes, secrets, jobs, index, 1);
                }
            }
        }
        chunk.finish(set, bytes, secrets, jobs);
        chunk.tag(set, bytes, jobs);
        chunk.forget_keys();
        for (job, tag) in jobs.iter().zip(&chunk.tags) {
            bytes[job.tag()].copy_from_slice(tag);
        }
    }
}

// As `seal_many`.
#[inline(never)]
fn open_many(
    set: Set,
    bytes: &mut [u8],
    secrets: Secrets<'_>,
    jobs: &[Job],
    mut outcomes: &mut [Outcome],
) {
    let mut chunk = Chunk::new();
    let mut rest = jobs;
    while !rest.is_empty() {
        // As many as a call has lanes for, with two blocks each, if it has room for
        // their keys and their texts.
        let missing = |job: &Job| job.blocks().saturating_sub(job.keystream_blocks) as usize;
        let some = &rest[..rest.len().min(set.block_lanes() / 2)];
        let missing = some.iter().map(missing).sum::<usize>();
        // Packets that miss nothing have no use for a call.
        let few = missing <= set.block_lanes() && (missing > 0 || some.len() == rest.len());
        let jobs = match few {
            true => some,
            false => next_chunk(rest),
        };
        rest = &rest[jobs.len()..];
        chunk.begin(jobs.len());
        // The one-time keys, and beside them, if they leave lanes of a call idle, what
        // there is room for of the texts; of few packets all.
        let mut next = ArrayVec::<u32, CHUNK>::new();
        for (index, job) in jobs.iter().enumerate() {
            if !secrets.keystream.is_empty()
                && let Some((key, _)) = secrets.keystream(job)
            {
                chunk.one_time_keys[index] = *key;
            }
            let to = if few { job.blocks() } else { 1 };
            chunk.push(set, bytes, secrets, jobs, index, job.keystream_blocks..to);
        }
        if !few {
            let mut room = match chunk.lanes {
                0 => 0,
                lanes => (set.block_lanes() - lanes) as u32,
            };
            for (index, job) in jobs.iter().enumerate() {
                let from = job.keystream_blocks.max(1);
                let to = job.blocks().min(from + room).max(from);
                if from < to {
                    chunk.push(set, bytes, secrets, jobs, index, from..to);
                    room -= to - from;
                }
                next.push(to);
            }
        }
        chunk.run(set);
        chunk.take_keys();
        chunk.tag(set, bytes, jobs);
        chunk.forget_keys();
        let verdicts;
        (verdicts, outcomes) = outcomes.split_at_mut(jobs.len());
        for ((job, tag), place) in jobs.iter().zip(&chunk.tags).zip(&mut *verdicts) {
            *place = verdict(&bytes[job.tag()], tag);
        }
        let authentic = |index: usize| verdicts[index] == Outcome::Authentic;
        if !(0..jobs.len()).all(authentic) {
            chunk.runs.retain(|run| authentic(run.index()));
        }
        set.xor_texts(bytes, chunk.blocks.keystream(), jobs, &chunk.runs);
        chunk.clear();
        if few && secrets.keystream.is_empty() {
            continue;
        }
        for (index, job) in jobs.iter().enumerate() {
            if !authentic(index) {
                continue;
            }
            if let Some((_, blocks)) = secrets.keystream(job) {
                set.xor_blocks(&mut bytes[job.text()], blocks);
            }
            if !few {
                chunk.xor(set, bytes, secrets, jobs, index, next[index]);
            }
        }
        chunk.finish(set, bytes, secrets, jobs);
    }
}

/// Encrypts or decrypts the text of one packet, of which `blocks` were computed
/// ahead.
#[inline]
fn xor_one(set: Set, bytes: &mut [u8], secrets: Secrets<'_>, job: &Job, blocks: &[Block]) {
    let text = &mut bytes[job.text()];
    // Nobody looks for the key of a packet of which all was.
    match has_all(job, blocks) {
        true => set.xor_blocks(text, blocks),
        false => xor_text(set, secrets.key(job), &job.nonce, text, blocks),
    }
}

/// Whether `blocks`, from block 1 on, are all that goes into its text.
#[inline]
fn has_all(job: &Job, blocks: &[Block]) -> bool {
    job.text_len as usize <= BLOCK_LEN * blocks.len()
}

/// Encrypts or decrypts a text, of whose keystream there are `blocks`, from block 1 on.
#[inline]
fn xor_text(set: Set, key: &Key, nonce: &Nonce, text: &mut [u8], blocks: &[Block]) {
    set.xor_blocks(text, blocks);
    if let Some(rest) = text.get_mut(BLOCK_LEN * blocks.len()..)
        && !rest.is_empty()
    {
        stream(set, key, nonce, 1 + blocks.len() as u32, rest);
    }
}

/// The tag of one packet from its ciphertext.
#[inline]
fn tag(set: Set, one_time_key: &[u8; 32], aad: &[u8], text: &[u8]) -> [u8; TAG_LEN] {
    let mut tagger = Tagger::new(one_time_key);
    tagger.padded(set, aad);
    tagger.padded(set, text);
    tagger.lengths(aad.len() as u64, text.len() as u64);
    tagger.finish()
}

/// The tag of a short packet from its ciphertext, padded with zeros.
#[inline(always)]
fn tag_short(one_time_key: &[u8; 32], ciphertext: &[u8; BLOCK_LEN], job: &Job) -> [u8; TAG_LEN] {
    let mut tagger = Tagger::new(one_time_key);
    let (blocks, _) = ciphertext.as_chunks();
    tagger.few(&blocks[..job.text_len.div_ceil(16) as usize]);
    tagger.lengths(0, job.text_len.into());
    tagger.finish()
}

/// The next packets that [`short`] takes, and those behind them: as many as there are
/// lanes, or nearly so many.
#[inline]
fn next_short(set: Set, jobs: &[Job]) -> Option<(&[Job], &[Job])> {
    let lanes = set.short_lanes();
    let in_lanes = |job: &&Job| {
        job.text_len as usize <= poly1305::SHORT
            && job.aad_len as usize <= poly1305::MAX_AAD
            && job.keystream_blocks == 0
    };
    let count = jobs.iter().take(lanes).take_while(in_lanes).count();
    (lanes > 0 && count >= lanes - lanes / 4).then(|| jobs.split_at(count))
}

/// Seals packets of no more than [`poly1305::SHORT`] bytes, with no more AAD than
/// [`poly1305::MAX_AAD`], a packet in each lane, of which there must be enough; opens
/// them if there is a place for outcomes. Each takes two blocks of keystream. The first
/// never leaves the registers: there it is the one-time key.
#[inline(always)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub(crate) fn short<V: Words, F: Field>(
    v: V,
    f: F,
    bytes: &mut [u8],
    keys: &[Key],
    jobs: &[Job],
    mut outcomes: Option<&mut [Outcome]>,
) where
    F::Longs: OfWords<V>,
{
    const { assert!(V::LANES == <F::Longs as Longs>::LANES) };
    debug_assert!((1..=V::LANES).contains(&jobs.len()));
    let mut its_keys = [&keys[jobs[0].key as usize]; MAX_LANES];
    let mut rows = [[0; 4]; MAX_LANES];
    let mut messages = ShortMessages::new();
    for (lane, job) in jobs.iter().enumerate() {
        its_keys[lane] = &keys[job.key as usize];
        rows[lane] = chacha20::row(0, &job.nonce);
        messages.announce(lane, job.aad_len, job.text_len);
    }
    let mut blocks = Aligned([[0; BLOCK_LEN]; MAX_TAGS]);
    let key = chacha20::first_two(v, &its_keys, &rows, &mut blocks.0);
    for ((lane, job), block) in jobs.iter().enumerate().zip(&blocks.0) {
        let aad = v.padded(&bytes[job.aad()]);
        let text = &mut bytes[job.text()];
        let ciphertext = match outcomes {
            None => v.xor_padded(text, block),
            Some(_) => v.padded(text),
        };
        messages.set(lane, (&aad, job.aad_len), (&ciphertext, job.text_len));
    }
    let l = f.longs();
    let r = (l.of_words(key[0], key[1]), l.of_words(key[2], key[3]));
    let pad = (l.of_words(key[4], key[5]), l.of_words(key[6], key[7]));
    let mut tags = poly1305::tags_of_short(f, &messages, r, pad);
    for ((lane, job), block) in jobs.iter().enumerate().zip(&blocks.0) {
        let tag = poly1305::wide(tags[0][lane], tags[1][lane]).to_le_bytes();
        let Some(outcomes) = &mut outcomes else {
            bytes[job.tag()].copy_from_slice(&tag);
            continue;
        };
        outcomes[lane] = verdict(&bytes[job.tag()], &tag);
        if outcomes[lane] == Outcome::Authentic {
            v.xor_bytes(&mut bytes[job.text()], block);
        }
    }
    blocks.0 = [[0; BLOCK_LEN]; MAX_TAGS];
    zeroize::optimization_barrier(&blocks);
    // The right tag of a forged packet would make it authentic.
    tags = [[0; MAX_TAGS]; 2];
    zeroize::optimization_barrier(&tags);
}

/// The next chunk of `jobs`, of which there is one at least.
fn next_chunk(jobs: &[Job]) -> &[Job] {
    let mut len = 0;
    let mut bytes = 0;
    for job in jobs.iter().take(CHUNK) {
        if len > 0 && bytes + job.text_len as usize > CHUNK_BYTES {
            break;
        }
        bytes += job.text_len as usize;
        len += 1;
    }
    &jobs[..len]
}

/// Whether a text is long enough for half a run of `LANES` blocks at least.
#[inline]
fn has_runs(set: Set, job: &Job) -> bool {
    job.text_len as usize >= set.block_lanes() / 2 * BLOCK_LEN
}

/// Neighbouring blocks of one packet's keystream in neighbouring lanes.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    /// The number of the first block. Block 0 is the one-time key, and block n
    /// goes into the text from byte 64 (n - 1) on.
    counter: u32,
    /// The first lane.
    lane: u8,
    /// How many blocks.
    blocks: u8,
    /// Which packet of the chunk.
    index: u8,
}

const _: () = assert!(MAX_LANES <= u8::MAX as usize && CHUNK <= u8::MAX as usize + 1);

impl Run {
    /// The lanes that it is in.
    fn lanes(&self) -> Range<usize> {
        let lane = usize::from(self.lane);
        lane..lane + usize::from(self.blocks)
    }

    /// Which packet of the chunk.
    fn index(&self) -> usize {
        self.index.into()
    }
}

/// What is known of the packets of one chunk. Wiped on drop.
struct Chunk<'k> {
    /// The blocks of the next call.
    blocks: Blocks<'k>,
    /// What is in its lanes, from the first on.
    runs: ArrayVec<Run, MAX_LANES>,
    /// How many lanes are set.
    lanes: usize,
    /// Half a run of a packet's blocks that waits for another: which packet, and from
    /// which block on.
    half: Option<(usize, u32)>,
    /// The one-time key of each packet.
    one_time_keys: ArrayVec<[u8; 32], CHUNK>,
    /// The tag of each packet.
    tags: ArrayVec<[u8; TAG_LEN], CHUNK>,
}

impl<'k> Chunk<'k> {
    #[inline]
    fn new() -> Self {
        Self {
            blocks: Blocks::new(),
            runs: ArrayVec::new(),
            lanes: 0,
            half: None,
            one_time_keys: ArrayVec::new(),
            tags: ArrayVec::new(),
        }
    }

    /// Makes room for the keys and tags of `packets` packets.
    #[inline]
    fn begin(&mut self, packets: usize) {
        const NO_KEYS: &[[u8; 32]; CHUNK] = &[[0; 32]; CHUNK];
        const NO_TAGS: &[[u8; TAG_LEN]; CHUNK] = &[[0; TAG_LEN]; CHUNK];
        self.tags.clear();
        let keys = self
            .one_time_keys
            .try_extend_from_slice(&NO_KEYS[..packets]);
        keys.expect("as many as a chunk has at most");
        let tags = self.tags.try_extend_from_slice(&NO_TAGS[..packets]);
        tags.expect("as many as a chunk has at most");
    }

    /// Encrypts or decrypts a text from block `from` on, which is not 0.
    #[inline(always)]
    fn xor(
        &mut self,
        set: Set,
        bytes: &mut [u8],
        secrets: Secrets<'k>,
        jobs: &[Job],
        index: usize,
        from: u32,
    ) {
        let job = &jobs[index];
        if has_runs(set, job) {
            self.xor_runs(set, bytes, secrets, jobs, index, from);
        } else {
            self.push(set, bytes, secrets, jobs, index, from..job.blocks());
        }
    }

    /// As [`xor`](Self::xor): whole runs of `LANES` blocks at once, half a run beside that
    /// of another text, and the rest goes to the flat list.
    #[inline(never)]
    fn xor_runs(
        &mut self,
        set: Set,
        bytes: &mut [u8],
        secrets: Secrets<'k>,
        jobs: &[Job],
        index: usize,
        mut from: u32,
    ) {
        let job = &jobs[index];
        let run = BLOCK_LEN * set.block_lanes();
        if job.text_len as usize >= run {
            let before = BLOCK_LEN * (from as usize - 1);
            let direct = (job.text_len as usize).saturating_sub(before) / run * run;
            if direct > 0 {
                let start = job.text().start + before;
                let runs = &mut bytes[start..start + direct];
                set.xor_keystream(secrets.key(job), &job.nonce, from, runs);
                from += (direct / BLOCK_LEN) as u32;
            }
        }
        let half = set.block_lanes() / 2;
        if job.text_len as usize / BLOCK_LEN >= from as usize - 1 + half {
            match self.half.take() {
                None => self.half = Some((index, from)),
                Some(before) => {
                    let stretches = [before, (index, from)].map(|(index, counter)| Stretch {
                        key: secrets.key(&jobs[index]),
                        nonce: &jobs[index].nonce,
                        counter,
                        start: jobs[index].text().start + BLOCK_LEN * (counter as usize - 1),
                    });
                    set.xor_two(bytes, stretches);
                }
            }
            from += half as u32;
        }
        self.push(set, bytes, secrets, jobs, index, from..job.blocks());
    }

    /// Adds blocks of a packet to the flat list. Each time that the list fills a
    /// call, that is made.
    #[inline(always)]
    fn push(
        &mut self,
        set: Set,
        bytes: &mut [u8],
        secrets: Secrets<'k>,
        jobs: &[Job],
        index: usize,
        counters: Range<u32>,
    ) {
        let job = &jobs[index];
        let fits = self.lanes + counters.len() <= set.block_lanes();
        match fits && !counters.is_empty() {
            true => self.add(secrets.key(job), job, index, counters),
            false => self.push_in_parts(set, bytes, secrets, jobs, index, counters),
        }
    }

    /// Adds blocks for which there is room.
    #[inline(always)]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "lanes and chunks are small"
    )]
    fn add(&mut self, key: &'k Key, job: &Job, index: usize, counters: Range<u32>) {
        let blocks = counters.len();
        self.runs.push(Run {
            counter: counters.start,
            lane: self.lanes as u8,
            blocks: blocks as u8,
            index: index as u8,
        });
        self.blocks.set(self.lanes, key, &job.nonce, counters);
        self.lanes += blocks;
    }

    /// As [`push`](Self::push), where there is no room for all of them, or none to add.
    #[inline(never)]
    fn push_in_parts(
        &mut self,
        set: Set,
        bytes: &mut [u8],
        secrets: Secrets<'k>,
        jobs: &[Job],
        index: usize,
        mut counters: Range<u32>,
    ) {
        let job = &jobs[index];
        while !counters.is_empty() {
            if self.lanes == set.block_lanes() {
                self.flush(set, bytes, jobs);
            }
            let blocks = counters.len().min(set.block_lanes() - self.lanes) as u32;
            let end = counters.start + blocks;
            self.add(secrets.key(job), job, index, counters.start..end);
            counters.start = end;
        }
    }

    /// Computes what is in the list or waits, and takes each block to its place.
    #[inline]
    fn finish(&mut self, set: Set, bytes: &mut [u8], secrets: Secrets<'k>, jobs: &[Job]) {
        if let Some((index, from)) = self.half.take() {
            let to = from + set.block_lanes() as u32 / 2;
            self.push(set, bytes, secrets, jobs, index, from..to);
        }
        self.flush(set, bytes, jobs);
    }

    /// Computes the blocks in the list and takes each to its place.
    #[inline(never)]
    fn flush(&mut self, set: Set, bytes: &mut [u8], jobs: &[Job]) {
        if self.lanes == 0 {
            return;
        }
        self.run(set);
        self.take_keys();
        set.xor_texts(bytes, self.blocks.keystream(), jobs, &self.runs);
        self.clear();
    }

    /// Computes the blocks in the list.
    #[inline]
    fn run(&mut self, set: Set) {
        if self.lanes > 0 {
            set.blocks(&mut self.blocks, self.lanes);
        }
    }

    /// Empties the list.
    #[inline]
    fn clear(&mut self) {
        self.runs.clear();
        self.lanes = 0;
    }

    /// Keeps the one-time keys among the blocks.
    #[inline]
    fn take_keys(&mut self) {
        for run in &self.runs {
            if run.counter == 0 {
                let (key, _) = self.blocks.keystream()[usize::from(run.lane)]
                    .split_first_chunk()
                    .expect("64 bytes");
                self.one_time_keys[run.index()] = *key;
            }
        }
    }

    /// Computes the tags of all packets from their ciphertext.
    #[inline]
    fn tag(&mut self, set: Set, bytes: &[u8], jobs: &[Job]) {
        let mut texts = ArrayVec::<Text, CHUNK>::new();
        // From the longest to the shortest; often they are all alike. Numbers, as to
        // sort the texts themselves takes twice the time.
        let mut order = ArrayVec::<u64, CHUNK>::new();
        if !jobs.is_sorted_by(|a, b| a.text_len >= b.text_len) {
            for (index, job) in jobs.iter().enumerate() {
                order.push(u64::from(!job.text_len) << 32 | index as u64);
            }
            order.sort_unstable();
        }
        for place in 0..jobs.len() {
            let index = match order.get(place) {
                Some(key) => (key & 0xffff_ffff) as usize,
                None => place,
            };
            let job = &jobs[index];
            let behind_aad = bytes.len().saturating_sub(job.aad().end);
            let in_lanes = job.text_len > 0
                && job.aad_len as usize <= poly1305::MAX_AAD
                && (job.aad_len == 0 || behind_aad >= poly1305::BEHIND_AAD);
            if set.tag_lanes() == 1 || !in_lanes {
                let (aad, text) = (&bytes[job.aad()], &bytes[job.text()]);
                self.tags[index] = tag(set, &self.one_time_keys[index], aad, text);
                continue;
            }
            texts.push(Text {
                start: bytes[job.text().start..job.tag().end].as_ptr(),
                len: job.text_len,
                aad: bytes[job.aad().start..].as_ptr(),
                aad_len: job.aad_len,
                index,
            });
        }
        let mut texts = &texts[..];
        while !texts.is_empty() {
            let (len, way) = poly1305::next(texts, set.tag_lanes(), set.tag_step());
            let group;
            (group, texts) = texts.split_at(len);
            // SAFETY: the texts, the tags behind them and the AAD lie in `bytes`, as
            // their slices above have shown.
            unsafe {
                match way {
                    Way::Lanes => set.tags(group, &self.one_time_keys, &mut self.tags),
                    Way::LongInLanes => {
                        set.tags_of_long(group, &self.one_time_keys, &mut self.tags);
                    }
                    Way::OneByOne => {
                        for &Text { index, .. } in group {
                            let (key, job) = (&self.one_time_keys[index], &jobs[index]);
                            let (aad, text) = (&bytes[job.aad()], &bytes[job.text()]);
                            self.tags[index] = tag(set, key, aad, text);
                        }
                    }
                }
            }
        }
    }

    /// Wipes the one-time keys.
    #[inline]
    fn forget_keys(&mut self) {
        self.one_time_keys.fill([0; 32]);
        zeroize::optimization_barrier(&self.one_time_keys);
        self.one_time_keys.clear();
    }
}

/// The header masks of QUIC (RFC 9001, section 5.4.4): of each sample, which comes with
/// the index of its key and its offset, the first bytes of the block of which it is
/// counter and nonce. `sample` gives those of each in the list.
///
/// # Panics
///
/// If a sample lies outside `bytes` or names a key that is not there, or if `masks` is
/// shorter than `samples`.
#[inline]
pub(crate) fn masks<S>(
    set: Set,
    bytes: &[u8],
    keys: &[Key],
    list: &[S],
    sample: impl Fn(&S) -> (u32, u32),
    masks: &mut [u64],
) {
    let masks = &mut masks[..list.len()];
    let sample = |one: &S| {
        let (key, offset) = sample(one);
        let sample = bytes[offset as usize..].first_chunk::<16>();
        (&keys[key as usize], sample.expect("a whole sample"))
    };
    // So many are had sooner one by one than in lanes.
    if masks.len() <= 2 {
        for (mask, (key, sample)) in masks.iter_mut().zip(list.iter().map(sample)) {
            let (words, _) = sample.as_chunks();
            let row = [words[0], words[1], words[2], words[3]].map(u32::from_le_bytes);
            *mask = if Ways::of(set).general {
                chacha20::first_words(key, &row)
            } else {
                let mut blocks = Keystream::new();
                set.few(key, &row, 1, &mut blocks);
                let words = blocks.blocks()[0].first_chunk();
                u64::from_le_bytes(*words.expect("64 bytes"))
            };
        }
        return;
    }
    let lanes = set.block_lanes();
    for (masks, list) in masks.chunks_mut(lanes).zip(list.chunks(lanes)) {
        let lanes = Samples::new(list.iter().map(&sample));
        let mut words = [[0; MAX_LANES]; 2];
        set.masks(&lanes, masks.len(), &mut words);
        for (mask, (&first, &second)) in masks.iter_mut().zip(words[0].iter().zip(&words[1])) {
            *mask = u64::from(first) | u64::from(second) << 32;
        }
    }
}

/// Masks headers of QUIC packets, as [`masks`] says.
///
/// # Panics
///
/// If a header or its sample lies outside `bytes`, or if it names a key that is not
/// there.
pub(crate) fn mask_headers(set: Set, bytes: &mut [u8], keys: &[Key], headers: &[Header]) {
    let mut some = [0; MAX_LANES];
    for headers in headers.chunks(set.block_lanes()) {
        masks(set, bytes, keys, headers, Header::sample, &mut some);
        for (header, mask) in headers.iter().zip(some) {
            header.mask(bytes, mask);
        }
    }
}

/// Exclusive-ors the blocks of `runs`, which lie in `keystream`, into their texts.
#[inline(always)]
pub(crate) fn xor_texts<V: Words>(
    v: V,
    bytes: &mut [u8],
    keystream: &[Block],
    jobs: &[Job],
    runs: &[Run],
) {
    for run in runs {
        let mut blocks = &keystream[run.lanes()];
        let mut first = run.counter;
        if first == 0 {
            (first, blocks) = (1, &blocks[1..]);
        }
        let text = &mut bytes[jobs[run.index()].text()];
        xor_blocks(v, &mut text[BLOCK_LEN * (first as usize - 1)..], blocks);
    }
}

impl Drop for Chunk<'_> {
    #[inline]
    fn drop(&mut self) {
        self.forget_keys();
        // The right tag of a forged packet would make it authentic.
        self.tags.fill([0; TAG_LEN]);
        zeroize::optimization_barrier(&self.tags);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Backend;
    use chacha20poly1305::aead::{AeadInOut, KeyInit};

    /// Packets and masks by themselves, in the ways that this CPU does not choose, too:
    /// those of every other CPU.
    #[test]
    fn every_way() {
        const MOST: usize = 2200;
        const SIZE: usize = MOST + TAG_LEN;
        let (key, nonce, aad): (Key, Nonce, _) = ([7; 32], [5; 12], [3; 11]);
        let theirs = chacha20poly1305::ChaCha20Poly1305::new(&key.into());
        let plain: [u8; SIZE] = core::array::from_fn(|i| (i * i / 5) as u8);
        let samples = [(0, 100), (0, 1000)];
        for backend in Backend::ALL.iter().filter(|one| one.is_available()) {
            let set = backend.set();
            let mut expected = [0; 3];
            let three = [samples[0], samples[1], (0, 7)];
            masks(set, &plain, &[key], &three, |one| *one, &mut expected);
            for general in [false, true] {
                for behind in [0, set.few_blocks() / 2, set.few_blocks()] {
                    Ways { general, behind }.pin(set);
                    for len in (0..MOST).step_by(7).chain(900..1700) {
                        let mut sealed = plain;
                        let text = (&mut sealed[..len]).into();
                        let tag = theirs.encrypt_inout_detached(&nonce.into(), &aad, text);
                        let tag: [u8; TAG_LEN] = tag.unwrap().into();
                        let mut ours = plain;
                        let place = &mut ours[..len];
                        assert_eq!(seal_detached(set, &key, &nonce, &aad, place), tag);
                        assert_eq!(ours[..len], sealed[..len], "{backend:?}, {len} bytes");
                        ours[len..len + TAG_LEN].copy_from_slice(&tag);
                        let place = &mut ours[..len + TAG_LEN];
                        let outcome = open_detached(set, &key, &nonce, &aad, place);
                        assert_eq!(outcome, Outcome::Authentic);
                        assert_eq!(ours[..len], plain[..len], "{backend:?}, {len} bytes");
                    }
                    let mut found = [0; 2];
                    masks(set, &plain, &[key], &samples, |one| *one, &mut found);
                    assert_eq!(found, expected[..2], "{backend:?}");
                }
            }
        }
    }

    /// One packet and a few, of whose keystream nothing was computed ahead, a part, or all:
    /// sealed, opened, and one of them forged.
    #[test]
    fn a_few_packets_with_keystream_ahead() {
        const SIZE: usize = 2500;
        const FEW: usize = 4;
        let (key, nonce, aad) = ([9; 32], [2; 12], [1; 21]);
        let theirs = chacha20poly1305::ChaCha20Poly1305::new(&key.into());
        let of: [_; 33] = core::array::from_fn(|i| (i as u32, nonce));
        for backend in Backend::ALL.iter().filter(|one| one.is_available()) {
            let set = backend.set();
            let mut keystream = [[0; BLOCK_LEN]; 33];
            precompute_keystream(set, &key, &of, &mut keystream);
            let keys = [key];
            let secrets = Secrets {
                keys: &keys,
                keystream: &keystream,
            };
            for keystream_blocks in [0, 1, 2, 5, 7, 17, 33] {
                for len in (0..2300).step_by(29).chain([320, 384, 1024, 1920, 2048]) {
                    let mut packet = [0xa5; SIZE];
                    packet[..aad.len()].copy_from_slice(&aad);
                    let mut sealed = packet;
                    let text = aad.len()..aad.len() + len;
                    let tag = theirs.encrypt_inout_detached(
                        &nonce.into(),
                        &aad,
                        (&mut sealed[text.clone()]).into(),
                    );
                    sealed[text.end..][..TAG_LEN].copy_from_slice(&tag.unwrap());
                    let job = |i: usize| Job {
                        text: (i * SIZE + text.start) as u32,
                        text_len: len as u32,
                        aad: (i * SIZE) as u32,
                        aad_len: aad.len() as u32,
                        nonce,
                        keystream_blocks,
                        ..Job::default()
                    };
                    let jobs: [Job; FEW] = core::array::from_fn(job);
                    for jobs in [&jobs[..1], &jobs[..2], &jobs] {
                        let all = &mut [packet; FEW];
                        let outcomes = &mut [Outcome::Pending; FEW];
                        seal(
                            set,
                            Work {
                                bytes: all.as_flattened_mut(),
                                secrets,
                                jobs,
                                outcomes,
                            },
                        );
                        let named = (backend, keystream_blocks, len);
                        assert!(
                            all[..jobs.len()].iter().all(|one| *one == sealed),
                            "{named:?}"
                        );
                        let forged = jobs.len() - 1;
                        all[forged][text.end + 3] ^= 4;
                        let before = all[forged];
                        open(
                            set,
                            Work {
                                bytes: all.as_flattened_mut(),
                                secrets,
                                jobs,
                                outcomes,
                            },
                        );
                        assert_eq!(outcomes[forged], Outcome::BadTag, "{named:?}");
                        assert_eq!(all[forged], before, "{named:?}");
                        for (one, outcome) in all[..forged].iter().zip(outcomes) {
                            assert_eq!(*outcome, Outcome::Authentic, "{named:?}");
                            assert_eq!(one[text.clone()], packet[text.clone()], "{named:?}");
                        }
                        all[forged] = sealed;
                        let last = &jobs[forged..];
                        let outcomes = &mut [Outcome::Pending];
                        open(
                            set,
                            Work {
                                bytes: all.as_flattened_mut(),
                                secrets,
                                jobs: last,
                                outcomes,
                            },
                        );
                        assert_eq!(outcomes, &[Outcome::Authentic], "{named:?}");
                        assert_eq!(all[forged][text.clone()], packet[text.clone()], "{named:?}");
                    }
                }
            }
        }
    }
}
