//! Verifies a block against its header.
//!
//! [`Verifier::verify`] hashes all transactions of a block in one call. It checks:
//!
//! - the Merkle root of the transactions, and that they are not mutated (CVE-2012-2459);
//! - that the first transaction is a coinbase, and no other;
//! - the witness commitment (BIP141), if the block has witnesses;
//! - that the header's hash meets the target in the header, and that the network allows this
//!   target.
//!
//! This is not full validation. The required target, times, coins and scripts can only be checked
//! with the chain. The block's weight, its signature operations and the coinbase's script are not
//! checked either. A block from which all witnesses have been removed looks like one from before
//! BIP141, and passes. Transactions of 64 bytes are valid, so they are counted, not rejected: see
//! [`Summary::transactions_of_64_bytes`].

use super::block::{Block, bits};
use super::hasher::{Hash, Hasher};
use super::merkle::inner_nodes;
use super::reader::ParseError;
use super::transaction::{TransactionOffsets, hash_one};
use crate::bitcoin::Network;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::mem;

/// The result for a block without faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The block hash.
    pub hash: Hash,
    /// The number of transactions.
    pub transactions: usize,
    /// The length of the block, in bytes.
    pub bytes: usize,
    /// The number of transactions that have 64 bytes without their witnesses, the length of two
    /// nodes of the Merkle tree. The same root may belong to a tree in which these bytes are nodes,
    /// and vice versa (CVE-2017-12842).
    pub transactions_of_64_bytes: usize,
    /// The number of double SHA-256 hashes computed: header, transactions, trees, commitment.
    pub hashes: usize,
}

/// Verifies blocks, one at a time. Reuses its lists, so it allocates only for a block that is
/// larger than all before it.
#[derive(Debug)]
pub struct Verifier {
    hasher: Hasher,
    network: Network,
    transactions: Vec<TransactionOffsets>,
    /// Empty between calls, so it borrows nothing.
    pieces: Vec<[&'static [u8]; 3]>,
    digests: Vec<Hash>,
    wtxids: Vec<Hash>,
}

impl Verifier {
    /// Creates a verifier for the blocks of `network`, which determines their easiest target. All
    /// signets have that of [`Network::Signet`]. It hashes with `hasher`, and allocates nothing
    /// yet.
    #[must_use]
    pub const fn new(hasher: Hasher, network: Network) -> Self {
        Self {
            hasher,
            network,
            transactions: Vec::new(),
            pieces: Vec::new(),
            digests: Vec::new(),
            wtxids: Vec::new(),
        }
    }

    /// Whether a header has proof of work: its hash meets its target, and the network allows this
    /// target. Arbitrary bytes almost never do, except on regtest.
    #[must_use]
    pub fn has_work(&self, header: &[u8; Block::HEADER_LEN]) -> bool {
        let hash = hash_one(self.hasher, [header, &[], &[]]);
        check_work(&hash, bits(header), self.network).is_ok()
    }

