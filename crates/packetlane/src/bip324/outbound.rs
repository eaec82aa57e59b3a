//! The sending half of a session: it writes packets into a batch, which an engine seals for
//! all sessions at once.

use super::cipher::Cipher;
use super::error::SealError;
use super::packet::{HEADER_LEN, LENGTH_LEN, MAX_CONTENTS_LEN, OVERHEAD, PacketKind};
use crate::arena::{Owner, Slot};
use crate::batch::SealBatch;
use crate::bitcoin::message::MessageType;
use crate::copy::copy;
use alloc::vec::Vec;
use core::ops::Range;
use packetlane_lanes::Backend;

/// The sending half of a session.
///
/// Every packet that it adds to a batch must be sealed and sent, in order: the
/// counters of both sides go on with it.
#[derive(Debug)]
pub struct Outbound {
    cipher: Cipher,
    /// Whose its slots are.
    owner: Owner,
}

impl Outbound {
    pub(super) fn new(cipher: Cipher) -> Self {
        let owner = Owner::new();
        Self { cipher, owner }
    }

    /// Whether keystream of the next packets is precomputed; see
    /// [`Cipher::set_precomputed_keystream`].
    pub fn set_precomputed_keystream(&mut self, on: bool) {
        self.cipher.set_precomputed_keystream(on);
    }

    /// Asks for the memory that the next packet needs, without waiting for it. A program that
    /// visits thousands of sessions in a turn, whose memory is in no cache by then, should
    /// call it some eight sessions before it uses one; and [`prefetch`](crate::prefetch) for this
    /// value itself some eight before that, unless they are visited as they lie in memory. Large
    /// pages help it too, on virtual machines most: with glibc, start it with
    /// `GLIBC_TUNABLES=glibc.malloc.hugetlb=1`.
    #[inline]
    pub fn prefetch(&self) {
        self.cipher.prefetch();
    }

    /// Adds a packet with `contents` to the batch. [`SealBatch::wire`] gives its
    /// bytes when the batch has been sealed.
    ///
    /// # Errors
    ///
    /// See [`SealError`]. Nothing is added and nothing counted then.
    #[inline]
    pub fn push(
        &mut self,
        batch: &mut SealBatch,
        kind: PacketKind,
        contents: &[u8],
    ) -> Result<Slot, SealError> {
        let start = self.add(batch, kind, &[], contents)?;
        Ok(self.slot(batch, start..start + contents.len() + OVERHEAD))
    }

