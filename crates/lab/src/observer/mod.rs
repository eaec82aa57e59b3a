//! What an observer of encrypted connections can tell from the sizes and times of TCP segments.
//!
//! `trace.rs` has the messages of real nodes, `background.rs` models of other traffic, and `wire.rs`
//! what an observer sees of both, with and without shaping. `block.rs`, `bitcoin.rs` and
//! `transaction.rs` are three questions, each with its detectors; `boost.rs` is the classifier that
//! they share, `score.rs` their figures.

pub(crate) mod background;
pub(crate) mod bitcoin;
pub(crate) mod block;
mod boost;
pub(crate) mod score;
pub(crate) mod trace;
pub(crate) mod transaction;
pub(crate) mod wire;
