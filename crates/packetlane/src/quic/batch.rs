//! The packets of one turn of an event loop: an arena, and the work for each packet in it.
//!
//! Everything that a kernel needs is recorded when a packet is added: a list of jobs for each of
//! the two ciphers, AES and ChaCha20, and the places of header masks. The lists run in windows of
//! packets ([`window`](super::window)).

use super::error::OpenError;
use super::header;
use super::key_ring::{KeyRef, KeyRing, Phase};
use super::window::{KeyRings, OpenJob, OpenPart, SealPart, WINDOW};
use crate::arena::{self, Arena, BatchKey, Slot, SlotError, index};
use crate::batch::{Opening, Sealing};
use crate::copy::copy;
use crate::engine::cpu::Cpu;
#[cfg(feature = "parallel")]
use crate::engine::threads;
use crate::engine::{Engine, ToOpen, ToSeal, sealed::Sealed};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Range;
use packetlane_lanes::{Backend, Header, Job, Outcome, TAG_LEN};

/// A batch of QUIC packets to seal: [`Sealer::push`](super::Sealer::push) adds them,
/// [`Engine::seal`] seals them all, and [`SealBatch::wire`](Batch::wire) returns the bytes of each.
pub type SealBatch = Batch<Sealing>;

/// A batch of QUIC packets to open: [`Opener::push`](super::Opener::push) adds them,
/// [`Engine::open`] opens them all, and [`Opener::take`](super::Opener::take) returns the result of
/// each.
pub type OpenBatch = Batch<Opening>;

/// Many packets, of any number of connections and any suites, in one arena: a [`SealBatch`] or an
/// [`OpenBatch`].
///
/// [`Batch::clear`] prepares the batch for the next turn and keeps its memory, so a steady state
/// allocates nothing.
///
/// As with [`crate::Batch`], sealing received packets and opening plaintext do not compile:
///
/// ```compile_fail,E0277
/// # use packetlane::{Engine, quic::OpenBatch};
/// Engine::portable().seal(&mut OpenBatch::new());
/// ```
///
/// ```compile_fail,E0277
/// # use packetlane::{Engine, quic::SealBatch};
/// Engine::portable().open(&mut SealBatch::new());
/// ```
pub struct Batch<Direction> {
    arena: Arena,
    /// Its packets, by cipher.
    aes: Packets,
    chacha20: Packets,
    /// Number of packets. Indices follow the order in which they were added.
    len: usize,
    /// The payloads of the first `sealed` packets are sealed.
    sealed: usize,
    /// The headers of the first `protected` packets are protected, too.
    protected: usize,
    direction: PhantomData<Direction>,
}

/// The packets of a batch whose AEAD and header protection use the same cipher. The lists of the
/// other direction stay empty.
#[derive(Default)]
struct Packets {
    /// The key rings that the packets refer to by index: one per connection.
    rings: KeyRings,
    /// Payloads to seal.
    jobs: Vec<Job>,
    /// Headers of those packets.
    headers: Vec<Header>,
    /// Number of sealed packets.
    sealed: usize,
    /// Number of packets with protected headers.
    protected: usize,
    /// Packets to open.
    opening: Vec<OpenJob>,
    /// Number of packets with unprotected headers.
    unprotected: usize,
    /// Payloads of the packets with unprotected headers that are not opened yet. Where headers and
    /// payloads are processed together, scratch memory for a window.
    to_open: Vec<Job>,
    /// Outcomes of the opened packets, which come first.
    outcomes: Vec<Outcome>,
}

impl<Direction> Batch<Direction> {
    /// Maximum size of a batch, in bytes; see [`crate::Batch::MAX_BYTES`].
    pub const MAX_BYTES: usize = arena::MAX_BYTES;

    /// Enough bytes for full speed; see [`crate::Batch::ENOUGH_BYTES`].
    pub const ENOUGH_BYTES: usize = arena::ENOUGH_BYTES;

