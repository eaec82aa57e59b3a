//! `quic.link`: the share of a core needed to seal all packets of a link.

use crate::experiment::{Bench, Experiment, Headline, Task};
use crate::measure::{Samples, in_turn};
use crate::picture::{Bottom, Picture};
use crate::record::{Metric, record};
use crate::rivals::quic::{Shape, best_alone, suite_name};
use crate::sentence::Figure;
use crate::workload::quic::{BATCH, checked, sealing};
use packetlane::quic::Suite;
use std::cell::OnceCell;
use std::rc::Rc;

/// Speeds of links, in Gbit/s.
const LINKS: [usize; 4] = [1, 5, 10, 25];

/// Payload of a packet, in bytes.
const BYTES: usize = 1280;

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "quic.link",
    description: "The share of a core needed to seal all QUIC packets of a link",
    cases,
    headline: Headline {
        case: "gbit=10 suite=aes128gcm",
        metric: "share_of_core",
    },
    sentence,
    pictures: &[Picture {
        x: Some(Bottom::linear("gbit", "Gbit/s of payload")),
        facets: &["suite"],
        ..Picture::new(
            "share_of_core",
            "Sealing all packets of a link, 1280 bytes each",
        )
    }],
    words,
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let mut tasks = Vec::new();
    for suite in Suite::ALL {
        let shape = Shape {
            suite,
            bytes: BYTES,
            batch: BATCH,
            masked: true,
        };
        // One measurement of a suite yields the figures of all links.
        let measured = Rc::new(OnceCell::new());
        for gbit in LINKS {
            if bench.quick && (suite != Suite::Aes128Gcm || gbit != 10) {
                continue;
            }
            let timed = format!(
                "computed: the thread CPU time to seal {BYTES} bytes, batch {BATCH}, with header \
                 protection, as in quic.packet, times the packets in this many Gbit/s of payload; \
                 100 % is one whole core"
            );
            let case = EXPERIMENT
                .case(&timed)
                .with("gbit", gbit)
                .with("suite", suite_name(suite));
            let measured = Rc::clone(&measured);
            tasks.push(Task::new(case, move |case, plan, report| {
                let samples: &Vec<Samples> = measured.get_or_init(|| {
                    let implementations = best_alone(bench.engine);
                    checked(&implementations, shape);
                    let mut contenders: Vec<_> = implementations
                        .iter()
                        .map(|implementation| sealing(implementation, shape))
                        .collect();
                    in_turn(&mut contenders, plan)
                });
                let packets_per_second = gbit as f64 * 1e9 / 8.0 / BYTES as f64;
                let metric = Metric::share_of_core("share_of_core", BATCH, packets_per_second);
                record(report, case, &[metric], samples);
            }));
        }
    }
    tasks
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    Some(format!(
        "seal {} Gbit/s of 1280-byte packets, {}: {figure} of a core",
        figure.key("gbit"),
        figure.key("suite")
    ))
}

fn words(key: &str, value: &str) -> Option<String> {
    (key == "gbit").then(|| format!("{value} Gbit/s"))
}
