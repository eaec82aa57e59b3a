//! Finds the places for probes in a node's executable, which may be stripped.
//!
//! The tracepoints are listed in the ELF notes. The two functions that the message thread calls for
//! each peer have no symbol in a stripped file. One of them contains the tracepoint
//! `net:inbound_message`, so the unwind table gives its start. Both are virtual and declared one
//! after the other, so the next slot in the vtable holds the second one. Each step is verified: a
//! file with another structure is an error, never a guess.

use super::arguments::{Argument, parse_arguments};
use super::elf::{Elf, ElfError};
use super::machine::{self, Machine};
use std::fmt;
use std::path::{Path, PathBuf};

/// Places in a node's executable, as file offsets.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// The CPU type that it is for.
    pub(super) machine: &'static Machine,
    /// Start of the function that processes messages from a peer.
    pub(super) receiving: u64,
    /// Start of the function that sends to a peer.
    pub(super) sending: u64,
    /// The tracepoints in use.
    pub(super) tracepoints: Vec<Tracepoint>,
}

/// A tracepoint in an executable. Several can have the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tracepoint {
    /// Name without its provider.
    pub(super) name: String,
    /// File offset of its instruction.
    pub(super) offset: u64,
    /// File offset of its semaphore, the counter that enables it, if it has one.
    pub(super) semaphore: Option<u64>,
    /// Locations of its arguments.
    pub(super) arguments: Vec<Argument>,
}

/// Providers and names of the tracepoints in use.
const WANTED: [(&str, &str); 7] = [
    ("net", "inbound_message"),
    ("net", "outbound_message"),
    ("net", "inbound_connection"),
    ("net", "outbound_connection"),
    ("net", "closed_connection"),
    ("validation", "block_connected"),
    (TRANSACTION_ADDED.0, TRANSACTION_ADDED.1),
];

/// The tracepoint of a transaction that the mempool accepts.
const TRANSACTION_ADDED: (&str, &str) = ("mempool", "added");

/// The tracepoint within the function that processes messages.
const IN_RECEIVING: &str = "inbound_message";

/// Maximum number of tracepoints. Bitcoin Core has 9 with names in [`WANTED`].
pub(super) const MAX_TRACEPOINTS: usize = 63;

