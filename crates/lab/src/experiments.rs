//! The experiments: which cases there are, what each implementation does in one
//! call, and that all do the same before any is timed.
//!
//! A case is built, checked, measured and dropped before the next one is built.

use crate::crowd::{Order, Receivers, Senders, crowd};
#[cfg(feature = "cuda")]
use crate::gpu;
use crate::measure::{Clock, Contender, Metric, Plan, in_turn, record, record_times};
use crate::progress::Progress;
use crate::report::{Case, Machine, OURS, Report, matches};
use crate::rivals::{
    Bare, Implementation, OneByOne, Ours, Peer, Ring, Runner, bare_aeads, bip324_handshake,
    implementations, left_out, ours, peers, sessions, shake_hands,
};
use crate::traffic::{Profile, Turn};
use crate::{capture, hashes, published, quic, send_path};
use bip324::Role::{Initiator, Responder};
use packetlane::bip324::{
    HandshakeConfig, Inbound, Keypair, Network, OVERHEAD, Outbound, Role, Session, SessionKeys,
};
use packetlane::{Batch, Engine, Slot};
use rand::Rng;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Contents, in bytes.
const SIZES: [usize; 11] = [
    8, 33, 61, 128, 250, 512, 1024, 4096, 16_384, 65_536, 1_048_576,
];

/// Packets in a batch.
const BATCHES: [usize; 7] = [1, 4, 16, 64, 256, 1024, 4096];

/// Decoys, in per cent of all packets.
const DECOYS: [usize; 4] = [0, 5, 20, 50];

/// The batch at which decoys are measured.
const DECOY_BATCH: usize = 1024;

/// Batches of one size take no more memory than this; larger cases are left out.
const MAX_BATCH_BYTES: usize = 16 << 20;

/// A case on a profile goes through at least this many packets, so that it meets
/// the profile's long and short ones in their proportion.
const PROFILE_PACKETS: usize = 1024;

/// Sessions that share a batch. The least are the warm ones that the others are
/// compared with: their state stays in the first caches.
const SESSIONS: [usize; 3] = [64, 1024, 20_000];

/// Contents of one packet in a batch of many sessions: a Bitcoin `inv` with one
/// entry.
const SESSION_BYTES: usize = 61;

/// Threads that share the work, as far as the machine has that many.
const THREADS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Packets in a batch that threads share.
const THREADS_BATCH: usize = 4096;

/// Inputs prepared for opening take about this much memory: they stay in the
/// second cache, as what a socket has just written does.
const PREPARED_BYTES: usize = 512 << 10;

/// What to run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The experiments, all if empty.
    pub experiments: Vec<String>,
    /// Only the cases whose text holds all these words.
    pub filter: String,
    /// Fewer cases and samples.
    pub quick: bool,
    /// A recording to replay in place of the built-in one.
    pub replay: Option<PathBuf>,
    /// No batch of the experiments on a GPU has more packets; as many as they ask for if
    /// none.
    pub gpu_packets: Option<usize>,
}

/// What every experiment is given.
pub(crate) struct Bench {
    pub(crate) engine: Engine,
    /// The engine, then the lesser backends.
    ours: Vec<Ours>,
    implementations: Vec<Implementation>,
    profiles: Vec<Profile>,
    pub(crate) quick: bool,
    /// The device, if there is one and an experiment asks for it.
    #[cfg(feature = "cuda")]
    pub(crate) gpu: Option<&'static packetlane::gpu::Gpu>,
    /// The most packets of its batches.
    #[cfg(feature = "cuda")]
    pub(crate) gpu_packets: usize,
}

/// One case, not yet built.
pub(crate) struct Task<'a> {
    case: Case,
    run: Run<'a>,
}

impl<'a> Task<'a> {
    pub(crate) fn new(case: Case, run: impl FnOnce(&Case, &Plan, &mut Report) + 'a) -> Self {
        Self {
            case,
            run: Box::new(run),
        }
    }
}

/// Builds, checks and measures a case, and enters what came out.
type Run<'a> = Box<dyn FnOnce(&Case, &Plan, &mut Report) + 'a>;

/// Lists an experiment's cases.
type Cases = for<'a> fn(&'a Bench) -> Vec<Task<'a>>;

