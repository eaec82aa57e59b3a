//! The packets of one turn of an event loop: one arena of bytes, and what is to be done
//! with each packet in it.
//!
//! The list is worked off in windows of packets, so that what the AEAD has written is
//! still near when headers are masked: of each window the payloads of all packets, and
//! the masks of all their headers, go to the backend in one call for AES and one for
//! ChaCha20. Sealing does the payloads first, for the samples are ciphertext; opening
//! does the headers first, for they say nonce and key phase.

use super::header::{self, KEY_PHASE, Mask, decode_packet_number, sample};
use super::keys::{Aead, Cipher, Way};
use super::{HeaderKey, PacketKey, SAMPLE_LEN};
use crate::batch::{Slot, index};
use crate::{Backend, Engine, Job, Outcome, TAG_LEN};
use alloc::sync::Arc;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::fmt;
use core::ops::Range;
use zeroize::Zeroize;

/// How many packets make a window: enough to fill the lanes, and few enough that what
/// is of them stays in the second cache.
const WINDOW: usize = 64;

/// Packets in one buffer, of as many connections as one likes, of any suites.
///
/// [`Sealer::push`](super::Sealer::push) and [`Opener::push`](super::Opener::push) add
/// packets, [`Batch::seal`] or [`Batch::open`] runs them all, then
/// [`Batch::wire`] or [`Opener::take`](super::Opener::take) gives what came of each.
/// [`Batch::clear`] makes it ready for the next turn and keeps its memory, so that a
/// steady state allocates nothing.
///
/// A batch is for one direction at a time: packets to seal or packets to open. Those of
/// the other direction stay as they are, whichever of the two runs.
pub struct Batch {
    /// Its arena, room and turns. It has no jobs.
    arena: crate::Batch,
    /// What the packets' indices refer to: each connection's once.
    keys: Vec<Arc<Keys>>,
    packets: Vec<Entry>,
    /// How many packets are done.
    done: usize,
}

/// The keys of one direction of a packet number space, shared with the batches that
/// hold packets of it.
pub(super) struct Keys {
    pub(super) header: Arc<HeaderKey>,
    pub(super) current: Arc<PacketKey>,
    /// Those before and after, if there are any.
    pub(super) previous: Option<Arc<PacketKey>>,
    pub(super) next: Option<Arc<PacketKey>>,
    /// How many key updates were before `current`. The lowest bit is its key phase.
    pub(super) generation: u64,
    /// The first packet number that came with `current`.
    pub(super) first_number: u64,
}

impl Keys {
    /// Which keys a packet has by its unprotected header and its number.
    fn phase(&self, first: u8, number: u64) -> Phase {
        let same = (first & KEY_PHASE != 0) == (self.generation & 1 == 1);
        if same || !header::is_short(first) {
            Phase::Current
        } else if self.previous.is_some() && number < self.first_number {
            Phase::Previous
        } else {
            Phase::Next
        }
    }

    fn packet_key(&self, phase: Phase) -> &PacketKey {
        let other = match phase {
            Phase::Previous => &self.previous,
            Phase::Current => &None,
            Phase::Next => &self.next,
        };
        other.as_ref().unwrap_or(&self.current)
    }
}

/// A key phase, relative to the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Previous,
    Current,
    Next,
}

/// How far a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// As it was added.
    Added,
    /// Its payload is sealed, or its header unprotected.
    Halfway,
    /// Ready for the wire.
    Sealed,
    Authentic,
    Forged,
}

/// What is known of a packet.
pub(super) struct Entry {
    way: Way,
    pub(super) stage: Stage,
    pub(super) phase: Phase,
    /// Where it lies in the arena, tag included.
    start: u32,
    len: u32,
    pn_offset: u32,
    /// Of a packet to open, known from halfway on, as is its phase.
    pub(super) header_len: u32,
    pub(super) keys: u32,
    /// Its packet number; of a packet to open the expected one until halfway.
    pub(super) number: u64,
}

impl Entry {
    pub(super) fn range(&self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.len as usize
    }

    #[inline]
    fn job(&self, key: &PacketKey, index: u32) -> Job {
        Job {
            text: self.start + self.header_len,
            text_len: self.len - self.header_len - TAG_LEN as u32,
            aad: self.start,
            aad_len: self.header_len,
            key: index,
            nonce: key.nonce(self.number),
            ..Job::default()
        }
    }

    #[inline]
    fn sample(&self, bytes: &[u8]) -> [u8; SAMPLE_LEN] {
        let packet = &bytes[self.range()];
        let place = sample(packet.len(), self.pn_offset as usize).expect("checked when added");
        packet[place].try_into().expect("SAMPLE_LEN bytes")
    }
}

