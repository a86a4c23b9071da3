//! Reads and writes iotax's trace format: Parquet with zstd, one row per I/O, which databases and data frames can read.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ::bytes::Bytes;
use ::parquet::basic::{Compression, Encoding, ZstdLevel};
use ::parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use ::parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::{EnabledStatistics, WriterProperties};
use ::parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::parser::parse_message_type;
use ::parquet::schema::types::ColumnPath;
use iotax_model::trace::{Events, TracedIo, TracedOperation};

/// Text in the `created_by` field of the file.
const AUTHOR: &str = "iotax, a row for each I/O";

/// Number of rows in a row group, which is held in memory while it is written.
const GROUP: usize = 1 << 17;
/// Number of rows that are read at once.
const BATCH: usize = 1 << 13;

/// Columns of the file. Times are relative to the start of the trace.
const SCHEMA: &str = "message trace {
    required int64 at_ns;
    optional int64 latency_ns;
    required binary operation (STRING);
    required int64 offset;
    required int64 length;
    required boolean fua;
    optional int32 process;
    optional int32 queue;
}";

const NAMES: [&str; 8] = ["at_ns", "latency_ns", "operation", "offset", "length", "fua", "process", "queue"];

/// Facts about a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceFacts {
    /// Device that was recorded, or name of the trace that was converted.
    pub source: Option<String>,
    /// Start time in milliseconds since 1970-01-01 UTC.
    pub began_at_ms: Option<u64>,
    /// Length of the recording in nanoseconds, including idle time at its ends.
    pub recorded_ns: Option<u64>,
    /// Size of the device in bytes.
    pub size: Option<u64>,
    /// Number of events that the kernel dropped because its buffers were full.
    pub lost: Option<u64>,
}

impl TraceFacts {
    fn pairs(&self) -> Vec<KeyValue> {
        let number = |key: &str, value: Option<u64>| {
            value.map(|value| KeyValue::new(key.to_owned(), value.to_string()))
        };
        [
            self.source.clone().map(|source| KeyValue::new("source".to_owned(), source)),
            number("began_at_ms", self.began_at_ms),
            number("recorded_ns", self.recorded_ns),
            number("size", self.size),
            number("lost", self.lost),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn of(pairs: Option<&Vec<KeyValue>>) -> Self {
        let text = |key: &str| pairs?.iter().find(|pair| pair.key == key)?.value.clone();
        let number = |key: &str| text(key)?.parse().ok();
        Self {
            source: text("source"),
            began_at_ms: number("began_at_ms"),
            recorded_ns: number("recorded_ns"),
            size: number("size"),
            lost: number("lost"),
        }
    }
}

/// Writer of a trace, one row group at a time.
pub struct TraceWriter<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    rows: Vec<TracedIo>,
    written: u64,
}

impl<W: Write + Send> TraceWriter<W> {
    /// Creates a writer and starts the file.
    ///
    /// # Errors
    /// Writing to the destination fails.
    pub fn new(to: W) -> Result<Self, String> {
        let schema = parse_message_type(SCHEMA).map_err(|error| error.to_string())?;
        let mut properties = WriterProperties::builder()
            .set_created_by(AUTHOR.to_owned())
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_statistics_enabled(EnabledStatistics::Chunk);
        for name in ["at_ns", "latency_ns", "offset", "length"] {
            let column = ColumnPath::from(name);
            properties = properties
                .set_column_dictionary_enabled(column.clone(), name == "length")
                .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
        }
        let writer = SerializedFileWriter::new(to, Arc::new(schema), Arc::new(properties.build()));
        Ok(Self {
            writer: writer.map_err(|error| error.to_string())?,
            rows: Vec::with_capacity(GROUP),
            written: 0,
        })
    }

    /// Adds an I/O to the trace.
    ///
    /// # Errors
    /// Writing to the destination fails, or a number is out of its column's range.
    pub fn add(&mut self, event: TracedIo) -> Result<(), String> {
        let known = [Some(event.at_ns), event.latency_ns, Some(event.offset), Some(event.length)];
        if let Some(value) = known.into_iter().flatten().find(|value| i64::try_from(*value).is_err()) {
            let number = self.written + self.rows.len() as u64 + 1;
            return Err(format!("I/O {number}: {value} is beyond 2^63, which Parquet has no room for"));
        }
        self.rows.push(event);
        if self.rows.len() == GROUP { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), String> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let group = self.writer.next_row_group().and_then(|group| write_group(group, &self.rows));
        self.written += self.rows.len() as u64;
        self.rows.clear();
        group.map_err(|error| error.to_string())
    }

