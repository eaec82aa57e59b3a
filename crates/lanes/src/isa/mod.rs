//! The instances of [`crate::vector`]'s traits, one file per instruction set.
//! The only module of the crate with `unsafe` in it.

mod portable;
#[cfg(target_arch = "x86_64")]
mod sse2;

pub(crate) use portable::Scalar;

/// The words of the portable backend: what every CPU of the target has. On
/// x86-64 that is SSE2, elsewhere plain arithmetic.
#[cfg(target_arch = "x86_64")]
pub(crate) use sse2::Sse2 as Baseline;

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use portable::Array as Baseline;
