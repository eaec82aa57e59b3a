//! Which plots a report yields, and one function that draws any of them.
//!
//! `SPECS` lists the questions worth a picture: an experiment, what runs along
//! the bottom, what separates one picture from the next. [`plots`] fills them
//! with the rows there are; where a run has only one point on the bottom axis
//! (`--quick`, or a filter), bars take the place of lines. [`draw`] knows nothing
//! of experiments.
//!
//! The SVG names its colours by the exact values of [`INK`], [`GRID`] and
//! [`COLOURS`]; the page replaces them through its style sheet, which is how one
//! drawing serves light and dark screens. The eight hues stay apart for
//! colour-blind readers (after Okabe and Ito), and the page gives each its own
//! dash as well.

use crate::report::{OURS, Published, Report, Row, distinct, is_ours, key};
use crate::summary::{bare, quantity, words};
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::error::Error;

/// Axes and text.
pub const INK: RGBColor = RGBColor(0x10, 0x11, 0x12);
/// Lines behind the data.
pub const GRID: RGBColor = RGBColor(0xDA, 0xDB, 0xDC);
/// Series: ours, seven for others, and three that stand for ours again, for our
/// other backends: the page shows them in our own colour, and tells them apart by
/// dashes.
pub const COLOURS: [RGBColor; 11] = [
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0x00, 0x8F, 0x68),
    RGBColor(0xB3, 0x56, 0x8B),
    RGBColor(0x70, 0x70, 0x70),
    RGBColor(0x3E, 0x9B, 0xD0),
    RGBColor(0xA8, 0x7B, 0x00),
    RGBColor(0x5B, 0x3F, 0xA0),
    RGBColor(0xD5, 0x5E, 0x01),
    RGBColor(0xD5, 0x5E, 0x02),
    RGBColor(0xD5, 0x5E, 0x03),
];

/// How many of [`COLOURS`] are not our other backends'.
const OTHERS: usize = 8;

const WIDTH: u32 = 640;
const HEIGHT: u32 = 400;

/// A colour as the SVG writes it.
pub fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// A picture, before it is drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Plot {
    /// The experiment it belongs to.
    pub experiment: String,
    /// What it shows, in words.
    pub title: String,
    /// The bottom axis of lines; bars use it for the figure.
    pub x: Axis,
    /// The left axis of lines.
    pub y: Axis,
    /// Lines, or one bar for each series.
    pub bars: bool,
    /// What to draw, ours first.
    pub series: Vec<Series>,
    /// Places on the bottom axis to be marked, with what is there.
    pub marks: Vec<(f64, String)>,
}

/// One axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// What it counts, with the unit where the ticks do not show it.
    pub label: String,
    /// The unit of its values, as [`quantity`] takes it; or `bytes`.
    pub unit: String,
    /// Whether equal distances are equal factors.
    pub log: bool,
}

/// One line or one bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its index in [`COLOURS`].
    pub colour: usize,
    /// Whether it is ours, and so drawn strongest.
    pub ours: bool,
    /// By rising x.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// How strong its line is: ours is the strongest, and our other backends' are
    /// the thinnest.
    pub fn width(&self) -> u32 {
        match (self.ours, is_ours(&self.name)) {
            (true, _) => 4,
            (false, true) => 1,
            (false, false) => 2,
        }
    }
}

/// A question that a picture answers.
struct Spec {
    experiment: &'static str,
    metric: &'static str,
    /// What the picture is of.
    title: &'static str,
    /// The key along the bottom; none for bars.
    x: Option<&'static str>,
    /// One picture for each combination of these keys' values.
    facets: &'static [&'static str],
    /// Keys held at one value: this one, or the nearest there is.
    held: &'static [(&'static str, &'static str)],
    lines: Lines,
    y: Y,
    log_y: bool,
    /// Whether bars make sense where there is but one point along the bottom.
    or_bars: bool,
    /// Whose published figures are a line of their own: what their cases begin with.
    /// The rest of such a case has the key along the bottom.
    published: Option<&'static str>,
    /// The metric whose figure, for the same facets, is a place on the bottom axis.
    mark: Option<&'static str>,
}

