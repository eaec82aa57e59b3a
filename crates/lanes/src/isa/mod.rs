//! The instances of [`crate::vector`]'s traits, one file per instruction set,
//! and the kernels compiled for each.

use crate::aead::Run;
use crate::aes_gcm::{AesKey, Apart, GcmKey, Header, Powers, RoundKeys};
use crate::chacha20::{Blocks, Keystream, Samples, Stretch};
use crate::job::{Block, Job, Key, Nonce, Outcome, TAG_LEN};
use crate::measure::Measured;
use crate::poly1305::{Multiplier, Number, Tagger, Text};
#[cfg(target_arch = "x86_64")]
use crate::sha256::SCALAR;
use crate::sha256::{Digest, Lanes, Serial};
use crate::vector::MAX_LANES;

pub(crate) use portable::Scalar;

/// What runs in vectors, compiled for one instruction set. The functions must only
/// be called where the CPU has it.
#[allow(clippy::type_complexity, reason = "signatures, each used once")]
pub(crate) struct Kernels {
    is_available: fn() -> bool,
    block_lanes: usize,
    tag_lanes: usize,
    tag_step: usize,
    blocks: unsafe fn(&mut Blocks<'_>, usize),
    blocks_ahead: unsafe fn(&Key, &[(u32, Nonce)], &mut [Block]),
    masks: unsafe fn(&Samples<'_>, usize, &mut [[u32; MAX_LANES]; 2]),
    few_blocks: usize,
    few: unsafe fn(&Key, &[u32; 4], usize, &mut Keystream),
    few_beside: Option<FewBeside>,
    few_measured: Measured,
    xor_keystream: unsafe fn(&Key, &Nonce, u32, &mut [u8]),
    xor_two: unsafe fn(&mut [u8], [Stretch<'_>; 2]),
    xor_blocks: unsafe fn(&mut [u8], &[Block]),
    xor_texts: unsafe fn(&mut [u8], &[Block], &[Job], &[Run]),
    xor_padded: unsafe fn(&mut [u8], &Block) -> Block,
    padded: unsafe fn(&[u8]) -> Block,
    tags: unsafe fn(&[Text], &[[u8; 32]], &mut [[u8; TAG_LEN]]),
    tags_of_long: unsafe fn(&[Text], &[[u8; 32]], &mut [[u8; TAG_LEN]]),
    long: unsafe fn(Number, &[[u8; 16]], &Multiplier) -> Number,
    short: Option<(
        usize,
        unsafe fn(&mut [u8], &[Key], &[Job], Option<&mut [Outcome]>),
    )>,
    hash_lanes: usize,
    hash_run: unsafe fn(&mut Lanes) -> u32,
    hash64: unsafe fn(*const [u8; 64], *mut Digest, usize),
    hash32: unsafe fn(*const [u8; 32], *mut Digest, usize),
    serial: fn() -> &'static Serial,
    measured: Measured,
}

impl Kernels {
    /// Whether this CPU has the instruction set.
    #[inline(always)]
    pub(crate) fn is_available(&self) -> bool {
        (self.is_available)()
    }
}

/// See [`crate::aead::few_beside`].
type FewBeside = unsafe fn(
    (&Key, &[u32; 4]),
    usize,
    &mut Keystream,
    usize,
    &mut Tagger,
    &[[u8; TAG_LEN]],
) -> usize;

/// An instruction set that this CPU has.
#[derive(Clone, Copy)]
pub(crate) struct Set(&'static Kernels);

impl Set {
    /// # Safety
    ///
    /// This CPU must have it.
    #[inline(always)]
    pub(crate) unsafe fn assume(kernels: &'static Kernels) -> Self {
        Self(kernels)
    }

    /// How many blocks of ChaCha20 are computed at once.
    #[inline]
    pub(crate) fn block_lanes(self) -> usize {
        self.0.block_lanes
    }

    /// How many messages are tagged at once; 1 if there are no vectors for it.
    #[inline]
    pub(crate) fn tag_lanes(self) -> usize {
        self.0.tag_lanes
    }

    /// How long a step of tags in lanes takes, in tenths of a step of one message.
    #[inline]
    pub(crate) fn tag_step(self) -> usize {
        self.0.tag_step
    }

    /// See [`Blocks::run`].
    #[inline]
    pub(crate) fn blocks(self, blocks: &mut Blocks<'_>, lanes: usize) {
        // SAFETY: the CPU has the set, as it has in all of these.
        unsafe { (self.0.blocks)(blocks, lanes) }
    }

    /// See [`Samples::masks`].
    #[inline]
    pub(crate) fn masks(
        self,
        samples: &Samples<'_>,
        lanes: usize,
        words: &mut [[u32; MAX_LANES]; 2],
    ) {
        // SAFETY: as above.
        unsafe { (self.0.masks)(samples, lanes, words) }
    }

    /// How many neighbouring blocks of one packet are had sooner in rows than in lanes.
    #[inline]
    pub(crate) fn few_blocks(self) -> usize {
        self.0.few_blocks
    }

    /// See [`crate::chacha20::few`]. No more than [`Set::few_blocks`].
    #[inline]
    pub(crate) fn few(self, key: &Key, row: &[u32; 4], count: usize, blocks: &mut Keystream) {
        // SAFETY: as above.
        unsafe { (self.0.few)(key, row, count, blocks) }
    }

    /// Whether there is [`Set::few_beside`].
    #[inline]
    pub(crate) fn has_few_beside(self) -> bool {
        self.0.few_beside.is_some()
    }

    /// See [`crate::aead::few_beside`]. No more than [`Set::few_blocks`].
    ///
    /// # Panics
    ///
    /// If there is none.
    #[inline]
    pub(crate) fn few_beside(
        self,
        of: (&Key, &[u32; 4]),
        count: usize,
        blocks: &mut Keystream,
        at: usize,
        tagger: &mut Tagger,
        text: &[[u8; TAG_LEN]],
    ) -> usize {
        let few_beside = self.0.few_beside.expect("asked for before");
        // SAFETY: as above.
        unsafe { few_beside(of, count, blocks, at, tagger, text) }
    }

    /// What has been measured of few blocks.
    #[inline]
    pub(crate) fn few_measured(self) -> &'static Measured {
        &self.0.few_measured
    }

    /// See [`crate::chacha20::blocks_ahead`].
    #[inline]
    pub(crate) fn blocks_ahead(self, key: &Key, of: &[(u32, Nonce)], blocks: &mut [Block]) {
        // SAFETY: as above.
        unsafe { (self.0.blocks_ahead)(key, of, blocks) }
    }

    /// See [`crate::chacha20::xor_keystream`].
    #[inline]
    pub(crate) fn xor_keystream(self, key: &Key, nonce: &Nonce, counter: u32, text: &mut [u8]) {
        // SAFETY: as above.
        unsafe { (self.0.xor_keystream)(key, nonce, counter, text) }
    }

    /// See [`crate::chacha20::xor_two`]. Half of [`Set::block_lanes`] in each.
    #[inline]
    pub(crate) fn xor_two(self, bytes: &mut [u8], stretches: [Stretch<'_>; 2]) {
        // SAFETY: as above.
        unsafe { (self.0.xor_two)(bytes, stretches) }
    }

    /// See [`crate::chacha20::xor_blocks`].
    #[inline]
    pub(crate) fn xor_blocks(self, text: &mut [u8], blocks: &[Block]) {
        // SAFETY: as above.
        unsafe { (self.0.xor_blocks)(text, blocks) }
    }

    /// See [`crate::aead::xor_texts`].
    #[inline]
    pub(crate) fn xor_texts(
        self,
        bytes: &mut [u8],
        keystream: &[Block],
        jobs: &[Job],
        runs: &[Run],
    ) {
        // SAFETY: as above.
        unsafe { (self.0.xor_texts)(bytes, keystream, jobs, runs) }
    }

    /// See [`crate::vector::Words::xor_padded`].
    #[inline]
    pub(crate) fn xor_padded(self, text: &mut [u8], block: &Block) -> Block {
        // SAFETY: as above.
        unsafe { (self.0.xor_padded)(text, block) }
    }

    /// See [`crate::vector::Words::padded`].
    #[inline]
    pub(crate) fn padded(self, text: &[u8]) -> Block {
        // SAFETY: as above.
        unsafe { (self.0.padded)(text) }
    }

    /// See [`crate::poly1305::tags`].
    ///
    /// # Safety
    ///
    /// As there.
    #[inline]
    pub(crate) unsafe fn tags(self, texts: &[Text], keys: &[[u8; 32]], tags: &mut [[u8; TAG_LEN]]) {
        // SAFETY: as above, and the caller vouches for the texts.
        unsafe { (self.0.tags)(texts, keys, tags) }
    }

    /// See [`crate::poly1305::tags_of_long`].
    ///
    /// # Safety
    ///
    /// As there.
    #[inline]
    pub(crate) unsafe fn tags_of_long(
        self,
        texts: &[Text],
        keys: &[[u8; 32]],
        tags: &mut [[u8; TAG_LEN]],
    ) {
        // SAFETY: as above, and the caller vouches for the texts.
        unsafe { (self.0.tags_of_long)(texts, keys, tags) }
    }

    /// See [`crate::poly1305::long`].
    #[inline]
    pub(crate) fn long(self, h: Number, blocks: &[[u8; 16]], r: &Multiplier) -> Number {
        // SAFETY: as above.
        unsafe { (self.0.long)(h, blocks, r) }
    }

    /// How many packets [`Set::short`] takes at most; 0 if it takes none.
    #[inline]
    pub(crate) fn short_lanes(self) -> usize {
        self.0.short.map_or(0, |(lanes, _)| lanes)
    }

    /// See [`crate::aead::short`].
    #[inline]
    pub(crate) fn short(
        self,
        bytes: &mut [u8],
        keys: &[Key],
        jobs: &[Job],
        outcomes: Option<&mut [Outcome]>,
    ) {
        let (_, short) = self.0.short.expect("lanes for short packets");
        // SAFETY: as above.
        unsafe { short(bytes, keys, jobs, outcomes) }
    }

    /// How many messages of SHA-256 are hashed at once.
    #[inline]
    pub(crate) fn hash_lanes(self) -> usize {
        self.0.hash_lanes
    }

    /// See [`crate::sha256::run`].
    ///
    /// # Safety
    ///
    /// As there.
    #[inline]
    pub(crate) unsafe fn hash_run(self, lanes: &mut Lanes) -> u32 {
        // SAFETY: as above, and the caller vouches for the blocks.
        unsafe { (self.0.hash_run)(lanes) }
    }

    /// See [`crate::sha256::hash_fixed`].
    #[inline]
    pub(crate) fn hash64(self) -> unsafe fn(*const [u8; 64], *mut Digest, usize) {
        self.0.hash64
    }

    /// See [`crate::sha256::hash_fixed`].
    #[inline]
    pub(crate) fn hash32(self) -> unsafe fn(*const [u8; 32], *mut Digest, usize) {
        self.0.hash32
    }

    /// The kernels that hash one message, or two.
    #[inline]
    pub(crate) fn serial(self) -> &'static Serial {
        (self.0.serial)()
    }

    /// What has been measured of these kernels.
    #[inline]
    pub(crate) fn measured(self) -> &'static Measured {
        &self.0.measured
    }
}

/// What takes messages one by one beside vectors that not every CPU of the target has:
/// the SHA instructions, or plain Rust.
#[cfg(target_arch = "x86_64")]
fn best_serial() -> &'static Serial {
    sha_ni::serial().unwrap_or(&SCALAR)
}

/// What runs on instructions for AES, or does without; a table of its own, as CPUs have
/// them or not beside one of those above. The functions must only be called where the
/// CPU has them, with jobs that lie in the buffer, and keys that are there.
#[allow(clippy::type_complexity, reason = "signatures, each used once")]
pub(crate) struct AesKernels {
    is_available: fn() -> bool,
    seal: unsafe fn(&mut [u8], Apart<'_>, &[&GcmKey], &[Job]),
    open: unsafe fn(&mut [u8], Apart<'_>, &[&GcmKey], &[Job], &mut [u64]),
    // These two check what they are given.
    masks: unsafe fn(&[u8], &[&AesKey], &[(u32, u32)], &mut [u64]),
    mask_headers: unsafe fn(&mut [u8], &[&AesKey], &[Header]),
    expand: unsafe fn(&[u8], &mut [[u8; 16]; 15]),
    powers: unsafe fn(&RoundKeys, &mut Powers),
}

/// Instructions for AES that this CPU has.
#[derive(Clone, Copy)]
pub(crate) struct AesSet(&'static AesKernels);

impl AesSet {
    /// All that there are, the most capable first, whether or not this CPU has them.
    pub(crate) const ALL: &[&'static AesKernels] = &[
        #[cfg(target_arch = "x86_64")]
        &vaes::KERNELS,
        #[cfg(target_arch = "x86_64")]
        &vaes256::KERNELS,
        #[cfg(target_arch = "x86_64")]
        &aes_ni::KERNELS,
        &AES_PORTABLE,
    ];

    /// Where in the list begins what goes with AVX2.
    #[cfg(target_arch = "x86_64")]
    pub(crate) const AVX2: usize = 1;

    /// Where it begins what every CPU has.
    pub(crate) const PORTABLE: usize = Self::ALL.len() - 1;

    /// The first from a place in the list on that this CPU has, and its place.
    pub(crate) fn first(from: usize) -> (usize, Self) {
        let mut rest = Self::ALL.iter().enumerate().skip(from);
        let found = rest.find(|(_, table)| (table.is_available)());
        let (place, table) = found.expect("the portable one is the last");
        (place, Self(table))
    }

    /// # Safety
    ///
    /// It must be the place of one that this CPU has.
    #[inline(always)]
    pub(crate) unsafe fn at(place: usize) -> Self {
        Self(Self::ALL[place])
    }

    /// See [`crate::aes_gcm::seal`].
    ///
    /// # Safety
    ///
    /// The jobs must lie in `bytes`, and their keys must be there. What lies `apart`
    /// must be that of the only job.
    #[inline]
    pub(crate) unsafe fn seal(
        self,
        bytes: &mut [u8],
        apart: Apart<'_>,
        keys: &[&GcmKey],
        jobs: &[Job],
    ) {
        // SAFETY: the CPU has the set, as it has in all of these, and the caller vouches
        // for the lists.
        unsafe { (self.0.seal)(bytes, apart, keys, jobs) }
    }

    /// See [`crate::aes_gcm::open`].
    ///
    /// # Safety
    ///
    /// As [`seal`](Self::seal).
    #[inline]
    pub(crate) unsafe fn open(
        self,
        bytes: &mut [u8],
        apart: Apart<'_>,
        keys: &[&GcmKey],
        jobs: &[Job],
        differences: &mut [u64],
    ) {
        // SAFETY: as above.
        unsafe { (self.0.open)(bytes, apart, keys, jobs, differences) }
    }

    /// See [`crate::Backend::aes_masks`].
    #[inline]
    pub(crate) fn masks(
        self,
        bytes: &[u8],
        keys: &[&AesKey],
        samples: &[(u32, u32)],
        masks: &mut [u64],
    ) {
        // SAFETY: as above.
        unsafe { (self.0.masks)(bytes, keys, samples, masks) }
    }

    /// See [`crate::Backend::aes_mask_headers`].
    #[inline]
    pub(crate) fn mask_headers(self, bytes: &mut [u8], keys: &[&AesKey], headers: &[Header]) {
        // SAFETY: as above.
        unsafe { (self.0.mask_headers)(bytes, keys, headers) }
    }

    /// See [`crate::aes_gcm::expand`].
    #[inline]
    pub(crate) fn expand(self, key: &[u8], keys: &mut [[u8; 16]; 15]) {
        // SAFETY: as above.
        unsafe { (self.0.expand)(key, keys) }
    }

    /// See [`crate::aes_gcm::powers`].
    #[inline]
    pub(crate) fn powers(self, keys: &RoundKeys, powers: &mut Powers) {
        // SAFETY: as above.
        unsafe { (self.0.powers)(keys, powers) }
    }
}

/// AES and GHASH without instructions for them.
static AES_PORTABLE: AesKernels = AesKernels {
    is_available: || true,
    seal: crate::aes_portable::seal,
    open: crate::aes_portable::open,
    masks: crate::aes_portable::masks,
    mask_headers: crate::aes_portable::mask_headers,
    expand: crate::aes_portable::expand,
    powers: crate::aes_portable::powers,
};

/// The portable backend: what every CPU of the target has. On x86-64 that is
/// SSE2, elsewhere plain Rust.
#[cfg(target_arch = "x86_64")]
pub(crate) use sse2::KERNELS as PORTABLE;

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use portable::KERNELS as PORTABLE;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::KERNELS as AVX2;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::KERNELS as AVX512;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::ifma::KERNELS as AVX512_IFMA;

/// A value that begins at a multiple of the largest register.
#[repr(align(64))]
pub(crate) struct Aligned<T>(pub(crate) T);

/// Compiles the kernels for an instruction set, from the proof that the CPU has
/// it. (Each is a function of its own, since what is inlined into another would be
/// compiled as often as that is.)
macro_rules! kernels {
    (
        |$proof:ident: $set:ident|
        words: $words:expr => $words_type:ty, rows: $rows:expr => $rows_type:ty,
        field: $field:expr => $field_type:ty, half: $half:expr,
        tag_step: $tag_step:literal,
        hash: $hash:expr => $hash_type:ty, serial: $serial:expr
        $(, features: $features:literal $(, $short:ident)?)?
    ) => {
        pub(crate) static KERNELS: crate::isa::Kernels = crate::isa::Kernels {
            is_available: $set::is_available,
            block_lanes: <$words_type as crate::vector::Words>::LANES,
            tag_lanes: <<$field_type as crate::poly1305::Field>::Longs
                as crate::vector::Longs>::LANES,
            tag_step: $tag_step,
            blocks: kernels!(@kernel $set, $($features)?,
                |$proof, blocks: &mut crate::chacha20::Blocks<'_>, lanes: usize|
                = blocks.run($words, lanes)),
            blocks_ahead: kernels!(@kernel $set, $($features)?,
                |$proof, key: &crate::Key, of: &[(u32, crate::Nonce)],
                 blocks: &mut [crate::Block]|
                = crate::chacha20::blocks_ahead($words, key, of, blocks)),
            masks: kernels!(@kernel $set, $($features)?,
                |$proof, samples: &crate::chacha20::Samples<'_>, lanes: usize,
                 words: &mut [[u32; crate::vector::MAX_LANES]; 2]|
                = samples.masks($words, lanes, words)),
            few_blocks: <$rows_type as crate::vector::Rows>::BLOCKS
                * <$rows_type as crate::vector::Rows>::BESIDE,
            few: kernels!(@kernel $set, $($features)?,
                |$proof, key: &crate::Key, row: &[u32; 4], count: usize,
                 blocks: &mut crate::chacha20::Keystream|
                = crate::chacha20::few($rows, (key, row), count, blocks, 0, &mut ())),
            few_beside: if <$rows_type as crate::vector::Rows>::BESIDE == 3 {
                Some(kernels!(@kernel $set, $($features)?,
                    |$proof, of: (&crate::Key, &[u32; 4]), count: usize,
                     blocks: &mut crate::chacha20::Keystream, at: usize,
                     tagger: &mut crate::poly1305::Tagger,
                     text: &[[u8; crate::TAG_LEN]]| -> [usize]
                    = crate::aead::few_beside($rows, of, count, blocks, at, tagger, text)))
            } else {
                None
            },
            few_measured: crate::measure::Measured::not_yet(),
            xor_keystream: kernels!(@kernel $set, $($features)?,
                |$proof, key: &crate::Key, nonce: &crate::Nonce, counter: u32, text: &mut [u8]|
                = crate::chacha20::xor_keystream($words, key, nonce, counter, text)),
            xor_two: kernels!(@kernel $set, $($features)?,
                |$proof, bytes: &mut [u8], stretches: [crate::chacha20::Stretch<'_>; 2]|
                = crate::chacha20::xor_two(
                    crate::vector::Words::narrow($words), bytes, stretches
                )),
            xor_blocks: kernels!(@kernel $set, $($features)?,
                |$proof, text: &mut [u8], blocks: &[crate::Block]|
                = crate::chacha20::xor_blocks($words, text, blocks)),
            xor_texts: kernels!(@kernel $set, $($features)?,
                |$proof, bytes: &mut [u8], keystream: &[crate::Block], jobs: &[crate::Job],
                 runs: &[crate::aead::Run]|
                = crate::aead::xor_texts($words, bytes, keystream, jobs, runs)),
            xor_padded: kernels!(@kernel $set, $($features)?,
                |$proof, text: &mut [u8], block: &crate::Block| -> [crate::Block]
                = crate::vector::Words::xor_padded($words, text, block)),
            padded: kernels!(@kernel $set, $($features)?,
                |$proof, text: &[u8]| -> [crate::Block]
                = crate::vector::Words::padded($words, text)),
            tags: kernels!(@kernel $set, $($features)?,
                |$proof, texts: &[crate::poly1305::Text], keys: &[[u8; 32]],
                 tags: &mut [[u8; crate::TAG_LEN]]|
                // SAFETY: the caller vouches for the texts.
                = unsafe { crate::poly1305::tags($field, texts, keys, tags) }),
            tags_of_long: kernels!(@kernel $set, $($features)?,
                |$proof, texts: &[crate::poly1305::Text], keys: &[[u8; 32]],
                 tags: &mut [[u8; crate::TAG_LEN]]|
                // SAFETY: the caller vouches for the texts.
                = unsafe { crate::poly1305::tags_of_long($field, texts, keys, tags) }),
            long: kernels!(@kernel $set, $($features)?,
                |$proof, h: crate::poly1305::Number, blocks: &[[u8; 16]],
                 r: &crate::poly1305::Multiplier| -> [crate::poly1305::Number]
                = crate::poly1305::long($half, $field, h, blocks, r)),
            short: kernels!(@option $($((
                <<$words_type as crate::vector::Words>::Narrow as crate::vector::Words>::LANES,
                kernels!(@kernel $set, $features,
                    |$proof, bytes: &mut [u8], keys: &[crate::Key], jobs: &[crate::Job],
                     outcomes: Option<&mut [crate::Outcome]>|
                    = crate::aead::$short(
                        crate::vector::Words::narrow($words), $field, bytes, keys, jobs, outcomes
                    )),
            ))?)?),
            hash_lanes: <$hash_type as crate::vector::Words>::LANES,
            hash_run: kernels!(@kernel $set, $($features)?,
                |$proof, lanes: &mut crate::sha256::Lanes| -> [u32]
                // SAFETY: the caller vouches for the blocks.
                = unsafe { crate::sha256::run($hash, lanes) }),
            hash64: kernels!(@kernel $set, $($features)?,
                |$proof, messages: *const [u8; 64], digests: *mut crate::Digest, count: usize|
                // SAFETY: the caller vouches for messages and digests.
                = unsafe { crate::sha256::hash_fixed($hash, messages, digests, count) }),
            hash32: kernels!(@kernel $set, $($features)?,
                |$proof, messages: *const [u8; 32], digests: *mut crate::Digest, count: usize|
                // SAFETY: the caller vouches for messages and digests.
                = unsafe { crate::sha256::hash_fixed($hash, messages, digests, count) }),
            serial: $serial,
            measured: crate::measure::Measured::not_yet(),
        };
    };
    (@option) => {
        None
    };
    (@option $some:expr) => {
        Some($some)
    };
    (@kernel $set:ident, $($features:literal)?, |$proof:ident $(, $arg:ident: $type:ty)*|
        $(-> [$result:ty])? = $body:expr) => {{
        $(#[target_feature(enable = $features)])?
        #[allow(unused_variables, reason = "not every kernel needs the proof")]
        unsafe fn kernel($($arg: $type),*) $(-> $result)? {
            // Makes the stack begin at a multiple of the largest register: otherwise
            // registers that are kept there lie across cache lines every other time
            // that a program starts, for twice the time.
            let frame = crate::isa::Aligned(0_u8);
            core::hint::black_box(&frame);
            // SAFETY: the caller vouches for the CPU.
            let $proof = unsafe { $set::assume() };
            $body
        }
        kernel
    }};
}

/// The same for [`AesKernels`].
#[cfg(target_arch = "x86_64")]
macro_rules! aes_kernels {
    (
        |$proof:ident: $set:ident|
        features: $features:literal
    ) => {
        pub(crate) static KERNELS: crate::isa::AesKernels = crate::isa::AesKernels {
            is_available: $set::is_available,
            seal: kernels!(@kernel $set, $features,
                |$proof, bytes: &mut [u8], apart: crate::aes_gcm::Apart<'_>,
                 keys: &[&crate::GcmKey], jobs: &[crate::Job]|
                // SAFETY: the caller vouches for the jobs.
                = unsafe { crate::aes_gcm::seal_all($proof, bytes, apart, keys, jobs) }),
            open: kernels!(@kernel $set, $features,
                |$proof, bytes: &mut [u8], apart: crate::aes_gcm::Apart<'_>,
                 keys: &[&crate::GcmKey], jobs: &[crate::Job], differences: &mut [u64]|
                // SAFETY: the caller vouches for the jobs.
                = unsafe {
                    crate::aes_gcm::open_all($proof, bytes, apart, keys, jobs, differences)
                }),
            masks: kernels!(@kernel $set, $features,
                |$proof, bytes: &[u8], keys: &[&crate::AesKey], samples: &[(u32, u32)],
                 masks: &mut [u64]|
                = crate::aes_gcm::all_masks($proof, bytes, keys, samples, masks)),
            mask_headers: kernels!(@kernel $set, $features,
                |$proof, bytes: &mut [u8], keys: &[&crate::AesKey], headers: &[crate::Header]|
                = crate::aes_gcm::mask_all($proof, bytes, keys, headers)),
            expand: kernels!(@kernel $set, $features,
                |$proof, key: &[u8], keys: &mut [[u8; 16]; 15]|
                = crate::aes_gcm::expand($proof, key, keys)),
            powers: kernels!(@kernel $set, $features,
                |$proof, keys: &crate::aes_gcm::RoundKeys, powers: &mut crate::aes_gcm::Powers|
                = crate::aes_gcm::powers($proof, keys, powers)),
        };
    };
}

#[cfg(target_arch = "x86_64")]
mod aes_ni;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod portable;
#[cfg(target_arch = "x86_64")]
mod sha_ni;
#[cfg(target_arch = "x86_64")]
mod sse2;
#[cfg(target_arch = "x86_64")]
mod vaes;
#[cfg(target_arch = "x86_64")]
mod vaes256;

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    extern crate std;
    use super::*;

    /// Tests and figures of a table that is never found say nothing, and nothing says so.
    #[test]
    fn every_table_is_found_where_the_cpu_has_its_instructions() {
        macro_rules! has {
            ($($name:tt)*) => { $(std::is_x86_feature_detected!($name))&&* };
        }
        let aes_ni = has!("avx2" "aes" "pclmulqdq");
        let vector_aes = has!("vaes" "vpclmulqdq");
        let avx512 = has!("avx512f" "avx512bw" "avx512vl");
        for (name, found, has) in [
            ("AVX2", AVX2.is_available(), has!("avx2" "bmi2")),
            ("AVX-512", AVX512.is_available(), avx512),
            (
                "AVX-512 with IFMA",
                AVX512_IFMA.is_available(),
                avx512 && has!("avx512ifma"),
            ),
            ("AES-NI", (aes_ni::KERNELS.is_available)(), aes_ni),
            (
                "VAES of 256 bits",
                (vaes256::KERNELS.is_available)(),
                aes_ni && vector_aes,
            ),
            (
                "VAES of 512 bits",
                (vaes::KERNELS.is_available)(),
                avx512 && has!("bmi2") && vector_aes,
            ),
            (
                "SHA-NI",
                sha_ni::serial().is_some(),
                has!("sha" "sse4.1" "ssse3"),
            ),
        ] {
            assert_eq!(found, has, "{name}");
        }
    }
}
