//! The packets of one turn of an event loop that ChaCha20-Poly1305 protects: an arena, and
//! a job for each packet in it.
//!
//! Sessions add packets, an [`Engine`] runs them all, sessions and sockets take the results
//! from the arena. [`Batch::clear`] makes the batch ready for the next turn and keeps its
//! memory, so that a steady state allocates nothing.
//!
//! A batch is for one direction: [`SealBatch`] or [`OpenBatch`]. The two are one type with a
//! parameter, so that what both have is written once and mixing them does not compile.

#[cfg(feature = "cuda")]
use crate::arena::Memory;
use crate::arena::{self, Arena, BatchFull, BatchKey, Owner, Slot, SlotError, index};
use crate::copy::copy;
use crate::engine::cpu::Cpu;
#[cfg(feature = "cuda")]
use crate::engine::offload::Device;
use crate::engine::{Engine, ToOpen, ToSeal, sealed::Sealed};
use alloc::vec::Vec;
use core::fmt;
use core::iter::Zip;
use core::marker::PhantomData;
use core::ops::Range;
use core::slice;
use packetlane_lanes::{Backend, Block, Job, Kernels, Key, Nonce, Outcome, TAG_LEN, Work};

/// How many bytes of a turn count for what is expected of the next ones: one large message is not
/// usual.
const COUNTED_BYTES: usize = 16 * 1024;

/// The longest text that runs when it is added, in bytes. A longer one is left to the batch, whose engine
/// may have threads or a GPU for it.
const MAX_NOW: usize = 63 * size_of::<Block>();

/// When packets that a session adds to a batch run. What became of them shows after the engine's call all
/// the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Each when it is added, if it is not too long: the turn has so few that lanes would be idle, which
    /// compute keystream of the session's next packets instead.
    Now,
    /// When they are added, from where their contents lie: these are long, and are not copied first. For
    /// packets to seal.
    FromSource,
    /// With all others, by the engine.
    WithBatch,
}

/// Packets to seal.
pub type SealBatch = Batch<Sealing>;

/// Packets to open.
pub type OpenBatch = Batch<Opening>;

/// The direction of a [`SealBatch`].
#[derive(Debug)]
pub enum Sealing {}

/// The direction of an [`OpenBatch`].
#[derive(Debug)]
pub enum Opening {}

/// Many packets in one arena, of as many sessions as there are: a [`SealBatch`] or an
/// [`OpenBatch`].
///
/// BIP324's sessions add their packets themselves
/// ([`Outbound::push`](crate::bip324::Outbound::push),
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
/// // A packet of one byte, which is its AAD, five bytes of text and a tag.
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
/// A batch of received packets cannot be sealed, which would decrypt them without a look at
/// their tags, nor one of plaintext be opened:
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
    /// Of the jobs that have run, or run.
    outcomes: Vec<Outcome>,
    /// Jobs of the turns before that had any, and bytes, in eighths. An eighth of it is the last one's.
    usual_len: usize,
    usual_bytes: usize,
    /// How many jobs an engine has been called for. What became of the others is not shown,
    /// even where they have run when they were added: a forgotten call must show at once.
    done: usize,
    direction: PhantomData<Direction>,
}

/// How one packet of a [`Batch`] is protected. Ranges count from the packet's first byte.
#[derive(Clone, Debug)]
pub struct PacketLayout {
    /// Its key, as [`Batch::ensure_key`] returns it in this turn.
    pub key: BatchKey,
    /// Its nonce: 12 bytes (RFC 8439, section 2.8). Never seal two packets with one nonce
    /// and key.
    pub nonce: Nonce,
    /// Additional authenticated data: any bytes of the packet outside of text and tag.
    /// `0..0` for none.
    pub aad: Range<usize>,
    /// What is encrypted. The tag of 16 bytes follows it.
    pub text: Range<usize>,
}

/// Bytes of a batch's arena that came from the network and belong to no packet yet.
#[derive(Debug)]
pub struct Received {
    bytes: Range<usize>,
    turn: u64,
}

impl Received {
    /// How many they are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps the first `len` bytes and returns the others: for a datagram of several
    /// packets. `None` if there are not so many.
    #[must_use]
    pub fn split_off(&mut self, len: usize) -> Option<Received> {
        if len > self.len() {
            return None;
        }
        let bytes = self.bytes.start + len..self.bytes.end;
        self.bytes.end = bytes.start;
        let turn = self.turn;
        Some(Received { bytes, turn })
    }
}

