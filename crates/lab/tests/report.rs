//! An invented report of every experiment, rendered as text and HTML. No figure here was measured.
//! The renderings stay in cargo's temporary folder for inspection.

use packetlane_lab::measure::Samples;
use packetlane_lab::record::{Metric, record};
use packetlane_lab::report::{Case, Machine, Report, matches};
use packetlane_lab::run::published;
use packetlane_lab::show::{
    answers::answers, draw::draw, headlines, html, picture, plot, tables::tables, text,
};
use std::collections::BTreeSet;

/// Name, time per packet or hash, and additional time per byte, in nanoseconds.
const RIVALS: [(&str, f64, f64); 14] = [
    ("packetlane", 30.0, 0.30),
    ("packetlane-avx512-noifma", 34.0, 0.35),
    ("packetlane-avx2", 60.0, 0.60),
    ("packetlane-portable", 120.0, 1.10),
    ("ring", 175.0, 0.53),
    ("aws-lc-rs", 180.0, 0.50),
    ("rustcrypto", 700.0, 1.00),
    ("bip324", 420.0, 3.26),
    ("sha2", 130.0, 0.50),
    ("bitcoin_hashes", 120.0, 0.50),
    ("bitcoin", 150.0, 1.50),
    ("packetlane-rustls", 40.0, 0.30),
    ("rustls-ring", 60.0, 0.60),
    ("rustls-aws-lc-rs", 70.0, 0.50),
];

/// The first this many of [`RIVALS`] seal packets.
const SEALERS: usize = 8;

/// The competitors that hash.
const HASHERS: [&str; 7] = [
    "packetlane",
    "packetlane-avx2",
    "packetlane-portable",
    "sha2",
    "bitcoin_hashes",
    "ring",
    "aws-lc-rs",
];

/// The competitors that protect QUIC packets.
const QUIC: [&str; 5] = [
    "packetlane",
    "packetlane-avx2",
    "packetlane-portable",
    "rustls-ring",
    "rustls-aws-lc-rs",
];

/// A plausible time in nanoseconds: a part for the packet and a part for its bytes. Ours starts as
/// slow as the others and gains from batching.
fn nanos(name: &str, bytes: f64, batch: f64) -> f64 {
    let (_, fixed, each) = RIVALS.iter().find(|rival| rival.0 == name).unwrap();
    let alone = if name == "packetlane" {
        90.0 / batch
    } else {
        0.0
    };
    fixed + alone + each * bytes
}

fn add(
    report: &mut Report,
    case: &Case,
    metrics: &[Metric],
    time: impl Fn(&str) -> f64,
    rivals: &[&str],
) {
    let samples: Vec<Samples> = rivals
        .iter()
        .map(|name| Samples {
            implementation: (*name).into(),
            backend: match *name {
                "packetlane" | "packetlane-avx512-noifma" | "packetlane-rustls" => "avx512",
                _ => name.strip_prefix("packetlane-").unwrap_or(""),
            }
            .into(),
            // One implementation looks noisy.
            seconds: [
                1.0,
                1.01,
                0.99,
                if *name == "aws-lc-rs" { 1.3 } else { 1.02 },
                1.005,
            ]
            .map(|drift| time(name) * drift * 1e-9)
            .into(),
        })
        .collect();
    record(report, case, metrics, &samples);
}

