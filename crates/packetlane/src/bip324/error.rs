//! Errors of handshakes, and of sealing and opening packets.

use super::packet::{MAX_CONTENTS_LEN, MAX_GARBAGE_LEN, TERMINATOR_LEN};
use crate::arena::{BatchFull, SlotError};
use crate::bitcoin::Network;
use core::fmt;

/// The packet counters of one direction are exhausted, after 224 * 2^64 packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exhausted;

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the packet counters of this session are exhausted: open a new connection")
    }
}

/// Why a packet cannot be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SealError {
    /// The contents exceed the format's maximum,
    /// [`Session::MAX_CONTENTS_LEN`](super::Session::MAX_CONTENTS_LEN).
    TooLong {
        /// Length of the contents, in bytes.
        length: usize,
    },
    /// The batch is full: seal, send and clear it first.
    BatchFull,
    /// The packet counters are exhausted, after 224 * 2^64 packets.
    Exhausted,
    /// The batch was cleared since the packet was begun, or is a different batch. Occurs only where
    /// a packet is added in two steps, as in the C API.
    Stale,
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { length } => write!(
                f,
                "contents of {length} bytes do not fit a packet, which carries at most \
                 {MAX_CONTENTS_LEN}"
            ),
            Self::BatchFull => BatchFull.fmt(f),
            Self::Exhausted => Exhausted.fmt(f),
            Self::Stale => SlotError::Stale.fmt(f),
        }
    }
}

impl core::error::Error for SealError {}

impl From<Exhausted> for SealError {
    fn from(Exhausted: Exhausted) -> Self {
        Self::Exhausted
    }
}

/// Why the receiving half of a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The peer announced contents longer than the receive limit.
    TooLong {
        /// The length that the peer announced, in bytes.
        length: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// A packet, without its length field, is shorter than the header byte and the tag (17 bytes).
    TooShort {
        /// Its length, in bytes.
        length: usize,
    },
    /// The packet's tag is wrong: the packet was damaged or forged.
    BadTag {
        /// Index of the packet since the last rekey, from 0.
        packet: u32,
        /// Number of rekeys before it. The packet is number `224 * epoch + packet` of its
        /// direction, counted from 0, including the version packet and decoys.
        epoch: u64,
    },
    /// The batch has no room for another packet: receive fewer bytes per turn.
    BatchFull,
    /// The packet counters are exhausted, after 224 * 2^64 packets.
    Exhausted,
    /// Packets were taken before their batch was opened. They remain in the batch.
    NotOpened,
    /// The batch does not hold the session's packets: it is a different batch, or was cleared
    /// before they were taken or deferred.
    NotInBatch,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { length, limit } => write!(
                f,
                "the peer announced a packet of {length} bytes; the receive limit is {limit}"
            ),
            Self::TooShort { length } => write!(
                f,
                "a packet of {length} bytes is too short: the header byte and the tag take 17"
            ),
            Self::BadTag { packet, epoch } => write!(
                f,
                "the tag of packet {packet} after rekey {epoch} is wrong: the packet was damaged or \
                 forged; close the connection"
            ),
            Self::BatchFull => write!(f, "{BatchFull}, or receive less per turn"),
            Self::Exhausted => Exhausted.fmt(f),
            Self::NotOpened => {
                f.write_str("the packets have not been opened: open their batch before taking them")
            }
            Self::NotInBatch => f.write_str(
                "the session's packets are not in this batch: take or defer them before \
                 the batch is cleared, from the batch that received them",
            ),
        }
    }
}

impl core::error::Error for OpenError {}

impl From<Exhausted> for OpenError {
    fn from(Exhausted: Exhausted) -> Self {
        Self::Exhausted
    }
}

/// Why a handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The configuration's magic is 00000000, which no network uses.
    ZeroMagic,
    /// The configuration has more than [`Handshake::MAX_GARBAGE_LEN`](super::Handshake::MAX_GARBAGE_LEN) bytes of garbage.
    GarbageTooLong {
        /// Length of that garbage, in bytes.
        length: usize,
    },
    /// The secret is not a valid secp256k1 secret key: it is zero or not below the group order.
    SecretKey,
    /// A decoy or the version packet of the configuration cannot be sealed.
    Seal(SealError),
    /// The operating system returned no random bytes.
    NoEntropy,
    /// The peer speaks v1, with the magic of another network.
    V1OtherNetwork {
        /// The magic that it sent.
        magic: [u8; 4],
    },
    /// No garbage terminator in the first 4111 bytes after the peer's key: the peer sent too much
    /// garbage, or does not speak BIP324 on this network.
    NoTerminator,
    /// A packet from the peer cannot be opened. If it is the first packet, the peer's key or
    /// garbage may have been altered in transit.
    Open(OpenError),
    /// Initiator: the peer closed the connection before it sent anything. It [may support v1
    /// only](HandshakeError::may_speak_v1).
    ClosedUnanswered,
    /// Initiator: the peer answered with the first message of v1. It [supports v1
    /// only](HandshakeError::may_speak_v1).
    AnsweredV1,
    /// The peer closed the connection during the handshake.
    Closed,
    /// The handshake has already ended and accepts no more bytes.
    Ended,
}

impl HandshakeError {
    /// Whether the caller should reconnect with v1; see
    /// [`Handshake::may_speak_v1`](super::Handshake::may_speak_v1).
    #[must_use]
    pub fn may_speak_v1(&self) -> bool {
        matches!(self, Self::ClosedUnanswered | Self::AnsweredV1)
    }
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroMagic => f.write_str(
                "the magic is 00000000, which no network uses: set it (f9beb4d9 is mainnet's)",
            ),
            Self::GarbageTooLong { length } => write!(
                f,
                "{length} bytes of garbage are too many: the protocol allows at most {MAX_GARBAGE_LEN}"
            ),
            Self::SecretKey => f.write_str(
                "the secret key must be above zero and below the group order of secp256k1",
            ),
            Self::Seal(error) => error.fmt(f),
            Self::NoEntropy => f.write_str("the operating system returned no random bytes"),
            Self::V1OtherNetwork {
                magic: [a, b, c, d],
            } => {
                write!(f, "the peer speaks v1 on another network: its magic is ")?;
                match Network::from_magic([*a, *b, *c, *d]) {
                    Some(network) => f.write_str(network.name()),
                    None => write!(f, "{a:02x}{b:02x}{c:02x}{d:02x}"),
                }
            }
            Self::NoTerminator => write!(
                f,
                "no garbage terminator in {} bytes: the peer does not speak BIP324 on this network",
                MAX_GARBAGE_LEN + TERMINATOR_LEN
            ),
            Self::Open(error) => error.fmt(f),
            Self::ClosedUnanswered => f.write_str(
                "the peer closed the connection before it answered: it may speak v1 only",
            ),
            Self::AnsweredV1 => f.write_str("the peer answered in v1: it speaks v1 only"),
            Self::Closed => f.write_str("the peer closed the connection during the handshake"),
            Self::Ended => f.write_str("the handshake has already ended: it accepts no more bytes"),
        }
    }
}

impl core::error::Error for HandshakeError {}

impl From<SealError> for HandshakeError {
    fn from(error: SealError) -> Self {
        Self::Seal(error)
    }
}

impl From<OpenError> for HandshakeError {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}
