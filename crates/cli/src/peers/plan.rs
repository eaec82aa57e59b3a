//! `packetlane peers plan`.

use super::recordings::{self, Damage};
use crate::terminal::print;
use clap::{Args, ValueEnum};
use packetlane_files::Name;
use packetlane_lab::report::Report;
use packetlane_peers::plan::{self, Slots};
use std::error::Error;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(crate) struct Plan {
    /// Recordings of `peers record` to take the costs from [default: figures published in 2023]
    #[arg(value_name = "RECORDING")]
    files: Vec<PathBuf>,
    /// Slots to start with; the options below replace parts of it
    #[arg(long, value_name = "NAME", default_value = "today")]
    preset: Preset,
    /// Number of outbound full-relay connections
    #[arg(long, value_name = "N", value_parser = count)]
    outbound: Option<u64>,
    /// Number of outbound block-relay-only connections
    #[arg(long, value_name = "N", value_parser = count)]
    block_relay: Option<u64>,
    /// Number of inbound connections
    #[arg(long, value_name = "N", value_parser = count)]
    inbound: Option<u64>,
    /// Share of the inbound connections that relay transactions, from 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = share)]
    relay_share: Option<f64>,
    /// Speed of the target machine relative to the measured one: 0.3 means less than a third as
    /// fast
    #[arg(
        long,
        alias = "slower",
        value_name = "SPEED",
        value_parser = speed,
        conflicts_with = "machine"
    )]
    speed: Option<f64>,
    /// JSON reports of `packetlane lab` on the measured machine and on the target machine; their
    /// ratio scales the plan
    #[arg(long, value_names = ["HERE.json", "THERE.json"], num_args = 2)]
    machine: Vec<PathBuf>,
    /// Print the plan as JSON
    #[arg(long)]
    json: bool,
}

/// Sets of slots.
#[derive(Clone, Copy, ValueEnum)]
enum Preset {
    /// The defaults of current Bitcoin Core: up to half of 189 inbound slots relay transactions
    Today,
    /// The defaults of 2023 as measured then: 91 of 114 inbound peers were full-relay
    #[value(name = "2023")]
    Of2023,
    /// The proposal of 2023: 113 inbound full-relay slots. The other 75 slots are our
    /// interpretation
    Proposal,
}

fn count(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(count) if count <= 1_000_000 => Ok(count),
        _ => Err("expected a whole number from 0 to 1000000".to_owned()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("expected a number from 0 to 1".to_owned()),
    }
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(speed) if (0.001..=1000.0).contains(&speed) => Ok(speed),
        _ => Err("expected a number from 0.001 to 1000".to_owned()),
    }
}

pub(super) fn run(args: &Plan) -> Result<(), Box<dyn Error>> {
    let preset = match args.preset {
        Preset::Today => Slots::TODAY,
        Preset::Of2023 => Slots::OF_2023,
        Preset::Proposal => Slots::PROPOSAL,
    };
    let inbound = preset.inbound_full_relay + preset.inbound_block_relay;
    let slots = Slots {
        outbound: args.outbound.unwrap_or(preset.outbound),
        block_relay: args.block_relay.unwrap_or(preset.block_relay),
        ..match (args.inbound, args.relay_share) {
            (None, None) => preset,
            (count, share) => Slots::with_share(
                0,
                0,
                count.unwrap_or(inbound),
                share.unwrap_or(preset.inbound_full_relay as f64 / inbound as f64),
            ),
        }
    };
    let (slower, note) = match (&args.machine[..], args.speed) {
        ([here, there], _) => {
            let ratio = ratio(here, there)?;
            (ratio.0, Some(ratio.1))
        }
        (_, Some(speed)) => (1.0 / speed, None),
        _ => (1.0, None),
    };
    let (mut plan, damage) = match args.files.is_empty() {
        true => (plan::from_published(slots, slower), Damage::default()),
        false => {
            let (tally, damage) = recordings::read(&args.files)?;
            let plan = plan::from_recording(&tally, slots, slower).map_err(|error| {
                let files: Vec<_> = args
                    .files
                    .iter()
                    .map(|path| Name(path).to_string())
                    .collect();
                format!("no plan from {}: {error}", files.join(", "))
            })?;
            (plan, damage)
        }
    };
    plan.notes.extend(note);
    match args.json {
        true => print(format_args!("{}", plan.to_json())),
        false => print(format_args!("{}", plan.to_text())),
    }
    damage.into_result()
}

/// How many times as long the target machine takes: the median ratio of all times that both reports
/// have for the same implementation, except GPU times. Also returns a note about it.
fn ratio(here: &Path, there: &Path) -> Result<(f64, String), Box<dyn Error>> {
    let read = |path: &Path| -> Result<Report, String> {
        let text = packetlane_files::read_text(path)
            .map_err(|error| format!("cannot read {}: {error}", Name(path)))?;
        Report::from_json(&text).map_err(|error| {
            format!(
                "{} is not a report of `packetlane lab`: {error}",
                Name(path)
            )
        })
    };
    let reports = [read(here)?, read(there)?];
    let mut ratios = Vec::new();
    for row in &reports[0].rows {
        if !matches!(row.unit.as_str(), "ns" | "us" | "ms" | "s")
            || row.experiment.starts_with("gpu.")
        {
            continue;
        }
        let same = reports[1].rows.iter().find(|other| {
            (
                &other.experiment,
                &other.case,
                &other.implementation,
                &other.metric,
                &other.unit,
            ) == (
                &row.experiment,
                &row.case,
                &row.implementation,
                &row.metric,
                &row.unit,
            )
        });
        if let Some(same) = same
            && row.median > 0.0
            && same.median > 0.0
        {
            ratios.push(same.median / row.median);
        }
    }
    ratios.sort_by(f64::total_cmp);
    if ratios.is_empty() {
        return Err(format!(
            "{} and {} have no times in common: run the same experiments on both machines",
            Name(here),
            Name(there)
        )
        .into());
    }
    let at = |share: usize| ratios[(ratios.len() - 1) * share / 100];
    let note = format!(
        "machine: the reports have {} times in common; the middle half of their ratios is {:.2} \
         to {:.2}, the median {:.2}",
        ratios.len(),
        at(25),
        at(75),
        at(50)
    );
    Ok((at(50), note))
}
