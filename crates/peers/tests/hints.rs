//! What is said about costly peers, and what that would lose.

use packetlane_p2p::payload::BlockHash;
use packetlane_peers::hints::hints;
use packetlane_peers::report::Report;
use packetlane_peers::show::{html, text};
use packetlane_peers::tally::Tally;
use packetlane_peers::{
    BlockStep, Calls, Connection, ConnectionType, Cost, Event, Network, Record,
};

const SECOND: u64 = 1_000_000;

/// A peer of ten windows of a second: its cost in microseconds per second beyond transactions, and
/// for transactions that the node accepted or not.
#[derive(Clone)]
struct Load {
    address: String,
    kind: ConnectionType,
    network: Network,
    us: u64,
    accepted_us: u64,
    refused_us: u64,
}

fn load(number: u64, us: u64) -> Load {
    Load {
        address: format!("{}.{}.2.7:8333", 80 + number, number),
        kind: ConnectionType::Inbound,
        network: Network::Ipv4,
        us,
        accepted_us: 0,
        refused_us: 0,
    }
}

fn tally(peers: &[Load]) -> Tally {
    let mut tally = Tally::new();
    let mut add = |second: u64, event| {
        tally.add(&Record {
            time: second * SECOND,
            event,
        });
    };
    let calls = |us: u64| Calls {
        count: 10,
        cost: Cost {
            wall_ns: us * 10_000,
            cpu_ns: us * 10_000,
        },
    };
    for (peer, load) in (0..).zip(peers) {
        let connection = Connection {
            address: load.address.clone(),
            kind: load.kind,
            network: Some(load.network),
            transport: None,
            relay: Some(true),
            user_agent: Some("/<b>:1/".to_owned()),
            since: Some(SECOND),
        };
        add(100, Event::Connected { peer, connection });
        let mut message = |name: &str, us: u64, added| {
            add(
                105,
                Event::Received {
                    peer,
                    message_type: name.to_owned(),
                    bytes: 100,
                    cost: Some(calls(us).cost),
                    added,
                },
            );
        };
        message("ping", load.us, Some(false));
        if load.accepted_us > 0 {
            message("tx", load.accepted_us, Some(true));
        }
        if load.refused_us > 0 {
            message("tx", load.refused_us, Some(false));
        }
    }
    for second in 100..110 {
        for (peer, load) in (0..).zip(peers) {
            let all = load.us + load.accepted_us + load.refused_us;
            let [receiving, sending] = [all, 10].map(|us| calls(us / 10));
            add(
                second + 1,
                Event::Calls {
                    peer,
                    receiving,
                    sending,
                },
            );
        }
        add(
            second + 1,
            Event::Window {
                start: second * SECOND,
                lost: 0,
                probes_ns: 0,
                stolen_ns: 0,
            },
        );
    }
    tally
}

/// Eight peers of the usual cost.
fn usual() -> Vec<Load> {
    (0..8)
        .map(|number| load(number, 180 + 10 * number))
        .collect()
}

#[test]
fn a_quiet_node_needs_nothing() {
    assert_eq!(hints(&tally(&usual())), []);
    // Nor with a peer that costs much because it brings much, or five times very little.
    let mut peers = usual();
    peers[3].accepted_us = 50_000;
    peers[4].us = 980;
    assert_eq!(hints(&tally(&peers)), []);
    // Nor one without others to compare it with.
    assert_eq!(hints(&tally(&[load(0, 90_000), load(1, 10)])), []);
    assert_eq!(hints(&Tally::new()), []);
}

#[test]
fn the_costly_peer_is_named_with_its_figures() {
    let mut peers = usual();
    peers[3].us = 4300;
    let hints = hints(&tally(&peers));
    let [hint] = &hints[..] else {
        panic!("{hints:?}");
    };
    assert_eq!(hint.peers, [3]);
    assert_eq!(hint.command, "bitcoin-cli disconnectnode \"\" 3");
    for figure in [
        "4.31 ms/s",
        "19 times",
        "7 inbound full-relay peers (0.23 ms/s)",
    ] {
        assert!(hint.reason.contains(figure), "{}", hint.reason);
    }
    assert_eq!(hint.loses, [] as [&str; 0]);
}

