//! Connections grouped by a property: the peers' user agent, or their part of the network.

use super::peer::{Peer, Seen};
use crate::record::{Connection, Network, Time};
use crate::statistics::Distribution;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Maximum number of groups that are kept apart, at least: the costliest. The rest is one group,
/// [`OTHER_GROUP`].
pub const MAX_GROUPS: usize = 200;

/// The name for groups beyond [`MAX_GROUPS`].
pub const OTHER_GROUP: &str = "(other)";

/// The part of the network that Bitcoin Core takes for one operator: 16 bits of an IPv4 address, 32
/// of an IPv6 one. Onion services and the like have no such parts: all of a network are together.
/// `None` if the address is not one, as in a capture.
#[must_use]
pub fn subnet(connection: &Connection) -> Option<String> {
    if let Some(network) = connection
        .network
        .filter(|network| network.hides_addresses())
    {
        return Some(network.name().to_owned());
    }
    if connection.address.contains(".onion") {
        return Some(Network::Onion.name().to_owned());
    }
    if connection.address.contains(".i2p") {
        return Some(Network::I2p.name().to_owned());
    }
    Some(match ip(&connection.address)? {
        ip if is_local(ip) => LOCAL.to_owned(),
        ip if ip.is_ipv4() => format!("{}/16", masked(ip, 2)),
        ip => format!("{}/32", masked(ip, 4)),
    })
}

/// An address with all but its first `len` bytes 0.
#[must_use]
pub fn masked(ip: IpAddr, len: usize) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mut octets = ip.octets();
            octets[len..].fill(0);
            octets.into()
        }
        IpAddr::V6(ip) => {
            let mut octets = ip.octets();
            octets[len..].fill(0);
            octets.into()
        }
    }
}

/// The group of addresses of this machine and of local networks.
pub const LOCAL: &str = "local";

/// Whether an address is on this machine or in a local network.
#[must_use]
pub fn is_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

/// The IP address in an address as the node prints it, with or without a port.
#[must_use]
pub fn ip(address: &str) -> Option<IpAddr> {
    let with_port = address.parse().map(|address: SocketAddr| address.ip());
    let ip = with_port.or_else(|_| address.parse()).ok()?;
    Some(ip.to_canonical())
}

/// The connections of one group.
#[derive(Clone, Debug, Default)]
pub struct GroupCost {
    /// Connections of at least a minute.
    pub connections: u64,
    /// Connections shorter than a minute, including those not yet a minute old.
    pub short: u64,
    /// CPU nanoseconds per second: a value for each connection of at least a minute, weighted as in
    /// [`SlotCost::cpu`](super::SlotCost::cpu).
    pub cpu: Distribution,
    /// Sum over all connections.
    pub seen: Seen,
}

impl GroupCost {
    fn add(&mut self, other: &Self) {
        self.connections += other.connections;
        self.short += other.short;
        self.cpu.merge(&other.cpu);
        self.seen.add(&other.seen);
    }
}

/// Costs by group.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups(pub(super) BTreeMap<String, GroupCost>);

impl Groups {
    /// Adds a connection to the group `name`.
    pub(super) fn add(&mut self, name: &str, peer: &Peer, last: Time) {
        if !self.0.contains_key(name) {
            self.make_room();
        }
        let cost = self.0.entry(name.to_owned()).or_default();
        cost.seen.add(&peer.seen);
        if peer.is_short(last) {
            cost.short += 1;
            return;
        }
        cost.connections += 1;
        cost.cpu.add(peer.cpu.per_second(), peer.cpu.seconds());
    }

    /// Joins the cheaper half if there are twice [`MAX_GROUPS`].
    fn make_room(&mut self) {
        if self.0.len() < 2 * MAX_GROUPS {
            return;
        }
        let mut all: Vec<(String, GroupCost)> = std::mem::take(&mut self.0).into_iter().collect();
        let key = |cost: &GroupCost| {
            (
                cost.seen.cpu_ns(),
                cost.seen.received.bytes,
                cost.connections,
            )
        };
        all.sort_by_key(|(name, cost)| (name == OTHER_GROUP, std::cmp::Reverse(key(cost))));
        let mut rest = GroupCost::default();
        for (_, cost) in all.drain(MAX_GROUPS..) {
            rest.add(&cost);
        }
        self.0 = all.into_iter().collect();
        self.0.insert(OTHER_GROUP.to_owned(), rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::ConnectionType;

    #[test]
    fn parts_of_the_network() {
        let of = |address: &str, network| {
            subnet(&Connection {
                address: address.to_owned(),
                kind: ConnectionType::Inbound,
                network,
                transport: None,
                relay: None,
                user_agent: None,
                since: None,
            })
        };
        for (address, network, expected) in [
            ("192.0.2.7:8333", None, "192.0.0.0/16"),
            ("[2001:db8:1::1]:8333", Some(Network::Ipv6), "2001:db8::/32"),
            ("[::ffff:192.0.2.7]:8333", None, "192.0.0.0/16"),
            ("192.0.2.7", None, "192.0.0.0/16"),
            ("abc.onion:8333", None, "onion"),
            ("abc.b32.i2p:0", None, "i2p"),
            ("127.0.0.1:4000", Some(Network::Onion), "onion"),
            ("127.0.0.1:4000", None, LOCAL),
            ("10.1.2.3:8333", None, LOCAL),
            ("[fd00::1]:8333", None, LOCAL),
            ("[fc00::1]:8333", Some(Network::Cjdns), "cjdns"),
        ] {
            assert_eq!(of(address, network).as_deref(), Some(expected), "{address}");
        }
        assert_eq!(of("192.0.2.7_8333", None), None);
    }
}
