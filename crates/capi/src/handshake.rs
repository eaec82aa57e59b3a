//! The handshake of BIP324.

use crate::batch::{ElementData, packetlane_bytes};
use crate::engine::packetlane_engine;
use crate::handle::{Guarded, call, free, give, list, null, say};
use crate::session::packetlane_session;
use crate::status::{Error, packetlane_status, packetlane_status::*};
use packetlane::Engine;
use packetlane::bip324::{Handshake, HandshakeConfig, HandshakeError, Inbound, Progress, Session};

/// As a length of garbage: random bytes, 0 to 4095 of them.
pub const PACKETLANE_RANDOM_GARBAGE: usize = 65_536;
const _: () = assert!(PACKETLANE_RANDOM_GARBAGE > Handshake::MAX_GARBAGE_LEN);

/// The secrets and settings of a handshake. packetlane_handshake_config_init gives each field the
/// value that is right for most programs. Only the magic must be set: until then it is 00000000, which
/// is refused. What it points to is copied.
#[repr(C)]
pub struct packetlane_handshake_config {
    /// The size of this struct where the program was compiled. Later versions add fields behind the
    /// last one, and take a shorter struct from programs that do not know them.
    pub size: usize,
    /// The network's magic, in the order of the wire: PACKETLANE_MAGIC_MAINNET and so on.
    pub magic: [u8; 4],
    /// The secret key: 32 random bytes, fresh for each connection. NULL: from the operating system.
    pub secret: *const u8,
    /// 32 random bytes that choose the encoding of the public key. NULL: from the operating system.
    pub auxiliary: *const u8,
    /// Bytes to send after the public key. They hide the length of the handshake.
    pub garbage: *const u8,
    /// Their number, at most 4095. PACKETLANE_RANDOM_GARBAGE: from the operating system.
    pub garbage_len: usize,
    /// Contents of decoys to send before the version packet.
    pub decoys: *const packetlane_bytes,
    /// Their number.
    pub decoys_len: usize,
    /// Contents of the version packet. BIP324 defines none yet.
    pub version: *const u8,
    /// Their length.
    pub version_len: usize,
    /// Longest contents that are accepted from the peer, in bytes. 4,000,013: the largest message of
    /// the network and its type.
    pub receive_limit: usize,
}

/// Gives every field its default. `size` is `sizeof(packetlane_handshake_config)`: a later version
/// of the library writes no more than the program has room for.
///
/// Fails with PACKETLANE_WRONG_LENGTH if no version of this struct has that size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_handshake_config_init(
    config: *mut packetlane_handshake_config,
    size: usize,
) -> packetlane_status {
    call(|_| {
        check_size(size)?;
        // SAFETY: the header's rules for pointers that are written through.
        let config = unsafe { place!(config)? };
        config.write(packetlane_handshake_config {
            size,
            magic: [0; 4],
            secret: core::ptr::null(),
            auxiliary: core::ptr::null(),
            garbage: core::ptr::null(),
            garbage_len: PACKETLANE_RANDOM_GARBAGE,
            decoys: core::ptr::null(),
            decoys_len: 0,
            version: core::ptr::null(),
            version_len: 0,
            receive_limit: Inbound::DEFAULT_RECEIVE_LIMIT,
        });
        Ok(())
    })
}

/// There is one version of the struct.
fn check_size(size: usize) -> Result<(), Error> {
    let known = size_of::<packetlane_handshake_config>();
    if size != known {
        let message = format_args!(
            "a packetlane_handshake_config of {size} bytes: this version of the library has {known}"
        );
        return Err(Error::new(PACKETLANE_WRONG_LENGTH, message));
    }
    Ok(())
}

