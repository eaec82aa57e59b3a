//! Blocks of Bitcoin: taken apart where they lie, hashed in one batch, and compared
//! with what their headers promise.
//!
//! [`Block::parse`] walks over a serialised block once and notes where its
//! transactions begin and end; nothing is copied. [`Verifier::verify`] hashes them all
//! in one call and checks what a block says of itself:
//!
//! - the Merkle root of its transactions, and that they are no mutation
//!   (CVE-2012-2459);
//! - its witnesses' commitment (BIP141), if it has witnesses;
//! - that its header's hash meets the target that the header itself names.
//!
//! It is no validation: whether the chain asks for that target or a harder one, what
//! the scripts say and whether the coins exist takes the chain, which is not here. A
//! block whose witnesses have all been left out looks like one from before BIP141, and
//! passes.

use super::{Hash, many_in_pieces, merkle_root};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::mem;

/// Longest block that the network admits, in bytes: 4,000,000 units of weight, of
/// which a byte counts at least one (Bitcoin Core's constant of the same name).
pub const MAX_BLOCK_SERIALIZED_SIZE: usize = 4_000_000;

/// Length of a block's header, in bytes.
pub const BLOCK_HEADER_LEN: usize = 80;

/// The least bytes that each takes, so that no count is believed which the rest of the
/// block could not hold. An input: outpoint, empty script, sequence.
const LEAST_INPUT: usize = 36 + 1 + 4;
/// An output: value, empty script.
const LEAST_OUTPUT: usize = 8 + 1;
/// A transaction: version, one input, no output, lock time.
const LEAST_TRANSACTION: usize = 4 + 1 + LEAST_INPUT + 1 + 4;

/// A block: header, number of transactions, one of them.
pub(super) const LEAST_BLOCK: usize = BLOCK_HEADER_LEN + 1 + LEAST_TRANSACTION;

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

    fn has_witness(&self) -> bool {
        self.witness as usize + Self::LOCK_TIME < self.end as usize
    }

    /// What its id is the hash of: all of it but marker, flag and witnesses.
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

/// A serialised block, taken apart where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Block<'b> {
    bytes: &'b [u8],
    header: &'b [u8; BLOCK_HEADER_LEN],
    transactions: &'b [Transaction],
    coinbase: Coinbase<'b>,
}

/// What the first transaction says of the witnesses of all.
#[derive(Clone, Copy, Debug, Default)]
struct Coinbase<'b> {
    commitment: Option<&'b Hash>,
    reserved: Option<&'b Hash>,
}

impl<'b> Block<'b> {
    /// Takes `bytes` apart, which are one block and nothing else. `transactions` is
    /// overwritten: whoever keeps it for the next block spares the allocator.
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
        let count = reader.count(LEAST_TRANSACTION)?;
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

    /// How many transactions it has.
    #[must_use]
    pub const fn transactions(&self) -> usize {
        self.transactions.len()
    }

    /// What the id of each transaction is the double SHA-256 of, in the order of the
    /// block, as [`many_in_pieces`] takes it.
    pub fn txid_pieces(&self) -> impl ExactSizeIterator<Item = [&'b [u8]; 3]> {
        let transactions = self.transactions.iter();
        transactions.map(|transaction| transaction.pieces(self.bytes))
    }

    /// The transactions that have a witness, whole: what their witness ids are the
    /// double SHA-256 of. That of any other is its id, and the first transaction's
    /// does not count.
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

    /// What it says that the root of its witness tree and the reserved value hash to,
    /// if it says so: the last output of that form in its first transaction.
    #[must_use]
    pub const fn witness_commitment(&self) -> Option<&'b Hash> {
        self.coinbase.commitment
    }

    /// The witness reserved value, if it is there: 32 bytes, alone in the witness of
    /// its first transaction's first input.
    #[must_use]
    pub const fn witness_reserved_value(&self) -> Option<&'b Hash> {
        self.coinbase.reserved
    }
}

/// The hash of a block with this header.
#[must_use]
pub fn block_hash(header: &[u8; BLOCK_HEADER_LEN]) -> Hash {
    hash_one([header, &[], &[]])
}

fn hash_one(pieces: [&[u8]; 3]) -> Hash {
    let mut hash = Hash::default();
    many_in_pieces(&[pieces], core::slice::from_mut(&mut hash));
    hash
}

