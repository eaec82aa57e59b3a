//! 64-bit ARM, little-endian: NEON, which all these targets have, and the AES and SHA-256
//! instructions, which many CPUs have.
//!
//! Big-endian targets number the lanes of a register from its other end. They have plain Rust.

pub(super) mod aes;
mod neon;
mod sha2;

pub(crate) use neon::KERNELS as NEON;

/// Evaluates intrinsics of NEON.
macro_rules! on_neon {
    ($($intrinsics:tt)*) => {
        // SAFETY: NEON is a feature of every target that this module is compiled for, and these
        // intrinsics touch no memory.
        unsafe { $($intrinsics)* }
    };
}
use on_neon;
