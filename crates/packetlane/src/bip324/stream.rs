//! BIP324 over tokio's async streams (feature `tokio`): a handshake, a reader and a writer.
//!
//! Reads are cancel-safe: a future dropped at an await has consumed no bytes. Flushes are
//! cancel-safe too: the writer remembers how much it has written.
//!
//! ```
//! use packetlane::Engine;
//! use packetlane::bip324::stream::{Accepted, Reader, Writer, handshake};
//! use packetlane::bip324::{Handshake, HandshakeConfig, PacketKind};
//! use packetlane::bitcoin::Network;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::detect()?;
//! let config = || HandshakeConfig::random(Network::Regtest.magic(), engine);
//! let (initiator, responder) = (Handshake::initiator(config()?)?, Handshake::responder(config()?)?);
//! let (mut here, mut there) = tokio::io::duplex(1 << 16);
//! let (alice, bob) = tokio::join!(
//!     handshake(&mut here, initiator, Handshake::DEFAULT_TIMEOUT),
//!     handshake(&mut there, responder, Handshake::DEFAULT_TIMEOUT),
//! );
//! let (Accepted::V2(alice), Accepted::V2(bob)) = (alice?, bob?) else { panic!("v1") };
//!
//! let mut writer = Writer::new(here, engine, alice.outbound);
//! let mut reader = Reader::new(there, engine, bob.inbound);
//! writer.write(PacketKind::Genuine, b"ping").await?;
//! assert_eq!(reader.read().await?, b"ping");
//! # Ok(())
//! # }
//! ```

use super::error::{HandshakeError, OpenError, SealError};
use super::handshake::{Handshake, HandshakeConfig, Progress};
use super::inbound::Inbound;
use super::outbound::Outbound;
use super::packet::PacketKind;
use super::session::Session;
use crate::batch::{Batch, OpenBatch, SealBatch};
use crate::bitcoin::message::MessageType;
use crate::engine::Engine;
use crate::outbox::Outbox;
use alloc::vec::Vec;
use core::fmt;
use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::io;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

/// Maximum length of one read, in bytes.
const MAX_READ_LEN: usize = 64 * 1024;

/// Length of the first read, and of each read after a short one, in bytes.
const MIN_READ_LEN: usize = 4 * 1024;

/// How much memory the batch of an idle reader or writer may keep, in bytes. A node may have
/// thousands of connections, and most are idle most of the time.
const IDLE_CAPACITY: usize = 8 * 1024;

/// Prepares `batch` for the next turn.
fn clear<Direction>(batch: &mut Batch<Direction>) {
    batch.clear();
    if batch.capacity() > IDLE_CAPACITY {
        batch.shrink_to(0);
    }
}

/// The result of a successful [`handshake`].
#[derive(Debug)]
pub enum Accepted {
    /// The session. Pass its halves to [`Reader::new`] and [`Writer::new`].
    V2(alloc::boxed::Box<Session>),
    /// Responder: the peer speaks v1. Holds every byte that it has sent.
    V1(Vec<u8>),
}

/// Connects and runs a handshake, within `timeout`. If the peer [may support v1
/// only](Handshake::may_speak_v1), because it closes the connection, answers in v1, or sends
/// nothing for [`Handshake::answer_timeout`], connects again for v1, as BIP324 recommends
/// ("Signaling v2 support"). Returns the stream of the remaining connection and the protocol to use
/// on it. With [`Accepted::V1`], nothing has been sent on it yet.
///
/// An active attacker can force v1 this way. To refuse v1, call [`handshake`] instead.
///
/// # Errors
///
/// See [`StreamError`]. [`StreamError::Io`] if `connect` fails, the first or the second time.
///
/// ```
/// # use packetlane::Engine;
/// use packetlane::bip324::stream::{Accepted, connect};
/// use packetlane::bip324::{Handshake, HandshakeConfig};
/// use packetlane::bitcoin::Network;
/// use tokio::net::{TcpListener, TcpStream};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = Engine::detect()?;
/// let config = HandshakeConfig::random(Network::Regtest.magic(), engine)?;
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let address = listener.local_addr()?;
/// // A node without v2 support: to it, a public key is not a message.
/// let node = async {
///     drop(listener.accept().await?);
///     listener.accept().await
/// };
/// let connecting = connect(|| TcpStream::connect(address), config, Handshake::DEFAULT_TIMEOUT);
/// let (connected, _) = tokio::join!(connecting, node);
/// let (_stream, accepted) = connected?;
/// assert!(matches!(accepted, Accepted::V1(received) if received.is_empty()));
/// # Ok(())
/// # }
/// ```
pub async fn connect<S, F>(
    mut connect: impl FnMut() -> F,
    config: HandshakeConfig,
    timeout: Duration,
) -> Result<(S, Accepted), StreamError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = io::Result<S>>,
{
    let initiator = Handshake::initiator(config)?;
    let mut stream = connect().await?;
    let answer_timeout = Handshake::answer_timeout(timeout);
    match shake_hands(&mut stream, initiator, timeout, answer_timeout).await {
        Ok(accepted) => Ok((stream, accepted)),
        Err(error) if error.may_speak_v1() => {
            drop(stream);
            Ok((connect().await?, Accepted::V1(Vec::new())))
        }
        Err(error) => Err(error),
    }
}