/// The `N` bytes of `bytes` from `at` on, which are there.
fn array<const N: usize>(bytes: &[u8], at: usize) -> &[u8; N] {
    bytes[at..]
        .first_chunk()
        .expect("the field is in the header")
}

/// A block as far as it has been read. Every length is held against what is left
/// before anything is made of it.
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
        let mut inputs = self.count(LEAST_INPUT)?;
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
            inputs = self.count(LEAST_INPUT)?;
            if inputs == 0 {
                return Err(BlockError::NoInputs { offset });
            }
        }
        for _ in 0..inputs {
            self.take(36)?;
            self.bytes()?;
            self.take(4)?;
        }
        for _ in 0..self.count(LEAST_OUTPUT)? {
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

/// What a block turned out to be that is as it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Its hash.
    pub hash: Hash,
    /// How many transactions it has.
    pub transactions: usize,
    /// Its length, in bytes.
    pub bytes: usize,
    /// How many double SHA-256 that took: header, transactions, trees, commitment.
    pub hashes: usize,
}

/// Verifies blocks, one after the other. It keeps its lists from block to block, so
/// that only a larger one than ever asks the allocator for room.
#[derive(Debug, Default)]
pub struct Verifier {
    transactions: Vec<Transaction>,
    /// Empty between blocks, whatever it borrowed.
    pieces: Vec<[&'static [u8]; 3]>,
    digests: Vec<Hash>,
    wtxids: Vec<Hash>,
}

impl Verifier {
    /// A verifier that holds no memory yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks that `bytes` are one block which is as its header says.
    ///
    /// # Errors
    ///
    /// Every fault that was found, at least one.
    pub fn verify(&mut self, bytes: &[u8]) -> Result<Summary, Vec<BlockFault>> {
        let block = match Block::parse(bytes, &mut self.transactions) {
            Ok(block) => block,
            Err(error) => return Err(vec![BlockFault::Malformed(error)]),
        };
        let mut faults = Vec::new();
        let hash = block.hash();
        if let Err(fault) = check_work(&hash, block.bits()) {
            faults.push(fault);
        }

        // One list for all ids: the more messages, the fuller the lanes.
        let count = block.transactions();
        let has_witness = block.has_witness();
        let mut pieces: Vec<[&[u8]; 3]> = mem::take(&mut self.pieces);
        pieces.extend(block.txid_pieces());
        if has_witness {
            pieces.extend(block.with_witness().map(|whole| [whole, &[], &[]]));
        }
        self.digests.resize(pieces.len(), Hash::default());
        many_in_pieces(&pieces, &mut self.digests);
        let mut hashes = 1 + pieces.len() + inner_nodes(count);
        // The list outlives what it borrowed. (This collects in place.)
        pieces.clear();
        self.pieces = pieces.into_iter().map(|_| [&[][..]; 3]).collect();

        let (txids, witness_digests) = self.digests.split_at(count);
        let tree = merkle_root(txids);
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
                    let others = block.transactions.iter().zip(txids).skip(1);
                    self.wtxids.extend(others.map(|(transaction, txid)| {
                        let digest = transaction.has_witness().then(|| digests.next());
                        *digest.flatten().unwrap_or(txid)
                    }));
                    let root = merkle_root(&self.wtxids).root;
                    let computed = hash_one([&root, reserved, &[]]);
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
            hashes,
        })
    }
}

/// How many nodes of a Merkle tree over so many leaves are hashed.
fn inner_nodes(leaves: usize) -> usize {
    let mut nodes = 0;
    let mut level = leaves;
    while level > 1 {
        level = level.div_ceil(2);
        nodes += level;
    }
    nodes
}

/// Whether a header's hash meets the target that the header names: the rules of
/// Bitcoin Core's `CheckProofOfWork`, but for the chain's own limit.
fn check_work(hash: &Hash, bits: u32) -> Result<(), BlockFault> {
    let target = target(bits)?;
    // Both are numbers whose last byte is the highest.
    match hash.iter().rev().gt(target.iter().rev()) {
        true => Err(BlockFault::Work { hash: *hash, bits }),
        false => Ok(()),
    }
}

