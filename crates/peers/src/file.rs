//! Recordings on disk: a folder of Parquet files that pandas, DuckDB and Polars can read.
//!
//! A recording is a folder `NAME.parquet` of parts: `000001.parquet` and so on. A part is written
//! as a hidden file and renamed once it is complete. So every part in the folder is readable,
//! however the writer ends (a signal, `kill -9`, a full disk). Only the unfinished part is lost:
//! the last 5 seconds, or in a long recording the last 1 % of it, at most 5 minutes. A recording of
//! a day has fewer than 1000 parts.
//!
//! Each part begins with a `connected` record of every peer that is connected then. So a part needs
//! no earlier one: the oldest can be deleted ([`Limits`]), and a report can begin at any part.
//!
//! A row is a record. Its columns are in [`COLUMNS`]; columns that do not apply to the record's
//! event are null. Times are in microseconds since 1970, UTC.
//!
//! ```text
//! pandas:  pandas.read_parquet("NAME.parquet")
//! Polars:  polars.read_parquet("NAME.parquet/*.parquet")
//! DuckDB:  SELECT * FROM 'NAME.parquet/*.parquet'
//! ```

mod layout;
mod parts;

use crate::known::Known;
use crate::period::{Filter, Period};
use crate::record::{
    BlockStep, Calls, Connection, ConnectionType, Cost, Event, Network, Record, Time, Transport,
};
use crate::tally::Tally;
use bytes::Bytes;
use layout::{Layout, LayoutError, MAX_PAGE, MAX_PART, MAX_ROWS, MAX_TEXT, Pages};
use packetlane_files::{Folder, Name};
use packetlane_p2p::payload::BlockHash;
use parquet::basic::{Encoding, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::column::reader::{ColumnReader, get_column_reader};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, SchemaDescriptor, Type, TypePtr};
pub use parts::Limits;
use parts::{Parts, part_name, part_number};
use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{error, fmt};

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A 64-bit integer. Not negative, except `peer`.
    Integer,
    /// Microseconds since 1970, UTC.
    Time,
    /// UTF-8.
    Text,
    /// A boolean.
    Flag,
}

/// The columns: name, type and meaning. All except the first two may be null.
pub const COLUMNS: [(&str, Kind, &str); 28] = [
    ("time", Kind::Time, "when it was observed"),
    (
        "event",
        Kind::Text,
        "connected, disconnected, received, sent, block_message, block_connected, bytes_received, \
         bytes_sent, calls, thread, loop, window or started",
    ),
    ("peer", Kind::Integer, "the node's id of the peer"),
    ("address", Kind::Text, "connected: the peer's address"),
    (
        "connection_type",
        Kind::Text,
        "connected: as in getpeerinfo",
    ),
    ("network", Kind::Text, "connected: as in getpeerinfo"),
    ("transport", Kind::Text, "connected: v1 or v2"),
    (
        "relay",
        Kind::Flag,
        "connected: whether the peer wants transactions",
    ),
    (
        "since",
        Kind::Time,
        "connected: when the connection was made",
    ),
    (
        "message_type",
        Kind::Text,
        "the type of the message or messages; block_message: inv, headers or cmpctblock announce a \
         block, getdata and getblocktxn request it, block and blocktxn deliver it",
    ),
    (
        "bytes",
        Kind::Integer,
        "received, sent: of the payload; bytes_received, bytes_sent: on the wire, of all messages \
         of the type in the window",
    ),
    (
        "wall_ns",
        Kind::Integer,
        "received: duration of the call that processed it; window: steal time, averaged over the \
         CPUs of this machine",
    ),
    (
        "cpu_ns",
        Kind::Integer,
        "received: CPU time of that call; thread: CPU time in the window; loop: CPU time of the \
         message thread outside of calls for peers; window: overhead of the probes in the message \
         thread",
    ),
    (
        "receive_calls",
        Kind::Integer,
        "calls: number of ProcessMessages calls in the window",
    ),
    (
        "receive_wall_ns",
        Kind::Integer,
        "calls: their total duration",
    ),
    (
        "receive_cpu_ns",
        Kind::Integer,
        "calls: their total CPU time",
    ),
    (
        "send_calls",
        Kind::Integer,
        "calls: number of SendMessages calls in the window",
    ),
    ("send_wall_ns", Kind::Integer, "calls: their total duration"),
    ("send_cpu_ns", Kind::Integer, "calls: their total CPU time"),
    ("thread", Kind::Text, "thread: its name"),
    ("start", Kind::Time, "window: when it began"),
    ("lost", Kind::Integer, "window: number of events lost in it"),
    ("user_agent", Kind::Text, "connected: the peer's user agent"),
    (
        "block",
        Kind::Text,
        "block_message, block_connected: the block's hash, in hexadecimal as nodes display it",
    ),
    (
        "height",
        Kind::Integer,
        "block_connected: the block's height",
    ),
    (
        "transactions",
        Kind::Integer,
        "block_connected: the block's number of transactions; block_message getblocktxn: how many \
         are requested",
    ),
    (
        "took_ns",
        Kind::Integer,
        "block_connected: how long connecting the block took, without fetching it",
    ),
    (
        "added",
        Kind::Flag,
        "received: whether processing it added a transaction to the mempool or a block to the chain",
    ),
];

