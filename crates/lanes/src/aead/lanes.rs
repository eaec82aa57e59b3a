//! Many packets: the keystream blocks of all packets in one list, then one tag per lane.
//!
//! The jobs are processed in chunks. The ChaCha20 blocks of a chunk form one list, regardless of
//! packet boundaries. Each kernel call takes as many blocks from the list as the vector has lanes,
//! so that all lanes are busy except in the last call. Then the tags of the chunk are computed, one
//! packet per lane, packets of similar length together.
//!
//! Sealing: a packet's block 0, which holds its one-time Poly1305 key, comes before the blocks of
//! its text in the list. The tags come last.
//!
//! Opening: first the blocks 0 of all packets, then the tags, then the texts of the packets with
//! correct tags, so that nothing is decrypted before it is checked.
//!
//! Texts may be sealed out of place, except for their first blocks. Blocks that fill all lanes, or
//! half of them, are read from their source; others are copied first.

use super::strategy::{self, CHUNK, COUNTING_SORT_THRESHOLD, TagMethod};
use super::tag::tag;
use crate::isa::Set;
use crate::job::{BLOCK_LEN, Job, Key, Outcome, TAG_LEN, split_one_time_key, verdict};
use crate::kernels::chacha20::{Blocks, HalfRun, Run};
use crate::kernels::poly1305::text::{AAD_OVERREAD, MAX_AAD, Text};
use crate::vector::MAX_LANES;
use arrayvec::ArrayVec;
use core::ops::Range;

const _: () = assert!(MAX_LANES <= u8::MAX as usize && CHUNK <= u8::MAX as usize + 1);
// So that the numbers that `order` sorts fit.
const _: () = assert!(strategy::CHUNK_BYTES < 1 << 24);

// Not inlined: its arrays take several pages of stack, which single packets should not pay for.
#[inline(never)]
pub(super) fn seal(set: Set, bytes: &mut [u8], keys: &[Key], jobs: &[Job], mut sources: &[&[u8]]) {
    let mut chunk = Chunk::new();
    let mut rest = jobs;
    while !rest.is_empty() {
        let jobs;
        (jobs, rest) = rest.split_at(strategy::chunk(set, rest));
        (chunk.sources, sources) = sources.split_at(jobs.len().min(sources.len()));
        let order = chunk.begin(jobs);
        for index in indices(&order, jobs.len()) {
            let job = &jobs[index];
            if strategy::has_runs(set, job) {
                chunk.push(set, bytes, keys, jobs, index, 0..1);
                chunk.xor_runs(set, bytes, keys, jobs, index, 1);
            } else {
                // The text is short: block 0 shares a call with the text's blocks.
                chunk.push(set, bytes, keys, jobs, index, 0..job.blocks());
            }
        }
        chunk.finish(set, bytes, keys, jobs);
        chunk.tag(set, bytes, jobs, &order);
        chunk.wipe_keys();
        for (job, tag) in jobs.iter().zip(&chunk.tags) {
            bytes[job.tag()].copy_from_slice(tag);
        }
    }
}

