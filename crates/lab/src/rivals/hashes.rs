//! Double SHA-256: ours, which hashes all messages of a call together, and libraries.
//!
//! The libraries hash one message after the other, as programs that use them do. Only
//! `bitcoin_hashes` has a function for several messages, for messages of 64 bytes.

use super::ours::ours;
use packetlane::Engine;
use packetlane::sha256d::{Hash, Hasher};

/// Computes double SHA-256.
pub(crate) trait Hashes {
    /// Hashes messages.
    fn many(&self, messages: &[&[u8]], digests: &mut [Hash]);

    /// Hashes messages that consist of pieces.
    fn many_in_pieces(&self, messages: &[[&[u8]; 3]], digests: &mut [Hash]);

    /// Hashes messages of 64 bytes.
    fn hash64(&self, pairs: &[[u8; 64]], digests: &mut [Hash]);

    /// The Merkle root of at least one leaf.
    fn merkle_root(&self, leaves: &[Hash]) -> Hash {
        if let [only] = leaves {
            return *only;
        }
        let mut level = Vec::new();
        let mut above = Vec::new();
        self.level_above(leaves, &mut level);
        while level.len() > 1 {
            self.level_above(&level, &mut above);
            std::mem::swap(&mut level, &mut above);
        }
        level[0]
    }

    /// Replaces `above` with the hashes of the pairs of `nodes`. An odd last node is paired with
    /// itself.
    fn level_above(&self, nodes: &[Hash], above: &mut Vec<Hash>) {
        above.resize(nodes.len().div_ceil(2), Hash::default());
        let (pairs, odd) = nodes.as_flattened().as_chunks();
        let (digests, last) = above.split_at_mut(pairs.len());
        self.hash64(pairs, digests);
        if !odd.is_empty() {
            let mut pair = [0; 64];
            pair[..32].copy_from_slice(odd);
            pair[32..].copy_from_slice(odd);
            self.hash64(&[pair], last);
        }
    }
}

impl Hashes for Hasher {
    fn many(&self, messages: &[&[u8]], digests: &mut [Hash]) {
        Hasher::hash_many(self, messages, digests);
    }

    fn many_in_pieces(&self, messages: &[[&[u8]; 3]], digests: &mut [Hash]) {
        Hasher::hash_many_in_pieces(self, messages, digests);
    }

    fn hash64(&self, pairs: &[[u8; 64]], digests: &mut [Hash]) {
        Hasher::hash64(self, pairs, digests);
    }

    fn merkle_root(&self, leaves: &[Hash]) -> Hash {
        Hasher::merkle_root(self, leaves).root
    }
}

/// A library that hashes one message per call.
trait Library {
    /// The double SHA-256 of a message.
    fn one(message: &[u8]) -> Hash;

    /// The double SHA-256 of a message that consists of pieces.
    fn one_in_pieces(pieces: &[&[u8]; 3]) -> Hash;

    /// Hashes messages of 64 bytes.
    fn hash64(pairs: &[[u8; 64]], digests: &mut [Hash]) {
        for (pair, digest) in pairs.iter().zip(digests) {
            *digest = Self::one(pair);
        }
    }
}

impl<L: Library> Hashes for L {
    fn many(&self, messages: &[&[u8]], digests: &mut [Hash]) {
        for (message, digest) in messages.iter().zip(digests) {
            *digest = L::one(message);
        }
    }

    fn many_in_pieces(&self, messages: &[[&[u8]; 3]], digests: &mut [Hash]) {
        for (pieces, digest) in messages.iter().zip(digests) {
            *digest = L::one_in_pieces(pieces);
        }
    }

    fn hash64(&self, pairs: &[[u8; 64]], digests: &mut [Hash]) {
        L::hash64(pairs, digests);
    }
}

/// RustCrypto's `sha2`.
struct Sha2;

impl Library for Sha2 {
    fn one(message: &[u8]) -> Hash {
        use sha2::{Digest, Sha256};
        Sha256::digest(Sha256::digest(message)).into()
    }

    fn one_in_pieces(pieces: &[&[u8]; 3]) -> Hash {
        use sha2::{Digest, Sha256};
        let mut first = Sha256::new();
        pieces.iter().for_each(|piece| first.update(piece));
        Sha256::digest(first.finalize()).into()
    }
}

/// The newest `bitcoin_hashes`, which can hash several 64-byte messages per call. The older version
/// that the crate `bitcoin` uses cannot.
#[cfg(feature = "rivals")]
struct BitcoinHashes;

#[cfg(feature = "rivals")]
impl Library for BitcoinHashes {
    fn one(message: &[u8]) -> Hash {
        bitcoin_hashes::sha256d::Hash::hash(message).to_byte_array()
    }

    fn one_in_pieces(pieces: &[&[u8]; 3]) -> Hash {
        bitcoin_hashes::sha256d::Hash::hash_byte_chunks(pieces).to_byte_array()
    }

    /// Hashes an odd last message separately: the function for several messages would not use SHA
    /// instructions for it, which takes three times as long as the function for one message.
    fn hash64(pairs: &[[u8; 64]], digests: &mut [Hash]) {
        let even = pairs.len() & !1;
        let (pairs, last_pair) = pairs.split_at(even);
        let (digests, last_digest) = digests.split_at_mut(even);
        bitcoin_hashes::sha256d::Hash::hash_64_many(digests, pairs);
        if let ([pair], [digest]) = (last_pair, last_digest) {
            *digest = Self::one(pair);
        }
    }
}

/// `ring`.
struct Ring;

/// `aws-lc-rs`, which has the same interface.
#[cfg(feature = "rivals")]
struct AwsLcRs;

macro_rules! like_ring {
    ($library:ident, $($path:ident)::+) => {
        impl Library for $library {
            fn one(message: &[u8]) -> Hash {
                use $($path)::+::{SHA256, digest};
                let twice = digest(&SHA256, digest(&SHA256, message).as_ref());
                twice.as_ref().try_into().expect("32 bytes")
            }

            fn one_in_pieces(pieces: &[&[u8]; 3]) -> Hash {
                use $($path)::+::{Context, SHA256, digest};
                let mut first = Context::new(&SHA256);
                pieces.iter().for_each(|piece| first.update(piece));
                let twice = digest(&SHA256, first.finish().as_ref());
                twice.as_ref().try_into().expect("32 bytes")
            }
        }
    };
}

like_ring!(Ring, ring::digest);
#[cfg(feature = "rivals")]
like_ring!(AwsLcRs, aws_lc_rs::digest);

/// Name, backend and implementation of each competitor, ours first.
pub(crate) fn implementations(engine: Engine) -> Vec<(String, &'static str, Box<dyn Hashes>)> {
    // Like a quick run: SHA-256 is the same without IFMA.
    let ours = ours(engine, true).into_iter().map(|ours| {
        let backend = ours.engine.backend();
        let hashes: Box<dyn Hashes> = Box::new(Hasher::with_backend(backend));
        (ours.name, backend.name(), hashes)
    });
    let libraries: Vec<(&str, Box<dyn Hashes>)> = vec![
        ("sha2", Box::new(Sha2)),
        #[cfg(feature = "rivals")]
        ("bitcoin_hashes", Box::new(BitcoinHashes)),
        ("ring", Box::new(Ring)),
        #[cfg(feature = "rivals")]
        ("aws-lc-rs", Box::new(AwsLcRs)),
    ];
    let libraries = libraries.into_iter();
    let libraries = libraries.map(|(name, hashes)| (name.to_owned(), "", hashes));
    ours.chain(libraries).collect()
}
