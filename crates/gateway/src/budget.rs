//! Limits on what all connections of a gateway use together, across its threads. Inbound
//! connections and the node's own have separate limits.

use crate::address::{Groups, Rate};
use crate::dial::lock;
use crate::settings::{Limits, PerAddress};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// Which side opened the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The peer connected to us.
    Inbound,
    /// The node connects to the peer.
    Outbound,
}

names! {
    /// The name used in logs, metrics and JSON.
    Direction {
        Self::Inbound => "inbound",
        Self::Outbound => "outbound",
    }
}

/// The limit that refused a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// [`Limits::connections`](crate::Limits::connections).
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
    RateAddress,
    /// [`Limits::connection_rate`](crate::Limits::connection_rate), per group.
    RateGroup,
    /// The address is not in [`Settings::allowed`](crate::Settings::allowed), or is in
    /// [`Settings::denied`](crate::Settings::denied).
    Denied,
    /// The process or the system has too many open files.
    Files,
    /// [`Limits::outbound_connections`](crate::Limits::outbound_connections).
    OutboundConnections,
    /// Like [`Refusal::Files`], for one of the node's own connections.
    OutboundFiles,
}

names! {
    /// The name of the setting. Limits on the node's own connections begin with "outbound-".
    Refusal {
        Self::Connections => "connections",
        Self::HalfOpen => "half-open",
        Self::HalfOpenAddress => "half-open-address",
        Self::HalfOpenGroup => "half-open-group",
        Self::ConnectionsAddress => "connections-address",
        Self::ConnectionsGroup => "connections-group",
        Self::RateAddress => "connection-rate-address",
        Self::RateGroup => "connection-rate-group",
        Self::Denied => "denied",
        Self::Files => "files",
        Self::OutboundConnections => "outbound-connections",
        Self::OutboundFiles => "outbound-files",
    }
}

/// What the connections of all threads use.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    /// Locked when a connection starts, finishes its handshake, or ends.
    connections: Mutex<Connections>,
    /// Bytes held per direction, as last published by the threads.
    memory: [AtomicUsize; 2],
}

#[derive(Debug, Default)]
struct Connections {
    inbound: Groups,
    outbound: usize,
    /// Inbound connections whose handshake is not done.
    half_open: Groups,
    /// Inbound connections that began in the current minute, and when it began.
    recent: Groups,
    minute: Option<Instant>,
    /// Outbound connections whose client has not shown the password yet.
    unauthenticated: Groups,
}

/// Fails with the first limit, per address or per group, that its number has reached.
fn check(numbers: [usize; 2], limit: PerAddress, refusals: [Refusal; 2]) -> Result<(), Refusal> {
    let limits = limit.both();
    match (0..2).find(|&of| numbers[of] >= limits[of]) {
        Some(of) => Err(refusals[of]),
        None => Ok(()),
    }
}

impl Connections {
    /// Checks the limits of an inbound peer's address and of its network group, and counts that it
    /// has connected now.
    fn check_address(&mut self, ip: IpAddr, limits: &Limits) -> Result<(), Refusal> {
        use Refusal::*;
        let half_open = self.half_open.of(ip);
        check(
            half_open,
            limits.half_open_of,
            [HalfOpenAddress, HalfOpenGroup],
        )?;
        if ip.to_canonical().is_loopback() {
            return Ok(());
        }
        let all = self.inbound.of(ip);
        check(
            all,
            limits.connections_of,
            [ConnectionsAddress, ConnectionsGroup],
        )?;
        if limits.connection_rate == PerAddress::UNLIMITED {
            return Ok(());
        }
        if self.minute.is_none_or(|start| start.elapsed() >= MINUTE) {
            self.minute = Some(Instant::now());
            self.recent = Groups::default();
        }
        let recent = self.recent.of(ip);
        check(recent, limits.connection_rate, [RateAddress, RateGroup])?;
        self.recent.add(Some(ip));
        Ok(())
    }

