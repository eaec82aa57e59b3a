//! A piece of a batch, as it travels to the device: descriptors, keys and bytes.
//!
//! The packets of a piece are neighbours in the batch's list of jobs. In the piece they
//! are sorted by blocks of text, so that the threads of a warp have equal work (in the
//! order of arrival 13.5 % of them would be busy on the published mix, sorted 99.9 %).
//! There are few lengths to tell apart ([`BUCKETS`]), so one pass counts the packets of
//! each and a second one puts them where they belong: no comparison, and packets of like
//! length keep their order.
//!
//! A piece lies in the memory of a transfer as
//!
//! ```text
//! keys | packets | chunks | verdicts | bytes | partial
//! ```
//!
//! of which all but `partial` travels to the device in one copy, and `verdicts` and `bytes`
//! back in another. The bytes are gathered: each text begins at a multiple of 16, with room
//! for its tag, and nothing else of the arena travels. A piece of a pinned arena has no bytes
//! here: it is a range of the arena as it lies there, which travels by itself.
//!
//! A packet's descriptor has the first 4 bytes of its nonce; the last 8 lie in a key entry of
//! 48 bytes, beside key and AAD, where the kernels read them. BIP324's last 8 bytes are the
//! epoch, so 224 packets of a session share an entry. Other protocols count in those bytes
//! (WireGuard, QUIC, TLS), and then each packet has an entry of its own, as has each packet
//! with AAD. [`bound`] counts one for every packet, so a piece has room for that; it travels
//! as 48 more bytes of each packet. The entry of a packet is looked up among those of its own
//! key, and only the last of them: nonces are counters, and an epoch does not come back.

use crate::error::GpuError;
use crate::kernels::{
    Addresses, BUCKETS, CHUNK_LEN, CHUNK_TEXT, KEY_LEN, NO_VERDICT, Op, PACKET_LEN, PARTIAL_LEN,
    bucket, chunks,
};
use core::ops::Range;
use packetlane_lanes::{Job, Outcome, Secrets, TAG_LEN};

/// The most that a piece takes, in bytes.
pub(crate) const MAX_PIECE: usize = 64 << 20;

/// What the parts of a transfer begin at multiples of: as device memory does.
const ALIGNMENT: usize = 256;

/// What texts and AAD begin at multiples of.
const CELL: usize = 16;

/// What the parts of a piece may take beyond the sum of [`bound`]s.
pub(crate) const SLACK: usize = 6 * ALIGNMENT;

/// The most that a packet takes of a piece, in bytes, with a key entry of its own.
pub(crate) fn bound(job: &Job) -> u64 {
    let cells = |len: u64| len.next_multiple_of(CELL as u64);
    let text = cells(u64::from(job.text_len) + TAG_LEN as u64);
    let chunks = u64::from(chunks(job.text_len)) * (CHUNK_LEN + PARTIAL_LEN) as u64;
    text + cells(job.aad_len.into()) + chunks + (KEY_LEN + PACKET_LEN + 1) as u64
}

/// Whether a job can run on a device, however long it is. A job with precomputed keystream
/// may lack its key.
pub(crate) fn takes_any(job: &Job) -> bool {
    job.keystream_blocks == 0
}

/// From the first to the last of the arena's bytes that a job reads or writes.
pub(crate) fn span(job: &Job) -> Range<u64> {
    let text = u64::from(job.text);
    let end = text + u64::from(job.text_len) + TAG_LEN as u64;
    if job.aad_len == 0 {
        return text..end;
    }
    let aad = u64::from(job.aad);
    text.min(aad)..end.max(aad + u64::from(job.aad_len))
}

/// Finds the key entry of each packet. Kept from piece to piece for its memory.
#[derive(Default)]
pub(crate) struct KeyEntries {
    /// Of each key of the batch: the number of the piece that has used it last, and its
    /// entry there.
    last: Vec<(u32, u32)>,
    piece: u32,
    /// The entry of each packet, in the order of the jobs.
    entries: Vec<u32>,
}

impl KeyEntries {
    /// For a piece whose jobs name `keys` keys.
    fn begin(&mut self, keys: usize) {
        if self.last.len() < keys {
            self.last.resize(keys, (0, 0));
        }
        self.entries.clear();
        self.piece = self.piece.wrapping_add(1);
        if self.piece == 0 {
            self.last.fill((0, 0));
            self.piece = 1;
        }
    }
}

/// Where the parts of a piece lie in the memory of a transfer, in bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Layout {
    packets: usize,
    chunks: usize,
    pub(crate) verdicts: usize,
    pub(crate) bytes: usize,
    partial: usize,
    /// What lies in staging, and so what travels to the device.
    pub(crate) staged: usize,
    /// What lies in device memory.
    pub(crate) device: usize,
    /// Where the keys end.
    pub(crate) keys_end: usize,
}

