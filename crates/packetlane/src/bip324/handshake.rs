//! The handshake, for both sides: fed with bytes, it yields bytes and in the end
//! a [`Session`] (BIP324, "Overall packet structure and handshake").
//!
//! ```text
//! initiator                                responder
//!   ---- public key, garbage ---------------->
//!   <--- public key, garbage -----------------    once a byte differs from v1's
//!   <--- terminator, (decoys,) version -------
//!   ---- terminator, (decoys,) version ------>
//!   <--- messages --------------------------->
//! ```
//!
//! What a side receives, in order, is [`State`]: (the prefix,) the key, garbage
//! up to the terminator, packets up to the version packet. The garbage is the
//! AAD of the first packet, decoy or not.

use super::buffer::{KEPT_BUFFER, append_expected};
use super::cipher::Cipher;
use super::error::{OpenError, SealError};
use super::inbound::{DEFAULT_RECEIVE_LIMIT, Inbound};
use super::keys::{ELLSWIFT_LEN, Keypair, Role, SecretKeyError, SessionKeys, TERMINATOR_LEN};
use super::outbound::Outbound;
use super::packet::{LENGTH_LEN, MAX_CONTENTS_LEN, OVERHEAD, PacketKind};
use super::session::Session;
use crate::bitcoin::Network;
use crate::engine::Engine;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use zeroize::Zeroizing;

/// Most garbage that a side may send, in bytes.
pub const MAX_GARBAGE_LEN: usize = 4095;

/// Length of the bytes by which a responder recognises v1.
const V1_PREFIX_LEN: usize = 16;

/// What follows the magic in the first message of every v1 peer.
const V1_VERSION: &[u8; 12] = b"version\0\0\0\0\0";

/// The secrets and settings of a handshake.
#[derive(Clone)]
pub struct HandshakeConfig {
    /// The network's magic, [`Network::magic`].
    pub magic: [u8; 4],
    /// What the session runs on where it needs no batch.
    pub engine: Engine,
    /// The secret key: 32 random bytes, fresh for each connection.
    pub secret: Zeroizing<[u8; 32]>,
    /// Random bytes that choose the encoding of the public key.
    pub auxiliary: Zeroizing<[u8; 32]>,
    /// What to send behind the public key, to hide how long a handshake is; at
    /// most [`MAX_GARBAGE_LEN`] bytes, which should be random.
    pub garbage: Vec<u8>,
    /// Contents of the decoys to send before the version packet.
    pub decoys: Vec<Vec<u8>>,
    /// Contents of the version packet: empty, until the protocol has a use for
    /// them.
    pub version: Vec<u8>,
    /// Longest contents that are accepted, in bytes, during the handshake and after it.
    pub receive_limit: usize,
}

impl HandshakeConfig {
    /// A handshake with these two secrets, without garbage and decoys.
    #[must_use]
    pub fn new(magic: [u8; 4], engine: Engine, secret: [u8; 32], auxiliary: [u8; 32]) -> Self {
        Self {
            magic,
            engine,
            secret: Zeroizing::new(secret),
            auxiliary: Zeroizing::new(auxiliary),
            garbage: Vec::new(),
            decoys: Vec::new(),
            version: Vec::new(),
            receive_limit: DEFAULT_RECEIVE_LIMIT,
        }
    }

    /// A handshake with secrets and garbage of the operating system's entropy (feature `std`).
    /// The garbage is 0 to 4095 bytes long, each length as likely as the next.
    ///
    /// # Errors
    ///
    /// [`HandshakeError::NoEntropy`].
    #[cfg(feature = "std")]
    pub fn random(magic: [u8; 4], engine: Engine) -> Result<Self, HandshakeError> {
        fn fill(bytes: &mut [u8]) -> Result<(), HandshakeError> {
            getrandom::fill(bytes).map_err(|_| HandshakeError::NoEntropy)
        }
        let mut config = Self::new(magic, engine, [0; 32], [0; 32]);
        fill(&mut *config.secret)?;
        fill(&mut *config.auxiliary)?;
        let mut length = [0; 2];
        fill(&mut length)?;
        // 4096 divides 65536: no length is favoured.
        let length = usize::from(u16::from_le_bytes(length)) % (MAX_GARBAGE_LEN + 1);
        config.garbage = alloc::vec![0; length];
        fill(&mut config.garbage)?;
        Ok(config)
    }
}

impl fmt::Debug for HandshakeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandshakeConfig")
            .field("magic", &self.magic)
            .field("garbage_len", &self.garbage.len())
            .field("decoys", &self.decoys.len())
            .finish_non_exhaustive()
    }
}

