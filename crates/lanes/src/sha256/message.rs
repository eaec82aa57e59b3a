//! The part of a message that is not hashed yet.

use crate::kernels::sha256::BLOCK_LEN;
use core::mem::MaybeUninit;

/// A buffer for one block, or for two with the padding.
pub(super) type Staged = MaybeUninit<[u8; 2 * BLOCK_LEN]>;

/// The part of a message that is not hashed yet.
#[derive(Clone, Copy)]
pub(super) struct Rest<'a, const N: usize> {
    /// Index of the message.
    pub(super) index: usize,
    pieces: [&'a [u8]; N],
    /// How many bytes are left in the pieces.
    len: usize,
    /// Length of the message, in bytes.
    message_len: usize,
    /// Whether the padding has been returned.
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

    /// Returns the next blocks of the padded message (FIPS 180-4, section 5.1.1), and their number:
    /// consecutive blocks of the message, or blocks copied to `staged`. `None` after its end.
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
        self.copy_next(&mut staged[..BLOCK_LEN]);
        Some((staged.as_ptr(), 1))
    }

    /// Returns the end of the message, less than a block, with the padding.
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
        self.copy_next(&mut staged[..len]);
        staged[len] = 0x80;
        staged[BLOCK_LEN * blocks - 8..BLOCK_LEN * blocks].copy_from_slice(&bits.to_be_bytes());
        Some((staged.as_ptr(), blocks))
    }

    /// Copies the next bytes of the message to `destination`; there must be enough left.
    #[inline(always)]
    fn copy_next(&mut self, mut destination: &mut [u8]) {
        self.len -= destination.len();
        for piece in &mut self.pieces {
            let (now, later) = piece.split_at(piece.len().min(destination.len()));
            let (filled, free) = destination.split_at_mut(now.len());
            filled.copy_from_slice(now);
            (*piece, destination) = (later, free);
        }
    }
}
