//! Runs large batches on a GPU, assisted by the CPU.
//!
//! A packet that the device has not finished, for whatever reason, keeps its bytes and its pending
//! outcome. The CPU therefore runs whatever is pending when the device returns, and needs to know
//! nothing else about what happened there.

use super::cpu::{Cpu, Kernel};
use packetlane_gpu::{DeviceWork, Gpu, Help, Op, RunOptions};
use packetlane_lanes::{Job, Kernels, TAG_LEN, Work};

/// How an engine with a GPU chooses between GPU and CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// By size: a batch goes to the device if it has enough bytes for the device to be faster. The
    /// CPU assists.
    #[default]
    Auto,
    /// Every batch goes to the device, and waits until the device is free. The CPU only does what
    /// cannot run on the device.
    Always,
    /// No batch goes to the device.
    Never,
}

/// Batches below this size, in bytes, stay on the CPU without measuring the crossover.
const MIN_BYTES: usize = 16 * 1024;

/// About how many bytes of packets each CPU thread takes at a time while the device is busy: 20 to
/// 40 microseconds of work.
const HELP_BYTES: usize = 128 * 1024;

/// An engine's GPU.
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

    /// Runs `work` on the device, assisted by `cpu`, then runs on `cpu` whatever is still pending.
    pub(crate) fn run(self, cpu: Cpu, op: Op, mut work: DeviceWork<'_>) {
        let kernel: Kernel = match op {
            Op::Seal => Kernels::seal,
            Op::Open => Kernels::open,
        };
        let mut help = |work: Work<'_>| cpu.run(kernel, work);
        let auto = self.offload == Offload::Auto;
        let options = RunOptions {
            help: auto.then_some(Help {
                bytes: HELP_BYTES * cpu.threads(),
                run: &mut help,
            }),
            unless_busy: auto,
            ..RunOptions::default()
        };
        // The device records its error. What it left pending is done next.
        let _ = self.gpu.run(op, work.reborrow(), options);
        let mut end = 0;
        while let Some(range) = packetlane_gpu::pending(work.outcomes, end) {
            end = range.end;
            cpu.run(kernel, work.jobs(range));
        }
    }

    /// Whether these jobs go to the device.
    pub(crate) fn accepts(self, cpu: Cpu, jobs: &[Job]) -> bool {
        match self.offload {
            Offload::Never => false,
            _ if jobs.is_empty() || self.gpu.is_lost() => false,
            Offload::Always => true,
            Offload::Auto => {
                let bytes = jobs.iter().map(|job| job.text_len as usize + TAG_LEN);
                let bytes: usize = bytes.sum();
                if bytes < MIN_BYTES {
                    return false;
                }
                // With several threads the CPU is faster, so the crossover size grows by the same
                // factor.
                let crossover = self.gpu.crossover(cpu.backend);
                bytes >= crossover.saturating_mul(cpu.threads())
            }
        }
    }
}
