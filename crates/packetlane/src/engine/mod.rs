//! What runs a batch: [`Engine`], on one backend of the CPU, on several of its threads
//! (feature `parallel`), on a GPU (feature `cuda`).

pub(crate) mod cpu;
#[cfg(feature = "cuda")]
pub(crate) mod offload;
#[cfg(feature = "parallel")]
pub(crate) mod threads;

#[cfg(feature = "cuda")]
pub use offload::Offload;

use alloc::string::String;
use core::fmt;
use core::ops::Range;
use cpu::Cpu;
use packetlane_lanes::{Backend, Kernels, Key, Nonce, Outcome};

/// Seals and opens batches on one backend. Cheap to copy; holds no secrets.
///
/// ```
/// use packetlane::Engine;
///
/// # fn main() -> Result<(), packetlane::BackendError> {
/// let engine = Engine::detect()?;
/// println!("this CPU runs {}", engine.backend().name());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    cpu: Cpu,
    #[cfg(feature = "cuda")]
    device: Option<offload::Device>,
}

/// A batch whose packets [`Engine::seal`] can seal: [`SealBatch`](crate::SealBatch) and
/// [`quic::SealBatch`](crate::quic::SealBatch). This trait is sealed: nothing else implements it.
pub trait ToSeal: sealed::Sealed {
    /// [`Engine::seal`].
    fn seal_on(&mut self, engine: &Engine);
}

/// A batch whose packets [`Engine::open`] can open: [`OpenBatch`](crate::OpenBatch) and
/// [`quic::OpenBatch`](crate::quic::OpenBatch). This trait is sealed: nothing else implements it.
pub trait ToOpen: sealed::Sealed {
    /// [`Engine::open`].
    fn open_on(&mut self, engine: &Engine);
}

pub(crate) mod sealed {
    /// Implemented by the batches of this crate.
    pub trait Sealed {}
}

impl Engine {
    /// The environment variable that forces a backend, by its name.
    pub const BACKEND_VARIABLE: &str = "PACKETLANE_BACKEND";

    /// The engine for this CPU: its most capable backend or, with the feature `std`, the
    /// one that the environment variable `PACKETLANE_BACKEND` names.
    ///
    /// # Errors
    ///
    /// If that variable names no backend of this build, or one that this CPU lacks.
    pub fn detect() -> Result<Self, BackendError> {
        #[cfg(feature = "std")]
        if let Some(name) = std::env::var_os(Self::BACKEND_VARIABLE) {
            return Self::named(&name.to_string_lossy()).map_err(|error| match error {
                BackendError::Unknown(name) => BackendError::VariableUnknown(name),
                BackendError::Unavailable(backend) => BackendError::VariableUnavailable(backend),
                error => error,
            });
        }
        Ok(Self::best())
    }

    /// The engine on the most capable backend of this CPU, whatever
    /// `PACKETLANE_BACKEND` says.
    #[must_use]
    pub fn best() -> Self {
        let available = Backend::ALL
            .iter()
            .rev()
            .find(|backend| backend.is_available());
        Self::new(available.copied().unwrap_or(Backend::Portable))
    }

    /// The engine on the backend called `name`, as in `PACKETLANE_BACKEND`: of several with
    /// that name, the most capable that this CPU has.
    ///
    /// # Errors
    ///
    /// [`BackendError::Unknown`] if this build has no such backend,
    /// [`BackendError::Unavailable`] if this CPU lacks it.
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
    /// [`BackendError::Unavailable`] if this CPU lacks it.
    pub fn on(backend: Backend) -> Result<Self, BackendError> {
        if backend.is_available() {
            Ok(Self::new(backend))
        } else {
            Err(BackendError::Unavailable(backend))
        }
    }

    /// The engine that runs on every CPU.
    #[must_use]
    pub const fn portable() -> Self {
        Self::new(Backend::Portable)
    }

    const fn new(backend: Backend) -> Self {
        Self {
            cpu: Cpu::new(backend),
            #[cfg(feature = "cuda")]
            device: None,
        }
    }

    /// The same engine, with up to `threads` threads for one large batch. A small batch
    /// stays on the caller's thread; so does every batch with 1, which is the default.
    ///
    /// The caller's thread does its share and sleeps until the others are done. They are
    /// rayon's: of the pool in which the caller runs, else of the global one, whose threads
    /// run on any core. A program that pins its threads to cores should stay at 1 and give
    /// each thread its own batches, or call from within a pool that it has pinned
    /// ([`rayon::ThreadPool::install`]). Each thread beyond the first costs one allocation
    /// per batch.
    ///
    /// [`rayon::ThreadPool::install`]: https://docs.rs/rayon/latest/rayon/struct.ThreadPool.html#method.install
    #[cfg(feature = "parallel")]
    #[must_use]
    pub const fn with_threads(mut self, threads: u16) -> Self {
        self.cpu.threads = threads;
        self
    }

    /// The backend that it runs on.
    #[must_use]
    #[inline]
    pub const fn backend(&self) -> Backend {
        self.cpu.backend
    }

