//! Large batches on a device, with the CPU beside it.
//!
//! What has not come back from the device, for whatever reason, has its outcome pending and
//! its bytes as they were. So the CPU runs what is pending when the device is done, and
//! there is nothing else to know of what happened there.

use crate::engine::Kernel;
use crate::{Batch, Engine};
use packetlane_gpu::{Gpu, Help, Op, With};
use packetlane_lanes::{Backend, Job, Outcome, TAG_LEN};

/// How an engine that has a device chooses between that and the CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// By the bytes of a batch: those that the device does sooner go there, and the CPU
    /// helps.
    #[default]
    Auto,
    /// Every batch goes to the device and the CPU does not help, but for what cannot run
    /// there. A batch waits until the device is free.
    Always,
    /// None does.
    Never,
}

/// Batches of fewer bytes are not worth the question.
const LEAST_BYTES: usize = 16 * 1024;

/// About how many bytes of packets each thread of the CPU takes at a time while the device
/// is busy: some 20 to 40 microseconds.
const HELP_BYTES: usize = 128 * 1024;

/// An engine's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    gpu: &'static Gpu,
    offload: Offload,
}

impl Device {
    pub(crate) const fn new(gpu: &'static Gpu) -> Self {
        let offload = Offload::Auto;
        Self { gpu, offload }
    }

    pub(crate) const fn with(self, offload: Offload) -> Self {
        Self { offload, ..self }
    }

    pub(crate) const fn gpu(self) -> &'static Gpu {
        self.gpu
    }

    /// Seals what waits in the batch, if that is for the device. Says whether it was.
    pub(crate) fn seal(self, engine: &Engine, batch: &mut Batch) -> bool {
        self.run(engine, batch, Op::Seal, Backend::seal)
    }

    /// The same for opening.
    pub(crate) fn open(self, engine: &Engine, batch: &mut Batch) -> bool {
        self.run(engine, batch, Op::Open, Backend::open)
    }

    fn run(self, engine: &Engine, batch: &mut Batch, op: Op, kernel: Kernel) -> bool {
        if !self.wants(engine, batch.pending_jobs()) {
            return false;
        }
        let (arena, used, secrets, jobs, outcomes) = batch.take_pending_arena();
        let mut help = |bytes: &mut [u8], jobs: &[Job], outcomes: &mut [Outcome]| {
            engine.run_jobs(kernel, bytes, secrets, jobs, outcomes);
        };
        let auto = self.offload == Offload::Auto;
        let with = With {
            help: auto.then_some(Help {
                bytes: HELP_BYTES * engine.threads(),
                run: &mut help,
            }),
            unless_busy: auto,
            ..With::default()
        };
        let work = (secrets, jobs, &mut *outcomes);
        // An error is kept by the device. What it has left undone comes next.
        let _ = self.gpu.run(op, arena.for_device(used), work, with);
        let mut end = 0;
        while let Some(range) = packetlane_gpu::pending(outcomes, end) {
            end = range.end;
            let outcomes = &mut outcomes[range.clone()];
            engine.run_jobs(kernel, arena, secrets, &jobs[range], outcomes);
        }
        true
    }

    /// Whether the device shall have these jobs.
    fn wants(self, engine: &Engine, jobs: &[Job]) -> bool {
        match self.offload {
            Offload::Never => false,
            _ if jobs.is_empty() || self.gpu.is_lost() => false,
            Offload::Always => true,
            Offload::Auto => {
                let bytes = jobs.iter().map(|job| job.text_len as usize + TAG_LEN);
                let bytes: usize = bytes.sum();
                if bytes < LEAST_BYTES {
                    return false;
                }
                // Several threads are as much faster, and so is the size from which on the
                // device is.
                let crossover = self.gpu.crossover(engine.backend());
                bytes >= crossover.saturating_mul(engine.threads())
            }
        }
    }
}
