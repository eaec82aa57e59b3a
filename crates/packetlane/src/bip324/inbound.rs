//! The receiving half of a session: it finds the packets in what a socket brought and adds
//! them to a batch, which an engine opens for all sessions at once.

use super::buffer::{KEPT_BUFFER, MAX_PREALLOCATION, append_expected};
use super::cipher::Cipher;
use super::error::OpenError;
use super::packet::{HEADER_LEN, LENGTH_LEN, MAX_CONTENTS_LEN, OVERHEAD, PacketKind};
use super::rekey::number_and_epoch;
use crate::arena::index;
use crate::batch::{OpenBatch, Plan};
use crate::bitcoin::message::{Ignored, MessageType};
use crate::copy::copy;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::iter::Zip;
use core::num::NonZeroU32;
use core::ops::Range;
use core::slice;
use packetlane_lanes::{Job, Kernels, Outcome};

/// The receiving half of a session.
///
/// In each turn: read from the socket into [`OpenBatch::room`], say how much came
/// ([`Inbound::receive`]), open the batch, take the packets ([`Inbound::packets`]) or defer
/// them ([`Inbound::defer`]). Bytes of a packet that has not come whole wait here. Without a
/// batch, [`Inbound::open`] does all of it.
// With thousands of sessions, cache misses dominate: a turn that brings whole packets, which are taken,
// needs this line of the cache and two of the cipher's.
#[derive(Debug)]
#[repr(align(64))]
pub struct Inbound {
    cipher: Cipher,
    rest: Reception,
}

const _: () = assert!(size_of::<Inbound>() == 64);

/// What [`Inbound`] has beside its keys.
#[derive(Debug)]
struct Reception {
    /// The turn of the batch in which packets wait to be taken.
    turn: u64,
    /// The packets that wait: the first run of neighbours. The other runs are `rare`.
    waiting: Run,
    /// At most [`MAX_CONTENTS_LEN`].
    limit: u32,
    /// Length on the wire, in bytes, of the packet that the tail begins, once its length has
    /// been decrypted.
    expected: Option<NonZeroU32>,
    /// Whether there may be bytes in the tail. If not, it need not be looked at.
    has_tail: bool,
    /// The same of what is rare.
    has_rare: bool,
    held: Box<Held>,
}

/// What turns do not need that bring whole packets, which are taken.
#[derive(Debug, Default)]
struct Held {
    /// The beginning of a packet whose end has not come, behind `taken` bytes of packets that
    /// [`Inbound::open`] has returned. After the handshake, whatever came with it.
    tail: Vec<u8>,
    taken: usize,
    rare: Rare,
    decoys: u64,
    ignored: Ignored,
}

/// What few sessions have, in few turns.
#[derive(Debug, Default)]
struct Rare {
    /// More runs of packets that wait, behind the first.
    runs: VecDeque<Run>,
    /// Contents of packets that were opened and deferred. They go back into a batch before
    /// any other, and then lie in its arena.
    deferred: Vec<Vec<u8>>,
    back: VecDeque<Range<usize>>,
    /// The end of this half: packets before it may still wait.
    failed: Option<OpenError>,
}

impl Rare {
    fn is_empty(&self) -> bool {
        self.runs.is_empty()
            && self.deferred.is_empty()
            && self.back.is_empty()
            && self.failed.is_none()
    }
}

/// Packets of a batch that are neighbours, by their numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    start: u32,
    end: u32,
}

impl Inbound {
    /// Longest contents that are accepted unless told otherwise, in bytes: the largest message of
    /// the network, 4,000,000 bytes, and its type, 13 bytes.
    pub const DEFAULT_RECEIVE_LIMIT: usize = 4_000_000 + 1 + MessageType::MAX_LEN;

    /// How much memory a session takes for a packet beyond the bytes of it that have arrived, in
    /// bytes: a stranger's claim of a length costs no more than this.
    pub const MAX_PREALLOCATION: usize = MAX_PREALLOCATION;

    pub(super) fn new(cipher: Cipher, limit: usize, buffered: Vec<u8>) -> Self {
        let rest = Reception {
            turn: 0,
            waiting: Run::default(),
            limit: receive_limit(limit),
            expected: None,
            // Memory without bytes is given back in the first turn.
            has_tail: buffered.capacity() > 0,
            has_rare: false,
            held: Box::new(Held {
                tail: buffered,
                ..Held::default()
            }),
        };
        Self { cipher, rest }
    }

    /// Asks for the memory that the next packet needs, as
    /// [`Outbound::prefetch`](super::Outbound::prefetch).
    #[inline]
    pub fn prefetch(&self) {
        self.cipher.prefetch();
    }

    /// Sets the longest contents that are accepted, in bytes, from the next
    /// packet on. [`Inbound::DEFAULT_RECEIVE_LIMIT`] if never called.
    pub fn set_receive_limit(&mut self, limit: usize) {
        self.rest.limit = receive_limit(limit);
    }

    /// Whether keystream of the next packets is precomputed; see
    /// [`Cipher::set_precomputed_keystream`].
    pub fn set_precomputed_keystream(&mut self, on: bool) {
        self.cipher.set_precomputed_keystream(on);
    }

