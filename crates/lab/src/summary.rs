//! What the text and the HTML share: the answers, the tables, and how a number
//! is written.
//!
//! An answer is one sentence per experiment about its most telling case. A
//! [`Table`] holds the figures of one experiment and metric with cases as rows
//! and implementations as columns; keys that are the same in every case move
//! into its title. Numbers have three significant digits, times choose their
//! own unit, MB is 10^6 bytes.

use crate::report::{OURS, Published, Ratio, Report, Row, distinct, is_ours, key, pairs};

/// A ratio this close to 1 is called level: below it, no machine of this kind
/// repeats itself.
const LEVEL: f64 = 0.03;

/// The footnote to the mark of noisy figures.
pub const NOISY_NOTE: &str =
    "~ noisy: the middle half of the samples spreads over more than 10 % of the median";

/// How to read the figures in parentheses.
pub const RATIO_NOTE: &str = "(1.9x): packetlane is 1.9 times as fast as this one; below 1x it is \
    slower. Median of ratios of samples taken in turn.";

/// What stands above the published figures.
pub const PUBLISHED_NOTE: &str = "What others say of their programs, and what we once measured of \
    them, all on other machines. Read the caveats before comparing.";

/// The answer of one experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Such as `bip324.mixed`.
    pub experiment: String,
    /// The sentence.
    pub text: String,
}

/// One sentence for each experiment that has rows.
pub fn answers(report: &Report) -> Vec<Answer> {
    report
        .experiments()
        .into_iter()
        .filter_map(|experiment| {
            Some(Answer {
                experiment: experiment.to_owned(),
                text: answer(report, experiment)?,
            })
        })
        .collect()
}

/// What an experiment asks, in words for somebody who has not read the design.
pub fn question(experiment: &str) -> &'static str {
    match experiment {
        "bip324.primitives" => "The parts of the cipher, each alone",
        "bip324.handshake" => "What it costs to set up an encrypted connection",
        "bip324.packet" => "Whole packets of one size, many at a time",
        "bip324.alone" => "Whole packets of one session, one at a time",
        "bip324.mixed" => "Traffic of mixed sizes, sealed and opened",
        "bip324.latency" => "How long a batch takes until its packets may leave",
        "bip324.sessions" => "One packet of each of many sessions, whose keys have left the caches",
        "bip324.threads" => "One large batch on several threads",
        "sha256d.many" => "Double SHA-256 of many messages",
        "sha256d.d64" => "Double SHA-256 of many 64-byte inputs",
        "sha256d.merkle" => "Merkle roots",
        "sha256d.block" => "All hashes of one block of Bitcoin",
        "sha256d.files" => "Files of blocks, parsed and verified on several threads",
        "quic.packet" => "Protecting QUIC packets",
        "quic.mask" => "What header protection adds to sealing QUIC packets",
        "quic.link" => "What share of a core it takes to seal all QUIC packets of a link",
        "quic.send_path" => "Where a QUIC sender's CPU time goes",
        "gpu.kernel" => "The GPU's kernels by themselves, on packets that lie in its memory",
        "gpu.latency" => "How long a batch takes to the GPU and back, and on the CPU",
        "gpu.transfer" => "Where the time of a batch goes on its way through the GPU",
        "gpu.streams" => "What several streams to the GPU gain",
        "gpu.decoys" => "What decoys cost on the GPU",
        "gpu.batch" => "Which batch is best for the GPU",
        _ => "",
    }
}

