//! One long message per four lanes.
//!
//! ```text
//! lane i of a text's four takes blocks i, i + 4, i + 8, ...
//! for each row of four blocks:  h = (h + block + 2^128) * r^4,  two or four rows per iteration
//! last row:                     h = (h + block + 2^128) * r^(4 - i)
//! tag = (sum of the four lanes + s) mod 2^128
//! ```
//!
//! The last row holds two whole blocks, the rest of the text, and the lengths. As in
//! [`in_lanes`](super::in_lanes), all messages end together: the lanes of shorter ones wait at the
//! start, and a text's first row may begin in a later lane.

use super::aad::aad_block;
use super::field::{Field, clamped_r, finish, wide};
use super::text::{BLOCK_MASKS, LANES_PER_TEXT, Text, ZEROS, group};
use crate::job::TAG_LEN;
use crate::vector::{MAX_TAGS, U64Lanes};

/// Minimum number of rows for which four at once are faster than two: they need two more powers of
/// r.
const MIN_ROWS_BY_FOUR: usize = 32;

/// Computes the tags of up to `LANES` / [`LANES_PER_TEXT`] texts, with [`LANES_PER_TEXT`] lanes for
/// each. The texts are sorted from the longest to the shortest, in blocks of 16 bytes. `keys` are
/// the one-time keys; text `i` has the key and the tag at its `index`.
///
/// # Safety
///
/// As for [`in_lanes::tags`](super::in_lanes::tags), but with `LANES` / [`LANES_PER_TEXT`]
/// texts at most. Each text must have more than 64 bytes.
#[inline(always)]
pub(crate) unsafe fn tags<F: Field>(
    f: F,
    texts: &[Text],
    keys: &[[u8; 32]],
    tags: &mut [[u8; TAG_LEN]],
) {
    const ROW: usize = 16 * LANES_PER_TEXT;
    /// Lanes 0 and 2 of each four.
    const EVEN: [u64; MAX_TAGS] = lanes_of_four([!0, 0, !0, 0]);
    const FIRST_TWO: [u64; MAX_TAGS] = lanes_of_four([!0, !0, 0, 0]);
    debug_assert!(
        !texts.is_empty() && texts.len() == group(texts, F::Lanes::LANES / LANES_PER_TEXT)
    );
    // Required by the copy of a first row.
    assert!(
        texts.iter().all(|text| text.len as usize > ROW),
        "a text is longer than a row"
    );
    let l = f.lanes();
    // The last row holds the last two whole blocks, the bytes after them and the lengths. `rows`
    // counts the rows before it, and `waiting` the lanes of the first row that hold no block.
    let rows = |text: &Text| (text.blocks_before_last() - 2).div_ceil(LANES_PER_TEXT);
    let waiting = |text: &Text| rows(text) * LANES_PER_TEXT - (text.blocks_before_last() - 2);
    let mut key_pointers = [ZEROS.as_ptr(); MAX_TAGS];
    let (mut last, mut masks) = (key_pointers, [BLOCK_MASKS.as_ptr(); MAX_TAGS]);
    let mut lengths = [[0_u64; 2]; MAX_TAGS / LANES_PER_TEXT];
    let mut heads = [[0_u8; ROW]; MAX_TAGS / LANES_PER_TEXT];
    for (i, text) in texts.iter().enumerate() {
        lengths[i] = [text.aad_len, text.len].map(|len| u64::from(len).to_le());
        let end = 16 * text.blocks_before_last();
        let head = &mut heads[i][16 * waiting(text)..];
        // SAFETY: the head is at most a row of 64 bytes, and the caller guarantees a longer
        // text.
        unsafe { core::ptr::copy_nonoverlapping(text.start, head.as_mut_ptr(), head.len()) };
        let lane = LANES_PER_TEXT * i;
        key_pointers[lane..lane + LANES_PER_TEXT].fill(keys[text.index].as_ptr());
        last[lane] = text.start.wrapping_add(end - 32);
        last[lane + 1] = text.start.wrapping_add(end - 16);
        last[lane + 2] = text.start.wrapping_add(end);
        last[lane + 3] = lengths[i].as_ptr().cast();
        masks[lane + 2] = BLOCK_MASKS[16 - (text.len as usize - end)..].as_ptr();
    }

    // SAFETY: each pointer is that of a key of 32 bytes or of `ZEROS`, which has more.
    let r = unsafe { clamped_r(f, &key_pointers) };
    let by_r = f.multiplier(r);
    let square = f.multiply(r, &by_r);
    let by_square = f.multiplier(square);
    let fourth = f.multiply(square, &by_square);
    let by_fourth = f.multiplier(fourth);
    let eighth = f.multiply(fourth, &by_fourth);
    let by_eighth = f.multiplier(eighth);
    let one = f.element(l.splat(1), l.splat(0));
    let by_last = f.multiply(
        f.select(&EVEN, square, r),
        &f.multiplier(f.select(&FIRST_TWO, square, one)),
    );
    let by_last = f.multiplier(by_last);

    // If any text has AAD, all texts have the same number of blocks, and so begin in the same row
    // and lane. That lane starts with the hash of the AAD.
    let mut first = [0; MAX_TAGS];
    for lanes in first.as_chunks_mut::<LANES_PER_TEXT>().0 {
        lanes[waiting(&texts[0])] = !0;
    }
    let mut h = f.zero();
    let aad_len = texts.iter().map(|text| text.aad_len).max().unwrap_or(0);
    for more in (0..aad_len.div_ceil(16) as usize).rev() {
        // SAFETY: the caller guarantees that the AAD and the bytes after it are readable.
        let (block, hibit) = unsafe { aad_block::<F, LANES_PER_TEXT>(f, texts, more) };
        h = f.step(h, block, hibit, &by_r);
    }
    let mut h = f.select(&first, h, f.zero());
    let mut pointers = [ZEROS.as_ptr(); MAX_TAGS / LANES_PER_TEXT];
    let mut hibit_each = [0; MAX_TAGS];
    let mut hibit = l.splat(0);
    let total = rows(&texts[0]);
    // How many texts have started, and how many of them had started before the current row.
    let (mut started, mut settled) = (0, 0);
    macro_rules! row {
        ($step:expr) => {{
            if settled < texts.len() {
                for (i, text) in texts[settled..started].iter().enumerate() {
                    let i = settled + i;
                    let wait = total - rows(text);
                    pointers[i] = text.start.wrapping_sub(16 * waiting(text) + ROW * wait);
                    hibit_each[LANES_PER_TEXT * i..][..LANES_PER_TEXT].fill(F::HIBIT);
                }
                settled = started;
                while started < texts.len() && rows(&texts[started]) == total - $step {
                    pointers[started] = heads[started].as_ptr().wrapping_sub(ROW * $step);
                    let waiting = waiting(&texts[started]);
                    hibit_each[LANES_PER_TEXT * started..][waiting..LANES_PER_TEXT].fill(F::HIBIT);
                    started += 1;
                }
                // Lanes without a text read the longest text; their r is 0, and so is their
                // accumulator.
                let longest = pointers[0];
                pointers[texts.len()..].fill(longest);
                hibit = l.per_lane(&hibit_each);
            }
            // SAFETY: a text's first row lies in its head; its other rows lie in the text,
            // before its last row. A text that waits reads `ZEROS` up to the longest wait,
            // which `group` limits to `MAX_WAIT` bytes, and a row beyond.
            let row = unsafe { l.load_fours(&pointers, ROW * $step) };
            (row, hibit)
        }};
    }
    let mut step = 0;
    if total % 2 == 1 {
        let (row, hibit) = row!(0);
        h = f.step(h, row, hibit, &by_fourth);
        step = 1;
    }
    while step < total && settled < texts.len() {
        let (row0, hibit0) = row!(step);
        let (row1, hibit1) = row!(step + 1);
        h = f.two_steps(h, [row0, row1], [hibit0, hibit1], &by_fourth, &by_eighth);
        step += 2;
    }
    if F::MAX_PRODUCTS >= 4 && total - step >= MIN_ROWS_BY_FOUR {
        let by_twelfth = f.multiplier(f.multiply(eighth, &by_fourth));
        let by_sixteenth = f.multiplier(f.multiply(eighth, &by_eighth));
        while total - step >= 4 {
            // SAFETY: as in `row`, for four rows one after the other, all before the last, where all texts are past
            // their heads.
            let rows = unsafe {
                [
                    l.load_fours(&pointers, ROW * step),
                    l.load_fours(&pointers, ROW * (step + 1)),
                    l.load_fours(&pointers, ROW * (step + 2)),
                    l.load_fours(&pointers, ROW * (step + 3)),
                ]
            };
            let powers = [&by_fourth, &by_eighth, &by_twelfth, &by_sixteenth];
            h = f.four_steps(h, rows, hibit, powers);
            step += 4;
        }
    }
    while step < total {
        // SAFETY: as for four rows. All texts are past their heads, or the first loop would not have ended here.
        let rows = unsafe {
            [
                l.load_fours(&pointers, ROW * step),
                l.load_fours(&pointers, ROW * (step + 1)),
            ]
        };
        h = f.two_steps(h, rows, [hibit; 2], &by_fourth, &by_eighth);
        step += 2;
    }
    // SAFETY: lanes 0 and 1 of a text read whole blocks of it. Lane 2 reads its last block,
    // which begins within the text, and the caller guarantees that 16 bytes after the text are
    // readable. Lane 3 reads `lengths`. The last block holds 1 to 16 bytes of text, so that a
    // mask of 16 bytes begins at most 15 bytes into `BLOCK_MASKS`, which has 32. Other lanes
    // read `ZEROS`.
    let (row, mask) = unsafe { (l.load(&last, 0), l.load(&masks, 0)) };
    let row = (l.and(row.0, mask.0), l.and(row.1, mask.1));
    h = f.sum_fours(f.step(h, row, f.hibit(), &by_last));
    // SAFETY: as for `clamped_r` above, with the same pointers.
    let words = unsafe { finish(f, h, &key_pointers) };
    for (i, text) in texts.iter().enumerate() {
        tags[text.index] =
            wide(words[0][LANES_PER_TEXT * i], words[1][LANES_PER_TEXT * i]).to_le_bytes();
    }
}

/// Returns the same four values for each group of four lanes.
const fn lanes_of_four(values: [u64; LANES_PER_TEXT]) -> [u64; MAX_TAGS] {
    let mut lanes = [0; MAX_TAGS];
    let mut lane = 0;
    while lane < MAX_TAGS {
        lanes[lane] = values[lane % LANES_PER_TEXT];
        lane += 1;
    }
    lanes
}
