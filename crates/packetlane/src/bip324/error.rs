//! Why a packet cannot be sealed or opened.

use super::packet::MAX_CONTENTS_LEN;
use crate::arena::{BatchFull, SlotError};
use core::fmt;

/// The counters of a direction are spent, after 224 * 2^64 packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the packet counters of this session are spent: make a new connection")
    }
}

impl core::error::Error for Exhausted {}

/// Why a packet cannot be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SealError {
    /// The contents are longer than the format can say.
    TooLong {
        /// Length of the contents, in bytes.
        length: usize,
    },
    /// The batch has no room left: seal it, send it and clear it first.
    BatchFull,
    /// The packet counters are spent, after 224 * 2^64 packets.
    Exhausted,
    /// The batch was cleared, or is another one than when the packet was begun. Only where a packet is
    /// added in two steps, as by the functions for C.
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

/// Why the receiving half of a session has ended.
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
    /// A packet without its length is shorter than header byte and tag, which are 17 bytes.
    TooShort {
        /// Its length, in bytes.
        length: usize,
    },
    /// A packet's tag is wrong: it was damaged or forged on its way.
    BadTag {
        /// Which packet since the last rekey, from 0 on.
        packet: u32,
        /// How many rekeys came before it. Packet number `224 * epoch + packet` of its
        /// direction is the one, counting the version packet and decoys.
        epoch: u64,
    },
    /// The batch has no room left for a packet: receive fewer bytes in a turn.
    BatchFull,
    /// The packet counters are spent, after 224 * 2^64 packets.
    Exhausted,
    /// The caller took packets of a batch before it was opened. They still wait in it.
    NotOpened,
    /// The batch does not hold the session's packets: it is another one, or was cleared
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
                "a packet of {length} bytes is too short: header byte and tag take 17"
            ),
            Self::BadTag { packet, epoch } => write!(
                f,
                "the tag of packet {packet} after rekey {epoch} is wrong: it was damaged or \
                 forged on its way; drop the connection"
            ),
            Self::BatchFull => write!(f, "{BatchFull}, or receive less in one turn"),
            Self::Exhausted => Exhausted.fmt(f),
            Self::NotOpened => {
                f.write_str("the packets are not opened: open their batch before taking them")
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
