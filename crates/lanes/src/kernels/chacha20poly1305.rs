//! ChaCha20 and Poly1305 in one kernel (RFC 8439, section 2.8).
//!
//! ```text
//! one-time key = the first 32 bytes of keystream block 0
//! ciphertext   = text xor keystream blocks 1, 2, ...
//! tag          = Poly1305 of AAD, padding, ciphertext, padding, both lengths
//! ```
//!
//! Optimisations:
//!
//! 1. [`short`]: packets of at most one block of text, one packet per lane. Block 0 of each packet
//!    stays in registers, in the form in which Poly1305 in lanes needs the one-time key.
//! 2. [`lockstep`]: packets with the same number of blocks, also one packet per lane.
//! 3. [`stitched_rows`]: the rounds of a few blocks in vectors, interleaved with Poly1305 of other
//!    ciphertext in general registers. [`seal_stitched`] and [`open_stitched`]: the same for the
//!    many blocks of a long packet, in lanes.

use super::chacha20::{
    self, CounterRow, Keystream, Lockstep, OnePerLane, QuarterRounds, Stitch, Stitched,
    key_and_first_block,
};
use super::poly1305::field::{Field, wide};
use super::poly1305::in_lanes;
use super::poly1305::short::{ShortMessages, tags_of_short};
use super::poly1305::state::{InterleavedPoly1305, Poly1305, Unhashed, words};
use super::poly1305::text::Text;
use crate::job::{
    BLOCK_LEN, Block, Job, Key, Outcome, TAG_LEN, split_one_time_key, verdict, verdict_and_wipe,
};
use crate::vector::{
    Interleave, JoinU32Lanes, MAX_TAGS, Pair, Rows, U32Lanes, U64Lanes, mask, prefetch_at, xored,
};
use core::iter::Enumerate;
use core::mem::swap;
use core::ops::Range;

/// Computes keystream like [`chacha20::rows`], and hashes as many blocks of `text` as fit between
/// the rounds. Returns how many bytes were hashed.
#[inline(always)]
pub(crate) fn stitched_rows<R: Rows, const N: usize>(
    r: R,
    key_and_row: (&Key, &CounterRow),
    count: usize,
    keystream: &mut Keystream,
    at: usize,
    poly1305: &mut Poly1305,
    text: &[[u8; TAG_LEN]],
) -> usize {
    // Three blocks of Poly1305 take about as long as two rounds of ChaCha20.
    let mut interleaved = poly1305.interleave::<3>(text);
    chacha20::rows::<_, _, N>(r, key_and_row, count, keystream, at, &mut interleaved);
    TAG_LEN * (text.len() - interleaved.finish())
}

/// Encrypts blocks of a text, from `sealed` on, one block per lane, as long as they fill all lanes;
/// `row` is the last row of the first block's state. Between the rounds it hashes the ciphertext
/// from byte `hashed` on, as far as it exists; but first, in the rounds of the first blocks, the
/// rest of another message, if there is one. Returns how many blocks are sealed, and how many bytes
/// hashed.
#[inline(always)]
pub(crate) fn seal_stitched<V: U32Lanes>(
    v: V,
    key_and_row: (&Key, &CounterRow),
    text: &mut [Block],
    (mut sealed, mut hashed): (usize, usize),
    poly1305: &mut Poly1305,
    mut other: Option<&mut Unhashed<'_>>,
) -> (usize, usize) {
    let mut blocks = Stitched::new(v, key_and_row);
    while text.len() - sealed >= V::LANES {
        let (front, back) = text.split_at_mut(sealed);
        let (unhashed, _) = front.as_flattened()[hashed..].as_chunks();
        let (hash, message) = match &mut other {
            Some(other) => (&mut *other.poly1305, other.blocks),
            None => (&mut *poly1305, unhashed),
        };
        let mut interleaved = hash.interleave::<1>(message);
        let keystream = blocks.next(&mut interleaved);
        // Before continuing the hash: after it, sealing takes 4 % longer (Zen 4, AVX2).
        blocks.xor(&keystream, back);
        // The rounds have room for thirty blocks of Poly1305, and eight blocks of a text are
        // thirty-two.
        interleaved.update();
        interleaved.update();
        let done = message.len() - interleaved.finish();
        match other.take() {
            Some(other) => other.blocks = &other.blocks[done..],
            None => hashed += TAG_LEN * done,
        }
        sealed += V::LANES;
    }
    (sealed, hashed)
}

