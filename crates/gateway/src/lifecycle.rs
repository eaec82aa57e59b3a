//! How a link begins and ends: accepting, connecting, handshakes, the fallback to v1, closing.

use crate::address::canonical;
use crate::budget::{Direction, Refusal};
use crate::close::Close;
use crate::dial::{LookupResult, Origin, connect, is_onion, lock};
use crate::event::{Event, Peer, Transport};
use crate::link::{Codec, End, Link, Retry, Side, Stage};
use crate::listener::{BACKLOG, ListenerKind};
use crate::socks::{self, SocksError, SocksRequest, Target};
use crate::worker::{RunState, Worker};
use mio::net::TcpStream;
use packetlane::bip324::{Connection, HandshakeConfig, HandshakeError};
use socket2::SockRef;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long a node that has asked for a peer may be silent before it is taken for one that speaks
/// v1. Nodes send their first message at once.
const NODE_PATIENCE: Duration = Duration::from_secs(1);

/// Maximum connections accepted per turn and listener. The rest wait, so that accepting does not
/// delay established peers.
const MAX_ACCEPTED: usize = 8;

/// How long the listeners stay open after they stopped accepting, so that TCP handshakes already under
/// way can finish: longer than the longest round trip on Earth. A client whose SYN was dropped retries
/// after one second; by then only the new gateway must be listening.
const ACCEPT_GRACE: Duration = Duration::from_millis(500);

impl Worker {
    /// Accepts up to [`MAX_ACCEPTED`] connections from each listener.
    pub(crate) fn accept(&mut self) {
        for index in 0..self.listeners.len() {
            for _ in 0..MAX_ACCEPTED {
                let listener = &mut self.listeners[index];
                let kind = listener.kind;
                match listener.accept(&self.shared.reserved_fd) {
                    Some((Some(socket), from)) => self.admit(kind, socket, from),
                    Some((None, from)) => self.refuse(kind, from, Refusal::Files),
                    None => break,
                }
            }
        }
    }

    /// Closing a listener makes the kernel reset the connections in its queue, and those still in
    /// the TCP handshake. So it first stops accepting, and is closed [later](ACCEPT_GRACE). A socket
    /// that was passed to us stays open for its owner: the connections in its queue wait.
    pub(crate) fn drain(&mut self) {
        self.state = RunState::Draining;
        let passed = self.listeners.extract_if(.., |listener| listener.is_passed);
        for mut listener in passed {
            // The socket stays open, so the event queue would keep reporting it. If this fails, the
            // events wake the thread for nothing.
            let _ = self.reactor.remove(&mut listener.socket);
        }
        for listener in &self.listeners {
            // If this fails, a few clients that are connecting right now may be reset.
            let _ = listener.stop_accepting();
        }
        let close = Instant::now() + ACCEPT_GRACE;
        self.listeners_close.get_or_insert(close);
    }

    /// Accepts the last connections in the queues and closes the listeners.
    pub(crate) fn close_listeners(&mut self) {
        for _ in 0..=BACKLOG as usize / MAX_ACCEPTED {
            self.try_listeners();
            self.accept();
        }
        self.listeners.clear();
        self.listeners_close = None;
    }

    /// Notes that connections may be waiting at all listeners.
    pub(crate) fn try_listeners(&mut self) {
        for listener in &mut self.listeners {
            listener.has_more = true;
        }
    }

    /// Reports a connection that never became a link.
    fn refuse(&mut self, kind: ListenerKind, from: SocketAddr, refusal: Refusal) {
        let peer = Peer::new(0, Target::Address(from), kind.direction());
        (self.event_sink)(&peer, &Event::Refused(refusal));
    }

