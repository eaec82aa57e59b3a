//! Timing: several implementations of one case, in turn, on the same machine
//! state.
//!
//! Absolute times drift with the machine's clock and its neighbours, so what
//! this module protects is the comparison. [`in_turn`] takes one sample of each
//! [`Contender`], then the next of each (A B C A B C ...), and the ratio of two
//! contenders comes from samples of the same turn. One sample is as many calls
//! as it takes to fill at least a millisecond; a call is one unit of the case's
//! work, usually one batch. Before each sample a quarter as many calls run untimed
//! (of calls that are shorter than a sample), so that no contender pays for what the
//! one before it left in the caches.
//!
//! An operation that consumes its input (opening a packet in place) needs new
//! input for each call, made outside the measured time. Stopping the clock
//! around every single call would measure the clock, which costs some 300 ns to
//! read; so such a contender prepares the inputs of a whole group of calls, and
//! the group is timed at once. See [`Contender::with_input`].
//!
//! The thread's CPU time is right for work on one thread and wrong for anything
//! that sleeps, uses other threads or waits for a GPU: those take
//! [`Clock::Wall`], and their `timed` text says so.

use crate::report::{Case, OURS, Ratio, Report, Row, is_ours};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::Duration;

/// Middle half of the samples wider than this share of the median: noisy.
const NOISY: f64 = 0.10;

/// Never fewer samples than this, whatever the budget.
const FEWEST_SAMPLES: usize = 3;

/// What counts as time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// CPU time of the calling thread: a busy neighbour does not count.
    ThreadCpu,
    /// Time on the wall, for sockets, threads and GPUs.
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
    /// Samples of each contender.
    pub samples: usize,
    /// The least time of one sample.
    pub min_sample: Duration,
    /// What counts as time.
    pub clock: Clock,
    /// Wall time after which a case takes no further turn (once it has three).
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

    /// For a first look: the same length of sample, but fewer of them.
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
    work: Box<dyn Work + 'a>,
}

impl<'a> Contender<'a> {
    /// A contender whose calls need no new input. `run` is one call; what it
    /// returns is kept from the optimiser.
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
    /// `prepare(&mut state, n)` makes the inputs of the next `n` calls, outside
    /// the measured time; then `run(&mut state, i)` is called for `i` in `0..n`
    /// inside it. `n` is at most `max_calls`, which bounds the memory. Choose it
    /// so that a full group takes 100 us or more where memory allows: the clock
    /// is read twice per group.
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

/// What [`in_turn`] asks of a contender. The loop over calls is inside, so that
/// the call through the box is paid once per group and not once per packet.
trait Work {
    fn max_calls(&self) -> usize;
    fn precompute_keystream(&mut self, calls: usize);
    fn run(&mut self, calls: usize);
}

struct Repeat<F>(F);

impl<R, F: FnMut() -> R> Work for Repeat<F> {
    fn max_calls(&self) -> usize {
        usize::MAX
    }
    fn precompute_keystream(&mut self, _: usize) {}
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

impl<S, R, P: FnMut(&mut S, usize), F: FnMut(&mut S, usize) -> R> Work for Grouped<S, P, F> {
    fn max_calls(&self) -> usize {
        self.max_calls
    }
    fn precompute_keystream(&mut self, calls: usize) {
        (self.prepare)(&mut self.state, calls);
        black_box(&mut self.state);
    }
    fn run(&mut self, calls: usize) {
        for call in 0..calls {
            black_box((self.run)(&mut self.state, call));
        }
    }
}

/// The samples of one contender: seconds per call. The samples at one index of
/// all contenders of a case were taken in the same turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Samples {
    /// The contender's name.
    pub implementation: String,
    /// What ran underneath it.
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

/// What a list of samples comes down to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The middle one, or the mean of the middle two.
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

/// What a figure is called and how it follows from the seconds of one call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metric {
    name: &'static str,
    unit: &'static str,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Time { per_second: f64, items: f64 },
    Rate { amount: f64 },
}

impl Metric {
    /// A time: that of one call, divided among its `items` (packets, hashes).
    /// `unit` is `ns`, `us`, `ms` or `s`.
    pub fn time(name: &'static str, unit: &'static str, items: usize) -> Self {
        let per_second = match unit {
            "ns" => 1e9,
            "us" => 1e6,
            "ms" => 1e3,
            "s" => 1.0,
            _ => panic!("{unit} is no unit of time"),
        };
        let items = items as f64;
        Self {
            name,
            unit,
            kind: Kind::Time { per_second, items },
        }
    }

