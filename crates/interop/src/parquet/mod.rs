//! Exports measurements as a Parquet file for data frames and databases: the columns of `measurements.csv`, with types.

pub mod dataset;

use std::sync::Arc;

use ::bytes::Bytes;
use ::parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use ::parquet::schema::parser::parse_message_type;

use iotax_analysis::Judgement;
use iotax_model::Run;
use iotax_report::mark::{Mark, MarkPosition};
use iotax_report::table::{CellValue, ColumnType, DataTable};
use iotax_report::tables;

/// Text in the `created_by` field of the file.
const AUTHOR: &str = "iotax, a row for each measurement";

pub(super) const MARK: Mark = mark(AUTHOR);

/// Returns the mark of a Parquet file with this text in its `created_by` field.
const fn mark(author: &'static str) -> Mark {
    Mark { format: "parquet", position: MarkPosition::Author(author, created_by) }
}

/// Reads the `created_by` field of a Parquet file; `None` if the contents are no Parquet file.
fn created_by(contents: &[u8]) -> Option<String> {
    let file = SerializedFileReader::new(Bytes::copy_from_slice(contents)).ok()?;
    file.metadata().file_metadata().created_by().map(str::to_owned)
}

/// Builds a Parquet file with one row per measurement of `runs`, in order. Unknown values are null, points in time are UTC time stamps in
/// milliseconds, counts are 64-bit integers.
#[must_use]
pub fn measurements(runs: &[(Run, Judgement)]) -> Vec<u8> {
    written(AUTHOR, &tables::measurements(runs))
}

/// Encodes a table as a Parquet file with this `created_by` field.
fn written(author: &str, table: &DataTable) -> Vec<u8> {
    let mut file = Vec::new();
    write(author, table, &mut file)
        .expect("memory takes everything, and every row has a value for each column");
    file
}

fn write(author: &str, table: &DataTable, file: &mut Vec<u8>) -> Result<(), ParquetError> {
    let schema = Arc::new(parse_message_type(&schema(&table.columns))?);
    let properties = WriterProperties::builder().set_created_by(author.to_owned()).build();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    let mut columns = table.columns.iter().enumerate();
    while let Some(mut column) = group.next_column()? {
        let (at, (_, column_type)) = columns.next().expect("the schema has the same columns");
        let values: Vec<&CellValue> = table.rows.iter().map(|row| &row[at]).collect();
        match column_type {
            ColumnType::Text => put::<ByteArrayType>(&mut column, &values, text)?,
            ColumnType::Whole | ColumnType::Instant => put::<Int64Type>(&mut column, &values, whole)?,
            ColumnType::Number => put::<DoubleType>(&mut column, &values, number)?,
            ColumnType::Flag => put::<BoolType>(&mut column, &values, flag)?,
        }
        column.close()?;
    }
    group.close()?;
    writer.close()?;
    Ok(())
}

/// Returns the columns in Parquet's schema language.
fn schema(columns: &[(String, ColumnType)]) -> String {
    let column = |(name, column_type): &(String, ColumnType)| {
        let (physical, logical) = match column_type {
            ColumnType::Text => ("binary", " (STRING)"),
            ColumnType::Whole => ("int64", ""),
            ColumnType::Instant => ("int64", " (TIMESTAMP(MILLIS,true))"),
            ColumnType::Number => ("double", ""),
            ColumnType::Flag => ("boolean", ""),
        };
        format!("optional {physical} {name}{logical};")
    };
    format!("message measurements {{ {} }}", columns.iter().map(column).collect::<String>())
}

/// Writes a column: which rows have a value, and the known values.
fn put<T: DataType>(
    column: &mut SerializedColumnWriter<'_>,
    values: &[&CellValue],
    known: fn(&CellValue) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let levels: Vec<i16> = values.iter().map(|value| i16::from(known(value).is_some())).collect();
    let values: Vec<T::T> = values.iter().filter_map(|value| known(value)).collect();
    column.typed::<T>().write_batch(&values, Some(&levels), None)?;
    Ok(())
}

fn text(value: &CellValue) -> Option<ByteArray> {
    if let CellValue::Text(text) = value { Some(text.as_str().into()) } else { None }
}

/// Converts a count or an instant to a signed integer; `None` for other values, or from 2^63.
fn whole(value: &CellValue) -> Option<i64> {
    if let CellValue::Whole(value) | CellValue::Instant(value) = value {
        i64::try_from(*value).ok()
    } else {
        None
    }
}

fn number(value: &CellValue) -> Option<f64> {
    if let CellValue::Number(value) = value { Some(*value) } else { None }
}

fn flag(value: &CellValue) -> Option<bool> {
    if let CellValue::Flag(value) = value { Some(*value) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_parquet_file_has_no_author() {
        for other in [&b"PAR1 iotax PAR1"[..], b"PAR1\xff\xff\xff\x7fPAR1", b"", b"iotax"] {
            assert_eq!(created_by(other), None);
        }
        let table = DataTable { columns: vec![("rate".into(), ColumnType::Number)], rows: Vec::new() };
        let file = written("iotax, a table", &table);
        assert!(mark("iotax, a table").stands_in(&file) && !MARK.stands_in(&file));
    }
}
