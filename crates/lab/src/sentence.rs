//! What an experiment's sentence is made of: one figure, and those beside it.

use crate::quantity::{quantity, times};
use crate::report::{Report, Row, is_ours};
use std::fmt;

/// The figure of one row. It displays as the median with its unit.
pub(crate) struct Figure<'a> {
    report: &'a Report,
    row: &'a Row,
}

impl<'a> Figure<'a> {
    /// The figure of `row`, which is one of the report's.
    pub(crate) fn new(report: &'a Report, row: &'a Row) -> Self {
        Self { report, row }
    }

    /// The metric's name.
    pub(crate) fn metric(&self) -> &'a str {
        &self.row.metric
    }

    /// The value of `key` in the case, if the case has that key.
    pub(crate) fn find(&self, key: &str) -> Option<&'a str> {
        self.row.key(key)
    }

    /// The value of `key` in the case, or `?`.
    pub(crate) fn key(&self, key: &str) -> &'a str {
        self.find(key).unwrap_or("?")
    }

    /// The same implementation's figure of another metric in this case.
    pub(crate) fn beside(&self, metric: &str) -> Option<String> {
        let row = self.rows_of_case(metric);
        let row = row
            .into_iter()
            .find(|row| row.implementation == self.row.implementation)?;
        Some(median(row))
    }

    /// The libraries' figures in this case, for where ratios say nothing:
    /// `, rustls-ring 7.31 %`.
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

/// The median with its unit: `36.7 ns`, `2.4x`.
fn median(row: &Row) -> String {
    match row.unit.as_str() {
        "x" => times(row.median),
        unit => quantity(row.median, unit),
    }
}
