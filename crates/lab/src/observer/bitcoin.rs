//! "This connection is Bitcoin's."

use super::background::{self, MODELS};
use super::boost::Classifier;
use super::score::Score;
use super::wire::{Observed, Segment};
use std::sync::LazyLock;

/// A connection is judged by so many seconds of it. Longer than the half hour that one of the
/// detectors asks for.
const PIECE: u64 = 2000;

/// Segments at the beginning by which a connection is judged.
const FIRST: usize = 12;

/// A part of a connection.
pub(crate) struct Piece<'a> {
    segments: &'a [Segment],
    /// The beginning, in microseconds.
    start: u64,
    is_bitcoin: bool,
    /// When blocks were found anywhere, in microseconds since the beginning of the recording.
    blocks: &'a [u64],
}

/// Connections of all models, about as long together as those in the recording.
pub(crate) fn others() -> &'static [Observed] {
    static OTHERS: LazyLock<Vec<Observed>> = LazyLock::new(|| {
        let connections = MODELS.iter().flat_map(|model| {
            (0..4).map(move |number| background::connection(model, 5 * PIECE, number))
        });
        connections.collect()
    });
    &OTHERS
}

/// The parts of all connections.
pub(crate) fn pieces<'a>(
    bitcoin: &'a [Observed],
    others: &'a [Observed],
    blocks: &'a [u64],
) -> Vec<Piece<'a>> {
    let all = bitcoin.iter().map(|observed| (observed, true));
    let all = all.chain(others.iter().map(|observed| (observed, false)));
    let pieces = all.flat_map(|(observed, is_bitcoin)| {
        (0..observed.seconds() / PIECE).map(move |number| Piece {
            segments: observed.part(number * PIECE..(number + 1) * PIECE),
            start: observed.span.0 + number * PIECE * 1_000_000,
            is_bitcoin,
            blocks,
        })
    });
    pieces.collect()
}

/// The score of a detector that has been trained on every other piece and answers for the rest.
fn score(pieces: &[Piece<'_>], mut detect: impl FnMut(&Piece<'_>) -> bool) -> Score {
    let mut score = Score::default();
    for piece in pieces.iter().skip(1).step_by(2) {
        score.add(piece.is_bitcoin, detect(piece));
    }
    score
}

