//! `gpu.kernel`: the kernels alone, by packet length.

use crate::experiment::{Bench, Experiment, Headline, Task};
use crate::picture::{Bottom, Lines, Picture};
use crate::published::{
    Figures, KERNELS, MAIL, MEBIBYTES, NO_TRAVEL, NOT_BIP324, WRONG_OUTPUT, WRONG_TAGS, goodput,
    packets_per_second,
};
use crate::record::{Metric, record};
use crate::sentence::Figure;
use crate::workload::gpu::{Contents, Load, RESIDENT_TIMED, attempt, op_name, resident};
use packetlane::gpu::{Gpu, Op};

/// Contents, in bytes, of packets of one size.
const SIZES: [usize; 6] = [64, 256, 1024, 4096, 16_384, 65_536];

/// Maximum number of packets and bytes in a resident batch: enough for every thread of the largest
/// device.
const RESIDENT_PACKETS: usize = 524_288;
const RESIDENT_BYTES: usize = 128 << 20;

/// Instructions of the integer pipe to seal 64 bytes of text: all except multiplications, then
/// multiplications. Counted by compiling for sm_90 with NVRTC 13.0 in November 2026 (the project's
/// notes; 1,270 instructions in total).
const ALU_PER_BLOCK: f64 = 793.0;
const MULTIPLY_PER_BLOCK: f64 = 451.0;

/// Integer instructions per cycle and multiprocessor, from NVIDIA's tables of arithmetic throughput
/// for compute capability 7.5 to 10.0.
const INTEGER_LANES: f64 = 64.0;

/// Bytes per cycle and multiprocessor if the integer pipe is never idle.
const BYTES_PER_CYCLE: f64 = 64.0 * INTEGER_LANES / (ALU_PER_BLOCK + MULTIPLY_PER_BLOCK);

/// Bytes per second that the device could seal if its integer pipe were the only limit.
fn limit(gpu: &Gpu) -> Option<f64> {
    let processors = gpu.processors()?;
    Some(f64::from(processors.count) * processors.hertz * BYTES_PER_CYCLE)
}

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "gpu.kernel",
    description: "The GPU's kernels alone, on packets in its memory",
    cases,
    headline: Headline {
        case: "op=seal profile=mail",
        metric: "packets_per_second",
    },
    sentence,
    pictures: &[Picture {
        x: Some(Bottom::BYTES),
        lines: Lines::OursBy("op"),
        ..Picture::new("goodput", "The GPU's kernels alone, data resident")
    }],
    published,
    needs_gpu: true,
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
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
                "{RESIDENT_TIMED}; the computed limit: {ALU_PER_BLOCK} integer instructions and \
                 {MULTIPLY_PER_BLOCK} multiplications per 64 bytes, {INTEGER_LANES} per cycle and \
                 multiprocessor; a device that overlaps multiplications with other instructions \
                 may exceed it"
            );
            let case = EXPERIMENT.case(&timed).with("op", op_name(op));
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

fn sentence(figure: &Figure<'_>) -> Option<String> {
    let goodput = figure.related("goodput");
    let goodput = goodput.map_or(String::new(), |rate| format!(", {rate}"));
    let share = figure.related("share_of_limit");
    let share = share.map_or(String::new(), |share| {
        format!(", {share} of the computed limit")
    });
    let what = match figure.find("bytes") {
        Some(bytes) => format!("{bytes}-byte packets"),
        None => figure.key("profile").to_owned(),
    };
    let op = figure.key("op");
    Some(format!("{op} {what}, resident: {figure}{goodput}{share}"))
}

fn published(figures: &mut Figures) {
    let first = "GPU, batch of 128 Ki packets, first build";
    let caveats = [NOT_BIP324, KERNELS, WRONG_TAGS, NO_TRAVEL, MEBIBYTES];
    figures.add(first, packets_per_second(12.78e6), MAIL, &caveats[..4]);
    figures.add(first, goodput(3900.0), MAIL, &caveats);
    let second = "GPU, batch of 128 Ki packets, second build";
    let caveats = [NOT_BIP324, KERNELS, WRONG_OUTPUT, NO_TRAVEL, MEBIBYTES];
    figures.add(second, packets_per_second(21.37e6), MAIL, &caveats[..4]);
    figures.add(second, goodput(6600.0), MAIL, &caveats);
}
