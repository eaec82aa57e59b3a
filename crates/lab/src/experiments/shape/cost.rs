//! `shape.cost`: what shaping hides, and what it costs.

use crate::experiment::{Bench, Experiment, Headline, Task};
use crate::measure::{Clock, Plan};
use crate::observer::score::enter_share;
use crate::observer::trace::{Trace, all_blocks, recorded};
use crate::observer::wire::{Observed, Sides};
use crate::observer::{bitcoin, block, transaction};
use crate::picture::{Bottom, Lines, Picture};
use crate::record::enter;
use crate::report::{Case, OURS, Report};
use crate::sentence::Figure;
use packetlane::bip324::shape::{Pace, Priority, Shape, Shaper};
use packetlane::bip324::{PacketKind, Role, Session, SessionKeys};
use packetlane::{Engine, SealBatch};
use std::time::Duration;

/// Budgets in 10^6 bytes of decoys a day.
const BUDGETS: [u64; 5] = [5, 20, 50, 200, 1000];

/// Delays in milliseconds.
const DELAYS: [u64; 4] = [0, 200, 2000, 20_000];

/// The budget at which delays are compared.
const BUDGET: u64 = 50;

/// Packets in a batch when decoys are sealed.
const BATCH: usize = 64;

/// A day in seconds.
const DAY: f64 = 86_400.0;

/// Recall by bytes.
const BY_BUDGET: Picture = Picture {
    x: Some(Bottom::log("budget", "MB of decoys a day and direction")),
    facets: &["trace", "sides"],
    held: &[("delay", "0")],
    lines: Lines::OursBy("mode"),
    ..Picture::new(
        "recall",
        "Blocks that the classifier finds, at one false alarm an hour",
    )
};

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "shape.cost",
    description: "What hiding sizes and times of Bitcoin's traffic achieves, and what it costs",
    cases,
    headline: Headline {
        case: "trace=full-relay mode=cover budget=50 delay=0 sides=own",
        metric: "recall",
    },
    sentence,
    words,
    pictures: &[
        BY_BUDGET,
        Picture {
            metric: "spikes_precision",
            title: "Seconds above twice the mean that are blocks",
            ..BY_BUDGET
        },
        Picture {
            title: "Blocks that the classifier finds, if blocks are delayed",
            x: Some(Bottom::log("delay", "milliseconds of delay, blocks too")),
            held: &[("budget", "50")],
            ..BY_BUDGET
        },
    ],
    ..Experiment::EMPTY
};

/// The ways of shaping that the gateway offers.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    None,
    Pad,
    Cover,
    Constant,
}

impl Mode {
    const ALL: [Self; 4] = [Self::None, Self::Pad, Self::Cover, Self::Constant];

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Pad => "pad",
            Self::Cover => "cover",
            Self::Constant => "constant",
        }
    }

    fn shape(self, budget: u64, delay: u64) -> Shape {
        let (budget, delay) = (budget * 1_000_000, Duration::from_millis(delay));
        let shape = match self {
            Self::None => return Shape::NONE,
            Self::Pad => Shape::pad(budget, delay),
            Self::Cover => Shape::cover(budget, delay),
            Self::Constant => Shape::constant(budget, delay),
        };
        Shape {
            delay_urgent: true,
            ..shape
        }
    }
}

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let engine = bench.engine;
    let timed = "nothing is timed but `cpu`: the thread CPU time of sealing a day's decoys of one \
                 direction, 64 packets in a batch. Traces of Bitcoin Core in fast motion \
                 (tools/traces), shaped in one direction or both. Recall: the blocks that a \
                 classifier finds which was trained on traffic shaped like this, in its other half, \
                 at one false alarm an hour; spikes: seconds with more than twice the \
                 mean bytes; bitcoin: parts of connections that a classifier tells from models of \
                 other traffic; sender: transactions whose first sender is known by their length. \
                 Median: the share in per cent; min and max: its 95 % confidence interval";
    let kinds = ["full-relay", "blocks-only"];
    let mut tasks = Vec::new();
    for kind in kinds {
        for sides in [Sides::Own, Sides::Both] {
            for mode in Mode::ALL {
                let by_budget = BUDGETS.map(|budget| (budget, 0));
                let by_delay = DELAYS[1..].iter().map(|delay| (BUDGET, *delay));
                for (budget, delay) in by_budget.into_iter().chain(by_delay) {
                    let is_short = sides == Sides::Own && budget == BUDGET && delay == 0;
                    if bench.quick && !is_short {
                        continue;
                    }
                    let case = EXPERIMENT
                        .case(timed)
                        .with("trace", kind)
                        .with("mode", mode.name())
                        .with("budget", budget)
                        .with("delay", delay)
                        .with(
                            "sides",
                            match sides {
                                Sides::Own => "own",
                                Sides::Both => "both",
                            },
                        );
                    let shape = mode.shape(budget, delay);
                    tasks.push(Task::new(case, move |case, plan, report| {
                        run(engine, kind, (shape, sides), case, plan, report);
                    }));
                }
            }
        }
    }
    tasks
}

