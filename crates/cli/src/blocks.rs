//! `packetlane blocks`: verifies block files on all cores.
//!
//! One thread reads the files in windows and finds the blocks in them. The other threads each take
//! a window and verify its blocks. Windows are reused, so memory use is constant.

use crate::args;
use crate::report::hex;
use crate::sync::lock;
use crate::terminal::print_with;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use packetlane::bitcoin::Network;
use packetlane::sha256d::{
    Block, BlockFault, FaultCause, FileFault, Frame, Hash, Hasher, Obfuscation, Scanner, Summary,
    Verifier,
};
use packetlane_files::{Name, special_kind};
use packetlane_p2p::payload::BlockHash;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, IsTerminal, Read, Seek as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

/// Bytes of a file per window. A run allocates one window per thread and [`EXTRA_WINDOWS`] more.
const WINDOW: usize = 8 << 20;
const _: () = assert!(
    WINDOW >= 2 * Scanner::MAX_NEEDED,
    "a block that is carried over must leave room to read the rest"
);

/// Windows in addition to one per thread: one is being read, one is ready.
const EXTRA_WINDOWS: usize = 2;

/// Maximum for `--threads`.
const MAX_THREADS: u16 = 1024;

/// Maximum number of problems, and of notes, that are listed: the earliest in the files. All are
/// counted.
const MAX_LISTED: usize = 1000;

/// The file with the key that obfuscates Bitcoin Core's block files in the same folder.
const KEY_FILE: &str = "xor.dat";

#[derive(Args)]
pub(crate) struct Blocks {
    /// Bitcoin Core's blk*.dat files, folders of them (`blocks` in its data folder), or files with
    /// one block each in network format
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Network of the blocks [default: main; signet with --magic]
    #[arg(long, value_parser = args::network_parser())]
    network: Option<Network>,
    /// The 4 bytes before each block in these files, if they are not the network's, such as for a
    /// custom signet
    #[arg(long, value_name = "HEX", value_parser = args::magic)]
    magic: Option<[u8; 4]>,
    /// Number of verifying threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_THREADS)))]
    threads: Option<u16>,
    /// Print the report as JSON, with a list of the good blocks
    #[arg(long)]
    json: bool,
}

impl Blocks {
    fn network(&self) -> Network {
        self.network.unwrap_or(match self.magic {
            None => Network::Mainnet,
            Some(magic) => Network::from_magic(magic).unwrap_or(Network::Signet),
        })
    }

    fn magic(&self) -> [u8; 4] {
        self.magic.unwrap_or(self.network().magic())
    }
}

/// Verifies the blocks and prints the report. Returns an error if there is any problem.
pub(crate) fn run(args: &Blocks) -> Result<(), Box<dyn Error>> {
    let hasher = Hasher::detect()?;
    let inputs = inputs(&args.paths)?;
    let threads = match args.threads {
        Some(threads) => threads.into(),
        None => thread::available_parallelism().map_or(1, usize::from),
    };
    let report = Report {
        schema: 1,
        network: args.network().name(),
        backend: hasher.backend().name(),
        threads,
        ..verify(&inputs, args, hasher, threads)
    };
    print_with(|out| match args.json {
        true => {
            serde_json::to_writer_pretty(&mut *out, &report)?;
            writeln!(out)
        }
        false => write!(out, "{report}"),
    });
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
    /// The path as text.
    name: String,
    length: u64,
    /// The key in the same folder. A file that is not named like Bitcoin Core's may have been
    /// copied there, so the key is used only if the decoded file starts with a magic.
    key: Option<Obfuscation>,
    /// Why the file is skipped, if it cannot hold blocks.
    not_read: Option<String>,
}

impl Input {
    fn new(path: PathBuf, metadata: &Metadata, key: Option<Obfuscation>) -> Self {
        let not_read = match (special_kind(metadata), kind(&path)) {
            (Some(kind), _) => Some(format!("{kind}, not a block file")),
            (_, Kind::Undo) => {
                Some("Bitcoin Core's undo data, which contains no blocks".to_owned())
            }
            (_, Kind::Key) => Some(
                "the key of the block files in this folder, which contains no blocks".to_owned(),
            ),
            _ if metadata.len() == 0 => Some("an empty file".to_owned()),
            (_, Kind::Blocks | Kind::Other) => None,
        };
        Self {
            name: path.display().to_string(),
            path,
            length: match not_read {
                None => metadata.len(),
                Some(_) => 0,
            },
            key,
            not_read,
        }
    }
}

