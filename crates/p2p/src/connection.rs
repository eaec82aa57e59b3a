//! Sends and receives messages on the two halves of a stream, over v1 or v2.

use packetlane::Engine;
use packetlane::bip324::stream::{self, Accepted, StreamError};
use packetlane::bip324::{Handshake, HandshakeConfig, Session};
use packetlane::bitcoin::message::{Ignored, MessageType};
use packetlane::bitcoin::{Network, v1};
use std::fmt;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Bytes per read of a v1 stream.
const READ_LEN: usize = 64 * 1024;

/// Maximum length of the start of a malformed v1 message in [`TransportError::V1`], in bytes.
pub const MAX_START_LEN: usize = 64;

/// Performs the v2 key exchange on `stream`, which we opened. Pass the result to [`halves`].
///
/// # Errors
///
/// See [`StreamError`]. [`StreamError::may_speak_v1`] tells whether to reconnect with v1.
pub async fn initiate<S>(
    stream: &mut S,
    network: Network,
    engine: Engine,
    timeout: Duration,
) -> Result<Accepted, StreamError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let config = HandshakeConfig::random(network.magic(), engine)?;
    stream::handshake(stream, Handshake::initiator(config)?, timeout).await
}

/// Performs the v2 key exchange on `stream`, which the peer opened, or detects that the peer speaks
/// v1. Pass the result to [`halves`].
///
/// # Errors
///
/// See [`StreamError`].
pub async fn respond<S>(
    stream: &mut S,
    network: Network,
    engine: Engine,
    timeout: Duration,
) -> Result<Accepted, StreamError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let config = HandshakeConfig::random(network.magic(), engine)?;
    stream::handshake(stream, Handshake::responder(config)?, timeout).await
}

/// Splits a stream into a reader and a writer of messages, for the transport that was `accepted` on
/// it. For v1 without a handshake, `accepted` is [`Accepted::V1`] with no bytes.
pub fn halves<R, W>(
    accepted: Accepted,
    (read, write): (R, W),
    network: Network,
    engine: Engine,
) -> (Reader<R>, Writer<W>)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let magic = network.magic();
    let (incoming, outgoing) = match accepted {
        Accepted::V1(buffer) => (
            Incoming::V1 {
                stream: read,
                decoder: v1::Decoder::new(magic),
                buffer,
                taken: 0,
            },
            Outgoing::V1 {
                stream: write,
                magic,
                buffer: Vec::new(),
                written: 0,
            },
        ),
        Accepted::V2(session) => (
            Incoming::V2 {
                reader: Box::new(stream::Reader::new(read, engine, session.inbound)),
                ignored: Ignored::default(),
            },
            Outgoing::V2(Box::new(stream::Writer::new(
                write,
                engine,
                session.outbound,
            ))),
        ),
    };
    (Reader(incoming), Writer(outgoing))
}

/// A message from the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its type.
    pub message_type: MessageType,
    /// Its payload, not validated.
    pub payload: Vec<u8>,
    /// Its length on the wire, in bytes, including framing.
    pub wire_len: usize,
}

/// The receiving half of a connection.
#[derive(Debug)]
pub struct Reader<R>(Incoming<R>);

#[derive(Debug)]
enum Incoming<R> {
    V1 {
        stream: R,
        decoder: v1::Decoder,
        /// Received bytes that were not removed yet.
        buffer: Vec<u8>,
        /// Number of bytes at its start that were already returned as messages.
        taken: usize,
    },
    V2 {
        reader: Box<stream::Reader<R>>,
        ignored: Ignored,
    },
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// Receives the next message. Cancel-safe.
    ///
    /// # Errors
    ///
    /// See [`TransportError`]. The connection is unusable afterwards.
    pub async fn receive(&mut self) -> Result<Message, TransportError> {
        match &mut self.0 {
            Incoming::V1 {
                stream,
                decoder,
                buffer,
                taken,
            } => loop {
                let mut rest = &buffer[*taken..];
                let message = decoder.next(&mut rest);
                *taken = buffer.len() - rest.len();
                let message = message.map_err(|error| TransportError::V1 {
                    error,
                    start: rest[..rest.len().min(MAX_START_LEN)].to_vec(),
                })?;
                if let Some(message) = message {
                    return Ok(Message {
                        message_type: message.message_type,
                        payload: message.payload.to_vec(),
                        wire_len: message.wire_len(),
                    });
                }
                buffer.drain(..std::mem::take(taken));
                buffer.reserve(READ_LEN);
                // The only await point. The bytes are in `buffer` before it returns.
                if stream.read_buf(buffer).await? == 0 {
                    return Err(TransportError::Closed);
                }
            },
            Incoming::V2 { reader, ignored } => loop {
                let contents = reader.read().await?;
                let wire_len = contents.len() + Session::OVERHEAD;
                if let Some((message_type, payload)) = ignored.decode(contents, wire_len) {
                    return Ok(Message {
                        message_type,
                        payload: payload.to_vec(),
                        wire_len,
                    });
                }
            },
        }
    }

