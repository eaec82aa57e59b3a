//! QUIC packet protection.

use crate::batch::{packetlane_slot, slot};
use crate::engine::packetlane_engine;
use crate::handle::{Guarded, call, free, give, read, say};
use crate::status::{Error, packetlane_status, packetlane_status::*};
use packetlane::quic::{OpenBatch, Opener, SealBatch, Sealer, Secret, Suite, Version};

/// The packet protection algorithms, each named by a TLS cipher suite.
#[repr(C)]
pub enum packetlane_quic_suite {
    /// TLS_AES_128_GCM_SHA256, also used by Initial packets. Secrets have 32 bytes.
    PACKETLANE_QUIC_AES_128_GCM = 0,
    /// TLS_AES_256_GCM_SHA384. Secrets have 48 bytes.
    PACKETLANE_QUIC_AES_256_GCM = 1,
    /// TLS_CHACHA20_POLY1305_SHA256. Secrets have 32 bytes.
    PACKETLANE_QUIC_CHACHA20_POLY1305 = 2,
}

/// Converts a packetlane_quic_suite.
fn suite(suite: u32) -> Result<Suite, Error> {
    match suite {
        0 => Ok(Suite::Aes128Gcm),
        1 => Ok(Suite::Aes256Gcm),
        2 => Ok(Suite::ChaCha20Poly1305),
        _ => {
            let message = format_args!("{suite} is not a suite");
            Err(Error::new(PACKETLANE_WRONG_VALUE, message))
        }
    }
}

/// Converts the version number in long headers.
fn version(number: u32) -> Result<Version, Error> {
    let unknown = || {
        let message = format_args!("QUIC version 0x{number:x} is not supported");
        Error::new(PACKETLANE_WRONG_VALUE, message)
    };
    Version::from_number(number).ok_or_else(unknown)
}

/// A traffic secret: the source of all keys of one direction at one encryption level.
pub struct packetlane_quic_secret(Guarded<Secret>);
handle!(packetlane_quic_secret: Secret);

/// Creates a secret from a TLS traffic secret. `of_suite` is a packetlane_quic_suite, `of_version` is 1,
/// or 0x6b3343cf for version 2.
///
/// Fails with PACKETLANE_WRONG_LENGTH if the suite's secrets have another length, and with
/// PACKETLANE_WRONG_VALUE for an unknown suite or version.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_secret_new(
    of_suite: u32,
    of_version: u32,
    bytes: *const u8,
    len: usize,
    secret: *mut *mut packetlane_quic_secret,
) -> packetlane_status {
    call(|_| {
        // SAFETY: the header's rules for pointers.
        let (bytes, out) = unsafe { (list!(bytes, len)?, place!(secret)?) };
        give(
            out,
            Secret::new(suite(of_suite)?, version(of_version)?, bytes)?,
        );
        Ok(())
    })
}

/// Derives the client's and the server's Initial secrets from the Destination Connection ID of the
/// client's first Initial packet.
///
/// Fails with PACKETLANE_WRONG_VALUE for a version other than 1 and 0x6b3343cf.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_secret_initial(
    of_version: u32,
    connection_id: *const u8,
    len: usize,
    client: *mut *mut packetlane_quic_secret,
    server: *mut *mut packetlane_quic_secret,
) -> packetlane_status {
    call(|_| {
        // SAFETY: the header's rules for pointers.
        let id = unsafe { list!(connection_id, len)? };
        // SAFETY: as above.
        let out = unsafe { [place!(client)?, place!(server)?] };
        let secrets = Secret::initial(version(of_version)?, id);
        for (out, secret) in out.into_iter().zip(secrets) {
            give(out, secret);
        }
        Ok(())
    })
}

/// Wipes and frees a secret.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_secret_free(secret: *mut packetlane_quic_secret) {
    // SAFETY: the header's rules for handles.
    unsafe { free(secret) }
}

/// The sending side of a packet number space: Initial, Handshake, 0-RTT or 1-RTT.
pub struct packetlane_quic_sealer(Guarded<Sealer>);
handle!(packetlane_quic_sealer: Sealer);

/// Creates a sealer with the keys of `secret`, which may be freed afterwards.
///
/// Fails only as rules 4 and 6 describe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_sealer_new(
    secret: *const packetlane_quic_secret,
    sealer: *mut *mut packetlane_quic_sealer,
) -> packetlane_status {
    call(|_| {
        // SAFETY: the header's rules for handles and pointers.
        let (secret, out) = unsafe { (look!(secret)?, place!(sealer)?) };
        give(out, Sealer::new(secret.clone()));
        Ok(())
    })
}

