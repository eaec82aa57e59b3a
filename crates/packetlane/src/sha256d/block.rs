//! Parses a serialised Bitcoin block without copying it.
//!
//! [`Block::parse`] reads the block once and records where each transaction begins and ends.

use super::hasher::{Hash, Hasher};
use super::reader::{MAX_BLOCK_SERIALIZED_SIZE, ParseError, Reader};
use super::transaction::{Contents, MIN_TRANSACTION, Transaction, TransactionOffsets, hash_one};
use alloc::vec::Vec;

/// Minimum length of a block, in bytes: header, number of transactions, one transaction.
pub(super) const MIN_BLOCK_LEN: usize = Block::HEADER_LEN + 1 + MIN_TRANSACTION;

/// A parsed block. It borrows its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Block<'b> {
    bytes: &'b [u8],
    header: &'b [u8; Block::HEADER_LEN],
    transactions: &'b [TransactionOffsets],
    first: Contents<'b>,
    /// Index of the first other transaction with the null outpoint.
    null_outpoint: Option<usize>,
}

impl<'b> Block<'b> {
    /// Length of a block's header, in bytes.
    pub const HEADER_LEN: usize = 80;

    /// Maximum length of a serialised block, in bytes. A block may have 4,000,000 weight units, and
    /// every byte counts for at least one. Bitcoin Core's `MAX_BLOCK_SERIALIZED_SIZE`.
    pub const MAX_SERIALIZED_SIZE: usize = MAX_BLOCK_SERIALIZED_SIZE;

    /// Parses `bytes`, which must be exactly one block. `transactions` is overwritten; a caller
    /// that reuses it for the next block saves an allocation.
    ///
    /// # Errors
    ///
    /// See [`ParseError`].
    pub fn parse(
        bytes: &'b [u8],
        transactions: &'b mut Vec<TransactionOffsets>,
    ) -> Result<Self, ParseError> {
        transactions.clear();
        let mut reader = Reader::new(bytes)?;
        let header = reader.take_array()?;
        let place = reader.place;
        let count = reader.count(MIN_TRANSACTION)?;
        if count == 0 {
            return Err(ParseError::NoTransactions { offset: place });
        }
        let (offsets, first) = reader.transaction()?;
        transactions.push(offsets);
        let mut null_outpoint = None;
        for index in 1..count {
            let (offsets, contents) = reader.transaction()?;
            transactions.push(offsets);
            if contents.null_outpoint {
                null_outpoint = null_outpoint.or(Some(index));
            }
        }
        reader.end()?;
        Ok(Self {
            bytes,
            header,
            transactions,
            first,
            null_outpoint,
        })
    }

    /// Returns the header, 80 bytes.
    #[must_use]
    pub const fn header(&self) -> &'b [u8; Block::HEADER_LEN] {
        self.header
    }

    /// Returns the block hash: the double SHA-256 of the header.
    #[must_use]
    pub fn hash(&self) -> Hash {
        Self::hash_header(self.header)
    }

    /// Returns the hash of a block with this header.
    #[must_use]
    pub fn hash_header(header: &[u8; Block::HEADER_LEN]) -> Hash {
        hash_one(Hasher::best(), [header, &[], &[]])
    }

    /// Returns the Merkle root in the header.
    #[must_use]
    pub fn merkle_root(&self) -> &'b Hash {
        array(self.header, 36)
    }

    /// Returns the target in the header's compact encoding ("nBits").
    #[must_use]
    pub fn bits(&self) -> u32 {
        bits(self.header)
    }

    /// Returns the number of transactions.
    #[must_use]
    pub const fn transactions(&self) -> usize {
        self.transactions.len()
    }

    /// Returns the transactions, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Transaction<'b>> {
        let transactions = self.transactions.iter();
        transactions.map(|offsets| offsets.of(self.bytes))
    }

    /// Returns, for each transaction in order, the pieces whose double SHA-256 is its txid. Pass
    /// them to [`Hasher::hash_many_in_pieces`].
    pub fn txid_pieces(&self) -> impl ExactSizeIterator<Item = [&'b [u8]; 3]> {
        self.iter().map(|transaction| transaction.txid_pieces())
    }

    /// Returns the transactions that have a witness, in full: their double SHA-256 is their wtxid.
    /// The wtxid of any other transaction is its txid. The first transaction's wtxid counts as
    /// zero.
    pub fn with_witness(&self) -> impl Iterator<Item = &'b [u8]> {
        let others = self.iter().skip(1).filter(Transaction::has_witness);
        others.map(|transaction| transaction.bytes())
    }

    /// Whether the first transaction is a coinbase: its only input has the null outpoint.
    #[must_use]
    pub const fn has_coinbase(&self) -> bool {
        self.first.inputs == 1 && self.first.null_outpoint
    }

    /// Returns the index of the first transaction after the coinbase that has the null outpoint, if
    /// any. Only the coinbase may have it.
    #[must_use]
    pub const fn null_outpoint(&self) -> Option<usize> {
        self.null_outpoint
    }

    /// Whether any transaction has a witness.
    #[must_use]
    pub fn has_witness(&self) -> bool {
        self.iter().any(|transaction| transaction.has_witness())
    }

    /// Returns the witness commitment, if there is one: the hash of the witness root and the
    /// reserved value (BIP141). It is in the last output of the first transaction that has this
    /// form.
    #[must_use]
    pub const fn witness_commitment(&self) -> Option<&'b Hash> {
        self.first.commitment
    }

    /// Returns the witness reserved value, if there is one: 32 bytes, the only item in the witness
    /// of the first transaction's first input (BIP141).
    #[must_use]
    pub const fn witness_reserved_value(&self) -> Option<&'b Hash> {
        self.first.reserved
    }
}

pub(super) fn bits(header: &[u8; Block::HEADER_LEN]) -> u32 {
    u32::from_le_bytes(*array(header, 72))
}

/// Returns the `N` bytes at offset `at`, which must exist.
fn array<const N: usize>(bytes: &[u8], at: usize) -> &[u8; N] {
    bytes[at..]
        .first_chunk()
        .expect("the field is in the header")
}
