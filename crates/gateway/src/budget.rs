//! Limits on what all connections of a gateway use together, across its threads. Inbound
//! connections and the node's own have separate limits.

use crate::address::networks;
use crate::dial::lock;
use crate::settings::{Limits, PerAddress};
use ipnet::IpNet;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use strum::{IntoStaticStr, VariantNames};

const MINUTE: Duration = Duration::from_secs(60);

/// Which side opened the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Direction {
    /// The peer connected to us.
    Inbound,
    /// The node connects to the peer.
    Outbound,
}

/// The limit that refused a connection, named as its setting without the direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
#[non_exhaustive]
pub enum Refusal {
    /// [`Limits::connections`](crate::Limits::connections), or
    /// [`Limits::outbound_connections`](crate::Limits::outbound_connections).
    Connections,
    /// [`Limits::half_open`](crate::Limits::half_open).
    HalfOpen,
    /// [`Limits::half_open_of`](crate::Limits::half_open_of), per address.
    HalfOpenAddress,
    /// [`Limits::half_open_of`](crate::Limits::half_open_of), per group.
    HalfOpenGroup,
    /// [`Limits::connections_of`](crate::Limits::connections_of), per address.
    ConnectionsAddress,
    /// [`Limits::connections_of`](crate::Limits::connections_of), per group.
    ConnectionsGroup,
    /// [`Limits::connection_rate`](crate::Limits::connection_rate), per address.
    #[strum(serialize = "connection-rate-address")]
    RateAddress,
    /// [`Limits::connection_rate`](crate::Limits::connection_rate), per group.
    #[strum(serialize = "connection-rate-group")]
    RateGroup,
    /// The address is not in [`Settings::allowed`](crate::Settings::allowed), or is in
    /// [`Settings::denied`](crate::Settings::denied).
    Denied,
    /// The process or the system has too many open files.
    Files,
}

/// What the connections of all threads use.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    /// Per direction. Locked when a connection starts, finishes its handshake, or ends.
    connections: [Mutex<Connections>; 2],
    /// Bytes held per direction, as last published by the threads.
    memory: [AtomicUsize; 2],
}

/// The connections of one direction.
#[derive(Debug, Default)]
struct Connections {
    open: usize,
    /// Those whose handshake is not done. Of the node's own, those whose client has yet to show the
    /// password.
    half_open: usize,
    /// By address and by network group.
    by_network: HashMap<IpNet, Counts>,
    /// When the current minute began.
    minute: Option<Instant>,
}

/// The connections of an address or of a network group.
#[derive(Debug, Default)]
struct Counts {
    open: usize,
    half_open: usize,
    /// Those that began in the current minute.
    recent: usize,
    rate: Arc<Mutex<Rate>>,
}

impl Connections {
    /// Counts a connection that begins for its address and for its network group, unless one of them
    /// has reached a limit. Returns the rates that its traffic counts for, if they are limited.
    fn begin(
        &mut self,
        direction: Direction,
        ip: IpAddr,
        limits: &Limits,
    ) -> Result<Option<[Arc<Mutex<Rate>>; 2]>, Refusal> {
        use Refusal::*;
        if self.minute.is_none_or(|start| start.elapsed() >= MINUTE) {
            self.minute = Some(Instant::now());
            self.by_network.retain(|_, counts| counts.open > 0);
            for counts in self.by_network.values_mut() {
                counts.recent = 0;
            }
        }
        let is_rated = direction == Direction::Inbound && !ip.to_canonical().is_loopback();
        let (networks, none) = (networks(ip), Counts::default());
        let [address, group] = networks.map(|net| self.by_network.get(&net).unwrap_or(&none));
        let (half_open, open) = (limits.half_open_of, limits.connections_of);
        let recent = limits.connection_rate;
        let checks = [
            (address.half_open, half_open.address, HalfOpenAddress),
            (group.half_open, half_open.group, HalfOpenGroup),
            (address.open, open.address, ConnectionsAddress),
            (group.open, open.group, ConnectionsGroup),
            (address.recent, recent.address, RateAddress),
            (group.recent, recent.group, RateGroup),
        ];
        // Only the limits on half-open connections are for all addresses, and for the node's own.
        let checks = if is_rated { &checks[..] } else { &checks[..2] };
        let reached = checks.iter().find(|(number, limit, _)| number >= limit);
        if let Some((.., refusal)) = reached {
            return Err(*refusal);
        }
        // Without a limit, what has ended is forgotten at once.
        let is_recent = is_rated && recent != PerAddress::UNLIMITED;
        let rates = networks.map(|network| {
            let counts = self.by_network.entry(network).or_default();
            counts.open += 1;
            counts.half_open += 1;
            counts.recent += usize::from(is_recent);
            Arc::clone(&counts.rate)
        });
        Ok((is_rated && limits.byte_rate != PerAddress::UNLIMITED).then_some(rates))
    }

