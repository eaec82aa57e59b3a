//! ChaCha20-Poly1305 (RFC 8439, section 2.8) over a list of packets that lie in
//! one buffer.
//!
//! The list is worked off in chunks. The blocks of ChaCha20 that a chunk needs
//! form one flat list, cut into calls of as many blocks as the vector has lanes,
//! wherever packets begin and end, so that all lanes but those of the chunk's
//! last call are busy. The tags of a chunk are computed one packet in each lane,
//! those of like length beside each other.
//!
//! Sealing: block 0 of each packet, its one-time Poly1305 key, goes before the
//! blocks of its text in the flat list; the tags come last. Opening: first all
//! blocks 0, then the tags, then the text of the packets whose tag was right, so
//! that nothing is decrypted before it has been checked.

use crate::chacha20::{self, BLOCK_LEN, Blocks, Key, Nonce};
use crate::poly1305::{self, Field, LONG, TAG_LEN, Tagger, Text};
use crate::vector::{Longs, MAX_LANES, Words};
use arrayvec::ArrayVec;
use core::ops::Range;
use subtle::ConstantTimeEq;

/// One packet to seal or to open: where its bytes lie, and what protects them.
///
/// Its tag of [`TAG_LEN`] bytes follows its text. The AAD must not overlap text
/// or tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// Offset of the text in the buffer.
    pub text: u32,
    /// Length of the text, without the tag, in bytes.
    pub text_len: u32,
    /// Offset of the additional authenticated data in the buffer.
    pub aad: u32,
    /// Length of the additional authenticated data, in bytes; 0 for none.
    pub aad_len: u32,
    /// Index of the key in the list of keys.
    pub key: u32,
    /// The nonce; never twice with one key.
    pub nonce: Nonce,
}

impl Job {
    fn text(&self) -> Range<usize> {
        let start = self.text as usize;
        start..start + self.text_len as usize
    }

    fn tag(&self) -> Range<usize> {
        let start = self.text().end;
        start..start + TAG_LEN
    }

    /// How many blocks of keystream it takes: block 0 for its key, and its text's.
    fn blocks(&self) -> u32 {
        1 + self.text_len.div_ceil(BLOCK_LEN as u32)
    }

    fn aad(&self) -> Range<usize> {
        let start = self.aad as usize;
        start..start + self.aad_len as usize
    }
}

/// What became of a [`Job`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing yet.
    #[default]
    Pending,
    /// Sealed: text encrypted, tag written.
    Sealed,
    /// Opened: the tag was right and the text is decrypted.
    Authentic,
    /// Not opened: the tag was wrong and the text is as it was, encrypted.
    Forged,
}

/// How many packets make a chunk: enough to fill the lanes, and few enough that
/// what is between the steps stays in the first cache.
const CHUNK: usize = 64;

/// A chunk ends early when its texts reach this length in sum, for the same
/// reason.
const CHUNK_BYTES: usize = 32 * 1024;

/// Seals every job; `outcomes[i]` tells of `jobs[i]`.
///
/// # Panics
///
/// If a job lies outside the buffer or names a key that is not there, or if
/// `outcomes` is shorter than `jobs`.
#[inline(always)]
pub(crate) fn seal<V: Words, F: Field>(
    v: V,
    f: F,
    bytes: &mut [u8],
    keys: &[Key],
    jobs: &[Job],
    outcomes: &mut [Outcome],
) {
    let mut chunk = Chunk::new();
    let mut rest = jobs;
    while let Some(jobs) = next_chunk(&mut rest) {
        for (index, job) in jobs.iter().enumerate() {
            let key = &keys[job.key as usize];
            let first = chunk.xor_long(v, bytes, job, key);
            if first > 1 {
                chunk.push(v, bytes, jobs, key, index, 0..1);
                chunk.push(v, bytes, jobs, key, index, first..job.blocks());
            } else {
                chunk.push(v, bytes, jobs, key, index, 0..job.blocks());
            }
        }
        chunk.flush(v, bytes, jobs);
        chunk.tag(f, bytes, jobs);
        chunk.forget_keys(jobs.len());
        for (job, tag) in jobs.iter().zip(&chunk.tags) {
            bytes[job.tag()].copy_from_slice(tag);
        }
    }
    outcomes[..jobs.len()].fill(Outcome::Sealed);
}

