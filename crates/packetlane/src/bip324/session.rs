//! A session after its handshake: packets, many at a time.
//!
//! [`Outbound`] writes packets into a [`Batch`], which an engine seals for all
//! sessions at once; [`Inbound`] finds the packets in what a socket brought and
//! adds them to a batch, which an engine opens for all sessions at once.

use super::{
    Cipher, Exhausted, HEADER_LEN, LENGTH_LEN, MAX_CONTENTS_LEN, OVERHEAD, Role, SessionKeys,
};
use crate::batch::{Batch, Slot};
use crate::copy::{append, copy};
use crate::{Engine, Outcome};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

/// Longest contents that [`Inbound`] accepts unless told otherwise, in bytes:
/// the largest message of the network, 4,000,000 bytes, and its type, 13 bytes.
pub const DEFAULT_RECEIVE_LIMIT: usize = 4_000_000 + 1 + super::MAX_TYPE_LEN;

/// How much memory [`Inbound`] takes for a packet beyond the bytes of it that
/// have arrived: a stranger's claim of a length costs no more than this.
pub const MAX_PREALLOCATION: usize = 256 * 1024;

/// Buffers above this size are given back when they are empty.
pub(super) const KEPT_BUFFER: usize = 64 * 1024;

/// What a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketKind {
    /// Its contents are a message (or the version packet's).
    Genuine,
    /// Its contents mean nothing; the receiver drops it.
    Decoy,
}

/// An established session: what [`Handshake`](super::Handshake) ends in.
#[derive(Debug)]
pub struct Session {
    /// The sending half.
    pub outbound: Outbound,
    /// The receiving half. It may hold packets already, which came right behind
    /// the handshake.
    pub inbound: Inbound,
    pub(crate) id: [u8; 32],
}

impl Session {
    /// A session of `role` with keys that were exchanged by other means than
    /// [`Handshake`](super::Handshake): the first packet of each direction is
    /// still the version packet's.
    #[must_use]
    pub fn from_keys(engine: Engine, keys: &SessionKeys, role: Role) -> Self {
        let [outbound, inbound] = Cipher::pair(engine, keys, role);
        Self {
            outbound: Outbound::new(outbound),
            inbound: Inbound::new(inbound, DEFAULT_RECEIVE_LIMIT, Vec::new()),
            id: keys.session_id,
        }
    }

    /// The session id: equal on both sides if nobody sits between them. Users
    /// may compare it over another channel.
    #[must_use]
    pub fn id(&self) -> &[u8; 32] {
        &self.id
    }
}

/// The sending half of a session.
///
/// Every packet that it adds to a batch must be sealed and sent, in order: the
/// counters of both sides go on with it.
#[derive(Debug)]
pub struct Outbound {
    cipher: Cipher,
}

impl Outbound {
    pub(crate) fn new(cipher: Cipher) -> Self {
        Self { cipher }
    }

    /// Whether keystream of the next packets is computed ahead; see
    /// [`Cipher::set_precomputed_keystream`].
    pub fn set_precomputed_keystream(&mut self, on: bool) {
        self.cipher.set_precomputed_keystream(on);
    }

    /// Asks for the memory that the next packet needs, without waiting for it. Who
    /// visits thousands of sessions in a turn, whose memory is in no cache by then, had
    /// better call it some eight sessions ahead.
    #[inline]
    pub fn prefetch(&self) {
        self.cipher.prefetch();
    }

    /// Adds a packet with `contents` to the batch. [`Batch::wire`] gives its
    /// bytes when the batch has been sealed.
    ///
    /// # Errors
    ///
    /// See [`SealError`]. Nothing is added and nothing counted then.
    #[inline]
    pub fn push(
        &mut self,
        batch: &mut Batch,
        kind: PacketKind,
        contents: &[u8],
    ) -> Result<Slot, SealError> {
        let (slot, place) = self.reserve(batch, kind, contents.len())?;
        copy(place, contents);
        Ok(slot)
    }

