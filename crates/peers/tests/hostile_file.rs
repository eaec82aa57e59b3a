//! Parquet files that claim more than they contain: each is rejected fast and with little memory.

mod synthetic;

use packetlane_peers::file::{Writer, read};
use packetlane_peers::tally::Tally;
use packetlane_peers::{Connection, ConnectionType, Event, Record};
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};
use synthetic::{Folder, START};

/// An unterminated structure in Thrift's compact protocol.
#[derive(Clone, Default)]
struct Structure {
    bytes: Vec<u8>,
    last: u8,
}

fn number(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

impl Structure {
    fn field(mut self, place: u8, kind: u8, value: &[u8]) -> Self {
        self.bytes.push((place - self.last) << 4 | kind);
        self.bytes.extend(value);
        self.last = place;
        self
    }

    fn integer(self, place: u8, value: u64) -> Self {
        self.field(place, 6, &number(value << 1))
    }

    fn text(self, place: u8, text: &str) -> Self {
        let text = [&number(text.len() as u64), text.as_bytes()].concat();
        self.field(place, 8, &text)
    }

    fn list(self, place: u8, elements: &[Vec<u8>]) -> Self {
        let head = [&[0xfc][..], &number(elements.len() as u64)].concat();
        self.field(place, 9, &[head, elements.concat()].concat())
    }

    fn structure(self, place: u8, inner: Self) -> Self {
        self.field(place, 12, &inner.end())
    }

    fn end(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}

/// A data page (kind 0) or dictionary page (2) that claims this length.
fn page_of(kind: u8, count: u64, encoding: u64, body: &[u8], length: u64) -> Vec<u8> {
    let inner = Structure::default().integer(1, count).integer(2, encoding);
    let place = match kind {
        0 => 5,
        _ => 7,
    };
    let header = Structure::default()
        .integer(1, kind.into())
        .integer(2, length)
        .integer(3, length)
        .structure(place, inner.integer(3, 3).integer(4, 3));
    [header.end(), body.to_vec()].concat()
}

fn page(kind: u8, count: u64, encoding: u64, body: &[u8]) -> Vec<u8> {
    page_of(kind, count, encoding, body, body.len() as u64)
}

/// Delta encoding of equal numbers: 2 bytes for 65,536 of them.
fn same(count: u64) -> Vec<u8> {
    let head = [1 << 16, 1, count, 2000].map(number).concat();
    let blocks = count.saturating_sub(1).div_ceil(1 << 16);
    [head, vec![0; 2 * blocks as usize]].concat()
}

/// A column: its name, type and nullability, its pages, and their range if they are not its own.
#[derive(Clone)]
struct Column {
    name: &'static str,
    kind: u64,
    optional: u64,
    pages: Vec<u8>,
    place: Option<u64>,
}

/// Columns of this many `loop` records.
fn columns(rows: u64) -> Vec<Column> {
    let run = number(rows << 1);
    let levels = [&run[..], &[1]].concat();
    let levels = [&(levels.len() as u32).to_le_bytes()[..], &levels].concat();
    let dictionary = page(2, 1, 0, b"\x04\0\0\0loop");
    let names = page(0, rows, 8, &[&[1][..], &run, &[0]].concat());
    let column = |name, kind, optional, pages| Column {
        name,
        kind,
        optional,
        pages,
        place: None,
    };
    vec![
        column("time", 2, 0, page(0, rows, 5, &same(rows))),
        column("event", 6, 0, [dictionary, names].concat()),
        column(
            "cpu_ns",
            2,
            1,
            page(0, rows, 5, &[levels, same(rows)].concat()),
        ),
    ]
}

/// A file with this footer.
fn file(pages: &[u8], footer: &[u8]) -> Vec<u8> {
    let length = (footer.len() as u32).to_le_bytes();
    [b"PAR1", pages, footer, &length, b"PAR1"].concat()
}

/// The start of a footer: version and schema.
fn schema(columns: &[Column]) -> Structure {
    let root = Structure::default().text(4, "record");
    let mut fields = vec![root.integer(5, columns.len() as u64).end()];
    for column in columns {
        let field = Structure::default().integer(1, column.kind);
        let field = field.integer(3, column.optional).text(4, column.name);
        let unit = Structure::default().structure(2, Structure::default());
        let time = Structure::default().structure(8, Structure::default().structure(2, unit));
        fields.push(field.structure(10, time).end());
    }
    Structure::default().integer(1, 1).list(2, &fields)
}

/// A file with this many row groups that share the same pages.
fn part(rows: u64, groups: usize, columns: &[Column]) -> Vec<u8> {
    let mut pages = Vec::new();
    let mut chunks = Vec::new();
    for column in columns {
        let place = column.place.unwrap_or(4 + pages.len() as u64);
        let about = Structure::default()
            .integer(1, column.kind)
            .integer(4, 0)
            .integer(5, rows)
            .integer(7, column.pages.len() as u64)
            .integer(9, place);
        chunks.push(Structure::default().structure(3, about).end());
        pages.extend(&column.pages);
    }
    let group = Structure::default().list(1, &chunks).integer(3, rows).end();
    let footer = schema(columns)
        .integer(3, rows)
        .list(4, &vec![group; groups]);
    file(&pages, &footer.end())
}

/// Peak memory of this process, in bytes.
fn high_water() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// The error for a file. Checks that it comes fast and takes little memory.
fn error_of(path: &Path) -> String {
    let begun = Instant::now();
    let records = read(path).expect("a file");
    let error = records.filter_map(Result::err).next().expect("an error");
    assert!(begun.elapsed() < Duration::from_secs(5), "{error}");
    // For all tests of this program together.
    if let Some(had) = high_water() {
        assert!(had < 350 << 20, "{error}: {} MiB", had >> 20);
    }
    error.to_string()
}

fn refused(folder: &Folder, bytes: &[u8], what: &str) {
    let path = folder.0.join("hostile.parquet");
    fs::write(&path, bytes).expect("written");
    let error = error_of(&path);
    assert!(error.ends_with(what), "{error}, not {what}");
}

/// The files below are rejected for what they claim, not for being handmade: an honest one is read.
#[test]
fn a_handmade_file_is_read() {
    let folder = Folder::new("by-hand");
    let path = folder.0.join("a.parquet");
    fs::write(&path, part(10, 1, &columns(10))).expect("written");
    let records: Result<Vec<_>, _> = read(&path).expect("a file").collect();
    let record = Record {
        time: 1000,
        event: Event::Loop { cpu_ns: 1000 },
    };
    assert_eq!(records.expect("whole"), vec![record; 10]);
}

#[test]
fn a_nested_schema_is_refused() {
    let folder = Folder::new("nested");
    let nested = Structure::default().text(4, "a").integer(5, 1).end();
    for (depth, what) in [
        (3, "its columns are nested"),
        (4000, "its columns are nested"),
        (10_000, "its columns are nested"),
        (20_000, "its footer is longer than 64 KiB"),
    ] {
        let footer = Structure::default().list(2, &vec![nested.clone(); depth]);
        refused(&folder, &file(&[], &footer.list(4, &[]).end()), what);
    }
    // Nested structures and lists outside of the schema.
    for (opens, what) in [
        (0x1c, "its footer is damaged"),
        (0x19, "its footer is damaged"),
    ] {
        refused(&folder, &file(&[], &vec![opens; 60_000]), what);
    }
}

#[test]
fn memory_is_taken_for_what_is_there_not_for_what_is_claimed() {
    let folder = Folder::new("memory");
    let claim = 2_000_000_000;
    // Lists and texts that are longer than the file.
    for value in [
        [&[0x19, 0xfc][..], &number(claim)].concat(),
        // Booleans take no bytes in many readers.
        [&[0x19, 0xf1][..], &number(claim)].concat(),
        [&[0x18][..], &number(claim)].concat(),
    ] {
        refused(&folder, &file(&[], &value), "its footer is damaged");
    }
    let field = Structure::default().integer(1, 2).text(4, "name").end();
    let footer = Structure::default().list(2, &vec![field; 3_000_000]).end();
    refused(
        &folder,
        &file(&[], &footer),
        "its footer is longer than 64 KiB",
    );
    // A page of 2 GB, alone and in a column of 2 GB.
    let mut small = columns(10);
    small[0].pages = page_of(0, 10, 5, &same(10), claim);
    refused(
        &folder,
        &part(10, 1, &small),
        "a page is longer than this reader accepts",
    );
    small[0].pages = page_of(0, 10, 5, &same(10), 1_000_000);
    refused(
        &folder,
        &part(10, 1, &small),
        "a page is longer than its column",
    );
    small[0].pages = page_of(2, claim, 0, &[], 0);
    refused(
        &folder,
        &part(10, 1, &small),
        "the header of a page is damaged",
    );
    let mut outside = columns(10);
    outside[1].place = Some(claim);
    refused(
        &folder,
        &part(10, 1, &outside),
        "a column lies outside the file",
    );
    // A dictionary that claims more texts than it has.
    let mut texts = columns(10);
    texts[1].pages = page(2, 100_000, 0, b"\x04\0\0\0loop");
    refused(
        &folder,
        &part(10, 1, &texts),
        "a dictionary has fewer entries than it claims",
    );
}

#[test]
fn a_sparse_file_takes_no_memory() {
    let folder = Folder::new("sparse");
    let path = folder.0.join("sparse.parquet");
    let tail = part(10, 1, &columns(10));
    for (length, what) in [
        (2 << 30, "it is larger than a part of a recording can be"),
        // The maximum size of a part: its footer claims to fill the file.
        (96 << 20, "its footer is longer than 64 KiB"),
    ] {
        let mut file = File::create(&path).expect("a file");
        file.write_all(b"PAR1").expect("written");
        file.seek(SeekFrom::Start(length - 8)).expect("sought");
        let claimed = u32::try_from(length - 12).expect("32 bits");
        file.write_all(&claimed.to_le_bytes()).expect("written");
        file.write_all(&tail[tail.len() - 4..]).expect("written");
        drop(file);
        let error = error_of(&path);
        assert!(error.ends_with(what), "{error}");
    }
}

#[test]
fn the_time_is_bounded_by_the_length_of_the_file() {
    let folder = Folder::new("time");
    let more = "it claims more rows than a file of its size can have";
    let many = part(10_000_000, 1, &columns(10_000_000));
    assert!(many.len() < 2500);
    refused(&folder, &many, more);
    let many = part(130_000, 1, &columns(130_000));
    assert!(many.len() < 1000);
    refused(&folder, &many, more);
    let groups = part(10_000, 2000, &columns(10_000));
    refused(&folder, &groups, "its footer is longer than 64 KiB");
    let groups = part(10_000, 1000, &columns(10_000));
    refused(&folder, &groups, "it does not have exactly one row group");
    let mut shared = columns(10);
    shared[1].place = Some(4);
    refused(&folder, &part(10, 1, &shared), "its columns share pages");
    // A list of booleans in the header of a page.
    let mut skipped = columns(10);
    skipped[0].pages = [&[0xf9, 0xf1][..], &number(2_000_000_000), &[0; 100]].concat();
    refused(
        &folder,
        &part(10, 1, &skipped),
        "the header of a page is damaged",
    );
}

/// Writes a recording of this many silent peers and windows of a second, in parts of this many
/// records.
fn silent(path: &Path, peers: i64, windows: u64, part_rows: usize) {
    let writer = Writer::create(path).expect("a folder");
    let mut writer = writer.with_part_rows(part_rows);
    for peer in 0..peers {
        let connection = Connection {
            address: "192.0.2.1:8333".to_owned(),
            kind: ConnectionType::Inbound,
            network: None,
            transport: None,
            relay: None,
            user_agent: None,
            since: None,
        };
        let event = Event::Connected { peer, connection };
        writer.add(&Record { time: START, event }).expect("written");
    }
    for window in 0..windows {
        let start = START + window * 1_000_000;
        let event = Event::Window {
            start,
            lost: 0,
            probes_ns: 0,
            stolen_ns: 0,
        };
        let time = start + 1_000_000;
        writer.add(&Record { time, event }).expect("written");
    }
    writer.finish().expect("finished");
}

/// The work that a recording takes per byte, and its faults.
fn tally(path: &Path) -> (u64, Vec<String>) {
    let (mut tally, mut damage) = (Tally::new(), Vec::new());
    let records = read(path).expect("a recording");
    records.tally(&mut tally, |error| damage.push(error.to_string()));
    let parts = fs::read_dir(path).expect("a folder").flatten();
    let length: u64 = parts
        .map(|part| part.metadata().expect("a part").len())
        .sum();
    println!("{} units for {length} bytes", tally.work());
    (tally.work() / length, damage)
}

/// Every window takes time for each connected peer.
#[test]
fn windows_and_peers_are_bounded_by_the_length_of_the_recording() {
    let folder = Folder::new("windows");
    let many = folder.0.join("many.parquet");
    silent(&many, 10_000, 121_072, 1 << 17);
    let begun = Instant::now();
    let (_, damage) = tally(&many);
    assert!(begun.elapsed() < Duration::from_secs(30));
    let expected = format!(
        "{}: more windows and peers than its size allows",
        many.display()
    );
    assert_eq!(damage, [expected]);

    // Windows of a second and parts of 5 minutes, the writer's longest: a tenth of the bound.
    let real = folder.0.join("real.parquet");
    silent(&real, 500, 7200, 300);
    let (work, damage) = tally(&real);
    assert!(work <= 40, "{work}");
    assert!(damage.is_empty(), "{damage:?}");
}

/// The densest part that the writer can produce is within the reader's bounds.
#[test]
fn the_densest_part_is_read() {
    const ROWS: usize = 1 << 17;
    let folder = Folder::new("dense");
    let path = folder.0.join("a.parquet");
    let record = Record {
        time: START,
        event: Event::Loop { cpu_ns: 1 },
    };
    let mut writer = Writer::create(&path).expect("a folder");
    for _ in 0..ROWS {
        writer.add(&record).expect("written");
    }
    assert_eq!(writer.finish().expect("finished"), ROWS as u64);
    let length = fs::metadata(path.join("000001.parquet"))
        .expect("a part")
        .len();
    println!("{ROWS} rows in {length} bytes");
    let mut count = 0;
    for read in read(&path).expect("a recording") {
        assert_eq!(read.expect("whole"), record);
        count += 1;
    }
    assert_eq!(count, ROWS);
}
