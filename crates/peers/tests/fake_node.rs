//! Attaches probes to a program that measures itself, and compares the two results for each peer.
#![cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

mod fake;
mod machine;

use fake::Fake;
use machine::{Quiet, attach};
use packetlane_peers::tally::Tally;
use packetlane_peers::{
    Calls, ConnectionType, Event, MAX_USER_AGENT, Network, Record, Source as _,
};
use std::collections::BTreeMap;
use std::time::Duration;

#[test]
fn every_peer_costs_what_it_says() {
    const TEST: &str = "probes on a fake node";
    let Some(mut fake) = Fake::start(TEST, &[12, 20, 100]) else {
        return;
    };
    let Some(mut probes) = attach(fake.pid(), TEST) else {
        return;
    };
    let quiet = Quiet::begin(TEST);
    // This call leaves the probes attached to the node.
    probes.watch(Duration::ZERO, &|| true, &mut |_| {}).unwrap();
    let mut records: Vec<Record> = Vec::new();
    let seconds = 4;
    let account = std::thread::scope(|scope| {
        let account = scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            fake.go();
            std::thread::sleep(Duration::from_millis(seconds * 1000 - 700));
            fake.end()
        });
        let mut take = |record| records.push(record);
        let watched = probes.watch(Duration::from_secs(seconds), &|| true, &mut take);
        // It disconnected before the window.
        assert!(watched.is_err());
        account.join().unwrap()
    });

    let mut calls = BTreeMap::<i64, [Calls; 2]>::new();
    let mut received = BTreeMap::<i64, u64>::new();
    let mut connections = BTreeMap::new();
    let mut times = [0, 0];
    for Record { event, .. } in records {
        match event {
            Event::Calls {
                peer,
                receiving,
                sending,
            } => {
                let sums = calls.entry(peer).or_default();
                for (sum, more) in sums.iter_mut().zip([receiving, sending]) {
                    sum.count += more.count;
                    sum.cost.wall_ns += more.cost.wall_ns;
                    sum.cost.cpu_ns += more.cost.cpu_ns;
                }
            }
            Event::Received {
                peer,
                message_type,
                bytes,
                cost,
                ..
            } => {
                let number = received.entry(peer).or_default();
                let expected = match *number {
                    0 if peer % 2 == 0 => ("version", 96),
                    0 => ("version", 178),
                    n if n % 3 == 0 => ("tx", 36 + n % 300),
                    n => ("inv", 36 + n % 300),
                };
                assert_eq!((message_type.as_str(), bytes), expected);
                // Every 50th call waits. Steal time is noticed late, so a few values are off.
                let cost = cost.unwrap();
                let waits = cost.wall_ns - cost.cpu_ns > 1_500_000;
                let right = cost.cpu_ns >= 40_000 && (*number % 50 != 49 || waits);
                times[usize::from(right)] += 1;
                *number += 1;
            }
            Event::Sent {
                message_type,
                bytes,
                ..
            } => {
                assert_eq!((message_type.as_str(), bytes), ("ping", 8));
            }
            Event::Connected { peer, connection } => {
                connections.insert(peer, connection);
            }
            Event::Bytes { .. } => panic!("probes see each message: {event:?}"),
            Event::Started
            | Event::Disconnected { .. }
            | Event::BlockMessage { .. }
            | Event::BlockConnected { .. }
            | Event::Thread { .. }
            | Event::Loop { .. }
            | Event::Window { .. } => {}
        }
    }
    println!(
        "{} messages, {} with a time that cannot be",
        times[0] + times[1],
        times[0]
    );
    let quiet = quiet.was();
    assert!(times[1] > 20 * times[0] || !quiet);
    let mut off = Vec::new();
    println!("peer: CPU us of receiving and sending, the node's and the probes'");
    for (peer, (expected, messages)) in &account {
        assert_eq!(
            received.get(peer).copied().unwrap_or(0),
            *messages,
            "peer {peer}"
        );
        let Some(seen) = calls.get(peer) else {
            assert_eq!(*messages, 0, "peer {peer} has no calls");
            continue;
        };
        let us = |calls: &Calls| calls.cost.cpu_ns / 1000;
        println!(
            "{peer}: {} {} {} {}",
            us(&expected[0]),
            us(&seen[0]),
            us(&expected[1]),
            us(&seen[1])
        );
        for (expected, seen) in expected.iter().zip(seen) {
            assert_eq!(seen.count, expected.count, "peer {peer}");
            let (seen, expected_ns) = (seen.cost.cpu_ns, expected.cost.cpu_ns);
            // The node's own clock takes half a microsecond of each call. At the first call after a
            // sleep, the kernel's part of the probes is in no cache.
            let each = if *peer == 1000 { 10_000 } else { 1000 };
            let most = expected_ns / 20 + each * expected.count + 500_000;
            if seen.abs_diff(expected_ns) >= most {
                off.push((*peer, seen, expected_ns));
            }
        }
        let connection = &connections[peer];
        assert_eq!(connection.relay, Some(peer % 2 == 1), "peer {peer}");
        let agent = connection.user_agent.as_deref();
        match peer % 2 {
            0 => assert_eq!(agent, Some("/fake:0.1/")),
            _ => {
                let agent = agent.unwrap();
                assert!(agent.starts_with("/a-name-that-is-longer"));
                assert_eq!(agent.len(), MAX_USER_AGENT);
            }
        }
        if *peer < 2000 {
            let kind = match (peer - 1000) % 3 {
                0 => ConnectionType::OutboundFullRelay,
                _ => ConnectionType::Inbound,
            };
            assert_eq!(connection.kind, kind);
            assert_eq!(connection.address, format!("10.0.0.{}:8333", peer - 1000));
            assert_eq!(connection.network, None);
        } else {
            assert_eq!(connection.kind, ConnectionType::Inbound);
            assert_eq!(connection.network, Some(Network::Ipv6));
            assert!(connection.since.is_some());
        }
    }
    assert!(off.len() <= 3 || !quiet, "{off:?}");
}

/// The probes' cost in a node differs from their cost in this process. It is measured before the
/// first window, so that the parts of the thread's time add up in that window, too.
#[test]
fn the_first_window_adds_up() {
    const TEST: &str = "the sum of the first window";
    let Some(mut fake) = Fake::start(TEST, &[30, 5, 10]) else {
        return;
    };
    let Some(mut probes) = attach(fake.pid(), TEST) else {
        return;
    };
    let quiet = Quiet::begin(TEST);
    fake.go();
    let mut tally = Tally::new();
    let take = &mut |record| tally.add(&record);
    probes
        .watch(Duration::from_secs(2), &|| true, take)
        .unwrap();
    let thread = tally.message_thread().unwrap();
    let ms = |ns: u64| ns as f64 / 1e6;
    println!(
        "thread {:.2} ms, peers {:.2}, loop {:.2}, probes {:.2} more; not accounted for {:.2} %",
        ms(thread.cpu_ns),
        ms(thread.peers_ns),
        ms(thread.loop_ns),
        ms(thread.probes_ns),
        100.0 * thread.unaccounted()
    );
    assert!(thread.unaccounted().abs() < 0.04 || !quiet.was());
}