/// What a file is, by its name.
enum Kind {
    /// Bitcoin Core's blocks.
    Blocks,
    /// Bitcoin Core's undo data, stored next to the blocks.
    Undo,
    /// [`KEY_FILE`].
    Key,
    Other,
}

fn kind(path: &Path) -> Kind {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match name.strip_suffix(".dat") {
        Some(name) if name.starts_with("blk") => Kind::Blocks,
        Some(name) if name.starts_with("rev") => Kind::Undo,
        _ if name == KEY_FILE => Kind::Key,
        _ => Kind::Other,
    }
}

/// The files at `paths`. The files of a folder are in numeric order.
fn inputs(paths: &[PathBuf]) -> Result<Vec<Input>, String> {
    let mut inputs = Vec::new();
    for path in paths {
        let metadata = fs::metadata(path).map_err(|error| cannot_read(path, &error))?;
        if metadata.is_file() {
            let key = match (kind(path), path.parent()) {
                (Kind::Blocks, Some(folder)) => key(folder)?,
                // The key may not belong to this file, so an unreadable key is not an error.
                (Kind::Other, Some(folder)) => key(folder).unwrap_or_default(),
                _ => None,
            };
            inputs.push(Input::new(path.clone(), &metadata, key));
        } else if metadata.is_dir() {
            let mut files = block_files(path)?;
            if files.is_empty() {
                let inner = path.join("blocks");
                let hint = match block_files(&inner) {
                    Ok(files) if !files.is_empty() => format!("; {} has some", Name(&inner)),
                    _ => String::new(),
                };
                let path = Name(path);
                return Err(format!("{path} is a folder without blk*.dat files{hint}"));
            }
            let key = key(path)?;
            // A longer name has a higher number.
            files.sort_by_key(|file| (file.as_os_str().len(), file.clone()));
            for path in files {
                let metadata = fs::metadata(&path).map_err(|error| cannot_read(&path, &error))?;
                inputs.push(Input::new(path, &metadata, key));
            }
        } else {
            let kind = special_kind(&metadata).unwrap_or_default();
            return Err(format!(
                "{} is {kind}, neither a file nor a folder",
                Name(path)
            ));
        }
    }
    Ok(inputs)
}

/// The files in `folder` that are named like Bitcoin Core's block files.
fn block_files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| cannot_read(folder, &error))? {
        let file = entry.map_err(|error| cannot_read(folder, &error))?.path();
        if let Kind::Blocks = kind(&file) {
            files.push(file);
        }
    }
    Ok(files)
}

fn cannot_read(path: &Path, error: &io::Error) -> String {
    format!("cannot read {}: {error}", Name(path))
}

