//! The fuzz targets with fixed inputs, for machines without a nightly compiler. The number of
//! inputs is chosen so that each test takes about a second.

mod common;
#[path = "../../../fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "a crate of its own elsewhere")]
mod targets;

use common::{Random, noise};

/// Calls `target` with `count` inputs. Returns how many led to a complete message or session.
fn run(target: fn(&[u8]) -> bool, count: u64, start: &[u8]) -> u64 {
    let mut random = Random::new(count);
    let mut reached = 0;
    for seed in 0..count {
        let len = [4, 40, 400, 5000][random.below(4)];
        let mut input = [start, &noise(seed, random.below(len))].concat();
        // Runs of zeros mean "all" and "no damage", and are rare in noise.
        if random.below(2) == 0 {
            let from = random.below(input.len() + 1).max(start.len());
            if let Some(tail) = input.get_mut(from..) {
                tail.fill(0);
            }
        }
        reached += u64::from(target(&input));
    }
    reached
}

#[test]
fn handshake() {
    for role in [0, 1] {
        assert_eq!(run(targets::handshake, 1000, &[role, 0]), 0);
        let complete = run(targets::handshake, 1000, &[role, 1]);
        assert!((100..900).contains(&complete), "{complete}");
    }
    targets::handshake(&[]);
}

#[test]
fn key_exchange() {
    let valid = run(targets::key_exchange, 100, &[]);
    assert!((30..100).contains(&valid), "{valid}");
    targets::key_exchange(&[]);
}

#[test]
fn opener() {
    // A key, a limit, authentic or not.
    assert_eq!(run(targets::opener, 5000, &[1, 200, 1, 0]), 0);
    let messages = run(targets::opener, 5000, &[1, 200, 1, 1]);
    assert!((1500..5000).contains(&messages), "{messages}");
    targets::opener(&[]);
}

#[test]
fn codec() {
    assert!(run(targets::codec, 100_000, &[]) > 5000);
    // The long encoding, and v1's header after its magic.
    assert!(run(targets::codec, 100_000, b"\0inv\0\0\0\0\0\0\0\0\0") > 50_000);
    let empty = b"verack\0\0\0\0\0\0\0\0\0\0\x5d\xf6\xe0\xe2";
    assert!(run(targets::codec, 100_000, empty) > 50_000);
    targets::codec(&[]);
}

#[test]
fn blocks() {
    let good = run(targets::blocks, 20_000, &[]);
    assert!((5000..20_000).contains(&good), "{good}");
    // A block of one transaction: its version, then one input or marker and flag.
    run(targets::blocks, 20_000, &[1, 2, 0, 0, 0, 1]);
    run(targets::blocks, 20_000, &[2, 1, 0, 0, 0, 0, 1, 1]);
    targets::blocks(&[]);
}

#[test]
fn quic() {
    assert_eq!(run(targets::quic, 10_000, &[0]), 0);
    let opened = run(targets::quic, 2000, &[1]);
    assert!((500..=2000).contains(&opened), "{opened}");
    targets::quic(&[]);
}

#[test]
fn lanes() {
    let authentic: u64 = (0..4).map(|kind| run(targets::lanes, 500, &[kind])).sum();
    assert!((500..=1000).contains(&authentic), "{authentic}");
    targets::lanes(&[]);
}