/// Every experiment, by name.
const EXPERIMENTS: &[(&str, Cases)] = &[
    ("bip324.mixed", mixed),
    ("bip324.packet", packet),
    ("bip324.alone", alone),
    ("bip324.latency", latency),
    ("bip324.sessions", many_sessions),
    ("bip324.threads", threads),
    ("bip324.handshake", handshake),
    ("bip324.primitives", primitives),
    ("sha256d.many", hashes::many),
    ("sha256d.d64", hashes::d64),
    ("sha256d.merkle", hashes::merkle),
    ("sha256d.block", hashes::block),
    ("sha256d.files", hashes::files),
    ("quic.packet", quic::packet),
    ("quic.mask", quic::mask),
    ("quic.link", quic::link),
    ("quic.send_path", send_path::send_path),
    #[cfg(feature = "cuda")]
    ("gpu.kernel", gpu::kernel),
    #[cfg(feature = "cuda")]
    ("gpu.latency", gpu::latency),
    #[cfg(feature = "cuda")]
    ("gpu.transfer", gpu::transfer),
    #[cfg(feature = "cuda")]
    ("gpu.streams", gpu::streams),
    #[cfg(feature = "cuda")]
    ("gpu.decoys", gpu::decoys),
    #[cfg(feature = "cuda")]
    ("gpu.batch", gpu::batch),
];

/// Runs what `options` ask for. The experiments on a GPU take the engine's device if it has
/// one, else the one that this process has; the others know of none.
///
/// # Errors
///
/// See [`LabError`].
///
/// # Panics
///
/// If an implementation gives a wrong result: then no figure is worth anything.
pub fn run(engine: Engine, options: &Options) -> Result<Report, LabError> {
    for name in &options.experiments {
        if !EXPERIMENTS.iter().any(|(known, _)| known == name) {
            return Err(LabError::UnknownExperiment(name.clone()));
        }
    }
    let replay = match &options.replay {
        Some(folder) => Profile::replay(folder)?,
        None => Profile::btcd(),
    };
    let chosen = |name: &str| {
        options.experiments.is_empty() || options.experiments.iter().any(|chosen| chosen == name)
    };
    #[cfg(feature = "cuda")]
    let (engine, device) = {
        let wanted = EXPERIMENTS
            .iter()
            .map(|(name, _)| *name)
            .filter(|n| chosen(n));
        let wanted: Vec<&str> = wanted
            .filter(|name| name.starts_with(gpu::PREFIX))
            .collect();
        let device = match (engine.gpu(), wanted.is_empty()) {
            (Some(device), _) => Ok(Some(device)),
            (None, true) => Ok(None),
            (None, false) => gpu::detect().map(Some),
        };
        if let Err(error) = &device {
            if wanted.len() == options.experiments.len() {
                return Err(LabError::NoGpu(error.clone()));
            }
            match options.experiments.is_empty() {
                true => eprintln!("{}*: {error}", gpu::PREFIX),
                false => wanted.iter().for_each(|name| eprintln!("{name}: {error}")),
            }
        }
        (
            engine.with_offload(packetlane::Offload::Never),
            device.ok().flatten(),
        )
    };
    let ours = ours(engine, options.quick);
    let bench = Bench {
        engine,
        implementations: implementations(&ours),
        ours,
        profiles: vec![
            Profile::mail(),
            Profile::node("relay"),
            Profile::node("listening"),
            Profile::node("archive"),
            replay,
        ],
        quick: options.quick,
        #[cfg(feature = "cuda")]
        gpu: device,
        #[cfg(feature = "cuda")]
        gpu_packets: options.gpu_packets.unwrap_or(usize::MAX),
    };
    let tasks: Vec<Task<'_>> = EXPERIMENTS
        .iter()
        .filter(|(name, _)| chosen(name))
        .flat_map(|(_, cases)| cases(&bench))
        .filter(|task| matches(&task.case.text, &options.filter))
        .collect();
    if tasks.is_empty() {
        return Err(LabError::NoCase(options.filter.clone()));
    }
    let plan = if options.quick {
        Plan {
            samples: 5,
            budget: Duration::from_millis(250),
            ..Plan::quick()
        }
    } else {
        Plan {
            samples: 15,
            budget: Duration::from_millis(1000),
            ..Plan::full()
        }
    };
    let mut report = Report::new(Machine::here());
    let progress = Progress::new(tasks.len());
    if let Some(line) = left_out() {
        progress.note(line);
    }
    #[cfg(feature = "cuda")]
    {
        let taken = device.map(|device| device.name().to_owned());
        report.machine.gpu = taken.or_else(|| packetlane::gpu::device_name().ok());
    }
    for task in tasks {
        progress.start(&format!("{} {}", task.case.experiment, task.case.text));
        (task.run)(&task.case, &plan, &mut report);
        progress.finish_one();
    }
    #[cfg(feature = "cuda")]
    gpu::conclude(&mut report);
    report.published = published::beside(&report.experiments());
    Ok(report)
}

/// The names of all experiments.
#[must_use]
pub fn names() -> Vec<&'static str> {
    EXPERIMENTS.iter().map(|(name, _)| *name).collect()
}

