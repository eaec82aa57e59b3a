//! Reads the fields of serialised blocks and transactions.

use core::fmt;

/// See [`Block::MAX_SERIALIZED_SIZE`](super::Block::MAX_SERIALIZED_SIZE).
pub(super) const MAX_BLOCK_SERIALIZED_SIZE: usize = 4_000_000;

/// Reads a block or a transaction. Compares every length with the remaining bytes before using it.
pub(super) struct Reader<'b> {
    bytes: &'b [u8],
    /// The offset of the next field.
    pub(super) place: usize,
}

impl<'b> Reader<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Result<Self, ParseError> {
        match bytes.len() {
            0..=MAX_BLOCK_SERIALIZED_SIZE => Ok(Self { bytes, place: 0 }),
            length => Err(ParseError::TooLong { length }),
        }
    }

    /// Checks that everything has been read.
    pub(super) fn end(&self) -> Result<(), ParseError> {
        match self.left() {
            0 => Ok(()),
            length => Err(ParseError::Trailing {
                offset: self.place,
                length,
            }),
        }
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.place
    }

    fn cut(&self, needed: u64) -> ParseError {
        ParseError::Cut {
            offset: self.place,
            needed,
            left: self.left(),
        }
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'b [u8], ParseError> {
        let taken = self.bytes[self.place..].get(..length);
        let taken = taken.ok_or_else(|| self.cut(length as u64))?;
        self.place += length;
        Ok(taken)
    }

    pub(super) fn take_array<const N: usize>(&mut self) -> Result<&'b [u8; N], ParseError> {
        let taken = self.bytes[self.place..].first_chunk();
        let taken = taken.ok_or_else(|| self.cut(N as u64))?;
        self.place += N;
        Ok(taken)
    }

    /// Reads a CompactSize, which must be in its shortest encoding.
    fn compact(&mut self) -> Result<u64, ParseError> {
        let offset = self.place;
        let [first] = *self.take_array()?;
        let (number, least) = match first {
            0xfd => (u16::from_le_bytes(*self.take_array()?).into(), 0xfd),
            0xfe => (u32::from_le_bytes(*self.take_array()?).into(), 0x1_0000),
            0xff => (u64::from_le_bytes(*self.take_array()?), 0x1_0000_0000),
            _ => return Ok(first.into()),
        };
        match number < least {
            true => Err(ParseError::NotShortest { offset, number }),
            false => Ok(number),
        }
    }

    /// Reads the number of entries that follow, each of at least `least` bytes.
    pub(super) fn count(&mut self, least: usize) -> Result<usize, ParseError> {
        let offset = self.place;
        let count = self.compact()?;
        let most = self.left() / least;
        match usize::try_from(count) {
            Ok(count) if count <= most => Ok(count),
            _ => Err(ParseError::TooMany {
                offset,
                count,
                most,
            }),
        }
    }

    /// Reads bytes prefixed with their length: a script, or an item of a witness.
    pub(super) fn bytes(&mut self) -> Result<&'b [u8], ParseError> {
        let length = self.compact()?;
        match usize::try_from(length) {
            Ok(length) => self.take(length),
            Err(_) => Err(self.cut(length)),
        }
    }
}

/// Why bytes are not a block or a transaction. Offsets are in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseError {
    /// There are more than [`Block::MAX_SERIALIZED_SIZE`](super::Block::MAX_SERIALIZED_SIZE) bytes.
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
    /// A CompactSize is not in its shortest encoding.
    NotShortest {
        /// Its offset.
        offset: usize,
        /// Its value.
        number: u64,
    },
    /// The number of entries exceeds what the remaining bytes can hold.
    TooMany {
        /// The offset of that number.
        offset: usize,
        /// The number of entries.
        count: u64,
        /// The maximum number of entries that fit.
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
    /// A transaction in the encoding with witnesses has none.
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

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { length } => write!(
                f,
                "{length} bytes exceed the maximum of a block, {MAX_BLOCK_SERIALIZED_SIZE}"
            ),
            Self::Cut {
                offset,
                needed,
                left,
            } => write!(
                f,
                "it ends too early: the field at byte {offset} has {needed} bytes, but only {left} \
                 are left"
            ),
            Self::NotShortest { offset, number } => write!(
                f,
                "the length or count at byte {offset}, {number}, is not in its shortest encoding"
            ),
            Self::TooMany {
                offset,
                count,
                most,
            } => write!(
                f,
                "byte {offset} announces {count} entries, but at most {most} fit into the rest: it is \
                 cut short, or the count is wrong"
            ),
            Self::NoTransactions { offset } => {
                write!(f, "there are no transactions (byte {offset})")
            }
            Self::NoInputs { offset } => {
                write!(
                    f,
                    "the transaction whose inputs are at byte {offset} has none"
                )
            }
            Self::Flag { offset, flag } => write!(
                f,
                "a transaction has the unknown flag {flag} at byte {offset}; the only known one is 1, \
                 for witnesses"
            ),
            Self::NoWitness { offset } => write!(
                f,
                "a transaction in the encoding with witnesses has none (byte {offset})"
            ),
            Self::Trailing { offset, length } => {
                write!(f, "{length} bytes follow its end at byte {offset}")
            }
        }
    }
}

impl core::error::Error for ParseError {}
