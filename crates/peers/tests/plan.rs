//! Checks tallies and plans against a synthetic node with known costs.

mod synthetic;

use packetlane_peers::machine::{Board, Slowdown, Speed};
use packetlane_peers::plan::{Slots, from_published, from_recording, plan_for};
use packetlane_peers::report::Report;
use packetlane_peers::tally::{Slot, Tally};
use packetlane_peers::{
    Calls, Connection, ConnectionType, Cost, Event, Network, Record, Transport,
};
use std::convert::Infallible;
use synthetic::{START, Synthetic};

fn tally(run: &Synthetic) -> (Tally, synthetic::Truth) {
    let mut tally = Tally::new();
    let truth = run.run(|record| tally.add(&record));
    (tally, truth)
}

fn near(found: f64, truth: f64, within: f64, what: &str) {
    let error = found / truth - 1.0;
    println!(
        "{what}: {found:.1}, truth {truth:.1} ({:+.2} %)",
        error * 100.0
    );
    assert!(error.abs() <= within, "{what}: {found}, not {truth}");
}

#[test]
fn unsampled_figures_are_exact() {
    let run = Synthetic::of_60();
    let (tally, truth) = tally(&run);
    near(
        tally.together_rate().per_second(),
        truth.ns_per_second,
        0.003,
        "together, ns/s",
    );
    assert_eq!(
        tally.together_rate().error(tally.observed_share()),
        Some(0.0)
    );
    for ((number, peer), truth) in tally.peers().zip(&truth.peers) {
        let error = (peer.cpu.per_second() - truth).abs();
        assert!(error < 0.05 * truth || error < 20_000.0, "peer {number}");
    }
    let thread = tally.message_thread().expect("a thread");
    // The loop belongs to no peer.
    let loop_ns = truth.wake_ups * synthetic::LOOP_NS as f64;
    near(
        thread.unaccounted(),
        loop_ns / (loop_ns + truth.ns_per_second),
        0.05,
        "unaccounted",
    );
    let slots = tally.slots();
    for (slot, count) in [
        (Slot::OutboundFullRelay, 8),
        (Slot::InboundFullRelay, 30),
        (Slot::OutboundBlockRelay, 2),
        (Slot::InboundBlockRelay, 20),
    ] {
        assert_eq!((slots[&slot].connections, slots[&slot].short), (count, 0));
    }
    // About 3 % of the values of a type with a mean of 480 us exceed 670 us.
    let tx = &tally.received(|slot| slot == Slot::OutboundFullRelay)["tx"];
    near(tx.cpu.mean(), 480_400.0, 0.02, "a tx, ns");
    near(tx.cpu.quantile(0.5), 480_400.0, 0.03, "its median");
}

/// With a tenth of the time observed, the true value is within the reported error as often as it
/// should be.
#[test]
fn sampled_figures_are_within_their_error() {
    let (mut inside, mut all) = (0, 0);
    for seed in 0..6 {
        let run = Synthetic {
            seed,
            window: 100_000,
            every: 1_000_000,
            ..Synthetic::of_60()
        };
        let (tally, truth) = tally(&run);
        assert!((tally.observed_share() - 0.1).abs() < 0.001);
        let error = tally
            .together_rate()
            .error(tally.observed_share())
            .expect("windows");
        let off = (tally.together_rate().per_second() - truth.ns_per_second).abs() / error;
        assert!(off < 3.5, "{off} standard errors");
        for ((_, peer), truth) in tally.peers().zip(&truth.peers) {
            let error = peer.cpu.error(tally.observed_share()).expect("windows");
            all += 1;
            inside += usize::from((peer.cpu.per_second() - truth).abs() <= 2.0 * error);
        }
    }
    println!("{inside} of {all} peers within two standard errors");
    assert!(inside as f64 > 0.9 * f64::from(all), "{inside} of {all}");
}

