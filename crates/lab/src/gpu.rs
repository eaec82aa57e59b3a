//! The experiments on a CUDA device: the kernels by themselves (`data=resident`) and whole
//! batches from host to host (`data=travels`), which are never one figure.
//!
//! A batch is what BIP324 sessions leave to an engine: packets as they lie on the wire,
//! their lengths already encrypted on the CPU, and for each a key, a nonce and a text of
//! header and contents. The CPU seals and opens it first, and what the device makes of it
//! must be the same, byte for byte and verdict for verdict, before anything is timed.
//! Kernels are timed by the device's clock, all else in wall time.

use crate::experiments::{Bench, Task};
use crate::measure::{
    Clock, Contender, Metric, Plan, Samples, enter, in_turn, record, record_times,
};
use crate::report::{Case, OURS, Report, Row, distinct, pairs};
use crate::traffic::{Profile, Turn};
use packetlane::bip324::PacketKind;
use packetlane::gpu::{
    Bytes, CopyDirection as Way, DeviceWork, Gpu, GpuError, Op, Pinned, PipelineConfig as Cut,
    RunOptions as With,
};
use packetlane::{Backend, Job, Key, Nonce, Outcome, Secrets, TAG_LEN, Work};
use std::cell::RefCell;
use std::time::Instant;

/// What all of these experiments' names begin with.
pub(crate) const PREFIX: &str = "gpu.";

/// The backend's name in the rows.
const CUDA: &str = "cuda";

/// Contents, in bytes, of packets of one size.
const SIZES: [usize; 6] = [64, 256, 1024, 4096, 16_384, 65_536];

/// Packets in a batch, for the time it takes and for which is best.
const BATCHES: [usize; 10] = [1, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144];

/// The least of them that fills a device in part.
const FEWEST: usize = 256;

/// Contents of small packets, in bytes: a Bitcoin `inv` with one entry.
const SMALL: usize = 61;

/// Streams at once.
const STREAMS: [usize; 5] = [1, 2, 3, 4, 8];

/// Decoys, in per cent of all packets.
const DECOYS: [usize; 4] = [0, 5, 20, 50];

/// Packets in a batch where that is not what is asked.
const BATCH: usize = 262_144;

/// Packets of a batch that stays on the device: enough of them for every thread of the
/// largest device, but no more than these packets and bytes.
const RESIDENT_PACKETS: usize = 524_288;
const RESIDENT_BYTES: usize = 128 << 20;

/// Sessions whose packets are in one batch, at most.
const SESSIONS: usize = 4096;

/// Bytes before a packet's text: its encrypted length.
const LENGTH_LEN: usize = 3;

/// The bit of the header byte that makes a packet a decoy.
const IGNORE: u8 = 0x80;

/// Packets between two rekeys (BIP324).
const REKEY_INTERVAL: usize = 224;

/// Instructions of the integer pipe that 64 bytes of text take when sealed, without
/// multiplications, and multiplications: counted by compiling for sm_90 with NVRTC 13.0 in
/// November 2026 (the project's notes; 1,270 instructions in all).
const ALU_PER_BLOCK: f64 = 793.0;
const MULTIPLY_PER_BLOCK: f64 = 451.0;

/// Integer instructions that a multiprocessor completes in a cycle, by NVIDIA's tables of
/// arithmetic throughput for compute capability 7.5 to 10.0.
const INTEGER_LANES: f64 = 64.0;

/// Bytes of contents per processor and cycle at which the integer pipe is never idle.
const BYTES_PER_CYCLE: f64 = 64.0 * INTEGER_LANES / (ALU_PER_BLOCK + MULTIPLY_PER_BLOCK);

const RESIDENT_TIMED: &str = "the kernels alone, by the device's events: the batch is already in \
     the device's memory and stays there; sealed or opened without the length cipher, which the \
     CPU does";

const TRAVELS_TIMED: &str = "wall time from host memory to the device and back into host memory, \
     descriptors and keys included, without the length cipher, which sessions have done before; \
     page-locked arena";

