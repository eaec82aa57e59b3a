//! Many packets: the blocks of all of them in one list, then a tag in each lane.
//!
//! The jobs are worked off in chunks. The ChaCha20 blocks that a chunk needs form one list,
//! cut into calls of as many blocks as the vector has lanes, wherever packets begin and end,
//! so that all lanes but those of the chunk's last call are busy. The tags of a chunk are
//! computed one packet in each lane, those of like length beside each other.
//!
//! Sealing: block 0 of each packet, its one-time Poly1305 key, goes before the blocks of its
//! text in the list; the tags come last. Opening: first all blocks 0, then the tags, then the
//! text of the packets whose tag was right, so that nothing is decrypted before it is
//! checked. Precomputed blocks are not computed again.

use super::strategy::{self, CHUNK, TagMethod};
use super::tag::tag;
use crate::isa::Set;
use crate::job::{BLOCK_LEN, Job, Key, Outcome, Secrets, TAG_LEN, verdict};
use crate::kernels::chacha20::{Blocks, HalfRun, Run};
use crate::kernels::poly1305::text::{BEHIND_AAD, MAX_AAD, Text};
use crate::vector::MAX_LANES;
use arrayvec::ArrayVec;
use core::ops::Range;

const _: () = assert!(MAX_LANES <= u8::MAX as usize && CHUNK <= u8::MAX as usize + 1);

// Not part of its caller: its arrays are some pages of stack, which a packet by itself
// has no use for.
#[inline(never)]
pub(super) fn seal(set: Set, bytes: &mut [u8], secrets: Secrets<'_>, jobs: &[Job]) {
    let mut chunk = Chunk::new();
    let mut rest = jobs;
    while !rest.is_empty() {
        let jobs;
        (jobs, rest) = rest.split_at(strategy::chunk(rest));
        chunk.begin(jobs.len());
        for (index, job) in jobs.iter().enumerate() {
            match secrets.keystream(job) {
                Some((key, blocks)) => {
                    chunk.one_time_keys[index] = *key;
                    set.xor_blocks(&mut bytes[job.text()], blocks);
                    chunk.xor(set, bytes, secrets, jobs, index, job.keystream_blocks);
                }
                // Its text is not long: block 0 takes a lane beside the others.
                None if !strategy::has_runs(set, job) => {
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

// As `seal`.
#[inline(never)]
pub(super) fn open(
    set: Set,
    bytes: &mut [u8],
    secrets: Secrets<'_>,
    jobs: &[Job],
    mut outcomes: &mut [Outcome],
) {
    let mut chunk = Chunk::new();
    let mut rest = jobs;
    while !rest.is_empty() {
        let one_call = strategy::one_call(set, rest);
        let few = one_call.is_some();
        let jobs;
        (jobs, rest) = rest.split_at(one_call.unwrap_or_else(|| strategy::chunk(rest)));
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
        set.xor_runs(bytes, chunk.blocks.keystream(), jobs, &chunk.runs);
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
        if strategy::has_runs(set, job) {
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
                    let runs = [before, (index, from)].map(|(index, counter)| HalfRun {
                        key: secrets.key(&jobs[index]),
                        nonce: &jobs[index].nonce,
                        counter,
                        start: jobs[index].text().start + BLOCK_LEN * (counter as usize - 1),
                    });
                    set.xor_half_runs(bytes, runs);
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
        set.xor_runs(bytes, self.blocks.keystream(), jobs, &self.runs);
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
                && job.aad_len as usize <= MAX_AAD
                && (job.aad_len == 0 || behind_aad >= BEHIND_AAD);
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
            // SAFETY: the texts, the tags behind them and the AAD lie in `bytes`, as
            // their slices above have shown.
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
    fn forget_keys(&mut self) {
        self.one_time_keys.fill([0; 32]);
        zeroize::optimization_barrier(&self.one_time_keys);
        self.one_time_keys.clear();
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
