//! Batches of BIP324 packets, and the slots of all kinds of batches.

use crate::engine::packetlane_engine;
use crate::handle::{Guarded, call, free, give, list, null, read, say};
use crate::status::{Error, packetlane_status, packetlane_status::*};
use core::fmt::{self, Display};
use packetlane::{OpenBatch, SealBatch, Slot};

/// A batch of this many bytes is as fast as batches get: seal it, or stop reading in this turn.
pub const PACKETLANE_ENOUGH_BYTES: usize = 262_144;
const _: () = assert!(PACKETLANE_ENOUGH_BYTES == SealBatch::ENOUGH_BYTES);

/// The place of one packet in a batch, or of adjacent packets of one session. A plain value: copy it
/// freely, it needs no cleanup. It is valid until its batch is cleared. After that, or with another
/// batch, it is refused with PACKETLANE_STALE_SLOT.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct packetlane_slot {
    /// Private.
    place: [usize; 4],
    owner: [u64; 2],
}

const _: () = {
    assert!(size_of::<packetlane_slot>() == size_of::<Slot>());
    assert!(align_of::<packetlane_slot>() == align_of::<Slot>());
    // Neither type has padding: each is as long as its fields.
    assert!(size_of::<Slot>() == 4 * size_of::<usize>() + 2 * size_of::<u64>());
};

impl From<Slot> for packetlane_slot {
    #[inline]
    fn from(slot: Slot) -> Self {
        // SAFETY: the same size, without padding, and all bytes are initialised integers.
        unsafe { core::mem::transmute(slot) }
    }
}

impl packetlane_slot {
    #[inline]
    pub(crate) fn slot(&self) -> &Slot {
        // SAFETY: the same size and alignment, and a `Slot` is four `usize` and two `u64` of any
        // value. A slot that the library did not create causes a panic in safe code at worst.
        unsafe { &*core::ptr::from_ref(self).cast() }
    }
}

/// Borrows a slot.
///
/// # Safety
///
/// `slot` is NULL, or valid for reading and unchanged while the result lives.
#[inline]
pub(crate) unsafe fn slot<'a>(slot: *const packetlane_slot, name: &str) -> Result<&'a Slot, Error> {
    // SAFETY: the caller's promise.
    let slot = unsafe { slot.as_ref() };
    Ok(slot.ok_or_else(|| null(name))?.slot())
}

/// Returns the length of the slot's packets on the wire, in bytes. 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_slot_wire_len(of: *const packetlane_slot) -> usize {
    // SAFETY: the header's rules for inputs.
    read(0, || unsafe { Ok(slot(of, "of")?.wire_len()) })
}

/// Extends `joined` by `next` and returns true if both belong to the same session and `next` begins
/// where `joined` ends. One write then sends both.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_slot_join(
    joined: *mut packetlane_slot,
    next: *const packetlane_slot,
) -> bool {
    read(false, || {
        // SAFETY: the header's rules for inputs.
        let both = unsafe { slot(joined, "joined")?.join(slot(next, "next")?) };
        if let Some(both) = both {
            // SAFETY: the header's rules for outputs.
            unsafe { place!(joined)?.write(both.into()) };
            return Ok(true);
        }
        Ok(false)
    })
}

/// A byte string owned by the caller.
#[repr(C)]
pub struct packetlane_bytes {
    /// Its first byte.
    pub data: *const u8,
    /// Its length in bytes.
    pub len: usize,
}

impl packetlane_bytes {
    /// The bytes.
    ///
    /// # Safety
    ///
    /// As [`list`].
    #[inline]
    pub(crate) unsafe fn list<'a>(&self, name: ElementData) -> Result<&'a [u8], Error> {
        // SAFETY: the caller's promise.
        unsafe { list(self.data, self.len, name) }
    }

    /// The bytes, after [`packetlane_bytes::list`] has checked them.
    ///
    /// # Safety
    ///
    /// As [`list`].
    #[inline]
    pub(crate) unsafe fn checked_list<'a>(&self) -> &'a [u8] {
        // SAFETY: the caller's promise.
        unsafe { list(self.data, self.len, "") }.unwrap_or_default()
    }
}

/// Names an array element's `data` in an error message.
#[derive(Clone, Copy)]
pub(crate) struct ElementData {
    pub(crate) argument: &'static str,
    pub(crate) index: usize,
}

impl Display for ElementData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}].data", self.argument, self.index)
    }
}

/// Packets to seal, from any number of sessions: the outgoing packets of one turn of an event loop.
pub struct packetlane_seal_batch(Guarded<SealBatch>);
handle!(packetlane_seal_batch: SealBatch);

/// Creates an empty batch.
///
/// Fails only as rules 4 and 6 describe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_seal_batch_new(
    batch: *mut *mut packetlane_seal_batch,
) -> packetlane_status {
    call(|_| {
        // SAFETY: the header's rules for outputs.
        give(unsafe { place!(batch)? }, SealBatch::new());
        Ok(())
    })
}

/// Seals all unsealed packets in the batch, of all sessions, in place.
///
/// Fails only as rules 4 and 6 describe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_seal_batch_seal(
    batch: *mut packetlane_seal_batch,
    engine: *const packetlane_engine,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        let (batch, engine) = unsafe { (change!(used, batch)?, look!(engine)?) };
        engine.engine.seal(batch);
        Ok(())
    })
}

