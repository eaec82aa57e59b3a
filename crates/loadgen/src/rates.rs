//! Frequencies and lengths of the messages that a node's peers send.

use packetlane::bitcoin::message::MessageType;
use packetlane_p2p::message_type::TX;
use rand::RngExt;
use rand::rngs::StdRng;
use std::collections::BTreeMap;
use std::time::Duration;

/// The rate of one message type, over all peers together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Messages per second.
    pub per_second: f64,
    /// Mean length of the payload, in bytes.
    pub mean_payload: f64,
}

/// The rates of everything that a node receives from its peers, by message type.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    types: BTreeMap<MessageType, Rate>,
}

impl FromIterator<(MessageType, Rate)> for Rates {
    fn from_iter<T: IntoIterator<Item = (MessageType, Rate)>>(types: T) -> Self {
        Self {
            types: types.into_iter().collect(),
        }
    }
}

impl Rates {
    /// Computes the rates of received messages, given as time in microseconds, type and payload
    /// length in bytes, in any order. `None` if they span less than a second.
    #[must_use]
    pub fn of_messages(
        messages: impl IntoIterator<Item = (u64, MessageType, usize)>,
    ) -> Option<Self> {
        const MIN_SECONDS: f64 = 1.0;
        let (mut first, mut last) = (u64::MAX, 0);
        let mut types = BTreeMap::<_, Rate>::new();
        for (time, message_type, length) in messages {
            first = first.min(time);
            last = last.max(time);
            let rate = types.entry(message_type).or_default();
            // Add up first, divide later.
            rate.per_second += 1.0;
            rate.mean_payload += length as f64;
        }
        let seconds = last.saturating_sub(first) as f64 / 1e6;
        for rate in types.values_mut() {
            rate.mean_payload /= rate.per_second;
            rate.per_second /= seconds;
        }
        (seconds >= MIN_SECONDS).then_some(Self { types })
    }

    /// Multiplies all rates by `factor`.
    #[must_use]
    pub fn times(mut self, factor: f64) -> Self {
        for rate in self.types.values_mut() {
            rate.per_second *= factor;
        }
        self
    }

    /// Replaces the number of transactions per second.
    #[must_use]
    pub fn with_transactions(mut self, per_second: f64) -> Self {
        self.types.entry(TX).or_default().per_second = per_second;
        self
    }

    /// The rate of one type. 0 if it is never sent.
    #[must_use]
    pub fn of(&self, message_type: MessageType) -> Rate {
        self.types.get(&message_type).copied().unwrap_or_default()
    }

    /// Messages per second of all types.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.types.values().map(|rate| rate.per_second).sum()
    }
}

/// Draws an exponentially distributed number.
pub(crate) fn exponential(mean: f64, rng: &mut StdRng) -> f64 {
    -mean * rng.random_range(f64::MIN_POSITIVE..1.0).ln()
}

/// Draws an exponentially distributed time with a mean of `mean` seconds, limited to a few years.
pub(crate) fn after(mean: f64, rng: &mut StdRng) -> Duration {
    const MAX_SECONDS: f64 = 1e8;
    Duration::from_secs_f64(exponential(mean, rng).clamp(0.0, MAX_SECONDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: MessageType = MessageType::literal("ping");
    const INV: MessageType = MessageType::literal("inv");

    #[test]
    fn rates_of_messages() {
        assert!(Rates::of_messages([]).is_none());
        assert!(Rates::of_messages([(0, INV, 37), (900_000, PING, 8)]).is_none());
        let messages = [(4_000_000, PING, 8), (0, INV, 37), (1_000_000, INV, 73)];
        let rates = Rates::of_messages(messages).unwrap();
        let rate = |per_second, mean_payload| Rate {
            per_second,
            mean_payload,
        };
        assert_eq!(rates.of(INV), rate(0.5, 55.0));
        assert_eq!(rates.of(PING), rate(0.25, 8.0));
        let twice = rates.clone().times(2.0);
        assert_eq!(twice.of(INV), rate(1.0, 55.0));
        assert_eq!((rates.total(), twice.total()), (0.75, 1.5));
        let rates = rates.with_transactions(8.0).with_transactions(7.0);
        assert_eq!((rates.of(TX), rates.total()), (rate(7.0, 0.0), 7.75));
    }
}
