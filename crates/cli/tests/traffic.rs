//! `packetlane traffic` on the command line. The load itself is tested in packetlane-loadgen.

mod common;

use common::packetlane;

/// Without the feature, either command says how to get it.
#[cfg(not(feature = "peers"))]
#[test]
fn a_build_without_it_says_so() {
    for command in ["traffic 127.0.0.1 --v1 1", "peers watch --nats x", "peers"] {
        let finished = packetlane(command).finish();
        let line = finished.error_line();
        assert!(
            line.contains("cargo run --release --features peers"),
            "{line}"
        );
    }
}

#[cfg(feature = "peers")]
#[test]
fn a_bad_argument_is_one_line() {
    for (arguments, expected) in [
        ("192.0.2.1 --v1 1", "--not-loopback and --i-own-this-node"),
        (
            "192.0.2.1 --v1 1 --i-own-this-node",
            "--not-loopback and --i-own-this-node",
        ),
        ("127.0.0.1", "no peers"),
        (
            "127.0.0.1 --v1 300 --v2 201",
            "501 peers: the maximum is 500",
        ),
        ("127.0.0.1 --v1 1 --for 90000", "too long"),
        ("127.0.0.1 --v1 1 --factor 10000", "too many"),
        ("127.0.0.1 --v1 1 --capture /nowhere", "/nowhere"),
        ("127.0.0.1:1 --v1 1", "cannot connect"),
        ("127.0.0.1:1 --v1 3 --stall", "cannot connect"),
    ] {
        let finished = packetlane(&format!("traffic {arguments}")).finish();
        let line = finished.error_line();
        assert!(line.contains(expected), "{arguments}: {line}");
        assert!(finished.stdout.is_empty(), "{arguments}");
    }
    for (arguments, expected) in [
        ("127.0.0.1 --kinds fast=1", "unknown kind of peer"),
        ("127.0.0.1 --kinds slow=x", "weight"),
        ("127.0.0.1 --factor 0", "0.001"),
        ("127.0.0.1 --profile mail", "listening"),
    ] {
        let finished = packetlane(&format!("traffic {arguments}")).finish();
        assert!(
            !finished.success && finished.stderr.contains(expected),
            "{finished:#?}"
        );
        assert_eq!(finished.stderr.lines().count(), 1, "{finished:#?}");
    }
}
