//! Files of blocks as Bitcoin Core keeps them (`blk00000.dat` and so on), scanned piece by
//! piece and without I/O.
//!
//! Each block lies in a frame: the network's magic, the block's length in four bytes,
//! the block. Where a frame should be and none is, [`Scanner`] says why and goes on at
//! the next magic, so that damage in one place costs nothing elsewhere. Zeros at the
//! end of a file are no damage: Bitcoin Core preallocates its files.

use super::block::{Block, MAX_BLOCK_SERIALIZED_SIZE, MIN_BLOCK_LEN};
use super::hasher::Hasher;
use super::verify::{BlockFault, Verifier};
use crate::bitcoin::Network;
use alloc::vec::Vec;
use core::fmt;

/// Length of what stands in front of a block, in bytes: magic and length.
pub const FRAME_LEN: usize = MAGIC_LEN + 4;

const MAGIC_LEN: usize = 4;

/// With so many bytes of a file, [`Scanner::next`] never asks for more: a frame with the
/// longest block, and the magic behind it.
pub const MAX_NEEDED: usize = FRAME_LEN + MAX_BLOCK_SERIALIZED_SIZE + MAGIC_LEN;

/// The obfuscation of Bitcoin Core's files since version 28: eight bytes, repeated from the
/// file's beginning on, are XORed onto the blocks, so that virus scanners do not react to
/// what strangers put into the chain. The eight bytes lie in `xor.dat` beside the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Obfuscation(pub [u8; 8]);

impl Obfuscation {
    /// Removes it from `bytes`, which begin at offset `position` of their file. (Or
    /// adds it: that is the same.)
    pub fn apply(self, position: u64, bytes: &mut [u8]) {
        if self == Self::default() {
            return;
        }
        let mut key = self.0;
        key.rotate_left((position % 8) as usize);
        let (words, rest) = bytes.as_chunks_mut();
        for word in words {
            *word = (u64::from_ne_bytes(*word) ^ u64::from_ne_bytes(key)).to_ne_bytes();
        }
        for (byte, key) in rest.iter_mut().zip(key) {
            *byte ^= key;
        }
    }

    /// How many of the last of `bytes`, which end at offset `end` of their file, were
    /// zero in the file: its padding, which is never obfuscated.
    fn padding(self, end: u64, bytes: &[u8]) -> usize {
        let places = (0..end).rev().map(|place| self.0[(place % 8) as usize]);
        let zeros = bytes.iter().rev().zip(places);
        zeros.take_while(|(byte, key)| *byte == key).count()
    }
}

/// What lies next in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'b> {
    /// A block, or what its frame says is one: only [`Verifier`](super::Verifier)
    /// tells.
    Block {
        /// Where it begins in the file, behind its frame.
        offset: u64,
        /// The block.
        bytes: &'b [u8],
    },
    /// Something else.
    Fault(FileFault),
}

/// Finds the blocks in one file.
#[derive(Debug)]
pub struct Scanner {
    magic: [u8; MAGIC_LEN],
    obfuscation: Obfuscation,
    /// The offset of the first byte that it has not consumed.
    position: u64,
    skipping: Option<Skipping>,
    /// For bytes that their frame by itself does not prove to be a block.
    verifier: Verifier,
}

/// What is being passed over until the next magic.
#[derive(Debug)]
struct Skipping {
    cause: Cause,
    start: u64,
    /// The end of what was not padding so far.
    end: u64,
}

impl Scanner {
    /// A scanner at the beginning of a file of blocks of the network with this magic.
    /// Its input is what `obfuscation` has been removed from; it needs `obfuscation` only to
    /// know what was zero in the file. A frame that no other frame follows it verifies with
    /// `hasher`.
    #[must_use]
    pub fn new(magic: [u8; 4], obfuscation: Obfuscation, hasher: Hasher) -> Self {
        Self {
            magic,
            obfuscation,
            position: 0,
            skipping: None,
            verifier: Verifier::new(hasher),
        }
    }

