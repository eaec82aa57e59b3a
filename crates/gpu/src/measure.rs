//! What is measured, for the choice between CPU and device and for the lab.

use crate::driver::{DeviceMemory, PinnedMemory, Stream};
use crate::piece::{Finder, SLACK, bound, takes_any};
use crate::slot::Slot;
use crate::{Bytes, Gpu, GpuError, Op, With};
use packetlane_lanes::{Backend, Job, Key, Outcome, Secrets, TAG_LEN, Work};
use std::time::Instant;

/// How a batch went. Times are in seconds and, but for `total`, sums over all pieces, which
/// overlap; they are 0 unless they were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timings {
    /// Host to host, by the CPU's clock.
    pub total: f64,
    /// Copies to the device, by the device's clock.
    pub to_device: f64,
    /// Kernels, by the device's clock.
    pub kernels: f64,
    /// Copies from the device, by the device's clock.
    pub from_device: f64,
    /// Bytes copied to the device: packets, descriptors and keys.
    pub bytes_to_device: usize,
    /// Bytes copied from the device: packets and verdicts.
    pub bytes_from_device: usize,
    /// Packets that ran on the device.
    pub packets: usize,
    /// Packets that the CPU did meanwhile.
    pub helped: usize,
    /// Pieces that the batch was cut into on the device.
    pub pieces: usize,
}

/// A batch that lies in device memory, for the kernels to be timed by themselves.
pub struct Resident<'g> {
    gpu: &'g Gpu,
    slot: Slot,
    /// The same as it came: a run changes it, and what has been opened cannot be opened
    /// again.
    pristine: DeviceMemory,
    jobs: Vec<Job>,
}

impl Gpu {
    /// Copies a batch to the device, to stay there in one piece. Jobs with keystream
    /// computed ahead are left out.
    ///
    /// # Errors
    ///
    /// If the device fails, or has, or if there is no room.
    ///
    /// # Panics
    ///
    /// If a job lies outside `bytes` or names a key that is not in `secrets`.
    pub fn resident(
        &self,
        op: Op,
        bytes: &[u8],
        secrets: Secrets<'_>,
        jobs: &[Job],
    ) -> Result<Resident<'_>, GpuError> {
        crate::check(bytes.len(), secrets, jobs);
        self.usable()?;
        self.note(Resident::new(self, op, bytes, secrets, jobs))
    }
}

impl<'g> Resident<'g> {
    fn new(
        gpu: &'g Gpu,
        op: Op,
        bytes: &[u8],
        secrets: Secrets<'_>,
        jobs: &[Job],
    ) -> Result<Self, GpuError> {
        let size = SLACK as u64 + jobs.iter().map(bound).sum::<u64>();
        if size > u64::from(u32::MAX) {
            let bytes = usize::try_from(size).unwrap_or(usize::MAX);
            return Err(GpuError::OutOfMemory { bytes });
        }
        let mut slot = Slot::new(gpu.driver())?;
        let mut finder = Finder::default();
        let keys = secrets.keys.len();
        slot.piece
            .plan(&mut finder, keys, jobs, 0..jobs.len(), None, takes_any);
        let (piece, staging) = slot.stage()?;
        piece.write(&finder, bytes, secrets, jobs, takes_any, staging);
        let pristine = DeviceMemory::new(gpu.driver(), slot.piece.layout.staged)?;
        slot.upload(op, &pristine)?;
        Ok(Self {
            gpu,
            slot,
            pristine,
            jobs: jobs.to_vec(),
        })
    }

    /// How many packets it has.
    #[must_use]
    pub fn packets(&self) -> usize {
        self.slot.piece.len()
    }

    /// Runs the kernels on the batch as it was sent. Returns the seconds that they take, by
    /// the device's clock.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn run(&mut self) -> Result<f64, GpuError> {
        self.gpu.note(self.slot.rerun(&self.pristine))
    }

    /// Hands out what came of the last run: into the bytes and the outcomes of the batch
    /// that this was made of.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If they are shorter than those, or if the last run failed or there was none.
    pub fn fetch(&mut self, bytes: &mut [u8], outcomes: &mut [Outcome]) -> Result<(), GpuError> {
        self.gpu.note(self.slot.fetch(bytes, &self.jobs, outcomes))
    }
}

impl Drop for Resident<'_> {
    fn drop(&mut self) {
        self.slot.forget(&self.pristine);
    }
}

/// Which way a plain copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// From page-locked memory to the device.
    ToDevice,
    /// From the device to page-locked memory.
    FromDevice,
    /// Both at once, as many bytes each way.
    Both,
}