/// Indices into [`COLUMNS`].
mod column {
    pub(super) const TIME: usize = 0;
    pub(super) const EVENT: usize = 1;
    pub(super) const PEER: usize = 2;
    pub(super) const ADDRESS: usize = 3;
    pub(super) const CONNECTION_TYPE: usize = 4;
    pub(super) const NETWORK: usize = 5;
    pub(super) const TRANSPORT: usize = 6;
    pub(super) const RELAY: usize = 7;
    pub(super) const SINCE: usize = 8;
    pub(super) const MESSAGE_TYPE: usize = 9;
    pub(super) const BYTES: usize = 10;
    pub(super) const WALL_NS: usize = 11;
    pub(super) const CPU_NS: usize = 12;
    pub(super) const RECEIVE: [usize; 3] = [13, 14, 15];
    pub(super) const SEND: [usize; 3] = [16, 17, 18];
    pub(super) const THREAD: usize = 19;
    pub(super) const START: usize = 20;
    pub(super) const LOST: usize = 21;
    pub(super) const USER_AGENT: usize = 22;
    pub(super) const BLOCK: usize = 23;
    pub(super) const HEIGHT: usize = 24;
    pub(super) const TRANSACTIONS: usize = 25;
    pub(super) const TOOK_NS: usize = 26;
    pub(super) const ADDED: usize = 27;
}

/// Minimum time that a part covers, except the last one.
const MIN_PART_TIME: Duration = Duration::from_secs(5);

/// Maximum time that a part covers.
const MAX_PART_TIME: Duration = Duration::from_secs(300);

/// A part is full when its records may take this fraction of the recording's maximum size: most of a
/// recording stays when its oldest part is deleted.
const PARTS_IN_LIMIT: u64 = 8;

/// Maximum number of parts that are opened to find the time of one that cannot be read.
const MAX_UNREADABLE: usize = 8;

/// Records decoded at a time.
const BATCH: usize = 4096;

/// Maximum [`Tally::work`] per byte of a recording. A recording of 500 silent peers with a window
/// every second needs 34: a part of 5 minutes has 4,450 bytes.
const MAX_WORK_PER_BYTE: u64 = 400;

/// A cell of a row.
#[derive(Clone, Debug, PartialEq)]
enum Cell {
    Integer(i64),
    Text(ByteArray),
    Flag(bool),
}

/// A record as a row.
struct Row([Option<Cell>; COLUMNS.len()]);

impl Row {
    fn of(record: &Record) -> Self {
        let mut row = Self([const { None }; COLUMNS.len()]);
        row.integer(column::TIME, record.time);
        let name = match &record.event {
            Event::Connected { peer, connection } => {
                row.peer(*peer);
                row.text(column::ADDRESS, &connection.address);
                row.name(column::CONNECTION_TYPE, connection.kind.name());
                if let Some(network) = connection.network {
                    row.name(column::NETWORK, network.name());
                }
                if let Some(transport) = connection.transport {
                    row.name(column::TRANSPORT, transport.name());
                }
                row.0[column::RELAY] = connection.relay.map(Cell::Flag);
                if let Some(user_agent) = &connection.user_agent {
                    row.text(column::USER_AGENT, user_agent);
                }
                if let Some(since) = connection.since {
                    row.integer(column::SINCE, since);
                }
                "connected"
            }
            Event::Started => "started",
            Event::Disconnected { peer } => {
                row.peer(*peer);
                "disconnected"
            }
            Event::Received {
                peer,
                message_type,
                bytes,
                cost,
                added,
            } => {
                row.peer(*peer);
                row.text(column::MESSAGE_TYPE, message_type);
                row.integer(column::BYTES, *bytes);
                if let Some(cost) = cost {
                    row.integer(column::WALL_NS, cost.wall_ns);
                    row.integer(column::CPU_NS, cost.cpu_ns);
                }
                row.0[column::ADDED] = added.map(Cell::Flag);
                "received"
            }
            Event::Sent {
                peer,
                message_type,
                bytes,
            } => {
                row.peer(*peer);
                row.text(column::MESSAGE_TYPE, message_type);
                row.integer(column::BYTES, *bytes);
                "sent"
            }
            Event::BlockMessage { peer, block, step } => {
                row.peer(*peer);
                row.name(column::MESSAGE_TYPE, step.message_type());
                row.text(column::BLOCK, &block.to_string());
                if let BlockStep::RequestedMissing(count) = step {
                    row.integer(column::TRANSACTIONS, *count);
                }
                "block_message"
            }
            Event::BlockConnected {
                block,
                height,
                transactions,
                took_ns,
            } => {
                row.text(column::BLOCK, &block.to_string());
                row.integer(column::HEIGHT, *height);
                row.integer(column::TRANSACTIONS, *transactions);
                row.integer(column::TOOK_NS, *took_ns);
                "block_connected"
            }
            Event::Bytes {
                peer,
                received,
                message_type,
                bytes,
            } => {
                row.peer(*peer);
                row.text(column::MESSAGE_TYPE, message_type);
                row.integer(column::BYTES, *bytes);
                match received {
                    true => "bytes_received",
                    false => "bytes_sent",
                }
            }
            Event::Calls {
                peer,
                receiving,
                sending,
            } => {
                row.peer(*peer);
                for (columns, calls) in [(column::RECEIVE, receiving), (column::SEND, sending)] {
                    let figures = [calls.count, calls.cost.wall_ns, calls.cost.cpu_ns];
                    for (column, figure) in columns.into_iter().zip(figures) {
                        row.integer(column, figure);
                    }
                }
                "calls"
            }
            Event::Thread { name, cpu_ns } => {
                row.text(column::THREAD, name);
                row.integer(column::CPU_NS, *cpu_ns);
                "thread"
            }
            Event::Loop { cpu_ns } => {
                row.integer(column::CPU_NS, *cpu_ns);
                "loop"
            }
            Event::Window {
                start,
                lost,
                probes_ns,
                stolen_ns,
            } => {
                row.integer(column::START, *start);
                row.integer(column::LOST, *lost);
                row.integer(column::CPU_NS, *probes_ns);
                row.integer(column::WALL_NS, *stolen_ns);
                "window"
            }
        };
        row.name(column::EVENT, name);
        row
    }