/// Why a packet was not added to a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddError {
    /// The batch has no room left: it holds at most [`Batch::MAX_BYTES`].
    BatchFull,
    /// The key is not in the batch in this turn: call [`Batch::ensure_key`] first.
    NoKey,
    /// What was received is of another turn or another batch.
    Stale,
    /// The text and its tag do not lie within the packet.
    TextOutside {
        /// The text.
        text: Range<usize>,
        /// Length of the packet, in bytes.
        packet_len: usize,
    },
    /// The AAD does not lie within the packet, or overlaps the text or its tag.
    AadMisplaced {
        /// The AAD.
        aad: Range<usize>,
        /// The text.
        text: Range<usize>,
        /// Length of the packet, in bytes.
        packet_len: usize,
    },
}

impl fmt::Display for AddError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BatchFull => BatchFull.fmt(f),
            Self::NoKey => f.write_str(
                "the key is not in the batch in this turn: call Batch::ensure_key first",
            ),
            Self::Stale => SlotError::Stale.fmt(f),
            Self::TextOutside { text, packet_len } => write!(
                f,
                "text {text:?} and its tag do not fit a packet of {packet_len} bytes"
            ),
            Self::AadMisplaced {
                aad,
                text,
                packet_len,
            } => write!(
                f,
                "AAD {aad:?} overlaps text {text:?} or its tag, or ends behind {packet_len} bytes"
            ),
        }
    }
}

impl core::error::Error for AddError {}

impl<Direction> Batch<Direction> {
    /// The most bytes that a batch holds: jobs address them by 32 bits.
    pub const MAX_BYTES: usize = arena::MAX_BYTES;

