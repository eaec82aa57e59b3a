//! Plain copies between host and device: the upper bound of any batch's speed.

use crate::driver::{DeviceMemory, PinnedMemory, Stream};
use crate::error::GpuError;
use crate::gpu::Gpu;
use std::time::Instant;

/// The direction of a plain copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyDirection {
    /// From page-locked memory to the device.
    ToDevice,
    /// From the device to page-locked memory.
    FromDevice,
    /// Both at once, with equally many bytes in each direction.
    Both,
}

/// Memory for plain copies.
pub struct Copies<'g> {
    gpu: &'g Gpu,
    streams: [Stream; 2],
    host: [PinnedMemory; 2],
    device: [DeviceMemory; 2],
    len: usize,
}

impl Gpu {
    /// Allocates memory for plain copies of `len` bytes.
    ///
    /// # Errors
    ///
    /// If the device fails or has failed, or has too little memory.
    pub fn copies(&self, len: usize) -> Result<Copies<'_>, GpuError> {
        self.usable()?;
        let stream = || Stream::new(self.driver());
        let host = || PinnedMemory::new(self.driver(), len.max(1));
        let device = || DeviceMemory::new(self.driver(), len.max(1));
        let taken = || {
            Ok(Copies {
                gpu: self,
                streams: [stream()?, stream()?],
                host: [host()?, host()?],
                device: [device()?, device()?],
                len,
            })
        };
        self.note(taken())
    }
}

impl Copies<'_> {
    /// Copies once. Returns the time it takes in seconds, by the CPU's clock, from before the copy
    /// is queued until it is known to be done.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn time(&mut self, direction: CopyDirection) -> Result<f64, GpuError> {
        let begin = Instant::now();
        let added = self.add(direction);
        // Waits for whatever was queued, before the memory may be freed.
        let done = self.streams.each_ref().map(Stream::wait);
        let done = done.into_iter().fold(added, Result::and);
        let seconds = begin.elapsed().as_secs_f64();
        self.gpu.note(done).map(|()| seconds)
    }

    fn add(&self, direction: CopyDirection) -> Result<(), GpuError> {
        let driver = self.gpu.driver();
        let [to, from] = &self.streams;
        if direction != CopyDirection::FromDevice {
            let (at, host) = (self.device[0].at(), self.host[0].pointer());
            // SAFETY: both have this length, and `time` waits, also after an error.
            unsafe { driver.copy_in(to.handle(), at, host, self.len)? };
        }
        if direction != CopyDirection::ToDevice {
            let (at, host) = (self.device[1].at(), self.host[1].pointer());
            // SAFETY: as above.
            unsafe { driver.copy_out(from.handle(), host, at, self.len)? };
        }
        Ok(())
    }
}
