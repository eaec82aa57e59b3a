//! One connection to a node. Both framings, v1 and v2, are behind one type, which counts every
//! message and can record them.
//!
//! The peer is not trusted: the framing checks all lengths, text is escaped before it is
//! printed, and no state grows with what the peer sends.

use crate::meter::{Meter, Metered};
use crate::record::{RecordError, Recorder};
use crate::wire::{BlockHash, Services, WireError, printable};
use packetlane::Engine;
use packetlane::bip324::stream::{self, Accepted, Reader, StreamError, Writer};
use packetlane::bip324::{
    Handshake, HandshakeConfig, HandshakeError, MessageType, Network, OVERHEAD, PacketKind,
    encode_message,
};
use packetlane::bitcoin::message::Ignored;
use packetlane::bitcoin::v1;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

/// How many message types are counted separately. A hostile peer can invent any number of
/// types.
const MAX_TYPES: usize = 64;

/// Bytes per read of a v1 stream.
const READ_LEN: usize = 64 * 1024;

/// How many of the first bytes are kept, to describe the peer if they are not a handshake. A
/// BIP324 public key is as long.
const KEPT_LEN: usize = 64;

/// Number of messages, and their bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

impl Count {
    pub(crate) fn add(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes as u64;
    }
}

/// Counts by message type.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic {
    /// Received and sent.
    pub(crate) types: BTreeMap<MessageType, [Count; 2]>,
    /// Received messages of a type after the first [`MAX_TYPES`].
    pub(crate) other: Count,
}

impl Traffic {
    fn received(&mut self, message_type: MessageType, wire_len: usize) {
        if self.types.len() < MAX_TYPES || self.types.contains_key(&message_type) {
            self.types.entry(message_type).or_default()[0].add(wire_len);
        } else {
            self.other.add(wire_len);
        }
    }

    fn sent(&mut self, message_type: MessageType, wire_len: usize) {
        self.types.entry(message_type).or_default()[1].add(wire_len);
    }
}

/// A message from the peer.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) message_type: MessageType,
    pub(crate) payload: Vec<u8>,
}

/// Why we speak v1 with a peer that was asked to speak v2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FellBack {
    /// It closed the v2 connection.
    Closed,
    /// It answered in v1.
    Answered,
    /// It sent nothing.
    Silent,
}

/// A connection to a node.
#[derive(Debug)]
pub(crate) struct Peer {
    framing: Framing,
    pub(crate) traffic: Traffic,
    /// All bytes on the socket.
    pub(crate) meter: Meter,
    recorder: Option<Recorder>,
    /// Maximum time for a write. A peer that does not read ends the connection.
    step_timeout: Duration,
}

/// The framing of messages on the wire.
#[derive(Debug)]
enum Framing {
    V1 {
        stream: Metered<TcpStream>,
        magic: [u8; 4],
        decoder: v1::Decoder,
        /// Bytes received and not yet removed.
        buffer: Vec<u8>,
        /// How many bytes at the start of `buffer` were already returned as messages.
        taken: usize,
    },
    V2 {
        id: [u8; 32],
        /// Bytes of the handshake, received and sent.
        handshake: [u64; 2],
        ignored: Ignored,
        reader: Box<Reader<Metered<OwnedReadHalf>>>,
        writer: Box<Writer<Metered<OwnedWriteHalf>>>,
    },
}

impl Peer {
    /// A v1 connection whose peer has already sent `buffer`.
    fn after_v1(
        stream: Metered<TcpStream>,
        network: Network,
        buffer: Vec<u8>,
        step_timeout: Duration,
    ) -> Self {
        let meter = stream.meter.clone();
        let framing = Framing::V1 {
            stream,
            magic: network.magic(),
            decoder: v1::Decoder::new(network.magic()),
            buffer,
            taken: 0,
        };
        Self::new(framing, meter, step_timeout)
    }

    fn new(framing: Framing, meter: Meter, step_timeout: Duration) -> Self {
        Self {
            framing,
            traffic: Traffic::default(),
            meter,
            recorder: None,
            step_timeout,
        }
    }

    /// Speaks v1 on `stream`, whoever opened it.
    pub(crate) fn v1(stream: TcpStream, network: Network, step_timeout: Duration) -> Self {
        Self::after_v1(Metered::new(stream), network, Vec::new(), step_timeout)
    }