    /// From so many waiting bytes on, more packets make no batch faster, and some times as
    /// many make it slower: the first bytes have left the second-level cache before the
    /// engine comes to them. A sender should seal when a batch has so many bytes, as often
    /// as it likes in one turn; a receiver should not read more at a time. Where each of
    /// thousands of sessions has one small packet, their states take more of that cache than the
    /// packets do, and a quarter is enough.
    pub const ENOUGH_BYTES: usize = arena::ENOUGH_BYTES;

    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(0, 0)
    }

    /// An empty batch with memory for `packets` packets of `bytes` bytes in all.
    #[must_use]
    pub fn with_capacity(packets: usize, bytes: usize) -> Self {
        Self::on(Arena::with_capacity(bytes), packets)
    }

    /// An empty batch whose arena is `bytes` bytes of page-locked memory of `gpu` (feature
    /// `cuda`), from which large batches travel to the device and back without a copy on
    /// the CPU. Twice as much is taken (see [`Pinned`](packetlane_gpu::Pinned), which also
    /// says what sealing leaves in the other half). If the arena grows and there is no more
    /// such memory, it moves to ordinary memory.
    ///
    /// # Errors
    ///
    /// If there is not so much, or the device has failed.
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
            usual_len: 0,
            usual_bytes: 0,
            done: 0,
            direction: PhantomData,
        }
    }

    /// Begins a new turn: forgets all packets, wipes all keys and keeps the memory.
    ///
    /// Packets that a session has added and that nobody took are lost, and with them the
    /// session's stream.
    pub fn clear(&mut self) {
        if !self.jobs.is_empty() {
            let follow = |usual: usize, last: usize| usual - usual / 8 + last;
            self.usual_len = follow(self.usual_len, self.jobs.len());
            let bytes = self.arena.used().min(COUNTED_BYTES);
            self.usual_bytes = follow(self.usual_bytes, bytes);
        }
        self.arena.clear();
        self.wipe();
        self.jobs.clear();
        self.outcomes.clear();
        self.done = 0;
    }

    /// Gives back memory, down to `bytes` bytes of arena or those that are taken, and what
    /// its packets need. A batch otherwise stays as large as its largest turn.
    pub fn shrink_to(&mut self, bytes: usize) {
        self.arena.shrink_to(bytes);
        self.jobs.shrink_to_fit();
        self.outcomes.shrink_to_fit();
        // Not shrunk while it holds keys: that would leave copies.
        if self.keys.is_empty() {
            self.keys = Vec::new();
        }
    }

    /// How many bytes of memory its arena has.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.arena.capacity()
    }

    fn wipe(&mut self) {
        wipe(&mut self.keys);
    }

    /// How many packets it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether it holds no packet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// How many bytes of the arena are taken.
    #[must_use]
    pub fn bytes_used(&self) -> usize {
        self.arena.used()
    }

    /// Makes sure that `key` lies in the batch in this turn, and that `batch_key` says
    /// where: the key is added if `batch_key` is of another turn or another batch. The batch
    /// wipes its copy when it is cleared.
    #[inline]
    pub fn ensure_key(&mut self, batch_key: &mut BatchKey, key: &Key) {
        self.index_of(batch_key, key);
    }

    /// [`Batch::ensure_key`], and the key's index for a job.
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
            // By hand, so that growing leaves no copy of the keys behind.
            let mut grown = Vec::with_capacity((2 * self.keys.len()).max(16));
            grown.extend_from_slice(&self.keys);
            wipe(&mut self.keys);
            self.keys = grown;
        }
        self.keys.push(*key);
        index(self.keys.len() - 1)
    }

    /// Where the packet's key lies.
    #[inline]
    fn key(&self, layout: &PacketLayout) -> Result<u32, AddError> {
        layout.key.get(&self.arena).ok_or(AddError::NoKey)
    }

    #[inline]
    fn add(&mut self, bytes: Range<usize>, key: u32, layout: PacketLayout) -> Slot {
        let PacketLayout {
            nonce, aad, text, ..
        } = layout;
        let packet = self.jobs.len();
        self.add_job(Job {
            text: index(bytes.start + text.start),
            text_len: index(text.len()),
            aad: index(bytes.start + aad.start),
            aad_len: index(aad.len()),
            key,
            nonce,
            ..Job::default()
        });
        let owner = Owner::of_key(key);
        self.arena.slot(owner, bytes, packet..packet + 1)
    }

    /// The outcome of packet number `packet`, in the order in which they were added.
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

    /// The jobs that have not run yet, for a backend to run. They count as run from now on.
    #[inline(always)]
    pub(crate) fn take_pending(&mut self) -> Work<'_> {
        self.done = self.jobs.len();
        self.work_now()
    }

    /// The jobs that have not run yet, for a session to run before an engine is called: what became of
    /// them does not show before.
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

    /// Makes room for what becomes of the jobs that have not run yet. Returns the number of the first.
    #[inline(always)]
    fn add_outcomes(&mut self) -> usize {
        let first = self.outcomes.len();
        // A single outcome is written faster than `memset` is called.
        if first + 1 == self.jobs.len() {
            self.outcomes.push(Outcome::Pending);
        } else {
            self.outcomes.resize(self.jobs.len(), Outcome::Pending);
        }
        first
    }

    /// Whether a job has not run.
    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        self.outcomes.len() < self.jobs.len()
    }

    /// Adds a packet that has run. None before it may be pending.
    #[inline]
    pub(crate) fn add_done(&mut self, job: Job, outcome: Outcome) {
        debug_assert!(!self.has_pending());
        self.add_job(job);
        self.outcomes.push(outcome);
    }

    /// Runs what waits on `device`, if it is for that. Returns whether it was.
    // Not part of its callers, most of which have no device.
    #[cfg(feature = "cuda")]
    #[inline(never)]
    fn offload(&mut self, device: Device, cpu: Cpu, op: packetlane_gpu::Op) -> bool {
        if !device.wants(cpu, &self.jobs[self.outcomes.len()..]) {
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

    /// Where the text of packet number `packet` lies.
    #[inline]
    pub(crate) fn text(&self, packet: usize) -> Range<usize> {
        let job = &self.jobs[packet];
        let start = job.text as usize;
        start..start + job.text_len as usize
    }

    /// The jobs with numbers `packets` and what became of each. None unless all have run.
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

    /// The nonce of packet number `packet`.
    pub(crate) fn nonce(&self, packet: usize) -> Nonce {
        self.jobs[packet].nonce
    }

    /// The bytes, slots and turn.
    #[inline]
    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// As [`Batch::arena`].
    #[inline]
    pub(crate) fn arena_mut(&mut self) -> &mut Arena {
        &mut self.arena
    }

    /// How many packets it will hold with `more` of them, if this turn is like those before.
    #[inline]
    fn expected_len(&self, more: usize) -> usize {
        (self.usual_len / 8).max(self.jobs.len() + more)
    }

    /// When the packets that a session is about to add run: `count` of them, whose texts have about
    /// `text_len` bytes in all. The session runs on `cpu`; `precomputes` says whether the keystream of its
    /// packets may be precomputed.
    #[inline(always)]
    pub(crate) fn plan(&self, cpu: Cpu, precomputes: bool, count: usize, text_len: usize) -> Plan {
        if !precomputes || self.has_pending() {
            return Plan::WithBatch;
        }
        let kernels = cpu.backend.kernels();
        let out_of_place = cpu.is_alone() && kernels.is_faster_out_of_place(count, text_len);
        let is_long = count == 1 && text_len > MAX_NOW;
        if self.is_small(cpu.backend, count) && (!is_long || cpu.is_alone() && !out_of_place) {
            return Plan::Now;
        }
        match out_of_place {
            true => Plan::FromSource,
            false => Plan::WithBatch,
        }
    }

    /// Whether it will hold so few packets with `more` of them, if this turn is like those before, that
    /// each is run faster alone; see [`Kernels::is_small_turn`]. Not by the bytes that it holds: one long
    /// packet makes no other turn, and each change of plan wipes precomputed keystream.
    #[inline(always)]
    fn is_small(&self, backend: Backend, more: usize) -> bool {
        let packets = self.expected_len(more);
        packets <= 2 || {
            // Of each packet one for its tag, and at least one for its text.
            let of_texts = self.usual_bytes / 8 / size_of::<Block>();
            let blocks = packets + packets.max(of_texts);
            backend.kernels().is_small_turn(packets, blocks)
        }
    }

    /// The whole memory of the arena, and the jobs.
    #[inline]
    pub(crate) fn bytes_and_jobs(&mut self) -> (&mut [u8], &mut Vec<Job>) {
        (self.arena.bytes_mut(), &mut self.jobs)
    }

    /// Adds a packet whose bytes lie in the arena.
    #[inline]
    pub(crate) fn add_job(&mut self, job: Job) {
        self.jobs.push(job);
    }
}

impl SealBatch {
    /// Adds a packet of `wire_len` bytes to seal. Returns its slot, and its bytes for the
    /// caller to write: header, AAD and plaintext where `layout` has them. They show
    /// bytes of earlier turns, and all but the tag must be written. [`Batch::wire`] gives
    /// the sealed packet.
    ///
    /// # Errors
    ///
    /// See [`AddError`]. Nothing is added then.
    #[inline]
    pub fn add_to_seal(
        &mut self,
        wire_len: usize,
        layout: PacketLayout,
    ) -> Result<(Slot, &mut [u8]), AddError> {
        layout.check(wire_len)?;
        let key = self.key(&layout)?;
        if !self.arena.fits(wire_len) {
            return Err(AddError::BatchFull);
        }
        let start = self.arena.take(wire_len);
        let bytes = start..start + wire_len;
        let slot = self.add(bytes.clone(), key, layout);
        Ok((slot, &mut self.arena.bytes_mut()[bytes]))
    }

    /// The sealed packets of `slot`, ready for the wire.
    ///
    /// # Errors
    ///
    /// [`SlotError::NotSealed`] if one of them has not been sealed, [`SlotError::Stale`].
    #[inline]
    pub fn wire(&self, slot: &Slot) -> Result<&[u8], SlotError> {
        self.arena.check(slot.turn)?;
        // Without an early exit, so that the compiler takes many at a time.
        let sealed = |all, outcome: &Outcome| all & (*outcome == Outcome::Sealed);
        let packets = slot.packets.clone();
        if packets.end <= self.done && self.outcomes[packets].iter().fold(true, sealed) {
            Ok(&self.arena.bytes()[slot.bytes.clone()])
        } else {
            Err(SlotError::NotSealed)
        }
    }

    /// Seals the packets that wait here and now, as [`Kernels::seal_from`].
    pub(crate) fn seal_from(&mut self, backend: Backend, sources: &[&[u8]]) {
        backend.kernels().seal_from(self.work_now(), sources);
    }

    /// Runs the packets that wait. Not part of its callers: in small turns none does.
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
    /// Room for `len` bytes from a socket, at the arena's end. The bytes that the socket
    /// wrote are taken by [`Batch::commit`] or
    /// [`Inbound::receive`](crate::bip324::Inbound::receive); the rest stays free. The
    /// room shows bytes of earlier turns, for the socket to write over.
    ///
    /// # Panics
    ///
    /// If the arena would exceed [`Batch::MAX_BYTES`].
    #[inline]
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        self.arena.room(len)
    }

    /// Commits the first `len` bytes of the last [`Batch::room`]: a socket has written them.
    ///
    /// # Panics
    ///
    /// If that room was shorter, or has been taken or written over since.
    #[inline]
    pub fn commit(&mut self, len: usize) -> Received {
        let start = self.arena.commit(len);
        let turn = self.arena.turn();
        Received {
            bytes: start..start + len,
            turn,
        }
    }

    /// As [`Batch::commit`], for bytes that lie elsewhere.
    ///
    /// # Panics
    ///
    /// As [`Batch::room`].
    pub fn feed(&mut self, bytes: &[u8]) -> Received {
        copy(self.arena.room(bytes.len()), bytes);
        self.commit(bytes.len())
    }

    /// The bytes themselves, still encrypted: for a protocol to read its header.
    ///
    /// # Errors
    ///
    /// [`SlotError::Stale`].
    #[inline]
    pub fn received_bytes(&self, received: &Received) -> Result<&[u8], SlotError> {
        self.arena.check(received.turn)?;
        Ok(&self.arena.bytes()[received.bytes.clone()])
    }

    /// Adds a packet to open, which is all of `received`. [`Batch::opened`] gives its text.
    ///
    /// # Errors
    ///
    /// See [`AddError`]. Nothing is added then.
    #[inline]
    pub fn add_to_open(
        &mut self,
        received: Received,
        layout: PacketLayout,
    ) -> Result<Slot, AddError> {
        layout.check(received.len())?;
        let key = self.key(&layout)?;
        if self.arena.check(received.turn).is_err() {
            return Err(AddError::Stale);
        }
        Ok(self.add(received.bytes, key, layout))
    }

    /// The text of a packet that was opened.
    ///
    /// # Errors
    ///
    /// [`SlotError::BadTag`]: the text stays encrypted then, and is not shown.
    /// [`SlotError::NotOpened`], [`SlotError::Stale`], [`SlotError::SeveralPackets`].
    #[inline]
    pub fn opened(&self, slot: &Slot) -> Result<&[u8], SlotError> {
        self.arena.check(slot.turn)?;
        let packet = slot.packets.start;
        if slot.packets.len() != 1 {
            return Err(SlotError::SeveralPackets);
        }
        match self.outcome(packet) {
            Outcome::Authentic => Ok(&self.arena.bytes()[self.text(packet)]),
            Outcome::BadTag => Err(SlotError::BadTag),
            Outcome::Pending | Outcome::Sealed => Err(SlotError::NotOpened),
        }
    }

    /// Runs the packets that wait. Not part of its callers: in small turns none does.
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

impl PacketLayout {
    /// Whether it fits a packet of `len` bytes.
    #[inline]
    fn check(&self, len: usize) -> Result<(), AddError> {
        let Self { aad, text, .. } = self;
        if text.start > text.end || text.end > len || len - text.end < TAG_LEN {
            return Err(AddError::TextOutside {
                text: text.clone(),
                packet_len: len,
            });
        }
        let apart = aad.end <= text.start || aad.start >= text.end + TAG_LEN;
        if aad.start > aad.end || aad.end > len || !(aad.is_empty() || apart) {
            return Err(AddError::AadMisplaced {
                aad: aad.clone(),
                text: text.clone(),
                packet_len: len,
            });
        }
        Ok(())
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

/// Empties a list of keys, each of which is overwritten before: one by one and not their capacity, as
/// `Vec::zeroize` does. Mostly there is one, for which a call of `memset` takes longer.
fn wipe(keys: &mut Vec<Key>) {
    for key in keys.iter_mut() {
        *key = [0; 32];
        zeroize::optimization_barrier(key);
    }
    keys.clear();
}

impl<Direction> fmt::Debug for Batch<Direction> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither keys nor contents.
        f.debug_struct("Batch")
            .field("packets", &self.jobs.len())
            .field("bytes", &self.arena.used())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_turn_is_expected_to_hold() {
        let mut batch = SealBatch::new();
        let turn = |batch: &mut SealBatch, packets: usize| {
            for _ in 0..packets {
                batch.arena.take(100);
                batch.add_job(Job::default());
            }
            batch.clear();
            (batch.usual_len / 8, batch.usual_bytes / 8)
        };
        // An eighth of the difference, and an empty turn changes nothing.
        assert_eq!(turn(&mut batch, 16), (2, 200));
        assert_eq!(turn(&mut batch, 16), (3, 375));
        assert_eq!(turn(&mut batch, 0), (3, 375));
        for packets in [100, 3, 2] {
            for _ in 0..80 {
                turn(&mut batch, packets);
            }
            assert_eq!(turn(&mut batch, packets), (packets, 100 * packets));
        }
        // More than usual, and so much that it does not count.
        for _ in 0..3 {
            batch.arena.take(1 << 20);
            batch.add_job(Job::default());
        }
        assert_eq!(batch.expected_len(1), 4);
        batch.clear();
        assert!(batch.usual_bytes / 8 < COUNTED_BYTES);
    }
}
