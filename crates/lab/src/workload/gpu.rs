//! Batches on a CUDA device.
//!
//! A batch is what BIP324 sessions leave to an engine: packets as on the wire, with lengths already
//! encrypted by the CPU, and for each packet a key, a nonce and a text of header and contents. The
//! CPU seals and opens it first. The device must produce the same bytes and verdicts before
//! anything is timed.
//!
//! Data is either `resident` (only the kernels, by the device's clock) or `travels` from host
//! memory to host memory (wall time). The two are never combined into one figure.

use crate::measure::{Clock, Contender, Plan, Samples, in_turn};
use crate::progress::note;
use crate::record::{Metric, enter, record};
use crate::report::{Case, OURS, Report, Row, distinct, pairs};
use crate::traffic::{Profile, Turn};
use packetlane::bip324::{PacketKind, Session};
use packetlane::gpu::{
    Bytes, DeviceWork, Gpu, GpuError, Op, Pinned, PipelineConfig, RunOptions, Timings,
};
use packetlane_lanes::{Backend, Job, Key, Nonce, Outcome, TAG_LEN, Work};
use std::cell::RefCell;
use std::time::Instant;

/// The device's backend name in the rows.
pub(crate) const CUDA: &str = "cuda";

/// Batch sizes, where the experiment varies them.
pub(crate) const BATCHES: [usize; 10] = [1, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144];

/// The batch size where the experiment does not vary it.
pub(crate) const BATCH: usize = 262_144;

/// Maximum number of sessions with packets in one batch.
const SESSIONS: usize = 4096;

/// The bit of the header byte that marks a decoy (BIP324). The library does not export it.
const IGNORE: u8 = 0x80;

pub(crate) const RESIDENT_TIMED: &str = "\
    only the kernels, by the device's events: the batch stays in the device's memory; sealed or \
    opened without the length cipher, which runs on the CPU";

pub(crate) const TRAVELS_TIMED: &str = "\
    wall time from host memory to the device and back, including descriptors and keys, but not \
    the length cipher, which sessions run before; page-locked arena";

/// The packets of a batch.
#[derive(Clone, Copy)]
pub(crate) enum Contents {
    /// All with this length, in bytes.
    Uniform(usize),
    /// From the profile `mail`, with this percentage of decoys.
    Mail(usize),
}

impl Contents {
    /// Adds the key of the contents to a case.
    pub(crate) fn case(self, case: Case) -> Case {
        match self {
            Contents::Uniform(bytes) => case.with("bytes", bytes),
            Contents::Mail(_) => case.with("profile", "mail"),
        }
    }

    pub(crate) fn turn(self, packets: usize) -> Turn {
        match self {
            Contents::Uniform(bytes) => Turn::uniform(packets, bytes),
            Contents::Mail(decoys) => {
                let turns = Profile::mail().turns(1, packets, decoys);
                turns.into_iter().next().expect("one turn")
            }
        }
    }
}

/// A batch, and the CPU's results for it.
pub(crate) struct Load {
    /// Before sealing.
    pub(crate) plain: Vec<u8>,
    /// Sealed, as on the wire.
    sealed: Vec<u8>,
    /// Opened. Opening does not change the tags.
    opened: Vec<u8>,
    pub(crate) keys: Vec<Key>,
    pub(crate) jobs: Vec<Job>,
    /// Number of genuine packets, and bytes of their contents.
    genuine: usize,
    pub(crate) contents: usize,
}

