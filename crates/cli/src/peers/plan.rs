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
    /// A recording of `peers record`, from which the costs are taken; without one, the figures
    /// published in 2023
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The slots to begin with; what is named beside it replaces its part
    #[arg(long, value_name = "NAME", default_value = "today")]
    preset: Preset,
    /// Outbound full-relay connections
    #[arg(long, value_name = "N", value_parser = count())]
    outbound: Option<u64>,
    /// Outbound block-relay-only connections
    #[arg(long, value_name = "N", value_parser = count())]
    block_relay: Option<u64>,
    /// Inbound connections
    #[arg(long, value_name = "N", value_parser = count())]
    inbound: Option<u64>,
    /// The share of the inbound connections that relay transactions, from 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = share)]
    relay_share: Option<f64>,
    /// The speed of the machine that the plan is for, as a share of the one that was measured:
    /// 0.3 is less than a third as fast
    #[arg(long, value_name = "SPEED", value_parser = speed, conflicts_with = "machine")]
    slower: Option<f64>,
    /// The JSON reports of `packetlane lab` on the machine that was measured, and on the one that
    /// the plan is for: their ratio scales the plan
    #[arg(long, value_names = ["HERE.json", "THERE.json"], num_args = 2)]
    machine: Vec<PathBuf>,
    /// Print the plan as JSON
    #[arg(long)]
    json: bool,
}

/// Sets of slots.
#[derive(Clone, Copy, ValueEnum)]
enum Preset {
    /// The default of Bitcoin Core since half of 189 inbound slots may relay
    Today,
    /// The default of 2023 as it was measured, with 91 of 114 inbound full-relay
    #[value(name = "2023")]
    Of2023,
    /// The proposal of 2023, with 113 inbound full-relay; its 75 others are our reading
    Proposal,
}

fn count() -> clap::builder::RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(..=1_000_000)
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("expected a share from 0 to 1".to_owned()),
    }
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(speed) if (0.001..=1000.0).contains(&speed) => Ok(speed),
        _ => Err("expected a speed from 0.001 to 1000".to_owned()),
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
    let (slower, note) = match (&args.machine[..], args.slower) {
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

/// How many times as long the second machine takes: the median over all times that both reports
/// have of one implementation, but for those of a GPU. And what to say of it.
fn ratio(here: &Path, there: &Path) -> Result<(f64, String), Box<dyn Error>> {
    let read = |path: &Path| -> Result<Report, String> {
        let text = packetlane_files::read_text(path)
            .map_err(|error| format!("cannot read {}: {error}", Name(path)))?;
        Report::from_json(&text)
            .map_err(|error| format!("{} is no report of the lab: {error}", Name(path)))
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
        "machine: {} times that both reports have; the middle half of their ratios is {:.2} to \
         {:.2}, the median {:.2}",
        ratios.len(),
        at(25),
        at(75),
        at(50)
    );
    Ok((at(50), note))
}
