//! `packetlane peers report`.

use crate::terminal::print;
use clap::Args;
use packetlane_files::Name;
use packetlane_peers::report;
use packetlane_peers::show::html::{self, Origin};
use packetlane_peers::show::text;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

#[derive(Args)]
pub(crate) struct Report {
    /// Recordings of `peers record`, or folders of Bitcoin Core's -capturemessages (messages, bytes
    /// and user agents, but no CPU time)
    #[arg(value_name = "RECORDING", required = true)]
    files: Vec<PathBuf>,
    /// Write the report as HTML with plots to FILE
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the report as JSON to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(super) fn run(args: &Report) -> Result<(), Box<dyn Error>> {
    let (tally, damage) = super::recordings::read(&args.files)?;
    let report = report::Report::of(&tally);
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
        let begins = report.times.map_or(0, |(first, _)| first);
        // A damaged recording may contain any time: dates end with the year 9999.
        let begins = Duration::from_micros(begins.min(253_402_300_799_000_000));
        let date = humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + begins);
        let origin = Origin {
            date: date.to_string(),
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
    damage.into_result()
}
