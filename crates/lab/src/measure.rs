//! Timing: runs several implementations of a case alternately, under the same machine conditions.
//!
//! Absolute times drift with the machine's clock and load, so the comparison has to be protected. A
//! turn of [`in_turn`] takes one sample of each [`Contender`]; each turn uses another order, so
//! that no contender gains or loses by its position or its predecessor. The ratio of two contenders
//! is computed from samples of the same turn. A sample consists of as many calls as fill
//! [`Plan::min_sample`]. A call does one unit of the case's work, usually one batch. Before each
//! sample, the same number of calls run untimed, unless one takes milliseconds. So no contender
//! pays for what the previous one left in the caches, or for powering up wide registers that only
//! it uses.
//!
//! An operation that consumes its input (such as opening a packet in place) needs new input for
//! each call, created outside the measured time. Reading the clock takes about 300 ns, too long to
//! stop it around every call. Such a contender prepares the inputs for a group of calls, and the
//! group is timed as a whole. See [`Contender::with_input`].
//!
//! Thread CPU time is right for work on one thread. It is wrong for anything that sleeps, uses
//! other threads or waits for a GPU. Those cases use [`Clock::Wall`] and say so in their `timed`
//! text.

use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::Duration;

/// Samples are noisy if their middle half spans more than this share of the median.
const NOISY: f64 = 0.10;

/// Minimum number of samples of a case, whatever the budget.
const MIN_SAMPLES: usize = 3;

/// Samples this long need no warm-up.
const LONG_SAMPLE: Duration = Duration::from_millis(2);

/// The clock of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// CPU time of the calling thread. Load from other processes does not count.
    ThreadCpu,
    /// Elapsed time, for sockets, threads and GPUs.
    Wall,
}

impl Clock {
    pub(crate) fn now(self) -> Duration {
        let time = clock_gettime(match self {
            Clock::ThreadCpu => ClockId::ThreadCPUTime,
            Clock::Wall => ClockId::Monotonic,
        });
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    /// The clock's name in `timed` texts.
    pub fn name(self) -> &'static str {
        match self {
            Clock::ThreadCpu => "thread CPU time",
            Clock::Wall => "wall time",
        }
    }
}

/// How accurately to measure a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Number of samples of each contender.
    pub samples: usize,
    /// Minimum duration of a sample.
    pub min_sample: Duration,
    /// The clock.
    pub clock: Clock,
    /// After this much wall time, no more turns are run once there are three.
    pub budget: Duration,
}

impl Plan {
    /// For publishable figures.
    pub const fn full() -> Self {
        Self {
            samples: 31,
            min_sample: Duration::from_micros(200),
            clock: Clock::ThreadCpu,
            budget: Duration::from_secs(1),
        }
    }

    /// For a first impression: fewer samples of the same length.
    pub const fn quick() -> Self {
        Self {
            samples: 15,
            min_sample: Duration::from_micros(200),
            clock: Clock::ThreadCpu,
            budget: Duration::from_millis(250),
        }
    }

    /// The same plan with another clock.
    pub const fn by(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }
}

/// An implementation that is ready to run a case.
pub struct Contender<'a> {
    name: String,
    backend: String,
    work: Box<dyn Calls + 'a>,
}

impl<'a> Contender<'a> {
    /// A contender whose calls need no new input. `run` is one call; the compiler cannot optimize
    /// its result away.
    pub fn new<R>(
        name: impl Into<String>,
        backend: impl Into<String>,
        run: impl FnMut() -> R + 'a,
    ) -> Self {
        Self {
            name: name.into(),
            backend: backend.into(),
            work: Box::new(Repeat(run)),
        }
    }

    /// A contender whose calls consume their input.
    ///
    /// `prepare(&mut state, n)` creates the inputs for the next `n` calls, outside the measured
    /// time. Then `run(&mut state, i)` is called within it for each `i` in `0..n`. `n` is at most
    /// `max_calls`, which bounds the memory. Because the clock is read twice per group, choose
    /// `max_calls` so that a full group takes at least 100 us, if memory allows.
    pub fn with_input<S: 'a, R>(
        name: impl Into<String>,
        backend: impl Into<String>,
        state: S,
        max_calls: usize,
        prepare: impl FnMut(&mut S, usize) + 'a,
        run: impl FnMut(&mut S, usize) -> R + 'a,
    ) -> Self {
        assert!(max_calls > 0, "a group of no calls cannot be timed");
        Self {
            name: name.into(),
            backend: backend.into(),
            work: Box::new(Grouped {
                state,
                max_calls,
                prepare,
                run,
            }),
        }
    }
}

