//! GHASH (NIST SP 800-38D, section 6.4).
//!
//! ```text
//! H = AES(zeros)
//! y = 0
//! for each block of 16 bytes:  y = (y ^ block) * H,  in GF(2^128) (section 6.3)
//! ```
//!
//! Optimisations:
//!
//! 1. The blocks of a group are multiplied by different powers of H, and their products are added
//!    up before they are reduced: y = (y ^ b1) * H^n ^ b2 * H^(n - 1) ^ ... ^ bn * H.
//! 2. The field's bits are in reverse order. The bytes of blocks are reversed so that they are
//!    numbers, and the powers include a factor x; see [`GcmKey::powers`].
//! 3. Karatsuba's method saves one of four multiplications where these are slow.

use super::ctr::encrypt;
use super::key::{Block, GcmKey, POWERS, Powers, RoundKeys};
use crate::vector::{AesBlocks, Consecutive};

/// A sum of unreduced products, a polynomial of 256 bits in each lane. `low` and `high` are the
/// products of the low and of the high halves. `middle` is the sum of the two mixed products or,
/// with Karatsuba's method, the product of the sums of halves, which saves one multiplication.
// Not an array: with an array, AES-GCM took 1 to 4 % longer on a Zen 4 with AVX2.
#[derive(Clone, Copy)]
pub(super) struct Sum<V> {
    low: V,
    high: V,
    middle: V,
}

impl<V: Copy> Sum<V> {
    #[inline(always)]
    pub(super) fn zero<B: AesBlocks<Vector = V>>(b: B) -> Self {
        Self {
            low: b.zero(),
            high: b.zero(),
            middle: b.zero(),
        }
    }

    /// Adds the product of blocks, whose bytes are reversed, and powers.
    #[inline(always)]
    pub(super) fn add<B: AesBlocks<Vector = V>>(&mut self, b: B, blocks: V, by: Factors<V>) {
        let sum = [self.low, self.high, self.middle];
        [self.low, self.high, self.middle] = b.add_products(sum, blocks, by.powers, by.halves);
    }

    /// Adds the product of blocks, whose bytes are reversed, and vector `I` of consecutive powers.
    #[inline(always)]
    pub(super) fn add_consecutive<B: AesBlocks<Vector = V>, const I: usize>(
        &mut self,
        b: B,
        blocks: V,
        by: Consecutive<'_>,
    ) {
        let sum = [self.low, self.high, self.middle];
        [self.low, self.high, self.middle] = b.add_products_from::<I>(sum, blocks, by);
    }

    /// Like [`add_consecutive`](Self::add_consecutive), with a round of AES on `states`.
    #[inline(always)]
    pub(super) fn add_in_round<B: AesBlocks<Vector = V>, const K: usize, const I: usize>(
        &mut self,
        b: B,
        states: &mut [V; K],
        round_key: &Block,
        blocks: V,
        by: Consecutive<'_>,
    ) {
        let sum = [self.low, self.high, self.middle];
        [self.low, self.high, self.middle] =
            b.round_and_products::<K, I>(states, round_key, sum, blocks, by);
    }

    /// Returns the sum reduced to blocks (SP 800-38D, section 6.3), whose bytes are reversed.
    #[inline(always)]
    pub(super) fn reduced<B: AesBlocks<Vector = V>>(self, b: B) -> V {
        self.after_second_fold(b, self.after_first_fold(b))
    }

    /// The first half of [`reduced`](Self::reduced): adds a multiple of the polynomial that clears the
    /// lowest 64 bits, and returns the 128 bits in the middle.
    #[inline(always)]
    pub(super) fn after_first_fold<B: AesBlocks<Vector = V>>(self, b: B) -> V {
        // The middle products overlap the upper half of `low` and the lower half of `high`.
        let middle = b.xor(self.middle, fold(b, self.low));
        match B::KARATSUBA {
            true => b.xor(middle, b.xor(self.low, self.high)),
            false => middle,
        }
    }

