//! One block in general registers.

use super::rounds::{CounterRow, SIGMA};
use crate::job::{BLOCK_LEN, Key};
use crate::vector::{Interleave, scalar_u32};

/// The state of one block, one word per general register. Scalar instructions take one cycle where
/// a vector's may take two, and their units are idle while vectors compute other blocks.
pub(super) struct ScalarBlock<'k> {
    key: &'k Key,
    row: &'k CounterRow,
    x: [u32; 16],
}

impl<'k> ScalarBlock<'k> {
    /// Returns the state before the first round, from the key and the last row.
    #[inline(always)]
    pub(super) fn new(key: &'k Key, row: &'k CounterRow) -> Self {
        let x = core::array::from_fn(|i| input(key, row, i));
        Self { key, row, x }
    }

    /// Returns a word of the block, after the last round.
    #[inline(always)]
    fn word(&self, i: usize) -> u32 {
        self.x[i].wrapping_add(input(self.key, self.row, i))
    }

    /// Returns the block after the last round, as little-endian numbers.
    #[inline(always)]
    pub(super) fn finish(self) -> [u64; BLOCK_LEN / 8] {
        core::array::from_fn(|i| self.piece(i))
    }

    #[inline(always)]
    fn piece(&self, i: usize) -> u64 {
        u64::from(self.word(2 * i)) | u64::from(self.word(2 * i + 1)) << 32
    }
}

/// Returns word `i` of a state before the first round.
#[inline(always)]
fn input(key: &Key, row: &CounterRow, i: usize) -> u32 {
    match i {
        0..4 => SIGMA[i],
        4..12 => u32::from_le_bytes(key.as_chunks().0[i - 4]),
        _ => row[i - 12],
    }
}

/// Two rounds.
impl Interleave for ScalarBlock<'_> {
    #[inline(always)]
    fn step(&mut self) {
        let x = &mut self.x;
        // Unrolled in the source: with indices that are not constants, the state would have to be
        // in memory.
        macro_rules! quarter_round {
            ($a:literal $b:literal $c:literal $d:literal) => {
                x[$a] = scalar_u32(x[$a].wrapping_add(x[$b]));
                x[$d] = (x[$d] ^ x[$a]).rotate_left(16);
                x[$c] = scalar_u32(x[$c].wrapping_add(x[$d]));
                x[$b] = (x[$b] ^ x[$c]).rotate_left(12);
                x[$a] = scalar_u32(x[$a].wrapping_add(x[$b]));
                x[$d] = (x[$d] ^ x[$a]).rotate_left(8);
                x[$c] = scalar_u32(x[$c].wrapping_add(x[$d]));
                x[$b] = (x[$b] ^ x[$c]).rotate_left(7);
            };
        }
        quarter_round!(0 4 8 12);
        quarter_round!(1 5 9 13);
        quarter_round!(2 6 10 14);
        quarter_round!(3 7 11 15);
        quarter_round!(0 5 10 15);
        quarter_round!(1 6 11 12);
        quarter_round!(2 7 8 13);
        quarter_round!(3 4 9 14);
    }
}

/// Returns the first two words of one block as a little-endian number: a header mask.
/// `crate::aead::Tuning` decides whether that is faster than a vector.
pub(crate) fn mask_in_scalar(key: &Key, row: &CounterRow) -> u64 {
    let mut block = ScalarBlock::new(key, row);
    for _ in 0..10 {
        block.step();
    }
    block.piece(0)
}
