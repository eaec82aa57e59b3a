//! The receiving half of a session: it finds packets in the bytes read from a socket and adds them
//! to a batch, which an engine opens for all sessions at once.

use super::buffer::{MAX_PREALLOCATION, append_expected};
use super::cipher::Cipher;
use super::error::OpenError;
use super::packet::{LENGTH_LEN, OVERHEAD, PacketKind};
use super::reception::{Held, Reception, Run, receive_limit};
use crate::arena::index;
use crate::batch::{OpenBatch, Plan};
use crate::bitcoin::message::{Ignored, MessageType};
use crate::copy::copy;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use packetlane_lanes::Kernels;

/// The receiving half of a session.
///
/// In each turn of the event loop: read from the socket into [`OpenBatch::room`], pass the number
/// of bytes to [`Inbound::receive`], open the batch, then take the packets ([`Inbound::packets`])
/// or defer them ([`Inbound::defer`]). Bytes of an incomplete packet are kept here. Without a
/// batch, [`Inbound::open`] does all of this.
// With thousands of sessions, cache misses dominate: a turn that brings complete packets, all of
// which are taken, touches one cache line here and two of the cipher's.
#[derive(Debug)]
#[repr(align(64))]
pub struct Inbound {
    cipher: Cipher,
    pub(super) rest: Reception,
}

const _: () = assert!(size_of::<Inbound>() == 64);

impl Inbound {
    /// Default maximum length of received contents, in bytes: the largest message of the network
    /// (4,000,000 bytes) and its type (13 bytes).
    pub const DEFAULT_RECEIVE_LIMIT: usize = 4_000_000 + 1 + MessageType::MAX_LEN;

    /// How much memory a session allocates for a packet beyond the bytes that have arrived, in
    /// bytes. It bounds what an announced length can cost before its bytes arrive.
    pub const MAX_PREALLOCATION: usize = MAX_PREALLOCATION;

    pub(super) fn new(cipher: Cipher, limit: usize, buffered: Vec<u8>) -> Self {
        let rest = Reception {
            turn: 0,
            waiting: Run::default(),
            limit: receive_limit(limit),
            expected: None,
            // An allocation without bytes is freed in the first turn.
            has_tail: buffered.capacity() > 0,
            has_rare: false,
            held: Box::new(Held {
                tail: buffered,
                ..Held::default()
            }),
        };
        Self { cipher, rest }
    }

    /// Prefetches the memory that the next packet needs; see
    /// [`Outbound::prefetch`](super::Outbound::prefetch).
    #[inline]
    pub fn prefetch(&self) {
        self.cipher.prefetch();
    }

    /// Sets the maximum length of received contents, in bytes, from the next packet on. The default
    /// is [`Inbound::DEFAULT_RECEIVE_LIMIT`].
    pub fn set_receive_limit(&mut self, limit: usize) {
        self.rest.limit = receive_limit(limit);
    }

    /// Turns the precomputed keystream of the next packets on or off; see
    /// [`Cipher::set_precomputed_keystream`].
    pub fn set_precomputed_keystream(&mut self, on: bool) {
        self.cipher.set_precomputed_keystream(on);
    }

    /// Returns the number of decoys dropped since the handshake.
    #[must_use]
    pub fn decoys(&self) -> u64 {
        self.rest.held.decoys
    }

    /// Returns what [`Inbound::messages`] and
    /// [`Connection::next_message`](super::Connection::next_message) have dropped since the
    /// handshake because it was no valid message.
    #[must_use]
    pub fn ignored(&self) -> Ignored {
        self.rest.held.ignored
    }

    /// Returns how many bytes are buffered here: of an incomplete packet, and of deferred contents.
    #[must_use]
    pub fn buffered(&self) -> usize {
        let deferred: usize = self.rest.held.rare.deferred.iter().map(Vec::len).sum();
        self.rest.held.tail.len() - self.rest.held.taken + deferred
    }

    /// Whether part of a packet has arrived.
    pub(super) fn is_within_packet(&self) -> bool {
        self.rest.held.tail.len() > self.rest.held.taken
    }

    /// Whether packets may wait here that need no more bytes from the peer, because they came with
    /// the handshake or were deferred. If so, call [`Inbound::receive`] with `len` 0: the peer may
    /// send nothing more until it has an answer.
    #[must_use]
    pub fn has_pending_input(&self) -> bool {
        let needed = self.rest.expected().unwrap_or(LENGTH_LEN);
        self.rest.failed().is_none()
            && (self.rest.has_deferred()
                || self.rest.held.tail.len() - self.rest.held.taken >= needed)
    }

    /// Like [`Inbound::receive`], for bytes in the caller's own buffer.
    ///
    /// # Errors
    ///
    /// As for [`Inbound::receive`].
    pub fn feed(&mut self, batch: &mut OpenBatch, bytes: &[u8]) -> Result<usize, OpenError> {
        if !batch.arena().fits(bytes.len()) {
            return Err(self.rest.end(OpenError::BatchFull));
        }
        copy(batch.room(bytes.len()), bytes);
        self.receive(batch, bytes.len())
    }

