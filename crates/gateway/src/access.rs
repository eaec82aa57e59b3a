//! Which addresses may connect.

use crate::settings::ParseError;
use ipnet::{IpNet, Ipv6Net};
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

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
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let one_address = || text.parse().map(|ip: IpAddr| ip.into());
        match text.parse().or_else(|_| one_address()) {
            Ok(IpNet::V4(net)) => {
                let first = net.network().to_ipv6_mapped();
                Ok(Self(Ipv6Net::new_assert(first, 96 + net.prefix_len())))
            }
            Ok(IpNet::V6(net)) => Ok(Self(net)),
            Err(_) => Err(ParseError {
                expected: "an address or a network, such as 192.0.2.0/24 or 2001:db8::/32",
            }),
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

#[cfg(test)]
mod tests {
    use super::*;

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
