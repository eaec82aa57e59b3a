//! One long message over all lanes of a vector.
//!
//! ```text
//! lane i of n takes blocks i, i + n, i + 2n, ...
//! lane 0 starts with h, the accumulator so far
//! for each run of n blocks:  lane = (lane + block + 2^128) * r^n,  two runs per iteration
//! last run:                  lane = (lane + block + 2^128) * r^(n - i)
//! h = sum of the lanes
//! ```
//!
//! If the number of blocks is not a multiple of n, the first run begins in a later lane, and so
//! does h.

use super::field::{Field, Number};
use super::state::{Multiplier, SERIAL};
use super::text::ZEROS;
use crate::vector::{MAX_TAGS, U64Lanes};

/// Hashes blocks of one message into the accumulator `h` and returns the new accumulator. `r`
/// is its multiplier.
///
/// # Panics
///
/// If there are fewer than two blocks for each lane.
#[inline(always)]
pub(crate) fn absorb<F: Field>(f: F, h: Number, blocks: &[[u8; 16]], r: &Multiplier) -> Number {
    let lanes = F::Lanes::LANES;
    // Required by the reads below.
    assert!(
        blocks.len() >= 2 * lanes,
        "there are two blocks for each lane"
    );
    debug_assert!(lanes > 1, "`Radix64` cannot multiply by a power");
    let l = f.lanes();
    // Lane i holds r^(n - i).
    let mut powers = [[0; 3]; MAX_TAGS];
    let mut power = [r[0], r[1], 0];
    for place in powers[..lanes].iter_mut().rev() {
        *place = power;
        power = SERIAL.multiply(power, r);
    }
    let by_one = f.multiplier(f.import(&powers));
    let all = f.splat(powers[0]);
    let by_all = f.multiplier(all);
    let by_all_twice = f.multiplier(f.multiply(all, &by_all));

    // Lanes before this one wait in the first step. This lane starts with the accumulator.
    let waiting = (lanes - blocks.len() % lanes) % lanes;
    let mut start = [[0; 3]; MAX_TAGS];
    start[waiting] = h;
    let mut h = f.import(&start);
    let mut hibit = [F::HIBIT; MAX_TAGS];
    hibit[..waiting].fill(0);
    let hibit = l.per_lane(&hibit);
    let mut pointers = [ZEROS.as_ptr(); MAX_TAGS];
    for (place, block) in pointers[waiting..lanes].iter_mut().zip(blocks) {
        *place = block.as_ptr();
    }
    // SAFETY: each lane reads one of the first blocks or `ZEROS`.
    let first = unsafe { l.load(&pointers, 0) };
    h = f.step(h, first, hibit, &by_all);

    // At least one more step follows, because there are two blocks for each lane.
    let hibit = f.hibit();
    let (_, rest) = blocks.split_at(lanes - waiting);
    let last = rest.len() / lanes - 1;
    let rest = rest.as_ptr().cast::<u8>();
    let mut step = 0;
    // SAFETY: the caller passes at least two blocks for each lane, and the first step took at
    // most one, so `rest` holds `last + 1` >= 1 times as many blocks as there are lanes. Step i
    // reads blocks `lanes * i` to `lanes * (i + 1) - 1` of it, for i from 0 to `last`.
    unsafe {
        while step + 1 < last {
            let runs = [
                l.load_run(rest.add(16 * lanes * step)),
                l.load_run(rest.add(16 * lanes * (step + 1))),
            ];
            h = f.two_steps(h, runs, [hibit; 2], &by_all, &by_all_twice);
            step += 2;
        }
        if step < last {
            h = f.step(h, l.load_run(rest.add(16 * lanes * step)), hibit, &by_all);
        }
        h = f.step(h, l.load_run(rest.add(16 * lanes * last)), hibit, &by_one);
    }
    powers = [[0; 3]; MAX_TAGS];
    zeroize::optimization_barrier(&powers);
    f.sum(h)
}
