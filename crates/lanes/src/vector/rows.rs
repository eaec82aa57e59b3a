//! Vectors of rows of ChaCha20 states: a few blocks of one packet.

use super::u32_lanes::Arithmetic;

/// Vectors that hold one row of four words of each of several ChaCha20 states. A state has four
/// rows.
pub(crate) trait Rows: Arithmetic {
    /// How many states one vector holds a row of; at most [`MAX_LANES`](super::MAX_LANES) / 3.
    const BLOCKS: usize;

    /// The same row in every state.
    fn row(self, row: &[u32; 4]) -> Self::Word;

    /// Adds the index of its state, from 0 on, to the first word of each row.
    fn add_block_numbers(self, row: Self::Word) -> Self::Word;

    /// Rotates each row: word i of the result is word (i + `N`) modulo 4 of `row`.
    fn rotate_row<const N: usize>(self, row: Self::Word) -> Self::Word;

    /// Writes `BLOCKS` blocks, each as its four rows in order, little-endian.
    ///
    /// # Safety
    ///
    /// `BLOCKS` blocks must be writable at `blocks`.
    unsafe fn store_rows(self, rows: [Self::Word; 4], blocks: *mut [u8; 64]);
}
