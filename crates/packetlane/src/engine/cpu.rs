//! Runs jobs on the CPU: one backend, and the threads that share a long list of jobs.

#[cfg(feature = "parallel")]
use super::threads::{self, Part};
use crate::arena::index;
use core::ops::Range;
#[cfg(feature = "parallel")]
use packetlane_lanes::TAG_LEN;
use packetlane_lanes::{Backend, Block, Job, Kernels, Key, Nonce, Outcome, Work};

/// [`Kernels::seal`] or [`Kernels::open`].
pub(crate) type Kernel = fn(Kernels, Work<'_>);

/// [`Kernels::seal_single`] or [`Kernels::open_single`].
pub(crate) type SingleKernel = fn(Kernels, &Key, &[Block], &mut [u8], &Job) -> Outcome;

/// A backend, and the maximum number of threads for one list of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cpu {
    pub(crate) backend: Backend,
    #[cfg(feature = "parallel")]
    pub(crate) threads: u16,
    /// Whether a GPU may take its jobs.
    #[cfg(feature = "cuda")]
    pub(crate) has_device: bool,
}

impl Cpu {
    /// Creates a configuration with one thread, the caller's.
    pub(crate) const fn new(backend: Backend) -> Self {
        Self {
            backend,
            #[cfg(feature = "parallel")]
            threads: 1,
            #[cfg(feature = "cuda")]
            has_device: false,
        }
    }

    /// Whether the caller's thread does all the work, so that jobs may run at any time.
    #[inline]
    pub(crate) fn is_alone(self) -> bool {
        #[cfg(feature = "parallel")]
        if self.threads > 1 {
            return false;
        }
        #[cfg(feature = "cuda")]
        if self.has_device {
            return false;
        }
        true
    }

    /// Returns the maximum number of threads for one list of jobs.
    #[cfg(any(feature = "parallel", feature = "cuda"))]
    pub(crate) fn threads(self) -> usize {
        #[cfg(feature = "parallel")]
        return usize::from(self.threads.max(1));
        #[cfg(not(feature = "parallel"))]
        1
    }

    /// Runs a kernel on `work`.
    #[inline(always)]
    pub(crate) fn run(self, kernel: Kernel, work: Work<'_>) {
        #[cfg(feature = "parallel")]
        if self.threads > 1 {
            let part = JobsPart {
                backend: self.backend,
                kernel,
                base: 0,
                work,
            };
            return threads::run(self.threads(), part);
        }
        kernel(self.backend.kernels(), work);
    }

    /// Runs a kernel on one packet, with `keystream` precomputed for it. Returns the packet's
    /// outcome.
    #[inline(always)]
    pub(crate) fn run_single(
        self,
        kernel: SingleKernel,
        (key, keystream): (&Key, &[Block]),
        nonce: Nonce,
        bytes: &mut [u8],
        aad: Range<usize>,
        text: Range<usize>,
    ) -> Outcome {
        let job = Job {
            text: index(text.start),
            text_len: index(text.len()),
            aad: index(aad.start),
            aad_len: index(aad.len()),
            key: 0,
            nonce,
        };
        kernel(self.backend.kernels(), key, keystream, bytes, &job)
    }

    /// Fills `out` with ChaCha20 keystream, starting at block `counter`.
    pub(crate) fn keystream(self, key: &Key, nonce: Nonce, counter: u32, out: &mut [u8]) {
        out.fill(0);
        self.backend.kernels().chacha20(key, &nonce, counter, out);
    }
}

/// Returns the range of the arena from the first to the last byte that a job reads or writes.
#[cfg(feature = "parallel")]
pub(crate) fn span(job: &Job) -> Range<usize> {
    let text = job.text as usize;
    let end = text + job.text_len as usize + TAG_LEN;
    if job.aad_len == 0 {
        return text..end;
    }
    let aad = job.aad as usize;
    text.min(aad)..end.max(aad + job.aad_len as usize)
}

/// How many jobs a thread passes to the backend at once: enough that many of them have similar
/// lengths, and few enough for the stack.
#[cfg(feature = "parallel")]
const STEP: usize = 256;

/// Jobs and their piece of the arena, which begins at offset `base`.
#[cfg(feature = "parallel")]
struct JobsPart<'p> {
    backend: Backend,
    kernel: Kernel,
    base: usize,
    work: Work<'p>,
}

#[cfg(feature = "parallel")]
impl Part for JobsPart<'_> {
    fn len(&self) -> usize {
        self.work.jobs.len()
    }

    fn span(&self, packet: usize) -> Range<usize> {
        span(&self.work.jobs[packet])
    }

    fn text_len(&self, packet: usize) -> usize {
        self.work.jobs[packet].text_len as usize
    }

    fn split_off(&mut self, packet: usize, start: usize) -> Self {
        let bytes = core::mem::take(&mut self.work.bytes);
        let outcomes = core::mem::take(&mut self.work.outcomes);
        let (bytes, split_bytes) = bytes.split_at_mut(start - self.base);
        let (jobs, split_jobs) = self.work.jobs.split_at(packet);
        let (outcomes, split_outcomes) = outcomes.split_at_mut(packet);
        self.work = Work {
            bytes,
            keys: self.work.keys,
            jobs,
            outcomes,
        };
        Self {
            base: start,
            work: Work {
                bytes: split_bytes,
                keys: self.work.keys,
                jobs: split_jobs,
                outcomes: split_outcomes,
            },
            ..*self
        }
    }

    fn run(mut self) {
        if self.base == 0 {
            return (self.kernel)(self.backend.kernels(), self.work);
        }
        let base = index(self.base);
        let mut step = [Job::default(); STEP];
        let Work { jobs, .. } = self.work;
        let outcomes = core::mem::take(&mut self.work.outcomes);
        for (jobs, outcomes) in jobs.chunks(STEP).zip(outcomes.chunks_mut(STEP)) {
            for (rebased, job) in step.iter_mut().zip(jobs) {
                *rebased = Job {
                    text: job.text - base,
                    // Without AAD, its offset has no meaning.
                    aad: if job.aad_len > 0 { job.aad - base } else { 0 },
                    ..*job
                };
            }
            let work = Work {
                bytes: self.work.bytes,
                keys: self.work.keys,
                jobs: &step[..jobs.len()],
                outcomes,
            };
            (self.kernel)(self.backend.kernels(), work);
        }
    }
}