fn fake() -> Report {
    let machine = Machine {
        name: None,
        cpu: "Imaginary <CPU> & Co 3000".into(),
        features: vec!["avx2".into(), "avx512f".into()],
        cores: 2,
        physical_cores: None,
        gpu: None,
    };
    let mut report = Report::new(machine);
    let names: Vec<&str> = RIVALS[..SEALERS].iter().map(|rival| rival.0).collect();
    let sizes = [8, 61, 250, 1024, 16384, 1 << 20];
    let whole = "thread CPU time of the whole packet (length, header, contents, tag, rekeys), without the handshake";

    for (primitive, share) in [
        ("chacha20", 0.5),
        ("poly1305", 0.2),
        ("aead_seal", 1.0),
        ("aead_open", 1.0),
    ] {
        for bytes in sizes {
            let case = Case::new("bip324.primitives", "thread CPU time of one call")
                .with("primitive", primitive)
                .with("bytes", bytes);
            let time = |name: &str| share * nanos(name, f64::from(bytes), 4.0);
            add(
                &mut report,
                &case,
                &[Metric::time("time", "ns", 1)],
                time,
                &names[..7],
            );
        }
    }
    for (step, time) in [
        ("create", 40e3),
        ("xdh", 38e3),
        ("derive", 2e3),
        ("both_sides", 165e3),
    ] {
        let case = Case::new("bip324.handshake", "thread CPU time of the step").with("step", step);
        let time = |name: &str| if name == "bip324" { time * 1.32 } else { time };
        add(
            &mut report,
            &case,
            &[Metric::time("time", "us", 1)],
            time,
            &["packetlane", "bip324"],
        );
    }
    let metric = |packets| Metric::time("time_per_packet", "ns", packets);
    for op in ["seal", "open"] {
        for bytes in sizes {
            for batch in [1, 4, 16, 64, 256, 1024] {
                let case = Case::new("bip324.packet", whole)
                    .with("op", op)
                    .with("bytes", bytes)
                    .with("batch", batch);
                let time =
                    |name: &str| nanos(name, f64::from(bytes), f64::from(batch)) * f64::from(batch);
                add(&mut report, &case, &[metric(batch as usize)], time, &names);
            }
            let case = Case::new("bip324.alone", whole)
                .with("op", op)
                .with("bytes", bytes);
            add(
                &mut report,
                &case,
                &[metric(1)],
                |name| nanos(name, f64::from(bytes), 1.0),
                &names,
            );
        }
    }
    for profile in ["mail", "relay", "listening", "archive"] {
        for (batch, decoys) in [
            (1, 0),
            (16, 0),
            (64, 0),
            (256, 0),
            (1024, 0),
            (4096, 0),
            (16384, 0),
            (1024, 10),
            (1024, 20),
            (1024, 50),
        ] {
            let case = Case::new("bip324.mixed", whole)
                .with("profile", profile)
                .with("batch", batch)
                .with("decoys", decoys);
            let packets = f64::from(batch);
            let time = |name: &str| {
                2.0 * nanos(name, 325.0, packets) * packets * (1.0 + f64::from(decoys) / 140.0)
            };
            let metrics = [
                Metric::rate("packets_per_second", "packets/s", packets),
                Metric::rate("goodput", "MB/s", packets * 325e-6),
            ];
            add(&mut report, &case, &metrics, time, &names);
            report.counted(&case, "packetlane", "overhead", "%", 6.15);
        }
    }
    for batch in [1, 4, 16, 64, 256, 1024, 4096] {
        let case = Case::new("bip324.latency", whole)
            .with("profile", "mail")
            .with("batch", batch);
        let time = |name: &str| nanos(name, 325.0, f64::from(batch)) * f64::from(batch);
        let metrics = [
            Metric::time("time_per_batch", "us", 1),
            metric(batch as usize),
        ];
        add(&mut report, &case, &metrics, time, &names);
    }
    for op in ["seal", "open"] {
        for (sessions, times) in [(64, 1.0), (1024, 1.05), (20_000, 1.19)] {
            let case = Case::new("bip324.sessions", whole)
                .with("op", op)
                .with("sessions", sessions)
                .with("bytes", 61)
                .with("order", "random");
            let time = |name: &str| nanos(name, 61.0, 64.0) * f64::from(sessions) * times;
            let metrics = [metric(sessions as usize)];
            add(&mut report, &case, &metrics, time, &["packetlane", "ring"]);
            report.counted(&case, "packetlane", "cold_by_warm", "x", times);
        }
        for threads in [1, 2] {
            let case = Case::new("bip324.threads", "wall time of Engine::seal alone")
                .with("op", op)
                .with("threads", threads)
                .with("profile", "mail")
                .with("batch", 4096);
            let time = |name: &str| nanos(name, 325.0, 4096.0) * 4096.0 / f64::from(threads);
            add(&mut report, &case, &[metric(4096)], time, &["packetlane"]);
            report.counted(&case, "packetlane", "speedup", "x", threads.into());
        }
    }
    hashes(&mut report);
    quic(&mut report);
    gpu(&mut report);
    report.published = published(&report.experiments());
    report
}

