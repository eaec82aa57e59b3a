//! Hashes many messages at once, on one backend.

use crate::engine::{BackendError, Engine};
use core::num::NonZeroUsize;
use once_cell::race::OnceNonZeroUsize;
use packetlane_lanes::Backend;

/// A SHA-256 digest: 32 bytes in the order of the hash function's output. (Bitcoin software
/// displays hashes in reverse.)
pub type Hash = packetlane_lanes::Digest;

/// How many messages [`Hasher::hash_many_fixed`] passes to the backend at once: 4 KiB of slices.
const FIXED_PART: usize = 256;

/// Hashes on one backend. Cheap to copy. Digests are the same on every backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hasher {
    backend: Backend,
}

/// Equal to [`Hasher::best`].
impl Default for Hasher {
    fn default() -> Self {
        Self::best()
    }
}

impl Hasher {
    /// Creates a hasher on the backend that [`Engine::detect`] chooses.
    ///
    /// # Errors
    ///
    /// As for [`Engine::detect`]: `PACKETLANE_BACKEND` names a backend that this build does not
    /// have or this CPU does not support.
    pub fn detect() -> Result<Self, BackendError> {
        let backend = Engine::detect()?.backend();
        Ok(Self { backend })
    }

    /// Creates a hasher on the most capable backend of this CPU. Ignores `PACKETLANE_BACKEND`. The
    /// CPU is queried once per process.
    #[must_use]
    pub fn best() -> Self {
        // The index in `Backend::ALL`, plus 1.
        static BEST: OnceNonZeroUsize = OnceNonZeroUsize::new();
        let number = BEST.get_or_init(|| {
            let best = Engine::best().backend();
            let place = Backend::ALL.iter().position(|&backend| backend == best);
            NonZeroUsize::MIN.saturating_add(place.unwrap_or(0))
        });
        let backend = Backend::ALL[number.get() - 1];
        Self { backend }
    }

    /// Creates a hasher on `backend`.
    ///
    /// # Panics
    ///
    /// If this CPU does not support it ([`Backend::is_available`]).
    #[must_use]
    pub fn with_backend(backend: Backend) -> Self {
        assert!(
            backend.is_available(),
            "this CPU does not support the backend {backend:?}"
        );
        Self { backend }
    }

    /// Returns the backend of this hasher.
    #[must_use]
    pub const fn backend(&self) -> Backend {
        self.backend
    }

    /// Returns the minimum number of messages for which lanes are used. Fewer messages are hashed
    /// one or two at a time. A value above the number of lanes means that lanes are never used. The
    /// first call that hashes measures the value, in about 30 µs, and keeps it for the process. See
    /// [`Hasher::set_lanes_from`].
    #[must_use]
    pub fn lanes_from(&self) -> usize {
        self.backend.kernels().sha256_lanes_from()
    }

    /// Sets [`Hasher::lanes_from`] for all hashers of this process on this backend. This makes runs
    /// reproducible, because nothing is measured. 1 means always, `usize::MAX` never.
    pub fn set_lanes_from(&self, messages: usize) {
        self.backend.kernels().set_sha256_lanes_from(messages);
    }

    /// Computes the double SHA-256 of each message and writes that of `messages[i]` to
    /// `digests[i]`. Messages may have any lengths.
    ///
    /// For the ids of transactions, use [`txids`](Self::txids). The double SHA-256 of a whole
    /// transaction that has a witness is its wtxid, not its txid.
    ///
    /// # Panics
    ///
    /// If `digests` and `messages` differ in length.
    pub fn hash_many(&self, messages: &[&[u8]], digests: &mut [Hash]) {
        self.backend
            .kernels()
            .sha256d(messages.as_chunks::<1>().0, digests);
    }

    /// Like [`hash_many`](Self::hash_many), for contiguous messages that all have `N` bytes, such
    /// as block headers.
    ///
    /// ```
    /// use packetlane::sha256d::{Block, Hash, Hasher};
    ///
    /// # fn main() -> Result<(), packetlane::BackendError> {
    /// let headers = [[1; Block::HEADER_LEN], [2; Block::HEADER_LEN]];
    /// let mut hashes = [Hash::default(); 2];
    /// Hasher::detect()?.hash_many_fixed(&headers, &mut hashes);
    /// assert_eq!(hashes[1], Block::hash_header(&headers[1]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If `digests` and `messages` differ in length.
    pub fn hash_many_fixed<const N: usize>(&self, messages: &[[u8; N]], digests: &mut [Hash]) {
        assert_eq!(messages.len(), digests.len(), "one digest for each message");
        if N == 64 {
            let (pairs, _) = messages.as_flattened().as_chunks();
            return self.hash64(pairs, digests);
        }
        // The kernels take slices. The list of slices is on the stack, for part of the messages at
        // a time; it is long enough to keep the lanes busy.
        let mut list: [[&[u8]; 1]; FIXED_PART] = [[&[]]; FIXED_PART];
        let digests = digests.chunks_mut(FIXED_PART);
        for (messages, digests) in messages.chunks(FIXED_PART).zip(digests) {
            for (slot, message) in list.iter_mut().zip(messages) {
                *slot = [message];
            }
            self.backend
                .kernels()
                .sha256d(&list[..messages.len()], digests);
        }
    }

    /// Like [`hash_many`](Self::hash_many), for messages that are the concatenation of three
    /// pieces, which may be empty. The txid of a transaction with a witness is the hash of three
    /// pieces of it: see [`Transaction::txid_pieces`](super::Transaction::txid_pieces).
    ///
    /// # Panics
    ///
    /// If `digests` and `messages` differ in length.
    pub fn hash_many_in_pieces(&self, messages: &[[&[u8]; 3]], digests: &mut [Hash]) {
        self.backend.kernels().sha256d(messages, digests);
    }

    /// Computes the single SHA-256 of each message; otherwise like [`hash_many`](Self::hash_many).
    ///
    /// # Panics
    ///
    /// If `digests` and `messages` differ in length.
    pub fn hash_many_single(&self, messages: &[&[u8]], digests: &mut [Hash]) {
        self.backend
            .kernels()
            .sha256(messages.as_chunks::<1>().0, digests);
    }

    /// Computes the double SHA-256 of each of `pairs`. A pair is two nodes of a Merkle tree, 64
    /// bytes.
    ///
    /// # Panics
    ///
    /// If `digests` and `pairs` differ in length.
    pub fn hash64(&self, pairs: &[[u8; 64]], digests: &mut [Hash]) {
        self.backend.kernels().sha256d_64(pairs, digests);
    }
}
