//! BIP324 sessions after the handshake.

use crate::batch::{
    ElementData, packetlane_bytes, packetlane_open_batch, packetlane_seal_batch, packetlane_slot,
};
use crate::engine::string;
use crate::handle::{Guarded, call, call_next, free, place, read, say};
use crate::status::{Error, packetlane_status, packetlane_status::*};
use core::ffi::c_char;
use core::ops::{Deref, DerefMut};
use packetlane::OpenBatch;
use packetlane::bip324::{PacketKind, SealError, Session};
use packetlane::bitcoin::message::MessageType;
use packetlane::internals::Draft;

/// An established BIP324 session, from packetlane_handshake_take_session.
pub struct packetlane_session(Guarded<Established>);
handle!(packetlane_session: Established);

/// A session and the packet that its caller is writing.
pub(crate) struct Established {
    session: Session,
    draft: Option<(PacketKind, Draft)>,
}

impl From<Session> for Established {
    fn from(session: Session) -> Self {
        let draft = None;
        Self { session, draft }
    }
}

impl Deref for Established {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl DerefMut for Established {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.session
    }
}

/// The kind of a packet.
#[repr(C)]
pub enum packetlane_packet_kind {
    /// The contents are a message.
    PACKETLANE_GENUINE = 0,
    /// The contents are meaningless, and the receiver drops them.
    PACKETLANE_DECOY = 1,
}

/// A message from packetlane_session_next_message or packetlane_v1_decode.
#[repr(C)]
pub struct packetlane_message {
    /// The message type as a string, such as "ping".
    pub message_type: [c_char; 13],
    /// The payload, inside the batch or inside the bytes given to packetlane_v1_decode.
    pub payload: *const u8,
    /// Length of the payload, in bytes.
    pub payload_len: usize,
}

impl packetlane_message {
    #[inline]
    pub(crate) fn new(of: MessageType, payload: &[u8]) -> Self {
        let mut message_type = [0; 13];
        for (to, from) in message_type.iter_mut().zip(of.padded()) {
            // Every name is ASCII.
            *to = from.cast_signed() as c_char;
        }
        Self {
            message_type,
            payload: payload.as_ptr(),
            payload_len: payload.len(),
        }
    }
}

/// Converts a packetlane_packet_kind.
fn kind(kind: u32) -> Result<PacketKind, Error> {
    match kind {
        0 => Ok(PacketKind::Genuine),
        1 => Ok(PacketKind::Decoy),
        _ => Err(Error::new(
            PACKETLANE_WRONG_VALUE,
            format_args!("{kind} is not a packet kind"),
        )),
    }
}

/// Converts a message type from a C string.
///
/// # Safety
///
/// As [`string`].
pub(crate) unsafe fn message_type(type_name: *const c_char) -> Result<MessageType, Error> {
    // SAFETY: the caller's promise.
    let name = unsafe { string(type_name, "type_name")? };
    if name.is_empty() {
        return Err(PACKETLANE_MESSAGE_TYPE.into());
    }
    Ok(MessageType::new(name.to_bytes())?)
}

/// Copies the session id, 32 bytes, to `id`. It is the same on both sides unless the connection is
/// intercepted. Users can compare it over another channel.
///
/// Fails only as rules 4 and 6 describe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_session_id(
    session: *const packetlane_session,
    id: *mut u8,
) -> packetlane_status {
    call(|_| {
        // SAFETY: the header's rules for handles and pointers: `id` has 32 bytes.
        let (session, id) = unsafe { (look!(session)?, place(id.cast::<[u8; 32]>(), "id")?) };
        id.write(*session.id());
        Ok(())
    })
}

/// Adds a packet with these contents to the batch and returns its slot, for
/// packetlane_seal_batch_wire. `packet_kind` is a packetlane_packet_kind. Every added packet must be
/// sealed and sent, in order, because it advances the counters of both sides. The call may seal the
/// packet at once if that is faster (few or long packets); still call packetlane_seal_batch_seal.
///
/// Fails with PACKETLANE_CONTENTS_TOO_LONG, PACKETLANE_BATCH_FULL, PACKETLANE_EXHAUSTED, or
/// PACKETLANE_WRONG_VALUE for an unknown kind. Nothing is added then, and no counter advances.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_session_push(
    session: *mut packetlane_session,
    batch: *mut packetlane_seal_batch,
    packet_kind: u32,
    contents: *const u8,
    contents_len: usize,
    slot: *mut packetlane_slot,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        let (session, batch) = unsafe { (change!(used, session)?, change!(used, batch)?) };
        // SAFETY: the header's rules for pointers.
        let (contents, slot) = unsafe { (list!(contents, contents_len)?, place!(slot)?) };
        let kind = kind(packet_kind)?;
        slot.write(session.outbound.push(batch, kind, contents)?.into());
        Ok(())
    })
}

