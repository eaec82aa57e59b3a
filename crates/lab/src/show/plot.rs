//! The plots of a report: the pictures of its experiments, filled with its rows.
//!
//! If a run has only one value on the bottom axis (`--quick`, or a filter), bars replace lines.
//! [`super::draw`] draws the plots.
//!
//! The SVG uses exactly the colours [`INK`], [`GRID`] and [`COLOURS`]. The page's style sheet
//! replaces them, so one drawing serves light and dark screens. Colour-blind readers can
//! distinguish the eight hues (after Okabe and Ito), and the page also gives each its own dash
//! pattern.

use crate::experiment::Experiment;
use crate::experiments::ALL;
use crate::picture::{Bottom, Lines, Picture, Y};
use crate::quantity::{bytes, quantity, words};
use crate::report::{OURS, Published, Report, Row, distinct, is_ours, key};
use plotters::style::RGBColor;

/// Axes and text.
pub const INK: RGBColor = RGBColor(0x10, 0x11, 0x12);
/// Lines behind the data.
pub const GRID: RGBColor = RGBColor(0xDA, 0xDB, 0xDC);
/// Series: ours, seven for others, and three for our other backends. The page shows the last three
/// in our own colour with different dash patterns.
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

/// Number of [`COLOURS`] that are not for our other backends.
const OTHERS: usize = 8;

/// Suffix of the label of a logarithmic axis.
const LOG: &str = " (log scale)";

/// A colour in the SVG's notation.
pub fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// A picture before it is drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Plot {
    /// The experiment it belongs to.
    pub experiment: String,
    /// The title.
    pub title: String,
    /// The bottom axis of lines. Bars use it for the figure.
    pub x: Axis,
    /// The left axis of lines.
    pub y: Axis,
    /// Whether to draw a bar for each series instead of a line.
    pub bars: bool,
    /// The series, ours first.
    pub series: Vec<Series>,
    /// Positions on the bottom axis to mark, with their labels.
    pub marks: Vec<(f64, String)>,
}

/// One axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// The label, with the unit if the ticks do not show it.
    pub label: String,
    /// The unit of its values, such as `ns` or `bytes`.
    pub unit: String,
    /// Whether the scale is logarithmic.
    pub log: bool,
}

/// One line or one bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its index in [`COLOURS`].
    pub colour: usize,
    /// Whether it is ours, and so drawn most strongly.
    pub ours: bool,
    /// By increasing x.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// The width of its line: ours is the widest, those of our other backends are the thinnest.
    pub fn width(&self) -> u32 {
        match (self.ours, is_ours(&self.name)) {
            (true, _) => 4,
            (false, true) => 1,
            (false, false) => 2,
        }
    }
}

/// The pictures that the report's rows allow.
pub fn plots(report: &Report) -> Vec<Plot> {
    let pictures = |experiment: &&'static Experiment| {
        let pictures = experiment.pictures.iter();
        let experiment = *experiment;
        pictures.flat_map(move |picture| fill(experiment, picture, report))
    };
    ALL.iter().flat_map(pictures).collect()
}

fn fill(experiment: &Experiment, spec: &Picture, report: &Report) -> Vec<Plot> {
    let rows: Vec<&Row> = report
        .rows
        .iter()
        .filter(|row| row.experiment == experiment.name && row.metric == spec.metric)
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
            let rows = rows.copied().collect();
            let mut plot = picture(experiment, spec, report, values.clone(), rows)?;
            plot.marks = marks(experiment, spec, report, &values);
            Some(plot)
        })
        .collect()
}

