//! One message per lane.
//!
//! ```text
//! in each lane: h = hash of the AAD, if all texts have the same number of blocks; or else 0
//! for each block before the last:  h = (h + block + 2^128) * r,  two or four blocks per iteration
//! h = ((h + last block, padded) * r + lengths) * r
//! ```
//!
//! Messages of different lengths end together: the lane of a shorter one waits at the start.

use super::aad::aad_block;
use super::field::{Field, Limb, clamped, clamped_r, finish, padded_words, wide};
use super::text::{BLOCK_MASKS, Text, ZEROS, group};
use crate::job::TAG_LEN;
use crate::vector::{MAX_TAGS, U64Lanes};

/// Minimum number of steps for which four at once are faster than two: they need two more powers of
/// r.
const MIN_STEPS_BY_FOUR: usize = 48;

/// Computes the tags of up to `LANES` texts, one text per lane. The texts are sorted from the
/// longest to the shortest, in blocks of 16 bytes. `keys` are the one-time keys; text `i` has the
/// key and the tag at its `index`.
///
/// The lane of a shorter text waits until as many blocks are left as the text has. Until then
/// it reads zeros without the high bit, which leave its accumulator 0.
///
/// # Safety
///
/// Each text and [`TAG_LEN`] bytes after it must be readable. So must its AAD, and
/// [`AAD_OVERREAD`](super::text::AAD_OVERREAD) bytes after it if it is not empty. [`group`]
/// must allow the texts to share a call, and `texts` must not be empty.
#[inline(always)]
pub(crate) unsafe fn tags<F: Field>(
    f: F,
    texts: &[Text],
    keys: &[[u8; 32]],
    tags: &mut [[u8; TAG_LEN]],
) {
    let mut key_pointers = [ZEROS.as_ptr(); MAX_TAGS];
    for (pointer, text) in key_pointers.iter_mut().zip(texts) {
        *pointer = keys[text.index].as_ptr();
    }
    // SAFETY: each pointer is that of a key of 32 bytes or of `ZEROS`, which has more. The caller
    // guarantees the texts.
    let words = unsafe {
        let h = hash(f, texts, clamped_r(f, &key_pointers));
        finish(f, h, &key_pointers)
    };
    for (lane, text) in texts.iter().enumerate() {
        tags[text.index] = wide(words[0][lane], words[1][lane]).to_le_bytes();
    }
}

/// Computes the tags of `LANES` texts, in two words each; otherwise like [`tags`]. `r` and `pad`
/// are the halves of the one-time keys, in two words each.
///
/// # Safety
///
/// As for [`tags`].
#[inline(always)]
pub(crate) unsafe fn tags_in_words<F: Field>(
    f: F,
    texts: &[Text],
    r: (Limb<F>, Limb<F>),
    pad: (Limb<F>, Limb<F>),
) -> [[u64; MAX_TAGS]; 2] {
    debug_assert_eq!(texts.len(), F::Lanes::LANES);
    // SAFETY: the caller guarantees the texts.
    let h = unsafe { hash(f, texts, clamped(f, r)) };
    padded_words(f, h, pad)
}