/// Adds `count` packets of one kind, like packetlane_session_push. They are adjacent in the batch and
/// share one slot. Faster than one call per packet. Adds all of them or none.
///
/// Fails like packetlane_session_push.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_session_push_many(
    session: *mut packetlane_session,
    batch: *mut packetlane_seal_batch,
    packet_kind: u32,
    contents: *const packetlane_bytes,
    count: usize,
    slot: *mut packetlane_slot,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        let (session, batch) = unsafe { (change!(used, session)?, change!(used, batch)?) };
        // SAFETY: the header's rules for pointers.
        let (contents, slot) = unsafe { (list!(contents, count)?, place!(slot)?) };
        let kind = kind(packet_kind)?;
        let argument = "contents";
        for (index, one) in contents.iter().enumerate() {
            // SAFETY: as above.
            unsafe { one.list(ElementData { argument, index })? };
        }
        // SAFETY: as above.
        let packets = contents
            .iter()
            .map(|one| unsafe { (kind, one.checked_list()) });
        slot.write(session.outbound.push_many(batch, packets)?.into());
        Ok(())
    })
}

/// Begins a packet in place: the caller writes its `contents_len` bytes at `contents`, then calls
/// packetlane_session_commit to add it. Write all bytes, because the memory holds data of earlier
/// turns. The pointer is valid until the next call that changes the batch. A session has one such
/// packet at a time; beginning another discards it.
///
/// Fails like packetlane_session_push.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_session_begin(
    session: *mut packetlane_session,
    batch: *mut packetlane_seal_batch,
    packet_kind: u32,
    contents_len: usize,
    contents: *mut *mut u8,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        let (session, batch) = unsafe { (change!(used, session)?, change!(used, batch)?) };
        // SAFETY: the header's rules for pointers.
        let place = unsafe { place!(contents)? };
        let kind = kind(packet_kind)?;
        let draft = Draft::begin(&session.outbound, batch, contents_len)?;
        place.write(draft.contents(batch)?.as_mut_ptr());
        session.draft = Some((kind, draft));
        Ok(())
    })
}

/// Adds the packet begun by packetlane_session_begin or packetlane_session_begin_message.
///
/// Fails with PACKETLANE_STALE_SLOT if no packet was begun, or if this is another batch or the batch was
/// cleared since, and with PACKETLANE_EXHAUSTED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_session_commit(
    session: *mut packetlane_session,
    batch: *mut packetlane_seal_batch,
    slot: *mut packetlane_slot,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        let (session, batch) = unsafe { (change!(used, session)?, change!(used, batch)?) };
        // SAFETY: the header's rules for pointers.
        let slot = unsafe { place!(slot)? };
        let (kind, draft) = session.draft.take().ok_or(SealError::Stale)?;
        slot.write(draft.commit(&mut session.outbound, batch, kind)?.into());
        Ok(())
    })
}

/// Adds a packet with a message, like packetlane_session_push. The type, such as "ping", is encoded in
/// the shortest form that all peers understand, followed by the payload.
///
/// Fails with PACKETLANE_MESSAGE_TYPE if the type is not 1 to 12 printable ASCII characters, and like
/// packetlane_session_push.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_session_push_message(
    session: *mut packetlane_session,
    batch: *mut packetlane_seal_batch,
    type_name: *const c_char,
    payload: *const u8,
    payload_len: usize,
    slot: *mut packetlane_slot,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        let (session, batch) = unsafe { (change!(used, session)?, change!(used, batch)?) };
        // SAFETY: the header's rules for pointers and strings.
        let (payload, slot) = unsafe { (list!(payload, payload_len)?, place!(slot)?) };
        // SAFETY: as above.
        let of = unsafe { message_type(type_name)? };
        let added = session.outbound.push_message(batch, of, payload)?;
        slot.write(added.into());
        Ok(())
    })
}

