//! Poly1305 (RFC 8439, section 2.5): one message in each lane, one in four lanes, or
//! one over all lanes.
//!
//! The arithmetic modulo 2^130 - 5 is a [`Field`]: [`Radix64`] for one number by
//! itself, [`Radix44`] in three limbs, where vectors multiply 52 bits, and
//! [`Radix26`] in five, where they multiply 32. What is done with it, [`tags`] and
//! [`Tagger`], is written once.
//! Nothing branches on a secret and nothing is indexed by one.

use crate::isa::{Scalar, Set};
use crate::job::TAG_LEN;
use crate::vector::{Limbs26, Limbs44, Longs, MAX_TAGS};

const MASK26: u64 = (1 << 26) - 1;
const MASK42: u64 = (1 << 42) - 1;
const MASK44: u64 = (1 << 44) - 1;

/// The bits of r that RFC 8439, section 2.5.1, leaves standing.
const CLAMP: [u64; 2] = [0x0fff_fffc_0fff_ffff, 0x0fff_fffc_0fff_fffc];

/// A number in two words of 64 bits, and what is above them: at most 7. How
/// numbers travel between fields.
pub(crate) type Number = [u64; 3];

/// Arithmetic modulo 2^130 - 5, one number in each lane.
pub(crate) trait Field: Copy {
    /// What the limbs are kept in.
    type Longs: Longs;

    /// Numbers in limbs, not fully reduced.
    type Element: Copy;

    /// Numbers to multiply by, and what is prepared of them.
    type Multiplier: Copy;

    /// Sums of at most two products; in [`Radix64`] of one.
    type Products: Copy;

    /// Bit 128, above a whole block, in the limb that holds it.
    const ABOVE: u64;

    /// The vectors.
    fn longs(self) -> Self::Longs;

    /// [`Field::ABOVE`] in every lane.
    #[inline(always)]
    fn above(self) -> Long<Self> {
        self.longs().splat(Self::ABOVE)
    }

    /// [`Field::ABOVE`] where the lowest bit is set.
    fn above_where(self, bits: Long<Self>) -> Long<Self>;

    /// Numbers of 128 bits, from their low and high halves.
    fn element(self, low: Long<Self>, high: Long<Self>) -> Self::Element;

    /// `h` + block: the block of 16 bytes per lane is given as two little-endian
    /// words and the bit above them, [`Field::ABOVE`] or 0.
    fn plus(
        self,
        h: Self::Element,
        block: (Long<Self>, Long<Self>),
        above: Long<Self>,
    ) -> Self::Element;

    /// Prepares numbers to multiply by.
    fn multiplier(self, element: Self::Element) -> Self::Multiplier;

    /// A sum of no products.
    fn none(self) -> Self::Products;

    /// `sum` + `a` * `r`.
    fn multiply_add(
        self,
        sum: Self::Products,
        a: Self::Element,
        r: &Self::Multiplier,
    ) -> Self::Products;

    /// The sum as a number, partly reduced.
    fn reduced(self, sum: Self::Products) -> Self::Element;

    /// The residue, in two words.
    fn words(self, h: Self::Element) -> (Long<Self>, Long<Self>);

    /// Numbers of two words, and of what is above.
    fn number(self, words: [Long<Self>; 3]) -> Self::Element;

    /// The same number in every lane.
    #[inline(always)]
    fn splat(self, [low, high, above]: Number) -> Self::Element {
        let l = self.longs();
        self.number([l.splat(low), l.splat(high), l.splat(above)])
    }

    /// A number for each lane.
    #[inline(always)]
    fn import(self, numbers: &[Number; MAX_TAGS]) -> Self::Element {
        self.number(by_word(self.longs(), numbers))
    }

    /// The sum of the numbers in all lanes.
    fn sum(self, element: Self::Element) -> Number;

    /// In every lane the sum of the four of which it is one; see
    /// [`Longs::sum_fours`]. Only [`Field::words`] takes it.
    fn sum_fours(self, element: Self::Element) -> Self::Element;

    /// `a` in the lanes where `mask` is all ones, `b` where it is zero.
    fn select(self, mask: &[u64; MAX_TAGS], a: Self::Element, b: Self::Element) -> Self::Element;

    /// `a` * `r`.
    #[inline(always)]
    fn multiply(self, a: Self::Element, r: &Self::Multiplier) -> Self::Element {
        self.reduced(self.multiply_add(self.none(), a, r))
    }

    /// (`h` + block) * `r`.
    #[inline(always)]
    fn step(
        self,
        h: Self::Element,
        block: (Long<Self>, Long<Self>),
        above: Long<Self>,
        r: &Self::Multiplier,
    ) -> Self::Element {
        self.multiply(self.plus(h, block, above), r)
    }

    /// Two steps at once: (`h` + the first block) * `square` + the second block *
    /// `r`. A step takes longer than its instructions, since each waits for the one
    /// before; half of these do not.
    #[inline(always)]
    fn two_steps(
        self,
        h: Self::Element,
        blocks: [(Long<Self>, Long<Self>); 2],
        above: [Long<Self>; 2],
        r: &Self::Multiplier,
        square: &Self::Multiplier,
    ) -> Self::Element {
        let second = self.plus(self.zero(), blocks[1], above[1]);
        let sum = self.multiply_add(self.none(), second, r);
        let first = self.plus(h, blocks[0], above[0]);
        self.reduced(self.multiply_add(sum, first, square))
    }

    /// No number but zero, in every lane.
    #[inline(always)]
    fn zero(self) -> Self::Element {
        let zero = self.longs().splat(0);
        self.element(zero, zero)
    }
}

/// One vector of a field.
type Long<F> = <<F as Field>::Longs as Longs>::Long;

