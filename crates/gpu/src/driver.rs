//! The device interface: memory, copies, launches, events.
//!
//! [`Driver`] is the interface between the pipeline and a device. [`Cuda`](crate::Cuda)
//! implements it with CUDA; the tests have a device that runs on the CPU and fails on demand.
//! Commands of one stream run in the order in which they were added. Commands of two streams run
//! in any order.
//!
//! `DeviceMemory`, `PinnedMemory`, `Stream` and `Event` release their resources on drop.

use crate::error::GpuError;
use crate::wipe::wipe;
use core::ptr::NonNull;
use std::sync::Arc;

/// An address in device memory.
pub type Address = u64;

/// The driver's handle of a stream or an event.
pub type Handle = usize;

/// A kernel's parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// A pointer into device memory.
    Pointer(Address),
    /// An unsigned 32-bit number.
    U32(u32),
}

/// Threads per block, in every launch.
pub const BLOCK_THREADS: u32 = 128;

/// A device's processors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Processors {
    /// Number of streaming multiprocessors.
    pub count: u32,
    /// Their maximum clock, in Hz.
    pub hertz: f64,
}

/// One device.
///
/// # Safety
///
/// Memory from [`alloc_pinned`](Driver::alloc_pinned) is zeroed, has the requested length, is
/// aligned to at least 64 bytes, and is not used by anyone else until it is freed.
/// [`wait`](Driver::wait) returns `Ok`, and [`is_done`](Driver::is_done) `Ok(true)`, only when
/// that stream's commands no longer read or write host memory.
pub unsafe trait Driver: Send + Sync {
    /// The device's name.
    fn name(&self) -> String;

    /// Device memory in bytes: free, total.
    ///
    /// # Errors
    ///
    /// If the device fails. This holds for all methods below.
    fn memory(&self) -> Result<(usize, usize), GpuError>;

    /// The number of processors and their clock, if the device reports them.
    fn processors(&self) -> Option<Processors> {
        None
    }

    /// Allocates `len` bytes of device memory, aligned to 256 bytes.
    fn alloc(&self, len: usize) -> Result<Address, GpuError>;

    /// Frees memory from [`alloc`](Driver::alloc).
    ///
    /// # Safety
    ///
    /// No queued or running command uses it.
    unsafe fn free(&self, at: Address);

    /// Allocates `len` bytes of page-locked host memory, which the CPU caches like any other
    /// memory.
    fn alloc_pinned(&self, len: usize) -> Result<NonNull<u8>, GpuError>;

    /// Frees memory from [`alloc_pinned`](Driver::alloc_pinned).
    ///
    /// # Safety
    ///
    /// No queued or running command uses it, and the caller no longer uses it.
    unsafe fn free_pinned(&self, at: NonNull<u8>);

    /// Creates a stream.
    fn stream(&self) -> Result<Handle, GpuError>;

    /// Destroys a stream.
    ///
    /// # Safety
    ///
    /// It is from [`stream`](Driver::stream) and is not used again.
    unsafe fn free_stream(&self, stream: Handle);

    /// Queues a copy from page-locked memory to the device.
    ///
    /// # Safety
    ///
    /// Both ranges are in memory of this driver. Until the stream is done, nobody writes the
    /// source or frees either memory.
    unsafe fn copy_in(
        &self,
        stream: Handle,
        to: Address,
        from: *const u8,
        len: usize,
    ) -> Result<(), GpuError>;

    /// Queues a copy from the device to page-locked memory.
    ///
    /// # Safety
    ///
    /// Both ranges are in memory of this driver. Until the stream is done, nobody reads or
    /// writes the destination or frees either memory.
    unsafe fn copy_out(
        &self,
        stream: Handle,
        to: *mut u8,
        from: Address,
        len: usize,
    ) -> Result<(), GpuError>;

    /// Queues a copy within device memory.
    ///
    /// # Safety
    ///
    /// Both ranges are in memory of this driver and do not overlap. Nobody frees the memory
    /// before the stream is done.
    unsafe fn copy_within(
        &self,
        stream: Handle,
        to: Address,
        from: Address,
        len: usize,
    ) -> Result<(), GpuError>;

    /// Queues filling device memory with zeros.
    ///
    /// # Safety
    ///
    /// The range is in memory of this driver. Nobody frees the memory before the stream is
    /// done.
    unsafe fn zero(&self, stream: Handle, at: Address, len: usize) -> Result<(), GpuError>;

