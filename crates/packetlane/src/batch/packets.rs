//! Adds packets of any protocol with ChaCha20-Poly1305 to a batch, and takes them from it.

use super::layout::{AddError, PacketLayout, Received};
use super::{Batch, OpenBatch, SealBatch};
use crate::arena::{Owner, Slot, SlotError, index};
use crate::copy::copy;
use core::ops::Range;
use packetlane_lanes::{Job, Outcome};

impl<Direction> Batch<Direction> {
    /// Returns the index of the packet's key.
    #[inline]
    fn key(&self, layout: &PacketLayout) -> Result<u32, AddError> {
        layout.key.get(&self.arena).ok_or(AddError::NoKey)
    }

    #[inline]
    fn add(&mut self, bytes: Range<usize>, key: u32, layout: PacketLayout) -> Slot {
        let PacketLayout {
            nonce, aad, text, ..
        } = layout;
        let packet = self.jobs.len();
        self.add_job(Job {
            text: index(bytes.start + text.start),
            text_len: index(text.len()),
            aad: index(bytes.start + aad.start),
            aad_len: index(aad.len()),
            key: key as usize,
            nonce,
        });
        let owner = Owner::of_key(key);
        self.arena.slot(owner, bytes, packet..packet + 1)
    }
}

impl SealBatch {
    /// Adds a packet of `wire_len` bytes to seal. Returns its slot, and its bytes for the caller to
    /// write: header, AAD and plaintext where `layout` places them. The bytes hold data of earlier
    /// turns; all of them except the tag must be overwritten. [`Batch::wire`] returns the sealed
    /// packet.
    ///
    /// # Errors
    ///
    /// See [`AddError`]. Nothing is added then.
    #[inline]
    pub fn add_to_seal(
        &mut self,
        wire_len: usize,
        layout: PacketLayout,
    ) -> Result<(Slot, &mut [u8]), AddError> {
        layout.check(wire_len)?;
        let key = self.key(&layout)?;
        if !self.arena.fits(wire_len) {
            return Err(AddError::BatchFull);
        }
        let start = self.arena.take(wire_len);
        let bytes = start..start + wire_len;
        let slot = self.add(bytes.clone(), key, layout);
        Ok((slot, &mut self.arena.bytes_mut()[bytes]))
    }

    /// Returns the sealed packets of `slot`, ready to send.
    ///
    /// # Errors
    ///
    /// [`SlotError::NotSealed`] if one of them has not been sealed, or [`SlotError::Stale`].
    #[inline]
    pub fn wire(&self, slot: &Slot) -> Result<&[u8], SlotError> {
        self.arena.check(slot.turn)?;
        // No early exit, so that the compiler can vectorise.
        let sealed = |all, outcome: &Outcome| all & (*outcome == Outcome::Sealed);
        let packets = slot.packets.clone();
        if packets.end <= self.done && self.outcomes[packets].iter().fold(true, sealed) {
            Ok(&self.arena.bytes()[slot.bytes.clone()])
        } else {
            Err(SlotError::NotSealed)
        }
    }
}

impl OpenBatch {
    /// Returns room for `len` bytes from a socket, at the end of the arena. Afterwards,
    /// [`Batch::commit`] or [`Inbound::receive`](crate::bip324::Inbound::receive) takes the bytes
    /// that the socket wrote; the rest stays free. The room holds bytes of earlier turns, which the
    /// socket overwrites.
    ///
    /// # Panics
    ///
    /// If the arena would exceed [`Batch::MAX_BYTES`].
    #[inline]
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        self.arena.room(len)
    }

    /// Takes the first `len` bytes of the last [`Batch::room`], which a socket has written.
    ///
    /// # Panics
    ///
    /// If `len` exceeds the length of that room, or the room has been taken or overwritten since.
    #[inline]
    pub fn commit(&mut self, len: usize) -> Received {
        let start = self.arena.commit(len);
        let turn = self.arena.turn();
        Received {
            bytes: start..start + len,
            turn,
        }
    }

    /// Like [`Batch::commit`], for bytes in the caller's own buffer.
    ///
    /// # Panics
    ///
    /// As for [`Batch::room`].
    pub fn feed(&mut self, bytes: &[u8]) -> Received {
        copy(self.arena.room(bytes.len()), bytes);
        self.commit(bytes.len())
    }

    /// Returns received bytes, still encrypted, so that a protocol can read its header.
    ///
    /// # Errors
    ///
    /// [`SlotError::Stale`].
    #[inline]
    pub fn received_bytes(&self, received: &Received) -> Result<&[u8], SlotError> {
        self.arena.check(received.turn)?;
        Ok(&self.arena.bytes()[received.bytes.clone()])
    }

    /// Adds a packet to open: all of `received`. [`Batch::opened`] returns its text.
    ///
    /// # Errors
    ///
    /// See [`AddError`]. Nothing is added then, and the received bytes are dropped.
    #[inline]
    pub fn add_to_open(
        &mut self,
        received: Received,
        layout: PacketLayout,
    ) -> Result<Slot, AddError> {
        layout.check(received.len())?;
        let key = self.key(&layout)?;
        if self.arena.check(received.turn).is_err() {
            return Err(AddError::Stale);
        }
        Ok(self.add(received.bytes, key, layout))
    }

    /// Returns the text of an opened packet.
    ///
    /// # Errors
    ///
    /// [`SlotError::BadTag`]: the text stays encrypted and is not returned.
    /// [`SlotError::NotOpened`], [`SlotError::Stale`], [`SlotError::SeveralPackets`].
    #[inline]
    pub fn opened(&self, slot: &Slot) -> Result<&[u8], SlotError> {
        self.arena.check(slot.turn)?;
        let packet = slot.packets.start;
        if slot.packets.len() != 1 {
            return Err(SlotError::SeveralPackets);
        }
        match self.outcome(packet) {
            Outcome::Authentic => Ok(&self.arena.bytes()[self.text(packet)]),
            Outcome::BadTag => Err(SlotError::BadTag),
            Outcome::Pending | Outcome::Sealed => Err(SlotError::NotOpened),
        }
    }
}
