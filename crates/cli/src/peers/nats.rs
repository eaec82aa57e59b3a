//! `peers watch --nats`: each interval's figures to NATS JetStream, for those who watch many
//! nodes.
//!
//! A message is one interval of one node, so that a subscriber always has all peers of the same
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

/// Peers in a message: those that cost most. A server takes 1 MiB if it is not told otherwise,
/// and a peer has 500 bytes.
const MAX_PEERS: usize = 1000;

/// Where intervals are published.
pub(super) struct Nats {
    publisher: Publisher,
    notices: Receiver<Notice>,
    node: String,
}

/// What is published of an interval.
#[derive(Serialize)]
struct Interval<'n> {
    schema: u32,
    node: &'n str,
    /// Microseconds since 1970: the window that the rates are of.
    start: Time,
    end: Time,
    /// Peers that are not in the list.
    more_peers: usize,
    #[serde(flatten)]
    figures: Figures,
}

impl Nats {
    /// Connects to the server and makes the stream, if it is not there.
    pub(super) fn connect(url: &str, name: Option<&str>) -> Result<Self, String> {
        let node = node_name(name);
        let (notify, notices) = channel();
        let publisher = Publisher::start(&STREAM, url, &node, move |notice| {
            // The table may have ended.
            let _ = notify.send(notice);
        })?;
        match notices.recv() {
            Ok(Notice::Connected) => Ok(Self {
                publisher,
                notices,
                node,
            }),
            Ok(Notice::Away(error)) => Err(error),
            Err(_) => Err("the client of NATS has failed".to_owned()),
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
            // If too many wait, the server has been away for long, and a notice has said so.
            self.publisher.publish(json);
        }
    }

    /// Gives the last interval a moment to be published.
    pub(super) fn finish(self) {
        self.publisher.finish();
    }

    /// What there is to say, if there is something: that the server has gone, or is back.
    pub(super) fn notice(&self) -> Option<String> {
        let last = self.notices.try_iter().last()?;
        Some(match last {
            Notice::Connected => "NATS is back".to_owned(),
            Notice::Away(error) => format!("not published to NATS, going on without: {error}"),
        })
    }
}
