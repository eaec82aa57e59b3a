//! How peers are reached: names looked up, sockets that connect, and who is known to speak v1 only.

use crate::socks::Target;
use mio::net::TcpStream;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Linux's number for a connection that is under way.
const EINPROGRESS: i32 = 115;

/// Names that wait to be looked up. Nodes ask for a dozen, when they start.
const MAX_LOOKUPS: usize = 256;

/// Names that are looked up at a time. One whose servers are silent takes some 10 seconds.
const MAX_THREADS: usize = 8;

/// Addresses of a name that are tried. DNS seeds give dozens.
const MAX_ADDRESSES: usize = 8;

/// Peers that are remembered to speak v1 only. There are some ten thousand reachable nodes.
const MAX_KNOWN: usize = 16 * 1024;

/// After that time a peer is tried by v2 again: it may have a new version.
const KNOWN_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// Begins to connect, from `source` if there is one.
pub(crate) fn connect(to: SocketAddr, source: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    if let Some(source) = source {
        socket.bind(&SocketAddr::from((source, 0)).into())?;
    }
    match socket.connect(&to.into()) {
        Ok(()) => {}
        // It tells by an event when it is connected.
        Err(error)
            if error.raw_os_error() == Some(EINPROGRESS)
                || error.kind() == ErrorKind::WouldBlock => {}
        Err(error) => return Err(error),
    }
    Ok(TcpStream::from_std(socket.into()))
}

/// Whether a socket that connects has connected; an error if it cannot.
pub(crate) fn is_connected(socket: &TcpStream) -> io::Result<bool> {
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    match socket.peer_addr() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(error),
    }
}

/// Where a name leads: at least one address, the best one first.
pub(crate) type Found = io::Result<Vec<SocketAddr>>;

/// Looks names up for all threads of a gateway, a few at a time, in threads of its own: the
/// system's resolver blocks, and for a name whose servers are silent it does so for long.
pub(crate) struct Resolver {
    look_up: fn(&str, u16) -> Found,
    state: Mutex<Lookups>,
}

#[derive(Default)]
struct Lookups {
    waiting: VecDeque<Question>,
    /// Each looks up one name after the other, and ends when none waits.
    threads: usize,
}

struct Question {
    name: String,
    port: u16,
    /// Gone when nobody waits for the answer any more.
    asker: Weak<()>,
    answer: Box<dyn FnOnce(Found) + Send>,
}

impl Default for Resolver {
    fn default() -> Self {
        Self::new(addresses)
    }
}

impl Resolver {
    pub(crate) fn new(look_up: fn(&str, u16) -> Found) -> Self {
        Self {
            look_up,
            state: Mutex::default(),
        }
    }

    /// Has a name looked up. `answer` is called in a thread of the resolver, unless what is returned is
    /// dropped before the lookup begins.
    ///
    /// # Errors
    ///
    /// If too many names wait, or there is no thread for them.
    pub(crate) fn ask(
        self: &Arc<Self>,
        name: &str,
        port: u16,
        answer: impl FnOnce(Found) + Send + 'static,
    ) -> io::Result<Arc<()>> {
        let asker = Arc::new(());
        let mut state = lock(&self.state);
        if state.waiting.len() >= MAX_LOOKUPS {
            state.waiting.retain(Question::is_wanted);
        }
        if state.waiting.len() >= MAX_LOOKUPS {
            return Err(io::Error::other("too many names are being looked up"));
        }
        if state.threads < MAX_THREADS {
            let resolver = Arc::clone(self);
            let started = thread::Builder::new()
                .name("gateway-names".into())
                .spawn(move || resolver.run());
            match started {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads == 0 => return Err(error),
                Err(_) => {}
            }
        }
        state.waiting.push_back(Question {
            name: name.to_owned(),
            port,
            asker: Arc::downgrade(&asker),
            answer: Box::new(answer),
        });
        Ok(asker)
    }

