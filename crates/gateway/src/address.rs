//! Peer addresses: network groups, counts by address and group, and the loopback address that
//! represents each peer to the node.

use crate::dial::lock;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Known only to this process, so that no peer can choose its loopback address.
pub(crate) type Secret = [u8; 32];

/// The bytes of an address that identify its owner, who has the whole /64 of an IPv6 address; and
/// those of its network group, as in Bitcoin Core without an asmap.
fn keys(address: IpAddr) -> [Vec<u8>; 2] {
    match address.to_canonical() {
        IpAddr::V4(address) => [4, 2].map(|len| address.octets()[..len].to_vec()),
        IpAddr::V6(address) => [8, 4].map(|len| address.octets()[..len].to_vec()),
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
    /// By address, and by network group.
    counts: [HashMap<Vec<u8>, Count>; 2],
}

#[derive(Debug, Default)]
struct Count {
    number: usize,
    /// Made when it is first asked for.
    rate: Option<Arc<Rate>>,
}

impl Groups {
    pub(crate) fn all(&self) -> usize {
        self.all
    }

    /// How many there are of the address and of its network group.
    pub(crate) fn of(&self, address: IpAddr) -> [usize; 2] {
        let keys = keys(address);
        std::array::from_fn(|of| {
            self.counts[of]
                .get(&keys[of])
                .map_or(0, |count| count.number)
        })
    }

    /// Which rates the traffic of an address counts for. The address must have been added.
    pub(crate) fn rates(&mut self, address: IpAddr) -> [Arc<Rate>; 2] {
        let keys = keys(address);
        std::array::from_fn(|of| {
            let count = self.counts[of].get_mut(&keys[of]);
            let rate = count.map(|count| count.rate.get_or_insert_default());
            rate.cloned().unwrap_or_default()
        })
    }

    /// Adds one. The address is `None` until a load balancer has told it.
    pub(crate) fn add(&mut self, address: Option<IpAddr>) {
        self.all += 1;
        let keys = address.map(keys).into_iter().flatten();
        for (counts, key) in self.counts.iter_mut().zip(keys) {
            counts.entry(key).or_default().number += 1;
        }
    }

    /// Removes one that was added.
    pub(crate) fn remove(&mut self, address: Option<IpAddr>) {
        self.all -= 1;
        let keys = address.map(keys).into_iter().flatten();
        for (counts, key) in self.counts.iter_mut().zip(keys) {
            if let Entry::Occupied(mut count) = counts.entry(key) {
                count.get_mut().number -= 1;
                if count.get().number == 0 {
                    count.remove();
                }
            }
        }
    }
}

/// Bytes that were moved lately for an address or a network group.
#[derive(Debug, Default)]
pub(crate) struct Rate(Mutex<Recent>);

#[derive(Debug, Default)]
struct Recent {
    /// Since when bytes are counted: `None` before the first question.
    since: Option<Instant>,
    /// Bytes since then that no second has paid for yet.
    bytes: usize,
}

impl Rate {
    /// Counts bytes that were moved, after [`Rate::is_over`] allowed it.
    pub(crate) fn add(&self, bytes: usize) {
        lock(&self.0).bytes += bytes;
    }

    /// Whether more bytes were moved than are allowed by now. Each second allows `limit` bytes; what
    /// was moved beyond them is subtracted from what the next ones allow.
    pub(crate) fn is_over(&self, limit: usize, now: Instant) -> bool {
        let mut recent = lock(&self.0);
        let since = *recent.since.get_or_insert(now);
        let seconds = now.saturating_duration_since(since).as_secs();
        if seconds > 0 {
            recent.bytes = recent
                .bytes
                .saturating_sub(limit.saturating_mul(seconds as usize));
            recent.since = Some(since + Duration::from_secs(seconds));
        }
        recent.bytes >= limit
    }
}

/// The loopback address 127.x.y.z for a peer: x from its network group, y and z from its address.
/// Never 127.0.y.z, which other programs use, nor the broadcast address.
pub(crate) fn loopback(secret: &Secret, peer: IpAddr) -> Ipv4Addr {
    let [holder, group] = keys(peer);
    let digest = |bytes: &[u8]| {
        Sha256::new()
            .chain_update(secret)
            .chain_update(bytes)
            .finalize()
    };
    let x = 1 + digest(&group)[0] % 254;
    let of_address = digest(&holder);
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
        let counts = |groups: &Groups| (groups.all(), groups.of(a), groups.of(b), groups.of(c));
        assert_eq!(counts(&groups), (4, [2, 3], [1, 3], [1, 1]));
        groups.add(None);
        groups.remove(Some(a));
        groups.remove(Some(c));
        assert_eq!(counts(&groups), (3, [1, 2], [1, 2], [0, 0]));
        groups.remove(None);
        assert_eq!(groups.all(), 2);
        assert_eq!(groups.counts.each_ref().map(HashMap::len), [2, 1]);
        let [of_a, of_group] = groups.rates(a);
        let [of_b, same_group] = groups.rates(b);
        assert!(Arc::ptr_eq(&of_group, &same_group) && !Arc::ptr_eq(&of_a, &of_b));
    }

    /// What exceeds one second is subtracted from the next ones.
    #[test]
    fn a_rate_holds_over_many_seconds() {
        let start = Instant::now();
        let at = |tenths: u64| start + Duration::from_millis(100 * tenths);
        let rate = Rate::default();
        assert!(!rate.is_over(100, at(0)));
        rate.add(99);
        assert!(!rate.is_over(100, at(9)));
        rate.add(201);
        for (tenths, expected) in [(9, true), (10, true), (19, true), (20, true), (30, false)] {
            assert_eq!(rate.is_over(100, at(tenths)), expected, "{tenths}");
        }
        // Seconds in which nothing moved allow no more later.
        assert!(!rate.is_over(100, at(1000)));
        rate.add(100);
        assert!(rate.is_over(100, at(1000)) && !rate.is_over(usize::MAX, at(1000)));
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
