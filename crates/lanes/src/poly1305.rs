//! Poly1305 (RFC 8439, section 2.5) in radix 2^44, one message per lane.
//!
//! The accumulator and the key are three limbs of 44, 44 and 42 bits. Nine
//! products and three carries take in a block of 16 bytes. Nothing branches on
//! a secret and nothing is indexed by one.

use crate::vector::Limbs;

/// Length of a tag, in bytes.
pub const TAG_LEN: usize = 16;

const MASK44: u64 = (1 << 44) - 1;
const MASK42: u64 = (1 << 42) - 1;

/// Bit 128, above a whole block, as a bit of limb 2: 128 - 88 = 40.
const ABOVE: u64 = 1 << 40;

/// The bits of r that RFC 8439, section 2.5.1, leaves standing.
const CLAMP: [u64; 2] = [0x0fff_fffc_0fff_ffff, 0x0fff_fffc_0fff_fffc];

/// A Poly1305 accumulator in every lane.
pub(crate) struct Accumulator<L: Limbs> {
    l: L,
    r: [L::Limb; 3],
    /// 20 r\[1\] and 20 r\[2\]: 2^132 is 20 modulo 2^130 - 5.
    s: [L::Limb; 2],
    h: [L::Limb; 3],
}

impl<L: Limbs> Accumulator<L> {
    /// Starts with the key's first half, as two little-endian words per lane.
    #[inline(always)]
    pub(crate) fn new(l: L, low: L::Limb, high: L::Limb) -> Self {
        let low = l.and(low, l.limb(CLAMP[0]));
        let high = l.and(high, l.limb(CLAMP[1]));
        let r = Self::limbs(l, low, high);
        // 20 x = 16 x + 4 x
        Self {
            l,
            r,
            s: [Self::twenty(l, r[1]), Self::twenty(l, r[2])],
            h: [l.limb(0); 3],
        }
    }

    /// 20 `x`, as 16 `x` + 4 `x`.
    #[inline(always)]
    fn twenty(l: L, x: L::Limb) -> L::Limb {
        l.add(l.shift_left::<4>(x), l.shift_left::<2>(x))
    }

    /// Splits 128 bits into limbs.
    #[inline(always)]
    fn limbs(l: L, low: L::Limb, high: L::Limb) -> [L::Limb; 3] {
        let mask = l.limb(MASK44);
        [
            l.and(low, mask),
            l.and(
                l.or(l.shift_right::<44>(low), l.shift_left::<20>(high)),
                mask,
            ),
            l.shift_right::<24>(high),
        ]
    }

    /// Takes in one block of 16 bytes per lane, as two little-endian words, and
    /// the bit above them: `1 << 40` of limb 2 for a whole block, 0 for a last
    /// block that carries its own.
    #[inline(always)]
    pub(crate) fn block(&mut self, low: L::Limb, high: L::Limb, above: u64) {
        let l = self.l;
        let [m0, m1, m2] = Self::limbs(l, low, high);
        let [r0, r1, r2] = self.r;
        let [s1, s2] = self.s;
        let h0 = l.add(self.h[0], m0);
        let h1 = l.add(self.h[1], m1);
        let h2 = l.add(self.h[2], l.or(m2, l.limb(above)));

        let d0 = l.multiply(h0, r0);
        let d0 = l.multiply_add(d0, h1, s2);
        let d0 = l.multiply_add(d0, h2, s1);
        let d1 = l.multiply(h0, r1);
        let d1 = l.multiply_add(d1, h1, r0);
        let d1 = l.multiply_add(d1, h2, s2);
        let d2 = l.multiply(h0, r2);
        let d2 = l.multiply_add(d2, h1, r1);
        let d2 = l.multiply_add(d2, h2, r0);

        let (h0, carry) = l.split::<44>(d0, l.limb(0));
        let (h1, carry) = l.split::<44>(d1, carry);
        let (h2, carry) = l.split::<42>(d2, carry);
        // 2^130 is 5; what leaves h0 here is left in h1, which has room.
        let h0 = l.add(h0, l.add(l.shift_left::<2>(carry), carry));
        let h1 = l.add(h1, l.shift_right::<44>(h0));
        self.h = [l.and(h0, l.limb(MASK44)), h1, h2];
    }
}

