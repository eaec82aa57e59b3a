//! Turns samples into the figures of a [`Report`]: metrics, rows and ratios.

use crate::measure::{Samples, Summary};
use crate::report::{Case, OURS, Ratio, Report, Row, is_ours};

/// The name and unit of a figure, and how it is computed from the seconds per call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metric {
    name: &'static str,
    unit: &'static str,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Time { per_second: f64, items: f64 },
    Rate { amount: f64 },
}

impl Metric {
    /// The time of one call, divided by its `items` (packets, hashes).
    /// `unit` is `ns`, `us`, `ms` or `s`.
    pub fn time(name: &'static str, unit: &'static str, items: usize) -> Self {
        let per_second = match unit {
            "ns" => 1e9,
            "us" => 1e6,
            "ms" => 1e3,
            "s" => 1.0,
            _ => panic!("{unit} is not a unit of time"),
        };
        let items = items as f64;
        Self {
            name,
            unit,
            kind: Kind::Time { per_second, items },
        }
    }

    /// A rate. `amount` is the work of one call in the unit's own measure: packets for `packets/s`,
    /// 10^6 bytes for `MB/s`.
    pub fn rate(name: &'static str, unit: &'static str, amount: f64) -> Self {
        Self {
            name,
            unit,
            kind: Kind::Rate { amount },
        }
    }

    /// The share of a core, in per cent, that `items_per_second` need if one call processes
    /// `items`.
    pub fn share_of_core(name: &'static str, items: usize, items_per_second: f64) -> Self {
        let per_second = 100.0 * items_per_second;
        let items = items as f64;
        Self {
            name,
            unit: "%",
            kind: Kind::Time { per_second, items },
        }
    }

    fn value(&self, seconds: f64) -> f64 {
        match self.kind {
            Kind::Time { per_second, items } => seconds * per_second / items,
            Kind::Rate { amount } => amount / seconds,
        }
    }
}

/// Records the samples of a case: a row for each metric and contender, and ratios for each metric.
/// [`OURS`] gets a ratio to every other contender, our other backends only to the libraries.
///
/// The contenders of a case must have different names.
pub fn record(report: &mut Report, case: &Case, metrics: &[Metric], measured: &[Samples]) {
    for metric in metrics {
        for samples in measured {
            let values: Vec<f64> = samples.seconds.iter().map(|&s| metric.value(s)).collect();
            let of = [samples.implementation.as_str(), samples.backend.as_str()];
            enter(report, case, of, (metric.name, metric.unit), &values);
            if !is_ours(&samples.implementation) {
                continue;
            }
            let us = samples;
            for other in measured {
                let rival = match is_ours(&other.implementation) {
                    true => us.implementation == OURS && !std::ptr::eq(us, other),
                    false => true,
                };
                if !rival {
                    continue;
                }
                // All contenders do the same work per call, so the ratio of rates is the inverse
                // ratio of times. One figure serves both.
                let ratio = us.ahead_of(other);
                report.ratios.push(Ratio {
                    experiment: case.experiment.clone(),
                    case: case.text.clone(),
                    metric: metric.name.to_owned(),
                    implementation: us.implementation.clone(),
                    against: other.implementation.clone(),
                    median: rounded(ratio.median, 6),
                    min: rounded(ratio.min, 6),
                    max: rounded(ratio.max, 6),
                    low: Some(rounded(ratio.interval[0], 6)),
                    high: Some(rounded(ratio.interval[1], 6)),
                });
            }
        }
    }
}

/// Records the time per item (such as a packet) of `samples` divided by that of `base`, as a row
/// with the unit `x`. Both come with their number of items per call, and were measured in the same
/// turns but at different cases.
pub fn record_times(
    report: &mut Report,
    case: &Case,
    metric: &str,
    (samples, items): (&Samples, usize),
    (base, base_items): (&Samples, usize),
) {
    let turns = samples.seconds.iter().zip(&base.seconds);
    let share = base_items as f64 / items as f64;
    let values: Vec<f64> = turns.map(|(time, base)| time / base * share).collect();
    let of = [samples.implementation.as_str(), samples.backend.as_str()];
    enter(report, case, of, (metric, "x"), &values);
}