    /// Queues a launch of the kernel `entry` with `blocks` blocks of [`BLOCK_THREADS`] threads.
    ///
    /// # Safety
    ///
    /// The parameters are the kernel's, in order. What the kernel reads and writes through them
    /// is in memory of this driver, which nobody frees before the stream is done.
    unsafe fn launch(
        &self,
        stream: Handle,
        entry: &'static str,
        blocks: u32,
        args: &[Arg],
    ) -> Result<(), GpuError>;

    /// Whether all commands of a stream are done.
    ///
    /// # Safety
    ///
    /// The stream is this driver's.
    unsafe fn is_done(&self, stream: Handle) -> Result<bool, GpuError>;

    /// Waits until all commands of a stream are done.
    ///
    /// # Safety
    ///
    /// The stream is this driver's.
    unsafe fn wait(&self, stream: Handle) -> Result<(), GpuError>;

    /// Creates an event.
    fn event(&self) -> Result<Handle, GpuError>;

    /// Destroys an event.
    ///
    /// # Safety
    ///
    /// It is from [`event`](Driver::event) and is not used again.
    unsafe fn free_event(&self, event: Handle);

    /// Queues an event, which records the time when the stream reaches it.
    ///
    /// # Safety
    ///
    /// Stream and event are this driver's.
    unsafe fn record(&self, stream: Handle, event: Handle) -> Result<(), GpuError>;

    /// The time between two recorded events, in seconds.
    ///
    /// # Safety
    ///
    /// Both are this driver's.
    unsafe fn seconds(&self, from: Handle, to: Handle) -> Result<f64, GpuError>;
}

/// A driver with shared ownership.
pub(crate) type Shared = Arc<dyn Driver>;

/// Device memory. Freed on drop.
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

    /// Its length, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: This value owns the memory. Code that queued commands on it has waited for them,
        // or the device is lost and runs nothing.
        unsafe { self.driver.free(self.at) };
    }
}

/// Page-locked host memory. Wiped and freed on drop.
pub(crate) struct PinnedMemory {
    driver: Shared,
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: This value owns the memory, like a `Box`.
unsafe impl Send for PinnedMemory {}
// SAFETY: As above. A shared reference only reads.
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
        // SAFETY: `Driver` guarantees `len` initialised bytes that only this value uses. Code that
        // queues a command that writes them holds no reference meanwhile.
        unsafe { core::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { core::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }

    /// Whether this is memory of `driver`.
    pub(crate) fn is_of(&self, driver: &Shared) -> bool {
        Arc::ptr_eq(&self.driver, driver)
    }

    /// The address for copies, which run while nobody holds a reference.
    pub(crate) fn pointer(&self) -> *mut u8 {
        self.at.as_ptr()
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        wipe(self.bytes_mut());
        // SAFETY: This value owns the memory. Code that queued commands on it has waited for them,
        // or the device is lost and runs nothing.
        unsafe { self.driver.free_pinned(self.at) };
    }
}

/// A stream. Destroyed on drop.
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

    /// Whether all of its commands are done.
    pub(crate) fn is_done(&self) -> Result<bool, GpuError> {
        // SAFETY: The stream is this driver's.
        unsafe { self.driver.is_done(self.handle) }
    }

    /// Waits until all of its commands are done.
    pub(crate) fn wait(&self) -> Result<(), GpuError> {
        // SAFETY: The stream is this driver's.
        unsafe { self.driver.wait(self.handle) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: This value owns the stream.
        unsafe { self.driver.free_stream(self.handle) };
    }
}

/// An event. Destroyed on drop.
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

    /// Queues the event in a stream.
    pub(crate) fn record(&self, stream: &Stream) -> Result<(), GpuError> {
        // SAFETY: A `Gpu` has one driver, and both are that driver's.
        unsafe { self.driver.record(stream.handle, self.handle) }
    }

    /// The time from this event to `later`, in seconds.
    pub(crate) fn seconds_to(&self, later: &Event) -> Result<f64, GpuError> {
        // SAFETY: A `Gpu` has one driver, and both are that driver's.
        unsafe { self.driver.seconds(self.handle, later.handle) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: This value owns the event.
        unsafe { self.driver.free_event(self.handle) };
    }
}
