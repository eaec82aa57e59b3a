//! `gpu.transfer`: how the time of a batch is spent.

use crate::experiment::{Bench, Experiment, Headline, Task};
use crate::measure::{Clock, Contender, Plan, in_turn};
use crate::picture::{Lines, Picture};
use crate::published::{Figures, MAIL, MEBIBYTES, NOT_BIP324, WRONG_TAGS, goodput};
use crate::record::enter;
use crate::report::{Case, OURS, Report};
use crate::sentence::Figure;
use crate::workload::gpu::{
    Arena, BATCH, CUDA, Contents, Failed, Load, TRAVELS_TIMED, Traveller, attempt, op_name,
    resident, sampled,
};
use packetlane::gpu::{CopyDirection, Gpu, GpuError, Op, PipelineConfig, Timings};

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "gpu.transfer",
    description: "How the time of a batch through the GPU is spent",
    cases,
    headline: Headline {
        case: "op=seal stage=whole",
        metric: "share_of_bus",
    },
    sentence,
    pictures: &[Picture {
        facets: &["op"],
        lines: Lines::OursBy("stage"),
        ..Picture::new("share", "Time spent in one stream, %")
    }],
    words,
    published,
    needs_gpu: true,
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let Some(gpu) = bench.gpu else { return vec![] };
    let batch = BATCH.min(bench.gpu_packets);
    let task = |op| {
        let timed = format!(
            "stages of one stream by the device's events, without overlap, and their shares of \
             the sum; whole: {TRAVELS_TIMED}, in {} streams; alone: a plain copy of the same \
             number of bytes, wall time, and the kernels with resident data; share of bus: the \
             time of plain copies of the same bytes in both directions at once, divided by that \
             of the whole",
            PipelineConfig::default().streams
        );
        let case = EXPERIMENT
            .case(&timed)
            .with("op", op_name(op))
            .with("profile", "mail")
            .with("batch", batch)
            .with("data", "travels");
        Task::new(case, move |case, plan, report| {
            attempt(case, || {
                let done = run(bench, gpu, op, batch, case, plan, report);
                gpu.configure(PipelineConfig::default());
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

fn run(
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
    gpu.configure(PipelineConfig {
        streams: 1,
        ..PipelineConfig::default()
    });
    let split = sampled(plan, || {
        traveller.pack();
        traveller.travel(true)
    })?;
    gpu.configure(PipelineConfig::default());

    let alone = |way, len| {
        let mut copies = gpu.copies(len)?;
        sampled(plan, || copies.time(way))
    };
    let (there, back) = (split[0].bytes_to_device, split[0].bytes_from_device);
    let to_device = alone(CopyDirection::ToDevice, there)?;
    let from_device = alone(CopyDirection::FromDevice, back)?;
    let kernels = resident(gpu, op, &load, plan)?.seconds;

    let seconds = |stage: fn(&Timings) -> f64| -> Vec<f64> { split.iter().map(stage).collect() };
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

    // The whole and plain copies over the bus, alternately.
    let len = load.plain.len();
    let failed = Failed::default();
    let mut copies = gpu.copies(len)?;
    let mut contenders = [
        traveller.contender(OURS, PipelineConfig::default(), true, &failed),
        Contender::new("bus", "", || failed.keep(copies.time(CopyDirection::Both))),
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

fn sentence(figure: &Figure<'_>) -> Option<String> {
    let rate = figure.related("throughput");
    let rate = rate.map_or(String::new(), |rate| format!("{rate}, "));
    let (op, profile) = (figure.key("op"), figure.key("profile"));
    (figure.metric() == "share_of_bus").then(|| {
        format!(
            "{op} {profile}, host to host: {rate}{figure} of what the bus carries in plain copies \
             of the same bytes in both directions"
        )
    })
}

fn words(key: &str, value: &str) -> Option<String> {
    let words = match (key, value) {
        ("stage", "to_device") => "host to device",
        ("stage", "from_device") => "device to host",
        _ => return None,
    };
    Some(words.to_owned())
}

fn published(figures: &mut Figures) {
    let case = "GPU, end to end with transfers, lower and upper figure";
    let caveats = [NOT_BIP324, WRONG_TAGS, MEBIBYTES];
    for value in [3200.0, 3600.0] {
        figures.add(case, goodput(value), MAIL, &caveats);
    }
}
