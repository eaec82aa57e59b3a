//! Recordings of all kinds.

use super::capture;
use crate::terminal::complain;
use packetlane_peers::Time;
use packetlane_peers::file::{self, ReadCause};
use packetlane_peers::tally::Tally;
use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Reads recordings, the oldest first whatever their order: Parquet, or folders of
/// -capturemessages. Files that are damaged, or are no recordings, are named on standard error,
/// and the others count.
///
/// # Errors
///
/// If a path leads nowhere, or nothing of all that can be read.
pub(super) fn read(files: &[PathBuf]) -> Result<(Tally, Damage), Box<dyn Error>> {
    let mut tally = Tally::new();
    let mut damage = Damage::default();
    let mut recordings = Vec::new();
    for path in files {
        if capture::is_capture(path) {
            for damaged in capture::read(path, |record| tally.add(record)) {
                damage.add(&damaged);
            }
            tally.end();
            continue;
        }
        // The time alone is kept of each: a reader has a whole part in memory.
        let first = match file::read(path) {
            Ok(mut records) => records.find_map(Result::ok),
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
            Ok(records) => records.tally(&mut tally, |error| damage.add(&error)),
            Err(error) => damage.add(&error),
        }
    }
    if tally.windows() > 0 {
        damage.say();
        return Ok((tally, damage));
    }
    match damage.files.pop() {
        // One line for one error.
        Some(last) => {
            damage.say();
            Err(last.into())
        }
        None => Err("no window of observed time in this recording: record longer".into()),
    }
}

/// The files of recordings that could not be read to their end.
#[derive(Default)]
pub(super) struct Damage {
    /// What is wrong with each, with its name.
    files: Vec<String>,
}

impl Damage {
    fn add(&mut self, error: &dyn fmt::Display) {
        self.files.push(error.to_string());
    }

    fn say(&self) {
        for file in &self.files {
            complain(format_args!(
                "{file}; its records before the damage count, the rest of it does not"
            ));
        }
    }

    /// The command's end: an error if there was any damage, after all that could be shown.
    pub(super) fn into_result(self) -> Result<(), Box<dyn Error>> {
        match self.files.len() {
            0 => Ok(()),
            1 => Err("1 file is damaged; the rest of it is not counted".into()),
            count => {
                Err(format!("{count} files are damaged; the rest of them is not counted").into())
            }
        }
    }
}
