//! `shape.detect`: what an observer can tell from sizes and times, without shaping.

use crate::experiment::{Bench, Experiment, Headline, Task};
use crate::observer::score::{enter_score, enter_share};
use crate::observer::trace::{Trace, all_blocks, recorded};
use crate::observer::wire::{Observed, Sides};
use crate::observer::{bitcoin, block, transaction};
use crate::published::Figures;
use crate::report::{Case, Report};
use crate::sentence::Figure;
use packetlane::Engine;
use packetlane::bip324::shape::Shape;

/// Variants of the beginning of each recorded connection.
const BEGINNINGS: u8 = 20;

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "shape.detect",
    description: "What an observer of encrypted connections can tell from sizes and times",
    cases,
    headline: Headline {
        case: "question=block trace=blocks-only-in-core",
        metric: "recall",
    },
    sentence,
    published,
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let engine = bench.engine;
    let timed = "nothing is timed. Traces of Bitcoin Core in fast motion (tools/traces) as TCP \
                 segments of BIP324. Median: the share in per cent; min and max: its 95 % confidence \
                 interval. Precision: of the alarms, those that were right";
    let case = |question: &str| EXPERIMENT.case(timed).with("question", question);
    let mut tasks: Vec<Task<'_>> = kinds()
        .into_iter()
        .map(|kind| {
            let case = case("block").with("trace", kind);
            Task::new(case, move |case, _, report| {
                blocks(engine, kind, case, report)
            })
        })
        .collect();
    let traces = "all";
    tasks.push(Task::new(
        case("bitcoin").with("trace", traces),
        move |case, _, report| is_bitcoin(engine, case, report),
    ));
    tasks.push(Task::new(
        case("transaction").with("trace", traces),
        move |case, _, report| transactions(engine, case, report),
    ));
    tasks
}

/// The kinds of connections in the recording, in its order.
fn kinds() -> Vec<&'static str> {
    let mut kinds: Vec<_> = recorded().iter().map(Trace::kind).collect();
    let mut known = std::collections::HashSet::new();
    kinds.retain(|kind| known.insert(*kind));
    kinds
}

fn unshaped(engine: Engine, traces: &[Trace]) -> Vec<Observed> {
    let observe = |trace| Observed::of(trace, engine, Shape::NONE, Sides::Own, 0);
    traces.iter().map(observe).collect()
}

fn blocks(engine: Engine, kind: &str, case: &Case, report: &mut Report) {
    let of_kind = recorded().iter().filter(|trace| trace.kind() == kind);
    let traces: Vec<Trace> = of_kind.cloned().collect();
    let observed = unshaped(engine, &traces);
    let samples = block::samples(&traces, &observed, 0);
    let (spikes, share) = block::spikes(&samples);
    enter_score(report, case, "twice the mean", spikes);
    enter_share(report, case, ["twice the mean", ""], "seconds", share);
    enter_score(report, case, "classifier", block::classifier(&samples));
    // By the message with which a block came first.
    for first in ["headers", "cmpctblock", "block"] {
        let mut samples = samples.clone();
        for sample in &mut samples {
            sample
                .arrivals
                .retain(|arrival| arrival.message_type.name() == first);
        }
        let (spikes, _) = block::spikes(&samples);
        let metric = format!("recall_of_{first}");
        enter_share(report, case, ["twice the mean", ""], &metric, spikes.recall);
    }
}

fn is_bitcoin(engine: Engine, case: &Case, report: &mut Report) {
    let traces = recorded();
    let observed = unshaped(engine, traces);
    let others = bitcoin::others();
    let blocks = all_blocks(traces);
    let pieces = bitcoin::pieces(&observed, others, &blocks);
    enter_score(
        report,
        case,
        "score of four",
        bitcoin::score_of_four(&pieces),
    );
    enter_score(report, case, "correlation", bitcoin::correlation(&pieces));
    enter_score(report, case, "classifier", bitcoin::classifier(&pieces));
    // Each recorded connection with other garbage in its handshake, several times.
    let beginnings = (1..=BEGINNINGS).flat_map(|seed| {
        let observe = move |trace: &Trace| {
            let messages = trace.messages.iter().take(20).copied().collect();
            let name = trace.name.clone();
            let beginning = Trace { name, messages };
            Observed::of(&beginning, engine, Shape::NONE, Sides::Own, seed)
        };
        traces.iter().map(observe)
    });
    let beginnings: Vec<_> = beginnings.collect();
    let others = bitcoin::other_beginnings(beginnings.len());
    let first = bitcoin::first_segments(&beginnings, &others);
    enter_score(report, case, "first segments", first);
}

fn transactions(engine: Engine, case: &Case, report: &mut Report) {
    let traces = recorded();
    let observed = unshaped(engine, traces);
    let score = transaction::first_sender(traces, &observed, |len| len);
    enter_score(report, case, "length", score);
}

/// The measurement that the first detector follows.
const MAINNET: &str = "\
    A mainnet node of Bitcoin Core 28.1, March 2026, as our issue quotes it: seconds with more than \
    twice the mean bytes of the connection";

fn published(figures: &mut Figures) {
    let unlike =
        "Another network, and no fast motion: the trace's own figure need not be the same.";
    let cases = [
        ("question=block trace=full-relay", 80.0, "8 of 10 blocks."),
        ("question=block trace=blocks-only", 93.1, "27 of 29 blocks."),
        ("question=block trace=compact-blocks", 66.0, "64 to 68 %."),
    ];
    for (case, value, of) in cases {
        figures.add(case, ("recall", value, "%"), MAINNET, &[of, unlike]);
    }
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    (figure.metric() == "recall").then(|| {
        let (question, trace) = (figure.key("question"), figure.key("trace"));
        format!("{question} on {trace}: found in {figure} of the cases")
    })
}