/// Why the places were not found.
#[derive(Debug)]
pub(super) enum PlacesError {
    /// The file, or a part of it, cannot be read.
    File(ElfError),
    /// A kernel thread, or the process has ended.
    NoProgram,
    /// Not readable even with CAP_SYS_PTRACE.
    Hidden,
    /// Damaged, or an unknown structure.
    Malformed(&'static str),
    /// Built without this tracepoint.
    NoTracepoint(&'static str),
    /// The location of a tracepoint's argument is not supported.
    Argument {
        /// The tracepoint's name.
        tracepoint: String,
        /// The argument text in the file.
        arguments: String,
    },
    /// The two functions were not found.
    Functions(&'static str),
    /// For another CPU: an emulator runs it.
    OtherMachine(&'static str),
}

impl Places {
    /// Whether a message that adds nothing can be told from one that does.
    pub(super) fn sees_additions(&self) -> bool {
        let mut points = self.tracepoints.iter();
        points.any(|point| point.name == TRANSACTION_ADDED.1)
    }
}

impl fmt::Display for PlacesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::NoProgram => f.write_str(
                "it has no executable: it is a kernel thread, or has ended; pass the node's --pid",
            ),
            Self::Hidden => f.write_str(
                "its executable is not readable, even with CAP_SYS_PTRACE: this process cannot be \
                 observed from here; pass the node's --pid",
            ),
            Self::Malformed(what) => write!(f, "it has {what}"),
            Self::NoTracepoint(name) => write!(
                f,
                "it has no tracepoint net:{name}: it is not Bitcoin Core, or was built without \
                 tracepoints (WITH_USDT)"
            ),
            Self::Argument {
                tracepoint,
                arguments,
            } => write!(
                f,
                "the arguments of its tracepoint net:{tracepoint} have unsupported locations: \
                 {arguments:?}"
            ),
            Self::Functions(why) => write!(
                f,
                "the functions that the message thread calls for each peer were not found: {why}"
            ),
            Self::OtherMachine(name) => write!(
                f,
                "it is for {name}, and this program is for {}",
                machine::THIS.name
            ),
        }
    }
}

impl std::error::Error for PlacesError {}

impl From<ElfError> for PlacesError {
    fn from(error: ElfError) -> Self {
        Self::File(error)
    }
}

/// The executable of a running process. Readable even if the file was replaced since.
pub(super) fn of_process(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/exe"))
}

/// Finds the places in the executable at `path`, which must be for this CPU.
pub(super) fn find_here(path: &Path) -> Result<Places, PlacesError> {
    let places = find(path)?;
    match places.machine.elf_number == machine::THIS.elf_number {
        true => Ok(places),
        false => Err(PlacesError::OtherMachine(places.machine.name)),
    }
}

/// Finds the places in the executable at `path`.
pub(super) fn find(path: &Path) -> Result<Places, PlacesError> {
    let file = Program(Elf::open(path)?);
    let tracepoints = file.tracepoints()?;
    let mut pcs = tracepoints
        .iter()
        .filter(|(_, point)| point.name == IN_RECEIVING)
        .map(|(pc, _)| *pc);
    let pc = pcs.next().ok_or(PlacesError::NoTracepoint(IN_RECEIVING))?;
    let starts = file.function_starts()?;
    let receiving = function_around(&starts, pc)?;
    if pcs.any(|other| function_around(&starts, other).ok() != Some(receiving)) {
        return Err(PlacesError::Functions(
            "several contain the tracepoint net:inbound_message",
        ));
    }
    let sending = file.next_virtual_function(receiving)?;
    if starts.binary_search(&sending).is_err() {
        return Err(PlacesError::Functions(
            "the slot after the first one in the vtable does not hold a function",
        ));
    }
    Ok(Places {
        machine: file.0.machine,
        receiving: file.probed_offset(receiving)?,
        sending: file.probed_offset(sending)?,
        tracepoints: tracepoints.into_iter().map(|(_, point)| point).collect(),
    })
}

/// The function that contains `pc`: the last one that starts at or before it.
fn function_around(starts: &[u64], pc: u64) -> Result<u64, PlacesError> {
    let before = starts.partition_point(|start| *start <= pc);
    let last = starts[..before].last().copied();
    last.ok_or(PlacesError::Functions(
        "none contains the tracepoint net:inbound_message",
    ))
}

struct Program(Elf);

impl Program {
    /// The tracepoints in use, with their addresses.
    fn tracepoints(&self) -> Result<Vec<(u64, Tracepoint)>, PlacesError> {
        let Some(notes) = self.0.section(".note.stapsdt") else {
            return Err(PlacesError::NoTracepoint(IN_RECEIVING));
        };
        let notes = self.0.data(&notes)?;
        // If the file was changed after linking (prelink), this section has moved with the others.
        let base = self.0.section(".stapsdt.base").map(|base| base.address);
        let mut found = Vec::new();
        let mut rest = &notes[..];
        while !rest.is_empty() {
            let (note, others) = Note::parse(rest).ok_or(PlacesError::Malformed(
                "damaged notes in its section .note.stapsdt",
            ))?;
            rest = others;
            if !WANTED.contains(&(note.provider, note.name)) {
                continue;
            }
            if found.len() == MAX_TRACEPOINTS {
                return Err(PlacesError::Malformed(
                    "too many tracepoints of one provider",
                ));
            }
            let moved = base.map_or(0, |base| base.wrapping_sub(note.base));
            let pc = note.pc.wrapping_add(moved);
            let unmapped = PlacesError::Malformed("a tracepoint outside its code");
            let offset = self.0.offset(pc).ok_or(unmapped)?;
            let semaphore = match note.semaphore {
                0 => None,
                address => Some(self.0.offset(address.wrapping_add(moved)).ok_or(
                    PlacesError::Malformed("a tracepoint's semaphore outside its data"),
                )?),
            };
            let arguments = parse_arguments(self.0.machine, note.arguments).ok_or_else(|| {
                PlacesError::Argument {
                    tracepoint: note.name.into(),
                    arguments: note.arguments.into(),
                }
            })?;
            let name = note.name.into();
            found.push((
                pc,
                Tracepoint {
                    name,
                    offset,
                    semaphore,
                    arguments,
                },
            ));
        }
        for (provider, name) in WANTED {
            // Without those of other providers, the cost of peers is still measured.
            if provider == "net" && !found.iter().any(|(_, point)| point.name == name) {
                return Err(PlacesError::NoTracepoint(name));
            }
        }
        Ok(found)
    }

