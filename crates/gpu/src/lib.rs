//! ChaCha20-Poly1305 over whole batches of packets on an NVIDIA GPU: the same jobs as
//! `lanes` runs on a CPU, with the same bytes and the same verdicts.
//!
//! [`Gpu::detect`] looks for a device when the program runs: nothing of CUDA is needed to
//! build this crate, and where there is no device or no driver it says so. [`Gpu::seal`] and
//! [`Gpu::open`] run a batch. When the device fails in the middle of one, what it has
//! finished is there and the rest is as it was, so the CPU can go on.
//!
//! - `kernels`: which kernel for which length, and how to launch it. Source and PTX lie
//!   in `kernels/`.
//! - [`driver`]: what is asked of a device; `cuda` is the real one.
//! - `piece`: packets sorted and laid out to travel. `slot`: one place where a piece
//!   travels. `pipeline`: the pieces of a batch in a few slots at once.
//! - `ptx` and `stand_in` (feature `emulate`): the kernels on the CPU, and a device that is
//!   none, for tests.
//! - [`Pinned`]: an arena that the device reads and writes itself.
//!
//! Keys, keystream and plaintext are wiped from device memory and staging when a piece is
//! done, when something fails, and on drop.

#![allow(unsafe_code, reason = "the edge to the driver")]

mod cuda;
pub mod driver;
mod error;
mod kernels;
mod measure;
mod piece;
mod pinned;
mod pipeline;
#[cfg(feature = "emulate")]
pub mod ptx;
mod slot;
#[cfg(feature = "emulate")]
pub mod stand_in;

pub use cuda::{Cuda, device_name};
pub use error::{GPU_VARIABLE, GpuError};
pub use kernels::{Op, PTX};
pub use measure::{Copies, Resident, Timings, Way};
pub use pinned::Pinned;
pub use pipeline::{Bytes, Help, Helper, pending};

use driver::{Driver, Processors, Shared};
use packetlane_lanes::{Backend, Job, Outcome, Secrets, Work};
use pipeline::{Flight, Pipeline};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

/// How a batch is cut and sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// In how many streams at once.
    pub streams: usize,
    /// In pieces of how many bytes at most, up to 64 MiB; a longer packet is a piece by
    /// itself. Batches of a few pieces are cut into smaller ones.
    pub piece_bytes: usize,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            streams: 4,
            piece_bytes: 8 << 20,
        }
    }
}

/// How to run one batch.
#[derive(Default)]
pub struct With<'w> {
    /// What the CPU does meanwhile; nothing if none.
    pub help: Option<Help<'w>>,
    /// Whether to time the stages, which costs four events for each piece.
    pub timed: bool,
    /// Whether to fail with [`GpuError::Busy`] rather than wait for another batch.
    pub unless_busy: bool,
}

/// One device, and what it takes to run batches on it. It runs one at a time.
pub struct Gpu {
    driver: Shared,
    name: String,
    pipeline: Mutex<Pipeline>,
    /// The last error, and whether the device is out of use.
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

    /// Says how batches are cut and sent from now on.
    pub fn set_plan(&self, plan: Plan) {
        self.lock().plan = plan;
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
    /// `outcomes[i]` becomes [`Outcome::Sealed`]. Jobs with keystream computed ahead, and
    /// those of more than 63 MiB with their AAD, do not run here: they and their outcomes stay as
    /// they are. On an error the same holds of all that was not finished.
    ///
    /// # Errors
    ///
    /// If the device fails, or has.
    ///
    /// # Panics
    ///
    /// If a job lies outside `bytes` or names a key that is not in `secrets`, or if
    /// `outcomes` is shorter than `jobs`.
    pub fn seal(&self, work: Work<'_>) -> Result<(), GpuError> {
        let Work {
            bytes,
            secrets,
            jobs,
            outcomes,
        } = work;
        let work = (secrets, jobs, outcomes);
        self.run(Op::Seal, Bytes::Plain(bytes), work, With::default())
            .map(drop)
    }

    /// Opens each of `jobs` in place: checks its tag, in constant time, and decrypts its
    /// text if the tag is right.
    ///
    /// `outcomes[i]` becomes [`Outcome::Authentic`] or [`Outcome::BadTag`]; the text of a
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
        let Work {
            bytes,
            secrets,
            jobs,
            outcomes,
        } = work;
        let work = (secrets, jobs, outcomes);
        self.run(Op::Open, Bytes::Plain(bytes), work, With::default())
            .map(drop)
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
    pub fn run<'f>(
        &'f self,
        op: Op,
        bytes: Bytes<'_>,
        (secrets, jobs, outcomes): (Secrets<'f>, &'f [Job], &'f mut [Outcome]),
        with: With<'f>,
    ) -> Result<Timings, GpuError> {
        let bytes = match bytes {
            // Of another driver's page-locked memory this one knows nothing.
            Bytes::Pinned(pinned, used) if !pinned.is_of(&self.driver) => {
                Bytes::Plain(&mut pinned[..used])
            }
            bytes => bytes,
        };
        let len = match &bytes {
            Bytes::Plain(bytes) => bytes.len(),
            Bytes::Pinned(pinned, used) => {
                assert!(*used <= pinned.len(), "more is used than there is");
                *used
            }
        };
        check(len, secrets, jobs);
        let outcomes = &mut outcomes[..jobs.len()];
        self.usable()?;
        let mut pipeline = match self.pipeline.try_lock() {
            Ok(pipeline) => pipeline,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if with.unless_busy => return Err(GpuError::Busy),
            Err(TryLockError::WouldBlock) => self.lock(),
        };
        let work = (secrets, jobs, outcomes);
        let flight = Flight::new(&self.driver, op, bytes, work, with.help, with.timed);
        self.note(pipeline.run(flight))
    }

    /// From how many bytes of packets on, with their tags, a batch is sealed sooner here
    /// than on one thread of the CPU with `backend`; `usize::MAX` for never.
    ///
    /// Measured when first asked, once for each backend, with batches of up to 8 MiB in
    /// plain memory: some tens of milliseconds. Not less than 16 KiB, which are not worth
    /// the question.
    pub fn crossover(&self, backend: Backend) -> usize {
        let mut known = self.crossovers();
        if let Some((_, bytes)) = known.iter().find(|(of, _)| *of == backend) {
            return *bytes;
        }
        let bytes = measure::crossover(self, backend);
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

    pub(crate) fn driver(&self) -> &Shared {
        &self.driver
    }

    fn lock(&self) -> MutexGuard<'_, Pipeline> {
        // Who panicked with it, in a caller's help, has left its slots idle.
        self.pipeline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failures(&self) -> MutexGuard<'_, (Option<GpuError>, bool)> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error that put the device out of use, if one has.
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

/// # Panics
///
/// If a job lies outside `len` bytes or names a key that is not in `secrets`.
fn check(len: usize, secrets: Secrets<'_>, jobs: &[Job]) {
    for job in jobs {
        let span = piece::span(job);
        assert!(
            span.end <= len as u64,
            "a job lies outside the {len} bytes of the batch"
        );
        assert!(
            job.keystream_blocks > 0 || (job.key as usize) < secrets.keys.len(),
            "a job names key {} of {}",
            job.key,
            secrets.keys.len()
        );
    }
}

/// Writes zeros that the compiler does not leave out.
pub(crate) fn wipe(bytes: &mut [u8]) {
    // Not `zeroize`, which writes byte by byte: this may be megabytes.
    bytes.fill(0);
    zeroize::optimization_barrier(bytes);
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
