//! The number of messages for which the lanes of a vector are faster than one message after the
//! other.

use crate::calibrate::{Clock, best_time};
use crate::isa::{self, Set};
use crate::kernels::sha256::{BLOCK_LEN, INITIAL_STATE, Lanes, SCALAR, Serial, Stream};

/// Which kernels hash, and the number of messages for which lanes are faster.
#[derive(Clone, Copy)]
pub(crate) struct LaneThreshold {
    pub(super) set: Set,
    pub(super) serial: &'static Serial,
    /// Minimum number of messages for which lanes are faster than one message after the other. A
    /// value above the number of lanes means never.
    pub(super) messages: usize,
    /// Minimum number for which all lanes are faster than half of them followed by the rest. Equal
    /// to `messages` if that is more than half of the lanes, or was set.
    pub(super) all_lanes: usize,
}

impl LaneThreshold {
    /// Returns the threshold of an instruction set. On first use all choices are timed, which takes
    /// 30 to 150 µs on a Zen 5 (November 2026), and the result is kept for the process. Without a
    /// clock, lanes are used when all of them are full, because vectors are wider than general
    /// registers; and never if the CPU has instructions for single messages.
    #[inline]
    pub(crate) fn of(set: Set) -> Self {
        let serial = set.serial_hash()();
        let find = || match isa::clock() {
            Some(clock) => measure(set, serial, clock),
            None => {
                let is_scalar = core::ptr::eq(serial, &raw const SCALAR);
                let messages = set.hash_lanes() + usize::from(!is_scalar);
                Self {
                    set,
                    serial,
                    messages,
                    all_lanes: messages,
                }
            }
        };
        let messages = set.hash_threshold().get(|| {
            let found = find();
            set.all_hash_lanes_threshold().set(found.all_lanes);
            found.messages
        });
        // Another thread may see one of the numbers and not yet the other.
        let all_lanes = set.all_hash_lanes_threshold().get(|| find().all_lanes);
        Self {
            set,
            serial,
            messages,
            all_lanes,
        }
    }

    /// Sets the threshold instead of measuring it.
    pub(crate) fn set(set: Set, messages: usize) {
        set.all_hash_lanes_threshold().set(messages);
        set.hash_threshold().set(messages);
    }

    pub(crate) fn messages(&self) -> usize {
        self.messages
    }

    /// Returns how many of `messages` to hash in the lanes of a vector next: all lanes, fewer if
    /// there are fewer messages, or 0 to hash the messages one by one.
    #[inline]
    pub(super) fn in_lanes(&self, messages: usize) -> usize {
        let all = messages.min(self.set.hash_lanes());
        let half = messages.min(self.set.half_hash_lanes());
        if all >= self.all_lanes {
            all
        } else if half >= self.messages {
            half
        } else {
            0
        }
    }

    /// Returns how many lanes hash that many messages.
    #[inline]
    pub(super) fn width(&self, messages: usize) -> usize {
        let half = self.set.half_hash_lanes();
        if messages <= half {
            half
        } else {
            self.set.hash_lanes()
        }
    }
}

/// Times all choices on the same blocks. A vector must be faster by at least an eighth, because
/// keeping its lanes busy costs more than is timed here.
#[cold]
pub(super) fn measure(set: Set, serial: &'static Serial, clock: Clock) -> LaneThreshold {
    const BLOCKS: usize = 4;
    let text = [0_u8; BLOCKS * BLOCK_LEN];
    let stream = || Stream {
        state: INITIAL_STATE,
        next_block: text.as_ptr(),
    };
    let in_lanes = |width| {
        best_time(
            clock,
            || Lanes::all(text.as_ptr(), BLOCKS),
            // SAFETY: the text is `BLOCKS` blocks long, in all lanes.
            |lanes| _ = unsafe { set.hash_run(lanes, width) },
        )
    };
    let (lanes, half_lanes) = (set.hash_lanes(), set.half_hash_lanes());
    let vector = in_lanes(lanes);
    let half = if half_lanes < lanes {
        in_lanes(half_lanes)
    } else {
        vector
    };
    // SAFETY: the text is `BLOCKS` blocks long, and `serial` belongs to this CPU.
    let (one, two) = unsafe {
        (
            best_time(clock, stream, |a| (serial.one)(a, BLOCKS)),
            best_time(
                clock,
                || (stream(), stream()),
                |(a, b)| (serial.two)(a, b, BLOCKS),
            ),
        )
    };
    let one_by_one = |n: usize| (n / 2) as u64 * two + (n % 2) as u64 * one;
    let worth = |time: u64| time + time / 8;
    let messages = (1..=half_lanes).find(|&n| one_by_one(n) > worth(half));
    // For more messages than half of the lanes: half of the lanes, then the rest.
    let halved = |n: usize| match messages {
        Some(least) if n - half_lanes >= least => 2 * half,
        Some(_) => half + one_by_one(n - half_lanes),
        None => one_by_one(n),
    };
    let all_lanes = (half_lanes + 1..=lanes).find(|&n| halved(n) > worth(vector));
    let all_lanes = all_lanes.unwrap_or(lanes + 1);
    LaneThreshold {
        set,
        serial,
        messages: messages.unwrap_or(all_lanes),
        all_lanes,
    }
}
