//! `gpu.batch`: the best batch size.

use crate::experiment::{Bench, Experiment, Headline, Task};
use crate::picture::{Bottom, Lines, Picture};
use crate::published::{Figures, KERNELS, MAIL, NO_TRAVEL, NOT_BIP324, WRONG_TAGS};
use crate::report::Report;
use crate::sentence::Figure;
use crate::workload::gpu::{
    BATCHES, Contents, Load, attempt, batch_of, conclude_from, data_words, rates, timed,
};
use packetlane::gpu::Op;

/// The smallest batch measured. Smaller ones do not fill any device.
const MIN_BATCH: usize = 256;

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "gpu.batch",
    description: "The best batch size for the GPU",
    cases,
    headline: Headline {
        case: "data=travels",
        metric: "best_batch",
    },
    across: &[],
    sentence,
    pictures: &[Picture {
        x: Some(Bottom::BATCH),
        lines: Lines::OursBy("data"),
        log_y: true,
        ..Picture::new("packets_per_second", "Throughput by batch size")
    }],
    words: data_words,
    published,
    conclude,
    needs_gpu: true,
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let Some(gpu) = bench.gpu else { return vec![] };
    let batches: &[usize] = match bench.quick {
        true => &[64, 1024, 16_384],
        false => &BATCHES,
    };
    let smallest = if bench.quick { 1 } else { MIN_BATCH };
    let mut tasks = Vec::new();
    for data in ["resident", "travels"] {
        for &batch in batches {
            if !(smallest..=bench.gpu_packets).contains(&batch) {
                continue;
            }
            let case = EXPERIMENT
                .case(timed(data))
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

/// Records the batch size with the highest rate.
fn conclude(report: &mut Report) {
    let to = (
        "best_batch",
        "the measured batch size with the highest rate",
    );
    conclude_from(report, EXPERIMENT.name, "packets_per_second", to, |rows| {
        let best = rows.iter().max_by(|a, b| a.median.total_cmp(&b.median));
        best.and_then(|row| batch_of(row))
    });
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    let (op, profile) = (figure.key("op"), figure.key("profile"));
    let data = figure.key("data");
    (figure.metric() == "best_batch")
        .then(|| format!("{op} {profile}, data {data}: a batch of {figure}"))
}

fn published(figures: &mut Figures) {
    let case = "best batch size, lower and upper figure";
    let caveats = [NOT_BIP324, KERNELS, WRONG_TAGS, NO_TRAVEL];
    for value in [4096.0, 16_384.0] {
        figures.add(case, ("best_batch", value, "packets"), MAIL, &caveats);
    }
}
