//! A piece of a batch, as it is transferred to the device: descriptors, keys and bytes.
//!
//! The packets of a piece are consecutive in the batch's list of jobs. In the piece they are sorted
//! by blocks of text, so that the threads of a warp have equal work (in arrival order 13.5 % of
//! them would be busy on the published mix; sorted, 99.9 %). There are few distinct lengths
//! ([`BUCKETS`]), so one pass counts the packets of each and a second one moves them to their
//! places: no comparison is needed, and packets of similar length keep their order.
//!
//! The memory of a transfer holds a piece as
//!
//! ```text
//! keys | packets | chunks | verdicts | bytes | partial
//! ```
//! Everything except `partial` is copied to the device at once, and `verdicts` and `bytes` are
//! copied back at once. Only descriptors and verdicts are sorted. The bytes are in the order of the
//! jobs, usually as a range of the arena ([`Texts`]).
//!
//! A packet's descriptor has the first 4 bytes of its nonce. The last 8 are in a key entry of 48
//! bytes, with key and AAD. BIP324's last 8 bytes are the epoch, so 224 packets of a session share
//! an entry. Other protocols count in those bytes (WireGuard, QUIC, TLS), so each of their packets
//! has its own entry, as has each packet with AAD. [`bound`] counts one entry for every packet, so
//! a piece always has room; the entry adds 48 bytes to each packet's transfer. A packet's entry is
//! looked up by its key, and only the key's last entry is compared: nonces are counters, and an
//! epoch never recurs.

use crate::error::GpuError;
use crate::kernels::{
    Addresses, BUCKETS, CHUNK_LEN, CHUNK_TEXT, KEY_LEN, NO_VERDICT, Op, PACKET_LEN, PARTIAL_LEN,
    bucket, chunks,
};
use core::ops::Range;
use packetlane_lanes::{Job, Key, Outcome, TAG_LEN};

/// Maximum size of a piece, in bytes.
pub(crate) const MAX_PIECE: usize = 64 << 20;

/// Alignment of the parts of a transfer, in bytes: that of device memory.
const ALIGNMENT: usize = 256;

/// Alignment of gathered texts and AAD, in bytes.
const CELL: u64 = 16;

/// Maximum size of a piece's parts beyond the sum of the [`bound`]s, in bytes.
pub(crate) const SLACK: usize = 6 * ALIGNMENT;

/// Returns the maximum size of a packet in a piece, in bytes, including its own key entry.
#[inline]
pub(crate) fn bound(job: &Job) -> u64 {
    let text = cells(u64::from(job.text_len) + TAG_LEN as u64);
    let chunks = u64::from(chunks(job.text_len)) * (CHUNK_LEN + PARTIAL_LEN) as u64;
    text + cells(job.aad_len.into()) + chunks + (KEY_LEN + PACKET_LEN + 1) as u64
}

/// Returns `len` rounded up to a multiple of [`CELL`].
#[inline]
fn cells(len: u64) -> u64 {
    (len + (CELL - 1)) & !(CELL - 1)
}

/// Returns the range of the arena from the first to the last byte that a job reads or writes.
pub(crate) fn span(job: &Job) -> Range<u64> {
    let text = u64::from(job.text);
    let end = text + u64::from(job.text_len) + TAG_LEN as u64;
    if job.aad_len == 0 {
        return text..end;
    }
    let aad = u64::from(job.aad);
    text.min(aad)..end.max(aad + u64::from(job.aad_len))
}

/// Finds the key entry of each packet. Reused from piece to piece to keep its memory.
#[derive(Default)]
pub(crate) struct KeyEntries {
    /// The last entry of each key of the batch.
    last: Vec<LastEntry>,
    piece: u32,
    /// The entry of each job of the piece, or [`NO_ENTRY`] if the job does not run on the device.
    entries: Vec<u32>,
}

/// Marks a job that does not run on the device.
const NO_ENTRY: u32 = u32::MAX;

/// The last entry of a key.
#[derive(Clone, Copy, Default)]
struct LastEntry {
    /// The last 8 bytes of its nonces.
    nonce: [u8; 8],
    /// The number of the piece that contains it.
    piece: u32,
    entry: u32,
}

