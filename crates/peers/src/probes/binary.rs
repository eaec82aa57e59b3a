//! Where the probes go in a node's program file, which may be stripped.
//!
//! The tracepoints are listed in the file's notes. The two functions that the message thread
//! calls for each peer have no name left in a stripped file. One of them contains the tracepoint
//! `net:inbound_message`, so the unwind table says where it begins. Both are virtual and declared
//! one after the other: the slot behind the first one's in the table of virtual functions is the
//! second one's. Each step is checked; a file of another shape is an error, not a guess.

use super::arguments::{Argument, parse_arguments};
use super::elf::{Elf, ElfError};
use std::fmt;
use std::path::{Path, PathBuf};

/// Places in a node's program file, as offsets in the file.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// Where the function begins that processes messages of a peer.
    pub(super) receiving: u64,
    /// Where the function begins that sends to a peer.
    pub(super) sending: u64,
    /// Where the tracepoints are that this program reads.
    pub(super) tracepoints: Vec<Tracepoint>,
}

/// A tracepoint in a program file. One name can have several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tracepoint {
    /// Its name, without the provider `net`.
    pub(super) name: String,
    /// The offset of its instruction in the file.
    pub(super) offset: u64,
    /// The offset of the counter that says whether somebody listens, if it has one.
    pub(super) semaphore: Option<u64>,
    /// Where its arguments lie.
    pub(super) arguments: Vec<Argument>,
}

/// The tracepoints that are used, of the provider `net`.
const WANTED: [&str; 5] = [
    "inbound_message",
    "outbound_message",
    "inbound_connection",
    "outbound_connection",
    "closed_connection",
];

/// The tracepoint in the function that processes messages.
const IN_RECEIVING: &str = "inbound_message";

/// Tracepoints that are used at the same time, at most. Bitcoin Core has 7 of [`WANTED`].
pub(super) const MAX_TRACEPOINTS: usize = 63;

/// The type of the relocations of pointers.
const RELATIVE: u64 = 8;

/// The first instruction of a function in a program that is protected by Intel's CET. The kernel
/// has to single-step it, which takes twenty times as long as the next one.
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// Why the places were not found.
#[derive(Debug)]
pub(super) enum PlacesError {
    /// The file, or a part of it, cannot be read.
    File(ElfError),
    /// It is a thread of the kernel, or has ended.
    NoProgram,
    /// Not even who may see all programs may read it.
    Hidden,
    /// It is damaged, or of a kind that is not known here.
    Malformed(&'static str),
    /// It was built without tracepoints.
    NoTracepoint(&'static str),
    /// An argument of a tracepoint lies where it cannot be read.
    Argument {
        /// Name of the tracepoint.
        tracepoint: String,
        /// The arguments, as the file has them.
        arguments: String,
    },
    /// The two functions were not found.
    Functions(&'static str),
}

impl fmt::Display for PlacesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::NoProgram => f.write_str(
                "it has no program: it is a thread of the kernel, or has ended; name the node's \
                 process by --pid",
            ),
            Self::Hidden => f.write_str(
                "the kernel lets nobody here read its program, CAP_SYS_PTRACE or not: it is not a \
                 node that can be watched from here; name the node's process by --pid",
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
                "the arguments of its tracepoint net:{tracepoint} lie where they cannot be read: \
                 {arguments:?}"
            ),
            Self::Functions(why) => write!(
                f,
                "the functions that the message thread calls for each peer were not found: {why}"
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

/// The program file of a running process: readable even if the file was replaced since.
pub(super) fn of_process(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/exe"))
}

/// Finds the places in the program file at `path`.
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
            "more than one contains the tracepoint net:inbound_message",
        ));
    }
    let sending = file.next_virtual_function(receiving)?;
    if starts.binary_search(&sending).is_err() {
        return Err(PlacesError::Functions(
            "what follows the first one in the table of virtual functions is no function",
        ));
    }
    Ok(Places {
        receiving: file.probed_offset(receiving)?,
        sending: file.probed_offset(sending)?,
        tracepoints: tracepoints.into_iter().map(|(_, point)| point).collect(),
    })
}

/// The function that contains `pc`: the last one that begins before it.
fn function_around(starts: &[u64], pc: u64) -> Result<u64, PlacesError> {
    let before = starts.partition_point(|start| *start <= pc);
    let last = starts[..before].last().copied();
    last.ok_or(PlacesError::Functions(
        "the tracepoint net:inbound_message lies in none",
    ))
}

struct Program(Elf);

