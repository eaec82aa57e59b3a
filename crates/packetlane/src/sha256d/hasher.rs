//! Many messages hashed at once, on a backend.

use crate::engine::{BackendError, Engine};
use core::num::NonZeroUsize;
use once_cell::race::OnceNonZeroUsize;
use packetlane_lanes::Backend;

/// A digest of SHA-256: 32 bytes in the order in which the hash function gives
/// them. (Block explorers show hashes of Bitcoin in the opposite order.)
pub type Hash = packetlane_lanes::Digest;

/// [`Hasher::many`] on the most capable backend of this CPU.
///
/// # Panics
///
/// Unless there are as many `digests` as `messages`.
pub fn many(messages: &[&[u8]], digests: &mut [Hash]) {
    Hasher::best().many(messages, digests);
}

/// [`Hasher::many_in_pieces`] on the most capable backend of this CPU.
///
/// # Panics
///
/// Unless there are as many `digests` as `messages`.
pub fn many_in_pieces(messages: &[[&[u8]; 3]], digests: &mut [Hash]) {
    Hasher::best().many_in_pieces(messages, digests);
}

/// [`Hasher::many_single`] on the most capable backend of this CPU.
///
/// # Panics
///
/// Unless there are as many `digests` as `messages`.
pub fn many_single(messages: &[&[u8]], digests: &mut [Hash]) {
    Hasher::best().many_single(messages, digests);
}

/// [`Hasher::hash64`] on the most capable backend of this CPU.
///
/// # Panics
///
/// Unless there are as many `digests` as `pairs`.
pub fn hash64(pairs: &[[u8; 64]], digests: &mut [Hash]) {
    Hasher::best().hash64(pairs, digests);
}

/// Hashes on one backend. Cheap to copy. Digests are the same on every backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hasher {
    backend: Backend,
}

/// As [`Hasher::best`].
impl Default for Hasher {
    fn default() -> Self {
        Self::best()
    }
}

impl Hasher {
    /// The hasher for this CPU, on the backend that [`Engine::detect`] takes.
    ///
    /// # Errors
    ///
    /// As [`Engine::detect`]: if `PACKETLANE_BACKEND` names no backend of this build, or one
    /// that this CPU lacks.
    pub fn detect() -> Result<Self, BackendError> {
        let backend = Engine::detect()?.backend();
        Ok(Self { backend })
    }

    /// The hasher on the most capable backend of this CPU, whatever `PACKETLANE_BACKEND`
    /// says. The CPU is asked once in a process.
    #[must_use]
    pub fn best() -> Self {
        // One more than its place among all backends.
        static BEST: OnceNonZeroUsize = OnceNonZeroUsize::new();
        let number = BEST.get_or_init(|| {
            let best = Engine::best().backend();
            let place = Backend::ALL.iter().position(|&backend| backend == best);
            NonZeroUsize::MIN.saturating_add(place.unwrap_or(0))
        });
        let backend = Backend::ALL[number.get() - 1];
        Self { backend }
    }

    /// The hasher on `backend`.
    ///
    /// # Panics
    ///
    /// If this CPU lacks it ([`Backend::is_available`]).
    #[must_use]
    pub fn with_backend(backend: Backend) -> Self {
        assert!(backend.is_available(), "this CPU lacks {backend:?}");
        Self { backend }
    }

    /// The backend that it hashes on.
    #[must_use]
    pub const fn backend(&self) -> Backend {
        self.backend
    }

    /// From how many messages on they share lanes. Fewer are hashed one or two at a time;
    /// beyond the number of lanes means never. The number is measured once in a process, in
    /// some thirty microseconds, at the first call that hashes; see
    /// [`Hasher::set_lanes_from`].
    #[must_use]
    pub fn lanes_from(&self) -> usize {
        self.backend.sha256_lanes_from()
    }

    /// Sets [`Hasher::lanes_from`] for all hashers of this process on this backend, so that it
    /// is not measured and every run does the same. 1 is always, `usize::MAX` never.
    pub fn set_lanes_from(&self, messages: usize) {
        self.backend.set_sha256_lanes_from(messages);
    }

    /// The double SHA-256 of each of `messages`, of any and mixed lengths:
    /// `digests[i]` is that of `messages[i]`.
    ///
    /// # Panics
    ///
    /// Unless there are as many `digests` as `messages`.
    pub fn many(&self, messages: &[&[u8]], digests: &mut [Hash]) {
        self.backend.sha256d(messages.as_chunks::<1>().0, digests);
    }

    /// The double SHA-256 of each of `messages`, each given as three pieces,
    /// which are hashed one behind the other and may be empty: the id of a transaction with a
    /// witness is the hash of three pieces of it.
    ///
    /// # Panics
    ///
    /// Unless there are as many `digests` as `messages`.
    pub fn many_in_pieces(&self, messages: &[[&[u8]; 3]], digests: &mut [Hash]) {
        self.backend.sha256d(messages, digests);
    }

    /// The single SHA-256 of each of `messages`, as [`Hasher::many`].
    ///
    /// # Panics
    ///
    /// Unless there are as many `digests` as `messages`.
    pub fn many_single(&self, messages: &[&[u8]], digests: &mut [Hash]) {
        self.backend.sha256(messages.as_chunks::<1>().0, digests);
    }

    /// The double SHA-256 of each of `pairs`, 64 bytes each: two nodes of a Merkle
    /// tree.
    ///
    /// # Panics
    ///
    /// Unless there are as many `digests` as `pairs`.
    pub fn hash64(&self, pairs: &[[u8; 64]], digests: &mut [Hash]) {
        self.backend.sha256d_64(pairs, digests);
    }
}
