//! Output of runs in the formats of other tools.

use std::path::{Path, PathBuf};

use anyhow::Context;
use iotax_analysis::Judgement;
use iotax_interop::export::{Document, ExportFormat, FORMATS};
use iotax_model::Run;
use iotax_model::exit::Exit;
use iotax_model::words::WordError;
use iotax_report::mark::{self, Mark};

use super::destination::Destination;
use super::known_words::known_words;
use super::say::note;
use super::{Failure, OrExit, csv_dir, usage};

/// Placeholder for the mark of a file with several formats. Such a file has no mark, because only its first format could be recognised.
const SEVERAL: Mark = Mark { format: "a text of several formats", position: mark::MarkPosition::Nowhere };

/// The name of stdout as a destination.
const STDOUT: &str = "-";

/// fio's default format.
const DEFAULT: &str = "normal";

/// Options for results in the formats of other tools, with fio's names.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct FormatArgs {
    /// Print the results like fio or vdbench: json, json+, terse, normal, vdbench; separate several by commas. Without --output, stdout
    /// then carries nothing else
    #[arg(long, alias = "output_format", value_name = "FORMAT", value_delimiter = ',', value_parser = known_words(named, names()))]
    output_format: Vec<&'static ExportFormat>,
    /// Write the --output-format results to this file [default format: normal]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The output format of the suite's classic benchmark, and its destination; `-` is stdout.
    #[arg(skip)]
    classic: Option<(&'static ExportFormat, PathBuf)>,
}

/// Returns the values of `--output-format`.
fn names() -> Vec<&'static str> {
    FORMATS.iter().filter_map(|format| format.output_format).collect()
}

fn named(text: &str) -> Result<&'static ExportFormat, WordError> {
    FORMATS
        .iter()
        .find(|format| format.output_format == Some(text))
        .ok_or_else(|| WordError::new("output format", text, &names()))
}

/// Finds an output format by its name in `iotax export --format`.
pub(super) fn exported(text: &str) -> Result<&'static ExportFormat, WordError> {
    let names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
    FORMATS.iter().find(|format| format.name == text).ok_or_else(|| WordError::new("format", text, &names))
}

impl FormatArgs {
    /// Adds the output format of the classic benchmark behind a suite, by its name in `FORMATS`, with its destination. Fails for an unknown
    /// name.
    pub(super) fn with(self, classic: Option<(&str, PathBuf)>) -> Result<Self, WordError> {
        let classic = classic.map(|(name, path)| Ok((exported(name)?, path))).transpose()?;
        Ok(Self { classic, ..self })
    }

    /// Checks the destinations of all formats before anything is measured.
    pub(super) fn open(&self) -> Result<FormatDestinations, Failure> {
        let formats: Vec<&'static ExportFormat> =
            FORMATS.iter().filter(|format| self.wants(format)).collect();
        let mark = match formats.as_slice() {
            [format] => format.mark.clone(),
            _ => SEVERAL,
        };
        let (flag, destination) = match &self.output {
            Some(path) => ("--output", path.as_path()),
            None => ("--output-format", Path::new(STDOUT)),
        };
        let texts = (!formats.is_empty()).then(|| Destination::open(destination, mark)).transpose()?;
        let classic = self
            .classic
            .as_ref()
            .map(|(format, path)| Ok((*format, Destination::open(path, format.mark.clone())?)));
        Ok(FormatDestinations { formats, flag, texts, classic: classic.transpose()? })
    }

    fn wants(&self, format: &ExportFormat) -> bool {
        match self.output_format.as_slice() {
            [] => self.output.is_some() && format.output_format == Some(DEFAULT),
            wanted => wanted.iter().any(|wanted| wanted.name == format.name),
        }
    }
}

/// The destinations of a run in the formats of other tools.
#[derive(Debug)]
pub(super) struct FormatDestinations {
    /// The requested formats, in the order of `FORMATS`.
    formats: Vec<&'static ExportFormat>,
    /// The flag that named the destination of `texts`.
    flag: &'static str,
    texts: Option<Destination>,
    classic: Option<(&'static ExportFormat, Destination)>,
}

impl FormatDestinations {
    /// Returns each destination with the flag or the format that it belongs to.
    pub(super) fn all(&self) -> impl Iterator<Item = (&'static str, &Destination)> {
        let texts = self.texts.as_ref().map(|destination| (self.flag, destination));
        texts.into_iter().chain(self.classic.as_ref().map(|(format, destination)| (format.name, destination)))
    }

    /// Writes the run in each requested format.
    pub(super) fn write(&self, judged: &(Run, Judgement)) -> Result<(), Failure> {
        let mut text = String::new();
        for format in &self.formats {
            match document(format, judged)? {
                Document::Text(part) => text.push_str(&part),
                Document::Bytes(_) | Document::Tables(_) => {
                    return Err(usage(format!("{} is not one text", format.name)));
                }
            }
        }
        if let Some(destination) = &self.texts {
            destination.write(text.as_bytes())?;
        }
        let Some((format, destination)) = &self.classic else { return Ok(()) };
        match document(format, judged)? {
            Document::Text(text) => put(format, destination, text.as_bytes()),
            Document::Bytes(bytes) => put(format, destination, &bytes),
            Document::Tables(_) => Err(usage(format!("{} is not one text", format.name))),
        }
    }
}

fn document(format: &ExportFormat, judged: &(Run, Judgement)) -> Result<Document, Failure> {
    (format.write)(judged)
        .with_context(|| format!("run {} cannot be written as {}", judged.0.id, format.name))
        .or_exit(Exit::Usage)
}

/// Writes a run in one format to a file, to a directory if the format has several files, or to stdout.
pub(super) fn export(
    format: &ExportFormat,
    judged: &(Run, Judgement),
    destination: Option<&Path>,
) -> Result<(), Failure> {
    let destination = destination.unwrap_or(Path::new(STDOUT));
    let contents = match document(format, judged)? {
        Document::Text(text) => text.into_bytes(),
        Document::Bytes(bytes) => bytes,
        Document::Tables(_) if destination == Path::new(STDOUT) => {
            return Err(usage(format!(
                "--format {} makes several files; name a directory for them with --output DIR",
                format.name
            )));
        }
        Document::Tables(all) => return csv_dir::write(destination, &all),
    };
    let destination = Destination::open(destination, format.mark.clone())?;
    if destination.is_stdout() && std::str::from_utf8(&contents).is_err() {
        return Err(usage(format!(
            "--format {} is no text; name a file for it with --output FILE",
            format.name
        )));
    }
    put(format, &destination, &contents)
}

/// Writes a document to its destination and reports the file's name.
fn put(format: &ExportFormat, destination: &Destination, contents: &[u8]) -> Result<(), Failure> {
    destination.write(contents)?;
    if !destination.is_stdout() {
        note!("{}: {}", format.name, destination.name().display());
    }
    Ok(())
}
