//! A batch on its way over the device and back.
//!
//! The batch is cut into pieces, and the pieces take turns in a few [`Transfer`]s, each with
//! a stream of its own: while one piece is copied to the device, another is computed and a
//! third is copied back. The CPU fills and empties the transfers. Instead of waiting it can
//! take packets from the batch's other end ([`Help`]); so both work until nothing is left,
//! and neither has to know how fast the other is.
//!
//! A piece is handed out when all of it came back, and not before. So whatever fails, a
//! packet is either done, bytes and outcome, or unchanged, with its outcome as the caller
//! has set it; and the caller can do the rest.

use crate::driver::Shared;
use crate::error::GpuError;
use crate::kernels::Op;
use crate::piece::{KeyEntries, MAX_PIECE, SLACK, bound, span, takes_any};
use crate::timings::Timings;
use crate::transfer::Transfer;
use crate::work::{Bytes, DeviceWork, Help};
use core::ops::Range;
use packetlane_lanes::Job;
use std::collections::VecDeque;

/// How batches are cut and sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipelineConfig {
    /// In how many streams at once.
    pub streams: usize,
    /// In pieces of how many bytes at most, up to 64 MiB; a longer packet is a piece by
    /// itself. Batches of a few pieces are cut into smaller ones.
    pub piece_bytes: usize,
}

impl Default for PipelineConfig {
    fn default() -> Self {
        Self {
            streams: 4,
            piece_bytes: 8 << 20,
        }
    }
}

/// Smaller pieces are not worth their launches.
const MIN_PIECE: usize = 1 << 20;

/// What is kept from batch to batch.
pub(crate) struct Pipeline {
    pub(crate) config: PipelineConfig,
    transfers: Vec<Transfer>,
    key_entries: KeyEntries,
    /// Before which jobs the batch may be cut, and their number at the end.
    cuts: Vec<usize>,
}

/// A batch under way.
pub(crate) struct Run<'r> {
    driver: &'r Shared,
    op: Op,
    work: DeviceWork<'r>,
    help: Option<Help<'r>>,
    timed: bool,
    /// The ranges of a pinned arena that came back whole, in order.
    whole: Vec<Range<usize>>,
    timings: Timings,
}

impl<'r> Run<'r> {
    pub(crate) fn new(
        driver: &'r Shared,
        op: Op,
        work: DeviceWork<'r>,
        help: Option<Help<'r>>,
        timed: bool,
    ) -> Self {
        Self {
            driver,
            op,
            work,
            help,
            timed,
            whole: Vec::new(),
            timings: Timings::default(),
        }
    }

    /// Takes the first piece of what lies between two cuts. Returns the cut behind it.
    fn piece(&self, cuts: &[usize], from: usize, to: usize, target: usize) -> Cut {
        let pinned = matches!(self.work.bytes, Bytes::Pinned(..));
        let mut cut = Cut {
            next: from,
            packets: 0,
            span: None,
        };
        let mut taken = SLACK;
        while cut.next < to {
            let jobs = &self.work.jobs[cuts[cut.next]..cuts[cut.next + 1]];
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
            if most > MAX_PIECE {
                // Packets of a pinned arena that cannot be separated.
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
const MAX_TEXT: u64 = (MAX_PIECE - (1 << 20)) as u64;

/// Whether a job runs on the device.
#[inline]
fn takes(job: &Job) -> bool {
    takes_any(job) && u64::from(job.text_len) + u64::from(job.aad_len) <= MAX_TEXT
}

/// A number of bytes of host memory.
fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Leaves all transfers idle at the end of a batch, and where a caller's help panics too.
struct Ending<'p>(&'p mut Pipeline);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        for transfer in &mut self.0.transfers {
            transfer.abandon();
        }
    }
}

impl Pipeline {
    pub(crate) fn new() -> Self {
        Self {
            config: PipelineConfig::default(),
            transfers: Vec::new(),
            key_entries: KeyEntries::default(),
            cuts: Vec::new(),
        }
    }

    /// Gives back all memory of the device's and all that is page-locked.
    pub(crate) fn release(&mut self) {
        self.transfers.clear();
    }

