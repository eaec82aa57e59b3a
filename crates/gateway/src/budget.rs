//! Limits on what all connections of a gateway use together, across its threads. Inbound
//! connections and the node's own have separate limits.

use crate::address::Groups;
use crate::dial::lock;
use crate::settings::Limits;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

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
    /// [`Limits::half_open_address`](crate::Limits::half_open_address).
    HalfOpenAddress,
    /// [`Limits::half_open_group`](crate::Limits::half_open_group).
    HalfOpenGroup,
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
    inbound: usize,
    outbound: usize,
    /// Inbound connections whose handshake is not done.
    half_open: Groups,
    /// Outbound connections whose client has not shown the password yet.
    unauthenticated: Groups,
}

impl Connections {
    /// Checks the half-open limits of an address and its network group.
    fn check_address(&self, address: IpAddr, limits: &Limits) -> Result<(), Refusal> {
        if self.half_open.of_address(address) >= limits.half_open_address {
            Err(Refusal::HalfOpenAddress)
        } else if self.half_open.of_group(address) >= limits.half_open_group {
            Err(Refusal::HalfOpenGroup)
        } else {
            Ok(())
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
                let unauthenticated = &mut connections.unauthenticated;
                let has_too_many =
                    |address| unauthenticated.of_address(address) >= limits.half_open_address;
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
                if connections.inbound >= limits.connections {
                    return Err(Refusal::Connections);
                }
                if connections.half_open.all() >= limits.half_open {
                    return Err(Refusal::HalfOpen);
                }
                if let Some(address) = address {
                    connections.check_address(address, limits)?;
                }
                connections.inbound += 1;
                connections.half_open.add(address);
                Kind::HalfOpen(address)
            }
        };
        drop(connections);
        Ok(Permit {
            budget: Arc::clone(self),
            kind,
        })
    }
}

/// A connection's slot in the budget. Dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct Permit {
    budget: Arc<Budget>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Outbound,
    /// Outbound, before the client has shown the password.
    Unauthenticated(IpAddr),
    /// Inbound, before the handshake is done.
    HalfOpen(Option<IpAddr>),
    Inbound,
}

impl Permit {
    /// Records the peer's address once a load balancer has told it.
    pub(crate) fn set_address(&mut self, address: IpAddr, limits: &Limits) -> Result<(), Refusal> {
        if let Kind::HalfOpen(before) = self.kind {
            let mut connections = lock(&self.budget.connections);
            connections.check_address(address, limits)?;
            connections.half_open.remove(before);
            connections.half_open.add(Some(address));
            self.kind = Kind::HalfOpen(Some(address));
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
        if let Kind::HalfOpen(address) = self.kind {
            lock(&self.budget.connections).half_open.remove(address);
            self.kind = Kind::Inbound;
        }
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
            Kind::HalfOpen(address) => {
                connections.inbound -= 1;
                connections.half_open.remove(address);
            }
            Kind::Inbound => connections.inbound -= 1,
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
            half_open_address: 1,
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
            (left.inbound, left.outbound, left.half_open.all()),
            (0, 0, 0)
        );
    }

    /// Clients without the password get only a few outbound slots per address.
    #[test]
    fn unauthenticated_clients_leave_slots_free() {
        let budget = Arc::<Budget>::default();
        let limits = Limits {
            outbound_connections: 10,
            half_open_address: 2,
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
