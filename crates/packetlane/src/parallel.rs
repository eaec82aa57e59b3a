//! One large batch on several threads.
//!
//! The jobs are cut into parts, several for each thread, and the arena with them: a
//! part begins at a job whose bytes lie behind those of all jobs before, and none of
//! the jobs that follow reaches before it. So who has a part has a piece of the arena
//! to himself, and nothing is shared but the keys and keystream, which are only read.
//! Sessions add their packets in the order of the arena, but for one that came in
//! pieces, which is out of order among its neighbours alone. Where no such place is
//! found, one thread does it all.
//!
//! The threads take one part after the other, so that one that wakes late, or is
//! interrupted, is not waited for. A lock is held while a part is taken, not while it
//! is sealed.

use crate::batch::index;
use crate::engine::Kernel;
use core::ops::Range;
use packetlane_lanes::{Backend, Job, Outcome, Secrets, TAG_LEN, Work};
use std::sync::{Mutex, PoisonError};

/// The least work for one thread, in bytes as [`work`] counts them: some 20
/// microseconds. To wake a thread takes no less.
const LEAST_WORK: usize = 64 * 1024;

/// The work of a part, in the same: what a thread is waited for in the end at most.
const PART_WORK: usize = 16 * 1024;

/// What a packet costs beyond its text, in bytes of text that cost the same: its
/// one-time key is a block of ChaCha20 too.
const PACKET_WORK: usize = 64;

/// Into how many parts a batch is cut at most.
const MOST_PARTS: usize = 256;

/// How many jobs a thread hands to the backend at a time: enough to find packets
/// of like length among them, and few enough for the stack.
const STEP: usize = 256;

/// Runs `jobs` on up to `threads` threads: the caller's own, and others of the
/// pool that rayon has for it.
pub(crate) fn run(
    threads: usize,
    (backend, kernel): (Backend, Kernel),
    bytes: &mut [u8],
    secrets: Secrets<'_>,
    jobs: &[Job],
    outcomes: &mut [Outcome],
) {
    let mut cuts = Cuts::new();
    let threads = cuts.find(jobs, threads);
    if threads < 2 {
        return kernel(
            backend,
            Work {
                bytes,
                secrets,
                jobs,
                outcomes,
            },
        );
    }
    let whole = Part {
        base: 0,
        bytes,
        jobs,
        outcomes,
    };
    // The last part first: what is left begins where it did.
    let waiting = Mutex::new((whole, cuts.places().iter().rev()));
    let work = || {
        loop {
            let part = {
                let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
                let (rest, places) = &mut *waiting;
                match places.next() {
                    Some(cut) => rest.split_off(cut),
                    None => core::mem::take(rest),
                }
            };
            if part.jobs.is_empty() {
                return;
            }
            part.run((backend, kernel), secrets);
        }
    };
    rayon::in_place_scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|_| work());
        }
        work();
    });
}

/// Jobs and their piece of the arena, which begins at offset `base`.
#[derive(Default)]
struct Part<'p> {
    base: usize,
    bytes: &'p mut [u8],
    jobs: &'p [Job],
    outcomes: &'p mut [Outcome],
}

impl<'p> Part<'p> {
    /// Takes away what begins at a cut.
    fn split_off(&mut self, cut: &Cut) -> Part<'p> {
        let Part {
            base,
            bytes,
            jobs,
            outcomes,
        } = core::mem::take(self);
        let (bytes, its_bytes) = bytes.split_at_mut(cut.start - base);
        let (jobs, its_jobs) = jobs.split_at(cut.job);
        let (outcomes, its_outcomes) = outcomes.split_at_mut(cut.job);
        *self = Part {
            base,
            bytes,
            jobs,
            outcomes,
        };
        Part {
            base: cut.start,
            bytes: its_bytes,
            jobs: its_jobs,
            outcomes: its_outcomes,
        }
    }

    fn run(self, (backend, kernel): (Backend, Kernel), secrets: Secrets<'_>) {
        let base = index(self.base);
        let mut step = [Job::default(); STEP];
        let outcomes = self.outcomes.chunks_mut(STEP);
        for (jobs, outcomes) in self.jobs.chunks(STEP).zip(outcomes) {
            for (rebased, job) in step.iter_mut().zip(jobs) {
                *rebased = Job {
                    text: job.text - base,
                    // Where there is no AAD, its offset means nothing.
                    aad: if job.aad_len > 0 { job.aad - base } else { 0 },
                    ..*job
                };
            }
            let jobs = &step[..jobs.len()];
            kernel(
                backend,
                Work {
                    bytes: self.bytes,
                    secrets,
                    jobs,
                    outcomes,
                },
            );
        }
    }
}

/// Where a part begins.
#[derive(Clone, Copy, Default)]
struct Cut {
    /// Its first job.
    job: usize,
    /// Where its piece of the arena begins.
    start: usize,
}

/// The beginnings of all parts but the first.
struct Cuts {
    places: [Cut; MOST_PARTS - 1],
    count: usize,
}

impl Cuts {
    fn new() -> Self {
        Self {
            places: [Cut::default(); MOST_PARTS - 1],
            count: 0,
        }
    }

    fn places(&self) -> &[Cut] {
        &self.places[..self.count]
    }

