//! A byte queue, for data to be written or read.

use std::io::{self, ErrorKind, Write};

/// Capacity that an empty queue keeps until it is trimmed. Freeing and reallocating memory every
/// turn costs more than keeping it.
const KEPT: usize = 64 * 1024;

/// Queued bytes, in order.
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

    /// Capacity in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity()
    }

    /// Returns the buffer to append to.
    pub(crate) fn end(&mut self) -> &mut Vec<u8> {
        if self.written > self.bytes.len() / 2 {
            self.bytes.drain(..std::mem::take(&mut self.written));
        }
        &mut self.bytes
    }

    /// Puts `bytes` before all others. Nothing may have been written yet.
    pub(crate) fn begin_with(&mut self, bytes: &[u8]) {
        self.bytes.splice(..0, bytes.iter().copied());
    }

    /// Releases the memory if the queue is empty.
    pub(crate) fn trim(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
    }

    /// Writes until the queue is empty or the socket accepts no more. Returns whether all was
    /// written.
    pub(crate) fn write(&mut self, mut socket: impl Write) -> io::Result<bool> {
        while !self.is_empty() {
            match socket.write(&self.bytes[self.written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(len) => self.written += len,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.written = 0;
        self.bytes.clear();
        if self.bytes.capacity() > KEPT {
            self.trim();
        }
        Ok(true)
    }
}
