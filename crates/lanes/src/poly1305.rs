//! Poly1305 (RFC 8439, section 2.5), one message per lane, or one message over
//! all lanes.
//!
//! The arithmetic modulo 2^130 - 5 is a [`Field`]: [`Radix44`] in three limbs,
//! where the hardware multiplies 64 bits or 52, and [`Radix26`] in five, where it
//! multiplies 32. What is done with it, [`tags`] and [`Tagger`], is written once.
//! Nothing branches on a secret and nothing is indexed by one.

use crate::isa::Scalar;
use crate::vector::{Limbs26, Limbs44, Longs, MAX_TAGS};

/// Length of a tag, in bytes.
pub const TAG_LEN: usize = 16;

const MASK26: u64 = (1 << 26) - 1;
const MASK42: u64 = (1 << 42) - 1;
const MASK44: u64 = (1 << 44) - 1;

/// The bits of r that RFC 8439, section 2.5.1, leaves standing.
const CLAMP: [u64; 2] = [0x0fff_fffc_0fff_ffff, 0x0fff_fffc_0fff_fffc];

/// A number below 2^131 in three limbs: 44 bits, 44 bits, and the rest. How
/// numbers travel between fields.
type Limbs = [u64; 3];

/// Arithmetic modulo 2^130 - 5, one number in each lane.
pub(crate) trait Field: Copy {
    /// What the limbs are kept in.
    type Longs: Longs;

    /// Numbers in limbs, not fully reduced.
    type Element: Copy;

    /// Numbers to multiply by, and what is prepared of them.
    type Multiplier: Copy;

    /// Bit 128, above a whole block, in the limb that holds it.
    const ABOVE: u64;

    /// The vectors.
    fn longs(self) -> Self::Longs;

    /// Numbers of 128 bits, from their low and high halves.
    fn element(self, low: Long<Self>, high: Long<Self>) -> Self::Element;

    /// A number for each lane.
    fn import(self, numbers: &[Limbs; MAX_TAGS]) -> Self::Element;

    /// The number in each lane.
    fn export(self, element: Self::Element) -> [Limbs; MAX_TAGS];

    /// Prepares numbers to multiply by.
    fn multiplier(self, element: Self::Element) -> Self::Multiplier;

    /// (`h` + block) * `r`: the block of 16 bytes per lane is given as two
    /// little-endian words and the bit above them, [`Field::ABOVE`] or 0.
    fn step(
        self,
        h: Self::Element,
        block: (Long<Self>, Long<Self>),
        above: Long<Self>,
        r: &Self::Multiplier,
    ) -> Self::Element;
}

/// One vector of a field.
type Long<F> = <<F as Field>::Longs as Longs>::Long;

/// Three limbs of 44, 44 and 42 bits.
#[derive(Clone, Copy)]
pub(crate) struct Radix44<L>(pub(crate) L);

impl<L: Limbs44> Field for Radix44<L> {
    type Longs = L;
    type Element = [L::Long; 3];
    /// r, then 20 r\[1\] and 20 r\[2\]: 2^132 is 20 modulo 2^130 - 5.
    type Multiplier = ([L::Long; 3], [L::Long; 2]);
    /// 128 - 88 = 40, in limb 2.
    const ABOVE: u64 = 1 << 40;

    #[inline(always)]
    fn longs(self) -> L {
        self.0
    }

    #[inline(always)]
    fn element(self, low: L::Long, high: L::Long) -> [L::Long; 3] {
        let Self(l) = self;
        let mask = l.splat(MASK44);
        let middle = l.or(l.shift_right::<44>(low), l.shift_left::<20>(high));
        [
            l.and(low, mask),
            l.and(middle, mask),
            l.shift_right::<24>(high),
        ]
    }

    #[inline(always)]
    fn import(self, numbers: &[Limbs; MAX_TAGS]) -> [L::Long; 3] {
        let mut lanes = [[0; MAX_TAGS]; 3];
        for (lane, limbs) in numbers.iter().enumerate() {
            [lanes[0][lane], lanes[1][lane], lanes[2][lane]] = *limbs;
        }
        let Self(l) = self;
        [
            l.per_lane(&lanes[0]),
            l.per_lane(&lanes[1]),
            l.per_lane(&lanes[2]),
        ]
    }

