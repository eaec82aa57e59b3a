//! `peers watch --prometheus`: the figures as metrics in Prometheus's text format.

use crate::args::HostPort;
use crate::http::{METRICS_TYPE, Page, Server, Text, head, label, metric};
use crate::sync::lock;
use crate::terminal::cannot_listen;
use packetlane::bitcoin::message::MessageType;
use packetlane_peers::tally::{OTHER_TYPE, Peer, Tally, TypeCost};
use packetlane_peers::{Network, Transport};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

/// Maximum peers with series of their own: those that cost most. A node has 200 at most by default.
const MAX_PEERS: usize = 500;

/// Serves the latest figures.
pub(super) struct Metrics {
    text: Arc<Mutex<String>>,
    server: Server,
}

impl Metrics {
    /// Listens at the first usable address that `address` resolves to.
    pub(super) fn serve(address: &HostPort) -> Result<Self, String> {
        let text = Arc::new(Mutex::new(render(&Tally::new())));
        let served = Arc::clone(&text);
        let page = move |path: &str| {
            let text = lock(&served);
            (path == "/metrics").then(|| Page {
                content_type: METRICS_TYPE,
                text: Text::Ready(text.clone()),
                is_private: false,
            })
        };
        let server = TcpListener::bind(&address.resolve()?[..])
            .and_then(|listener| Server::start(listener, address.host(), page));
        let failed = |error| format!("--prometheus: {}", cannot_listen(address, &error));
        Ok(Self {
            text,
            server: server.map_err(failed)?,
        })
    }

    /// The address it listens at.
    pub(super) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Replaces the figures that are served.
    pub(super) fn set(&self, tally: &Tally) {
        *lock(&self.text) = render(tally);
    }
}

