//! Measurements as a Parquet file, for data frames and databases: the columns of `measurements.csv`, typed.

pub mod dataset;

use std::sync::Arc;

use ::parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use ::parquet::schema::parser::parse_message_type;

use iotax_analysis::Judgement;
use iotax_model::Run;
use iotax_report::mark::{Mark, MarkPosition};
use iotax_report::rows::{Kind, Value, columns, figures, measurements as rows};

/// The author that each file names.
const AUTHOR: &str = "iotax, a row for each measurement";

pub(super) const MARK: Mark = Mark { format: "parquet", place: MarkPosition::ParquetAuthor(AUTHOR) };

/// One row per measurement of these runs, in their order, as the bytes of a file. Unknown values are null. Times of day are
/// timestamps in milliseconds UTC, counts 64-bit integers.
#[must_use]
pub fn measurements(runs: &[(Run, Judgement)]) -> Vec<u8> {
    let rows: Vec<Vec<Value>> = runs.iter().flat_map(|(run, judgement)| rows(run, judgement)).collect();
    written(AUTHOR, &columns(figures(runs)), &rows)
}

/// A table as the bytes of a file.
fn written(author: &str, columns: &[(String, Kind)], rows: &[Vec<Value>]) -> Vec<u8> {
    let mut file = Vec::new();
    write(author, columns, rows, &mut file)
        .expect("memory takes everything, and every row has a value for each column");
    file
}

fn write(
    author: &str,
    names: &[(String, Kind)],
    rows: &[Vec<Value>],
    file: &mut Vec<u8>,
) -> Result<(), ParquetError> {
    let schema = Arc::new(parse_message_type(&schema(names))?);
    let properties = WriterProperties::builder().set_created_by(author.to_owned()).build();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    let mut columns = names.iter().enumerate();
    while let Some(mut column) = group.next_column()? {
        let (at, (_, kind)) = columns.next().expect("the schema has the same columns");
        let values: Vec<&Value> = rows.iter().map(|row| &row[at]).collect();
        match kind {
            Kind::Text => put::<ByteArrayType>(&mut column, &values, text)?,
            Kind::Whole | Kind::Instant => put::<Int64Type>(&mut column, &values, whole)?,
            Kind::Number => put::<DoubleType>(&mut column, &values, number)?,
            Kind::Flag => put::<BoolType>(&mut column, &values, flag)?,
        }
        column.close()?;
    }
    group.close()?;
    writer.close()?;
    Ok(())
}

/// The columns in Parquet's own words.
fn schema(names: &[(String, Kind)]) -> String {
    let column = |(name, kind): &(String, Kind)| {
        let (physical, logical) = match kind {
            Kind::Text => ("binary", " (STRING)"),
            Kind::Whole => ("int64", ""),
            Kind::Instant => ("int64", " (TIMESTAMP(MILLIS,true))"),
            Kind::Number => ("double", ""),
            Kind::Flag => ("boolean", ""),
        };
        format!("optional {physical} {name}{logical};")
    };
    format!("message measurements {{ {} }}", names.iter().map(column).collect::<String>())
}

/// Writes a column: the known values, and for each row true if it has one.
fn put<T: DataType>(
    column: &mut SerializedColumnWriter<'_>,
    values: &[&Value],
    known: fn(&Value) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let levels: Vec<i16> = values.iter().map(|value| i16::from(known(value).is_some())).collect();
    let values: Vec<T::T> = values.iter().filter_map(|value| known(value)).collect();
    column.typed::<T>().write_batch(&values, Some(&levels), None)?;
    Ok(())
}

fn text(value: &Value) -> Option<ByteArray> {
    if let Value::Text(text) = value { Some(text.as_str().into()) } else { None }
}

/// A count beyond 2^63 is not known to a reader.
fn whole(value: &Value) -> Option<i64> {
    if let Value::Whole(value) | Value::Instant(value) = value { i64::try_from(*value).ok() } else { None }
}

fn number(value: &Value) -> Option<f64> {
    if let Value::Number(value) = value { Some(*value) } else { None }
}

fn flag(value: &Value) -> Option<bool> {
    if let Value::Flag(value) = value { Some(*value) } else { None }
}
