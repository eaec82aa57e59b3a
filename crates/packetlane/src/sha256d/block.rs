//! A serialised block of Bitcoin, parsed where it lies.
//!
//! [`Block::parse`] walks over it once and notes where its transactions begin and end;
//! nothing is copied.

use super::hasher::{Hash, Hasher};
use alloc::vec::Vec;
use core::fmt;

/// Longest block that the network admits, in bytes: 4,000,000 units of weight, of
/// which a byte counts at least one (Bitcoin Core's constant of the same name).
pub const MAX_BLOCK_SERIALIZED_SIZE: usize = 4_000_000;

/// Length of a block's header, in bytes.
pub const BLOCK_HEADER_LEN: usize = 80;

/// The least that an entry takes, in bytes: a count that the rest of the block could not
/// hold is refused. An input: outpoint, empty script, sequence.
const MIN_INPUT: usize = 36 + 1 + 4;
/// An output: value, empty script.
const MIN_OUTPUT: usize = 8 + 1;
/// A transaction: version, one input, no output, lock time.
const MIN_TRANSACTION: usize = 4 + 1 + MIN_INPUT + 1 + 4;

/// A block: header, number of transactions, one of them.
pub(super) const MIN_BLOCK_LEN: usize = BLOCK_HEADER_LEN + 1 + MIN_TRANSACTION;

/// How the script of the output begins that commits to the witnesses (BIP141):
/// OP_RETURN, a push of 36 bytes, and the tag.
const COMMITMENT_TAG: [u8; 6] = [0x6a, 0x24, 0xaa, 0x21, 0xa9, 0xed];

/// Where a transaction lies in its block.
#[derive(Clone, Copy, Debug)]
pub struct Transaction {
    start: u32,
    /// Where the witnesses begin; without any, where the lock time does.
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

    /// The pieces whose hash is its id: all of it except marker, flag and witnesses.
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

/// A serialised block, parsed where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Block<'b> {
    bytes: &'b [u8],
    header: &'b [u8; BLOCK_HEADER_LEN],
    transactions: &'b [Transaction],
    coinbase: Coinbase<'b>,
}

/// What the first transaction says of the witnesses of all transactions.
#[derive(Clone, Copy, Debug, Default)]
struct Coinbase<'b> {
    commitment: Option<&'b Hash>,
    reserved: Option<&'b Hash>,
}

impl<'b> Block<'b> {
    /// Parses `bytes`, which are one block and nothing else. `transactions` is overwritten: a
    /// caller that keeps it for the next block saves an allocation.
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

    /// Its header.
    #[must_use]
    pub const fn header(&self) -> &'b [u8; BLOCK_HEADER_LEN] {
        self.header
    }

    /// Its hash: its header's.
    #[must_use]
    pub fn hash(&self) -> Hash {
        block_hash(self.header)
    }

    /// The Merkle root that its header names.
    #[must_use]
    pub fn merkle_root(&self) -> &'b Hash {
        array(self.header, 36)
    }

    /// Its target in the header's short form ("nBits").
    #[must_use]
    pub fn bits(&self) -> u32 {
        u32::from_le_bytes(*array(self.header, 72))
    }

    /// Where its transactions lie.
    pub(super) fn places(&self) -> &'b [Transaction] {
        self.transactions
    }

    /// How many transactions it has.
    #[must_use]
    pub const fn transactions(&self) -> usize {
        self.transactions.len()
    }

    /// The pieces whose double SHA-256 is the id of each transaction, in the order of the
    /// block, as [`Hasher::many_in_pieces`] takes them.
    pub fn txid_pieces(&self) -> impl ExactSizeIterator<Item = [&'b [u8]; 3]> {
        let transactions = self.transactions.iter();
        transactions.map(|transaction| transaction.pieces(self.bytes))
    }

    /// The transactions that have a witness, whole: their double SHA-256 is their witness id.
    /// The witness id of any other is its id, and the first transaction's does not count.
    pub fn with_witness(&self) -> impl Iterator<Item = &'b [u8]> {
        let others = self.transactions[1..].iter();
        others
            .filter(|transaction| transaction.has_witness())
            .map(|transaction| transaction.whole(self.bytes))
    }

    /// Whether a transaction has a witness.
    #[must_use]
    pub fn has_witness(&self) -> bool {
        self.transactions.iter().any(Transaction::has_witness)
    }

    /// The witness commitment, if there is one: the hash of the root of its witness tree and
    /// of the reserved value, from the last output of that form in its first transaction
    /// (BIP141).
    #[must_use]
    pub const fn witness_commitment(&self) -> Option<&'b Hash> {
        self.coinbase.commitment
    }

    /// The witness reserved value, if it is there: 32 bytes, the only item in the witness of
    /// its first transaction's first input (BIP141).
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

