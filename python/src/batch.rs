//! Batches, the engine that runs them, and views of their arenas.
//!
//! A view is a `memoryview` of a [`View`], which counts its exports in the batch. While an export exists,
//! changing the batch raises `BufferError`, as `bytearray` does. So a view never shows memory that has
//! moved or bytes that have changed.

use crate::error;
use packetlane::{OpenBatch as Opening, SealBatch as Sealing};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Seals and opens batches with one backend of this CPU.
///
/// ``Engine()`` selects the best backend, or the one named by the environment variable
/// PACKETLANE_BACKEND. ``Engine("portable")`` selects a backend by name.
#[pyclass(frozen, module = "packetlane")]
pub(crate) struct Engine {
    pub(crate) inner: packetlane::Engine,
}

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (backend=None))]
    fn new(backend: Option<&str>) -> PyResult<Self> {
        let inner = match backend {
            Some(name) => packetlane::Engine::named(name),
            None => packetlane::Engine::detect(),
        };
        let inner = inner.map_err(error::backend)?;
        Ok(Self { inner })
    }

    /// The name of the backend.
    #[getter]
    fn backend(&self) -> &'static str {
        self.inner.backend().name()
    }

    /// Seals all unsealed packets of the batch. Releases the GIL.
    fn seal(&self, py: Python<'_>, batch: &Bound<'_, SealBatch>) -> PyResult<()> {
        let mut batch = batch.try_borrow_mut()?;
        let batch = batch.state.change()?;
        py.detach(|| self.inner.seal(batch));
        Ok(())
    }

    /// Opens all unopened packets of the batch. Releases the GIL.
    fn open(&self, py: Python<'_>, batch: &Bound<'_, OpenBatch>) -> PyResult<()> {
        let mut batch = batch.try_borrow_mut()?;
        let batch = batch.state.change()?;
        py.detach(|| self.inner.open(batch));
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!("Engine({:?})", self.inner.backend().name())
    }
}

/// A batch and the number of its views.
pub(crate) struct State<Batch> {
    batch: Batch,
    /// Shared with the views, which may end at any time, even while the batch is borrowed.
    views: Arc<AtomicUsize>,
    /// How often the batch was borrowed mutably.
    changes: u64,
}

impl<Batch: Default> Default for State<Batch> {
    fn default() -> Self {
        Self {
            batch: Batch::default(),
            views: Arc::default(),
            changes: 0,
        }
    }
}

impl<Batch> State<Batch> {
    /// Borrows the batch mutably.
    ///
    /// # Errors
    ///
    /// `BufferError` if views of it exist.
    pub(crate) fn change(&mut self) -> PyResult<&mut Batch> {
        // No view can begin during the borrow, because beginning one borrows the batch too.
        match self.views.load(Ordering::Acquire) {
            0 => {
                self.changes += 1;
                Ok(&mut self.batch)
            }
            views => Err(error::viewed(views)),
        }
    }

    pub(crate) fn get(&self) -> &Batch {
        &self.batch
    }

    /// Creates a view of bytes of the arena.
    fn view(&self, bytes: &[u8], of: Whose) -> View {
        View {
            start: bytes.as_ptr().expose_provenance(),
            len: bytes.len(),
            changes: self.changes,
            views: Arc::clone(&self.views),
            of,
        }
    }
}

/// Packets to seal, from any number of sessions. ``len()`` is the number of packets.
#[pyclass(module = "packetlane")]
#[derive(Default)]
pub(crate) struct SealBatch {
    pub(crate) state: State<Sealing>,
}

#[pymethods]
impl SealBatch {
    /// A batch of this many bytes is as fast as batches get.
    #[classattr]
    const ENOUGH_BYTES: usize = Sealing::ENOUGH_BYTES;

    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// The sealed packets of a slot, as a view into the arena. The batch cannot change until the view
    /// is released.
    fn wire<'py>(slf: &Bound<'py, Self>, slot: &Slot) -> PyResult<Bound<'py, PyMemoryView>> {
        let view = {
            let batch = slf.try_borrow()?;
            let bytes = batch.state.get().wire(&slot.inner).map_err(error::slot)?;
            let of = Whose::Seal(slf.clone().unbind());
            batch.state.view(bytes, of)
        };
        PyMemoryView::from(Bound::new(slf.py(), view)?.as_any())
    }

    /// The sealed packets of several slots, concatenated, as ``bytes``.
    fn wire_bytes<'py>(
        &self,
        py: Python<'py>,
        slots: Vec<PyRef<'py, Slot>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let pieces = slots.iter().map(|slot| self.state.get().wire(&slot.inner));
        let pieces: Vec<&[u8]> = pieces.collect::<Result<_, _>>().map_err(error::slot)?;
        if let [one] = pieces[..] {
            return Ok(PyBytes::new(py, one));
        }
        let len = pieces.iter().map(|piece| piece.len()).sum();
        PyBytes::new_with(py, len, |mut rest| {
            for piece in pieces {
                let (place, behind) = rest.split_at_mut(piece.len());
                place.copy_from_slice(piece);
                rest = behind;
            }
            Ok(())
        })
    }

    /// Empties the batch for the next turn: drops all packets, wipes their keys, keeps the memory.
    fn clear(&mut self) -> PyResult<()> {
        self.state.change()?.clear();
        Ok(())
    }

    /// The number of arena bytes in use.
    #[getter]
    fn bytes_used(&self) -> usize {
        self.state.get().bytes_used()
    }

    fn __len__(&self) -> usize {
        self.state.get().len()
    }
}