/// The interface that [`in_turn`] uses. The loop over calls is inside, so dynamic dispatch happens
/// once per group, not once per packet.
trait Calls {
    fn max_calls(&self) -> usize;
    fn prepare(&mut self, calls: usize);
    fn run(&mut self, calls: usize);
}

struct Repeat<F>(F);

impl<R, F: FnMut() -> R> Calls for Repeat<F> {
    fn max_calls(&self) -> usize {
        usize::MAX
    }
    fn prepare(&mut self, _: usize) {}
    fn run(&mut self, calls: usize) {
        for _ in 0..calls {
            black_box((self.0)());
        }
    }
}

struct Grouped<S, P, F> {
    state: S,
    max_calls: usize,
    prepare: P,
    run: F,
}

impl<S, R, P: FnMut(&mut S, usize), F: FnMut(&mut S, usize) -> R> Calls for Grouped<S, P, F> {
    fn max_calls(&self) -> usize {
        self.max_calls
    }
    fn prepare(&mut self, calls: usize) {
        (self.prepare)(&mut self.state, calls);
        black_box(&mut self.state);
    }
    fn run(&mut self, calls: usize) {
        for call in 0..calls {
            black_box((self.run)(&mut self.state, call));
        }
    }
}

/// Samples of one contender, in seconds per call. In one case, samples with the same index are from
/// the same turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Samples {
    /// The contender's name.
    pub implementation: String,
    /// The backend it ran on, such as `avx512`.
    pub backend: String,
    /// Seconds per call in each turn.
    pub seconds: Vec<f64>,
}

impl Samples {
    /// No samples yet.
    pub fn new(implementation: &str, backend: &str) -> Self {
        Self {
            implementation: implementation.to_owned(),
            backend: backend.to_owned(),
            seconds: Vec::new(),
        }
    }

    /// Median, range and confidence interval of the seconds per call.
    pub fn summary(&self) -> Summary {
        Summary::of(&self.seconds)
    }

    /// How many times as fast as `other` this is, turn by turn.
    pub fn ahead_of(&self, other: &Samples) -> Summary {
        let turns = self.seconds.iter().zip(&other.seconds);
        Summary::of(
            &turns
                .map(|(ours, theirs)| theirs / ours)
                .collect::<Vec<_>>(),
        )
    }
}

/// The median of samples and their spread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The middle value, or the mean of the two middle ones.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Bounds of the middle half of the values.
    pub half: [f64; 2],
    /// The 95 % confidence interval of the median, for any distribution (order statistics): at most
    /// a certain number of values lies outside on each side. With fewer than 6 values it spans all
    /// of them and is less certain.
    pub interval: [f64; 2],
}

impl Summary {
    /// Summarizes at least one value.
    pub fn of(values: &[f64]) -> Self {
        assert!(!values.is_empty(), "nothing was measured");
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let quantile = |share: f64| {
            let place = share * (sorted.len() - 1) as f64;
            let (low, high) = (
                sorted[place.floor() as usize],
                sorted[place.ceil() as usize],
            );
            low + (high - low) * place.fract()
        };
        // The number of values below the median is binomially distributed: n / 2 on average, with a
        // standard deviation of sqrt(n) / 2.
        let count = sorted.len() as f64;
        let outside = ((count - 1.96 * count.sqrt()) / 2.0).round().max(1.0) as usize;
        Self {
            median: quantile(0.5),
            min: sorted[0],
            max: sorted[sorted.len() - 1],
            half: [quantile(0.25), quantile(0.75)],
            interval: [sorted[outside - 1], sorted[sorted.len() - outside]],
        }
    }

    /// Whether the samples vary too much to be trusted.
    pub fn noisy(&self) -> bool {
        let [low, high] = self.half;
        (high - low) / self.median > NOISY
    }
}

