//! The host's description of the kernels: their names, size classes and data layouts.
//!
//! The source and the PTX are in `kernels/`. All numbers are little-endian.
//!
//! A packet is sealed or opened by one thread, four threads or a warp, depending on its length.
//! Longer packets are cut into chunks of one warp each, and another kernel combines the chunks'
//! parts of the tag. Any class gives the right result for any length.

use crate::driver::{Address, Arg, BLOCK_THREADS};
use core::ops::Range;

/// The kernels as PTX, for the driver to compile. The PTX version is the oldest that CUDA 12
/// supports.
pub const PTX: &str = include_str!("../kernels/packetlane.ptx");

/// What to do with the packets of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Encrypt, and write the tag.
    Seal,
    /// Check the tag, and decrypt if it is correct.
    Open,
}

/// Length of a ChaCha20 block, in bytes.
const BLOCK_LEN: u32 = 64;

/// Length of a packet's descriptor, in bytes: offset of the text, length of the text, index of
/// its key entry, the first four bytes of its nonce as a number; 32 bits each.
pub(crate) const PACKET_LEN: usize = 16;

/// Length of a key entry, in bytes: the key, the last eight bytes of the nonce, offset and
/// length of the AAD.
pub(crate) const KEY_LEN: usize = 48;

/// Length of a chunk's descriptor, in bytes: index of its packet in the launch, offset in its
/// text.
pub(crate) const CHUNK_LEN: usize = 8;

/// Length of a chunk's partial result, in bytes. It is kept in device memory between kernels.
pub(crate) const PARTIAL_LEN: usize = 24;

/// Length of the text of a chunk, in bytes. Together with the block for the Poly1305 key, a
/// warp computes 256 blocks in eight rounds.
pub(crate) const CHUNK_TEXT: u32 = 255 * BLOCK_LEN;

/// The verdict of a packet before a kernel has written it.
pub(crate) const NO_VERDICT: u8 = 0xff;

/// Number of buckets for sorting packets by length in blocks: 0 to 512 blocks for uncut texts,
/// and one bucket for all longer ones.
pub(crate) const BUCKETS: usize = 514;

/// The bucket of a text of `len` bytes. A longer text never has a lower bucket.
#[inline]
pub(crate) fn bucket(len: u32) -> usize {
    // Not `div_ceil`, which takes twice as many instructions.
    let blocks = (len as usize + (BLOCK_LEN as usize - 1)) >> BLOCK_LEN.trailing_zeros();
    blocks.min(BUCKETS - 1)
}

/// The number of chunks of a text of `len` bytes; 0 if it is not cut.
#[inline]
pub(crate) fn chunks(len: u32) -> u32 {
    match bucket(len) {
        bucket if bucket < BUCKETS - 1 => 0,
        _ => len.div_ceil(CHUNK_TEXT),
    }
}

/// The buckets of one launch, and its threads per packet.
struct Class {
    buckets: Range<usize>,
    threads: u32,
    seal: &'static str,
    open: &'static str,
}

/// Up to 512 bytes, up to 4 KiB, up to 32 KiB.
const CLASSES: [Class; 3] = [
    Class {
        buckets: 0..9,
        threads: 1,
        seal: "seal_1",
        open: "open_1",
    },
    Class {
        buckets: 9..65,
        threads: 4,
        seal: "seal_4",
        open: "open_4",
    },
    Class {
        buckets: 65..513,
        threads: 32,
        seal: "seal_32",
        open: "open_32",
    },
];

/// The kernels for longer texts, in order.
const LONG_SEAL: [&str; 2] = ["seal_chunks", "seal_combine"];
const LONG_OPEN: [&str; 3] = ["open_chunks", "open_combine", "open_decrypt"];

/// All kernels.
pub(crate) const ENTRIES: [&str; 11] = [
    "seal_1",
    "open_1",
    "seal_4",
    "open_4",
    "seal_32",
    "open_32",
    "seal_chunks",
    "seal_combine",
    "open_chunks",
    "open_combine",
    "open_decrypt",
];

/// Device addresses of a launch's data.
#[derive(Clone, Copy)]
pub(crate) struct Addresses {
    pub(crate) bytes: Address,
    pub(crate) packets: Address,
    pub(crate) keys: Address,
    pub(crate) verdicts: Address,
    pub(crate) chunks: Address,
    pub(crate) partial: Address,
}