    /// Runs all jobs that the device takes, and those that the CPU helps with. On an
    /// error, all that came back whole has been handed out.
    pub(crate) fn run(&mut self, mut run: Run<'_>) -> Result<Timings, GpuError> {
        let begin = std::time::Instant::now();
        let mut under_way = VecDeque::new();
        let ending = Ending(self);
        let mut done = ending.0.send_all(&mut run, &mut under_way);
        // After an error: what had been sent before may come back yet.
        for transfer in under_way {
            done = done.and(run.receive(&mut ending.0.transfers[transfer]));
        }
        drop(ending);
        if let Bytes::Pinned(pinned, used) = &mut run.work.bytes {
            // After an error, the half that the device writes may be written yet.
            pinned.merge(&run.whole, *used, done.is_ok());
        }
        run.timings.total = begin.elapsed().as_secs_f64();
        done.map(|()| run.timings)
    }

    fn send_all(
        &mut self,
        run: &mut Run<'_>,
        under_way: &mut VecDeque<usize>,
    ) -> Result<(), GpuError> {
        self.cut(run);
        let streams = self.config.streams.max(1);
        self.transfers.truncate(streams);
        let target = self.piece_target(run.work.jobs, streams);
        let (mut next, mut end) = (0, self.cuts.len() - 1);
        let mut free = 0;
        loop {
            while under_way.len() < streams && next < end {
                let cut = run.piece(&self.cuts, next, end, target);
                let jobs = self.cuts[next]..self.cuts[cut.next];
                next = cut.next;
                if cut.packets == 0 {
                    continue;
                }
                if self.transfers.len() <= free {
                    self.transfers.push(Transfer::new(run.driver)?);
                }
                under_way.push_back(free);
                let transfer = &mut self.transfers[free];
                free = (free + 1) % streams;
                run.send(transfer, &mut self.key_entries, jobs, cut.span)?;
            }
            let Some(&first) = under_way.front() else {
                return Ok(());
            };
            if let Some(help) = &mut run.help
                && next < end
                && !self.transfers[first].is_done()?
            {
                let to = self.cuts[end];
                let mut bytes = 0;
                while next < end && bytes < help.bytes {
                    end -= 1;
                    let jobs = &run.work.jobs[self.cuts[end]..self.cuts[end + 1]];
                    bytes += jobs
                        .iter()
                        .map(|job| job.text_len as usize + 64)
                        .sum::<usize>();
                }
                let from = self.cuts[end];
                (help.run)(run.work.jobs(from..to));
                run.timings.helped += to - from;
                continue;
            }
            run.receive(&mut self.transfers[first])?;
            under_way.pop_front();
        }
    }

    /// How large the pieces of a batch are: small enough that copies, kernels and the CPU's
    /// own work overlap, large enough that each is worth its launches.
    fn piece_target(&self, jobs: &[Job], streams: usize) -> usize {
        let total: u64 = jobs.iter().map(bound).sum();
        let share = size(total) / (2 * streams) + SLACK;
        let most = self.config.piece_bytes.clamp(1, MAX_PIECE);
        share.max(MIN_PIECE.min(most)).min(most)
    }

