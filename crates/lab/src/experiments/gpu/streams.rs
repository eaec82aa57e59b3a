//! `gpu.streams`: the gain from several streams.

use crate::experiment::{Bench, Experiment, Headline, Task};
use crate::measure::{Clock, in_turn};
use crate::picture::{Bottom, Picture};
use crate::published::{Figures, MAIL, NOT_BIP324, WRONG_TAGS};
use crate::record::{record, record_times};
use crate::report::{OURS, distinct};
use crate::sentence::Figure;
use crate::workload::gpu::{
    Arena, BATCH, Contents, Failed, Load, TRAVELS_TIMED, Traveller, attempt,
};
use packetlane::gpu::{Op, PipelineConfig};

/// Numbers of concurrent streams.
const STREAMS: [usize; 5] = [1, 2, 3, 4, 8];

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "gpu.streams",
    description: "The gain from several streams to the GPU",
    cases,
    headline: Headline {
        case: "streams=4",
        metric: "speedup",
    },
    sentence,
    pictures: &[Picture {
        x: Some(Bottom::linear("streams", "streams")),
        ..Picture::new("packets_per_second", "Several streams, host to host")
    }],
    words,
    published,
    needs_gpu: true,
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let Some(gpu) = bench.gpu else { return vec![] };
    let streams: &[usize] = if bench.quick { &[1, 4] } else { &STREAMS };
    let batch = BATCH.min(bench.gpu_packets);
    let task = |&streams: &usize| {
        let timed = format!("{TRAVELS_TIMED}; speedup: how many times as fast as one stream");
        let case = EXPERIMENT
            .case(&timed)
            .with("op", "seal")
            .with("profile", "mail")
            .with("batch", batch)
            .with("streams", streams)
            .with("data", "travels");
        Task::new(case, move |case, plan, report| {
            attempt(case, || {
                let load = Load::new(bench.engine.backend(), &Contents::Mail(0).turn(batch));
                let failed = Failed::default();
                let mut contenders = Vec::new();
                for streams in distinct([streams, 1]) {
                    let cut = PipelineConfig {
                        streams,
                        ..PipelineConfig::default()
                    };
                    gpu.configure(cut);
                    let arena = Arena::pinned(gpu, &load)?;
                    let traveller = Traveller::checked(gpu, Op::Seal, &load, arena)?;
                    contenders.push(traveller.contender(OURS, cut, true, &failed));
                }
                let samples = in_turn(&mut contenders, &plan.by(Clock::Wall));
                drop(contenders);
                gpu.configure(PipelineConfig::default());
                failed.result()?;
                record(report, case, &load.rates(), &samples[..1]);
                let one = samples.last().expect("the samples of one stream");
                // A speed-up is the inverse ratio of times.
                record_times(report, case, "speedup", (one, 1), (&samples[0], 1));
                Ok(())
            });
        })
    };
    streams.iter().map(task).collect()
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    let streams = figure.key("streams");
    (figure.metric() == "speedup").then(|| {
        let times = figure.times("as fast as one");
        format!("{streams} streams: {times}, host to host")
    })
}

fn words(key: &str, value: &str) -> Option<String> {
    (key == "streams").then(|| format!("{value} streams"))
}

fn published(figures: &mut Figures) {
    let case = "several streams against one";
    let caveats = [NOT_BIP324, WRONG_TAGS];
    figures.add(case, ("speedup", 1.37, "x"), MAIL, &caveats);
}
