//! Why a call did not do what it should, as a number and in words.

use core::cell::RefCell;
use core::ffi::{CStr, c_char, c_int};
use core::fmt::Display;
use packetlane::bip324::{HandshakeError, OpenError, SealError};
use packetlane::bitcoin::message::MessageError;
use packetlane::bitcoin::v1;
use packetlane::{BackendError, SlotError, quic};
use std::io::Write;

/// Room for the words about the last error of a thread, with the zero at their end.
const MESSAGE_LEN: usize = 256;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $message:literal;)*) => {
        /// The status with this number, and what it is in words.
        const MESSAGES: &[(c_int, &CStr)] = &[$(($number, $message)),*];
        // That the table has every status, under its own number.
        const _: () = { $(assert!(packetlane_status::$name as c_int == $number);)* };
    };
}

/// What became of a call. 0 is good, and so is PACKETLANE_END. Numbers are never given again to
/// another cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum packetlane_status {
    /// It did what it should.
    PACKETLANE_OK = 0,
    /// There is nothing more to take. No error: packetlane_error_message is as before.
    PACKETLANE_END = 1,

    /// A handle is NULL, or a pointer whose length is not zero, or one to be written through:
    /// packetlane_error_message names the argument.
    PACKETLANE_NULL_ARGUMENT = 10,
    /// A length is not what the function asks for, or more than the last room.
    PACKETLANE_WRONG_LENGTH = 11,
    /// An integer has none of the values of its enum.
    PACKETLANE_WRONG_VALUE = 12,
    /// The library has a fault, which packetlane_error_message describes: please report it. Or a
    /// slot is none that the library gave. The handles that the call could change are poisoned.
    PACKETLANE_PANIC = 13,
    /// An earlier call on this handle returned PACKETLANE_PANIC. It can only be freed.
    PACKETLANE_POISONED = 14,
    /// An error that this version of the interface has no number for.
    PACKETLANE_OTHER = 15,

    /// The handshake is not complete, or its session has been taken.
    PACKETLANE_NOT_READY = 20,
    /// The handshake has ended: it takes no more bytes.
    PACKETLANE_ENDED = 21,
    /// The slot is of an earlier turn of the batch, or of another batch.
    PACKETLANE_STALE_SLOT = 22,
    /// Packets of the slot are not sealed: plaintext must not reach a socket.
    PACKETLANE_NOT_SEALED = 23,
    /// The packets are not opened yet. They still wait in the batch.
    PACKETLANE_NOT_OPENED = 24,
    /// The session's packets are not in this batch: it is another one, or was cleared before they
    /// were taken or deferred. In packetlane_session_received this ends the session.
    PACKETLANE_NOT_IN_BATCH = 25,
    /// The slot is of several packets, of which each has its own outcome.
    PACKETLANE_SEVERAL_PACKETS = 26,
    /// The batch has no room left. In packetlane_session_received this ends the session.
    PACKETLANE_BATCH_FULL = 27,
    /// The contents do not fit a packet, which carries at most 16,777,215 bytes; or a payload has more
    /// than PACKETLANE_V1_MAX_PAYLOAD_LEN bytes, for v1.
    PACKETLANE_CONTENTS_TOO_LONG = 28,
    /// The packet counters of the session are spent.
    PACKETLANE_EXHAUSTED = 29,
    /// The type of a message is not 1 to 12 printable ASCII characters.
    PACKETLANE_MESSAGE_TYPE = 30,
    /// The secret key is zero or not below the order of secp256k1.
    PACKETLANE_SECRET_KEY = 31,
    /// More than 4095 bytes of garbage.
    PACKETLANE_GARBAGE_TOO_LONG = 32,
    /// The operating system gave no random bytes.
    PACKETLANE_NO_ENTROPY = 33,
    /// There is no backend of that name.
    PACKETLANE_BACKEND_UNKNOWN = 34,
    /// This CPU lacks the instructions of that backend.
    PACKETLANE_BACKEND_UNAVAILABLE = 35,
    /// The magic is 00000000, which is no network's: it was not set.
    PACKETLANE_ZERO_MAGIC = 36,

    /// A packet's tag is wrong: it was damaged or forged on its way. Ends a session of BIP324. A
    /// packet of QUIC is dropped.
    PACKETLANE_BAD_TAG = 50,
    /// The peer announced contents above the receive limit, or a payload of v1 above
    /// PACKETLANE_V1_MAX_PAYLOAD_LEN. Ends the connection.
    PACKETLANE_RECEIVE_LIMIT = 51,
    /// A packet of BIP324 is too short for its header and tag. Ends the session.
    PACKETLANE_PACKET_TOO_SHORT = 52,
    /// Not the garbage terminator in 4111 bytes: the peer does not speak BIP324 on this network.
    PACKETLANE_NO_TERMINATOR = 53,
    /// The peer speaks v1 on another network, or something else than v1.
    PACKETLANE_V1_OTHER_NETWORK = 54,
    /// The peer closed the connection during the handshake.
    PACKETLANE_CLOSED = 55,
    /// The peer closed the connection before it answered: it may speak v1 only.
    PACKETLANE_CLOSED_UNANSWERED = 56,
    /// The peer answered by v1: it speaks v1 only. Connect again and speak v1.
    PACKETLANE_ANSWERED_V1 = 58,

    /// QUIC: the packet number is not above those before it.
    PACKETLANE_QUIC_NUMBER_USED = 70,
    /// QUIC: the packet number is above 2^62 - 1.
    PACKETLANE_QUIC_NUMBER_TOO_LARGE = 71,
    /// QUIC: the header has no room for its packet number.
    PACKETLANE_QUIC_HEADER_TOO_SHORT = 72,
    /// QUIC: the header does not end in the packet number.
    PACKETLANE_QUIC_HEADER_NUMBER = 73,
    /// QUIC: the payload is too short for header protection: pad it.
    PACKETLANE_QUIC_PAYLOAD_TOO_SHORT = 74,
    /// QUIC: the key has sealed as many packets as it may: update keys.
    PACKETLANE_QUIC_CONFIDENTIALITY_LIMIT = 75,
    /// QUIC: the packet is too short to have a sample, or a tag: drop it.
    PACKETLANE_QUIC_PACKET_TOO_SHORT = 76,
    /// QUIC: more packets failed to open than keys allow: end the connection with
    /// AEAD_LIMIT_REACHED.
    PACKETLANE_QUIC_INTEGRITY_LIMIT = 77,
    /// QUIC: a reserved bit is set: end the connection with PROTOCOL_VIOLATION.
    PACKETLANE_QUIC_RESERVED_BITS = 78,
    /// QUIC: new keys for a lower packet number than older keys, or the other way round: end the
    /// connection with KEY_UPDATE_ERROR.
    PACKETLANE_QUIC_KEY_UPDATE = 79,
    /// QUIC: the slot is of a packet that another opener added.
    PACKETLANE_QUIC_OTHER_OPENER = 80,
}

