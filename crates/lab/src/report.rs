//! The figures of one run, stored as JSON for other programs.
//!
//! A [`Report`] has a [`Row`] for each case, implementation and metric, a [`Ratio`] for each
//! competitor, and [`Published`] figures. The fields are those of the JSON: renaming one changes
//! schema 1. Beyond the required fields of the schema, a row has `timed`, `noisy` and `values`, a
//! ratio the confidence interval of its median, a machine its name, a published figure its
//! `caveat`, and the report of a partial build `left_out`. Reports without these fields can be read
//! too.
//!
//! A case is text of the form `key=value key=value`. [`Case`] writes it, [`key`] reads it, and
//! [`matches()`] filters by it.

use crate::measure::Summary;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::Path;

/// The name of our own implementation. Ratios compare it with the others.
pub const OURS: &str = "packetlane";

/// Whether an implementation is ours: [`OURS`], or one of its other backends, such as
/// `packetlane-avx2`.
pub fn is_ours(name: &str) -> bool {
    name.strip_prefix(OURS)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Version of the JSON schema.
pub const SCHEMA: u32 = 1;

/// All figures of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The machine of the run.
    pub machine: Machine,
    /// The folder of the recording replayed as `profile=replay`, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed: Option<String>,
    /// What the measuring build leaves out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// The measured figures, in order of measurement.
    pub rows: Vec<Row>,
    /// Ratios of other implementations to ours.
    pub ratios: Vec<Ratio>,
    /// Published figures, not measured in this run.
    pub published: Vec<Published>,
}

/// What a build leaves out, and how to get it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Competitors and experiments: `aws-lc-rs`, `gateway.*`.
    pub what: Vec<String>,
    /// The feature that adds them.
    pub feature: String,
}

impl Display for LeftOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { what, feature } = self;
        write!(f, "{}: add --features {feature}", what.join(", "))
    }
}

/// A ratio this close to 1 counts as level, since two runs of one program on one machine differ by
/// as much.
pub const LEVEL: f64 = 0.03;

/// The machine of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// A short name, such as `Zen 5 VM`. The processor's name may say little.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The processor's name.
    pub cpu: String,
    /// Its relevant instruction sets.
    pub features: Vec<String>,
    /// Number of hardware threads.
    pub cores: usize,
    /// Number of physical cores, if known. Fewer than the threads where two share one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub physical_cores: Option<usize>,
    /// The accelerator's name, if there is one.
    pub gpu: Option<String>,
}

/// A figure: one implementation in one case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Such as `bip324.mixed`.
    pub experiment: String,
    /// Such as `profile=mail batch=1024 decoys=0`.
    pub case: String,
    /// [`OURS`] or a rival's name.
    pub implementation: String,
    /// What it ran on, such as `avx512`. Empty if there is no choice.
    pub backend: String,
    /// Such as `time_per_packet`.
    pub metric: String,
    /// Such as `ns`.
    pub unit: String,
    /// The median of the samples.
    pub median: f64,
    /// The smallest sample.
    pub min: f64,
    /// The largest sample.
    pub max: f64,
    /// Number of samples. 1 if the figure is counted, not timed.
    pub samples: usize,
    /// What is timed, and by which clock.
    #[serde(default)]
    pub timed: String,
    /// Whether the samples vary too much to be trusted.
    #[serde(default)]
    pub noisy: bool,
    /// The samples in order. Empty if the figure is counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<f64>,
}

/// How far we are ahead of a competitor in a case: other / ours for a time, ours / other for a
/// rate. Above 1 we are ahead. Our other backends have ratios to the libraries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Such as `bip324.mixed`.
    pub experiment: String,
    /// The case that both ran.
    pub case: String,
    /// The metric compared.
    pub metric: String,
    /// [`OURS`], or another backend of ours.
    pub implementation: String,
    /// The competitor's name.
    pub against: String,
    /// The median of the ratios of samples from the same turn.
    pub median: f64,
    /// The smallest of those ratios.
    pub min: f64,
    /// The largest of those ratios.
    pub max: f64,
    /// Lower end of the 95 % confidence interval of the median: see
    /// [`Summary::interval`](crate::measure::Summary::interval).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Upper end of that interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
}

/// What a ratio shows, given the interval that contains its true value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The whole interval is above 1.
    Above,
    /// The whole interval is below 1.
    Below,
    /// The whole interval is within [`LEVEL`] of 1.
    Level,
    /// The interval contains 1 and is wider than that: the machine was too noisy to tell.
    Unmeasurable,
}