/// One side of a handshake.
#[derive(Debug)]
pub struct Handshake {
    role: Role,
    config: HandshakeConfig,
    keypair: Option<Keypair>,
    state: State,
    /// Received bytes that no state has used up.
    buffer: Vec<u8>,
    received_any: bool,
    output: Vec<u8>,
}

/// What is expected next.
#[derive(Debug)]
enum State {
    /// Responder: the bytes so far are those of v1's first message.
    Prefix,
    /// The peer's public key.
    Key,
    /// Garbage, then its terminator.
    Garbage {
        ciphers: Box<Ciphers>,
        /// Before this place the buffer holds no terminator.
        searched: usize,
    },
    /// Packets, up to the first genuine one.
    Version {
        ciphers: Box<Ciphers>,
        /// Garbage at the buffer's beginning that the next packet authenticates.
        aad: usize,
        /// Where in the buffer the next packet begins.
        at: usize,
        /// Its length on the wire, once decrypted.
        expected: Option<usize>,
    },
    /// Nothing: the handshake has ended, well or not.
    Ended,
}

/// The result of the key exchange.
#[derive(Debug)]
struct Ciphers {
    outbound: Cipher,
    inbound: Cipher,
    /// The peer's garbage terminator.
    terminator: [u8; TERMINATOR_LEN],
    session_id: [u8; 32],
}

/// How far a handshake has come.
#[derive(Debug)]
pub enum Progress {
    /// It needs more bytes from the peer.
    Waiting,
    /// Responder: the peer speaks v1. Here is every byte that it has sent, for a
    /// v1 stack; nothing was sent to it.
    V1(Vec<u8>),
    /// It is done. Packets may have come with the last bytes: begin with
    /// `session.inbound.received(&mut batch, 0)`.
    Complete(Box<Session>),
}

impl Handshake {
    /// The side that connects. Its first output is there at once.
    ///
    /// # Errors
    ///
    /// If the garbage is too long, the secret is no secret key or a decoy too
    /// long for a packet.
    pub fn initiator(config: HandshakeConfig) -> Result<Self, HandshakeError> {
        let mut handshake = Self::new(Role::Initiator, config, State::Key)?;
        handshake.send_key()?;
        Ok(handshake)
    }

    /// The side that was connected to. It sends nothing and makes no key before it has
    /// received a byte that v1 would not have sent.
    ///
    /// # Errors
    ///
    /// As [`Handshake::initiator`].
    pub fn responder(config: HandshakeConfig) -> Result<Self, HandshakeError> {
        // Refused here and not when the peer's first byte comes.
        Keypair::from_parts(&config.secret, [0; ELLSWIFT_LEN])?;
        Self::new(Role::Responder, config, State::Prefix)
    }

    fn new(role: Role, config: HandshakeConfig, state: State) -> Result<Self, HandshakeError> {
        if config.garbage.len() > MAX_GARBAGE_LEN {
            return Err(HandshakeError::GarbageTooLong {
                length: config.garbage.len(),
            });
        }
        for contents in config.decoys.iter().chain([&config.version]) {
            if contents.len() > MAX_CONTENTS_LEN {
                return Err(SealError::TooLong {
                    length: contents.len(),
                }
                .into());
            }
        }
        Ok(Self {
            role,
            config,
            keypair: None,
            state,
            buffer: Vec::new(),
            received_any: false,
            output: Vec::new(),
        })
    }