    /// Adds a packet with contents of `contents_len` bytes to the batch, for the
    /// caller to write into the slice that is returned, so that a message is
    /// serialised where its packet will lie. The slice shows bytes of earlier
    /// turns: all of it must be written.
    ///
    /// # Errors
    ///
    /// See [`SealError`]. Nothing is added and nothing counted then.
    #[inline]
    pub fn reserve<'b>(
        &mut self,
        batch: &'b mut Batch,
        kind: PacketKind,
        contents_len: usize,
    ) -> Result<(Slot, &'b mut [u8]), SealError> {
        if contents_len > MAX_CONTENTS_LEN {
            return Err(SealError::TooLong {
                length: contents_len,
            });
        }
        let wire_len = contents_len + OVERHEAD;
        if !batch.fits(wire_len) {
            return Err(SealError::BatchFull);
        }
        let [a, b, c] = self.cipher.encrypt_length(contents_len)?;
        let (job, turn) = (batch.len(), batch.turn());
        let start = batch.take(wire_len);
        let front = start..start + LENGTH_LEN + HEADER_LEN;
        let contents = front.end..front.end + contents_len;
        batch.bytes_mut()[front].copy_from_slice(&[a, b, c, kind.header()]);
        self.cipher
            .add_job(batch, start, contents_len)
            .map_err(|Exhausted| SealError::Exhausted)?;
        let slot = Slot {
            bytes: start..start + wire_len,
            jobs: job..job + 1,
            turn,
        };
        Ok((slot, &mut batch.bytes_mut()[contents]))
    }

    /// Appends one packet to `out`, sealed, without a batch.
    ///
    /// # Errors
    ///
    /// See [`SealError`]. Nothing is appended then.
    pub fn seal(
        &mut self,
        kind: PacketKind,
        contents: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), SealError> {
        self.cipher.seal(kind, &[], contents, out)
    }
}

/// The receiving half of a session.
///
/// In each turn: read from the socket into [`Batch::room`], say how much came
/// ([`Inbound::received`]), open the batch, take the packets
/// ([`Inbound::packets`]). Bytes of a packet that has not come whole wait here.
#[derive(Debug)]
pub struct Inbound {
    cipher: Cipher,
    rest: Box<Reception>,
}

/// What [`Inbound`] knows beside its keys: elsewhere, so that thousands of them lie
/// close together, and one can say which memory it will need without waiting for any.
#[derive(Debug)]
struct Reception {
    limit: usize,
    /// The beginning of a packet whose end has not come.
    tail: Vec<u8>,
    /// Length on the wire of the packet that `tail` begins, once its length has
    /// been decrypted.
    expected: Option<usize>,
    /// The packets that wait in a batch to be taken, and that batch's turn.
    waiting: Waiting,
    turn: usize,
    /// The end of this half: packets before it may still wait.
    failed: Option<OpenError>,
    decoys: u64,
}

impl Inbound {
    pub(crate) fn new(cipher: Cipher, limit: usize, buffered: Vec<u8>) -> Self {
        let rest = Reception {
            limit,
            tail: buffered,
            expected: None,
            waiting: Waiting::default(),
            turn: 0,
            failed: None,
            decoys: 0,
        };
        Self {
            cipher,
            rest: Box::new(rest),
        }
    }

    /// Asks for the memory that the next packet needs, as [`Outbound::prefetch`].
    #[inline]
    pub fn prefetch(&self) {
        self.cipher.prefetch();
        packetlane_lanes::prefetch(&*self.rest);
        packetlane_lanes::prefetch(&self.rest.turn);
        packetlane_lanes::prefetch(&self.rest.failed);
    }

    /// Sets the longest contents that are accepted, in bytes, from the next
    /// packet on. [`DEFAULT_RECEIVE_LIMIT`] if never called.
    pub fn set_receive_limit(&mut self, limit: usize) {
        self.rest.limit = limit;
    }

    /// Whether keystream of the next packets is computed ahead; see
    /// [`Cipher::set_precomputed_keystream`].
    pub fn set_precomputed_keystream(&mut self, on: bool) {
        self.cipher.set_precomputed_keystream(on);
    }

    /// How many decoys have been dropped since the handshake.
    #[must_use]
    pub fn decoys(&self) -> u64 {
        self.rest.decoys
    }

