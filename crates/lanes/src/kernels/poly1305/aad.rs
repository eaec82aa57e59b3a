//! AAD of several texts, block by block.

use super::field::{Field, Limb};
use super::text::{FIRST, Text, ZEROS};
use crate::vector::{MAX_TAGS, U64Lanes};

/// Of each of `texts`, which have `LANES_PER_TEXT` lanes each, the block of AAD that is followed by
/// `more`, and the bit above it; nothing in the lanes of those that have no more than
/// these.
///
/// # Safety
///
/// The AAD and [`BEHIND_AAD`] bytes behind it must be readable.
#[inline(always)]
pub(super) unsafe fn aad_block<F: Field, const LANES_PER_TEXT: usize>(
    f: F,
    texts: &[Text],
    more: usize,
) -> ((Limb<F>, Limb<F>), Limb<F>) {
    let l = f.lanes();
    let mut places = [ZEROS.as_ptr(); MAX_TAGS];
    let (mut masks, mut above) = (places, [0; MAX_TAGS]);
    let mut all = true;
    for (i, text) in texts.iter().enumerate() {
        let blocks = (text.aad_len as usize).div_ceil(16);
        all &= blocks > more;
        if blocks > more {
            let start = 16 * (blocks - more - 1);
            let len = (text.aad_len as usize - start).min(16);
            for lane in LANES_PER_TEXT * i..LANES_PER_TEXT * (i + 1) {
                places[lane] = text.aad.wrapping_add(start);
                masks[lane] = FIRST[16 - len..].as_ptr();
                above[lane] = F::HIBIT;
            }
        }
    }
    // SAFETY: the block begins within the AAD; it is 1 to 16 bytes, so that as many are
    // left of the masks.
    let (block, mask) = unsafe { (l.load(&places, 0), l.load(&masks, 0)) };
    let block = (l.and(block.0, mask.0), l.and(block.1, mask.1));
    // What was written lane by lane takes a while to be read.
    let above = match all {
        true => f.hibit(),
        false => l.per_lane(&above),
    };
    (block, above)
}
