//! The public API, and detection of this CPU's instruction sets.

use crate::aead;
use crate::gcm;
use crate::header_protection;
use crate::isa::{self, AesSet, Set};
use crate::job::{Block, Digest, Header, Job, Key, Nonce, Outcome, TAG_LEN, Work};
use crate::kernels::aes::key::{AesKey, GcmKey};
use crate::secp256k1::{self, PublicKey};
use crate::sha256::{self, LaneThreshold};
use core::sync::atomic::{AtomicU8, Ordering};

/// An instruction set that the algorithms run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// The baseline of the compile target: SSE2 on x86-64, otherwise plain Rust.
    Portable,
    /// NEON, which every little-endian CPU of the target has, and AES and SHA-256 instructions
    /// where the CPU has them.
    #[cfg(all(
        target_arch = "aarch64",
        target_endian = "little",
        target_feature = "neon"
    ))]
    Neon,
    /// AVX2 and BMI2.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW and VL, with Poly1305 in 26-bit limbs.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// AVX-512 F, BW, VL, VBMI2 and IFMA, whose 52-bit multiplication makes Poly1305 faster.
    #[cfg(target_arch = "x86_64")]
    Avx512Ifma,
}

// `Backend::ALL` is in the order of the variants, because `aes_index` uses the variant's number as
// an index.
const _: () = {
    let mut place = 0;
    while place < Backend::ALL.len() {
        assert!(Backend::ALL[place] as usize == place);
        place += 1;
    }
};

impl Backend {
    /// All backends of this build, the most capable last, whether or not this CPU supports them.
    pub const ALL: &[Backend] = &[
        Backend::Portable,
        #[cfg(all(
            target_arch = "aarch64",
            target_endian = "little",
            target_feature = "neon"
        ))]
        Backend::Neon,
        #[cfg(target_arch = "x86_64")]
        Backend::Avx2,
        #[cfg(target_arch = "x86_64")]
        Backend::Avx512,
        #[cfg(target_arch = "x86_64")]
        Backend::Avx512Ifma,
    ];

    /// Returns the name used in reports and in `PACKETLANE_BACKEND`. AVX-512 with and without IFMA
    /// share one name, because users need not distinguish them.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Portable => "portable",
            #[cfg(all(
                target_arch = "aarch64",
                target_endian = "little",
                target_feature = "neon"
            ))]
            Backend::Neon => "neon",
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512 | Backend::Avx512Ifma => "avx512",
        }
    }

    /// Returns the kernels, to run on packets and messages.
    #[must_use]
    #[inline]
    pub const fn kernels(self) -> Kernels {
        Kernels(self)
    }

    #[inline]
    fn table(self) -> &'static isa::Kernels {
        match self {
            Backend::Portable => &isa::PORTABLE,
            #[cfg(all(
                target_arch = "aarch64",
                target_endian = "little",
                target_feature = "neon"
            ))]
            Backend::Neon => &isa::NEON,
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2 => &isa::AVX2,
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512 => &isa::AVX512,
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512Ifma => &isa::AVX512_IFMA,
        }
    }

    /// Returns the kernels of this backend.
    ///
    /// # Panics
    ///
    /// If this CPU does not support the backend.
    #[inline]
    pub(crate) fn set(self) -> Set {
        self.aes_index();
        // SAFETY: `aes_index` panics if this CPU does not support the backend.
        unsafe { Set::assume(self.table()) }
    }

    /// Returns the AES kernels for this backend: the most capable ones that this CPU supports with
    /// registers of the backend's size, or the bitsliced ones if it has no AES instructions.
    ///
    /// # Panics
    ///
    /// If this CPU does not support the backend.
    #[inline]
    fn aes_set(self) -> AesSet {
        // SAFETY: `aes_index` returns only the index of a table that this CPU supports.
        unsafe { AesSet::at(self.aes_index()) }
    }

    /// Returns the index in [`AesSet::ALL`] of this backend's AES kernels. Cached, because
    /// detection takes as long as sealing a short packet of a batch.
    ///
    /// # Panics
    ///
    /// If this CPU does not support the backend.
    #[inline]
    fn aes_index(self) -> usize {
        /// For each backend the index plus one, or 0 before detection.
        static DETECTED: [AtomicU8; Backend::ALL.len()] =
            [const { AtomicU8::new(0) }; Backend::ALL.len()];
        let detected = &DETECTED[self as usize];
        match detected.load(Ordering::Relaxed) {
            0 => {
                let index = self.detect_aes();
                detected.store(index as u8 + 1, Ordering::Relaxed);
                index
            }
            known => usize::from(known) - 1,
        }
    }

    /// Detects the value that [`Backend::aes_index`] caches.
    #[cold]
    fn detect_aes(self) -> usize {
        assert!(self.is_available(), "this CPU does not support the backend");
        let (index, _) = AesSet::first(match self {
            Backend::Portable => AesSet::PORTABLE,
            #[cfg(all(
                target_arch = "aarch64",
                target_endian = "little",
                target_feature = "neon"
            ))]
            Backend::Neon => 0,
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2 => AesSet::AVX2,
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512 | Backend::Avx512Ifma => 0,
        });
        index
    }

    /// Whether this CPU has the backend's instructions. If not, all methods of its
    /// [`kernels`](Self::kernels) panic.
    #[must_use]
    #[inline]
    pub fn is_available(self) -> bool {
        self.table().is_available()
    }
}