/// The key for the files in `folder`; `None` if there is no [`KEY_FILE`].
fn key(folder: &Path) -> Result<Option<Obfuscation>, String> {
    let path = folder.join(KEY_FILE);
    let mut key = Vec::new();
    // One byte more than a key has, to detect a file that is too long.
    let read = packetlane_files::open(&path).and_then(|file| file.take(9).read_to_end(&mut key));
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|error| cannot_read(&path, &error))?,
    };
    match key.try_into() {
        Ok(key) => Ok(Some(Obfuscation(key))),
        Err(_) => Err(format!("{} is not a key of 8 bytes", Name(&path))),
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
fn verify<'r>(inputs: &'r [Input], args: &Blocks, hasher: Hasher, threads: usize) -> Report<'r> {
    let network = args.network();
    let begun = Instant::now();
    let bar = progress_bar(inputs.iter().map(|input| input.length).sum());
    let report = Mutex::new(Report {
        files: inputs.len(),
        // The text report names the block only if there is just one. A longer list would waste
        // memory.
        max_good_listed: if args.json { usize::MAX } else { 1 },
        ..Report::default()
    });
    let (give_back, free) = channel();
    for _ in 0..threads + EXTRA_WINDOWS {
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
                let mut verifier = Verifier::new(hasher, network);
                while let Some(mut window) = next(full) {
                    let blocks = check(&mut verifier, inputs, &mut window, report);
                    bar.inc(window.read as u64);
                    let seconds = begun.elapsed().as_secs_f64();
                    bar.set_message(format!("{:.0} blocks/s", blocks as f64 / seconds));
                    // Fails after the last window, when the reader has ended. That is fine.
                    let _ = give_back.send(window);
                }
            });
        }
        drop(give_back);
        // `run` consumes the reader, which closes its channel and ends the threads.
        let reader = Reader {
            inputs,
            magic: args.magic(),
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

/// Verifies the blocks of a window. Returns the number of blocks verified so far in all windows.
fn check<'r>(
    verifier: &mut Verifier,
    inputs: &'r [Input],
    window: &mut Window,
    report: &Mutex<Report<'r>>,
) -> u64 {
    for (offset, range) in window.blocks.drain(..) {
        let bytes = &window.buffer[range];
        let place = (window.file, offset);
        let file = &inputs[window.file].name;
        match verifier.verify(bytes) {
            Ok(summary) => {
                let note = note(bytes, &summary);
                let mut report = lock(report);
                report.add_good(place, file, &summary);
                if let Some(note) = note {
                    report.add_note(place, Finding::new(file, offset, Some(summary.hash), note));
                }
            }
            Err(faults) => {
                // Bytes that do not parse as a block count as a damaged block only if their header
                // has proof of work. Otherwise they are arbitrary bytes, and a hash would be
                // meaningless.
                let header = bytes.first_chunk().filter(|header| match faults[0] {
                    BlockFault::Malformed(_) => verifier.has_work(header),
                    _ => true,
                });
                let hash = header.map(Block::hash_header);
                let what = faults.iter().map(ToString::to_string).collect();
                let mut report = lock(report);
                if hash.is_some() {
                    report.blocks += 1;
                    report.bad_blocks += 1;
                }
                report.add_problem(place, Finding::new(file, offset, hash, what));
            }
        }
    }
    lock(report).blocks
}

/// Notes about a good block that is unusual.
fn note(bytes: &[u8], summary: &Summary) -> Option<Vec<String>> {
    let count = summary.transactions_of_64_bytes;
    if count == 0 {
        return None;
    }
    let mut transactions = Vec::new();
    let block = Block::parse(bytes, &mut transactions).ok()?;
    let length = |pieces: [&[u8]; 3]| pieces.map(<[u8]>::len).iter().sum::<usize>();
    let mut all = block.iter().enumerate();
    let (number, first) = all.find(|(_, transaction)| length(transaction.txid_pieces()) == 64)?;
    let (has, which) = match count {
        1 => ("1 transaction has".to_owned(), "it"),
        _ => (format!("{count} transactions have"), "the first"),
    };
    Some(vec![format!(
        "{has} 64 bytes, as long as two nodes of the Merkle tree (CVE-2017-12842); {which} is \
         number {number} (from 0), {}",
        BlockHash(first.txid())
    )])
}

/// Reads the files and finds the blocks in them.
struct Reader<'m, 'r> {
    inputs: &'r [Input],
    magic: [u8; 4],
    network: Network,
    hasher: Hasher,
    free: Receiver<Window>,
    hand_out: Sender<Window>,
    report: &'m Mutex<Report<'r>>,
    /// The incomplete block at the end of the last window.
    carried: Vec<u8>,
}

impl Reader<'_, '_> {
    fn run(mut self) {
        for (number, input) in self.inputs.iter().enumerate() {
            if let Some(why) = &input.not_read {
                self.problem(number, 0, why.clone());
                continue;
            }
            let file = packetlane_files::open(&input.path).and_then(|mut file| {
                let key = self.key(input, &mut file)?;
                Ok((file, key))
            });
            match file {
                Ok((file, key)) => self.read(number, input, file, key),
                Err(error) => self.problem(number, 0, format!("cannot be read: {error}")),
            }
        }
    }

