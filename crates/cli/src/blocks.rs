//! `packetlane blocks`: verifies files of blocks on all cores.
//!
//! One thread reads the files in windows and finds the blocks in them. The other threads each
//! take a window and verify its blocks. Windows are reused, so their number, and with it the
//! memory, is constant.

use crate::args;
use crate::wire::BlockHash;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use packetlane::bitcoin::Network;
use packetlane::sha256d::{Found, Hasher, MAX_NEEDED, Obfuscation, Scanner, Verifier, block_hash};
use serde::Serialize;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::error::Error;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

/// Bytes of a file per window. A run allocates one window per thread and [`SPARE_WINDOWS`]
/// more.
const WINDOW: usize = 8 << 20;
const _: () = assert!(
    WINDOW >= 2 * MAX_NEEDED,
    "a block that is carried over must leave room to read the rest"
);

/// Windows in addition to one per thread: one is being read, one is ready.
const SPARE_WINDOWS: usize = 2;

/// Maximum for `--threads`.
const MAX_THREADS: u16 = 1024;

/// Maximum number of problems to list: those earliest in the files. All are counted.
const MAX_LISTED: usize = 1000;

/// The file with the key by which Bitcoin Core obfuscates the block files next to it.
const KEY_FILE: &str = "xor.dat";

#[derive(Args)]
pub(crate) struct Blocks {
    /// Bitcoin Core's blk*.dat files, folders of them (`blocks` in its data folder), or files
    /// that hold one block each in network format
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// The network that the blocks belong to
    #[arg(long, default_value = Network::Mainnet.name(), value_parser = args::network_parser())]
    network: Network,
    /// Number of threads that verify; one per core by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_THREADS)))]
    threads: Option<u16>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Verifies the blocks and prints the report. Returns an error if anything was wrong.
pub(crate) fn run(args: &Blocks) -> Result<(), Box<dyn Error>> {
    let hasher = Hasher::detect()?;
    let inputs = inputs(&args.paths)?;
    let threads = match args.threads {
        Some(threads) => threads.into(),
        None => thread::available_parallelism().map_or(1, usize::from),
    };
    let report = Report {
        schema: 1,
        network: args.network.name(),
        backend: hasher.backend().name(),
        threads,
        ..verify(&inputs, args.network, hasher, threads)
    };
    let shown = match args.json {
        true => serde_json::to_string_pretty(&report)? + "\n",
        false => report.to_string(),
    };
    match io::stdout().lock().write_all(shown.as_bytes()) {
        // A reader that closes the pipe has read enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    match report.problem_count() {
        0 if report.blocks == 0 => Err("found no block".into()),
        0 => Ok(()),
        1 => Err("found 1 problem".into()),
        count => Err(format!("found {count} problems").into()),
    }
}

/// A file to read.
struct Input {
    path: PathBuf,
    length: u64,
    obfuscation: Obfuscation,
}

/// The files that `paths` name. The files of a folder are in numeric order.
fn inputs(paths: &[PathBuf]) -> Result<Vec<Input>, String> {
    let mut inputs = Vec::new();
    for path in paths {
        let metadata = fs::metadata(path).map_err(|error| cannot_read(path, &error))?;
        if metadata.is_file() {
            let key_folder = is_numbered(path).then(|| path.parent()).flatten();
            inputs.push(Input {
                path: path.clone(),
                length: metadata.len(),
                obfuscation: key_folder.map_or(Ok(Obfuscation::default()), obfuscation)?,
            });
        } else if metadata.is_dir() {
            let obfuscation = obfuscation(path)?;
            let mut files = Vec::new();
            for entry in fs::read_dir(path).map_err(|error| cannot_read(path, &error))? {
                let file = entry.map_err(|error| cannot_read(path, &error))?.path();
                if is_numbered(&file) {
                    files.push(file);
                }
            }
            if files.is_empty() {
                let path = path.display();
                return Err(format!("{path} is a folder without blk*.dat files"));
            }
            // A longer name has a higher number.
            files.sort_by_key(|file| (file.as_os_str().len(), file.clone()));
            for path in files {
                let metadata = fs::metadata(&path).map_err(|error| cannot_read(&path, &error))?;
                if metadata.is_file() {
                    inputs.push(Input {
                        path,
                        length: metadata.len(),
                        obfuscation,
                    });
                }
            }
        } else {
            let path = path.display();
            return Err(format!("{path} is neither a file nor a folder"));
        }
    }
    Ok(inputs)
}

fn cannot_read(path: &Path, error: &io::Error) -> String {
    format!("cannot read {}: {error}", path.display())
}

/// Whether `path` is named like Bitcoin Core's block files.
fn is_numbered(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("blk") && name.ends_with(".dat"))
}

