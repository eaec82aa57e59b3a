//! Parses serialised Bitcoin transactions without copying them, and computes their ids.

use super::hasher::{Hash, Hasher};
use super::reader::{ParseError, Reader};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

/// Minimum length of an input, in bytes: outpoint, empty script, sequence. The minimum lengths
/// allow the parser to reject a count that exceeds the rest of the block.
const MIN_INPUT: usize = 36 + 1 + 4;
/// Minimum length of an output, in bytes: value, empty script.
const MIN_OUTPUT: usize = 8 + 1;
/// Minimum length of a transaction, in bytes: version, one input, no output, lock time.
pub(super) const MIN_TRANSACTION: usize = 4 + 1 + MIN_INPUT + 1 + 4;

/// The start of the script of the output that commits to the witnesses (BIP141): OP_RETURN, a
/// push of 36 bytes, and the tag.
const COMMITMENT_TAG: [u8; 6] = [0x6a, 0x24, 0xaa, 0x21, 0xa9, 0xed];

/// The outpoint of a coinbase's only input, which no other transaction may spend.
const NULL_OUTPOINT: [u8; 36] = {
    let mut outpoint = [0; 36];
    let (_, index) = outpoint.split_at_mut(32);
    index.copy_from_slice(&[0xff; 4]);
    outpoint
};

/// A parsed transaction. It borrows its bytes.
///
/// ```
/// use packetlane::sha256d::Transaction;
///
/// # fn main() -> Result<(), packetlane::sha256d::ParseError> {
/// let version: &[u8] = &[2, 0, 0, 0];
/// let inputs = &[&[1][..], &[7; 36], &[0], &[0xff; 4]].concat();
/// let outputs = &[&[1][..], &[9; 8], &[0]].concat();
/// let lock_time = &[0; 4];
/// let plain = [version, inputs, outputs, lock_time].concat();
/// // The same transaction with a witness of one item.
/// let (marker, witness) = (&[0, 1], &[1, 3, b'a', b'b', b'c']);
/// let signed = [version, marker, inputs, outputs, witness, lock_time].concat();
///
/// let (plain, signed) = (Transaction::parse(&plain)?, Transaction::parse(&signed)?);
/// assert!(signed.has_witness());
/// assert_eq!(signed.txid(), plain.txid());
/// assert_ne!(signed.wtxid(), plain.wtxid());
/// assert_eq!(plain.wtxid(), plain.txid());
/// assert_eq!(signed.txid_pieces().concat(), plain.bytes());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction<'b> {
    bytes: &'b [u8],
    /// The offset of the witnesses; of the lock time if there are none.
    witness: usize,
}

impl<'b> Transaction<'b> {
    const LOCK_TIME: usize = 4;

    /// Parses `bytes`, which must be exactly one transaction as messages and blocks carry it,
    /// with or without witnesses (BIP144).
    ///
    /// # Errors
    ///
    /// See [`ParseError`].
    pub fn parse(bytes: &'b [u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(bytes)?;
        let (offsets, _) = reader.transaction()?;
        reader.end()?;
        Ok(offsets.of(bytes))
    }

    /// Returns the whole transaction, as parsed. Its double SHA-256 is the wtxid.
    #[must_use]
    pub const fn bytes(&self) -> &'b [u8] {
        self.bytes
    }

    /// Returns the pieces whose double SHA-256 is the txid: everything except marker, flag and
    /// witnesses. Without witnesses, the first piece is the whole transaction and the others are
    /// empty.
    #[must_use]
    pub fn txid_pieces(&self) -> [&'b [u8]; 3] {
        if !self.has_witness() {
            return [self.bytes, &[], &[]];
        }
        let (front, lock_time) = self.bytes.split_at(self.bytes.len() - Self::LOCK_TIME);
        [&front[..4], &front[4 + 2..self.witness], lock_time]
    }

    /// Whether any input has a witness.
    #[must_use]
    pub const fn has_witness(&self) -> bool {
        self.witness + Self::LOCK_TIME < self.bytes.len()
    }

    /// Computes the txid. For many transactions, [`Hasher::txids`] is faster.
    #[must_use]
    pub fn txid(&self) -> Hash {
        hash_one(Hasher::best(), self.txid_pieces())
    }

    /// Computes the wtxid, which also covers the witnesses (BIP141); equal to the txid if there are
    /// none. For many transactions, [`Hasher::wtxids`] is faster. A block's wtxid tree has zeros in
    /// place of the coinbase's wtxid.
    #[must_use]
    pub fn wtxid(&self) -> Hash {
        hash_one(Hasher::best(), [self.bytes, &[], &[]])
    }
}

/// The offsets of a transaction in its block, for [`Block::parse`](super::Block::parse).
#[derive(Clone, Copy, Debug)]
pub struct TransactionOffsets {
    start: u32,
    /// The offset of the witnesses; of the lock time if there are none.
    witness: u32,
    end: u32,
}

impl TransactionOffsets {
    pub(super) fn of<'b>(&self, block: &'b [u8]) -> Transaction<'b> {
        Transaction {
            bytes: &block[self.start as usize..self.end as usize],
            witness: (self.witness - self.start) as usize,
        }
    }
}

