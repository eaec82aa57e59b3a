//! Published figures with numbered sources and lettered caveats.

use crate::report::{Published, distinct};

/// The note above the published figures.
pub const PUBLISHED_NOTE: &str = "What others state about their programs, and earlier \
                                  measurements of ours, all on other machines. Read the caveats \
                                  before you compare.";

/// Published figures. Sources are numbered and caveats lettered, because many figures share them.
/// Each sentence of a caveat is a separate note.
pub struct Notes<'a> {
    /// The figures with their notes.
    pub figures: Vec<Noted<'a>>,
    /// The distinct sources.
    pub sources: Vec<&'a str>,
    /// The distinct sentences of the caveats.
    pub caveats: Vec<&'a str>,
}

/// A published figure, and the positions of its notes in the lists of [`Notes`].
pub struct Noted<'a> {
    /// The figure.
    pub figure: &'a Published,
    /// The number of its source, starting at 1.
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

    /// The letter of the caveat at an index: a, b, c, ...
    pub fn letter(index: usize) -> char {
        (b'a' + (index % 26) as u8) as char
    }
}
