//! AES and GHASH without dedicated instructions, in constant time. The algorithms are in
//! [`ctr`](super::ctr) and [`ghash`](super::ghash).
//!
//! ```text
//! plane p  = bit p of every byte of four blocks, 64 bits
//! SubBytes = a circuit of AND, XOR and NOT on the eight planes
//! a * b    = the product without carries, from integer products of bits four places apart
//! ```
//!
//! Techniques:
//!
//! 1. AES is bitsliced. The S-box is a circuit on whole planes, so no table is indexed by secrets.
//! 2. GHASH multiplies polynomials with integer multiplications. Only every fourth bit of each
//!    factor is kept at a time, so that the carries of a sum do not reach the next significant bit.
//!
//! Used on CPUs without AES and PCLMULQDQ.

use super::gcm::Detached;
use super::ghash::first_power;
use super::key::{self, AesKey, Block, GcmKey, POWERS, Powers, RoundKeys, SubWord};
use crate::job::{Header, Job, Outcome, difference, verdict_of};
use zeroize::Zeroizing;

/// Bit b + 4 c + 16 r of plane p is bit p of the byte in row r and column c of block b. In a
/// block that is byte r + 4 c (FIPS 197, section 3.4).
type Planes = [u64; 8];

/// How many blocks the planes hold.
const BLOCKS: usize = 4;

/// Converts four blocks to planes.
fn planes(blocks: &[Block; BLOCKS]) -> Planes {
    let mut planes = [0; 8];
    for byte in 0..8 {
        // The eight bytes whose bits are in byte `byte` of the planes.
        let (row, column) = (byte / 2, byte % 2 * 2);
        let bytes = core::array::from_fn(|k| blocks[k % 4][4 * (column + k / 4) + row]);
        let bits = transposed(u64::from_le_bytes(bytes)).to_le_bytes();
        for (plane, bits) in planes.iter_mut().zip(bits) {
            *plane |= u64::from(bits) << (8 * byte);
        }
    }
    planes
}

/// Converts planes to four blocks.
fn blocks(planes: &Planes) -> [Block; BLOCKS] {
    let mut blocks = [[0; 16]; BLOCKS];
    for byte in 0..8 {
        let (row, column) = (byte / 2, byte % 2 * 2);
        let bits = core::array::from_fn(|p| planes[p].to_le_bytes()[byte]);
        let bytes = transposed(u64::from_le_bytes(bits)).to_le_bytes();
        for (k, value) in bytes.into_iter().enumerate() {
            blocks[k % 4][4 * (column + k / 4) + row] = value;
        }
    }
    blocks
}

/// Transposes a matrix of eight by eight bits with one row per byte.
fn transposed(mut rows: u64) -> u64 {
    // Exchanges two corners of each submatrix of 2 by 2, then of 4 by 4, then of 8 by 8.
    for (mask, shift) in [
        (0x00aa_00aa_00aa_00aa, 7),
        (0x0000_cccc_0000_cccc, 14),
        (0x0000_0000_f0f0_f0f0, 28),
    ] {
        let differ = (rows ^ rows >> shift) & mask;
        rows ^= differ ^ differ << shift;
    }
    rows
}

