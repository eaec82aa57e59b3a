//! What a device is asked to do: the [`Work`] of a CPU, whose bytes may be page-locked.

use crate::piece::span;
use crate::pinned::Pinned;
use core::ops::Range;
use packetlane_lanes::{Job, Key, Outcome, Work};

/// The bytes that the jobs of a batch refer to.
#[derive(Debug)]
pub enum Bytes<'b> {
    /// Any memory. Packets are copied to page-locked memory and from there.
    Plain(&'b mut [u8]),
    /// A page-locked arena, of which bytes `..used` mean something. The device copies from
    /// and to it. The bytes behind `used` may have changed afterwards.
    Pinned(&'b mut Pinned, usize),
}

impl Bytes<'_> {
    /// Those that mean something, for the CPU.
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

/// Jobs and everything that running them on a device takes: as [`Work`], with bytes that may
/// be page-locked.
pub struct DeviceWork<'w> {
    /// The buffer that the jobs' offsets refer to.
    pub bytes: Bytes<'w>,
    /// The keys.
    pub keys: &'w [Key],
    /// What to do.
    pub jobs: &'w [Job],
    /// Receives what became of each job: `outcomes[i]` of `jobs[i]`. At least as long as
    /// `jobs`.
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
    /// The same work, borrowed for a shorter time.
    pub fn reborrow(&mut self) -> DeviceWork<'_> {
        DeviceWork {
            bytes: self.bytes.reborrow(),
            keys: self.keys,
            jobs: self.jobs,
            outcomes: self.outcomes,
        }
    }

    /// Some of the jobs, for the CPU.
    ///
    /// # Panics
    ///
    /// If there are no such jobs.
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
/// If a job lies outside `len` bytes or names a key that is not in `keys`.
#[inline]
pub(crate) fn check(len: usize, keys: &[Key], job: &Job) {
    assert!(
        span(job).end <= len as u64,
        "a job lies outside the {len} bytes of the batch"
    );
    assert!(
        job.key < keys.len(),
        "a job names key {} of {}",
        job.key,
        keys.len()
    );
}

/// Does jobs of the batch on the CPU, whichever they are.
pub type Helper<'h> = dyn FnMut(Work<'_>) + 'h;

/// What the CPU does while it would wait for the device.
pub struct Help<'h> {
    /// About how many bytes of packets it takes at a time.
    pub bytes: usize,
    /// Does them.
    pub run: &'h mut Helper<'h>,
}

/// How to run one batch.
#[derive(Default)]
pub struct RunOptions<'w> {
    /// What the CPU does meanwhile; nothing if none.
    pub help: Option<Help<'w>>,
    /// Whether to time the stages, which costs four events for each piece.
    pub timed: bool,
    /// Whether to fail with [`GpuError::Busy`](crate::GpuError::Busy) rather than wait for
    /// another batch.
    pub unless_busy: bool,
}

/// The first jobs, from number `from` on, that have not run: a run of neighbours, as long as
/// it gets. For the CPU to do after a batch has been on the device.
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