/// Opens every job; `outcomes[i]` tells of `jobs[i]`.
///
/// # Panics
///
/// As [`seal`].
#[inline(always)]
pub(crate) fn open<V: Words, F: Field>(
    v: V,
    f: F,
    bytes: &mut [u8],
    keys: &[Key],
    jobs: &[Job],
    outcomes: &mut [Outcome],
) {
    let mut chunk = Chunk::new();
    let mut rest = jobs;
    let mut outcomes = &mut outcomes[..jobs.len()];
    while let Some(jobs) = next_chunk(&mut rest) {
        // Few packets: one call has room for their keys and their texts.
        let few = jobs.iter().map(|job| job.blocks() as usize).sum::<usize>() <= V::LANES;
        for (index, job) in jobs.iter().enumerate() {
            let key = &keys[job.key as usize];
            let blocks = if few { job.blocks() } else { 1 };
            chunk.push(v, bytes, jobs, key, index, 0..blocks);
        }
        chunk.run(v);
        chunk.take_keys();
        chunk.tag(f, bytes, jobs);
        chunk.forget_keys(jobs.len());
        let verdicts;
        (verdicts, outcomes) = outcomes.split_at_mut(jobs.len());
        for ((job, tag), verdict) in jobs.iter().zip(&chunk.tags).zip(&mut *verdicts) {
            let sent = u128::from_le_bytes(bytes[job.tag()].try_into().expect("TAG_LEN bytes"));
            let differ = u128::from_le_bytes(*tag) ^ sent;
            // One comparison of 64 bits: `subtle` would make sixteen of the bytes.
            let differ = (differ | differ >> 64) as u64;
            let authentic = bool::from(differ.ct_eq(&0));
            *verdict = [Outcome::Forged, Outcome::Authentic][usize::from(authentic)];
        }
        let authentic = |index: usize| verdicts[index] == Outcome::Authentic;
        if few {
            chunk.take_texts(v, bytes, jobs, authentic);
            chunk.clear();
        } else {
            chunk.clear();
            for (index, job) in jobs.iter().enumerate() {
                if authentic(index) {
                    let key = &keys[job.key as usize];
                    let first = chunk.xor_long(v, bytes, job, key);
                    chunk.push(v, bytes, jobs, key, index, first..job.blocks());
                }
            }
            chunk.flush(v, bytes, jobs);
        }
    }
}

/// Takes the next chunk from the front of `jobs`.
#[inline(always)]
fn next_chunk<'j>(jobs: &mut &'j [Job]) -> Option<&'j [Job]> {
    let mut len = 0;
    let mut bytes = 0;
    for job in jobs.iter().take(CHUNK) {
        if len > 0 && bytes + job.text_len as usize > CHUNK_BYTES {
            break;
        }
        bytes += job.text_len as usize;
        len += 1;
    }
    let (chunk, rest) = jobs.split_at(len);
    *jobs = rest;
    (len > 0).then_some(chunk)
}

/// Neighbouring blocks of one packet's keystream in neighbouring lanes.
#[derive(Clone, Copy)]
struct Run {
    /// Which packet of the chunk.
    index: usize,
    /// The number of the first block. Block 0 is the one-time key, and block n
    /// goes into the text from byte 64 (n - 1) on.
    counter: u32,
    /// How many blocks.
    blocks: usize,
}

/// What is known of the packets of one chunk. Wiped on drop.
struct Chunk<'k> {
    /// The blocks of the next call.
    blocks: Blocks<'k>,
    /// What is in its lanes, from the first on.
    runs: ArrayVec<Run, MAX_LANES>,
    /// How many lanes are set.
    lanes: usize,
    /// The one-time key of each packet.
    one_time_keys: [[u8; 32]; CHUNK],
    /// The tag of each packet.
    tags: [[u8; TAG_LEN]; CHUNK],
}

impl<'k> Chunk<'k> {
    #[inline(always)]
    fn new() -> Self {
        Self {
            blocks: Blocks::new(),
            runs: ArrayVec::new_const(),
            lanes: 0,
            one_time_keys: [[0; 32]; CHUNK],
            tags: [[0; TAG_LEN]; CHUNK],
        }
    }

    /// Encrypts or decrypts the whole runs of `LANES` blocks that a long text
    /// begins with. Returns the number of the first block that is left.
    #[inline(always)]
    fn xor_long<V: Words>(&mut self, v: V, bytes: &mut [u8], job: &Job, key: &'k Key) -> u32 {
        if (job.text_len as usize) < V::LANES * BLOCK_LEN {
            return 1;
        }
        let done = chacha20::xor_runs(v, key, &job.nonce, 1, &mut bytes[job.text()]);
        1 + (done / BLOCK_LEN) as u32
    }

    /// Adds blocks of a packet to the flat list. Each time that the list fills a
    /// call, that is made.
    #[inline(always)]
    fn push<V: Words>(
        &mut self,
        v: V,
        bytes: &mut [u8],
        jobs: &[Job],
        key: &'k Key,
        index: usize,
        mut counters: Range<u32>,
    ) {
        while !counters.is_empty() {
            if self.lanes == V::LANES {
                self.flush(v, bytes, jobs);
            }
            let counter = counters.start;
            let blocks = counters.len().min(V::LANES - self.lanes);
            counters.start += blocks as u32;
            for (lane, counter) in (self.lanes..self.lanes + blocks).zip(counter..) {
                self.blocks.set(lane, key, &jobs[index].nonce, counter);
            }
            self.lanes += blocks;
            self.runs.push(Run {
                index,
                counter,
                blocks,
            });
        }
    }

