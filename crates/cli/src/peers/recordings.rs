//! Reads recordings of all kinds.

use super::capture;
use crate::terminal::complain;
use packetlane_files::Name;
use packetlane_peers::file::{self, ReadCause};
use packetlane_peers::tally::Tally;
use packetlane_peers::{Period, Time};
use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Reads Parquet recordings and -capturemessages folders, in order of time. Damaged and unreadable
/// files are named on standard error; their intact records are counted.
///
/// # Errors
///
/// A path does not exist, or nothing can be read.
pub(super) fn read(files: &[PathBuf]) -> Result<(Tally, Damage), Box<dyn Error>> {
    read_within(files, Period::ALL)
}

/// Reads recordings as [`read`] does, but only windows within `period`.
///
/// # Errors
///
/// A path does not exist or is a -capturemessages folder, which has no windows, or nothing can be
/// read.
pub(super) fn read_within(
    files: &[PathBuf],
    period: Period,
) -> Result<(Tally, Damage), Box<dyn Error>> {
    let mut tally = Tally::new();
    let mut damage = Damage::default();
    let mut recordings = Vec::new();
    let mut given: Vec<PathBuf> = Vec::new();
    for path in files {
        if let Ok(path) = path.canonicalize() {
            if given
                .iter()
                .any(|one| path.starts_with(one) || one.starts_with(&path))
            {
                return Err(format!("{} is given twice, whole or in part", Name(&path)).into());
            }
            given.push(path);
        }
        if capture::is_capture(path) {
            if period != Period::ALL {
                let name = Name(path);
                let error =
                    format!("{name}: --since and --until are for recordings of `peers record`");
                return Err(error.into());
            }
            for damaged in capture::read(path, |record| tally.add(record)) {
                damage.add(&damaged);
            }
            tally.end();
            continue;
        }
        // Keep only the time: an open reader holds a whole part in memory.
        let first = match file::read(path) {
            Ok(records) => records.within(period).find_map(Result::ok),
            Err(error) => match &error.cause {
                ReadCause::Io(cause) if cause.kind() == io::ErrorKind::NotFound => {
                    return Err(error.into());
                }
                _ => None,
            },
        };
        recordings.push((first.map_or(Time::MAX, |first| first.time), path));
    }
    recordings.sort_by_key(|(time, _)| *time);
    for (_, path) in recordings {
        match file::read(path) {
            Ok(records) => records
                .within(period)
                .tally(&mut tally, |error| damage.add(&error)),
            Err(error) => damage.add(&error),
        }
    }
    if tally.windows() > 0 {
        damage.print();
        return Ok((tally, damage));
    }
    match damage.files.pop() {
        // One error, one line.
        Some(last) => {
            damage.print();
            Err(last.into())
        }
        None if period != Period::ALL => Err("nothing was recorded in this period".into()),
        None => Err("this recording contains no observed time; record longer".into()),
    }
}

/// Files that could not be read to the end.
#[derive(Default)]
pub(super) struct Damage {
    /// The error of each, with its name.
    files: Vec<String>,
}

impl Damage {
    fn add(&mut self, error: &dyn fmt::Display) {
        self.files.push(error.to_string());
    }

    fn print(&self) {
        for file in &self.files {
            complain(format_args!(
                "{file}; records before the damage are counted, the rest is skipped"
            ));
        }
    }

    /// The result of the command: an error if any file was damaged.
    pub(super) fn into_result(self) -> Result<(), Box<dyn Error>> {
        match self.files.len() {
            0 => Ok(()),
            1 => Err("1 file is damaged; its intact records were counted".into()),
            count => {
                Err(format!("{count} files are damaged; their intact records were counted").into())
            }
        }
    }
}
