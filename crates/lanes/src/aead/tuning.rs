//! Which of two methods is faster on this CPU for a few blocks of one packet.

use crate::calibrate::{Clock, best_time};
use crate::isa::{self, Set};
use crate::job::Key;
use crate::kernels::chacha20::{Blocks, Keystream, counter_row, mask, mask_in_scalar};
use core::hint::black_box;

/// The methods chosen for a few blocks. On first use both are timed, and the faster one is kept for
/// the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tuning {
    /// Whether one header mask is clearly faster in general registers than in rows.
    pub(crate) scalar_mask: bool,
    /// The largest number of blocks that are faster in half the lanes, followed by rows for the
    /// rest, than in all lanes. Counts the blocks in rows: all that the rows hold, half of them, or
    /// 0 for never.
    pub(crate) rows_after_half: usize,
}

impl Tuning {
    /// Returns the tuning of an instruction set.
    #[inline]
    pub(crate) fn of(set: Set) -> Self {
        let packed = set.tuning().get(|| match isa::clock() {
            Some(clock) => Self::measure(set, clock).packed(),
            None => Self::DEFAULT.packed(),
        });
        Self {
            scalar_mask: packed & 2 != 0,
            rows_after_half: packed >> 2,
        }
    }

    /// Used without a clock: rows, which never lose much.
    const DEFAULT: Self = Self {
        scalar_mask: false,
        rows_after_half: 0,
    };

    /// Returns both fields as one number, which is not 0.
    const fn packed(self) -> usize {
        self.rows_after_half << 2 | (self.scalar_mask as usize) << 1 | 1
    }

    /// Sets the result instead of measuring it.
    #[cfg(test)]
    pub(crate) fn set(self, set: Set) {
        set.tuning().set(self.packed());
    }

    /// Times both methods, which takes 80 to 100 µs on a Zen 4 (November 2026).
    #[cold]
    fn measure(set: Set, clock: Clock) -> Self {
        let row = counter_row(0, &[0; 12]);
        let all = set.row_blocks();
        let rows = |count| {
            best_time(clock, Keystream::new, |keystream| {
                (0..REPEATS).fold(0, |before, _| {
                    set.rows(key_after(before), &row, count, keystream);
                    mask(keystream)
                });
            })
        };
        let lanes = |count: usize| {
            let key = [0; 32];
            let prepare = || {
                let mut blocks = Blocks::new();
                blocks.set(0, &key, &[0; 12], 0..count as u32);
                blocks
            };
            best_time(clock, prepare, |blocks| {
                for _ in 0..REPEATS {
                    set.blocks(blocks, count);
                }
            })
        };
        let scalar = best_time(
            clock,
            || 0,
            |before| {
                for _ in 0..REPEATS {
                    *before = mask_in_scalar(key_after(*before), &row);
                }
            },
        );
        let half = lanes(set.block_lanes() / 2);
        let whole = lanes(set.block_lanes());
        let is_faster = |count: &usize| half + rows(*count) < whole;
        Self {
            // By an eighth: if they are close, either may look faster, and within a packet rows
            // are.
            scalar_mask: scalar + scalar / 8 <= rows(1),
            rows_after_half: [all, all / 2].into_iter().find(is_faster).unwrap_or(0),
        }
    }
}

/// How often the work is repeated in one measurement. It takes about 100 ns, and clocks advance by
/// 10 ns at a time (Zen 4).
const REPEATS: usize = 8;

/// Returns a key once the mask `before` is known, so that the timed work depends on the work timed
/// before it, as for a caller, and does not overlap with it.
fn key_after(before: u64) -> &'static Key {
    static KEYS: [Key; 2] = [[0; 32]; 2];
    &KEYS[(before & black_box(0)) as usize]
}