/// The kernels of one [`Backend`]. Cheap to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernels(Backend);

impl Kernels {
    #[inline]
    fn set(self) -> Set {
        self.0.set()
    }

    #[inline]
    fn aes_set(self) -> AesSet {
        self.0.aes_set()
    }

    /// Seals each of `work.jobs` in place with ChaCha20-Poly1305 (RFC 8439, section 2.8):
    /// encrypts the text and writes the tag of 16 bytes after it.
    ///
    /// `work.outcomes[i]` becomes [`Outcome::Sealed`].
    ///
    /// # Panics
    ///
    /// If a job lies outside `work.bytes`, if its key index is outside `work.keys`, if
    /// `work.outcomes` is shorter than `work.jobs`, or if this CPU does not support the backend. It
    /// may panic if one job writes where another reads or writes. Jobs before the one that panics
    /// may have run.
    pub fn seal(self, work: Work<'_>) {
        aead::seal(self.set(), work);
    }

    /// Opens each of `work.jobs` in place with ChaCha20-Poly1305 (RFC 8439, section 2.8): checks
    /// the tag in constant time, and decrypts the text if the tag is correct.
    ///
    /// `work.outcomes[i]` becomes [`Outcome::Authentic`] or [`Outcome::BadTag`]. The text of a
    /// packet with a wrong tag stays encrypted.
    ///
    /// # Panics
    ///
    /// If a job lies outside `work.bytes`, if its key index is outside `work.keys`, if
    /// `work.outcomes` is shorter than `work.jobs`, or if this CPU does not support the backend.
    /// Jobs before the one that panics may have run.
    pub fn open(self, work: Work<'_>) {
        aead::open(self.set(), work);
    }

    /// Like [`seal`](Self::seal), out of place: the first 64 bytes of the text of `work.jobs[i]`
    /// are in `work.bytes`; the rest is read from `sources[i]`, which saves copying it first.
    /// `sources[i]` is empty if there is no rest.
    ///
    /// # Panics
    ///
    /// As for [`seal`](Self::seal). If the number of sources differs from that of jobs, or the
    /// length of a source is wrong.
    pub fn seal_from(self, work: Work<'_>, sources: &[&[u8]]) {
        aead::seal_from(self.set(), work, sources);
    }

    /// Whether [`seal_from`](Self::seal_from) is faster than copying the texts and then
    /// [`seal`](Self::seal)ing them, for `packets` packets with `text_len` bytes of text in total.
    #[inline]
    #[must_use]
    pub fn is_faster_out_of_place(self, packets: usize, text_len: usize) -> bool {
        aead::is_faster_out_of_place(self.set(), packets, text_len)
    }

    /// Seals one packet like [`seal`](Self::seal). The first blocks of its keystream, from block 0
    /// on, may be [precomputed](Self::precompute_keystream); if all of them are, `key` is not read.
    /// The key index of the job is ignored. Returns [`Outcome::Sealed`].
    ///
    /// # Panics
    ///
    /// If the job lies outside `bytes`, or if this CPU does not support the backend.
    pub fn seal_single(
        self,
        key: &Key,
        keystream: &[Block],
        bytes: &mut [u8],
        job: &Job,
    ) -> Outcome {
        match keystream {
            [] => aead::seal_single(self.set(), bytes, key, job),
            _ => aead::seal_precomputed(self.set(), bytes, (key, keystream), job),
        }
        Outcome::Sealed
    }