/// Two words of 64 bits, and a third for what is above: one number.
#[derive(Clone, Copy)]
pub(crate) struct Radix64;

#[allow(clippy::cast_possible_truncation, reason = "the low half is meant")]
impl Field for Radix64 {
    type Longs = Scalar;
    type Element = Number;
    /// The words of r, and 5/4 of the second: 2^130 is 5, so 2^128 is 5/4, and
    /// the second word of a clamped r is a multiple of 4. Only such a number can
    /// be a multiplier here.
    type Multiplier = [u64; 3];
    /// What counts 1 and 2^64.
    type Products = [u128; 2];
    const ABOVE: u64 = 1;
    #[inline(always)]
    fn longs(self) -> Scalar {
        Scalar
    }

    #[inline(always)]
    fn above_where(self, bits: u64) -> u64 {
        bits & Self::ABOVE
    }

    #[inline(always)]
    fn element(self, low: u64, high: u64) -> Number {
        [low, high, 0]
    }

    #[inline(always)]
    fn plus(self, [h0, h1, h2]: Number, (low, high): (u64, u64), above: u64) -> Number {
        let (h, carry) = wide(h0, h1).overflowing_add(wide(low, high));
        [h as u64, (h >> 64) as u64, h2 + above + u64::from(carry)]
    }

    #[inline(always)]
    fn multiplier(self, [r0, r1, _]: Number) -> [u64; 3] {
        [r0, r1, r1 + (r1 >> 2)]
    }

    #[inline(always)]
    fn none(self) -> [u128; 2] {
        [0; 2]
    }

    #[inline(always)]
    fn multiply_add(
        self,
        [sum0, sum1]: [u128; 2],
        [h0, h1, h2]: Number,
        &[r0, r1, s1]: &[u64; 3],
    ) -> [u128; 2] {
        let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
        // One product: r0 and r1 are below 2^60, and h2, which `reduced` leaves at
        // most 4 and `plus` at most 6, so each sum is below 2^127.
        [
            sum0 + product(h0, r0) + product(h1, s1),
            sum1 + product(h0, r1)
                + product(h1, r0)
                + u128::from(h2 * s1)
                + (u128::from(h2 * r0) << 64),
        ]
    }

    #[inline(always)]
    fn reduced(self, [sum0, sum1]: [u128; 2]) -> Number {
        let sum1 = sum1 + (sum0 >> 64);
        reduced(sum0 as u64, sum1 as u64, (sum1 >> 64) as u64)
    }

    #[inline(always)]
    fn words(self, [low, high, above]: Number) -> (u64, u64) {
        // Below 2^130 and a little, so at most once the prime too much.
        let [low, high, above] = reduced(low, high, above);
        let h = wide(low, high);
        // h - p = h + 5 - 2^130; where that is not negative, it is the residue.
        let (_, carry) = h.overflowing_add(5);
        let times = (above + u64::from(carry)) >> 2;
        let h = h.wrapping_add(u128::from(5 * times));
        (h as u64, (h >> 64) as u64)
    }

    #[inline(always)]
    fn number(self, words: [u64; 3]) -> Number {
        words
    }

    #[inline(always)]
    fn sum(self, element: Number) -> Number {
        element
    }

    #[inline(always)]
    fn sum_fours(self, element: Number) -> Number {
        element
    }

    #[inline(always)]
    fn select(self, mask: &[u64; MAX_TAGS], a: Number, b: Number) -> Number {
        select_limbs(Scalar, mask, a, b)
    }
}

/// See [`Field::select`].
#[inline(always)]
fn select_limbs<L: Longs, const LIMBS: usize>(
    l: L,
    mask: &[u64; MAX_TAGS],
    mut a: [L::Long; LIMBS],
    b: [L::Long; LIMBS],
) -> [L::Long; LIMBS] {
    let mut not = *mask;
    for lane in &mut not {
        *lane = !*lane;
    }
    let (mask, not) = (l.per_lane(mask), l.per_lane(&not));
    for i in 0..LIMBS {
        a[i] = l.or(l.and(a[i], mask), l.and(b[i], not));
    }
    a
}

/// `low` + 2^64 `high`.
#[inline(always)]
pub(crate) fn wide(low: u64, high: u64) -> u128 {
    u128::from(low) | u128::from(high) << 64
}

/// `low` + 2^64 `high` + 2^128 `above`, partly reduced: what is above 2^130 comes
/// back as five times as much.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "the low half is meant")]
fn reduced(low: u64, high: u64, above: u64) -> Number {
    let more = (above & !3) + (above >> 2);
    let (h, carry) = wide(low, high).overflowing_add(more.into());
    [h as u64, (h >> 64) as u64, (above & 3) + u64::from(carry)]
}

/// `low` + 2^(128 - `N`) `limb`, partly reduced; `limb` is below 2^62.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "the low half is meant")]
fn with_top_limb<const N: u32>(low: u128, limb: u64) -> Number {
    let (low, carry) = low.overflowing_add(u128::from(limb) << (128 - N));
    reduced(
        low as u64,
        (low >> 64) as u64,
        (limb >> N) + u64::from(carry),
    )
}

/// The words of each lane's number in vectors.
#[inline(always)]
fn by_word<L: Longs>(l: L, numbers: &[Number; MAX_TAGS]) -> [L::Long; 3] {
    let mut words = [[0; MAX_TAGS]; 3];
    for (lane, number) in numbers.iter().enumerate() {
        [words[0][lane], words[1][lane], words[2][lane]] = *number;
    }
    let vectors = [
        l.per_lane(&words[0]),
        l.per_lane(&words[1]),
        l.per_lane(&words[2]),
    ];
    // They may be powers of r.
    words = [[0; MAX_TAGS]; 3];
    zeroize::optimization_barrier(&words);
    vectors
}

