//! Double SHA-256 of many messages, and Merkle roots.

use crate::session::{Input, inputs};
use packetlane::sha256d::{Hash, Hasher};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

/// A message. A `bytes` object is not copied, because it is immutable.
enum Message {
    Bytes(PyBackedBytes),
    Copy(Vec<u8>),
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Copy(bytes) => bytes,
        }
    }
}

/// The double SHA-256 of each message, in the byte order of SHA-256's output. Releases the GIL.
#[pyfunction]
#[pyo3(name = "sha256d_many")]
pub(crate) fn many<'py>(messages: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let py = messages.py();
    let hasher = Hasher::detect().map_err(crate::error::backend)?;
    let messages = inputs(messages)?.into_iter().map(|message| match message {
        Input::Bytes(bytes) => Ok(Message::Bytes(bytes.into())),
        Input::Buffer(buffer) => Ok(Message::Copy(buffer.to_vec(py)?)),
    });
    let messages: Vec<Message> = messages.collect::<PyResult<_>>()?;
    let digests = py.detach(|| {
        let messages: Vec<&[u8]> = messages.iter().map(AsRef::as_ref).collect();
        let mut digests = vec![Hash::default(); messages.len()];
        hasher.hash_many(&messages, &mut digests);
        digests
    });
    Ok(digests.iter().map(|hash| PyBytes::new(py, hash)).collect())
}

/// The Merkle root of hashes of 32 bytes, and whether the same root also belongs to a shorter list
/// (CVE-2012-2459).
#[pyfunction]
#[pyo3(name = "sha256d_merkle_root")]
pub(crate) fn merkle_root<'py>(
    leaves: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyBytes>, bool)> {
    let py = leaves.py();
    let hasher = Hasher::detect().map_err(crate::error::backend)?;
    let hash = |leaf: &Input<'_>| -> PyResult<Hash> {
        let leaf = leaf.to_vec(py)?;
        let wrong = |leaf: Vec<u8>| format!("a leaf has 32 bytes, not {}", leaf.len());
        leaf.try_into()
            .map_err(|leaf| PyValueError::new_err(wrong(leaf)))
    };
    let leaves: Vec<Hash> = inputs(leaves)?.iter().map(hash).collect::<PyResult<_>>()?;
    let found = py.detach(|| hasher.merkle_root(&leaves));
    Ok((PyBytes::new(py, &found.root), found.mutated))
}
