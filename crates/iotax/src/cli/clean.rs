//! `iotax clean`: undoes what an interrupted run left behind.

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;
use iotax_rig::ledger;

use super::{Failure, OrExit, args};

/// Flags of `iotax clean`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Say what would be undone and touch nothing
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let dir = args::ledger_dir()?;
    if args.dry_run {
        let left = ledger::leftovers(&dir).or_exit(Exit::Environment)?;
        left.iter().for_each(|effect| println!("would undo: {effect}"));
        println!("{} things were left behind", left.len());
        return Ok(Exit::Fine);
    }
    let cleaned = ledger::clean(&dir).or_exit(Exit::Environment)?;
    cleaned.undone.iter().for_each(|effect| println!("undone: {effect}"));
    cleaned.failed.iter().for_each(|failure| println!("not undone: {}: {}", failure.effect, failure.reason));
    if cleaned.in_use > 0 {
        println!("left alone: {} runs that are still going on", cleaned.in_use);
    }
    if cleaned.undone.is_empty() && cleaned.failed.is_empty() {
        println!("nothing was left behind");
    }
    Ok(if cleaned.failed.is_empty() { Exit::Fine } else { Exit::Environment })
}