    /// Ends the file with the facts about the recording. Returns the destination and the number of I/Os.
    ///
    /// # Errors
    /// Writing to the destination fails.
    pub fn finish(mut self, facts: &TraceFacts) -> Result<(W, u64), String> {
        self.flush()?;
        facts.pairs().into_iter().for_each(|pair| self.writer.append_key_value_metadata(pair));
        let destination = self.writer.into_inner().map_err(|error| error.to_string())?;
        Ok((destination, self.written))
    }
}

fn write_group<W: Write + Send>(
    mut group: SerializedRowGroupWriter<'_, W>,
    rows: &[TracedIo],
) -> Result<(), ParquetError> {
    put::<Int64Type, W>(&mut group, false, rows, |row| Some(row.at_ns.cast_signed()))?;
    put::<Int64Type, W>(&mut group, true, rows, |row| row.latency_ns.map(u64::cast_signed))?;
    put::<ByteArrayType, W>(&mut group, false, rows, |row| {
        Some(ByteArray::from(Bytes::from_static(row.operation.word().as_bytes())))
    })?;
    put::<Int64Type, W>(&mut group, false, rows, |row| Some(row.offset.cast_signed()))?;
    put::<Int64Type, W>(&mut group, false, rows, |row| Some(row.length.cast_signed()))?;
    put::<BoolType, W>(&mut group, false, rows, |row| Some(row.fua))?;
    put::<Int32Type, W>(&mut group, true, rows, |row| row.process.map(u32::cast_signed))?;
    put::<Int32Type, W>(&mut group, true, rows, |row| row.queue.map(u32::cast_signed))?;
    group.close().map(drop)
}

fn put<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    optional: bool,
    rows: &[TracedIo],
    value: impl Fn(&TracedIo) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let mut column =
        group.next_column()?.ok_or_else(|| ParquetError::General("the schema has fewer columns".into()))?;
    let values: Vec<T::T> = rows.iter().filter_map(&value).collect();
    let levels: Option<Vec<i16>> =
        optional.then(|| rows.iter().map(|row| i16::from(value(row).is_some())).collect());
    column.typed::<T>().write_batch(&values, levels.as_deref(), None)?;
    column.close()
}

/// Opens a Parquet trace. Returns the facts about the recording, and the I/Os. A column of another type is found when the first I/O is
/// read.
///
/// # Errors
/// The file is not Parquet, or a column is missing.
pub(super) fn open<R: ChunkReader + 'static>(source: R) -> Result<(TraceFacts, Events), String> {
    let opened = guarded(|| SerializedFileReader::new(source).map_err(|error| error.to_string()))?;
    let metadata = opened.metadata().file_metadata();
    let facts = TraceFacts::of(metadata.key_value_metadata());
    let schema = metadata.schema_descr();
    let column_index = |name: &str| {
        let found = (0..schema.num_columns())
            .find(|column_index| schema.column(*column_index).path().string() == name);
        found.ok_or_else(|| format!("it has no column {name}; accepted: the columns {}", NAMES.join(", ")))
    };
    let column_indices = NAMES.map(column_index).into_iter().collect::<Result<Vec<usize>, String>>()?;
    let mut rows = Rows {
        file: opened,
        column_indices,
        group: 0,
        columns: None,
        declared: 0,
        batch: Vec::new().into_iter(),
        read: 0,
        is_over: false,
    };
    Ok((facts, Box::new(std::iter::from_fn(move || rows.next()))))
}

/// Converts panics of the Parquet library to errors, so that a damaged file does not end the program.
fn guarded<T>(read: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Err("the file is damaged".into()))
}

/// Reader of a file's rows in order.
struct Rows<R: ChunkReader + 'static> {
    file: SerializedFileReader<R>,
    column_indices: Vec<usize>,
    /// Index of the row group to be read next.
    group: usize,
    columns: Option<Columns>,
    /// Rows of this group and of those before it, as the file's footer has them.
    declared: u64,
    batch: std::vec::IntoIter<TracedIo>,
    read: u64,
    is_over: bool,
}

/// Readers for the columns of a row group.
struct Columns {
    at: ColumnReaderImpl<Int64Type>,
    latency: ColumnReaderImpl<Int64Type>,
    operation: ColumnReaderImpl<ByteArrayType>,
    offset: ColumnReaderImpl<Int64Type>,
    length: ColumnReaderImpl<Int64Type>,
    fua: ColumnReaderImpl<BoolType>,
    process: ColumnReaderImpl<Int32Type>,
    queue: ColumnReaderImpl<Int32Type>,
}

