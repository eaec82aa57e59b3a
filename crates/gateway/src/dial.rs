//! Reaching peers: name lookups, connecting sockets, and the peers known to speak v1 only.

use crate::socks::Target;
use mio::net::TcpStream;
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// How long [`check_foreign`] waits for an answer from this machine.
const FOREIGN_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum lookups in the queue. A node asks for about a dozen names when it starts.
const MAX_LOOKUPS: usize = 256;

/// Maximum lookups at a time. A name whose servers do not answer takes about 10 seconds.
const MAX_THREADS: usize = 8;

/// Maximum addresses tried per name. DNS seeds return dozens.
const MAX_ADDRESSES: usize = 8;

/// Maximum peers remembered as v1 only. There are about ten thousand reachable nodes.
const MAX_KNOWN: usize = 16 * 1024;

/// How long a peer is remembered as v1 only. It may be upgraded, so v2 is tried again after this
/// time.
const KNOWN_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// The address that a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// What the system chooses.
    Any,
    /// An address of this machine.
    Local(IpAddr),
    /// Any address and port, also of another machine (`IP_TRANSPARENT`).
    Foreign(SocketAddr),
}

impl Origin {
    fn bind(self, socket: &Socket) -> io::Result<()> {
        match self {
            Self::Any => Ok(()),
            Self::Local(ip) => socket.bind(&SocketAddr::from((ip, 0)).into()),
            Self::Foreign(address) => {
                // Linux has one flag for both IP versions.
                socket.set_ip_transparent_v4(true)?;
                socket.set_reuse_address(true)?;
                // The port may be in use, by an earlier connection of the peer.
                let any_port = || socket.bind(&SocketAddr::from((address.ip(), 0)).into());
                socket.bind(&address.into()).or_else(|_| any_port())
            }
        }
    }
}

/// Whether connections from foreign addresses to the node work: the process may make them, and
/// answers come back, be it that the node is not running. Tried from an address that is for
/// documentation.
pub(crate) fn check_foreign(node: SocketAddr) -> io::Result<()> {
    let foreign: IpAddr = match node {
        SocketAddr::V4(_) => [192, 0, 2, 1].into(),
        SocketAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    };
    let socket = Socket::new(Domain::for_address(node), Type::STREAM, Some(Protocol::TCP))?;
    Origin::Foreign((foreign, 0).into()).bind(&socket)?;
    match socket.connect_timeout(&node.into(), FOREIGN_TIMEOUT) {
        Err(error) if error.kind() != ErrorKind::ConnectionRefused => Err(error),
        _ => Ok(()),
    }
}

/// Starts connecting.
pub(crate) fn connect(to: SocketAddr, origin: Origin) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    origin.bind(&socket)?;
    match socket.connect(&to.into()) {
        Ok(()) => {}
        // An event reports when it is connected.
        Err(error)
            if Errno::from_io_error(&error) == Some(Errno::INPROGRESS)
                || error.kind() == ErrorKind::WouldBlock => {}
        Err(error) => return Err(error),
    }
    Ok(TcpStream::from_std(socket.into()))
}

/// Whether a target is an onion service, in any spelling.
pub(crate) fn is_onion(target: &Target) -> bool {
    match target {
        Target::Address(_) => false,
        Target::Name(name, _) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            name.ends_with(".onion")
        }
    }
}

/// The addresses of a name: at least one, the preferred one first.
pub(crate) type LookupResult = io::Result<Vec<SocketAddr>>;

/// Looks up names for all threads of a gateway, in a few threads of its own: the system's resolver
/// blocks, for a long time if the name's servers do not answer.
pub(crate) struct Resolver {
    look_up: fn(&str, u16) -> LookupResult,
    state: Mutex<Lookups>,
}

#[derive(Default)]
struct Lookups {
    waiting: VecDeque<Lookup>,
    /// Each thread works until the queue is empty.
    threads: usize,
}

/// A lookup and its answer, and a handle that is dead when nobody waits for it any more.
type Lookup = (Weak<()>, Box<dyn FnOnce() + Send>);

impl Default for Resolver {
    fn default() -> Self {
        Self::new(addresses)
    }
}

impl Resolver {
    pub(crate) fn new(look_up: fn(&str, u16) -> LookupResult) -> Self {
        Self {
            look_up,
            state: Mutex::default(),
        }
    }

    /// Queues a lookup. `answer` is called on a thread of the resolver, unless the returned handle
    /// is dropped before the lookup starts.
    ///
    /// # Errors
    ///
    /// Too many lookups are queued, or no thread can be started.
    pub(crate) fn request(
        self: &Arc<Self>,
        name: &str,
        port: u16,
        answer: impl FnOnce(LookupResult) + Send + 'static,
    ) -> io::Result<Arc<()>> {
        let waiter = Arc::new(());
        let mut state = lock(&self.state);
        if state.waiting.len() >= MAX_LOOKUPS {
            state.waiting.retain(is_wanted);
        }
        if state.waiting.len() >= MAX_LOOKUPS {
            return Err(io::Error::other("too many names are being looked up"));
        }
        if state.threads < MAX_THREADS {
            let resolver = Arc::clone(self);
            let thread = thread::Builder::new().name("gateway-names".into());
            match thread.spawn(move || resolver.run()) {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads == 0 => return Err(error),
                Err(_) => {}
            }
        }
        let (look_up, name) = (self.look_up, name.to_owned());
        let lookup = Box::new(move || answer(look_up(&name, port)));
        state.waiting.push_back((Arc::downgrade(&waiter), lookup));
        Ok(waiter)
    }

