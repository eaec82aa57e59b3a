//! Messages of at most 64 bytes of text, one per lane, that a kernel has just produced.

use super::field::{Field, Limb, clamped, padded_words};
use super::text::MAX_AAD;
use crate::vector::{MAX_TAGS, U32Lanes, U64Lanes};

/// The largest text of a short message, in bytes.
pub(crate) const MAX_SHORT_TEXT: usize = 64;

/// Short messages, one per lane, that end together. Each has its own range of bytes: leading zeros,
/// then AAD and text, each padded with zeros, and their lengths.
#[repr(align(64))]
pub(crate) struct ShortMessages {
    /// [`STRIDE`] bytes for each message, and room for the padding of AAD that
    /// [`begin`](Self::begin) copies beyond the last one.
    bytes: [u8; STRIDE * MAX_TAGS + MAX_SHORT_TEXT],
    /// For each message one bit per block, from the first on: whether the message has started.
    started: [u64; MAX_TAGS],
    /// Start of each message's text in its range.
    text_at: [usize; MAX_TAGS],
    /// How many blocks pass before the first message begins.
    wait: usize,
}

/// The largest short message with its lengths, rounded up to a power of two.
const STRIDE: usize = 128;
const _: () = assert!(MAX_AAD + MAX_SHORT_TEXT + 16 <= STRIDE);

impl ShortMessages {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self {
            bytes: [0; STRIDE * MAX_TAGS + MAX_SHORT_TEXT],
            started: [0; MAX_TAGS],
            text_at: [0; MAX_TAGS],
            wait: STRIDE / 16,
        }
    }

    /// Returns the starts of AAD, text and lengths in a message's range.
    #[inline(always)]
    fn offsets(aad_len: u32, text_len: u32) -> [usize; 3] {
        let lengths = STRIDE - 16;
        let text = lengths - text_len.next_multiple_of(16) as usize;
        [text - aad_len.next_multiple_of(16) as usize, text, lengths]
    }

    /// Prepares for other messages. Bytes in the ranges stay until they are overwritten.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.wait = STRIDE / 16;
    }

    /// Begins the message of a lane: everything except its text. `lengths` are those of AAD and
    /// text, at most [`MAX_AAD`] and [`MAX_SHORT_TEXT`] bytes. AAD is padded with zeros to 64
    /// bytes, and omitted if there is none. Lanes must be begun in ascending order: padding that
    /// extends too far is overwritten here, by the text, or by the next lane, or is part of that
    /// lane's leading zeros.
    #[inline(always)]
    pub(crate) fn begin(
        &mut self,
        lane: usize,
        aad: Option<&[u8; MAX_SHORT_TEXT]>,
        lengths: [u32; 2],
    ) {
        let [aad_len, text_len] = lengths;
        let [aad_at, text_at, lengths_at] = Self::offsets(aad_len, text_len);
        let wait = aad_at / 16;
        let started = u64::MAX << wait;
        let bytes = &mut self.bytes[STRIDE * lane..][..STRIDE + MAX_SHORT_TEXT];
        // Leading zeros, if the previous message was longer.
        if self.started[lane] & !started != 0 {
            bytes[..STRIDE].fill(0);
        }
        self.started[lane] = started;
        self.text_at[lane] = text_at;
        self.wait = self.wait.min(wait);
        if let Some(aad) = aad {
            bytes[aad_at..][..MAX_SHORT_TEXT].copy_from_slice(aad);
        }
        let lengths = u128::from(aad_len) | u128::from(text_len) << 64;
        bytes[lengths_at..][..16].copy_from_slice(&lengths.to_le_bytes());
    }

    /// Writes the text of a lane that has been begun. The text is passed padded with zeros to 64
    /// bytes, and written up to the end of its last block. Lanes may come in any order.
    #[inline(always)]
    pub(crate) fn set_text<V: U32Lanes>(&mut self, v: V, lane: usize, text: &[u8; MAX_SHORT_TEXT]) {
        let stretch = &mut self.bytes[STRIDE * lane..][..STRIDE - 16];
        v.copy_first(&mut stretch[self.text_at[lane]..], text);
    }
}

/// Computes the tags of short messages, in two words each. `r` and `pad` are the halves of the
/// one-time keys, in two words each.
#[inline(always)]
pub(crate) fn tags_of_short<F: Field>(
    f: F,
    messages: &ShortMessages,
    r: (Limb<F>, Limb<F>),
    pad: (Limb<F>, Limb<F>),
) -> [[u64; MAX_TAGS]; 2] {
    let l = f.lanes();
    let r = clamped(f, r);
    let (square, r) = (f.multiply(r, &f.multiplier(r)), f.multiplier(r));
    let square = f.multiplier(square);
    let mut pointers = [messages.bytes.as_ptr(); MAX_TAGS];
    for (lane, pointer) in pointers.iter_mut().enumerate() {
        *pointer = pointer.wrapping_add(STRIDE * lane);
    }
    let mut started = l.per_lane(&messages.started);
    let mut step = messages.wait;
    for _ in 0..step {
        started = l.shift_right::<1>(started);
    }
    let mut h = f.zero();
    macro_rules! block {
        ($step:expr) => {{
            let hibit = f.hibit_where(started);
            started = l.shift_right::<1>(started);
            // SAFETY: `step` is below `STRIDE` / 16, so the block lies in the lane's `STRIDE`
            // bytes.
            (unsafe { l.load(&pointers, 16 * $step) }, hibit)
        }};
    }
    // An odd block goes first, which is faster than pairing it with a block of zeros.
    if step % 2 == 1 {
        let (block, hibit) = block!(step);
        h = f.step(h, block, hibit, &r);
        step += 1;
    }
    while step < STRIDE / 16 {
        let (block0, hibit0) = block!(step);
        let (block1, hibit1) = block!(step + 1);
        h = f.two_steps(h, [block0, block1], [hibit0, hibit1], &r, &square);
        step += 2;
    }
    padded_words(f, h, pad)
}