/// Decrypts blocks `opened` of a text, one block per lane; they must fill all lanes. `row` is the
/// last row of the first block's state. Between the rounds it hashes the ciphertext from byte
/// `hashed` on, at least what it is about to decrypt; everything before `opened` must be hashed
/// already. Returns how many bytes are hashed.
#[inline(always)]
pub(crate) fn open_stitched<V: U32Lanes>(
    v: V,
    key_and_row: (&Key, &CounterRow),
    text: &mut [Block],
    opened: Range<usize>,
    mut hashed: usize,
    poly1305: &mut Poly1305,
) -> usize {
    let mut blocks = Stitched::new(v, key_and_row);
    for first in opened.step_by(V::LANES) {
        let end = first + V::LANES;
        // More than the whole blocks of the text may be hashed already.
        let unhashed = text.as_flattened().get(hashed..).unwrap_or_default();
        let (unhashed, _) = unhashed.as_chunks();
        let mut interleaved = poly1305.interleave::<1>(unhashed);
        let keystream = blocks.next(&mut interleaved);
        // Like `seal_stitched`.
        interleaved.update();
        interleaved.update();
        hashed += TAG_LEN * (unhashed.len() - interleaved.finish());
        assert!(
            hashed >= BLOCK_LEN * end,
            "ciphertext is hashed before it is decrypted"
        );
        blocks.xor(&keystream, &mut text[first..end]);
    }
    hashed
}

/// Like [`stitched_rows`], with the keystream of [`chacha20::rows_in_lanes`].
#[inline(always)]
pub(crate) fn stitched_rows_in_lanes<V: U32Lanes, R: Rows, const N: usize>(
    v_and_r: (V, R),
    key_and_row: (&Key, &CounterRow),
    count: usize,
    keystream: &mut Keystream,
    at: usize,
    poly1305: &mut Poly1305,
    text: &[[u8; TAG_LEN]],
) -> usize {
    // Eight blocks of keystream cover 32 blocks of Poly1305.
    let mut interleaved = poly1305.interleave::<4>(text);
    let all = &mut interleaved;
    chacha20::rows_in_lanes::<_, _, _, N>(v_and_r, key_and_row, count, keystream, at, all);
    TAG_LEN * (text.len() - interleaved.finish())
}

impl<const N: usize> Interleave for InterleavedPoly1305<'_, N> {
    #[inline(always)]
    fn step(&mut self) {
        self.update();
    }
}

