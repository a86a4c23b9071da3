//! Output of results: tables to the terminal, documents to files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args as ClapArgs;
use iotax_analysis::{Judgement, judge};
use iotax_model::Run;
use iotax_model::exit::Exit;
use iotax_model::run;
use iotax_report as report;
use iotax_report::document::Page;
use iotax_report::mark::Mark;
use iotax_store::{Location, Store, StoreError};

use super::destination::{self, Destination};
use super::output_formats::{self, FormatArgs};
use super::say::{self, note};
use super::terminal::PageArgs;
use super::{Failure, OrExit, args, usage};

/// Environment variable that names the store if no flag does.
const VARIABLE: &str = "IOTAX_DB";

/// The store of runs.
#[derive(Debug, Clone, Default, ClapArgs)]
pub(super) struct StoreArgs {
    /// Store of runs, a file or postgres://USER@HOST/DATABASE [default: $IOTAX_DB, or iotax/iotax.db in the XDG data directory]
    #[arg(long, value_name = "STORE")]
    db: Option<PathBuf>,
}

impl StoreArgs {
    /// Returns the arguments that name the store at `location`.
    pub(super) const fn at(location: PathBuf) -> Self {
        Self { db: Some(location) }
    }

    pub(super) fn location(&self) -> Result<Location, Failure> {
        // Unlike an argument, the variable is hidden from other users; a URL may contain a password.
        let named = || std::env::var_os(VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from);
        match self.db.clone().or_else(named) {
            Some(location) => Ok((&location).into()),
            None => Ok(Location::File(args::directories()?.data_dir().join("iotax.db"))),
        }
    }

    /// Returns the path of the store's file; `None` if the store is on a database server.
    pub(super) fn file(&self) -> Result<Option<PathBuf>, Failure> {
        Ok(self.location()?.file().map(Path::to_owned))
    }

    /// Returns the file next to which reports are written: the store itself, or the default store's file if the store is on a server.
    fn next_to(&self) -> Result<PathBuf, Failure> {
        if let Some(file) = self.file()? {
            return Ok(file);
        }
        let dir = args::directories()?.data_dir().to_owned();
        fs::create_dir_all(&dir)
            .with_context(|| format!("cannot make {}", dir.display()))
            .or_exit(Exit::Environment)?;
        Ok(dir.join("iotax.db"))
    }

    /// Opens the store for writing; creates it if missing. Without `--db`, creates its directory too.
    pub(super) fn open(&self) -> Result<Store, Failure> {
        let location = self.location()?;
        if let (None, Some(dir)) = (&self.db, location.file().and_then(Path::parent)) {
            fs::create_dir_all(dir)
                .with_context(|| format!("cannot make {}", dir.display()))
                .or_exit(Exit::Environment)?;
        }
        Ok(Store::open(location).or_exit(Exit::Environment)?.named(self.name()))
    }

    /// Returns a command that would add the first run to the store, for a hint to the user.
    pub(super) fn first(&self) -> String {
        run::command("ladder", "DIR", "", self.name().as_deref())
    }

    /// Returns the value of `--db` without a password; `None` without the flag.
    fn name(&self) -> Option<String> {
        self.db.as_ref().map(|location| Location::from(location).to_string())
    }

    /// Opens the store for reading; `None` if its file is missing or empty.
    pub(super) fn open_if_there(&self) -> Result<Option<Store>, Failure> {
        let location = self.location()?;
        let is_empty = || {
            location.file().is_some_and(|path| fs::metadata(path).map_or(0, |metadata| metadata.len()) == 0)
        };
        let opened = if is_empty() { None } else { Some(Store::open_to_read(location.clone())) };
        match opened {
            Some(Ok(store)) => Ok(Some(store.named(self.name()))),
            // If a process was killed while it created the store, reading rolls the file back to an empty one.
            Some(Err(error)) if !is_empty() => Err(error).or_exit(Exit::Environment),
            _ => Ok(None),
        }
    }

