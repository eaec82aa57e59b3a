//! Plain Rust: arrays of four words, for targets without vectors in this crate.

use super::set::InstructionSet;
use crate::kernels::poly1305::Radix64;
use crate::kernels::secp256k1::radix29::Radix29;
use crate::kernels::sha256::{SCALAR, Serial};
use crate::vector::{Arithmetic, BlocksFrom, MAX_LANES, Pair, Rows, Scalar, U32Lanes};

/// Four words in an array.
#[derive(Clone, Copy)]
pub(crate) struct Array;

impl InstructionSet for Array {
    type Lanes = Pair<Array>;
    type Rows = Pair<Array>;
    type Field = Radix64;
    type HalfField = Radix64;
    type Curve = Radix29<Scalar>;
    type Hash = Array;
    type HalfHash = Array;

    const INTERLEAVED_ROWS: usize = 2;
    const TAG_STEP: usize = 10;

    fn is_available() -> bool {
        true
    }

    unsafe fn assume() -> Self {
        Self
    }

    #[inline(always)]
    fn lanes(self) -> Self::Lanes {
        Pair(self)
    }

    #[inline(always)]
    fn rows(self) -> Self::Rows {
        Pair(self)
    }

    #[inline(always)]
    fn field(self) -> Self::Field {
        Radix64
    }

    #[inline(always)]
    fn half_field(self) -> Self::HalfField {
        Radix64
    }

    #[inline(always)]
    fn curve(self) -> Self::Curve {
        Radix29(Scalar)
    }

    #[inline(always)]
    fn hash(self) -> Self::Hash {
        self
    }

    #[inline(always)]
    fn half_hash(self) -> Self::HalfHash {
        self
    }

    fn serial_hash() -> &'static Serial {
        &SCALAR
    }
}

kernels!(Array);

impl Arithmetic for Array {
    type Word = [u32; 4];

    #[inline(always)]
    fn splat(self, word: u32) -> [u32; 4] {
        [word; 4]
    }

    #[inline(always)]
    fn add(self, a: [u32; 4], b: [u32; 4]) -> [u32; 4] {
        core::array::from_fn(|l| a[l].wrapping_add(b[l]))
    }

    #[inline(always)]
    fn xor(self, a: [u32; 4], b: [u32; 4]) -> [u32; 4] {
        core::array::from_fn(|l| a[l] ^ b[l])
    }

    #[inline(always)]
    fn rotate_left<const N: i32>(self, a: [u32; 4]) -> [u32; 4] {
        a.map(|word| word.rotate_left(N.unsigned_abs()))
    }

    #[inline(always)]
    fn and(self, a: [u32; 4], b: [u32; 4]) -> [u32; 4] {
        core::array::from_fn(|l| a[l] & b[l])
    }

    #[inline(always)]
    fn shift_right<const N: i32>(self, a: [u32; 4]) -> [u32; 4] {
        a.map(|word| word >> N)
    }
}

impl Rows for Array {
    const BLOCKS: usize = 1;

    #[inline(always)]
    fn row(self, row: &[u32; 4]) -> [u32; 4] {
        *row
    }

    #[inline(always)]
    fn add_block_numbers(self, row: [u32; 4]) -> [u32; 4] {
        row
    }

    #[inline(always)]
    fn rotate_row<const N: usize>(self, mut row: [u32; 4]) -> [u32; 4] {
        row.rotate_left(N);
        row
    }

    #[inline(always)]
    unsafe fn store_rows(self, rows: [[u32; 4]; 4], blocks: *mut [u8; 64]) {
        let mut block = [0; 64];
        let (places, _) = block.as_chunks_mut();
        for (destination, word) in places.iter_mut().zip(rows.as_flattened()) {
            *destination = word.to_le_bytes();
        }
        // SAFETY: the caller guarantees one writable block.
        unsafe { blocks.write(block) };
    }
}

impl U32Lanes for Array {
    const LANES: usize = 4;
    type Narrow = Self;

    #[inline(always)]
    fn narrow(self) -> Self {
        self
    }

    #[inline(always)]
    fn load(self, words: &[u32]) -> [u32; 4] {
        [words[0], words[1], words[2], words[3]]
    }

    #[inline(always)]
    fn store(self, word: [u32; 4], words: &mut [u32]) {
        words[..4].copy_from_slice(&word);
    }

