//! Precomputed keystream of a session's next packets.
//!
//! The nonce is a counter, so the keystream of the next packets can be computed before their
//! contents exist. A single short packet leaves most lanes idle. The call that encrypts it
//! therefore computes up to 32 blocks of keystream, and the session's next packets need only an XOR
//! and a Poly1305.
//!
//! Precomputed keystream is as secret as the key: there are at most [`MAX_PRECOMPUTED_KEYSTREAM`]
//! bytes of it, it never crosses a rekey, and used blocks are wiped.

use super::rekey::{REKEY_INTERVAL, nonce};
use alloc::boxed::Box;
use core::ops::Range;
use packetlane_lanes::{Backend, Block, Key};

/// Maximum precomputed keystream for one direction, in bytes.
pub(super) const MAX_PRECOMPUTED_KEYSTREAM: usize = 2048;

/// The same, in blocks: they fill two AVX-512 registers per state word, which take little longer
/// than one.
const MAX_BLOCKS: usize = MAX_PRECOMPUTED_KEYSTREAM / size_of::<Block>();

/// Maximum number of blocks precomputed for one packet: a call then serves at least two packets.
const MAX_PACKET_BLOCKS: usize = MAX_BLOCKS / 2;

/// Number of keystream blocks for a packet with `text_len` bytes of text, including the block for
/// its tag.
#[inline]
fn blocks(text_len: usize) -> usize {
    1 + text_len.div_ceil(size_of::<Block>())
}

/// The precomputed blocks of one direction.
pub(super) struct PrecomputedKeystream {
    enabled: bool,
    /// Allocated on first use.
    blocks: Option<Box<[Block; MAX_BLOCKS]>>,
    /// Number of blocks per packet; the last packet may have fewer.
    per_packet: u8,
    /// The range of the blocks that remain. The next packet's come first.
    next: u8,
    end: u8,
}

impl PrecomputedKeystream {
    pub(super) fn new() -> Self {
        Self {
            enabled: true,
            blocks: None,
            per_packet: 0,
            next: 0,
            end: 0,
        }
    }

    /// Turns it on or off. Turning it off wipes all blocks and frees their memory.
    pub(super) fn enable(&mut self, on: bool) {
        self.enabled = on;
        if !on {
            self.wipe();
            self.blocks = None;
        }
    }

    /// Whether it is on.
    #[inline]
    pub(super) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Returns how many blocks to precompute for a packet with `text_len` bytes of text in a small
    /// turn; 0 if it is not worthwhile.
    #[inline]
    pub(super) fn blocks_to_precompute(&self, backend: Backend, text_len: usize) -> usize {
        // A longer text fills the lanes without precomputation and needs only two blocks: the
        // tag's, and the odd one that the header byte adds. It needs none where Poly1305 is
        // interleaved with the rounds of ChaCha20.
        match blocks(text_len) {
            _ if !self.enabled => 0,
            needed if needed > backend.kernels().max_precomputed_blocks() => 0,
            needed @ ..=MAX_PACKET_BLOCKS => needed,
            _ => 2,
        }
    }

    /// Computes `per_packet` blocks for each packet from `number` of `epoch` on, as if all were as
    /// long as the first. No blocks may remain; so everything computed before has been wiped.
    #[cold]
    #[allow(clippy::cast_possible_truncation, reason = "there are 32 blocks")]
    pub(super) fn compute(
        &mut self,
        backend: Backend,
        key: &Key,
        (mut number, epoch): (u32, u64),
        per_packet: usize,
    ) {
        debug_assert_eq!(self.left(), 0);
        let left = (REKEY_INTERVAL - number) as usize * per_packet;
        let end = left.min(MAX_BLOCKS);
        let mut of = [(0, [0; 12]); MAX_BLOCKS];
        let mut next = (0, nonce(number, epoch));
        for place in &mut of[..end] {
            *place = next;
            next.0 += 1;
            if next.0 == per_packet as u32 {
                number += 1;
                next = (0, nonce(number, epoch));
            }
        }
        (self.per_packet, self.next, self.end) = (per_packet as u8, 0, end as u8);
        let blocks = self
            .blocks
            .get_or_insert_with(|| Box::new([[0; size_of::<Block>()]; MAX_BLOCKS]));
        backend
            .kernels()
            .precompute_keystream(key, &of[..end], &mut blocks[..end]);
    }

    /// Returns the number of blocks that remain.
    #[inline]
    pub(super) fn left(&self) -> usize {
        usize::from(self.end - self.next)
    }

    /// Returns the number of blocks per packet.
    #[inline]
    pub(super) fn per_packet(&self) -> usize {
        self.per_packet.into()
    }

    /// Returns the range of the first `count` remaining blocks, or of all if there are fewer.
    #[inline]
    fn range(&self, count: usize) -> Range<usize> {
        let next = usize::from(self.next);
        next..usize::from(self.end).min(next + count)
    }

    /// Returns the first `count` remaining blocks, or all if there are fewer.
    #[inline]
    pub(super) fn blocks(&self, count: usize) -> &[Block] {
        match &self.blocks {
            Some(blocks) => &blocks[self.range(count)],
            None => &[],
        }
    }

    /// Wipes the first `count` remaining blocks: they were used, or will not be.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "there are 32 blocks")]
    pub(super) fn consume(&mut self, count: usize) {
        let used = self.range(count);
        if let Some(blocks) = &mut self.blocks {
            self.next = used.end as u8;
            for used in &mut blocks[used] {
                *used = [0; size_of::<Block>()];
                zeroize::optimization_barrier(used);
            }
        }
    }

    /// Wipes all remaining blocks. Used ones have been wiped already.
    pub(super) fn wipe(&mut self) {
        self.consume(self.left());
    }
}
