//! The memory of a batch: bytes, the slots in it, and the turn that they belong to.
//!
//! An arena fills from its start. Bytes are taken for a packet to seal ([`Arena::take`]), or
//! committed after a socket wrote them ([`Arena::room`], then [`Arena::commit`]). [`Arena::clear`]
//! starts a new turn: the memory is kept, and every [`Slot`] and [`BatchKey`] of the previous turn
//! becomes stale.

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

/// Maximum size of an arena, in bytes: jobs hold 32-bit offsets.
pub(crate) const MAX_BYTES: usize = u32::MAX as usize;

/// See [`Batch::ENOUGH_BYTES`](crate::Batch::ENOUGH_BYTES).
pub(crate) const ENOUGH_BYTES: usize = 256 * 1024;

/// Converts an offset, index or length for a job.
///
/// # Panics
///
/// If it exceeds [`MAX_BYTES`].
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "bounded by MAX_BYTES")]
pub(crate) fn index(value: usize) -> u32 {
    assert!(value <= MAX_BYTES, "an offset beyond the largest arena");
    value as u32
}

/// The bytes of one turn, of any number of sessions.
pub(crate) struct Arena {
    /// `..used` is taken. After that come bytes of earlier turns.
    memory: Memory,
    used: usize,
    /// How many bytes of the last room may still be committed.
    room: usize,
    /// Unique among all turns of all batches in this process. Never 0. 64 bits on every machine,
    /// because 32 would wrap around.
    turn: u64,
}

impl Arena {
    /// Creates an empty arena with `bytes` bytes of memory.
    #[allow(
        clippy::useless_conversion,
        reason = "it converts with the feature `cuda`"
    )]
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self::on(alloc::vec![0; bytes.min(MAX_BYTES)].into())
    }

    /// Creates an empty arena in `memory`.
    pub(crate) fn on(memory: Memory) -> Self {
        Self {
            memory,
            used: 0,
            room: 0,
            turn: new_turns(),
        }
    }

    /// Starts a new turn with the same memory.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.used = 0;
        self.room = 0;
        self.turn += 1;
        if self.turn.is_multiple_of(TURNS_AT_ONCE) {
            self.turn = new_turns();
        }
    }

    /// Frees memory until `bytes` bytes are left, or all taken ones if more.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        self.room = 0;
        self.memory.truncate(bytes.max(self.used));
        self.memory.shrink_to_fit();
    }

    /// Returns how many bytes of memory the arena has.
    pub(crate) fn capacity(&self) -> usize {
        self.memory.capacity()
    }

    /// Returns how many bytes are taken.
    #[inline]
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Returns the number of this turn, unique among all turns of all batches.
    #[inline]
    pub(crate) fn turn(&self) -> u64 {
        self.turn
    }

    /// Whether `len` more bytes fit.
    #[inline]
    pub(crate) fn fits(&self, len: usize) -> bool {
        MAX_BYTES - self.used >= len
    }

    /// Returns room for `len` bytes after the taken ones.
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

    /// Returns the end of `len` more bytes, after growing the memory to it.
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

    /// Takes `len` bytes for the caller to write. Returns their offset.
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
    /// If `len` exceeds the length of that room, or the room has been taken or overwritten since.
    #[inline]
    pub(crate) fn commit(&mut self, len: usize) -> usize {
        assert!(
            len <= self.room,
            "{len} bytes were not received: the batch's last room has {}",
            self.room
        );
        self.take(len)
    }

    /// Returns the bytes after `end` to the free space.
    #[inline]
    pub(crate) fn give_back(&mut self, end: usize) {
        debug_assert!(end <= self.used);
        self.used = end;
    }

    /// Returns the whole memory, to be indexed with offsets of taken bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory
    }

    /// Like [`Arena::bytes`], mutable.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    /// Returns the taken bytes, for a GPU.
    #[cfg(feature = "cuda")]
    pub(crate) fn for_device(&mut self) -> packetlane_gpu::Bytes<'_> {
        self.memory.for_device(self.used + self.room)
    }

    /// Returns the slot of packets number `packets`, which lie in `bytes`.
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
    /// [`SlotError::Stale`] unless `turn`, from a slot, is the current turn.
    #[inline]
    pub(crate) fn check(&self, turn: u64) -> Result<(), SlotError> {
        if turn == self.turn {
            Ok(())
        } else {
            Err(SlotError::Stale)
        }
    }
}

