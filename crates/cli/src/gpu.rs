//! `packetlane gpu`: compares a CUDA device with the CPU.

use crate::terminal::print;
use clap::Subcommand;
use packetlane::Engine;
use packetlane_lab::gpu_check;
use std::error::Error;
use std::time::Instant;

/// Default for `--longest`, in bytes: the longest contents of a BIP324 packet and its header byte.
const LONGEST: usize = 1 << 24;

#[derive(Subcommand)]
pub(crate) enum Gpu {
    /// Seal and open test batches and many random packets on the GPU and on the CPU, and compare
    /// every byte
    ///
    /// The test batches have every length up to 1100 bytes, mixed and long texts, AAD and wrong
    /// tags, in ordinary and in page-locked memory.
    ///
    /// Exit status: 0 if there is a GPU and all its results equal the CPU's, 1 otherwise, 2 for
    /// wrong arguments.
    Check {
        /// Number of random packets, with the lengths of the lab's profile `mail`
        #[arg(long, value_name = "N", default_value_t = 1_000_000)]
        packets: usize,
        /// Length of the longest text in the test batches, in bytes
        #[arg(long, value_name = "BYTES", default_value_t = LONGEST)]
        longest: usize,
    },
}

/// Runs the command.
pub(crate) fn run(command: &Gpu) -> Result<(), Box<dyn Error>> {
    let Gpu::Check { packets, longest } = *command;
    let gpu = packetlane::gpu::Gpu::detect()?;
    let backend = Engine::detect()?.backend();
    print(format_args!("{} against {}\n", gpu.name(), backend.name()));
    let begin = Instant::now();
    let checked = gpu_check::check(gpu, backend, packets, longest, |line| {
        print(format_args!("{line}\n"));
    })?;
    print(format_args!(
        "identical results for {} random packets and {} of the test batches, in {} batches; {} \
         forged packets rejected; {:.0} s\n",
        checked.random,
        checked.suite,
        checked.batches,
        checked.forged,
        begin.elapsed().as_secs_f64()
    ));
    Ok(())
}
