//! Double SHA-256 (SHA256d) of many messages at once, and Bitcoin's uses of it: transaction
//! ids, Merkle trees, blocks.
//!
//! The functions run on the most capable backend of this CPU and read no environment variable.
//! A [`Hasher`] runs on a backend of the caller's choice; [`Hasher::detect`] uses the one that
//! `PACKETLANE_BACKEND` names. Digests are the same on all backends. Nothing is wiped, because
//! all of this data is public.
//!
//! - [`txids`], [`wtxids`]: the ids of transactions. [`Transaction`]: one, parsed where it lies.
//! - [`Hasher`], [`many`], [`many_fixed`], [`many_in_pieces`], [`many_single`], [`hash64`]: many
//!   messages of any kind.
//! - [`merkle_root`]: Merkle trees.
//! - [`Block`]: a serialised block, parsed where it lies. [`Verifier`]: the same, checked.
//! - [`Scanner`]: the blocks in Bitcoin Core's files.
//!
//! ```
//! use packetlane::sha256d::{Hasher, merkle_root, txids};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The shortest transaction: version, one input, no output, lock time.
//! let transaction = [&[2, 0, 0, 0, 1][..], &[7; 36], &[0], &[0xff; 4], &[0], &[0; 4]].concat();
//! let ids = txids(&[&transaction, &transaction, &transaction])?;
//! let tree = merkle_root(&ids);
//! // A pair of equal nodes: a shorter list would have the same root (CVE-2012-2459).
//! assert!(tree.mutated);
//!
//! // The same on a backend of one's own choice.
//! let hasher = Hasher::detect()?;
//! assert_eq!(hasher.txids(&[&transaction])?, ids[..1]);
//! assert_eq!(hasher.merkle_root(&ids), tree);
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

pub use block::{BLOCK_HEADER_LEN, Block, block_hash};
pub use hasher::{Hash, Hasher, hash64, many, many_fixed, many_in_pieces, many_single};
pub use merkle::{MerkleRoot, merkle_root};
pub use reader::{MAX_BLOCK_SERIALIZED_SIZE, ParseError};
pub use scan::{Cause, FRAME_LEN, FileFault, Found, MAX_NEEDED, Obfuscation, Scanner};
pub use transaction::{Transaction, TransactionError, TransactionOffsets, txids, wtxids};
pub use verify::{BlockFault, Summary, Verifier};
