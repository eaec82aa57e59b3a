//! Seals and opens a list of jobs, each part of it in the way that [`Strategy`] chooses.

use super::sorted::Sorted;
use super::strategy::{SORTED, Strategy};
use super::{lanes, long, pipelined, single};
use crate::calibrate::{Clock, best_time};
use crate::isa::{self, Set};
use crate::job::{BLOCK_LEN, Job, Outcome, Secrets, TAG_LEN, Work};

/// Seals every job. `outcomes[i]` becomes the outcome of `jobs[i]`.
///
/// # Panics
///
/// If a job lies outside the buffer, if it names a key or keystream that is not there, or if
/// `outcomes` is shorter than `jobs`. It may if one job writes where another reads or writes.
#[inline]
pub(crate) fn seal(set: Set, work: Work<'_>) {
    let Work {
        bytes,
        secrets,
        jobs,
        outcomes,
    } = work;
    // A single packet goes first: to get ready for a list takes a twentieth of a short packet's time.
    if let ([job], [outcome, ..]) = (jobs, &mut *outcomes) {
        single::seal(set, bytes, secrets, job);
        *outcome = Outcome::Sealed;
        return;
    }
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
            Strategy::Pipelined => pipelined::seal(set, bytes, secrets, jobs),
            Strategy::Long => long::seal(set, bytes, secrets, jobs),
            Strategy::Short => set.short(bytes, secrets.keys, jobs, None),
            Strategy::Lockstep => {
                for jobs in jobs.chunks(set.lockstep_lanes()) {
                    set.lockstep(bytes, secrets.keys, jobs, &[], None);
                }
            }
            Strategy::StitchedLanes => set.stitched_lanes(bytes, secrets.keys, jobs, None),
            Strategy::Sorted => {
                let work = Work {
                    bytes,
                    secrets,
                    jobs,
                    outcomes,
                };
                run_sorted(seal, set, work);
                continue;
            }
            Strategy::Lanes => lanes::seal(set, bytes, secrets, jobs, &[]),
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
    // As in `seal`.
    if let ([job], [outcome, ..]) = (jobs, &mut *outcomes) {
        *outcome = single::open(set, bytes, secrets, job);
        return;
    }
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
            Strategy::Pipelined => pipelined::open(set, bytes, secrets, jobs, outcomes),
            Strategy::Long => long::open(set, bytes, secrets, (jobs, outcomes)),
            Strategy::Short => set.short(bytes, secrets.keys, jobs, Some(outcomes)),
            Strategy::Lockstep => {
                let lanes = set.lockstep_lanes();
                for (jobs, outcomes) in jobs.chunks(lanes).zip(outcomes.chunks_mut(lanes)) {
                    set.lockstep(bytes, secrets.keys, jobs, &[], Some(outcomes));
                }
            }
            Strategy::StitchedLanes => {
                set.stitched_lanes(bytes, secrets.keys, jobs, Some(outcomes))
            }
            Strategy::Sorted => {
                let work = Work {
                    bytes,
                    secrets,
                    jobs,
                    outcomes,
                };
                run_sorted(open, set, work);
            }
            Strategy::Lanes => lanes::open(set, bytes, secrets, jobs, outcomes),
        }
    }
}

/// As [`seal`]: of each text, what follows its first block is read from its source, and only written to the
/// buffer.
///
/// # Panics
///
/// As [`seal`], and if there is another number of sources, or one has another length.
pub(crate) fn seal_from(set: Set, work: Work<'_>, sources: &[&[u8]]) {
    let Work {
        bytes,
        secrets,
        jobs,
        outcomes,
    } = work;
    assert_eq!(jobs.len(), sources.len(), "a source for each packet");
    for (job, source) in jobs.iter().zip(sources) {
        let first = BLOCK_LEN.min(job.text_len as usize);
        assert_eq!(
            first + source.len(),
            job.text_len as usize,
            "what follows the first block"
        );
    }
    let mut done = 0;
    while done < jobs.len() {
        let (strategy, count) = Strategy::to_seal_elsewhere(set, &jobs[done..]);
        let these = done..done + count;
        done += count;
        let (jobs, sources) = (&jobs[these.clone()], &sources[these.clone()]);
        let outcomes = &mut outcomes[these];
        match strategy {
            Some(Strategy::Single) => {
                for (job, source) in jobs.iter().zip(sources) {
                    single::seal_from(set, bytes, secrets, job, source);
                }
            }
            Some(Strategy::Lockstep) => {
                let lanes = set.lockstep_lanes();
                for (jobs, sources) in jobs.chunks(lanes).zip(sources.chunks(lanes)) {
                    set.lockstep(bytes, secrets.keys, jobs, sources, None);
                }
            }
            Some(Strategy::Lanes) => lanes::seal(set, bytes, secrets, jobs, sources),
            _ => {
                for (job, source) in jobs.iter().zip(sources) {
                    let text = &mut bytes[job.text()];
                    let first = text.len() - source.len();
                    text[first..].copy_from_slice(source);
                }
                let work = Work {
                    bytes,
                    secrets,
                    jobs,
                    outcomes,
                };
                seal(set, work);
                continue;
            }
        }
        outcomes.fill(Outcome::Sealed);
    }
}

/// Sorts jobs, and seals or opens each group: a list in order, which is not sorted again.
// Not inlined: its list takes stack that others should not pay for.
#[inline(never)]
fn run_sorted(run: fn(Set, Work<'_>), set: Set, work: Work<'_>) {
    let sorted = Sorted::of(work.jobs);
    let mut results = [Outcome::Pending; SORTED];
    for group in sorted.groups() {
        let group = Work {
            bytes: work.bytes,
            secrets: work.secrets,
            jobs: &sorted.jobs()[group.clone()],
            outcomes: &mut results[group],
        };
        run(set, group);
    }
    for (place, result) in sorted.places().zip(results) {
        work.outcomes[place] = result;
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

/// Whether lists that may be [`Strategy::Long`] are faster in lanes, if they are long enough to fill them.
/// At first use both ways are timed, and the faster one is kept for the process. Without a clock it is not
/// lanes.
fn lists_in_lanes(set: Set) -> bool {
    let measure = || isa::clock().is_some_and(|clock| is_faster_in_lanes(set, clock));
    let kept = set.longer_lists_in_lanes();
    kept.get(|| 1 + usize::from(measure())) == 2
}

/// Whether lanes take less time than the other way for 16 packets of 1024 bytes.
#[cold]
fn is_faster_in_lanes(set: Set, clock: Clock) -> bool {
    const PACKETS: usize = 16;
    const LEN: usize = 1024;
    const SIZE: usize = LEN + TAG_LEN;
    let job = |packet: usize| Job {
        text: (packet * SIZE) as u32,
        text_len: LEN as u32,
        ..Job::default()
    };
    let jobs: [Job; PACKETS] = core::array::from_fn(job);
    let keys = [[0; 32]];
    let prepare = || [[0; SIZE]; PACKETS];
    let time = |way: &dyn Fn(&mut [u8], Secrets<'_>)| {
        best_time(clock, prepare, |packets| {
            way(packets.as_flattened_mut(), keys[..].into());
        })
    };
    let stitched = time(&|bytes, secrets| long::seal(set, bytes, secrets, &jobs));
    time(&|bytes, secrets| lanes::seal(set, bytes, secrets, &jobs, &[])) < stitched
}