/// Memory for plain copies, which are what no batch can be faster than.
pub struct Copies<'g> {
    gpu: &'g Gpu,
    streams: [Stream; 2],
    host: [PinnedMemory; 2],
    device: [DeviceMemory; 2],
    len: usize,
}

impl Gpu {
    /// Takes memory for plain copies of `len` bytes.
    ///
    /// # Errors
    ///
    /// If the device fails, or has, or if there is no room.
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
    /// Copies once. Returns the seconds that it takes, by the CPU's clock, from before the
    /// copy is asked for until it is known to be done.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn time(&mut self, way: Way) -> Result<f64, GpuError> {
        let begin = Instant::now();
        let added = self.add(way);
        // Whatever was added, before the memory may be given back.
        let done = self.streams.each_ref().map(Stream::wait);
        let done = done.into_iter().fold(added, Result::and);
        let seconds = begin.elapsed().as_secs_f64();
        self.gpu.note(done).map(|()| seconds)
    }

    fn add(&self, way: Way) -> Result<(), GpuError> {
        let driver = self.gpu.driver();
        let [to, from] = &self.streams;
        if way != Way::FromDevice {
            let (at, host) = (self.device[0].at(), self.host[0].pointer());
            // SAFETY: both are as long, and `time` waits, after an error too.
            unsafe { driver.copy_in(to.handle(), at, host, self.len)? };
        }
        if way != Way::ToDevice {
            let (at, host) = (self.device[1].at(), self.host[1].pointer());
            // SAFETY: as above.
            unsafe { driver.copy_out(from.handle(), host, at, self.len)? };
        }
        Ok(())
    }
}

/// From how many bytes on the device is tried, when it is measured.
pub(crate) const LEAST_CROSSOVER: usize = 16 << 10;

/// Up to how many.
const MOST_CROSSOVER: usize = 8 << 20;

/// How often each is timed, of which the best counts.
const TIMES: usize = 3;

/// From how many bytes of packets on, with their tags, a batch is sealed sooner on the
/// device than on one thread of the CPU: a power of two; `usize::MAX` if never.
pub(crate) fn crossover(gpu: &Gpu, backend: Backend) -> usize {
    let (mut bytes, jobs) = synthetic(MOST_CROSSOVER);
    let keys: [Key; 64] = core::array::from_fn(|index| [index as u8; 32]);
    let secrets = Secrets::from(&keys[..]);
    let mut outcomes = vec![Outcome::Pending; jobs.len()];
    let mut size = LEAST_CROSSOVER;
    let mut end = 0;
    let mut sum = 0;
    while size <= MOST_CROSSOVER {
        while sum < size && end < jobs.len() {
            sum += jobs[end].text_len as usize + TAG_LEN;
            end += 1;
        }
        let (jobs, outcomes) = (&jobs[..end], &mut outcomes[..end]);
        let cpu = best(|| {
            backend.seal(Work {
                bytes: &mut bytes,
                secrets,
                jobs,
                outcomes,
            });
            Some(())
        });
        let device = || {
            let work = (secrets, jobs, &mut *outcomes);
            let with = With::default();
            gpu.run(Op::Seal, Bytes::Plain(&mut bytes), work, with)
                .ok()?;
            Some(())
        };
        match (cpu, best(device)) {
            (Some(cpu), Some(device)) if device < cpu => return size,
            (_, None) => break,
            _ => size *= 2,
        }
    }
    usize::MAX
}

/// The seconds that `run` takes at best, after a first time that does not count.
fn best(mut run: impl FnMut() -> Option<()>) -> Option<f64> {
    run()?;
    let mut best = f64::MAX;
    for _ in 0..TIMES {
        let begin = Instant::now();
        run()?;
        best = best.min(begin.elapsed().as_secs_f64());
    }
    Some(best)
}

/// Packets like those of a node, `len` bytes or little more: most are short, most bytes are
/// in long ones.
fn synthetic(len: usize) -> (Vec<u8>, Vec<Job>) {
    const LENGTHS: [u32; 8] = [8, 37, 61, 61, 100, 300, 500, 1600];
    let mut jobs = Vec::new();
    let mut end = 0;
    for (number, text_len) in (0_u32..).zip(LENGTHS.into_iter().cycle()) {
        if end as usize >= len {
            break;
        }
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&number.to_le_bytes());
        jobs.push(Job {
            text: end + 3,
            text_len,
            key: number % 64,
            nonce,
            ..Job::default()
        });
        end += 3 + text_len + TAG_LEN as u32;
    }
    (vec![0; end as usize], jobs)
}
