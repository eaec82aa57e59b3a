//! The report as one HTML file: answers, plots, tables, published figures and a glossary.
//!
//! The file loads nothing and runs no script, so it can be mailed and archived. Its colours and
//! plots follow the reader's light or dark setting (see [`super::plot`]). In print it is light, and
//! no page break splits a plot or a table row.

use super::answers::{answers, description};
use super::draw::draw;
use super::notes::{Notes, PUBLISHED_NOTE};
use super::plot::{COLOURS, GRID, INK, Plot, hex, plots};
use super::tables::{NOISY_NOTE, RATIO_NOTE, Table, tables};
use crate::quantity::{as_published, words};
use crate::report::{OURS, Report, distinct};
use std::fmt::Write;

/// Where a report comes from, for its head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The day of the run.
    pub date: String,
    /// The command that made the report.
    pub command: String,
}

/// For each series: its colour on light, its colour on dark, and the dash pattern that
/// distinguishes it without colour.
const SERIES: [(&str, &str, &str); COLOURS.len()] = [
    ("#d55e00", "#ff8c3a", "none"),
    ("#0072b2", "#4fb0ee", "9 3"),
    ("#008f68", "#35cfa0", "3 3"),
    ("#b3568b", "#e79ac6", "12 3 3 3"),
    ("#707070", "#b0b0b0", "15 4"),
    ("#3e9bd0", "#9fdcff", "2 5"),
    ("#a87b00", "#efc14b", "6 6"),
    ("#5b3fa0", "#b09cf0", "9 3 2 3 2 3"),
    ("#d55e00", "#ff8c3a", "10 4"),
    ("#d55e00", "#ff8c3a", "5 4"),
    ("#d55e00", "#ff8c3a", "2 4"),
];

const STYLE: &str = "
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.45 system-ui, sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; }
h2 { margin: 2.4rem 0 .3rem; padding-top: .6rem; border-top: 2px solid var(--grid); }
h3 { margin: 1.8rem 0 .2rem; font-size: 1.05rem; }
code { font: .92em ui-monospace, monospace; }
p { margin: .3rem 0; max-width: 60rem; }
.soft { color: var(--soft); }
.answers { display: grid; grid-template-columns: max-content 1fr; gap: .35rem 1rem; margin: .6rem 0; }
.answers dt { font: .92em/1.6 ui-monospace, monospace; }
.answers dd { margin: 0; }
.answers small { display: block; color: var(--soft); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr));
  gap: 1.2rem 1.6rem; margin-top: .8rem; }
figure { margin: 0; break-inside: avoid; }
figcaption { font-weight: 600; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; font-size: .9rem; }
.legend span { display: inline-flex; align-items: center; gap: .35rem; white-space: nowrap; }
.legend svg { width: 34px; height: 12px; }
figure > svg { width: 100%; max-width: 640px; height: auto; display: block; }
svg text { font-family: system-ui, sans-serif; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: .4rem 0 .2rem; font-size: .92rem; }
th, td { padding: .22rem .7rem; text-align: right; border-bottom: 1px solid var(--grid);
  vertical-align: top; white-space: nowrap; font-variant-numeric: tabular-nums; }
thead th { border-bottom: 2px solid var(--ink); vertical-align: bottom; }
td small, th small { display: block; color: var(--soft); font-weight: 400; }
td.ours, th.ours { background: var(--ours); font-weight: 600; }
td.case, th.case { text-align: left; white-space: normal; }
tr { break-inside: avoid; }
.published { border-left: 6px solid var(--soft); padding-left: 1rem; }
.glossary dt { font-weight: 600; float: left; clear: left; margin-right: .6rem; }
.glossary dd { margin: 0 0 .3rem; }
li { overflow-wrap: anywhere; }
h2, h3, figcaption { break-after: avoid; }
@media print {
  :root { font-size: 11px; }
  body { max-width: none; padding: 0; }
  .plots { grid-template-columns: 1fr 1fr; }
  .scroll { overflow: visible; }
}
";

