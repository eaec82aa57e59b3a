//! `gateway.connections`: what it costs to accept a v2 connection, and what strangers cost the peers
//! that are connected.

use crate::experiment::{Bench, Experiment, Headline, Task};
use crate::measure::{Plan, Samples};
use crate::picture::Picture;
use crate::record::{Metric, enter, record};
use crate::report::{Case, OURS, Report};
use crate::rivals::proxy::{NETWORK, Proxy, Strategy};
use crate::sentence::Figure;
use crate::traffic::Profile;
use crate::workload::relay::{
    Hello, Load, Peers, Relay, Strangers, connect_from, node, on_separate_cores, quantile,
    rate_of_a_peer,
};
use packetlane::bip324::{Connection, HandshakeConfig, KeyPool};
use packetlane::{Engine, OpenBatch, SealBatch};
use std::io::{IoSlice, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Connections that are opened together.
const WAVE: usize = 64;

/// Peers that are connected, at ten times the rate of a real node's peers.
const PEERS: usize = 100;
const FACTOR: usize = 10;

/// Strangers per second.
const STRANGERS: f64 = 2000.0;

/// How the CPU time of a connection is spent, in the order of the rows.
const PARTS: [&str; 3] = ["kernel", "keys", "rest"];

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "gateway.connections",
    description: "What it costs to accept v2 connections, and what strangers cost other peers",
    cases,
    headline: Headline {
        case: "what=accept",
        metric: "cpu_per_connection",
    },
    sentence,
    pictures: &[Picture {
        facets: &["what"],
        ..Picture::new("cpu_per_connection", "CPU time per connection")
    }],
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let timed = "thread CPU time of the single-threaded proxy per connection, 64 at a time: a v2 \
                 handshake, the first message, which reaches the node over a connection of its \
                 own, and the end. `keys` is the part for computing keys, and for the few packets; \
                 the kernel's part is from its tick accounting";
    let accept = EXPERIMENT.case(timed).with("what", "accept");
    let timed = "99 % of messages take at most so long from when they are due until they are read; \
                 100 v2 peers at ten times the rate of a real node's peers, while 2,000 strangers \
                 a second send 64 random bytes, for which the gateway computes keys, and end; \
                 `elsewhere`: they connect to a listener beside it";
    let strangers = EXPERIMENT.case(timed).with("what", "strangers");
    vec![
        Task::new(accept, |case, plan, report| {
            accepting(bench.engine, bench.quick, case, plan, report);
        }),
        Task::new(strangers, |case, plan, report| {
            beside_strangers(bench.engine, bench.quick, case, plan, report);
        }),
    ]
}

/// Connects peers together, sends the first message of each, and ends all.
fn wave(
    engine: Engine,
    (keys, batches): (&mut KeyPool, &mut (OpenBatch, SealBatch)),
    proxy: SocketAddr,
    node: &TcpListener,
) {
    let (incoming, outgoing) = batches;
    keys.fill().expect("random numbers");
    let hello = Hello::new(0);
    let mut peers: Vec<(TcpStream, Connection)> = Vec::with_capacity(WAVE);
    for _ in 0..WAVE {
        let mut config = HandshakeConfig::random(NETWORK.magic(), engine).expect("random numbers");
        config.keypair = keys.take();
        config.batched = true;
        let connection = Connection::initiator(config).expect("a handshake");
        peers.push((connect_from(Ipv4Addr::LOCALHOST, proxy), connection));
    }
    loop {
        write(&mut peers, outgoing);
        let waits = |peer: &Connection| peer.session().is_none();
        if !peers.iter().any(|(_, peer)| waits(peer)) {
            break;
        }
        for (socket, peer) in peers.iter_mut().filter(|(_, peer)| waits(peer)) {
            let room = incoming.room(8192);
            let len = socket.read(room).expect("the proxy answers");
            assert!(len > 0, "the proxy has closed: {}", peer.closed());
            peer.receive(incoming, len).expect("a handshake");
        }
        engine.open(incoming);
        for (_, peer) in &mut peers {
            let first = peer.next_packet(incoming).expect("a handshake");
            assert!(first.is_none(), "the node has said nothing");
        }
        incoming.clear();
    }
    for (_, peer) in &mut peers {
        hello.push(peer, outgoing);
    }
    engine.seal(outgoing);
    write(&mut peers, outgoing);
    outgoing.clear();
    for _ in 0..WAVE {
        hello.accept(node);
    }
}