    /// Creates an empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(0, 0)
    }

    /// Creates an empty batch with memory for `packets` packets of `bytes` bytes in total.
    #[must_use]
    pub fn with_capacity(packets: usize, bytes: usize) -> Self {
        Self {
            arena: Arena::with_capacity(bytes),
            aes: Packets::with_capacity(packets),
            chacha20: Packets::default(),
            len: 0,
            sealed: 0,
            protected: 0,
            direction: PhantomData,
        }
    }

    /// Drops all packets and keys, and keeps the memory.
    pub fn clear(&mut self) {
        self.arena.clear();
        self.aes.clear();
        self.chacha20.clear();
        self.len = 0;
        self.sealed = 0;
        self.protected = 0;
    }

    /// Frees memory; see [`crate::Batch::shrink_to`].
    pub fn shrink_to(&mut self, bytes: usize) {
        self.arena.shrink_to(bytes);
    }

    /// Returns the capacity of the arena, in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.arena.capacity()
    }

    /// Returns the number of packets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the batch holds no packets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes of the arena that are taken: all packets, one after the other. The ranges
    /// that [`Batch::commit`] returns refer to it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.arena.bytes()[..self.arena.used()]
    }

    /// Whether `len` more bytes fit.
    #[inline]
    pub(super) fn fits(&self, len: usize) -> bool {
        self.arena.fits(len)
    }

    /// Ensures that `keys` are in the batch in this turn, and that `batch_key` refers to them.
    /// Returns their index.
    #[inline]
    pub(super) fn index_of(&mut self, batch_key: &mut BatchKey, keys: &Arc<KeyRing>) -> u32 {
        if let Some(known) = batch_key.get(&self.arena) {
            return known;
        }
        let added = self.add_keys(keys);
        *batch_key = BatchKey::new(&self.arena, added);
        added
    }

    #[inline]
    fn add_keys(&mut self, keys: &Arc<KeyRing>) -> u32 {
        let packets = self.packets(keys.is_aes());
        packets.rings.add(keys)
    }

    #[inline]
    fn packets(&mut self, aes: bool) -> &mut Packets {
        if aes {
            &mut self.aes
        } else {
            &mut self.chacha20
        }
    }

    /// Returns the slot of the next packet, which has these keys.
    #[inline]
    fn slot(&mut self, keys: &KeyRing, bytes: Range<usize>) -> Slot {
        let place = self.len;
        self.len += 1;
        self.arena.slot(keys.owner, bytes, place..place + 1)
    }
}

impl SealBatch {
    /// Returns the sealed packets of `slot`, ready to send.
    ///
    /// # Errors
    ///
    /// [`SlotError::NotSealed`] if the header or payload of one of them has not been sealed,
    /// because plaintext must not reach a socket; or [`SlotError::Stale`].
    pub fn wire(&self, slot: &Slot) -> Result<&[u8], SlotError> {
        self.arena.check(slot.turn)?;
        if slot.packets.end > self.protected {
            return Err(SlotError::NotSealed);
        }
        Ok(&self.arena.bytes()[slot.bytes.clone()])
    }

    /// The first half of [`Engine::seal`], for a caller that protects headers by other means:
    /// encrypts payloads and writes tags, on the caller's thread. [`Batch::wire`] returns a packet
    /// only after [`Batch::protect_headers`].
    pub fn seal_payloads(&mut self, engine: &Engine) {
        let bytes = self.arena.bytes_mut();
        for packets in [&mut self.aes, &mut self.chacha20] {
            if !packets.rings.is_empty() {
                packets.seal_payloads(engine.backend(), bytes);
            }
        }
        self.sealed = self.len;
    }

    /// The second half of [`Engine::seal`]: protects the headers of the packets with sealed
    /// payloads, on the caller's thread.
    pub fn protect_headers(&mut self, engine: &Engine) {
        let bytes = self.arena.bytes_mut();
        for packets in [&mut self.aes, &mut self.chacha20] {
            if !packets.rings.is_empty() {
                packets.protect_headers(engine.backend(), bytes);
            }
        }
        self.protected = self.sealed;
    }

    /// Takes space for a packet to seal, with `keys` at index `keys_index`: a header of
    /// `header_len` bytes that starts with `first`, `payload_len` bytes and a tag. Returns the
    /// packet's bytes, for the header to be written.
    #[inline]
    pub(super) fn add_to_seal(
        &mut self,
        (keys_index, keys): (u32, &KeyRing),
        number: u64,
        (first, header_len): (u8, usize),
        payload_len: usize,
    ) -> (Slot, &mut [u8]) {
        let len = header_len + payload_len + TAG_LEN;
        let place = self.arena.take(len);
        let slot = self.slot(keys, place..place + len);
        let (start, header_len) = (index(place), index(header_len));
        let text = start + header_len;
        let packets = self.packets(keys.is_aes());
        packets.jobs.push(Job {
            text,
            text_len: index(payload_len),
            aad: start,
            aad_len: header_len,
            key: KeyRef::new(keys_index, Phase::Current).0 as usize,
            nonce: keys.current.nonce(number),
        });
        packets.headers.push(Header {
            bits: header::masked_bits(first),
            first: start,
            number: text - index(header::number_len(first)),
            key: KeyRef::new(keys_index, Phase::Current).0,
        });
        let packet = &mut self.arena.bytes_mut()[slot.bytes.clone()];
        (slot, packet)
    }
}

