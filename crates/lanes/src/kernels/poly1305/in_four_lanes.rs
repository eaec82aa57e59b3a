//! A long message in each four lanes.

use super::aad::aad_block;
use super::field::{Field, clamped_r, finish, wide};
use super::text::{FIRST, LANES_PER_TEXT, Text, ZEROS, group};
use crate::job::TAG_LEN;
use crate::vector::{MAX_TAGS, U64Lanes};

/// The tags of up to `LANES` / [`LANES_PER_TEXT`] texts, from the longest to the shortest, each
/// of [`LONG`] bytes at least, [`LANES_PER_TEXT`] lanes for each.
///
/// Lane i of a text's takes in every fourth block and steps by r^4; the last step is
/// by r^(4 - i), which brings the lanes to the same power, and their sum is the
/// accumulator. As in [`tags`], all end together; in a text's first row the lanes that
/// are too many wait.
///
/// # Safety
///
/// As for [`tags`].
#[inline(always)]
pub(crate) unsafe fn tags<F: Field>(
    f: F,
    texts: &[Text],
    keys: &[[u8; 32]],
    tags: &mut [[u8; TAG_LEN]],
) {
    const ROW: usize = 16 * LANES_PER_TEXT;
    /// The first and third lane of each four, and the first two.
    const EVEN: [u64; MAX_TAGS] = lanes_of_four([!0, 0, !0, 0]);
    const FIRST_TWO: [u64; MAX_TAGS] = lanes_of_four([!0, !0, 0, 0]);
    debug_assert!(
        !texts.is_empty() && texts.len() == group(texts, F::Lanes::LANES / LANES_PER_TEXT)
    );
    let l = f.lanes();
    // The last row is the last two whole blocks, what is behind them and the lengths.
    let rows = |text: &Text| (text.blocks_before_last() - 2).div_ceil(LANES_PER_TEXT);
    let waiting = |text: &Text| rows(text) * LANES_PER_TEXT - (text.blocks_before_last() - 2);
    let mut key_places = [ZEROS.as_ptr(); MAX_TAGS];
    let (mut last, mut masks) = (key_places, [FIRST.as_ptr(); MAX_TAGS]);
    let mut lengths = [[0_u64; 2]; MAX_TAGS / LANES_PER_TEXT];
    let mut heads = [[0_u8; ROW]; MAX_TAGS / LANES_PER_TEXT];
    for (i, text) in texts.iter().enumerate() {
        lengths[i] = [text.aad_len, text.len].map(|len| u64::from(len).to_le());
        let end = 16 * text.blocks_before_last();
        let head = &mut heads[i][16 * waiting(text)..];
        // SAFETY: the text is longer than a row.
        unsafe { core::ptr::copy_nonoverlapping(text.start, head.as_mut_ptr(), head.len()) };
        let lane = LANES_PER_TEXT * i;
        key_places[lane..lane + LANES_PER_TEXT].fill(keys[text.index].as_ptr());
        last[lane] = text.start.wrapping_add(end - 32);
        last[lane + 1] = text.start.wrapping_add(end - 16);
        last[lane + 2] = text.start.wrapping_add(end);
        last[lane + 3] = lengths[i].as_ptr().cast();
        masks[lane + 2] = FIRST[16 - (text.len as usize - end)..].as_ptr();
    }

    // SAFETY: keys have 32 bytes, and there are as many zeros.
    let r = unsafe { clamped_r(f, &key_places) };
    let by_r = f.multiplier(r);
    let square = f.multiply(r, &by_r);
    let by_square = f.multiplier(square);
    let fourth = f.multiply(square, &by_square);
    let by_fourth = f.multiplier(fourth);
    let by_eighth = f.multiplier(f.multiply(fourth, &by_fourth));
    let one = f.element(l.splat(1), l.splat(0));
    let by_last = f.multiply(
        f.select(&EVEN, square, r),
        &f.multiplier(f.select(&FIRST_TWO, square, one)),
    );
    let by_last = f.multiplier(by_last);

    // Where there is AAD, all begin in the same row and in the same of their lanes.
    let mut first = [0; MAX_TAGS];
    for lanes in first.as_chunks_mut::<LANES_PER_TEXT>().0 {
        lanes[waiting(&texts[0])] = !0;
    }
    let mut h = f.zero();
    let aad_len = texts.iter().map(|text| text.aad_len).max().unwrap_or(0);
    for more in (0..aad_len.div_ceil(16) as usize).rev() {
        // SAFETY: the caller vouches for the AAD.
        let (block, above) = unsafe { aad_block::<F, LANES_PER_TEXT>(f, texts, more) };
        h = f.step(h, block, above, &by_r);
    }
    let mut h = f.select(&first, h, f.zero());
    let mut places = [ZEROS.as_ptr(); MAX_TAGS / LANES_PER_TEXT];
    let mut above_each = [0; MAX_TAGS];
    let mut above = l.splat(0);
    let total = rows(&texts[0]);
    // How many texts have begun, and of how many that was before the row at hand.
    let (mut begun, mut further) = (0, 0);
    macro_rules! row {
        ($step:expr) => {{
            if further < texts.len() {
                for (i, text) in texts[further..begun].iter().enumerate() {
                    let i = further + i;
                    let wait = total - rows(text);
                    places[i] = text.start.wrapping_sub(16 * waiting(text) + ROW * wait);
                    above_each[LANES_PER_TEXT * i..][..LANES_PER_TEXT].fill(F::HIBIT);
                }
                further = begun;
                while begun < texts.len() && rows(&texts[begun]) == total - $step {
                    places[begun] = heads[begun].as_ptr().wrapping_sub(ROW * $step);
                    let waiting = waiting(&texts[begun]);
                    above_each[LANES_PER_TEXT * begun..][waiting..LANES_PER_TEXT].fill(F::HIBIT);
                    begun += 1;
                }
                // Lanes without a text read what the longest does: their r is zero.
                let longest = places[0];
                places[texts.len()..].fill(longest);
                above = l.per_lane(&above_each);
            }
            // SAFETY: a text's first row lies in its head, the others lie in the text,
            // before its last row. One that waits reads zeros, of which there are
            // enough for the longest wait.
            let row = unsafe { l.load_fours(&places, ROW * $step) };
            (row, above)
        }};
    }
    let mut step = 0;
    if total % 2 == 1 {
        let (row, above) = row!(0);
        h = f.step(h, row, above, &by_fourth);
        step = 1;
    }
    while step < total {
        let (row0, above0) = row!(step);
        let (row1, above1) = row!(step + 1);
        h = f.two_steps(h, [row0, row1], [above0, above1], &by_fourth, &by_eighth);
        step += 2;
    }
    // SAFETY: 16 bytes behind each text are readable, and its last block begins within
    // it; it is 1 to 16 bytes, so that as many are left of the masks.
    let (row, mask) = unsafe { (l.load(&last, 0), l.load(&masks, 0)) };
    let row = (l.and(row.0, mask.0), l.and(row.1, mask.1));
    h = f.sum_fours(f.step(h, row, f.hibit(), &by_last));
    // SAFETY: as for r.
    let words = unsafe { finish(f, h, &key_places) };
    for (i, text) in texts.iter().enumerate() {
        tags[text.index] =
            wide(words[0][LANES_PER_TEXT * i], words[1][LANES_PER_TEXT * i]).to_le_bytes();
    }
}

/// The same four values for all fours of lanes.
const fn lanes_of_four(values: [u64; LANES_PER_TEXT]) -> [u64; MAX_TAGS] {
    let mut lanes = [0; MAX_TAGS];
    let mut lane = 0;
    while lane < MAX_TAGS {
        lanes[lane] = values[lane % LANES_PER_TEXT];
        lane += 1;
    }
    lanes
}