use packetlane_status::*;

statuses! {
    PACKETLANE_OK = 0, c"it did what it should";
    PACKETLANE_END = 1, c"there is nothing more to take";
    PACKETLANE_NULL_ARGUMENT = 10, c"a handle or pointer is NULL";
    PACKETLANE_WRONG_LENGTH = 11, c"a length is not what the function asks for";
    PACKETLANE_WRONG_VALUE = 12, c"an integer has none of the values of its enum";
    PACKETLANE_PANIC = 13, c"the library has a fault, or a slot is none that it gave";
    PACKETLANE_POISONED = 14, c"an earlier call on the handle met a fault of the library";
    PACKETLANE_OTHER = 15, c"an error that this version of the interface has no number for";
    PACKETLANE_NOT_READY = 20, c"the handshake is not complete, or its session has been taken";
    PACKETLANE_ENDED = 21, c"the handshake has ended: it takes no more bytes";
    PACKETLANE_STALE_SLOT = 22, c"the slot is of an earlier turn of the batch, or of another batch";
    PACKETLANE_NOT_SEALED = 23, c"packets of the slot are not sealed";
    PACKETLANE_NOT_OPENED = 24, c"the packets are not opened yet";
    PACKETLANE_NOT_IN_BATCH = 25, c"the session's packets are not in this batch";
    PACKETLANE_SEVERAL_PACKETS = 26, c"the slot is of several packets";
    PACKETLANE_BATCH_FULL = 27, c"the batch has no room left";
    PACKETLANE_CONTENTS_TOO_LONG = 28, c"the contents do not fit a packet or message";
    PACKETLANE_EXHAUSTED = 29, c"the packet counters of the session are spent";
    PACKETLANE_MESSAGE_TYPE = 30, c"the type of a message is not 1 to 12 printable ASCII characters";
    PACKETLANE_SECRET_KEY = 31, c"the secret key is not one of secp256k1";
    PACKETLANE_GARBAGE_TOO_LONG = 32, c"more than 4095 bytes of garbage";
    PACKETLANE_NO_ENTROPY = 33, c"the operating system gave no random bytes";
    PACKETLANE_BACKEND_UNKNOWN = 34, c"there is no backend of that name";
    PACKETLANE_BACKEND_UNAVAILABLE = 35, c"this CPU lacks the instructions of that backend";
    PACKETLANE_ZERO_MAGIC = 36, c"the magic is 00000000, which is no network's";
    PACKETLANE_BAD_TAG = 50, c"a packet's tag is wrong: it was damaged or forged on its way";
    PACKETLANE_RECEIVE_LIMIT = 51, c"the peer announced contents above the receive limit";
    PACKETLANE_PACKET_TOO_SHORT = 52, c"a packet is too short for its header and tag";
    PACKETLANE_NO_TERMINATOR = 53, c"the peer does not speak BIP324 on this network";
    PACKETLANE_V1_OTHER_NETWORK = 54, c"the peer speaks v1 on another network";
    PACKETLANE_CLOSED = 55, c"the peer closed the connection during the handshake";
    PACKETLANE_CLOSED_UNANSWERED = 56, c"the peer closed the connection before it answered: it may speak v1 only";
    PACKETLANE_ANSWERED_V1 = 58, c"the peer answered by v1: it speaks v1 only";
    PACKETLANE_QUIC_NUMBER_USED = 70, c"the packet number is not above those before it";
    PACKETLANE_QUIC_NUMBER_TOO_LARGE = 71, c"the packet number is above 2^62 - 1";
    PACKETLANE_QUIC_HEADER_TOO_SHORT = 72, c"the header has no room for its packet number";
    PACKETLANE_QUIC_HEADER_NUMBER = 73, c"the header does not end in the packet number";
    PACKETLANE_QUIC_PAYLOAD_TOO_SHORT = 74, c"the payload is too short for header protection: pad it";
    PACKETLANE_QUIC_CONFIDENTIALITY_LIMIT = 75, c"the key has sealed as many packets as it may: update keys";
    PACKETLANE_QUIC_PACKET_TOO_SHORT = 76, c"the packet is too short to have a sample, or a tag";
    PACKETLANE_QUIC_INTEGRITY_LIMIT = 77, c"more packets failed to open than keys allow: end the connection";
    PACKETLANE_QUIC_RESERVED_BITS = 78, c"a reserved bit is set: end the connection";
    PACKETLANE_QUIC_KEY_UPDATE = 79, c"keys and packet numbers are in no order: end the connection";
    PACKETLANE_QUIC_OTHER_OPENER = 80, c"the slot is of a packet that another opener added";
}