/// The case an answer speaks of, where it was measured, and the metric.
fn headline(experiment: &str) -> (&'static str, &'static str) {
    match experiment {
        "bip324.primitives" => ("primitive=aead_seal bytes=1024", "time"),
        "bip324.handshake" => ("step=both_sides", "time"),
        "bip324.packet" => ("op=seal bytes=61 batch=64", "time_per_packet"),
        "bip324.alone" => ("op=seal bytes=61", "time_per_packet"),
        "bip324.mixed" => ("profile=mail batch=1024 decoys=0", "packets_per_second"),
        "bip324.latency" => ("profile=mail batch=64", "time_per_batch"),
        "bip324.sessions" => ("op=seal sessions=20000 order=random", "time_per_packet"),
        "bip324.threads" => ("op=seal threads=2", "time_per_packet"),
        "sha256d.many" => ("bytes=1024 batch=128", "time_per_hash"),
        "sha256d.d64" => ("batch=1024", "time_per_hash"),
        "sha256d.merkle" => ("leaves=9001", "time"),
        "sha256d.block" => ("part=all", "time"),
        "sha256d.files" => ("threads=2", "throughput"),
        "quic.packet" => (
            "suite=aes128gcm op=seal bytes=1280 batch=16 header_protection=on",
            "time_per_packet",
        ),
        "quic.mask" => ("suite=aes128gcm bytes=1280", "overhead"),
        "quic.link" => ("gbit=10 suite=aes128gcm", "share_of_core"),
        "quic.send_path" => ("stack=quinn", "cpu_per_byte"),
        "gpu.kernel" => ("op=seal profile=mail", "packets_per_second"),
        "gpu.latency" => ("op=seal profile=mail", "crossover"),
        "gpu.transfer" => ("op=seal stage=whole", "share_of_bus"),
        "gpu.streams" => ("streams=4", "speedup"),
        "gpu.decoys" => ("decoys=20 data=travels", "packets_per_second"),
        "gpu.batch" => ("data=travels", "best_batch"),
        _ => ("", ""),
    }
}

