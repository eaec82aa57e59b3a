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

use crate::chacha20::{BLOCK_LEN, Blocks, Key, Nonce};
use crate::poly1305::{self, Field, LONG, TAG_LEN, Tagger, Text};
use crate::vector::{Longs, MAX_LANES, Words};
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

    /// How many blocks of keystream its text takes.
    fn blocks(&self) -> u32 {
        self.text_len.div_ceil(BLOCK_LEN as u32)
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
        for (j, job) in jobs.iter().enumerate() {
            let key = &keys[job.key as usize];
            for counter in 0..=job.blocks() {
                chunk.push(v, bytes, jobs, j, counter, key);
            }
        }
        chunk.flush(v, bytes, jobs);
        chunk.tag(f, bytes, jobs);
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
        for (j, job) in jobs.iter().enumerate() {
            chunk.push(v, bytes, jobs, j, 0, &keys[job.key as usize]);
        }
        chunk.flush(v, bytes, jobs);
        chunk.tag(f, bytes, jobs);
        let verdicts;
        (verdicts, outcomes) = outcomes.split_at_mut(jobs.len());
        for ((job, tag), verdict) in jobs.iter().zip(&chunk.tags).zip(&mut *verdicts) {
            let authentic = bool::from(tag[..].ct_eq(&bytes[job.tag()]));
            *verdict = [Outcome::Forged, Outcome::Authentic][usize::from(authentic)];
        }
        for (j, job) in jobs.iter().enumerate() {
            if verdicts[j] == Outcome::Authentic {
                for counter in 1..=job.blocks() {
                    chunk.push(v, bytes, jobs, j, counter, &keys[job.key as usize]);
                }
            }
        }
        chunk.flush(v, bytes, jobs);
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

/// What is known of the packets of one chunk. Wiped on drop.
struct Chunk<'k> {
    /// The blocks of the next call.
    blocks: Blocks<'k>,
    /// Job and block counter of each lane that is set.
    places: [(usize, u32); MAX_LANES],
    /// How many lanes are set.
    filled: usize,
    /// The one-time key of each packet.
    one_time_keys: [[u8; 32]; CHUNK],
    /// The tag of each packet.
    tags: [[u8; TAG_LEN]; CHUNK],
    /// How many packets there were at most, and so what needs wiping.
    used: usize,
}

impl<'k> Chunk<'k> {
    #[inline(always)]
    fn new() -> Self {
        Self {
            blocks: Blocks::new(),
            places: [(0, 0); MAX_LANES],
            filled: 0,
            one_time_keys: [[0; 32]; CHUNK],
            tags: [[0; TAG_LEN]; CHUNK],
            used: 0,
        }
    }

    /// Adds a block to the flat list, and computes a call's worth when it is
    /// there.
    #[inline(always)]
    fn push<V: Words>(
        &mut self,
        v: V,
        bytes: &mut [u8],
        jobs: &[Job],
        j: usize,
        counter: u32,
        key: &'k Key,
    ) {
        self.blocks.set(self.filled, key, &jobs[j].nonce, counter);
        self.places[self.filled] = (j, counter);
        self.filled += 1;
        if self.filled == V::LANES {
            self.flush(v, bytes, jobs);
        }
    }

    /// Computes the blocks that are set; block 0 of a packet is its one-time key,
    /// the others go into its text.
    #[inline(always)]
    fn flush<V: Words>(&mut self, v: V, bytes: &mut [u8], jobs: &[Job]) {
        if self.filled == 0 {
            return;
        }
        self.blocks.run(v, self.filled);
        for (&(j, counter), block) in self
            .places
            .iter()
            .zip(&self.blocks.keystream)
            .take(self.filled)
        {
            if counter == 0 {
                self.one_time_keys[j].copy_from_slice(&block[..32]);
            } else {
                let text = &mut bytes[jobs[j].text()];
                let start = (counter as usize - 1) * BLOCK_LEN;
                let end = text.len().min(start + BLOCK_LEN);
                v.xor_bytes(&mut text[start..end], block);
            }
        }
        self.filled = 0;
    }

    /// Computes the tags of all packets from their ciphertext.
    #[inline(always)]
    fn tag<F: Field>(&mut self, f: F, bytes: &[u8], jobs: &[Job]) {
        self.used = self.used.max(jobs.len());
        let mut texts = [Text {
            start: bytes.as_ptr(),
            len: 0,
            index: 0,
        }; CHUNK];
        let mut beside = 0;
        for (index, job) in jobs.iter().enumerate() {
            if F::Longs::LANES > 1 && job.aad_len == 0 && job.text_len > 0 {
                let start = bytes[job.text()].as_ptr();
                texts[beside] = Text {
                    start,
                    len: job.text_len,
                    index,
                };
                beside += 1;
            } else {
                self.tag_alone(f, bytes, job, index);
            }
        }
        let mut texts = &mut texts[..beside];
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
                // SAFETY: the texts lie in `bytes`, as their slices above have
                // shown.
                unsafe { poly1305::tags(f, group, &self.one_time_keys, &mut self.tags) }
            }
        }
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
        self.one_time_keys[..self.used].fill([0; 32]);
        zeroize::optimization_barrier(&self.one_time_keys);
    }
}
