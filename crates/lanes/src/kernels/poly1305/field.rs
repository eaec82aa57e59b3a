//! Arithmetic modulo 2^130 - 5, one number per lane.

use crate::vector::{MAX_TAGS, U64Lanes};

/// The bits of r that clamping keeps (RFC 8439, section 2.5.1), as two little-endian words.
pub(super) const CLAMP: [u64; 2] = [0x0fff_fffc_0fff_ffff, 0x0fff_fffc_0fff_fffc];

/// A number in three little-endian 64-bit words, the third at most 7. The common format for passing
/// numbers between fields.
pub(crate) type Number = [u64; 3];

/// Arithmetic modulo 2^130 - 5, one number per lane.
pub(crate) trait Field: Copy {
    /// The vectors that hold the limbs, one number per lane.
    type Lanes: U64Lanes;

    /// Numbers in limbs, partly reduced: slightly above 2^130 at most.
    type Element: Copy;

    /// Numbers to multiply by, and multiples of their limbs.
    type Multiplier: Copy;

    /// A sum of at most [`MAX_PRODUCTS`](Field::MAX_PRODUCTS) products, not reduced.
    type Products: Copy;

    /// Maximum number of products in a sum before it must be reduced.
    const MAX_PRODUCTS: usize;

    /// Bit 128, which is added to a whole block, in the limb that contains it.
    const HIBIT: u64;

    /// The vectors of this field.
    fn lanes(self) -> Self::Lanes;

    /// [`Field::HIBIT`] in every lane.
    #[inline(always)]
    fn hibit(self) -> Limb<Self> {
        self.lanes().splat(Self::HIBIT)
    }

    /// [`Field::HIBIT`] in the lanes of `bits` whose lowest bit is set, 0 in the others.
    fn hibit_where(self, bits: Limb<Self>) -> Limb<Self>;

    /// Numbers of 128 bits from their low and high halves.
    fn element(self, low: Limb<Self>, high: Limb<Self>) -> Self::Element;

    /// `h` + block. The block has 16 bytes per lane, given as two little-endian words, and
    /// `hibit`, which is [`Field::HIBIT`] or 0.
    fn add_block(
        self,
        h: Self::Element,
        block: (Limb<Self>, Limb<Self>),
        hibit: Limb<Self>,
    ) -> Self::Element;

    /// Prepares numbers to multiply by.
    fn multiplier(self, element: Self::Element) -> Self::Multiplier;

    /// A sum of no products.
    fn no_products(self) -> Self::Products;

    /// `sum` + `a` * `r`.
    fn multiply_add(
        self,
        sum: Self::Products,
        a: Self::Element,
        r: &Self::Multiplier,
    ) -> Self::Products;

    /// The sum, partly reduced.
    fn reduced(self, sum: Self::Products) -> Self::Element;

    /// The low 128 bits of the residue, fully reduced, in two words.
    fn words(self, h: Self::Element) -> (Limb<Self>, Limb<Self>);

    /// Numbers from three words, as in [`Number`].
    fn number(self, words: [Limb<Self>; 3]) -> Self::Element;

    /// The same number in every lane.
    #[inline(always)]
    fn splat(self, [low, high, top]: Number) -> Self::Element {
        let l = self.lanes();
        self.number([l.splat(low), l.splat(high), l.splat(top)])
    }

    /// One number for each lane.
    #[inline(always)]
    fn import(self, numbers: &[Number; MAX_TAGS]) -> Self::Element {
        self.number(by_word(self.lanes(), numbers))
    }

    /// The sum of the numbers in all lanes.
    fn sum(self, element: Self::Element) -> Number;

    /// Returns, in every lane, the sum of the group of four lanes that it belongs to; see
    /// [`U64Lanes::sum_fours`]. The result may only be passed to [`Field::words`].
    fn sum_fours(self, element: Self::Element) -> Self::Element;

    /// `a` in the lanes where `mask` is all ones, `b` where it is zero.
    fn select(self, mask: &[u64; MAX_TAGS], a: Self::Element, b: Self::Element) -> Self::Element;

    /// `a` * `r`.
    #[inline(always)]
    fn multiply(self, a: Self::Element, r: &Self::Multiplier) -> Self::Element {
        self.reduced(self.multiply_add(self.no_products(), a, r))
    }

    /// (`h` + block) * `r`.
    #[inline(always)]
    fn step(
        self,
        h: Self::Element,
        block: (Limb<Self>, Limb<Self>),
        hibit: Limb<Self>,
        r: &Self::Multiplier,
    ) -> Self::Element {
        self.multiply(self.add_block(h, block, hibit), r)
    }

    /// Two steps at once: (`h` + the first block) * `square` + the second block * `r`. In a single
    /// step each instruction waits for the previous one; here only half of them do.
    #[inline(always)]
    fn two_steps(
        self,
        h: Self::Element,
        blocks: [(Limb<Self>, Limb<Self>); 2],
        hibit: [Limb<Self>; 2],
        r: &Self::Multiplier,
        square: &Self::Multiplier,
    ) -> Self::Element {
        let second = self.add_block(self.zero(), blocks[1], hibit[1]);
        let sum = self.multiply_add(self.no_products(), second, r);
        let first = self.add_block(h, blocks[0], hibit[0]);
        self.reduced(self.multiply_add(sum, first, square))
    }