/// The experiments on double SHA-256.
fn hashes(report: &mut Report) {
    let one = "thread CPU time of the double SHA-256 of messages";
    let metric = |messages| Metric::time("time_per_hash", "ns", messages);
    for batch in [1, 2, 8, 128, 1024] {
        let time = |bytes| {
            move |name: &str| nanos(name, f64::from(bytes), f64::from(batch)) * f64::from(batch)
        };
        for bytes in [32, 80, 1024] {
            let case = Case::new("sha256d.many", one)
                .with("bytes", bytes)
                .with("batch", batch);
            let metrics = [metric(batch as usize)];
            add(report, &case, &metrics, time(bytes), &HASHERS);
        }
        let case = Case::new("sha256d.d64", one).with("batch", batch);
        add(report, &case, &[metric(batch as usize)], time(64), &HASHERS);
    }
    let micros = [Metric::time("time", "us", 1)];
    for leaves in [9001, 2000, 300, 16] {
        let case = Case::new("sha256d.merkle", "thread CPU time of a root").with("leaves", leaves);
        let time = |name: &str| nanos(name, 64.0, f64::from(leaves)) * f64::from(leaves);
        add(report, &case, &micros, time, &HASHERS);
    }
    for (part, messages) in [("txids", 3315.0), ("wtxids", 1340.0), ("all", 11_000.0)] {
        let case = Case::new("sha256d.block", "thread CPU time without parsing")
            .with("block", 574_200)
            .with("part", part);
        let time = |name: &str| nanos(name, 250.0, messages) * messages;
        add(report, &case, &micros, time, &HASHERS);
    }
    for threads in [1, 2] {
        let case = Case::new("sha256d.files", "wall time of all").with("threads", threads);
        let time = |name: &str| nanos(name, 1e6, 1.0) / f64::from(threads);
        let rate = [Metric::rate("throughput", "MB/s", 1.0)];
        add(report, &case, &rate, time, &["packetlane", "bitcoin"]);
    }
}

/// The experiments on QUIC.
fn quic(report: &mut Report) {
    let timed = "thread CPU time of sealing or opening packets";
    for suite in ["aes128gcm", "chacha20poly1305"] {
        for bytes in [4, 64, 1280] {
            for op in ["seal", "open"] {
                for (batch, header_protection) in [(1, "on"), (16, "on"), (16, "off")] {
                    let case = Case::new("quic.packet", timed)
                        .with("suite", suite)
                        .with("op", op)
                        .with("bytes", bytes)
                        .with("batch", batch)
                        .with("header_protection", header_protection);
                    let batch = f64::from(batch);
                    let time = |name: &str| nanos(name, f64::from(bytes), batch);
                    let metric = Metric::time("time_per_packet", "ns", 1);
                    add(report, &case, &[metric], time, &QUIC);
                }
            }
            let case = Case::new("quic.mask", "what header protection adds")
                .with("suite", suite)
                .with("bytes", bytes)
                .with("batch", 16);
            for name in ["packetlane", "rustls-ring", "rustls-aws-lc-rs"] {
                let share = (1000.0 / nanos(name, f64::from(bytes), 16.0)).ceil();
                report.counted(&case, name, "overhead", "%", share);
            }
        }
        for gbit in [1, 10] {
            let case = Case::new("quic.link", "computed from the time of a packet")
                .with("gbit", gbit)
                .with("suite", suite);
            let per_second = f64::from(gbit) * 1e9 / 8.0 / 1280.0;
            let share = Metric::share_of_core("share_of_core", 1, per_second);
            let time = |name: &str| nanos(name, 1280.0, 16.0);
            let names = ["packetlane", "rustls-ring", "rustls-aws-lc-rs"];
            add(report, &case, &[share], time, &names);
        }
    }
    let names = ["packetlane", "packetlane-rustls", "rustls-ring"];
    let case = Case::new("quic.send_path", "thread CPU time of a sender").with("stack", "quinn");
    let metric = Metric::time("cpu_per_byte", "ns", 1200);
    let time = |name: &str| 1000.0 + nanos(name, 1280.0, 1.0);
    add(report, &case, &[metric], time, &names);
    for (stage, share) in [
        ("udp_send", 30.0),
        ("encryption", 20.0),
        ("header_protection", 1.0),
        ("rest", 49.0),
    ] {
        let case = case.clone().with("stage", stage);
        for name in names {
            report.counted(&case, name, "share", "%", share);
        }
    }
}