/// Terms explained at the end of the page.
const GLOSSARY: &[(&str, &str)] = &[
    ("BIP324", "Bitcoin's encrypted transport, also called v2."),
    (
        "seal, open",
        "seal: encrypt and authenticate a packet; open: check and decrypt it.",
    ),
    (
        "packet",
        "3 bytes of encrypted length, 1 header byte, the contents, 16 bytes of tag: 20 bytes more \
         than its contents.",
    ),
    (
        "batch",
        "the packets sealed or opened in one call, of one session or of many.",
    ),
    ("decoy", "a packet that the receiver checks and discards."),
    ("rekey", "BIP324's key change, every 224 packets."),
    (
        "goodput",
        "contents per second, without decoys, lengths, headers and tags.",
    ),
    (
        "overhead",
        "bytes on the wire in addition to the contents, in per cent of the contents.",
    ),
    (
        "backend",
        "the instruction set that a computation uses, such as avx2. packetlane uses the best one \
         that the machine has; packetlane-avx2 is packetlane on AVX2.",
    ),
    (
        "thread CPU time",
        "the time that the measuring thread ran; load from other processes does not count.",
    ),
    (
        "wall time",
        "elapsed time, including the effect of everything else that the machine does.",
    ),
    (
        "double SHA-256",
        "SHA-256 of the SHA-256 of a message: Bitcoin's hash.",
    ),
    (
        "txid, wtxid",
        "the hash that identifies a transaction, without and with its witnesses.",
    ),
    (
        "Merkle root",
        "one hash for a list of hashes, the leaves: pairs are hashed, then pairs of these hashes.",
    ),
    ("MB, MiB", "10^6 bytes, 2^20 bytes."),
    (
        "min-max",
        "the smallest and the largest sample. A sample takes at least 0.2 ms, after untimed calls \
         that warm up the caches.",
    ),
];

/// Renders the whole page.
pub fn render(report: &Report, origin: &Origin) -> String {
    let mut out = String::new();
    page(&mut out, report, origin).expect("writing to a string does not fail");
    out
}

fn page(out: &mut String, report: &Report, origin: &Origin) -> std::fmt::Result {
    let machine = &report.machine;
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Packetlane lab: {}</title>\n<style>{}{STYLE}</style>\n</head>\n<body>\n",
        escape(machine.title()),
        colours(),
    )?;
    let gpu = machine.gpu.as_deref().unwrap_or("no GPU");
    write!(
        out,
        "<h1>What encryption and hashing cost</h1>\n<p>Measured on {}, {}, on {} by \
         <code>{}</code></p>\n",
        escape(&machine.processor()),
        escape(gpu),
        escape(&origin.date),
        escape(&origin.command),
    )?;
    if !machine.features.is_empty() {
        let features = escape(&machine.features.join(" "));
        writeln!(out, "<p class=\"soft\">Instruction sets: {features}</p>")?;
    }

    if let Some(folder) = &report.replayed {
        let folder = escape(folder);
        writeln!(out, "<p class=\"soft\">Replayed: <code>{folder}</code></p>")?;
    }

    for absent in &report.left_out {
        let absent = escape(&absent.to_string());
        writeln!(out, "<p class=\"soft\">Not in this build: {absent}</p>")?;
    }

    writeln!(out, "<h2>Answers</h2>\n<dl class=\"answers\">")?;
    for answer in answers(report) {
        let (name, text) = (escape(&answer.experiment), escape(&answer.text));
        let description = escape(description(&answer.experiment));
        let soft = match description.is_empty() {
            true => String::new(),
            false => format!("<small>{description}</small>"),
        };
        writeln!(out, "<dt>{name}</dt><dd>{soft}{text}</dd>")?;
    }
    writeln!(out, "</dl>")?;

    let plots = plots(report);
    if !plots.is_empty() {
        writeln!(out, "<h2>Plots</h2>")?;
    }
    for experiment in distinct(plots.iter().map(|plot| plot.experiment.as_str())) {
        heading(out, experiment)?;
        writeln!(out, "<div class=\"plots\">")?;
        for plot in plots.iter().filter(|plot| plot.experiment == experiment) {
            figure(out, plot)?;
        }
        writeln!(out, "</div>")?;
    }

    let tables = tables(report);
    if !tables.is_empty() {
        writeln!(out, "<h2>Tables</h2>\n<p>{}</p>", escape(RATIO_NOTE))?;
        writeln!(out, "<p>Small print in a cell: min-max of the samples.</p>")?;
    }
    if report.rows.iter().any(|row| row.noisy) {
        writeln!(out, "<p>{}</p>", escape(NOISY_NOTE))?;
    }
    for experiment in distinct(tables.iter().map(|table| table.experiment.as_str())) {
        heading(out, experiment)?;
        for table in tables.iter().filter(|table| table.experiment == experiment) {
            figures(out, table)?;
        }
    }

    published(out, report)?;

    writeln!(out, "<h2>Glossary</h2>\n<dl class=\"glossary\">")?;
    for (word, meaning) in GLOSSARY {
        writeln!(out, "<dt>{}</dt><dd>{}</dd>", escape(word), escape(meaning))?;
    }
    writeln!(out, "</dl>\n</body>\n</html>")
}