/// Returns the sealed packets of a slot, ready to write to the socket. The bytes are valid until the
/// batch is cleared or changed.
///
/// Fails with PACKETLANE_NOT_SEALED if the batch was not sealed after the packets were added, and with
/// PACKETLANE_STALE_SLOT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_seal_batch_wire(
    batch: *const packetlane_seal_batch,
    of: *const packetlane_slot,
    bytes: *mut *const u8,
    len: *mut usize,
) -> packetlane_status {
    call(|_| {
        // SAFETY: the header's rules for handles and pointers.
        let (batch, of) = unsafe { (look!(batch)?, slot(of, "of")?) };
        // SAFETY: as above.
        let out = unsafe { (place!(bytes)?, place!(len)?) };
        say(batch.wire(of)?, out);
        Ok(())
    })
}

/// Empties the batch for the next turn: drops all packets, wipes their keys and keeps the memory.
/// Slots of the batch and pointers into it become invalid.
///
/// Fails only as rules 4 and 6 describe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_seal_batch_clear(
    batch: *mut packetlane_seal_batch,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        unsafe { change!(used, batch)? }.clear();
        Ok(())
    })
}

/// Frees memory beyond `bytes` bytes and the bytes in use. Otherwise a batch keeps the memory of its
/// largest turn.
///
/// Fails only as rules 4 and 6 describe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_seal_batch_shrink(
    batch: *mut packetlane_seal_batch,
    bytes: usize,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        unsafe { change!(used, batch)? }.shrink_to(bytes);
        Ok(())
    })
}

/// Returns the number of packets in the batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_seal_batch_packets(
    batch: *const packetlane_seal_batch,
) -> usize {
    // SAFETY: the header's rules for handles.
    read(0, || unsafe { Ok(look!(batch)?.len()) })
}

/// Returns the number of bytes of its packets. At PACKETLANE_ENOUGH_BYTES, seal the batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_seal_batch_bytes(batch: *const packetlane_seal_batch) -> usize {
    // SAFETY: the header's rules for handles.
    read(0, || unsafe { Ok(look!(batch)?.bytes_used()) })
}

/// Frees a batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_seal_batch_free(batch: *mut packetlane_seal_batch) {
    // SAFETY: the header's rules for handles.
    unsafe { free(batch) }
}

/// Packets to open, from any number of sessions: the bytes received in one turn of an event loop.
pub struct packetlane_open_batch(Guarded<Opening>);
handle!(packetlane_open_batch: Opening);

/// A batch, and the size of its last room if no received bytes were taken from it yet.
pub(crate) struct Opening {
    pub(crate) batch: OpenBatch,
    pub(crate) room: usize,
}

/// Creates an empty batch.
///
/// Fails only as rules 4 and 6 describe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_open_batch_new(
    batch: *mut *mut packetlane_open_batch,
) -> packetlane_status {
    call(|_| {
        // SAFETY: the header's rules for outputs.
        let out = unsafe { place!(batch)? };
        let batch = OpenBatch::new();
        give(out, Opening { batch, room: 0 });
        Ok(())
    })
}

/// Returns room for `len` bytes that a socket will write. packetlane_session_received then takes them.
/// The room is valid until the next call that changes the batch; a new room replaces the old one.
///
/// Fails with PACKETLANE_BATCH_FULL if the batch would exceed 4 GiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_open_batch_room(
    batch: *mut packetlane_open_batch,
    len: usize,
    room: *mut *mut u8,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles and pointers.
        let (opening, out) = unsafe { (change!(used, batch)?, place!(room)?) };
        if len > OpenBatch::MAX_BYTES - opening.batch.bytes_used() {
            return Err(PACKETLANE_BATCH_FULL.into());
        }
        opening.room = len;
        out.write(opening.batch.room(len).as_mut_ptr());
        Ok(())
    })
}

/// Opens all unopened packets in the batch, of all sessions, in place. Each has its own result: a
/// forged packet stays encrypted and affects no other session.
///
/// Fails only as rules 4 and 6 describe. Taking a forged packet returns PACKETLANE_BAD_TAG.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_open_batch_open(
    batch: *mut packetlane_open_batch,
    engine: *const packetlane_engine,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        let (opening, engine) = unsafe { (change!(used, batch)?, look!(engine)?) };
        engine.engine.open(&mut opening.batch);
        Ok(())
    })
}

/// Empties the batch for the next turn; see packetlane_seal_batch_clear. Take or defer all packets
/// first: a session whose packets are dropped here ends.
///
/// Fails only as rules 4 and 6 describe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_open_batch_clear(
    batch: *mut packetlane_open_batch,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        let opening = unsafe { change!(used, batch)? };
        opening.room = 0;
        opening.batch.clear();
        Ok(())
    })
}

/// Frees memory; see packetlane_seal_batch_shrink.
///
/// Fails only as rules 4 and 6 describe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_open_batch_shrink(
    batch: *mut packetlane_open_batch,
    bytes: usize,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        let opening = unsafe { change!(used, batch)? };
        opening.room = 0;
        opening.batch.shrink_to(bytes);
        Ok(())
    })
}

/// Returns the number of packets in the batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_open_batch_packets(
    batch: *const packetlane_open_batch,
) -> usize {
    // SAFETY: the header's rules for handles.
    read(0, || unsafe { Ok(look!(batch)?.batch.len()) })
}

/// Returns the number of bytes received into the batch. At PACKETLANE_ENOUGH_BYTES, leave the
/// remaining sockets to the next turn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_open_batch_bytes(batch: *const packetlane_open_batch) -> usize {
    // SAFETY: the header's rules for handles.
    read(0, || unsafe { Ok(look!(batch)?.batch.bytes_used()) })
}

/// Frees a batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_open_batch_free(batch: *mut packetlane_open_batch) {
    // SAFETY: the header's rules for handles.
    unsafe { free(batch) }
}
