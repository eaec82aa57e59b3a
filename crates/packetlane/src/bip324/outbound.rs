//! The sending half of a session: it writes packets into a batch, which an engine seals for all
//! sessions at once.

use super::cipher::Cipher;
use super::error::SealError;
use super::packet::{HEADER_LEN, LENGTH_LEN, MAX_CONTENTS_LEN, OVERHEAD, PacketKind};
use crate::arena::{Owner, Slot, index};
use crate::batch::{Plan, SealBatch};
use crate::bitcoin::message::MessageType;
use crate::copy::copy;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::mem;
use core::ops::Range;
use packetlane_lanes::{Block, Kernels};

/// The sending half of a session.
///
/// Every packet that it adds to a batch must be sealed and sent, in order: each one advances the
/// counters that both sides must agree on.
#[derive(Debug)]
pub struct Outbound {
    cipher: Cipher,
    /// The owner recorded in its slots.
    owner: Owner,
}

impl Outbound {
    pub(super) fn new(cipher: Cipher) -> Self {
        let owner = Owner::new();
        Self { cipher, owner }
    }

    /// Turns the precomputed keystream of the next packets on or off; see
    /// [`Cipher::set_precomputed_keystream`].
    pub fn set_precomputed_keystream(&mut self, on: bool) {
        self.cipher.set_precomputed_keystream(on);
    }

    /// Prefetches the memory that the next packet needs, without waiting for it. A program that
    /// visits thousands of sessions per turn, whose memory has left the cache by then, should call
    /// this about eight sessions before it uses one. Large pages help too, most on virtual
    /// machines: with glibc, start the program with `GLIBC_TUNABLES=glibc.malloc.hugetlb=1`.
    #[inline]
    pub fn prefetch(&self) {
        self.cipher.prefetch();
    }

    /// Adds a packet with `contents` to the batch. [`SealBatch::wire`] returns its bytes once the
    /// batch has been sealed. Long packets, and packets of small turns, are sealed immediately,
    /// which is faster; call the engine anyway.
    ///
    /// # Errors
    ///
    /// See [`SealError`]. Nothing is added or counted then.
    #[inline]
    pub fn push(
        &mut self,
        batch: &mut SealBatch,
        kind: PacketKind,
        contents: &[u8],
    ) -> Result<Slot, SealError> {
        let start = self.add(batch, kind, &[], contents)?;
        Ok(self.slot(batch, start..start + contents.len() + OVERHEAD))
    }

