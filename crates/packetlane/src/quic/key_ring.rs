//! The keys that a batch holds for one direction of a packet number space: those of the current key
//! phase, the previous and the next (RFC 9001, section 6).

use super::header::{self, KEY_PHASE};
use super::keys::{Aead, Cipher, HeaderKey, PacketKey, Secret};
use crate::arena::Owner;
use alloc::sync::Arc;
use packetlane_lanes::{AesKey, GcmKey, Key};

/// The keys of one direction of a packet number space, shared with the batches that hold its
/// packets.
pub(super) struct KeyRing {
    /// The owner of the packets with these keys, the same for all key updates.
    pub(super) owner: Owner,
    pub(super) header: Arc<HeaderKey>,
    pub(super) current: Arc<PacketKey>,
    /// The previous and the next keys, if any.
    pub(super) previous: Option<Arc<PacketKey>>,
    pub(super) next: Option<Arc<PacketKey>>,
    /// Number of key updates before `current`. The lowest bit is its key phase.
    pub(super) generation: u64,
    /// The first packet number that used `current`.
    pub(super) first_number: u64,
}

impl KeyRing {
    /// Creates a ring with the keys of `secret` only.
    pub(super) fn first(secret: &Secret) -> Arc<Self> {
        Arc::new(Self {
            owner: Owner::new(),
            header: Arc::new(secret.header_key()),
            current: Arc::new(secret.packet_key()),
            previous: None,
            next: None,
            generation: 0,
            first_number: 0,
        })
    }

    /// Returns the key phase of a packet with this number and this first byte of its unprotected
    /// header.
    pub(super) fn phase(&self, first: u8, number: u64) -> Phase {
        let same = (first & KEY_PHASE != 0) == (self.generation & 1 == 1);
        if same || !header::is_short(first) {
            Phase::Current
        } else if self.previous.is_some() && number < self.first_number {
            Phase::Previous
        } else {
            Phase::Next
        }
    }

    pub(super) fn packet_key(&self, phase: Phase) -> &PacketKey {
        let other = match phase {
            Phase::Previous => &self.previous,
            Phase::Current => &None,
            Phase::Next => &self.next,
        };
        other.as_ref().unwrap_or(&self.current)
    }

    pub(super) fn gcm_key(&self, phase: Phase) -> &GcmKey {
        match &self.packet_key(phase).aead {
            Aead::Gcm(keys) => &keys.key,
            Aead::ChaCha20(_) => unreachable!("the packet is in the other cipher's list"),
        }
    }

    pub(super) fn aes_key(&self, _: Phase) -> &AesKey {
        match &self.header.cipher {
            Cipher::Aes(key) => key,
            Cipher::ChaCha20(_) => unreachable!("the packet is in the other cipher's list"),
        }
    }

    pub(super) fn chacha20_key(&self, phase: Phase) -> &Key {
        match &self.packet_key(phase).aead {
            Aead::ChaCha20(keys) => &keys.key,
            Aead::Gcm(_) => unreachable!("the packet is in the other cipher's list"),
        }
    }

    pub(super) fn chacha20_header_key(&self, _: Phase) -> &Key {
        match &self.header.cipher {
            Cipher::ChaCha20(key) => key,
            Cipher::Aes(_) => unreachable!("the packet is in the other cipher's list"),
        }
    }

    #[inline]
    pub(super) fn is_aes(&self) -> bool {
        matches!(self.header.cipher, Cipher::Aes(_))
    }
}

/// A key phase, relative to the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Current,
    Previous,
    Next,
}

/// The key of a job until its window runs: the index of a [`KeyRing`] in the batch, and a key
/// phase.
#[derive(Clone, Copy)]
pub(super) struct KeyRef(pub(super) u32);

impl KeyRef {
    #[inline]
    pub(super) fn new(keys: u32, phase: Phase) -> Self {
        Self(keys << 2 | phase as u32)
    }

    #[inline]
    pub(super) fn keys(self) -> usize {
        (self.0 >> 2) as usize
    }

    #[inline]
    pub(super) fn phase(self) -> Phase {
        match self.0 & 3 {
            0 => Phase::Current,
            1 => Phase::Previous,
            _ => Phase::Next,
        }
    }
}
