//! What of a message is yet to be hashed.

use crate::kernels::sha256::BLOCK_LEN;
use core::mem::MaybeUninit;

/// A place for a block, or two with the padding.
pub(super) type Staged = MaybeUninit<[u8; 2 * BLOCK_LEN]>;

/// What of a message is yet to be hashed.
#[derive(Clone, Copy)]
pub(super) struct Rest<'a, const N: usize> {
    /// Which message it is.
    pub(super) index: usize,
    pieces: [&'a [u8]; N],
    /// How many bytes the pieces have.
    len: usize,
    /// How many bytes the message had.
    message_len: usize,
    /// Whether its padding has come.
    ended: bool,
}

impl<'a, const N: usize> Rest<'a, N> {
    #[inline(always)]
    pub(super) fn new(messages: &[[&'a [u8]; N]], index: usize) -> Self {
        let pieces = messages[index];
        let mut len = 0;
        for piece in pieces {
            len += piece.len();
        }
        Self {
            index,
            pieces,
            len,
            message_len: len,
            ended: false,
        }
    }

    /// The next blocks of the message, padded as section 5.1.1 has it, and their
    /// number: those that lie one behind the other, or what has been put together in
    /// `staged`. None behind its end.
    #[inline(always)]
    pub(super) fn next(&mut self, staged: &mut Staged) -> Option<(*const u8, usize)> {
        if self.len < BLOCK_LEN {
            return self.end(staged);
        }
        for piece in &mut self.pieces {
            if piece.len() >= BLOCK_LEN {
                let blocks = piece.len() / BLOCK_LEN;
                let (run, rest) = piece.split_at(BLOCK_LEN * blocks);
                *piece = rest;
                self.len -= run.len();
                return Some((run.as_ptr(), blocks));
            }
            if !piece.is_empty() {
                break;
            }
        }
        let staged = staged.write([0; _]);
        self.take(&mut staged[..BLOCK_LEN]);
        Some((staged.as_ptr(), 1))
    }

    /// The message's end, less than a block, and the padding.
    #[inline(always)]
    fn end(&mut self, staged: &mut Staged) -> Option<(*const u8, usize)> {
        if self.ended {
            return None;
        }
        self.ended = true;
        let len = self.len;
        let bits = 8 * self.message_len as u64;
        let blocks = if len < BLOCK_LEN - 8 { 1 } else { 2 };
        let staged = staged.write([0; _]);
        self.take(&mut staged[..len]);
        staged[len] = 0x80;
        staged[BLOCK_LEN * blocks - 8..BLOCK_LEN * blocks].copy_from_slice(&bits.to_be_bytes());
        Some((staged.as_ptr(), blocks))
    }

    /// Moves the next bytes of the message to `place`; there are as many.
    #[inline(always)]
    fn take(&mut self, mut place: &mut [u8]) {
        self.len -= place.len();
        for piece in &mut self.pieces {
            let (now, later) = piece.split_at(piece.len().min(place.len()));
            let (filled, free) = place.split_at_mut(now.len());
            filled.copy_from_slice(now);
            (*piece, place) = (later, free);
        }
    }
}