/// Five times as much.
#[inline(always)]
fn five<L: Longs>(l: L, a: L::Long) -> L::Long {
    l.add(l.shift_left::<2>(a), a)
}

/// Three limbs of 44, 44 and 42 bits.
#[derive(Clone, Copy)]
pub(crate) struct Radix44<L>(pub(crate) L);

impl<L: Limbs44> Field for Radix44<L> {
    type Longs = L;
    type Element = [L::Long; 3];
    /// r, then 20 r\[1\] and 20 r\[2\]: 2^132 is 20 modulo 2^130 - 5.
    type Multiplier = ([L::Long; 3], [L::Long; 2]);
    /// The low 52 bits of the products, and what is above.
    type Products = [[L::Long; 3]; 2];
    /// 128 - 88 = 40, in limb 2.
    const ABOVE: u64 = 1 << 40;
    #[inline(always)]
    fn longs(self) -> L {
        self.0
    }

    #[inline(always)]
    fn above_where(self, bits: L::Long) -> L::Long {
        self.0.and(self.0.shift_left::<40>(bits), self.above())
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
    fn plus(self, h: [L::Long; 3], block: (L::Long, L::Long), above: L::Long) -> [L::Long; 3] {
        let Self(l) = self;
        let [a, b, c] = self.element(block.0, block.1);
        [l.add(h[0], a), l.add(h[1], b), l.add(h[2], l.or(c, above))]
    }

    #[inline(always)]
    fn multiplier(self, r: [L::Long; 3]) -> Self::Multiplier {
        let Self(l) = self;
        // Not four times five, of which the compiler makes a multiplication.
        let twenty = |a| l.add(l.shift_left::<4>(a), l.shift_left::<2>(a));
        (r, [twenty(r[1]), twenty(r[2])])
    }

    #[inline(always)]
    fn none(self) -> Self::Products {
        [[self.0.splat(0); 3]; 2]
    }

    #[inline(always)]
    fn multiply_add(
        self,
        [mut low, mut high]: Self::Products,
        [h0, h1, h2]: [L::Long; 3],
        &([r0, r1, r2], [s1, s2]): &Self::Multiplier,
    ) -> Self::Products {
        let Self(l) = self;
        // Written out as in the other field.
        macro_rules! add {
            ($limb:literal, $($a:ident * $b:ident),+) => {
                $(
                    low[$limb] = l.multiply_add_low(low[$limb], $a, $b);
                    high[$limb] = l.multiply_add_high(high[$limb], $a, $b);
                )+
            };
        }
        add!(0, h2 * s1, h1 * s2, h0 * r0);
        add!(1, h2 * s2, h1 * r0, h0 * r1);
        add!(2, h2 * r0, h1 * r1, h0 * r2);
        [low, high]
    }

    #[inline(always)]
    fn reduced(self, [low, high]: Self::Products) -> [L::Long; 3] {
        let Self(l) = self;
        let mask = l.splat(MASK44);
        // 52 - 44 = 8 and 52 - 42 = 10.
        let carry = l.add(l.shift_left::<8>(high[0]), l.shift_right::<44>(low[0]));
        let h0 = l.and(low[0], mask);
        let low1 = l.add(low[1], carry);
        let carry = l.add(l.shift_left::<8>(high[1]), l.shift_right::<44>(low1));
        let h1 = l.and(low1, mask);
        let low2 = l.add(low[2], carry);
        let carry = l.add(l.shift_left::<10>(high[2]), l.shift_right::<42>(low2));
        let h2 = l.and(low2, l.splat(MASK42));
        // 2^130 is 5; what leaves h0 here is left in h1, which has room.
        let h0 = l.add(h0, five(l, carry));
        let h1 = l.add(h1, l.shift_right::<44>(h0));
        [l.and(h0, mask), h1, h2]
    }

    #[inline(always)]
    fn words(self, [mut h0, mut h1, mut h2]: [L::Long; 3]) -> (L::Long, L::Long) {
        let Self(l) = self;
        let mask = l.splat(MASK44);
        // Below 2^130 and a little, so at most once the prime too much.
        h0 = l.add(h0, five(l, l.shift_right::<42>(h2)));
        h2 = l.and(h2, l.splat(MASK42));
        // Whether h + 5 reaches 2^130, that is, h the prime; then h + 5 - 2^130 it
        // is.
        let carry = l.shift_right::<44>(l.add(h0, l.splat(5)));
        let carry = l.shift_right::<44>(l.add(h1, carry));
        let times = l.shift_right::<42>(l.add(h2, carry));
        h0 = l.add(h0, five(l, times));
        h1 = l.add(h1, l.shift_right::<44>(h0));
        h2 = l.add(h2, l.shift_right::<44>(h1));
        let (h0, h1) = (l.and(h0, mask), l.and(h1, mask));
        (
            l.or(h0, l.shift_left::<44>(h1)),
            // Bits 128 and 129 leave at the top.
            l.or(l.shift_right::<20>(h1), l.shift_left::<24>(h2)),
        )
    }

    #[inline(always)]
    fn number(self, [low, high, above]: [L::Long; 3]) -> [L::Long; 3] {
        let Self(l) = self;
        let [a, b, c] = self.element(low, high);
        [a, b, l.or(c, l.shift_left::<40>(above))]
    }

    #[inline(always)]
    fn sum(self, [a, b, c]: [L::Long; 3]) -> Number {
        let Self(l) = self;
        let low = u128::from(l.sum(a)) + (u128::from(l.sum(b)) << 44);
        with_top_limb::<40>(low, l.sum(c))
    }

    #[inline(always)]
    fn sum_fours(self, mut limbs: [L::Long; 3]) -> [L::Long; 3] {
        for limb in &mut limbs {
            *limb = self.0.sum_fours(*limb);
        }
        limbs
    }

    #[inline(always)]
    fn select(self, mask: &[u64; MAX_TAGS], a: [L::Long; 3], b: [L::Long; 3]) -> [L::Long; 3] {
        select_limbs(self.0, mask, a, b)
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
    type Products = [L::Long; 5];
    /// 128 - 104 = 24, in limb 4.
    const ABOVE: u64 = 1 << 24;
    #[inline(always)]
    fn longs(self) -> L {
        self.0
    }

    #[inline(always)]
    fn above(self) -> L::Long {
        self.0.unknown(Self::ABOVE)
    }

    #[inline(always)]
    fn above_where(self, bits: L::Long) -> L::Long {
        self.0.and(self.0.shift_left::<24>(bits), self.above())
    }

    #[inline(always)]
    fn element(self, low: L::Long, high: L::Long) -> [L::Long; 5] {
        let Self(l) = self;
        let mask = l.unknown(MASK26);
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
    fn plus(self, h: [L::Long; 5], block: (L::Long, L::Long), above: L::Long) -> [L::Long; 5] {
        let Self(l) = self;
        let [a, b, c, d, e] = self.element(block.0, block.1);
        [
            l.add(h[0], a),
            l.add(h[1], b),
            l.add(h[2], c),
            l.add(h[3], d),
            l.add(h[4], l.or(e, above)),
        ]
    }

    #[inline(always)]
    fn multiplier(self, r: [L::Long; 5]) -> Self::Multiplier {
        let Self(l) = self;
        let s = [five(l, r[1]), five(l, r[2]), five(l, r[3]), five(l, r[4])];
        let all = l.unknown(u64::MAX);
        let (mut factors, mut more) = (r, s);
        for limb in &mut factors {
            *limb = l.and(*limb, all);
        }
        for limb in &mut more {
            *limb = l.and(*limb, all);
        }
        (factors, more)
    }

    #[inline(always)]
    fn none(self) -> [L::Long; 5] {
        [self.0.splat(0); 5]
    }

    #[inline(always)]
    fn multiply_add(
        self,
        mut sum: [L::Long; 5],
        [h0, h1, h2, h3, h4]: [L::Long; 5],
        &([r0, r1, r2, r3, r4], [s1, s2, s3, s4]): &Self::Multiplier,
    ) -> [L::Long; 5] {
        let Self(l) = self;
        // Written out, not a loop, which the compiler would leave one. The factor h0
        // comes last: it is the last to be known.
        macro_rules! add {
            ($sum:expr, $($a:ident * $b:ident),+) => {
                $($sum = l.add($sum, l.multiply($a, $b));)+
            };
        }
        add!(sum[0], h4 * s1, h3 * s2, h2 * s3, h1 * s4, h0 * r0);
        add!(sum[1], h4 * s2, h3 * s3, h2 * s4, h1 * r0, h0 * r1);
        add!(sum[2], h4 * s3, h3 * s4, h2 * r0, h1 * r1, h0 * r2);
        add!(sum[3], h4 * s4, h3 * r0, h2 * r1, h1 * r2, h0 * r3);
        add!(sum[4], h4 * r0, h3 * r1, h2 * r2, h1 * r3, h0 * r4);
        sum
    }

    #[inline(always)]
    fn reduced(self, [d0, d1, d2, d3, d4]: [L::Long; 5]) -> [L::Long; 5] {
        let Self(l) = self;
        // Two chains of carries beside each other, from limb 0 and from limb 3.
        let mask = l.unknown(MASK26);
        let d1 = l.add(d1, l.shift_right::<26>(d0));
        let d4 = l.add(d4, l.shift_right::<26>(d3));
        let (h0, h3) = (l.and(d0, mask), l.and(d3, mask));
        let d2 = l.add(d2, l.shift_right::<26>(d1));
        let h0 = l.add(h0, five(l, l.shift_right::<26>(d4)));
        let (h1, h4) = (l.and(d1, mask), l.and(d4, mask));
        let h3 = l.add(h3, l.shift_right::<26>(d2));
        let h2 = l.and(d2, mask);
        let h1 = l.add(h1, l.shift_right::<26>(h0));
        let h4 = l.add(h4, l.shift_right::<26>(h3));
        [l.and(h0, mask), h1, h2, l.and(h3, mask), h4]
    }

    #[inline(always)]
    fn words(self, mut h: [L::Long; 5]) -> (L::Long, L::Long) {
        let Self(l) = self;
        let mask = l.unknown(MASK26);
        // Below 2^130 and a little, so at most once the prime too much.
        h[0] = l.add(h[0], five(l, l.shift_right::<26>(h[4])));
        h[4] = l.and(h[4], mask);
        // Whether h + 5 reaches 2^130, that is, h the prime; then h + 5 - 2^130 it
        // is.
        let mut carry = l.splat(5);
        for limb in h {
            carry = l.shift_right::<26>(l.add(limb, carry));
        }
        h[0] = l.add(h[0], five(l, carry));
        for limb in 0..4 {
            h[limb + 1] = l.add(h[limb + 1], l.shift_right::<26>(h[limb]));
            h[limb] = l.and(h[limb], mask);
        }
        let low = l.or(h[0], l.shift_left::<26>(h[1]));
        let high = l.or(l.shift_right::<12>(h[2]), l.shift_left::<14>(h[3]));
        (
            l.or(low, l.shift_left::<52>(h[2])),
            // Bits 128 and 129 leave at the top.
            l.or(high, l.shift_left::<40>(h[4])),
        )
    }

    #[inline(always)]
    fn number(self, [low, high, above]: [L::Long; 3]) -> [L::Long; 5] {
        let Self(l) = self;
        let [a, b, c, d, e] = self.element(low, high);
        [a, b, c, d, l.or(e, l.shift_left::<24>(above))]
    }

    #[inline(always)]
    fn sum(self, [a, b, c, d, e]: [L::Long; 5]) -> Number {
        let Self(l) = self;
        let low = u128::from(l.sum(a)) + (u128::from(l.sum(b)) << 26);
        let middle = (u128::from(l.sum(c)) << 52) + (u128::from(l.sum(d)) << 78);
        with_top_limb::<24>(low + middle, l.sum(e))
    }

    #[inline(always)]
    fn sum_fours(self, mut limbs: [L::Long; 5]) -> [L::Long; 5] {
        for limb in &mut limbs {
            *limb = self.0.sum_fours(*limb);
        }
        limbs
    }

    #[inline(always)]
    fn select(self, mask: &[u64; MAX_TAGS], a: [L::Long; 5], b: [L::Long; 5]) -> [L::Long; 5] {
        select_limbs(self.0, mask, a, b)
    }
}

/// Messages up to this much shorter than the longest of their group are tagged
/// beside it, in bytes: a lane that waits for its message to begin reads zeros,
/// and these are they.
const MAX_WAIT: usize = 1024;
static ZEROS: [u8; MAX_WAIT + 16 * WAYS] = [0; MAX_WAIT + 16 * WAYS];

/// How many lanes take a long text together in [`tags_of_long`].
const WAYS: usize = 4;

/// From byte 16 - n on, a mask of the first n of 16 bytes.
static FIRST: [u8; 32] = {
    let mut masks = [0; 32];
    masks
        .first_chunk_mut::<16>()
        .unwrap()
        .copy_from_slice(&[0xff; 16]);
    masks
};

/// From this length on, in bytes, a message alone goes into the lanes: the powers
/// of r cost as much as some 200 bytes. Two blocks for each lane at least.
pub(crate) const LONG: usize = 384;
const _: () = assert!(LONG >= 2 * 16 * MAX_TAGS / 2 && VERY_LONG >= 2 * 16 * MAX_TAGS);

/// A message whose tag is to be computed as an AEAD's: AAD and text, each padded with
/// zeros, and their lengths.
#[derive(Clone, Copy)]
pub(crate) struct Text {
    /// Where the text begins.
    pub(crate) start: *const u8,
    /// Its length, in bytes; not 0.
    pub(crate) len: u32,
    /// Where the AAD lies.
    pub(crate) aad: *const u8,
    /// Its length, in bytes; at most [`MAX_AAD`].
    pub(crate) aad_len: u32,
    /// Which of the keys and tags is its own.
    pub(crate) index: usize,
}

/// The longest AAD of a message that shares lanes, in bytes: two blocks, which holds
/// QUIC's short headers.
pub(crate) const MAX_AAD: usize = 32;

/// So many bytes behind AAD are read, as its last block is read whole.
pub(crate) const BEHIND_AAD: usize = 15;

impl Text {
    /// How many blocks of 16 bytes come before its last one.
    #[inline(always)]
    fn blocks_before_last(&self) -> usize {
        (self.len as usize - 1) / 16
    }
}

/// How many of `texts`, which go from the longest to the shortest, [`tags`] takes
/// at once in so many lanes. Where there is AAD, all have as many blocks, so that no
/// lane waits, and its accumulator can begin with what the AAD made of it.
pub(crate) fn group(texts: &[Text], lanes: usize) -> usize {
    let Some(longest) = texts.first() else {
        return 0;
    };
    let shortest = longest.len.saturating_sub(MAX_WAIT as u32 - 32);
    let texts = texts.iter().take(lanes);
    let beside = |text: &&Text| match (longest.aad_len, text.aad_len) {
        (0, 0) => text.len >= shortest,
        _ => text.blocks_before_last() == longest.blocks_before_last(),
    };
    texts.take_while(beside).count()
}

/// How to compute tags.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// One by one, by [`Tagger`].
    OneByOne,
    /// A text in each lane, by [`tags`].
    Lanes,
    /// A text in [`WAYS`] lanes, by [`tags_of_long`].
    LongInLanes,
}

/// How many of `texts`, which go from the longest to the shortest and of which there
/// is one, are best taken next, and how: in so many lanes, in which a step takes
/// `step` tenths of a step of one. (Measured, in tenths of a step of one: what comes
/// before the first step in lanes and after the last, 160; the powers of r for
/// `WAYS` lanes, 190 more; what comes before and after one message, 20; the powers of
/// r of a long one, 200.)
pub(crate) fn next(texts: &[Text], lanes: usize, step: usize) -> (usize, Way) {
    let len = texts[0].len as usize;
    let together = group(texts, lanes);
    let mut best = (together, Way::Lanes);
    let mut cost = 160 + len / 16 * step;
    if len >= LONG {
        let few = group(texts, lanes / WAYS);
        let of_few = 350 + len / (16 * WAYS) * step;
        if texts[few - 1].len as usize >= LONG && of_few * together < cost * few {
            (best, cost) = ((few, Way::LongInLanes), of_few);
        }
    }
    let alone = |text: &Text| match text.len as usize {
        len @ ..LONG => 10 * (len / 16 + 3),
        len => 200 + len / 16 * step / 8,
    };
    // First what they take at least: mostly that decides.
    let texts = &texts[..best.0];
    if best.0 * alone(&texts[best.0 - 1]) <= cost && texts.iter().map(alone).sum::<usize>() <= cost
    {
        best.1 = Way::OneByOne;
    }
    best
}

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
    debug_assert!(!texts.is_empty() && texts.len() == group(texts, F::Longs::LANES));
    debug_assert!(
        F::Longs::LANES > 1,
        "squares are no multipliers of `Radix64`"
    );
    let l = f.longs();
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
    let above = f.above();
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
        let (block, above) = unsafe { aad::<F, 1>(f, texts, more) };
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

/// The tags of up to `LANES` / [`WAYS`] texts, from the longest to the shortest, each
/// of [`LONG`] bytes at least, [`WAYS`] lanes for each.
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
pub(crate) unsafe fn tags_of_long<F: Field>(
    f: F,
    texts: &[Text],
    keys: &[[u8; 32]],
    tags: &mut [[u8; TAG_LEN]],
) {
    const ROW: usize = 16 * WAYS;
    /// The first and third lane of each four, and the first two.
    const EVEN: [u64; MAX_TAGS] = lanes_of_four([!0, 0, !0, 0]);
    const FIRST_TWO: [u64; MAX_TAGS] = lanes_of_four([!0, !0, 0, 0]);
    debug_assert!(!texts.is_empty() && texts.len() == group(texts, F::Longs::LANES / WAYS));
    let l = f.longs();
    // The last row is the last two whole blocks, what is behind them and the lengths.
    let rows = |text: &Text| (text.blocks_before_last() - 2).div_ceil(WAYS);
    let waiting = |text: &Text| rows(text) * WAYS - (text.blocks_before_last() - 2);
    let mut key_places = [ZEROS.as_ptr(); MAX_TAGS];
    let (mut last, mut masks) = (key_places, [FIRST.as_ptr(); MAX_TAGS]);
    let mut lengths = [[0_u64; 2]; MAX_TAGS / WAYS];
    let mut heads = [[0_u8; ROW]; MAX_TAGS / WAYS];
    for (i, text) in texts.iter().enumerate() {
        lengths[i] = [text.aad_len, text.len].map(|len| u64::from(len).to_le());
        let end = 16 * text.blocks_before_last();
        let head = &mut heads[i][16 * waiting(text)..];
        // SAFETY: the text is longer than a row.
        unsafe { core::ptr::copy_nonoverlapping(text.start, head.as_mut_ptr(), head.len()) };
        let lane = WAYS * i;
        key_places[lane..lane + WAYS].fill(keys[text.index].as_ptr());
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
    for lanes in first.as_chunks_mut::<WAYS>().0 {
        lanes[waiting(&texts[0])] = !0;
    }
    let mut h = f.zero();
    let aad_len = texts.iter().map(|text| text.aad_len).max().unwrap_or(0);
    for more in (0..aad_len.div_ceil(16) as usize).rev() {
        // SAFETY: the caller vouches for the AAD.
        let (block, above) = unsafe { aad::<F, WAYS>(f, texts, more) };
        h = f.step(h, block, above, &by_r);
    }
    let mut h = f.select(&first, h, f.zero());
    let mut places = [ZEROS.as_ptr(); MAX_TAGS / WAYS];
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
                    above_each[WAYS * i..][..WAYS].fill(F::ABOVE);
                }
                further = begun;
                while begun < texts.len() && rows(&texts[begun]) == total - $step {
                    places[begun] = heads[begun].as_ptr().wrapping_sub(ROW * $step);
                    let waiting = waiting(&texts[begun]);
                    above_each[WAYS * begun..][waiting..WAYS].fill(F::ABOVE);
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
    h = f.sum_fours(f.step(h, row, f.above(), &by_last));
    // SAFETY: as for r.
    let words = unsafe { finish(f, h, &key_places) };
    for (i, text) in texts.iter().enumerate() {
        tags[text.index] = wide(words[0][WAYS * i], words[1][WAYS * i]).to_le_bytes();
    }
}

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
    r: (Long<F>, Long<F>),
    pad: (Long<F>, Long<F>),
) -> [[u64; MAX_TAGS]; 2] {
    let l = f.longs();
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
            let above = f.above_where(begun);
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

/// Of each of `texts`, which have `WAYS` lanes each, the block of AAD that is followed by
/// `more`, and the bit above it; nothing in the lanes of those that have no more than
/// these.
///
/// # Safety
///
/// The AAD and [`BEHIND_AAD`] bytes behind it must be readable.
#[inline(always)]
unsafe fn aad<F: Field, const WAYS: usize>(
    f: F,
    texts: &[Text],
    more: usize,
) -> ((Long<F>, Long<F>), Long<F>) {
    let l = f.longs();
    let mut places = [ZEROS.as_ptr(); MAX_TAGS];
    let (mut masks, mut above) = (places, [0; MAX_TAGS]);
    let mut all = true;
    for (i, text) in texts.iter().enumerate() {
        let blocks = (text.aad_len as usize).div_ceil(16);
        all &= blocks > more;
        if blocks > more {
            let start = 16 * (blocks - more - 1);
            let len = (text.aad_len as usize - start).min(16);
            for lane in WAYS * i..WAYS * (i + 1) {
                places[lane] = text.aad.wrapping_add(start);
                masks[lane] = FIRST[16 - len..].as_ptr();
                above[lane] = F::ABOVE;
            }
        }
    }
    // SAFETY: the block begins within the AAD; it is 1 to 16 bytes, so that as many are
    // left of the masks.
    let (block, mask) = unsafe { (l.load(&places, 0), l.load(&masks, 0)) };
    let block = (l.and(block.0, mask.0), l.and(block.1, mask.1));
    // What was written lane by lane takes a while to be read.
    let above = match all {
        true => f.above(),
        false => l.per_lane(&above),
    };
    (block, above)
}

/// The same four values for all fours of lanes.
const fn lanes_of_four(values: [u64; WAYS]) -> [u64; MAX_TAGS] {
    let mut lanes = [0; MAX_TAGS];
    let mut lane = 0;
    while lane < MAX_TAGS {
        lanes[lane] = values[lane % WAYS];
        lane += 1;
    }
    lanes
}

/// The number r of the key in each lane (RFC 8439, section 2.5.1).
///
/// # Safety
///
/// There must be 32 bytes at each place.
#[inline(always)]
unsafe fn clamped_r<F: Field>(f: F, keys: &[*const u8; MAX_TAGS]) -> F::Element {
    // SAFETY: the caller vouches for them.
    clamped(f, unsafe { f.longs().load(keys, 0) })
}

/// The same of the first half of each key.
#[inline(always)]
fn clamped<F: Field>(f: F, (low, high): (Long<F>, Long<F>)) -> F::Element {
    let l = f.longs();
    f.element(
        l.and(low, l.splat(CLAMP[0])),
        l.and(high, l.splat(CLAMP[1])),
    )
}

/// The tags, in two words: the residue and the second half of the key in each lane.
///
/// # Safety
///
/// As for [`clamped_r`].
#[inline(always)]
unsafe fn finish<F: Field>(
    f: F,
    h: F::Element,
    keys: &[*const u8; MAX_TAGS],
) -> [[u64; MAX_TAGS]; 2] {
    // SAFETY: the caller vouches for them.
    padded_words(f, h, unsafe { f.longs().load(keys, 16) })
}

/// The same, with the second half of each key.
#[inline(always)]
fn padded_words<F: Field>(f: F, h: F::Element, pad: (Long<F>, Long<F>)) -> [[u64; MAX_TAGS]; 2] {
    let l = f.longs();
    let (low, high) = f.words(h);
    let sum = l.add(low, pad.0);
    let high = l.add(l.add(high, pad.1), l.carry(low, sum));
    let mut words = [[0; MAX_TAGS]; 2];
    l.store(sum, &mut words[0]);
    l.store(high, &mut words[1]);
    words
}

/// The second half of a one-time key, which is added in the end.
#[inline(always)]
fn pad(key: &[u8; 32]) -> u128 {
    let [low, high] = words(&key[16..]);
    u128::from(low) | u128::from(high) << 64
}

/// From here on the wider vectors are better for one message: their powers of r
/// take longer, their steps are fewer.
const VERY_LONG: usize = 4096;

/// Takes many blocks of 16 bytes of one message, [`LONG`] bytes at least, into its
/// accumulator. `narrow` is the field with half the lanes.
#[inline(always)]
pub(crate) fn long<N: Field, F: Field>(
    narrow: N,
    f: F,
    h: Number,
    blocks: &[[u8; 16]],
    r: &Multiplier,
) -> Number {
    if blocks.len() < VERY_LONG / 16 {
        over_lanes(narrow, h, blocks, r)
    } else {
        over_lanes(f, h, blocks, r)
    }
}

/// As [`long`]: at least two blocks for each lane.
///
/// Lane `i` of `n` takes in every `n`th block and steps by r^n; the last step is by
/// r^(n - i), which brings the lanes to the same power, and their sum is the
/// accumulator. The first step is padded in front, with lanes that have nothing to
/// take in yet.
#[inline(always)]
fn over_lanes<F: Field>(f: F, h: Number, blocks: &[[u8; 16]], r: &Multiplier) -> Number {
    let lanes = F::Longs::LANES;
    debug_assert!(blocks.len() >= 2 * lanes);
    debug_assert!(lanes > 1, "squares are no multipliers of `Radix64`");
    let l = f.longs();
    // Lane i holds r^(n - i).
    let mut powers = [[0; 3]; MAX_TAGS];
    let mut power = [r[0], r[1], 0];
    for place in powers[..lanes].iter_mut().rev() {
        *place = power;
        power = ALONE.multiply(power, r);
    }
    let by_one = f.multiplier(f.import(&powers));
    let all = f.splat(powers[0]);
    let by_all = f.multiplier(all);
    let by_all_twice = f.multiplier(f.multiply(all, &by_all));

    // Lanes before this one wait in the first step; it also gets what the
    // accumulator holds already.
    let waiting = (lanes - blocks.len() % lanes) % lanes;
    let mut start = [[0; 3]; MAX_TAGS];
    start[waiting] = h;
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

    // There are more steps, as there are two blocks for each lane.
    let above = f.above();
    let (_, others) = blocks.split_at(lanes - waiting);
    let last = others.len() / lanes - 1;
    let others = others.as_ptr().cast::<u8>();
    let mut step = 0;
    // SAFETY: the other blocks are a multiple of the lanes, and the lanes read all
    // of them, as many in each step as there are lanes.
    unsafe {
        while step + 1 < last {
            let runs = [
                l.load_run(others.add(16 * lanes * step)),
                l.load_run(others.add(16 * lanes * (step + 1))),
            ];
            h = f.two_steps(h, runs, [above; 2], &by_all, &by_all_twice);
            step += 2;
        }
        if step < last {
            h = f.step(h, l.load_run(others.add(16 * lanes * step)), above, &by_all);
        }
        h = f.step(h, l.load_run(others.add(16 * lanes * last)), above, &by_one);
    }
    powers = [[0; 3]; MAX_TAGS];
    zeroize::optimization_barrier(&powers);
    f.sum(h)
}

/// The tag of one message, taken in piece by piece. The key is wiped on drop.
pub(crate) struct Tagger {
    r: Multiplier,
    h: Number,
    pad: u128,
}

/// The field of one message at a time.
const ALONE: Radix64 = Radix64;

/// What multiplies there.
pub(crate) type Multiplier = <Radix64 as Field>::Multiplier;

/// Bit 128 there.
const ABOVE: u64 = Radix64::ABOVE;

/// The words of less than 16 bytes, padded with zeros: from two loads that overlap. (What
/// is put together in memory has to be there before it is read.)
#[inline]
fn short_words(bytes: &[u8]) -> [u64; 2] {
    /// `N` bytes at the front and at the end of no more than twice as many.
    fn ends<const N: usize>(bytes: &[u8]) -> Option<[u64; 2]> {
        let number = |chunk: &[u8; N]| {
            let number = chunk.iter().rev();
            number.fold(0, |number, &byte| number << 8 | u64::from(byte))
        };
        Some([number(bytes.first_chunk()?), number(bytes.last_chunk()?)])
    }
    let len = bytes.len() as u32;
    if let Some([front, back]) = ends::<8>(bytes) {
        return [front, back.unbounded_shr(8 * (16 - len))];
    }
    let [front, back] = match len {
        4.. => ends::<4>(bytes),
        2.. => ends::<2>(bytes),
        _ => ends::<1>(bytes),
    }
    .unwrap_or_default();
    let size = (1 << len.max(1).ilog2()) as u32;
    [front | back << (8 * len.saturating_sub(size)), 0]
}

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
    #[inline]
    fn whole<'p>(&mut self, set: Set, piece: &'p [u8]) -> &'p [u8] {
        let (blocks, rest) = piece.as_chunks();
        if set.tag_lanes() > 1 && piece.len() >= LONG {
            self.h = set.long(self.h, blocks, &self.r);
        } else {
            self.few(blocks);
        }
        rest
    }

