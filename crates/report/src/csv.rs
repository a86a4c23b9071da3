//! Writes CSV tables for spreadsheets and scripts: one header line, units in column names, empty fields for unknown values.

use iotax_analysis::Judgement;
use iotax_analysis::compare::{Account, History};
use iotax_analysis::time::utc;
use iotax_model::Run;

use crate::mark::{Mark, MarkPosition};
use crate::table::{CellValue, DataTable};
use crate::tables;

/// A CSV file to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsvTable {
    /// The file's name, such as `measurements.csv`.
    pub name: &'static str,
    /// The header line, which also lets iotax recognise a file that it wrote.
    pub header: String,
    /// The contents of the whole file, including the header line.
    pub text: String,
}

impl CsvTable {
    /// Returns the mark that identifies a CSV file as iotax's own, so that it may be replaced: the header line, which differs between files.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { format: self.name, position: MarkPosition::Start(format!("{}\n", self.header).into()) }
    }
}

/// Builds the CSV files of these runs; a file without rows has only its header.
#[must_use]
pub fn tables(runs: &[(Run, Judgement)]) -> Vec<CsvTable> {
    vec![
        csv_table("measurements.csv", tables::measurements(runs)),
        csv_table("comparisons.csv", tables::comparisons(runs)),
        csv_table("cells.csv", tables::cells(runs)),
        csv_table("samples.csv", tables::samples(runs)),
        csv_table("disks.csv", tables::disks(runs)),
        csv_table("nics.csv", tables::nics(runs)),
        csv_table("streams.csv", tables::streams(runs)),
        csv_table("curves.csv", tables::curves(runs)),
        csv_table("answers.csv", tables::answers(runs)),
    ]
}

/// Builds the CSV file of a history, with one row per run, target, workload and metric.
#[must_use]
pub fn history(accounts: &[Account], history: &History) -> CsvTable {
    csv_table("history.csv", tables::history(accounts, history))
}

/// Formats a table as CSV. Fields with a comma or a quote are quoted (RFC 4180).
fn csv_table(name: &'static str, DataTable { columns, rows }: DataTable) -> CsvTable {
    let header: Vec<String> = columns.into_iter().map(|(name, _)| name).collect();
    let mut writer = csv::Writer::from_writer(Vec::new());
    let written = writer
        .write_record(&header)
        .and_then(|()| rows.into_iter().try_for_each(|row| writer.write_record(row.into_iter().map(field))))
        .map_err(|error| error.to_string())
        .and_then(|()| writer.into_inner().map_err(|error| error.to_string()));
    let text = written.expect("memory takes everything, and every row has a field for each name");
    CsvTable { name, header: header.join(","), text: String::from_utf8(text).expect("made of strings") }
}

fn field(value: CellValue) -> String {
    match value {
        CellValue::Unknown => String::new(),
        CellValue::Text(text) => text,
        CellValue::Whole(value) => value.to_string(),
        CellValue::Number(value) => value.to_string(),
        CellValue::Flag(value) => value.to_string(),
        CellValue::Instant(ms) => utc(ms),
    }
}
