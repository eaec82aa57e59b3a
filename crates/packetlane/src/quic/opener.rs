//! The receiving side of a packet number space: its keys, its packet numbers, and the limit on
//! failed packets.

use super::batch::OpenBatch;
use super::error::OpenError;
use super::header::{PacketNumber, has_reserved_bits, is_short, sample};
use super::key_ring::{KeyRing, Phase};
use super::keys::Secret;
use super::suite::Suite;
use crate::arena::{BatchKey, Slot};
use alloc::sync::Arc;
use core::fmt;
use core::ops::Range;
use packetlane_lanes::{Outcome, TAG_LEN};

/// The receiving side of a packet number space: Initial, Handshake, 0-RTT or 1-RTT.
///
/// Follows the peer's key updates. Does not detect duplicate packets (RFC 9000, section 12.3); the
/// caller does.
pub struct Opener {
    /// The secret of the current keys.
    secret: Secret,
    keys: Arc<KeyRing>,
    /// The largest number of an authentic packet, plus 1.
    expected: u64,
    /// The largest packet number that used older keys than the current ones, plus 1. 0 if there was
    /// none.
    old_keys_end: u64,
    forged: u64,
    /// Index of `keys` in a batch.
    batch_key: BatchKey,
}

/// An opened packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'b> {
    /// The packet number.
    pub number: u64,
    /// The header, unprotected.
    pub header: &'b [u8],
    /// The payload: frames.
    pub payload: &'b [u8],
    /// Whether it is the first packet of a new key phase: the peer has updated its keys. Unless
    /// this side initiated the update, call [`Sealer::update_keys`](super::Sealer::update_keys)
    /// before acknowledging the packet (RFC 9001, section 6.2).
    pub key_update: bool,
}

impl Opener {
    /// Creates an opener with the keys of `secret`.
    #[must_use]
    pub fn new(secret: Secret) -> Self {
        Self {
            keys: KeyRing::first(&secret),
            secret,
            expected: 0,
            old_keys_end: 0,
            forged: 0,
            batch_key: BatchKey::default(),
        }
    }

    /// Adds a received packet to the batch. `packet` is its range in
    /// [`Batch::bytes`](super::Batch::bytes), and its packet number starts at `pn_offset` within it
    /// (see [`Header`](super::Header)). [`Opener::take`] returns the result when the batch has been
    /// opened.
    ///
    /// # Errors
    ///
    /// [`OpenError::TooShort`]: drop the packet.
    ///
    /// # Panics
    ///
    /// If `packet` is not a range of [`Batch::bytes`](super::Batch::bytes).
    // Always inlined, like `take`: a slot returned through memory would be written in 8-byte pieces
    // and read in 16-byte pieces, which stalls store forwarding.
    #[inline(always)]
    pub fn push(
        &mut self,
        batch: &mut OpenBatch,
        packet: Range<usize>,
        pn_offset: usize,
    ) -> Result<Slot, OpenError> {
        let bytes = &batch.bytes()[packet.clone()];
        sample(bytes.len(), pn_offset).map_err(|_| OpenError::TooShort)?;
        // The keys of the next phase must exist before a packet asks for them: the time to derive
        // them would reveal a key phase that is not authenticated yet.
        if is_short(bytes[0]) && self.keys.next.is_none() {
            self.set_keys(|keys, secret| KeyRing {
                next: Some(Arc::new(secret.next().packet_key())),
                ..keys
            });
        }
        let keys = (batch.index_of(&mut self.batch_key, &self.keys), &*self.keys);
        Ok(batch.add_to_open(keys, self.expected, packet, pn_offset))
    }