impl Layout {
    /// Where they lie on a device on which the piece begins at `at`.
    pub(crate) fn addresses(&self, at: u64) -> Addresses {
        let part = |offset: usize| at + offset as u64;
        Addresses {
            keys: at,
            packets: part(self.packets),
            chunks: part(self.chunks),
            verdicts: part(self.verdicts),
            bytes: part(self.bytes),
            partial: part(self.partial),
        }
    }
}

/// A piece of a batch.
pub(crate) struct Piece {
    /// Its jobs in the batch's list. Those that do not run here are left out.
    pub(crate) jobs: Range<usize>,
    /// The range of a pinned arena that it is; none if its bytes are gathered.
    pub(crate) span: Option<Range<usize>>,
    pub(crate) layout: Layout,
    /// Which packet is the first of each bucket.
    pub(crate) starts: [u32; BUCKETS + 1],
    pub(crate) chunk_count: u32,
    /// Where the gathered texts of each bucket begin.
    texts: [u32; BUCKETS],
    /// The job of each packet, counted from `jobs.start`.
    order: Vec<u32>,
    /// The first job that needs each key entry, counted in the same way.
    heads: Vec<u32>,
}

impl Piece {
    pub(crate) fn new() -> Self {
        Self {
            jobs: 0..0,
            span: None,
            layout: Layout::default(),
            starts: [0; BUCKETS + 1],
            chunk_count: 0,
            texts: [0; BUCKETS],
            order: Vec::new(),
            heads: Vec::new(),
        }
    }

    /// How many packets it has.
    pub(crate) fn len(&self) -> usize {
        self.starts[BUCKETS] as usize
    }

    /// Lays out the `jobs` of a batch for which `takes` holds. The sum of their bounds
    /// fits 32 bits.
    pub(crate) fn plan(
        &mut self,
        key_entries: &mut KeyEntries,
        keys: usize,
        all: &[Job],
        jobs: Range<usize>,
        span: Option<Range<usize>>,
        takes: impl Fn(&Job) -> bool,
    ) {
        key_entries.begin(keys);
        self.heads.clear();
        let mut counts = [0_u32; BUCKETS];
        let mut lengths = [0_u32; BUCKETS];
        self.chunk_count = 0;
        for (index, job) in (0..).zip(&all[jobs.clone()]) {
            if !takes(job) {
                continue;
            }
            let bucket = bucket(job.text_len);
            counts[bucket] += 1;
            lengths[bucket] += cells(job);
            self.chunk_count += chunks(job.text_len);
            let last = &mut key_entries.last[job.key as usize];
            let known = job.aad_len == 0 && last.0 == key_entries.piece && {
                let head = self.heads[last.1 as usize];
                all[jobs.start + head as usize].nonce[4..] == job.nonce[4..]
            };
            let entry = if known {
                last.1
            } else {
                let entry = number(self.heads.len());
                self.heads.push(index);
                if job.aad_len == 0 {
                    *last = (key_entries.piece, entry);
                }
                entry
            };
            key_entries.entries.push(entry);
        }
        let mut text = 0;
        for bucket in 0..BUCKETS {
            self.starts[bucket + 1] = self.starts[bucket] + counts[bucket];
            self.texts[bucket] = text;
            text += lengths[bucket];
        }
        self.order.clear();
        self.order.resize(self.len(), 0);
        let mut end = 0_usize;
        let mut part = |len: usize| {
            let start = end.next_multiple_of(ALIGNMENT);
            end = start + len;
            start
        };
        let mut layout = Layout::default();
        part(KEY_LEN * self.heads.len());
        layout.keys_end = KEY_LEN * self.heads.len();
        layout.packets = part(PACKET_LEN * self.len());
        layout.chunks = part(CHUNK_LEN * self.chunk_count as usize);
        layout.verdicts = part(self.len());
        match &span {
            None => {
                layout.bytes = part(text as usize);
                layout.staged = layout.bytes + text as usize;
            }
            Some(span) => {
                layout.staged = layout.verdicts + self.len();
                layout.bytes = part(span.len());
            }
        }
        layout.partial = part(PARTIAL_LEN * self.chunk_count as usize);
        layout.device = layout.partial + PARTIAL_LEN * self.chunk_count as usize;
        self.layout = layout;
        (self.jobs, self.span) = (jobs, span);
    }