    /// The key of a file. Leaves the file at its start.
    fn key(&self, input: &Input, file: &mut File) -> io::Result<Obfuscation> {
        let key = input.key.unwrap_or_default();
        if let Kind::Blocks = kind(&input.path) {
            return Ok(key);
        }
        let mut begins = Vec::new();
        Read::take(&mut *file, 4).read_to_end(&mut begins)?;
        file.rewind()?;
        key.apply(0, &mut begins);
        let begins: Option<&[u8; 4]> = begins.first_chunk();
        let is_magic =
            |magic: &[u8; 4]| *magic == self.magic || Network::from_magic(*magic).is_some();
        match begins.is_some_and(is_magic) {
            true => Ok(key),
            false => Ok(Obfuscation::default()),
        }
    }

    fn read(&mut self, number: usize, input: &Input, mut file: File, obfuscation: Obfuscation) {
        let verifier = Verifier::new(self.hasher, self.network);
        let mut scanner = Scanner::new(self.magic, obfuscation, verifier);
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
            obfuscation.apply(position, &mut buffer[carried..]);
            let mut ends = done.is_ok() && read < wanted;

            let mut rest = &buffer[..];
            if start == 0 && is_obfuscated(rest, self.magic) {
                let what = match input.key {
                    None => {
                        "an obfuscated block file without its key: copy xor.dat from the \
                         folder that the file comes from"
                    }
                    Some(_) => {
                        "an obfuscated block file, but xor.dat in this folder is not its key"
                    }
                };
                self.problem(number, 0, what.to_owned());
                (rest, ends) = (&[], true);
            } else if start == 0
                && let Some(magic) = unknown_magic(rest, self.magic)
            {
                let what = format!(
                    "a block file of an unknown network, perhaps a custom signet: \
                     try --magic {}",
                    hex(&magic)
                );
                self.problem(number, 0, what);
                (rest, ends) = (&[], true);
            } else if start == 0 && ends && scanner.is_bare_block(rest) {
                blocks.push((0, 0..rest.len()));
                rest = &[];
            }
            while let Some(found) = scanner.next(&mut rest, ends) {
                match found {
                    Frame::Block { offset, bytes } => {
                        let place = buffer.len() - rest.len() - bytes.len();
                        blocks.push((offset, place..place + bytes.len()));
                    }
                    Frame::Fault(fault) => {
                        let hint = hint(&fault, input);
                        self.problem(number, fault.offset, format!("{fault}{hint}"));
                    }
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
        let finding = Finding::new(&self.inputs[number].name, offset, None, vec![what]);
        lock(self.report).add_problem((number, offset), finding);
    }
}

/// Whether a file starts with an obfuscated block of a known network.
///
/// The key has 8 bytes, so two words whose distance is a multiple of 8 are obfuscated with the same
/// bytes, and XORing the words cancels the key. The words are the magic and the highest 4 bytes of
/// the previous block's hash. The easiest target of each network, except regtest, forces those hash
/// bits to zero, apart from the lowest ones on signet. `own` is the magic in use, which may belong
/// to none of the networks.
fn is_obfuscated(file: &[u8], own: [u8; 4]) -> bool {
    const HIGHEST: usize = Scanner::FRAME_LEN + 4 + 32 - 4;
    const { assert!(HIGHEST.is_multiple_of(8)) };
    let word = |at: usize| Some(u32::from_le_bytes(*file.get(at..)?.first_chunk()?));
    let (Some(magic), Some(highest)) = (word(0), word(HIGHEST)) else {
        return false;
    };
    let named =
        |word: u32| word.to_le_bytes() == own || Network::from_magic(word.to_le_bytes()).is_some();
    const SIGNET: u32 = 0x377;
    let known = Network::ALL.map(|network| match network {
        Network::Signet => (network.magic(), SIGNET),
        _ => (network.magic(), 0),
    });
    !named(magic)
        && !named(highest)
        && known
            .into_iter()
            // A custom signet.
            .chain(Network::from_magic(own).is_none().then_some((own, SIGNET)))
            .any(|(known, max)| magic ^ highest ^ u32::from_le_bytes(known) <= max)
}

/// The magic of a file's first frame if it is neither `given` nor that of a known network. Requires
/// a block after it, and then, possibly after zeros, the same magic or the end of the file.
fn unknown_magic(file: &[u8], given: [u8; 4]) -> Option<[u8; 4]> {
    let (magic, rest) = file.split_first_chunk::<4>()?;
    if *magic == given || *magic == [0; 4] || Network::from_magic(*magic).is_some() {
        return None;
    }
    let (length, rest) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (block, behind) = rest.split_at_checked(length)?;
    let zeros = behind.iter().take_while(|byte| **byte == 0).count();
    let ends = zeros == behind.len() || behind[zeros..].starts_with(magic);
    (ends && Block::parse(block, &mut Vec::new()).is_ok()).then_some(*magic)
}

/// A hint at what may have caused a fault.
fn hint(fault: &FileFault, input: &Input) -> String {
    match (fault.cause, kind(&input.path), input.key) {
        (FaultCause::OtherNetwork { network }, ..) => format!("; try --network {}", network.name()),
        (FaultCause::Garbage, Kind::Blocks, None) if fault.offset == 0 => {
            "; if the file is obfuscated, xor.dat is missing in its folder".to_owned()
        }
        (FaultCause::Garbage, Kind::Blocks, Some(_)) if fault.offset == 0 => {
            "; if the file is obfuscated, xor.dat in its folder is not its key".to_owned()
        }
        _ => String::new(),
    }
}

/// A progress bar for `bytes` bytes, shown only on a terminal.
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

/// Index of a file and an offset in it.
type Place = (usize, u64);

/// The result.
#[derive(Default, Serialize)]
struct Report<'r> {
    schema: u32,
    network: &'static str,
    /// The backend that computed the hashes.
    backend: &'static str,
    threads: usize,
    files: usize,
    /// Number of all blocks; `bad_blocks` have a fault.
    blocks: u64,
    bad_blocks: u64,
    /// Bytes of the good blocks; `transactions` and `hashes` also count only those.
    bytes: u64,
    transactions: u64,
    hashes: u64,
    seconds: f64,
    blocks_per_second: f64,
    bytes_per_second: f64,
    hashes_per_second: f64,
    /// Ordered by place. Holds the first [`MAX_LISTED`].
    #[serde(serialize_with = "list")]
    problems: BTreeMap<Place, Finding<'r>>,
    problems_not_listed: u64,
    /// Unusual properties of good blocks, ordered by place. Holds the first [`MAX_LISTED`].
    #[serde(serialize_with = "list")]
    notes: BTreeMap<Place, Finding<'r>>,
    notes_not_listed: u64,
    /// Ordered by place. Holds the first `max_good_listed`.
    #[serde(serialize_with = "list")]
    good_blocks: BTreeMap<Place, GoodBlock<'r>>,
    #[serde(skip)]
    max_good_listed: usize,
}

/// A finding at one place in a file.
#[derive(Serialize)]
struct Finding<'r> {
    file: &'r str,
    offset: u64,
    /// The hash of the block at this offset, if there is one.
    block: Option<String>,
    what: Vec<String>,
}