/// The experiments on a GPU.
fn gpu(report: &mut Report) {
    let mut add = |experiment: &str, keys: &str, name: &str, (metric, unit), value: f64| {
        let pairs = keys.split(' ').filter_map(|pair| pair.split_once('='));
        let case = pairs.fold(Case::new(experiment, ""), |case, (key, value)| {
            case.with(key, value)
        });
        report.counted(&case, name, metric, unit, value);
    };
    let rate = ("packets_per_second", "packets/s");
    for (op, bytes) in [("seal", 64), ("seal", 1024), ("open", 64), ("open", 1024)] {
        let case = format!("op={op} bytes={bytes} batch=9999 data=resident");
        let value = f64::from(bytes) * 300.0;
        add(
            "gpu.kernel",
            &case,
            "packetlane",
            ("goodput", "MB/s"),
            value,
        );
    }
    for batch in [1, 128, 4096] {
        let case = format!("op=seal profile=mail batch={batch} data=travels");
        let device = 17.0 + f64::from(batch);
        for (name, value) in [
            ("packetlane", device),
            ("packetlane-cuda-plain", device + 5.0),
            ("packetlane-avx2", 0.25 * f64::from(batch)),
        ] {
            add("gpu.latency", &case, name, ("time_per_batch", "us"), value);
        }
    }
    let case = "op=seal profile=mail data=travels";
    let crossover = ("crossover", "packets");
    add("gpu.latency", case, "packetlane", crossover, 4096.0);
    for (stage, share) in [("to_device", 48.0), ("kernels", 4.0), ("from_device", 48.0)] {
        let case = format!("op=seal profile=mail batch=9999 data=travels stage={stage}");
        add("gpu.transfer", &case, "packetlane", ("share", "%"), share);
    }
    let case = "op=seal profile=mail batch=9999 data=travels stage=whole";
    add(
        "gpu.transfer",
        case,
        "packetlane",
        ("share_of_bus", "%"),
        81.0,
    );
    for streams in [1, 4] {
        let case = format!("op=seal profile=mail batch=9999 streams={streams} data=travels");
        add(
            "gpu.streams",
            &case,
            "packetlane",
            rate,
            6e7 * f64::from(streams),
        );
        add(
            "gpu.streams",
            &case,
            "packetlane",
            ("speedup", "x"),
            streams.into(),
        );
    }
    for data in ["resident", "travels"] {
        for number in [0, 20] {
            let case = format!("op=open profile=mail batch=9999 decoys={number} data={data}");
            add(
                "gpu.decoys",
                &case,
                "packetlane",
                rate,
                1e8 - 1e6 * f64::from(number),
            );
            let case = format!("op=seal profile=mail batch={} data={data}", number + 1);
            add(
                "gpu.batch",
                &case,
                "packetlane",
                rate,
                1e6 * f64::from(number + 1),
            );
        }
        let case = format!("op=seal profile=mail data={data}");
        add(
            "gpu.batch",
            &case,
            "packetlane",
            ("best_batch", "packets"),
            21.0,
        );
    }
}

