//! Draws a plot as SVG, independent of experiments.

use super::plot::{Axis, COLOURS, GRID, INK, Plot, Series};
use crate::quantity::{bare, bytes, quantity};
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::error::Error;

/// The width of every drawing.
pub(crate) const WIDTH: u32 = 640;
const HEIGHT: u32 = 400;
/// The height of a bar, including the space around it.
const BAR: u32 = 34;

/// Draws a plot as an SVG element for a page, without legend and title, which the page shows
/// because it can wrap them.
pub fn draw(plot: &Plot) -> String {
    let mut svg = String::new();
    let drawn = if plot.bars {
        draw_bars(plot, &mut svg)
    } else {
        draw_lines(plot, &mut svg)
    };
    drawn.expect("drawing into a string of fixed size does not fail");
    // Within HTML, the element needs no namespace. Without it, the page contains no address that
    // looks like a resource.
    svg.replace(" xmlns=\"http://www.w3.org/2000/svg\"", "")
        .replace("<?xml version=\"1.0\" encoding=\"UTF-8\"?>", "")
}

/// The height of a plot's drawing.
pub(crate) fn height(plot: &Plot) -> u32 {
    match plot.bars {
        true => plot.series.len() as u32 * BAR + 16,
        false => HEIGHT,
    }
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
        .x_label_formatter(&|at| tick(*at, &plot.x))
        .y_label_formatter(&|at| tick(*at, &plot.y))
        .draw()?;
    // Ours is first in the legend and drawn last, on top.
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
        // On the side with more room.
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
    const LETTER: i32 = 10;
    const FIGURES: i32 = 170;
    let area = SVGBackend::with_string(svg, (WIDTH, height(plot))).into_drawing_area();
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

/// An axis for the drawing library. The library's own logarithmic axis has ticks only at powers of
/// ten; this one also has them at the measured values.
struct Scale {
    log: bool,
    ends: (f64, f64),
    ticks: Vec<f64>,
}

impl Scale {
    /// An axis for these values. If `exact`, it has ticks at the values where there is room, and no
    /// margins.
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

    /// The position of a value along the axis, from 0 to 1.
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

/// Round numbers between the ends. The fewer decades, the more numbers in each.
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

/// Drops ticks whose labels would overlap, keeping the first and the last.
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

/// The smallest of 1, 2, 5, 10, 20, ... that is at least `step`.
fn round_step(step: f64) -> f64 {
    let decade = 10f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|f| f * decade >= step);
    factor.unwrap_or(10.0) * decade
}

/// A tick's label: without trailing zeros, and without a unit that the axis shows.
fn tick(value: f64, axis: &Axis) -> String {
    let unit = &*axis.unit;
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
    if rest == unit && axis.label.split(' ').any(|word| word == unit) {
        return number.to_owned();
    }
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
        let of = |label: &str, unit: &str| Axis {
            label: label.into(),
            unit: unit.into(),
            log: true,
        };
        assert_eq!(tick(100.0, &of("", "ns")), "100 ns");
        assert_eq!(tick(100.0, &of("transactions", "ns")), "100 ns");
        assert_eq!(tick(100.0, &of("", "packets")), "100 packets");
        assert_eq!(
            tick(100.0, &of("packets p99 (log scale)", "packets")),
            "100"
        );
        assert_eq!(tick(2e6, &of("packets/s", "packets/s")), "2 M");
        assert_eq!(tick(16384.0, &of("", "bytes")), "16 KiB");
        assert_eq!(tick(0.0, &of("", "")), "0");
        assert_eq!(round_step(0.3), 0.5);
        assert_eq!(round_step(700.0), 1000.0);
    }
}
