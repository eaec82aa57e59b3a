//! One connection of an event loop: its handshake, then its session, and the bytes queued for its
//! socket.

use super::error::{HandshakeError, OpenError, SealError};
use super::handshake::{Handshake, HandshakeConfig, Progress};
use super::packet::PacketKind;
use super::session::Session;
use crate::arena::Slot;
use crate::batch::{OpenBatch, SealBatch};
use crate::bitcoin::message::MessageType;
use crate::outbox::Outbox;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// A connection without its socket. One turn of an event loop over many connections:
///
/// 1. Read each readable socket into [`OpenBatch::room`] and pass the number of bytes to its
///    connection with [`Connection::receive`]. Stop when the batch holds
///    [`Batch::ENOUGH_BYTES`](crate::Batch::ENOUGH_BYTES); the remaining sockets come first in the
///    next turn.
/// 2. Call [`Engine::open`](crate::Engine::open), take each connection's packets
///    ([`Connection::next_packet`]) and [`push`](Connection::push) the answers. During the handshake
///    there are none, but with [`HandshakeConfig::batched`] the call takes the keys. If [`Outbox::len`]
///    shows that a peer does not read its answers, [`Connection::defer`] the rest of its packets.
/// 3. Call [`Engine::seal`](crate::Engine::seal), then [`Outbox::write`] for each connection.
/// 4. Clear both batches. A connection that [`has_pending_input`](Connection::has_pending_input)
///    takes part in the next turn even if its socket is not readable.
///
/// An error ends its own connection only. `examples/event_loop.rs` is a complete server.
///
/// ```
/// use packetlane::bip324::{Connection, HandshakeConfig, PacketKind};
/// use packetlane::bitcoin::Network;
/// use packetlane::{Engine, OpenBatch, SealBatch};
/// use std::io::Write;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let engine = Engine::detect()?;
/// let config = || HandshakeConfig::random(Network::Regtest.magic(), engine);
/// let mut client = Connection::initiator(config()?)?;
/// let mut server = Connection::responder(config()?)?;
///
/// let (mut incoming, mut outgoing) = (OpenBatch::new(), SealBatch::new());
/// let mut greeted = false;
/// let mut heard = Vec::new();
/// let (mut here, mut there) = (&mut client, &mut server);
/// while heard.is_empty() {
///     let mut network = Vec::new();
///     if here.session().is_some() && !greeted {
///         here.push(&mut outgoing, PacketKind::Genuine, b"hello")?;
///         greeted = true;
///     }
///     engine.seal(&mut outgoing);
///     here.outbox.write(&outgoing, |pieces| network.write_vectored(pieces))?;
///     outgoing.clear();
///
///     incoming.room(network.len()).copy_from_slice(&network);
///     there.receive(&mut incoming, network.len())?;
///     engine.open(&mut incoming);
///     while let Some(contents) = there.next_packet(&incoming)? {
///         heard.push(contents.to_vec());
///     }
///     incoming.clear();
///     std::mem::swap(&mut here, &mut there);
/// }
/// assert_eq!(heard, [b"hello"]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Connection {
    stage: Stage,
    /// Packets and bytes to write to the socket.
    pub outbox: Outbox,
}

#[derive(Debug)]
enum Stage {
    Handshake(Box<Handshake>),
    Session(Box<Session>),
}

impl Connection {
    /// Creates the connection of the side that connects. Its first bytes are in the outbox.
    ///
    /// # Errors
    ///
    /// As for [`Handshake::initiator`].
    pub fn initiator(config: HandshakeConfig) -> Result<Self, HandshakeError> {
        Ok(Self::new(Handshake::initiator(config)?))
    }

    /// Creates the connection of the side that accepts.
    ///
    /// # Errors
    ///
    /// As for [`Handshake::responder`].
    pub fn responder(config: HandshakeConfig) -> Result<Self, HandshakeError> {
        Ok(Self::new(Handshake::responder(config)?))
    }

    fn new(mut handshake: Handshake) -> Self {
        let mut outbox = Outbox::new();
        outbox.push_bytes(&handshake.take_output());
        Self {
            stage: Stage::Handshake(Box::new(handshake)),
            outbox,
        }
    }

    /// Returns the session, or `None` until the handshake is complete.
    #[must_use]
    pub fn session(&self) -> Option<&Session> {
        match &self.stage {
            Stage::Session(session) => Some(session),
            Stage::Handshake(_) => None,
        }
    }

    /// Returns the session mutably, for its settings.
    #[must_use]
    pub fn session_mut(&mut self) -> Option<&mut Session> {
        match &mut self.stage {
            Stage::Session(session) => Some(session),
            Stage::Handshake(_) => None,
        }
    }

