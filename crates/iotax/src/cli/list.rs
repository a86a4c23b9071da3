//! `iotax list`: the runs in the store.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use comfy_table::{Table, presets};
use iotax_model::exit::Exit;
use iotax_results::time::utc;

use super::args::Output;
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
    let store = Output { db: args.db.clone(), json: None, html: None }.store()?;
    let runs = store.runs().or_exit(Exit::Environment)?;
    if args.json {
        println!("{:#}", serde_json::to_value(&runs).or_exit(Exit::Environment)?);
        return Ok(Exit::Fine);
    }
    if runs.is_empty() {
        eprintln!("no run yet; the first: iotax ladder DIR");
        return Ok(Exit::Fine);
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(["RUN", "STARTED (UTC)", "STATE", "MEASUREMENTS", "NAME"]);
    for run in runs {
        table.add_row([
            run.id.to_string(),
            utc(run.started_at_ms),
            run.state.to_string(),
            run.measurements.to_string(),
            run.name,
        ]);
    }
    println!("{table}");
    Ok(Exit::Fine)
}