fn answer(report: &Report, experiment: &str) -> Option<String> {
    let (wanted, metric) = headline(experiment);
    let of_experiment = || {
        report
            .rows
            .iter()
            .filter(|row| row.experiment == experiment)
    };
    // A filter may have left the wanted case out, and other experiments have
    // other metrics: take what comes nearest.
    let metric = of_experiment()
        .find(|row| row.metric == metric)
        .or_else(|| of_experiment().next())?
        .metric
        .clone();
    let fit = |row: &Row| {
        let agreed = pairs(wanted).filter(|(name, value)| row.key(name) == Some(value));
        (agreed.count(), row.implementation == OURS)
    };
    let row = of_experiment()
        .filter(|row| row.metric == metric)
        .max_by_key(|row| fit(row))?;

    let mut text = sentence(report, row);
    let engine = [row.implementation.as_str(), row.backend.as_str()];
    match (row.implementation == OURS, row.backend.is_empty()) {
        (true, true) => {}
        (true, false) => text += &format!(" ({}{})", row.backend, beside(report, row)),
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

/// The figures of our other backends at the case of `row`: `; avx2 60.1 ns,
/// portable 117 ns`. Those of one name with ours are left to the tables.
fn beside(report: &Report, row: &Row) -> String {
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

/// The figures of the libraries at the case of `row`, where ratios would say nothing:
/// `, rustls-ring 7.31 %`.
fn others(report: &Report, row: &Row) -> String {
    let others = report.rows.iter().filter(|other| {
        other.experiment == row.experiment
            && other.case == row.case
            && other.metric == row.metric
            && !is_ours(&other.implementation)
    });
    let figure = |other: &Row| {
        let figure = quantity(other.median, &other.unit);
        format!(", {} {figure}", other.implementation)
    };
    others.map(figure).collect()
}

/// The figure of `row` in words, without the comparison.
fn sentence(report: &Report, row: &Row) -> String {
    let of = |name: &str| row.key(name).unwrap_or("?");
    let figure = quantity(row.median, &row.unit);
    let beside = |metric: &str| {
        let other = report.rows.iter().find(|other| {
            other.experiment == row.experiment
                && other.case == row.case
                && other.implementation == row.implementation
                && other.metric == metric
        })?;
        Some(match other.unit.as_str() {
            "x" => times(other.median),
            unit => quantity(other.median, unit),
        })
    };
    match row.experiment.as_str() {
        "bip324.primitives" => format!(
            "{}, {} bytes: {figure}",
            words(of("primitive")),
            of("bytes")
        ),
        "bip324.handshake" => {
            let step = match of("step") {
                "create" => "create one side's key",
                "xdh" => "agree on the shared secret",
                "derive" => "derive the session keys",
                "both_sides" => "a whole handshake, both sides",
                other => other,
            };
            format!("{step}: {figure}")
        }
        "bip324.packet" => format!(
            "{} a {}-byte packet, {} at a time: {figure}",
            of("op"),
            of("bytes"),
            of("batch")
        ),
        "bip324.alone" => {
            format!("{} a lone {}-byte packet: {figure}", of("op"), of("bytes"))
        }
        "bip324.mixed" => {
            let goodput = beside("goodput").map_or(String::new(), |rate| format!(", {rate}"));
            let decoys = match of("decoys") {
                "0" | "?" => String::new(),
                share => format!(", {share} % decoys"),
            };
            format!(
                "{}, batch {}{decoys}: {figure} seal+open{goodput}",
                of("profile"),
                of("batch")
            )
        }
        "bip324.latency" => {
            let each = beside("time_per_packet")
                .map_or(String::new(), |time| format!(", {time} a packet"));
            format!(
                "{}, a batch of {}: {figure}{each}",
                of("profile"),
                of("batch")
            )
        }
        "bip324.sessions" => {
            let times = beside("cold_by_warm").map_or(String::new(), |times| {
                format!(", {times} what it takes with 64")
            });
            format!(
                "{} one {}-byte packet of each of {} sessions: {figure} a packet{times}",
                of("op"),
                of("bytes"),
                of("sessions")
            )
        }
        "bip324.threads" => {
            let times = beside("speedup")
                .map_or(String::new(), |times| format!(", {times} as fast as one"));
            format!(
                "{} {}, batch {}, on {} threads: {figure} a packet{times}",
                of("op"),
                of("profile"),
                of("batch"),
                of("threads")
            )
        }
        "sha256d.many" => format!(
            "{} bytes, {} messages at a time: {figure} a hash",
            of("bytes"),
            of("batch")
        ),
        "sha256d.d64" => format!("64 bytes, {} at a time: {figure} a hash", of("batch")),
        "sha256d.merkle" => format!("root of {} leaves: {figure}", of("leaves")),
        "sha256d.block" => {
            let part = match of("part") {
                "all" => "its transactions and trees",
                part => part,
            };
            format!("block {}, {part}: {figure}", of("block"))
        }
        "sha256d.files" => match of("threads") {
            "1" => format!("verify blocks on one thread: {figure}"),
            threads => format!("verify blocks on {threads} threads: {figure}"),
        },
        "quic.packet" => format!(
            "{} a {}-byte packet, {}, {} at a time: {figure}",
            of("op"),
            of("bytes"),
            of("suite"),
            of("batch")
        ),
        "quic.mask" => format!(
            "{}, {} bytes, {} at a time: {figure} more with header protection{}",
            of("suite"),
            of("bytes"),
            of("batch"),
            others(report, row)
        ),
        "quic.link" => format!(
            "seal {} Gbit/s of 1280-byte packets, {}: {figure} of a core",
            of("gbit"),
            of("suite")
        ),
        "quic.send_path" if row.metric == "cpu_per_byte" => {
            format!("{}, the sender's CPU: {figure} a byte", of("stack"))
        }
        "gpu.kernel" => {
            let goodput = beside("goodput").map_or(String::new(), |rate| format!(", {rate}"));
            let share = beside("share_of_limit").map_or(String::new(), |share| {
                format!(", {share} of the counted limit")
            });
            let what = match row.key("bytes") {
                Some(bytes) => format!("{bytes}-byte packets"),
                None => of("profile").to_owned(),
            };
            format!("{} {what}, resident: {figure}{goodput}{share}", of("op"))
        }
        "gpu.latency" if row.metric == "crossover" => format!(
            "{} {}: sooner than one thread of the CPU from a batch of {figure} on",
            of("op"),
            of("profile")
        ),
        "gpu.latency" => format!("a batch of {}, host to host: {figure}", of("batch")),
        "gpu.transfer" if row.metric == "share_of_bus" => {
            let rate = beside("throughput").map_or(String::new(), |rate| format!("{rate}, "));
            format!(
                "{} {}, host to host: {rate}{figure} of what the bus carries in plain copies \
                 of the same bytes both ways",
                of("op"),
                of("profile")
            )
        }
        "gpu.streams" if row.metric == "speedup" => format!(
            "{} streams: {} as fast as one, host to host",
            of("streams"),
            times(row.median)
        ),
        "gpu.decoys" => format!(
            "{} {}, {} % decoys, data {}: {figure} that are none",
            of("op"),
            of("profile"),
            of("decoys"),
            of("data")
        ),
        "gpu.batch" if row.metric == "best_batch" => {
            format!(
                "{} {}, data {}: a batch of {figure}",
                of("op"),
                of("profile"),
                of("data")
            )
        }
        _ => format!("{}: {} {figure}", row.case, words(&row.metric)),
    }
}

/// "2.4x as fast as bip324, 1.9x rustcrypto; level with x; slower than ring (0.6x)".
fn comparison(ratios: &[&Ratio]) -> String {
    let mut ratios = ratios.to_vec();
    ratios.sort_by(|a, b| b.median.total_cmp(&a.median));
    let group = |keep: &dyn Fn(f64) -> bool, write: &dyn Fn(&Ratio) -> String| {
        let kept = ratios.iter().filter(|ratio| keep(ratio.median));
        kept.map(|ratio| write(ratio)).collect::<Vec<_>>()
    };
    let mut parts = Vec::new();
    let ahead = group(&|r| r > 1.0 + LEVEL, &|ratio| {
        format!("{} {}", times(ratio.median), ratio.against)
    });
    if let Some((first, rest)) = ahead.split_first() {
        let first = first.replacen(' ', " as fast as ", 1);
        parts.push([&[first], rest].concat().join(", "));
    }
    let level = group(&|r| (r - 1.0).abs() <= LEVEL, &|ratio| {
        ratio.against.clone()
    });
    if !level.is_empty() {
        parts.push(format!("level with {}", level.join(", ")));
    }
    let behind = group(&|r| r < 1.0 - LEVEL, &|ratio| {
        format!("{} ({})", ratio.against, times(ratio.median))
    });
    if !behind.is_empty() {
        parts.push(format!("slower than {}", behind.join(", ")));
    }
    parts.join("; ")
}

/// The figures of one experiment and metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Such as `bip324.packet`.
    pub experiment: String,
    /// Such as `time_per_packet`.
    pub metric: String,
    /// The unit of the numbers in the cells.
    pub unit: String,
    /// The pairs that every case of the table shares, as text.
    pub shared: String,
    /// The keys whose values open each line.
    pub keys: Vec<String>,
    /// One for each implementation, ours first.
    pub columns: Vec<Column>,
    /// One for each case.
    pub lines: Vec<Line>,
    /// What is timed.
    pub timed: Vec<String>,
}

/// The head of a column of figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The implementation.
    pub implementation: String,
    /// Its backends; empty where there is no choice.
    pub backend: String,
}

impl Column {
    /// The backend's name, with what tells it from ours, where this is not
    /// [`OURS`] but another backend of it. What is ours under another interface, such as
    /// `packetlane-rustls`, is none.
    pub fn lesser_backend(&self) -> Option<&str> {
        let rest = self.implementation.strip_prefix(OURS)?;
        let rest = rest.strip_prefix('-')?;
        rest.starts_with(&self.backend).then_some(rest)
    }
}

/// One case of a [`Table`].
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The values of the table's keys.
    pub values: Vec<String>,
    /// One for each column; `None` where it did not take part.
    pub cells: Vec<Option<Cell>>,
}

