//! Precomputed keystream of a session's next packets.
//!
//! A nonce is a counter, so the keystream of the next packets is known before their contents
//! are. A single short packet leaves most lanes idle; so the call that encrypts it computes
//! up to 32 blocks of keystream, and the session's next packets need no more than an XOR and
//! a Poly1305.
//!
//! Precomputed keystream is as secret as the key: there is at most
//! [`MAX_PRECOMPUTED_KEYSTREAM`] of it, it never reaches beyond a rekey, and what is used is
//! wiped.

use super::rekey::{REKEY_INTERVAL, nonce};
use alloc::boxed::Box;
use core::ops::Range;
use packetlane_lanes::{Backend, Block, Key};

/// The most memory that precomputed keystream takes for one direction, in bytes.
pub(super) const MAX_PRECOMPUTED_KEYSTREAM: usize = 2048;

/// The same in blocks: they fill two registers of AVX-512, which take little longer than one.
const MAX_BLOCKS: usize = MAX_PRECOMPUTED_KEYSTREAM / size_of::<Block>();

/// The most blocks that are precomputed of one packet: a call then serves two.
const MAX_PACKET_BLOCKS: usize = MAX_BLOCKS / 2;

/// How many blocks of keystream a packet with `text_len` bytes of text takes: one is for its tag.
#[inline]
fn blocks(text_len: usize) -> usize {
    1 + text_len.div_ceil(size_of::<Block>())
}

/// The blocks of one direction.
pub(super) struct PrecomputedKeystream {
    enabled: bool,
    /// No memory before the first use.
    blocks: Option<Box<[Block; MAX_BLOCKS]>>,
    /// How many blocks each packet has; the last one may have fewer.
    per_packet: u8,
    /// The blocks that are left. The next packet's come first.
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

    /// Turns it on or off. Off wipes all blocks and gives their memory back.
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

    /// How many blocks to have of a packet with `text_len` bytes of text, one of few; 0 if that
    /// does not pay.
    #[inline]
    pub(super) fn wanted(&self, backend: Backend, text_len: usize) -> usize {
        // A longer text fills lanes without it and wants two: the tag's, and the odd one that
        // the header byte makes. It wants none where Poly1305 is interleaved with ChaCha20's
        // rounds.
        match blocks(text_len) {
            _ if !self.enabled => 0,
            needed if needed > backend.kernels().max_precomputed_blocks() => 0,
            needed @ ..=MAX_PACKET_BLOCKS => needed,
            _ => 2,
        }
    }

    /// Computes the blocks of the packets from `number` of `epoch` on, `per_packet` of each,
    /// as if all were as long as the first. None may be left: so all that was computed before has been wiped.
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

    /// How many blocks are left.
    #[inline]
    pub(super) fn left(&self) -> usize {
        usize::from(self.end - self.next)
    }

    /// How many blocks each packet has.
    #[inline]
    pub(super) fn per_packet(&self) -> usize {
        self.per_packet.into()
    }

    /// Where the first `count` of the blocks that are left lie; there may be fewer.
    #[inline]
    fn range(&self, count: usize) -> Range<usize> {
        let next = usize::from(self.next);
        next..usize::from(self.end).min(next + count)
    }

    /// The first `count` of the blocks that are left, or fewer.
    #[inline]
    pub(super) fn blocks(&self, count: usize) -> &[Block] {
        match &self.blocks {
            Some(blocks) => &blocks[self.range(count)],
            None => &[],
        }
    }

    /// Wipes the first `count` of the blocks that are left: they have been used, or will not be.
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

    /// Wipes all blocks: those that are left, because what was used has been wiped.
    pub(super) fn wipe(&mut self) {
        self.consume(self.left());
    }
}
