//! What an operator could do about peers whose cost is out of proportion, and what that would lose.
//!
//! A peer's cost here excludes the transactions and blocks that the node took from it: it would have
//! had these from another peer, at the same cost. A peer is out of proportion if it costs
//! [`FACTOR`] times the median of the others of its kind, even if the true value is two standard
//! errors lower, and at least [`LEAST_US`].

use crate::format::{bytes, time};
use crate::record::{ConnectionType, Network};
use crate::tally::{LOCAL, Peer, Slot, Tally, ip, subnet};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// How many times the median of the others a peer must cost.
pub const FACTOR: f64 = 5.0;

/// The least cost that is worth a hint, in CPU microseconds per second: 0.1 % of a core. Published
/// means are 84 to 662.
pub const LEAST_US: f64 = 1000.0;

/// How long a peer must have been observed, in microseconds: ten windows of the default length.
pub const LEAST_OBSERVED: u64 = 5_000_000;

/// The fewest peers of a kind to compare another one with. With fewer, all peers are compared.
const LEAST_OTHERS: usize = 3;

/// The fewest inbound peers of one part of the network that are called a group.
const LEAST_GROUP: usize = 4;

/// The least share of the cost of all peers that a group must have.
const GROUP_SHARE: f64 = 0.25;

/// How long a ban lasts that a hint proposes, in seconds.
const BAN_SECONDS: u64 = 86_400;

/// Something that would help.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hint {
    /// The peers: one, or those of a group.
    pub peers: Vec<i64>,
    /// What they cost beyond transactions and blocks, in CPU milliseconds per second.
    pub ms_per_second: f64,
    /// How many times the median of the others that is, for each peer.
    pub times: f64,
    /// The figures that say so.
    pub reason: String,
    /// What the node would lose without these peers. Empty if nothing is known.
    pub loses: Vec<String>,
    /// The command that would help.
    pub command: String,
}

/// A connected peer with the figures that are compared.
struct Candidate<'t> {
    number: i64,
    peer: &'t Peer,
    /// CPU microseconds per second beyond transactions and blocks, and twice the standard error.
    us: f64,
    error: f64,
    /// Messages beyond these, and bytes of all messages, per second in both directions.
    messages: f64,
    bytes: f64,
}

impl<'t> Candidate<'t> {
    fn of(tally: &Tally, number: i64, peer: &'t Peer) -> Option<Self> {
        let seen = &peer.seen;
        if peer.gone().is_some() || seen.observed < LEAST_OBSERVED {
            return None;
        }
        let seconds = seen.observed as f64 / 1e6;
        let useful = seen.useful.cost.cpu_ns;
        let messages = seen.received.count.saturating_sub(seen.useful.count);
        Some(Self {
            number,
            peer,
            us: seen.cpu_ns().saturating_sub(useful) as f64 / 1e3 / seconds,
            error: 2.0 * peer.cpu.error(tally.observed_share()).unwrap_or(0.0) / 1e3,
            messages: messages.saturating_add(seen.sent.count) as f64 / seconds,
            bytes: seen.received.bytes.saturating_add(seen.sent.bytes) as f64 / seconds,
        })
    }

    fn is_inbound(&self) -> bool {
        let connection = self.peer.connection.as_ref();
        connection.is_some_and(|known| known.kind == ConnectionType::Inbound)
    }
}

/// The hints for the peers that are connected now, the costliest first. Empty if the source does not
/// measure time per peer.
#[must_use]
pub fn hints(tally: &Tally) -> Vec<Hint> {
    if !tally.timed() {
        return Vec::new();
    }
    let all: Vec<Candidate<'_>> = tally
        .peers()
        .filter_map(|(number, peer)| Candidate::of(tally, number, peer))
        .collect();
    let mut hints = groups(tally, &all);
    let grouped: Vec<i64> = hints.iter().flat_map(|hint| hint.peers.clone()).collect();
    let single = all.iter().filter(|one| !grouped.contains(&one.number));
    hints.extend(single.filter_map(|one| alone(tally, &all, one)));
    hints.sort_by(|one, other| other.ms_per_second.total_cmp(&one.ms_per_second));
    hints
}