/// The style sheet's colours, and the rules that map the exact colours of the drawings to them.
fn colours() -> String {
    let scheme = |pick: fn(&(&'static str, &'static str, &'static str)) -> &'static str,
                  rest: &str| {
        let mut text = rest.to_owned();
        for (place, series) in SERIES.iter().enumerate() {
            text += &format!(" --s{place}: {};", pick(series));
        }
        text
    };
    let light = scheme(
        |series| series.0,
        "--paper: #ffffff; --ink: #1a1a1a; --soft: #5c5c5c; --grid: #dcdcdc; --ours: #fdeee2;",
    );
    let dark = scheme(
        |series| series.1,
        "--paper: #16181b; --ink: #e8e8e8; --soft: #a5a5a5; --grid: #3a3d42; --ours: #3a2a1c;",
    );
    let mut text = format!(
        "\n:root {{ color-scheme: light dark; {light} }}\n\
         @media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    );
    let mut replace = |colour: String, variable: &str| {
        text += &format!(
            "svg [stroke=\"{colour}\"] {{ stroke: var({variable}); }} \
             svg [fill=\"{colour}\"] {{ fill: var({variable}); }}\n"
        );
    };
    replace(hex(INK), "--ink");
    replace(hex(GRID), "--grid");
    for (place, colour) in COLOURS.into_iter().enumerate() {
        replace(hex(colour), &format!("--s{place}"));
    }
    text + &dashes()
}

/// The dash patterns of the lines.
pub(super) fn dashes() -> String {
    let rule = |(colour, series): (_, &(&str, &str, &str))| {
        let (colour, dash) = (hex(colour), series.2);
        format!("svg polyline[stroke=\"{colour}\"] {{ stroke-dasharray: {dash}; }}\n")
    };
    COLOURS.into_iter().zip(&SERIES).map(rule).collect()
}

fn heading(out: &mut String, experiment: &str) -> std::fmt::Result {
    writeln!(
        out,
        "<h3><code>{}</code> <span class=\"soft\">{}</span></h3>",
        escape(experiment),
        escape(description(experiment)),
    )
}

fn figure(out: &mut String, plot: &Plot) -> std::fmt::Result {
    write!(
        out,
        "<figure>\n<figcaption>{}</figcaption>\n",
        escape(&plot.title)
    )?;
    // Bars are labelled directly.
    if !plot.bars {
        writeln!(out, "<div class=\"legend\">")?;
        for line in &plot.series {
            let colour = hex(COLOURS[line.colour % COLOURS.len()]);
            let width = line.width();
            writeln!(
                out,
                "<span><svg viewBox=\"0 0 34 12\" aria-hidden=\"true\"><polyline class=\"swatch\" \
                 points=\"0,6 34,6\" stroke=\"{colour}\" stroke-width=\"{width}\"/></svg>{}</span>",
                escape(&line.name),
            )?;
        }
        writeln!(out, "</div>")?;
    }
    let svg = draw(plot).replacen(
        "<svg ",
        &format!("<svg role=\"img\" aria-label=\"{}\" ", escape(&plot.title)),
        1,
    );
    writeln!(out, "{}\n</figure>", svg.trim())
}

fn figures(out: &mut String, table: &Table) -> std::fmt::Result {
    writeln!(out, "<p><strong>{}</strong></p>", escape(&table.title()))?;
    for timed in &table.timed {
        writeln!(out, "<p class=\"soft\">Timed: {}</p>", escape(timed))?;
    }
    write!(out, "<div class=\"scroll\"><table>\n<thead><tr>")?;
    for name in &table.keys {
        write!(out, "<th>{}</th>", escape(name))?;
    }
    let class = |name: &str| match name == OURS {
        true => " class=\"ours\"",
        false => "",
    };
    for column in &table.columns {
        // Only the backend's name, with ours below it: the full name would make the column too
        // wide.
        let (name, below) = match column.lesser_backend() {
            Some(backend) => (escape(backend), OURS.to_owned()),
            None => (escape(&column.implementation), escape(&column.backend)),
        };
        let class = class(&column.implementation);
        write!(out, "<th{class}>{name}<small>{below}</small></th>")?;
    }
    writeln!(out, "</tr></thead>\n<tbody>")?;
    for line in &table.lines {
        write!(out, "<tr>")?;
        for value in &line.values {
            write!(out, "<th>{}</th>", escape(value))?;
        }
        for (column, cell) in table.columns.iter().zip(&line.cells) {
            let class = class(&column.implementation);
            let Some(cell) = cell else {
                write!(out, "<td{class}>-</td>")?;
                continue;
            };
            let noisy = if cell.noisy { "~" } else { "" };
            let ratio = cell.ratio.as_ref().map(|ratio| format!(" ({ratio})"));
            write!(
                out,
                "<td{class}>{}{noisy}{}",
                escape(&cell.median),
                ratio.unwrap_or_default(),
            )?;
            if cell.range != cell.median {
                write!(out, "<small>{}</small>", escape(&cell.range))?;
            }
            write!(out, "</td>")?;
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</tbody></table></div>")
}

fn published(out: &mut String, report: &Report) -> std::fmt::Result {
    if report.published.is_empty() {
        return Ok(());
    }
    let notes = Notes::of(&report.published);
    write!(
        out,
        "<div class=\"published\">\n<h2>Published, not measured here</h2>\n<p>{}</p>\n\
         <div class=\"scroll\"><table>\n<thead><tr><th class=\"case\">experiment</th><th>figure</th>\
         <th class=\"case\">what</th><th>source</th><th>caveats</th></tr></thead>\n<tbody>\n",
        escape(PUBLISHED_NOTE),
    )?;
    for noted in &notes.figures {
        let figure = noted.figure;
        writeln!(
            out,
            "<tr><td class=\"case\">{}</td><td>{}</td><td class=\"case\">{}: {}</td><td>[{}]</td>\
             <td>{}</td></tr>",
            escape(&figure.experiment),
            escape(&as_published(figure.value, &figure.unit)),
            escape(&figure.case),
            escape(&words(&figure.metric)),
            noted.source,
            noted.caveats,
        )?;
    }
    write!(
        out,
        "</tbody></table></div>\n<p>Caveats</p>\n<ol type=\"a\">\n"
    )?;
    for caveat in &notes.caveats {
        writeln!(out, "<li>{}</li>", escape(caveat))?;
    }
    write!(out, "</ol>\n<p>Sources</p>\n<ol>\n")?;
    for source in &notes.sources {
        writeln!(out, "<li>{}</li>", escape(source))?;
    }
    writeln!(out, "</ol>\n</div>")
}

/// Escapes text for HTML elements and attributes.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
    }
}
