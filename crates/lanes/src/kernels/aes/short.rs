//! AES-GCM over short packets with one key: one packet per lane.
//!
//! ```text
//!              packet 0     packet 1     packet 2     packet 3
//! states[0]    counter 2    counter 2    counter 2    counter 2     text, block 0
//! states[1]    counter 3    counter 3    counter 3    counter 3     text, block 1
//! states[K-1]  counter 1    counter 1    counter 1    counter 1     mask of the tag
//! ```
//!
//! A packet of a few blocks leaves lanes empty if only its own blocks fill them, and pays alone for
//! the reduction of its hash, its tag and the first round of AES. Here consecutive packets with the
//! same number of blocks share all of these, and no sum crosses lanes.

use super::ctr::{counter_block, rounds_from, unroll};
use super::ghash::{Sum, power_of};
use super::key::{Block, GcmKey};
use crate::job::Job;
use crate::vector::{AesBlocks, MAX_BLOCKS};

/// Maximum number of text blocks of a short packet.
pub(super) const MAX: usize = 8;

/// Returns the number of text blocks of each of the first jobs, one for each lane, if they can
/// share vectors: if all have the same key, the same number of blocks, from 1 to [`MAX`], and a
/// block of AAD.
#[inline(always)]
pub(super) fn shared_blocks<B: AesBlocks>(_: B, jobs: &[Job]) -> Option<usize> {
    let blocks = |job: &Job| job.text_len.div_ceil(16);
    let count = blocks(&jobs[0]);
    if B::LANES == 1 || jobs.len() < B::LANES || !(1..=MAX as u32).contains(&count) {
        return None;
    }
    let share = |job: &Job| {
        (job.key == jobs[0].key) & (blocks(job) == count) & (1..=16).contains(&job.aad_len)
    };
    let all = jobs[..B::LANES]
        .iter()
        .fold(true, |all, job| all & share(job));
    all.then_some(count as usize)
}

/// Packets that share `K` vectors of keystream: one for each block of text, and the mask of the tag.
struct Packets<'k, B: AesBlocks, const K: usize> {
    key: &'k GcmKey,
    texts: [*mut u8; MAX_BLOCKS],
    /// Number of bytes in the last block of each text.
    last: [usize; MAX_BLOCKS],
    /// The AAD, with reversed bytes.
    aad: B::Vector,
    /// Both lengths in bits, with reversed bytes.
    lengths: B::Vector,
    /// The keystream of the text, and in the last vector the mask that is added to the hash to get
    /// the tag.
    keystream: [B::Vector; K],
}

