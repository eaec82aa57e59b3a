//! Recorders of connections, in the format of Bitcoin Core's `-capturemessages`.
//!
//! Files are created at the peer's first message. So a failed connection, or a peer that never
//! sends a message, leaves no files.

use crate::capture::{self, HEADER_LEN, Record};
use packetlane::bitcoin::message::MessageType;
use packetlane_files::Name;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

/// Maximum number of peers recorded in one folder, because anyone who can connect creates a folder.
pub const MAX_RECORDED_PEERS: u64 = 1000;

/// Maximum number of bytes recorded in one folder, over all peers.
pub const MAX_RECORDED_BYTES: u64 = 10_000_000_000;

/// A folder with a recording for each peer, and its remaining capacity.
#[derive(Debug)]
pub struct Recordings {
    folder: PathBuf,
    peers_left: AtomicU64,
    bytes_left: AtomicU64,
    /// Called once, when a limit is reached.
    on_limit: fn(&Path),
    told: AtomicBool,
}

impl Recordings {
    /// Records peers in `folder`, which is created if necessary. Calls `on_limit` once with the
    /// folder when [`MAX_RECORDED_PEERS`] or [`MAX_RECORDED_BYTES`] is reached.
    ///
    /// # Errors
    ///
    /// If the folder cannot be created.
    pub fn in_folder(folder: PathBuf, on_limit: fn(&Path)) -> Result<Self, RecordError> {
        create_folder(&folder)?;
        Ok(Self {
            folder,
            peers_left: MAX_RECORDED_PEERS.into(),
            bytes_left: MAX_RECORDED_BYTES.into(),
            on_limit,
            told: AtomicBool::new(false),
        })
    }

    /// Takes `amount` of what is `left`. If that is not enough, calls `on_limit` once.
    fn take(&self, left: &AtomicU64, amount: u64) -> bool {
        let relaxed = Ordering::Relaxed;
        let taken = left.fetch_update(relaxed, relaxed, |left| left.checked_sub(amount));
        if taken.is_err() && !self.told.swap(true, relaxed) {
            (self.on_limit)(&self.folder);
        }
        taken.is_ok()
    }

    /// Creates a folder for `remote`, named like Bitcoin Core's. A peer that was recorded before
    /// gets a number appended.
    fn create_peer_folder(&self, remote: SocketAddr) -> Result<PathBuf, RecordError> {
        let name = remote.to_string().replace(':', "_");
        let mut number = 1;
        loop {
            let path = match number {
                1 => self.folder.join(&name),
                _ => self.folder.join(format!("{name}_{number}")),
            };
            match fs::create_dir(&path) {
                Ok(()) => return Ok(path),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(RecordError { path, error }),
            }
        }
    }
}

/// Writes the messages of one connection to the two files of a folder.
#[derive(Debug)]
pub struct Recorder {
    place: Place,
    state: State,
}

#[derive(Debug)]
enum Place {
    /// This folder, without a limit.
    Folder(PathBuf),
    /// A new folder within a folder for many peers.
    Peer(Arc<Recordings>, SocketAddr),
}

#[derive(Debug)]
enum State {
    /// The peer has sent no message yet. Holds what we have sent, which is at most our version.
    Waiting(Vec<Record>),
    Open {
        received: Direction,
        sent: Direction,
    },
    /// A limit is reached.
    Full,
}

impl Recorder {
    /// Records in `folder`, which is created if necessary.
    ///
    /// # Errors
    ///
    /// If the folder cannot be created or already has a recording. This is checked before any
    /// connection is made.
    pub fn in_folder(folder: PathBuf) -> Result<Self, RecordError> {
        create_folder(&folder)?;
        for name in [capture::RECEIVED_FILE, capture::SENT_FILE] {
            let path = folder.join(name);
            if path.exists() {
                let error = ErrorKind::AlreadyExists.into();
                return Err(RecordError { path, error });
            }
        }
        Ok(Self::new(Place::Folder(folder)))
    }

    /// Records in a new folder within `recordings`, as long as its limits allow.
    pub fn of_peer(recordings: &Arc<Recordings>, remote: SocketAddr) -> Self {
        Self::new(Place::Peer(Arc::clone(recordings), remote))
    }

    fn new(place: Place) -> Self {
        Self {
            place,
            state: State::Waiting(Vec::new()),
        }
    }

    /// Records a received message. The first one creates the files.
    ///
    /// # Errors
    ///
    /// If a file cannot be created or written.
    pub fn received(
        &mut self,
        message_type: MessageType,
        payload: &[u8],
    ) -> Result<(), RecordError> {
        if let State::Waiting(before) = &mut self.state {
            let before = std::mem::take(before);
            self.open(before)?;
        }
        self.write(now(), message_type, payload, true)
    }

