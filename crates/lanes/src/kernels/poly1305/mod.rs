//! Poly1305 (RFC 8439, section 2.5).
//!
//! ```text
//! r = the first 16 bytes of the one-time key, clamped; s = the last 16 bytes
//! h = 0
//! for each block of 16 bytes:      h = (h + block + 2^128) * r  mod 2^130 - 5
//! tag = (h + s) mod 2^128
//! ```
//!
//! All numbers are little-endian. A last block of fewer bytes has the bit directly after its
//! bytes in place of 2^128; an AEAD pads its blocks with zeros and never has one.
//!
//! Optimisations:
//!
//! 1. Each step waits for the previous one. If r^2 is known, two blocks take one step, which is `(h
//!    + block 1) * r^2 + block 2 * r`. See [`Field::two_steps`].
//! 2. A vector does one step in each lane, either of one message per lane ([`in_lanes`]), or of
//!    every n-th block of one message, with r^n, and the lanes are summed up at the end
//!    ([`over_lanes`], [`in_four_lanes`]).
//! 3. Products are only partly reduced, so that h may be slightly above the prime. Only
//!    [`Field::words`] reduces fully.
//! 4. The representation depends on the multiplier. [`radix64`]: one number in general registers.
//!    [`radix44`]: three limbs, for vectors with 52-bit multiplication (IFMA). [`radix26`]: five
//!    limbs, for vectors with 32-bit multiplication. [`field`] is the common interface.
//!
//! [`state`] is one message in general registers. [`short`] is for messages of at most 64 bytes,
//! one per lane, that a kernel has just produced.
//!
//! No branch and no memory index depends on a secret.

mod aad;
pub(crate) mod field;
pub(crate) mod in_four_lanes;
pub(crate) mod in_lanes;
pub(crate) mod over_lanes;
pub(crate) mod radix26;
pub(crate) mod radix44;
pub(crate) mod radix64;
pub(crate) mod short;
pub(crate) mod state;
pub(crate) mod text;

pub(crate) use field::Field;
pub(crate) use radix26::Radix26;
pub(crate) use radix44::Radix44;
pub(crate) use radix64::Radix64;
pub(crate) use state::{Poly1305, Unhashed};
