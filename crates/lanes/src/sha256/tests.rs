extern crate std;

use super::threshold::{LaneThreshold, measure};
use super::{many_64, many_twice, pairs};
use crate::isa::Set;
use crate::job::Digest;
use crate::kernels::sha256::SCALAR;
use crate::{Backend, isa};
use core::cell::Cell;
use sha2::Digest as _;
use std::thread_local;
use std::vec::Vec;

fn twice(message: &[u8]) -> Digest {
    sha2::Sha256::digest(sha2::Sha256::digest(message)).into()
}

/// Every threshold that a measurement could return: every instruction set, with and without the SHA
/// instructions, and lanes from any number on.
fn thresholds() -> Vec<LaneThreshold> {
    let mut thresholds = Vec::new();
    let mut sets: Vec<_> = Backend::ALL
        .iter()
        .filter(|backend| backend.is_available())
        .map(|backend| backend.set())
        .collect();
    // SAFETY: every CPU can run plain Rust.
    sets.push(unsafe { Set::assume(&isa::portable::KERNELS) });
    for set in sets {
        for serial in [set.serial_hash()(), &SCALAR] {
            let never = set.hash_lanes() + 1;
            for messages in 1..=never {
                let half = set.half_hash_lanes();
                let more = (half + 1..=never).filter(|_| messages <= half);
                for all_lanes in more.chain([messages]) {
                    thresholds.push(LaneThreshold {
                        set,
                        serial,
                        messages,
                        all_lanes,
                    });
                }
            }
        }
    }
    thresholds
}

#[test]
fn every_threshold_hashes_correctly() {
    let text: Vec<u8> = (0..4000_u32).map(|i| (i * i / 7) as u8).collect();
    for threshold in thresholds() {
        for count in (0..40).chain([47, 48, 49, 63, 64, 65, 100]) {
            let messages: Vec<[&[u8]; 2]> = (0..count)
                .map(|i| [&text[i..i + i * 5 % 70], &text[i..i + i * 131 % 500]])
                .collect();
            let mut digests = std::vec![[0; 32]; count];
            many_twice(threshold, &messages, &mut digests);
            for (message, digest) in messages.iter().zip(&digests) {
                assert_eq!(*digest, twice(&message.concat()));
            }
            let (messages, _) = text[..64 * count.min(60)].as_chunks();
            many_64(threshold, messages, &mut digests[..messages.len()]);
            let mut nodes = text.as_chunks::<32>().0[..2 * messages.len()].to_vec();
            pairs(threshold, &mut nodes);
            for (i, message) in messages.iter().enumerate() {
                assert_eq!([digests[i], nodes[i]], [twice(message); 2]);
            }
        }
    }
}

/// A measurement is kept.
#[test]
fn threshold_is_measured_once() {
    for backend in Backend::ALL.iter().filter(|b| b.is_available()) {
        let set = backend.set();
        let messages = LaneThreshold::of(set).messages;
        assert!((1..=set.hash_lanes() + 1).contains(&messages));
        assert_eq!(LaneThreshold::of(set).messages, messages);
    }
}

thread_local! {
    static TIME: Cell<u64> = const { Cell::new(0) };
    static VECTORS: Cell<u64> = const { Cell::new(0) };
    static STEPS: Cell<[u64; 2]> = const { Cell::new([0; 2]) };
}

/// A clock on which the first timings, twelve for each of [`VECTORS`], take the first of [`STEPS`]
/// each, and all other timings the second.
fn clock() -> u64 {
    let [vector, other] = STEPS.get();
    let time = TIME.get();
    TIME.set(time + 1);
    // Each timing reads the clock twice.
    let (calls, timings) = (time, time / 2);
    if calls % 2 == 0 {
        return 0;
    }
    if timings < 12 * VECTORS.get() {
        vector
    } else {
        other
    }
}

/// The threshold depends only on the given clock, not on this CPU.
#[test]
fn threshold_follows_the_given_clock() {
    for backend in Backend::ALL.iter().filter(|b| b.is_available()) {
        let set = backend.set();
        let lanes = set.hash_lanes();
        let threshold = |vector, other| {
            TIME.set(0);
            VECTORS.set(1 + u64::from(set.half_hash_lanes() < lanes));
            STEPS.set([vector, other]);
            measure(set, &SCALAR, clock).messages
        };
        // A vector takes half as long as one message, equally long, and a hundred times as long.
        assert_eq!(threshold(100, 200), 1, "{backend:?}");
        assert_eq!(threshold(100, 100), 3, "{backend:?}");
        assert_eq!(threshold(10_000, 100), lanes + 1, "{backend:?}");
    }
}
