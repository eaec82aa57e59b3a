//! Reads folders of Bitcoin Core's `-capturemessages`: messages and bytes, but no CPU time.

use crate::terminal::complain;
use packetlane_files::Name;
use packetlane_p2p::capture::{CaptureError, RECEIVED_FILE, Reader, SENT_FILE};
use packetlane_p2p::payload::Version;
use packetlane_peers::{Connection, ConnectionType, Event, MAX_USER_AGENT, Record, Time, steps};
use std::path::{Path, PathBuf};

/// Maximum number of blocks that the messages of a capture are about, some 100 MB: they are sorted
/// in memory. A node of 125 peers sees that many in a month.
const MAX_STEPS: usize = 500_000;

/// Whether the folder, or a folder in it, contains a capture.
pub(super) fn is_capture(path: &Path) -> bool {
    !conversations(path).is_empty()
}

/// The folders that contain a conversation, by name.
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

/// A conversation.
struct Peer {
    folder: PathBuf,
    begins: Time,
    ends: Time,
    /// What the first `version` of each side says, if there is one.
    connection: Option<Connection>,
}

/// Reads a capture. Each conversation becomes a peer, with its messages and what both `version`
/// messages say. Returns the errors of damaged files.
pub(super) fn read(path: &Path, mut to: impl FnMut(&Record)) -> Vec<CaptureError> {
    let mut peers: Vec<(i64, Peer)> = Vec::new();
    let mut damaged = Vec::new();
    let (mut first, mut last) = (Time::MAX, 0);
    for (folder, number) in conversations(path).into_iter().zip(0..) {
        let (mut begins, mut ends) = (Time::MAX, 0);
        let (mut sent, mut received) = (None, None);
        // The times in a direction need not be in order.
        damaged.extend(each(&folder, |time, is_received, message_type, payload| {
            begins = begins.min(time);
            ends = ends.max(time);
            let version = match is_received {
                true => &mut received,
                false => &mut sent,
            };
            if version.is_none() && message_type == "version" {
                let decoded = Version::decode(payload).ok();
                *version = decoded.map(|decoded| (time, decoded));
            }
        }));
        first = first.min(begins);
        last = last.max(ends);
        let connection = connection(&folder, sent, received);
        let peer = Peer {
            folder,
            begins,
            ends,
            connection,
        };
        peers.push((number, peer));
    }
    if first > last {
        return damaged;
    }
    // An empty window, so that no peer counts as connected before the recording.
    to(&Record {
        time: first,
        event: Event::Window {
            start: first.saturating_sub(1),
            lost: 0,
            probes_ns: 0,
            stolen_ns: 0,
        },
    });
    // Of all conversations, in order of time.
    let (mut blocks, mut dropped) = (Vec::new(), 0_u64);
    let mut ends = Vec::new();
    for (peer, conversation) in peers {
        if let Some(connection) = conversation.connection {
            to(&Record {
                time: conversation.begins,
                event: Event::Connected { peer, connection },
            });
        }
        let _reported_above = each(&conversation.folder, |time, received, name, payload| {
            let message_type = name.to_owned();
            let bytes = payload.len() as u64;
            for (block, step) in steps(received, name, bytes, payload) {
                if blocks.len() < MAX_STEPS {
                    let event = Event::BlockMessage { peer, block, step };
                    blocks.push(Record { time, event });
                } else {
                    dropped += 1;
                }
            }
            let event = match received {
                true => Event::Received {
                    peer,
                    message_type,
                    bytes,
                    cost: None,
                    added: None,
                },
                false => Event::Sent {
                    peer,
                    message_type,
                    bytes,
                },
            };
            to(&Record { time, event });
        });
        ends.push(Record {
            time: conversation.ends,
            event: Event::Disconnected { peer },
        });
    }
    if dropped > 0 {
        complain(format_args!(
            "warning: {}: of the messages about blocks, the first {MAX_STEPS} by conversation are \
             counted, and {dropped} are not",
            Name(path)
        ));
    }
    blocks.sort_by_key(|record| record.time);
    blocks.iter().chain(&ends).for_each(&mut to);
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

/// Derives the kind of connection from the `version` messages. The side that connected sends its
/// `version` first. A node asks block-relay-only peers for no transactions. Feelers look the same
/// and are counted as such; manual connections look like full-relay ones. `None` without any
/// `version`.
fn connection(
    folder: &Path,
    sent: Option<(Time, Version)>,
    received: Option<(Time, Version)>,
) -> Option<Connection> {
    let kind = match (&sent, &received) {
        (None, None) => return None,
        (Some((ours, version)), Some((theirs, _))) if ours < theirs => outbound(version),
        (Some((_, version)), None) => outbound(version),
        (_, Some(_)) => ConnectionType::Inbound,
    };
    let theirs = received.map(|(_, version)| version);
    let agent = |version: &Version| {
        let text = String::from_utf8_lossy(&version.user_agent);
        text.chars().take(MAX_USER_AGENT).collect()
    };
    Some(Connection {
        // Bitcoin Core names the folder after the address, with underscores for colons.
        address: folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        kind,
        network: None,
        transport: None,
        relay: theirs.as_ref().map(|version| version.relay),
        user_agent: theirs.as_ref().map(agent),
        since: None,
    })
}

/// The type of an outbound connection on which the node sent this `version`.
fn outbound(version: &Version) -> ConnectionType {
    match version.relay {
        true => ConnectionType::OutboundFullRelay,
        false => ConnectionType::BlockRelayOnly,
    }
}

/// Calls `to` with each message: time, whether it was received, type and payload. Returns the
/// errors of damaged files.
fn each(folder: &Path, mut to: impl FnMut(Time, bool, &str, &[u8])) -> Vec<CaptureError> {
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
                    let name = record.message_type.name();
                    to(record.time, received, name, &record.payload);
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