    /// Received messages that were ignored: empty, of an unknown type, or malformed.
    #[must_use]
    pub fn ignored(&self) -> Ignored {
        match &self.0 {
            Incoming::V1 { decoder, .. } => decoder.ignored(),
            Incoming::V2 { ignored, .. } => *ignored,
        }
    }

    /// Number of decoy packets received; 0 on v1.
    #[must_use]
    pub fn decoys(&self) -> u64 {
        match &self.0 {
            Incoming::V1 { .. } => 0,
            Incoming::V2 { reader, .. } => reader.decoys(),
        }
    }
}

/// The sending half of a connection.
#[derive(Debug)]
pub struct Writer<W>(Outgoing<W>);

#[derive(Debug)]
enum Outgoing<W> {
    V1 {
        stream: W,
        magic: [u8; 4],
        /// Queued bytes. The first `written` of them are already sent.
        buffer: Vec<u8>,
        written: usize,
    },
    V2(Box<stream::Writer<W>>),
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// Queues a message until [`Writer::flush`]. Not allowed during an unfinished flush. Returns
    /// the length on the wire, in bytes.
    ///
    /// # Errors
    ///
    /// [`StreamError::Seal`] in [`TransportError::Stream`]. Nothing is queued then.
    pub fn push(
        &mut self,
        message_type: MessageType,
        payload: &[u8],
    ) -> Result<usize, TransportError> {
        match &mut self.0 {
            Outgoing::V1 { magic, buffer, .. } => {
                let before = buffer.len();
                v1::Message::new(message_type, payload).encode(*magic, buffer);
                Ok(buffer.len() - before)
            }
            Outgoing::V2(writer) => {
                let sealed = writer.push_message(message_type, payload);
                sealed.map_err(StreamError::Seal)?;
                Ok(message_type.encoded_len(payload.len()) + Session::OVERHEAD)
            }
        }
    }

    /// Sends all queued bytes. Cancel-safe: call it again to continue.
    ///
    /// # Errors
    ///
    /// [`TransportError::Closed`] and [`TransportError::Io`].
    pub async fn flush(&mut self) -> Result<(), TransportError> {
        match &mut self.0 {
            Outgoing::V1 {
                stream,
                buffer,
                written,
                ..
            } => {
                while *written < buffer.len() {
                    match stream.write(&buffer[*written..]).await? {
                        0 => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                        taken => *written += taken,
                    }
                }
                stream.flush().await?;
                // Free the memory of a long message.
                *buffer = Vec::new();
                *written = 0;
                Ok(())
            }
            Outgoing::V2(writer) => Ok(writer.flush().await?),
        }
    }

    /// Queues a message and flushes. Returns the length on the wire, in bytes.
    ///
    /// # Errors
    ///
    /// Those of [`Writer::push`] and [`Writer::flush`].
    pub async fn send(
        &mut self,
        message_type: MessageType,
        payload: &[u8],
    ) -> Result<usize, TransportError> {
        let wire_len = self.push(message_type, payload)?;
        self.flush().await?;
        Ok(wire_len)
    }
}

/// Why a message cannot be received or sent.
#[derive(Debug)]
pub enum TransportError {
    /// A v1 message is malformed.
    V1 {
        /// What is wrong with it.
        error: v1::Error,
        /// Its first bytes, at most [`MAX_START_LEN`].
        start: Vec<u8>,
    },
    /// The v2 session failed.
    Stream(StreamError),
    /// Reading or writing failed.
    Io(io::Error),
    /// The peer closed the connection, with v2 at a packet boundary.
    Closed,
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V1 { error, .. } => error.fmt(f),
            Self::Stream(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
            Self::Closed => f.write_str("the peer closed the connection"),
        }
    }
}

impl std::error::Error for TransportError {}

impl From<StreamError> for TransportError {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Closed {
                within_packet: false,
            } => Self::Closed,
            StreamError::Io(error) => error.into(),
            error => Self::Stream(error),
        }
    }
}

