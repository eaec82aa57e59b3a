//! A list of packets of mixed sizes in another order, so that neighbours can go the same way.

use super::strategy::{CLASSES, SORTED, class};
use crate::job::Job;
use arrayvec::ArrayVec;
use core::ops::Range;

/// Jobs in the order of their classes, and where they come from.
pub(super) struct Sorted {
    jobs: ArrayVec<Job, SORTED>,
    /// `places[i]` is the index that `jobs[i]` had.
    places: [u8; SORTED],
    /// How many jobs are in class 0, and where the last class begins.
    ends: [usize; 2],
}

const _: () = assert!(SORTED - 1 <= u8::MAX as usize, "a place is a byte");

impl Sorted {
    /// Sorts at most [`SORTED`] jobs.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "a place is a byte")]
    pub(super) fn of(jobs: &[Job]) -> Self {
        let mut starts = [0; CLASSES + 1];
        for job in jobs {
            starts[1 + class(job)] += 1;
        }
        for class in 1..CLASSES {
            starts[class + 1] += starts[class];
        }
        let ends = [starts[1], starts[CLASSES - 1]];
        let mut places = [0; SORTED];
        for (place, job) in jobs.iter().enumerate() {
            let next = &mut starts[class(job)];
            places[*next] = place as u8;
            *next += 1;
        }
        let places_in_use = &places[..jobs.len()];
        let jobs = places_in_use.iter().map(|&place| jobs[usize::from(place)]);
        Self {
            jobs: jobs.collect(),
            places,
            ends,
        }
    }

    /// The jobs.
    #[inline]
    pub(super) fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// Where each job was.
    #[inline]
    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        self.places[..self.jobs.len()]
            .iter()
            .map(|&place| place.into())
    }

    /// The short ones, those that fit into stitched lanes, and the others.
    #[inline]
    pub(super) fn groups(&self) -> [Range<usize>; 3] {
        let [short, long] = self.ends;
        [0..short, short..long, long..self.jobs.len()]
    }
}
