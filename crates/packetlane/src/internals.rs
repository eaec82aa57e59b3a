//! Internals for the other crates of this repository (feature `internals`): what their benchmarks
//! and bindings need beyond the public API. Exempt from semantic versioning: it may change in any
//! release.

use crate::batch::Batch;
#[cfg(feature = "bip324")]
use crate::{
    arena::Slot,
    batch::SealBatch,
    bip324::{self, Outbound, PacketKind, SealError},
    bitcoin::message::MessageType,
};
use packetlane_lanes::{Outcome, Work};

/// Runs the pending packets with `run`, in place of [`Engine::seal`](crate::Engine::seal) or
/// [`Engine::open`](crate::Engine::open): `run` seals or opens each job of the [`Work`] in place
/// and writes its outcome. For comparisons with other implementations of ChaCha20-Poly1305.
///
/// In small turns, and for long packets, a BIP324 session may run packets when they are added, so
/// that none is pending. With its precomputed keystream off (`set_precomputed_keystream`), all
/// packets stay pending.
#[inline]
pub fn run_pending<Direction>(batch: &mut Batch<Direction>, run: impl FnOnce(Work<'_>)) {
    run(batch.take_pending());
}

/// Computes the secrets that keys share with the peers' encoded public keys, together.
#[cfg(feature = "bip324")]
#[must_use]
pub fn shared_secrets(
    engine: crate::Engine,
    keys: &[(
        &bip324::Keypair,
        &[u8; bip324::Keypair::ELLSWIFT_LEN],
        bip324::Role,
    )],
) -> alloc::vec::Vec<alloc::boxed::Box<zeroize::Zeroizing<[u8; 32]>>> {
    bip324::shared_secrets(engine.backend(), keys)
}

/// Returns the outcome of packet number `packet`, in the order in which they were added.
///
/// # Panics
///
/// If there is no such packet.
#[must_use]
pub fn outcome<Direction>(batch: &Batch<Direction>, packet: usize) -> Outcome {
    batch.outcome(packet)
}

/// A packet in a batch whose contents are still being written: [`Outbound::push_with`] in two
/// steps, for callers without closures.
#[cfg(feature = "bip324")]
#[derive(Debug)]
pub struct Draft(bip324::Draft);

#[cfg(feature = "bip324")]
impl Draft {
    /// Reserves space for a packet with contents of `contents_len` bytes in the batch.
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

    /// Like [`Draft::begin`], for a message; writes its type.
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

    /// Returns the space of its contents, or of its payload if it is a message, for the caller to
    /// write. It holds bytes of earlier turns.
    ///
    /// # Errors
    ///
    /// [`SealError::Stale`].
    #[inline]
    pub fn contents<'b>(&self, batch: &'b mut SealBatch) -> Result<&'b mut [u8], SealError> {
        self.0.contents(batch)
    }

    /// Adds the packet, whose contents have been written.
    ///
    /// # Errors
    ///
    /// [`SealError::Stale`] or [`SealError::Exhausted`].
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
