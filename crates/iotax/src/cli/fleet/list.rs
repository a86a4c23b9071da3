//! `iotax fleet list`: lists the fleets in the store.

use clap::Args as ClapArgs;
use iotax_analysis::time::utc;
use iotax_model::exit::Exit;
use iotax_model::visible;
use iotax_store::{Filter, RunSummary};

use super::super::output::StoreArgs;
use super::super::say::{print_line, say};
use super::super::{Failure, OrExit};

/// Flags of `iotax fleet list`.
#[derive(Debug, ClapArgs)]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let store = args.store.open_existing()?;
    let mut runs = store.list(&Filter::default()).or_exit(Exit::Environment)?;
    runs.retain(|run| run.fleet.is_some());
    runs.reverse();
    if runs.is_empty() {
        say!("No run of a fleet is stored here; the first: iotax fleet run PLAN --hosts HOSTS");
        return Ok(Exit::Fine);
    }
    let id = |run: &RunSummary| run.fleet.as_ref().map(|of| of.fleet.clone()).unwrap_or_default();
    let mut fleets: Vec<String> = Vec::new();
    for run in &runs {
        if !fleets.contains(&id(run)) {
            fleets.push(id(run));
        }
    }
    print_line!("{:<10}  {:<20}  {:>7}  {:<22}  NAME", "FLEET", "STARTED", "MEMBERS", "STATE");
    for fleet in fleets {
        let members: Vec<&RunSummary> = runs.iter().filter(|run| id(run) == fleet).collect();
        let first = members[0];
        let mut states: Vec<String> = members.iter().map(|run| run.state.to_string()).collect();
        states.sort_unstable();
        states.dedup();
        print_line!(
            "{fleet:<10}  {:<20}  {:>7}  {:<22}  {}",
            utc(first.started_at_ms),
            members.len(),
            states.join(", "),
            visible::line(&first.name)
        );
    }
    Ok(Exit::Fine)
}