// Not inlined, like `seal`.
#[inline(never)]
pub(super) fn open(
    set: Set,
    bytes: &mut [u8],
    keys: &[Key],
    jobs: &[Job],
    mut outcomes: &mut [Outcome],
) {
    let mut chunk = Chunk::new();
    let mut rest = jobs;
    while !rest.is_empty() {
        let one_call = strategy::one_call(set, rest);
        let in_one_call = one_call.is_some();
        let jobs;
        (jobs, rest) = rest.split_at(one_call.unwrap_or_else(|| strategy::chunk(set, rest)));
        let order = chunk.begin(jobs);
        // The one-time keys. Lanes left idle by them compute keystream of the texts; if one call
        // has room for everything, all of it. For each packet, from the longest on, the first block
        // that the call does not compute.
        let mut next_blocks = ArrayVec::<u32, CHUNK>::new();
        let with_key = match in_one_call {
            false => chunk.compute_keys(set, keys, jobs),
            true => 0,
        };
        for (index, job) in jobs.iter().enumerate().skip(with_key) {
            let to = if in_one_call { job.blocks() } else { 1 };
            chunk.push(set, bytes, keys, jobs, index, 0..to);
        }
        if !in_one_call {
            let mut room = match chunk.lanes {
                0 => 0,
                lanes => (set.block_lanes() - lanes) as u32,
            };
            for index in indices(&order, jobs.len()) {
                let job = &jobs[index];
                let to = job.blocks().min(1 + room);
                if to > 1 {
                    chunk.push(set, bytes, keys, jobs, index, 1..to);
                    room -= to - 1;
                }
                next_blocks.push(to);
            }
        }
        chunk.run(set);
        chunk.copy_keys();
        chunk.tag(set, bytes, jobs, &order);
        chunk.wipe_keys();
        let verdicts;
        (verdicts, outcomes) = outcomes.split_at_mut(jobs.len());
        for ((job, tag), outcome) in jobs.iter().zip(&chunk.tags).zip(&mut *verdicts) {
            *outcome = verdict(&bytes[job.tag()], tag);
        }
        let authentic = |index: usize| verdicts[index] == Outcome::Authentic;
        if !(0..jobs.len()).all(authentic) {
            chunk.runs.retain(|run| authentic(run.index()));
        }
        chunk.xor_list(set, bytes, jobs);
        if in_one_call {
            continue;
        }
        for (rank, index) in indices(&order, jobs.len()).enumerate() {
            if authentic(index) {
                chunk.xor(set, bytes, keys, jobs, index, next_blocks[rank]);
            }
        }
        chunk.finish(set, bytes, keys, jobs);
    }
}

/// The indices of a chunk's packets, from the longest to the shortest in blocks of 16 bytes. The
/// tags need that order, and branch prediction works better if each packet is similar to the one
/// before. Empty if the packets are already in that order.
type Order = ArrayVec<u8, CHUNK>;

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "chunks are small")]
fn order(jobs: &[Job]) -> Order {
    let mut order = Order::new();
    // Often all have the same length.
    if jobs.is_sorted_by(|a, b| a.text_len >= b.text_len) {
        return order;
    }
    // Sorts numbers, because sorting the jobs themselves takes longer.
    let mut keys = ArrayVec::<u32, CHUNK>::new();
    let mut longest = 0;
    for (index, job) in jobs.iter().enumerate() {
        longest = longest.max(job.text_len);
        // The texts of a chunk of several packets have fewer than 2^24 bytes in total.
        keys.push(!job.text_len.saturating_sub(1) << 8 | index as u32);
    }
    if jobs.len() >= COUNTING_SORT_THRESHOLD && longest <= LONGEST_COUNTED {
        return counted(&keys);
    }
    keys.sort_unstable();
    order.extend(keys.iter().map(|&key| key as u8));
    order
}

/// Radix-sorts the keys of [`order`] by blocks of 16 bytes: by two digits from bit 12 on (above 8
/// bits of index and 4 of bytes), the lower digit first. Counting the keys per digit gives the
/// place of each, which takes two thirds of the time of sorting by comparison.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "chunks are small")]
fn counted(keys: &[u32]) -> Order {
    let digit = |key: u32, n: usize| (key >> (12 + DIGIT_BITS * n as u32)) as usize % DIGITS;
    let mut next = [[0_u16; DIGITS]; 2];
    for &key in keys {
        next[0][digit(key, 0)] += 1;
        next[1][digit(key, 1)] += 1;
    }
    for next in &mut next {
        let mut sum = 0;
        for count in next {
            sum += core::mem::replace(count, sum);
        }
    }
    let mut sorted = [0; CHUNK];
    for &key in keys {
        let next = &mut next[0][digit(key, 0)];
        sorted[usize::from(*next) % CHUNK] = key;
        *next += 1;
    }
    let mut order = Order::from([0; CHUNK]);
    for &key in &sorted[..keys.len()] {
        let next = &mut next[1][digit(key, 1)];
        order[usize::from(*next) % CHUNK] = key as u8;
        *next += 1;
    }
    order.truncate(keys.len());
    order
}

