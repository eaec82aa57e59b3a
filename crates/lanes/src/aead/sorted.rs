//! Reorders a list of packets of mixed sizes, so that consecutive packets can use the same
//! strategy.

use super::strategy::{CLASSES, SORTED, class};
use crate::job::Job;
use arrayvec::ArrayVec;
use core::ops::Range;

/// Jobs in the order of their classes, and their original places.
pub(super) struct Sorted {
    jobs: ArrayVec<Job, SORTED>,
    /// `places[i]` is the original index of `jobs[i]`.
    places: [u8; SORTED],
    /// The start of class 1, and of the last class.
    starts: [usize; 2],
}

const _: () = assert!(SORTED - 1 <= u8::MAX as usize, "a place fits in a byte");

/// A counter for each class, all in one word: in memory, each update would wait for the previous
/// one. Counters are at most [`SORTED`].
#[derive(Clone, Copy)]
struct PerClass(u64);

/// Number of bits of a counter.
const BITS: u32 = 9;
const MASK: u64 = (1 << BITS) - 1;
const _: () = assert!(SORTED <= MASK as usize && BITS as usize * CLASSES <= 64);

impl PerClass {
    /// Returns the position of a class's bits.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "there are a few classes")]
    fn shift(class: usize) -> u32 {
        BITS * class as u32
    }

    /// Returns the counter of the class whose bits begin at `shift`.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "a few bits")]
    fn get(self, shift: u32) -> usize {
        (self.0 >> shift & MASK) as usize
    }

    /// Increments that counter.
    #[inline]
    fn count(&mut self, shift: u32) {
        self.0 += 1 << shift;
    }

    /// Returns, for each class, the sum of the counters before it.
    #[inline]
    fn sums(self) -> Self {
        let sums = (1..CLASSES).map(|classes| self.0 << Self::shift(classes));
        Self(sums.fold(0, u64::wrapping_add))
    }
}

impl Sorted {
    /// Sorts at most [`SORTED`] jobs.
    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "places and shifts are bytes"
    )]
    pub(super) fn of(jobs: &[Job]) -> Self {
        let (mut counts, mut shifts) = (PerClass(0), [0; SORTED]);
        for (job, kept) in jobs.iter().zip(&mut shifts) {
            let shift = PerClass::shift(class(job));
            counts.count(shift);
            *kept = shift as u8;
        }
        let mut next = counts.sums();
        let starts = [1, CLASSES - 1].map(|class| next.get(PerClass::shift(class)));
        let mut places = [0; SORTED];
        for (place, &shift) in shifts[..jobs.len()].iter().enumerate() {
            places[next.get(shift.into())] = place as u8;
            next.count(shift.into());
        }
        let places_in_use = &places[..jobs.len()];
        let jobs = places_in_use.iter().map(|&place| jobs[usize::from(place)]);
        Self {
            jobs: jobs.collect(),
            places,
            starts,
        }
    }

    /// Returns the jobs.
    #[inline]
    pub(super) fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// Returns the original index of each job.
    #[inline]
    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        self.places[..self.jobs.len()]
            .iter()
            .map(|&place| place.into())
    }

    /// Returns the short jobs, those that fit into stitched lanes, and the others.
    #[inline]
    pub(super) fn groups(&self) -> [Range<usize>; 3] {
        let [fitting, others] = self.starts;
        [0..fitting, fitting..others, others..self.jobs.len()]
    }
}