    #[inline(always)]
    fn export(self, element: [L::Long; 3]) -> [Limbs; MAX_TAGS] {
        let mut lanes = [[0; MAX_TAGS]; 3];
        for (limb, lanes) in element.into_iter().zip(&mut lanes) {
            self.0.store(limb, lanes);
        }
        let mut numbers = [[0; 3]; MAX_TAGS];
        for (lane, limbs) in numbers.iter_mut().enumerate().take(L::LANES) {
            *limbs = carried([lanes[0][lane], lanes[1][lane], lanes[2][lane]]);
        }
        numbers
    }

    #[inline(always)]
    fn multiplier(self, r: [L::Long; 3]) -> Self::Multiplier {
        let Self(l) = self;
        // 20 x = 16 x + 4 x
        let s1 = l.add(l.shift_left::<4>(r[1]), l.shift_left::<2>(r[1]));
        let s2 = l.add(l.shift_left::<4>(r[2]), l.shift_left::<2>(r[2]));
        (r, [s1, s2])
    }

    #[inline(always)]
    fn step(
        self,
        h: [L::Long; 3],
        block: (L::Long, L::Long),
        above: L::Long,
        r: &Self::Multiplier,
    ) -> [L::Long; 3] {
        let Self(l) = self;
        let ([r0, r1, r2], [s1, s2]) = *r;
        let [m0, m1, m2] = self.element(block.0, block.1);
        let h0 = l.add(h[0], m0);
        let h1 = l.add(h[1], m1);
        let h2 = l.add(h[2], l.or(m2, above));

        let d0 = l.multiply(h0, r0);
        let d1 = l.multiply(h0, r1);
        let d2 = l.multiply(h0, r2);
        let d0 = l.multiply_add(d0, h1, s2);
        let d1 = l.multiply_add(d1, h1, r0);
        let d2 = l.multiply_add(d2, h1, r1);
        let d0 = l.multiply_add(d0, h2, s1);
        let d1 = l.multiply_add(d1, h2, s2);
        let d2 = l.multiply_add(d2, h2, r0);

        let (h0, carry) = l.split::<44>(d0, l.splat(0));
        let (h1, carry) = l.split::<44>(d1, carry);
        let (h2, carry) = l.split::<42>(d2, carry);
        // 2^130 is 5; what leaves h0 here is left in h1, which has room.
        let h0 = l.add(h0, l.add(l.shift_left::<2>(carry), carry));
        let h1 = l.add(h1, l.shift_right::<44>(h0));
        [l.and(h0, l.splat(MASK44)), h1, h2]
    }
}

/// Five limbs of 26 bits.
#[derive(Clone, Copy)]
pub(crate) struct Radix26<L>(pub(crate) L);

impl<L: Limbs26> Field for Radix26<L> {
    type Longs = L;
    type Element = [L::Long; 5];
    /// r, then 5 r\[1\] to 5 r\[4\]: 2^130 is 5 modulo 2^130 - 5.
    type Multiplier = ([L::Long; 5], [L::Long; 4]);
    /// 128 - 104 = 24, in limb 4.
    const ABOVE: u64 = 1 << 24;

    #[inline(always)]
    fn longs(self) -> L {
        self.0
    }

    #[inline(always)]
    fn element(self, low: L::Long, high: L::Long) -> [L::Long; 5] {
        let Self(l) = self;
        let mask = l.splat(MASK26);
        let middle = l.or(l.shift_right::<52>(low), l.shift_left::<12>(high));
        [
            l.and(low, mask),
            l.and(l.shift_right::<26>(low), mask),
            l.and(middle, mask),
            l.and(l.shift_right::<14>(high), mask),
            l.shift_right::<40>(high),
        ]
    }

