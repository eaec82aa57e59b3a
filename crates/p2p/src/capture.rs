//! Captured traffic in the format of Bitcoin Core's `-capturemessages`, which Bitcoin Core's tools
//! can read.
//!
//! A file is a sequence of records without a file header. A record consists of the time (8 bytes,
//! microseconds since 1970), the message type (12 bytes, zero-padded), the payload length (4 bytes)
//! and the payload. Numbers are little-endian. A conversation is a folder with one file for each
//! direction; Bitcoin Core creates such a folder for each peer.

use packetlane::bitcoin::message::{MessageError, MessageType};
use packetlane_files::Name;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

/// File with the messages that the recording node received.
pub const RECEIVED_FILE: &str = "msgs_recv.dat";

/// File with the messages that the recording node sent.
pub const SENT_FILE: &str = "msgs_sent.dat";

/// Default limit of a payload, in bytes: nodes neither send nor accept longer ones.
pub const DEFAULT_LIMIT: usize = packetlane::bitcoin::v1::Message::MAX_PAYLOAD_LEN;

/// Length of a record's header, in bytes.
pub const HEADER_LEN: usize = 8 + MessageType::MAX_LEN + 4;

/// A recorded message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The time, in microseconds since 1970.
    pub time: u64,
    /// The message type.
    pub message_type: MessageType,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// Writes one direction of a conversation.
#[derive(Debug)]
pub struct Writer<W> {
    file: W,
}

impl<W: Write> Writer<W> {
    /// Writes to `file`, each record with a single write. Without a buffer in between, a killed
    /// process loses at most the last record.
    pub fn new(file: W) -> Self {
        Self { file }
    }

    /// Appends a record.
    ///
    /// # Errors
    ///
    /// Errors of the file, or [`io::ErrorKind::InvalidInput`] for a payload of 4 GiB or more.
    pub fn write(
        &mut self,
        time: u64,
        message_type: MessageType,
        payload: &[u8],
    ) -> io::Result<()> {
        let length = u32::try_from(payload.len()).map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "a payload must be shorter than 4 GiB",
            )
        })?;
        let mut record = Vec::with_capacity(HEADER_LEN + payload.len());
        record.extend_from_slice(&time.to_le_bytes());
        record.extend_from_slice(message_type.padded());
        record.extend_from_slice(&length.to_le_bytes());
        record.extend_from_slice(payload);
        self.file.write_all(&record)
    }
}

/// Reads one direction of a conversation: an iterator over the records that ends after the first
/// error.
#[derive(Debug)]
pub struct Reader<R> {
    file: R,
    limit: usize,
    /// The offset of the next record.
    offset: u64,
    ended: bool,
}

impl Reader<BufReader<File>> {
    /// Reads the file at `path`.
    ///
    /// # Errors
    ///
    /// If it cannot be opened or is not a regular file.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        match packetlane_files::open(path) {
            Ok(file) => Ok(Self::new(BufReader::new(file))),
            Err(error) => Err(CaptureError::Io(error).in_file(path)),
        }
    }
}

impl<R: Read> Reader<R> {
    /// Reads the records of `file`, which should be buffered.
    pub fn new(file: R) -> Self {
        Self {
            file,
            limit: DEFAULT_LIMIT,
            offset: 0,
            ended: false,
        }
    }

    /// Sets the limit for a payload, in bytes.
    #[must_use]
    pub fn with_limit(self, limit: usize) -> Self {
        Self { limit, ..self }
    }