/// One figure of a [`Table`].
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The median with its unit, unless the table's title names that.
    pub median: String,
    /// From the smallest to the largest sample, likewise.
    pub range: String,
    /// How far we are ahead of this one; `None` in our own column.
    pub ratio: Option<String>,
    /// Whether the samples disagree too much.
    pub noisy: bool,
}

impl Table {
    /// `time per packet (op=seal)`.
    pub fn title(&self) -> String {
        let mut title = words(&self.metric);
        if bare_unit(&self.unit) && !self.metric.ends_with("_per_second") {
            title += &format!(", {}", self.unit);
        }
        if !self.shared.is_empty() {
            title += &format!(" ({})", self.shared);
        }
        title
    }
}

/// The tables of a report: one for each experiment and metric.
pub fn tables(report: &Report) -> Vec<Table> {
    let mut tables = Vec::new();
    for experiment in report.experiments() {
        let rows: Vec<&Row> = report
            .rows
            .iter()
            .filter(|row| row.experiment == experiment)
            .collect();
        for metric in distinct(rows.iter().map(|row| row.metric.as_str())) {
            let rows: Vec<&Row> = rows
                .iter()
                .copied()
                .filter(|row| row.metric == metric)
                .collect();
            tables.push(table(report, &rows));
        }
    }
    tables
}