impl KeyEntries {
    /// Prepares for a piece of `jobs` jobs that refer to `keys` keys.
    fn begin(&mut self, keys: usize, jobs: usize) {
        if self.last.len() < keys {
            self.last.resize(keys, LastEntry::default());
        }
        if self.entries.len() < jobs {
            self.entries.resize(jobs, 0);
        }
        self.piece = self.piece.wrapping_add(1);
        if self.piece == 0 {
            self.last.fill(LastEntry::default());
            self.piece = 1;
        }
    }
}

/// How texts and AAD are transferred.
pub(crate) enum Texts {
    /// Each is copied separately, and begins at a multiple of 16. Other bytes of the arena are not
    /// transferred.
    Gathered,
    /// This range of the arena is copied as it is.
    Copied(Range<usize>),
    /// This range of a pinned arena is transferred directly: the piece has no bytes in staging.
    Pinned(Range<usize>),
}

impl Texts {
    /// Returns the range of a pinned arena that is transferred.
    pub(crate) fn pinned(&self) -> Option<Range<usize>> {
        match self {
            Self::Pinned(span) => Some(span.clone()),
            _ => None,
        }
    }
}

/// Offsets of the parts of a piece in the memory of a transfer, in bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Layout {
    packets: usize,
    chunks: usize,
    pub(crate) verdicts: usize,
    pub(crate) bytes: usize,
    partial: usize,
    /// Size of the data in staging, which is what is copied to the device.
    pub(crate) staged: usize,
    /// Size of the data in device memory.
    pub(crate) device: usize,
    /// End of the keys.
    pub(crate) keys_end: usize,
}

impl Layout {
    /// Returns their addresses on a device if the piece begins at `at`.
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
    /// Its jobs in the batch's list. Those that do not run on the device are omitted.
    pub(crate) jobs: Range<usize>,
    pub(crate) texts: Texts,
    pub(crate) layout: Layout,
    /// Index of the first packet of each bucket.
    pub(crate) starts: [u32; BUCKETS + 1],
    pub(crate) chunk_count: u32,
    /// The first job that needs each key entry, counted from `jobs.start`.
    heads: Vec<u32>,
}

impl Piece {
    pub(crate) fn new() -> Self {
        Self {
            jobs: 0..0,
            texts: Texts::Gathered,
            layout: Layout::default(),
            starts: [0; BUCKETS + 1],
            chunk_count: 0,
            heads: Vec::new(),
        }
    }

    /// Returns the number of packets.
    pub(crate) fn len(&self) -> usize {
        self.starts[BUCKETS] as usize
    }

    /// Lays out those of a batch's `jobs` for which `takes` holds. The sum of their bounds must fit
    /// in 32 bits.
    pub(crate) fn plan(
        &mut self,
        key_entries: &mut KeyEntries,
        keys: usize,
        all: &[Job],
        jobs: Range<usize>,
        texts: Texts,
        takes: impl Fn(&Job) -> bool,
    ) {
        let list = &all[jobs.clone()];
        key_entries.begin(keys, list.len());
        self.heads.clear();
        let mut counts = [0_u32; BUCKETS];
        let mut chunk_count = 0;
        for (index, (job, entry)) in list.iter().zip(&mut key_entries.entries).enumerate() {
            if !takes(job) {
                *entry = NO_ENTRY;
                continue;
            }
            counts[bucket(job.text_len)] += 1;
            chunk_count += chunks(job.text_len);
            let last = &mut key_entries.last[job.key];
            let nonce = last_of_nonce(job);
            let known = last.piece == key_entries.piece && last.nonce == nonce;
            if known && job.aad_len == 0 {
                *entry = last.entry;
                continue;
            }
            *entry = number(self.heads.len());
            self.heads.push(number(index));
            if job.aad_len == 0 {
                *last = LastEntry {
                    nonce,
                    piece: key_entries.piece,
                    entry: *entry,
                };
            }
        }
        for (bucket, count) in counts.iter().enumerate() {
            self.starts[bucket + 1] = self.starts[bucket] + count;
        }
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
        layout.chunks = part(CHUNK_LEN * chunk_count as usize);
        layout.verdicts = part(self.len());
        let bytes = match &texts {
            Texts::Gathered => {
                let taken = list.iter().filter(|job| takes(job));
                taken.flat_map(gathered).sum::<u32>() as usize
            }
            Texts::Copied(span) | Texts::Pinned(span) => span.len(),
        };
        layout.bytes = part(bytes);
        layout.staged = match &texts {
            Texts::Pinned(_) => layout.verdicts + self.len(),
            _ => layout.bytes + bytes,
        };
        layout.partial = part(PARTIAL_LEN * chunk_count as usize);
        layout.device = layout.partial + PARTIAL_LEN * chunk_count as usize;
        self.layout = layout;
        self.chunk_count = chunk_count;
        (self.jobs, self.texts) = (jobs, texts);
    }

