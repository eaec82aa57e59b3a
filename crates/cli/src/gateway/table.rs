//! `gateway peers`: the peers of a running gateway, live, or once into a pipe.

use super::status::Shown;
use crate::screen::{Column, Content, Period, Screen, age, lines, short};
use crate::stop::Signal;
use crate::terminal::print;
use crate::wire::printable;
use std::collections::HashMap;
use std::error::Error;
use std::io::{self, IsTerminal as _, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long a running gateway may take to answer.
const LIMIT: Duration = Duration::from_secs(5);

/// How often it is asked.
const EVERY: Duration = Duration::from_secs(2);

/// How often signals and keys are looked for.
const POLL: Duration = Duration::from_millis(50);

/// What to sort by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Sort {
    /// CPU time, the costliest first
    Cpu,
    /// Messages, both ways
    Messages,
    /// Bytes, both ways
    Bytes,
    /// Age, the oldest first
    Age,
    /// The gateway's number of the peer
    Id,
}

/// What the gateway has said of its peers: now, and the time before.
#[derive(Default)]
struct Peers {
    now: Vec<Shown>,
    before: HashMap<u64, Shown>,
}

/// What a peer does in a second.
struct Rates<'p> {
    peer: &'p Shown,
    cpu_ms: f64,
    received: f64,
    sent: f64,
    received_bytes: f64,
    sent_bytes: f64,
}

impl<'p> Rates<'p> {
    fn of(peer: &'p Shown, before: Option<&Shown>) -> Self {
        let seconds = peer.age_s - before.map_or(0.0, |before| before.age_s);
        let rate = |of: &dyn Fn(&Shown) -> u64| {
            let more = of(peer).saturating_sub(before.map_or(0, of));
            more as f64 / seconds.max(0.001)
        };
        Self {
            peer,
            cpu_ms: rate(&|peer| peer.cpu_us) / 1e3,
            received: rate(&|peer| peer.received.messages),
            sent: rate(&|peer| peer.sent.messages),
            received_bytes: rate(&|peer| peer.received.bytes),
            sent_bytes: rate(&|peer| peer.sent.bytes),
        }
    }

    /// The lowest first.
    fn key(&self, sort: Sort) -> f64 {
        match sort {
            Sort::Cpu => -self.cpu_ms,
            Sort::Messages => -(self.received + self.sent),
            Sort::Bytes => -(self.received_bytes + self.sent_bytes),
            Sort::Age => -self.peer.age_s,
            Sort::Id => self.peer.id as f64,
        }
    }

    fn cells(&self) -> Vec<String> {
        let bytes = |rate: f64| short(rate).trim_end().to_owned();
        let transport = match self.peer.transport.as_str() {
            "unknown" => "-",
            known => known,
        };
        vec![
            self.peer.id.to_string(),
            printable(self.peer.direction.as_bytes()),
            printable(transport.as_bytes()),
            age(self.peer.age_s as u64),
            format!("{:.3}", self.cpu_ms),
            format!("{:.1}", self.received),
            format!("{:.1}", self.sent),
            bytes(self.received_bytes),
            bytes(self.sent_bytes),
            printable(self.peer.address.as_bytes()),
        ]
    }
}

impl Content for Peers {
    type Sort = Sort;

    const COLUMNS: &'static [Column<Sort>] = &[
        Column::number("peer", 7, Sort::Id, 0),
        Column::text("", 8, 5),
        Column::text("", 2, 3),
        Column::number("age", 4, Sort::Age, 2),
        Column::number("CPU ms/s", 9, Sort::Cpu, 0),
        Column::number("msg/s", 8, Sort::Messages, 1),
        Column::number("sent/s", 8, Sort::Messages, 4),
        Column::number("B/s", 7, Sort::Bytes, 1),
        Column::number("sent B/s", 8, Sort::Bytes, 4),
        Column::text("address", 47, 6),
    ];

    const KEYS: &'static [(char, &'static str, Sort)] = &[
        ('c', "CPU", Sort::Cpu),
        ('m', "messages", Sort::Messages),
        ('b', "bytes", Sort::Bytes),
        ('a', "age", Sort::Age),
        ('i', "id", Sort::Id),
    ];

    fn page(&self, sort: Sort, period: Period) -> (Vec<Vec<String>>, Vec<String>) {
        let rates = self.now.iter().map(|peer| {
            let before = self.before.get(&peer.id);
            Rates::of(peer, before.filter(|_| period == Period::Latest))
        });
        let mut rates: Vec<_> = rates.collect();
        rates.sort_by(|one, other| one.key(sort).total_cmp(&other.key(sort)));
        let sum = |of: fn(&Rates<'_>) -> f64| rates.iter().map(of).sum::<f64>();
        let below = format!(
            "{} peers: {:.3} ms/s; received {:.1} msg/s, {}B/s; sent {:.1} msg/s, {}B/s",
            rates.len(),
            sum(|one| one.cpu_ms),
            sum(|one| one.received),
            short(sum(|one| one.received_bytes)),
            sum(|one| one.sent),
            short(sum(|one| one.sent_bytes)),
        );
        (rates.iter().map(Rates::cells).collect(), vec![below])
    }
}

