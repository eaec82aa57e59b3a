//! `peers watch --nats`: publishes the figures of each interval to NATS JetStream, to observe many
//! nodes.
//!
//! A message covers one interval of one node, so a subscriber always has all peers at the same
//! time.

use super::figures::{Figures, Sort};
use crate::nats::{Notice, Publisher, Stream, node_name};
use crate::screen::Period;
use packetlane_peers::Time;
use packetlane_peers::tally::Tally;
use serde::Serialize;
use std::sync::mpsc::{Receiver, channel};

const STREAM: Stream = Stream {
    name: "packetlane_peers",
    subject: "packetlane.peers",
    client: "packetlane peers watch",
    held: 16,
};

/// Maximum peers in a message: those that cost most. A server accepts 1 MiB by default, and a peer
/// takes 500 bytes.
const MAX_PEERS: usize = 1000;

/// Publishes intervals.
pub(super) struct Nats {
    publisher: Publisher,
    notices: Receiver<Notice>,
    node: String,
}

/// The JSON of an interval.
#[derive(Serialize)]
struct Interval<'n> {
    schema: u32,
    node: &'n str,
    /// Microseconds since 1970: the window that the rates cover.
    start: Time,
    end: Time,
    /// Number of peers that are not in the list.
    more_peers: usize,
    #[serde(flatten)]
    figures: Figures,
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
    pub(super) fn publish(&self, tally: &Tally, (start, end): (Time, Time)) {
        let mut figures = Figures::of(tally, Period::Latest, Sort::Cpu);
        let more_peers = figures.peers.len().saturating_sub(MAX_PEERS);
        figures.peers.truncate(MAX_PEERS);
        let interval = Interval {
            schema: 1,
            node: &self.node,
            start,
            end,
            more_peers,
            figures,
        };
        if let Ok(json) = serde_json::to_vec(&interval) {
            // If the queue is full, the server has been away for long, and a notice has said so.
            self.publisher.publish(json);
        }
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
