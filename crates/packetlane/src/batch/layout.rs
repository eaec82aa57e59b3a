//! The layout of a packet of any protocol, and received bytes.

use crate::arena::{BatchFull, BatchKey, SlotError};
use core::fmt;
use core::ops::Range;
use packetlane_lanes::{Nonce, TAG_LEN};

/// How one packet of a [`Batch`](crate::Batch) is protected. Ranges are relative to the packet's
/// first byte.
#[derive(Clone, Debug)]
pub struct PacketLayout {
    /// The key, as set by [`Batch::ensure_key`](crate::Batch::ensure_key) in this turn.
    pub key: BatchKey,
    /// The nonce, 12 bytes (RFC 8439, section 2.8). Never seal two packets with the same nonce and
    /// key.
    pub nonce: Nonce,
    /// The additional authenticated data: any bytes of the packet outside text and tag. `0..0` for
    /// none.
    pub aad: Range<usize>,
    /// The bytes to encrypt. The 16-byte tag follows them.
    pub text: Range<usize>,
}

impl PacketLayout {
    /// Checks that the layout fits a packet of `len` bytes.
    #[inline]
    pub(super) fn check(&self, len: usize) -> Result<(), AddError> {
        let Self { aad, text, .. } = self;
        if text.start > text.end || text.end > len || len - text.end < TAG_LEN {
            return Err(AddError::TextOutside {
                text: text.clone(),
                packet_len: len,
            });
        }
        let is_outside = aad.end <= text.start || aad.start >= text.end + TAG_LEN;
        if aad.start > aad.end || aad.end > len || !(aad.is_empty() || is_outside) {
            return Err(AddError::AadMisplaced {
                aad: aad.clone(),
                text: text.clone(),
                packet_len: len,
            });
        }
        Ok(())
    }
}

/// Bytes in a batch's arena that were received and do not belong to a packet yet.
#[derive(Debug)]
pub struct Received {
    pub(super) bytes: Range<usize>,
    pub(super) turn: u64,
}

impl Received {
    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps the first `len` bytes and returns the others: for a datagram or stream that holds
    /// several packets. Returns `None` if there are fewer than `len` bytes.
    #[must_use]
    pub fn split_off(&mut self, len: usize) -> Option<Received> {
        if len > self.len() {
            return None;
        }
        let bytes = self.bytes.start + len..self.bytes.end;
        self.bytes.end = bytes.start;
        let turn = self.turn;
        Some(Received { bytes, turn })
    }
}

/// Why a packet was not added to a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddError {
    /// The batch is full: it holds at most [`Batch::MAX_BYTES`](crate::Batch::MAX_BYTES) bytes.
    BatchFull,
    /// The key was not added in this turn: call [`Batch::ensure_key`](crate::Batch::ensure_key)
    /// first.
    NoKey,
    /// The received bytes belong to another turn or another batch.
    Stale,
    /// The text and its tag do not lie within the packet.
    TextOutside {
        /// The text.
        text: Range<usize>,
        /// Length of the packet, in bytes.
        packet_len: usize,
    },
    /// The AAD does not lie within the packet, or overlaps the text or its tag.
    AadMisplaced {
        /// The AAD.
        aad: Range<usize>,
        /// The text.
        text: Range<usize>,
        /// Length of the packet, in bytes.
        packet_len: usize,
    },
}

impl fmt::Display for AddError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BatchFull => BatchFull.fmt(f),
            Self::NoKey => f.write_str(
                "the key was not added to the batch in this turn: call Batch::ensure_key first",
            ),
            Self::Stale => SlotError::Stale.fmt(f),
            Self::TextOutside { text, packet_len } => write!(
                f,
                "text {text:?} and its tag do not fit in a packet of {packet_len} bytes"
            ),
            Self::AadMisplaced {
                aad,
                text,
                packet_len,
            } => write!(
                f,
                "AAD {aad:?} overlaps text {text:?} or its tag, or exceeds the {packet_len} bytes of the packet"
            ),
        }
    }
}

impl core::error::Error for AddError {}
