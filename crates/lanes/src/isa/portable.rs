//! Plain Rust: runs anywhere, and is what the compiler makes of it.

#[cfg(any(test, not(target_arch = "x86_64")))]
use crate::poly1305::Radix64;
#[cfg(any(test, not(target_arch = "x86_64")))]
use crate::vector::Pair;
use crate::vector::{Arithmetic, Longs, MAX_LANES, Rows, Words};

/// Four words in an array.
#[cfg_attr(all(target_arch = "x86_64", not(test)), allow(dead_code))]
#[derive(Clone, Copy)]
pub(crate) struct Array;

#[cfg(any(test, not(target_arch = "x86_64")))]
impl Array {
    /// Every CPU has it.
    fn is_available() -> bool {
        true
    }

    unsafe fn assume() -> Self {
        Self
    }
}

// On x86-64 the portable backend is SSE2, and only a test runs these.
#[cfg(any(test, not(target_arch = "x86_64")))]
kernels!(
    |proof: Array|
    words: Pair(proof) => Pair<Array>, rows: Pair(proof) => Pair<Array>,
    field: Radix64 => Radix64,
    half: Radix64,
    tag_step: 10,
    hash: proof => Array, serial: || &crate::sha256::SCALAR
);

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
    const BESIDE: usize = 2;

    #[inline(always)]
    fn row(self, row: &[u32; 4]) -> [u32; 4] {
        *row
    }

    #[inline(always)]
    fn number(self, row: [u32; 4]) -> [u32; 4] {
        row
    }

    #[inline(always)]
    fn turn<const N: usize>(self, mut row: [u32; 4]) -> [u32; 4] {
        row.rotate_left(N);
        row
    }

    #[inline(always)]
    unsafe fn store_rows(self, rows: [[u32; 4]; 4], blocks: *mut [u8; 64]) {
        let mut block = [0; 64];
        let (places, _) = block.as_chunks_mut();
        for (place, word) in places.iter_mut().zip(rows.as_flattened()) {
            *place = word.to_le_bytes();
        }
        // SAFETY: the caller vouches for a block.
        unsafe { blocks.write(block) };
    }
}

impl Words for Array {
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
    unsafe fn load_big_endian(self, places: &[*const u8], offset: usize) -> [[u32; 4]; 4] {
        let mut words = [[0; 4]; 4];
        for (w, word) in words.iter_mut().enumerate() {
            for (lane, place) in word.iter_mut().zip(places) {
                // SAFETY: the caller vouches for the 16 bytes behind each place.
                let bytes = unsafe { place.add(offset + 4 * w).cast::<[u8; 4]>().read() };
                *lane = u32::from_be_bytes(bytes);
            }
        }
        words
    }

    #[inline(always)]
    unsafe fn store_big_endian(self, words: [[u32; 4]; 4], place: *mut u8, stride: usize) {
        for (w, word) in words.into_iter().enumerate() {
            for (l, lane) in word.into_iter().enumerate() {
                // SAFETY: the caller vouches for the 16 bytes at each place.
                unsafe {
                    let place = place.add(l * stride + 4 * w).cast::<[u8; 4]>();
                    place.write(lane.to_be_bytes());
                }
            }
        }
    }

    #[inline(always)]
    fn gather<const AT: usize, const N: usize>(
        self,
        places: &[&[u8; N]; MAX_LANES],
        first: usize,
    ) -> [[u32; 4]; 4] {
        let word = |l: usize, w: usize| {
            let at = AT + 4 * w;
            u32::from_le_bytes([
                places[first + l][at],
                places[first + l][at + 1],
                places[first + l][at + 2],
                places[first + l][at + 3],
            ])
        };
        core::array::from_fn(|w| core::array::from_fn(|l| word(l, w)))
    }

    #[inline(always)]
    fn rows(self, rows: &[[u32; 4]; MAX_LANES], first: usize) -> [[u32; 4]; 4] {
        core::array::from_fn(|w| core::array::from_fn(|l| rows[first + l][w]))
    }

    #[inline(always)]
    fn numbers(self) -> [u32; 4] {
        [0, 1, 2, 3]
    }

    #[inline(always)]
    unsafe fn scatter<const XOR: bool>(self, words: &[[u32; 4]; 16], blocks: *mut [u8; 64]) {
        for l in 0..Self::LANES {
            let mut bytes = [0; 64];
            for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
                place.copy_from_slice(&word[l].to_le_bytes());
            }
            // SAFETY: the caller vouches for the blocks.
            unsafe {
                let block = blocks.add(l);
                if XOR {
                    xor_bytes(&mut *block, &bytes);
                } else {
                    block.write(bytes);
                }
            }
        }
    }
}

/// [`Words::xor_bytes`] for sets without masks: ever smaller pieces of a length
/// that the compiler knows, which it turns into vectors.
#[inline(always)]
pub(crate) fn xor_bytes(text: &mut [u8], block: &[u8; 64]) {
    #[inline(always)]
    fn piece<const N: usize>(text: &mut [u8], block: &[u8], at: &mut usize) {
        if let (Some(text), Some(block)) = (
            text[*at..].first_chunk_mut::<N>(),
            block[*at..].first_chunk(),
        ) {
            // Values and not places, of which it does not know that they differ.
            let (mut bytes, masks): (_, [u8; N]) = (*text, *block);
            for (byte, mask) in bytes.iter_mut().zip(masks) {
                *byte ^= mask;
            }
            *text = bytes;
            *at += N;
        }
    }
    let mut at = 0;
    if text.len() == 64 {
        return piece::<64>(text, block, &mut at);
    }
    piece::<32>(text, block, &mut at);
    piece::<16>(text, block, &mut at);
    piece::<8>(text, block, &mut at);
    piece::<4>(text, block, &mut at);
    piece::<2>(text, block, &mut at);
    piece::<1>(text, block, &mut at);
}

