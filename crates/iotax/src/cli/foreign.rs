//! Runs in the formats of other tools.

use std::path::{Path, PathBuf};

use anyhow::Context;
use iotax_model::exit::Exit;
use iotax_model::workload::WordError;
use iotax_results::exchange::export::{Document, FORMATS, Format};
use iotax_results::judge::Judgement;
use iotax_results::store::Run;

use super::say::{print_text, say};
use super::{Failure, OrExit, output, sheets, usage};

/// What fio prints when it is not told how.
const DEFAULT: &str = "normal";

/// Where a run goes in formats of other tools, under fio's names.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct Foreign {
    /// Print the results as fio or vdbench does: json, json+, terse, normal, vdbench; several with commas between them. Stdout
    /// then carries nothing else
    #[arg(long, alias = "output_format", value_name = "FORMAT", value_delimiter = ',', value_parser = named)]
    output_format: Vec<&'static Format>,
    /// Write that to a file instead [default format: normal]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The form of the classic that a suite follows, and where it goes; `-` is stdout.
    #[arg(skip)]
    classic: Option<(&'static Format, PathBuf)>,
}

fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// A value of `--output-format`.
fn named(text: &str) -> Result<&'static Format, WordError> {
    let names: Vec<&str> = FORMATS.iter().filter_map(|format| format.output_format).collect();
    FORMATS
        .iter()
        .find(|format| format.output_format == Some(text))
        .ok_or_else(|| WordError::new("output format", text, &names))
}

/// A value of `iotax export --format`.
pub(super) fn exported(text: &str) -> Result<&'static Format, WordError> {
    let names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
    FORMATS.iter().find(|format| format.name == text).ok_or_else(|| WordError::new("format", text, &names))
}

impl Foreign {
    /// With the form of a suite's classic, by its name in the table.
    pub(super) fn with(self, classic: Option<(&str, PathBuf)>) -> Result<Self, WordError> {
        let classic = classic.map(|(name, path)| Ok((exported(name)?, path))).transpose()?;
        Ok(Self { classic, ..self })
    }

    /// The flags whose texts go to stdout.
    pub(super) fn on_stdout(&self) -> Vec<&'static str> {
        let printed = (!self.output_format.is_empty() && self.output.is_none()).then_some("--output-format");
        let classic = self.classic.as_ref().filter(|(_, path)| is_stdout(path));
        printed.into_iter().chain(classic.map(|(format, _)| format.name)).collect()
    }

    /// The files that it goes to.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        let classic = self.classic.as_ref().map(|(_, path)| path.as_path()).filter(|path| !is_stdout(path));
        self.output.as_deref().into_iter().chain(classic)
    }

    /// Writes the run where it was asked for, if it was: in the table's order, whatever the order asked for.
    pub(super) fn write(&self, judged: &(Run, Judgement)) -> Result<(), Failure> {
        let mut text = String::new();
        for format in FORMATS.iter().filter(|format| self.wants(format)) {
            match document(format, judged)? {
                Document::Text(part) => text.push_str(&part),
                Document::Bytes(_) | Document::Sheets(_) => {
                    return Err(usage(format!("{} is not one text", format.name)));
                }
            }
        }
        match &self.output {
            Some(path) => output::write(path, &text)?,
            None => print_text(&text),
        }
        let Some((format, path)) = &self.classic else { return Ok(()) };
        export(format, judged, Some(path.as_path()).filter(|path| !is_stdout(path)))
    }

    fn wants(&self, format: &Format) -> bool {
        match self.output_format.as_slice() {
            [] => self.output.is_some() && format.output_format == Some(DEFAULT),
            wanted => wanted.iter().any(|wanted| wanted.name == format.name),
        }
    }
}

/// A run in a format.
fn document(format: &Format, judged: &(Run, Judgement)) -> Result<Document, Failure> {
    (format.write)(judged)
        .with_context(|| format!("run {} cannot be written as {}", judged.0.id, format.name))
        .or_exit(Exit::Usage)
}

/// Writes a run in one format to a file, a directory if the format is several files, or stdout.
pub(super) fn export(
    format: &Format,
    judged: &(Run, Judgement),
    place: Option<&Path>,
) -> Result<(), Failure> {
    match (document(format, judged)?, place) {
        (Document::Text(text), None) => print_text(&text),
        (Document::Text(text), Some(path)) => {
            output::write(path, &text)?;
            say!("{}: {}", format.name, path.display());
        }
        (Document::Bytes(bytes), Some(path)) => {
            output::write(path, &bytes)?;
            say!("{}: {}", format.name, path.display());
        }
        (Document::Bytes(_), None) => {
            return Err(usage(format!(
                "--format {} is no text; name a file for it with --output FILE",
                format.name
            )));
        }
        (Document::Sheets(all), Some(dir)) => sheets::write(dir, &all)?,
        (Document::Sheets(_), None) => {
            return Err(usage(format!(
                "--format {} makes several files; name a directory for them with --output DIR",
                format.name
            )));
        }
    }
    Ok(())
}