    /// Upper bound for what the row takes in a part, in bytes.
    fn max_bytes(&self) -> u64 {
        // 23 levels of a bit each; 8 bytes of a delta with its share of a block's header; a text in
        // the dictionary, with its length and its index.
        let cells = self.0.iter().flatten().map(|cell| match cell {
            Cell::Integer(_) => 10,
            Cell::Text(text) => 12 + text.len() as u64,
            Cell::Flag(_) => 1,
        });
        4 + cells.sum::<u64>()
    }

    fn peer(&mut self, peer: i64) {
        self.0[column::PEER] = Some(Cell::Integer(peer));
    }

    /// Saturates at `i64::MAX`, which is 292 years in nanoseconds.
    fn integer(&mut self, column: usize, value: u64) {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.0[column] = Some(Cell::Integer(value));
    }

    /// Cuts text at [`MAX_TEXT`], so that the reader accepts what the writer wrote.
    fn text(&mut self, column: usize, text: &str) {
        let mut end = text.len().min(MAX_TEXT);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let text = &text[..end];
        self.0[column] = Some(Cell::Text(ByteArray::from(text.as_bytes().to_vec())));
    }

    fn name(&mut self, column: usize, name: &'static str) {
        let name = bytes::Bytes::from_static(name.as_bytes());
        self.0[column] = Some(Cell::Text(ByteArray::from(name)));
    }

    fn into_record(self) -> Result<Record, Fault> {
        let event = match self.get_text(column::EVENT)? {
            "connected" => Event::Connected {
                peer: self.get_peer()?,
                connection: self.connection()?,
            },
            "started" => Event::Started,
            "disconnected" => Event::Disconnected {
                peer: self.get_peer()?,
            },
            "received" => Event::Received {
                peer: self.get_peer()?,
                message_type: self.get_text(column::MESSAGE_TYPE)?.to_owned(),
                bytes: self.get_integer(column::BYTES)?,
                cost: match self.0[column::CPU_NS] {
                    None => None,
                    Some(_) => Some(Cost {
                        wall_ns: self.get_integer(column::WALL_NS)?,
                        cpu_ns: self.get_integer(column::CPU_NS)?,
                    }),
                },
                added: self.flag(column::ADDED),
            },
            "sent" => Event::Sent {
                peer: self.get_peer()?,
                message_type: self.get_text(column::MESSAGE_TYPE)?.to_owned(),
                bytes: self.get_integer(column::BYTES)?,
            },
            "block_message" => Event::BlockMessage {
                peer: self.get_peer()?,
                block: self.block()?,
                step: self.step()?,
            },
            "block_connected" => Event::BlockConnected {
                block: self.block()?,
                height: self.get_integer(column::HEIGHT)?,
                transactions: self.get_integer(column::TRANSACTIONS)?,
                took_ns: self.get_integer(column::TOOK_NS)?,
            },
            name @ ("bytes_received" | "bytes_sent") => Event::Bytes {
                peer: self.get_peer()?,
                received: name == "bytes_received",
                message_type: self.get_text(column::MESSAGE_TYPE)?.to_owned(),
                bytes: self.get_integer(column::BYTES)?,
            },
            "calls" => Event::Calls {
                peer: self.get_peer()?,
                receiving: self.calls(column::RECEIVE)?,
                sending: self.calls(column::SEND)?,
            },
            "thread" => Event::Thread {
                name: self.get_text(column::THREAD)?.to_owned(),
                cpu_ns: self.get_integer(column::CPU_NS)?,
            },
            "loop" => Event::Loop {
                cpu_ns: self.get_integer(column::CPU_NS)?,
            },
            "window" => Event::Window {
                start: self.get_integer(column::START)?,
                lost: self.get_integer(column::LOST)?,
                probes_ns: self.get_integer(column::CPU_NS)?,
                stolen_ns: self.get_integer(column::WALL_NS)?,
            },
            _ => return Err(Fault::Value(column::EVENT)),
        };
        let time = self.get_integer(column::TIME)?;
        Ok(Record { time, event })
    }

    fn connection(&self) -> Result<Connection, Fault> {
        let name = |column: usize| match self.0[column] {
            None => Ok(None),
            Some(_) => self.get_text(column).map(Some),
        };
        let kind = self.get_text(column::CONNECTION_TYPE)?;
        let network = name(column::NETWORK)?
            .map(|name| Network::from_name(name).ok_or(Fault::Value(column::NETWORK)));
        let transport = name(column::TRANSPORT)?
            .map(|name| Transport::from_name(name).ok_or(Fault::Value(column::TRANSPORT)));
        Ok(Connection {
            address: self.get_text(column::ADDRESS)?.to_owned(),
            kind: ConnectionType::from_name(kind).ok_or(Fault::Value(column::CONNECTION_TYPE))?,
            network: network.transpose()?,
            transport: transport.transpose()?,
            relay: self.flag(column::RELAY),
            user_agent: name(column::USER_AGENT)?.map(str::to_owned),
            since: match self.0[column::SINCE] {
                None => None,
                Some(_) => Some(self.get_integer(column::SINCE)?),
            },
        })
    }