    /// Takes in `piece`, padded with zeros to a multiple of 16 bytes, as
    /// ChaCha20-Poly1305 wants it (RFC 8439, section 2.8).
    #[inline]
    pub(crate) fn padded(&mut self, set: Set, piece: &[u8]) {
        let rest = self.whole(set, piece);
        if !rest.is_empty() {
            let [low, high] = short_words(rest);
            self.h = ALONE.step(self.h, (low, high), ABOVE, &self.r);
        }
    }

    /// Takes in whole blocks that are few.
    #[inline(always)]
    pub(crate) fn few(&mut self, blocks: &[[u8; 16]]) {
        for block in blocks {
            self.block(block, ABOVE);
        }
    }

    /// Takes in `piece`, the last of its message, without padding: the bit
    /// above a short block directly follows its bytes (RFC 8439, section 2.5).
    fn last(&mut self, set: Set, piece: &[u8]) {
        let rest = self.whole(set, piece);
        if !rest.is_empty() {
            let mut block = [0; 16];
            block[..rest.len()].copy_from_slice(rest);
            block[rest.len()] = 1;
            self.block(&block, 0);
        }
    }

    /// Begins to take in blocks, a few at a time.
    #[inline(always)]
    pub(crate) fn hashing<'t>(&'t self, blocks: &'t [[u8; TAG_LEN]]) -> Hashing<'t> {
        Hashing {
            h: self.h,
            r: &self.r,
            blocks,
        }
    }

