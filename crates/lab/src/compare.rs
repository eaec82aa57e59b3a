//! Finds what became slower or faster between two reports, beyond the noise of both.
//!
//! Where libraries compete, the compared figure is how many times as fast as a library ours is,
//! from samples of the same turns. It depends less on the clock and load of the machine than a time
//! does. It counts as changed only if it has changed against every library of the case, because a
//! library can also be faster in one run than in the next. Where no library competes, the figure is
//! the time or the rate.
//!
//! A figure has changed against a library if all of the following hold:
//!
//! - The medians differ by more than [`CHANGED`]. Differences between two runs of one program, such
//!   as the addresses of code and buffers, do not show in the samples of one run.
//! - The middle halves of the samples do not overlap.
//! - The Mann-Whitney test says so. It counts how often a sample of one run exceeds one of the
//!   other, so neither outliers nor the shape of the noise matter.
//!
//! Among hundreds of figures, some pass any test by chance. The threshold for the probability is
//! therefore derived from all of them (Benjamini-Hochberg): at most [`FALSE_SHARE`] of the listed
//! changes are due to chance. A Bonferroni bound, which would exclude even a single false change,
//! would miss more true changes the more figures there are.

use crate::measure::Summary;
use crate::quantity::{quantity, times, words};
use crate::report::{OURS, Ratio, Report, Row, is_ours};
use std::fmt;

/// Smaller differences do not count as changes. Between two runs of one program, about 1 % of the
/// figures differ by more (docs/internals/decisions.md).
pub const CHANGED: f64 = 0.05;

/// Maximum share of the listed changes that are due to chance.
pub const FALSE_SHARE: f64 = 0.01;

/// The differences between two reports.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// The changes, worst first.
    pub changes: Vec<Change>,
    /// Number of figures compared.
    pub compared: usize,
    /// Number of them compared by their smallest and largest sample, because a report has no
    /// others.
    pub by_range: usize,
    /// Number of figures in both reports with too few samples to tell a change from chance.
    pub too_few: usize,
}

/// A figure that changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// How many times slower it became. Below 1: it became faster.
    pub slower: f64,
    /// The figure in the older report, with its unit.
    pub old: String,
    /// The figure in the newer report.
    pub new: String,
    /// Experiment, case and metric; the implementation if it is not [`OURS`]; and the library it is
    /// compared with.
    pub figure: String,
}

/// A figure in both reports.
struct Pair {
    change: Change,
    /// Whether medians and spreads differ enough.
    apart: bool,
    /// The probability in the Mann-Whitney test. `None` without samples.
    chance: Option<f64>,
}

/// The samples of a figure in one report.
struct Figure {
    median: f64,
    /// The middle half of the values, or their full range if single values are unknown.
    spread: [f64; 2],
    values: Vec<f64>,
}

/// Compares two reports.
#[must_use]
pub fn compare(old: &Report, new: &Report) -> Comparison {
    let ours = new.rows.iter().filter(|row| is_ours(&row.implementation));
    let both = ours
        .filter(|row| better(&row.unit).is_some())
        .filter_map(|row| {
            let before = old.rows.iter().find(|before| same(before, row))?;
            Some(((old, before), (new, row)))
        });
    let both: Vec<_> = both.collect();
    // The threshold if there were only one change.
    let strictest = FALSE_SHARE / both.len() as f64;
    let pairs = both
        .iter()
        .filter_map(|(old, new)| pair(*old, *new, strictest));
    let pairs: Vec<Pair> = pairs.collect();
    let bound = bound(pairs.iter().filter_map(|pair| pair.chance).collect());
    let mut comparison = Comparison {
        changes: Vec::new(),
        compared: pairs.len(),
        by_range: pairs.iter().filter(|pair| pair.chance.is_none()).count(),
        too_few: both.len() - pairs.len(),
    };
    let changed = |pair: &Pair| pair.apart && pair.chance.is_none_or(|chance| chance <= bound);
    let changed = pairs.into_iter().filter(changed);
    comparison.changes = changed.map(|pair| pair.change).collect();
    let changes = &mut comparison.changes;
    changes.sort_by(|a, b| b.slower.total_cmp(&a.slower));
    comparison
}

