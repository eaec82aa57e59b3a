//! `gpu.latency`: the time of a batch from host to host, on the GPU and on the CPU.

use crate::experiment::{AcrossMachines, Bench, Experiment, Headline, Task};
use crate::measure::{Clock, Contender, Plan, in_turn};
use crate::picture::{Bottom, Picture};
use crate::published::{
    Figures, KERNELS, MAIL, NO_TRAVEL, NOT_BIP324, WRONG_TAGS, time_per_packet,
};
use crate::record::{Metric, record};
use crate::report::{Case, OURS, Report, distinct};
use crate::sentence::Figure;
use crate::traffic::Turn;
use crate::workload::gpu::{
    Arena, BATCHES, CUDA, Contents, Failed, Load, TRAVELS_TIMED, Traveller, attempt, batch_of,
    conclude_from,
};
use packetlane::gpu::{Gpu, GpuError, Op, PipelineConfig};
use packetlane_lanes::Work;

/// Contents of small packets, in bytes: an `inv` with one entry.
const SMALL: usize = 61;

/// The implementation with the batch in ordinary memory.
const PLAIN: &str = "packetlane-cuda-plain";

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "gpu.latency",
    description: "How long a batch takes to the GPU and back, and on the CPU",
    cases,
    headline: Headline {
        case: "op=seal profile=mail",
        metric: "crossover",
    },
    sentence,
    pictures: &[Picture {
        x: Some(Bottom::BATCH),
        facets: &["profile", "bytes"],
        log_y: true,
        mark: Some("crossover"),
        rename: Some(where_it_ran),
        ..Picture::new(
            "time_per_batch",
            "A batch to the GPU and back, and on the CPU",
        )
    }],
    published,
    conclude,
    needs_gpu: true,
    across: &[AcrossMachines {
        label: "NVIDIA GPU: mixed sizes, 65,536 packets from host memory and back, against one \
                thread of its CPU; seal",
        cases: &["op=seal profile=mail batch=65536 data=travels"],
        metric: "time_per_batch",
        against: Some("packetlane-avx512"),
    }],
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let Some(gpu) = bench.gpu else { return vec![] };
    let batches: &[usize] = match bench.quick {
        true => &[1, 64, 1024, 16_384],
        false => &BATCHES,
    };
    let mut tasks = Vec::new();
    for contents in [Contents::Mail(0), Contents::Uniform(SMALL)] {
        for &batch in batches.iter().filter(|&&batch| batch <= bench.gpu_packets) {
            let timed = format!(
                "{TRAVELS_TIMED}; cuda-plain: from and to ordinary memory; the CPU: one thread, \
                 in place, wall time"
            );
            let case = EXPERIMENT.case(&timed).with("op", "seal");
            let case = contents
                .case(case)
                .with("batch", batch)
                .with("data", "travels");
            tasks.push(Task::new(case, move |case, plan, report| {
                attempt(case, || {
                    run(bench, gpu, &contents.turn(batch), case, plan, report)
                });
            }));
        }
    }
    tasks
}

fn run(
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
        (PLAIN, Arena::Plain(load.plain.clone())),
    ];
    for (name, arena) in arenas {
        let traveller = Traveller::checked(gpu, Op::Seal, &load, arena)?;
        contenders.push(traveller.contender(name, PipelineConfig::default(), false, &failed));
    }
    let (mut bytes, mut outcomes) = (load.plain.clone(), load.pending());
    let (jobs, keys) = (&load.jobs, &load.keys[..]);
    contenders.push(Contender::new(
        format!("{OURS}-{}", backend.name()),
        backend.name(),
        move || {
            backend.kernels().seal(Work {
                bytes: &mut bytes,
                keys,
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

/// Records the batch size from which the device is faster than one thread of the CPU.
fn conclude(report: &mut Report) {
    let timed = "the smallest measured batch from which all batches take less wall time to the \
                 device and back (page-locked arena) than on one thread of the CPU";
    let to = ("crossover", timed);
    conclude_from(report, EXPERIMENT.name, "time_per_batch", to, |rows| {
        let time = |batch: usize, device: bool| {
            let mut of = rows.iter().filter(|row| batch_of(row) == Some(batch));
            of.find(|row| match device {
                true => row.implementation == OURS,
                false => !row.backend.starts_with(CUDA),
            })
        };
        let faster = |batch: &usize| match (time(*batch, true), time(*batch, false)) {
            (Some(device), Some(cpu)) => device.median < cpu.median,
            _ => false,
        };
        let mut batches = distinct(rows.iter().filter_map(|row| batch_of(row)));
        batches.sort_unstable();
        batches.into_iter().rev().take_while(faster).last()
    });
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    Some(match figure.metric() {
        "crossover" => {
            let what = match figure.find("bytes") {
                Some(bytes) => format!("packets of {bytes} bytes"),
                None => figure.key("profile").to_owned(),
            };
            let op = figure.key("op");
            format!("{op} {what}: faster than one thread of the CPU from a batch of {figure}")
        }
        _ => format!("a batch of {}, host to host: {figure}", figure.key("batch")),
    })
}

/// The name of a line. All lines are ours: some on the GPU, some on the CPU.
fn where_it_ran(implementation: &str) -> String {
    let rest = implementation.strip_prefix(OURS).unwrap_or(implementation);
    match rest.trim_start_matches('-') {
        "" => "GPU, page-locked memory".to_owned(),
        "cuda-plain" => "GPU, ordinary memory".to_owned(),
        backend => format!("CPU, one thread, {backend}"),
    }
}

fn published(figures: &mut Figures) {
    let caveats = [NOT_BIP324, KERNELS, WRONG_TAGS, NO_TRAVEL];
    for (case, value) in [("one packet", 17_600.0), ("batches from 1024", 63.0)] {
        figures.add(case, time_per_packet(value), MAIL, &caveats);
    }
}