    /// Adds a packet for each item of `packets` (kind and contents) to the batch. Faster than
    /// calling [`Outbound::push`] for each; the packets are contiguous and share one slot.
    /// `packets` is iterated twice.
    ///
    /// Seal a long queue in parts of [`Batch::ENOUGH_BYTES`](crate::Batch::ENOUGH_BYTES) each.
    ///
    /// As with [`Outbound::push`], the session's engine may seal packets immediately: long ones if
    /// it has one thread and no GPU and the batch has no pending packets, and short ones of a small
    /// turn. All become visible when an engine has sealed the batch.
    ///
    /// # Errors
    ///
    /// See [`SealError`]. Nothing is added or counted then.
    ///
    /// # Panics
    ///
    /// If the clone of `packets` yields a different number of packets or different lengths. After
    /// that, or if `packets` itself panics, the session is unusable: packets have been counted that
    /// the peer would never get.
    ///
    /// ```
    /// # use packetlane::bip324::{Role, Session, SessionKeys};
    /// use packetlane::bip324::PacketKind;
    /// use packetlane::{Engine, SealBatch};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let engine = Engine::detect()?;
    /// # let keys = SessionKeys::derive(&[1; 32], [0; 4]);
    /// # let mut session = Session::from_keys(engine, &keys, Role::Initiator);
    ///
    /// let waiting: [&[u8]; 2] = [b"one", b"three"];
    /// let packets = waiting.map(|contents| (PacketKind::Genuine, contents));
    /// let mut batch = SealBatch::new();
    /// let slot = session.outbound.push_many(&mut batch, packets)?;
    /// engine.seal(&mut batch);
    /// assert_eq!(batch.wire(&slot)?.len(), 3 + 5 + 2 * Session::OVERHEAD);
    /// # Ok(())
    /// # }
    /// ```
    pub fn push_many<'c, P>(&mut self, batch: &mut SealBatch, packets: P) -> Result<Slot, SealError>
    where
        P: IntoIterator<Item = (PacketKind, &'c [u8])>,
        P::IntoIter: Clone,
    {
        let mut packets = packets.into_iter();
        if packets.size_hint() == (1, Some(1))
            && let Some((kind, contents)) = packets.next()
        {
            let slot = self.push(batch, kind, contents)?;
            assert!(packets.next().is_none(), "{OTHER_PACKETS}");
            return Ok(slot);
        }
        let (mut count, mut wire_len) = (0, 0_usize);
        for (_, contents) in packets.clone() {
            let length = contents.len();
            if length > MAX_CONTENTS_LEN {
                return Err(SealError::TooLong { length });
            }
            count += 1;
            wire_len = wire_len.saturating_add(length + OVERHEAD);
        }
        if !batch.arena().fits(wire_len) {
            return Err(SealError::BatchFull);
        }
        self.cipher.check_left(count)?;
        let (first, start) = (batch.len(), batch.arena().used());
        let (packets_end, end) = (first + count, start + wire_len);
        let contents_len = wire_len - count * OVERHEAD;
        match self.cipher.plan(batch, count, contents_len) {
            Plan::Immediate => {
                for (kind, contents) in packets.by_ref().take(count) {
                    let added = self.add(batch, kind, &[], contents);
                    assert!(added.is_ok(), "{OTHER_PACKETS}");
                }
            }
            Plan::FromSource => {
                batch.arena_mut().take(wire_len);
                self.add_from_source(batch, count, start..end, &mut packets)?;
            }
            Plan::Deferred => {
                batch.arena_mut().take(wire_len);
                let mut at = start;
                while batch.len() < packets_end {
                    let count = packets_end - batch.len();
                    let copies = |packet: &mut [u8], front, contents: &[u8]| {
                        write(packet, front, &[], contents);
                    };
                    at = self.add_interval(batch, count, at..end, &mut packets, copies)?;
                }
                assert!(at == end, "{OTHER_PACKETS}");
            }
        }
        let are_all = batch.len() == packets_end && batch.arena().used() == end;
        assert!(are_all && packets.next().is_none(), "{OTHER_PACKETS}");
        Ok(batch
            .arena()
            .slot(self.owner, start..end, first..packets_end))
    }

    /// Adds `count` packets at `place` in the arena, which is taken, and seals them directly from
    /// their source, up to [`MAX_SOURCES`] at a time.
    #[inline(never)]
    fn add_from_source<'c>(
        &mut self,
        batch: &mut SealBatch,
        count: usize,
        place: Range<usize>,
        packets: &mut impl Iterator<Item = (PacketKind, &'c [u8])>,
    ) -> Result<(), SealError> {
        let backend = self.cipher.backend();
        let packets_end = batch.len() + count;
        let (mut at, end) = (place.start, place.end);
        while batch.len() < packets_end {
            let mut sources = ArrayVec::<&[u8], MAX_SOURCES>::new();
            let these_end = packets_end.min(batch.len() + MAX_SOURCES);
            while batch.len() < these_end {
                let count = these_end - batch.len();
                let from_source = |packet: &mut [u8], front, contents: &'c [u8]| {
                    sources.push(write_first(packet, front, &[], contents));
                };
                at = self.add_interval(batch, count, at..end, packets, from_source)?;
            }
            batch.seal_from(backend, &sources);
        }
        assert!(at == end, "{OTHER_PACKETS}");
        Ok(())
    }

