//! The report on a terminal: the answers first, then a table for each experiment and metric, then
//! published figures.
//!
//! Plain text without colours, at most [`WIDTH`] columns wide. A table with too many
//! implementations continues below with the cases repeated. Then the libraries are separate from
//! our other backends.

use super::answers::{answers, description};
use super::notes::{Notes, PUBLISHED_NOTE};
use super::tables::{Cell, NOISY_NOTE, RATIO_NOTE, Table, tables};
use crate::quantity::{as_published, words};
use crate::report::Report;

/// Maximum length of a line, in columns.
pub const WIDTH: usize = 100;

/// Renders the whole report.
pub fn render(report: &Report) -> String {
    let mut out = summary(report);
    for name in report.experiments() {
        out.push('\n');
        out += &experiment(report, name);
    }
    let notes = notes(report);
    if !notes.is_empty() {
        out.push('\n');
    }
    out + &notes
}

/// The answers and the conditions of the run.
pub fn summary(report: &Report) -> String {
    let mut out = String::new();
    let answers = answers(report);
    let indent = answers.iter().map(|answer| answer.experiment.len() + 2);
    let indent = indent.max().unwrap_or(0);
    for answer in &answers {
        wrap(&mut out, &answer.experiment, &answer.text, indent);
    }
    if answers.is_empty() {
        out += "Nothing was measured: no case passes the filter.\n";
    }

    let machine = &report.machine;
    let mut about = machine.processor();
    if let Some(gpu) = &machine.gpu {
        about += &format!(", {gpu}");
    }
    if !machine.features.is_empty() {
        about += &format!("; {}", machine.features.join(" "));
    }
    out.push('\n');
    wrap(&mut out, "Machine", &about, 9);
    if let Some(folder) = &report.replayed {
        // On one line, because it is one name. Escaped, so that it cannot control the terminal.
        out += &format!("Replayed {}\n", packetlane_files::printable(folder));
    }
    for absent in &report.left_out {
        wrap(&mut out, "Not in this build", &absent.to_string(), 19);
    }
    out
}

/// The tables of one experiment, under its name.
pub fn experiment(report: &Report, name: &str) -> String {
    let head = format!("{name}  {}", description(name));
    let head = head.trim_end();
    let mut out = format!("{head}\n{}\n", "=".repeat(head.len()));
    let tables = tables(report).into_iter();
    for (place, table) in tables.filter(|table| table.experiment == name).enumerate() {
        if place > 0 {
            out.push('\n');
        }
        draw(&mut out, &table);
    }
    out
}

/// How to read the tables, and published figures.
pub fn notes(report: &Report) -> String {
    let mut out = String::new();
    if !report.ratios.is_empty() {
        wrap(&mut out, "", RATIO_NOTE, 0);
    }
    if report.rows.iter().any(|row| row.noisy) {
        wrap(&mut out, "", NOISY_NOTE, 0);
    }
    if !report.published.is_empty() {
        if !out.is_empty() {
            out.push('\n');
        }
        published(&mut out, report);
    }
    out
}

