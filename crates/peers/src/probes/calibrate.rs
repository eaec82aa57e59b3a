//! Measures the cost of the probes on functions of this process.

#![allow(unsafe_code, reason = "functions whose instructions are known")]

use super::cost::{CallCost, ProbeCost};
use super::kernel::{Kernel, KernelError};
use std::path::PathBuf;

/// Pairs of calls per batch, and batches per measurement. The median batch excludes interrupted
/// ones.
const PAIRS: u64 = 50;
const BATCHES: usize = 15;
/// Longer times between two calls include an interrupt, on any machine.
const MAX_NS: u64 = 1_000_000;
/// Number of measurements, alternately with and without a tracepoint.
const ROUNDS: usize = 5;

/// The instructions of the two functions.
#[cfg(target_arch = "x86_64")]
macro_rules! nothing {
    () => {
        core::arch::naked_asm!("push rbp", "nop", "pop rbp", "ret")
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! nothing {
    () => {
        core::arch::naked_asm!(
            "stp x29, x30, [sp, -16]!",
            "nop",
            "ldp x29, x30, [sp], 16",
            "ret"
        )
    };
}

/// Functions that do nothing. They start like a node's, so that the kernel treats the probes alike;
/// the second instruction is that of a tracepoint. The second argument stands for a peer object.
#[unsafe(naked)]
extern "C" fn receiving(_: u64, _object: u64) {
    nothing!()
}

/// The second of the two functions.
#[unsafe(naked)]
extern "C" fn sending(_: u64, _object: u64) {
    nothing!()
}

/// Offset of the tracepoint's instruction within the functions.
#[cfg(target_arch = "x86_64")]
const TRACEPOINT_AT: u64 = 1;
#[cfg(target_arch = "aarch64")]
const TRACEPOINT_AT: u64 = 4;

/// Stands for a peer object, at an address where none can be.
pub(super) const OBJECT: u64 = 1;

/// Measures the probes in this process and removes them.
pub(super) fn calibrate(kernel: &mut Kernel) -> Result<ProbeCost, KernelError> {
    let place = |function: extern "C" fn(u64, u64)| {
        place_of(function as *const () as u64).ok_or_else(|| {
            KernelError::Load("the location of this program's code is unknown".into())
        })
    };
    let (places, pid) = ([place(receiving)?, place(sending)?], std::process::id());
    kernel.attach_switches()?;
    kernel.set_limit(MAX_NS)?;
    let (mut inside, mut outside, mut hits) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let functions = kernel.attach_functions(pid, &places)?;
        let cost = measure(kernel)?;
        let (file, offset) = &places[0];
        let tracepoint = kernel.attach_idle(file, pid, offset + TRACEPOINT_AT)?;
        let with_hits_ns = measure(kernel)?.inside_ns;
        drop((tracepoint, functions));
        inside.push(cost.inside_ns);
        outside.push(cost.outside_ns);
        // Only every other call contains a tracepoint.
        hits.push(2 * with_hits_ns.saturating_sub(cost.inside_ns));
    }
    kernel.close_window();
    kernel.forget(OBJECT)?;
    Ok(ProbeCost {
        call: CallCost {
            inside_ns: median(inside),
            outside_ns: median(outside),
        },
        hit_ns: median(hits),
    })
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Measures the probes of a call in this process.
fn measure(kernel: &mut Kernel) -> Result<CallCost, KernelError> {
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    for _ in 0..BATCHES {
        let before = (kernel.visits_of(OBJECT)?, kernel.counts()?);
        for _ in 0..PAIRS {
            receiving(0, OBJECT);
            sending(0, OBJECT);
        }
        let visits = kernel.visits_of(OBJECT)?.since(before.0);
        let counts = kernel.counts()?.since(before.1);
        let inside_ns = visits.receiving.cost.wall_ns + visits.sending.cost.wall_ns;
        inside.push(inside_ns / visits.count().max(1));
        outside.push(counts.idle_gap_ns / counts.idle_gaps.max(1));
    }
    Ok(CallCost {
        inside_ns: median(inside),
        outside_ns: median(outside),
    })
}

/// The file mapped at `address` in this process, and the offset in it.
fn place_of(address: u64) -> Option<(PathBuf, u64)> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        // start-end permissions offset device inode path
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = (hex(start)?, hex(end)?);
        let offset = hex(fields.nth(1)?)?;
        let path = fields.nth(2)?;
        (start..end)
            .contains(&address)
            .then(|| (path.into(), address - start + offset))
    })
}
