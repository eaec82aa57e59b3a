//! Recordings of all kinds.

use super::capture;
use crate::terminal::complain;
use packetlane_peers::file;
use packetlane_peers::tally::Tally;
use std::error::Error;
use std::path::PathBuf;

/// Reads recordings, the oldest first whatever their order: Parquet, or folders of
/// -capturemessages.
pub(super) fn read(files: &[PathBuf]) -> Result<Tally, Box<dyn Error>> {
    let mut tally = Tally::new();
    let mut recordings = Vec::new();
    for path in files {
        if capture::is_capture(path) {
            for damage in capture::read(path, |record| tally.add(record))? {
                complain(format_args!("{damage}; only what is before it counts"));
            }
            tally.end();
        } else {
            let mut records = file::read(path)?.peekable();
            let begins = match records.peek() {
                Some(Ok(record)) => record.time,
                // The error comes again below.
                _ => 0,
            };
            recordings.push((begins, records));
        }
    }
    recordings.sort_by_key(|(begins, _)| *begins);
    for (_, records) in recordings {
        for record in records {
            tally.add(&record?);
        }
        tally.end();
    }
    if tally.windows() == 0 {
        return Err("no window of observed time in this recording: record longer".into());
    }
    Ok(tally)
}