    fn read(&mut self) -> Result<Option<Record>, CaptureError> {
        let offset = self.offset;
        let mut header = Vec::with_capacity(HEADER_LEN);
        self.take_into(&mut header, HEADER_LEN)?;
        let Some((&time, rest)) = header.split_first_chunk() else {
            return match header.is_empty() {
                true => Ok(None),
                false => Err(CaptureError::Truncated { offset }),
            };
        };
        let Some((name, rest)) = rest.split_first_chunk() else {
            return Err(CaptureError::Truncated { offset });
        };
        let Some((&length, _)) = rest.split_first_chunk() else {
            return Err(CaptureError::Truncated { offset });
        };
        let message_type =
            MessageType::from_padded(name).map_err(|error| CaptureError::Type { offset, error })?;
        let length = u32::from_le_bytes(length) as usize;
        if length > self.limit {
            let limit = self.limit;
            return Err(CaptureError::TooLong {
                offset,
                length,
                limit,
            });
        }
        // Allocate by the bytes read, not by the length that the record claims.
        let mut payload = Vec::new();
        self.take_into(&mut payload, length)?;
        if payload.len() < length {
            return Err(CaptureError::Truncated { offset });
        }
        self.offset += (HEADER_LEN + length) as u64;
        Ok(Some(Record {
            time: u64::from_le_bytes(time),
            message_type,
            payload,
        }))
    }

    /// Appends the next `len` bytes to `out`, or fewer at the end of the file.
    fn take_into(&mut self, out: &mut Vec<u8>, len: usize) -> Result<(), CaptureError> {
        self.file
            .by_ref()
            .take(len as u64)
            .read_to_end(out)
            .map_err(CaptureError::Io)?;
        Ok(())
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record, CaptureError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let record = self.read().transpose();
        self.ended = !matches!(record, Some(Ok(_)));
        record
    }
}

/// Both directions of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversation {
    /// What the recording node received, in order.
    pub received: Vec<Record>,
    /// What the recording node sent, in order.
    pub sent: Vec<Record>,
}

/// The result of [`read_dir`].
#[derive(Debug, Default)]
pub struct Recording {
    /// All conversations, with the complete records of their files.
    pub conversations: Vec<Conversation>,
    /// Errors of damaged files, for example because the recording node was killed. Records before
    /// the damage are included in the conversations.
    pub damaged: Vec<CaptureError>,
}

/// Reads all conversations in `dir`: the files in it, then those in its subfolders, by name. Either
/// file of a conversation may be missing. A damaged file is read up to the damage and does not
/// affect other files.
///
/// # Errors
///
/// If `dir` cannot be read or contains no conversation.
pub fn read_dir(dir: &Path) -> Result<Recording, CaptureError> {
    let mut folders = vec![dir.to_owned()];
    for entry in dir
        .read_dir()
        .map_err(|error| CaptureError::Io(error).in_file(dir))?
    {
        let entry = entry.map_err(|error| CaptureError::Io(error).in_file(dir))?;
        if entry.path().is_dir() {
            folders.push(entry.path());
        }
    }
    folders[1..].sort();

    let mut recording = Recording::default();
    for folder in folders {
        let received = folder.join(RECEIVED_FILE);
        let sent = folder.join(SENT_FILE);
        if received.exists() || sent.exists() {
            let conversation = Conversation {
                received: read_file(&received, &mut recording.damaged),
                sent: read_file(&sent, &mut recording.damaged),
            };
            recording.conversations.push(conversation);
        }
    }
    if recording.conversations.is_empty() {
        return Err(CaptureError::Nothing {
            dir: dir.to_owned(),
        });
    }
    Ok(recording)
}

/// The complete records of a file, if it exists. Adds a fault to `damaged`.
fn read_file(path: &Path, damaged: &mut Vec<CaptureError>) -> Vec<Record> {
    if !path.exists() {
        return Vec::new();
    }
    let mut records = Vec::new();
    let read = Reader::open(path).and_then(|mut reader| {
        reader.try_for_each(|record| {
            records.push(record?);
            Ok(())
        })
    });
    if let Err(error) = read {
        damaged.push(error.in_file(path));
    }
    records
}