    /// Speaks v2 on `stream`, a connection that we opened. With an error: why to connect again
    /// and speak v1, if the peer may speak nothing else.
    pub(crate) async fn initiate_v2(
        stream: TcpStream,
        network: Network,
        engine: Engine,
        step_timeout: Duration,
    ) -> Result<Self, (PeerError, Option<FellBack>)> {
        let handshake = HandshakeConfig::random(network.magic(), engine)
            .and_then(Handshake::initiator)
            .map_err(|error| (error.into(), None))?;
        let stream = ObservedStream::new(stream, network);
        Self::accept(stream, handshake, engine, step_timeout).await
    }

    /// Speaks v2 or v1 on `stream`, a connection that the peer opened, as the peer does.
    pub(crate) async fn respond(
        stream: TcpStream,
        network: Network,
        engine: Engine,
        step_timeout: Duration,
    ) -> Result<Self, PeerError> {
        let config = HandshakeConfig::random(network.magic(), engine)?;
        let handshake = Handshake::responder(config)?;
        let stream = ObservedStream::new(stream, network);
        Self::accept(stream, handshake, engine, step_timeout)
            .await
            .map_err(|(error, _)| error)
    }

    async fn accept(
        mut stream: ObservedStream,
        handshake: Handshake,
        engine: Engine,
        step_timeout: Duration,
    ) -> Result<Self, (PeerError, Option<FellBack>)> {
        match stream::handshake(&mut stream, handshake, step_timeout).await {
            Ok(Accepted::V1(bytes)) => {
                let ObservedStream {
                    stream, network, ..
                } = stream;
                Ok(Self::after_v1(stream, network, bytes, step_timeout))
            }
            Ok(Accepted::V2(session)) => {
                let meter = stream.stream.meter.clone();
                let (read, write) = stream.stream.into_split();
                // What follows the handshake may have come with its last bytes.
                let after = session.inbound.buffered() as u64;
                let framing = Framing::V2 {
                    id: *session.id(),
                    handshake: [meter.received() - after, meter.sent()],
                    ignored: Ignored::default(),
                    reader: Box::new(Reader::new(read, engine, session.inbound)),
                    writer: Box::new(Writer::new(write, engine, session.outbound)),
                };
                Ok(Self::new(framing, meter, step_timeout))
            }
            Err(error) => {
                let why = match error {
                    StreamError::Handshake(HandshakeError::AnsweredV1) => FellBack::Answered,
                    StreamError::HandshakeTimeout { .. } => FellBack::Silent,
                    _ => FellBack::Closed,
                };
                let fell_back = error.may_speak_v1().then_some(why);
                Err((stream.explain(error), fell_back))
            }
        }
    }

    /// Records all messages from now on.
    pub(crate) fn record(&mut self, recorder: Option<Recorder>) {
        self.recorder = recorder;
    }

    /// The BIP324 session id; `None` on v1.
    pub(crate) fn session_id(&self) -> Option<&[u8; 32]> {
        match &self.framing {
            Framing::V1 { .. } => None,
            Framing::V2 { id, .. } => Some(id),
        }
    }

    /// Bytes of the v2 handshake, received and sent; `None` on v1.
    pub(crate) fn handshake_bytes(&self) -> Option<[u64; 2]> {
        match &self.framing {
            Framing::V1 { .. } => None,
            Framing::V2 { handshake, .. } => Some(*handshake),
        }
    }

    /// Whether the peer has sent nothing at all.
    pub(crate) fn is_silent(&self) -> bool {
        self.meter.received() == 0
    }

    /// Number of decoy packets received.
    pub(crate) fn decoys(&self) -> u64 {
        match &self.framing {
            Framing::V1 { .. } => 0,
            Framing::V2 { reader, .. } => reader.decoys(),
        }
    }

    /// What was received and ignored, because it is no message.
    pub(crate) fn ignored(&self) -> Ignored {
        match &self.framing {
            Framing::V1 { decoder, .. } => decoder.ignored(),
            Framing::V2 { ignored, .. } => *ignored,
        }
    }

    /// Receives the next message. Cancel-safe.
    pub(crate) async fn receive(&mut self) -> Result<Message, PeerError> {
        let (message_type, payload, wire_len) = self.framing.receive().await?;
        self.traffic.received(message_type, wire_len);
        if let Some(recorder) = &mut self.recorder {
            recorder.received(message_type, &payload)?;
        }
        Ok(Message {
            message_type,
            payload,
        })
    }

    /// Sends a message.
    pub(crate) async fn send(
        &mut self,
        message_type: MessageType,
        payload: &[u8],
    ) -> Result<(), PeerError> {
        let sent = timeout(self.step_timeout, self.framing.send(message_type, payload)).await;
        let wire_len = sent.map_err(|_| PeerError::NotReading {
            waited: self.step_timeout,
        })??;
        self.traffic.sent(message_type, wire_len);
        if let Some(recorder) = &mut self.recorder {
            recorder.sent(message_type, payload)?;
        }
        Ok(())
    }
}

