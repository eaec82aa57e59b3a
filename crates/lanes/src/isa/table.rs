//! The table of kernels that is compiled for each instruction set. This is the only place that
//! declares kernels.
//!
//! `kernel_list!` and `aes_kernel_list!` list each kernel once, with its name, its arguments and
//! the generic function that it calls. From these lists, `declare_table!` generates the fields of
//! the table and the methods that call them, and `kernels!` generates the functions, compiled with
//! the instruction set enabled. Each kernel is a function of its own; inlined into its callers, it
//! would be compiled again for each of them.

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
pub(super) use crate::kernels::poly1305::state::{Multiplier, Poly1305, Unhashed};
pub(super) use crate::kernels::poly1305::text::Text;
pub(super) use crate::kernels::poly1305::{in_four_lanes, in_lanes, over_lanes};
pub(super) use crate::kernels::secp256k1;
pub(super) use crate::kernels::secp256k1::swift::{self, Try};
pub(super) use crate::kernels::secp256k1::words::Words;
pub(super) use crate::kernels::sha256::{self, Lanes, Serial};
pub(super) use crate::vector::{MAX_LANES, Rows, U32Lanes, U64Lanes};
pub(super) use core::ops::Range;

/// The kernels that every instruction set has. `I` is the instruction set, and `isa` the proof that
/// this CPU supports it. A method generated from an `unsafe fn` has the safety conditions of the
/// function that its documentation names.
macro_rules! kernel_list {
    ($callback:ident $($argument:tt)*) => { $callback! { $($argument)*
        const {
            /// How many ChaCha20 blocks one call computes in lanes.
            block_lanes: usize = <<I as InstructionSet>::Lanes as U32Lanes>::LANES;
            /// How many blocks the stitched kernels of long packets compute in lanes at a time.
            narrow_lanes: usize =
                <<<I as InstructionSet>::Lanes as U32Lanes>::Narrow as U32Lanes>::LANES;
            /// How many consecutive blocks of one packet the vectors of one call of [`Set::rows`]
            /// hold.
            row_blocks: usize = if I::ROWS_IN_LANES {
                <<I as InstructionSet>::Lanes as U32Lanes>::LANES
            } else {
                <<I as InstructionSet>::Rows as Rows>::BLOCKS * I::INTERLEAVED_ROWS
            };
            /// Maximum number of blocks per call of [`Set::rows`]; see [`chacha20::max_in_rows`].
            max_in_rows: usize = if I::ROWS_IN_LANES {
                <<I as InstructionSet>::Lanes as U32Lanes>::LANES
            } else {
                chacha20::max_in_rows::<
                    <I as InstructionSet>::Rows, { I::INTERLEAVED_ROWS }
                >()
            };
            /// Whether packets are faster with Poly1305 stitched into the rounds.
            is_stitched: bool = I::STITCHED;
            /// How many messages one call tags; 1 if there are no vectors for tags.
            tag_lanes: usize = <<<I as InstructionSet>::Field as Field>::Lanes as U64Lanes>::LANES;
            /// The time of one step of all lanes of tags, in tenths of a step of one message.
            tag_step: usize = I::TAG_STEP;
            /// How many packets [`Set::short`] takes at a time; 0 if there is no such kernel.
            short_lanes: usize = I::SHORT_LANES;
            /// Minimum number of packets for which [`Set::short`] is faster than other strategies.
            min_short: usize = I::MIN_SHORT;
            /// Whether there is a kernel for [`Set::stitched_lanes`].
            stitches_lanes: bool = I::STITCHES_LANES;
            /// How many packets [`Set::lockstep`] takes; 0 if there is no such kernel.
            lockstep_lanes: usize = I::LOCKSTEP_LANES;
            /// How many secp256k1 keys one call computes at a time.
            curve_lanes: usize =
                <<I as InstructionSet>::Curve as secp256k1::field::Field>::LANES;
            /// How many SHA-256 messages one call hashes.
            hash_lanes: usize = <<I as InstructionSet>::Hash as U32Lanes>::LANES;
            /// How many messages it hashes in half of the lanes, in less time; `hash_lanes` if half
            /// the lanes are not faster.
            half_hash_lanes: usize = <<I as InstructionSet>::HalfHash as U32Lanes>::LANES;
            /// Returns the kernels that hash one message, or two interleaved.
            serial_hash: fn() -> &'static Serial = I::serial_hash;
        }
        calibrated {
            /// Which of two methods is faster for a few blocks of one packet.
            tuning,
            /// Minimum number of messages for which SHA-256 is faster in lanes.
            hash_threshold,
            /// Minimum number of messages for which all lanes are faster than half of them.
            all_hash_lanes_threshold,
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
        /// See [`chacha20::rows_or_scalar`] and [`chacha20::rows_in_lanes`]. Computes at most
        /// [`Set::max_in_rows`] blocks.
        safe fn rows(key: &Key, row: &CounterRow, count: usize, keystream: &mut Keystream) {
            |isa| if I::ROWS_IN_LANES {
                chacha20::rows_in_lanes::<_, _, _, { I::INTERLEAVED_ROWS }>(
                    (isa.lanes(), isa.rows()), (key, row), count, keystream, 0, &mut ()
                )
            } else {
                chacha20::rows_or_scalar::<_, { I::INTERLEAVED_ROWS }>(
                    isa.rows(), (key, row), count, keystream
                )
            }
        }
        /// See [`chacha20poly1305::stitched_rows`]. Computes at most [`Set::row_blocks`] blocks.
        safe fn stitched_rows(
            of: (&Key, &CounterRow), count: usize, keystream: &mut Keystream, at: usize,
            poly1305: &mut Poly1305, text: &[[u8; TAG_LEN]]
        ) -> usize {
            |isa| if I::ROWS_IN_LANES {
                chacha20poly1305::stitched_rows_in_lanes::<_, _, { I::INTERLEAVED_ROWS }>(
                    (isa.lanes(), isa.rows()), of, count, keystream, at, poly1305, text
                )
            } else {
                chacha20poly1305::stitched_rows::<_, { I::INTERLEAVED_ROWS }>(
                    isa.rows(), of, count, keystream, at, poly1305, text
                )
            }
        }
        /// See [`chacha20poly1305::seal_stitched`]. Panics unless
        /// [`is_stitched`](Set::is_stitched).
        safe fn seal_stitched(
            of: (&Key, &CounterRow), text: &mut [Block], done: (usize, usize),
            poly1305: &mut Poly1305, other: Option<&mut Unhashed<'_>>
        ) -> (usize, usize) {
            |isa| if I::STITCHED {
                chacha20poly1305::seal_stitched(
                    isa.lanes().narrow(), of, text, done, poly1305, other
                )
            } else {
                unreachable!("this instruction set is not stitched")
            }
        }
        /// See [`chacha20poly1305::open_stitched`]. Panics unless
        /// [`is_stitched`](Set::is_stitched).
        safe fn open_stitched(
            of: (&Key, &CounterRow), text: &mut [Block], opened: Range<usize>, hashed: usize,
            poly1305: &mut Poly1305
        ) -> usize {
            |isa| if I::STITCHED {
                chacha20poly1305::open_stitched(
                    isa.lanes().narrow(), of, text, opened, hashed, poly1305
                )
            } else {
                unreachable!("this instruction set is not stitched")
            }
        }
        /// See [`chacha20::xor_keystream`].
        safe fn xor_keystream(
            key: &Key, nonce: &Nonce, counter: u32, source: Option<&[u8]>, text: &mut [u8]
        ) {
            |isa| chacha20::xor_keystream(isa.lanes(), key, nonce, counter, source, text)
        }
        /// See [`chacha20::xor_half_runs`]. Each run is half of [`Set::block_lanes`].
        safe fn xor_half_runs(bytes: &mut [u8], runs: [HalfRun<'_>; 2]) {
            |isa| {
                const {
                    type Lanes = <I as InstructionSet>::Lanes;
                    assert!(Lanes::LANES == 2 * <Lanes as U32Lanes>::Narrow::LANES);
                }
                chacha20::xor_half_runs(isa.lanes().narrow(), bytes, runs)
            }
        }
        /// See [`chacha20::xor_blocks`].
        safe fn xor_blocks(text: &mut [u8], blocks: &[Block]) {
            |isa| chacha20::xor_blocks(isa.lanes(), text, blocks)
        }
        /// See [`chacha20::xor_runs`].
        safe fn xor_runs(
            bytes: &mut [u8], keystream: &[Block], jobs: &[Job], runs: &[Run], are_scattered: bool
        ) {
            |isa| chacha20::xor_runs(isa.lanes(), bytes, keystream, jobs, runs, are_scattered)
        }
        /// See [`in_lanes::tags`].
        unsafe fn tags(texts: &[Text], keys: &[[u8; 32]], tags: &mut [[u8; TAG_LEN]]) {
            // SAFETY: the method has the safety conditions of this function.
            |isa| unsafe { in_lanes::tags(isa.field(), texts, keys, tags) }
        }
        /// See [`in_four_lanes::tags`].
        unsafe fn tags_in_four_lanes(
            texts: &[Text], keys: &[[u8; 32]], tags: &mut [[u8; TAG_LEN]]
        ) {
            // SAFETY: the method has the safety conditions of this function.
            |isa| unsafe { in_four_lanes::tags(isa.field(), texts, keys, tags) }
        }
        /// See [`over_lanes::absorb`].
        safe fn absorb_over_lanes(h: Number, blocks: &[[u8; 16]], r: &Multiplier) -> Number {
            |isa| over_lanes::absorb(isa.half_field(), h, blocks, r)
        }
        /// See [`chacha20poly1305::short`].
        safe fn short(
            bytes: &mut [u8], keys: &[Key], jobs: &[Job], outcomes: Option<&mut [Outcome]>
        ) {
            |isa| isa.short(bytes, keys, jobs, outcomes)
        }
        /// See [`stitched_lanes`](crate::kernels::stitched_lanes::stitched_lanes).
        safe fn stitched_lanes(
            bytes: &mut [u8], keys: &[Key], jobs: &[Job], outcomes: Option<&mut [Outcome]>
        ) {
            |isa| isa.stitched_lanes(bytes, keys, jobs, outcomes)
        }
        /// See [`chacha20poly1305::lockstep`].
        safe fn lockstep(
            bytes: &mut [u8], keys: &[Key], jobs: &[Job], sources: &[&[u8]],
            outcomes: Option<&mut [Outcome]>
        ) {
            |isa| isa.lockstep(bytes, keys, jobs, sources, outcomes)
        }
        /// See [`secp256k1::public_keys`].
        safe fn public_keys(secrets: &[&[u8; 32]], keys: &mut [[Words; 2]]) {
            |isa| secp256k1::public_keys(isa.curve(), secrets, keys)
        }
        /// See [`secp256k1::shared_x`].
        safe fn shared_x(
            secrets: &[&[u8; 32]], encodings: &[&[u8; 64]], shared: &mut [[u8; 32]]
        ) {
            |isa| secp256k1::shared_x(isa.curve(), secrets, encodings, shared)
        }
        /// See [`swift::begin`].
        safe fn begin_encoding(tries: &mut [Try], passed: &mut [bool]) {
            |isa| swift::begin(isa.curve(), tries, passed)
        }
        /// See [`swift::finish`].
        safe fn finish_encoding(tries: &[Try], found: &mut [Option<Words>]) {
            |isa| swift::finish(isa.curve(), tries, found)
        }
        /// See [`sha256::run`].
        unsafe fn hash_run(lanes: &mut Lanes, width: usize) -> u32 {
            // SAFETY: the method has the safety conditions of this function.
            |isa| unsafe { sha256::run(isa.hash(), isa.half_hash(), lanes, width) }
        }
        /// See [`sha256::hash_fixed`].
        unsafe fn hash64(
            messages: *const [u8; 64], digests: *mut Digest, count: usize, width: usize
        ) {
            // SAFETY: the method has the safety conditions of this function.
            |isa| unsafe {
                sha256::hash_fixed(isa.hash(), isa.half_hash(), messages, digests, count, width)
            }
        }
        /// See [`sha256::hash_fixed`].
        unsafe fn hash32(
            messages: *const [u8; 32], digests: *mut Digest, count: usize, width: usize
        ) {
            // SAFETY: the method has the safety conditions of this function.
            |isa| unsafe {
                sha256::hash_fixed(isa.hash(), isa.half_hash(), messages, digests, count, width)
            }
        }
    } };
}

/// The AES kernels. They have a table of their own, because AES instructions may be present or
/// missing with any of the instruction sets above. After `=>` comes the function for CPUs without
/// AES instructions.
macro_rules! aes_kernel_list {
    ($callback:ident $($argument:tt)*) => { $callback! { $($argument)*
        const {}
        calibrated {}

        /// See [`gcm::seal_all`].
        unsafe fn seal(bytes: &mut [u8], detached: Detached<'_>, keys: &[&GcmKey], jobs: &[Job]) {
            // SAFETY: the method has the safety conditions of this function.
            |isa| unsafe { gcm::seal_all(isa, bytes, detached, keys, jobs) }
        } => bitsliced::seal
        /// See [`gcm::open_all`].
        unsafe fn open(
            bytes: &mut [u8], detached: Detached<'_>, keys: &[&GcmKey], jobs: &[Job],
            differences: &mut [u64]
        ) {
            // SAFETY: the method has the safety conditions of this function.
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

/// Generates the type of a table, and its methods, from a list of kernels.
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
            /// Whether this CPU supports the instruction set of the table.
            #[inline(always)]
            pub(crate) fn is_available(&self) -> bool {
                (self.is_available)()
            }
        }

        $(#[$set_doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $set(&'static $table);

        impl $set {
            /// Returns the kernels of `table`.
            ///
            /// # Safety
            ///
            /// This CPU must support the instruction set of the table.
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
            // SAFETY: `assume` made this set, and its caller guaranteed that this CPU has the
            // instruction set. The kernel has no other safety condition.
            unsafe { (self.0.$name)($($arg),*) }
        }
    };
    (@method unsafe [$(#[$doc:meta])*] $name:ident($($arg:ident: $type:ty),*) ($(-> $result:ty)?)) => {
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// As for that function.
        #[inline(always)]
        pub(crate) unsafe fn $name(self, $($arg: $type),*) $(-> $result)? {
            // SAFETY: `assume` made this set, and its caller guaranteed that this CPU has the
            // instruction set. The caller of this method guarantees the kernel's other safety
            // conditions.
            unsafe { (self.0.$name)($($arg),*) }
        }
    };
}

/// Generates the table of an instruction set from a list of kernels.
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
            #[allow(dead_code, reason = "the AES kernels do not name it")]
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
            // Aligns the stack to the largest register. Otherwise, in every other run of a program,
            // spilled registers lie across cache lines, which doubles the time of their loads and
            // stores.
            let frame = crate::vector::Aligned(0_u8);
            core::hint::black_box(&frame);
            // SAFETY: this function is only reached through a set, which proves that this CPU
            // has the instruction set.
            let $isa = unsafe { <$set>::assume() };
            $body
        }
        kernel
    }};
}

/// Generates the table for CPUs without AES instructions from a list of kernels.
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

/// Calls a function with an instruction set enabled, without inlining it: see
/// [`Masks::call`](crate::vector::Masks::call). `$lanes` has the type `$type`, a value of which proves
/// that this CPU has the instruction set.
#[allow(unused_macros, reason = "not every target has vectors for secp256k1")]
macro_rules! call {
    ($features:literal, $type:ty, $lanes:expr, $argument:expr, $function:expr) => {{
        #[target_feature(enable = $features)]
        fn call<A, R, F: FnOnce($type, A) -> R>(lanes: $type, argument: A, function: F) -> R {
            function(lanes, argument)
        }
        // The pointer is hidden: rustc 1.95 ignores `inline(never)` where there is `target_feature`.
        let called: unsafe fn(_, _, _) -> _ = core::hint::black_box(call);
        // SAFETY: the value proves the instruction set.
        unsafe { called($lanes, $argument, $function) }
    }};
}

/// Compiles the kernels for an instruction set.
macro_rules! kernels {
    ($set:ty $(, $features:literal)?) => {
        mod table {
            #[allow(clippy::wildcard_imports, reason = "the names in the list of kernels")]
            use crate::isa::table::*;
            use super::*;

            kernel_list!(define_table Kernels, $set, ($($features)?););
        }
        pub(crate) use table::KERNELS;
    };
}

/// Compiles the AES kernels for an instruction set.
#[allow(unused_macros, reason = "not every target has AES instructions")]
macro_rules! aes_kernels {
    ($set:ty, $features:literal) => {
        mod table {
            #[allow(clippy::wildcard_imports, reason = "the names in the list of kernels")]
            use crate::isa::table::*;
            use super::*;

            aes_kernel_list!(define_table AesKernels, $set, ($features););
        }
        pub(crate) use table::KERNELS;
    };
}

kernel_list!(declare_table
    /// The kernels, compiled for one instruction set. They must only be called on a CPU that
    /// supports it.
    Kernels,
    /// The kernels of an instruction set that this CPU supports.
    Set;
);

aes_kernel_list!(declare_table
    /// The AES kernels, compiled for one instruction set or for none. They must only be called on a
    /// CPU that supports it.
    AesKernels,
    /// The AES kernels of an instruction set that this CPU supports.
    AesSet;
);

aes_kernel_list!(define_table_without_instructions AesKernels;);