/// What a block's rules need from a transaction, besides its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Contents<'b> {
    pub(super) inputs: usize,
    /// Whether an input has the null outpoint.
    pub(super) null_outpoint: bool,
    /// In a first transaction: the commitment to the witnesses of all transactions.
    pub(super) commitment: Option<&'b Hash>,
    pub(super) reserved: Option<&'b Hash>,
}

impl<'b> Reader<'b> {
    /// Reads a transaction.
    pub(super) fn transaction(&mut self) -> Result<(TransactionOffsets, Contents<'b>), ParseError> {
        let mut contents = Contents::default();
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
                0 => return Err(ParseError::NoInputs { offset }),
                1 => {}
                _ => {
                    return Err(ParseError::Flag {
                        offset: offset + 1,
                        flag,
                    });
                }
            }
            offset = self.place;
            inputs = self.count(MIN_INPUT)?;
            if inputs == 0 {
                return Err(ParseError::NoInputs { offset });
            }
        }
        contents.inputs = inputs;
        for _ in 0..inputs {
            contents.null_outpoint |= *self.take_array()? == NULL_OUTPOINT;
            self.bytes()?;
            self.take(4)?;
        }
        for _ in 0..self.count(MIN_OUTPUT)? {
            self.take(8)?;
            let script = self.bytes()?;
            if let Some(rest) = script.strip_prefix(&COMMITMENT_TAG) {
                contents.commitment = rest.first_chunk().or(contents.commitment);
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
                        contents.reserved = item.try_into().ok();
                    }
                }
            }
            if items == 0 {
                return Err(ParseError::NoWitness { offset: witness });
            }
        }
        self.take(Transaction::LOCK_TIME)?;
        let place = |place: usize| u32::try_from(place).expect("a block is shorter than 2^32");
        let offsets = TransactionOffsets {
            start: place(start),
            witness: place(witness),
            end: place(self.place),
        };
        Ok((offsets, contents))
    }
}

impl Hasher {
    /// Computes the txids of `transactions`, each a whole transaction as in messages and blocks,
    /// with or without witnesses (BIP144). Parses all, then hashes all in one call.
    ///
    /// # Errors
    ///
    /// [`TransactionError`] for the first message that is not a transaction.
    ///
    /// ```
    /// use packetlane::sha256d::Hasher;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let version: &[u8] = &[2, 0, 0, 0];
    /// let inputs = &[&[1][..], &[7; 36], &[0], &[0xff; 4]].concat();
    /// let outputs = &[&[1][..], &[9; 8], &[0]].concat();
    /// let lock_time = &[0; 4];
    /// let plain = [version, inputs, outputs, lock_time].concat();
    /// // The same transaction with a witness of one item.
    /// let (marker, witness) = (&[0, 1], &[1, 3, b'a', b'b', b'c']);
    /// let signed = [version, marker, inputs, outputs, witness, lock_time].concat();
    ///
    /// let hasher = Hasher::detect()?;
    /// let txids = hasher.txids(&[&plain, &signed])?;
    /// assert_eq!(txids[0], txids[1]);
    /// let wtxids = hasher.wtxids(&[&plain, &signed])?;
    /// assert_eq!(wtxids[0], txids[0]);
    /// assert_ne!(wtxids[1], txids[1]);
    ///
    /// let error = hasher.txids(&[&plain, &signed[1..]]).unwrap_err();
    /// assert_eq!(error.index, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn txids(&self, transactions: &[&[u8]]) -> Result<Vec<Hash>, TransactionError> {
        let parsed = parse_all(transactions);
        let pieces = parsed.map(|parsed| parsed.map(|transaction| transaction.txid_pieces()));
        let pieces: Vec<[&[u8]; 3]> = pieces.collect::<Result<_, _>>()?;
        let mut txids = vec![Hash::default(); pieces.len()];
        self.hash_many_in_pieces(&pieces, &mut txids);
        Ok(txids)
    }

    /// Computes the wtxids of `transactions` (BIP141), which cover their witnesses; otherwise like
    /// [`txids`](Self::txids). A block's wtxid tree has zeros in place of the coinbase's wtxid.
    ///
    /// # Errors
    ///
    /// [`TransactionError`] for the first message that is not a transaction.
    pub fn wtxids(&self, transactions: &[&[u8]]) -> Result<Vec<Hash>, TransactionError> {
        parse_all(transactions).try_for_each(|parsed| parsed.map(|_| ()))?;
        let mut wtxids = vec![Hash::default(); transactions.len()];
        self.hash_many(transactions, &mut wtxids);
        Ok(wtxids)
    }
}

fn parse_all<'b>(
    transactions: &[&'b [u8]],
) -> impl Iterator<Item = Result<Transaction<'b>, TransactionError>> {
    let messages = transactions.iter().enumerate();
    messages.map(|(index, bytes)| {
        Transaction::parse(bytes).map_err(|cause| TransactionError { index, cause })
    })
}

/// A message in a list of transactions is not a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionError {
    /// Its index in the list.
    pub index: usize,
    /// What is wrong with it.
    pub cause: ParseError,
}

impl fmt::Display for TransactionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, cause } = self;
        write!(f, "number {index} (from 0) is not a transaction: {cause}")
    }
}

impl core::error::Error for TransactionError {}

pub(super) fn hash_one(hasher: Hasher, pieces: [&[u8]; 3]) -> Hash {
    let mut hash = Hash::default();
    hasher.hash_many_in_pieces(&[pieces], core::slice::from_mut(&mut hash));
    hash
}