impl OpenBatch {
    /// Returns room for `len` bytes from a socket, at the end of the arena. [`Batch::commit`] then
    /// takes what the socket wrote. The room holds bytes of earlier turns, which the socket
    /// overwrites.
    ///
    /// # Panics
    ///
    /// If the arena would exceed [`Batch::MAX_BYTES`].
    #[inline]
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        self.arena.room(len)
    }

    /// Takes the first `len` bytes of the last [`Batch::room`], which a socket has written. Returns
    /// their range in [`Batch::bytes`].
    ///
    /// # Panics
    ///
    /// If `len` exceeds the length of that room, or the room has been taken or overwritten since.
    #[inline]
    pub fn commit(&mut self, len: usize) -> Range<usize> {
        let start = self.arena.commit(len);
        start..start + len
    }

    /// Like [`Batch::commit`], for a datagram in the caller's own buffer.
    ///
    /// # Panics
    ///
    /// As for [`Batch::room`].
    pub fn feed(&mut self, datagram: &[u8]) -> Range<usize> {
        copy(self.room(datagram.len()), datagram);
        self.commit(datagram.len())
    }

    /// The first half of [`Engine::open`]: removes header protection, recovers packet numbers, and
    /// selects keys by key phase, on the caller's thread.
    pub fn unprotect_headers(&mut self, engine: &Engine) {
        let bytes = self.arena.bytes_mut();
        for packets in [&mut self.aes, &mut self.chacha20] {
            packets.unprotect_headers(engine.backend(), bytes);
        }
    }

    /// The second half of [`Engine::open`], for packets with unprotected headers: checks tags and
    /// decrypts payloads, on the caller's thread. A payload with a wrong tag stays encrypted.
    pub fn open_payloads(&mut self, engine: &Engine) {
        let bytes = self.arena.bytes_mut();
        for packets in [&mut self.aes, &mut self.chacha20] {
            packets.open_payloads(engine.backend(), bytes);
        }
    }

    /// Returns the packet of `slot`, its keys, and its outcome.
    #[inline]
    pub(super) fn to_open(&self, slot: &Slot) -> Result<(&OpenJob, &KeyRing, Outcome), OpenError> {
        if self.arena.check(slot.turn).is_err() {
            return Err(OpenError::NotInBatch);
        }
        if slot.packets.len() != 1 {
            return Err(OpenError::SeveralPackets);
        }
        let place = slot.packets.start;
        let found = self.aes.find(place).or_else(|| self.chacha20.find(place));
        found.ok_or(OpenError::NotInBatch)
    }

    /// Adds a packet to open, with `keys` at index `keys_index`. The packet lies in the arena and
    /// is long enough for a sample.
    #[inline]
    pub(super) fn add_to_open(
        &mut self,
        (keys_index, keys): (u32, &KeyRing),
        expected: u64,
        packet: Range<usize>,
        pn_offset: usize,
    ) -> Slot {
        let job = OpenJob {
            start: index(packet.start),
            len: index(packet.len()),
            pn_offset: index(pn_offset),
            header_len: 0,
            place: index(self.len),
            keys: keys_index,
            number: expected,
            phase: Phase::Current,
        };
        self.packets(keys.is_aes()).opening.push(job);
        self.slot(keys, packet)
    }
}

impl Sealed for SealBatch {}

impl ToSeal for SealBatch {
    fn seal_on(&mut self, engine: &Engine) {
        if self.protected < self.sealed {
            self.protect_headers(engine);
        }
        let bytes = self.arena.bytes_mut();
        for packets in [&mut self.aes, &mut self.chacha20] {
            if !packets.rings.is_empty() {
                packets.seal(engine.cpu(), bytes);
            }
        }
        self.sealed = self.len;
        self.protected = self.len;
    }
}

impl Sealed for OpenBatch {}

impl ToOpen for OpenBatch {
    fn open_on(&mut self, engine: &Engine) {
        let bytes = self.arena.bytes_mut();
        for packets in [&mut self.aes, &mut self.chacha20] {
            // Then nothing else of this list need be in the cache.
            if packets.rings.is_empty() {
                continue;
            }
            if !packets.to_open.is_empty() {
                packets.open_payloads(engine.backend(), bytes);
            }
            packets.open(engine.cpu(), bytes);
        }
    }
}

impl<Direction> Default for Batch<Direction> {
    fn default() -> Self {
        Self::new()
    }
}

impl<Direction> fmt::Debug for Batch<Direction> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Prints neither keys nor contents.
        f.debug_struct("Batch")
            .field("packets", &self.len)
            .field("bytes", &self.arena.used())
            .finish_non_exhaustive()
    }
}