/// One picture, or `None` if there is nothing to compare.
fn picture(
    experiment: &Experiment,
    spec: &Picture,
    report: &Report,
    facet: Vec<String>,
    mut rows: Vec<&Row>,
) -> Option<Plot> {
    let condition = |name: &str, value: &str| {
        let own = (experiment.words)(name, value);
        own.unwrap_or_else(|| condition(name, value))
    };
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
                        Some(Bottom { key, .. }) => row.key(key)?.parse().ok()?,
                        None => 0.0,
                    };
                    Some((x, height(spec, report, row, x)?))
                })
                // A logarithmic axis has no place for zero or less.
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
    series.extend(published_line(experiment, spec, report));
    series.sort_by_key(|series| (!series.ours, !is_ours(&series.name)));
    // Colours depend on the legend's names, but ours always has its own.
    let rename = |series: &mut [Series], ours: bool| {
        let Some(rename) = spec.rename else { return };
        let lines = series.iter_mut().filter(|line| line.ours == ours);
        lines.for_each(|line| line.name = rename(&line.name));
    };
    rename(&mut series, false);
    paint(&mut series);
    rename(&mut series, true);

    let places = distinct(series.iter().flat_map(|line| &line.points).map(|p| p.0));
    let bars = places.len() < 2;
    if bars && (series.len() < 2 || !spec.or_bars) {
        return None;
    }
    if let (true, Some(x)) = (bars, spec.x) {
        conditions.push(condition(x.key, &places[0].to_string()));
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
    let log = if spec.log_y && !bars { LOG } else { "" };
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
        experiment: experiment.name.to_owned(),
        title,
        x: if bars { figure.clone() } else { bottom },
        y: figure,
        bars,
        series,
        marks: Vec::new(),
    })
}

/// The positions that the report's figures mark in the picture of these facets.
fn marks(
    experiment: &Experiment,
    spec: &Picture,
    report: &Report,
    facet: &[String],
) -> Vec<(f64, String)> {
    let Some(metric) = spec.mark else {
        return Vec::new();
    };
    let of_facet = |row: &&Row| {
        let mut keys = spec.facets.iter().zip(facet);
        row.experiment == experiment.name
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

/// The line of published figures.
fn published_line(experiment: &Experiment, spec: &Picture, report: &Report) -> Option<Series> {
    let who = spec.published?;
    let of_them = report.published.iter().filter(|figure| {
        figure.experiment == experiment.name
            && figure.metric == spec.metric
            && figure.case.starts_with(who)
    });
    let point = |figure: &Published| {
        let x = key(&figure.case, spec.x?.key)?.parse().ok()?;
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

fn height(spec: &Picture, report: &Report, row: &Row, x: f64) -> Option<f64> {
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

/// A `key=value` in words, unless its experiment has its own words.
fn condition(name: &str, value: &str) -> String {
    match (name, value) {
        ("bytes", _) => value.parse().map_or(value.to_owned(), bytes),
        ("batch", _) => format!("batch of {value}"),
        ("decoys", "0") => "no decoys".to_owned(),
        ("decoys", _) => format!("{value} % decoys"),
        ("threads", "1") => "one thread".to_owned(),
        ("threads", _) => format!("{value} threads"),
        _ => words(value),
    }
}

fn bottom_axis(spec: &Picture) -> Axis {
    let bottom = spec.x.unwrap_or(Bottom::linear("", ""));
    let log = if bottom.log { LOG } else { "" };
    Axis {
        label: format!("{}{log}", bottom.label),
        unit: bottom.unit.to_owned(),
        log: bottom.log,
    }
}

/// Gives well-known names the same colour in every picture, and the others the remaining colours.
fn paint(series: &mut [Series]) {
    const KNOWN: [&str; 6] = [OURS, "ring", "rustcrypto", "bip324", "aws-lc-rs", "openssl"];
    let known = |name: &str| KNOWN.iter().position(|known| *known == name);
    let taken: Vec<usize> = series.iter().filter_map(|line| known(&line.name)).collect();
    let mut backends = (OTHERS..COLOURS.len()).cycle();
    // The first colour is only for ours, even in a plot without ours.
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

#[cfg(test)]
mod tests {
    use super::*;

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
