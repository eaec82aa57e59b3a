//! 64-bit ARM, little-endian: NEON, which all these targets have, and the AES and SHA-256
//! instructions, which many CPUs have.
//!
//! Big-endian targets number the lanes of a register from the other end, so they use plain Rust.

#[macro_use]
mod intrinsics;
pub(super) mod aes;
mod neon;
mod sha2;

pub(crate) use neon::KERNELS as NEON;

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::kernels::sha256::SCALAR;
    use std::arch::is_aarch64_feature_detected;

    /// A table that is never detected is not tested either, and no other test would notice.
    #[test]
    fn instructions_are_detected_if_the_cpu_has_them() {
        let has_aes = is_aarch64_feature_detected!("aes");
        assert_eq!(aes::KERNELS.is_available(), has_aes);
        let has_sha2 = is_aarch64_feature_detected!("sha2");
        assert_eq!(core::ptr::eq(sha2::best_serial(), &SCALAR), !has_sha2);
    }
}
