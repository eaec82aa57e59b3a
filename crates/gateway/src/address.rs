//! Peer addresses: their networks, and the loopback address that represents each peer to the node.

use ipnet::IpNet;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The network of an address's owner, who has the whole /64 of an IPv6 address; and the address's
/// network group, as in Bitcoin Core without an asmap.
pub(crate) fn networks(address: IpAddr) -> [IpNet; 2] {
    let address = address.to_canonical();
    let lengths = match address.is_ipv4() {
        true => [32, 16],
        false => [64, 32],
    };
    lengths.map(|len| IpNet::new_assert(address, len).trunc())
}

/// Converts an IPv4-mapped IPv6 address, as a dual-stack socket reports it, to IPv4.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => (ip, address.port()).into(),
        // Keeps the scope.
        IpAddr::V6(_) => address,
    }
}

/// The loopback address 127.x.y.z for a peer: x from its network group, y and z from its owner's
/// network. Never 127.0.y.z, which other programs use, nor the broadcast address. `secret` is known
/// only to this process, so that no peer can choose its loopback address.
pub(crate) fn loopback(secret: &impl BuildHasher, peer: IpAddr) -> Ipv4Addr {
    let [owner, group] = networks(peer).map(|network| secret.hash_one(network).to_be_bytes());
    Ipv4Addr::new(127, 1 + group[0] % 254, owner[0], 1 + owner[1] % 254)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{BuildHasherDefault, DefaultHasher, RandomState};

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
        let secret = BuildHasherDefault::<DefaultHasher>::default();
        let of = |address: &str| loopback(&secret, address.parse().unwrap()).octets();
        assert_eq!(of("203.0.113.5"), of("203.0.113.5"));
        assert_eq!(of("203.0.113.5"), of("::ffff:203.0.113.5"));
        assert_eq!(of("203.0.113.5")[..2], of("203.0.200.9")[..2]);
        assert_ne!(of("203.0.113.5")[2..], of("203.0.113.6")[2..]);
        assert_eq!(of("2001:db8::1"), of("2001:db8::2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(
            of("203.0.113.5"),
            loopback(&RandomState::new(), "203.0.113.5".parse().unwrap()).octets()
        );
        for last in 0..=255_u8 {
            let [a, x, _, z] = of(&format!("{last}.1.2.{last}"));
            assert!(a == 127 && x > 0 && x < 255 && z > 0 && z < 255);
        }
    }
}
