//! Vectors of rows of a ChaCha20 state: a few blocks of one packet.

use super::u32_lanes::Arithmetic;

/// Vectors of rows of four words, as a state of ChaCha20 has four, of several blocks
/// beside each other.
pub(crate) trait Rows: Arithmetic {
    /// How many blocks there are; at most [`MAX_LANES`] / 3.
    const BLOCKS: usize;

    /// The same row of every block.
    fn row(self, row: &[u32; 4]) -> Self::Word;

    /// Adds its number to the first word of each block, from 0 on.
    fn add_block_numbers(self, row: Self::Word) -> Self::Word;

    /// Rows whose word i is word i + `N`, modulo 4, of these.
    fn rotate_row<const N: usize>(self, row: Self::Word) -> Self::Word;

    /// Writes `BLOCKS` blocks, each as its rows one behind the other.
    ///
    /// # Safety
    ///
    /// There must be so many that may be written.
    unsafe fn store_rows(self, rows: [Self::Word; 4], blocks: *mut [u8; 64]);
}
