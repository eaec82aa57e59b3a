//! The packets of one turn of an event loop: one arena of bytes, and what is to be done
//! with each packet in it.
//!
//! What a kernel asks for is written down when a packet is added: a list of jobs for
//! each of the two ciphers, AES and ChaCha20, and where header masks go. The lists are
//! worked off in windows of packets. Sealing with AES is one call, which masks headers
//! beside the next packets; with ChaCha20 the payloads go first, for the samples are
//! ciphertext. Opening does the headers first, for they say nonce and key phase.

use super::header::{self, KEY_PHASE, Mask, decode_packet_number};
use super::keys::{Aead, Cipher};
use super::{HeaderKey, PacketKey};
use crate::batch::{Slot, index};
use crate::{Backend, Engine, Job, Key, Nonce, Outcome, TAG_LEN};
use alloc::sync::Arc;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::fmt;
use core::ops::Range;
use lanes::{AesKey, GcmKey, Header};

/// How many packets make a window: enough to fill the lanes, and few enough that what
/// is of them stays in the second cache.
const WINDOW: usize = 64;

/// How many masks are had at once where they are wanted by themselves.
const AT_ONCE: usize = 16;

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
    /// How many of their headers are unprotected.
    unprotected: usize,
    /// How many have been opened.
    opened: usize,
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

    fn aes_key(&self) -> &AesKey {
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

    fn chacha20_header_key(&self) -> &Key {
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
    Previous,
    Current,
    Next,
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
    pub(super) outcome: Outcome,
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
                packets.seal(engine.backend(), bytes, true);
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
                packets.seal(engine.backend(), bytes, false);
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
            while packets.opened < packets.opening.len() {
                if packets.opened == packets.unprotected {
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
            while packets.unprotected < packets.opening.len() {
                packets.unprotect(engine.backend(), bytes);
            }
        }
    }

    /// The second half of [`Batch::open`], for the packets whose headers are
    /// unprotected.
    pub fn open_payloads(&mut self, engine: &Engine) {
        let bytes = self.arena.bytes_mut();
        for packets in [&mut self.aes, &mut self.chacha20] {
            while packets.opened < packets.unprotected {
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
        let list = &mut self.packets(keys.is_aes()).keys;
        list.push(Arc::clone(keys));
        index(list.len() - 1)
    }

    #[inline]
    fn packets(&mut self, aes: bool) -> &mut Packets {
        if aes {
            &mut self.aes
        } else {
            &mut self.chacha20
        }
    }

    /// The packet to open of `slot`, if it is of this filling of the batch, and its
    /// keys.
    #[inline]
    pub(super) fn to_open(&self, slot: &Slot) -> Option<(&Opening, &Keys)> {
        if slot.turn != self.turn() {
            return None;
        }
        let place = slot.jobs.start;
        self.aes.find(place).or_else(|| self.chacha20.find(place))
    }

    /// Takes room for a packet to seal, with the `keys` of index `keys_index`: a header,
    /// which fits its number, `payload_len` bytes and a tag. Returns the packet's bytes.
    #[inline]
    pub(super) fn add_to_seal(
        &mut self,
        (keys_index, keys): (u32, &Keys),
        number: u64,
        header: &[u8],
        payload_len: usize,
    ) -> (Slot, &mut [u8]) {
        let len = header.len() + payload_len + TAG_LEN;
        let place = self.arena.take(len);
        let slot = self.slot(place..place + len);
        let (start, header_len) = (index(place), index(header.len()));
        let text = start + header_len;
        let packets = self.packets(keys.is_aes());
        packets.jobs.push(Job {
            text,
            text_len: index(payload_len),
            aad: start,
            aad_len: header_len,
            key: keys_index,
            nonce: keys.current.nonce(number),
            ..Job::default()
        });
        packets.headers.push(Header {
            bits: header::masked_bits(header[0]),
            first: start,
            number: text - index(header::number_len(header[0])),
            key: keys_index,
        });
        let packet = &mut self.arena.bytes_mut()[slot.bytes.clone()];
        let (header_place, _) = packet.split_at_mut(header.len());
        header::copy(header, header_place);
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
            outcome: Outcome::Pending,
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

/// Keys of packets in a window, one behind the other for a kernel.
struct Window<K, const N: usize = WINDOW> {
    keys: ArrayVec<K, N>,
    /// Which the last key is: neighbours often have the same.
    last: Option<(u32, Phase)>,
}

impl<K, const N: usize> Window<K, N> {
    #[inline]
    fn new() -> Self {
        Self {
            keys: ArrayVec::new_const(),
            last: None,
        }
    }

    /// The index of the next packet's key.
    #[inline]
    fn index(&mut self, which: (u32, Phase), key: impl FnOnce() -> K) -> u32 {
        if self.last != Some(which) {
            self.last = Some(which);
            self.keys.push(key());
        }
        index(self.keys.len() - 1)
    }
}

impl<const N: usize> Window<&Key, N> {
    /// Calls `work` with the keys themselves: with the only one where it lies, otherwise
    /// with copies, which are wiped.
    #[inline]
    fn in_a_row(&self, work: impl FnOnce(&[Key])) {
        if let [only] = self.keys[..] {
            return work(core::slice::from_ref(only));
        }
        let mut keys: ArrayVec<Key, N> = self.keys.iter().map(|key| **key).collect();
        work(&keys);
        for key in &mut keys {
            *key = [0; 32];
            zeroize::optimization_barrier(key);
        }
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
        self.keys.clear();
        self.jobs.clear();
        self.headers.clear();
        self.opening.clear();
        (self.sealed, self.protected) = (0, 0);
        (self.unprotected, self.opened) = (0, 0);
    }

    /// The packet to open which is the batch's at `place`.
    #[inline]
    fn find(&self, place: usize) -> Option<(&Opening, &Keys)> {
        // Where all packets are in this list, it is there.
        let is_it = |packet: &&Opening| packet.place as usize == place;
        let packet = match self.opening.get(place).filter(is_it) {
            Some(packet) => packet,
            None => self.search(place)?,
        };
        Some((packet, &self.keys[packet.keys as usize]))
    }

    #[cold]
    fn search(&self, place: usize) -> Option<&Opening> {
        let by_place = |packet: &Opening| packet.place as usize;
        let found = self.opening.binary_search_by_key(&place, by_place).ok()?;
        Some(&self.opening[found])
    }

    /// Whether any of these packets of the batch is one to open.
    fn has_to_open(&self, places: &Range<usize>) -> bool {
        let before = |packet: &Opening| (packet.place as usize) < places.start;
        let next = self.opening.partition_point(before);
        let next = self.opening.get(next);
        next.is_some_and(|packet| (packet.place as usize) < places.end)
    }

    /// Seals the payloads of the next window and, if `and_headers`, protects the
    /// headers.
    fn seal(&mut self, backend: Backend, bytes: &mut [u8], and_headers: bool) {
        let window = self.sealed..self.jobs.len().min(self.sealed + WINDOW);
        let jobs = &mut self.jobs[window.clone()];
        self.sealed = window.end;
        if !self.keys[0].is_aes() {
            let mut outcomes = [Outcome::Pending; WINDOW];
            let mut keys = Window::<_, WINDOW>::new();
            if let [only] = &self.keys[..] {
                keys.index((0, Phase::Current), || only.chacha20_key(Phase::Current));
            } else {
                for job in &mut *jobs {
                    let of = &self.keys[job.key as usize];
                    let key = || of.chacha20_key(Phase::Current);
                    job.key = keys.index((job.key, Phase::Current), key);
                }
            }
            keys.in_a_row(|keys| backend.seal(bytes, keys.into(), jobs, &mut outcomes));
            drop(keys);
            if and_headers {
                self.protect(backend, bytes);
            }
            return;
        }
        let headers = match and_headers {
            true => &mut self.headers[window.clone()],
            false => &mut [],
        };
        if let [only] = &self.keys[..] {
            let (key, header_key) = ([only.gcm_key(Phase::Current)], [only.aes_key()]);
            backend.gcm_seal_and_mask(bytes, (&key, jobs), (&header_key, headers));
        } else {
            let mut keys = Window::<_, WINDOW>::new();
            let mut header_keys = ArrayVec::<_, WINDOW>::new_const();
            for (place, job) in jobs.iter_mut().enumerate() {
                let of = &self.keys[job.key as usize];
                job.key = keys.index((job.key, Phase::Current), || {
                    header_keys.push(of.aes_key());
                    of.gcm_key(Phase::Current)
                });
                if let Some(header) = headers.get_mut(place) {
                    header.key = job.key;
                }
            }
            backend.gcm_seal_and_mask(bytes, (&keys.keys, jobs), (&header_keys, headers));
        }
        if and_headers {
            self.protected = window.end;
        }
    }

    /// Protects the next headers of packets whose payloads are sealed.
    fn protect(&mut self, backend: Backend, bytes: &mut [u8]) {
        let window = self.protected..self.sealed.min(self.protected + WINDOW);
        self.protected = window.end;
        let headers = &mut self.headers[window];
        if !self.keys[0].is_aes() {
            let mut keys = Window::<_, WINDOW>::new();
            if let [only] = &self.keys[..] {
                keys.index((0, Phase::Current), || only.chacha20_header_key());
            } else {
                for header in &mut *headers {
                    let of = &self.keys[header.key as usize];
                    let key = || of.chacha20_header_key();
                    let place = keys.index((header.key, Phase::Current), key);
                    // What has just been written in part is not read at once.
                    if header.key != place {
                        header.key = place;
                    }
                }
            }
            keys.in_a_row(|keys| backend.chacha20_mask_headers(bytes, keys, headers));
            return;
        }
        for headers in headers.chunks(AT_ONCE) {
            let samples = headers.iter().map(|header| (header.key, header.number));
            let masks = masks(backend, bytes, &self.keys, samples);
            for (header, mask) in headers.iter().zip(masks) {
                header.mask(bytes, mask);
            }
        }
    }

    /// Unprotects the next headers.
    fn unprotect(&mut self, backend: Backend, bytes: &mut [u8]) {
        let window = self.unprotected..self.opening.len().min(self.unprotected + WINDOW);
        self.unprotected = window.end;
        for packets in self.opening[window].chunks_mut(AT_ONCE) {
            let number = |packet: &Opening| packet.start + packet.pn_offset;
            let samples = packets.iter().map(|packet| (packet.keys, number(packet)));
            let masks = masks(backend, bytes, &self.keys, samples);
            for (packet, mask) in packets.iter_mut().zip(masks) {
                let bytes = &mut bytes[packet.range()];
                let pn_offset = packet.pn_offset as usize;
                let (truncated, len) = header::unprotect(bytes, pn_offset, mask);
                packet.number = decode_packet_number(packet.number, truncated, len);
                packet.header_len = packet.pn_offset + len as u32;
                packet.phase = self.keys[packet.keys as usize].phase(bytes[0], packet.number);
            }
        }
    }

    /// Opens the next payloads of packets whose headers are unprotected.
    fn open(&mut self, backend: Backend, bytes: &mut [u8]) {
        let window = self.opened..self.unprotected.min(self.opened + WINDOW);
        self.opened = window.end;
        let packets = &mut self.opening[window];
        let mut jobs = ArrayVec::<Job, WINDOW>::new_const();
        let mut outcomes = [Outcome::Pending; WINDOW];
        let outcomes = &mut outcomes[..packets.len()];
        let mut push = |packet: &Opening, key: u32, nonce: Nonce| {
            jobs.push(Job {
                text: packet.start + packet.header_len,
                text_len: packet.len - packet.header_len - TAG_LEN as u32,
                aad: packet.start,
                aad_len: packet.header_len,
                key,
                nonce,
                ..Job::default()
            });
        };
        if self.keys[0].is_aes() {
            let mut keys = Window::<_, WINDOW>::new();
            for packet in &*packets {
                let of = &self.keys[packet.keys as usize];
                let which = (packet.keys, packet.phase);
                let key = keys.index(which, || of.gcm_key(packet.phase));
                let nonce = of.packet_key(packet.phase).nonce(packet.number);
                push(packet, key, nonce);
            }
            backend.gcm_open(bytes, &keys.keys, &jobs, outcomes);
        } else {
            let mut keys = Window::<_, WINDOW>::new();
            for packet in &*packets {
                let of = &self.keys[packet.keys as usize];
                let which = (packet.keys, packet.phase);
                let key = keys.index(which, || of.chacha20_key(packet.phase));
                let nonce = of.packet_key(packet.phase).nonce(packet.number);
                push(packet, key, nonce);
            }
            keys.in_a_row(|keys| backend.open(bytes, keys.into(), &jobs, outcomes));
        }
        for (packet, outcome) in packets.iter_mut().zip(outcomes) {
            packet.outcome = *outcome;
        }
    }
}

/// The masks of up to [`AT_ONCE`] headers, given which of `keys` they have and where their
/// packet numbers lie.
#[inline]
fn masks(
    backend: Backend,
    bytes: &[u8],
    keys: &[Arc<Keys>],
    headers: impl ExactSizeIterator<Item = (u32, u32)>,
) -> [Mask; AT_ONCE] {
    let (mut aes, mut chacha20) = (Window::<_, AT_ONCE>::new(), Window::<_, AT_ONCE>::new());
    let (mut samples, mut masks) = ([(0, 0); AT_ONCE], [0; AT_ONCE]);
    let count = headers.len();
    if let [only] = keys
        && let Cipher::ChaCha20(key) = &only.header.cipher
    {
        for (sample, (_, number)) in samples.iter_mut().zip(headers) {
            *sample = (0, number + MAX_NUMBER_LEN);
        }
        let key = core::slice::from_ref(key);
        backend.chacha20_masks(bytes, key, &samples[..count], &mut masks);
        return masks;
    }
    for (sample, (which, number)) in samples.iter_mut().zip(headers) {
        let key = match &keys[which as usize].header.cipher {
            Cipher::Aes(key) => aes.index((which, Phase::Current), || &**key),
            Cipher::ChaCha20(key) => chacha20.index((which, Phase::Current), || key),
        };
        *sample = (key, number + MAX_NUMBER_LEN);
    }
    let samples = &samples[..count];
    if chacha20.keys.is_empty() {
        backend.aes_masks(bytes, &aes.keys, samples, &mut masks);
    } else {
        chacha20.in_a_row(|keys| backend.chacha20_masks(bytes, keys, samples, &mut masks));
    }
    masks
}