/// Begins a message in place, like packetlane_session_begin: the caller writes its `payload_len` bytes
/// at `payload`.
///
/// Fails like packetlane_session_push_message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_session_begin_message(
    session: *mut packetlane_session,
    batch: *mut packetlane_seal_batch,
    type_name: *const c_char,
    payload_len: usize,
    payload: *mut *mut u8,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        let (session, batch) = unsafe { (change!(used, session)?, change!(used, batch)?) };
        // SAFETY: the header's rules for pointers and strings.
        let place = unsafe { place!(payload)? };
        // SAFETY: as above.
        let of = unsafe { message_type(type_name)? };
        let draft = Draft::begin_message(&session.outbound, batch, of, payload_len)?;
        place.write(draft.contents(batch)?.as_mut_ptr());
        session.draft = Some((PacketKind::Genuine, draft));
        Ok(())
    })
}

/// Takes the first `len` bytes of the batch's last packetlane_open_batch_room, which the session's
/// socket has written. Adds every packet that is now complete to the batch and keeps the rest for
/// later. `packets`, if not NULL, is set to the number of packets added. With `len` 0 it adds the
/// packets pending in the session (packetlane_session_needs_turn). The call may open packets at once if
/// that is faster (few packets); still call packetlane_open_batch_open.
///
/// Fails with PACKETLANE_WRONG_LENGTH if that room is shorter or was already taken; this has no effect.
/// The other errors end the session: PACKETLANE_RECEIVE_LIMIT, PACKETLANE_NOT_IN_BATCH,
/// PACKETLANE_BATCH_FULL, PACKETLANE_EXHAUSTED. Packets before the error can still be taken. A session
/// that has ended returns the error that ended it, such as PACKETLANE_BAD_TAG after a forged packet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_session_received(
    session: *mut packetlane_session,
    batch: *mut packetlane_open_batch,
    len: usize,
    packets: *mut usize,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        let (session, opening) = unsafe { (change!(used, session)?, change!(used, batch)?) };
        if len > opening.room {
            let room = opening.room;
            let message = format_args!("cannot take {len} bytes from a room of {room}");
            return Err(Error::new(PACKETLANE_WRONG_LENGTH, message));
        }
        opening.room = 0;
        let added = session.inbound.receive(&mut opening.batch, len)?;
        // SAFETY: the header's rules for pointers.
        unsafe { tell(packets, added) };
        Ok(())
    })
}

/// Copies bytes into the batch and takes them like packetlane_session_received. The batch's room
/// becomes invalid.
///
/// Fails like packetlane_session_received, except for PACKETLANE_WRONG_LENGTH, which concerns the room.
/// Returns PACKETLANE_BAD_TAG again if that error has ended the session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_session_feed(
    session: *mut packetlane_session,
    batch: *mut packetlane_open_batch,
    bytes: *const u8,
    len: usize,
    packets: *mut usize,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        let (session, opening) = unsafe { (change!(used, session)?, change!(used, batch)?) };
        // SAFETY: the header's rules for pointers.
        let bytes = unsafe { list!(bytes, len)? };
        opening.room = 0;
        let added = session.inbound.feed(&mut opening.batch, bytes)?;
        // SAFETY: the header's rules for pointers.
        unsafe { tell(packets, added) };
        Ok(())
    })
}

/// Writes a number to an optional output.
///
/// # Safety
///
/// `out` is NULL, or valid for writing.
unsafe fn tell(out: *mut usize, number: usize) {
    if !out.is_null() {
        // SAFETY: the caller's promise.
        unsafe { out.write(number) };
    }
}

/// Returns whether the session may hold packets that need no more bytes from the peer: they arrived
/// with the handshake or were deferred. If so, call packetlane_session_received with length 0, because
/// the peer may wait for an answer before it sends more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_session_needs_turn(session: *const packetlane_session) -> bool {
    // SAFETY: the header's rules for handles.
    read(false, || unsafe {
        Ok(look!(session)?.inbound.has_pending_input())
    })
}

/// The contents of the session's next packet in the batch.
// A function of its own so that the call, with its large error type, is inlined only once.
fn next<'b>(session: &mut Session, batch: &'b OpenBatch) -> Result<Option<&'b [u8]>, Error> {
    Ok(session.inbound.packets(batch).next().transpose()?)
}