    fn flag(&self, column: usize) -> Option<bool> {
        match self.0[column] {
            Some(Cell::Flag(flag)) => Some(flag),
            _ => None,
        }
    }

    fn block(&self) -> Result<BlockHash, Fault> {
        BlockHash::parse(self.get_text(column::BLOCK)?).ok_or(Fault::Value(column::BLOCK))
    }

    fn step(&self) -> Result<BlockStep, Fault> {
        Ok(match self.get_text(column::MESSAGE_TYPE)? {
            "inv" => BlockStep::Inv,
            "headers" => BlockStep::Headers,
            "cmpctblock" => BlockStep::Compact,
            "getdata" => BlockStep::Requested,
            "getblocktxn" => BlockStep::RequestedMissing(self.get_integer(column::TRANSACTIONS)?),
            "block" => BlockStep::Delivered,
            "blocktxn" => BlockStep::DeliveredMissing,
            _ => return Err(Fault::Value(column::MESSAGE_TYPE)),
        })
    }

    fn calls(&self, [count, wall_ns, cpu_ns]: [usize; 3]) -> Result<Calls, Fault> {
        Ok(Calls {
            count: self.get_integer(count)?,
            cost: Cost {
                wall_ns: self.get_integer(wall_ns)?,
                cpu_ns: self.get_integer(cpu_ns)?,
            },
        })
    }

    fn get_peer(&self) -> Result<i64, Fault> {
        match self.0[column::PEER] {
            Some(Cell::Integer(peer)) => Ok(peer),
            _ => Err(Fault::Missing(column::PEER)),
        }
    }

    fn get_integer(&self, column: usize) -> Result<u64, Fault> {
        match self.0[column] {
            Some(Cell::Integer(value)) => value.try_into().map_err(|_| Fault::Value(column)),
            _ => Err(Fault::Missing(column)),
        }
    }

    fn get_text(&self, column: usize) -> Result<&str, Fault> {
        match &self.0[column] {
            Some(Cell::Text(text)) if text.len() <= MAX_TEXT => {
                std::str::from_utf8(text.data()).map_err(|_| Fault::Value(column))
            }
            Some(Cell::Text(_)) => Err(Fault::Value(column)),
            _ => Err(Fault::Missing(column)),
        }
    }
}

/// What is wrong with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The row's event needs this column, but it is null.
    Missing(usize),
    /// This column holds an invalid value.
    Value(usize),
}

/// The Parquet schema of a part.
fn schema() -> TypePtr {
    let fields = COLUMNS.iter().enumerate().map(|(place, (name, kind, _))| {
        let (physical, logical) = match kind {
            Kind::Integer => (Physical::INT64, None),
            Kind::Time => (
                Physical::INT64,
                Some(LogicalType::timestamp(true, TimeUnit::MICROS)),
            ),
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Flag => (Physical::BOOLEAN, None),
        };
        let repetition = match place {
            column::TIME | column::EVENT => Repetition::REQUIRED,
            _ => Repetition::OPTIONAL,
        };
        let field = Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build();
        Arc::new(field.expect("the types fit each other"))
    });
    let record = Type::group_type_builder("record").with_fields(fields.collect());
    Arc::new(record.build().expect("a group of columns"))
}

/// Dictionaries for text, delta encoding for integers: a record takes about 10 bytes, without the
/// code size and CPU time of a general compressor.
fn properties() -> WriterPropertiesPtr {
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("packetlane ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_dictionary_enabled(false)
        // For all texts that a part can have.
        .set_dictionary_page_size_limit(MAX_PAGE);
    for (name, kind, _) in COLUMNS {
        let path = ColumnPath::from(name);
        properties = match kind {
            Kind::Integer | Kind::Time => {
                properties.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED)
            }
            Kind::Text => properties.set_column_dictionary_enabled(path, true),
            Kind::Flag => properties,
        };
    }
    Arc::new(properties.build())
}

/// The rows of a part, column by column.
#[derive(Default)]
struct Columns {
    rows: usize,
    /// Upper bound for their size in a part, in bytes.
    max_bytes: u64,
    columns: [Column; COLUMNS.len()],
}

#[derive(Default)]
struct Column {
    /// For each row: 1 if it has a value, 0 for null.
    levels: Vec<i16>,
    /// The values. Only the vector that matches the column's type is used.
    integers: Vec<i64>,
    texts: Vec<ByteArray>,
    flags: Vec<bool>,
}

impl Columns {
    fn push(&mut self, row: Row) {
        self.rows += 1;
        self.max_bytes += row.max_bytes();
        for (column, cell) in self.columns.iter_mut().zip(row.0) {
            column.levels.push(i16::from(cell.is_some()));
            match cell {
                None => {}
                Some(Cell::Integer(value)) => column.integers.push(value),
                Some(Cell::Text(text)) => column.texts.push(text),
                Some(Cell::Flag(flag)) => column.flags.push(flag),
            }
        }
    }

    /// Empties the columns but keeps their memory for the next part.
    fn clear(&mut self) {
        self.rows = 0;
        self.max_bytes = 0;
        for column in &mut self.columns {
            column.levels.clear();
            column.integers.clear();
            column.texts.clear();
            column.flags.clear();
        }
    }