impl From<io::Error> for TransportError {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        match error.kind() {
            BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message_type::{BLOCK, PING, VERSION};
    use tokio::io::{DuplexStream, ReadHalf, WriteHalf, duplex, split};

    const NETWORK: Network = Network::Regtest;
    const STEP: Duration = Duration::from_secs(20);

    type Side = (
        Reader<ReadHalf<DuplexStream>>,
        Writer<WriteHalf<DuplexStream>>,
    );

    /// Both ends of a connection, the initiator first. The stream buffers `capacity` bytes.
    async fn connection(v2: bool, capacity: usize) -> [Side; 2] {
        let engine = Engine::detect().unwrap();
        let (mut ours, mut theirs) = duplex(capacity);
        let [opened, accepted] = match v2 {
            false => [Accepted::V1(Vec::new()), Accepted::V1(Vec::new())],
            true => {
                let both = tokio::join!(
                    initiate(&mut ours, NETWORK, engine, STEP),
                    respond(&mut theirs, NETWORK, engine, STEP)
                );
                [both.0.unwrap(), both.1.unwrap()]
            }
        };
        assert_eq!(matches!(accepted, Accepted::V2(_)), v2);
        [
            halves(opened, split(ours), NETWORK, engine),
            halves(accepted, split(theirs), NETWORK, engine),
        ]
    }

    #[tokio::test]
    async fn messages_pass_at_any_stream_capacity() {
        let long = vec![7; 100_000];
        let messages = [(VERSION, &b"v"[..]), (BLOCK, &long), (PING, &[1; 8])];
        for v2 in [false, true] {
            let [(_, mut writer), (mut reader, _)] = connection(v2, 1000).await;
            let send = async {
                let mut sent = Vec::new();
                for (message_type, payload) in messages {
                    sent.push(writer.send(message_type, payload).await.unwrap());
                }
                // Two at once.
                for (message_type, payload) in &messages[1..] {
                    sent.push(writer.push(*message_type, payload).unwrap());
                }
                writer.flush().await.unwrap();
                sent
            };
            let receive = async {
                let mut received = Vec::new();
                for _ in 0..5 {
                    received.push(reader.receive().await.unwrap());
                }
                received
            };
            let (sent, received) = tokio::join!(send, receive);
            let expected = messages.iter().chain(&messages[1..]).zip(sent);
            for (((message_type, payload), wire_len), message) in expected.zip(received) {
                assert_eq!(message.message_type, *message_type);
                assert!(message.payload == *payload, "{message_type}");
                assert_eq!(message.wire_len, wire_len, "{message_type}, v2: {v2}");
            }
        }
    }

    /// `receive` and `flush` are dropped while they wait, again and again.
    #[tokio::test]
    async fn cancelled_calls_can_be_continued() {
        let payload = vec![7; 5000];
        for v2 in [false, true] {
            let [(_, mut writer), (mut reader, _)] = connection(v2, 100).await;
            writer.push(BLOCK, &payload).unwrap();
            let mut dropped = 0;
            let message = loop {
                tokio::select! {
                    biased;
                    flushed = writer.flush() => flushed.unwrap(),
                    () = std::future::ready(()) => dropped += 1,
                }
                tokio::select! {
                    biased;
                    message = reader.receive() => break message.unwrap(),
                    () = std::future::ready(()) => dropped += 1,
                }
            };
            assert!(dropped > 50, "{dropped}");
            assert!(message.payload == payload);
        }
    }

    #[tokio::test]
    async fn an_end_is_told_from_damage() {
        for v2 in [false, true] {
            let [(mut reader, writer), other] = connection(v2, 1000).await;
            drop(other);
            let error = reader.receive().await.unwrap_err();
            assert!(matches!(error, TransportError::Closed), "{error}");
            let mut writer = writer;
            let error = writer.send(PING, &[1; 8]).await.unwrap_err();
            assert!(matches!(error, TransportError::Closed), "{error}");
        }
        let engine = Engine::detect().unwrap();
        let (ours, mut theirs) = duplex(1000);
        let accepted = Accepted::V1(Vec::new());
        let (mut reader, _writer) = halves(accepted, split(ours), NETWORK, engine);
        let line = [b'x'; 100];
        theirs.write_all(&line).await.unwrap();
        match reader.receive().await.unwrap_err() {
            TransportError::V1 {
                error: v1::Error::Magic { found },
                start,
            } => {
                assert_eq!(found, *b"xxxx");
                assert_eq!(start, line[..MAX_START_LEN]);
            }
            error => panic!("{error}"),
        }
    }
}
