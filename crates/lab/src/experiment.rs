//! The description of an experiment.
//!
//! Each file below `experiments/` defines one [`Experiment`]: its cases and how they run, the
//! sentence with its answer, its pictures, and published figures. No other part of the lab depends
//! on a single experiment.

use crate::measure::Plan;
use crate::picture::Picture;
use crate::published::Figures;
use crate::report::{Case, Report};
use crate::sentence::Figure;
use crate::traffic::Profile;
use packetlane::Engine;

/// One question with everything that the lab needs to answer it.
pub struct Experiment {
    /// `area.name`, such as `bip324.mixed`.
    pub name: &'static str,
    /// The question in one line, for readers who do not know the lab.
    pub description: &'static str,
    /// Creates its cases. Each is built, checked, measured and dropped before the next.
    pub(crate) cases: for<'a> fn(&'a Bench) -> Vec<Task<'a>>,
    /// Selects the row that answers the question.
    pub(crate) headline: Headline,
    /// Its rows in the table that compares machines.
    pub(crate) across: &'static [AcrossMachines],
    /// The headline's figure as a sentence. `None` for other metrics.
    pub(crate) sentence: fn(&Figure<'_>) -> Option<String>,
    /// Its pictures, in order.
    pub(crate) pictures: &'static [Picture],
    /// Words in pictures for a `key` and `value` of its cases. `None` for the default.
    pub(crate) words: fn(&str, &str) -> Option<String>,
    /// Adds published figures.
    pub(crate) published: fn(&mut Figures),
    /// Adds figures derived from several rows, after the last case.
    pub(crate) conclude: fn(&mut Report),
    /// Whether it needs a CUDA device.
    pub needs_gpu: bool,
}

/// Selects the row that an answer is about. If a run lacks it, the nearest one is used.
pub(crate) struct Headline {
    /// Some `key=value` pairs of its case.
    pub(crate) case: &'static str,
    /// Its metric.
    pub(crate) metric: &'static str,
}

/// A row in the table that compares machines, which has a column for each machine.
pub(crate) struct AcrossMachines {
    /// What is compared, for readers.
    pub(crate) label: &'static str,
    /// Some `key=value` pairs of each case whose ratio is shown.
    pub(crate) cases: &'static [&'static str],
    /// The metric.
    pub(crate) metric: &'static str,
    /// The library that we are compared with. `None` if the metric is itself a ratio.
    pub(crate) against: Option<&'static str>,
}

impl Experiment {
    /// An experiment with all fields empty, as a default.
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

    /// A case without keys. `timed` describes what is timed, and by which clock.
    pub(crate) fn case(&self, timed: &str) -> Case {
        Case::new(self.name, timed)
    }
}

/// The environment of the cases.
pub(crate) struct Bench {
    /// Our best backend, without a GPU.
    pub(crate) engine: Engine,
    /// Sources of mixed packet lengths. The first one is `mail`.
    pub(crate) profiles: Vec<Profile>,
    /// Whether to run fewer cases and samples.
    pub(crate) quick: bool,
    /// The GPU, if there is one and an experiment needs it.
    #[cfg(feature = "cuda")]
    pub(crate) gpu: Option<&'static packetlane::gpu::Gpu>,
    /// Maximum number of packets in one batch on the GPU.
    #[cfg(feature = "cuda")]
    pub(crate) gpu_packets: usize,
}

/// A case that is not built yet.
pub(crate) struct Task<'a> {
    /// Its name.
    pub(crate) case: Case,
    run: Run<'a>,
}

/// Builds, checks and measures a case, and records the figures.
type Run<'a> = Box<dyn FnOnce(&Case, &Plan, &mut Report) + 'a>;

impl<'a> Task<'a> {
    /// A case with the function that builds, checks and measures it.
    pub(crate) fn new(case: Case, run: impl FnOnce(&Case, &Plan, &mut Report) + 'a) -> Self {
        Self {
            case,
            run: Box::new(run),
        }
    }

    /// Runs the case and records its figures in `report`.
    ///
    /// # Panics
    ///
    /// If an implementation produces a wrong result.
    pub(crate) fn run(self, plan: &Plan, report: &mut Report) {
        (self.run)(&self.case, plan, report);
    }
}
