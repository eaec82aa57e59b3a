//! A device, and the calls that run batches on it.

use crate::crossover::crossover;
use crate::cuda::Cuda;
use crate::driver::{Driver, Processors, Shared};
use crate::error::GpuError;
use crate::kernels::Op;
use crate::pinned::Pinned;
use crate::pipeline::{Pipeline, PipelineConfig, Run};
use crate::timings::Timings;
use crate::work::{Bytes, DeviceWork, RunOptions};
use packetlane_lanes::{Backend, Work};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

/// One device, and what it takes to run batches on it. It runs one at a time.
pub struct Gpu {
    driver: Shared,
    name: String,
    pipeline: Mutex<Pipeline>,
    /// The last error, and whether the device is unusable.
    failed: Mutex<(Option<GpuError>, bool)>,
    /// From how many bytes on it beats which backend, as far as that is known.
    crossovers: Mutex<Vec<(Backend, usize)>>,
}

impl Gpu {
    /// The device of this process: the first, or the one that the environment variable
    /// `PACKETLANE_GPU` picks by its number. `off` there is as if there were none.
    ///
    /// # Errors
    ///
    /// If there is none, or it cannot be used; the same every time.
    pub fn detect() -> Result<&'static Gpu, GpuError> {
        static DETECTED: OnceLock<Result<Gpu, GpuError>> = OnceLock::new();
        let detected = DETECTED.get_or_init(|| Cuda::open().map(Gpu::on));
        detected.as_ref().map_err(GpuError::clone)
    }

    /// The device behind `driver`.
    pub fn on(driver: impl Driver + 'static) -> Self {
        Self {
            name: driver.name(),
            driver: Arc::new(driver),
            pipeline: Mutex::new(Pipeline::new()),
            failed: Mutex::default(),
            crossovers: Mutex::default(),
        }
    }

    /// The device's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many bytes of device memory are free, and how many there are.
    ///
    /// # Errors
    ///
    /// If the device is lost.
    pub fn memory(&self) -> Result<(usize, usize), GpuError> {
        self.usable()?;
        self.note(self.driver.memory())
    }

    /// How many processors it has and how fast they are, if it tells.
    #[must_use]
    pub fn processors(&self) -> Option<Processors> {
        self.driver.processors()
    }

    /// Sets how batches are cut and sent from now on.
    pub fn configure(&self, config: PipelineConfig) {
        self.lock().config = config;
    }

    /// Gives back device memory and page-locked memory, all wiped. They are taken again
    /// for the next batch.
    pub fn release(&self) {
        self.lock().release();
    }

    /// The last error of a batch, or of anything else that was asked of the device.
    pub fn last_error(&self) -> Option<GpuError> {
        self.failures().0.clone()
    }

    /// Whether the device has failed, and is not used again.
    pub fn is_lost(&self) -> bool {
        self.failures().1
    }

    /// Seals each of `jobs` in place: encrypts its text, writes its tag.
    ///
    /// `outcomes[i]` becomes [`Outcome::Sealed`](packetlane_lanes::Outcome::Sealed). Jobs with precomputed keystream, and
    /// those of more than 63 MiB with their AAD, do not run here: they and their outcomes stay as
    /// they are. On an error the same holds of all that was not finished.
    ///
    /// # Errors
    ///
    /// If the device fails, or has.
    ///
    /// # Panics
    ///
    /// If a job lies outside `bytes` or names a key that is not in `keys`, or if
    /// `outcomes` is shorter than `jobs`.
    pub fn seal(&self, work: Work<'_>) -> Result<(), GpuError> {
        let options = RunOptions::default();
        self.run(Op::Seal, work.into(), options).map(drop)
    }

    /// Opens each of `jobs` in place: checks its tag, in constant time, and decrypts its
    /// text if the tag is right.
    ///
    /// `outcomes[i]` becomes [`Outcome::Authentic`](packetlane_lanes::Outcome::Authentic) or [`Outcome::BadTag`](packetlane_lanes::Outcome::BadTag); the text of a
    /// forged packet stays encrypted. What does not run here is as for [`Gpu::seal`].
    ///
    /// # Errors
    ///
    /// If the device fails, or has.
    ///
    /// # Panics
    ///
    /// As [`Gpu::seal`].
    pub fn open(&self, work: Work<'_>) -> Result<(), GpuError> {
        let options = RunOptions::default();
        self.run(Op::Open, work.into(), options).map(drop)
    }

    /// [`Gpu::seal`] or [`Gpu::open`] with a say in how, and how it went.
    ///
    /// # Errors
    ///
    /// If the device fails, or has, or is busy and the caller does not wait.
    ///
    /// # Panics
    ///
    /// As [`Gpu::seal`].
    pub fn run<'r>(
        &'r self,
        op: Op,
        mut work: DeviceWork<'r>,
        options: RunOptions<'r>,
    ) -> Result<Timings, GpuError> {
        work.bytes = match work.bytes {
            // Of another driver's page-locked memory this one knows nothing.
            Bytes::Pinned(pinned, used) if !pinned.is_of(&self.driver) => {
                Bytes::Plain(&mut pinned[..used])
            }
            bytes => bytes,
        };
        if let Bytes::Pinned(pinned, used) = &work.bytes {
            assert!(*used <= pinned.len(), "more is used than there is");
        }
        work.outcomes = &mut work.outcomes[..work.jobs.len()];
        self.usable()?;
        let mut pipeline = match self.pipeline.try_lock() {
            Ok(pipeline) => pipeline,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if options.unless_busy => return Err(GpuError::Busy),
            Err(TryLockError::WouldBlock) => self.lock(),
        };
        let run = Run::new(&self.driver, op, work, options.help, options.timed);
        self.note(pipeline.run(run))
    }

    /// From how many bytes of packets on, with their tags, this device seals a batch faster
    /// than one thread of the CPU with `backend`; `usize::MAX` for never.
    ///
    /// Measured when first asked, once for each backend, with batches of up to 8 MiB in
    /// plain memory: some tens of milliseconds. Not less than 16 KiB, which are not worth
    /// the question.
    pub fn crossover(&self, backend: Backend) -> usize {
        let mut known = self.crossovers();
        if let Some((_, bytes)) = known.iter().find(|(of, _)| *of == backend) {
            return *bytes;
        }
        let bytes = crossover(backend, |work| self.seal(work));
        known.push((backend, bytes));
        bytes
    }

    /// Sets that number, in place of what would be or has been measured.
    pub fn set_crossover(&self, backend: Backend, bytes: usize) {
        let mut known = self.crossovers();
        known.retain(|(of, _)| *of != backend);
        known.push((backend, bytes));
    }

    fn crossovers(&self) -> MutexGuard<'_, Vec<(Backend, usize)>> {
        self.crossovers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes page-locked memory for an arena of `len` bytes, all zeros: twice as much is
    /// taken (see [`Pinned`]).
    ///
    /// # Errors
    ///
    /// If there is not so much, or the device is lost.
    pub fn pinned(&self, len: usize) -> Result<Pinned, GpuError> {
        self.usable()?;
        self.note(Pinned::new(self.driver(), len))
    }

    pub(crate) fn driver(&self) -> &Shared {
        &self.driver
    }

    fn lock(&self) -> MutexGuard<'_, Pipeline> {
        // A caller's help that panicked has left the transfers idle.
        self.pipeline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failures(&self) -> MutexGuard<'_, (Option<GpuError>, bool)> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error that made the device unusable, if one has.
    pub(crate) fn usable(&self) -> Result<(), GpuError> {
        match &*self.failures() {
            (Some(error), true) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Keeps an error.
    pub(crate) fn note<T>(&self, result: Result<T, GpuError>) -> Result<T, GpuError> {
        if let Err(error) = &result {
            let mut failed = self.failures();
            if !failed.1 {
                *failed = (Some(error.clone()), error.is_final());
            }
        }
        result
    }
}

impl PartialEq for Gpu {
    /// Whether it is the same one.
    fn eq(&self, other: &Self) -> bool {
        core::ptr::eq(self, other)
    }
}

impl Eq for Gpu {}

impl core::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Gpu")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
