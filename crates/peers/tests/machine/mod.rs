//! What this machine supports: probes, and reliable timing.
#![allow(dead_code, reason = "each test file uses a part of this module")]

mod not_run;

pub(crate) use not_run::not_run;

use packetlane_peers::stolen_ns;
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
use packetlane_peers::{Process, probes::Probes};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Whether this process is root.
pub(crate) fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status")
        .unwrap()
        .lines()
        .any(|line| line.starts_with("Uid:\t0\t"))
}

/// Attaches probes, or prints why that is not possible here.
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
pub(crate) fn attach(pid: u32, test: &str) -> Option<Probes> {
    match Probes::attach(Process::with_pid(pid).unwrap()) {
        Ok(probes) => Some(probes),
        Err(error) if !is_root() => {
            not_run(test, &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Detects whether the machine was quiet. With steal time on a virtual machine, timings are
/// meaningless.
pub(crate) struct Quiet {
    _alone: MutexGuard<'static, ()>,
    test: &'static str,
    begun: Instant,
    before: u64,
}

impl Quiet {
    /// Waits for the other measuring tests of this program.
    pub(crate) fn begin(test: &'static str) -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        Self {
            _alone: ALONE.lock().unwrap_or_else(PoisonError::into_inner),
            test,
            begun: Instant::now(),
            before: stolen_ns(),
        }
    }

    /// Whether it was quiet since the start. If not, prints that the figures are not compared.
    pub(crate) fn was(&self) -> bool {
        let taken = stolen_ns() - self.before;
        let taken = taken as f64 / 1e9 / self.begun.elapsed().as_secs_f64();
        let quiet = taken < 0.005;
        if !quiet {
            let why = format!(
                "{:.1} % of the CPU time was steal time: the figures are not compared",
                100.0 * taken
            );
            not_run(self.test, &why);
        }
        quiet
    }
}