    /// Whether a file that consists of `bytes` is one block without a frame: it does
    /// not begin like a file of frames, and either is a block or holds no frame
    /// elsewhere.
    #[must_use]
    pub fn is_bare_block(&self, bytes: &[u8]) -> bool {
        let Some((first, _)) = bytes.split_first_chunk() else {
            return false;
        };
        let framed = *first == self.magic || Network::from_magic(*first).is_some();
        let empty = self.obfuscation.padding(bytes.len() as u64, bytes) == bytes.len();
        !framed
            && !empty
            && bytes.len() <= MAX_BLOCK_SERIALIZED_SIZE
            && (Block::parse(bytes, &mut Vec::new()).is_ok() || find(&self.magic, bytes).is_none())
    }

    /// Finds what lies next. `rest` are the bytes of the file from where the last call
    /// left off; what has been dealt with is taken from them. `ends` says whether the
    /// file ends behind them.
    ///
    /// `None` asks for more bytes behind those that are left in `rest`, which are less
    /// than [`MAX_NEEDED`]. If the file ends there, nothing more is in it.
    ///
    /// The finds follow each other without a gap, except for padding at the end of the
    /// file.
    pub fn next<'b>(&mut self, rest: &mut &'b [u8], ends: bool) -> Option<Found<'b>> {
        loop {
            if self.skipping.is_some() {
                return self.skip(rest, ends).map(Found::Fault);
            }
            if rest.is_empty() || (rest.len() < FRAME_LEN && !ends) {
                return None;
            }
            match self.frame(rest, ends) {
                Ok(None) => return None,
                Ok(Some(bytes)) => {
                    let offset = self.position + FRAME_LEN as u64;
                    self.consume(rest, FRAME_LEN + bytes.len());
                    return Some(Found::Block { offset, bytes });
                }
                Err(cause) => {
                    // The next block may begin anywhere behind this magic, also where
                    // a wrong length reaches beyond it.
                    let magic = match cause {
                        Cause::Garbage | Cause::OtherNetwork { .. } => 0,
                        _ => MAGIC_LEN.min(rest.len()),
                    };
                    let start = self.position;
                    self.consume(rest, magic);
                    self.skipping = Some(Skipping {
                        cause,
                        start,
                        end: self.position,
                    });
                }
            }
        }
    }

    /// The block in the frame at the beginning of `rest`, or `None` if more of the
    /// file is needed.
    fn frame<'b>(&mut self, rest: &'b [u8], ends: bool) -> Result<Option<&'b [u8]>, Cause> {
        let Some((magic, behind)) = rest.split_first_chunk() else {
            return Err(match self.magic.starts_with(rest) {
                true => Cause::FrameCut,
                false => Cause::Garbage,
            });
        };
        if *magic != self.magic {
            let network = Network::from_magic(*magic);
            return Err(network.map_or(Cause::Garbage, |network| Cause::OtherNetwork { network }));
        }
        let Some((&length, behind)) = behind.split_first_chunk() else {
            return Err(Cause::FrameCut);
        };
        let length = u32::from_le_bytes(length);
        let whole = match usize::try_from(length) {
            Ok(whole) if (MIN_BLOCK_LEN..=MAX_BLOCK_SERIALIZED_SIZE).contains(&whole) => whole,
            _ => return Err(Cause::Length { length }),
        };
        let Some((bytes, behind)) = behind.split_at_checked(whole) else {
            let left = behind.len();
            return if ends {
                Err(Cause::Cut { length, left })
            } else {
                Ok(None)
            };
        };
        if behind.len() < MAGIC_LEN && !ends {
            return Ok(None);
        }
        // Where the next frame follows, the length is right, and what may be wrong with
        // the block is for others to say. Elsewhere it is right if there is a good
        // block; if a bad one, no other frame may begin within it.
        if !behind.starts_with(&self.magic) {
            let faults = self.verifier.verify(bytes).err().unwrap_or_default();
            let reach = FRAME_LEN + whole + (MAGIC_LEN - 1).min(behind.len());
            let within = &rest[FRAME_LEN..reach];
            if let Some(&fault) = faults.first()
                && (matches!(fault, BlockFault::Malformed(_))
                    || find(&self.magic, within).is_some())
            {
                return Err(Cause::NoBlock { length, fault });
            }
        }
        Ok(Some(bytes))
    }

    /// Passes over what is no frame, up to the next magic.
    fn skip(&mut self, rest: &mut &[u8], ends: bool) -> Option<FileFault> {
        let next = find(&self.magic, rest);
        // A magic may have begun.
        let kept = if ends { 0 } else { MAGIC_LEN - 1 };
        let skipped = next.unwrap_or(rest.len().saturating_sub(kept));
        let end = self.position + skipped as u64;
        let padding = self.obfuscation.padding(end, &rest[..skipped]);
        self.consume(rest, skipped);
        let skipping = self.skipping.as_mut()?;
        if padding < skipped {
            skipping.end = end - padding as u64;
        }
        let end = match (next, ends) {
            (Some(_), _) => end,
            (None, true) => skipping.end,
            (None, false) => return None,
        };
        let Skipping { cause, start, .. } = self.skipping.take()?;
        (end > start).then_some(FileFault {
            offset: start,
            length: end - start,
            cause,
        })
    }

    fn consume(&mut self, rest: &mut &[u8], length: usize) {
        *rest = &rest[length..];
        self.position += length as u64;
    }
}

