//! The report as one HTML file. It loads nothing, follows the reader's light or dark setting, and
//! can be printed. A script sorts tables; without it, they are in their first order.

use super::tables::{self, Table};
use super::{bytes, digits, draw, escape, mean, or_dash, per_cent, sentences, time};
use crate::report::{Report, TypeRow};
use std::fmt::Write;

/// Maximum number of types in a boxen plot.
const BOXES: usize = 14;

const STYLE: &str = "
:root { color-scheme: light dark; --paper: #fff; --ink: #1a1a1a; --soft: #5c5c5c; --grid: #dcdcdc;
  --peers: #d55e00; --thread: #0072b2; --box: 213,94,0; --ours: #fdeee2; }
@media screen and (prefers-color-scheme: dark) { :root { --paper: #16181b; --ink: #e8e8e8;
  --soft: #a5a5a5; --grid: #3a3d42; --peers: #ff8c3a; --thread: #4fb0ee; --box: 255,140,58;
  --ours: #3a2a1c; } }
body { margin: 0 auto; max-width: 75rem; padding: 1.5rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.45 system-ui, sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; }
h2 { margin: 2.2rem 0 .3rem; padding-top: .6rem; border-top: 2px solid var(--grid); }
p { margin: .3rem 0; max-width: 60rem; }
.soft { color: var(--soft); }
figure { margin: .8rem 0; break-inside: avoid; }
figcaption { font-weight: 600; }
figure { overflow-x: auto; }
figure > svg { width: 100%; min-width: 720px; max-width: 900px; height: auto; display: block; }
svg text { font: 13px system-ui, sans-serif; fill: var(--ink); }
svg text.soft { fill: var(--soft); }
.grid { stroke: var(--grid); }
.line { fill: none; stroke-width: 1.5; }
.line.peers { stroke: var(--peers); stroke-width: 2; }
.line.thread { stroke: var(--thread); stroke-dasharray: 5 3; }
.box { stroke: var(--paper); stroke-width: .6; }
.b1 { fill: rgba(var(--box),1); } .b2 { fill: rgba(var(--box),.8); } .b3 { fill: rgba(var(--box),.62); }
.b4 { fill: rgba(var(--box),.46); } .b5 { fill: rgba(var(--box),.34); } .b6 { fill: rgba(var(--box),.24); }
.median { stroke: var(--ink); stroke-width: 2; }
.worst { fill: var(--soft); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: .4rem 0 .2rem; font-size: .92rem; }
th, td { padding: .22rem .6rem; text-align: right; border-bottom: 1px solid var(--grid);
  font-variant-numeric: tabular-nums; }
th { vertical-align: bottom; }
td { white-space: nowrap; }
td:first-child, td.text { white-space: normal; }
thead th { border-bottom: 2px solid var(--ink); }
th:first-child, td:first-child, .text { text-align: left; }
.sorts { font-size: .75rem; }
.sorts th, .sorts td { padding: .2rem .22rem; }
td.text { overflow-wrap: anywhere; }
td.text:not(:first-child) { min-width: 6.4rem; }
table:not(.sorts) td:first-child { min-width: 9rem; }
.sorts th { cursor: pointer; }
.sorts th[aria-sort=descending]::after { content: ' \\2193'; }
.sorts th[aria-sort=ascending]::after { content: ' \\2191'; }
tr.sum td { font-weight: 600; border-top: 2px solid var(--ink); }
td.published, th.published { color: var(--soft); font-style: italic; border-left: 1px solid var(--grid); }
tr { break-inside: avoid; }
h2, figcaption { break-after: avoid; }
dt { font-weight: 600; float: left; clear: left; margin-right: .6rem; }
dd { margin: 0 0 .3rem; }
@media print { :root { font-size: 11px; } body { max-width: none; padding: 0; } .scroll { overflow: visible; } }
";

/// Sorts a table by a column when its head is clicked: numbers first and downwards, by their value
/// with its unit; at the next click the other way round.
const SCRIPT: &str = "
const units = { us: 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600, d: 86400, kB: 1e3, MB: 1e6 };
function value(cell) {
  if (cell.classList.contains('text') && cell.cellIndex > 0) return null;
  const found = /^>?(-?[0-9]+([.][0-9]+)?)( ([A-Za-z%]+))?$/.exec(cell.textContent);
  if (!found) return null;
  return Number(found[1]) * (Object.hasOwn(units, found[4] ?? '') ? units[found[4]] : 1);
}
for (const table of document.querySelectorAll('table.sorts')) {
  table.tHead.rows[0].querySelectorAll('th').forEach((head, column) => {
    head.tabIndex = 0;
    head.addEventListener('keydown', event => { if (event.key === 'Enter') head.click(); });
    head.addEventListener('click', () => {
      const up = head.ariaSort === 'descending';
      for (const other of table.tHead.rows[0].cells) other.ariaSort = null;
      head.ariaSort = up ? 'ascending' : 'descending';
      const rows = [...table.tBodies[0].rows].map(row => [value(row.cells[column]), row]);
      rows.sort(([a, one], [b, other]) => {
        if (a === null || b === null) {
          if (a !== b) return a === null ? 1 : -1;
          const [x, y] = [one, other].map(row => row.cells[column].textContent);
          return up ? y.localeCompare(x) : x.localeCompare(y);
        }
        return up ? a - b : b - a;
      });
      table.tBodies[0].append(...rows.map(([, row]) => row));
    });
  });
}
";

/// Terms explained at the end of the page.
const GLOSSARY: &[(&str, &str)] = &[
    (
        "CPU time per second",
        "how long the node's message thread worked for a peer in each second. 1 ms per second is \
         0.1 % of a core. Time in which the thread waited, for example for a disk, is not \
         included.",
    ),
    (
        "receiving, sending",
        "the two calls that the thread makes for each peer whenever it wakes up: one checks for \
         messages from the peer, the other for anything to send to it. Even an idle peer costs \
         these calls.",
    ),
    (
        "full-relay, block-relay",
        "peers that relay transactions, and peers that relay only blocks. For inbound peers, the \
         relay flag of their version message decides.",
    ),
    (
        "mean, median, p95, worst, sd",
        "for connections: over the averages of each connection, weighted by how long it was \
         observed. For all peers together: over windows. For message types: over messages. p95: \
         95 % are at or below this value; sd: standard deviation. Median and p95 are accurate to \
         1 %.",
    ),
    (
        "±",
        "the standard error of the mean, because only a part of the time was observed: in 19 of \
         20 cases, the true mean is within twice this value.",
    ),
    (
        "not accounted for",
        "run time of the message thread that is attributed neither to a peer, nor to its loop, \
         nor to the probes.",
    ),
];

/// Where a report comes from, for its head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The command that made the report.
    pub command: String,
    /// The recordings.
    pub files: Vec<String>,
}

/// Renders the whole page.
#[must_use]
pub fn render(report: &Report, origin: &Origin) -> String {
    let mut out = String::new();
    page(&mut out, report, origin).expect("writing to a string does not fail");
    out
}

fn page(out: &mut String, report: &Report, origin: &Origin) -> std::fmt::Result {
    let files = escape(&origin.files.join(", "));
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>What each peer costs: {files}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>What each peer costs</h1>\n<p>{files}; by <code>{}</code></p>\n",
        escape(&origin.command),
    )?;
    for sentence in sentences(report) {
        writeln!(out, "<p>{}</p>", escape(&sentence))?;
    }
    if let Some(svg) = draw::time_line(report) {
        writeln!(
            out,
            "<h2>Over time</h2>\n<figure><figcaption>CPU time per second: <span style=\"color: \
             var(--peers)\">all peers together</span>{}</figcaption>\n{svg}</figure>",
            match report.thread {
                Some(_) => {
                    ", <span style=\"color: var(--thread)\">message thread by its own clock \
                     (dashed)</span>"
                }
                None => "",
            }
        )?;
    }
    connections(out, report)?;
    hints(out, report)?;
    for one in tables::all(report) {
        table(out, &one)?;
    }
    boxes(out, report)?;
    messages(out, report)?;
    writeln!(out, "<h2>Glossary</h2>\n<dl>")?;
    for (word, meaning) in GLOSSARY {
        writeln!(out, "<dt>{}</dt><dd>{}</dd>", escape(word), escape(meaning))?;
    }
    writeln!(out, "</dl>\n<script>{SCRIPT}</script>\n</body>\n</html>")
}

/// Index of the column with the published figures, next to ours.
const PUBLISHED: usize = 3;

fn row(out: &mut String, class: &str, cells: &[String], published: bool) -> std::fmt::Result {
    write!(out, "<tr{class}>")?;
    for (place, cell) in cells.iter().enumerate() {
        let class = match published && place == PUBLISHED {
            true => " class=\"published\"",
            false => "",
        };
        write!(out, "<td{class}>{}</td>", escape(cell))?;
    }
    writeln!(out, "</tr>")
}

fn head(out: &mut String, cells: &[&str], published: bool) -> std::fmt::Result {
    write!(out, "<div class=\"scroll\"><table>\n<thead><tr>")?;
    for (place, cell) in cells.iter().enumerate() {
        let class = match published && place == PUBLISHED {
            true => " class=\"published\"",
            false => "",
        };
        write!(out, "<th{class}>{}</th>", escape(cell))?;
    }
    writeln!(out, "</tr></thead>\n<tbody>")
}

fn connections(out: &mut String, report: &Report) -> std::fmt::Result {
    if report.together.is_none() && super::lasting(report).is_empty() {
        return Ok(());
    }
    writeln!(out, "<h2>Connections</h2>")?;
    let Some(together) = &report.together else {
        let cells = [
            "",
            "connections",
            "messages/s in",
            "out",
            "bytes/s in",
            "out",
        ];
        head(out, &cells, false)?;
        for slot in super::lasting(report) {
            let cells = [
                slot.slot.to_owned(),
                slot.connections.to_string(),
                or_dash(slot.received_per_second, digits),
                or_dash(slot.sent_per_second, digits),
                bytes(slot.received_bytes_per_second),
                bytes(slot.sent_bytes_per_second),
            ];
            row(out, "", &cells, false)?;
        }
        return writeln!(out, "</tbody></table></div>");
    };
    writeln!(
        out,
        "<p>CPU microseconds per second of one connection, over connections of at least a \
         minute.</p>"
    )?;
    let cells = [
        "",
        "connections",
        "mean",
        "published 2023: mean",
        "median",
        "p95",
        "worst",
        "sd",
        "receiving",
        "sending",
    ];
    head(out, &cells, true)?;
    let range = |(low, high): (f64, f64)| format!("{low:.0}-{high:.0}");
    for slot in super::lasting(report) {
        let published = slot.published.map_or(String::new(), range);
        let mut cells = vec![slot.slot.to_owned(), slot.connections.to_string()];
        match &slot.cpu {
            Some(cpu) => {
                cells.extend([mean(cpu.mean, cpu.error), published]);
                cells.extend([cpu.median, cpu.p95, cpu.worst, cpu.sd].map(digits));
            }
            None => {
                cells.extend(["-".to_owned(), published]);
                cells.extend(std::iter::repeat_n("-".to_owned(), 4));
            }
        }
        let part = |us: Option<f64>| us.map_or("-".to_owned(), digits);
        cells.extend([part(slot.receiving), part(slot.sending)]);
        row(out, "", &cells, true)?;
    }
    let all: u64 = report.slots.iter().map(|slot| slot.connections).sum();
    let (low, high) = report.published.together_ms;
    let cells = [
        "all peers together".to_owned(),
        all.to_string(),
        mean(together.mean, together.error),
        range((low * 1e3, high * 1e3)),
        digits(together.median),
        digits(together.p95),
        digits(together.worst),
        digits(together.sd),
        String::new(),
        String::new(),
    ];
    row(out, " class=\"sum\"", &cells, true)?;
    if let Some(thread) = &report.thread {
        for (name, value) in [
            (
                "message thread, by its own clock",
                digits(thread.us_per_second),
            ),
            (
                "overhead of the probes while attached, not included above",
                digits(thread.probes_us_per_second),
            ),
            (
                "its loop: waiting, waking up, iterating over the peers",
                digits(thread.loop_us_per_second),
            ),
            (
                "not accounted for",
                format!(
                    "{} ({})",
                    digits(thread.unaccounted_us_per_second.max(0.0)),
                    per_cent(thread.unaccounted.max(0.0))
                ),
            ),
        ] {
            let mut cells = vec![name.to_owned(), String::new(), value];
            cells.resize(10, String::new());
            row(out, "", &cells, true)?;
        }
    }
    for (name, us) in &report.threads {
        if name != crate::MESSAGE_THREAD {
            let mut cells = vec![format!("thread {name}"), String::new(), digits(*us)];
            cells.resize(10, String::new());
            row(out, "", &cells, true)?;
        }
    }
    writeln!(
        out,
        "</tbody></table></div>\n<p class=\"soft\">The published figures were not measured here: \
         {}. The worst second published was about {} for all peers together.</p>",
        escape(report.published.source),
        time(report.published.worst_ms * 1e3),
    )
}

fn hints(out: &mut String, report: &Report) -> std::fmt::Result {
    let hints = tables::hints(report);
    if hints.is_empty() {
        return Ok(());
    }
    let about = escape(tables::ABOUT_HINTS);
    writeln!(out, "<h2>What would help</h2>\n<p>{about}</p>")?;
    for [reason, loses, command] in hints {
        writeln!(
            out,
            "<p>{}<br>Would be lost: {}<br><code>{}</code></p>",
            escape(&reason),
            escape(&loses),
            escape(&command)
        )?;
    }
    Ok(())
}

/// A table whose columns sort it.
fn table(out: &mut String, table: &Table) -> std::fmt::Result {
    writeln!(out, "<h2>{}</h2>", escape(&table.title))?;
    if !table.about.is_empty() {
        writeln!(out, "<p>{}</p>", escape(&table.about))?;
    }
    write!(
        out,
        "<div class=\"scroll\"><table class=\"sorts\">\n<thead><tr>"
    )?;
    let class = |place| match place < table.texts {
        true => " class=\"text\"",
        false => "",
    };
    for (place, cell) in table.head.iter().enumerate() {
        write!(out, "<th{}>{}</th>", class(place), escape(cell))?;
    }
    writeln!(out, "</tr></thead>\n<tbody>")?;
    for cells in &table.rows {
        write!(out, "<tr>")?;
        for (place, cell) in cells.iter().enumerate() {
            write!(out, "<td{}>{}</td>", class(place), escape(cell))?;
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</tbody></table></div>")?;
    if table.more > 0 {
        writeln!(out, "<p class=\"soft\">and {} more</p>", table.more)?;
    }
    Ok(())
}

fn boxes(out: &mut String, report: &Report) -> std::fmt::Result {
    let of = |relay: &str| -> Vec<&TypeRow> {
        let rows = report.types.iter();
        let rows = rows.filter(|row| row.relay == relay && !row.letters.is_empty());
        rows.take(BOXES).collect()
    };
    let groups = ["full-relay", "block-relay"].map(|relay| (relay, of(relay)));
    // One scale for both, so that they can be compared.
    let all = || groups.iter().flat_map(|(_, rows)| rows.iter());
    let least = all()
        .map(|row| row.letters[0].1)
        .fold(f64::INFINITY, f64::min);
    let most = all()
        .filter_map(|row| row.cpu.map(|cpu| cpu.worst))
        .fold(0.0, f64::max);
    if most <= 0.0 {
        return Ok(());
    }
    writeln!(
        out,
        "<h2>Processing a message</h2>\n<p>The darkest box holds the middle half of the messages, \
         with a line at the median; each paler pair of boxes holds half of the rest on either \
         side. The dot is the maximum. The number on the right is the number of messages. Types \
         with the highest total cost come first.</p>"
    )?;
    for (relay, rows) in &groups {
        if rows.is_empty() {
            continue;
        }
        let svg = draw::boxen(rows, (least.max(0.01) / 1.5, most * 1.2));
        writeln!(
            out,
            "<figure><figcaption>From {relay} peers</figcaption>\n{svg}</figure>"
        )?;
    }
    writeln!(
        out,
        "<p class=\"soft\">Published in 2023, not measured here: the median <code>tx</code> took \
         about {}.</p>",
        time(report.published.tx_us),
    )
}

fn messages(out: &mut String, report: &Report) -> std::fmt::Result {
    if report.types.is_empty() {
        return Ok(());
    }
    writeln!(out, "<h2>Messages</h2>")?;
    let cells = [
        "type",
        "direction",
        "peers",
        "count",
        "bytes",
        "mean",
        "median",
        "p95",
        "worst",
        "sd",
        "mean wall time",
        "total per s",
    ];
    head(out, &cells, false)?;
    for kind in &report.types {
        let figures = match &kind.cpu {
            Some(cpu) => [cpu.mean, cpu.median, cpu.p95, cpu.worst, cpu.sd].map(time),
            None => std::array::from_fn(|_| String::new()),
        };
        let part = |us: Option<f64>| us.map_or(String::new(), time);
        let mut cells = vec![
            kind.message_type.clone(),
            kind.direction.to_owned(),
            kind.relay.to_owned(),
            or_dash(kind.count, |count| count.to_string()),
            bytes(kind.bytes as f64),
        ];
        cells.extend(figures);
        cells.extend([part(kind.wall_mean), part(kind.us_per_second)]);
        row(out, "", &cells, false)?;
    }
    writeln!(out, "</tbody></table></div>")
}
