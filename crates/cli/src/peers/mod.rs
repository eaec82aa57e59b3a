//! `packetlane peers`: what each peer of a node costs it.

mod capture;
mod figures;
mod live;
mod metrics;
#[cfg(feature = "nats")]
mod nats;
mod plan;
mod recordings;
mod report;

use clap::Subcommand;
use std::error::Error;

#[derive(Subcommand)]
pub(crate) enum Peers {
    /// Show what each peer of a running node costs it. Needs root, or CAP_SYS_ADMIN and
    /// CAP_SYS_PTRACE; with --rpc none of these
    Watch(live::Watch),
    /// Record what each peer of a running node costs it, for `report` and `plan`
    Record(live::Recording),
    /// Make tables and pictures of recordings: CPU time by kind of connection and by type of
    /// message, and over time
    ///
    /// Files that are damaged, or are no recordings, are named on standard error, and the others
    /// count. Exits with 0 only if no file is damaged.
    Report(report::Report),
    /// Say what a set of slots costs: from a recording, or from figures published in 2023
    ///
    /// Damaged recordings are treated as by `report`.
    Plan(plan::Plan),
}

/// Runs the command.
pub(crate) fn run(command: &Peers) -> Result<(), Box<dyn Error>> {
    match command {
        Peers::Watch(watch) => live::watch(watch),
        Peers::Record(recording) => live::record(recording),
        Peers::Report(report) => report::run(report),
        Peers::Plan(plan) => plan::run(plan),
    }
}
