//! The packets of one turn of an event loop: one arena of bytes, and a
//! descriptor for each packet in it.
//!
//! Sessions add packets ([`Outbound::push`], [`Inbound::received`]), an
//! [`Engine`] runs them all, sessions and sockets take the results from the
//! arena. [`Batch::clear`] makes it ready for the next turn and keeps its
//! memory, so that a steady state allocates nothing.
//!
//! A batch is for one direction at a time: packets to seal or packets to open.
//! One that holds both fails its sessions, whichever of the two runs it (and
//! shows nothing that it should not).
//!
//! [`Outbound::push`]: crate::bip324::Outbound::push
//! [`Inbound::received`]: crate::bip324::Inbound::received
//! [`Engine`]: crate::Engine

use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};
use packetlane_lanes::{Block, Job, Key, Outcome, Secrets};

/// The memory of an arena.
#[cfg(not(feature = "cuda"))]
type Arena = Vec<u8>;
#[cfg(feature = "cuda")]
use crate::arena::Arena;

/// Many packets in one buffer, of as many sessions as one likes.
pub struct Batch {
    /// Bytes `..used` are taken; beyond them lies what earlier turns left.
    arena: Arena,
    used: usize,
    /// How many bytes of the last room may still be taken as received.
    room: usize,
    /// The distinct keys of the jobs. Wiped by `clear` and on drop, as is the next.
    keys: Vec<Key>,
    /// Blocks of keystream of jobs that their sessions have computed ahead.
    keystream: Vec<Block>,
    jobs: Vec<Job>,
    /// Of the jobs that have run, or run.
    outcomes: Vec<Outcome>,
    /// How many jobs the last turn had that had any.
    last_len: usize,
    /// How many jobs have run.
    done: usize,
    /// A number that no other filling of a batch in this process has, so that a
    /// session can tell whether a key or a job that it added is still there.
    turn: usize,
}

/// Where one packet, or a run of neighbours, lies in a [`Batch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    pub(crate) bytes: Range<usize>,
    pub(crate) jobs: Range<usize>,
    /// The filling of the batch that it belongs to.
    pub(crate) turn: usize,
}

impl Slot {
    /// Length of the packets on the wire, in bytes.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        self.bytes.len()
    }

    /// One slot of two, if `next` begins where this one ends: packets that a
    /// session adds without another in between, for one write to its socket.
    #[must_use]
    pub fn join(&self, next: &Slot) -> Option<Slot> {
        let neighbours = self.turn == next.turn
            && self.bytes.end == next.bytes.start
            && self.jobs.end == next.jobs.start;
        neighbours.then_some(Slot {
            bytes: self.bytes.start..next.bytes.end,
            jobs: self.jobs.start..next.jobs.end,
            turn: self.turn,
        })
    }
}

/// The parts of a [`Batch`] that a backend works on: the jobs that have not run
/// yet, and what they refer to.
pub struct Pending<'b> {
    /// The arena that the jobs' offsets refer to.
    pub bytes: &'b mut [u8],
    /// What the jobs' indices refer to.
    pub secrets: Secrets<'b>,
    /// What to do.
    pub jobs: &'b [Job],
    /// Where to say what became of each job.
    pub outcomes: &'b mut [Outcome],
}

impl Batch {
    /// Jobs address the arena by 32 bits.
    pub const MAX_BYTES: usize = u32::MAX as usize;

