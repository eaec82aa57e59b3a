//! What runs a batch.

use crate::batch::{Batch, Pending, index};
use alloc::string::String;
use core::fmt;
use core::ops::Range;
use packetlane_lanes::{Backend, Block, Job, Key, Nonce, Outcome, Secrets, Work};

/// The environment variable that forces a backend, by its name.
pub const BACKEND_VARIABLE: &str = "PACKETLANE_BACKEND";

/// [`Backend::seal`] or [`Backend::open`].
pub(crate) type Kernel = fn(Backend, Work<'_>);

/// Seals and opens batches on one backend. Cheap to copy; holds no secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    backend: Backend,
    #[cfg(feature = "parallel")]
    threads: u16,
    #[cfg(feature = "cuda")]
    device: Option<crate::offload::Device>,
}

impl Engine {
    /// The engine for this CPU: its most capable backend or, with the feature
    /// `std`, the one that the environment variable `PACKETLANE_BACKEND` names.
    ///
    /// # Errors
    ///
    /// If that variable names no backend of this build, or one that this CPU
    /// lacks.
    pub fn detect() -> Result<Self, BackendError> {
        #[cfg(feature = "std")]
        if let Some(name) = std::env::var_os(BACKEND_VARIABLE) {
            return Self::named(&name.to_string_lossy());
        }
        Ok(Self::best())
    }

    /// The engine on the most capable backend of this CPU.
    pub(crate) fn best() -> Self {
        let available = Backend::ALL
            .iter()
            .rev()
            .find(|backend| backend.is_available());
        Self::new(available.copied().unwrap_or(Backend::Portable))
    }

    /// The engine on the backend called `name`, as in `PACKETLANE_BACKEND`: of
    /// several with that name, the most capable that this CPU has.
    ///
    /// # Errors
    ///
    /// If this build has no such backend, or this CPU lacks it.
    pub fn named(name: &str) -> Result<Self, BackendError> {
        let mut named = Backend::ALL.iter().filter(|backend| backend.name() == name);
        match named.clone().rfind(|backend| backend.is_available()) {
            Some(&backend) => Ok(Self::new(backend)),
            None => Err(match named.next() {
                Some(&backend) => BackendError::Unavailable(backend),
                None => BackendError::Unknown(name.into()),
            }),
        }
    }

    /// The engine on `backend`.
    ///
    /// # Errors
    ///
    /// If this CPU lacks it.
    pub fn on(backend: Backend) -> Result<Self, BackendError> {
        if backend.is_available() {
            Ok(Self::new(backend))
        } else {
            Err(BackendError::Unavailable(backend))
        }
    }

    /// The engine that runs everywhere.
    #[must_use]
    pub const fn portable() -> Self {
        Self::new(Backend::Portable)
    }

    const fn new(backend: Backend) -> Self {
        Self {
            backend,
            #[cfg(feature = "parallel")]
            threads: 1,
            #[cfg(feature = "cuda")]
            device: None,
        }
    }

    /// The same engine, with up to `threads` threads for one batch where that is
    /// large enough; a small one stays on the caller's thread. 1, which is where
    /// an engine starts, keeps all on the caller's thread.
    ///
    /// The caller's thread does its share and sleeps until the others are done.
    /// Those are rayon's: of the pool that the caller runs in, else of the global
    /// one, whose threads run on any core. So a program that pins its threads to
    /// cores had better stay at 1 and give each thread batches of its own, or call
    /// from within a pool that it has pinned ([`rayon::ThreadPool::install`]).
    /// Each thread beyond the first costs a call of the allocator per batch.
    ///
    /// [`rayon::ThreadPool::install`]: https://docs.rs/rayon/latest/rayon/struct.ThreadPool.html#method.install
    #[cfg(feature = "parallel")]
    #[must_use]
    pub const fn with_threads(self, threads: u16) -> Self {
        Self { threads, ..self }
    }

    /// The backend that it runs on.
    #[must_use]
    pub const fn backend(&self) -> Backend {
        self.backend
    }

    /// The same engine, which runs batches on `gpu` too: those of so many bytes that it is
    /// sooner there, by what is measured when the first batch comes that might be one
    /// ([`Gpu::crossover`](packetlane_gpu::Gpu::crossover)). The CPU helps with those: it takes packets
    /// from a batch's end while the device is busy. One batch is on the device at a time;
    /// meanwhile other threads' batches run on the CPU.
    ///
    /// Smaller batches, packets of which keystream was computed ahead, single packets and
    /// those of QUIC stay with the CPU. So does what a device that fails has not finished:
    /// nothing is lost, nothing is sealed twice, and
    /// [`Gpu::last_error`](packetlane_gpu::Gpu::last_error) says what happened.
    #[cfg(feature = "cuda")]
    #[must_use]
    pub const fn with_gpu(self, gpu: &'static packetlane_gpu::Gpu) -> Self {
        let device = Some(crate::offload::Device::new(gpu));
        Self { device, ..self }
    }

    /// The same engine, which chooses between CPU and device as said; without a device it
    /// has no choice.
    #[cfg(feature = "cuda")]
    #[must_use]
    pub const fn with_offload(self, offload: crate::Offload) -> Self {
        let device = match self.device {
            Some(device) => Some(device.with(offload)),
            None => None,
        };
        Self { device, ..self }
    }

