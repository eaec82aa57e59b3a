//! "This peer was the first to send this transaction": which of a node's peers a transaction came
//! from, by its length alone.

use super::score::Score;
use super::trace::Trace;
use super::wire::{FULL_SEGMENT, Observed};
use packetlane::bitcoin::message::MessageType;
use std::collections::BTreeMap;

/// How long before the network knows a transaction the observer looks for it, and after, in
/// microseconds.
const BEFORE: u64 = 2_000_000;
const AFTER: u64 = 3_000_000;

/// Scores an observer who sees all connections of a node, and knows when the network learned of a
/// transaction and how long it is. He names the peer whose connection was the first to carry a
/// segment of this length towards the node at that time. `shaped_len` says how long a packet is after
/// shaping. Of a packet that takes several segments, he looks for the last one.
pub(crate) fn first_sender(
    traces: &[Trace],
    observed: &[Observed],
    shaped_len: impl Fn(usize) -> usize,
) -> Score {
    let tx = MessageType::literal("tx");
    // Of each transaction, the connection and time of its first appearance, and its packet's length.
    let mut first = BTreeMap::<u32, (u64, usize, usize)>::new();
    for (number, trace) in traces.iter().enumerate() {
        for message in &trace.messages {
            let Some(id) = message
                .id
                .filter(|_| message.message_type == tx && !message.sent)
            else {
                continue;
            };
            let found = (message.at, number, message.wire_len());
            let known = first.entry(id).or_insert(found);
            *known = (*known).min(found);
        }
    }
    // For each length, the segments towards the node.
    let mut by_length = BTreeMap::<u32, Vec<(u64, usize)>>::new();
    for (number, observed) in observed.iter().enumerate() {
        for segment in observed.segments.iter().filter(|segment| !segment.sent) {
            by_length
                .entry(segment.len)
                .or_default()
                .push((segment.at, number));
        }
    }
    by_length
        .values_mut()
        .for_each(|segments| segments.sort_unstable());
    let mut score = Score::default();
    for (at, sender, wire_len) in first.into_values() {
        let within = at.saturating_sub(BEFORE)..at + AFTER;
        let full = FULL_SEGMENT as usize;
        let len = (shaped_len(wire_len) - 1) % full + 1;
        let named = by_length.get(&(len as u32)).and_then(|segments| {
            let next = segments.partition_point(|(at, _)| *at < within.start);
            let found = segments.get(next).filter(|(at, _)| within.contains(at));
            found.map(|(_, number)| *number)
        });
        score.recall.add(named == Some(sender));
        if let Some(named) = named {
            score.precision.add(named == sender);
        }
    }
    score
}
