//! Building blocks for the sentence of an experiment: a figure and related figures.

use crate::quantity::{quantity, times};
use crate::report::{Report, Row, Standing, is_ours};
use std::fmt;

/// The figure of a row. Displayed as the median with its unit.
pub(crate) struct Figure<'a> {
    report: &'a Report,
    row: &'a Row,
}

impl<'a> Figure<'a> {
    /// The figure of `row`, a row of `report`.
    pub(crate) fn new(report: &'a Report, row: &'a Row) -> Self {
        Self { report, row }
    }

    /// The metric's name.
    pub(crate) fn metric(&self) -> &'a str {
        &self.row.metric
    }

    /// The value of `key` in the case, if it has that key.
    pub(crate) fn find(&self, key: &str) -> Option<&'a str> {
        self.row.key(key)
    }

    /// The value of `key` in the case, or `?`.
    pub(crate) fn key(&self, key: &str) -> &'a str {
        self.find(key).unwrap_or("?")
    }

    /// The same implementation's figure for another metric in this case.
    pub(crate) fn related(&self, metric: &str) -> Option<String> {
        self.related_row(metric).map(median)
    }

    fn related_row(&self, metric: &str) -> Option<&'a Row> {
        let rows = self.rows_of_case(metric);
        rows.into_iter()
            .find(|row| row.implementation == self.row.implementation)
    }

    /// The end of a sentence, if the case has this metric and it is a ratio:
    /// `, 1.9x as fast as one`. `what` follows the ratio.
    pub(crate) fn times_related(&self, metric: &str, what: &str) -> String {
        let row = self.related_row(metric);
        row.map_or(String::new(), |row| format!(", {}", times_of(row, what)))
    }

    /// This figure, if it is a ratio, followed by `what`: `1.9x as fast as one`.
    #[cfg(feature = "cuda")]
    pub(crate) fn times(&self, what: &str) -> String {
        times_of(self.row, what)
    }

    /// A remark if this many threads share cores: ` (2 threads of one core)`.
    pub(crate) fn sharing(&self, threads: &str) -> String {
        let machine = &self.report.machine;
        let sharing = threads
            .parse()
            .ok()
            .and_then(|threads| machine.sharing(threads));
        sharing.map_or(String::new(), |sharing| format!(" ({sharing})"))
    }

    /// The libraries' figures in this case, for metrics without ratios: `, rustls-ring 7.31 %`.
    pub(crate) fn of_libraries(&self) -> String {
        let rows = self.rows_of_case(self.metric()).into_iter();
        let libraries = rows.filter(|row| !is_ours(&row.implementation));
        libraries
            .map(|row| {
                let figure = median(row);
                format!(", {} {figure}", row.implementation)
            })
            .collect()
    }

    fn rows_of_case(&self, metric: &str) -> Vec<&'a Row> {
        let rows = self.report.rows.iter();
        rows.filter(|row| {
            row.experiment == self.row.experiment
                && row.case == self.row.case
                && row.metric == metric
        })
        .collect()
    }
}

impl fmt::Display for Figure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&median(self.row))
    }
}

/// The median with its unit: `36.7 ns`.
fn median(row: &Row) -> String {
    quantity(row.median, &row.unit)
}

/// `2.4x as fast as one`, for a row that is a ratio.
fn times_of(row: &Row, what: &str) -> String {
    match row.standing() {
        Standing::Unmeasurable => format!("how many times {what} is not measurable here"),
        _ => format!("{} {what}", times(row.median)),
    }
}