/// Where `magic` begins in `bytes` for the first time.
fn find(magic: &[u8; MAGIC_LEN], bytes: &[u8]) -> Option<usize> {
    bytes.windows(MAGIC_LEN).position(|window| window == magic)
}

/// A place in a file that holds no block, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFault {
    /// Where it begins.
    pub offset: u64,
    /// How many bytes were passed over: up to the next magic or the file's end.
    pub length: u64,
    /// What is wrong with it.
    pub cause: Cause,
}

/// Why a place in a file holds no block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// No frame begins there.
    Garbage,
    /// A frame of another network begins there.
    OtherNetwork {
        /// That network.
        network: Network,
    },
    /// The file ends within the magic or the length in front of a block.
    FrameCut,
    /// The length in the frame is more than a block may have, or less than it must.
    Length {
        /// That length, in bytes.
        length: u32,
    },
    /// The file ends within the block.
    Cut {
        /// The block's length by its frame, in bytes.
        length: u32,
        /// How many bytes of it are there.
        left: usize,
    },
    /// The bytes in the frame are no good block, and the next frame does not begin
    /// behind them but among them or later: the length in the frame is wrong, or bytes
    /// of the block are missing.
    NoBlock {
        /// The length in the frame, in bytes.
        length: u32,
        /// What is wrong with so many bytes as a block.
        fault: BlockFault,
    },
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Garbage => f.write_str("no block begins here")?,
            Cause::OtherNetwork { network } => {
                write!(f, "a block of another network, {}", network.name())?;
            }
            Cause::FrameCut => f.write_str("the file ends in front of a block")?,
            Cause::Length { length } => write!(
                f,
                "a block is said to have {length} bytes; blocks have {MIN_BLOCK_LEN} to \
                 {MAX_BLOCK_SERIALIZED_SIZE}"
            )?,
            Cause::Cut { length, left } => write!(
                f,
                "the file ends within a block: {left} of {length} bytes are there"
            )?,
            Cause::NoBlock { length, fault } => write!(
                f,
                "a frame of {length} bytes holds no good block ({fault}), and no frame follows it"
            )?,
        }
        write!(f, " ({} bytes passed over)", self.length)
    }
}

impl core::error::Error for FileFault {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn obfuscation_depends_on_the_place_in_the_file_alone() {
        let key = Obfuscation([1, 2, 3, 4, 5, 6, 7, 8]);
        let mut whole = vec![0; 40];
        key.apply(0, &mut whole);
        assert_eq!(
            whole[..16],
            [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8]
        );
        for start in 0..20 {
            for end in start..40 {
                let mut piece = vec![0; end - start];
                key.apply(start as u64, &mut piece);
                assert_eq!(piece, whole[start..end], "{start}..{end}");
                assert_eq!(key.padding(end as u64, &piece), piece.len());
                key.apply(start as u64, &mut piece);
                assert!(piece.iter().all(|&byte| byte == 0));
            }
        }
        let mut plain = vec![7; 9];
        Obfuscation::default().apply(5, &mut plain);
        assert_eq!(plain, [7; 9]);
        assert_eq!(Obfuscation::default().padding(6, &[0, 0, 1, 0, 0, 0]), 3);
    }
}