fn draw(out: &mut String, table: &Table) {
    wrap(out, "", &title(table), 0);
    for timed in &table.timed {
        wrap(out, "timed:", timed, 7);
    }
    // Only our own range has a column: those of the others would not fit.
    let mut left: Vec<Vec<String>> = table.keys.iter().map(|name| vec![name.clone()]).collect();
    for line in &table.lines {
        for (column, value) in left.iter_mut().zip(&line.values) {
            column.push(value.clone());
        }
    }
    let mut right = Vec::new();
    for (place, column) in table.columns.iter().enumerate() {
        // The title names the implementation of these backends.
        let name = column.lesser_backend().unwrap_or(&column.implementation);
        let mut cells = vec![name.to_owned()];
        let mut ranges = vec!["min-max".to_owned()];
        for line in &table.lines {
            let cell = line.cells[place].as_ref();
            cells.push(cell.map_or("-".to_owned(), short));
            ranges.push(cell.map_or(String::new(), |cell| cell.range.clone()));
        }
        right.push(cells);
        if place == 0 {
            right.push(ranges);
        }
    }
    let backends = table
        .columns
        .iter()
        .filter(|c| c.lesser_backend().is_some());
    let libraries = 2 + backends.count();

    let width = |column: &[String]| column.iter().map(|cell| cell.len()).max().unwrap_or(0);
    let total = |columns: &[Vec<String>]| columns.iter().map(|c| width(c) + 2).sum::<usize>();
    let room = WIDTH + 2 - total(&left);
    let mut from = 0;
    while from < right.len() {
        let rest = &right[from..];
        // At least one column, whatever its width.
        let fitting = (2..=rest.len()).take_while(|&count| total(&rest[..count]) <= room);
        let mut to = from + fitting.last().unwrap_or(1);
        if from < libraries && (libraries..right.len()).contains(&to) && libraries > 2 {
            to = libraries;
        }
        if from > 0 {
            out.push('\n');
        }
        for line in 0..=table.lines.len() {
            let mut text = String::new();
            for column in left.iter().chain(&right[from..to]) {
                text += &format!("{:>width$}  ", column[line], width = width(column));
            }
            out.push_str(text.trim_end());
            out.push('\n');
        }
        from = to;
    }
}

/// `time per packet (op=seal); packetlane by avx512, also by avx2, portable`.
fn title(table: &Table) -> String {
    let mut title = table.title();
    let named = table
        .columns
        .iter()
        .filter(|c| c.lesser_backend().is_none());
    let named: Vec<String> = named
        .filter(|c| !c.backend.is_empty())
        .map(|c| format!("{} by {}", c.implementation, c.backend))
        .collect();
    if !named.is_empty() {
        title += &format!("; {}", named.join(", "));
    }
    let lesser = table.columns.iter().filter_map(|c| c.lesser_backend());
    let lesser: Vec<&str> = lesser.collect();
    if !lesser.is_empty() {
        title += &format!(", also by {}", lesser.join(", "));
    }
    title
}

/// A cell's text: `518 ns~ (1.9x)`.
fn short(cell: &Cell) -> String {
    let mut text = cell.median.clone();
    if cell.noisy {
        text.push('~');
    }
    if let Some(ratio) = &cell.ratio {
        text += &format!(" ({ratio})");
    }
    text
}

fn published(out: &mut String, report: &Report) {
    let notes = Notes::of(&report.published);
    let title = "Published, not measured here";
    *out += &format!("{title}\n{}\n", "=".repeat(title.len()));
    wrap(out, "", PUBLISHED_NOTE, 0);
    let mut last = "";
    for noted in &notes.figures {
        let figure = noted.figure;
        if figure.experiment != last {
            *out += &format!("{}\n", figure.experiment);
            last = &figure.experiment;
        }
        let mut case = format!(
            "{}: {} [{}]",
            figure.case,
            words(&figure.metric),
            noted.source
        );
        if !noted.caveats.is_empty() {
            case += &format!(" ({})", noted.caveats);
        }
        let value = format!("  {:>16}", as_published(figure.value, &figure.unit));
        wrap(out, &value, &case, 20);
    }
    for (place, source) in notes.sources.iter().enumerate() {
        wrap(out, &format!("[{}]", place + 1), source, 4);
    }
    for (place, caveat) in notes.caveats.iter().enumerate() {
        wrap(out, &format!("({})", Notes::letter(place)), caveat, 4);
    }
}

/// Writes `head`, then `text` in lines that start at column `indent`. A word longer than the line
/// (an address) is not broken.
fn wrap(out: &mut String, head: &str, text: &str, indent: usize) {
    let mut line = format!("{head:indent$}");
    let mut empty = true;
    for word in text.split_whitespace() {
        let space = usize::from(!empty);
        if !empty && line.len() + space + word.len() > WIDTH {
            out.push_str(line.trim_end());
            out.push('\n');
            line = " ".repeat(indent);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    out.push_str(line.trim_end());
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_wrap_under_their_text() {
        let mut out = String::new();
        wrap(&mut out, "head", &"word ".repeat(30), 6);
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("head  word") && lines[0].len() <= WIDTH);
        assert!(lines[1].starts_with("      word"));
    }
}
