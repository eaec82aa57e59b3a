//! Complete quick runs of CPU experiments, including their checks: they have the cases and
//! competitors that are promised.

use packetlane::Engine;
use packetlane_lab::report::{OURS, Report};
use packetlane_lab::run::{Options, run};

fn quick(experiments: &[&str]) -> Report {
    let options = Options {
        experiments: experiments.iter().map(|name| (*name).to_owned()).collect(),
        quick: true,
        ..Options::default()
    };
    run(Engine::detect().unwrap(), &options).unwrap()
}

#[test]
fn hashes_run_and_name_their_rivals() {
    let libraries = ["sha2", "bitcoin_hashes", "ring", "aws-lc-rs"];
    let rivals: [(&str, &str, &[&str]); 5] = [
        ("sha256d.many", "bytes=1024 batch=128", &libraries),
        ("sha256d.d64", "batch=1024", &libraries),
        ("sha256d.merkle", "leaves=9001", &libraries),
        ("sha256d.block", "block=574200 part=all", &libraries),
        ("sha256d.files", "threads=1", &["bitcoin"]),
    ];
    let report = quick(&rivals.map(|(experiment, ..)| experiment));
    for (experiment, case, rivals) in rivals {
        let row = report.rows.iter().find(|row| {
            row.experiment == experiment && row.case == case && row.implementation == OURS
        });
        let row = row.unwrap_or_else(|| panic!("{experiment} {case}"));
        assert!(row.median > 0.0 && !row.timed.is_empty());
        for rival in rivals {
            assert!(report.ratio(row, rival).is_some(), "{experiment}: {rival}");
        }
    }
}

#[test]
fn quic_runs_and_names_its_rivals() {
    let cases = [
        (
            "quic.packet",
            "suite=aes128gcm op=seal bytes=1280 batch=16 header_protection=on",
        ),
        (
            "quic.packet",
            "suite=chacha20poly1305 op=open bytes=64 batch=16 header_protection=on",
        ),
        ("quic.link", "gbit=10 suite=aes128gcm"),
        ("quic.mask", "suite=aes128gcm bytes=64 batch=16"),
    ];
    let report = quick(&["quic.packet", "quic.link", "quic.mask"]);
    for (experiment, case) in cases {
        let row = report.rows.iter().find(|row| {
            row.experiment == experiment && row.case == case && row.implementation == OURS
        });
        let row = row.unwrap_or_else(|| panic!("{experiment} {case}"));
        assert!(!row.timed.is_empty());
        for rival in ["rustls-ring", "rustls-aws-lc-rs"] {
            let compared = report.ratio(row, rival).is_some();
            assert_eq!(compared, experiment != "quic.mask", "{experiment}: {rival}");
        }
    }
}

#[test]
fn a_quick_run_splits_a_senders_time() {
    let report = quick(&["quic.send_path"]);
    let row = &report.rows[0];
    assert_eq!((&*row.metric, &*row.implementation), ("cpu_per_byte", OURS));
    assert!(report.ratio(row, "rustls-ring").is_some());
    for name in [OURS, "packetlane-rustls", "rustls-ring"] {
        let of = |metric: &str| -> Vec<_> {
            let rows = report.rows.iter();
            rows.filter(|row| row.metric == metric && row.implementation == name)
                .collect()
        };
        assert_eq!(of("cpu_per_byte").len(), 1, "{name}");
        let shares: Vec<f64> = of("share").iter().map(|row| row.median).collect();
        assert_eq!(shares.len(), 4, "{name}");
        // Their size depends on the machine: on a busy one, a stage may be all clock.
        assert!(shares.iter().all(|share| share.is_finite()), "{shares:?}");
    }
}