/// Records by how many per cent the time of `samples` exceeds that of `base`, turn by turn: the
/// cost of an addition to the same work.
pub fn record_added(
    report: &mut Report,
    case: &Case,
    metric: &str,
    samples: &Samples,
    base: &Samples,
) {
    let turns = samples.seconds.iter().zip(&base.seconds);
    let values: Vec<f64> = turns
        .map(|(time, base)| 100.0 * (time / base - 1.0))
        .collect();
    let of = [samples.implementation.as_str(), samples.backend.as_str()];
    enter(report, case, of, (metric, "%"), &values);
}

/// Records one row from its values.
pub(crate) fn enter(
    report: &mut Report,
    case: &Case,
    [implementation, backend]: [&str; 2],
    (metric, unit): (&str, &str),
    values: &[f64],
) {
    let summary = Summary::of(values);
    report.rows.push(Row {
        experiment: case.experiment.clone(),
        case: case.text.clone(),
        implementation: implementation.to_owned(),
        backend: backend.to_owned(),
        metric: metric.to_owned(),
        unit: unit.to_owned(),
        median: rounded(summary.median, 6),
        min: rounded(summary.min, 6),
        max: rounded(summary.max, 6),
        samples: values.len(),
        timed: case.timed.clone(),
        noisy: summary.noisy(),
        // There are many single values: a digit less is accurate enough for every comparison.
        values: values.iter().map(|value| rounded(*value, 5)).collect(),
    });
}

/// Rounds to this many significant digits; the rest is noise. Short numbers keep the JSON readable
/// and stable.
fn rounded(value: f64, digits: usize) -> f64 {
    let places = digits - 1;
    format!("{value:.places$e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Machine;

    #[test]
    fn a_ratio_above_one_is_in_our_favour_for_times_and_rates() {
        let samples = |name: &str, seconds: [f64; 3]| Samples {
            implementation: name.into(),
            backend: String::new(),
            seconds: seconds.into(),
        };
        let measured = [
            samples("packetlane", [1e-6, 2e-6, 3e-6]),
            samples("ring", [2e-6, 4e-6, 6e-6]),
        ];
        let mut report = Report::new(Machine::here());
        let metrics = [
            Metric::time("time_per_packet", "ns", 10),
            Metric::rate("packets_per_second", "packets/s", 10.0),
        ];
        record(&mut report, &Case::new("x", "all"), &metrics, &measured);
        assert_eq!(report.rows.len(), 4);
        assert!((report.rows[0].median - 200.0).abs() < 1e-9);
        assert!((report.rows[2].max - 1e7).abs() < 1e-3);
        assert_eq!(report.ratios.len(), 2);
        // The machine drifted threefold; the ratio did not.
        for ratio in &report.ratios {
            assert_eq!((ratio.median, ratio.min, ratio.max), (2.0, 2.0, 2.0));
        }
    }

    #[test]
    fn our_other_backends_have_ratios_against_libraries() {
        let samples = |name: &str, seconds: f64| Samples {
            implementation: name.into(),
            backend: String::new(),
            seconds: vec![seconds; 3],
        };
        let measured = [
            samples("packetlane", 1.0),
            samples("packetlane-avx2", 2.0),
            samples("packetlane-portable", 4.0),
            samples("ring", 6.0),
        ];
        let case = Case::new("x", "all");
        let mut report = Report::new(Machine::here());
        record(
            &mut report,
            &case,
            &[Metric::time("time", "s", 1)],
            &measured,
        );
        let ratios: Vec<(&str, &str, f64)> = report
            .ratios
            .iter()
            .map(|r| (&*r.implementation, &*r.against, r.median))
            .collect();
        let expected = [
            ("packetlane", "packetlane-avx2", 2.0),
            ("packetlane", "packetlane-portable", 4.0),
            ("packetlane", "ring", 6.0),
            ("packetlane-avx2", "ring", 3.0),
            ("packetlane-portable", "ring", 1.5),
        ];
        assert_eq!(ratios, expected);
        record_times(
            &mut report,
            &case,
            "cold_by_warm",
            (&measured[2], 10),
            (&measured[0], 5),
        );
        let row = &report.rows[4];
        assert_eq!((row.median, &*row.unit), (2.0, "x"));
    }
}