/// Applies the S-box (FIPS 197, section 5.1.1) to every byte: the circuit of Boyar and Peralta ("A
/// small depth-16 circuit for the AES S-box", 2011), with the names used there. It is an inversion
/// in GF(2^8) between two linear maps.
#[rustfmt::skip]
fn sub_bytes(planes: &mut Planes) {
    let [x7, x6, x5, x4, x3, x2, x1, x0] = *planes;
    // The linear map to the basis of the inversion.
    let (y14, y13, y9, y8, t0) = (x3 ^ x5, x0 ^ x6, x0 ^ x3, x0 ^ x5, x1 ^ x2);
    let y1 = t0 ^ x7;
    let (y4, y12, y2, y5) = (y1 ^ x3, y13 ^ y14, y1 ^ x0, y1 ^ x6);
    let (y3, t1) = (y5 ^ y8, x4 ^ y12);
    let (y15, y20) = (t1 ^ x5, t1 ^ x1);
    let (y6, y10, y11) = (y15 ^ x7, y15 ^ t0, y20 ^ y9);
    let (y7, y17, y19, y16) = (x7 ^ y11, y10 ^ y11, y10 ^ y8, t0 ^ y11);
    let (y21, y18) = (y13 ^ y16, x0 ^ y16);
    // The inversion.
    let (t2, t7, t12) = (y12 & y15, y13 & y16, y9 & y11);
    let (t4, t6) = ((y3 & y6) ^ t2, (y4 & x7) ^ t2);
    let (t9, t11) = ((y5 & y1) ^ t7, (y2 & y7) ^ t7);
    let (t14, t16) = ((y14 & y17) ^ t12, (y8 & y10) ^ t12);
    let (t21, t22) = (t4 ^ t14 ^ y20, t6 ^ t16 ^ y19);
    let (t23, t24) = (t9 ^ t14 ^ y21, t11 ^ t16 ^ y18);
    let (t25, t26, t30) = (t21 ^ t22, t21 & t23, t23 ^ t24);
    let (t27, t31) = (t24 ^ t26, t22 ^ t26);
    let (t29, t33) = ((t25 & t27) ^ t22, (t31 & t30) ^ t24);
    let (t34, t35) = (t23 ^ t33, t27 ^ t33);
    let t36 = t24 & t35;
    let (t37, t38) = (t36 ^ t34, t27 ^ t36);
    let t40 = t25 ^ (t29 & t38);
    let (t41, t42, t43, t44) = (t40 ^ t37, t29 ^ t33, t29 ^ t40, t33 ^ t37);
    let t45 = t42 ^ t41;
    let (z0, z1, z2, z3, z4, z5) =
        (t44 & y15, t37 & y6, t33 & x7, t43 & y16, t40 & y1, t29 & y7);
    let (z6, z7, z8, z9, z10, z11) =
        (t42 & y11, t45 & y17, t41 & y10, t44 & y12, t37 & y3, t33 & y4);
    let (z12, z13, z14, z15, z16, z17) =
        (t43 & y13, t40 & y5, t29 & y2, t42 & y9, t45 & y14, t41 & y8);
    // The linear map back, combined with the affine map of the S-box.
    let (t46, t47, t48, t49) = (z15 ^ z16, z10 ^ z11, z5 ^ z13, z9 ^ z10);
    let (t50, t51, t52, t53) = (z2 ^ z12, z2 ^ z5, z7 ^ z8, z0 ^ z3);
    let (t54, t55, t58) = (z6 ^ z7, z16 ^ z17, z4 ^ t46);
    let (t56, t57, t59) = (z12 ^ t48, t50 ^ t53, z3 ^ t54);
    let (t60, t61, t62, t63, t64) = (t46 ^ t57, z14 ^ t57, t52 ^ t58, t49 ^ t58, z4 ^ t59);
    let (t65, t66) = (t61 ^ t62, z1 ^ t63);
    let (s0, s6, s7) = (t59 ^ t63, t56 ^ !t62, t48 ^ !t60);
    let (s3, s4, s5, t67) = (t53 ^ t66, t51 ^ t66, t47 ^ t65, t64 ^ t65);
    let (s1, s2) = (t64 ^ !s3, t55 ^ !t67);
    *planes = [s7, s6, s5, s4, s3, s2, s1, s0];
}

/// ShiftRows (FIPS 197, section 5.1.2): rotates row r by r columns.
fn shift_rows(planes: &mut Planes) {
    for plane in planes {
        let row = |r: u32| {
            let row = (*plane >> (16 * r)) & 0xffff;
            ((row >> (4 * r)) | (row << (16 - 4 * r)) & 0xffff) << (16 * r)
        };
        *plane = row(0) | row(1) | row(2) | row(3);
    }
}

/// MixColumns (FIPS 197, section 5.1.3): row r becomes 2 (r + next) + next + the two rows
/// after.
fn mix_columns(planes: &mut Planes) {
    let next = planes.map(|plane| plane.rotate_right(16));
    let sum: Planes = core::array::from_fn(|p| planes[p] ^ next[p]);
    // x^8 = x^4 + x^3 + x + 1.
    let [s0, s1, s2, s3, s4, s5, s6, s7] = sum;
    let twice = [s7, s0 ^ s7, s1, s2 ^ s7, s3 ^ s7, s4, s5, s6];
    *planes = core::array::from_fn(|p| twice[p] ^ next[p] ^ sum[p].rotate_right(32));
}