/// Makes the two ends of every implementation, sends `turns` from the first to
/// the second and checks that all put the same bytes on the wire and take the
/// same contents from it.
fn connected<'a>(
    implementations: &'a [Implementation],
    turns: &[Turn],
) -> Vec<(&'a Implementation, [Box<dyn Peer>; 2])> {
    let mut expected: Option<Vec<u8>> = None;
    let connect = |implementation: &'a Implementation| {
        let [mut from, mut to] = implementation.connect();
        let mut wire = Vec::new();
        for turn in turns {
            let mut genuine = turn.genuine();
            from.seal(turn, &mut |sealed| {
                wire.extend_from_slice(sealed);
                to.open(sealed, &mut |contents| {
                    assert!(
                        genuine.next() == Some(contents),
                        "{}: wrong contents",
                        implementation.name
                    );
                });
            });
            assert!(
                genuine.next().is_none(),
                "{}: packets are missing",
                implementation.name
            );
        }
        let expected = expected.get_or_insert_with(|| wire.clone());
        assert!(
            *expected == wire,
            "{}: other bytes on the wire",
            implementation.name
        );
        (implementation, [from, to])
    };
    implementations.iter().map(connect).collect()
}

/// Contenders that seal `turns`, one after the other, in each call.
fn sealing<'a>(implementations: &'a [Implementation], turns: &'a [Turn]) -> Vec<Contender<'a>> {
    connected(implementations, turns)
        .into_iter()
        .map(|(implementation, [mut from, _])| {
            Contender::new(&implementation.name, implementation.backend, move || {
                let mut len = 0;
                for turn in turns {
                    from.seal(turn, &mut |sealed| len += sealed.len());
                }
                len
            })
        })
        .collect()
}

/// Contenders that open one turn in each call, as its bytes come from a socket.
fn opening<'a>(implementations: &'a [Implementation], turn: &'a Turn) -> Vec<Contender<'a>> {
    let calls = (PREPARED_BYTES / turn.wire_len()).clamp(1, 4096);
    connected(implementations, std::slice::from_ref(turn))
        .into_iter()
        .map(|(implementation, [mut from, mut to])| {
            Contender::with_input(
                &implementation.name,
                implementation.backend,
                vec![Vec::new(); calls],
                calls,
                move |wires: &mut Vec<Vec<u8>>, calls| {
                    for wire in &mut wires[..calls] {
                        wire.clear();
                        from.seal(turn, &mut |sealed| wire.extend_from_slice(sealed));
                    }
                },
                move |wires, call| {
                    let mut len = 0;
                    to.open(&wires[call], &mut |contents| len += contents.len());
                    len
                },
            )
        })
        .collect()
}

/// One size, sealed or opened, by batch.
fn packet(bench: &Bench) -> Vec<Task<'_>> {
    let sizes: &[usize] = if bench.quick {
        &[61, 250, 1024, 16_384]
    } else {
        &SIZES
    };
    let batches: &[usize] = if bench.quick { &[1, 64] } else { &BATCHES };
    let mut tasks = Vec::new();
    for op in ["seal", "open"] {
        for &bytes in sizes {
            for &batch in batches {
                if bytes * batch <= MAX_BATCH_BYTES {
                    let timed = match op {
                        "seal" => {
                            "thread CPU time to copy the contents into packets and seal them: \
                             length cipher, header, AEAD, rekeys"
                        }
                        _ => {
                            "thread CPU time to take the bytes of a socket, open the packets and \
                             visit their contents: length cipher, header, AEAD, rekeys"
                        }
                    };
                    let case = Case::new("bip324.packet", timed)
                        .with("op", op)
                        .with("bytes", bytes)
                        .with("batch", batch);
                    tasks.push(uniform(bench, case, op, bytes, batch));
                }
            }
        }
    }
    tasks
}

/// One session that has one packet at a time to send.
fn alone(bench: &Bench) -> Vec<Task<'_>> {
    let sizes: &[usize] = if bench.quick { &[61, 1024] } else { &SIZES };
    let mut tasks = Vec::new();
    for op in ["seal", "open"] {
        for &bytes in sizes {
            let timed = "thread CPU time of one whole packet of one session, in a batch of its own; \
                 ours with the keystream that it computes ahead, at most 1 KiB";
            let case = Case::new("bip324.alone", timed)
                .with("op", op)
                .with("bytes", bytes);
            tasks.push(uniform(bench, case, op, bytes, 1));
        }
    }
    tasks
}

