//! A classifier: trees of two levels, boosted by the gradient of the logistic loss (Friedman, "Greedy
//! Function Approximation", 2001). Features are sorted into classes first.

/// Classes of a feature.
const BINS: usize = 96;

/// Trees.
const ROUNDS: usize = 80;

/// How much of a tree's answer is taken.
const RATE: f64 = 0.15;

/// Keeps leaves with few samples small.
const REGULARIZATION: f64 = 5.0;

/// A trained classifier.
pub(crate) struct Classifier {
    /// For each feature, the upper bounds of all classes but the last.
    bounds: Vec<Vec<f64>>,
    start: f64,
    trees: Vec<Tree>,
}

/// A question: whether the class of a feature is above a bound.
#[derive(Clone, Copy, Default)]
struct Split {
    feature: usize,
    above: u8,
}

struct Tree {
    first: Split,
    /// Of the samples that are not above the first bound, and of those that are.
    second: [Split; 2],
    leaves: [[f64; 2]; 2],
}

/// Sums of the loss's first and second derivatives.
#[derive(Clone, Copy, Default)]
struct Sums {
    gradient: f64,
    curvature: f64,
}

impl Sums {
    fn add(&mut self, gradient: f64, curvature: f64) {
        self.gradient += gradient;
        self.curvature += curvature;
    }

    fn minus(self, other: Self) -> Self {
        Self {
            gradient: self.gradient - other.gradient,
            curvature: self.curvature - other.curvature,
        }
    }

    /// By how much the best leaf for these samples lowers the loss, times two.
    fn gain(self) -> f64 {
        self.gradient * self.gradient / (self.curvature + REGULARIZATION)
    }

    fn leaf(self) -> f64 {
        self.gradient / (self.curvature + REGULARIZATION)
    }
}

impl Classifier {
    /// Trains on samples with their answers. All samples have the same number of features.
    pub(crate) fn train(samples: &[Vec<f64>], answers: &[bool]) -> Self {
        let features = samples.first().map_or(0, Vec::len);
        let bounds: Vec<_> = (0..features)
            .map(|feature| quantiles(samples, feature))
            .collect();
        let classes: Vec<Vec<u8>> = samples
            .iter()
            .map(|sample| classify(&bounds, sample))
            .collect();
        let positive = answers.iter().filter(|answer| **answer).count() as f64 + 0.5;
        let start = (positive / (samples.len() as f64 + 1.0 - positive)).ln();
        let mut scores = vec![start; samples.len()];
        let mut trees = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let slopes: Vec<_> = (scores.iter().zip(answers))
                .map(|(score, answer)| {
                    let likely = 1.0 / (1.0 + (-score).exp());
                    (
                        f64::from(u8::from(*answer)) - likely,
                        likely * (1.0 - likely),
                    )
                })
                .collect();
            let all: Vec<_> = (0..samples.len()).collect();
            let (first, _) = best_split(&classes, &slopes, &all, features);
            let sides = sides(&classes, &all, first);
            let found = sides.map(|side| best_split(&classes, &slopes, &side, features));
            let tree = Tree {
                first,
                second: found.map(|(split, _)| split),
                leaves: found.map(|(_, sums)| sums.map(|sums| RATE * sums.leaf())),
            };
            for (score, classes) in scores.iter_mut().zip(&classes) {
                *score += tree.answer(classes);
            }
            trees.push(tree);
        }
        Self {
            bounds,
            start,
            trees,
        }
    }

    /// How likely a sample's answer is yes: the logarithm of the odds.
    pub(crate) fn score(&self, sample: &[f64]) -> f64 {
        let classes = classify(&self.bounds, sample);
        let answers = self.trees.iter().map(|tree| tree.answer(&classes));
        self.start + answers.sum::<f64>()
    }
}

impl Tree {
    fn answer(&self, classes: &[u8]) -> f64 {
        let side = usize::from(self.first.is_above(classes));
        self.leaves[side][usize::from(self.second[side].is_above(classes))]
    }
}

impl Split {
    fn is_above(self, classes: &[u8]) -> bool {
        classes
            .get(self.feature)
            .is_some_and(|class| *class > self.above)
    }
}

