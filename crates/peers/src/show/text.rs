//! Renders a report as text for the terminal.

use super::tables::{self, Table};
use super::{bytes, digits, mean, or_dash, printable, sentences, time};
use crate::report::{Report, SlotRow, TypeRow};
use std::fmt::Write;

/// Rows in each table of message types.
const TYPES: usize = 12;

/// Renders the whole report.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    for sentence in sentences(report) {
        let _ = writeln!(out, "{sentence}");
    }
    slots(&mut out, report);
    hints(&mut out, report);
    for one in tables::all(report) {
        table(&mut out, &one);
    }
    for relay in ["full-relay", "block-relay", "not known yet"] {
        for direction in ["received", "sent"] {
            types(&mut out, report, relay, direction);
        }
    }
    out
}

/// What could be done, as lines to copy.
fn hints(out: &mut String, report: &Report) {
    let hints = tables::hints(report);
    if hints.is_empty() {
        return;
    }
    let _ = writeln!(out, "\nWhat would help\n{}", tables::ABOUT_HINTS);
    for [reason, loses, command] in hints {
        let _ = writeln!(out, "{}", printable(&reason));
        let _ = writeln!(out, "  would be lost: {}", printable(&loses));
        let _ = writeln!(out, "  {}", printable(&command));
    }
}

fn table(out: &mut String, table: &Table) {
    let _ = writeln!(out, "\n{}", table.title);
    if !table.about.is_empty() {
        let _ = writeln!(out, "{}", table.about);
    }
    let is_here = |place: &usize| !table.only_page.contains(&table.head[*place]);
    let places: Vec<usize> = (0..table.head.len()).filter(is_here).collect();
    let texts = places.iter().filter(|place| **place < table.texts).count();
    let head = places.iter().map(|place| table.head[*place].to_owned());
    let mut rows = vec![head.collect::<Vec<_>>()];
    for row in table.rows.iter().take(table.most) {
        rows.push(places.iter().map(|place| printable(&row[*place])).collect());
    }
    aligned(out, &rows, texts);
    let more = table.rows.len().saturating_sub(table.most) as u64 + table.more;
    if more > 0 {
        let _ = writeln!(out, "and {more} more");
    }
}

fn slots(out: &mut String, report: &Report) {
    let timed = report.together.is_some();
    let slots = super::lasting(report);
    if report.slots.is_empty() || slots.is_empty() && !timed {
        return;
    }
    let _ = match timed {
        true => writeln!(
            out,
            "\nCPU of a connection, us per second (connections of at least a minute)"
        ),
        false => writeln!(out, "\nConnections of at least a minute"),
    };
    let mut rows = vec![match timed {
        true => vec![
            "",
            "count",
            "mean",
            "median",
            "p95",
            "worst",
            "sd",
            "receiving",
            "sending",
            "published 2023",
        ],
        false => vec!["", "count", "msgs/s in", "out", "bytes/s in", "out"],
    }];
    let cells: Vec<Vec<String>> = slots.iter().map(|row| slot(row, timed)).collect();
    rows.extend(
        cells
            .iter()
            .map(|row| row.iter().map(String::as_str).collect()),
    );
    if timed && let Some(together) = &report.together {
        let (low, high) = report.published.together_ms;
        let published = format!("{:.0}-{:.0}", low * 1e3, high * 1e3);
        let connections: u64 = report.slots.iter().map(|row| row.connections).sum();
        let row = [
            "all peers together".to_owned(),
            connections.to_string(),
            mean(together.mean, together.error),
            digits(together.median),
            digits(together.p95),
            digits(together.worst),
            digits(together.sd),
            String::new(),
            String::new(),
            published,
        ];
        let mut table = rows;
        table.push(row.iter().map(String::as_str).collect());
        if let Some(thread) = &report.thread {
            let own = digits(thread.us_per_second);
            let its_loop = digits(thread.loop_us_per_second);
            let rest = digits(thread.unaccounted_us_per_second.max(0.0));
            table.push(vec!["message thread itself", "", &own]);
            table.push(vec!["  its loop, not for any peer", "", &its_loop]);
            table.push(vec!["  not accounted for", "", &rest]);
            lines(out, &table);
        } else {
            lines(out, &table);
        }
        let _ = writeln!(out, "published 2023: {}", report.published.source);
    } else {
        lines(out, &rows);
    }
}

