//! `gateway.cost`: the CPU time of a message through a proxy, and where it goes.

use crate::experiment::{Bench, Experiment, Headline, Task};
use crate::measure::{Clock, Plan, Samples};
use crate::picture::{Bottom, Picture};
use crate::record::{Metric, enter, record};
use crate::report::{Case, OURS, Report};
use crate::rivals::event_loop;
use crate::rivals::proxy::{Proxy, Way};
use crate::sentence::Figure;
use crate::traffic::Profile;
use crate::workload::relay::{Load, Peers, Relay, apart, node};
use packetlane::Engine;
use packetlane_gateway::Turns;
use std::time::Duration;

const PEERS: [usize; 3] = [10, 100, 1000];

/// Messages that each end has on their way: with one a proxy reads and writes each message by
/// itself; with many it is as busy as it can be.
const WINDOWS: [usize; 2] = [1, 16];

/// What the gateway is beside: a process may not have the files for all at once.
const BESIDE: [&str; 2] = ["proxies", "sessions"];

/// Where the CPU time goes, in the order of the rows.
const PARTS: [&str; 5] = ["calls", "kernel", "encryption", "framing", "rest"];

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "gateway.cost",
    description: "The CPU time of a message between v2 peers and a v1 node, through a proxy",
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
            ..Picture::new("cpu_per_message", "CPU time of a message through a proxy")
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
    let timed = "thread CPU time of the proxy, which has one thread, for a message of the profile \
                 relay from a v2 peer to the node or back: each end has `window` messages on their \
                 way at any time, over the loopback device, from another core. The kernel's part is by its own account \
                 of ticks; `calls` is what as many calls take that do nothing, `kernel` the rest of \
                 it. Packets of batches of one, and long ones, are run when they are added: that is in `rest`. Beside \
                 `sessions` all read and write by epoll, in the same kind of loop: `ring` is our \
                 sessions with its AEAD, `bip324` the sessions of that crate";
    let mut tasks = Vec::new();
    for peers in PEERS {
        for window in WINDOWS {
            if bench.quick && peers != 100 {
                continue;
            }
            for beside in BESIDE {
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

/// A proxy, and the load around it.
struct System {
    name: &'static str,
    backend: &'static str,
    proxy: Proxy,
    relay: Relay,
}

/// What a system call takes that does nothing.
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
    let ours = |way| move |node| Proxy::ours(engine, way, Duration::ZERO, node);
    let others = |begin| move |node| event_loop::proxy(begin, node);
    let (mut systems, _apart) = apart(|| match beside {
        "proxies" => vec![
            system(OURS, backend, &ours(Way::Batches)),
            system("epoll", backend, &ours(Way::Epoll)),
            system("one-at-a-time", backend, &ours(Way::OneAtATime)),
            system("tokio-bip324", "", &Proxy::tokio),
        ],
        _ => vec![
            system(OURS, backend, &ours(Way::Epoll)),
            system("ring", "", &others(event_loop::ours_over_ring)),
            system("bip324", "", &others(event_loop::bip324_crate)),
        ],
    });
    let time = match quick {
        true => Duration::from_millis(100),
        false => Duration::from_millis(500),
    };
    let samples = systems.iter().map(|system| Samples {
        implementation: system.name.to_owned(),
        backend: system.backend.to_owned(),
        seconds: Vec::new(),
    });
    let mut samples: Vec<_> = samples.collect();
    let mut parts = vec![PARTS.map(|_| Vec::new()); systems.len()];
    let turns = if quick { 2 } else { plan.samples.min(9) };
    for turn in 0..=turns {
        for (place, system) in systems.iter_mut().enumerate() {
            let before = system.proxy.turns();
            let outcome = system.relay.run(Load::Flat(window), time);
            let after = system.proxy.turns();
            // The first turn warms memory and sockets.
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
        // Of others the parts are not known.
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
            "a gateway with {peers} v2 peers, and {window} messages of each on their way: {figure} of \
             CPU a message"
        )
    })
}

fn words(key: &str, value: &str) -> Option<String> {
    match (key, value) {
        ("window", "1") => Some("one message on its way".to_owned()),
        ("beside", "sessions") => Some("the same loop with the sessions of others".to_owned()),
        ("beside", _) => Some("other ways and proxies".to_owned()),
        ("window", many) => Some(format!("{many} messages on their way")),
        _ => None,
    }
}