/// Transactions that the node refuses are no use to it.
#[test]
fn refused_transactions_count_as_cost() {
    let mut peers = usual();
    peers[5].refused_us = 6000;
    peers[6].accepted_us = 6000;
    let hints = hints(&tally(&peers));
    assert_eq!(hints.len(), 1, "{hints:?}");
    assert_eq!(hints[0].peers, [5]);
}

#[test]
fn what_would_be_lost_is_said() {
    let mut peers = usual();
    peers[2].us = 9000;
    peers[2].accepted_us = 500;
    peers[2].network = Network::Onion;
    peers[2].kind = ConnectionType::OutboundFullRelay;
    let mut tally = tally(&peers);
    let block = BlockHash([7; 32]);
    let step = BlockStep::Headers;
    for event in [
        Event::BlockMessage {
            peer: 2,
            block,
            step,
        },
        Event::BlockConnected {
            block,
            height: 9,
            transactions: 1,
            took_ns: 5,
        },
    ] {
        tally.add(&Record {
            time: 111 * SECOND,
            event,
        });
    }
    let hints = hints(&tally);
    assert_eq!(
        hints[0].loses,
        [
            "it announced the last block first",
            "1 of 1 blocks announced first",
            "100 % of the transactions",
            "the only peer of onion",
            "peer 2 is outbound: the node replaces it with another",
        ]
    );
}

#[test]
fn a_group_is_banned_by_its_smallest_range() {
    let peers_of = |third: u64| {
        let mut peers = usual();
        for number in 0..5 {
            let mut one = load(0, 2500);
            let last = if number == 4 { third } else { 3 };
            one.address = format!("203.0.{last}.{number}:9000");
            peers.push(one);
        }
        peers
    };
    let group = |third: u64| hints(&tally(&peers_of(third)));
    // A peer of unknown address may be in it.
    let mut peers = tally(&peers_of(3));
    for event in [
        Event::Calls {
            peer: 99,
            receiving: Calls::default(),
            sending: Calls::default(),
        },
        Event::Window {
            start: 110 * SECOND,
            lost: 0,
            probes_ns: 0,
            stolen_ns: 0,
        },
    ] {
        let time = 111 * SECOND;
        peers.add(&Record { time, event });
    }
    let alone = hints(&peers);
    assert_eq!(alone.len(), 5, "{alone:?}");
    let hints = group(3);
    assert_eq!(hints.len(), 1, "{hints:?}");
    assert_eq!(hints[0].peers, [8, 9, 10, 11, 12]);
    assert_eq!(
        hints[0].command,
        "bitcoin-cli setban \"203.0.3.0/24\" add 86400"
    );
    assert!(
        hints[0]
            .reason
            .starts_with("5 inbound peers of 203.0.0.0/16 cost 12.55 ms/s"),
        "{hints:?}"
    );
    assert_eq!(
        group(4)[0].command,
        "bitcoin-cli setban \"203.0.0.0/16\" add 86400"
    );
}

/// A ban of a local network would hit the node's own services; the peers are named one by one.
#[test]
fn local_peers_are_no_group() {
    let mut peers = usual();
    for number in 0..5 {
        let mut one = load(0, 2500);
        one.address = format!("127.0.0.1:{number}");
        one.network = Network::Unroutable;
        peers.push(one);
    }
    let hints = hints(&tally(&peers));
    assert_eq!(hints.len(), 5, "{hints:?}");
    assert!(
        hints
            .iter()
            .all(|hint| hint.command.contains("disconnectnode"))
    );
}

