//! Rendering of a report: [`text`] for the terminal, [`html`] as a page with charts.

mod draw;
pub mod html;
mod tables;
pub mod text;

use crate::format::{bytes, digits, minute};
pub use crate::format::{plural, printable_json, time};
use crate::report::{Report, Short, SlotRow};
use packetlane_files::printable;

/// Formats a mean with its sampling error, if there is one.
fn mean(mean: f64, error: Option<f64>) -> String {
    match error {
        Some(error) if error > 0.0 => format!("{} ±{}", digits(mean), digits(error)),
        Some(_) => digits(mean),
        None => format!("{} ±?", digits(mean)),
    }
}

/// The value, or a dash if it is unknown.
fn or_dash<T>(known: Option<T>, show: impl Fn(T) -> String) -> String {
    known.map_or_else(|| "-".to_owned(), show)
}

fn per_cent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// The kinds of slots with a connection of at least a minute: the others have no rates.
fn lasting(report: &Report) -> Vec<&SlotRow> {
    let slots = report.slots.iter();
    slots.filter(|row| row.connections > 0).collect()
}

/// Escapes text for HTML elements and attributes.
fn escape(text: &str) -> String {
    printable(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// The summary at the top of a report.
fn sentences(report: &Report) -> Vec<String> {
    let mut said = Vec::new();
    if let Some((first, last)) = report.times {
        let [first, last] = [first, last].map(minute);
        said.push(format!("Recorded from {first} to {last} UTC."));
    }
    let observed = time(report.observed_seconds * 1e6);
    said.push(match report.observed_share < 1.0 {
        true => format!(
            "Observed {observed} in {}: {} of the time. The figures below are \
             extrapolated from these windows; ± is the standard error due to sampling. Rare \
             events, such as blocks, may fall outside all windows.",
            plural(report.windows, "window"),
            per_cent(report.observed_share),
        ),
        false => format!("Observed {observed}, all of the time: nothing is extrapolated."),
    });
    match (&report.together, &report.thread) {
        (None, _) if report.slots.is_empty() => {
            said.push("No peer was connected during the observed time.".into());
        }
        (None, _) => said.push(match report.counted {
            true => {
                "No CPU time per peer, only counts and bytes: record with probes to get it.".into()
            }
            false => "No CPU time per peer and no message counts, only bytes including framing: \
                      record with probes to get them."
                .into(),
        }),
        (Some(together), Some(thread)) if thread.us_per_second > 0.0 => {
            said.push(format!(
                "All peers together took {} of CPU per second; the worst {} took {} per second.",
                time(together.mean),
                window(report),
                time(together.worst),
            ));
            let (share, what) = match thread.unaccounted >= 0.0 {
                true => (thread.unaccounted, "is not accounted for"),
                false => (-thread.unaccounted, "is attributed in excess"),
            };
            said.push(format!(
                "The message thread ran {} per second by its own clock: {} of that in its loop \
                 (waiting, waking up, iterating over the peers), {} of it {what}. While attached, \
                 the probes made it run {} longer per second: {} more over the whole recording.",
                time(thread.us_per_second),
                time(thread.loop_us_per_second),
                per_cent(share),
                time(thread.probes_us_per_second),
                per_cent(
                    thread.probes_us_per_second * report.observed_share / thread.us_per_second
                ),
            ));
        }
        (Some(together), _) => said.push(format!(
            "All peers together took {} of CPU per second. The message thread's own time was not \
             recorded, so this sum cannot be checked against it.",
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
            "The hypervisor took {} of this machine's CPU time meanwhile (steal): the times \
             here are longer than they would be on a dedicated machine.",
            per_cent(report.stolen.min(1.0))
        ));
    }
    if report.together.is_some() && report.untimed_windows > 0 {
        said.push(format!(
            "CPU times are missing in {} of {}, as no probes were attached. They count as 0 there, so \
             all CPU times here are too low: report on recordings with and without probes apart.",
            report.untimed_windows,
            plural(report.windows, "window"),
        ));
    }
    if report.lost > 0 {
        said.push(format!(
            "{} events were lost: message counts are too low by that number.",
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
            "{connections} of {of} connections were shorter than a minute ({}){cpu}. The tables \
             of connections leave them out.",
            per_cent(connections as f64 / of as f64),
        ));
    }
    said
}

fn window(report: &Report) -> String {
    format!("window of {}", time(report.window_seconds * 1e6))
}