    /// Encodes the rows as a part.
    fn encode(
        &self,
        schema: TypePtr,
        properties: WriterPropertiesPtr,
    ) -> Result<Vec<u8>, ParquetError> {
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties)?;
        let mut group = writer.next_row_group()?;
        for ((name, kind, _), column) in COLUMNS.iter().zip(&self.columns) {
            let Some(mut out) = group.next_column()? else {
                return Err(ParquetError::General(format!("no column {name}")));
            };
            let levels = Some(&column.levels[..]);
            match kind {
                Kind::Integer | Kind::Time => {
                    out.typed::<Int64Type>()
                        .write_batch(&column.integers, levels, None)?
                }
                Kind::Text => {
                    out.typed::<ByteArrayType>()
                        .write_batch(&column.texts, levels, None)?
                }
                Kind::Flag => out
                    .typed::<BoolType>()
                    .write_batch(&column.flags, levels, None)?,
            };
            out.close()?;
        }
        group.close()?;
        writer.into_inner()
    }
}

/// Writes a recording.
pub struct Writer {
    /// Held open: its name may be redirected, since a parent folder may belong to another user.
    folder: Folder,
    schema: TypePtr,
    properties: WriterPropertiesPtr,
    limits: Limits,
    parts: Parts,
    /// The part that is being filled.
    rows: Columns,
    part_rows: usize,
    /// Rows of the part that only repeat what earlier parts contain.
    repeated: usize,
    /// Upper bound for their size.
    repeated_bytes: u64,
    /// For the start of the next part.
    connected: Known,
    /// Whether the next record is the first one after those of an earlier writer.
    is_restarted: bool,
    records: u64,
    begun: Instant,
    part_begun: Instant,
}

impl Writer {
    /// Creates a recording as a new folder, conventionally called `NAME.parquet`.
    ///
    /// # Errors
    ///
    /// If `folder` already exists or cannot be created.
    pub fn create(folder: &Path) -> Result<Self, WriteError> {
        let folder = Folder::create(folder).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => WriteError::Exists(folder.to_owned()),
            _ => WriteError::Io(folder.to_owned(), error),
        })?;
        Ok(Self::new(folder, Parts::default()))
    }

    /// Continues the recording at `folder` with new parts, or creates it. The peers of the earlier
    /// run are disconnected. What an earlier writer has not finished is removed.
    ///
    /// # Errors
    ///
    /// If `folder` is a symbolic link or contains anything but parts, if its newest part is damaged,
    /// or if another process writes to it.
    pub fn append(folder: &Path) -> Result<Self, WriteError> {
        let refused = |error: &dyn fmt::Display| WriteError::Refused {
            folder: folder.to_owned(),
            why: error.to_string(),
        };
        let opened = match Folder::open(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::create(folder),
            opened => opened.map_err(|error| refused(&error))?,
        };
        let parts = Parts::list(&opened).map_err(|error| refused(&error))?;
        if let Some(newest) = parts.newest() {
            let records = read(&folder.join(newest)).map_err(|error| refused(&error))?;
            for record in records {
                record.map_err(|error| refused(&error))?;
            }
        }
        Ok(Self::new(opened, parts))
    }

    fn new(folder: Folder, parts: Parts) -> Self {
        let now = Instant::now();
        Self {
            folder,
            schema: schema(),
            properties: properties(),
            limits: Limits::default(),
            is_restarted: !parts.is_empty(),
            parts,
            rows: Columns::default(),
            part_rows: MAX_ROWS,
            repeated: 0,
            repeated_bytes: 0,
            connected: Known::default(),
            records: 0,
            begun: now,
            part_begun: now,
        }
    }

    /// Sets the maximum number of records per part, by default 131,072. It bounds the writer's
    /// memory.
    #[must_use]
    pub fn with_part_rows(self, rows: usize) -> Self {
        let part_rows = rows.clamp(1, MAX_ROWS);
        Self { part_rows, ..self }
    }

    /// Sets limits, and deletes the parts of an earlier writer that are beyond them.
    ///
    /// # Errors
    ///
    /// If a part cannot be deleted.
    pub fn with_limits(mut self, limits: Limits) -> Result<Self, WriteError> {
        self.limits = limits;
        self.apply_limits()?;
        Ok(self)
    }

    /// Adds a record. Writes a part when it is full, and every few seconds at the end of a window.
    ///
    /// # Errors
    ///
    /// If the part cannot be written. Earlier parts are complete. The unwritten records stay in
    /// memory and the next call tries again; until that succeeds, no more records are accepted.
    pub fn add(&mut self, record: &Record) -> Result<(), WriteError> {
        // After a failed write: do not let the buffer grow.
        if self.is_full() {
            self.write_part()?;
        }
        if self.rows.rows == 0 {
            self.begin_part(record.time);
        }
        self.connected.note(&record.event);
        self.rows.push(Row::of(record));
        match record.event {
            // So that a part has whole windows.
            Event::Window { .. } => self.write_if_due(),
            _ if self.is_full() => self.write_part(),
            _ => Ok(()),
        }
    }

    /// Begins a part with everything that a reader needs to know from earlier parts.
    fn begin_part(&mut self, time: Time) {
        if std::mem::take(&mut self.is_restarted) {
            let event = Event::Started;
            self.rows.push(Row::of(&Record { time, event }));
        }
        for record in self.connected.records(time) {
            self.rows.push(Row::of(&record));
        }
        self.repeated = self.rows.rows;
        self.repeated_bytes = self.rows.max_bytes;
    }

    /// Whether the part has as many records as it can.
    fn is_full(&self) -> bool {
        let added = self.rows.rows - self.repeated;
        let added_bytes = self.rows.max_bytes - self.repeated_bytes;
        let is_large = |most: u64| added_bytes >= most / PARTS_IN_LIMIT;
        added >= self.part_rows
            || self.rows.rows >= MAX_ROWS
            || added > 0 && self.limits.max_bytes.is_some_and(is_large)
    }

    /// Writes a part if it is due. Call it while the source is silent.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    pub fn write_if_due(&mut self) -> Result<(), WriteError> {
        let due = ((self.part_begun - self.begun) / 100).clamp(MIN_PART_TIME, MAX_PART_TIME);
        match self.is_full() || self.part_begun.elapsed() >= due {
            true => self.write_part(),
            false => Ok(()),
        }
    }

    /// Writes the records so far as a part, even if it is not due. Does nothing if there are none.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    pub fn flush(&mut self) -> Result<(), WriteError> {
        match self.rows.rows {
            0 => Ok(()),
            _ => self.write_part(),
        }
    }

    /// Writes the last part and returns the number of records added.
    ///
    /// # Errors
    ///
    /// If it cannot be written. Earlier parts are complete.
    pub fn finish(mut self) -> Result<u64, WriteError> {
        self.write_part()?;
        Ok(self.records)
    }

    /// Number of records added that are in complete parts: they survive the end of this process.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    fn write_part(&mut self) -> Result<(), WriteError> {
        // Even an empty recording gets one part, so that readers find the columns.
        if self.rows.rows == 0 && !self.parts.is_empty() {
            self.part_begun = Instant::now();
            return self.apply_limits();
        }
        let number = self.parts.next_number();
        let name = part_name(number);
        self.write_as(&name, number)
            .map_err(|error| WriteError::Io(self.folder.path().join(name), error))?;
        self.records += (self.rows.rows - self.repeated) as u64;
        self.rows.clear();
        self.repeated = 0;
        self.repeated_bytes = 0;
        self.part_begun = Instant::now();
        self.apply_limits()
    }

    fn write_as(&mut self, name: &str, number: u64) -> io::Result<()> {
        let (schema, properties) = (self.schema.clone(), self.properties.clone());
        // In memory, so that its size is known before anything is deleted for it.
        let part = self.rows.encode(schema, properties).map_err(io_error)?;
        let bytes = part.len() as u64;
        if self.limits.max_bytes.is_some_and(|most| bytes > most) {
            let text = "this part alone is larger than the recording may be";
            return Err(io::Error::other(text));
        }
        self.parts.make_room(&self.folder, self.limits, bytes)?;
        // Readers of the folder ignore an incomplete part. It is removed on failure: it may occupy
        // the last free space on the disk.
        self.folder.write(name, |mut file| file.write_all(&part))?;
        self.parts.push(number, bytes);
        Ok(())
    }

    fn apply_limits(&mut self) -> Result<(), WriteError> {
        let applied = self.parts.apply(&self.folder, self.limits);
        applied.map_err(|error| WriteError::Io(self.folder.path().to_owned(), error))
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("folder", &self.folder.path())
            .field("records", &self.records)
            .finish_non_exhaustive()
    }
}

