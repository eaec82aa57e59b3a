//! `packetlane peers report`.

use super::period::{self, Moment};
use super::recordings::Damage;
use crate::terminal::print;
use clap::Args;
use packetlane_files::Name;
use packetlane_peers::report;
use packetlane_peers::show::html::{self, Origin};
use packetlane_peers::show::text;
use std::error::Error;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(crate) struct Report {
    /// Recordings of `peers record`, or folders of Bitcoin Core's -capturemessages (messages, bytes
    /// and user agents, but no CPU time)
    #[arg(value_name = "RECORDING", required = true)]
    files: Vec<PathBuf>,
    /// Only what was recorded since then: a time ago in days, hours or minutes (7d, 12h, 90m), or a
    /// time in UTC (2026-11-20, 2026-11-20T12:00Z)
    #[arg(long, value_name = "TIME")]
    since: Option<Moment>,
    /// Only what was recorded before then; a date means the start of that day
    #[arg(long, value_name = "TIME")]
    until: Option<Moment>,
    /// Compare with another recording, such as one from before a change. The period is for both
    #[arg(long, value_name = "RECORDING")]
    against: Vec<PathBuf>,
    /// Write the report as HTML with plots to FILE
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the report as JSON to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(super) fn run(args: &Report) -> Result<(), Box<dyn Error>> {
    if args.html.is_some() && args.html == args.json {
        return Err("--html and --json are the same file".into());
    }
    let period = period::between(args.since, args.until)?;
    let (tally, damage) = super::recordings::read_within(&args.files, period)?;
    let mut report = report::Report::of(&tally);
    drop(tally);
    let mut damages = vec![damage];
    if !args.against.is_empty() {
        let (tally, damage) = super::recordings::read_within(&args.against, period)?;
        report.compare(&report::Report::of(&tally));
        damages.push(damage);
    }
    print(format_args!("{}", text::render(&report)));
    let write = |path: &Path, text: String| {
        let written = packetlane_files::write(path, text);
        written.map_err(|error| format!("cannot write {}: {error}", Name(path)))
    };
    if let Some(path) = &args.json {
        write(path, report.to_json())?;
    }
    if let Some(path) = &args.html {
        let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        let origin = Origin {
            command: words.collect::<Vec<_>>().join(" "),
            files: args
                .files
                .iter()
                .map(|path| path.display().to_string())
                .collect(),
        };
        write(path, html::render(&report, &origin))?;
        print(format_args!("\nAs HTML with plots: {}\n", Name(path)));
    }
    damages.into_iter().try_for_each(Damage::into_result)
}
