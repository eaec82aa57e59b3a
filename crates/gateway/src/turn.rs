//! What a thread does with the links that are ready: it reads the peers, opens all packets in one
//! batch, translates the messages and writes them to the nodes; then it reads the nodes, seals all
//! packets in one batch and writes them to the peers.

use crate::account::Turns;
use crate::budget::Direction;
use crate::close::Close;
use crate::dial::{connect, lock};
use crate::event::Event;
use crate::link::Link;
use crate::proxy_protocol::header;
use crate::settings::PeerSource;
use crate::socks::Target;
use crate::translate::{Frames, frame};
use crate::worker::Worker;
use packetlane_p2p::payload::Services;
use std::time::Instant;

/// Maximum links per turn that are still in a stage before
/// [`Stage::Relaying`](crate::link::Stage::Relaying). The key exchange is the most expensive step (20
/// to 100 us), and it delays established peers. A turn computes those of all links together, which
/// fills the lanes of every CPU.
const MAX_SETUPS: usize = 8;

impl Worker {
    /// Runs one turn and returns the links that took part. Links with more work are scheduled for
    /// the next turn.
    pub(crate) fn run_turn(&mut self) -> Vec<usize> {
        let now = Instant::now();
        let mut all = std::mem::take(&mut self.ready);
        // Each once: a link may have ended, and a new one with its number may be listed twice.
        let is_ready = |link: &mut Link| std::mem::take(&mut link.is_ready);
        all.retain(|&number| self.links.get_mut(number).is_some_and(is_ready));
        let links = &self.links;
        // Established links first, then the node's own connections that are being set up. So any
        // number of strangers cannot delay either.
        all.sort_by_key(|&number| {
            let link = &links[number];
            (
                !link.is_relaying(),
                link.info.direction == Direction::Inbound,
            )
        });
        let relaying = all.partition_point(|&number| links[number].is_relaying());
        let limit = all.len().min(relaying + MAX_SETUPS);
        for number in all.drain(limit..) {
            self.wake(number);
        }
        let mut waiting = all.as_slice();
        while !waiting.is_empty() {
            let taken = self.relay_to_node(waiting, now);
            let (numbers, later) = waiting.split_at(taken);
            waiting = later;
            let mut numbers = numbers;
            while !numbers.is_empty() {
                let taken = self.relay_to_peers(numbers);
                numbers = &numbers[taken..];
            }
        }
        all
    }

    /// Reads peers until the batch is full, and relays their messages to the node. Returns how many
    /// links it handled.
    fn relay_to_node(&mut self, waiting: &[usize], now: Instant) -> usize {
        let mut taken = 0;
        let mut closes = Vec::new();
        for &number in waiting {
            if self.turn.incoming.bytes_used() >= self.settings.limits.batch {
                break;
            }
            taken += 1;
            if let Err(close) = self.set_up(number) {
                closes.push((number, close));
                continue;
            }
            let Some(link) = self.links.get_mut(number) else {
                continue;
            };
            link.is_throttled = link.permit.is_over_rate(&self.settings.limits, now);
            if link.is_batched()
                && let Err(close) = link.read_peer(
                    &mut self.turn.incoming,
                    &mut self.turn.scratch,
                    &self.settings,
                    now,
                )
            {
                closes.push((number, close));
                continue;
            }
            if link.fell_back
                && let Some(version) = link.peer_version
            {
                link.fell_back = false;
                let mut known = lock(&self.shared.known);
                if version.services.has(Services::P2P_V2) {
                    // Something else was wrong with the attempt over v2.
                    known.0.remove(&link.info.address);
                } else {
                    known.add(&link.info.address, now);
                }
            }
        }
        let numbers = &waiting[..taken];
        Turns::count(&mut self.turns.opened, self.turn.incoming.len());
        let before = Instant::now();
        self.settings.engine.open(&mut self.turn.incoming);
        self.turns.encryption += before.elapsed();
        let mut frames = Frames::new();
        for &number in numbers {
            let settings = &self.settings;
            if let Some(link) = self.links.get_mut(number)
                && let Err(close) =
                    link.packets(number, &self.turn.incoming, &mut frames, settings, now)
            {
                closes.push((number, close));
            }
        }
        let links = &mut self.links;
        let magic = self.settings.network.magic();
        let before = Instant::now();
        frame(frames, &self.turn.hasher, |number, message, checksum| {
            message.encode_with_checksum(magic, checksum, links[number].to_node.end());
        });
        self.turns.framing += before.elapsed();
        self.turn.incoming.clear();
        for &number in numbers {
            if let Err(close) = self.reach_node(number) {
                closes.push((number, close));
            }
        }
        self.close_all(closes);
        taken
    }