    /// How many decoys have been dropped since the handshake.
    #[must_use]
    pub fn decoys(&self) -> u64 {
        self.rest.held.decoys
    }

    /// What [`Inbound::messages`] and [`Connection::next_message`](super::Connection::next_message)
    /// have dropped since the handshake, because it was no message.
    #[must_use]
    pub fn ignored(&self) -> Ignored {
        self.rest.held.ignored
    }

    /// How many bytes wait here: those of a packet that has not come whole, and contents
    /// that were deferred.
    #[must_use]
    pub fn buffered(&self) -> usize {
        let deferred: usize = self.rest.held.rare.deferred.iter().map(Vec::len).sum();
        self.rest.held.tail.len() - self.rest.held.taken + deferred
    }

    /// Whether a packet has come in part.
    pub(super) fn is_within_packet(&self) -> bool {
        self.rest.held.tail.len() > self.rest.held.taken
    }

    /// Whether packets may wait here for a turn, without another byte from the peer: they
    /// came with the handshake, or were deferred. Then call [`Inbound::receive`] with 0,
    /// for the peer may send nothing more until it has an answer.
    #[must_use]
    pub fn has_pending_input(&self) -> bool {
        let needed = self.rest.expected().unwrap_or(LENGTH_LEN);
        self.rest.failed().is_none()
            && (self.rest.has_deferred()
                || self.rest.held.tail.len() - self.rest.held.taken >= needed)
    }

    /// As [`Inbound::receive`], for bytes that lie elsewhere.
    ///
    /// # Errors
    ///
    /// As [`Inbound::receive`].
    pub fn feed(&mut self, batch: &mut OpenBatch, bytes: &[u8]) -> Result<usize, OpenError> {
        if !batch.arena().fits(bytes.len()) {
            return Err(self.rest.end(OpenError::BatchFull));
        }
        copy(batch.room(bytes.len()), bytes);
        self.receive(batch, bytes.len())
    }

    /// Takes the first `len` bytes of the batch's last [`OpenBatch::room`]: adds every
    /// packet that is now whole to the batch, after those that were deferred, and keeps the
    /// rest for later. Returns how many packets it added.
    ///
    /// With 0 it adds what waits here ([`Inbound::has_pending_input`]).
    ///
    /// A packet that belongs to a small turn, or a long one that has come in pieces, may be opened here and now,
    /// by the session's engine, if that has one thread and no GPU. That shows when the batch has been opened.
    ///
    /// # Errors
    ///
    /// [`OpenError::TooLong`] as soon as the peer announces such a packet. Packets from
    /// before it can still be taken. [`OpenError::NotInBatch`] if packets of an earlier turn
    /// were neither taken nor deferred. [`OpenError::BatchFull`], [`OpenError::Exhausted`].
    /// Every error ends the session: bytes that come later are dropped.
    ///
    /// # Panics
    ///
    /// If that room was shorter than `len`, or has been taken or written over
    /// since.
    pub fn receive(&mut self, batch: &mut OpenBatch, len: usize) -> Result<usize, OpenError> {
        let rest = &mut self.rest;
        if rest.turn != batch.arena().turn() {
            if !rest.is_taken() {
                rest.end(OpenError::NotInBatch);
                rest.drop_waiting();
            }
            rest.turn = batch.arena().turn();
            rest.has_rare = rest.has_rare && !rest.held.rare.is_empty();
        }
        if let Some(error) = rest.failed() {
            return Err(error);
        }
        let before = batch.len();
        let start = batch.arena_mut().commit(len);
        let mut result = self.scan(batch, start..start + len).map(|()| 0);
        // Also if a new packet is refused: those that were deferred came before it.
        if self.rest.has_deferred() {
            result = result.and(self.put_back(batch));
        }
        match result {
            Ok(deferred) => Ok(batch.len() - before + deferred),
            Err(error) => Err(self.rest.end(error)),
        }
    }

    /// Puts the packets that were deferred into the batch. Returns how many.
    #[cold]
    fn put_back(&mut self, batch: &mut OpenBatch) -> Result<usize, OpenError> {
        let rare = self.rest.rare_mut();
        let deferred = rare.deferred.len();
        for contents in rare.deferred.drain(..) {
            if !batch.arena().fits(contents.len()) {
                return Err(OpenError::BatchFull);
            }
            let place = batch.arena_mut().take(contents.len());
            let place = place..place + contents.len();
            copy(&mut batch.arena_mut().bytes_mut()[place.clone()], &contents);
            rare.back.push_back(place);
        }
        Ok(deferred)
    }