/// The key for the files in `folder`; all zeros if they are not obfuscated.
fn obfuscation(folder: &Path) -> Result<Obfuscation, String> {
    let path = folder.join(KEY_FILE);
    let mut key = Vec::new();
    // One byte more than a key, to notice a file that is too long.
    let read = File::open(&path).and_then(|file| file.take(9).read_to_end(&mut key));
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Obfuscation::default()),
        Err(error) => Err(cannot_read(&path, &error)),
        Ok(_) => key.try_into().map(Obfuscation).map_err(|_| {
            let path = path.display();
            format!("{path} is not a key of 8 bytes")
        }),
    }
}

/// Part of a file, and the blocks in it.
#[derive(Default)]
struct Window {
    /// Index into the inputs.
    file: usize,
    buffer: Vec<u8>,
    /// For each block, its offset in the file and its range in `buffer`.
    blocks: Vec<(u64, Range<usize>)>,
    /// Number of bytes read from the file for this window.
    read: usize,
}

/// Verifies every block in `inputs` on `threads` threads.
fn verify(inputs: &[Input], network: Network, hasher: Hasher, threads: usize) -> Report {
    let begun = Instant::now();
    let bar = progress_bar(inputs.iter().map(|input| input.length).sum());
    let report = Mutex::new(Report {
        files: inputs.len(),
        ..Report::default()
    });
    let (give_back, free) = channel();
    for _ in 0..threads + SPARE_WINDOWS {
        // Cannot fail: the receiver `free` is alive.
        let _ = give_back.send(Window::default());
    }
    let (hand_out, full) = channel();
    let full = Mutex::new(full);
    thread::scope(|scope| {
        for _ in 0..threads {
            let give_back = give_back.clone();
            let (report, full, bar) = (&report, &full, &bar);
            scope.spawn(move || {
                let mut verifier = Verifier::new(hasher);
                while let Some(mut window) = next(full) {
                    let blocks = check(&mut verifier, inputs, &mut window, report);
                    bar.inc(window.read as u64);
                    let seconds = begun.elapsed().as_secs_f64();
                    bar.set_message(format!("{:.0} blocks/s", blocks as f64 / seconds));
                    // Fails after the last window, when the reader is gone. That is fine.
                    let _ = give_back.send(window);
                }
            });
        }
        drop(give_back);
        // `run` consumes the reader. That closes its channel and ends the threads.
        let reader = Reader {
            inputs,
            network,
            hasher,
            free,
            hand_out,
            report: &report,
            carried: Vec::new(),
        };
        reader.run();
    });
    bar.finish_and_clear();
    let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.finish(begun.elapsed().as_secs_f64());
    report
}