    /// Connects to the node once the peer's handshake is done, and writes what is queued for it.
    fn reach_node(&mut self, number: usize) -> Result<(), Close> {
        let Some(link) = self.links.get(number) else {
            return Ok(());
        };
        if link.is_relaying() && !link.is_connected {
            let inbound = link.inbound;
            let connected = self.connect_node(number);
            if let (Ok(true) | Err(_), Some(index)) = (&connected, inbound) {
                self.shared.set_node(index, connected.is_ok());
            }
            if !connected? {
                return Ok(());
            }
            let link = &mut self.links[number];
            link.is_connected = true;
            if inbound.is_some() {
                let socket = link.node.socket();
                link.info.node_address = socket.and_then(|socket| socket.local_addr().ok());
            }
            (self.event_sink)(&link.snapshot(), &Event::Connected);
        }
        self.links[number].write_node()
    }

    /// Advances the connection to the node. Returns whether the node has answered.
    fn connect_node(&mut self, number: usize) -> Result<bool, Close> {
        let link = &mut self.links[number];
        link.permit.handshake_done();
        let settings = |index: usize| self.settings.inbound.get(index);
        if link.node.socket().is_none()
            && let (Some(inbound), Target::Address(from)) =
                (link.inbound.and_then(settings), &link.info.address)
        {
            let (node, origin) = self.shared.route_to_node(inbound, *from);
            if inbound.source == PeerSource::ProxyProtocol {
                link.to_node.begin_with(&header(*from, inbound.listen));
            }
            let socket = connect(node, origin).map_err(Close::NodeSocket)?;
            self.reactor.open(&mut link.node, number, socket)?;
            link.attempt_started = Instant::now();
        }
        match link.node.writable {
            true => link.node.is_connected(),
            false => Ok(false),
        }
    }

    /// Reads the node for these links until the batch is full, and relays its messages to the
    /// peers. Returns how many links it handled.
    fn relay_to_peers(&mut self, numbers: &[usize]) -> usize {
        let now = Instant::now();
        let mut taken = 0;
        let mut closes = Vec::new();
        for &number in numbers {
            if self.turn.outgoing.bytes_used() >= self.settings.limits.batch {
                break;
            }
            taken += 1;
            let Some(link) = self.links.get_mut(number) else {
                continue;
            };
            if !link.is_batched() {
                continue;
            }
            let (turn, settings) = (&mut self.turn, &self.settings);
            let read = link.read_node(&mut turn.outgoing, &mut turn.scratch, settings, now);
            let decoys = |()| link.add_decoys(&mut turn.outgoing, &settings.limits, now);
            if let Err(close) = read.and_then(decoys) {
                closes.push((number, close));
            }
        }
        Turns::count(&mut self.turns.sealed, self.turn.outgoing.len());
        let before = Instant::now();
        self.settings.engine.seal(&mut self.turn.outgoing);
        self.turns.encryption += before.elapsed();
        for &number in &numbers[..taken] {
            let Some(link) = self.links.get_mut(number) else {
                continue;
            };
            let written = link.write_node().and_then(|()| match link.is_batched() {
                true => link.write_peer(&self.turn.outgoing),
                false => Ok(()),
            });
            if let Err(close) = written {
                closes.push((number, close));
            } else if let Some(close) = link.forward_eof() {
                closes.push((number, close));
            } else if link.has_pending_work(&self.settings.limits) {
                self.wake(number);
            }
            self.set_timer(number, now);
            self.links[number].hold(&mut self.memory);
        }
        self.turn.outgoing.clear();
        self.close_all(closes);
        taken
    }
}
