//! Sessions of BIP324 after their handshake.

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

/// An established session of BIP324: packetlane_handshake_take_session gives it.
pub struct packetlane_session(Guarded<Established>);
handle!(packetlane_session: Established);

/// A session, and the packet that its caller is writing.
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

/// What a packet is for.
#[repr(C)]
pub enum packetlane_packet_kind {
    /// Its contents are a message.
    PACKETLANE_GENUINE = 0,
    /// Its contents mean nothing: the receiver drops it.
    PACKETLANE_DECOY = 1,
}

/// A message that packetlane_session_next_message or packetlane_v1_decode took.
#[repr(C)]
pub struct packetlane_message {
    /// Its type, such as "ping": a string.
    pub message_type: [c_char; 13],
    /// Its payload: in the batch, or in the bytes that packetlane_v1_decode was given.
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

/// One of packetlane_packet_kind.
fn kind(kind: u32) -> Result<PacketKind, Error> {
    match kind {
        0 => Ok(PacketKind::Genuine),
        1 => Ok(PacketKind::Decoy),
        _ => Err(Error::new(
            PACKETLANE_WRONG_VALUE,
            format_args!("there is no packet kind {kind}"),
        )),
    }
}

/// A message type as C has it.
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

/// Copies the session id, 32 bytes, to `id`. It is equal on both sides unless the connection is
/// intercepted: users may compare it over another channel.
///
/// Fails only by rules 4 and 6.
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

/// Adds a packet with these contents to the batch and says where, for packetlane_seal_batch_wire.
/// `packet_kind` is one of packetlane_packet_kind. Every packet that is added must be sealed and sent, in
/// order: the counters of both sides go on with it. Few packets, and long ones, may be sealed here
/// already, which takes less time; call packetlane_seal_batch_seal all the same.
///
/// Fails with PACKETLANE_CONTENTS_TOO_LONG, PACKETLANE_BATCH_FULL, PACKETLANE_EXHAUSTED, or
/// PACKETLANE_WRONG_VALUE for another kind. Nothing is added and nothing counted then.
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

/// As packetlane_session_push, for `count` packets of one kind: one slot says where all of them are, as
/// neighbours. It takes less time than a call for each. All are added, or none.
///
/// Fails as packetlane_session_push.
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

/// Begins a packet whose `contents_len` bytes the caller writes at `contents`, where the packet will lie:
/// all of them, for they show bytes of earlier turns. packetlane_session_commit adds it. The pointer is
/// valid until the next call that changes the batch. A session has one such packet at a time: another one
/// that is begun takes its place.
///
/// Fails as packetlane_session_push.
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

/// Adds the packet that packetlane_session_begin or packetlane_session_begin_message has begun.
///
/// Fails with PACKETLANE_STALE_SLOT if none was, or if the batch is another one or was cleared since, and with
/// PACKETLANE_EXHAUSTED.
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

/// Adds a packet with a message: its type, such as "ping", in the shortest form that every peer
/// understands, then its payload. Otherwise as packetlane_session_push.
///
/// Fails with PACKETLANE_MESSAGE_TYPE if the type is not 1 to 12 printable ASCII characters, and as
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

/// As packetlane_session_begin, for a message: the caller writes its `payload_len` bytes at `payload`.
///
/// Fails as packetlane_session_push_message.
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
/// socket has written: adds every packet that is now whole to the batch, and keeps the rest for
/// later. `packets`, if not NULL, is how many it added. With `len` 0 it adds what waits in the
/// session (packetlane_session_needs_turn). Few packets may be opened here already,
/// which takes less time; call packetlane_open_batch_open all the same.
///
/// Fails with PACKETLANE_WRONG_LENGTH if that room is shorter, or was taken: nothing changes then. Other
/// errors end the session: PACKETLANE_RECEIVE_LIMIT, PACKETLANE_NOT_IN_BATCH, PACKETLANE_BATCH_FULL,
/// PACKETLANE_EXHAUSTED. Packets from before them can still be taken. A session that has ended gives the
/// error that ended it again: PACKETLANE_BAD_TAG if a packet was forged.
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
            let message = format_args!("{len} bytes were received in a room of {room}");
            return Err(Error::new(PACKETLANE_WRONG_LENGTH, message));
        }
        opening.room = 0;
        let added = session.inbound.receive(&mut opening.batch, len)?;
        // SAFETY: the header's rules for pointers.
        unsafe { tell(packets, added) };
        Ok(())
    })
}

/// As packetlane_session_received, for bytes that are not in the batch's room: they are copied into the
/// batch. The batch's room is void then.
///
/// Fails as packetlane_session_received, but not with PACKETLANE_WRONG_LENGTH for a room; PACKETLANE_BAD_TAG
/// again if that has ended the session.
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

/// Writes a number to where the caller wants it, or nowhere.
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

/// Whether packets may wait in the session for a turn, without another byte from the peer: they came
/// with the handshake, or were deferred. Then call packetlane_session_received with 0: the peer may
/// send nothing more until it has an answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_session_needs_turn(session: *const packetlane_session) -> bool {
    // SAFETY: the header's rules for handles.
    read(false, || unsafe {
        Ok(look!(session)?.inbound.has_pending_input())
    })
}

/// The contents of the session's next packet in the batch.
// One place where it is called from: it is inlined here, with its large errors.
fn next<'b>(session: &mut Session, batch: &'b OpenBatch) -> Result<Option<&'b [u8]>, Error> {
    Ok(session.inbound.packets(batch).next().transpose()?)
}

/// Takes the session's next genuine packet from the batch, which has been opened: says where its
/// contents lie. They are valid until the batch is cleared or changed. Returns PACKETLANE_END after the
/// last one.
///
/// Fails with PACKETLANE_NOT_OPENED or PACKETLANE_NOT_IN_BATCH: nothing changes then. Fails with
/// PACKETLANE_BAD_TAG, or with what packetlane_session_received has failed with, once the packets from
/// before are taken: the session has ended.
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

/// As packetlane_session_next_packet, for a packet's message: its type and its payload. Packets that
/// hold no message (they are empty, or their type is unknown or malformed) are dropped and counted
/// (packetlane_session_ignored), as nodes do: later versions of the protocol may have more types.
///
/// Returns PACKETLANE_END after the last one. Fails as packetlane_session_next_packet.
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

/// Keeps the session's packets that nobody took from the batch for a later turn: for a peer that
/// sends faster than it takes its answers. Until it has taken some, read nothing more from it.
///
/// Fails with PACKETLANE_NOT_OPENED or PACKETLANE_NOT_IN_BATCH: nothing changes then. Fails with
/// PACKETLANE_BAD_TAG, or with what packetlane_session_received has failed with: the session has ended.
/// Packets that were added before the one that failed are then lost: take them instead if they matter.
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

/// Sets the longest contents that are accepted, in bytes, from the next packet on.
///
/// Fails only by rules 4 and 6.
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

/// How many decoys have been dropped since the handshake.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_session_decoys(session: *const packetlane_session) -> u64 {
    // SAFETY: the header's rules for handles.
    read(0, || unsafe { Ok(look!(session)?.inbound.decoys()) })
}

/// How many packets packetlane_session_next_message has dropped because they hold no message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_session_ignored(session: *const packetlane_session) -> u64 {
    // SAFETY: the header's rules for handles.
    read(0, || unsafe {
        Ok(look!(session)?.inbound.ignored().messages)
    })
}

/// How many bytes wait in the session: of a packet that has not come whole, and contents that were
/// deferred.
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

/// Panics, to see what becomes of it.
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