/// Renders all metrics.
fn render(tally: &Tally) -> String {
    let mut out = String::new();
    let mut peers: Vec<(i64, &Peer)> = tally.peers().collect();
    peers.retain(|(_, peer)| peer.gone().is_none());
    let all = peers.len();
    let cost = |peer: &Peer| (peer.seen.cpu_ns(), peer.seen.received.bytes);
    peers.sort_by_key(|(_, peer)| std::cmp::Reverse(cost(peer)));
    peers.truncate(MAX_PEERS);

    out += &metric("packetlane_peers", "gauge", "Connected peers.", all);
    out += &metric(
        "packetlane_observed_seconds_total",
        "counter",
        "Observed time. All other times and counts cover only this time: divide their rate by \
         the rate of this metric.",
        tally.observed(),
    );
    out += &metric(
        "packetlane_events_lost_total",
        "counter",
        "Events lost by the source.",
        tally.lost(),
    );
    if !tally.threads().is_empty() {
        out += &head(
            "packetlane_thread_cpu_seconds_total",
            "counter",
            "CPU time of the node's threads, by their CPU clocks.",
        );
    }
    for (name, thread) in tally.threads() {
        let _ = writeln!(
            out,
            "packetlane_thread_cpu_seconds_total{{thread=\"{}\"}} {}",
            label(name),
            thread.cpu_ns as f64 / 1e9
        );
    }
    if tally.timed()
        && let Some(thread) = tally.message_thread()
    {
        out += &metric(
            "packetlane_probes_cpu_seconds_total",
            "counter",
            "CPU time of the message thread caused by probes; not included in its other metrics.",
            thread.probes_ns as f64 / 1e9,
        );
        out += &metric(
            "packetlane_loop_cpu_seconds_total",
            "counter",
            "CPU time of the message thread's main loop: waiting, waking up, iterating over peers.",
            thread.loop_ns as f64 / 1e9,
        );
        let connected = tally.peers().filter(|(_, peer)| peer.gone().is_none());
        let connected_ns: u64 = connected.map(|(_, peer)| peer.seen.cpu_ns()).sum();
        out += &metric(
            "packetlane_left_peers_cpu_seconds_total",
            "counter",
            "CPU time of the message thread for peers that have left, which have no series.",
            thread.peers_ns.saturating_sub(connected_ns) as f64 / 1e9,
        );
        out += &metric(
            "packetlane_unaccounted_cpu_seconds",
            "gauge",
            "CPU time of the message thread so far that is attributed to neither peers nor its main \
             loop.",
            thread.unaccounted_ns() as f64 / 1e9,
        );
    }

    out += &head(
        "packetlane_peer_info",
        "gauge",
        "Properties of a peer, to be joined by the label peer.",
    );
    for (number, peer) in &peers {
        let known = peer.connection.as_ref();
        let _ = writeln!(
            out,
            "packetlane_peer_info{{peer=\"{number}\",address=\"{}\",connection=\"{}\",\
             network=\"{}\",transport=\"{}\"}} 1",
            label(known.map_or("", |known| &known.address)),
            peer.slot.name(),
            known
                .and_then(|known| known.network)
                .map_or("", Network::name),
            known
                .and_then(|known| known.transport)
                .map_or("", Transport::name),
        );
    }
    let mut each = |name: &str, kind: &str, help: &str, figures: &dyn Fn(&Peer) -> Figures| {
        out += &head(name, kind, help);
        for (number, peer) in &peers {
            match figures(peer) {
                Figures::One(value) => {
                    let _ = writeln!(out, "{name}{{peer=\"{number}\"}} {value}");
                }
                Figures::Directions(received, sent) => {
                    for (direction, value) in [("received", received), ("sent", sent)] {
                        let _ = writeln!(
                            out,
                            "{name}{{peer=\"{number}\",direction=\"{direction}\"}} {value}"
                        );
                    }
                }
            }
        }
    };
    each(
        "packetlane_peer_since_seconds",
        "gauge",
        "When the connection was made or first seen, in seconds since 1970.",
        &|peer| Figures::One(peer.since as f64 / 1e6),
    );
    each(
        "packetlane_peer_observed_seconds_total",
        "counter",
        "Observed time of the peer.",
        &|peer| Figures::One(peer.seen.observed as f64 / 1e6),
    );
    if tally.timed() {
        each(
            "packetlane_peer_cpu_seconds_total",
            "counter",
            "CPU time of the message thread for the peer.",
            &|peer| {
                let [received, sent] = [peer.seen.receiving, peer.seen.sending]
                    .map(|calls| calls.cost.cpu_ns as f64 / 1e9);
                Figures::Directions(received, sent)
            },
        );
    }
    if tally.counted() {
        each(
            "packetlane_peer_messages_total",
            "counter",
            "Messages received and sent.",
            &|peer| {
                let (received, sent) = (peer.seen.received.count, peer.seen.sent.count);
                Figures::Directions(received as f64, sent as f64)
            },
        );
    }
    each(
        "packetlane_peer_bytes_total",
        "counter",
        "Bytes of messages received and sent.",
        &|peer| {
            let (received, sent) = (peer.seen.received.bytes, peer.seen.sent.bytes);
            Figures::Directions(received as f64, sent as f64)
        },
    );

    // The tally limits the number of types.
    let [received, sent] = [tally.received(|_| true), tally.sent(|_| true)].map(with_known);
    let types = [("received", &received), ("sent", &sent)];
    out += &head(
        "packetlane_message_bytes_total",
        "counter",
        "Bytes of messages, by type.",
    );
    for (direction, costs) in types {
        for (name, cost) in costs {
            let _ = writeln!(
                out,
                "packetlane_message_bytes_total{{type=\"{}\",direction=\"{direction}\"}} {}",
                label(name),
                cost.messages.bytes
            );
        }
    }
    if tally.timed() {
        out += &head(
            "packetlane_message_cpu_seconds_total",
            "counter",
            "CPU time for processing received messages, by type.",
        );
        for (name, cost) in &received {
            let _ = writeln!(
                out,
                "packetlane_message_cpu_seconds_total{{type=\"{}\"}} {}",
                label(name),
                cost.processed.cost.cpu_ns as f64 / 1e9
            );
        }
    }
    out
}

/// Adds the types that have not appeared yet, and the one for types above the limit: `increase()`
/// misses the first event of a counter that appears with it.
fn with_known(mut costs: BTreeMap<&str, TypeCost>) -> BTreeMap<&str, TypeCost> {
    let known = MessageType::known().iter().map(MessageType::name);
    for name in known.chain([OTHER_TYPE]) {
        costs.entry(name).or_default();
    }
    costs
}

enum Figures {
    One(f64),
    /// Received and sent, or for receiving and for sending.
    Directions(f64, f64),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::tests::ask;
    use packetlane_peers::{Calls, Cost, Event, Record};

    fn tally(peers: i64) -> Tally {
        let mut tally = Tally::new();
        let calls = Calls {
            count: 1,
            cost: Cost {
                wall_ns: 2_000_000,
                cpu_ns: 1_500_000,
            },
        };
        for peer in 0..peers {
            for event in [
                Event::Received {
                    peer,
                    message_type: "a\"b\\c\nd".to_owned(),
                    bytes: 10,
                    cost: Some(calls.cost),
                },
                Event::Calls {
                    peer,
                    receiving: calls,
                    sending: calls,
                },
            ] {
                tally.add(&Record {
                    time: 1_500_000,
                    event,
                });
            }
        }
        tally.add(&Record {
            time: 2_000_000,
            event: Event::Window {
                start: 1_000_000,
                lost: 0,
                probes_ns: 2_000_000,
                stolen_ns: 0,
            },
        });
        tally
    }

