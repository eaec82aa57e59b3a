//! A connection to a node over v1 or v2 that counts every message and can record them.
//!
//! The peer is not trusted: the framing checks all lengths, text is escaped before printing, and no
//! state grows with what the peer sends.

use crate::connection::{
    MAX_START_LEN, Message, Reader, TransportError, Writer, halves, initiate, respond,
};
use crate::meter::{Meter, Metered};
use crate::payload::{BlockHash, PayloadError, Services, printable};
use crate::record::{RecordError, Recorder};
use packetlane::Engine;
use packetlane::bip324::HandshakeError;
use packetlane::bip324::stream::{Accepted, StreamError};
use packetlane::bitcoin::Network;
use packetlane::bitcoin::message::{Ignored, MessageType};
use packetlane::bitcoin::v1;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

/// Maximum number of message types that are counted separately, because a hostile peer can invent
/// any number.
pub const MAX_TYPES: usize = 64;

/// Number of first bytes that are kept, to describe the peer if they are not a handshake. This is
/// the length of a BIP324 public key.
const KEPT_LEN: usize = MAX_START_LEN;

/// Number of messages and of their bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of messages.
    pub messages: u64,
    /// Their length on the wire, in bytes.
    pub bytes: u64,
}

impl Count {
    /// Counts a message of `bytes` bytes.
    pub fn add(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes as u64;
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            messages: self.messages + other.messages,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// Counts by message type.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    /// Received and sent.
    pub types: BTreeMap<MessageType, [Count; 2]>,
    /// Received messages of further types, beyond [`MAX_TYPES`].
    pub other: Count,
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

/// Why we speak v1 with a peer to which we offered v2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FellBack {
    /// It closed the v2 connection.
    Closed,
    /// It answered in v1.
    Answered,
    /// It sent nothing.
    Silent,
}

/// A connection to a node.
#[derive(Debug)]
pub struct Peer {
    reader: Reader<Metered<OwnedReadHalf>>,
    writer: Writer<Metered<OwnedWriteHalf>>,
    /// `None` with v1.
    handshake: Option<KeyExchange>,
    traffic: Traffic,
    /// All bytes on the socket.
    meter: Meter,
    recorder: Option<Recorder>,
    /// Timeout of a write. A peer that does not read ends the connection.
    step_timeout: Duration,
}

/// The result of a v2 handshake.
#[derive(Debug)]
struct KeyExchange {
    id: [u8; 32],
    /// Bytes of the handshake, received and sent.
    bytes: [u64; 2],
}

impl Peer {
    fn new(
        stream: Metered<TcpStream>,
        accepted: Accepted,
        network: Network,
        engine: Engine,
        step_timeout: Duration,
    ) -> Self {
        let meter = stream.meter.clone();
        let handshake = match &accepted {
            Accepted::V1(_) => None,
            Accepted::V2(session) => {
                // The first message may have arrived together with the end of the handshake.
                let after = session.inbound.buffered() as u64;
                Some(KeyExchange {
                    id: *session.id(),
                    bytes: [meter.received() - after, meter.sent()],
                })
            }
        };
        let (reader, writer) = halves(accepted, stream.into_split(), network, engine);
        Self {
            reader,
            writer,
            handshake,
            traffic: Traffic::default(),
            meter,
            recorder: None,
            step_timeout,
        }
    }

    /// Speaks v1 on `stream`, whichever side opened it.
    #[must_use]
    pub fn v1(stream: TcpStream, network: Network, engine: Engine, step_timeout: Duration) -> Self {
        let accepted = Accepted::V1(Vec::new());
        Self::new(
            Metered::new(stream),
            accepted,
            network,
            engine,
            step_timeout,
        )
    }