    /// The device that it runs batches on, if any.
    #[cfg(feature = "cuda")]
    #[must_use]
    pub fn gpu(&self) -> Option<&'static packetlane_gpu::Gpu> {
        self.device.map(|device| device.gpu())
    }

    /// Up to how many threads it runs a batch on.
    #[cfg(feature = "cuda")]
    pub(crate) fn threads(&self) -> usize {
        #[cfg(feature = "parallel")]
        return usize::from(self.threads.max(1));
        #[cfg(not(feature = "parallel"))]
        1
    }

    /// Seals every packet of `batch` that has not run yet, in place.
    #[inline]
    pub fn seal(&self, batch: &mut Batch) {
        #[cfg(feature = "cuda")]
        if let Some(device) = self.device
            && device.seal(self, batch)
        {
            return;
        }
        self.run(batch, Backend::seal);
    }

    /// Opens every packet of `batch` that has not run yet, in place. A packet
    /// whose tag is wrong stays encrypted and touches no other; each session
    /// learns of its own from [`Inbound::packets`].
    ///
    /// [`Inbound::packets`]: crate::bip324::Inbound::packets
    #[inline]
    pub fn open(&self, batch: &mut Batch) {
        #[cfg(feature = "cuda")]
        if let Some(device) = self.device
            && device.open(self, batch)
        {
            return;
        }
        self.run(batch, Backend::open);
    }

    /// Runs a kernel on what waits in the batch.
    #[inline(always)]
    fn run(&self, batch: &mut Batch, kernel: Kernel) {
        let Pending {
            bytes,
            secrets,
            jobs,
            outcomes,
        } = batch.take_pending();
        self.run_jobs(kernel, bytes, secrets, jobs, outcomes);
    }

    /// Runs a kernel on these jobs.
    #[inline]
    pub(crate) fn run_jobs(
        &self,
        kernel: Kernel,
        bytes: &mut [u8],
        secrets: Secrets<'_>,
        jobs: &[Job],
        outcomes: &mut [Outcome],
    ) {
        #[cfg(feature = "parallel")]
        if self.threads > 1 {
            let kernel = (self.backend, kernel);
            return crate::parallel::run(
                self.threads.into(),
                kernel,
                bytes,
                secrets,
                jobs,
                outcomes,
            );
        }
        kernel(
            self.backend,
            Work {
                bytes,
                secrets,
                jobs,
                outcomes,
            },
        );
    }

    /// Seals one packet in place: `bytes[text]`, whose tag of 16 bytes follows
    /// it, with `bytes[aad]` as AAD.
    ///
    /// # Panics
    ///
    /// If text, tag or AAD lie outside `bytes`.
    pub fn seal_one(
        &self,
        key: &Key,
        nonce: Nonce,
        bytes: &mut [u8],
        aad: Range<usize>,
        text: Range<usize>,
    ) {
        self.one(Backend::seal, (key, &[]), nonce, bytes, aad, text);
    }

    /// Opens one packet in place, laid out as for [`Engine::seal_one`]. Says
    /// whether its tag was right; if not, the text stays encrypted.
    ///
    /// # Panics
    ///
    /// If text, tag or AAD lie outside `bytes`.
    #[must_use]
    pub fn open_one(
        &self,
        key: &Key,
        nonce: Nonce,
        bytes: &mut [u8],
        aad: Range<usize>,
        text: Range<usize>,
    ) -> bool {
        self.one(Backend::open, (key, &[]), nonce, bytes, aad, text) == Outcome::Authentic
    }

    /// Seals or opens one packet with what is known of its keystream. Says what
    /// became of it.
    pub(crate) fn one(
        &self,
        kernel: Kernel,
        (key, keystream): (&Key, &[Block]),
        nonce: Nonce,
        bytes: &mut [u8],
        aad: Range<usize>,
        text: Range<usize>,
    ) -> Outcome {
        let secrets = Secrets {
            keys: core::slice::from_ref(key),
            keystream,
        };
        let job = Job {
            text: index(text.start),
            text_len: index(text.len()),
            aad: index(aad.start),
            aad_len: index(aad.len()),
            key: 0,
            keystream: 0,
            keystream_blocks: index(keystream.len()),
            nonce,
        };
        let mut outcome = [Outcome::Pending];
        kernel(
            self.backend,
            Work {
                bytes,
                secrets,
                jobs: &[job],
                outcomes: &mut outcome,
            },
        );
        outcome[0]
    }

    /// See [`Backend::precompute_keystream`].
    pub(crate) fn precompute_keystream(
        &self,
        key: &Key,
        of: &[(u32, Nonce)],
        keystream: &mut [Block],
    ) {
        self.backend.precompute_keystream(key, of, keystream);
    }

    /// Fills `out` with ChaCha20's keystream from block `counter` on.
    pub(crate) fn keystream(&self, key: &Key, nonce: Nonce, counter: u32, out: &mut [u8]) {
        out.fill(0);
        self.backend.chacha20(key, &nonce, counter, out);
    }
}

/// Why there is no engine on a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackendError {
    /// No backend of this build has that name.
    Unknown(String),
    /// This CPU lacks the instructions of that backend.
    Unavailable(Backend),
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => {
                write!(
                    f,
                    "no backend \"{name}\" in this build; {BACKEND_VARIABLE} takes"
                )?;
                let mut before = "";
                for backend in Backend::ALL {
                    if backend.name() != before {
                        let comma = if before.is_empty() { "" } else { "," };
                        write!(f, "{comma} {}", backend.name())?;
                        before = backend.name();
                    }
                }
                Ok(())
            }
            Self::Unavailable(backend) => write!(
                f,
                "this CPU lacks the instructions of backend \"{}\"; unset {BACKEND_VARIABLE} to \
                 take the best that it has",
                backend.name()
            ),
        }
    }
}

impl core::error::Error for BackendError {}