    /// Writes the data to transfer into `staging`, which has the length given by the layout.
    pub(crate) fn write(
        &self,
        key_entries: &KeyEntries,
        bytes: &[u8],
        keys: &[Key],
        all: &[Job],
        staging: &mut [u8],
    ) {
        let layout = self.layout;
        let all = &all[self.jobs.clone()];
        let (front, back) = staging.split_at_mut(layout.verdicts);
        let (front, chunk_list) = front.split_at_mut(layout.chunks);
        let (staged_keys, packets) = front.split_at_mut(layout.packets);
        let (staged_keys, _) = staged_keys.as_chunks_mut::<KEY_LEN>();
        let (packets, _) = packets.as_chunks_mut::<PACKET_LEN>();
        let (chunk_list, _) = chunk_list.as_chunks_mut::<CHUNK_LEN>();
        back[..self.len()].fill(NO_VERDICT);
        let base = match &self.texts {
            Texts::Gathered => None,
            Texts::Copied(span) => {
                back[layout.bytes - layout.verdicts..].copy_from_slice(&bytes[span.clone()]);
                Some(number(span.start))
            }
            Texts::Pinned(span) => Some(number(span.start)),
        };
        for (entry, head) in staged_keys.iter_mut().zip(&self.heads) {
            let job = &all[*head as usize];
            let aad = match (job.aad_len, base) {
                // There is none, or `gather` returns its place.
                (0, _) | (_, None) => 0,
                (_, Some(base)) => job.aad - base,
            };
            entry[..32].copy_from_slice(&keys[job.key]);
            entry[32..40].copy_from_slice(&last_of_nonce(job));
            entry[40..44].copy_from_slice(&aad.to_le_bytes());
            entry[44..48].copy_from_slice(&job.aad_len.to_le_bytes());
        }
        let entries = &key_entries.entries;
        let mut end = 0;
        let gather = |job: &Job, entry: u32| {
            let [text_len, aad_len] = gathered(job);
            let (text, aad) = (end, end + text_len);
            end = aad + aad_len;
            let mut copy = |to: u32, from: u32, len: usize| {
                let to = layout.bytes - layout.verdicts + to as usize;
                back[to..to + len].copy_from_slice(&bytes[from as usize..][..len]);
            };
            copy(text, job.text, job.text_len as usize + TAG_LEN);
            if job.aad_len > 0 {
                copy(aad, job.aad, job.aad_len as usize);
                staged_keys[entry as usize][40..44].copy_from_slice(&aad.to_le_bytes());
            }
            text
        };
        match base {
            None => self.describe(entries, all, packets, chunk_list, gather),
            Some(base) => {
                let text = |job: &Job, _| job.text - base;
                self.describe(entries, all, packets, chunk_list, text);
            }
        }
    }

    /// Writes the descriptors of packets and chunks. `text` returns the place of a job's text; the
    /// key entries are known.
    fn describe(
        &self,
        entries: &[u32],
        all: &[Job],
        packets: &mut [[u8; PACKET_LEN]],
        chunk_list: &mut [[u8; CHUNK_LEN]],
        mut text: impl FnMut(&Job, u32) -> u32,
    ) {
        let mut chunk_list = chunk_list.iter_mut();
        let mut next = self.starts;
        for (job, &entry) in all.iter().zip(entries) {
            if entry == NO_ENTRY {
                continue;
            }
            let packet = packet_of(&mut next, job);
            let to = &mut packets[packet as usize];
            to[..4].copy_from_slice(&text(job, entry).to_le_bytes());
            to[4..8].copy_from_slice(&job.text_len.to_le_bytes());
            to[8..12].copy_from_slice(&entry.to_le_bytes());
            to[12..].copy_from_slice(&job.nonce[..4]);
            for (number, to) in (0..chunks(job.text_len)).zip(&mut chunk_list) {
                let packet = packet - self.starts[BUCKETS - 1];
                to[..4].copy_from_slice(&packet.to_le_bytes());
                to[4..].copy_from_slice(&(number * CHUNK_TEXT).to_le_bytes());
            }
        }
    }