    /// The rates for which the traffic of an inbound peer counts, if they are limited.
    fn rates(&mut self, ip: IpAddr, limits: &Limits) -> Option<[Arc<Rate>; 2]> {
        let is_limited = limits.byte_rate != PerAddress::UNLIMITED;
        (is_limited && !ip.to_canonical().is_loopback()).then(|| self.inbound.rates(ip))
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
    /// What is used now, without the peers that are remembered.
    pub(crate) fn usage(&self) -> Usage {
        let memory = |direction: Direction| self.memory[direction as usize].load(Relaxed);
        Usage {
            half_open: lock(&self.connections).half_open.all(),
            memory: memory(Direction::Inbound),
            outbound_memory: memory(Direction::Outbound),
            known_v1: 0,
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
        let mut connections = lock(&self.connections);
        let kind = match direction {
            Direction::Outbound => {
                let has_too_many = |address| {
                    let [of_address, _] = connections.unauthenticated.of(address);
                    of_address >= limits.half_open_of.address
                };
                if address.is_some_and(has_too_many)
                    || connections.outbound >= limits.outbound_connections
                {
                    return Err(Refusal::OutboundConnections);
                }
                connections.outbound += 1;
                match address {
                    Some(address) => {
                        connections.unauthenticated.add(Some(address));
                        Kind::Unauthenticated(address)
                    }
                    None => Kind::Outbound,
                }
            }
            Direction::Inbound => {
                if connections.inbound.all() >= limits.connections {
                    return Err(Refusal::Connections);
                }
                if connections.half_open.all() >= limits.half_open {
                    return Err(Refusal::HalfOpen);
                }
                if let Some(address) = address {
                    connections.check_address(address, limits)?;
                }
                connections.inbound.add(address);
                connections.half_open.add(address);
                Kind::Inbound {
                    address,
                    is_half_open: true,
                }
            }
        };
        let rates = match (direction, address) {
            (Direction::Inbound, Some(address)) => connections.rates(address, limits),
            _ => None,
        };
        drop(connections);
        Ok(Permit {
            budget: Arc::clone(self),
            kind,
            rates,
        })
    }
}

/// A connection's slot in the budget. Dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct Permit {
    budget: Arc<Budget>,
    kind: Kind,
    /// What its traffic counts for, of its address and of its network group.
    rates: Option<[Arc<Rate>; 2]>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Outbound,
    /// Outbound, before the client has shown the password.
    Unauthenticated(IpAddr),
    Inbound {
        /// `None` until a load balancer has told it.
        address: Option<IpAddr>,
        is_half_open: bool,
    },
}

impl Permit {
    /// Records the peer's address once a load balancer has told it.
    pub(crate) fn set_address(&mut self, address: IpAddr, limits: &Limits) -> Result<(), Refusal> {
        if let Kind::Inbound {
            address: known @ None,
            ..
        } = &mut self.kind
        {
            let mut connections = lock(&self.budget.connections);
            connections.check_address(address, limits)?;
            *known = Some(address);
            connections.inbound.remove(None);
            connections.half_open.remove(None);
            connections.inbound.add(*known);
            connections.half_open.add(*known);
            self.rates = connections.rates(address, limits);
        }
        Ok(())
    }

    /// Records that the client has shown the password.
    pub(crate) fn authenticate(&mut self) {
        if let Kind::Unauthenticated(address) = self.kind {
            let mut connections = lock(&self.budget.connections);
            connections.unauthenticated.remove(Some(address));
            self.kind = Kind::Outbound;
        }
    }

    /// Records that the handshake is done.
    pub(crate) fn handshake_done(&mut self) {
        if let Kind::Inbound {
            address,
            is_half_open: is_half_open @ true,
        } = &mut self.kind
        {
            lock(&self.budget.connections).half_open.remove(*address);
            *is_half_open = false;
        }
    }

    /// Counts bytes that the connection has moved.
    pub(crate) fn count_bytes(&self, bytes: usize) {
        for rate in self.rates.iter().flatten() {
            rate.add(bytes);
        }
    }

    /// Whether the connection's address or network group must wait before it moves more bytes.
    pub(crate) fn is_over_rate(&self, limits: &Limits, now: Instant) -> bool {
        let limits = limits.byte_rate.both();
        let mut rates = self.rates.iter().flatten().zip(limits);
        rates.any(|(rate, limit)| rate.is_over(limit, now))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut connections = lock(&self.budget.connections);
        match self.kind {
            Kind::Outbound => connections.outbound -= 1,
            Kind::Unauthenticated(address) => {
                connections.outbound -= 1;
                connections.unauthenticated.remove(Some(address));
            }
            Kind::Inbound {
                address,
                is_half_open,
            } => {
                connections.inbound.remove(address);
                if is_half_open {
                    connections.half_open.remove(address);
                }
            }
        }
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
            assert_eq!(refused.unwrap_err(), Refusal::OutboundConnections);
        }
        let left = lock(&budget.connections);
        assert_eq!(
            (left.inbound.all(), left.outbound, left.half_open.all()),
            (0, 0, 0)
        );
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
            lock(&budget.connections).minute = Instant::now().checked_sub(MINUTE);
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
        assert_eq!(admit(address).unwrap_err(), Refusal::OutboundConnections);
        strangers[0].authenticate();
        let third = admit(address).unwrap();
        assert_eq!(lock(&budget.connections).outbound, 3);
        drop((strangers, third));
        let left = lock(&budget.connections);
        assert_eq!((left.outbound, left.unauthenticated.all()), (0, 0));
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
