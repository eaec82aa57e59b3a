//! One direction of a packet number space: which keys its packets have, which numbers,
//! and how many there may be.

use super::batch::{Keys, Phase};
use super::header::{
    FIXED, KEY_PHASE, SPIN, TooShort, copy, has_reserved_bits, is_short, number_len, sample,
};
use super::{Batch, MAX_CONNECTION_ID_LEN, MAX_PACKET_NUMBER, PacketNumber, Secret, Suite};
use crate::batch::Slot;
use crate::{Outcome, TAG_LEN};
use alloc::sync::Arc;
use core::fmt;
use core::ops::Range;

/// So many packets before the confidentiality limit a key update is due: enough for the
/// peer to answer it.
pub const KEY_UPDATE_MARGIN: u64 = 10_000;

/// The keys of `secret`, with those before and after as they are.
fn first_keys(secret: &Secret) -> Arc<Keys> {
    Arc::new(Keys {
        header: Arc::new(secret.header_key()),
        current: Arc::new(secret.packet_key()),
        previous: None,
        next: None,
        generation: 0,
        first_number: 0,
    })
}

/// The sending side of a packet number space: Initial, Handshake, 0-RTT or 1-RTT.
pub struct Sealer {
    secret: Secret,
    keys: Arc<Keys>,
    /// How many packets the current key has sealed.
    sealed: u64,
    /// All packet numbers below have been used, or never will be.
    next_number: u64,
    /// Turn of the batch that holds `keys`, and their index there; turn 0, which no
    /// batch has, if none does.
    in_batch: (usize, u32),
}

impl Sealer {
    /// The sealer with the keys of `secret`.
    #[must_use]
    pub fn new(secret: Secret) -> Self {
        Self {
            keys: first_keys(&secret),
            secret,
            sealed: 0,
            next_number: 0,
            in_batch: (0, 0),
        }
    }

    /// Adds a packet to the batch. [`Batch::wire`] gives its bytes, longer by a tag of
    /// 16, when the batch has been sealed.
    ///
    /// `header` is the unprotected header, which ends in the packet number `number`, of
    /// 1 to 4 bytes as its first byte says, in network order (see
    /// [`encode_packet_number`](super::encode_packet_number)). A long header's Length
    /// field counts number, payload and tag. In a short header the Key Phase bit is set
    /// here. `payload` are the frames.
    ///
    /// # Errors
    ///
    /// See [`SealError`]. Nothing is added and nothing counted then.
    #[inline]
    pub fn push(
        &mut self,
        batch: &mut Batch,
        number: u64,
        header: &[u8],
        payload: &[u8],
    ) -> Result<Slot, SealError> {
        let (slot, place) = self.reserve(batch, number, header, payload.len())?;
        place.copy_from_slice(payload);
        Ok(slot)
    }