    /// Changes the counts of an address and of its network group.
    fn change(&mut self, address: Option<IpAddr>, change: fn(&mut Counts)) {
        for network in address.map(networks).into_iter().flatten() {
            if let Entry::Occupied(mut counts) = self.by_network.entry(network) {
                change(counts.get_mut());
                if counts.get().open + counts.get().recent == 0 {
                    counts.remove();
                }
            }
        }
    }
}

/// What the connections of all threads use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Inbound connections whose handshake is not done.
    pub half_open: usize,
    /// Bytes queued in inbound connections, as last published by the threads.
    pub memory: usize,
    /// Bytes queued in the node's own connections.
    pub outbound_memory: usize,
    /// Peers that are remembered as speaking v1 only.
    pub known_v1: usize,
}

impl Budget {
    /// What is used now.
    pub(crate) fn usage(&self, known_v1: usize) -> Usage {
        let [memory, outbound_memory] = self.memory.each_ref().map(|held| held.load(Relaxed));
        Usage {
            half_open: lock(&self.connections[Direction::Inbound as usize]).half_open,
            memory,
            outbound_memory,
            known_v1,
        }
    }

    /// Reserves a slot for one more connection. `address` is that of an inbound peer, if no load
    /// balancer has yet to tell it, or that of a SOCKS client that must show a password.
    pub(crate) fn admit(
        self: &Arc<Self>,
        direction: Direction,
        address: Option<IpAddr>,
        limits: &Limits,
    ) -> Result<Permit, Refusal> {
        let mut connections = lock(&self.connections[direction as usize]);
        let most = match direction {
            Direction::Inbound => limits.connections,
            Direction::Outbound => limits.outbound_connections,
        };
        let is_half_open = direction == Direction::Inbound || address.is_some();
        if connections.open >= most {
            return Err(Refusal::Connections);
        }
        if is_half_open && connections.half_open >= limits.half_open {
            return Err(Refusal::HalfOpen);
        }
        let rates = match address {
            Some(address) => connections.begin(direction, address, limits)?,
            None => None,
        };
        connections.open += 1;
        connections.half_open += usize::from(is_half_open);
        drop(connections);
        Ok(Permit {
            budget: Arc::clone(self),
            direction,
            address,
            is_half_open,
            rates,
        })
    }
}

/// A connection's slot in the budget. Dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct Permit {
    budget: Arc<Budget>,
    direction: Direction,
    /// What its address is counted by. `None` until a load balancer has told it, and for a connection
    /// of the node's that needs no password.
    address: Option<IpAddr>,
    is_half_open: bool,
    /// What its traffic counts for, of its address and of its network group.
    rates: Option<[Arc<Mutex<Rate>>; 2]>,
}

