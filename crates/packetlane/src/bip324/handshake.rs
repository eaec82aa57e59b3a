//! The BIP324 handshake for both sides (BIP324, "Overall packet structure and handshake"). It takes
//! the peer's bytes and returns bytes to send and, at the end, a [`Session`].
//!
//! ```text
//! initiator                                responder
//!   ---- public key, garbage ---------------->
//!   <--- public key, garbage -----------------    once 64 bytes have come that are not v1's
//!   <--- terminator, (decoys,) version -------
//!   ---- terminator, (decoys,) version ------>
//!   <--- messages --------------------------->
//! ```
//!
//! [`State`] is what a side expects next: for a responder, the prefix that distinguishes v1 from
//! v2; then the public key, garbage up to the terminator, and packets up to the version packet. The
//! garbage is the AAD of the first packet, which may be a decoy.

use super::buffer::{MAX_IDLE_BUFFER, append_expected};
use super::cipher::Cipher;
use super::error::{HandshakeError, OpenError, SealError};
use super::inbound::Inbound;
use super::keys::{Keypair, SessionKeys};
use super::outbound::Outbound;
use super::packet::{
    LENGTH_LEN, MAX_CONTENTS_LEN, MAX_GARBAGE_LEN, OVERHEAD, PacketKind, TERMINATOR_LEN,
};
use super::session::Session;
use crate::batch::OpenBatch;
use crate::engine::Engine;
use crate::key_exchange::{ELLSWIFT_LEN, Encoded, KeyExchange, KeyExchanges, Role};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;
use zeroize::{Zeroize, Zeroizing};

/// Length of the prefix by which a responder recognises v1, in bytes: magic (4) and message type
/// (12).
const V1_PREFIX_LEN: usize = 16;

/// The message type of the first message in v1, after the magic.
const V1_VERSION: &[u8; 12] = b"version\0\0\0\0\0";

/// The secrets and settings of a handshake.
#[derive(Clone)]
pub struct HandshakeConfig {
    /// The network's magic; see [`Network::magic`](crate::bitcoin::Network::magic). Zeros are
    /// rejected: no network uses them.
    pub magic: [u8; 4],
    /// The engine that sets up keys and handles packets outside batches.
    pub engine: Engine,
    /// The secret key: 32 random bytes, big-endian, fresh for each connection. Boxed, because
    /// moving a secret leaves a copy at its old address, which nothing wipes.
    pub secret: Box<Zeroizing<[u8; 32]>>,
    /// 32 random bytes that choose the encoding of the public key.
    pub auxiliary: Box<Zeroizing<[u8; 32]>>,
    /// A key that was computed before, for this connection alone: of a
    /// [`KeyPool`](super::KeyPool). The handshake uses it instead of `secret` and `auxiliary`.
    pub keypair: Option<Keypair>,
    /// Whether a [`Connection`](super::Connection) calls [`Handshake::receive_batched`], which computes
    /// its key exchange together with those of the other connections in its batch, in lanes, which takes half the time for some handshakes
    /// per turn. An event loop must then call [`Connection::next_packet`](super::Connection::next_packet)
    /// or its likes in every turn, also during the handshake. Off by default.
    pub batched: bool,
    /// Bytes to send after the public key, at most [`Handshake::MAX_GARBAGE_LEN`]. They hide the
    /// length of the handshake and should be random.
    pub garbage: Vec<u8>,
    /// Contents of the decoys to send before the version packet, in order.
    pub decoys: Vec<Vec<u8>>,
    /// Contents of the version packet. BIP324 defines none yet, so leave this empty.
    pub version: Vec<u8>,
    /// Maximum length of received contents, in bytes, during and after the handshake.
    pub receive_limit: usize,
}

impl HandshakeConfig {
    /// Creates a configuration with these two secrets, without garbage or decoys.
    #[must_use]
    pub fn new(
        magic: [u8; 4],
        engine: Engine,
        mut secret: [u8; 32],
        mut auxiliary: [u8; 32],
    ) -> Self {
        let config = Self {
            magic,
            engine,
            secret: Box::new(Zeroizing::new(secret)),
            auxiliary: Box::new(Zeroizing::new(auxiliary)),
            keypair: None,
            batched: false,
            garbage: Vec::new(),
            decoys: Vec::new(),
            version: Vec::new(),
            receive_limit: Inbound::DEFAULT_RECEIVE_LIMIT,
        };
        secret.zeroize();
        auxiliary.zeroize();
        config
    }

