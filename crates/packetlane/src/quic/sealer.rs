//! The sending side of a packet number space: its keys, its packet numbers, and the limit on sealed
//! packets.

use super::batch::SealBatch;
use super::error::SealError;
use super::header::{FIXED, Header, KEY_PHASE, PacketNumber, SPIN, copy, is_short, number_len};
use super::key_ring::KeyRing;
use super::keys::Secret;
use super::suite::Suite;
use crate::arena::{BatchKey, Slot};
use alloc::sync::Arc;
use core::fmt;
use packetlane_lanes::TAG_LEN;

/// A short header (RFC 9000, section 17.3.1) without the Key Phase bit, which the [`Sealer`]
/// sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortHeader<'h> {
    /// The connection ID chosen by the peer, at most [`Header::MAX_CONNECTION_ID_LEN`] bytes.
    pub destination: &'h [u8],
    /// The latency spin bit (RFC 9000, section 17.4).
    pub spin: bool,
    /// The packet number, encoded with [`PacketNumber::encode`].
    pub number: PacketNumber,
}

/// The sending side of a packet number space: Initial, Handshake, 0-RTT or 1-RTT.
pub struct Sealer {
    secret: Secret,
    keys: Arc<KeyRing>,
    /// How many packets the current key has sealed.
    sealed: u64,
    /// All smaller packet numbers have been used or skipped.
    next_number: u64,
    /// Index of `keys` in a batch.
    batch_key: BatchKey,
}

impl Sealer {
    /// A key update is due this many packets before the confidentiality limit, which leaves the
    /// peer time to answer it.
    pub const KEY_UPDATE_MARGIN: u64 = 10_000;

    /// Creates a sealer with the keys of `secret`.
    #[must_use]
    pub fn new(secret: Secret) -> Self {
        Self {
            keys: KeyRing::first(&secret),
            secret,
            sealed: 0,
            next_number: 0,
            batch_key: BatchKey::default(),
        }
    }

    /// Adds a packet to the batch. When the batch has been sealed,
    /// [`SealBatch::wire`](super::Batch::wire) returns its bytes, including a 16-byte tag.
    ///
    /// `header` is the unprotected header. It ends with the packet number `number`, in 1 to 4 bytes
    /// as its first byte says, in network byte order (see [`PacketNumber::encode`]). The Length
    /// field of a long header counts packet number, payload and tag. In a short header, this method
    /// sets the Key Phase bit. `payload` holds the frames.
    ///
    /// # Errors
    ///
    /// See [`SealError`]. Nothing is added or counted then.
    #[inline]
    pub fn push(
        &mut self,
        batch: &mut SealBatch,
        number: u64,
        header: &[u8],
        payload: &[u8],
    ) -> Result<Slot, SealError> {
        let (slot, place) = self.reserve(batch, number, header, payload.len())?;
        crate::copy::copy(place, payload);
        Ok(slot)
    }