    /// Keeps the packets of the batch that nobody took, for a later turn: they would be lost
    /// when the batch is cleared. For a peer that sends faster than it takes its answers;
    /// until it has taken some, read nothing more from it.
    ///
    /// # Errors
    ///
    /// As [`Inbound::packets`]: [`OpenError::NotOpened`] if the batch has not been opened; then nothing
    /// changes. A packet that cannot be opened ends the session, and packets before it are
    /// lost: take them instead if they matter.
    ///
    /// ```
    /// # use packetlane::bip324::{PacketKind, Role, Session, SessionKeys};
    /// # use packetlane::{Engine, OpenBatch};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let engine = Engine::detect()?;
    /// # let keys = SessionKeys::derive(&[1; 32], [0; 4]);
    /// # let mut alice = Session::from_keys(engine, &keys, Role::Initiator);
    /// # let mut bob = Session::from_keys(engine, &keys, Role::Responder);
    /// # let mut wire = Vec::new();
    /// # alice.outbound.seal(PacketKind::Genuine, b"one", &mut wire)?;
    /// # alice.outbound.seal(PacketKind::Genuine, b"two", &mut wire)?;
    /// let mut batch = OpenBatch::new();
    /// bob.inbound.feed(&mut batch, &wire)?;
    /// engine.open(&mut batch);
    /// assert_eq!(bob.inbound.packets(&batch).next(), Some(Ok(&b"one"[..])));
    /// bob.inbound.defer(&batch)?;
    ///
    /// batch.clear();
    /// assert!(bob.inbound.has_pending_input());
    /// bob.inbound.receive(&mut batch, 0)?;
    /// engine.open(&mut batch);
    /// assert_eq!(bob.inbound.packets(&batch).next(), Some(Ok(&b"two"[..])));
    /// # Ok(())
    /// # }
    /// ```
    pub fn defer(&mut self, batch: &OpenBatch) -> Result<(), OpenError> {
        // All or none: what stays would be taken before what was deferred. Packets are opened
        // in the order in which they were added.
        let last = self.rest.last_waiting();
        if self.rest.turn == batch.arena().turn()
            && last.is_some_and(|last| batch.outcome(last) == Outcome::Pending)
        {
            return Err(OpenError::NotOpened);
        }
        while let Some(contents) = self.next_packet(batch) {
            let contents = batch.arena().bytes()[contents?].to_vec();
            self.rest.rare_mut().deferred.push(contents);
        }
        Ok(())
    }

