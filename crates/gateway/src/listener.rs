//! The sockets that accept connections.

use crate::address::canonical;
use crate::budget::Direction;
use crate::dial::lock;
use mio::net::{TcpListener, TcpStream};
use rustix::io::Errno;
use socket2::{Domain, SockFilter, SockRef, Socket, Type};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Mutex;

/// Length of the accept queue, for each listener.
pub(crate) const BACKLOG: i32 = 1024;

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
    pub(crate) has_more: bool,
}

impl Listener {
    /// The next connection, if one is waiting: see [`ReservedFd::accept`].
    pub(crate) fn accept(
        &mut self,
        reserved_fd: &Mutex<ReservedFd>,
    ) -> Option<(Option<TcpStream>, SocketAddr)> {
        while self.has_more {
            match lock(reserved_fd).accept(&self.socket) {
                Ok(accepted) => return Some(accepted),
                // The client has gone already.
                Err(error)
                    if [ErrorKind::Interrupted, ErrorKind::ConnectionAborted]
                        .contains(&error.kind()) => {}
                Err(_) => self.has_more = false,
            }
        }
        None
    }

    /// Drops new SYN packets. Handshakes under way can finish. A client whose SYN is dropped
    /// retries after a second, and reaches another gateway if one listens by then.
    pub(crate) fn stop_accepting(&self) -> io::Result<()> {
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

/// A file descriptor held in reserve. When the process runs out of descriptors, it is closed for a
/// moment, so that a waiting connection can be accepted and refused instead of being left hanging.
/// Shared by all threads.
#[derive(Debug, Default)]
pub(crate) struct ReservedFd(Option<Socket>);

impl ReservedFd {
    fn fill(&mut self) {
        if self.0.is_none() {
            // If no descriptor is free now, one may be later.
            self.0 = Socket::new(Domain::UNIX, Type::DGRAM, None).ok();
        }
    }

    /// Accepts a connection and returns its [canonical](canonical) address. The socket is `None` if
    /// there are too many open files. Takes `&mut self` so that no other thread can take the
    /// descriptor meanwhile.
    fn accept(&mut self, listener: &TcpListener) -> io::Result<(Option<TcpStream>, SocketAddr)> {
        self.fill();
        let (socket, from) = match listener.accept() {
            Err(error)
                if matches!(
                    Errno::from_io_error(&error),
                    Some(Errno::MFILE | Errno::NFILE)
                ) =>
            {
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
    use std::time::Duration;

    /// A non-blocking listener whose port others may share.
    fn listener(at: SocketAddr) -> Listener {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_reuse_port(true).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.bind(&at.into()).unwrap();
        socket.listen(BACKLOG).unwrap();
        let socket = TcpListener::from_std(socket.into());
        Listener {
            kind: ListenerKind::Inbound(0),
            socket,
            is_passed: false,
            has_more: true,
        }
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
