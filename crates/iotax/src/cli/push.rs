//! `iotax push`: copies runs to another store.

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;
use iotax_store::{Copied, Filter, Location, Store, StoreError};

use super::number;
use super::output::StoreArgs;
use super::say::{print_line, say};
use super::{Failure, OrExit, usage};

/// The runs that are copied.
#[derive(Debug, ClapArgs)]
pub(super) struct Which {
    /// Numbers of the runs in the store that they are copied from, as iotax list shows them
    #[arg(value_name = "RUN", value_parser = number::run, required_unless_present_any = ["all", "tags"])]
    runs: Vec<i64>,
    /// Copy every run
    #[arg(long, conflicts_with_all = ["runs", "tags"])]
    all: bool,
    /// Copy the runs with this tag; repeat to require several tags
    #[arg(long = "tag", value_name = "TAG", conflicts_with = "runs")]
    tags: Vec<String>,
}

/// Flags of `iotax push`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// The store to copy to: a file, or postgres://USER@HOST/DATABASE
    #[arg(long, value_name = "STORE")]
    to: String,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let from = args.store.open_existing()?;
    refuse_itself(&from, &args.to)?;
    let runs = wanted(&args.which, &from)?;
    if runs.is_empty() {
        return Ok(Exit::Fine);
    }
    // Open the store only now, because opening may create it.
    let mut to = Store::open(args.to.as_str()).or_exit(Exit::Environment)?;
    copy(runs, &from, &mut to)
}

/// Refuses to copy a store to itself.
pub(super) fn refuse_itself(store: &Store, other: &str) -> Result<(), Failure> {
    let is_same = match (store.location(), Location::from(other)) {
        (Location::File(a), Location::File(b)) => super::destination::is_one_file(&a, &b),
        (a, b) => a == b,
    };
    if is_same {
        Err(usage(format!("{}: runs are copied to another store", store.location())))
    } else {
        Ok(())
    }
}

/// Returns the runs to copy, oldest first. Prints a message if none match. Fails for an unknown run number.
pub(super) fn wanted(which: &Which, from: &Store) -> Result<Vec<i64>, Failure> {
    let filter = Filter { tags: which.tags.clone(), ..Filter::default() };
    let listed = from.list(&filter).or_exit(Exit::Environment)?;
    let known: Vec<i64> = listed.iter().rev().map(|run| run.id).collect();
    if let Some(unknown) = which.runs.iter().find(|run| !known.contains(run)) {
        return Err(usage(format!("{} has no run {unknown}; see iotax list", from.location())));
    }
    if which.runs.is_empty() && known.is_empty() {
        say!("{} has no such run; see iotax list", from.location());
    }
    Ok(if which.runs.is_empty() { known } else { which.runs.clone() })
}

/// Copies runs, and prints the outcome of each. Ends at an unknown run number, and at a store that cannot be reached or written; other
/// failures do not stop the remaining runs.
pub(super) fn copy(runs: Vec<i64>, from: &Store, to: &mut Store) -> Result<Exit, Failure> {
    let mut exit = Exit::Fine;
    for run in runs {
        match from.copy_run(run, to) {
            Ok(copied) => print_line!("run {run}: {}", words(copied)),
            Err(error @ StoreError::UnknownRun { .. }) => return Err(error).or_exit(Exit::Usage),
            Err(error @ (StoreError::Unreachable { .. } | StoreError::Unwritable { .. })) => {
                return Err(error).or_exit(Exit::Environment);
            }
            Err(StoreError::Claimed { .. }) => {
                say!("run {run}: not copied: it is measuring, here or there; copy it when it has ended");
                exit = Exit::Environment;
            }
            Err(error) => {
                say!("run {run}: not copied: {error}");
                exit = Exit::Environment;
            }
        }
    }
    Ok(exit)
}

fn words(copied: Copied) -> String {
    match copied {
        Copied::Added { run, measurements } => {
            format!("copied as run {run}, {measurements} measurements")
        }
        Copied::Completed { run, measurements } => {
            format!("was there as run {run}; brought up to date, {measurements} measurements added")
        }
        Copied::Noted { run } => format!("was there as run {run}; its notes were brought up to date"),
        Copied::Same { run } => format!("was there as run {run}; nothing to add"),
    }
}