/// The underlying system error, if there is one.
fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}

/// Why a recording cannot be written.
#[derive(Debug)]
#[non_exhaustive]
pub enum WriteError {
    /// The folder already exists.
    Exists(PathBuf),
    /// The folder is no recording that can be continued.
    Refused {
        /// The folder.
        folder: PathBuf,
        /// Why, in one line.
        why: String,
    },
    /// The system reports an error, for example a full disk or a missing parent folder.
    Io(PathBuf, io::Error),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists(path) => {
                write!(
                    f,
                    "folder {} already exists: choose another name",
                    Name(path)
                )
            }
            Self::Refused { folder, why } => {
                write!(f, "cannot continue the recording {}: {why}", Name(folder))
            }
            Self::Io(path, error) => write!(f, "cannot write {}: {error}", Name(path)),
        }
    }
}

impl error::Error for WriteError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Exists(_) | Self::Refused { .. } => None,
            Self::Io(_, error) => Some(error),
        }
    }
}

/// Reads a recording: a folder of parts, or a single Parquet file in [`Writer`]'s layout. Files
/// that other programs have rewritten, for example with compression, are rejected.
///
/// # Errors
///
/// If there is no recording at `path`.
pub fn read(path: &Path) -> Result<Reader, ReadError> {
    let failed = |error| ReadError {
        path: path.to_owned(),
        cause: ReadCause::Io(error),
    };
    let mut parts = VecDeque::new();
    if fs::metadata(path).map_err(failed)?.is_dir() {
        for entry in fs::read_dir(path).map_err(failed)? {
            let part = entry.map_err(failed)?.path();
            if part
                .extension()
                .is_some_and(|extension| extension == "parquet")
            {
                parts.push_back(part);
            }
        }
        let order = |part: &PathBuf| {
            let name = part.file_name().and_then(|name| name.to_str());
            // A seventh digit comes after 5,000 days.
            (name.and_then(part_number), part.clone())
        };
        parts.make_contiguous().sort_by_cached_key(order);
    } else {
        parts.push_back(path.to_owned());
    }
    if parts.is_empty() {
        return Err(ReadError {
            path: path.to_owned(),
            cause: ReadCause::Empty,
        });
    }
    Ok(Reader {
        path: path.to_owned(),
        length: 0,
        period: Period::ALL,
        parts,
        part: None,
        batch: VecDeque::new(),
    })
}

/// Iterator over the records of a recording, in the order in which they were written.
///
/// An unreadable part yields an error; then come the records of the next part. Some records of the
/// damaged part may already have been returned.
///
/// Time and memory are bounded by the size of the parts, whatever they contain: a part is read only
/// if it has at most 96 MiB and [`Writer`]'s layout.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    /// Total size of the parts opened so far, in bytes.
    length: u64,
    /// Only for [`Reader::tally`].
    period: Period,
    parts: VecDeque<PathBuf>,
    part: Option<Part>,
    batch: VecDeque<Record>,
}

