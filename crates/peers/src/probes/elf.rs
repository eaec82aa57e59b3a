//! An executable (ELF, 64-bit, little-endian). Parts are read on demand with a size limit: the file is untrusted,
//! it may have any size and claim anything.

use super::machine::{MACHINES, Machine};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Maximum size of a part that is read, in bytes. The largest of Bitcoin Core 31.99, its constants,
/// has 1.7 MB.
pub(super) const MAX_PART: u64 = 32 << 20;

/// The first bytes of a 64-bit little-endian ELF file.
const MAGIC: &[u8; 6] = b"\x7fELF\x02\x01";

/// Sizes of the header and of the entries of the segment and section tables.
const HEADER_LEN: usize = 64;
const SEGMENT_LEN: usize = 56;
const SECTION_LEN: usize = 64;

/// The type of loaded segments, and the type of sections without data.
const LOADED: u32 = 1;
const NO_DATA: u32 = 8;

/// Why an executable cannot be read.
#[derive(Debug)]
pub(super) enum ElfError {
    /// The system reports an error.
    Read(io::Error),
    /// Not an executable for a supported CPU.
    OtherFormat,
    /// A part is larger than [`MAX_PART`], or lies outside the file.
    Part {
        /// The part.
        name: &'static str,
        /// Its size in bytes, as the file claims.
        len: u64,
    },
}

impl fmt::Display for ElfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::OtherFormat => {
                f.write_str("it is not an executable for x86-64 or 64-bit ARM Linux")
            }
            Self::Part { name, len } if *len > MAX_PART => {
                write!(f, "its {name} has {len} bytes; at most {MAX_PART} are read")
            }
            Self::Part { name, .. } => write!(f, "its {name} lies outside the file"),
        }
    }
}

impl std::error::Error for ElfError {}

/// An executable.
pub(super) struct Elf {
    /// The CPU type.
    pub(super) machine: &'static Machine,
    file: File,
    segments: Vec<u8>,
    sections: Vec<u8>,
    names: Vec<u8>,
}

/// A section of an executable.
pub(super) struct Section {
    name: &'static str,
    /// Its address in memory.
    pub(super) address: u64,
    offset: u64,
    len: u64,
}

impl Elf {
    /// Opens the file at `path` and reads its tables.
    pub(super) fn open(path: &Path) -> Result<Self, ElfError> {
        let file = File::open(path).map_err(ElfError::Read)?;
        let mut header = [0; HEADER_LEN];
        match file.read_exact_at(&mut header, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(ElfError::OtherFormat);
            }
            read => read.map_err(ElfError::Read)?,
        }
        let mut machines = MACHINES.iter().copied();
        let machine = machines
            .find(|machine| machine.elf_number == u16_at(&header, 18))
            .filter(|_| header.starts_with(MAGIC))
            .ok_or(ElfError::OtherFormat)?;
        // The entry size precedes the number of entries.
        let table = |name, offset_at, len_at, entry_len: usize| {
            let count = u64::from(u16_at(&header, len_at + 2));
            if count > 0 && usize::from(u16_at(&header, len_at)) != entry_len {
                return Err(ElfError::OtherFormat);
            }
            let offset = u64_at(&header, offset_at);
            read(&file, name, offset, count * entry_len as u64)
        };
        let segments = table("segment table", 32, 54, SEGMENT_LEN)?;
        let sections = table("section table", 40, 58, SECTION_LEN)?;
        let of_names = usize::from(u16_at(&header, 62));
        let names = match sections.chunks_exact(SECTION_LEN).nth(of_names) {
            Some(entry) => {
                let section = Section::parse("table of names", entry);
                read(&file, section.name, section.offset, section.len)?
            }
            None => Vec::new(),
        };
        Ok(Self {
            machine,
            file,
            segments,
            sections,
            names,
        })
    }

    /// The first section with this name.
    pub(super) fn section(&self, name: &'static str) -> Option<Section> {
        let is_it = |entry: &&[u8]| {
            let rest = self.names.get(u32_at(entry, 0) as usize..);
            let rest = rest.and_then(|rest| rest.strip_prefix(name.as_bytes()));
            rest.is_some_and(|rest| rest.first() == Some(&0))
        };
        let mut entries = self.sections.chunks_exact(SECTION_LEN);
        let entry = entries.find(is_it)?;
        Some(Section::parse(name, entry))
    }

    /// The bytes of a section.
    pub(super) fn data(&self, section: &Section) -> Result<Vec<u8>, ElfError> {
        read(&self.file, section.name, section.offset, section.len)
    }

    /// The file offset of an address in memory.
    pub(super) fn offset(&self, address: u64) -> Option<u64> {
        let segments = self.segments.chunks_exact(SEGMENT_LEN);
        let mut loaded = segments.filter(|segment| u32_at(segment, 0) == LOADED);
        loaded.find_map(|segment| {
            let within = address.checked_sub(u64_at(segment, 16))?;
            (within < u64_at(segment, 32)).then(|| u64_at(segment, 8).checked_add(within))?
        })
    }

    /// The bytes at a file offset.
    pub(super) fn bytes_at<const N: usize>(&self, offset: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.file.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }
}