/// The device of this process.
///
/// # Errors
///
/// If there is none, or it cannot be used.
pub fn detect() -> Result<&'static Gpu, GpuError> {
    Gpu::detect()
}

/// The bytes that the device could seal in a second if only its integer pipe counted.
fn limit(gpu: &Gpu) -> Option<f64> {
    let processors = gpu.processors()?;
    Some(f64::from(processors.count) * processors.hertz * BYTES_PER_CYCLE)
}

/// What the packets of a batch are.
#[derive(Clone, Copy)]
enum Contents {
    /// All of so many bytes.
    Uniform(usize),
    /// The mixture of the published measurement, with so many per cent of decoys.
    Mail(usize),
}

impl Contents {
    /// Adds its key to a case.
    fn case(self, case: Case) -> Case {
        match self {
            Contents::Uniform(bytes) => case.with("bytes", bytes),
            Contents::Mail(_) => case.with("profile", "mail"),
        }
    }

    fn turn(self, packets: usize) -> Turn {
        match self {
            Contents::Uniform(bytes) => Turn::uniform(packets, bytes),
            Contents::Mail(decoys) => {
                let turns = Profile::mail().turns(1, packets, decoys);
                turns.into_iter().next().expect("one turn")
            }
        }
    }
}

/// A batch, and what the CPU makes of it.
struct Load {
    /// Before it is sealed.
    plain: Vec<u8>,
    /// As it is on the wire.
    sealed: Vec<u8>,
    /// After it has been opened: tags are left where they were.
    opened: Vec<u8>,
    keys: Vec<Key>,
    jobs: Vec<Job>,
    /// Packets that are no decoys, and the bytes of their contents.
    genuine: usize,
    contents: usize,
}

impl Load {
    fn new(backend: Backend, turn: &Turn) -> Self {
        let packets = turn.packets().len();
        let sessions = packets.clamp(1, SESSIONS);
        let key = |session: usize| -> Key {
            core::array::from_fn(|place| (session >> (8 * (place % 3))) as u8 ^ (place * 7) as u8)
        };
        let mut plain = Vec::with_capacity(turn.wire_len());
        let mut jobs = Vec::with_capacity(packets);
        for (number, (kind, contents)) in turn.packets().enumerate() {
            let text = plain.len() + LENGTH_LEN;
            plain.resize(text, 0);
            plain.push(if kind == PacketKind::Decoy { IGNORE } else { 0 });
            plain.extend_from_slice(contents);
            plain.resize(plain.len() + TAG_LEN, 0);
            let (session, sent) = (number % sessions, number / sessions);
            jobs.push(Job {
                text: u32::try_from(text).expect("less than 4 GiB"),
                text_len: 1 + contents.len() as u32,
                key: session as u32,
                nonce: nonce(sent),
                ..Job::default()
            });
        }
        let mut load = Self {
            sealed: plain.clone(),
            opened: Vec::new(),
            plain,
            keys: (0..sessions).map(key).collect(),
            jobs,
            genuine: turn.genuine().count(),
            contents: turn.genuine().map(<[u8]>::len).sum(),
        };
        let secrets = Secrets::from(&load.keys[..]);
        let mut outcomes = load.pending();
        backend.seal(Work {
            bytes: &mut load.sealed,
            secrets,
            jobs: &load.jobs,
            outcomes: &mut outcomes,
        });
        load.opened = load.sealed.clone();
        backend.open(Work {
            bytes: &mut load.opened,
            secrets,
            jobs: &load.jobs,
            outcomes: &mut outcomes,
        });
        load.check_with(Op::Open, &load.opened, &outcomes);
        load
    }

