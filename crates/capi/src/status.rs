//! Status codes and error messages.

use core::cell::RefCell;
use core::ffi::{CStr, c_char, c_int};
use core::fmt::Display;
use packetlane::bip324::{HandshakeError, OpenError, SealError};
use packetlane::bitcoin::message::MessageError;
use packetlane::bitcoin::v1;
use packetlane::{BackendError, SlotError, quic};
use std::io::Write;

/// Size of a thread's last error message, with its terminating NUL.
const MESSAGE_LEN: usize = 256;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $message:literal;)*) => {
        /// The message of each status.
        const MESSAGES: &[(c_int, &CStr)] = &[$(($number, $message)),*];
        // The table lists every status under its own number.
        const _: () = { $(assert!(packetlane_status::$name as c_int == $number);)* };
    };
}

/// The result of a call. PACKETLANE_OK and PACKETLANE_END are not errors. Numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum packetlane_status {
    /// Success.
    PACKETLANE_OK = 0,
    /// Nothing left to take. Not an error: packetlane_error_message does not change.
    PACKETLANE_END = 1,

    /// A NULL handle or output, or a NULL pointer with a non-zero length. packetlane_error_message
    /// names the argument.
    PACKETLANE_NULL_ARGUMENT = 10,
    /// A length is not what the function requires, or is more than the last room.
    PACKETLANE_WRONG_LENGTH = 11,
    /// An integer is not a value of its enum.
    PACKETLANE_WRONG_VALUE = 12,
    /// A bug in the library, which packetlane_error_message describes: please report it. Or a slot
    /// that did not come from the library. The handles that the call could change are poisoned.
    PACKETLANE_PANIC = 13,
    /// An earlier call on this handle returned PACKETLANE_PANIC. The handle can only be freed.
    PACKETLANE_POISONED = 14,
    /// An error that has no number in this version of the interface.
    PACKETLANE_OTHER = 15,

    /// The handshake is not complete, or its session was already taken.
    PACKETLANE_NOT_READY = 20,
    /// The handshake has ended and accepts no more bytes.
    PACKETLANE_ENDED = 21,
    /// The slot belongs to an earlier turn of the batch, or to another batch.
    PACKETLANE_STALE_SLOT = 22,
    /// The slot's packets are not sealed yet. Plaintext must not reach a socket.
    PACKETLANE_NOT_SEALED = 23,
    /// The packets are not opened yet. They stay in the batch.
    PACKETLANE_NOT_OPENED = 24,
    /// The session's packets are not in this batch: it is the wrong batch, or it was cleared before
    /// they were taken or deferred. From packetlane_session_received, this ends the session.
    PACKETLANE_NOT_IN_BATCH = 25,
    /// The slot covers several packets, and each has its own result.
    PACKETLANE_SEVERAL_PACKETS = 26,
    /// The batch is full. From packetlane_session_received, this ends the session.
    PACKETLANE_BATCH_FULL = 27,
    /// The contents are longer than a packet allows (16,777,215 bytes), or a v1 payload is longer than
    /// PACKETLANE_V1_MAX_PAYLOAD_LEN.
    PACKETLANE_CONTENTS_TOO_LONG = 28,
    /// The session's packet counters are exhausted.
    PACKETLANE_EXHAUSTED = 29,
    /// A message type is not 1 to 12 printable ASCII characters.
    PACKETLANE_MESSAGE_TYPE = 30,
    /// The secret key is zero or not below the order of secp256k1.
    PACKETLANE_SECRET_KEY = 31,
    /// More than 4095 bytes of garbage.
    PACKETLANE_GARBAGE_TOO_LONG = 32,
    /// The operating system returned no random bytes.
    PACKETLANE_NO_ENTROPY = 33,
    /// No backend has that name.
    PACKETLANE_BACKEND_UNKNOWN = 34,
    /// This CPU lacks that backend's instructions.
    PACKETLANE_BACKEND_UNAVAILABLE = 35,
    /// The magic was not set: it is 00000000, which no network uses.
    PACKETLANE_ZERO_MAGIC = 36,

    /// A packet's tag is wrong: it was corrupted or forged in transit. Ends a BIP324 session. A QUIC
    /// packet is dropped.
    PACKETLANE_BAD_TAG = 50,
    /// The peer announced contents above the receive limit, or a v1 payload above
    /// PACKETLANE_V1_MAX_PAYLOAD_LEN. Ends the connection.
    PACKETLANE_RECEIVE_LIMIT = 51,
    /// A BIP324 packet is too short for its header and tag. Ends the session.
    PACKETLANE_PACKET_TOO_SHORT = 52,
    /// No garbage terminator in 4111 bytes: the peer does not speak BIP324 on this network.
    PACKETLANE_NO_TERMINATOR = 53,
    /// The peer speaks v1 on another network, or another protocol.
    PACKETLANE_V1_OTHER_NETWORK = 54,
    /// The peer closed the connection during the handshake.
    PACKETLANE_CLOSED = 55,
    /// The peer closed the connection before it answered: it may speak only v1.
    PACKETLANE_CLOSED_UNANSWERED = 56,
    /// The peer answered with v1: it speaks only v1. Reconnect and speak v1.
    PACKETLANE_ANSWERED_V1 = 58,

    /// QUIC: the packet number is not greater than all earlier ones.
    PACKETLANE_QUIC_NUMBER_USED = 70,
    /// QUIC: the packet number is above 2^62 - 1.
    PACKETLANE_QUIC_NUMBER_TOO_LARGE = 71,
    /// QUIC: the header has no room for its packet number.
    PACKETLANE_QUIC_HEADER_TOO_SHORT = 72,
    /// QUIC: the header does not end with the packet number.
    PACKETLANE_QUIC_HEADER_NUMBER = 73,
    /// QUIC: the payload is too short for header protection: pad it.
    PACKETLANE_QUIC_PAYLOAD_TOO_SHORT = 74,
    /// QUIC: the key has reached its limit of sealed packets: update keys.
    PACKETLANE_QUIC_CONFIDENTIALITY_LIMIT = 75,
    /// QUIC: the packet is too short for a sample or a tag: drop it.
    PACKETLANE_QUIC_PACKET_TOO_SHORT = 76,
    /// QUIC: more packets failed to open than the keys allow: close the connection with
    /// AEAD_LIMIT_REACHED.
    PACKETLANE_QUIC_INTEGRITY_LIMIT = 77,
    /// QUIC: a reserved bit is set: close the connection with PROTOCOL_VIOLATION.
    PACKETLANE_QUIC_RESERVED_BITS = 78,
    /// QUIC: a packet used newer keys than a later one, or older keys than an earlier one: close the
    /// connection with KEY_UPDATE_ERROR.
    PACKETLANE_QUIC_KEY_UPDATE = 79,
    /// QUIC: another opener added the slot's packet.
    PACKETLANE_QUIC_OTHER_OPENER = 80,
}

