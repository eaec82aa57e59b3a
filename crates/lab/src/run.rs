//! Selects experiments and cases and runs them.

use crate::experiment::{Bench, Experiment};
use crate::experiments::{ABSENT, ALL};
use crate::measure::Plan;
use crate::progress::Progress;
use crate::published::Figures;
use crate::report::{LeftOut, Machine, Published, Report, distinct, matches};
use crate::rivals;
use crate::traffic::Profile;
use packetlane::Engine;
use packetlane_p2p::capture;
use std::fmt;
use std::path::PathBuf;

/// What to run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Names of the experiments. All if empty.
    pub experiments: Vec<String>,
    /// Only cases whose text contains all of these words.
    pub filter: String,
    /// Run fewer cases and samples.
    pub quick: bool,
    /// A recording to replay instead of the built-in one.
    pub replay: Option<PathBuf>,
    /// Maximum number of packets in a batch on a GPU. `None` for no limit.
    pub gpu_packets: Option<usize>,
}

/// Runs what `options` request. Experiments for a GPU use the engine's device if it has one,
/// otherwise the one that this process finds. All others run without a GPU.
///
/// # Errors
///
/// See [`LabError`].
///
/// # Panics
///
/// If an implementation produces a wrong result, since no figure can be trusted then.
pub fn run(engine: Engine, options: &Options) -> Result<Report, LabError> {
    run_and_show(engine, options, &mut |_, _| {})
}

/// Like [`run`]. After each experiment, passes the report so far and the experiment's name to
/// `show`.
///
/// # Errors
///
/// See [`LabError`].
///
/// # Panics
///
/// If an implementation produces a wrong result.
pub fn run_and_show(
    engine: Engine,
    options: &Options,
    show: &mut dyn FnMut(&Report, &str),
) -> Result<Report, LabError> {
    let chosen = choose(&options.experiments)?;
    let bench = bench(engine, &chosen, options)?;
    let tasks = chosen.iter().map(|experiment| {
        let tasks = (experiment.cases)(&bench).into_iter();
        let wanted = tasks.filter(|task| matches(&task.case.text, &options.filter));
        (*experiment, wanted.collect::<Vec<_>>())
    });
    let tasks: Vec<_> = tasks.filter(|(_, tasks)| !tasks.is_empty()).collect();
    if tasks.is_empty() {
        return Err(LabError::NoCase(options.filter.clone()));
    }

    let mut report = Report::new(Machine::here());
    let replayed = options.replay.as_ref();
    report.replayed = replayed.map(|folder| folder.display().to_string());
    report.left_out = left_out();
    #[cfg(feature = "cuda")]
    {
        let name = bench.gpu.map(|gpu| gpu.name().to_owned());
        report.machine.gpu = name.or_else(|| packetlane::gpu::device_name().ok());
    }
    let plan = match options.quick {
        true => Plan::quick(),
        false => Plan::full(),
    };
    let progress = Progress::new(tasks.iter().map(|(_, tasks)| tasks.len()).sum());
    for absent in &report.left_out {
        progress.note(&format!("not in this build: {absent}"));
    }
    for (experiment, tasks) in tasks {
        for task in tasks {
            progress.start(&format!("{} {}", experiment.name, task.case.text));
            task.run(&plan, &mut report);
            progress.finish_one();
        }
        (experiment.conclude)(&mut report);
        progress.suspend(|| show(&report, experiment.name));
    }
    report.published = published(&report.experiments());
    Ok(report)
}

/// The experiments with these names, or all, in the order of the registry.
fn choose(names: &[String]) -> Result<Vec<&'static Experiment>, LabError> {
    for name in names {
        if let Some(absent) = ABSENT.iter().find(|absent| absent.0 == name) {
            return Err(LabError::NotInBuild(absent.0, absent.1));
        }
        if !ALL.iter().any(|experiment| experiment.name == name) {
            return Err(LabError::UnknownExperiment(name.clone()));
        }
    }
    let all = ALL.iter().copied();
    let named = |experiment: &&Experiment| names.iter().any(|name| name == experiment.name);
    Ok(match names.is_empty() {
        true => all.collect(),
        false => all.filter(named).collect(),
    })
}

