//! `bip324.sessions`: one packet for each of many sessions, so that keys and counters are not in
//! the caches.

use crate::experiment::{AcrossMachines, Bench, Experiment, Headline, Task};
use crate::measure::{Contender, Plan, in_turn};
use crate::picture::{Bottom, Picture};
use crate::record::{Metric, record, record_times};
use crate::report::{Case, OURS, Report};
use crate::rivals::aead::Ring;
use crate::rivals::bip324::{OneByOne, Runner};
use crate::sentence::Figure;
use crate::traffic::Turn;
use crate::workload::many_sessions::{Order, Receivers, Senders, many_sessions};
use crate::workload::packets::PREPARED_BYTES;
use packetlane::Engine;
use packetlane::bip324::Session;
use std::cell::OnceCell;

/// Numbers of sessions that share a batch. The smallest one is the warm case, whose state stays in
/// the nearest caches; the others are compared with it.
const SESSIONS: [usize; 3] = [64, 1024, 20_000];

/// Contents of a packet, in bytes: an `inv` with one entry.
const BYTES: usize = 61;

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "bip324.sessions",
    description: "One packet for each of many sessions, whose keys have left the caches",
    cases,
    headline: Headline {
        case: "op=seal sessions=20000 order=random",
        metric: "time_per_packet",
    },
    across: &[AcrossMachines {
        label: "BIP324: time per packet with 20,000 sessions, relative to 64; seal, open",
        cases: &[
            "op=seal sessions=20000 order=random",
            "op=open sessions=20000 order=random",
        ],
        metric: "cold_by_warm",
        against: None,
    }],
    sentence,
    pictures: &[Picture {
        x: Some(Bottom::log("sessions", "sessions")),
        facets: &["op", "order"],
        ..Picture::new("time_per_packet", "One packet for each of many sessions")
    }],
    words,
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let engine = bench.engine;
    let mut tasks = Vec::new();
    for op in ["seal", "open"] {
        for order in [Order::Random, Order::Memory] {
            for sessions in SESSIONS {
                // A quick run has one warm and one cold case.
                let first = op == "seal" && order == Order::Random && sessions != SESSIONS[1];
                if bench.quick && !first {
                    continue;
                }
                let timed = "thread CPU time to seal or open one packet of each session, as in \
                             bip324.packet; order: sessions are visited at random or in memory \
                             order, each prefetched eight visits ahead; a batch holds 64 KiB; \
                             cold by warm: time per packet divided by that with 64 sessions";
                let case = EXPERIMENT
                    .case(timed)
                    .with("op", op)
                    .with("sessions", sessions)
                    .with("bytes", BYTES)
                    .with("order", order.name());
                tasks.push(Task::new(case, move |case, plan, report| {
                    run(engine, op, (sessions, order), case, plan, report);
                }));
            }
        }
    }
    tasks
}

fn run(
    engine: Engine,
    op: &str,
    (sessions, order): (usize, Order),
    case: &Case,
    plan: &Plan,
    report: &mut Report,
) {
    let turn = |sessions| Turn::uniform(sessions, BYTES);
    let warm = SESSIONS[0];
    let (many, few) = (turn(sessions), turn(warm));
    // The case for each implementation, and its warm case.
    let mut contenders = Vec::new();
    let both = [(sessions, &many), (warm, &few)];
    for (sessions, turn) in &both[..if sessions == warm { 1 } else { 2 }] {
        let ours = many_sessions(engine, *sessions, order, || engine);
        let ring = many_sessions(engine, *sessions, order, OneByOne::<Ring>::default);
        let wire = OnceCell::new();
        let backend = engine.backend().name();
        contenders.push(contender(OURS, backend, op, ours, turn, &wire));
        contenders.push(contender("ring", "", op, ring, turn, &wire));
    }
    let samples = in_turn(&mut contenders, plan);
    let (own, warm_ones) = samples.split_at(2);
    let metrics = [Metric::time("time_per_packet", "ns", sessions)];
    record(report, case, &metrics, own);
    for (own, warm) in own.iter().zip(warm_ones) {
        let (own, warm) = ((own, sessions), (warm, SESSIONS[0]));
        record_times(report, case, "cold_by_warm", own, warm);
    }
}

/// A contender that seals or opens one packet for each session per call. A first turn checks that
/// it produces `wire`.
fn contender<'a, R: Runner + 'a>(
    name: &str,
    backend: &str,
    op: &str,
    (mut from, mut to): (Senders<R>, Receivers<R>),
    turn: &'a Turn,
    wire: &OnceCell<Vec<u8>>,
) -> Contender<'a> {
    let packet_len = BYTES + Session::OVERHEAD;
    let write = move |from: &mut Senders<R>, wire: &mut Vec<u8>| {
        wire.clear();
        from.seal(turn, |packet| wire.extend_from_slice(packet));
    };
    let mut sealed = Vec::new();
    write(&mut from, &mut sealed);
    let mut genuine = turn.genuine();
    to.open(&sealed, packet_len, |contents| {
        assert!(genuine.next() == Some(contents), "{name}: wrong contents");
    });
    assert!(genuine.next().is_none(), "{name}: packets are missing");
    let expected = wire.get_or_init(|| sealed.clone());
    assert!(*expected == sealed, "{name}: other bytes on the wire");

    if op == "seal" {
        return Contender::new(name, backend, move || {
            let mut len = 0;
            from.seal(turn, |packet| len += packet.len());
            len
        });
    }
    let calls = (PREPARED_BYTES / turn.wire_len()).clamp(1, 4096);
    Contender::with_input(
        name,
        backend,
        vec![Vec::new(); calls],
        calls,
        move |wires: &mut Vec<Vec<u8>>, calls| {
            for wire in &mut wires[..calls] {
                write(&mut from, wire);
            }
        },
        move |wires, call| {
            let mut len = 0;
            to.open(&wires[call], packet_len, |contents| len += contents.len());
            len
        },
    )
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    let times = figure.times_related("cold_by_warm", "the time with 64");
    Some(format!(
        "{} one {}-byte packet for each of {} sessions: {figure} per packet{times}",
        figure.key("op"),
        figure.key("bytes"),
        figure.key("sessions")
    ))
}

fn words(key: &str, value: &str) -> Option<String> {
    match (key, value) {
        ("sessions", _) => Some(format!("{value} sessions")),
        ("order", "random") => Some("visited at random".to_owned()),
        ("order", "memory") => Some("visited in memory order".to_owned()),
        _ => None,
    }
}