    #[inline(always)]
    fn import(self, numbers: &[Limbs; MAX_TAGS]) -> [L::Long; 5] {
        let mut lanes = [[0; MAX_TAGS]; 5];
        for (lane, [a, b, c]) in numbers.iter().enumerate() {
            lanes[0][lane] = a & MASK26;
            lanes[1][lane] = (a >> 26 | b << 18) & MASK26;
            lanes[2][lane] = b >> 8 & MASK26;
            lanes[3][lane] = (b >> 34 | c << 10) & MASK26;
            lanes[4][lane] = c >> 16;
        }
        let Self(l) = self;
        [
            l.per_lane(&lanes[0]),
            l.per_lane(&lanes[1]),
            l.per_lane(&lanes[2]),
            l.per_lane(&lanes[3]),
            l.per_lane(&lanes[4]),
        ]
    }

    #[inline(always)]
    fn export(self, element: [L::Long; 5]) -> [Limbs; MAX_TAGS] {
        let mut lanes = [[0; MAX_TAGS]; 5];
        for (limb, lanes) in element.into_iter().zip(&mut lanes) {
            self.0.store(limb, lanes);
        }
        let mut numbers = [[0; 3]; MAX_TAGS];
        for (lane, limbs) in numbers.iter_mut().enumerate().take(L::LANES) {
            let limb = |i: usize| lanes[i][lane];
            // Bits 0 to 52, 52 - 44 = 8 and 78 - 44 = 34, 104 - 88 = 16.
            let low = limb(0) + (limb(1) << 26);
            let middle = (limb(2) << 8) + (limb(3) << 34);
            *limbs = carried([low, middle, limb(4) << 16]);
        }
        numbers
    }

    #[inline(always)]
    fn multiplier(self, r: [L::Long; 5]) -> Self::Multiplier {
        let Self(l) = self;
        let mut s = [r[1], r[2], r[3], r[4]];
        for limb in &mut s {
            *limb = l.add(l.shift_left::<2>(*limb), *limb);
        }
        (r, s)
    }

    #[inline(always)]
    fn step(
        self,
        h: [L::Long; 5],
        block: (L::Long, L::Long),
        above: L::Long,
        r: &Self::Multiplier,
    ) -> [L::Long; 5] {
        let Self(l) = self;
        let ([r0, r1, r2, r3, r4], [s1, s2, s3, s4]) = *r;
        let m = self.element(block.0, block.1);
        let h0 = l.add(h[0], m[0]);
        let h1 = l.add(h[1], m[1]);
        let h2 = l.add(h[2], m[2]);
        let h3 = l.add(h[3], m[3]);
        let h4 = l.add(h[4], l.or(m[4], above));

        /// A sum of products.
        macro_rules! sum {
            ($a:ident * $b:ident $(+ $c:ident * $d:ident)*) => {{
                let sum = l.multiply($a, $b);
                $(let sum = l.add(sum, l.multiply($c, $d));)*
                sum
            }};
        }
        let d0 = sum!(h0 * r0 + h1 * s4 + h2 * s3 + h3 * s2 + h4 * s1);
        let d1 = sum!(h0 * r1 + h1 * r0 + h2 * s4 + h3 * s3 + h4 * s2);
        let d2 = sum!(h0 * r2 + h1 * r1 + h2 * r0 + h3 * s4 + h4 * s3);
        let d3 = sum!(h0 * r3 + h1 * r2 + h2 * r1 + h3 * r0 + h4 * s4);
        let d4 = sum!(h0 * r4 + h1 * r3 + h2 * r2 + h3 * r1 + h4 * r0);

        // Two chains of carries beside each other, from limb 0 and from limb 3.
        let mask = l.splat(MASK26);
        let d1 = l.add(d1, l.shift_right::<26>(d0));
        let d4 = l.add(d4, l.shift_right::<26>(d3));
        let (h0, h3) = (l.and(d0, mask), l.and(d3, mask));
        let d2 = l.add(d2, l.shift_right::<26>(d1));
        let carry = l.shift_right::<26>(d4);
        let h0 = l.add(h0, l.add(l.shift_left::<2>(carry), carry));
        let (h1, h4) = (l.and(d1, mask), l.and(d4, mask));
        let h3 = l.add(h3, l.shift_right::<26>(d2));
        let h2 = l.and(d2, mask);
        let h1 = l.add(h1, l.shift_right::<26>(h0));
        let h4 = l.add(h4, l.shift_right::<26>(h3));
        [l.and(h0, mask), h1, h2, l.and(h3, mask), h4]
    }
}