/// Runs a handshake over `stream`, within `timeout`.
///
/// # Errors
///
/// See [`StreamError`]. After some errors an initiator may reconnect with v1
/// ([`StreamError::may_speak_v1`]), as [`connect`] does. A connection that is reset or aborted
/// during a read or a write counts as closed.
pub async fn handshake<S>(
    stream: &mut S,
    handshake: Handshake,
    timeout: Duration,
) -> Result<Accepted, StreamError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    shake_hands(stream, handshake, timeout, timeout).await
}

/// Like [`handshake`], with a time limit for each read until part of a v2 answer has arrived.
async fn shake_hands<S>(
    stream: &mut S,
    mut handshake: Handshake,
    timeout: Duration,
    answer_timeout: Duration,
) -> Result<Accepted, StreamError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let run = async {
        let mut bytes = [0; 4096];
        let mut output = Output::default();
        loop {
            output.bytes.extend(handshake.take_output());
            let read = read_while_writing(stream, &mut output, &mut bytes);
            let may_speak_v1 = handshake.may_speak_v1();
            let read = match may_speak_v1 {
                true => tokio::time::timeout(answer_timeout, read).await,
                false => Ok(read.await),
            };
            let len = match read {
                Ok(Ok(len)) => len,
                Ok(Err(error)) => return Err(failed(error, &handshake)),
                Err(_) => {
                    return Err(StreamError::HandshakeTimeout {
                        timeout: answer_timeout,
                        may_speak_v1,
                    });
                }
            };
            if len == 0 {
                return Err(handshake.closed().into());
            }
            let accepted = match handshake.receive(&bytes[..len])? {
                Progress::Waiting => continue,
                Progress::V1(bytes) => Accepted::V1(bytes),
                Progress::Complete(session) => Accepted::V2(session),
            };
            output.bytes.extend(handshake.take_output());
            let write = async {
                stream.write_all(&output.bytes[output.written..]).await?;
                stream.flush().await
            };
            return match write.await {
                Ok(()) => Ok(accepted),
                Err(error) => Err(failed(error, &handshake)),
            };
        }
    };
    match tokio::time::timeout(timeout, run).await {
        Ok(result) => result,
        Err(_) => Err(StreamError::HandshakeTimeout {
            timeout,
            may_speak_v1: handshake.may_speak_v1(),
        }),
    }
}

/// A side's handshake output, and how many of its bytes have been written.
#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
    written: usize,
}

/// Reads once while writing `output`. If both sides wrote everything before they read, they would
/// deadlock as soon as their outputs exceed the network's buffers.
async fn read_while_writing<S>(
    stream: &mut S,
    output: &mut Output,
    bytes: &mut [u8],
) -> io::Result<usize>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    poll_fn(|cx| {
        while output.written < output.bytes.len() {
            let rest = &output.bytes[output.written..];
            match Pin::new(&mut *stream).poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(written)) => output.written += written,
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => break,
            }
        }
        if let Poll::Ready(Err(error)) = Pin::new(&mut *stream).poll_flush(cx) {
            return Poll::Ready(Err(error));
        }
        loop {
            let mut buffer = ReadBuf::new(&mut *bytes);
            return match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) => Poll::Ready(Ok(buffer.filled().len())),
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::Interrupted => continue,
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            };
        }
    })
    .await
}

