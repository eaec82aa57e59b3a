//! The operations that algorithms may use of a vector unit, one trait per file.
//!
//! An algorithm in [`crate::kernels`] is written once, generic over these traits, and marked
//! `#[inline(always)]`. A file in [`crate::isa`] implements the traits for one instruction set,
//! and calls the algorithm from a function that has the instruction set enabled, so that
//! everything is inlined into that function.
//!
//! A value of an implementing type is a *proof* that this CPU has the instructions. If some CPUs of
//! the target lack them, only an unsafe function creates such a value, and its caller guarantees
//! the CPU. That is why the methods are safe to call, and why no method here has
//! `#[target_feature]`.

mod aes_blocks;
mod bytes;
mod opaque;
mod pair;
mod rows;
mod scalar;
mod triple;
mod u32_lanes;
mod u64_lanes;

pub(crate) use aes_blocks::{AesBlocks, Consecutive, MAX_BLOCKS};
pub(crate) use bytes::{Aligned, mask, number, prefetch_at, write_number, xored};
pub(crate) use opaque::{opaque_pointer, scalar_u32};
pub(crate) use pair::Pair;
pub(crate) use rows::Rows;
pub(crate) use scalar::Scalar;
pub(crate) use triple::Triple;
pub(crate) use u32_lanes::{Arithmetic, BlocksFrom, Interleave, MAX_LANES, U32Lanes};
pub(crate) use u64_lanes::{JoinU32Lanes, Limbs26, Limbs44, Limbs52, MAX_TAGS, Masks, U64Lanes};
