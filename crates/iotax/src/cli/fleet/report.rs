//! `iotax fleet report`: shows the result of a fleet.

use anyhow::Context;
use clap::Args as ClapArgs;
use iotax_analysis::fleet::fleet;
use iotax_model::Run;
use iotax_model::exit::Exit;
use iotax_report::{document, json};
use iotax_store::{Filter, Store};

use super::super::output::{Destinations, OutputArgs, load};
use super::super::terminal::PageArgs;
use super::super::{Failure, OrExit, usage};

/// Flags of `iotax fleet report`.
#[derive(Debug, ClapArgs)]
pub(in crate::cli) struct Args {
    /// The fleet's id, as iotax fleet run shows it
    fleet: String,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let store = args.output.store.open_existing()?;
    let outputs = open(&args.output)?;
    show(&runs(&store, &args.fleet)?, &outputs, args.page)?;
    Ok(Exit::Fine)
}

/// Checks the destinations of the results. Refuses `--html`, which only the members' own runs have.
pub(super) fn open(output: &OutputArgs) -> Result<Destinations, Failure> {
    if output.html.is_some() {
        return Err(usage("--html is for the members' own runs: iotax report RUN --html FILE"));
    }
    output.open(json::fleet::MARK)
}

/// Returns the members' runs, in order of creation.
pub(super) fn runs(store: &Store, fleet: &str) -> Result<Vec<Run>, Failure> {
    let filter = Filter { fleet: Some(fleet.to_owned()), ..Filter::default() };
    let listed = store.list(&filter).or_exit(Exit::Environment)?;
    let mut ids: Vec<i64> = listed
        .iter()
        .filter(|run| run.fleet.as_ref().is_some_and(|member| member.fleet == fleet))
        .map(|run| run.id)
        .collect();
    ids.sort_unstable();
    if ids.is_empty() {
        return Err(usage(format!(
            "there is no fleet {fleet:?} in the store; iotax fleet list shows those that are"
        )));
    }
    ids.into_iter().map(|run| load(store, run)).collect()
}

/// Shows the fleet's result, and writes its JSON document if `--json` is given.
pub(super) fn show(runs: &[Run], outputs: &Destinations, page: PageArgs) -> Result<(), Failure> {
    let fleet = fleet(runs).context("these runs are no fleet's").or_exit(Exit::Environment)?;
    page.show(&document::fleet(&fleet), outputs.stdout_is_taken());
    outputs.write_json(&json::fleet::document(&fleet))
}