impl Batch {
    /// As for [`crate::Batch::MAX_BYTES`].
    pub const MAX_BYTES: usize = crate::Batch::MAX_BYTES;

    /// As for [`crate::Batch::ENOUGH_BYTES`].
    pub const ENOUGH_BYTES: usize = crate::Batch::ENOUGH_BYTES;

    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(0, 0)
    }

    /// An empty batch with memory for `packets` packets of `bytes` bytes in all.
    #[must_use]
    pub fn with_capacity(packets: usize, bytes: usize) -> Self {
        Self {
            arena: crate::Batch::with_capacity(0, bytes),
            keys: Vec::new(),
            packets: Vec::with_capacity(packets),
            done: 0,
        }
    }

    /// Forgets all packets and keys and keeps the memory.
    pub fn clear(&mut self) {
        self.arena.clear();
        self.keys.clear();
        self.packets.clear();
        self.done = 0;
    }

    /// Gives back memory; see [`crate::Batch::shrink_to`].
    pub fn shrink_to(&mut self, bytes: usize) {
        self.arena.shrink_to(bytes);
    }

    /// How many bytes of memory its arena has.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.arena.capacity()
    }

    /// How many packets it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether it holds no packet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// The bytes of the arena that are taken: what [`Batch::received`] returns is a
    /// range of them.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.arena.bytes()[..self.arena.bytes_used()]
    }

    /// Room for `len` bytes from a socket, at the arena's end; [`Batch::received`]
    /// takes what the socket wrote. It shows bytes of earlier turns.
    ///
    /// # Panics
    ///
    /// If the arena would exceed [`Batch::MAX_BYTES`].
    #[inline]
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        self.arena.room(len)
    }

    /// Takes the first `len` bytes of the last [`Batch::room`]. Returns where they lie.
    ///
    /// # Panics
    ///
    /// If that room was shorter, or has been taken or written over since.
    #[inline]
    pub fn received(&mut self, len: usize) -> Range<usize> {
        let start = self.arena.take_received(len);
        start..start + len
    }

    /// As [`Batch::received`], for a datagram that lies elsewhere.
    ///
    /// # Panics
    ///
    /// As [`Batch::room`].
    pub fn feed(&mut self, datagram: &[u8]) -> Range<usize> {
        self.room(datagram.len()).copy_from_slice(datagram);
        self.received(datagram.len())
    }

    /// The sealed packets of `slot`, ready for the wire.
    ///
    /// # Panics
    ///
    /// If one of them has not been sealed, header and payload: nobody shall send
    /// plaintext. And if the batch has been cleared since, or is another one.
    #[must_use]
    pub fn wire(&self, slot: &Slot) -> &[u8] {
        assert!(
            slot.turn == self.arena.turn(),
            "the batch has been cleared since {slot:?}, or is another one"
        );
        let mut packets = self.packets[slot.jobs.clone()].iter();
        assert!(
            packets.all(|packet| packet.stage == Stage::Sealed),
            "the packets of {slot:?} are not sealed: call Batch::seal before Batch::wire"
        );
        &self.arena.bytes()[slot.bytes.clone()]
    }

    /// Seals every packet that has not run yet, in place: encrypts its payload, writes
    /// its tag, protects its header. On the caller's thread, whatever the engine's
    /// threads.
    pub fn seal(&mut self, engine: &Engine) {
        self.run(engine, Way::Seal, &[Step::Payloads, Step::Headers]);
        self.done = self.packets.len();
    }

    /// The first half of [`Batch::seal`], for who protects headers by other means: what
    /// goes over the wire needs [`Batch::protect_headers`] too.
    pub fn seal_payloads(&mut self, engine: &Engine) {
        self.run(engine, Way::Seal, &[Step::Payloads]);
    }

    /// The second half of [`Batch::seal`]: protects the headers of the packets whose
    /// payloads are sealed.
    pub fn protect_headers(&mut self, engine: &Engine) {
        self.run(engine, Way::Seal, &[Step::Headers]);
    }

    /// Opens every packet that has not run yet, in place: removes the protection of its
    /// header, recovers its number, chooses among the keys of its opener by key phase,
    /// checks its tag and decrypts its payload. A payload whose tag is wrong stays
    /// encrypted and touches no other. On the caller's thread, whatever the engine's
    /// threads.
    pub fn open(&mut self, engine: &Engine) {
        self.run(engine, Way::Open, &[Step::Headers, Step::Payloads]);
        self.done = self.packets.len();
    }

    /// The first half of [`Batch::open`].
    pub fn unprotect_headers(&mut self, engine: &Engine) {
        self.run(engine, Way::Open, &[Step::Headers]);
    }

    /// The second half of [`Batch::open`], for the packets whose headers are
    /// unprotected.
    pub fn open_payloads(&mut self, engine: &Engine) {
        self.run(engine, Way::Open, &[Step::Payloads]);
    }

    fn run(&mut self, engine: &Engine, way: Way, steps: &[Step]) {
        for packets in self.packets[self.done..].chunks_mut(WINDOW) {
            for step in steps {
                let window = Window {
                    backend: engine.backend(),
                    way,
                    bytes: self.arena.bytes_mut(),
                    keys: &self.keys,
                    packets,
                };
                match step {
                    Step::Payloads => window.payloads(),
                    Step::Headers => window.headers(),
                }
            }
        }
    }

    /// Whether `len` more bytes fit.
    pub(super) fn fits(&self, len: usize) -> bool {
        self.arena.fits(len)
    }

    /// Tells one filling of the batch from the next.
    pub(super) fn turn(&self) -> usize {
        self.arena.turn()
    }

    /// Adds keys and returns their index.
    pub(super) fn add_keys(&mut self, keys: &Arc<Keys>) -> u32 {
        self.keys.push(Arc::clone(keys));
        index(self.keys.len() - 1)
    }

    pub(super) fn keys(&self, packet: &Entry) -> &Keys {
        &self.keys[packet.keys as usize]
    }

    /// The packet of `slot`, if it is of this filling of the batch.
    pub(super) fn packet(&self, slot: &Slot) -> Option<&Entry> {
        (slot.turn == self.turn()).then(|| &self.packets[slot.jobs.start])
    }

    /// Takes room for a packet to seal, with the keys of index `keys`: a header,
    /// `payload_len` bytes and a tag. Returns the packet's bytes.
    pub(super) fn add_to_seal(
        &mut self,
        keys: u32,
        number: u64,
        header: &[u8],
        payload_len: usize,
    ) -> (Slot, &mut [u8]) {
        let len = header.len() + payload_len + TAG_LEN;
        let start = self.arena.take(len);
        let slot = self.add(Entry {
            way: Way::Seal,
            stage: Stage::Added,
            phase: Phase::Current,
            start: index(start),
            len: index(len),
            pn_offset: index(header.len() - header::number_len(header[0])),
            header_len: index(header.len()),
            keys,
            number,
        });
        let packet = &mut self.arena.bytes_mut()[start..start + len];
        packet[..header.len()].copy_from_slice(header);
        (slot, packet)
    }

    /// Adds a packet to open, which lies in the arena and is long enough for a sample.
    pub(super) fn add_to_open(
        &mut self,
        keys: u32,
        expected: u64,
        packet: Range<usize>,
        pn_offset: usize,
    ) -> Slot {
        self.add(Entry {
            way: Way::Open,
            stage: Stage::Added,
            phase: Phase::Current,
            start: index(packet.start),
            len: index(packet.len()),
            pn_offset: index(pn_offset),
            header_len: 0,
            keys,
            number: expected,
        })
    }

    fn add(&mut self, packet: Entry) -> Slot {
        let job = self.packets.len();
        let bytes = packet.range();
        self.packets.push(packet);
        Slot {
            bytes,
            jobs: job..job + 1,
            turn: self.turn(),
        }
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither keys nor contents.
        f.debug_struct("Batch")
            .field("packets", &self.packets.len())
            .field("bytes", &self.arena.bytes_used())
            .finish_non_exhaustive()
    }
}

