//! AES in counter mode (NIST SP 800-38D, section 6.5; FIPS 197, section 5.1).
//!
//! ```text
//! keystream block i = AES(nonce (12 bytes) || counter + i (4 bytes, big-endian, modulo 2^32))
//!
//! AES(state):
//!     state ^= round key 0
//!     for each round but the last:  state = MixColumns(ShiftRows(SubBytes(state))) ^ round key
//!     last round:                   state = ShiftRows(SubBytes(state)) ^ round key
//! ```
//! Optimisation: one instruction is one round, but the next one must wait for its result. Several
//! vectors are therefore encrypted together, each round on all of them.

use super::key::{Block, RoundKeys};
use crate::vector::{AesBlocks, MAX_BLOCKS};

/// Runs `$body` for each `$i` from 0 to `$n` - 1, where `$n` is a constant of at most nine.
/// Unrolled in the source, because the compiler unrolls some loops too late and leaves their
/// arrays in memory.
macro_rules! unroll {
    ($n:expr, |$i:ident| $body:expr) => {
        unroll!(@ $n, $i, $body, 0 1 2 3 4 5 6 7 8)
    };
    (@ $n:expr, $i:ident, $body:expr, $($number:literal)*) => {
        $(if $number < $n {
            #[allow(unused_variables, reason = "not every body uses the index")]
            let $i: usize = $number;
            $body;
        })*
    };
}

/// Encrypts the blocks of `K` vectors in place under one key (FIPS 197, section 5.1).
#[inline(always)]
pub(super) fn encrypt<B: AesBlocks, const K: usize>(
    b: B,
    key: &RoundKeys,
    states: &mut [B::Vector; K],
) {
    let round_key = b.splat(&key.keys[0]);
    unroll!(K, |i| states[i] = b.xor(states[i], round_key));
    rounds_from(b, key, 1, states);
}

/// The rounds of AES from number `first` on, where round 0 is only the first round key.
#[inline(always)]
pub(super) fn rounds_from<B: AesBlocks, const K: usize>(
    b: B,
    key: &RoundKeys,
    first: usize,
    states: &mut [B::Vector; K],
) {
    // Unrolled in the source, with one branch for the key's length: a loop over an unknown number
    // of rounds is slower.
    macro_rules! rounds {
        ($($round:literal)*) => {
            $(if $round >= first {
                let round_key = b.splat(&key.keys[$round]);
                unroll!(K, |i| states[i] = b.round(states[i], round_key));
            })*
        };
    }
    macro_rules! last_round {
        ($round:literal) => {
            let round_key = b.splat(&key.keys[$round]);
            unroll!(K, |i| states[i] = b.last_round(states[i], round_key));
        };
    }
    rounds!(1 2 3 4 5 6 7 8 9);
    // A separate last round for each length: the end of a round may be merged into the next one's
    // instruction.
    if key.rounds() == 14 {
        rounds!(10 11 12 13);
        last_round!(14);
    } else {
        last_round!(10);
    }
}

pub(super) use unroll;

/// Returns a counter in its block, with zeros in place of the nonce before it (SP 800-38D, section
/// 7.1).
#[inline(always)]
pub(super) const fn counter_block(counter: u32) -> Block {
    (counter as u128).to_be_bytes()
}

/// Returns counter blocks as a vector.
#[inline(always)]
pub(super) fn counters<B: AesBlocks>(b: B, blocks: &[Block; MAX_BLOCKS]) -> B::Vector {
    // SAFETY: the array has as many blocks as the largest vector.
    unsafe { b.load(blocks.as_ptr().cast()) }
}