    fn secrets(&self) -> Secrets<'_> {
        Secrets::from(&self.keys[..])
    }

    /// Outcomes before anything has run.
    fn pending(&self) -> Vec<Outcome> {
        vec![Outcome::Pending; self.jobs.len()]
    }

    fn input(&self, op: Op) -> &[u8] {
        match op {
            Op::Seal => &self.plain,
            Op::Open => &self.sealed,
        }
    }

    /// # Panics
    ///
    /// If these are not the bytes and verdicts that the CPU comes to.
    fn check_with(&self, op: Op, bytes: &[u8], outcomes: &[Outcome]) {
        let (expected, outcome) = match op {
            Op::Seal => (&self.sealed, Outcome::Sealed),
            Op::Open => (&self.opened, Outcome::Authentic),
        };
        let verdicts = outcomes.iter().all(|verdict| *verdict == outcome);
        assert!(
            verdicts,
            "packetlane on cuda: other verdicts than the CPU's"
        );
        assert!(
            bytes == expected,
            "packetlane on cuda: other bytes than the CPU's"
        );
    }

    /// The rates of all packets that are no decoys.
    fn rates(&self) -> [Metric; 2] {
        [
            Metric::rate("packets_per_second", "packets/s", self.genuine as f64),
            Metric::rate("goodput", "MB/s", self.contents as f64 / 1e6),
        ]
    }
}

/// The nonce of the packet that a session sends after so many others (BIP324: its number
/// since the last rekey, then the number of rekeys).
pub(crate) fn nonce(sent: usize) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&((sent % REKEY_INTERVAL) as u32).to_le_bytes());
    nonce[4..].copy_from_slice(&((sent / REKEY_INTERVAL) as u64).to_le_bytes());
    nonce
}

/// An operation's name in a case.
fn name(op: Op) -> &'static str {
    match op {
        Op::Seal => "seal",
        Op::Open => "open",
    }
}

/// The arena of a batch that travels.
enum Arena {
    Pinned(Pinned, usize),
    Plain(Vec<u8>),
}

impl Arena {
    fn pinned(gpu: &Gpu, load: &Load) -> Result<Self, GpuError> {
        let len = load.plain.len();
        Ok(Self::Pinned(gpu.pinned(len)?, len))
    }

    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Arena::Pinned(pinned, len) => &mut pinned[..*len],
            Arena::Plain(bytes) => bytes,
        }
    }

    fn for_device(&mut self) -> Bytes<'_> {
        match self {
            Arena::Pinned(pinned, len) => Bytes::Pinned(pinned, *len),
            Arena::Plain(bytes) => Bytes::Plain(bytes),
        }
    }
}

/// A batch that travels to a device and back, as often as one likes.
struct Traveller<'a> {
    gpu: &'a Gpu,
    op: Op,
    load: &'a Load,
    arena: Arena,
    outcomes: Vec<Outcome>,
}

impl<'a> Traveller<'a> {
    /// After a first journey whose result is the CPU's.
    ///
    /// # Panics
    ///
    /// If it is not.
    fn checked(gpu: &'a Gpu, op: Op, load: &'a Load, arena: Arena) -> Result<Self, GpuError> {
        let outcomes = load.pending();
        let mut traveller = Self {
            gpu,
            op,
            load,
            arena,
            outcomes,
        };
        traveller.pack();
        traveller.travel(false)?;
        load.check_with(op, traveller.arena.bytes(), &traveller.outcomes);
        Ok(traveller)
    }

    /// Puts the batch into the arena as it was.
    fn pack(&mut self) {
        let input = self.load.input(self.op);
        self.arena.bytes().copy_from_slice(input);
        self.outcomes.fill(Outcome::Pending);
    }

    fn travel(&mut self, timed: bool) -> Result<packetlane::gpu::Timings, GpuError> {
        let work = DeviceWork {
            bytes: self.arena.for_device(),
            secrets: self.load.secrets(),
            jobs: &self.load.jobs,
            outcomes: &mut self.outcomes,
        };
        let with = With {
            timed,
            ..With::default()
        };
        self.gpu.run(self.op, work, with)
    }

