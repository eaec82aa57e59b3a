//! Decides when the packets of a turn run: each when it is added, or all together.

use crate::engine::cpu::Cpu;
use packetlane_lanes::{Backend, Block};

/// How many bytes of a turn count towards the average, so that one large message does not dominate
/// it.
const COUNTED_BYTES: usize = 16 * 1024;

/// The longest text, in bytes, that runs when it is added if the engine has threads or a GPU.
/// Longer ones are left to them.
const MAX_IMMEDIATE_TEXT: usize = 63 * size_of::<Block>();

/// When packets that a session adds to a batch run. In all cases the outcome becomes visible after
/// the engine's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Each when it is added, unless it is too long. The turn has so few packets that lanes would
    /// be idle; they compute keystream of the session's next packets instead.
    Immediate,
    /// When they are added, directly from their source: they are long, and copying them first would
    /// cost time. For sealing only.
    FromSource,
    /// With all others, when the engine is called.
    Deferred,
}

/// The weight of the average over past turns: each turn moves it by 1/32 of the difference. Large,
/// because every change of plan wipes precomputed keystream, and one turn with a long packet should
/// not cause one.
const WINDOW: usize = 32;

/// Averages over past turns, times [`WINDOW`].
#[derive(Default)]
pub(super) struct RecentTurns {
    /// Packets per turn that had any.
    len: usize,
    /// Bytes per such turn.
    bytes: usize,
}

impl RecentTurns {
    /// Adds a finished turn of `len` packets, at least one, and `bytes` bytes to the averages.
    pub(super) fn update(&mut self, len: usize, bytes: usize) {
        let update = |average: usize, last: usize| average - average / WINDOW + last;
        self.len = update(self.len, len);
        self.bytes = update(self.bytes, bytes.min(COUNTED_BYTES));
    }

    /// Returns how many packets a turn that already has `len` will hold, if it is like the past
    /// ones.
    #[inline]
    fn expected_len(&self, len: usize) -> usize {
        (self.len / WINDOW).max(len)
    }

    /// Decides when packets run on `cpu` that a session is about to add: `count` packets, whose
    /// texts have about `text_len` bytes in total. The batch has `len` packets, none of them
    /// pending.
    #[inline(always)]
    pub(super) fn plan(&self, cpu: Cpu, (count, text_len): (usize, usize), len: usize) -> Plan {
        let kernels = cpu.backend.kernels();
        let out_of_place = || cpu.is_alone() && kernels.is_faster_out_of_place(count, text_len);
        // Threads and a GPU speed up a long one.
        let is_immediate =
            count > 1 || text_len <= MAX_IMMEDIATE_TEXT || cpu.is_alone() && !out_of_place();
        if is_immediate && self.is_small(cpu.backend, len + count) {
            return Plan::Immediate;
        }
        match out_of_place() {
            true => Plan::FromSource,
            false => Plan::Deferred,
        }
    }

    /// Whether a turn that has `len` packets will stay so small, if it is like the past ones, that
    /// running each packet on its own is faster; see
    /// [`Kernels::is_small_turn`](packetlane_lanes::Kernels::is_small_turn).
    #[inline(always)]
    fn is_small(&self, backend: Backend, len: usize) -> bool {
        let packets = self.expected_len(len);
        packets <= 2 || {
            // Each packet has one block for its tag and at least one for its text.
            let of_texts = self.bytes / WINDOW / size_of::<Block>();
            let blocks = packets + packets.max(of_texts);
            backend.kernels().is_small_turn(packets, blocks)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_follow_the_turns() {
        let mut average = RecentTurns::default();
        let turn = |average: &mut RecentTurns, packets: usize| {
            average.update(packets, 100 * packets);
            (average.expected_len(0), average.bytes / WINDOW)
        };
        // Each turn moves the average by a fraction of the difference.
        assert_eq!(turn(&mut average, 64), (2, 200));
        assert_eq!(turn(&mut average, 64), (3, 393));
        for packets in [100, 3, 2] {
            for _ in 0..500 {
                turn(&mut average, packets);
            }
            assert_eq!(turn(&mut average, packets), (packets, 100 * packets));
        }
        // A larger turn than the average, and one whose bytes count only in part.
        assert_eq!(average.expected_len(4), 4);
        average.update(3, 3 << 20);
        assert!(average.bytes / WINDOW < COUNTED_BYTES);
    }
}
