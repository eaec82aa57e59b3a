//! What an experiment is.
//!
//! Each file below `experiments/` has one [`Experiment`]: its cases and how they run, the
//! sentence that answers its question, its pictures, and what others have published. Nothing
//! else in the lab knows of a single experiment.

use crate::measure::Plan;
use crate::picture::Picture;
use crate::published::Figures;
use crate::report::{Case, Report};
use crate::sentence::Figure;
use crate::traffic::Profile;
use packetlane::Engine;

/// One question, and all that the lab knows of it.
pub struct Experiment {
    /// `area.name`, such as `bip324.mixed`.
    pub name: &'static str,
    /// What it asks, in one line for somebody who does not know the lab.
    pub description: &'static str,
    /// Lists its cases. A case is built, checked, measured and dropped before the next.
    pub(crate) cases: for<'a> fn(&'a Bench) -> Vec<Task<'a>>,
    /// The row that answers the question.
    pub(crate) headline: Headline,
    /// Its lines in the table that compares machines.
    pub(crate) across: &'static [AcrossMachines],
    /// The headline's figure in words; none for a metric without words of its own.
    pub(crate) sentence: fn(&Figure<'_>) -> Option<String>,
    /// Its pictures, in order.
    pub(crate) pictures: &'static [Picture],
    /// The words in a picture for a `key` and `value` of its cases; none for the usual ones.
    pub(crate) words: fn(&str, &str) -> Option<String>,
    /// Adds what others have published.
    pub(crate) published: fn(&mut Figures),
    /// After the last case: adds the figures that follow from several rows.
    pub(crate) conclude: fn(&mut Report),
    /// Whether it needs a CUDA device.
    pub needs_gpu: bool,
}

/// The row that an answer speaks of. Where a run has no such row, the nearest counts.
pub(crate) struct Headline {
    /// Some `key=value` of its case.
    pub(crate) case: &'static str,
    /// Its metric.
    pub(crate) metric: &'static str,
}

/// A line of the table that compares machines, with a column for each: ratios that a reader
/// should know of every CPU.
pub(crate) struct AcrossMachines {
    /// What is compared, in words.
    pub(crate) label: &'static str,
    /// Some `key=value` of each case whose ratio stands in the line.
    pub(crate) cases: &'static [&'static str],
    /// The metric.
    pub(crate) metric: &'static str,
    /// The library that ours is compared with; none for a metric that is a ratio by itself.
    pub(crate) against: Option<&'static str>,
}

impl Experiment {
    /// Nothing in every field, for those that an experiment leaves out.
    pub(crate) const EMPTY: Self = Self {
        name: "",
        description: "",
        cases: |_| Vec::new(),
        headline: Headline {
            case: "",
            metric: "",
        },
        across: &[],
        sentence: |_| None,
        pictures: &[],
        words: |_, _| None,
        published: |_| {},
        conclude: |_| {},
        needs_gpu: false,
    };

    /// The part of the name before the dot.
    pub fn area(&self) -> &'static str {
        self.name
            .split_once('.')
            .map_or(self.name, |(area, _)| area)
    }

    /// A case without keys. `timed` says what is timed, and by which clock.
    pub(crate) fn case(&self, timed: &str) -> Case {
        Case::new(self.name, timed)
    }
}

/// What the cases run on.
pub(crate) struct Bench {
    /// Our best backend, without a GPU.
    pub(crate) engine: Engine,
    /// Where the lengths of mixed packets come from; `mail` first.
    pub(crate) profiles: Vec<Profile>,
    /// Whether fewer cases and samples are wanted.
    pub(crate) quick: bool,
    /// The device, if there is one and an experiment needs it.
    #[cfg(feature = "cuda")]
    pub(crate) gpu: Option<&'static packetlane::gpu::Gpu>,
    /// The most packets in one batch on the device.
    #[cfg(feature = "cuda")]
    pub(crate) gpu_packets: usize,
}

/// One case, not yet built.
pub(crate) struct Task<'a> {
    /// What it is called.
    pub(crate) case: Case,
    run: Run<'a>,
}

/// Builds, checks and measures a case, and enters the figures.
type Run<'a> = Box<dyn FnOnce(&Case, &Plan, &mut Report) + 'a>;

impl<'a> Task<'a> {
    /// A case, and how to build, check and measure it.
    pub(crate) fn new(case: Case, run: impl FnOnce(&Case, &Plan, &mut Report) + 'a) -> Self {
        Self {
            case,
            run: Box::new(run),
        }
    }

    /// Runs the case and enters its figures in `report`.
    ///
    /// # Panics
    ///
    /// If an implementation gives a wrong result.
    pub(crate) fn run(self, plan: &Plan, report: &mut Report) {
        (self.run)(&self.case, plan, report);
    }
}
