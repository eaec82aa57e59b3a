//! The memory under a batch: bytes, the slots in it, and the turn that they belong to.
//!
//! An arena fills from its beginning. Bytes are taken for a packet to seal
//! ([`Arena::take`]) or as they came from a socket ([`Arena::room`], then
//! [`Arena::commit`]). [`Arena::clear`] begins a new turn: the memory stays, and
//! every [`Slot`] and [`BatchKey`] of the turn before is void.

#[cfg(feature = "cuda")]
mod memory;

#[cfg(not(feature = "cuda"))]
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
#[cfg(target_has_atomic = "64")]
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering;
#[cfg(not(target_has_atomic = "64"))]
use portable_atomic::AtomicU64;

#[cfg(feature = "cuda")]
pub(crate) use memory::Memory;
/// The bytes of an arena.
#[cfg(not(feature = "cuda"))]
pub(crate) type Memory = Vec<u8>;

/// The most bytes of an arena: jobs address it by 32 bits.
pub(crate) const MAX_BYTES: usize = u32::MAX as usize;

/// See [`Batch::ENOUGH_BYTES`](crate::Batch::ENOUGH_BYTES).
pub(crate) const ENOUGH_BYTES: usize = 256 * 1024;

/// An offset, an index or a length in a job.
///
/// # Panics
///
/// If it is above [`MAX_BYTES`].
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "bounded by MAX_BYTES")]
pub(crate) fn index(value: usize) -> u32 {
    assert!(value <= MAX_BYTES, "an offset beyond the largest arena");
    value as u32
}

/// The bytes of one turn, of as many sessions as there are.
pub(crate) struct Arena {
    /// Bytes `..used` are taken. Beyond them lie bytes of earlier turns.
    memory: Memory,
    used: usize,
    /// How many bytes of the last room may still be taken as received.
    room: usize,
    /// A number that no other turn of a batch in this process has. Never 0. It has 64 bits
    /// on every machine: 32 would come round.
    turn: u64,
}

impl Arena {
    /// An empty arena with `bytes` bytes of memory.
    #[allow(
        clippy::useless_conversion,
        reason = "it converts with the feature `cuda`"
    )]
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self::on(alloc::vec![0; bytes.min(MAX_BYTES)].into())
    }

    /// An empty arena in `memory`.
    pub(crate) fn on(memory: Memory) -> Self {
        Self {
            memory,
            used: 0,
            room: 0,
            turn: new_turns(),
        }
    }

    /// Begins a new turn, with the same memory.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.used = 0;
        self.room = 0;
        self.turn += 1;
        if self.turn.is_multiple_of(TURNS_AT_ONCE) {
            self.turn = new_turns();
        }
    }

    /// Gives back memory, down to `bytes` bytes or those that are taken.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        self.room = 0;
        self.memory.truncate(bytes.max(self.used));
        self.memory.shrink_to_fit();
    }

    /// How many bytes of memory it has.
    pub(crate) fn capacity(&self) -> usize {
        self.memory.capacity()
    }

    /// How many bytes are taken.
    #[inline]
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Tells this turn from every other turn of every batch.
    #[inline]
    pub(crate) fn turn(&self) -> u64 {
        self.turn
    }

    /// Whether `len` more bytes fit.
    #[inline]
    pub(crate) fn fits(&self, len: usize) -> bool {
        MAX_BYTES - self.used >= len
    }

    /// Room for `len` bytes behind those that are taken.
    ///
    /// # Panics
    ///
    /// If they do not fit.
    #[inline]
    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        let end = self.reach(len);
        self.room = len;
        &mut self.memory[self.used..end]
    }

    /// Where `len` more bytes end. The memory is that long afterwards.
    #[inline]
    fn reach(&mut self, len: usize) -> usize {
        let end = self.used.saturating_add(len);
        if self.memory.len() < end {
            self.grow(end);
        }
        end
    }

    #[cold]
    fn grow(&mut self, end: usize) {
        assert!(end <= MAX_BYTES, "a batch holds at most {MAX_BYTES} bytes");
        self.memory.resize(end, 0);
    }

    /// Takes `len` bytes, for the caller to write. Returns their offset.
    ///
    /// # Panics
    ///
    /// If they do not fit.
    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> usize {
        let start = self.used;
        self.used = self.reach(len);
        self.room = 0;
        start
    }

    /// Takes the first `len` bytes of the last room. Returns their offset.
    ///
    /// # Panics
    ///
    /// If that room was shorter, or has been taken or written over since.
    #[inline]
    pub(crate) fn commit(&mut self, len: usize) -> usize {
        assert!(
            len <= self.room,
            "{len} bytes were not received: the batch's last room has {}",
            self.room
        );
        self.take(len)
    }

    /// Gives back the bytes behind `end`.
    #[inline]
    pub(crate) fn give_back(&mut self, end: usize) {
        debug_assert!(end <= self.used);
        self.used = end;
    }

    /// The whole memory, for offsets of taken bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory
    }

    /// As [`Arena::bytes`].
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    /// The bytes that mean something, for a GPU.
    #[cfg(feature = "cuda")]
    pub(crate) fn for_device(&mut self) -> packetlane_gpu::Bytes<'_> {
        self.memory.for_device(self.used + self.room)
    }

    /// The slot of the packets with numbers `packets` in `bytes`.
    #[inline]
    pub(crate) fn slot(&self, owner: Owner, bytes: Range<usize>, packets: Range<usize>) -> Slot {
        let turn = self.turn;
        Slot {
            bytes,
            packets,
            turn,
            owner,
        }
    }

    /// # Errors
    ///
    /// [`SlotError::Stale`] unless `turn`, that of a slot, is this one.
    #[inline]
    pub(crate) fn check(&self, turn: u64) -> Result<(), SlotError> {
        if turn == self.turn {
            Ok(())
        } else {
            Err(SlotError::Stale)
        }
    }
}