/// Records 60 peers and plans for 120.
#[test]
fn a_plan_for_twice_the_peers_is_within_15_percent() {
    for (sampled, every) in [("all observed", 1_000_000), ("a fifth observed", 5_000_000)] {
        let (tally, truth) = tally(&Synthetic {
            every,
            ..Synthetic::of_60()
        });
        let same = Slots {
            outbound: 8,
            block_relay: 2,
            inbound_full_relay: 30,
            inbound_block_relay: 20,
        };
        let plan = from_recording(&tally, same, 1.0).expect("a plan");
        near(
            plan.ms_per_second,
            truth.ns_per_second / 1e6,
            0.1,
            &format!("60, {sampled}"),
        );
        near(
            plan.wake_ups.expect("wake-ups"),
            truth.wake_ups,
            0.1,
            "wake-ups",
        );
        for peers in [[8, 70, 2, 40], [8, 30, 2, 80], [16, 60, 4, 40]] {
            let run = Synthetic {
                seed: 99,
                ..Synthetic::of_60().with_peers(peers)
            };
            let truth = run.run(|_| {});
            let [
                outbound,
                inbound_full_relay,
                block_relay,
                inbound_block_relay,
            ] = peers.map(|count| count as u64);
            let slots = Slots {
                outbound,
                block_relay,
                inbound_full_relay,
                inbound_block_relay,
            };
            let plan = from_recording(&tally, slots, 1.0).expect("a plan");
            let what = format!("120 as {peers:?}, {sampled}, ms/s");
            near(plan.ms_per_second, truth.ns_per_second / 1e6, 0.15, &what);
            near(
                plan.wake_ups.expect("wake-ups"),
                truth.wake_ups,
                0.15,
                "wake-ups",
            );
        }
    }
}

/// What more slots take is the difference between the two plans.
#[test]
fn more_slots_are_compared_with_the_default() {
    let (tally, _) = tally(&Synthetic::of_60());
    let plan = |slots| from_recording(&tally, slots, 1.0).expect("a plan");
    let today = plan(Slots::TODAY);
    let mut same = today.clone();
    same.compare(&today);
    assert_eq!(same.more, None);
    assert!(!same.to_text().contains("more        than"));

    let mut larger = plan(Slots {
        inbound_block_relay: 195,
        ..Slots::TODAY
    });
    larger.compare(&today);
    let more = larger.more.expect("a difference");
    // A block-relay peer has a filter of addresses, and buffers of 6 MB.
    assert_eq!((more.slots, more.memory), (100, 2_700_000));
    assert_eq!(more.buffers, 600_000_000);
    let ms = larger.ms_per_second - today.ms_per_second;
    assert!(ms > 0.0 && (more.ms_per_second - ms).abs() < 1e-9);
    let bytes = more.bytes_per_second.expect("bytes");
    assert!(bytes > 0.0, "{bytes}");
    let text = larger.to_text();
    assert!(
        text.contains("than today's default of 199 slots: +100 slots, +"),
        "{text}"
    );
    assert!(text.contains("+3 MB (+603 MB with full buffers)"), "{text}");

    let mut smaller = plan(Slots::OF_2023);
    smaller.compare(&today);
    let less = smaller.more.expect("a difference");
    assert!(less.slots == -75 && less.memory < 0 && less.ms_per_second < 0.0);
    assert!(smaller.to_text().contains(": -75 slots, -"));
}

