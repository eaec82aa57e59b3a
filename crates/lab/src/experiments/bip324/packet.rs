//! `bip324.packet`: packets of one size, sealed or opened, by batch size.

use crate::experiment::{AcrossMachines, Bench, Experiment, Headline, Task};
use crate::picture::{Bottom, Lines, Picture, Y};
use crate::published::{
    ANOTHER_MACHINE, FROM_ANOTHER_MACHINE, Figures, NOT_BIP324, NOTES, time_per_packet,
};
use crate::sentence::Figure;
use crate::workload::packets::{BATCHES, SIZES, uniform};

/// Maximum memory for the contents of a batch, in bytes. Larger cases are left out.
const MAX_BATCH_BYTES: usize = 16 << 20;

/// Rows for packets of one size in the table of machines.
macro_rules! size {
    ($bytes:literal) => {
        AcrossMachines {
            label: concat!(
                "BIP324: ",
                $bytes,
                " bytes, 64 packets at a time; seal, open"
            ),
            cases: &[
                concat!("op=seal batch=64 bytes=", $bytes),
                concat!("op=open batch=64 bytes=", $bytes),
            ],
            metric: "time_per_packet",
            against: Some("ring"),
        }
    };
}

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "bip324.packet",
    description: "Whole packets of one size, many at a time",
    cases,
    headline: Headline {
        case: "op=seal bytes=61 batch=64",
        metric: "time_per_packet",
    },
    across: &[
        size!("61"),
        size!("128"),
        size!("250"),
        size!("1024"),
        size!("4096"),
    ],
    sentence,
    pictures: &[
        Picture {
            x: Some(Bottom::BYTES),
            facets: &["op"],
            held: &[("batch", "64")],
            y: Y::Goodput,
            log_y: true,
            ..Picture::new("time_per_packet", "Whole packets of one size")
        },
        Picture {
            x: Some(Bottom::BATCH),
            facets: &["op"],
            lines: Lines::OursBy("bytes"),
            y: Y::SpeedUp,
            or_bars: false,
            ..Picture::new("time_per_packet", "What batching gains packetlane")
        },
    ],
    published,
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let sizes: &[usize] = if bench.quick {
        &[61, 250, 1024, 16_384]
    } else {
        &SIZES
    };
    let batches: &[usize] = if bench.quick { &[1, 64] } else { &BATCHES };
    let mut tasks = Vec::new();
    for op in ["seal", "open"] {
        let timed = match op {
            "seal" => {
                "thread CPU time to copy the contents into packets and seal them: length cipher, \
                 header, AEAD, rekeys"
            }
            _ => {
                "thread CPU time to take the bytes of a socket, open the packets and visit their \
                 contents: length cipher, header, AEAD, rekeys"
            }
        };
        for &bytes in sizes {
            for &batch in batches {
                if bytes * batch <= MAX_BATCH_BYTES {
                    let case = EXPERIMENT
                        .case(timed)
                        .with("op", op)
                        .with("bytes", bytes)
                        .with("batch", batch);
                    tasks.push(uniform(bench, case, op, bytes, batch));
                }
            }
        }
    }
    tasks
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    Some(format!(
        "{} a {}-byte packet, {} at a time: {figure}",
        figure.key("op"),
        figure.key("bytes"),
        figure.key("batch")
    ))
}

fn published(figures: &mut Figures) {
    for (who, times) in [
        (
            "Bitcoin Core, August 2026",
            [(64, 520.0), (256, 975.0), (1024, 2798.0)],
        ),
        (
            "btcd v2transport 1.1.0",
            [(61, 893.0), (250, 1155.0), (1024, 2058.0)],
        ),
    ] {
        for (bytes, value) in times {
            let case = format!("{who}: seal {bytes} bytes");
            figures.add(&case, time_per_packet(value), NOTES, FROM_ANOTHER_MACHINE);
        }
    }
    for (bytes, value) in [(64, 391.0), (256, 750.0), (1024, 2179.0)] {
        let case = format!("UltrafastSecp256k1: seal {bytes} bytes");
        let caveats = [ANOTHER_MACHINE, NOT_BIP324];
        figures.add(&case, time_per_packet(value), NOTES, &caveats);
    }
}