    /// A contender that travels once in a call, in so many streams; with `warm` once more
    /// before, untimed.
    fn contender(self, name: &str, cut: Cut, warm: bool, failed: &'a Failed) -> Contender<'a> {
        Contender::with_input(
            name,
            CUDA,
            self,
            1,
            move |traveller: &mut Self, _| {
                traveller.gpu.configure(cut);
                traveller.pack();
                if warm {
                    failed.keep(traveller.travel(false));
                    traveller.pack();
                }
            },
            move |traveller, _| failed.keep(traveller.travel(false)),
        )
    }
}

/// The first error of a device within a measurement, which has no way out of there.
#[derive(Default)]
struct Failed(RefCell<Option<GpuError>>);

impl Failed {
    fn keep<T>(&self, result: Result<T, GpuError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.0.borrow_mut().get_or_insert(error);
                None
            }
        }
    }

    fn result(&self) -> Result<(), GpuError> {
        self.0.borrow_mut().take().map_or(Ok(()), Err)
    }
}

/// A case that the device cannot do, such as for a lack of memory, is said and left out.
fn attempt(case: &Case, run: impl FnOnce() -> Result<(), GpuError>) {
    if let Err(error) = run() {
        eprintln!("{} {}: {error}", case.experiment, case.text);
    }
}

/// What `sample` says, as often as the plan says, after a first time that does not count.
fn sampled<T>(
    plan: &Plan,
    mut sample: impl FnMut() -> Result<T, GpuError>,
) -> Result<Vec<T>, GpuError> {
    sample()?;
    let begin = Instant::now();
    let mut samples = Vec::new();
    while samples.len() < 3 || (samples.len() < plan.samples && begin.elapsed() < plan.budget) {
        samples.push(sample()?);
    }
    Ok(samples)
}

fn ours(seconds: Vec<f64>) -> Samples {
    Samples {
        implementation: OURS.to_owned(),
        backend: CUDA.to_owned(),
        seconds,
    }
}

/// The seconds of the kernels alone, after a run whose result is the CPU's.
///
/// # Panics
///
/// If it is not.
fn resident(gpu: &Gpu, op: Op, load: &Load, plan: &Plan) -> Result<Samples, GpuError> {
    let input = load.input(op);
    let mut resident = gpu.resident(op, input, load.secrets(), &load.jobs)?;
    resident.run()?;
    let (mut bytes, mut outcomes) = (input.to_vec(), load.pending());
    resident.fetch(&mut bytes, &mut outcomes)?;
    load.check_with(op, &bytes, &outcomes);
    sampled(plan, || resident.run()).map(ours)
}

/// The kernels alone, by length.
pub(crate) fn kernel(bench: &Bench) -> Vec<Task<'_>> {
    let Some(gpu) = bench.gpu else { return vec![] };
    let sizes: &[usize] = match bench.quick {
        true => &[64, 1024, 65_536],
        false => &SIZES,
    };
    let uniform = sizes.iter().map(|&bytes| Contents::Uniform(bytes));
    let contents: Vec<Contents> = uniform.chain([Contents::Mail(0)]).collect();
    let mut tasks = Vec::new();
    for op in [Op::Seal, Op::Open] {
        for &contents in &contents {
            let bytes = match contents {
                Contents::Uniform(bytes) => bytes,
                Contents::Mail(_) => 1,
            };
            let most = RESIDENT_PACKETS.min(bench.gpu_packets);
            let batch = (RESIDENT_BYTES / bytes).clamp(1, most);
            let timed = format!(
                "{RESIDENT_TIMED}; the counted limit: {ALU_PER_BLOCK} integer instructions and \
                 {MULTIPLY_PER_BLOCK} multiplications for 64 bytes, {INTEGER_LANES} a cycle and \
                 multiprocessor; where multiplications overlap with the others it may be exceeded"
            );
            let case = Case::new("gpu.kernel", &timed).with("op", name(op));
            let case = contents
                .case(case)
                .with("batch", batch)
                .with("data", "resident");
            tasks.push(Task::new(case, move |case, plan, report| {
                attempt(case, || {
                    let load = Load::new(bench.engine.backend(), &contents.turn(batch));
                    let samples = resident(gpu, op, &load, plan)?;
                    let mut metrics = load.rates().to_vec();
                    if let Some(limit) = limit(gpu) {
                        let share = 100.0 * load.contents as f64 / limit;
                        metrics.push(Metric::rate("share_of_limit", "%", share));
                    }
                    record(report, case, &metrics, &[samples]);
                    Ok(())
                });
            }));
        }
    }
    tasks
}