/// Seals packets, `LANES` at a time, or opens them if there are `outcomes`. Each packet has at most
/// [`MAX_SHORT_TEXT`](super::poly1305::short::MAX_SHORT_TEXT) bytes of text and
/// [`MAX_AAD`](super::poly1305::text::MAX_AAD) bytes of AAD. There must be at least one job. Each
/// packet takes two blocks of keystream; the first one, the one-time key, never leaves the
/// registers.
#[inline(always)]
#[allow(
    dead_code,
    reason = "not every target has vectors that are wide enough"
)]
pub(crate) fn short<V: U32Lanes, F: Field>(
    v: V,
    f: F,
    bytes: &mut [u8],
    keys: &[Key],
    jobs: &[Job],
    mut outcomes: Option<&mut [Outcome]>,
) where
    F::Lanes: JoinU32Lanes<V>,
{
    const { assert!(V::LANES == <F::Lanes as U64Lanes>::LANES) };
    let mut inputs = OnePerLane::new(keys, &jobs[0]);
    let mut blocks = Keystream::new();
    let mut messages = ShortMessages::new();
    let mut tags;
    for (group, jobs) in jobs.chunks(V::LANES).enumerate() {
        inputs.set(keys, jobs);
        messages.clear();
        let mut beginnings = Beginnings {
            v,
            bytes: &*bytes,
            jobs: jobs.iter().enumerate(),
            opens: outcomes.is_some(),
            messages: &mut messages,
        };
        let key = key_and_first_block(v, &inputs, &mut blocks, &mut beginnings);
        while beginnings.next().is_some() {}
        if outcomes.is_none() {
            for ((lane, job), block) in jobs.iter().enumerate().zip(blocks.blocks()) {
                let ciphertext = v.xor_padded(&mut bytes[job.text()], block);
                messages.set_text(v, lane, &ciphertext);
            }
        }
        let l = f.lanes();
        let r = (l.join_u32(key[0], key[1]), l.join_u32(key[2], key[3]));
        let pad = (l.join_u32(key[4], key[5]), l.join_u32(key[6], key[7]));
        tags = tags_of_short(f, &messages, r, pad);
        for ((lane, job), block) in jobs.iter().enumerate().zip(blocks.blocks()) {
            let tag = wide(tags[0][lane], tags[1][lane]).to_le_bytes();
            let Some(outcomes) = &mut outcomes else {
                bytes[job.tag()].copy_from_slice(&tag);
                continue;
            };
            let outcome = &mut outcomes[V::LANES * group + lane];
            *outcome = verdict(&bytes[job.tag()], &tag);
            if *outcome == Outcome::Authentic {
                v.xor_bytes(&mut bytes[job.text()], block);
            }
        }
    }
    // The tag computed for a forged packet would make that packet authentic.
    tags = [[0; MAX_TAGS]; 2];
    zeroize::optimization_barrier(&tags);
}

/// The parts of the messages of [`short`] packets that are known before their keystream: when
/// opening, including their texts.
struct Beginnings<'t, V> {
    v: V,
    bytes: &'t [u8],
    /// In lane order.
    jobs: Enumerate<core::slice::Iter<'t, Job>>,
    opens: bool,
    messages: &'t mut ShortMessages,
}

impl<V: U32Lanes> Beginnings<'_, V> {
    #[inline(always)]
    fn next(&mut self) -> Option<()> {
        let (v, bytes) = (self.v, self.bytes);
        let (lane, job) = self.jobs.next()?;
        let mut aad = None;
        if job.aad_len > 0 {
            aad = Some(v.padded(&bytes[job.aad()]));
        }
        let lengths = [job.aad_len, job.text_len];
        self.messages.begin(lane, aad.as_ref(), lengths);
        if self.opens {
            let ciphertext = v.padded(&bytes[job.text()]);
            self.messages.set_text(v, lane, &ciphertext);
        }
        Some(())
    }
}

impl<V: U32Lanes> Interleave for Beginnings<'_, V> {
    // Called nine times for sixteen lanes.
    #[inline(always)]
    fn step(&mut self) {
        self.next();
        self.next();
    }
}

