//! What an operator could do about peers whose cost is out of proportion, and what that would lose.
//!
//! A peer's cost here excludes the transactions and blocks that the node took from it, and headers
//! that synchronize: it would have had these from another peer, at the same cost. A peer is out of
//! proportion if it costs [`FACTOR`] times the median of the others of its kind, even if the true
//! value is two standard errors lower, and at least [`LEAST_US`].

use crate::format::{bytes, time};
use crate::record::{Connection, ConnectionType, Network};
use crate::tally::{LOCAL, Peer, Slot, Tally, ip, is_local, masked, subnet};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// How many times the median of the others a peer must cost.
pub const FACTOR: f64 = 5.0;

/// The least cost that is worth a hint, in CPU microseconds per second: 0.1 % of a core. Published
/// means are 84 to 662.
pub const LEAST_US: f64 = 1000.0;

/// How long a peer must have been observed, in microseconds: five windows of the default length.
pub const LEAST_OBSERVED: u64 = 2_500_000;

/// The fewest windows in which it must have been observed: the sampling error needs some.
pub const LEAST_WINDOWS: u64 = 5;

/// Maximum number of hints.
pub const MAX_HINTS: usize = 20;

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
        let is_little = seen.observed < LEAST_OBSERVED || peer.cpu.windows() < LEAST_WINDOWS;
        if peer.gone().is_some() || is_little {
            return None;
        }
        let seconds = seen.observed as f64 / 1e6;
        let useful = seen.useful.cost.cpu_ns;
        let messages = seen.received.count.saturating_sub(seen.useful.count);
        Some(Self {
            number,
            peer,
            us: seen.cpu_ns().saturating_sub(useful) as f64 / 1e3 / seconds,
            error: 2.0 * tally.error(&peer.cpu).unwrap_or(0.0) / 1e3,
            messages: messages.saturating_add(seen.sent.count) as f64 / seconds,
            bytes: seen.received.bytes.saturating_add(seen.sent.bytes) as f64 / seconds,
        })
    }

    fn is_inbound(&self) -> bool {
        let connection = self.peer.connection.as_ref();
        connection.is_some_and(|known| known.kind == ConnectionType::Inbound)
    }
}

/// The hints for the peers that are connected now, the costliest first, at most [`MAX_HINTS`]. Empty
/// if the source does not measure time per peer.
#[must_use]
pub fn hints(tally: &Tally) -> Vec<Hint> {
    if !tally.timed() {
        return Vec::new();
    }
    let mut all: Vec<Candidate<'_>> = tally
        .peers()
        .filter_map(|(number, peer)| Candidate::of(tally, number, peer))
        .collect();
    all.sort_by(|one, other| other.us.total_cmp(&one.us));
    let usual = Usual::of(&all);
    let mut hints = groups(tally, &all, &usual);
    let grouped: BTreeSet<i64> = hints.iter().flat_map(|hint| hint.peers.clone()).collect();
    let single = all.iter().filter(|one| !grouped.contains(&one.number));
    let costly = single.filter(|one| usual.is_exceeded_by(one));
    let costly: Vec<&Candidate<'_>> = costly.take(MAX_HINTS).collect();
    hints.extend(
        costly
            .into_iter()
            .map(|one| alone(tally, &all, one, &usual)),
    );
    hints.sort_by(|one, other| other.ms_per_second.total_cmp(&one.ms_per_second));
    hints.truncate(MAX_HINTS);
    hints
}

/// What peers usually cost: the costs of all, and of each kind, in ascending order.
struct Usual {
    all: Vec<f64>,
    kinds: BTreeMap<Slot, Vec<f64>>,
}