    /// Takes bytes of the peer from the front of `bytes` up to the end of the next genuine
    /// packet, and returns its contents. `None` if they end before it; then `bytes` is
    /// empty. Decoys are dropped and counted. For a program without batches: call it until
    /// it returns `None`, also right after the handshake, with no bytes.
    ///
    /// # Errors
    ///
    /// See [`OpenError`]. Every error ends the session but [`OpenError::NotInBatch`]: packets
    /// of this session wait in a batch or were deferred, and come first.
    ///
    /// ```
    /// # use packetlane::bip324::{PacketKind, Role, Session, SessionKeys};
    /// # use packetlane::Engine;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let engine = Engine::detect()?;
    /// # let keys = SessionKeys::derive(&[1; 32], [0; 4]);
    /// # let mut alice = Session::from_keys(engine, &keys, Role::Initiator);
    /// # let mut bob = Session::from_keys(engine, &keys, Role::Responder);
    /// # let mut wire = Vec::new();
    /// # alice.outbound.seal(PacketKind::Genuine, b"one", &mut wire)?;
    /// # alice.outbound.seal(PacketKind::Genuine, b"two", &mut wire)?;
    /// // Bytes arrive as they like: here with all but the last of the second packet.
    /// let mut bytes = &wire[..wire.len() - 1];
    /// assert_eq!(bob.inbound.open(&mut bytes)?, Some(&b"one"[..]));
    /// assert_eq!(bob.inbound.open(&mut bytes)?, None);
    /// let mut bytes = &wire[wire.len() - 1..];
    /// assert_eq!(bob.inbound.open(&mut bytes)?, Some(&b"two"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn open(&mut self, bytes: &mut &[u8]) -> Result<Option<&[u8]>, OpenError> {
        if let Some(error) = self.rest.failed() {
            return Err(error);
        }
        if !self.rest.is_taken() || self.rest.has_deferred() {
            return Err(OpenError::NotInBatch);
        }
        match self.open_next(bytes) {
            Ok(None) => Ok(None),
            Ok(Some(contents)) => Ok(Some(&self.rest.held.tail[contents])),
            Err(error) => Err(self.fail(error)),
        }
    }

    /// As [`Inbound::open`]: where the contents lie in `tail`.
    fn open_next(&mut self, bytes: &mut &[u8]) -> Result<Option<Range<usize>>, OpenError> {
        loop {
            let wire_len = match self.rest.expected() {
                Some(wire_len) => wire_len,
                None => {
                    let Some(length) = self.rest.reach(bytes, LENGTH_LEN) else {
                        return Ok(None);
                    };
                    let length = core::array::from_fn(|at| self.rest.held.tail[length.start + at]);
                    let wire_len = self.decrypt_length(length)?;
                    self.rest.expect(wire_len);
                    wire_len
                }
            };
            let Some(packet) = self.rest.reach(bytes, wire_len) else {
                return Ok(None);
            };
            self.rest.expected = None;
            self.rest.held.taken = packet.end;
            let packet = packet.start + LENGTH_LEN..packet.end;
            match self.cipher.open(&mut self.rest.held.tail, 0..0, packet)? {
                (PacketKind::Genuine, contents) => return Ok(Some(contents)),
                (PacketKind::Decoy, _) => self.rest.held.decoys += 1,
            }
        }
    }

    /// Finds the packets in the bytes that came, which lie in `new`: the last bytes of the
    /// arena that are taken.
    fn scan(&mut self, batch: &mut OpenBatch, new: Range<usize>) -> Result<(), OpenError> {
        // How far the new bytes are used, and the end of the bytes that the batch keeps.
        let (mut at, mut kept) = (new.start, new.start);
        // The tail comes first.
        if self.rest.has_tail {
            (at, kept) = self.scan_tail(batch, &new)?;
        }
        // The other packets lie where they came.
        if !self.rest.has_tail {
            // Most peers send one packet at a time, which takes less time by itself.
            let (mut is_first, mut is_whole) = (true, true);
            while is_whole && new.end - at >= LENGTH_LEN {
                let is_single = is_first
                    || new.end - at < OVERHEAD
                    || self.cipher.plan(batch, 1, 0) == Plan::Now;
                is_whole = match is_single {
                    true => self.add_one(batch, &mut at, new.end)?,
                    false => self.add_interval(batch, &mut at, new.end)?,
                };
                is_first = false;
                kept = kept.max(at);
            }
        }
        if at < new.end {
            let expected = self.rest.expected().unwrap_or(LENGTH_LEN);
            append_expected(
                &mut self.rest.held.tail,
                &batch.arena().bytes()[at..new.end],
                expected,
            );
            self.rest.has_tail = true;
        }
        batch.arena_mut().give_back(kept);
        Ok(())
    }

    /// Finds the packets that begin in the tail, as [`Inbound::scan`]. A packet's bytes must be neighbours, so
    /// such a packet is put together at the arena's end.
    /// Returns how far the new bytes are used, and the end of the bytes that the batch keeps.
    // Not part of its caller, which does less where packets come whole.
    #[inline(never)]
    fn scan_tail(
        &mut self,
        batch: &mut OpenBatch,
        new: &Range<usize>,
    ) -> Result<(usize, usize), OpenError> {
        self.rest.drop_taken();
        let (mut at, mut kept) = (new.start, new.start);
        let mut from_tail = 0;
        while from_tail < self.rest.held.tail.len() {
            if self.rest.expected.is_none() {
                let held = self.rest.held.tail.len() - from_tail;
                let missing = LENGTH_LEN.saturating_sub(held).min(new.end - at);
                self.rest
                    .held
                    .tail
                    .extend_from_slice(&batch.arena().bytes()[at..at + missing]);
                at += missing;
                let Some(&length) = self.rest.held.tail[from_tail..].first_chunk() else {
                    break;
                };
                let expected = self.decrypt_length(length)?;
                self.rest.expect(expected);
            }
            let expected = self.rest.expected().unwrap_or(OVERHEAD);
            let held = (self.rest.held.tail.len() - from_tail).min(expected);
            let missing = expected - held;
            if missing > new.end - at {
                break;
            }
            let arena = batch.arena_mut();
            if !arena.fits(expected) {
                return Err(OpenError::BatchFull);
            }
            let place = arena.take(expected);
            let waited = &self.rest.held.tail[from_tail..from_tail + held];
            let bytes = batch.arena_mut().bytes_mut();
            copy(&mut bytes[place..place + held], waited);
            bytes.copy_within(at..at + missing, place + held);
            self.add(batch, place, expected)?;
            from_tail += held;
            at += missing;
            kept = place + expected;
        }
        if from_tail > 0 {
            self.rest.held.tail.drain(..from_tail);
        }
        self.rest.give_back_tail();
        Ok((at, kept))
    }

    /// Adds the packet that begins at `at` to the batch if it ends at `end` or before, and moves `at`
    /// behind it. Returns whether it does. At least [`LENGTH_LEN`] bytes must lie at `at`.
    #[inline(always)]
    fn add_one(
        &mut self,
        batch: &mut OpenBatch,
        at: &mut usize,
        end: usize,
    ) -> Result<bool, OpenError> {
        let bytes = batch.arena().bytes();
        let length = core::array::from_fn(|byte| bytes[*at + byte]);
        let wire_len = self.decrypt_length(length)?;
        if wire_len > end - *at {
            self.rest.expect(wire_len);
            return Ok(false);
        }
        self.add(batch, *at, wire_len)?;
        *at += wire_len;
        Ok(true)
    }

    /// As [`Inbound::add_one`], for all packets from `at` on up to a rekey, which all wait for
    /// the engine. Returns false if the last one has not come whole. At least
    /// [`OVERHEAD`] bytes must lie at `at`; up to three may be left for [`Inbound::add_one`].
    // Not part of its caller, which does less for a single packet.
    #[inline(never)]
    fn add_interval(
        &mut self,
        batch: &mut OpenBatch,
        at: &mut usize,
        end: usize,
    ) -> Result<bool, OpenError> {
        debug_assert!(end - *at >= OVERHEAD);
        let rest = &mut self.rest;
        let interval = self.cipher.begin_interval(batch, usize::MAX)?;
        let (bytes, jobs) = batch.bytes_and_jobs();
        let first = jobs.len();
        let (mut start, mut bytes) = (index(*at), &bytes[*at..end]);
        let (mut lengths, mut result) = (0, Ok(true));
        for packet in interval.packets() {
            // Four bytes are read faster than three, and every packet has as many.
            let Some(&[a, b, c, _]) = bytes.first_chunk() else {
                break;
            };
            lengths += 1;
            let length = packet.crypt_length(u32::from_le_bytes([a, b, c, 0]));
            if length > rest.limit {
                result = Err(rest.too_long(length as usize));
                break;
            }
            let wire_len = length + index(OVERHEAD);
            let Some(behind) = bytes.get(wire_len as usize..) else {
                rest.expect(wire_len as usize);
                result = Ok(false);
                break;
            };
            jobs.push(packet.job(start, length));
            start += wire_len;
            bytes = behind;
        }
        *at = end - bytes.len();
        let (count, packets) = (interval.len(), first..jobs.len());
        self.cipher
            .end_interval(count - lengths, count - packets.len());
        rest.add_waiting(packets);
        result
    }

    /// Decrypts a length and checks it. Returns that of the packet on the wire.
    #[inline]
    fn decrypt_length(&mut self, length: [u8; LENGTH_LEN]) -> Result<usize, OpenError> {
        let length = self.cipher.next_length(length)?;
        if length > self.rest.limit as usize {
            return Err(self.rest.too_long(length));
        }
        Ok(length + OVERHEAD)
    }

    /// Adds the packet of `wire_len` bytes at `start` to the batch.
    #[inline(always)]
    fn add(
        &mut self,
        batch: &mut OpenBatch,
        start: usize,
        wire_len: usize,
    ) -> Result<(), OpenError> {
        let job = batch.len();
        let contents_len = wire_len - OVERHEAD;
        let cipher = &mut self.cipher;
        match cipher.plan(batch, 1, contents_len) {
            Plan::Now => cipher.run_job(Kernels::open_single, batch, start, contents_len)?,
            Plan::FromSource | Plan::WithBatch => cipher.add_job(batch, start, contents_len)?,
        }
        self.rest.added(job);
        Ok(())
    }

    /// The contents of the packets that [`Inbound::receive`] added to the batch and that
    /// nobody took yet, once the batch has been opened. Decoys are dropped and counted.
    ///
    /// After the last packet it yields the error that [`Inbound::receive`] returned, if one.
    // Always part of its caller: a value returned through memory would be written in pieces of 8 bytes and read
    // in pieces of 16, which waits until the pieces are in the cache.
    #[inline(always)]
    pub fn packets<'b>(
        &mut self,
        batch: &'b OpenBatch,
    ) -> impl Iterator<Item = Result<&'b [u8], OpenError>> {
        self.iter(batch)
    }

    #[inline(always)]
    fn iter<'s, 'b>(&'s mut self, batch: &'b OpenBatch) -> Packets<'s, 'b> {
        let rest = &self.rest;
        let waiting = match rest.turn == batch.arena().turn() && !rest.has_rare {
            true => rest.waiting.start as usize..rest.waiting.end as usize,
            false => 0..0,
        };
        Packets {
            run: batch.finished(waiting),
            inbound: self,
            batch,
            ended: false,
        }
    }

    /// As [`Inbound::packets`], for programs that speak Bitcoin's protocol: each packet's message,
    /// its type and its payload. Packets that hold none are dropped and
    /// [counted](Inbound::ignored).
    ///
    /// ```
    /// # use packetlane::bip324::{PacketKind, Role, Session, SessionKeys};
    /// # use packetlane::bitcoin::message::MessageType;
    /// # use packetlane::{Engine, OpenBatch, SealBatch};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let engine = Engine::detect()?;
    /// # let keys = SessionKeys::derive(&[1; 32], [0; 4]);
    /// # let mut alice = Session::from_keys(engine, &keys, Role::Initiator);
    /// # let mut bob = Session::from_keys(engine, &keys, Role::Responder);
    /// # let mut wire = Vec::new();
    /// // Of a type that this version does not know.
    /// alice.outbound.seal(PacketKind::Genuine, &[127, 1, 2], &mut wire)?;
    /// let ping = MessageType::new(b"ping")?;
    /// let contents = [ping.short_id().unwrap(), 3];
    /// alice.outbound.seal(PacketKind::Genuine, &contents, &mut wire)?;
    /// let mut batch = OpenBatch::new();
    /// bob.inbound.feed(&mut batch, &wire)?;
    /// engine.open(&mut batch);
    /// let messages: Result<Vec<_>, _> = bob.inbound.messages(&batch).collect();
    /// assert_eq!(messages?, [(ping, &[3][..])]);
    /// assert_eq!(bob.inbound.ignored().messages, 1);
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn messages<'b>(
        &mut self,
        batch: &'b OpenBatch,
    ) -> impl Iterator<Item = Result<(MessageType, &'b [u8]), OpenError>> {
        Messages {
            packets: self.iter(batch),
        }
    }

    /// One step of [`Packets`]: where the next genuine packet's contents lie in
    /// the batch's arena.
    // Always part of its callers: most calls do little.
    #[inline(always)]
    pub(super) fn next_packet(
        &mut self,
        batch: &OpenBatch,
    ) -> Option<Result<Range<usize>, OpenError>> {
        if self.rest.has_rare
            && let Some(next) = self.rest.next_rare(batch)
        {
            return next;
        }
        while let Some(packet) = self.rest.first_waiting() {
            // A mistake of the caller's leaves the packets where they are.
            if self.rest.turn != batch.arena().turn() {
                return Some(Err(OpenError::NotInBatch));
            }
            if batch.outcome(packet) != Outcome::Authentic {
                return Some(Err(self.not_authentic(batch, packet)));
            }
            self.rest.remove_first_waiting();
            let text = batch.text(packet);
            match PacketKind::from_header(batch.arena().bytes()[text.start]) {
                PacketKind::Genuine => return Some(Ok(text.start + HEADER_LEN..text.end)),
                PacketKind::Decoy => self.rest.held.decoys += 1,
            }
        }
        self.rest.failed().map(Err)
    }

    /// What is wrong with packet number `packet` of the batch.
    #[cold]
    fn not_authentic(&mut self, batch: &OpenBatch, packet: usize) -> OpenError {
        match batch.outcome(packet) {
            Outcome::BadTag => {
                let (packet, epoch) = number_and_epoch(batch.nonce(packet));
                self.fail(OpenError::BadTag { packet, epoch })
            }
            _ => OpenError::NotOpened,
        }
    }

    /// Ends the session; packets that still wait are lost.
    #[cold]
    fn fail(&mut self, error: OpenError) -> OpenError {
        let rest = &mut self.rest;
        rest.drop_waiting();
        rest.has_tail = false;
        rest.held.tail = Vec::new();
        rest.held.taken = 0;
        let rare = rest.rare_mut();
        rare.deferred = Vec::new();
        rare.failed = Some(error);
        error
    }
}