/// Takes the session's next genuine packet from an opened batch and returns its contents, valid until
/// the batch is cleared or changed. Returns PACKETLANE_END after the last packet.
///
/// Fails with PACKETLANE_NOT_OPENED or PACKETLANE_NOT_IN_BATCH; these have no effect. Once all packets
/// before an error are taken, fails with PACKETLANE_BAD_TAG or with the error of
/// packetlane_session_received: the session has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_session_next_packet(
    session: *mut packetlane_session,
    batch: *const packetlane_open_batch,
    contents: *mut *const u8,
    contents_len: *mut usize,
) -> packetlane_status {
    call_next(|used| {
        // SAFETY: the header's rules for handles.
        let (session, opening) = unsafe { (change!(used, session)?, look!(batch)?) };
        // SAFETY: the header's rules for pointers.
        let out = unsafe { (place!(contents)?, place!(contents_len)?) };
        Ok(next(session, &opening.batch)?.map(|contents| say(contents, out)))
    })
}

/// Takes the session's next message, like packetlane_session_next_packet. Packets without a message
/// (empty, or with an unknown short id or a malformed type) are dropped and counted
/// (packetlane_session_ignored), as nodes do, because later protocol versions may add types.
///
/// Returns PACKETLANE_END after the last message. Fails like packetlane_session_next_packet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_session_next_message(
    session: *mut packetlane_session,
    batch: *const packetlane_open_batch,
    message: *mut packetlane_message,
) -> packetlane_status {
    call_next(|used| {
        // SAFETY: the header's rules for handles.
        let (session, opening) = unsafe { (change!(used, session)?, look!(batch)?) };
        // SAFETY: the header's rules for pointers.
        let out = unsafe { place!(message)? };
        let next = session.inbound.messages(&opening.batch).next();
        let Some((of, payload)) = next.transpose()? else {
            return Ok(None);
        };
        out.write(packetlane_message::new(of, payload));
        Ok(Some(()))
    })
}

/// Keeps the session's packets that were not taken from the batch for a later turn. Use it for a peer
/// that sends faster than it reads its answers, and stop reading from the peer until it has caught up.
///
/// Fails with PACKETLANE_NOT_OPENED or PACKETLANE_NOT_IN_BATCH; these have no effect. Fails with
/// PACKETLANE_BAD_TAG or with the error of packetlane_session_received: the session has ended, and the
/// packets before the failed one are lost. Take them instead if they matter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_session_defer(
    session: *mut packetlane_session,
    batch: *const packetlane_open_batch,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        let (session, opening) = unsafe { (change!(used, session)?, look!(batch)?) };
        Ok(session.inbound.defer(&opening.batch)?)
    })
}

/// Sets the longest contents accepted, in bytes, starting with the next packet.
///
/// Fails only as rules 4 and 6 describe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_session_set_receive_limit(
    session: *mut packetlane_session,
    limit: usize,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        unsafe { change!(used, session)? }
            .inbound
            .set_receive_limit(limit);
        Ok(())
    })
}

/// Returns the number of decoys dropped since the handshake.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_session_decoys(session: *const packetlane_session) -> u64 {
    // SAFETY: the header's rules for handles.
    read(0, || unsafe { Ok(look!(session)?.inbound.decoys()) })
}

/// Returns the number of packets without a message that packetlane_session_next_message dropped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_session_ignored(session: *const packetlane_session) -> u64 {
    // SAFETY: the header's rules for handles.
    read(0, || unsafe {
        Ok(look!(session)?.inbound.ignored().messages)
    })
}

/// Returns the number of bytes held in the session: of an incomplete packet, and of deferred contents.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_session_buffered(session: *const packetlane_session) -> usize {
    // SAFETY: the header's rules for handles.
    read(0, || unsafe { Ok(look!(session)?.inbound.buffered()) })
}

/// Frees a session and wipes its keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_session_free(session: *mut packetlane_session) {
    // SAFETY: the header's rules for handles.
    unsafe { free(session) }
}

/// Panics, for tests.
///
/// cbindgen:ignore
#[cfg(any(test, feature = "test-panic"))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_test_panic(
    session: *mut packetlane_session,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        let _session = unsafe { change!(used, session)? };
        panic!("a test asked for this")
    })
}
