//! The charts, as SVG elements for the page. Colours are CSS classes, so that one drawing serves
//! light and dark screens.

use super::time;
use crate::report::{Report, TimePoint, TypeRow};
use std::fmt::Write;

const WIDTH: f64 = 900.0;

/// Ticks of a linear axis from 0: multiples of 1, 2 or 5 times a power of ten, four to nine of
/// them.
fn ticks(max: f64) -> Vec<f64> {
    if max.is_nan() || max <= 0.0 {
        return vec![0.0];
    }
    let decade = 10_f64.powf((max / 8.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * decade);
    let step = steps.into_iter().find(|step| max / step <= 8.0);
    let step = step.unwrap_or(max);
    let count = (max / step) as usize;
    (0..=count).map(|tick| tick as f64 * step).collect()
}

/// Chart of the CPU time of all peers and of the message thread over time.
pub(super) fn time_line(report: &Report) -> Option<String> {
    const HEIGHT: f64 = 300.0;
    const LEFT: f64 = 70.0;
    const BOTTOM: f64 = 46.0;
    const TOP: f64 = 12.0;
    let points = &report.time_line;
    let end = points.last()?.seconds;
    let most = points
        .iter()
        .flat_map(|point| [point.peers, point.thread])
        .flatten()
        .fold(0.0, f64::max);
    if most <= 0.0 || end <= 0.0 {
        return None;
    }
    let x = |seconds: f64| LEFT + seconds / end * (WIDTH - LEFT - 12.0);
    let y = |us: f64| HEIGHT - BOTTOM - us / most * (HEIGHT - BOTTOM - TOP);
    let mut svg = open(HEIGHT, "CPU time per second of all peers, over time");
    for tick in ticks(most) {
        let at = y(tick);
        let label = if tick > 0.0 { time(tick) } else { "0".into() };
        let right = WIDTH - 12.0;
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            LEFT - 6.0,
            at + 4.0,
        );
    }
    let (scale, unit) = match end {
        end if end >= 3.0 * 86_400.0 => (86_400.0, "days"),
        end if end >= 3.0 * 3600.0 => (3600.0, "hours"),
        end if end >= 180.0 => (60.0, "minutes"),
        _ => (1.0, "seconds"),
    };
    for tick in ticks(end / scale) {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{tick:.0}</text>",
            x(tick * scale),
            HEIGHT - BOTTOM + 18.0,
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{unit} since the start</text>",
        f64::midpoint(LEFT, WIDTH),
        HEIGHT - 6.0,
    );
    let of_thread = |point: &TimePoint| point.thread;
    let of_peers = |point: &TimePoint| point.peers;
    path(&mut svg, "peers", points, of_peers, &x, &y);
    path(&mut svg, "thread", points, of_thread, &x, &y);
    svg += "</svg>";
    Some(svg)
}

/// A line, interrupted where nothing was observed for unusually long.
fn path(
    svg: &mut String,
    class: &str,
    points: &[TimePoint],
    of: impl Fn(&TimePoint) -> Option<f64>,
    x: &impl Fn(f64) -> f64,
    y: &impl Fn(f64) -> f64,
) {
    // A sampling source leaves points out regularly.
    const GAP: usize = 12;
    let mut line = String::new();
    let mut missing = GAP;
    for point in points {
        let Some(value) = of(point) else {
            missing += 1;
            continue;
        };
        let step = if missing >= GAP { 'M' } else { 'L' };
        missing = 0;
        let _ = write!(line, "{step}{:.1} {:.1}", x(point.seconds), y(value));
    }
    if !line.is_empty() {
        let _ = writeln!(svg, "<path class=\"line {class}\" d=\"{line}\"/>");
    }
}

/// A boxen plot with a row of nested boxes for each message type: the innermost holds the middle
/// half of the values, the next pair half of the rest on each side, and so on. A line marks the
/// median.
pub(super) fn boxen(rows: &[&TypeRow], ends: (f64, f64)) -> String {
    const ROW: f64 = 34.0;
    const LEFT: f64 = 150.0;
    const RIGHT: f64 = 90.0;
    const BOTTOM: f64 = 46.0;
    let height = rows.len() as f64 * ROW + BOTTOM + 6.0;
    let (low, high) = (ends.0.max(0.001).log10(), ends.1.max(0.002).log10());
    let x = |us: f64| {
        let share = (us.max(0.001).log10() - low) / (high - low);
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    };
    let mut svg = open(height, "CPU time of processing a message, by type");
    for decade in (low.floor() as i32)..=(high.ceil() as i32) {
        for factor in [1.0, 2.0, 5.0] {
            let tick = factor * 10_f64.powi(decade);
            if tick.log10() < low || tick.log10() > high || (factor > 1.0 && high - low > 3.0) {
                continue;
            }
            let at = x(tick);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"4\" y2=\"{:.1}\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                height - BOTTOM,
                height - BOTTOM + 18.0,
                time(tick).replace(".00", "").replace(".0 ", " "),
            );
        }
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">CPU time to process one (log \
         scale)</text>",
        f64::midpoint(LEFT, WIDTH - RIGHT),
        height - 6.0,
    );
    for (row, place) in rows.iter().zip(0..) {
        let middle = 6.0 + (f64::from(place) + 0.5) * ROW;
        let letters = &row.letters;
        let count = letters.len();
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            middle + 4.0,
            super::escape(&row.message_type),
        );
        if let Some(cpu) = &row.cpu {
            // The maximum, beyond the boxes.
            let _ = writeln!(
                svg,
                "<circle class=\"worst\" cx=\"{:.1}\" cy=\"{middle:.1}\" r=\"2.5\"/>\
                 <text class=\"soft\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x(cpu.worst),
                WIDTH - RIGHT + 8.0,
                middle + 4.0,
                super::or_dash(row.count, |count| count.to_string()),
            );
        }
        // Outermost pair first, so that the inner boxes are drawn on top.
        for pair in 0..count / 2 {
            let (from, to) = (x(letters[pair].1), x(letters[count - 1 - pair].1));
            let depth = count / 2 - pair;
            let half = 12.0 * 0.72_f64.powi(depth as i32 - 1);
            let _ = writeln!(
                svg,
                "<rect class=\"box b{}\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" \
                 height=\"{:.1}\"/>",
                depth.min(6),
                middle - half,
                (to - from).max(1.0),
                2.0 * half,
            );
        }
        if let Some((_, median)) = letters.get(count / 2) {
            let at = x(*median);
            let _ = writeln!(
                svg,
                "<line class=\"median\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
                middle - 13.0,
                middle + 13.0,
            );
        }
    }
    svg += "</svg>";
    svg
}

fn open(height: f64, label: &str) -> String {
    format!("<svg role=\"img\" aria-label=\"{label}\" viewBox=\"0 0 {WIDTH} {height}\">\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(ticks(10.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(0.0), [0.0]);
        for max in [1e-3, 0.7, 3.0, 99.0, 12_345.0, 1e9] {
            let count = ticks(max).len();
            assert!((4..=9).contains(&count), "{max}: {count}");
        }
    }
}
