//! ChaCha20-Poly1305 (RFC 8439, section 2.8) over a list of jobs.
//!
//! - [`run`] seals and opens a list. [`strategy`] chooses how each part of it is done, and holds every
//!   threshold. A list of one packet goes to [`single`] at once.
//! - The strategies: [`single`], one packet at a time; [`long`], one packet after the other, stitched
//!   in lanes; [`lanes`], the blocks of all packets in one list. Short packets have a kernel of their
//!   own, [`crate::kernels::chacha20poly1305::short`], as have many packets with as many blocks,
//!   [`crate::kernels::chacha20poly1305::lockstep`], and packets of a few blocks each,
//!   [`crate::kernels::stitched_lanes`]. No strategy calls another.
//! - What they share: [`packet`], one packet and where it lies; [`stitched`], rounds and
//!   hash of one packet in one kernel; [`keystream`], which encrypts it; [`tag`], which
//!   authenticates it.
//! - [`sorted`]: a list of mixed sizes in another order, each part of which has a strategy of its own.
//! - [`tuning`]: what is measured once per process.

mod keystream;
mod lanes;
mod long;
mod packet;
mod run;
mod single;
mod sorted;
mod stitched;
mod strategy;
mod tag;
mod tuning;

pub(crate) use keystream::{max_precomputed_blocks, precompute_keystream, xor_keystream};
pub(crate) use run::{open, seal, seal_from};
pub(crate) use single::{
    open as open_single, open_detached, open_precomputed, seal as seal_single, seal_and_mask,
    seal_detached, seal_precomputed,
};
pub(crate) use strategy::{is_faster_out_of_place, is_small_turn};
pub(crate) use tag::poly1305;
pub(crate) use tuning::Tuning;

#[cfg(test)]
mod tests;