/// Runs the contenders alternately as the plan says, in a different order each turn.
///
/// Check their output first. The samples are returned in the order of the contenders.
pub fn in_turn(contenders: &mut [Contender<'_>], plan: &Plan) -> Vec<Samples> {
    in_turn_by(contenders, plan, &|| plan.clock.now(), &|| {
        Clock::Wall.now()
    })
}

/// [`in_turn`] with given clocks: one for the work, one for the budget.
fn in_turn_by(
    contenders: &mut [Contender<'_>],
    plan: &Plan,
    now: &dyn Fn() -> Duration,
    wall: &dyn Fn() -> Duration,
) -> Vec<Samples> {
    let start = wall();
    let sizes: Vec<(usize, Duration)> = contenders
        .iter_mut()
        .map(|contender| calibrate(&mut *contender.work, plan.min_sample, now))
        .collect();
    let mut samples: Vec<Samples> = contenders
        .iter()
        .map(|contender| Samples {
            implementation: contender.name.clone(),
            backend: contender.backend.clone(),
            seconds: Vec::with_capacity(plan.samples),
        })
        .collect();
    let orders = orders(contenders.len());
    for turn in 0..plan.samples.max(MIN_SAMPLES) {
        if turn >= MIN_SAMPLES && wall() - start > plan.budget {
            break;
        }
        for &place in &orders[turn % orders.len()] {
            let contender = &mut contenders[place];
            let (calls, length) = sizes[place];
            // Warm up the caches, which another contender has just used.
            if length < LONG_SAMPLE {
                sample(&mut *contender.work, calls, now);
            }
            let time = sample(&mut *contender.work, calls, now);
            let seconds = time.as_secs_f64() / calls as f64;
            samples[place].seconds.push(seconds);
        }
    }
    samples
}

/// The orders of the turns, used cyclically.
///
/// They are a Williams design: over all orders, every contender is equally often at each position,
/// and equally often directly after each other one. In a fixed order, a contender would always run
/// after the same other one and be affected by what that leaves behind, such as a lowered clock
/// frequency or powered-down registers.
fn orders(contenders: usize) -> Vec<Vec<usize>> {
    // 0, 1, n - 1, 2, n - 2, ...: all steps differ modulo n. So over the shifts of this order, each
    // contender follows each other one.
    let zigzag = |place: usize| match place % 2 {
        1 => place.div_ceil(2),
        _ => contenders - place / 2,
    };
    let shifted = (0..contenders).map(|shift| {
        let order = (0..contenders).map(|place| (zigzag(place) + shift) % contenders);
        order.collect::<Vec<_>>()
    });
    let mut orders: Vec<_> = shifted.collect();
    // With an odd number, only half of the steps occur, each twice. The reversed orders add the
    // rest.
    if contenders % 2 == 1 {
        let backwards = orders
            .iter()
            .map(|order| order.iter().rev().copied().collect());
        let backwards: Vec<_> = backwards.collect();
        orders.extend(backwards);
    }
    orders
}

/// The time of `calls` calls, in groups no larger than the contender allows.
fn sample(work: &mut dyn Calls, calls: usize, now: &dyn Fn() -> Duration) -> Duration {
    let mut time = Duration::ZERO;
    let mut left = calls;
    while left > 0 {
        let group = left.min(work.max_calls());
        work.prepare(group);
        let start = now();
        work.run(group);
        time += now() - start;
        left -= group;
    }
    time
}

/// Finds out how many calls fill a sample, and how long that takes. The growing trials also warm up
/// the caches, the branch predictors and the CPU's clock.
fn calibrate(
    work: &mut dyn Calls,
    min_sample: Duration,
    now: &dyn Fn() -> Duration,
) -> (usize, Duration) {
    let mut calls = 1usize;
    loop {
        let time = sample(work, calls, now);
        if time >= min_sample {
            return (calls, time);
        }
        // Aim a fifth above the minimum, so that the next trial is likely to be the last. A very
        // short trial is inaccurate, so grow tenfold at most.
        let share = min_sample.as_secs_f64() / time.as_secs_f64().max(1e-9);
        calls = (calls as f64 * (share * 1.2).clamp(1.2, 10.0)).ceil() as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    /// A clock that only the work advances.
    #[derive(Default)]
    struct Fake(Cell<Duration>);

    impl Fake {
        fn spend(&self, micros: u64) {
            self.0.set(self.0.get() + Duration::from_micros(micros));
        }
        fn now(&self) -> Duration {
            self.0.get()
        }
    }

    fn plan() -> Plan {
        Plan {
            samples: 5,
            ..Plan::full()
        }
    }

    #[test]
    fn samples_are_long_enough_and_exact() {
        let clock = Fake::default();
        let now = || clock.now();
        let mut contenders = [
            Contender::new("packetlane", "portable", || clock.spend(3)),
            Contender::new("ring", "", || clock.spend(6)),
        ];
        let samples = in_turn_by(&mut contenders, &plan(), &now, &now);
        assert_eq!(samples[0].seconds.len(), 5);
        assert!((samples[0].summary().median - 3e-6).abs() < 1e-12);
        assert!((samples[0].ahead_of(&samples[1]).median - 2.0).abs() < 1e-9);
        assert!(!samples[0].summary().noisy());
    }

    #[test]
    fn contenders_run_in_turn() {
        let clock = Fake::default();
        let order = RefCell::new(String::new());
        let now = || clock.now();
        let run = |name: char| {
            let (clock, order) = (&clock, &order);
            move || {
                clock.spend(2000);
                order.borrow_mut().push(name);
            }
        };
        let mut contenders = [
            Contender::new("a", "", run('a')),
            Contender::new("b", "", run('b')),
        ];
        let plan = Plan {
            samples: 3,
            ..plan()
        };
        in_turn_by(&mut contenders, &plan, &now, &now);
        // One calibration call of each, then three turns.
        assert_eq!(*order.borrow(), "ababbaab");
    }

    #[test]
    fn no_contender_has_a_better_position() {
        for count in 1..=9 {
            let orders = orders(count);
            let rounds = orders.len() / count;
            for one in 0..count {
                for place in 0..count {
                    let there = orders.iter().filter(|order| order[place] == one);
                    assert_eq!(there.count(), rounds, "{one} of {count} at {place}");
                }
                for other in (0..count).filter(|other| *other != one) {
                    let pairs = orders.iter().flat_map(|order| order.windows(2));
                    let after = pairs.filter(|pair| **pair == [other, one]);
                    assert_eq!(after.count(), rounds, "{one} after {other} of {count}");
                }
            }
        }
    }

    #[test]
    fn short_calls_are_made_untimed_before_a_sample() {
        let clock = Fake::default();
        let now = || clock.now();
        let last = Cell::new(' ');
        // The first call after another contender's takes longer.
        let run = |name: char| {
            let (clock, last) = (&clock, &last);
            move || {
                let again = last.replace(name) == name;
                clock.spend(if again { 100 } else { 500 });
            }
        };
        let mut contenders = [
            Contender::new("a", "", run('a')),
            Contender::new("b", "", run('b')),
        ];
        for samples in in_turn_by(&mut contenders, &plan(), &now, &now) {
            assert!((samples.summary().max - 100e-6).abs() < 1e-12);
        }
    }

    #[test]
    fn preparing_is_not_timed_and_groups_are_bounded() {
        let clock = Fake::default();
        let now = || clock.now();
        let work = Contender::with_input(
            "opens",
            "",
            Vec::new(),
            40,
            |inputs: &mut Vec<bool>, calls| {
                clock.spend(100_000);
                assert!(calls <= 40);
                *inputs = vec![true; calls];
            },
            |inputs, call| {
                assert!(std::mem::take(&mut inputs[call]), "an input served twice");
                clock.spend(10);
            },
        );
        let plan = Plan {
            budget: Duration::from_secs(3600),
            ..plan()
        };
        let samples = in_turn_by(&mut [work], &plan, &now, &now);
        assert!((samples[0].summary().max - 10e-6).abs() < 1e-12);
    }

    #[test]
    fn the_budget_leaves_three_samples() {
        let clock = Fake::default();
        let now = || clock.now();
        let mut slow = [Contender::new("slow", "", || clock.spend(10_000_000))];
        let samples = in_turn_by(&mut slow, &plan(), &now, &now);
        assert_eq!(samples[0].seconds.len(), 3);
    }

    #[test]
    fn the_real_clocks_move() {
        let plan = Plan {
            samples: 3,
            min_sample: Duration::from_micros(50),
            ..Plan::quick()
        };
        for clock in [Clock::ThreadCpu, Clock::Wall] {
            let mut number = 1u64;
            let mut spin = [Contender::new("spin", "", || {
                number = black_box(number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                number
            })];
            let samples = in_turn(&mut spin, &plan.by(clock));
            assert!(samples[0].seconds.iter().all(|&time| time > 0.0));
        }
    }

    #[test]
    fn summaries() {
        let summary = Summary::of(&[4.0, 1.0, 2.0, 3.0]);
        assert_eq!((summary.median, summary.min, summary.max), (2.5, 1.0, 4.0));
        assert!(summary.noisy());
        assert!(!Summary::of(&[100.0, 101.0, 102.0]).noisy());
        // One outlier among many does not make a case noisy.
        let mut values = [100.0; 20];
        values[7] = 900.0;
        assert!(!Summary::of(&values).noisy());
        assert_eq!(Summary::of(&values).interval, [100.0, 100.0]);
    }

    /// The true median is outside the interval if too few values lie on one side of it. The
    /// probability is that of a fair coin landing on one side so rarely.
    #[test]
    fn the_interval_holds_the_true_median_in_95_of_100_runs() {
        for count in 6..=120 {
            let values: Vec<f64> = (0..count).map(f64::from).collect();
            let [low, high] = Summary::of(&values).interval;
            assert_eq!(low + high, f64::from(count - 1), "it is symmetric");
            let mut tail = 0.0;
            let mut chance = 0.5f64.powi(count);
            for below in 0..=low as i32 {
                tail += chance;
                chance *= f64::from(count - below) / f64::from(below + 1);
            }
            assert!(2.0 * tail <= 0.05, "{count} values: {tail}");
            // And it is not wider than necessary: with one value less, it would be too narrow, or
            // nearly.
            assert!(2.0 * (tail + chance) > 0.045, "{count} values: {tail}");
        }
    }
}