impl Program {
    /// The tracepoints that are wanted, each with its address.
    fn tracepoints(&self) -> Result<Vec<(u64, Tracepoint)>, PlacesError> {
        let Some(notes) = self.0.section(".note.stapsdt") else {
            return Err(PlacesError::NoTracepoint(IN_RECEIVING));
        };
        let notes = self.0.data(&notes)?;
        // If the file was changed after linking (prelink), this section moved with the rest.
        let base = self.0.section(".stapsdt.base").map(|base| base.address);
        let mut found = Vec::new();
        let mut rest = &notes[..];
        while !rest.is_empty() {
            let (note, others) = Note::parse(rest).ok_or(PlacesError::Malformed(
                "damaged notes in its section .note.stapsdt",
            ))?;
            rest = others;
            if note.provider != "net" || !WANTED.contains(&note.name) {
                continue;
            }
            if found.len() == MAX_TRACEPOINTS {
                return Err(PlacesError::Malformed(
                    "too many tracepoints of one provider",
                ));
            }
            let moved = base.map_or(0, |base| base.wrapping_sub(note.base));
            let pc = note.pc.wrapping_add(moved);
            let unmapped = PlacesError::Malformed("a tracepoint outside of its code");
            let offset = self.0.offset(pc).ok_or(unmapped)?;
            let semaphore = match note.semaphore {
                0 => None,
                address => Some(self.0.offset(address.wrapping_add(moved)).ok_or(
                    PlacesError::Malformed("a tracepoint's semaphore outside of its data"),
                )?),
            };
            let arguments =
                parse_arguments(note.arguments).ok_or_else(|| PlacesError::Argument {
                    tracepoint: note.name.into(),
                    arguments: note.arguments.into(),
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
        for name in WANTED {
            if !found.iter().any(|(_, point)| point.name == name) {
                return Err(PlacesError::NoTracepoint(name));
            }
        }
        Ok(found)
    }

    /// The addresses at which functions begin, in order: from the table that the unwinder
    /// searches, which stripping leaves.
    fn function_starts(&self) -> Result<Vec<u64>, PlacesError> {
        let damaged =
            || PlacesError::Malformed("no unwind table (.eh_frame_hdr), or a damaged one");
        let section = self.0.section(".eh_frame_hdr").ok_or_else(damaged)?;
        let data = self.0.data(&section)?;
        // Version 1; the count is a plain u32, the entries are pairs of i32 relative to the
        // table: what every linker writes (Linux Standard Base, 10.6.2).
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

    /// The function whose slot in a table of virtual functions follows that of `function`.
    fn next_virtual_function(&self, function: u64) -> Result<u64, PlacesError> {
        let mut slots = Vec::new();
        self.each_pointer(&mut |slot, value| {
            if value == function && slots.len() < 2 {
                slots.push(slot);
            }
        })?;
        let [slot] = slots[..] else {
            return Err(PlacesError::Functions(
                "the one with the tracepoint net:inbound_message does not stand in exactly one \
                 table of virtual functions",
            ));
        };
        let mut next = None;
        self.each_pointer(&mut |at, value| {
            if Some(at) == slot.checked_add(8) {
                next = next.or(Some(value));
            }
        })?;
        next.ok_or(PlacesError::Functions("the first one is the table's last"))
    }

    /// Gives `take` every pointer in the constant data, behind its address: those that the loader
    /// relocates.
    fn each_pointer(&self, take: &mut dyn FnMut(u64, u64)) -> Result<(), PlacesError> {
        let mut is_relocated = false;
        if let Some(relocations) = self.0.section(".rela.dyn") {
            // The address, type and symbol, and what lies at the address.
            let data = self.0.data(&relocations)?;
            for relocation in data.as_chunks::<8>().0.as_chunks::<3>().0 {
                let [address, kind, value] = relocation.map(u64::from_le_bytes);
                if kind & 0xffff_ffff == RELATIVE {
                    is_relocated = true;
                    take(address, value);
                }
            }
        }
        // Packed relocations (`-z pack-relative-relocs`), or a program that is not relocated:
        // the pointers lie in the data.
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

    /// Where to put a probe at the beginning of a function: behind [`ENDBR64`].
    fn probed_offset(&self, function: u64) -> Result<u64, PlacesError> {
        let outside = PlacesError::Functions("one lies outside of the code");
        let offset = self.0.offset(function).ok_or(outside)?;
        Ok(match self.0.bytes_at(offset) == Some(ENDBR64) {
            true => offset + ENDBR64.len() as u64,
            false => offset,
        })
    }
}

/// A note of `sys/sdt.h`.
struct Note<'d> {
    pc: u64,
    base: u64,
    semaphore: u64,
    provider: &'d str,
    name: &'d str,
    arguments: &'d str,
}

impl<'d> Note<'d> {
    /// The first note of `bytes`, and the bytes behind it.
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
