//! `sha256d.merkle`: Merkle roots.

use crate::experiment::{Bench, Experiment, Headline, Task};
use crate::picture::{Bottom, Picture};
use crate::record::Metric;
use crate::sentence::Figure;
use crate::traffic::Turn;
use crate::workload::hashes::compare;
use packetlane::sha256d::Hash;

/// Numbers of leaves.
const LEAVES: [usize; 4] = [9001, 2000, 300, 16];

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "sha256d.merkle",
    description: "Merkle roots",
    cases,
    headline: Headline {
        case: "leaves=9001",
        metric: "time",
    },
    sentence,
    pictures: &[Picture {
        x: Some(Bottom::log("leaves", "leaves")),
        log_y: true,
        ..Picture::new("time", "Merkle root")
    }],
    words,
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let leaves: &[usize] = if bench.quick { &[9001, 16] } else { &LEAVES };
    let task = |&leaves: &usize| {
        let timed = "thread CPU time of a Merkle root from its leaves, which are not overwritten; \
                     the libraries as in sha256d.d64, level by level; ours also detects equal \
                     pairs";
        let case = EXPERIMENT.case(timed).with("leaves", leaves);
        Task::new(case, move |case, plan, report| {
            let turn = Turn::uniform(leaves, 32);
            let leaves: Vec<Hash> = turn
                .genuine()
                .map(|leaf| leaf.try_into().expect("32 bytes"))
                .collect();
            let metric = Metric::time("time", "us", 1);
            let run = (case, plan, report);
            compare(bench.engine, run, metric, 1, &|hashes, digests| {
                digests[0] = hashes.merkle_root(&leaves);
            });
        })
    };
    leaves.iter().map(task).collect()
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    Some(format!("root of {} leaves: {figure}", figure.key("leaves")))
}

fn words(key: &str, value: &str) -> Option<String> {
    (key == "leaves").then(|| format!("{value} leaves"))
}
