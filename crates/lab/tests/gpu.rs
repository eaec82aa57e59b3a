//! The GPU experiments and the GPU check, on a simulated device. Its figures are meaningless: these
//! tests check rows, units and cases, and that a wrong device is detected before anything is timed.

use packetlane::{Backend, Engine};
use packetlane_gpu::{Gpu, GpuError};
use packetlane_lab::gpu_check::{CheckError, check};
use packetlane_lab::report::{Case, Machine, OURS, Report, Row};
use packetlane_lab::run::{self, LabError, Options, published};
use packetlane_lab::show::{answers::answers, draw::draw, html, notes::Notes, plot, text};
use packetlane_ptx_emulator::{Call, StandIn};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The simulated device, for the lifetime of the process.
fn device(stand_in: &StandIn) -> &'static Gpu {
    Box::leak(Box::new(Gpu::on(stand_in.clone())))
}

/// A quick run of one or several experiments with small batches.
fn quick(gpu: &'static Gpu, names: &[&str]) -> Result<Report, LabError> {
    let options = Options {
        experiments: names.iter().map(|name| (*name).to_owned()).collect(),
        quick: true,
        gpu_packets: Some(64),
        ..Options::default()
    };
    run::run(Engine::detect().unwrap().with_gpu(gpu), &options)
}

fn names() -> Vec<&'static str> {
    let mut names = run::names();
    names.retain(|name| name.starts_with("gpu."));
    names
}

#[test]
fn every_experiment_has_the_rows_it_promises() {
    let stand_in = StandIn::new(1);
    let report = quick(device(&stand_in), &names()).unwrap();
    assert_eq!(report.machine.gpu.as_deref(), Some("stand-in"));
    assert_eq!(report.experiments(), names());
    let rows = |experiment: &str, metric: &str| -> Vec<&Row> {
        let of = |row: &&Row| row.experiment == experiment && row.metric == metric;
        report.rows.iter().filter(of).collect()
    };
    let cases = |experiment: &str, metric: &str| -> Vec<&str> {
        let rows = rows(experiment, metric);
        let ours = rows.iter().filter(|row| row.implementation == OURS);
        ours.map(|row| row.case.as_str()).collect()
    };
    let kernels = cases("gpu.kernel", "packets_per_second");
    for op in ["seal", "open"] {
        for what in ["bytes=64", "bytes=1024", "bytes=65536", "profile=mail"] {
            let case = format!("op={op} {what} batch=64 data=resident");
            assert!(kernels.contains(&&*case), "{case} of {kernels:?}");
        }
    }
    assert_eq!(kernels, cases("gpu.kernel", "goodput"));
    assert_eq!(kernels, cases("gpu.kernel", "share_of_limit"));
    assert_eq!(
        cases("gpu.latency", "time_per_batch"),
        [
            "op=seal profile=mail batch=1 data=travels",
            "op=seal profile=mail batch=64 data=travels",
            "op=seal bytes=61 batch=1 data=travels",
            "op=seal bytes=61 batch=64 data=travels"
        ]
    );
    let stages = |metric: &str| -> Vec<String> {
        let rows = rows("gpu.transfer", metric);
        let stage = rows.iter().filter_map(|row| row.key("stage"));
        stage.map(str::to_owned).collect()
    };
    let three = ["to_device", "kernels", "from_device"];
    assert_eq!(stages("share"), three);
    assert_eq!(stages("time"), [&three[..], &["whole"]].concat());
    assert_eq!(stages("throughput"), [&three[..], &["whole"]].concat());
    assert_eq!(
        stages("throughput_alone"),
        [&three[..], &["both_ways"]].concat()
    );
    assert_eq!(stages("share_of_bus"), ["whole"]);
    let shares = rows("gpu.transfer", "share");
    let sum: f64 = shares.iter().map(|row| row.max).sum();
    assert!(sum >= 99.9, "{sum}");
    assert_eq!(
        cases("gpu.streams", "speedup"),
        cases("gpu.streams", "packets_per_second")
    );
    assert_eq!(cases("gpu.streams", "speedup").len(), 2);
    assert_eq!(cases("gpu.decoys", "packets_per_second").len(), 4);
    assert_eq!(cases("gpu.batch", "best_batch").len(), 2);

    let units = |row: &Row| (row.metric.clone(), row.unit.clone());
    let units: BTreeSet<(String, String)> = report.rows.iter().map(units).collect();
    let expected = [
        ("best_batch", "packets"),
        ("crossover", "packets"),
        ("goodput", "MB/s"),
        ("packets_per_second", "packets/s"),
        ("share", "%"),
        ("share_of_bus", "%"),
        ("share_of_limit", "%"),
        ("speedup", "x"),
        ("throughput", "MB/s"),
        ("throughput_alone", "MB/s"),
        ("time", "us"),
        ("time_per_batch", "us"),
        ("time_per_packet", "ns"),
    ];
    for unit in &units {
        let known = expected
            .iter()
            .any(|(metric, name)| (*metric, *name) == (&*unit.0, &*unit.1));
        assert!(known, "{unit:?}");
    }
    for row in &report.rows {
        let data = row.key("data");
        assert!(matches!(data, Some("resident" | "travels")), "{row:?}");
        assert!(!row.timed.is_empty() && row.median > 0.0, "{row:?}");
        let on_device = row.implementation == OURS || row.implementation.contains("cuda");
        assert_eq!(row.backend == "cuda", on_device, "{row:?}");
    }
    // Each batch that travels is compared with the CPU and with ordinary memory.
    let cpu = format!("packetlane-{}", Engine::detect().unwrap().backend().name());
    for case in cases("gpu.latency", "time_per_batch") {
        for against in [cpu.as_str(), "packetlane-cuda-plain"] {
            let mut ratios = report.ratios.iter();
            let found = ratios.any(|ratio| ratio.case == case && ratio.against == against);
            assert!(found, "{case} against {against}");
        }
    }
    assert!(
        report
            .published
            .iter()
            .any(|figure| figure.value == 21.37e6)
    );
    for answer in answers(&report) {
        assert!(!answer.text.contains('?'), "{}", answer.text);
    }
    let origin = html::Origin {
        date: "2026-11-30".into(),
        command: "packetlane lab".into(),
    };
    assert!(html::render(&report, &origin).contains("stand-in"));
    assert!(text::render(&report).contains("gpu.kernel"));
}

