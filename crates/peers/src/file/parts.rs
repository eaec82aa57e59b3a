//! The parts of a recording that is being written: their names, sizes and ages, and which of them are
//! deleted to stay within limits.

use packetlane_files::{Folder, Name, special_kind};
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Limits of a recording on disk. The oldest parts are deleted to stay within them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Maximum total size of all parts, in bytes, at every moment.
    pub max_bytes: Option<u64>,
    /// How long a part is kept after it was written. The newest part is kept in any case.
    pub keep: Option<Duration>,
}

/// The name of a part.
pub(super) fn part_name(number: u64) -> String {
    format!("{number:06}.parquet")
}

/// The number of the part with this name, or `None` if no part has this name.
pub(super) fn part_number(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".parquet")?.parse().ok()?;
    (part_name(number) == name).then_some(number)
}

/// A part on disk.
#[derive(Clone, Copy, Debug)]
struct Part {
    number: u64,
    bytes: u64,
    written: SystemTime,
}

/// The parts on disk, oldest first.
#[derive(Debug, Default)]
pub(super) struct Parts {
    parts: VecDeque<Part>,
    /// Their total size.
    bytes: u64,
}

impl Parts {
    /// Lists the parts in `folder`, and removes a part that an earlier writer has not finished.
    ///
    /// # Errors
    ///
    /// If the folder contains anything else.
    pub(super) fn list(folder: &Folder) -> io::Result<Self> {
        let mut parts = Vec::new();
        let mut unfinished = Vec::new();
        for (name, metadata) in folder.entries()? {
            let shown = Name(Path::new(&name));
            let hidden = name.strip_prefix('.');
            let hidden = hidden.and_then(|name| name.strip_suffix(".unfinished"));
            let number = part_number(hidden.unwrap_or(&name));
            let Some(number) = number else {
                return Err(io::Error::other(format!("{shown} is no part of it")));
            };
            if let Some(kind) = special_kind(&metadata) {
                return Err(io::Error::other(format!("{shown} is {kind}, not a file")));
            }
            if hidden.is_some() {
                unfinished.push(name);
                continue;
            }
            parts.push(Part {
                number,
                bytes: metadata.len(),
                written: metadata.modified()?,
            });
        }
        for name in unfinished {
            folder.remove(&name)?;
        }
        parts.sort_by_key(|part| part.number);
        Ok(Self {
            bytes: parts
                .iter()
                .fold(0, |sum: u64, part| sum.saturating_add(part.bytes)),
            parts: parts.into(),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The name of the newest part.
    pub(super) fn newest(&self) -> Option<String> {
        self.parts.back().map(|part| part_name(part.number))
    }

    /// The number of the next part.
    pub(super) fn next_number(&self) -> u64 {
        let newest = self.parts.back().map_or(0, |part| part.number);
        newest.saturating_add(1)
    }

    /// Adds a part that was written just now.
    pub(super) fn push(&mut self, number: u64, bytes: u64) {
        self.parts.push_back(Part {
            number,
            bytes,
            written: SystemTime::now(),
        });
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Deletes the oldest parts until a new one of `bytes` fits, even all of them.
    ///
    /// # Errors
    ///
    /// If one cannot be deleted.
    pub(super) fn make_room(
        &mut self,
        folder: &Folder,
        limits: Limits,
        bytes: u64,
    ) -> io::Result<()> {
        let Some(max_bytes) = limits.max_bytes else {
            return Ok(());
        };
        while self.bytes.saturating_add(bytes) > max_bytes && !self.parts.is_empty() {
            self.delete_oldest(folder)?;
        }
        Ok(())
    }

    /// Deletes all parts that are beyond the limits, except the newest.
    ///
    /// # Errors
    ///
    /// If one cannot be deleted.
    pub(super) fn apply(&mut self, folder: &Folder, limits: Limits) -> io::Result<()> {
        let now = SystemTime::now();
        while self.parts.len() > 1 {
            // A part from the future, after the clock was set back, is at least as old as the next.
            let mut ages = self
                .parts
                .iter()
                .map(|part| now.duration_since(part.written));
            let age = ages.find_map(Result::ok).unwrap_or_default();
            let is_old = limits.keep.is_some_and(|keep| age > keep);
            let is_large = limits.max_bytes.is_some_and(|most| self.bytes > most);
            if !is_old && !is_large {
                break;
            }
            self.delete_oldest(folder)?;
        }
        Ok(())
    }

    fn delete_oldest(&mut self, folder: &Folder) -> io::Result<()> {
        let Some(oldest) = self.parts.front() else {
            return Ok(());
        };
        let name = part_name(oldest.number);
        match folder.remove(&name) {
            // Deleted by someone else.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let text = format!("cannot delete {name}: {error}");
                return Err(io::Error::new(error.kind(), text));
            }
            Ok(()) => {}
        }
        self.bytes = self.bytes.saturating_sub(oldest.bytes);
        self.parts.pop_front();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts() {
        for number in [0, 1, 999_999, 1_000_000, u64::MAX] {
            assert_eq!(part_number(&part_name(number)), Some(number));
        }
        for name in [
            "1.parquet",
            "0000001.parquet",
            "+00001.parquet",
            "000001.parquet.unfinished",
            ".000001.parquet",
            "000001.PARQUET",
            "../000001.parquet",
            "99999999999999999999.parquet",
            "00000a.parquet",
            "",
        ] {
            assert_eq!(part_number(name), None, "{name}");
        }
    }
}