/// Packets of one size, sealed or opened.
fn uniform<'a>(
    bench: &'a Bench,
    case: Case,
    op: &'static str,
    bytes: usize,
    batch: usize,
) -> Task<'a> {
    Task {
        case,
        run: Box::new(move |case, plan, report| {
            let turn = Turn::uniform(batch, bytes);
            let mut contenders = match op {
                "seal" => sealing(&bench.implementations, std::slice::from_ref(&turn)),
                _ => opening(&bench.implementations, &turn),
            };
            let samples = in_turn(&mut contenders, plan);
            let metrics = [Metric::time("time_per_packet", "ns", batch)];
            record(report, case, &metrics, &samples);
        }),
    }
}

/// How many turns of `batch` packets a case on a profile goes through.
fn turns_of(batch: usize) -> usize {
    PROFILE_PACKETS.div_ceil(batch)
}

/// Traffic of a profile, sealed by one session and opened by the other.
fn mixed(bench: &Bench) -> Vec<Task<'_>> {
    let mut tasks = Vec::new();
    for profile in &bench.profiles {
        let quick_batches: &[usize] = if profile.name == "archive" {
            &[64]
        } else {
            &[1, 64, 1024]
        };
        let batches: &[usize] = if bench.quick { quick_batches } else { &BATCHES };
        let decoys = DECOYS.iter().skip(1).map(|&decoys| (DECOY_BATCH, decoys));
        let decoys = decoys.filter(|_| !bench.quick || profile.name == "mail");
        for (batch, decoys) in batches.iter().map(|&batch| (batch, 0)).chain(decoys) {
            let case = Case::new(
                "bip324.mixed",
                "thread CPU time of both ends: contents to wire and back, without the handshake; \
                 packets and goodput count what is no decoy; a batch is sent when it holds 256 KiB",
            )
            .with("profile", &profile.name)
            .with("batch", batch)
            .with("decoys", decoys);
            tasks.push(Task {
                case,
                run: Box::new(move |case, plan, report| {
                    let turns = profile.turns(turns_of(batch), batch, decoys);
                    run_mixed(bench, &turns, case, plan, report);
                }),
            });
        }
    }
    tasks
}

#[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn run_mixed(bench: &Bench, turns: &[Turn], case: &Case, plan: &Plan, report: &mut Report) {
    let mut contenders: Vec<_> = connected(&bench.implementations, turns)
        .into_iter()
        .map(|(implementation, [mut from, mut to])| {
            Contender::new(&implementation.name, implementation.backend, move || {
                let mut len = 0;
                for turn in turns {
                    from.seal(turn, &mut |sealed| {
                        to.open(sealed, &mut |contents| len += contents.len());
                    });
                }
                len
            })
        })
        .collect();
    let packets: usize = turns.iter().map(|turn| turn.genuine().count()).sum();
    let contents: usize = turns
        .iter()
        .flat_map(|turn| turn.genuine().map(<[u8]>::len))
        .sum();
    let wire: usize = turns.iter().map(Turn::wire_len).sum();
    let metrics = [
        Metric::rate("packets_per_second", "packets/s", packets as f64),
        Metric::rate("goodput", "MB/s", contents as f64 / 1e6),
    ];
    let samples = in_turn(&mut contenders, plan);
    record(report, case, &metrics, &samples);
    let overhead = 100.0 * (wire - contents) as f64 / contents as f64;
    report.counted(case, OURS, "overhead", "%", overhead);
}

/// How long a batch takes from its first packet on.
fn latency(bench: &Bench) -> Vec<Task<'_>> {
    let mut tasks = Vec::new();
    let profiles = bench
        .profiles
        .iter()
        .filter(|p| !bench.quick || p.name == "mail");
    for profile in profiles {
        for &batch in &BATCHES {
            let case = Case::new(
                "bip324.latency",
                "thread CPU time to copy a batch's contents into packets and seal them: its last \
                 packet waits that long",
            )
            .with("profile", &profile.name)
            .with("batch", batch);
            tasks.push(Task {
                case,
                run: Box::new(move |case, plan, report| {
                    let turns = profile.turns(turns_of(batch), batch, 0);
                    let mut contenders = sealing(&bench.implementations, &turns);
                    let samples = in_turn(&mut contenders, plan);
                    let metrics = [
                        Metric::time("time_per_batch", "us", turns.len()),
                        Metric::time("time_per_packet", "ns", turns.len() * batch),
                    ];
                    record(report, case, &metrics, &samples);
                }),
            });
        }
    }
    tasks
}

