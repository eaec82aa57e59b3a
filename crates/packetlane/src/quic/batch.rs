//! The packets of one turn of an event loop: one arena of bytes, and what is to be done
//! with each packet in it.
//!
//! What a kernel asks for is written down as soon as it is known: a list of jobs for
//! each of the two ciphers, AES and ChaCha20, and where header masks go. The lists are
//! worked off in windows of packets. Sealing does the payloads first, for the samples
//! are ciphertext; opening the headers, for they say nonce and key phase.

use super::header::{self, KEY_PHASE, nearest_number};
use super::keys::{Aead, Cipher};
use super::{HeaderKey, PacketKey};
use crate::batch::{Slot, index};
use crate::{Backend, Engine, Job, Key, Outcome, TAG_LEN};
use alloc::sync::Arc;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::fmt;
use core::ops::Range;
use packetlane_lanes::{AesKey, GcmKey, Header, Work};

/// How many packets make a window: enough to fill the lanes, and few enough that what
/// is of them stays in the second cache.
const WINDOW: usize = 64;

/// How many masks are had at once where they are wanted by themselves: as many as blocks
/// of ChaCha20 are.
const AT_ONCE: usize = 32;

/// A sample lies so many bytes behind the first of its packet number.
const MAX_NUMBER_LEN: u32 = header::MAX_NUMBER_LEN as u32;

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
    /// Its packets, by cipher.
    aes: Packets,
    chacha20: Packets,
    /// How many packets there are, in the order in which they were added.
    len: usize,
    /// Of those to seal among the first so many the payloads are sealed.
    sealed: usize,
    /// Of those to seal among the first so many the headers are protected, too.
    protected: usize,
}

/// The packets of a batch whose AEAD and header protection have one cipher.
#[derive(Default)]
struct Packets {
    /// What the packets' indices refer to: each connection's once.
    keys: Vec<Arc<Keys>>,
    /// Whether there is any [`Which`] that is not the first.
    mixed: bool,
    /// The payloads to seal.
    jobs: Vec<Job>,
    /// Their headers.
    headers: Vec<Header>,
    /// How many of them are sealed.
    sealed: usize,
    /// How many are protected, too.
    protected: usize,
    /// Those to open.
    opening: Vec<Opening>,
    /// The payloads of the first of them: those whose headers are unprotected.
    to_open: Vec<Job>,
    /// What came of the first of those.
    outcomes: Vec<Outcome>,
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

    fn gcm_key(&self, phase: Phase) -> &GcmKey {
        match &self.packet_key(phase).aead {
            Aead::Gcm(key) => key,
            Aead::ChaCha20(_) => unreachable!("among packets of the other cipher"),
        }
    }

    fn aes_key(&self, _: Phase) -> &AesKey {
        match &self.header.cipher {
            Cipher::Aes(key) => key,
            Cipher::ChaCha20(_) => unreachable!("among packets of the other cipher"),
        }
    }

    fn chacha20_key(&self, phase: Phase) -> &Key {
        match &self.packet_key(phase).aead {
            Aead::ChaCha20(key) => key,
            Aead::Gcm(_) => unreachable!("among packets of the other cipher"),
        }
    }

    fn chacha20_header_key(&self, _: Phase) -> &Key {
        match &self.header.cipher {
            Cipher::ChaCha20(key) => key,
            Cipher::Aes(_) => unreachable!("among packets of the other cipher"),
        }
    }

    #[inline]
    fn is_aes(&self) -> bool {
        matches!(self.header.cipher, Cipher::Aes(_))
    }
}

/// A key phase, relative to the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Current,
    Previous,
    Next,
}

/// What a job's index of its key is until its window runs: an index of [`Packets::keys`],
/// and which of those.
#[derive(Clone, Copy)]
struct Which(u32);

impl Which {
    #[inline]
    fn new(keys: u32, phase: Phase) -> Self {
        Self(keys << 2 | phase as u32)
    }

    #[inline]
    fn keys(self) -> usize {
        (self.0 >> 2) as usize
    }

    #[inline]
    fn phase(self) -> Phase {
        match self.0 & 3 {
            0 => Phase::Current,
            1 => Phase::Previous,
            _ => Phase::Next,
        }
    }
}

