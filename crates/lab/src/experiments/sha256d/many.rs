//! `sha256d.many`: double SHA-256 of messages of one length, by batch size.

use crate::experiment::{AcrossMachines, Bench, Experiment, Headline, Task};
use crate::picture::{Lines, Picture, Y};
use crate::published::{
    ANOTHER_MACHINE, CORE, FROM_ANOTHER_MACHINE, Figures, NOTES, PER_BYTE, time_per_hash,
};
use crate::record::Metric;
use crate::sentence::Figure;
use crate::traffic::Turn;
use crate::workload::hashes::{MESSAGES_AT_A_TIME, compare};

/// Message lengths in bytes: a hash, two hashes, a header, a transaction, and those of the
/// published figures.
const SIZES: [usize; 6] = [32, 64, 80, 250, 1024, 4096];

/// Numbers of messages hashed together.
const BATCHES: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 1024];

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "sha256d.many",
    description: "Double SHA-256 of many messages",
    cases,
    headline: Headline {
        case: "bytes=1024 batch=128",
        metric: "time_per_hash",
    },
    across: &[AcrossMachines {
        label: "Double SHA-256: 1 KiB, 8 messages at a time",
        cases: &["bytes=1024 batch=8"],
        metric: "time_per_hash",
        against: Some("sha2"),
    }],
    sentence,
    pictures: &[
        Picture {
            x: Some(MESSAGES_AT_A_TIME),
            facets: &["bytes"],
            ..Picture::new("time_per_hash", "Double SHA-256 of many messages")
        },
        Picture {
            x: Some(MESSAGES_AT_A_TIME),
            lines: Lines::OursBy("bytes"),
            y: Y::Against("sha2"),
            or_bars: false,
            ..Picture::new("time_per_hash", "What batching gains packetlane over sha2")
        },
    ],
    published,
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let sizes: &[usize] = if bench.quick { &[80, 1024] } else { &SIZES };
    let batches: &[usize] = if bench.quick { &[1, 8, 128] } else { &BATCHES };
    let timed = "thread CPU time of the double SHA-256 of separate messages; the libraries hash \
                 one after the other";
    let mut tasks = Vec::new();
    for &bytes in sizes {
        for &batch in batches {
            let case = EXPERIMENT
                .case(timed)
                .with("bytes", bytes)
                .with("batch", batch);
            tasks.push(Task::new(case, move |case, plan, report| {
                let turn = Turn::uniform(batch, bytes);
                let messages: Vec<&[u8]> = turn.genuine().collect();
                let metric = Metric::time("time_per_hash", "ns", batch);
                let run = (case, plan, report);
                compare(bench.engine, run, metric, batch, &|hashes, digests| {
                    hashes.many(&messages, digests);
                });
            }));
        }
    }
    tasks
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    Some(format!(
        "{} bytes, {} messages at a time: {figure} per hash",
        figure.key("bytes"),
        figure.key("batch")
    ))
}

const BLLVM: &str = "bllvm, \"Bitcoin Core vs BLLVM Performance Comparison\", 8 November 2025 \
    (docs/history/benchmarks/CORE_PERFORMANCE_COMPARISON.md of bllvm-consensus, kept in \
    https://github.com/BTCDecoded/blvm-docs)";

/// Its table of batches: 1 KiB messages hashed together, and the time per hash in ns.
const BLLVM_BATCHES: [(usize, f64); 5] = [
    (8, 10_770.0),
    (16, 8330.0),
    (32, 3840.0),
    (64, 2210.0),
    (128, 1350.0),
];

/// Caveat for bllvm's table. The time of the function that it names is also listed.
const NOT_AVX2: &str = "No AVX2: the function of that name is never reached, and rayon spreads \
    sequential hashes over threads, whose start the small batches pay.";

const SINGLE_OR_DOUBLE: &str = "It returns double hashes where single ones are asked for, and its \
    Merkle nodes are hashed once where Bitcoin hashes twice.";

/// Caveat for Bitcoin Core's hash of 32 bytes.
const SINGLE: &str = "A single hash, not a double one.";

fn published(figures: &mut Figures) {
    let core = "Bitcoin Core, SHA-256 of 32 bytes";
    let caveats = [ANOTHER_MACHINE, PER_BYTE, SINGLE];
    figures.add(core, time_per_hash(163.0), CORE, &caveats);
    for (batch, value) in BLLVM_BATCHES {
        let case = format!("bllvm, \"AVX2 8-way\": bytes=1024 batch={batch}");
        let caveats = [ANOTHER_MACHINE, NOT_AVX2];
        figures.add(&case, time_per_hash(value), BLLVM, &caveats);
    }
    let reached = "bllvm, its AVX2 function where it is reached";
    let caveats = [ANOTHER_MACHINE, SINGLE_OR_DOUBLE];
    figures.add(reached, time_per_hash(5860.0), NOTES, &caveats);
    for (bytes, value) in [(80, 119.0), (1024, 385.0)] {
        let case = format!("Intel's multi-buffer library: {bytes} bytes");
        figures.add(&case, time_per_hash(value), NOTES, FROM_ANOTHER_MACHINE);
    }
}
