//! Shared by several experiments: prepared packets and hashes, and contenders that have been
//! checked against each other.

pub(crate) mod block;
#[cfg(feature = "cuda")]
pub(crate) mod gpu;
pub(crate) mod hashes;
pub(crate) mod many_sessions;
pub(crate) mod packets;
#[cfg(feature = "rivals")]
pub(crate) mod processes;
pub(crate) mod quic;
#[cfg(feature = "rivals")]
pub(crate) mod quinn;
#[cfg(feature = "rivals")]
pub(crate) mod relay;
pub(crate) mod threads;
