//! Double SHA-256 (SHA256d) over many messages at once, and what Bitcoin makes of
//! it: transaction ids, Merkle trees, blocks.
//!
//! The functions hash on the backend of this process ([`Hasher::default`]); a
//! [`Hasher`] hashes on one that the caller has chosen. Digests are the same on all.
//! Nothing is wiped: this is for data that is public.

mod block;
mod file;

pub use block::{
    BLOCK_HEADER_LEN, Block, BlockError, BlockFault, MAX_BLOCK_SERIALIZED_SIZE, Summary,
    Transaction, Verifier, block_hash,
};
pub use file::{Cause, FRAME_LEN, FileFault, Found, MAX_NEEDED, Obfuscation, Scanner};

use crate::engine::Engine;
use alloc::vec;
use core::num::NonZeroUsize;
use once_cell::race::OnceNonZeroUsize;
use packetlane_lanes::Backend;

/// A digest of SHA-256: 32 bytes in the order in which the hash function gives
/// them. (Block explorers show hashes of Bitcoin in the opposite order.)
pub type Hash = packetlane_lanes::Digest;

/// [`Hasher::many`] on the backend of this process.
///
/// # Panics
///
/// Unless there are as many `digests` as `messages`.
pub fn many(messages: &[&[u8]], digests: &mut [Hash]) {
    Hasher::default().many(messages, digests);
}

/// [`Hasher::many_in_pieces`] on the backend of this process.
///
/// # Panics
///
/// Unless there are as many `digests` as `messages`.
pub fn many_in_pieces(messages: &[[&[u8]; 3]], digests: &mut [Hash]) {
    Hasher::default().many_in_pieces(messages, digests);
}

/// [`Hasher::many_single`] on the backend of this process.
///
/// # Panics
///
/// Unless there are as many `digests` as `messages`.
pub fn many_single(messages: &[&[u8]], digests: &mut [Hash]) {
    Hasher::default().many_single(messages, digests);
}

/// [`Hasher::hash64`] on the backend of this process.
///
/// # Panics
///
/// Unless there are as many `digests` as `pairs`.
pub fn hash64(pairs: &[[u8; 64]], digests: &mut [Hash]) {
    Hasher::default().hash64(pairs, digests);
}

/// [`Hasher::merkle_root`] on the backend of this process.
#[must_use]
pub fn merkle_root(leaves: &[Hash]) -> MerkleRoot {
    Hasher::default().merkle_root(leaves)
}

/// A Merkle root, and whether its leaves may have been tampered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MerkleRoot {
    /// The root.
    pub root: Hash,
    /// Whether two neighbouring nodes of some level that form a pair are equal: the
    /// same root then belongs to a shorter list of leaves too (CVE-2012-2459).
    pub mutated: bool,
}

/// Hashes on one backend. Cheap to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hasher {
    backend: Backend,
}

/// On the backend of this process: the one that [`Engine::detect`] would take, found
/// out once, so that a later change of `PACKETLANE_BACKEND` does nothing. Where that is
/// an error, since the variable names what there is not, it does not count: a hash has
/// no way to say so, and is the same on every backend.
impl Default for Hasher {
    fn default() -> Self {
        // One more than its place among all backends.
        static OF_PROCESS: OnceNonZeroUsize = OnceNonZeroUsize::new();
        let number = OF_PROCESS.get_or_init(|| {
            let engine = Engine::detect().unwrap_or_else(|_| Engine::best());
            let same = |&backend: &Backend| backend == engine.backend();
            let place = Backend::ALL.iter().position(same).unwrap_or(0);
            NonZeroUsize::MIN.saturating_add(place)
        });
        Self {
            backend: Backend::ALL[number.get() - 1],
        }
    }
}

impl Hasher {
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

    /// From how many messages on they share lanes, fewer being hashed one or two at a
    /// time; beyond the number of lanes if never. Measured once in a process, in some
    /// thirty microseconds, at the first call that hashes; see
    /// [`Hasher::set_lanes_from`].
    #[must_use]
    pub fn lanes_from(&self) -> usize {
        self.backend.sha256_lanes_from()
    }

    /// Sets [`Hasher::lanes_from`] for all hashers of this process on this backend, so
    /// that it is not measured: for who wants each run to do the same. 1 is always,
    /// `usize::MAX` never.
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

    /// The double SHA-256 of each of `messages`, each given as pieces that lie apart:
    /// the transaction id of a transaction with a witness is one of three pieces.
    /// (Empty ones do not count.)
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

    /// The Merkle root of `leaves` as Bitcoin computes it: a level with an odd number
    /// of nodes has its last one twice. The root of one leaf is the leaf, that of none
    /// is all zeros, as in Bitcoin Core.
    #[must_use]
    pub fn merkle_root(&self, leaves: &[Hash]) -> MerkleRoot {
        if leaves.len() < 2 {
            return MerkleRoot {
                root: leaves.first().copied().unwrap_or_default(),
                mutated: false,
            };
        }
        let mut mutated = repeats(leaves);
        // The level above the leaves, and room for a second one of its last node. The
        // levels above are computed where it lies.
        let (pairs, odd) = leaves.as_flattened().as_chunks::<64>();
        let mut nodes = pairs.len();
        let mut level = vec![[0; 32]; nodes + 2];
        self.hash64(pairs, &mut level[..nodes]);
        if let Ok(odd) = <Hash>::try_from(odd) {
            level[nodes..].fill(odd);
            self.backend.sha256d_pairs(&mut level[nodes..]);
            nodes += 1;
        }
        while nodes > 1 {
            mutated |= repeats(&level[..nodes]);
            if nodes % 2 == 1 {
                level[nodes] = level[nodes - 1];
                nodes += 1;
            }
            self.backend.sha256d_pairs(&mut level[..nodes]);
            nodes /= 2;
        }
        MerkleRoot {
            root: level[0],
            mutated,
        }
    }
}

/// Whether there is a pair of equal nodes.
fn repeats(nodes: &[Hash]) -> bool {
    let mut repeats = false;
    for [left, right] in nodes.as_chunks::<2>().0 {
        repeats |= left == right;
    }
    repeats
}
