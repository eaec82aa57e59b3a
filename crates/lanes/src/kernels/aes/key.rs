//! AES and GHASH keys, in the form that the kernels need.

use crate::vector::AesBlocks;

/// A block of AES: 16 bytes.
pub(crate) type Block = [u8; 16];

/// How many vectors are encrypted together.
pub(super) const GROUP: usize = 8;

/// Number of powers of the hash key in a [`GcmKey`]: one for each block of the longest last group,
/// which has [`GROUP`] + 1 vectors of 4 lanes, and for a vector of AAD before it.
pub(crate) const POWERS: usize = 4 * (GROUP + 2);

/// The powers, followed by three zeros, because a vector of powers may extend beyond the last one.
/// The blocks in those lanes are zeros.
pub(crate) type Powers = [u128; POWERS + 3];

/// Number of powers that have the sums of their halves stored with them: Karatsuba's method is used
/// with at most 2 lanes.
pub(super) const HALVED: usize = 2 * (GROUP + 2);

/// Round keys of AES-128 or AES-256 (FIPS 197, section 5.2). Wiped on drop.
#[repr(align(16))]
pub(crate) struct RoundKeys {
    /// 11 or 15 round keys, and zeros.
    pub(crate) keys: [Block; 15],
    rounds: u8,
}

impl RoundKeys {
    /// Computes the round keys of a key of 16 or 32 bytes with `expand`.
    pub(crate) fn new<const N: usize>(
        key: &[u8; N],
        expand: impl FnOnce(&[u8], &mut [Block; 15]),
    ) -> Self {
        const { assert!(N == 16 || N == 32) };
        let mut keys = Self {
            keys: [[0; 16]; 15],
            rounds: const { (N / 4 + 6) as u8 },
        };
        expand(key, &mut keys.keys);
        keys
    }

    /// Returns the number of rounds: 10 or 14.
    #[inline(always)]
    pub(crate) fn rounds(&self) -> usize {
        self.rounds.into()
    }
}

impl Drop for RoundKeys {
    fn drop(&mut self) {
        self.keys = [[0; 16]; 15];
        zeroize::optimization_barrier(&self.keys);
    }
}

/// A key for AES-128-GCM or AES-256-GCM (NIST SP 800-38D), prepared for any
/// [`Backend`](crate::Backend): round keys, powers of the hash key and the sums of their halves,
/// 1,280 bytes. Created with [`GcmKey::aes128`] or [`GcmKey::aes256`]; cannot fail. Wiped on drop.
pub struct GcmKey {
    pub(crate) cipher: RoundKeys,
    /// Powers [`POWERS`] to 1 of the hash key H, in this order, so that consecutive blocks are
    /// multiplied by consecutive powers. A power is stored as the big-endian number of its block,
    /// times x. In that number the bits of the polynomial are reversed, so the product of two such
    /// numbers has all bits one place too low; the factor x compensates for that.
    pub(crate) powers: Powers,
    /// For the last [`HALVED`] powers, in the same order, the sums of their two halves; then a
    /// zero.
    halves: [u128; HALVED + 1],
}

impl GcmKey {
    /// Prepares a key from its round keys; `compute` computes the powers.
    // Inlined, so that no more copies of the key are left on the stack.
    #[inline(always)]
    pub(crate) fn with_powers(
        cipher: RoundKeys,
        compute: impl FnOnce(&RoundKeys, &mut Powers),
    ) -> Self {
        let mut key = Self {
            cipher,
            powers: [0; POWERS + 3],
            halves: [0; HALVED + 1],
        };
        compute(&key.cipher, &mut key.powers);
        for (sum, power) in key.halves.iter_mut().zip(&key.powers[POWERS - HALVED..]) {
            *sum = (power ^ power >> 64) & u128::from(u64::MAX);
        }
        key
    }

    /// Returns power `n` of the hash key, and those after it.
    #[inline(always)]
    pub(super) fn powers_from(&self, n: usize) -> &[u128] {
        &self.powers[POWERS - n..]
    }

    /// Returns the sums of their halves. `n` must be at most [`HALVED`].
    #[inline(always)]
    pub(super) fn halves_from(&self, n: usize) -> &[u128] {
        &self.halves[HALVED - n..]
    }
}

impl Drop for GcmKey {
    fn drop(&mut self) {
        self.powers = [0; POWERS + 3];
        self.halves = [0; HALVED + 1];
        zeroize::optimization_barrier(self);
    }
}

/// An AES-128 or AES-256 key (FIPS 197) for QUIC's header protection, prepared for any
/// [`Backend`](crate::Backend). Created with [`AesKey::aes128`] or [`AesKey::aes256`]; cannot fail.
/// Wiped on drop.
pub struct AesKey(pub(crate) RoundKeys);

/// The operation that [`expand`] needs from an instruction set.
pub(crate) trait SubWord: Copy {
    /// Applies the S-box (FIPS 197, section 5.1.1) to each of four bytes.
    fn sub_word(self, word: u32) -> u32;
}

/// The last round of AES consists of the S-box and ShiftRows, which only moves bytes along their
/// row. If all columns are equal, ShiftRows changes nothing.
impl<B: AesBlocks> SubWord for B {
    #[inline(always)]
    fn sub_word(self, word: u32) -> u32 {
        let columns = self.splat_number(&(u128::from(word) * 0x1_0000_0001_0000_0001_0000_0001));
        self.sum(self.only_lane(self.last_round(columns, self.zero()), 0)) as u32
    }
}

/// Expands a key of 16 or 32 bytes to 11 or 15 round keys (FIPS 197, section 5.2).
#[inline(always)]
pub(crate) fn expand<S: SubWord>(s: S, key: &[u8], keys: &mut [Block; 15]) {
    let (words, _) = keys.as_flattened_mut().as_chunks_mut::<4>();
    let given = key.len() / 4;
    words[..given].copy_from_slice(key.as_chunks().0);
    let mut last = u32::from_le_bytes(words[given - 1]);
    let mut constant = 1_u8;
    for i in given..4 * (given + 7) {
        if i % given == 0 {
            last = s.sub_word(last.rotate_right(8)) ^ u32::from(constant);
            // The round constants, which are not secret: 1, 2, 4, ..., 0x80, 0x1b, 0x36.
            constant = (constant << 1) ^ ((constant >> 7) * 0x1b);
        } else if i % given == 4 {
            last = s.sub_word(last);
        }
        last ^= u32::from_le_bytes(words[i - given]);
        words[i] = last.to_le_bytes();
    }
}
