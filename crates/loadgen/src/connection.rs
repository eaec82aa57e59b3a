//! One connection to the node, over v1 or v2, in two halves.

use packetlane::Engine;
use packetlane::bip324::stream::{self, Accepted, StreamError};
use packetlane::bip324::{
    Handshake, HandshakeConfig, OVERHEAD, PacketKind, SealError, encode_message,
};
use packetlane::bitcoin::message::{Ignored, MessageType};
use packetlane::bitcoin::{Network, v1};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

/// How long a connection, and then a v2 handshake, may take.
const STEP: Duration = Duration::from_secs(20);

/// Bytes per read of a v1 stream.
const READ_LEN: usize = 64 * 1024;

/// A slow peer reads so many bytes, then pauses. Together that is 2 KiB per second.
const SLOW_READ: usize = 512;
const SLOW_PAUSE: Duration = Duration::from_millis(250);

/// What a slow peer's system may take from the network meanwhile, in bytes.
const SLOW_BUFFER: u32 = 4096;

/// A transport of Bitcoin's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// Not encrypted.
    V1,
    /// BIP324.
    V2,
}

/// The half that receives.
pub(crate) enum Reader {
    V1 {
        stream: Paced,
        decoder: v1::Decoder,
        /// Received and not yet removed.
        buffer: Vec<u8>,
        /// How many bytes at its start were already returned.
        taken: usize,
    },
    V2(Box<stream::Reader<Paced>>, Ignored),
}

/// The half that sends.
pub(crate) enum Writer {
    V1 {
        stream: OwnedWriteHalf,
        magic: [u8; 4],
        buffer: Vec<u8>,
        written: usize,
    },
    V2(Box<stream::Writer<OwnedWriteHalf>>),
}

/// Connects and, over v2, exchanges keys. A slow connection reads slowly from then on.
pub(crate) async fn open(
    address: SocketAddr,
    network: Network,
    transport: Transport,
    slow: bool,
    engine: Engine,
) -> Result<(Reader, Writer), ConnectionError> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    };
    let socket = socket.map_err(ConnectionError::Connect)?;
    if slow {
        socket
            .set_recv_buffer_size(SLOW_BUFFER)
            .map_err(ConnectionError::Connect)?;
    }
    let mut stream = match timeout(STEP, socket.connect(address)).await {
        Ok(connected) => connected.map_err(ConnectionError::Connect)?,
        Err(_) => return Err(ConnectionError::Connect(io::ErrorKind::TimedOut.into())),
    };
    // Small messages go out at once.
    stream.set_nodelay(true).map_err(ConnectionError::Connect)?;
    let magic = network.magic();
    match transport {
        Transport::V1 => {
            let (read, stream) = stream.into_split();
            let reader = Reader::V1 {
                stream: Paced::new(read, slow),
                decoder: v1::Decoder::new(magic),
                buffer: Vec::new(),
                taken: 0,
            };
            let writer = Writer::V1 {
                stream,
                magic,
                buffer: Vec::new(),
                written: 0,
            };
            Ok((reader, writer))
        }
        Transport::V2 => {
            let session = exchange_keys(&mut stream, magic, engine).await?;
            let (read, write) = stream.into_split();
            let read = Paced::new(read, slow);
            let reader = stream::Reader::new(read, engine, session.inbound);
            let writer = stream::Writer::new(write, engine, session.outbound);
            let reader = Reader::V2(Box::new(reader), Ignored::default());
            Ok((reader, Writer::V2(Box::new(writer))))
        }
    }
}

async fn exchange_keys(
    stream: &mut TcpStream,
    magic: [u8; 4],
    engine: Engine,
) -> Result<Box<packetlane::bip324::Session>, ConnectionError> {
    let config = HandshakeConfig::random(magic, engine).map_err(StreamError::Handshake)?;
    let handshake = Handshake::initiator(config).map_err(StreamError::Handshake)?;
    match stream::handshake(stream, handshake, STEP).await {
        Ok(Accepted::V2(session)) => Ok(session),
        // An initiator never accepts v1.
        Ok(Accepted::V1(_)) => Err(ConnectionError::NoV2),
        Err(error) if error.may_speak_v1() => Err(ConnectionError::NoV2),
        Err(error) => Err(error.into()),
    }
}

impl Reader {
    /// Receives the next message of a known type: type, payload and length on the wire in bytes.
    /// Cancel-safe.
    pub(crate) async fn receive(
        &mut self,
    ) -> Result<(MessageType, Vec<u8>, usize), ConnectionError> {
        match self {
            Self::V1 {
                stream,
                decoder,
                buffer,
                taken,
            } => loop {
                let mut rest = &buffer[*taken..];
                let message = decoder.next(&mut rest)?;
                *taken = buffer.len() - rest.len();
                if let Some(message) = message {
                    let length = message.wire_len();
                    return Ok((message.message_type, message.payload.to_vec(), length));
                }
                buffer.drain(..*taken);
                *taken = 0;
                buffer.reserve(READ_LEN);
                if stream.read_buf(buffer).await? == 0 {
                    return Err(ConnectionError::Closed);
                }
            },
            Self::V2(reader, ignored) => loop {
                let contents = reader.read().await?;
                let wire_len = contents.len() + OVERHEAD;
                if let Some((message_type, payload)) = ignored.decode(contents, wire_len) {
                    return Ok((message_type, payload.to_vec(), wire_len));
                }
            },
        }
    }
}