/// One table from the rows of one experiment and metric, at least one.
fn table(report: &Report, rows: &[&Row]) -> Table {
    let cases = distinct(rows.iter().map(|row| row.case.as_str()));
    let all_keys = distinct(cases.iter().flat_map(|case| pairs(case).map(|pair| pair.0)));
    // A lone case keeps its keys on its line: a line needs something to its left.
    let (shared, keys): (Vec<&str>, Vec<&str>) = all_keys.into_iter().partition(|name| {
        cases.len() > 1 && distinct(cases.iter().map(|case| key(case, name))).len() == 1
    });
    let mut names = distinct(rows.iter().map(|row| row.implementation.as_str()));
    names.sort_by_key(|name| (*name != OURS, !is_ours(name)));

    let find = |case: &str, name: &str| {
        rows.iter()
            .find(|row| row.case == case && row.implementation == name)
    };
    let cell = |case: &str, name: &str| {
        let row = find(case, name)?;
        let ratio = report.ratios.iter().find(|ratio| {
            ratio.experiment == row.experiment
                && ratio.case == case
                && ratio.metric == row.metric
                && ratio.implementation == OURS
                && ratio.against == name
        });
        Some(Cell {
            median: bare(quantity(row.median, &row.unit), &row.unit),
            range: bare(range(row.min, row.max, &row.unit), &row.unit),
            ratio: ratio.map(|ratio| times(ratio.median)),
            noisy: row.noisy,
        })
    };
    Table {
        experiment: rows[0].experiment.clone(),
        metric: rows[0].metric.clone(),
        unit: rows[0].unit.clone(),
        shared: shared
            .iter()
            .map(|name| format!("{name}={}", key(cases[0], name).unwrap_or_default()))
            .collect::<Vec<_>>()
            .join(" "),
        columns: names
            .iter()
            .map(|name| Column {
                implementation: (*name).to_owned(),
                backend: backends(rows, name),
            })
            .collect(),
        lines: cases
            .iter()
            .map(|case| Line {
                values: keys
                    .iter()
                    .map(|name| key(case, name).unwrap_or("").to_owned())
                    .collect(),
                cells: names.iter().map(|name| cell(case, name)).collect(),
            })
            .collect(),
        keys: keys.into_iter().map(str::to_owned).collect(),
        timed: distinct(rows.iter().map(|row| row.timed.clone()))
            .into_iter()
            .filter(|timed| !timed.is_empty())
            .collect(),
    }
}

