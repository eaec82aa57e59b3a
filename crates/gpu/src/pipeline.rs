//! Transfers a batch to the device and back.
//!
//! The batch is split into pieces, which take turns in a few [`Transfer`]s, each with its own
//! stream: while one piece is copied to the device, another is computed and a third is copied back.
//! The CPU fills and empties the transfers. Instead of waiting it can process packets from the end
//! of the batch ([`Help`]); both work until nothing is left, and neither needs to know how fast the
//! other is.
//!
//! Results of a piece are passed to the caller only when all of it has come back. Whatever fails, a
//! packet is therefore either done, bytes and outcome, or unchanged, with the outcome that the
//! caller has set; and the caller can do the rest.

use crate::driver::Shared;
use crate::error::GpuError;
use crate::kernels::Op;
use crate::piece::{KeyEntries, MAX_PIECE, SLACK, Texts, bound, span};
use crate::timings::Timings;
use crate::transfer::Transfer;
use crate::work::{Bytes, DeviceWork, Help, check};
use core::ops::Range;
use packetlane_lanes::Job;
use std::collections::VecDeque;

/// How batches are split and transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipelineConfig {
    /// Number of concurrent streams.
    pub streams: usize,
    /// Maximum size of a piece, in bytes, up to 64 MiB; a longer packet is a piece of its own.
    /// Batches of a few pieces are split into smaller ones.
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

/// Minimum size of a piece, in bytes: smaller ones are not worth their launches.
const MIN_PIECE: usize = 1 << 20;

/// Maximum number of jobs in a unit of several jobs.
const UNIT_JOBS: usize = 32;

/// Maximum size of a unit of several jobs, in bytes of a piece.
const UNIT: usize = 64 << 10;

/// State that is kept from batch to batch.
pub(crate) struct Pipeline {
    pub(crate) config: PipelineConfig,
    transfers: Vec<Transfer>,
    key_entries: KeyEntries,
    /// The units that pieces are built from.
    units: Vec<Unit>,
}

/// Consecutive jobs. One pass over the jobs splits a batch into units, from which pieces are built.
#[derive(Clone)]
struct Unit {
    jobs: Range<usize>,
    /// How many of them run on the device.
    packets: usize,
    /// Their maximum size in a piece, in bytes.
    bytes: u64,
    /// From the first to the last byte of the arena that they read or write.
    span: Range<u64>,
    /// Whether none of them begins before the end of an earlier one.
    in_order: bool,
}

impl Unit {
    /// Builds a unit from some of a batch's jobs, each of which is passed to `check`.
    fn of(all: &[Job], jobs: Range<usize>, check: impl Fn(&Job)) -> Self {
        let (mut packets, mut bytes) = (0, 0);
        let (mut start, mut end) = (u64::MAX, 0);
        let mut in_order = true;
        for job in &all[jobs.clone()] {
            check(job);
            packets += usize::from(takes(job));
            bytes += bound(job);
            let span = span(job);
            in_order &= span.start >= end;
            start = start.min(span.start);
            end = end.max(span.end);
        }
        Self {
            jobs,
            packets,
            bytes,
            span: start..end,
            in_order,
        }
    }

    /// Merges this unit with the next one.
    fn join(&self, next: &Self) -> Self {
        Self {
            jobs: self.jobs.start..next.jobs.end,
            packets: self.packets + next.packets,
            bytes: self.bytes + next.bytes,
            span: self.span.start.min(next.span.start)..self.span.end.max(next.span.end),
            in_order: self.in_order && next.in_order && next.span.start >= self.span.end,
        }
    }

    /// Returns the maximum size of its transfer, in bytes.
    fn size(&self, pinned: bool) -> usize {
        match pinned {
            true => size(self.bytes.max(self.span.end - self.span.start)),
            false => size(self.bytes),
        }
    }
}

/// A batch in progress.
pub(crate) struct Run<'r> {
    driver: &'r Shared,
    op: Op,
    work: DeviceWork<'r>,
    help: Option<Help<'r>>,
    timed: bool,
    /// The ranges of a pinned arena that have come back complete, in order.
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

    fn is_pinned(&self) -> bool {
        matches!(self.work.bytes, Bytes::Pinned(..))
    }

    /// Returns the first piece of `units`, which must not be empty, and how many units it takes. A
    /// piece of one unit may be too large for the device: packets of a pinned arena that cannot be
    /// separated.
    fn piece(&self, units: &[Unit], target: usize) -> (Unit, usize) {
        let (mut piece, mut count) = (units[0].clone(), 1);
        for unit in &units[1..] {
            let joined = piece.join(unit);
            if joined.size(self.is_pinned()) > target {
                break;
            }
            (piece, count) = (joined, count + 1);
        }
        (piece, count)
    }
}