/// One packet of each of many sessions, so that keys and counters are cold.
fn many_sessions(bench: &Bench) -> Vec<Task<'_>> {
    let engine = bench.engine;
    let mut tasks = Vec::new();
    for op in ["seal", "open"] {
        for order in [Order::Random, Order::Memory] {
            for sessions in SESSIONS {
                // The first look: warm and cold.
                let first = op == "seal" && order == Order::Random && sessions != SESSIONS[1];
                if bench.quick && !first {
                    continue;
                }
                let timed = "thread CPU time to seal or open one packet of each session, as in \
                     bip324.packet; order: how the sessions are visited, at random or as they lie \
                     in memory, each asked for (prefetch) eight visits before; cold by warm: a \
                     packet's time beside that with 64 sessions";
                let case = Case::new("bip324.sessions", timed)
                    .with("op", op)
                    .with("sessions", sessions)
                    .with("bytes", SESSION_BYTES)
                    .with("order", order.name());
                tasks.push(Task {
                    case,
                    run: Box::new(move |case, plan, report| {
                        run_sessions(engine, op, (sessions, order), case, plan, report);
                    }),
                });
            }
        }
    }
    tasks
}

fn run_sessions(
    engine: Engine,
    op: &str,
    (sessions, order): (usize, Order),
    case: &Case,
    plan: &Plan,
    report: &mut Report,
) {
    let turn = |sessions| Turn::uniform(sessions, SESSION_BYTES);
    let warm = SESSIONS[0];
    let (many, few) = (turn(sessions), turn(warm));
    // Of each implementation the case, and beside it the warm case.
    let mut contenders = Vec::new();
    let both = [(sessions, &many), (warm, &few)];
    for (sessions, turn) in &both[..if sessions == warm { 1 } else { 2 }] {
        let ours = crowd(engine, *sessions, order, || engine);
        let ring = crowd(engine, *sessions, order, OneByOne::<Ring>::default);
        let wire = std::cell::OnceCell::new();
        let backend = engine.backend().name();
        contenders.push(of_crowd(OURS, backend, op, ours, turn, &wire));
        contenders.push(of_crowd("ring", "", op, ring, turn, &wire));
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

/// A contender that seals or opens one packet of each session in a call, after
/// one turn that must put `wire` on the wire.
fn of_crowd<'a, R: Runner + 'a>(
    name: &str,
    backend: &str,
    op: &str,
    (mut from, mut to): (Senders<R>, Receivers<R>),
    turn: &'a Turn,
    wire: &std::cell::OnceCell<Vec<u8>>,
) -> Contender<'a> {
    let packet_len = SESSION_BYTES + OVERHEAD;
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

/// One large batch on several threads, beside one.
fn threads(bench: &Bench) -> Vec<Task<'_>> {
    let engine = bench.engine;
    let profile = &bench.profiles[0];
    let siblings = siblings();
    let mut tasks = Vec::new();
    for op in ["seal", "open"] {
        for threads in thread_counts() {
            let timed = format!(
                "wall time of Engine::seal or Engine::open alone, without what sessions do before \
                 and after on one thread; {siblings}"
            );
            let case = Case::new("bip324.threads", &timed)
                .with("op", op)
                .with("threads", threads)
                .with("profile", &profile.name)
                .with("batch", THREADS_BATCH);
            tasks.push(Task {
                case,
                run: Box::new(move |case, plan, report| {
                    let turn = profile.turns(1, THREADS_BATCH, 0).remove(0);
                    let plan = Plan {
                        min_sample: 20 * plan.min_sample,
                        budget: 3 * plan.budget,
                        ..plan.by(Clock::Wall)
                    };
                    let counts: &[usize] = if threads == 1 { &[1] } else { &[threads, 1] };
                    let engine = |count: &usize| {
                        engine.with_threads(u16::try_from(*count).expect("at most 64"))
                    };
                    let wire = |count| {
                        let [mut from, _] = peers(engine(count));
                        let mut wire = Vec::new();
                        from.seal(&turn, &mut |sealed| wire.extend_from_slice(sealed));
                        wire
                    };
                    assert!(wire(&threads) == wire(&1), "other bytes on the wire");
                    let contender = |count| by_threads(engine(count), op, &turn);
                    let mut contenders: Vec<_> = counts.iter().map(contender).collect();
                    let samples = in_turn(&mut contenders, &plan);
                    let metrics = [Metric::time("time_per_packet", "ns", THREADS_BATCH)];
                    record(report, case, &metrics, &samples[..1]);
                    if let [many, one] = &samples[..] {
                        // How many times as fast, so the other way round.
                        record_times(report, case, "speedup", (one, 1), (many, 1));
                    }
                }),
            });
        }
    }
    tasks
}

/// A contender that runs one batch of a connection's packets in a call.
fn by_threads<'a>(engine: Engine, op: &'static str, turn: &'a Turn) -> Contender<'a> {
    struct Line {
        batch: Batch,
        wire: Vec<u8>,
        outbound: Outbound,
        inbound: Inbound,
    }
    let [from, to] = sessions(engine);
    let line = Line {
        batch: Batch::new(),
        wire: Vec::new(),
        outbound: from.outbound,
        inbound: to.inbound,
    };
    let push = move |line: &mut Line| -> Vec<Slot> {
        line.batch.clear();
        let packets = turn.packets();
        packets
            .map(|(kind, contents)| {
                let slot = line.outbound.push(&mut line.batch, kind, contents);
                slot.expect("contents of at most 2^24 - 1 bytes")
            })
            .collect()
    };
    Contender::with_input(
        OURS,
        engine.backend().name(),
        line,
        // The batch is as a turn of an event loop leaves it to the engine: the
        // sessions have just written it.
        1,
        move |line: &mut Line, _| {
            if op == "seal" {
                push(line);
                return;
            }
            // What the call before opened must be taken: it is also the check.
            let before = line.inbound.packets(&line.batch);
            let opened = before.map(|packet| packet.expect("an authentic packet"));
            assert!(line.wire.is_empty() || opened.eq(turn.genuine()));
            let slots = push(line);
            engine.seal(&mut line.batch);
            line.wire.clear();
            for slot in &slots {
                line.wire.extend_from_slice(line.batch.wire(slot));
            }
            line.batch.clear();
            line.inbound.feed(&mut line.batch, &line.wire);
        },
        move |line, _| match op {
            "seal" => engine.seal(&mut line.batch),
            _ => engine.open(&mut line.batch),
        },
    )
}

/// Numbers of threads that this machine can run at once.
pub(crate) fn thread_counts() -> impl Iterator<Item = usize> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    THREADS.into_iter().filter(move |threads| *threads <= cores)
}