/// Why captured traffic cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum CaptureError {
    /// The operating system reports an error.
    Io(io::Error),
    /// The file ends in the middle of a record.
    Truncated {
        /// The offset of the record, in bytes.
        offset: u64,
    },
    /// The payload is longer than the limit, or the bytes are not a record.
    TooLong {
        /// The offset of the record, in bytes.
        offset: u64,
        /// The length in the record, in bytes.
        length: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// The message type is malformed, or the bytes are not a record.
    Type {
        /// The offset of the record, in bytes.
        offset: u64,
        /// What is wrong with it.
        error: MessageError,
    },
    /// Neither the folder nor its subfolders contain captured traffic.
    Nothing {
        /// The folder.
        dir: PathBuf,
    },
    /// One of the other errors, with the file it occurred in.
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: Box<CaptureError>,
    },
}

impl CaptureError {
    fn in_file(self, path: &Path) -> Self {
        match self {
            // These already name their file or folder.
            Self::File { .. } | Self::Nothing { .. } => self,
            _ => Self::File {
                path: path.to_owned(),
                error: Box::new(self),
            },
        }
    }
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Truncated { offset } => write!(
                f,
                "the file ends in the middle of the record that begins at byte {offset}"
            ),
            Self::TooLong {
                offset,
                length,
                limit,
            } => write!(
                f,
                "the record at byte {offset} claims a payload of {length} bytes; the limit is \
                 {limit}"
            ),
            Self::Type { offset, error } => write!(f, "the record at byte {offset}: {error}"),
            Self::Nothing { dir } => write!(
                f,
                "{}: no {RECEIVED_FILE} and no {SENT_FILE} here or in a subfolder",
                Name(dir)
            ),
            Self::File { path, error } => write!(f, "{}: {error}", Name(path)),
        }
    }
}

