//! "A block arrives now on this connection."

use super::boost::Classifier;
use super::score::{Score, Share};
use super::trace::{Arrival, Trace};
use super::wire::{FULL_SEGMENT, Observed, Segment};

/// Seconds of a window that a detector looks at.
const WINDOW: u64 = 3;

/// Segments below this length are counted by length, in steps of so many bytes: announcements have a
/// length of their own.
const SHORT: usize = 160;
const SHORT_STEP: usize = 8;

/// Seconds over which the usual traffic is averaged.
const USUAL: usize = 600;

/// Seconds at the beginning of a connection that are not judged by this.
const BEGINNING: u64 = 60;

/// Alarms after a block for which it is responsible, in seconds: what follows it.
const AFTER: u64 = 10;

/// Alarms in so many seconds are one.
const ONE_ALARM: u64 = 5;

/// False alarms an hour that the classifier may have.
const FALSE_ALARMS: f64 = 1.0;

/// A connection and the blocks that it carries.
#[derive(Clone)]
pub(crate) struct Sample<'a> {
    observed: &'a Observed,
    pub(crate) arrivals: Vec<Arrival>,
    /// By how many seconds shaping may delay a block.
    delay: u64,
}

/// Connections as observed, with the blocks of their traces, which shaping may delay by so many
/// seconds.
pub(crate) fn samples<'a>(
    traces: &[Trace],
    observed: &'a [Observed],
    delay: u64,
) -> Vec<Sample<'a>> {
    let both = traces.iter().zip(observed);
    both.map(|(trace, observed)| Sample {
        observed,
        arrivals: trace.blocks(),
        delay,
    })
    .collect()
}

impl Sample<'_> {
    /// The seconds since the connection's beginning at which blocks arrive.
    fn blocks(&self) -> Vec<u64> {
        let start = self.observed.span.0;
        let second = |arrival: &Arrival| (arrival.at - start) / 1_000_000;
        self.arrivals.iter().map(second).collect()
    }

    /// The score of these alarms, which are in order, within a range of seconds.
    fn score(&self, alarms: &[u64], within: std::ops::Range<u64>) -> Score {
        let mut score = Score::default();
        let blocks = self.blocks();
        for &block in blocks.iter().filter(|block| within.contains(block)) {
            let right = |alarm: &u64| (block..block + WINDOW + self.delay).contains(alarm);
            score.recall.add(alarms.iter().any(right));
        }
        let mut last_wrong = None;
        let mut last_right = None;
        for &alarm in alarms.iter().filter(|alarm| within.contains(alarm)) {
            let mut blocks = blocks.iter();
            let cause = blocks.find(|&&block| (block..block + AFTER + self.delay).contains(&alarm));
            match cause {
                Some(block) if last_right == Some(block) => {}
                Some(block) => {
                    last_right = Some(block);
                    score.precision.add(true);
                }
                None if last_wrong.is_some_and(|last| alarm <= last + ONE_ALARM) => {}
                None => {
                    last_wrong = Some(alarm);
                    score.precision.add(false);
                }
            }
        }
        score
    }
}