    /// Finds the jobs before which the batch may be cut. Where bytes are gathered, that is
    /// any. In a pinned arena what lies before a cut must end where what follows begins, so
    /// that each piece has a range of it to itself.
    fn cut(&mut self, run: &Run<'_>) {
        self.cuts.clear();
        if let Bytes::Plain(_) = run.work.bytes {
            self.cuts.extend(0..=run.work.jobs.len());
            return;
        }
        let jobs = run.work.jobs;
        cut_between(jobs.len(), |job| span(&jobs[job]), &mut self.cuts);
    }
}

/// Finds the jobs of `len` before which nothing reaches beyond where they begin, of jobs
/// whose bytes in the arena `span` returns: the first job, and `len` for the end, included.
/// Asks for at most three spans for each job.
fn cut_between(len: usize, span: impl Fn(usize) -> Range<u64>, cuts: &mut Vec<usize>) {
    let mut end = 0;
    for job in 0..len {
        let here = span(job);
        // A job that reaches back before a cut takes it away. Each cut goes at most once.
        while let Some(&last) = cuts.last()
            && here.start < span(last).start
        {
            cuts.pop();
        }
        if here.start >= end || cuts.is_empty() {
            cuts.push(job);
        }
        end = end.max(here.end);
    }
    if let Some(first) = cuts.first_mut() {
        *first = 0;
    }
    cuts.push(len);
}

impl Run<'_> {
    /// Sends a piece off.
    fn send(
        &mut self,
        transfer: &mut Transfer,
        key_entries: &mut KeyEntries,
        jobs: Range<usize>,
        range: Option<Range<usize>>,
    ) -> Result<(), GpuError> {
        let work = &mut self.work;
        let arena = match &mut work.bytes {
            Bytes::Plain(_) => None,
            Bytes::Pinned(pinned, _) => Some(pinned.pointers()),
        };
        let keys = work.secrets.keys.len();
        let piece = &mut transfer.piece;
        piece.plan(key_entries, keys, work.jobs, jobs, range, takes);
        let (piece, staging) = transfer.stage()?;
        let bytes = work.bytes.get();
        piece.write(key_entries, bytes, work.secrets, work.jobs, takes, staging);
        // SAFETY: a pinned arena's halves are of this driver (`Gpu::run` asks) and live as
        // long as the run, which ends when all transfers are idle. The spans of all jobs lie
        // within it (`Gpu::run` asks), those of a piece within its range, and no packet of
        // another piece, nor one that the CPU does, reaches into that (`Pipeline::cut`).
        unsafe { transfer.start(self.op, arena, self.timed) }
    }

    /// Waits for a piece and hands it out.
    fn receive(&mut self, transfer: &mut Transfer) -> Result<(), GpuError> {
        let (op, work, whole) = (self.op, self.work.reborrow(), &mut self.whole);
        let DeviceWork {
            mut bytes,
            jobs,
            outcomes,
            ..
        } = work;
        transfer.finish(&mut self.timings, |piece, staging| {
            piece.take(op, staging, bytes.get(), jobs, outcomes);
            whole.extend(piece.span.clone());
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    /// The cuts between jobs with these spans, and how many spans were asked for.
    fn cuts(spans: &[Range<u64>]) -> (Vec<usize>, usize) {
        let (asked, mut cuts) = (Cell::new(0), Vec::new());
        let span = |job: usize| {
            asked.set(asked.get() + 1);
            spans[job].clone()
        };
        cut_between(spans.len(), span, &mut cuts);
        (cuts, asked.get())
    }

    #[test]
    fn nothing_reaches_over_a_cut() {
        assert_eq!(cuts(&[]).0, [0]);
        assert_eq!(cuts(&[5..9, 9..20, 25..30]).0, [0, 1, 2, 3]);
        // Neighbours out of order stay together.
        assert_eq!(cuts(&[0..10, 20..30, 10..20, 30..40]).0, [0, 3, 4]);
        // So does all that one packet reaches back over.
        assert_eq!(cuts(&[10..20, 20..30, 30..40, 0..50]).0, [0, 4]);
        assert_eq!(cuts(&[0..25, 20..30, 30..40]).0, [0, 2, 3]);
    }

    #[test]
    fn the_steps_are_proportional_to_the_jobs() {
        let len = 10_000_u64;
        let in_order: Vec<_> = (0..len).map(|job| 10 * job..10 * job + 10).collect();
        let backwards: Vec<_> = in_order.iter().rev().cloned().collect();
        let mut last_reaches_back = in_order.clone();
        last_reaches_back[9_999].start = 0;
        let pairs_swapped: Vec<_> = (0..10_000).map(|job| in_order[job ^ 1].clone()).collect();
        for spans in [in_order, backwards, last_reaches_back, pairs_swapped] {
            let (_, asked) = cuts(&spans);
            assert!(asked <= 3 * spans.len(), "{asked} spans of {}", spans.len());
        }
    }
}
