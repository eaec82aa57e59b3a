//! `gateway.turn`: the number of packets in the batches of a gateway.

use crate::experiment::{Bench, Experiment, Headline, Task};
use crate::measure::Plan;
use crate::picture::{Bottom, Lines, Picture};
use crate::record::enter;
use crate::report::{Case, OURS, Report};
use crate::rivals::proxy::{Proxy, Strategy};
use crate::sentence::Figure;
use crate::traffic::Profile;
use crate::workload::relay::{Load, Peers, Relay, node, on_separate_cores, rate_of_a_peer};
use packetlane::Engine;
use std::fmt;
use std::time::Duration;

const PEERS: [usize; 4] = [10, 100, 1000, 4000];

/// How much peers and node send.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rate {
    /// A multiple of the rate of a real node's peers.
    Factor(usize),
    /// As much as the gateway can forward.
    FlatOut,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Factor(factor) => factor.fmt(f),
            Self::FlatOut => f.write_str("flat-out"),
        }
    }
}

const RATES: [Rate; 4] = [
    Rate::Factor(1),
    Rate::Factor(10),
    Rate::Factor(100),
    Rate::FlatOut,
];

/// No gateway on one core forwards more than this: it is at full load.
const MAX_MESSAGES_PER_SECOND: f64 = 50_000.0;

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "gateway.turn",
    description: "How many packets a gateway's batches hold, by peers and rate",
    cases,
    headline: Headline {
        case: "peers=1000 rate=10",
        metric: "packets_median",
    },
    sentence,
    pictures: &[
        Picture {
            x: Some(Bottom::log("peers", "peers")),
            lines: Lines::OursBy("rate"),
            log_y: true,
            ..Picture::new("packets_median", "Packets in a gateway's batch: the median")
        },
        Picture {
            x: Some(Bottom::log("peers", "peers")),
            lines: Lines::OursBy("rate"),
            log_y: true,
            ..Picture::new(
                "packets_p99",
                "Packets in a gateway's batch: 99 % hold at most this many",
            )
        },
    ],
    words,
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let timed = "packets in each non-empty batch that the gateway opens: messages of the profile \
                 relay between v2 peers and the node, over loopback. The gateway does not wait \
                 for a batch to fill";
    let mut tasks = Vec::new();
    for peers in PEERS {
        for rate in RATES {
            if bench.quick && (peers != 100 || rate == Rate::Factor(10)) {
                continue;
            }
            let load = match rate {
                Rate::Factor(factor) => {
                    let one = rate_of_a_peer(&Profile::node("relay"));
                    let all = one * (peers * factor) as f64;
                    if all > MAX_MESSAGES_PER_SECOND {
                        continue;
                    }
                    Load::Rate(all)
                }
                Rate::FlatOut => Load::Flat(16),
            };
            let case = EXPERIMENT
                .case(timed)
                .with("peers", peers)
                .with("rate", rate);
            tasks.push(Task::new(case, move |case, plan, report| {
                run(bench.engine, (peers, load), bench.quick, case, plan, report);
            }));
        }
    }
    tasks
}

fn run(
    engine: Engine,
    (peers, load): (usize, Load),
    quick: bool,
    case: &Case,
    plan: &Plan,
    report: &mut Report,
) {
    let profile = Profile::node("relay");
    let node = node();
    let address = node.local_addr().expect("a listener");
    let start = || Proxy::ours(engine, Strategy::Batches, Duration::ZERO, address);
    let (proxy, _cores) = on_separate_cores(start);
    let mut relay = Relay::new(engine, &profile, (peers, Peers::V2), proxy.address(), &node);
    let time = match quick {
        true => Duration::from_millis(200),
        false => Duration::from_secs(1),
    };
    let turns = if quick { 2 } else { plan.samples.min(5) };
    let metrics = [(0.5, "packets_median"), (0.99, "packets_p99")];
    let mut values = metrics.map(|_| Vec::new());
    for _ in 0..turns {
        let before = proxy.turns().opened;
        relay.run(load, time);
        let mut batches = proxy.turns().opened;
        for (batches, before) in batches.iter_mut().zip(before) {
            *batches -= before;
        }
        for (values, (share, _)) in values.iter_mut().zip(metrics) {
            values.push(quantile(&batches, share) as f64);
        }
    }
    for (values, (_, metric)) in values.iter().zip(metrics) {
        let of = [OURS, engine.backend().name()];
        enter(report, case, of, (metric, "packets"), values);
    }
}

/// The smallest n such that more than a `share` of the batches hold at most n packets.
fn quantile(batches: &[u64], share: f64) -> usize {
    let all: u64 = batches.iter().sum();
    let mut left = (all as f64 * share) as u64;
    let place = batches.iter().position(|&number| {
        let is_here = left < number;
        left = left.saturating_sub(number);
        is_here
    });
    place.unwrap_or(0)
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    (figure.metric() == "packets_median").then(|| {
        let (peers, rate) = (figure.key("peers"), figure.key("rate"));
        format!(
            "packets in a gateway's batch with {peers} peers at {} times their usual rate: median \
             {figure}",
            rate
        )
    })
}

fn words(key: &str, value: &str) -> Option<String> {
    (key == "rate").then(|| match value {
        "flat-out" => "full load".to_owned(),
        factor => format!("{factor} times a real node's rate"),
    })
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[test]
    fn quantiles_of_batches() {
        // Ten batches of one packet and one batch of five.
        let batches = [0, 10, 0, 0, 0, 1];
        assert_eq!(quantile(&batches, 0.5), 1);
        assert_eq!(quantile(&batches, 0.99), 5);
        assert_eq!(quantile(&[], 0.5), 0);
    }
}