#[test]
fn a_gpu_is_answered_for() {
    let all = answers(&fake());
    let answer = |experiment: &str| {
        let found = all.iter().find(|answer| answer.experiment == experiment);
        found.unwrap().text.as_str()
    };
    assert_eq!(
        answer("gpu.latency"),
        "seal mail: faster than one thread of the CPU from a batch of 4096 packets"
    );
    assert_eq!(
        answer("gpu.batch"),
        "seal mail, data travels: a batch of 21.0 packets"
    );
    assert_eq!(
        answer("gpu.streams"),
        "4 streams: 4.0x as fast as one, host to host"
    );
    assert!(answer("gpu.transfer").starts_with("seal mail, host to host: 81.0 % of what the bus"));
    let plots = plot::plots(&fake());
    let split = plots
        .iter()
        .find(|plot| plot.experiment == "gpu.transfer")
        .unwrap();
    let stages: Vec<(&str, f64)> = split
        .series
        .iter()
        .map(|stage| (stage.name.as_str(), stage.points[0].1))
        .collect();
    assert_eq!(
        stages,
        [
            ("host to device", 48.0),
            ("kernels", 4.0),
            ("device to host", 48.0)
        ]
    );
}

#[test]
fn quic_stands_beside_what_was_published() {
    let report = fake();
    let plots = plot::plots(&report);
    let mask = plots
        .iter()
        .find(|plot| plot.experiment == "quic.mask" && plot.title.contains("aes128gcm"))
        .unwrap();
    let names: Vec<&str> = mask.series.iter().map(|line| line.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "packetlane",
            "rustls-ring",
            "rustls-aws-lc-rs",
            "WinQuic, published"
        ]
    );
    assert_eq!(mask.series[3].points[0], (4.0, 33.0));
    let answer = |experiment: &str| {
        let all = answers(&report).into_iter();
        let mut of = all.filter(|answer| answer.experiment == experiment);
        of.next().unwrap().text
    };
    assert!(answer("quic.mask").contains("more with header protection, rustls-ring "));
    assert!(answer("quic.link").starts_with("seal 10 Gbit/s of 1280-byte packets, aes128gcm: "));
    assert!(answer("quic.packet").contains("x as fast as rustls-"));
    assert!(answer("quic.send_path").contains("x as fast as rustls-ring"));
    let shown = text::render(&report);
    assert!(shown.contains("packetlane-rustls"), "no backend of ours");
}

#[test]
fn the_json_has_the_designs_fields_and_comes_back() {
    let report = fake();
    let json = report.to_json();
    assert_eq!(Report::from_json(&json).unwrap(), report);
    let mut named = report.clone();
    named.replayed = Some("a \"folder\"".into());
    named.machine.name = Some("Imaginary VM".into());
    named.machine.physical_cores = Some(1);
    assert_eq!(Report::from_json(&named.to_json()).unwrap(), named);
    assert!(
        text::render(&named).contains("Imaginary VM: Imaginary <CPU> & Co 3000, 2 threads of one")
    );

    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    let fields = |value: &serde_json::Value| -> BTreeSet<String> {
        value.as_object().unwrap().keys().cloned().collect()
    };
    let set = |names: &str| -> BTreeSet<String> { names.split(' ').map(str::to_owned).collect() };
    assert_eq!(value["schema"], 1);
    assert_eq!(fields(&value), set("schema machine rows ratios published"));
    assert_eq!(fields(&value["machine"]), set("cpu features cores gpu"));
    assert!(value["machine"]["gpu"].is_null());
    assert_eq!(
        fields(&value["rows"][0]),
        set(
            "experiment case implementation backend metric unit median min max samples timed noisy \
             values"
        )
    );
    assert_eq!(
        fields(&value["ratios"][0]),
        set("experiment case metric implementation against median min max low high")
    );
    assert_eq!(
        fields(&value["published"][0]),
        set("experiment case metric unit value source caveat")
    );
}

#[test]
fn json_without_our_additions_is_read_too() {
    let text = r#"{"schema": 1, "machine": {"cpu": "x", "features": [], "cores": 1, "gpu": null},
        "rows": [{"experiment": "sha256d.d64", "case": "batch=1", "implementation": "sha2",
          "backend": "", "metric": "time_per_hash", "unit": "ns",
          "median": 167.0, "min": 166.0, "max": 170.0, "samples": 9}],
        "ratios": [], "published": []}"#;
    let report = Report::from_json(text).unwrap();
    let shown = text::render(&report);
    assert!(
        shown.starts_with("sha256d.d64  64 bytes, 1 at a time: 167 ns per hash (sha2)\n"),
        "{shown}"
    );
}