    /// Goes on from where [`Hashing::done`] has come to.
    #[inline(always)]
    pub(crate) fn go_on(&mut self, h: Number) {
        self.h = h;
    }

    /// Takes in the lengths of AAD and text, the last block of an AEAD.
    #[inline(always)]
    pub(crate) fn lengths(&mut self, aad: u64, text: u64) {
        self.h = ALONE.step(self.h, (aad, text), ABOVE, &self.r);
    }

    /// The tag.
    #[inline(always)]
    pub(crate) fn finish(&self) -> [u8; TAG_LEN] {
        let (low, high) = ALONE.words(self.h);
        wide(low, high).wrapping_add(self.pad).to_le_bytes()
    }
}

/// Blocks of a text on their way into a [`Tagger`], a few at a time.
pub(crate) struct Hashing<'t> {
    h: Number,
    r: &'t Multiplier,
    /// Those that have not been taken in.
    blocks: &'t [[u8; TAG_LEN]],
}

impl Hashing<'_> {
    /// Takes in `N`, or as many as there are.
    #[inline(always)]
    pub(crate) fn take_in<const N: usize>(&mut self) {
        for _ in 0..N {
            let Some((block, rest)) = self.blocks.split_first() else {
                return;
            };
            let [low, high] = words(block);
            self.h = ALONE.step(self.h, (low, high), ABOVE, self.r);
            self.blocks = rest;
        }
    }

    /// The accumulator, and how many blocks have not been taken in.
    #[inline(always)]
    pub(crate) fn done(self) -> (Number, usize) {
        (self.h, self.blocks.len())
    }
}

