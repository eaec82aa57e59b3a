//! Double SHA-256 (SHA256d) of many messages at once, and Bitcoin's uses of it: transaction
//! ids, Merkle trees, blocks.
//!
//! A [`Hasher`] runs on one backend. [`Hasher::best`] uses the most capable one of this CPU and
//! reads no environment variable; [`Hasher::detect`] uses the one that `PACKETLANE_BACKEND` names.
//! Digests are the same on all backends. Nothing is wiped, because all of this data is public.
//!
//! - [`Hasher::txids`], [`Hasher::wtxids`]: the ids of transactions. [`Transaction`]: one
//!   transaction, parsed in place.
//! - [`Hasher::hash_many`] and similar methods: many messages of any kind.
//! - [`Hasher::merkle_root`]: Merkle trees.
//! - [`Block`]: a serialised block, parsed in place. [`Verifier`]: verifies a block.
//! - [`Scanner`]: the blocks in Bitcoin Core's files.
//!
//! ```
//! use packetlane::sha256d::Hasher;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The shortest transaction: version, one input, no output, lock time.
//! let transaction = [&[2, 0, 0, 0, 1][..], &[7; 36], &[0], &[0xff; 4], &[0], &[0; 4]].concat();
//! let hasher = Hasher::detect()?;
//! let ids = hasher.txids(&[&transaction, &transaction, &transaction])?;
//! let tree = hasher.merkle_root(&ids);
//! // A pair of equal nodes: a shorter list would have the same root (CVE-2012-2459).
//! assert!(tree.mutated);
//! # Ok(())
//! # }
//! ```

mod block;
mod hasher;
mod merkle;
mod reader;
mod scan;
mod transaction;
mod verify;

pub use block::Block;
pub use hasher::{Hash, Hasher};
pub use merkle::MerkleRoot;
pub use reader::ParseError;
pub use scan::{FaultCause, FileFault, Frame, Obfuscation, Scanner};
pub use transaction::{Transaction, TransactionError, TransactionOffsets};
pub use verify::{BlockFault, Summary, Verifier};
