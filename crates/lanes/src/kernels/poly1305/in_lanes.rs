//! A message in each lane.

use super::aad::aad_block;
use super::field::{Field, clamped_r, finish, wide};
use super::text::{FIRST, Text, ZEROS, group};
use crate::job::TAG_LEN;
use crate::vector::{MAX_TAGS, U64Lanes};

/// The tags of up to `LANES` texts, from the longest to the shortest, one in
/// each lane.
///
/// They end together: the lane of a shorter text waits, its accumulator zero and
/// so unmoved by blocks of zeros, until as many blocks are left as it has.
///
/// # Safety
///
/// All texts and their AAD must be readable, [`TAG_LEN`] bytes behind each text and
/// [`BEHIND_AAD`] behind AAD that is there; and [`group`] must have admitted them.
#[inline(always)]
pub(crate) unsafe fn tags<F: Field>(
    f: F,
    texts: &[Text],
    keys: &[[u8; 32]],
    tags: &mut [[u8; TAG_LEN]],
) {
    debug_assert!(!texts.is_empty() && texts.len() == group(texts, F::Lanes::LANES));
    debug_assert!(
        F::Lanes::LANES > 1,
        "squares are no multipliers of `Radix64`"
    );
    let l = f.lanes();
    let mut places = [ZEROS.as_ptr(); MAX_TAGS];
    let (mut key_places, mut last, mut masks) = (places, places, places);
    let mut lengths = [[0_u64; MAX_TAGS]; 2];
    let mut aad_len = 0;
    for (lane, text) in texts.iter().enumerate() {
        let before = 16 * text.blocks_before_last();
        key_places[lane] = keys[text.index].as_ptr();
        last[lane] = text.start.wrapping_add(before);
        masks[lane] = FIRST[16 - (text.len as usize - before)..].as_ptr();
        lengths[0][lane] = text.aad_len.into();
        lengths[1][lane] = text.len.into();
        aad_len = aad_len.max(text.aad_len);
    }
    // SAFETY: keys have 32 bytes, and there are as many zeros.
    let r = unsafe { clamped_r(f, &key_places) };
    let (square, r) = (f.multiply(r, &f.multiplier(r)), f.multiplier(r));
    let square = f.multiplier(square);
    // The blocks before the last ones. Lanes without a text read those of the longest:
    // their r is zero.
    places[texts.len()..].fill(texts[0].start);
    let total = texts[0].blocks_before_last();
    let mut begun = 0;
    let above = f.hibit();
    // Lets the lanes begin whose texts are as long as what is left, and gives all of
    // them their block.
    macro_rules! block {
        ($step:expr) => {{
            while begun < texts.len() && texts[begun].blocks_before_last() == total - $step {
                places[begun] = texts[begun].start.wrapping_sub(16 * $step);
                begun += 1;
            }
            // SAFETY: a lane that has begun reads block `step` less the blocks it
            // waited, which lies before the last of its text, and a lane without a
            // text reads the first lane's. One that waits reads zeros, of which there
            // are enough for the longest wait.
            let block = unsafe { l.load(&places, 16 * $step) };
            (block, l.first(begun, above))
        }};
    }
    let mut h = f.zero();
    for more in (0..aad_len.div_ceil(16) as usize).rev() {
        // SAFETY: the caller vouches for the AAD.
        let (block, above) = unsafe { aad_block::<F, 1>(f, texts, more) };
        h = f.step(h, block, above, &r);
    }
    let mut step = 0;
    if total % 2 == 1 {
        let (block, above) = block!(0);
        h = f.step(h, block, above, &r);
        step = 1;
    }
    while step < total {
        let (block0, above0) = block!(step);
        let (block1, above1) = block!(step + 1);
        h = f.two_steps(h, [block0, block1], [above0, above1], &r, &square);
        step += 2;
    }
    // All lanes end together: the last block, without what is behind its text,
    // then the lengths.
    // SAFETY: 16 bytes behind each text are readable, and the last block begins
    // within it; it is 1 to 16 bytes, so that as many are left of the masks.
    let (block, mask) = unsafe { (l.load(&last, 0), l.load(&masks, 0)) };
    let block = (l.and(block.0, mask.0), l.and(block.1, mask.1));
    let lengths = (l.per_lane(&lengths[0]), l.per_lane(&lengths[1]));
    h = f.two_steps(h, [block, lengths], [above; 2], &r, &square);

    // SAFETY: as for r.
    let words = unsafe { finish(f, h, &key_places) };
    for (lane, text) in texts.iter().enumerate() {
        tags[text.index] = wide(words[0][lane], words[1][lane]).to_le_bytes();
    }
}
