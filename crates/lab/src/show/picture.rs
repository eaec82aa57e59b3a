//! The picture that represents a whole report, as an SVG file with title and legend.

use super::draw::{WIDTH, draw, height};
use super::html::{dashes, escape};
use super::plot::{COLOURS, INK, Plot, hex, plots};
use crate::experiments::FACE;
use crate::report::Report;

/// The height of a line of text.
const LINE: u32 = 24;

/// Assumed width of a letter, since the viewer chooses the font.
const LETTER: u32 = 9;

/// The picture of a report, in light colours on white for any SVG viewer. `None` if the report's
/// rows allow no picture.
pub fn render(report: &Report) -> Option<String> {
    let mut plots = plots(report);
    let face = plots.iter().position(|plot| plot.experiment == FACE.name);
    let plot = (!plots.is_empty()).then(|| plots.swap_remove(face.unwrap_or(0)))?;

    let ink = hex(INK);
    let mut text = String::new();
    let mut write = |line: u32, weight: u32, words: &str| {
        text += &format!(
            "<text x=\"12\" y=\"{}\" font-weight=\"{weight}\" fill=\"{ink}\">{}</text>\n",
            line * LINE,
            escape(words)
        );
    };
    write(1, 600, &plot.title);
    write(2, 400, report.machine.title());
    let (legend, lines) = legend(&plot);
    let top = (2 + lines) * LINE + LINE / 2;

    let place = format!("<svg x=\"0\" y=\"{top}\" ");
    Some(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {all}\" width=\"{WIDTH}\" \
         height=\"{all}\">\n<style>{}svg text {{ font-family: system-ui, sans-serif; }}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#FFFFFF\"/>\n{text}{legend}{}\n</svg>\n",
        dashes(),
        draw(&plot).trim().replacen("<svg ", &place, 1),
        all = top + height(&plot),
    ))
}

/// The legend below the two title lines, and its number of lines. Bars are labelled directly.
fn legend(plot: &Plot) -> (String, u32) {
    const SWATCH: u32 = 34;
    let mut text = String::new();
    let (mut line, mut x) = (1, 12);
    let series = plot.series.iter().filter(|_| !plot.bars);
    for series in series {
        let wide = SWATCH + 8 + series.name.len() as u32 * LETTER;
        if x + wide > WIDTH && x > 12 {
            (line, x) = (line + 1, 12);
        }
        let y = (2 + line) * LINE;
        let (middle, end) = (y - 6, x + SWATCH);
        text += &format!(
            "<polyline points=\"{x},{middle} {end},{middle}\" stroke=\"{}\" stroke-width=\"{}\"/>\
             <text x=\"{}\" y=\"{y}\" fill=\"{}\">{}</text>\n",
            hex(COLOURS[series.colour % COLOURS.len()]),
            series.width(),
            end + 6,
            hex(INK),
            escape(&series.name),
        );
        x += wide + 12;
    }
    (text, if plot.bars { 0 } else { line })
}
