//! `gateway peers`: the peers of a running gateway, live in a terminal or once into a pipe.

use super::status::PeerJson;
use crate::args::HostPort;
use crate::screen::{Column, Content, Period, Screen, age, lines, short};
use crate::stop::Signal;
use crate::terminal::print;
use packetlane_p2p::payload::printable;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::error::Error;
use std::io::{self, IsTerminal as _, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long the gateway may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Maximum length of the answer, in bytes. A peer takes about 2 kB, and a gateway may have tens of
/// thousands.
const MAX_ANSWER: usize = 256 << 20;

/// How often the gateway is asked.
const REFRESH_INTERVAL: Duration = Duration::from_secs(2);

/// How often signals and keys are checked.
const POLL: Duration = Duration::from_millis(50);

/// Sort order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Sort {
    /// CPU time, highest first
    Cpu,
    /// Messages in both directions
    Messages,
    /// Bytes in both directions
    Bytes,
    /// Age, oldest first
    Age,
    /// The gateway's id of the peer
    Id,
}

/// The last two answers of the gateway.
#[derive(Default)]
struct Peers {
    now: Vec<PeerJson>,
    before: HashMap<u64, PeerJson>,
}

/// A peer's rates per second.
struct Rates<'p> {
    peer: &'p PeerJson,
    cpu_ms: f64,
    received: f64,
    sent: f64,
    received_bytes: f64,
    sent_bytes: f64,
}

impl<'p> Rates<'p> {
    fn of(peer: &'p PeerJson, before: Option<&PeerJson>) -> Self {
        let seconds = peer.age_s - before.map_or(0.0, |before| before.age_s);
        let rate = |of: &dyn Fn(&PeerJson) -> u64| {
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

    /// The sort key, ascending.
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
        Column::text("direction", 9, 5),
        Column::text("v1/v2", 5, 3),
        Column::number("age", 4, Sort::Age, 2),
        Column::number("CPU ms/s", 9, Sort::Cpu, 0),
        Column::number("recv/s", 8, Sort::Messages, 1),
        Column::number("sent/s", 8, Sort::Messages, 4),
        Column::number("recv B/s", 8, Sort::Bytes, 1),
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
        // Not `sum`, which returns -0 for no peers.
        let sum =
            |of: fn(&Rates<'_>) -> f64| rates.iter().map(of).fold(0.0, |sum, rate| sum + rate);
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
    fn refresh(&mut self, address: &HostPort) -> Result<(), String> {
        let (_, now) = fetch(address)?;
        let before = std::mem::replace(&mut self.now, now);
        self.before = before.into_iter().map(|peer| (peer.id, peer)).collect();
        Ok(())
    }
}

/// Runs `gateway peers`.
pub(super) fn show(address: &HostPort, json: bool, sort: Sort) -> Result<(), Box<dyn Error>> {
    if json {
        let (text, _): (_, serde_json::Value) = fetch(address)?;
        print(format_args!("{text}\n"));
        return Ok(());
    }
    let mut peers = Peers::default();
    peers.refresh(address)?;
    if !io::stdout().is_terminal() {
        print(format_args!("{}", lines(&peers, sort, usize::MAX)));
        return Ok(());
    }
    let signal = Signal::catch()?;
    let mut screen = Screen::open(sort)?;
    let mut refreshed = Instant::now();
    screen.show(&peers)?;
    while !signal.has_arrived() && screen.handle_keys(&peers)? {
        std::thread::sleep(POLL);
        if refreshed.elapsed() >= REFRESH_INTERVAL {
            screen.view.notice = peers.refresh(address).err();
            refreshed = Instant::now();
            screen.show(&peers)?;
        }
    }
    Ok(())
}

/// Fetches `/peers`; returns the text and the parsed JSON.
fn fetch<T: DeserializeOwned>(address: &HostPort) -> Result<(String, T), String> {
    let fetched = address.resolve().map_err(io::Error::other);
    let fetched = fetched.and_then(|addresses| {
        let text = fetch_from(&addresses)?;
        let value = serde_json::from_str(&text)?;
        Ok((text, value))
    });
    fetched.map_err(|error| {
        format!(
            "cannot read peers from {address}: {error}; is a gateway running with --http {address}?"
        )
    })
}

/// Fetches `/peers` from the first of `addresses` that accepts the connection.
fn fetch_from(addresses: &[SocketAddr]) -> io::Result<String> {
    let end = Instant::now() + ANSWER_LIMIT;
    let mut connected = Err(timed_out());
    for (place, address) in addresses.iter().enumerate() {
        // An address that does not answer leaves time for the next ones.
        let share = time_left(end)? / (addresses.len() - place) as u32;
        connected = TcpStream::connect_timeout(address, share);
        if connected.is_ok() {
            break;
        }
    }
    let mut stream = connected?;
    // An address, because the server need not know its name.
    let peer = stream.peer_addr()?;
    // Without the scope of an IPv6 address.
    let host = SocketAddr::new(peer.ip(), peer.port());
    // In one write: a server that answers the first packet and closes would reset the connection.
    let request = format!("GET /peers HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let (mut answer, mut piece) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        stream.set_read_timeout(Some(time_left(end)?))?;
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => answer.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(timed_out()),
            Err(error) => return Err(error),
        }
        if answer.len() > MAX_ANSWER {
            return Err(io::Error::other("the answer is too long"));
        }
    }
    let answer = String::from_utf8(answer).map_err(io::Error::other)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200 ") => Ok(body.to_owned()),
        _ => {
            let line = answer.lines().next().unwrap_or_default();
            let line = printable(&line.as_bytes()[..line.len().min(80)]);
            Err(io::Error::other(format!("got the answer {line:?}")))
        }
    }
}

/// The time left until `end`.
fn time_left(end: Instant) -> io::Result<Duration> {
    match end.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(timed_out()),
        left => Ok(left),
    }
}