    /// As [`Sealer::push`], for the caller to write the payload of `payload_len` bytes
    /// into the slice that is returned. It shows bytes of earlier turns: all of it must
    /// be written.
    ///
    /// # Errors
    ///
    /// See [`SealError`]. Nothing is added and nothing counted then.
    #[inline]
    pub fn reserve<'b>(
        &mut self,
        batch: &'b mut Batch,
        number: u64,
        header: &[u8],
        payload_len: usize,
    ) -> Result<(Slot, &'b mut [u8]), SealError> {
        let Some((&first, rest)) = header.split_first() else {
            return Err(SealError::Header);
        };
        let number_len = number_len(first);
        let in_header = match rest.last_chunk() {
            Some(last) => u32::from_be_bytes(*last),
            None => rest
                .iter()
                .fold(0, |number, &byte| number << 8 | u32::from(byte)),
        };
        // The bits above those that the header has go out.
        let differ = u64::from(in_header) ^ number;
        if rest.len() < number_len || differ << (64 - 8 * number_len) != 0 {
            return Err(SealError::Header);
        }
        let first = match is_short(first) {
            true => first & !KEY_PHASE | self.key_phase_bit(),
            false => first,
        };
        let (slot, packet) = self.add(batch, number, (first, header.len()), payload_len)?;
        let (place, payload) = packet.split_at_mut(header.len());
        copy(header, place);
        place[0] = first;
        Ok((slot, payload))
    }

    /// As [`Sealer::reserve`], for a packet with a short header, which is written here:
    /// sooner than one that is handed over.
    ///
    /// # Errors
    ///
    /// See [`SealError`]. Nothing is added and nothing counted then.
    #[inline]
    pub fn reserve_short<'b>(
        &mut self,
        batch: &'b mut Batch,
        header: &ShortHeader<'_>,
        payload_len: usize,
    ) -> Result<(Slot, &'b mut [u8]), SealError> {
        let ShortHeader {
            destination,
            spin,
            number,
        } = *header;
        if destination.len() > MAX_CONNECTION_ID_LEN {
            let len = destination.len();
            return Err(SealError::ConnectionId { len });
        }
        let spin = if spin { SPIN } else { 0 };
        let first = FIXED | spin | self.key_phase_bit() | number.first_bits();
        let header_len = 1 + destination.len() + number_len(first);
        let (slot, packet) = self.add(batch, number.number(), (first, header_len), payload_len)?;
        packet[0] = first;
        let (place, rest) = packet[1..].split_at_mut(destination.len());
        copy(destination, place);
        // The zeros fall where the payload is to be written, which is long enough for a
        // sample.
        number.write(rest);
        Ok((slot, &mut rest[number_len(first)..]))
    }

    /// Adds a packet whose header, of `header_len` bytes, begins with `first`. Returns
    /// its bytes, but for the tag.
    #[inline]
    fn add<'b>(
        &mut self,
        batch: &'b mut Batch,
        number: u64,
        (first, header_len): (u8, usize),
        payload_len: usize,
    ) -> Result<(Slot, &'b mut [u8]), SealError> {
        if !(self.next_number..=MAX_PACKET_NUMBER).contains(&number) {
            return Err(SealError::PacketNumber { number });
        }
        // The tag is as long as the sample, which begins where the fifth byte of the
        // number would be.
        let needed = 4 - number_len(first);
        if payload_len < needed {
            return Err(SealError::TooShort { needed });
        }
        if self.sealed == self.suite().confidentiality_limit() {
            return Err(SealError::ConfidentialityLimit);
        }
        let wire_len = payload_len.saturating_add(header_len + TAG_LEN);
        if !batch.fits(wire_len) {
            return Err(SealError::BatchFull);
        }
        self.next_number = number + 1;
        self.sealed += 1;
        if self.in_batch.0 != batch.turn() {
            self.in_batch = (batch.turn(), batch.add_keys(&self.keys));
        }
        let keys = (self.in_batch.1, &*self.keys);
        let (slot, packet) = batch.add_to_seal(keys, number, (first, header_len), payload_len);
        Ok((slot, &mut packet[..wire_len - TAG_LEN]))
    }

    #[inline]
    fn key_phase_bit(&self) -> u8 {
        if self.key_phase() { KEY_PHASE } else { 0 }
    }

    /// Takes the next keys, from the next packet on: initiates a key update, or follows
    /// one of the peer (RFC 9001, section 6). Only for 1-RTT packets; when it is
    /// allowed, once the handshake is confirmed and a packet of the current phase is
    /// acknowledged, the caller knows.
    pub fn update_keys(&mut self) {
        self.secret = self.secret.next();
        self.keys = Arc::new(Keys {
            header: Arc::clone(&self.keys.header),
            current: Arc::new(self.secret.packet_key()),
            previous: None,
            next: None,
            generation: self.keys.generation + 1,
            first_number: self.next_number,
        });
        self.sealed = 0;
        self.in_batch = (0, 0);
    }

    /// The key phase of the next packet: it changes with each key update.
    #[must_use]
    pub fn key_phase(&self) -> bool {
        self.keys.generation & 1 == 1
    }

    /// How many packets the current key has sealed.
    #[must_use]
    pub fn sealed(&self) -> u64 {
        self.sealed
    }

    /// Whether the current key has sealed nearly as many packets as it may: within
    /// [`KEY_UPDATE_MARGIN`] of [`Suite::confidentiality_limit`].
    #[must_use]
    pub fn needs_key_update(&self) -> bool {
        self.sealed >= self.suite().confidentiality_limit() - KEY_UPDATE_MARGIN
    }

    /// Its suite.
    #[must_use]
    pub fn suite(&self) -> Suite {
        self.secret.suite()
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer")
            .field("suite", &self.suite())
            .field("next_number", &self.next_number)
            .field("sealed", &self.sealed)
            .field("key_updates", &self.keys.generation)
            .finish_non_exhaustive()
    }
}

