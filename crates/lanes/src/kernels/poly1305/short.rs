//! Messages of at most 64 bytes, one for each lane, that are still in registers.

use super::field::{Field, Limb, clamped, padded_words};
use super::text::MAX_AAD;
use crate::vector::{MAX_TAGS, U64Lanes};

/// How many bytes of text a short message has at most.
pub(crate) const SHORT: usize = 64;

/// Short messages, one for each lane, that end together: in front zeros, then AAD and
/// text, each padded with zeros, and their lengths.
#[repr(align(64))]
pub(crate) struct ShortMessages {
    /// [`SLOT`] bytes for each, and room for the zeros behind the last one's text.
    bytes: [u8; SLOT * MAX_TAGS + SHORT],
    /// A bit for each block of each, from the first on: whether it has begun.
    begun: [u64; MAX_TAGS],
    /// How many blocks all of them wait.
    wait: usize,
}

/// What a short message takes at most, a power of two.
const SLOT: usize = 128;
const _: () = assert!(MAX_AAD + SHORT + 16 <= SLOT);

impl ShortMessages {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self {
            bytes: [0; SLOT * MAX_TAGS + SHORT],
            begun: [0; MAX_TAGS],
            wait: SLOT / 16,
        }
    }

    /// Where in its lane's bytes AAD, text and lengths begin.
    #[inline(always)]
    fn places(aad_len: u32, text_len: u32) -> [usize; 3] {
        let lengths = SLOT - 16;
        let text = lengths - text_len.next_multiple_of(16) as usize;
        [text - aad_len.next_multiple_of(16) as usize, text, lengths]
    }

    /// How long the message of a lane is: no more than [`MAX_AAD`] and [`SHORT`].
    #[inline(always)]
    pub(crate) fn announce(&mut self, lane: usize, aad_len: u32, text_len: u32) {
        let wait = Self::places(aad_len, text_len)[0] / 16;
        self.begun[lane] = u64::MAX << wait;
        self.wait = self.wait.min(wait);
    }

    /// Takes it, from the first lane's on: AAD, if there is some, and text, padded with
    /// zeros.
    #[inline(always)]
    pub(crate) fn set(
        &mut self,
        lane: usize,
        (aad, aad_len): (&[u8; SHORT], u32),
        (text, text_len): (&[u8; SHORT], u32),
    ) {
        let places = Self::places(aad_len, text_len);
        let bytes = &mut self.bytes[SLOT * lane..][..SLOT + SHORT];
        // Zeros that reach beyond what they pad are written over, here or in the next
        // lane.
        if aad_len > 0 {
            bytes[places[0]..][..SHORT].copy_from_slice(aad);
        }
        bytes[places[1]..][..SHORT].copy_from_slice(text);
        let lengths = u128::from(aad_len) | u128::from(text_len) << 64;
        bytes[places[2]..][..16].copy_from_slice(&lengths.to_le_bytes());
    }
}

/// The tags of short messages, in two words, from the halves of their one-time keys in
/// two words each.
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
    let mut places = [messages.bytes.as_ptr(); MAX_TAGS];
    for (lane, place) in places.iter_mut().enumerate() {
        *place = place.wrapping_add(SLOT * lane);
    }
    let mut begun = l.per_lane(&messages.begun);
    let mut step = messages.wait / 2 * 2;
    for _ in 0..step {
        begun = l.shift_right::<1>(begun);
    }
    let mut h = f.zero();
    macro_rules! block {
        ($step:expr) => {{
            let above = f.hibit_where(begun);
            begun = l.shift_right::<1>(begun);
            // SAFETY: the lane's block lies in its `SLOT` bytes.
            (unsafe { l.load(&places, 16 * $step) }, above)
        }};
    }
    while step < SLOT / 16 {
        let (block0, above0) = block!(step);
        let (block1, above1) = block!(step + 1);
        h = f.two_steps(h, [block0, block1], [above0, above1], &r, &square);
        step += 2;
    }
    padded_words(f, h, pad)
}