impl Packets {
    fn with_capacity(packets: usize) -> Self {
        Self {
            jobs: Vec::with_capacity(packets),
            headers: Vec::with_capacity(packets),
            opening: Vec::with_capacity(packets),
            ..Self::default()
        }
    }

    fn clear(&mut self) {
        // Without keys, nothing was added.
        if self.rings.is_empty() {
            return;
        }
        self.rings.clear();
        self.jobs.clear();
        self.headers.clear();
        self.opening.clear();
        self.to_open.clear();
        self.outcomes.clear();
        (self.sealed, self.protected, self.unprotected) = (0, 0, 0);
    }

    /// Returns the packet to open that is number `place` in the batch.
    #[inline]
    fn find(&self, place: usize) -> Option<(&OpenJob, &KeyRing, Outcome)> {
        // If all packets are in this list, it is at that index.
        let is_it = |packet: &&OpenJob| packet.place as usize == place;
        let (packet, found) = match self.opening.get(place).filter(is_it) {
            Some(packet) => (packet, place),
            None => self.search(place)?,
        };
        let outcome = self.outcomes.get(found).copied().unwrap_or_default();
        Some((packet, self.rings.ring(packet.keys), outcome))
    }

    #[cold]
    fn search(&self, place: usize) -> Option<(&OpenJob, usize)> {
        let by_place = |packet: &OpenJob| packet.place as usize;
        let found = self.opening.binary_search_by_key(&place, by_place).ok()?;
        Some((&self.opening[found], found))
    }

    /// Seals all pending packets, header and payload. None of them waits for its header only.
    fn seal(&mut self, cpu: Cpu, bytes: &mut [u8]) {
        let waiting = self.sealed..self.jobs.len();
        if waiting.is_empty() {
            return;
        }
        (self.sealed, self.protected) = (waiting.end, waiting.end);
        let part = SealPart {
            backend: cpu.backend,
            keys: self.rings.keys(),
            base: 0,
            bytes,
            jobs: &mut self.jobs[waiting.clone()],
            headers: &mut self.headers[waiting],
        };
        #[cfg(feature = "parallel")]
        if cpu.threads() > 1 {
            return threads::run(cpu.threads(), part);
        }
        part.run();
    }

    /// Opens all pending packets, header and payload. None of them waits for its payload only.
    fn open(&mut self, cpu: Cpu, bytes: &mut [u8]) {
        let waiting = self.unprotected..self.opening.len();
        if waiting.is_empty() {
            return;
        }
        self.unprotected = waiting.end;
        // Writing a single outcome is faster than calling `memset`.
        if waiting.len() == 1 {
            self.outcomes.push(Outcome::Pending);
        } else {
            self.outcomes.resize(waiting.end, Outcome::Pending);
        }
        let part = OpenPart {
            backend: cpu.backend,
            keys: self.rings.keys(),
            base: 0,
            bytes,
            packets: &mut self.opening[waiting.clone()],
            outcomes: &mut self.outcomes[waiting],
        };
        #[cfg(feature = "parallel")]
        if cpu.threads() > 1 {
            return threads::run(cpu.threads(), part);
        }
        part.run(&mut self.to_open);
    }

    fn seal_payloads(&mut self, backend: Backend, bytes: &mut [u8]) {
        let keys = self.rings.keys();
        for jobs in self.jobs[self.sealed..].chunks_mut(WINDOW) {
            keys.seal(backend, bytes, jobs);
        }
        self.sealed = self.jobs.len();
    }

    fn protect_headers(&mut self, backend: Backend, bytes: &mut [u8]) {
        let keys = self.rings.keys();
        for headers in self.headers[self.protected..self.sealed].chunks_mut(WINDOW) {
            keys.protect(backend, bytes, headers);
        }
        self.protected = self.sealed;
    }

    fn unprotect_headers(&mut self, backend: Backend, bytes: &mut [u8]) {
        let keys = self.rings.keys();
        let mut mixed = false;
        for packets in self.opening[self.unprotected..].chunks_mut(WINDOW) {
            let jobs = &mut self.to_open;
            mixed |= keys.unprotect(backend, (0, bytes), packets, jobs);
        }
        self.rings.mixed |= mixed;
        self.unprotected = self.opening.len();
    }

    fn open_payloads(&mut self, backend: Backend, bytes: &mut [u8]) {
        let keys = self.rings.keys();
        let opened = self.outcomes.len();
        self.outcomes.resize(self.unprotected, Outcome::Pending);
        let outcomes = self.outcomes[opened..].chunks_mut(WINDOW);
        for (jobs, outcomes) in self.to_open.chunks_mut(WINDOW).zip(outcomes) {
            keys.open(backend, bytes, jobs, outcomes);
        }
        self.to_open.clear();
    }
}
