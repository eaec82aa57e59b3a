//! Parses a serialised Bitcoin block without copying it.
//!
//! [`Block::parse`] reads the block once and records where each transaction begins and ends.

use super::hasher::{Hash, Hasher};
use alloc::vec::Vec;
use core::fmt;

/// Maximum length of a serialised block, in bytes. A block may have 4,000,000 weight units, and
/// a byte counts as at least one. Bitcoin Core's constant has the same name.
pub const MAX_BLOCK_SERIALIZED_SIZE: usize = 4_000_000;

/// Length of a block's header, in bytes.
pub const BLOCK_HEADER_LEN: usize = 80;

/// Minimum length of an input, in bytes: outpoint, empty script, sequence. The minimum lengths
/// allow the parser to reject a count that exceeds the rest of the block.
const MIN_INPUT: usize = 36 + 1 + 4;
/// Minimum length of an output, in bytes: value, empty script.
const MIN_OUTPUT: usize = 8 + 1;
/// Minimum length of a transaction, in bytes: version, one input, no output, lock time.
const MIN_TRANSACTION: usize = 4 + 1 + MIN_INPUT + 1 + 4;

/// Minimum length of a block, in bytes: header, number of transactions, one transaction.
pub(super) const MIN_BLOCK_LEN: usize = BLOCK_HEADER_LEN + 1 + MIN_TRANSACTION;

/// The start of the script of the output that commits to the witnesses (BIP141): OP_RETURN, a
/// push of 36 bytes, and the tag.
const COMMITMENT_TAG: [u8; 6] = [0x6a, 0x24, 0xaa, 0x21, 0xa9, 0xed];

/// The offsets of a transaction in its block.
#[derive(Clone, Copy, Debug)]
pub struct Transaction {
    start: u32,
    /// Where the witnesses begin; equal to the lock time's offset if there are none.
    witness: u32,
    end: u32,
}

impl Transaction {
    const LOCK_TIME: usize = 4;

    fn whole<'b>(&self, block: &'b [u8]) -> &'b [u8] {
        &block[self.start as usize..self.end as usize]
    }

    pub(super) fn has_witness(&self) -> bool {
        self.witness as usize + Self::LOCK_TIME < self.end as usize
    }

    /// The pieces whose hash is the transaction id: everything but marker, flag and witnesses.
    fn pieces<'b>(&self, block: &'b [u8]) -> [&'b [u8]; 3] {
        let whole = self.whole(block);
        if !self.has_witness() {
            return [whole, &[], &[]];
        }
        let (front, lock_time) = whole.split_at(whole.len() - Self::LOCK_TIME);
        let body = &front[4 + 2..(self.witness - self.start) as usize];
        [&whole[..4], body, lock_time]
    }
}

/// A parsed block. It borrows its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Block<'b> {
    bytes: &'b [u8],
    header: &'b [u8; BLOCK_HEADER_LEN],
    transactions: &'b [Transaction],
    coinbase: Coinbase<'b>,
}

/// What the first transaction says about the witnesses of all transactions.
#[derive(Clone, Copy, Debug, Default)]
struct Coinbase<'b> {
    commitment: Option<&'b Hash>,
    reserved: Option<&'b Hash>,
}

impl<'b> Block<'b> {
    /// Parses `bytes`, which must be exactly one block. `transactions` is overwritten; a caller
    /// that reuses it for the next block saves an allocation.
    ///
    /// # Errors
    ///
    /// See [`BlockError`].
    pub fn parse(
        bytes: &'b [u8],
        transactions: &'b mut Vec<Transaction>,
    ) -> Result<Self, BlockError> {
        transactions.clear();
        if bytes.len() > MAX_BLOCK_SERIALIZED_SIZE {
            let length = bytes.len();
            return Err(BlockError::TooLong { length });
        }
        let mut reader = Reader { bytes, place: 0 };
        let header = reader.take_array()?;
        let place = reader.place;
        let count = reader.count(MIN_TRANSACTION)?;
        if count == 0 {
            return Err(BlockError::NoTransactions { offset: place });
        }
        let (first, coinbase) = reader.transaction()?;
        transactions.push(first);
        for _ in 1..count {
            transactions.push(reader.transaction()?.0);
        }
        match reader.left() {
            0 => Ok(Self {
                bytes,
                header,
                transactions,
                coinbase,
            }),
            length => Err(BlockError::Trailing {
                offset: reader.place,
                length,
            }),
        }
    }

