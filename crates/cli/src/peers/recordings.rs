//! Recordings of all kinds.

use super::capture;
use crate::terminal::complain;
use packetlane_peers::file;
use packetlane_peers::tally::Tally;
use std::error::Error;
use std::fmt;
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
        let mut records = file::read(path)?;
        // What comes before the first record is damage.
        let first = records.find_map(|record| record.map_err(|error| damage.add(&error)).ok());
        if let Some(first) = first {
            recordings.push((first, records));
        }
    }
    recordings.sort_by_key(|(first, _)| first.time);
    for (first, records) in recordings {
        tally.add(&first);
        for record in records {
            match record {
                Ok(record) => tally.add(&record),
                Err(error) => {
                    damage.add(&error);
                    tally.gap();
                }
            }
        }
        tally.end();
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
            complain(format_args!("{file}; only what is before it counts"));
        }
    }

    /// The command's end: an error if there was any damage, after all that could be shown.
    pub(super) fn into_result(self) -> Result<(), Box<dyn Error>> {
        match self.files.len() {
            0 => Ok(()),
            1 => Err("1 file could not be read to its end: what it lacks does not count".into()),
            count => Err(format!(
                "{count} files could not be read to their end: what they lack does not count"
            )
            .into()),
        }
    }
}
