//! How peers are reached: names looked up, sockets that connect, and who is known to speak v1 only.

use crate::socks::Target;
use mio::Waker;
use mio::net::TcpStream;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::time::{Duration, Instant};

/// Linux's number for a connection that is under way.
const EINPROGRESS: i32 = 115;

/// Names that wait to be looked up. Nodes ask for a dozen, when they start.
const MOST_LOOKUPS: usize = 64;

/// Peers that are remembered to speak v1 only. There are some ten thousand reachable nodes.
const MOST_KNOWN: usize = 16 * 1024;

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

/// An answer: the link's id, its number, and where its name leads: at least one address, the best
/// one first.
pub(crate) type Found = (u64, usize, io::Result<Vec<SocketAddr>>);

/// Looks names up, in a thread of its own: the system's way waits.
#[derive(Debug)]
pub(crate) struct Resolver {
    questions: SyncSender<(u64, usize, String, u16)>,
    answers: Receiver<Found>,
}

impl Resolver {
    /// `waker` is woken at each answer. The thread ends with the resolver.
    pub(crate) fn start(waker: Arc<Waker>) -> io::Result<Self> {
        let (questions, asked) = sync_channel(MOST_LOOKUPS);
        let (tell, answers) = channel();
        std::thread::Builder::new()
            .name("gateway-names".into())
            .spawn(move || look_up(&asked, &tell, &waker))?;
        Ok(Self { questions, answers })
    }

    /// # Errors
    ///
    /// If too many names wait.
    pub(crate) fn ask(&self, id: u64, link: usize, name: &str, port: u16) -> io::Result<()> {
        let question = (id, link, name.to_owned(), port);
        self.questions.try_send(question).map_err(|error| {
            io::Error::other(match error {
                TrySendError::Full(_) => "too many names are being looked up",
                TrySendError::Disconnected(_) => "the thread that looks names up has ended",
            })
        })
    }

    pub(crate) fn found(&self) -> Option<Found> {
        self.answers.try_recv().ok()
    }
}

fn look_up(asked: &Receiver<(u64, usize, String, u16)>, tell: &Sender<Found>, waker: &Waker) {
    while let Ok((id, link, name, port)) = asked.recv() {
        let found = (name.as_str(), port).to_socket_addrs();
        let found = found.and_then(|addresses| match addresses.collect::<Vec<_>>() {
            none if none.is_empty() => {
                Err(io::Error::new(ErrorKind::NotFound, "it has no address"))
            }
            some => Ok(some),
        });
        if tell.send((id, link, found)).is_err() {
            return;
        }
        // If it cannot be woken, it sees the answer within a second.
        let _ = waker.wake();
    }
}

/// Peers that closed when they were greeted by v2, and then spoke v1.
#[derive(Debug, Default)]
pub(crate) struct KnownV1 {
    until: HashMap<Target, Instant>,
    /// The oldest first. Holds each as often as it was added.
    order: VecDeque<Target>,
}

impl KnownV1 {
    pub(crate) fn add(&mut self, peer: &Target, now: Instant) {
        while self.order.len() >= MOST_KNOWN {
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

    #[test]
    fn who_speaks_v1_is_known_for_a_while_and_not_without_bound() {
        let mut known = KnownV1::default();
        let start = Instant::now();
        let peer = |number: usize| Target::Name(format!("peer{number}"), 8333);
        known.add(&peer(0), start);
        assert!(known.has(&peer(0), start) && !known.has(&peer(1), start));
        assert!(!known.has(&peer(0), start + KNOWN_FOR));
        for number in 1..MOST_KNOWN + 10 {
            known.add(&peer(number), start);
        }
        assert!(known.until.len() <= MOST_KNOWN && known.order.len() <= MOST_KNOWN);
        assert!(!known.has(&peer(0), start) && known.has(&peer(MOST_KNOWN), start));
    }
}