    /// Computes the blocks in the list and takes each to its place.
    #[inline(always)]
    fn flush<V: Words>(&mut self, v: V, bytes: &mut [u8], jobs: &[Job]) {
        self.run(v);
        self.take_keys();
        self.take_texts(v, bytes, jobs, |_| true);
        self.clear();
    }

    /// Computes the blocks in the list.
    #[inline(always)]
    fn run<V: Words>(&mut self, v: V) {
        if self.lanes > 0 {
            self.blocks.run(v, self.lanes);
        }
    }

    /// Empties the list.
    #[inline(always)]
    fn clear(&mut self) {
        self.runs.clear();
        self.lanes = 0;
    }

    /// Keeps the one-time keys among the blocks.
    #[inline(always)]
    fn take_keys(&mut self) {
        let mut keystream = self.blocks.keystream();
        for run in &self.runs {
            let blocks;
            (blocks, keystream) = keystream.split_at(run.blocks);
            if run.counter == 0 {
                let (key, _) = blocks[0].split_first_chunk().expect("64 bytes");
                self.one_time_keys[run.index] = *key;
            }
        }
    }

    /// Exclusive-ors the blocks of the packets that are `wanted` into their texts.
    #[inline(always)]
    fn take_texts<V: Words>(
        &mut self,
        v: V,
        bytes: &mut [u8],
        jobs: &[Job],
        wanted: impl Fn(usize) -> bool,
    ) {
        let mut keystream = self.blocks.keystream();
        for run in &self.runs {
            let mut blocks;
            (blocks, keystream) = keystream.split_at(run.blocks);
            if !wanted(run.index) {
                continue;
            }
            let mut first = run.counter;
            if first == 0 {
                (first, blocks) = (1, &blocks[1..]);
            }
            let text = jobs[run.index].text();
            let start = text.start + BLOCK_LEN * (first as usize - 1);
            let end = text.end.min(start + BLOCK_LEN * blocks.len());
            let (whole, rest) = bytes[start..end].as_chunks_mut::<BLOCK_LEN>();
            for (piece, block) in whole.iter_mut().zip(blocks) {
                v.xor_bytes(piece, block);
            }
            if !rest.is_empty() {
                v.xor_bytes(rest, &blocks[whole.len()]);
            }
        }
    }

    /// Computes the tags of all packets from their ciphertext.
    #[inline(always)]
    fn tag<F: Field>(&mut self, f: F, bytes: &[u8], jobs: &[Job]) {
        let mut texts = ArrayVec::<Text, CHUNK>::new_const();
        for (index, job) in jobs.iter().enumerate() {
            if F::Longs::LANES > 1 && job.aad_len == 0 && job.text_len > 0 {
                let start = bytes[job.text().start..job.tag().end].as_ptr();
                texts.push(Text {
                    start,
                    len: job.text_len,
                    index,
                });
            } else {
                self.tag_alone(f, bytes, job, index);
            }
        }
        let mut texts = &mut texts[..];
        // Often they are all alike.
        if !texts.is_sorted_by(|a, b| a.len >= b.len) {
            texts.sort_unstable_by_key(|text| core::cmp::Reverse(text.len));
        }
        while !texts.is_empty() {
            let group;
            (group, texts) = texts.split_at_mut(poly1305::group::<F>(texts));
            if group.len() == 1
                || group.len() < F::Longs::LANES / 2 && group[0].len as usize >= LONG
            {
                for text in group {
                    self.tag_alone(f, bytes, &jobs[text.index], text.index);
                }
            } else {
                // SAFETY: the texts and the tags behind them lie in `bytes`, as their
                // slices above have shown.
                unsafe { poly1305::tags(f, group, &self.one_time_keys, &mut self.tags) }
            }
        }
    }

    /// Wipes the one-time keys of `packets` packets.
    #[inline(always)]
    fn forget_keys(&mut self, packets: usize) {
        self.one_time_keys[..packets].fill([0; 32]);
        zeroize::optimization_barrier(&self.one_time_keys);
    }

    /// Computes the tag of one packet by itself.
    #[inline(always)]
    fn tag_alone<F: Field>(&mut self, f: F, bytes: &[u8], job: &Job, index: usize) {
        let mut tagger = Tagger::new(&self.one_time_keys[index]);
        tagger.padded(f, &bytes[job.aad()]);
        tagger.padded(f, &bytes[job.text()]);
        tagger.lengths(job.aad_len.into(), job.text_len.into());
        self.tags[index] = tagger.finish();
    }
}

impl Drop for Chunk<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.forget_keys(CHUNK);
    }
}