/// The place of a packet, or of consecutive packets, of one session in a batch. Valid for one turn:
/// until the batch is cleared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    pub(crate) bytes: Range<usize>,
    /// The packets' indices, in the order in which they were added to the batch.
    pub(crate) packets: Range<usize>,
    pub(crate) turn: u64,
    pub(crate) owner: Owner,
}

/// The owner of a slot's packets: one direction of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u64);

impl Owner {
    /// Returns an owner that is unique in this process.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the owner that stands for key number `key` of a batch. Unique within one turn of
    /// that batch; slots of different turns differ by their turns.
    #[inline]
    pub(crate) fn of_key(key: u32) -> Self {
        Self(1 << 63 | u64::from(key))
    }
}

impl Slot {
    /// Returns the length of the packets on the wire, in bytes.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        self.bytes.len()
    }

    /// Merges this slot with `next` if `next` belongs to the same session and begins where this one
    /// ends. Packets added one after the other can then be sent with a single write.
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

/// The index of a session's key in a batch, valid for one turn like a [`Slot`].
///
/// A session keeps one with each key, so that the key is copied to a batch once per turn, however
/// many packets it protects. The default refers to no key; a session resets to it when its key
/// changes.
// Packed to save four bytes: thousands of sessions have one for each direction.
#[derive(Clone, Copy, Debug, Default)]
#[repr(Rust, packed(4))]
pub struct BatchKey {
    /// 0 if it refers to no key.
    turn: u64,
    index: u32,
}

impl BatchKey {
    /// Returns the key's index, if the key was added in this turn of `arena`.
    #[inline]
    pub(crate) fn get(self, arena: &Arena) -> Option<u32> {
        (self.turn == arena.turn).then_some(self.index)
    }

    /// Refers to key number `index`, which was added in this turn of `arena`.
    #[inline]
    pub(crate) fn new(arena: &Arena, index: u32) -> Self {
        let turn = arena.turn;
        Self { turn, index }
    }
}

/// Why a slot's packets cannot be read from a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlotError {
    /// The batch has been cleared since, or is a different batch: its bytes are not the slot's.
    Stale,
    /// A packet has not been sealed. Plaintext must not reach a socket.
    NotSealed,
    /// The packet has not been opened.
    NotOpened,
    /// The packet's tag is wrong: the packet was damaged or forged. Its text stays encrypted.
    BadTag,
    /// The slot holds several packets, each with its own outcome.
    SeveralPackets,
}

impl fmt::Display for SlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stale => {
                "the batch has been cleared since the slot was returned, or is a different batch: use \
                 a slot only in its own turn"
            }
            Self::NotSealed => {
                "the slot's packets have not been sealed: seal their batch before sending them"
            }
            Self::NotOpened => "the slot's packet has not been opened: open its batch before taking it",
            Self::BadTag => "the packet's tag is wrong: the packet was damaged or forged",
            Self::SeveralPackets => "the slot holds several packets: use a slot for each",
        })
    }
}

impl core::error::Error for SlotError {}

/// The error message for a packet that does not fit in a batch.
pub(crate) struct BatchFull;

impl fmt::Display for BatchFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the batch is full: it holds at most {MAX_BYTES} bytes; seal or open it and clear it first"
        )
    }
}

/// How many turn numbers an arena reserves at once from the shared counter. A program that clears a
/// batch for each packet should not pay for an atomic addition each time.
const TURNS_AT_ONCE: u64 = 256;

/// Returns the first of [`TURNS_AT_ONCE`] numbers that no other arena has. Not 0.
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