/// Whether threads of this machine share a core, in words.
pub(crate) fn siblings() -> String {
    let list = |cpu| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        std::fs::read_to_string(path).ok()
    };
    let lists: Vec<String> = (0..).map_while(list).collect();
    match lists.iter().find(|list| list.contains([',', '-'])) {
        _ if lists.is_empty() => "whether its CPUs share cores is not known".to_owned(),
        Some(shared) => format!("CPUs {} are one core", shared.trim()),
        None => "says the system, no two of its CPUs share a core".to_owned(),
    }
}

/// The steps of a handshake, and the whole.
fn handshake(bench: &Bench) -> Vec<Task<'_>> {
    let engine = bench.engine;
    let pair = |byte: u8| Keypair::new(&[byte; 32], &[byte; 32]).expect("a secret key");
    let task = |step: &str, timed: &str, contenders: fn(Engine) -> Vec<Contender<'static>>| Task {
        case: Case::new("bip324.handshake", timed).with("step", step),
        run: Box::new(move |case, plan, report| {
            let samples = in_turn(&mut contenders(engine), plan);
            record(report, case, &[Metric::time("time", "us", 1)], &samples);
        }),
    };
    // Both derive the same keys, or nothing below means anything.
    let (ours, theirs) = (pair(1), pair(2));
    assert_eq!(
        ours.shared_secret(theirs.public(), Role::Initiator),
        theirs.shared_secret(ours.public(), Role::Responder),
    );
    let [a, b] = shake_hands(fresh_config(engine), fresh_config(engine));
    assert_eq!(a.id(), b.id());
    let [a, b] = bip324_handshake(bip324_start(Initiator), bip324_start(Responder));
    assert_eq!(a.id(), b.id());

    vec![
        task(
            "create",
            "thread CPU time of a new secret key and its ElligatorSwift public key",
            |engine| {
                vec![
                    Contender::new(OURS, engine.backend().name(), move || {
                        let config = fresh_config(engine);
                        Keypair::new(&config.secret, &config.auxiliary).expect("a secret key")
                    }),
                    Contender::new("bip324", "", || bip324_start(Initiator)),
                ]
            },
        ),
        task(
            "xdh",
            "thread CPU time of the shared secret from one's own and the peer's key",
            |engine| {
                let pair = |byte: u8| Keypair::new(&[byte; 32], &[byte; 32]).expect("a secret key");
                let (ours, theirs) = (pair(1), pair(2));
                vec![Contender::new(OURS, engine.backend().name(), move || {
                    ours.shared_secret(theirs.public(), Role::Initiator)
                })]
            },
        ),
        task(
            "derive",
            "thread CPU time of HKDF and of both ciphers, from the shared secret",
            |engine| {
                vec![Contender::new(OURS, engine.backend().name(), move || {
                    let keys = SessionKeys::derive(&[3; 32], Network::Mainnet.magic());
                    Session::from_keys(engine, &keys, Role::Initiator)
                })]
            },
        ),
        task(
            "both_sides",
            "thread CPU time of both sides together, from nothing to two sessions, without garbage",
            |engine| {
                vec![
                    Contender::new(OURS, engine.backend().name(), move || {
                        shake_hands(fresh_config(engine), fresh_config(engine))
                    }),
                    Contender::new("bip324", "", || {
                        bip324_handshake(bip324_start(Initiator), bip324_start(Responder))
                    }),
                ]
            },
        ),
    ]
}