/// Adds a packet to the batch and returns its slot. `header` is the unprotected header. It ends with the
/// low 1 to 4 bytes of the packet number, as its first byte says, in network byte order. The Length of a
/// long header counts the packet number, the payload and the tag of 16 bytes. The call sets the Key
/// Phase bit of a short header.
///
/// Fails with PACKETLANE_QUIC_NUMBER_USED, PACKETLANE_QUIC_NUMBER_TOO_LARGE,
/// PACKETLANE_QUIC_HEADER_TOO_SHORT, PACKETLANE_QUIC_HEADER_NUMBER, PACKETLANE_QUIC_PAYLOAD_TOO_SHORT,
/// PACKETLANE_QUIC_CONFIDENTIALITY_LIMIT, PACKETLANE_BATCH_FULL. Nothing is added then, and no counter
/// advances.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_sealer_push(
    sealer: *mut packetlane_quic_sealer,
    batch: *mut packetlane_quic_seal_batch,
    number: u64,
    header: *const u8,
    header_len: usize,
    payload: *const u8,
    payload_len: usize,
    slot: *mut packetlane_slot,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        let (sealer, batch) = unsafe { (change!(used, sealer)?, change!(used, batch)?) };
        // SAFETY: the header's rules for pointers.
        let (header, slot) = unsafe { (list!(header, header_len)?, place!(slot)?) };
        // SAFETY: as above.
        let payload = unsafe { list!(payload, payload_len)? };
        slot.write(sealer.push(batch, number, header, payload)?.into());
        Ok(())
    })
}

/// Adds a packet like packetlane_quic_sealer_push, but lets the caller write the payload: all
/// `payload_len` bytes at `payload`, before the batch is sealed.
///
/// Fails like packetlane_quic_sealer_push.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_sealer_reserve(
    sealer: *mut packetlane_quic_sealer,
    batch: *mut packetlane_quic_seal_batch,
    number: u64,
    header: *const u8,
    header_len: usize,
    payload_len: usize,
    slot: *mut packetlane_slot,
    payload: *mut *mut u8,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        let (sealer, batch) = unsafe { (change!(used, sealer)?, change!(used, batch)?) };
        // SAFETY: the header's rules for pointers.
        let (header, slot) = unsafe { (list!(header, header_len)?, place!(slot)?) };
        // SAFETY: as above.
        let out = unsafe { place!(payload)? };
        let (reserved, payload) = sealer.reserve(batch, number, header, payload_len)?;
        slot.write(reserved.into());
        out.write(payload.as_mut_ptr());
        Ok(())
    })
}

/// Switches to the next keys, starting with the next packet: begins a key update or follows the peer's.
/// Only for 1-RTT packets.
///
/// Fails only as rules 4 and 6 describe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_sealer_update_keys(
    sealer: *mut packetlane_quic_sealer,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        unsafe { change!(used, sealer)? }.update_keys();
        Ok(())
    })
}

/// Returns whether the key is close to its limit of sealed packets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_sealer_needs_key_update(
    sealer: *const packetlane_quic_sealer,
) -> bool {
    // SAFETY: the header's rules for handles.
    read(false, || unsafe { Ok(look!(sealer)?.needs_key_update()) })
}

/// Frees a sealer and wipes its keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_sealer_free(sealer: *mut packetlane_quic_sealer) {
    // SAFETY: the header's rules for handles.
    unsafe { free(sealer) }
}

/// QUIC packets to seal, from any number of connections and of any suites.
pub struct packetlane_quic_seal_batch(Guarded<SealBatch>);
handle!(packetlane_quic_seal_batch: SealBatch);

/// Creates an empty batch.
///
/// Fails only as rules 4 and 6 describe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_seal_batch_new(
    batch: *mut *mut packetlane_quic_seal_batch,
) -> packetlane_status {
    call(|_| {
        // SAFETY: the header's rules for outputs.
        give(unsafe { place!(batch)? }, SealBatch::new());
        Ok(())
    })
}

/// Seals all unsealed packets in the batch, payloads and headers, in place.
///
/// Fails only as rules 4 and 6 describe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_seal_batch_seal(
    batch: *mut packetlane_quic_seal_batch,
    engine: *const packetlane_engine,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        let (batch, engine) = unsafe { (change!(used, batch)?, look!(engine)?) };
        engine.engine.seal(batch);
        Ok(())
    })
}

/// Returns the sealed packet of a slot; see packetlane_seal_batch_wire.
///
/// Fails with PACKETLANE_NOT_SEALED, PACKETLANE_STALE_SLOT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_seal_batch_wire(
    batch: *const packetlane_quic_seal_batch,
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