impl Load {
    pub(crate) fn new(backend: Backend, turn: &Turn) -> Self {
        let packets = turn.packets().len();
        let sessions = packets.clamp(1, SESSIONS);
        let key = |session: usize| -> Key {
            core::array::from_fn(|place| (session >> (8 * (place % 3))) as u8 ^ (place * 7) as u8)
        };
        let mut plain = Vec::with_capacity(turn.wire_len());
        let mut jobs = Vec::with_capacity(packets);
        for (number, (kind, contents)) in turn.packets().enumerate() {
            let text = plain.len() + Session::LENGTH_LEN;
            plain.resize(text, 0);
            plain.push(if kind == PacketKind::Decoy { IGNORE } else { 0 });
            plain.extend_from_slice(contents);
            plain.resize(plain.len() + TAG_LEN, 0);
            let (session, sent) = (number % sessions, number / sessions);
            jobs.push(Job {
                text: u32::try_from(text).expect("less than 4 GiB"),
                text_len: 1 + contents.len() as u32,
                key: session,
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
        let keys = &load.keys[..];
        let mut outcomes = load.pending();
        backend.kernels().seal(Work {
            bytes: &mut load.sealed,
            keys,
            jobs: &load.jobs,
            outcomes: &mut outcomes,
        });
        load.opened = load.sealed.clone();
        backend.kernels().open(Work {
            bytes: &mut load.opened,
            keys,
            jobs: &load.jobs,
            outcomes: &mut outcomes,
        });
        load.check_with(Op::Open, &load.opened, &outcomes);
        load
    }

    /// The outcomes before a run.
    pub(crate) fn pending(&self) -> Vec<Outcome> {
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
    /// If bytes or verdicts differ from the CPU's.
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

    /// The rates of the genuine packets.
    pub(crate) fn rates(&self) -> [Metric; 2] {
        [
            Metric::rate("packets_per_second", "packets/s", self.genuine as f64),
            Metric::rate("goodput", "MB/s", self.contents as f64 / 1e6),
        ]
    }
}

/// The nonce of the packet that a session sends after `sent` others (BIP324: the packet's number
/// since the last rekey, then the number of rekeys).
pub(crate) fn nonce(sent: usize) -> Nonce {
    let mut nonce = [0; 12];
    let interval = Session::REKEY_INTERVAL as usize;
    nonce[..4].copy_from_slice(&((sent % interval) as u32).to_le_bytes());
    nonce[4..].copy_from_slice(&((sent / interval) as u64).to_le_bytes());
    nonce
}

/// An operation's name in a case.
pub(crate) fn op_name(op: Op) -> &'static str {
    match op {
        Op::Seal => "seal",
        Op::Open => "open",
    }
}

/// The arena of a batch that travels.
pub(crate) enum Arena {
    Pinned(Pinned, usize),
    Plain(Vec<u8>),
}

impl Arena {
    pub(crate) fn pinned(gpu: &Gpu, load: &Load) -> Result<Self, GpuError> {
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

/// A batch that repeatedly travels to a device and back.
pub(crate) struct Traveller<'a> {
    gpu: &'a Gpu,
    op: Op,
    load: &'a Load,
    arena: Arena,
    outcomes: Vec<Outcome>,
}

impl<'a> Traveller<'a> {
    /// A batch whose first trip was checked against the CPU's result.
    ///
    /// # Panics
    ///
    /// If the result differs.
    pub(crate) fn checked(
        gpu: &'a Gpu,
        op: Op,
        load: &'a Load,
        arena: Arena,
    ) -> Result<Self, GpuError> {
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

    /// Copies the unprocessed batch to the arena.
    pub(crate) fn pack(&mut self) {
        let input = self.load.input(self.op);
        self.arena.bytes().copy_from_slice(input);
        self.outcomes.fill(Outcome::Pending);
    }

    pub(crate) fn travel(&mut self, timed: bool) -> Result<Timings, GpuError> {
        let work = DeviceWork {
            bytes: self.arena.for_device(),
            keys: &self.load.keys,
            jobs: &self.load.jobs,
            outcomes: &mut self.outcomes,
        };
        let options = RunOptions {
            timed,
            ..RunOptions::default()
        };
        self.gpu.run(self.op, work, options)
    }

    /// A contender that travels once per call, cut as `cut` requires. If `warm`, it travels once
    /// more, untimed, before each call.
    pub(crate) fn contender(
        self,
        name: &str,
        cut: PipelineConfig,
        warm: bool,
        failed: &'a Failed,
    ) -> Contender<'a> {
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

/// The first error of a device during a measurement, which a timed closure cannot return.
#[derive(Default)]
pub(crate) struct Failed(RefCell<Option<GpuError>>);

impl Failed {
    pub(crate) fn keep<T>(&self, result: Result<T, GpuError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.0.borrow_mut().get_or_insert(error);
                None
            }
        }
    }

    pub(crate) fn result(&self) -> Result<(), GpuError> {
        self.0.borrow_mut().take().map_or(Ok(()), Err)
    }
}

/// Runs a case. If the device fails, for example for lack of memory, prints the error and skips the
/// case.
pub(crate) fn attempt(case: &Case, run: impl FnOnce() -> Result<(), GpuError>) {
    if let Err(error) = run() {
        note(&format!("{} {}: {error}", case.experiment, case.text));
    }
}

/// As many results of `sample` as the plan requires, after one that is discarded.
pub(crate) fn sampled<T>(
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

/// The device's samples.
fn device_samples(seconds: Vec<f64>) -> Samples {
    Samples {
        implementation: OURS.to_owned(),
        backend: CUDA.to_owned(),
        seconds,
    }
}

/// The seconds of the kernels alone, after a run that was checked against the CPU's result.
///
/// # Panics
///
/// If the result differs.
pub(crate) fn resident(gpu: &Gpu, op: Op, load: &Load, plan: &Plan) -> Result<Samples, GpuError> {
    let input = load.input(op);
    let mut resident = gpu.resident(op, input, &load.keys[..], &load.jobs)?;
    resident.run()?;
    let (mut bytes, mut outcomes) = (input.to_vec(), load.pending());
    resident.fetch(&mut bytes, &mut outcomes)?;
    load.check_with(op, &bytes, &outcomes);
    sampled(plan, || resident.run()).map(device_samples)
}

/// Records how fast a batch is sealed or opened, with its data `resident` or not.
pub(crate) fn rates(
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
            let mut contenders =
                [traveller.contender(OURS, PipelineConfig::default(), false, &failed)];
            let samples = in_turn(&mut contenders, &plan.by(Clock::Wall));
            drop(contenders);
            failed.result()?;
            samples
        }
    };
    record(report, case, &load.rates(), &samples);
    Ok(())
}

/// What is timed for this value of the key `data`.
pub(crate) fn timed(data: &str) -> &'static str {
    match data {
        "resident" => RESIDENT_TIMED,
        _ => TRAVELS_TIMED,
    }
}

pub(crate) fn batch_of(row: &Row) -> Option<usize> {
    row.key("batch")?.parse().ok()
}

/// For all cases of an experiment that differ only in the batch size: records the batch size that
/// `choose` selects from their rows, under the name `metric`.
pub(crate) fn conclude_from(
    report: &mut Report,
    experiment: &str,
    from: &str,
    (metric, timed): (&str, &str),
    choose: impl Fn(&[&Row]) -> Option<usize>,
) {
    let case_of = |row: &Row| {
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

/// The words in a picture for where the data is.
pub(crate) fn data_words(key: &str, value: &str) -> Option<String> {
    (key == "data").then(|| format!("data {value}"))
}