#[test]
fn a_report_has_a_row_for_each_peer_and_compares() {
    let mut peers = usual();
    peers[3].us = 4300;
    let (costly, quiet) = (tally(&peers), tally(&usual()));
    let mut report = Report::of(&costly);
    report.compare(&Report::of(&quiet));
    assert_eq!(report.peers.len(), 8);
    assert_eq!(report.peers[0].peer, 3);
    let together = &report.compared[0];
    assert_eq!(together.what, "all peers together");
    // Ten seconds of 8 peers: 215 on average and 10 for sending, and 4,090 more.
    assert_eq!(
        (together.before, together.now),
        (Some(1800.0), Some(5890.0))
    );
    assert_eq!(together.differs, Some(true));
    let text = text::render(&report);
    for wanted in [
        "What would help",
        "bitcoin-cli disconnectnode \"\" 3",
        "83.3.2.7:8333",
        "Connections by part of the network",
        "Compared with the other recording",
        "ping from full-relay peers: each",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let origin = html::Origin {
        command: String::new(),
        files: Vec::new(),
    };
    let page = html::render(&report, &origin);
    assert!(
        page.contains("/&lt;b&gt;:1/") && !page.contains("<b>"),
        "{page}"
    );
}

/// Tor's connections come from this machine: a ban by address would hit all of them.
#[test]
fn onion_peers_are_no_group() {
    let mut peers = usual();
    for number in 0..5 {
        let mut one = load(0, 2500);
        one.address = format!("127.0.0.1:{number}");
        one.network = Network::Onion;
        peers.push(one);
    }
    let hints = hints(&tally(&peers));
    assert_eq!(hints.len(), 5, "{hints:?}");
    assert!(hints.iter().all(|hint| !hint.command.contains("setban")));
}

/// A ban would hit these, too.
#[test]
fn neighbours_prevent_a_ban() {
    for (kind, us) in [
        (ConnectionType::Inbound, 200),
        (ConnectionType::OutboundFullRelay, 200),
        (ConnectionType::Manual, 9000),
    ] {
        let mut peers = usual();
        for number in 0..5 {
            let mut one = load(0, 2500);
            one.address = format!("203.0.3.{number}:9000");
            peers.push(one);
        }
        let mut neighbour = load(0, us);
        neighbour.kind = kind;
        neighbour.address = "203.0.3.77:8333".to_owned();
        peers.push(neighbour);
        let hints = hints(&tally(&peers));
        assert!(hints.len() >= 5, "{hints:?}");
        assert!(
            hints.iter().all(|hint| !hint.command.contains("setban")),
            "{hints:?}"
        );
    }
}

/// Headers that synchronize come from one peer, and are needed. There are not that many of them.
#[test]
fn who_brings_the_headers_is_not_named() {
    assert_eq!(hints(&synchronizing(10)), []);
    let hints = hints(&synchronizing(300));
    assert_eq!(hints.len(), 1, "{hints:?}");
    assert_eq!(hints[0].peers, [0]);
}

/// Peer 0 sends `count` long `headers` in each of ten seconds.
fn synchronizing(count: u64) -> Tally {
    let mut synchronizing = tally(&usual());
    for second in 110..120 {
        let cost = Cost {
            wall_ns: 200_000,
            cpu_ns: 200_000,
        };
        let mut add = |event| {
            synchronizing.add(&Record {
                time: (second + 1) * SECOND,
                event,
            });
        };
        for _ in 0..count {
            add(Event::Received {
                peer: 0,
                message_type: "headers".to_owned(),
                bytes: 162_003,
                cost: Some(cost),
                added: Some(false),
            });
        }
        let cost = Cost {
            wall_ns: count * cost.wall_ns,
            cpu_ns: count * cost.cpu_ns,
        };
        add(Event::Calls {
            peer: 0,
            receiving: Calls { count: 1, cost },
            sending: Calls::default(),
        });
        add(Event::Window {
            start: second * SECOND,
            lost: 0,
            probes_ns: 0,
            stolen_ns: 0,
        });
    }
    synchronizing
}

/// At the end of a recording, its peers are still connected.
#[test]
fn a_recording_gives_the_hints_of_its_end() {
    let mut peers = usual();
    peers[3].us = 4300;
    let mut ended = tally(&peers);
    ended.end();
    let report = Report::of(&ended);
    assert_eq!(report.hints.len(), 1);
    assert!(report.peers.iter().all(|peer| peer.left.is_none()));
    // Another recording: those of the first have left.
    ended.add(&Record {
        time: 500 * SECOND,
        event: Event::Disconnected { peer: 99 },
    });
    let report = Report::of(&ended);
    assert_eq!(report.hints, []);
    assert!(report.peers.iter().all(|peer| peer.left.is_some()));
}
