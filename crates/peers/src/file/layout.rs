//! Checks what the bytes of a part claim before the Parquet library decodes any of them.
//!
//! The library trusts a file: it recurses as deep as a schema is nested, allocates what a length
//! field claims, skips lists of a billion empty elements, and panics on many truncated pages. So
//! the footer and the page headers are parsed here, and only our writer's layout is accepted: one
//! row group, flat columns, no compression, no shared pages. The library decodes only the values
//! within pages.

use bytes::Bytes;
use parquet::basic::{Encoding, LogicalType, TimeUnit, Type as Physical};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::ParquetError;
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};
use std::ops::Range;

/// Maximum number of rows in a part. Bounds the writer's memory to 30 MB.
pub(super) const MAX_ROWS: usize = 1 << 17;

/// Maximum length of a text, in bytes. An address has fewer than 100.
pub(super) const MAX_TEXT: usize = 256;

/// Maximum size of a page, in bytes: a dictionary with a different text for each row.
pub(super) const MAX_PAGE: usize = MAX_ROWS * (4 + MAX_TEXT);

/// Maximum size of a part, in bytes. A row has at most two texts of its own, and less than 200
/// bytes of numbers and shared texts.
pub(super) const MAX_PART: u64 = 768 * MAX_ROWS as u64;

/// Maximum number of rows per byte of a part. Identical rows are densest: 131,072 of them take
/// 16,546 bytes, which is 8 rows per byte.
const MAX_ROWS_PER_BYTE: usize = 16;

/// Maximum size of a footer, in bytes. Our writer's have about 6,000.
const MAX_FOOTER: usize = 64 << 10;

/// Maximum size of a page header, in bytes. Our writer's have 40, with statistics a few hundred.
const MAX_PAGE_HEADER: usize = 4 << 10;

/// Maximum nesting depth of structures and lists. Our writer's files have 8 levels.
const MAX_DEPTH: u32 = 12;

/// The first and last bytes of every Parquet file.
const MAGIC: &[u8] = b"PAR1";

/// What is wrong with a part.
#[derive(Debug)]
pub(super) enum LayoutError {
    /// A fault outside of our columns.
    Other(&'static str),
    /// This column is missing.
    NoColumn(usize),
    /// This column has the wrong type.
    ColumnType(usize),
}

impl From<&'static str> for LayoutError {
    fn from(what: &'static str) -> Self {
        Self::Other(what)
    }
}

/// Where the rows of a part are.
pub(super) struct Layout {
    /// The number of rows.
    pub(super) rows: usize,
    /// For each of our columns, the range of its pages in the file, or `None` if it is missing.
    pub(super) columns: Vec<Option<Range<usize>>>,
}

impl Layout {
    /// Parses the footer of `part`. It must have all columns of `schema` that may not be null;
    /// columns that are not in `schema` are ignored.
    pub(super) fn of(part: &[u8], schema: &SchemaDescriptor) -> Result<Self, LayoutError> {
        const CUT: &str = "it does not begin and end like a Parquet file";
        const DAMAGED: &str = "its footer is damaged";
        let before = part.strip_prefix(MAGIC).ok_or(CUT)?;
        let before = before.strip_suffix(MAGIC).ok_or(CUT)?;
        let (before, length) = before.split_last_chunk().ok_or(CUT)?;
        let length = u32::from_le_bytes(*length) as usize;
        if length > MAX_FOOTER {
            return Err("its footer is longer than 64 KiB".into());
        }
        let begins = before.len().checked_sub(length);
        let (pages, mut footer) =
            before.split_at(begins.ok_or("its footer is longer than the file")?);
        let pages = MAGIC.len()..MAGIC.len() + pages.len();
        let footer = structure(&mut footer, MAX_DEPTH).ok_or(DAMAGED)?;

        let fields = footer.list(2).ok_or(DAMAGED)?;
        let (root, fields) = fields.split_first().ok_or(DAMAGED)?;
        // We do not use the root's child count, but other readers rely on it, so a wrong one is
        // rejected.
        let children = root
            .integer(5)
            .and_then(|count| usize::try_from(count).ok());
        if children != Some(fields.len()) || fields.iter().any(|field| field.get(5).is_some()) {
            return Err("its columns are nested".into());
        }
        let [group] = footer.list(4).ok_or(DAMAGED)? else {
            return Err("it does not have exactly one row group".into());
        };
        let rows = group.integer(3).and_then(|rows| usize::try_from(rows).ok());
        let rows = rows.ok_or(DAMAGED)?;
        if rows > MAX_ROWS || rows > part.len().saturating_mul(MAX_ROWS_PER_BYTE) {
            return Err("it claims more rows than a file of its size can have".into());
        }
        let chunks = group.list(1).ok_or(DAMAGED)?;
        if chunks.len() != fields.len() {
            return Err(DAMAGED.into());
        }

        let mut columns = Vec::new();
        for (place, column) in schema.columns().iter().enumerate() {
            let name = column.name().as_bytes();
            let found = fields.iter().position(|field| field.text(4) == Some(name));
            let Some(found) = found else {
                if column.max_def_level() == 0 {
                    return Err(LayoutError::NoColumn(place));
                }
                columns.push(None);
                continue;
            };
            if !is_type(&fields[found], column) {
                return Err(LayoutError::ColumnType(place));
            }
            columns.push(Some(chunk(&chunks[found], column, rows, &pages)?));
        }
        let mut taken: Vec<_> = columns.iter().flatten().collect();
        taken.retain(|range| !range.is_empty());
        taken.sort_by_key(|range| range.start);
        if taken.windows(2).any(|pair| pair[0].end > pair[1].start) {
            return Err("its columns share pages".into());
        }
        Ok(Self { rows, columns })
    }
}

