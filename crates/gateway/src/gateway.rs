//! The threads of a gateway.

use crate::address::Secret;
use crate::budget::Budget;
use crate::dial::{KnownV1, Resolver, lock};
use crate::door::{BACKLOG, Door, Listener, Spare};
use crate::ring::Ring;
use crate::settings::{Io, Settings};
use crate::worker::{Event, Peer, Request, Turns, WAKER, Worker};
use mio::net::TcpListener;
use mio::{Poll, Waker};
use socket2::{Domain, Protocol, Socket, Type};
use std::fmt;
use std::io;
use std::net::{self, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A running gateway. Stops when it is dropped.
#[derive(Debug)]
pub struct Gateway {
    settings: Settings,
    threads: Vec<Thread>,
}

#[derive(Debug)]
struct Thread {
    requests: Sender<Request>,
    waker: Arc<Waker>,
    /// As the thread has last published them.
    turns: Arc<Mutex<Turns>>,
    handle: JoinHandle<io::Result<()>>,
}

impl Thread {
    /// Whether it has ended can be seen by its handle; then nobody answers.
    fn ask(&self, request: Request) {
        let _ = self.requests.send(request);
        // A thread that is not woken now looks within a second.
        let _ = self.waker.wake();
    }
}

/// Why there is no gateway, or no more.
#[derive(Debug)]
#[non_exhaustive]
pub enum GatewayError {
    /// It is told to listen nowhere.
    Nowhere,
    /// It cannot listen there.
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// A socket was passed that is not one of those where it is told to listen.
    Passed(SocketAddr),
    /// The system gives no threads, events or random numbers.
    System(io::Error),
    /// It is told to use io_uring, and the kernel has none or does not allow it.
    NoIoUring(io::Error),
    /// A setting that cannot be changed while it runs, by its name.
    Fixed(&'static str),
    /// A thread has panicked: an error of this program.
    Panicked,
}

impl fmt::Display for GatewayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nowhere => f.write_str("the gateway is told to listen nowhere"),
            Self::Listen { address, error } => write!(f, "cannot listen on {address}: {error}"),
            Self::Passed(address) => {
                write!(
                    f,
                    "a socket was passed that listens on {address}: no setting says so"
                )
            }
            Self::System(error) => write!(f, "the gateway cannot run: {error}"),
            Self::NoIoUring(error) => write!(f, "no io_uring here: {error}"),
            Self::Fixed(name) => write!(f, "{name} cannot be changed while the gateway runs"),
            Self::Panicked => f.write_str("a thread of the gateway has panicked"),
        }
    }
}

impl std::error::Error for GatewayError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Listen { error, .. } | Self::System(error) | Self::NoIoUring(error) => {
                Some(error)
            }
            Self::Nowhere | Self::Passed(_) | Self::Fixed(_) | Self::Panicked => None,
        }
    }
}

impl Gateway {
    /// Listens and serves, in threads of its own. What happens to each peer is told to `tell`, of
    /// which each thread has a clone.
    ///
    /// # Errors
    ///
    /// See [`GatewayError`].
    pub fn start(
        settings: Settings,
        tell: impl FnMut(&Peer, &Event) + Clone + Send + 'static,
    ) -> Result<Self, GatewayError> {
        Self::start_with(settings, Vec::new(), tell)
    }

    /// As [`Gateway::start`], by a process that was started with sockets that listen already. Each is
    /// for the setting with its address. All threads accept from it, and who waits in its queue when
    /// the gateway drains is left there.
    ///
    /// # Errors
    ///
    /// See [`GatewayError`].
    pub fn start_with(
        settings: Settings,
        passed: Vec<net::TcpListener>,
        tell: impl FnMut(&Peer, &Event) + Clone + Send + 'static,
    ) -> Result<Self, GatewayError> {
        Self::start_resolving(settings, passed, Resolver::default(), tell)
    }