    /// How many bytes wait for the rest of their packet.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.rest.tail.len()
    }

    /// As [`Inbound::received`], for bytes that lie elsewhere.
    pub fn feed(&mut self, batch: &mut Batch, bytes: &[u8]) {
        copy(batch.room(bytes.len()), bytes);
        self.received(batch, bytes.len());
    }

    /// Takes the first `len` bytes of the batch's last [`Batch::room`]: adds
    /// every packet that is now whole to the batch and keeps the rest for later.
    ///
    /// Call it once with 0 after the handshake: packets may have come with it.
    /// After a failure the bytes are dropped; [`Inbound::packets`] tells.
    ///
    /// # Panics
    ///
    /// If that room was shorter than `len`, or has been taken or written over
    /// since.
    pub fn received(&mut self, batch: &mut Batch, len: usize) {
        if self.rest.turn != batch.turn() {
            if !self.rest.waiting.is_empty() && self.rest.failed.is_none() {
                self.rest.failed = Some(OpenError::NotOpened);
            }
            self.rest.waiting.clear();
            self.rest.turn = batch.turn();
        }
        if self.rest.failed.is_some() {
            return;
        }
        let start = batch.take_received(len);
        if let Err(error) = self.scan(batch, start..start + len) {
            self.rest.failed = Some(error);
        }
    }

    /// Finds the packets in the bytes that came, which lie in `new`, the last
    /// bytes of the arena that are taken.
    fn scan(&mut self, batch: &mut Batch, new: Range<usize>) -> Result<(), OpenError> {
        // How far the new bytes and the tail are used, and the end of what the
        // batch keeps.
        let mut at = new.start;
        let mut from_tail = 0;
        let mut kept = new.start;
        // What waits comes first. A packet's bytes must be neighbours, so one
        // that the tail begins is put together at the arena's end.
        while from_tail < self.rest.tail.len() {
            if self.rest.expected.is_none() {
                let held = self.rest.tail.len() - from_tail;
                let missing = LENGTH_LEN.saturating_sub(held).min(new.end - at);
                self.rest
                    .tail
                    .extend_from_slice(&batch.bytes()[at..at + missing]);
                at += missing;
                let Some(&length) = self.rest.tail[from_tail..].first_chunk() else {
                    break;
                };
                self.rest.expected = Some(self.decrypt_length(length)?);
            }
            let expected = self.rest.expected.unwrap_or(OVERHEAD);
            let held = (self.rest.tail.len() - from_tail).min(expected);
            let missing = expected - held;
            if missing > new.end - at {
                break;
            }
            if !batch.fits(expected) {
                return Err(OpenError::BatchFull);
            }
            let place = batch.take(expected);
            let bytes = batch.bytes_mut();
            let waited = &self.rest.tail[from_tail..from_tail + held];
            copy(&mut bytes[place..place + held], waited);
            bytes.copy_within(at..at + missing, place + held);
            from_tail += held;
            at += missing;
            kept = place + expected;
            self.add(batch, place, expected)?;
        }
        self.rest.tail.drain(..from_tail);
        // The other packets lie where they came.
        if self.rest.tail.is_empty() {
            if self.rest.tail.capacity() > KEPT_BUFFER {
                self.rest.tail = Vec::new();
            }
            while let Some(&length) = batch.bytes()[at..new.end].first_chunk() {
                let expected = self.decrypt_length(length)?;
                if expected > new.end - at {
                    self.rest.expected = Some(expected);
                    break;
                }
                self.add(batch, at, expected)?;
                at += expected;
                kept = kept.max(at);
            }
        }
        append_ahead(
            &mut self.rest.tail,
            &batch.bytes()[at..new.end],
            self.rest.expected.unwrap_or(LENGTH_LEN),
        );
        batch.give_back(kept);
        Ok(())
    }

    /// Decrypts a length and checks it. Returns that of the packet on the wire.
    #[inline]
    fn decrypt_length(&mut self, length: [u8; LENGTH_LEN]) -> Result<usize, OpenError> {
        let length = self
            .cipher
            .decrypt_length(length)
            .map_err(|Exhausted| OpenError::Exhausted)?;
        if length > self.rest.limit {
            return Err(OpenError::TooLong {
                length,
                limit: self.rest.limit,
            });
        }
        Ok(length + OVERHEAD)
    }

    /// Adds the packet of `wire_len` bytes at `start` to the batch.
    #[inline(always)]
    fn add(&mut self, batch: &mut Batch, start: usize, wire_len: usize) -> Result<(), OpenError> {
        let job = batch.len();
        self.cipher
            .add_job(batch, start, wire_len - OVERHEAD)
            .map_err(|Exhausted| OpenError::Exhausted)?;
        self.rest.expected = None;
        self.rest.waiting.add(job);
        Ok(())
    }

    /// The contents of the packets that [`Inbound::received`] added to the batch
    /// and that nobody took yet, once the batch has been opened. Decoys are
    /// dropped and counted.
    ///
    /// The first error ends the session: whatever comes after it is the same
    /// error again.
    pub fn packets<'s, 'b>(&'s mut self, batch: &'b Batch) -> Packets<'s, 'b> {
        Packets {
            inbound: self,
            batch,
            ended: false,
        }
    }

    /// One step of [`Packets`]: where the next genuine packet's contents lie in
    /// the batch's arena.
    pub(crate) fn next_packet(&mut self, batch: &Batch) -> Option<Result<Range<usize>, OpenError>> {
        while let Some(job) = self.rest.waiting.first() {
            let outcome = match self.rest.turn == batch.turn() {
                true => batch.outcome(job),
                false => Outcome::Pending,
            };
            match outcome {
                Outcome::Authentic => self.rest.waiting.remove_first(),
                Outcome::Pending => return Some(Err(self.fail(OpenError::NotOpened))),
                _ => return Some(Err(self.fail(OpenError::BadTag))),
            }
            let text = batch.text(job);
            match PacketKind::from_header(batch.bytes()[text.start]) {
                PacketKind::Genuine => return Some(Ok(text.start + HEADER_LEN..text.end)),
                PacketKind::Decoy => self.rest.decoys += 1,
            }
        }
        self.rest.failed.map(Err)
    }

    /// Ends the session; packets that still wait are lost.
    fn fail(&mut self, error: OpenError) -> OpenError {
        self.rest.waiting.clear();
        self.rest.tail = Vec::new();
        self.rest.failed = Some(error);
        error
    }
}

