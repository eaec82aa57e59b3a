//! The AAD of several texts, block by block.

use super::field::{Field, Limb};
use super::text::{BLOCK_MASKS, Text, ZEROS};
use crate::vector::{MAX_TAGS, U64Lanes};

/// Returns one block of AAD for each of `texts`, each of which has `LANES_PER_TEXT` lanes: the
/// block that `more` blocks of its AAD follow, and [`Field::HIBIT`]. Lanes of a text whose AAD has
/// no such block get zeros and no bit.
///
/// # Safety
///
/// The AAD of each text that has some, and [`AAD_OVERREAD`](super::text::AAD_OVERREAD) bytes
/// after it, must be readable.
#[inline(always)]
pub(super) unsafe fn aad_block<F: Field, const LANES_PER_TEXT: usize>(
    f: F,
    texts: &[Text],
    more: usize,
) -> ((Limb<F>, Limb<F>), Limb<F>) {
    let l = f.lanes();
    let mut pointers = [ZEROS.as_ptr(); MAX_TAGS];
    let (mut masks, mut hibit) = (pointers, [0; MAX_TAGS]);
    let mut all = true;
    for (i, text) in texts.iter().enumerate() {
        let blocks = (text.aad_len as usize).div_ceil(16);
        all &= blocks > more;
        if blocks > more {
            let start = 16 * (blocks - more - 1);
            let len = (text.aad_len as usize - start).min(16);
            for lane in LANES_PER_TEXT * i..LANES_PER_TEXT * (i + 1) {
                pointers[lane] = text.aad.wrapping_add(start);
                masks[lane] = BLOCK_MASKS[16 - len..].as_ptr();
                hibit[lane] = F::HIBIT;
            }
        }
    }
    // SAFETY: a block begins within the AAD, so that it ends at most `AAD_OVERREAD` bytes after
    // it, and the caller guarantees that these are readable. It holds `len` bytes of AAD, 1 to
    // 16, so that a mask of 16 bytes begins 16 - `len` bytes into `BLOCK_MASKS`, which has 32.
    // The other lanes read `ZEROS`.
    let (block, mask) = unsafe { (l.load(&pointers, 0), l.load(&masks, 0)) };
    let block = (l.and(block.0, mask.0), l.and(block.1, mask.1));
    // Usually all lanes have the bit. Then it is not read back from memory, where a load would wait
    // for the stores of single lanes.
    let hibit = match all {
        true => f.hibit(),
        false => l.per_lane(&hibit),
    };
    (block, hibit)
}
