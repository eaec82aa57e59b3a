//! Messages of v1, Bitcoin's unencrypted transport.

use crate::handle::{call, call_next, null, place};
use crate::session::{message_type, packetlane_message};
use crate::status::{Error, packetlane_status, packetlane_status::*};
use core::ffi::c_char;
use packetlane::bip324::HandshakeError;
use packetlane::bitcoin::v1;

/// Length of a v1 message header, in bytes.
pub const PACKETLANE_V1_HEADER_LEN: usize = 24;
const _: () = assert!(PACKETLANE_V1_HEADER_LEN == v1::Message::HEADER_LEN);

/// Maximum v1 payload length, in bytes.
pub const PACKETLANE_V1_MAX_PAYLOAD_LEN: usize = 4_000_000;
const _: () = assert!(PACKETLANE_V1_MAX_PAYLOAD_LEN == v1::Message::MAX_PAYLOAD_LEN);

/// A network's magic.
///
/// # Safety
///
/// `magic` is NULL, or valid for reading 4 bytes.
unsafe fn network(magic: *const u8) -> Result<[u8; 4], Error> {
    // SAFETY: the caller's promise.
    let magic = unsafe { magic.cast::<[u8; 4]>().as_ref() };
    match magic.ok_or_else(|| null("magic"))? {
        [0, 0, 0, 0] => Err(HandshakeError::ZeroMagic.into()),
        magic => Ok(*magic),
    }
}

/// Writes the header of a v1 message, PACKETLANE_V1_HEADER_LEN bytes, to `header`. Send the header,
/// then the payload. `magic` is the network's 4 bytes; `type_name` is the message type, such as "ping".
///
/// Fails with PACKETLANE_ZERO_MAGIC; with PACKETLANE_MESSAGE_TYPE if the type is not 1 to 12 printable
/// ASCII characters; and with PACKETLANE_CONTENTS_TOO_LONG if the payload has more than
/// PACKETLANE_V1_MAX_PAYLOAD_LEN bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_v1_encode_header(
    magic: *const u8,
    type_name: *const c_char,
    payload: *const u8,
    payload_len: usize,
    header: *mut u8,
) -> packetlane_status {
    call(|_| {
        // SAFETY: the header's rules for pointers and strings.
        let (magic, of) = unsafe { (network(magic)?, message_type(type_name)?) };
        if payload_len > PACKETLANE_V1_MAX_PAYLOAD_LEN {
            let message = format_args!(
                "a payload of {payload_len} bytes is too long for v1, the limit is \
                 {PACKETLANE_V1_MAX_PAYLOAD_LEN}"
            );
            return Err(Error::new(PACKETLANE_CONTENTS_TOO_LONG, message));
        }
        // SAFETY: as above: `header` has room for a header.
        let (payload, header) = unsafe {
            (
                list!(payload, payload_len)?,
                place(header.cast::<[u8; v1::Message::HEADER_LEN]>(), "header")?,
            )
        };
        header.write(v1::Message::new(of, payload).encode_header(magic));
        Ok(())
    })
}

/// Decodes the first complete message in `len` bytes from a v1 peer: the bytes of
/// packetlane_handshake_v1_bytes and those received since. `taken` is the number of bytes consumed; start
/// the next call after them. The payload is not copied: keep the bytes as long as the message. Messages
/// with a wrong checksum or a malformed type are dropped, as nodes do; `ignored`, if not NULL, is set to
/// their number.
///
/// Returns PACKETLANE_END, with `taken` and `ignored` set, if no complete message is left: call again
/// with the remaining bytes and those received after them. The remaining bytes are always fewer than
/// PACKETLANE_V1_HEADER_LEN + PACKETLANE_V1_MAX_PAYLOAD_LEN.
///
/// Fails with PACKETLANE_V1_OTHER_NETWORK if a message does not begin with `magic`, the network's 4
/// bytes, and with PACKETLANE_RECEIVE_LIMIT if its payload is too long: close the connection. Fails with
/// PACKETLANE_ZERO_MAGIC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_v1_decode(
    magic: *const u8,
    bytes: *const u8,
    len: usize,
    message: *mut packetlane_message,
    taken: *mut usize,
    ignored: *mut u64,
) -> packetlane_status {
    call_next(|_| {
        // SAFETY: the header's rules for pointers.
        let (magic, bytes) = unsafe { (network(magic)?, list!(bytes, len)?) };
        // SAFETY: as above.
        let (message, taken) = unsafe { (place!(message)?, place!(taken)?) };
        let mut decoder = v1::Decoder::new(magic);
        let mut rest = bytes;
        let next = decoder.next(&mut rest)?;
        taken.write(bytes.len() - rest.len());
        if !ignored.is_null() {
            // SAFETY: not NULL, and the header's rules for outputs.
            unsafe { ignored.write(decoder.ignored().messages) };
        }
        Ok(next.map(|next| {
            message.write(packetlane_message::new(next.message_type, next.payload));
        }))
    })
}