/// Limbs of up to 63 bits with the bits above 44 carried on, so that the first two
/// are below 2^44.
#[inline(always)]
fn carried([a, b, c]: Limbs) -> Limbs {
    let b = b + (a >> 44);
    [a & MASK44, b & MASK44, c + (b >> 44)]
}

/// Reduces an accumulator modulo 2^130 - 5 and adds the key's second half: the
/// tag (RFC 8439, section 2.5.1).
#[inline(always)]
fn finish(h: Limbs, pad: u128) -> [u8; TAG_LEN] {
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

/// Messages up to this much shorter than the longest of their group are tagged
/// beside it, in bytes: a lane that waits for its message to begin reads zeros,
/// and these are they.
const MAX_WAIT: usize = 1024;
static ZEROS: [u8; MAX_WAIT] = [0; MAX_WAIT];

/// From this length on, in bytes, a message alone goes into the lanes: the powers
/// of r cost as much as some 300 bytes. Two blocks for each lane at least.
pub(crate) const LONG: usize = 512;
const _: () = assert!(LONG >= 2 * 16 * MAX_TAGS);

/// A message whose tag is to be computed as an AEAD's without AAD: its text,
/// padded with zeros, and its length.
#[derive(Clone, Copy)]
pub(crate) struct Text {
    /// Where it begins.
    pub(crate) start: *const u8,
    /// Its length, in bytes; not 0.
    pub(crate) len: u32,
    /// Which of the keys and tags is its own.
    pub(crate) index: usize,
}

impl Text {
    /// How many blocks of 16 bytes come before its last one.
    #[inline(always)]
    fn blocks_before_last(&self) -> usize {
        (self.len as usize - 1) / 16
    }
}

/// How many of `texts`, which go from the longest to the shortest, [`tags`] takes
/// at once.
#[inline(always)]
pub(crate) fn group<F: Field>(texts: &[Text]) -> usize {
    let Some(longest) = texts.first() else {
        return 0;
    };
    let shortest = longest.len.saturating_sub(MAX_WAIT as u32 - 32);
    let texts = texts.iter().take(F::Longs::LANES);
    texts.take_while(|text| text.len >= shortest).count()
}

/// The tags of up to `LANES` texts, from the longest to the shortest, one in
/// each lane.
///
/// They end together: the lane of a shorter text waits, its accumulator zero and
/// so unmoved by blocks of zeros, until as many blocks are left as it has.
///
/// # Safety
///
/// All texts must be readable, and [`group`] must have admitted them.
#[inline(always)]
pub(crate) unsafe fn tags<F: Field>(
    f: F,
    texts: &[Text],
    keys: &[[u8; 32]],
    tags: &mut [[u8; TAG_LEN]],
) {
    debug_assert!(!texts.is_empty() && texts.len() == group::<F>(texts));
    let l = f.longs();
    let mut places = [ZEROS.as_ptr(); MAX_TAGS];
    for (place, text) in places.iter_mut().zip(texts) {
        *place = keys[text.index].as_ptr();
    }
    // SAFETY: keys have 32 bytes, and there are as many zeros.
    let (low, high) = unsafe { l.load(&places, 0) };
    let low = l.and(low, l.splat(CLAMP[0]));
    let high = l.and(high, l.splat(CLAMP[1]));
    let r = f.multiplier(f.element(low, high));
    let mut h = f.element(l.splat(0), l.splat(0));

    let mut last = [[0_u8; 16]; MAX_TAGS];
    let mut lengths = [0_u64; MAX_TAGS];
    for (lane, text) in texts.iter().enumerate() {
        places[lane] = ZEROS.as_ptr();
        lengths[lane] = text.len.into();
        let before = 16 * text.blocks_before_last();
        let rest = text.len as usize - before;
        // SAFETY: the last block is 1 to 16 bytes and the end of the text.
        unsafe {
            let start = text.start.add(before);
            core::ptr::copy_nonoverlapping(start, last[lane].as_mut_ptr(), rest);
        }
    }

    // The blocks before the last ones, in stretches within which no lane begins.
    let total = texts[0].blocks_before_last();
    let mut above = [0; MAX_TAGS];
    let mut begun = 0;
    let mut step = 0;
    while step < total {
        while begun < texts.len() && total - texts[begun].blocks_before_last() == step {
            places[begun] = texts[begun].start.wrapping_sub(16 * step);
            above[begun] = F::ABOVE;
            begun += 1;
        }
        let stretch_end = match texts.get(begun) {
            Some(next) => total - next.blocks_before_last(),
            None => total,
        };
        let above = l.per_lane(&above);
        while step < stretch_end {
            // SAFETY: a lane that has begun reads block `step` less the blocks it
            // waited, which lies before the last of its text. The others read
            // zeros, of which there are enough for the longest wait.
            let block = unsafe { l.load(&places, 16 * step) };
            h = f.step(h, block, above, &r);
            step += 1;
        }
    }
    // All lanes end together: the last block, then the lengths.
    for (place, last) in places.iter_mut().zip(&last) {
        *place = last.as_ptr();
    }
    let above = l.splat(F::ABOVE);
    // SAFETY: each place is an array of 16 bytes.
    let block = unsafe { l.load(&places, 0) };
    h = f.step(h, block, above, &r);
    h = f.step(h, (l.splat(0), l.per_lane(&lengths)), above, &r);

    for (text, h) in texts.iter().zip(f.export(h)) {
        tags[text.index] = finish(h, pad(&keys[text.index]));
    }
}

/// The second half of a one-time key, which is added in the end.
#[inline(always)]
fn pad(key: &[u8; 32]) -> u128 {
    let [low, high] = words(&key[16..]);
    u128::from(low) | u128::from(high) << 64
}

/// The tag of one message, taken in piece by piece. The key is wiped on drop.
pub(crate) struct Tagger {
    r: <Radix44<Scalar> as Field>::Multiplier,
    h: Limbs,
    pad: u128,
}

/// The field of one message at a time.
const ALONE: Radix44<Scalar> = Radix44(Scalar);

/// Bit 128 there.
const ABOVE: u64 = <Radix44<Scalar> as Field>::ABOVE;

impl Tagger {
    /// `key` is a one-time key of 32 bytes; for an AEAD, the first half of
    /// block 0 of the keystream.
    #[inline(always)]
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        let [low, high] = words(&key[..16]);
        Self {
            r: ALONE.multiplier(ALONE.element(low & CLAMP[0], high & CLAMP[1])),
            h: [0; 3],
            pad: pad(key),
        }
    }

    #[inline(always)]
    fn block(&mut self, block: &[u8; 16], above: u64) {
        let [low, high] = words(block);
        self.h = ALONE.step(self.h, (low, high), above, &self.r);
    }

    /// Takes in the whole blocks of `piece` and returns what is left of it,
    /// below 16 bytes.
    ///
    /// The blocks of a long piece go into the lanes of a vector: lane `i` of `n`
    /// takes in every `n`th block and steps by r^n; the last step is by
    /// r^(n - i), which brings the lanes to the same power, and their sum is the
    /// accumulator. The first step is padded in front, with lanes that have
    /// nothing to take in yet.
    #[inline(always)]
    fn whole<'p, F: Field>(&mut self, f: F, piece: &'p [u8]) -> &'p [u8] {
        let lanes = F::Longs::LANES;
        let (blocks, rest) = piece.as_chunks::<16>();
        if lanes == 1 || piece.len() < LONG {
            for block in blocks {
                self.block(block, ABOVE);
            }
            return rest;
        }
        let l = f.longs();
        // Lane i holds r^(n - i).
        let mut powers = [[0; 3]; MAX_TAGS];
        let mut power = self.r.0;
        for place in powers[..lanes].iter_mut().rev() {
            *place = carried(power);
            power = ALONE.step(power, (0, 0), 0, &self.r);
        }
        let by_one = f.multiplier(f.import(&powers));
        let by_all = f.multiplier(f.import(&[powers[0]; MAX_TAGS]));

        // Lanes before this one wait in the first step; it also gets what the
        // accumulator holds already.
        let waiting = (lanes - blocks.len() % lanes) % lanes;
        let mut start = [[0; 3]; MAX_TAGS];
        start[waiting] = carried(self.h);
        let mut h = f.import(&start);
        let mut above = [F::ABOVE; MAX_TAGS];
        above[..waiting].fill(0);
        let above = l.per_lane(&above);
        let mut places = [ZEROS.as_ptr(); MAX_TAGS];
        for (place, block) in places[waiting..lanes].iter_mut().zip(blocks) {
            *place = block.as_ptr();
        }
        // SAFETY: a lane reads zeros or one of the first blocks.
        let first = unsafe { l.load(&places, 0) };
        h = f.step(h, first, above, &by_all);

        // There are more steps: a long piece has at least two blocks for each lane.
        let above = l.splat(F::ABOVE);
        let (_, others) = blocks.split_at(lanes - waiting);
        for (lane, place) in places.iter_mut().enumerate() {
            *place = others.as_ptr().cast::<u8>().wrapping_add(16 * lane);
        }
        let last = others.len() / lanes - 1;
        for step in 0..=last {
            // SAFETY: the other blocks are a multiple of the lanes, and the lanes
            // read all of them, each `lanes` blocks behind its last.
            let block = unsafe { l.load(&places, 16 * lanes * step) };
            h = f.step(h, block, above, if step < last { &by_all } else { &by_one });
        }
        let mut sum = [0; 3];
        for limbs in &f.export(h)[..lanes] {
            for (sum, limb) in sum.iter_mut().zip(limbs) {
                *sum += limb;
            }
        }
        let [a, b, c] = carried(sum);
        self.h = carried([a + 5 * (c >> 42), b, c & MASK42]);
        powers = [[0; 3]; MAX_TAGS];
        zeroize::optimization_barrier(&powers);
        rest
    }

    /// Takes in `piece`, padded with zeros to a multiple of 16 bytes, as
    /// ChaCha20-Poly1305 wants it (RFC 8439, section 2.8).
    #[inline(always)]
    pub(crate) fn padded<F: Field>(&mut self, f: F, piece: &[u8]) {
        let rest = self.whole(f, piece);
        if !rest.is_empty() {
            let mut block = [0; 16];
            block[..rest.len()].copy_from_slice(rest);
            self.block(&block, ABOVE);
        }
    }

    /// Takes in `piece`, the last of its message, without padding: the bit
    /// above a short block directly follows its bytes (RFC 8439, section 2.5).
    #[inline(always)]
    pub(crate) fn last<F: Field>(&mut self, f: F, piece: &[u8]) {
        let rest = self.whole(f, piece);
        if !rest.is_empty() {
            let mut block = [0; 16];
            block[..rest.len()].copy_from_slice(rest);
            block[rest.len()] = 1;
            self.block(&block, 0);
        }
    }

    /// Takes in the lengths of AAD and text, the last block of an AEAD.
    #[inline(always)]
    pub(crate) fn lengths(&mut self, aad: u64, text: u64) {
        self.h = ALONE.step(self.h, (aad, text), ABOVE, &self.r);
    }

    /// The tag.
    #[inline(always)]
    pub(crate) fn finish(self) -> [u8; TAG_LEN] {
        finish(self.h, self.pad)
    }
}

impl Drop for Tagger {
    #[inline(always)]
    fn drop(&mut self) {
        self.r = ([0; 3], [0; 2]);
        self.h = [0; 3];
        self.pad = 0;
        zeroize::optimization_barrier(self);
    }
}

/// The tag of one message, without padding.
#[inline(always)]
pub(crate) fn one<F: Field>(f: F, key: &[u8; 32], message: &[u8]) -> [u8; TAG_LEN] {
    let mut tagger = Tagger::new(key);
    tagger.last(f, message);
    tagger.finish()
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
