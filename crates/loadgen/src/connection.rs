//! One connection to the node, over v1 or v2, in two halves.

use packetlane::Engine;
use packetlane::bip324::stream::{Accepted, StreamError};
use packetlane::bitcoin::message::MessageType;
use packetlane::bitcoin::{Network, v1};
use packetlane_p2p::connection::{self, TransportError, halves, initiate};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpSocket;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

/// Timeout for connecting, and for a v2 handshake.
const STEP: Duration = Duration::from_secs(20);

/// A slow peer reads this many bytes, then pauses: 2 KiB per second in total.
const SLOW_READ: usize = 512;
const SLOW_PAUSE: Duration = Duration::from_millis(250);

/// Receive buffer of a slow peer's socket, in bytes.
const SLOW_BUFFER: u32 = 4096;

/// A transport of Bitcoin's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// Not encrypted.
    V1,
    /// BIP324.
    V2,
}

/// The receiving half.
pub(crate) type Reader = connection::Reader<Paced>;

/// The sending half.
pub(crate) type Writer = connection::Writer<OwnedWriteHalf>;

/// Connects and, with v2, performs the handshake. A slow connection reads slowly afterwards.
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
    let failed = |error| ConnectionError::Connect { address, error };
    let socket = socket.map_err(failed)?;
    if slow {
        socket.set_recv_buffer_size(SLOW_BUFFER).map_err(failed)?;
    }
    let mut stream = match timeout(STEP, socket.connect(address)).await {
        Ok(connected) => connected.map_err(failed)?,
        Err(_) => return Err(failed(io::ErrorKind::TimedOut.into())),
    };
    // Send small messages at once.
    stream.set_nodelay(true).map_err(failed)?;
    let accepted = match transport {
        Transport::V1 => Accepted::V1(Vec::new()),
        Transport::V2 => match initiate(&mut stream, network, engine, STEP).await {
            Ok(accepted) => accepted,
            Err(error) if error.may_speak_v1() => return Err(ConnectionError::NoV2),
            Err(error) => return Err(TransportError::from(error).into()),
        },
    };
    let (read, write) = stream.into_split();
    let read = Paced::new(read, slow);
    Ok(halves(accepted, (read, write), network, engine))
}

/// The receiving half of a socket. A slow one pauses between small reads.
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
    /// The connection could not be opened.
    Connect {
        /// The node's address.
        address: SocketAddr,
        /// The cause.
        error: io::Error,
    },
    /// The node closed, answered in v1, or did not answer the v2 handshake.
    NoV2,
    /// The v2 handshake or session failed.
    Stream(StreamError),
    /// A v1 message is malformed.
    V1(v1::Error),
    /// Reading or writing failed.
    Io(io::Error),
    /// The node closed the connection.
    Closed,
    /// The node did not finish the version handshake in time.
    NoVersion,
    /// The node did not send an expected message.
    NoAnswer {
        /// The expected message type.
        wanted: MessageType,
    },
    /// More than the limit is queued because the node does not read it.
    NotReading,
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect { address, error } => write!(f, "cannot connect to {address}: {error}"),
            Self::NoV2 => f.write_str(
                "the node did not answer the v2 handshake: if it only speaks v1, use --v2 0",
            ),
            Self::Stream(error) => error.fmt(f),
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

impl From<TransportError> for ConnectionError {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Closed | TransportError::Stream(StreamError::Closed { .. }) => {
                Self::Closed
            }
            TransportError::V1 { error, .. } => Self::V1(error),
            TransportError::Stream(error) => Self::Stream(error),
            TransportError::Io(error) => Self::Io(error),
        }
    }
}