impl Peers {
    /// Asks the gateway again.
    fn look(&mut self, address: SocketAddr) -> Result<(), String> {
        let failed =
            |error: &dyn std::fmt::Display| format!("no gateway serves at {address}: {error}");
        let text = fetch(address).map_err(|error| failed(&error))?;
        let now = serde_json::from_str(&text).map_err(|error| failed(&error))?;
        let before = std::mem::replace(&mut self.now, now);
        self.before = before.into_iter().map(|peer| (peer.id, peer)).collect();
        Ok(())
    }
}

/// Runs `gateway peers`.
pub(super) fn show(address: SocketAddr, json: bool, sort: Sort) -> Result<(), Box<dyn Error>> {
    if json {
        let text = fetch(address);
        let text = text.map_err(|error| format!("no gateway serves at {address}: {error}"))?;
        print(format_args!("{text}\n"));
        return Ok(());
    }
    let mut peers = Peers::default();
    peers.look(address)?;
    if !io::stdout().is_terminal() {
        print(format_args!("{}", lines(&peers, sort, usize::MAX)));
        return Ok(());
    }
    let signal = Signal::catch()?;
    let mut screen = Screen::open(sort)?;
    let mut looked = Instant::now();
    screen.show(&peers)?;
    while !signal.has_come() && screen.obey(&peers)? {
        std::thread::sleep(POLL);
        if looked.elapsed() >= EVERY {
            screen.view.notice = peers.look(address).err();
            looked = Instant::now();
            screen.show(&peers)?;
        }
    }
    Ok(())
}

/// What the gateway at `address` says at `/peers`.
fn fetch(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(b"GET /peers HTTP/1.1\r\nHost: gateway\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200 ") => Ok(body.to_owned()),
        _ => Err(io::Error::other("it answers something else")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(id: u64, age_s: f64, cpu_us: u64, messages: u64) -> Shown {
        let way = |messages: u64| {
            let bytes = messages * 100;
            serde_json::json!({"bytes": bytes, "messages": messages, "types": {}})
        };
        let json = serde_json::json!({"id": id, "address": format!("192.0.2.{id}:8333"),
            "direction": "inbound", "transport": "v2", "session_id": null, "decoys": 0, "age_s": age_s,
            "cpu_us": cpu_us, "received": way(messages), "sent": way(2 * messages)});
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn rates_of_all_and_of_the_last_look() {
        let peers = Peers {
            now: vec![peer(1, 10.0, 50_000, 100), peer(2, 4.0, 40_000, 8)],
            before: [(1, peer(1, 8.0, 10_000, 98))].into(),
        };
        let first = |sort, period| {
            let (rows, below) = peers.page(sort, period);
            assert_eq!(rows[0].len(), Peers::COLUMNS.len());
            (rows[0].join(" "), below[0].clone())
        };
        let (row, below) = first(Sort::Cpu, Period::All);
        assert_eq!(row, "2 inbound v2 4s 10.000 2.0 4.0 200 400 192.0.2.2:8333");
        assert_eq!(
            below,
            "2 peers: 15.000 ms/s; received 12.0 msg/s, 1200 B/s; sent 24.0 msg/s, 2400 B/s"
        );
        let (row, _) = first(Sort::Cpu, Period::Latest);
        assert_eq!(
            row,
            "1 inbound v2 10s 20.000 1.0 2.0 100 200 192.0.2.1:8333"
        );
        for (sort, expected) in [
            (Sort::Messages, "1 "),
            (Sort::Bytes, "1 "),
            (Sort::Age, "1 "),
            (Sort::Id, "1 "),
        ] {
            let (row, _) = first(sort, Period::All);
            assert!(row.starts_with(expected), "{sort:?}: {row}");
        }
        let text = lines(&peers, Sort::Cpu, usize::MAX);
        assert_eq!(text.lines().count(), 4, "{text}");
    }
}
