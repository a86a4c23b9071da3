//! Runs in the formats of other tools.

use std::path::{Path, PathBuf};

use anyhow::Context;
use iotax_analysis::Judgement;
use iotax_analysis::store::Run;
use iotax_interop::export::{Document, FORMATS, Format};
use iotax_model::exit::Exit;
use iotax_model::words::WordError;
use iotax_report::mark::{self, Mark};

use super::destination::Destination;
use super::say::say;
use super::{Failure, OrExit, csv_dir, usage};

/// Of several formats in one text none begins where its mark would stand.
const SEVERAL: Mark = Mark { format: "a text of several formats", place: mark::Place::Nowhere };

/// Stdout, as a place.
const STDOUT: &str = "-";

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

    /// Looks at the places that the run goes to.
    pub(super) fn open(&self) -> Result<Opened, Failure> {
        let formats: Vec<&'static Format> = FORMATS.iter().filter(|format| self.wants(format)).collect();
        let mark = match formats.as_slice() {
            [format] => format.mark.clone(),
            _ => SEVERAL,
        };
        let (flag, place) = match &self.output {
            Some(path) => ("--output", path.as_path()),
            None => ("--output-format", Path::new(STDOUT)),
        };
        let texts = (!formats.is_empty()).then(|| Destination::open(place, mark)).transpose()?;
        let classic = self
            .classic
            .as_ref()
            .map(|(format, path)| Ok((*format, Destination::open(path, format.mark.clone())?)));
        Ok(Opened { formats, flag, texts, classic: classic.transpose()? })
    }

    fn wants(&self, format: &Format) -> bool {
        match self.output_format.as_slice() {
            [] => self.output.is_some() && format.output_format == Some(DEFAULT),
            wanted => wanted.iter().any(|wanted| wanted.name == format.name),
        }
    }
}

/// The places of a run in formats of other tools.
#[derive(Debug)]
pub(super) struct Opened {
    /// In the table's order, whatever the order asked for.
    formats: Vec<&'static Format>,
    /// What named the place of their texts.
    flag: &'static str,
    texts: Option<Destination>,
    classic: Option<(&'static Format, Destination)>,
}

impl Opened {
    /// Every place with what named it.
    pub(super) fn all(&self) -> impl Iterator<Item = (&'static str, &Destination)> {
        let texts = self.texts.as_ref().map(|place| (self.flag, place));
        texts.into_iter().chain(self.classic.as_ref().map(|(format, place)| (format.name, place)))
    }

    /// Writes the run where it was asked for, if it was.
    pub(super) fn write(&self, judged: &(Run, Judgement)) -> Result<(), Failure> {
        let mut text = String::new();
        for format in &self.formats {
            match document(format, judged)? {
                Document::Text(part) => text.push_str(&part),
                Document::Bytes(_) | Document::Sheets(_) => {
                    return Err(usage(format!("{} is not one text", format.name)));
                }
            }
        }
        if let Some(place) = &self.texts {
            place.write(text.as_bytes())?;
        }
        let Some((format, place)) = &self.classic else { return Ok(()) };
        match document(format, judged)? {
            Document::Text(text) => put(format, place, text.as_bytes()),
            Document::Bytes(bytes) => put(format, place, &bytes),
            Document::Sheets(_) => Err(usage(format!("{} is not one text", format.name))),
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
    let place = place.unwrap_or(Path::new(STDOUT));
    let contents = match document(format, judged)? {
        Document::Text(text) => text.into_bytes(),
        Document::Bytes(bytes) => bytes,
        Document::Sheets(_) if place == Path::new(STDOUT) => {
            return Err(usage(format!(
                "--format {} makes several files; name a directory for them with --output DIR",
                format.name
            )));
        }
        Document::Sheets(all) => return csv_dir::write(place, &all),
    };
    let place = Destination::open(place, format.mark.clone())?;
    if place.is_stdout() && std::str::from_utf8(&contents).is_err() {
        return Err(usage(format!(
            "--format {} is no text; name a file for it with --output FILE",
            format.name
        )));
    }
    put(format, &place, &contents)
}

/// Writes it and says where, unless that is plain.
fn put(format: &Format, place: &Destination, contents: &[u8]) -> Result<(), Failure> {
    place.write(contents)?;
    if !place.is_stdout() {
        say!("{}: {}", format.name, place.name().display());
    }
    Ok(())
}