/// Returns the number to which the second half of the one-time key is added, for each of the texts
/// that [`tags`] takes. `r` is the clamped first half, and 0 in a lane without a text.
///
/// # Safety
///
/// As for [`tags`].
#[inline(always)]
unsafe fn hash<F: Field>(f: F, texts: &[Text], r: F::Element) -> F::Element {
    debug_assert!(!texts.is_empty() && texts.len() == group(texts, F::Lanes::LANES));
    debug_assert!(
        F::Lanes::LANES > 1,
        "a square is not clamped, and `Radix64` cannot multiply by it"
    );
    let l = f.lanes();
    let mut pointers = [ZEROS.as_ptr(); MAX_TAGS];
    let (mut last, mut masks) = (pointers, pointers);
    let mut lengths = [[0_u64; MAX_TAGS]; 2];
    let mut aad_len = 0;
    for (lane, text) in texts.iter().enumerate() {
        let before = 16 * text.blocks_before_last();
        last[lane] = text.start.wrapping_add(before);
        masks[lane] = BLOCK_MASKS[16 - (text.len as usize - before)..].as_ptr();
        lengths[0][lane] = text.aad_len.into();
        lengths[1][lane] = text.len.into();
        aad_len = aad_len.max(text.aad_len);
    }
    let (r_squared, r) = (f.multiply(r, &f.multiplier(r)), f.multiplier(r));
    let square = f.multiplier(r_squared);
    // All blocks but the last. Lanes without a text read the longest text; their r is 0, and so
    // is their accumulator.
    pointers[texts.len()..].fill(texts[0].start);
    let total = texts[0].blocks_before_last();
    let mut started = 0;
    let hibit = f.hibit();
    // Starts the lanes whose texts have as many blocks as are left, and loads a block in each lane.
    macro_rules! block {
        ($step:expr) => {{
            while started < texts.len() && texts[started].blocks_before_last() == total - $step {
                pointers[started] = texts[started].start.wrapping_sub(16 * $step);
                started += 1;
            }
            // SAFETY: a lane that has started reads the block with number `step` less the
            // blocks that it waited. That block precedes the last one of its text. A lane
            // without a text reads what the first lane reads. A lane that waits reads `ZEROS`,
            // which is as long as the longest wait that `group` allows.
            let block = unsafe { l.load(&pointers, 16 * $step) };
            (block, l.first(started, hibit))
        }};
    }
    let mut h = f.zero();
    for more in (0..aad_len.div_ceil(16) as usize).rev() {
        // SAFETY: the caller guarantees that the AAD and the bytes after it are readable.
        let (block, hibit) = unsafe { aad_block::<F, 1>(f, texts, more) };
        h = f.step(h, block, hibit, &r);
    }
    let mut step = 0;
    if total % 2 == 1 {
        let (block, hibit) = block!(0);
        h = f.step(h, block, hibit, &r);
        step = 1;
    }
    while step < total && started < texts.len() {
        let (block0, hibit0) = block!(step);
        let (block1, hibit1) = block!(step + 1);
        h = f.two_steps(h, [block0, block1], [hibit0, hibit1], &r, &square);
        step += 2;
    }
    // All have started. A lane without a text has no bits to mask: its r is 0.
    if F::MAX_PRODUCTS >= 4 && total - step >= MIN_STEPS_BY_FOUR {
        // Not `map`, because closures are not always inlined.
        let cube = f.multiplier(f.multiply(r_squared, &r));
        let fourth = f.multiplier(f.multiply(r_squared, &square));
        while total - step >= 4 {
            // Two plus two, because loads and products use different units.
            // SAFETY: as in `block`, for the last two of four blocks, which all come before the last of the text.
            let later = unsafe { l.load_two(&pointers, 16 * (step + 2)) };
            let sum = f.add_two(f.no_products(), later, hibit, [&square, &r]);
            // SAFETY: as above, for the first two.
            let [first, second] = unsafe { l.load_two(&pointers, 16 * step) };
            let sum = f.multiply_add(sum, f.add_block(f.zero(), second, hibit), &cube);
            h = f.reduced(f.multiply_add(sum, f.add_block(h, first, hibit), &fourth));
            step += 4;
        }
    }
    while step < total {
        // SAFETY: as in `block`, for two blocks of which the second follows the first.
        let blocks = unsafe { l.load_two(&pointers, 16 * step) };
        h = f.two_steps(h, blocks, [hibit; 2], &r, &square);
        step += 2;
    }
    // All lanes end together, with the last block, masked to the bytes of the text, and the
    // lengths.
    // SAFETY: the last block begins within its text, and the caller guarantees that 16 bytes
    // after the text are readable. The block holds 1 to 16 bytes of text, so that a mask of 16
    // bytes begins at most 15 bytes into `BLOCK_MASKS`, which has 32. Other lanes read `ZEROS`.
    let (block, mask) = unsafe { (l.load(&last, 0), l.load(&masks, 0)) };
    let block = (l.and(block.0, mask.0), l.and(block.1, mask.1));
    let lengths = (l.per_lane(&lengths[0]), l.per_lane(&lengths[1]));
    f.two_steps(h, [block, lengths], [hibit; 2], &r, &square)
}
