//! Secret keys: numbers modulo the order n of the group, and their digits.
//!
//! A number v of w bits stands for V = 2v - (2^w - 1), the sum of 2^i or -2^i for each bit that is 1
//! or 0. Cut into groups of four bits, each is an odd digit from -15 to 15: no digit is zero, and a
//! table has eight entries. libsecp256k1 represents scalars in this way (`ecmult_const_impl.h`); the
//! offsets here keep V small, see [`ladder_digits`].

use super::words::{self, Words, add, add_modulo, halve_modulo, multiply, subtract};
use core::array;

/// The order n of the group (SEC 2, section 2.4.1).
pub(crate) const N: Words = [
    0xbfd2_5e8c_d036_4141,
    0xbaae_dce6_af48_a03b,
    0xffff_ffff_ffff_fffe,
    u64::MAX,
];

/// 2^256 - 1 modulo n.
const ALL_ONES: Words = [0x402d_a173_2fc9_bebe, 0x4551_2319_50b7_5fc4, 1, 0];

/// n - 1 - lambda, where lambda is the cube root of 1 modulo n that belongs to [`BETA`].
///
/// [`BETA`]: super::point::BETA
const MINUS_ONE_MINUS_LAMBDA: Words = [
    0xe0cf_c810_b512_83ce,
    0xa880_b9fc_8ec7_39c2,
    0x5ad9_e3fd_77ed_9ba4,
    0xac9c_52b3_3fa3_cf1f,
];

/// Two short vectors of the lattice of all (a, b) with a + b lambda = 0 modulo n (Gallant, Lambert,
/// Vanstone 2001): (A1, -MINUS_B1) and (A2, A1).
const A1: Words = [0xe86c_90e4_9284_eb15, 0x3086_d221_a7d4_6bcd, 0, 0];
const MINUS_B1: Words = [0x6f54_7fa9_0abf_e4c3, 0xe443_7ed6_010e_8828, 0, 0];
const A2: Words = [0x57c1_108d_9d44_cfd8, 0x14ca_50f7_a8e2_f3f6, 1, 0];

/// 2^384 A1 / n and 2^384 MINUS_B1 / n, rounded.
const G1: Words = [
    0xe893_209a_45db_b031,
    0x3daa_8a14_71e8_ca7f,
    0xe86c_90e4_9284_eb15,
    0x3086_d221_a7d4_6bcd,
];
const G2: Words = [
    0x1571_b4ae_8ac4_7f71,
    0x2212_08ac_9df5_06c6,
    0x6f54_7fa9_0abf_e4c4,
    0xe443_7ed6_010e_8828,
];

/// Whether a number is a secret key: neither zero nor above the order. Takes the same time for all
/// numbers.
pub(crate) fn is_secret_key(bytes: &[u8; 32]) -> bool {
    let words = words::from_bytes(bytes);
    let (_, borrow) = subtract(&words, &N);
    borrow & !words::is_zero(&words) == 1
}

/// A digit: its magnitude is 2 `index` + 1, and it is negative if `is_negative` is all ones.
#[derive(Clone, Copy, Default)]
pub(crate) struct Digit {
    pub(crate) index: u64,
    pub(crate) is_negative: u64,
}

impl Digit {
    /// Group `number` of four bits of `v`.
    fn of(v: &Words, number: usize) -> Self {
        let bits = v[number / 16] >> (4 * (number % 16)) & 15;
        let is_negative = (bits >> 3).wrapping_sub(1);
        Self {
            index: (bits ^ is_negative) & 7,
            is_negative,
        }
    }
}

/// Groups of digits for [`ladder_digits`]: 132 bits.
pub(crate) const LADDER_GROUPS: usize = 33;

/// Groups of digits for [`comb_digits`]: 256 bits.
pub(crate) const COMB_GROUPS: usize = 64;

/// The digits of V1 and of V2 with `secret` = V1 + V2 lambda modulo n, the least significant first.
///
/// (secret - 1 - lambda) / 2 is split into s1 + s2 lambda, both between -2^128 and 2^128 (in fact
/// below 2^127.4), and v = s + 2^131 stands for V = 2s + 1. So both V are odd and |V| < 2^129: this is
/// what [`x_only`](super::ladder::x_only) needs to know which of its additions can be incomplete.
///
/// Not inlined: [`overwrite_frames`](crate::wipe::overwrite_frames) wipes what is left of the numbers.
#[inline(never)]
pub(crate) fn ladder_digits(secret: &[u8; 32]) -> [[Digit; LADDER_GROUPS]; 2] {
    let secret = words::from_bytes(secret);
    let s = halve_modulo(&add_modulo(&secret, &MINUS_ONE_MINUS_LAMBDA, &N), &N);
    let (c1, c2) = (round_shift_384(&s, &G1), round_shift_384(&s, &G2));
    // The parts are small, so their lower 256 bits are all of them.
    let minus = |a: &Words, b: &Words| subtract(a, b).0;
    let s1 = minus(&minus(&s, &low(&c1, &A1)), &low(&c2, &A2));
    let s2 = minus(&low(&c1, &MINUS_B1), &low(&c2, &A1));
    [s1, s2].map(|part| {
        let (v, _) = add(&part, &[0, 0, 1 << 3, 0]);
        array::from_fn(|group| Digit::of(&v, group))
    })
}

/// The digits of a number that is `secret` modulo n, the least significant first. Not inlined, either.
#[inline(never)]
pub(crate) fn comb_digits(secret: &[u8; 32]) -> [Digit; COMB_GROUPS] {
    let secret = words::from_bytes(secret);
    let v = halve_modulo(&add_modulo(&secret, &ALL_ONES, &N), &N);
    array::from_fn(|group| Digit::of(&v, group))
}

/// a b / 2^384, rounded.
fn round_shift_384(a: &Words, b: &Words) -> Words {
    let product = multiply(a, b);
    let (rounded, _) = add(
        &[product[6], product[7], 0, 0],
        &[product[5] >> 63, 0, 0, 0],
    );
    rounded
}

/// The lower 256 bits of a product.
fn low(a: &Words, b: &Words) -> Words {
    let [a, b, c, d, ..] = multiply(a, b);
    [a, b, c, d]
}
