//! `gateway.latency`: the delay that a proxy adds to a message.

use crate::experiment::{Bench, Experiment, Headline, Task};
use crate::measure::Plan;
use crate::picture::{Bottom, Picture};
use crate::record::enter;
use crate::report::{Case, OURS, Report};
use crate::rivals::event_loop;
use crate::rivals::ours::ONE_AT_A_TIME;
use crate::rivals::proxy::{Proxy, Strategy};
use crate::sentence::Figure;
use crate::traffic::Profile;
use crate::workload::relay::{
    Load, Peers, Relay, node, on_separate_cores, quantile, rate_of_a_peer,
};
use packetlane::Engine;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use std::time::Duration;

const PEERS: usize = 1000;
/// Message rates, as multiples of the rate of a real node's peers.
const FACTORS: [usize; 3] = [1, 3, 10];

/// Quantiles over all messages of a second, and the names of their metrics.
const QUANTILES: [(f64, &str, &str); 3] = [
    (0.5, "latency_p50", "added_p50"),
    (0.99, "latency_p99", "added_p99"),
    (0.999, "latency_p999", "added_p999"),
];
/// The same over the messages of a tenth of a second. In the median tenth, the host has mostly left
/// the machine alone; over a whole second, its interruptions determine the tail for all proxies.
const OF_TENTHS: (f64, &str, &str) = (0.99, "latency_p99_of_tenths", "added_p99_of_tenths");
const TENTHS: u32 = 10;

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "gateway.latency",
    description: "The delay that a gateway adds to a message",
    cases,
    headline: Headline {
        case: "factor=10",
        metric: "added_p99_of_tenths",
    },
    sentence,
    pictures: &[
        Picture {
            x: Some(Bottom::log(
                "factor",
                "times the rate of a real node's peers",
            )),
            log_y: true,
            ..Picture::new("latency_p50", "Delay of a message: the median")
        },
        Picture {
            x: Some(Bottom::log(
                "factor",
                "times the rate of a real node's peers",
            )),
            log_y: true,
            ..Picture::new(
                "latency_p99_of_tenths",
                "Delay of a message: 99 % are faster, in a tenth of a second",
            )
        },
    ],
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let timed = "wall time of a message of the profile relay between one of 1000 peers and the \
                 node, from when it is due until it is read. Peers and node share a thread on one \
                 core, the proxy has a thread on another core. Direct connections use v1; \
                 `bip324` is that crate's sessions in an epoll loop";
    let factors = FACTORS
        .into_iter()
        .filter(|factor| !bench.quick || *factor == 10);
    let task = |factor: usize| {
        let case = EXPERIMENT
            .case(timed)
            .with("peers", PEERS)
            .with("factor", factor);
        Task::new(case, move |case, plan, report| {
            run(bench.engine, factor, bench.quick, case, plan, report);
        })
    };
    factors.map(task).collect()
}

fn run(engine: Engine, factor: usize, quick: bool, case: &Case, plan: &Plan, report: &mut Report) {
    let profile = Profile::node("relay");
    let backend = engine.backend().name();
    let nodes = [(); 5].map(|()| node());
    let at = |place: usize| nodes[place].local_addr().expect("a listener");
    let (proxies, _cores) = on_separate_cores(|| {
        [
            Proxy::ours(engine, Strategy::Batches, Duration::ZERO, at(1)),
            Proxy::ours(engine, Strategy::OneAtATime, Duration::ZERO, at(2)),
            event_loop::proxy(event_loop::bip324_crate, at(3)),
            Proxy::tokio(at(4)),
        ]
    });
    let names = [
        ("direct-v1", ""),
        (OURS, backend),
        (ONE_AT_A_TIME, backend),
        ("bip324", ""),
        ("tokio-bip324", ""),
    ];
    let mut relays: Vec<Relay> = (0..names.len())
        .map(|place| {
            let (speak, address) = match place {
                0 => (Peers::V1, at(0)),
                _ => (Peers::V2, proxies[place - 1].address()),
            };
            Relay::new(engine, &profile, (PEERS, speak), address, &nodes[place])
        })
        .collect();
    let rate = rate_of_a_peer(&profile) * (PEERS * factor) as f64;
    let time = match quick {
        true => Duration::from_millis(300),
        false => Duration::from_secs(1),
    };
    let turns = if quick { 2 } else { plan.samples.min(7) };
    let mut order: Vec<usize> = (0..names.len()).collect();
    let mut random = StdRng::seed_from_u64(1);
    let mut of_seconds = names.map(|_| QUANTILES.map(|_| Vec::new()));
    let mut of_tenths = names.map(|_| Vec::new());
    for turn in 0..=turns {
        // All proxies in each tenth, in random order: after the direct connections, the proxies' core has
        // been idle and wakes up slowly.
        let mut seconds = names.map(|_| Vec::new());
        for _ in 0..TENTHS {
            order.shuffle(&mut random);
            for &number in &order {
                let load = Load::Rate(rate);
                let mut latencies = relays[number].run(load, time / TENTHS).latencies;
                // The first turn warms up memory and sockets.
                if turn > 0 {
                    of_tenths[number].push(quantile(&mut latencies, OF_TENTHS.0));
                    seconds[number].append(&mut latencies);
                }
            }
        }
        for (values, second) in of_seconds.iter_mut().zip(&mut seconds) {
            for (values, (share, ..)) in values.iter_mut().zip(QUANTILES) {
                if turn > 0 {
                    values.push(quantile(second, share));
                }
            }
        }
    }
    let mut enter_all = |metrics: (&str, &str), all: &[&[f64]]| {
        for (number, (name, backend)) in names.into_iter().enumerate() {
            enter(
                report,
                case,
                [name, backend],
                (metrics.0, "us"),
                all[number],
            );
            if number > 0 {
                let more = all[number].iter().zip(all[0]);
                let more: Vec<f64> = more.map(|(own, direct)| own - direct).collect();
                enter(report, case, [name, backend], (metrics.1, "us"), &more);
            }
        }
    };
    for (place, (_, latency, added)) in QUANTILES.into_iter().enumerate() {
        let all = of_seconds.each_ref().map(|of| &of[place][..]);
        enter_all((latency, added), &all);
    }
    let all = of_tenths.each_ref().map(|of| &of[..]);
    enter_all((OF_TENTHS.1, OF_TENTHS.2), &all);
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    (figure.metric() == OF_TENTHS.2).then(|| {
        let (peers, factor) = (figure.key("peers"), figure.key("factor"));
        format!(
            "a gateway with {peers} v2 peers at {factor} times their usual rate adds at most \
             {figure} to 99 % of the messages in a tenth of a second"
        )
    })
}