/// How long a batch takes from host to host, and how long on the CPU.
pub(crate) fn latency(bench: &Bench) -> Vec<Task<'_>> {
    let Some(gpu) = bench.gpu else { return vec![] };
    let batches: &[usize] = match bench.quick {
        true => &[1, 64, 1024, 16_384],
        false => &BATCHES,
    };
    let mut tasks = Vec::new();
    for contents in [Contents::Mail(0), Contents::Uniform(SMALL)] {
        for &batch in batches.iter().filter(|&&batch| batch <= bench.gpu_packets) {
            let timed = format!(
                "{TRAVELS_TIMED}; cuda-plain: from and to ordinary memory; beside it one thread \
                 of the CPU, where the batch lies; wall time"
            );
            let case = Case::new("gpu.latency", &timed).with("op", "seal");
            let case = contents
                .case(case)
                .with("batch", batch)
                .with("data", "travels");
            tasks.push(Task::new(case, move |case, plan, report| {
                attempt(case, || {
                    run_latency(bench, gpu, &contents.turn(batch), case, plan, report)
                });
            }));
        }
    }
    tasks
}

fn run_latency(
    bench: &Bench,
    gpu: &Gpu,
    turn: &Turn,
    case: &Case,
    plan: &Plan,
    report: &mut Report,
) -> Result<(), GpuError> {
    let backend = bench.engine.backend();
    let load = Load::new(backend, turn);
    let failed = Failed::default();
    let mut contenders = Vec::new();
    let arenas = [
        (OURS, Arena::pinned(gpu, &load)?),
        ("packetlane-cuda-plain", Arena::Plain(load.plain.clone())),
    ];
    for (name, arena) in arenas {
        let traveller = Traveller::checked(gpu, Op::Seal, &load, arena)?;
        contenders.push(traveller.contender(name, Cut::default(), false, &failed));
    }
    let (mut bytes, mut outcomes) = (load.plain.clone(), load.pending());
    let (jobs, secrets) = (&load.jobs, load.secrets());
    contenders.push(Contender::new(
        format!("{OURS}-{}", backend.name()),
        backend.name(),
        move || {
            backend.seal(Work {
                bytes: &mut bytes,
                secrets,
                jobs,
                outcomes: &mut outcomes,
            })
        },
    ));
    let samples = in_turn(&mut contenders, &plan.by(Clock::Wall));
    drop(contenders);
    failed.result()?;
    let metrics = [
        Metric::time("time_per_batch", "us", 1),
        Metric::time("time_per_packet", "ns", load.jobs.len()),
    ];
    record(report, case, &metrics, &samples);
    Ok(())
}

/// Where the time of a batch goes on its way.
pub(crate) fn transfer(bench: &Bench) -> Vec<Task<'_>> {
    let Some(gpu) = bench.gpu else { return vec![] };
    let batch = BATCH.min(bench.gpu_packets);
    let task = |op| {
        let timed = format!(
            "stages of one stream by the device's events, so that none overlaps another, and \
             their shares of the three; whole: {TRAVELS_TIMED}, in {} streams; alone: a plain copy \
             of as many bytes by itself, wall time, and the kernels with the data resident; share \
             of bus: the time of plain copies of the same bytes both ways at once, beside that of \
             the whole",
            Cut::default().streams
        );
        let case = Case::new("gpu.transfer", &timed)
            .with("op", name(op))
            .with("profile", "mail")
            .with("batch", batch)
            .with("data", "travels");
        Task::new(case, move |case, plan, report| {
            attempt(case, || {
                let done = run_transfer(bench, gpu, op, batch, case, plan, report);
                gpu.configure(Cut::default());
                done
            });
        })
    };
    let ops: &[Op] = match bench.quick {
        true => &[Op::Seal],
        false => &[Op::Seal, Op::Open],
    };
    ops.iter().map(|&op| task(op)).collect()
}