#[test]
fn a_plan_has_the_range_of_the_factors_and_the_published_estimate() {
    let board = Board::named("raspberry-pi-4").unwrap();
    let slowdown = Slowdown::of(&board.speed(), &Speed::reference());
    assert!(slowdown.published && slowdown.by_work.len() == 3);
    let factor = slowdown.factor;
    let costs = |slower| Ok::<_, Infallible>(from_published(Slots::OF_2023, slower));
    let Ok(plan) = plan_for(slowdown.clone(), costs);
    assert!((plan.ms_per_second - 34.6 * factor).abs() < 1e-9);
    let machine = plan.machine.as_ref().unwrap();
    assert!((machine.range_ms.0 - 34.6 * slowdown.range.0).abs() < 1e-9);
    assert!((machine.range_ms.1 - 34.6 * slowdown.range.1).abs() < 1e-9);
    assert!((machine.seventy_percent_slower_ms - 34.6 / 0.3).abs() < 1e-9);
    let text = plan.to_text();
    for part in [
        "raspberry-pi-4",
        "not measured by us",
        "70 % slower",
        "115.3 ms/s",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn short_connections_are_left_out_and_counted() {
    let run = Synthetic {
        short_per_second: 0.5,
        ..Synthetic::of_60()
    };
    let (tally, _) = tally(&run);
    let slots = tally.slots();
    assert_eq!(slots[&Slot::InboundBlockRelay].connections, 20);
    let short = slots[&Slot::InboundBlockRelay].short;
    assert!((200..400).contains(&short), "{short}");
    let report = Report::of(&tally);
    assert_eq!(report.short.connections, short);
    assert_eq!(report.short.of, short + 60);
    let share = report.short.cpu_share.expect("timed");
    assert!(share > 0.0 && share < 0.1, "{share}");
    assert!(
        tally.peers().count() < 70,
        "disconnected peers are not kept"
    );
}

/// The end of a window may be in a damaged part. What came before it must not count for the next
/// window.
#[test]
fn records_before_a_gap_do_not_count_for_the_next_window() {
    let mut tally = Tally::new();
    let received = |time| Record {
        time,
        event: Event::Received {
            peer: 7,
            message_type: "tx".into(),
            bytes: 100,
            cost: None,
            added: None,
        },
    };
    let window = |start, time| Record {
        time,
        event: Event::Window {
            start,
            lost: 0,
            probes_ns: 0,
            stolen_ns: 0,
        },
    };
    tally.add(&window(START, START + 10));
    tally.add(&received(START + 20));
    tally.gap();
    tally.add(&received(START + 40));
    tally.add(&window(START + 30, START + 50));
    let (_, peer) = tally.peers().next().expect("a peer");
    assert_eq!(peer.seen.received.count, 1);
    assert_eq!(tally.received(|_| true)["tx"].messages.count, 1);
}

/// Restarts, peers that connect and disconnect within a window, events outside windows, and
/// nonsense.
#[test]
fn odd_records_are_taken() {
    let mut tally = Tally::new();
    let mut at = |time, event| tally.add(&Record { time, event });
    let connection = |address: &str| Connection {
        address: address.into(),
        kind: ConnectionType::Inbound,
        network: Some(Network::Ipv4),
        transport: Some(Transport::V2),
        relay: None,
        user_agent: None,
        since: None,
    };
    let calls = Calls {
        count: 2,
        cost: Cost {
            wall_ns: 500,
            cpu_ns: 400,
        },
    };
    let visited = |peer| Event::Calls {
        peer,
        receiving: calls,
        sending: calls,
    };
    at(
        START,
        Event::Connected {
            peer: 0,
            connection: connection("a"),
        },
    );
    // Connects and disconnects within the window.
    at(
        START + 10,
        Event::Connected {
            peer: 1,
            connection: connection("b"),
        },
    );
    at(START + 20, Event::Disconnected { peer: 1 });
    at(START + 30, visited(1));
    at(START + 30, visited(0));
    // A peer without a `Connected` event.
    at(START + 30, visited(7));
    at(
        START + 1_000_000,
        Event::Window {
            start: START,
            lost: 3,
            probes_ns: 0,
            stolen_ns: 0,
        },
    );
    // The node restarts.
    at(
        START + 1_500_000,
        Event::Connected {
            peer: 0,
            connection: connection("c"),
        },
    );
    at(START + 1_600_000, visited(0));
    at(
        START + 2_000_000,
        Event::Window {
            start: START + 1_000_000,
            lost: 0,
            probes_ns: 0,
            stolen_ns: 0,
        },
    );
    // Nonsense.
    at(
        5,
        Event::Window {
            start: u64::MAX,
            lost: u64::MAX,
            probes_ns: 0,
            stolen_ns: 0,
        },
    );
    at(
        u64::MAX,
        Event::Window {
            start: 0,
            lost: 0,
            probes_ns: 0,
            stolen_ns: 0,
        },
    );
    at(0, Event::Disconnected { peer: i64::MIN });
    let huge = Calls {
        count: u64::MAX,
        cost: Cost {
            wall_ns: u64::MAX,
            cpu_ns: u64::MAX,
        },
    };
    for _ in 0..2 {
        at(
            9,
            Event::Calls {
                peer: 3,
                receiving: huge,
                sending: huge,
            },
        );
        at(
            9,
            Event::Thread {
                name: "b-msghand".into(),
                cpu_ns: u64::MAX,
            },
        );
    }
    for number in 0..1000 {
        let message_type = format!("made up {number}");
        at(
            9,
            Event::Received {
                peer: 3,
                message_type,
                bytes: u64::MAX,
                cost: Some(huge.cost),
                added: None,
            },
        );
    }
    at(
        START + 3_000_000,
        Event::Window {
            start: START + 2_000_000,
            lost: 0,
            probes_ns: 0,
            stolen_ns: 0,
        },
    );
    for peer in 0..20_000 {
        at(
            START,
            Event::Connected {
                peer,
                connection: connection("d"),
            },
        );
    }
    assert_eq!(tally.lost(), u64::MAX);
    assert!(tally.crowded() >= 10_000);
    let received = tally.received(|_| true);
    assert_eq!(received.len(), 101);
    assert_eq!(received["*other*"].messages.count, 900);
    let report = Report::of(&tally);
    assert!(report.to_json().contains("\"schema\": 2"));
    assert!(!packetlane_peers::show::text::render(&report).is_empty());
    let slots = tally.slots();
    // Its `Connected` event comes after all.
    assert_eq!(slots[&Slot::Inbound].seen.receiving.count, u64::MAX);
    // The peers of a recording that has ended leave when another begins.
    tally.end();
    assert_eq!(tally.peers().count(), 10_000);
    tally.add(&Record {
        time: 0,
        event: Event::Loop { cpu_ns: 0 },
    });
    assert_eq!(tally.peers().count(), 0);
    assert!(tally.time_line().points.len() <= 1200);
}

/// 10 minutes with 60 peers of four kinds, a fifth of the time observed. Writes the page to the
/// file PACKETLANE_REPORT if that is set.
#[test]
fn a_report_has_tables_and_pictures() {
    let run = Synthetic {
        window: 200_000,
        short_per_second: 0.3,
        ..Synthetic::of_60()
    };
    let (tally, _) = tally(&run);
    let report = Report::of(&tally);
    let text = packetlane_peers::show::text::render(&report);
    println!("{text}");
    for wanted in [
        "windows: 20.0 % of the time",
        "were shorter than a minute",
        "outbound full-relay",
        "inbound block-relay",
        "612-662",
        "32000-56000",
        "not accounted for",
        "/Satoshi:28.0.0/",
        "Messages from full-relay peers: CPU to process one",
        "Messages from block-relay peers: CPU to process one",
        "published 2023",
    ] {
        assert!(text.contains(wanted), "{wanted}");
    }
    assert!(text.lines().all(|line| line.len() < 320));
    let origin = packetlane_peers::show::html::Origin {
        command: "packetlane peers report <a>.parquet".into(),
        files: vec!["a.parquet".into()],
    };
    let page = packetlane_peers::show::html::render(&report, &origin);
    assert!(page.contains("report &lt;a&gt;.parquet"));
    assert_eq!(
        page.matches("<svg").count(),
        3,
        "time line and two boxen plots"
    );
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    // The one that sorts tables.
    assert_eq!(page.matches("<script").count(), 1);
    for fetched in ["http:", "https:", "url(", "src="] {
        assert!(!page.contains(fetched), "{fetched}");
    }
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).expect("JSON");
    assert_eq!(json["slots"].as_array().expect("slots").len(), 4);
    // Nearly all of the thread's time is accounted for.
    let thread = json["thread"]["unaccounted"].as_f64().expect("a share");
    assert!((0.0..0.05).contains(&thread), "{thread}");
    if let Ok(path) = std::env::var("PACKETLANE_REPORT") {
        std::fs::write(path, page).expect("written");
    }
}