/// What one line stands for.
#[derive(Clone, Copy, PartialEq)]
enum Lines {
    Implementations,
    /// Our own implementation at each value of a key.
    OursBy(&'static str),
}

/// How a row's figure becomes a height.
#[derive(Clone, Copy, PartialEq)]
enum Y {
    AsMeasured,
    /// Bytes of contents per second, from the time of one packet.
    Goodput,
    /// How many times as fast as the leftmost point of the line.
    SpeedUp,
    /// How many times as fast as this rival at the same case.
    Against(&'static str),
}

const fn spec(experiment: &'static str, metric: &'static str, title: &'static str) -> Spec {
    Spec {
        experiment,
        metric,
        title,
        x: None,
        facets: &[],
        held: &[],
        lines: Lines::Implementations,
        y: Y::AsMeasured,
        log_y: false,
        or_bars: true,
        published: None,
        mark: None,
    }
}

const SPECS: &[Spec] = &[
    Spec {
        x: Some("batch"),
        facets: &["profile"],
        held: &[("decoys", "0")],
        ..spec(
            "bip324.mixed",
            "packets_per_second",
            "Mixed traffic, seal and open",
        )
    },
    Spec {
        x: Some("decoys"),
        facets: &["profile"],
        held: &[("batch", "1024")],
        or_bars: false,
        ..spec(
            "bip324.mixed",
            "packets_per_second",
            "What decoys cost: packets that are none",
        )
    },
    Spec {
        x: Some("bytes"),
        facets: &["op"],
        held: &[("batch", "64")],
        y: Y::Goodput,
        log_y: true,
        ..spec(
            "bip324.packet",
            "time_per_packet",
            "Whole packets of one size",
        )
    },
    Spec {
        x: Some("batch"),
        facets: &["op"],
        lines: Lines::OursBy("bytes"),
        y: Y::SpeedUp,
        or_bars: false,
        ..spec(
            "bip324.packet",
            "time_per_packet",
            "What batching gains packetlane",
        )
    },
    Spec {
        x: Some("bytes"),
        facets: &["op"],
        log_y: true,
        ..spec(
            "bip324.alone",
            "time_per_packet",
            "One session, one packet at a time",
        )
    },
    Spec {
        x: Some("batch"),
        facets: &["profile"],
        log_y: true,
        ..spec(
            "bip324.latency",
            "time_per_batch",
            "How long a whole batch takes",
        )
    },
    Spec {
        x: Some("batch"),
        facets: &["profile"],
        log_y: true,
        ..spec(
            "bip324.latency",
            "time_per_packet",
            "The batch's time divided among its packets",
        )
    },
    Spec {
        x: Some("sessions"),
        facets: &["op", "order"],
        ..spec(
            "bip324.sessions",
            "time_per_packet",
            "One packet of each of many sessions",
        )
    },
    Spec {
        facets: &["step"],
        ..spec("bip324.handshake", "time", "Handshake")
    },
    Spec {
        x: Some("bytes"),
        facets: &["primitive"],
        log_y: true,
        ..spec("bip324.primitives", "time", "One part of the cipher")
    },
    Spec {
        x: Some("batch"),
        facets: &["bytes"],
        ..spec(
            "sha256d.many",
            "time_per_hash",
            "Double SHA-256 of many messages",
        )
    },
    Spec {
        x: Some("batch"),
        lines: Lines::OursBy("bytes"),
        y: Y::Against("sha2"),
        or_bars: false,
        ..spec(
            "sha256d.many",
            "time_per_hash",
            "What batching gains packetlane over sha2",
        )
    },
    Spec {
        x: Some("batch"),
        ..spec(
            "sha256d.d64",
            "time_per_hash",
            "Double SHA-256 of 64-byte inputs",
        )
    },
    Spec {
        x: Some("leaves"),
        log_y: true,
        ..spec("sha256d.merkle", "time", "Merkle root")
    },
    Spec {
        facets: &["part"],
        ..spec("sha256d.block", "time", "Hashes of a block")
    },
    Spec {
        x: Some("threads"),
        ..spec(
            "sha256d.files",
            "throughput",
            "Files of blocks, parsed and verified",
        )
    },
    Spec {
        x: Some("bytes"),
        facets: &["suite", "op"],
        held: &[("header_protection", "on"), ("batch", "16")],
        log_y: true,
        ..spec("quic.packet", "time_per_packet", "QUIC packet protection")
    },
    Spec {
        x: Some("bytes"),
        facets: &["suite"],
        or_bars: false,
        published: Some("WinQuic"),
        ..spec(
            "quic.mask",
            "overhead",
            "What header protection adds to sealing",
        )
    },
    Spec {
        x: Some("gbit"),
        facets: &["suite"],
        ..spec(
            "quic.link",
            "share_of_core",
            "Sealing all packets of a link, 1280 bytes each",
        )
    },
    Spec {
        facets: &["stage"],
        ..spec(
            "quic.send_path",
            "share",
            "Share of a quinn sender's CPU time",
        )
    },
    Spec {
        ..spec(
            "quic.send_path",
            "cpu_per_byte",
            "CPU time of a quinn sender",
        )
    },
    Spec {
        x: Some("bytes"),
        lines: Lines::OursBy("op"),
        ..spec(
            "gpu.kernel",
            "goodput",
            "The GPU's kernels alone, data resident",
        )
    },
    Spec {
        x: Some("batch"),
        facets: &["profile", "bytes"],
        log_y: true,
        mark: Some("crossover"),
        ..spec(
            "gpu.latency",
            "time_per_batch",
            "A batch to the GPU and back, and on the CPU",
        )
    },
    Spec {
        facets: &["op"],
        lines: Lines::OursBy("stage"),
        ..spec(
            "gpu.transfer",
            "share",
            "Where the time goes in one stream, %",
        )
    },
    Spec {
        x: Some("streams"),
        ..spec(
            "gpu.streams",
            "packets_per_second",
            "Several streams, host to host",
        )
    },
    Spec {
        x: Some("decoys"),
        lines: Lines::OursBy("data"),
        or_bars: false,
        ..spec(
            "gpu.decoys",
            "packets_per_second",
            "What decoys cost on the GPU: packets that are none",
        )
    },
    Spec {
        x: Some("batch"),
        lines: Lines::OursBy("data"),
        log_y: true,
        ..spec("gpu.batch", "packets_per_second", "Which batch is best")
    },
];

/// The pictures that the report's rows allow.
pub fn plots(report: &Report) -> Vec<Plot> {
    SPECS.iter().flat_map(|spec| fill(spec, report)).collect()
}

fn fill(spec: &Spec, report: &Report) -> Vec<Plot> {
    let rows: Vec<&Row> = report
        .rows
        .iter()
        .filter(|row| row.experiment == spec.experiment && row.metric == spec.metric)
        .filter(|row| spec.lines == Lines::Implementations || row.implementation == OURS)
        .collect();
    let facet = |row: &&Row| -> Vec<String> {
        let values = spec.facets.iter().map(|name| row.key(name));
        values.map(|value| value.unwrap_or("").to_owned()).collect()
    };
    distinct(rows.iter().map(facet))
        .into_iter()
        .filter_map(|values| {
            let rows = rows.iter().filter(|row| facet(row) == values);
            let mut plot = picture(spec, report, values.clone(), rows.copied().collect())?;
            plot.marks = marks(spec, report, &values);
            Some(plot)
        })
        .collect()
}

/// One picture, or none where there is nothing to compare.
fn picture(spec: &Spec, report: &Report, facet: Vec<String>, mut rows: Vec<&Row>) -> Option<Plot> {
    let mut conditions: Vec<String> = spec
        .facets
        .iter()
        .zip(facet)
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| condition(name, &value))
        .collect();
    for (name, wanted) in spec.held {
        let Some(value) = nearest(&rows, name, wanted) else {
            continue;
        };
        rows.retain(|row| row.key(name) == Some(&value));
        conditions.push(condition(name, &value));
    }