/// Maximum size of text and AAD of a packet that runs on the device, in bytes: the rest of a piece
/// has room for what else it needs.
const MAX_TEXT: u64 = (MAX_PIECE - (1 << 20)) as u64;

/// Whether a job runs on the device.
#[inline]
fn takes(job: &Job) -> bool {
    u64::from(job.text_len) + u64::from(job.aad_len) <= MAX_TEXT
}

/// Converts a number of bytes of host memory.
fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Leaves all transfers idle at the end of a batch, even if a caller's helper panics.
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
            units: Vec::new(),
        }
    }

    /// Frees all device memory and all page-locked memory.
    pub(crate) fn release(&mut self) {
        self.transfers.clear();
    }

    /// Runs all jobs that the device takes, and those that the CPU helps with. On an error, the
    /// results of all complete pieces have been passed to the caller.
    pub(crate) fn run(&mut self, mut run: Run<'_>) -> Result<Timings, GpuError> {
        let begin = std::time::Instant::now();
        let mut under_way = VecDeque::new();
        let ending = Ending(self);
        let mut done = ending.0.send_all(&mut run, &mut under_way);
        // After an error: pieces that were sent before may still come back.
        for transfer in under_way {
            done = done.and(run.receive(&mut ending.0.transfers[transfer]));
        }
        drop(ending);
        if let Bytes::Pinned(pinned, used) = &mut run.work.bytes {
            // After an error, the device may still write to the hidden half.
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
        let most = self.config.piece_bytes.saturating_sub(SLACK).min(UNIT);
        let (len, keys) = (run.work.bytes.get().len(), run.work.keys);
        let check = |job: &Job| check(len, keys, job);
        cut(run.work.jobs, check, most, run.is_pinned(), &mut self.units);
        let in_order = self.is_in_order();
        let streams = self.config.streams.max(1);
        self.transfers.truncate(streams);
        let target = self.piece_target(streams);
        let (mut next, mut end) = (0, self.units.len());
        let mut free = 0;
        loop {
            while under_way.len() < streams && next < end {
                let (piece, count) = run.piece(&self.units[next..end], target);
                next += count;
                if piece.packets == 0 || piece.size(run.is_pinned()) > MAX_PIECE - SLACK {
                    continue;
                }
                if self.transfers.len() <= free {
                    self.transfers.push(Transfer::new(run.driver)?);
                }
                under_way.push_back(free);
                let transfer = &mut self.transfers[free];
                free = (free + 1) % streams;
                run.send(transfer, &mut self.key_entries, piece, in_order)?;
            }
            let Some(&first) = under_way.front() else {
                return Ok(());
            };
            if let Some(help) = &mut run.help
                && next < end
                && !self.transfers[first].is_done()?
            {
                let to = self.units[end - 1].jobs.end;
                let mut bytes = 0;
                while next < end && bytes < help.bytes {
                    end -= 1;
                    bytes += size(self.units[end].bytes);
                }
                let from = self.units[end].jobs.start;
                (help.run)(run.work.jobs(from..to));
                run.timings.helped += to - from;
                continue;
            }
            run.receive(&mut self.transfers[first])?;
            under_way.pop_front();
        }
    }

    /// Whether no job begins before the end of an earlier one.
    fn is_in_order(&self) -> bool {
        let mut neighbours = self.units.windows(2);
        self.units.iter().all(|unit| unit.in_order)
            && neighbours.all(|units| units[0].span.end <= units[1].span.start)
    }

    /// Returns the maximum size of a piece's units, in bytes: small enough that copies, kernels and
    /// the CPU's own work overlap, large enough that each piece is worth its launches.
    fn piece_target(&self, streams: usize) -> usize {
        let total: u64 = self.units.iter().map(|unit| unit.bytes).sum();
        let share = size(total) / (2 * streams);
        let most = self.config.piece_bytes.clamp(1, MAX_PIECE);
        share.max(MIN_PIECE).min(most).saturating_sub(SLACK)
    }
}

/// Splits a batch into units of one job, or of at most `most` bytes. All jobs are passed to
/// `check`.
///
/// In a pinned arena a unit has its own range: other units lie before or after it. Jobs that
/// overlap in their ranges are therefore in one unit, however large it gets.
fn cut(all: &[Job], check: impl Fn(&Job), most: usize, pinned: bool, units: &mut Vec<Unit>) {
    units.clear();
    let mut add = |mut unit: Unit| {
        while pinned && let Some(before) = units.pop_if(|before| before.span.end > unit.span.start)
        {
            unit = before.join(&unit);
        }
        units.push(unit);
    };
    for start in (0..all.len()).step_by(UNIT_JOBS) {
        let jobs = start..all.len().min(start + UNIT_JOBS);
        let unit = Unit::of(all, jobs.clone(), &check);
        if unit.size(pinned) <= most {
            add(unit);
        } else {
            jobs.for_each(|job| add(Unit::of(all, job..job + 1, &check)));
        }
    }
}