/// The round keys of each of four blocks, as planes. Wiped on drop.
struct PlaneKeys {
    keys: [Planes; 15],
    rounds: usize,
}

impl PlaneKeys {
    /// All four must have the same number of rounds.
    fn new(keys: [&RoundKeys; BLOCKS]) -> Self {
        let rounds = keys[0].rounds();
        let mut all = [[0; 8]; 15];
        for (round, planes_of_round) in all[..=rounds].iter_mut().enumerate() {
            *planes_of_round = planes(&keys.map(|key| key.keys[round]));
        }
        Self { keys: all, rounds }
    }

    /// Encrypts four blocks (FIPS 197, section 5.1).
    fn encrypt(&self, text: &[Block; BLOCKS]) -> [Block; BLOCKS] {
        let mut state = planes(text);
        add(&mut state, &self.keys[0]);
        for key in &self.keys[1..self.rounds] {
            sub_bytes(&mut state);
            shift_rows(&mut state);
            mix_columns(&mut state);
            add(&mut state, key);
        }
        sub_bytes(&mut state);
        shift_rows(&mut state);
        add(&mut state, &self.keys[self.rounds]);
        blocks(&state)
    }
}

impl Drop for PlaneKeys {
    fn drop(&mut self) {
        self.keys = [[0; 8]; 15];
        zeroize::optimization_barrier(&self.keys);
    }
}

fn add(state: &mut Planes, key: &Planes) {
    for (plane, key) in state.iter_mut().zip(key) {
        *plane ^= key;
    }
}

/// The S-box for [`key::expand`].
#[derive(Clone, Copy)]
struct Circuit;

impl SubWord for Circuit {
    fn sub_word(self, word: u32) -> u32 {
        let mut text = [[0; 16]; BLOCKS];
        text[0][..4].copy_from_slice(&word.to_le_bytes());
        let mut state = planes(&text);
        sub_bytes(&mut state);
        let [[a, b, c, d, ..], ..] = blocks(&state);
        u32::from_le_bytes([a, b, c, d])
    }
}

/// See [`key::expand`].
pub(crate) fn expand(key: &[u8], keys: &mut [Block; 15]) {
    key::expand(Circuit, key, keys);
}

/// Computes the powers of the hash key, in the order and form of [`GcmKey::powers`].
pub(crate) fn powers(keys: &RoundKeys, powers: &mut Powers) {
    let [h, ..] = PlaneKeys::new([keys; BLOCKS]).encrypt(&[[0; 16]; BLOCKS]);
    let first = first_power(u128::from_be_bytes(h));
    let mut power = first;
    for place in powers[..POWERS].iter_mut().rev() {
        *place = power;
        power = multiply(power, first);
    }
}

/// Returns the product of two polynomials of 64 bits over GF(2).
fn carry_less(a: u64, b: u64) -> u128 {
    const EVERY_FOURTH: u128 = 0x1111_1111_1111_1111_1111_1111_1111_1111;
    // Each part keeps one of every four bits, and the low factor has at most 15 of them. No sum of
    // products therefore reaches 16, and the last of its four bits is the sum without carries.
    let low = a & (u64::MAX >> 4);
    let part = |x: u64, class: u32| u128::from(x & (EVERY_FOURTH as u64) << class);
    let mut product = 0;
    for class in 0..4_u32 {
        let mut sum = 0;
        for i in 0..4 {
            sum ^= part(low, i) * part(b, (4 + class - i) % 4);
        }
        product ^= sum & (EVERY_FOURTH << class);
    }
    for bit in 60..64 {
        let all = (u128::from(a >> bit) & 1).wrapping_neg();
        product ^= u128::from(b) << bit & all;
    }
    product
}