    let bottom = bottom_axis(spec);
    let line_of = |row: &Row| match spec.lines {
        Lines::Implementations => row.implementation.clone(),
        Lines::OursBy(name) => condition(name, row.key(name).unwrap_or("?")),
    };
    let unit = rows.first()?.unit.clone();
    let mut series: Vec<Series> = distinct(rows.iter().map(|row| line_of(row)))
        .into_iter()
        .map(|name| {
            let points = rows.iter().filter(|row| line_of(row) == name);
            let mut points: Vec<(f64, f64)> = points
                .filter_map(|row| {
                    let x = match spec.x {
                        Some(key) => row.key(key)?.parse().ok()?,
                        None => 0.0,
                    };
                    Some((x, height(spec, report, row, x)?))
                })
                // Nothing below or at zero has a place on a logarithmic axis.
                .filter(|(x, y)| y.is_finite() && *y > 0.0 && (*x > 0.0 || !bottom.log))
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            if spec.y == Y::SpeedUp && !points.is_empty() {
                let first = points[0].1;
                points
                    .iter_mut()
                    .for_each(|point| point.1 = first / point.1);
            }
            Series {
                ours: name == OURS,
                colour: 0,
                name,
                points,
            }
        })
        .filter(|series| !series.points.is_empty())
        .collect();
    series.extend(published_line(spec, report));
    series.sort_by_key(|series| (!series.ours, !is_ours(&series.name)));
    if spec.mark.is_some() {
        let others = series.iter_mut().filter(|line| !line.ours);
        others.for_each(|line| line.name = where_it_ran(&line.name));
    }
    paint(&mut series);
    if spec.mark.is_some() {
        let ours = series.iter_mut().filter(|line| line.ours);
        ours.for_each(|line| line.name = where_it_ran(&line.name));
    }

