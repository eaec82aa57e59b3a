//! The gateway and its threads.

use crate::account::Turns;
use crate::budget::Usage;
use crate::dial::{Resolver, check_foreign, lock};
use crate::event::{Event, NodeState, Peer};
use crate::listener::{BACKLOG, Listener, ListenerKind};
use crate::settings::{Limits, PeerSource, Settings};
use crate::worker::{RunState, Shared, Thread, Worker};
use mio::net::TcpListener;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{self, SocketAddr};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long [`Gateway::check_nodes`] waits for a node.
const NODE_CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// A running gateway. Dropping it stops it.
#[derive(Debug)]
pub struct Gateway {
    settings: Settings,
    shared: Arc<Shared>,
    threads: Vec<Thread>,
}

/// Why a gateway did not start, or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// The settings have no address to listen on.
    #[error("no address to listen on: set inbound, socks or transparent")]
    NoListener,
    /// There are more than [`Settings::MAX_INBOUND`] addresses for peers.
    #[error(
        "more than {} addresses for peers to connect to",
        Settings::MAX_INBOUND
    )]
    TooManyListeners,
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {error}{}", listen_hint(.error))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// The process was given a listening socket whose address is in no setting.
    #[error("the process was given a socket that listens on {0}, but no setting has this address")]
    UnexpectedSocket(SocketAddr),
    /// The system refused threads, an event queue or random numbers.
    #[error("the gateway cannot run: {0}")]
    System(#[source] io::Error),
    /// [`PeerSource::Real`](crate::PeerSource::Real) does not work here: the process may not bind
    /// foreign addresses, or answers to them do not come back.
    #[error("cannot connect to {node} from a peer's address: {error}; {}", spoof_hint(.error))]
    Spoof {
        /// The address of the node.
        node: SocketAddr,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// The named setting cannot be changed while the gateway runs.
    #[error("{0} cannot be changed while the gateway runs: restart it")]
    RestartRequired(&'static str),
    /// A thread panicked, which is a bug.
    #[error("a thread of the gateway panicked")]
    Panicked,
}

/// What may be wrong at an address that cannot be listened on.
fn listen_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; another process listens there",
        _ => "",
    }
}

/// What may be wrong if connections from foreign addresses do not work.
fn spoof_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "this needs CAP_NET_ADMIN",
        io::ErrorKind::TimedOut => {
            "answers to it do not come back; run the commands that `packetlane gateway setup` prints"
        }
        _ => "the node must be on this machine",
    }
}

impl Gateway {
    /// Starts listening and serving, in threads of its own. Calls `on_event` for every event of
    /// every peer; each thread has its own clone.
    ///
    /// # Errors
    ///
    /// See [`GatewayError`].
    pub fn start(
        settings: Settings,
        on_event: impl FnMut(&Peer, &Event) + Clone + Send + 'static,
    ) -> Result<Self, GatewayError> {
        Self::start_with(settings, Vec::new(), on_event)
    }

    /// Like [`Gateway::start`], for a process that was given listening sockets, such as by systemd.
    /// Each socket is used for the setting with its address. All threads accept from it; when the
    /// gateway drains, connections in its queue stay there.
    ///
    /// # Errors
    ///
    /// See [`GatewayError`].
    pub fn start_with(
        settings: Settings,
        passed: Vec<net::TcpListener>,
        on_event: impl FnMut(&Peer, &Event) + Clone + Send + 'static,
    ) -> Result<Self, GatewayError> {
        Self::start_resolving(settings, passed, Resolver::default(), on_event)
    }

    fn start_resolving(
        settings: Settings,
        passed: Vec<net::TcpListener>,
        resolver: Resolver,
        on_event: impl FnMut(&Peer, &Event) + Clone + Send + 'static,
    ) -> Result<Self, GatewayError> {
        let settings = checked(settings)?;
        let shared = Arc::new(Shared {
            nodes: Mutex::new(vec![NodeState::Unknown; settings.inbound.len()]),
            resolver: Arc::new(resolver),
            ..Shared::default()
        });
        let workers = settings.workers.get() as u64;
        let mut gateway = Self {
            settings,
            shared,
            threads: Vec::new(),
        };
        for number in 0..workers {
            let listeners = listeners(&mut gateway.settings, &passed)?;
            let (settings, shared) = (gateway.settings.clone(), Arc::clone(&gateway.shared));
            let sink = Box::new(on_event.clone());
            let thread = Thread::start(settings, number, shared, listeners, sink);
            gateway.threads.push(thread.map_err(GatewayError::System)?);
        }
        Ok(gateway)
    }

