//! `bip324.threads`: one large batch on several threads, compared with one.

use crate::experiment::{Bench, Experiment, Headline, Task};
use crate::measure::{Clock, Contender, Plan, in_turn};
use crate::record::{Metric, record, record_times};
use crate::report::OURS;
use crate::rivals::bip324::{peers, sessions};
use crate::sentence::Figure;
use crate::traffic::Turn;
use crate::workload::threads::thread_counts;
use packetlane::bip324::{Inbound, Outbound};
use packetlane::{Engine, OpenBatch, SealBatch, Slot};

/// Packets in the batch.
const BATCH: usize = 4096;

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "bip324.threads",
    description: "One large batch on several threads",
    cases,
    headline: Headline {
        case: "op=seal threads=2",
        metric: "time_per_packet",
    },
    sentence,
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let engine = bench.engine;
    let profile = &bench.profiles[0];
    let mut tasks = Vec::new();
    for op in ["seal", "open"] {
        for threads in thread_counts() {
            let timed = "wall time of only Engine::seal or Engine::open, without the sessions' \
                         work before and after, which runs on one thread";
            let case = EXPERIMENT
                .case(timed)
                .with("op", op)
                .with("threads", threads)
                .with("profile", &profile.name)
                .with("batch", BATCH);
            tasks.push(Task::new(case, move |case, plan, report| {
                let turn = profile.turns(1, BATCH, 0).remove(0);
                let plan = Plan {
                    min_sample: 100 * plan.min_sample,
                    budget: 3 * plan.budget,
                    ..plan.by(Clock::Wall)
                };
                let counts: &[usize] = if threads == 1 { &[1] } else { &[threads, 1] };
                let engine =
                    |count: &usize| engine.with_threads(u16::try_from(*count).expect("at most 64"));
                let wire = |count| {
                    let [mut from, _] = peers(engine(count));
                    let mut wire = Vec::new();
                    from.seal(&turn, &mut |sealed| wire.extend_from_slice(sealed));
                    wire
                };
                assert!(wire(&threads) == wire(&1), "other bytes on the wire");
                let contender = |count| contender(engine(count), op, &turn);
                let mut contenders: Vec<_> = counts.iter().map(contender).collect();
                let samples = in_turn(&mut contenders, &plan);
                let metrics = [Metric::time("time_per_packet", "ns", BATCH)];
                record(report, case, &metrics, &samples[..1]);
                if let [many, one] = &samples[..] {
                    // A speed-up is the inverse ratio of times.
                    record_times(report, case, "speedup", (one, 1), (many, 1));
                }
            }));
        }
    }
    tasks
}

/// A contender that runs one batch of a connection's packets per call.
fn contender<'a>(engine: Engine, op: &'static str, turn: &'a Turn) -> Contender<'a> {
    struct Line {
        sealing: SealBatch,
        opening: OpenBatch,
        wire: Vec<u8>,
        outbound: Outbound,
        inbound: Inbound,
    }
    let [from, to] = sessions(engine);
    let line = Line {
        sealing: SealBatch::new(),
        opening: OpenBatch::new(),
        wire: Vec::new(),
        outbound: from.outbound,
        inbound: to.inbound,
    };
    let push = move |line: &mut Line| -> Vec<Slot> {
        line.sealing.clear();
        let packets = turn.packets();
        packets
            .map(|(kind, contents)| {
                let slot = line.outbound.push(&mut line.sealing, kind, contents);
                slot.expect("contents of at most 2^24 - 1 bytes")
            })
            .collect()
    };
    Contender::with_input(
        OURS,
        engine.backend().name(),
        line,
        // One batch at a time, as in a turn of an event loop: the sessions have just written it.
        1,
        move |line: &mut Line, _| {
            if op == "seal" {
                push(line);
                return;
            }
            // The packets of the last call must be taken. This also checks them.
            let before = line.inbound.packets(&line.opening);
            let mut opened = before.map(|packet| packet.expect("an authentic packet"));
            assert!(line.wire.is_empty() || opened.by_ref().eq(turn.genuine()));
            drop(opened);
            let slots = push(line);
            engine.seal(&mut line.sealing);
            line.wire.clear();
            for slot in &slots {
                let wire = line.sealing.wire(slot).expect("a sealed packet");
                line.wire.extend_from_slice(wire);
            }
            line.opening.clear();
            let added = line.inbound.feed(&mut line.opening, &line.wire);
            added.expect("packets of an honest peer");
        },
        move |line, _| match op {
            "seal" => engine.seal(&mut line.sealing),
            _ => engine.open(&mut line.opening),
        },
    )
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    let threads = figure.key("threads");
    Some(format!(
        "{} {}, batch {}, on {threads} threads{}: {figure} per packet{}",
        figure.key("op"),
        figure.key("profile"),
        figure.key("batch"),
        figure.sharing(threads),
        figure.times_related("speedup", "as fast as one")
    ))
}