    /// Creates a configuration with secrets from the operating system's random number generator, and
    /// with random garbage: a ChaCha20 stream under a key from there (feature `std`). The garbage is 0
    /// to 4094 bytes long, each length equally likely: btcd up to 0.26 refuses 4095.
    ///
    /// # Errors
    ///
    /// [`HandshakeError::NoEntropy`] if the operating system returns no random bytes.
    #[cfg(feature = "std")]
    pub fn random(magic: [u8; 4], engine: Engine) -> Result<Self, HandshakeError> {
        // One system call. The kernel takes longer for the garbage than all else here.
        let mut random = Zeroizing::new([[0; 32]; 3]);
        getrandom::fill(random.as_flattened_mut()).map_err(|_| HandshakeError::NoEntropy)?;
        let mut config = Self::new(magic, engine, random[0], random[1]);
        let stream = |block, bytes: &mut [u8]| {
            let kernels = engine.backend().kernels();
            kernels.chacha20(&random[2], &[0; 12], block, bytes);
        };
        let mut lengths = [0; 64];
        stream(0, &mut lengths);
        // 4096 divides 65536, so all lengths are equally likely. All 32 numbers are 4095 once in
        // 2^384 times.
        let length = lengths
            .as_chunks::<2>()
            .0
            .iter()
            .map(|bytes| usize::from(u16::from_le_bytes(*bytes)) % (MAX_GARBAGE_LEN + 1))
            .find(|length| *length < MAX_GARBAGE_LEN);
        config.garbage = alloc::vec![0; length.unwrap_or(0)];
        stream(1, &mut config.garbage);
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
pub struct Handshake {
    role: Role,
    /// Its secrets are wiped once `keypair` has been computed.
    config: HandshakeConfig,
    /// Set from the computation of the public key until the key exchange.
    keypair: Option<Keypair>,
    state: State,
    /// Received bytes that no state has consumed yet.
    buffer: Vec<u8>,
    /// Whether everything received so far is a prefix of the first message in v1.
    is_v1_so_far: bool,
    output: Vec<u8>,
}

/// What the handshake expects next.
enum State {
    /// Responder: what so far may be the first message in v1, or is less than a public key.
    Prefix,
    /// The peer's public key.
    Key,
    /// The end of a turn, which computes the key exchange.
    Keys {
        theirs: Box<Encoded>,
        /// The number of the turn.
        turn: u64,
        index: usize,
    },
    /// To report an error once more.
    Failed(HandshakeError),
    /// Garbage, then its terminator.
    Garbage {
        ciphers: Box<Ciphers>,
        /// The terminator does not begin before this offset in `buffer`.
        searched: usize,
    },
    /// Packets, up to and including the first genuine one.
    Version {
        ciphers: Box<Ciphers>,
        /// Length of the garbage at the start of `buffer`, which is the next packet's AAD, in
        /// bytes.
        aad: usize,
        /// Offset of the next packet in `buffer`.
        at: usize,
        /// Wire length of the next packet, once its length has been decrypted.
        expected: Option<usize>,
    },
    /// The handshake is complete or has failed.
    Ended,
}

/// The result of the key exchange.
struct Ciphers {
    outbound: Cipher,
    inbound: Cipher,
    /// The peer's garbage terminator.
    terminator: [u8; TERMINATOR_LEN],
    session_id: [u8; 32],
}

/// The state of a handshake after bytes were received.
#[derive(Debug)]
pub enum Progress {
    /// More bytes are needed from the peer.
    Waiting,
    /// Responder: the peer speaks v1. Holds every byte received from it, to pass to a v1
    /// implementation. Nothing has been sent to the peer.
    V1(Vec<u8>),
    /// The handshake is complete. Packets may have followed its last bytes: call
    /// `session.inbound.receive(&mut batch, 0)` first.
    Complete(Box<Session>),
}

impl Handshake {
    /// Maximum length of a side's garbage, in bytes.
    pub const MAX_GARBAGE_LEN: usize = MAX_GARBAGE_LEN;

    /// Bitcoin Core's timeout for a handshake: 60 seconds.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

    /// Starts a handshake as the side that connects. [`Handshake::take_output`] returns its first
    /// bytes immediately.
    ///
    /// # Errors
    ///
    /// [`HandshakeError::ZeroMagic`], [`HandshakeError::GarbageTooLong`],
    /// [`HandshakeError::SecretKey`], or [`HandshakeError::Seal`] if a decoy or the version packet
    /// exceeds [`Session::MAX_CONTENTS_LEN`] bytes.
    pub fn initiator(config: HandshakeConfig) -> Result<Self, HandshakeError> {
        let mut handshake = Self::new(Role::Initiator, config, State::Key)?;
        handshake.send_key()?;
        Ok(handshake)
    }

    /// Starts a handshake as the side that accepts a connection. Sends nothing and computes no
    /// public key until it has received 64 bytes, the length of the peer's key, that are not the
    /// first message in v1.
    ///
    /// # Errors
    ///
    /// As for [`Handshake::initiator`].
    pub fn responder(config: HandshakeConfig) -> Result<Self, HandshakeError> {
        // Rejects a bad secret here rather than when the peer's key has come.
        if config.keypair.is_none() {
            Keypair::from_parts(&config.secret, [0; ELLSWIFT_LEN])?;
        }
        Self::new(Role::Responder, config, State::Prefix)
    }

    fn new(role: Role, config: HandshakeConfig, state: State) -> Result<Self, HandshakeError> {
        if config.magic == [0; 4] {
            return Err(HandshakeError::ZeroMagic);
        }
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
            is_v1_so_far: true,
            output: Vec::new(),
        })
    }

