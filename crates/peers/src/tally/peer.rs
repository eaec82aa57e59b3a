//! A peer: the slot that it takes, and what was observed of it.

use crate::blocks::Given;
use crate::record::{Calls, Connection, ConnectionType, Cost, Time};
use crate::statistics::{Rate, Shares};
use std::collections::BTreeMap;

/// Connections shorter than this are short, in microseconds. Most of these are crawlers.
pub const SHORT: Time = 60_000_000;

/// The role of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// Outbound, relays transactions, addresses and blocks.
    OutboundFullRelay,
    /// Outbound, relays blocks only.
    OutboundBlockRelay,
    /// Inbound, from a peer that wants transactions.
    InboundFullRelay,
    /// Inbound, from a peer that wants no transactions.
    InboundBlockRelay,
    /// Inbound, before the peer's `version` was seen.
    Inbound,
    /// Requested with `addnode`.
    Manual,
    /// A short-lived outbound connection: feeler, addr-fetch, private broadcast.
    Short,
    /// Kind unknown: the source has seen no message and no connection event of this peer.
    Unknown,
}

impl Slot {
    /// All kinds, in the order of tables.
    pub const ALL: [Self; 8] = [
        Self::OutboundFullRelay,
        Self::InboundFullRelay,
        Self::OutboundBlockRelay,
        Self::InboundBlockRelay,
        Self::Manual,
        Self::Inbound,
        Self::Short,
        Self::Unknown,
    ];

    /// The slot of a connection.
    #[must_use]
    pub fn of(connection: &Connection) -> Self {
        match (connection.kind, connection.relay) {
            (ConnectionType::Inbound, Some(true)) => Self::InboundFullRelay,
            (ConnectionType::Inbound, Some(false)) => Self::InboundBlockRelay,
            (ConnectionType::Inbound, None) => Self::Inbound,
            (ConnectionType::OutboundFullRelay, _) => Self::OutboundFullRelay,
            (ConnectionType::BlockRelayOnly, _) => Self::OutboundBlockRelay,
            (ConnectionType::Manual, _) => Self::Manual,
            (
                ConnectionType::Feeler
                | ConnectionType::AddrFetch
                | ConnectionType::PrivateBroadcast,
                _,
            ) => Self::Short,
        }
    }

    /// The name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OutboundFullRelay => "outbound full-relay",
            Self::OutboundBlockRelay => "outbound block-relay",
            Self::InboundFullRelay => "inbound full-relay",
            Self::InboundBlockRelay => "inbound block-relay",
            Self::Inbound => "inbound, relay unknown",
            Self::Manual => "manual",
            Self::Short => "feeler, addr-fetch",
            Self::Unknown => "kind unknown",
        }
    }

    /// Whether it relays transactions, if known.
    #[must_use]
    pub fn full_relay(self) -> Option<bool> {
        match self {
            Self::OutboundFullRelay | Self::InboundFullRelay | Self::Manual => Some(true),
            Self::OutboundBlockRelay | Self::InboundBlockRelay => Some(false),
            Self::Inbound | Self::Short | Self::Unknown => None,
        }
    }
}

/// A number of messages, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Messages {
    /// The number. Meaningless unless [`Tally::counted`](super::Tally::counted).
    pub count: u64,
    /// Payload bytes. Includes framing if the source does not see single messages.
    pub bytes: u64,
}

