//! The kinds of peers and their proportions.

use std::fmt;
use std::str::FromStr;

/// How a peer behaves after the handshakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Relays transactions, blocks and addresses, and answers all requests.
    FullRelay,
    /// Requests no transactions (relay flag 0) and relays only blocks.
    BlockRelayOnly,
    /// Only reads: never sends anything, not even a pong.
    Silent,
    /// Like [`Kind::FullRelay`] but announces no blocks. Requests large blocks and reads 2 KiB per
    /// second.
    Slow,
    /// Like [`Kind::FullRelay`], but disconnects after 10 seconds on average and reconnects.
    Churning,
    /// Like [`Kind::FullRelay`], but announces each new block before the others do and never
    /// delivers it, so the node requests the block from this peer and waits.
    Stalling,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::FullRelay,
        Self::BlockRelayOnly,
        Self::Silent,
        Self::Slow,
        Self::Churning,
        Self::Stalling,
    ];

    /// The name on the command line and in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FullRelay => "full-relay",
            Self::BlockRelayOnly => "block-relay-only",
            Self::Silent => "silent",
            Self::Slow => "slow",
            Self::Churning => "churning",
            Self::Stalling => "stalling",
        }
    }

    /// Whether it relays transactions.
    #[must_use]
    pub const fn relays_transactions(self) -> bool {
        matches!(
            self,
            Self::FullRelay | Self::Slow | Self::Churning | Self::Stalling
        )
    }

    /// Whether it announces new blocks. Not a slow peer: the node would wait for the block.
    #[must_use]
    pub const fn announces_blocks(self) -> bool {
        self.delivers_blocks() || matches!(self, Self::Stalling)
    }

    /// Whether it delivers the new blocks that it announces.
    #[must_use]
    pub const fn delivers_blocks(self) -> bool {
        matches!(
            self,
            Self::FullRelay | Self::BlockRelayOnly | Self::Churning
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The proportions of the kinds: a weight for each of [`Kind::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix([u16; Kind::ALL.len()]);

impl Mix {
    /// Four full-relay peers for three block-relay-only peers and one of each other kind, except
    /// stalling.
    pub const DEFAULT: Self = Self([4, 3, 1, 1, 1, 0]);

    /// Distributes `count` peers over the kinds. Any number of first peers matches the weights to
    /// within one.
    #[must_use]
    pub fn deal(&self, count: usize) -> Vec<Kind> {
        let total: i64 = self.0.iter().map(|&weight| i64::from(weight)).sum();
        let mut dealt = [0_i64; Kind::ALL.len()];
        let mut deal_one = |number: usize| {
            let lacks = |kind: usize| i64::from(self.0[kind]) * number as i64 - dealt[kind] * total;
            let next = (0..dealt.len()).rev().max_by_key(|&kind| lacks(kind))?;
            dealt[next] += 1;
            Some(Kind::ALL[next])
        };
        (1..=count).filter_map(&mut deal_one).collect()
    }
}

impl Default for Mix {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl FromStr for Mix {
    type Err = MixError;

    /// Parses text like `full-relay=4,silent=1`. Kinds that are not named get no peers.
    fn from_str(text: &str) -> Result<Self, MixError> {
        let mut weights = [0; Kind::ALL.len()];
        for part in text.split(',') {
            let (name, weight) = part.split_once('=').unwrap_or((part, "1"));
            let kind = Kind::ALL.iter().position(|kind| kind.name() == name);
            let kind = kind.ok_or_else(|| MixError::Kind(name.to_owned()))?;
            let weight = weight.parse();
            weights[kind] = weight.map_err(|_| MixError::Weight(part.to_owned()))?;
        }
        match weights.iter().any(|&weight| weight > 0) {
            true => Ok(Self(weights)),
            false => Err(MixError::NoPeers),
        }
    }
}

/// Why a text is not a valid [`Mix`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MixError {
    /// Unknown kind.
    Kind(String),
    /// The weight is not a number from 0 to 65535.
    Weight(String),
    /// All weights are 0.
    NoPeers,
}

impl fmt::Display for MixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(name) => {
                let known = Kind::ALL.map(Kind::name).join(", ");
                write!(f, "unknown kind of peer {name:?}; the kinds are {known}")
            }
            Self::Weight(part) => write!(
                f,
                "{part:?}: expected a kind, = and a weight from 0 to 65535, like full-relay=4"
            ),
            Self::NoPeers => f.write_str("all weights are 0: give at least one kind a weight"),
        }
    }
}

impl std::error::Error for MixError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_dealt_by_weight() {
        let mix: Mix = "full-relay=3,silent=1".parse().unwrap();
        let dealt = mix.deal(8);
        assert_eq!(dealt.len(), 8);
        assert_eq!(
            dealt.iter().filter(|&&kind| kind == Kind::Silent).count(),
            2
        );
        // Of the first four, one.
        let first = &dealt[..4];
        assert_eq!(
            first.iter().filter(|&&kind| kind == Kind::Silent).count(),
            1
        );
        let all: Mix = "full-relay,block-relay-only,silent,slow,churning,stalling"
            .parse()
            .unwrap();
        let mut six = all.deal(6);
        six.sort();
        assert_eq!(six, Kind::ALL);
        assert!(!Mix::DEFAULT.deal(100).contains(&Kind::Stalling));
        assert!(mix.deal(0).is_empty());
    }

    #[test]
    fn an_invalid_mix_is_rejected() {
        for (text, error) in [
            ("fast=1", MixError::Kind("fast".to_owned())),
            ("", MixError::Kind(String::new())),
            ("slow=x", MixError::Weight("slow=x".to_owned())),
            ("slow=65536", MixError::Weight("slow=65536".to_owned())),
            ("slow=0,silent=0", MixError::NoPeers),
        ] {
            assert_eq!(text.parse::<Mix>(), Err(error), "{text}");
        }
    }
}