/// Seals as many packets as two vectors have lanes, or opens them if there are `outcomes`: block 0
/// of all of them, then block 1 of all, and so on; and a tag in each lane. A block of the texts is
/// encrypted or decrypted between the rounds of the next one. When opening, the tags come first, so
/// that no keystream is kept until a verdict.
///
/// With `sources`, when sealing, the text of each packet after its first block is read from its
/// source, and only written to `bytes`.
///
/// # Panics
///
/// If the number of jobs is different. If they have AAD, no text or different numbers of blocks, or
/// are not sorted from the longest to the shortest. If a source is too short, or there are sources
/// when opening.
#[inline(always)]
#[allow(
    dead_code,
    reason = "not every target has vectors that are wide enough"
)]
pub(crate) fn lockstep<W: U32Lanes, F: Field>(
    w: W,
    f: F,
    bytes: &mut [u8],
    (keys, jobs, sources): (&[Key], &[Job], &[&[u8]]),
    mut outcomes: Option<&mut [Outcome]>,
) where
    F::Lanes: JoinU32Lanes<W>,
{
    const { assert!(W::LANES == <F::Lanes as U64Lanes>::LANES) };
    assert_eq!(jobs.len(), 2 * W::LANES, "a packet in each lane");
    let seals = outcomes.is_none();
    assert!(seals || sources.is_empty(), "packets to open are in place");
    let count = jobs[0].blocks() as usize - 1;
    assert!(count > 0, "the texts are not empty");
    let mut inputs = OnePerLane::new(keys, &jobs[0]);
    inputs.set(keys, jobs);
    let mut blocks = Lockstep::new(Pair(w), &inputs);
    let mut one_time_keys = blocks.one_time_keys();
    let (mut previous, mut current) = (&mut Keystream::new(), &mut Keystream::new());
    let l = f.lanes();
    let mut words;
    let mut forged = 0_u32;
    // Sealing encrypts texts and then hashes them; opening hashes and then decrypts them. A loop,
    // so that the code of both exists only once.
    for encrypts_or_decrypts in [seals, !seals] {
        if encrypts_or_decrypts {
            for at in 0..=count {
                let mut texts = LockstepTexts {
                    w,
                    bytes: &mut *bytes,
                    packets: jobs.iter().zip(previous.blocks()).enumerate(),
                    sources,
                    forged,
                    start: BLOCK_LEN * at.saturating_sub(1),
                };
                if at < count {
                    blocks.write_next(current, &mut texts);
                }
                while texts.next().is_some() {}
                swap(&mut previous, &mut current);
            }
            continue;
        }
        for (half, jobs) in jobs.chunks_exact(W::LANES).enumerate() {
            let first = W::LANES * half;
            let mut texts = [Text::NONE; MAX_TAGS];
            let texts = &mut texts[..W::LANES];
            for (text, job) in texts.iter_mut().zip(jobs) {
                assert!(job.aad_len == 0 && job.blocks() as usize - 1 == count);
                text.start = bytes[job.text().start..job.tag().end].as_ptr();
                text.len = job.text_len;
            }
            assert!(texts.is_sorted_by(|a, b| a.len >= b.len));
            macro_rules! key {
                ($i:literal) => {
                    l.join_u32(one_time_keys[$i][half], one_time_keys[$i + 1][half])
                };
            }
            // SAFETY: the slices have shown that each text and the tag after it lie in `bytes`. The texts
            // are sorted, none is empty and none has AAD, and they differ by less than a block of
            // keystream, as just asserted: so `group` allows that they share a call.
            words = unsafe {
                let (r, pad) = ((key!(0), key!(2)), (key!(4), key!(6)));
                in_lanes::tags_in_words(f, texts, r, pad)
            };
            for (lane, job) in jobs.iter().enumerate() {
                let tag = wide(words[0][lane], words[1][lane]).to_le_bytes();
                let Some(outcomes) = &mut outcomes else {
                    bytes[job.tag()].copy_from_slice(&tag);
                    continue;
                };
                let outcome = &mut outcomes[first + lane];
                *outcome = verdict(&bytes[job.tag()], &tag);
                forged |= u32::from(*outcome != Outcome::Authentic) << (first + lane);
            }
        }
    }
    one_time_keys = [[w.splat(0); 2]; 8];
    zeroize::optimization_barrier(&one_time_keys);
    // The tag computed for a forged packet would make that packet authentic.
    words = [[0; MAX_TAGS]; 2];
    zeroize::optimization_barrier(&words);
}

/// A block of the texts of [`lockstep`] packets, and its keystream.
struct LockstepTexts<'t, W, I> {
    w: W,
    bytes: &'t mut [u8],
    /// In lane order.
    packets: I,
    /// Sources of the texts after their first blocks, in lane order, if out of place.
    sources: &'t [&'t [u8]],
    /// A bit for each lane whose text must not change.
    forged: u32,
    /// Start of the block in each text.
    start: usize,
}