impl Permit {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        lock(&self.budget.connections[self.direction as usize])
    }

    /// Records the peer's address once a load balancer has told it.
    pub(crate) fn set_address(&mut self, address: IpAddr, limits: &Limits) -> Result<(), Refusal> {
        let rates = self.connections().begin(self.direction, address, limits)?;
        (self.address, self.rates) = (Some(address), rates);
        Ok(())
    }

    /// Records that the handshake is done, or that the client has shown the password.
    pub(crate) fn handshake_done(&mut self) {
        if std::mem::take(&mut self.is_half_open) {
            let mut connections = self.connections();
            connections.half_open -= 1;
            connections.change(self.address, |counts| counts.half_open -= 1);
        }
    }

    /// Counts bytes that the connection has moved.
    pub(crate) fn count_bytes(&self, bytes: usize) {
        for rate in self.rates.iter().flatten() {
            lock(rate).bytes += bytes;
        }
    }

    /// Whether the connection's address or network group must wait before it moves more bytes.
    pub(crate) fn is_over_rate(&self, limits: &Limits, now: Instant) -> bool {
        let PerAddress { address, group } = limits.byte_rate;
        let mut rates = self.rates.iter().flatten().zip([address, group]);
        rates.any(|(rate, limit)| lock(rate).is_over(limit, now))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.handshake_done();
        let mut connections = self.connections();
        connections.open -= 1;
        connections.change(self.address, |counts| counts.open -= 1);
    }
}

/// Bytes that were moved lately for an address or a network group.
#[derive(Debug, Default)]
struct Rate {
    /// Since when bytes are counted: `None` before the first question.
    since: Option<Instant>,
    /// Bytes since then that no second has paid for yet.
    bytes: usize,
}

impl Rate {
    /// Whether more bytes were moved than are allowed by now. Each second allows `limit` bytes; what
    /// was moved beyond them is subtracted from what the next ones allow.
    fn is_over(&mut self, limit: usize, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let seconds = now.saturating_duration_since(since).as_secs();
        if seconds > 0 {
            let allowed = limit.saturating_mul(seconds as usize);
            self.bytes = self.bytes.saturating_sub(allowed);
            self.since = Some(since + Duration::from_secs(seconds));
        }
        self.bytes >= limit
    }
}

/// Bytes held by one thread's connections. Dropping it subtracts them from the budget.
#[derive(Debug)]
pub(crate) struct Memory {
    budget: Arc<Budget>,
    /// Per direction.
    held: [usize; 2],
    /// The part that is included in the budget.
    published: [usize; 2],
}

