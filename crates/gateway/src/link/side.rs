//! The socket of a peer or a node.

use crate::close::Close;
use mio::event::Event;
use mio::net::TcpStream;
use std::io::{self, ErrorKind, Read};

/// Bytes per read.
pub(crate) const READ_LEN: usize = 16 * 1024;

/// Scratch buffer for reads.
pub(crate) type Scratch = [u8; READ_LEN];

/// Whose socket it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Peer,
    Node,
}

impl End {
    /// The reason to close for an error of its socket.
    pub(crate) fn failed(self, error: io::Error) -> Close {
        match self {
            Self::Peer => Close::PeerSocket(error),
            Self::Node => Close::NodeSocket(error),
        }
    }
}

/// One side's socket and its state. Events report changes only. Without a socket, a side is neither
/// readable nor writable.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) end: End,
    /// `None` until the side is known.
    socket: Option<TcpStream>,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// An event reported the end of the stream, but it has not been read yet.
    ending: bool,
    /// The stream has ended: the side sends no more.
    pub(crate) ended: bool,
    /// We have shut down our sending half.
    pub(super) write_shut_down: bool,
    /// System calls of this turn.
    pub(crate) calls: u32,
}

impl Side {
    pub(crate) fn new(end: End, socket: Option<TcpStream>) -> Self {
        Self {
            end,
            socket,
            readable: false,
            writable: false,
            ending: false,
            ended: false,
            write_shut_down: false,
            calls: 0,
        }
    }

    pub(crate) fn socket(&self) -> Option<&TcpStream> {
        self.socket.as_ref()
    }

    /// Records what an event says about the socket, unless it was of one that is closed.
    pub(crate) fn mark(&mut self, event: &Event) {
        if self.socket.is_some() {
            self.ending |= event.is_read_closed() || event.is_error();
            self.readable |= event.is_readable() || self.ending;
            self.writable |= event.is_writable() || event.is_error();
        }
    }

    /// Whether a connecting socket has connected.
    pub(crate) fn is_connected(&self) -> Result<bool, Close> {
        let has_event = self.readable || self.writable;
        let Some(socket) = self.socket.as_ref().filter(|_| has_event) else {
            return Ok(false);
        };
        let error = match socket.take_error() {
            Ok(None) => socket.peer_addr().err(),
            Ok(error) => error,
            Err(error) => Some(error),
        };
        match error {
            None => Ok(true),
            Some(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
            Some(error) => Err(self.end.failed(error)),
        }
    }

    /// Reads once, if the socket may be readable. Returns 0 if there is nothing now, or if the
    /// stream has ended.
    pub(super) fn read(&mut self, to: &mut [u8]) -> Result<usize, Close> {
        let Some(socket) = self.socket.as_mut().filter(|_| self.readable) else {
            return Ok(0);
        };
        self.calls += 1;
        match socket.read(to) {
            Ok(0) => {
                self.readable = false;
                self.ended = true;
                Ok(0)
            }
            // A short read means the socket is empty; an event reports when there is more.
            Ok(len) => {
                self.readable = len == to.len() || self.ending;
                Ok(len)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(0)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(self.end.failed(error)),
        }
    }

    /// Whether the stream ends, although unread data may come first.
    pub(super) fn is_ending(&self) -> bool {
        self.ended || self.ending
    }

    /// Like [`Side::read`], but appends to `bytes`. Reads into `scratch` first, so that `bytes`
    /// gets no unused capacity.
    pub(crate) fn append_to(
        &mut self,
        bytes: &mut Vec<u8>,
        scratch: &mut Scratch,
    ) -> Result<usize, Close> {
        let len = self.read(&mut scratch[..])?;
        bytes.extend_from_slice(&scratch[..len]);
        Ok(len)
    }

    /// Calls `write`, which says whether all was written, if the socket may be writable. Returns
    /// whether it did.
    pub(super) fn write(
        &mut self,
        write: impl FnOnce(&mut TcpStream) -> io::Result<bool>,
    ) -> Result<bool, Close> {
        let Some(socket) = self.socket.as_mut().filter(|_| self.writable) else {
            return Ok(false);
        };
        self.calls += 1;
        self.writable = write(socket).map_err(|error| self.end.failed(error))?;
        Ok(true)
    }

    /// Tells the other end that it gets no more data.
    pub(super) fn shut_down_write(&mut self) {
        if let Some(socket) = &self.socket
            && !self.write_shut_down
        {
            self.write_shut_down = true;
            // This fails only if the other end has gone already.
            let _ = socket.shutdown(std::net::Shutdown::Write);
        }
    }
}
