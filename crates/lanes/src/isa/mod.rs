//! The instances of [`crate::vector`]'s traits, one file per instruction set,
//! and the kernels compiled for each.

use crate::aead::{Job, Outcome};
use crate::chacha20::{Key, Nonce};

pub(crate) use portable::Scalar;

/// Seals or opens: buffer, keys, jobs, and what becomes of the jobs.
type OverJobs = fn(&mut [u8], &[Key], &[Job], &mut [Outcome]);

/// The algorithms, compiled for one instruction set. Each panics if the CPU
/// lacks it.
pub(crate) struct Kernels {
    pub(crate) is_available: fn() -> bool,
    pub(crate) seal: OverJobs,
    pub(crate) open: OverJobs,
    pub(crate) chacha20: fn(&Key, &Nonce, u32, &mut [u8]),
    pub(crate) poly1305: fn(&[u8; 32], &[u8]) -> [u8; crate::TAG_LEN],
}

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

/// Compiles the kernels for an instruction set, from the proof that the CPU has
/// it.
macro_rules! kernels {
    (
        |$proof:ident: $set:ident| words: $words:expr, field: $field:expr
        $(, features: $features:literal)?
    ) => {
        pub(crate) static KERNELS: crate::isa::Kernels = crate::isa::Kernels {
            is_available: || $set::detect().is_some(),
            seal: |bytes, keys, jobs, outcomes| {
                kernels!(@call $set, $($features)?,
                    |$proof, bytes: &mut [u8], keys: &[crate::Key], jobs: &[crate::Job],
                     outcomes: &mut [crate::Outcome]|
                    = crate::aead::seal($words, $field, bytes, keys, jobs, outcomes))
            },
            open: |bytes, keys, jobs, outcomes| {
                kernels!(@call $set, $($features)?,
                    |$proof, bytes: &mut [u8], keys: &[crate::Key], jobs: &[crate::Job],
                     outcomes: &mut [crate::Outcome]|
                    = crate::aead::open($words, $field, bytes, keys, jobs, outcomes))
            },
            poly1305: |key, message| {
                kernels!(@call $set, $($features)?,
                    |$proof, key: &[u8; 32], message: &[u8]| -> [[u8; crate::TAG_LEN]]
                    = crate::poly1305::one($field, key, message))
            },
            chacha20: |key, nonce, counter, text| {
                kernels!(@call $set, $($features)?,
                    |$proof, key: &crate::Key, nonce: &crate::Nonce, counter: u32,
                     text: &mut [u8]|
                    = crate::chacha20::xor_keystream($words, key, nonce, counter, text))
            },
        };
    };
    (@call $set:ident, $($features:literal)?, |$proof:ident $(, $arg:ident: $type:ty)*|
        $(-> [$result:ty])? = $body:expr) => {{
        $(#[target_feature(enable = $features)])?
        #[allow(unused_variables, reason = "not every kernel needs the proof")]
        fn kernel($proof: $set $(, $arg: $type)*) $(-> $result)? {
            $body
        }
        let proof = $set::detect().expect("a backend that this CPU has");
        // SAFETY: `proof` exists only where the CPU has the features.
        #[allow(unused_unsafe, reason = "the portable kernels have no features")]
        unsafe {
            kernel(proof $(, $arg)*)
        }
    }};
}

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;
#[cfg(target_arch = "x86_64")]
mod sse2;