impl Drop for Tagger {
    #[inline(always)]
    fn drop(&mut self) {
        self.r = [0; 3];
        self.h = [0; 3];
        self.pad = 0;
        zeroize::optimization_barrier(self);
    }
}

/// The tag of one message, without padding.
pub(crate) fn one(set: Set, key: &[u8; 32], message: &[u8]) -> [u8; TAG_LEN] {
    let mut tagger = Tagger::new(key);
    tagger.last(set, message);
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

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::Backend;
    use std::vec;

    /// Fewer texts than lanes, and long ones: no lane may read where nothing is.
    #[test]
    fn lanes_without_a_text() {
        let len = 1 << 22;
        let bytes = vec![3; len + TAG_LEN];
        let text = |index| Text {
            start: bytes.as_ptr(),
            len: len as u32,
            aad: bytes.as_ptr(),
            aad_len: 0,
            index,
        };
        for backend in Backend::ALL.iter().filter(|backend| backend.is_available()) {
            let set = backend.set();
            if set.tag_lanes() == 1 {
                continue;
            }
            let texts = [text(0), text(1), text(2)];
            let mut tags = [[0; TAG_LEN]; 3];
            // SAFETY: the text and the bytes of a tag behind it are there.
            unsafe { set.tags(&texts, &[[5; 32]; 3], &mut tags) };
            let mut one = Tagger::new(&[5; 32]);
            one.few(bytes[..len].as_chunks().0);
            one.lengths(0, len as u64);
            assert_eq!(tags, [one.finish(); 3], "{backend:?}");
        }
    }
}