    /// Cuts `jobs` for up to `threads` threads, if there is work for them. Says how
    /// many have something to do.
    fn find(&mut self, jobs: &[Job], threads: usize) -> usize {
        let total = jobs.iter().map(work).sum();
        let threads = threads.min(total / LEAST_WORK);
        if threads > 1 {
            self.cut(jobs, total, (total / PART_WORK).min(MOST_PARTS));
        }
        threads.min(self.count + 1)
    }

    /// Cuts `jobs`, whose work is `total`, into up to `parts` parts of about the same
    /// work.
    fn cut(&mut self, jobs: &[Job], total: usize, parts: usize) {
        let share = total / parts;
        let mut done = 0;
        let mut end = 0;
        for (job, span) in jobs.iter().map(span).enumerate() {
            while self
                .places()
                .last()
                .is_some_and(|cut| span.start < cut.start)
            {
                self.count -= 1;
            }
            if done >= (self.count + 1) * share && self.count + 1 < parts && span.start >= end {
                self.places[self.count] = Cut {
                    job,
                    start: span.start,
                };
                self.count += 1;
            }
            end = end.max(span.end);
            done += work(&jobs[job]);
        }
    }
}

fn work(job: &Job) -> usize {
    job.text_len as usize + PACKET_WORK
}

/// From the first to the last of the arena's bytes that a job reads or writes.
fn span(job: &Job) -> Range<usize> {
    let text = job.text as usize;
    let end = text + job.text_len as usize + TAG_LEN;
    if job.aad_len == 0 {
        return text..end;
    }
    let aad = job.aad as usize;
    text.min(aad)..end.max(aad + job.aad_len as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn jobs(lengths: impl IntoIterator<Item = u32>) -> Vec<Job> {
        let mut text = 7;
        let job = |text_len: u32| {
            let job = Job {
                text,
                text_len,
                ..Job::default()
            };
            text += text_len + 20;
            job
        };
        lengths.into_iter().map(job).collect()
    }

    /// The jobs before which they are cut into `parts` parts.
    fn cuts(jobs: &[Job], parts: usize) -> Vec<usize> {
        let mut cuts = Cuts::new();
        cuts.cut(jobs, jobs.iter().map(work).sum(), parts);
        // What safety rests on: the spans of a part lie within its piece.
        for cut in cuts.places() {
            let (before, from) = jobs.split_at(cut.job);
            assert!(before.iter().all(|job| span(job).end <= cut.start));
            assert!(from.iter().all(|job| span(job).start >= cut.start));
        }
        cuts.places().iter().map(|cut| cut.job).collect()
    }

    #[test]
    fn parts_are_about_alike() {
        // Many short packets, then few long ones.
        let jobs = jobs([[1; 4000].to_vec(), [10_000; 60].to_vec()].concat());
        let total: usize = jobs.iter().map(work).sum();
        for parts in 2..9 {
            let cuts = cuts(&jobs, parts);
            assert_eq!(cuts.len(), parts - 1);
            for (place, &cut) in cuts.iter().enumerate() {
                let before: usize = jobs[..cut].iter().map(work).sum();
                assert!(before.abs_diff(total * (place + 1) / parts) < 10_100);
            }
        }
    }

    #[test]
    fn small_batches_are_not_cut() {
        let cut = |jobs: &[Job], threads| {
            let mut cuts = Cuts::new();
            let threads = cuts.find(jobs, threads);
            (threads, cuts.places().len())
        };
        assert_eq!(cut(&[], 4), (0, 0));
        assert_eq!(cut(&jobs([1 << 24]), 4), (1, 0));
        assert_eq!(cut(&jobs([61; 1000]), 4), (1, 0));
        assert_eq!(cut(&jobs([61; 1100]), 4), (2, 7));
        assert_eq!(cut(&jobs([61; 1100]), 1), (1, 0));
        assert_eq!(
            cut(&jobs([4000; 10_000]), 1000),
            (MOST_PARTS, MOST_PARTS - 1)
        );
    }

    #[test]
    fn as_many_parts_as_there_are_jobs_for() {
        assert_eq!(cuts(&[], 4), []);
        assert_eq!(cuts(&jobs([1 << 24]), 4), []);
        assert_eq!(cuts(&jobs([61; 1000]), 1), []);
        assert_eq!(cuts(&jobs([61; 1000]), 4).len(), 3);
        let most = cuts(&jobs([4000; 10_000]), MOST_PARTS);
        assert_eq!(most.len(), MOST_PARTS - 1);
    }

    #[test]
    fn neighbours_out_of_order_stay_together() {
        let mut jobs = jobs([4000; 100]);
        assert_eq!(cuts(&jobs, 2), [50]);
        // The first of five lies behind the others.
        jobs[48..53].rotate_right(1);
        assert_eq!(cuts(&jobs, 2), [53]);
        // One among the last reaches back to the first half.
        jobs.swap(10, 99);
        assert_eq!(cuts(&jobs, 2), []);
        jobs.reverse();
        assert_eq!(cuts(&jobs, 2), []);
    }

    #[test]
    fn tags_and_aad_count() {
        let mut jobs = jobs([4000; 100]);
        jobs[80].aad = 1;
        assert_eq!(cuts(&jobs, 2), [50], "no AAD");
        jobs[80].aad_len = 1;
        assert_eq!(cuts(&jobs, 2), [81]);
        jobs[80].aad = jobs[80].text + 4000 + 16;
        assert_eq!(cuts(&jobs, 2), [50]);
        // A tag that reaches into the next packet's text.
        jobs[49].text_len += 5;
        assert_eq!(cuts(&jobs, 2), [51]);
    }
}