fn run_transfer(
    bench: &Bench,
    gpu: &Gpu,
    op: Op,
    batch: usize,
    case: &Case,
    plan: &Plan,
    report: &mut Report,
) -> Result<(), GpuError> {
    let load = Load::new(bench.engine.backend(), &Contents::Mail(0).turn(batch));
    let mut traveller = Traveller::checked(gpu, op, &load, Arena::pinned(gpu, &load)?)?;
    gpu.configure(Cut {
        streams: 1,
        ..Cut::default()
    });
    let split = sampled(plan, || {
        traveller.pack();
        traveller.travel(true)
    })?;
    gpu.configure(Cut::default());

    let alone = |way, len| {
        let mut copies = gpu.copies(len)?;
        sampled(plan, || copies.time(way))
    };
    let (there, back) = (split[0].bytes_to_device, split[0].bytes_from_device);
    let to_device = alone(Way::ToDevice, there)?;
    let from_device = alone(Way::FromDevice, back)?;
    let kernels = resident(gpu, op, &load, plan)?.seconds;

    let seconds = |stage: fn(&packetlane::gpu::Timings) -> f64| -> Vec<f64> {
        split.iter().map(stage).collect()
    };
    let mut add = |stage: &str, (metric, unit): (&str, &str), values: Vec<f64>| {
        let case = case.clone().with("stage", stage);
        enter(report, &case, [OURS, CUDA], (metric, unit), &values);
    };
    let rate = |bytes: usize, seconds: &[f64]| -> Vec<f64> {
        seconds.iter().map(|s| bytes as f64 / 1e6 / s).collect()
    };
    for (stage, bytes, within, alone) in [
        ("to_device", there, seconds(|t| t.to_device), to_device),
        ("kernels", load.contents, seconds(|t| t.kernels), kernels),
        ("from_device", back, seconds(|t| t.from_device), from_device),
    ] {
        let sum = split
            .iter()
            .map(|t| t.to_device + t.kernels + t.from_device);
        let shares = within.iter().zip(sum).map(|(part, sum)| 100.0 * part / sum);
        let shares = shares.collect();
        add(
            stage,
            ("time", "us"),
            within.iter().map(|s| s * 1e6).collect(),
        );
        add(stage, ("share", "%"), shares);
        add(stage, ("throughput", "MB/s"), rate(bytes, &within));
        add(stage, ("throughput_alone", "MB/s"), rate(bytes, &alone));
    }

    // The whole beside what the bus carries, in turn.
    let len = load.plain.len();
    let failed = Failed::default();
    let mut copies = gpu.copies(len)?;
    let mut contenders = [
        traveller.contender(OURS, Cut::default(), true, &failed),
        Contender::new("bus", "", || failed.keep(copies.time(Way::Both))),
    ];
    let samples = in_turn(&mut contenders, &plan.by(Clock::Wall));
    drop(contenders);
    failed.result()?;
    let [whole, bus] = &samples[..] else {
        unreachable!("as many samples as contenders")
    };
    let micros = whole.seconds.iter().map(|s| s * 1e6).collect();
    add("whole", ("time", "us"), micros);
    add(
        "whole",
        ("throughput", "MB/s"),
        rate(load.contents, &whole.seconds),
    );
    let turns = whole.seconds.iter().zip(&bus.seconds);
    let shares = turns.map(|(whole, bus)| 100.0 * bus / whole).collect();
    add("whole", ("share_of_bus", "%"), shares);
    add(
        "both_ways",
        ("throughput_alone", "MB/s"),
        rate(2 * len, &bus.seconds),
    );
    Ok(())
}