/// The `N` bytes of `bytes` from `at` on, which are there.
fn array<const N: usize>(bytes: &[u8], at: usize) -> &[u8; N] {
    bytes[at..]
        .first_chunk()
        .expect("the field is in the header")
}

/// A block as far as it has been read. Every length is compared with what is left before it
/// is used.
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

    /// A number in CompactSize, in its shortest form.
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

    /// How many entries follow, each of `least` bytes at least.
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

    /// Bytes behind their own length: a script, or an item of a witness.
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
        // No inputs: the marker of BIP144, with which no transaction of the old form
        // begins, since it has one input at least.
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

/// Why bytes are no block. Offsets count from the block's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockError {
    /// They are more than [`MAX_BLOCK_SERIALIZED_SIZE`].
    TooLong {
        /// How many they are.
        length: usize,
    },
    /// They end within a field.
    Cut {
        /// Where the field begins.
        offset: usize,
        /// Its length, in bytes.
        needed: u64,
        /// How many bytes are left there.
        left: usize,
    },
    /// A number in CompactSize is not in its shortest form.
    NotShortest {
        /// Where it lies.
        offset: usize,
        /// The number.
        number: u64,
    },
    /// There are said to be more entries than the rest of the block could hold.
    TooMany {
        /// Where that is said.
        offset: usize,
        /// How many there are said to be.
        count: u64,
        /// How many there is room for.
        most: usize,
    },
    /// The block has no transaction, not even the one that pays the miner.
    NoTransactions {
        /// Where their number lies.
        offset: usize,
    },
    /// A transaction has no input.
    NoInputs {
        /// Where their number lies.
        offset: usize,
    },
    /// The flag behind the marker of a transaction with witnesses is not 1.
    Flag {
        /// Where it lies.
        offset: usize,
        /// The flag.
        flag: u8,
    },
    /// A transaction is in the form with witnesses and has none.
    NoWitness {
        /// Where they should begin.
        offset: usize,
    },
    /// Something follows the last transaction.
    Trailing {
        /// Where that transaction ends.
        offset: usize,
        /// How many bytes follow.
        length: usize,
    },
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { length } => write!(
                f,
                "{length} bytes are more than a block may have ({MAX_BLOCK_SERIALIZED_SIZE})"
            ),
            Self::Cut {
                offset,
                needed,
                left,
            } => write!(
                f,
                "the block ends too early: a field of {needed} bytes begins at its byte \
                 {offset}, where {left} are left"
            ),
            Self::NotShortest { offset, number } => write!(
                f,
                "the length or count {number} at byte {offset} of the block is not in its \
                 shortest form"
            ),
            Self::TooMany {
                offset,
                count,
                most,
            } => write!(
                f,
                "byte {offset} of the block announces {count} entries, and no more than {most} \
                 fit into the rest: the block was cut, or the count is wrong"
            ),
            Self::NoTransactions { offset } => {
                write!(f, "the block has no transactions (byte {offset})")
            }
            Self::NoInputs { offset } => write!(
                f,
                "a transaction has no inputs (byte {offset} of the block)"
            ),
            Self::Flag { offset, flag } => write!(
                f,
                "a transaction has the unknown flag {flag} (byte {offset} of the block): 1, for \
                 witnesses, is the only one"
            ),
            Self::NoWitness { offset } => write!(
                f,
                "a transaction is in the form with witnesses and has none (byte {offset} of the \
                 block)"
            ),
            Self::Trailing { offset, length } => write!(
                f,
                "{length} bytes follow the last transaction (byte {offset} of the block)"
            ),
        }
    }
}

impl core::error::Error for BlockError {}
