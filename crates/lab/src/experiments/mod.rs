//! The registry of experiments, in the order of the report.
//!
//! To add an experiment, add a file below this folder and two lines here, and a line in [`ABSENT`]
//! if it needs a feature.

use crate::experiment::Experiment;

mod bip324 {
    pub(super) mod alone;
    pub(super) mod handshake;
    pub(super) mod handshakes;
    pub(super) mod latency;
    pub(super) mod mixed;
    pub(super) mod packet;
    pub(super) mod primitives;
    pub(super) mod sessions;
    pub(super) mod threads;
    pub(super) mod turn;
}

mod sha256d {
    pub(super) mod block;
    pub(super) mod d64;
    pub(super) mod files;
    pub(super) mod many;
    pub(super) mod merkle;
}

mod quic {
    pub(super) mod link;
    pub(super) mod mask;
    pub(super) mod packet;
    #[cfg(feature = "rivals")]
    pub(super) mod send_path;
}

mod shape {
    pub(super) mod cost;
    pub(super) mod detect;
}

#[cfg(feature = "rivals")]
mod gateway {
    pub(super) mod connections;
    pub(super) mod cost;
    pub(super) mod latency;
    pub(super) mod scale;
    pub(super) mod sleep;
    pub(super) mod turn;
}

#[cfg(feature = "cuda")]
mod gpu {
    pub(super) mod batch;
    pub(super) mod decoys;
    pub(super) mod kernel;
    pub(super) mod latency;
    pub(super) mod streams;
    pub(super) mod transfer;
}

/// The experiment whose first picture represents a whole report.
pub(crate) static FACE: &Experiment = &bip324::packet::EXPERIMENT;

/// All experiments.
pub static ALL: &[&Experiment] = &[
    &bip324::mixed::EXPERIMENT,
    &bip324::packet::EXPERIMENT,
    &bip324::alone::EXPERIMENT,
    &bip324::latency::EXPERIMENT,
    &bip324::sessions::EXPERIMENT,
    &bip324::turn::EXPERIMENT,
    &bip324::threads::EXPERIMENT,
    &bip324::handshake::EXPERIMENT,
    &bip324::handshakes::EXPERIMENT,
    &bip324::primitives::EXPERIMENT,
    &sha256d::many::EXPERIMENT,
    &sha256d::d64::EXPERIMENT,
    &sha256d::merkle::EXPERIMENT,
    &sha256d::block::EXPERIMENT,
    &sha256d::files::EXPERIMENT,
    &quic::packet::EXPERIMENT,
    &quic::mask::EXPERIMENT,
    &quic::link::EXPERIMENT,
    #[cfg(feature = "rivals")]
    &quic::send_path::EXPERIMENT,
    &shape::detect::EXPERIMENT,
    &shape::cost::EXPERIMENT,
    #[cfg(feature = "rivals")]
    &gateway::turn::EXPERIMENT,
    #[cfg(feature = "rivals")]
    &gateway::latency::EXPERIMENT,
    #[cfg(feature = "rivals")]
    &gateway::cost::EXPERIMENT,
    #[cfg(feature = "rivals")]
    &gateway::sleep::EXPERIMENT,
    #[cfg(feature = "rivals")]
    &gateway::scale::EXPERIMENT,
    #[cfg(feature = "rivals")]
    &gateway::connections::EXPERIMENT,
    #[cfg(feature = "cuda")]
    &gpu::kernel::EXPERIMENT,
    #[cfg(feature = "cuda")]
    &gpu::latency::EXPERIMENT,
    #[cfg(feature = "cuda")]
    &gpu::transfer::EXPERIMENT,
    #[cfg(feature = "cuda")]
    &gpu::streams::EXPERIMENT,
    #[cfg(feature = "cuda")]
    &gpu::decoys::EXPERIMENT,
    #[cfg(feature = "cuda")]
    &gpu::batch::EXPERIMENT,
];

/// The experiments that this build leaves out, each with the feature that adds it.
pub static ABSENT: &[(&str, &str)] = &[
    #[cfg(not(feature = "rivals"))]
    ("quic.send_path", "rivals"),
    #[cfg(not(feature = "rivals"))]
    ("gateway.turn", "rivals"),
    #[cfg(not(feature = "rivals"))]
    ("gateway.latency", "rivals"),
    #[cfg(not(feature = "rivals"))]
    ("gateway.cost", "rivals"),
    #[cfg(not(feature = "rivals"))]
    ("gateway.sleep", "rivals"),
    #[cfg(not(feature = "rivals"))]
    ("gateway.scale", "rivals"),
    #[cfg(not(feature = "rivals"))]
    ("gateway.connections", "rivals"),
    #[cfg(not(feature = "cuda"))]
    ("gpu.kernel", "cuda"),
    #[cfg(not(feature = "cuda"))]
    ("gpu.latency", "cuda"),
    #[cfg(not(feature = "cuda"))]
    ("gpu.transfer", "cuda"),
    #[cfg(not(feature = "cuda"))]
    ("gpu.streams", "cuda"),
    #[cfg(not(feature = "cuda"))]
    ("gpu.decoys", "cuda"),
    #[cfg(not(feature = "cuda"))]
    ("gpu.batch", "cuda"),
];
