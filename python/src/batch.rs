//! Batches, the engine that runs them, and views of their arenas.
//!
//! A view is a `memoryview` of a [`View`], which counts its exports in the batch. As long as there
//! is one, the batch refuses to change (`BufferError`, as `bytearray` does): so no view shows
//! memory that has moved, or other bytes than when it was taken.

use crate::error;
use packetlane::{OpenBatch as Opening, SealBatch as Sealing};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Seals and opens batches on one backend of this CPU.
///
/// ``Engine()`` takes the best backend, or the one that PACKETLANE_BACKEND names;
/// ``Engine("portable")`` takes that one.
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

    /// The backend's name.
    #[getter]
    fn backend(&self) -> &'static str {
        self.inner.backend().name()
    }

    /// Seals every packet of the batch that waits. Other threads run meanwhile.
    fn seal(&self, py: Python<'_>, batch: &Bound<'_, SealBatch>) -> PyResult<()> {
        let mut batch = batch.try_borrow_mut()?;
        let batch = batch.state.change()?;
        py.detach(|| self.inner.seal(batch));
        Ok(())
    }

    /// Opens every packet of the batch that waits. Other threads run meanwhile.
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

/// A batch, and what views of it there are.
pub(crate) struct State<Batch> {
    batch: Batch,
    /// Shared with the views, which end at any time: also while the batch is borrowed.
    views: Arc<AtomicUsize>,
    /// How often the batch was borrowed to be changed.
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
    /// The batch, to change it.
    ///
    /// # Errors
    ///
    /// `BufferError` if there are views of it.
    pub(crate) fn change(&mut self) -> PyResult<&mut Batch> {
        // No view begins meanwhile: for that it would have to borrow what is borrowed here.
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

    /// A view of bytes of the arena.
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

/// Packets to seal, of any number of sessions. ``len()`` says how many.
#[pyclass(module = "packetlane")]
#[derive(Default)]
pub(crate) struct SealBatch {
    pub(crate) state: State<Sealing>,
}

#[pymethods]
impl SealBatch {
    /// From so many bytes on, more packets make no batch faster.
    #[classattr]
    const ENOUGH_BYTES: usize = Sealing::ENOUGH_BYTES;

    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// The sealed packets of a slot, as a view into the arena. Until it is released the batch
    /// refuses to change.
    fn wire<'py>(slf: &Bound<'py, Self>, slot: &Slot) -> PyResult<Bound<'py, PyMemoryView>> {
        let view = {
            let batch = slf.try_borrow()?;
            let bytes = batch.state.get().wire(&slot.inner).map_err(error::slot)?;
            let of = Whose::Seal(slf.clone().unbind());
            batch.state.view(bytes, of)
        };
        PyMemoryView::from(Bound::new(slf.py(), view)?.as_any())
    }

    /// The sealed packets of many slots as ``bytes``, one after the other.
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

    /// Begins a new turn: forgets all packets, wipes their keys, keeps the memory.
    fn clear(&mut self) -> PyResult<()> {
        self.state.change()?.clear();
        Ok(())
    }

    /// How many bytes of the arena are taken.
    #[getter]
    fn bytes_used(&self) -> usize {
        self.state.get().bytes_used()
    }

    fn __len__(&self) -> usize {
        self.state.get().len()
    }
}

/// Packets to open, of any number of sessions. ``len()`` says how many.
#[pyclass(module = "packetlane")]
#[derive(Default)]
pub(crate) struct OpenBatch {
    pub(crate) state: State<Opening>,
}

impl OpenBatch {
    /// A view of bytes of the arena.
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
    /// From so many bytes on, more packets make no batch faster.
    #[classattr]
    const ENOUGH_BYTES: usize = Opening::ENOUGH_BYTES;

    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Begins a new turn: forgets all packets, wipes their keys, keeps the memory.
    fn clear(&mut self) -> PyResult<()> {
        self.state.change()?.clear();
        Ok(())
    }

    /// How many bytes of the arena are taken.
    #[getter]
    fn bytes_used(&self) -> usize {
        self.state.get().bytes_used()
    }

    fn __len__(&self) -> usize {
        self.state.get().len()
    }
}

/// Where packets of one session lie in a ``SealBatch``, until it is cleared. ``len()`` is their
/// length on the wire, in bytes.
#[pyclass(frozen, module = "packetlane")]
pub(crate) struct Slot {
    pub(crate) inner: packetlane::Slot,
}

#[pymethods]
impl Slot {
    /// One slot of two, if ``next`` is of the same session and begins where this one ends.
    fn join(&self, next: &Self) -> Option<Self> {
        let inner = self.inner.join(&next.inner)?;
        Some(Self { inner })
    }

    fn __len__(&self) -> usize {
        self.inner.wire_len()
    }
}

/// Whose arena a view shows. It keeps the batch alive.
enum Whose {
    Seal(Py<SealBatch>),
    Open(Py<OpenBatch>),
}

/// What a `memoryview` of a batch is of.
#[pyclass(frozen, module = "packetlane", name = "_View")]
pub(crate) struct View {
    /// The address of its first byte.
    start: usize,
    len: usize,
    /// The batch's, when the view was taken.
    changes: u64,
    /// How many views of the batch there are.
    views: Arc<AtomicUsize>,
    of: Whose,
}

#[pymethods]
impl View {
    #[allow(unsafe_code, reason = "the buffer protocol is one of pointers")]
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        buffer: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let view = slf.get();
        // What CPython asks of an exporter that refuses.
        // SAFETY: CPython passes a `Py_buffer` to fill.
        unsafe { (*buffer).obj = std::ptr::null_mut() };
        // As long as the batch is borrowed, nobody changes it.
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
        // SAFETY: CPython passes a `Py_buffer` to fill. The batch has not changed since `start`
        // and `len` were those of a slice of its arena, and does not as long as `views`, which
        // is counted up before the borrow ends, is not 0. `view.of` keeps it alive, and the
        // buffer has a reference to `slf`. The buffer is read-only.
        let done = unsafe { ffi::PyBuffer_FillInfo(buffer, slf.as_ptr(), start, len, 1, flags) };
        if done != 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        view.views.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    #[allow(unsafe_code, reason = "the buffer protocol is one of pointers")]
    unsafe fn __releasebuffer__(&self, _buffer: *mut ffi::Py_buffer) {
        self.views.fetch_sub(1, Ordering::AcqRel);
    }
}

fn busy(error: pyo3::pycell::PyBorrowError) -> PyErr {
    PyBufferError::new_err(error.to_string())
}