    /// Adds `count` packets, or those left before the rekey if fewer, at `place` in the arena,
    /// which is taken. `write` writes each one. Does not use precomputed keystream. Returns the end
    /// of the packets.
    #[inline(always)]
    fn add_interval<'c>(
        &mut self,
        batch: &mut SealBatch,
        count: usize,
        place: Range<usize>,
        packets: &mut impl Iterator<Item = (PacketKind, &'c [u8])>,
        mut write: impl FnMut(&mut [u8], Front, &'c [u8]),
    ) -> Result<usize, SealError> {
        let end = place.end;
        let mut start = index(place.start);
        let interval = self.cipher.begin_interval(batch, count)?;
        let (bytes, jobs) = batch.bytes_and_jobs();
        let mut bytes = &mut bytes[place];
        let jobs_end = jobs.len() + interval.len();
        for (next, (kind, contents)) in interval.packets().zip(packets) {
            assert!(contents.len() <= MAX_CONTENTS_LEN, "{OTHER_PACKETS}");
            let (length, wire_len) = (index(contents.len()), contents.len() + OVERHEAD);
            let (packet, after) = mem::take(&mut bytes).split_at_mut(wire_len);
            let front = front(next.crypt_length(length), kind);
            jobs.push(next.job(start, length));
            write(packet, front, contents);
            start += index(wire_len);
            bytes = after;
        }
        assert!(jobs.len() == jobs_end, "{OTHER_PACKETS}");
        let at = end - bytes.len();
        self.cipher.end_interval(0, 0);
        Ok(at)
    }

    /// Adds a packet with contents of `contents_len` bytes to the batch. `write` writes the
    /// contents in place, so a message need not be serialised into another buffer first. The slice
    /// it gets contains bytes of earlier turns and must be overwritten completely. If `write`
    /// panics, nothing is added.
    ///
    /// # Errors
    ///
    /// See [`SealError`]. Nothing is added or counted then, and `write` is not called.
    ///
    /// ```
    /// # use packetlane::bip324::{PacketKind, Role, Session, SessionKeys};
    /// # use packetlane::{Engine, SealBatch};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let engine = Engine::detect()?;
    /// # let keys = SessionKeys::derive(&[1; 32], [0; 4]);
    /// # let mut session = Session::from_keys(engine, &keys, Role::Initiator);
    /// let mut batch = SealBatch::new();
    /// let slot = session
    ///     .outbound
    ///     .push_with(&mut batch, PacketKind::Genuine, 8, |contents| {
    ///         contents.copy_from_slice(&7_u64.to_le_bytes());
    ///     })?;
    /// assert_eq!(slot.wire_len(), 20 + 8);
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn push_with(
        &mut self,
        batch: &mut SealBatch,
        kind: PacketKind,
        contents_len: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<Slot, SealError> {
        let draft = self.begin(batch, contents_len)?;
        write(draft.contents(batch)?);
        self.commit(batch, kind, draft)
    }

    /// Reserves space for a packet with contents of `contents_len` bytes in the batch: the first
    /// half of [`Outbound::push_with`], for callers without closures.
    ///
    /// # Errors
    ///
    /// See [`SealError`].
    #[inline]
    pub(crate) fn begin(
        &self,
        batch: &mut SealBatch,
        contents_len: usize,
    ) -> Result<Draft, SealError> {
        if contents_len > MAX_CONTENTS_LEN {
            return Err(SealError::TooLong {
                length: contents_len,
            });
        }
        let wire_len = contents_len + OVERHEAD;
        if !batch.arena().fits(wire_len) {
            return Err(SealError::BatchFull);
        }
        self.cipher.check_next()?;
        Ok(Draft {
            start: batch.arena_mut().take(wire_len),
            contents_len,
            written: 0,
            turn: batch.arena().turn(),
        })
    }

    /// Like [`Outbound::begin`], for a message; writes its type.
    ///
    /// # Errors
    ///
    /// See [`SealError`].
    #[inline]
    pub(crate) fn begin_message(
        &self,
        batch: &mut SealBatch,
        message_type: MessageType,
        payload_len: usize,
    ) -> Result<Draft, SealError> {
        let encoded = message_type.encoded();
        let mut draft = self.begin(batch, payload_len.saturating_add(encoded.len()))?;
        draft.contents(batch)?[..encoded.len()].copy_from_slice(&encoded);
        draft.written = encoded.len();
        Ok(draft)
    }

    /// Adds the packet of a draft whose contents have been written: the second half of
    /// [`Outbound::push_with`].
    ///
    /// # Errors
    ///
    /// [`SealError::Stale`] or [`SealError::Exhausted`].
    #[inline]
    pub(crate) fn commit(
        &mut self,
        batch: &mut SealBatch,
        kind: PacketKind,
        draft: Draft,
    ) -> Result<Slot, SealError> {
        batch
            .arena()
            .check(draft.turn)
            .map_err(|_| SealError::Stale)?;
        let Draft {
            start,
            contents_len,
            ..
        } = draft;
        let plan = match self.cipher.plan(batch, 1, contents_len) {
            Plan::Immediate => Plan::Immediate,
            // The contents are in the batch already.
            Plan::FromSource | Plan::Deferred => Plan::Deferred,
        };
        self.finish(batch, kind, start, contents_len, plan)?;
        Ok(self.slot(batch, start..start + contents_len + OVERHEAD))
    }

    /// Adds the packet at `start` in the arena, whose contents have been written.
    #[inline(always)]
    fn finish(
        &mut self,
        batch: &mut SealBatch,
        kind: PacketKind,
        start: usize,
        contents_len: usize,
        plan: Plan,
    ) -> Result<(), SealError> {
        let front = front(self.cipher.encrypt_length(contents_len)?, kind);
        write_front(bytes_from(batch, start), front, 0);
        match plan {
            Plan::Immediate => {
                self.cipher
                    .run_job(Kernels::seal_single, batch, start, contents_len)?
            }
            _ => self.cipher.add_job(batch, start, contents_len)?,
        }
        Ok(())
    }

    /// Returns the slot of the packet that was added last, at `wire`.
    #[inline]
    fn slot(&self, batch: &SealBatch, wire: Range<usize>) -> Slot {
        let packets = batch.len();
        batch.arena().slot(self.owner, wire, packets - 1..packets)
    }

    /// Adds a packet whose contents are `beginning`, then `rest`. Returns its start.
    fn add(
        &mut self,
        batch: &mut SealBatch,
        kind: PacketKind,
        beginning: &[u8],
        rest: &[u8],
    ) -> Result<usize, SealError> {
        let contents_len = rest.len().saturating_add(beginning.len());
        let start = self.begin(batch, contents_len)?.start;
        match self.cipher.plan(batch, 1, contents_len) {
            Plan::FromSource => {
                let front = front(self.cipher.encrypt_length(contents_len)?, kind);
                self.cipher.add_job(batch, start, contents_len)?;
                let source = write_first(bytes_from(batch, start), front, beginning, rest);
                batch.seal_from(self.cipher.backend(), &[source]);
            }
            plan => {
                let contents = &mut bytes_from(batch, start)[LENGTH_LEN + HEADER_LEN..];
                write_contents(contents, beginning, rest);
                self.finish(batch, kind, start, contents_len, plan)?;
            }
        }
        Ok(start)
    }

    /// Adds a packet with a message to the batch: its type, in the shortest encoding that every
    /// peer understands, then its payload.
    ///
    /// # Errors
    ///
    /// See [`SealError`]. Nothing is added or counted then.
    ///
    /// ```
    /// # use packetlane::bip324::{Role, Session, SessionKeys};
    /// use packetlane::bitcoin::message::MessageType;
    /// use packetlane::{Engine, SealBatch};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let engine = Engine::detect()?;
    /// # let keys = SessionKeys::derive(&[1; 32], [0; 4]);
    /// # let mut session = Session::from_keys(engine, &keys, Role::Initiator);
    ///
    /// const PING: MessageType = MessageType::literal("ping");
    /// let mut batch = SealBatch::new();
    /// let nonce = 7_u64.to_le_bytes();
    /// let slot = session.outbound.push_message(&mut batch, PING, &nonce)?;
    /// assert_eq!(slot.wire_len(), 20 + 1 + 8);
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn push_message(
        &mut self,
        batch: &mut SealBatch,
        message_type: MessageType,
        payload: &[u8],
    ) -> Result<Slot, SealError> {
        let encoded = message_type.encoded();
        let start = self.add(batch, PacketKind::Genuine, &encoded, payload)?;
        let wire_len = encoded.len() + payload.len() + OVERHEAD;
        Ok(self.slot(batch, start..start + wire_len))
    }

    /// Like [`Outbound::push_message`], with a payload of `payload_len` bytes that `write` writes
    /// in place, as in [`Outbound::push_with`].
    ///
    /// # Errors
    ///
    /// See [`SealError`]. Nothing is added or counted then, and `write` is not called.
    #[inline]
    pub fn push_message_with(
        &mut self,
        batch: &mut SealBatch,
        message_type: MessageType,
        payload_len: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<Slot, SealError> {
        let draft = self.begin_message(batch, message_type, payload_len)?;
        write(draft.contents(batch)?);
        self.commit(batch, PacketKind::Genuine, draft)
    }

    /// Seals one packet without a batch and appends it to `out`.
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

/// Panic message of [`Outbound::push_many`].
const OTHER_PACKETS: &str = "the clone of the iterator gave other packets";

/// How many packets are sealed from their source at once: the maximum that a backend takes per
/// call.
const MAX_SOURCES: usize = 256;

/// A packet in a batch whose contents are still being written.
#[derive(Debug)]
pub(crate) struct Draft {
    /// Its start in the arena.
    start: usize,
    contents_len: usize,
    /// How many bytes of the contents have been written.
    written: usize,
    turn: u64,
}

impl Draft {
    /// Returns the part of the contents that remains to be written.
    ///
    /// # Errors
    ///
    /// [`SealError::Stale`].
    #[inline]
    pub(crate) fn contents<'b>(&self, batch: &'b mut SealBatch) -> Result<&'b mut [u8], SealError> {
        batch
            .arena()
            .check(self.turn)
            .map_err(|_| SealError::Stale)?;
        let contents = &mut bytes_from(batch, self.start)[LENGTH_LEN + HEADER_LEN..];
        Ok(&mut contents[self.written..self.contents_len])
    }
}

/// The bytes of a packet before its contents.
type Front = [u8; LENGTH_LEN + HEADER_LEN];

/// Returns the front of a packet with an encrypted length.
#[inline(always)]
fn front(encrypted_length: u32, kind: PacketKind) -> Front {
    // As one number, not byte by byte.
    (encrypted_length | u32::from(kind.header()) << (8 * LENGTH_LEN)).to_le_bytes()
}

/// Returns the bytes of the packet that begins at `start`, and all after it.
#[inline(always)]
fn bytes_from(batch: &mut SealBatch, start: usize) -> &mut [u8] {
    &mut batch.arena_mut().bytes_mut()[start..]
}

/// Writes the front of a packet. Returns the space for its contents, of `contents_len` bytes.
#[inline(always)]
fn write_front(packet: &mut [u8], front: Front, contents_len: usize) -> &mut [u8] {
    let (place, contents) = packet[..front.len() + contents_len].split_at_mut(front.len());
    place.copy_from_slice(&front);
    contents
}

/// Writes a packet up to its tag. The contents are `beginning`, then `rest`.
#[inline(always)]
fn write(packet: &mut [u8], front: Front, beginning: &[u8], rest: &[u8]) {
    let contents = write_front(packet, front, beginning.len() + rest.len());
    write_contents(contents, beginning, rest);
}

/// Writes `beginning`, then `rest`.
#[inline(always)]
fn write_contents(place: &mut [u8], beginning: &[u8], rest: &[u8]) {
    let (place, rest_place) = place[..beginning.len() + rest.len()].split_at_mut(beginning.len());
    // Saves a call of `memcpy`.
    if !beginning.is_empty() {
        place.copy_from_slice(beginning);
    }
    copy(rest_place, rest);
}

/// Like [`write`], but writes only the first block of the packet's text, which starts with the
/// header. Returns the remaining contents.
#[inline(always)]
fn write_first<'c>(packet: &mut [u8], front: Front, beginning: &[u8], rest: &'c [u8]) -> &'c [u8] {
    const FIRST: usize = size_of::<Block>() - HEADER_LEN;
    let first = (FIRST - beginning.len()).min(rest.len());
    let (rest, after) = rest.split_at(first);
    write(packet, front, beginning, rest);
    after
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use alloc::vec;
    use packetlane_lanes::Backend;