/// A configuration of C as the library has it.
///
/// # Safety
///
/// `settings` is NULL or points to a `size`, behind which is the struct of that size. What it points
/// to is valid for reading.
unsafe fn config(
    settings: *const packetlane_handshake_config,
    engine: Engine,
) -> Result<HandshakeConfig, Error> {
    if settings.is_null() {
        return Err(null("settings"));
    }
    // SAFETY: not NULL, and the caller's promise: `size` is the first field.
    check_size(unsafe { settings.cast::<usize>().read() })?;
    // SAFETY: all of it is there.
    let from = unsafe { &*settings };
    let garbage = match from.garbage_len {
        PACKETLANE_RANDOM_GARBAGE => None,
        // Before so many bytes are looked at.
        length if length > Handshake::MAX_GARBAGE_LEN => {
            return Err(HandshakeError::GarbageTooLong { length }.into());
        }
        // SAFETY: the caller's promise.
        len => Some(unsafe { list(from.garbage, len, "settings->garbage")? }),
    };
    let mut to = match garbage {
        Some(_) if !from.secret.is_null() && !from.auxiliary.is_null() => {
            HandshakeConfig::new(from.magic, engine, [0; 32], [0; 32])
        }
        _ => HandshakeConfig::random(from.magic, engine)?,
    };
    if let Some(garbage) = garbage {
        to.garbage = garbage.to_vec();
    }
    for (secret, to) in [
        (from.secret, &mut to.secret),
        (from.auxiliary, &mut to.auxiliary),
    ] {
        // SAFETY: the caller's promise: NULL or 32 bytes.
        if let Some(secret) = unsafe { secret.cast::<[u8; 32]>().as_ref() } {
            to.copy_from_slice(secret);
        }
    }
    // SAFETY: the caller's promise.
    let decoys = unsafe { list(from.decoys, from.decoys_len, "settings->decoys")? };
    let argument = "settings->decoys";
    for (index, decoy) in decoys.iter().enumerate() {
        // SAFETY: as above.
        let decoy = unsafe { decoy.list(ElementData { argument, index })? };
        to.decoys.push(decoy.to_vec());
    }
    // SAFETY: as above.
    to.version = unsafe { list(from.version, from.version_len, "settings->version")? }.to_vec();
    to.receive_limit = from.receive_limit;
    Ok(to)
}

/// One side of a handshake.
pub struct packetlane_handshake(Guarded<Side>);
handle!(packetlane_handshake: Side);

pub(crate) struct Side {
    handshake: Handshake,
    /// What C was last given to send.
    output: Vec<u8>,
    v1: Vec<u8>,
    session: Option<Session>,
}

/// How far a handshake is.
#[repr(C)]
pub enum packetlane_progress {
    /// It needs more bytes from the peer.
    PACKETLANE_WAITING = 0,
    /// Responder: the peer speaks v1. packetlane_handshake_v1_bytes has all that it sent, for
    /// packetlane_v1_decode. Nothing has been sent to it.
    PACKETLANE_V1 = 1,
    /// It is complete: send what packetlane_handshake_output gives, then take the session.
    PACKETLANE_COMPLETE = 2,
}

/// Starts a handshake as the side that connects. packetlane_handshake_output has its first bytes at
/// once.
///
/// Fails with PACKETLANE_ZERO_MAGIC, PACKETLANE_SECRET_KEY, PACKETLANE_GARBAGE_TOO_LONG,
/// PACKETLANE_NO_ENTROPY; PACKETLANE_CONTENTS_TOO_LONG for a decoy or the version packet; and
/// PACKETLANE_WRONG_LENGTH for `size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_handshake_initiator(
    engine: *const packetlane_engine,
    settings: *const packetlane_handshake_config,
    handshake: *mut *mut packetlane_handshake,
) -> packetlane_status {
    // SAFETY: the header's rules for handles and pointers.
    unsafe { start(engine, settings, handshake, Handshake::initiator) }
}

/// Starts a handshake as the side that accepts a connection. Otherwise as
/// packetlane_handshake_initiator. It sends nothing before it has received a byte that differs from
/// v1's first message.
///
/// Fails as packetlane_handshake_initiator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_handshake_responder(
    engine: *const packetlane_engine,
    settings: *const packetlane_handshake_config,
    handshake: *mut *mut packetlane_handshake,
) -> packetlane_status {
    // SAFETY: the header's rules for handles and pointers.
    unsafe { start(engine, settings, handshake, Handshake::responder) }
}

/// # Safety
///
/// As [`look`], [`config`] and [`place`].
unsafe fn start(
    engine: *const packetlane_engine,
    settings: *const packetlane_handshake_config,
    handshake: *mut *mut packetlane_handshake,
    new: fn(HandshakeConfig) -> Result<Handshake, HandshakeError>,
) -> packetlane_status {
    call(|_| {
        // SAFETY: the caller's promise.
        let (engine, out) = unsafe { (look!(engine)?.engine, place!(handshake)?) };
        // SAFETY: the caller's promise.
        let handshake = new(unsafe { config(settings, engine)? })?;
        let side = Side {
            handshake,
            output: Vec::new(),
            v1: Vec::new(),
            session: None,
        };
        give(out, side);
        Ok(())
    })
}