/// The backends an implementation used in these rows: the engine may choose
/// another for another batch.
fn backends(rows: &[&Row], name: &str) -> String {
    let used = rows
        .iter()
        .filter(|row| row.implementation == name && !row.backend.is_empty());
    distinct(used.map(|row| row.backend.as_str())).join("+")
}

/// Published figures with their sources and caveats numbered, since many
/// figures share one. A caveat of several sentences is as many notes.
pub struct Notes<'a> {
    /// The figures with their notes.
    pub figures: Vec<Noted<'a>>,
    /// The distinct sources.
    pub sources: Vec<&'a str>,
    /// The distinct sentences of the caveats.
    pub caveats: Vec<&'a str>,
}

/// A published figure and where its notes are in the lists of [`Notes`].
pub struct Noted<'a> {
    /// The figure.
    pub figure: &'a Published,
    /// The number of its source, from 1.
    pub source: usize,
    /// The letters of its caveats: `a`, or `a, c`.
    pub caveats: String,
}

impl<'a> Notes<'a> {
    /// Numbers the notes of these figures.
    pub fn of(published: &'a [Published]) -> Self {
        let sources = distinct(published.iter().map(|figure| figure.source.as_str()));
        let sentences = |figure: &'a Published| figure.caveat.split_inclusive(". ").map(str::trim);
        let caveats = distinct(published.iter().flat_map(sentences));
        let figures = published
            .iter()
            .map(|figure| Noted {
                figure,
                source: sources
                    .iter()
                    .position(|text| *text == figure.source)
                    .map_or(0, |place| place + 1),
                caveats: caveats
                    .iter()
                    .enumerate()
                    .filter(|(_, caveat)| sentences(figure).any(|sentence| sentence == **caveat))
                    .map(|(place, _)| Self::letter(place).to_string())
                    .collect::<Vec<_>>()
                    .join(", "),
            })
            .collect();
        Self {
            figures,
            sources,
            caveats,
        }
    }

    /// The mark of the caveat at an index: a, b, c ...
    pub fn letter(index: usize) -> char {
        (b'a' + (index % 26) as u8) as char
    }
}

/// A name from the JSON as words.
pub fn words(metric: &str) -> String {
    metric.replace('_', " ")
}

/// A figure with its unit: `518 ns`, `3.42 ms`, `3.10 M packets/s`, `1.01 GB/s`.
pub fn quantity(value: f64, unit: &str) -> String {
    let (scale, shown) = scaled(value, unit);
    format!("{}{shown}", digits(value * scale))
}

/// A figure of others, with as many digits as they gave: `21.37 M packets/s`.
pub fn as_published(value: f64, unit: &str) -> String {
    let (scale, shown) = scaled(value, unit);
    // Scaling leaves a residue in the last places of a binary number.
    let value = (value * scale * 1e4).round() / 1e4;
    format!("{value}{shown}")
}

/// A range with one unit for both ends: `510-533 ns`.
pub fn range(min: f64, max: f64, unit: &str) -> String {
    let (scale, shown) = scaled(max, unit);
    let (min, max) = (digits(min * scale), digits(max * scale));
    if min == max {
        format!("{max}{shown}")
    } else {
        format!("{min}-{max}{shown}")
    }
}

/// Whether a unit is too long to stand in every cell: `packets/s`.
fn bare_unit(unit: &str) -> bool {
    unit.ends_with("/s") && unit != "MB/s"
}

/// A quantity without its unit where a title or an axis names it: `3.10 M`.
pub fn bare(quantity: String, unit: &str) -> String {
    if bare_unit(unit) {
        quantity.trim_end_matches(unit).trim_end().to_owned()
    } else {
        quantity
    }
}

