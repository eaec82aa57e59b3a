//! When the packets of a turn run: each when it is added, or all with the batch.

use crate::engine::cpu::Cpu;
use packetlane_lanes::{Backend, Block};

/// How many bytes of a turn count for what is expected of the next ones: one large message is not
/// usual.
const COUNTED_BYTES: usize = 16 * 1024;

/// The longest text that runs when it is added, in bytes, if the engine has threads or a GPU. A longer one is
/// left to them.
const MAX_NOW: usize = 63 * size_of::<Block>();

/// When packets that a session adds to a batch run. What became of them shows after the engine's call all
/// the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Each when it is added, if it is not too long: the turn has so few that lanes would be idle, which
    /// compute keystream of the session's next packets instead.
    Now,
    /// When they are added, from where their contents lie: these are long, and are not copied first. For
    /// packets to seal.
    FromSource,
    /// With all others, by the engine.
    WithBatch,
}

/// By which part of the difference what is usual follows the last turn. It is small, because each change of plan
/// wipes precomputed keystream: one turn with a long packet should not make one.
const FOLLOWS: usize = 32;

/// What turns usually hold, times [`FOLLOWS`].
#[derive(Default)]
pub(super) struct Usual {
    /// Packets of the turns before that had any.
    len: usize,
    /// Bytes, likewise.
    bytes: usize,
}

impl Usual {
    /// A turn of `len` packets, at least one, and `bytes` bytes has ended.
    pub(super) fn follow(&mut self, len: usize, bytes: usize) {
        let follow = |usual: usize, last: usize| usual - usual / FOLLOWS + last;
        self.len = follow(self.len, len);
        self.bytes = follow(self.bytes, bytes.min(COUNTED_BYTES));
    }

    /// How many packets a turn will hold that has `len`, if it is like those before.
    #[inline]
    fn expected_len(&self, len: usize) -> usize {
        (self.len / FOLLOWS).max(len)
    }

    /// When packets run on `cpu` that a session is about to add: `count` of them, whose texts have
    /// about `text_len` bytes in all, to `len` packets, none of which is pending.
    #[inline(always)]
    pub(super) fn plan(&self, cpu: Cpu, (count, text_len): (usize, usize), len: usize) -> Plan {
        let kernels = cpu.backend.kernels();
        let out_of_place = || cpu.is_alone() && kernels.is_faster_out_of_place(count, text_len);
        // Threads and a GPU help with a long one.
        let is_now = count > 1 || text_len <= MAX_NOW || cpu.is_alone() && !out_of_place();
        if is_now && self.is_small(cpu.backend, len + count) {
            return Plan::Now;
        }
        match out_of_place() {
            true => Plan::FromSource,
            false => Plan::WithBatch,
        }
    }

    /// Whether a turn that has `len` packets will hold so few, if it is like those before, that each is
    /// run faster alone; see [`Kernels::is_small_turn`](packetlane_lanes::Kernels::is_small_turn).
    #[inline(always)]
    fn is_small(&self, backend: Backend, len: usize) -> bool {
        let packets = self.expected_len(len);
        packets <= 2 || {
            // Of each packet one for its tag, and at least one for its text.
            let of_texts = self.bytes / FOLLOWS / size_of::<Block>();
            let blocks = packets + packets.max(of_texts);
            backend.kernels().is_small_turn(packets, blocks)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_turn_is_expected_to_hold() {
        let mut usual = Usual::default();
        let turn = |usual: &mut Usual, packets: usize| {
            usual.follow(packets, 100 * packets);
            (usual.expected_len(0), usual.bytes / FOLLOWS)
        };
        // A part of the difference.
        assert_eq!(turn(&mut usual, 64), (2, 200));
        assert_eq!(turn(&mut usual, 64), (3, 393));
        for packets in [100, 3, 2] {
            for _ in 0..500 {
                turn(&mut usual, packets);
            }
            assert_eq!(turn(&mut usual, packets), (packets, 100 * packets));
        }
        // More than usual, and so much that it does not count.
        assert_eq!(usual.expected_len(4), 4);
        usual.follow(3, 3 << 20);
        assert!(usual.bytes / FOLLOWS < COUNTED_BYTES);
    }
}