/// Converts an I/O error during a handshake: a lost connection counts as closed.
fn failed(error: io::Error, handshake: &Handshake) -> StreamError {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    match error.kind() {
        BrokenPipe | ConnectionAborted | ConnectionReset => handshake.closed().into(),
        _ => error.into(),
    }
}

/// The receiving half of a session on a stream. While it waits for the peer, it keeps at most 8 KiB
/// of buffers.
#[derive(Debug)]
pub struct Reader<R> {
    stream: R,
    engine: Engine,
    inbound: Inbound,
    batch: OpenBatch,
    /// Length of the next read, in bytes.
    read_len: usize,
    ended: bool,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// Creates a reader of the packets of `inbound` from `stream`.
    pub fn new(stream: R, engine: Engine, inbound: Inbound) -> Self {
        let mut reader = Self {
            stream,
            engine,
            inbound,
            batch: OpenBatch::new(),
            read_len: MIN_READ_LEN,
            ended: false,
        };
        // Packets that followed the handshake.
        reader.receive(0);
        reader
    }

    fn receive(&mut self, len: usize) {
        // `next_packet` returns the error, after the packets before it.
        let _ = self.inbound.receive(&mut self.batch, len);
        self.engine.open(&mut self.batch);
    }

    /// Waits for the next genuine packet and returns its contents. Cancel-safe.
    ///
    /// # Errors
    ///
    /// See [`StreamError`]. The first error ends the reader: every later call returns
    /// [`StreamError::Ended`].
    pub async fn read(&mut self) -> Result<&[u8], StreamError> {
        if self.ended {
            return Err(StreamError::Ended);
        }
        let contents = loop {
            match self.inbound.next_packet(&self.batch) {
                Some(Ok(contents)) => break contents,
                Some(Err(error)) => {
                    self.ended = true;
                    return Err(error.into());
                }
                None => self.batch.clear(),
            }
            // The only await point: dropping the future here loses nothing.
            match poll_fn(|cx| self.poll_read(cx)).await {
                Ok(0) => {
                    self.ended = true;
                    return Err(StreamError::Closed {
                        within_packet: self.inbound.buffered() > 0,
                    });
                }
                Ok(len) => self.receive(len),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.ended = true;
                    return Err(error.into());
                }
            }
        };
        Ok(&self.batch.arena().bytes()[contents])
    }

    /// Reads once into the batch. If nothing has arrived, frees memory before it waits or ends.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(self.batch.room(self.read_len));
        let read = Pin::new(&mut self.stream).poll_read(cx, &mut buffer);
        let len = buffer.filled().len();
        // A full read suggests that more is waiting.
        self.read_len = if len == self.read_len {
            MAX_READ_LEN
        } else {
            MIN_READ_LEN
        };
        if len == 0 {
            clear(&mut self.batch);
        }
        read.map_ok(|()| len)
    }

    /// Returns the number of decoys dropped since the handshake.
    #[must_use]
    pub fn decoys(&self) -> u64 {
        self.inbound.decoys()
    }

    /// Returns the stream.
    pub fn get_ref(&self) -> &R {
        &self.stream
    }

    /// Returns the stream and drops the session. Packets that were read from it but not returned
    /// are lost.
    pub fn into_inner(self) -> R {
        self.stream
    }
}

/// The sending half of a session on a stream. While nothing is queued, it keeps at most 8 KiB of
/// buffers.
#[derive(Debug)]
pub struct Writer<W> {
    stream: W,
    engine: Engine,
    outbound: Outbound,
    batch: SealBatch,
    /// All packets since the last flush.
    outbox: Outbox,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// Creates a writer of the packets of `outbound` to `stream`.
    pub fn new(stream: W, engine: Engine, outbound: Outbound) -> Self {
        Self {
            stream,
            engine,
            outbound,
            batch: SealBatch::new(),
            outbox: Outbox::new(),
        }
    }

    /// Queues a packet; [`Writer::flush`] seals and sends all queued packets.
    ///
    /// # Errors
    ///
    /// See [`SealError`]. Nothing is queued then.
    pub fn push(&mut self, kind: PacketKind, contents: &[u8]) -> Result<(), SealError> {
        let slot = self.outbound.push(&mut self.batch, kind, contents)?;
        self.outbox.push(slot);
        Ok(())
    }