/// The next window to verify; `None` after the last.
fn next(full: &Mutex<Receiver<Window>>) -> Option<Window> {
    lock(full).recv().ok()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Verifies the blocks of a window. Returns the number of blocks verified so far, in all
/// windows.
fn check(
    verifier: &mut Verifier,
    inputs: &[Input],
    window: &mut Window,
    report: &Mutex<Report>,
) -> u64 {
    let mut good = Report::default();
    for (offset, range) in window.blocks.drain(..) {
        let bytes = &window.buffer[range];
        match verifier.verify(bytes) {
            Ok(summary) => {
                good.blocks += 1;
                good.transactions += summary.transactions as u64;
                good.bytes += summary.bytes as u64;
                good.hashes += summary.hashes as u64;
            }
            Err(faults) => {
                let problem = Problem {
                    file: inputs[window.file].path.display().to_string(),
                    offset,
                    block: bytes
                        .first_chunk()
                        .map(|header| BlockHash(block_hash(header)).to_string()),
                    what: faults.iter().map(ToString::to_string).collect(),
                };
                let mut report = lock(report);
                report.blocks += 1;
                report.bad_blocks += 1;
                report.bytes += bytes.len() as u64;
                report.add(window.file, problem);
            }
        }
    }
    let mut report = lock(report);
    report.blocks += good.blocks;
    report.transactions += good.transactions;
    report.bytes += good.bytes;
    report.hashes += good.hashes;
    report.blocks
}

/// Reads the files and finds the blocks in them.
struct Reader<'r> {
    inputs: &'r [Input],
    network: Network,
    hasher: Hasher,
    free: Receiver<Window>,
    hand_out: Sender<Window>,
    report: &'r Mutex<Report>,
    /// The end of the last window, which was not a whole block.
    carried: Vec<u8>,
}

impl Reader<'_> {
    fn run(mut self) {
        for (number, input) in self.inputs.iter().enumerate() {
            match File::open(&input.path) {
                Ok(file) => self.read(number, input, file),
                Err(error) => self.problem(number, 0, format!("cannot be read: {error}")),
            }
        }
    }

    fn read(&mut self, number: usize, input: &Input, mut file: File) {
        let mut scanner = Scanner::new(self.network.magic(), input.obfuscation, self.hasher);
        self.carried.clear();
        // The window's offset in the file.
        let mut start = 0;
        // Ends only if no thread is left to return a window.
        while let Ok(mut window) = self.free.recv() {
            let Window { buffer, blocks, .. } = &mut window;
            buffer.clear();
            buffer.reserve(WINDOW);
            buffer.extend_from_slice(&self.carried);
            let carried = buffer.len();
            let wanted = WINDOW - carried;
            // On an error, `buffer` still holds the bytes read before it.
            let done = Read::take(&mut file, wanted as u64).read_to_end(buffer);
            let read = buffer.len() - carried;
            let position = start + carried as u64;
            input.obfuscation.apply(position, &mut buffer[carried..]);
            let ends = done.is_ok() && read < wanted;

            let mut rest = &buffer[..];
            if start == 0 && ends && scanner.is_bare_block(rest) {
                blocks.push((0, 0..rest.len()));
                rest = &[];
            }
            while let Some(found) = scanner.next(&mut rest, ends) {
                match found {
                    Found::Block { offset, bytes } => {
                        let place = buffer.len() - rest.len() - bytes.len();
                        blocks.push((offset, place..place + bytes.len()));
                    }
                    Found::Fault(fault) => self.problem(number, fault.offset, fault.to_string()),
                }
            }
            self.carried.clear();
            self.carried.extend_from_slice(rest);
            start += (buffer.len() - rest.len()) as u64;
            window.file = number;
            window.read = read;
            // Cannot fail: the receiver is alive until `verify` returns.
            let _ = self.hand_out.send(window);
            if let Err(error) = &done {
                let position = position + read as u64;
                self.problem(number, position, format!("cannot be read: {error}"));
            }
            if ends || done.is_err() {
                return;
            }
        }
    }

    fn problem(&self, number: usize, offset: u64, what: String) {
        let problem = Problem {
            file: self.inputs[number].path.display().to_string(),
            offset,
            block: None,
            what: vec![what],
        };
        lock(self.report).add(number, problem);
    }
}

/// A progress bar for `bytes` bytes, shown on a terminal only.
fn progress_bar(bytes: u64) -> ProgressBar {
    let target = match io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let template =
        "{bar:24} {decimal_bytes}/{decimal_total_bytes}, {decimal_bytes_per_sec}  {wide_msg}";
    let style = ProgressStyle::with_template(template).expect("the template is a constant");
    ProgressBar::with_draw_target(Some(bytes), target).with_style(style)
}

