//! Defines the export formats, each once: `iotax export` and `--output-format` follow from this table.

use crate::Unfit;
use crate::{bonnie, fio, iozone, parquet, prometheus, vdbench};
use iotax_analysis::Judgement;
use iotax_model::Run;
use iotax_report::csv;
use iotax_report::mark::{Mark, MarkPosition};

/// An exported run: a text, a binary file or several CSV files, depending on the format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Document {
    /// Content of a text file.
    Text(String),
    /// Content of a binary file.
    Bytes(Vec<u8>),
    /// Names and contents of several CSV files.
    Tables(Vec<csv::CsvTable>),
}

/// An export format: its names, and the function that writes a run.
#[derive(Debug, Clone)]
pub struct ExportFormat {
    /// Name of the format for `iotax export --format`.
    pub name: &'static str,
    /// Name of the format for `--output-format`, which for fio's formats is fio's name; `None` if not accepted there.
    pub output_format: Option<&'static str>,
    /// Description of the format in the help text.
    pub help: &'static str,
    /// Converts a run to the format; fails if the format cannot express it.
    pub write: fn(&(Run, Judgement)) -> Result<Document, Unfit>,
    /// Mark that identifies a file in this format as written by iotax. Each file of [`Document::Tables`] has another mark instead.
    pub mark: Mark,
}

/// All export formats. If several are printed as text, this is their order, as in fio.
pub const FORMATS: &[ExportFormat] = &[
    ExportFormat {
        name: "fio-terse",
        output_format: Some("terse"),
        help: "fio's line of figures, version 3",
        write: |(run, _)| fio::terse(run).map(Document::Text),
        mark: fio::TERSE_MARK,
    },
    ExportFormat {
        name: "fio-json",
        output_format: Some("json"),
        help: "fio's JSON",
        write: |(run, _)| fio::json(run).map(Document::Text),
        mark: fio::JSON_MARK,
    },
    ExportFormat {
        name: "fio-json+",
        output_format: Some("json+"),
        help: "fio's JSON with its histograms",
        write: |(run, _)| fio::json_plus(run).map(Document::Text),
        mark: fio::JSON_MARK,
    },
    ExportFormat {
        name: "fio-normal",
        output_format: Some("normal"),
        help: "what fio prints for people",
        write: |(run, _)| fio::normal(run).map(Document::Text),
        mark: Mark { format: "fio-normal", position: MarkPosition::Nowhere },
    },
    ExportFormat {
        name: "vdbench",
        output_format: Some("vdbench"),
        help: "vdbench's lines, one for each interval",
        write: |(run, _)| vdbench::text(run).map(Document::Text),
        mark: vdbench::MARK,
    },
    ExportFormat {
        name: "bonnie-csv",
        output_format: None,
        help: "bonnie++'s CSV, of a run of suite bonnie",
        write: |(run, _)| text_or_unfit(bonnie::csv(run, bonnie::Version::V1_98)),
        mark: bonnie::MARK,
    },
    ExportFormat {
        name: "iozone-excel",
        output_format: None,
        help: "the tables of iozone -R, of a run of suite records on one target",
        write: |(run, _)| text_or_unfit(iozone::excel(run)),
        mark: iozone::MARK,
    },
    ExportFormat {
        name: "prometheus",
        output_format: None,
        help: "every measurement in Prometheus' text format: gauges, and a summary of service times",
        write: |judged| Ok(Document::Text(prometheus::measurements(std::slice::from_ref(judged)))),
        mark: prometheus::MARK,
    },
    ExportFormat {
        name: "parquet",
        output_format: None,
        help: "the table of measurements for data frames, as a Parquet file",
        write: |judged| Ok(Document::Bytes(parquet::measurements(std::slice::from_ref(judged)))),
        mark: parquet::MARK,
    },
    ExportFormat {
        name: "csv",
        output_format: None,
        help: "tables of measurements, comparisons, cells, samples, disks, network interfaces and streams, as CSV files in a directory",
        write: |judged| Ok(Document::Tables(csv::tables(std::slice::from_ref(judged)))),
        mark: Mark { format: "csv", position: MarkPosition::Nowhere },
    },
];

/// Wraps a format's result: the text in a [`Document`], an error in [`Unfit`].
fn text_or_unfit<E: std::fmt::Display>(text: Result<String, E>) -> Result<Document, Unfit> {
    text.map(Document::Text).map_err(|why| Unfit(why.to_string()))
}
