//! The table of kernels that is compiled for each instruction set, and the only place that
//! declares a kernel.
//!
//! [`kernel_list!`] and [`aes_kernel_list!`] give each kernel once: its name, arguments and
//! the generic function that it is. From that, [`declare_table!`] makes the field of the
//! table and the method that calls it, and [`kernels!`] the function that is compiled with
//! an instruction set enabled. (Each is a function of its own, since what is inlined into
//! another would be compiled as often as that is.)

pub(super) use super::set::InstructionSet;
pub(super) use crate::calibrate::Calibrated;
pub(super) use crate::job::{Block, Digest, Header, Job, Key, Nonce, Outcome, TAG_LEN};
pub(super) use crate::kernels::aes::gcm::{self, Detached};
pub(super) use crate::kernels::aes::key::{self, AesKey, GcmKey, Powers, RoundKeys};
pub(super) use crate::kernels::aes::{bitsliced, ghash, mask};
pub(super) use crate::kernels::chacha20::{
    self, Blocks, CounterRow, HalfRun, Keystream, Run, Samples,
};
pub(super) use crate::kernels::chacha20poly1305;
pub(super) use crate::kernels::poly1305::field::{Field, Number};
pub(super) use crate::kernels::poly1305::state::{Multiplier, Poly1305};
pub(super) use crate::kernels::poly1305::text::Text;
pub(super) use crate::kernels::poly1305::{in_four_lanes, in_lanes, over_lanes};
pub(super) use crate::kernels::sha256::{self, Lanes, Serial};
pub(super) use crate::vector::{MAX_LANES, Rows, U32Lanes, U64Lanes};