    /// The header, 80 bytes.
    #[must_use]
    pub const fn header(&self) -> &'b [u8; BLOCK_HEADER_LEN] {
        self.header
    }

    /// The block hash: the double SHA-256 of the header.
    #[must_use]
    pub fn hash(&self) -> Hash {
        block_hash(self.header)
    }

    /// The Merkle root in the header.
    #[must_use]
    pub fn merkle_root(&self) -> &'b Hash {
        array(self.header, 36)
    }

    /// The target in the header's compact form ("nBits").
    #[must_use]
    pub fn bits(&self) -> u32 {
        u32::from_le_bytes(*array(self.header, 72))
    }

    /// The offsets of the transactions.
    pub(super) fn places(&self) -> &'b [Transaction] {
        self.transactions
    }

    /// The number of transactions.
    #[must_use]
    pub const fn transactions(&self) -> usize {
        self.transactions.len()
    }

    /// For each transaction in order, the pieces whose double SHA-256 is its id. Pass them to
    /// [`Hasher::many_in_pieces`].
    pub fn txid_pieces(&self) -> impl ExactSizeIterator<Item = [&'b [u8]; 3]> {
        let transactions = self.transactions.iter();
        transactions.map(|transaction| transaction.pieces(self.bytes))
    }

    /// The transactions that have a witness, in full: their double SHA-256 is their wtxid. The
    /// wtxid of any other transaction is its txid. The first transaction's wtxid counts as
    /// zero.
    pub fn with_witness(&self) -> impl Iterator<Item = &'b [u8]> {
        let others = self.transactions[1..].iter();
        others
            .filter(|transaction| transaction.has_witness())
            .map(|transaction| transaction.whole(self.bytes))
    }

    /// Whether any transaction has a witness.
    #[must_use]
    pub fn has_witness(&self) -> bool {
        self.transactions.iter().any(Transaction::has_witness)
    }

    /// The witness commitment, if there is one: the hash of the witness root and the reserved
    /// value (BIP141). It is in the last output of the first transaction that has this form.
    #[must_use]
    pub const fn witness_commitment(&self) -> Option<&'b Hash> {
        self.coinbase.commitment
    }

    /// The witness reserved value, if there is one: 32 bytes, the only item in the witness of
    /// the first transaction's first input (BIP141).
    #[must_use]
    pub const fn witness_reserved_value(&self) -> Option<&'b Hash> {
        self.coinbase.reserved
    }
}

/// The hash of a block with this header.
#[must_use]
pub fn block_hash(header: &[u8; BLOCK_HEADER_LEN]) -> Hash {
    hash_one(Hasher::best(), [header, &[], &[]])
}

pub(super) fn hash_one(hasher: Hasher, pieces: [&[u8]; 3]) -> Hash {
    let mut hash = Hash::default();
    hasher.many_in_pieces(&[pieces], core::slice::from_mut(&mut hash));
    hash
}

/// The `N` bytes at offset `at`, which the caller knows to be there.
fn array<const N: usize>(bytes: &[u8], at: usize) -> &[u8; N] {
    bytes[at..]
        .first_chunk()
        .expect("the field is in the header")
}

/// Reads a block. It compares every length with the bytes that are left before using it.
struct Reader<'b> {
    bytes: &'b [u8],
    place: usize,
}

impl<'b> Reader<'b> {
    fn left(&self) -> usize {
        self.bytes.len() - self.place
    }

    fn cut(&self, needed: u64) -> BlockError {
        BlockError::Cut {
            offset: self.place,
            needed,
            left: self.left(),
        }
    }

    fn take(&mut self, length: usize) -> Result<&'b [u8], BlockError> {
        let taken = self.bytes[self.place..].get(..length);
        let taken = taken.ok_or_else(|| self.cut(length as u64))?;
        self.place += length;
        Ok(taken)
    }

    fn take_array<const N: usize>(&mut self) -> Result<&'b [u8; N], BlockError> {
        let taken = self.bytes[self.place..].first_chunk();
        let taken = taken.ok_or_else(|| self.cut(N as u64))?;
        self.place += N;
        Ok(taken)
    }

    /// Reads a CompactSize, which must be in its shortest form.
    fn compact(&mut self) -> Result<u64, BlockError> {
        let offset = self.place;
        let [first] = *self.take_array()?;
        let (number, least) = match first {
            0xfd => (u16::from_le_bytes(*self.take_array()?).into(), 0xfd),
            0xfe => (u32::from_le_bytes(*self.take_array()?).into(), 0x1_0000),
            0xff => (u64::from_le_bytes(*self.take_array()?), 0x1_0000_0000),
            _ => return Ok(first.into()),
        };
        match number < least {
            true => Err(BlockError::NotShortest { offset, number }),
            false => Ok(number),
        }
    }

    /// Reads the number of entries that follow, each of at least `least` bytes.
    fn count(&mut self, least: usize) -> Result<usize, BlockError> {
        let offset = self.place;
        let count = self.compact()?;
        let most = self.left() / least;
        match usize::try_from(count) {
            Ok(count) if count <= most => Ok(count),
            _ => Err(BlockError::TooMany {
                offset,
                count,
                most,
            }),
        }
    }

    /// Reads bytes with their length in front: a script, or an item of a witness.
    fn bytes(&mut self) -> Result<&'b [u8], BlockError> {
        let length = self.compact()?;
        match usize::try_from(length) {
            Ok(length) => self.take(length),
            Err(_) => Err(self.cut(length)),
        }
    }

    fn transaction(&mut self) -> Result<(Transaction, Coinbase<'b>), BlockError> {
        let mut coinbase = Coinbase::default();
        let start = self.place;
        self.take(4)?;
        let mut offset = self.place;
        let mut inputs = self.count(MIN_INPUT)?;
        // An empty list of inputs is the marker of BIP144. A transaction without witnesses has
        // at least one input, so it cannot begin like this.
        let extended = inputs == 0;
        if extended {
            let [flag] = *self.take_array()?;
            match flag {
                0 => return Err(BlockError::NoInputs { offset }),
                1 => {}
                _ => {
                    return Err(BlockError::Flag {
                        offset: offset + 1,
                        flag,
                    });
                }
            }
            offset = self.place;
            inputs = self.count(MIN_INPUT)?;
            if inputs == 0 {
                return Err(BlockError::NoInputs { offset });
            }
        }
        for _ in 0..inputs {
            self.take(36)?;
            self.bytes()?;
            self.take(4)?;
        }
        for _ in 0..self.count(MIN_OUTPUT)? {
            self.take(8)?;
            let script = self.bytes()?;
            if let Some(rest) = script.strip_prefix(&COMMITMENT_TAG) {
                coinbase.commitment = rest.first_chunk().or(coinbase.commitment);
            }
        }
        let witness = self.place;
        if extended {
            let mut items = 0;
            for input in 0..inputs {
                let count = self.count(1)?;
                items += count;
                for _ in 0..count {
                    let item = self.bytes()?;
                    if input == 0 && count == 1 {
                        coinbase.reserved = item.try_into().ok();
                    }
                }
            }
            if items == 0 {
                return Err(BlockError::NoWitness { offset: witness });
            }
        }
        self.take(Transaction::LOCK_TIME)?;
        let place = |place: usize| u32::try_from(place).expect("a block is shorter than 2^32");
        let transaction = Transaction {
            start: place(start),
            witness: place(witness),
            end: place(self.place),
        };
        Ok((transaction, coinbase))
    }
}