    /// Takes the first `len` bytes of the batch's last [`OpenBatch::room`]: adds every complete
    /// packet to the batch, after any deferred ones, and keeps the rest for later. Returns the
    /// number of packets added.
    ///
    /// With `len` 0 it adds the packets that wait here ([`Inbound::has_pending_input`]).
    ///
    /// The session's engine may open a packet immediately if the turn is small, or if a long packet
    /// arrived in pieces; only an engine with one thread and no GPU does so. The result becomes
    /// visible when the batch has been opened.
    ///
    /// # Errors
    ///
    /// [`OpenError::TooLong`] as soon as the peer announces too long a packet; packets before it
    /// can still be taken. [`OpenError::NotInBatch`] if packets of an earlier turn were neither
    /// taken nor deferred. [`OpenError::BatchFull`] and [`OpenError::Exhausted`]. Every error ends
    /// the session: bytes received later are dropped.
    ///
    /// # Panics
    ///
    /// If `len` exceeds the length of that room, or the room has been taken or overwritten since.
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
        // Even if a new packet is refused: the deferred ones came before it.
        if self.rest.has_deferred() {
            result = result.and(self.put_back(batch));
        }
        match result {
            Ok(deferred) => Ok(batch.len() - before + deferred),
            Err(error) => Err(self.rest.end(error)),
        }
    }

    /// Moves the deferred packets into the batch. Returns their number.
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

    /// Consumes bytes from the front of `bytes` up to the end of the next genuine packet, and
    /// returns its contents. Returns `None` if `bytes` ends before that; `bytes` is then empty.
    /// Decoys are dropped and counted. For programs without batches: call it until it returns
    /// `None`, and once right after the handshake, with no bytes.
    ///
    /// # Errors
    ///
    /// See [`OpenError`]. Every error ends the session, except [`OpenError::NotInBatch`]: packets
    /// of this session are still in a batch or deferred, and must be taken first.
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
    /// // The peer's bytes may arrive in any pieces: here without the last byte of "two".
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

    /// Like [`Inbound::open`]: returns the range of the contents in `tail`.
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

    /// Finds the packets in the bytes that arrived, `new`: the last bytes taken from the arena.
    fn scan(&mut self, batch: &mut OpenBatch, new: Range<usize>) -> Result<(), OpenError> {
        // The end of the new bytes that are consumed, and of the bytes that the batch keeps.
        let (mut at, mut kept) = (new.start, new.start);
        // First the tail.
        if self.rest.has_tail {
            (at, kept) = self.scan_tail(batch, &new)?;
        }
        // The other packets are opened where they arrived.
        if !self.rest.has_tail {
            // Most peers send one packet at a time, which is faster without an interval.
            let (mut is_first, mut is_whole) = (true, true);
            while is_whole && new.end - at >= LENGTH_LEN {
                let is_single = is_first
                    || new.end - at < OVERHEAD
                    || self.cipher.plan(batch, 1, 0) == Plan::Immediate;
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

    /// Finds the packets that begin in the tail, like [`Inbound::scan`]. A packet's bytes must be
    /// contiguous, so such a packet is assembled at the end of the arena. Returns the end of the
    /// new bytes that are consumed, and of the bytes that the batch keeps.
    // Outlined, because complete packets do not need it.
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

    /// Adds the packet that begins at `at` to the batch if it is complete by `end`, and moves `at`
    /// past it. Returns whether it did. At least [`LENGTH_LEN`] bytes must lie at `at`.
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

    /// Like [`Inbound::add_one`], for all packets from `at` up to the next rekey; all of them wait
    /// for the engine. Returns false if the last one is incomplete. At least [`OVERHEAD`] bytes
    /// must lie at `at`; up to three may be left for [`Inbound::add_one`].
    // Outlined, because a single packet does not need it.
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
            // Reading four bytes is faster than reading three, and every packet has that many.
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
            let Some(after) = bytes.get(wire_len as usize..) else {
                rest.expect(wire_len as usize);
                result = Ok(false);
                break;
            };
            jobs.push(packet.job(start, length));
            start += wire_len;
            bytes = after;
        }
        *at = end - bytes.len();
        let (count, packets) = (interval.len(), first..jobs.len());
        self.cipher
            .end_interval(count - lengths, count - packets.len());
        rest.add_waiting(packets);
        result
    }

    /// Decrypts and checks a length. Returns the length of the whole packet on the wire.
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
            Plan::Immediate => cipher.run_job(Kernels::open_single, batch, start, contents_len)?,
            Plan::FromSource | Plan::Deferred => cipher.add_job(batch, start, contents_len)?,
        }
        self.rest.added(job);
        Ok(())
    }

    /// Ends the session. Packets not taken yet are lost.
    #[cold]
    pub(super) fn fail(&mut self, error: OpenError) -> OpenError {
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

#[cfg(test)]
mod tests {
    use super::super::outbound::Outbound;
    use super::*;
    use crate::engine::Engine;
    use alloc::vec;
    use packetlane_lanes::Backend;

    /// A long packet that arrives in two pieces becomes visible after the engine's call; a forged
    /// one never does. The packets after it are opened too.
    #[test]
    fn long_packets_in_pieces() {
        const LONG: usize = 32 * 1024;
        for backend in Backend::ALL.iter().filter(|backend| backend.is_available()) {
            let engine = Engine::on(*backend).unwrap();
            let cipher = || Cipher::new(engine, &[1; 32], &[2; 32]);
            let contents: Vec<u8> = (0..100_000_u32).map(|i| (i % 251) as u8).collect();
            // The length, and how much of it arrives first.
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

    /// Long packets that arrived complete with the handshake, between short ones, and one whose end
    /// arrives later.
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