    let places = distinct(series.iter().flat_map(|line| &line.points).map(|p| p.0));
    let bars = places.len() < 2;
    if bars && (series.len() < 2 || !spec.or_bars) {
        return None;
    }
    if let (true, Some(name)) = (bars, spec.x) {
        conditions.push(condition(name, &places[0].to_string()));
    }
    let (label, unit) = match spec.y {
        Y::AsMeasured => (words(spec.metric), unit),
        Y::Goodput => ("contents per second".to_owned(), "MB/s".to_owned()),
        Y::SpeedUp => (
            format!("times as fast as with a batch of {}", places[0]),
            String::new(),
        ),
        Y::Against(rival) => (format!("times as fast as {rival}"), String::new()),
    };
    let log = if spec.log_y && !bars {
        " (log scale)"
    } else {
        ""
    };
    let figure = Axis {
        label: label + log,
        unit,
        log: spec.log_y && !bars,
    };
    let title = match conditions.is_empty() {
        true => spec.title.to_owned(),
        false => format!("{}: {}", spec.title, conditions.join(", ")),
    };
    Some(Plot {
        experiment: spec.experiment.to_owned(),
        title,
        x: if bars { figure.clone() } else { bottom },
        y: figure,
        bars,
        series,
        marks: Vec::new(),
    })
}

/// The name of a line where all of them are ours, some on a GPU and some on the CPU.
fn where_it_ran(implementation: &str) -> String {
    let rest = implementation.strip_prefix(OURS).unwrap_or(implementation);
    match rest.trim_start_matches('-') {
        "" => "GPU, page-locked memory".to_owned(),
        "cuda-plain" => "GPU, ordinary memory".to_owned(),
        backend => format!("CPU, one thread, {backend}"),
    }
}

/// The places that the report's figures mark in the picture of these facets.
fn marks(spec: &Spec, report: &Report, facet: &[String]) -> Vec<(f64, String)> {
    let Some(metric) = spec.mark else {
        return Vec::new();
    };
    let of_facet = |row: &&Row| {
        let mut keys = spec.facets.iter().zip(facet);
        row.experiment == spec.experiment
            && row.metric == metric
            && keys.all(|(name, value)| row.key(name).unwrap_or("") == value)
    };
    let rows = report.rows.iter().filter(of_facet);
    rows.map(|row| {
        let text = format!("{}: {}", words(metric), quantity(row.median, &row.unit));
        (row.median, text)
    })
    .collect()
}

/// The line of what somebody has published.
fn published_line(spec: &Spec, report: &Report) -> Option<Series> {
    let who = spec.published?;
    let of_them = report.published.iter().filter(|figure| {
        figure.experiment == spec.experiment
            && figure.metric == spec.metric
            && figure.case.starts_with(who)
    });
    let point = |figure: &Published| {
        let x = key(&figure.case, spec.x?)?.parse().ok()?;
        Some((x, figure.value))
    };
    let points: Vec<(f64, f64)> = of_them.filter_map(point).collect();
    (!points.is_empty()).then(|| Series {
        name: format!("{who}, published"),
        colour: 0,
        ours: false,
        points,
    })
}

fn height(spec: &Spec, report: &Report, row: &Row, x: f64) -> Option<f64> {
    Some(match spec.y {
        // Bytes per nanosecond are thousands of MB per second.
        Y::Goodput => x / row.median * 1000.0,
        Y::AsMeasured | Y::SpeedUp => row.median,
        Y::Against(rival) => report.ratio(row, rival)?.median,
    })
}

/// The value of `name` among the rows that is closest to the wanted one.
fn nearest(rows: &[&Row], name: &str, wanted: &str) -> Option<String> {
    let distance = |value: &str| match (value.parse::<f64>(), wanted.parse::<f64>()) {
        _ if value == wanted => 0.0,
        (Ok(value), Ok(wanted)) => ((value + 1.0) / (wanted + 1.0)).ln().abs(),
        _ => f64::MAX,
    };
    let values = rows.iter().filter_map(|row| row.key(name));
    values
        .min_by(|a, b| distance(a).total_cmp(&distance(b)))
        .map(str::to_owned)
}

/// A `key=value` in words.
fn condition(name: &str, value: &str) -> String {
    match (name, value) {
        ("bytes", _) => value.parse().map_or(value.to_owned(), bytes),
        ("batch", _) => format!("batch of {value}"),
        ("decoys", "0") => "no decoys".to_owned(),
        ("decoys", _) => format!("{value} % decoys"),
        ("sessions", _) => format!("{value} sessions"),
        ("order", "random") => "visited at random".to_owned(),
        ("order", "memory") => "visited as they lie".to_owned(),
        ("leaves", _) => format!("{value} leaves"),
        ("threads", "1") => "one thread".to_owned(),
        ("threads", _) => format!("{value} threads"),
        ("part", "all") => "txids, wtxids and trees".to_owned(),
        ("step", "create") => "create one side's key".to_owned(),
        ("step", "xdh") => "agree on the shared secret".to_owned(),
        ("step", "derive") => "derive the session keys".to_owned(),
        ("step", "both_sides") => "whole, both sides".to_owned(),
        ("gbit", _) => format!("{value} Gbit/s"),
        ("stage", "to_device") => "host to device".to_owned(),
        ("stage", "from_device") => "device to host".to_owned(),
        ("data", "travels") => "data travels".to_owned(),
        ("data", "resident") => "data resident".to_owned(),
        ("streams", _) => format!("{value} streams"),
        ("stage", "udp_send") => "UDP send".to_owned(),
        ("header_protection", "on") => "with header protection".to_owned(),
        ("header_protection", "off") => "without header protection".to_owned(),
        _ => words(value),
    }
}

fn bottom_axis(spec: &Spec) -> Axis {
    let name = spec.x.unwrap_or("");
    let (label, unit, log) = match name {
        "bytes" => ("length (log scale)", "bytes", true),
        "batch" if spec.experiment.starts_with("sha256d.") => {
            ("messages at a time (log scale)", "", true)
        }
        "batch" => ("packets in a batch (log scale)", "", true),
        "sessions" => ("sessions (log scale)", "", true),
        "decoys" => ("share of packets that are decoys, %", "", false),
        "leaves" => ("leaves (log scale)", "", true),
        "gbit" => ("Gbit/s of payload", "", false),
        "streams" => ("streams", "", false),
        _ => (name, "", false),
    };
    Axis {
        label: label.to_owned(),
        unit: unit.to_owned(),
        log,
    }
}

fn bytes(count: f64) -> String {
    const KIB: f64 = 1024.0;
    match count {
        c if c >= KIB * KIB && c % (KIB * KIB) == 0.0 => format!("{} MiB", c / KIB / KIB),
        c if c >= KIB && c % KIB == 0.0 => format!("{} KiB", c / KIB),
        c => format!("{c} B"),
    }
}

/// Gives the well-known names the same colour in every picture, and the others
/// what is left.
fn paint(series: &mut [Series]) {
    const KNOWN: [&str; 6] = [OURS, "ring", "rustcrypto", "bip324", "aws-lc-rs", "openssl"];
    let known = |name: &str| KNOWN.iter().position(|known| *known == name);
    let taken: Vec<usize> = series.iter().filter_map(|line| known(&line.name)).collect();
    let mut backends = (OTHERS..COLOURS.len()).cycle();
    // The first colour is ours alone, even where we have no line.
    let mut free = (1..OTHERS)
        .rev()
        .filter(|colour| !taken.contains(colour))
        .collect::<Vec<_>>()
        .into_iter()
        .cycle();
    for line in series {
        let rest: &mut dyn Iterator<Item = usize> = match is_ours(&line.name) {
            true => &mut backends,
            false => &mut free,
        };
        line.colour = known(&line.name).or_else(|| rest.next()).unwrap_or(0);
    }
}

/// Draws a plot as an SVG element for a page, without legend and title: those
/// are the page's, which can wrap them.
pub fn draw(plot: &Plot) -> String {
    let mut svg = String::new();
    let drawn = if plot.bars {
        draw_bars(plot, &mut svg)
    } else {
        draw_lines(plot, &mut svg)
    };
    drawn.expect("drawing into a string of fixed size does not fail");
    // Within HTML the element needs no namespace, and the page shall hold no
    // address that looks like a resource.
    svg.replace(" xmlns=\"http://www.w3.org/2000/svg\"", "")
        .replace("<?xml version=\"1.0\" encoding=\"UTF-8\"?>", "")
}

fn draw_lines(plot: &Plot, svg: &mut String) -> Result<(), Box<dyn Error>> {
    let points = || plot.series.iter().flat_map(|line| line.points.iter());
    let x = Scale::new(&plot.x, points().map(|p| p.0).collect(), true);
    let y = Scale::new(&plot.y, points().map(|p| p.1).collect(), false);
    let ticks = (x.ticks.len(), y.ticks.len());
    let y_ends = y.ends;
    let middle = match x.log {
        true => (x.ends.0 * x.ends.1).sqrt(),
        false => f64::midpoint(x.ends.0, x.ends.1),
    };

    let area = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
    let text = ("sans-serif", 19).into_font().color(&INK);
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .margin_right(30)
        .x_label_area_size(54)
        .y_label_area_size(104)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .x_labels(ticks.0)
        .y_labels(ticks.1)
        .max_light_lines(0)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(text.clone())
        .axis_desc_style(text)
        .x_desc(&plot.x.label)
        .y_desc(&plot.y.label)
        .x_label_formatter(&|at| tick(*at, &plot.x.unit))
        .y_label_formatter(&|at| tick(*at, &plot.y.unit))
        .draw()?;
    // Ours comes first in the legend and last on the paper, on top.
    for line in plot.series.iter().rev() {
        let colour = COLOURS[line.colour % COLOURS.len()];
        let width = line.width();
        chart.draw_series(LineSeries::new(
            line.points.iter().copied(),
            colour.stroke_width(width),
        ))?;
        let radius = width + 1;
        let dots = line.points.iter();
        chart.draw_series(dots.map(|at| Circle::new(*at, radius, colour.filled())))?;
    }
    for (at, text) in &plot.marks {
        let (low, high) = y_ends;
        let line = [(*at, low), (*at, high)];
        chart.draw_series(LineSeries::new(line, INK.stroke_width(1)))?;
        // On the side where there is room.
        let side = match middle {
            middle if *at > middle => HPos::Right,
            _ => HPos::Left,
        };
        let font = ("sans-serif", 17).into_font().color(&INK);
        let style = font.pos(Pos::new(side, VPos::Top));
        chart.draw_series([Text::new(format!(" {text} "), (*at, high), style)])?;
    }
    area.present()?;
    Ok(())
}

fn draw_bars(plot: &Plot, svg: &mut String) -> Result<(), Box<dyn Error>> {
    const BAR: u32 = 34;
    const LETTER: i32 = 10;
    const FIGURES: i32 = 170;
    let count = plot.series.len() as u32;
    let area = SVGBackend::with_string(svg, (WIDTH, count * BAR + 16)).into_drawing_area();
    let names = plot.series.iter().map(|line| line.name.len() as i32);
    let names = (names.max().unwrap_or(0) * LETTER + 10).max(150);
    let figure = |line: &Series| line.points[0].1;
    let longest = plot.series.iter().map(figure).fold(0.0, f64::max);
    let room = f64::from(WIDTH as i32 - names - FIGURES);
    let text = |horizontal| {
        let font = ("sans-serif", 19).into_font().color(&INK);
        font.pos(Pos::new(horizontal, VPos::Center))
    };
    for (line, row) in plot.series.iter().zip(0..) {
        let top = 8 + row * BAR as i32;
        let middle = top + BAR as i32 / 2;
        let end = names + (figure(line) / longest * room) as i32;
        let colour = COLOURS[line.colour % COLOURS.len()];
        let half = if line.ours { 12 } else { 8 };
        area.draw(&Text::new(
            line.name.clone(),
            (names - 10, middle),
            text(HPos::Right),
        ))?;
        area.draw(&Rectangle::new(
            [(names, middle - half), (end.max(names + 1), middle + half)],
            colour.filled(),
        ))?;
        area.draw(&Text::new(
            quantity(figure(line), &plot.x.unit),
            (end + 8, middle),
            text(HPos::Left),
        ))?;
    }
    area.present()?;
    Ok(())
}

/// An axis as the drawing library sees it. Its own logarithmic axis chooses
/// ticks at powers of ten only; ours also lie at the batch sizes that were run.
struct Scale {
    log: bool,
    ends: (f64, f64),
    ticks: Vec<f64>,
}

impl Scale {
    /// An axis that holds these values; an `exact` one has its ticks at them
    /// where there is room, and no margins.
    fn new(axis: &Axis, mut values: Vec<f64>, exact: bool) -> Self {
        values.sort_by(f64::total_cmp);
        values.dedup();
        let least = values.first().copied().unwrap_or(1.0);
        let most = values.last().copied().unwrap_or(10.0);
        let margin = match (exact, axis.log) {
            (true, _) => 1.0,
            (false, true) => (most / least).powf(0.04).max(1.1),
            (false, false) => 1.08,
        };
        let ends = match axis.log {
            true => (least / margin, most * margin),
            false => (0.0, most * margin),
        };
        let ticks = match (exact, axis.log) {
            (true, true) => values,
            (true, false) if values.len() <= 8 => values,
            (_, true) => round_factors(ends),
            (_, false) => {
                let step = round_step(ends.1 / 6.0);
                (0..=6).map(|n| f64::from(n) * step).collect()
            }
        };
        let mut scale = Self {
            log: axis.log,
            ends,
            ticks: Vec::new(),
        };
        let inside = ticks
            .into_iter()
            .filter(|at| (ends.0..=ends.1).contains(at));
        scale.ticks = thinned(inside.collect(), |at| scale.share(at));
        scale
    }