impl Section {
    /// Parses an entry of the section table.
    fn parse(name: &'static str, entry: &[u8]) -> Self {
        let (offset, len) = match u32_at(entry, 4) {
            NO_DATA => (0, 0),
            _ => (u64_at(entry, 24), u64_at(entry, 32)),
        };
        Self {
            name,
            address: u64_at(entry, 16),
            offset,
            len,
        }
    }
}

/// Reads a part of the file. Checks its size before allocating memory.
fn read(file: &File, name: &'static str, offset: u64, len: u64) -> Result<Vec<u8>, ElfError> {
    let part = || ElfError::Part { name, len };
    let end = offset.checked_add(len).ok_or_else(part)?;
    if len > MAX_PART || end > file.metadata().map_err(ElfError::Read)?.len() {
        return Err(part());
    }
    let mut bytes = vec![0; len as usize];
    match file.read_exact_at(&mut bytes, offset) {
        Ok(()) => Ok(bytes),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(part()),
        Err(error) => Err(ElfError::Read(error)),
    }
}

/// The number at offset `at` of an entry, which must be long enough.
fn u16_at(entry: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([entry[at], entry[at + 1]])
}

fn u32_at(entry: &[u8], at: usize) -> u32 {
    u32::from(u16_at(entry, at)) | u32::from(u16_at(entry, at + 2)) << 16
}

fn u64_at(entry: &[u8], at: usize) -> u64 {
    u64::from(u32_at(entry, at)) | u64::from(u32_at(entry, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &[u8] = b"\0.names\0.note\0.bss\0";

    /// A file with three sections: names, 4 bytes of data, and one without data.
    fn parts() -> Vec<u8> {
        let mut file = vec![0; HEADER_LEN];
        file[..6].copy_from_slice(MAGIC);
        let mut put =
            |at: usize, number: u16| file[at..at + 2].copy_from_slice(&number.to_le_bytes());
        put(18, 62);
        for (at, len) in [(54, SEGMENT_LEN), (58, SECTION_LEN), (40, HEADER_LEN)] {
            put(at, len as u16);
        }
        put(60, 3);
        let names_at = (HEADER_LEN + 3 * SECTION_LEN) as u64;
        let note_at = names_at + NAMES.len() as u64;
        for (name, kind, offset, len) in [
            (1, 3, names_at, NAMES.len() as u64),
            (8, 7, note_at, 4),
            (14, NO_DATA, u64::MAX, u64::MAX),
        ] {
            let mut entry = [0; SECTION_LEN];
            entry[..4].copy_from_slice(&u32::to_le_bytes(name));
            entry[4..8].copy_from_slice(&kind.to_le_bytes());
            entry[24..32].copy_from_slice(&offset.to_le_bytes());
            entry[32..40].copy_from_slice(&len.to_le_bytes());
            file.extend_from_slice(&entry);
        }
        file.extend_from_slice(NAMES);
        file.extend_from_slice(b"data");
        file
    }

    /// Opens a file with these bytes, extended by a hole to `len` bytes, and reads its `.note`.
    fn note(name: &str, bytes: &[u8], len: u64) -> Result<Vec<u8>, ElfError> {
        let file = format!("packetlane-elf-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(file);
        std::fs::write(&path, bytes).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(len.max(bytes.len() as u64)).unwrap();
        let elf = Elf::open(&path);
        std::fs::remove_file(&path).unwrap();
        let elf = elf?;
        assert!(elf.section(".absent").is_none() && elf.section(".no").is_none());
        if let Some(bss) = elf.section(".bss") {
            assert!(elf.data(&bss).unwrap().is_empty());
        }
        elf.data(&elf.section(".note").unwrap())
    }

    #[test]
    fn parts_are_read_and_nothing_else() {
        assert_eq!(note("whole", &parts(), 1 << 40).unwrap(), b"data");
    }

    #[test]
    fn what_a_file_claims_takes_no_memory() {
        let note_len = HEADER_LEN + SECTION_LEN + 32;
        let claim = |len: u64| {
            let mut bytes = parts();
            bytes[note_len..note_len + 8].copy_from_slice(&len.to_le_bytes());
            bytes
        };
        for (len, expected) in [
            (3 << 30, "its .note has 3221225472 bytes; at most 33554432"),
            (u64::MAX, "its .note has 18446744073709551615 bytes"),
        ] {
            let read = note("long", &claim(len), 4 << 30).map(|data| data.len());
            let error = read.unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        let error = note("outside", &claim(5), 0).unwrap_err().to_string();
        assert_eq!(error, "its .note lies outside the file");
    }

    #[test]
    fn other_files_are_rejected() {
        let whole = parts();
        let mut other_cpu = whole.clone();
        other_cpu[18] = 40;
        for bytes in [
            &b""[..],
            &whole[..HEADER_LEN - 1],
            b"#!/bin/sh\n",
            &other_cpu,
        ] {
            assert!(matches!(
                note("other", bytes, 0),
                Err(ElfError::OtherFormat)
            ));
        }
        for len in HEADER_LEN..whole.len() {
            let error = note("cut", &whole[..len], 0).unwrap_err();
            assert!(matches!(error, ElfError::Part { .. }), "{len}: {error}");
        }
    }
}