/// Empties the batch for the next turn; see packetlane_seal_batch_clear.
///
/// Fails only as rules 4 and 6 describe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_seal_batch_clear(
    batch: *mut packetlane_quic_seal_batch,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        unsafe { change!(used, batch)? }.clear();
        Ok(())
    })
}

/// Frees a batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_seal_batch_free(batch: *mut packetlane_quic_seal_batch) {
    // SAFETY: the header's rules for handles.
    unsafe { free(batch) }
}

/// The receiving side of a packet number space: Initial, Handshake, 0-RTT or 1-RTT. It follows the
/// peer's key updates. It does not detect duplicate packets.
pub struct packetlane_quic_opener(Guarded<Opener>);
handle!(packetlane_quic_opener: Opener);

/// A packet from packetlane_quic_opener_take.
#[repr(C)]
pub struct packetlane_quic_packet {
    /// The packet number.
    pub number: u64,
    /// The unprotected header, inside the batch.
    pub header: *const u8,
    /// Length of the header, in bytes.
    pub header_len: usize,
    /// The payload (the frames), inside the batch.
    pub payload: *const u8,
    /// Length of the payload, in bytes.
    pub payload_len: usize,
    /// Whether this is the first packet of a new key phase: the peer has updated its keys. Unless this
    /// side began the update, call packetlane_quic_sealer_update_keys before acknowledging the packet.
    pub key_update: bool,
}

/// Creates an opener with the keys of `secret`, which may be freed afterwards.
///
/// Fails only as rules 4 and 6 describe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_opener_new(
    secret: *const packetlane_quic_secret,
    opener: *mut *mut packetlane_quic_opener,
) -> packetlane_status {
    call(|_| {
        // SAFETY: the header's rules for handles and pointers.
        let (secret, out) = unsafe { (look!(secret)?, place!(opener)?) };
        give(out, Opener::new(secret.clone()));
        Ok(())
    })
}

/// Adds a packet to open and returns its slot, for packetlane_quic_opener_take. The packet is `len`
/// bytes at offset `at` of the batch (packetlane_quic_open_batch_received). Its packet number is at
/// offset `number_at` of the packet.
///
/// Fails with PACKETLANE_QUIC_PACKET_TOO_SHORT: drop the packet. Fails with PACKETLANE_WRONG_LENGTH if
/// the packet extends past the end of the batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_opener_push(
    opener: *mut packetlane_quic_opener,
    batch: *mut packetlane_quic_open_batch,
    at: usize,
    len: usize,
    number_at: usize,
    slot: *mut packetlane_slot,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles and pointers.
        let (opener, opening) = unsafe { (change!(used, opener)?, change!(used, batch)?) };
        // SAFETY: as above.
        let out = unsafe { place!(slot)? };
        let end = at.checked_add(len).ok_or(PACKETLANE_WRONG_LENGTH)?;
        let there = opening.batch.bytes().len();
        if end > there {
            let message =
                format_args!("the packet ends at byte {end}, but the batch has only {there} bytes");
            return Err(Error::new(PACKETLANE_WRONG_LENGTH, message));
        }
        let slot = opener.push(&mut opening.batch, at..end, number_at)?;
        out.write(slot.into());
        Ok(())
    })
}

/// Takes a packet that this opener added, after its batch has been opened. Its pointers are valid until
/// the batch is cleared or changed.
///
/// Fails with PACKETLANE_BAD_TAG or PACKETLANE_QUIC_PACKET_TOO_SHORT: drop the packet. Fails with
/// PACKETLANE_QUIC_INTEGRITY_LIMIT, PACKETLANE_QUIC_RESERVED_BITS, PACKETLANE_QUIC_KEY_UPDATE: close the
/// connection as their comments say. Caller errors are PACKETLANE_NOT_OPENED, PACKETLANE_STALE_SLOT,
/// PACKETLANE_QUIC_OTHER_OPENER, PACKETLANE_SEVERAL_PACKETS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_opener_take(
    opener: *mut packetlane_quic_opener,
    batch: *const packetlane_quic_open_batch,
    of: *const packetlane_slot,
    packet: *mut packetlane_quic_packet,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        let (opener, opening) = unsafe { (change!(used, opener)?, look!(batch)?) };
        // SAFETY: the header's rules for pointers.
        let (of, out) = unsafe { (slot(of, "of")?, place!(packet)?) };
        let taken = opener.take(&opening.batch, of.clone())?;
        out.write(packetlane_quic_packet {
            number: taken.number,
            header: taken.header.as_ptr(),
            header_len: taken.header.len(),
            payload: taken.payload.as_ptr(),
            payload_len: taken.payload.len(),
            key_update: taken.key_update,
        });
        Ok(())
    })
}

