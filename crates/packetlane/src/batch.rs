//! The packets of one turn of an event loop that ChaCha20-Poly1305 protects: an arena, and a job
//! for each packet in it.
//!
//! Sessions add packets, an [`Engine`] runs them all, and sessions and sockets take the results
//! from the arena. [`Batch::clear`] prepares the batch for the next turn and keeps its memory, so a
//! steady state allocates nothing.
//!
//! This file holds what engines and sessions use. `packets.rs` is the API for other protocols,
//! whose packets `layout.rs` describes; `plan.rs` decides when packets run.
//!
//! A batch has one direction: [`SealBatch`] or [`OpenBatch`]. Both are one type with a parameter:
//! shared code is written once, and mixing directions does not compile.

mod layout;
mod packets;
mod plan;

#[cfg(feature = "cuda")]
use crate::arena::Memory;
use crate::arena::{self, Arena, BatchKey, index};
use crate::engine::cpu::Cpu;
#[cfg(feature = "cuda")]
use crate::engine::offload::Device;
use crate::engine::{Engine, ToOpen, ToSeal, sealed::Sealed};
#[cfg(feature = "bip324")]
use crate::key_exchange::KeyExchanges;
use alloc::vec::Vec;
use core::fmt;
use core::iter::Zip;
use core::marker::PhantomData;
use core::ops::Range;
use core::slice;
use packetlane_lanes::{Backend, Job, Kernels, Key, Nonce, Outcome, Work};

pub use layout::{AddError, PacketLayout, Received};
pub(crate) use plan::Plan;
use plan::RecentTurns;

/// A batch of packets to seal.
pub type SealBatch = Batch<Sealing>;

/// A batch of packets to open.
pub type OpenBatch = Batch<Opening>;

/// The direction of a [`SealBatch`].
#[derive(Debug)]
pub enum Sealing {}

/// The direction of an [`OpenBatch`].
#[derive(Debug)]
pub enum Opening {}

/// Many packets, of any number of sessions, in one arena: a [`SealBatch`] or an [`OpenBatch`].
///
/// BIP324 sessions add their packets themselves ([`Outbound::push`](crate::bip324::Outbound::push),
/// [`Inbound::receive`](crate::bip324::Inbound::receive)). Any other protocol with
/// ChaCha20-Poly1305 adds them like this:
///
/// ```
/// use packetlane::{Engine, BatchKey, OpenBatch, PacketLayout, SealBatch, TAG_LEN};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (engine, key) = (Engine::detect()?, [7; 32]);
/// let mut batch = SealBatch::new();
/// let mut batch_key = BatchKey::default();
///
/// // The packet: one byte of AAD, five bytes of text, and a tag.
/// batch.ensure_key(&mut batch_key, &key);
/// let layout = PacketLayout { key: batch_key, nonce: [0; 12], aad: 0..1, text: 1..6 };
/// let (slot, packet) = batch.add_to_seal(6 + TAG_LEN, layout)?;
/// packet[..6].copy_from_slice(b"\x04hello");
/// engine.seal(&mut batch);
/// let wire = batch.wire(&slot)?;
///
/// let mut batch = OpenBatch::new();
/// batch.ensure_key(&mut batch_key, &key);
/// let packet = batch.feed(wire);
/// let layout = PacketLayout { key: batch_key, nonce: [0; 12], aad: 0..1, text: 1..6 };
/// let slot = batch.add_to_open(packet, layout)?;
/// engine.open(&mut batch);
/// assert_eq!(batch.opened(&slot)?, b"hello");
/// # Ok(())
/// # }
/// ```
///
/// Sealing a batch of received packets does not compile, because it would decrypt them without
/// checking their tags. Opening a batch of plaintext does not compile either:
///
/// ```compile_fail,E0277
/// # use packetlane::{Engine, OpenBatch};
/// Engine::portable().seal(&mut OpenBatch::new());
/// ```
///
/// ```compile_fail,E0277
/// # use packetlane::{Engine, SealBatch};
/// Engine::portable().open(&mut SealBatch::new());
/// ```
pub struct Batch<Direction> {
    arena: Arena,
    /// The distinct keys of the jobs. Wiped by `clear` and on drop.
    keys: Vec<Key>,
    jobs: Vec<Job>,
    /// Outcomes of the jobs that have run or are running.
    outcomes: Vec<Outcome>,
    recent: RecentTurns,
    /// How many jobs an engine has been called for. The outcomes of the others are hidden, even if
    /// they ran when they were added: a forgotten call should be noticed at once.
    done: usize,
    /// Handshakes that wait for their keys.
    #[cfg(feature = "bip324")]
    exchanges: KeyExchanges,
    direction: PhantomData<Direction>,
}