/// The result.
#[derive(Default, Serialize)]
struct Report {
    schema: u32,
    network: &'static str,
    /// The backend that computed the hashes.
    backend: &'static str,
    threads: usize,
    files: usize,
    /// All blocks; `bad_blocks` are those with a fault.
    blocks: u64,
    bad_blocks: u64,
    /// Length of all blocks, in bytes.
    bytes: u64,
    /// Number in blocks without a fault, as for `hashes`.
    transactions: u64,
    hashes: u64,
    seconds: f64,
    blocks_per_second: f64,
    bytes_per_second: f64,
    hashes_per_second: f64,
    /// By index of the file and offset. Holds the first [`MAX_LISTED`].
    #[serde(serialize_with = "list")]
    problems: BTreeMap<(usize, u64), Problem>,
    problems_not_listed: u64,
}

/// Something wrong at one place in a file.
#[derive(Serialize)]
struct Problem {
    file: String,
    offset: u64,
    /// The hash of the block at this offset, if there is one.
    block: Option<String>,
    what: Vec<String>,
}

fn list<S: serde::Serializer>(
    problems: &BTreeMap<(usize, u64), Problem>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(problems.values())
}

impl Report {
    /// Adds a problem with the file of index `file`.
    fn add(&mut self, file: usize, problem: Problem) {
        match self.problems.entry((file, problem.offset)) {
            // For example, a file ends within a block and also cannot be read further.
            Entry::Occupied(mut same) => same.get_mut().what.extend(problem.what),
            Entry::Vacant(place) => {
                place.insert(problem);
            }
        }
        if self.problems.len() > MAX_LISTED {
            self.problems.pop_last();
            self.problems_not_listed += 1;
        }
    }

    fn problem_count(&self) -> u64 {
        self.problems.len() as u64 + self.problems_not_listed
    }

    fn finish(&mut self, seconds: f64) {
        let rate = |count: u64| count as f64 / seconds;
        self.seconds = seconds;
        self.blocks_per_second = rate(self.blocks);
        self.bytes_per_second = rate(self.bytes);
        self.hashes_per_second = rate(self.hashes);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (blocks, bad) = (self.blocks, self.bad_blocks);
        match (bad, blocks) {
            (_, 0) => f.write_str("found no block")?,
            (0, 1) => f.write_str("the block is good")?,
            (0, _) => write!(f, "all {blocks} blocks are good")?,
            _ => write!(f, "{bad} of {blocks} blocks are bad")?,
        }
        match self.problem_count() - bad {
            0 => writeln!(f)?,
            1 => writeln!(f, ", and the files are damaged in 1 place")?,
            places => writeln!(f, ", and the files are damaged in {places} places")?,
        }
        writeln!(f)?;
        writeln!(f, "network           {}", self.network)?;
        let (backend, threads) = (self.backend, self.threads);
        writeln!(f, "backend           {backend}, threads: {threads}")?;
        writeln!(f, "files             {}", self.files)?;
        writeln!(f, "blocks            {blocks}")?;
        writeln!(f, "bytes             {}", self.bytes)?;
        writeln!(f, "transactions      {}", self.transactions)?;
        writeln!(f, "hashes            {}", self.hashes)?;
        writeln!(
            f,
            "time              {:.3} s: {:.0} blocks/s, {:.1} MB/s, {:.0} hashes/s",
            self.seconds,
            self.blocks_per_second,
            self.bytes_per_second / 1e6,
            self.hashes_per_second
        )?;
        if !self.problems.is_empty() {
            writeln!(f)?;
        }
        for problem in self.problems.values() {
            let Problem {
                file,
                offset,
                block,
                what,
            } = problem;
            for what in what {
                write!(f, "{file}, byte {offset}")?;
                if let Some(block) = block {
                    write!(f, ", block {block}")?;
                }
                writeln!(f, ": {what}")?;
            }
        }
        match self.problems_not_listed {
            0 => Ok(()),
            more => writeln!(f, "and {more} more"),
        }
    }
}
