//! Counts of sent and received messages, by kind of peer and by message type.

use crate::kind::Kind;
use packetlane::bitcoin::message::MessageType;
use packetlane_p2p::peer::Count;
use std::collections::BTreeMap;
use std::fmt;

/// Maximum number of message types counted separately per kind. A node could invent any number.
const MAX_TYPES: usize = 64;

/// The counts of one kind of peer.
#[derive(Clone, Debug, Default)]
pub struct KindTotals {
    /// Peers of this kind that are connected now, after the version handshake.
    pub connected: usize,
    /// Connections that completed the version handshake.
    pub opened: u64,
    /// Connections that failed or were closed by the node.
    pub failed: u64,
    /// The reason of the last failure.
    pub failure: Option<String>,
    /// Messages sent and received, by type. Bytes include framing but not v2 handshakes.
    pub types: BTreeMap<MessageType, [Count; 2]>,
    /// Received messages of further types, beyond the first 64.
    pub other: Count,
}

/// All counts.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// By kind.
    pub kinds: BTreeMap<Kind, KindTotals>,
    /// Peers that completed a version handshake at least once.
    pub reached: usize,
    /// Number of transactions made.
    pub made: u64,
    /// Transactions that the node requested.
    pub fetched: u64,
    /// Transactions that the node announced to a peer, which it does after validating them.
    pub relayed: u64,
    /// Number of blocks made, without those at the start.
    pub mined: u64,
}

impl Totals {
    pub(crate) fn kind(&mut self, kind: Kind) -> &mut KindTotals {
        self.kinds.entry(kind).or_default()
    }

    /// Number of peers that are connected now.
    #[must_use]
    pub fn connected(&self) -> usize {
        self.kinds.values().map(|kind| kind.connected).sum()
    }

    /// Messages sent and received, over all kinds.
    #[must_use]
    pub fn all(&self) -> [Count; 2] {
        let all = self.kinds.values().map(KindTotals::all);
        all.fold(<[Count; 2]>::default(), sum)
    }
}

impl KindTotals {
    pub(crate) fn sent(&mut self, message_type: MessageType, bytes: usize) {
        self.types.entry(message_type).or_default()[0].add(bytes);
    }

    pub(crate) fn received(&mut self, message_type: MessageType, bytes: usize) {
        if self.types.len() < MAX_TYPES || self.types.contains_key(&message_type) {
            self.types.entry(message_type).or_default()[1].add(bytes);
        } else {
            self.other.add(bytes);
        }
    }

    /// Messages sent and received, over all types.
    #[must_use]
    pub fn all(&self) -> [Count; 2] {
        let types = self.types.values().copied();
        types.fold([Count::default(), self.other], sum)
    }
}

fn sum([sent, received]: [Count; 2], [more_sent, more_received]: [Count; 2]) -> [Count; 2] {
    [sent.plus(more_sent), received.plus(more_received)]
}

/// Two tables: by kind and by message type.
impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |f: &mut fmt::Formatter<'_>, name: &str, [sent, received]: [Count; 2]| {
            writeln!(
                f,
                "{name:<17} {:>10} {:>13} {:>10} {:>13}",
                sent.messages, sent.bytes, received.messages, received.bytes
            )
        };
        let head = |f: &mut fmt::Formatter<'_>, name: &str| {
            let [sent, received] = ["sent", "received"];
            writeln!(
                f,
                "{name:<17} {sent:>10} {:>13} {received:>10} {:>13}",
                "bytes", "bytes"
            )
        };
        head(f, "kind")?;
        for (kind, totals) in &self.kinds {
            row(f, kind.name(), totals.all())?;
        }
        row(f, "total", self.all())?;

        let mut types = BTreeMap::<MessageType, [Count; 2]>::new();
        for (message_type, counts) in self.kinds.values().flat_map(|kind| &kind.types) {
            let so_far = types.entry(*message_type).or_default();
            *so_far = sum(*so_far, *counts);
        }
        writeln!(f)?;
        head(f, "message type")?;
        for (message_type, counts) in types {
            // A type from the node may contain control characters.
            let name = message_type.name().escape_debug().to_string();
            row(f, &name, counts)?;
        }
        let others = self.kinds.values().map(|kind| kind.other);
        let other = others.fold(Count::default(), Count::plus);
        if other.messages > 0 {
            row(f, "others", [Count::default(), other])?;
        }

        writeln!(f, "\n{:<17} {:>10} {:>10}", "kind", "opened", "failed")?;
        for (kind, totals) in &self.kinds {
            write!(f, "{kind:<17} {:>10} {:>10}", totals.opened, totals.failed)?;
            match &totals.failure {
                Some(failure) => writeln!(f, "  last failure: {failure}")?,
                None => writeln!(f)?,
            }
        }
        if self.made > 0 || self.mined > 0 {
            let Self {
                made,
                fetched,
                relayed,
                mined,
                ..
            } = self;
            writeln!(
                f,
                "\n{made} transactions made; the node fetched {fetched} and relayed {relayed}. \
                 {mined} blocks"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: MessageType = MessageType::literal("ping");

    #[test]
    fn totals_add_up_and_types_are_bounded() {
        let mut totals = Totals::default();
        totals.kind(Kind::Slow).sent(PING, 32);
        for number in 0..100_u8 {
            let name = format!("type{number}");
            let message_type = MessageType::new(name.as_bytes()).unwrap();
            totals.kind(Kind::Silent).received(message_type, 10);
        }
        totals.kind(Kind::Silent).received(PING, 10);
        let silent = &totals.kinds[&Kind::Silent];
        assert_eq!(silent.types.len(), MAX_TYPES);
        assert_eq!(silent.other.messages, 101 - MAX_TYPES as u64);
        let sent = Count {
            messages: 1,
            bytes: 32,
        };
        let received = Count {
            messages: 101,
            bytes: 1010,
        };
        assert_eq!(totals.all(), [sent, received]);
        let text = totals.to_string();
        let row = |name: &str| {
            let row = text.lines().find(|line| line.starts_with(name)).unwrap();
            row.split_whitespace()
                .skip(1)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(row("total "), ["1", "32", "101", "1010"]);
        assert_eq!(row("ping "), ["1", "32", "0", "0"]);
        assert_eq!(row("others "), ["0", "0", "37", "370"]);
    }
}