    /// Takes the first `len` bytes of the batch's last [`OpenBatch::room`]: advances the handshake,
    /// or adds every complete packet to the batch. If [`HandshakeConfig::batched`] is set, the handshake
    /// adds its key exchange to the batch, and [`Engine::open`](crate::Engine::open) computes those of
    /// all connections together.
    /// Returns the number of packets added, or 1 while the batch holds its key exchange.
    ///
    /// # Errors
    ///
    /// [`ConnectionError::Handshake`], [`ConnectionError::V1`], or an error of
    /// [`Inbound::receive`](super::Inbound::receive) as [`ConnectionError::Open`]. Every error ends
    /// the connection.
    ///
    /// # Panics
    ///
    /// If `len` exceeds the length of that room, or the room has been taken or overwritten since.
    #[inline]
    pub fn receive(&mut self, batch: &mut OpenBatch, len: usize) -> Result<usize, ConnectionError> {
        let handshake = match &mut self.stage {
            Stage::Session(session) => return Ok(session.inbound.receive(batch, len)?),
            Stage::Handshake(handshake) => handshake,
        };
        let (arena, exchanges) = batch.arena_and_exchanges();
        let start = arena.commit(len);
        let turn = arena.turn();
        let bytes = &arena.bytes()[start..start + len];
        let turn = handshake.is_batched().then_some((exchanges, turn));
        let progress = handshake.receive_in(bytes, turn);
        arena.give_back(start);
        self.outbox.push_bytes(&handshake.take_output());
        match progress? {
            Progress::Waiting => Ok(usize::from(handshake.waits_for_keys())),
            Progress::V1(received) => Err(ConnectionError::V1 { received }),
            Progress::Complete(mut session) => {
                // The handshake's last bytes may be followed by packets.
                let added = session.inbound.receive(batch, 0);
                self.stage = Stage::Session(session);
                Ok(added?)
            }
        }
    }

    /// Whether bytes wait here that need no more from the peer; see
    /// [`Inbound::has_pending_input`](super::Inbound::has_pending_input).
    #[must_use]
    pub fn has_pending_input(&self) -> bool {
        match &self.stage {
            Stage::Session(session) => session.inbound.has_pending_input(),
            Stage::Handshake(handshake) => handshake.has_pending_input(),
        }
    }

    /// Returns how many bytes from the peer are buffered here: an incomplete handshake message or
    /// packet, and deferred contents.
    #[must_use]
    pub fn buffered(&self) -> usize {
        match &self.stage {
            Stage::Handshake(handshake) => handshake.buffered(),
            Stage::Session(session) => session.inbound.buffered(),
        }
    }

