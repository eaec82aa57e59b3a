//! What a running gateway serves over HTTP: metrics, health and peers.

use crate::http::{METRICS_TYPE, Page, Text, head, label, metric};
use crate::report::hex;
use crate::sync::{lock, read};
use packetlane::bip324::shape::Shaped;
use packetlane_gateway::{
    Close, Direction, Event, Gateway, NodeState, Peer, Refusal, Traffic, Transport, Turns,
    TypeCount,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, RwLock};
use tracing_appender::non_blocking::ErrorCounter;

/// Counts of peer events.
#[derive(Debug)]
pub(super) struct Counts {
    inner: Mutex<Inner>,
    /// Counts log lines that were dropped.
    lost_lines: ErrorCounter,
}

#[derive(Debug)]
struct Inner {
    /// By direction and transport.
    connected: BTreeMap<(&'static str, &'static str), u64>,
    fell_back: u64,
    /// By direction and limit.
    refused: BTreeMap<(&'static str, &'static str), u64>,
    /// By direction and cause.
    closed: BTreeMap<(&'static str, &'static str), u64>,
    /// Events that were dropped instead of published.
    dropped_events: u64,
}

impl Counts {
    /// Starts every counter at zero: `increase()` misses the first event of a counter that appears
    /// with it.
    pub(super) fn new(lost_lines: ErrorCounter) -> Self {
        let connected =
            by_direction(Transport::NAMES).filter(|(_, name)| *name != Transport::Unknown.name());
        Self {
            inner: Mutex::new(Inner {
                connected: connected.map(|kind| (kind, 0)).collect(),
                fell_back: 0,
                refused: by_direction(Refusal::NAMES).map(|kind| (kind, 0)).collect(),
                closed: by_direction(Close::NAMES).map(|kind| (kind, 0)).collect(),
                dropped_events: 0,
            }),
            lost_lines,
        }
    }

    pub(super) fn drop_event(&self) {
        let mut inner = lock(&self.inner);
        inner.dropped_events += 1;
    }

    pub(super) fn count(&self, peer: &Peer, event: &Event) {
        let mut inner = lock(&self.inner);
        let inner = &mut *inner;
        let (counts, name) = match event {
            Event::Connected => (&mut inner.connected, peer.transport.name()),
            Event::Refused(refusal) => (&mut inner.refused, refusal.name()),
            Event::Closed(close) => (&mut inner.closed, close.name()),
            Event::FellBack => {
                inner.fell_back += 1;
                return;
            }
            _ => return,
        };
        *counts.entry((peer.direction.name(), name)).or_default() += 1;
    }
}

/// Each of the names, inbound and outbound.
fn by_direction(
    names: &'static [&'static str],
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let with = move |direction| names.iter().map(move |&name| (direction, name));
    Direction::NAMES.iter().copied().flat_map(with)
}

/// Writes numbers by direction and by one more label.
fn write_by_direction(
    out: &mut String,
    name: &str,
    label: &str,
    numbers: &BTreeMap<(&str, &str), u64>,
) {
    for ((direction, value), number) in numbers {
        let _ = writeln!(
            out,
            "packetlane_gateway_{name}{{direction=\"{direction}\",{label}=\"{value}\"}} {number}"
        );
    }
}

/// The name of a message type, or "(others)" for the types that are not counted by name.
fn type_name(count: &TypeCount) -> &str {
    let message_type = count.message_type.as_ref();
    message_type.map_or("(others)", |message_type| message_type.name())
}

/// A peer at `/peers`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PeerJson {
    pub(super) id: u64,
    pub(super) address: String,
    /// Missing in the answer of an older gateway.
    #[serde(default)]
    pub(super) node_address: Option<String>,
    pub(super) direction: String,
    pub(super) transport: String,
    session_id: Option<String>,
    decoys: u64,
    pub(super) age_s: f64,
    pub(super) cpu_us: u64,
    pub(super) received: TrafficJson,
    pub(super) sent: TrafficJson,
    /// Missing in the answer of an older gateway.
    #[serde(default)]
    shaped: ShapedJson,
}

