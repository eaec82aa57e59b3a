//! The exceptions: one family, with the messages of the Rust errors, but for calls: those are named as in Python.

use packetlane::bip324::{self, OpenError as Open, SealError as Seal};
use packetlane::bitcoin::message::MessageError as Message;
use packetlane::{BackendError as Backend, SlotError as Slot};
use pyo3::create_exception;
use pyo3::exceptions::{PyBufferError, PyException};
use pyo3::prelude::*;

create_exception!(
    packetlane,
    Error,
    PyException,
    "Every error of this package."
);
create_exception!(
    packetlane,
    BackendError,
    Error,
    "There is no engine on that backend."
);
create_exception!(
    packetlane,
    HandshakeError,
    Error,
    "A BIP324 handshake failed."
);
create_exception!(
    packetlane,
    ClosedUnanswered,
    HandshakeError,
    "The peer may speak v1 only: it closed before it answered, or answered by v1."
);
create_exception!(packetlane, SealError, Error, "A packet cannot be sealed.");
create_exception!(
    packetlane,
    OpenError,
    Error,
    "The receiving half of a session has ended, or packets were taken at a wrong time."
);
create_exception!(
    packetlane,
    BadTag,
    OpenError,
    "A packet was damaged or forged on its way: drop the connection."
);
create_exception!(
    packetlane,
    SlotError,
    Error,
    "A batch does not show the packets of a slot: it was cleared since, or is not sealed."
);
create_exception!(
    packetlane,
    MessageError,
    Error,
    "Bytes are no message, or no type of one."
);

create_exception!(packetlane, BlockError, Error, "Bytes are no valid block.");

pub(crate) fn backend(error: Backend) -> PyErr {
    BackendError::new_err(error.to_string())
}

pub(crate) fn handshake(error: bip324::HandshakeError) -> PyErr {
    match error.may_speak_v1() {
        true => ClosedUnanswered::new_err(error.to_string()),
        false => HandshakeError::new_err(error.to_string()),
    }
}

pub(crate) fn seal(error: Seal) -> PyErr {
    SealError::new_err(error.to_string())
}

pub(crate) fn open(error: Open) -> PyErr {
    match error {
        Open::BadTag { .. } => BadTag::new_err(error.to_string()),
        Open::NotOpened => OpenError::new_err(
            "the packets are not opened: call engine.open(batch) before taking them",
        ),
        Open::NotInBatch => OpenError::new_err(
            "the session's packets are not in this batch: take or defer them before batch.clear(), from the batch \
             that received them",
        ),
        _ => OpenError::new_err(error.to_string()),
    }
}

pub(crate) fn slot(error: Slot) -> PyErr {
    match error {
        Slot::NotSealed => SlotError::new_err(
            "the slot's packets are not sealed: call engine.seal(batch) before batch.wire(slot)",
        ),
        _ => SlotError::new_err(error.to_string()),
    }
}

pub(crate) fn message(error: Message) -> PyErr {
    MessageError::new_err(error.to_string())
}

/// A batch was to change while views of it exist.
pub(crate) fn viewed(views: usize) -> PyErr {
    PyBufferError::new_err(format!(
        "{views} views of this batch exist: release them before it changes"
    ))
}

/// A view is of a batch that has changed.
pub(crate) fn stale() -> PyErr {
    PyBufferError::new_err("the batch has changed since this view was taken")
}
