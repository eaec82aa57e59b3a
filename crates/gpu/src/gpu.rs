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

/// One device, with everything needed to run batches on it. It runs one batch at a time.
pub struct Gpu {
    driver: Shared,
    name: String,
    pipeline: Mutex<Pipeline>,
    /// The last error, and whether the device is unusable.
    failed: Mutex<(Option<GpuError>, bool)>,
    /// Measured or set crossover size for each backend, in bytes.
    crossovers: Mutex<Vec<(Backend, usize)>>,
}

impl Gpu {
    /// Returns the device of this process: the first, or the one that the environment variable
    /// `PACKETLANE_GPU` selects by its number. With `off`, there is none.
    ///
    /// # Errors
    ///
    /// If there is no device, or it cannot be used; the same error every time.
    pub fn detect() -> Result<&'static Gpu, GpuError> {
        static DETECTED: OnceLock<Result<Gpu, GpuError>> = OnceLock::new();
        let detected = DETECTED.get_or_init(|| Cuda::open().map(Gpu::on));
        detected.as_ref().map_err(GpuError::clone)
    }

    /// Creates a device from `driver`.
    pub fn on(driver: impl Driver + 'static) -> Self {
        Self {
            name: driver.name(),
            driver: Arc::new(driver),
            pipeline: Mutex::new(Pipeline::new()),
            failed: Mutex::default(),
            crossovers: Mutex::default(),
        }
    }

    /// Returns the device's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the free and the total device memory, in bytes.
    ///
    /// # Errors
    ///
    /// If the device is lost.
    pub fn memory(&self) -> Result<(usize, usize), GpuError> {
        self.usable()?;
        self.note(self.driver.memory())
    }

    /// Returns the number and clock of its processors, if the driver reports them.
    #[must_use]
    pub fn processors(&self) -> Option<Processors> {
        self.driver.processors()
    }

    /// Sets how batches are split and transferred from now on.
    pub fn configure(&self, config: PipelineConfig) {
        self.lock().config = config;
    }

    /// Wipes and frees device memory and page-locked memory. The next batch allocates them again.
    pub fn release(&self) {
        self.lock().release();
    }

    /// Returns the last error of a batch or any other operation on the device.
    pub fn last_error(&self) -> Option<GpuError> {
        self.failures().0.clone()
    }

    /// Whether the device has failed and is not used again.
    pub fn is_lost(&self) -> bool {
        self.failures().1
    }

    /// Seals each of `jobs` in place: encrypts its text, writes its tag.
    ///
    /// `outcomes[i]` becomes [`Outcome::Sealed`](packetlane_lanes::Outcome::Sealed). Jobs of more
    /// than 63 MiB with their AAD do not run here: they and their outcomes are unchanged. After an
    /// error, the same holds for everything that was not finished.
    ///
    /// # Errors
    ///
    /// If the device fails or has failed.
    ///
    /// # Panics
    ///
    /// If a job lies outside `bytes` or its key is not in `keys`, or if `outcomes` is shorter than
    /// `jobs`.
    pub fn seal(&self, work: Work<'_>) -> Result<(), GpuError> {
        let options = RunOptions::default();
        self.run(Op::Seal, work.into(), options).map(drop)
    }

    /// Opens each of `jobs` in place: checks its tag in constant time, and decrypts its text if the
    /// tag is correct.
    ///
    /// `outcomes[i]` becomes [`Outcome::Authentic`](packetlane_lanes::Outcome::Authentic) or
    /// [`Outcome::BadTag`](packetlane_lanes::Outcome::BadTag); the text of a forged packet stays
    /// encrypted. Jobs that do not run here are as for [`Gpu::seal`].
    ///
    /// # Errors
    ///
    /// If the device fails or has failed.
    ///
    /// # Panics
    ///
    /// As for [`Gpu::seal`].
    pub fn open(&self, work: Work<'_>) -> Result<(), GpuError> {
        let options = RunOptions::default();
        self.run(Op::Open, work.into(), options).map(drop)
    }

    /// Like [`Gpu::seal`] or [`Gpu::open`], with options. Returns timings.
    ///
    /// # Errors
    ///
    /// If the device fails or has failed, or is busy and the caller does not wait.
    ///
    /// # Panics
    ///
    /// As for [`Gpu::seal`].
    pub fn run<'r>(
        &'r self,
        op: Op,
        mut work: DeviceWork<'r>,
        options: RunOptions<'r>,
    ) -> Result<Timings, GpuError> {
        work.bytes = match work.bytes {
            // This driver cannot use another driver's page-locked memory.
            Bytes::Pinned(pinned, used) if !pinned.is_of(&self.driver) => {
                Bytes::Plain(&mut pinned[..used])
            }
            bytes => bytes,
        };
        if let Bytes::Pinned(pinned, used) = &work.bytes {
            assert!(
                *used <= pinned.len(),
                "more bytes are used than the arena has"
            );
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

    /// Returns the minimum size, in bytes of packets with their tags, for which this device seals a
    /// batch faster than one CPU thread with `backend`; `usize::MAX` for never.
    ///
    /// Measured on first use, once for each backend, with batches of up to 8 MiB in ordinary
    /// memory, which takes tens of milliseconds. At least 16 KiB; smaller batches are not worth
    /// measuring.
    pub fn crossover(&self, backend: Backend) -> usize {
        let mut known = self.crossovers();
        if let Some((_, bytes)) = known.iter().find(|(of, _)| *of == backend) {
            return *bytes;
        }
        let bytes = crossover(backend, |work| self.seal(work));
        known.push((backend, bytes));
        bytes
    }

    /// Sets the crossover size for `backend`, replacing the measured value.
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

    /// Allocates page-locked memory for an arena of `len` bytes, all zeros. Twice that size is
    /// allocated (see [`Pinned`]).
    ///
    /// # Errors
    ///
    /// If the memory is not available, or the device is lost.
    pub fn pinned(&self, len: usize) -> Result<Pinned, GpuError> {
        self.usable()?;
        self.note(Pinned::new(self.driver(), len))
    }

    pub(crate) fn driver(&self) -> &Shared {
        &self.driver
    }

    fn lock(&self) -> MutexGuard<'_, Pipeline> {
        // If a caller's helper panicked, the transfers are idle.
        self.pipeline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failures(&self) -> MutexGuard<'_, (Option<GpuError>, bool)> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the error that made the device unusable, if any.
    pub(crate) fn usable(&self) -> Result<(), GpuError> {
        match &*self.failures() {
            (Some(error), true) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Records an error.
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
    /// Whether both are the same device.
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