impl Iterator for Reader {
    type Item = Result<Record, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.batch.pop_front() {
                return Some(Ok(record));
            }
            let path = self.parts.front()?;
            match self.read_batch(path.clone()) {
                Ok(true) => {}
                Ok(false) => {
                    self.part = None;
                    self.parts.pop_front();
                }
                Err(error) => {
                    self.part = None;
                    let part = self.parts.pop_front();
                    self.batch.clear();
                    // The writer has deleted an old part in the meantime.
                    if error.is_not_found() && part.is_some_and(|part| part != self.path) {
                        continue;
                    }
                    return Some(Err(error));
                }
            }
        }
    }
}

impl Reader {
    /// Restricts [`tally`](Self::tally) to windows within `period`. Parts outside of it are not read,
    /// except the one in which it begins, and of a few others the start.
    #[must_use]
    pub fn within(mut self, period: Period) -> Self {
        self.period = period;
        if period.until < Time::MAX {
            self.parts
                .truncate(self.count_parts_until(period.until, true));
        }
        if period.since > 0 {
            let mut begin = self
                .count_parts_until(period.since, false)
                .saturating_sub(1);
            // Connected peers are repeated at the start of a part. If there are none, or if the
            // recording is older than this rule, earlier parts tell which peers are connected.
            while begin > 0 {
                match first_of(&self.parts[begin]).map(|first| first.event) {
                    Some(Event::Connected { .. } | Event::Started) => break,
                    _ => begin -= 1,
                }
            }
            self.parts.drain(..begin);
        }
        self
    }

    /// Number of parts that begin at `time` or earlier. `if_unknown` says whether parts count that
    /// cannot be read.
    fn count_parts_until(&self, time: Time, if_unknown: bool) -> usize {
        let (mut low, mut high) = (0, self.parts.len());
        while low < high {
            let middle = low.midpoint(high);
            // An unreadable part begins when the next one does.
            let mut next = self.parts.range(middle..).take(MAX_UNREADABLE);
            let first = next.find_map(|part| first_of(part));
            match first.map_or(if_unknown, |first| first.time <= time) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// Adds the records to `tally` as a separate recording, and reports each fault to `damage`.
    ///
    /// Time is bounded by the size of the recording: every window takes time for each connected
    /// peer. If windows times peers exceed the bound, the rest is not read.
    pub fn tally(mut self, tally: &mut Tally, mut damage: impl FnMut(ReadError)) {
        let before = tally.work();
        let mut filter = Filter::new(self.period);
        while let Some(record) = self.next() {
            match record {
                Ok(record) => filter.add(record, |record| tally.add(record)),
                Err(error) => {
                    damage(error);
                    filter.gap();
                    tally.gap();
                }
            }
            if tally.work() - before > self.length.saturating_mul(MAX_WORK_PER_BYTE) {
                damage(ReadError {
                    path: self.path,
                    cause: ReadCause::Work,
                });
                break;
            }
        }
        tally.end();
    }

    /// Reads records of the part at `path`. Returns false at its end.
    fn read_batch(&mut self, path: PathBuf) -> Result<bool, ReadError> {
        let failed = |cause| ReadError {
            path: path.clone(),
            cause,
        };
        // Layout checks reject everything known to make the library panic. Any other panic counts
        // as damage to the file; nothing of the part is used afterwards.
        let read = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let part = match &mut self.part {
                Some(part) => part,
                none => {
                    let (part, length) = Part::open(&path)?;
                    self.length += length;
                    none.insert(part)
                }
            };
            part.read_batch(&mut self.batch)
        }));
        read.unwrap_or(Err(ReadCause::Panicked)).map_err(failed)
    }
}

/// The first record of a part, if it can be read.
fn first_of(part: &Path) -> Option<Record> {
    read(part).ok()?.next()?.ok()
}

/// A part that is being read.
struct Part {
    /// Number of rows left.
    left: usize,
    readers: Vec<Option<ColumnReader>>,
    /// Number of the next row in the file, counting from 1.
    row: u64,
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part")
            .field("row", &self.row)
            .finish_non_exhaustive()
    }
}

impl Part {
    /// Opens the part at `path`. Also returns its size in bytes.
    fn open(path: &Path) -> Result<(Self, u64), ReadCause> {
        let file = packetlane_files::open(path).map_err(ReadCause::Io)?;
        let length = file.metadata().map_err(ReadCause::Io)?.len();
        let mut bytes = Vec::new();
        // A sparse file needs no disk space, and a file may grow while it is read: bound the size.
        if length <= MAX_PART {
            let read = file.take(MAX_PART + 1).read_to_end(&mut bytes);
            read.map_err(ReadCause::Io)?;
        }
        if length.max(bytes.len() as u64) > MAX_PART {
            return Err(ReadCause::Layout(
                "it is larger than a part of a recording can be",
            ));
        }
        let bytes = Bytes::from(bytes);
        let schema = SchemaDescriptor::new(schema());
        let layout = Layout::of(&bytes, &schema).map_err(|error| match error {
            LayoutError::Other(what) => ReadCause::Layout(what),
            LayoutError::NoColumn(column) => ReadCause::NoColumn(COLUMNS[column].0),
            LayoutError::ColumnType(column) => {
                ReadCause::ColumnType(COLUMNS[column].0, COLUMNS[column].1)
            }
        })?;
        let columns = layout.columns.into_iter().zip(schema.columns());
        let readers = columns.map(|(place, column)| {
            let pages = Pages::new(bytes.slice(place?), column);
            Some(get_column_reader(column.clone(), Box::new(pages)))
        });
        let part = Self {
            left: layout.rows,
            readers: readers.collect(),
            row: 1,
        };
        Ok((part, bytes.len() as u64))
    }