impl Run<'_> {
    /// Sends a piece of a batch whose jobs are in order or not.
    fn send(
        &mut self,
        transfer: &mut Transfer,
        key_entries: &mut KeyEntries,
        unit: Unit,
        in_order: bool,
    ) -> Result<(), GpuError> {
        let work = &mut self.work;
        let range = size(unit.span.start)..size(unit.span.end);
        let (arena, texts) = match &mut work.bytes {
            Bytes::Pinned(pinned, _) => (Some(pinned.pointers()), Texts::Pinned(range)),
            // The range has no bytes of other pieces, and few that belong to no packet.
            Bytes::Plain(_) if in_order && range.len() <= size(unit.bytes) => {
                (None, Texts::Copied(range))
            }
            Bytes::Plain(_) => (None, Texts::Gathered),
        };
        let keys = work.keys.len();
        let piece = &mut transfer.piece;
        piece.plan(key_entries, keys, work.jobs, unit.jobs, texts, takes);
        let (piece, staging) = transfer.stage()?;
        let bytes = work.bytes.get();
        piece.write(key_entries, bytes, work.keys, work.jobs, staging);
        // SAFETY: a pinned arena's halves are of this driver (`Gpu::run` asks) and live as
        // long as the run, which ends when all transfers are idle. The spans of all jobs lie
        // within it (`send_all` asks), those of a piece within its range, and no packet of
        // another piece, nor one that the CPU does, reaches into that (`cut`).
        unsafe { transfer.start(self.op, arena, self.timed) }
    }

    /// Waits for a piece and passes its results to the caller.
    fn receive(&mut self, transfer: &mut Transfer) -> Result<(), GpuError> {
        let (op, work, whole) = (self.op, self.work.reborrow(), &mut self.whole);
        let DeviceWork {
            mut bytes,
            jobs,
            outcomes,
            ..
        } = work;
        transfer.finish(&mut self.timings, |piece, staging| {
            piece.take(op, staging, bytes.get(), jobs, takes, outcomes);
            whole.extend(piece.texts.pinned());
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(text: u32, text_len: u32) -> Job {
        Job {
            text,
            text_len,
            ..Job::default()
        }
    }

    /// Returns the jobs after which units are cut, for jobs with these spans and units as small as
    /// possible.
    fn cuts(spans: &[Range<u32>], pinned: bool) -> Vec<usize> {
        let jobs = spans
            .iter()
            .map(|span| job(span.start, span.end - span.start - 16));
        let mut units = Vec::new();
        cut(&jobs.collect::<Vec<_>>(), |_| (), 0, pinned, &mut units);
        units.into_iter().map(|unit| unit.jobs.end).collect()
    }

    #[test]
    fn no_packet_crosses_a_cut() {
        assert_eq!(cuts(&[], true), []);
        assert_eq!(cuts(&[5..29, 29..50, 55..90], true), [1, 2, 3]);
        // Out-of-order packets next to each other stay together.
        let swapped = [0..20, 40..60, 20..40, 60..80];
        assert_eq!(cuts(&swapped, true), [1, 3, 4]);
        // So does everything that one packet reaches back over.
        assert_eq!(cuts(&[20..40, 40..60, 60..80, 0..90], true), [4]);
        assert_eq!(cuts(&[0..45, 40..60, 60..80], true), [2, 3]);
        // If bytes are gathered, that does not matter.
        assert_eq!(cuts(&[0..45, 40..60], false), [1, 2]);
    }

    #[test]
    fn units_have_as_many_jobs_as_they_may() {
        let jobs: Vec<_> = (0..100).map(|number| job(100 * number, 80)).collect();
        let mut units = Vec::new();
        cut(&jobs, |_| (), UNIT, true, &mut units);
        let found: Vec<_> = units.iter().map(|unit| unit.jobs.clone()).collect();
        assert_eq!(found, [0..32, 32..64, 64..96, 96..100]);
        assert_eq!((units[1].packets, units[1].span.clone()), (32, 3200..6396));
        assert_eq!(units[1].bytes, 32 * bound(&jobs[0]));
    }

    #[test]
    fn the_order_is_known() {
        let in_order = |jobs: &[Job]| {
            let mut pipeline = Pipeline::new();
            cut(jobs, |_| (), UNIT, false, &mut pipeline.units);
            pipeline.is_in_order()
        };
        let jobs: Vec<_> = (0..100).map(|number| job(100 * number, 84)).collect();
        assert!(in_order(&jobs) && in_order(&[]));
        for place in [0, 31, 32, 98] {
            let mut jobs = jobs.clone();
            jobs[place].text_len += 1;
            assert!(!in_order(&jobs));
            jobs[place].text_len -= 1;
            jobs.swap(place, place + 1);
            assert!(!in_order(&jobs));
        }
    }
}