/// Processes bytes from the peer, any number of them, and says how far it is
/// (packetlane_progress). Then packetlane_handshake_output may have bytes to send.
///
/// Fails with PACKETLANE_NO_TERMINATOR, PACKETLANE_V1_OTHER_NETWORK, PACKETLANE_BAD_TAG,
/// PACKETLANE_RECEIVE_LIMIT, or, for an initiator, PACKETLANE_ANSWERED_V1: connect again and speak v1
/// (packetlane_v1_encode_header). Each ends the handshake, and the connection. Fails with PACKETLANE_ENDED
/// if the handshake had ended before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_handshake_receive(
    handshake: *mut packetlane_handshake,
    bytes: *const u8,
    len: usize,
    progress: *mut packetlane_progress,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        let side = unsafe { change!(used, handshake)? };
        // SAFETY: the header's rules for pointers.
        let (bytes, out) = unsafe { (list!(bytes, len)?, place!(progress)?) };
        out.write(match side.handshake.receive(bytes)? {
            Progress::Waiting => packetlane_progress::PACKETLANE_WAITING,
            Progress::V1(received) => {
                side.v1 = received;
                packetlane_progress::PACKETLANE_V1
            }
            Progress::Complete(session) => {
                // Its keys are boxed: this leaves no copy of them.
                side.session = Some(*session);
                packetlane_progress::PACKETLANE_COMPLETE
            }
        });
        Ok(())
    })
}

/// Gives the bytes that must be sent to the peer now: each once, and none if there are none. They
/// are valid until the next call that changes the handshake. At PACKETLANE_COMPLETE, send them before
/// any packet of the session.
///
/// Fails only by rules 4 and 6.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_handshake_output(
    handshake: *mut packetlane_handshake,
    bytes: *mut *const u8,
    len: *mut usize,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles and pointers.
        let (side, out) = unsafe { (change!(used, handshake)?, (place!(bytes)?, place!(len)?)) };
        side.output = side.handshake.take_output();
        say(&side.output, out);
        Ok(())
    })
}

/// Says where all bytes lie that the peer has sent, once it has turned out to speak v1: for
/// packetlane_v1_decode, or another implementation of v1, to begin with. They are valid until the
/// handshake is freed.
///
/// Fails with PACKETLANE_NOT_READY unless packetlane_handshake_receive has reported PACKETLANE_V1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_handshake_v1_bytes(
    handshake: *const packetlane_handshake,
    bytes: *mut *const u8,
    len: *mut usize,
) -> packetlane_status {
    call(|_| {
        // SAFETY: the header's rules for handles and pointers.
        let (side, out) = unsafe { (look!(handshake)?, (place!(bytes)?, place!(len)?)) };
        if side.v1.is_empty() {
            return Err(Error::new(
                PACKETLANE_NOT_READY,
                "the peer does not speak v1",
            ));
        }
        say(&side.v1, out);
        Ok(())
    })
}

/// Takes the session of a handshake that is complete. Packets may have come with its last bytes: see
/// packetlane_session_needs_turn. The handshake is then to be freed.
///
/// Fails with PACKETLANE_NOT_READY if the handshake is not complete, or the session was taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_handshake_take_session(
    handshake: *mut packetlane_handshake,
    session: *mut *mut packetlane_session,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles and pointers.
        let (side, out) = unsafe { (change!(used, handshake)?, place!(session)?) };
        let session = side.session.take().ok_or(PACKETLANE_NOT_READY)?;
        give(out, session.into());
        Ok(())
    })
}

/// What it means that the peer has closed the connection now, or has let its time pass. Give it 10
/// seconds for its first byte.
///
/// Fails always: with PACKETLANE_CLOSED_UNANSWERED if the peer may speak v1 only (connect again and speak
/// v1), otherwise with PACKETLANE_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_handshake_closed(
    handshake: *const packetlane_handshake,
) -> packetlane_status {
    call(|_| {
        // SAFETY: the header's rules for handles.
        Err(unsafe { look!(handshake)? }.handshake.closed().into())
    })
}

/// Frees a handshake and wipes its secrets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_handshake_free(handshake: *mut packetlane_handshake) {
    // SAFETY: the header's rules for handles.
    unsafe { free(handshake) }
}
