//! Bitcoin Core's block files, and verification of blocks against their headers.

use crate::error::{self, BlockError};
use crate::session::{Input, Magic, with_others};
use packetlane::sha256d::{self, BlockFault, Frame, Hasher, Obfuscation};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

fn verifier(network: Magic) -> PyResult<sha256d::Verifier> {
    let hasher = Hasher::detect().map_err(error::backend)?;
    Ok(sha256d::Verifier::new(hasher, network.network()))
}

/// Verifies blocks against their headers: Merkle root without duplicated transactions (CVE-2012-2459),
/// coinbase, witness commitment and proof of work. This is not full validation.
#[pyclass(module = "packetlane")]
pub(crate) struct Verifier {
    inner: sha256d::Verifier,
}

/// The result of ``Verifier.verify`` for a valid block.
#[pyclass(frozen, module = "packetlane")]
pub(crate) struct BlockSummary {
    /// The block hash, in the byte order of SHA-256's output.
    #[pyo3(get)]
    hash: Py<PyBytes>,
    /// The number of transactions.
    #[pyo3(get)]
    transactions: usize,
    /// How many of them are 64 bytes long without witnesses, like two nodes of the Merkle tree
    /// (CVE-2017-12842).
    #[pyo3(get)]
    transactions_of_64_bytes: usize,
}

#[pymethods]
impl Verifier {
    /// An unknown magic is treated as a custom signet.
    #[new]
    #[pyo3(signature = (network=Magic::MAIN), text_signature = "(network='main')")]
    fn new(network: Magic) -> PyResult<Self> {
        let inner = verifier(network)?;
        Ok(Self { inner })
    }

    /// Checks that ``block`` is exactly one block and verifies it. Raises ``BlockError`` with all faults.
    /// Releases the GIL for long blocks.
    fn verify(&mut self, block: &Bound<'_, PyAny>) -> PyResult<BlockSummary> {
        let py = block.py();
        let verified = Input::new(block)?.with(py, |bytes| {
            with_others(py, bytes.len(), || self.inner.verify(bytes))
        })?;
        let summary = verified.map_err(|faults| {
            let faults: Vec<String> = faults.iter().map(BlockFault::to_string).collect();
            BlockError::new_err(faults.join("; "))
        })?;
        Ok(BlockSummary {
            hash: PyBytes::new(py, &summary.hash).unbind(),
            transactions: summary.transactions,
            transactions_of_64_bytes: summary.transactions_of_64_bytes,
        })
    }
}

/// Finds the blocks in a block file of Bitcoin Core. ``key`` is the content of ``xor.dat``.
#[pyclass(module = "packetlane")]
pub(crate) struct Scanner {
    inner: sha256d::Scanner,
    obfuscation: Obfuscation,
    /// Bytes that the scanner has not consumed.
    buffer: Vec<u8>,
    /// The offset of the next bytes fed.
    position: u64,
}

/// An offset, and the block there or a ``BlockError``.
type Item<'py> = (u64, Bound<'py, PyAny>);

#[pymethods]
impl Scanner {
    #[new]
    #[pyo3(
        signature = (network=Magic::MAIN, *, key=None),
        text_signature = "(network='main', *, key=None)"
    )]
    fn new(py: Python<'_>, network: Magic, key: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let key = key.map(|key| Input::new(key)?.to_vec(py)).transpose()?;
        let key = key.unwrap_or_else(|| vec![0; 8]);
        let key = <[u8; 8]>::try_from(key).map_err(|key| {
            PyValueError::new_err(format!("a key has 8 bytes, not {}", key.len()))
        })?;
        let obfuscation = Obfuscation(key);
        Ok(Self {
            inner: sha256d::Scanner::new(network.0, obfuscation, verifier(network)?),
            obfuscation,
            buffer: Vec::new(),
            position: 0,
        })
    }

    /// Takes the next bytes of the file and returns the blocks completed by them, each as its offset and
    /// its bytes, unverified. Bytes that are not a block give an offset and a ``BlockError``.
    fn feed<'py>(&mut self, data: &Bound<'py, PyAny>) -> PyResult<Vec<Item<'py>>> {
        let py = data.py();
        let before = self.buffer.len();
        let buffer = &mut self.buffer;
        Input::new(data)?.with(py, |data| buffer.extend_from_slice(data))?;
        let new = &mut buffer[before..];
        self.obfuscation.apply(self.position, new);
        self.position += new.len() as u64;
        self.scan(py, false)
    }

    /// Returns what is left at the end of the file.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<Item<'py>>> {
        self.scan(py, true)
    }
}

impl Scanner {
    fn scan<'py>(&mut self, py: Python<'py>, ends: bool) -> PyResult<Vec<Item<'py>>> {
        let mut items = Vec::new();
        let mut rest = &self.buffer[..];
        while let Some(found) = self.inner.next(&mut rest, ends) {
            items.push(match found {
                Frame::Block { offset, bytes } => (offset, PyBytes::new(py, bytes).into_any()),
                Frame::Fault(fault) => {
                    let error = BlockError::new_err(fault.to_string());
                    (fault.offset, error.into_value(py).into_bound(py).into_any())
                }
            });
        }
        let consumed = self.buffer.len() - rest.len();
        self.buffer.drain(..consumed);
        Ok(items)
    }
}