/// Fresh secrets from the generator that `bip324` uses too; no garbage.
fn fresh_config(engine: Engine) -> HandshakeConfig {
    let mut secrets = [[0; 32]; 2];
    let mut rng = rand::rng();
    secrets.iter_mut().for_each(|secret| rng.fill_bytes(secret));
    HandshakeConfig::new(Network::Mainnet.magic(), engine, secrets[0], secrets[1])
}

/// The beginning of a handshake of the `bip324` crate, as its users begin one.
fn bip324_start(role: bip324::Role) -> bip324::Handshake<bip324::Initialized> {
    bip324::Handshake::new(Network::Mainnet.magic(), role).expect("entropy")
}

/// The ciphers alone.
fn primitives(bench: &Bench) -> Vec<Task<'_>> {
    let sizes: &[usize] = if bench.quick {
        &[61, 1024, 16_384]
    } else {
        &SIZES
    };
    let mut tasks = Vec::new();
    let mut add = |primitive: &str, bytes: usize, timed: &str, contenders: Build| {
        let case = Case::new("bip324.primitives", timed)
            .with("primitive", primitive)
            .with("bytes", bytes);
        tasks.push(Task {
            case,
            run: Box::new(move |case, plan, report| {
                let samples = in_turn(&mut contenders(&bench.ours, bytes), plan);
                record(report, case, &[Metric::time("time", "ns", 1)], &samples);
            }),
        });
    };
    for &bytes in sizes {
        add(
            "chacha20",
            bytes,
            "thread CPU time of the stream cipher, set-up included",
            chacha20,
        );
    }
    for &bytes in sizes {
        add(
            "poly1305",
            bytes,
            "thread CPU time of one tag, set-up included",
            poly1305,
        );
    }
    for &bytes in sizes {
        add(
            "aead_seal",
            bytes,
            "thread CPU time of one call with a prepared key",
            aead_seal,
        );
    }
    for &bytes in sizes {
        add(
            "aead_open",
            bytes,
            "thread CPU time of one call with a prepared key",
            aead_open,
        );
    }
    add(
        "hkdf",
        32,
        "thread CPU time of all of a session's keys from a shared secret",
        hkdf,
    );
    tasks
}

/// Makes the contenders of one primitive at one size.
type Build = fn(&[Ours], usize) -> Vec<Contender<'static>>;

const KEY: [u8; 32] = [0x42; 32];
const NONCE: [u8; 12] = [0x24; 12];

fn chacha20(ours: &[Ours], bytes: usize) -> Vec<Contender<'static>> {
    use chacha20::cipher::{KeyIvInit, StreamCipher};
    let rustcrypto = |text: &mut [u8]| {
        chacha20::ChaCha20::new(&KEY.into(), &NONCE.into()).apply_keystream(text);
    };
    let ours = ours.iter().map(|ours| {
        let backend = ours.engine.backend();
        let mut text = vec![0; bytes];
        backend.chacha20(&KEY, &NONCE, 0, &mut text);
        rustcrypto(&mut text);
        assert!(text.iter().all(|&byte| byte == 0), "the streams differ");
        Contender::new(&ours.name, backend.name(), move || {
            backend.chacha20(&KEY, &NONCE, 0, &mut text);
        })
    });
    let mut text = vec![0; bytes];
    let theirs = Contender::new("rustcrypto", "", move || rustcrypto(&mut text));
    ours.chain([theirs]).collect()
}

fn poly1305(ours: &[Ours], bytes: usize) -> Vec<Contender<'static>> {
    use poly1305::{Poly1305, universal_hash::KeyInit};
    let message = Turn::uniform(1, bytes);
    let message = message.genuine().next().expect("one packet").to_vec();
    let rustcrypto = |message: &[u8]| -> [u8; 16] {
        Poly1305::new(&KEY.into()).compute_unpadded(message).into()
    };
    let ours = ours.iter().map(|ours| {
        let backend = ours.engine.backend();
        let tag = backend.poly1305(&KEY, &message);
        assert_eq!(tag, rustcrypto(&message), "the tags differ");
        let message = message.clone();
        Contender::new(&ours.name, backend.name(), move || {
            backend.poly1305(&KEY, &message)
        })
    });
    let text = message.clone();
    let theirs = Contender::new("rustcrypto", "", move || rustcrypto(&text));
    ours.chain([theirs]).collect()
}

