//! Bytes that wait: for a socket, or to be read.

use std::io::{self, ErrorKind, Write};

/// Capacity that an empty buffer keeps until it is trimmed: memory that is given back in each turn, and
/// taken again in the next one, costs more than what it is for.
const KEPT: usize = 64 * 1024;

/// Bytes that wait, in order.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    bytes: Vec<u8>,
    written: usize,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.written
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// In bytes, used or not.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity()
    }

    /// For those who add bytes at its end.
    pub(crate) fn end(&mut self) -> &mut Vec<u8> {
        if self.written > self.bytes.len() / 2 {
            self.bytes.drain(..std::mem::take(&mut self.written));
        }
        &mut self.bytes
    }

    /// What waits.
    pub(crate) fn front(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// Forgets the first `len` bytes.
    pub(crate) fn written(&mut self, len: usize) {
        self.written += len;
        if self.is_empty() {
            self.written = 0;
            self.bytes.clear();
            if self.bytes.capacity() > KEPT {
                self.trim();
            }
        }
    }

    /// Gives the memory back, if nothing waits.
    pub(crate) fn trim(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
    }

    /// Writes until nothing waits or the socket takes no more. Whether it took all.
    pub(crate) fn write(&mut self, mut socket: impl Write) -> io::Result<bool> {
        while !self.is_empty() {
            match socket.write(self.front()) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(len) => self.written(len),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