#[test]
fn the_answers_come_first_and_are_honest() {
    let report = fake();
    let shown = text::render(&report);
    let first: Vec<String> = shown
        .split("\n\n")
        .next()
        .unwrap()
        .split('\n')
        .map(str::to_owned)
        .collect();
    assert!(first[0].starts_with("bip324.primitives  aead seal, 1024 bytes: "));
    let mixed = answers(&report)
        .into_iter()
        .find(|answer| answer.experiment == "bip324.mixed")
        .unwrap()
        .text;
    assert!(mixed.starts_with("mail, batch 1024: "), "{mixed}");
    assert!(
        mixed.contains(" (avx512; avx2 ") && mixed.contains("x as fast as bip324"),
        "{mixed}"
    );

    let mut behind = fake();
    for ratio in &mut behind.ratios {
        ratio.median = 0.6;
        (ratio.low, ratio.high) = (Some(0.5), Some(0.7));
    }
    for answer in answers(&behind) {
        // Some experiments have no competitor for ours, and in one, each library is compared with
        // itself.
        let alone = ["bip324.threads", "quic.mask"].contains(&&*answer.experiment)
            || answer.experiment.starts_with("gpu.");
        assert!(
            alone || answer.text.contains("slower than"),
            "{}",
            answer.text
        );
        assert!(
            alone || !answer.text.contains("as fast as"),
            "{}",
            answer.text
        );
        assert!(!answer.text.contains("packetlane-"), "{}", answer.text);
    }
}

/// The position of the median decides, not the range of the turns, in which there are always some
/// that disagree.
#[test]
fn a_noisy_machine_gives_no_answer() {
    let answer = |report: &Report, experiment: &str| {
        let all = answers(report).into_iter();
        let mut of = all.filter(|answer| answer.experiment == experiment);
        of.next().unwrap().text
    };
    let mut report = fake();
    report.ratios.iter_mut().for_each(|ratio| ratio.min = 0.5);
    assert!(answer(&report, "bip324.packet").contains("x as fast as"));
    report
        .ratios
        .iter_mut()
        .for_each(|ratio| ratio.low = Some(0.5));
    for experiment in ["bip324.packet", "quic.packet", "sha256d.many"] {
        let text = answer(&report, experiment);
        assert!(text.contains("not measurable here against "), "{text}");
        assert!(!text.contains("as fast as"), "{text}");
    }
    assert!(answer(&report, "bip324.threads").contains("on 2 threads: "));
    assert!(answer(&report, "bip324.threads").contains(", 2.0x as fast as one"));
    report.machine.physical_cores = Some(1);
    let speedups = report.rows.iter_mut().filter(|row| row.metric == "speedup");
    speedups.for_each(|row| row.values = vec![0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3]);
    let text = answer(&report, "bip324.threads");
    let noisy = ", how many times as fast as one is not measurable here";
    assert!(text.contains(noisy), "{text}");
    assert!(
        text.contains("on 2 threads (2 threads of one core): "),
        "{text}"
    );
}

#[test]
fn headlines_of_machines_stand_side_by_side() {
    let mut report = fake();
    report.machine.name = Some("A | B".into());
    let mut noisy = fake();
    noisy
        .ratios
        .iter_mut()
        .for_each(|ratio| ratio.low = Some(0.5));
    let kept = headlines::only(&report);
    assert!(
        kept.rows.len() * 10 < report.rows.len(),
        "{}",
        kept.rows.len()
    );
    let mut without = report.clone();
    without.rows.retain(|row| row.key("bytes") != Some("61"));
    let reports = [kept, noisy, without];
    let table = headlines::markdown(&reports);
    let lines: Vec<&str> = table.lines().collect();
    let title = "Imaginary <CPU> & Co 3000";
    let head = format!("| times as fast as | library | A \\| B | {title} | A \\| B |");
    assert_eq!(lines[..2], [&*head, "| --- | --- | --- | --- | --- |"]);
    assert_eq!(lines.len(), 14);
    let of = |start: &str| {
        let mut of = lines.iter().filter(|line| line.starts_with(start));
        *of.next().unwrap_or_else(|| panic!("{start}: {table}"))
    };
    // All invented samples drift alike, so the ratio is that of the times.
    let ratio = nanos("ring", 61.0, 64.0) / nanos("packetlane", 61.0, 64.0);
    assert_eq!(
        of("| BIP324: 61 bytes, 64 "),
        format!(
            "| BIP324: 61 bytes, 64 packets at a time; seal, open | ring | {ratio:.1}x | \
             not measurable here | - |"
        )
    );
    // 128 bytes were not measured.
    assert!(of("| BIP324: 128 bytes, 64 ").ends_with(" | - | - | - |"));
    // This ratio is a figure of its own.
    assert!(of("| BIP324: time per packet with 20,000 ").ends_with("| - | 1.2x | 1.2x | - |"));
    assert!(of("| QUIC, AES-128-GCM: 64 bytes").contains(" | rustls-ring | "));
    assert!(of("| Double SHA-256: 1 KiB, 8 ").contains(" | sha2 | "));
    // None of these machines has a GPU.
    assert!(of("| NVIDIA GPU: mixed sizes, 65,536 ").ends_with(" | - | - | - |"));
}

