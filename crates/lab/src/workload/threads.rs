//! How many threads this machine runs at once, and whether they share cores.

/// Numbers of threads to measure, as far as the machine has that many.
const THREADS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// The numbers of threads to measure on this machine.
pub(crate) fn thread_counts() -> impl Iterator<Item = usize> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    THREADS.into_iter().filter(move |threads| *threads <= cores)
}

/// Whether threads of this machine share a core, in words.
pub(crate) fn siblings() -> String {
    let list = |cpu| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        std::fs::read_to_string(path).ok()
    };
    let lists: Vec<String> = (0..).map_while(list).collect();
    match lists.iter().find(|list| list.contains([',', '-'])) {
        _ if lists.is_empty() => "it is not known whether its CPUs share cores".to_owned(),
        Some(shared) => format!("CPUs {} are one core", shared.trim()),
        None => "the system says that no two of its CPUs share a core".to_owned(),
    }
}