/// A receive limit as it is kept: no packet is longer than [`MAX_CONTENTS_LEN`].
#[allow(
    clippy::cast_possible_truncation,
    reason = "bounded by MAX_CONTENTS_LEN"
)]
fn receive_limit(limit: usize) -> u32 {
    limit.min(MAX_CONTENTS_LEN) as u32
}

impl Reception {
    /// What is rare, if there may be something.
    #[inline]
    fn rare(&self) -> Option<&Rare> {
        self.has_rare.then_some(&self.held.rare)
    }

    /// What is rare, to put something there.
    fn rare_mut(&mut self) -> &mut Rare {
        self.has_rare = true;
        &mut self.held.rare
    }

    /// The end of this half, if it has come.
    #[inline]
    fn failed(&self) -> Option<OpenError> {
        self.rare().and_then(|rare| rare.failed)
    }

    /// Whether packets were deferred.
    #[inline]
    fn has_deferred(&self) -> bool {
        self.rare().is_some_and(|rare| !rare.deferred.is_empty())
    }

    /// Ends this half with `error` unless it has ended before. Returns the error that has.
    #[cold]
    fn end(&mut self, error: OpenError) -> OpenError {
        *self.rare_mut().failed.get_or_insert(error)
    }

    /// The error that contents of `length` bytes are.
    #[cold]
    fn too_long(&self, length: usize) -> OpenError {
        let limit = self.limit as usize;
        OpenError::TooLong { length, limit }
    }

