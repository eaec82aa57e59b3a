//! Seals and opens a list of jobs, each part of it in the way that [`Strategy`] chooses.

use super::strategy::Strategy;
use super::{lanes, pipelined, single};
use crate::calibrate::{Clock, best_time};
use crate::isa::{self, Set};
use crate::job::{Job, Outcome, TAG_LEN, Work};

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
        let (strategy, count) = Strategy::to_seal(set, rest, lists_in_lanes);
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
            Strategy::Pipelined { by_two } => pipelined::seal(set, bytes, secrets, jobs, by_two),
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
        let (strategy, count) = Strategy::to_open(set, rest, lists_in_lanes);
        let (jobs, outcomes);
        (jobs, rest) = rest.split_at(count);
        (outcomes, rest_outcomes) = rest_outcomes.split_at_mut(count);
        match strategy {
            Strategy::Single => {
                for (job, outcome) in jobs.iter().zip(outcomes) {
                    *outcome = single::open(set, bytes, secrets, job);
                }
            }
            Strategy::Pipelined { by_two } => {
                pipelined::open(set, bytes, secrets, (jobs, outcomes), by_two);
            }
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

/// The lengths of packets, in bytes, for which it is measured whether the pipeline or lanes are faster:
/// one that rows hold, and one that they do not.
const IN_ROWS: usize = 250;
const LONGER: usize = 500;

/// Whether lists that may be pipelined are faster in lanes, if they are long enough to fill them:
/// lists of packets that have at most as many blocks as rows hold, or others. At first use of either
/// both ways are timed, and the faster one is kept for the process. Without a clock it is the pipeline.
fn lists_in_lanes(set: Set, in_rows: bool) -> bool {
    let (kept, len, by_two) = match in_rows {
        true => (set.lists_in_lanes(), IN_ROWS, set.stitches_two()),
        false => (set.longer_lists_in_lanes(), LONGER, false),
    };
    let measure = || isa::clock().is_some_and(|clock| is_slower_pipelined(set, clock, len, by_two));
    kept.get(|| 1 + usize::from(measure())) == 2
}

/// Whether the pipeline takes longer than lanes for 16 packets of `len` bytes. Packets of 250 bytes take
/// some 60 µs on a Zen 5 (November 2026).
#[cold]
fn is_slower_pipelined(set: Set, clock: Clock, len: usize, by_two: bool) -> bool {
    const PACKETS: usize = 16;
    const SIZE: usize = LONGER + TAG_LEN;
    let job = |packet: usize| Job {
        text: (packet * SIZE) as u32,
        text_len: len as u32,
        ..Job::default()
    };
    let jobs: [Job; PACKETS] = core::array::from_fn(job);
    let keys = [[0; 32]];
    let prepare = || [[0; SIZE]; PACKETS];
    let pipelined = best_time(clock, prepare, |packets| {
        let bytes = packets.as_flattened_mut();
        pipelined::seal(set, bytes, keys[..].into(), &jobs, by_two);
    });
    let in_lanes = best_time(clock, prepare, |packets| {
        lanes::seal(set, packets.as_flattened_mut(), keys[..].into(), &jobs);
    });
    pipelined > in_lanes
}
