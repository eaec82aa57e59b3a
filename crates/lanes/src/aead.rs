//! ChaCha20-Poly1305 (RFC 8439, section 2.8) over a list of packets that lie in
//! one buffer.
//!
//! The packets become one flat list of ChaCha20 blocks: of each packet first
//! block 0, which is its one-time Poly1305 key, then those of its text. The list
//! is cut into calls of as many blocks as the vector has lanes, wherever packets
//! begin and end, so that all lanes but those of the last call are busy. The
//! blocks of a call are consumed in the list's order, which is what lets a
//! packet be checked before the first byte of its text is decrypted.

use crate::chacha20::{self, BLOCK_LEN, Blocks, Key, Nonce};
use crate::poly1305::{TAG_LEN, Tagger};
use crate::vector::{MAX_LANES, Words};
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

/// Seals or opens every job; `outcomes[i]` tells of `jobs[i]`.
///
/// # Panics
///
/// If a job lies outside the buffer or names a key that is not there, or if
/// `outcomes` is shorter than `jobs`.
#[inline(always)]
pub(crate) fn run<V: Words, const SEAL: bool>(
    v: V,
    bytes: &mut [u8],
    keys: &[Key],
    jobs: &[Job],
    outcomes: &mut [Outcome],
) {
    let mut walk = Walk {
        blocks: Blocks::new(),
        places: [(0, 0); MAX_LANES],
        filled: 0,
        current: None,
    };
    for (j, job) in jobs.iter().enumerate() {
        let key = &keys[job.key as usize];
        let last = job.text_len.div_ceil(BLOCK_LEN as u32);
        for counter in 0..=last {
            walk.blocks.set(walk.filled, key, &job.nonce, counter);
            walk.places[walk.filled] = (j, counter);
            walk.filled += 1;
            if walk.filled == V::LANES {
                walk.flush::<V, SEAL>(v, bytes, jobs, outcomes);
            }
        }
    }
    walk.flush::<V, SEAL>(v, bytes, jobs, outcomes);
}

/// The blocks of the next call and what is known of the packet they stand in.
struct Walk {
    blocks: Blocks,
    /// Job and block counter of each lane.
    places: [(usize, u32); MAX_LANES],
    /// How many lanes are set.
    filled: usize,
    /// The packet whose block 0 came last: sealing, its tag so far.
    current: Option<Tagger>,
}

impl Walk {
    /// Computes the blocks of the lanes that are set and consumes them.
    #[inline(always)]
    fn flush<V: Words, const SEAL: bool>(
        &mut self,
        v: V,
        bytes: &mut [u8],
        jobs: &[Job],
        outcomes: &mut [Outcome],
    ) {
        if self.filled == 0 {
            return;
        }
        self.blocks.run(v);
        for lane in 0..self.filled {
            let (j, counter) = self.places[lane];
            let (job, outcome) = (&jobs[j], &mut outcomes[j]);
            let block = &self.blocks.keystream[lane];
            if counter == 0 {
                let mut one_time_key = zeroize::Zeroizing::new([0; 32]);
                one_time_key.copy_from_slice(&block[..32]);
                let mut tagger = Tagger::new(&one_time_key);
                tagger.padded(&bytes[job.aad()]);
                if SEAL {
                    self.current = Some(tagger);
                } else {
                    let tag = tag(tagger, bytes, job);
                    let authentic = bool::from(tag[..].ct_eq(&bytes[job.tag()]));
                    *outcome = [Outcome::Forged, Outcome::Authentic][usize::from(authentic)];
                }
            } else if SEAL || *outcome == Outcome::Authentic {
                let text = &mut bytes[job.text()];
                let start = (counter as usize - 1) * BLOCK_LEN;
                let end = text.len().min(start + BLOCK_LEN);
                chacha20::xor(&mut text[start..end], block);
            }
            if SEAL
                && counter == job.text_len.div_ceil(BLOCK_LEN as u32)
                && let Some(tagger) = self.current.take()
            {
                let tag = tag(tagger, bytes, job);
                bytes[job.tag()].copy_from_slice(&tag);
                *outcome = Outcome::Sealed;
            }
        }
        self.filled = 0;
    }
}

/// The tag of a job whose AAD `tagger` has taken in.
#[inline(always)]
fn tag(mut tagger: Tagger, bytes: &[u8], job: &Job) -> [u8; TAG_LEN] {
    tagger.padded(&bytes[job.text()]);
    tagger.lengths(job.aad_len.into(), job.text_len.into());
    tagger.finish()
}
