//! The implementations of the traits of [`crate::vector`], one file per instruction set, and the
//! kernels compiled for each.
//!
//! All kernels are declared in [`table`].
//!
//! To add an instruction set:
//!
//! 1. Copy `portable.rs` to a file with its name and adapt it: the vectors of [`crate::vector`]
//!    (`Arithmetic`, `U32Lanes`, `Rows`; a `Field`, or `Radix64` if its vectors are slow at
//!    multiplication), an `impl InstructionSet`, whose `is_available` queries the CPU, and a call
//!    of `kernels!`.
//! 2. In this file, add its `mod`, `pub(crate) use NAME::KERNELS as NAME`, and a row in the test
//!    below.
//! 3. In `backend.rs`, add its variant of [`crate::Backend`] and its place in `ALL`, both in the
//!    same order. The compiler asks for the rest: `name`, `table`, and in `detect_aes` which AES
//!    kernels go with it.
//!
//! Every test of this crate then runs on it.

#[macro_use]
mod table;
#[macro_use]
mod serial;
mod detect;
mod set;

#[cfg(all(
    target_arch = "aarch64",
    target_endian = "little",
    target_feature = "neon"
))]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod aes_ni;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod avx2_rounds;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512_ifma;
#[cfg(any(test, not(target_arch = "x86_64")))]
pub(crate) mod portable;
#[cfg(target_arch = "x86_64")]
mod sha_ni;
#[cfg(target_arch = "x86_64")]
mod sse2;
#[cfg(target_arch = "x86_64")]
mod vaes;
#[cfg(target_arch = "x86_64")]
mod vaes256;

#[cfg(all(
    target_arch = "aarch64",
    target_endian = "little",
    target_feature = "neon"
))]
pub(crate) use aarch64::NEON;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::KERNELS as AVX2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::KERNELS as AVX512;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512_ifma::KERNELS as AVX512_IFMA;
pub(crate) use detect::clock;
pub use detect::prefetch;
/// The baseline kernels of the target: SSE2 on x86-64, otherwise plain Rust.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use portable::KERNELS as PORTABLE;
/// The baseline kernels of the target: SSE2 on x86-64, otherwise plain Rust.
#[cfg(target_arch = "x86_64")]
pub(crate) use sse2::KERNELS as PORTABLE;
pub(crate) use table::{AesSet, Kernels, Set};

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    extern crate std;
    use super::*;

    /// A table that is never detected is neither tested nor measured, and no other test would
    /// notice.
    #[test]
    fn every_table_is_detected_if_the_cpu_has_its_instructions() {
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
                avx512 && has!("avx512ifma") && has!("avx512vbmi2"),
            ),
            ("AES-NI", aes_ni::KERNELS.is_available(), aes_ni),
            (
                "VAES of 256 bits",
                vaes256::KERNELS.is_available(),
                aes_ni && vector_aes,
            ),
            (
                "VAES of 512 bits",
                vaes::KERNELS.is_available(),
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
