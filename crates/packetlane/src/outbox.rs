//! The send queue of one connection: packets of this turn, and bytes of earlier turns that its
//! socket has not accepted.

use crate::arena::{Slot, SlotError};
use crate::batch::SealBatch;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
#[cfg(feature = "std")]
use arrayvec::ArrayVec;
#[cfg(feature = "std")]
use std::io::{self, IoSlice};

/// Maximum number of pieces in one vectored write.
#[cfg(feature = "std")]
const MAX_SLICES: usize = 32;

/// Kept bytes are appended to the previous piece up to this length, in bytes.
const MAX_JOINED_PIECE: usize = 16 * 1024;

/// The send queue of one connection, in order: packets in the batch of this turn, and bytes of its
/// own that the socket has not accepted yet. It has no socket.
///
/// In each turn: [`Outbox::push`] the slots of the connection's packets, seal the batch, and
/// [`Outbox::write`] them directly from the batch. Packets of other sessions may lie between them.
///
/// ```
/// # use packetlane::bip324::{PacketKind, Role, Session, SessionKeys};
/// use packetlane::{Engine, Outbox, SealBatch};
/// use std::io::Write;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = Engine::detect()?;
/// # let keys = SessionKeys::derive(&[1; 32], [0; 4]);
/// # let mut session = Session::from_keys(engine, &keys, Role::Initiator);
///
/// let (mut batch, mut outbox) = (SealBatch::new(), Outbox::new());
/// outbox.push(session.outbound.push(&mut batch, PacketKind::Genuine, b"hello")?);
/// engine.seal(&mut batch);
/// // A socket that accepts 10 bytes and then no more.
/// let mut socket = [0; 10];
/// let mut room = &mut socket[..];
/// outbox.write(&batch, |pieces| match room.write_vectored(pieces)? {
///     0 => Err(std::io::ErrorKind::WouldBlock.into()),
///     written => Ok(written),
/// })?;
/// // The rest is kept: the batch may be cleared.
/// batch.clear();
/// assert_eq!(outbox.len(), 25 - 10);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Outbox {
    /// The packets of this turn, if nothing else is queued. The common case, which needs no list.
    packets: Option<Slot>,
    /// The queue otherwise. Empty if there are `packets`.
    pieces: VecDeque<Piece>,
    /// How many bytes of the packets, or of the first piece, have been written.
    written: usize,
    /// Number of queued bytes.
    len: usize,
}

/// A part of the queue.
#[derive(Debug)]
enum Piece {
    /// Packets in the batch of this turn.
    Packets(Slot),
    /// Bytes kept by the outbox.
    Kept(Vec<u8>),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Packets(slot) => slot.wire_len(),
            Self::Kept(bytes) => bytes.len(),
        }
    }

    fn bytes<'a>(&'a self, batch: &'a SealBatch) -> Result<&'a [u8], SlotError> {
        match self {
            Self::Packets(slot) => batch.wire(slot),
            Self::Kept(bytes) => Ok(bytes),
        }
    }
}

