//! The sockets that accept connections.

use crate::address::canonical;
use crate::budget::Direction;
use crate::dial::lock;
use crate::reactor::Reactor;
use mio::net::{TcpListener, TcpStream};
use socket2::{Domain, SockFilter, SockRef, Socket, Type};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Length of the accept queue, for each listener.
pub(crate) const BACKLOG: i32 = 1024;

/// Linux errno values: too many open files, in the process and in the system.
const EMFILE: i32 = 24;
const ENFILE: i32 = 23;

/// Who connects to a listener.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ListenerKind {
    /// Peers: for the element of [`Settings::inbound`](crate::Settings::inbound) with this index.
    Inbound(usize),
    /// Nodes that send a SOCKS request.
    Socks,
    /// Nodes whose connections to peers a firewall redirects.
    Transparent,
}

impl ListenerKind {
    pub(crate) fn direction(self) -> Direction {
        match self {
            Self::Inbound(_) => Direction::Inbound,
            Self::Socks | Self::Transparent => Direction::Outbound,
        }
    }
}

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) kind: ListenerKind,
    pub(crate) socket: TcpListener,
    /// Whether the process was started with this socket, so that its owner keeps it open.
    pub(crate) is_passed: bool,
    /// Whether connections may be waiting: events report only later ones.
    has_more: bool,
}

impl Listener {
    pub(crate) fn new(kind: ListenerKind, socket: TcpListener, is_passed: bool) -> Self {
        Self {
            kind,
            socket,
            is_passed,
            has_more: true,
        }
    }

    /// Drops new SYN packets. Handshakes under way can finish. A client whose SYN is dropped
    /// retries after a second, and reaches another gateway if one listens by then.
    fn stop_accepting(&self) -> io::Result<()> {
        // Checks the flags in the TCP header: drops packets with SYN and keeps all others.
        const LOAD_BYTE: u16 = 0x30;
        const JUMP_IF_SET: u16 = 0x45;
        const RETURN: u16 = 0x06;
        const FLAGS: u32 = 13;
        const SYN: u32 = 2;
        SockRef::from(&self.socket).attach_filter(&[
            SockFilter::new(LOAD_BYTE, 0, 0, FLAGS),
            SockFilter::new(JUMP_IF_SET, 0, 1, SYN),
            SockFilter::new(RETURN, 0, 0, 0),
            SockFilter::new(RETURN, 0, 0, u32::MAX),
        ])
    }
}

/// How long the listeners stay open after [`Listeners::stop_accepting`], so that TCP handshakes
/// already under way can finish: longer than the longest round trip on Earth. A client whose SYN
/// was dropped retries after one second; by then only the new gateway must be listening.
const ACCEPT_GRACE: Duration = Duration::from_millis(500);

/// A connection that was accepted, or that found no file descriptor.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) kind: ListenerKind,
    /// `None` if there are too many open files.
    pub(crate) socket: Option<TcpStream>,
    pub(crate) from: SocketAddr,
}

/// The listeners of a thread.
#[derive(Debug)]
pub(crate) struct Listeners {
    all: Vec<Listener>,
    /// When they stopped accepting.
    stopped: Option<Instant>,
}

impl Listeners {
    pub(crate) fn new(mut all: Vec<Listener>, reactor: &Reactor) -> io::Result<Self> {
        for (index, listener) in all.iter_mut().enumerate() {
            reactor.add_listener(&mut listener.socket, index)?;
        }
        Ok(Self { all, stopped: None })
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether connections may be waiting.
    pub(crate) fn have_more(&self) -> bool {
        self.all.iter().any(|listener| listener.has_more)
    }

    /// Notes that connections may be waiting at the listener with this index.
    pub(crate) fn try_one(&mut self, index: usize) {
        if let Some(listener) = self.all.get_mut(index) {
            listener.has_more = true;
        }
    }

    /// Notes that connections may be waiting at all listeners.
    pub(crate) fn try_all(&mut self) {
        for listener in &mut self.all {
            listener.has_more = true;
        }
    }

    /// The next connection of the listener with this index, if one is waiting.
    pub(crate) fn accept(
        &mut self,
        index: usize,
        reserved_fd: &Mutex<ReservedFd>,
    ) -> Option<Accepted> {
        let listener = self.all.get_mut(index)?;
        while listener.has_more {
            match lock(reserved_fd).accept(&listener.socket) {
                Ok((socket, from)) => {
                    return Some(Accepted {
                        kind: listener.kind,
                        socket,
                        from,
                    });
                }
                // The client has gone already.
                Err(error)
                    if [ErrorKind::Interrupted, ErrorKind::ConnectionAborted]
                        .contains(&error.kind()) => {}
                Err(_) => listener.has_more = false,
            }
        }
        None
    }

    /// Closing a listener makes the kernel reset the connections in its queue, and those still in
    /// the TCP handshake. So it first stops accepting, and is closed [later](Self::time_left). A
    /// socket that was passed to us stays open for its owner: the connections in its queue wait.
    pub(crate) fn stop_accepting(&mut self, reactor: &Reactor) -> io::Result<()> {
        let mut passed = self.all.extract_if(.., |listener| listener.is_passed);
        // The socket stays open, so the event queue would keep reporting it.
        passed.try_for_each(|mut listener| reactor.remove(&mut listener.socket))?;
        drop(passed);
        for listener in &self.all {
            // If this fails, a few clients that are connecting right now may be reset.
            let _ = listener.stop_accepting();
        }
        self.stopped.get_or_insert_with(Instant::now);
        Ok(())
    }

    /// After [`Listeners::stop_accepting`]: how long until the listeners must be closed.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let stopped = self.stopped?;
        Some(ACCEPT_GRACE.saturating_sub(stopped.elapsed()))
    }

