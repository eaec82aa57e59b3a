//! The walk of a batch over the device.
//!
//! The batch is cut into pieces, and the pieces go round in a few slots, each with a
//! stream of its own: while one is copied to the device, another is computed and a third
//! copied back. The CPU fills and empties slots, and where it would wait, it can take
//! packets from the batch's other end ([`Help`]): so both work until nothing is left, and
//! neither has to know how fast the other is.
//!
//! What came back is handed out when its piece is whole, and not before. So whatever fails,
//! a packet is either done, bytes and outcome, or as it was, with its outcome as the caller
//! has set it; and the caller can do the rest.

use crate::driver::Shared;
use crate::kernels::Op;
use crate::measure::Timings;
use crate::piece::{Finder, SLACK, bound, span, takes_any};
use crate::pinned::Pinned;
use crate::slot::Slot;
use crate::{GpuError, Plan};
use core::ops::Range;
use packetlane_lanes::{Job, Outcome, Secrets};
use std::collections::VecDeque;

/// The most that a piece takes, in bytes.
pub(crate) const MOST_PIECE: usize = 64 << 20;

/// Smaller pieces are not worth their launches.
const LEAST_PIECE: usize = 1 << 20;

/// The bytes that the jobs of a batch refer to.
#[derive(Debug)]
pub enum Bytes<'b> {
    /// Any memory. Packets are copied to page-locked memory and from there.
    Plain(&'b mut [u8]),
    /// A page-locked arena, of which bytes `..used` mean something. The device copies from
    /// and to it. What lies behind `used` may have changed thereafter.
    Pinned(&'b mut Pinned, usize),
}

impl Bytes<'_> {
    fn get(&mut self) -> &mut [u8] {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Pinned(pinned, used) => &mut pinned[..*used],
        }
    }
}

/// Does these jobs of the batch, whatever they are, in its bytes.
pub type Helper<'h> = dyn FnMut(&mut [u8], &[Job], &mut [Outcome]) + 'h;

/// What the CPU does while it would wait for the device.
pub struct Help<'h> {
    /// About how many bytes of packets it takes at a time.
    pub bytes: usize,
    /// Does them.
    pub run: &'h mut Helper<'h>,
}

/// What is kept from batch to batch.
pub(crate) struct Pipeline {
    pub(crate) plan: Plan,
    slots: Vec<Slot>,
    finder: Finder,
    /// Before which jobs the batch may be cut, and their number at the end.
    cuts: Vec<usize>,
}

/// A batch under way.
pub(crate) struct Flight<'f, 'b> {
    pub(crate) driver: &'f Shared,
    pub(crate) op: Op,
    pub(crate) bytes: Bytes<'b>,
    pub(crate) secrets: Secrets<'f>,
    pub(crate) jobs: &'f [Job],
    pub(crate) outcomes: &'f mut [Outcome],
    pub(crate) help: Option<Help<'f>>,
    pub(crate) timed: bool,
    /// The ranges of a pinned arena that came back whole, in order.
    whole: Vec<Range<usize>>,
    timings: Timings,
}

impl<'f, 'b> Flight<'f, 'b> {
    pub(crate) fn new(
        driver: &'f Shared,
        op: Op,
        bytes: Bytes<'b>,
        (secrets, jobs, outcomes): (Secrets<'f>, &'f [Job], &'f mut [Outcome]),
        help: Option<Help<'f>>,
        timed: bool,
    ) -> Self {
        Self {
            driver,
            op,
            bytes,
            secrets,
            jobs,
            outcomes,
            help,
            timed,
            whole: Vec::new(),
            timings: Timings::default(),
        }
    }

    /// Takes the first piece of what lies between two cuts. Returns the cut behind it.
    fn piece(&self, cuts: &[usize], from: usize, to: usize, target: usize) -> Cut {
        let pinned = matches!(self.bytes, Bytes::Pinned(..));
        let mut cut = Cut {
            next: from,
            packets: 0,
            span: None,
        };
        let mut taken = SLACK;
        while cut.next < to {
            let jobs = &self.jobs[cuts[cut.next]..cuts[cut.next + 1]];
            let (mut bytes, mut packets, mut range) = (0, 0, cut.span.clone());
            for job in jobs {
                if takes(job) {
                    bytes += bound(job);
                    packets += 1;
                }
                if pinned {
                    let span = span(job);
                    let (start, end) = (size(span.start), size(span.end));
                    range = match range {
                        Some(range) => Some(range.start.min(start)..range.end.max(end)),
                        None => Some(start..end),
                    };
                }
            }
            let bytes = size(bytes).saturating_add(taken);
            let most = bytes.max(range.as_ref().map_or(0, Range::len));
            if cut.next > from && most > target {
                break;
            }
            cut.next += 1;
            if most > MOST_PIECE {
                // Packets of a pinned arena that cannot be had apart.
                cut.packets = 0;
                break;
            }
            taken = bytes;
            cut.packets += packets;
            cut.span = range;
        }
        cut
    }
}

/// Where a piece ends.
struct Cut {
    /// The index of the cut behind it.
    next: usize,
    /// How many packets run on the device; without one there is no piece.
    packets: usize,
    /// From the first to the last byte of its packets, in a pinned arena.
    span: Option<Range<usize>>,
}

/// The most bytes of text and AAD that a packet has which runs on the device: what it takes
/// beside them fits in what is left of a piece.
const MOST_TEXT: u64 = (MOST_PIECE - (1 << 20)) as u64;

/// Whether a job runs on the device.
#[inline]
fn takes(job: &Job) -> bool {
    takes_any(job) && u64::from(job.text_len) + u64::from(job.aad_len) <= MOST_TEXT
}

/// A number of bytes of host memory.
fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Leaves all slots idle at the end of a batch, and where a caller's help panics too.
struct Ending<'p>(&'p mut Pipeline);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        for slot in &mut self.0.slots {
            slot.abandon();
        }
    }
}

