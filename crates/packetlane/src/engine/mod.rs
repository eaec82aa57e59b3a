//! [`Engine`] runs batches: on one backend of the CPU, on several threads (feature `parallel`), or
//! on a GPU (feature `cuda`).

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
    /// Implements [`Engine::seal`].
    fn seal_on(&mut self, engine: &Engine);
}

/// A batch whose packets [`Engine::open`] can open: [`OpenBatch`](crate::OpenBatch) and
/// [`quic::OpenBatch`](crate::quic::OpenBatch). This trait is sealed: nothing else implements it.
pub trait ToOpen: sealed::Sealed {
    /// Implements [`Engine::open`].
    fn open_on(&mut self, engine: &Engine);
}

pub(crate) mod sealed {
    /// Implemented by the batches of this crate.
    pub trait Sealed {}
}

impl Engine {
    /// Name of the environment variable that selects a backend by name.
    pub const BACKEND_VARIABLE: &str = "PACKETLANE_BACKEND";

    /// Creates the engine for this CPU: its most capable backend or, with the feature `std`, the
    /// backend that the environment variable `PACKETLANE_BACKEND` names.
    ///
    /// # Errors
    ///
    /// If the variable names a backend that this build does not have or this CPU does not support.
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

    /// Creates the engine on the most capable backend of this CPU. Ignores `PACKETLANE_BACKEND`.
    #[must_use]
    pub fn best() -> Self {
        let available = Backend::ALL
            .iter()
            .rev()
            .find(|backend| backend.is_available());
        Self::new(available.copied().unwrap_or(Backend::Portable))
    }

    /// Creates the engine on the backend called `name`, as in `PACKETLANE_BACKEND`. If several
    /// backends share the name, uses the most capable one that this CPU supports.
    ///
    /// # Errors
    ///
    /// [`BackendError::Unknown`] if this build has no such backend, [`BackendError::Unavailable`]
    /// if this CPU does not support it.
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

    /// Creates the engine on `backend`.
    ///
    /// # Errors
    ///
    /// [`BackendError::Unavailable`] if this CPU does not support it.
    pub fn on(backend: Backend) -> Result<Self, BackendError> {
        if backend.is_available() {
            Ok(Self::new(backend))
        } else {
            Err(BackendError::Unavailable(backend))
        }
    }

    /// Creates the engine on the portable backend, which runs on every CPU.
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

    /// Returns the engine with a limit of `threads` threads for one large batch. Small batches stay
    /// on the caller's thread; with 1, the default, all batches do.
    ///
    /// The caller's thread does its share and sleeps until the others have finished. The other
    /// threads are rayon's: those of the pool that the caller runs in, otherwise of the global
    /// pool, whose threads run on any core. A program that pins its threads to cores should either
    /// stay at 1 and give each thread its own batches, or call from within a pool that it has
    /// pinned ([`rayon::ThreadPool::install`]). Each thread beyond the first costs one allocation
    /// per batch.
    ///
    /// [`rayon::ThreadPool::install`]: https://docs.rs/rayon/latest/rayon/struct.ThreadPool.html#method.install
    #[cfg(feature = "parallel")]
    #[must_use]
    pub const fn with_threads(mut self, threads: u16) -> Self {
        self.cpu.threads = threads;
        self
    }

    /// Returns the backend that the engine runs on.
    #[must_use]
    #[inline]
    pub const fn backend(&self) -> Backend {
        self.cpu.backend
    }