/// What shaping added to what a peer was sent, at `/peers`.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ShapedJson {
    decoys: u64,
    decoy_bytes: u64,
    /// Flights that were not padded because the budget was spent.
    unpadded: u64,
    max_delay_us: u64,
    /// The sum over all bytes.
    delay_byte_seconds: f64,
}

impl From<&Shaped> for ShapedJson {
    fn from(shaped: &Shaped) -> Self {
        Self {
            decoys: shaped.decoys,
            decoy_bytes: shaped.decoy_bytes,
            unpadded: shaped.unpadded,
            max_delay_us: shaped.max_delay.as_micros() as u64,
            delay_byte_seconds: shaped.delay.as_secs_f64(),
        }
    }
}

/// Traffic in one direction, at `/peers`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TrafficJson {
    pub(super) bytes: u64,
    pub(super) messages: u64,
    /// Missing in the answer of an older gateway.
    #[serde(default)]
    ignored: u64,
    types: BTreeMap<String, [u64; 2]>,
}

impl From<&Traffic> for TrafficJson {
    fn from(traffic: &Traffic) -> Self {
        let types = traffic.types.iter().map(|count| {
            let name = type_name(count).to_owned();
            (name, [count.messages, count.bytes])
        });
        Self {
            bytes: traffic.bytes,
            messages: traffic.messages(),
            ignored: traffic.ignored,
            types: types.collect(),
        }
    }
}

impl From<&Peer> for PeerJson {
    fn from(peer: &Peer) -> Self {
        Self {
            id: peer.id,
            address: peer.address.to_string(),
            node_address: peer.node_address.map(|address| address.to_string()),
            direction: peer.direction.name().into(),
            transport: peer.transport.name().into(),
            session_id: peer.session_id.map(|id| hex(&id)),
            decoys: peer.decoys,
            age_s: peer.age.as_secs_f64(),
            cpu_us: peer.account.cpu.as_micros() as u64,
            received: (&peer.account.received).into(),
            sent: (&peer.account.sent).into(),
            shaped: (&peer.account.shaped).into(),
        }
    }
}

/// The page at `path`.
pub(super) fn page(
    path: &str,
    gateway: &Arc<RwLock<Gateway>>,
    counts: &Arc<Counts>,
) -> Option<Page> {
    let (gateway, counts) = (Arc::clone(gateway), Arc::clone(counts));
    let (content_type, text) = match path {
        // Asks no thread of the gateway, and does not wait while settings change. Tries the node
        // unless it accepted the last peer.
        "/healthz" => match gateway.try_read() {
            Ok(gateway) if gateway.has_ended() => return None,
            Ok(gateway) if gateway.nodes().iter().any(|node| *node != NodeState::Up) => {
                let check = gateway.check_nodes();
                let make = move || match check() {
                    false => Err("the node does not answer"),
                    true => Ok("ok\n".to_owned()),
                };
                ("text/plain", Text::Slow(Box::new(make)))
            }
            _ => ("text/plain", Text::Ready("ok\n".to_owned())),
        },
        "/metrics" => {
            let make = move || {
                let gateway = read(&gateway);
                Ok(metrics(&gateway, &counts))
            };
            (METRICS_TYPE, Text::Slow(Box::new(make)))
        }
        "/peers" => {
            let make = move || {
                let peers: Vec<PeerJson> =
                    read(&gateway).peers().iter().map(PeerJson::from).collect();
                serde_json::to_string(&peers).map_err(|_| "the page cannot be made")
            };
            ("application/json", Text::Slow(Box::new(make)))
        }
        _ => return None,
    };
    Some(Page {
        content_type,
        text,
        is_private: path == "/peers",
    })
}

