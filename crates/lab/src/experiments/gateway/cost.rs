//! `gateway.cost`: the CPU time per message in a proxy, and how it is spent.

use crate::experiment::{Bench, Experiment, Headline, Task};
use crate::measure::{Clock, Plan, Samples};
use crate::picture::{Bottom, Picture};
use crate::record::{Metric, enter, record};
use crate::report::{Case, OURS, Report};
use crate::rivals::event_loop;
use crate::rivals::ours::ONE_AT_A_TIME;
use crate::rivals::proxy::{Proxy, Strategy};
use crate::sentence::Figure;
use crate::traffic::Profile;
use crate::workload::relay::{Load, Peers, Relay, node, on_separate_cores};
use packetlane::Engine;
use packetlane_gateway::Turns;
use std::time::Duration;

const PEERS: [usize; 3] = [10, 100, 1000];

/// Messages in flight at each end. With 1, a proxy reads and writes each message separately; with
/// many, it is fully loaded.
const WINDOWS: [usize; 2] = [1, 16];

/// What the gateway is compared with. Separate cases, because a process may lack file descriptors
/// for all at once.
const COMPARED_WITH: [&str; 2] = ["proxies", "sessions"];

/// How the CPU time is spent, in the order of the rows.
const PARTS: [&str; 5] = ["calls", "kernel", "encryption", "framing", "rest"];

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "gateway.cost",
    description: "The CPU time per message between v2 peers and a v1 node, through a proxy",
    cases,
    headline: Headline {
        case: "peers=1000 window=16 beside=proxies",
        metric: "cpu_per_message",
    },
    sentence,
    pictures: &[
        Picture {
            x: Some(Bottom::log("peers", "peers")),
            facets: &["window", "beside"],
            ..Picture::new("cpu_per_message", "CPU time per message through a proxy")
        },
        Picture {
            facets: &["window", "beside", "part"],
            ..Picture::new("share", "Share of the gateway's CPU time")
        },
    ],
    words,
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let timed = "thread CPU time of the single-threaded proxy per message of the profile relay, \
                 from a v2 peer to the node or back. Each end has `window` messages in flight, \
                 over loopback, from another core. The kernel's part is from its tick accounting: \
                 `calls` is the time of the same number of empty calls, `kernel` is the rest. \
                 Packets in batches of one, and long ones, are processed when added: they count \
                 as `rest`. With beside=sessions, all run in the same kind of loop: `ring` \
                 is our sessions with its AEAD, `bip324` the sessions of that crate";
    let mut tasks = Vec::new();
    for peers in PEERS {
        for window in WINDOWS {
            if bench.quick && peers != 100 {
                continue;
            }
            for beside in COMPARED_WITH {
                let case = EXPERIMENT.case(timed).with("peers", peers);
                let case = case.with("window", window).with("beside", beside);
                tasks.push(Task::new(case, move |case, plan, report| {
                    let of = (peers, window, beside);
                    run(bench.engine, of, bench.quick, case, plan, report);
                }));
            }
        }
    }
    tasks
}

/// A proxy and its load.
struct System {
    name: &'static str,
    backend: &'static str,
    proxy: Proxy,
    relay: Relay,
}

/// The time of a system call that does nothing.
fn empty_call() -> Duration {
    const CALLS: u32 = 20_000;
    let start = Clock::ThreadCpu.now();
    for _ in 0..CALLS {
        std::hint::black_box(rustix::process::getppid());
    }
    (Clock::ThreadCpu.now() - start) / CALLS
}

fn run(
    engine: Engine,
    (peers, window, beside): (usize, usize, &str),
    quick: bool,
    case: &Case,
    plan: &Plan,
    report: &mut Report,
) {
    let empty_call = empty_call();
    let profile = Profile::node("relay");
    let backend = engine.backend().name();
    let system = |name, backend, start: &dyn Fn(std::net::SocketAddr) -> Proxy| {
        let node = node();
        let address = node.local_addr().expect("a listener");
        let proxy = start(address);
        let relay = Relay::new(engine, &profile, (peers, Peers::V2), proxy.address(), &node);
        System {
            name,
            backend,
            proxy,
            relay,
        }
    };
    let ours = |strategy| move |node| Proxy::ours(engine, strategy, Duration::ZERO, node);
    let others = |begin| move |node| event_loop::proxy(begin, node);
    let (mut systems, _cores) = on_separate_cores(|| match beside {
        "proxies" => vec![
            system(OURS, backend, &ours(Strategy::Batches)),
            system(ONE_AT_A_TIME, backend, &ours(Strategy::OneAtATime)),
            system("tokio-bip324", "", &Proxy::tokio),
        ],
        _ => vec![
            system(OURS, backend, &ours(Strategy::Batches)),
            system("ring", "", &others(event_loop::ours_over_ring)),
            system("bip324", "", &others(event_loop::bip324_crate)),
        ],
    });
    let time = match quick {
        true => Duration::from_millis(100),
        false => Duration::from_millis(500),
    };
    let samples = systems
        .iter()
        .map(|system| Samples::new(system.name, system.backend));
    let mut samples: Vec<_> = samples.collect();
    let mut parts = vec![PARTS.map(|_| Vec::new()); systems.len()];
    let turns = if quick { 2 } else { plan.samples.min(9) };
    for turn in 0..=turns {
        for (place, system) in systems.iter_mut().enumerate() {
            let before = system.proxy.turns();
            let outcome = system.relay.run(Load::Flat(window), time);
            let after = system.proxy.turns();
            // The first turn warms up memory and sockets.
            if turn == 0 {
                continue;
            }
            let cpu = (after.cpu - before.cpu).as_secs_f64();
            samples[place].seconds.push(cpu / outcome.messages as f64);
            let of = |part: fn(&Turns) -> Duration| (part(&after) - part(&before)).as_secs_f64();
            let calls = (after.calls - before.calls) as f64 * empty_call.as_secs_f64();
            let known = [
                calls,
                (of(|turns| turns.kernel) - calls).max(0.0),
                of(|turns| turns.encryption),
                of(|turns| turns.framing),
            ];
            let rest = cpu - known.iter().sum::<f64>();
            for (shares, part) in parts[place].iter_mut().zip([&known[..], &[rest]].concat()) {
                shares.push(100.0 * part / cpu);
            }
        }
    }
    record(
        report,
        case,
        &[Metric::time("cpu_per_message", "ns", 1)],
        &samples,
    );
    for (part, name) in PARTS.into_iter().enumerate() {
        let case = case.clone().with("part", name);
        // For others, the parts are unknown.
        let ours = samples.iter().filter(|samples| !samples.backend.is_empty());
        for (samples, shares) in ours.zip(&parts) {
            let of = [samples.implementation.as_str(), samples.backend.as_str()];
            enter(report, &case, of, ("share", "%"), &shares[part]);
        }
    }
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    (figure.metric() == "cpu_per_message").then(|| {
        let (peers, window) = (figure.key("peers"), figure.key("window"));
        format!(
            "a gateway with {peers} v2 peers and {window} messages in flight at each end: \
             {figure} of CPU per message"
        )
    })
}

fn words(key: &str, value: &str) -> Option<String> {
    match (key, value) {
        ("window", "1") => Some("one message in flight".to_owned()),
        ("beside", "sessions") => Some("the same loop with other sessions".to_owned()),
        ("beside", _) => Some("other strategies and proxies".to_owned()),
        ("window", many) => Some(format!("{many} messages in flight")),
        _ => None,
    }
}
