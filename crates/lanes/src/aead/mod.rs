//! ChaCha20-Poly1305 (RFC 8439, section 2.8) over a list of jobs.
//!
//! - [`run`]: seals and opens a list. [`strategy`] says which way each part of it goes, and
//!   holds every threshold.
//! - The ways: [`single`], a packet by itself; [`pipelined`], each packet's hash stitched into
//!   the next one's rounds; [`lanes`], the blocks of all packets in one list. (Short packets
//!   are one call of a kernel, [`crate::kernels::chacha20poly1305::short`].) No way calls
//!   another.
//! - What the ways share: [`packet`], one packet and where it lies; [`stitched`], its rounds
//!   and hash in one; [`keystream`], what encrypts it; [`tag`], what authenticates it.
//! - [`tuning`]: what is measured once in a process.

mod keystream;
mod lanes;
mod packet;
mod pipelined;
mod run;
mod single;
mod stitched;
mod strategy;
mod tag;
mod tuning;

pub(crate) use keystream::{precompute_keystream, xor_keystream};
pub(crate) use run::{max_precomputed_blocks, open, seal};
pub(crate) use single::{open_detached, seal_detached};
pub(crate) use tag::poly1305;
pub(crate) use tuning::Tuning;

#[cfg(test)]
mod tests;