    /// Queues a packet with a message; see [`Outbound::push_message`].
    ///
    /// # Errors
    ///
    /// See [`SealError`]. Nothing is queued then.
    pub fn push_message(
        &mut self,
        message_type: MessageType,
        payload: &[u8],
    ) -> Result<(), SealError> {
        let outbound = &mut self.outbound;
        let slot = outbound.push_message(&mut self.batch, message_type, payload)?;
        self.outbox.push(slot);
        Ok(())
    }

    /// Returns how many queued bytes the stream has not accepted yet.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.outbox.len()
    }

    /// Seals all queued packets in one batch and sends them. Cancel-safe: call it again to
    /// continue.
    ///
    /// # Errors
    ///
    /// [`StreamError::Io`].
    pub async fn flush(&mut self) -> Result<(), StreamError> {
        self.engine.seal(&mut self.batch);
        while !self.outbox.is_empty() {
            let wire = self.outbox.front(&self.batch).map_err(io::Error::other)?;
            match self.stream.write(wire).await? {
                0 => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                written => self.outbox.written(written),
            }
        }
        self.stream.flush().await?;
        clear(&mut self.batch);
        Ok(())
    }

    /// Queues one packet and flushes.
    ///
    /// # Errors
    ///
    /// As for [`Writer::push`] and [`Writer::flush`].
    pub async fn write(&mut self, kind: PacketKind, contents: &[u8]) -> Result<(), StreamError> {
        self.push(kind, contents)?;
        self.flush().await
    }

    /// Flushes, then shuts down the stream's sending direction: the peer reads the end of the
    /// stream after the last packet.
    ///
    /// # Errors
    ///
    /// [`StreamError::Io`].
    pub async fn shutdown(&mut self) -> Result<(), StreamError> {
        self.flush().await?;
        Ok(self.stream.shutdown().await?)
    }

    /// Returns the stream.
    pub fn get_ref(&self) -> &W {
        &self.stream
    }

    /// Returns the stream and drops the session. Queued packets are lost.
    pub fn into_inner(self) -> W {
        self.stream
    }
}

/// Why a handshake, a read or a write failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum StreamError {
    /// The handshake failed.
    Handshake(HandshakeError),
    /// The handshake took too long.
    HandshakeTimeout {
        /// The time limit.
        timeout: Duration,
        /// Initiator: whether the peer [may support v1 only](Handshake::may_speak_v1).
        may_speak_v1: bool,
    },
    /// A received packet could not be opened.
    Open(OpenError),
    /// A packet could not be sealed; it was not queued.
    Seal(SealError),
    /// The peer closed the connection.
    Closed {
        /// Whether part of a packet had arrived.
        within_packet: bool,
    },
    /// The reader has already returned an error.
    Ended,
    /// Reading or writing failed.
    Io(io::Error),
}

impl StreamError {
    /// Whether the caller should reconnect with v1; see [`Handshake::may_speak_v1`].
    #[must_use]
    pub fn may_speak_v1(&self) -> bool {
        match self {
            Self::Handshake(error) => error.may_speak_v1(),
            Self::HandshakeTimeout { may_speak_v1, .. } => *may_speak_v1,
            _ => false,
        }
    }
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handshake(error) => error.fmt(f),
            Self::HandshakeTimeout { timeout, .. } => {
                write!(f, "the handshake did not finish within {timeout:?}")
            }
            Self::Open(error) => error.fmt(f),
            Self::Seal(error) => error.fmt(f),
            Self::Closed {
                within_packet: false,
            } => f.write_str("the peer closed the connection"),
            Self::Closed {
                within_packet: true,
            } => f.write_str("the peer closed the connection in the middle of a packet"),
            Self::Ended => f.write_str("the reader has already ended with an error"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StreamError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Handshake(error) => Some(error),
            Self::Open(error) => Some(error),
            Self::Seal(error) => Some(error),
            Self::Io(error) => Some(error),
            Self::HandshakeTimeout { .. } | Self::Closed { .. } | Self::Ended => None,
        }
    }
}

impl From<HandshakeError> for StreamError {
    fn from(error: HandshakeError) -> Self {
        Self::Handshake(error)
    }
}

impl From<OpenError> for StreamError {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

impl From<SealError> for StreamError {
    fn from(error: SealError) -> Self {
        Self::Seal(error)
    }
}

impl From<io::Error> for StreamError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
