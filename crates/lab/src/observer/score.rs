//! How good a detector's answers are.

use crate::record::enter;
use crate::report::{Case, Report};

/// How many of so many were right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) right: usize,
    pub(crate) of: usize,
}

impl Share {
    pub(crate) fn add(&mut self, is_right: bool) {
        self.right += usize::from(is_right);
        self.of += 1;
    }

    /// The share in per cent between the bounds of its 95 % confidence interval (Wilson, 1927).
    /// `None` of nothing.
    pub(crate) fn percent(self) -> Option<[f64; 3]> {
        const Z: f64 = 1.96;
        let n = self.of as f64;
        let share = self.right as f64 / n;
        let center = share + Z * Z / (2.0 * n);
        let width = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
        let bound = |bound: f64| 100.0 * (bound / (1.0 + Z * Z / n)).clamp(0.0, 1.0);
        (self.of > 0).then(|| [bound(center - width), 100.0 * share, bound(center + width)])
    }
}

/// A detector's answers to a question that is asked again and again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Score {
    /// Of what happened, how much was noticed.
    pub(crate) recall: Share,
    /// Of the alarms, how many were right.
    pub(crate) precision: Share,
}

impl Score {
    /// Counts the answer to one question: whether it is so, and what the detector says.
    pub(crate) fn add(&mut self, is_so: bool, says: bool) {
        if is_so {
            self.recall.add(says);
        }
        if says {
            self.precision.add(is_so);
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        let plus = |one: Share, other: Share| Share {
            right: one.right + other.right,
            of: one.of + other.of,
        };
        Self {
            recall: plus(self.recall, other.recall),
            precision: plus(self.precision, other.precision),
        }
    }
}

/// Records recall and precision of a detector.
pub(crate) fn enter_score(report: &mut Report, case: &Case, detector: &str, score: Score) {
    enter_share(report, case, [detector, ""], "recall", score.recall);
    enter_share(report, case, [detector, ""], "precision", score.precision);
}

/// Records a share with its confidence interval. Without any case there is no figure.
pub(crate) fn enter_share(
    report: &mut Report,
    case: &Case,
    of: [&str; 2],
    metric: &str,
    share: Share,
) {
    if let Some(values) = share.percent() {
        enter(report, case, of, (metric, "%"), &values);
        // The spread is that of the interval, not of samples.
        if let Some(row) = report.rows.last_mut() {
            (row.noisy, row.samples) = (false, share.of);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn share(right: usize, of: usize) -> Share {
        Share { right, of }
    }

    /// Bounds by another program (R's `prop.test` without correction).
    #[test]
    fn wilson_intervals() {
        let near = |share: Share, expected: [f64; 3]| {
            let found = share.percent().unwrap();
            let is_near = found
                .iter()
                .zip(expected)
                .all(|(a, b)| (a - b).abs() < 0.05);
            assert!(is_near, "{found:?}");
        };
        near(share(8, 10), [49.0, 80.0, 94.3]);
        near(share(27, 29), [78.0, 93.1, 98.1]);
        near(share(0, 3), [0.0, 0.0, 56.2]);
        assert_eq!(Share::default().percent(), None);
    }
}