impl Pipeline {
    pub(crate) fn new() -> Self {
        Self {
            plan: Plan::default(),
            slots: Vec::new(),
            finder: Finder::default(),
            cuts: Vec::new(),
        }
    }

    /// Gives back all memory of the device's and all that is page-locked.
    pub(crate) fn release(&mut self) {
        self.slots.clear();
    }

    /// Runs all jobs that the device takes, and those that the CPU helps with. On an
    /// error, all that came back whole has been handed out.
    pub(crate) fn run(&mut self, mut flight: Flight<'_, '_>) -> Result<Timings, GpuError> {
        let begin = std::time::Instant::now();
        let mut flying = VecDeque::new();
        let ending = Ending(self);
        let mut done = ending.0.fly(&mut flight, &mut flying);
        // After an error: what had been sent before may come back yet.
        for slot in flying {
            done = done.and(flight.land(&mut ending.0.slots[slot]));
        }
        drop(ending);
        if let Bytes::Pinned(pinned, used) = &mut flight.bytes {
            // After an error, the half that the device writes may be written yet.
            pinned.merge(&flight.whole, *used, done.is_ok());
        }
        flight.timings.total = begin.elapsed().as_secs_f64();
        done.map(|()| flight.timings)
    }

    fn fly(
        &mut self,
        flight: &mut Flight<'_, '_>,
        flying: &mut VecDeque<usize>,
    ) -> Result<(), GpuError> {
        self.cut(flight);
        let streams = self.plan.streams.max(1);
        self.slots.truncate(streams);
        let target = self.piece_target(flight.jobs, streams);
        let (mut next, mut end) = (0, self.cuts.len() - 1);
        let mut free = 0;
        loop {
            while flying.len() < streams && next < end {
                let cut = flight.piece(&self.cuts, next, end, target);
                let jobs = self.cuts[next]..self.cuts[cut.next];
                next = cut.next;
                if cut.packets == 0 {
                    continue;
                }
                if self.slots.len() <= free {
                    self.slots.push(Slot::new(flight.driver)?);
                }
                flying.push_back(free);
                let slot = &mut self.slots[free];
                free = (free + 1) % streams;
                flight.launch(slot, &mut self.finder, jobs, cut.span)?;
            }
            let Some(&first) = flying.front() else {
                return Ok(());
            };
            if let Some(help) = &mut flight.help
                && next < end
                && !self.slots[first].is_done()?
            {
                let to = self.cuts[end];
                let mut bytes = 0;
                while next < end && bytes < help.bytes {
                    end -= 1;
                    let jobs = &flight.jobs[self.cuts[end]..self.cuts[end + 1]];
                    bytes += jobs
                        .iter()
                        .map(|job| job.text_len as usize + 64)
                        .sum::<usize>();
                }
                let from = self.cuts[end];
                let outcomes = &mut flight.outcomes[from..to];
                (help.run)(flight.bytes.get(), &flight.jobs[from..to], outcomes);
                flight.timings.helped += to - from;
                continue;
            }
            flight.land(&mut self.slots[first])?;
            flying.pop_front();
        }
    }