impl<R: ChunkReader + 'static> Rows<R> {
    fn next(&mut self) -> Option<Result<TracedIo, String>> {
        loop {
            if let Some(event) = self.batch.next() {
                self.read += 1;
                return Some(Ok(event));
            }
            if self.is_over {
                return None;
            }
            match guarded(|| self.more()) {
                Ok(true) => {}
                Ok(false) => self.is_over = true,
                Err(reason) => {
                    self.is_over = true;
                    return Some(Err(format!("row {}: {reason}", self.read + 1)));
                }
            }
        }
    }

    /// Reads the next rows into memory. Returns false at the end of the file.
    fn more(&mut self) -> Result<bool, String> {
        if self.columns.is_none() {
            if self.group == self.file.num_row_groups() {
                return Ok(false);
            }
            self.columns = Some(self.open_group()?);
            let rows = self.file.metadata().row_group(self.group).num_rows();
            self.declared = self.declared.saturating_add(u64::try_from(rows).unwrap_or(0));
            self.group += 1;
        }
        let Some(columns) = &mut self.columns else { return Ok(false) };
        let rows = columns.read()?;
        if rows.is_empty() {
            self.columns = None;
            if self.read != self.declared {
                return Err(format!(
                    "the file declares {} rows up to here and has {}",
                    self.declared, self.read
                ));
            }
        }
        self.batch = rows.into_iter();
        Ok(true)
    }

    fn open_group(&self) -> Result<Columns, String> {
        let group = self.file.get_row_group(self.group).map_err(|error| error.to_string())?;
        let column = |index: usize| {
            group.get_column_reader(self.column_indices[index]).map_err(|error| error.to_string())
        };
        let wrong = |index: usize| format!("column {} has another type than it should", NAMES[index]);
        let wide = |index| match column(index)? {
            ColumnReader::Int64ColumnReader(reader) => Ok(reader),
            _ => Err(wrong(index)),
        };
        let small = |index| match column(index)? {
            ColumnReader::Int32ColumnReader(reader) => Ok(reader),
            _ => Err(wrong(index)),
        };
        Ok(Columns {
            at: wide(0)?,
            latency: wide(1)?,
            operation: match column(2)? {
                ColumnReader::ByteArrayColumnReader(reader) => reader,
                _ => return Err(wrong(2)),
            },
            offset: wide(3)?,
            length: wide(4)?,
            fua: match column(5)? {
                ColumnReader::BoolColumnReader(reader) => reader,
                _ => return Err(wrong(5)),
            },
            process: small(6)?,
            queue: small(7)?,
        })
    }
}

impl Columns {
    fn read(&mut self) -> Result<Vec<TracedIo>, String> {
        let at = required("at_ns", column(&mut self.at)?)?;
        let rows = at.len();
        let latency = column(&mut self.latency)?;
        let operation = required("operation", column(&mut self.operation)?)?;
        let offset = required("offset", column(&mut self.offset)?)?;
        let length = required("length", column(&mut self.length)?)?;
        let fua = required("fua", column(&mut self.fua)?)?;
        let (process, queue) = (column(&mut self.process)?, column(&mut self.queue)?);
        let lengths = [
            latency.len(),
            operation.len(),
            offset.len(),
            length.len(),
            fua.len(),
            process.len(),
            queue.len(),
        ];
        if lengths.iter().any(|length| *length != rows) {
            return Err("its columns are not of one length".into());
        }
        let positive =
            |name: &str, value: i64| u64::try_from(value).map_err(|_| format!("{name} is {value}, below 0"));
        (0..rows)
            .map(|row| {
                let word = std::str::from_utf8(operation[row].data()).map_err(|_| "operation is not text")?;
                Ok(TracedIo {
                    at_ns: positive("at_ns", at[row])?,
                    latency_ns: latency[row].map(|value| positive("latency_ns", value)).transpose()?,
                    operation: word.parse::<TracedOperation>().map_err(|error| error.to_string())?,
                    offset: positive("offset", offset[row])?,
                    length: positive("length", length[row])?,
                    fua: fua[row],
                    process: process[row].map(i32::cast_unsigned),
                    queue: queue[row].map(i32::cast_unsigned),
                })
            })
            .collect()
    }
}

/// Reads the next values of a column; null becomes `None`.
fn column<T: DataType>(reader: &mut ColumnReaderImpl<T>) -> Result<Vec<Option<T::T>>, String> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    let (rows, ..) = reader
        .read_records(BATCH, Some(&mut levels), None, &mut values)
        .map_err(|error| error.to_string())?;
    // Without definition levels, no value is null.
    if levels.is_empty() {
        return Ok(values.into_iter().map(Some).collect());
    }
    let mut values = values.into_iter();
    let found: Vec<Option<T::T>> =
        levels.iter().map(|level| if *level > 0 { values.next() } else { None }).collect();
    if found.len() == rows { Ok(found) } else { Err("a column lies about its length".into()) }
}

fn required<T>(name: &str, values: Vec<Option<T>>) -> Result<Vec<T>, String> {
    values.into_iter().collect::<Option<_>>().ok_or_else(|| format!("{name} is missing in a row"))
}