impl<'r> Finding<'r> {
    fn new(file: &'r str, offset: u64, block: Option<Hash>, what: Vec<String>) -> Self {
        Self {
            file,
            offset,
            block: block.map(|hash| BlockHash(hash).to_string()),
            what,
        }
    }
}

/// A block without a fault.
#[derive(Serialize)]
struct GoodBlock<'r> {
    file: &'r str,
    offset: u64,
    #[serde(serialize_with = "text")]
    block: BlockHash,
    bytes: usize,
    transactions: usize,
}

fn list<S: Serializer, T: Serialize>(
    entries: &BTreeMap<Place, T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(entries.values())
}

fn text<S: Serializer>(value: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Adds an entry and keeps only the first `max`. Returns how many were dropped: 0 or 1.
fn insert<T>(entries: &mut BTreeMap<Place, T>, max: usize, place: Place, entry: T) -> u64 {
    entries.insert(place, entry);
    match entries.len() > max {
        true => {
            entries.pop_last();
            1
        }
        false => 0,
    }
}

impl<'r> Report<'r> {
    fn add_good(&mut self, place: Place, file: &'r str, summary: &Summary) {
        self.blocks += 1;
        self.transactions += summary.transactions as u64;
        self.bytes += summary.bytes as u64;
        self.hashes += summary.hashes as u64;
        let block = GoodBlock {
            file,
            offset: place.1,
            block: BlockHash(summary.hash),
            bytes: summary.bytes,
            transactions: summary.transactions,
        };
        insert(&mut self.good_blocks, self.max_good_listed, place, block);
    }

    fn add_note(&mut self, place: Place, note: Finding<'r>) {
        self.notes_not_listed += insert(&mut self.notes, MAX_LISTED, place, note);
    }

    fn add_problem(&mut self, place: Place, problem: Finding<'r>) {
        // For example, a file ends within a block and then a read fails.
        if let Some(same) = self.problems.get_mut(&place) {
            same.what.extend(problem.what);
        } else {
            self.problems_not_listed += insert(&mut self.problems, MAX_LISTED, place, problem);
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

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (blocks, bad) = (self.blocks, self.bad_blocks);
        match (bad, blocks) {
            (_, 0) => f.write_str("found no block")?,
            (0, 1) => f.write_str("the block is good")?,
            (0, _) => write!(f, "all {blocks} blocks are good")?,
            (1, _) => write!(f, "1 of {blocks} blocks is bad")?,
            _ => write!(f, "{bad} of {blocks} blocks are bad")?,
        }
        match self.problem_count() - bad {
            0 => writeln!(f)?,
            1 => writeln!(f, ", and there is 1 problem in the files")?,
            problems => writeln!(f, ", and there are {problems} problems in the files")?,
        }
        writeln!(f)?;
        writeln!(f, "network           {}", self.network)?;
        let (backend, threads) = (self.backend, self.threads);
        writeln!(f, "backend           {backend}, threads: {threads}")?;
        writeln!(f, "files             {}", self.files)?;
        writeln!(f, "blocks            {blocks}")?;
        if let (1, Some(GoodBlock { block, .. })) = (blocks, self.good_blocks.values().next()) {
            writeln!(f, "block             {block}")?;
        }
        let of_good = if bad > 0 { " in good blocks" } else { "" };
        writeln!(f, "bytes             {}{of_good}", self.bytes)?;
        writeln!(f, "transactions      {}{of_good}", self.transactions)?;
        writeln!(f, "hashes            {}{of_good}", self.hashes)?;
        writeln!(
            f,
            "time              {:.3} s: {:.0} blocks/s, {:.1} MB/s, {:.0} hashes/s",
            self.seconds,
            self.blocks_per_second,
            self.bytes_per_second / 1e6,
            self.hashes_per_second
        )?;
        writeln!(f, "not checked       {NOT_CHECKED}")?;
        findings(f, "", &self.problems, self.problems_not_listed)?;
        findings(f, "note: ", &self.notes, self.notes_not_listed)
    }
}

/// Parts of a block's validity that this command does not check.
const NOT_CHECKED: &str =
    "the chain's own target, times, weight, signature operations, coins, scripts";

/// Writes an empty line and a line for each entry.
fn findings(
    f: &mut fmt::Formatter<'_>,
    word: &str,
    entries: &BTreeMap<Place, Finding<'_>>,
    not_listed: u64,
) -> fmt::Result {
    if !entries.is_empty() {
        writeln!(f)?;
    }
    for finding in entries.values() {
        let file = Name(Path::new(finding.file));
        for what in &finding.what {
            write!(f, "{file}, byte {}", finding.offset)?;
            if let Some(block) = &finding.block {
                write!(f, ", block {block}")?;
            }
            writeln!(f, ": {word}{what}")?;
        }
    }
    match not_listed {
        0 => Ok(()),
        more => writeln!(f, "and {more} more"),
    }
}