impl<Direction> Batch<Direction> {
    /// Maximum size of a batch, in bytes: jobs hold 32-bit offsets.
    pub const MAX_BYTES: usize = arena::MAX_BYTES;

    /// Enough bytes for full speed. More packets do not make a batch faster, and several times as
    /// many make it slower: the first bytes leave the second-level cache before the engine reaches
    /// them. A sender should seal once a batch holds this many bytes, as often as needed in one
    /// turn; a receiver should not read more at a time. If thousands of sessions have one small
    /// packet each, their states take more of that cache than the packets do, and a quarter of this
    /// size is enough.
    pub const ENOUGH_BYTES: usize = arena::ENOUGH_BYTES;

    /// Creates an empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(0, 0)
    }

    /// Creates an empty batch with memory for `packets` packets of `bytes` bytes in total.
    #[must_use]
    pub fn with_capacity(packets: usize, bytes: usize) -> Self {
        Self::on(Arena::with_capacity(bytes), packets)
    }

    /// Creates an empty batch whose arena is `bytes` bytes of `gpu`'s page-locked memory (feature
    /// `cuda`). Large batches are transferred between it and the device without a copy on the CPU.
    /// Allocates twice that size (see [`Pinned`](packetlane_gpu::Pinned), which also says what
    /// sealing leaves in the other half). If the arena grows and no more such memory is available,
    /// it moves to ordinary memory.
    ///
    /// # Errors
    ///
    /// If the memory is not available, or the device has failed.
    #[cfg(feature = "cuda")]
    pub fn pinned(
        gpu: &'static packetlane_gpu::Gpu,
        bytes: usize,
    ) -> Result<Self, packetlane_gpu::GpuError> {
        let memory = Memory::pinned(gpu, bytes.min(Self::MAX_BYTES))?;
        Ok(Self::on(Arena::on(memory), 0))
    }

    fn on(arena: Arena, packets: usize) -> Self {
        Self {
            arena,
            keys: Vec::new(),
            jobs: Vec::with_capacity(packets),
            outcomes: Vec::with_capacity(packets),
            recent: RecentTurns::default(),
            done: 0,
            #[cfg(feature = "bip324")]
            exchanges: KeyExchanges::default(),
            direction: PhantomData,
        }
    }

    /// Starts a new turn: drops all packets and key exchanges, wipes all keys and keeps the memory.
    ///
    /// Packets that a session added and that were not taken are lost, which breaks that session's
    /// stream.
    pub fn clear(&mut self) {
        if !self.jobs.is_empty() {
            self.recent.update(self.jobs.len(), self.arena.used());
        }
        self.arena.clear();
        self.wipe();
        self.jobs.clear();
        self.outcomes.clear();
        self.done = 0;
        #[cfg(feature = "bip324")]
        self.exchanges.clear();
    }

    /// Frees memory: shrinks the arena to `bytes` bytes, or to the taken bytes if more, and the
    /// lists of packets accordingly. Otherwise a batch stays as large as its largest turn.
    pub fn shrink_to(&mut self, bytes: usize) {
        self.arena.shrink_to(bytes);
        self.jobs.shrink_to_fit();
        self.outcomes.shrink_to_fit();
        // Not while it holds keys: shrinking would leave copies of them.
        if self.keys.is_empty() {
            self.keys = Vec::new();
        }
    }

    /// Returns the capacity of the arena, in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.arena.capacity()
    }

    fn wipe(&mut self) {
        wipe(&mut self.keys);
    }

    /// Returns the number of packets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether the batch holds neither packets nor key exchanges.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        #[cfg(feature = "bip324")]
        if !self.exchanges.is_empty() {
            return false;
        }
        self.jobs.is_empty()
    }

    /// Returns how many bytes of the arena are taken.
    #[must_use]
    pub fn bytes_used(&self) -> usize {
        self.arena.used()
    }

    /// Ensures that `key` is in the batch in this turn, and that `batch_key` refers to it. Adds the
    /// key if `batch_key` belongs to another turn, batch or key. The batch wipes its copy when it
    /// is cleared.
    #[inline]
    pub fn ensure_key(&mut self, batch_key: &mut BatchKey, key: &Key) {
        let index = self.index_of(batch_key, key);
        let known = &self.keys[index as usize];
        // Compares all bytes: the time must not reveal how many are equal.
        let differ = known.iter().zip(key).fold(0, |all, (a, b)| all | (a ^ b));
        if differ != 0 {
            *batch_key = BatchKey::default();
            self.index_of(batch_key, key);
        }
    }

    /// Returns the index of a key for a job. Adds the key if `batch_key` belongs to another turn or
    /// batch. The caller resets `batch_key` when its key changes.
    #[inline]
    pub(crate) fn index_of(&mut self, batch_key: &mut BatchKey, key: &Key) -> u32 {
        if let Some(known) = batch_key.get(&self.arena) {
            return known;
        }
        let added = self.add_key(key);
        *batch_key = BatchKey::new(&self.arena, added);
        added
    }

    #[inline(never)]
    fn add_key(&mut self, key: &Key) -> u32 {
        if self.keys.len() == self.keys.capacity() {
            // Done by hand, so that growing leaves no copy of the keys behind.
            let mut grown = Vec::with_capacity((2 * self.keys.len()).max(16));
            grown.extend_from_slice(&self.keys);
            wipe(&mut self.keys);
            self.keys = grown;
        }
        self.keys.push(*key);
        index(self.keys.len() - 1)
    }

    /// Returns the outcome of packet number `packet`, in the order in which they were added.
    ///
    /// # Panics
    ///
    /// If there is no such packet.
    #[inline]
    pub(crate) fn outcome(&self, packet: usize) -> Outcome {
        assert!(packet < self.jobs.len(), "there is no packet {packet}");
        if packet < self.done {
            self.outcomes[packet]
        } else {
            Outcome::Pending
        }
    }

    /// Returns the jobs that have not run, for a backend to run. They count as run from now on.
    #[inline(always)]
    pub(crate) fn take_pending(&mut self) -> Work<'_> {
        self.done = self.jobs.len();
        self.work_now()
    }

    /// Returns the jobs that have not run, for a session to run before an engine is called. Their
    /// outcomes stay hidden until then.
    #[inline(always)]
    fn work_now(&mut self) -> Work<'_> {
        let first = self.add_outcomes();
        Work {
            bytes: self.arena.bytes_mut(),
            keys: &self.keys[..],
            jobs: &self.jobs[first..],
            outcomes: &mut self.outcomes[first..],
        }
    }

    /// Adds pending outcomes for the jobs that have not run. Returns the index of the first.
    #[inline(always)]
    fn add_outcomes(&mut self) -> usize {
        let first = self.outcomes.len();
        // Writing a single outcome is faster than calling `memset`.
        if first + 1 == self.jobs.len() {
            self.outcomes.push(Outcome::Pending);
        } else {
            self.outcomes.resize(self.jobs.len(), Outcome::Pending);
        }
        first
    }

    /// Whether any job has not run.
    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        self.outcomes.len() < self.jobs.len()
    }

    /// Adds a packet that has run. No earlier packet may be pending.
    #[inline]
    pub(crate) fn add_done(&mut self, job: Job, outcome: Outcome) {
        debug_assert!(!self.has_pending());
        self.add_job(job);
        self.outcomes.push(outcome);
    }

    /// Runs the pending jobs on `device` if they are suited to it. Returns whether it did.
    // Outlined, because most callers have no device.
    #[cfg(feature = "cuda")]
    #[inline(never)]
    fn offload(&mut self, device: Device, cpu: Cpu, op: packetlane_gpu::Op) -> bool {
        if !device.accepts(cpu, &self.jobs[self.outcomes.len()..]) {
            return false;
        }
        self.done = self.jobs.len();
        let first = self.add_outcomes();
        let work = packetlane_gpu::DeviceWork {
            bytes: self.arena.for_device(),
            keys: &self.keys[..],
            jobs: &self.jobs[first..],
            outcomes: &mut self.outcomes[first..],
        };
        device.run(cpu, op, work);
        true
    }

    /// Returns the range of the text of packet number `packet`.
    #[inline]
    pub(crate) fn text(&self, packet: usize) -> Range<usize> {
        let job = &self.jobs[packet];
        let start = job.text as usize;
        start..start + job.text_len as usize
    }

    /// Returns the jobs number `packets` with their outcomes. Empty unless all have run.
    #[inline]
    pub(crate) fn finished(
        &self,
        packets: Range<usize>,
    ) -> Zip<slice::Iter<'_, Job>, slice::Iter<'_, Outcome>> {
        let outcomes = self.outcomes[..self.done].get(packets.clone());
        let jobs = self.jobs.get(packets);
        let (jobs, outcomes) = jobs.zip(outcomes).unwrap_or_default();
        jobs.iter().zip(outcomes)
    }

    /// Returns the nonce of packet number `packet`.
    pub(crate) fn nonce(&self, packet: usize) -> Nonce {
        self.jobs[packet].nonce
    }

    /// The bytes, slots and turn.
    #[inline]
    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Like [`Batch::arena`], mutable.
    #[inline]
    pub(crate) fn arena_mut(&mut self) -> &mut Arena {
        &mut self.arena
    }

    /// Decides when the packets run that a session is about to add: `count` packets, whose texts
    /// have about `text_len` bytes in total. The session runs on `cpu`; `precomputes` says whether
    /// the keystream of its packets may be precomputed.
    #[inline(always)]
    pub(crate) fn plan(&self, cpu: Cpu, precomputes: bool, count: usize, text_len: usize) -> Plan {
        if !precomputes || self.has_pending() {
            return Plan::Deferred;
        }
        self.recent.plan(cpu, (count, text_len), self.jobs.len())
    }

    /// Returns the whole memory of the arena, and the jobs.
    #[inline]
    pub(crate) fn bytes_and_jobs(&mut self) -> (&mut [u8], &mut Vec<Job>) {
        (self.arena.bytes_mut(), &mut self.jobs)
    }

    /// Adds a packet whose bytes are in the arena.
    #[inline]
    pub(crate) fn add_job(&mut self, job: Job) {
        self.jobs.push(job);
    }
}