/// The environment for the cases of the chosen experiments.
fn bench(engine: Engine, chosen: &[&Experiment], options: &Options) -> Result<Bench, LabError> {
    let replay = match &options.replay {
        Some(folder) => Profile::replay(folder)?,
        None => Profile::btcd(),
    };
    #[cfg(feature = "cuda")]
    let gpu = find_gpu(engine, chosen, options)?;
    #[cfg(feature = "cuda")]
    let engine = engine.with_offload(packetlane::Offload::Never);
    #[cfg(not(feature = "cuda"))]
    let _ = chosen;
    Ok(Bench {
        engine,
        profiles: vec![
            Profile::mail(),
            Profile::node("relay"),
            Profile::node("listening"),
            Profile::node("archive"),
            replay,
        ],
        quick: options.quick,
        #[cfg(feature = "cuda")]
        gpu,
        #[cfg(feature = "cuda")]
        gpu_packets: options.gpu_packets.unwrap_or(usize::MAX),
    })
}

/// The GPU for the chosen experiments. Without one, experiments that need it have no cases, and a
/// line on standard error says so.
#[cfg(feature = "cuda")]
fn find_gpu(
    engine: Engine,
    chosen: &[&Experiment],
    options: &Options,
) -> Result<Option<&'static packetlane::gpu::Gpu>, LabError> {
    if let Some(gpu) = engine.gpu() {
        return Ok(Some(gpu));
    }
    let on_gpu = chosen.iter().filter(|experiment| experiment.needs_gpu);
    let on_gpu: Vec<&&Experiment> = on_gpu.collect();
    if on_gpu.is_empty() {
        return Ok(None);
    }
    match packetlane::gpu::Gpu::detect() {
        Ok(gpu) => Ok(Some(gpu)),
        Err(error) if on_gpu.len() == chosen.len() => Err(LabError::NoGpu(error)),
        Err(error) => {
            let names = on_gpu.iter().map(|experiment| experiment.name.to_owned());
            let areas = on_gpu
                .iter()
                .map(|experiment| format!("{}.*", experiment.area()));
            let lines: Vec<String> = match options.experiments.is_empty() {
                true => crate::report::distinct(areas),
                false => names.collect(),
            };
            lines
                .iter()
                .for_each(|line| crate::progress::note(&format!("{line}: {error}")));
            Ok(None)
        }
    }
}

/// Adds figures derived from several rows.
pub fn conclude(report: &mut Report) {
    for experiment in ALL {
        (experiment.conclude)(report);
    }
}

/// Published figures for these experiments.
#[must_use]
pub fn published(experiments: &[&str]) -> Vec<Published> {
    let all = ALL.iter();
    all.filter(|experiment| experiments.contains(&experiment.name))
        .flat_map(|experiment| Figures::of(experiment.name, experiment.published))
        .collect()
}

/// What this build leaves out, by feature. An area without any experiment is shown as `gateway.*`.
fn left_out() -> Vec<LeftOut> {
    let whole = |experiment: &str| {
        let (area, _) = experiment.split_once('.').unwrap_or((experiment, ""));
        match ALL.iter().any(|one| one.area() == area) {
            true => experiment.to_owned(),
            false => format!("{area}.*"),
        }
    };
    let experiments = ABSENT.iter().map(|(name, feature)| (whole(name), *feature));
    let rivals = rivals::ABSENT.iter();
    let rivals = rivals.map(|(name, feature)| ((*name).to_owned(), *feature));
    let all: Vec<(String, &str)> = rivals.chain(experiments).collect();
    let features = distinct(all.iter().map(|(_, feature)| *feature));
    let by_feature = |feature: &str| LeftOut {
        what: distinct(
            all.iter()
                .filter(|one| one.1 == feature)
                .map(|one| one.0.clone()),
        ),
        feature: feature.to_owned(),
    };
    features.into_iter().map(by_feature).collect()
}

/// The names of all experiments.
#[must_use]
pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|experiment| experiment.name).collect()
}

