//! Writes a synthetic recording of a listening node with 125 peers, to measure the size of recordings
//! and what a report on them costs.
//!
//! ```text
//! cargo run --release -p packetlane-peers --example day -- DIR [--all] [--days N]
//! ```
//!
//! Messages come at the rates of the lab's profile `listening` (messages per day, both directions, of
//! a node of early 2025), shared between the peers. Every peer is visited in every window. Windows are
//! those of `peers record`: 0.5 of every 5 seconds, or with `--all` one every 5 seconds without gaps.
//! Parts are cut as by the recorder. All 125 peers stay, and 4,800 connections a day last some
//! seconds. A block comes every ten minutes, and all peers announce it.

use packetlane_p2p::payload::BlockHash;
use packetlane_peers::file::Writer;
use packetlane_peers::{
    BlockStep, Calls, Connection, ConnectionType, Cost, Event, Network, Record, Time, Transport,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::error::Error;
use std::path::Path;

const START: Time = 1_790_000_000_000_000;
const SECOND: Time = 1_000_000;
const DAY: f64 = 86_400.0;

/// Message type, messages per day in both directions, mean payload, and CPU nanoseconds to process
/// one.
const MESSAGES: [(&str, f64, f64, f64); 20] = [
    ("inv", 810_972.2, 430.9, 45_000.0),
    ("tx", 492_480.0, 743.4, 450_000.0),
    ("getdata", 166_264.0, 107.9, 110_000.0),
    ("ping", 72_803.2, 8.0, 30_000.0),
    ("pong", 71_946.2, 8.0, 12_000.0),
    ("addr", 19_240.2, 770.8, 90_000.0),
    ("addrv2", 13_149.2, 353.5, 60_000.0),
    ("getaddr", 11_474.8, 0.0, 200_000.0),
    ("version", 9624.0, 107.2, 120_000.0),
    ("verack", 9125.5, 0.0, 60_000.0),
    ("sendaddrv2", 5143.5, 0.0, 9000.0),
    ("sendcmpct", 4306.5, 9.0, 9000.0),
    ("feefilter", 4165.8, 8.0, 9000.0),
    ("wtxidrelay", 3955.2, 0.0, 9000.0),
    ("getheaders", 3736.8, 962.9, 35_000.0),
    ("headers", 2699.0, 10_087.8, 400_000.0),
    ("notfound", 1095.8, 47.3, 9000.0),
    ("cmpctblock", 426.8, 13_321.9, 2_500_000.0),
    ("block", 92.8, 1_590_254.0, 60_000_000.0),
    ("blocktxn", 49.8, 124_251.6, 9_000_000.0),
];

/// Connections that last some seconds.
const SHORT_PER_DAY: f64 = 4800.0;

const PEERS: i64 = 125;

/// Seconds from one block to the next.
const BLOCK_EVERY: u64 = 600;

/// Wake-ups of the message thread per second; it visits every peer at each.
const WAKE_UPS: f64 = 60.0;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments
        .next()
        .ok_or("usage: day DIR [--all] [--days N]")?;
    let (mut all, mut days) = (false, 1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--all" => all = true,
            "--days" => days = arguments.next().ok_or("--days N")?.parse()?,
            _ => return Err("usage: day DIR [--all] [--days N]".into()),
        }
    }
    let records = record(Path::new(&folder), all, days)?;
    println!("{records} records");
    Ok(())
}