/// Why bytes are not a block. Offsets are in bytes from the block's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockError {
    /// There are more than [`MAX_BLOCK_SERIALIZED_SIZE`] bytes.
    TooLong {
        /// The number of bytes.
        length: usize,
    },
    /// The bytes end within a field.
    Cut {
        /// The offset of the field.
        offset: usize,
        /// Its length, in bytes.
        needed: u64,
        /// How many bytes are left at that offset.
        left: usize,
    },
    /// A CompactSize is not in its shortest form.
    NotShortest {
        /// Its offset.
        offset: usize,
        /// Its value.
        number: u64,
    },
    /// The number of entries exceeds what the rest of the block can hold.
    TooMany {
        /// The offset of that number.
        offset: usize,
        /// The number of entries.
        count: u64,
        /// The number of entries that fit at most.
        most: usize,
    },
    /// The block has no transaction, not even a coinbase.
    NoTransactions {
        /// The offset of the number of transactions.
        offset: usize,
    },
    /// A transaction has no input.
    NoInputs {
        /// The offset of the number of inputs.
        offset: usize,
    },
    /// The flag after the marker of a transaction with witnesses is not 1.
    Flag {
        /// The offset of the flag.
        offset: usize,
        /// The flag.
        flag: u8,
    },
    /// A transaction in the form with witnesses has none.
    NoWitness {
        /// The offset where they should begin.
        offset: usize,
    },
    /// Bytes follow the last transaction.
    Trailing {
        /// The offset where that transaction ends.
        offset: usize,
        /// The number of bytes that follow.
        length: usize,
    },
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { length } => write!(
                f,
                "the block has {length} bytes; at most {MAX_BLOCK_SERIALIZED_SIZE} are allowed"
            ),
            Self::Cut {
                offset,
                needed,
                left,
            } => write!(
                f,
                "the block ends too early: the field at byte {offset} has {needed} bytes, but only \
                 {left} are left"
            ),
            Self::NotShortest { offset, number } => write!(
                f,
                "the length or count at byte {offset} of the block, {number}, is not in its shortest \
                 form"
            ),
            Self::TooMany {
                offset,
                count,
                most,
            } => write!(
                f,
                "byte {offset} of the block announces {count} entries, but at most {most} fit into the \
                 rest: the block is cut short, or the count is wrong"
            ),
            Self::NoTransactions { offset } => {
                write!(f, "the block has no transactions (byte {offset})")
            }
            Self::NoInputs { offset } => write!(
                f,
                "the transaction whose inputs are at byte {offset} of the block has none"
            ),
            Self::Flag { offset, flag } => write!(
                f,
                "a transaction has the unknown flag {flag} at byte {offset} of the block; the only known \
                 one is 1, for witnesses"
            ),
            Self::NoWitness { offset } => write!(
                f,
                "a transaction in the form with witnesses has none (byte {offset} of the block)"
            ),
            Self::Trailing { offset, length } => write!(
                f,
                "{length} bytes follow the last transaction, which ends at byte {offset} of the block"
            ),
        }
    }
}

impl core::error::Error for BlockError {}