    /// A rate: `amount` is what one call gets done, in the unit's own measure
    /// (packets for `packets/s`, 10^6 bytes for `MB/s`).
    pub fn rate(name: &'static str, unit: &'static str, amount: f64) -> Self {
        Self {
            name,
            unit,
            kind: Kind::Rate { amount },
        }
    }

    /// The share of one core, in per cent, that `items_per_second` take, of which one
    /// call does `items`.
    pub fn share_of_core(name: &'static str, items: usize, items_per_second: f64) -> Self {
        let per_second = 100.0 * items_per_second;
        let items = items as f64;
        Self {
            name,
            unit: "%",
            kind: Kind::Time { per_second, items },
        }
    }

    fn value(&self, seconds: f64) -> f64 {
        match self.kind {
            Kind::Time { per_second, items } => seconds * per_second / items,
            Kind::Rate { amount } => amount / seconds,
        }
    }
}

/// Runs the contenders in turn: A B C A B C, as often as the plan says.
///
/// Everything that checks their output must happen before. The order of the
/// answer is the order of the contenders.
pub fn in_turn(contenders: &mut [Contender<'_>], plan: &Plan) -> Vec<Samples> {
    in_turn_by(contenders, plan, &|| plan.clock.now(), &|| {
        Clock::Wall.now()
    })
}

/// [`in_turn`] by given clocks: one for the work, one for the budget.
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
            // What the one before left in the caches is not this one's to pay for.
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
fn sample(work: &mut dyn Work, calls: usize, now: &dyn Fn() -> Duration) -> Duration {
    let mut time = Duration::ZERO;
    let mut left = calls;
    while left > 0 {
        let group = left.min(work.max_calls());
        work.precompute_keystream(group);
        let start = now();
        work.run(group);
        time += now() - start;
        left -= group;
    }
    time
}

/// How many calls fill a sample. The growing trials also warm caches, branch
/// predictors and the processor's clock.
fn calibrate(work: &mut dyn Work, min_sample: Duration, now: &dyn Fn() -> Duration) -> usize {
    let mut calls = 1usize;
    loop {
        let time = sample(work, calls, now);
        if time >= min_sample {
            return calls;
        }
        // Aim a fifth above the least, so that the next trial is likely the
        // last; but a trial too short to be read says little, so grow by no
        // more than ten times.
        let share = min_sample.as_secs_f64() / time.as_secs_f64().max(1e-9);
        calls = (calls as f64 * (share * 1.2).clamp(1.2, 10.0)).ceil() as usize;
    }
}

/// Enters the samples of one case into the report: a row for each metric and
/// contender, and a ratio for each metric and rival of [`OURS`] and of our other
/// backends. These are rivals of [`OURS`] themselves, but not of each other.
///
/// Names must differ within a case.
pub fn record(report: &mut Report, case: &Case, metrics: &[Metric], measured: &[Samples]) {
    for metric in metrics {
        for samples in measured {
            let values: Vec<f64> = samples.seconds.iter().map(|&s| metric.value(s)).collect();
            let of = [samples.implementation.as_str(), samples.backend.as_str()];
            enter(report, case, of, (metric.name, metric.unit), &values);
            if !is_ours(&samples.implementation) {
                continue;
            }
            let us = samples;
            for other in measured {
                let rival = match is_ours(&other.implementation) {
                    true => us.implementation == OURS && !std::ptr::eq(us, other),
                    false => true,
                };
                if !rival {
                    continue;
                }
                // All contenders do the same work in a call, so the ratio of rates
                // is the inverse ratio of times: one figure serves both kinds.
                let ratio = us.ahead_of(other);
                report.ratios.push(Ratio {
                    experiment: case.experiment.clone(),
                    case: case.text.clone(),
                    metric: metric.name.to_owned(),
                    implementation: us.implementation.clone(),
                    against: other.implementation.clone(),
                    median: rounded(ratio.median),
                    min: rounded(ratio.min),
                    max: rounded(ratio.max),
                });
            }
        }
    }
}

/// Enters how many times the time of `base`, which was measured in the same turns
/// at another case, `samples` took for each of their items (such as packets), as
/// a row with the unit `x`. Both come with the number of items of one call.
pub fn record_times(
    report: &mut Report,
    case: &Case,
    metric: &str,
    (samples, items): (&Samples, usize),
    (base, base_items): (&Samples, usize),
) {
    let turns = samples.seconds.iter().zip(&base.seconds);
    let share = base_items as f64 / items as f64;
    let values: Vec<f64> = turns.map(|(time, base)| time / base * share).collect();
    let of = [samples.implementation.as_str(), samples.backend.as_str()];
    enter(report, case, of, (metric, "x"), &values);
}

/// Enters by how many per cent the time of `base` grows to that of `samples`, turn by
/// turn: the same work with something more to do.
pub fn record_added(
    report: &mut Report,
    case: &Case,
    metric: &str,
    samples: &Samples,
    base: &Samples,
) {
    let turns = samples.seconds.iter().zip(&base.seconds);
    let values: Vec<f64> = turns
        .map(|(time, base)| 100.0 * (time / base - 1.0))
        .collect();
    let of = [samples.implementation.as_str(), samples.backend.as_str()];
    enter(report, case, of, (metric, "%"), &values);
}

/// Enters a row.
pub(crate) fn enter(
    report: &mut Report,
    case: &Case,
    [implementation, backend]: [&str; 2],
    (metric, unit): (&str, &str),
    values: &[f64],
) {
    let summary = Summary::of(values);
    report.rows.push(Row {
        experiment: case.experiment.clone(),
        case: case.text.clone(),
        implementation: implementation.to_owned(),
        backend: backend.to_owned(),
        metric: metric.to_owned(),
        unit: unit.to_owned(),
        median: rounded(summary.median),
        min: rounded(summary.min),
        max: rounded(summary.max),
        samples: values.len(),
        timed: case.timed.clone(),
        noisy: summary.noisy(),
    });
}

/// Six significant digits: what follows them is noise, and short numbers keep
/// the JSON readable and the same after reading and writing.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Machine;
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
        // Whoever comes after another takes longer at first.
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

    #[test]
    fn a_ratio_above_one_is_in_our_favour_for_times_and_rates() {
        let samples = |name: &str, seconds: [f64; 3]| Samples {
            implementation: name.into(),
            backend: String::new(),
            seconds: seconds.into(),
        };
        let measured = [
            samples("packetlane", [1e-6, 2e-6, 3e-6]),
            samples("ring", [2e-6, 4e-6, 6e-6]),
        ];
        let mut report = Report::new(Machine::here());
        let metrics = [
            Metric::time("time_per_packet", "ns", 10),
            Metric::rate("packets_per_second", "packets/s", 10.0),
        ];
        record(&mut report, &Case::new("x", "all"), &metrics, &measured);
        assert_eq!(report.rows.len(), 4);
        assert!((report.rows[0].median - 200.0).abs() < 1e-9);
        assert!((report.rows[2].max - 1e7).abs() < 1e-3);
        assert_eq!(report.ratios.len(), 2);
        // The machine drifted threefold; the ratio did not.
        for ratio in &report.ratios {
            assert_eq!((ratio.median, ratio.min, ratio.max), (2.0, 2.0, 2.0));
        }
    }

    #[test]
    fn our_other_backends_have_ratios_against_libraries() {
        let samples = |name: &str, seconds: f64| Samples {
            implementation: name.into(),
            backend: String::new(),
            seconds: vec![seconds; 3],
        };
        let measured = [
            samples("packetlane", 1.0),
            samples("packetlane-avx2", 2.0),
            samples("packetlane-portable", 4.0),
            samples("ring", 6.0),
        ];
        let case = Case::new("x", "all");
        let mut report = Report::new(Machine::here());
        record(
            &mut report,
            &case,
            &[Metric::time("time", "s", 1)],
            &measured,
        );
        let ratios: Vec<(&str, &str, f64)> = report
            .ratios
            .iter()
            .map(|r| (&*r.implementation, &*r.against, r.median))
            .collect();
        let expected = [
            ("packetlane", "packetlane-avx2", 2.0),
            ("packetlane", "packetlane-portable", 4.0),
            ("packetlane", "ring", 6.0),
            ("packetlane-avx2", "ring", 3.0),
            ("packetlane-portable", "ring", 1.5),
        ];
        assert_eq!(ratios, expected);
        record_times(
            &mut report,
            &case,
            "cold_by_warm",
            (&measured[2], 10),
            (&measured[0], 5),
        );
        let row = &report.rows[4];
        assert_eq!((row.median, &*row.unit), (2.0, "x"));
    }
}