/// Whether a higher value of this unit is better. `None` if the unit does not tell.
fn better(unit: &str) -> Option<bool> {
    match unit {
        "ns" | "us" | "ms" | "s" => Some(false),
        _ if unit.ends_with("/s") => Some(true),
        _ => None,
    }
}

/// Whether two rows are the same figure in two reports.
fn same(one: &Row, other: &Row) -> bool {
    one.samples.min(other.samples) > 1
        && one.case == other.case
        && one.experiment == other.experiment
        && one.implementation == other.implementation
        && one.metric == other.metric
        && one.unit == other.unit
}

/// Compares a figure. `None` if it has too few samples to pass the `strictest` test.
fn pair(
    (old, before): (&Report, &Row),
    (new, row): (&Report, &Row),
    strictest: f64,
) -> Option<Pair> {
    let mut figure = format!("{} {}: {}", row.experiment, row.case, words(&row.metric));
    if row.implementation != OURS {
        figure += &format!(" of {}", row.implementation);
    }
    let libraries = new.ratios.iter().filter(|ratio| is_of(ratio, row));
    let pairs = libraries.filter_map(|ratio| {
        let then = old.ratio(before, &ratio.against)?;
        let old = Figure::of_ratio(old, before, then);
        let new = Figure::of_ratio(new, row, ratio);
        let figure = format!("{figure} against {}", ratio.against);
        Some(old.pair(&new, strictest, true, figure, times))
    });
    let pairs: Option<Vec<Pair>> = pairs.collect();
    // If all libraries agree, report the one with the smallest change.
    let pair = pairs?.into_iter().reduce(|one, other| {
        let agree = (one.change.slower > 1.0) == (other.change.slower > 1.0);
        let apart = agree && one.apart && other.apart;
        let chance = one
            .chance
            .zip(other.chance)
            .map(|(one, other)| one.max(other));
        let size = |pair: &Pair| pair.change.slower.ln().abs();
        let least = if size(&one) < size(&other) {
            one
        } else {
            other
        };
        Pair {
            change: least.change,
            apart,
            chance,
        }
    });
    match pair {
        Some(pair) => Some(pair),
        None => {
            let [old, new] = [before, row].map(Figure::of);
            let write = |median| quantity(median, &row.unit);
            old.pair(&new, strictest, better(&row.unit)?, figure, write)
        }
    }
}

/// Whether a ratio compares this row with a library.
fn is_of(ratio: &Ratio, row: &Row) -> bool {
    ratio.experiment == row.experiment
        && ratio.case == row.case
        && ratio.metric == row.metric
        && ratio.implementation == row.implementation
        && !is_ours(&ratio.against)
}

impl Figure {
    fn of(row: &Row) -> Self {
        Self::new(row.values.clone(), row.median, [row.min, row.max])
    }

    /// The ratio of `row` to a library, turn by turn.
    fn of_ratio(report: &Report, row: &Row, ratio: &Ratio) -> Self {
        let library = report.rows.iter().find(|library| {
            library.implementation == ratio.against
                && [&library.experiment, &library.case, &library.metric]
                    == [&row.experiment, &row.case, &row.metric]
        });
        let theirs = library.map_or(&[][..], |library| &library.values);
        let turns = row.values.iter().zip(theirs);
        let values = turns.map(|(ours, theirs)| match better(&row.unit) {
            Some(true) => ours / theirs,
            _ => theirs / ours,
        });
        Self::new(values.collect(), ratio.median, [ratio.min, ratio.max])
    }

    fn new(values: Vec<f64>, median: f64, range: [f64; 2]) -> Self {
        let spread = match values.is_empty() {
            true => range,
            false => Summary::of(&values).half,
        };
        Self {
            median,
            spread,
            values,
        }
    }

