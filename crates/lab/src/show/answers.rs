//! Answers: one sentence for each experiment, about its most significant case.

use crate::experiment::Experiment;
use crate::experiments::ALL;
use crate::quantity::{bare, quantity, times, words};
use crate::report::{OURS, Ratio, Report, Row, Standing, is_ours, pairs};
use crate::sentence::Figure;

/// The answer of one experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Such as `bip324.mixed`.
    pub experiment: String,
    /// The sentence.
    pub text: String,
}

/// The answers of all experiments with rows.
pub fn answers(report: &Report) -> Vec<Answer> {
    let names = report.experiments().into_iter();
    names
        .filter_map(|name| {
            Some(Answer {
                experiment: name.to_owned(),
                text: answer(report, name)?,
            })
        })
        .collect()
}

/// The question of an experiment. Empty if this build does not know it.
pub fn description(experiment: &str) -> &'static str {
    find(experiment).description
}

fn find(name: &str) -> &'static Experiment {
    let mut all = ALL.iter().copied();
    all.find(|experiment| experiment.name == name)
        .unwrap_or(&Experiment::EMPTY)
}

fn answer(report: &Report, experiment: &str) -> Option<String> {
    let Experiment {
        headline, sentence, ..
    } = find(experiment);
    let of_experiment = || {
        report
            .rows
            .iter()
            .filter(|row| row.experiment == experiment)
    };
    // A filter may have excluded the headline's case: use the nearest one.
    let metric = of_experiment()
        .find(|row| row.metric == headline.metric)
        .or_else(|| of_experiment().next())?
        .metric
        .clone();
    let fit = |row: &Row| {
        let agreed = pairs(headline.case).filter(|(name, value)| row.key(name) == Some(value));
        (agreed.count(), row.implementation == OURS)
    };
    let row = of_experiment()
        .filter(|row| row.metric == metric)
        .max_by_key(|row| fit(row))?;

    let figure = Figure::new(report, row);
    let mut text = sentence(&figure)
        .unwrap_or_else(|| format!("{}: {} {figure}", row.case, words(&row.metric)));
    let engine = [row.implementation.as_str(), row.backend.as_str()];
    match (row.implementation == OURS, row.backend.is_empty()) {
        (true, true) => {}
        (true, false) => text += &format!(" ({}{})", row.backend, other_backends(report, row)),
        (false, _) => text += &format!(" ({})", engine.join(" ").trim()),
    }
    if row.noisy {
        text += ", noisy";
    }
    let ratios: Vec<&Ratio> = report
        .ratios
        .iter()
        .filter(|ratio| {
            ratio.experiment == row.experiment && ratio.case == row.case && ratio.metric == metric
        })
        .filter(|ratio| ratio.implementation == OURS && !is_ours(&ratio.against))
        .collect();
    let comparison = comparison(&ratios);
    if !comparison.is_empty() {
        text += " - ";
        text += &comparison;
    }
    Some(text)
}

/// The figures of our other backends in the case of `row`: `; avx2 60.1 ns, portable 117 ns`.
/// Backends with the same name as ours appear only in the tables.
fn other_backends(report: &Report, row: &Row) -> String {
    let others = report.rows.iter().filter(|other| {
        other.experiment == row.experiment
            && other.case == row.case
            && other.metric == row.metric
            && is_ours(&other.implementation)
            && other.backend != row.backend
    });
    let figure = |other: &Row| {
        let figure = bare(quantity(other.median, &other.unit), &other.unit);
        format!("{} {figure}", other.backend)
    };
    let figures: Vec<String> = others.map(figure).collect();
    match figures.is_empty() {
        true => String::new(),
        false => format!("; {}", figures.join(", ")),
    }
}

/// "2.4x as fast as bip324, 1.9x rustcrypto; level with x; slower than ring (0.6x)"; and the
/// libraries for which the machine was too noisy.
fn comparison(ratios: &[&Ratio]) -> String {
    let mut ratios = ratios.to_vec();
    ratios.sort_by(|a, b| b.median.total_cmp(&a.median));
    let group = |standing: Standing, write: &dyn Fn(&Ratio) -> String| {
        let kept = ratios.iter().filter(|ratio| ratio.standing() == standing);
        kept.map(|ratio| write(ratio)).collect::<Vec<_>>()
    };
    let name = |ratio: &Ratio| ratio.against.clone();
    let mut parts = Vec::new();
    let ahead = group(Standing::Above, &|ratio| {
        format!("{} {}", times(ratio.median), ratio.against)
    });
    if let Some((first, rest)) = ahead.split_first() {
        let first = first.replacen(' ', " as fast as ", 1);
        parts.push([&[first], rest].concat().join(", "));
    }
    let level = group(Standing::Level, &name);
    if !level.is_empty() {
        parts.push(format!("level with {}", level.join(", ")));
    }
    let behind = group(Standing::Below, &|ratio| {
        format!("{} ({})", ratio.against, times(ratio.median))
    });
    if !behind.is_empty() {
        parts.push(format!("slower than {}", behind.join(", ")));
    }
    let unclear = group(Standing::Unmeasurable, &name);
    if !unclear.is_empty() {
        parts.push(format!(
            "not measurable here against {}",
            unclear.join(", ")
        ));
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_names_those_we_are_slower_than() {
        let ratio = |against: &str, median: f64, off: f64| Ratio {
            experiment: String::new(),
            case: String::new(),
            metric: String::new(),
            implementation: OURS.into(),
            against: against.into(),
            median,
            // The range of single turns does not matter.
            min: 0.1,
            max: 10.0,
            low: Some(median - off),
            high: Some(median + off),
        };
        let list = [
            ratio("ring", 0.6, 0.1),
            ratio("bip324", 1.9, 0.1),
            ratio("openssl", 1.01, 0.01),
            ratio("rustcrypto", 2.4, 0.1),
            ratio("aws-lc-rs", 1.01, 0.1),
        ];
        assert_eq!(
            comparison(&list.iter().collect::<Vec<_>>()),
            "2.4x as fast as rustcrypto, 1.9x bip324; level with openssl; \
             slower than ring (0.60x); not measurable here against aws-lc-rs"
        );
        assert_eq!(comparison(&[]), "");
    }
}