/// One of the two halves of protection.
enum Step {
    Payloads,
    Headers,
}

/// A part of a batch's packets, small enough for lists on the stack.
struct Window<'b> {
    backend: Backend,
    way: Way,
    bytes: &'b mut [u8],
    keys: &'b [Arc<Keys>],
    packets: &'b mut [Entry],
}

/// What one kernel is to do: tasks that name their keys by index.
struct Work<K, T> {
    keys: ArrayVec<K, WINDOW>,
    /// Which the last key is: neighbours often have the same.
    last: Option<(u32, Phase)>,
    tasks: ArrayVec<T, WINDOW>,
    /// Of each task which packet it is for.
    places: ArrayVec<usize, WINDOW>,
}

impl<K, T> Work<K, T> {
    fn new() -> Self {
        Self {
            keys: ArrayVec::new_const(),
            last: None,
            tasks: ArrayVec::new_const(),
            places: ArrayVec::new_const(),
        }
    }

    /// Adds a task for the packet at `place` and its key, which has index `task`'s
    /// argument.
    #[inline]
    fn add(&mut self, which: (u32, Phase), key: K, place: usize, task: impl FnOnce(u32) -> T) {
        if self.last != Some(which) {
            self.last = Some(which);
            self.keys.push(key);
        }
        self.tasks.push(task(index(self.keys.len() - 1)));
        self.places.push(place);
    }
}

