//! Scans Bitcoin Core's block files (`blk00000.dat` and so on), piece by piece and without I/O.
//!
//! Each block is in a frame: the network's magic, the block's length in four bytes, little-endian,
//! and the block. Where a frame is missing, [`Scanner`] reports why and continues at the next
//! magic, so that damage stays local. Zeros at the end of a file or between frames are not damage:
//! Bitcoin Core preallocates its files, and after a crash it continues after space that it had
//! allocated but never written.

use super::block::{Block, MIN_BLOCK_LEN};
use super::verify::{BlockFault, Verifier};
use crate::bitcoin::Network;
use alloc::vec::Vec;
use core::fmt;

/// Length of a network's magic, in bytes.
const MAGIC_LEN: usize = 4;

/// Maximum number of times that the bytes of a file are verified, on average. Without a limit,
/// nested frames could have the bytes that they share verified once per frame.
const MAX_VERIFICATIONS: u64 = 4;

/// The obfuscation of Bitcoin Core's block files since version 28. A key of eight bytes, repeated
/// from the start of the file, is XORed into the blocks, so that virus scanners do not react to
/// data in the chain. The key is in `xor.dat` in the same folder. All zeros mean no obfuscation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Obfuscation(pub [u8; 8]);

impl Obfuscation {
    /// Removes the obfuscation from `bytes`, which start at offset `position` of their file.
    /// Applying it twice restores the original.
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

    /// Returns how many bytes at the start of `bytes`, which start at `start`, were zero in the
    /// file.
    fn leading_padding(self, start: u64, bytes: &[u8]) -> usize {
        let places = (start..).map(|place| self.0[(place % 8) as usize]);
        let zeros = bytes
            .iter()
            .zip(places)
            .take_while(|(byte, key)| **byte == *key);
        zeros.count()
    }

    /// Returns how many bytes at the end of `bytes` were zero in the file: padding, which is never
    /// obfuscated. `end` is the offset of the end of `bytes` in the file.
    fn padding(self, end: u64, bytes: &[u8]) -> usize {
        let places = (0..end).rev().map(|place| self.0[(place % 8) as usize]);
        let zeros = bytes.iter().rev().zip(places);
        zeros.take_while(|(byte, key)| *byte == key).count()
    }
}

/// What [`Scanner::next`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'b> {
    /// A block, according to its frame. Use [`Verifier`](super::Verifier) to find out whether it is
    /// valid.
    Block {
        /// Its offset in the file, after the frame's magic and length.
        offset: u64,
        /// The block.
        bytes: &'b [u8],
    },
    /// Bytes that are not a block.
    Fault(FileFault),
}

/// Finds the blocks of one file.
#[derive(Debug)]
pub struct Scanner {
    magic: [u8; MAGIC_LEN],
    obfuscation: Obfuscation,
    /// The offset of the first byte that has not been consumed.
    position: u64,
    skipping: Option<Skipping>,
    /// Decides whether bytes are a block, where the frame alone does not prove it.
    verifier: Verifier,
    /// How many bytes it has verified in frames that may contain other frames.
    verified: u64,
}

/// Bytes that are being skipped until the next magic.
#[derive(Debug)]
struct Skipping {
    cause: FaultCause,
    start: u64,
    /// The end of the last skipped byte that was not padding.
    end: u64,
}

impl Scanner {
    /// Length of a frame's magic and length field, in bytes.
    pub const FRAME_LEN: usize = MAGIC_LEN + 4;

    /// Number of bytes with which [`Scanner::next`] never needs more: a frame with the longest
    /// block, and the magic after it.
    pub const MAX_NEEDED: usize = Self::FRAME_LEN + Block::MAX_SERIALIZED_SIZE + MAGIC_LEN;

    /// Creates a scanner at the start of a block file. `magic` is the network's. The scanner's
    /// input must have been de-obfuscated; it uses `obfuscation` only to recognise zeros in the
    /// file. `verifier` must be of the same network; it decides about a frame that no other frame
    /// follows.
    #[must_use]
    pub fn new(magic: [u8; 4], obfuscation: Obfuscation, verifier: Verifier) -> Self {
        Self {
            magic,
            obfuscation,
            position: 0,
            skipping: None,
            verifier,
            verified: 0,
        }
    }