use packetlane_status::*;

statuses! {
    PACKETLANE_OK = 0, c"success";
    PACKETLANE_END = 1, c"nothing left to take";
    PACKETLANE_NULL_ARGUMENT = 10, c"a handle or pointer is NULL";
    PACKETLANE_WRONG_LENGTH = 11, c"a length is not what the function requires";
    PACKETLANE_WRONG_VALUE = 12, c"an integer is not a value of its enum";
    PACKETLANE_PANIC = 13, c"a bug in the library, or a slot that did not come from it";
    PACKETLANE_POISONED = 14, c"an earlier call on the handle hit a bug in the library";
    PACKETLANE_OTHER = 15, c"an error that has no number in this version of the interface";
    PACKETLANE_NOT_READY = 20, c"the handshake is not complete, or its session was already taken";
    PACKETLANE_ENDED = 21, c"the handshake has ended and accepts no more bytes";
    PACKETLANE_STALE_SLOT = 22, c"the slot belongs to an earlier turn of the batch, or to another batch";
    PACKETLANE_NOT_SEALED = 23, c"the slot's packets are not sealed yet";
    PACKETLANE_NOT_OPENED = 24, c"the packets are not opened yet";
    PACKETLANE_NOT_IN_BATCH = 25, c"the session's packets are not in this batch";
    PACKETLANE_SEVERAL_PACKETS = 26, c"the slot covers several packets";
    PACKETLANE_BATCH_FULL = 27, c"the batch is full";
    PACKETLANE_CONTENTS_TOO_LONG = 28, c"the contents are too long for a packet or message";
    PACKETLANE_EXHAUSTED = 29, c"the session's packet counters are exhausted";
    PACKETLANE_MESSAGE_TYPE = 30, c"a message type is not 1 to 12 printable ASCII characters";
    PACKETLANE_SECRET_KEY = 31, c"the secret key is zero or not below the order of secp256k1";
    PACKETLANE_GARBAGE_TOO_LONG = 32, c"more than 4095 bytes of garbage";
    PACKETLANE_NO_ENTROPY = 33, c"the operating system returned no random bytes";
    PACKETLANE_BACKEND_UNKNOWN = 34, c"no backend has that name";
    PACKETLANE_BACKEND_UNAVAILABLE = 35, c"this CPU lacks that backend's instructions";
    PACKETLANE_ZERO_MAGIC = 36, c"the magic was not set: it is 00000000, which no network uses";
    PACKETLANE_BAD_TAG = 50, c"a packet's tag is wrong: it was corrupted or forged in transit";
    PACKETLANE_RECEIVE_LIMIT = 51, c"the peer announced contents above the receive limit";
    PACKETLANE_PACKET_TOO_SHORT = 52, c"a packet is too short for its header and tag";
    PACKETLANE_NO_TERMINATOR = 53, c"the peer does not speak BIP324 on this network";
    PACKETLANE_V1_OTHER_NETWORK = 54, c"the peer speaks v1 on another network";
    PACKETLANE_CLOSED = 55, c"the peer closed the connection during the handshake";
    PACKETLANE_CLOSED_UNANSWERED = 56, c"the peer closed the connection before it answered: it may speak only v1";
    PACKETLANE_ANSWERED_V1 = 58, c"the peer answered with v1: it speaks only v1";
    PACKETLANE_QUIC_NUMBER_USED = 70, c"the packet number is not greater than all earlier ones";
    PACKETLANE_QUIC_NUMBER_TOO_LARGE = 71, c"the packet number is above 2^62 - 1";
    PACKETLANE_QUIC_HEADER_TOO_SHORT = 72, c"the header has no room for its packet number";
    PACKETLANE_QUIC_HEADER_NUMBER = 73, c"the header does not end with the packet number";
    PACKETLANE_QUIC_PAYLOAD_TOO_SHORT = 74, c"the payload is too short for header protection: pad it";
    PACKETLANE_QUIC_CONFIDENTIALITY_LIMIT = 75, c"the key has reached its limit of sealed packets: update keys";
    PACKETLANE_QUIC_PACKET_TOO_SHORT = 76, c"the packet is too short for a sample or a tag";
    PACKETLANE_QUIC_INTEGRITY_LIMIT = 77, c"more packets failed to open than the keys allow: close the connection";
    PACKETLANE_QUIC_RESERVED_BITS = 78, c"a reserved bit is set: close the connection";
    PACKETLANE_QUIC_KEY_UPDATE = 79, c"keys and packet numbers are out of order: close the connection";
    PACKETLANE_QUIC_OTHER_OPENER = 80, c"another opener added the slot's packet";
}

