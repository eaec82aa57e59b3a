//! The exceptions. Messages come from the Rust errors, except where they name calls: those use Python's names.

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
    "Base class of all errors of this package."
);
create_exception!(
    packetlane,
    BackendError,
    Error,
    "The backend does not exist, or this CPU does not support it."
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
    "The peer may speak only v1: it closed before it answered, or answered with v1."
);
create_exception!(packetlane, SealError, Error, "A packet cannot be sealed.");
create_exception!(
    packetlane,
    OpenError,
    Error,
    "The receiving half of a session has ended, or packets were taken too early or too late."
);
create_exception!(
    packetlane,
    BadTag,
    OpenError,
    "A packet was corrupted or forged in transit: close the connection."
);
create_exception!(
    packetlane,
    SlotError,
    Error,
    "The packets of a slot are not available: the batch was cleared since, or is not sealed."
);
create_exception!(
    packetlane,
    MessageError,
    Error,
    "Bytes are not a valid message, or a message type is not valid."
);

create_exception!(
    packetlane,
    BlockError,
    Error,
    "Bytes are not a valid block."
);

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
        Open::NotOpened => {
            OpenError::new_err("the packets are not opened yet: call engine.open(batch) first")
        }
        Open::NotInBatch => OpenError::new_err(
            "the session's packets are not in this batch: take or defer them from the batch that received them, \
             before batch.clear()",
        ),
        _ => OpenError::new_err(error.to_string()),
    }
}

pub(crate) fn slot(error: Slot) -> PyErr {
    match error {
        Slot::NotSealed => SlotError::new_err(
            "the slot's packets are not sealed yet: call engine.seal(batch) first",
        ),
        _ => SlotError::new_err(error.to_string()),
    }
}

pub(crate) fn message(error: Message) -> PyErr {
    MessageError::new_err(error.to_string())
}

/// The error for changing a batch while views of it exist.
pub(crate) fn viewed(views: usize) -> PyErr {
    PyBufferError::new_err(format!(
        "cannot change a batch with {views} live memoryview(s): release them first"
    ))
}

/// The error for a view of a batch that has changed.
pub(crate) fn stale() -> PyErr {
    PyBufferError::new_err("the batch has changed since this view was taken")
}