impl<'t, W, I> LockstepTexts<'t, W, I>
where
    W: U32Lanes,
    I: Iterator<Item = (usize, (&'t Job, &'t Block))>,
{
    /// XORs the keystream of the next lane into its text.
    #[inline(always)]
    fn next(&mut self) -> Option<()> {
        let (lane, (job, block)) = self.packets.next()?;
        if self.forged >> lane & 1 == 0 {
            let source = self.source(lane);
            let text = &mut self.bytes[job.text()][self.start..];
            // A whole block takes fewer instructions, because the compiler knows its length.
            match (text.first_chunk_mut::<BLOCK_LEN>(), source) {
                (Some(whole), None) => self.w.xor_bytes(whole, block),
                (Some(whole), Some(source)) => {
                    // The block after the next one: texts that lie far apart are processed one
                    // block at a time.
                    prefetch_at(source.as_ptr().wrapping_add(2 * BLOCK_LEN));
                    prefetch_at(whole.as_ptr().wrapping_add(2 * BLOCK_LEN));
                    // Not copied and then XORed in place: a block of two cache lines is slow to
                    // read right after it was written.
                    let source = source.first_chunk().expect("as long as the text");
                    *whole = xored(*source, *block);
                }
                (None, None) => self.w.xor_bytes(text, block),
                (None, Some(source)) => {
                    let mut last = self.w.padded(&source[..text.len()]);
                    self.w.xor_bytes(&mut last[..text.len()], block);
                    self.w.copy_first(text, &last);
                }
            }
        }
        Some(())
    }

    /// Returns the source of a lane's block, if out of place.
    #[inline(always)]
    fn source(&self, lane: usize) -> Option<&'t [u8]> {
        let start = self.start.checked_sub(BLOCK_LEN)?;
        Some(&self.sources.get(lane)?[start..])
    }
}

impl<'t, W, I> Interleave for LockstepTexts<'t, W, I>
where
    W: U32Lanes,
    I: Iterator<Item = (usize, (&'t Job, &'t Block))>,
{
    // Called ten times for thirty-two lanes; two are left.
    #[inline(always)]
    fn step(&mut self) {
        self.next();
        self.next();
        self.next();
    }
}

/// Like [`short`], but the hashes are computed one after the other in general registers, for CPUs
/// whose vectors multiply no faster. If `STITCHED`, the hashes of `LANES` packets are computed
/// between the rounds of the next packets.
#[inline(always)]
#[allow(
    dead_code,
    reason = "not every target has vectors that multiply so slowly"
)]
pub(crate) fn short_one_by_one<const STITCHED: bool, V: U32Lanes>(
    v: V,
    bytes: &mut [u8],
    keys: &[Key],
    jobs: &[Job],
    outcomes: Option<&mut [Outcome]>,
) {
    match outcomes {
        None => short_ones::<true, STITCHED, V>(v, bytes, keys, jobs, &mut []),
        Some(outcomes) => short_ones::<false, STITCHED, V>(v, bytes, keys, jobs, outcomes),
    }
}

/// Seals if `SEALS`, without outcomes; otherwise opens.
#[inline(always)]
fn short_ones<const SEALS: bool, const STITCHED: bool, V: U32Lanes>(
    v: V,
    bytes: &mut [u8],
    keys: &[Key],
    jobs: &[Job],
    mut outcomes: &mut [Outcome],
) {
    let mut inputs = OnePerLane::new(keys, &jobs[0]);
    let (mut previous, mut current) = (&mut Keystream::new(), &mut Keystream::new());
    let mut last: &[Job] = &[];
    for jobs in jobs.chunks(V::LANES) {
        inputs.set(keys, jobs);
        let (of_last, others) = outcomes.split_at_mut(if SEALS { 0 } else { last.len() });
        let mut packets = ShortPackets::<SEALS>::new(bytes, last, previous, of_last);
        match STITCHED && !last.is_empty() {
            true => inputs.write_first_two_stitched(v, current, &mut packets),
            false => inputs.write_first_two(v, current),
        }
        packets.finish();
        (last, outcomes) = (jobs, others);
        swap(&mut previous, &mut current);
    }
    ShortPackets::<SEALS>::new(bytes, last, previous, outcomes).finish();
}