#[test]
fn one_picture_stands_for_a_report() {
    let mut report = fake();
    report.machine.name = Some("Zen <5> VM".into());
    let svg = picture::render(&report).unwrap();
    std::fs::write(concat!(env!("CARGO_TARGET_TMPDIR"), "/report.svg"), &svg).unwrap();
    assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" "));
    assert!(svg.contains(">Whole packets of one size: seal, batch of 64</text>"));
    assert!(svg.contains(">Zen &lt;5&gt; VM</text>"));
    for name in &RIVALS[..SEALERS] {
        assert!(svg.contains(&format!(">{}</text>", name.0)), "{}", name.0);
    }
    assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
    // With only other experiments, their first picture; without rows, none.
    report.rows.retain(|row| row.experiment == "sha256d.merkle");
    assert!(
        picture::render(&report)
            .unwrap()
            .contains(">bitcoin_hashes</text>")
    );
    report.rows.clear();
    assert_eq!(picture::render(&report), None);
}

#[test]
fn the_gain_over_a_library_is_drawn_by_length() {
    let plots = plot::plots(&fake());
    let gain = plots
        .iter()
        .find(|plot| plot.title == "What batching gains packetlane over sha2")
        .unwrap();
    let names: Vec<&str> = gain.series.iter().map(|line| line.name.as_str()).collect();
    assert_eq!(names, ["32 B", "80 B", "1 KiB"]);
    assert_eq!(gain.x.label, "messages at a time (log scale)");
    // All invented samples drift alike, so the ratio is that of the times.
    let last = gain.series[2].points[4];
    let expected = nanos("sha2", 1024.0, 1024.0) / nanos("packetlane", 1024.0, 1024.0);
    assert_eq!(last.0, 1024.0);
    assert!((last.1 - expected).abs() < 0.01, "{last:?}");
}

#[test]
fn the_text_fits_a_terminal_and_marks_what_is_doubtful() {
    let shown = text::render(&fake());
    std::fs::write(concat!(env!("CARGO_TARGET_TMPDIR"), "/report.txt"), &shown).unwrap();
    for line in shown.lines() {
        assert!(
            line.len() <= text::WIDTH || line.contains("https://"),
            "{} columns: {line}",
            line.len()
        );
    }
    assert!(shown.contains("Published, not measured here"));
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains("its own changelog calls the results invalid"));
}

#[test]
fn noise_is_marked_where_it_is() {
    let mut report = fake();
    assert!(!text::render(&report).contains("~ noisy"));
    report.rows[3].noisy = true;
    assert!(text::render(&report).contains("~ noisy"));
    let page = html::render(&report, &origin());
    assert!(page.contains("~ noisy"));
}