    /// Packets of all lengths, pushed one by one and together, equal those sealed without a batch.
    /// Long ones are sealed from their source, also across a rekey. They become visible when the
    /// engine has been called.
    #[test]
    fn long_packets_are_sealed_from_where_they_lie() {
        for backend in Backend::ALL.iter().filter(|backend| backend.is_available()) {
            let engine = Engine::on(*backend).unwrap();
            let new = || Outbound::new(Cipher::new(engine, &[1; 32], &[2; 32]));
            let (mut all, mut one_by_one, mut expected) = (new(), new(), new());
            let contents: Vec<u8> = (0..200_000_u32).map(|i| (i % 251) as u8).collect();
            let (mut batch, mut out_of_place) = (SealBatch::new(), 0);
            let lengths = [
                vec![20_000],
                vec![1_024; 70],
                (0..150).map(|i| 900 + 37 * i).collect(),
                vec![5; 2],
                vec![1_100; 600],
                vec![200_000, 1, 0, 63, 64, 65, 12_287, 12_288, 100_000],
                vec![4_096; 33],
                vec![16_383, 16_384],
            ];
            for lengths in lengths {
                let packets = lengths.iter().map(|&len| {
                    let kinds = [PacketKind::Genuine, PacketKind::Decoy];
                    (kinds[usize::from(len % 5 == 4)], &contents[..len])
                });
                let mut wire = Vec::new();
                for (kind, contents) in packets.clone() {
                    expected.seal(kind, contents, &mut wire).unwrap();
                }
                batch.clear();
                let slot = all.push_many(&mut batch, packets.clone()).unwrap();
                assert!(batch.wire(&slot).is_err(), "the engine was not called");
                let len = lengths.iter().sum::<usize>() + lengths.len();
                if backend.kernels().is_faster_out_of_place(lengths.len(), len) {
                    assert!(!batch.has_pending(), "{backend:?}, {len}");
                    out_of_place += 1;
                }
                engine.seal(&mut batch);
                assert!(batch.wire(&slot).unwrap() == wire, "{backend:?}");
                batch.clear();
                let mut message = |batch: &mut SealBatch, kind, contents: &[u8]| {
                    let (beginning, rest) = contents.split_at(contents.len().min(13));
                    let start = one_by_one.add(batch, kind, beginning, rest).unwrap();
                    one_by_one.slot(batch, start..start + contents.len() + OVERHEAD)
                };
                let mut pushed: Option<Slot> = None;
                for (kind, contents) in packets {
                    let slot = message(&mut batch, kind, contents);
                    pushed = Some(match pushed {
                        Some(before) => before.join(&slot).unwrap(),
                        None => slot,
                    });
                }
                engine.seal(&mut batch);
                assert!(batch.wire(&pushed.unwrap()).unwrap() == wire, "{backend:?}");
            }
            let never = !backend.kernels().is_faster_out_of_place(1, 1 << 20);
            assert!(never || out_of_place > 5, "{backend:?}");
        }
    }