/// The others of its kind, or all others if these are too few; with a name for them.
fn others<'a, 't>(
    all: &'a [Candidate<'t>],
    of: &Candidate<'_>,
) -> (Vec<&'a Candidate<'t>>, &'static str) {
    let rest = || all.iter().filter(|one| one.number != of.number);
    let slot = of.peer.slot;
    let same: Vec<_> = rest().filter(|one| one.peer.slot == slot).collect();
    match same.len() >= LEAST_OTHERS && slot != Slot::Unknown {
        true => (same, slot.name()),
        false => (rest().collect(), "other"),
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn alone(tally: &Tally, all: &[Candidate<'_>], one: &Candidate<'_>) -> Option<Hint> {
    let (others, kind) = others(all, one);
    if others.len() < LEAST_OTHERS {
        return None;
    }
    let usual = median(others.iter().map(|other| other.us)).max(1.0);
    if one.us < LEAST_US || one.us - one.error < FACTOR * usual {
        return None;
    }
    let each = |us: f64, count: f64| match count > 0.0 {
        true => us / count,
        false => 0.0,
    };
    let usually = |of: &dyn Fn(&Candidate<'_>) -> f64| median(others.iter().map(|other| of(other)));
    let [messages, usual_bytes] = [
        usually(&|other| other.messages),
        usually(&|other| other.bytes),
    ];
    let message = usually(&|other| each(other.us, other.messages));
    Some(Hint {
        peers: vec![one.number],
        ms_per_second: one.us / 1e3,
        times: one.us / usual,
        reason: format!(
            "{:.2} ms/s beyond the transactions and blocks that the node took: {:.0} times the \
             median of {} {kind} peers ({:.2} ms/s). {:.1} messages/s ({messages:.1} there), {} \
             each ({} there), {}/s ({}/s there)",
            one.us / 1e3,
            one.us / usual,
            others.len(),
            usual / 1e3,
            one.messages,
            time(each(one.us, one.messages)),
            time(message),
            bytes(one.bytes),
            bytes(usual_bytes),
        ),
        loses: loses(tally, &[one]),
        command: format!("bitcoin-cli disconnectnode \"\" {}", one.number),
    })
}

/// Parts of the network with several inbound peers, each of which is out of proportion or all of
/// which together take much.
fn groups(tally: &Tally, all: &[Candidate<'_>]) -> Vec<Hint> {
    let mut by_subnet: BTreeMap<String, Vec<&Candidate<'_>>> = BTreeMap::new();
    for one in all.iter().filter(|one| one.is_inbound()) {
        if let Some(name) = one.peer.connection.as_ref().and_then(subnet)
            && name != LOCAL
        {
            by_subnet.entry(name).or_default().push(one);
        }
    }
    let total: f64 = all.iter().map(|one| one.us).sum();
    let hint = |(name, group): (String, Vec<&Candidate<'_>>)| {
        let range = range(&group)?;
        let is_of = |one: &Candidate<'_>| group.iter().any(|other| other.number == one.number);
        let others: Vec<_> = all.iter().filter(|one| !is_of(one)).collect();
        if group.len() < LEAST_GROUP || others.len() < LEAST_OTHERS {
            return None;
        }
        let us: f64 = group.iter().map(|one| one.us).sum();
        let error = group
            .iter()
            .map(|one| one.error.powi(2))
            .sum::<f64>()
            .sqrt();
        let usual = median(others.iter().map(|other| other.us)).max(1.0);
        let each = us / group.len() as f64;
        let least = FACTOR * usual * group.len() as f64;
        if us < LEAST_US || us - error < least || us < GROUP_SHARE * total {
            return None;
        }
        Some(Hint {
            peers: group.iter().map(|one| one.number).collect(),
            ms_per_second: us / 1e3,
            times: each / usual,
            reason: format!(
                "{} inbound peers of {name} cost {:.2} ms/s beyond the transactions and blocks \
                 that the node took, {:.0} % of what all peers cost: {:.2} ms/s each, {:.0} times \
                 the median of the {} others ({:.2} ms/s)",
                group.len(),
                us / 1e3,
                100.0 * us / total.max(f64::MIN_POSITIVE),
                each / 1e3,
                each / usual,
                others.len(),
                usual / 1e3,
            ),
            loses: loses(tally, &group),
            command: format!("bitcoin-cli setban \"{range}\" add {BAN_SECONDS}"),
        })
    };
    by_subnet.into_iter().filter_map(hint).collect()
}

/// The smallest range that a ban should name for these peers: 24 bits of IPv4 or 48 of IPv6 if all
/// are within, else 16 or 32. `None` for a network without ranges.
fn range(group: &[&Candidate<'_>]) -> Option<String> {
    let address = |one: &&Candidate<'_>| ip(&one.peer.connection.as_ref()?.address);
    let all: Option<Vec<IpAddr>> = group.iter().map(address).collect();
    let all = all?;
    match all.first()? {
        IpAddr::V4(first) => {
            let [a, b, c, _] = first.octets();
            let is_near =
                |ip: &IpAddr| matches!(ip, IpAddr::V4(ip) if ip.octets()[..3] == [a, b, c]);
            Some(match all.iter().all(is_near) {
                true => format!("{a}.{b}.{c}.0/24"),
                false => format!("{a}.{b}.0.0/16"),
            })
        }
        IpAddr::V6(first) => {
            let [a, b, c, ..] = first.segments();
            let is_near =
                |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.segments()[..3] == [a, b, c]);
            Some(match all.iter().all(is_near) {
                true => format!("{a:x}:{b:x}:{c:x}::/48"),
                false => format!("{a:x}:{b:x}::/32"),
            })
        }
    }
}

/// What the node would lose without these peers.
fn loses(tally: &Tally, group: &[&Candidate<'_>]) -> Vec<String> {
    let mut loses = Vec::new();
    let is_of = |number: i64| group.iter().any(|one| one.number == number);
    let one_of = |what: &str| match group {
        [_] => format!("it {what}"),
        _ => format!("one of them {what}"),
    };
    let blocks = tally.blocks();
    if blocks.last_first().is_some_and(|by| is_of(by.peer)) {
        loses.push(one_of("announced the last block first"));
    }
    let of_group = |of: &dyn Fn(i64) -> u64| group.iter().map(|one| of(one.number)).sum::<u64>();
    let first = of_group(&|number| blocks.given(number).first);
    if first > 0 {
        loses.push(format!(
            "{first} of {} blocks announced first",
            blocks.sums().connected.max(first)
        ));
    }
    let of_all: u64 = tally.peers().map(|(_, peer)| peer.seen.transactions).sum();
    let transactions: u64 = group.iter().map(|one| one.peer.seen.transactions).sum();
    if transactions * 10 > of_all {
        loses.push(format!(
            "{:.0} % of the transactions",
            100.0 * transactions as f64 / of_all as f64
        ));
    }
    let network = |peer: &Peer| peer.connection.as_ref().and_then(|known| known.network);
    for network_of in Network::ALL {
        let connected = tally.peers().filter(|(_, peer)| peer.gone().is_none());
        let mut there = connected.filter(|(_, peer)| network(peer) == Some(network_of));
        let is_all = group
            .iter()
            .any(|one| network(one.peer) == Some(network_of))
            && there.all(|(number, _)| is_of(number));
        if is_all && network_of != Network::Unroutable {
            loses.push(match group {
                [_] => format!("the only peer of {network_of}"),
                _ => format!("all peers of {network_of}"),
            });
        }
    }
    for one in group {
        match one.peer.slot {
            Slot::OutboundFullRelay | Slot::OutboundBlockRelay => loses.push(format!(
                "peer {} is outbound: the node replaces it with another",
                one.number
            )),
            Slot::Manual => loses.push(format!(
                "you added peer {} yourself: the node connects to it again",
                one.number
            )),
            _ => {}
        }
    }
    loses
}
