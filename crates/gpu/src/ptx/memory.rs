//! Global memory: allocations behind addresses, and for each byte who touched it.

use std::fmt;

/// Each allocation has 64 GiB of addresses to itself, so that one that is left by a wrong
/// offset is not another.
const SPAN_BITS: u32 = 36;

/// Why an address cannot be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessError {
    /// Some of the bytes are in no allocation, or in one that was freed.
    Outside,
    /// The address is not a multiple of the access's length.
    Misaligned,
    /// A byte is read that nothing was ever written to.
    Uninitialised,
    /// Another thread of the launch touches the same byte, and one of the two writes.
    Race,
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AccessError::Outside => "outside of every allocation",
            AccessError::Misaligned => "not a multiple of the access's length",
            AccessError::Uninitialised => "read before anything was written there",
            AccessError::Race => "touched by another thread of the launch too",
        })
    }
}

/// The memory of the emulated device.
#[derive(Default)]
pub struct Memory {
    allocations: Vec<Allocation>,
    /// The last number that belongs to launches that are over. Threads are numbered
    /// through all launches, so that nothing has to be cleared between two.
    settled: u32,
    /// The number that stands for several threads of this launch, as readers.
    several: u32,
    trace: u64,
}

#[derive(Default)]
struct Allocation {
    bytes: Vec<u8>,
    touched: Vec<Touched>,
}

/// The threads that last read and wrote a byte; 0 is nobody.
#[derive(Clone, Copy, Default)]
struct Touched {
    reader: u32,
    writer: u32,
}

/// The number of the host, as a writer.
const HOST: u32 = 1;

/// A digest with another number in it.
#[inline(always)]
pub(super) fn mix(digest: u64, number: u64) -> u64 {
    (digest.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Memory {
    /// No allocation yet.
    pub fn new() -> Memory {
        Memory {
            allocations: Vec::new(),
            settled: HOST,
            several: HOST,
            trace: 0,
        }
    }

    /// Allocates `len` bytes, whose contents are undefined; the address is a multiple of 256.
    pub fn alloc(&mut self, len: usize) -> u64 {
        assert!(len < 1 << SPAN_BITS, "an allocation of 64 GiB");
        self.allocations.push(Allocation {
            bytes: vec![0; len],
            touched: vec![Touched::default(); len],
        });
        (self.allocations.len() as u64) << SPAN_BITS
    }

    /// Frees what `alloc` returned; its address is not used again.
    pub fn free(&mut self, address: u64) -> Result<(), AccessError> {
        let (allocation, _) = self.place(address, 0)?;
        self.allocations[allocation] = Allocation::default();
        Ok(())
    }

    /// The host copies bytes to the device.
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

    /// The host copies bytes from the device.
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

    /// The bytes of all allocations that are not freed, written or not: whoever wipes looks
    /// here for what was left behind.
    pub fn contents(&self) -> impl Iterator<Item = &[u8]> {
        self.allocations
            .iter()
            .map(|allocation| &allocation.bytes[..])
    }

    /// A digest of which branches the threads of all launches took and which addresses they
    /// accessed. It is the same for other secrets, or they leak.
    pub fn trace(&self) -> u64 {
        self.trace
    }

    /// What a thread did, and its number, become part of the trace.
    pub(super) fn end_thread(&mut self, thread: u32, trace: u64) {
        self.trace = mix(mix(self.trace, thread as u64), trace);
    }

    /// Allocation and offset of `len` bytes at an address.
    fn place(&self, address: u64, len: usize) -> Result<(usize, usize), AccessError> {
        let span = address >> SPAN_BITS;
        let at = (address & ((1 << SPAN_BITS) - 1)) as usize;
        let place = (span as usize).checked_sub(1);
        match place.and_then(|i| self.allocations.get(i)) {
            Some(allocation) if at + len <= allocation.bytes.len() => Ok((span as usize - 1, at)),
            _ => Err(AccessError::Outside),
        }
    }

    /// A launch of so many threads begins. Its threads have the numbers after the returned one.
    pub(super) fn begin_launch(&mut self, threads: u32) -> u32 {
        self.settled = self.several;
        if threads >= u32::MAX - self.settled {
            // The numbers begin again, and all that is written is the host's.
            for touched in self.allocations.iter_mut().flat_map(|a| &mut a.touched) {
                touched.reader = 0;
                touched.writer = touched.writer.min(HOST);
            }
            self.settled = HOST;
        }
        self.several = self.settled + threads + 1;
        self.settled
    }

    /// A thread loads N bytes.
    #[inline]
    pub(super) fn load<const N: usize>(
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

    /// A thread stores N bytes.
    #[inline]
    pub(super) fn store<const N: usize>(
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
