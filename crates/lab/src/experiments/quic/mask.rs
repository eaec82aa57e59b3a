//! `quic.mask`: the cost of header protection when sealing packets, by their size.

use crate::experiment::{Bench, Experiment, Headline, Task};
use crate::measure::{Contender, Plan, in_turn};
use crate::picture::{Bottom, Picture};
use crate::published::{
    ANOTHER_MACHINE, FROM_ANOTHER_MACHINE, Figures, MASKS_ALONE, NOTES, QUICLY, WINQUIC,
};
use crate::record::record_added;
use crate::report::{Case, Report};
use crate::rivals::quic::{Shape, best_alone, suite_name};
use crate::sentence::Figure;
use crate::workload::quic::{BATCH, QUICK_SIZES, SIZES, checked, filled};
use packetlane::Engine;
use packetlane::quic::Suite;
use std::cell::RefCell;
use std::rc::Rc;

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "quic.mask",
    description: "The cost of header protection when sealing QUIC packets",
    cases,
    headline: Headline {
        case: "suite=aes128gcm bytes=1280",
        metric: "overhead",
    },
    sentence,
    pictures: &[Picture {
        x: Some(Bottom::BYTES),
        facets: &["suite"],
        or_bars: false,
        published: Some("WinQuic"),
        ..Picture::new("overhead", "Cost of header protection when sealing")
    }],
    published,
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let sizes: &[usize] = if bench.quick { &QUICK_SIZES } else { &SIZES };
    let suites = if bench.quick {
        &Suite::ALL[..1]
    } else {
        &Suite::ALL[..]
    };
    let mut tasks = Vec::new();
    for &suite in suites {
        for &bytes in sizes {
            let timed = "increase in thread CPU time of sealing packets, as in quic.packet: with \
                         and without header protection, alternately";
            let case = EXPERIMENT
                .case(timed)
                .with("suite", suite_name(suite))
                .with("bytes", bytes)
                .with("batch", BATCH);
            tasks.push(Task::new(case, move |case, plan, report| {
                run(bench.engine, suite, bytes, (case, plan, report));
            }));
        }
    }
    tasks
}

fn run(
    engine: Engine,
    suite: Suite,
    bytes: usize,
    (case, plan, report): (&Case, &Plan, &mut Report),
) {
    let shape = |masked| Shape {
        suite,
        bytes,
        batch: BATCH,
        masked,
    };
    let implementations = best_alone(engine);
    let mut contenders = Vec::new();
    for masked in [true, false] {
        checked(&implementations, shape(masked));
    }
    for implementation in &implementations {
        // One sealer for both: with separate memory, the figure was up to twice as large.
        let sealer = Rc::new(RefCell::new(filled(implementation, shape(true))));
        for masked in [true, false] {
            let sealer = Rc::clone(&sealer);
            let seal = move || {
                let mut sealer = sealer.borrow_mut();
                sealer.mask(masked);
                sealer.seal(None);
            };
            contenders.push(Contender::new(
                implementation.name(),
                implementation.backend(),
                seal,
            ));
        }
    }
    let samples = in_turn(&mut contenders, plan);
    for [masked, bare] in samples.as_chunks().0 {
        record_added(report, case, "overhead", masked, bare);
    }
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    Some(format!(
        "{}, {} bytes, {} at a time: {figure} more with header protection{}",
        figure.key("suite"),
        figure.key("bytes"),
        figure.key("batch"),
        figure.of_libraries()
    ))
}

/// Cost of header protection in per cent according to WinQuic's table, by packet size in bytes.
const WINQUIC_MASKS: [(usize, f64); 8] = [
    (4, 33.0),
    (16, 35.0),
    (64, 32.0),
    (256, 27.0),
    (600, 16.0),
    (1000, 13.0),
    (1200, 12.0),
    (1450, 10.0),
];

fn published(figures: &mut Figures) {
    let overhead = |value| ("overhead", value, "%");
    for (bytes, value) in WINQUIC_MASKS {
        let case = format!("WinQuic: bytes={bytes}");
        figures.add(&case, overhead(value), WINQUIC, FROM_ANOTHER_MACHINE);
    }
    for (what, value) in [("at first", 10.0), ("then (607 ns a packet)", 3.8)] {
        let case = format!("quicly with OpenSSL, {what}");
        figures.add(&case, overhead(value), QUICLY, FROM_ANOTHER_MACHINE);
    }
    for (bytes, value) in [(4, 44.0), (1280, 0.2)] {
        let case = format!("picotls fusion: suite=aes128gcm bytes={bytes}");
        figures.add(&case, overhead(value), NOTES, FROM_ANOTHER_MACHINE);
    }
    for (suite, value) in [("aes128gcm", 2.5), ("chacha20poly1305", 3.0)] {
        let case = format!("Intel's multi-buffer library: suite={suite} bytes=1280 batch=16");
        let caveats = [ANOTHER_MACHINE, MASKS_ALONE];
        figures.add(&case, overhead(value), NOTES, &caveats);
    }
}