/// Whether a field of a schema has the type of `column` and the same nullability.
fn is_type(field: &Value<'_>, column: &ColumnDescriptor) -> bool {
    let is_micros = match column.logical_type_ref() {
        Some(LogicalType::Timestamp(time)) if time.unit == TimeUnit::MICROS => {
            let unit = field.get(10).and_then(|logical| logical.get(8)?.get(2));
            unit.is_some_and(|unit| unit.get(2).is_some())
        }
        _ => true,
    };
    is_micros
        && field.integer(1) == Some(column.physical_type() as i64)
        && field.integer(3) == Some(i64::from(column.max_def_level()))
}

/// The range of a column's pages in the file, which must lie within `pages`.
fn chunk(
    chunk: &Value<'_>,
    column: &ColumnDescriptor,
    rows: usize,
    pages: &Range<usize>,
) -> Result<Range<usize>, &'static str> {
    const DAMAGED: &str = "a column in its footer is damaged";
    let chunk = chunk.get(3).ok_or(DAMAGED)?;
    let number = |field| usize::try_from(chunk.integer(field)?).ok();
    if chunk.integer(1) != Some(column.physical_type() as i64) {
        return Err(DAMAGED);
    }
    if chunk.integer(4) != Some(0) {
        return Err("a column is compressed");
    }
    if number(5) != Some(rows) {
        return Err("a column does not have as many rows as the file");
    }
    let length = number(7).ok_or(DAMAGED)?;
    // The dictionary comes before the data pages. A column without rows may have neither.
    let starts = [number(11), number(9)].into_iter().flatten();
    let start = match starts.filter(|start| *start > 0).min() {
        _ if length == 0 => pages.start,
        start => start.ok_or(DAMAGED)?,
    };
    match start.checked_add(length) {
        Some(end) if start >= pages.start && end <= pages.end => Ok(start..end),
        _ => Err("a column lies outside the file"),
    }
}

/// A value in Thrift's compact protocol, the encoding of footers and page headers.
enum Value<'b> {
    Integer(i64),
    Bytes(&'b [u8]),
    Double,
    List(Vec<Self>),
    /// Fields by number.
    Structure(Vec<(i64, Self)>),
}

impl<'b> Value<'b> {
    fn get(&self, number: i64) -> Option<&Self> {
        match self {
            Self::Structure(fields) => {
                let found = fields.iter().find(|(field, _)| *field == number);
                found.map(|(_, value)| value)
            }
            _ => None,
        }
    }

    fn integer(&self, number: i64) -> Option<i64> {
        match self.get(number)? {
            Self::Integer(value) => Some(*value),
            _ => None,
        }
    }

    fn text(&self, number: i64) -> Option<&'b [u8]> {
        match self.get(number)? {
            Self::Bytes(text) => Some(text),
            _ => None,
        }
    }

    fn list(&self, number: i64) -> Option<&[Self]> {
        match self.get(number)? {
            Self::List(values) => Some(values),
            _ => None,
        }
    }
}

/// Parses a structure at the front of `bytes`: `None` if it is truncated or nested deeper than
/// `depth`. Memory is proportional to the input, since each value takes at least one byte.
fn structure<'b>(bytes: &mut &'b [u8], depth: u32) -> Option<Value<'b>> {
    let mut fields = Vec::new();
    let mut last = 0_i64;
    loop {
        let head = byte(bytes)?;
        let kind = head & 0x0f;
        if kind == 0 {
            return Some(Value::Structure(fields));
        }
        last = match head >> 4 {
            0 => signed(bytes)?,
            step => last.checked_add(step.into())?,
        };
        let value = match kind {
            // The value of a boolean is in its type.
            1 | 2 => Value::Integer((kind == 1).into()),
            _ => value(bytes, kind, depth)?,
        };
        fields.push((last, value));
    }
}