    /// See [`Reception::expected`].
    #[inline]
    fn expected(&self) -> Option<usize> {
        self.expected.map(|len| len.get() as usize)
    }

    /// Sets the length on the wire of the packet that `tail` begins.
    #[inline]
    fn expect(&mut self, wire_len: usize) {
        self.expected = NonZeroU32::new(index(wire_len));
    }

    /// What [`Inbound::next_packet`] returns where something rare decides it: nothing waits, it waits in
    /// another batch, or contents were deferred. `None` if the packets that wait decide it.
    #[cold]
    fn next_rare(&mut self, batch: &OpenBatch) -> Option<Option<Result<Range<usize>, OpenError>>> {
        if self.is_taken() {
            return Some(self.failed().map(Err));
        }
        if self.turn != batch.arena().turn() {
            return Some(Some(Err(OpenError::NotInBatch)));
        }
        let contents = self.held.rare.back.pop_front()?;
        Some(Some(Ok(contents)))
    }

    /// Whether all packets that it added to the batch have been taken.
    #[inline]
    fn is_taken(&self) -> bool {
        self.waiting.is_empty() && self.rare().is_none_or(|rare| rare.back.is_empty())
    }

    /// Forgets all packets that wait in a batch.
    fn drop_waiting(&mut self) {
        self.waiting = Run::default();
        self.held.rare.runs.clear();
        self.held.rare.back.clear();
    }

    /// The packet that was expected, or the next one, is number `packet` of the batch.
    #[inline(always)]
    fn added(&mut self, packet: usize) {
        self.expected = None;
        self.add_waiting(packet..packet + 1);
    }