/// Packets of at most one block of text whose keystream has been computed, one per lane: first
/// blocks 0 of all lanes, then blocks 1.
struct ShortPackets<'t, const SEALS: bool> {
    bytes: &'t mut [u8],
    jobs: core::slice::Iter<'t, Job>,
    first: core::slice::Iter<'t, Block>,
    second: core::slice::Iter<'t, Block>,
    /// Of packets to open.
    outcomes: core::slice::IterMut<'t, Outcome>,
}

impl<'t, const SEALS: bool> ShortPackets<'t, SEALS> {
    #[inline(always)]
    fn new(
        bytes: &'t mut [u8],
        jobs: &'t [Job],
        keystream: &'t Keystream,
        outcomes: &'t mut [Outcome],
    ) -> Self {
        let blocks = keystream.blocks();
        let (first, second) = blocks.split_at(blocks.len() / 2);
        Self {
            bytes,
            jobs: jobs.iter(),
            first: first.iter(),
            second: second.iter(),
            outcomes: outcomes.iter_mut(),
        }
    }

    /// Seals or opens the next packet between the rounds of `state`. Returns `None`, and runs no
    /// rounds, if no packet is left.
    #[inline(always)]
    fn next<S: QuarterRounds>(&mut self, state: &mut S) -> Option<()> {
        let job = self.jobs.next()?;
        let (first, block) = (self.first.next()?, self.second.next()?);
        let (one_time_key, _) = split_one_time_key(core::slice::from_ref(first));
        let mut poly1305 = Poly1305::new(one_time_key);
        poly1305.update_aad(self.bytes, job);
        let mut text = ShortText::of(self.bytes, job, block);
        match (S::HAS_ROUNDS, SEALS) {
            (true, _) => text.run_stitched::<SEALS>(state, &mut poly1305),
            (false, true) => text.encrypt(&mut poly1305),
            (false, false) => text.hash(&mut poly1305),
        }
        state.run::<0>();
        poly1305.update_lengths(job.aad_len.into(), job.text_len.into());
        state.run::<1>();
        let mut tag = poly1305.finish();
        state.run::<2>();
        if SEALS {
            *text.tag() = tag;
        } else {
            let outcome = self.outcomes.next().expect("one outcome for each job");
            *outcome = verdict_and_wipe(text.tag(), &mut tag);
            if *outcome == Outcome::Authentic {
                text.decrypt();
            }
        }
        state.run::<3>();
        Some(())
    }

    /// Seals or opens the remaining packets.
    #[inline(always)]
    fn finish(mut self) {
        while self.next(&mut ()).is_some() {}
    }
}

impl<const SEALS: bool> Stitch for ShortPackets<'_, SEALS> {
    #[inline(always)]
    fn two_double_rounds(&mut self, state: &mut impl QuarterRounds) {
        if self.next(state).is_none() {
            state.run_all();
            state.run_all();
        }
    }
}

/// A text of at most one block, or the rest of a text after its whole blocks, and the tag after it.
///
/// The text is read and written in pieces of 16 bytes, even if the last one overlaps the tag.
/// Writing fewer bytes in smaller pieces would stall the hash, which reads them as one piece right
/// afterwards.
pub(crate) struct ShortText<'t> {
    text_and_tag: &'t mut [u8],
    keystream: &'t [[u8; TAG_LEN]],
    /// Number of whole pieces.
    whole: usize,
    /// Number of bytes in the piece after them, possibly 0.
    rest: usize,
}

impl<'t> ShortText<'t> {
    /// Returns the text of a job, with block 1 of its keystream.
    #[inline(always)]
    pub(crate) fn of(bytes: &'t mut [u8], job: &Job, block: &'t Block) -> Self {
        Self::new(&mut bytes[job.text().start..job.tag().end], block)
    }

