//! `packetlane peers`: what each peer of a node costs.

mod acting;
mod capture;
mod figures;
mod live;
mod metrics;
#[cfg(feature = "nats")]
mod nats;
mod period;
mod plan;
mod recordings;
mod report;

use clap::Subcommand;
use std::error::Error;

#[derive(Subcommand)]
pub(crate) enum Peers {
    /// Show what each peer of a running node costs. Needs root, or CAP_SYS_ADMIN,
    /// CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH; not with --rpc
    Watch(live::Watch),
    /// Record what each peer of a running node costs, for `report` and `plan`
    Record(live::Recording),
    /// Summarize recordings: CPU time by kind of connection, by message type and over time
    ///
    /// Damaged files are named on standard error; their intact records are counted.
    ///
    /// Exit status: 0 if no file is damaged, 1 otherwise, 2 for wrong arguments.
    Report(report::Report),
    /// Estimate the CPU time of a set of connection slots, from a recording or from figures
    /// published in 2023
    ///
    /// Handles damaged recordings like `report`, with the same exit status.
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