    fn admit(&mut self, kind: ListenerKind, socket: TcpStream, from: SocketAddr) {
        let direction = kind.direction();
        let (inbound, stage) = match kind {
            ListenerKind::Inbound(index) => {
                let settings = self.settings.inbound.get(index);
                let stage = match settings.is_some_and(|inbound| inbound.proxy_protocol) {
                    true => Stage::ReadingProxyHeader(Vec::new()),
                    false => Stage::AwaitingFirstByte,
                };
                (Some(index), stage)
            }
            ListenerKind::Socks => (None, Stage::ReadingSocksRequest(socks::Server::default())),
            ListenerKind::Transparent => (None, Stage::Connecting),
        };
        let has_address = match &stage {
            Stage::AwaitingFirstByte => true,
            // Before the password is known, the client may be anybody.
            Stage::ReadingSocksRequest(_) => self.settings.socks_user.is_some(),
            // A load balancer has not told the client's address yet.
            _ => false,
        };
        let ip = has_address.then_some(from.ip());
        if direction == Direction::Inbound && ip.is_some_and(|ip| !self.settings.admits(ip)) {
            return self.refuse(kind, from, Refusal::Denied);
        }
        let limits = &self.settings.limits;
        let permit = match self.shared.budget.admit(direction, ip, limits) {
            Ok(permit) => permit,
            Err(refusal) => return self.refuse(kind, from, refusal),
        };
        let address = match kind {
            ListenerKind::Transparent => match original_target(&socket) {
                Some(target) => target,
                None => return,
            },
            ListenerKind::Inbound(_) | ListenerKind::Socks => from,
        };
        let _ = socket.set_nodelay(true);
        let id = self.next_id;
        self.next_id += self.settings.workers.get() as u64;
        let info = Peer::new(id, Target::Address(address), direction);
        let number = self.links.insert(Link::new(info, permit, inbound, stage));
        let link = &mut self.links[number];
        let side = match direction {
            Direction::Inbound => &mut link.peer,
            Direction::Outbound => &mut link.node,
        };
        let opened = self.reactor.open(side, number, socket);
        self.wake(number);
        let started = opened.and_then(|()| match kind {
            ListenerKind::Transparent => self.dial(number),
            ListenerKind::Inbound(_) | ListenerKind::Socks => Ok(()),
        });
        if let Err(close) = started {
            self.close(number, close);
        }
    }

    /// Continues after the PROXY protocol header told the peer's address.
    fn proxy_header_read(&mut self, number: usize) -> Result<(), Close> {
        let link = &mut self.links[number];
        let Target::Address(from) = link.info.address else {
            return Ok(());
        };
        let admitted = match self.settings.admits(from.ip()) {
            true => link.permit.set_address(from.ip(), &self.settings.limits),
            false => Err(Refusal::Denied),
        };
        match admitted {
            Ok(()) => link.stage = Stage::AwaitingFirstByte,
            Err(refusal) => {
                if let Some(gone) = self.remove(number) {
                    let refused = Peer { id: 0, ..gone };
                    (self.event_sink)(&refused, &Event::Refused(refusal));
                }
            }
        }
        Ok(())
    }

    /// Starts the v2 handshake.
    fn start_handshake(
        &mut self,
        number: usize,
        begin: fn(HandshakeConfig) -> Result<Connection, HandshakeError>,
    ) -> Result<(), Close> {
        let magic = self.settings.network.magic();
        let mut config =
            HandshakeConfig::random(magic, self.settings.engine).map_err(Close::NoHandshake)?;
        config.keypair = self.keys.take();
        config.batched = true;
        let connection = begin(config).map_err(Close::NoHandshake)?;
        let link = &mut self.links[number];
        link.codec = Codec::V2(Box::new(connection));
        link.stage = Stage::Handshaking;
        Ok(())
    }

