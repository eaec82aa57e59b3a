//! `bip324.latency`: the time of a batch.

use crate::experiment::{Bench, Experiment, Headline, Task};
use crate::measure::in_turn;
use crate::picture::{Bottom, Picture};
use crate::published::{Figures, KERNELS, MAIL, NOT_BIP324, WRONG_TAGS, time_per_packet};
use crate::record::{Metric, record};
use crate::sentence::Figure;
use crate::workload::packets::{BATCHES, rivals, sealing, turns_of};

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "bip324.latency",
    description: "How long a batch takes until its packets can be sent",
    cases,
    headline: Headline {
        case: "profile=mail batch=64",
        metric: "time_per_batch",
    },
    sentence,
    pictures: &[
        Picture {
            x: Some(Bottom::BATCH),
            facets: &["profile"],
            log_y: true,
            ..Picture::new("time_per_batch", "Time of a whole batch")
        },
        Picture {
            x: Some(Bottom::BATCH),
            facets: &["profile"],
            log_y: true,
            ..Picture::new("time_per_packet", "The batch's time divided by its packets")
        },
    ],
    published,
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let mut tasks = Vec::new();
    let profiles = bench.profiles.iter();
    for profile in profiles.filter(|profile| !bench.quick || profile.name == "mail") {
        for batch in BATCHES {
            let timed = "thread CPU time to copy a batch's contents into packets and seal them: \
                         the time that its packets wait";
            let case = EXPERIMENT
                .case(timed)
                .with("profile", &profile.name)
                .with("batch", batch);
            tasks.push(Task::new(case, move |case, plan, report| {
                let implementations = rivals(bench);
                let turns = profile.turns(turns_of(batch), batch, 0);
                let mut contenders = sealing(&implementations, &turns);
                let samples = in_turn(&mut contenders, plan);
                let metrics = [
                    Metric::time("time_per_batch", "us", turns.len()),
                    Metric::time("time_per_packet", "ns", turns.len() * batch),
                ];
                record(report, case, &metrics, &samples);
            }));
        }
    }
    tasks
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    let each = figure.related("time_per_packet");
    let each = each.map_or(String::new(), |time| format!(", {time} per packet"));
    Some(format!(
        "{}, a batch of {}: {figure}{each}",
        figure.key("profile"),
        figure.key("batch")
    ))
}

fn published(figures: &mut Figures) {
    let gpu = [NOT_BIP324, KERNELS, WRONG_TAGS];
    for (case, value) in [
        ("GPU, one packet", 17_600.0),
        ("GPU, batch of 64", 500.0),
        ("GPU, batches from 1024", 63.0),
    ] {
        figures.add(case, time_per_packet(value), MAIL, &gpu);
    }
    for value in [4096.0, 16_384.0] {
        let case = "GPU, best batch size, lower and upper figure";
        figures.add(case, ("batch", value, "packets"), MAIL, &gpu);
    }
}