    /// Records a sent message. Keeps it in memory until a message was received.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn sent(&mut self, message_type: MessageType, payload: &[u8]) -> Result<(), RecordError> {
        if let State::Waiting(before) = &mut self.state {
            before.push(Record {
                time: now(),
                message_type,
                payload: payload.to_vec(),
            });
            return Ok(());
        }
        self.write(now(), message_type, payload, false)
    }

    /// Creates the files and writes the messages sent `before`.
    fn open(&mut self, before: Vec<Record>) -> Result<(), RecordError> {
        let folder = match &self.place {
            Place::Folder(folder) => folder.clone(),
            Place::Peer(recordings, remote) => {
                if !recordings.take(&recordings.peers_left, 1) {
                    self.state = State::Full;
                    return Ok(());
                }
                recordings.create_peer_folder(*remote)?
            }
        };
        self.state = State::Open {
            received: Direction::create(folder.join(capture::RECEIVED_FILE))?,
            sent: Direction::create(folder.join(capture::SENT_FILE))?,
        };
        before.iter().try_for_each(|record| {
            self.write(record.time, record.message_type, &record.payload, false)
        })
    }

    fn write(
        &mut self,
        time: u64,
        message_type: MessageType,
        payload: &[u8],
        is_received: bool,
    ) -> Result<(), RecordError> {
        let State::Open { received, sent } = &mut self.state else {
            return Ok(());
        };
        if let Place::Peer(recordings, _) = &self.place
            && !recordings.take(&recordings.bytes_left, (HEADER_LEN + payload.len()) as u64)
        {
            self.state = State::Full;
            return Ok(());
        }
        let direction = if is_received { received } else { sent };
        direction.write(time, message_type, payload)
    }
}

/// One of the two files.
#[derive(Debug)]
struct Direction {
    path: PathBuf,
    /// Unbuffered: a signal loses nothing, and a kill at most the last record.
    file: capture::Writer<File>,
}

impl Direction {
    fn create(path: PathBuf) -> Result<Self, RecordError> {
        match File::create_new(&path) {
            Ok(file) => Ok(Self {
                path,
                file: capture::Writer::new(file),
            }),
            Err(error) => Err(RecordError { path, error }),
        }
    }

    fn write(
        &mut self,
        time: u64,
        message_type: MessageType,
        payload: &[u8],
    ) -> Result<(), RecordError> {
        let written = self.file.write(time, message_type, payload);
        written.map_err(|error| RecordError {
            path: self.path.clone(),
            error,
        })
    }
}

fn create_folder(folder: &Path) -> Result<(), RecordError> {
    fs::create_dir_all(folder).map_err(|error| RecordError {
        path: folder.to_owned(),
        error,
    })
}

/// Microseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    })
}

/// Messages cannot be recorded in `path`.
#[derive(Debug)]
pub struct RecordError {
    path: PathBuf,
    error: io::Error,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot record messages in {}: ", Name(&self.path))?;
        match self.error.kind() {
            ErrorKind::AlreadyExists => f.write_str(
                "it exists, and recordings are never overwritten; choose another folder",
            ),
            _ => self.error.fmt(f),
        }
    }
}

impl std::error::Error for RecordError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records a message of this length from a peer with this port.
    fn record(recordings: &Arc<Recordings>, port: u16, length: usize) -> Recorder {
        let remote = SocketAddr::from(([127, 0, 0, 1], port));
        let mut recorder = Recorder::of_peer(recordings, remote);
        let message_type = MessageType::literal("tx");
        recorder.received(message_type, &vec![0; length]).unwrap();
        recorder
    }

    /// The number of complete messages and of conversations in a folder.
    fn recorded(folder: &Path) -> [usize; 2] {
        let recording = capture::read_dir(folder).unwrap();
        assert!(recording.damaged.is_empty(), "{:?}", recording.damaged);
        let messages = recording
            .conversations
            .iter()
            .map(|both| both.received.len());
        [messages.sum(), recording.conversations.len()]
    }

    #[test]
    fn strangers_cannot_fill_the_disk() {
        let id = std::process::id();
        let folder = std::env::temp_dir().join(format!("packetlane-limits-{id}"));
        let _ = fs::remove_dir_all(&folder);
        let mut recordings = Recordings::in_folder(folder.clone(), |_| ()).unwrap();
        recordings.peers_left = 3.into();
        recordings.bytes_left = (4 * (HEADER_LEN + 100) as u64).into();
        let recordings = Arc::new(recordings);

        let mut first = record(&recordings, 1, 100);
        record(&recordings, 1, 100);
        record(&recordings, 1, 100);
        record(&recordings, 2, 100);
        assert_eq!(recorded(&folder), [3, 3], "the fourth peer is not recorded");
        assert!(recordings.told.load(Ordering::Relaxed));

        let message_type = MessageType::literal("tx");
        for _ in 0..3 {
            first.received(message_type, &[0; 100]).unwrap();
        }
        assert_eq!(recorded(&folder), [4, 3], "four messages fit");
        fs::remove_dir_all(&folder).unwrap();
    }
}
