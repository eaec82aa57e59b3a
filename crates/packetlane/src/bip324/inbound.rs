//! The receiving half of a session: it finds the packets in what a socket brought and adds
//! them to a batch, which an engine opens for all sessions at once.

use super::buffer::{KEPT_BUFFER, append_expected};
use super::cipher::Cipher;
use super::error::OpenError;
use super::packet::{HEADER_LEN, LENGTH_LEN, OVERHEAD, PacketKind};
use super::rekey::number_and_epoch;
use crate::batch::Batch;
use crate::bitcoin::message::MAX_TYPE_LEN;
use crate::copy::copy;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use packetlane_lanes::{Nonce, Outcome};

/// Longest contents that [`Inbound`] accepts unless told otherwise, in bytes: the largest
/// message of the network, 4,000,000 bytes, and its type, 13 bytes.
pub const DEFAULT_RECEIVE_LIMIT: usize = 4_000_000 + 1 + MAX_TYPE_LEN;

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

/// What [`Inbound`] has beside its keys. It is allocated by itself, so that thousands of
/// `Inbound`s lie close together and can tell which memory to prefetch without waiting.
#[derive(Debug)]
struct Reception {
    limit: usize,
    /// The beginning of a packet whose end has not come.
    tail: Vec<u8>,
    /// Length on the wire, in bytes, of the packet that `tail` begins, once its length has
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
    pub(super) fn new(cipher: Cipher, limit: usize, buffered: Vec<u8>) -> Self {
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

    /// Asks for the memory that the next packet needs, as
    /// [`Outbound::prefetch`](super::Outbound::prefetch).
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

    /// Whether keystream of the next packets is precomputed; see
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
    /// After a failure the bytes are dropped; [`Inbound::packets`] returns the error.
    ///
    /// # Panics
    ///
    /// If that room was shorter than `len`, or has been taken or written over
    /// since.
    pub fn received(&mut self, batch: &mut Batch, len: usize) {
        if self.rest.turn != batch.arena().turn() {
            if !self.rest.waiting.is_empty() && self.rest.failed.is_none() {
                self.rest.failed = Some(OpenError::NotInBatch);
            }
            self.rest.waiting.clear();
            self.rest.turn = batch.arena().turn();
        }
        if self.rest.failed.is_some() {
            return;
        }
        let start = batch.arena_mut().take_received(len);
        if let Err(error) = self.scan(batch, start..start + len) {
            self.rest.failed = Some(error);
        }
    }

    /// Finds the packets in the bytes that came, which lie in `new`: the last bytes of the
    /// arena that are taken.
    fn scan(&mut self, batch: &mut Batch, new: Range<usize>) -> Result<(), OpenError> {
        // How far the new bytes and the tail are used, and the end of the bytes that the
        // batch keeps.
        let mut at = new.start;
        let mut from_tail = 0;
        let mut kept = new.start;
        // The tail comes first. A packet's bytes must be neighbours, so a packet that begins
        // in the tail is put together at the arena's end.
        while from_tail < self.rest.tail.len() {
            if self.rest.expected.is_none() {
                let held = self.rest.tail.len() - from_tail;
                let missing = LENGTH_LEN.saturating_sub(held).min(new.end - at);
                self.rest
                    .tail
                    .extend_from_slice(&batch.arena().bytes()[at..at + missing]);
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
            let arena = batch.arena_mut();
            if !arena.fits(expected) {
                return Err(OpenError::BatchFull);
            }
            let place = arena.take(expected);
            let bytes = arena.bytes_mut();
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
            while let Some(&length) = batch.arena().bytes()[at..new.end].first_chunk() {
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
        append_expected(
            &mut self.rest.tail,
            &batch.arena().bytes()[at..new.end],
            self.rest.expected.unwrap_or(LENGTH_LEN),
        );
        batch.arena_mut().give_back(kept);
        Ok(())
    }

    /// Decrypts a length and checks it. Returns that of the packet on the wire.
    #[inline]
    fn decrypt_length(&mut self, length: [u8; LENGTH_LEN]) -> Result<usize, OpenError> {
        let length = self.cipher.decrypt_length(length)?;
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
        self.cipher.add_job(batch, start, wire_len - OVERHEAD)?;
        self.rest.expected = None;
        self.rest.waiting.add(job);
        Ok(())
    }

    /// The contents of the packets that [`Inbound::received`] added to the batch and that
    /// nobody took yet, once the batch has been opened. Decoys are dropped and counted.
    ///
    /// The first error ends the session: every later call returns the same error.
    pub fn packets<'s, 'b>(&'s mut self, batch: &'b Batch) -> Packets<'s, 'b> {
        Packets {
            inbound: self,
            batch,
            ended: false,
        }
    }

    /// One step of [`Packets`]: where the next genuine packet's contents lie in
    /// the batch's arena.
    pub(super) fn next_packet(&mut self, batch: &Batch) -> Option<Result<Range<usize>, OpenError>> {
        while let Some(packet) = self.rest.waiting.first() {
            if self.rest.turn != batch.arena().turn() {
                return Some(Err(self.fail(OpenError::NotInBatch)));
            }
            let outcome = batch.outcome(packet);
            if outcome != Outcome::Authentic {
                let error = refusal(outcome, batch.nonce(packet));
                return Some(Err(self.fail(error)));
            }
            self.rest.waiting.remove_first();
            let text = batch.text(packet);
            match PacketKind::from_header(batch.arena().bytes()[text.start]) {
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

/// Why a packet with this outcome and nonce has no contents.
#[cold]
fn refusal(outcome: Outcome, nonce: Nonce) -> OpenError {
    match outcome {
        Outcome::Sealed => OpenError::Sealed,
        Outcome::Pending => OpenError::NotOpened,
        Outcome::BadTag | Outcome::Authentic => {
            let (packet, epoch) = number_and_epoch(nonce);
            OpenError::BadTag { packet, epoch }
        }
    }
}

/// Packets of a batch, in their order, as runs of neighbours. A session mostly has one run.
/// It lies in the session and not behind a pointer: with many sessions, memory is what takes
/// time.
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
        Some(next.map(|contents| &self.batch.arena().bytes()[contents]))
    }
}