#[test]
fn a_filter_keeps_complete_cases() {
    let mut report = fake();
    report
        .rows
        .retain(|row| matches(&row.case, "seal batch=64"));
    report
        .ratios
        .retain(|ratio| matches(&ratio.case, "seal batch=64"));
    assert_eq!(report.experiments(), ["bip324.packet"]);
    assert!(report.rows.iter().all(|row| row.key("batch") == Some("64")));
    // All have the same batch size, so it moves to the title.
    let tables = tables(&report);
    assert_eq!(tables.len(), 1);
    assert_eq!(
        (tables[0].shared.as_str(), tables[0].lines.len()),
        ("op=seal batch=64", 6)
    );
    assert_eq!(tables[0].columns[0].implementation, "packetlane");
    assert!(!html::render(&report, &origin()).is_empty());

    report.rows.clear();
    report.ratios.clear();
    assert!(text::render(&report).starts_with("Nothing was measured"));
    assert!(html::render(&report, &origin()).contains("</html>"));
}

#[test]
fn each_series_is_one_line_or_one_bar() {
    let report = fake();
    let plots = plot::plots(&report);
    let of = |experiment: &str| {
        plots
            .iter()
            .filter(|plot| plot.experiment == experiment)
            .count()
    };
    assert_eq!(
        [
            "bip324.mixed",
            "bip324.packet",
            "bip324.alone",
            "bip324.latency",
            "bip324.sessions",
            "bip324.threads",
            "bip324.handshake",
            "bip324.primitives",
            "sha256d.many",
            "sha256d.d64",
            "sha256d.merkle",
            "sha256d.block",
            "sha256d.files",
            "quic.packet",
            "quic.mask",
            "quic.link",
            "quic.send_path",
            "gpu.kernel",
            "gpu.latency",
            "gpu.transfer",
            "gpu.streams",
            "gpu.decoys",
            "gpu.batch"
        ]
        .map(of),
        // For many messages: one plot for each length, and one for all.
        [
            8, 4, 2, 2, 2, 0, 4, 4, 4, 1, 1, 3, 1, 4, 2, 2, 5, 1, 1, 1, 1, 1, 1
        ]
    );
    for plot in &plots {
        let svg = draw(plot);
        assert!(
            plot.bars
                || plot.series[0].ours
                || plot.title.contains("batching")
                || plot.experiment.starts_with("gpu."),
            "{}",
            plot.title
        );
        for series in &plot.series {
            let colour = plot::hex(plot::COLOURS[series.colour]);
            let tag = if plot.bars { "<rect" } else { "<polyline" };
            let drawn = svg.split('<').filter(|part| {
                tag[1..].len() < part.len() && part.starts_with(&tag[1..]) && part.contains(&colour)
            });
            assert_eq!(drawn.count(), 1, "{}: {}", plot.title, series.name);
        }
    }
}

#[test]
fn one_point_makes_bars() {
    let mut report = fake();
    report
        .rows
        .retain(|row| matches(&row.case, "mail batch=16 decoys=0"));
    let plots = plot::plots(&report);
    assert_eq!(plots.len(), 1);
    assert!(plots[0].bars);
    assert_eq!(
        plots[0].title,
        "Mixed traffic, seal and open: mail, no decoys, batch of 16"
    );
}

fn origin() -> html::Origin {
    html::Origin {
        date: "2026-11-30".into(),
        command: "packetlane lab --html report.html".into(),
    }
}

#[test]
fn the_page_is_self_contained() {
    let report = fake();
    let page = html::render(&report, &origin());
    std::fs::write(concat!(env!("CARGO_TARGET_TMPDIR"), "/report.html"), &page).unwrap();
    for fetched in [
        "<script", "<link", "<img", "src=", "href=", "url(", "@import", "xmlns",
    ] {
        assert!(!page.contains(fetched), "{fetched}");
    }
    // Only the text of the sources contains addresses.
    let (measured, sources) = page.split_once("<p>Sources</p>").unwrap();
    assert!(!measured.contains("http://") && !measured.contains("https://"));
    assert!(sources.contains("https://groups.google.com/"));
    assert!(page.contains("Published, not measured here"));
    assert!(page.contains("Imaginary &lt;CPU&gt; &amp; Co 3000"));
    assert!(page.contains("2026-11-30") && page.contains("packetlane lab --html"));
    for plot in plot::plots(&report) {
        for series in &plot.series {
            assert!(
                page.contains(&format!(">{}<", series.name)) || plot.bars,
                "{}",
                series.name
            );
        }
    }
}