/// A ratio: `0.62x`, `1.9x`, `12x`. Near 1 it takes two decimals, so that a
/// difference is not rounded away.
pub fn times(ratio: f64) -> String {
    match ratio.abs() {
        r if r < 1.095 => format!("{ratio:.2}x"),
        r if r < 9.95 => format!("{ratio:.1}x"),
        _ => format!("{ratio:.0}x"),
    }
}

/// The factor and the text (with its space) that suit a value of this unit.
fn scaled(value: f64, unit: &str) -> (f64, String) {
    let ladder: &[(&str, f64)] = match unit {
        "ns" | "us" | "ms" | "s" => &[("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)],
        "MB/s" => &[("kB/s", 1e-3), ("MB/s", 1.0), ("GB/s", 1e3)],
        _ if unit.ends_with("/s") => &[("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9)],
        _ => {
            return (
                1.0,
                if unit.is_empty() {
                    String::new()
                } else {
                    format!(" {unit}")
                },
            );
        }
    };
    let own = ladder
        .iter()
        .find(|step| step.0 == unit)
        .map_or(1.0, |step| step.1);
    // 999.5 would be written as 1000 of the smaller unit.
    let fits = |step: &&(&str, f64)| (value * own / step.1).abs() >= 0.9995;
    let step = ladder.iter().rev().find(fits).unwrap_or(&ladder[0]);
    let shown = match unit {
        "ns" | "us" | "ms" | "s" | "MB/s" => step.0.to_owned(),
        _ if step.0.is_empty() => unit.to_owned(),
        _ => format!("{} {unit}", step.0),
    };
    (own / step.1, format!(" {shown}"))
}

/// Three significant digits, or all of the digits before the point.
fn digits(value: f64) -> String {
    match value.abs() {
        v if v < 5e-4 => "0".to_owned(),
        v if v < 0.9995 => format!("{value:.3}"),
        v if v < 9.995 => format!("{value:.2}"),
        v if v < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_fitting_unit() {
        for (value, unit, text) in [
            (41.04, "ns", "41.0 ns"),
            (3420000.0, "ns", "3.42 ms"),
            (999.7, "ns", "1.00 us"),
            (172.0, "us", "172 us"),
            (0.286, "us", "286 ns"),
            (715e3, "packets/s", "715 k packets/s"),
            (21.37e6, "packets/s", "21.4 M packets/s"),
            (221.0, "MB/s", "221 MB/s"),
            (6600.0, "MB/s", "6.60 GB/s"),
            (5.5, "%", "5.50 %"),
            (0.0, "%", "0 %"),
            (4096.0, "packets", "4096 packets"),
        ] {
            assert_eq!(quantity(value, unit), text);
        }
        assert_eq!(as_published(21.37e6, "packets/s"), "21.37 M packets/s");
        assert_eq!(as_published(2798.0, "ns"), "2.798 us");
        assert_eq!(range(950.0, 1050.0, "ns"), "0.950-1.05 us");
        assert_eq!(range(4.0, 4.0, "%"), "4.00 %");
        assert_eq!(
            [times(0.617), times(1.02), times(1.94), times(12.6)],
            ["0.62x", "1.02x", "1.9x", "13x"]
        );
    }

    #[test]
    fn a_comparison_says_where_we_are_behind() {
        let ratio = |against: &str, median: f64| Ratio {
            experiment: String::new(),
            case: String::new(),
            metric: String::new(),
            implementation: OURS.into(),
            against: against.into(),
            median,
            min: median,
            max: median,
        };
        let list = [
            ratio("ring", 0.6),
            ratio("bip324", 1.9),
            ratio("openssl", 1.01),
            ratio("rustcrypto", 2.4),
        ];
        assert_eq!(
            comparison(&list.iter().collect::<Vec<_>>()),
            "2.4x as fast as rustcrypto, 1.9x bip324; level with openssl; slower than ring (0.60x)"
        );
        assert_eq!(comparison(&[]), "");
    }
}
