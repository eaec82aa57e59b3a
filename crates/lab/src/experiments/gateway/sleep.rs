//! `gateway.sleep`: the CPU time that a gateway saves by sleeping between turns, and the delay that
//! this adds.

use crate::experiment::{Bench, Experiment, Headline, Task};
use crate::measure::Plan;
use crate::picture::{Bottom, Picture};
use crate::record::enter;
use crate::report::{Case, OURS, Report};
use crate::rivals::proxy::{Proxy, Strategy};
use crate::sentence::Figure;
use crate::traffic::Profile;
use crate::workload::relay::{
    Load, Peers, Relay, node, on_separate_cores, quantile, rate_of_a_peer,
};
use packetlane::Engine;
use std::time::Duration;

const PEERS: usize = 1000;

/// Message rate, as a multiple of the rate of a real node's peers.
const FACTOR: usize = 10;

/// Sleep between turns, in milliseconds.
const TURNS: [u64; 4] = [0, 1, 5, 10];

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "gateway.sleep",
    description: "What a gateway saves by sleeping between turns, and the delay it adds",
    cases,
    headline: Headline {
        case: "turn=5",
        metric: "cpu_per_message",
    },
    sentence,
    pictures: &[
        Picture {
            x: Some(Bottom::linear("turn", "milliseconds between turns")),
            ..Picture::new("cpu_per_message", "CPU time per message")
        },
        Picture {
            x: Some(Bottom::linear("turn", "milliseconds between turns")),
            ..Picture::new("latency_p50", "Delay of a message: the median")
        },
    ],
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let timed = "thread CPU time of a gateway per message of the profile relay between one of \
                 1000 v2 peers and the node, at ten times the rate of a real node's peers; and \
                 the wall time from when it is due until it is read. The gateway sleeps for \
                 `turn` milliseconds after each turn";
    let turns = TURNS
        .into_iter()
        .filter(|turn| !bench.quick || [0, 5].contains(turn));
    let task = |turn: u64| {
        let case = EXPERIMENT.case(timed).with("turn", turn);
        Task::new(case, move |case, plan, report| {
            run(bench.engine, turn, bench.quick, case, plan, report);
        })
    };
    turns.map(task).collect()
}

fn run(engine: Engine, turn: u64, quick: bool, case: &Case, plan: &Plan, report: &mut Report) {
    let profile = Profile::node("relay");
    let node = node();
    let address = node.local_addr().expect("a listener");
    let turn = Duration::from_millis(turn);
    let (proxy, _cores) =
        on_separate_cores(|| Proxy::ours(engine, Strategy::Batches, turn, address));
    let mut relay = Relay::new(engine, &profile, (PEERS, Peers::V2), proxy.address(), &node);
    let load = Load::Rate(rate_of_a_peer(&profile) * (PEERS * FACTOR) as f64);
    let time = match quick {
        true => Duration::from_millis(200),
        false => Duration::from_secs(1),
    };
    let (mut cpu, mut latency) = (Vec::new(), Vec::new());
    let samples = if quick { 2 } else { plan.samples.min(7) };
    for sample in 0..=samples {
        let before = proxy.turns().cpu;
        let mut outcome = relay.run(load, time);
        let after = proxy.turns().cpu;
        // The first one warms up memory and sockets.
        if sample == 0 {
            continue;
        }
        cpu.push((after - before).as_secs_f64() * 1e9 / outcome.messages as f64);
        latency.push(quantile(&mut outcome.latencies, 0.5));
    }
    let of = [OURS, engine.backend().name()];
    enter(report, case, of, ("cpu_per_message", "ns"), &cpu);
    enter(report, case, of, ("latency_p50", "us"), &latency);
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    (figure.metric() == "cpu_per_message").then(|| {
        let turn = figure.key("turn");
        format!("a gateway that sleeps {turn} ms between turns: {figure} of CPU per message")
    })
}
