//! Timing, and nothing else: several implementations of one case, in turn, while the
//! machine is in one state.
//!
//! Absolute times drift with the machine's clock and its neighbours, so this module
//! protects the comparison. A turn of [`in_turn`] takes one sample of each [`Contender`], and the
//! next turn takes them in another order, so that none gains or loses by its place or by the one
//! before it. The ratio of two contenders comes from samples of the same turn. One sample is as
//! many calls as fill at least [`Plan::min_sample`]. One call is one unit of the case's work,
//! usually one batch. Before each sample as many calls run untimed, unless one takes
//! milliseconds: so no contender pays for what the one before it left in the caches, or for
//! powering up registers that only itself uses.
//!
//! An operation that consumes its input (opening a packet in place) needs new input for
//! each call, made outside the measured time. Reading the clock takes some 300 ns, so
//! stopping it around every call would measure the clock. Such a contender prepares the
//! inputs of a group of calls, and the group is timed as one. See
//! [`Contender::with_input`].
//!
//! The thread's CPU time is right for work on one thread. It is wrong for anything that
//! sleeps, uses other threads or waits for a GPU: those take [`Clock::Wall`], and their
//! `timed` text says so.

use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::Duration;

/// Samples are noisy if their middle half spreads over more than this share of the median.
const NOISY: f64 = 0.10;

/// The fewest samples of a case, whatever the budget.
const FEWEST_SAMPLES: usize = 3;

/// Warming up is little of a sample this long, so nothing runs before it.
const LONG_SAMPLE: Duration = Duration::from_millis(2);

/// What counts as time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// CPU time of the calling thread: a busy neighbour does not count.
    ThreadCpu,
    /// Time that passes, for sockets, threads and GPUs.
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

    /// The clock's name as a `timed` text has it.
    pub fn name(self) -> &'static str {
        match self {
            Clock::ThreadCpu => "thread CPU time",
            Clock::Wall => "wall time",
        }
    }
}

/// How carefully to measure a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// How many samples to take of each contender.
    pub samples: usize,
    /// The shortest time of one sample.
    pub min_sample: Duration,
    /// What counts as time.
    pub clock: Clock,
    /// A case takes no further turn after this much wall time, once it has three.
    pub budget: Duration,
}

impl Plan {
    /// For figures to quote.
    pub const fn full() -> Self {
        Self {
            samples: 31,
            min_sample: Duration::from_micros(200),
            clock: Clock::ThreadCpu,
            budget: Duration::from_secs(1),
        }
    }

    /// For a first look: fewer samples of the same length.
    pub const fn quick() -> Self {
        Self {
            samples: 15,
            min_sample: Duration::from_micros(200),
            clock: Clock::ThreadCpu,
            budget: Duration::from_millis(250),
        }
    }

    /// The same plan by another clock.
    pub const fn by(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }
}

/// One implementation at one case, ready to run.
pub struct Contender<'a> {
    name: String,
    backend: String,
    work: Box<dyn Calls + 'a>,
}

impl<'a> Contender<'a> {
    /// A contender whose calls need no new input. `run` is one call. The optimiser cannot
    /// drop what it returns.
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
    /// `prepare(&mut state, n)` makes the inputs of the next `n` calls, outside the
    /// measured time. Then `run(&mut state, i)` is called inside it for each `i` in `0..n`.
    /// `n` is at most `max_calls`, which bounds the memory. Choose `max_calls` so that a
    /// full group takes 100 us or more where memory allows: the clock is read twice per
    /// group.
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

/// What [`in_turn`] asks of a contender. The loop over calls is inside: the call through
/// the box happens once per group, not once per packet.
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

/// The samples of one contender: seconds per call. Samples of one case with the same index
/// were taken in the same turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Samples {
    /// The contender's name.
    pub implementation: String,
    /// What it ran on, such as `avx512`.
    pub backend: String,
    /// Seconds per call, one for each turn.
    pub seconds: Vec<f64>,
}

impl Samples {
    /// Median, minimum and maximum of the seconds per call.
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

/// The median of some samples, and how far they spread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The middle value, or the mean of the middle two.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Where the middle half of the values begins and ends.
    pub half: [f64; 2],
    /// The 95 % confidence interval of the median, whatever the distribution: this many of the
    /// values lie on either side of it (order statistics). Of fewer than 6 values it is all of
    /// them, and less certain.
    pub interval: [f64; 2],
}

impl Summary {
    /// Summarises at least one value.
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
        // How many of n values are below the median is binomial: n / 2 on average, with a
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

    /// Whether the samples disagree too much to be trusted.
    pub fn noisy(&self) -> bool {
        let [low, high] = self.half;
        (high - low) / self.median > NOISY
    }
}

/// Runs the contenders in turn, as often as the plan says, in an order that changes each turn.
///
/// Check their output before. The samples come back in the order of the contenders.
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
    for turn in 0..plan.samples.max(FEWEST_SAMPLES) {
        if turn >= FEWEST_SAMPLES && wall() - start > plan.budget {
            break;
        }
        for &place in &orders[turn % orders.len()] {
            let contender = &mut contenders[place];
            let (calls, length) = sizes[place];
            // Warms the caches, in which another contender has just worked.
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

/// The orders of the turns, to be taken one after the other and again from the first.
///
/// They are a Williams design: over all of them every contender is equally often at every place,
/// and equally often right after every other. A fixed order would have one contender always run
/// after the same other, whose traces (a clock that wide registers have lowered, registers that
/// are powered down) it would pay for, or not, in every turn.
fn orders(contenders: usize) -> Vec<Vec<usize>> {
    // 0, 1, n - 1, 2, n - 2 ...: each step from one to the next is another one, modulo n. So over
    // the shifts of this order, each contender comes after each other.
    let zigzag = |place: usize| match place % 2 {
        1 => place.div_ceil(2),
        _ => contenders - place / 2,
    };
    let shifted = (0..contenders).map(|shift| {
        let order = (0..contenders).map(|place| (zigzag(place) + shift) % contenders);
        order.collect::<Vec<_>>()
    });
    let mut orders: Vec<_> = shifted.collect();
    // Of an odd number, only half of the steps are there, each twice: backwards come the others.
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

/// How many calls fill a sample, and how long that takes. The growing trials also warm the
/// caches, the branch predictors and the processor's clock.
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
        // Aim a fifth above the minimum, so that the next trial is likely the last. A very
        // short trial says little, so grow tenfold at most.
        let share = min_sample.as_secs_f64() / time.as_secs_f64().max(1e-9);
        calls = (calls as f64 * (share * 1.2).clamp(1.2, 10.0)).ceil() as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    /// A clock that only the work moves.
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
    fn no_contender_has_a_better_place() {
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

    /// The true median is outside of the interval if too few values lie on one side of it, which
    /// chance brings about as often as a coin that falls on one side so seldom.
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
            // And it is no wider than it has to be: one value less is too few, or nearly.
            assert!(2.0 * (tail + chance) > 0.045, "{count} values: {tail}");
        }
    }
}
