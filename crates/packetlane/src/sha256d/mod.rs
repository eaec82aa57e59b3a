//! Double SHA-256 (SHA256d) of many messages at once, and Bitcoin's uses of it: transaction
//! ids, Merkle trees, blocks.
//!
//! The functions run on the most capable backend of this CPU and read no environment variable.
//! A [`Hasher`] runs on a backend of the caller's choice; [`Hasher::detect`] uses the one that
//! `PACKETLANE_BACKEND` names. Digests are the same on all backends. Nothing is wiped, because
//! all of this data is public.
//!
//! - [`Hasher`], [`many`], [`many_in_pieces`], [`many_single`], [`hash64`]: many messages.
//! - [`merkle_root`]: Merkle trees.
//! - [`Block`]: a serialised block, parsed where it lies. [`Verifier`]: the same, checked.
//! - [`Scanner`]: the blocks in Bitcoin Core's files.
//!
//! ```
//! use packetlane::sha256d::{Hasher, many, merkle_root};
//!
//! # fn main() -> Result<(), packetlane::BackendError> {
//! let transactions: [&[u8]; 3] = [b"one", b"two", b"three"];
//! let mut txids = [[0; 32]; 3];
//! many(&transactions, &mut txids);
//! let root = merkle_root(&txids);
//! assert!(!root.mutated);
//!
//! // The same on a backend of one's own choice.
//! let hasher = Hasher::detect()?;
//! assert_eq!(hasher.merkle_root(&txids), root);
//! # Ok(())
//! # }
//! ```

mod block;
mod hasher;
mod merkle;
mod scan;
mod verify;

pub use block::{
    BLOCK_HEADER_LEN, Block, BlockError, MAX_BLOCK_SERIALIZED_SIZE, Transaction, block_hash,
};
pub use hasher::{Hash, Hasher, hash64, many, many_in_pieces, many_single};
pub use merkle::{MerkleRoot, merkle_root};
pub use scan::{Cause, FRAME_LEN, FileFault, Found, MAX_NEEDED, Obfuscation, Scanner};
pub use verify::{BlockFault, Summary, Verifier};
