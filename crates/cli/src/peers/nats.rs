//! `peers watch --nats`: publishes the figures of each interval to NATS JetStream, to observe many
//! nodes.
//!
//! A message covers one interval of one node, so a subscriber always has all peers at the same
//! time.

use super::figures::{Interval, Sort};
use crate::nats::{Notice, Publisher, Stream, node_name};
use packetlane_peers::Time;
use packetlane_peers::tally::Tally;
use std::sync::mpsc::{Receiver, channel};

const STREAM: Stream = Stream {
    name: "packetlane_peers",
    subject: "packetlane.peers",
    client: "packetlane peers watch",
    held: 16,
};

/// Maximum peers in a message: those that cost most. A server accepts 1 MiB by default, and a peer
/// takes 700 bytes, or 1.5 kB if all of its user agent is escaped.
const MAX_PEERS: usize = 500;

/// Publishes intervals.
pub(super) struct Nats {
    publisher: Publisher,
    notices: Receiver<Notice>,
    node: String,
}

impl Nats {
    /// Connects to the server, and creates the stream if it does not exist.
    pub(super) fn connect(url: &str, name: Option<&str>) -> Result<Self, String> {
        let node = node_name(name);
        let (notify, notices) = channel();
        let publisher = Publisher::start(&STREAM, url, &node, move |notice| {
            // Fails only after the table has ended.
            let _ = notify.send(notice);
        })?;
        match notices.recv() {
            Ok(Notice::Connected) => Ok(Self {
                publisher,
                notices,
                node,
            }),
            Ok(Notice::Unavailable(error)) => Err(error),
            Err(_) => Err("the NATS client failed".to_owned()),
        }
    }

    /// Publishes the last window.
    pub(super) fn publish(&self, tally: &Tally, window: (Time, Time)) {
        let interval = Interval::of(tally, window, Some(&self.node), Sort::Cpu, MAX_PEERS);
        // If the queue is full, the server has been away for long, and a notice has said so.
        self.publisher.publish(interval.to_json().into_bytes());
    }

    /// Waits a moment for the last interval to be published.
    pub(super) fn finish(self) {
        self.publisher.finish();
    }

    /// A new notice: the server is unavailable, or back.
    pub(super) fn notice(&self) -> Option<String> {
        let last = self.notices.try_iter().last()?;
        Some(match last {
            Notice::Connected => "connected to NATS again".to_owned(),
            Notice::Unavailable(error) => {
                format!("NATS is unavailable, going on without it: {error}")
            }
        })
    }
}