#[test]
fn a_wrong_device_is_detected_before_anything_is_timed() {
    for name in names() {
        let stand_in = StandIn::new(2);
        stand_in.spoil();
        let gpu = device(&stand_in);
        let run = catch_unwind(AssertUnwindSafe(|| quick(gpu, &[name])));
        let panic = run.expect_err(name);
        let text = panic.downcast_ref::<&str>().expect("plain text");
        assert!(text.contains("other bytes than the CPU's"), "{text}");
        // One batch: at most one launch for each class of lengths.
        let launches = stand_in.count(Call::Launch);
        assert!((1..=5).contains(&launches), "{name}: {launches} launches");
    }
}

#[test]
fn a_failing_device_only_leaves_rows_out() {
    let stand_in = StandIn::new(3);
    let gpu = device(&stand_in);
    stand_in.fail(Call::Launch, 0, GpuError::Undone);
    let report = quick(gpu, &["gpu.decoys", "gpu.latency"]).unwrap();
    assert!(report.rows.is_empty());
}

fn best() -> Backend {
    Engine::detect().unwrap().backend()
}

#[test]
fn the_check_counts_what_it_has_compared() {
    let mut said = Vec::new();
    let gpu = Gpu::on(StandIn::new(4));
    let checked = check(&gpu, best(), 5000, 40_000, |line| {
        said.push(line.to_owned())
    })
    .unwrap();
    assert_eq!(checked.random, 5000);
    // Sealed and opened, from two kinds of memory: all lengths twice, one packet, long and mixed
    // ones.
    assert_eq!(checked.suite, 2 * 2 * (2 * 1101 + 1 + 13 + 3013));
    assert!(checked.forged > 1500, "{checked:?}");
    assert!(checked.batches >= 22);
    assert!(said.last().unwrap().starts_with("5000 of 5000"));
}

#[test]
fn the_check_fails_where_the_device_is_wrong() {
    let stand_in = StandIn::new(5);
    stand_in.spoil();
    let failed = check(&Gpu::on(stand_in), best(), 100, 5000, |_| ()).unwrap_err();
    assert!(matches!(failed, CheckError::Different { packets, .. } if packets > 1000));
    assert!(failed.to_string().contains("WRONG: all lengths to 1100"));

    let stand_in = StandIn::new(6);
    stand_in.idle();
    let failed = check(&Gpu::on(stand_in), best(), 100, 5000, |_| ()).unwrap_err();
    assert!(matches!(failed, CheckError::Device(GpuError::Undone)));
}

/// A report with invented rows.
fn made_up(rows: &[(&str, &str, &str, &str, f64)]) -> Report {
    let mut report = Report::new(Machine::here());
    for (experiment, case, implementation, metric, value) in rows {
        let pairs = case.split(' ').filter_map(|pair| pair.split_once('='));
        let case = pairs.fold(Case::new(experiment, ""), |case, (key, value)| {
            case.with(key, value)
        });
        report.counted(&case, implementation, metric, "us", *value);
        let backend = match *implementation {
            "packetlane-avx2" => "avx2",
            _ => "cuda",
        };
        report.rows.last_mut().unwrap().backend = backend.into();
    }
    report
}