impl SealBatch {
    /// Seals the pending packets now, from `sources`; see [`Kernels::seal_from`].
    pub(crate) fn seal_from(&mut self, backend: Backend, sources: &[&[u8]]) {
        backend.kernels().seal_from(self.work_now(), sources);
    }

    /// Runs the pending packets. Outlined: in small turns there are none.
    fn seal_pending(&mut self, engine: &Engine) {
        #[cfg(feature = "cuda")]
        if let Some(device) = engine.device()
            && self.offload(device, engine.cpu(), packetlane_gpu::Op::Seal)
        {
            return;
        }
        engine.cpu().run(Kernels::seal, self.take_pending());
    }
}

impl OpenBatch {
    /// The handshakes that wait for their keys.
    #[cfg(feature = "bip324")]
    pub(crate) fn exchanges(&self) -> &KeyExchanges {
        &self.exchanges
    }

    /// The arena, and the handshakes that wait for their keys.
    #[cfg(feature = "bip324")]
    pub(crate) fn arena_and_exchanges(&mut self) -> (&mut Arena, &mut KeyExchanges) {
        (&mut self.arena, &mut self.exchanges)
    }

    /// Runs the pending packets. Outlined: in small turns there are none.
    fn open_pending(&mut self, engine: &Engine) {
        #[cfg(feature = "cuda")]
        if let Some(device) = engine.device()
            && self.offload(device, engine.cpu(), packetlane_gpu::Op::Open)
        {
            return;
        }
        engine.cpu().run(Kernels::open, self.take_pending());
    }
}

