//! What the receiving half of a session holds: the beginning of a packet that has not come whole, and
//! which packets of a batch wait to be taken.

use super::buffer::{KEPT_BUFFER, append_expected};
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

/// What [`Inbound`](super::Inbound) has in addition to its keys.
#[derive(Debug)]
pub(super) struct Reception {
    /// The turn of the batch in which packets wait to be taken.
    pub(super) turn: u64,
    /// The packets that wait: the first run of neighbours. The other runs are `rare`.
    pub(super) waiting: Run,
    /// At most [`MAX_CONTENTS_LEN`].
    pub(super) limit: u32,
    /// Length on the wire, in bytes, of the packet that the tail begins, once its length has
    /// been decrypted.
    pub(super) expected: Option<NonZeroU32>,
    /// Whether there may be bytes in the tail. If not, it need not be looked at.
    pub(super) has_tail: bool,
    /// The same of what is rare.
    pub(super) has_rare: bool,
    pub(super) held: Box<Held>,
}

/// What turns do not need that bring whole packets, which are taken.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// The beginning of a packet whose end has not come, behind `taken` bytes of packets that
    /// [`Inbound::open`] has returned. After the handshake, whatever came with it.
    pub(super) tail: Vec<u8>,
    pub(super) taken: usize,
    pub(super) rare: Rare,
    pub(super) decoys: u64,
    pub(super) ignored: Ignored,
}

/// What few sessions have, in few turns.
#[derive(Debug, Default)]
pub(super) struct Rare {
    /// More runs of packets that wait, behind the first.
    pub(super) runs: VecDeque<Run>,
    /// Contents of packets that were opened and deferred. They go back into a batch before
    /// any other, and then lie in its arena.
    pub(super) deferred: Vec<Vec<u8>>,
    pub(super) back: VecDeque<Range<usize>>,
    /// The end of this half: packets before it may still wait.
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

/// Packets of a batch that are neighbours, by their numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    pub(super) start: u32,
    pub(super) end: u32,
}

/// A receive limit as it is kept: no packet is longer than [`MAX_CONTENTS_LEN`].
#[allow(
    clippy::cast_possible_truncation,
    reason = "bounded by MAX_CONTENTS_LEN"
)]
pub(super) fn receive_limit(limit: usize) -> u32 {
    limit.min(MAX_CONTENTS_LEN) as u32
}

impl Reception {
    /// What is rare, if there may be something.
    #[inline]
    pub(super) fn rare(&self) -> Option<&Rare> {
        self.has_rare.then_some(&self.held.rare)
    }

    /// What is rare, to put something there.
    pub(super) fn rare_mut(&mut self) -> &mut Rare {
        self.has_rare = true;
        &mut self.held.rare
    }

    /// The end of this half, if it has come.
    #[inline]
    pub(super) fn failed(&self) -> Option<OpenError> {
        self.rare().and_then(|rare| rare.failed)
    }

    /// Whether packets were deferred.
    #[inline]
    pub(super) fn has_deferred(&self) -> bool {
        self.rare().is_some_and(|rare| !rare.deferred.is_empty())
    }

    /// Ends this half with `error` unless it has ended before. Returns the error that has.
    #[cold]
    pub(super) fn end(&mut self, error: OpenError) -> OpenError {
        *self.rare_mut().failed.get_or_insert(error)
    }

    /// The error that contents of `length` bytes are.
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

    /// Sets the length on the wire of the packet that `tail` begins.
    #[inline]
    pub(super) fn expect(&mut self, wire_len: usize) {
        self.expected = NonZeroU32::new(index(wire_len));
    }

    /// What [`Inbound::next_packet`] returns where something rare decides it: nothing waits, it waits in
    /// another batch, or contents were deferred. `None` if the packets that wait decide it.
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

    /// Whether all packets that it added to the batch have been taken.
    #[inline]
    pub(super) fn is_taken(&self) -> bool {
        self.waiting.is_empty() && self.rare().is_none_or(|rare| rare.back.is_empty())
    }

    /// Forgets all packets that wait in a batch.
    pub(super) fn drop_waiting(&mut self) {
        self.waiting = Run::default();
        self.held.rare.runs.clear();
        self.held.rare.back.clear();
    }

    /// The packet that was expected, or the next one, is number `packet` of the batch.
    #[inline(always)]
    pub(super) fn added(&mut self, packet: usize) {
        self.expected = None;
        self.add_waiting(packet..packet + 1);
    }

    /// Adds the packets with numbers `packets` of the batch to those that wait.
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

    /// The number of the first packet that waits.
    #[inline]
    pub(super) fn first_waiting(&self) -> Option<usize> {
        (!self.waiting.is_empty()).then_some(self.waiting.start as usize)
    }

    /// The number of the last packet that waits.
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

    /// Forgets the packets that [`Inbound::open`] has returned.
    #[inline]
    pub(super) fn drop_taken(&mut self) {
        if self.held.taken > 0 {
            self.held.tail.drain(..self.held.taken);
            self.held.taken = 0;
            self.give_back_tail();
        }
    }

    /// Gives the memory of a long packet back, once it is not needed.
    pub(super) fn give_back_tail(&mut self) {
        self.has_tail = !self.held.tail.is_empty();
        if !self.has_tail && self.held.tail.capacity() > KEPT_BUFFER {
            self.held.tail = Vec::new();
        }
    }

    /// Moves bytes from the front of `bytes` to the end of the tail, until it has `len` that
    /// are not taken. Returns where they lie, if there are so many.
    pub(super) fn reach(&mut self, bytes: &mut &[u8], len: usize) -> Option<Range<usize>> {
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
    pub(super) fn is_empty(self) -> bool {
        self.start == self.end
    }
}