    /// Opens one packet like [`open`](Self::open), with keystream as for
    /// [`seal_single`](Self::seal_single).
    ///
    /// # Panics
    ///
    /// As for [`seal_single`](Self::seal_single).
    pub fn open_single(
        self,
        key: &Key,
        keystream: &[Block],
        bytes: &mut [u8],
        job: &Job,
    ) -> Outcome {
        match keystream {
            [] => aead::open_single(self.set(), bytes, key, job),
            _ => aead::open_precomputed(self.set(), bytes, (key, keystream), job),
        }
    }

    /// Seals `text` in place with ChaCha20-Poly1305 (RFC 8439, section 2.8). Returns the tag. The
    /// AAD is in its own buffer.
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

    /// Opens a text in place with ChaCha20-Poly1305 (RFC 8439, section 2.8). The last 16 bytes of
    /// `text_and_tag` are the tag; the AAD is in its own buffer. Checks the tag in constant time,
    /// and decrypts the text if the tag is correct. Returns [`Outcome::Authentic`] or
    /// [`Outcome::BadTag`]; the latter also if `text_and_tag` is shorter than a tag.
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

    /// Returns the largest packet for which [precomputed keystream](Self::precompute_keystream)
    /// makes sealing or opening a single packet faster, in keystream blocks, including block 0 for
    /// the one-time key. `usize::MAX` if precomputed keystream helps every packet.
    #[inline]
    #[must_use]
    pub fn max_precomputed_blocks(self) -> usize {
        aead::max_precomputed_blocks(self.set())
    }

    /// Whether `packets` packets, which need `blocks` keystream blocks in total including one each
    /// for the one-time key, are so few that sealing or opening each on its own, with [precomputed
    /// keystream](Self::precompute_keystream), is faster than all of them together.
    #[inline]
    #[must_use]
    pub fn is_small_turn(self, packets: usize, blocks: usize) -> bool {
        aead::is_small_turn(self.set(), packets, blocks)
    }

    /// Computes ChaCha20 keystream blocks of future packets under `key` (RFC 8439, section 2.3):
    /// `blocks[i]` becomes the block with counter `counters_and_nonces[i].0` and nonce
    /// `counters_and_nonces[i].1`. As many blocks as a vector has lanes cost little more than one
    /// block.
    ///
    /// # Panics
    ///
    /// If `blocks` and `counters_and_nonces` differ in length.
    pub fn precompute_keystream(
        self,
        key: &Key,
        counters_and_nonces: &[(u32, Nonce)],
        blocks: &mut [Block],
    ) {
        aead::precompute_keystream(self.set(), key, counters_and_nonces, blocks);
    }

    /// XORs the ChaCha20 keystream of (`key`, `nonce`), starting at block `counter`, into `text`
    /// (RFC 8439, section 2.4). The counter wraps to 0 after block 2^32 - 1.
    pub fn chacha20(self, key: &Key, nonce: &Nonce, counter: u32, text: &mut [u8]) {
        aead::xor_keystream(self.set(), key, nonce, counter, text);
    }

    /// Computes the Poly1305 tag of `message` under a one-time key (RFC 8439, section 2.5).
    #[must_use]
    pub fn poly1305(self, one_time_key: &[u8; 32], message: &[u8]) -> [u8; TAG_LEN] {
        aead::poly1305(self.set(), one_time_key, message)
    }

    /// Computes the SHA-256 (FIPS 180-4) of each of `messages`, which may have any lengths:
    /// `digests[i]` becomes the hash of the pieces of `messages[i]`, concatenated. Pieces may be
    /// empty.
    ///
    /// AVX2 and AVX-512 also use the SHA instructions if the CPU has them; the portable backend
    /// does not. The first SHA-256 call of a process on a backend measures [the number of
    /// messages](Self::sha256_lanes_from) for which vectors are faster than one message after the
    /// other, and keeps it. That takes 25 to 100 µs on a Zen 5 (November 2026).
    ///
    /// # Panics
    ///
    /// If `digests` and `messages` differ in length.
    pub fn sha256<const N: usize>(self, messages: &[[&[u8]; N]], digests: &mut [Digest]) {
        sha256::many(LaneThreshold::of(self.set()), messages, digests);
    }

    /// Computes the double SHA-256 (the SHA-256 of the SHA-256) of each of `messages`; otherwise
    /// like [`Kernels::sha256`].
    ///
    /// # Panics
    ///
    /// If `digests` and `messages` differ in length.
    pub fn sha256d<const N: usize>(self, messages: &[[&[u8]; N]], digests: &mut [Digest]) {
        sha256::many_twice(LaneThreshold::of(self.set()), messages, digests);
    }

