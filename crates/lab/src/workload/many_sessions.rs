//! Many sessions that share a batch: in each turn, every session has one packet.
//!
//! The keys and counters of a few sessions stay in the nearest caches, those of many do not. The
//! sessions are at different positions between two rekeys, so that runs differ only in the number
//! of sessions. The effect of the caches depends on the [`Order`] of the visits, because a
//! processor predicts what comes next.

use crate::rivals::bip324::Runner;
use crate::traffic::Turn;
use packetlane::bip324::{Inbound, Outbound, PacketKind, Role, Session, SessionKeys};
use packetlane::bitcoin::Network;
use packetlane::{Engine, OpenBatch, SealBatch, Slot};
use packetlane_lanes::prefetch;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

/// The memory of a session is prefetched this many visits ahead, and the pointer to it the same
/// number of visits before that.
const PREFETCH_DISTANCE: usize = 8;

/// Bytes of packets in a batch: see [`SealBatch::ENOUGH_BYTES`].
const BATCH_BYTES: usize = SealBatch::ENOUGH_BYTES / 4;

/// The order in which sessions are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The order of creation, which is the order in memory.
    Memory,
    /// A random order, as in a node that has run for long, whose sockets become ready in any order.
    Random,
}

impl Order {
    /// The order's name in a case.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Order::Memory => "memory",
            Order::Random => "random",
        }
    }
}

/// The sending ends of many connections.
pub(crate) struct Senders<R> {
    runner: R,
    batch: SealBatch,
    slots: Vec<Slot>,
    ends: Vec<Outbound>,
    order: Vec<usize>,
}

/// The receiving ends of many connections.
pub(crate) struct Receivers<R> {
    runner: R,
    batch: OpenBatch,
    ends: Vec<Inbound>,
    order: Vec<usize>,
}

/// Both ends of `count` one-way connections, with a runner for each end.
#[must_use]
pub(crate) fn many_sessions<R: Runner>(
    engine: Engine,
    count: usize,
    order: Order,
    runner: impl Fn() -> R,
) -> (Senders<R>, Receivers<R>) {
    let mut pairs: Vec<(Outbound, Inbound)> = (0..count)
        .map(|number| {
            let mut secret = [0; 32];
            secret[..8].copy_from_slice(&(number as u64).to_le_bytes());
            let keys = SessionKeys::derive(&secret, Network::Mainnet.magic());
            let end = |role| Session::from_keys(engine, &keys, role);
            let (mut from, mut to) = (end(Role::Initiator).outbound, end(Role::Responder).inbound);
            from.set_precomputed_keystream(R::USES_PRECOMPUTED_KEYSTREAM);
            to.set_precomputed_keystream(R::USES_PRECOMPUTED_KEYSTREAM);
            (from, to)
        })
        .collect();
    let mut visits: Vec<usize> = (0..count).collect();
    if order == Order::Random {
        visits.shuffle(&mut StdRng::seed_from_u64(count as u64));
    }
    let interval = Session::REKEY_INTERVAL as usize;
    for sent in 1..interval {
        // All sessions that have not reached their position in the interval.
        let some = pairs.iter_mut().enumerate();
        let some = some.filter(|(place, _)| place % interval >= sent);
        advance(engine, &mut some.map(|(_, pair)| pair).collect::<Vec<_>>());
    }
    let (senders, receivers) = pairs.into_iter().unzip();
    let senders = Senders {
        runner: runner(),
        batch: SealBatch::new(),
        slots: Vec::new(),
        ends: senders,
        order: visits.clone(),
    };
    let receivers = Receivers {
        runner: runner(),
        batch: OpenBatch::new(),
        ends: receivers,
        order: visits,
    };
    (senders, receivers)
}

/// Sends an empty packet from one end of each connection to the other.
fn advance(engine: Engine, pairs: &mut [&mut (Outbound, Inbound)]) {
    let mut sent = SealBatch::new();
    let push = |(from, _): &mut &mut (Outbound, _)| {
        let slot = from.push(&mut sent, PacketKind::Genuine, &[]);
        slot.expect("an empty packet")
    };
    let slots: Vec<Slot> = pairs.iter_mut().map(push).collect();
    engine.seal(&mut sent);
    let mut received = OpenBatch::new();
    for ((_, to), slot) in pairs.iter_mut().map(|pair| &mut **pair).zip(&slots) {
        let wire = sent.wire(slot).expect("a sealed packet");
        assert_eq!(to.feed(&mut received, wire), Ok(1));
    }
    engine.open(&mut received);
    for (_, to) in pairs.iter_mut().map(|pair| &mut **pair) {
        assert_eq!(to.packets(&received).next(), Some(Ok(&[][..])));
    }
}