/// Reduces an accumulator modulo 2^130 - 5 and adds the key's second half: the
/// tag (RFC 8439, section 2.5.1).
#[inline(always)]
pub(crate) fn finish(h: [u64; 3], pad: u128) -> [u8; TAG_LEN] {
    let [mut h0, mut h1, mut h2] = h;
    // Two rounds bring every limb below its radix.
    for _ in 0..2 {
        h2 += h1 >> 44;
        h1 &= MASK44;
        h0 += 5 * (h2 >> 42);
        h2 &= MASK42;
        h1 += h0 >> 44;
        h0 &= MASK44;
    }
    // h - p = h + 5 - 2^130; its sign selects which of the two is the residue.
    let g0 = h0 + 5;
    let g1 = h1 + (g0 >> 44);
    let g2 = (h2 + (g1 >> 44)).wrapping_sub(1 << 42);
    let keep_h = (g2 >> 63).wrapping_neg();
    let select = |h: u64, g: u64| (h & keep_h) | (g & !keep_h);
    let h0 = select(h0, g0 & MASK44);
    let h1 = select(h1, g1 & MASK44);
    let h2 = select(h2, g2 & MASK42);
    let h = u128::from(h0) | u128::from(h1) << 44 | u128::from(h2) << 88;
    h.wrapping_add(pad).to_le_bytes()
}

/// The tag of one message, taken in piece by piece. The key is wiped on drop.
pub(crate) struct Tagger {
    accumulator: Accumulator<crate::isa::Scalar>,
    pad: u128,
}

impl Tagger {
    /// `key` is a one-time key of 32 bytes; for an AEAD, the first half of
    /// block 0 of the keystream.
    #[inline(always)]
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        let (r, pad) = key.split_at(16);
        let [low, high] = words(r);
        let [pad_low, pad_high] = words(pad);
        Self {
            accumulator: Accumulator::new(crate::isa::Scalar, low, high),
            pad: u128::from(pad_low) | u128::from(pad_high) << 64,
        }
    }

    /// Takes in the whole blocks of `piece` and returns what is left of it,
    /// below 16 bytes.
    #[inline(always)]
    fn whole<'p>(&mut self, piece: &'p [u8]) -> &'p [u8] {
        let (blocks, rest) = piece.as_chunks::<16>();
        for block in blocks {
            let [low, high] = words(block);
            self.accumulator.block(low, high, ABOVE);
        }
        rest
    }

    /// Takes in `piece`, padded with zeros to a multiple of 16 bytes, as
    /// ChaCha20-Poly1305 wants it (RFC 8439, section 2.8).
    #[inline(always)]
    pub(crate) fn padded(&mut self, piece: &[u8]) {
        let rest = self.whole(piece);
        if !rest.is_empty() {
            let mut block = [0; 16];
            block[..rest.len()].copy_from_slice(rest);
            let [low, high] = words(&block);
            self.accumulator.block(low, high, ABOVE);
        }
    }

    /// Takes in `piece`, the last of its message, without padding: the bit
    /// above a short block directly follows its bytes (RFC 8439, section 2.5).
    #[inline(always)]
    pub(crate) fn last(&mut self, piece: &[u8]) {
        let rest = self.whole(piece);
        if !rest.is_empty() {
            let mut block = [0; 16];
            block[..rest.len()].copy_from_slice(rest);
            block[rest.len()] = 1;
            let [low, high] = words(&block);
            self.accumulator.block(low, high, 0);
        }
    }

    /// Takes in the lengths of AAD and text, the last block of an AEAD.
    #[inline(always)]
    pub(crate) fn lengths(&mut self, aad: u64, text: u64) {
        self.accumulator.block(aad, text, ABOVE);
    }

    /// The tag.
    #[inline(always)]
    pub(crate) fn finish(self) -> [u8; TAG_LEN] {
        finish(self.accumulator.h, self.pad)
    }
}

impl Drop for Tagger {
    #[inline(always)]
    fn drop(&mut self) {
        self.accumulator.r = [0; 3];
        self.accumulator.s = [0; 2];
        self.accumulator.h = [0; 3];
        self.pad = 0;
        zeroize::optimization_barrier(self);
    }
}

/// Two little-endian words from 16 bytes.
#[inline(always)]
fn words(bytes: &[u8]) -> [u64; 2] {
    let word = |i: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[i..i + 8]);
        u64::from_le_bytes(word)
    };
    [word(0), word(8)]
}
