//! `packetlane lab`: runs benchmarks, prints and writes the report, and reads reports.

use crate::terminal::{complain, print};
use clap::builder::{PathBufValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use packetlane::Engine;
use packetlane_files::{Name, Output};
use packetlane_lab::compare::compare;
use packetlane_lab::experiments;
use packetlane_lab::report::{Machine, Report};
use packetlane_lab::run::{self, Options};
use packetlane_lab::show::html::{self, Origin};
use packetlane_lab::show::{headlines, picture, text};
use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

/// Where the reports of named machines lie.
const REPORTS: &str = "docs/bench/reports";

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Lab {
    #[command(subcommand)]
    reading: Option<Reading>,
    #[command(flatten)]
    measuring: Measuring,
}

/// Subcommands that read reports.
#[derive(Subcommand)]
enum Reading {
    /// Print the main ratios of several reports as one Markdown table, a column per report.
    Headlines {
        /// JSON reports, such as docs/bench/reports/*.json
        #[arg(value_name = "REPORT", required = true, value_parser = report_parser())]
        reports: Vec<Report>,
    },
    /// List what became slower or faster beyond the noise of both reports, the worst first.
    ///
    /// Compares the ratio of our time to a library's, or the time itself where there is no library
    /// to compare with.
    ///
    /// Exit status: 0 if nothing became slower, 1 if something did, 2 if a report cannot be read.
    Compare(Box<Compared>),
}

#[derive(Args)]
struct Compared {
    /// Older JSON report
    #[arg(value_name = "OLD", value_parser = report_parser())]
    old: Report,
    /// Newer JSON report
    #[arg(value_name = "NEW", value_parser = report_parser())]
    new: Report,
}

#[derive(Args)]
struct Measuring {
    /// Experiments to run [default: all]
    #[arg(value_name = "EXPERIMENT", value_parser = experiment_parser())]
    experiments: Vec<String>,
    /// Run only cases that match all these words, such as 'op=seal bytes=61'
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    filter: String,
    /// Run fewer cases with fewer samples, in about a minute
    #[arg(long)]
    quick: bool,
    /// Replay the messages recorded in DIR instead of the built-in recording. `connect --record`
    /// and Bitcoin Core's -capturemessages write such folders
    #[arg(long, value_name = "DIR")]
    replay: Option<PathBuf>,
    /// Name this machine, such as 'Zen 5 VM'. Also writes its headline cases to docs/bench/reports:
    /// zen-5-vm.json and a picture, zen-5-vm.svg
    #[arg(long, value_name = "NAME", value_parser = machine_name)]
    name: Option<String>,
    /// Path of the JSON report
    #[arg(long, value_name = "FILE", default_value = "report.json")]
    json: PathBuf,
    /// Path of the HTML report, with plots
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    html: PathBuf,
}

/// Parses names of experiments; `--help` describes each.
fn experiment_parser() -> PossibleValuesParser {
    let available = experiments::ALL
        .iter()
        .map(|experiment| PossibleValue::new(experiment.name).help(experiment.description));
    let unavailable = experiments::ABSENT.iter().map(|(name, feature)| {
        let how = format!("(needs a build with --features {feature})");
        PossibleValue::new(*name).help(how)
    });
    PossibleValuesParser::new(available.chain(unavailable))
}

/// Parses the path of a JSON report and reads it.
fn report_parser() -> impl TypedValueParser<Value = Report> {
    PathBufValueParser::new().try_map(|path| {
        let text = packetlane_files::read_text(&path).map_err(|error| error.to_string())?;
        Report::from_json(&text).map_err(|error| format!("not a report of the lab: {error}"))
    })
}

/// Parses a machine's name, from which file names are made.
fn machine_name(name: &str) -> Result<String, &'static str> {
    match slug(name).is_empty() {
        true => Err("expected at least one letter or digit"),
        false => Ok(name.to_owned()),
    }
}

/// The file name for a machine's name, such as `zen-5-vm`.
fn slug(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<String> = words
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    words.join("-")
}

/// Runs benchmarks, or reads reports. Returns failure if a comparison found something slower.
pub(crate) fn run(args: Lab) -> Result<ExitCode, Box<dyn Error>> {
    match args.reading {
        None => measure(args.measuring)?,
        Some(Reading::Headlines { reports }) => {
            print(format_args!("{}", headlines::markdown(&reports)));
        }
        Some(Reading::Compare(compared)) => {
            let Compared { old, new } = *compared;
            if let Some(difference) = difference(&old.machine, &new.machine) {
                complain(format_args!("warning: {difference}"));
            }
            let comparison = compare(&old, &new);
            // The exit status is the answer, even if nobody reads the list.
            print(format_args!("{comparison}"));
            if comparison.is_slower() {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A warning if two reports are not of the same machine.
fn difference(old: &Machine, new: &Machine) -> Option<String> {
    let named = old.name.is_some() && new.name.is_some() && old.name != new.name;
    if named || old.cpu != new.cpu {
        let titles = [old.title(), new.title()];
        return Some(format!(
            "the reports are from two machines, {}",
            titles.join(" and ")
        ));
    }
    let other = old.features != new.features;
    other.then(|| "the reports are from machines with different instruction sets".to_owned())
}

/// Runs the experiments, prints their results and writes the reports.
fn measure(args: Measuring) -> Result<(), Box<dyn Error>> {
    let options = Options {
        experiments: args.experiments,
        filter: args.filter,
        quick: args.quick,
        replay: args.replay,
        gpu_packets: None,
    };
    // Fail on an unwritable path now, not after minutes of measuring.
    let kept = args
        .name
        .as_ref()
        .map(|name| Path::new(REPORTS).join(slug(name)));
    let kept = kept.map(|path| path.with_extension("json"));
    if kept.is_some() {
        fs::create_dir_all(REPORTS).map_err(|error| cannot_write(Path::new(REPORTS), &error))?;
    }
    for path in [&args.json, &args.html].into_iter().chain(&kept) {
        Output::create(path).map_err(|error| cannot_write(path, &error))?;
    }
    // Failing to print stops neither the run nor the reports.
    let ran = run::run_and_show(Engine::detect()?, &options, &mut |report, experiment| {
        print(format_args!("{}\n", text::experiment(report, experiment)));
    });
    let mut report = ran?;
    report.machine.name = args.name;

    // Arguments need not be UTF-8: a path is any bytes.
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let origin = Origin {
        date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        command: words.collect::<Vec<_>>().join(" "),
    };
    let write = |path: &Path, text: String| {
        packetlane_files::write(path, text).map_err(|error| cannot_write(path, &error))
    };
    write(&args.json, report.to_json())?;
    write(&args.html, html::render(&report, &origin))?;

    let mut shown = format!(
        "{}\n{}\nAs HTML with plots: {}   as JSON: {}\n",
        text::notes(&report),
        text::summary(&report),
        Name(&args.html),
        Name(&args.json)
    );
    if let Some(json) = &kept {
        write(json, headlines::only(&report).to_json())?;
        shown += &format!("Main results: {}", Name(json));
        if let Some(picture) = picture::render(&report) {
            let svg = json.with_extension("svg");
            write(&svg, picture)?;
            shown += &format!("   as a picture: {}", Name(&svg));
        }
        shown.push('\n');
    }
    print(format_args!("{shown}"));
    Ok(())
}

fn cannot_write(path: &Path, error: &io::Error) -> String {
    format!("cannot write {}: {error}", Name(path))
}
