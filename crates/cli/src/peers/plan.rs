//! `packetlane peers plan`.

use super::recordings::{self, Damage};
use crate::terminal::{Status, print};
use clap::{Args, ValueEnum};
use packetlane_files::Name;
use packetlane_peers::machine::{self, BOARDS, Board, Slowdown, Speed, Work};
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
    /// Plan for another machine: raspberry-pi-4, raspberry-pi-5, odroid-n2-plus, intel-n100, or a
    /// file that `--calibrate --json` wrote there
    #[arg(long, value_name = "NAME|FILE")]
    machine: Option<PathBuf>,
    /// The machine where the costs were measured, like --machine [default: with a recording, this
    /// machine, which is calibrated first; with the published figures, our reference machine]
    #[arg(long, value_name = "NAME|FILE", requires = "machine")]
    measured_on: Option<PathBuf>,
    /// Measure this machine's speed in hashing, validation and memory access, for --machine; takes
    /// a few seconds
    #[arg(
        long,
        conflicts_with_all = [
            "files", "preset", "outbound", "block_relay", "inbound", "relay_share", "speed",
            "machine", "measured_on",
        ]
    )]
    calibrate: bool,
    /// Print JSON
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
    if args.calibrate {
        let speed = calibrate()?;
        match args.json {
            true => print(format_args!("{}", speed.to_json())),
            false => print(format_args!("{}", described(&speed))),
        }
        return Ok(());
    }
    // Names and files are checked before a recording is read.
    let target = args.machine.as_deref().map(speed_of).transpose()?;
    let measured_on = args.measured_on.as_deref().map(speed_of).transpose()?;
    let (tally, damage) = match args.files.is_empty() {
        true => (None, Damage::default()),
        false => {
            let (tally, damage) = recordings::read(&args.files)?;
            (Some(tally), damage)
        }
    };
    let costs = |slots, slower| match &tally {
        Some(tally) => plan::from_recording(tally, slots, slower),
        None => Ok(plan::from_published(slots, slower)),
    };
    let slots = slots(args);
    let slower = args.speed.map_or(1.0, |speed| 1.0 / speed);
    // Before a calibration, which takes seconds.
    let plan = costs(slots, slower).map_err(|error| {
        let files = args.files.iter().map(|path| Name(path).to_string());
        let files: Vec<_> = files.collect();
        format!("no plan from {}: {error}", files.join(", "))
    })?;
    let mut plan = match target {
        None => plan,
        Some(target) => {
            let measured_on = match (measured_on, &tally) {
                (Some(speed), _) => speed,
                (None, Some(_)) => calibrate()?,
                (None, None) => Speed::reference(),
            };
            let slowdown = Slowdown::of(&target, &measured_on);
            let mut plan = plan::plan_for(slowdown, |slower| costs(slots, slower))?;
            if args.measured_on.is_none() {
                plan.notes.push(match tally {
                    Some(_) => "machine: the recording was made on this one, unless --measured-on \
                                names another"
                        .to_owned(),
                    None => {
                        "machine: the published costs were measured on an AMD EPYC 7R32, which \
                             is not calibrated; the factor is that to our reference machine"
                            .to_owned()
                    }
                });
            }
            plan
        }
    };
    // A recording may tell nothing about some of today's slots.
    if let Ok(today) = costs(Slots::TODAY, plan.slower) {
        plan.compare(&today);
    }
    match args.json {
        true => print(format_args!("{}", plan.to_json())),
        false => print(format_args!("{}", plan.to_text())),
    }
    damage.into_result()
}

/// The slots that the options name.
fn slots(args: &Plan) -> Slots {
    let preset = match args.preset {
        Preset::Today => Slots::TODAY,
        Preset::Of2023 => Slots::OF_2023,
        Preset::Proposal => Slots::PROPOSAL,
    };
    let inbound = preset.inbound_full_relay + preset.inbound_block_relay;
    Slots {
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
    }
}

/// The speed of the board of this name, or that in the file of this name.
fn speed_of(name: &Path) -> Result<Speed, String> {
    if let Some(board) = name.to_str().and_then(Board::named) {
        return Ok(board.speed());
    }
    let boards = BOARDS.map(|board| board.name).join(", ");
    let text = packetlane_files::read_text(name).map_err(|error| {
        format!(
            "{} is no known board ({boards}), and as a file it cannot be read: {error}",
            Name(name)
        )
    })?;
    Speed::from_json(&text).map_err(|error| {
        format!(
            "{} is not a calibration: {error}; write one with `peers plan --calibrate --json`",
            Name(name)
        )
    })
}

/// Measures this machine.
fn calibrate() -> Result<Speed, Box<dyn Error>> {
    let status = Status::new();
    let cpu = packetlane_lab::report::Machine::here().cpu;
    let speed = machine::calibrate(&cpu, |work, run| {
        status.show(&format!("calibrating: {}, run {run}", work.name()));
    });
    status.clear();
    Ok(speed?)
}

/// A calibration as text.
fn described(speed: &Speed) -> String {
    let reference = Speed::reference();
    let slowdown = Slowdown::of(speed, &reference);
    let mut text = format!(
        "{}: takes {:.2} times as long as {}\n",
        speed.machine, slowdown.factor, reference.machine
    );
    for (work, factor) in &slowdown.by_work {
        let ns = speed.of(*work).unwrap_or_default();
        let (time, what) = match work {
            Work::Hashing => (format!("{ns:.0} ns"), "double SHA-256 of 64 bytes"),
            Work::Validation => (
                format!("{:.1} us", ns / 1e3),
                "secp256k1 key exchange and 256 changes of a map of ids",
            ),
            Work::Memory => (format!("{ns:.0} ns"), "random read in 64 MiB"),
        };
        let name = work.name();
        text += &format!("{name:<11} {time:>9}  {factor:.2} times as long ({what})\n");
    }
    if cfg!(debug_assertions) {
        text += "- a debug build: the times are too long\n";
    }
    text
}