    fn start_resolving(
        mut settings: Settings,
        passed: Vec<net::TcpListener>,
        resolver: Resolver,
        tell: impl FnMut(&Peer, &Event) + Clone + Send + 'static,
    ) -> Result<Self, GatewayError> {
        let with_address = |listener: net::TcpListener| Ok((listener.local_addr()?, listener));
        let passed: io::Result<Vec<_>> = passed.into_iter().map(with_address).collect();
        let passed = passed.map_err(GatewayError::System)?;
        if settings.io == Io::IoUring {
            Self::has_io_uring().map_err(GatewayError::NoIoUring)?;
        }
        let mut secret = Secret::default();
        getrandom::fill(&mut secret)
            .map_err(|error| GatewayError::System(io::Error::other(error)))?;
        let known = Arc::<Mutex<KnownV1>>::default();
        let spare = Arc::<Mutex<Spare>>::default();
        let budget = Arc::<Budget>::default();
        let resolver = Arc::new(resolver);
        let mut threads = Vec::new();
        for number in 0..settings.workers.get() as u64 {
            let listeners = listeners(&mut settings, &passed)?;
            let poll = Poll::new().map_err(GatewayError::System)?;
            let waker = Waker::new(poll.registry(), WAKER).map_err(GatewayError::System)?;
            let waker = Arc::new(waker);
            let (requests, asked) = channel();
            let turns = Arc::<Mutex<Turns>>::default();
            let worker = Worker::new(
                settings,
                number,
                secret,
                Arc::clone(&known),
                Arc::clone(&spare),
                Arc::clone(&budget),
                Arc::clone(&turns),
                Arc::clone(&resolver),
                poll,
                Arc::clone(&waker),
                listeners,
                asked,
                Box::new(tell.clone()),
            );
            let worker = worker.map_err(GatewayError::System)?;
            let handle = std::thread::Builder::new()
                .name(format!("gateway-{number}"))
                .spawn(move || worker.run())
                .map_err(GatewayError::System)?;
            threads.push(Thread {
                requests,
                waker,
                turns,
                handle,
            });
        }
        Ok(Self { settings, threads })
    }

