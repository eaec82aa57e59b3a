//! `packetlane._packetlane`: the Rust part of the Python package. The rest is in `package/`.

#![allow(
    missing_docs,
    reason = "documented by the Python package: docstrings and stubs"
)]

mod batch;
mod blocks;
mod error;
mod session;
mod sha256d;

use pyo3::prelude::*;

// Nothing relies on the GIL: all mutable state is borrowed through PyO3's checks.
#[pymodule(gil_used = false)]
mod _packetlane {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::batch::{Engine, OpenBatch, SealBatch, Slot};
    #[pymodule_export]
    use crate::blocks::{BlockSummary, Scanner, Verifier};
    #[pymodule_export]
    use crate::error::{
        BackendError, BadTag, BlockError, ClosedUnanswered, Error, HandshakeError, MessageError,
        OpenError, SealError, SlotError,
    };
    #[pymodule_export]
    use crate::session::{Handshake, Session, V1, V1Decoder, decode, encode, encode_v1};
    #[pymodule_export]
    use crate::sha256d::{many, merkle_root};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::session::follow_forks(module.py())
    }
}
