//! Errors of sealing and opening packets.

use super::header::{Header, HeaderError, PacketNumber};
use crate::arena::BatchFull;
use core::fmt;

/// Why a packet cannot be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SealError {
    /// The packet number is not greater than all before it.
    PacketNumberUsed {
        /// The number.
        number: u64,
        /// The smallest number that may be used next.
        next: u64,
    },
    /// The packet number is above [`PacketNumber::MAX`]: the packet numbers are exhausted, and the
    /// connection must end.
    PacketNumberTooLarge {
        /// The number.
        number: u64,
    },
    /// The header is shorter than its first byte and the packet number, whose length the first byte
    /// encodes.
    HeaderTooShort {
        /// Its length, in bytes.
        len: usize,
    },
    /// The header does not end with the low bytes of the packet number.
    HeaderNumber {
        /// The packet number that the header should end with.
        number: u64,
    },
    /// The connection ID is longer than [`Header::MAX_CONNECTION_ID_LEN`].
    ConnectionId {
        /// Its length, in bytes.
        len: usize,
    },
    /// The payload is too short for a ciphertext sample: pad it.
    TooShort {
        /// How many bytes the payload needs with this packet number: at most 3.
        needed: usize,
    },
    /// The key has reached the confidentiality limit: update keys, or end the connection.
    ConfidentialityLimit,
    /// The batch is full: seal, send and clear it first.
    BatchFull,
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PacketNumberUsed { number, next } => {
                write!(
                    f,
                    "packet number {number} has been used: the next is {next}"
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
                    "a header of {len} bytes is too short for its packet number"
                )
            }
            Self::HeaderNumber { number } => {
                write!(f, "the header does not end in packet number {number}")
            }
            Self::ConnectionId { len } => write!(
                f,
                "the connection ID has {len} bytes; the maximum is {}",
                Header::MAX_CONNECTION_ID_LEN
            ),
            Self::TooShort { needed } => write!(
                f,
                "the payload is too short for header protection: pad it to {needed} bytes"
            ),
            Self::ConfidentialityLimit => {
                f.write_str("the key has reached its confidentiality limit: update keys")
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
    /// The packet's tag is wrong: the packet was damaged or forged, or was sealed with other keys.
    /// Drop it.
    BadTag {
        /// The packet number in the header; not authenticated.
        number: u64,
    },
    /// The packet's tag is wrong, and the connection has exceeded
    /// [`Suite::integrity_limit`](super::Suite::integrity_limit): end it with AEAD_LIMIT_REACHED.
    IntegrityLimit {
        /// The packet number in the header; not authenticated.
        number: u64,
    },
    /// The packet is authentic but has a reserved bit set: end the connection with
    /// PROTOCOL_VIOLATION (RFC 9000, section 17).
    ReservedBits {
        /// The packet number.
        number: u64,
    },
    /// The packet is authentic and uses the next keys, but a packet with a higher number used the
    /// current ones: end the connection with KEY_UPDATE_ERROR (RFC 9001, section 6.4).
    NewKeysBeforeOld {
        /// The packet number.
        number: u64,
        /// The largest packet number that used the current keys.
        largest: u64,
    },
    /// The packet is authentic and uses keys from before a key update, but a packet with a lower
    /// number used newer ones: end the connection with KEY_UPDATE_ERROR (RFC 9001, section 6.4).
    OldKeysAfterNew {
        /// The packet number.
        number: u64,
        /// The first packet number that used the newer keys.
        first: u64,
    },
    /// The packet was taken before its batch was opened.
    NotOpened,
    /// The slot is from another turn: the batch has been cleared since, or is a different batch.
    NotInBatch,
    /// The slot belongs to a packet that another opener added.
    OtherOpener,
    /// The slot holds several packets, each with its own result.
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
                f.write_str("the packet has not been opened: open its batch before taking it")
            }
            Self::NotInBatch => f.write_str(
                "the slot is of another turn: take packets from their own batch, before \
                 it is cleared",
            ),
            Self::OtherOpener => {
                f.write_str("the slot belongs to a packet that another opener added")
            }
            Self::SeveralPackets => {
                f.write_str("the slot holds several packets: use a slot for each")
            }
        }
    }
}

impl core::error::Error for OpenError {}