/// One lane of 64 bits and a multiplier of 64 by 64 bits.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

/// One lane of 32 bits.
impl Arithmetic for Scalar {
    type Word = u32;

    #[inline(always)]
    fn splat(self, word: u32) -> u32 {
        word
    }

    #[inline(always)]
    fn add(self, a: u32, b: u32) -> u32 {
        a.wrapping_add(b)
    }

    #[inline(always)]
    fn xor(self, a: u32, b: u32) -> u32 {
        a ^ b
    }

    #[inline(always)]
    fn and(self, a: u32, b: u32) -> u32 {
        a & b
    }

    #[inline(always)]
    fn rotate_left<const N: i32>(self, a: u32) -> u32 {
        a.rotate_left(N.unsigned_abs())
    }

    #[inline(always)]
    fn shift_right<const N: i32>(self, a: u32) -> u32 {
        a >> N
    }
}

impl Longs for Scalar {
    const LANES: usize = 1;
    type Long = u64;

    #[inline(always)]
    fn splat(self, value: u64) -> u64 {
        value
    }

    #[inline(always)]
    fn per_lane(self, values: &[u64]) -> u64 {
        values[0]
    }

    #[inline(always)]
    fn first(self, lanes: usize, long: u64) -> u64 {
        if lanes > 0 { long } else { 0 }
    }

    #[inline(always)]
    fn store(self, long: u64, values: &mut [u64]) {
        values[0] = long;
    }

    #[inline(always)]
    unsafe fn load(self, places: &[*const u8], offset: usize) -> (u64, u64) {
        let place = places[0].wrapping_add(offset).cast::<[u64; 2]>();
        // SAFETY: the caller vouches for the 16 bytes.
        let [low, high] = unsafe { place.read_unaligned() };
        (u64::from_le(low), u64::from_le(high))
    }

    #[inline(always)]
    unsafe fn load_run(self, blocks: *const u8) -> (u64, u64) {
        // SAFETY: the caller vouches for the 16 bytes.
        unsafe { self.load(&[blocks], 0) }
    }

    #[inline(always)]
    unsafe fn load_fours(self, places: &[*const u8], offset: usize) -> (u64, u64) {
        // SAFETY: the caller vouches for the first block.
        unsafe { self.load(places, offset) }
    }

    #[inline(always)]
    fn sum_fours(self, a: u64) -> u64 {
        a
    }

    #[inline(always)]
    fn sum(self, a: u64) -> u64 {
        a
    }

    #[inline(always)]
    fn add(self, a: u64, b: u64) -> u64 {
        a.wrapping_add(b)
    }

    #[inline(always)]
    fn carry(self, a: u64, sum: u64) -> u64 {
        u64::from(sum < a)
    }

    #[inline(always)]
    fn and(self, a: u64, b: u64) -> u64 {
        a & b
    }

    #[inline(always)]
    fn or(self, a: u64, b: u64) -> u64 {
        a | b
    }

    #[inline(always)]
    fn shift_left<const N: u32>(self, a: u64) -> u64 {
        a << N
    }

    #[inline(always)]
    fn shift_right<const N: u32>(self, a: u64) -> u64 {
        a >> N
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Set;
    use crate::{Backend, Job, Outcome, Secrets, Work, aead};

    /// The same bytes from plain Rust and from the portable backend.
    #[test]
    fn arrays_do_what_vectors_do() {
        let job = |i: u32| Job {
            text: 700 * i,
            text_len: 71 * i,
            aad: 700 * i + 690,
            aad_len: i,
            key: i % 3,
            keystream: 0,
            keystream_blocks: 0,
            nonce: [i as u8; 12],
        };
        let jobs: [Job; 10] = core::array::from_fn(|i| job(i as u32));
        let keys = [[1; 32], [2; 32], [3; 32]];
        let mut ours: [u8; 7000] = core::array::from_fn(|i| (i * i / 7) as u8);
        let (mut theirs, plain) = (ours, ours);
        let mut outcomes = [Outcome::Pending; 10];
        // SAFETY: every CPU has it.
        let set = unsafe { Set::assume(&KERNELS) };
        let secrets = Secrets {
            keys: &keys,
            keystream: &[],
        };
        aead::seal(
            set,
            Work {
                bytes: &mut ours,
                secrets,
                jobs: &jobs,
                outcomes: &mut outcomes,
            },
        );
        Backend::Portable.seal(Work {
            bytes: &mut theirs,
            secrets,
            jobs: &jobs,
            outcomes: &mut outcomes,
        });
        assert_eq!(ours, theirs);
        // One of them forged.
        ours[700 * 4] ^= 1;
        aead::open(
            set,
            Work {
                bytes: &mut ours,
                secrets,
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
