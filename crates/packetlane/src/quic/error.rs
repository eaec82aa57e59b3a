//! Why a packet cannot be sealed or opened.

use super::header::{Header, HeaderError, PacketNumber};
use crate::arena::BatchFull;
use core::fmt;

/// Why a packet cannot be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SealError {
    /// The packet number is not above those before it.
    PacketNumberUsed {
        /// The number.
        number: u64,
        /// The smallest that may be used.
        next: u64,
    },
    /// The packet number is above [`PacketNumber::MAX`]: the numbers are spent, and the
    /// connection must end.
    PacketNumberTooLarge {
        /// The number.
        number: u64,
    },
    /// The header is shorter than its first byte and the packet number, whose length the
    /// first byte says.
    HeaderTooShort {
        /// Its length, in bytes.
        len: usize,
    },
    /// The header does not end in the low bytes of the packet number.
    HeaderNumber {
        /// The number that it should end in.
        number: u64,
    },
    /// The connection ID is longer than [`Header::MAX_CONNECTION_ID_LEN`].
    ConnectionId {
        /// Its length, in bytes.
        len: usize,
    },
    /// The payload is too short for a sample of ciphertext: pad it.
    TooShort {
        /// How many bytes it needs with this packet number: at most 3.
        needed: usize,
    },
    /// The key has sealed as many packets as it may: update keys, or end the connection.
    ConfidentialityLimit,
    /// The batch has no room left: seal it, send it and clear it first.
    BatchFull,
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PacketNumberUsed { number, next } => {
                write!(
                    f,
                    "packet number {number} is used up: the next one is {next}"
                )
            }
            Self::PacketNumberTooLarge { number } => write!(
                f,
                "packet number {number} is above {}: end the connection",
                PacketNumber::MAX
            ),
            Self::HeaderTooShort { len } => {
                write!(
                    f,
                    "a header of {len} bytes has no room for its packet number"
                )
            }
            Self::HeaderNumber { number } => {
                write!(f, "the header does not end in packet number {number}")
            }
            Self::ConnectionId { len } => write!(
                f,
                "the connection ID has {len} bytes; {} are the most",
                Header::MAX_CONNECTION_ID_LEN
            ),
            Self::TooShort { needed } => write!(
                f,
                "the payload is too short for header protection: pad it to {needed} bytes"
            ),
            Self::ConfidentialityLimit => {
                f.write_str("the key has sealed as many packets as it may: update keys")
            }
            Self::BatchFull => BatchFull.fmt(f),
        }
    }
}

impl core::error::Error for SealError {}

/// Why a packet was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The packet is too short to have a sample. Drop it.
    TooShort,
    /// The packet is shorter than its header and a tag. Drop it.
    NoTag,
    /// The packet's tag is wrong: it was damaged or forged on its way, or has other keys.
    /// Drop it.
    BadTag {
        /// Its packet number, as its header says; nothing authenticates it.
        number: u64,
    },
    /// The packet's tag is wrong, and it was one more than
    /// [`Suite::integrity_limit`](super::Suite::integrity_limit): end the connection, with
    /// AEAD_LIMIT_REACHED.
    IntegrityLimit {
        /// Its packet number, as its header says; nothing authenticates it.
        number: u64,
    },
    /// The packet is authentic and has a reserved bit set: end the connection, with
    /// PROTOCOL_VIOLATION (RFC 9000, section 17).
    ReservedBits {
        /// Its packet number.
        number: u64,
    },
    /// The packet is authentic and has the next keys, but a packet with a higher number
    /// came with the current ones: end the connection, with KEY_UPDATE_ERROR (RFC 9001,
    /// section 6.4).
    NewKeysBeforeOld {
        /// Its packet number.
        number: u64,
        /// The largest number that came with the current keys.
        largest: u64,
    },
    /// The packet is authentic and has keys from before a key update, but a packet with a
    /// lower number came with newer ones: end the connection, with KEY_UPDATE_ERROR (RFC
    /// 9001, section 6.4).
    OldKeysAfterNew {
        /// Its packet number.
        number: u64,
        /// The first number that came with the newer keys.
        first: u64,
    },
    /// The caller took a packet before its batch was opened.
    NotOpened,
    /// The slot is of another turn: the batch has been cleared since, or is another one.
    NotInBatch,
    /// The slot is of a packet that another opener added.
    OtherOpener,
    /// The slot is of several packets, of which each has its own result.
    SeveralPackets,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort => HeaderError::TooShort.fmt(f),
            Self::NoTag => f.write_str("the packet is shorter than its header and a tag"),
            Self::BadTag { number } => write!(f, "the tag of packet {number} is wrong"),
            Self::IntegrityLimit { number } => write!(
                f,
                "the tag of packet {number} is wrong, and more packets failed to open than keys \
                 allow: end the connection"
            ),
            Self::ReservedBits { number } => {
                write!(f, "the peer has set a reserved bit in packet {number}")
            }
            Self::NewKeysBeforeOld { number, largest } => write!(
                f,
                "the peer used new keys for packet {number} and older keys for packet {largest}"
            ),
            Self::OldKeysAfterNew { number, first } => write!(
                f,
                "the peer used old keys for packet {number} and newer keys for packet {first}"
            ),
            Self::NotOpened => {
                f.write_str("the packet is not opened: open its batch before taking it")
            }
            Self::NotInBatch => f.write_str(
                "the slot is of another turn: take packets from their own batch, before \
                 it is cleared",
            ),
            Self::OtherOpener => f.write_str("the slot is of a packet that another opener added"),
            Self::SeveralPackets => {
                f.write_str("the slot is of several packets: take each by its own slot")
            }
        }
    }
}

impl core::error::Error for OpenError {}
