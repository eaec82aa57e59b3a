//! A batch that stays on the device, to time the kernels alone.

use crate::driver::DeviceMemory;
use crate::error::GpuError;
use crate::gpu::Gpu;
use crate::kernels::Op;
use crate::piece::{KeyEntries, SLACK, Texts, bound};
use crate::transfer::Transfer;
use crate::work::check;
use packetlane_lanes::{Job, Key, Outcome};

/// A batch in device memory, to time the kernels alone.
pub struct Resident<'g> {
    gpu: &'g Gpu,
    transfer: Transfer,
    /// A copy of the original: a run changes the batch, and an opened batch cannot be opened again.
    pristine: DeviceMemory,
    jobs: Vec<Job>,
}

impl Gpu {
    /// Copies a batch to the device, where it stays in one piece.
    ///
    /// # Errors
    ///
    /// If the device fails or has failed, or has too little memory.
    ///
    /// # Panics
    ///
    /// If a job lies outside `bytes` or its key is not in `keys`.
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

    /// Returns the number of packets.
    #[must_use]
    pub fn packets(&self) -> usize {
        self.transfer.piece.len()
    }

    /// Runs the kernels on the original batch. Returns their time in seconds, by the device's
    /// clock.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn run(&mut self) -> Result<f64, GpuError> {
        self.gpu.note(self.transfer.rerun(&self.pristine))
    }

    /// Copies the results of the last run into the bytes and outcomes of the batch that this was
    /// created from.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If they are shorter than the original ones, or if the last run failed or there was none.
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