/// The sessions in the order of their visits, split into batches. Each comes with the sessions
/// visited [`PREFETCH_DISTANCE`] and twice [`PREFETCH_DISTANCE`] visits later.
fn batches(
    order: &[usize],
    packet_len: usize,
) -> impl Iterator<Item = impl Iterator<Item = (usize, [Option<usize>; 2])> + Clone> {
    let at_once = BATCH_BYTES.div_ceil(packet_len);
    let starts = (0..order.len()).step_by(at_once);
    starts.map(move |start| {
        let places = start..order.len().min(start + at_once);
        places.map(|place| {
            let later = [PREFETCH_DISTANCE, 2 * PREFETCH_DISTANCE]
                .map(|visits| order.get(place + visits).copied());
            (order[place], later)
        })
    })
}

impl<R: Runner> Senders<R> {
    /// Seals one packet of each session and passes each to `each`, as if to send it.
    pub(crate) fn seal(&mut self, turn: &Turn, mut each: impl FnMut(&[u8])) {
        let packet_len = turn.wire_len() / self.order.len();
        let mut packets = turn.packets();
        for sessions in batches(&self.order, packet_len) {
            self.batch.clear();
            self.slots.clear();
            for ((end, [soon, then]), (kind, contents)) in sessions.zip(&mut packets) {
                if let Some(then) = then {
                    prefetch(&self.ends[then]);
                }
                if let Some(soon) = soon {
                    self.ends[soon].prefetch();
                }
                let slot = self.ends[end].push(&mut self.batch, kind, contents);
                self.slots
                    .push(slot.expect("contents of at most 2^24 - 1 bytes"));
            }
            self.runner.seal(&mut self.batch);
            for slot in &self.slots {
                each(self.batch.wire(slot).expect("a sealed packet"));
            }
        }
    }
}

impl<R: Runner> Receivers<R> {
    /// Opens one packet of each session and passes its contents to `each`. The packets in `wire`
    /// are consecutive and `wire_len` bytes long.
    ///
    /// # Panics
    ///
    /// If one cannot be opened.
    pub(crate) fn open(&mut self, wire: &[u8], wire_len: usize, mut each: impl FnMut(&[u8])) {
        let mut packets = wire.chunks_exact(wire_len);
        for sessions in batches(&self.order, wire_len) {
            self.batch.clear();
            for ((end, [soon, then]), packet) in sessions.clone().zip(&mut packets) {
                if let Some(then) = then {
                    prefetch(&self.ends[then]);
                }
                if let Some(soon) = soon {
                    self.ends[soon].prefetch();
                }
                let added = self.ends[end].feed(&mut self.batch, packet);
                added.expect("a packet of an honest peer");
            }
            self.runner.open(&mut self.batch);
            for (end, _) in sessions {
                for contents in self.ends[end].packets(&self.batch) {
                    each(contents.expect("an authentic packet"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::aead::Ring;
    use crate::rivals::bip324::OneByOne;

    /// Over more than one rekey of each session, with all sessions at different positions.
    #[test]
    fn runners_agree() {
        let engine = Engine::detect().unwrap();
        let turn = Turn::uniform(300, 61);
        let (mut from, mut to) = many_sessions(engine, 300, Order::Random, || engine);
        let (mut theirs, _) = many_sessions(engine, 300, Order::Random, OneByOne::<Ring>::default);
        for _ in 0..230 {
            let (mut wire, mut expected) = (Vec::new(), Vec::new());
            from.seal(&turn, |packet| wire.extend_from_slice(packet));
            theirs.seal(&turn, |packet| expected.extend_from_slice(packet));
            assert!(wire == expected);
            let mut opened = Vec::new();
            to.open(&wire, wire.len() / 300, |contents| {
                opened.push(contents.to_vec())
            });
            assert!(turn.genuine().eq(opened));
        }
    }
}