impl Messages {
    pub(super) fn one(bytes: u64) -> Self {
        Self { count: 1, bytes }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// What was observed of a peer in some period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Calls that look for messages from it. Includes the cost of processing them.
    pub receiving: Calls,
    /// Calls that look for messages to send to it.
    pub sending: Calls,
    /// Messages from it.
    pub received: Messages,
    /// Messages to it.
    pub sent: Messages,
    /// The `receiving` calls that processed a message.
    pub processed: Calls,
    /// The part of `received` of the types [`ONCE`](super::ONCE).
    pub once: Messages,
    /// The part of `processed` of the types [`ONCE`](super::ONCE).
    pub once_processed: Calls,
    /// The part of `processed` that the node needed from some peer: transactions that it accepted,
    /// blocks that it asked for or that extended its chain, and headers that synchronize. Where the
    /// source does not say whether anything was accepted, all of `once_processed`.
    pub useful: Calls,
    /// Transactions from it that were accepted, as far as the source says so.
    pub transactions: u64,
    /// Observed time, in microseconds.
    pub observed: Time,
}

impl Seen {
    /// CPU time of receiving and sending, in nanoseconds.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        let Self {
            receiving, sending, ..
        } = self;
        receiving.cost.cpu_ns.saturating_add(sending.cost.cpu_ns)
    }

    pub(super) fn add(&mut self, other: &Self) {
        add_calls(&mut self.receiving, other.receiving);
        add_calls(&mut self.sending, other.sending);
        add_calls(&mut self.processed, other.processed);
        self.once.add(other.once);
        add_calls(&mut self.once_processed, other.once_processed);
        add_calls(&mut self.useful, other.useful);
        self.transactions = self.transactions.saturating_add(other.transactions);
        self.received.add(other.received);
        self.sent.add(other.sent);
        self.observed = self.observed.saturating_add(other.observed);
    }
}

pub(super) fn add_calls(to: &mut Calls, calls: Calls) {
    to.count = to.count.saturating_add(calls.count);
    add_cost(&mut to.cost, calls.cost);
}

fn add_cost(to: &mut Cost, cost: Cost) {
    to.wall_ns = to.wall_ns.saturating_add(cost.wall_ns);
    to.cpu_ns = to.cpu_ns.saturating_add(cost.cpu_ns);
}

/// A peer, connected or not any more.
#[derive(Clone, Debug)]
pub struct Peer {
    /// What is known about the connection.
    pub connection: Option<Connection>,
    /// The slot that it occupies.
    pub slot: Slot,
    /// When it connected, or was first seen if that is unknown.
    pub since: Time,
    /// Sum over all windows.
    pub seen: Seen,
    /// Sum over the last window.
    pub latest: Seen,
    /// CPU time of receiving and sending, in nanoseconds.
    pub cpu: Rate,
    /// CPU time of receiving alone.
    pub receiving: Rate,
    /// CPU time of sending alone.
    pub sending: Rate,
    /// Cost of its messages by type, an index for the tally's names.
    pub(super) types: BTreeMap<u16, Calls>,
    /// What it has given for blocks, once it has left. See [`Blocks::given`](crate::blocks::Blocks::given) before.
    pub(super) given: Given,
    /// Long `headers` from it.
    pub(super) synchronized: u64,
    /// Sum over the current window.
    pub(super) open: Seen,
    pub(super) gone: Option<Time>,
    /// Whether it was connected before the recording began, at an unknown time.
    pub(super) old: bool,
    /// Input of a plan's model.
    pub(super) shares: Shares,
}

impl Peer {
    /// Whether the connection is shorter than a minute so far.
    pub(super) fn is_short(&self, last: Time) -> bool {
        self.gone.unwrap_or(last).saturating_sub(self.since) < SHORT && !self.old
    }

    /// What it has given for blocks. Of a connected peer, see [`Blocks::given`](crate::blocks::Blocks::given).
    #[must_use]
    pub fn given(&self) -> &Given {
        &self.given
    }

    /// Whether it was connected before the recording began, at an unknown time, so that
    /// [`Peer::since`] is too late.
    #[must_use]
    pub fn is_older(&self) -> bool {
        self.connection
            .as_ref()
            .is_none_or(|known| known.since.is_none())
    }

    /// When it disconnected, if it did. A disconnected peer is listed until the window ends.
    #[must_use]
    pub fn gone(&self) -> Option<Time> {
        self.gone
    }
}
