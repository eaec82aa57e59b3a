//! A synthetic node with known costs. Its message thread visits every peer at every wake-up, as
//! Bitcoin Core's does. Its records are what probes would emit.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses a part of this module"
)]

use packetlane_peers::tally::ONCE;
use packetlane_peers::{
    Calls, Connection, ConnectionType, Cost, Event, Network, Record, Time, Transport,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::VecDeque;

/// The start of every recording.
pub const START: Time = 1_790_000_000_000_000;

/// CPU nanoseconds of checking for a message where there is none.
pub const IDLE_RECEIVE_NS: u64 = 400;
/// CPU nanoseconds of checking for something to send where there is nothing.
pub const IDLE_SEND_NS: u64 = 1600;
/// CPU nanoseconds to send a message.
pub const SEND_MESSAGE_NS: u64 = 9_000;
/// CPU nanoseconds of the loop at each wake-up.
pub const LOOP_NS: u64 = 3_000;
/// The longest sleep of the message thread, in microseconds.
pub const SLEEP: Time = 100_000;

/// A kind of peer: connection type, whether it wants transactions, and what it sends (type,
/// messages per second, bytes, CPU nanoseconds to process one).
pub struct Sort {
    pub kind: ConnectionType,
    pub relay: bool,
    pub messages: &'static [(&'static str, f64, u64, u64)],
    pub sent_per_second: f64,
}

pub const OUTBOUND_FULL: Sort = Sort {
    kind: ConnectionType::OutboundFullRelay,
    relay: true,
    messages: &[
        ("inv", 1.2, 280, 48_000),
        ("tx", 0.45, 420, 480_000),
        ("addrv2", 0.05, 120, 60_000),
        ("ping", 0.02, 8, 30_000),
        ("cmpctblock", 0.005, 12_000, 2_500_000),
    ],
    sent_per_second: 1.5,
};
pub const INBOUND_FULL: Sort = Sort {
    kind: ConnectionType::Inbound,
    relay: true,
    messages: &[
        ("inv", 0.8, 200, 45_000),
        ("tx", 0.08, 420, 470_000),
        ("getdata", 0.3, 75, 120_000),
        ("ping", 0.02, 8, 30_000),
    ],
    sent_per_second: 1.1,
};
pub const OUTBOUND_BLOCK: Sort = Sort {
    kind: ConnectionType::BlockRelayOnly,
    relay: false,
    messages: &[("ping", 0.02, 8, 30_000), ("headers", 0.01, 106, 90_000)],
    sent_per_second: 0.03,
};
pub const INBOUND_BLOCK: Sort = Sort {
    kind: ConnectionType::Inbound,
    relay: false,
    messages: &[
        ("ping", 0.02, 8, 30_000),
        ("getheaders", 0.004, 1000, 80_000),
    ],
    sent_per_second: 0.03,
};

const SORTS: [&Sort; 4] = [
    &OUTBOUND_FULL,
    &INBOUND_FULL,
    &OUTBOUND_BLOCK,
    &INBOUND_BLOCK,
];

/// What to simulate.
pub struct Synthetic {
    pub seed: u64,
    /// Number of peers: outbound full-relay, inbound full-relay, outbound block-relay, inbound
    /// block-relay.
    pub peers: [usize; 4],
    pub seconds: u64,
    /// Length of a window, in microseconds.
    pub window: Time,
    /// Time from one window to the next. Equal to `window`: all time is observed.
    pub every: Time,
    /// New connections per second that last a second or two.
    pub short_per_second: f64,
    /// Multiplies the transactions and blocks from each peer.
    pub once: f64,
}

/// The true values of a run.
#[derive(Debug, Default)]
pub struct Truth {
    /// CPU nanoseconds per second of all peers.
    pub ns_per_second: f64,
    /// Wake-ups per second.
    pub wake_ups: f64,
    /// CPU nanoseconds per second of each peer.
    pub peers: Vec<f64>,
}

struct Peer {
    number: i64,
    sort: &'static Sort,
    once: f64,
    from: Time,
    until: Time,
    next: Time,
    next_kind: usize,
    next_sent: Time,
    queue: VecDeque<usize>,
    cpu_ns: u64,
    receiving: Calls,
    sending: Calls,
    visited: bool,
    told: bool,
}

