//! Splits one large batch over several threads.
//!
//! The packets, and the arena with them, are cut into parts, several for each thread. A part begins
//! at a packet whose bytes lie after those of all earlier packets, and no later packet reaches back
//! before it. A thread that runs a part therefore owns a piece of the arena, and the threads share
//! only keys and keystream, which they read. Sessions add their packets in arena order, except for
//! a packet that arrived in several reads, which is out of order only among its neighbours. If no
//! such place to cut is found, one thread runs everything.
//!
//! The threads take one part after the other, so that a thread that wakes late or is interrupted
//! delays the others only a little. A lock is held while a part is taken, not while it runs.

use core::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Minimum work for one thread, in bytes as [`work`] counts them: about 20 microseconds. Waking a
/// thread takes at least as long.
const MIN_WORK: usize = 64 * 1024;

/// Work of a part, in the same unit: the upper bound on what the threads wait for at the end.
const PART_WORK: usize = 16 * 1024;

/// Cost of a packet beyond its text, in equivalent bytes of text: its one-time key is a block of
/// ChaCha20 too.
const PACKET_WORK: usize = 64;

/// Maximum number of parts of a batch.
const MAX_PARTS: usize = 256;

/// A list of packets with everything needed to run them.
pub(crate) trait Part: Send + Sized {
    /// Returns the number of packets.
    fn len(&self) -> usize;

    /// Returns the range of the arena from the first to the last byte that a packet reads or
    /// writes.
    fn span(&self, packet: usize) -> Range<usize>;

    /// Returns how many bytes of a packet are encrypted.
    fn text_len(&self, packet: usize) -> usize;

    /// Splits off the packets from number `packet` on, whose bytes lie at or after `start` in the
    /// arena. The bytes of the remaining packets lie before `start`.
    fn split_off(&mut self, packet: usize, start: usize) -> Self;

    /// Runs its packets.
    fn run(self);
}

/// Runs `whole` on up to `threads` threads: the caller's own, and others of the caller's rayon
/// pool.
// Outlined, because a single thread does not need the list of cuts, which is a page of stack.
#[inline(never)]
pub(crate) fn run<P: Part>(threads: usize, whole: P) {
    let mut cuts = Cuts::new();
    let threads = cuts.find(&whole, threads);
    if threads < 2 {
        return whole.run();
    }
    // Last part first: splitting off the end does not move the start of the rest.
    let waiting = Mutex::new((Some(whole), cuts.places().iter().rev()));
    let work = || {
        loop {
            let part = {
                let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
                let (rest, places) = &mut *waiting;
                match (rest.as_mut(), places.next()) {
                    (Some(rest), Some(cut)) => Some(rest.split_off(cut.packet, cut.start)),
                    _ => rest.take(),
                }
            };
            match part {
                Some(part) => part.run(),
                None => return,
            }
        }
    };
    rayon::in_place_scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|_| work());
        }
        work();
    });
}

/// The start of a part.
#[derive(Clone, Copy, Default)]
struct Cut {
    /// Its first packet.
    packet: usize,
    /// Start of its piece of the arena.
    start: usize,
}

/// The starts of all parts except the first.
struct Cuts {
    places: [Cut; MAX_PARTS - 1],
    count: usize,
}

impl Cuts {
    fn new() -> Self {
        Self {
            places: [Cut::default(); MAX_PARTS - 1],
            count: 0,
        }
    }

    fn places(&self) -> &[Cut] {
        &self.places[..self.count]
    }

    /// Cuts `whole` for up to `threads` threads, if there is enough work. Returns the number of
    /// threads that have work.
    fn find(&mut self, whole: &impl Part, threads: usize) -> usize {
        let total = (0..whole.len()).map(|packet| work(whole, packet)).sum();
        let threads = threads.min(total / MIN_WORK);
        if threads > 1 {
            self.cut(whole, total, (total / PART_WORK).min(MAX_PARTS));
        }
        threads.min(self.count + 1)
    }

