//! `sha256d.d64`: double SHA-256 of 64-byte inputs, such as Merkle tree nodes.

use crate::experiment::{Bench, Experiment, Headline, Task};
use crate::picture::Picture;
use crate::published::{
    ANOTHER_MACHINE, CORE, FROM_ANOTHER_MACHINE, Figures, NOTES, PER_BYTE, time_per_hash,
};
use crate::record::Metric;
use crate::sentence::Figure;
use crate::traffic::Turn;
use crate::workload::hashes::{MESSAGES_AT_A_TIME, compare};

/// Numbers of inputs hashed together.
const BATCHES: [usize; 8] = [1, 2, 3, 4, 8, 16, 64, 1024];

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "sha256d.d64",
    description: "Double SHA-256 of many 64-byte inputs",
    cases,
    headline: Headline {
        case: "batch=1024",
        metric: "time_per_hash",
    },
    sentence,
    pictures: &[Picture {
        x: Some(MESSAGES_AT_A_TIME),
        ..Picture::new("time_per_hash", "Double SHA-256 of 64-byte inputs")
    }],
    published,
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let batches: &[usize] = if bench.quick { &[1, 8, 1024] } else { &BATCHES };
    let task = |&batch: &usize| {
        let timed = "thread CPU time of the double SHA-256 of consecutive 64-byte inputs; \
                     bitcoin_hashes uses hash_64_many, two at a time, and hash for an odd last \
                     one; the other libraries hash one after the other";
        let case = EXPERIMENT.case(timed).with("batch", batch);
        Task::new(case, move |case, plan, report| {
            let turn = Turn::uniform(batch, 64);
            let pairs: Vec<[u8; 64]> = turn
                .genuine()
                .map(|pair| pair.try_into().expect("64 bytes"))
                .collect();
            let metric = Metric::time("time_per_hash", "ns", batch);
            let run = (case, plan, report);
            compare(bench.engine, run, metric, batch, &|hashes, digests| {
                hashes.hash64(&pairs, digests);
            });
        })
    };
    batches.iter().map(task).collect()
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    let batch = figure.key("batch");
    Some(format!("64 bytes, {batch} at a time: {figure} per hash"))
}

fn published(figures: &mut Figures) {
    let core = "Bitcoin Core, 64 bytes";
    let caveats = [ANOTHER_MACHINE, PER_BYTE];
    figures.add(core, time_per_hash(99.0), CORE, &caveats);
    for value in [100.0, 107.0] {
        let case = "Bitcoin Core's two-way SHA-NI, lower and upper figure";
        figures.add(case, time_per_hash(value), NOTES, FROM_ANOTHER_MACHINE);
    }
}
