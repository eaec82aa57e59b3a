//! The headline ratios of several machines in one table, with a column for each report.

use crate::experiment::{AcrossMachines, Experiment};
use crate::experiments::ALL;
use crate::quantity::times;
use crate::report::{OURS, Report, Row, Standing, matches};

/// The table in Markdown. A cell is `-` if the report lacks the cases, and has no ratio if its
/// machine was too noisy.
pub fn markdown(reports: &[Report]) -> String {
    let titles = reports.iter().map(|report| report.machine.title());
    let mut out = line(["times as fast as", "library"], titles.map(str::to_owned));
    out += &line(["---"; 2], reports.iter().map(|_| "---".to_owned()));
    for (experiment, across) in lines() {
        let against = across.against.unwrap_or("-");
        let cells = reports.iter().map(|report| {
            let cells = across.cases.iter();
            let cells: Vec<String> = cells
                .map(|case| cell(report, experiment, across, case))
                .collect();
            match cells.iter().all(|cell| *cell == cells[0]) {
                true => cells[0].clone(),
                false => cells.join(", "),
            }
        });
        out += &line([across.label, against], cells);
    }
    out
}

/// The part of a report that [`markdown`] needs, with the other rows and ratios of the same cases:
/// small enough to be stored for each machine.
#[must_use]
pub fn only(report: &Report) -> Report {
    let kept = |name: &str, case: &str| {
        lines().any(|(experiment, across)| {
            experiment.name == name && across.cases.iter().any(|wanted| matches(case, wanted))
        })
    };
    let mut report = report.clone();
    report.rows.retain(|row| kept(&row.experiment, &row.case));
    let ratios = &mut report.ratios;
    ratios.retain(|ratio| kept(&ratio.experiment, &ratio.case));
    report.published.clear();
    report
}

/// The lines of the table, each with its experiment.
fn lines() -> impl Iterator<Item = (&'static Experiment, &'static AcrossMachines)> {
    let all = ALL.iter().copied();
    all.flat_map(|experiment| {
        experiment
            .across
            .iter()
            .map(move |across| (experiment, across))
    })
}

fn line(first: [&str; 2], cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = first
        .map(escaped)
        .into_iter()
        .chain(cells.map(|c| escaped(&c)))
        .collect();
    format!("| {} |\n", cells.join(" | "))
}

/// The text of a cell. A name cannot end the cell or the line.
fn escaped(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace('|', "\\|")
}

/// The ratio of one case in one report.
fn cell(report: &Report, experiment: &Experiment, across: &AcrossMachines, case: &str) -> String {
    let of_case = |row: &&Row| {
        row.experiment == experiment.name
            && row.metric == across.metric
            && row.implementation == OURS
            && matches(&row.case, case)
    };
    let row = report.rows.iter().find(of_case);
    let found = row.and_then(|row| match across.against {
        Some(library) => {
            let ratio = report.ratio(row, library)?;
            Some((ratio.median, ratio.standing()))
        }
        None => Some((row.median, row.standing())),
    });
    match found {
        None => "-".to_owned(),
        Some((_, Standing::Unmeasurable)) => "not measurable here".to_owned(),
        Some((_, Standing::Level)) => "level".to_owned(),
        Some((median, _)) => times(median),
    }
}