    /// Closes the listeners.
    pub(crate) fn close(&mut self) {
        self.all.clear();
        self.stopped = None;
    }
}

/// A file descriptor held in reserve. When the process runs out of descriptors, it is closed for a
/// moment, so that a waiting connection can be accepted and refused instead of being left hanging.
/// Shared by all threads.
#[derive(Debug, Default)]
pub(crate) struct ReservedFd(Option<Socket>);

impl ReservedFd {
    fn fill(&mut self) {
        // If no descriptor is free now, one may be later.
        self.0 = self
            .0
            .take()
            .or_else(|| Socket::new(Domain::UNIX, Type::DGRAM, None).ok());
    }

    /// Accepts a connection and returns its [canonical](canonical) address. The socket is `None` if
    /// there are too many open files. Takes `&mut self` so that no other thread can take the
    /// descriptor meanwhile.
    pub(crate) fn accept(
        &mut self,
        listener: &TcpListener,
    ) -> io::Result<(Option<TcpStream>, SocketAddr)> {
        self.fill();
        let (socket, from) = match listener.accept() {
            Err(error) if matches!(error.raw_os_error(), Some(EMFILE | ENFILE)) => {
                drop(self.0.take());
                let (_, from) = listener.accept()?;
                self.fill();
                (None, from)
            }
            accepted => accepted.map(|(socket, from)| (Some(socket), from))?,
        };
        Ok((socket, canonical(from)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::thread;

    /// A non-blocking listener whose port others may share.
    fn listener(at: SocketAddr) -> Listener {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_reuse_port(true).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.bind(&at.into()).unwrap();
        socket.listen(BACKLOG).unwrap();
        let socket = TcpListener::from_std(socket.into());
        Listener::new(ListenerKind::Inbound(0), socket, false)
    }

    /// Greets every waiting connection.
    fn greet(listener: &Listener) {
        while let Ok((socket, _)) = listener.socket.accept() {
            let socket = SockRef::from(&socket).try_clone().unwrap();
            socket.set_nonblocking(false).unwrap();
            TcpStream::from(socket).write_all(b"!").unwrap();
        }
    }

    /// Of two listeners on one port, one stops accepting, greets the connections it has, and is
    /// closed a little later. Every client must be greeted; without `stop_accepting` some would be
    /// reset.
    #[test]
    fn no_connection_is_lost_when_a_listener_stops_accepting() {
        let ending = listener(([127, 0, 0, 1], 0).into());
        let at = ending.socket.local_addr().unwrap();
        let staying = listener(at);
        let ends = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(Relaxed) {
                    greet(&staying);
                    thread::sleep(Duration::from_millis(1));
                }
            });
            let peers = [(); 8].map(|()| {
                scope.spawn(move || {
                    for _ in 0..30 {
                        let mut greeting = [0];
                        let mut stream = TcpStream::connect(at)?;
                        stream.read_exact(&mut greeting)?;
                        thread::sleep(Duration::from_millis(5));
                    }
                    Ok::<(), io::Error>(())
                })
            });
            for _ in 0..20 {
                greet(&ending);
                thread::sleep(Duration::from_millis(1));
            }
            ending.stop_accepting().unwrap();
            // Handshakes under way finish in this time.
            thread::sleep(Duration::from_millis(20));
            greet(&ending);
            thread::sleep(Duration::from_millis(100));
            drop(ending);
            let found = peers.map(|peer| peer.join().unwrap());
            ends.store(true, Relaxed);
            for found in found {
                found.expect("a greeting");
            }
        });
    }
}
