//! The figures of one peer: a row of the live table and of a report.

use crate::blocks::Given;
use crate::record::{Network, Time, Transport};
use crate::tally::{Peer, Seen, Tally, subnet};
use serde::Serialize;

/// A peer. Rates cover the observed time in which it was connected. `None` where the source does
/// not know.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PeerRow {
    /// The node's id of the peer.
    pub peer: i64,
    /// Its address. Untrusted text.
    pub address: Option<String>,
    /// What it calls itself. Untrusted text.
    pub user_agent: Option<String>,
    /// The part of the network it is in, as [`subnet`] names it.
    pub subnet: Option<String>,
    /// Direction and type of the connection.
    pub connection: &'static str,
    /// The network.
    pub network: Option<&'static str>,
    /// v1 or v2.
    pub transport: Option<&'static str>,
    /// How long it has been connected, or was.
    pub age_seconds: u64,
    /// Whether it connected before the observation, so that its age is only a lower bound.
    pub is_older: bool,
    /// When it disconnected, if it did.
    pub left: Option<Time>,
    /// Observed time that the rates are based on.
    pub observed_seconds: f64,
    /// CPU time for receiving.
    pub receiving_ms_per_second: Option<f64>,
    /// CPU time for sending.
    pub sending_ms_per_second: Option<f64>,
    /// Standard error of the sum of both, caused by sampling.
    pub error_ms_per_second: Option<f64>,
    /// CPU time for what the node needed from some peer: transactions that it accepted, and blocks
    /// that it asked for or that extended its chain. Part of receiving.
    pub useful_ms_per_second: Option<f64>,
    /// Messages from it.
    pub received_per_second: Option<f64>,
    /// Messages to it.
    pub sent_per_second: Option<f64>,
    /// Bytes of messages from it.
    pub received_bytes_per_second: f64,
    /// Bytes of messages to it.
    pub sent_bytes_per_second: f64,
    /// The type of its messages that has cost most CPU time so far.
    pub costliest_type: Option<String>,
    /// Transactions from it that the node accepted, as far as the source says so.
    pub transactions_per_second: Option<f64>,
    /// Blocks that it was the first to announce.
    pub blocks_first: u64,
    /// Blocks that it delivered.
    pub blocks_delivered: u64,
    /// Requests for a block that it left unanswered for more than ten seconds, or does now.
    pub stalls: u64,
}

impl PeerRow {
    /// The figures of `peer` for a period: `seen` is what was observed of it in that time, and
    /// `is_all` whether that is everything.
    #[must_use]
    pub fn of(tally: &Tally, number: i64, peer: &Peer, seen: &Seen, is_all: bool) -> Self {
        // In microseconds, so nanoseconds divided by it are milliseconds per second.
        let observed = seen.observed.max(1) as f64;
        let rate = |amount: u64| amount as f64 / observed * 1e6;
        let timed = |cpu_ns: u64| tally.timed().then_some(cpu_ns as f64 / observed);
        let counted = |count: u64| tally.counted().then(|| rate(count));
        let known = peer.connection.as_ref();
        let now = tally.times().map_or(0, |(_, now)| now);
        let error = (is_all && tally.timed()).then(|| tally.error(&peer.cpu));
        let nothing = Given::default();
        let given = match peer.gone() {
            Some(_) => peer.given(),
            None => tally.blocks().given(number).unwrap_or(&nothing),
        };
        let stalling = tally.blocks().stalling_of(number, now).len();
        Self {
            peer: number,
            address: known.map(|known| known.address.clone()),
            user_agent: known.and_then(|known| known.user_agent.clone()),
            subnet: known.and_then(subnet),
            connection: peer.slot.name(),
            network: known.and_then(|known| known.network.map(Network::name)),
            transport: known.and_then(|known| known.transport.map(Transport::name)),
            age_seconds: peer.gone().unwrap_or(now).saturating_sub(peer.since) / 1_000_000,
            is_older: peer.is_older(),
            left: peer.gone(),
            observed_seconds: seen.observed as f64 / 1e6,
            receiving_ms_per_second: timed(seen.receiving.cost.cpu_ns),
            sending_ms_per_second: timed(seen.sending.cost.cpu_ns),
            error_ms_per_second: error.flatten().map(|ns| ns / 1e6),
            useful_ms_per_second: timed(seen.useful.cost.cpu_ns),
            received_per_second: counted(seen.received.count),
            sent_per_second: counted(seen.sent.count),
            received_bytes_per_second: rate(seen.received.bytes),
            sent_bytes_per_second: rate(seen.sent.bytes),
            costliest_type: tally.costliest(peer).map(|(name, _)| name.to_owned()),
            transactions_per_second: counted(seen.transactions),
            blocks_first: given.first,
            blocks_delivered: given.delivered,
            stalls: given.stalls + stalling as u64,
        }
    }

    /// CPU time for receiving and sending, in milliseconds per second. 0 if unknown.
    #[must_use]
    pub fn cpu_ms_per_second(&self) -> f64 {
        self.receiving_ms_per_second.unwrap_or(0.0) + self.sending_ms_per_second.unwrap_or(0.0)
    }
}