impl Usual {
    fn of(all: &[Candidate<'_>]) -> Self {
        let mut usual = Self {
            all: Vec::new(),
            kinds: BTreeMap::new(),
        };
        // The costliest come first in `all`.
        for one in all.iter().rev() {
            usual.all.push(one.us);
            usual.kinds.entry(one.peer.slot).or_default().push(one.us);
        }
        usual
    }

    /// The kind that a peer is compared with. `None` if that has too few, so that it is all peers.
    fn kind(&self, one: &Candidate<'_>) -> Option<Slot> {
        let slot = one.peer.slot;
        let count = self.kinds.get(&slot).map_or(0, Vec::len);
        (slot != Slot::Unknown && count > LEAST_OTHERS).then_some(slot)
    }

    /// How many others a peer is compared with, and their median cost.
    fn others(&self, one: &Candidate<'_>) -> (usize, f64) {
        let costs = match self.kind(one) {
            Some(slot) => &self.kinds[&slot],
            None => &self.all,
        };
        // A peer that is named costs more than the median: the others are the rest of the list.
        let count = costs.len().saturating_sub(1);
        (count, costs.get(count / 2).copied().unwrap_or(0.0).max(1.0))
    }

    fn is_exceeded_by(&self, one: &Candidate<'_>) -> bool {
        let (count, median) = self.others(one);
        count >= LEAST_OTHERS && one.us >= LEAST_US && one.us - one.error >= FACTOR * median
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn alone(tally: &Tally, all: &[Candidate<'_>], one: &Candidate<'_>, usual: &Usual) -> Hint {
    let kind = usual.kind(one);
    let (count, cost) = usual.others(one);
    let others = || {
        let rest = all.iter().filter(|other| other.number != one.number);
        rest.filter(|other| kind.is_none_or(|kind| other.peer.slot == kind))
    };
    let each = |us: f64, count: f64| match count > 0.0 {
        true => us / count,
        false => 0.0,
    };
    let messages = median(others().map(|other| other.messages));
    let of_all = median(others().map(|other| other.bytes));
    let message = median(others().map(|other| each(other.us, other.messages)));
    Hint {
        peers: vec![one.number],
        ms_per_second: one.us / 1e3,
        times: one.us / cost,
        reason: format!(
            "{:.2} ms/s beyond the transactions and blocks that the node took: {:.0} times the \
             median of {count} {} peers ({:.2} ms/s). {:.1} messages/s ({messages:.1} there), {} \
             each ({} there), {}/s ({}/s there)",
            one.us / 1e3,
            one.us / cost,
            kind.map_or("other", Slot::name),
            cost / 1e3,
            one.messages,
            time(each(one.us, one.messages)),
            time(message),
            bytes(one.bytes),
            bytes(of_all),
        ),
        loses: loses(tally, &[one]),
        command: format!("bitcoin-cli disconnectnode \"\" {}", one.number),
    }
}

/// Groups of inbound peers of one part of the network, each of which is out of proportion, and which
/// together take [`GROUP_SHARE`] of the cost of all. Only where a ban of their range hits no other
/// connected peer, and the addresses of all are known.
fn groups(tally: &Tally, all: &[Candidate<'_>], usual: &Usual) -> Vec<Hint> {
    let mut by_subnet: BTreeMap<String, Vec<(&Candidate<'_>, IpAddr)>> = BTreeMap::new();
    let costly = all.iter().filter(|one| one.is_inbound());
    for one in costly.filter(|one| usual.is_exceeded_by(one)) {
        if let Some(connection) = &one.peer.connection
            && let Some(name) = subnet(connection)
            && let Some(ip) = range_ip(connection)
        {
            by_subnet.entry(name).or_default().push((one, ip));
        }
    }
    let total: f64 = all.iter().map(|one| one.us).sum();
    let hint = |(name, group): (String, Vec<(&Candidate<'_>, IpAddr)>)| {
        let us: f64 = group.iter().map(|(one, _)| one.us).sum();
        if group.len() < LEAST_GROUP || us < GROUP_SHARE * total {
            return None;
        }
        let (range, is_in) = range(&group)?;
        let group: Vec<&Candidate<'_>> = group.into_iter().map(|(one, _)| one).collect();
        let numbers: BTreeSet<i64> = group.iter().map(|one| one.number).collect();
        let connected = tally.peers().filter(|(_, peer)| peer.gone().is_none());
        let mut others = connected.filter(|(number, _)| !numbers.contains(number));
        let is_hit = |peer: &Peer| match &peer.connection {
            Some(known) => ip(&known.address).is_some_and(&is_in),
            // Nobody knows.
            None => true,
        };
        if others.any(|(_, peer)| is_hit(peer)) {
            return None;
        }
        let (count, median) = usual.others(group[0]);
        let each = us / group.len() as f64;
        Some(Hint {
            peers: group.iter().map(|one| one.number).collect(),
            ms_per_second: us / 1e3,
            times: each / median,
            reason: format!(
                "{} inbound peers of {name} cost {:.2} ms/s beyond the transactions and blocks \
                 that the node took, {:.0} % of what all peers cost: {:.2} ms/s each, {:.0} times \
                 the median of {count} others ({:.2} ms/s)",
                group.len(),
                us / 1e3,
                100.0 * us / total.max(f64::MIN_POSITIVE),
                each / 1e3,
                each / median,
                median / 1e3,
            ),
            loses: loses(tally, &group),
            command: format!("bitcoin-cli setban \"{range}\" add {BAN_SECONDS}"),
        })
    };
    by_subnet.into_iter().filter_map(hint).collect()
}

/// The address by which a connection can be banned. `None` for onion services and the like, whose
/// connections come from this machine, and for local addresses.
fn range_ip(connection: &Connection) -> Option<IpAddr> {
    match connection.network.is_some_and(Network::hides_addresses) {
        true => None,
        false => ip(&connection.address).filter(|ip| !is_local(*ip)),
    }
}

/// The smallest range that a ban should name for these peers, and whether an address is in it: 24
/// bits of IPv4 or 48 of IPv6 if all are within, else 16 or 32.
fn range(group: &[(&Candidate<'_>, IpAddr)]) -> Option<(String, impl Fn(IpAddr) -> bool + use<>)> {
    let (_, first) = *group.first()?;
    let lengths = if first.is_ipv4() { [3, 2] } else { [6, 4] };
    let is_in = move |len: usize| {
        move |ip: IpAddr| ip.is_ipv4() == first.is_ipv4() && masked(ip, len) == masked(first, len)
    };
    let len = lengths
        .into_iter()
        .find(|len| group.iter().all(|(_, ip)| is_in(*len)(*ip)))?;
    let start = masked(first, len);
    Some((format!("{start}/{}", 8 * len), is_in(len)))
}

/// What the node would lose without these peers.
fn loses(tally: &Tally, group: &[&Candidate<'_>]) -> Vec<String> {
    let mut loses = Vec::new();
    let numbers: BTreeSet<i64> = group.iter().map(|one| one.number).collect();
    let is_of = |number: i64| numbers.contains(&number);
    let one_of = |what: &str| match group {
        [_] => format!("it {what}"),
        _ => format!("one of them {what}"),
    };
    let blocks = tally.blocks();
    if blocks.last_first().is_some_and(|by| is_of(by.peer)) {
        loses.push(one_of("announced the last block first"));
    }
    let of_group = |of: &dyn Fn(i64) -> u64| group.iter().map(|one| of(one.number)).sum::<u64>();
    let first = of_group(&|number| blocks.given(number).map_or(0, |given| given.first));
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
    let connected = || tally.peers().filter(|(_, peer)| peer.gone().is_none());
    let are_known = connected().all(|(_, peer)| network(peer).is_some());
    for network_of in Network::ALL.into_iter().filter(|_| are_known) {
        let mut there = connected().filter(|(_, peer)| network(peer) == Some(network_of));
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
        let is_here = one.peer.connection.as_ref().and_then(subnet);
        if is_here.is_some_and(|name| name == LOCAL) {
            loses.push(format!(
                "peer {} is on this machine or in a local network: perhaps a service of yours",
                one.number
            ));
        }
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