/// Parses a value of this type at the front of `bytes`, except a structure's boolean field.
fn value<'b>(bytes: &mut &'b [u8], kind: u8, depth: u32) -> Option<Value<'b>> {
    Some(match kind {
        1..=3 => Value::Integer(byte(bytes)?.into()),
        4..=6 => Value::Integer(signed(bytes)?),
        7 => {
            take(bytes, 8)?;
            Value::Double
        }
        8 => {
            let length = number(bytes)?;
            Value::Bytes(take(bytes, length)?)
        }
        9 | 10 => {
            let depth = depth.checked_sub(1)?;
            let head = byte(bytes)?;
            let count = match head >> 4 {
                15 => number(bytes)?,
                count => count.into(),
            };
            // An element takes at least one byte: reject a count beyond the input.
            if count > bytes.len() as u64 {
                return None;
            }
            let elements = (0..count).map(|_| value(bytes, head & 0x0f, depth));
            Value::List(elements.collect::<Option<_>>()?)
        }
        12 => structure(bytes, depth.checked_sub(1)?)?,
        // Maps and the like do not occur in Parquet.
        _ => return None,
    })
}

fn take<'b>(bytes: &mut &'b [u8], length: u64) -> Option<&'b [u8]> {
    let (taken, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
    *bytes = rest;
    Some(taken)
}

fn byte(bytes: &mut &[u8]) -> Option<u8> {
    Some(take(bytes, 1)?[0])
}

/// Parses a LEB128 number: 7 bits in each byte, lowest first.
fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let next = byte(bytes)?;
        value |= u64::from(next & 0x7f) << shift;
        if next & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Parses a zigzag-encoded signed number: the sign is the lowest bit.
fn signed(bytes: &mut &[u8]) -> Option<i64> {
    let value = number(bytes)?;
    Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
}

/// The pages of a column. Each page is validated before the library decodes it, because the library
/// assumes that all claimed values are present.
pub(super) struct Pages {
    /// The pages not yet read.
    bytes: Bytes,
    /// Whether the column is nullable: then its pages begin with definition levels.
    levels: bool,
    physical: Physical,
    /// Whether a dictionary page was read.
    dictionary: bool,
}

const NOT_TAKEN: &str = "a page type or encoding that `peers record` does not write";
const TOO_SHORT: &str = "a page is shorter than it claims";

impl Pages {
    /// The pages in `bytes`, of the column that `column` describes.
    pub(super) fn new(bytes: Bytes, column: &ColumnDescriptor) -> Self {
        Self {
            bytes,
            levels: column.max_def_level() > 0,
            physical: column.physical_type(),
            dictionary: false,
        }
    }

    /// Reads the next page.
    fn take(&mut self) -> Result<Page, &'static str> {
        const DAMAGED: &str = "the header of a page is damaged";
        let begins = &self.bytes[..self.bytes.len().min(MAX_PAGE_HEADER)];
        let mut rest = begins;
        let header = structure(&mut rest, MAX_DEPTH).ok_or(DAMAGED)?;
        let header_length = begins.len() - rest.len();
        let length = header
            .integer(3)
            .and_then(|length| usize::try_from(length).ok());
        let length = length.ok_or(DAMAGED)?;
        if length > MAX_PAGE {
            return Err("a page is longer than this reader accepts");
        }
        if length > self.bytes.len() - header_length {
            return Err("a page is longer than its column");
        }
        let kind = header.integer(1);
        // Sizes before and after decompression must agree: nothing is compressed.
        let is_plain = header.integer(2) == header.integer(3);
        let header = header.get(if kind == Some(0) { 5 } else { 7 });
        let header = header.filter(|_| is_plain).ok_or(DAMAGED)?;
        let num_values = header
            .integer(1)
            .and_then(|count| u32::try_from(count).ok());
        let num_values = num_values.filter(|count| *count as usize <= MAX_ROWS);
        let num_values = num_values.ok_or(DAMAGED)?;
        let buf = self.bytes.slice(header_length..header_length + length);
        let page = match kind {
            Some(0) => self.data_page(buf, num_values, header)?,
            Some(2) => self.dictionary_page(buf, num_values)?,
            _ => return Err(NOT_TAKEN),
        };
        self.bytes = self.bytes.slice(header_length + length..);
        Ok(page)
    }

    fn dictionary_page(&mut self, buf: Bytes, num_values: u32) -> Result<Page, &'static str> {
        // The writer uses dictionaries for all texts and for nothing else.
        if self.physical != Physical::BYTE_ARRAY {
            return Err(NOT_TAKEN);
        }
        if texts(&buf) < num_values as usize {
            return Err("a dictionary has fewer entries than it claims");
        }
        self.dictionary = true;
        Ok(Page::DictionaryPage {
            buf,
            num_values,
            encoding: Encoding::PLAIN,
            is_sorted: false,
        })
    }

    fn data_page(
        &self,
        buf: Bytes,
        num_values: u32,
        header: &Value<'_>,
    ) -> Result<Page, &'static str> {
        const PLAIN: i64 = Encoding::PLAIN as i64;
        const DIFFERENCES: i64 = Encoding::DELTA_BINARY_PACKED as i64;
        const DICTIONARY: i64 = Encoding::RLE_DICTIONARY as i64;
        const RUNS: i64 = Encoding::RLE as i64;
        let values = match self.levels {
            false => &buf[..],
            true => {
                let (length, rest) = buf.split_first_chunk().ok_or(TOO_SHORT)?;
                let length = u32::from_le_bytes(*length) as usize;
                let (levels, values) = rest.split_at_checked(length).ok_or(TOO_SHORT)?;
                runs(levels, 1).ok_or(TOO_SHORT)?;
                values
            }
        };
        let encoding = match (header.integer(2), self.physical) {
            _ if header.integer(3) != Some(RUNS) => return Err(NOT_TAKEN),
            (Some(PLAIN), Physical::INT64 | Physical::BOOLEAN) => Encoding::PLAIN,
            (Some(DICTIONARY), Physical::BYTE_ARRAY) if self.dictionary => {
                if let Some((&width, numbers)) = values.split_first() {
                    runs(numbers, width).ok_or(TOO_SHORT)?;
                }
                Encoding::RLE_DICTIONARY
            }
            (Some(DIFFERENCES), Physical::INT64) => match differences(values).ok_or(TOO_SHORT)? {
                // All values are null. The library's delta decoder underflows on a count of 0; the
                // plain decoder does not.
                0 => Encoding::PLAIN,
                _ => Encoding::DELTA_BINARY_PACKED,
            },
            _ => return Err(NOT_TAKEN),
        };
        Ok(Page::DataPage {
            buf,
            num_values,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        })
    }
}

