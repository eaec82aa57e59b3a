//! Seals and opens a list of jobs, each part of it with the [`Strategy`] chosen for it.

use super::sorted::Sorted;
use super::strategy::{SORTED, Strategy};
use super::{lanes, long, single};
use crate::isa::Set;
use crate::job::{BLOCK_LEN, Outcome, Work};

/// Seals every job. `outcomes[i]` becomes the outcome of `jobs[i]`.
///
/// # Panics
///
/// If a job lies outside the buffer, if its key index is outside the list, or if `outcomes` is
/// shorter than `jobs`. It may panic if one job writes where another reads or writes.
#[inline]
pub(crate) fn seal(set: Set, work: Work<'_>) {
    let Work {
        bytes,
        keys,
        jobs,
        outcomes,
    } = work;
    // A single packet first: setting up a list takes a twentieth of a short packet's time.
    if let ([job], [outcome, ..]) = (jobs, &mut *outcomes) {
        single::seal(set, bytes, job.key_in(keys), job);
        *outcome = Outcome::Sealed;
        return;
    }
    let (mut rest, mut rest_outcomes) = (jobs, &mut outcomes[..jobs.len()]);
    while !rest.is_empty() {
        let (strategy, count) = Strategy::to_seal(set, rest);
        let (jobs, outcomes);
        (jobs, rest) = rest.split_at(count);
        (outcomes, rest_outcomes) = rest_outcomes.split_at_mut(count);
        match strategy {
            Strategy::Single => {
                for (job, outcome) in jobs.iter().zip(outcomes) {
                    single::seal(set, bytes, job.key_in(keys), job);
                    *outcome = Outcome::Sealed;
                }
                continue;
            }
            Strategy::Long => long::seal(set, bytes, keys, jobs),
            Strategy::Short => set.short(bytes, keys, jobs, None),
            Strategy::Lockstep => {
                for jobs in jobs.chunks(set.lockstep_lanes()) {
                    set.lockstep(bytes, keys, jobs, &[], None);
                }
            }
            Strategy::StitchedLanes => set.stitched_lanes(bytes, keys, jobs, None),
            Strategy::Sorted => {
                let work = Work {
                    bytes,
                    keys,
                    jobs,
                    outcomes,
                };
                run_sorted(seal, set, work);
                continue;
            }
            Strategy::Lanes => lanes::seal(set, bytes, keys, jobs, &[]),
        }
        outcomes.fill(Outcome::Sealed);
    }
}

/// Opens every job. `outcomes[i]` becomes the outcome of `jobs[i]`.
///
/// # Panics
///
/// As for [`seal`].
#[inline]
pub(crate) fn open(set: Set, work: Work<'_>) {
    let Work {
        bytes,
        keys,
        jobs,
        outcomes,
    } = work;
    // Like `seal`.
    if let ([job], [outcome, ..]) = (jobs, &mut *outcomes) {
        *outcome = single::open(set, bytes, job.key_in(keys), job);
        return;
    }
    let (mut rest, mut rest_outcomes) = (jobs, &mut outcomes[..jobs.len()]);
    while !rest.is_empty() {
        let (strategy, count) = Strategy::to_open(set, rest);
        let (jobs, outcomes);
        (jobs, rest) = rest.split_at(count);
        (outcomes, rest_outcomes) = rest_outcomes.split_at_mut(count);
        match strategy {
            Strategy::Single => {
                for (job, outcome) in jobs.iter().zip(outcomes) {
                    *outcome = single::open(set, bytes, job.key_in(keys), job);
                }
            }
            Strategy::Long => long::open(set, bytes, keys, (jobs, outcomes)),
            Strategy::Short => set.short(bytes, keys, jobs, Some(outcomes)),
            Strategy::Lockstep => {
                let lanes = set.lockstep_lanes();
                for (jobs, outcomes) in jobs.chunks(lanes).zip(outcomes.chunks_mut(lanes)) {
                    set.lockstep(bytes, keys, jobs, &[], Some(outcomes));
                }
            }
            Strategy::StitchedLanes => set.stitched_lanes(bytes, keys, jobs, Some(outcomes)),
            Strategy::Sorted => {
                let work = Work {
                    bytes,
                    keys,
                    jobs,
                    outcomes,
                };
                run_sorted(open, set, work);
            }
            Strategy::Lanes => lanes::open(set, bytes, keys, jobs, outcomes),
        }
    }
}

/// Like [`seal`], but the text after its first block is read from a source, and only written to the
/// buffer.
///
/// # Panics
///
/// As for [`seal`]; also if the number of sources differs from that of jobs, or the length of a
/// source is wrong.
pub(crate) fn seal_from(set: Set, work: Work<'_>, sources: &[&[u8]]) {
    let Work {
        bytes,
        keys,
        jobs,
        outcomes,
    } = work;
    assert_eq!(jobs.len(), sources.len(), "one source for each packet");
    for (job, source) in jobs.iter().zip(sources) {
        let first = BLOCK_LEN.min(job.text_len as usize);
        assert_eq!(
            first + source.len(),
            job.text_len as usize,
            "a source holds the text after the first block"
        );
    }
    let mut done = 0;
    while done < jobs.len() {
        let (strategy, count) = Strategy::to_seal_from(set, &jobs[done..]);
        let these = done..done + count;
        done += count;
        let (jobs, sources) = (&jobs[these.clone()], &sources[these.clone()]);
        let outcomes = &mut outcomes[these];
        match strategy {
            Some(Strategy::Single) => {
                for (job, source) in jobs.iter().zip(sources) {
                    single::seal_from(set, bytes, job.key_in(keys), job, source);
                }
            }
            Some(Strategy::Lockstep) => {
                let lanes = set.lockstep_lanes();
                for (jobs, sources) in jobs.chunks(lanes).zip(sources.chunks(lanes)) {
                    set.lockstep(bytes, keys, jobs, sources, None);
                }
            }
            Some(Strategy::Lanes) => lanes::seal(set, bytes, keys, jobs, sources),
            _ => {
                for (job, source) in jobs.iter().zip(sources) {
                    let text = &mut bytes[job.text()];
                    let first = text.len() - source.len();
                    text[first..].copy_from_slice(source);
                }
                let work = Work {
                    bytes,
                    keys,
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

/// Sorts jobs, and seals or opens each group: the list is then in order and is not sorted again.
// Not inlined: its list takes stack that others should not pay for.
#[inline(never)]
fn run_sorted(run: fn(Set, Work<'_>), set: Set, work: Work<'_>) {
    let sorted = Sorted::of(work.jobs);
    let mut results = [Outcome::Pending; SORTED];
    for group in sorted.groups() {
        let group = Work {
            bytes: work.bytes,
            keys: work.keys,
            jobs: &sorted.jobs()[group.clone()],
            outcomes: &mut results[group],
        };
        run(set, group);
    }
    for (place, result) in sorted.places().zip(results) {
        work.outcomes[place] = result;
    }
}