    /// Whether the kernel has io_uring and allows it.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn has_io_uring() -> io::Result<()> {
        // In another thread, because the end of a ring interrupts the system calls of its own.
        let probe = std::thread::spawn(|| {
            let poll = Poll::new()?;
            Ring::new(poll.as_raw_fd()).map(drop)
        });
        let failed = |_| io::Error::other("the thread that asked has panicked");
        probe.join().map_err(failed)?
    }

    /// Its settings. Ports that were left to the system are those it gave.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// All peers that are there now, those who have not shaken hands among them.
    #[must_use]
    pub fn peers(&self) -> Vec<Peer> {
        self.ask_all(Request::Peers).flatten().collect()
    }

    /// What each thread has done until now, always in the same order. Of a thread that has ended: what
    /// it had done then.
    #[must_use]
    pub fn turns(&self) -> Vec<Turns> {
        self.ask_all(Request::Turns).for_each(drop);
        let threads = self.threads.iter();
        threads.map(|thread| lock(&thread.turns).clone()).collect()
    }

    /// The answers, in any order. A thread that has ended gives none.
    fn ask_all<T>(&self, request: fn(Sender<T>) -> Request) -> impl Iterator<Item = T> {
        let (to, answers) = channel();
        for thread in &self.threads {
            thread.ask(request(to.clone()));
        }
        answers.into_iter()
    }

    /// Goes on with other settings. Connections stay.
    ///
    /// # Errors
    ///
    /// [`GatewayError::Fixed`] for what needs another gateway: where it listens, its network, its
    /// threads. Nothing changes then.
    pub fn change(&mut self, settings: Settings) -> Result<(), GatewayError> {
        if let Some(&name) = self.fixed(&settings).first() {
            return Err(GatewayError::Fixed(name));
        }
        self.settings = settings;
        for thread in &self.threads {
            thread.ask(Request::Settings(Box::new(settings)));
        }
        Ok(())
    }

    /// The names of those settings that differ from its own and need another gateway.
    #[must_use]
    pub fn fixed(&self, settings: &Settings) -> Vec<&'static str> {
        let old = &self.settings;
        let listen = |settings: &Settings| settings.inbound.map(|inbound| inbound.listen);
        let fixed = [
            ("listen", listen(old) != listen(settings)),
            ("socks", old.socks != settings.socks),
            ("transparent", old.transparent != settings.transparent),
            ("network", old.network != settings.network),
            ("workers", old.workers != settings.workers),
            ("io", old.io != settings.io),
        ];
        let differ = fixed.into_iter().filter(|(_, differs)| *differs);
        differ.map(|(name, _)| name).collect()
    }

    /// Accepts those who have begun to connect, and nobody else. The threads end with the last
    /// connection. Another gateway that listens at the same addresses gets all others. Returns when
    /// all threads have heard of it: who connects to a socket that was passed waits from then on.
    pub fn drain(&self) {
        self.ask_all(Request::Drain).for_each(drop);
    }

    /// Whether all threads have ended: after [`Gateway::drain`], or by an error.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let mut threads = self.threads.iter();
        threads.all(|thread| thread.handle.is_finished())
    }

    /// Closes all connections and waits for the threads.
    ///
    /// # Errors
    ///
    /// The first that a thread has met.
    pub fn stop(&mut self) -> Result<(), GatewayError> {
        for thread in &self.threads {
            thread.ask(Request::Stop);
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

/// One thread's listeners. The ports that the system gives are noted in the settings, for the other
/// threads.
fn listeners(
    settings: &mut Settings,
    passed: &[(SocketAddr, net::TcpListener)],
) -> Result<Vec<Listener>, GatewayError> {
    let inbound = settings.inbound.as_mut().map(|inbound| &mut inbound.listen);
    let doors = [
        (Door::Inbound, inbound),
        (Door::Socks, settings.socks.as_mut()),
        (Door::Transparent, settings.transparent.as_mut()),
    ];
    let is_set = |passed: SocketAddr| {
        let mut addresses = doors.iter().filter_map(|(_, address)| address.as_deref());
        addresses.any(|address| *address == passed)
    };
    if let Some((address, _)) = passed.iter().find(|(address, _)| !is_set(*address)) {
        return Err(GatewayError::Passed(*address));
    }
    let mut listeners = Vec::new();
    for (door, address) in doors {
        if let Some(address) = address {
            let failed = |error| GatewayError::Listen {
                address: *address,
                error,
            };
            let its = passed.iter().find(|(passed, _)| passed == address);
            let socket = match its {
                Some((_, socket)) => share(socket),
                None => listen(*address),
            };
            let socket = socket.map_err(failed)?;
            *address = socket.local_addr().map_err(failed)?;
            listeners.push(Listener::new(door, socket, its.is_some()));
        }
    }
    match listeners.is_empty() {
        true => Err(GatewayError::Nowhere),
        false => Ok(listeners),
    }
}

/// One more of a socket that was passed.
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
    // The kernel spreads connections over the threads, and over two gateways when one takes over.
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
    use std::time::Duration;

    const MAGIC: [u8; 4] = Network::Regtest.magic();

    static SLOW_MAY_END: AtomicBool = AtomicBool::new(false);

    /// "mixed": at the first address nobody listens, the second one does not answer, and the third
    /// one is a peer's. The others have one of them. "slow" takes as long as the test likes.
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

    /// A name's addresses are tried in their order, and one that does not answer for a part of the
    /// time only.
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

        for io in [Io::Epoll, Io::Best] {
            let (_gateway, socks) = proxy(io, |_, _| {});
            for (name, expected) in [("mixed", 0), ("good", 0), ("nobody", 5)] {
                let mut stream = ask(socks, name, port);
                let mut reply = [0; 12];
                stream.read_exact(&mut reply).unwrap();
                assert_eq!(reply[..4], [5, 0, 5, expected], "{io:?}");
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
    }

    /// A gateway that is asked by SOCKS, and resolves names as above.
    fn proxy(
        io: Io,
        tell: impl FnMut(&Peer, &Event) + Clone + Send + 'static,
    ) -> (Gateway, SocketAddr) {
        let mut settings = Settings {
            socks: Some(([127, 0, 0, 1], 0).into()),
            io,
            ..Settings::new(Network::Regtest, Engine::detect().unwrap())
        };
        // So that an address has a second.
        settings.limits.handshake = Duration::from_secs(6);
        let resolver = Resolver::new(look_up);
        let gateway = Gateway::start_resolving(settings, Vec::new(), resolver, tell).unwrap();
        let socks = gateway.settings().socks.unwrap();
        (gateway, socks)
    }

    /// Asks for a connection to a name, without a password. The method and the reply are 12 bytes.
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

    /// A node that hangs up while its name is looked up is gone at once, and its name with it.
    #[test]
    fn an_abandoned_name_is_noticed() {
        for io in [Io::Epoll, Io::Best] {
            let (tell, told) = channel();
            let (_gateway, socks) = proxy(io, move |_: &Peer, event: &Event| {
                let _ = tell.send(format!("{event:?}"));
            });
            let mut stream = ask(socks, "slow", 1);
            stream.read_exact(&mut [0; 2]).unwrap();
            drop(stream);
            let heard = told.recv_timeout(Duration::from_secs(3));
            assert_eq!(heard.as_deref(), Ok("Closed(Node)"), "{io:?}");
        }
        SLOW_MAY_END.store(true, Relaxed);
    }
}
