//! ChaCha20 (RFC 8439, section 2.3).
//!
//! ```text
//! state = "expand 32-byte k" (4 words), key (8 words), counter (1 word), nonce (3 words)
//! x = state
//! 10 times:
//!     quarter round on x[0, 4,  8, 12], x[1, 5,  9, 13], x[2, 6, 10, 14], x[3, 7, 11, 15]
//!     quarter round on x[0, 5, 10, 15], x[1, 6, 11, 12], x[2, 7,  8, 13], x[3, 4,  9, 14]
//! keystream block = x + state, word by word, each word little-endian
//!
//! quarter round on a, b, c, d:
//!     a += b; d = (d ^ a) <<< 16
//!     c += d; b = (b ^ c) <<< 12
//!     a += b; d = (d ^ a) <<<  8
//!     c += d; b = (b ^ c) <<<  7
//! ```
//!
//! Optimisations:
//!
//! 1. *Lanes.* Each lane of a vector computes one block, with its own key, nonce and counter: word
//!    i of all blocks is one vector. One call computes the blocks of one long message, the first
//!    blocks of many short ones, or any mix ([`Blocks`], [`xor_keystream`]). One block takes as
//!    long as all lanes.
//! 2. *Rows.* For a few consecutive blocks of one packet, a vector instead holds one row of four
//!    words of each block, and the second half of a round rotates rows to align the diagonals
//!    ([`rows()`]).
//! 3. *Two or three interleaved vectors* ([`Pair`](crate::vector::Pair),
//!    [`Triple`](crate::vector::Triple)), so that one computes while the other waits.
//! 4. *One block in general registers*, for a single header mask ([`mask_in_scalar`]), or
//!    interleaved with rows if it would otherwise take a vector of its own ([`rows_or_scalar`]).
//! 5. *Interleaved work.* Rounds leave room for other work, such as Poly1305 in general registers
//!    or copies of texts ([`Interleave`](crate::vector::Interleave); [`Stitch`] if one vector has
//!    all lanes).

mod blocks;
mod keystream;
mod rounds;
mod rows;
mod scalar;
mod xor;

pub(crate) use blocks::{
    Blocks, Lockstep, OnePerLane, Samples, Stitched, blocks_of_key, key_and_first_block,
};
pub(crate) use keystream::{Keystream, RING, Ring, mask};
pub(crate) use rounds::{CounterRow, QuarterRounds, Stitch, counter_row, row_of_sample};
pub(crate) use rows::{max_in_rows, rows, rows_in_lanes, rows_or_scalar};
pub(crate) use scalar::mask_in_scalar;
pub(crate) use xor::{HalfRun, Run, xor_blocks, xor_half_runs, xor_keystream, xor_runs};