/// The receiving side of a packet number space: Initial, Handshake, 0-RTT or 1-RTT.
///
/// It follows the key updates of its peer by itself. Whether a packet has come before
/// (RFC 9000, section 12.3) is for the caller to tell, who knows which ones have.
pub struct Opener {
    /// That of the current keys.
    secret: Secret,
    keys: Arc<Keys>,
    /// The largest number of a packet that was authentic, plus 1.
    expected: u64,
    forged: u64,
    /// As in [`Sealer`].
    in_batch: (usize, u32),
}

/// A packet that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'b> {
    /// Its packet number.
    pub number: u64,
    /// Its header, unprotected.
    pub header: &'b [u8],
    /// Its payload: the frames.
    pub payload: &'b [u8],
    /// Whether it is the first of a new key phase: the peer has updated its keys. If it
    /// was not this side that began, [`Sealer::update_keys`] is due before the packet is
    /// acknowledged (RFC 9001, section 6.2).
    pub key_update: bool,
}

impl Opener {
    /// The opener with the keys of `secret`.
    #[must_use]
    pub fn new(secret: Secret) -> Self {
        Self {
            keys: first_keys(&secret),
            secret,
            expected: 0,
            forged: 0,
            in_batch: (0, 0),
        }
    }

    /// Adds a packet to the batch that was received there: it lies in `packet` of
    /// [`Batch::bytes`], and its packet number begins at `pn_offset` of it (see
    /// [`Header`](super::Header)). [`Opener::take`] gives what came of it when the batch
    /// has been opened.
    ///
    /// # Errors
    ///
    /// [`OpenError::TooShort`]: the packet is to be dropped.
    ///
    /// # Panics
    ///
    /// If `packet` is not in [`Batch::bytes`].
    #[inline]
    pub fn push(
        &mut self,
        batch: &mut Batch,
        packet: Range<usize>,
        pn_offset: usize,
    ) -> Result<Slot, OpenError> {
        let bytes = &batch.bytes()[packet.clone()];
        sample(bytes.len(), pn_offset).map_err(|TooShort| OpenError::TooShort)?;
        // The keys of the next phase must be there before a packet asks for them: how
        // long they take would tell of a key phase that is not authentic yet.
        if is_short(bytes[0]) && self.keys.next.is_none() {
            self.set_keys(|keys, secret| Keys {
                next: Some(Arc::new(secret.next().packet_key())),
                ..keys
            });
        }
        if self.in_batch.0 != batch.turn() {
            self.in_batch = (batch.turn(), batch.add_keys(&self.keys));
        }
        let keys = (self.in_batch.1, &*self.keys);
        Ok(batch.add_to_open(keys, self.expected, packet, pn_offset))
    }

