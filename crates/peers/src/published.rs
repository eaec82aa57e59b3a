//! What was published: one measurement of 2023, of a node that was patched for it.

use crate::tally::Slot;

/// Where the figures are from.
pub const SOURCE: &str = "a patched Bitcoin Core on one well-known mainnet node, \
     wall time, connections of a minute and more; weekdays and a weekend";

/// The mean time per second of a peer, from the lowest to the highest that was published, in
/// microseconds.
#[must_use]
pub fn mean_us(slot: Slot) -> Option<(f64, f64)> {
    match slot {
        Slot::OutboundFullRelay => Some((612.0, 662.0)),
        Slot::InboundFullRelay => Some((272.0, 458.0)),
        Slot::OutboundBlockRelay => Some((86.0, 95.0)),
        Slot::InboundBlockRelay => Some((84.0, 97.0)),
        _ => None,
    }
}

/// The mean time per second of all peers together, from the lowest to the highest, in
/// milliseconds.
pub const TOGETHER_MS: (f64, f64) = (32.0, 56.0);

/// The worst second of all peers together, about, in milliseconds.
pub const WORST_MS: f64 = 1000.0;

/// The median time of processing a `tx`, about, in microseconds.
pub const TX_US: f64 = 500.0;

/// The round figures of its plan of slots, in microseconds per second of a peer.
#[must_use]
pub fn planned_us(slot: Slot) -> Option<f64> {
    match slot {
        Slot::OutboundFullRelay => Some(600.0),
        Slot::InboundFullRelay => Some(300.0),
        Slot::OutboundBlockRelay | Slot::InboundBlockRelay => Some(100.0),
        _ => None,
    }
}
