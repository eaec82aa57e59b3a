//! Numbers of threads to measure.

/// Numbers of threads to measure, up to those of the machine.
const THREADS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// The numbers of threads to measure on this machine.
pub(crate) fn thread_counts() -> impl Iterator<Item = usize> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    THREADS.into_iter().filter(move |threads| *threads <= cores)
}
