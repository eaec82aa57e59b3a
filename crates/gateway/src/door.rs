//! Where the gateway accepts, and whom.

use crate::address::canonical;
use crate::budget::Direction;
use mio::net::{TcpListener, TcpStream};
use socket2::{Domain, SockFilter, SockRef, Socket, Type};
use std::io;
use std::net::SocketAddr;

/// Connections that wait to be accepted, for each listener.
pub(crate) const BACKLOG: i32 = 1024;

/// Linux's numbers: too many open files, in the process and in the system.
const EMFILE: i32 = 24;
const ENFILE: i32 = 23;

/// Who is accepted at a listener.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Door {
    /// Peers.
    Inbound,
    /// Nodes, which say by SOCKS where they want to connect.
    Socks,
    /// Nodes, whose connections to peers a firewall has redirected.
    Transparent,
}

impl Door {
    pub(crate) fn direction(self) -> Direction {
        match self {
            Self::Inbound => Direction::Inbound,
            Self::Socks | Self::Transparent => Direction::Outbound,
        }
    }
}

/// Where a thread accepts.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) door: Door,
    pub(crate) socket: TcpListener,
    /// Whether it was passed to the program: it is another's, too.
    pub(crate) is_passed: bool,
    /// Somebody may wait: events tell only of those who come later.
    pub(crate) has_more: bool,
}

impl Listener {
    pub(crate) fn new(door: Door, socket: TcpListener, is_passed: bool) -> Self {
        Self {
            door,
            socket,
            is_passed,
            has_more: true,
        }
    }

    /// Takes nobody any more who has not begun to connect. Who begins now is not answered, tries
    /// again after a second, and then finds another gateway, if one listens there.
    pub(crate) fn turn_deaf(&self) -> io::Result<()> {
        // The flags of a TCP header: a packet with SYN is dropped, others pass.
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

/// A file that all threads of a gateway close for a moment when there can be no more of them: so that
/// those who connect then can be accepted and refused. Otherwise they would wait.
#[derive(Debug, Default)]
pub(crate) struct Spare(Option<Socket>);

impl Spare {
    fn fill(&mut self) {
        // If there is no file for it now, there may be one later.
        self.0 = self
            .0
            .take()
            .or_else(|| Socket::new(Domain::UNIX, Type::DGRAM, None).ok());
    }

    /// Accepts who waits, and says from which [address](canonical): without a socket if there are
    /// too many files. Other threads wait for their turn, or they would take the file.
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
    use std::time::Duration;

    /// A listener that does not block, on a port that others may listen on.
    fn listener(at: SocketAddr) -> Listener {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_reuse_port(true).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.bind(&at.into()).unwrap();
        socket.listen(BACKLOG).unwrap();
        let socket = TcpListener::from_std(socket.into());
        Listener::new(Door::Inbound, socket, false)
    }

    /// Greets all who wait.
    fn greet(listener: &Listener) {
        while let Ok((socket, _)) = listener.socket.accept() {
            let socket = SockRef::from(&socket).try_clone().unwrap();
            socket.set_nonblocking(false).unwrap();
            TcpStream::from(socket).write_all(b"!").unwrap();
        }
    }

    /// Of two listeners on a port one turns deaf, greets who waits, and is closed some time later: who
    /// connects meanwhile is greeted by the other. One that still heard would have them reset.
    #[test]
    fn nobody_is_lost_to_a_listener_that_is_deaf() {
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
            ending.turn_deaf().unwrap();
            // Who was connecting is in the queue then.
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