/// A short description of a status, as a static string. "unknown status" for any other number.
#[unsafe(no_mangle)]
pub extern "C" fn packetlane_status_message(status: c_int) -> *const c_char {
    let known = MESSAGES.iter().find(|(number, _)| *number == status);
    known
        .map_or(c"unknown status", |(_, message)| *message)
        .as_ptr()
}

/// Describes the last failed call of this thread in at most 255 characters, with the values involved:
/// "contents of 20000000 bytes do not fit a packet, which carries at most 16777215". Empty if no call
/// has failed. The string is valid until the next failed call of this thread. It never contains a key
/// or contents.
#[unsafe(no_mangle)]
pub extern "C" fn packetlane_error_message() -> *const c_char {
    // Thread-local storage is gone while the thread exits.
    let message = LAST.try_with(|last| last.as_ptr().cast_const().cast::<c_char>());
    message.unwrap_or(c"".as_ptr())
}

thread_local! {
    static LAST: RefCell<[u8; MESSAGE_LEN]> = const { RefCell::new([0; MESSAGE_LEN]) };
}

/// Why a call failed. Creating one sets the message that `packetlane_error_message` returns.
#[derive(Debug)]
pub(crate) struct Error(packetlane_status);

impl Error {
    /// An error with a message more specific than its status.
    #[cold]
    pub(crate) fn new(status: packetlane_status, message: impl Display) -> Self {
        let mut words = [0; MESSAGE_LEN];
        // Truncated if it is too long.
        let _ = write!(&mut words[..MESSAGE_LEN - 1], "{message}");
        // Thread-local storage is gone while the thread exits, when nobody can ask for it.
        let _ = LAST.try_with(|last| *last.borrow_mut() = words);
        Self(status)
    }