    /// With so many bytes that wait for the engine, more packets make no batch faster,
    /// and from some times as many on slower: what was written first has left the
    /// second cache before the engine comes to it. So a caller who has more to send
    /// had better seal what there is, as often as it likes in one turn, and one that
    /// receives should not read more at a time.
    pub const ENOUGH_BYTES: usize = 256 * 1024;

    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(0, 0)
    }

    /// An empty batch with memory for `packets` packets of `bytes` bytes in all.
    #[must_use]
    #[allow(
        clippy::useless_conversion,
        reason = "with the feature `cuda` it is none"
    )]
    pub fn with_capacity(packets: usize, bytes: usize) -> Self {
        Self::on(alloc::vec![0; bytes.min(Self::MAX_BYTES)].into(), packets)
    }

    /// An empty batch whose arena is `bytes` bytes of page-locked memory of `gpu`, from
    /// which large batches travel to the device and back without a copy. Twice as much is
    /// taken (see [`Pinned`](packetlane_gpu::Pinned), which also says what sealing leaves in the other
    /// half). Where it has to grow and there is no more, it goes on in ordinary memory.
    ///
    /// # Errors
    ///
    /// If there is not so much, or the device has failed.
    #[cfg(feature = "cuda")]
    pub fn pinned(
        gpu: &'static packetlane_gpu::Gpu,
        bytes: usize,
    ) -> Result<Self, packetlane_gpu::GpuError> {
        Ok(Self::on(Arena::pinned(gpu, bytes.min(Self::MAX_BYTES))?, 0))
    }

    fn on(arena: Arena, packets: usize) -> Self {
        Self {
            arena,
            used: 0,
            room: 0,
            keys: Vec::new(),
            keystream: Vec::new(),
            jobs: Vec::with_capacity(packets),
            outcomes: Vec::with_capacity(packets),
            last_len: 0,
            done: 0,
            turn: new_turns(),
        }
    }

    /// Forgets all packets, wipes all keys and keeps the memory.
    ///
    /// Packets that a session has added and that nobody took are lost, and with
    /// them the session's stream.
    pub fn clear(&mut self) {
        self.used = 0;
        self.room = 0;
        self.wipe();
        if !self.jobs.is_empty() {
            self.last_len = self.jobs.len();
        }
        self.jobs.clear();
        self.outcomes.clear();
        self.done = 0;
        self.turn += 1;
        if self.turn.is_multiple_of(TURNS_AT_ONCE) {
            self.turn = new_turns();
        }
    }

    /// Gives back memory, down to `bytes` bytes of arena or those that are taken.
    /// A batch otherwise stays as large as its largest turn.
    pub fn shrink_to(&mut self, bytes: usize) {
        self.room = 0;
        self.arena.truncate(bytes.max(self.used));
        self.arena.shrink_to_fit();
    }

    /// How many bytes of memory its arena has.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.arena.capacity()
    }

    fn wipe(&mut self) {
        wipe(&mut self.keys, [0; 32]);
        wipe(&mut self.keystream, [0; 64]);
    }

    /// How many packets it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether it holds no packet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// How many bytes of the arena are taken.
    #[must_use]
    pub fn bytes_used(&self) -> usize {
        self.used
    }

    /// The sealed packets of `slot`, ready for the wire.
    ///
    /// # Panics
    ///
    /// If one of them has not been sealed: nobody shall send plaintext. And if
    /// the batch has been cleared since, or is another one: the bytes are not
    /// the slot's.
    #[inline]
    #[must_use]
    pub fn wire(&self, slot: &Slot) -> &[u8] {
        assert!(
            slot.turn == self.turn,
            "the batch has been cleared since {slot:?}, or is another one"
        );
        let sealed = |outcome: &Outcome| *outcome == Outcome::Sealed;
        assert!(
            slot.jobs.end <= self.done && self.outcomes[slot.jobs.clone()].iter().all(sealed),
            "the packets of {slot:?} are not sealed: call Engine::seal before Batch::wire"
        );
        &self.arena[slot.bytes.clone()]
    }

    /// Room for `len` bytes from a socket, at the arena's end. What the socket
    /// wrote there is taken by [`Inbound::received`]; the rest stays free. The
    /// room shows bytes of earlier turns: they are there to be overwritten.
    ///
    /// # Panics
    ///
    /// If the arena would exceed [`Batch::MAX_BYTES`].
    ///
    /// [`Inbound::received`]: crate::bip324::Inbound::received
    #[inline]
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        let end = self.end_of(len);
        self.room = len;
        &mut self.arena[self.used..end]
    }

    /// Where `len` more bytes end, which are there then.
    #[inline]
    fn end_of(&mut self, len: usize) -> usize {
        let end = self.used.saturating_add(len);
        if self.arena.len() < end {
            self.grow(end);
        }
        end
    }

    #[cold]
    fn grow(&mut self, end: usize) {
        assert!(
            end <= Self::MAX_BYTES,
            "a batch holds at most {} bytes",
            Self::MAX_BYTES
        );
        self.arena.resize(end, 0);
    }

    /// The jobs that have not run yet, for a backend to run; they count as run
    /// from now on.
    #[inline]
    pub fn take_pending(&mut self) -> Pending<'_> {
        let first = core::mem::replace(&mut self.done, self.jobs.len());
        // One is written sooner than `memset` is called.
        if self.outcomes.len() + 1 == self.jobs.len() {
            self.outcomes.push(Outcome::Pending);
        } else {
            self.outcomes.resize(self.jobs.len(), Outcome::Pending);
        }
        Pending {
            bytes: &mut self.arena,
            secrets: Secrets {
                keys: &self.keys,
                keystream: &self.keystream,
            },
            jobs: &self.jobs[first..],
            outcomes: &mut self.outcomes[first..],
        }
    }

    /// The same for a device, which may be given the arena as a whole; and how many of its
    /// bytes mean something.
    #[cfg(feature = "cuda")]
    pub(crate) fn take_pending_arena(
        &mut self,
    ) -> (&mut Arena, usize, Secrets<'_>, &[Job], &mut [Outcome]) {
        let first = core::mem::replace(&mut self.done, self.jobs.len());
        self.outcomes.resize(self.jobs.len(), Outcome::Pending);
        let secrets = Secrets {
            keys: &self.keys,
            keystream: &self.keystream,
        };
        let (jobs, outcomes) = (&self.jobs[first..], &mut self.outcomes[first..]);
        (
            &mut self.arena,
            self.used + self.room,
            secrets,
            jobs,
            outcomes,
        )
    }

    /// The jobs that have not run yet.
    #[cfg(feature = "cuda")]
    pub(crate) fn pending_jobs(&self) -> &[Job] {
        &self.jobs[self.done..]
    }

    /// What became of packet `job`, in the order in which they were added.
    ///
    /// # Panics
    ///
    /// If there is no such packet.
    #[inline]
    #[must_use]
    pub fn outcome(&self, job: usize) -> Outcome {
        assert!(job < self.jobs.len(), "there is no packet {job}");
        let outcome = self.outcomes.get(job);
        outcome.copied().unwrap_or(Outcome::Pending)
    }

    /// Whether `len` more bytes fit.
    #[inline]
    pub(crate) fn fits(&self, len: usize) -> bool {
        Self::MAX_BYTES - self.used >= len
    }

    /// Where the text of packet `job` lies.
    #[inline]
    pub(crate) fn text(&self, job: usize) -> Range<usize> {
        let job = &self.jobs[job];
        let start = job.text as usize;
        start..start + job.text_len as usize
    }

    /// Tells one filling of the batch from the next.
    #[inline]
    pub(crate) fn turn(&self) -> usize {
        self.turn
    }

    /// How many packets it will hold if it gets one more, and if this turn is like the
    /// last.
    #[inline]
    pub(crate) fn expected_len(&self) -> usize {
        self.last_len.max(self.jobs.len() + 1)
    }

    /// Adds a key and returns its index.
    #[inline(never)]
    pub(crate) fn add_key(&mut self, key: &Key) -> u32 {
        push(&mut self.keys, core::slice::from_ref(key), [0; 32]);
        index(self.keys.len() - 1)
    }

    /// Adds blocks of keystream computed ahead and returns the index of the first.
    #[inline]
    pub(crate) fn add_keystream(&mut self, blocks: &[Block]) -> u32 {
        let first = index(self.keystream.len());
        push(&mut self.keystream, blocks, [0; 64]);
        first
    }

    /// Adds a packet whose bytes lie in the arena.
    #[inline]
    pub(crate) fn add_job(&mut self, job: Job) {
        self.jobs.push(job);
    }

    /// Takes `len` bytes at the arena's end, for the caller to write. Returns
    /// their offset.
    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> usize {
        let start = self.used;
        self.used = self.end_of(len);
        self.room = 0;
        start
    }

    /// Takes the first `len` bytes of the last room. Returns their offset.
    #[inline]
    pub(crate) fn take_received(&mut self, len: usize) -> usize {
        assert!(
            len <= self.room,
            "{len} bytes were not received: the batch's last room has {}",
            self.room
        );
        self.take(len)
    }

    /// Gives back what lies beyond `end`.
    pub(crate) fn give_back(&mut self, end: usize) {
        debug_assert!(end <= self.used);
        self.used = end;
    }

    /// The whole arena, for offsets that [`Batch::take`] returned.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.arena
    }

    /// As [`Batch::bytes`].
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.arena
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

