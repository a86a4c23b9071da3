//! Where results go: tables to the terminal, documents to files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args as ClapArgs;
use iotax_analysis::store::{Run, Store, StoreError};
use iotax_analysis::{Judgement, judge};
use iotax_model::exit::Exit;
use iotax_report as report;
use iotax_report::mark::Mark;

use super::destination::{self, Destination};
use super::output_formats::{self, Foreign};
use super::say::{self, say};
use super::terminal::Form;
use super::{Failure, OrExit, args, usage};

/// Where results go.
#[derive(Debug, Clone, Default, ClapArgs)]
pub(super) struct Output {
    /// Store of runs [default: iotax/iotax.db in the XDG data directory]
    #[arg(long, value_name = "FILE")]
    pub(super) db: Option<PathBuf>,
    /// Write the results as JSON; - (or no value) is stdout, which then carries nothing else
    #[arg(long, short = 'J', value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    pub(super) json: Option<PathBuf>,
    /// Write the report as one HTML file
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    #[command(flatten)]
    pub(super) foreign: Foreign,
}

impl Output {
    /// Where the store is.
    pub(super) fn store_path(&self) -> Result<PathBuf, Failure> {
        self.db.clone().map_or_else(|| Ok(args::directories()?.data_dir().join("iotax.db")), Ok)
    }

    /// Opens the store to write to it, making it and the default's directory if they are missing.
    pub(super) fn store(&self) -> Result<Store, Failure> {
        let path = self.store_path()?;
        if let (None, Some(dir)) = (&self.db, path.parent()) {
            fs::create_dir_all(dir)
                .with_context(|| format!("cannot make {}", dir.display()))
                .or_exit(Exit::Environment)?;
        }
        Store::open(&path).or_exit(Exit::Environment)
    }

    /// Opens a store that must be there, to read it.
    pub(super) fn existing_store(&self) -> Result<Store, Failure> {
        let path = self.store_path()?;
        if fs::metadata(&path).map_or(0, |metadata| metadata.len()) == 0 {
            let path = path.display();
            return Err(usage(format!("{path}: no run is stored there yet; the first: iotax ladder DIR")));
        }
        Store::open_to_read(&path).or_exit(Exit::Environment)
    }

    /// Looks at every place that a result goes to, before there is one. Refuses those that cannot be written, that hold something
    /// else than such a result of iotax, and one place for two results. `json` is what the JSON will be.
    pub(super) fn open(&self, json: Mark) -> Result<Outputs, Failure> {
        let open = |path: &Option<PathBuf>, mark| {
            path.as_deref().map(|path| Destination::open(path, mark)).transpose()
        };
        let outputs = Outputs {
            json: open(&self.json, json)?,
            html: open(&self.html, report::html::MARK)?,
            foreign: self.foreign.open()?,
        };
        if let Some(db) = &self.db {
            outputs.refuse_made(&[("--db", db.clone())])?;
        }
        let all = outputs.all();
        for (index, (flag, place)) in all.iter().enumerate() {
            let name = place.name().display();
            let Some((other, _)) = all[..index].iter().find(|(_, other)| place.is_same(other)) else {
                continue;
            };
            return Err(usage(if place.is_stdout() {
                format!(
                    "{other} and {flag} both go to stdout, which carries one of them; give the other a file: --json FILE or \
                     --output FILE"
                )
            } else {
                format!("{other} and {flag} both go to {name}; give each a file of its own")
            }));
        }
        Ok(outputs)
    }
}

/// The places of a command's results.
#[derive(Debug)]
pub(super) struct Outputs {
    json: Option<Destination>,
    html: Option<Destination>,
    foreign: output_formats::Opened,
}

impl Outputs {
    /// Every place with the flag that named it.
    fn all(&self) -> Vec<(&'static str, &Destination)> {
        let json = self.json.as_ref().map(|place| ("--json", place));
        let html = self.html.as_ref().map(|place| ("--html", place));
        json.into_iter().chain(html).chain(self.foreign.all()).collect()
    }

    /// Refuses one file for two purposes: files that the command itself makes or measures, with what named each, and results.
    pub(super) fn refuse_made(&self, made: &[(&str, PathBuf)]) -> Result<(), Failure> {
        for (index, (what, path)) in made.iter().enumerate() {
            let earlier = made[..index].iter().filter(|(other, _)| other != what);
            let earlier = earlier.filter(|(_, other)| destination::is_one_file(other, path));
            let results = self.all().into_iter().filter(|(_, place)| place.is_file(path));
            if let Some(other) = earlier.map(|(other, _)| *other).chain(results.map(|(flag, _)| flag)).next()
            {
                let name = path.display();
                return Err(usage(format!(
                    "{what} and {other} are both {name}; give each a file of its own"
                )));
            }
        }
        Ok(())
    }

    /// Refuses results among the CSV files that are to be made in a directory.
    pub(super) fn refuse_among_csv(&self, dir: &Path) -> Result<(), Failure> {
        match self.all().iter().find(|(_, place)| place.is_in(dir, "csv")) {
            None => Ok(()),
            Some((flag, place)) => {
                let (name, dir) = (place.name().display(), dir.display());
                Err(usage(format!(
                    "{flag}: {name} is among the files of --csv {dir}; give it another directory"
                )))
            }
        }
    }

    /// Whether any result is asked for by name.
    pub(super) fn are_asked_for(&self) -> bool {
        !self.all().is_empty()
    }

    /// Whether stdout carries a document and nothing else.
    pub(super) fn stdout_is_taken(&self) -> bool {
        self.all().iter().any(|(_, place)| place.is_stdout())
    }

    /// `iotax-RUN.html` here where no other report was asked for, unless something else has that name.
    pub(super) fn or_default_report(&mut self, run: i64) {
        if self.html.is_some() {
            return;
        }
        let name = format!("iotax-{run}.html");
        match Destination::open(Path::new(&name), report::html::MARK) {
            Ok(place) => self.html = Some(place),
            Err(failure) => {
                say!(
                    "note: no report is written: {:#}; later: iotax report {run} --html FILE",
                    failure.error
                );
            }
        }
    }

    /// The answer of a run, or all its tables; JSON and HTML; and the run with what they rest on.
    pub(super) fn report(
        &self,
        store: &Store,
        run: i64,
        form: Form,
        detail: bool,
    ) -> Result<(Run, Judgement), Failure> {
        let run = load(store, run)?;
        let judgement = judge(&run);
        let page = if detail { report::document::run } else { report::document::answer };
        form.show(&page(&run, &judgement), self.stdout_is_taken());
        if self.json.is_some() {
            self.write_json(&report::json::document(&run, &judgement))?;
        }
        if let Some(place) = &self.html {
            place.write(report::html::render(&run, &judgement).as_bytes())?;
            if !place.is_stdout() {
                say!("Report: {}", place.name().display());
            }
        }
        let judged = (run, judgement);
        self.foreign.write(&judged)?;
        Ok(judged)
    }

    /// Writes a document where it is asked for, if it is.
    pub(super) fn write_json(&self, document: &serde_json::Value) -> Result<(), Failure> {
        self.json.as_ref().map_or(Ok(()), |place| place.write(say::json(document).as_bytes()))
    }
}

/// A run of the store; a wrong number is the user's error, anything else the machine's.
pub(super) fn load(store: &Store, run: i64) -> Result<Run, Failure> {
    store.load(run).map_err(|error| {
        let exit =
            if matches!(error, StoreError::UnknownRun { .. }) { Exit::Usage } else { Exit::Environment };
        Failure { exit, error: error.into() }
    })
}
