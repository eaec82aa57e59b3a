//! `gpu.decoys`: the cost of decoys, which are opened like any packet but do not count.

use crate::experiment::{Bench, Experiment, Headline, Task};
use crate::picture::{Bottom, Lines, Picture};
use crate::published::{Figures, KERNELS, MAIL, NO_TRAVEL, NOT_BIP324, WRONG_TAGS};
use crate::sentence::Figure;
use crate::workload::gpu::{BATCH, Contents, Load, attempt, data_words, rates, timed};
use packetlane::gpu::Op;

/// Decoys, in per cent of all packets.
const DECOYS: [usize; 4] = [0, 5, 20, 50];

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "gpu.decoys",
    description: "The cost of decoys on the GPU",
    cases,
    headline: Headline {
        case: "decoys=20 data=travels",
        metric: "packets_per_second",
    },
    sentence,
    pictures: &[Picture {
        x: Some(Bottom::DECOYS),
        lines: Lines::OursBy("data"),
        or_bars: false,
        ..Picture::new(
            "packets_per_second",
            "Cost of decoys on the GPU: genuine packets",
        )
    }],
    words: data_words,
    published,
    needs_gpu: true,
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let Some(gpu) = bench.gpu else { return vec![] };
    let shares: &[usize] = if bench.quick { &[0, 20] } else { &DECOYS };
    let batch = BATCH.min(bench.gpu_packets);
    let mut tasks = Vec::new();
    for data in ["resident", "travels"] {
        for &decoys in shares {
            let timed = format!(
                "{}; packets and goodput count only genuine packets",
                timed(data)
            );
            let case = EXPERIMENT
                .case(&timed)
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

fn sentence(figure: &Figure<'_>) -> Option<String> {
    Some(format!(
        "{} {}, {} % decoys, data {}: {figure}, genuine only",
        figure.key("op"),
        figure.key("profile"),
        figure.key("decoys"),
        figure.key("data")
    ))
}

fn published(figures: &mut Figures) {
    let case = "20 % of packets decoys";
    let caveats = [NOT_BIP324, KERNELS, WRONG_TAGS, NO_TRAVEL];
    figures.add(case, ("loss_to_decoys", 1.4, "%"), MAIL, &caveats);
}
