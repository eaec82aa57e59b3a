//! From how many messages on the lanes of a vector are faster than one message after the other.

use crate::calibrate::{Clock, best_time};
use crate::isa::{self, Set};
use crate::kernels::sha256::{BLOCK_LEN, INITIAL_STATE, Lanes, SCALAR, Serial, Stream};

/// Which kernels hash, and from how many messages on lanes are faster.
#[derive(Clone, Copy)]
pub(crate) struct LaneThreshold {
    pub(super) set: Set,
    pub(super) serial: &'static Serial,
    /// The least number of messages for which the lanes of a vector are faster than one message
    /// after the other. More than there are lanes means never.
    pub(super) messages: usize,
}

impl LaneThreshold {
    /// The threshold of an instruction set. At first use both ways are timed, which takes 30 to
    /// 100 µs on a Zen 5 (November 2026), and the result is kept for the process. Without a
    /// clock, lanes are used when all of them are full, because vectors are wider than general
    /// registers; and never where one message has instructions of its own.
    #[inline]
    pub(crate) fn of(set: Set) -> Self {
        let serial = set.serial_hash()();
        let messages = set.hash_threshold().get(|| match isa::clock() {
            Some(clock) => measure(set, serial, clock),
            None => set.hash_lanes() + usize::from(!core::ptr::eq(serial, &raw const SCALAR)),
        });
        Self {
            set,
            serial,
            messages,
        }
    }

    /// Sets the threshold in place of the measurement.
    pub(crate) fn set(set: Set, messages: usize) {
        set.hash_threshold().set(messages);
    }

    pub(crate) fn messages(&self) -> usize {
        self.messages
    }

    /// How many of `messages` to hash in the lanes of a vector next: all lanes, fewer if there
    /// are fewer messages, or 0 to hash the messages one by one.
    #[inline]
    pub(super) fn in_lanes(&self, messages: usize) -> usize {
        let now = messages.min(self.set.hash_lanes());
        if now >= self.messages { now } else { 0 }
    }
}

/// Times both ways on the same blocks. A vector must be faster by an eighth at least, because
/// keeping its lanes busy costs more than is timed here.
#[cold]
pub(super) fn measure(set: Set, serial: &Serial, clock: Clock) -> usize {
    const BLOCKS: usize = 4;
    let text = [0_u8; BLOCKS * BLOCK_LEN];
    let stream = || Stream {
        state: INITIAL_STATE,
        next_block: text.as_ptr(),
    };
    // SAFETY: the text is `BLOCKS` blocks long, in all lanes; `set` proves that this CPU has
    // the instructions of its kernels, and `serial` belongs to it.
    let (vector, one, two) = unsafe {
        (
            best_time(
                clock,
                || Lanes::all(text.as_ptr(), BLOCKS),
                |lanes| _ = set.hash_run(lanes),
            ),
            best_time(clock, stream, |a| (serial.one)(a, BLOCKS)),
            best_time(
                clock,
                || (stream(), stream()),
                |(a, b)| (serial.two)(a, b, BLOCKS),
            ),
        )
    };
    let one_by_one = |n: usize| (n / 2) as u64 * two + (n % 2) as u64 * one;
    let is_slower = |&n: &usize| one_by_one(n) > vector + vector / 8;
    let lanes = set.hash_lanes();
    (1..=lanes).find(is_slower).unwrap_or(lanes + 1)
}