/// A packet to open, and what is known of it.
pub(super) struct Opening {
    /// Where it lies in the arena, tag included.
    start: u32,
    len: u32,
    pn_offset: u32,
    /// Known once its header is unprotected, as is its phase.
    pub(super) header_len: u32,
    /// Which of the batch's packets it is.
    place: u32,
    keys: u32,
    /// Its packet number; until its header is unprotected the expected one.
    pub(super) number: u64,
    pub(super) phase: Phase,
}

impl Opening {
    pub(super) fn range(&self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.len as usize
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
            aes: Packets::with_capacity(packets),
            chacha20: Packets::default(),
            len: 0,
            sealed: 0,
            protected: 0,
        }
    }

    /// Forgets all packets and keys and keeps the memory.
    pub fn clear(&mut self) {
        self.arena.clear();
        self.aes.clear();
        self.chacha20.clear();
        self.len = 0;
        self.sealed = 0;
        self.protected = 0;
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
        self.len
    }

    /// Whether it holds no packet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
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
        let to_open = |packets: &Packets| packets.has_to_open(&slot.jobs);
        assert!(
            slot.jobs.end <= self.protected
                && ![&self.aes, &self.chacha20].into_iter().any(to_open),
            "the packets of {slot:?} are not sealed: call Batch::seal before Batch::wire"
        );
        &self.arena.bytes()[slot.bytes.clone()]
    }

    /// Seals every packet that has not run yet, in place: encrypts its payload, writes
    /// its tag, protects its header. On the caller's thread, whatever the engine's
    /// threads.
    pub fn seal(&mut self, engine: &Engine) {
        self.protect_headers(engine);
        let bytes = self.arena.bytes_mut();
        for packets in [&mut self.aes, &mut self.chacha20] {
            while packets.sealed < packets.jobs.len() {
                packets.seal(engine.backend(), bytes);
                packets.protect(engine.backend(), bytes);
            }
        }
        self.sealed = self.len;
        self.protected = self.len;
    }

    /// The first half of [`Batch::seal`], for who protects headers by other means: what
    /// goes over the wire needs [`Batch::protect_headers`] too.
    pub fn seal_payloads(&mut self, engine: &Engine) {
        let bytes = self.arena.bytes_mut();
        for packets in [&mut self.aes, &mut self.chacha20] {
            while packets.sealed < packets.jobs.len() {
                packets.seal(engine.backend(), bytes);
            }
        }
        self.sealed = self.len;
    }

    /// The second half of [`Batch::seal`]: protects the headers of the packets whose
    /// payloads are sealed.
    pub fn protect_headers(&mut self, engine: &Engine) {
        let bytes = self.arena.bytes_mut();
        for packets in [&mut self.aes, &mut self.chacha20] {
            while packets.protected < packets.sealed {
                packets.protect(engine.backend(), bytes);
            }
        }
        self.protected = self.sealed;
    }

    /// Opens every packet that has not run yet, in place: removes the protection of its
    /// header, recovers its number, chooses among the keys of its opener by key phase,
    /// checks its tag and decrypts its payload. A payload whose tag is wrong stays
    /// encrypted and touches no other. On the caller's thread, whatever the engine's
    /// threads.
    pub fn open(&mut self, engine: &Engine) {
        let bytes = self.arena.bytes_mut();
        for packets in [&mut self.aes, &mut self.chacha20] {
            while packets.outcomes.len() < packets.opening.len() {
                if packets.outcomes.len() == packets.to_open.len() {
                    packets.unprotect(engine.backend(), bytes);
                }
                packets.open(engine.backend(), bytes);
            }
        }
    }

    /// The first half of [`Batch::open`].
    pub fn unprotect_headers(&mut self, engine: &Engine) {
        let bytes = self.arena.bytes_mut();
        for packets in [&mut self.aes, &mut self.chacha20] {
            while packets.to_open.len() < packets.opening.len() {
                packets.unprotect(engine.backend(), bytes);
            }
        }
    }

    /// The second half of [`Batch::open`], for the packets whose headers are
    /// unprotected.
    pub fn open_payloads(&mut self, engine: &Engine) {
        let bytes = self.arena.bytes_mut();
        for packets in [&mut self.aes, &mut self.chacha20] {
            while packets.outcomes.len() < packets.to_open.len() {
                packets.open(engine.backend(), bytes);
            }
        }
    }

    /// Whether `len` more bytes fit.
    #[inline]
    pub(super) fn fits(&self, len: usize) -> bool {
        self.arena.fits(len)
    }

    /// Tells one filling of the batch from the next.
    #[inline]
    pub(super) fn turn(&self) -> usize {
        self.arena.turn()
    }

    /// Adds keys and returns their index.
    pub(super) fn add_keys(&mut self, keys: &Arc<Keys>) -> u32 {
        let packets = self.packets(keys.is_aes());
        packets.mixed |= !packets.keys.is_empty();
        packets.keys.push(Arc::clone(keys));
        index(packets.keys.len() - 1)
    }

    #[inline]
    fn packets(&mut self, aes: bool) -> &mut Packets {
        if aes {
            &mut self.aes
        } else {
            &mut self.chacha20
        }
    }

    /// The packet to open of `slot`, if it is of this filling of the batch, its keys,
    /// and what came of it.
    #[inline]
    pub(super) fn to_open(&self, slot: &Slot) -> Option<(&Opening, &Keys, Outcome)> {
        if slot.turn != self.turn() {
            return None;
        }
        let place = slot.jobs.start;
        self.aes.find(place).or_else(|| self.chacha20.find(place))
    }

    /// Takes room for a packet to seal, with the `keys` of index `keys_index`: a header of
    /// `header_len` bytes, whose first is `first`, `payload_len` bytes and a tag. Returns
    /// the packet's bytes, for the header to be written.
    #[inline]
    pub(super) fn add_to_seal(
        &mut self,
        (keys_index, keys): (u32, &Keys),
        number: u64,
        (first, header_len): (u8, usize),
        payload_len: usize,
    ) -> (Slot, &mut [u8]) {
        let len = header_len + payload_len + TAG_LEN;
        let place = self.arena.take(len);
        let slot = self.slot(place..place + len);
        let (start, header_len) = (index(place), index(header_len));
        let text = start + header_len;
        let packets = self.packets(keys.is_aes());
        packets.jobs.push(Job {
            text,
            text_len: index(payload_len),
            aad: start,
            aad_len: header_len,
            key: Which::new(keys_index, Phase::Current).0,
            nonce: keys.current.nonce(number),
            ..Job::default()
        });
        packets.headers.push(Header {
            bits: header::masked_bits(first),
            first: start,
            number: text - index(header::number_len(first)),
            key: Which::new(keys_index, Phase::Current).0,
        });
        let packet = &mut self.arena.bytes_mut()[slot.bytes.clone()];
        (slot, packet)
    }

    /// Adds a packet to open, with the `keys` of index `keys_index`, which lies in the
    /// arena and is long enough for a sample.
    #[inline]
    pub(super) fn add_to_open(
        &mut self,
        (keys_index, keys): (u32, &Keys),
        expected: u64,
        packet: Range<usize>,
        pn_offset: usize,
    ) -> Slot {
        let opening = Opening {
            start: index(packet.start),
            len: index(packet.len()),
            pn_offset: index(pn_offset),
            header_len: 0,
            place: index(self.len),
            keys: keys_index,
            number: expected,
            phase: Phase::Current,
        };
        self.packets(keys.is_aes()).opening.push(opening);
        self.slot(packet)
    }

    /// The slot of the next packet.
    #[inline]
    fn slot(&mut self, bytes: Range<usize>) -> Slot {
        let place = self.len;
        self.len += 1;
        Slot {
            bytes,
            jobs: place..self.len,
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
            .field("packets", &self.len)
            .field("bytes", &self.arena.bytes_used())
            .finish_non_exhaustive()
    }
}