impl<'k, B: AesBlocks, const K: usize> Packets<'k, B, K> {
    /// # Safety
    ///
    /// The first jobs must lie in the buffer that begins at `bytes`, and their key must be in
    /// `keys`. Their [`shared_blocks`] must be `K` - 1.
    #[inline(always)]
    unsafe fn new(b: B, bytes: *mut u8, keys: &[&'k GcmKey], jobs: &[Job]) -> Self {
        let jobs: [&Job; MAX_BLOCKS] = core::array::from_fn(|lane| &jobs[lane % B::LANES]);
        // SAFETY: the caller guarantees that the key is in the list.
        let key: &GcmKey = unsafe { keys.get_unchecked(jobs[0].key) };
        let nonces = jobs.map(|job| {
            let [n0, n1, n2, n3, n4, n5, n6, n7, n8, n9, n10, n11] = job.nonce;
            let front = u64::from_le_bytes([n0, n1, n2, n3, n4, n5, n6, n7]);
            let back = u32::from_le_bytes([n8, n9, n10, n11]);
            (u128::from(front) | u128::from(back) << 64).to_le_bytes()
        });
        let first = b.xor(
            b.gather(&nonces.each_ref(), 0),
            b.splat(&key.cipher.keys[0]),
        );
        let mut keystream = [first; K];
        unroll!(K, |i| {
            let counter = if i + 1 == K { 1 } else { 2 + i as u32 };
            keystream[i] = b.xor(first, b.splat(&counter_block(counter)));
        });
        rounds_from(b, &key.cipher, 1, &mut keystream);
        let bits = |len: u32| u128::from(u64::from(len) << 3);
        let lengths = jobs
            .map(|job| bits(job.aad_len) << 64 | bits(job.text_len))
            .map(u128::to_le_bytes);
        // SAFETY: the caller guarantees that AAD and text lie in the buffer.
        unsafe {
            let aads = jobs.map(|job| bytes.add(job.aad as usize).cast_const());
            Self {
                key,
                texts: jobs.map(|job| bytes.add(job.text as usize)),
                last: jobs.map(|job| job.text_len as usize - 16 * (K - 2)),
                aad: b.reverse(b.gather_first(aads, jobs.map(|job| job.aad_len as usize))),
                lengths: b.gather(&lengths.each_ref(), 0),
                keystream,
            }
        }
    }

    /// Block `i` of each text, with zeros after its end.
    ///
    /// # Safety
    ///
    /// The texts must be readable, and `i` below `K` - 1.
    #[inline(always)]
    unsafe fn load(&self, b: B, i: usize) -> B::Vector {
        let sources = self.texts.map(|text| text.wrapping_add(16 * i));
        // SAFETY: the caller guarantees the texts, which have `K` - 1 blocks, of which only
        // the last may lack bytes.
        unsafe {
            if i + 2 == K {
                return b.gather_first(sources.map(<*mut u8>::cast_const), self.last);
            }
            b.gather(&sources.map(|source| &*source.cast::<Block>()), 0)
        }
    }

    /// Writes block `i` of each text.
    ///
    /// # Safety
    ///
    /// As for [`load`](Self::load), and the texts must be writable.
    #[inline(always)]
    unsafe fn store(&self, b: B, i: usize, blocks: B::Vector) {
        let places = self.texts.map(|text| text.wrapping_add(16 * i));
        let lens = if i + 2 == K {
            self.last
        } else {
            [16; MAX_BLOCKS]
        };
        // SAFETY: as in `load`.
        unsafe { b.scatter_first(blocks, places, lens) };
    }

    /// Computes the tags of ciphertext, whose last vector is not used.
    #[inline(always)]
    fn tags(&self, b: B, texts: [B::Vector; K]) -> B::Vector {
        let mut sum = Sum::zero(b);
        sum.add(b, self.aad, power_of(b, self.key, K + 1));
        unroll!(K - 1, |i| sum.add(
            b,
            b.reverse(texts[i]),
            power_of(b, self.key, K - i)
        ));
        sum.add(b, self.lengths, power_of(b, self.key, 1));
        b.xor(b.reverse(sum.reduced(b)), self.keystream[K - 1])
    }

    /// Returns the addresses of the tags.
    #[inline(always)]
    fn places_of_tags(&self) -> [*mut u8; MAX_BLOCKS] {
        core::array::from_fn(|lane| self.texts[lane].wrapping_add(16 * (K - 2) + self.last[lane]))
    }
}

/// Seals the first jobs, one for each lane.
///
/// # Safety
///
/// The first jobs, with their tags, must lie in the buffer that begins at `bytes`, which must be
/// writable, and their key must be in `keys`. Their [`shared_blocks`] must be `K` - 1.
#[inline(always)]
pub(super) unsafe fn seal<B: AesBlocks, const K: usize>(
    b: B,
    bytes: *mut u8,
    keys: &[&GcmKey],
    jobs: &[Job],
) {
    // SAFETY: the caller guarantees the jobs, with their tags.
    unsafe {
        let packets = Packets::<B, K>::new(b, bytes, keys, jobs);
        let mut texts = packets.keystream;
        unroll!(K - 1, |i| texts[i] = b.xor(texts[i], packets.load(b, i)));
        texts[K - 2] = b.first_of_each(texts[K - 2], packets.last);
        unroll!(K - 1, |i| packets.store(b, i, texts[i]));
        let tags = packets.tags(b, texts);
        b.scatter_first(tags, packets.places_of_tags(), [16; MAX_BLOCKS]);
    }
}

/// Opens those of the first jobs, one for each lane, whose tags are correct. `differences[i]`
/// becomes 0 if the tag of job `i` is correct, otherwise nonzero.
///
/// # Safety
///
/// As for [`seal`].
#[inline(always)]
pub(super) unsafe fn open<B: AesBlocks, const K: usize>(
    b: B,
    bytes: *mut u8,
    keys: &[&GcmKey],
    jobs: &[Job],
    differences: &mut [u64],
) {
    // SAFETY: the caller guarantees the jobs, with their tags.
    unsafe {
        let packets = Packets::<B, K>::new(b, bytes, keys, jobs);
        let mut texts = [b.zero(); K];
        unroll!(K - 1, |i| texts[i] = packets.load(b, i));
        let sent = packets.places_of_tags().map(|place| &*place.cast());
        let equal = b.equal(packets.tags(b, texts), b.gather(&sent, 0));
        unroll!(K - 1, |i| {
            let keystream = b.and(packets.keystream[i], equal);
            packets.store(b, i, b.xor(texts[i], keystream));
        });
        let mut numbers = [0_u128; MAX_BLOCKS];
        b.store(equal, numbers.as_mut_ptr().cast());
        for (difference, equal) in differences[..B::LANES].iter_mut().zip(numbers) {
            *difference = !(equal as u64);
        }
    }
}
