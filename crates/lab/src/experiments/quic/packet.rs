//! `quic.packet`: QUIC packets of one size, sealed or opened, by suite and batch size.

use crate::experiment::{AcrossMachines, Bench, Experiment, Headline, Task};
use crate::measure::in_turn;
use crate::picture::{Bottom, Picture};
use crate::published::{
    ANOTHER_MACHINE, FROM_ANOTHER_MACHINE, Figures, MASKS_ALONE, NOTES, QUICLY, time_per_packet,
};
use crate::record::{Metric, record};
use crate::rivals::ours::ours;
use crate::rivals::quic::{Shape, suite_name, with_libraries};
use crate::sentence::Figure;
use crate::workload::quic::{BATCH, QUICK_SIZES, SIZES, checked, opening, sealing};
use packetlane::quic::Suite;

/// Packets in a batch.
const BATCHES: [usize; 4] = [1, 4, 16, 64];

/// Batch sizes that are also measured without header protection.
const UNMASKED_BATCHES: [usize; 2] = [1, 16];

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "quic.packet",
    description: "QUIC packet protection",
    cases,
    headline: Headline {
        case: "suite=aes128gcm op=seal bytes=1280 batch=16 header_protection=on",
        metric: "time_per_packet",
    },
    across: &[
        AcrossMachines {
            label: "QUIC, AES-128-GCM: 64 bytes, 16 packets at a time; seal, open",
            cases: &[
                "suite=aes128gcm op=seal bytes=64 batch=16 header_protection=on",
                "suite=aes128gcm op=open bytes=64 batch=16 header_protection=on",
            ],
            metric: "time_per_packet",
            against: Some("rustls-ring"),
        },
        AcrossMachines {
            label: "QUIC, ChaCha20-Poly1305: 64 bytes, 16 packets at a time; seal, open",
            cases: &[
                "suite=chacha20poly1305 op=seal bytes=64 batch=16 header_protection=on",
                "suite=chacha20poly1305 op=open bytes=64 batch=16 header_protection=on",
            ],
            metric: "time_per_packet",
            against: Some("rustls-ring"),
        },
    ],
    sentence,
    pictures: &[Picture {
        x: Some(Bottom::BYTES),
        facets: &["suite", "op"],
        held: &[("header_protection", "on"), ("batch", "16")],
        log_y: true,
        ..Picture::new("time_per_packet", "QUIC packet protection")
    }],
    words,
    published,
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let sizes: &[usize] = if bench.quick { &QUICK_SIZES } else { &SIZES };
    let batches: &[usize] = if bench.quick { &[BATCH] } else { &BATCHES };
    let mut tasks = Vec::new();
    for suite in Suite::ALL {
        for op in ["seal", "open"] {
            for &bytes in sizes {
                for &batch in batches {
                    // Without header protection only to find its cost, and only when sealing.
                    let unmasked = op == "seal" && UNMASKED_BATCHES.contains(&batch);
                    for masked in [true, false] {
                        let shape = Shape {
                            suite,
                            bytes,
                            batch,
                            masked,
                        };
                        if masked || unmasked {
                            tasks.push(task(bench, op, shape));
                        }
                    }
                }
            }
        }
    }
    tasks
}

fn task<'a>(bench: &'a Bench, op: &'static str, shape: Shape) -> Task<'a> {
    let timed = match op {
        "seal" => {
            "thread CPU time to write the short headers of packets whose payloads are in place, \
             to seal the packets and, with header_protection=on, to mask the headers; the \
             libraries are called through quinn's traits, one packet after another"
        }
        _ => {
            "thread CPU time to unmask the headers of packets as read from a socket, recover \
             their packet numbers, open them and visit the payloads; the libraries are called \
             through quinn's traits, one packet after another"
        }
    };
    let case = EXPERIMENT
        .case(timed)
        .with("suite", suite_name(shape.suite))
        .with("op", op)
        .with("bytes", shape.bytes)
        .with("batch", shape.batch)
        .with("header_protection", if shape.masked { "on" } else { "off" });
    Task::new(case, move |case, plan, report| {
        let implementations = with_libraries(ours(bench.engine, bench.quick));
        let wire = checked(&implementations, shape);
        let mut contenders: Vec<_> = implementations
            .iter()
            .map(|implementation| match op {
                "seal" => sealing(implementation, shape),
                _ => opening(implementation, shape, &wire),
            })
            .collect();
        let samples = in_turn(&mut contenders, plan);
        let metric = Metric::time("time_per_packet", "ns", shape.batch);
        record(report, case, &[metric], &samples);
    })
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    Some(format!(
        "{} a {}-byte packet, {}, {} at a time: {figure}",
        figure.key("op"),
        figure.key("bytes"),
        figure.key("suite"),
        figure.key("batch")
    ))
}

fn words(key: &str, value: &str) -> Option<String> {
    let words = match (key, value) {
        ("header_protection", "on") => "with header protection",
        ("header_protection", "off") => "without header protection",
        _ => return None,
    };
    Some(words.to_owned())
}

fn published(figures: &mut Figures) {
    let fusion = "picotls fusion: suite=aes128gcm op=seal bytes=1280";
    figures.add(fusion, time_per_packet(244.0), NOTES, FROM_ANOTHER_MACHINE);
    for (suite, value) in [("aes128gcm", 104.0), ("chacha20poly1305", 518.0)] {
        let case =
            format!("Intel's multi-buffer library: suite={suite} op=seal bytes=1280 batch=16");
        let caveats = [ANOTHER_MACHINE, MASKS_ALONE];
        figures.add(&case, time_per_packet(value), NOTES, &caveats);
    }
    let quicly = "quicly with OpenSSL";
    figures.add(quicly, time_per_packet(585.0), QUICLY, FROM_ANOTHER_MACHINE);
}
