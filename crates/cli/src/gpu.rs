//! `packetlane gpu`: checks a CUDA device against the CPU.

use crate::terminal::print;
use clap::Subcommand;
use packetlane::Engine;
use packetlane_lab::gpu_check;
use std::error::Error;
use std::time::Instant;

/// Default for `--longest`, in bytes: a BIP324 packet's header byte and longest contents.
const LONGEST: usize = 1 << 24;

#[derive(Subcommand)]
pub(crate) enum Gpu {
    /// Seal and open a suite of batches and many random packets on the device and on the CPU,
    /// and compare every byte and verdict
    ///
    /// The suite has all lengths up to 1100 bytes, mixed and long ones, with AAD and with wrong
    /// tags, from ordinary and from page-locked memory. The exit status is 0 only if there is a
    /// device and all its results equal the CPU's.
    Check {
        /// Number of random packets, of the lab's profile `mail`
        #[arg(long, value_name = "N", default_value_t = 1_000_000)]
        packets: usize,
        /// Length of the longest text in the suite, in bytes
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
        "the same, bit for bit: {} random packets sealed and opened and {} of the suite, in {} \
         batches; {} forged ones refused; {:.0} s\n",
        checked.random,
        checked.suite,
        checked.batches,
        checked.forged,
        begin.elapsed().as_secs_f64()
    ));
    Ok(())
}