    /// How far along the axis a value lies, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        let (low, high) = self.ends;
        match self.log {
            true => (value / low).ln() / (high / low).ln(),
            false => (value - low) / (high - low),
        }
    }
}

impl Ranged for Scale {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        limit.0 + (self.share(*value) * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.ends.0..self.ends.1
    }
}

/// Round numbers between the ends, the more to a decade the fewer decades.
fn round_factors(ends: (f64, f64)) -> Vec<f64> {
    let factors: &[f64] = match (ends.1 / ends.0).log10() {
        decades if decades < 1.2 => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
        decades if decades < 2.5 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    let decades = (ends.0.log10().floor() as i32)..=(ends.1.log10().ceil() as i32);
    decades
        .flat_map(|decade| factors.iter().map(move |f| f * 10f64.powi(decade)))
        .collect()
}

/// Drops ticks whose labels would touch, keeping the first and the last.
fn thinned(ticks: Vec<f64>, share: impl Fn(f64) -> f64) -> Vec<f64> {
    const ROOM: f64 = 0.09;
    let Some(&last) = ticks.last() else {
        return ticks;
    };
    let mut kept: Vec<f64> = Vec::new();
    for at in ticks {
        let clear = kept
            .last()
            .is_none_or(|before| share(at) - share(*before) >= ROOM);
        if at == last && !clear && kept.len() > 1 {
            kept.pop();
        }
        if at == last || clear {
            kept.push(at);
        }
    }
    kept
}

/// The next of 1, 2, 5, 10, 20 ... that is not below `step`.
fn round_step(step: f64) -> f64 {
    let decade = 10f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|f| f * decade >= step);
    factor.unwrap_or(10.0) * decade
}