    /// Opens the store for reading. Fails with a usage error if its file is missing or empty.
    pub(super) fn open_existing(&self) -> Result<Store, Failure> {
        let location = self.location()?;
        let none = || {
            let is_there = location.file().is_some_and(Path::exists);
            let what = if is_there { "an empty file, so no run" } else { "no run" };
            usage(format!("{location}: {what} is stored there yet; the first: {}", self.first()))
        };
        self.open_if_there()?.ok_or_else(none)
    }
}

/// Options for results.
#[derive(Debug, Clone, Default, ClapArgs)]
pub(super) struct OutputArgs {
    #[command(flatten)]
    pub(super) store: StoreArgs,
    /// Write the results as JSON; - (or no value) is stdout, with nothing else on it
    #[arg(long, short = 'J', value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    pub(super) json: Option<PathBuf>,
    /// Write the report as one HTML file; without FILE next to the store
    #[arg(long, value_name = "FILE")]
    #[expect(
        clippy::option_option,
        reason = "not asked for, asked for, and asked for in a file: as clap has it"
    )]
    pub(super) html: Option<Option<PathBuf>>,
    #[command(flatten)]
    pub(super) formats: FormatArgs,
}

impl OutputArgs {
    /// Checks all destinations that the user named before anything is measured. Refuses a destination that cannot be written or that holds
    /// anything but a result of the same kind, and one destination for two results. `json` is the mark by which an earlier JSON result is
    /// recognised.
    pub(super) fn open(&self, json: Mark) -> Result<Destinations, Failure> {
        let open = |path: &Option<PathBuf>, mark| {
            path.as_deref().map(|path| Destination::open(path, mark)).transpose()
        };
        let html = match &self.html {
            None => None,
            Some(None) => Some(Html::NextTo(self.store.next_to()?)),
            Some(Some(path)) => Some(Html::At(Destination::open(path, report::html::MARK)?)),
        };
        let outputs = Destinations { json: open(&self.json, json)?, html, formats: self.formats.open()? };
        if let (Some(_), Some(db)) = (&self.store.db, self.store.file()?) {
            outputs.refuse_made(&[("--db", db)])?;
        }
        let all = outputs.all();
        for (index, (flag, destination)) in all.iter().enumerate() {
            let name = destination.name().display();
            let Some((other, _)) = all[..index].iter().find(|(_, other)| destination.is_same(other)) else {
                continue;
            };
            return Err(usage(if destination.is_stdout() {
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

/// The destinations of a command's results, already checked except for an HTML report next to the store.
#[derive(Debug)]
pub(super) struct Destinations {
    json: Option<Destination>,
    html: Option<Html>,
    formats: output_formats::FormatDestinations,
}

/// The location of an HTML report.
#[derive(Debug)]
enum Html {
    /// A file that the user named.
    At(Destination),
    /// A file next to this path, named after the path and the run.
    NextTo(PathBuf),
}

impl Html {
    fn write(&self, run: &Run, judgement: &Judgement) -> Result<(), Failure> {
        let next;
        let destination = match self {
            Self::At(destination) => destination,
            Self::NextTo(store) => {
                next = Destination::open(&page_of(store, run.id), report::html::MARK)?;
                &next
            }
        };
        destination.write(report::html::render(run, judgement).as_bytes())?;
        if !destination.is_stdout() {
            note!("Report: {}", destination.name().display());
        }
        Ok(())
    }
}

impl Destinations {
    /// Returns all destinations that the user named, with their flags.
    fn all(&self) -> Vec<(&'static str, &Destination)> {
        let json = self.json.as_ref().map(|destination| ("--json", destination));
        let html = self.html.as_ref().and_then(|html| match html {
            Html::At(destination) => Some(("--html", destination)),
            Html::NextTo(_) => None,
        });
        json.into_iter().chain(html).chain(self.formats.all()).collect()
    }

    /// Refuses a path that is used twice: as a result and in `made`, or in `made` for two purposes. `made` lists the files that the command
    /// creates or measures, each with its purpose.
    pub(super) fn refuse_made(&self, made: &[(&str, PathBuf)]) -> Result<(), Failure> {
        for (index, (what, path)) in made.iter().enumerate() {
            let earlier = made[..index].iter().filter(|(other, _)| other != what);
            let earlier = earlier.filter(|(_, other)| destination::is_one_file(other, path));
            let results = self.all().into_iter().filter(|(_, destination)| destination.is_file(path));
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

    /// Refuses a result that is named like a CSV file in the directory of `--csv`.
    pub(super) fn refuse_among_csv(&self, dir: &Path) -> Result<(), Failure> {
        match self.all().iter().find(|(_, destination)| destination.is_in(dir, "csv")) {
            None => Ok(()),
            Some((flag, destination)) => {
                let (name, dir) = (destination.name().display(), dir.display());
                Err(usage(format!(
                    "{flag}: {name} is among the files of --csv {dir}; give it another directory"
                )))
            }
        }
    }

    /// Returns whether any of the requested formats can hold only one run.
    pub(super) fn take_one_run(&self) -> bool {
        self.html.is_some() || self.formats.all().next().is_some()
    }

    /// Returns whether a result goes to stdout, which must then carry nothing else.
    pub(super) fn stdout_is_taken(&self) -> bool {
        self.all().iter().any(|(_, destination)| destination.is_stdout())
    }

    /// Loads a run, evaluates it and shows a page about it. Returns the run and its evaluation.
    pub(super) fn show(
        &self,
        store: &Store,
        run: i64,
        layout: PageArgs,
        page: fn(&Run, &Judgement) -> Page,
    ) -> Result<(Run, Judgement), Failure> {
        let run = load(store, run)?;
        let judgement = judge(&run);
        layout.show(&page(&run, &judgement), self.stdout_is_taken());
        Ok((run, judgement))
    }

    /// Shows a run as [`Self::show`] does, and writes the requested documents. Returns the run and its evaluation.
    pub(super) fn report(
        &self,
        store: &Store,
        run: i64,
        layout: PageArgs,
        page: fn(&Run, &Judgement) -> Page,
    ) -> Result<(Run, Judgement), Failure> {
        let (run, judgement) = self.show(store, run, layout, page)?;
        if self.json.is_some() {
            self.write_json(&report::json::document(&run, &judgement))?;
        }
        if let Some(html) = &self.html {
            html.write(&run, &judgement)?;
        }
        let judged = (run, judgement);
        self.formats.write(&judged)?;
        Ok(judged)
    }

    /// Writes the JSON document if `--json` is given.
    pub(super) fn write_json(&self, document: &serde_json::Value) -> Result<(), Failure> {
        self.json.as_ref().map_or(Ok(()), |destination| destination.write(say::json(document).as_bytes()))
    }
}

/// Returns the path of a run's HTML report: `iotax-3.html` next to `iotax.db`.
fn page_of(store: &Path, run: i64) -> PathBuf {
    let stem = store.file_stem().unwrap_or_default().to_string_lossy();
    store.with_file_name(format!("{stem}-{run}.html"))
}

/// Loads a run. An unknown number is a usage error; any other failure is an error of the environment.
pub(super) fn load(store: &Store, run: i64) -> Result<Run, Failure> {
    store.load(run).map_err(refused)
}

/// Fails unless `run` is between 1 and the number of the newest run.
pub(super) fn known(store: &Store, run: i64) -> Result<(), Failure> {
    let last = store.latest().or_exit(Exit::Environment)?.unwrap_or(0);
    if (1..=last).contains(&run) { Ok(()) } else { Err(refused(store.unknown(run, last))) }
}

fn refused(error: StoreError) -> Failure {
    let exit = if matches!(error, StoreError::UnknownRun { .. }) { Exit::Usage } else { Exit::Environment };
    Failure { exit, error: error.into() }
}