    fn run(&self) {
        while let Some((_, lookup)) = self.next() {
            lookup();
        }
    }

    /// The next lookup that is still wanted. If there is none, the thread must end.
    fn next(&self) -> Option<Lookup> {
        let mut state = lock(&self.state);
        while let Some(lookup) = state.waiting.pop_front() {
            if is_wanted(&lookup) {
                return Some(lookup);
            }
        }
        state.threads -= 1;
        None
    }
}

fn is_wanted((waiter, _): &Lookup) -> bool {
    waiter.strong_count() > 0
}

/// Uses the system's resolver.
fn addresses(name: &str, port: u16) -> LookupResult {
    let found: Vec<_> = (name, port)
        .to_socket_addrs()?
        .take(MAX_ADDRESSES)
        .collect();
    match found.is_empty() {
        true => Err(io::Error::new(
            ErrorKind::NotFound,
            "the name has no address",
        )),
        false => Ok(found),
    }
}

pub(crate) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Peers that did not answer over v2, then spoke v1, and did not say that they speak v2; and until when
/// they are remembered.
#[derive(Debug, Default)]
pub(crate) struct KnownV1(pub(crate) HashMap<Target, Instant>);

impl KnownV1 {
    /// Remembers a peer, instead of the oldest if there are too many.
    pub(crate) fn add(&mut self, peer: &Target, now: Instant) {
        if self.0.len() >= MAX_KNOWN {
            let oldest = self.0.iter().min_by_key(|(_, until)| **until);
            if let Some(oldest) = oldest.map(|(peer, _)| peer.clone()) {
                self.0.remove(&oldest);
            }
        }
        self.0.insert(peer.clone(), now + KNOWN_FOR);
    }

    pub(crate) fn has(&self, peer: &Target, now: Instant) -> bool {
        self.0.get(peer).is_some_and(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::sync::mpsc::channel;

    static SLOW_MAY_END: AtomicBool = AtomicBool::new(false);
    static LOOKED_UP: Mutex<Vec<String>> = Mutex::new(Vec::new());

    /// Names that begin with "slow" take as long as the test wants.
    fn look_up(name: &str, port: u16) -> LookupResult {
        lock(&LOOKED_UP).push(name.to_owned());
        while name.starts_with("slow") && !SLOW_MAY_END.load(Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(vec![([127, 0, 0, 1], port).into()])
    }

    #[test]
    fn slow_lookups_delay_no_others_and_cancelled_ones_are_skipped() {
        let resolver = Arc::new(Resolver::new(look_up));
        let (tell, found) = channel();
        let ask = |name: &str| {
            let tell = tell.clone();
            resolver.request(name, 8333, move |_| tell.send(()).unwrap())
        };
        let slow = |number: usize| ask(&format!("slow{number}")).unwrap();
        let limit = Duration::from_secs(20);
        let few: Vec<_> = (1..MAX_THREADS).map(slow).collect();
        for _ in 0..20 {
            let _fast = ask("fast").unwrap();
            found.recv_timeout(limit).expect("a thread is left for it");
        }
        // Now all threads are busy.
        let _last = slow(MAX_THREADS);
        let all_begun = || lock(&LOOKED_UP).len() == 20 + MAX_THREADS;
        while !all_begun() {
            thread::sleep(Duration::from_millis(1));
        }
        let abandoned: Vec<_> = (0..MAX_LOOKUPS)
            .map(|_| ask("abandoned").unwrap())
            .collect();
        let error = ask("too many").unwrap_err();
        assert_eq!(error.to_string(), "too many names are being looked up");
        drop(abandoned);
        let _wanted = ask("wanted").unwrap();
        assert!(found.try_recv().is_err());
        assert_eq!(lock(&resolver.state).threads, MAX_THREADS);
        SLOW_MAY_END.store(true, Relaxed);
        for _ in 0..=few.len() + 1 {
            found.recv_timeout(limit).unwrap();
        }
        let looked_up = std::mem::take(&mut *lock(&LOOKED_UP));
        assert!(looked_up.contains(&"wanted".to_owned()));
        assert!(!looked_up.contains(&"abandoned".to_owned()));
        // The threads end when nothing is queued.
        while lock(&resolver.state).threads > 0 {
            thread::sleep(Duration::from_millis(1));
        }
        let _fast = ask("fast").unwrap();
        found.recv_timeout(limit).unwrap();
    }

    #[test]
    fn v1_only_peers_are_remembered_for_a_limited_time_and_number() {
        let mut known = KnownV1::default();
        let start = Instant::now();
        let peer = |number: usize| Target::Name(format!("peer{number}"), 8333);
        known.add(&peer(0), start);
        assert!(known.has(&peer(0), start) && !known.has(&peer(1), start));
        assert!(!known.has(&peer(0), start + KNOWN_FOR));
        known.0.remove(&peer(0));
        assert!(!known.has(&peer(0), start));
        for number in 1..MAX_KNOWN + 10 {
            known.add(&peer(number), start + Duration::from_millis(number as u64));
        }
        assert_eq!(known.0.len(), MAX_KNOWN);
        // The oldest are forgotten.
        assert!(!known.has(&peer(9), start) && known.has(&peer(10), start));
        assert!(known.has(&peer(MAX_KNOWN + 9), start));
    }
}