    /// Compares this figure with a newer one. `None` if there are too few samples.
    fn pair(
        &self,
        new: &Self,
        strictest: f64,
        more_is_better: bool,
        figure: String,
        write: impl Fn(f64) -> String,
    ) -> Option<Pair> {
        let chance = match self.values.is_empty() || new.values.is_empty() {
            true => None,
            false => {
                // The probability if all samples of one exceed all of the other.
                let least = chance_of(0.0, [self.values.len(), new.values.len()], 0.0);
                (least <= strictest).then_some(())?;
                Some(mann_whitney(&self.values, &new.values))
            }
        };
        let slower = match more_is_better {
            true => self.median / new.median,
            false => new.median / self.median,
        };
        Some(Pair {
            apart: slower.max(1.0 / slower) > 1.0 + CHANGED
                && (self.spread[1] < new.spread[0] || new.spread[1] < self.spread[0]),
            chance,
            change: Change {
                slower,
                old: write(self.median),
                new: write(new.median),
                figure,
            },
        })
    }
}

/// The largest of these probabilities that counts as significant (Benjamini-Hochberg): the i-th
/// smallest of m must be at most i / m of the share.
fn bound(mut chances: Vec<f64>) -> f64 {
    chances.sort_by(f64::total_cmp);
    let count = chances.len() as f64;
    let places = chances.iter().zip(1..);
    let passing =
        places.filter(|(chance, place)| **chance <= FALSE_SHARE * f64::from(*place) / count);
    passing.map(|(chance, _)| *chance).last().unwrap_or(0.0)
}

/// The probability that samples of the same thing differ at least this much in either direction:
/// the Mann-Whitney U test with its normal approximation. Equal values share their ranks.
fn mann_whitney(one: &[f64], other: &[f64]) -> f64 {
    let mut all: Vec<(f64, bool)> = one.iter().map(|value| (*value, true)).collect();
    all.extend(other.iter().map(|value| (*value, false)));
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut ranks, mut ties, mut before) = (0.0, 0.0, 0.0);
    for equal in all.chunk_by(|a, b| a.0 == b.0) {
        let count = equal.len() as f64;
        let rank = before + (count + 1.0) / 2.0;
        ranks += rank * equal.iter().filter(|(_, of_one)| *of_one).count() as f64;
        ties += count * (count * count - 1.0);
        before += count;
    }
    let least = one.len() as f64 * (one.len() as f64 + 1.0) / 2.0;
    chance_of(ranks - least, [one.len(), other.len()], ties)
}

/// The probability of a U at least this far from the middle. `ties` is the sum of n^3 - n over the
/// groups of n equal values.
fn chance_of(u: f64, counts: [usize; 2], ties: f64) -> f64 {
    let [one, other] = counts.map(|count| count as f64);
    let all = one + other;
    let middle = one * other / 2.0;
    let variance = one * other / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)));
    // Continuity correction: U moves in steps of 1.
    let distance = ((u - middle).abs() - 0.5).max(0.0);
    if variance <= 0.0 {
        return 1.0;
    }
    libm::erfc(distance / variance.sqrt() / std::f64::consts::SQRT_2)
}

impl Comparison {
    /// Whether any figure became slower.
    #[must_use]
    pub fn is_slower(&self) -> bool {
        self.changes.iter().any(|change| change.slower > 1.0)
    }
}