    /// How large the pieces of a batch are: small enough that copies, kernels and the CPU's
    /// own work overlap, large enough that each is worth its launches.
    fn piece_target(&self, jobs: &[Job], streams: usize) -> usize {
        let total: u64 = jobs.iter().map(bound).sum();
        let share = size(total) / (2 * streams) + SLACK;
        let most = self.plan.piece_bytes.clamp(1, MOST_PIECE);
        share.max(LEAST_PIECE.min(most)).min(most)
    }

    /// Finds the jobs before which the batch may be cut. Where bytes are gathered, that is
    /// any. In a pinned arena what lies before a cut must end where what follows begins, so
    /// that each piece has a range of it to itself.
    fn cut(&mut self, flight: &Flight<'_, '_>) {
        self.cuts.clear();
        if let Bytes::Plain(_) = flight.bytes {
            self.cuts.extend(0..=flight.jobs.len());
            return;
        }
        let spans = || flight.jobs.iter().map(span);
        let mut end = 0;
        for (job, span) in spans().enumerate() {
            while let Some(&last) = self.cuts.last()
                && span.start < spans().nth(last).expect("a job").start
            {
                self.cuts.pop();
            }
            if span.start >= end || self.cuts.is_empty() {
                self.cuts.push(job);
            }
            end = end.max(span.end);
        }
        if let Some(first) = self.cuts.first_mut() {
            *first = 0;
        }
        self.cuts.push(flight.jobs.len());
    }
}

impl Flight<'_, '_> {
    /// Sends a piece off.
    fn launch(
        &mut self,
        slot: &mut Slot,
        finder: &mut Finder,
        jobs: Range<usize>,
        range: Option<Range<usize>>,
    ) -> Result<(), GpuError> {
        let arena = match &mut self.bytes {
            Bytes::Plain(_) => None,
            Bytes::Pinned(pinned, _) => Some(pinned.pointers()),
        };
        let keys = self.secrets.keys.len();
        slot.piece.plan(finder, keys, self.jobs, jobs, range, takes);
        let (piece, staging) = slot.stage()?;
        let bytes = self.bytes.get();
        piece.write(finder, bytes, self.secrets, self.jobs, takes, staging);
        // SAFETY: a pinned arena's halves are of this driver (`Gpu::run` asks) and live as
        // long as the flight, which ends when all slots are idle. The spans of all jobs lie
        // within it (`Gpu::run` asks), those of a piece within its range, and no packet of
        // another piece, nor one that the CPU does, reaches into that (`Pipeline::cut`).
        unsafe { slot.start(self.op, arena, self.timed) }
    }

    /// Waits for a piece and hands it out.
    fn land(&mut self, slot: &mut Slot) -> Result<(), GpuError> {
        let bytes = self.bytes.get();
        let (op, jobs, outcomes) = (self.op, self.jobs, &mut *self.outcomes);
        let whole = &mut self.whole;
        slot.finish(&mut self.timings, |piece, staging| {
            piece.take(op, staging, bytes, jobs, outcomes);
            whole.extend(piece.span.clone());
        })
    }
}

/// The first jobs, from number `from` on, that have not run: neighbours, as many as there
/// are. What is left to the CPU after a batch has been on the device.
#[must_use]
pub fn pending(outcomes: &[Outcome], from: usize) -> Option<Range<usize>> {
    let is_pending = |outcome: &Outcome| *outcome == Outcome::Pending;
    let start = from + outcomes[from..].iter().position(is_pending)?;
    let rest = &outcomes[start..];
    let len = rest.iter().position(|outcome| !is_pending(outcome));
    Some(start..start + len.unwrap_or(rest.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pending_comes_in_runs() {
        let ranges = |text: &str| {
            let outcome = |letter| match letter {
                '.' => Outcome::Pending,
                _ => Outcome::Sealed,
            };
            let outcomes: Vec<Outcome> = text.chars().map(outcome).collect();
            let mut ranges = Vec::new();
            while let Some(range) = pending(
                &outcomes,
                ranges.last().map_or(0, |last: &(_, usize)| last.1),
            ) {
                ranges.push((range.start, range.end));
            }
            ranges
        };
        assert_eq!(ranges(""), []);
        assert_eq!(ranges("x"), []);
        assert_eq!(ranges("..."), [(0, 3)]);
        assert_eq!(ranges(".x..xx."), [(0, 1), (2, 4), (6, 7)]);
        assert_eq!(ranges("x..x"), [(1, 3)]);
    }
}