/// Three of four: longer than half an hour (as all pieces are), about as many bytes in both
/// directions, a burst every ten minutes or so, and lengths that are Bitcoin's.
pub(crate) fn score_of_four(pieces: &[Piece<'_>]) -> Score {
    score(pieces, |piece| {
        let points = [
            true,
            piece.is_balanced(),
            piece.has_bursts(),
            piece.has_lengths(),
        ];
        points.iter().filter(|point| **point).count() >= 3
    })
}

/// Bytes in the ten seconds after the blocks that the whole network sees, against those at other
/// times. The bound is the one that is right most often in training.
pub(crate) fn correlation(pieces: &[Piece<'_>]) -> Score {
    let value = |piece: &Piece<'_>| piece.correlation();
    let training: Vec<_> = pieces
        .iter()
        .step_by(2)
        .map(|piece| (value(piece), piece.is_bitcoin))
        .collect();
    let right = |bound: f64| {
        training
            .iter()
            .filter(|(value, is)| (*value > bound) == *is)
            .count()
    };
    let bounds = training.iter().map(|(value, _)| *value);
    let bound = bounds.max_by_key(|bound| right(*bound)).unwrap_or(0.0);
    score(pieces, |piece| value(piece) > bound)
}

/// A classifier of pieces.
pub(crate) fn classifier(pieces: &[Piece<'_>]) -> Score {
    let features: Vec<_> = pieces.iter().step_by(2).map(Piece::features).collect();
    let answers: Vec<_> = pieces
        .iter()
        .step_by(2)
        .map(|piece| piece.is_bitcoin)
        .collect();
    let classifier = Classifier::train(&features, &answers);
    score(pieces, |piece| classifier.score(&piece.features()) > 0.0)
}

/// The beginnings of so many connections of all models, each model twice in a row: one is trained on,
/// the other judged.
pub(crate) fn other_beginnings(number: usize) -> Vec<Observed> {
    let model = |number: usize| MODELS[number / 2 % MODELS.len()];
    let beginning = |number| background::connection(model(number), 60, number as u64);
    (0..number).map(beginning).collect()
}

/// A classifier of the first segments of connections: direction and length.
pub(crate) fn first_segments(bitcoin: &[Observed], others: &[Observed]) -> Score {
    let features = |observed: &Observed| -> Vec<f64> {
        let segments = observed.segments.iter().take(FIRST);
        let signed = segments.map(|segment| match segment.sent {
            true => f64::from(segment.len),
            false => -f64::from(segment.len),
        });
        signed.chain(std::iter::repeat(0.0)).take(FIRST).collect()
    };
    let all = bitcoin.iter().map(|observed| (features(observed), true));
    let all = all.chain(others.iter().map(|observed| (features(observed), false)));
    let all: Vec<_> = all.collect();
    let (samples, answers): (Vec<_>, Vec<_>) = all.iter().step_by(2).cloned().unzip();
    let classifier = Classifier::train(&samples, &answers);
    let mut score = Score::default();
    for (sample, is_bitcoin) in all.iter().skip(1).step_by(2) {
        score.add(*is_bitcoin, classifier.score(sample) > 0.0);
    }
    score
}

impl Piece<'_> {
    fn bytes(&self, sent: bool) -> f64 {
        let of = self.segments.iter().filter(|segment| segment.sent == sent);
        of.map(|segment| f64::from(segment.len)).sum()
    }

    fn is_balanced(&self) -> bool {
        let ratio = (self.bytes(true) + 1.0) / (self.bytes(false) + 1.0);
        (0.5..=2.0).contains(&ratio)
    }

    fn per_second(&self) -> Vec<f64> {
        let mut bytes = vec![0.0; PIECE as usize];
        for segment in self.segments {
            bytes[((segment.at - self.start) / 1_000_000) as usize] += f64::from(segment.len);
        }
        bytes
    }

    /// Whether the seconds with more than ten times the mean are 5 to 20 minutes apart.
    fn has_bursts(&self) -> bool {
        let bytes = self.per_second();
        let mean = bytes.iter().sum::<f64>() / PIECE as f64;
        let mut bursts = 0;
        let mut last = None;
        for second in (0..bytes.len()).filter(|&second| bytes[second] > 10.0 * mean) {
            bursts += u64::from(last.is_none_or(|last| second > last + 30));
            last = Some(second);
        }
        (PIECE / 1200..=PIECE / 300).contains(&bursts)
    }

    /// Whether one of the five most frequent lengths is that of a ping, or of an announcement of one
    /// to three transactions, over v1 or v2.
    fn has_lengths(&self) -> bool {
        const BITCOIN: [u32; 8] = [32, 61, 97, 133, 29, 58, 94, 130];
        let mut counts = std::collections::BTreeMap::<u32, usize>::new();
        for segment in self.segments {
            *counts.entry(segment.len).or_default() += 1;
        }
        let mut counts: Vec<_> = counts
            .into_iter()
            .map(|(len, count)| (count, len))
            .collect();
        counts.sort_unstable_by(|one, other| other.cmp(one));
        counts.iter().take(5).any(|(_, len)| BITCOIN.contains(len))
    }

    fn correlation(&self) -> f64 {
        const AFTER: usize = 10;
        let bytes = self.per_second();
        let end = self.start + PIECE * 1_000_000;
        let blocks = self
            .blocks
            .iter()
            .filter(|block| (self.start..end).contains(block));
        let at_blocks: Vec<f64> = blocks
            .map(|block| {
                let second = ((block - self.start) / 1_000_000) as usize;
                bytes[second..(second + AFTER).min(bytes.len())]
                    .iter()
                    .sum()
            })
            .collect();
        let mean = bytes.iter().sum::<f64>() / PIECE as f64 * AFTER as f64;
        let found = at_blocks.iter().sum::<f64>() / at_blocks.len().max(1) as f64;
        found / (mean + 1.0)
    }

    fn features(&self) -> Vec<f64> {
        const BINS: [u32; 9] = [0, 40, 70, 110, 200, 400, 800, 1300, 1440];
        let bytes = self.per_second();
        let mut features = vec![
            self.bytes(true),
            self.bytes(false),
            (self.bytes(true) + 1.0).ln() - (self.bytes(false) + 1.0).ln(),
            self.segments.len() as f64,
            bytes.iter().filter(|bytes| **bytes == 0.0).count() as f64,
            bytes.iter().copied().fold(0.0, f64::max),
            self.correlation(),
        ];
        for sent in [true, false] {
            let of = || self.segments.iter().filter(|segment| segment.sent == sent);
            let all = of().count().max(1) as f64;
            features.extend(BINS.iter().enumerate().map(|(bin, least)| {
                let most = BINS.get(bin + 1).copied().unwrap_or(u32::MAX);
                of().filter(|segment| (*least..most).contains(&segment.len))
                    .count() as f64
                    / all
            }));
            let lengths: std::collections::BTreeSet<u32> =
                of().map(|segment| segment.len).collect();
            features.push(lengths.len() as f64 / all);
        }
        features
    }
}
