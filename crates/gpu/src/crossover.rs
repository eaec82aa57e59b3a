//! Measures the batch size for which a device is faster than the CPU.

use crate::error::GpuError;
use packetlane_lanes::{Backend, Job, Key, Outcome, TAG_LEN, Work};
use std::time::Instant;

/// Smallest size that the measurement tries, in bytes.
const MIN_CROSSOVER: usize = 16 << 10;

/// Largest size that the measurement tries, in bytes.
const MAX_CROSSOVER: usize = 8 << 20;

/// How often each size is timed; the best time counts.
const TIMES: usize = 3;

/// Returns the minimum size, in bytes of packets with their tags, for which `device` seals a batch
/// faster than one CPU thread: a power of two, or `usize::MAX` if never.
pub(crate) fn crossover(
    backend: Backend,
    mut device: impl FnMut(Work<'_>) -> Result<(), GpuError>,
) -> usize {
    let (mut bytes, jobs) = synthetic(MAX_CROSSOVER);
    let keys: [Key; 64] = core::array::from_fn(|index| [index as u8; 32]);
    let mut outcomes = vec![Outcome::Pending; jobs.len()];
    let mut size = MIN_CROSSOVER;
    let mut end = 0;
    let mut sum = 0;
    while size <= MAX_CROSSOVER {
        while sum < size && end < jobs.len() {
            sum += jobs[end].text_len as usize + TAG_LEN;
            end += 1;
        }
        let mut work = Work {
            bytes: &mut bytes,
            keys: &keys[..],
            jobs: &jobs[..end],
            outcomes: &mut outcomes[..end],
        };
        let cpu = best(|| {
            backend.kernels().seal(work.reborrow());
            Some(())
        });
        match (cpu, best(|| device(work.reborrow()).ok())) {
            (Some(cpu), Some(device)) if device < cpu => return size,
            (_, None) => break,
            _ => size *= 2,
        }
    }
    usize::MAX
}

/// Returns the best time of `run` in seconds, after a warm-up run.
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

/// Returns packets like those of a node, with `len` bytes in total or slightly more: most packets
/// are short, most bytes are in long ones.
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
            key: (number % 64) as usize,
            nonce,
            ..Job::default()
        });
        end += 3 + text_len + TAG_LEN as u32;
    }
    (vec![0; end as usize], jobs)
}
