//! Records from folders of Bitcoin Core's `-capturemessages`: messages and bytes, no time.

use packetlane_lab::capture::{CaptureError, RECEIVED_FILE, Reader, SENT_FILE};
use packetlane_peers::{Event, Record, Time};
use std::path::{Path, PathBuf};

/// Whether there is a capture at `path`: in the folder, or in folders below it.
pub(super) fn is_capture(path: &Path) -> bool {
    !conversations(path).is_empty()
}

/// The folders with a conversation, by name.
fn conversations(path: &Path) -> Vec<PathBuf> {
    let mut folders = vec![path.to_owned()];
    let below = path.read_dir().into_iter().flatten().flatten();
    folders.extend(below.map(|entry| entry.path()));
    folders[1..].sort();
    let is_one =
        |folder: &PathBuf| folder.join(RECEIVED_FILE).exists() || folder.join(SENT_FILE).exists();
    folders.retain(is_one);
    folders
}

/// Reads a capture, each conversation as a peer of which nothing is known but its messages. Says
/// what is wrong with files that are not whole.
pub(super) fn read(path: &Path, mut to: impl FnMut(&Record)) -> Vec<CaptureError> {
    let mut peers: Vec<(i64, PathBuf, Time)> = Vec::new();
    let mut damaged = Vec::new();
    let (mut first, mut last) = (Time::MAX, 0);
    for (folder, number) in conversations(path).into_iter().zip(0..) {
        let mut ends = 0;
        // Each direction is in order of time, but need not be.
        damaged.extend(each(&folder, |time, _, _, _| {
            first = first.min(time);
            ends = ends.max(time);
        }));
        last = last.max(ends);
        peers.push((number, folder, ends));
    }
    if first > last {
        return damaged;
    }
    // A window with nothing in it: so that no peer counts as one that was there before.
    to(&Record {
        time: first,
        event: Event::Window {
            start: first.saturating_sub(1),
            lost: 0,
            probes_ns: 0,
            stolen_ns: 0,
        },
    });
    for (peer, folder, ends) in peers {
        let _said_above = each(&folder, |time, received, message_type, bytes| {
            let event = match received {
                true => Event::Received {
                    peer,
                    message_type,
                    bytes,
                    cost: None,
                },
                false => Event::Sent {
                    peer,
                    message_type,
                    bytes,
                },
            };
            to(&Record { time, event });
        });
        to(&Record {
            time: ends,
            event: Event::Disconnected { peer },
        });
    }
    to(&Record {
        time: last,
        event: Event::Window {
            start: first,
            lost: 0,
            probes_ns: 0,
            stolen_ns: 0,
        },
    });
    damaged
}

/// Each message of a conversation: when, whether it was received, its type and its length. Says
/// what is wrong with files that are not whole.
fn each(folder: &Path, mut to: impl FnMut(Time, bool, String, u64)) -> Vec<CaptureError> {
    let mut damaged = Vec::new();
    for (name, received) in [(RECEIVED_FILE, true), (SENT_FILE, false)] {
        let path = folder.join(name);
        if !path.exists() {
            continue;
        }
        let reader = match Reader::open(&path) {
            Ok(reader) => reader,
            Err(error) => {
                damaged.push(error);
                continue;
            }
        };
        for record in reader {
            match record {
                Ok(record) => {
                    let name = record.message_type.name().to_owned();
                    to(record.time, received, name, record.payload.len() as u64);
                }
                Err(error) => damaged.push(CaptureError::File {
                    path: path.clone(),
                    error: Box::new(error),
                }),
            }
        }
    }
    damaged
}