fn slot(row: &SlotRow, timed: bool) -> Vec<String> {
    let mut cells = vec![row.slot.to_owned(), row.connections.to_string()];
    if !timed {
        cells.extend([
            or_dash(row.received_per_second, digits),
            or_dash(row.sent_per_second, digits),
            bytes(row.received_bytes_per_second),
            bytes(row.sent_bytes_per_second),
        ]);
        return cells;
    }
    if let Some(cpu) = &row.cpu {
        cells.extend([
            mean(cpu.mean, cpu.error),
            digits(cpu.median),
            digits(cpu.p95),
            digits(cpu.worst),
            digits(cpu.sd),
        ]);
        cells.extend([row.receiving, row.sending].map(|us| us.map_or(String::new(), digits)));
    } else {
        cells.extend(std::iter::repeat_n("-".to_owned(), 7));
    }
    cells.push(match row.published {
        Some((low, high)) => format!("{low:.0}-{high:.0}"),
        None => String::new(),
    });
    cells
}

fn types(out: &mut String, report: &Report, relay: &str, direction: &str) {
    let of = |row: &&TypeRow| row.relay == relay && row.direction == direction;
    let rows: Vec<&TypeRow> = report.types.iter().filter(of).collect();
    if rows.is_empty() {
        return;
    }
    let timed = rows.iter().any(|row| row.cpu.is_some());
    let preposition = if direction == "sent" { "to" } else { "from" };
    let peers = match relay {
        "not known yet" => "peers whose relay flag is unknown".to_owned(),
        relay => format!("{relay} peers"),
    };
    let what = match timed {
        true => ": CPU to process one",
        false => "",
    };
    let _ = writeln!(out, "\nMessages {preposition} {peers}{what}");
    let mut table = vec![match timed {
        true => vec![
            "", "count", "bytes", "mean", "median", "p95", "worst", "sd", "total/s",
        ],
        false => vec!["", "count", "bytes"],
    }];
    table[0][0] = direction;
    let cells: Vec<Vec<String>> = rows
        .iter()
        .take(TYPES)
        .map(|row| kind(row, timed))
        .collect();
    table.extend(
        cells
            .iter()
            .map(|row| row.iter().map(String::as_str).collect()),
    );
    lines(out, &table);
    if rows.len() > TYPES {
        let _ = writeln!(out, "and {} more", rows.len() - TYPES);
    }
}

fn kind(row: &TypeRow, timed: bool) -> Vec<String> {
    let mut cells = vec![
        printable(&row.message_type),
        or_dash(row.count, |count| count.to_string()),
        bytes(row.bytes as f64),
    ];
    if timed && let Some(cpu) = &row.cpu {
        let times = [cpu.mean, cpu.median, cpu.p95, cpu.worst, cpu.sd];
        cells.extend(times.map(time));
        cells.push(row.us_per_second.map_or(String::new(), time));
    }
    cells
}

/// Writes a table with aligned columns: the first to the left, the others to the right.
pub(crate) fn lines<S: AsRef<str>>(out: &mut String, rows: &[impl AsRef<[S]>]) {
    aligned(out, rows, 1);
}

/// The same with `texts` columns to the left.
fn aligned<S: AsRef<str>>(out: &mut String, rows: &[impl AsRef<[S]>], texts: usize) {
    let columns = rows.iter().map(|row| row.as_ref().len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.as_ref().get(column));
            let widths = cells.map(|cell| cell.as_ref().chars().count());
            widths.max().unwrap_or(0)
        })
        .collect();
    for row in rows {
        let mut line = String::new();
        for (place, (cell, width)) in row.as_ref().iter().zip(&widths).enumerate() {
            let cell = cell.as_ref();
            let gap = if place == 0 { "" } else { "  " };
            let _ = match place < texts {
                true => write!(line, "{gap}{cell:<width$}"),
                false => write!(line, "{gap}{cell:>width$}"),
            };
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
}