    /// What is to be sent to the peer now. Send it even if the handshake is
    /// [`Progress::Complete`], before anything of the session.
    #[must_use]
    pub fn take_output(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.output)
    }

    /// Takes bytes from the peer, as many as came.
    ///
    /// # Errors
    ///
    /// See [`HandshakeError`]. The connection is of no use then.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Progress, HandshakeError> {
        if matches!(self.state, State::Ended) {
            return Err(HandshakeError::Ended);
        }
        self.received_any |= !bytes.is_empty();
        let doubled = 2 * self.buffer.len();
        append_expected(&mut self.buffer, bytes, doubled);
        let progress = self.advance();
        if !matches!(progress, Ok(Progress::Waiting)) {
            self.state = State::Ended;
        }
        progress
    }

    /// The error if the peer has closed the connection now.
    #[must_use]
    pub fn closed(&self) -> HandshakeError {
        if self.role == Role::Initiator && !self.received_any {
            HandshakeError::ClosedUnanswered
        } else {
            HandshakeError::Closed
        }
    }

    /// Whether the keys are exchanged: what comes now is encrypted.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        matches!(self.state, State::Garbage { .. } | State::Version { .. })
    }

    /// Goes through as many states as the buffer allows.
    fn advance(&mut self) -> Result<Progress, HandshakeError> {
        loop {
            match core::mem::replace(&mut self.state, State::Ended) {
                State::Prefix => {
                    let mut v1 = [0; V1_PREFIX_LEN];
                    v1[..4].copy_from_slice(&self.config.magic);
                    v1[4..].copy_from_slice(V1_VERSION);
                    let seen = self.buffer.len().min(V1_PREFIX_LEN);
                    if self.buffer[..seen] != v1[..seen] {
                        self.send_key()?;
                        self.state = State::Key;
                    } else if seen == V1_PREFIX_LEN {
                        return Ok(Progress::V1(core::mem::take(&mut self.buffer)));
                    } else {
                        self.state = State::Prefix;
                        return Ok(Progress::Waiting);
                    }
                }
                State::Key => {
                    self.refuse_other_network()?;
                    let Some(&theirs) = self.buffer.first_chunk() else {
                        self.state = State::Key;
                        return Ok(Progress::Waiting);
                    };
                    self.buffer.drain(..ELLSWIFT_LEN);
                    let ciphers = self.exchange_keys(&theirs)?;
                    self.state = State::Garbage {
                        ciphers,
                        searched: 0,
                    };
                }
                State::Garbage { ciphers, searched } => {
                    let begins = self.buffer[searched..]
                        .windows(TERMINATOR_LEN)
                        .take(MAX_GARBAGE_LEN + 1 - searched)
                        .position(|window| *window == ciphers.terminator);
                    if let Some(begins) = begins {
                        let garbage = searched + begins;
                        self.state = State::Version {
                            ciphers,
                            aad: garbage,
                            at: garbage + TERMINATOR_LEN,
                            expected: None,
                        };
                        continue;
                    }
                    if self.buffer.len() >= MAX_GARBAGE_LEN + TERMINATOR_LEN {
                        return Err(HandshakeError::NoTerminator);
                    }
                    let searched = (self.buffer.len() + 1).saturating_sub(TERMINATOR_LEN);
                    self.state = State::Garbage { ciphers, searched };
                    return Ok(Progress::Waiting);
                }
                State::Version {
                    mut ciphers,
                    aad,
                    mut at,
                    mut expected,
                } => {
                    let kind =
                        self.next_packet(&mut ciphers.inbound, aad, &mut at, &mut expected)?;
                    match kind {
                        Some(PacketKind::Genuine) => {
                            return Ok(Progress::Complete(self.complete(*ciphers, at)));
                        }
                        Some(PacketKind::Decoy) => {
                            self.state = State::Version {
                                ciphers,
                                aad: 0,
                                at,
                                expected,
                            };
                        }
                        None => {
                            // What decoys leave must not pile up; garbage that
                            // is still to be authenticated stays.
                            if aad == 0 && at > 0 {
                                self.buffer.drain(..at);
                                self.buffer.shrink_to(KEPT_BUFFER);
                                at = 0;
                            }
                            self.state = State::Version {
                                ciphers,
                                aad,
                                at,
                                expected,
                            };
                            return Ok(Progress::Waiting);
                        }
                    }
                }
                State::Ended => return Err(HandshakeError::Ended),
            }
        }
    }

    /// Makes the keypair and sends its public key, with the garbage.
    fn send_key(&mut self) -> Result<(), HandshakeError> {
        let keypair = Keypair::new(&self.config.secret, &self.config.auxiliary)?;
        self.output.extend_from_slice(keypair.public());
        self.output.extend_from_slice(&self.config.garbage);
        self.keypair = Some(keypair);
        Ok(())
    }

    /// Recognises the first message of a v1 peer of another network, which no
    /// random public key looks like.
    fn refuse_other_network(&self) -> Result<(), HandshakeError> {
        if self.role == Role::Responder
            && let Some((magic, rest)) = self.buffer.split_first_chunk()
            && rest.starts_with(V1_VERSION)
        {
            return Err(HandshakeError::V1OtherNetwork { magic: *magic });
        }
        Ok(())
    }

    /// Derives the ciphers and sends terminator, decoys and version packet.
    fn exchange_keys(
        &mut self,
        theirs: &[u8; ELLSWIFT_LEN],
    ) -> Result<Box<Ciphers>, HandshakeError> {
        // The keypair is there since `send_key`, and wiped when this returns.
        let keypair = self.keypair.take().ok_or(HandshakeError::Ended)?;
        let shared = keypair.shared_secret(theirs, self.role);
        let keys = SessionKeys::derive(&shared, self.config.magic);
        let [mut outbound, inbound] = Cipher::pair(self.config.engine, &keys, self.role);
        let (ours, theirs) = match self.role {
            Role::Initiator => (keys.initiator_terminator, keys.responder_terminator),
            Role::Responder => (keys.responder_terminator, keys.initiator_terminator),
        };
        self.output.extend_from_slice(&ours);
        let mut aad = &self.config.garbage[..];
        for decoy in &self.config.decoys {
            outbound.seal(PacketKind::Decoy, aad, decoy, &mut self.output)?;
            aad = &[];
        }
        outbound.seal(
            PacketKind::Genuine,
            aad,
            &self.config.version,
            &mut self.output,
        )?;
        Ok(Box::new(Ciphers {
            outbound,
            inbound,
            terminator: theirs,
            session_id: keys.session_id,
        }))
    }

    /// Opens the packet at `at`, if it has come whole, and moves `at` behind it.
    fn next_packet(
        &mut self,
        inbound: &mut Cipher,
        aad: usize,
        at: &mut usize,
        expected: &mut Option<usize>,
    ) -> Result<Option<PacketKind>, HandshakeError> {
        let wire_len = match *expected {
            Some(wire_len) => wire_len,
            None => {
                let Some(&length) = self.buffer[*at..].first_chunk() else {
                    return Ok(None);
                };
                let length = inbound.decrypt_length(length).map_err(OpenError::from)?;
                let limit = self.config.receive_limit;
                if length > limit {
                    return Err(OpenError::TooLong { length, limit }.into());
                }
                *expected.insert(length + OVERHEAD)
            }
        };
        if self.buffer.len() - *at < wire_len {
            return Ok(None);
        }
        let end = *at + wire_len;
        let (kind, _) = inbound.open(&mut self.buffer, 0..aad, *at + LENGTH_LEN..end)?;
        *at = end;
        *expected = None;
        Ok(Some(kind))
    }

    /// The session; what lies behind `at` in the buffer belongs to it.
    fn complete(&mut self, ciphers: Ciphers, at: usize) -> Box<Session> {
        // A copy: the buffer itself is as large as the garbage or a decoy was.
        let buffered = self.buffer[at..].to_vec();
        self.buffer = Vec::new();
        Box::new(Session {
            outbound: Outbound::new(ciphers.outbound),
            inbound: Inbound::new(ciphers.inbound, self.config.receive_limit, buffered),
            id: ciphers.session_id,
        })
    }
}

