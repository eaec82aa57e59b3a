//! The memory of the emulated device: its allocations, and for each byte the threads that
//! accessed it last, which finds races and reads of bytes that were never written.

use std::fmt;

/// Number of address bits of an allocation: each has 64 GiB of addresses of its own, so that an
/// access with a wrong offset does not hit another allocation.
const SPAN_BITS: u32 = 36;

/// Why an address cannot be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessError {
    /// Some of the bytes are in no allocation, or in one that was freed.
    Outside,
    /// The address is not a multiple of the access's size.
    Misaligned,
    /// A byte is read that was never written.
    Uninitialised,
    /// Another thread of the launch accesses the same byte, and one of the two writes.
    Race,
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AccessError::Outside => "outside every allocation",
            AccessError::Misaligned => "not a multiple of the access's size",
            AccessError::Uninitialised => "read before it is written",
            AccessError::Race => "also accessed by another thread of the launch",
        })
    }
}

/// The memory of the emulated device.
pub struct Memory {
    allocations: Vec<Allocation>,
    /// The last thread number of earlier launches. Numbers continue through all launches, so
    /// that nothing needs to be cleared between two.
    settled: u32,
    /// The thread number that stands for several readers in this launch.
    several: u32,
    trace: u64,
}

#[derive(Default)]
struct Allocation {
    bytes: Vec<u8>,
    touched: Vec<Touched>,
}

/// The threads that last read and wrote a byte; 0 means none.
#[derive(Clone, Copy, Default)]
struct Touched {
    reader: u32,
    writer: u32,
}

/// The thread number of the host, as a writer.
const HOST: u32 = 1;

/// Adds a number to a digest.
#[inline(always)]
pub(crate) fn mix(digest: u64, number: u64) -> u64 {
    (digest.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Default for Memory {
    /// Memory without allocations.
    fn default() -> Self {
        Self {
            allocations: Vec::new(),
            settled: HOST,
            several: HOST,
            trace: 0,
        }
    }
}

impl Memory {
    /// Allocates `len` bytes, which are uninitialised. The address is a multiple of 256.
    pub fn alloc(&mut self, len: usize) -> u64 {
        assert!(
            (len as u64) < 1 << SPAN_BITS,
            "an allocation must be less than 64 GiB, not {len} bytes"
        );
        self.allocations.push(Allocation {
            bytes: vec![0; len],
            touched: vec![Touched::default(); len],
        });
        (self.allocations.len() as u64) << SPAN_BITS
    }

    /// Frees an allocation. Its address is not used again.
    pub fn free(&mut self, address: u64) -> Result<(), AccessError> {
        let (allocation, _) = self.place(address, 0)?;
        self.allocations[allocation] = Allocation::default();
        Ok(())
    }

    /// Copies bytes from the host to the device.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), AccessError> {
        let (allocation, at) = self.place(address, bytes.len())?;
        let allocation = &mut self.allocations[allocation];
        allocation.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        let host = Touched {
            reader: 0,
            writer: HOST,
        };
        allocation.touched[at..at + bytes.len()].fill(host);
        Ok(())
    }

    /// Copies bytes from the device to the host.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), AccessError> {
        let (allocation, at) = self.place(address, bytes.len())?;
        let allocation = &self.allocations[allocation];
        if allocation.touched[at..at + bytes.len()]
            .iter()
            .any(|touched| touched.writer == 0)
        {
            return Err(AccessError::Uninitialised);
        }
        bytes.copy_from_slice(&allocation.bytes[at..at + bytes.len()]);
        Ok(())
    }

    /// The bytes of all current allocations, written or not. Tests search them for secrets that
    /// were not wiped.
    pub fn contents(&self) -> impl Iterator<Item = &[u8]> {
        self.allocations
            .iter()
            .map(|allocation| &allocation.bytes[..])
    }

    /// A digest of the branches and addresses of all threads of all launches. If it depends on
    /// secrets, they leak.
    pub fn trace(&self) -> u64 {
        self.trace
    }

    /// Adds a thread's number and its digest to the trace.
    pub(crate) fn end_thread(&mut self, thread: u32, trace: u64) {
        self.trace = mix(mix(self.trace, thread as u64), trace);
    }

    /// The allocation and offset of `len` bytes at `address`.
    fn place(&self, address: u64, len: usize) -> Result<(usize, usize), AccessError> {
        let span = (address >> SPAN_BITS) as usize;
        // A host with 32 bits has no such offset.
        let at = usize::try_from(address & ((1 << SPAN_BITS) - 1));
        let at = at.map_err(|_| AccessError::Outside)?;
        let end = at.checked_add(len).ok_or(AccessError::Outside)?;
        let place = span.checked_sub(1).ok_or(AccessError::Outside)?;
        match self.allocations.get(place) {
            Some(allocation) if end <= allocation.bytes.len() => Ok((place, at)),
            _ => Err(AccessError::Outside),
        }
    }

    /// Starts a launch of `threads` threads. They are numbered from the returned number + 1.
    pub(crate) fn begin_launch(&mut self, threads: u32) -> u32 {
        self.settled = self.several;
        if threads >= u32::MAX - self.settled {
            // Numbering starts again. All bytes written so far count as the host's.
            for touched in self.allocations.iter_mut().flat_map(|a| &mut a.touched) {
                touched.reader = 0;
                touched.writer = touched.writer.min(HOST);
            }
            self.settled = HOST;
        }
        self.several = self.settled + threads + 1;
        self.settled
    }

    /// A load of `N` bytes by a thread.
    #[inline]
    pub(crate) fn load<const N: usize>(
        &mut self,
        thread: u32,
        address: u64,
    ) -> Result<[u8; N], AccessError> {
        if !address.is_multiple_of(N as u64) {
            return Err(AccessError::Misaligned);
        }
        let (allocation, at) = self.place(address, N)?;
        let (settled, several) = (self.settled, self.several);
        let allocation = &mut self.allocations[allocation];
        for touched in &mut allocation.touched[at..at + N] {
            if touched.writer == 0 {
                return Err(AccessError::Uninitialised);
            }
            if touched.writer > settled && touched.writer != thread {
                return Err(AccessError::Race);
            }
            let first = touched.reader <= settled || touched.reader == thread;
            touched.reader = if first { thread } else { several };
        }
        Ok(allocation.bytes[at..at + N].try_into().expect("N bytes"))
    }

    /// A store of `N` bytes by a thread.
    #[inline]
    pub(crate) fn store<const N: usize>(
        &mut self,
        thread: u32,
        address: u64,
        bytes: [u8; N],
    ) -> Result<(), AccessError> {
        if !address.is_multiple_of(N as u64) {
            return Err(AccessError::Misaligned);
        }
        let (allocation, at) = self.place(address, N)?;
        let settled = self.settled;
        let allocation = &mut self.allocations[allocation];
        for touched in &mut allocation.touched[at..at + N] {
            let mine = |who: u32| who <= settled || who == thread;
            if !mine(touched.writer) || !mine(touched.reader) {
                return Err(AccessError::Race);
            }
            touched.writer = thread;
        }
        allocation.bytes[at..at + N].copy_from_slice(&bytes);
        Ok(())
    }
}