    /// Whether a file that consists of `bytes` is one block without a frame. True if it does not
    /// start like a frame of any network and is either a block, or starts with a header that has
    /// proof of work and contains no frame.
    #[must_use]
    pub fn is_bare_block(&self, bytes: &[u8]) -> bool {
        let Some((first, _)) = bytes.split_first_chunk() else {
            return false;
        };
        let framed = *first == self.magic || Network::from_magic(*first).is_some();
        let header = bytes.first_chunk();
        let empty = self.obfuscation.padding(bytes.len() as u64, bytes) == bytes.len();
        !framed
            && !empty
            && bytes.len() <= Block::MAX_SERIALIZED_SIZE
            && (Block::parse(bytes, &mut Vec::new()).is_ok()
                || (header.is_some_and(|header| self.verifier.has_work(header))
                    && find(&self.magic, bytes).is_none()))
    }

    /// Returns the next block or fault. `rest` must start where the last call left it; consumed
    /// bytes are removed from it. `ends` says whether the file ends after `rest`.
    ///
    /// `None` asks for more bytes after those left in `rest`, which are fewer than
    /// [`Scanner::MAX_NEEDED`]. If the file ends there, the scan is complete.
    ///
    /// There are no gaps between the results, except for zeros in the file.
    pub fn next<'b>(&mut self, rest: &mut &'b [u8], ends: bool) -> Option<Frame<'b>> {
        loop {
            if self.skipping.is_some() {
                if let Some(fault) = self.skip(rest, ends) {
                    return Some(Frame::Fault(fault));
                }
                // More bytes are needed; otherwise these were zeros alone.
                if self.skipping.is_some() {
                    return None;
                }
            }
            if rest.is_empty() || (rest.len() < Self::FRAME_LEN && !ends) {
                return None;
            }
            match self.frame(rest, ends) {
                Ok(None) => return None,
                Ok(Some(bytes)) => {
                    let offset = self.position + Self::FRAME_LEN as u64;
                    self.consume(rest, Self::FRAME_LEN + bytes.len());
                    return Some(Frame::Block { offset, bytes });
                }
                Err(cause) => {
                    // The next block may begin anywhere after this magic, even within the
                    // length that a wrong length field claims.
                    let magic = match cause {
                        FaultCause::Garbage | FaultCause::OtherNetwork { .. } => 0,
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

    /// Returns the block in the frame at the start of `rest`, or `None` if more bytes are needed.
    fn frame<'b>(&mut self, rest: &'b [u8], ends: bool) -> Result<Option<&'b [u8]>, FaultCause> {
        let Some((magic, after)) = rest.split_first_chunk() else {
            return Err(match self.magic.starts_with(rest) {
                true => FaultCause::FrameCut,
                false => FaultCause::Garbage,
            });
        };
        if *magic != self.magic {
            let network = Network::from_magic(*magic);
            return Err(
                network.map_or(FaultCause::Garbage, |network| FaultCause::OtherNetwork {
                    network,
                }),
            );
        }
        let Some((&length, after)) = after.split_first_chunk() else {
            return Err(FaultCause::FrameCut);
        };
        let length = u32::from_le_bytes(length);
        let whole = match usize::try_from(length) {
            Ok(whole) if (MIN_BLOCK_LEN..=Block::MAX_SERIALIZED_SIZE).contains(&whole) => whole,
            _ => return Err(FaultCause::Length { length }),
        };
        let Some((bytes, after)) = after.split_at_checked(whole) else {
            let left = after.len();
            return if ends {
                Err(FaultCause::Cut { length, left })
            } else {
                Ok(None)
            };
        };
        if after.len() < MAGIC_LEN && !ends {
            return Ok(None);
        }
        // If the next frame follows, the length is correct; the block itself is not checked here.
        // Otherwise the bytes must parse as a block and, if another frame begins within them, have
        // no faults.
        if !after.starts_with(&self.magic) {
            let reach = Self::FRAME_LEN + whole + (MAGIC_LEN - 1).min(after.len());
            let holds_frame = find(&self.magic, &rest[Self::FRAME_LEN..reach]).is_some();
            if holds_frame {
                let work = self.verified + u64::from(length);
                if work > MAX_VERIFICATIONS * (self.position + u64::from(length)) {
                    return Err(FaultCause::Unverified { length });
                }
                self.verified = work;
            }
            let faults = self.verifier.verify(bytes).err().unwrap_or_default();
            if let Some(&fault) = faults.first()
                && (holds_frame || matches!(fault, BlockFault::Malformed(_)))
            {
                return Err(FaultCause::NoBlock { length, fault });
            }
        }
        Ok(Some(bytes))
    }

    /// Skips bytes that are not a frame, up to the next magic. Zeros alone are not a fault.
    fn skip(&mut self, rest: &mut &[u8], ends: bool) -> Option<FileFault> {
        let next = find(&self.magic, rest);
        // The last bytes may be the start of a magic.
        let kept = if ends { 0 } else { MAGIC_LEN - 1 };
        let skipped = next.unwrap_or(rest.len().saturating_sub(kept));
        let end = self.position + skipped as u64;
        let padding = self.obfuscation.padding(end, &rest[..skipped]);
        let leading = self
            .obfuscation
            .leading_padding(self.position, &rest[..skipped]);
        self.consume(rest, skipped);
        let skipping = self.skipping.as_mut()?;
        if skipping.end == skipping.start {
            // The damage begins after the zeros.
            skipping.start += leading as u64;
            skipping.end = skipping.start;
        }
        if padding < skipped {
            skipping.end = end - padding as u64;
        }
        if next.is_none() && !ends {
            return None;
        }
        let Skipping {
            cause,
            start,
            end: damaged,
        } = self.skipping.take()?;
        // Zeros between damage and the next frame are counted with the damage.
        let end = if next.is_some() { end } else { damaged };
        (damaged > start).then_some(FileFault {
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

/// Returns the offset of the first `magic` in `bytes`.
fn find(magic: &[u8; MAGIC_LEN], bytes: &[u8]) -> Option<usize> {
    bytes.windows(MAGIC_LEN).position(|window| window == magic)
}

/// Bytes of a file that are not a block, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFault {
    /// The offset of the first of these bytes.
    pub offset: u64,
    /// How many bytes were skipped, up to the next magic or the end of the file.
    pub length: u64,
    /// Why they are not a block.
    pub cause: FaultCause,
}

/// Why bytes of a file are not a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultCause {
    /// The bytes do not start with a frame.
    Garbage,
    /// The frame is of another network.
    OtherNetwork {
        /// The network of the frame.
        network: Network,
    },
    /// The file ends within a frame's magic or length.
    FrameCut,
    /// The length in the frame is more than a block may have, or less than a block needs.
    Length {
        /// That length, in bytes.
        length: u32,
    },
    /// The file ends within the block.
    Cut {
        /// The block's length according to its frame, in bytes.
        length: u32,
        /// How many bytes of the block the file contains.
        left: usize,
    },
    /// The bytes in the frame are not a valid block, and the next frame begins within or later
    /// than the end of the frame, not right after it. The length is wrong, or bytes of the
    /// block are missing.
    NoBlock {
        /// The length in the frame, in bytes.
        length: u32,
        /// What is wrong with these bytes as a block.
        fault: BlockFault,
    },
    /// Another frame begins within the frame, and none right after it. The file has too many such
    /// nested frames, so the bytes were not verified.
    Unverified {
        /// The length in the frame, in bytes.
        length: u32,
    },
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            FaultCause::Garbage => f.write_str("no block begins here")?,
            FaultCause::OtherNetwork { network } => {
                write!(f, "a block of another network, {}", network.name())?;
            }
            FaultCause::FrameCut => {
                f.write_str("the file ends within the magic or length of a frame")?
            }
            FaultCause::Length { length } => write!(
                f,
                "the frame's length is {length} bytes; blocks have {MIN_BLOCK_LEN} to {}",
                Block::MAX_SERIALIZED_SIZE
            )?,
            FaultCause::Cut { length, left } => write!(
                f,
                "the file ends within a block: it holds {left} of {length} bytes"
            )?,
            FaultCause::NoBlock { length, fault } => write!(
                f,
                "the frame of {length} bytes holds no valid block ({fault}), and no frame follows it"
            )?,
            FaultCause::Unverified { length } => write!(
                f,
                "the frame of {length} bytes holds another frame, and no frame follows it; there are \
                 too many of these to verify each"
            )?,
        }
        write!(f, " ({} bytes skipped)", self.length)
    }
}

impl core::error::Error for FileFault {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn obfuscation_depends_only_on_the_offset_in_the_file() {
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
