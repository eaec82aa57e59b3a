//! What the backend asks of a device: memory, copies, launches, events.
//!
//! [`Driver`] is the interface between the pipeline and CUDA. [`Cuda`](crate::Cuda) is the
//! real one; `stand_in` (feature `emulate`) runs on the CPU and fails on demand. Only streams
//! order work: the work of one stream runs in the order in which it was added, the work of two
//! streams in any order.
//!
//! `DeviceMemory`, `PinnedMemory`, `Stream` and `Event` give back on drop what they hold.

use crate::error::GpuError;
use crate::wipe::wipe;
use core::ptr::NonNull;
use std::sync::Arc;

/// An address in the device's memory.
pub type Address = u64;

/// A driver's own number for a stream or an event.
pub type Handle = usize;

/// A parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// A pointer into device memory.
    Pointer(Address),
    /// An unsigned number of 32 bits.
    U32(u32),
}

/// Threads in a block of every launch.
pub const BLOCK_THREADS: u32 = 128;

/// What a device computes with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Processors {
    /// Streaming multiprocessors.
    pub count: u32,
    /// Their highest clock, in cycles per second.
    pub hertz: f64,
}

/// One device.
///
/// # Safety
///
/// Memory that [`alloc_pinned`](Driver::alloc_pinned) returns is zeroed, of the length that
/// was asked for, aligned to 64 bytes or more, and nobody else's until it is given back.
/// [`wait`](Driver::wait) returns `Ok`, and [`is_done`](Driver::is_done) `Ok(true)`, only
/// when nothing reads or writes host memory any more on behalf of that stream's work.
pub unsafe trait Driver: Send + Sync {
    /// The device's name.
    fn name(&self) -> String;

    /// How many bytes of device memory are free, and how many there are.
    ///
    /// # Errors
    ///
    /// If the device fails, as everywhere below.
    fn memory(&self) -> Result<(usize, usize), GpuError>;

    /// How many processors the device has and how fast they are, if it tells.
    fn processors(&self) -> Option<Processors> {
        None
    }

    /// Takes `len` bytes of device memory, aligned to 256.
    fn alloc(&self, len: usize) -> Result<Address, GpuError>;

    /// Gives back what [`alloc`](Driver::alloc) returned.
    ///
    /// # Safety
    ///
    /// No work that waits or runs uses it.
    unsafe fn free(&self, at: Address);

    /// Takes `len` bytes of page-locked host memory, which the CPU's caches hold as any
    /// other.
    fn alloc_pinned(&self, len: usize) -> Result<NonNull<u8>, GpuError>;

    /// Gives back what [`alloc_pinned`](Driver::alloc_pinned) returned.
    ///
    /// # Safety
    ///
    /// No work that waits or runs uses it, and the caller does not any more.
    unsafe fn free_pinned(&self, at: NonNull<u8>);

    /// Makes a stream.
    fn stream(&self) -> Result<Handle, GpuError>;

    /// Gives back a stream.
    ///
    /// # Safety
    ///
    /// It is one of [`stream`](Driver::stream) and not used again.
    unsafe fn free_stream(&self, stream: Handle);

    /// Adds a copy from page-locked memory to the device.
    ///
    /// # Safety
    ///
    /// Both lie within memory of this driver, and until the stream is done nobody writes
    /// the source or gives either back.
    unsafe fn copy_in(
        &self,
        stream: Handle,
        to: Address,
        from: *const u8,
        len: usize,
    ) -> Result<(), GpuError>;

    /// Adds a copy from the device to page-locked memory.
    ///
    /// # Safety
    ///
    /// Both lie within memory of this driver, and until the stream is done nobody reads or
    /// writes the destination or gives either back.
    unsafe fn copy_out(
        &self,
        stream: Handle,
        to: *mut u8,
        from: Address,
        len: usize,
    ) -> Result<(), GpuError>;

    /// Adds a copy within the device's memory.
    ///
    /// # Safety
    ///
    /// Both lie within memory of this driver, which nobody gives back before the stream is
    /// done, and do not overlap.
    unsafe fn copy_within(
        &self,
        stream: Handle,
        to: Address,
        from: Address,
        len: usize,
    ) -> Result<(), GpuError>;

    /// Adds the filling of device memory with zeros.
    ///
    /// # Safety
    ///
    /// It lies within memory of this driver, which nobody gives back before the stream is
    /// done.
    unsafe fn zero(&self, stream: Handle, at: Address, len: usize) -> Result<(), GpuError>;

    /// Adds a launch of the kernel `entry` on `blocks` blocks of [`BLOCK_THREADS`] threads.
    ///
    /// # Safety
    ///
    /// The parameters are the kernel's, in order, and what it reads and writes by them lies
    /// within memory of this driver, which nobody gives back before the stream is done.
    unsafe fn launch(
        &self,
        stream: Handle,
        entry: &'static str,
        blocks: u32,
        args: &[Arg],
    ) -> Result<(), GpuError>;

