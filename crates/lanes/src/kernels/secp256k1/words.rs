//! 256-bit numbers in general registers, as four little-endian words of 64 bits: constants, tables,
//! and what happens once per key. No function branches on a number.

/// A number below 2^256.
pub(crate) type Words = [u64; 4];

/// The field's prime p, 2^256 - 2^32 - 977 (SEC 2, section 2.4.1).
pub(crate) const P: Words = [0xffff_fffe_ffff_fc2f, u64::MAX, u64::MAX, u64::MAX];

/// 2^256 modulo p.
const FOLD: u64 = 0x1_0000_03d1;

pub(crate) const ZERO: Words = [0; 4];
pub(crate) const ONE: Words = [1, 0, 0, 0];

/// Reads a big-endian number.
pub(crate) fn from_bytes(bytes: &[u8; 32]) -> Words {
    let (words, _) = bytes.as_chunks();
    core::array::from_fn(|i| u64::from_be_bytes(words[3 - i]))
}

/// Writes a big-endian number.
pub(crate) fn to_bytes(words: &Words) -> [u8; 32] {
    let mut bytes = [0; 32];
    let (places, _) = bytes.as_chunks_mut();
    for (place, word) in places.iter_mut().zip(words.iter().rev()) {
        *place = word.to_be_bytes();
    }
    bytes
}

/// `a + b` modulo 2^256, and the carry: 0 or 1.
pub(crate) const fn add(a: &Words, b: &Words) -> (Words, u64) {
    let mut sum = ZERO;
    let mut carry = 0;
    let mut i = 0;
    while i < 4 {
        let wide = a[i] as u128 + b[i] as u128 + carry as u128;
        sum[i] = wide as u64;
        carry = (wide >> 64) as u64;
        i += 1;
    }
    (sum, carry)
}

/// `a - b` modulo 2^256, and the borrow: 0 or 1.
pub(crate) const fn subtract(a: &Words, b: &Words) -> (Words, u64) {
    let mut difference = ZERO;
    let mut borrow = 0;
    let mut i = 0;
    while i < 4 {
        let wide = (a[i] as u128).wrapping_sub(b[i] as u128 + borrow as u128);
        difference[i] = wide as u64;
        borrow = (wide >> 64) as u64 & 1;
        i += 1;
    }
    (difference, borrow)
}

/// `a` if `mask` is 0, `b` if it is all ones.
pub(crate) const fn select(mask: u64, a: &Words, b: &Words) -> Words {
    let mut selected = ZERO;
    let mut i = 0;
    while i < 4 {
        selected[i] = a[i] ^ (mask & (a[i] ^ b[i]));
        i += 1;
    }
    selected
}

/// A mask that is all ones if the number is zero.
pub(crate) fn is_zero(a: &Words) -> u64 {
    let any = a.iter().fold(0, |all, word| all | word);
    ((any | any.wrapping_neg()) >> 63).wrapping_sub(1)
}

/// `a` + 2^256 `high` modulo `modulus`, if that is less than twice the modulus.
pub(crate) const fn reduce_once(a: &Words, high: u64, modulus: &Words) -> Words {
    let (less, borrow) = subtract(a, modulus);
    // Too small: nothing to subtract.
    let keep = high.wrapping_sub(borrow) >> 63;
    select(keep.wrapping_neg(), &less, a)
}

/// `a + b` modulo `modulus`, if both are below it.
pub(crate) const fn add_modulo(a: &Words, b: &Words, modulus: &Words) -> Words {
    let (sum, carry) = add(a, b);
    reduce_once(&sum, carry, modulus)
}

/// `a / 2` modulo an odd `modulus`.
pub(crate) const fn halve_modulo(a: &Words, modulus: &Words) -> Words {
    let odd = (a[0] & 1).wrapping_neg();
    let (sum, carry) = add(a, &select(odd, &ZERO, modulus));
    let mut half = ZERO;
    let mut i = 0;
    while i < 4 {
        let above = if i == 3 { carry } else { sum[i + 1] };
        half[i] = sum[i] >> 1 | above << 63;
        i += 1;
    }
    half
}

