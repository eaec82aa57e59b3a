//! `peers watch --prometheus`: the figures as metrics in Prometheus's text format.

use crate::args::HostPort;
use crate::http::{METRICS_TYPE, Page, Server, Text, head, label, metric};
use crate::sync::lock;
use crate::terminal::cannot_listen;
use packetlane::bitcoin::message::MessageType;
use packetlane_peers::tally::{OTHER_TYPE, Peer, Seen, Slot, Tally, TypeCost};
use packetlane_peers::{Network, Transport};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

/// Serves the latest figures.
pub(super) struct Metrics {
    text: Arc<Mutex<String>>,
    server: Server,
    /// Number of peers with series of their own: those that cost most.
    peers: usize,
}

impl Metrics {
    /// Listens at the first usable address that `address` resolves to. The `peers` that cost most
    /// have series of their own.
    pub(super) fn serve(address: &HostPort, peers: usize) -> Result<Self, String> {
        let text = Arc::new(Mutex::new(render(&Tally::new(), peers)));
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
            peers,
        })
    }

    /// The address it listens at.
    pub(super) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Replaces the figures that are served.
    pub(super) fn set(&self, tally: &Tally) {
        *lock(&self.text) = render(tally, self.peers);
    }
}

/// Renders all metrics, with series of their own for the `max_peers` that cost most.
fn render(tally: &Tally, max_peers: usize) -> String {
    let mut out = String::new();
    let mut peers: Vec<(i64, &Peer)> = tally.peers().collect();
    peers.retain(|(_, peer)| peer.gone().is_none());
    let all = peers.len();
    let cost = |peer: &Peer| (peer.seen.cpu_ns(), peer.seen.received.bytes);
    peers.sort_by_key(|(_, peer)| std::cmp::Reverse(cost(peer)));
    peers.truncate(max_peers);

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

    kinds(&mut out, tally);
    // The RPC sees none.
    if tally.windows() == 0 || tally.counted() {
        blocks(&mut out, tally);
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
            let labels = format!("peer=\"{number}\"");
            figures(peer).write(&mut out, name, &labels);
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

/// Renders the sums by kind of connection, over all peers. All kinds are there from the start.
fn kinds(out: &mut String, tally: &Tally) {
    let mut connected = BTreeMap::new();
    for (_, peer) in tally.peers().filter(|(_, peer)| peer.gone().is_none()) {
        *connected.entry(peer.slot).or_insert(0) += 1;
    }
    let none = Seen::default();
    let seen = |slot: Slot| tally.kinds().get(&slot).unwrap_or(&none);
    let mut each = |name: &str, kind: &str, help: &str, figures: &dyn Fn(Slot) -> Figures| {
        *out += &head(name, kind, help);
        for slot in Slot::ALL {
            let labels = format!("connection=\"{}\"", slot.name());
            figures(slot).write(out, name, &labels);
        }
    };
    each(
        "packetlane_kind_peers",
        "gauge",
        "Connected peers, by kind of connection.",
        &|slot| Figures::One(connected.get(&slot).copied().unwrap_or(0).into()),
    );
    each(
        "packetlane_kind_observed_seconds_total",
        "counter",
        "Observed time, summed over the peers of a kind.",
        &|slot| Figures::One(seen(slot).observed as f64 / 1e6),
    );
    // Counters are there before it is known what the source measures.
    let is_unknown = tally.kinds().is_empty();
    if tally.timed() || is_unknown {
        each(
            "packetlane_kind_cpu_seconds_total",
            "counter",
            "CPU time of the message thread for all peers of a kind.",
            &|slot| {
                let [received, sent] = [seen(slot).receiving, seen(slot).sending]
                    .map(|calls| calls.cost.cpu_ns as f64 / 1e9);
                Figures::Directions(received, sent)
            },
        );
    }
    if tally.counted() || is_unknown {
        each(
            "packetlane_kind_messages_total",
            "counter",
            "Messages received from and sent to all peers of a kind.",
            &|slot| {
                let (received, sent) = (seen(slot).received.count, seen(slot).sent.count);
                Figures::Directions(received as f64, sent as f64)
            },
        );
    }
    each(
        "packetlane_kind_bytes_total",
        "counter",
        "Bytes of messages received from and sent to all peers of a kind.",
        &|slot| {
            let (received, sent) = (seen(slot).received.bytes, seen(slot).sent.bytes);
            Figures::Directions(received as f64, sent as f64)
        },
    );
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

/// Blocks, which are seen between windows, too.
fn blocks(out: &mut String, tally: &Tally) {
    let now = tally.times().map_or(0, |(_, now)| now);
    let stalling = tally.blocks().stalling(now);
    let sums = tally.blocks().sums();
    let seconds = |us: f64| us / 1e6;
    for (name, kind, help, value) in [
        (
            "packetlane_blocks_connected_total",
            "counter",
            "Blocks that the node connected. All block metrics cover all of the time, not only the \
             observed time.",
            sums.connected as f64,
        ),
        (
            "packetlane_blocks_compact_total",
            "counter",
            "Of these, blocks that came as cmpctblock.",
            sums.compact as f64,
        ),
        (
            "packetlane_blocks_complete_total",
            "counter",
            "Of these, blocks that lacked no transaction.",
            sums.complete as f64,
        ),
        (
            "packetlane_blocks_missing_transactions_total",
            "counter",
            "Transactions that the other compact blocks lacked.",
            sums.missing as f64,
        ),
        (
            "packetlane_block_stalls_total",
            "counter",
            "Requests for blocks that were unanswered for more than 10 s, and have ended.",
            sums.stalls as f64,
        ),
        (
            "packetlane_block_stalled_seconds_total",
            "counter",
            "Time that these requests were unanswered.",
            seconds(sums.stalled as f64),
        ),
        (
            "packetlane_blocks_stalling",
            "gauge",
            "Requests for blocks that are unanswered for more than 10 s.",
            stalling.len() as f64,
        ),
    ] {
        *out += &metric(name, kind, help, value);
    }
    let took = "packetlane_blocks_took_seconds";
    let sum = seconds(sums.took.mean() * sums.took.count() as f64);
    let help = "Time from the first announcement of a block until it was connected.";
    *out += &head(took, "summary", help);
    let _ = writeln!(out, "{took}_sum {sum}\n{took}_count {}", sums.took.count());
}

enum Figures {
    One(f64),
    /// Received and sent, or for receiving and for sending.
    Directions(f64, f64),
}

impl Figures {
    /// Writes the series with these labels.
    fn write(self, out: &mut String, name: &str, labels: &str) {
        // Writing to a String cannot fail.
        let _ = match self {
            Self::One(value) => writeln!(out, "{name}{{{labels}}} {value}"),
            Self::Directions(received, sent) => writeln!(
                out,
                "{name}{{{labels},direction=\"received\"}} {received}\n\
                 {name}{{{labels},direction=\"sent\"}} {sent}"
            ),
        };
    }
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
                    added: None,
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
            event: Event::Thread {
                name: "b-msghand".to_owned(),
                cpu_ns: 5_000_000,
            },
        });
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
        let mut typed = BTreeMap::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(matches!(kind, "counter" | "gauge" | "summary"), "{line}");
                let before = typed.insert(name.to_owned(), kind.to_owned());
                assert_eq!(before, None, "twice: {line}");
                continue;
            }
            if line.starts_with("# HELP ") {
                continue;
            }
            let end = line.find(['{', ' ']).unwrap();
            let (name, mut rest) = line.split_at(end);
            // A summary has a sum and a count.
            let ending = ["_sum", "_count"];
            let base = ending.iter().find_map(|ending| name.strip_suffix(ending));
            let kind = |name: &str| typed.get(name).map(String::as_str);
            let is_typed = kind(name).is_some() || base.and_then(kind) == Some("summary");
            assert!(is_typed, "no type: {line}");
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
        let metrics = Metrics::serve(&"localhost:0".parse().unwrap(), 20).unwrap();
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
        let taken = Metrics::serve(&taken, 20).map(|_| ()).unwrap_err();
        assert!(
            taken.contains("--prometheus: cannot listen on 127.0.0.1"),
            "{taken}"
        );
    }

    /// They are served before anything has happened, and rendered before there is a message of a
    /// type.
    #[test]
    fn counters_are_there_from_the_start() {
        let metrics = Metrics::serve(&"127.0.0.1:0".parse().unwrap(), 20).unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let answer = ask(metrics.address(), request);
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let all = [parse(body), parse(&render(&tally(1), 20))];
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

    /// The board, the alerts and the guide ask for metrics that there are.
    #[test]
    fn dashboards_show_what_there_is() {
        let series = parse(&render(&tally(1), 20));
        let there: Vec<_> = series.keys().map(|(name, _)| name.as_str()).collect();
        let repository = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for file in [
            "ops/grafana-peers.json",
            "ops/alerts.yml",
            "ops/alerts_test.yml",
            "docs/guide/peers-data.md",
        ] {
            let text = std::fs::read_to_string(repository.join(file)).unwrap();
            let is_of_name = |letter: char| letter.is_ascii_lowercase() || letter == '_';
            let shown = text.match_indices("packetlane_").map(|(at, _)| {
                let name = &text[at..];
                &name[..name
                    .find(|letter| !is_of_name(letter))
                    .unwrap_or(name.len())]
            });
            let of_gateway = "packetlane_gateway_";
            // A stream in NATS, and a crate.
            let others = ["packetlane_peers"];
            let shown =
                shown.filter(|name| !name.starts_with(of_gateway) && !others.contains(name));
            let shown: Vec<_> = shown.collect();
            assert!(!shown.is_empty(), "{file}");
            for name in shown {
                assert!(there.contains(&name), "{file}: {name} is not in {there:?}");
            }
        }
    }

    /// The costliest have series of their own; the sums by kind cover all.
    #[test]
    fn many_peers() {
        for max_peers in [0, 1, 20] {
            let series = parse(&render(&tally(120), max_peers));
            assert_eq!(get(&series, "packetlane_peers", &[]), 120.0);
            for (name, of_each) in [
                ("packetlane_peer_info", 1),
                ("packetlane_peer_cpu_seconds_total", 2),
                ("packetlane_peer_bytes_total", 2),
            ] {
                let found = series.keys().filter(|(found, _)| found == name);
                assert_eq!(found.count(), of_each * max_peers, "{name}");
            }
            let of_peers = series
                .keys()
                .filter(|(_, labels)| labels.iter().any(|(key, _)| key == "peer"));
            // As the help of --prometheus-peers says.
            assert_eq!(of_peers.count(), 9 * max_peers);
            let kind = ("connection", "kind unknown");
            assert_eq!(get(&series, "packetlane_kind_peers", &[kind]), 120.0);
            let labels = [kind, ("direction", "received")];
            let messages = get(&series, "packetlane_kind_messages_total", &labels);
            assert_eq!(messages, 120.0);
            let cpu = get(&series, "packetlane_kind_cpu_seconds_total", &labels);
            assert!((cpu - 120.0 * 0.0015).abs() < 1e-9, "{cpu}");
        }
    }

    #[test]
    fn all_kinds_are_there_from_the_start() {
        for series in [
            parse(&render(&Tally::new(), 20)),
            parse(&render(&tally(1), 20)),
        ] {
            for slot in Slot::ALL.into_iter().filter(|slot| *slot != Slot::Unknown) {
                let kind = ("connection", slot.name());
                assert_eq!(get(&series, "packetlane_kind_peers", &[kind]), 0.0);
                for name in ["cpu_seconds", "messages", "bytes"] {
                    for direction in ["received", "sent"] {
                        let labels = [kind, ("direction", direction)];
                        let name = format!("packetlane_kind_{name}_total");
                        assert_eq!(get(&series, &name, &labels), 0.0);
                    }
                }
            }
        }
    }
}