/// Where one packet of a session, or a run of neighbours, lies in a batch. Valid for one
/// turn: until the batch is cleared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    pub(crate) bytes: Range<usize>,
    /// The packets' numbers, in the order in which they were added to the batch.
    pub(crate) packets: Range<usize>,
    pub(crate) turn: u64,
    pub(crate) owner: Owner,
}

/// Whose packets lie in a slot: one direction of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u64);

impl Owner {
    /// One that nobody else in this process is.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Who has the key number `key` of a batch. In one turn of that batch it is nobody
    /// else, and slots of different turns differ by their turns.
    #[inline]
    pub(crate) fn of_key(key: u32) -> Self {
        Self(1 << 63 | u64::from(key))
    }
}

impl Slot {
    /// Length of the packets on the wire, in bytes.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        self.bytes.len()
    }

    /// One slot of two, if `next` is of the same session and begins where this one ends: for
    /// one write to a socket of packets that were added one right after the other.
    #[must_use]
    pub fn join(&self, next: &Slot) -> Option<Slot> {
        let neighbours = self.turn == next.turn
            && self.owner == next.owner
            && self.bytes.end == next.bytes.start
            && self.packets.end == next.packets.start;
        neighbours.then_some(Slot {
            bytes: self.bytes.start..next.bytes.end,
            packets: self.packets.start..next.packets.end,
            turn: self.turn,
            owner: self.owner,
        })
    }
}

/// Where a session's key lies in a batch: valid for one turn, like a [`Slot`].
///
/// A session keeps one with its key, which so travels to a batch once in a turn, however
/// many packets it protects. The default is the index of no key; it is what a session sets
/// when its key changes.
// Packed, or it would take four bytes more: thousands of sessions have one for each direction.
#[derive(Clone, Copy, Debug, Default)]
#[repr(Rust, packed(4))]
pub struct BatchKey {
    /// 0 if it is the index of no key.
    turn: u64,
    index: u32,
}

impl BatchKey {
    /// The key's index, if it was added in this turn of `arena`.
    #[inline]
    pub(crate) fn get(self, arena: &Arena) -> Option<u32> {
        (self.turn == arena.turn).then_some(self.index)
    }

    /// The index of a key that was added in this turn of `arena`.
    #[inline]
    pub(crate) fn new(arena: &Arena, index: u32) -> Self {
        let turn = arena.turn;
        Self { turn, index }
    }
}

/// Why a batch does not show the packets of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlotError {
    /// The batch has been cleared since, or is another one: the bytes are not the slot's.
    Stale,
    /// A packet has not been sealed: plaintext must not reach a socket.
    NotSealed,
    /// The packet has not been opened.
    NotOpened,
    /// The packet's tag is wrong: it was damaged or forged on its way. Its text stays
    /// encrypted.
    BadTag,
    /// The slot is of several packets, of which each has its own outcome.
    SeveralPackets,
}

impl fmt::Display for SlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stale => {
                "the batch has been cleared since the slot was taken, or is another one: use a \
                 slot in the turn that it is from"
            }
            Self::NotSealed => {
                "the slot's packets are not sealed: seal their batch before sending them"
            }
            Self::NotOpened => "the slot's packet is not opened: open its batch before taking it",
            Self::BadTag => "the packet's tag is wrong: it was damaged or forged on its way",
            Self::SeveralPackets => "the slot is of several packets: take each by its own slot",
        })
    }
}

impl core::error::Error for SlotError {}

/// What a packet that does not fit a batch is told.
pub(crate) struct BatchFull;

impl fmt::Display for BatchFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the batch is full: it holds at most {MAX_BYTES} bytes; run and clear it first"
        )
    }
}

/// How many turns an arena numbers from one visit to the counter that all share: a program
/// that clears a batch for each packet should not pay for an atomic addition each time.
const TURNS_AT_ONCE: u64 = 256;

/// The first of [`TURNS_AT_ONCE`] numbers that no other arena has. Not 0.
fn new_turns() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(TURNS_AT_ONCE);
    NEXT.fetch_add(TURNS_AT_ONCE, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_has_its_own_number() {
        let (mut one, mut other) = (Arena::with_capacity(0), Arena::with_capacity(0));
        let mut seen = alloc::vec::Vec::new();
        for _ in 0..3 * TURNS_AT_ONCE {
            seen.extend([one.turn(), other.turn()]);
            one.clear();
            other.clear();
        }
        seen.sort_unstable();
        assert!(seen[0] > 0);
        assert!(seen.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn a_key_index_is_of_one_turn() {
        let mut arena = Arena::with_capacity(0);
        assert_eq!(BatchKey::default().get(&arena), None);
        let index = BatchKey::new(&arena, 5);
        assert_eq!(index.get(&arena), Some(5));
        assert_eq!(index.get(&Arena::with_capacity(0)), None);
        arena.clear();
        assert_eq!(index.get(&arena), None);
    }
}