impl Standing {
    /// The standing of a ratio whose true value is in this interval.
    pub fn of([low, high]: [f64; 2]) -> Self {
        match (low, high) {
            _ if low >= 1.0 - LEVEL && high <= 1.0 + LEVEL => Self::Level,
            _ if low > 1.0 => Self::Above,
            _ if high < 1.0 => Self::Below,
            _ => Self::Unmeasurable,
        }
    }
}

/// A figure that someone else published.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// The experiment it relates to.
    pub experiment: String,
    /// What was run.
    pub case: String,
    /// What was measured.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// The figure as published.
    pub value: f64,
    /// The source.
    pub source: String,
    /// Why it cannot be compared with ours. Empty if it can.
    #[serde(default)]
    pub caveat: String,
}

impl Report {
    /// A report without figures.
    pub fn new(machine: Machine) -> Self {
        Self {
            schema: SCHEMA,
            machine,
            replayed: None,
            left_out: Vec::new(),
            rows: Vec::new(),
            ratios: Vec::new(),
            published: Vec::new(),
        }
    }

    /// Adds a figure that is counted, not timed, such as an overhead in per cent. Median, minimum
    /// and maximum are the same.
    pub fn counted(
        &mut self,
        case: &Case,
        implementation: &str,
        metric: &str,
        unit: &str,
        value: f64,
    ) {
        self.rows.push(Row {
            experiment: case.experiment.clone(),
            case: case.text.clone(),
            implementation: implementation.to_owned(),
            backend: String::new(),
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            median: value,
            min: value,
            max: value,
            samples: 1,
            timed: String::new(),
            noisy: false,
            values: Vec::new(),
        });
    }

    /// The experiments that have rows, in order of their first row.
    pub fn experiments(&self) -> Vec<&str> {
        distinct(self.rows.iter().map(|row| row.experiment.as_str()))
    }

    /// How far the implementation of `row` is ahead of `rival`, in the same case and metric.
    pub fn ratio(&self, row: &Row, rival: &str) -> Option<&Ratio> {
        let of = |ratio: &&Ratio| {
            ratio.experiment == row.experiment
                && ratio.case == row.case
                && ratio.metric == row.metric
                && ratio.implementation == row.implementation
                && ratio.against == rival
        };
        self.ratios.iter().find(of)
    }

    /// The report as JSON, with a line for each figure.
    pub fn to_json(&self) -> String {
        let Self {
            schema,
            machine,
            replayed,
            left_out,
            rows,
            ratios,
            published,
        } = self;
        let mut text = format!("{{\n\"schema\": {schema},\n\"machine\": {}", json(machine));
        if let Some(folder) = replayed {
            text += &format!(",\n\"replayed\": {}", json(folder));
        }
        if !left_out.is_empty() {
            text += &format!(",\n\"left_out\": {}", json_lines(left_out));
        }
        text += &format!(",\n\"rows\": {}", json_lines(rows));
        text += &format!(",\n\"ratios\": {}", json_lines(ratios));
        text += &format!(",\n\"published\": {}\n}}\n", json_lines(published));
        text
    }

    /// Parses the output of [`Report::to_json`].
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("a report is plain strings, numbers and lists")
}

/// A list with a line for each item. Full indentation would give a line for each sample.
fn json_lines(items: &[impl Serialize]) -> String {
    let lines: Vec<String> = items.iter().map(json).collect();
    format!("[\n{}\n]", lines.join(",\n"))
}

impl Row {
    /// The value of `key` in this row's case.
    pub fn key(&self, name: &str) -> Option<&str> {
        key(&self.case, name)
    }

    /// What this figure shows if it is itself a ratio, with the unit `x`.
    pub fn standing(&self) -> Standing {
        Standing::of(match self.values.is_empty() {
            true => [self.min, self.max],
            false => Summary::of(&self.values).interval,
        })
    }
}

impl Ratio {
    /// What this ratio shows. Without an interval (in an old report), all samples must agree.
    pub fn standing(&self) -> Standing {
        Standing::of([self.low.unwrap_or(self.min), self.high.unwrap_or(self.max)])
    }
}

impl Machine {
    /// The machine of this process. The caller adds the accelerator, since a build may not support
    /// any.
    pub fn here() -> Self {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            name: None,
            cpu: model_name(&cpuinfo)
                .or_else(|| arm_name(&cpuinfo))
                .unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            features: features(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            physical_cores: physical_cores(Path::new("/sys/devices/system/cpu")),
            gpu: None,
        }
    }

    /// Its short name, or the processor's name.
    pub fn title(&self) -> &str {
        self.name.as_ref().unwrap_or(&self.cpu)
    }

