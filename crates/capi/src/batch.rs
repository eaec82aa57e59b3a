//! Batches of BIP324's packets, and the slots of all batches.

use crate::engine::packetlane_engine;
use crate::handle::{Guarded, call, free, give, list, null, read, say};
use crate::status::{Error, packetlane_status, packetlane_status::*};
use core::fmt::{self, Display};
use packetlane::{OpenBatch, SealBatch, Slot};

/// From so many waiting bytes on, more packets make no batch faster: seal then, and read no more in
/// one turn.
pub const PACKETLANE_ENOUGH_BYTES: usize = 262_144;
const _: () = assert!(PACKETLANE_ENOUGH_BYTES == SealBatch::ENOUGH_BYTES);

/// Where a packet, or a run of neighbours of one session, lies in a batch: a plain value, to be
/// copied and forgotten at will. It is valid until its batch is cleared. Later, or with another
/// batch, it is refused (PACKETLANE_STALE_SLOT).
#[derive(Clone, Copy)]
#[repr(C)]
pub struct packetlane_slot {
    /// Not to be looked at or changed.
    place: [usize; 4],
    owner: [u64; 2],
}

const _: () = {
    assert!(size_of::<packetlane_slot>() == size_of::<Slot>());
    assert!(align_of::<packetlane_slot>() == align_of::<Slot>());
    // No padding on either side: both are as long as what they hold.
    assert!(size_of::<Slot>() == 4 * size_of::<usize>() + 2 * size_of::<u64>());
};

impl From<Slot> for packetlane_slot {
    #[inline]
    fn from(slot: Slot) -> Self {
        // SAFETY: as long, without padding, and all of its bytes are initialised integers.
        unsafe { core::mem::transmute(slot) }
    }
}

impl packetlane_slot {
    #[inline]
    pub(crate) fn slot(&self) -> &Slot {
        // SAFETY: as long and as aligned, and a `Slot` is four `usize` and two `u64`, which may be
        // anything. One that the library did not make is at worst a panic in safe code.
        unsafe { &*core::ptr::from_ref(self).cast() }
    }
}

/// A slot of C.
///
/// # Safety
///
/// `slot` is NULL, or valid for reading, and nobody changes it while the result lives.
#[inline]
pub(crate) unsafe fn slot<'a>(slot: *const packetlane_slot, name: &str) -> Result<&'a Slot, Error> {
    // SAFETY: the caller's promise.
    let slot = unsafe { slot.as_ref() };
    Ok(slot.ok_or_else(|| null(name))?.slot())
}

/// Length of the slot's packets on the wire, in bytes. 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_slot_wire_len(of: *const packetlane_slot) -> usize {
    // SAFETY: the header's rules for pointers that are read.
    read(0, || unsafe { Ok(slot(of, "of")?.wire_len()) })
}

/// Adds `next` to `joined` and returns true, if it is of the same session and begins where `joined`
/// ends: so that both go to the socket in one write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_slot_join(
    joined: *mut packetlane_slot,
    next: *const packetlane_slot,
) -> bool {
    read(false, || {
        // SAFETY: the header's rules for pointers that are read.
        let both = unsafe { slot(joined, "joined")?.join(slot(next, "next")?) };
        if let Some(both) = both {
            // SAFETY: the header's rules for pointers that are written through.
            unsafe { place!(joined)?.write(both.into()) };
            return Ok(true);
        }
        Ok(false)
    })
}

/// Bytes of the caller.
#[repr(C)]
pub struct packetlane_bytes {
    /// Where.
    pub data: *const u8,
    /// How many.
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

    /// The bytes, which [`packetlane_bytes::list`] has checked.
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

/// Names the `data` of an element of an argument.
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

/// Packets of many sessions to seal: the outgoing packets of one turn of an event loop.
pub struct packetlane_seal_batch(Guarded<SealBatch>);
handle!(packetlane_seal_batch: SealBatch);

/// Makes an empty batch.
///
/// Fails only by rules 4 and 6.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_seal_batch_new(
    batch: *mut *mut packetlane_seal_batch,
) -> packetlane_status {
    call(|_| {
        // SAFETY: the header's rules for pointers that are written through.
        give(unsafe { place!(batch)? }, SealBatch::new());
        Ok(())
    })
}

/// Seals all packets that wait in the batch, of all sessions, in place.
///
/// Fails only by rules 4 and 6.
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

/// Says where the sealed packets of a slot lie, for the socket to write. The bytes are valid until
/// the batch is cleared or changed.
///
/// Fails with PACKETLANE_NOT_SEALED if the batch was not sealed since they were added, and with
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

/// Begins a new turn: forgets all packets, wipes their keys and keeps the memory. Slots and pointers
/// from the batch are void.
///
/// Fails only by rules 4 and 6.
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

/// Gives back memory beyond `bytes` bytes and those that are taken. A batch otherwise stays as large
/// as its largest turn.
///
/// Fails only by rules 4 and 6.
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

/// How many packets the batch holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_seal_batch_packets(
    batch: *const packetlane_seal_batch,
) -> usize {
    // SAFETY: the header's rules for handles.
    read(0, || unsafe { Ok(look!(batch)?.len()) })
}

/// How many bytes its packets take: at PACKETLANE_ENOUGH_BYTES it is time to seal.
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

/// Packets of many sessions to open: what the sockets brought in one turn of an event loop.
pub struct packetlane_open_batch(Guarded<Opening>);
handle!(packetlane_open_batch: Opening);

/// A batch, and how many bytes of its last room may still be taken as received.
pub(crate) struct Opening {
    pub(crate) batch: OpenBatch,
    pub(crate) room: usize,
}

/// Makes an empty batch.
///
/// Fails only by rules 4 and 6.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_open_batch_new(
    batch: *mut *mut packetlane_open_batch,
) -> packetlane_status {
    call(|_| {
        // SAFETY: the header's rules for pointers that are written through.
        let out = unsafe { place!(batch)? };
        let batch = OpenBatch::new();
        give(out, Opening { batch, room: 0 });
        Ok(())
    })
}

/// Gives room for `len` bytes from a socket. What it wrote there, packetlane_session_received takes.
/// The room is valid until the next call that changes the batch; a new room takes its place.
///
/// Fails with PACKETLANE_BATCH_FULL if the batch would have more than 4 GiB.
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

/// Opens all packets that wait in the batch, of all sessions, in place. Each has its own outcome:
/// one that is forged stays encrypted and affects no other session.
///
/// Fails only by rules 4 and 6: a forged packet is PACKETLANE_BAD_TAG when it is taken.
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

/// Begins a new turn, as packetlane_seal_batch_clear. Take or defer all packets first: the session
/// of a packet that is lost ends.
///
/// Fails only by rules 4 and 6.
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

/// Gives back memory; see packetlane_seal_batch_shrink.
///
/// Fails only by rules 4 and 6.
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

/// How many packets the batch holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_open_batch_packets(
    batch: *const packetlane_open_batch,
) -> usize {
    // SAFETY: the header's rules for handles.
    read(0, || unsafe { Ok(look!(batch)?.batch.len()) })
}

/// How many bytes were received into it: from PACKETLANE_ENOUGH_BYTES on, leave other sockets to
/// the next turn.
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
