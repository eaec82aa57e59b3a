//! `gateway --nats`: publishes peer events to NATS JetStream, one per message.

use crate::nats::{Notice, Publisher, Stream, node_name};
use crate::report::hex;
use packetlane_gateway::{Event, Peer};
use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};

const STREAM: Stream = Stream {
    name: "packetlane_gateway",
    subject: "packetlane.gateway",
    client: "packetlane gateway",
    // About 300 bytes per event. In a flood of connections, further events are dropped and counted.
    held: 20_000,
};

/// Publishes events.
#[derive(Debug)]
pub(super) struct Events {
    publisher: Publisher,
    node: String,
}

/// The JSON of an event.
#[derive(Serialize)]
struct Message<'e> {
    schema: u32,
    node: &'e str,
    /// Microseconds since 1970.
    time: u64,
    event: &'e str,
    /// `None` for a refused connection.
    id: Option<u64>,
    address: String,
    direction: &'e str,
    transport: &'e str,
    #[serde(flatten)]
    more: More,
}

/// Fields that only some events have.
#[derive(Serialize)]
#[serde(untagged)]
enum More {
    Connected {
        session_id: Option<String>,
        node_address: Option<String>,
    },
    FellBack {},
    Refused {
        limit: &'static str,
    },
    Closed {
        cause: &'static str,
        reason: String,
        age_s: f64,
        cpu_us: u64,
        received_bytes: u64,
        received_messages: u64,
        sent_bytes: u64,
        sent_messages: u64,
    },
}

impl Events {
    /// Starts connecting to the server. The gateway runs meanwhile, too.
    pub(super) fn start(url: &str, name: Option<&str>) -> Result<Self, String> {
        let node = node_name(name);
        let publisher = Publisher::start(&STREAM, url, &node, |notice| match notice {
            Notice::Connected => tracing::info!("connected to NATS"),
            Notice::Unavailable(error) => {
                tracing::warn!(error, "NATS is unavailable, events are queued")
            }
        })?;
        Ok(Self { publisher, node })
    }

    /// Queues an event. Returns false if the queue is full; the event is then lost.
    pub(super) fn publish(&self, peer: &Peer, event: &Event) -> bool {
        let (event, more) = match event {
            Event::Connected => {
                let more = More::Connected {
                    session_id: peer.session_id.map(|id| hex(&id)),
                    node_address: peer.node_address.map(|address| address.to_string()),
                };
                ("connected", more)
            }
            Event::FellBack => ("fell-back", More::FellBack {}),
            Event::Refused(refusal) => {
                let limit = refusal.name();
                ("refused", More::Refused { limit })
            }
            Event::Closed(close) => {
                let account = &peer.account;
                let more = More::Closed {
                    cause: close.name(),
                    reason: close.to_string(),
                    age_s: peer.age.as_secs_f64(),
                    cpu_us: account.cpu.as_micros() as u64,
                    received_bytes: account.received.bytes,
                    received_messages: account.received.messages(),
                    sent_bytes: account.sent.bytes,
                    sent_messages: account.sent.messages(),
                };
                ("closed", more)
            }
            _ => return true,
        };
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        let message = Message {
            schema: 1,
            node: &self.node,
            time: time.map_or(0, |time| time.as_micros() as u64),
            event,
            id: (peer.id != 0).then_some(peer.id),
            address: peer.address.to_string(),
            direction: peer.direction.name(),
            transport: peer.transport.name(),
            more,
        };
        serde_json::to_vec(&message).is_ok_and(|json| self.publisher.publish(json))
    }

    /// Waits a moment for the last events to be published.
    pub(super) fn finish(self) {
        self.publisher.finish();
    }
}

/// Checks the URL of `--nats`.
pub(super) fn check(url: &str) -> Result<(), String> {
    crate::nats::check(url)
}