/// What a status is, in a few words: a string that stays. "unknown status" for any other number.
#[unsafe(no_mangle)]
pub extern "C" fn packetlane_status_message(status: c_int) -> *const c_char {
    let known = MESSAGES.iter().find(|(number, _)| *number == status);
    known
        .map_or(c"unknown status", |(_, message)| *message)
        .as_ptr()
}

/// What was wrong in the last call of this thread that failed, with its figures, in at most 255
/// characters: "contents of 20000000 bytes do not fit a packet, which carries at most 16777215". The
/// string is valid until the next call of this thread that fails. Empty if none has. It never
/// holds a key or contents.
#[unsafe(no_mangle)]
pub extern "C" fn packetlane_error_message() -> *const c_char {
    // Not there while the thread ends.
    let message = LAST.try_with(|last| last.as_ptr().cast_const().cast::<c_char>());
    message.unwrap_or(c"".as_ptr())
}

thread_local! {
    static LAST: RefCell<[u8; MESSAGE_LEN]> = const { RefCell::new([0; MESSAGE_LEN]) };
}

/// Why a call failed. `packetlane_error_message` has the words from the moment on in which it is made.
#[derive(Debug)]
pub(crate) struct Error(packetlane_status);

impl Error {
    /// With words that say more than the status.
    #[cold]
    pub(crate) fn new(status: packetlane_status, message: impl Display) -> Self {
        let mut words = [0; MESSAGE_LEN];
        // Cut if there is no room.
        let _ = write!(&mut words[..MESSAGE_LEN - 1], "{message}");
        // Not there while the thread ends: nobody can ask then.
        let _ = LAST.try_with(|last| *last.borrow_mut() = words);
        Self(status)
    }

    pub(crate) fn status(self) -> packetlane_status {
        self.0
    }
}

/// With the words of the status itself.
impl From<packetlane_status> for Error {
    #[cold]
    fn from(status: packetlane_status) -> Self {
        let known = MESSAGES.iter().find(|entry| entry.0 == status as c_int);
        let message = known.map_or(c"", |entry| entry.1);
        Self::new(status, message.to_string_lossy())
    }
}

/// An error of the library as a status, with its own words.
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
