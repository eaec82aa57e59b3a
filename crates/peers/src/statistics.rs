//! Online statistics in bounded memory.

/// Ratio of the widths of two neighbouring buckets.
const STEP: f64 = 1.02;

/// Number of buckets: covers values up to about 10^19.
const BUCKETS: usize = 2210;

/// A weighted distribution: a histogram whose buckets are 2 % wide, so quantiles are accurate to
/// 1 %. Mean, deviation, minimum and maximum are exact. At most 18 KB.
///
/// Values must not be negative; those below 1 count as 0. Each value has a weight, such as its
/// duration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// Weights. Bucket 0 is for the value 0, bucket n for values from [`STEP`]^(n-1).
    buckets: Vec<f64>,
    count: u64,
    weight: f64,
    sum: f64,
    squares: f64,
    max: f64,
}

impl Distribution {
    /// Adds a value. Ignores non-finite values and values without weight.
    pub fn add(&mut self, value: f64, weight: f64) {
        if !(value.is_finite() && value >= 0.0 && weight.is_finite() && weight > 0.0) {
            return;
        }
        let bucket = match value {
            value if value < 1.0 => 0,
            value => (1 + (value.ln() / STEP.ln()) as usize).min(BUCKETS - 1),
        };
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0.0);
        }
        self.buckets[bucket] += weight;
        self.count += 1;
        self.weight += weight;
        self.sum += value * weight;
        self.squares += value * value * weight;
        self.max = self.max.max(value);
    }

    /// Adds all values of another distribution.
    pub fn merge(&mut self, other: &Self) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0.0);
        }
        for (own, others) in self.buckets.iter_mut().zip(&other.buckets) {
            *own += others;
        }
        self.count += other.count;
        self.weight += other.weight;
        self.sum += other.sum;
        self.squares += other.squares;
        self.max = self.max.max(other.max);
    }

    /// The number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The weighted mean; 0 if there are no values.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match self.weight > 0.0 {
            true => self.sum / self.weight,
            false => 0.0,
        }
    }

    /// The standard deviation of the values (not the error of their mean).
    #[must_use]
    pub fn deviation(&self) -> f64 {
        match self.weight > 0.0 {
            true => (self.squares / self.weight - self.mean().powi(2))
                .max(0.0)
                .sqrt(),
            false => 0.0,
        }
    }

    /// The largest value.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.max
    }

    /// The value at or below which this share of the weight lies, from 0 to 1. Accurate to 1 %.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        let wanted = self.weight * share.clamp(0.0, 1.0);
        let mut below = 0.0;
        for (bucket, weight) in self.buckets.iter().enumerate() {
            below += weight;
            // The sum of the weights may differ from their total in the last bits.
            if below >= wanted * (1.0 - 1e-12) && *weight > 0.0 {
                return match bucket {
                    0 => 0.0,
                    bucket => STEP.powf(bucket as f64 - 0.5).min(self.max),
                };
            }
        }
        self.max
    }
}

/// An amount per second, sampled in windows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    windows: u64,
    seconds: f64,
    amount: f64,
    amounts_squared: f64,
    amounts_by_seconds: f64,
    seconds_squared: f64,
}

impl Rate {
    /// Adds a window: its length in seconds, and the amount in it.
    pub fn add(&mut self, seconds: f64, amount: f64) {
        self.windows += 1;
        self.seconds += seconds;
        self.amount += amount;
        self.amounts_squared += amount * amount;
        self.amounts_by_seconds += amount * seconds;
        self.seconds_squared += seconds * seconds;
    }

    /// The number of windows.
    #[must_use]
    pub fn windows(&self) -> u64 {
        self.windows
    }

    /// Total length of all windows, in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Total amount in all windows.
    #[must_use]
    pub fn amount(&self) -> f64 {
        self.amount
    }

    /// Amount per second. 0 if there was no window.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        match self.seconds > 0.0 {
            true => self.amount / self.seconds,
            false => 0.0,
        }
    }

    /// The standard error due to sampling. `observed` is the share of time in windows, from 0 to 1.
    /// 0 if all time was observed, `None` with fewer than 2 windows.
    ///
    /// It is the error of a ratio estimator over random windows. No error estimate covers rare,
    /// costly events (such as blocks) that fall outside all windows.
    #[must_use]
    pub fn error(&self, observed: f64) -> Option<f64> {
        if observed >= 1.0 {
            return Some(0.0);
        }
        if self.windows < 2 || self.seconds <= 0.0 {
            return None;
        }
        let rate = self.per_second();
        let squares = self.amounts_squared - 2.0 * rate * self.amounts_by_seconds
            + rate * rate * self.seconds_squared;
        let windows = self.windows as f64;
        let variance = squares.max(0.0) / (windows - 1.0);
        Some((windows * variance * (1.0 - observed.max(0.0))).sqrt() / self.seconds)
    }
}

/// Splits a total cost between two kinds of events, such as calls that send and the messages they
/// send, by least squares through 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    aa: f64,
    ab: f64,
    bb: f64,
    ac: f64,
    bc: f64,
    a: f64,
    b: f64,
    c: f64,
}

impl Shares {
    /// Adds an observation: the numbers of `a` and of `b`, and their joint cost.
    pub fn add(&mut self, a: f64, b: f64, cost: f64) {
        self.aa += a * a;
        self.ab += a * b;
        self.bb += b * b;
        self.ac += a * cost;
        self.bc += b * cost;
        self.a += a;
        self.b += b;
        self.c += cost;
    }

