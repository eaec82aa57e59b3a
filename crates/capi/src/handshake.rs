//! The BIP324 handshake.

use crate::batch::{ElementData, packetlane_bytes, packetlane_open_batch};
use crate::engine::packetlane_engine;
use crate::handle::{Guarded, call, free, give, list, null, say};
use crate::session::packetlane_session;
use crate::status::{Error, packetlane_status, packetlane_status::*};
use packetlane::Engine;
use packetlane::bip324::{
    Handshake, HandshakeConfig, HandshakeError, Inbound, KeyPool, Progress, Session,
};

/// Garbage length that selects 0 to 4094 random bytes.
pub const PACKETLANE_RANDOM_GARBAGE: usize = 65_536;
const _: () = assert!(PACKETLANE_RANDOM_GARBAGE > Handshake::MAX_GARBAGE_LEN);

/// The secrets and settings of a handshake. packetlane_handshake_config_init sets every field to a
/// default that suits most programs, except the magic: it starts as 00000000, which is refused, and
/// must be set. Data behind the pointers is copied.
#[repr(C)]
pub struct packetlane_handshake_config {
    /// The size of this struct when the program was compiled. Later versions may add fields at the end
    /// and still accept the shorter struct.
    pub size: usize,
    /// The network's magic, in wire order: PACKETLANE_MAGIC_MAINNET and so on.
    pub magic: [u8; 4],
    /// The secret key: 32 random bytes, new for each connection. NULL: from the operating system.
    pub secret: *const u8,
    /// 32 random bytes that select the encoding of the public key. NULL: from the operating system.
    pub auxiliary: *const u8,
    /// Bytes to send after the public key. They hide the length of the handshake.
    pub garbage: *const u8,
    /// Length of the garbage, at most 4095. PACKETLANE_RANDOM_GARBAGE: random length and bytes.
    pub garbage_len: usize,
    /// Contents of decoys to send before the version packet.
    pub decoys: *const packetlane_bytes,
    /// Number of decoys.
    pub decoys_len: usize,
    /// Contents of the version packet. BIP324 defines none yet.
    pub version: *const u8,
    /// Length of the version packet's contents.
    pub version_len: usize,
    /// Longest contents accepted from the peer, in bytes. Default: 4,000,013, the largest message of the
    /// network with its type.
    pub receive_limit: usize,
}

/// Sets every field to its default. `size` is `sizeof(packetlane_handshake_config)`, so that a later
/// version of the library does not write past the end of the struct.
///
/// Fails with PACKETLANE_WRONG_LENGTH if no version of this struct has that size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_handshake_config_init(
    config: *mut packetlane_handshake_config,
    size: usize,
) -> packetlane_status {
    call(|_| {
        check_size(size)?;
        // SAFETY: the header's rules for outputs.
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

/// So far the struct has one version.
fn check_size(size: usize) -> Result<(), Error> {
    let known = size_of::<packetlane_handshake_config>();
    if size != known {
        let message = format_args!(
            "packetlane_handshake_config has {size} bytes, this version of the library expects {known}"
        );
        return Err(Error::new(PACKETLANE_WRONG_LENGTH, message));
    }
    Ok(())
}

/// Converts the caller's settings.
///
/// # Safety
///
/// `settings` is NULL or points to a struct whose first field is its size. Its pointers are valid for
/// reading.
unsafe fn config(
    settings: *const packetlane_handshake_config,
    engine: Engine,
) -> Result<HandshakeConfig, Error> {
    if settings.is_null() {
        return Err(null("settings"));
    }
    // SAFETY: not NULL, and the caller's promise: `size` is the first field.
    check_size(unsafe { settings.cast::<usize>().read() })?;
    // SAFETY: the struct has its full size.
    let from = unsafe { &*settings };
    let garbage = match from.garbage_len {
        PACKETLANE_RANDOM_GARBAGE => None,
        // Before any of these bytes is read.
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
    /// The bytes of the last `packetlane_handshake_output`.
    output: Vec<u8>,
    v1: Vec<u8>,
    session: Option<Session>,
}

impl From<Handshake> for Side {
    fn from(handshake: Handshake) -> Self {
        Self {
            handshake,
            output: Vec::new(),
            v1: Vec::new(),
            session: None,
        }
    }
}

impl Side {
    /// Keeps what the handshake has returned.
    fn take(&mut self, progress: Progress) -> packetlane_progress {
        match progress {
            Progress::Waiting => packetlane_progress::PACKETLANE_WAITING,
            Progress::V1(received) => {
                self.v1 = received;
                packetlane_progress::PACKETLANE_V1
            }
            Progress::Complete(session) => {
                // Its keys are boxed, so this move leaves no copy of them.
                self.session = Some(*session);
                packetlane_progress::PACKETLANE_COMPLETE
            }
        }
    }
}

/// The progress of a handshake.
#[repr(C)]
pub enum packetlane_progress {
    /// It needs more bytes from the peer.
    PACKETLANE_WAITING = 0,
    /// Responder: the peer speaks v1. packetlane_handshake_v1_bytes returns all bytes it sent, for
    /// packetlane_v1_decode. Nothing was sent to it.
    PACKETLANE_V1 = 1,
    /// Complete: send the bytes of packetlane_handshake_output, then take the session.
    PACKETLANE_COMPLETE = 2,
}

/// Starts a handshake as the side that connects. packetlane_handshake_output returns its first bytes
/// immediately.
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

/// Keys for the next handshakes. Several computed at once take half the time each, or less.
pub struct packetlane_key_pool(Guarded<KeyPool>);
handle!(packetlane_key_pool: KeyPool);

/// Creates a pool for at most `capacity` keys, without any. 32 suit most programs. A key is used once,
/// and wiped. After fork() the child's pool drops its keys.
///
/// Fails only as rules 4 and 6 describe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_key_pool_new(
    engine: *const packetlane_engine,
    capacity: usize,
    pool: *mut *mut packetlane_key_pool,
) -> packetlane_status {
    call(|_| {
        // SAFETY: the header's rules for handles and pointers.
        let (engine, out) = unsafe { (look!(engine)?.engine, place!(pool)?) };
        give(out, KeyPool::new(engine, capacity));
        Ok(())
    })
}

/// Frees a pool and wipes its keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_key_pool_free(pool: *mut packetlane_key_pool) {
    // SAFETY: the header's rules for handles.
    unsafe { free(pool) }
}

/// Starts a handshake as the side that connects, with a key of the pool. If the pool is empty, it first
/// computes twice as many keys as the last time, up to its capacity. The settings' `secret` and
/// `auxiliary` are not used.
///
/// Fails like packetlane_handshake_initiator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_handshake_initiator_from(
    engine: *const packetlane_engine,
    settings: *const packetlane_handshake_config,
    pool: *mut packetlane_key_pool,
    handshake: *mut *mut packetlane_handshake,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles and pointers.
        let (engine, out) = unsafe { (look!(engine)?.engine, place!(handshake)?) };
        // SAFETY: the header's rules for handles.
        let pool = unsafe { change!(used, pool)? };
        // SAFETY: the header's rules for pointers.
        let mut config = unsafe { config(settings, engine)? };
        config.keypair = Some(pool.take_or_compute()?);
        give(out, Side::from(Handshake::initiator(config)?));
        Ok(())
    })
}