impl Framing {
    /// Receives the next message. Returns its type, payload and length on the wire. Cancel-safe.
    async fn receive(&mut self) -> Result<(MessageType, Vec<u8>, usize), PeerError> {
        match self {
            Self::V2 {
                reader, ignored, ..
            } => loop {
                let contents = reader.read().await?;
                let wire_len = contents.len() + OVERHEAD;
                if let Some((message_type, payload)) = ignored.decode(contents, wire_len) {
                    return Ok((message_type, payload.to_vec(), wire_len));
                }
            },
            Self::V1 {
                stream,
                decoder,
                buffer,
                taken,
                ..
            } => loop {
                let mut rest = &buffer[*taken..];
                let message = decoder.next(&mut rest);
                *taken = buffer.len() - rest.len();
                if let Some(message) = message.map_err(|error| explain_v1(error, rest))? {
                    let payload = message.payload.to_vec();
                    return Ok((message.message_type, payload, message.wire_len()));
                }
                buffer.drain(..std::mem::take(taken));
                buffer.reserve(READ_LEN);
                // The only await point. The bytes are in `buffer` before it returns.
                if stream.read_buf(buffer).await? == 0 {
                    return Err(PeerError::Closed);
                }
            },
        }
    }

    /// Sends a message. Returns its length on the wire, in bytes.
    async fn send(
        &mut self,
        message_type: MessageType,
        payload: &[u8],
    ) -> Result<usize, PeerError> {
        let mut bytes = Vec::new();
        match self {
            Self::V1 { stream, magic, .. } => {
                v1::encode(*magic, message_type, payload, &mut bytes);
                stream.write_all(&bytes).await?;
                Ok(bytes.len())
            }
            Self::V2 { writer, .. } => {
                encode_message(message_type, payload, &mut bytes);
                writer.write(PacketKind::Genuine, &bytes).await?;
                Ok(bytes.len() + OVERHEAD)
            }
        }
    }
}

/// A stream under a v2 handshake. It keeps the first bytes of both sides, and ends as soon as the
/// peer's are certainly no handshake.
struct ObservedStream {
    stream: Metered<TcpStream>,
    network: Network,
    received: Vec<u8>,
    sent: Vec<u8>,
}

impl ObservedStream {
    fn new(stream: TcpStream, network: Network) -> Self {
        Self {
            stream: Metered::new(stream),
            network,
            received: Vec::with_capacity(KEPT_LEN),
            sent: Vec::with_capacity(KEPT_LEN),
        }
    }

    /// What the peer certainly is, if its first bytes are no v2 handshake. A random public key
    /// is refused in less than one of 100 million connections.
    fn refusal(&self) -> Option<PeerError> {
        let Self { received, sent, .. } = self;
        if received.len() == KEPT_LEN && received == sent {
            return Some(PeerError::Echo);
        }
        // 98 of the 256 bytes are text.
        const CERTAIN_TEXT: usize = 20;
        const CERTAIN_LINE: usize = 12;
        let is_long = received.len() >= CERTAIN_TEXT
            || (received.len() >= CERTAIN_LINE && received.ends_with(b"\r\n"));
        let answer = text(received).filter(|_| is_long);
        answer.map(|answer| PeerError::NotBitcoin { answer })
    }

    /// Turns an error of the v2 handshake into one that describes the peer.
    fn explain(&self, error: StreamError) -> PeerError {
        if let Some(refusal) = self.refusal() {
            return refusal;
        }
        // An answer in plain text says more than the handshake's error.
        if let Some(answer) = text(&self.received) {
            return PeerError::NotBitcoin { answer };
        }
        let network = self.network;
        let received = self.stream.meter.received();
        match error {
            StreamError::HandshakeTimeout { timeout, .. } if received == 0 => {
                PeerError::SentNothing { waited: timeout }
            }
            StreamError::HandshakeTimeout { .. }
            | StreamError::Handshake(HandshakeError::NoTerminator)
                if received >= KEPT_LEN as u64 =>
            {
                PeerError::NoTerminator { network, received }
            }
            StreamError::HandshakeTimeout { timeout, .. } => PeerError::HandshakeStopped {
                received,
                waited: timeout,
            },
            StreamError::Handshake(HandshakeError::Closed) if received == 0 => {
                PeerError::LeftWithoutAByte
            }
            StreamError::Handshake(HandshakeError::Closed) => {
                PeerError::ClosedInHandshake { received }
            }
            error => error.into(),
        }
    }
}

