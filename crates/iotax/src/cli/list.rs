//! `iotax list`: lists the runs in the store.

use clap::Args as ClapArgs;
use iotax_analysis::time::utc;
use iotax_model::exit::Exit;
use iotax_model::visible;
use iotax_store::{RunSummary, StoreError};
use serde_json::json;

use super::output::StoreArgs;
use super::say::{self, print_line, say};
use super::{Failure, OrExit};

/// Flags of `iotax list`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

/// The state of a run that cannot be read, wholly or in part.
const DAMAGED: &str = "damaged";

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let store = args.store.open_existing()?;
    let runs = store.runs().or_exit(Exit::Environment)?;
    if args.json {
        let lines: Vec<serde_json::Value> = runs.iter().map(|(id, run)| document(*id, run)).collect();
        say::print_json(&lines.into());
    } else {
        print_line!("{:>5}  {:<20}  {:<11}  {:>9}  NAME", "RUN", "STARTED", "STATE", "MEASURED");
        runs.iter().for_each(|(id, run)| print_run(*id, run));
    }
    let damaged: Vec<&StoreError> = runs.iter().filter_map(|(_, run)| damage(run)).collect();
    damaged.iter().for_each(|error| say!("{error}"));
    Ok(if damaged.is_empty() { Exit::Fine } else { Exit::Environment })
}

fn document(id: i64, run: &Result<RunSummary, StoreError>) -> serde_json::Value {
    match run {
        Ok(run) => {
            let mut line = json!({
                "id": id,
                "name": run.name,
                "state": state(run),
                "started_at": utc(run.started_at_ms),
                "targets": run.targets,
                "measured": run.measured,
                "planned": run.planned,
            });
            if let Some(damage) = &run.damage {
                line["error"] = damage.to_string().into();
            }
            line
        }
        Err(error) => json!({ "id": id, "state": DAMAGED, "error": error.to_string() }),
    }
}

/// Why a run cannot be shown, if it cannot.
fn damage(run: &Result<RunSummary, StoreError>) -> Option<&StoreError> {
    match run {
        Ok(run) => run.damage.as_ref(),
        Err(error) => Some(error),
    }
}

fn state(run: &RunSummary) -> String {
    if run.damage.is_some() { DAMAGED.to_owned() } else { run.state.to_string() }
}

fn print_run(id: i64, run: &Result<RunSummary, StoreError>) {
    match run {
        Ok(run) => {
            let measured = format!("{}/{}", run.measured, run.planned);
            let (started, state) = (utc(run.started_at_ms), state(run));
            print_line!("{id:>5}  {started:<20}  {state:<11}  {measured:>9}  {}", visible::line(&run.name));
        }
        Err(_) => print_line!("{id:>5}  {:<20}  {DAMAGED:<11}  {:>9}", "", ""),
    }
}