    /// Returns the bytes to send to the peer now, and removes them. After [`Progress::Complete`],
    /// send them before any packet of the session.
    #[must_use]
    pub fn take_output(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.output)
    }

    /// Processes any number of bytes from the peer.
    ///
    /// # Errors
    ///
    /// See [`HandshakeError`]. Every error ends the connection.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Progress, HandshakeError> {
        self.receive_in(bytes, None)
    }

    /// Like [`Handshake::receive`], but adds the key exchange to `batch`, where it waits for those of
    /// other handshakes: [`Engine::open`] computes all of them together, in lanes. Then
    /// [`Handshake::take_keys`] goes on, before the batch is cleared; otherwise the handshake computes
    /// its keys alone in the next turn.
    ///
    /// # Errors
    ///
    /// As for [`Handshake::receive`].
    pub fn receive_batched(
        &mut self,
        batch: &mut OpenBatch,
        bytes: &[u8],
    ) -> Result<Progress, HandshakeError> {
        let (arena, exchanges) = batch.arena_and_exchanges();
        self.receive_in(bytes, Some((exchanges, arena.turn())))
    }

    /// Like [`Handshake::receive`] without the key exchanges of a turn and the turn's number, and like
    /// [`Handshake::receive_batched`] with them.
    pub(super) fn receive_in(
        &mut self,
        bytes: &[u8],
        turn: Option<(&mut KeyExchanges, u64)>,
    ) -> Result<Progress, HandshakeError> {
        if matches!(self.state, State::Ended) {
            return Err(HandshakeError::Ended);
        }
        let doubled = 2 * self.buffer.len();
        append_expected(&mut self.buffer, bytes, doubled);
        if matches!(self.state, State::Key) {
            let seen = self.buffer.len().min(V1_PREFIX_LEN);
            self.is_v1_so_far = self.buffer[..seen] == self.v1_prefix()[..seen];
        }
        let progress = self.advance(turn);
        if !matches!(progress, Ok(Progress::Waiting)) {
            self.state = State::Ended;
            self.keypair = None;
        }
        progress
    }

    /// Returns the error to report when the peer has closed the connection.
    #[must_use]
    pub fn closed(&self) -> HandshakeError {
        match self.may_speak_v1() {
            true => HandshakeError::ClosedUnanswered,
            false => HandshakeError::Closed,
        }
    }

    /// Initiator: whether the peer may support v1 only, if the connection ends now: because it was
    /// closed or reset, because [`Handshake::answer_timeout`] expired, or with
    /// [`HandshakeError::AnsweredV1`]. If so, reconnect with v1 (BIP324, "Signaling v2 support"),
    /// unless the user requires v2.
    ///
    /// True while nothing was received, or only a prefix of the first message in v1. An active
    /// attacker can force v1 this way, just as by blocking all v2 connections.
    #[must_use]
    pub fn may_speak_v1(&self) -> bool {
        self.role == Role::Initiator && self.is_v1_so_far
    }

    /// How long an initiator waits for the first byte of an answer before it assumes that the peer
    /// supports v1 only: 10 seconds, or `handshake_timeout`, the limit for the whole handshake, if
    /// that is shorter.
    ///
    /// Most nodes without v2 close the connection at once, because a public key does not begin with
    /// their magic. Some stay silent and wait for the rest of the supposed message.
    #[must_use]
    pub fn answer_timeout(handshake_timeout: Duration) -> Duration {
        handshake_timeout.min(Duration::from_secs(10))
    }

    /// Returns the first bytes that a v1 peer of this network sends.
    fn v1_prefix(&self) -> [u8; V1_PREFIX_LEN] {
        let mut prefix = [0; V1_PREFIX_LEN];
        prefix[..4].copy_from_slice(&self.config.magic);
        prefix[4..].copy_from_slice(V1_VERSION);
        prefix
    }

    /// Whether the keys have been exchanged. From then on, all bytes except garbage are encrypted.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        matches!(self.state, State::Garbage { .. } | State::Version { .. })
    }

    /// Returns how many bytes from the peer are buffered here.
    pub(super) fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Processes as many states as the buffer allows.
    fn advance(
        &mut self,
        mut turn: Option<(&mut KeyExchanges, u64)>,
    ) -> Result<Progress, HandshakeError> {
        loop {
            match core::mem::replace(&mut self.state, State::Ended) {
                State::Prefix => {
                    let v1 = self.v1_prefix();
                    let seen = self.buffer.len().min(V1_PREFIX_LEN);
                    if self.buffer[..seen] != v1[..seen] {
                        self.refuse_v1()?;
                        // A key costs 40 us. The initiator sends all of its own before it waits, so
                        // that it could also be sent earlier helps nobody but an attacker.
                        if self.buffer.len() < ELLSWIFT_LEN {
                            self.state = State::Prefix;
                            return Ok(Progress::Waiting);
                        }
                        self.state = State::Key;
                    } else if seen == V1_PREFIX_LEN {
                        return Ok(Progress::V1(core::mem::take(&mut self.buffer)));
                    } else {
                        self.state = State::Prefix;
                        return Ok(Progress::Waiting);
                    }
                }
                State::Key => {
                    self.refuse_v1()?;
                    let Some(&theirs) = self.buffer.first_chunk() else {
                        self.state = State::Key;
                        return Ok(Progress::Waiting);
                    };
                    self.buffer.drain(..ELLSWIFT_LEN);
                    match &mut turn {
                        None => self.exchange_keys(&theirs)?,
                        Some((exchanges, turn)) => {
                            self.state = State::Keys {
                                theirs: Box::new(theirs),
                                turn: *turn,
                                index: exchanges.push(self.key_exchange(&theirs)),
                            };
                            return Ok(Progress::Waiting);
                        }
                    }
                }
                State::Keys {
                    theirs,
                    turn: since,
                    index,
                } => {
                    if turn.as_ref().is_some_and(|(_, turn)| *turn == since) {
                        self.state = State::Keys {
                            theirs,
                            turn: since,
                            index,
                        };
                        return Ok(Progress::Waiting);
                    }
                    // The turn is over, and the caller has not taken the keys.
                    self.exchange_keys(&theirs)?;
                }
                State::Failed(error) => return Err(error),
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
                            // Drops the bytes of decoys, so that they do not accumulate. Garbage
                            // that is not authenticated yet stays.
                            if aad == 0 && at > 0 {
                                self.buffer.drain(..at);
                                self.buffer.shrink_to(MAX_IDLE_BUFFER);
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

    /// Computes the public key, unless that was done before, and sends it.
    fn send_key(&mut self) -> Result<(), HandshakeError> {
        let keypair = match self.config.keypair.take() {
            Some(keypair) => keypair,
            None => {
                let config = &self.config;
                Keypair::new_on(config.engine, &config.secret, &config.auxiliary)?
            }
        };
        self.send(keypair.public());
        // The only copy of the secret.
        self.keypair = Some(keypair);
        Ok(())
    }

    /// Appends the public key and the garbage to the output, and wipes what it was computed from.
    fn send(&mut self, public: &Encoded) {
        self.output.extend_from_slice(public);
        self.output.extend_from_slice(&self.config.garbage);
        self.config.keypair = None;
        self.config.secret.zeroize();
        self.config.auxiliary.zeroize();
    }

    /// What the key exchange with the peer's public key `theirs` is computed from.
    fn key_exchange(&self, theirs: &Encoded) -> KeyExchange {
        let (secret, ours, auxiliary) = match self.keypair.as_ref().or(self.config.keypair.as_ref())
        {
            Some(keypair) => (keypair.secret(), *keypair.public(), None),
            None => {
                let auxiliary = Some(self.config.auxiliary.clone());
                (&self.config.secret, [0; ELLSWIFT_LEN], auxiliary)
            }
        };
        KeyExchange {
            secret: secret.clone(),
            auxiliary,
            ours,
            theirs: *theirs,
            role: self.role,
            shared: Box::default(),
        }
    }

    /// Takes the keys that `batch` has computed, if the handshake waits for them, and goes on. It is
    /// complete then if everything else came with the peer's key.
    ///
    /// # Errors
    ///
    /// [`OpenError::NotOpened`] as [`HandshakeError::Open`] if [`Engine::open`] has not computed the
    /// keys yet. Otherwise as for [`Handshake::receive`], which then returns the error once more.
    pub fn take_keys(&mut self, batch: &OpenBatch) -> Result<Progress, HandshakeError> {
        let State::Keys { turn, index, .. } = self.state else {
            return Ok(Progress::Waiting);
        };
        if turn != batch.arena().turn() {
            return Ok(Progress::Waiting);
        }
        let exchange = batch.exchanges().get(index).ok_or(OpenError::NotOpened)?;
        if self.keypair.is_none() {
            self.send(&exchange.ours);
        }
        let begun = self.begin_encryption(&exchange.shared);
        let progress = begun.and_then(|()| self.advance(None));
        match &progress {
            Ok(Progress::Waiting) => {}
            Ok(_) => self.state = State::Ended,
            Err(error) => self.state = State::Failed(*error),
        }
        progress
    }

    /// Whether the next [`Handshake::receive_in`] needs no bytes.
    pub(super) fn has_pending_input(&self) -> bool {
        matches!(self.state, State::Failed(_))
    }

    /// Whether its key exchange may wait for those of others.
    pub(super) fn is_batched(&self) -> bool {
        self.config.batched
    }

    /// Whether it waits for the keys of a turn.
    pub(super) fn waits_for_keys(&self) -> bool {
        matches!(self.state, State::Keys { .. })
    }

    /// Rejects a v1 peer by its first message: one of another network, or one that answers an
    /// initiator's v2 handshake in v1. A random public key contains these 12 bytes with probability
    /// 2^-96.
    fn refuse_v1(&self) -> Result<(), HandshakeError> {
        match self.buffer.split_first_chunk() {
            Some((magic, rest)) if rest.starts_with(V1_VERSION) => {
                Err(match *magic == self.config.magic {
                    true => HandshakeError::AnsweredV1,
                    false => HandshakeError::V1OtherNetwork { magic: *magic },
                })
            }
            _ => Ok(()),
        }
    }

    /// Computes the keys, and [begins](Self::begin_encryption) to use them.
    fn exchange_keys(&mut self, theirs: &Encoded) -> Result<(), HandshakeError> {
        if self.keypair.is_none() {
            self.send_key()?;
        }
        let keypair = self.keypair.as_ref().ok_or(HandshakeError::Ended)?;
        let shared = keypair.shared_secret_on(self.config.engine, theirs, self.role);
        self.begin_encryption(&shared)
    }

    /// Derives the ciphers. Appends terminator, decoys and version packet to the output.
    fn begin_encryption(&mut self, shared: &[u8; 32]) -> Result<(), HandshakeError> {
        self.keypair = None;
        let keys = SessionKeys::derive(shared, self.config.magic);
        let [mut outbound, mut inbound] = Cipher::pair(self.config.engine, &keys, self.role);
        // A peer that goes silent after the handshake should not cost memory for precomputed
        // keystream.
        outbound.set_precomputed_keystream(false);
        inbound.set_precomputed_keystream(false);
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
        self.state = State::Garbage {
            ciphers: Box::new(Ciphers {
                outbound,
                inbound,
                terminator: theirs,
                session_id: keys.session_id,
            }),
            searched: 0,
        };
        Ok(())
    }

    /// Opens the packet at `at` if it is complete, and moves `at` to its end.
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
                let length = inbound.decrypt_length(length)?;
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

    /// Builds the session. Bytes in the buffer from `at` on belong to it.
    fn complete(&mut self, mut ciphers: Ciphers, at: usize) -> Box<Session> {
        ciphers.outbound.set_precomputed_keystream(true);
        ciphers.inbound.set_precomputed_keystream(true);
        // A copy, because the buffer's capacity is that of the garbage or of a decoy.
        let buffered = self.buffer[at..].to_vec();
        self.buffer = Vec::new();
        Box::new(Session {
            outbound: Outbound::new(ciphers.outbound),
            inbound: Inbound::new(ciphers.inbound, self.config.receive_limit, buffered),
            id: ciphers.session_id,
        })
    }
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Omits the peer's terminator, which locates its garbage, and the session id.
        let expects = match self.state {
            State::Prefix => "v1 or v2",
            State::Key => "public key",
            State::Keys { .. } => "the end of the turn",
            State::Garbage { .. } => "garbage",
            State::Version { .. } => "version packet",
            State::Failed(_) | State::Ended => "nothing",
        };
        f.debug_struct("Handshake")
            .field("role", &self.role)
            .field("expects", &expects)
            .field("buffered", &self.buffer.len())
            .field("output", &self.output.len())
            .finish_non_exhaustive()
    }
}
