//! Where the probes go in a node's program file, which may be stripped.
//!
//! The tracepoints are listed in the file's notes. The two functions that the message thread
//! calls for each peer have no name left in a stripped file. One of them contains the tracepoint
//! `net:inbound_message`, so the unwind table says where it begins. Both are virtual and declared
//! one after the other: the slot behind the first one's in the table of virtual functions is the
//! second one's. Each step is checked; a file of another shape is an error, not a guess.

use super::arguments::{Argument, parse_arguments};
use object::elf;
use object::read::elf::{ElfFile64, ElfSection64, FileHeader as _, ProgramHeader as _, Rela as _};
use object::{Endianness, Object as _, ObjectSection as _, ReadRef};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
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

/// The first instruction of a function in a program that is protected by Intel's CET. The kernel
/// has to single-step it, which takes twenty times as long as the next one.
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// Why the places were not found.
#[derive(Debug)]
pub(super) enum PlacesError {
    /// The file cannot be read.
    Read(io::Error),
    /// It is no program for this kind of CPU.
    NotX86_64,
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
            Self::Read(error) => error.fmt(f),
            Self::NotX86_64 => f.write_str("it is no program for x86-64 Linux"),
            Self::Malformed(what) => write!(f, "it has {what}"),
            Self::NoTracepoint(name) => write!(
                f,
                "it has no tracepoint net:{name}: the node was built without them (WITH_USDT)"
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

impl From<io::Error> for PlacesError {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

impl From<object::Error> for PlacesError {
    fn from(_: object::Error) -> Self {
        Self::Malformed("a damaged header")
    }
}

/// Finds the places in the program file at `path`.
pub(super) fn find(path: &Path) -> Result<Places, PlacesError> {
    find_in(&std::fs::read(path)?)
}

/// The program file of a running process: readable even if the file was replaced since.
pub(super) fn of_process(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/exe"))
}

fn find_in(bytes: &[u8]) -> Result<Places, PlacesError> {
    if !matches!(object::FileKind::parse(bytes), Ok(object::FileKind::Elf64)) {
        return Err(PlacesError::NotX86_64);
    }
    let file = Program::parse(bytes)?;
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
    if !starts.contains(&sending) {
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
fn function_around(starts: &BTreeSet<u64>, pc: u64) -> Result<u64, PlacesError> {
    starts
        .range(..=pc)
        .next_back()
        .copied()
        .ok_or(PlacesError::Functions(
            "the tracepoint net:inbound_message lies in none",
        ))
}

struct Program<'d> {
    bytes: &'d [u8],
    file: ElfFile64<'d, Endianness>,
}

impl<'d> Program<'d> {
    fn parse(bytes: &'d [u8]) -> Result<Self, PlacesError> {
        let file = ElfFile64::<Endianness>::parse(bytes)?;
        let header = file.elf_header();
        let is_ours = file.endian() == Endianness::Little
            && header.e_machine(file.endian()) == elf::EM_X86_64;
        is_ours
            .then_some(Self { bytes, file })
            .ok_or(PlacesError::NotX86_64)
    }

    fn section(&self, name: &str) -> Option<ElfSection64<'d, '_, Endianness>> {
        self.file.section_by_name(name)
    }

    /// The file's offset of an address in memory.
    fn offset(&self, address: u64) -> Option<u64> {
        let endian = self.file.endian();
        let segments = self.file.elf_program_headers().iter();
        segments
            .filter(|segment| segment.p_type(endian) == elf::PT_LOAD)
            .find_map(|segment| {
                let within = address.checked_sub(segment.p_vaddr(endian))?;
                (within < segment.p_filesz(endian))
                    .then(|| segment.p_offset(endian).checked_add(within))?
            })
    }

    /// Up to `len` bytes at an address.
    fn bytes_at(&self, address: u64, len: usize) -> Option<&'d [u8]> {
        self.bytes
            .read_bytes_at(self.offset(address)?, len as u64)
            .ok()
    }

    /// The tracepoints that are wanted, each with its address.
    fn tracepoints(&self) -> Result<Vec<(u64, Tracepoint)>, PlacesError> {
        let Some(notes) = self.section(".note.stapsdt") else {
            return Err(PlacesError::NoTracepoint(IN_RECEIVING));
        };
        // If the file was changed after linking (prelink), this section moved with the rest.
        let base = self.section(".stapsdt.base").map(|base| base.address());
        let mut found = Vec::new();
        let mut rest = notes.data()?;
        while !rest.is_empty() {
            let (note, others) = Note::parse(rest).ok_or(PlacesError::Malformed(
                "damaged notes in its section .note.stapsdt",
            ))?;
            rest = others;
            if note.provider != "net" || !WANTED.contains(&note.name) {
                continue;
            }
            let moved = base.map_or(0, |base| base.wrapping_sub(note.base));
            let pc = note.pc.wrapping_add(moved);
            let unmapped = PlacesError::Malformed("a tracepoint outside of its code");
            let offset = self.offset(pc).ok_or(unmapped)?;
            let semaphore = match note.semaphore {
                0 => None,
                address => Some(self.offset(address.wrapping_add(moved)).ok_or(
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

    /// The addresses at which functions begin: from the sorted table that the unwinder
    /// searches, which stripping leaves.
    fn function_starts(&self) -> Result<BTreeSet<u64>, PlacesError> {
        let damaged = PlacesError::Malformed("no unwind table (.eh_frame_hdr), or a damaged one");
        let table = self.section(".eh_frame_hdr");
        let starts = table.and_then(|section| {
            let data = section.data().ok()?;
            // Version 1; the count is a plain u32, the entries are pairs of i32 relative to the
            // table: what every linker writes (Linux Standard Base, 10.6.2).
            let &[1, _, 0x03, 0x3b, ..] = data else {
                return None;
            };
            let count = u32::from_le_bytes(*data.get(8..)?.first_chunk()?);
            let (entries, _) = data.get(12..)?.as_chunks::<8>();
            let entries = entries.get(..count as usize)?;
            let start = |entry: &[u8; 8]| {
                let [a, b, c, d, ..] = *entry;
                let distance = i64::from(i32::from_le_bytes([a, b, c, d]));
                section.address().wrapping_add_signed(distance)
            };
            Some(entries.iter().map(start).collect())
        });
        starts.ok_or(damaged)
    }

    /// The function whose slot in a table of virtual functions follows that of `function`.
    fn next_virtual_function(&self, function: u64) -> Result<u64, PlacesError> {
        let values = self.pointers()?;
        let mut slots = values.iter().filter(|(_, value)| *value == function);
        let (Some((slot, _)), None) = (slots.next(), slots.next()) else {
            return Err(PlacesError::Functions(
                "the one with the tracepoint net:inbound_message does not stand in exactly one \
                 table of virtual functions",
            ));
        };
        let next = slot + 8;
        let next = values.iter().find(|(slot, _)| *slot == next);
        next.map(|(_, value)| *value)
            .ok_or(PlacesError::Functions("the first one is the table's last"))
    }

    /// Every pointer in its constant data, with its address: those that the loader relocates.
    fn pointers(&self) -> Result<Vec<(u64, u64)>, PlacesError> {
        let endian = self.file.endian();
        let mut found = Vec::new();
        if let Some(relocations) = self.section(".rela.dyn") {
            let data = relocations.data()?;
            let count = data.len() / size_of::<elf::Rela64<Endianness>>();
            let relocations = data
                .read_slice_at::<elf::Rela64<Endianness>>(0, count)
                .map_err(|()| PlacesError::Malformed("damaged relocations"))?;
            for relocation in relocations {
                if relocation.r_type(endian, false) == elf::R_X86_64_RELATIVE {
                    found.push((
                        relocation.r_offset(endian),
                        relocation.r_addend(endian).cast_unsigned(),
                    ));
                }
            }
        }
        // Packed relocations (`-z pack-relative-relocs`), or a program that is not relocated:
        // the pointers lie in the data.
        if self.section(".relr.dyn").is_some() || found.is_empty() {
            for name in [".data.rel.ro", ".rodata"] {
                let Some(section) = self.section(name) else {
                    continue;
                };
                let (words, _) = section.data()?.as_chunks::<8>();
                let address = section.address();
                found.extend(
                    words
                        .iter()
                        .zip((address..).step_by(8))
                        .map(|(word, at)| (at, u64::from_le_bytes(*word))),
                );
            }
        }
        Ok(found)
    }

    /// Where to put a probe at the beginning of a function: behind [`ENDBR64`].
    fn probed_offset(&self, function: u64) -> Result<u64, PlacesError> {
        let first = self.bytes_at(function, ENDBR64.len());
        let offset = self.offset(function).filter(|_| first.is_some());
        let offset = offset.ok_or(PlacesError::Functions("one lies outside of the code"))?;
        Ok(match first == Some(&ENDBR64) {
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