/// What several streams gain.
pub(crate) fn streams(bench: &Bench) -> Vec<Task<'_>> {
    let Some(gpu) = bench.gpu else { return vec![] };
    let streams: &[usize] = if bench.quick { &[1, 4] } else { &STREAMS };
    let batch = BATCH.min(bench.gpu_packets);
    let task = |&streams: &usize| {
        let timed = format!("{TRAVELS_TIMED}; speedup: how many times as fast as one stream");
        let case = Case::new("gpu.streams", &timed)
            .with("op", "seal")
            .with("profile", "mail")
            .with("batch", batch)
            .with("streams", streams)
            .with("data", "travels");
        Task::new(case, move |case, plan, report| {
            attempt(case, || {
                let load = Load::new(bench.engine.backend(), &Contents::Mail(0).turn(batch));
                let failed = Failed::default();
                let mut contenders = Vec::new();
                for streams in distinct([streams, 1]) {
                    let cut = Cut {
                        streams,
                        ..Cut::default()
                    };
                    gpu.configure(cut);
                    let arena = Arena::pinned(gpu, &load)?;
                    let traveller = Traveller::checked(gpu, Op::Seal, &load, arena)?;
                    contenders.push(traveller.contender(OURS, cut, true, &failed));
                }
                let samples = in_turn(&mut contenders, &plan.by(Clock::Wall));
                drop(contenders);
                gpu.configure(Cut::default());
                failed.result()?;
                record(report, case, &load.rates(), &samples[..1]);
                let one = samples.last().expect("that of one stream");
                // How many times as fast, so the other way round.
                record_times(report, case, "speedup", (one, 1), (&samples[0], 1));
                Ok(())
            });
        })
    };
    streams.iter().map(task).collect()
}

/// Enters how fast the packets of a batch are sealed or opened where `data` says.
fn rates(
    gpu: &Gpu,
    (op, data): (Op, &str),
    load: &Load,
    case: &Case,
    plan: &Plan,
    report: &mut Report,
) -> Result<(), GpuError> {
    let samples = match data {
        "resident" => vec![resident(gpu, op, load, plan)?],
        _ => {
            let failed = Failed::default();
            let traveller = Traveller::checked(gpu, op, load, Arena::pinned(gpu, load)?)?;
            let mut contenders = [traveller.contender(OURS, Cut::default(), false, &failed)];
            let samples = in_turn(&mut contenders, &plan.by(Clock::Wall));
            drop(contenders);
            failed.result()?;
            samples
        }
    };
    record(report, case, &load.rates(), &samples);
    Ok(())
}

/// What a row with this key is timed from and to.
fn timed(data: &str) -> &'static str {
    match data {
        "resident" => RESIDENT_TIMED,
        _ => TRAVELS_TIMED,
    }
}

/// What decoys cost: they are opened as any packet, and count as none.
pub(crate) fn decoys(bench: &Bench) -> Vec<Task<'_>> {
    let Some(gpu) = bench.gpu else { return vec![] };
    let shares: &[usize] = if bench.quick { &[0, 20] } else { &DECOYS };
    let batch = BATCH.min(bench.gpu_packets);
    let mut tasks = Vec::new();
    for data in ["resident", "travels"] {
        for &decoys in shares {
            let timed = format!(
                "{}; packets and goodput count what is no decoy",
                timed(data)
            );
            let case = Case::new("gpu.decoys", &timed)
                .with("op", "open")
                .with("profile", "mail")
                .with("batch", batch)
                .with("decoys", decoys)
                .with("data", data);
            tasks.push(Task::new(case, move |case, plan, report| {
                attempt(case, || {
                    let turn = Contents::Mail(decoys).turn(batch);
                    let load = Load::new(bench.engine.backend(), &turn);
                    rates(gpu, (Op::Open, data), &load, case, plan, report)
                });
            }));
        }
    }
    tasks
}