    /// Adds the packets with numbers `packets` of the batch to those that wait.
    #[inline]
    fn add_waiting(&mut self, packets: Range<usize>) {
        if packets.is_empty() {
            return;
        }
        let new = Run {
            start: index(packets.start),
            end: index(packets.end),
        };
        let last = match self.rare() {
            Some(Rare { runs, .. }) if !runs.is_empty() => self.held.rare.runs.back_mut(),
            _ => None,
        };
        let last = last.unwrap_or(&mut self.waiting);
        if last.is_empty() {
            *last = new;
        } else if last.end == new.start {
            last.end = new.end;
        } else {
            self.rare_mut().runs.push_back(new);
        }
    }

    /// The number of the first packet that waits.
    #[inline]
    fn first_waiting(&self) -> Option<usize> {
        (!self.waiting.is_empty()).then_some(self.waiting.start as usize)
    }

    /// The number of the last packet that waits.
    fn last_waiting(&self) -> Option<usize> {
        let run = self.held.rare.runs.back().unwrap_or(&self.waiting);
        (!run.is_empty()).then(|| run.end as usize - 1)
    }

    #[inline]
    fn remove_first_waiting(&mut self) {
        self.waiting.start += 1;
        if self.has_rare && self.waiting.is_empty() {
            self.next_run();
        }
    }

    #[cold]
    fn next_run(&mut self) {
        self.waiting = self.held.rare.runs.pop_front().unwrap_or_default();
    }

    /// Forgets the packets that [`Inbound::open`] has returned.
    #[inline]
    fn drop_taken(&mut self) {
        if self.held.taken > 0 {
            self.held.tail.drain(..self.held.taken);
            self.held.taken = 0;
            self.give_back_tail();
        }
    }

    /// Gives the memory of a long packet back, once it is not needed.
    fn give_back_tail(&mut self) {
        self.has_tail = !self.held.tail.is_empty();
        if !self.has_tail && self.held.tail.capacity() > KEPT_BUFFER {
            self.held.tail = Vec::new();
        }
    }

    /// Moves bytes from the front of `bytes` to the end of the tail, until it has `len` that
    /// are not taken. Returns where they lie, if there are so many.
    fn reach(&mut self, bytes: &mut &[u8], len: usize) -> Option<Range<usize>> {
        // What was taken is dropped only now, so that many packets in the tail are not moved
        // for each of them.
        if self.held.tail.len() - self.held.taken < len {
            self.drop_taken();
            let missing = len - self.held.tail.len();
            let (new, others) = bytes.split_at(missing.min(bytes.len()));
            append_expected(&mut self.held.tail, new, len);
            self.has_tail = true;
            *bytes = others;
        }
        let place = self.held.taken..self.held.taken + len;
        (place.end <= self.held.tail.len()).then_some(place)
    }
}

impl Run {
    #[inline]
    fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// Iterator over the packets of one session in a batch; see
/// [`Inbound::packets`]. It ends after an error.
#[derive(Debug)]
struct Packets<'s, 'b> {
    inbound: &'s mut Inbound,
    batch: &'b OpenBatch,
    /// The packets that wait and have run. [`Inbound::next_packet`] does the same for each, but asks more.
    run: Zip<slice::Iter<'b, Job>, slice::Iter<'b, Outcome>>,
    ended: bool,
}

impl<'b> Iterator for Packets<'_, 'b> {
    type Item = Result<&'b [u8], OpenError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.batch.arena().bytes();
        while let Some((job, Outcome::Authentic)) = self.run.next() {
            self.inbound.rest.waiting.start += 1;
            let text = &bytes[job.text as usize..][..job.text_len as usize];
            if let Some((&header, contents)) = text.split_first()
                && PacketKind::from_header(header) == PacketKind::Genuine
            {
                return Some(Ok(contents));
            }
            self.inbound.rest.held.decoys += 1;
        }
        if self.inbound.rest.waiting.is_empty() && !self.inbound.rest.has_rare {
            return None;
        }
        self.next_beside_run()
    }
}

impl<'b> Packets<'_, 'b> {
    /// The next packet that does not lie in the run, or what is wrong.
    #[inline(never)]
    fn next_beside_run(&mut self) -> Option<Result<&'b [u8], OpenError>> {
        self.run = [].iter().zip(&[]);
        if self.ended {
            return None;
        }
        let next = self.inbound.next_packet(self.batch)?;
        self.ended = next.is_err();
        Some(next.map(|contents| &self.batch.arena().bytes()[contents]))
    }
}

/// Iterator over the messages of one session in a batch; see [`Inbound::messages`]. It ends after
/// an error.
#[derive(Debug)]
struct Messages<'s, 'b> {
    packets: Packets<'s, 'b>,
}