/// How many numbers of fillings a batch takes at once: who clears a batch for
/// every packet should not wait for an atomic counter each time.
const TURNS_AT_ONCE: usize = 256;

/// The first of [`TURNS_AT_ONCE`] numbers that no other batch has; not 0.
fn new_turns() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(TURNS_AT_ONCE);
    NEXT.fetch_add(TURNS_AT_ONCE, Ordering::Relaxed)
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.wipe();
    }
}

/// Empties a list of secrets, after writing `nothing` in place of each.
fn wipe<T: Copy>(secrets: &mut Vec<T>, nothing: T) {
    // Not `Vec::zeroize`, which would wipe the capacity too, every turn. One by one:
    // often there is one, for which to call `memset` takes longer.
    for secret in secrets.iter_mut() {
        *secret = nothing;
        zeroize::optimization_barrier(secret);
    }
    secrets.clear();
}

/// Adds secrets to a list.
#[inline]
fn push<T: Copy>(list: &mut Vec<T>, secrets: &[T], nothing: T) {
    if list.capacity() - list.len() < secrets.len() {
        // By hand, so that growing leaves no copy of the secrets behind.
        let mut grown = Vec::with_capacity((2 * (list.len() + secrets.len())).max(16));
        grown.extend_from_slice(list);
        wipe(list, nothing);
        *list = grown;
    }
    // Not `extend_from_slice`, as above.
    for secret in secrets {
        list.push(*secret);
    }
}

impl core::fmt::Debug for Batch {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // Neither keys nor contents.
        f.debug_struct("Batch")
            .field("packets", &self.jobs.len())
            .field("bytes", &self.used)
            .finish_non_exhaustive()
    }
}

/// An offset or an index in a job: [`Batch::MAX_BYTES`] bounds them all.
#[allow(
    clippy::cast_possible_truncation,
    reason = "bounded by Batch::MAX_BYTES"
)]
pub(crate) fn index(value: usize) -> u32 {
    assert!(value <= Batch::MAX_BYTES, "an offset beyond a batch's");
    value as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_turn_says_nothing_of_the_next() {
        let mut batch = Batch::new();
        for _ in 0..3 {
            batch.add_job(Job::default());
        }
        batch.clear();
        batch.clear();
        assert_eq!(batch.expected_len(), 3);
        batch.add_job(Job::default());
        batch.clear();
        assert_eq!(batch.expected_len(), 1);
    }
}