/// Appends `new` to the first bytes that are kept.
fn keep(first: &mut Vec<u8>, new: &[u8]) {
    let kept = new.len().min(KEPT_LEN - first.len());
    first.extend_from_slice(&new[..kept]);
}

impl AsyncRead for ObservedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let held = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        keep(&mut self.received, &buffer.filled()[held..]);
        Poll::Ready(match self.refusal() {
            // `explain` gives the reason.
            Some(refusal) => Err(io::Error::other(refusal)),
            None => Ok(()),
        })
    }
}

impl AsyncWrite for ObservedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        keep(&mut self.sent, &bytes[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The first line of `bytes` if they are plain text, such as a web server's answer. `None` for
/// a public key or for another network's magic.
fn text(bytes: &[u8]) -> Option<String> {
    const SHORTEST: usize = 4;
    let is_text = |byte: &u8| matches!(byte, b' '..=b'~' | b'\r' | b'\n' | b'\t');
    if bytes.len() < SHORTEST || !bytes.iter().all(is_text) {
        return None;
    }
    let line = bytes.split(|&byte| byte == b'\r' || byte == b'\n').next();
    line.map(|line| printable(&line[..line.len().min(KEPT_LEN)]))
}

/// Turns an error of v1 decoding into one that describes the peer. `bytes` start at the
/// malformed message.
fn explain_v1(error: v1::Error, bytes: &[u8]) -> PeerError {
    if let v1::Error::Magic { .. } = error
        && let Some(answer) = text(&bytes[..bytes.len().min(KEPT_LEN)])
    {
        return PeerError::NotBitcoin { answer };
    }
    PeerError::V1(error)
}

/// Whether `error` says that the peer closed the connection.
fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
    )
}

