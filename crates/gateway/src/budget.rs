//! What all connections of a gateway take together, in all of its threads, and the limits of that.
//! Inbound connections and the node's own are counted apart.

use crate::address::Groups;
use crate::dial::lock;
use crate::settings::Limits;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Who has connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The peer.
    Inbound,
    /// The node.
    Outbound,
}

names! {
    /// A word for it.
    Direction {
        Self::Inbound => "inbound",
        Self::Outbound => "outbound",
    }
}

/// Which limit a refused connection has met.
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
    /// The process, or the system, can open no more files.
    Files,
    /// [`Limits::outbound_connections`](crate::Limits::outbound_connections).
    OutboundConnections,
    /// The same as [`Refusal::Files`], of a connection of the node's own.
    OutboundFiles,
}

names! {
    /// The setting's name. Those of the node's own connections begin with "outbound-".
    Refusal {
        Self::Connections => "connections",
        Self::HalfOpen => "half-open",
        Self::HalfOpenAddress => "half-open-address",
        Self::HalfOpenGroup => "half-open-group",
        Self::Files => "files",
        Self::OutboundConnections => "outbound-connections",
        Self::OutboundFiles => "outbound-files",
    }
}

/// What the connections of all threads take.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    /// Locked when a connection begins and ends, and when it has shaken hands.
    connections: Mutex<Connections>,
    /// Bytes that connections of each direction hold, as the threads have last published them.
    memory: [AtomicUsize; 2],
}

#[derive(Debug, Default)]
struct Connections {
    inbound: usize,
    outbound: usize,
    /// Inbound ones that have not shaken hands.
    half_open: Groups,
    /// Outbound ones of clients that have not shown the password yet.
    unauthenticated: Groups,
}

impl Connections {
    /// Whether too many of an address have not shaken hands.
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

impl Budget {
    /// Takes a place for one more connection. The address is that of an inbound peer, if it is known
    /// yet: a balancer has yet to say for whom it connects. Of an outbound connection it is that of a
    /// client that has to show a password.
    pub(crate) fn admit(
        self: &Arc<Self>,
        direction: Direction,
        address: Option<IpAddr>,
        limits: &Limits,
    ) -> Result<Place, Refusal> {
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
        Ok(Place {
            budget: Arc::clone(self),
            kind,
        })
    }
}

/// A connection's place in the budget. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    budget: Arc<Budget>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Outbound,
    /// Outbound, before its client has shown the password.
    Unauthenticated(IpAddr),
    /// Inbound, before the end of the handshake.
    HalfOpen(Option<IpAddr>),
    Inbound,
}

impl Place {
    /// Notes the address of a peer for which a balancer has connected.
    pub(crate) fn introduce(&mut self, address: IpAddr, limits: &Limits) -> Result<(), Refusal> {
        if let Kind::HalfOpen(before) = self.kind {
            let mut connections = lock(&self.budget.connections);
            connections.check_address(address, limits)?;
            connections.half_open.remove(before);
            connections.half_open.add(Some(address));
            self.kind = Kind::HalfOpen(Some(address));
        }
        Ok(())
    }

    /// Notes that the client has shown the password.
    pub(crate) fn authenticate(&mut self) {
        if let Kind::Unauthenticated(address) = self.kind {
            let mut connections = lock(&self.budget.connections);
            connections.unauthenticated.remove(Some(address));
            self.kind = Kind::Outbound;
        }
    }

    /// Notes the end of the handshake.
    pub(crate) fn shake_hands(&mut self) {
        if let Kind::HalfOpen(address) = self.kind {
            lock(&self.budget.connections).half_open.remove(address);
            self.kind = Kind::Inbound;
        }
    }
}

impl Drop for Place {
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

/// Bytes that one thread's connections hold. They count no more when this is dropped.
#[derive(Debug)]
pub(crate) struct Memory {
    budget: Arc<Budget>,
    /// Of each direction.
    held: [usize; 2],
    /// What of that the budget has.
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

    /// Notes that a connection holds `after` bytes, and no longer `before`.
    pub(crate) fn change(&mut self, direction: Direction, before: usize, after: usize) {
        let held = &mut self.held[direction as usize];
        *held = *held + after - before;
    }

    /// Whether this thread is to close connections of a direction: all threads together hold too
    /// much, and this one more than its equal share. While the total is too high, at least one thread is
    /// above its share; threads below theirs close nothing.
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

    /// Publishes what this thread holds. How much all threads hold then.
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
    fn each_place_is_given_back_once() {
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
            let refused = second.introduce(a, &limits);
            assert_eq!(refused.unwrap_err(), Refusal::HalfOpenAddress);
            second.introduce(b, &limits).unwrap();
            first.shake_hands();
            first.shake_hands();
            second.shake_hands();
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

    /// Clients that show no password take a few places of the node's own, for each address.
    #[test]
    fn unauthenticated_clients_leave_places() {
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

    /// A thread closes only what it has above its share, and only of the direction that has too much.
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