#[test]
fn the_crossover_is_where_the_device_stays_ahead() {
    let mut rows = Vec::new();
    let time = |rows: &mut Vec<_>, case: &'static str, device: f64, cpu: f64| {
        rows.push(("gpu.latency", case, OURS, "time_per_batch", device));
        rows.push((
            "gpu.latency",
            case,
            "packetlane-cuda-plain",
            "time_per_batch",
            0.1,
        ));
        rows.push((
            "gpu.latency",
            case,
            "packetlane-avx2",
            "time_per_batch",
            cpu,
        ));
    };
    // Ahead by chance at 4, then permanently from 64.
    time(&mut rows, "profile=mail batch=64 data=travels", 20.0, 25.0);
    time(&mut rows, "profile=mail batch=1 data=travels", 17.0, 0.2);
    time(&mut rows, "profile=mail batch=4 data=travels", 0.5, 0.6);
    time(&mut rows, "profile=mail batch=16 data=travels", 18.0, 3.0);
    time(&mut rows, "profile=mail batch=256 data=travels", 30.0, 90.0);
    // Never.
    time(&mut rows, "bytes=61 batch=1 data=travels", 17.0, 0.2);
    time(&mut rows, "bytes=61 batch=4 data=travels", 17.0, 0.6);
    for (case, value) in [
        ("profile=mail batch=64 data=travels", 5.0),
        ("profile=mail batch=256 data=travels", 9.0),
        ("profile=mail batch=1024 data=travels", 7.0),
    ] {
        rows.push(("gpu.batch", case, OURS, "packets_per_second", value));
    }
    let mut report = made_up(&rows);
    let before = report.rows.len();
    run::conclude(&mut report);
    let added: Vec<_> = report.rows[before..]
        .iter()
        .map(|row| (row.metric.as_str(), row.case.as_str(), row.median))
        .collect();
    assert_eq!(
        added,
        [
            ("crossover", "profile=mail data=travels", 64.0),
            ("best_batch", "profile=mail data=travels", 256.0)
        ]
    );

    let plots = plot::plots(&report);
    let of = |what: &str| {
        let mut plots = plots.iter();
        let found =
            plots.find(|plot| plot.experiment == "gpu.latency" && plot.title.contains(what));
        found.unwrap()
    };
    let marked = of("mail");
    assert_eq!(marked.marks, [(64.0, "crossover: 64.0 packets".to_owned())]);
    assert!(draw(marked).contains("crossover: 64.0 packets"));
    let names: Vec<&str> = marked
        .series
        .iter()
        .map(|line| line.name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "GPU, page-locked memory",
            "GPU, ordinary memory",
            "CPU, one thread, avx2"
        ]
    );
    assert!(of("61 B").marks.is_empty());
    // Also as a sentence, even if only packets of one length have a crossover.
    let mut rows = Vec::new();
    time(&mut rows, "op=seal bytes=61 batch=1 data=travels", 0.1, 0.2);
    let mut report = made_up(&rows);
    run::conclude(&mut report);
    let answers: Vec<String> = answers(&report)
        .into_iter()
        .map(|answer| answer.text)
        .collect();
    let expected = "seal packets of 61 bytes: faster than one thread of the CPU from a batch of";
    assert!(
        answers.iter().any(|text| text.starts_with(expected)),
        "{answers:?}"
    );
}

#[test]
fn published_figures_say_what_they_leave_out() {
    let figures = published(&names());
    let of: BTreeSet<&str> = figures.iter().map(|f| f.experiment.as_str()).collect();
    assert_eq!(of, names().into_iter().collect());
    for figure in figures {
        let kernels = figure.caveat.contains("Left out: the copies");
        let whole = ["gpu.transfer", "gpu.streams"].contains(&&*figure.experiment);
        assert_eq!(kernels, !whole, "{figure:?}");
        assert!(figure.caveat.contains("Not BIP324"), "{figure:?}");
    }
    let all = published(&run::names());
    let notes = Notes::of(&all);
    assert!(notes.caveats.len() <= 26, "as many letters as there are");
}

#[test]
fn the_check_of_nothing_is_a_first_look() {
    let gpu = Gpu::on(StandIn::new(7));
    let checked = check(&gpu, best(), 0, 0, |_| ()).unwrap();
    assert_eq!(checked.random, 0);
    assert!(checked.suite > 0);
}
