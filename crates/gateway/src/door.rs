//! Where the gateway accepts, and whom.

use crate::link::Direction;
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

    /// Accepts who waits: without a socket if there are too many files. Other threads wait for their
    /// turn, or they would take the file.
    pub(crate) fn accept(
        &mut self,
        listener: &TcpListener,
    ) -> io::Result<(Option<TcpStream>, SocketAddr)> {
        self.fill();
        match listener.accept() {
            Err(error) if matches!(error.raw_os_error(), Some(EMFILE | ENFILE)) => {
                drop(self.0.take());
                let (_, from) = listener.accept()?;
                self.fill();
                Ok((None, from))
            }
            accepted => accepted.map(|(socket, from)| (Some(socket), from)),
        }
    }
}
