//! The option `--json` of commands that write one document.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use iotax_report::mark::{Mark, MarkPosition};
use serde_json::Value;

use super::destination::Destination;
use super::{Failure, say};

/// The option `--json`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct JsonArgs {
    /// Write the result as JSON; - (or no value) is stdout, with nothing else on it
    #[arg(long, short = 'J', value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

/// The destination of a document; nothing is written without `--json`.
#[derive(Debug)]
pub(super) struct JsonOutput(Option<Destination>);

impl JsonArgs {
    pub(super) const fn is_given(&self) -> bool {
        self.json.is_some()
    }

    /// Checks the destination before the command does its work. `mark` is the mark by which an earlier document is recognised.
    pub(super) fn open(&self, mark: Mark) -> Result<JsonOutput, Failure> {
        Ok(JsonOutput(self.json.as_deref().map(|path| Destination::open(path, mark)).transpose()?))
    }

    /// Checks the destination of a document that carries no mark, so that an existing file is never replaced. `format` names the document.
    pub(super) fn open_without_mark(&self, format: &'static str) -> Result<JsonOutput, Failure> {
        self.open(Mark { format, position: MarkPosition::Nowhere })
    }
}

impl JsonOutput {
    /// Returns whether the document goes to stdout, which must then carry nothing else.
    pub(super) fn is_on_stdout(&self) -> bool {
        self.0.as_ref().is_some_and(Destination::is_stdout)
    }

    /// Writes the document that `make` returns, if `--json` is given.
    pub(super) fn write(&self, make: impl FnOnce() -> Value) -> Result<(), Failure> {
        self.0.as_ref().map_or(Ok(()), |destination| destination.write(say::json(&make()).as_bytes()))
    }
}