/// Number of complete length-prefixed texts.
fn texts(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while let Some((length, rest)) = bytes.split_first_chunk()
        && let Some(rest) = rest.get(u32::from_le_bytes(*length) as usize..)
    {
        bytes = rest;
        count += 1;
    }
    count
}

/// Validates RLE/bit-packed hybrid runs of `width`-bit numbers: `None` if they are truncated.
fn runs(mut bytes: &[u8], width: u8) -> Option<()> {
    if width > 32 {
        return None;
    }
    while !bytes.is_empty() {
        let run = number(&mut bytes)?;
        let length = match run & 1 {
            // Groups of 8 numbers. The last group may be cut after the numbers in use.
            1 => (run >> 1)
                .saturating_mul(u64::from(width))
                .min(bytes.len() as u64),
            // One number for the whole run.
            _ => u64::from(width.div_ceil(8)),
        };
        bytes = bytes.get(usize::try_from(length).ok()?..)?;
    }
    Some(())
}

/// Validates delta-encoded numbers: blocks of miniblocks, each with its own bit width. Returns how
/// many there are, or `None` if the data is truncated.
fn differences(mut bytes: &[u8]) -> Option<u64> {
    const MAX_BLOCK: u64 = 1 << 16;
    let block = number(&mut bytes)?;
    let parts = number(&mut bytes)?;
    let count = number(&mut bytes)?;
    number(&mut bytes)?;
    if block > MAX_BLOCK || parts == 0 || block % parts != 0 {
        return None;
    }
    let part = block / parts;
    let mut left = count.saturating_sub(1);
    while left > 0 {
        number(&mut bytes)?;
        let (widths, rest) = bytes.split_at_checked(parts as usize)?;
        bytes = rest;
        for width in widths {
            let values = part.min(left);
            let whole = part.saturating_mul(u64::from(*width)) / 8;
            let needed = (values * u64::from(*width)).div_ceil(8);
            if *width > 64 || needed > bytes.len() as u64 || part == 0 {
                return None;
            }
            bytes = &bytes[whole.min(bytes.len() as u64) as usize..];
            left -= values;
            if left == 0 {
                break;
            }
        }
    }
    Some(count)
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> parquet::errors::Result<Option<Page>> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        match self.take() {
            Ok(page) => Ok(Some(page)),
            Err(what) => Err(ParquetError::General(what.to_owned())),
        }
    }

    fn peek_next_page(&mut self) -> parquet::errors::Result<Option<PageMetadata>> {
        Err(skips_nothing())
    }

    fn skip_next_page(&mut self) -> parquet::errors::Result<()> {
        Err(skips_nothing())
    }
}

/// The library calls these only to skip rows, which we never do.
fn skips_nothing() -> ParquetError {
    ParquetError::General("every row is read".to_owned())
}

impl Iterator for Pages {
    type Item = parquet::errors::Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}
