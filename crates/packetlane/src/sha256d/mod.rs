//! Double SHA-256 (SHA256d) over many messages at once, and what Bitcoin makes of
//! it: transaction ids, Merkle trees, blocks.

use alloc::vec::Vec;
use sha2::{Digest, Sha256};

/// A digest of SHA-256: 32 bytes in the order in which the hash function gives
/// them. (Block explorers show hashes of Bitcoin in the opposite order.)
pub type Hash = [u8; 32];

/// The double SHA-256 of each of `messages`, of any and mixed lengths:
/// `digests[i]` is that of `messages[i]`.
///
/// # Panics
///
/// Unless there are as many `digests` as `messages`.
pub fn many(messages: &[&[u8]], digests: &mut [Hash]) {
    assert_eq!(messages.len(), digests.len());
    for (message, digest) in messages.iter().zip(digests) {
        *digest = Sha256::digest(Sha256::digest(message)).into();
    }
}

/// The double SHA-256 of each of `messages`, each given as pieces that lie apart: the
/// transaction id of a transaction with a witness is one of three pieces. (Empty ones
/// do not count.)
///
/// # Panics
///
/// Unless there are as many `digests` as `messages`.
pub fn many_in_pieces(messages: &[[&[u8]; 3]], digests: &mut [Hash]) {
    for (pieces, digest) in messages.iter().zip(digests) {
        let whole: Vec<u8> = pieces.concat();
        *digest = Sha256::digest(Sha256::digest(whole)).into();
    }
}

/// The single SHA-256 of each of `messages`, as [`many`].
///
/// # Panics
///
/// Unless there are as many `digests` as `messages`.
pub fn many_single(messages: &[&[u8]], digests: &mut [Hash]) {
    for (message, digest) in messages.iter().zip(digests) {
        *digest = Sha256::digest(message).into();
    }
}

/// The double SHA-256 of each of `pairs`, 64 bytes each: two nodes of a Merkle tree.
///
/// # Panics
///
/// Unless there are as many `digests` as `pairs`.
pub fn hash64(pairs: &[[u8; 64]], digests: &mut [Hash]) {
    for (pair, digest) in pairs.iter().zip(digests) {
        *digest = Sha256::digest(Sha256::digest(pair)).into();
    }
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

/// The Merkle root of `leaves` as Bitcoin computes it: a level with an odd number of
/// nodes has its last one twice. The root of one leaf is the leaf, that of none is
/// all zeros, as in Bitcoin Core.
#[must_use]
pub fn merkle_root(leaves: &[Hash]) -> MerkleRoot {
    let mut level = leaves.to_vec();
    let mut mutated = false;
    while level.len() > 1 {
        mutated |= level.chunks_exact(2).any(|pair| pair[0] == pair[1]);
        if level.len() % 2 == 1 {
            level.push(level[level.len() - 1]);
        }
        let pairs = level
            .as_chunks::<2>()
            .0
            .iter()
            .map(|pair| pair.as_flattened().try_into().unwrap());
        let pairs: Vec<[u8; 64]> = pairs.collect();
        level.truncate(pairs.len());
        hash64(&pairs, &mut level);
    }
    MerkleRoot {
        root: level.first().copied().unwrap_or_default(),
        mutated,
    }
}
