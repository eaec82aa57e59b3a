//! For the other crates of this repository (feature `internals`): what their measurements and
//! bindings need beyond the public API. The promise of the version does not cover it: it may
//! change in any release.

use crate::batch::Batch;
#[cfg(feature = "bip324")]
use crate::{
    arena::Slot,
    batch::SealBatch,
    bip324::{self, Outbound, PacketKind, SealError},
    bitcoin::message::MessageType,
};
use packetlane_lanes::{Outcome, Work};

/// Runs the packets that wait by `run`, which does what [`Engine::seal`](crate::Engine::seal) or
/// [`Engine::open`](crate::Engine::open) would: seals or opens each job of the [`Work`] in place
/// and writes its outcome. For other implementations of ChaCha20-Poly1305, to compare them with.
///
/// Where packets are few or long, a session of BIP324 may run them when they are added, and none
/// waits. With its precomputed keystream off (`set_precomputed_keystream`) all wait.
#[inline]
pub fn run_pending<Direction>(batch: &mut Batch<Direction>, run: impl FnOnce(Work<'_>)) {
    run(batch.take_pending());
}

/// The outcome of packet number `packet`, in the order in which they were added.
///
/// # Panics
///
/// If there is no such packet.
#[must_use]
pub fn outcome<Direction>(batch: &Batch<Direction>, packet: usize) -> Outcome {
    batch.outcome(packet)
}

/// A packet whose contents are being written, in a batch: [`Outbound::push_with`] in two steps,
/// for callers that have no closures.
#[cfg(feature = "bip324")]
#[derive(Debug)]
pub struct Draft(bip324::Draft);

#[cfg(feature = "bip324")]
impl Draft {
    /// Reserves the place of a packet with contents of `contents_len` bytes in the batch.
    ///
    /// # Errors
    ///
    /// See [`SealError`].
    #[inline]
    pub fn begin(
        outbound: &Outbound,
        batch: &mut SealBatch,
        contents_len: usize,
    ) -> Result<Self, SealError> {
        outbound.begin(batch, contents_len).map(Self)
    }

    /// As [`Draft::begin`], for a message, whose type is written.
    ///
    /// # Errors
    ///
    /// See [`SealError`].
    #[inline]
    pub fn begin_message(
        outbound: &Outbound,
        batch: &mut SealBatch,
        message_type: MessageType,
        payload_len: usize,
    ) -> Result<Self, SealError> {
        outbound
            .begin_message(batch, message_type, payload_len)
            .map(Self)
    }

    /// Its contents, or its payload if it is a message, for the caller to write. They show bytes
    /// of earlier turns.
    ///
    /// # Errors
    ///
    /// [`SealError::Stale`].
    #[inline]
    pub fn contents<'b>(&self, batch: &'b mut SealBatch) -> Result<&'b mut [u8], SealError> {
        self.0.contents(batch)
    }

    /// Adds the packet, whose contents are written.
    ///
    /// # Errors
    ///
    /// [`SealError::Stale`], [`SealError::Exhausted`].
    #[inline]
    pub fn commit(
        self,
        outbound: &mut Outbound,
        batch: &mut SealBatch,
        kind: PacketKind,
    ) -> Result<Slot, SealError> {
        outbound.commit(batch, kind, self.0)
    }
}
