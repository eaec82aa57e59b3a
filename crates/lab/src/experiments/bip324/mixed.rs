//! `bip324.mixed`: traffic of a profile, sealed by one session and opened by another.

use crate::experiment::{AcrossMachines, Bench, Experiment, Headline, Task};
use crate::measure::{Contender, Plan, in_turn};
use crate::picture::{Bottom, Picture};
use crate::published::{
    Figures, KERNELS, MAIL, MEBIBYTES, NOT_BIP324, WRONG_OUTPUT, WRONG_TAGS, goodput,
    packets_per_second,
};
use crate::record::{Metric, record};
use crate::report::{Case, OURS, Report};
use crate::sentence::Figure;
use crate::traffic::Turn;
use crate::workload::packets::{BATCHES, connected, rivals, turns_of};

/// Decoys, in per cent of all packets.
const DECOYS: [usize; 4] = [0, 5, 20, 50];

/// The batch size for decoys.
const DECOY_BATCH: usize = 1024;

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "bip324.mixed",
    description: "Traffic of mixed sizes, sealed and opened",
    cases,
    headline: Headline {
        case: "profile=mail batch=1024 decoys=0",
        metric: "packets_per_second",
    },
    across: &[AcrossMachines {
        label: "BIP324: mixed sizes, 1024 packets at a time; sealed and opened",
        cases: &["profile=mail batch=1024 decoys=0"],
        metric: "packets_per_second",
        against: Some("ring"),
    }],
    sentence,
    pictures: &[
        Picture {
            x: Some(Bottom::BATCH),
            facets: &["profile"],
            held: &[("decoys", "0")],
            ..Picture::new("packets_per_second", "Mixed traffic, seal and open")
        },
        Picture {
            x: Some(Bottom::DECOYS),
            facets: &["profile"],
            held: &[("batch", "1024")],
            or_bars: false,
            ..Picture::new("packets_per_second", "Cost of decoys: genuine packets")
        },
    ],
    published,
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let mut tasks = Vec::new();
    for profile in &bench.profiles {
        let quick_batches: &[usize] = if profile.name == "archive" {
            &[64]
        } else {
            &[1, 4, 64, 1024]
        };
        let batches: &[usize] = if bench.quick { quick_batches } else { &BATCHES };
        let decoys = DECOYS.iter().skip(1).map(|&decoys| (DECOY_BATCH, decoys));
        let decoys = decoys.filter(|_| !bench.quick || profile.name == "mail");
        for (batch, decoys) in batches.iter().map(|&batch| (batch, 0)).chain(decoys) {
            let timed = "thread CPU time of both ends: contents to wire and back, without the \
                         handshake; packets and goodput count only genuine packets; a batch is \
                         sent when it holds 256 KiB; a recording is replayed up to 16 MiB";
            let case = EXPERIMENT
                .case(timed)
                .with("profile", &profile.name)
                .with("batch", batch)
                .with("decoys", decoys);
            tasks.push(Task::new(case, move |case, plan, report| {
                let turns = profile.turns(turns_of(batch), batch, decoys);
                run(bench, &turns, case, plan, report);
            }));
        }
    }
    tasks
}

#[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn run(bench: &Bench, turns: &[Turn], case: &Case, plan: &Plan, report: &mut Report) {
    let implementations = rivals(bench);
    let mut contenders: Vec<_> = connected(&implementations, turns)
        .into_iter()
        .map(|(implementation, [mut from, mut to])| {
            Contender::new(&implementation.name, implementation.backend, move || {
                let mut len = 0;
                for turn in turns {
                    from.seal(turn, &mut |sealed| {
                        to.open(sealed, &mut |contents| len += contents.len());
                    });
                }
                len
            })
        })
        .collect();
    let packets: usize = turns.iter().map(|turn| turn.genuine().count()).sum();
    let contents: usize = turns
        .iter()
        .flat_map(|turn| turn.genuine().map(<[u8]>::len))
        .sum();
    let wire: usize = turns.iter().map(Turn::wire_len).sum();
    let metrics = [
        Metric::rate("packets_per_second", "packets/s", packets as f64),
        Metric::rate("goodput", "MB/s", contents as f64 / 1e6),
    ];
    let samples = in_turn(&mut contenders, plan);
    record(report, case, &metrics, &samples);
    let overhead = 100.0 * (wire - contents) as f64 / contents as f64;
    report.counted(case, OURS, "overhead", "%", overhead);
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    let goodput = figure.related("goodput");
    let goodput = goodput.map_or(String::new(), |rate| format!(", {rate}"));
    let decoys = match figure.key("decoys") {
        "0" | "?" => String::new(),
        share => format!(", {share} % decoys"),
    };
    Some(format!(
        "{}, batch {}{decoys}: {figure} seal+open{goodput}",
        figure.key("profile"),
        figure.key("batch")
    ))
}

/// Caveat for the overhead stated in the message.
const NINETEEN: &str = "Counts 19 bytes a packet; BIP324 has 20 (length 3, header 1, tag 16).";

fn published(figures: &mut Figures) {
    let cpu = "CPU, one thread";
    let rate = packets_per_second;
    figures.add(cpu, rate(715e3), MAIL, &[NOT_BIP324]);
    figures.add(cpu, goodput(221.0), MAIL, &[NOT_BIP324, MEBIBYTES]);
    figures.add(cpu, ("overhead", 5.5, "%"), MAIL, &[NINETEEN]);

    let first = "GPU, batch of 128 Ki packets, first build";
    let caveats = [NOT_BIP324, KERNELS, WRONG_TAGS, MEBIBYTES];
    let gpu = &caveats[..3];
    figures.add(first, rate(12.78e6), MAIL, gpu);
    figures.add(first, goodput(3900.0), MAIL, &caveats);
    let second = "GPU, batch of 128 Ki packets, second build";
    let caveats = [NOT_BIP324, KERNELS, WRONG_OUTPUT, MEBIBYTES];
    figures.add(second, rate(21.37e6), MAIL, &caveats[..3]);
    figures.add(second, goodput(6600.0), MAIL, &caveats);

    let end_to_end = "GPU, end to end with transfers, lower and upper figure";
    for value in [3200.0, 3600.0] {
        let caveats = [NOT_BIP324, WRONG_TAGS, MEBIBYTES];
        figures.add(end_to_end, goodput(value), MAIL, &caveats);
    }
    let streams = "GPU, several streams against one";
    figures.add(streams, ("speed_up", 1.37, "times"), MAIL, gpu);
    let decoys = "GPU, 20 % of packets decoys";
    figures.add(decoys, ("loss_to_decoys", 1.4, "%"), MAIL, gpu);
}
