//! `gateway.scale`: what a gateway's connections cost as their number grows.

use crate::experiment::{Bench, Experiment, Headline, Task};
use crate::measure::{Clock, Plan};
use crate::picture::{Bottom, Picture};
use crate::record::enter;
use crate::report::{Case, OURS, Report};
use crate::rivals::proxy::{Proxy, Strategy};
use crate::sentence::Figure;
use crate::traffic::Profile;
use crate::workload::processes::{Process, do_task, machine_limit};
use crate::workload::relay::{
    Load, Peers, Relay, connect, node, on_separate_cores, quantile, rate_of_a_peer, stranger,
};
use packetlane::Engine;
use packetlane_gateway::Settings;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use std::net::Ipv4Addr;
use std::time::Duration;

const CONNECTIONS: [usize; 4] = [1000, 4000, 10_000, 50_000];

/// Peers that send, at ten times the rate of a real node's peers.
const ACTIVE: usize = 100;
const FACTOR: usize = 10;

/// Connections from one source address: it has 28,000 ports.
const OF_AN_ADDRESS: usize = 20_000;

/// Connections that send 64 random bytes, for which the gateway makes a key, and end.
const STRANGERS: usize = 2000;

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "gateway.scale",
    description: "What a gateway's connections cost, by their number",
    cases,
    headline: Headline {
        case: "connections=50000",
        metric: "cpu_per_accept",
    },
    sentence,
    pictures: &[
        Picture {
            x: Some(Bottom::log("connections", "idle connections")),
            ..Picture::new("cpu_per_accept", "CPU time of accepting a connection")
        },
        Picture {
            x: Some(Bottom::log("connections", "idle connections")),
            ..Picture::new(
                "cpu_per_message",
                "CPU time per message of 100 active peers",
            )
        },
    ],
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    do_task(bench.engine);
    let timed = "a gateway with one thread and so many idle v2 peers, each with its connection to \
                 the node. If a process may not open so many files, the gateway is this number of \
                 `processes`, with one thread each, which share its ports; peers and node are in as \
                 many others. CPU time is that of all the gateway's threads: per connection, one at \
                 a time, from accepting until the node has the first message; while all are idle; \
                 and per message of 100 more peers at ten times the rate of a real node's peers. \
                 Latency is from when such a message is due until it is read. A stranger sends 64 \
                 random bytes, for which the gateway makes a key, and ends; its own CPU time is \
                 beside. Memory is what a connection takes of the gateway's processes in user space, \
                 at the end";
    let all = CONNECTIONS.into_iter();
    let chosen = all.filter(|&connections| !bench.quick || connections == CONNECTIONS[0]);
    let task = |connections: usize| {
        let case = EXPERIMENT.case(timed).with("connections", connections);
        let processes = processes(connections);
        let case = case.with("processes", processes.max(1));
        Task::new(case, move |case, plan, report| {
            let size = (connections, processes);
            run(bench.engine, size, bench.quick, case, plan, report);
        })
    };
    chosen.map(task).collect()
}

/// The number of processes that the gateway needs. 0 if this one may open enough files for peers,
/// gateway and node.
fn processes(connections: usize) -> usize {
    // Four sockets each, those of strangers that the gateway has not closed yet, and some files.
    let rest = STRANGERS + 1000;
    let wanted = 4 * (connections + ACTIVE) + rest;
    let files = packetlane_files::raise_file_limit(wanted as u64) as usize;
    // The kernel distributes the connections over processes by chance: 5 % more are for that.
    let of_gateway = 2 * (connections + ACTIVE) * 105 / 100;
    match files < wanted {
        true => of_gateway.div_ceil(files.saturating_sub(rest).max(1)),
        false => 0,
    }
}