/// Why a connection failed.
#[derive(Debug)]
pub(crate) enum PeerError {
    /// The peer answered in plain text.
    NotBitcoin { answer: String },
    /// The peer sends our own bytes back.
    Echo,
    /// The peer's first bytes are no v1 message, where v1 alone is spoken.
    NotV1,
    /// The peer that connected to us closed without having sent anything.
    LeftWithoutAByte,
    /// The peer sent nothing.
    SentNothing { waited: Duration },
    /// The peer stopped before its part of the v2 handshake was complete.
    HandshakeStopped { received: u64, waited: Duration },
    /// The peer's bytes are not a v2 handshake of this network.
    NoTerminator { network: Network, received: u64 },
    /// The peer closed during the v2 handshake.
    ClosedInHandshake { received: u64 },
    /// Another error of the v2 handshake.
    Handshake(HandshakeError),
    /// The v2 session failed.
    Stream(StreamError),
    /// A v1 message is malformed.
    V1(v1::Error),
    /// Reading or writing failed.
    Io(io::Error),
    /// The peer closed the connection.
    Closed,
    /// The peer closed before it sent its version.
    ClosedBeforeVersion { network: Network },
    /// The peer sent its version but closed before it acknowledged ours.
    ClosedBeforeVerack,
    /// The exchange of versions took too long.
    VersionTimeout {
        waited: Duration,
        /// Whether the peer's version came, and only its `verack` is missing.
        has_version: bool,
    },
    /// The peer does not read what we send.
    NotReading { waited: Duration },
    /// A payload is malformed.
    Payload {
        message_type: MessageType,
        error: WireError,
    },
    /// The peer did not answer a ping.
    NoPong { waited: Duration },
    /// The peer did not send the headers or blocks that we asked for.
    NotFetched {
        what: &'static str,
        waited: Duration,
    },
    /// A header does not build on the one before it.
    UnconnectedHeader {
        start: BlockHash,
        /// The number of the header, of those after `start`.
        number: usize,
    },
    /// The block to begin at is not in the peer's chain.
    UnknownStart { start: BlockHash },
    /// The peer's chain ends before the height to begin at.
    ShortChain { height: usize, start: usize },
    /// The peer serves no blocks.
    NoBlocks { services: Services },
    /// The peer is pruned, and the blocks to fetch begin before its oldest.
    Pruned { start: usize, oldest: usize },
    /// The peer, which is pruned, closed instead of sending a block.
    ClosedByPruned,
    /// The peer sent a block that we did not ask for.
    WrongBlock { hash: BlockHash },
    /// The peer lacks some of the blocks that we asked for.
    NotFound { missing: usize },
    /// Messages cannot be recorded.
    Record(RecordError),
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBitcoin { answer } => {
                write!(f, "this is not a Bitcoin node: it answered \"{answer}\"")
            }
            Self::Echo => f.write_str(
                "the peer sent our own bytes back: it is an echo server, or we are connected to \
                 ourselves",
            ),
            Self::NotV1 => f.write_str(
                "the peer does not speak v1: it tries v2 first, or is not a Bitcoin node",
            ),
            Self::LeftWithoutAByte => f.write_str(
                "the peer connected and left without sending a byte, as a port scan does",
            ),
            Self::SentNothing { waited } => {
                write!(
                    f,
                    "the connection is open, but the peer sent nothing for {waited:?}"
                )
            }
            Self::HandshakeStopped { received, waited } => write!(
                f,
                "the peer did not finish the v2 handshake: {received} bytes in {waited:?}"
            ),
            Self::NoTerminator { network, received } => write!(
                f,
                "the peer sent {received} bytes that are not a v2 handshake of {}: it is on \
                 another network or is not a Bitcoin node",
                network.name()
            ),
            Self::ClosedInHandshake { received } => write!(
                f,
                "the peer closed the connection during the v2 handshake, after {received} bytes"
            ),
            Self::Handshake(error) => error.fmt(f),
            Self::Stream(error) => error.fmt(f),
            Self::V1(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
            Self::Closed => f.write_str("the peer closed the connection"),
            Self::ClosedBeforeVersion { network } => write!(
                f,
                "the peer closed the connection before it sent its version: it refuses us, is not \
                 on {}, or is not a Bitcoin node",
                network.name()
            ),
            Self::ClosedBeforeVerack => {
                f.write_str("the peer closed the connection during the version handshake")
            }
            Self::VersionTimeout {
                waited,
                has_version,
            } => {
                let what = match has_version {
                    true => ": it sent its version but no verack",
                    false => "",
                };
                write!(
                    f,
                    "the peer did not finish the version handshake within {waited:?}{what}"
                )
            }
            Self::NotReading { waited } => {
                write!(f, "the peer has not read what we sent for {waited:?}")
            }
            Self::Payload {
                message_type,
                error,
            } => write!(f, "the peer's {message_type} message is malformed: {error}"),
            Self::NoPong { waited } => {
                write!(f, "the peer did not answer a ping within {waited:?}")
            }
            Self::NotFetched { what, waited } => {
                write!(f, "the peer sent no {what} for {waited:?}")
            }
            Self::UnconnectedHeader { start, number } => write!(
                f,
                "the peer's headers do not form a chain: number {number} after block {start} \
                 builds on another block"
            ),
            Self::UnknownStart { start } => write!(
                f,
                "block {start} is not in the peer's chain: give --from another block"
            ),
            Self::ShortChain { height, start } => write!(
                f,
                "the peer's chain ends at height {height}: there is no block at {start} to begin \
                 at"
            ),
            Self::NoBlocks { services } => write!(
                f,
                "the peer serves no blocks, so there is nothing to fetch: its services are \
                 {services}"
            ),
            Self::Pruned { start, oldest } => write!(
                f,
                "the peer is pruned (NETWORK_LIMITED without NETWORK): it serves blocks from \
                 about height {oldest} on, and {start} is older; give --from {oldest} or higher"
            ),
            Self::ClosedByPruned => f.write_str(
                "the peer closed the connection; it is pruned (NETWORK_LIMITED without NETWORK) \
                 and serves only its latest 288 blocks",
            ),
            Self::WrongBlock { hash } => {
                write!(f, "the peer sent block {hash}, which it was not asked for")
            }
            Self::NotFound { missing } => write!(
                f,
                "the peer does not have {missing} of the blocks that it was asked for"
            ),
            Self::Record(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PeerError {}

impl PeerError {
    /// Whether it was the peer that closed.
    pub(crate) fn is_close(&self) -> bool {
        matches!(
            self,
            Self::Closed | Self::ClosedByPruned | Self::Stream(StreamError::Closed { .. })
        )
    }
}

impl From<RecordError> for PeerError {
    fn from(error: RecordError) -> Self {
        Self::Record(error)
    }
}

impl From<HandshakeError> for PeerError {
    fn from(error: HandshakeError) -> Self {
        Self::Handshake(error)
    }
}

impl From<StreamError> for PeerError {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Handshake(error) => Self::Handshake(error),
            StreamError::Closed {
                within_packet: false,
            } => Self::Closed,
            StreamError::Io(error) => error.into(),
            error => Self::Stream(error),
        }
    }
}

impl From<io::Error> for PeerError {
    fn from(error: io::Error) -> Self {
        match is_closed(&error) {
            true => Self::Closed,
            false => Self::Io(error),
        }
    }
}