    /// Returns the engine with `gpu` for large batches, those that the device runs faster than the
    /// CPU. The crossover size is measured when the first batch of 16 KiB or more arrives
    /// ([`Gpu::crossover`](packetlane_gpu::Gpu::crossover)). While the device is busy, the CPU
    /// processes packets from the end of the batch. The device runs one batch at a time; batches of
    /// other threads run on the CPU in the meantime.
    ///
    /// Smaller batches, packets with precomputed keystream, single packets and QUIC packets stay on
    /// the CPU. If the device fails, the CPU also finishes its batch: nothing is lost, nothing is
    /// sealed twice, and [`Gpu::last_error`](packetlane_gpu::Gpu::last_error) returns the error.
    #[cfg(feature = "cuda")]
    #[must_use]
    pub const fn with_gpu(mut self, gpu: &'static packetlane_gpu::Gpu) -> Self {
        self.cpu.has_device = true;
        self.device = Some(offload::Device::new(gpu));
        self
    }

    /// Returns the engine with `offload` as the rule for choosing between CPU and GPU. Has no
    /// effect without a GPU.
    #[cfg(feature = "cuda")]
    #[must_use]
    pub const fn with_offload(mut self, offload: Offload) -> Self {
        if let Some(device) = self.device {
            self.cpu.has_device = !matches!(offload, Offload::Never);
            self.device = Some(device.with(offload));
        }
        self
    }

    /// Returns the GPU that the engine runs batches on, if any.
    #[cfg(feature = "cuda")]
    #[must_use]
    pub fn gpu(&self) -> Option<&'static packetlane_gpu::Gpu> {
        self.device.map(|device| device.gpu())
    }

    /// Seals every pending packet of `batch` in place: encrypts its text and writes its tag. For
    /// QUIC, also applies header protection.
    #[inline]
    pub fn seal<B: ToSeal>(&self, batch: &mut B) {
        batch.seal_on(self);
    }

    /// Opens every pending packet of `batch` in place. Each packet has its own outcome: one with a
    /// wrong tag stays encrypted and does not affect others. Take the packets with
    /// [`Inbound::packets`] or [`Opener::take`].
    ///
    /// [`Inbound::packets`]: crate::bip324::Inbound::packets
    /// [`Opener::take`]: crate::quic::Opener::take
    #[inline]
    pub fn open<B: ToOpen>(&self, batch: &mut B) {
        batch.open_on(self);
    }

    /// Returns its backend and threads.
    #[inline]
    pub(crate) fn cpu(&self) -> Cpu {
        self.cpu
    }

    /// Returns its GPU.
    #[cfg(feature = "cuda")]
    #[inline]
    pub(crate) fn device(&self) -> Option<offload::Device> {
        self.device
    }

    /// Seals one packet in place: encrypts `bytes[text]`, writes the 16-byte tag after it, and uses
    /// `bytes[aad]` as AAD (RFC 8439, section 2.8). The AAD must not overlap text or tag.
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

    /// Opens one packet in place, laid out as for [`Engine::seal_single`]. Returns whether its tag
    /// is correct; if not, the text stays encrypted.
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

/// Why an engine cannot use a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackendError {
    /// This build has no backend of that name.
    Unknown(String),
    /// This CPU does not support that backend.
    Unavailable(Backend),
    /// `PACKETLANE_BACKEND` names a backend that this build does not have.
    VariableUnknown(String),
    /// `PACKETLANE_BACKEND` names a backend that this CPU does not support.
    VariableUnavailable(Backend),
}

/// The names of all backends, each once, separated by commas.
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
                    "no backend \"{name}\" in this build; it has {BackendNames}"
                )
            }
            Self::Unavailable(backend) => {
                write!(
                    f,
                    "this CPU does not support the backend \"{}\"",
                    backend.name()
                )
            }
            Self::VariableUnknown(name) => write!(
                f,
                "{} is \"{name}\", which is no backend in this build; it has \
                 {BackendNames}",
                Engine::BACKEND_VARIABLE
            ),
            Self::VariableUnavailable(backend) => write!(
                f,
                "{} is \"{}\", which this CPU does not support: unset it to \
                 use this CPU's best backend",
                Engine::BACKEND_VARIABLE,
                backend.name()
            ),
        }
    }
}

impl core::error::Error for BackendError {}
