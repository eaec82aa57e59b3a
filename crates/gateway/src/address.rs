//! Networks and sets of addresses, and what represents a peer's address: to limits its networks, to
//! the node a loopback address.

use ipnet::{IpNet, Ipv6Net};
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// A text is not a [`Network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an address or a network, such as 192.0.2.0/24 or 2001:db8::/32")]
pub struct NetworkError;

/// A network in CIDR notation, or one address: `192.0.2.0/24`, `2001:db8::/32`, `198.51.100.7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network(Ipv6Net);

/// IPv4 is mapped, so that an address is the same in both notations.
pub(crate) fn mapped(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let one_address = || text.parse().map(|ip: IpAddr| ip.into());
        match text.parse().or_else(|_| one_address()) {
            Ok(IpNet::V4(net)) => {
                let first = net.network().to_ipv6_mapped();
                Ok(Self(Ipv6Net::new_assert(first, 96 + net.prefix_len())))
            }
            Ok(IpNet::V6(net)) => Ok(Self(net)),
            Err(_) => Err(NetworkError),
        }
    }
}

/// A set of addresses. Looking one up takes logarithmic time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressSet {
    /// In order, without overlaps.
    networks: Vec<Ipv6Net>,
}

impl FromIterator<Network> for AddressSet {
    fn from_iter<I: IntoIterator<Item = Network>>(networks: I) -> Self {
        let all = networks.into_iter().map(|network| network.0).collect();
        Self {
            networks: Ipv6Net::aggregate(&all),
        }
    }
}

impl AddressSet {
    /// Whether no address is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }

    /// Whether an address is in it. An IPv4-mapped IPv6 address is IPv4.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        let ip = mapped(ip);
        let after = self.networks.partition_point(|net| net.network() <= ip);
        after > 0 && self.networks[after - 1].contains(&ip)
    }
}

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

    fn set(networks: &[&str]) -> AddressSet {
        networks
            .iter()
            .map(|text| text.parse::<Network>().unwrap())
            .collect()
    }

    #[test]
    fn addresses_are_found() {
        let set = set(&[
            "192.0.2.0/24",
            "192.0.2.128/25",
            "198.51.100.7",
            "2001:db8::/32",
            "203.0.113.9/31",
            "2a00::1/128",
        ]);
        for (ip, expected) in [
            ("192.0.2.0", true),
            ("192.0.2.255", true),
            ("192.0.3.0", false),
            ("192.0.1.255", false),
            ("198.51.100.7", true),
            ("198.51.100.8", false),
            ("203.0.113.8", true),
            ("203.0.113.9", true),
            ("203.0.113.10", false),
            ("::ffff:192.0.2.1", true),
            ("2001:db8:ffff::1", true),
            ("2001:db9::", false),
            ("2a00::1", true),
            ("2a00::", false),
        ] {
            assert_eq!(set.contains(ip.parse().unwrap()), expected, "{ip}");
        }
    }

    #[test]
    fn all_and_none() {
        let ips = ["0.0.0.0", "255.255.255.255", "::", "2001:db8::1"];
        let expected = [true, true, true, true];
        for (set, expected) in [
            (set(&["0.0.0.0/0", "::/0"]), expected),
            (set(&["0.0.0.0/0"]), [true, true, false, false]),
            (set(&[]), [false; 4]),
        ] {
            assert_eq!(ips.map(|ip| set.contains(ip.parse().unwrap())), expected);
        }
        assert!(set(&[]).is_empty() && !set(&["::1"]).is_empty());
    }

    #[test]
    fn what_is_no_network() {
        for wrong in [
            "",
            "/",
            "192.0.2.0/33",
            "::/129",
            "192.0.2.0/-1",
            "192.0.2/24",
            "a/8",
        ] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }
}
