//! How a report is shown: [`text`] on a terminal, [`html`] as a page with pictures.

mod draw;
pub mod html;
pub mod text;

use crate::report::{Report, Short};
use packetlane_files::printable;

/// A time in microseconds, with its unit and three digits.
#[must_use]
pub fn time(us: f64) -> String {
    let (value, unit) = match us {
        us if us >= 1e6 => (us / 1e6, "s"),
        us if us >= 1e3 => (us / 1e3, "ms"),
        us => (us, "us"),
    };
    format!("{} {unit}", digits(value))
}

/// Three digits.
fn digits(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        0.0 => "0".to_owned(),
        value => format!("{value:.2}"),
    }
}

/// A mean with the error that sampling leaves, if it leaves one.
fn mean(mean: f64, error: Option<f64>) -> String {
    match error {
        Some(error) if error > 0.0 => format!("{} ±{}", digits(mean), digits(error)),
        Some(_) => digits(mean),
        None => format!("{} ±?", digits(mean)),
    }
}

/// What is known, or a dash.
fn or_dash<T>(known: Option<T>, show: impl Fn(T) -> String) -> String {
    known.map_or_else(|| "-".to_owned(), show)
}

fn per_cent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn bytes(bytes: f64) -> String {
    match bytes {
        bytes if bytes >= 1e6 => format!("{} MB", digits(bytes / 1e6)),
        bytes if bytes >= 1e3 => format!("{} kB", digits(bytes / 1e3)),
        bytes => format!("{} B", digits(bytes)),
    }
}

/// Rows of the table of the peers' software.
const AGENTS: usize = 20;

/// Text as HTML, safe in elements and in attributes.
fn escape(text: &str) -> String {
    printable(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// The sentences at the top: what was seen, and what it comes to.
fn sentences(report: &Report) -> Vec<String> {
    let mut said = Vec::new();
    let observed = time(report.observed_seconds * 1e6);
    said.push(match report.observed_share < 1.0 {
        true => format!(
            "Observed {observed} in {} windows: {} of the time. What follows is scaled up from \
             these; ± is the standard error that this leaves. A rare event, such as a block, may \
             lie outside all windows.",
            report.windows,
            per_cent(report.observed_share),
        ),
        false => format!("Observed {observed}, all of the time: nothing is scaled up."),
    });
    match (&report.together, &report.thread) {
        (None, _) if report.slots.is_empty() => {
            said.push("No peer was connected in the time observed.".into());
        }
        (None, _) => said.push(match report.counted {
            true => "The source tells no time per peer: counts and bytes only. Probes do tell it."
                .into(),
            false => "The source tells no time per peer and does not count messages: bytes only, \
                      with framing. Probes do tell them."
                .into(),
        }),
        (Some(together), Some(thread)) => {
            said.push(format!(
                "All peers together took {} of CPU per second; the worst {} took {} per second.",
                time(together.mean),
                window(report),
                time(together.worst),
            ));
            let (share, what) = match thread.unaccounted >= 0.0 {
                true => (thread.unaccounted, "is not accounted for"),
                false => (-thread.unaccounted, "is accounted for beyond that"),
            };
            said.push(format!(
                "The message thread ran {} per second by its own clock: {} of that was its loop, \
                 which waits, wakes up and goes through the peers; {} of it {what}. The probes \
                 made it run {} longer in each second that they were there: {} more over all of \
                 the time.",
                time(thread.us_per_second),
                time(thread.loop_us_per_second),
                per_cent(share),
                time(thread.probes_us_per_second),
                per_cent(
                    thread.probes_us_per_second * report.observed_share
                        / thread.us_per_second.max(f64::MIN_POSITIVE)
                ),
            ));
        }
        (Some(together), None) => said.push(format!(
            "All peers together took {} of CPU per second. The message thread's own time was not \
             seen, so there is nothing to hold this against.",
            time(together.mean),
        )),
    }
    if let (None, Some(thread)) = (&report.together, &report.thread) {
        said.push(format!(
            "The message thread ran {} per second by its own clock.",
            time(thread.us_per_second),
        ));
    }
    if report.stolen > 0.01 {
        said.push(format!(
            "This machine's host took away {} of its CPU time meanwhile (steal): what is measured \
             here is more than the node takes on a machine of its own.",
            per_cent(report.stolen.min(1.0))
        ));
    }
    if report.lost > 0 {
        said.push(format!(
            "{} events were lost: counts of messages are too low by as many.",
            report.lost
        ));
    }
    let Short {
        connections,
        of,
        cpu_share,
    } = report.short;
    if of > 0 {
        let cpu = match cpu_share {
            Some(share) => format!(", with {} of the CPU time of peers", per_cent(share)),
            None => String::new(),
        };
        said.push(format!(
            "{connections} of {of} connections lived under a minute ({}){cpu}. The table of \
             connections leaves them out.",
            per_cent(connections as f64 / of as f64),
        ));
    }
    said
}

fn window(report: &Report) -> String {
    format!("window of {}", time(report.window_seconds * 1e6))
}