fn run(
    engine: Engine,
    (connections, processes): (usize, usize),
    quick: bool,
    case: &Case,
    plan: &Plan,
    report: &mut Report,
) {
    let reason = match processes > 0 && quick || processes >= Settings::MAX_INBOUND {
        true => {
            let files = packetlane_files::raise_file_limit(0);
            Some(format!("a process may open only {files} files"))
        }
        false => machine_limit(connections + ACTIVE),
    };
    if let Some(reason) = reason {
        eprintln!("NOT RUN: {}: {reason}", case.text);
        return;
    }
    let profile = Profile::node("relay");
    let mut nodes: Vec<_> = (0..=processes).map(|_| node()).collect();
    let ((proxy, gateway, addresses), _cores) = on_separate_cores(|| match processes {
        0 => {
            let address = nodes[0].local_addr().expect("a listener");
            let proxy = Proxy::ours(engine, Strategy::Batches, Duration::ZERO, address);
            let listen = vec![proxy.address()];
            (Some(proxy), Vec::new(), listen)
        }
        _ => {
            let (gateway, listen) = Process::gateway(processes, &nodes);
            (None, gateway, listen)
        }
    });
    // The first is for the active peers, and for all if there is no other.
    let (address, node) = (addresses[0], nodes.remove(0));
    let mut relay = Relay::new(engine, &profile, (ACTIVE, Peers::V2), address, &node);
    let of = [OURS, engine.backend().name()];
    let here = || proxy.as_ref().map(|proxy| proxy.turns().cpu.as_secs_f64());
    let cpu = || here().unwrap_or_else(|| gateway.iter().map(Process::cpu).sum());
    let memory = || gateway.iter().map(Process::memory).sum::<u64>();
    let (mut idle, mut idle_processes) = (Vec::new(), Vec::new());
    let (before, memory_before) = (cpu(), memory());
    for (part, node) in nodes.into_iter().enumerate() {
        let of_part = (part + 1) * connections / processes - part * connections / processes;
        let from = Ipv4Addr::new(127, 1, 1, 1 + part as u8);
        let process = Process::peers((from, of_part), addresses[part + 1], node);
        idle_processes.push(process);
    }
    if processes == 0 {
        for number in 0..connections {
            let from = Ipv4Addr::new(127, 1, 1, 1 + (number / OF_AN_ADDRESS) as u8);
            let pair = connect(engine, Peers::V2, (from, address), &node, number);
            // Nobody sends any more, so the peer's session can go.
            idle.push(pair.map(|(socket, _)| socket));
        }
    }
    let accepting = (cpu() - before) / connections as f64;
    enter(
        report,
        case,
        of,
        ("cpu_per_accept", "us"),
        &[accepting * 1e6],
    );

    let mut random = StdRng::seed_from_u64(64);
    let (before, own) = (cpu(), Clock::ThreadCpu.now());
    for _ in 0..STRANGERS {
        stranger(address, &mut random);
    }
    let own = (Clock::ThreadCpu.now() - own).as_secs_f64() / STRANGERS as f64;
    // It may still be busy with the last ones.
    std::thread::sleep(Duration::from_millis(500));
    let strangers = (cpu() - before) / STRANGERS as f64;
    enter(
        report,
        case,
        of,
        ("cpu_per_stranger", "us"),
        &[strangers * 1e6],
    );
    enter(
        report,
        case,
        ["stranger", ""],
        ("cpu_per_stranger", "us"),
        &[own * 1e6],
    );

    let (time, samples) = match quick {
        true => (Duration::from_millis(200), 2),
        false => (Duration::from_secs(3), plan.samples.min(5)),
    };
    let load = Load::Rate(rate_of_a_peer(&profile) * (ACTIVE * FACTOR) as f64);
    let [mut at_rest, mut per_message, mut slow] = [(); 3].map(|()| Vec::new());
    for _ in 0..samples {
        let before = cpu();
        std::thread::sleep(time);
        at_rest.push((cpu() - before) / time.as_secs_f64() * 100.0);
        let before = cpu();
        let mut outcome = relay.run(load, time);
        per_message.push((cpu() - before) * 1e9 / outcome.messages as f64);
        slow.push(quantile(&mut outcome.latencies, 0.99));
    }
    enter(report, case, of, ("idle_cpu", "%"), &at_rest);
    enter(report, case, of, ("cpu_per_message", "ns"), &per_message);
    enter(report, case, of, ("latency_p99", "us"), &slow);
    // The memory of this process is mostly that of the peers.
    if processes > 0 {
        let grown = memory().saturating_sub(memory_before) as f64 / 1024.0;
        let metric = ("memory_per_connection", "KiB");
        enter(report, case, of, metric, &[grown / connections as f64]);
    }
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    (figure.metric() == "cpu_per_accept").then(|| {
        let connections = figure.key("connections");
        format!("a gateway with {connections} idle connections: {figure} of CPU for accepting one")
    })
}
