//! Peer addresses: network groups, counts of half-open connections, and the loopback address that
//! represents each peer to the node.

use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Known only to this process, so that no peer can choose its loopback address.
pub(crate) type Secret = [u8; 32];

/// The bytes of an address that identify its network group, as in Bitcoin Core without an asmap.
fn group(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets()[..2].to_vec(),
        IpAddr::V6(address) => address.octets()[..4].to_vec(),
    }
}

/// The bytes of an address that identify its owner: the owner of one IPv6 address has the whole
/// /64.
fn holder(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets()[..8].to_vec(),
    }
}

/// Converts an IPv4-mapped IPv6 address, as a dual-stack socket reports it, to IPv4.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => (ip, address.port()).into(),
        // Keeps the scope.
        IpAddr::V6(_) => address,
    }
}

/// Counts by address and by network group.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    all: usize,
    holders: HashMap<Vec<u8>, usize>,
    groups: HashMap<Vec<u8>, usize>,
}

impl Groups {
    pub(crate) fn all(&self) -> usize {
        self.all
    }

    pub(crate) fn of_address(&self, address: IpAddr) -> usize {
        let holder = holder(address.to_canonical());
        self.holders.get(&holder).copied().unwrap_or(0)
    }

    pub(crate) fn of_group(&self, address: IpAddr) -> usize {
        let group = group(address.to_canonical());
        self.groups.get(&group).copied().unwrap_or(0)
    }

    /// Adds one. The address is `None` until a load balancer has told it.
    pub(crate) fn add(&mut self, address: Option<IpAddr>) {
        self.all += 1;
        let Some(address) = address.map(|address| address.to_canonical()) else {
            return;
        };
        *self.holders.entry(holder(address)).or_default() += 1;
        *self.groups.entry(group(address)).or_default() += 1;
    }

    /// Removes one that was added.
    pub(crate) fn remove(&mut self, address: Option<IpAddr>) {
        self.all -= 1;
        let Some(address) = address.map(|address| address.to_canonical()) else {
            return;
        };
        let from = [
            (&mut self.holders, holder(address)),
            (&mut self.groups, group(address)),
        ];
        for (counts, key) in from {
            if let Entry::Occupied(mut count) = counts.entry(key) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }
}

/// The loopback address 127.x.y.z for a peer: x from its network group, y and z from its address.
/// Never 127.0.y.z, which other programs use, nor the broadcast address.
pub(crate) fn loopback(secret: &Secret, peer: IpAddr) -> Ipv4Addr {
    let peer = peer.to_canonical();
    let group = group(peer);
    let digest = |bytes: &[u8]| {
        Sha256::new()
            .chain_update(secret)
            .chain_update(bytes)
            .finalize()
    };
    let x = 1 + digest(&group)[0] % 254;
    let of_address = digest(&holder(peer));
    Ipv4Addr::new(127, x, of_address[0], 1 + of_address[1] % 254)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_groups_are_counted() {
        let mut groups = Groups::default();
        let [a, b, c] = ["203.0.113.5", "203.0.113.6", "2001:db8::1"].map(|a| a.parse().unwrap());
        for address in [a, a, b, c] {
            groups.add(Some(address));
        }
        let counts = |groups: &Groups| {
            let of = |address| (groups.of_address(address), groups.of_group(address));
            (groups.all(), of(a), of(b), of(c))
        };
        assert_eq!(counts(&groups), (4, (2, 3), (1, 3), (1, 1)));
        groups.add(None);
        groups.remove(Some(a));
        groups.remove(Some(c));
        assert_eq!(counts(&groups), (3, (1, 2), (1, 2), (0, 0)));
        groups.remove(None);
        assert_eq!(groups.all(), 2);
        assert_eq!((groups.holders.len(), groups.groups.len()), (2, 1));
    }

    #[test]
    fn mapped_ipv4_addresses_become_ipv4() {
        for (address, expected) in [
            ("[::ffff:203.0.113.5]:1", "203.0.113.5:1"),
            ("203.0.113.5:1", "203.0.113.5:1"),
            ("[fe80::1%7]:1", "[fe80::1%7]:1"),
        ] {
            let canonical = canonical(address.parse().unwrap());
            assert_eq!(canonical.to_string(), expected);
        }
    }

    #[test]
    fn loopback_addresses_follow_the_network_group() {
        let of = |address: &str| loopback(&[7; 32], address.parse().unwrap()).octets();
        assert_eq!(of("203.0.113.5"), of("203.0.113.5"));
        assert_eq!(of("203.0.113.5"), of("::ffff:203.0.113.5"));
        assert_eq!(of("203.0.113.5")[..2], of("203.0.200.9")[..2]);
        assert_ne!(of("203.0.113.5")[2..], of("203.0.113.6")[2..]);
        assert_eq!(of("2001:db8::1"), of("2001:db8::2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(
            of("203.0.113.5"),
            loopback(&[8; 32], "203.0.113.5".parse().unwrap()).octets()
        );
        for last in 0..=255_u8 {
            let [a, x, _, z] = of(&format!("{last}.1.2.{last}"));
            assert!(a == 127 && x > 0 && x < 255 && z > 0 && z < 255);
        }
    }
}