impl Outbox {
    /// Creates an empty outbox.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            packets: None,
            pieces: VecDeque::new(),
            written: 0,
            len: 0,
        }
    }

    /// Returns the number of queued bytes, for back pressure. If a peer does not read, the outbox
    /// grows without limit unless the caller stops answering.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Queues packets of this turn.
    #[inline]
    pub fn push(&mut self, slot: Slot) {
        // A slot without packets.
        if slot.wire_len() == 0 {
            return;
        }
        let is_first = self.len == 0;
        self.len += slot.wire_len();
        if is_first {
            self.packets = Some(slot);
        } else {
            self.push_to_list(slot);
        }
    }

    fn push_to_list(&mut self, slot: Slot) {
        let last = match (&mut self.packets, self.pieces.back_mut()) {
            (Some(last), _) | (None, Some(Piece::Packets(last))) => Some(last),
            _ => None,
        };
        if let Some(last) = last
            && let Some(both) = last.join(&slot)
        {
            *last = both;
            return;
        }
        self.begin_list();
        self.pieces.push_back(Piece::Packets(slot));
    }

    /// Moves the packets to the list, so that something can be queued after them.
    fn begin_list(&mut self) {
        self.pieces.extend(self.packets.take().map(Piece::Packets));
    }

    /// Queues bytes that are in no batch: those of a handshake
    /// ([`Handshake::take_output`](crate::bip324::Handshake::take_output)).
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.len += bytes.len();
        self.begin_list();
        match self.pieces.back_mut() {
            Some(Piece::Kept(last)) if last.len() < MAX_JOINED_PIECE => {
                last.extend_from_slice(bytes)
            }
            _ => self.pieces.push_back(Piece::Kept(bytes.to_vec())),
        }
    }

    /// Writes the queue with `write`, which is given the pieces in order and returns how many bytes
    /// it wrote: `|pieces| socket.write_vectored(pieces)`. Calls it until the queue is empty or it
    /// returns [`io::ErrorKind::WouldBlock`]. Anything left is copied, so that the batch may be
    /// cleared.
    ///
    /// # Errors
    ///
    /// Errors of `write`, except `WouldBlock` and `Interrupted`. [`io::ErrorKind::WriteZero`] if it
    /// wrote nothing. [`io::ErrorKind::Other`] with a [`SlotError`] if the batch has not been
    /// sealed, or was cleared before its packets were written or kept; the connection is then
    /// unusable.
    #[cfg(feature = "std")]
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    #[inline]
    pub fn write(
        &mut self,
        batch: &SealBatch,
        mut write: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<()> {
        while !self.is_empty() {
            let result = if self.pieces.len() <= 1 {
                write(&[IoSlice::new(self.front(batch).map_err(io::Error::other)?)])
            } else {
                write(&self.first_pieces(batch).map_err(io::Error::other)?)
            };
            match result {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.written(written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return self.keep(batch).map_err(io::Error::other);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the first of several pieces.
    // Outlined: most connections have one piece.
    #[cfg(feature = "std")]
    #[inline(never)]
    fn first_pieces<'a>(
        &'a self,
        batch: &'a SealBatch,
    ) -> Result<ArrayVec<IoSlice<'a>, MAX_SLICES>, SlotError> {
        let mut skip = self.written;
        let pieces = self.pieces.iter().take(MAX_SLICES);
        let slices = pieces.map(|piece| {
            let bytes = &piece.bytes(batch)?[std::mem::take(&mut skip)..];
            Ok(IoSlice::new(bytes))
        });
        slices.collect()
    }

    /// Returns the first queued bytes, for a program that writes them itself and then calls
    /// [`Outbox::written`]. Empty if nothing is queued.
    ///
    /// # Errors
    ///
    /// [`SlotError::NotSealed`] if the batch has not been sealed, or [`SlotError::Stale`] if it was
    /// cleared before its packets were written or kept.
    #[inline]
    pub fn front<'a>(&'a self, batch: &'a SealBatch) -> Result<&'a [u8], SlotError> {
        match (&self.packets, self.pieces.front()) {
            (Some(slot), _) => Ok(&batch.wire(slot)?[self.written..]),
            (None, Some(piece)) => Ok(&piece.bytes(batch)?[self.written..]),
            (None, None) => Ok(&[]),
        }
    }

    /// Removes the first `len` bytes, which have been written.
    #[inline]
    pub fn written(&mut self, len: usize) {
        let len = len.min(self.len);
        self.len -= len;
        self.written += len;
        if self.packets.is_some() {
            if self.len == 0 {
                self.packets = None;
                self.written = 0;
            }
            return;
        }
        while let Some(piece) = self.pieces.front()
            && piece.len() <= self.written
        {
            self.written -= piece.len();
            self.pieces.pop_front();
        }
    }

    /// Copies queued packets out of the batch, so that it may be cleared. Only needed for a
    /// connection that is not written to in a turn; [`Outbox::write`] does it otherwise.
    ///
    /// # Errors
    ///
    /// As for [`Outbox::front`]. Nothing changes then.
    pub fn keep(&mut self, batch: &SealBatch) -> Result<(), SlotError> {
        self.begin_list();
        let in_batch = |piece: &Piece| matches!(piece, Piece::Packets(_));
        let Some(before) = self.pieces.iter().position(in_batch) else {
            return Ok(());
        };
        // Checked first, so that an error changes nothing.
        let mut pieces = self.pieces.iter();
        pieces.try_for_each(|piece| piece.bytes(batch).map(drop))?;
        let mut skip = 0;
        if before == 0 {
            // The first piece loses the part that was written.
            skip = core::mem::take(&mut self.written);
        }
        let to_keep: Vec<_> = self.pieces.drain(before..).collect();
        for piece in to_keep {
            let bytes = &piece.bytes(batch)?[skip..];
            self.len -= bytes.len();
            self.push_bytes(bytes);
            skip = 0;
        }
        Ok(())
    }
}