fn record(folder: &Path, all: bool, days: u64) -> Result<u64, Box<dyn Error>> {
    let mut rng = StdRng::seed_from_u64(57);
    let mut writer = Writer::create(folder)?;
    let window = if all { 5.0 } else { 0.5 };
    let rates = MESSAGES.map(|message| message.1 / DAY);
    let total: f64 = rates.iter().sum();
    let mut next_peer = PEERS;
    let mut part_begun = START;
    for peer in 0..PEERS {
        add(&mut writer, START, connected(peer, START - 3600 * SECOND))?;
    }
    for number in 0..days * 86_400 / 5 {
        let start = START + number * 5 * SECOND;
        let end = start + (window * 1e6) as Time;
        let mut times: Vec<Time> = (0..poisson(&mut rng, total * window))
            .map(|_| rng.random_range(start..end))
            .collect();
        times.sort_unstable();
        let mut busy = vec![0; PEERS as usize];
        for time in times {
            let mut place = rng.random_range(0.0..total);
            let kind = rates.iter().position(|rate| {
                place -= rate;
                place < 0.0
            });
            let (name, _, mean, cpu_ns) = MESSAGES[kind.unwrap_or(0)];
            let peer = rng.random_range(0..PEERS);
            let noise = rng.random_range(0.5..1.5);
            let (message_type, bytes) = (name.to_owned(), (mean * noise) as u64);
            let cpu_ns = (cpu_ns * rng.random_range(0.6..1.4)) as u64;
            let event = match rng.random_bool(0.5) {
                true => {
                    busy[peer as usize] += cpu_ns;
                    Event::Received {
                        peer,
                        message_type,
                        bytes,
                        cost: Some(cost(cpu_ns)),
                        added: Some(name == "tx"),
                    }
                }
                false => Event::Sent {
                    peer,
                    message_type,
                    bytes,
                },
            };
            add(&mut writer, time, event)?;
        }
        if number * 5 % BLOCK_EVERY == 0 {
            for (time, event) in block(&mut rng, end) {
                add(&mut writer, time, event)?;
            }
        }
        for _ in 0..poisson(&mut rng, SHORT_PER_DAY / DAY * window) {
            add(&mut writer, end, connected(next_peer, end))?;
            add(&mut writer, end, Event::Disconnected { peer: next_peer })?;
            next_peer += 1;
        }
        let mut thread_ns = 0;
        for (peer, busy) in (0..).zip(busy) {
            let count = (WAKE_UPS * window * rng.random_range(0.9..1.1)) as u64;
            let receiving = count * 400 + busy;
            let sending = (count as f64 * 1600.0 * rng.random_range(0.8..1.2)) as u64;
            thread_ns += receiving + sending;
            let calls = |cpu_ns| Calls {
                count,
                cost: cost(cpu_ns),
            };
            let event = Event::Calls {
                peer,
                receiving: calls(receiving),
                sending: calls(sending),
            };
            add(&mut writer, end, event)?;
        }
        let loop_ns = (WAKE_UPS * window * 3000.0) as u64;
        let probes_ns = thread_ns / 3;
        for (name, cpu_ns) in [
            ("b-msghand", thread_ns + loop_ns + probes_ns),
            ("b-net", thread_ns / 4),
            ("b-addcon", 10_000),
            ("b-opencon", 20_000),
            ("b-scheduler", 40_000),
        ] {
            let name = name.to_owned();
            add(&mut writer, end, Event::Thread { name, cpu_ns })?;
        }
        add(&mut writer, end, Event::Loop { cpu_ns: loop_ns })?;
        let event = Event::Window {
            start,
            lost: 0,
            probes_ns,
            stolen_ns: 0,
        };
        add(&mut writer, end, event)?;
        // As the recorder cuts parts by its clock.
        let due = ((part_begun - START) / 100).clamp(5 * SECOND, 300 * SECOND);
        if end - part_begun >= due {
            writer.flush()?;
            part_begun = end;
        }
    }
    Ok(writer.finish()?)
}

/// The events of a block that the peers announce from `start` on, within two seconds. The first one
/// delivers it as `cmpctblock`.
fn block(rng: &mut StdRng, start: Time) -> Vec<(Time, Event)> {
    let block = BlockHash(rng.random());
    let message = |time, peer, step| (time, Event::BlockMessage { peer, block, step });
    let mut times: Vec<Time> = (0..PEERS)
        .map(|_| start + rng.random_range(0..2 * SECOND))
        .collect();
    times.sort_unstable();
    let first = rng.random_range(0..PEERS);
    let mut events = vec![
        message(start, first, BlockStep::Compact),
        message(start, first, BlockStep::RequestedMissing(20)),
        message(start + SECOND / 5, first, BlockStep::DeliveredMissing),
    ];
    let connected = Event::BlockConnected {
        block,
        height: (start - START) / (BLOCK_EVERY * SECOND),
        transactions: 3500,
        took_ns: 150_000_000,
    };
    events.push((start + SECOND / 2, connected));
    for (peer, time) in (0..PEERS).zip(times) {
        let step = match peer % 3 {
            0 => BlockStep::Inv,
            1 => BlockStep::Headers,
            _ => BlockStep::Compact,
        };
        events.push(message(time, peer, step));
    }
    events.sort_by_key(|(time, _)| *time);
    events
}

fn add(writer: &mut Writer, time: Time, event: Event) -> Result<(), Box<dyn Error>> {
    Ok(writer.add(&Record { time, event })?)
}

fn cost(cpu_ns: u64) -> Cost {
    Cost {
        wall_ns: cpu_ns + cpu_ns / 50 + 100,
        cpu_ns,
    }
}

fn connected(peer: i64, since: Time) -> Event {
    let kind = match peer {
        0..8 => ConnectionType::OutboundFullRelay,
        8..10 => ConnectionType::BlockRelayOnly,
        _ => ConnectionType::Inbound,
    };
    let connection = Connection {
        address: format!("203.0.{}.{}:8333", peer / 250 % 250, peer % 250),
        kind,
        network: Some(Network::Ipv4),
        transport: Some(match peer % 3 {
            0 => Transport::V1,
            _ => Transport::V2,
        }),
        relay: Some(kind != ConnectionType::BlockRelayOnly && peer % 2 == 0),
        user_agent: Some(format!("/Satoshi:2{}.0.0/", 5 + peer % 5)),
        since: Some(since),
    };
    Event::Connected { peer, connection }
}

fn poisson(rng: &mut StdRng, mean: f64) -> u64 {
    let (mut count, mut left) = (0, mean);
    loop {
        let share: f64 = rng.random_range(f64::MIN_POSITIVE..1.0);
        left += share.ln();
        if left < 0.0 {
            return count;
        }
        count += 1;
    }
}