fn exponential(rng: &mut StdRng, per_second: f64) -> Time {
    if per_second <= 0.0 {
        return Time::MAX / 4;
    }
    let share: f64 = rng.random_range(f64::MIN_POSITIVE..1.0);
    (-share.ln() / per_second * 1e6) as Time + 1
}

impl Synthetic {
    /// 60 peers of all four kinds, with all of the time observed.
    pub fn of_60() -> Self {
        Self {
            seed: 18,
            peers: [8, 30, 2, 20],
            seconds: 600,
            window: 1_000_000,
            every: 1_000_000,
            short_per_second: 0.0,
            once: 1.0,
        }
    }

    /// The same network with other peers: the total of transactions and blocks stays the same.
    pub fn with_peers(&self, peers: [usize; 4]) -> Self {
        let in_all = |peers: [usize; 4]| {
            let of_sort = |(sort, count): (&Sort, usize)| {
                let once = sort.messages.iter().filter(|kind| ONCE.contains(&kind.0));
                count as f64 * once.map(|kind| kind.1).sum::<f64>()
            };
            SORTS.into_iter().zip(peers).map(of_sort).sum::<f64>()
        };
        Self {
            peers,
            once: self.once * in_all(self.peers) / in_all(peers),
            ..*self
        }
    }

    /// Runs the simulation. Passes the records to `to` in order.
    pub fn run(&self, mut to: impl FnMut(Record)) -> Truth {
        let mut rng = StdRng::seed_from_u64(self.seed);
        let end = START + self.seconds * 1_000_000;
        let mut peers = Vec::new();
        for (sort, count) in SORTS.into_iter().zip(self.peers) {
            for _ in 0..count {
                peers.push(new_peer(
                    &mut rng,
                    peers.len(),
                    (sort, self.once),
                    START - 3_600_000_000,
                    Time::MAX,
                ));
            }
        }
        let lasting = peers.len();
        let mut number = lasting;
        for peer in &peers {
            to(connected(peer, START, &mut rng));
        }
        let mut truth = Truth::default();
        let mut next_short = START + exponential(&mut rng, self.short_per_second);
        let (mut now, mut window) = (START, START);
        let (mut loops, mut thread_ns, mut all_ns) = (0_u64, 0_u64, 0_u64);
        while now < end {
            // Windows that have ended.
            while now >= window + self.window {
                let seen_until = window + self.window;
                for peer in &mut peers {
                    let (receiving, sending) = (peer.receiving, peer.sending);
                    (peer.receiving, peer.sending) = Default::default();
                    if std::mem::take(&mut peer.visited) {
                        let peer = peer.number;
                        to(Record {
                            time: seen_until,
                            event: Event::Calls {
                                peer,
                                receiving,
                                sending,
                            },
                        });
                    }
                }
                to(Record {
                    time: seen_until,
                    event: Event::Thread {
                        name: "b-msghand".into(),
                        cpu_ns: std::mem::take(&mut thread_ns),
                    },
                });
                to(Record {
                    time: seen_until,
                    event: Event::Window {
                        start: window,
                        lost: 0,
                        probes_ns: 0,
                        stolen_ns: 0,
                    },
                });
                window += self.every;
            }
            let seen = now >= window;
            while next_short <= now {
                let lives = rng.random_range(500_000..3_000_000);
                let peer = new_peer(
                    &mut rng,
                    number,
                    (&INBOUND_BLOCK, self.once),
                    next_short,
                    next_short + lives,
                );
                to(connected(&peer, next_short, &mut rng));
                peers.push(peer);
                number += 1;
                next_short += exponential(&mut rng, self.short_per_second);
            }
            peers.retain(|peer| {
                let stays = peer.until > now;
                if !stays {
                    let peer = peer.number;
                    to(Record {
                        time: now,
                        event: Event::Disconnected { peer },
                    });
                }
                stays
            });
            loops += 1;
            thread_ns += if seen { LOOP_NS } else { 0 };
            let mut took = LOOP_NS;
            let mut more = false;
            for peer in &mut peers {
                while peer.next <= now {
                    peer.queue.push_back(peer.next_kind);
                    peer.arrive(&mut rng);
                }
                let (mut receive, mut send) = (IDLE_RECEIVE_NS, IDLE_SEND_NS);
                let noise = rng.random_range(0.6..1.4);
                if let Some(kind) = peer.queue.pop_front() {
                    let (name, _, bytes, cpu_ns) = peer.sort.messages[kind];
                    receive += (cpu_ns as f64 * noise) as u64;
                    let cost = Cost {
                        wall_ns: receive + receive / 50,
                        cpu_ns: receive,
                    };
                    if seen {
                        to(Record {
                            time: now,
                            event: Event::Received {
                                peer: peer.number,
                                message_type: name.into(),
                                bytes,
                                cost: Some(cost),
                                added: None,
                            },
                        });
                    }
                    more |= !peer.queue.is_empty();
                }
                while peer.next_sent <= now {
                    send += (SEND_MESSAGE_NS as f64 * noise) as u64;
                    peer.next_sent += exponential(&mut rng, peer.sort.sent_per_second);
                    if seen {
                        to(Record {
                            time: now,
                            event: Event::Sent {
                                peer: peer.number,
                                message_type: "inv".into(),
                                bytes: 37,
                            },
                        });
                    }
                }
                took += receive + send;
                peer.cpu_ns += receive + send;
                all_ns += receive + send;
                if seen {
                    thread_ns += receive + send;
                    peer.visited = true;
                    for (calls, ns) in [(&mut peer.receiving, receive), (&mut peer.sending, send)] {
                        calls.count += 1;
                        calls.cost.cpu_ns += ns;
                        calls.cost.wall_ns += ns + ns / 50;
                    }
                }
            }
            now += (took / 1000).max(1);
            if !more {
                // Sleeps until a message arrives, at most 100 ms.
                let next = peers
                    .iter()
                    .map(|peer| peer.next)
                    .min()
                    .unwrap_or(Time::MAX);
                now = next.clamp(now, now + SLEEP);
            }
        }
        let seconds = self.seconds as f64;
        truth.ns_per_second = all_ns as f64 / seconds;
        truth.wake_ups = loops as f64 / seconds;
        truth.peers = peers
            .iter()
            .take(lasting)
            .map(|peer| peer.cpu_ns as f64 / seconds)
            .collect();
        truth
    }
}

