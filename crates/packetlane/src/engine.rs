//! What runs a batch.

use crate::batch::{Batch, index};
use alloc::string::String;
use core::fmt;
use core::ops::Range;
use lanes::{Backend, Job, Key, Nonce, Outcome};

/// The environment variable that forces a backend, by its name.
pub const BACKEND_VARIABLE: &str = "PACKETLANE_BACKEND";

/// Seals and opens batches on one backend. Cheap to copy; holds no secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    backend: Backend,
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
        let available = Backend::ALL
            .iter()
            .rev()
            .find(|backend| backend.is_available());
        Ok(Self {
            backend: available.copied().unwrap_or(Backend::Portable),
        })
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
            Some(&backend) => Ok(Self { backend }),
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
            Ok(Self { backend })
        } else {
            Err(BackendError::Unavailable(backend))
        }
    }

    /// The engine that runs everywhere.
    #[must_use]
    pub const fn portable() -> Self {
        Self {
            backend: Backend::Portable,
        }
    }

    /// The backend that it runs on.
    #[must_use]
    pub const fn backend(&self) -> Backend {
        self.backend
    }

    /// Seals every packet of `batch` that has not run yet, in place.
    pub fn seal(&self, batch: &mut Batch) {
        let pending = batch.take_pending();
        self.backend
            .seal(pending.bytes, pending.keys, pending.jobs, pending.outcomes);
    }

    /// Opens every packet of `batch` that has not run yet, in place. A packet
    /// whose tag is wrong stays encrypted and touches no other; each session
    /// learns of its own from [`Inbound::packets`].
    ///
    /// [`Inbound::packets`]: crate::bip324::Inbound::packets
    pub fn open(&self, batch: &mut Batch) {
        let pending = batch.take_pending();
        self.backend
            .open(pending.bytes, pending.keys, pending.jobs, pending.outcomes);
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
        let mut outcome = [Outcome::Pending];
        let job = job(nonce, aad, text);
        self.backend
            .seal(bytes, core::slice::from_ref(key), &[job], &mut outcome);
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
        let mut outcome = [Outcome::Pending];
        let job = job(nonce, aad, text);
        self.backend
            .open(bytes, core::slice::from_ref(key), &[job], &mut outcome);
        outcome == [Outcome::Authentic]
    }

    /// Fills `out` with ChaCha20's keystream from block `counter` on.
    pub(crate) fn keystream(&self, key: &Key, nonce: Nonce, counter: u32, out: &mut [u8]) {
        out.fill(0);
        self.backend.chacha20(key, &nonce, counter, out);
    }
}

/// The job of a packet that is alone with its key.
fn job(nonce: Nonce, aad: Range<usize>, text: Range<usize>) -> Job {
    Job {
        text: index(text.start),
        text_len: index(text.len()),
        aad: index(aad.start),
        aad_len: index(aad.len()),
        key: 0,
        nonce,
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