fn classify(bounds: &[Vec<f64>], sample: &[f64]) -> Vec<u8> {
    let class = |(bounds, value): (&Vec<f64>, &f64)| bounds.partition_point(|bound| bound < value);
    bounds
        .iter()
        .zip(sample)
        .map(|both| class(both) as u8)
        .collect()
}

/// The bounds of a feature's classes: half of them part the samples equally, and half the different
/// values, as rare ones tell most.
fn quantiles(samples: &[Vec<f64>], feature: usize) -> Vec<f64> {
    let mut values: Vec<_> = samples.iter().map(|sample| sample[feature]).collect();
    values.sort_by(f64::total_cmp);
    let mut different = values.clone();
    different.dedup();
    let part = |values: &[f64]| -> Vec<f64> {
        let last = values.len() - 1;
        (0..BINS / 2)
            .map(|bin| values[bin * last / (BINS / 2)])
            .collect()
    };
    let mut bounds = [part(&values), part(&different)].concat();
    bounds.sort_by(f64::total_cmp);
    bounds.dedup();
    bounds
}

/// Parts the samples with these numbers.
fn sides(classes: &[Vec<u8>], of: &[usize], split: Split) -> [Vec<usize>; 2] {
    let (above, below) = of
        .iter()
        .partition(|&&sample| split.is_above(&classes[sample]));
    [below, above]
}

/// The split of the samples with these numbers that lowers the loss most, and the sums of both
/// sides.
fn best_split(
    classes: &[Vec<u8>],
    slopes: &[(f64, f64)],
    of: &[usize],
    features: usize,
) -> (Split, [Sums; 2]) {
    let mut all = Sums::default();
    for &sample in of {
        all.add(slopes[sample].0, slopes[sample].1);
    }
    let mut best = (
        all.gain(),
        (
            Split {
                feature: 0,
                above: u8::MAX,
            },
            [all, Sums::default()],
        ),
    );
    for feature in 0..features {
        let mut bins = [Sums::default(); BINS + 1];
        for &sample in of {
            let (gradient, curvature) = slopes[sample];
            bins[usize::from(classes[sample][feature])].add(gradient, curvature);
        }
        let mut below = Sums::default();
        for (above, bin) in bins.iter().enumerate() {
            below.add(bin.gradient, bin.curvature);
            let rest = all.minus(below);
            let gain = below.gain() + rest.gain();
            if gain > best.0 + 1e-9 {
                let above = above as u8;
                best = (gain, (Split { feature, above }, [below, rest]));
            }
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng as _};

    fn samples(seed: u64, answer: fn(&[f64]) -> bool) -> (Vec<Vec<f64>>, Vec<bool>) {
        let mut rng = StdRng::seed_from_u64(seed);
        let samples: Vec<Vec<f64>> = (0..2000)
            .map(|_| (0..4).map(|_| rng.random_range(0.0..1.0)).collect())
            .collect();
        let answers = samples.iter().map(|sample| answer(sample)).collect();
        (samples, answers)
    }

    fn right(answer: fn(&[f64]) -> bool, with: fn(&[f64]) -> bool) -> usize {
        let (train, answers) = samples(1, with);
        let classifier = Classifier::train(&train, &answers);
        let (test, answers) = samples(2, answer);
        let is_right =
            |(sample, answer): &(&Vec<f64>, &bool)| (classifier.score(sample) > 0.0) == **answer;
        test.iter().zip(&answers).filter(is_right).count()
    }

    #[test]
    fn it_learns_what_two_features_say_together() {
        // Neither feature alone says anything.
        let either = |sample: &[f64]| (sample[1] > 0.4) != (sample[2] > 0.4);
        let found = right(either, either);
        assert!(found > 1900, "{found}");
        let rare = |sample: &[f64]| sample[3] > 0.94;
        let found = right(rare, rare);
        assert!(found > 1960, "{found}");
    }

    #[test]
    fn it_learns_nothing_from_noise() {
        let found = right(
            |sample| sample[0] > 0.5,
            |sample| sample[0] * 1e4 % 1.0 > 0.5,
        );
        assert!((900..1100).contains(&found), "{found}");
        let empty = Classifier::train(&[], &[]);
        assert!(empty.score(&[]).is_finite());
    }
}
