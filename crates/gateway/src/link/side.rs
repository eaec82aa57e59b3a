//! The socket of a peer or a node.

use mio::net::TcpStream;
use std::io::{self, ErrorKind, Read};

/// Bytes per read.
pub(crate) const READ_LEN: usize = 16 * 1024;

/// Scratch buffer for reads.
pub(crate) type Scratch = [u8; READ_LEN];

/// One side's socket and its state. Events report changes only.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) socket: TcpStream,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// An event reported the end of the stream, but it has not been read yet.
    pub(crate) ending: bool,
    /// The stream has ended: the side sends no more.
    pub(super) ended: bool,
    /// We have shut down our sending half.
    pub(super) write_shut_down: bool,
}

impl Side {
    pub(crate) fn new(socket: TcpStream) -> Self {
        Self {
            socket,
            readable: false,
            writable: false,
            ending: false,
            ended: false,
            write_shut_down: false,
        }
    }

    /// Reads once, if the socket may be readable. Returns 0 if there is nothing now, or if the
    /// stream has ended.
    pub(super) fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if !self.readable {
            return Ok(0);
        }
        match self.socket.read(to) {
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
            result => result,
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
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
    ) -> io::Result<usize> {
        let len = self.read(&mut scratch[..])?;
        bytes.extend_from_slice(&scratch[..len]);
        Ok(len)
    }

    /// Tells the other end that it gets no more data.
    pub(super) fn shut_down_write(&mut self) {
        if !self.write_shut_down {
            self.write_shut_down = true;
            // This fails only if the other end has gone already.
            let _ = self.socket.shutdown(std::net::Shutdown::Write);
        }
    }
}