    /// Returns the minimum number of messages that are hashed in the lanes of a vector; fewer are
    /// hashed one by one. A value above the number of lanes means never. It is measured at the
    /// first SHA-256 call of the process on this backend; see [`sha256`](Self::sha256). Without a
    /// clock that works without an operating system (only x86-64 has one here), it is the number of
    /// lanes, or one more if the CPU has SHA-256 instructions.
    #[must_use]
    pub fn sha256_lanes_from(self) -> usize {
        LaneThreshold::of(self.set()).messages()
    }

    /// Sets [`sha256_lanes_from`](Self::sha256_lanes_from) for this process and this backend,
    /// instead of measuring it: 1 for always, `usize::MAX` for never.
    pub fn set_sha256_lanes_from(self, messages: usize) {
        LaneThreshold::set(self.set(), messages);
    }

    /// Returns how many secp256k1 keys one vector holds; at most [`MAX_KEY_LANES`]. Fewer take as
    /// long.
    ///
    /// [`MAX_KEY_LANES`]: crate::MAX_KEY_LANES
    #[must_use]
    pub fn key_lanes(self) -> usize {
        self.set().curve_lanes()
    }

    /// Computes the secp256k1 public keys of `secrets`, which are big-endian numbers. Constant time
    /// in the secrets. If a number is [no secret key](crate::is_secret_key), no result means anything.
    ///
    /// # Panics
    ///
    /// If `secrets` and `keys` differ in length.
    pub fn public_keys(self, secrets: &[&[u8; 32]], keys: &mut [PublicKey]) {
        secp256k1::public_keys(self.set(), secrets, keys);
    }

    /// Computes ElligatorSwift encodings of public keys (BIP324, "ElligatorSwift encoding"): u,
    /// then t, both big-endian. `next` returns what to try next for the key with an index: 32 random
    /// bytes, which become u if the try succeeds, and a random number of three bits. One try in four
    /// succeeds. How often `next` is called depends on public values only.
    ///
    /// # Panics
    ///
    /// If `keys` and `encodings` differ in length.
    pub fn encode_public_keys(
        self,
        keys: &[PublicKey],
        next: &mut dyn FnMut(usize) -> ([u8; 32], u8),
        encodings: &mut [[u8; 64]],
    ) {
        secp256k1::encode(self.set(), keys, next, encodings);
    }

