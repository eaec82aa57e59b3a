//! The receive state of a session: the beginning of an incomplete packet, and which packets of a
//! batch have not been taken yet.

use super::buffer::{MAX_IDLE_BUFFER, append_expected};
use super::error::OpenError;
use super::packet::MAX_CONTENTS_LEN;
use crate::arena::index;
use crate::batch::OpenBatch;
use crate::bitcoin::message::Ignored;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::ops::Range;

/// The state of [`Inbound`](super::Inbound) besides its keys.
#[derive(Debug)]
pub(super) struct Reception {
    /// The turn of the batch that holds packets not taken yet.
    pub(super) turn: u64,
    /// The first run of consecutive packets not taken yet. Further runs are in `rare`.
    pub(super) waiting: Run,
    /// At most [`MAX_CONTENTS_LEN`].
    pub(super) limit: u32,
    /// Length on the wire, in bytes, of the packet that the tail begins; `None` until its length
    /// has been decrypted.
    pub(super) expected: Option<NonZeroU32>,
    /// Whether the tail may hold bytes. If false, `held` need not be read.
    pub(super) has_tail: bool,
    /// The same for `rare`.
    pub(super) has_rare: bool,
    pub(super) held: Box<Held>,
}

/// State that turns do not touch if they bring complete packets that are then taken.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// The beginning of an incomplete packet, after `taken` bytes of packets that [`Inbound::open`]
    /// has returned. After the handshake, whatever followed it.
    pub(super) tail: Vec<u8>,
    pub(super) taken: usize,
    pub(super) rare: Rare,
    pub(super) decoys: u64,
    pub(super) ignored: Ignored,
}

/// State that few sessions use, in few turns.
#[derive(Debug, Default)]
pub(super) struct Rare {
    /// Further runs of packets not taken yet, after the first.
    pub(super) runs: VecDeque<Run>,
    /// Contents of packets that were opened and deferred. They move back into a batch's arena
    /// before any new packet.
    pub(super) deferred: Vec<Vec<u8>>,
    pub(super) back: VecDeque<Range<usize>>,
    /// The error that ended this half. Packets before it may still be taken.
    pub(super) failed: Option<OpenError>,
}

impl Rare {
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
            && self.deferred.is_empty()
            && self.back.is_empty()
            && self.failed.is_none()
    }
}

/// Consecutive packets of a batch, by index.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    pub(super) start: u32,
    pub(super) end: u32,
}

/// Converts a receive limit for storage: no packet is longer than [`MAX_CONTENTS_LEN`].
#[allow(
    clippy::cast_possible_truncation,
    reason = "bounded by MAX_CONTENTS_LEN"
)]
pub(super) fn receive_limit(limit: usize) -> u32 {
    limit.min(MAX_CONTENTS_LEN) as u32
}

impl Reception {
    /// Returns the rare state, if it may hold anything.
    #[inline]
    pub(super) fn rare(&self) -> Option<&Rare> {
        self.has_rare.then_some(&self.held.rare)
    }

    /// Returns the rare state, to add something to it.
    pub(super) fn rare_mut(&mut self) -> &mut Rare {
        self.has_rare = true;
        &mut self.held.rare
    }

    /// Returns the error that ended this half, if any.
    #[inline]
    pub(super) fn failed(&self) -> Option<OpenError> {
        self.rare().and_then(|rare| rare.failed)
    }

    /// Whether packets were deferred.
    #[inline]
    pub(super) fn has_deferred(&self) -> bool {
        self.rare().is_some_and(|rare| !rare.deferred.is_empty())
    }

    /// Ends this half with `error` unless it has ended already. Returns the error that ended it.
    #[cold]
    pub(super) fn end(&mut self, error: OpenError) -> OpenError {
        *self.rare_mut().failed.get_or_insert(error)
    }