    pub(crate) fn status(self) -> packetlane_status {
        self.0
    }
}

/// An error with the status's own message.
impl From<packetlane_status> for Error {
    #[cold]
    fn from(status: packetlane_status) -> Self {
        let known = MESSAGES.iter().find(|entry| entry.0 == status as c_int);
        let message = known.map_or(c"", |entry| entry.1);
        Self::new(status, message.to_string_lossy())
    }
}

/// Converts an error of the library, keeping its message.
macro_rules! from {
    ($error:ty: $($pattern:pat => $status:expr),* $(,)?) => {
        impl From<$error> for Error {
            #[cold]
            fn from(error: $error) -> Self {
                #[allow(unreachable_patterns, reason = "some of these enums may grow")]
                let status = match &error {
                    $($pattern => $status,)*
                    _ => PACKETLANE_OTHER,
                };
                Self::new(status, error)
            }
        }
    };
}

from!(BackendError:
    BackendError::Unknown(_) | BackendError::VariableUnknown(_) => PACKETLANE_BACKEND_UNKNOWN,
    BackendError::Unavailable(_) | BackendError::VariableUnavailable(_) => PACKETLANE_BACKEND_UNAVAILABLE,
);
from!(SlotError:
    SlotError::Stale => PACKETLANE_STALE_SLOT,
    SlotError::NotSealed => PACKETLANE_NOT_SEALED,
    SlotError::NotOpened => PACKETLANE_NOT_OPENED,
    SlotError::BadTag => PACKETLANE_BAD_TAG,
    SlotError::SeveralPackets => PACKETLANE_SEVERAL_PACKETS,
);
from!(SealError: error => seal_status(*error));
from!(OpenError: error => open_status(*error));
from!(HandshakeError:
    HandshakeError::ZeroMagic => PACKETLANE_ZERO_MAGIC,
    HandshakeError::GarbageTooLong { .. } => PACKETLANE_GARBAGE_TOO_LONG,
    HandshakeError::SecretKey => PACKETLANE_SECRET_KEY,
    HandshakeError::Seal(error) => seal_status(*error),
    HandshakeError::NoEntropy => PACKETLANE_NO_ENTROPY,
    HandshakeError::V1OtherNetwork { .. } => PACKETLANE_V1_OTHER_NETWORK,
    HandshakeError::NoTerminator => PACKETLANE_NO_TERMINATOR,
    HandshakeError::Open(error) => open_status(*error),
    HandshakeError::ClosedUnanswered => PACKETLANE_CLOSED_UNANSWERED,
    HandshakeError::AnsweredV1 => PACKETLANE_ANSWERED_V1,
    HandshakeError::Closed => PACKETLANE_CLOSED,
    HandshakeError::Ended => PACKETLANE_ENDED,
);
from!(MessageError: _ => PACKETLANE_MESSAGE_TYPE);
from!(v1::Error:
    v1::Error::Magic { .. } => PACKETLANE_V1_OTHER_NETWORK,
    v1::Error::TooLong { .. } => PACKETLANE_RECEIVE_LIMIT,
);
from!(quic::KeyLenError: _ => PACKETLANE_WRONG_LENGTH);
from!(quic::SealError:
    quic::SealError::PacketNumberUsed { .. } => PACKETLANE_QUIC_NUMBER_USED,
    quic::SealError::PacketNumberTooLarge { .. } => PACKETLANE_QUIC_NUMBER_TOO_LARGE,
    quic::SealError::HeaderTooShort { .. } => PACKETLANE_QUIC_HEADER_TOO_SHORT,
    quic::SealError::HeaderNumber { .. } => PACKETLANE_QUIC_HEADER_NUMBER,
    quic::SealError::TooShort { .. } => PACKETLANE_QUIC_PAYLOAD_TOO_SHORT,
    quic::SealError::ConfidentialityLimit => PACKETLANE_QUIC_CONFIDENTIALITY_LIMIT,
    quic::SealError::BatchFull => PACKETLANE_BATCH_FULL,
);
from!(quic::OpenError:
    quic::OpenError::TooShort | quic::OpenError::NoTag => PACKETLANE_QUIC_PACKET_TOO_SHORT,
    quic::OpenError::BadTag { .. } => PACKETLANE_BAD_TAG,
    quic::OpenError::IntegrityLimit { .. } => PACKETLANE_QUIC_INTEGRITY_LIMIT,
    quic::OpenError::ReservedBits { .. } => PACKETLANE_QUIC_RESERVED_BITS,
    quic::OpenError::NewKeysBeforeOld { .. } | quic::OpenError::OldKeysAfterNew { .. } => PACKETLANE_QUIC_KEY_UPDATE,
    quic::OpenError::NotOpened => PACKETLANE_NOT_OPENED,
    quic::OpenError::NotInBatch => PACKETLANE_STALE_SLOT,
    quic::OpenError::OtherOpener => PACKETLANE_QUIC_OTHER_OPENER,
    quic::OpenError::SeveralPackets => PACKETLANE_SEVERAL_PACKETS,
);

fn seal_status(error: SealError) -> packetlane_status {
    match error {
        SealError::TooLong { .. } => PACKETLANE_CONTENTS_TOO_LONG,
        SealError::BatchFull => PACKETLANE_BATCH_FULL,
        SealError::Exhausted => PACKETLANE_EXHAUSTED,
        SealError::Stale => PACKETLANE_STALE_SLOT,
        _ => PACKETLANE_OTHER,
    }
}

fn open_status(error: OpenError) -> packetlane_status {
    match error {
        OpenError::TooLong { .. } => PACKETLANE_RECEIVE_LIMIT,
        OpenError::TooShort { .. } => PACKETLANE_PACKET_TOO_SHORT,
        OpenError::BadTag { .. } => PACKETLANE_BAD_TAG,
        OpenError::BatchFull => PACKETLANE_BATCH_FULL,
        OpenError::Exhausted => PACKETLANE_EXHAUSTED,
        OpenError::NotOpened => PACKETLANE_NOT_OPENED,
        OpenError::NotInBatch => PACKETLANE_NOT_IN_BATCH,
        _ => PACKETLANE_OTHER,
    }
}