/// A tick's label: the quantity without zeros behind the point.
fn tick(value: f64, unit: &str) -> String {
    if unit == "bytes" {
        return bytes(value.round());
    }
    let text = bare(quantity(value, unit), unit);
    let (number, rest) = text.split_once(' ').unwrap_or((&text, ""));
    let number = if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        number
    };
    format!("{number} {rest}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_apart() {
        let axis = Axis {
            label: String::new(),
            unit: "ns".into(),
            log: true,
        };
        let scale = Scale::new(&axis, vec![30.0, 3.0e6], false);
        assert!(scale.ends.0 < 30.0 && scale.ends.1 > 3e6);
        assert_eq!(scale.ticks, [1e2, 1e3, 1e4, 1e5, 1e6]);
        let powers: Vec<f64> = (0..=14).map(|n| f64::from(1 << n)).collect();
        let ticks = Scale::new(&axis, powers, true).ticks;
        assert!((5..=11).contains(&ticks.len()));
        assert_eq!((ticks[0], ticks[ticks.len() - 1]), (1.0, 16384.0));
        assert_eq!(tick(100.0, "ns"), "100 ns");
        assert_eq!(tick(2e6, "packets/s"), "2 M");
        assert_eq!(tick(16384.0, "bytes"), "16 KiB");
        assert_eq!(tick(0.0, ""), "0");
        assert_eq!(round_step(0.3), 0.5);
        assert_eq!(round_step(700.0), 1000.0);
    }

    #[test]
    fn colours_do_not_repeat_within_a_plot() {
        let names = [
            OURS,
            "packetlane-avx2",
            "zebra",
            "ring",
            "yak",
            "bip324",
            "x-ray",
            "packetlane-portable",
        ];
        let mut series: Vec<Series> = names
            .iter()
            .map(|name| Series {
                name: (*name).into(),
                colour: 0,
                ours: *name == OURS,
                points: vec![],
            })
            .collect();
        paint(&mut series);
        let colours: Vec<usize> = series.iter().map(|line| line.colour).collect();
        assert_eq!(distinct(colours.clone()), colours);
        assert_eq!([0, 1, 3, 7].map(|place| colours[place]), [0, 8, 1, 9]);
    }
}
