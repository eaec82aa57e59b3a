//! A batch that stays on the device, for the kernels to be timed by themselves.

use crate::driver::DeviceMemory;
use crate::error::GpuError;
use crate::gpu::Gpu;
use crate::kernels::Op;
use crate::piece::{KeyEntries, SLACK, Texts, bound};
use crate::transfer::Transfer;
use crate::work::check;
use packetlane_lanes::{Job, Key, Outcome};

/// A batch that lies in device memory, for the kernels to be timed by themselves.
pub struct Resident<'g> {
    gpu: &'g Gpu,
    transfer: Transfer,
    /// The same as it came: a run changes it, and what has been opened cannot be opened
    /// again.
    pristine: DeviceMemory,
    jobs: Vec<Job>,
}

impl Gpu {
    /// Copies a batch to the device, to stay there in one piece. Jobs with precomputed
    /// keystream are left out.
    ///
    /// # Errors
    ///
    /// If the device fails, or has, or if there is no room.
    ///
    /// # Panics
    ///
    /// If a job lies outside `bytes` or names a key that is not in `keys`.
    pub fn resident(
        &self,
        op: Op,
        bytes: &[u8],
        keys: &[Key],
        jobs: &[Job],
    ) -> Result<Resident<'_>, GpuError> {
        jobs.iter().for_each(|job| check(bytes.len(), keys, job));
        self.usable()?;
        self.note(Resident::new(self, op, bytes, keys, jobs))
    }
}

impl<'g> Resident<'g> {
    fn new(
        gpu: &'g Gpu,
        op: Op,
        bytes: &[u8],
        keys: &[Key],
        jobs: &[Job],
    ) -> Result<Self, GpuError> {
        let size = SLACK as u64 + jobs.iter().map(bound).sum::<u64>();
        if size > u64::from(u32::MAX) {
            let bytes = usize::try_from(size).unwrap_or(usize::MAX);
            return Err(GpuError::OutOfMemory { bytes });
        }
        let mut transfer = Transfer::new(gpu.driver())?;
        let mut key_entries = KeyEntries::default();
        let (all, texts) = (0..jobs.len(), Texts::Gathered);
        transfer
            .piece
            .plan(&mut key_entries, keys.len(), jobs, all, texts, |_| true);
        let (piece, staging) = transfer.stage()?;
        piece.write(&key_entries, bytes, keys, jobs, staging);
        let pristine = DeviceMemory::new(gpu.driver(), transfer.piece.layout.staged)?;
        transfer.upload(op, &pristine)?;
        Ok(Self {
            gpu,
            transfer,
            pristine,
            jobs: jobs.to_vec(),
        })
    }

    /// How many packets it has.
    #[must_use]
    pub fn packets(&self) -> usize {
        self.transfer.piece.len()
    }

    /// Runs the kernels on the batch as it was sent. Returns the seconds that they take, by
    /// the device's clock.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn run(&mut self) -> Result<f64, GpuError> {
        self.gpu.note(self.transfer.rerun(&self.pristine))
    }

    /// Copies the results of the last run into the bytes and the outcomes of the batch that
    /// this was made of.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If they are shorter than those, or if the last run failed or there was none.
    pub fn fetch(&mut self, bytes: &mut [u8], outcomes: &mut [Outcome]) -> Result<(), GpuError> {
        self.gpu
            .note(self.transfer.fetch(bytes, &self.jobs, outcomes))
    }
}

impl Drop for Resident<'_> {
    fn drop(&mut self) {
        self.transfer.forget(&self.pristine);
    }
}