fn run(
    engine: Engine,
    kind: &str,
    (shape, sides): (Shape, Sides),
    case: &Case,
    plan: &Plan,
    report: &mut Report,
) {
    let of_kind = recorded()
        .iter()
        .filter(|trace| trace.name.starts_with(kind));
    let traces: Vec<Trace> = of_kind.cloned().collect();
    let observed: Vec<_> = (0..)
        .zip(&traces)
        .map(|(seed, trace)| Observed::of(trace, engine, shape, sides, seed))
        .collect();
    let samples = block::samples(&traces, &observed, shape.max_delay.as_secs());
    let of = [OURS, engine.backend().name()];
    let mut enter_share = |metric, share| enter_share(report, case, of, metric, share);
    let classified = block::classifier(&samples);
    enter_share("recall", classified.recall);
    enter_share("precision", classified.precision);
    let (spikes, _) = block::spikes(&samples);
    enter_share("spikes_recall", spikes.recall);
    enter_share("spikes_precision", spikes.precision);
    let blocks = all_blocks(recorded());
    let pieces = bitcoin::pieces(&observed, bitcoin::others(), &blocks);
    let is_bitcoin = bitcoin::classifier(&pieces);
    enter_share("bitcoin_recall", is_bitcoin.recall);
    enter_share("bitcoin_precision", is_bitcoin.precision);
    let sender = transaction::first_sender(&traces, &observed, |len| match sides {
        Sides::Own => len,
        Sides::Both => shaped_len(engine, shape, len),
    });
    enter_share("sender_recall", sender.recall);

    let shaped: Vec<_> = observed
        .iter()
        .flat_map(|observed| &observed.shaped)
        .collect();
    if shaped.is_empty() {
        return;
    }
    let directions = shaped.len() as f64 / traces.len() as f64;
    let seconds: u64 = observed.iter().map(Observed::seconds).sum();
    let days = seconds as f64 * directions / DAY;
    let decoys: u64 = shaped.iter().map(|counts| counts.decoys).sum();
    let decoy_bytes: u64 = shaped.iter().map(|counts| counts.decoy_bytes).sum();
    let bytes: u64 = observed.iter().map(|observed| observed.shaped_bytes).sum();
    let delay: Duration = shaped.iter().map(|counts| counts.delay).sum();
    let longest = shaped.iter().map(|counts| counts.max_delay).max();
    let mut enter = |metric: &str, unit: &str, value: f64| {
        enter(report, case, of, (metric, unit), &[value]);
    };
    enter("decoys", "MB/day", decoy_bytes as f64 / days / 1e6);
    enter("overhead", "%", 100.0 * decoy_bytes as f64 / bytes as f64);
    // Mean over bytes.
    enter("delay", "ms", delay.as_secs_f64() * 1e3 / bytes as f64);
    enter(
        "longest_delay",
        "ms",
        longest.unwrap_or_default().as_secs_f64() * 1e3,
    );
    if let Some(mean) = decoy_bytes.checked_div(decoys) {
        let each = seal_decoys(engine, mean as usize, plan);
        enter("cpu", "ms/day", each * decoys as f64 / days * 1e3);
    }
}

/// What becomes of a packet of this length that is sent alone.
fn shaped_len(engine: Engine, shape: Shape, wire_len: usize) -> usize {
    // With a budget for it, and nothing else.
    let shape = Shape {
        cover: false,
        pace: Pace::Immediate,
        bytes_per_day: 1 << 40,
        ..shape
    };
    let mut shaper = Shaper::new(shape, engine, [0; 32]);
    shaper.push(Duration::ZERO, wire_len, Priority::Normal);
    while shaper.decoy(Duration::ZERO).is_some() {}
    shaper.released()
}

/// The thread CPU time of sealing one decoy of this length on the wire, in seconds.
fn seal_decoys(engine: Engine, wire_len: usize, plan: &Plan) -> f64 {
    let keys = SessionKeys::derive(&[7; 32], [0; 4]);
    let mut session = Session::from_keys(engine, &keys, Role::Initiator);
    let mut batch = SealBatch::new();
    let contents = vec![0; wire_len.saturating_sub(Session::OVERHEAD)];
    let mut times: Vec<f64> = (0..plan.samples.max(3))
        .map(|_| {
            let before = Clock::ThreadCpu.now();
            for _ in 0..BATCH {
                session
                    .outbound
                    .push(&mut batch, PacketKind::Decoy, &contents)
                    .expect("it fits");
            }
            engine.seal(&mut batch);
            batch.clear();
            (Clock::ThreadCpu.now() - before).as_secs_f64() / BATCH as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Words of the pictures.
fn words(key: &str, value: &str) -> Option<String> {
    let words = match (key, value) {
        ("sides", "own") => "one side shaped",
        ("sides", "both") => "both sides shaped",
        ("delay", "0") => "nothing delayed",
        ("budget", _) => return Some(format!("{value} MB a day")),
        _ => return None,
    };
    Some(words.to_owned())
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    (figure.metric() == "recall").then(|| {
        let key = |key| figure.key(key);
        format!(
            "{} with {} MB of decoys a day and direction and {} ms of delay, on {}: {figure} of the \
             blocks are found",
            key("mode"), key("budget"), key("delay"), key("trace"),
        )
    })
}