    /// Start addresses of all functions, in order. They come from the unwinder's search table,
    /// which survives stripping.
    fn function_starts(&self) -> Result<Vec<u64>, PlacesError> {
        let damaged =
            || PlacesError::Malformed("no unwind table (.eh_frame_hdr), or a damaged one");
        let section = self.0.section(".eh_frame_hdr").ok_or_else(damaged)?;
        let data = self.0.data(&section)?;
        // Version 1. The count is a u32; the entries are pairs of i32 relative to the table, as all
        // linkers write them (Linux Standard Base, 10.6.2).
        let &[1, _, 0x03, 0x3b, _, _, _, _, a, b, c, d, ref entries @ ..] = &data[..] else {
            return Err(damaged());
        };
        let count = u32::from_le_bytes([a, b, c, d]) as usize;
        let entries = entries.as_chunks::<8>().0.get(..count);
        let start = |entry: &[u8; 8]| {
            let [a, b, c, d, ..] = *entry;
            let distance = i64::from(i32::from_le_bytes([a, b, c, d]));
            section.address.wrapping_add_signed(distance)
        };
        let mut starts: Vec<u64> = entries.ok_or_else(damaged)?.iter().map(start).collect();
        starts.sort_unstable();
        Ok(starts)
    }

    /// The function in the vtable slot after that of `function`.
    fn next_virtual_function(&self, function: u64) -> Result<u64, PlacesError> {
        let mut slots = Vec::new();
        self.each_pointer(&mut |slot, value| {
            if value == function && slots.len() < 2 {
                slots.push(slot);
            }
        })?;
        let [slot] = slots[..] else {
            return Err(PlacesError::Functions(
                "the one with the tracepoint net:inbound_message is not in exactly one vtable",
            ));
        };
        let mut next = None;
        self.each_pointer(&mut |at, value| {
            if Some(at) == slot.checked_add(8) {
                next = next.or(Some(value));
            }
        })?;
        next.ok_or(PlacesError::Functions(
            "the first one is the last in its vtable",
        ))
    }

    /// Passes the address and value of every pointer in the constant data to `take`: those that the
    /// loader relocates.
    fn each_pointer(&self, take: &mut dyn FnMut(u64, u64)) -> Result<(), PlacesError> {
        let mut is_relocated = false;
        if let Some(relocations) = self.0.section(".rela.dyn") {
            // An entry: address, type and symbol, addend (the value).
            let data = self.0.data(&relocations)?;
            for relocation in data.as_chunks::<8>().0.as_chunks::<3>().0 {
                let [address, kind, value] = relocation.map(u64::from_le_bytes);
                if kind & 0xffff_ffff == self.0.machine.relative {
                    is_relocated = true;
                    take(address, value);
                }
            }
        }
        // Packed relocations (`-z pack-relative-relocs`), or a program that is not relocated: the
        // pointers are in the data itself.
        if is_relocated && self.0.section(".relr.dyn").is_none() {
            return Ok(());
        }
        for name in [".data.rel.ro", ".rodata"] {
            let Some(section) = self.0.section(name) else {
                continue;
            };
            let data = self.0.data(&section)?;
            for (at, word) in (0..).step_by(8).zip(data.as_chunks::<8>().0) {
                take(section.address.wrapping_add(at), u64::from_le_bytes(*word));
            }
        }
        Ok(())
    }

    /// Where to put the probe on a function: after [`Machine::skipped`], if it starts with that.
    fn probed_offset(&self, function: u64) -> Result<u64, PlacesError> {
        let outside = PlacesError::Functions("one lies outside the code");
        let offset = self.0.offset(function).ok_or(outside)?;
        Ok(match self.0.machine.skipped {
            Some(skipped) if self.0.bytes_at(offset) == Some(skipped) => {
                offset + skipped.len() as u64
            }
            _ => offset,
        })
    }
}

/// A note as `sys/sdt.h` defines it.
struct Note<'d> {
    pc: u64,
    base: u64,
    semaphore: u64,
    provider: &'d str,
    name: &'d str,
    arguments: &'d str,
}