    /// Returns the packet that [`Opener::push`] added, once its batch has been opened.
    ///
    /// # Errors
    ///
    /// See [`OpenError`]: each variant says whether to drop the packet or end the connection.
    #[inline(always)]
    pub fn take<'b>(&mut self, batch: &'b OpenBatch, slot: Slot) -> Result<Packet<'b>, OpenError> {
        let (packet, keys, outcome) = batch.to_open(&slot)?;
        if keys.owner != self.keys.owner {
            return Err(OpenError::OtherOpener);
        }
        let number = packet.number;
        match outcome {
            Outcome::Authentic => {}
            Outcome::BadTag => {
                self.forged += 1;
                return Err(if self.forged > self.suite().integrity_limit() {
                    OpenError::IntegrityLimit { number }
                } else {
                    OpenError::BadTag { number }
                });
            }
            Outcome::Pending | Outcome::Sealed => return Err(OpenError::NotOpened),
        }
        let (header, rest) = batch.bytes()[packet.range()].split_at(packet.header_len as usize);
        if has_reserved_bits(header[0]) {
            return Err(OpenError::ReservedBits { number });
        }
        // Another packet of the batch may have updated the keys since this one was added.
        let then = keys.generation;
        let generation = match packet.phase {
            Phase::Previous => then - 1,
            Phase::Current => then,
            Phase::Next => then + 1,
        };
        let key_update = generation > self.keys.generation;
        if generation < self.keys.generation {
            let first = self.keys.first_number;
            if number > first {
                return Err(OpenError::OldKeysAfterNew { number, first });
            }
            self.old_keys_end = self.old_keys_end.max(number + 1);
        } else {
            // A key update must not have a lower number than any earlier packet.
            let old_end = match key_update {
                true => self.expected,
                false => self.old_keys_end,
            };
            if number < old_end {
                let largest = old_end - 1;
                return Err(OpenError::NewKeysBeforeOld { number, largest });
            }
            if key_update {
                self.old_keys_end = old_end;
                self.update_keys(number);
            } else if number < self.keys.first_number {
                self.set_keys(|keys, _| KeyRing {
                    first_number: number,
                    ..keys
                });
            }
        }
        self.expected = self.expected.max(number + 1).min(PacketNumber::MAX);
        Ok(Packet {
            number,
            header,
            payload: &rest[..rest.len() - TAG_LEN],
            key_update,
        })
    }

    /// Switches to the next keys. `number` is the first packet that used them.
    fn update_keys(&mut self, number: u64) {
        self.secret = self.secret.next();
        self.set_keys(|keys, secret| KeyRing {
            previous: Some(keys.current),
            current: keys.next.unwrap_or_else(|| Arc::new(secret.packet_key())),
            next: Some(Arc::new(secret.next().packet_key())),
            generation: keys.generation + 1,
            owner: keys.owner,
            first_number: number,
            header: keys.header,
        });
    }

    /// Drops the keys from before the last key update: packets with them that are still in flight
    /// are lost. Call it some time after the update, and before the next one (RFC 9001, section
    /// 6.5).
    pub fn drop_previous_keys(&mut self) {
        if self.keys.previous.is_some() {
            self.set_keys(|keys, _| KeyRing {
                previous: None,
                ..keys
            });
        }
    }

    fn set_keys(&mut self, change: impl FnOnce(KeyRing, &Secret) -> KeyRing) {
        let keys = KeyRing {
            header: Arc::clone(&self.keys.header),
            current: Arc::clone(&self.keys.current),
            previous: self.keys.previous.clone(),
            next: self.keys.next.clone(),
            ..*self.keys
        };
        self.keys = Arc::new(change(keys, &self.secret));
        self.batch_key = BatchKey::default();
    }

    /// Returns the key phase of the newest keys that a packet used.
    #[must_use]
    pub fn key_phase(&self) -> bool {
        self.keys.generation & 1 == 1
    }

    /// Returns the packet number that truncated numbers are decoded relative to: the largest
    /// authentic one, plus 1.
    #[must_use]
    pub fn expected(&self) -> u64 {
        self.expected
    }

    /// Raises [`Opener::expected`], to at most [`PacketNumber::MAX`]. 0-RTT and 1-RTT packets share
    /// a packet number space but have separate openers.
    pub fn set_expected(&mut self, number: u64) {
        self.expected = self.expected.max(number).min(PacketNumber::MAX);
    }

    /// Returns how many packets failed to open, under all keys of this opener.
    #[must_use]
    pub fn forged(&self) -> u64 {
        self.forged
    }

    /// Returns the cipher suite.
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

#[cfg(test)]
mod tests {
    use super::super::version::Version;
    use super::*;
    use crate::engine::Engine;

    /// Failed packets are counted across key updates, up to the limit.
    #[test]
    fn the_integrity_limit() {
        for (suite, limit) in [
            (Suite::Aes128Gcm, 1 << 52),
            (Suite::Aes256Gcm, 1 << 52),
            (Suite::ChaCha20Poly1305, 1 << 36),
        ] {
            let secret = Secret::new(suite, Version::V1, &[7; 48][..suite.secret_len()]);
            let mut opener = Opener::new(secret.unwrap());
            let fail = |opener: &mut Opener| {
                let mut batch = OpenBatch::new();
                let place = batch.feed(&[0x41; 40]);
                let slot = opener.push(&mut batch, place, 1).unwrap();
                Engine::portable().open(&mut batch);
                opener.take(&batch, slot).unwrap_err()
            };
            assert!(matches!(fail(&mut opener), OpenError::BadTag { .. }));
            assert_eq!(opener.forged(), 1);
            opener.forged = limit - 1;
            opener.update_keys(5);
            assert!(matches!(fail(&mut opener), OpenError::BadTag { .. }));
            assert!(matches!(
                fail(&mut opener),
                OpenError::IntegrityLimit { .. }
            ));
            assert_eq!(opener.forged(), limit + 1);
        }
    }
}
