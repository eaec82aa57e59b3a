//! `quic.send_path`: how a QUIC sender spends its CPU time.
//!
//! Each turn runs two transfers per implementation: one unmodified, for the CPU time per byte, and
//! one with a clock at quinn's interfaces, for the shares of the stages.

use crate::experiment::{Bench, Experiment, Headline, Task};
use crate::measure::{Plan, Samples};
use crate::picture::Picture;
use crate::published::{FROM_ANOTHER_MACHINE, Figures, NOTES, WINQUIC};
use crate::record::{Metric, enter, record};
use crate::report::{Case, Report};
use crate::sentence::Figure;
use crate::workload::quinn::{Certificate, PIECE, Seams, Stack, clock_seconds, transfer};
use packetlane::Engine;
use std::sync::Arc;
use std::time::Instant;

/// The bytes of one transfer.
const BYTES: usize = 32 << 20;
const QUICK_BYTES: usize = 4 << 20;

/// The stages, in the order of the rows.
const STAGES: [&str; 4] = ["udp_send", "encryption", "header_protection", "rest"];

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "quic.send_path",
    description: "How a QUIC sender spends its CPU time",
    cases,
    headline: Headline {
        case: "stack=quinn",
        metric: "cpu_per_byte",
    },
    sentence,
    pictures: &[
        Picture {
            facets: &["stage"],
            ..Picture::new("share", "Share of a quinn sender's CPU time")
        },
        Picture::new("cpu_per_byte", "CPU time of a quinn sender"),
    ],
    words,
    published,
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let timed = "thread CPU time of a sender: a bulk transfer through quinn over loopback, \
                 AES-128-GCM, 1452-byte datagrams, from the open connection to the last \
                 acknowledgement; the receiver has its own thread. The time per byte is without \
                 clocks at quinn's interfaces, the shares are with them: udp_send is the system \
                 calls, rest is building packets, acknowledgements, copies and the runtime";
    let case = EXPERIMENT.case(timed).with("stack", "quinn");
    vec![Task::new(case, |case, plan, report| {
        let bytes = if bench.quick { QUICK_BYTES } else { BYTES };
        run(bench.engine, bytes / PIECE, case, plan, report);
    })]
}

fn run(engine: Engine, pieces: usize, case: &Case, plan: &Plan, report: &mut Report) {
    let certificate = Certificate::new();
    let clock = clock_seconds();
    let mut samples = Stack::ALL.map(|stack| Samples::new(stack.name(), stack.backend(engine)));
    let mut shares = Stack::ALL.map(|_| STAGES.map(|_| Vec::new()));
    // One transfer takes as long as a dozen samples of other experiments.
    let budget = plan.budget * 10;
    let start = Instant::now();
    for turn in 0..=plan.samples {
        if turn > 3 && start.elapsed() > budget {
            break;
        }
        for (place, stack) in Stack::ALL.into_iter().enumerate() {
            let whole = transfer(stack, engine, &certificate, pieces, None);
            let seams = Arc::<Seams>::default();
            let apart = transfer(stack, engine, &certificate, pieces, Some(&seams));
            // The first turn warms up memory and sockets.
            if turn == 0 {
                continue;
            }
            samples[place].seconds.push(whole.as_secs_f64());
            let clocks = seams.all().map(|seam| seam.clock_seconds(clock));
            let all = apart.as_secs_f64() - clocks.iter().sum::<f64>();
            let [send, encrypt, header] = seams.all().map(|seam| seam.seconds(clock) / all);
            let parts = [send, encrypt, header, 1.0 - send - encrypt - header];
            for (shares, part) in shares[place].iter_mut().zip(parts) {
                shares.push(100.0 * part);
            }
        }
    }
    let metric = Metric::time("cpu_per_byte", "ns", pieces * PIECE);
    record(report, case, &[metric], &samples);
    for (stage, name) in STAGES.into_iter().enumerate() {
        let case = case.clone().with("stage", name);
        for (samples, shares) in samples.iter().zip(&shares) {
            let of = [samples.implementation.as_str(), samples.backend.as_str()];
            enter(report, &case, of, ("share", "%"), &shares[stage]);
        }
    }
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    let stack = figure.key("stack");
    (figure.metric() == "cpu_per_byte")
        .then(|| format!("{stack}, the sender's CPU: {figure} per byte"))
}

fn words(key: &str, value: &str) -> Option<String> {
    ((key, value) == ("stage", "udp_send")).then(|| "UDP send".to_owned())
}

fn published(figures: &mut Figures) {
    let mut add = |who: &str, source: &str, stages: &[(&str, f64)]| {
        for (stage, value) in stages {
            let case = format!("{who}: {stage}");
            figures.add(&case, ("share", *value, "%"), source, FROM_ANOTHER_MACHINE);
        }
    };
    add(
        "WinQuic",
        WINQUIC,
        &[
            ("UDP send", 64.7),
            ("encryption", 22.5),
            ("packet building", 7.0),
            ("rest", 5.8),
        ],
    );
    add(
        "quinn",
        NOTES,
        &[
            ("AEAD", 24.6),
            ("header protection", 0.9),
            ("kernel", 23.5),
            ("copies", 6.0),
            ("quinn and runtime", 44.0),
        ],
    );
}