/// Why a handshake has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The configuration has more than [`MAX_GARBAGE_LEN`] bytes of garbage.
    GarbageTooLong {
        /// Length of that garbage, in bytes.
        length: usize,
    },
    /// The configuration's secret is no secret key.
    SecretKey(SecretKeyError),
    /// A decoy or the version packet of the configuration cannot be sealed.
    Seal(SealError),
    /// The operating system gave no random bytes.
    NoEntropy,
    /// Responder: the peer speaks v1, and on another network.
    V1OtherNetwork {
        /// The magic that it sent.
        magic: [u8; 4],
    },
    /// The peer sent more garbage than it may, or noise: the terminator did not
    /// come.
    NoTerminator,
    /// A packet of the peer's cannot be opened. A wrong tag on its first packet
    /// may mean that its key or its garbage was changed on the way.
    Open(OpenError),
    /// Initiator: the peer closed before it answered. It may speak v1 only; a
    /// caller can connect again as v1.
    ClosedUnanswered,
    /// The peer closed in the middle of the handshake.
    Closed,
    /// The handshake had already ended: nothing more can be received.
    Ended,
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GarbageTooLong { length } => write!(
                f,
                "{length} bytes of garbage are too many: the protocol allows {MAX_GARBAGE_LEN}"
            ),
            Self::SecretKey(error) => error.fmt(f),
            Self::Seal(error) => error.fmt(f),
            Self::NoEntropy => f.write_str("the operating system gave no random bytes"),
            Self::V1OtherNetwork {
                magic: [a, b, c, d],
            } => {
                write!(f, "the peer speaks v1 on another network: its magic is ")?;
                match Network::from_magic([*a, *b, *c, *d]) {
                    Some(network) => f.write_str(network.name()),
                    None => write!(f, "{a:02x}{b:02x}{c:02x}{d:02x}"),
                }
            }
            Self::NoTerminator => write!(
                f,
                "no garbage terminator in {} bytes: the peer does not speak BIP324 on this network",
                MAX_GARBAGE_LEN + TERMINATOR_LEN
            ),
            Self::Open(error) => error.fmt(f),
            Self::ClosedUnanswered => {
                f.write_str("the peer closed before it answered: it may speak v1 only")
            }
            Self::Closed => f.write_str("the peer closed in the middle of the handshake"),
            Self::Ended => f.write_str("the handshake had already ended"),
        }
    }
}

impl core::error::Error for HandshakeError {}

impl From<SecretKeyError> for HandshakeError {
    fn from(error: SecretKeyError) -> Self {
        Self::SecretKey(error)
    }
}

impl From<SealError> for HandshakeError {
    fn from(error: SealError) -> Self {
        Self::Seal(error)
    }
}

impl From<OpenError> for HandshakeError {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}