/// Raises the next expected packet number. Needed because 0-RTT and 1-RTT packets share a packet number
/// space but have separate openers.
///
/// Fails only as rules 4 and 6 describe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_opener_set_expected(
    opener: *mut packetlane_quic_opener,
    number: u64,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        unsafe { change!(used, opener)? }.set_expected(number);
        Ok(())
    })
}

/// Returns the next expected packet number: the largest authenticated one plus 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_opener_expected(
    opener: *const packetlane_quic_opener,
) -> u64 {
    // SAFETY: the header's rules for handles.
    read(0, || unsafe { Ok(look!(opener)?.expected()) })
}

/// Drops the keys from before the last key update. Call it some time after an update and before the
/// next.
///
/// Fails only as rules 4 and 6 describe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_opener_drop_previous_keys(
    opener: *mut packetlane_quic_opener,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        unsafe { change!(used, opener)? }.drop_previous_keys();
        Ok(())
    })
}

/// Returns the number of packets that failed to open, under all keys of the opener.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_opener_forged(
    opener: *const packetlane_quic_opener,
) -> u64 {
    // SAFETY: the header's rules for handles.
    read(0, || unsafe { Ok(look!(opener)?.forged()) })
}

/// Frees an opener and wipes its keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_opener_free(opener: *mut packetlane_quic_opener) {
    // SAFETY: the header's rules for handles.
    unsafe { free(opener) }
}

/// QUIC packets to open, from any number of connections and of any suites.
pub struct packetlane_quic_open_batch(Guarded<Opening>);
handle!(packetlane_quic_open_batch: Opening);

/// A batch, and the size of its last room if no received bytes were taken from it yet.
pub(crate) struct Opening {
    batch: OpenBatch,
    room: usize,
}

/// Creates an empty batch.
///
/// Fails only as rules 4 and 6 describe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_open_batch_new(
    batch: *mut *mut packetlane_quic_open_batch,
) -> packetlane_status {
    call(|_| {
        // SAFETY: the header's rules for outputs.
        let out = unsafe { place!(batch)? };
        let batch = OpenBatch::new();
        give(out, Opening { batch, room: 0 });
        Ok(())
    })
}

/// Returns room for `len` bytes that a socket will write; see packetlane_open_batch_room.
///
/// Fails with PACKETLANE_BATCH_FULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_open_batch_room(
    batch: *mut packetlane_quic_open_batch,
    len: usize,
    room: *mut *mut u8,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles and pointers.
        let (opening, out) = unsafe { (change!(used, batch)?, place!(room)?) };
        if len > OpenBatch::MAX_BYTES - opening.batch.bytes().len() {
            return Err(PACKETLANE_BATCH_FULL.into());
        }
        opening.room = len;
        out.write(opening.batch.room(len).as_mut_ptr());
        Ok(())
    })
}

/// Takes the first `len` bytes of the last room as a datagram and sets `at` to its offset in the batch.
/// Call packetlane_quic_opener_push for each packet in it.
///
/// Fails with PACKETLANE_WRONG_LENGTH if that room is shorter or was already taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_open_batch_received(
    batch: *mut packetlane_quic_open_batch,
    len: usize,
    at: *mut usize,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles and pointers.
        let (opening, out) = unsafe { (change!(used, batch)?, place!(at)?) };
        if len > opening.room {
            let room = opening.room;
            let message = format_args!("cannot take {len} bytes from a room of {room}");
            return Err(Error::new(PACKETLANE_WRONG_LENGTH, message));
        }
        opening.room = 0;
        out.write(opening.batch.commit(len).start);
        Ok(())
    })
}

/// Opens all unopened packets in the batch, headers and payloads, in place.
///
/// Fails only as rules 4 and 6 describe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_open_batch_open(
    batch: *mut packetlane_quic_open_batch,
    engine: *const packetlane_engine,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        let (opening, engine) = unsafe { (change!(used, batch)?, look!(engine)?) };
        engine.engine.open(&mut opening.batch);
        Ok(())
    })
}

/// Empties the batch for the next turn; see packetlane_seal_batch_clear.
///
/// Fails only as rules 4 and 6 describe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_open_batch_clear(
    batch: *mut packetlane_quic_open_batch,
) -> packetlane_status {
    call(|used| {
        // SAFETY: the header's rules for handles.
        let opening = unsafe { change!(used, batch)? };
        opening.room = 0;
        opening.batch.clear();
        Ok(())
    })
}

/// Frees a batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_quic_open_batch_free(batch: *mut packetlane_quic_open_batch) {
    // SAFETY: the header's rules for handles.
    unsafe { free(batch) }
}