impl Memory {
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        Self {
            budget,
            held: [0; 2],
            published: [0; 2],
        }
    }

    /// Replaces `before` bytes of a connection by `after`.
    pub(crate) fn change(&mut self, direction: Direction, before: usize, after: usize) {
        let held = &mut self.held[direction as usize];
        *held = *held + after - before;
    }

    /// Whether this thread must close connections of a direction: all threads together hold too
    /// much, and this one holds more than its equal share. If the total is too high, at least one
    /// thread exceeds its share; threads below theirs close nothing.
    pub(crate) fn is_over(
        &mut self,
        direction: Direction,
        limits: &Limits,
        threads: usize,
    ) -> bool {
        let limit = match direction {
            Direction::Inbound => limits.memory,
            Direction::Outbound => limits.outbound_memory,
        };
        let held = self.held[direction as usize];
        self.publish(direction as usize) > limit && held > limit / threads
    }

    /// Publishes this thread's count. Returns the total of all threads.
    fn publish(&mut self, of: usize) -> usize {
        let more = self.held[of].wrapping_sub(self.published[of]);
        self.published[of] = self.held[of];
        let before = self.budget.memory[of].fetch_add(more, Relaxed);
        before.wrapping_add(more)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.held = [0; 2];
        for of in 0..2 {
            self.publish(of);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{Inbound, Outbound};

    #[test]
    fn each_slot_is_freed_once() {
        let budget = Arc::<Budget>::default();
        let limits = Limits {
            connections: 3,
            outbound_connections: 1,
            half_open: 2,
            half_open_of: PerAddress {
                address: 1,
                group: 2,
            },
            ..Limits::default()
        };
        let [a, b] = ["203.0.113.5", "203.0.113.6"].map(|address| address.parse().unwrap());
        let admit = |direction, address| budget.admit(direction, address, &limits);
        for _ in 0..3 {
            let mut first = admit(Inbound, Some(a)).unwrap();
            assert_eq!(
                admit(Inbound, Some(a)).unwrap_err(),
                Refusal::HalfOpenAddress
            );
            let mut second = admit(Inbound, None).unwrap();
            assert_eq!(admit(Inbound, None).unwrap_err(), Refusal::HalfOpen);
            let refused = second.set_address(a, &limits);
            assert_eq!(refused.unwrap_err(), Refusal::HalfOpenAddress);
            second.set_address(b, &limits).unwrap();
            first.handshake_done();
            first.handshake_done();
            second.handshake_done();
            let _third = admit(Inbound, Some(a)).unwrap();
            assert_eq!(admit(Inbound, Some(b)).unwrap_err(), Refusal::Connections);
            let _own = admit(Outbound, None).unwrap();
            let refused = admit(Outbound, None);
            assert_eq!(refused.unwrap_err(), Refusal::Connections);
        }
        for left in &budget.connections {
            let left = lock(left);
            assert_eq!((left.open, left.half_open), (0, 0));
            assert!(left.by_network.is_empty());
        }
    }

    /// Of the addresses a and b of one group, and of c alone.
    #[test]
    fn addresses_and_groups_are_counted() {
        let budget = Arc::<Budget>::default();
        let limits = Limits::default();
        let [a, b, c] = ["203.0.113.5", "203.0.113.6", "2001:db8::1"].map(|a| a.parse().unwrap());
        let admit = |address| budget.admit(Inbound, address, &limits).unwrap();
        let count = |address| {
            let connections = lock(&budget.connections[0]);
            let counts = networks(address).map(|of| connections.by_network.get(&of));
            counts.map(|counts| counts.map_or(0, |counts| counts.open))
        };
        let counts = || {
            let open = lock(&budget.connections[0]).open;
            (open, count(a), count(b), count(c))
        };
        let mut all = [a, a, b, c].map(|address| Some(admit(Some(address))));
        assert_eq!(counts(), (4, [2, 3], [1, 3], [1, 1]));
        let unknown = admit(None);
        (all[0], all[3]) = (None, None);
        assert_eq!(counts(), (3, [1, 2], [1, 2], [0, 0]));
        drop(unknown);
        assert_eq!(counts().0, 2);
        assert_eq!(lock(&budget.connections[0]).by_network.len(), 3);
        let limits = Limits {
            byte_rate: PerAddress {
                address: 1,
                ..PerAddress::UNLIMITED
            },
            ..limits
        };
        let rates = [a, b].map(|address| {
            let permit = budget.admit(Inbound, Some(address), &limits).unwrap();
            permit.rates.clone().unwrap()
        });
        let [[of_a, of_group], [of_b, same_group]] = &rates;
        assert!(Arc::ptr_eq(of_group, same_group) && !Arc::ptr_eq(of_a, of_b));
    }

    /// What exceeds one second is subtracted from the next ones.
    #[test]
    fn a_rate_holds_over_many_seconds() {
        let start = Instant::now();
        let at = |tenths: u64| start + Duration::from_millis(100 * tenths);
        let mut rate = Rate::default();
        assert!(!rate.is_over(100, at(0)));
        rate.bytes += 99;
        assert!(!rate.is_over(100, at(9)));
        rate.bytes += 201;
        for (tenths, expected) in [(9, true), (10, true), (19, true), (20, true), (30, false)] {
            assert_eq!(rate.is_over(100, at(tenths)), expected, "{tenths}");
        }
        // Seconds in which nothing moved allow no more later.
        assert!(!rate.is_over(100, at(1000)));
        rate.bytes += 100;
        assert!(rate.is_over(100, at(1000)) && !rate.is_over(usize::MAX, at(1000)));
    }

    /// Limits per address and per group: of open connections, of those that begin in a minute, and of
    /// bytes. None of them is for loopback addresses.
    #[test]
    fn addresses_and_groups_have_limits() {
        let [a, b, c, local] = ["203.0.113.5", "203.0.7.6", "::ffff:203.0.1.1", "127.0.0.1"]
            .map(|address| address.parse::<IpAddr>().ok());
        let limit = PerAddress {
            address: 2,
            group: 3,
        };
        let open = Limits {
            connections_of: limit,
            ..Limits::default()
        };
        let rate = Limits {
            connection_rate: limit,
            ..Limits::default()
        };
        for (limits, refusals, is_freed) in [
            (
                open,
                [Refusal::ConnectionsAddress, Refusal::ConnectionsGroup],
                true,
            ),
            (rate, [Refusal::RateAddress, Refusal::RateGroup], false),
        ] {
            let budget = Arc::<Budget>::default();
            let admit = |address| budget.admit(Inbound, address, &limits);
            let mut all = [a, a, b].map(|address| admit(address).unwrap());
            all[0].handshake_done();
            assert_eq!(admit(a).unwrap_err(), refusals[0]);
            let mut balanced = admit(None).unwrap();
            assert_eq!(balanced.set_address(c.unwrap(), &limits), Err(refusals[1]));
            assert_eq!([local; 9].map(|address| admit(address).is_ok()), [true; 9]);
            drop(all);
            assert_eq!(admit(a).is_ok(), is_freed);
            lock(&budget.connections[0]).minute = Instant::now().checked_sub(MINUTE);
            assert!(admit(a).is_ok());
        }
        let bytes = Limits {
            byte_rate: limit,
            ..Limits::default()
        };
        let budget = Arc::<Budget>::default();
        let now = Instant::now();
        let [a, b, local] = [a, b, local].map(|ip| budget.admit(Inbound, ip, &bytes).unwrap());
        for (count, expected) in [(1, [false, false]), (1, [true, false]), (1, [true, true])] {
            a.count_bytes(count);
            local.count_bytes(count);
            assert_eq!([&a, &b].map(|one| one.is_over_rate(&bytes, now)), expected);
        }
        assert!(!local.is_over_rate(&bytes, now));
        let unlimited = budget.admit(Inbound, None, &Limits::default()).unwrap();
        assert!(unlimited.rates.is_none());
    }

    /// Clients without the password get only a few outbound slots per address.
    #[test]
    fn unauthenticated_clients_leave_slots_free() {
        let budget = Arc::<Budget>::default();
        let limits = Limits {
            outbound_connections: 10,
            half_open_of: PerAddress {
                address: 2,
                ..PerAddress::UNLIMITED
            },
            ..Limits::default()
        };
        let address = "203.0.113.5".parse().ok();
        let admit = |address| budget.admit(Outbound, address, &limits);
        let mut strangers = [(); 2].map(|()| admit(address).unwrap());
        assert_eq!(admit(address).unwrap_err(), Refusal::HalfOpenAddress);
        strangers[0].handshake_done();
        let third = admit(address).unwrap();
        assert_eq!(lock(&budget.connections[1]).open, 3);
        drop((strangers, third));
        let left = lock(&budget.connections[1]);
        assert_eq!((left.open, left.half_open), (0, 0));
    }

    /// A thread closes only what exceeds its share, and only in the direction that exceeds its
    /// limit.
    #[test]
    fn threads_below_their_share_close_nothing() {
        let budget = Arc::<Budget>::default();
        let limits = Limits {
            memory: 100,
            outbound_memory: 50,
            ..Limits::default()
        };
        let mut threads = [(); 2].map(|()| Memory::new(Arc::clone(&budget)));
        let mut are_over = |held: [[usize; 2]; 2]| {
            for (memory, held) in threads.iter_mut().zip(held) {
                for (direction, held) in [Inbound, Outbound].into_iter().zip(held) {
                    let before = memory.held[direction as usize];
                    memory.change(direction, before, held);
                    memory.publish(direction as usize);
                }
            }
            let directions = [Inbound, Outbound];
            threads
                .each_mut()
                .map(|memory| directions.map(|of| memory.is_over(of, &limits, 2)))
        };
        assert_eq!(are_over([[90, 0], [10, 50]]), [[false; 2]; 2]);
        assert_eq!(are_over([[90, 0], [11, 50]]), [[true, false], [false; 2]]);
        assert_eq!(are_over([[89, 0], [11, 51]]), [[false; 2], [false, true]]);
        assert_eq!(are_over([[51, 26], [50, 25]]), [[true; 2], [false; 2]]);
        drop(threads);
        let left = budget.memory.each_ref().map(|held| held.load(Relaxed));
        assert_eq!(left, [0, 0]);
    }
}