/// What a kernel is told of a packet, with the index of a key.
trait Keyed {
    /// Its [`Which`] until its window runs, and then an index of the keys that are listed
    /// for the kernel.
    fn key(&mut self) -> &mut u32;
}

impl Keyed for Job {
    #[inline]
    fn key(&mut self) -> &mut u32 {
        &mut self.key
    }
}

impl Keyed for Header {
    #[inline]
    fn key(&mut self) -> &mut u32 {
        &mut self.key
    }
}

/// A sample.
impl Keyed for (u32, u32) {
    #[inline]
    fn key(&mut self) -> &mut u32 {
        &mut self.0
    }
}

/// Calls `work` with up to [`WINDOW`] packets and their keys, one behind the other for a
/// kernel.
#[inline]
fn with_keys<'k, T: Keyed, K: 'k>(
    (keys, mixed): (&'k [Arc<Keys>], bool),
    packets: &mut [T],
    key: impl Fn(&'k Keys, Phase) -> &'k K,
    work: impl FnOnce(&[&'k K], &mut [T]),
) {
    if !mixed {
        return work(&[key(&keys[0], Phase::Current)], packets);
    }
    let mut list = ArrayVec::<_, WINDOW>::new();
    // Neighbours often have the same.
    let mut last = None;
    for packet in &mut *packets {
        let place = packet.key();
        if last != Some(*place) {
            last = Some(*place);
            let which = Which(*place);
            list.push(key(&keys[which.keys()], which.phase()));
        }
        *place = index(list.len() - 1);
    }
    work(&list, packets);
}

/// The same with keys that must lie behind each other themselves: the only one where it
/// is, otherwise copies, which are wiped.
#[inline]
fn with_keys_in_a_row<'k, T: Keyed>(
    keys: (&'k [Arc<Keys>], bool),
    packets: &mut [T],
    key: impl Fn(&'k Keys, Phase) -> &'k Key,
    work: impl FnOnce(&[Key], &mut [T]),
) {
    with_keys(keys, packets, key, |keys, packets| {
        if let [only] = keys {
            return work(core::slice::from_ref(only), packets);
        }
        let mut keys: ArrayVec<Key, WINDOW> = keys.iter().map(|key| **key).collect();
        work(&keys, packets);
        for key in &mut keys {
            *key = [0; 32];
            zeroize::optimization_barrier(key);
        }
    });
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
        self.keys.clear();
        self.mixed = false;
        self.jobs.clear();
        self.headers.clear();
        self.opening.clear();
        self.to_open.clear();
        self.outcomes.clear();
        (self.sealed, self.protected) = (0, 0);
    }

    /// The packet to open which is the batch's at `place`.
    #[inline]
    fn find(&self, place: usize) -> Option<(&Opening, &Keys, Outcome)> {
        // Where all packets are in this list, it is there.
        let is_it = |packet: &&Opening| packet.place as usize == place;
        let (packet, found) = match self.opening.get(place).filter(is_it) {
            Some(packet) => (packet, place),
            None => self.search(place)?,
        };
        let outcome = self.outcomes.get(found).copied().unwrap_or_default();
        Some((packet, &self.keys[packet.keys as usize], outcome))
    }

    #[cold]
    fn search(&self, place: usize) -> Option<(&Opening, usize)> {
        let by_place = |packet: &Opening| packet.place as usize;
        let found = self.opening.binary_search_by_key(&place, by_place).ok()?;
        Some((&self.opening[found], found))
    }

    /// Whether any of these packets of the batch is one to open.
    fn has_to_open(&self, places: &Range<usize>) -> bool {
        let before = |packet: &Opening| (packet.place as usize) < places.start;
        let next = self.opening.partition_point(before);
        let next = self.opening.get(next);
        next.is_some_and(|packet| (packet.place as usize) < places.end)
    }

    /// Seals the payloads of the next window.
    fn seal(&mut self, backend: Backend, bytes: &mut [u8]) {
        let window = self.sealed..self.jobs.len().min(self.sealed + WINDOW);
        self.sealed = window.end;
        let (keys, jobs) = ((&self.keys[..], self.mixed), &mut self.jobs[window]);
        if self.keys[0].is_aes() {
            with_keys(keys, jobs, Keys::gcm_key, |keys, jobs| {
                let outcomes = &mut [Outcome::Pending; WINDOW];
                backend.gcm_seal(Work {
                    bytes,
                    secrets: keys,
                    jobs,
                    outcomes,
                });
            });
        } else {
            with_keys_in_a_row(keys, jobs, Keys::chacha20_key, |keys, jobs| {
                let outcomes = &mut [Outcome::Pending; WINDOW];
                backend.seal(Work {
                    bytes,
                    secrets: keys.into(),
                    jobs,
                    outcomes,
                });
            });
        }
    }

    /// Protects the next headers of packets whose payloads are sealed.
    fn protect(&mut self, backend: Backend, bytes: &mut [u8]) {
        let window = self.protected..self.sealed.min(self.protected + WINDOW);
        self.protected = window.end;
        let (keys, headers) = ((&self.keys[..], self.mixed), &mut self.headers[window]);
        if self.keys[0].is_aes() {
            with_keys(keys, headers, Keys::aes_key, |keys, headers| {
                backend.aes_mask_headers(bytes, keys, headers);
            });
        } else {
            let key = Keys::chacha20_header_key;
            with_keys_in_a_row(keys, headers, key, |keys, headers| {
                backend.chacha20_mask_headers(bytes, keys, headers);
            });
        }
    }

    /// Unprotects the next headers.
    fn unprotect(&mut self, backend: Backend, bytes: &mut [u8]) {
        let unprotected = self.to_open.len();
        let window = unprotected..self.opening.len().min(unprotected + WINDOW);
        for packets in self.opening[window].chunks_mut(AT_ONCE) {
            let keys = (&self.keys[..], self.mixed);
            let (mut samples, mut masks) = ([(0, 0); AT_ONCE], [0; AT_ONCE]);
            for (sample, packet) in samples.iter_mut().zip(&*packets) {
                let offset = packet.start + packet.pn_offset + MAX_NUMBER_LEN;
                *sample = (Which::new(packet.keys, Phase::Current).0, offset);
            }
            let samples = &mut samples[..packets.len()];
            if self.keys[0].is_aes() {
                with_keys(keys, samples, Keys::aes_key, |keys, samples| {
                    backend.aes_masks(bytes, keys, samples, &mut masks);
                });
            } else {
                let key = Keys::chacha20_header_key;
                with_keys_in_a_row(keys, samples, key, |keys, samples| {
                    backend.chacha20_masks(bytes, keys, samples, &mut masks);
                });
            }
            let jobs = packets.iter_mut().zip(masks).map(|(packet, mask)| {
                let of = &*self.keys[packet.keys as usize];
                let bytes = &mut bytes[packet.range()];
                let pn_offset = packet.pn_offset as usize;
                let (truncated, len) = header::unprotect(bytes, pn_offset, mask);
                packet.number = nearest_number(packet.number, truncated, len);
                packet.header_len = packet.pn_offset + len as u32;
                packet.phase = of.phase(bytes[0], packet.number);
                self.mixed |= packet.phase != Phase::Current;
                Job {
                    text: packet.start + packet.header_len,
                    text_len: packet.len - packet.header_len - TAG_LEN as u32,
                    aad: packet.start,
                    aad_len: packet.header_len,
                    key: Which::new(packet.keys, packet.phase).0,
                    nonce: of.packet_key(packet.phase).nonce(packet.number),
                    ..Job::default()
                }
            });
            self.to_open.extend(jobs);
        }
    }

    /// Opens the next payloads of packets whose headers are unprotected.
    fn open(&mut self, backend: Backend, bytes: &mut [u8]) {
        let opened = self.outcomes.len();
        let window = opened..self.to_open.len().min(opened + WINDOW);
        self.outcomes.resize(window.end, Outcome::Pending);
        let outcomes = &mut self.outcomes[window.clone()];
        let (keys, jobs) = ((&self.keys[..], self.mixed), &mut self.to_open[window]);
        if self.keys[0].is_aes() {
            with_keys(keys, jobs, Keys::gcm_key, |keys, jobs| {
                backend.gcm_open(Work {
                    bytes,
                    secrets: keys,
                    jobs,
                    outcomes,
                });
            });
        } else {
            with_keys_in_a_row(keys, jobs, Keys::chacha20_key, |keys, jobs| {
                backend.open(Work {
                    bytes,
                    secrets: keys.into(),
                    jobs,
                    outcomes,
                });
            });
        }
    }
}