/// Calls `launch` with each kernel that `op` needs: its name, blocks and parameters. Packets
/// are sorted by bucket; bucket `b` starts at packet `starts[b]`.
pub(crate) fn launches<E>(
    op: Op,
    starts: &[u32; BUCKETS + 1],
    chunk_count: u32,
    at: Addresses,
    mut launch: impl FnMut(&'static str, u32, &[Arg]) -> Result<(), E>,
) -> Result<(), E> {
    let of = |packets: Range<u32>| {
        let first = u64::from(packets.start);
        [
            Arg::Pointer(at.bytes),
            Arg::Pointer(at.packets + first * PACKET_LEN as u64),
            Arg::Pointer(at.keys),
            Arg::U32(packets.end - packets.start),
            Arg::Pointer(at.verdicts + first),
        ]
    };
    // The longest texts first, because they take longest.
    let long = starts[BUCKETS - 1]..starts[BUCKETS];
    if !long.is_empty() {
        let [a, b, c, d, e] = of(long);
        let chunks = Arg::Pointer(at.chunks);
        let partial = Arg::Pointer(at.partial);
        let args = [a, b, c, d, e, chunks, Arg::U32(chunk_count), partial];
        let entries: &[&str] = match op {
            Op::Seal => &LONG_SEAL,
            Op::Open => &LONG_OPEN,
        };
        for entry in entries {
            launch(entry, chunk_count.div_ceil(BLOCK_THREADS / 32), &args)?;
        }
    }
    for class in CLASSES.iter().rev() {
        let packets = starts[class.buckets.start]..starts[class.buckets.end];
        if !packets.is_empty() {
            let entry = match op {
                Op::Seal => class.seal,
                Op::Open => class.open,
            };
            let count = packets.end - packets.start;
            launch(
                entry,
                count.div_ceil(BLOCK_THREADS / class.threads),
                &of(packets),
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_texts_are_never_sorted_before_shorter_ones() {
        for len in 0..40_000 {
            assert!(bucket(len) <= bucket(len + 1));
        }
        assert_eq!(bucket(u32::MAX), BUCKETS - 1);
        assert_eq!(CLASSES[2].buckets.end, BUCKETS - 1);
    }

    #[test]
    fn classes_end_at_their_limits() {
        let class = |len| {
            CLASSES
                .iter()
                .position(|class| class.buckets.contains(&bucket(len)))
        };
        let classes = [0, 512, 513, 4096, 4097, 32_768, 32_769, u32::MAX].map(class);
        let expected = [
            Some(0),
            Some(0),
            Some(1),
            Some(1),
            Some(2),
            Some(2),
            None,
            None,
        ];
        assert_eq!(classes, expected);
    }

    #[test]
    fn cut_texts_have_chunks() {
        assert_eq!(
            [0, 32_768, 32_769, 3 * CHUNK_TEXT, 3 * CHUNK_TEXT + 1].map(chunks),
            [0, 0, 3, 3, 4]
        );
        assert_eq!(chunks(u32::MAX), 263_173);
    }

    #[test]
    fn every_packet_is_in_one_launch() {
        let mut starts = [0; BUCKETS + 1];
        for bucket in 0..BUCKETS {
            starts[bucket + 1] = starts[bucket] + (bucket as u32 * 7) % 5;
        }
        let at = Addresses {
            bytes: 0,
            packets: 0,
            keys: 0,
            verdicts: 0,
            chunks: 0,
            partial: 0,
        };
        for op in [Op::Seal, Op::Open] {
            let mut seen = vec![0; starts[BUCKETS] as usize];
            let mut names = Vec::new();
            let done: Result<(), ()> = launches(op, &starts, 9, at, |entry, blocks, args| {
                assert!(ENTRIES.contains(&entry));
                let (Arg::Pointer(verdicts), Arg::U32(count)) = (args[4], args[3]) else {
                    panic!("{args:?}");
                };
                assert_eq!(args[1], Arg::Pointer(verdicts * 16));
                let threads = match entry.rsplit('_').next().unwrap().parse::<u32>() {
                    Ok(threads) => threads * count,
                    Err(_) => 9 * 32,
                };
                assert_eq!(blocks, threads.div_ceil(128), "{entry}");
                if !entry.contains("combine") && !entry.contains("decrypt") {
                    seen[verdicts as usize..][..count as usize]
                        .iter_mut()
                        .for_each(|n| *n += 1);
                }
                names.push(entry);
                Ok(())
            });
            assert_eq!(done, Ok(()));
            assert!(seen.iter().all(|&times| times == 1));
            let expected = match op {
                Op::Seal => vec!["seal_chunks", "seal_combine", "seal_32", "seal_4", "seal_1"],
                Op::Open => vec![
                    "open_chunks",
                    "open_combine",
                    "open_decrypt",
                    "open_32",
                    "open_4",
                    "open_1",
                ],
            };
            assert_eq!(names, expected);
        }
    }
}