/// Packets to open, from any number of sessions. ``len()`` is the number of packets.
#[pyclass(module = "packetlane")]
#[derive(Default)]
pub(crate) struct OpenBatch {
    pub(crate) state: State<Opening>,
}

impl OpenBatch {
    /// Creates a view of bytes of the arena.
    pub(crate) fn view<'py>(
        &self,
        of: &Bound<'py, Self>,
        bytes: &[u8],
    ) -> PyResult<Bound<'py, View>> {
        let view = self.state.view(bytes, Whose::Open(of.clone().unbind()));
        Bound::new(of.py(), view)
    }
}

#[pymethods]
impl OpenBatch {
    /// A batch of this many bytes is as fast as batches get.
    #[classattr]
    const ENOUGH_BYTES: usize = Opening::ENOUGH_BYTES;

    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Empties the batch for the next turn: drops all packets, wipes their keys, keeps the memory.
    fn clear(&mut self) -> PyResult<()> {
        self.state.change()?.clear();
        Ok(())
    }

    /// The number of arena bytes in use.
    #[getter]
    fn bytes_used(&self) -> usize {
        self.state.get().bytes_used()
    }

    fn __len__(&self) -> usize {
        self.state.get().len()
    }
}

/// The place of adjacent packets of one session in a ``SealBatch``, valid until the batch is cleared.
/// ``len()`` is their length on the wire, in bytes.
#[pyclass(frozen, module = "packetlane")]
pub(crate) struct Slot {
    pub(crate) inner: packetlane::Slot,
}

#[pymethods]
impl Slot {
    /// One slot for both, or ``None`` unless ``next`` is of the same session and begins where this one ends.
    fn join(&self, next: &Self) -> Option<Self> {
        let inner = self.inner.join(&next.inner)?;
        Some(Self { inner })
    }

    fn __len__(&self) -> usize {
        self.inner.wire_len()
    }
}

/// The batch whose arena a view shows. Keeps the batch alive.
enum Whose {
    Seal(Py<SealBatch>),
    Open(Py<OpenBatch>),
}

/// The exporter behind a `memoryview` of a batch.
#[pyclass(frozen, module = "packetlane", name = "_View")]
pub(crate) struct View {
    /// Address of the first byte.
    start: usize,
    len: usize,
    /// The batch's `changes` when the view was taken.
    changes: u64,
    /// The number of views of the batch.
    views: Arc<AtomicUsize>,
    of: Whose,
}

#[pymethods]
impl View {
    #[allow(unsafe_code, reason = "the buffer protocol uses raw pointers")]
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        buffer: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let view = slf.get();
        // CPython requires this of an exporter that fails.
        // SAFETY: CPython passes a `Py_buffer` to fill.
        unsafe { (*buffer).obj = std::ptr::null_mut() };
        // While the batch is borrowed, it cannot change.
        let (sealed, opened);
        let changes = match &view.of {
            Whose::Seal(batch) => {
                sealed = batch.try_borrow(slf.py()).map_err(busy)?;
                sealed.state.changes
            }
            Whose::Open(batch) => {
                opened = batch.try_borrow(slf.py()).map_err(busy)?;
                opened.state.changes
            }
        };
        if changes != view.changes {
            return Err(error::stale());
        }
        let len = ffi::Py_ssize_t::try_from(view.len)?;
        let start = std::ptr::with_exposed_provenance_mut(view.start);
        // SAFETY: CPython passes a `Py_buffer` to fill. `start` and `len` describe a slice of the
        // batch's arena. The batch has not changed since, and cannot change while `views` is not 0,
        // which is incremented before the borrow ends. `view.of` keeps the batch alive, and the
        // buffer holds a reference to `slf`. The buffer is read-only.
        let done = unsafe { ffi::PyBuffer_FillInfo(buffer, slf.as_ptr(), start, len, 1, flags) };
        if done != 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        view.views.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    #[allow(unsafe_code, reason = "the buffer protocol uses raw pointers")]
    unsafe fn __releasebuffer__(&self, _buffer: *mut ffi::Py_buffer) {
        self.views.fetch_sub(1, Ordering::AcqRel);
    }
}

fn busy(error: pyo3::pycell::PyBorrowError) -> PyErr {
    PyBufferError::new_err(error.to_string())
}
