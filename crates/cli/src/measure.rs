//! `packetlane lab`: measures, prints, and writes the report.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use packetlane::Engine;
use packetlane_lab::experiments;
use packetlane_lab::run::{self, Options};
use packetlane_lab::show::html::{self, Origin};
use packetlane_lab::show::text;
use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

#[derive(Args)]
pub(crate) struct Lab {
    /// The experiments to run; all by default
    #[arg(value_name = "EXPERIMENT", value_parser = experiment_parser())]
    experiments: Vec<String>,
    /// Run only the cases that have all these words, such as 'op=seal bytes=61'
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    filter: String,
    /// Run fewer cases with fewer samples, in less than half a minute
    #[arg(long)]
    quick: bool,
    /// Replay the traffic in DIR instead of the built-in recording. `connect --record` and
    /// Bitcoin Core's -capturemessages write such folders
    #[arg(long, value_name = "DIR")]
    replay: Option<PathBuf>,
    /// Where to write the JSON report
    #[arg(long, value_name = "FILE", default_value = "report.json")]
    json: PathBuf,
    /// Where to write the HTML report, with plots
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    html: PathBuf,
}

/// Accepts names of experiments; `--help` describes each.
fn experiment_parser() -> PossibleValuesParser {
    let values = experiments::ALL
        .iter()
        .map(|experiment| PossibleValue::new(experiment.name).help(experiment.description));
    PossibleValuesParser::new(values)
}

/// Runs the experiments and prints their results.
pub(crate) fn run(args: Lab) -> Result<(), Box<dyn Error>> {
    let options = Options {
        experiments: args.experiments,
        filter: args.filter,
        quick: args.quick,
        replay: args.replay,
        gpu_packets: None,
    };
    // An unwritable path must fail now, not after minutes of measuring.
    for path in [&args.json, &args.html] {
        let file = fs::File::options().append(true).create(true).open(path);
        file.map_err(|error| cannot_write(path, &error))?;
    }
    let report = run::run(Engine::detect()?, &options)?;

    // Arguments need not be UTF-8: a path is what the system takes for one.
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let origin = Origin {
        date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        command: words.collect::<Vec<_>>().join(" "),
    };
    let write = |path: &Path, text: String| {
        fs::write(path, text).map_err(|error| cannot_write(path, &error))
    };
    write(&args.json, report.to_json())?;
    write(&args.html, html::render(&report, &origin))?;

    let shown = format!(
        "{}\nThe same with pictures: {}   for programs: {}\n",
        text::render(&report),
        args.html.display(),
        args.json.display()
    );
    match io::stdout().lock().write_all(shown.as_bytes()) {
        // A reader that closes the pipe has read enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> String {
    format!("cannot write {}: {error}", path.display())
}