    /// Adds all observations of another.
    pub fn merge(&mut self, other: &Self) {
        self.aa += other.aa;
        self.ab += other.ab;
        self.bb += other.bb;
        self.ac += other.ac;
        self.bc += other.bc;
        self.a += other.a;
        self.b += other.b;
        self.c += other.c;
    }

    /// Cost of one `a` and of one `b`. Neither is negative, and together they account for the whole
    /// cost. If `a` and `b` always occurred in proportion, all cost is attributed to `a`.
    #[must_use]
    pub fn each(&self) -> (f64, f64) {
        if self.a <= 0.0 {
            return (0.0, 0.0);
        }
        let determinant = self.aa * self.bb - self.ab * self.ab;
        let of_b = match determinant > 1e-9 * self.aa * self.bb && self.b > 0.0 {
            true => (self.aa * self.bc - self.ab * self.ac) / determinant,
            false => 0.0,
        };
        // At most the whole cost.
        let of_b = match self.b > 0.0 {
            true => of_b.clamp(0.0, self.c / self.b),
            false => 0.0,
        };
        ((self.c - of_b * self.b).max(0.0) / self.a, of_b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn quantiles_are_within_1_percent() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut values: Vec<f64> = (0..10_001)
            .map(|_| (rng.random_range(0.0..20.0_f64)).exp())
            .collect();
        let mut distribution = Distribution::default();
        for value in &values {
            distribution.add(*value, 1.0);
        }
        values.sort_by(f64::total_cmp);
        for share in [0.0, 0.001, 0.25, 0.5, 0.95, 0.999, 1.0] {
            let place = ((share * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let exact = values[place - 1];
            let estimate = distribution.quantile(share);
            assert!(
                (estimate / exact - 1.0).abs() <= 0.0101,
                "{share}: {estimate}, not {exact}"
            );
        }
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        assert!((distribution.mean() / mean - 1.0).abs() < 1e-9);
        assert_eq!(distribution.max(), values[values.len() - 1]);
        assert_eq!(distribution.count(), 10_001);
    }

    #[test]
    fn weights_count() {
        let mut distribution = Distribution::default();
        distribution.add(10.0, 3.0);
        distribution.add(0.0, 1.0);
        for nothing in [f64::NAN, f64::INFINITY, -1.0] {
            distribution.add(nothing, 1.0);
            distribution.add(1.0, nothing);
        }
        assert_eq!(distribution.mean(), 7.5);
        assert!((distribution.deviation() - 18.75_f64.sqrt()).abs() < 1e-9);
        assert_eq!(distribution.quantile(0.25), 0.0);
        assert_eq!(distribution.quantile(0.26), 10.0);
        let mut twice = distribution.clone();
        twice.merge(&distribution);
        assert_eq!((twice.mean(), twice.count()), (7.5, 4));
        // The largest values share the last bucket.
        twice.add(f64::MAX, 1.0);
        assert_eq!(twice.buckets.len(), BUCKETS);
    }

    /// The reported standard error matches the actual spread of the estimates.
    #[test]
    fn the_error_of_a_sample_is_its_spread() {
        let mut rng = StdRng::seed_from_u64(2);
        let (mut estimates, mut errors) = (Vec::new(), Vec::new());
        for _ in 0..400 {
            let mut rate = Rate::default();
            for _ in 0..100 {
                // A tenth of the windows, with varying lengths and bursts.
                let seconds = rng.random_range(0.05..0.15);
                let burst = if rng.random_bool(0.1) { 5.0 } else { 0.5 };
                rate.add(seconds, seconds * burst * rng.random_range(0.5..1.5));
            }
            estimates.push(rate.per_second());
            errors.push(rate.error(0.0).expect("windows"));
        }
        let mean = estimates.iter().sum::<f64>() / 400.0;
        let spread = estimates
            .iter()
            .map(|one| (one - mean).powi(2))
            .sum::<f64>()
            / 399.0;
        let error = errors.iter().sum::<f64>() / 400.0;
        assert!(
            (error / spread.sqrt() - 1.0).abs() < 0.15,
            "{error} {spread}"
        );
        let mut rate = Rate::default();
        assert_eq!(rate.error(0.5), None);
        rate.add(1.0, 1.0);
        rate.add(1.0, 2.0);
        assert_eq!(rate.error(1.0), Some(0.0));
        assert_eq!(rate.per_second(), 1.5);
    }

    #[test]
    fn the_shares_of_two_costs_are_told_apart() {
        let mut rng = StdRng::seed_from_u64(3);
        let mut shares = Shares::default();
        for _ in 0..10_000 {
            let (calls, messages) = (rng.random_range(10..60), rng.random_range(0..8));
            let (calls, messages) = (f64::from(calls), f64::from(messages));
            let noise = rng.random_range(0.5..1.5);
            shares.add(
                calls,
                messages,
                calls * 3.0 * noise + messages * 40.0 * noise,
            );
        }
        let (call, message) = shares.each();
        assert!((call / 3.0 - 1.0).abs() < 0.1, "{call}");
        assert!((message / 40.0 - 1.0).abs() < 0.1, "{message}");

        // Always in proportion: cannot be separated.
        let mut shares = Shares::default();
        for n in 1..10 {
            shares.add(f64::from(n), 2.0 * f64::from(n), 6.0 * f64::from(n));
        }
        assert_eq!(shares.each(), (6.0, 0.0));
        assert_eq!(Shares::default().each(), (0.0, 0.0));
    }
}