/// The AEADs, after each has sealed a text to the same bytes and opened it.
fn checked_aeads(ours: &[Ours], bytes: usize) -> Vec<(Box<dyn Bare>, Vec<u8>)> {
    let mut expected: Option<Vec<u8>> = None;
    let check = |mut aead: Box<dyn Bare>| {
        let mut text = vec![0x61; bytes + packetlane::TAG_LEN];
        aead.seal(&NONCE, &mut text);
        let sealed = expected.get_or_insert_with(|| text.clone());
        assert!(*sealed == text, "{}: other bytes", aead.name());
        assert!(
            aead.open(&NONCE, &mut text),
            "{}: refuses its own",
            aead.name()
        );
        assert!(text[..bytes].iter().all(|&byte| byte == 0x61));
        (aead, sealed.clone())
    };
    bare_aeads(ours, &KEY).into_iter().map(check).collect()
}

fn aead_seal(ours: &[Ours], bytes: usize) -> Vec<Contender<'static>> {
    checked_aeads(ours, bytes)
        .into_iter()
        .map(|(mut aead, mut text)| {
            Contender::new(aead.name().to_owned(), aead.backend(), move || {
                aead.seal(&NONCE, &mut text)
            })
        })
        .collect()
}

fn aead_open(ours: &[Ours], bytes: usize) -> Vec<Contender<'static>> {
    let calls = (PREPARED_BYTES / (bytes + packetlane::TAG_LEN)).clamp(1, 4096);
    checked_aeads(ours, bytes)
        .into_iter()
        .map(|(mut aead, sealed)| {
            Contender::with_input(
                aead.name().to_owned(),
                aead.backend(),
                vec![sealed.clone(); calls],
                calls,
                move |texts: &mut Vec<Vec<u8>>, calls| {
                    for text in &mut texts[..calls] {
                        text.copy_from_slice(&sealed);
                    }
                },
                move |texts, call| assert!(aead.open(&NONCE, &mut texts[call])),
            )
        })
        .collect()
}

fn hkdf(ours: &[Ours], _: usize) -> Vec<Contender<'static>> {
    const INFOS: [&[u8]; 6] = [
        b"initiator_L",
        b"initiator_P",
        b"responder_L",
        b"responder_P",
        b"garbage_terminators",
        b"session_id",
    ];
    fn salt() -> Vec<u8> {
        [b"bitcoin_v2_shared_secret", &Network::Mainnet.magic()[..]].concat()
    }
    /// The six outputs, by a library with `ring`'s interface.
    macro_rules! like_ring {
        ($hkdf:path) => {
            || {
                use $hkdf as hkdf;
                let key = hkdf::Salt::new(hkdf::HKDF_SHA256, &salt()).extract(&[3; 32]);
                let mut keys = [[0; 32]; 6];
                for (info, out) in INFOS.iter().zip(&mut keys) {
                    let okm = key.expand(std::slice::from_ref(info), hkdf::HKDF_SHA256);
                    okm.expect("32 bytes").fill(out).expect("32 bytes");
                }
                keys
            }
        };
    }
    let ring = like_ring!(ring::hkdf);
    let aws_lc_rs = like_ring!(aws_lc_rs::hkdf);
    let backend = ours[0].backend();
    let ours = || SessionKeys::derive(&[3; 32], Network::Mainnet.magic());
    assert_eq!(ring()[5], ours().session_id, "the keys differ");
    assert_eq!(ring(), aws_lc_rs(), "the keys differ");
    vec![
        Contender::new(OURS, backend, ours),
        Contender::new("ring", "", ring),
        Contender::new("aws-lc-rs", "", aws_lc_rs),
    ]
}

/// Why the lab measures nothing.
#[derive(Debug)]
#[non_exhaustive]
pub enum LabError {
    /// No experiment has that name.
    UnknownExperiment(String),
    /// No case passes the filter.
    NoCase(String),
    /// Nothing but experiments on a GPU is asked for, and there is none.
    #[cfg(feature = "cuda")]
    NoGpu(packetlane::gpu::GpuError),
    /// The recording to replay cannot be read.
    Replay(capture::CaptureError),
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownExperiment(name) => {
                write!(
                    f,
                    "no experiment \"{name}\"; there are {}",
                    names().join(", ")
                )
            }
            Self::NoCase(filter) => write!(f, "no case has all the words of \"{filter}\""),
            #[cfg(feature = "cuda")]
            Self::NoGpu(error) => error.fmt(f),
            Self::Replay(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LabError {}

impl From<capture::CaptureError> for LabError {
    fn from(error: capture::CaptureError) -> Self {
        Self::Replay(error)
    }
}
