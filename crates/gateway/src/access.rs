//! Which addresses may connect.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// A network in CIDR notation, or one address: `192.0.2.0/24`, `2001:db8::/32`, `198.51.100.7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    /// As IPv6 addresses; IPv4 is mapped.
    first: u128,
    last: u128,
}

/// A text is not a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkError;

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected an address or a network, such as 192.0.2.0/24 or 2001:db8::/32")
    }
}

impl std::error::Error for NetworkError {}

fn bits(ip: IpAddr) -> u128 {
    let ip: Ipv6Addr = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    ip.to_bits()
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (ip, len) = match text.split_once('/') {
            Some((ip, len)) => (ip, Some(len.parse::<u32>().map_err(|_| NetworkError)?)),
            None => (text, None),
        };
        let ip: IpAddr = ip.parse().map_err(|_| NetworkError)?;
        let most: u32 = if ip.is_ipv4() { 32 } else { 128 };
        let host_bits = most.checked_sub(len.unwrap_or(most)).ok_or(NetworkError)?;
        // `checked_shr` refuses all 128 bits.
        let host = u128::MAX.checked_shr(128 - host_bits).unwrap_or(0);
        let ip = bits(ip);
        Ok(Self {
            first: ip & !host,
            last: ip | host,
        })
    }
}

/// A set of addresses. Looking one up takes logarithmic time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressSet {
    /// In order, without overlaps.
    ranges: Vec<Network>,
}

impl FromIterator<Network> for AddressSet {
    fn from_iter<I: IntoIterator<Item = Network>>(networks: I) -> Self {
        let mut all: Vec<_> = networks.into_iter().collect();
        all.sort_unstable_by_key(|network| network.first);
        let mut ranges: Vec<Network> = Vec::with_capacity(all.len());
        for network in all {
            match ranges.last_mut() {
                Some(before) if network.first <= before.last => {
                    before.last = before.last.max(network.last);
                }
                _ => ranges.push(network),
            }
        }
        Self { ranges }
    }
}

impl AddressSet {
    /// Whether no address is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether an address is in it. An IPv4-mapped IPv6 address is IPv4.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        let ip = bits(ip);
        let after = self.ranges.partition_point(|range| range.first <= ip);
        after > 0 && ip <= self.ranges[after - 1].last
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
            assert_eq!(wrong.parse::<Network>(), Err(NetworkError), "{wrong}");
        }
    }
}