impl Sealed for SealBatch {}

impl ToSeal for SealBatch {
    #[inline]
    fn seal_on(&mut self, engine: &Engine) {
        if self.has_pending() {
            self.seal_pending(engine);
        } else {
            self.done = self.jobs.len();
        }
    }
}

impl Sealed for OpenBatch {}

impl ToOpen for OpenBatch {
    #[inline]
    fn open_on(&mut self, engine: &Engine) {
        if self.has_pending() {
            self.open_pending(engine);
        } else {
            self.done = self.jobs.len();
        }
        #[cfg(feature = "bip324")]
        if !self.exchanges.is_empty() {
            self.exchanges.compute(engine.backend());
        }
    }
}

impl<Direction> Default for Batch<Direction> {
    fn default() -> Self {
        Self::new()
    }
}

impl<Direction> Drop for Batch<Direction> {
    fn drop(&mut self) {
        self.wipe();
    }
}

/// Empties a list of keys after overwriting each. Does not overwrite the spare capacity, as
/// `Vec::zeroize` would: usually there is one key, for which a call of `memset` takes longer.
fn wipe(keys: &mut Vec<Key>) {
    for key in keys.iter_mut() {
        *key = [0; 32];
        zeroize::optimization_barrier(key);
    }
    keys.clear();
}

impl<Direction> fmt::Debug for Batch<Direction> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Prints neither keys nor contents.
        f.debug_struct("Batch")
            .field("packets", &self.jobs.len())
            .field("bytes", &self.arena.used())
            .finish_non_exhaustive()
    }
}
