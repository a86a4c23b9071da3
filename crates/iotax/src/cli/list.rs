//! `iotax list`: the runs in the store.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;
use iotax_model::visible;
use iotax_results::report::utc;
use serde_json::json;

use super::output::Output;
use super::say::{self, print_line};
use super::{Failure, OrExit};

/// Flags of `iotax list`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Store of runs [default: iotax/iotax.db in the XDG data directory]
    #[arg(long, value_name = "FILE")]
    db: Option<PathBuf>,
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let store = Output { db: args.db.clone(), ..Output::default() }.existing_store()?;
    let runs = store.runs().or_exit(Exit::Environment)?;
    if args.json {
        let lines: Vec<serde_json::Value> = runs
            .iter()
            .map(|run| {
                json!({
                    "id": run.id,
                    "name": run.name,
                    "state": run.state.to_string(),
                    "started_at": utc(run.started_at_ms),
                    "targets": run.targets,
                    "measured": run.measured,
                    "planned": run.planned,
                })
            })
            .collect();
        say::print_json(&lines.into());
        return Ok(Exit::Fine);
    }
    print_line!("{:>5}  {:<20}  {:<11}  {:>9}  NAME", "RUN", "STARTED", "STATE", "MEASURED");
    for run in runs {
        let measured = format!("{}/{}", run.measured, run.planned);
        let (started, state) = (utc(run.started_at_ms), run.state.to_string());
        print_line!("{:>5}  {started:<20}  {state:<11}  {measured:>9}  {}", run.id, visible::line(&run.name));
    }
    Ok(Exit::Fine)
}