    /// Checks that `bytes` are exactly one block, and verifies it against its header.
    ///
    /// # Errors
    ///
    /// All faults that were found, at least one.
    pub fn verify(&mut self, bytes: &[u8]) -> Result<Summary, Vec<BlockFault>> {
        let block = match Block::parse(bytes, &mut self.transactions) {
            Ok(block) => block,
            Err(error) => return Err(vec![BlockFault::Malformed(error)]),
        };
        let mut faults = Vec::new();
        let hash = hash_one(self.hasher, [block.header(), &[], &[]]);
        if let Err(fault) = check_work(&hash, block.bits(), self.network) {
            faults.push(fault);
        }
        if !block.has_coinbase() {
            faults.push(BlockFault::NoCoinbase);
        }
        if let Some(transaction) = block.null_outpoint() {
            faults.push(BlockFault::NullOutpoint { transaction });
        }

        // One list for all ids, because more messages fill the lanes better.
        let count = block.transactions();
        let has_witness = block.has_witness();
        let mut pieces: Vec<[&[u8]; 3]> = mem::take(&mut self.pieces);
        pieces.extend(block.txid_pieces());
        let lengths = pieces.iter().map(|pieces| pieces.map(<[u8]>::len));
        let of_64_bytes = lengths.filter(|lengths| lengths.iter().sum::<usize>() == 64);
        let transactions_of_64_bytes = of_64_bytes.count();
        if has_witness {
            pieces.extend(block.with_witness().map(|whole| [whole, &[], &[]]));
        }
        self.digests.resize(pieces.len(), Hash::default());
        self.hasher.hash_many_in_pieces(&pieces, &mut self.digests);
        let mut hashes = 1 + pieces.len() + inner_nodes(count);
        // Changes the lifetime of the empty list. `collect` reuses its memory.
        pieces.clear();
        self.pieces = pieces.into_iter().map(|_| [&[][..]; 3]).collect();

        let (txids, witness_digests) = self.digests.split_at(count);
        let tree = self.hasher.merkle_root(txids);
        if tree.root != *block.merkle_root() {
            faults.push(BlockFault::MerkleRoot {
                header: *block.merkle_root(),
                computed: tree.root,
            });
        }
        if tree.mutated {
            faults.push(BlockFault::Mutated);
        }

        if has_witness {
            match (block.witness_commitment(), block.witness_reserved_value()) {
                (None, _) => faults.push(BlockFault::NoCommitment),
                (_, None) => faults.push(BlockFault::NoReservedValue),
                (Some(commitment), Some(reserved)) => {
                    self.wtxids.clear();
                    self.wtxids.push(Hash::default());
                    let mut digests = witness_digests.iter();
                    let others = block.iter().zip(txids).skip(1);
                    self.wtxids.extend(others.map(|(transaction, txid)| {
                        let digest = transaction.has_witness().then(|| digests.next());
                        *digest.flatten().unwrap_or(txid)
                    }));
                    let root = self.hasher.merkle_root(&self.wtxids).root;
                    let computed = hash_one(self.hasher, [&root, reserved, &[]]);
                    hashes += inner_nodes(count) + 1;
                    if computed != *commitment {
                        faults.push(BlockFault::Commitment {
                            block: *commitment,
                            computed,
                        });
                    }
                }
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(Summary {
            hash,
            transactions: count,
            bytes: bytes.len(),
            transactions_of_64_bytes,
            hashes,
        })
    }
}

/// Checks that a block hash meets the target in the header, and that the network allows this
/// target. The rules are those of Bitcoin Core's `CheckProofOfWork`.
fn check_work(hash: &Hash, bits: u32, network: Network) -> Result<(), BlockFault> {
    let easiest = network.easiest_target();
    // All of these are little-endian numbers.
    let above = |number: &Hash, limit: &Hash| number.iter().rev().gt(limit.iter().rev());
    let target = target(bits)?;
    if above(&target, &self::target(easiest)?) {
        return Err(BlockFault::TargetAboveLimit { bits, easiest });
    }
    match above(hash, &target) {
        true => Err(BlockFault::Work { hash: *hash, bits }),
        false => Ok(()),
    }
}

/// Expands the compact encoding `bits` of a target. The result is little-endian. `bits` is a sign
/// bit and a 23-bit mantissa, times 256 to the power of its highest byte minus 3.
fn target(bits: u32) -> Result<[u8; 32], BlockFault> {
    let size = bits >> 24;
    // A size below 3 shifts the low bytes out.
    let mantissa = (bits & 0x7f_ffff) >> (8 * 3_u32.saturating_sub(size));
    if mantissa == 0 {
        return Err(BlockFault::ZeroTarget { bits });
    }
    if bits & 0x80_0000 != 0 {
        return Err(BlockFault::NegativeTarget { bits });
    }
    let mut target = [0; 32];
    let lowest = size.saturating_sub(3) as usize;
    for (place, byte) in (lowest..).zip(mantissa.to_le_bytes()) {
        match target.get_mut(place) {
            Some(slot) => *slot = byte,
            None if byte == 0 => {}
            None => return Err(BlockFault::TargetOverflow { bits }),
        }
    }
    Ok(target)
}

/// A fault of a block. Hashes are displayed in reverse, as usual in Bitcoin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockFault {
    /// The bytes are not a block.
    Malformed(ParseError),
    /// The target is zero, which no hash meets.
    ZeroTarget {
        /// The target in the header's compact encoding.
        bits: u32,
    },
    /// The target is negative.
    NegativeTarget {
        /// The target in the header's compact encoding.
        bits: u32,
    },
    /// The target does not fit in 256 bits.
    TargetOverflow {
        /// The target in the header's compact encoding.
        bits: u32,
    },
    /// The target is easier than the network allows.
    TargetAboveLimit {
        /// The target in the header's compact encoding.
        bits: u32,
        /// The network's easiest target, in the same encoding.
        easiest: u32,
    },
    /// The block hash does not meet the target in the header.
    Work {
        /// The block hash.
        hash: Hash,
        /// The target in the header's compact encoding.
        bits: u32,
    },
    /// The first transaction is not a coinbase, whose only input has the null outpoint.
    NoCoinbase,
    /// Another transaction has an input with the null outpoint.
    NullOutpoint {
        /// The index of the first such transaction; the coinbase has index 0.
        transaction: usize,
    },
    /// The Merkle root of the transactions is not the one in the header.
    MerkleRoot {
        /// The root in the header.
        header: Hash,
        /// The root of the transactions.
        computed: Hash,
    },
    /// Two nodes that form a pair in the Merkle tree are equal: transactions were repeated such
    /// that the root does not change (CVE-2012-2459).
    Mutated,
    /// Transactions have witnesses, but the first transaction does not commit to them.
    NoCommitment,
    /// The first transaction commits to witnesses but lacks the 32-byte reserved value that the
    /// commitment includes.
    NoReservedValue,
    /// The witnesses do not match the first transaction's commitment.
    Commitment {
        /// The commitment in the block.
        block: Hash,
        /// The commitment computed from the witnesses.
        computed: Hash,
    },
}

impl fmt::Display for BlockFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "malformed block: {error}"),
            Self::ZeroTarget { bits } => {
                write!(f, "the target {bits:08x} in the header is zero")
            }
            Self::NegativeTarget { bits } => {
                write!(f, "the target {bits:08x} in the header is negative")
            }
            Self::TargetOverflow { bits } => {
                write!(f, "the target {bits:08x} in the header exceeds 256 bits")
            }
            Self::TargetAboveLimit { bits, easiest } => write!(
                f,
                "the target {bits:08x} in the header is easier than {easiest:08x}, the easiest of the \
                 network"
            ),
            Self::Work { bits, .. } => write!(
                f,
                "no proof of work: the block's hash is above {bits:08x}, the target in its header"
            ),
            Self::NoCoinbase => f.write_str(
                "the first transaction is not a coinbase, whose only input has the null outpoint",
            ),
            Self::NullOutpoint { transaction } => write!(
                f,
                "transaction {transaction} has the null outpoint, which only the first may have, the \
                 coinbase (number 0)"
            ),
            Self::MerkleRoot { header, computed } => write!(
                f,
                "the transactions have the Merkle root {}, but the header has {}",
                Shown(computed),
                Shown(header)
            ),
            Self::Mutated => f.write_str(
                "transactions are repeated in a way that does not change the Merkle root \
                 (CVE-2012-2459)",
            ),
            Self::NoCommitment => {
                f.write_str("the block has witnesses, but its first transaction does not commit to them")
            }
            Self::NoReservedValue => f.write_str(
                "the block has witnesses, but its first transaction lacks the 32-byte reserved value",
            ),
            Self::Commitment { block, computed } => write!(
                f,
                "the witnesses hash to {}, but the first transaction commits to {}",
                Shown(computed),
                Shown(block)
            ),
        }
    }
}