    /// A long packet between short ones with precomputed keystream, in a batch that also holds
    /// another session's packets.
    #[test]
    fn a_long_packet_between_short_ones() {
        for backend in Backend::ALL.iter().filter(|backend| backend.is_available()) {
            let engine = Engine::on(*backend).unwrap();
            let new = |key| Outbound::new(Cipher::new(engine, &[key; 32], &[2; 32]));
            let (mut other, mut outbound, mut expected) = (new(3), new(1), new(1));
            let (mut batch, long) = (SealBatch::new(), vec![7; 20_000]);
            for round in 0..60 {
                batch.clear();
                let before = other.push(&mut batch, PacketKind::Genuine, b"other");
                let packets = [&b"x"[..], &long, b"y", b"z"].map(|c| (PacketKind::Genuine, c));
                let mut slots = packets
                    .map(|(kind, contents)| outbound.push(&mut batch, kind, contents).unwrap());
                let together = outbound.push_many(&mut batch, packets).unwrap();
                engine.seal(&mut batch);
                let mut wire = Vec::new();
                for (kind, contents) in packets.iter().chain(&packets) {
                    expected.seal(*kind, contents, &mut wire).unwrap();
                }
                let [first, rest @ ..] = &mut slots;
                for slot in rest.iter().chain([&together]) {
                    *first = first.join(slot).unwrap();
                }
                assert!(batch.wire(first).unwrap() == wire, "{backend:?}, {round}");
                assert!(batch.wire(&before.unwrap()).is_ok());
            }
        }
    }