    /// The same engine, which runs large batches on `gpu`: those of so many bytes that the
    /// device is faster. That size is measured when the first batch of 16 KiB or more comes
    /// ([`Gpu::crossover`](packetlane_gpu::Gpu::crossover)). The CPU helps: it takes packets
    /// from the batch's end while the device is busy. One batch is on the device at a time;
    /// meanwhile the batches of other threads run on the CPU.
    ///
    /// The CPU keeps smaller batches, packets with precomputed keystream, single packets
    /// and those of QUIC. It also does what a device that fails has not finished: nothing is
    /// lost, nothing is sealed twice, and
    /// [`Gpu::last_error`](packetlane_gpu::Gpu::last_error) says what happened.
    #[cfg(feature = "cuda")]
    #[must_use]
    pub const fn with_gpu(mut self, gpu: &'static packetlane_gpu::Gpu) -> Self {
        self.cpu.has_device = true;
        self.device = Some(offload::Device::new(gpu));
        self
    }

    /// The same engine, which chooses between CPU and GPU as `offload` says. Without a GPU
    /// it changes nothing.
    #[cfg(feature = "cuda")]
    #[must_use]
    pub const fn with_offload(mut self, offload: Offload) -> Self {
        if let Some(device) = self.device {
            self.cpu.has_device = !matches!(offload, Offload::Never);
            self.device = Some(device.with(offload));
        }
        self
    }

    /// The GPU that it runs batches on, if any.
    #[cfg(feature = "cuda")]
    #[must_use]
    pub fn gpu(&self) -> Option<&'static packetlane_gpu::Gpu> {
        self.device.map(|device| device.gpu())
    }

    /// Seals every packet of `batch` that waits, in place: encrypts its text and writes its
    /// tag; for QUIC it protects the header, too.
    #[inline]
    pub fn seal<B: ToSeal>(&self, batch: &mut B) {
        batch.seal_on(self);
    }

    /// Opens every packet of `batch` that waits, in place. Each packet has its own outcome:
    /// one whose tag is wrong stays encrypted and affects no other. Sessions get theirs
    /// from [`Inbound::packets`] and [`Opener::take`].
    ///
    /// [`Inbound::packets`]: crate::bip324::Inbound::packets
    /// [`Opener::take`]: crate::quic::Opener::take
    #[inline]
    pub fn open<B: ToOpen>(&self, batch: &mut B) {
        batch.open_on(self);
    }

    /// Its backend and threads.
    #[inline]
    pub(crate) fn cpu(&self) -> Cpu {
        self.cpu
    }

    /// Its GPU.
    #[cfg(feature = "cuda")]
    #[inline]
    pub(crate) fn device(&self) -> Option<offload::Device> {
        self.device
    }

    /// Seals one packet in place: `bytes[text]`, whose tag of 16 bytes follows it, with
    /// `bytes[aad]` as AAD (RFC 8439, section 2.8). Neither may overlap the other.
    ///
    /// # Panics
    ///
    /// If text, tag or AAD lie outside `bytes`.
    pub fn seal_single(
        &self,
        key: &Key,
        nonce: Nonce,
        bytes: &mut [u8],
        aad: Range<usize>,
        text: Range<usize>,
    ) {
        self.cpu
            .run_single(Kernels::seal_single, (key, &[]), nonce, bytes, aad, text);
    }

    /// Opens one packet in place, laid out as for [`Engine::seal_single`]. Returns whether
    /// its tag was right; if not, the text stays encrypted.
    ///
    /// # Panics
    ///
    /// If text, tag or AAD lie outside `bytes`.
    #[must_use]
    pub fn open_single(
        &self,
        key: &Key,
        nonce: Nonce,
        bytes: &mut [u8],
        aad: Range<usize>,
        text: Range<usize>,
    ) -> bool {
        let outcome =
            self.cpu
                .run_single(Kernels::open_single, (key, &[]), nonce, bytes, aad, text);
        outcome == Outcome::Authentic
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
    /// `PACKETLANE_BACKEND` has a value that no backend of this build is called.
    VariableUnknown(String),
    /// `PACKETLANE_BACKEND` names a backend whose instructions this CPU lacks.
    VariableUnavailable(Backend),
}

/// The names of all backends, each once, with commas.
struct BackendNames;

impl fmt::Display for BackendNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "";
        for backend in Backend::ALL {
            if backend.name() != before {
                let comma = if before.is_empty() { "" } else { ", " };
                write!(f, "{comma}{}", backend.name())?;
                before = backend.name();
            }
        }
        Ok(())
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => {
                write!(
                    f,
                    "no backend \"{name}\" in this build, which has {BackendNames}"
                )
            }
            Self::Unavailable(backend) => {
                write!(
                    f,
                    "this CPU lacks the instructions of backend \"{}\"",
                    backend.name()
                )
            }
            Self::VariableUnknown(name) => write!(
                f,
                "{} is \"{name}\": no backend in this build; it takes \
                 {BackendNames}",
                Engine::BACKEND_VARIABLE
            ),
            Self::VariableUnavailable(backend) => write!(
                f,
                "{} is \"{}\", whose instructions this CPU lacks: unset it to \
                 take the best backend of this CPU",
                Engine::BACKEND_VARIABLE,
                backend.name()
            ),
        }
    }
}

impl core::error::Error for BackendError {}
