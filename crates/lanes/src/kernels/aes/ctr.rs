//! AES in counter mode (NIST SP 800-38D, section 6.5).

use super::key::{Block, RoundKeys};
use crate::vector::{AesBlocks, MAX_BLOCKS};

/// Does something for each `i` from 0 to below `$n`, a constant of at most nine: nine
/// times written out, as the compiler would leave arrays in memory for a loop that it
/// does not unroll in time.
macro_rules! each {
    ($n:expr, |$i:ident| $body:expr) => {
        each!(@ $n, $i, $body, 0 1 2 3 4 5 6 7 8)
    };
    (@ $n:expr, $i:ident, $body:expr, $($number:literal)*) => {
        $(if $number < $n {
            #[allow(unused_variables, reason = "not every body counts")]
            let $i: usize = $number;
            $body;
        })*
    };
}

/// Encrypts blocks in place (FIPS 197, section 5.1): those of `K` vectors under one key.
#[inline(always)]
pub(super) fn encrypt<B: AesBlocks, const K: usize>(
    b: B,
    key: &RoundKeys,
    states: &mut [B::Vector; K],
) {
    let round_key = b.splat(&key.keys[0]);
    each!(K, |i| states[i] = b.xor(states[i], round_key));
    rounds_from(b, key, 1, states);
}

/// The rounds of AES from `first` on.
#[inline(always)]
pub(super) fn rounds_from<B: AesBlocks, const K: usize>(
    b: B,
    key: &RoundKeys,
    first: usize,
    states: &mut [B::Vector; K],
) {
    // Written out: a loop is had sooner only by who knows how often it runs.
    macro_rules! rounds {
        ($($round:literal)*) => {
            $(if $round >= first {
                let round_key = b.splat(&key.keys[$round]);
                each!(K, |i| states[i] = b.round(states[i], round_key));
            })*
        };
    }
    rounds!(1 2 3 4 5 6 7 8 9);
    let mut last = &key.keys[10];
    if key.rounds() == 14 {
        rounds!(10 11 12 13);
        last = &key.keys[14];
    }
    let round_key = b.splat(last);
    each!(K, |i| states[i] = b.last_round(states[i], round_key));
}

pub(super) use each;

/// A counter as it stands in its block, behind the nonce (SP 800-38D, section 7.1).
#[inline(always)]
pub(super) const fn counter_block(counter: u32) -> Block {
    (counter as u128).to_be_bytes()
}

/// As many as any vector has, from `counter` on.
#[inline(always)]
pub(super) const fn counter_blocks(counter: u32) -> [Block; MAX_BLOCKS] {
    let mut blocks = [[0; 16]; MAX_BLOCKS];
    let mut lane = 0;
    while lane < MAX_BLOCKS {
        blocks[lane] = counter_block(counter.wrapping_add(lane as u32));
        lane += 1;
    }
    blocks
}

/// The same as a vector.
#[inline(always)]
pub(super) fn counters<B: AesBlocks>(b: B, blocks: &[Block; MAX_BLOCKS]) -> B::Vector {
    // SAFETY: these are as many blocks as any vector has.
    unsafe { b.load(blocks.as_ptr().cast()) }
}