/// The target that `bits` stand for: a sign and a mantissa of 23 bits, times 256 to
/// the power of the first byte less 3. The lowest byte comes first.
fn target(bits: u32) -> Result<[u8; 32], BlockFault> {
    let size = bits >> 24;
    // What a small size shifts out is lost.
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

/// What is wrong with a block. Hashes are shown as everywhere, last byte first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockFault {
    /// It is not in the form of a block.
    Malformed(BlockError),
    /// The target is zero, which no hash meets.
    ZeroTarget {
        /// The header's short form of it.
        bits: u32,
    },
    /// The target is below zero.
    NegativeTarget {
        /// The header's short form of it.
        bits: u32,
    },
    /// The target does not fit 256 bits.
    TargetOverflow {
        /// The header's short form of it.
        bits: u32,
    },
    /// The header's hash does not meet the target that the header names.
    Work {
        /// That hash.
        hash: Hash,
        /// The header's short form of the target.
        bits: u32,
    },
    /// The transactions have another Merkle root than the header names.
    MerkleRoot {
        /// The header's.
        header: Hash,
        /// The transactions'.
        computed: Hash,
    },
    /// Neighbours in the Merkle tree are equal: transactions were repeated in a way
    /// that leaves the root as it was (CVE-2012-2459).
    Mutated,
    /// Transactions have witnesses, and the first one does not commit to them.
    NoCommitment,
    /// The first transaction commits to witnesses but does not carry the reserved value
    /// of 32 bytes that goes into the commitment.
    NoReservedValue,
    /// The witnesses are not those that the first transaction commits to.
    Commitment {
        /// The commitment in the block.
        block: Hash,
        /// That of its witnesses.
        computed: Hash,
    },
}

impl fmt::Display for BlockFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => error.fmt(f),
            Self::ZeroTarget { bits } => {
                write!(f, "the target {bits:08x} in the header is zero")
            }
            Self::NegativeTarget { bits } => {
                write!(f, "the target {bits:08x} in the header is negative")
            }
            Self::TargetOverflow { bits } => {
                write!(f, "the target {bits:08x} in the header exceeds 256 bits")
            }
            Self::Work { bits, .. } => write!(
                f,
                "no proof of work: its hash is above {bits:08x}, the target in its header"
            ),
            Self::MerkleRoot { header, computed } => write!(
                f,
                "the transactions have the Merkle root {}, the header names {}",
                Shown(computed),
                Shown(header)
            ),
            Self::Mutated => f.write_str(
                "transactions are repeated in a way that leaves the Merkle root as it was \
                 (CVE-2012-2459)",
            ),
            Self::NoCommitment => {
                f.write_str("it has witnesses, and its first transaction does not commit to them")
            }
            Self::NoReservedValue => f.write_str(
                "it has witnesses, and its first transaction lacks the reserved value of 32 bytes",
            ),
            Self::Commitment { block, computed } => write!(
                f,
                "the witnesses hash to {}, the first transaction commits to {}",
                Shown(computed),
                Shown(block)
            ),
        }
    }
}

impl core::error::Error for BlockFault {}

/// A hash in the order in which people read it.
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

    /// Bitcoin Core's `bignum_SetCompact` cases, and the borders of each rule.
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
    fn a_hash_may_be_the_target_itself_and_no_more() {
        let mut hash = [0; 32];
        hash[2] = 0x12;
        assert_eq!(check_work(&hash, 0x0312_0000), Ok(()));
        hash[0] = 1;
        let bits = 0x0312_0000;
        assert_eq!(
            check_work(&hash, bits),
            Err(BlockFault::Work { hash, bits })
        );
        hash = [0xff; 32];
        hash[31] = 0x7f;
        let bits = 0x207f_ffff;
        assert_eq!(
            check_work(&hash, bits),
            Err(BlockFault::Work { hash, bits })
        );
        hash[..29].fill(0);
        assert_eq!(check_work(&hash, bits), Ok(()));
    }

    #[test]
    fn the_nodes_of_a_tree_are_counted() {
        for (leaves, nodes) in [
            (0, 0),
            (1, 0),
            (2, 1),
            (3, 3),
            (4, 3),
            (5, 6),
            (8, 7),
            (9, 11),
        ] {
            assert_eq!(inner_nodes(leaves), nodes, "{leaves}");
        }
    }
}