    /// `Zen 5 VM: AMD EPYC, 2 threads`.
    pub(crate) fn processor(&self) -> String {
        let named = self.name.iter().map(|name| format!("{name}: "));
        let threads = self.sharing(self.cores);
        let threads = threads.unwrap_or_else(|| format!("{} threads", self.cores));
        format!("{}{}, {threads}", named.collect::<String>(), self.cpu)
    }

    /// A remark if this many threads share cores.
    pub(crate) fn sharing(&self, threads: usize) -> Option<String> {
        let cores = self.physical_cores.filter(|cores| *cores < threads)?;
        let cores = match cores {
            1 => "one core".to_owned(),
            _ => format!("{cores} cores"),
        };
        Some(format!("{threads} threads of {cores}"))
    }
}

/// Number of physical cores that this process may use, from Linux's lists of the threads that share
/// a core with each, in this folder.
fn physical_cores(folder: &Path) -> Option<usize> {
    let allowed = rustix::thread::sched_getaffinity(None).ok()?;
    let siblings = |cpu: usize| {
        let path = folder.join(format!("cpu{cpu}/topology/thread_siblings_list"));
        std::fs::read_to_string(path).ok()
    };
    let cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    let lists: Option<BTreeSet<String>> = cpus.map(siblings).collect();
    lists.map(|lists| lists.len())
}

fn model_name(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo
        .lines()
        .find(|line| line.starts_with("model name"))?;
    let name = line.split_once(':')?.1.split_whitespace();
    Some(name.collect::<Vec<_>>().join(" "))
}

/// The cores of an ARM CPU. Linux gives only the numbers of the register MIDR, implementer and
/// part. A CPU may have several kinds of cores.
fn arm_name(cpuinfo: &str) -> Option<String> {
    /// Parts of ARM itself (implementer 0x41), as numbered in its reference manuals.
    const PARTS: [(&str, &str); 12] = [
        ("0xd03", "Cortex-A53"),
        ("0xd05", "Cortex-A55"),
        ("0xd07", "Cortex-A57"),
        ("0xd08", "Cortex-A72"),
        ("0xd09", "Cortex-A73"),
        ("0xd0a", "Cortex-A75"),
        ("0xd0b", "Cortex-A76"),
        ("0xd0c", "Neoverse N1"),
        ("0xd40", "Neoverse V1"),
        ("0xd41", "Cortex-A78"),
        ("0xd49", "Neoverse N2"),
        ("0xd4f", "Neoverse V2"),
    ];
    let values = |key: &'static str| {
        let lines = cpuinfo.lines().filter(move |line| line.starts_with(key));
        lines.filter_map(|line| Some(line.split_once(':')?.1.trim()))
    };
    let mut names = Vec::new();
    for (implementer, part) in values("CPU implementer").zip(values("CPU part")) {
        let known = PARTS.iter().find(|(number, _)| *number == part);
        let name = match known.filter(|_| implementer == "0x41") {
            Some((_, name)) => (*name).to_owned(),
            None => format!("ARM implementer {implementer} part {part}"),
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    (!names.is_empty()).then(|| names.join(" and "))
}

#[cfg(target_arch = "x86_64")]
fn features() -> Vec<String> {
    let mut found = Vec::new();
    // The macro takes only literals, so a loop over a list is not possible.
    macro_rules! look {
        ($($name:tt),*) => {
            $(if std::is_x86_feature_detected!($name) { found.push($name.to_owned()); })*
        };
    }
    look!(
        "ssse3",
        "sse4.1",
        "aes",
        "pclmulqdq",
        "sha",
        "bmi2",
        "adx",
        "avx",
        "avx2"
    );
    look!(
        "vaes",
        "vpclmulqdq",
        "avx512f",
        "avx512bw",
        "avx512vl",
        "avx512dq",
        "avx512ifma",
        "avx512vbmi"
    );
    found
}

#[cfg(target_arch = "aarch64")]
fn features() -> Vec<String> {
    let mut found = Vec::new();
    macro_rules! look {
        ($($name:tt),*) => {
            $(if std::arch::is_aarch64_feature_detected!($name) { found.push($name.to_owned()); })*
        };
    }
    look!("neon", "aes", "pmull", "sha2", "sha3", "sve");
    found
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn features() -> Vec<String> {
    Vec::new()
}

/// A case of an experiment, and what is timed in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// Such as `bip324.packet`.
    pub experiment: String,
    /// Such as `op=seal bytes=61 batch=64`.
    pub text: String,
    /// What is timed, and by which clock.
    pub timed: String,
}

impl Case {
    /// A case without keys yet.
    pub fn new(experiment: &str, timed: &str) -> Self {
        Self {
            experiment: experiment.to_owned(),
            text: String::new(),
            timed: timed.to_owned(),
        }
    }

    /// Appends `key=value` to the text.
    pub fn with(mut self, key: &str, value: impl Display) -> Self {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.text += &format!("{key}={value}");
        self
    }
}

/// The `key=value` pairs of a case, in order. Skips words without `=`.
pub fn pairs(case: &str) -> impl Iterator<Item = (&str, &str)> {
    case.split_whitespace()
        .filter_map(|word| word.split_once('='))
}

/// The value of `name` in a case.
pub fn key<'a>(case: &'a str, name: &str) -> Option<&'a str> {
    pairs(case)
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}

