//! Large batches on a GPU, with the help of the CPU.
//!
//! Whatever the device has not finished, for whatever reason, keeps its bytes and its
//! pending outcome. So the CPU runs what is pending when the device is done, and needs to
//! know nothing else about what happened there.

use super::cpu::{Cpu, Kernel};
use packetlane_gpu::{DeviceWork, Gpu, Help, Op, RunOptions};
use packetlane_lanes::{Job, Kernels, TAG_LEN, Work};

/// How an engine that has a GPU chooses between GPU and CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// By size: a batch goes to the device if the device is faster at so many bytes, and
    /// the CPU helps.
    #[default]
    Auto,
    /// Every batch goes to the device, and waits until the device is free. The CPU does
    /// only what cannot run there.
    Always,
    /// No batch does.
    Never,
}

/// Batches of fewer bytes stay on the CPU, unasked.
const MIN_BYTES: usize = 16 * 1024;

/// About how many bytes of packets each thread of the CPU takes at a time while the device
/// is busy: some 20 to 40 microseconds.
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

    /// Runs `work` on the device, with help of `cpu`, and what it leaves pending on `cpu`.
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
        // The device keeps its error. What it has left undone comes next.
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
                // With several threads the CPU is faster, and the device pays off at a
                // size as many times larger.
                let crossover = self.gpu.crossover(cpu.backend);
                bytes >= crossover.saturating_mul(cpu.threads())
            }
        }
    }
}