impl std::error::Error for CaptureError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Type { error, .. } => Some(error),
            Self::File { error, .. } => Some(error),
            Self::Truncated { .. } | Self::TooLong { .. } | Self::Nothing { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Record> {
        let record = |time, name, payload: &[u8]| Record {
            time,
            message_type: MessageType::literal(name),
            payload: payload.to_vec(),
        };
        vec![
            record(0, "verack", b""),
            record(1_732_000_000_123_456, "ping", &[7; 8]),
            record(u64::MAX, "abcdefghijkl", &[0xa5; 1000]),
        ]
    }

    fn file_of(records: &[Record]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file);
        for record in records {
            let Record {
                time,
                message_type,
                payload,
            } = record;
            writer.write(*time, *message_type, payload).unwrap();
        }
        file
    }

    /// The layout, handmade.
    #[test]
    fn a_record_has_bitcoin_cores_layout() {
        let file = file_of(&[Record {
            time: 0x0102_0304_0506_0708,
            message_type: MessageType::literal("pong"),
            payload: vec![0xff, 0xfe],
        }]);
        let expected = b"\x08\x07\x06\x05\x04\x03\x02\x01pong\0\0\0\0\0\0\0\0\x02\0\0\0\xff\xfe";
        assert_eq!(file, expected);
    }

    #[test]
    fn written_records_are_read_back() {
        let file = file_of(&records());
        let read: Result<Vec<_>, _> = Reader::new(&file[..]).collect();
        assert_eq!(read.unwrap(), records());
        assert_eq!(Reader::new(&[][..]).count(), 0);
    }

    /// A killed process loses at most the last record.
    #[test]
    fn a_record_is_one_write() {
        struct Writes(Vec<usize>);
        impl Write for Writes {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.push(bytes.len());
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut writes = Writes(Vec::new());
        let mut writer = Writer::new(&mut writes);
        for record in records() {
            let Record {
                time,
                message_type,
                payload,
            } = record;
            writer.write(time, message_type, &payload).unwrap();
        }
        assert_eq!(writes.0, [24, 24 + 8, 24 + 1000]);
    }

    /// A file cut at any byte yields its complete records, then an error with the offset of the
    /// incomplete one.
    #[test]
    fn a_truncated_file_names_the_record() {
        let file = file_of(&records());
        let starts = [0, 24, 24 + 32];
        for len in 0..file.len() {
            let mut reader = Reader::new(&file[..len]);
            let whole = reader.by_ref().take_while(Result::is_ok).count();
            let begins = starts.iter().filter(|&&start| start < len).count();
            if starts.contains(&len) {
                assert_eq!(whole, begins, "cut at {len}");
                continue;
            }
            assert_eq!(whole, begins - 1, "cut at {len}");
            let error = Reader::new(&file[..len]).find_map(Result::err).unwrap();
            let CaptureError::Truncated { offset } = error else {
                panic!("cut at {len}: {error}");
            };
            assert_eq!(offset, starts[begins - 1] as u64, "cut at {len}");
            assert!(reader.next().is_none(), "nothing after an error");
        }
    }

    #[test]
    fn a_long_payload_is_refused_before_it_is_read() {
        let mut file = file_of(&records()[..1]);
        let mut long = file.clone();
        long[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
        file.extend_from_slice(&long);
        let error = Reader::new(&file[..]).last().unwrap().unwrap_err();
        let limit = DEFAULT_LIMIT;
        assert_eq!(
            error.to_string(),
            format!(
                "the record at byte 24 claims a payload of 4294967295 bytes; the limit is {limit}"
            )
        );

        let file = file_of(&records());
        let read = |limit| Reader::new(&file[..]).with_limit(limit).last().unwrap();
        assert!(read(1000).is_ok());
        assert!(matches!(
            read(999),
            Err(CaptureError::TooLong { offset: 56, .. })
        ));
    }

    #[test]
    fn a_malformed_type_is_refused() {
        let mut file = file_of(&records());
        file[24 + 8] = 0x01;
        let error = Reader::new(&file[..]).find_map(Result::err).unwrap();
        assert!(
            matches!(error, CaptureError::Type { offset: 24, .. }),
            "{error}"
        );
    }

    #[test]
    fn a_folder_and_its_subfolders_are_read() {
        let dir = std::env::temp_dir().join(format!("packetlane-capture-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let error = read_dir(&dir).unwrap_err();
        assert!(
            matches!(error, CaptureError::Nothing { .. }),
            "an empty folder: {error}"
        );

        let file = file_of(&records());
        for peer in ["b_18444", "a_18444"] {
            std::fs::create_dir_all(dir.join(peer)).unwrap();
        }
        std::fs::write(dir.join(SENT_FILE), &file).unwrap();
        std::fs::write(dir.join("a_18444").join(RECEIVED_FILE), &file).unwrap();
        std::fs::write(dir.join("b_18444").join(RECEIVED_FILE), &file[..24]).unwrap();
        std::fs::write(dir.join("b_18444").join(SENT_FILE), &file[..56]).unwrap();
        let read = || {
            let recording = read_dir(&dir).unwrap();
            let counts = recording.conversations.iter();
            let counts = counts.map(|both| (both.received.len(), both.sent.len()));
            let damaged = recording.damaged.iter().map(ToString::to_string);
            (counts.collect::<Vec<_>>(), damaged.collect::<Vec<_>>())
        };
        assert_eq!(read(), (vec![(0, 3), (3, 0), (1, 2)], vec![]));

        // Truncated files keep their complete records; other files are not affected.
        std::fs::write(dir.join("a_18444").join(RECEIVED_FILE), &file[..10]).unwrap();
        std::fs::write(dir.join("b_18444").join(SENT_FILE), &file[..57]).unwrap();
        let (counts, damaged) = read();
        assert_eq!(counts, [(0, 3), (0, 0), (1, 2)]);
        let [first, second] = &damaged[..] else {
            panic!("{damaged:?}")
        };
        for (line, file, byte) in [
            (first, "a_18444/msgs_recv.dat", 0),
            (second, "b_18444/msgs_sent.dat", 56),
        ] {
            let end = format!(
                "{file}: the file ends in the middle of the record that begins at byte {byte}"
            );
            assert!(line.ends_with(&end), "{line}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