    #[inline(always)]
    unsafe fn load_big_endian(self, sources: &[*const u8], offset: usize) -> [[u32; 4]; 4] {
        let mut words = [[0; 4]; 4];
        for (w, word) in words.iter_mut().enumerate() {
            for (lane, source) in word.iter_mut().zip(sources) {
                // SAFETY: the caller guarantees 16 readable bytes at `offset` after each
                // source, and `4 * w + 4` is at most 16.
                let bytes = unsafe { source.add(offset + 4 * w).cast::<[u8; 4]>().read() };
                *lane = u32::from_be_bytes(bytes);
            }
        }
        words
    }

    #[inline(always)]
    unsafe fn store_big_endian(self, words: [[u32; 4]; 4], destination: *mut u8, stride: usize) {
        for (w, word) in words.into_iter().enumerate() {
            for (l, lane) in word.into_iter().enumerate() {
                // SAFETY: the caller guarantees 16 writable bytes at each multiple of `stride`,
                // and `4 * w + 4` is at most 16.
                unsafe {
                    let destination = destination.add(l * stride + 4 * w).cast::<[u8; 4]>();
                    destination.write(lane.to_be_bytes());
                }
            }
        }
    }

    #[inline(always)]
    fn gather<const AT: usize, const N: usize>(
        self,
        sources: &[&[u8; N]; MAX_LANES],
        first: usize,
    ) -> [[u32; 4]; 4] {
        let word = |l: usize, w: usize| {
            let at = AT + 4 * w;
            u32::from_le_bytes([
                sources[first + l][at],
                sources[first + l][at + 1],
                sources[first + l][at + 2],
                sources[first + l][at + 3],
            ])
        };
        core::array::from_fn(|w| core::array::from_fn(|l| word(l, w)))
    }

    #[inline(always)]
    fn transpose_rows(self, rows: &[[u32; 4]; MAX_LANES], first: usize) -> [[u32; 4]; 4] {
        core::array::from_fn(|w| core::array::from_fn(|l| rows[first + l][w]))
    }

    #[inline(always)]
    fn lane_indices(self) -> [u32; 4] {
        [0, 1, 2, 3]
    }

    #[inline(always)]
    unsafe fn scatter(self, words: &[[u32; 4]; 16], from: Option<BlocksFrom>, to: *mut [u8; 64]) {
        for l in 0..Self::LANES {
            let mut bytes = [0; 64];
            for (destination, word) in bytes.chunks_exact_mut(4).zip(words) {
                destination.copy_from_slice(&word[l].to_le_bytes());
            }
            // SAFETY: the caller guarantees `LANES` blocks to write, and to read if there are any.
            unsafe {
                if let Some(from) = from {
                    self.xor_bytes(&mut bytes, &*from.block(l));
                }
                to.add(l).write(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Set;
    use crate::{Backend, Job, Outcome, Work, aead};

    /// Plain Rust gives the same bytes as the portable backend, which is SSE2 on x86-64.
    #[test]
    fn portable_matches_sse2() {
        let job = |i: u32| Job {
            text: 700 * i,
            text_len: 71 * i,
            aad: 700 * i + 690,
            aad_len: i,
            key: (i % 3) as usize,
            nonce: [i as u8; 12],
        };
        let jobs: [Job; 10] = core::array::from_fn(|i| job(i as u32));
        let keys = [[1; 32], [2; 32], [3; 32]];
        let mut ours: [u8; 7000] = core::array::from_fn(|i| (i * i / 7) as u8);
        let (mut theirs, plain) = (ours, ours);
        let mut outcomes = [Outcome::Pending; 10];
        // SAFETY: every CPU can run plain Rust.
        let set = unsafe { Set::assume(&KERNELS) };
        aead::seal(
            set,
            Work {
                bytes: &mut ours,
                keys: &keys,
                jobs: &jobs,
                outcomes: &mut outcomes,
            },
        );
        Backend::Portable.kernels().seal(Work {
            bytes: &mut theirs,
            keys: &keys,
            jobs: &jobs,
            outcomes: &mut outcomes,
        });
        assert_eq!(ours, theirs);
        // Forges one packet.
        ours[700 * 4] ^= 1;
        aead::open(
            set,
            Work {
                bytes: &mut ours,
                keys: &keys,
                jobs: &jobs,
                outcomes: &mut outcomes,
            },
        );
        for (i, (job, outcome)) in jobs.iter().zip(outcomes).enumerate() {
            let text = job.text as usize..(job.text + job.text_len) as usize;
            let opened = ours[text.clone()] == plain[text];
            assert_eq!((opened, outcome == Outcome::Authentic), (i != 4, i != 4));
        }
    }
}