    /// Writes what travels into `staging`, which is as long as the layout says.
    pub(crate) fn write(
        &mut self,
        key_entries: &KeyEntries,
        bytes: &[u8],
        secrets: Secrets<'_>,
        all: &[Job],
        takes: impl Fn(&Job) -> bool,
        staging: &mut [u8],
    ) {
        let layout = self.layout;
        let all = &all[self.jobs.clone()];
        let base = self.span.as_ref().map_or(0, |span| number(span.start));
        let gathered = self.span.is_none();
        for (entry, head) in staging.chunks_exact_mut(KEY_LEN).zip(&self.heads) {
            let job = &all[*head as usize];
            let aad = match (job.aad_len, gathered) {
                (0, _) => 0,
                // Where it is gathered to is written below.
                (_, true) => 0,
                (_, false) => job.aad - base,
            };
            entry[..32].copy_from_slice(&secrets.keys[job.key as usize]);
            entry[32..40].copy_from_slice(&job.nonce[4..]);
            entry[40..44].copy_from_slice(&aad.to_le_bytes());
            entry[44..48].copy_from_slice(&job.aad_len.to_le_bytes());
        }
        staging[layout.verdicts..][..self.len()].fill(NO_VERDICT);
        let mut next = self.starts;
        let mut texts = self.texts;
        let mut chunk = layout.chunks;
        let mut entries = key_entries.entries.iter();
        for (index, job) in (0..).zip(all) {
            if !takes(job) {
                continue;
            }
            let bucket = bucket(job.text_len);
            let packet = next[bucket];
            next[bucket] += 1;
            self.order[packet as usize] = index;
            let entry = *entries.next().expect("one for each packet");
            let text = if gathered {
                let text = texts[bucket];
                texts[bucket] += cells(job);
                let from = &bytes[job.text as usize..][..job.text_len as usize + TAG_LEN];
                let to = layout.bytes + text as usize;
                staging[to..to + from.len()].copy_from_slice(from);
                if job.aad_len > 0 {
                    let aad = text + cell(job.text_len as usize + TAG_LEN);
                    let from = &bytes[job.aad as usize..][..job.aad_len as usize];
                    let to = layout.bytes + aad as usize;
                    staging[to..to + from.len()].copy_from_slice(from);
                    let offset = KEY_LEN * entry as usize + 40;
                    staging[offset..offset + 4].copy_from_slice(&aad.to_le_bytes());
                }
                text
            } else {
                job.text - base
            };
            let [a, b, c, d, ..] = job.nonce;
            let counter = u32::from_le_bytes([a, b, c, d]);
            let at = layout.packets + PACKET_LEN * packet as usize;
            let fields = [text, job.text_len, entry, counter].map(u128::from);
            let descriptor = fields[0] | fields[1] << 32 | fields[2] << 64 | fields[3] << 96;
            staging[at..at + PACKET_LEN].copy_from_slice(&descriptor.to_le_bytes());
            for number in 0..chunks(job.text_len) {
                let packet = packet - self.starts[BUCKETS - 1];
                let to = &mut staging[chunk..chunk + CHUNK_LEN];
                to[..4].copy_from_slice(&packet.to_le_bytes());
                to[4..].copy_from_slice(&(number * CHUNK_TEXT).to_le_bytes());
                chunk += CHUNK_LEN;
            }
        }
    }

    /// Whether the verdicts that came back say that all was done.
    pub(crate) fn check(&self, op: Op, staging: &[u8]) -> Result<(), GpuError> {
        let verdicts = &staging[self.layout.verdicts..][..self.len()];
        let done = match op {
            Op::Seal => verdicts.iter().all(|&verdict| verdict == 1),
            Op::Open => verdicts.iter().all(|&verdict| verdict <= 1),
        };
        if done { Ok(()) } else { Err(GpuError::Undone) }
    }

    /// Hands out what came back whole: bytes, unless they lie in the arena already, and
    /// outcomes.
    pub(crate) fn take(
        &self,
        op: Op,
        staging: &[u8],
        bytes: &mut [u8],
        all: &[Job],
        outcomes: &mut [Outcome],
    ) {
        let all = &all[self.jobs.clone()];
        let outcomes = &mut outcomes[self.jobs.clone()];
        let verdicts = &staging[self.layout.verdicts..][..self.len()];
        let packets = staging[self.layout.packets..].chunks_exact(PACKET_LEN);
        for ((&index, &verdict), packet) in self.order.iter().zip(verdicts).zip(packets) {
            let job = &all[index as usize];
            let (outcome, len) = match (op, verdict) {
                (Op::Seal, _) => (Outcome::Sealed, job.text_len as usize + TAG_LEN),
                (Op::Open, 1) => (Outcome::Authentic, job.text_len as usize),
                // It stays as it came.
                (Op::Open, _) => (Outcome::BadTag, 0),
            };
            outcomes[index as usize] = outcome;
            if self.span.is_none() && len > 0 {
                let [a, b, c, d] = *packet.first_chunk().expect("16 bytes");
                let from = self.layout.bytes + u32::from_le_bytes([a, b, c, d]) as usize;
                let to = job.text as usize;
                bytes[to..to + len].copy_from_slice(&staging[from..from + len]);
            }
        }
    }
}

/// `len` bytes, rounded up to a multiple of [`CELL`].
fn cell(len: usize) -> u32 {
    number(len.next_multiple_of(CELL))
}

/// What a packet takes where bytes are gathered.
fn cells(job: &Job) -> u32 {
    cell(job.text_len as usize + TAG_LEN) + cell(job.aad_len as usize)
}

/// A number within a piece, whose size is limited.
fn number(value: usize) -> u32 {
    u32::try_from(value).expect("a piece is addressed by 32 bits")
}
