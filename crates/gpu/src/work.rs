//! The work of a device: the [`Work`] of a CPU, with bytes that may be page-locked.

use crate::piece::span;
use crate::pinned::Pinned;
use core::ops::Range;
use packetlane_lanes::{Job, Key, Outcome, Work};

/// The bytes that the jobs of a batch refer to.
#[derive(Debug)]
pub enum Bytes<'b> {
    /// Ordinary memory. Packets are copied through page-locked memory.
    Plain(&'b mut [u8]),
    /// A page-locked arena, of which only bytes `..used` hold data. The device accesses it
    /// directly. Bytes after `used` may change.
    Pinned(&'b mut Pinned, usize),
}

impl Bytes<'_> {
    /// Returns the bytes that hold data, for the CPU.
    pub(crate) fn get(&mut self) -> &mut [u8] {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Pinned(pinned, used) => &mut pinned[..*used],
        }
    }

    fn reborrow(&mut self) -> Bytes<'_> {
        match self {
            Self::Plain(bytes) => Bytes::Plain(bytes),
            Self::Pinned(pinned, used) => Bytes::Pinned(pinned, *used),
        }
    }
}

/// A list of jobs with everything needed to run them on a device: like [`Work`], with bytes that
/// may be page-locked.
pub struct DeviceWork<'w> {
    /// The buffer that the jobs' offsets refer to.
    pub bytes: Bytes<'w>,
    /// The keys.
    pub keys: &'w [Key],
    /// The jobs.
    pub jobs: &'w [Job],
    /// Receives the outcome of each job: `outcomes[i]` belongs to `jobs[i]`. Must be at least as
    /// long as `jobs`.
    pub outcomes: &'w mut [Outcome],
}

impl<'w> From<Work<'w>> for DeviceWork<'w> {
    fn from(work: Work<'w>) -> Self {
        Self {
            bytes: Bytes::Plain(work.bytes),
            keys: work.keys,
            jobs: work.jobs,
            outcomes: work.outcomes,
        }
    }
}

impl DeviceWork<'_> {
    /// Returns the same work, borrowed for a shorter time.
    pub fn reborrow(&mut self) -> DeviceWork<'_> {
        DeviceWork {
            bytes: self.bytes.reborrow(),
            keys: self.keys,
            jobs: self.jobs,
            outcomes: self.outcomes,
        }
    }

    /// Returns some of the jobs, for the CPU.
    ///
    /// # Panics
    ///
    /// If the range exceeds the list of jobs.
    pub fn jobs(&mut self, range: Range<usize>) -> Work<'_> {
        Work {
            bytes: self.bytes.get(),
            keys: self.keys,
            jobs: &self.jobs[range.clone()],
            outcomes: &mut self.outcomes[range],
        }
    }
}

/// # Panics
///
/// If a job lies outside `len` bytes or its key is not in `keys`.
#[inline]
pub(crate) fn check(len: usize, keys: &[Key], job: &Job) {
    assert!(
        span(job).end <= len as u64,
        "a job lies outside the {len} bytes of the batch"
    );
    assert!(
        job.key < keys.len(),
        "a job has key {} of {}",
        job.key,
        keys.len()
    );
}

/// Runs any of the batch's jobs on the CPU.
pub type Helper<'h> = dyn FnMut(Work<'_>) + 'h;

/// How the CPU helps instead of waiting for the device.
pub struct Help<'h> {
    /// About how many bytes of packets it processes at a time.
    pub bytes: usize,
    /// Runs the jobs.
    pub run: &'h mut Helper<'h>,
}

/// Options for running one batch.
#[derive(Default)]
pub struct RunOptions<'w> {
    /// How the CPU helps in the meantime; `None` to wait.
    pub help: Option<Help<'w>>,
    /// Whether to time the stages, which costs four events for each piece.
    pub timed: bool,
    /// Whether to fail with [`GpuError::Busy`](crate::GpuError::Busy) instead of waiting for
    /// another batch.
    pub unless_busy: bool,
}

/// Returns the first consecutive jobs, from index `from` on, that have not run, as many as
/// possible. For the CPU to run after a batch has been on the device.
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
    fn pending_jobs_are_found_in_runs() {
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