impl<'d> Note<'d> {
    /// Parses the first note of `bytes`. Also returns the bytes after it.
    fn parse(bytes: &'d [u8]) -> Option<(Self, &'d [u8])> {
        let number = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let [name_len, len, kind] = [
            number(0)? as usize,
            number(4)? as usize,
            number(8)? as usize,
        ];
        let start = 12_usize.checked_add(name_len.checked_next_multiple_of(4)?)?;
        let end = start.checked_add(len)?;
        let description = bytes.get(start..end)?;
        if bytes.get(12..12 + name_len)? != b"stapsdt\0" || kind != 3 {
            return None;
        }
        let address = |at: usize| Some(u64::from_le_bytes(*description.get(at..)?.first_chunk()?));
        let mut texts = description.get(24..)?.split(|&byte| byte == 0);
        let mut text = || std::str::from_utf8(texts.next()?).ok();
        let note = Self {
            pc: address(0)?,
            base: address(8)?,
            semaphore: address(16)?,
            provider: text()?,
            name: text()?,
            arguments: text()?,
        };
        let rest = bytes.get(end.checked_next_multiple_of(4)?..).unwrap_or(&[]);
        Some((note, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::process::Command;

    /// Compiles the fake node for a CPU, with symbols. `None` without that compiler.
    fn compile(tools: &str, name: &str, options: &[&str]) -> Option<PathBuf> {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake/fake_node.cpp");
        let name = format!("packetlane-places-{name}-{}", std::process::id());
        let program = std::env::temp_dir().join(name);
        let status = Command::new(format!("{tools}g++"))
            .args(["-std=c++17", "-O2", "-pthread", source, "-o"])
            .arg(&program)
            .args(options)
            .status();
        assert!(status.ok()?.success());
        Some(program)
    }

    /// The address of a function with a part of this name, from the symbols.
    fn address(tools: &str, program: &Path, name: &str) -> u64 {
        let symbols = Command::new(format!("{tools}nm")).arg(program).output();
        let symbols = String::from_utf8(symbols.unwrap().stdout).unwrap();
        let mut lines = symbols.lines();
        let line = lines.find(|line| line.contains(name)).unwrap();
        u64::from_str_radix(line.split_once(' ').unwrap().0, 16).unwrap()
    }

    /// The places in stripped executables are those that the symbols name, on both CPUs, with and
    /// without protected returns and calls.
    #[test]
    fn the_functions_of_both_cpus() {
        const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
        const PACIASP: [u8; 4] = 0xd503_233f_u32.to_le_bytes();
        const BTI_C: [u8; 4] = 0xd503_245f_u32.to_le_bytes();
        // An option, the first instruction, and how much of it is skipped.
        let x86_64 = [
            ("-fcf-protection", Some(ENDBR64), 4),
            ("-fcf-protection=none", None, 0),
        ];
        let aarch64 = [
            ("-mbranch-protection=standard", Some(PACIASP), 0),
            ("-mbranch-protection=bti", Some(BTI_C), 0),
            ("-mbranch-protection=none", None, 0),
        ];
        for (tools, number, options) in [
            ("x86_64-linux-gnu-", 62, &x86_64[..]),
            ("aarch64-linux-gnu-", 183, &aarch64),
        ] {
            let linked = [["-fPIE", "-pie"], ["-fno-pie", "-no-pie"]];
            let cases = linked
                .iter()
                .flat_map(|linked| options.iter().map(move |option| (linked, option)));
            for ([position, linked], (protection, first, skipped)) in cases {
                let name = format!("{number}{protection}{linked}");
                let options = [*protection, position, linked];
                let Some(program) = compile(tools, &name, &options) else {
                    // The test harness hides what `eprintln` prints.
                    let line = format!("NOT RUN: the functions to probe: no {tools}g++");
                    let _ = writeln!(std::io::stderr(), "{line}");
                    break;
                };
                let addresses =
                    ["4Node7Receive", "4Node4Send"].map(|name| address(tools, &program, name));
                let stripped = Command::new(format!("{tools}strip")).arg(&program).status();
                assert!(stripped.unwrap().success());
                let (places, elf) = (find(&program).unwrap(), Elf::open(&program).unwrap());
                std::fs::remove_file(&program).unwrap();
                assert_eq!(places.machine.elf_number, number);
                assert_eq!(places.tracepoints.len(), 5, "{places:?}");
                for (place, address) in [places.receiving, places.sending]
                    .into_iter()
                    .zip(addresses)
                {
                    let start = elf.offset(address).unwrap();
                    assert_eq!(place, start + skipped, "{name}");
                    let starts_so = first.is_none() || elf.bytes_at(start) == *first;
                    assert!(starts_so, "{name}");
                }
            }
        }
    }
}