/// Why the lab cannot run.
#[derive(Debug)]
#[non_exhaustive]
pub enum LabError {
    /// There is no experiment with this name.
    UnknownExperiment(String),
    /// This build leaves out the experiment; the feature adds it.
    NotInBuild(&'static str, &'static str),
    /// No case matches the filter.
    NoCase(String),
    /// All chosen experiments need a GPU, and there is none.
    #[cfg(feature = "cuda")]
    NoGpu(packetlane::gpu::GpuError),
    /// The recording to replay cannot be read.
    Replay(capture::CaptureError),
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownExperiment(name) => {
                write!(
                    f,
                    "unknown experiment \"{name}\"; the experiments are {}",
                    names().join(", ")
                )
            }
            Self::NotInBuild(name, feature) => {
                write!(f, "{name} is not in this build: add --features {feature}")
            }
            Self::NoCase(filter) => write!(f, "no case contains all words of \"{filter}\""),
            #[cfg(feature = "cuda")]
            Self::NoGpu(error) => error.fmt(f),
            Self::Replay(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LabError {}

impl From<capture::CaptureError> for LabError {
    fn from(error: capture::CaptureError) -> Self {
        Self::Replay(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Task;
    use crate::report::pairs;
    use crate::sentence::Figure;

    fn is_word(text: &str) -> bool {
        let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        !text.is_empty() && text.chars().all(lower)
    }

    /// Checks what the compiler does not require.
    #[test]
    fn every_experiment_is_complete() {
        let gpu = packetlane_gpu::Gpu::on(packetlane_ptx_emulator::StandIn::new(8));
        let gpu: &'static packetlane_gpu::Gpu = Box::leak(Box::new(gpu));
        let engine = Engine::detect().unwrap().with_gpu(gpu);
        let options = Options {
            quick: true,
            ..Options::default()
        };
        let bench = bench(engine, ALL, &options).unwrap();
        let mut names = names();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len(), "two experiments have the same name");
        for experiment in ALL {
            let name = experiment.name;
            let (area, rest) = name.split_once('.').expect(name);
            assert!(is_word(area) && is_word(rest), "{name}: not area.name");
            assert!(!experiment.description.is_empty(), "{name}: no description");
            let tasks = (experiment.cases)(&bench);
            assert!(!tasks.is_empty(), "{name}: no case in a quick run");
            for task in &tasks {
                assert_eq!(task.case.experiment, name);
                assert!(!task.case.timed.is_empty(), "{name}: what is timed?");
            }

            // A case near the headline's, with its metric, yields a sentence.
            let headline = &experiment.headline;
            let fit = |task: &&Task<'_>| {
                let wanted = pairs(headline.case);
                let agree = |(key, value): &(&str, &str)| {
                    crate::report::key(&task.case.text, key) == Some(value)
                };
                wanted.filter(agree).count()
            };
            let task = tasks.iter().max_by_key(fit).expect("not empty");
            let mut report = Report::new(Machine::here());
            report.counted(&task.case, "packetlane", headline.metric, "ns", 1.0);
            let figure = Figure::new(&report, &report.rows[0]);
            let sentence = (experiment.sentence)(&figure).expect(name);
            assert!(!sentence.contains('?'), "{name}: {sentence}");
        }
    }

    #[test]
    fn every_published_figure_has_a_source_and_the_invalid_ones_say_so() {
        for figure in published(&names()) {
            assert!(!figure.source.is_empty(), "{figure:?}");
            if figure.value == 21.37e6 || figure.value == 6600.0 {
                assert!(figure.caveat.contains("invalid"), "{figure:?}");
            }
        }
        assert!(
            published(&["bip324.latency"])
                .iter()
                .all(|figure| figure.experiment == "bip324.latency")
        );
        assert!(published(&["sha256d.files"]).is_empty());
    }

    #[test]
    fn a_single_hash_is_not_shown_as_a_double_one() {
        let figures = published(&["sha256d.many", "sha256d.d64"]);
        let core = figures
            .iter()
            .filter(|figure| figure.source == crate::published::CORE);
        let single: Vec<(f64, bool)> = core
            .map(|figure| (figure.value, figure.caveat.contains("single hash")))
            .collect();
        assert_eq!(single, [(163.0, true), (99.0, false)]);
    }
}