fn new_peer(
    rng: &mut StdRng,
    number: usize,
    (sort, once): (&'static Sort, f64),
    from: Time,
    until: Time,
) -> Peer {
    let mut peer = Peer {
        number: number as i64,
        sort,
        once,
        from,
        until,
        next: from.max(START),
        next_kind: 0,
        next_sent: from.max(START),
        queue: VecDeque::new(),
        cpu_ns: 0,
        receiving: Calls::default(),
        sending: Calls::default(),
        visited: false,
        told: false,
    };
    peer.arrive(rng);
    peer
}

impl Peer {
    /// Time and type of the next message.
    fn arrive(&mut self, rng: &mut StdRng) {
        let per_second = |message: &(&str, f64, u64, u64)| match ONCE.contains(&message.0) {
            true => message.1 * self.once,
            false => message.1,
        };
        let total: f64 = self.sort.messages.iter().map(per_second).sum();
        self.next += exponential(rng, total);
        let mut place = rng.random_range(0.0..total);
        self.next_kind = 0;
        for (kind, message) in self.sort.messages.iter().enumerate() {
            if place < per_second(message) {
                self.next_kind = kind;
                break;
            }
            place -= per_second(message);
        }
    }
}

fn connected(peer: &Peer, time: Time, rng: &mut StdRng) -> Record {
    let connection = Connection {
        address: format!(
            "203.0.113.{}:{}",
            peer.number % 250,
            rng.random_range(1024..65535)
        ),
        kind: peer.sort.kind,
        network: Some(Network::Ipv4),
        transport: Some(if peer.number % 3 == 0 {
            Transport::V1
        } else {
            Transport::V2
        }),
        relay: Some(peer.sort.relay),
        user_agent: Some(format!("/Satoshi:2{}.0.0/", 7 + peer.number % 3)),
        since: Some(peer.from),
    };
    let peer = peer.number;
    Record {
        time,
        event: Event::Connected { peer, connection },
    }
}

/// A folder for this test, removed on drop.
pub struct Folder(pub std::path::PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let name = format!("packetlane-peers-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
