//! `bip324.alone`: one session with one packet at a time.

use crate::experiment::{AcrossMachines, Bench, Experiment, Headline, Task};
use crate::picture::{Bottom, Picture};
use crate::sentence::Figure;
use crate::workload::packets::{SIZES, uniform};

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "bip324.alone",
    description: "Whole packets of one session, one at a time",
    cases,
    headline: Headline {
        case: "op=seal bytes=61",
        metric: "time_per_packet",
    },
    across: &[AcrossMachines {
        label: "BIP324: 61 bytes, a lone packet; seal, open",
        cases: &["op=seal bytes=61", "op=open bytes=61"],
        metric: "time_per_packet",
        against: Some("ring"),
    }],
    sentence,
    pictures: &[Picture {
        x: Some(Bottom::BYTES),
        facets: &["op"],
        log_y: true,
        ..Picture::new("time_per_packet", "One session, one packet at a time")
    }],
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let sizes: &[usize] = if bench.quick { &[61, 1024] } else { &SIZES };
    let mut tasks = Vec::new();
    for op in ["seal", "open"] {
        for &bytes in sizes {
            let timed = "thread CPU time of one whole packet of one session, in its own batch; \
                         ours with precomputed keystream, at most 1 KiB";
            let case = EXPERIMENT.case(timed).with("op", op).with("bytes", bytes);
            tasks.push(uniform(bench, case, op, bytes, 1));
        }
    }
    tasks
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    Some(format!(
        "{} a lone {}-byte packet: {figure}",
        figure.key("op"),
        figure.key("bytes")
    ))
}