    /// Whether all work of a stream is done.
    ///
    /// # Safety
    ///
    /// The stream is this driver's.
    unsafe fn is_done(&self, stream: Handle) -> Result<bool, GpuError>;

    /// Waits for all work of a stream.
    ///
    /// # Safety
    ///
    /// The stream is this driver's.
    unsafe fn wait(&self, stream: Handle) -> Result<(), GpuError>;

    /// Makes an event.
    fn event(&self) -> Result<Handle, GpuError>;

    /// Gives back an event.
    ///
    /// # Safety
    ///
    /// It is one of [`event`](Driver::event) and not used again.
    unsafe fn free_event(&self, event: Handle);

    /// Adds an event: it notes when the stream's work before it is done.
    ///
    /// # Safety
    ///
    /// Stream and event are this driver's.
    unsafe fn record(&self, stream: Handle, event: Handle) -> Result<(), GpuError>;

    /// Seconds between two events that have been.
    ///
    /// # Safety
    ///
    /// Both are this driver's.
    unsafe fn seconds(&self, from: Handle, to: Handle) -> Result<f64, GpuError>;
}

/// A driver that several things hold.
pub(crate) type Shared = Arc<dyn Driver>;

/// Device memory.
pub(crate) struct DeviceMemory {
    driver: Shared,
    at: Address,
    len: usize,
}

impl DeviceMemory {
    pub(crate) fn new(driver: &Shared, len: usize) -> Result<Self, GpuError> {
        let at = driver.alloc(len)?;
        Ok(Self {
            driver: driver.clone(),
            at,
            len,
        })
    }

    /// Its address.
    pub(crate) fn at(&self) -> Address {
        self.at
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: it is ours, and who has added work on it has waited for that (or the
        // device is lost, and nothing runs any more).
        unsafe { self.driver.free(self.at) };
    }
}

/// Page-locked host memory. Wiped on drop.
pub(crate) struct PinnedMemory {
    driver: Shared,
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns the memory, as a box would.
unsafe impl Send for PinnedMemory {}
// SAFETY: as above; a shared reference only reads.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    pub(crate) fn new(driver: &Shared, len: usize) -> Result<Self, GpuError> {
        let at = driver.alloc_pinned(len)?;
        Ok(Self {
            driver: driver.clone(),
            at,
            len,
        })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `Driver` promises so many initialised bytes that are ours alone. That no
        // work writes them meanwhile is for who adds such work.
        unsafe { core::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { core::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }

    /// Whether it is memory of `driver`.
    pub(crate) fn is_of(&self, driver: &Shared) -> bool {
        Arc::ptr_eq(&self.driver, driver)
    }

    /// For copies, which happen while nobody holds a reference.
    pub(crate) fn pointer(&self) -> *mut u8 {
        self.at.as_ptr()
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        wipe(self.bytes_mut());
        // SAFETY: it is ours, and who has added work on it has waited for that (or the
        // device is lost, and nothing runs any more).
        unsafe { self.driver.free_pinned(self.at) };
    }
}

/// A stream.
pub(crate) struct Stream {
    driver: Shared,
    handle: Handle,
}

impl Stream {
    pub(crate) fn new(driver: &Shared) -> Result<Self, GpuError> {
        let handle = driver.stream()?;
        Ok(Self {
            driver: driver.clone(),
            handle,
        })
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// Whether all of its work is done.
    pub(crate) fn is_done(&self) -> Result<bool, GpuError> {
        // SAFETY: it is this driver's.
        unsafe { self.driver.is_done(self.handle) }
    }

    /// Waits for all of its work.
    pub(crate) fn wait(&self) -> Result<(), GpuError> {
        // SAFETY: it is this driver's.
        unsafe { self.driver.wait(self.handle) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: it is ours.
        unsafe { self.driver.free_stream(self.handle) };
    }
}

/// An event.
pub(crate) struct Event {
    driver: Shared,
    handle: Handle,
}

impl Event {
    pub(crate) fn new(driver: &Shared) -> Result<Self, GpuError> {
        let handle = driver.event()?;
        Ok(Self {
            driver: driver.clone(),
            handle,
        })
    }

    /// Adds it to a stream.
    pub(crate) fn record(&self, stream: &Stream) -> Result<(), GpuError> {
        // SAFETY: both are of the one driver of this `Gpu`.
        unsafe { self.driver.record(stream.handle, self.handle) }
    }

    /// Seconds from this event to `later`.
    pub(crate) fn seconds_to(&self, later: &Event) -> Result<f64, GpuError> {
        // SAFETY: both are of the one driver of this `Gpu`.
        unsafe { self.driver.seconds(self.handle, later.handle) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: it is ours.
        unsafe { self.driver.free_event(self.handle) };
    }
}