    /// Appends some records to `batch`. Returns false at the end.
    fn read_batch(&mut self, batch: &mut VecDeque<Record>) -> Result<bool, ReadCause> {
        if self.left == 0 {
            return Ok(false);
        }
        let count = self.left.min(BATCH);
        let mut rows = Vec::with_capacity(count);
        rows.resize_with(count, || Row([const { None }; COLUMNS.len()]));
        for (place, reader) in self.readers.iter_mut().enumerate() {
            if let Some(reader) = reader {
                read_column(reader, &mut rows, place)?;
            }
        }
        for row in rows {
            let record = row.into_record().map_err(|fault| match fault {
                Fault::Missing(column) => ReadCause::Missing(self.row, COLUMNS[column].0),
                Fault::Value(column) => ReadCause::Value(self.row, COLUMNS[column].0),
            })?;
            batch.push_back(record);
            self.row += 1;
        }
        self.left -= count;
        Ok(true)
    }
}

/// Reads the next cells of a column, one for each row.
fn read_column(reader: &mut ColumnReader, rows: &mut [Row], place: usize) -> Result<(), ReadCause> {
    let mut levels = Vec::with_capacity(rows.len());
    let count = rows.len();
    let (read, cells): (usize, Vec<Cell>) = match reader {
        ColumnReader::Int64ColumnReader(reader) => {
            let mut values = Vec::with_capacity(count);
            let read = reader.read_records(count, Some(&mut levels), None, &mut values)?;
            (read.0, values.into_iter().map(Cell::Integer).collect())
        }
        ColumnReader::ByteArrayColumnReader(reader) => {
            let mut values = Vec::with_capacity(count);
            let read = reader.read_records(count, Some(&mut levels), None, &mut values)?;
            (read.0, values.into_iter().map(Cell::Text).collect())
        }
        ColumnReader::BoolColumnReader(reader) => {
            let mut values = Vec::with_capacity(count);
            let read = reader.read_records(count, Some(&mut levels), None, &mut values)?;
            (read.0, values.into_iter().map(Cell::Flag).collect())
        }
        _ => return Err(ReadCause::ColumnType(COLUMNS[place].0, COLUMNS[place].1)),
    };
    if read != count {
        return Err(ReadCause::Rows);
    }
    // A column without levels is never null.
    let mut cells = cells.into_iter();
    for (at, row) in rows.iter_mut().enumerate() {
        if levels.get(at).is_none_or(|level| *level == 1) {
            row.0[place] = Some(cells.next().ok_or(ReadCause::Rows)?);
        }
    }
    Ok(())
}

/// Why a recording cannot be read.
#[derive(Debug)]
pub struct ReadError {
    /// The file, or the folder if no single file is at fault.
    pub path: PathBuf,
    /// What is wrong with it.
    pub cause: ReadCause,
}

/// What is wrong with a file.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadCause {
    /// The system reports an error.
    Io(io::Error),
    /// The folder has no `.parquet` files.
    Empty,
    /// The Parquet library panicked on it: damage that the layout checks do not know.
    Panicked,
    /// Not a Parquet file in [`Writer`]'s layout, or damaged.
    Layout(&'static str),
    /// Damaged values.
    Parquet(ParquetError),
    /// A column is missing.
    NoColumn(&'static str),
    /// A column has the wrong type.
    ColumnType(&'static str, Kind),
    /// A column has fewer rows than the file claims.
    Rows,
    /// Reading it would take more time than its size allows.
    Work,
    /// In this row, a column that its event needs is null.
    Missing(u64, &'static str),
    /// In this row, a column has an invalid value.
    Value(u64, &'static str),
}

impl ReadError {
    /// Whether the file does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(&self.cause, ReadCause::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

const NOT_WHOLE: &str = "not an intact, uncompressed Parquet file of `peers record`";

impl From<ParquetError> for ReadCause {
    fn from(error: ParquetError) -> Self {
        Self::Parquet(error)
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", Name(&self.path), self.cause)
    }
}

impl fmt::Display for ReadCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Panicked => f.write_str(NOT_WHOLE),
            Self::Empty => f.write_str("no .parquet files in this folder"),
            Self::Layout(what) => write!(f, "{NOT_WHOLE}: {what}"),
            // The library's message may have several lines.
            Self::Parquet(error) => {
                let text = error.to_string();
                let line = text.lines().next().unwrap_or_default();
                write!(f, "{NOT_WHOLE}: {line}")
            }
            Self::NoColumn(name) => write!(f, "not a recording of peers: column {name} is missing"),
            Self::ColumnType(name, kind) => {
                let kind = match kind {
                    Kind::Integer => "64-bit integers",
                    Kind::Time => "microseconds",
                    Kind::Text => "text",
                    Kind::Flag => "booleans",
                };
                write!(f, "column {name} does not hold {kind}")
            }
            Self::Rows => f.write_str("fewer rows than the file claims"),
            Self::Work => f.write_str("more windows and peers than its size allows"),
            Self::Missing(row, name) => write!(f, "row {row} has no {name}"),
            Self::Value(row, name) => write!(f, "row {row} has an invalid {name}"),
        }
    }
}

impl error::Error for ReadError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match &self.cause {
            ReadCause::Io(error) => Some(error),
            ReadCause::Parquet(error) => Some(error),
            _ => None,
        }
    }
}