fn timed_out() -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        format!(
            "no complete answer within {} seconds",
            ANSWER_LIMIT.as_secs()
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(id: u64, age_s: f64, cpu_us: u64, messages: u64) -> PeerJson {
        let direction = |messages: u64| {
            let bytes = messages * 100;
            serde_json::json!({"bytes": bytes, "messages": messages, "types": {}})
        };
        let json = serde_json::json!({"id": id, "address": format!("192.0.2.{id}:8333"),
            "direction": "inbound", "transport": "v2", "session_id": null, "decoys": 0, "age_s": age_s,
            "cpu_us": cpu_us, "received": direction(messages), "sent": direction(2 * messages)});
        serde_json::from_value(json).unwrap()
    }

    /// Sends the same bytes to every client, piece by piece.
    fn serve(pieces: impl Iterator<Item = Vec<u8>> + Clone + Send + 'static) -> HostPort {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, pieces) = (stream.unwrap(), pieces.clone());
                std::thread::spawn(move || {
                    let _ = stream.read(&mut [0; 1000]);
                    for piece in pieces {
                        if stream.write_all(&piece).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        address.to_string().parse().unwrap()
    }

    fn error(pieces: impl Iterator<Item = Vec<u8>> + Clone + Send + 'static) -> String {
        fetch::<serde_json::Value>(&serve(pieces)).unwrap_err()
    }

    /// Whatever answers, time and memory are limited.
    #[test]
    fn time_and_length_of_an_answer_are_limited() {
        let begun = Instant::now();
        let slowly = std::iter::repeat_with(|| {
            std::thread::sleep(ANSWER_LIMIT / 20);
            vec![b' ']
        });
        let late = error(slowly);
        assert!(
            late.contains("no complete answer within 10 seconds"),
            "{late}"
        );
        assert!(begun.elapsed() < 2 * ANSWER_LIMIT);
        let much = error(std::iter::repeat_with(|| vec![b' '; 1 << 20]));
        assert!(much.contains("the answer is too long"), "{much}");
        let other = error(std::iter::once(b"SSH-2.0-x\x1b[2J\r\n".to_vec()));
        assert!(
            other.contains(r#"got the answer "SSH-2.0-x\\x1b[2J""#),
            "{other}"
        );
        let torn = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[{\"id\"".to_vec();
        let torn = error(std::iter::once(torn));
        assert!(torn.contains("EOF while parsing"), "{torn}");
        let nobody = fetch::<serde_json::Value>(&"no.such.name.invalid:1".parse().unwrap());
        let nobody = nobody.unwrap_err();
        assert!(nobody.contains("cannot resolve"), "{nobody}");
    }

    #[test]
    fn rates_since_the_start_and_since_the_last_refresh() {
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