impl Window<'_> {
    /// Seals or opens the payloads.
    fn payloads(self) {
        let ready = match self.way {
            Way::Seal => Stage::Added,
            Way::Open => Stage::Halfway,
        };
        let mut gcm = Work::new();
        let mut chacha20 = Work::new();
        for (place, packet) in self.packets.iter().enumerate() {
            if packet.way != self.way || packet.stage != ready {
                continue;
            }
            let key = self.keys[packet.keys as usize].packet_key(packet.phase);
            let which = (packet.keys, packet.phase);
            let job = |index| packet.job(key, index);
            match &key.aead {
                Aead::Gcm(key) => gcm.add(which, &**key, place, job),
                Aead::ChaCha20(key) => chacha20.add(which, *key, place, job),
            }
        }
        let mut outcomes = [Outcome::Pending; WINDOW];
        if !gcm.tasks.is_empty() {
            self.way.gcm()(
                self.backend,
                self.bytes,
                &gcm.keys,
                &gcm.tasks,
                &mut outcomes,
            );
            note(self.packets, &gcm.places, &outcomes);
        }
        if !chacha20.tasks.is_empty() {
            let keys = chacha20.keys[..].into();
            self.way.chacha20()(
                self.backend,
                self.bytes,
                keys,
                &chacha20.tasks,
                &mut outcomes,
            );
            note(self.packets, &chacha20.places, &outcomes);
            chacha20.keys.as_flattened_mut().zeroize();
        }
    }

    /// Protects or unprotects the headers.
    fn headers(self) {
        let ready = match self.way {
            Way::Seal => Stage::Halfway,
            Way::Open => Stage::Added,
        };
        let mut aes = Work::new();
        let mut chacha20 = Work::new();
        for (place, packet) in self.packets.iter().enumerate() {
            if packet.way != self.way || packet.stage != ready {
                continue;
            }
            let which = (packet.keys, Phase::Current);
            let sample = |index| (index, packet.sample(self.bytes));
            match &self.keys[packet.keys as usize].header.cipher {
                Cipher::Aes(key) => aes.add(which, &**key, place, sample),
                Cipher::ChaCha20(key) => chacha20.add(which, *key, place, sample),
            }
        }
        let mut masks = [Mask::default(); WINDOW];
        if !aes.tasks.is_empty() {
            self.backend.aes_masks(&aes.keys, &aes.tasks, &mut masks);
            for (&place, mask) in aes.places.iter().zip(&masks) {
                mask_header(self.bytes, self.keys, &mut self.packets[place], mask);
            }
        }
        if !chacha20.tasks.is_empty() {
            self.backend
                .chacha20_masks(&chacha20.keys, &chacha20.tasks, &mut masks);
            for (&place, mask) in chacha20.places.iter().zip(&masks) {
                mask_header(self.bytes, self.keys, &mut self.packets[place], mask);
            }
            chacha20.keys.as_flattened_mut().zeroize();
        }
    }
}

/// Takes down what became of payloads.
fn note(packets: &mut [Entry], places: &[usize], outcomes: &[Outcome]) {
    for (&place, outcome) in places.iter().zip(outcomes) {
        packets[place].stage = match outcome {
            Outcome::Sealed => Stage::Halfway,
            Outcome::Authentic => Stage::Authentic,
            Outcome::Pending | Outcome::Forged => Stage::Forged,
        };
    }
}

/// Masks the header of a packet; of one to open, reads it.
#[inline]
fn mask_header(bytes: &mut [u8], keys: &[Arc<Keys>], packet: &mut Entry, mask: &Mask) {
    let place = packet.range();
    let bytes = &mut bytes[place];
    let pn_offset = packet.pn_offset as usize;
    match packet.way {
        Way::Seal => {
            header::protect(bytes, pn_offset, mask);
            packet.stage = Stage::Sealed;
        }
        Way::Open => {
            let (truncated, len) = header::unprotect(bytes, pn_offset, mask);
            packet.number = decode_packet_number(packet.number, truncated, len);
            packet.header_len = index(pn_offset + len);
            packet.phase = keys[packet.keys as usize].phase(bytes[0], packet.number);
            packet.stage = Stage::Halfway;
        }
    }
}