impl<'b> Iterator for Messages<'_, 'b> {
    type Item = Result<(MessageType, &'b [u8]), OpenError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let contents = match self.packets.next()? {
                Ok(contents) => contents,
                Err(error) => return Some(Err(error)),
            };
            let ignored = &mut self.packets.inbound.rest.held.ignored;
            if let Some(message) = ignored.decode(contents, contents.len() + OVERHEAD) {
                return Some(Ok(message));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::outbound::Outbound;
    use super::*;
    use crate::engine::Engine;
    use alloc::vec;
    use packetlane_lanes::Backend;

    /// A long packet that comes in two pieces waits for the engine; of a forged one nothing shows. The packets
    /// behind it are opened, too.
    #[test]
    fn long_packets_in_pieces() {
        const LONG: usize = 32 * 1024;
        for backend in Backend::ALL.iter().filter(|backend| backend.is_available()) {
            let engine = Engine::on(*backend).unwrap();
            let cipher = || Cipher::new(engine, &[1; 32], &[2; 32]);
            let contents: Vec<u8> = (0..100_000_u32).map(|i| (i % 251) as u8).collect();
            // How long, and how much of it comes before.
            let cases = [
                (LONG - 1, LONG),
                (LONG, LONG / 2 - 100),
                (LONG, LONG / 2 + 100),
                (contents.len(), contents.len()),
                (contents.len(), 3),
            ];
            for (case, (len, before)) in cases.into_iter().enumerate() {
                for (is_forged, precomputes) in [(false, true), (false, false), (true, true)] {
                    let (mut sender, mut wire) = (Outbound::new(cipher()), Vec::new());
                    let kinds = [PacketKind::Genuine, PacketKind::Decoy];
                    for packet in 0..4 * case {
                        let kind = kinds[packet % 2];
                        sender.seal(kind, b"before", &mut wire).unwrap();
                    }
                    let cut = wire.len() + before;
                    let long = &contents[..len];
                    sender.seal(PacketKind::Genuine, long, &mut wire).unwrap();
                    if is_forged {
                        *wire.last_mut().unwrap() ^= 1;
                    }
                    let end = wire.len();
                    sender.seal(PacketKind::Decoy, b"", &mut wire).unwrap();
                    sender
                        .seal(PacketKind::Genuine, b"behind", &mut wire)
                        .unwrap();

                    let mut receiver =
                        Inbound::new(cipher(), Inbound::DEFAULT_RECEIVE_LIMIT, Vec::new());
                    receiver.set_precomputed_keystream(precomputes);
                    let mut batch = OpenBatch::new();
                    assert_eq!(receiver.feed(&mut batch, &wire[..cut]), Ok(4 * case));
                    engine.open(&mut batch);
                    let packets = receiver.packets(&batch);
                    assert!(packets.eq(vec![Ok(&b"before"[..]); 2 * case]));

                    batch.clear();
                    assert_eq!(receiver.feed(&mut batch, &wire[cut..end]), Ok(1));
                    assert!(batch.has_pending(), "{backend:?}, {len}, {before}");
                    assert_eq!(receiver.feed(&mut batch, &wire[end..]), Ok(2));
                    let next = receiver.packets(&batch).next();
                    assert_eq!(next, Some(Err(OpenError::NotOpened)), "{backend:?}");
                    engine.open(&mut batch);
                    let mut packets = receiver.packets(&batch);
                    if is_forged {
                        let (packet, epoch) = (index(4 * case), 0);
                        let bad_tag = OpenError::BadTag { packet, epoch };
                        assert_eq!(packets.next(), Some(Err(bad_tag)));
                        let shown = batch.arena().bytes();
                        assert!(!shown.windows(32).any(|bytes| *bytes == long[..32]));
                    } else {
                        assert!(packets.next() == Some(Ok(long)), "{backend:?}, {len}");
                        assert_eq!(packets.next(), Some(Ok(&b"behind"[..])));
                        assert_eq!(packets.next(), None);
                    }
                }
            }
        }
    }

    /// Long packets that came whole with the handshake, between short ones, and one whose end follows.
    #[test]
    fn long_packets_that_came_before_the_first_turn() {
        for backend in Backend::ALL.iter().filter(|backend| backend.is_available()) {
            let engine = Engine::on(*backend).unwrap();
            let cipher = || Cipher::new(engine, &[1; 32], &[2; 32]);
            let contents: Vec<Vec<u8>> = [7, 40_000, 50_000, 0, 60_000, 5]
                .iter()
                .map(|&len| (0..len).map(|i| (i % 251) as u8).collect())
                .collect();
            let (mut sender, mut wire) = (Outbound::new(cipher()), Vec::new());
            for contents in &contents {
                sender
                    .seal(PacketKind::Genuine, contents, &mut wire)
                    .unwrap();
            }
            let behind = wire.split_off(140_000);
            let mut receiver = Inbound::new(cipher(), Inbound::DEFAULT_RECEIVE_LIMIT, wire);
            let (mut batch, mut opened) = (OpenBatch::new(), Vec::new());
            for (bytes, packets) in [(&[][..], 4), (&behind, 2)] {
                batch.clear();
                assert_eq!(receiver.feed(&mut batch, bytes), Ok(packets));
                engine.open(&mut batch);
                opened.extend(
                    receiver
                        .packets(&batch)
                        .map(|packet| packet.unwrap().to_vec()),
                );
            }
            assert!(opened == contents, "{backend:?}");
            assert_eq!(receiver.buffered(), 0);
        }
    }
}