/// The product.
pub(crate) const fn multiply(a: &Words, b: &Words) -> [u64; 8] {
    let mut product = [0_u64; 8];
    let mut i = 0;
    while i < 4 {
        let mut carry = 0_u64;
        let mut j = 0;
        while j < 4 {
            let wide = a[i] as u128 * b[j] as u128 + product[i + j] as u128 + carry as u128;
            product[i + j] = wide as u64;
            carry = (wide >> 64) as u64;
            j += 1;
        }
        product[i + 4] = carry;
        i += 1;
    }
    product
}

/// `low` + 2^256 `high` modulo p.
pub(crate) const fn reduce(low: &Words, high: &Words) -> Words {
    // 2^256 is a number of 33 bits modulo p.
    let mut sum = ZERO;
    let mut carry = 0_u128;
    let mut i = 0;
    while i < 4 {
        carry += low[i] as u128 + high[i] as u128 * FOLD as u128;
        sum[i] = carry as u64;
        carry >>= 64;
        i += 1;
    }
    let (sum, carry) = add(&sum, &{
        let wide = carry * FOLD as u128;
        [wide as u64, (wide >> 64) as u64, 0, 0]
    });
    let (sum, _) = add(&sum, &[carry * FOLD, 0, 0, 0]);
    reduce_once(&sum, 0, &P)
}

/// `a * b` modulo p.
#[cfg(test)]
pub(crate) fn multiply_modulo_p(a: &Words, b: &Words) -> Words {
    let [a, b, c, d, e, f, g, h] = multiply(a, b);
    reduce(&[a, b, c, d], &[e, f, g, h])
}

/// `a - b` modulo p, if both are below p.
pub(crate) const fn subtract_modulo_p(a: &Words, b: &Words) -> Words {
    let (difference, borrow) = subtract(a, b);
    let (wrapped, _) = add(&difference, &P);
    select(borrow.wrapping_neg(), &difference, &wrapped)
}

/// The limbs of `BITS` bits, the least significant first.
pub(crate) fn split<const BITS: usize, const LIMBS: usize>(words: &Words) -> [u64; LIMBS] {
    core::array::from_fn(|i| {
        let (word, shift) = (i * BITS / 64, i * BITS % 64);
        let above = words.get(word + 1).copied().unwrap_or(0);
        let wide = u128::from(above) << 64 | u128::from(words[word]);
        (wide >> shift) as u64 & ((1 << BITS) - 1)
    })
}

/// Joins limbs of `BITS` bits, which may be larger than that, modulo p. The number must be less
/// than 2^257.
pub(crate) fn join<const BITS: usize, const LIMBS: usize>(limbs: &[u64; LIMBS]) -> Words {
    let mut words = [0; 5];
    for (i, &limb) in limbs.iter().enumerate() {
        let (word, shift) = (i * BITS / 64, i * BITS % 64);
        let wide = u128::from(limb) << shift;
        let mut carry = 0;
        for (place, part) in
            words[word..]
                .iter_mut()
                .zip([wide as u64, (wide >> 64) as u64, 0, 0, 0])
        {
            let sum = u128::from(*place) + u128::from(part) + carry;
            *place = sum as u64;
            carry = sum >> 64;
        }
    }
    let [a, b, c, d, high] = words;
    reduce(&[a, b, c, d], &[high, 0, 0, 0])
}

/// 1 / a modulo p, for tests.
#[cfg(test)]
pub(crate) fn invert_modulo_p(a: &Words) -> Words {
    let (exponent, _) = subtract(&P, &[2, 0, 0, 0]);
    (0..256).rev().fold(ONE, |power, bit| {
        let square = multiply_modulo_p(&power, &power);
        match exponent[bit / 64] >> (bit % 64) & 1 {
            1 => multiply_modulo_p(&square, a),
            _ => square,
        }
    })
}