    /// Four steps at once, like [`two_steps`](Field::two_steps): one reduction for four blocks.
    /// `powers` are r, r^2, r^3 and r^4. Requires that a sum may have that many products.
    #[inline(always)]
    fn four_steps(
        self,
        h: Self::Element,
        [first, second, third, fourth]: [(Limb<Self>, Limb<Self>); 4],
        hibit: Limb<Self>,
        powers: [&Self::Multiplier; 4],
    ) -> Self::Element {
        debug_assert!(Self::MAX_PRODUCTS >= 4);
        let zero = self.zero();
        let later = [powers[1], powers[0]];
        let sum = self.add_two(self.no_products(), [third, fourth], hibit, later);
        let sum = self.multiply_add(sum, self.add_block(zero, second, hibit), powers[2]);
        let first = self.add_block(h, first, hibit);
        self.reduced(self.multiply_add(sum, first, powers[3]))
    }

    /// `sum` + the first block * the first of `powers` + the second block * the second.
    #[inline(always)]
    fn add_two(
        self,
        sum: Self::Products,
        blocks: [(Limb<Self>, Limb<Self>); 2],
        hibit: Limb<Self>,
        powers: [&Self::Multiplier; 2],
    ) -> Self::Products {
        let zero = self.zero();
        let sum = self.multiply_add(sum, self.add_block(zero, blocks[1], hibit), powers[1]);
        self.multiply_add(sum, self.add_block(zero, blocks[0], hibit), powers[0])
    }

    /// Zero in every lane.
    #[inline(always)]
    fn zero(self) -> Self::Element {
        let zero = self.lanes().splat(0);
        self.element(zero, zero)
    }
}

/// One vector of limbs of a field.
pub(super) type Limb<F> = <<F as Field>::Lanes as U64Lanes>::Vector;

/// [`Field::select`] for numbers of `LIMBS` limbs.
#[inline(always)]
pub(super) fn select_limbs<L: U64Lanes, const LIMBS: usize>(
    l: L,
    mask: &[u64; MAX_TAGS],
    mut a: [L::Vector; LIMBS],
    b: [L::Vector; LIMBS],
) -> [L::Vector; LIMBS] {
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

/// Returns `low` + 2^64 `high` + 2^128 `top`, partly reduced: the bits from 2^130 on are multiplied
/// by 5 and added at the bottom.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "the low half is meant")]
pub(super) fn reduced(low: u64, high: u64, top: u64) -> Number {
    let more = 5 * (top >> 2);
    let (h, carry) = wide(low, high).overflowing_add(more.into());
    [h as u64, (h >> 64) as u64, (top & 3) + u64::from(carry)]
}

/// Returns `low` + 2^(128 - `N`) `limb`, partly reduced. `limb` must be below 2^62.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "the low half is meant")]
pub(super) fn with_top_limb<const N: u32>(low: u128, limb: u64) -> Number {
    let (low, carry) = low.overflowing_add(u128::from(limb) << (128 - N));
    reduced(
        low as u64,
        (low >> 64) as u64,
        (limb >> N) + u64::from(carry),
    )
}

/// Returns the numbers of the lanes as three vectors, one per word.
#[inline(always)]
pub(super) fn by_word<L: U64Lanes>(l: L, numbers: &[Number; MAX_TAGS]) -> [L::Vector; 3] {
    let mut words = [[0; MAX_TAGS]; 3];
    for (lane, number) in numbers.iter().enumerate() {
        [words[0][lane], words[1][lane], words[2][lane]] = *number;
    }
    let vectors = [
        l.per_lane(&words[0]),
        l.per_lane(&words[1]),
        l.per_lane(&words[2]),
    ];
    // The numbers may be powers of r, which are secret.
    words = [[0; MAX_TAGS]; 3];
    zeroize::optimization_barrier(&words);
    vectors
}

/// 5 `a`.
#[inline(always)]
pub(super) fn times_five<L: U64Lanes>(l: L, a: L::Vector) -> L::Vector {
    l.add(l.shift_left::<2>(a), a)
}

/// Returns the number r of the one-time key in each lane (RFC 8439, section 2.5.1).
///
/// # Safety
///
/// 32 bytes must be readable at each of the first `LANES` pointers.
#[inline(always)]
pub(super) unsafe fn clamped_r<F: Field>(f: F, keys: &[*const u8; MAX_TAGS]) -> F::Element {
    // SAFETY: the caller guarantees that 32 bytes are readable; this reads the first 16.
    clamped(f, unsafe { f.lanes().load(keys, 0) })
}

/// Like [`clamped_r`], from the first half of each key.
#[inline(always)]
pub(super) fn clamped<F: Field>(f: F, (low, high): (Limb<F>, Limb<F>)) -> F::Element {
    let l = f.lanes();
    f.element(
        l.and(low, l.splat(CLAMP[0])),
        l.and(high, l.splat(CLAMP[1])),
    )
}

/// Returns the tags in two words: the residue plus the second half of the key in each lane.
///
/// # Safety
///
/// As for [`clamped_r`].
#[inline(always)]
pub(super) unsafe fn finish<F: Field>(
    f: F,
    h: F::Element,
    keys: &[*const u8; MAX_TAGS],
) -> [[u64; MAX_TAGS]; 2] {
    // SAFETY: the caller guarantees that 32 bytes are readable; this reads the last 16.
    padded_words(f, h, unsafe { f.lanes().load(keys, 16) })
}

/// Like [`finish`], from the second half of each key.
#[inline(always)]
pub(super) fn padded_words<F: Field>(
    f: F,
    h: F::Element,
    pad: (Limb<F>, Limb<F>),
) -> [[u64; MAX_TAGS]; 2] {
    let l = f.lanes();
    let (low, high) = f.words(h);
    let sum = l.add(low, pad.0);
    let high = l.add(l.add(high, pad.1), l.carry(low, sum));
    let mut words = [[0; MAX_TAGS]; 2];
    l.store(sum, &mut words[0]);
    l.store(high, &mut words[1]);
    words
}