    /// Cuts `whole`, whose total work is `total`, into up to `parts` parts of about equal work.
    fn cut(&mut self, whole: &impl Part, total: usize, parts: usize) {
        let share = total / parts;
        let mut done = 0;
        let mut end = 0;
        for packet in 0..whole.len() {
            let span = whole.span(packet);
            while self
                .places()
                .last()
                .is_some_and(|cut| span.start < cut.start)
            {
                self.count -= 1;
            }
            if done >= (self.count + 1) * share && self.count + 1 < parts && span.start >= end {
                self.places[self.count] = Cut {
                    packet,
                    start: span.start,
                };
                self.count += 1;
            }
            end = end.max(span.end);
            done += work(whole, packet);
        }
    }
}

/// Returns the work of one packet, in bytes.
fn work(whole: &impl Part, packet: usize) -> usize {
    whole.text_len(packet) + PACKET_WORK
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use packetlane_lanes::{Job, TAG_LEN};

    /// Jobs that are never run.
    impl Part for &[Job] {
        fn len(&self) -> usize {
            <[Job]>::len(self)
        }

        fn span(&self, packet: usize) -> Range<usize> {
            span(&self[packet])
        }

        fn text_len(&self, packet: usize) -> usize {
            self[packet].text_len as usize
        }

        fn split_off(&mut self, packet: usize, _: usize) -> Self {
            let (rest, split) = self.split_at(packet);
            *self = rest;
            split
        }

        fn run(self) {}
    }

    fn span(job: &Job) -> Range<usize> {
        let text = job.text as usize..job.text as usize + job.text_len as usize + TAG_LEN;
        match (job.aad as usize, job.aad_len as usize) {
            (_, 0) => text,
            (aad, len) => text.start.min(aad)..text.end.max(aad + len),
        }
    }

    fn work(job: &Job) -> usize {
        job.text_len as usize + PACKET_WORK
    }

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

    /// Cuts `jobs` into `parts` parts. Returns the index of the first job of each part but the
    /// first.
    fn cuts(jobs: &[Job], parts: usize) -> Vec<usize> {
        let mut cuts = Cuts::new();
        cuts.cut(&jobs, jobs.iter().map(work).sum(), parts);
        // Memory safety depends on this: the spans of a part lie within its piece.
        for cut in cuts.places() {
            let (before, from) = jobs.split_at(cut.packet);
            assert!(before.iter().all(|job| span(job).end <= cut.start));
            assert!(from.iter().all(|job| span(job).start >= cut.start));
        }
        cuts.places().iter().map(|cut| cut.packet).collect()
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
            let threads = cuts.find(&jobs, threads);
            (threads, cuts.places().len())
        };
        assert_eq!(cut(&[], 4), (0, 0));
        assert_eq!(cut(&jobs([1 << 24]), 4), (1, 0));
        assert_eq!(cut(&jobs([61; 1000]), 4), (1, 0));
        assert_eq!(cut(&jobs([61; 1100]), 4), (2, 7));
        assert_eq!(cut(&jobs([61; 1100]), 1), (1, 0));
        assert_eq!(cut(&jobs([4000; 10_000]), 1000), (MAX_PARTS, MAX_PARTS - 1));
    }

    #[test]
    fn as_many_parts_as_there_are_jobs_for() {
        assert_eq!(cuts(&[], 4), []);
        assert_eq!(cuts(&jobs([1 << 24]), 4), []);
        assert_eq!(cuts(&jobs([61; 1000]), 1), []);
        assert_eq!(cuts(&jobs([61; 1000]), 4).len(), 3);
        let most = cuts(&jobs([4000; 10_000]), MAX_PARTS);
        assert_eq!(most.len(), MAX_PARTS - 1);
    }

    #[test]
    fn neighbours_out_of_order_stay_together() {
        let mut jobs = jobs([4000; 100]);
        assert_eq!(cuts(&jobs, 2), [50]);
        // The first of five lies after the others.
        jobs[48..53].rotate_right(1);
        assert_eq!(cuts(&jobs, 2), [53]);
        // One of the last jobs reaches back into the first half.
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