/// The digits of [`counted`], in bits.
const DIGIT_BITS: u32 = 5;
const DIGITS: usize = 1 << DIGIT_BITS;

/// The longest text whose number has no bits above these digits, in bytes.
const LONGEST_COUNTED: u32 = 16 << (2 * DIGIT_BITS);

/// Returns the indices of `packets` packets in their order.
#[inline]
fn indices(order: &Order, packets: usize) -> impl Iterator<Item = usize> {
    (0..packets).map(|rank| order.get(rank).map_or(rank, |&index| index.into()))
}

/// The state of one chunk: blocks to compute, one-time keys and tags. Wiped on drop.
struct Chunk<'k> {
    /// The blocks of the next call.
    blocks: Blocks<'k>,
    /// The contents of the next call's lanes, from the first lane on.
    runs: ArrayVec<Run, MAX_LANES>,
    /// Number of lanes that are set.
    lanes: usize,
    /// Whether the packets are in an order other than that in memory.
    is_sorted: bool,
    /// Blocks for half the lanes that wait for another such half: the packet's index, and the
    /// number of the first block.
    half: Option<(usize, u32)>,
    /// Sources of the texts after their first blocks, if they are sealed out of place.
    sources: &'k [&'k [u8]],
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
            is_sorted: false,
            half: None,
            sources: &[],
            one_time_keys: ArrayVec::new(),
            tags: ArrayVec::new(),
        }
    }

    /// Allocates the one-time keys and tags of these packets. Returns the order in which to process
    /// them.
    #[inline]
    fn begin(&mut self, jobs: &[Job]) -> Order {
        const NO_KEYS: &[[u8; 32]; CHUNK] = &[[0; 32]; CHUNK];
        const NO_TAGS: &[[u8; TAG_LEN]; CHUNK] = &[[0; TAG_LEN]; CHUNK];
        self.tags.clear();
        let keys = self
            .one_time_keys
            .try_extend_from_slice(&NO_KEYS[..jobs.len()]);
        keys.expect("at most CHUNK packets");
        let tags = self.tags.try_extend_from_slice(&NO_TAGS[..jobs.len()]);
        tags.expect("at most CHUNK packets");
        let order = order(jobs);
        self.is_sorted = !order.is_empty();
        order
    }

    /// Encrypts or decrypts a text from block `from` on, which is at least 1.
    #[inline(always)]
    fn xor(
        &mut self,
        set: Set,
        bytes: &mut [u8],
        keys: &'k [Key],
        jobs: &[Job],
        index: usize,
        from: u32,
    ) {
        let job = &jobs[index];
        if strategy::has_runs(set, job) {
            self.xor_runs(set, bytes, keys, jobs, index, from);
        } else {
            self.push(set, bytes, keys, jobs, index, from..job.blocks());
        }
    }

    /// [`xor`](Self::xor) for a text that fills at least half the lanes. Blocks that fill all lanes
    /// are processed at once. Blocks that fill half of them wait for another text's half. The rest
    /// goes to the flat list.
    #[inline(never)]
    fn xor_runs(
        &mut self,
        set: Set,
        bytes: &mut [u8],
        keys: &'k [Key],
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
                let source = self.source(bytes, job, index, from);
                let source = source.map(|source| &source[..direct - BLOCK_LEN]);
                let runs = &mut bytes[start..start + direct];
                set.xor_keystream(job.key_in(keys), &job.nonce, from, source, runs);
                from += (direct / BLOCK_LEN) as u32;
            }
        }
        let half = set.block_lanes() / 2;
        if job.text_len as usize / BLOCK_LEN >= from as usize - 1 + half {
            match self.half.take() {
                None => self.half = Some((index, from)),
                Some(pending) => {
                    let runs = [pending, (index, from)].map(|(index, counter)| HalfRun {
                        key: jobs[index].key_in(keys),
                        nonce: &jobs[index].nonce,
                        counter,
                        start: jobs[index].text().start + BLOCK_LEN * (counter as usize - 1),
                        source: self.source(bytes, &jobs[index], index, counter),
                    });
                    set.xor_half_runs(bytes, runs);
                }
            }
            from += half as u32;
        }
        self.push(set, bytes, keys, jobs, index, from..job.blocks());
    }

    /// Copies blocks of a packet's text from their source, if it is out of place. Block 0 is not
    /// part of the text, and block 1, the first of the text, is already in place.
    #[inline(always)]
    fn copy_from(&self, bytes: &mut [u8], job: &Job, index: usize, blocks: Range<u32>) {
        if let Some(source) = self.sources.get(index) {
            let end = (BLOCK_LEN * (blocks.end as usize - 1)).min(job.text_len as usize);
            let start = BLOCK_LEN * (blocks.start as usize).max(2) - BLOCK_LEN;
            if start < end {
                let place = &mut bytes[job.text()][start..end];
                place.copy_from_slice(&source[start - BLOCK_LEN..end - BLOCK_LEN]);
            }
        }
    }

    /// Returns the source of the text after block `first`, if there is one, and copies that block
    /// into place.
    #[inline(always)]
    fn source(&self, bytes: &mut [u8], job: &Job, index: usize, first: u32) -> Option<&'k [u8]> {
        self.copy_from(bytes, job, index, first..first + 1);
        Some(&self.sources.get(index)?[BLOCK_LEN * (first as usize - 1)..])
    }

    /// Adds blocks of a packet to the flat list, and makes a call whenever the list is full. Their
    /// text is copied into place, because the list's keystream is XORed into it there.
    #[inline(always)]
    fn push(
        &mut self,
        set: Set,
        bytes: &mut [u8],
        keys: &'k [Key],
        jobs: &[Job],
        index: usize,
        counters: Range<u32>,
    ) {
        let job = &jobs[index];
        self.copy_from(bytes, job, index, counters.clone());
        let fits = self.lanes + counters.len() <= set.block_lanes();
        match fits && !counters.is_empty() {
            true => self.add(job.key_in(keys), job, index, counters),
            false => self.push_in_parts(set, bytes, keys, jobs, index, counters),
        }
    }

    /// Adds blocks to the next call, which must have room for them.
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

    /// [`push`](Self::push) for the cases that the next call has no room for all blocks, or that
    /// there are none to add.
    #[inline(never)]
    fn push_in_parts(
        &mut self,
        set: Set,
        bytes: &mut [u8],
        keys: &'k [Key],
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
            self.add(job.key_in(keys), job, index, counters.start..end);
            counters.start = end;
        }
    }

    /// Computes the blocks in the list and the waiting half, and XORs them into their texts.
    #[inline]
    fn finish(&mut self, set: Set, bytes: &mut [u8], keys: &'k [Key], jobs: &[Job]) {
        if let Some((index, from)) = self.half.take() {
            let to = from + set.block_lanes() as u32 / 2;
            self.push(set, bytes, keys, jobs, index, from..to);
        }
        self.flush(set, bytes, jobs);
    }

    /// Computes the blocks in the list, keeps the one-time keys among them, and XORs the others
    /// into their texts.
    #[inline(never)]
    fn flush(&mut self, set: Set, bytes: &mut [u8], jobs: &[Job]) {
        if self.lanes == 0 {
            return;
        }
        self.run(set);
        self.copy_keys();
        self.xor_list(set, bytes, jobs);
    }

    /// XORs the computed blocks, except one-time keys, into their texts, and empties the list.
    #[inline]
    fn xor_list(&mut self, set: Set, bytes: &mut [u8], jobs: &[Job]) {
        let (keystream, runs) = (self.blocks.keystream(), &self.runs);
        set.xor_runs(bytes, keystream, jobs, runs, self.is_sorted);
        self.runs.clear();
        self.lanes = 0;
    }

    /// Computes the one-time keys of the first packets, as many as fill all lanes of one or more
    /// calls, bypassing the list, which must be empty. Returns their number.
    #[inline]
    fn compute_keys(&mut self, set: Set, keys: &'k [Key], jobs: &[Job]) -> usize {
        let lanes = set.block_lanes();
        let calls = jobs.chunks_exact(lanes);
        let with_key = jobs.len() - calls.remainder().len();
        for (jobs, one_time_keys) in calls.zip(self.one_time_keys.chunks_exact_mut(lanes)) {
            for (lane, job) in jobs.iter().enumerate() {
                self.blocks.set(lane, job.key_in(keys), &job.nonce, 0..1);
            }
            set.blocks(&mut self.blocks, lanes);
            for (key, block) in one_time_keys.iter_mut().zip(self.blocks.keystream()) {
                key.copy_from_slice(split_one_time_key(core::slice::from_ref(block)).0);
            }
        }
        with_key
    }

    /// Computes the blocks in the list.
    #[inline]
    fn run(&mut self, set: Set) {
        if self.lanes > 0 {
            set.blocks(&mut self.blocks, self.lanes);
        }
    }

    /// Copies the one-time keys from the computed blocks.
    #[inline]
    fn copy_keys(&mut self) {
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
    fn tag(&mut self, set: Set, bytes: &[u8], jobs: &[Job], order: &Order) {
        let mut texts = ArrayVec::<Text, CHUNK>::new();
        for index in indices(order, jobs.len()) {
            let job = &jobs[index];
            let after_aad = bytes.len().saturating_sub(job.aad().end);
            let in_lanes = job.text_len > 0
                && job.aad_len as usize <= MAX_AAD
                && (job.aad_len == 0 || after_aad >= AAD_OVERREAD);
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
            let (count, method) = TagMethod::next(set, texts);
            let group;
            (group, texts) = texts.split_at(count);
            // SAFETY: the slice for `Text::start` has shown that each text and the tag after it
            // lie in `bytes`. `in_lanes` has shown the same for its AAD, if it has some, and
            // for `AAD_OVERREAD` bytes after it. `TagMethod::next` takes its groups from
            // `group`, and gives a text four lanes only if it has at least `FOUR_LANES_THRESHOLD` bytes,
            // which is more than 64.
            unsafe {
                match method {
                    TagMethod::Lanes => set.tags(group, &self.one_time_keys, &mut self.tags),
                    TagMethod::FourLanes => {
                        set.tags_in_four_lanes(group, &self.one_time_keys, &mut self.tags);
                    }
                    TagMethod::OneByOne => {
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
    fn wipe_keys(&mut self) {
        self.one_time_keys.fill([0; 32]);
        zeroize::optimization_barrier(&self.one_time_keys);
        self.one_time_keys.clear();
    }
}

impl Drop for Chunk<'_> {
    #[inline]
    fn drop(&mut self) {
        self.wipe_keys();
        // The tag computed for a forged packet would make that packet authentic.
        self.tags.fill([0; TAG_LEN]);
        zeroize::optimization_barrier(&self.tags);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    /// Few packets and many, up to the longest that counting sort handles, and longer ones.
    #[test]
    fn order_is_from_the_longest_to_the_shortest() {
        for longest in [1, 17, 600, LONGEST_COUNTED, LONGEST_COUNTED + 1, 1 << 20] {
            for packets in [
                0,
                1,
                2,
                COUNTING_SORT_THRESHOLD - 1,
                COUNTING_SORT_THRESHOLD,
                200,
                CHUNK,
            ] {
                let mut random = 1_u32;
                let mut length = || {
                    random = random.wrapping_mul(0x915f_77f5).wrapping_add(1);
                    (random >> 8) % (longest + 1)
                };
                let mut jobs: Vec<Job> = (0..packets)
                    .map(|_| Job {
                        text_len: length(),
                        ..Job::default()
                    })
                    .collect();
                if let Some(last) = jobs.last_mut() {
                    last.text_len = longest;
                }
                let order = order(&jobs);
                let blocks = |index: usize| jobs[index].text_len.saturating_sub(1) / 16;
                let mut ordered: Vec<usize> = indices(&order, packets).collect();
                assert!(ordered.is_sorted_by(|&a, &b| blocks(a) >= blocks(b)));
                ordered.sort_unstable();
                assert!(ordered.into_iter().eq(0..packets), "each of them once");
            }
        }
    }
}