    /// Checks that the returned verdicts are complete.
    pub(crate) fn check(&self, op: Op, staging: &[u8]) -> Result<(), GpuError> {
        let most = match op {
            Op::Seal => 0,
            Op::Open => 1,
        };
        if unlike_one(self.verdicts(staging)) <= most {
            Ok(())
        } else {
            Err(GpuError::Undone)
        }
    }

    fn verdicts<'s>(&self, staging: &'s [u8]) -> &'s [u8] {
        &staging[self.layout.verdicts..][..self.len()]
    }

    /// Passes the results of a complete piece to the caller: bytes, unless they are in the arena
    /// already, and outcomes.
    pub(crate) fn take(
        &self,
        op: Op,
        staging: &[u8],
        bytes: &mut [u8],
        all: &[Job],
        takes: impl Fn(&Job) -> bool,
        outcomes: &mut [Outcome],
    ) {
        let all = &all[self.jobs.clone()];
        let outcomes = &mut outcomes[self.jobs.clone()];
        let verdicts = self.verdicts(staging);
        let done = match op {
            Op::Seal => Outcome::Sealed,
            Op::Open => Outcome::Authentic,
        };
        let gathers = match &self.texts {
            Texts::Gathered => true,
            Texts::Copied(span) => {
                let from = &staging[self.layout.bytes..][..span.len()];
                bytes[span.clone()].copy_from_slice(from);
                false
            }
            Texts::Pinned(_) => false,
        };
        if !gathers && self.len() == all.len() && unlike_one(verdicts) == 0 {
            outcomes.fill(done);
            return;
        }
        let mut next = self.starts;
        let mut from = self.layout.bytes;
        for (job, outcome) in all.iter().zip(outcomes) {
            if !takes(job) {
                continue;
            }
            let right = verdicts[packet_of(&mut next, job) as usize] == 1;
            *outcome = if right { done } else { Outcome::BadTag };
            if gathers {
                // A forged text is unchanged.
                if right {
                    let len = match op {
                        Op::Seal => job.text_len as usize + TAG_LEN,
                        Op::Open => job.text_len as usize,
                    };
                    bytes[job.text as usize..][..len].copy_from_slice(&staging[from..][..len]);
                }
                from += gathered(job).iter().sum::<u32>() as usize;
            }
        }
    }
}

/// Returns 0 if all verdicts are 1; 1 if some are 0; more if there are others.
fn unlike_one(verdicts: &[u8]) -> u8 {
    verdicts.iter().fold(0, |all, verdict| all | (verdict ^ 1))
}

/// Returns the index of a job's packet in the piece; `next` holds the next index of each bucket.
#[inline]
fn packet_of(next: &mut [u32; BUCKETS + 1], job: &Job) -> u32 {
    let next = &mut next[bucket(job.text_len)];
    let packet = *next;
    *next += 1;
    packet
}

/// Returns the part of a nonce that is in a key entry.
#[inline]
fn last_of_nonce(job: &Job) -> [u8; 8] {
    let [_, _, _, _, last @ ..] = job.nonce;
    last
}

/// Returns the size of a gathered text with its tag, and of the AAD after it. For a packet of a
/// piece, whose size is limited.
#[inline]
fn gathered(job: &Job) -> [u32; 2] {
    let text = u64::from(job.text_len) + TAG_LEN as u64;
    [text, job.aad_len.into()].map(|len| cells(len) as u32)
}

/// Converts a number within a piece, whose size is limited.
fn number(value: usize) -> u32 {
    u32::try_from(value).expect("a piece is addressed by 32 bits")
}