/// Which batch is best.
pub(crate) fn batch(bench: &Bench) -> Vec<Task<'_>> {
    let Some(gpu) = bench.gpu else { return vec![] };
    let batches: &[usize] = match bench.quick {
        true => &[64, 1024, 16_384],
        false => &BATCHES,
    };
    let fewest = if bench.quick { 1 } else { FEWEST };
    let mut tasks = Vec::new();
    for data in ["resident", "travels"] {
        for &batch in batches {
            if !(fewest..=bench.gpu_packets).contains(&batch) {
                continue;
            }
            let case = Case::new("gpu.batch", timed(data))
                .with("op", "seal")
                .with("profile", "mail")
                .with("batch", batch)
                .with("data", data);
            tasks.push(Task::new(case, move |case, plan, report| {
                attempt(case, || {
                    let turn = Contents::Mail(0).turn(batch);
                    let load = Load::new(bench.engine.backend(), &turn);
                    rates(gpu, (Op::Seal, data), &load, case, plan, report)
                });
            }));
        }
    }
    tasks
}

/// Enters what follows from several cases: from which batch on the device is sooner than
/// one thread of the CPU (`crossover`), and at which it is fastest (`best_batch`).
pub fn conclude(report: &mut Report) {
    conclude_from(
        report,
        "gpu.latency",
        "time_per_batch",
        "crossover",
        |rows| {
            let batches = distinct(rows.iter().filter_map(|row| batch_of(row)));
            let time = |batch: usize, device: bool| {
                let mut of = rows.iter().filter(|row| batch_of(row) == Some(batch));
                of.find(|row| match device {
                    true => row.implementation == OURS,
                    false => !row.backend.starts_with(CUDA),
                })
            };
            let sooner = |batch: &usize| match (time(*batch, true), time(*batch, false)) {
                (Some(device), Some(cpu)) => device.median < cpu.median,
                _ => false,
            };
            let mut batches = batches;
            batches.sort_unstable();
            batches.into_iter().rev().take_while(sooner).last()
        },
    );
    conclude_from(
        report,
        "gpu.batch",
        "packets_per_second",
        "best_batch",
        |rows| {
            let best = rows.iter().max_by(|a, b| a.median.total_cmp(&b.median));
            best.and_then(|row| batch_of(row))
        },
    );
}

fn batch_of(row: &Row) -> Option<usize> {
    row.key("batch")?.parse().ok()
}

/// For all cases of an experiment that differ in the batch only: enters the batch that
/// `choose` takes from their rows.
fn conclude_from(
    report: &mut Report,
    experiment: &str,
    from: &str,
    metric: &str,
    choose: impl Fn(&[&Row]) -> Option<usize>,
) {
    let case_of = |row: &Row| {
        let timed = match metric {
            "crossover" => {
                "the smallest batch measured from which on every one is sooner, in wall time, on \
                 the device and back (page-locked arena) than on one thread of the CPU"
            }
            _ => "the batch measured that had the highest rate",
        };
        let kept = pairs(&row.case).filter(|(key, _)| *key != "batch");
        kept.fold(Case::new(experiment, timed), |case, (key, value)| {
            case.with(key, value)
        })
    };
    let rows = report.rows.iter();
    let rows: Vec<&Row> = rows
        .filter(|row| row.experiment == experiment && row.metric == from)
        .collect();
    let mut chosen = Vec::new();
    for case in distinct(rows.iter().map(|row| case_of(row))) {
        let rows: Vec<&Row> = rows
            .iter()
            .copied()
            .filter(|row| case_of(row) == case)
            .collect();
        chosen.extend(choose(&rows).map(|batch| (case, batch)));
    }
    for (case, batch) in chosen {
        let value = [batch as f64];
        enter(report, &case, [OURS, CUDA], (metric, "packets"), &value);
    }
}
