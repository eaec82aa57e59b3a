//! Published figures for comparison: one measurement of 2023, on a patched node.

use crate::tally::Slot;

/// Where the figures come from.
pub const SOURCE: &str = "a patched Bitcoin Core on one well-known mainnet node, \
     wall time, connections of at least a minute; weekdays and a weekend";

/// Lowest and highest published mean time per second of a peer, in microseconds.
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

/// Lowest and highest published mean time per second of all peers together, in milliseconds.
pub const TOGETHER_MS: (f64, f64) = (32.0, 56.0);

/// Approximate worst second of all peers together, in milliseconds.
pub const WORST_MS: f64 = 1000.0;

/// How many times as long a slow board takes as the measured machine: 70 % slower, as the published
/// measurement assumes.
pub const SLOW_BOARD: f64 = 1.0 / 0.3;

/// Approximate median time to process a `tx`, in microseconds.
pub const TX_US: f64 = 500.0;

/// The round figures of the published plan of slots, in microseconds per second of a peer.
#[must_use]
pub fn planned_us(slot: Slot) -> Option<f64> {
    match slot {
        Slot::OutboundFullRelay => Some(600.0),
        Slot::InboundFullRelay => Some(300.0),
        Slot::OutboundBlockRelay | Slot::InboundBlockRelay => Some(100.0),
        _ => None,
    }
}