/// Renders all metrics.
fn metrics(gateway: &Gateway, counts: &Counts) -> String {
    let (peers, turns) = (gateway.peers(), gateway.turns());
    let mut out = String::new();
    let settings = gateway.settings();
    out += &head(
        "packetlane_gateway_node_up",
        "gauge",
        "Whether the node accepted the last connection. 0 before the first connection, unless \
         /healthz has tried it.",
    );
    for (listener, state) in settings.inbound.iter().zip(gateway.nodes()) {
        let _ = writeln!(
            out,
            "packetlane_gateway_node_up{{listen=\"{}\",node=\"{}\"}} {}",
            listener.listen,
            listener.node,
            u8::from(state == NodeState::Up),
        );
    }
    out += &head(
        "packetlane_gateway_build_info",
        "gauge",
        "Always 1. The version, and the instruction set of the kernels.",
    );
    let _ = writeln!(
        out,
        "packetlane_gateway_build_info{{version=\"{}\",backend=\"{}\"}} 1",
        env!("CARGO_PKG_VERSION"),
        settings.engine.backend().name(),
    );
    let (usage, limits) = (gateway.usage(), &settings.limits);
    for (name, help, value) in [
        (
            "half_open",
            "Inbound connections whose handshake is not done.",
            usage.half_open,
        ),
        ("half_open_limit", "--half-open.", limits.half_open),
        (
            "connections_limit",
            "--connections, as far as files allow.",
            limits.connections,
        ),
        (
            "outbound_connections_limit",
            "--outbound-connections, as far as files allow.",
            limits.outbound_connections,
        ),
        (
            "memory_bytes",
            "Bytes queued in inbound connections.",
            usage.memory,
        ),
        ("memory_limit_bytes", "--memory.", limits.memory),
        (
            "outbound_memory_bytes",
            "Bytes queued in the node's own connections.",
            usage.outbound_memory,
        ),
        (
            "outbound_memory_limit_bytes",
            "--outbound-memory.",
            limits.outbound_memory,
        ),
        (
            "remembered_peers",
            "Peers remembered as speaking v1 only.",
            usage.known_v1,
        ),
    ] {
        out += &metric(
            &format!("packetlane_gateway_{name}"),
            "gauge",
            help,
            value as u64,
        );
    }
    out += &head(
        "packetlane_gateway_connections",
        "gauge",
        "Open connections.",
    );
    let mut connections: BTreeMap<_, u64> = by_direction(Transport::NAMES)
        .map(|kind| (kind, 0))
        .collect();
    for peer in &peers {
        let kind = (peer.direction.name(), peer.transport.name());
        *connections.entry(kind).or_default() += 1;
    }
    write_by_direction(&mut out, "connections", "transport", &connections);
    let inner = lock(&counts.inner);
    out += &metric(
        "packetlane_gateway_fell_back_total",
        "counter",
        "Peers that did not answer over v2 and were retried over v1.",
        inner.fell_back,
    );
    let named = [
        (
            "connected_total",
            "transport",
            "Connections whose handshake was completed, and which the node accepted.",
            &inner.connected,
        ),
        (
            "refused_total",
            "limit",
            "Connections refused, by the limit that was reached.",
            &inner.refused,
        ),
        (
            "closed_total",
            "cause",
            "Connections closed, by cause.",
            &inner.closed,
        ),
    ];
    for (what, by, help, numbers) in named {
        out += &head(&format!("packetlane_gateway_{what}"), "counter", help);
        write_by_direction(&mut out, what, by, numbers);
    }
    out += &metric(
        "packetlane_gateway_dropped_events_total",
        "counter",
        "Events dropped because too many were queued for NATS.",
        inner.dropped_events,
    );
    out += &metric(
        "packetlane_gateway_dropped_log_lines_total",
        "counter",
        "Log lines dropped because too many were queued.",
        counts.lost_lines.dropped_lines(),
    );
    drop(inner);
    let (mut bytes, mut ignored) = ([0; 2], [0; 2]);
    let mut messages = [(); 2].map(|()| BTreeMap::<&str, u64>::new());
    for turns in &turns {
        for (index, traffic) in [&turns.received, &turns.sent].into_iter().enumerate() {
            bytes[index] += traffic.bytes;
            ignored[index] += traffic.ignored;
            for count in &traffic.types {
                *messages[index].entry(type_name(count)).or_default() += count.messages;
            }
        }
    }
    let directions = ["received", "sent"];
    out += &head(
        "packetlane_gateway_bytes_total",
        "counter",
        "Bytes received from peers and sent to them.",
    );
    for (direction, bytes) in directions.iter().zip(bytes) {
        let _ = writeln!(
            out,
            "packetlane_gateway_bytes_total{{direction=\"{direction}\"}} {bytes}"
        );
    }
    out += &head(
        "packetlane_gateway_messages_total",
        "counter",
        "Messages received from peers and sent to them. Types that are not part of the protocol \
         are counted together.",
    );
    for (direction, messages) in directions.iter().zip(messages) {
        for (name, number) in messages {
            let _ = writeln!(
                out,
                "packetlane_gateway_messages_total{{direction=\"{direction}\",type=\"{}\"}} {number}",
                label(name)
            );
        }
    }
    out += &head(
        "packetlane_gateway_ignored_messages_total",
        "counter",
        "Messages from and to v2 peers that were dropped: unknown type, or damaged.",
    );
    for (direction, ignored) in directions.iter().zip(ignored) {
        let _ = writeln!(
            out,
            "packetlane_gateway_ignored_messages_total{{direction=\"{direction}\"}} {ignored}"
        );
    }
    let mut shaped = Shaped::default();
    turns.iter().for_each(|turns| shaped.add(&turns.shaped));
    for (name, help, value) in [
        (
            "decoys_sent_total",
            "Decoys that shaping sent.",
            shaped.decoys,
        ),
        (
            "decoy_bytes_sent_total",
            "Their bytes on the wire.",
            shaped.decoy_bytes,
        ),
        (
            "unpadded_flights_total",
            "Flights that were not padded because the budget was spent.",
            shaped.unpadded,
        ),
        (
            "shape_delay_byte_seconds_total",
            "For how long shaping kept bytes of messages back, summed up over all bytes. By bytes sent, \
             the mean delay.",
            shaped.delay.as_secs(),
        ),
    ] {
        out += &metric(
            &format!("packetlane_gateway_{name}"),
            "counter",
            help,
            value,
        );
    }
    out += &head(
        "packetlane_gateway_cpu_seconds_total",
        "counter",
        "CPU time of each thread.",
    );
    for (worker, turns) in turns.iter().enumerate() {
        let cpu = turns.cpu.as_secs_f64();
        let _ = writeln!(
            out,
            "packetlane_gateway_cpu_seconds_total{{worker=\"{worker}\"}} {cpu}"
        );
    }
    for (name, help, of) in [
        (
            "packetlane_gateway_opened_packets",
            "Packets in each batch that was opened.",
            (|turns| &turns.opened) as fn(&Turns) -> &Vec<u64>,
        ),
        (
            "packetlane_gateway_sealed_packets",
            "Packets in each batch that was sealed.",
            |turns| &turns.sealed,
        ),
    ] {
        out += &head(name, "histogram", help);
        let batches = |from: usize, to: usize| -> (u64, u64) {
            let counted = turns.iter().flat_map(|turns| of(turns).iter().enumerate());
            counted
                .filter(|(packets, _)| (from..=to).contains(packets))
                .fold((0, 0), |(batches, sum), (packets, number)| {
                    (batches + number, sum + packets as u64 * number)
                })
        };
        for most in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024] {
            let _ = writeln!(out, "{name}_bucket{{le=\"{most}\"}} {}", batches(0, most).0);
        }
        let (all, sum) = batches(0, usize::MAX);
        let _ = writeln!(
            out,
            "{name}_bucket{{le=\"+Inf\"}} {all}\n{name}_sum {sum}\n{name}_count {all}"
        );
    }
    out
}