/// Whether a case contains every word of a filter.
///
/// A word of the form `key=value` must equal one of the case's pairs: `batch=1` does not match
/// `batch=1024`. Other words may occur anywhere in the text.
pub fn matches(case: &str, filter: &str) -> bool {
    filter
        .split_whitespace()
        .all(|word| match word.split_once('=') {
            Some((name, value)) if !name.is_empty() && !value.is_empty() => {
                key(case, name) == Some(value)
            }
            _ => case.contains(word),
        })
}

/// The distinct items in the order of their first occurrence.
pub(crate) fn distinct<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for item in items {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_written_and_read() {
        let case = Case::new("bip324.packet", "")
            .with("op", "seal")
            .with("bytes", 61);
        assert_eq!(case.text, "op=seal bytes=61");
        assert_eq!(key(&case.text, "bytes"), Some("61"));
        assert_eq!(key(&case.text, "byte"), None);
    }

    #[test]
    fn a_case_must_match_all_words_of_a_filter() {
        let case = "op=seal bytes=1024 batch=16";
        assert!(matches(case, ""));
        assert!(matches(case, "seal batch=16"));
        assert!(matches(case, "bytes="));
        assert!(!matches(case, "batch=1"));
        assert!(!matches(case, "seal batch=64"));
    }

    #[test]
    fn the_cpu_is_read_from_cpuinfo() {
        let text = "processor\t: 0\nmodel name\t: Some  CPU @ 2.0GHz\n";
        assert_eq!(model_name(text).as_deref(), Some("Some CPU @ 2.0GHz"));
        assert_eq!(model_name("CPU part : 0xd0c"), None);
        assert_eq!(arm_name(text), None);
        let core = |implementer, part| {
            format!("processor\t: 0\nCPU implementer\t: {implementer}\nCPU part\t: {part}\n\n")
        };
        let both = [
            core("0x41", "0xd0b"),
            core("0x41", "0xd05"),
            core("0x41", "0xd05"),
        ]
        .concat();
        assert_eq!(
            arm_name(&both).as_deref(),
            Some("Cortex-A76 and Cortex-A55")
        );
        let other = arm_name(&core("0x61", "0x022"));
        assert_eq!(other.as_deref(), Some("ARM implementer 0x61 part 0x022"));
        assert!(Machine::here().cores >= 1);
    }

    #[test]
    fn threads_that_share_a_core_are_found() {
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        let id = std::process::id();
        let folder = std::env::temp_dir().join(format!("packetlane-lab-cpus-{id}"));
        let write = |list: &dyn Fn(usize) -> usize| {
            for cpu in (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)) {
                let topology = folder.join(format!("cpu{cpu}/topology"));
                std::fs::create_dir_all(&topology).unwrap();
                let list = format!("{}\n", list(cpu));
                std::fs::write(topology.join("thread_siblings_list"), list).unwrap();
            }
        };
        assert_eq!(physical_cores(&folder), None);
        write(&|_| 0);
        assert_eq!(physical_cores(&folder), Some(1));
        write(&|cpu| cpu);
        let cpus = allowed.count() as usize;
        assert_eq!(physical_cores(&folder), Some(cpus));
        std::fs::remove_dir_all(&folder).unwrap();

        let mut machine = Machine::here();
        machine.physical_cores = Some(1);
        assert_eq!(machine.sharing(2).as_deref(), Some("2 threads of one core"));
        assert_eq!(machine.sharing(1), None);
        machine.physical_cores = None;
        assert_eq!(machine.sharing(2), None);
    }

    #[test]
    fn level_is_not_unmeasurable() {
        for (interval, standing) in [
            ([0.98, 1.02], Standing::Level),
            ([1.01, 1.02], Standing::Level),
            ([1.01, 1.05], Standing::Above),
            ([0.90, 0.99], Standing::Below),
            ([0.99, 1.05], Standing::Unmeasurable),
            ([0.50, 2.0], Standing::Unmeasurable),
        ] {
            assert_eq!(Standing::of(interval), standing, "{interval:?}");
        }
    }
}
