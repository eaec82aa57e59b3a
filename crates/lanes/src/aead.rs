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

    /// How many blocks of keystream it takes: one for its key, and its text's.
    fn blocks(&self) -> usize {
        1 + (self.text_len as usize).div_ceil(BLOCK_LEN)
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
            chunk.push_key(v, bytes, job, key);
            chunk.push_text(v, bytes, job, key, index);
        }
        chunk.flush(v, bytes);
        chunk.tag(f, bytes, jobs);
        chunk.forget_keys();
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
        let few = jobs.iter().map(Job::blocks).sum::<usize>() <= V::LANES;
        for (index, job) in jobs.iter().enumerate() {
            let key = &keys[job.key as usize];
            chunk.push_key(v, bytes, job, key);
            if few {
                chunk.push_text(v, bytes, job, key, index);
            }
        }
        chunk.run(v);
        chunk.take_keys();
        chunk.tag(f, bytes, jobs);
        chunk.forget_keys();
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
        if few {
            chunk.take_texts(v, bytes, |index| verdicts[index] == Outcome::Authentic);
            chunk.places.clear();
        } else {
            chunk.places.clear();
            for (index, job) in jobs.iter().enumerate() {
                if verdicts[index] == Outcome::Authentic {
                    chunk.push_text(v, bytes, job, &keys[job.key as usize], index);
                }
            }
            chunk.flush(v, bytes);
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

/// Where a block of keystream goes.
#[derive(Clone, Copy)]
enum Place {
    /// Block 0: it is the one-time key of the chunk's next packet.
    Key,
    /// Into the text of a packet of the chunk.
    Text {
        /// Which packet.
        index: usize,
        /// Where the block's part of the text begins in the buffer.
        start: usize,
        /// How long that part is, at most [`BLOCK_LEN`].
        len: usize,
    },
}

/// What is known of the packets of one chunk. Wiped on drop.
struct Chunk<'k> {
    /// The blocks of the next call.
    blocks: Blocks<'k>,
    /// Where the block of each lane that is set goes.
    places: ArrayVec<Place, MAX_LANES>,
    /// The one-time key of each packet.
    one_time_keys: ArrayVec<[u8; 32], CHUNK>,
    /// The tag of each packet.
    tags: [[u8; TAG_LEN]; CHUNK],
}

impl<'k> Chunk<'k> {
    #[inline(always)]
    fn new() -> Self {
        Self {
            blocks: Blocks::new(),
            places: ArrayVec::new_const(),
            one_time_keys: ArrayVec::new_const(),
            tags: [[0; TAG_LEN]; CHUNK],
        }
    }

    /// Adds block 0 of a packet to the flat list.
    #[inline(always)]
    fn push_key<V: Words>(&mut self, v: V, bytes: &mut [u8], job: &Job, key: &'k Key) {
        self.push(v, bytes, job, key, 0, Place::Key);
    }

    /// Adds the blocks of a packet's text to the flat list.
    #[inline(always)]
    fn push_text<V: Words>(
        &mut self,
        v: V,
        bytes: &mut [u8],
        job: &Job,
        key: &'k Key,
        index: usize,
    ) {
        let text = job.text();
        let mut counter = 1;
        let mut start = text.start;
        while start < text.end {
            let len = (text.end - start).min(BLOCK_LEN);
            self.push(
                v,
                bytes,
                job,
                key,
                counter,
                Place::Text { index, start, len },
            );
            start += len;
            counter += 1;
        }
    }

    /// Adds a block to the flat list, after a call's worth of them has been
    /// computed.
    #[inline(always)]
    fn push<V: Words>(
        &mut self,
        v: V,
        bytes: &mut [u8],
        job: &Job,
        key: &'k Key,
        counter: u32,
        place: Place,
    ) {
        if self.places.len() == V::LANES {
            self.flush(v, bytes);
        }
        self.blocks.set(self.places.len(), key, &job.nonce, counter);
        self.places.push(place);
    }

    /// Computes the blocks in the list and takes each to its place.
    #[inline(always)]
    fn flush<V: Words>(&mut self, v: V, bytes: &mut [u8]) {
        self.run(v);
        self.take_keys();
        self.take_texts(v, bytes, |_| true);
        self.places.clear();
    }

    /// Computes the blocks in the list.
    #[inline(always)]
    fn run<V: Words>(&mut self, v: V) {
        if !self.places.is_empty() {
            self.blocks.run(v, self.places.len());
        }
    }

    /// Keeps the one-time keys among the blocks.
    #[inline(always)]
    fn take_keys(&mut self) {
        for (place, block) in self.places.iter().zip(self.blocks.keystream()) {
            if let Place::Key = place {
                let (key, _) = block.split_first_chunk().expect("64 bytes");
                self.one_time_keys.push(*key);
            }
        }
    }

    /// Exclusive-ors the blocks of the packets that are `wanted` into their texts.
    #[inline(always)]
    fn take_texts<V: Words>(&mut self, v: V, bytes: &mut [u8], wanted: impl Fn(usize) -> bool) {
        for (place, block) in self.places.iter().zip(self.blocks.keystream()) {
            if let &Place::Text { index, start, len } = place
                && wanted(index)
            {
                v.xor_bytes(&mut bytes[start..start + len], block);
            }
        }
    }

    /// Computes the tags of all packets from their ciphertext.
    #[inline(always)]
    fn tag<F: Field>(&mut self, f: F, bytes: &[u8], jobs: &[Job]) {
        let mut texts = ArrayVec::<Text, CHUNK>::new_const();
        for (index, job) in jobs.iter().enumerate() {
            if F::Longs::LANES > 1 && job.aad_len == 0 && job.text_len > 0 {
                let start = bytes[job.text()].as_ptr();
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
                // SAFETY: the texts lie in `bytes`, as their slices above have
                // shown.
                unsafe { poly1305::tags(f, group, &self.one_time_keys, &mut self.tags) }
            }
        }
    }

    /// Wipes the one-time keys.
    #[inline(always)]
    fn forget_keys(&mut self) {
        self.one_time_keys.fill([0; 32]);
        zeroize::optimization_barrier(&self.one_time_keys);
        self.one_time_keys.clear();
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
        self.forget_keys();
    }
}