    /// Without precomputed keystream, and where threads share a batch, packets wait for the engine.
    #[test]
    fn long_packets_wait_for_threads() {
        let mut engines = vec![(Engine::best(), false)];
        #[cfg(feature = "parallel")]
        engines.push((Engine::best().with_threads(2), true));
        for (engine, precomputes) in engines {
            let mut outbound = Outbound::new(Cipher::new(engine, &[1; 32], &[2; 32]));
            outbound.set_precomputed_keystream(precomputes);
            let mut batch = SealBatch::new();
            let contents = vec![7; 20_000];
            let packets = [(PacketKind::Genuine, &contents[..]); 3];
            outbound.push_many(&mut batch, packets).unwrap();
            outbound
                .push(&mut batch, PacketKind::Genuine, &contents)
                .unwrap();
            let work = batch.take_pending();
            assert_eq!(work.jobs.len(), 4);
            engine.backend().kernels().seal(work);
        }
    }

    /// More packets than the counters allow are refused together. Pushing none always succeeds.
    #[test]
    fn the_last_packets_are_pushed_together() {
        let new = || {
            Outbound::new(Cipher::at_epoch(
                Engine::portable(),
                &[1; 32],
                &[2; 32],
                u64::MAX,
            ))
        };
        let packets = |count| (0..count).map(|_| (PacketKind::Genuine, &b"last"[..]));
        let (mut all, mut each, mut batch) = (new(), new(), SealBatch::new());
        let refused = all.push_many(&mut batch, packets(225));
        assert_eq!(refused, Err(SealError::Exhausted));
        assert_eq!((batch.len(), batch.bytes_used()), (0, 0));
        let slot = all.push_many(&mut batch, packets(224)).unwrap();
        Engine::portable().seal(&mut batch);
        let mut expected = Vec::new();
        for (kind, contents) in packets(224) {
            each.seal(kind, contents, &mut expected).unwrap();
        }
        assert!(batch.wire(&slot).unwrap() == expected);
        for count in [1, 2] {
            let refused = all.push_many(&mut batch, packets(count));
            assert_eq!(refused, Err(SealError::Exhausted));
        }
        let slot = all.push_many(&mut batch, packets(0)).unwrap();
        assert_eq!(batch.wire(&slot).unwrap(), b"");
    }
}
