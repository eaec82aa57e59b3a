//! Poly1305 (RFC 8439, section 2.5).
//!
//! ```text
//! r = the first 16 bytes of the one-time key, clamped; s = the last 16
//! h = 0
//! for each block of 16 bytes:      h = (h + block + 2^128) * r  mod 2^130 - 5
//! tag = (h + s) mod 2^128
//! ```
//!
//! - [`field`]: arithmetic modulo 2^130 - 5, one number per lane, and the three
//!   representations: [`radix64`] for one number in general registers, [`radix44`] in three
//!   limbs where vectors multiply 52 bits (IFMA), [`radix26`] in five limbs where they
//!   multiply 32 bits.
//! - [`state`]: one message in general registers, [`over_lanes`]: one long message in all
//!   lanes of a vector.
//! - [`in_lanes`]: a message in each lane; [`in_four_lanes`]: a long message in each four
//!   lanes; [`short`]: messages of at most 64 bytes that are already in registers.
//!
//! Nothing branches on a secret and nothing is indexed by one.

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
pub(crate) use state::Poly1305;