/// Packets of a batch, in their order, as runs of neighbours. One run, which is what
/// a session mostly has, lies in the session and not behind a pointer: with many
/// sessions, memory is what takes time.
#[derive(Debug, Default)]
struct Waiting {
    /// Empty only if there are no others.
    first: Range<usize>,
    others: VecDeque<Range<usize>>,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    fn clear(&mut self) {
        self.first = 0..0;
        self.others.clear();
    }

    fn add(&mut self, job: usize) {
        let last = self.others.back_mut().unwrap_or(&mut self.first);
        if last.start == last.end {
            *last = job..job + 1;
        } else if last.end == job {
            last.end += 1;
        } else {
            self.others.push_back(job..job + 1);
        }
    }

    fn first(&self) -> Option<usize> {
        (!self.first.is_empty()).then_some(self.first.start)
    }

    fn remove_first(&mut self) {
        self.first.start += 1;
        if self.first.is_empty()
            && let Some(next) = self.others.pop_front()
        {
            self.first = next;
        }
    }
}

/// Appends `bytes` to a buffer that will hold `expected` bytes in all, if its
/// peer is to be believed: takes memory for that many, but for no more than
/// [`MAX_PREALLOCATION`] beyond those that have arrived.
pub(super) fn append_ahead(buffer: &mut Vec<u8>, bytes: &[u8], expected: usize) {
    let arrived = buffer.len() + bytes.len();
    if buffer.capacity() < arrived {
        let wanted = expected.clamp(arrived, arrived + MAX_PREALLOCATION);
        buffer.reserve_exact(wanted - buffer.len());
    }
    append(buffer, bytes);
}

/// Iterator over the packets of one session in a batch; see
/// [`Inbound::packets`].
#[derive(Debug)]
pub struct Packets<'s, 'b> {
    inbound: &'s mut Inbound,
    batch: &'b Batch,
    ended: bool,
}

impl<'b> Iterator for Packets<'_, 'b> {
    type Item = Result<&'b [u8], OpenError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.inbound.next_packet(self.batch)?;
        self.ended = next.is_err();
        Some(next.map(|contents| &self.batch.bytes()[contents]))
    }
}

/// Why a packet cannot be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SealError {
    /// The contents are longer than the format can say.
    TooLong {
        /// Length of the contents, in bytes.
        length: usize,
    },
    /// The batch has no room left: seal it, send it and clear it first.
    BatchFull,
    /// The packet counters are spent, after 224 * 2^64 packets.
    Exhausted,
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { length } => write!(
                f,
                "contents of {length} bytes do not fit a packet, which carries at most \
                 {MAX_CONTENTS_LEN}"
            ),
            Self::BatchFull => write!(
                f,
                "the batch is full at {} bytes: seal, send and clear it first",
                Batch::MAX_BYTES
            ),
            Self::Exhausted => Exhausted.fmt(f),
        }
    }
}

impl core::error::Error for SealError {}

/// Why the receiving half of a session has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The peer announced contents longer than the receive limit.
    TooLong {
        /// The length that the peer announced, in bytes.
        length: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// A packet's tag is wrong: the bytes were damaged or forged on their way.
    BadTag,
    /// The batch has no room left for a packet: take fewer bytes in a turn.
    BatchFull,
    /// The packet counters are spent, after 224 * 2^64 packets.
    Exhausted,
    /// The caller took packets of a batch that was not opened, or cleared a
    /// batch before taking its packets.
    NotOpened,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { length, limit } => write!(
                f,
                "the peer announced a packet of {length} bytes; the receive limit is {limit}"
            ),
            Self::BadTag => f.write_str(
                "a packet's tag is wrong: it was damaged or forged on its way; drop the connection",
            ),
            Self::BatchFull => write!(
                f,
                "the batch is full at {} bytes: receive less in one turn",
                Batch::MAX_BYTES
            ),
            Self::Exhausted => Exhausted.fmt(f),
            Self::NotOpened => f.write_str(
                "packets were lost: take them after Engine::open and before Batch::clear",
            ),
        }
    }
}

impl core::error::Error for OpenError {}