    /// What came of a packet that [`Opener::push`] added, once its batch has been
    /// opened.
    ///
    /// # Errors
    ///
    /// See [`OpenError`], which says whether the packet or the connection is to be
    /// dropped.
    #[inline]
    pub fn take<'b>(&mut self, batch: &'b Batch, slot: Slot) -> Result<Packet<'b>, OpenError> {
        let (packet, keys, outcome) = batch.to_open(&slot).ok_or(OpenError::NotOpened)?;
        match outcome {
            Outcome::Authentic => {}
            Outcome::BadTag => {
                self.forged += 1;
                return Err(if self.forged > self.suite().integrity_limit() {
                    OpenError::IntegrityLimit
                } else {
                    OpenError::BadTag
                });
            }
            Outcome::Pending | Outcome::Sealed => return Err(OpenError::NotOpened),
        }
        let (header, rest) = batch.bytes()[packet.range()].split_at(packet.header_len as usize);
        if has_reserved_bits(header[0]) {
            return Err(OpenError::ReservedBits);
        }
        let number = packet.number;
        // Another packet of the batch may have updated the keys since it was added.
        let then = keys.generation;
        let generation = match packet.phase {
            Phase::Previous => then - 1,
            Phase::Current => then,
            Phase::Next => then + 1,
        };
        let key_update = generation > self.keys.generation;
        if key_update && number < self.expected
            || generation < self.keys.generation && number > self.keys.first_number
        {
            return Err(OpenError::KeyUpdate);
        }
        if key_update {
            self.update_keys(number);
        }
        self.expected = self.expected.max(number + 1).min(MAX_PACKET_NUMBER);
        Ok(Packet {
            number,
            header,
            payload: &rest[..rest.len() - TAG_LEN],
            key_update,
        })
    }

    /// Takes the next keys: `number` is the first packet that came with them.
    fn update_keys(&mut self, number: u64) {
        self.secret = self.secret.next();
        self.set_keys(|keys, secret| Keys {
            previous: Some(keys.current),
            current: keys.next.unwrap_or_else(|| Arc::new(secret.packet_key())),
            next: Some(Arc::new(secret.next().packet_key())),
            generation: keys.generation + 1,
            first_number: number,
            header: keys.header,
        });
    }

    /// Drops the keys from before the last key update: packets that are still on their
    /// way with them are lost. Due some time after the update, and before the next (RFC
    /// 9001, section 6.5).
    pub fn drop_previous_keys(&mut self) {
        if self.keys.previous.is_some() {
            self.set_keys(|keys, _| Keys {
                previous: None,
                ..keys
            });
        }
    }

    fn set_keys(&mut self, change: impl FnOnce(Keys, &Secret) -> Keys) {
        let keys = Keys {
            header: Arc::clone(&self.keys.header),
            current: Arc::clone(&self.keys.current),
            previous: self.keys.previous.clone(),
            next: self.keys.next.clone(),
            ..*self.keys
        };
        self.keys = Arc::new(change(keys, &self.secret));
        self.in_batch = (0, 0);
    }

    /// The key phase of the newest keys that a packet came with.
    #[must_use]
    pub fn key_phase(&self) -> bool {
        self.keys.generation & 1 == 1
    }

    /// The packet number around which truncated ones are recovered: the largest that was
    /// authentic, plus 1.
    #[must_use]
    pub fn expected(&self) -> u64 {
        self.expected
    }

    /// Raises [`Opener::expected`]: 0-RTT and 1-RTT packets share their numbers, and each
    /// has an opener. At most [`MAX_PACKET_NUMBER`].
    pub fn set_expected(&mut self, number: u64) {
        self.expected = self.expected.max(number).min(MAX_PACKET_NUMBER);
    }

    /// How many packets failed to open, under all its keys.
    #[must_use]
    pub fn forged(&self) -> u64 {
        self.forged
    }

    /// Its suite.
    #[must_use]
    pub fn suite(&self) -> Suite {
        self.secret.suite()
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener")
            .field("suite", &self.suite())
            .field("expected", &self.expected)
            .field("forged", &self.forged)
            .field("key_updates", &self.keys.generation)
            .finish_non_exhaustive()
    }
}

/// A short header (RFC 9000, section 17.3.1), but for what its [`Sealer`] knows: the Key
/// Phase bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortHeader<'h> {
    /// The connection ID that the peer has chosen, [`MAX_CONNECTION_ID_LEN`] bytes at most.
    pub destination: &'h [u8],
    /// The latency spin bit (RFC 9000, section 17.4).
    pub spin: bool,
    /// The packet number, as
    /// [`encode_packet_number`](super::encode_packet_number) has it.
    pub number: PacketNumber,
}

/// Why a packet cannot be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SealError {
    /// The packet number is not above those before, or above [`MAX_PACKET_NUMBER`]: the
    /// connection must end when they are spent.
    PacketNumber {
        /// The number.
        number: u64,
    },
    /// The header does not end in the low bytes of the packet number, as many as its
    /// first byte says.
    Header,
    /// The connection ID is longer than [`MAX_CONNECTION_ID_LEN`].
    ConnectionId {
        /// Its length, in bytes.
        len: usize,
    },
    /// The payload is too short for a sample of ciphertext: pad it.
    TooShort {
        /// How many bytes it needs with this packet number, which are at most 3.
        needed: usize,
    },
    /// The key has sealed as many packets as it may: update keys, or end the connection.
    ConfidentialityLimit,
    /// The batch has no room left: seal it, send it and clear it first.
    BatchFull,
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PacketNumber { number } => write!(
                f,
                "packet number {number} has been used, or is above {MAX_PACKET_NUMBER}"
            ),
            Self::Header => f.write_str("the header does not end in the packet number"),
            Self::ConnectionId { len } => write!(
                f,
                "the connection ID has {len} bytes; {MAX_CONNECTION_ID_LEN} are the most"
            ),
            Self::TooShort { needed } => write!(
                f,
                "the payload is too short for header protection: pad it to {needed} bytes"
            ),
            Self::ConfidentialityLimit => {
                f.write_str("the key has sealed as many packets as it may: update keys")
            }
            Self::BatchFull => write!(
                f,
                "the batch is full at {} bytes: seal, send and clear it first",
                Batch::MAX_BYTES
            ),
        }
    }
}

impl core::error::Error for SealError {}