    /// Returns the contents of the connection's next packet in the batch, which must have been
    /// opened: like [`Inbound::packets`](super::Inbound::packets), one packet per call. Returns
    /// `None` after the last packet and during the handshake, which takes its keys here.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    #[inline]
    pub fn next_packet<'b>(&mut self, batch: &'b OpenBatch) -> Result<Option<&'b [u8]>, OpenError> {
        match &mut self.stage {
            Stage::Session(session) => {
                let contents = session.inbound.next_packet(batch).transpose()?;
                Ok(contents.map(|contents| &batch.arena().bytes()[contents]))
            }
            Stage::Handshake(_) => self.take_keys(batch).map(|()| None),
        }
    }

    /// Like [`Connection::next_packet`], but returns the type and the payload of the next message.
    /// Packets that hold no valid message are dropped and [counted](super::Inbound::ignored).
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    #[inline]
    pub fn next_message<'b>(
        &mut self,
        batch: &'b OpenBatch,
    ) -> Result<Option<(MessageType, &'b [u8])>, OpenError> {
        match &mut self.stage {
            Stage::Session(session) => session.inbound.messages(batch).next().transpose(),
            Stage::Handshake(_) => self.take_keys(batch).map(|()| None),
        }
    }

    /// Takes the keys of the handshake, if the batch has computed them, and goes on.
    fn take_keys(&mut self, batch: &OpenBatch) -> Result<(), OpenError> {
        if let Stage::Handshake(handshake) = &mut self.stage {
            let progress = handshake.take_keys(batch);
            self.outbox.push_bytes(&handshake.take_output());
            match progress {
                Err(HandshakeError::Open(OpenError::NotOpened)) => {
                    return Err(OpenError::NotOpened);
                }
                Ok(Progress::Complete(session)) => self.stage = Stage::Session(session),
                // An error is returned by the next `receive`, which has pending input then.
                _ => {}
            }
        }
        Ok(())
    }

    /// Keeps the batch's packets that were not taken for a later turn; see
    /// [`Inbound::defer`](super::Inbound::defer). The handshake takes its keys here, too.
    ///
    /// # Errors
    ///
    /// As for [`Inbound::defer`](super::Inbound::defer).
    pub fn defer(&mut self, batch: &OpenBatch) -> Result<(), OpenError> {
        match &mut self.stage {
            Stage::Session(session) => session.inbound.defer(batch),
            Stage::Handshake(_) => self.take_keys(batch),
        }
    }

    /// Adds a packet to the batch and to the outbox.
    ///
    /// # Errors
    ///
    /// [`ConnectionError::NotReady`] during the handshake, or [`ConnectionError::Seal`]. In both
    /// cases nothing is added.
    pub fn push(
        &mut self,
        batch: &mut SealBatch,
        kind: PacketKind,
        contents: &[u8],
    ) -> Result<(), ConnectionError> {
        self.add(|session| session.outbound.push(batch, kind, contents))
    }

    /// Adds a packet for each of `packets` to the batch and to the outbox; see
    /// [`Outbound::push_many`](super::Outbound::push_many).
    ///
    /// # Errors
    ///
    /// As for [`Connection::push`].
    ///
    /// # Panics
    ///
    /// As for [`Outbound::push_many`](super::Outbound::push_many).
    pub fn push_many<'c, P>(
        &mut self,
        batch: &mut SealBatch,
        packets: P,
    ) -> Result<(), ConnectionError>
    where
        P: IntoIterator<Item = (PacketKind, &'c [u8])>,
        P::IntoIter: Clone,
    {
        self.add(|session| session.outbound.push_many(batch, packets))
    }

    /// Adds a packet with a message to the batch and to the outbox; see
    /// [`Outbound::push_message`](super::Outbound::push_message).
    ///
    /// # Errors
    ///
    /// As for [`Connection::push`].
    pub fn push_message(
        &mut self,
        batch: &mut SealBatch,
        message_type: MessageType,
        payload: &[u8],
    ) -> Result<(), ConnectionError> {
        self.add(|session| session.outbound.push_message(batch, message_type, payload))
    }

    #[inline]
    fn add(
        &mut self,
        push: impl FnOnce(&mut Session) -> Result<Slot, SealError>,
    ) -> Result<(), ConnectionError> {
        let Stage::Session(session) = &mut self.stage else {
            return Err(ConnectionError::NotReady);
        };
        self.outbox.push(push(session)?);
        Ok(())
    }

    /// Whether the peer may support v1 only, if the connection ends now; see
    /// [`Handshake::may_speak_v1`](super::Handshake::may_speak_v1).
    #[must_use]
    pub fn may_speak_v1(&self) -> bool {
        match &self.stage {
            Stage::Handshake(handshake) => handshake.may_speak_v1(),
            Stage::Session(_) => false,
        }
    }

    /// Returns the error to report when the peer has closed the connection.
    #[must_use]
    pub fn closed(&self) -> ConnectionError {
        match &self.stage {
            Stage::Handshake(handshake) => handshake.closed().into(),
            Stage::Session(session) => ConnectionError::Closed {
                within_packet: session.inbound.is_within_packet(),
            },
        }
    }
}

/// Wraps the session of a handshake that the caller ran.
impl From<Session> for Connection {
    fn from(session: Session) -> Self {
        Self {
            stage: Stage::Session(Box::new(session)),
            outbox: Outbox::new(),
        }
    }
}

/// Why a connection ended, or why a packet was not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The handshake failed.
    Handshake(HandshakeError),
    /// Responder: the peer speaks v1. Nothing has been sent to it.
    V1 {
        /// Every byte received from it, to pass to a v1 implementation.
        received: Vec<u8>,
    },
    /// A received packet could not be opened.
    Open(OpenError),
    /// A packet could not be sealed.
    Seal(SealError),
    /// Packets can be sent only after the handshake.
    NotReady,
    /// The peer closed the connection.
    Closed {
        /// Whether part of a packet had arrived.
        within_packet: bool,
    },
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handshake(error) => error.fmt(f),
            Self::V1 { .. } => f.write_str("the peer speaks v1, the unencrypted transport"),
            Self::Open(error) => error.fmt(f),
            Self::Seal(error) => error.fmt(f),
            Self::NotReady => f.write_str(
                "the handshake is not complete: send packets once Connection::session returns one",
            ),
            Self::Closed {
                within_packet: false,
            } => f.write_str("the peer closed the connection"),
            Self::Closed {
                within_packet: true,
            } => f.write_str("the peer closed the connection in the middle of a packet"),
        }
    }
}

impl core::error::Error for ConnectionError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Handshake(error) => Some(error),
            Self::Open(error) => Some(error),
            Self::Seal(error) => Some(error),
            Self::V1 { .. } | Self::NotReady | Self::Closed { .. } => None,
        }
    }
}

impl From<HandshakeError> for ConnectionError {
    fn from(error: HandshakeError) -> Self {
        Self::Handshake(error)
    }
}

impl From<OpenError> for ConnectionError {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

impl From<SealError> for ConnectionError {
    fn from(error: SealError) -> Self {
        Self::Seal(error)
    }
}
