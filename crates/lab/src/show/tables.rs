//! Tables: one for each experiment and metric, with cases as lines and implementations as columns.
//! Keys with the same value in all cases move to the title.

use crate::quantity::{bare, bare_unit, quantity, range, times, words};
use crate::report::{OURS, Report, Row, distinct, is_ours, key, pairs};

/// The footnote for figures marked as noisy.
pub const NOISY_NOTE: &str =
    "~ noisy: the middle half of the samples spans more than 10 % of the median";

/// Explains the ratios in parentheses.
pub const RATIO_NOTE: &str = "(1.9x): packetlane is 1.9 times as fast as this one; below 1x it is \
                              slower. Median of the ratios of samples from the same turn.";

/// The figures of one experiment and metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Such as `bip324.packet`.
    pub experiment: String,
    /// Such as `time_per_packet`.
    pub metric: String,
    /// The unit of the numbers in the cells.
    pub unit: String,
    /// The `key=value` pairs that all cases share.
    pub shared: String,
    /// The keys whose values start each line.
    pub keys: Vec<String>,
    /// One for each implementation, ours first.
    pub columns: Vec<Column>,
    /// One for each case.
    pub lines: Vec<Line>,
    /// What is timed.
    pub timed: Vec<String>,
}

/// The head of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The implementation.
    pub implementation: String,
    /// Its backends. Empty if there is no choice.
    pub backend: String,
}

impl Column {
    /// The name of the backend, if this is another backend of [`OURS`]. Not for ours through
    /// another interface, such as `packetlane-rustls`.
    pub fn lesser_backend(&self) -> Option<&str> {
        let rest = self.implementation.strip_prefix(OURS)?;
        let rest = rest.strip_prefix('-')?;
        rest.starts_with(&self.backend).then_some(rest)
    }
}

/// One case of a [`Table`].
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The values of the table's keys.
    pub values: Vec<String>,
    /// One for each column; `None` if it has no figure for this case.
    pub cells: Vec<Option<Cell>>,
}

/// One figure of a [`Table`].
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The median, with its unit unless the title shows it.
    pub median: String,
    /// From the smallest to the largest sample.
    pub range: String,
    /// How far we are ahead of this one. `None` in our own column.
    pub ratio: Option<String>,
    /// Whether the samples vary too much to be trusted.
    pub noisy: bool,
}

impl Table {
    /// `time per packet (op=seal)`.
    pub fn title(&self) -> String {
        let mut title = words(&self.metric);
        if bare_unit(&self.unit) && !self.metric.ends_with("_per_second") {
            title += &format!(", {}", self.unit);
        }
        if !self.shared.is_empty() {
            title += &format!(" ({})", self.shared);
        }
        title
    }
}

/// The tables of a report: one for each experiment and metric.
pub fn tables(report: &Report) -> Vec<Table> {
    let mut tables = Vec::new();
    for experiment in report.experiments() {
        let rows: Vec<&Row> = report
            .rows
            .iter()
            .filter(|row| row.experiment == experiment)
            .collect();
        for metric in distinct(rows.iter().map(|row| row.metric.as_str())) {
            let rows: Vec<&Row> = rows
                .iter()
                .copied()
                .filter(|row| row.metric == metric)
                .collect();
            tables.push(table(report, &rows));
        }
    }
    tables
}

/// One table, from the rows of one experiment and metric. There must be at least one.
fn table(report: &Report, rows: &[&Row]) -> Table {
    let cases = distinct(rows.iter().map(|row| row.case.as_str()));
    let all_keys = distinct(cases.iter().flat_map(|case| pairs(case).map(|pair| pair.0)));
    // A table with a single case keeps the keys on its line, which needs something on its left.
    let (shared, keys): (Vec<&str>, Vec<&str>) = all_keys.into_iter().partition(|name| {
        cases.len() > 1 && distinct(cases.iter().map(|case| key(case, name))).len() == 1
    });
    let mut names = distinct(rows.iter().map(|row| row.implementation.as_str()));
    names.sort_by_key(|name| (*name != OURS, !is_ours(name)));

    let find = |case: &str, name: &str| {
        rows.iter()
            .find(|row| row.case == case && row.implementation == name)
    };
    let cell = |case: &str, name: &str| {
        let row = find(case, name)?;
        let ratio = report.ratios.iter().find(|ratio| {
            ratio.experiment == row.experiment
                && ratio.case == case
                && ratio.metric == row.metric
                && ratio.implementation == OURS
                && ratio.against == name
        });
        Some(Cell {
            median: bare(quantity(row.median, &row.unit), &row.unit),
            range: bare(range(row.min, row.max, &row.unit), &row.unit),
            ratio: ratio.map(|ratio| times(ratio.median)),
            noisy: row.noisy,
        })
    };
    Table {
        experiment: rows[0].experiment.clone(),
        metric: rows[0].metric.clone(),
        unit: rows[0].unit.clone(),
        shared: shared
            .iter()
            .map(|name| format!("{name}={}", key(cases[0], name).unwrap_or_default()))
            .collect::<Vec<_>>()
            .join(" "),
        columns: names
            .iter()
            .map(|name| Column {
                implementation: (*name).to_owned(),
                backend: backends(rows, name),
            })
            .collect(),
        lines: cases
            .iter()
            .map(|case| Line {
                values: keys
                    .iter()
                    .map(|name| key(case, name).unwrap_or("").to_owned())
                    .collect(),
                cells: names.iter().map(|name| cell(case, name)).collect(),
            })
            .collect(),
        keys: keys.into_iter().map(str::to_owned).collect(),
        timed: distinct(rows.iter().map(|row| row.timed.clone()))
            .into_iter()
            .filter(|timed| !timed.is_empty())
            .collect(),
    }
}

/// The backends of an implementation in these rows. The engine may choose a different one for
/// another batch.
fn backends(rows: &[&Row], name: &str) -> String {
    let used = rows
        .iter()
        .filter(|row| row.implementation == name && !row.backend.is_empty());
    distinct(used.map(|row| row.backend.as_str())).join("+")
}
