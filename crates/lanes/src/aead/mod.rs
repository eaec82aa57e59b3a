//! ChaCha20-Poly1305 (RFC 8439, section 2.8) over a list of jobs.
//!
//! - [`run`] seals and opens a list, and measures whether long lists are faster stitched or in
//!   lanes. A list of one packet goes to [`single`] at once. [`strategy`] chooses how each part of the list is done, and holds every threshold.
//! - The ways to do it: [`single`], one packet at a time; [`pipelined`], the hash of each
//!   packet stitched into the rounds of the next one; [`long`], one packet after the other, stitched
//!   in lanes; [`lanes`], the blocks of all packets in one list. Short packets have a kernel of their
//!   own, [`crate::kernels::chacha20poly1305::short`], as have many packets with as many blocks,
//!   [`crate::kernels::chacha20poly1305::lockstep`], and packets of a few blocks each,
//!   [`crate::kernels::stitched_lanes`]. No way calls another.
//! - Shared by the ways: [`packet`], one packet and where it lies; [`stitched`], rounds and
//!   hash of one packet in one kernel; [`keystream`], which encrypts it; [`tag`], which
//!   authenticates it.
//! - [`sorted`]: a list of mixed sizes in another order, each part of which then goes its way.
//! - [`tuning`]: what is measured once per process.

mod keystream;
mod lanes;
mod long;
mod packet;
mod pipelined;
mod run;
mod single;
mod sorted;
mod stitched;
mod strategy;
mod tag;
mod tuning;

pub(crate) use keystream::{precompute_keystream, xor_keystream};
pub(crate) use run::{max_precomputed_blocks, open, seal, seal_from};
pub(crate) use single::{open_detached, seal_and_mask, seal_detached};
pub(crate) use strategy::{are_few, is_faster_from_elsewhere};
pub(crate) use tag::poly1305;
pub(crate) use tuning::Tuning;

#[cfg(test)]
mod tests;
