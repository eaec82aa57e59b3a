//! The connected peers, as the records so far tell.

use crate::record::{Connection, Event, Record, Time};
use crate::tally::MAX_PEERS;
use std::collections::BTreeMap;

/// What is known of the connected peers. At most [`MAX_PEERS`].
#[derive(Debug, Default)]
pub(crate) struct Known(BTreeMap<i64, Connection>);

impl Known {
    /// Takes the next event.
    pub(crate) fn note(&mut self, event: &Event) {
        match event {
            Event::Connected { peer, connection }
                if self.0.len() < MAX_PEERS || self.0.contains_key(peer) =>
            {
                self.0.insert(*peer, connection.clone());
            }
            Event::Disconnected { peer } => {
                self.0.remove(peer);
            }
            Event::Started => self.0.clear(),
            _ => {}
        }
    }

    /// A `connected` record of each peer.
    pub(crate) fn records(&self, time: Time) -> impl Iterator<Item = Record> {
        self.0.iter().map(move |(&peer, connection)| {
            let connection = connection.clone();
            let event = Event::Connected { peer, connection };
            Record { time, event }
        })
    }
}