    /// Values by name and labels.
    type All = BTreeMap<(String, Vec<(String, String)>), f64>;

    /// Parses series and values, like Prometheus.
    fn parse(text: &str) -> All {
        let mut series = BTreeMap::new();
        let mut typed = std::collections::BTreeSet::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(matches!(kind, "counter" | "gauge"), "{line}");
                assert!(typed.insert(name.to_owned()), "twice: {line}");
                continue;
            }
            if line.starts_with("# HELP ") {
                continue;
            }
            let end = line.find(['{', ' ']).unwrap();
            let (name, mut rest) = line.split_at(end);
            assert!(typed.contains(name), "no type: {line}");
            let mut labels = Vec::new();
            if let Some(mut inside) = rest.strip_prefix('{') {
                while !inside.starts_with('}') {
                    let (key, value) = inside.split_once("=\"").unwrap();
                    let mut unescaped = String::new();
                    let mut letters = value.char_indices();
                    let end = loop {
                        match letters.next().expect("an end of the label") {
                            (place, '"') => break place + 1,
                            (_, '\\') => unescaped.push(match letters.next().unwrap().1 {
                                'n' => '\n',
                                other => other,
                            }),
                            (_, letter) => unescaped.push(letter),
                        }
                    };
                    labels.push((key.to_owned(), unescaped));
                    inside = value[end..].trim_start_matches(',');
                }
                rest = &inside[1..];
            }
            let value = rest.trim().parse().unwrap();
            assert!(
                series.insert((name.to_owned(), labels), value).is_none(),
                "{line}"
            );
        }
        series
    }

    fn get(series: &All, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        series[&(name.to_owned(), labels.collect())]
    }

    #[test]
    fn what_is_served() {
        let metrics = Metrics::serve(&"localhost:0".parse().unwrap()).unwrap();
        metrics.set(&tally(3));
        let answer = ask(
            metrics.address(),
            "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
        );
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(
            head.contains(&format!("content-length: {}", body.len())),
            "{head}"
        );
        let series = parse(body);
        assert_eq!(get(&series, "packetlane_peers", &[]), 3.0);
        assert_eq!(get(&series, "packetlane_observed_seconds_total", &[]), 1.0);
        let cpu = "packetlane_peer_cpu_seconds_total";
        assert_eq!(
            get(&series, cpu, &[("peer", "2"), ("direction", "sent")]),
            0.0015
        );
        let messages = "packetlane_peer_messages_total";
        assert_eq!(
            get(
                &series,
                messages,
                &[("peer", "0"), ("direction", "received")]
            ),
            1.0
        );
        let kind = ("type", "a\"b\\c\nd");
        let bytes = get(
            &series,
            "packetlane_message_bytes_total",
            &[kind, ("direction", "received")],
        );
        assert_eq!(bytes, 30.0);
        assert_eq!(
            get(&series, "packetlane_message_cpu_seconds_total", &[kind]),
            0.0045
        );

        let taken = metrics.address().to_string().parse().unwrap();
        let taken = Metrics::serve(&taken).map(|_| ()).unwrap_err();
        assert!(
            taken.contains("--prometheus: cannot listen on 127.0.0.1"),
            "{taken}"
        );
    }

    /// They are served before anything has happened, and rendered before there is a message of a
    /// type.
    #[test]
    fn counters_are_there_from_the_start() {
        let metrics = Metrics::serve(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let answer = ask(metrics.address(), request);
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let all = [parse(body), parse(&render(&tally(1)))];
        for direction in ["received", "sent"] {
            for name in ["tx", "version", "feature", OTHER_TYPE] {
                let labels = [("type", name), ("direction", direction)];
                for series in &all {
                    assert_eq!(get(series, "packetlane_message_bytes_total", &labels), 0.0);
                }
            }
        }
        let cpu = "packetlane_message_cpu_seconds_total";
        assert_eq!(get(&all[1], cpu, &[("type", "tx")]), 0.0);
    }

    #[test]
    fn many_peers() {
        let series = parse(&render(&tally(MAX_PEERS as i64 + 100)));
        assert_eq!(
            get(&series, "packetlane_peers", &[]),
            MAX_PEERS as f64 + 100.0
        );
        let infos = series
            .keys()
            .filter(|(name, _)| name == "packetlane_peer_info");
        assert_eq!(infos.count(), MAX_PEERS);
        assert!(series.len() < 10 * MAX_PEERS + 100);
    }
}