    /// The current settings. Port 0 is replaced by the port that the system chose.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether each node of [`Settings::inbound`] accepted the last connection of a peer.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeState> {
        lock(&self.shared.nodes).clone()
    }

    /// What the connections of all threads use now.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.shared.budget.usage(lock(&self.shared.known).0.len())
    }

    /// Returns a function that finds out whether all nodes accept connections, for at most two
    /// seconds each. It tries those whose last connection failed and those that had none.
    pub fn check_nodes(&self) -> impl FnOnce() -> bool + Send + use<> {
        let (shared, inbound) = (Arc::clone(&self.shared), self.settings.inbound.clone());
        move || {
            let states = lock(&shared.nodes).clone();
            let nodes = inbound.iter().zip(states).enumerate();
            nodes.fold(true, |all, (index, (inbound, state))| {
                let is_up = state == NodeState::Up
                    || net::TcpStream::connect_timeout(&inbound.node, NODE_CHECK_TIMEOUT).is_ok();
                shared.set_node(index, is_up);
                all && is_up
            })
        }
    }

    /// All current peers, including those whose handshake is not done.
    #[must_use]
    pub fn peers(&self) -> Vec<Peer> {
        let peers = self.ask(|worker| {
            let links = worker.links.iter();
            links.map(|(_, link)| link.snapshot()).collect::<Vec<_>>()
        });
        peers.flatten().collect()
    }

    /// Statistics of each thread, always in the same order. A thread that has ended keeps its last
    /// values.
    #[must_use]
    pub fn turns(&self) -> Vec<Turns> {
        self.ask(Worker::publish).for_each(drop);
        let threads = self.threads.iter();
        threads.map(|thread| lock(&thread.turns).clone()).collect()
    }

    /// Asks all threads. Yields the answers in any order; a thread that has ended gives none.
    fn ask<T: Send + 'static>(&self, question: fn(&mut Worker) -> T) -> impl Iterator<Item = T> {
        let (to, answers) = channel();
        for thread in &self.threads {
            let to = to.clone();
            // Fails only if nobody waits for the answer any more.
            thread
                .requests
                .send(move |worker| drop(to.send(question(worker))));
        }
        answers.into_iter()
    }

    /// Changes settings. Connections stay open.
    ///
    /// # Errors
    ///
    /// [`GatewayError::RestartRequired`] for a setting that cannot change at run time: an address
    /// to listen on, the network, the number of threads. [`GatewayError::Spoof`]. Nothing changes
    /// then.
    pub fn change(&mut self, settings: Settings) -> Result<(), GatewayError> {
        if let Some(&name) = self.restart_required(&settings).first() {
            return Err(GatewayError::RestartRequired(name));
        }
        let settings = checked(settings)?;
        for thread in &self.threads {
            let settings = settings.clone();
            thread
                .requests
                .send(move |worker| worker.settings = settings);
        }
        self.settings = settings;
        Ok(())
    }

    /// The names of the settings that differ from the current ones and cannot change at run time.
    #[must_use]
    pub fn restart_required(&self, settings: &Settings) -> Vec<&'static str> {
        let old = &self.settings;
        let [old_listen, listen] =
            [old, settings].map(|settings| settings.inbound.iter().map(|inbound| inbound.listen));
        let fixed = [
            ("listen", old_listen.ne(listen)),
            ("socks", old.socks != settings.socks),
            ("transparent", old.transparent != settings.transparent),
            ("network", old.network != settings.network),
            ("workers", old.workers != settings.workers),
        ];
        let differ = fixed.into_iter().filter(|(_, differs)| *differs);
        differ.map(|(name, _)| name).collect()
    }

    /// Stops accepting connections, except those already being established. The threads end with
    /// their last connection. Another gateway that listens on the same addresses gets all new
    /// connections. Returns when all threads have stopped accepting; connections to a socket that
    /// was passed to the process then wait in its queue.
    pub fn drain(&self) {
        self.ask(Worker::drain).for_each(drop);
    }

    /// Whether all threads have ended, after [`Gateway::drain`] or by an error.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let mut threads = self.threads.iter();
        threads.all(|thread| thread.handle.is_finished())
    }

    /// Closes all connections and waits for the threads to end.
    ///
    /// # Errors
    ///
    /// The first error of any thread.
    pub fn stop(&mut self) -> Result<(), GatewayError> {
        for thread in &self.threads {
            thread
                .requests
                .send(|worker| worker.state = RunState::Stopped);
        }
        let ended = std::mem::take(&mut self.threads);
        ended
            .into_iter()
            .try_for_each(|thread| match thread.handle.join() {
                Ok(result) => result.map_err(GatewayError::System),
                Err(_) => Err(GatewayError::Panicked),
            })
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

/// Creates one thread's listeners. Ports chosen by the system are stored in the settings, for the
/// other threads.
fn listeners(
    settings: &mut Settings,
    passed: &[net::TcpListener],
) -> Result<Vec<Listener>, GatewayError> {
    let inbound = settings.inbound.iter_mut().enumerate();
    let inbound = inbound.map(|(index, one)| (ListenerKind::Inbound(index), &mut one.listen));
    let socks = settings.socks.as_mut();
    let socks = socks.map(|address| (ListenerKind::Socks, address));
    let transparent = settings.transparent.as_mut();
    let transparent = transparent.map(|address| (ListenerKind::Transparent, address));
    let configured: Vec<_> = inbound.chain(socks).chain(transparent).collect();
    for socket in passed {
        let address = socket.local_addr().map_err(GatewayError::System)?;
        if configured.iter().all(|(_, set)| **set != address) {
            return Err(GatewayError::UnexpectedSocket(address));
        }
    }
    let mut listeners = Vec::new();
    for (kind, address) in configured {
        let failed = |error| GatewayError::Listen {
            address: *address,
            error,
        };
        let is_its = |one: &&net::TcpListener| one.local_addr().is_ok_and(|its| its == *address);
        let its = passed.iter().find(is_its);
        let socket = match its {
            Some(socket) => share(socket),
            None => listen(*address),
        };
        let socket = socket.map_err(failed)?;
        *address = socket.local_addr().map_err(failed)?;
        listeners.push(Listener {
            kind,
            socket,
            is_passed: its.is_some(),
            has_more: true,
        });
    }
    match listeners.is_empty() {
        true => Err(GatewayError::NoListener),
        false => Ok(listeners),
    }
}

/// Checks the number of inbound settings, and tries whether their nodes can be reached from the
/// addresses of peers if they say so. Raises limits of 0 to 1: with a limit of 0 no link could make
/// progress.
fn checked(mut settings: Settings) -> Result<Settings, GatewayError> {
    if settings.inbound.len() > Settings::MAX_INBOUND {
        return Err(GatewayError::TooManyListeners);
    }
    let inbound = settings.inbound.iter();
    for inbound in inbound.filter(|inbound| inbound.source == PeerSource::Real) {
        for node in [Some(inbound.node), inbound.node_v6].into_iter().flatten() {
            check_foreign(node).map_err(|error| GatewayError::Spoof { node, error })?;
        }
    }
    let Limits { batch, queued, .. } = &mut settings.limits;
    (*batch, *queued) = ((*batch).max(1), (*queued).max(1));
    Ok(settings)
}

/// Duplicates a socket that was passed to the process.
fn share(listener: &net::TcpListener) -> io::Result<TcpListener> {
    let listener = listener.try_clone()?;
    listener.set_nonblocking(true)?;
    Ok(TcpListener::from_std(listener))
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    // The kernel spreads connections over the threads, and over two gateways during a handover.
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(TcpListener::from_std(socket.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use packetlane::Engine;
    use packetlane::bitcoin::{Network, v1};
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::thread;

    const MAGIC: [u8; 4] = Network::Regtest.magic();

    static SLOW_MAY_END: AtomicBool = AtomicBool::new(false);

    /// "mixed" has three addresses: nobody listens at the first, the second does not answer, the
    /// third is a peer. Other names have one of them. "slow" takes as long as the test wants.
    fn look_up(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let all = [1, 2, 3].map(|last| SocketAddr::from(([127, 0, 9, last], port)));
        while name == "slow" && !SLOW_MAY_END.load(Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(match name {
            "mixed" => all.to_vec(),
            "nobody" => vec![all[0], all[0]],
            _ => vec![all[2]],
        })
    }

    /// The addresses of a name are tried in order; one that does not answer uses up only part of
    /// the timeout.
    #[test]
    fn the_next_address_of_a_name_is_tried() {
        let peer = TcpListener::bind("127.0.9.3:0").unwrap();
        let port = peer.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in peer.incoming() {
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    let mut bytes = [0; 1000];
                    while let Ok(len) = stream.read(&mut bytes)
                        && bytes.starts_with(&MAGIC)
                        && stream.write_all(&bytes[..len]).is_ok()
                    {}
                });
            }
        });
        let silent = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let address = SocketAddr::from(([127, 0, 9, 2], port));
        silent.bind(&address.into()).unwrap();
        silent.listen(0).unwrap();
        let mut queue = Vec::new();
        let patience = Duration::from_millis(300);
        while let Ok(stream) = TcpStream::connect_timeout(&address, patience) {
            queue.push(stream);
            assert!(queue.len() < 100, "the queue has no end");
        }

        let (_gateway, socks) = proxy(|_, _| {});
        for (name, expected) in [("mixed", 0), ("good", 0), ("nobody", 5)] {
            let mut stream = ask(socks, name, port);
            let mut reply = [0; 12];
            stream.read_exact(&mut reply).unwrap();
            assert_eq!(reply[..4], [5, 0, 5, expected]);
            if expected == 0 {
                let mut wire = Vec::new();
                let version = packetlane::bitcoin::message::MessageType::literal("version");
                v1::Message::new(version, &[3; 90]).encode(MAGIC, &mut wire);
                stream.write_all(&wire).unwrap();
                let mut heard = wire.clone();
                stream.read_exact(&mut heard).unwrap();
                assert_eq!(heard, wire);
            }
        }
    }

    /// A gateway with a SOCKS server that resolves names as above.
    fn proxy(
        on_event: impl FnMut(&Peer, &Event) + Clone + Send + 'static,
    ) -> (Gateway, SocketAddr) {
        let mut settings = Settings {
            socks: Some(([127, 0, 0, 1], 0).into()),
            advertise: false,
            ..Settings::new(Network::Regtest, Engine::detect().unwrap())
        };
        // So that each address gets one second.
        settings.limits.handshake = Duration::from_secs(6);
        let resolver = Resolver::new(look_up);
        let gateway = Gateway::start_resolving(settings, Vec::new(), resolver, on_event).unwrap();
        let socks = gateway.settings().socks.unwrap();
        (gateway, socks)
    }

    /// Sends a SOCKS request without a password. The method choice and the reply take 12 bytes.
    fn ask(socks: SocketAddr, name: &str, port: u16) -> TcpStream {
        let mut stream = TcpStream::connect(socks).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut request = vec![5, 1, 0, 5, 1, 0, 3, name.len() as u8];
        request.extend(name.as_bytes());
        request.extend(port.to_be_bytes());
        stream.write_all(&request).unwrap();
        stream
    }

    /// When a node hangs up during a lookup, the connection ends at once and the lookup is
    /// cancelled.
    #[test]
    fn hanging_up_cancels_a_lookup() {
        let (sender, told) = channel();
        let (_gateway, socks) = proxy(move |_: &Peer, event: &Event| {
            let _ = sender.send(format!("{event:?}"));
        });
        let mut stream = ask(socks, "slow", 1);
        stream.read_exact(&mut [0; 2]).unwrap();
        drop(stream);
        let heard = told.recv_timeout(Duration::from_secs(3));
        assert_eq!(heard.as_deref(), Ok("Closed(Node)"));
        SLOW_MAY_END.store(true, Relaxed);
    }
}