/// Returns the product of a block and a power in the form of [`GcmKey::powers`] (SP 800-38D,
/// section 6.3).
#[allow(clippy::cast_possible_truncation, reason = "the low half is meant")]
fn multiply(a: u128, b: u128) -> u128 {
    /// x^63 + x^62 + x^57: the upper half of the field's polynomial, with its bits reversed.
    /// Its lower half is 1.
    const FOLD: u64 = 0xc200_0000_0000_0000;
    let (a_low, a_high) = (a as u64, (a >> 64) as u64);
    let (b_low, b_high) = (b as u64, (b >> 64) as u64);
    let low = carry_less(a_low, b_low);
    let high = carry_less(a_high, b_high);
    let mut middle = carry_less(a_low, b_high) ^ carry_less(a_high, b_low);
    // Adds multiples of the polynomial that clear the lowest 64 bits, and then the next 64.
    middle ^= low.rotate_left(64) ^ carry_less(low as u64, FOLD);
    high ^ middle.rotate_left(64) ^ carry_less(middle as u64, FOLD)
}

/// The state of GHASH (SP 800-38D, section 6.4).
struct Hash {
    power: u128,
    sum: u128,
}

impl Drop for Hash {
    fn drop(&mut self) {
        (self.power, self.sum) = (0, 0);
        zeroize::optimization_barrier(self);
    }
}

impl Hash {
    fn block(&mut self, block: Block) {
        self.sum = multiply(self.sum ^ u128::from_be_bytes(block), self.power);
    }

    /// Hashes bytes, padded with zeros to whole blocks.
    fn padded(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(16) {
            let mut block = [0; 16];
            block[..piece.len()].copy_from_slice(piece);
            self.block(block);
        }
    }
}

/// The keys and the nonce of one packet.
struct Packet<'k> {
    key: &'k GcmKey,
    cipher: PlaneKeys,
    nonce: [u8; 12],
}

