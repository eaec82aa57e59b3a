//! One long message over all lanes of a vector.

use super::field::{Field, Number};
use super::state::{Multiplier, SERIAL};
use super::text::ZEROS;
use crate::vector::{MAX_TAGS, U64Lanes};

/// Takes blocks of 16 bytes of one message into its accumulator `h`: at least two blocks for
/// each lane.
///
/// Lane `i` of `n` takes in every `n`th block and steps by r^n; the last step is by
/// r^(n - i), which brings the lanes to the same power, and their sum is the
/// accumulator. The first step is padded in front, with lanes that have nothing to
/// take in yet.
#[inline(always)]
pub(crate) fn absorb<F: Field>(f: F, h: Number, blocks: &[[u8; 16]], r: &Multiplier) -> Number {
    let lanes = F::Lanes::LANES;
    debug_assert!(blocks.len() >= 2 * lanes);
    debug_assert!(lanes > 1, "squares are no multipliers of `Radix64`");
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

    // Lanes before this one wait in the first step; it also gets what the
    // accumulator holds already.
    let waiting = (lanes - blocks.len() % lanes) % lanes;
    let mut start = [[0; 3]; MAX_TAGS];
    start[waiting] = h;
    let mut h = f.import(&start);
    let mut above = [F::HIBIT; MAX_TAGS];
    above[..waiting].fill(0);
    let above = l.per_lane(&above);
    let mut places = [ZEROS.as_ptr(); MAX_TAGS];
    for (place, block) in places[waiting..lanes].iter_mut().zip(blocks) {
        *place = block.as_ptr();
    }
    // SAFETY: a lane reads zeros or one of the first blocks.
    let first = unsafe { l.load(&places, 0) };
    h = f.step(h, first, above, &by_all);

    // There are more steps, as there are two blocks for each lane.
    let above = f.hibit();
    let (_, others) = blocks.split_at(lanes - waiting);
    let last = others.len() / lanes - 1;
    let others = others.as_ptr().cast::<u8>();
    let mut step = 0;
    // SAFETY: the other blocks are a multiple of the lanes, and the lanes read all
    // of them, as many in each step as there are lanes.
    unsafe {
        while step + 1 < last {
            let runs = [
                l.load_run(others.add(16 * lanes * step)),
                l.load_run(others.add(16 * lanes * (step + 1))),
            ];
            h = f.two_steps(h, runs, [above; 2], &by_all, &by_all_twice);
            step += 2;
        }
        if step < last {
            h = f.step(h, l.load_run(others.add(16 * lanes * step)), above, &by_all);
        }
        h = f.step(h, l.load_run(others.add(16 * lanes * last)), above, &by_one);
    }
    powers = [[0; 3]; MAX_TAGS];
    zeroize::optimization_barrier(&powers);
    f.sum(h)
}