/// Starts a handshake as the side that accepts a connection. It sends nothing until it receives a byte
/// that differs from the first message of v1.
///
/// Fails like packetlane_handshake_initiator.
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
        give(out, Side::from(handshake));
        Ok(())
    })
}

/// Processes any number of bytes from the peer and returns the progress (packetlane_progress).
/// Afterwards packetlane_handshake_output may have bytes to send.
///
/// Fails with PACKETLANE_NO_TERMINATOR, PACKETLANE_V1_OTHER_NETWORK, PACKETLANE_BAD_TAG,
/// PACKETLANE_RECEIVE_LIMIT, or, for an initiator, PACKETLANE_ANSWERED_V1: reconnect and speak v1
/// (packetlane_v1_encode_header). Each of these ends the handshake: close the connection. Fails with
/// PACKETLANE_ENDED if the handshake had already ended.
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
        let progress = side.handshake.receive(bytes)?;
        out.write(side.take(progress));
        Ok(())
    })
}

/// Like packetlane_handshake_receive, but adds the exchange of keys to `batch`, where it waits for those
/// of other handshakes: packetlane_open_batch_open computes all of them together, which takes half the
/// time or less. Then call packetlane_handshake_take_keys, before the batch is cleared. If that is not
/// done, the next call computes the keys alone. The bytes may lie in the batch's room.
///
/// Fails like packetlane_handshake_receive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_handshake_receive_batched(
    handshake: *mut packetlane_handshake,
    batch: *mut packetlane_open_batch,
    bytes: *const u8,
    len: usize,
    progress: *mut packetlane_progress,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        let (side, opening) = unsafe { (change!(used, handshake)?, change!(used, batch)?) };
        // SAFETY: the header's rules for pointers. Where the bytes lie in the batch's room, nothing is
        // written there during the call.
        let (bytes, out) = unsafe { (list!(bytes, len)?, place!(progress)?) };
        let progress = side.handshake.receive_batched(&mut opening.batch, bytes)?;
        out.write(side.take(progress));
        Ok(())
    })
}

/// Takes the keys that `batch` has computed, if the handshake waits for them. The progress is that of
/// packetlane_handshake_receive, and packetlane_handshake_output may have bytes to send.
///
/// Fails with PACKETLANE_NOT_OPENED if the batch was not opened, and like packetlane_handshake_receive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_handshake_take_keys(
    handshake: *mut packetlane_handshake,
    batch: *const packetlane_open_batch,
    progress: *mut packetlane_progress,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        let (side, opening) = unsafe { (change!(used, handshake)?, look!(batch)?) };
        // SAFETY: the header's rules for pointers.
        let out = unsafe { place!(progress)? };
        let progress = side.handshake.take_keys(&opening.batch)?;
        out.write(side.take(progress));
        Ok(())
    })
}

/// Returns the bytes to send to the peer now, each byte once; none if there is nothing to send. They
/// are valid until the next call that changes the handshake. After PACKETLANE_COMPLETE, send them
/// before any packet of the session.
///
/// Fails only as rules 4 and 6 describe.
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

/// Returns all bytes that a v1 peer has sent so far, for packetlane_v1_decode or another
/// implementation of v1. They are valid until the handshake is freed.
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

/// Takes the session out of a completed handshake. Free the handshake afterwards. Packets may have
/// arrived with its last bytes: see packetlane_session_needs_turn.
///
/// Fails with PACKETLANE_NOT_READY if the handshake is not complete or the session was already taken.
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

/// Returns the error for a peer that closed the connection at this point, or timed out. Allow 10
/// seconds for its first byte.
///
/// Fails with PACKETLANE_CLOSED_UNANSWERED if the peer may speak only v1 (reconnect and speak v1),
/// otherwise with PACKETLANE_CLOSED. It never returns PACKETLANE_OK.
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