impl<'k> Packet<'k> {
    fn new(keys: &[&'k GcmKey], job: &Job) -> Self {
        let key = keys[job.key];
        Self {
            key,
            cipher: PlaneKeys::new([&key.cipher; BLOCKS]),
            nonce: job.nonce,
        }
    }

    /// Returns the keystream blocks with counters from `first` on.
    fn keystream(&self, first: u32) -> Zeroizing<[Block; BLOCKS]> {
        let mut text = [[0; 16]; BLOCKS];
        for (block, number) in text.iter_mut().zip(0..) {
            block[..12].copy_from_slice(&self.nonce);
            block[12..].copy_from_slice(&first.wrapping_add(number).to_be_bytes());
        }
        Zeroizing::new(self.cipher.encrypt(&text))
    }

    /// Encrypts or decrypts the text, whose first counter is 2 (SP 800-38D, section 6.5).
    fn xor(&self, text: &mut [u8]) {
        for (piece, first) in text.chunks_mut(16 * BLOCKS).zip((2..).step_by(BLOCKS)) {
            let keystream = self.keystream(first);
            for (byte, mask) in piece.iter_mut().zip(keystream.as_flattened()) {
                *byte ^= mask;
            }
        }
    }

    /// Computes the tag of a packet from its AAD and its ciphertext.
    fn tag(&self, aad: &[u8], text: &[u8]) -> Block {
        let mut hash = Hash {
            power: self.key.powers[POWERS - 1],
            sum: 0,
        };
        hash.padded(aad);
        hash.padded(text);
        let lengths = (aad.len() as u128) << 67 | (text.len() as u128) << 3;
        hash.block(lengths.to_be_bytes());
        let keystream = self.keystream(1);
        (hash.sum ^ u128::from_be_bytes(keystream[0])).to_be_bytes()
    }
}

/// See [`crate::Kernels::gcm_seal`].
pub(crate) fn seal(bytes: &mut [u8], mut detached: Detached<'_>, keys: &[&GcmKey], jobs: &[Job]) {
    for job in jobs {
        let packet = Packet::new(keys, job);
        packet.xor(&mut bytes[job.text()]);
        let aad = detached.aad.unwrap_or(bytes);
        let tag = packet.tag(&aad[job.aad()], &bytes[job.text()]);
        match detached.tag {
            Some(ref mut destination) => **destination = tag,
            None => bytes[job.tag()].copy_from_slice(&tag),
        }
    }
}

/// See [`crate::Kernels::aes_mask_headers`].
pub(crate) fn mask_headers(bytes: &mut [u8], keys: &[&AesKey], headers: &[Header]) {
    for headers in headers.chunks(BLOCKS) {
        let mut samples = [(0, 0); BLOCKS];
        for (sample, header) in samples.iter_mut().zip(headers) {
            *sample = header.sample();
        }
        let mut chunk_masks = [0; BLOCKS];
        masks(bytes, keys, &samples[..headers.len()], &mut chunk_masks);
        for (header, mask) in headers.iter().zip(chunk_masks) {
            header.mask(bytes, mask);
        }
    }
}

/// See [`crate::Kernels::gcm_open`].
pub(crate) fn open(
    bytes: &mut [u8],
    detached: Detached<'_>,
    keys: &[&GcmKey],
    jobs: &[Job],
    differences: &mut [u64],
) {
    for (job, result) in jobs.iter().zip(differences) {
        let packet = Packet::new(keys, job);
        let aad = detached.aad.unwrap_or(bytes);
        let tag = packet.tag(&aad[job.aad()], &bytes[job.text()]);
        let sent = bytes[job.tag()].try_into().expect("16 bytes");
        *result = difference(u128::from_le_bytes(tag), u128::from_le_bytes(sent));
        if verdict_of(*result) == Outcome::Authentic {
            packet.xor(&mut bytes[job.text()]);
        }
    }
}

/// See [`crate::Kernels::aes_masks`].
pub(crate) fn masks(
    bytes: &[u8],
    keys: &[&AesKey],
    mut samples: &[(u32, u32)],
    mut masks: &mut [u64],
) {
    while let Some(&(first, _)) = samples.first() {
        // All keys of one call have the same number of rounds.
        let key = |&(index, _): &(u32, u32)| &keys[index as usize].0;
        let rounds = keys[first as usize].0.rounds();
        let next = samples.iter().take(BLOCKS);
        let count = next
            .take_while(|sample| key(sample).rounds() == rounds)
            .count();
        let four: [_; BLOCKS] = core::array::from_fn(|i| &samples[i.min(count - 1)]);
        let blocks = four.map(|&(_, offset)| *bytes[offset as usize..].first_chunk().expect("16"));
        let encrypted = PlaneKeys::new(four.map(key)).encrypt(&blocks);
        for (mask, block) in masks.iter_mut().zip(&encrypted[..count]) {
            *mask = u64::from_le_bytes(*block.first_chunk().expect("16 bytes"));
        }
        samples = &samples[count..];
        masks = &mut masks[count..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The S-box of every byte against its definition: the inverse, then the affine map.
    #[test]
    fn s_box_of_every_byte() {
        let product = |a: u8, b: u8| {
            let mut sum = 0_u16;
            for bit in 0..8 {
                sum ^= (u16::from(a) << bit) * u16::from(b >> bit & 1);
            }
            for bit in (8..15).rev() {
                sum ^= (0x11b << (bit - 8)) * (sum >> bit & 1);
            }
            sum as u8
        };
        for byte in 0..=255_u8 {
            let inverse = (0..=255).find(|&b| product(byte, b) == 1).unwrap_or(0);
            let expected = (0..5).fold(0x63, |sum, n| sum ^ inverse.rotate_left(n));
            let word = Circuit.sub_word(u32::from_le_bytes([byte; 4]));
            assert_eq!(word.to_le_bytes(), [expected; 4]);
        }
    }

    #[test]
    fn carry_less_matches_bit_by_bit() {
        let mut a = 0x0123_4567_89ab_cdef_u64;
        for round in 0..1000_u32 {
            let b =
                a.wrapping_mul(0x9e37_79b9_7f4a_7c15) | u64::from(round % 3 == 0).wrapping_neg();
            let slow = (0..64).fold(0, |sum, bit| {
                sum ^ ((u128::from(b) << bit) * u128::from(a >> bit & 1))
            });
            assert_eq!(carry_less(a, b), slow);
            a = if round % 5 == 0 {
                u64::MAX
            } else {
                b.rotate_left(round) ^ u64::from(round)
            };
        }
    }
}