    fn run(&self) {
        while let Some(question) = self.next() {
            (question.answer)((self.look_up)(&question.name, question.port));
        }
    }

    /// The next name that somebody waits for. If there is none, the thread is to end.
    fn next(&self) -> Option<Question> {
        let mut state = lock(&self.state);
        while let Some(question) = state.waiting.pop_front() {
            if question.is_wanted() {
                return Some(question);
            }
        }
        state.threads -= 1;
        None
    }
}

impl Question {
    fn is_wanted(&self) -> bool {
        self.asker.strong_count() > 0
    }
}

/// As the system resolves names.
fn addresses(name: &str, port: u16) -> Found {
    let found: Vec<_> = (name, port)
        .to_socket_addrs()?
        .take(MAX_ADDRESSES)
        .collect();
    match found.is_empty() {
        true => Err(io::Error::new(ErrorKind::NotFound, "it has no address")),
        false => Ok(found),
    }
}

pub(crate) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Peers that did not answer by v2, and then spoke v1.
#[derive(Debug, Default)]
pub(crate) struct KnownV1 {
    until: HashMap<Target, Instant>,
    /// The oldest first. Holds each as often as it was added.
    order: VecDeque<Target>,
}

impl KnownV1 {
    pub(crate) fn add(&mut self, peer: &Target, now: Instant) {
        while self.order.len() >= MAX_KNOWN {
            if let Some(oldest) = self.order.pop_front() {
                self.until.remove(&oldest);
            }
        }
        self.until.insert(peer.clone(), now + KNOWN_FOR);
        self.order.push_back(peer.clone());
    }

    pub(crate) fn has(&self, peer: &Target, now: Instant) -> bool {
        self.until.get(peer).is_some_and(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::sync::mpsc::channel;

    static SLOW_MAY_END: AtomicBool = AtomicBool::new(false);
    static LOOKED_UP: Mutex<Vec<String>> = Mutex::new(Vec::new());

    /// Names that begin with "slow" take as long as the test likes.
    fn look_up(name: &str, port: u16) -> Found {
        lock(&LOOKED_UP).push(name.to_owned());
        while name.starts_with("slow") && !SLOW_MAY_END.load(Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(vec![([127, 0, 0, 1], port).into()])
    }

    #[test]
    fn slow_names_hold_up_no_others_and_abandoned_ones_are_not_looked_up() {
        let resolver = Arc::new(Resolver::new(look_up));
        let (tell, found) = channel();
        let ask = |name: &str| {
            let tell = tell.clone();
            resolver.ask(name, 8333, move |_| tell.send(()).unwrap())
        };
        let slow = |number: usize| ask(&format!("slow{number}")).unwrap();
        let limit = Duration::from_secs(20);
        let few: Vec<_> = (1..MAX_THREADS).map(slow).collect();
        for _ in 0..20 {
            let _fast = ask("fast").unwrap();
            found.recv_timeout(limit).expect("a thread is left for it");
        }
        // Now none is left.
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
        // The threads end.
        while lock(&resolver.state).threads > 0 {
            thread::sleep(Duration::from_millis(1));
        }
        let _fast = ask("fast").unwrap();
        found.recv_timeout(limit).unwrap();
    }

    #[test]
    fn who_speaks_v1_is_known_for_a_while_and_not_without_bound() {
        let mut known = KnownV1::default();
        let start = Instant::now();
        let peer = |number: usize| Target::Name(format!("peer{number}"), 8333);
        known.add(&peer(0), start);
        assert!(known.has(&peer(0), start) && !known.has(&peer(1), start));
        assert!(!known.has(&peer(0), start + KNOWN_FOR));
        for number in 1..MAX_KNOWN + 10 {
            known.add(&peer(number), start);
        }
        assert!(known.until.len() <= MAX_KNOWN && known.order.len() <= MAX_KNOWN);
        assert!(!known.has(&peer(0), start) && known.has(&peer(MAX_KNOWN), start));
    }
}
