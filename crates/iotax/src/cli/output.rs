//! Where results go: tables to the terminal, documents to files.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args as ClapArgs;
use iotax_model::exit::Exit;
use iotax_results::exchange::export::FORMATS;
use iotax_results::judge::{Judgement, judge};
use iotax_results::store::{Run, Store, StoreError};
use iotax_results::{exchange, report};

use super::foreign::Foreign;
use super::say::{print_line, say};
use super::screen::Form;
use super::{Failure, OrExit, args, usage};

/// What documents of ours say of themselves.
const OURS: [&str; 4] = [
    exchange::json::SCHEMA,
    exchange::json::history::SCHEMA,
    exchange::json::trips::SCHEMA,
    super::net::SCHEMA,
];
/// No result is larger than this; a larger file is somebody else's without a look.
const LARGEST: u64 = 256 << 20;

/// Where results go.
#[derive(Debug, Clone, Default, ClapArgs)]
pub(super) struct Output {
    /// Store of runs [default: iotax/iotax.db in the XDG data directory]
    #[arg(long, value_name = "FILE")]
    pub(super) db: Option<PathBuf>,
    /// Write the results as JSON; - (or no value) is stdout, which then carries nothing else
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    pub(super) json: Option<PathBuf>,
    /// Write the report as one HTML file
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    #[command(flatten)]
    pub(super) foreign: Foreign,
}

impl Output {
    /// Whether stdout carries a document and nothing else.
    pub(super) fn stdout_is_taken(&self) -> bool {
        !self.on_stdout().is_empty()
    }

    /// What goes to stdout.
    fn on_stdout(&self) -> Vec<&'static str> {
        self.json_on_stdout().then_some("--json").into_iter().chain(self.foreign.on_stdout()).collect()
    }

    fn json_on_stdout(&self) -> bool {
        self.json.as_deref() == Some(Path::new("-"))
    }

    fn json_file(&self) -> Option<&Path> {
        self.json.as_deref().filter(|_| !self.json_on_stdout())
    }

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

    /// Refuses files that cannot be written or that hold something else than an earlier result of iotax.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if let [first, second, ..] = self.on_stdout().as_slice() {
            return Err(usage(format!(
                "{first} and {second} both go to stdout, which carries one of them; give the other a file: --json FILE or \
                 --output FILE"
            )));
        }
        let files = [self.json_file(), self.html.as_deref()];
        files.into_iter().flatten().chain(self.foreign.files()).try_for_each(check)
    }

    /// Tables, JSON and HTML of a run; and the run with what they rest on.
    pub(super) fn report(
        &self,
        store: &Store,
        run: i64,
        html: Option<&Path>,
        form: Form,
    ) -> Result<(Run, Judgement), Failure> {
        let run = load(store, run)?;
        let judgement = judge(&run);
        form.show(&report::page::run(&run, &judgement), self.stdout_is_taken());
        if self.json.is_some() {
            self.write_json(&exchange::json::document(&run, &judgement))?;
        }
        if let Some(path) = html {
            write(path, report::html::render(&run, &judgement))?;
            say!("Report: {}", path.display());
        }
        let judged = (run, judgement);
        self.foreign.write(&judged)?;
        Ok(judged)
    }

    /// Writes a document where it is asked for, if it is.
    pub(super) fn write_json(&self, document: &serde_json::Value) -> Result<(), Failure> {
        if self.json_on_stdout() {
            print_line!("{document:#}");
        }
        match self.json_file() {
            Some(path) => write(path, format!("{document:#}\n")),
            None => Ok(()),
        }
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

/// `iotax-RUN.html` here, unless something else has that name.
pub(super) fn default_report(run: i64) -> Option<PathBuf> {
    let path = PathBuf::from(format!("iotax-{run}.html"));
    match check(&path) {
        Ok(()) => Some(path),
        Err(failure) => {
            say!("note: no report is written: {:#}; later: iotax report {run} --html FILE", failure.error);
            None
        }
    }
}

/// Whether a result may be written there: a new file, or one that iotax wrote. Leaves nothing behind.
fn check(path: &Path) -> Result<(), Failure> {
    let place = path.display();
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => {
            return Err(usage(format!("{place}: not a regular file; results are written to files")));
        }
        Ok(metadata) if !is_ours(path, metadata.len()) => {
            return Err(usage(format!(
                "{place}: it exists and iotax did not write it, so it is not replaced; remove it or choose another \
                 name"
            )));
        }
        Ok(_) => File::options().append(true).open(path).map(drop),
        Err(_) => File::create_new(path).and_then(|_| fs::remove_file(path)),
    }
    .with_context(|| format!("cannot write {place}"))
    .or_exit(Exit::Environment)
}

fn is_ours(path: &Path, length: u64) -> bool {
    if length > LARGEST {
        return false;
    }
    let Ok(bytes) = fs::read(path) else { return false };
    // Marks are text in files that are not, too.
    let text = String::from_utf8_lossy(&bytes);
    let mut marks = FORMATS.iter().filter_map(|format| format.mark).chain([report::html::MARK]);
    marks.any(|mark| text.contains(mark))
        || serde_json::from_str::<serde_json::Value>(&text).is_ok_and(|document| {
            // A document in another tool's schema has a section of ours.
            let told = [&document["schema"], &document["iotax"]["schema"]];
            OURS.iter().any(|schema| told.iter().any(|told| *told == schema))
        })
}

/// Writes a result: to a new file, or over one that iotax wrote.
pub(super) fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), Failure> {
    check(path)?;
    File::create(path)
        .and_then(|mut file| file.write_all(contents.as_ref()))
        .with_context(|| format!("cannot write {}", path.display()))
        .or_exit(Exit::Environment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_files_and_iotaxs_own_are_written() {
        let temp = tempfile::tempdir().expect("directory");
        let path = |name: &str| temp.path().join(name);
        let refused = |name: &str| {
            let failure = check(&path(name)).expect_err(name);
            (failure.exit, format!("{:#}", failure.error))
        };
        fs::write(path("mine"), "{ \"precious\": 1 }").expect("written");
        fs::write(path("empty"), "").expect("written");
        fs::create_dir(path("dir")).expect("made");
        for name in ["mine", "empty"] {
            let (exit, words) = refused(name);
            assert!(exit == Exit::Usage && words.contains("did not write it"), "{words}");
        }
        assert!(refused("dir").1.contains("not a regular file"));
        assert_eq!(refused("none/new").0, Exit::Environment);
        assert!(check(&path("new")).is_ok() && !path("new").exists());
        fs::write(path("ours"), "{\n  \"comparisons\": [],\n  \"schema\": \"iotax/1\"\n}").expect("written");
        assert!(check(&path("ours")).is_ok());
    }
}