    /// Computes what `secrets[i]` and the ElligatorSwift encoding of another's public key,
    /// `encodings[i]`, have in common: the x coordinate of the product, big-endian (BIP324,
    /// `ellswift_ecdh_xonly`). Constant time in the secrets. Every encoding is valid. If a number is
    /// [no secret key](crate::is_secret_key), no result means anything.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    pub fn shared_x(self, secrets: &[&[u8; 32]], encodings: &[&[u8; 64]], shared: &mut [[u8; 32]]) {
        secp256k1::shared_x(self.set(), secrets, encodings, shared);
    }

    /// Like [`Kernels::sha256d`], but faster, for messages of exactly 64 bytes.
    ///
    /// # Panics
    ///
    /// If `digests` and `messages` differ in length.
    pub fn sha256d_64(self, messages: &[[u8; 64]], digests: &mut [Digest]) {
        sha256::many_64(LaneThreshold::of(self.set()), messages, digests);
    }

    /// Like [`Kernels::sha256d_64`] for pairs of nodes, in place: `nodes[i]` becomes the double
    /// SHA-256 of `nodes[2 * i]` followed by `nodes[2 * i + 1]`, which is one level of a Merkle
    /// tree. An odd last node is ignored. Afterwards, only the first half of `nodes`, rounded down,
    /// is specified.
    pub fn sha256d_pairs(self, nodes: &mut [Digest]) {
        sha256::pairs(LaneThreshold::of(self.set()), nodes);
    }

    /// Seals each of `work.jobs` in place with AES-GCM (NIST SP 800-38D, section 7.1): encrypts the
    /// text and writes the tag of 16 bytes after it. `work.keys` is the list of keys, and a job's
    /// `key` is an index into it. Outcomes are as in [`seal`](Self::seal).
    ///
    /// # Panics
    ///
    /// If a job lies outside `work.bytes` or its key index is outside `work.keys`, if
    /// `work.outcomes` is shorter than `work.jobs`, or if this CPU does not support the backend. No
    /// job has run then.
    #[inline]
    pub fn gcm_seal(self, work: Work<'_, &[&GcmKey]>) {
        gcm::seal(self.aes_set(), work);
    }

    /// Opens each of `work.jobs` in place with AES-GCM (NIST SP 800-38D, section 7.2): checks the
    /// tag in constant time, and decrypts the text if the tag is correct. Jobs and keys are as in
    /// [`gcm_seal`](Self::gcm_seal).
    ///
    /// `work.outcomes[i]` becomes [`Outcome::Authentic`] or [`Outcome::BadTag`]. The text of a
    /// packet with a wrong tag stays encrypted.
    ///
    /// # Panics
    ///
    /// As for [`gcm_seal`](Self::gcm_seal).
    pub fn gcm_open(self, work: Work<'_, &[&GcmKey]>) {
        gcm::open(self.aes_set(), work);
    }

    /// Seals `text` in place with AES-GCM (NIST SP 800-38D, section 7.1). Returns the tag. The AAD
    /// is in its own buffer.
    ///
    /// # Panics
    ///
    /// If `text` or `aad` has 2^32 bytes or more, or if this CPU does not support the backend.
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

    /// Opens a text in place with AES-GCM (NIST SP 800-38D, section 7.2). The last 16 bytes of
    /// `text_and_tag` are the tag; the AAD is in its own buffer. Checks the tag in constant time,
    /// and decrypts the text if the tag is correct. Returns [`Outcome::Authentic`] or
    /// [`Outcome::BadTag`]; the latter also if `text_and_tag` is shorter than a tag.
    ///
    /// # Panics
    ///
    /// As for [`gcm_seal_detached`](Self::gcm_seal_detached).
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

    /// Computes the header protection masks of QUIC packets protected with AES (RFC 9001, section
    /// 5.4.3). `samples[i]` is the index of a key and the offset in `bytes` of a 16-byte sample;
    /// `masks[i]` becomes the first 8 bytes of the encrypted sample as a little-endian number. QUIC
    /// uses the lowest 5 bytes.
    ///
    /// # Panics
    ///
    /// If a sample lies outside `bytes` or its key index is outside `keys`, if `masks` is shorter
    /// than `samples`, or if this CPU does not support the backend.
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

    /// Computes the header protection masks of QUIC packets protected with ChaCha20 (RFC 9001,
    /// section 5.4.4). `samples[i]` is as in [`aes_masks`](Self::aes_masks): its 16 bytes are the
    /// counter and the nonce of a keystream block, and `masks[i]` becomes the first 8 bytes of that
    /// block as a little-endian number.
    ///
    /// # Panics
    ///
    /// As for [`aes_masks`](Self::aes_masks).
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

    /// Applies header protection to QUIC packets whose payloads are sealed with AES-GCM (RFC 9001,
    /// section 5.4.3), or removes it. A header's `key` is an index into `keys`.
    ///
    /// # Panics
    ///
    /// If a header or its sample lies outside `bytes`, if its key index is outside `keys`, or if
    /// this CPU does not support the backend; on a CPU with AES instructions also if the header's
    /// first byte lies after its packet number. The headers before the one that panics may have
    /// been masked.
    #[inline]
    pub fn aes_mask_headers(self, bytes: &mut [u8], keys: &[&AesKey], headers: &[Header]) {
        self.aes_set().mask_headers(bytes, keys, headers);
    }

    /// Applies header protection to QUIC packets whose payloads are sealed with
    /// ChaCha20-Poly1305 (RFC 9001, section 5.4.4), or removes it. A header's `key` is an index
    /// into `keys`.
    ///
    /// # Panics
    ///
    /// If a header or its sample lies outside `bytes`, if its key index is outside `keys`, or if
    /// this CPU does not support the backend. The headers before the one that panics may have been
    /// masked.
    pub fn chacha20_mask_headers(self, bytes: &mut [u8], keys: &[Key], headers: &[Header]) {
        header_protection::chacha20_mask_headers(self.set(), bytes, keys, headers);
    }

    /// Seals one QUIC packet with ChaCha20-Poly1305 like [`Kernels::seal`], and protects its header
    /// like [`Kernels::chacha20_mask_headers`] (RFC 9001, sections 5.3 and 5.4.4). `keys` are the
    /// payload's key and the header's key, in this order; the key indices in `job` and `header` are
    /// ignored. The mask is computed while the ciphertext is hashed, which is faster than one after
    /// the other.
    ///
    /// # Panics
    ///
    /// If the job, the header or its sample lies outside `bytes`, or if this CPU does not support
    /// the backend.
    pub fn seal_with_header(self, bytes: &mut [u8], keys: [&Key; 2], job: &Job, header: &Header) {
        header_protection::seal_with_header(self.set(), bytes, keys, job, header);
    }
}
