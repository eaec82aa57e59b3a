//! Seals and opens a list of jobs, each part of it in the way that [`Strategy`] chooses.

use super::strategy::Strategy;
use super::{lanes, pipelined, single};
use crate::isa::Set;
use crate::job::{Outcome, Work};

/// Seals every job. `outcomes[i]` becomes the outcome of `jobs[i]`.
///
/// # Panics
///
/// If a job lies outside the buffer, if it names a key or keystream that is not there, or if
/// `outcomes` is shorter than `jobs`.
#[inline]
pub(crate) fn seal(set: Set, work: Work<'_>) {
    let Work {
        bytes,
        secrets,
        jobs,
        outcomes,
    } = work;
    let (mut rest, mut rest_outcomes) = (jobs, &mut outcomes[..jobs.len()]);
    while !rest.is_empty() {
        let (strategy, count) = Strategy::to_seal(set, rest);
        let (jobs, outcomes);
        (jobs, rest) = rest.split_at(count);
        (outcomes, rest_outcomes) = rest_outcomes.split_at_mut(count);
        match strategy {
            Strategy::Single => {
                for (job, outcome) in jobs.iter().zip(outcomes) {
                    single::seal(set, bytes, secrets, job);
                    *outcome = Outcome::Sealed;
                }
                continue;
            }
            Strategy::Pipelined => pipelined::seal(set, bytes, secrets, jobs),
            Strategy::Short => set.short(bytes, secrets.keys, jobs, None),
            Strategy::Lanes => lanes::seal(set, bytes, secrets, jobs),
        }
        outcomes.fill(Outcome::Sealed);
    }
}

/// Opens every job. `outcomes[i]` becomes the outcome of `jobs[i]`.
///
/// # Panics
///
/// As [`seal`].
#[inline]
pub(crate) fn open(set: Set, work: Work<'_>) {
    let Work {
        bytes,
        secrets,
        jobs,
        outcomes,
    } = work;
    let (mut rest, mut rest_outcomes) = (jobs, &mut outcomes[..jobs.len()]);
    while !rest.is_empty() {
        let (strategy, count) = Strategy::to_open(set, rest);
        let (jobs, outcomes);
        (jobs, rest) = rest.split_at(count);
        (outcomes, rest_outcomes) = rest_outcomes.split_at_mut(count);
        match strategy {
            Strategy::Single => {
                for (job, outcome) in jobs.iter().zip(outcomes) {
                    *outcome = single::open(set, bytes, secrets, job);
                }
            }
            Strategy::Pipelined => pipelined::open(set, bytes, secrets, jobs, outcomes),
            Strategy::Short => set.short(bytes, secrets.keys, jobs, Some(outcomes)),
            Strategy::Lanes => lanes::open(set, bytes, secrets, jobs, outcomes),
        }
    }
}

/// See [`crate::Backend::max_precomputed_blocks`].
#[inline]
pub(crate) fn max_precomputed_blocks(set: Set) -> usize {
    // A larger packet hides its hash in its own rounds. With precomputed keystream it would
    // have fewer rounds to hide it in, and gain nothing.
    match set.is_stitched() {
        true => set.row_blocks(),
        false => usize::MAX,
    }
}