impl core::error::Error for BlockFault {}

/// Displays a hash in the usual, reversed order.
struct Shown<'h>(&'h Hash);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = self.0.iter().rev();
        bytes.try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases of Bitcoin Core's `bignum_SetCompact` test, and the limits of each rule.
    #[test]
    fn a_target_is_read_as_bitcoin_core_reads_it() {
        let number = |bytes: &[(usize, u8)]| {
            let mut target = [0; 32];
            bytes.iter().for_each(|&(place, byte)| target[place] = byte);
            Ok(target)
        };
        for bits in [
            0,
            0x0012_3456,
            0x0100_3456,
            0x0200_0056,
            0x0300_0000,
            0x0400_0000,
            0x0092_3456,
            0x0180_3456,
            0x0280_0056,
            0x0380_0000,
            0x0480_0000,
            0xff00_0000,
        ] {
            assert_eq!(
                target(bits),
                Err(BlockFault::ZeroTarget { bits }),
                "{bits:08x}"
            );
        }
        for bits in [0x01fe_dcba, 0x0492_3456, 0x04ff_ffff, 0xff80_0001] {
            assert_eq!(
                target(bits),
                Err(BlockFault::NegativeTarget { bits }),
                "{bits:08x}"
            );
        }
        for bits in [0xff12_3456, 0x2300_0001, 0x2200_0100, 0x2101_0000] {
            assert_eq!(
                target(bits),
                Err(BlockFault::TargetOverflow { bits }),
                "{bits:08x}"
            );
        }
        assert_eq!(target(0x0112_3456), number(&[(0, 0x12)]));
        assert_eq!(target(0x0200_8000), number(&[(0, 0x80)]));
        assert_eq!(target(0x0212_3456), number(&[(0, 0x34), (1, 0x12)]));
        assert_eq!(
            target(0x0312_3456),
            number(&[(0, 0x56), (1, 0x34), (2, 0x12)])
        );
        assert_eq!(
            target(0x0412_3456),
            number(&[(1, 0x56), (2, 0x34), (3, 0x12)])
        );
        assert_eq!(
            target(0x2012_3456),
            number(&[(29, 0x56), (30, 0x34), (31, 0x12)])
        );
        assert_eq!(target(0x2200_0080), number(&[(31, 0x80)]));
        assert_eq!(target(0x2100_8001), number(&[(30, 0x01), (31, 0x80)]));
    }

    #[test]
    fn a_hash_may_equal_the_target_but_not_exceed_it() {
        let mut hash = [0; 32];
        hash[2] = 0x12;
        assert_eq!(check_work(&hash, 0x0312_0000, Network::Regtest), Ok(()));
        hash[0] = 1;
        let bits = 0x0312_0000;
        assert_eq!(
            check_work(&hash, bits, Network::Regtest),
            Err(BlockFault::Work { hash, bits })
        );
        hash = [0xff; 32];
        hash[31] = 0x7f;
        let bits = 0x207f_ffff;
        assert_eq!(
            check_work(&hash, bits, Network::Regtest),
            Err(BlockFault::Work { hash, bits })
        );
        hash[..29].fill(0);
        assert_eq!(check_work(&hash, bits, Network::Regtest), Ok(()));
    }
}