/// A summary line and a table.
impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slower = self.changes.iter().filter(|change| change.slower > 1.0);
        let slower = slower.count();
        writeln!(
            f,
            "{} figures compared: {slower} slower, {} faster, beyond the noise of both",
            self.compared,
            self.changes.len() - slower
        )?;
        if self.by_range > 0 {
            writeln!(
                f,
                "{} of them by their smallest and largest sample only: a report has no others",
                self.by_range
            )?;
        }
        if self.too_few > 0 {
            writeln!(f, "{} more have too few samples to compare", self.too_few)?;
        }
        if self.changes.is_empty() {
            return Ok(());
        }
        let head = ["", "old", "new", "figure"].map(str::to_owned);
        let line = |change: &Change| {
            let how = match change.slower > 1.0 {
                true => format!("{:.2}x slower", change.slower),
                false => format!("{:.2}x faster", 1.0 / change.slower),
            };
            [
                how,
                change.old.clone(),
                change.new.clone(),
                change.figure.clone(),
            ]
        };
        let lines: Vec<[String; 4]> = [head]
            .into_iter()
            .chain(self.changes.iter().map(line))
            .collect();
        let width = |column: usize| {
            lines
                .iter()
                .map(|line| line[column].len())
                .max()
                .unwrap_or(0)
        };
        let widths = [width(0), width(1), width(2)];
        writeln!(f)?;
        for [how, old, new, figure] in &lines {
            let [a, b, c] = widths;
            writeln!(f, "{how:>a$}  {old:>b$}  {new:>c$}  {figure}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Samples;
    use crate::record::{Metric, record};
    use crate::report::{Case, Machine};

    /// Thirty samples around this many nanoseconds. `turn` lengthens some of them.
    fn samples(name: &str, nanos: f64, turn: impl Fn(usize) -> f64) -> Samples {
        Samples {
            implementation: name.into(),
            backend: String::new(),
            seconds: (0..30).map(|at| nanos * turn(at) * 1e-9).collect(),
        }
    }

    /// Noise of this amount, different in each run.
    fn noise(run: usize, most: f64) -> impl Fn(usize) -> f64 {
        move |at| 1.0 + most * ((at * 7919 + run * 104_729) % 101) as f64 / 100.0
    }

    fn report(cases: &[(&str, Vec<Samples>)]) -> Report {
        let mut report = Report::new(Machine::here());
        for (name, samples) in cases {
            let case = Case::new("x.y", "all").with("case", name);
            record(
                &mut report,
                &case,
                &[Metric::time("time", "ns", 1)],
                samples,
            );
        }
        report
    }

    #[test]
    fn the_slowest_comes_first_and_common_drift_is_no_change() {
        let run = |run: usize, drift: f64, ours: f64| {
            let of = |name, nanos, seed| samples(name, nanos * drift, noise(10 * run + seed, 0.02));
            report(&[
                ("same", vec![of(OURS, 40.0, 1), of("ring", 160.0, 2)]),
                (
                    "slower",
                    vec![of(OURS, 40.0 * ours, 3), of("ring", 160.0, 4)],
                ),
                (
                    "faster",
                    vec![of(OURS, 40.0 / ours, 5), of("ring", 160.0, 6)],
                ),
                (
                    "little",
                    vec![
                        of(OURS, 40.0 * (1.0 + CHANGED / 2.0 * (ours - 1.0)), 7),
                        of("ring", 160.0, 8),
                    ],
                ),
            ])
        };
        let (old, new) = (run(1, 1.0, 1.0), run(2, 1.3, 2.0));
        let found = compare(&old, &new);
        assert_eq!((found.compared, found.by_range, found.too_few), (4, 0, 0));
        let names: Vec<&str> = found.changes.iter().map(|change| &*change.figure).collect();
        assert_eq!(
            names,
            [
                "x.y case=slower: time against ring",
                "x.y case=faster: time against ring"
            ]
        );
        assert!(found.is_slower());
        let shown = found.to_string();
        assert!(
            shown.starts_with("4 figures compared: 1 slower, 1 faster"),
            "{shown}"
        );
        assert!(
            (found.changes[0].slower / 2.0 - 1.0).abs() < 0.02,
            "{shown}"
        );
        assert!(
            shown.contains("x slower  4.0x  2.0x  x.y case=slower"),
            "{shown}"
        );
        let none = compare(&old, &run(3, 0.7, 1.0));
        assert_eq!((none.changes.len(), none.is_slower()), (0, false));
    }

    /// A library that is slower in one run makes us look faster; another library shows that we are
    /// not.
    #[test]
    fn a_library_that_changed_is_no_change_of_ours() {
        let run = |run: usize, ours: f64, ring: f64| {
            let of = |name, nanos, seed| samples(name, nanos, noise(10 * run + seed, 0.02));
            let samples = vec![
                of(OURS, ours, 1),
                of("ring", ring, 2),
                of("bip324", 400.0, 3),
            ];
            report(&[("a", samples)])
        };
        let old = run(1, 40.0, 160.0);
        assert_eq!(compare(&old, &run(2, 40.0, 200.0)).changes, []);
        assert_eq!(compare(&old, &run(3, 60.0, 300.0)).changes, []);
        let found = compare(&old, &run(4, 60.0, 200.0));
        // The library with the smaller change is named.
        assert_eq!(found.changes[0].figure, "x.y case=a: time against ring");
        assert_eq!(found.changes.len(), 1);
    }

    /// Without a library, the time is compared; for a rate, higher is better.
    #[test]
    fn times_and_rates_are_compared_where_no_library_is() {
        let run = |run: usize, nanos: f64| {
            let mut report = Report::new(Machine::here());
            let metrics = [
                Metric::time("time", "ns", 1),
                Metric::rate("rate", "packets/s", 1.0),
            ];
            let samples = [samples(OURS, nanos, noise(run, 0.02))];
            record(&mut report, &Case::new("x.y", "all"), &metrics, &samples);
            report.counted(&Case::new("x.y", ""), OURS, "share", "%", nanos);
            report
        };
        let found = compare(&run(1, 40.0), &run(2, 60.0));
        assert_eq!(found.compared, 2);
        assert!(
            found.changes.iter().all(|change| change.slower > 1.4),
            "{found}"
        );
        assert!(found.to_string().contains("60."), "{found}");
    }

    #[test]
    fn noise_that_overlaps_is_no_change() {
        let run = |seed, nanos| report(&[("a", vec![samples(OURS, nanos, noise(seed, 1.0))])]);
        assert_eq!(compare(&run(1, 40.0), &run(2, 46.0)).changes, []);
    }

    #[test]
    fn reports_without_samples_are_compared_by_their_range() {
        let run = |run: usize, nanos| {
            let of = |name, nanos, seed| samples(name, nanos, noise(10 * run + seed, 0.1));
            let mut report = report(&[("a", vec![of(OURS, nanos, 1), of("ring", 160.0, 2)])]);
            report.rows.iter_mut().for_each(|row| row.values.clear());
            report
        };
        let found = compare(&run(1, 40.0), &run(2, 60.0));
        assert_eq!((found.by_range, found.changes.len()), (1, 1));
        assert!(
            found.to_string().contains("by their smallest and largest"),
            "{found}"
        );
        assert_eq!(compare(&run(1, 40.0), &run(2, 43.0)).changes, []);
    }

    #[test]
    fn too_few_samples_are_not_compared() {
        let run = |nanos: f64| {
            let mut few = samples(OURS, nanos, |_| 1.0);
            few.seconds.truncate(4);
            report(&[("a", vec![few])])
        };
        let found = compare(&run(40.0), &run(80.0));
        assert_eq!((found.compared, found.too_few), (0, 1));
        assert!(
            found.to_string().contains("1 more have too few samples"),
            "{found}"
        );
    }

    /// Expected values are from SciPy 1.14: `mannwhitneyu(a, b, method="asymptotic")`.
    #[test]
    fn the_mann_whitney_test_agrees_with_scipy() {
        let close = |chance: f64, expected: f64| {
            assert!(
                (chance / expected - 1.0).abs() < 1e-5,
                "{chance}, not {expected}"
            );
        };
        let one: Vec<f64> = (1..9).map(f64::from).collect();
        let other: Vec<f64> = (5..11).map(|value| f64::from(value) + 0.5).collect();
        close(mann_whitney(&one, &other), 0.023_868_442_164_574_35);
        let ties = [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0];
        let more = [2.0, 3.0, 3.0, 4.0, 4.0, 5.0, 5.0, 6.0];
        close(mann_whitney(&ties, &more), 0.029_239_238_256_098_945);
        let apart: Vec<f64> = (0..31).map(f64::from).collect();
        let above: Vec<f64> = apart.iter().map(|value| value + 100.0).collect();
        close(mann_whitney(&apart, &above), 1.401_846_318_434_728_6e-11);
        assert_eq!(mann_whitney(&[1.0; 9], &[1.0; 9]), 1.0);
    }

    /// Of 100 figures of pure chance none passes, and a true change does.
    #[test]
    fn the_bound_grows_with_what_is_found() {
        let chance: Vec<f64> = (1..=100).map(|at| f64::from(at) / 101.0).collect();
        assert_eq!(bound(chance.clone()), 0.0);
        let with = |found: &[f64]| bound([found, &chance].concat());
        assert_eq!(with(&[1e-6]), 1e-6);
        // Alone, the larger one would not pass.
        assert_eq!(with(&[1.5e-4]), 0.0);
        assert_eq!(with(&[1e-6, 1.5e-4]), 1.5e-4);
        assert_eq!(bound(Vec::new()), 0.0);
    }
}