    /// Like [`Sealer::push`], but returns a slice of `payload_len` bytes for the caller to write
    /// the payload to. The slice holds bytes of earlier turns and must be overwritten completely.
    ///
    /// # Errors
    ///
    /// See [`SealError`]. Nothing is added or counted then.
    #[inline]
    pub fn reserve<'b>(
        &mut self,
        batch: &'b mut SealBatch,
        number: u64,
        header: &[u8],
        payload_len: usize,
    ) -> Result<(Slot, &'b mut [u8]), SealError> {
        let len = header.len();
        let Some((&first, rest)) = header.split_first() else {
            return Err(SealError::HeaderTooShort { len });
        };
        let number_len = number_len(first);
        if rest.len() < number_len {
            return Err(SealError::HeaderTooShort { len });
        }
        let in_header = match rest.last_chunk() {
            Some(last) => u32::from_be_bytes(*last),
            None => rest
                .iter()
                .fold(0, |number, &byte| number << 8 | u32::from(byte)),
        };
        // The shift drops the bits that the header does not have.
        let differ = u64::from(in_header) ^ number;
        if differ << (64 - 8 * number_len) != 0 {
            return Err(SealError::HeaderNumber { number });
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

    /// Like [`Sealer::reserve`], for a packet with a short header, which this method writes. That
    /// is faster than checking a header of the caller's.
    ///
    /// # Errors
    ///
    /// See [`SealError`]. Nothing is added or counted then.
    // Always inlined, like `Opener::push`: a slot need not go through memory.
    #[inline(always)]
    pub fn reserve_short<'b>(
        &mut self,
        batch: &'b mut SealBatch,
        header: &ShortHeader<'_>,
        payload_len: usize,
    ) -> Result<(Slot, &'b mut [u8]), SealError> {
        let ShortHeader {
            destination,
            spin,
            number,
        } = *header;
        if destination.len() > Header::MAX_CONNECTION_ID_LEN {
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
        // The zeros after the number fall into the payload, which the caller overwrites. It is long
        // enough for a sample.
        number.write(rest);
        Ok((slot, &mut rest[number_len(first)..]))
    }

    /// Adds a packet whose header has `header_len` bytes and starts with `first`. Returns its bytes
    /// without the tag.
    #[inline(always)]
    fn add<'b>(
        &mut self,
        batch: &'b mut SealBatch,
        number: u64,
        (first, header_len): (u8, usize),
        payload_len: usize,
    ) -> Result<(Slot, &'b mut [u8]), SealError> {
        if number < self.next_number {
            let next = self.next_number;
            return Err(SealError::PacketNumberUsed { number, next });
        }
        if number > PacketNumber::MAX {
            return Err(SealError::PacketNumberTooLarge { number });
        }
        // The tag is as long as the sample, which starts where a fifth byte of the packet number
        // would be.
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
        let keys = (batch.index_of(&mut self.batch_key, &self.keys), &*self.keys);
        let (slot, packet) = batch.add_to_seal(keys, number, (first, header_len), payload_len);
        Ok((slot, &mut packet[..wire_len - TAG_LEN]))
    }

    #[inline]
    fn key_phase_bit(&self) -> u8 {
        if self.key_phase() { KEY_PHASE } else { 0 }
    }

    /// Switches to the next keys from the next packet on: initiates a key update, or follows one of
    /// the peer (RFC 9001, section 6). For 1-RTT packets only. The caller ensures that an update is
    /// allowed: the handshake must be confirmed and a packet of the current phase acknowledged.
    pub fn update_keys(&mut self) {
        self.secret = self.secret.next();
        self.keys = Arc::new(KeyRing {
            owner: self.keys.owner,
            header: Arc::clone(&self.keys.header),
            current: Arc::new(self.secret.packet_key()),
            previous: None,
            next: None,
            generation: self.keys.generation + 1,
            first_number: self.next_number,
        });
        self.sealed = 0;
        self.batch_key = BatchKey::default();
    }

    /// Returns the key phase of the next packet. It changes with each key update.
    #[must_use]
    pub fn key_phase(&self) -> bool {
        self.keys.generation & 1 == 1
    }

    /// Returns how many packets the current key has sealed.
    #[must_use]
    pub fn sealed(&self) -> u64 {
        self.sealed
    }

    /// Whether a key update is due: the current key is within [`Sealer::KEY_UPDATE_MARGIN`] packets
    /// of [`Suite::confidentiality_limit`].
    #[must_use]
    pub fn needs_key_update(&self) -> bool {
        self.sealed >= self.suite().confidentiality_limit() - Self::KEY_UPDATE_MARGIN
    }

    /// Returns the cipher suite.
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

#[cfg(test)]
mod tests {
    use super::super::batch::OpenBatch;
    use super::super::opener::Opener;
    use super::super::version::Version;
    use super::*;
    use crate::engine::Engine;

    /// A key seals as many packets as RFC 9001 allows, and its successor continues.
    #[test]
    fn the_confidentiality_limit() {
        for suite in [Suite::Aes128Gcm, Suite::Aes256Gcm] {
            let secret = Secret::new(suite, Version::V1, &[7; 48][..suite.secret_len()]).unwrap();
            let (mut sealer, mut opener) = (Sealer::new(secret.clone()), Opener::new(secret));
            let mut batch = SealBatch::new();
            assert!(!sealer.needs_key_update());
            sealer.sealed = (1 << 23) - 10_001;
            assert!(!sealer.needs_key_update());
            let push = |sealer: &mut Sealer, batch: &mut SealBatch, number: u8| {
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
            Engine::portable().seal(&mut batch);
            let mut opening = OpenBatch::new();
            let place = opening.feed(batch.wire(&slot).unwrap());
            let slot = opener.push(&mut opening, place, 1).unwrap();
            Engine::portable().open(&mut opening);
            assert!(opener.take(&opening, slot).unwrap().key_update);
        }
        let secret = Secret::new(Suite::ChaCha20Poly1305, Version::V1, &[7; 32]).unwrap();
        let mut sealer = Sealer::new(secret);
        sealer.sealed = PacketNumber::MAX;
        assert!(!sealer.needs_key_update());
    }
}