    /// Advances a link that cannot relay messages yet.
    pub(crate) fn set_up(&mut self, number: usize) -> Result<(), Close> {
        let Some(link) = self.links.get_mut(number) else {
            return Ok(());
        };
        match &mut link.stage {
            Stage::ReadingProxyHeader(_) => match link.read_proxy_header()? {
                true => self.proxy_header_read(number),
                false => Ok(()),
            },
            Stage::AwaitingFirstByte => match link.peer.readable {
                true => self.start_handshake(number, Connection::responder),
                false => Ok(()),
            },
            Stage::ReadingSocksRequest(server) => {
                let scratch = &mut self.turn.scratch;
                link.node.append_to(&mut link.from_node, scratch)?;
                let user = self.settings.socks_user.as_ref();
                let received = server.receive(&mut link.from_node, user, link.to_node.end());
                let Some(request) = received.map_err(Close::Socks)? else {
                    return Ok(());
                };
                link.permit.handshake_done();
                link.credentials = server.credentials.take();
                link.only_resolves = matches!(request, SocksRequest::Resolve(_));
                let (SocksRequest::Connect(target) | SocksRequest::Resolve(target)) = request;
                link.info.address = target;
                self.dial(number)
            }
            Stage::Connecting => {
                if !link.peer.is_connected()? {
                    return Ok(());
                }
                if !link.via_proxy {
                    return self.reached(number);
                }
                let Codec::V1(to_peer, _) = &mut link.codec else {
                    return Ok(());
                };
                let (target, credentials) = (link.info.address.clone(), link.credentials.clone());
                let client = socks::Client::new(target, credentials, to_peer.end());
                link.stage = Stage::ProxyHandshake(client, Vec::new());
                link.write_peer(&self.turn.outgoing)
            }
            Stage::ProxyHandshake(client, received) => {
                let Codec::V1(to_peer, _) = &mut link.codec else {
                    return Ok(());
                };
                link.peer.append_to(received, &mut self.turn.scratch)?;
                let connected = client.receive(received, to_peer.end());
                if connected.map_err(Close::Socks)? {
                    // Whoever is connected to waits for the first message, so a peer must be silent
                    // here.
                    if !received.is_empty() {
                        return Err(Close::Socks(SocksError::Trailing));
                    }
                    return self.reached(number);
                }
                if link.peer.ended {
                    return Err(Close::Peer);
                }
                link.write_peer(&self.turn.outgoing)
            }
            Stage::AwaitingNode => {
                let scratch = &mut self.turn.scratch;
                link.node.append_to(&mut link.from_node, scratch)?;
                let magic = self.settings.network.magic();
                let seen = link.from_node.len().min(magic.len());
                if link.from_node[..seen] != magic[..seen] {
                    link.relay_v1(&[], Transport::NodeV2, &self.settings);
                } else if seen == magic.len() || link.attempt_started.elapsed() > NODE_PATIENCE {
                    link.attempt_started = Instant::now();
                    return self.start_handshake(number, Connection::initiator);
                } else if link.node.ended {
                    return Err(Close::Node);
                }
                Ok(())
            }
            Stage::Resolving(_) | Stage::Handshaking | Stage::Relaying => Ok(()),
        }
    }

    /// Starts connecting to a link's peer; looks its name up first if necessary.
    fn dial(&mut self, number: usize) -> Result<(), Close> {
        let link = &mut self.links[number];
        let settings = &self.settings;
        let is_onion = is_onion(&link.info.address);
        let proxy = match is_onion {
            true => settings.tor.or(settings.proxy),
            false => settings.proxy,
        };
        match (&link.info.address, proxy) {
            (&Target::Address(address), _) if link.only_resolves => {
                Err(self.resolved(number, &[address]))
            }
            // These must never reach another resolver.
            (Target::Name(..), _) if is_onion && link.only_resolves => Err(Close::Name(
                io::Error::other(".onion names have no IP address"),
            )),
            (Target::Name(..), Some(_)) if link.only_resolves => Err(Close::Name(
                io::Error::other("names are resolved by the proxy alone"),
            )),
            (_, Some(proxy)) => {
                link.via_proxy = true;
                if settings.proxy == Some(proxy) && settings.proxy_user.is_some() {
                    link.credentials.clone_from(&settings.proxy_user);
                }
                self.connect_peer(number, proxy)
            }
            (Target::Name(..), None) if is_onion => Err(Close::NoTor),
            (&Target::Address(address), None) => self.connect_peer(number, address),
            (Target::Name(name, port), None) => {
                let (id, requests) = (link.info.id, self.requests.clone());
                let lookup = self.shared.resolver.request(name, *port, move |found| {
                    requests.send(move |worker| worker.looked_up(id, number, found));
                });
                link.stage = Stage::Resolving(lookup.map_err(Close::Name)?);
                Ok(())
            }
        }
    }

    /// Answers a Tor RESOLVE request, with an IPv4 address if there is one: btcd accepts nothing
    /// else. The connection ends with that.
    fn resolved(&mut self, number: usize, addresses: &[SocketAddr]) -> Close {
        let link = &mut self.links[number];
        link.owes_reply = false;
        let best = addresses.iter().find(|address| address.is_ipv4());
        if let Some(address) = best.or(addresses.first()) {
            let reply = socks::Reply::SUCCEEDED.wire(Some(address.ip()));
            link.to_node.end().extend_from_slice(&reply);
        }
        Close::Resolved
    }

    /// Starts connecting to a link's peer, or to the proxy that reaches it.
    fn connect_peer(&mut self, number: usize, route: SocketAddr) -> Result<(), Close> {
        let link = &mut self.links[number];
        link.route = Some(route);
        link.attempt_started = Instant::now();
        let socket = connect(route, Origin::Any).map_err(Close::PeerSocket)?;
        self.reactor.open(&mut link.peer, number, socket)?;
        link.stage = Stage::Connecting;
        Ok(())
    }