    /// Returns the error for contents of `length` bytes.
    #[cold]
    pub(super) fn too_long(&self, length: usize) -> OpenError {
        let limit = self.limit as usize;
        OpenError::TooLong { length, limit }
    }

    /// See [`Reception::expected`].
    #[inline]
    pub(super) fn expected(&self) -> Option<usize> {
        self.expected.map(|len| len.get() as usize)
    }

    /// Sets the wire length of the packet that the tail begins.
    #[inline]
    pub(super) fn expect(&mut self, wire_len: usize) {
        self.expected = NonZeroU32::new(index(wire_len));
    }

    /// Returns the result of [`Inbound::next_packet`] in the rare cases: no packet waits, packets
    /// wait in another batch, or contents were deferred. `None` if the waiting packets decide.
    #[cold]
    pub(super) fn next_rare(
        &mut self,
        batch: &OpenBatch,
    ) -> Option<Option<Result<Range<usize>, OpenError>>> {
        if self.is_taken() {
            return Some(self.failed().map(Err));
        }
        if self.turn != batch.arena().turn() {
            return Some(Some(Err(OpenError::NotInBatch)));
        }
        let contents = self.held.rare.back.pop_front()?;
        Some(Some(Ok(contents)))
    }

    /// Whether all packets that were added to the batch have been taken.
    #[inline]
    pub(super) fn is_taken(&self) -> bool {
        self.waiting.is_empty() && self.rare().is_none_or(|rare| rare.back.is_empty())
    }

    /// Forgets all packets waiting in a batch.
    pub(super) fn drop_waiting(&mut self) {
        self.waiting = Run::default();
        self.held.rare.runs.clear();
        self.held.rare.back.clear();
    }

    /// Records that the expected packet, or the next one, is number `packet` of the batch.
    #[inline(always)]
    pub(super) fn added(&mut self, packet: usize) {
        self.expected = None;
        self.add_waiting(packet..packet + 1);
    }

    /// Records that packets number `packets` of the batch wait to be taken.
    #[inline]
    pub(super) fn add_waiting(&mut self, packets: Range<usize>) {
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

    /// Returns the index of the first waiting packet.
    #[inline]
    pub(super) fn first_waiting(&self) -> Option<usize> {
        (!self.waiting.is_empty()).then_some(self.waiting.start as usize)
    }

    /// Returns the index of the last waiting packet.
    pub(super) fn last_waiting(&self) -> Option<usize> {
        let run = self.held.rare.runs.back().unwrap_or(&self.waiting);
        (!run.is_empty()).then(|| run.end as usize - 1)
    }

    #[inline]
    pub(super) fn remove_first_waiting(&mut self) {
        self.waiting.start += 1;
        if self.has_rare && self.waiting.is_empty() {
            self.next_run();
        }
    }

    #[cold]
    pub(super) fn next_run(&mut self) {
        self.waiting = self.held.rare.runs.pop_front().unwrap_or_default();
    }

    /// Drops the bytes of packets that [`Inbound::open`] has returned.
    #[inline]
    pub(super) fn drop_taken(&mut self) {
        if self.held.taken > 0 {
            self.held.tail.drain(..self.held.taken);
            self.held.taken = 0;
            self.give_back_tail();
        }
    }

    /// Frees the memory of a long packet that is no longer needed.
    pub(super) fn give_back_tail(&mut self) {
        self.has_tail = !self.held.tail.is_empty();
        if !self.has_tail && self.held.tail.capacity() > MAX_IDLE_BUFFER {
            self.held.tail = Vec::new();
        }
    }

    /// Moves bytes from the front of `bytes` to the end of the tail until it holds `len` bytes that
    /// are not taken. Returns their range, or `None` if there are not enough.
    pub(super) fn reach(&mut self, bytes: &mut &[u8], len: usize) -> Option<Range<usize>> {
        // Taken bytes are dropped only here, so that the tail is not moved for every packet in it.
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
    pub(super) fn is_empty(self) -> bool {
        self.start == self.end
    }
}