impl Writer {
    /// Queues a message until [`Writer::flush`]; not while a flush is unfinished. Returns its
    /// length on the wire in bytes.
    pub(crate) fn push(
        &mut self,
        message_type: MessageType,
        payload: &[u8],
    ) -> Result<usize, ConnectionError> {
        match self {
            Self::V1 { magic, buffer, .. } => {
                let before = buffer.len();
                v1::encode(*magic, message_type, payload, buffer);
                Ok(buffer.len() - before)
            }
            Self::V2(writer) => {
                let mut contents = Vec::new();
                encode_message(message_type, payload, &mut contents);
                writer.push(PacketKind::Genuine, &contents)?;
                Ok(contents.len() + OVERHEAD)
            }
        }
    }

    /// Sends what is queued. Cancel-safe: call it again to continue.
    pub(crate) async fn flush(&mut self) -> Result<(), ConnectionError> {
        match self {
            Self::V1 {
                stream,
                buffer,
                written,
                ..
            } => {
                while *written < buffer.len() {
                    *written += stream.write(&buffer[*written..]).await?;
                }
                // A long message does not keep its memory.
                *buffer = Vec::new();
                *written = 0;
                Ok(())
            }
            Self::V2(writer) => Ok(writer.flush().await?),
        }
    }
}

/// The reading half of a socket. A slow one reads a little and pauses.
pub(crate) struct Paced {
    half: OwnedReadHalf,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Paced {
    pub(crate) fn new(half: OwnedReadHalf, slow: bool) -> Self {
        let pause = slow.then(|| Box::pin(sleep_until(Instant::now())));
        Self { half, pause }
    }
}

impl AsyncRead for Paced {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { half, pause } = &mut *self;
        let Some(pause) = pause else {
            return Pin::new(half).poll_read(context, buffer);
        };
        ready!(pause.as_mut().poll(context));
        let mut bytes = [0; SLOW_READ];
        let most = SLOW_READ.min(buffer.remaining());
        let mut little = ReadBuf::new(&mut bytes[..most]);
        ready!(Pin::new(half).poll_read(context, &mut little))?;
        buffer.put_slice(little.filled());
        pause.as_mut().reset(Instant::now() + SLOW_PAUSE);
        Poll::Ready(Ok(()))
    }
}

/// Why a connection failed.
#[derive(Debug)]
pub enum ConnectionError {
    /// It was not opened.
    Connect(io::Error),
    /// The node closed without an answer to the v2 handshake, answered by v1, or was silent.
    NoV2,
    /// The v2 handshake or session failed.
    Stream(StreamError),
    /// A packet cannot be sealed.
    Seal(SealError),
    /// A v1 message is malformed.
    V1(v1::Error),
    /// Reading or writing failed.
    Io(io::Error),
    /// The node closed the connection.
    Closed,
    /// The node did not finish the version handshake in time.
    NoVersion,
    /// The node did not send a message that it owes.
    NoAnswer {
        /// The message's type.
        wanted: MessageType,
    },
    /// More than the limit waits for the node to read it.
    NotReading,
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "no connection: {error}"),
            Self::NoV2 => f.write_str(
                "the node did not answer the v2 handshake: if it speaks v1 only, use --v2 0",
            ),
            Self::Stream(error) => error.fmt(f),
            Self::Seal(error) => error.fmt(f),
            Self::V1(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
            Self::Closed => f.write_str("the node closed the connection"),
            Self::NoVersion => f.write_str("the node did not finish the version handshake"),
            Self::NoAnswer { wanted } => write!(f, "the node sent no {wanted}"),
            Self::NotReading => f.write_str("the node does not read what it is sent"),
        }
    }
}

impl std::error::Error for ConnectionError {}

impl From<StreamError> for ConnectionError {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Closed { .. } => Self::Closed,
            StreamError::Io(error) => error.into(),
            error => Self::Stream(error),
        }
    }
}

impl From<SealError> for ConnectionError {
    fn from(error: SealError) -> Self {
        Self::Seal(error)
    }
}

impl From<v1::Error> for ConnectionError {
    fn from(error: v1::Error) -> Self {
        Self::V1(error)
    }
}

impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
        match error.kind() {
            BrokenPipe | ConnectionAborted | ConnectionReset => Self::Closed,
            _ => Self::Io(error),
        }
    }
}
