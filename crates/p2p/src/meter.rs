//! Counts all bytes on a socket, including handshakes, decoys and incomplete messages.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// Byte counters of a socket. Clones share the counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    /// Bytes received and sent.
    bytes: Arc<[AtomicU64; 2]>,
}

impl Meter {
    /// Bytes received so far.
    pub(crate) fn received(&self) -> u64 {
        self.bytes[0].load(Ordering::Relaxed)
    }

    /// Bytes sent so far.
    pub(crate) fn sent(&self) -> u64 {
        self.bytes[1].load(Ordering::Relaxed)
    }
}

/// A stream or half of one, with its byte counters.
#[derive(Debug)]
pub(crate) struct Metered<S> {
    stream: S,
    pub(crate) meter: Meter,
}

impl Metered<TcpStream> {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            meter: Meter::default(),
        }
    }

    pub(crate) fn into_split(self) -> (Metered<OwnedReadHalf>, Metered<OwnedWriteHalf>) {
        let (read, write) = self.stream.into_split();
        let read = Metered {
            stream: read,
            meter: self.meter.clone(),
        };
        let write = Metered {
            stream: write,
            meter: self.meter,
        };
        (read, write)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let held = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let new = buffer.filled().len() - held;
        self.meter.bytes[0].fetch_add(new as u64, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.meter.bytes[1].fetch_add(written as u64, Ordering::Relaxed);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
