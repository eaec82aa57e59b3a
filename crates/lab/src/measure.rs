//! Timing, and nothing else: several implementations of one case, in turn, while the
//! machine is in one state.
//!
//! Absolute times drift with the machine's clock and its neighbours, so this module
//! protects the comparison. [`in_turn`] takes one sample of each [`Contender`], then the
//! next of each (A B C A B C ...). The ratio of two contenders comes from samples of the
//! same turn. One sample is as many calls as fill at least a millisecond. One call is one
//! unit of the case's work, usually one batch. Before each sample a quarter as many calls
//! run untimed, unless one call fills a sample: so no contender pays for what the one
//! before it left in the caches.
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
            min_sample: Duration::from_millis(1),
            clock: Clock::ThreadCpu,
            budget: Duration::from_secs(3),
        }
    }

    /// For a first look: fewer samples of the same length.
    pub const fn quick() -> Self {
        Self {
            samples: 7,
            min_sample: Duration::from_millis(1),
            clock: Clock::ThreadCpu,
            budget: Duration::from_millis(400),
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
    /// The width of the middle half as a share of the median.
    pub spread: f64,
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
        let median = quantile(0.5);
        Self {
            median,
            min: sorted[0],
            max: sorted[sorted.len() - 1],
            spread: (quantile(0.75) - quantile(0.25)) / median,
        }
    }

    /// Whether the samples disagree too much to be trusted.
    pub fn noisy(&self) -> bool {
        self.spread > NOISY
    }
}

/// Runs the contenders in turn: A B C A B C, as often as the plan says.
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
    let calls: Vec<usize> = contenders
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
    for turn in 0..plan.samples.max(FEWEST_SAMPLES) {
        if turn >= FEWEST_SAMPLES && wall() - start > plan.budget {
            break;
        }
        for (place, contender) in contenders.iter_mut().enumerate() {
            // Warms the caches, in which another contender has just worked.
            if calls[place] > 1 {
                sample(&mut *contender.work, calls[place].div_ceil(4), now);
            }
            let time = sample(&mut *contender.work, calls[place], now);
            samples[place]
                .seconds
                .push(time.as_secs_f64() / calls[place] as f64);
        }
    }
    samples
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

/// How many calls fill a sample. The growing trials also warm the caches, the branch
/// predictors and the processor's clock.
fn calibrate(work: &mut dyn Calls, min_sample: Duration, now: &dyn Fn() -> Duration) -> usize {
    let mut calls = 1usize;
    loop {
        let time = sample(work, calls, now);
        if time >= min_sample {
            return calls;
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
        assert_eq!(*order.borrow(), "abababab");
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
    }
}