    /// Returns a text and the tag after it, with a block of keystream.
    #[inline(always)]
    pub(crate) fn new(text_and_tag: &'t mut [u8], block: &'t Block) -> Self {
        let len = text_and_tag.len() - TAG_LEN;
        assert!(len <= BLOCK_LEN, "a text of at most one block");
        let (keystream, _) = block.as_chunks();
        Self {
            text_and_tag,
            keystream,
            whole: len / TAG_LEN,
            rest: len % TAG_LEN,
        }
    }

    /// Encrypts the text, if it `SEALS`, and hashes the ciphertext, padded with zeros, within a
    /// double round.
    #[inline(always)]
    pub(crate) fn run_stitched<const SEALS: bool>(
        &mut self,
        state: &mut impl QuarterRounds,
        poly1305: &mut Poly1305,
    ) {
        let mut hash = poly1305.interleave::<1>(&[]);
        macro_rules! piece {
            ($i:literal) => {
                state.run::<$i>();
                if let Some(number) = self.piece::<SEALS>($i) {
                    hash.number(number);
                }
            };
        }
        piece!(0);
        piece!(1);
        piece!(2);
        piece!(3);
        hash.finish();
    }

    /// Encrypts piece `i`, if it `SEALS`, and returns its ciphertext to be hashed, padded with
    /// zeros. `None` if there is no such piece.
    // In general registers: between rounds, all vectors are in use.
    #[inline(always)]
    fn piece<const SEALS: bool>(&mut self, i: usize) -> Option<u128> {
        if i > self.whole || i == self.whole && self.rest == 0 {
            return None;
        }
        let (places, _) = self.text_and_tag.as_chunks_mut::<TAG_LEN>();
        let [mut low, mut high] = words(&places[i]);
        if SEALS {
            let keystream = words(&self.keystream[i]);
            (low, high) = (low ^ keystream[0], high ^ keystream[1]);
            let (halves, _) = places[i].as_chunks_mut();
            (halves[0], halves[1]) = (low.to_le_bytes(), high.to_le_bytes());
        }
        let number = wide(low, high);
        Some(match i == self.whole {
            true => number & mask(self.rest),
            false => number,
        })
    }

    /// Returns the tag.
    #[inline(always)]
    pub(crate) fn tag(&mut self) -> &mut [u8; TAG_LEN] {
        self.text_and_tag.last_chunk_mut().expect("a tag")
    }

    /// Encrypts the text, and hashes the ciphertext, padded with zeros.
    #[inline(always)]
    pub(crate) fn encrypt(&mut self, poly1305: &mut Poly1305) {
        let (places, _) = self.text_and_tag.as_chunks_mut::<TAG_LEN>();
        let ciphertext = places
            .iter_mut()
            .zip(self.keystream)
            .map(|(place, keystream)| {
                let number = u128::from_le_bytes(*place) ^ u128::from_le_bytes(*keystream);
                *place = number.to_le_bytes();
                number
            });
        poly1305.update_text(ciphertext, self.whole, self.rest);
    }

    /// Hashes the text, which is ciphertext, padded with zeros.
    #[inline(always)]
    pub(crate) fn hash(&mut self, poly1305: &mut Poly1305) {
        let (places, _) = self.text_and_tag.as_chunks::<TAG_LEN>();
        let ciphertext = places.iter().map(|place| u128::from_le_bytes(*place));
        poly1305.update_text(ciphertext, self.whole, self.rest);
    }

    /// Decrypts the text; the tag is unchanged.
    #[inline(always)]
    pub(crate) fn decrypt(&mut self) {
        let tag = *self.tag();
        let pieces = self.whole + usize::from(self.rest > 0);
        let (places, _) = self.text_and_tag.as_chunks_mut::<TAG_LEN>();
        for (place, keystream) in places.iter_mut().zip(self.keystream).take(pieces) {
            let number = u128::from_le_bytes(*place) ^ u128::from_le_bytes(*keystream);
            *place = number.to_le_bytes();
        }
        *self.tag() = tag;
    }
}
