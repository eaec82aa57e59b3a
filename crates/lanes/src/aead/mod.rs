//! ChaCha20-Poly1305 (RFC 8439, section 2.8) over a list of jobs.
//!
//! - [`run`] seals and opens a list. [`strategy`] chooses the strategy for each part of it, and
//!   holds all thresholds. A list of one packet goes directly to [`single`].
//! - The strategies: [`single`], one packet at a time; [`long`], one packet after the other,
//!   stitched in lanes; [`lanes`], the blocks of all packets in one list. Three kinds of packets
//!   have kernels of their own: short packets ([`crate::kernels::chacha20poly1305::short`]), many
//!   packets with the same number of blocks ([`crate::kernels::chacha20poly1305::lockstep`]), and
//!   packets of a few blocks each ([`crate::kernels::stitched_lanes`]). No strategy calls another.
//! - Shared by the strategies: [`packet`], one packet and where its parts lie; [`stitched`], rounds
//!   and hash of one packet in one kernel; [`keystream`], which encrypts; [`tag`], which
//!   authenticates.
//! - [`sorted`]: reorders a list of mixed sizes, so that each part of it has one strategy.
//! - [`tuning`]: measurements made once per process.

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