/// The detector of published measurements: seconds with more than twice the mean bytes of the last
/// ten minutes. `share` is that of all seconds that it takes for blocks.
pub(crate) fn spikes(samples: &[Sample<'_>]) -> (Score, Share) {
    let mut all = Score::default();
    let mut share = Share::default();
    for sample in samples {
        let bytes = sample.observed.bytes_per_second();
        let usual = usual(&bytes);
        // At first there is no mean to compare with.
        let seconds = BEGINNING..sample.observed.seconds();
        let alarms: Vec<u64> = seconds
            .clone()
            .filter(|&second| bytes[second as usize] > 2.0 * usual[second as usize])
            .collect();
        share.right += alarms.len();
        share.of += seconds.clone().count();
        all = all.plus(sample.score(&alarms, seconds));
    }
    (all, share)
}

/// The mean of the last ten minutes before each second.
fn usual(bytes: &[f64]) -> Vec<f64> {
    let mut sum = 0.0;
    let mut usual = Vec::with_capacity(bytes.len());
    for second in 0..bytes.len() {
        usual.push(sum / second.clamp(1, USUAL) as f64);
        sum += bytes[second];
        if second >= USUAL {
            sum -= bytes[second - USUAL];
        }
    }
    usual
}

/// A classifier of windows of three seconds, trained on the first half of each connection and scored
/// on the second. Its threshold is the one that gives so many false alarms there, so that all shapes are
/// compared at the same rate.
pub(crate) fn classifier(samples: &[Sample<'_>]) -> Score {
    let (mut features, mut answers) = (Vec::new(), Vec::new());
    let windows: Vec<Vec<Vec<f64>>> = samples
        .iter()
        .map(|sample| windows(sample.observed))
        .collect();
    let half = |sample: &Sample<'_>| sample.observed.seconds() / 2;
    for (sample, windows) in samples.iter().zip(&windows) {
        let blocks = sample.blocks();
        for (second, window) in (0..half(sample)).zip(windows) {
            features.push(window.clone());
            let first = (second + 1).saturating_sub(WINDOW + sample.delay);
            let within = first..=second;
            answers.push(blocks.iter().any(|block| within.contains(block)));
        }
    }
    let classifier = Classifier::train(&features, &answers);
    let scores: Vec<Vec<f64>> = (windows.iter())
        .map(|windows| {
            windows
                .iter()
                .map(|window| classifier.score(window))
                .collect()
        })
        .collect();
    let run = |threshold: f64| {
        let mut all = Score::default();
        for (sample, scores) in samples.iter().zip(&scores) {
            let within = half(sample)..sample.observed.seconds();
            let is_alarm = |&second: &u64| {
                let score = scores.get(second as usize);
                score.is_some_and(|score| *score > threshold)
            };
            let alarms: Vec<u64> = within.clone().filter(is_alarm).collect();
            all = all.plus(sample.score(&alarms, within));
        }
        all
    };
    let seconds = |sample: &Sample<'_>| sample.observed.seconds() - half(sample);
    let hours = samples.iter().map(seconds).sum::<u64>() as f64 / 3600.0;
    let mut thresholds: Vec<f64> = scores.iter().flatten().copied().collect();
    thresholds.sort_by(f64::total_cmp);
    // The lowest threshold with few false alarms, by halving.
    let (mut low, mut high) = (0, thresholds.len());
    while low < high {
        let middle = usize::midpoint(low, high);
        let precision = run(thresholds[middle]).precision;
        let false_alarms = (precision.of - precision.right) as f64;
        match false_alarms <= FALSE_ALARMS * hours {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    run(thresholds.get(low).copied().unwrap_or(f64::INFINITY))
}

/// The features of the window that ends with each second.
fn windows(observed: &Observed) -> Vec<Vec<f64>> {
    let bytes = observed.bytes_per_second();
    let usual = usual(&bytes);
    let window = |second: u64| {
        let start = (second + 1).saturating_sub(WINDOW);
        let part = observed.part(start..second + 1);
        let mut features = Vec::with_capacity(64);
        for sent in [true, false] {
            let of = || part.iter().filter(|segment| segment.sent == sent);
            let full = of()
                .filter(|segment| segment.len >= FULL_SEGMENT - 50)
                .count();
            let small = of().filter(|segment| segment.len < 150).count();
            features.extend([
                sum(of()),
                of().count() as f64,
                full as f64,
                small as f64,
                f64::from(of().map(|segment| segment.len).max().unwrap_or(0)),
                largest_flight(of()),
            ]);
            // What follows one another at the beginning tells protocols apart.
            let mut first = of().map(|segment| f64::from(segment.len));
            features.extend((0..2).map(|_| first.next().unwrap_or(0.0)));
            let mut short = [0.0; SHORT / SHORT_STEP];
            for len in of()
                .map(|segment| segment.len as usize)
                .filter(|len| *len < SHORT)
            {
                short[len / SHORT_STEP] += 1.0;
            }
            features.extend(short);
        }
        let all = sum(part.iter());
        let second = start as usize;
        let before = &bytes[second.saturating_sub(30)..second];
        let first = part.first();
        features.extend([
            all,
            all / (usual[second] * WINDOW as f64 + 1.0),
            usual[second],
            before.iter().sum::<f64>(),
            before.iter().copied().fold(0.0, f64::max),
            f64::from(u8::from(first.is_some_and(|segment| segment.sent))),
            turns(part) as f64,
        ]);
        features
    };
    (0..observed.seconds()).map(window).collect()
}

fn sum<'a>(segments: impl Iterator<Item = &'a Segment>) -> f64 {
    segments.map(|segment| f64::from(segment.len)).sum()
}

/// How often the direction changes.
fn turns(segments: &[Segment]) -> usize {
    let changes = segments.windows(2).filter(|two| two[0].sent != two[1].sent);
    changes.count()
}

/// The most bytes that come within 20 ms.
fn largest_flight<'a>(segments: impl Iterator<Item = &'a Segment>) -> f64 {
    let (mut largest, mut current, mut start) = (0.0_f64, 0.0, 0);
    for segment in segments {
        if segment.at > start + 20_000 {
            (current, start) = (0.0, segment.at);
        }
        current += f64::from(segment.len);
        largest = largest.max(current);
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;
    use packetlane::bitcoin::message::MessageType;

    /// Quiet traffic with a burst at each block, and as many of another shape elsewhere.
    fn connection(has_bursts: bool) -> (Observed, Vec<Arrival>) {
        let mut segments = Vec::new();
        let mut arrivals = Vec::new();
        for second in 0..20_000_u64 {
            let at = second * 1_000_000;
            segments.push(Segment {
                at,
                sent: second % 3 == 0,
                len: 60 + (second % 7) as u32,
            });
            if second % 600 == 300 {
                let message_type = MessageType::literal("block");
                arrivals.push(Arrival { at, message_type });
                let burst = |number| Segment {
                    at: at + number,
                    sent: false,
                    len: 1448,
                };
                segments.extend((1..20).filter(|_| has_bursts).map(burst));
            }
            if second % 600 == 450 {
                let burst = |number| Segment {
                    at: at + number,
                    sent: true,
                    len: 1400,
                };
                segments.extend((1..20).map(burst));
            }
        }
        let span = (0, 20_000_000_000);
        (
            Observed {
                segments,
                span,
                ..Observed::default()
            },
            arrivals,
        )
    }

    #[test]
    fn bursts_are_found_and_told_apart() {
        let (observed, arrivals) = connection(true);
        let blocks = arrivals.len();
        let sample = Sample {
            observed: &observed,
            arrivals,
            delay: 0,
        };
        let (score, share) = spikes(std::slice::from_ref(&sample));
        assert_eq!(
            score.recall,
            Share {
                right: blocks,
                of: blocks
            }
        );
        assert_eq!(
            score.precision,
            Share {
                right: blocks,
                of: 2 * blocks
            }
        );
        assert_eq!(share.right, 2 * blocks);
        let score = classifier(&[sample]);
        assert_eq!(
            (score.recall.right, score.precision.right),
            (score.recall.of, score.precision.of)
        );
        assert!(score.recall.of >= blocks / 2);
    }

    #[test]
    fn without_bursts_nothing_is_found() {
        let (observed, arrivals) = connection(false);
        let sample = Sample {
            observed: &observed,
            arrivals,
            delay: 0,
        };
        let (score, _) = spikes(std::slice::from_ref(&sample));
        assert_eq!(score.recall.right, 0);
        let score = classifier(&[sample]);
        assert!(score.recall.right <= score.recall.of / 4, "{score:?}");
    }
}