/// Why a packet was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The packet is too short to have a sample. Drop it.
    TooShort,
    /// The packet's tag is wrong: it was damaged or forged on its way, or has other
    /// keys. Drop it.
    BadTag,
    /// As [`OpenError::BadTag`], and it was one more than
    /// [`Suite::integrity_limit`]: end the connection, with AEAD_LIMIT_REACHED.
    IntegrityLimit,
    /// The packet is authentic and has a reserved bit set: end the connection, with
    /// PROTOCOL_VIOLATION (RFC 9000, section 17).
    ReservedBits,
    /// The packet is authentic and has keys older than those of a packet before it: end
    /// the connection, with KEY_UPDATE_ERROR (RFC 9001, section 6.4).
    KeyUpdate,
    /// The caller took a packet of a batch that was not opened, or has been cleared.
    NotOpened,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort => TooShort.fmt(f),
            Self::BadTag => super::BadTag.fmt(f),
            Self::IntegrityLimit => {
                f.write_str("more packets failed to open than keys allow: end the connection")
            }
            Self::ReservedBits => f.write_str("the peer has set a reserved bit"),
            Self::KeyUpdate => {
                f.write_str("the peer used older keys for a packet with a higher number")
            }
            Self::NotOpened => {
                f.write_str("take packets after Batch::open and before Batch::clear")
            }
        }
    }
}

impl core::error::Error for OpenError {}

#[cfg(test)]
mod tests {
    use super::super::Version;
    use super::*;
    use crate::Engine;

    fn pair(suite: Suite) -> (Sealer, Opener) {
        let secret = [7; 48];
        let secret = Secret::new(suite, Version::V1, &secret[..suite.secret_len()]).unwrap();
        (Sealer::new(secret.clone()), Opener::new(secret))
    }

    /// A key seals as many packets as RFC 9001 allows, and the next one goes on.
    #[test]
    fn the_confidentiality_limit() {
        for suite in [Suite::Aes128Gcm, Suite::Aes256Gcm] {
            let (mut sealer, mut opener) = pair(suite);
            let mut batch = Batch::new();
            assert!(!sealer.needs_key_update());
            sealer.sealed = (1 << 23) - 10_001;
            assert!(!sealer.needs_key_update());
            let push = |sealer: &mut Sealer, batch: &mut Batch, number: u8| {
                sealer.push(batch, number.into(), &[0x40, number], b"ping")
            };
            push(&mut sealer, &mut batch, 0).unwrap();
            assert!(sealer.needs_key_update());
            sealer.sealed = (1 << 23) - 1;
            push(&mut sealer, &mut batch, 1).unwrap();
            let refused = push(&mut sealer, &mut batch, 2);
            assert_eq!(refused, Err(SealError::ConfidentialityLimit));
            assert_eq!((batch.len(), sealer.sealed()), (2, 1 << 23));
            sealer.update_keys();
            assert_eq!(sealer.sealed(), 0);
            let slot = push(&mut sealer, &mut batch, 2).unwrap();
            batch.seal(&Engine::portable());
            let wire = batch.wire(&slot).to_vec();
            batch.clear();
            let place = batch.feed(&wire);
            let slot = opener.push(&mut batch, place, 1).unwrap();
            batch.open(&Engine::portable());
            assert!(opener.take(&batch, slot).unwrap().key_update);
        }
        let (mut sealer, _) = pair(Suite::ChaCha20Poly1305);
        sealer.sealed = MAX_PACKET_NUMBER;
        assert!(!sealer.needs_key_update());
    }

    /// Packets that fail are counted, over key updates, up to the limit.
    #[test]
    fn the_integrity_limit() {
        for (suite, limit) in [
            (Suite::Aes128Gcm, 1 << 52),
            (Suite::Aes256Gcm, 1 << 52),
            (Suite::ChaCha20Poly1305, 1 << 36),
        ] {
            let (_, mut opener) = pair(suite);
            let fail = |opener: &mut Opener| {
                let mut batch = Batch::new();
                let place = batch.feed(&[0x41; 40]);
                let slot = opener.push(&mut batch, place, 1).unwrap();
                batch.open(&Engine::portable());
                opener.take(&batch, slot).unwrap_err()
            };
            assert_eq!(fail(&mut opener), OpenError::BadTag);
            assert_eq!(opener.forged(), 1);
            opener.forged = limit - 1;
            opener.update_keys(5);
            assert_eq!(fail(&mut opener), OpenError::BadTag);
            assert_eq!(fail(&mut opener), OpenError::IntegrityLimit);
            assert_eq!(opener.forged(), limit + 1);
        }
    }
}