    /// Continues once TCP to the peer is connected: with v1 if that is known to be the only option,
    /// else with v2, once the node has shown that it speaks v1.
    fn reached(&mut self, number: usize) -> Result<(), Close> {
        let now = Instant::now();
        let link = &mut self.links[number];
        link.fell_back |= link.may_speak_v1(&self.settings)
            && lock(&self.shared.known).has(&link.info.address, now);
        match link.fell_back {
            true => link.relay_v1(&[], Transport::V1, &self.settings),
            false => link.stage = Stage::AwaitingNode,
        }
        link.attempt_started = now;
        if std::mem::take(&mut link.owes_reply) {
            let reply = socks::Reply::SUCCEEDED.wire(None);
            link.to_node.end().extend_from_slice(&reply);
        }
        Ok(())
    }

    /// Continues with the addresses of the name of the link with this id and number.
    fn looked_up(&mut self, id: u64, number: usize, found: LookupResult) {
        // The link may have ended, and another may have its number.
        let Some(link) = self.links.get_mut(number).filter(|link| link.info.id == id) else {
            return;
        };
        let connecting = match found {
            Ok(addresses) if link.only_resolves => Err(self.resolved(number, &addresses)),
            Ok(mut addresses) => {
                addresses.reverse();
                let first = addresses.pop();
                link.next_addresses = addresses;
                first.map_or(Ok(()), |first| self.connect_peer(number, first))
            }
            Err(error) => Err(Close::Name(error)),
        };
        match connecting {
            Ok(()) => self.wake(number),
            Err(close) => self.close(number, close),
        }
    }

    /// Closes links, each for its first listed cause: what failed once may fail again in the same
    /// turn.
    pub(crate) fn close_all(&mut self, mut closes: Vec<(usize, Close)>) {
        // The sort is stable: the first cause stays first.
        closes.sort_by_key(|(number, _)| *number);
        closes.dedup_by_key(|(number, _)| *number);
        for (number, close) in closes {
            self.close(number, close);
        }
    }

    /// Closes a link, unless its peer can be retried.
    pub(crate) fn close(&mut self, number: usize, mut close: Close) {
        while let Some(link) = self.links.get_mut(number)
            && let Some(retry) = link.retry(&close, &self.settings)
        {
            link.peer = Side::new(End::Peer, None);
            let route = match retry {
                Retry::NextAddress => link.next_addresses.pop(),
                Retry::V1 => {
                    link.fell_back = true;
                    link.codec = Codec::v1();
                    link.next_addresses.clear();
                    (self.event_sink)(&link.snapshot(), &Event::FellBack);
                    link.route
                }
            };
            let Some(route) = route else { break };
            match self.connect_peer(number, route) {
                Ok(()) => return self.wake(number),
                Err(error) => close = error,
            }
        }
        self.end(number, close);
    }

    pub(crate) fn end(&mut self, number: usize, mut close: Close) {
        let Some(link) = self.links.get_mut(number) else {
            return;
        };
        if link.is_refused_by_node(&close) {
            close = Close::NodeRefused;
        }
        if link.owes_reply
            && let Some(reply) = close.reply()
        {
            link.to_node.end().extend_from_slice(&reply.wire(None));
        }
        // The node still gets every complete message.
        let _ = link.write_node();
        if let Some(gone) = self.remove(number) {
            (self.event_sink)(&gone, &Event::Closed(close));
        }
    }

    /// Closes a link's sockets and removes it. Returns its last snapshot.
    fn remove(&mut self, number: usize) -> Option<Peer> {
        let link = self.links.try_remove(number)?;
        if let Some(at) = link.timer {
            self.timers.remove(&(at, number));
        }
        self.memory.change(link.info.direction, link.held, 0);
        self.turns.add(&link.info.account, link.ignored());
        Some(link.snapshot())
    }
}

/// The original destination of a redirected connection.
fn original_target(socket: &TcpStream) -> Option<SocketAddr> {
    // An IPv4 connection is in the IPv4 firewall's table, even at a dual-stack listener.
    let here = canonical(socket.local_addr().ok()?);
    let socket = SockRef::from(socket);
    let target = match here {
        SocketAddr::V4(_) => socket.original_dst_v4(),
        SocketAddr::V6(_) => socket.original_dst_v6(),
    };
    // A client that connects to the listener directly would otherwise be connected to itself.
    let target = canonical(target.ok()?.as_socket()?);
    (target != here).then_some(target)
}