    /// Speaks v2 on `stream`, a connection that we opened. Each step takes at most `step_timeout`.
    ///
    /// # Errors
    ///
    /// See [`PeerError`]. If the peer may speak only v1, the error also gives the reason to
    /// reconnect with v1.
    pub async fn initiate_v2(
        stream: TcpStream,
        network: Network,
        engine: Engine,
        step_timeout: Duration,
    ) -> Result<Self, (PeerError, Option<FellBack>)> {
        let mut stream = ObservedStream::new(stream, network);
        match initiate(&mut stream, network, engine, step_timeout).await {
            Ok(accepted) => {
                let stream = stream.stream;
                Ok(Self::new(stream, accepted, network, engine, step_timeout))
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

    /// Speaks v2 or v1 on `stream`, a connection that the peer opened, whichever the peer uses.
    /// Each step takes at most `step_timeout`.
    ///
    /// # Errors
    ///
    /// See [`PeerError`].
    pub async fn respond(
        stream: TcpStream,
        network: Network,
        engine: Engine,
        step_timeout: Duration,
    ) -> Result<Self, PeerError> {
        let mut stream = ObservedStream::new(stream, network);
        match respond(&mut stream, network, engine, step_timeout).await {
            Ok(accepted) => {
                let stream = stream.stream;
                Ok(Self::new(stream, accepted, network, engine, step_timeout))
            }
            Err(error) => Err(stream.explain(error)),
        }
    }

    /// Messages so far.
    #[must_use]
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// All bytes on the socket so far, received and sent.
    #[must_use]
    pub fn bytes(&self) -> [u64; 2] {
        [self.meter.received(), self.meter.sent()]
    }

    /// Records all messages from now on.
    pub fn record(&mut self, recorder: Option<Recorder>) {
        self.recorder = recorder;
    }

    /// The BIP324 session id; `None` with v1.
    #[must_use]
    pub fn session_id(&self) -> Option<&[u8; 32]> {
        self.handshake.as_ref().map(|handshake| &handshake.id)
    }

    /// Bytes of the v2 handshake, received and sent; `None` with v1.
    #[must_use]
    pub fn handshake_bytes(&self) -> Option<[u64; 2]> {
        self.handshake.as_ref().map(|handshake| handshake.bytes)
    }

    /// Whether the peer has not sent a single byte.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.meter.received() == 0
    }

    /// Number of decoy packets received.
    #[must_use]
    pub fn decoys(&self) -> u64 {
        self.reader.decoys()
    }

    /// Received messages that were ignored: empty, of an unknown type, or malformed.
    #[must_use]
    pub fn ignored(&self) -> Ignored {
        self.reader.ignored()
    }

    /// Receives the next message. Cancel-safe.
    ///
    /// # Errors
    ///
    /// See [`PeerError`]. The connection is unusable afterwards.
    pub async fn receive(&mut self) -> Result<Message, PeerError> {
        let message = self.reader.receive().await?;
        self.traffic
            .received(message.message_type, message.wire_len);
        if let Some(recorder) = &mut self.recorder {
            recorder.received(message.message_type, &message.payload)?;
        }
        Ok(message)
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// [`PeerError::NotReading`] if the peer does not read it in time, and errors of the connection
    /// and of the recorder.
    pub async fn send(
        &mut self,
        message_type: MessageType,
        payload: &[u8],
    ) -> Result<(), PeerError> {
        let sent = timeout(self.step_timeout, self.writer.send(message_type, payload)).await;
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

/// A stream during a v2 handshake. Keeps the first bytes of both sides, and fails as soon as the
/// peer's bytes are certainly not a handshake.
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

    /// What the peer certainly is, if its first bytes are not a v2 handshake. Rejects a random
    /// public key in fewer than one of 100 million connections.
    fn refusal(&self) -> Option<PeerError> {
        let Self { received, sent, .. } = self;
        if received.len() == KEPT_LEN && received == sent {
            return Some(PeerError::Echo);
        }
        // 98 of the 256 byte values count as text.
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
        // An answer in plain text explains more than the handshake's error.
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
            error => TransportError::from(error).into(),
        }
    }
}

/// Appends `new` to the kept first bytes.
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

/// The first line of `bytes` if they are plain text, such as a web server's answer. `None` for a
/// public key or another network's magic.
fn text(bytes: &[u8]) -> Option<String> {
    const SHORTEST: usize = 4;
    let is_text = |byte: &u8| matches!(byte, b' '..=b'~' | b'\r' | b'\n' | b'\t');
    if bytes.len() < SHORTEST || !bytes.iter().all(is_text) {
        return None;
    }
    let line = bytes.split(|&byte| byte == b'\r' || byte == b'\n').next();
    line.map(|line| printable(&line[..line.len().min(KEPT_LEN)]))
}

/// Why a connection failed.
#[derive(Debug)]
pub enum PeerError {
    /// The peer answered in plain text.
    NotBitcoin {
        /// The first line of its answer, safe to print.
        answer: String,
    },
    /// The peer sends our own bytes back.
    Echo,
    /// The peer's first bytes are not a v1 message, and only v1 is allowed.
    NotV1,
    /// The peer connected and closed without sending a byte.
    LeftWithoutAByte,
    /// The peer sent nothing.
    SentNothing {
        /// How long we waited.
        waited: Duration,
    },
    /// The peer stopped before completing its part of the v2 handshake.
    HandshakeStopped {
        /// Bytes received.
        received: u64,
        /// How long we waited.
        waited: Duration,
    },
    /// The peer's bytes are not a v2 handshake of this network.
    NoTerminator {
        /// Our network.
        network: Network,
        /// Bytes received.
        received: u64,
    },
    /// The peer closed during the v2 handshake.
    ClosedInHandshake {
        /// Bytes received.
        received: u64,
    },
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
    ClosedBeforeVersion {
        /// Our network.
        network: Network,
    },
    /// The peer sent its version but closed before it acknowledged ours.
    ClosedBeforeVerack,
    /// The exchange of versions took too long.
    VersionTimeout {
        /// How long we waited.
        waited: Duration,
        /// Whether the peer's version arrived and only its `verack` is missing.
        has_version: bool,
    },
    /// The peer does not read what we send.
    NotReading {
        /// How long we waited.
        waited: Duration,
    },
    /// A payload is malformed.
    Payload {
        /// The type of the message.
        message_type: MessageType,
        /// What is wrong with it.
        error: PayloadError,
    },
    /// The peer did not answer a ping.
    NoPong {
        /// How long we waited.
        waited: Duration,
    },
    /// The peer did not send the headers or blocks that we asked for.
    NotFetched {
        /// `headers` or `blocks`.
        what: &'static str,
        /// How long we waited.
        waited: Duration,
    },
    /// A header does not build on the one before it.
    UnconnectedHeader {
        /// The block that the headers follow.
        start: BlockHash,
        /// The number of the header, counted after `start`.
        number: usize,
    },
    /// The block to start at is not in the peer's chain.
    UnknownStart {
        /// That block.
        start: BlockHash,
    },
    /// The peer's chain ends before the height to start at.
    ShortChain {
        /// The height of its latest block.
        height: usize,
        /// The height to start at.
        start: usize,
    },
    /// The peer serves no blocks.
    NoBlocks {
        /// What it serves.
        services: Services,
    },
    /// The peer is pruned and no longer has the block to start at.
    Pruned {
        /// The height to start at.
        start: usize,
        /// The approximate height of the oldest block that it serves.
        oldest: usize,
    },
    /// The peer, which is pruned, closed the connection instead of sending a block.
    ClosedByPruned,
    /// The peer sent a block that we did not request.
    WrongBlock {
        /// Its hash.
        hash: BlockHash,
    },
    /// The peer lacks some of the requested blocks.
    NotFound {
        /// How many.
        missing: usize,
    },
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
                "block {start} is not in the peer's chain: choose another block with --from"
            ),
            Self::ShortChain { height, start } => write!(
                f,
                "the peer's chain ends at height {height}: there is no block at {start} to start at"
            ),
            Self::NoBlocks { services } => write!(
                f,
                "the peer serves no blocks, so there is nothing to fetch: its services are \
                 {services}"
            ),
            Self::Pruned { start, oldest } => write!(
                f,
                "the peer is pruned (NETWORK_LIMITED without NETWORK): it serves blocks from \
                 about height {oldest}, and {start} is older; use --from {oldest} or higher"
            ),
            Self::ClosedByPruned => f.write_str(
                "the peer closed the connection; it is pruned (NETWORK_LIMITED without NETWORK) \
                 and serves only its latest 288 blocks",
            ),
            Self::WrongBlock { hash } => {
                write!(f, "the peer sent block {hash}, which was not requested")
            }
            Self::NotFound { missing } => write!(
                f,
                "the peer does not have {missing} of the requested blocks"
            ),
            Self::Record(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PeerError {}

impl PeerError {
    /// Whether the peer closed the connection.
    #[must_use]
    pub fn is_close(&self) -> bool {
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

impl From<TransportError> for PeerError {
    fn from(error: TransportError) -> Self {
        match error {
            // An answer in plain text explains more than a wrong magic.
            TransportError::V1 {
                error: error @ v1::Error::Magic { .. },
                start,
            } => match text(&start) {
                Some(answer) => Self::NotBitcoin { answer },
                None => Self::V1(error),
            },
            TransportError::V1 { error, .. } => Self::V1(error),
            TransportError::Stream(StreamError::Handshake(error)) => Self::Handshake(error),
            TransportError::Stream(error) => Self::Stream(error),
            TransportError::Io(error) => Self::Io(error),
            TransportError::Closed => Self::Closed,
        }
    }
}

impl From<io::Error> for PeerError {
    fn from(error: io::Error) -> Self {
        TransportError::from(error).into()
    }
}