/// Writes what all peers have to send.
fn write(peers: &mut [(TcpStream, Connection)], outgoing: &SealBatch) {
    for (socket, peer) in peers {
        let write = |pieces: &[IoSlice<'_>]| socket.write_vectored(pieces);
        peer.outbox.write(outgoing, write).expect("the proxy reads");
    }
}

fn accepting(engine: Engine, quick: bool, case: &Case, plan: &Plan, report: &mut Report) {
    let node = node();
    let address = node.local_addr().expect("a listener");
    let (proxies, _cores) = on_separate_cores(|| {
        let ours = Proxy::ours(engine, Strategy::Batches, Duration::ZERO, address);
        [ours, Proxy::tokio(address)]
    });
    let mut keys = KeyPool::new(engine, WAVE);
    let mut batches = (OpenBatch::new(), SealBatch::new());
    let mut samples = [
        Samples::new(OURS, engine.backend().name()),
        Samples::new("tokio-bip324", ""),
    ];
    let mut parts = PARTS.map(|_| Vec::new());
    let (waves, turns) = if quick {
        (2, 3)
    } else {
        (8, plan.samples.min(15))
    };
    // The first turn warms up memory and the proxies' keys.
    for turn in 0..=turns {
        for (proxy, samples) in proxies.iter().zip(&mut samples) {
            let before = proxy.turns();
            for _ in 0..waves {
                wave(engine, (&mut keys, &mut batches), proxy.address(), &node);
            }
            // For the ends of the last ones, the keys of the next ones, and the thread's counters.
            std::thread::sleep(Duration::from_millis(30));
            let after = proxy.turns();
            if turn == 0 {
                continue;
            }
            let cpu = (after.cpu - before.cpu).as_secs_f64();
            samples.seconds.push(cpu / (waves * WAVE) as f64);
            if !samples.backend.is_empty() {
                let kernel = (after.kernel - before.kernel).as_secs_f64();
                let keys = (after.encryption - before.encryption).as_secs_f64();
                for (shares, part) in parts.iter_mut().zip([kernel, keys, cpu - kernel - keys]) {
                    shares.push(100.0 * part / cpu);
                }
            }
        }
    }
    record(
        report,
        case,
        &[Metric::time("cpu_per_connection", "us", 1)],
        &samples,
    );
    for (part, shares) in PARTS.into_iter().zip(&parts) {
        let case = case.clone().with("part", part);
        let of = [OURS, engine.backend().name()];
        enter(report, &case, of, ("share", "%"), shares);
    }
}

fn beside_strangers(engine: Engine, quick: bool, case: &Case, plan: &Plan, report: &mut Report) {
    let profile = Profile::node("relay");
    let node = node();
    let address = node.local_addr().expect("a listener");
    let (proxy, _cores) =
        on_separate_cores(|| Proxy::ours(engine, Strategy::Batches, Duration::ZERO, address));
    let mut relay = Relay::new(engine, &profile, (PEERS, Peers::V2), proxy.address(), &node);
    let load = Load::Rate(rate_of_a_peer(&profile) * (PEERS * FACTOR) as f64);
    let (time, turns) = match quick {
        true => (Duration::from_millis(300), 3),
        false => (Duration::from_secs(2), plan.samples.min(9)),
    };
    let mut samples = [
        Samples::new(OURS, engine.backend().name()),
        Samples::new("elsewhere", ""),
    ];
    let [with, without] = &mut samples;
    for turn in 0..=turns {
        for (strangers, samples) in [
            (Strangers::elsewhere(STRANGERS), &mut *without),
            (Strangers::of(proxy.address(), STRANGERS), &mut *with),
        ] {
            relay.strangers = Some(strangers);
            let mut outcome = relay.run(load, time);
            if turn > 0 {
                let slow = quantile(&mut outcome.latencies, 0.99) / 1e6;
                samples.seconds.push(slow);
            }
        }
    }
    record(
        report,
        case,
        &[Metric::time("latency_p99", "us", 1)],
        &samples,
    );
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    (figure.metric() == "cpu_per_connection")
        .then(|| format!("a gateway accepts v2 connections: {figure} of CPU for each"))
}