    /// The second half, which clears the next 64 bits, given the 128 bits in the middle.
    #[inline(always)]
    pub(super) fn after_second_fold<B: AesBlocks<Vector = V>>(self, b: B, middle: V) -> V {
        b.xor(self.high, fold(b, middle))
    }
}

/// Returns what a multiple of the polynomial that clears the lower half of `vector` adds above it.
#[inline(always)]
fn fold<B: AesBlocks>(b: B, vector: B::Vector) -> B::Vector {
    /// x^63 + x^62 + x^57: the upper half of the field's polynomial, with its bits reversed. Its
    /// lower half is 1.
    const FOLD: u128 = 0xc200_0000_0000_0000;
    let product = b.carry_less::<0x00>(vector, b.splat_number(&FOLD));
    b.xor(b.swap(vector), product)
}

/// Powers of the hash key to multiply by, and for Karatsuba's method the sums of their halves.
#[derive(Clone, Copy)]
pub(super) struct Factors<V> {
    powers: V,
    halves: V,
}

impl<V: Copy> Factors<V> {
    /// Creates factors from powers, and computes the sums of their halves.
    #[inline(always)]
    fn new<B: AesBlocks<Vector = V>>(b: B, powers: V) -> Self {
        let halves = b.xor(powers, b.swap(powers));
        Self { powers, halves }
    }
}

/// Returns powers `n`, `n` - 1 and so on of the hash key.
#[inline(always)]
pub(super) fn consecutive<B: AesBlocks>(_: B, key: &GcmKey, n: usize) -> Consecutive<'_> {
    Consecutive {
        powers: key.powers_from(n),
        halves: match B::KARATSUBA {
            true => key.halves_from(n),
            false => &[],
        },
    }
}

/// Returns power `n` of the hash key in all lanes.
#[inline(always)]
pub(super) fn power_of<B: AesBlocks>(b: B, key: &GcmKey, n: usize) -> Factors<B::Vector> {
    Factors {
        powers: b.splat_number(&key.powers_from(n)[0]),
        halves: match B::KARATSUBA {
            true => b.splat_number(&key.halves_from(n)[0]),
            false => b.zero(),
        },
    }
}

/// Returns the first power of the hash key in the form of [`GcmKey::powers`]. `hash_key` is the
/// block as a big-endian number.
pub(crate) fn first_power(hash_key: u128) -> u128 {
    let carried = (hash_key >> 127) * 0xc200_0000_0000_0000_0000_0000_0000_0001;
    (hash_key << 1) ^ carried
}

/// Computes the powers of the hash key, in the order and form of [`GcmKey::powers`].
#[inline(always)]
pub(crate) fn powers<B: AesBlocks>(b: B, keys: &RoundKeys, powers: &mut Powers) {
    const { assert!(POWERS.is_multiple_of(B::LANES)) };
    let mut states = [b.zero()];
    encrypt(b, keys, &mut states);
    let hash_key = b.sum(b.only_lane(states[0], 0)).swap_bytes();
    // The powers of the last vector are computed one by one, and each vector before it from the
    // one after it.
    powers[POWERS - 1] = first_power(hash_key);
    let mut factor = b.splat_number(&powers[POWERS - 1]);
    for n in 2..=B::LANES {
        let power = product(b, b.splat_number(&powers[POWERS - n + 1]), factor);
        powers[POWERS - n] = b.sum(b.only_lane(power, 0));
    }
    factor = b.splat_number(&powers[POWERS - B::LANES]);
    let mut vector = b.numbers(&powers[POWERS - B::LANES..]);
    let (vectors, _) = powers.split_at_mut(POWERS - B::LANES);
    for place in vectors.rchunks_exact_mut(B::LANES) {
        vector = product(b, vector, factor);
        // SAFETY: the chunk is as long as a vector.
        unsafe { b.store(vector, place.as_mut_ptr().cast()) };
    }
}

#[inline(always)]
fn product<B: AesBlocks>(b: B, blocks: B::Vector, powers: B::Vector) -> B::Vector {
    let mut sum = Sum::zero(b);
    sum.add(b, blocks, Factors::new(b, powers));
    sum.reduced(b)
}
