//! AES-128-GCM and AES-256-GCM (NIST SP 800-38D) over a list of packets that lie in
//! one buffer, and the header masks of QUIC (RFC 9001, section 5.4.3).

use crate::aead::{Job, Outcome};
use crate::aes_portable;
use zeroize::Zeroize;

/// A block of AES: 16 bytes.
pub(crate) type Block = [u8; 16];

/// How many powers of the hash key a [`GcmKey`] has.
pub(crate) const POWERS: usize = 36;

/// Round keys of AES (FIPS 197, section 5.2). Wiped on drop.
#[repr(align(16))]
pub(crate) struct RoundKeys {
    /// 11 or 15 of them, and zeros.
    pub(crate) keys: [Block; 15],
    rounds: u8,
}

impl RoundKeys {
    fn new<const N: usize>(key: &[u8; N]) -> Self {
        Self {
            keys: aes_portable::expand(key),
            rounds: const { (N / 4 + 6) as u8 },
        }
    }

    /// 10 or 14.
    #[inline(always)]
    pub(crate) fn rounds(&self) -> usize {
        self.rounds.into()
    }
}

impl Drop for RoundKeys {
    fn drop(&mut self) {
        self.keys.zeroize();
    }
}

/// A key of AES-GCM, prepared for any [`Backend`](crate::Backend): round keys and
/// powers of the hash key, 900 bytes. Wiped on drop.
pub struct GcmKey {
    pub(crate) cipher: RoundKeys,
    /// Powers 36 to 1 of the hash key H, so that vectors of neighbours are the factors
    /// of neighbouring blocks. Each is the block as a big-endian number, in which the
    /// bits of the polynomial stand in reverse, times x: the product of two such
    /// numbers has the bit of x^0 one place too low, and that makes up for it.
    pub(crate) powers: [u128; POWERS],
}

impl GcmKey {
    /// Prepares a key of AES-128-GCM.
    #[must_use]
    pub fn aes128(key: &[u8; 16]) -> Self {
        Self::new(RoundKeys::new(key))
    }

    /// Prepares a key of AES-256-GCM.
    #[must_use]
    pub fn aes256(key: &[u8; 32]) -> Self {
        Self::new(RoundKeys::new(key))
    }

    fn new(cipher: RoundKeys) -> Self {
        let powers = aes_portable::powers(&cipher);
        Self { cipher, powers }
    }
}

impl Drop for GcmKey {
    fn drop(&mut self) {
        self.powers.zeroize();
    }
}

/// A key of AES alone, prepared for any [`Backend`](crate::Backend). Wiped on drop.
pub struct AesKey(RoundKeys);

impl AesKey {
    /// Prepares a key of AES-128.
    #[must_use]
    pub fn aes128(key: &[u8; 16]) -> Self {
        Self(RoundKeys::new(key))
    }

    /// Prepares a key of AES-256.
    #[must_use]
    pub fn aes256(key: &[u8; 32]) -> Self {
        Self(RoundKeys::new(key))
    }
}

/// # Panics
///
/// If a job lies outside the buffer or names a key that is not there.
fn check(bytes: &[u8], keys: &[&GcmKey], jobs: &[Job]) {
    for job in jobs {
        let _ = (&bytes[job.aad()], &bytes[job.text().start..job.tag().end]);
        let _ = keys[job.key as usize];
    }
}

/// See [`crate::Backend::gcm_seal`].
pub(crate) fn seal(bytes: &mut [u8], keys: &[&GcmKey], jobs: &[Job], outcomes: &mut [Outcome]) {
    let outcomes = &mut outcomes[..jobs.len()];
    check(bytes, keys, jobs);
    aes_portable::seal(bytes, keys, jobs);
    outcomes.fill(Outcome::Sealed);
}

/// See [`crate::Backend::gcm_open`].
pub(crate) fn open(bytes: &mut [u8], keys: &[&GcmKey], jobs: &[Job], outcomes: &mut [Outcome]) {
    let outcomes = &mut outcomes[..jobs.len()];
    check(bytes, keys, jobs);
    aes_portable::open(bytes, keys, jobs, outcomes);
}

/// See [`crate::Backend::aes_masks`].
pub(crate) fn masks(keys: &[&AesKey], samples: &[(u32, Block)], masks: &mut [[u8; 5]]) {
    let masks = &mut masks[..samples.len()];
    for (samples, masks) in samples.chunks(4).zip(masks.chunks_mut(4)) {
        let mut keys_of_four = [&keys[samples[0].0 as usize].0; 4];
        let mut text = [[0; 16]; 4];
        for (i, &(key, sample)) in samples.iter().enumerate() {
            keys_of_four[i] = &keys[key as usize].0;
            text[i] = sample;
        }
        aes_portable::encrypt(&keys_of_four, &mut text);
        for (mask, block) in masks.iter_mut().zip(text) {
            mask.copy_from_slice(&block[..5]);
        }
    }
}