/// The kernels that every instruction set has: `I` is the instruction set, `isa` the proof
/// that this CPU has it. The methods of an `unsafe fn` ask of the caller what the function
/// that they name asks.
macro_rules! kernel_list {
    ($callback:ident $($argument:tt)*) => { $callback! { $($argument)*
        const {
            /// How many blocks of ChaCha20 one call computes in lanes.
            block_lanes: usize = <<I as InstructionSet>::Lanes as U32Lanes>::LANES;
            /// How many neighbouring blocks of one packet one call computes in rows.
            row_blocks: usize = <<I as InstructionSet>::Rows as Rows>::BLOCKS * I::INTERLEAVED_ROWS;
            /// Whether Poly1305 is stitched into the rounds of [`Set::stitched_rows`].
            is_stitched: bool = I::STITCHED;
            /// Whether loads and stores have masks for bytes.
            has_byte_masks: bool = I::BYTE_MASKS;
            /// How many messages one call tags; 1 if there are no vectors for it.
            tag_lanes: usize = <<<I as InstructionSet>::Field as Field>::Lanes as U64Lanes>::LANES;
            /// How long a step of tags in lanes takes, in tenths of a step of one message.
            tag_step: usize = I::TAG_STEP;
            /// How many packets [`Set::short`] takes at most; 0 if there is no such kernel.
            short_lanes: usize = I::SHORT_LANES;
            /// How many messages of SHA-256 one call hashes.
            hash_lanes: usize = <<I as InstructionSet>::Hash as U32Lanes>::LANES;
            /// Gives the kernels that hash one message, or two.
            serial_hash: fn() -> &'static Serial = I::serial_hash;
        }
        calibrated {
            /// Which of two ways computes few blocks of one packet faster.
            tuning,
            /// From how many messages on SHA-256 is faster in lanes.
            hash_threshold,
        }

        /// See [`Blocks::run`].
        safe fn blocks(blocks: &mut Blocks<'_>, lanes: usize) {
            |isa| blocks.run(isa.lanes(), lanes)
        }
        /// See [`chacha20::blocks_of_key`].
        safe fn blocks_of_key(key: &Key, of: &[(u32, Nonce)], blocks: &mut [Block]) {
            |isa| chacha20::blocks_of_key(isa.lanes(), key, of, blocks)
        }
        /// See [`Samples::masks`].
        safe fn masks(samples: &Samples<'_>, lanes: usize, words: &mut [[u32; MAX_LANES]; 2]) {
            |isa| samples.masks(isa.lanes(), lanes, words)
        }
        /// See [`chacha20::rows`]. At most [`Set::row_blocks`] blocks.
        safe fn rows(key: &Key, row: &CounterRow, count: usize, keystream: &mut Keystream) {
            |isa| chacha20::rows::<_, _, { I::INTERLEAVED_ROWS }>(
                isa.rows(), (key, row), count, keystream, 0, &mut ()
            )
        }
        /// See [`chacha20poly1305::stitched_rows`]. At most [`Set::row_blocks`] blocks, and
        /// only where it [`is_stitched`](Set::is_stitched).
        safe fn stitched_rows(
            of: (&Key, &CounterRow), count: usize, keystream: &mut Keystream, at: usize,
            poly1305: &mut Poly1305, text: &[[u8; TAG_LEN]]
        ) -> usize {
            |isa| if I::STITCHED {
                chacha20poly1305::stitched_rows::<_, { I::INTERLEAVED_ROWS }>(
                    isa.rows(), of, count, keystream, at, poly1305, text
                )
            } else {
                unreachable!("not stitched")
            }
        }
        /// See [`chacha20::xor_keystream`].
        safe fn xor_keystream(key: &Key, nonce: &Nonce, counter: u32, text: &mut [u8]) {
            |isa| chacha20::xor_keystream(isa.lanes(), key, nonce, counter, text)
        }
        /// See [`chacha20::xor_half_runs`]. Half of [`Set::block_lanes`] in each.
        safe fn xor_half_runs(bytes: &mut [u8], runs: [HalfRun<'_>; 2]) {
            |isa| chacha20::xor_half_runs(isa.lanes().narrow(), bytes, runs)
        }
        /// See [`chacha20::xor_blocks`].
        safe fn xor_blocks(text: &mut [u8], blocks: &[Block]) {
            |isa| chacha20::xor_blocks(isa.lanes(), text, blocks)
        }
        /// See [`chacha20::xor_runs`].
        safe fn xor_runs(bytes: &mut [u8], keystream: &[Block], jobs: &[Job], runs: &[Run]) {
            |isa| chacha20::xor_runs(isa.lanes(), bytes, keystream, jobs, runs)
        }
        /// See [`U32Lanes::xor_padded`].
        safe fn xor_padded(text: &mut [u8], block: &Block) -> Block {
            |isa| isa.lanes().xor_padded(text, block)
        }
        /// See [`U32Lanes::padded`].
        safe fn padded(text: &[u8]) -> Block {
            |isa| isa.lanes().padded(text)
        }
        /// See [`in_lanes::tags`].
        unsafe fn tags(texts: &[Text], keys: &[[u8; 32]], tags: &mut [[u8; TAG_LEN]]) {
            // SAFETY: the caller vouches for the texts.
            |isa| unsafe { in_lanes::tags(isa.field(), texts, keys, tags) }
        }
        /// See [`in_four_lanes::tags`].
        unsafe fn tags_in_four_lanes(
            texts: &[Text], keys: &[[u8; 32]], tags: &mut [[u8; TAG_LEN]]
        ) {
            // SAFETY: the caller vouches for the texts.
            |isa| unsafe { in_four_lanes::tags(isa.field(), texts, keys, tags) }
        }
        /// See [`over_lanes::absorb`].
        safe fn absorb_over_lanes(h: Number, blocks: &[[u8; 16]], r: &Multiplier) -> Number {
            |isa| over_lanes::absorb(isa.half_field(), h, blocks, r)
        }
        /// See [`chacha20poly1305::short`]. At most [`Set::short_lanes`] jobs.
        safe fn short(
            bytes: &mut [u8], keys: &[Key], jobs: &[Job], outcomes: Option<&mut [Outcome]>
        ) {
            |isa| isa.short(bytes, keys, jobs, outcomes)
        }
        /// See [`sha256::run`].
        unsafe fn hash_run(lanes: &mut Lanes) -> u32 {
            // SAFETY: the caller vouches for the blocks.
            |isa| unsafe { sha256::run(isa.hash(), lanes) }
        }
        /// See [`sha256::hash_fixed`].
        unsafe fn hash64(messages: *const [u8; 64], digests: *mut Digest, count: usize) {
            // SAFETY: the caller vouches for messages and digests.
            |isa| unsafe { sha256::hash_fixed(isa.hash(), messages, digests, count) }
        }
        /// See [`sha256::hash_fixed`].
        unsafe fn hash32(messages: *const [u8; 32], digests: *mut Digest, count: usize) {
            // SAFETY: the caller vouches for messages and digests.
            |isa| unsafe { sha256::hash_fixed(isa.hash(), messages, digests, count) }
        }
    } };
}

/// The kernels of AES: a table of its own, since a CPU has its instructions or not beside
/// any of those above. Behind `=>` stands what does without instructions for AES.
macro_rules! aes_kernel_list {
    ($callback:ident $($argument:tt)*) => { $callback! { $($argument)*
        const {}
        calibrated {}

        /// See [`gcm::seal_all`].
        unsafe fn seal(bytes: &mut [u8], detached: Detached<'_>, keys: &[&GcmKey], jobs: &[Job]) {
            // SAFETY: the caller vouches for the jobs.
            |isa| unsafe { gcm::seal_all(isa, bytes, detached, keys, jobs) }
        } => bitsliced::seal
        /// See [`gcm::open_all`].
        unsafe fn open(
            bytes: &mut [u8], detached: Detached<'_>, keys: &[&GcmKey], jobs: &[Job],
            differences: &mut [u64]
        ) {
            // SAFETY: the caller vouches for the jobs.
            |isa| unsafe { gcm::open_all(isa, bytes, detached, keys, jobs, differences) }
        } => bitsliced::open
        /// See [`mask::all_masks`].
        safe fn masks(
            bytes: &[u8], keys: &[&AesKey], samples: &[(u32, u32)], masks: &mut [u64]
        ) {
            |isa| mask::all_masks(isa, bytes, keys, samples, masks)
        } => bitsliced::masks
        /// See [`mask::mask_all`].
        safe fn mask_headers(bytes: &mut [u8], keys: &[&AesKey], headers: &[Header]) {
            |isa| mask::mask_all(isa, bytes, keys, headers)
        } => bitsliced::mask_headers
        /// See [`key::expand`].
        safe fn expand(key: &[u8], keys: &mut [[u8; 16]; 15]) {
            |isa| key::expand(isa, key, keys)
        } => bitsliced::expand
        /// See [`ghash::powers`].
        safe fn powers(keys: &RoundKeys, powers: &mut Powers) {
            |isa| ghash::powers(isa, keys, powers)
        } => bitsliced::powers
    } };
}

/// From a list of kernels, the table and its methods.
macro_rules! declare_table {
    (
        $(#[$table_doc:meta])* $table:ident, $(#[$set_doc:meta])* $set:ident;
        const { $($(#[$const_doc:meta])* $const:ident: $const_type:ty = $value:expr;)* }
        calibrated { $($(#[$calibrated_doc:meta])* $calibrated:ident,)* }
        $(
            $(#[$doc:meta])*
            $safety:ident fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)? {
                |$isa:ident| $body:expr
            } $(=> $or:path)?
        )*
    ) => {
        $(#[$table_doc])*
        #[allow(clippy::type_complexity, reason = "signatures, each used once")]
        pub(crate) struct $table {
            pub(super) is_available: fn() -> bool,
            $(pub(super) $const: $const_type,)*
            $(pub(super) $calibrated: Calibrated,)*
            $(pub(super) $name: unsafe fn($($type),*) $(-> $result)?,)*
        }

        impl $table {
            /// Whether this CPU has the instruction set.
            #[inline(always)]
            pub(crate) fn is_available(&self) -> bool {
                (self.is_available)()
            }
        }

        $(#[$set_doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $set(&'static $table);

        impl $set {
            /// # Safety
            ///
            /// This CPU must have the instruction set of the table.
            #[inline(always)]
            pub(crate) unsafe fn assume(table: &'static $table) -> Self {
                Self(table)
            }

            $(
                $(#[$const_doc])*
                #[inline(always)]
                pub(crate) fn $const(self) -> $const_type {
                    self.0.$const
                }
            )*
            $(
                $(#[$calibrated_doc])*
                #[inline(always)]
                pub(crate) fn $calibrated(self) -> &'static Calibrated {
                    &self.0.$calibrated
                }
            )*
            $(declare_table!(
                @method $safety [$(#[$doc])*] $name($($arg: $type),*) ($(-> $result)?)
            );)*
        }
    };
    (@method safe [$(#[$doc:meta])*] $name:ident($($arg:ident: $type:ty),*) ($(-> $result:ty)?)) => {
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $name(self, $($arg: $type),*) $(-> $result)? {
            // SAFETY: whoever made this set vouched for the CPU.
            unsafe { (self.0.$name)($($arg),*) }
        }
    };
    (@method unsafe [$(#[$doc:meta])*] $name:ident($($arg:ident: $type:ty),*) ($(-> $result:ty)?)) => {
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// As there.
        #[inline(always)]
        pub(crate) unsafe fn $name(self, $($arg: $type),*) $(-> $result)? {
            // SAFETY: as above, and the caller vouches for the arguments.
            unsafe { (self.0.$name)($($arg),*) }
        }
    };
}

/// From a list of kernels, the table of an instruction set.
macro_rules! define_table {
    (
        $table:ident, $set:ty, $features:tt;
        const { $($(#[$const_doc:meta])* $const:ident: $const_type:ty = $value:expr;)* }
        calibrated { $($(#[$calibrated_doc:meta])* $calibrated:ident,)* }
        $(
            $(#[$doc:meta])*
            $safety:ident fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)? {
                |$isa:ident| $body:expr
            } $(=> $or:path)?
        )*
    ) => {
        pub(crate) static KERNELS: $table = {
            #[allow(dead_code, reason = "the kernels of AES do not name it")]
            type I = $set;
            $table {
                is_available: <$set>::is_available,
                $($const: $value,)*
                $($calibrated: Calibrated::new(),)*
                $($name: define_table!(
                    @entry $features $set, ($($arg: $type),*) ($(-> $result)?) |$isa| $body
                ),)*
            }
        };
    };
    (@entry ($($features:literal)?) $set:ty, ($($arg:ident: $type:ty),*) ($(-> $result:ty)?)
        |$isa:ident| $body:expr
    ) => {{
        $(#[target_feature(enable = $features)])?
        #[allow(unused_variables, reason = "not every kernel needs the proof")]
        unsafe fn kernel($($arg: $type),*) $(-> $result)? {
            // Aligns the stack to the largest register. Otherwise, in every other run of a
            // program, registers that are kept there lie across cache lines, for twice the
            // time.
            let frame = crate::vector::Aligned(0_u8);
            core::hint::black_box(&frame);
            // SAFETY: the caller vouches for the CPU.
            let $isa = unsafe { <$set>::assume() };
            $body
        }
        kernel
    }};
}

/// The table of what does without instructions.
macro_rules! define_table_without_instructions {
    (
        $table:ident;
        const {}
        calibrated {}
        $(
            $(#[$doc:meta])*
            $safety:ident fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)? {
                |$isa:ident| $body:expr
            } => $or:path
        )*
    ) => {
        pub(super) static AES_PORTABLE: $table = $table {
            is_available: || true,
            $($name: $or,)*
        };
    };
}

/// Compiles the kernels for an instruction set.
macro_rules! kernels {
    ($set:ty $(, $features:literal)?) => {
        mod table {
            #[allow(clippy::wildcard_imports, reason = "what the list of kernels names")]
            use crate::isa::table::*;
            use super::*;

            kernel_list!(define_table Kernels, $set, ($($features)?););
        }
        pub(crate) use table::KERNELS;
    };
}

/// The same for AES.
#[cfg(target_arch = "x86_64")]
macro_rules! aes_kernels {
    ($set:ty, $features:literal) => {
        mod table {
            #[allow(clippy::wildcard_imports, reason = "what the list of kernels names")]
            use crate::isa::table::*;
            use super::*;

            aes_kernel_list!(define_table AesKernels, $set, ($features););
        }
        pub(crate) use table::KERNELS;
    };
}

kernel_list!(declare_table
    /// What runs in vectors, compiled for one instruction set. The functions must only be
    /// called where the CPU has it.
    Kernels,
    /// The kernels of an instruction set that this CPU has.
    Set;
);

aes_kernel_list!(declare_table
    /// What runs on instructions for AES, or does without. The functions must only be called
    /// where the CPU has them.
    AesKernels,
    /// The kernels of AES that this CPU has.
    AesSet;
);

aes_kernel_list!(define_table_without_instructions AesKernels;);
