//! The backends: which of them this CPU has, and what they do.

use crate::aead;
use crate::gcm;
use crate::header_protection;
use crate::isa::{self, AesSet, Set};
use crate::job::{Block, Digest, Header, Key, Nonce, Outcome, TAG_LEN, Work};
use crate::kernels::aes::key::{AesKey, GcmKey};
use crate::sha256::{self, LaneThreshold};
use core::sync::atomic::{AtomicU8, Ordering};

/// An instruction set that the algorithms run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// What every CPU of the compile target has: SSE2 on x86-64, plain Rust
    /// elsewhere.
    Portable,
    /// AVX2 and BMI2.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// The same with IFMA, which makes Poly1305 faster.
    #[cfg(target_arch = "x86_64")]
    Avx512Ifma,
}

impl Backend {
    /// Every backend of this build, the most capable last, whether or not this
    /// CPU has it.
    pub const ALL: &[Backend] = &[
        Backend::Portable,
        #[cfg(target_arch = "x86_64")]
        Backend::Avx2,
        #[cfg(target_arch = "x86_64")]
        Backend::Avx512,
        #[cfg(target_arch = "x86_64")]
        Backend::Avx512Ifma,
    ];

    /// The name by which `PACKETLANE_BACKEND` and reports call it. With and
    /// without IFMA, AVX-512 has the same: a CPU's user need not know.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512 | Backend::Avx512Ifma => "avx512",
        }
    }

    #[inline]
    fn kernels(self) -> &'static isa::Kernels {
        match self {
            Backend::Portable => &isa::PORTABLE,
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2 => &isa::AVX2,
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512 => &isa::AVX512,
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512Ifma => &isa::AVX512_IFMA,
        }
    }

    /// # Panics
    ///
    /// If this CPU lacks it.
    #[inline]
    pub(crate) fn set(self) -> Set {
        self.found();
        // SAFETY: this CPU has it, or `found` had not come back.
        unsafe { Set::assume(self.kernels()) }
    }

    /// The instructions for AES that go with it: the most capable of those that this
    /// CPU has with registers of its size, and none if there are none.
    ///
    /// # Panics
    ///
    /// If this CPU lacks the backend.
    #[inline]
    pub(crate) fn aes_set(self) -> AesSet {
        // SAFETY: the first that was found on this CPU.
        unsafe { AesSet::at(self.found()) }
    }

    /// The place of those in [`AesSet::ALL`]. The CPU is asked once, as asking takes as long
    /// as a short packet in a batch.
    ///
    /// # Panics
    ///
    /// If this CPU lacks the backend.
    #[inline]
    fn found(self) -> usize {
        /// One more than the place, or 0 where it is not known.
        static FOUND: [AtomicU8; Backend::ALL.len()] =
            [const { AtomicU8::new(0) }; Backend::ALL.len()];
        let found = &FOUND[self as usize];
        match found.load(Ordering::Relaxed) {
            0 => {
                let place = self.ask();
                found.store(place as u8 + 1, Ordering::Relaxed);
                place
            }
            known => usize::from(known) - 1,
        }
    }

    #[cold]
    fn ask(self) -> usize {
        assert!(self.is_available(), "a backend that this CPU lacks");
        let (place, _) = AesSet::first(match self {
            Backend::Portable => AesSet::PORTABLE,
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2 => AesSet::AVX2,
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512 | Backend::Avx512Ifma => 0,
        });
        place
    }

    /// Whether this CPU has it. On one that does not, every other method panics.
    #[must_use]
    #[inline]
    pub fn is_available(self) -> bool {
        match self {
            Backend::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2 => isa::AVX2.is_available(),
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512 => isa::AVX512.is_available(),
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512Ifma => isa::AVX512_IFMA.is_available(),
        }
    }

    /// Seals each of `jobs` in place: encrypts its text, writes its tag.
    ///
    /// `outcomes[i]` becomes [`Outcome::Sealed`].
    ///
    /// # Panics
    ///
    /// If a job lies outside `bytes` or names what is not in `secrets`, or if
    /// `outcomes` is shorter than `jobs`.
    pub fn seal(self, work: Work<'_>) {
        aead::seal(self.set(), work);
    }

    /// Opens each of `jobs` in place: checks its tag, in constant time, and
    /// decrypts its text if the tag is right.
    ///
    /// `outcomes[i]` becomes [`Outcome::Authentic`] or [`Outcome::BadTag`]; the
    /// text of a forged packet stays encrypted.
    ///
    /// # Panics
    ///
    /// If a job lies outside `bytes` or names what is not in `secrets`, or if
    /// `outcomes` is shorter than `jobs`.
    pub fn open(self, work: Work<'_>) {
        aead::open(self.set(), work);
    }

    /// Seals `text` in place, whose AAD lies elsewhere. Returns its tag.
    #[must_use]
    #[inline]
    pub fn seal_detached(
        self,
        key: &Key,
        nonce: &Nonce,
        aad: &[u8],
        text: &mut [u8],
    ) -> [u8; TAG_LEN] {
        aead::seal_detached(self.set(), key, nonce, aad, text)
    }

    /// Opens a text in place, whose tag follows it and whose AAD lies elsewhere: checks
    /// the tag, in constant time, and decrypts the text if it is right.
    /// [`Outcome::BadTag`] too if there is no room for a tag.
    #[must_use]
    #[inline]
    pub fn open_detached(
        self,
        key: &Key,
        nonce: &Nonce,
        aad: &[u8],
        text_and_tag: &mut [u8],
    ) -> Outcome {
        aead::open_detached(self.set(), key, nonce, aad, text_and_tag)
    }

    /// The largest packet, in keystream blocks including that of its one-time key, which a
    /// single seal or open finishes sooner with
    /// [precomputed blocks](Self::precompute_keystream) than without; `usize::MAX` if every
    /// packet does.
    #[must_use]
    pub fn max_precomputed_blocks(self) -> usize {
        aead::max_precomputed_blocks(self.set())
    }

    /// Computes keystream blocks of future packets under `key`: `blocks[i]` becomes the
    /// block with the counter and nonce `of[i]`. One vector's worth of blocks costs little
    /// more than one block.
    ///
    /// # Panics
    ///
    /// Unless both are as many.
    pub fn precompute_keystream(self, key: &Key, of: &[(u32, Nonce)], blocks: &mut [Block]) {
        aead::precompute_keystream(self.set(), key, of, blocks);
    }

    /// Exclusive-ors the ChaCha20 keystream of (`key`, `nonce`), from block
    /// `counter` on, into `text` (RFC 8439, section 2.4). The counter wraps
    /// after block 2^32 - 1.
    pub fn chacha20(self, key: &Key, nonce: &Nonce, counter: u32, text: &mut [u8]) {
        aead::xor_keystream(self.set(), key, nonce, counter, text);
    }

    /// The Poly1305 tag of `message` under a one-time key (RFC 8439, section
    /// 2.5).
    #[must_use]
    pub fn poly1305(self, one_time_key: &[u8; 32], message: &[u8]) -> [u8; TAG_LEN] {
        aead::poly1305(self.set(), one_time_key, message)
    }

    /// The SHA-256 (FIPS 180-4) of each of `messages`, of any and mixed lengths:
    /// `digests[i]` becomes that of `messages[i]`, which is the pieces of an array one
    /// behind the other. Pieces may be empty.
    ///
    /// Beside vectors, AVX2 and AVX-512 use the SHA instructions if the CPU has them,
    /// the portable backend does not. The first call of one of these methods in a
    /// process times, within a tenth of a millisecond, from how many messages on the
    /// vectors are faster.
    ///
    /// # Panics
    ///
    /// Unless there are as many `digests` as `messages`.
    pub fn sha256<const N: usize>(self, messages: &[[&[u8]; N]], digests: &mut [Digest]) {
        sha256::many(LaneThreshold::of(self.set()), messages, digests);
    }

    /// The SHA-256 of the SHA-256 of each of `messages`, as [`Backend::sha256`].
    ///
    /// # Panics
    ///
    /// Unless there are as many `digests` as `messages`.
    pub fn sha256d<const N: usize>(self, messages: &[[&[u8]; N]], digests: &mut [Digest]) {
        sha256::many_twice(LaneThreshold::of(self.set()), messages, digests);
    }

    /// From how many messages on they are hashed in lanes, fewer being hashed one by
    /// one. It is measured at the first call of this process that hashes on this
    /// backend, in some thirty microseconds. (On one without a clock that needs no
    /// operating system, which is x86-64's, it is never.)
    #[must_use]
    pub fn sha256_lanes_from(self) -> usize {
        LaneThreshold::of(self.set()).messages()
    }

    /// Sets that number for this process and this backend, in place of what would be or
    /// has been measured: 1 for always, `usize::MAX` for never.
    pub fn set_sha256_lanes_from(self, messages: usize) {
        LaneThreshold::set(self.set(), messages);
    }

    /// [`Backend::sha256d`] for messages of 64 bytes, faster.
    ///
    /// # Panics
    ///
    /// Unless there are as many `digests` as `messages`.
    pub fn sha256d_64(self, messages: &[[u8; 64]], digests: &mut [Digest]) {
        sha256::many_64(LaneThreshold::of(self.set()), messages, digests);
    }

    /// The same for pairs of `nodes`, in place: `nodes[i]` becomes the double hash of
    /// `nodes[2 * i]` and `nodes[2 * i + 1]`, one behind the other. An odd last node
    /// counts for nothing, and what the second half of `nodes` holds thereafter is
    /// not specified.
    pub fn sha256d_pairs(self, nodes: &mut [Digest]) {
        sha256::pairs(LaneThreshold::of(self.set()), nodes);
    }

    /// Seals each of `jobs` in place with AES-GCM (NIST SP 800-38D): encrypts its text,
    /// writes its tag. A job's `key` is an index of the list of keys; its
    /// `keystream` fields are ignored.
    ///
    /// # Panics
    ///
    /// If a job lies outside `bytes` or names a key that is not there.
    #[inline]
    pub fn gcm_seal(self, work: Work<'_, &[&GcmKey]>) {
        gcm::seal(self.aes_set(), work);
    }

    /// Opens each of `jobs` in place with AES-GCM: checks its tag, in constant time, and
    /// decrypts its text if the tag is right. The jobs are as in
    /// [`gcm_seal`](Self::gcm_seal).
    ///
    /// `outcomes[i]` becomes [`Outcome::Authentic`] or [`Outcome::BadTag`]; the text of
    /// a forged packet stays encrypted.
    ///
    /// # Panics
    ///
    /// As `gcm_seal`.
    pub fn gcm_open(self, work: Work<'_, &[&GcmKey]>) {
        gcm::open(self.aes_set(), work);
    }

    /// Seals `text` in place with AES-GCM. Returns its tag. The AAD lies elsewhere.
    ///
    /// # Panics
    ///
    /// If one of them has 2^32 bytes or more.
    #[must_use]
    #[inline]
    pub fn gcm_seal_detached(
        self,
        key: &GcmKey,
        nonce: &Nonce,
        aad: &[u8],
        text: &mut [u8],
    ) -> [u8; TAG_LEN] {
        gcm::seal_detached(self.aes_set(), key, nonce, aad, text)
    }

    /// Opens a text in place with AES-GCM, whose tag follows it and whose AAD lies
    /// elsewhere: checks the tag, in constant time, and decrypts the text if it is right.
    /// [`Outcome::BadTag`] too if there is no room for a tag.
    ///
    /// # Panics
    ///
    /// As [`gcm_seal_detached`](Self::gcm_seal_detached).
    #[must_use]
    #[inline]
    pub fn gcm_open_detached(
        self,
        key: &GcmKey,
        nonce: &Nonce,
        aad: &[u8],
        text_and_tag: &mut [u8],
    ) -> Outcome {
        gcm::open_detached(self.aes_set(), key, nonce, aad, text_and_tag)
    }

    /// The header masks of QUIC packets protected with AES (RFC 9001, section 5.4.3):
    /// `masks[i]` becomes the first 8 bytes, little-endian, of the encryption of 16 bytes.
    /// Sample i is the index of its key and its offset in `bytes`. A mask has 5 bytes.
    ///
    /// # Panics
    ///
    /// If a sample lies outside `bytes` or names a key that is not there, or if `masks`
    /// is shorter than `samples`.
    #[inline]
    pub fn aes_masks(
        self,
        bytes: &[u8],
        keys: &[&AesKey],
        samples: &[(u32, u32)],
        masks: &mut [u64],
    ) {
        let masks = &mut masks[..samples.len()];
        self.aes_set().masks(bytes, keys, samples, masks);
    }

    /// The header masks of QUIC packets protected with ChaCha20 (RFC 9001, section
    /// 5.4.4): `masks[i]` becomes the first 8 bytes, little-endian, of the block of
    /// keystream of which sample i is counter and nonce. As [`aes_masks`](Self::aes_masks).
    ///
    /// # Panics
    ///
    /// As `aes_masks`.
    pub fn chacha20_masks(
        self,
        bytes: &[u8],
        keys: &[Key],
        samples: &[(u32, u32)],
        masks: &mut [u64],
    ) {
        header_protection::chacha20_masks(
            self.set(),
            bytes,
            keys,
            samples,
            |sample| *sample,
            masks,
        );
    }

    /// Masks `headers` of QUIC packets whose payloads are sealed with AES-GCM (RFC 9001,
    /// section 5.4.3). A header's `key` is an index of `keys`.
    ///
    /// # Panics
    ///
    /// If a header or its sample lies outside `bytes`, if its first byte lies behind its
    /// packet number, or if it names a key that is not there. Headers before it may be
    /// masked then.
    #[inline]
    pub fn aes_mask_headers(self, bytes: &mut [u8], keys: &[&AesKey], headers: &[Header]) {
        self.aes_set().mask_headers(bytes, keys, headers);
    }

    /// Masks `headers` of QUIC packets whose payloads are sealed with ChaCha20-Poly1305
    /// (RFC 9001, section 5.4.4). A header's `key` is an index of `keys`.
    ///
    /// # Panics
    ///
    /// If a header or its sample lies outside `bytes`, or if it names a key that is not
    /// there.
    pub fn chacha20_mask_headers(self, bytes: &mut [u8], keys: &[Key], headers: &[Header]) {
        header_protection::chacha20_mask_headers(self.set(), bytes, keys, headers);
    }
}