    /// Adds a packet with contents of `contents_len` bytes to the batch, for the
    /// caller to write into the slice that is returned, so that a message is
    /// serialised where its packet will lie. The slice shows bytes of earlier
    /// turns: all of it must be written.
    ///
    /// # Errors
    ///
    /// See [`SealError`]. Nothing is added and nothing counted then.
    #[inline]
    pub fn reserve<'b>(
        &mut self,
        batch: &'b mut SealBatch,
        kind: PacketKind,
        contents_len: usize,
    ) -> Result<(Slot, &'b mut [u8]), SealError> {
        let (start, front) = self.place(batch, kind, contents_len)?;
        self.cipher.add_job(batch, start, contents_len)?;
        let slot = self.slot(batch, start..start + contents_len + OVERHEAD);
        Ok((slot, write_front(batch, start, front, contents_len)))
    }

    /// The slot of the packet that was added last, which lies in `wire`.
    #[inline]
    fn slot(&self, batch: &SealBatch, wire: Range<usize>) -> Slot {
        let packets = batch.len();
        batch.arena().slot(self.owner, wire, packets - 1..packets)
    }

    /// Adds a packet whose contents are `beginning`, then `rest`. Returns where it begins.
    fn add(
        &mut self,
        batch: &mut SealBatch,
        kind: PacketKind,
        beginning: &[u8],
        rest: &[u8],
    ) -> Result<usize, SealError> {
        let contents_len = rest.len().saturating_add(beginning.len());
        let (start, front) = self.place(batch, kind, contents_len)?;
        if self.cipher.waits(batch, contents_len) {
            self.cipher.add_job(batch, start, contents_len)?;
            // At last: the call of `memcpy` leaves nothing in registers.
            write(batch, start, front, beginning, rest);
        } else {
            write(batch, start, front, beginning, rest);
            self.cipher
                .add_done_job(Backend::seal, batch, start, contents_len)?;
        }
        Ok(start)
    }

    /// Takes the place of a packet in the arena. Returns where it begins, and what belongs there: its length
    /// and header.
    #[inline]
    fn place(
        &mut self,
        batch: &mut SealBatch,
        kind: PacketKind,
        contents_len: usize,
    ) -> Result<(usize, Front), SealError> {
        if contents_len > MAX_CONTENTS_LEN {
            return Err(SealError::TooLong {
                length: contents_len,
            });
        }
        let wire_len = contents_len + OVERHEAD;
        if !batch.arena().fits(wire_len) {
            return Err(SealError::BatchFull);
        }
        let length = self.cipher.encrypt_length(contents_len)?;
        // In one number, and not byte by byte.
        let front = length | u32::from(kind.header()) << (8 * LENGTH_LEN);
        Ok((batch.arena_mut().take(wire_len), front.to_le_bytes()))
    }

    /// Adds a packet with a message to the batch: its type in the shortest form that every
    /// peer understands, then its payload.
    ///
    /// # Errors
    ///
    /// See [`SealError`]. Nothing is added and nothing counted then.
    ///
    /// ```
    /// # use packetlane::bip324::{Role, Session, SessionKeys};
    /// use packetlane::bitcoin::message::MessageType;
    /// use packetlane::{Engine, SealBatch};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let engine = Engine::detect()?;
    /// # let keys = SessionKeys::derive(&[1; 32], [0; 4]);
    /// # let mut session = Session::from_keys(engine, &keys, Role::Initiator);
    ///
    /// const PING: MessageType = MessageType::literal("ping");
    /// let mut batch = SealBatch::new();
    /// let nonce = 7_u64.to_le_bytes();
    /// let slot = session.outbound.push_message(&mut batch, PING, &nonce)?;
    /// assert_eq!(slot.wire_len(), 20 + 1 + 8);
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn push_message(
        &mut self,
        batch: &mut SealBatch,
        message_type: MessageType,
        payload: &[u8],
    ) -> Result<Slot, SealError> {
        let encoded = message_type.encoded();
        let start = self.add(batch, PacketKind::Genuine, &encoded, payload)?;
        let wire_len = encoded.len() + payload.len() + OVERHEAD;
        Ok(self.slot(batch, start..start + wire_len))
    }

    /// As [`Outbound::push_message`], with a payload of `payload_len` bytes for the caller
    /// to write into the slice that is returned: all of it must be written, as with
    /// [`Outbound::reserve`].
    ///
    /// # Errors
    ///
    /// See [`SealError`]. Nothing is added and nothing counted then.
    #[inline]
    pub fn reserve_message<'b>(
        &mut self,
        batch: &'b mut SealBatch,
        message_type: MessageType,
        payload_len: usize,
    ) -> Result<(Slot, &'b mut [u8]), SealError> {
        let encoded = message_type.encoded();
        let contents_len = payload_len.saturating_add(encoded.len());
        let (slot, contents) = self.reserve(batch, PacketKind::Genuine, contents_len)?;
        let (place, payload) = contents.split_at_mut(encoded.len());
        place.copy_from_slice(&encoded);
        Ok((slot, payload))
    }

    /// Appends one packet to `out`, sealed, without a batch.
    ///
    /// # Errors
    ///
    /// See [`SealError`]. Nothing is appended then.
    pub fn seal(
        &mut self,
        kind: PacketKind,
        contents: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), SealError> {
        self.cipher.seal(kind, &[], contents, out)
    }
}

/// What comes before the contents of a packet.
type Front = [u8; LENGTH_LEN + HEADER_LEN];

/// Writes the front of the packet that begins at `start`. Returns the place of its contents.
#[inline(always)]
fn write_front(
    batch: &mut SealBatch,
    start: usize,
    front: Front,
    contents_len: usize,
) -> &mut [u8] {
    let packet = &mut batch.arena_mut().bytes_mut()[start..][..front.len() + contents_len];
    let (place, contents) = packet.split_at_mut(front.len());
    place.copy_from_slice(&front);
    contents
}

/// Writes the packet that begins at `start`, whose contents are `beginning`, then `rest`.
#[inline(always)]
fn write(batch: &mut SealBatch, start: usize, front: Front, beginning: &[u8], rest: &[u8]) {
    let contents = write_front(batch, start, front, beginning.len() + rest.len());
    let (place, rest_place) = contents.split_at_mut(beginning.len());
    // Not a call of `memcpy` for nothing.
    if !beginning.is_empty() {
        place.copy_from_slice(beginning);
    }
    copy(rest_place, rest);
}
