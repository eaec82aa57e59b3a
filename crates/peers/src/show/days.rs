//! The table of days, as text and as HTML.

use super::{bytes, digits, escape, or_dash, per_cent, text};
use crate::report::{DayRow, Report};
use crate::tally::MAX_DAYS;
use std::fmt::Write;

const TITLE: &str = "By day (UTC)";

const EXPLANATION: &str = "CPU in milliseconds per second: of all peers together (mean, and 95th percentile over windows), \
                           and of the message thread by its own clock. Messages and bytes of all peers: in 24 hours, at the \
                           rate of the observed time.";

const HEAD: [&str; 11] = [
    "", "recorded", "observed", "peers", "mean", "p95", "thread", "msgs in", "out", "bytes in",
    "out",
];

/// Writes the table as text. Nothing for a recording of a single day.
pub(super) fn as_text(out: &mut String, report: &Report) {
    if report.days.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{TITLE}. {EXPLANATION}");
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(report.days.iter().map(cells));
    text::lines(out, &rows);
    if let Some(note) = note(report) {
        let _ = writeln!(out, "{note}");
    }
}

/// Writes the table as HTML. Nothing for a recording of a single day.
pub(super) fn as_html(out: &mut String, report: &Report) -> std::fmt::Result {
    if report.days.is_empty() {
        return Ok(());
    }
    let row = |out: &mut String, tag: &str, cells: &[String]| -> std::fmt::Result {
        write!(out, "<tr>")?;
        for cell in cells {
            write!(out, "<{tag}>{}</{tag}>", escape(cell))?;
        }
        writeln!(out, "</tr>")
    };
    writeln!(
        out,
        "<h2>{TITLE}</h2>\n<p>{EXPLANATION}</p>\n<div class=\"scroll\"><table>\n<thead>"
    )?;
    row(out, "th", &HEAD.map(str::to_owned))?;
    writeln!(out, "</thead>\n<tbody>")?;
    for day in &report.days {
        row(out, "td", &cells(day))?;
    }
    writeln!(out, "</tbody></table></div>")?;
    match note(report) {
        Some(note) => writeln!(out, "<p class=\"soft\">{note}</p>"),
        None => Ok(()),
    }
}

fn note(report: &Report) -> Option<String> {
    let is_cut = report.earlier_days_dropped;
    is_cut.then(|| format!("Only the last {MAX_DAYS} days are listed."))
}

fn cells(day: &DayRow) -> [String; 11] {
    let ms = |us: f64| digits(us / 1e3);
    [
        day.date.clone(),
        format!("{} h", digits(day.recorded_hours)),
        per_cent(day.observed_share),
        digits(day.peers),
        or_dash(day.cpu_mean, ms),
        or_dash(day.cpu_p95, ms),
        or_dash(day.thread, ms),
        or_dash(day.received_per_day, |count| format!("{count:.0}")),
        or_dash(day.sent_per_day, |count| format!("{count:.0}")),
        bytes(day.received_bytes_per_day),
        bytes(day.sent_bytes_per_day),
    ]
}
